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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io/log.h"
#include "base/os/thread.h"

/* Lua nests at most 200 C calls (LUAI_MAXCCALLS); the most expensive one, gsub with a callback that calls gsub, takes
 * about 2 KiB of stack per level. Untouched pages cost nothing. */
enum { STACK_BYTES = 1024 * 1024 };

enum { NAME_BYTES = 16 };

/* Added to the nice value: such a thread gets a third of the processor time of a normal one (sched(7)), so that beside
 * other programs that compute it continues, and a lock that it holds is released soon. */
enum { NICE_LOW = 5 };

static void must(int err)
{
    assert(err == 0);
}

void ls_mutex_open(ls_mutex *mutex)
{
    must(pthread_mutex_init(mutex, NULL));
}

void ls_mutex_close(ls_mutex *mutex)
{
    must(pthread_mutex_destroy(mutex));
}

void ls_mutex_lock(ls_mutex *mutex)
{
    must(pthread_mutex_lock(mutex));
}

bool ls_mutex_try_lock(ls_mutex *mutex)
{
    const int err = pthread_mutex_trylock(mutex);
    assert(err == 0 || err == EBUSY);
    return err == 0;
}

void ls_mutex_unlock(ls_mutex *mutex)
{
    must(pthread_mutex_unlock(mutex));
}

void ls_cond_open(ls_cond *cond)
{
    pthread_condattr_t attr;
    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(cond, &attr));
    must(pthread_condattr_destroy(&attr));
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
    void *arg, *stack;
    const ls_log_target *log;
    char name[NAME_BYTES];
} start;

/* A stack of the C library's own stays for later threads, up to 40 MiB of them; each keeps the pages that were
 * used. */
static void *stack_open(void)
{
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return NULL;
    (void)mprotect(stack, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE); /* an overflow ends the process */
    return stack;
}

static void stack_close(void *stack)
{
    (void)munmap(stack, STACK_BYTES);
}

static void *run(void *arg)
{
    const start s = *(start *)arg;
    free(arg);
    (void)ls_log_use(s.log);
    (void)pthread_setname_np(pthread_self(), s.name); /* for debuggers only: a failure is harmless */
    s.fn(s.arg);
    return s.stack;
}

static int start_thread(ls_thread *thread, const char *name, ls_thread_fn *fn, void *arg)
{
    pthread_attr_t attr;
    start *s = malloc(sizeof *s);
    if (s == NULL) return LS_ENOMEM;
    s->fn = fn;
    s->arg = arg;
    (void)ls_log_use(s->log = ls_log_use(NULL));
    (void)snprintf(s->name, sizeof s->name, "%s", name);

    int err = pthread_attr_init(&attr);
    if (err != 0) goto fail_start;
    err = ENOMEM;
    if ((s->stack = stack_open()) == NULL) goto fail_attr;
    if ((err = pthread_attr_setstack(&attr, s->stack, STACK_BYTES)) != 0) goto fail_stack;
    if ((err = pthread_create(thread, &attr, run, s)) != 0) goto fail_stack;
    (void)pthread_attr_destroy(&attr);
    return LS_OK;

fail_stack:
    stack_close(s->stack);
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
    void *stack;
    must(pthread_join(*thread, &stack));
    stack_close(stack);
}

bool ls_thread_try_join(ls_thread *thread)
{
    void *stack;
    if (pthread_tryjoin_np(*thread, &stack) != 0) return false;
    stack_close(stack);
    return true;
}

uint32_t ls_thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

bool ls_thread_set_low(uint32_t id, bool low)
{
    const int nice = getpriority(PRIO_PROCESS, (id_t)getpid()); /* of the main thread; -1 may be the value */
    return setpriority(PRIO_PROCESS, (id_t)id, low ? nice + NICE_LOW : nice) == 0;
}

/* Linux 6.12 and later give a thread with a short slice the processor earlier; before that the slice has no effect.
 * Threads that this one starts do not inherit it. They would not inherit a negative nice value either: it stays as it
 * is. */
void ls_thread_set_brief(void)
{
    enum { RESET_ON_FORK = 1, SLICE_NS = 100000 };
    const struct {
        uint32_t size, policy; /* struct sched_attr, which some distributions' headers lack */
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {.size = sizeof attr,
              .policy = SCHED_OTHER,
              .flags = RESET_ON_FORK,
              .nice = getpriority(PRIO_PROCESS, 0),
              .runtime_ns = SLICE_NS};
    if (attr.nice >= 0) (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void ls_thread_detach(ls_thread *thread)
{
    must(pthread_detach(*thread));
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
