/* thread_posix.c - thread.h on POSIX threads. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/thread.h"

/* Lua nests at most 200 C calls (LUAI_MAXCCALLS); the most expensive one, gsub with a callback that calls gsub, takes
 * about 2 KiB of stack per level. Untouched pages cost nothing. */
enum { STACK_BYTES = 1024 * 1024 };

enum { NAME_BYTES = 16 };

static void must(int err)
{
    assert(err == 0);
    (void)err;
}

int ls_mutex_open(ls_mutex *mutex)
{
    return ls_err_from_errno(pthread_mutex_init(mutex, NULL));
}

void ls_mutex_close(ls_mutex *mutex)
{
    must(pthread_mutex_destroy(mutex));
}

void ls_mutex_lock(ls_mutex *mutex)
{
    must(pthread_mutex_lock(mutex));
}

void ls_mutex_unlock(ls_mutex *mutex)
{
    must(pthread_mutex_unlock(mutex));
}

int ls_cond_open(ls_cond *cond)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);
    if (err != 0) return ls_err_from_errno(err);
    err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (err == 0) err = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return ls_err_from_errno(err);
}

void ls_cond_close(ls_cond *cond)
{
    must(pthread_cond_destroy(cond));
}

void ls_cond_wait(ls_cond *cond, ls_mutex *mutex)
{
    must(pthread_cond_wait(cond, mutex));
}

bool ls_cond_wait_ms(ls_cond *cond, ls_mutex *mutex, uint32_t ms)
{
    struct timespec until;
    must(clock_gettime(CLOCK_MONOTONIC, &until));
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    const int err = pthread_cond_timedwait(cond, mutex, &until);
    assert(err == 0 || err == ETIMEDOUT);
    return err == 0;
}

void ls_cond_signal(ls_cond *cond)
{
    must(pthread_cond_signal(cond));
}

void ls_cond_broadcast(ls_cond *cond)
{
    must(pthread_cond_broadcast(cond));
}

typedef struct start {
    ls_thread_fn *fn;
    void *arg;
    char name[NAME_BYTES];
} start;

static void *run(void *arg)
{
    const start s = *(start *)arg;
    free(arg);
    (void)pthread_setname_np(pthread_self(), s.name); /* for debuggers only: a failure is harmless */
    s.fn(s.arg);
    return NULL;
}

static int start_thread(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    pthread_attr_t attr;
    start *s = malloc(sizeof *s);
    if (s == NULL) return LS_ENOMEM;
    s->fn = fn;
    s->arg = arg;
    (void)snprintf(s->name, sizeof s->name, "%s", name);

    int err = pthread_attr_init(&attr);
    if (err != 0) goto fail_start;
    if ((err = pthread_attr_setstacksize(&attr, STACK_BYTES)) != 0) goto fail_attr;
    if ((err = pthread_create(thread, &attr, run, s)) != 0) goto fail_attr;
    (void)pthread_attr_destroy(&attr);
    return LS_OK;

fail_attr:
    (void)pthread_attr_destroy(&attr);
fail_start:
    free(s);
    return err == ENOMEM || err == EAGAIN ? LS_ENOMEM : LS_ESYS;
}

int ls_thread_start(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    sigset_t all, before;
    sigfillset(&all); /* a thread inherits the mask of its creator */
    must(pthread_sigmask(SIG_SETMASK, &all, &before));
    const int err = start_thread(thread, name, fn, arg);
    must(pthread_sigmask(SIG_SETMASK, &before, NULL));
    return err;
}

int ls_thread_start_parent(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    return start_thread(thread, name, fn, arg);
}

void ls_thread_join(ls_thread *thread)
{
    must(pthread_join(*thread, NULL));
}

/* The commands of membarrier(2), which some distributions' headers lack. */
enum { BARRIER_PRIVATE = 1 << 3, BARRIER_REGISTER_PRIVATE = 1 << 4 };

void ls_thread_barrier(void)
{
    /* Without the call: a store of another thread is visible long before this time is over. */
    const struct timespec pause = {.tv_nsec = 10 * 1000000L};
    atomic_thread_fence(memory_order_seq_cst);
    if (syscall(SYS_membarrier, BARRIER_PRIVATE, 0, 0) == 0) return;
    if (errno == EPERM && syscall(SYS_membarrier, BARRIER_REGISTER_PRIVATE, 0, 0) == 0 &&
        syscall(SYS_membarrier, BARRIER_PRIVATE, 0, 0) == 0)
        return;
    (void)nanosleep(&pause, NULL);
}

unsigned ls_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return (unsigned)CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN); /* reached with more processors than a cpu_set_t holds */
    return online > 0 ? (unsigned)online : 1;
}

uint64_t ls_thread_wanted_ns(void)
{
    unsigned long long had_ns = 0, waited_ns = 0;
    struct timespec had = {0, 0};
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    const bool known = file != NULL && fscanf(file, "%llu %llu", &had_ns, &waited_ns) == 2;
    if (file != NULL) (void)fclose(file);
    if (known && had_ns > 0) return had_ns + waited_ns;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had); /* cannot fail for the calling thread */
    return (uint64_t)had.tv_sec * 1000000000 + (uint64_t)had.tv_nsec;
}
