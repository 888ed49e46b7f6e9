/* cpu_limit_posix.c - cpu_limit.h with a queued SIGURG, which is ignored by default.
 *
 * The signal carries the address of the CPU watch. It may arrive late, in another run, so the handler compares the
 * run numbers. A SIGURG of another origin goes to the handler that was there before. A CPU watch belongs to one thread
 * and the handler runs on that thread, so the fields that the thread writes do not change while the handler reads
 * them. */
#define _GNU_SOURCE
#include "script/core/cpu_limit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/err.h"

static _Atomic(lua_Hook) raise_hook; /* global: a signal handler has no user argument; always the same function */

static pthread_mutex_t install_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the number of users */
static unsigned users;
static struct sigaction before; /* written while the handler is not installed */

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if ((before.sa_flags & SA_SIGINFO) != 0)
        before.sa_sigaction(signal_number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal_number);
}

static void interrupted(int signal_number, siginfo_t *info, void *context)
{
    const int saved = errno;
    if (info->si_code == SI_QUEUE && info->si_value.sival_ptr != NULL) {
        ls_cpu_watch *cpu = info->si_value.sival_ptr;
        const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_relaxed);
        lua_State *L = atomic_load_explicit(&cpu->running, memory_order_relaxed);
        if (run != 0 && L != NULL && run == atomic_load_explicit(&cpu->end_run, memory_order_acquire)) {
            atomic_store_explicit(&cpu->exceeded, 1, memory_order_relaxed);
            lua_sethook(L, atomic_load_explicit(&raise_hook, memory_order_relaxed), LUA_MASKCOUNT, 1);
        } else if (run != 0 && L != NULL && run == atomic_load_explicit(&cpu->look_run, memory_order_acquire)) {
            lua_sethook(L, atomic_load_explicit(&raise_hook, memory_order_relaxed), LUA_MASKCOUNT, 1);
        }
    } else {
        pass_on(signal_number, info, context);
    }
    errno = saved;
}

int ls_cpu_limit_install(lua_Hook hook)
{
    struct sigaction action = {.sa_sigaction = interrupted, .sa_flags = SA_SIGINFO | SA_RESTART};
    int err = LS_OK;
    sigemptyset(&action.sa_mask);
    (void)pthread_mutex_lock(&install_mutex);
    atomic_store(&raise_hook, hook);
    if (users == 0 && (sigaction(SIGURG, NULL, &before) != 0 || sigaction(SIGURG, &action, NULL) != 0)) err = LS_ESYS;
    if (err == LS_OK) users++;
    (void)pthread_mutex_unlock(&install_mutex);
    return err;
}

void ls_cpu_limit_uninstall(void)
{
    struct sigaction now;
    (void)pthread_mutex_lock(&install_mutex);
    if (--users == 0 && sigaction(SIGURG, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
        now.sa_sigaction == interrupted)
        (void)sigaction(SIGURG, &before, NULL);
    (void)pthread_mutex_unlock(&install_mutex);
}

void ls_cpu_limit_join(ls_cpu_watch *cpu)
{
    sigset_t set;
    cpu->thread = pthread_self();
    cpu->joined = true;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void ls_cpu_limit_leave(ls_cpu_watch *cpu)
{
    cpu->joined = false;
}

uint64_t ls_cpu_limit_cpu_ns(const ls_cpu_watch *cpu)
{
    clockid_t clock;
    struct timespec now;
    if (pthread_getcpuclockid(cpu->thread, &clock) != 0 || clock_gettime(clock, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ls_cpu_limit_cpu_step_ns(void)
{
    return 0; /* clock_getres(3): 1 ns where the kernel has high-resolution timers */
}

void ls_cpu_limit_send(ls_cpu_watch *cpu)
{
    (void)pthread_sigqueue(cpu->thread, SIGURG, (union sigval){.sival_ptr = cpu});
}
