/* interrupt_posix.c - interrupt.h with a queued SIGURG, whose default is to be ignored.
 *
 * The signal carries the slot. It may arrive late, when the thread runs something else: the handler compares the
 * number of the run. A slot belongs to one thread and the handler runs on that thread, so what it reads stands
 * still. */
#define _GNU_SOURCE
#include "script/interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/err.h"

static _Atomic(lua_Hook) raise_hook; /* a signal handler has no argument for it; always the same function */

static void interrupted(int signal_number, siginfo_t *info, void *context)
{
    const int saved = errno;
    (void)signal_number;
    (void)context;
    if (info->si_code == SI_QUEUE && info->si_value.sival_ptr != NULL) {
        ls_slot *slot = info->si_value.sival_ptr;
        const uint64_t run = atomic_load_explicit(&slot->run, memory_order_relaxed);
        lua_State *L = atomic_load_explicit(&slot->running, memory_order_relaxed);
        if (run != 0 && L != NULL && run == atomic_load_explicit(&slot->end_run, memory_order_acquire)) {
            atomic_store_explicit(&slot->over, 1, memory_order_relaxed);
            lua_sethook(L, atomic_load_explicit(&raise_hook, memory_order_relaxed), LUA_MASKCOUNT, 1);
        }
    }
    errno = saved;
}

int ls_interrupt_install(lua_Hook hook)
{
    struct sigaction action = {.sa_sigaction = interrupted, .sa_flags = SA_SIGINFO | SA_RESTART};
    atomic_store(&raise_hook, hook);
    sigemptyset(&action.sa_mask);
    return sigaction(SIGURG, &action, NULL) == 0 ? LS_OK : LS_ESYS;
}

void ls_interrupt_join(ls_slot *slot)
{
    sigset_t set;
    slot->thread = pthread_self();
    slot->joined = true;
    sigemptyset(&set);
    sigaddset(&set, SIGURG);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void ls_interrupt_leave(ls_slot *slot)
{
    slot->joined = false;
}

uint64_t ls_interrupt_cpu_ns(const ls_slot *slot)
{
    clockid_t clock;
    struct timespec now;
    if (pthread_getcpuclockid(slot->thread, &clock) != 0 || clock_gettime(clock, &now) != 0) return 0;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ls_interrupt_cpu_step_ns(void)
{
    return 0; /* clock_getres(3): 1 ns where the kernel has high-resolution timers */
}

void ls_interrupt_send(ls_slot *slot)
{
    (void)pthread_sigqueue(slot->thread, SIGURG, (union sigval){.sival_ptr = slot});
}
