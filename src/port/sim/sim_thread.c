/* sim_thread.c - threads of which one has the turn, mutexes and condition variables. See sim.h.
 *
 * A thread that waits gives the turn to a thread that can run, drawn from the seed; when none can, the time moves to
 * the next event.
 *
 * One thread of the system, the first, runs all of them: the turn is a change of its stack and of the register fs, by
 * which code finds thread-local data, without the kernel. Each further thread of the system lends its stack and its
 * thread-local data, and sleeps meanwhile. When its function has ended it is woken, and awaited, so that destructors of
 * thread-local data run alone as well.
 *
 * A mutex is what its memory in the C library's layout says: the number of the thread that has locked it, how often,
 * and its kind. A condition variable is an address to wait for, and the clock of its waits. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/sim/sim.h"

enum { THREADS_MAX = 256, FIRST_PREEMPT = 2000, CALL_NS_MAX = 400, FUNCTIONS_PER_TURN = 1000000, WAITS_MAX = 1024 };
enum { LENT_BYTES = 4096, HAS_WRFSBASE = 2 /* AT_HWCAP2 */ };
enum { CPU_CLOCK_FIRST = 1 << 20 }; /* the clock of the thread n is this + n */

typedef struct sim_thread {
    enum { FREE, RUNS, WAITS, ENDED } state; /* RUNS: has the turn, or can get it */
    unsigned number;
    void **stack;          /* while others have the turn: its registers are there */
    _Atomic uint32_t step; /* a futex of the thread of the system: 1, its stack can be used; 2, it continues */
    const void *object;    /* waits for it */
    uint64_t until_ns;
    bool woken;
    pthread_t real;
    void *(*fn)(void *arg);
    void *arg, *result;
    uint64_t cpu_ns; /* computed so far */
} sim_thread;

typedef struct mutex { /* the layout of pthread_mutex_t up to its kind */
    unsigned owner, count, unused[2];
    int kind;
} mutex;
_Static_assert(sizeof(mutex) <= sizeof(pthread_mutex_t), "a mutex lies in that of the C library");

typedef struct cond {
    clockid_t clock; /* CLOCK_REALTIME is 0, which is also what a static initializer says */
} cond;

static sim_thread threads[THREADS_MAX], *threads_end = threads; /* all before it were used */
static unsigned last_number;
static sim_thread *ending; /* has given the turn away for the last time: must be joined */
static _Thread_local sim_thread *self;

/* ---- the turn --------------------------------------------------------------------------------------------------- */

/* Save the registers that a function keeps, and the stack at *from; continue with those of `to`. */
void ls_sim_switch(void ***from, void **to);
__asm__(".text\n"
        ".globl ls_sim_switch\n"
        "ls_sim_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n");
enum { SAVED_REGISTERS = 6 };

static void futex(_Atomic uint32_t *at, int operation, uint32_t value)
{
    (void)ls_sim_syscall(SYS_futex, (long)at, operation, value, 0, 0, 0);
}

static void await_step(sim_thread *t, uint32_t step)
{
    for (uint32_t now; (now = atomic_load(&t->step)) < step;) futex(&t->step, FUTEX_WAIT_PRIVATE, now);
}

static void set_step(sim_thread *t, uint32_t step)
{
    atomic_store(&t->step, step);
    futex(&t->step, FUTEX_WAKE_PRIVATE, 1);
}

static void give_turn(sim_thread *from, sim_thread *to)
{
    const pthread_t fs = to->real; /* in the C library of x86-64 */
    if (getauxval(AT_HWCAP2) & HAS_WRFSBASE)
        __asm__ volatile("wrfsbase %0" : : "r"(fs) : "memory");
    else
        (void)ls_sim_syscall(SYS_arch_prctl, ARCH_SET_FS, (long)fs, 0, 0, 0, 0);
    ls_sim_switch(&from->stack, to->stack);
    if (ending != NULL) {
        sim_thread *const ended = ending;
        ending = NULL;
        set_step(ended, 2);
        (void)LS_SIM_REAL(pthread_join)(ended->real, NULL);
    }
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    (void)how;
    (void)set;
    return before != NULL ? sigemptyset(before) : 0;
}

static uint8_t *waits_for(const void *object)
{
    static uint8_t counts[WAITS_MAX]; /* of the threads that wait for an object of this number: mostly none */
    return &counts[(uintptr_t)object / 8 % WAITS_MAX];
}

static void set_running(sim_thread *t, bool woken)
{
    --*waits_for(t->object);
    t->woken = woken;
    t->state = RUNS;
}

/* A thread that can run. While all threads wait, the time moves to the next event. */
static sim_thread *pick(void)
{
    sim_thread *can[THREADS_MAX];
    for (;;) {
        unsigned count = 0;
        ls_sim_run_events();
        const uint64_t now_ns = ls_sim_now_ns();
        uint64_t earliest_ns = ls_sim_next_event();
        for (sim_thread *t = threads; t < threads_end; t++) {
            if (t->state == WAITS && t->until_ns <= now_ns) set_running(t, false);
            if (t->state == RUNS) can[count++] = t;
            if (t->state == WAITS && t->until_ns < earliest_ns) earliest_ns = t->until_ns;
        }
        if (count > 0) return can[count == 1 ? 0 : ls_sim_below(count)];
        if (earliest_ns == UINT64_MAX) ls_sim_fail("every thread waits, and nothing can happen any more");
        ls_sim_move_to(earliest_ns);
    }
}

static void yield(void)
{
    const int error = errno;
    sim_thread *const next = pick();
    if (next != self) {
        ls_sim_step("turn", next->number, 0);
        give_turn(self, next);
    }
    errno = error;
}

/* Files that are compiled with -finstrument-functions call these where functions begin and end: there another thread may
 * get the turn as well, because between two atomic operations there is often no call of the C library. */
void __cyg_profile_func_enter(void *function, void *from);
void __cyg_profile_func_exit(void *function, void *from);

void __cyg_profile_func_enter(void *function, void *from)
{
    static uint64_t left = 1;
    (void)function;
    (void)from;
    if (self == NULL || --left > 0) return;
    left = 1 + ls_sim_below(2 * FUNCTIONS_PER_TURN / ls_sim_faults_now.preempt);
    yield();
}

void __cyg_profile_func_exit(void *function, void *from)
{
    __cyg_profile_func_enter(function, from);
}

void ls_sim_call(void)
{
    if (self == NULL) return;
    const uint64_t ns = 1 + ls_sim_below(CALL_NS_MAX);
    self->cpu_ns += ns;
    ls_sim_move_to(ls_sim_now_ns() + ns);
    if (ls_sim_next_event() <= ls_sim_now_ns()) ls_sim_run_events();
    if (ls_sim_chance(ls_sim_faults_now.stall) && ls_sim_faults_now.stall_us_max > 0) {
        const uint64_t us = ls_sim_below(ls_sim_faults_now.stall_us_max);
        ls_sim_step("stall", (int64_t)us, 0);
        (void)ls_sim_wait(&last_number, ls_sim_now_ns() + us * 1000); /* no thread wakes this object */
    } else if (ls_sim_chance(ls_sim_faults_now.preempt)) {
        yield();
    }
}

bool ls_sim_wait(const void *object, uint64_t until_ns)
{
    if (self == NULL) ls_sim_fail("a thread that is not of the world waits");
    ++*waits_for(self->object = object);
    self->until_ns = until_ns;
    self->state = WAITS;
    yield();
    return self->woken;
}

void ls_sim_compute(uint64_t ns)
{
    (void)ls_sim_wait(&last_number, ls_sim_now_ns() + ns);
    self->cpu_ns += ns;
}

void ls_sim_wake_all(const void *object)
{
    for (sim_thread *t = threads; t<threads_end && * waits_for(object)> 0; t++)
        if (t->state == WAITS && t->object == object) set_running(t, true);
}

void ls_sim_wake_one(const void *object)
{
    sim_thread *found[THREADS_MAX];
    unsigned count = 0;
    for (sim_thread *t = threads; t<threads_end && * waits_for(object)> 0; t++)
        if (t->state == WAITS && t->object == object) found[count++] = t;
    if (count > 0) set_running(found[count > 1 ? ls_sim_below(count) : 0], true);
}

unsigned ls_sim_thread_number(void)
{
    return self != NULL ? self->number : 0;
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

static sim_thread *new_thread(void)
{
    sim_thread *t = threads;
    while (t < threads + THREADS_MAX && t->state != FREE) t++;
    if (t == threads + THREADS_MAX) ls_sim_fail("more than %d threads", THREADS_MAX);
    if (t == threads_end) threads_end++;
    *t = (sim_thread){.state = RUNS, .number = ++last_number};
    ls_sim_total.threads++;
    return t;
}

void ls_sim_threads_open(void)
{
    if (ls_sim_faults_now.preempt == 0) ls_sim_faults_now.preempt = FIRST_PREEMPT;
    self = new_thread();
    self->real = pthread_self();
}

static void run_thread(void) /* on the first thread of the system */
{
    sim_thread *const t = self;
    t->result = t->fn(t->arg);
    ls_sim_step("thread ends", t->number, 0);
    t->state = ENDED;
    ls_sim_total.threads--;
    ls_sim_wake_all(t);
    ending = t;
    give_turn(t, pick());
}

static void *lend(void *arg) /* on the thread of the system */
{
    sim_thread *const t = arg;
    self = t;
    t->stack = (void **)(((uintptr_t)__builtin_frame_address(0) - LENT_BYTES) & ~(uintptr_t)15) - 2 - SAVED_REGISTERS;
    t->stack[SAVED_REGISTERS] = (void *)run_thread; /* where the first turn returns to */
    set_step(t, 1);
    await_step(t, 2);
    self = NULL; /* destructors find no world: their calls do not wait */
    return NULL;
}

int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    ls_sim_call();
    sim_thread *const t = new_thread();
    t->fn = fn;
    t->arg = arg;
    const int error = LS_SIM_REAL(pthread_create)(&t->real, attr, lend, t);
    if (error != 0) ls_sim_fail("the system has no thread: error %d", error);
    await_step(t, 1);
    *out = t->real;
    ls_sim_step("thread starts", t->number, 0);
    return 0;
}

static sim_thread *thread_of(pthread_t real)
{
    for (sim_thread *t = threads; t < threads + THREADS_MAX; t++)
        if (t->state != FREE && pthread_equal(t->real, real)) return t;
    ls_sim_fail("a thread that was joined already");
}

int pthread_getcpuclockid(pthread_t thread, clockid_t *out)
{
    *out = CPU_CLOCK_FIRST + (clockid_t)thread_of(thread)->number;
    return 0;
}

uint64_t ls_sim_cpu_ns(clockid_t clock)
{
    if (clock != CLOCK_THREAD_CPUTIME_ID && clock < CPU_CLOCK_FIRST) return UINT64_MAX;
    const unsigned number = clock >= CPU_CLOCK_FIRST ? (unsigned)clock - CPU_CLOCK_FIRST : ls_sim_thread_number();
    for (const sim_thread *t = threads; t < threads + THREADS_MAX; t++)
        if (t->state != FREE && t->number == number) return t->cpu_ns;
    return 0;
}

int pthread_join(pthread_t thread, void **result)
{
    sim_thread *const t = thread_of(thread);
    ls_sim_call();
    while (t->state != ENDED) (void)ls_sim_wait(t, UINT64_MAX);
    if (result != NULL) *result = t->result;
    t->state = FREE;
    return 0;
}

int pthread_tryjoin_np(pthread_t thread, void **result)
{
    sim_thread *const t = thread_of(thread);
    ls_sim_call();
    return t->state == ENDED ? pthread_join(thread, result) : EBUSY;
}

/* Signals interrupt no thread. */
int pthread_sigqueue(pthread_t thread, int number, const union sigval value)
{
    (void)thread;
    (void)number;
    (void)value;
    return 0;
}

/* ---- mutexes ---------------------------------------------------------------------------------------------------- */

static unsigned my_number(void)
{
    return self != NULL ? self->number : UINT32_MAX; /* before the beginning, and in destructors */
}

int pthread_mutex_init(pthread_mutex_t *at, const pthread_mutexattr_t *attr)
{
    mutex *const m = (mutex *)(void *)at;
    *m = (mutex){0};
    if (attr != NULL) (void)pthread_mutexattr_gettype(attr, &m->kind);
    return 0;
}

int pthread_mutex_destroy(pthread_mutex_t *at)
{
    return ((mutex *)(void *)at)->owner != 0 ? EBUSY : 0;
}

static int lock(mutex *m, bool waits)
{
    const unsigned me = my_number();
    if (m->owner == me && m->kind == PTHREAD_MUTEX_RECURSIVE) {
        m->count++;
        return 0;
    }
    if (m->owner == me && waits) ls_sim_fail("thread %u locks a mutex that it has locked", me);
    while (m->owner != 0) {
        if (!waits) return EBUSY;
        (void)ls_sim_wait(m, UINT64_MAX);
    }
    m->owner = me;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *at)
{
    ls_sim_call();
    return lock((mutex *)(void *)at, true);
}

int pthread_mutex_trylock(pthread_mutex_t *at)
{
    ls_sim_call();
    return lock((mutex *)(void *)at, false);
}

static void unlock(mutex *m)
{
    if (m->owner != my_number()) ls_sim_fail("thread %u unlocks a mutex of thread %u", my_number(), m->owner);
    if (m->count > 0) {
        m->count--;
        return;
    }
    m->owner = 0;
    ls_sim_wake_one(m);
}

int pthread_mutex_unlock(pthread_mutex_t *at)
{
    unlock((mutex *)(void *)at);
    ls_sim_call();
    return 0;
}

/* ---- condition variables ---------------------------------------------------------------------------------------- */

int pthread_cond_init(pthread_cond_t *at, const pthread_condattr_t *attr)
{
    cond *const c = (cond *)(void *)at;
    c->clock = CLOCK_REALTIME;
    if (attr != NULL) (void)pthread_condattr_getclock(attr, &c->clock);
    return 0;
}

int pthread_cond_destroy(pthread_cond_t *at)
{
    (void)at;
    return 0;
}

static int wait_for_cond(pthread_cond_t *at, pthread_mutex_t *with, uint64_t until_ns)
{
    mutex *const m = (mutex *)(void *)with;
    unlock(m);
    const bool woken = ls_sim_wait(at, until_ns);
    (void)lock(m, true);
    return woken ? 0 : ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *at, pthread_mutex_t *with)
{
    ls_sim_call();
    return wait_for_cond(at, with, UINT64_MAX);
}

int pthread_cond_timedwait(pthread_cond_t *at, pthread_mutex_t *with, const struct timespec *until)
{
    struct timespec now = {0, 0};
    ls_sim_call();
    (void)clock_gettime(((cond *)(void *)at)->clock, &now);
    const int64_t left_ns = (int64_t)(until->tv_sec - now.tv_sec) * 1000000000 + (until->tv_nsec - now.tv_nsec);
    return wait_for_cond(at, with, ls_sim_now_ns() + (left_ns > 0 ? (uint64_t)left_ns : 0));
}

int pthread_cond_signal(pthread_cond_t *at)
{
    ls_sim_call();
    ls_sim_wake_one(at);
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *at)
{
    ls_sim_call();
    ls_sim_wake_all(at);
    return 0;
}

/* ---- calls without a function ----------------------------------------------------------------------------------- */

int setpriority(__priority_which_t which, id_t who, int value)
{
    (void)which;
    (void)who;
    (void)value;
    return 0; /* the seed draws who runs */
}

long ls_sim_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

long ls_sim_result(long result)
{
    return result >= 0 ? result : ls_sim_failed((int)-result);
}

int ls_sim_failed(int error)
{
    errno = error;
    return -1;
}
