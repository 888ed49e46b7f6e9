/* cpu_limit.h - the processor-time limit of Lua code, without a permanent hook.
 *
 * A permanent count hook would slow down every VM instruction. Instead, a thread publishes in its CPU watch which
 * coroutine it runs: two stores per request. The workers' watchdog wakes while a worker has been inside one packet
 * for some time and reads the processor clock of that thread. If the run has used too much, the watchdog sends the
 * thread a signal whose handler sets the hook, as lua.c does for SIGINT; on Windows the watchdog suspends the
 * thread and sets the hook itself. The hook raises at the next instruction and stays set until the run ends.
 *
 * A run is one lua_resume or protected call. The comment of each field names its writer: the thread that owns the
 * CPU watch (its signal handler included), or the watchdog. */
#ifndef LS_SCRIPT_CPU_LIMIT_H
#define LS_SCRIPT_CPU_LIMIT_H

#include <lua.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/os/thread.h"

typedef struct ls_cpu_watch {
    _Alignas(64) _Atomic(lua_State *) running; /* thread: the innermost running coroutine */
    _Atomic uint64_t run;                      /* thread: number of this run; 0: nothing runs */
    _Atomic uint64_t before_ns;                /* thread: measured processor time of the task's earlier runs */
    _Atomic int exceeded;                      /* thread: this run has exceeded the limit */
    uint64_t runs;                             /* thread: number of runs so far */
    bool joined;                               /* thread: `thread` is set */
    uint64_t mark_ns, mark_cpu_ns;             /* thread: monotonic and processor time at ls_cpu_watch_mark() */
    ls_thread thread;                          /* set before the first run is published */

    _Alignas(64) _Atomic uint64_t end_run; /* watchdog: the run that must end */
    _Atomic uint64_t look_run;             /* watchdog: the run whose place was asked for */
    unsigned looked;                       /* watchdog: the last look for which it has asked (runtime.h) */
    _Atomic uint64_t used_run,
        used_ns;                /* watchdog: time used by run `used_run` at the last check, earlier runs included */
    uint64_t seen_run, seen_ns; /* watchdog: the thread's processor time when it first saw run `seen_run` */
} ls_cpu_watch;

/* Install the signal handler unless it is installed; `hook`, the same in all calls, raises the error. LS_OK or
 * LS_ESYS. */
int ls_cpu_limit_install(lua_Hook hook);
/* Undo one call of it. The last one restores the action of the signal. No run is continuing. */
void ls_cpu_limit_uninstall(void);

/* Make the calling thread the owner of this CPU watch and unblock the signal in it. */
void ls_cpu_limit_join(ls_cpu_watch *cpu);

/* Release the resources of ls_cpu_limit_join(). The thread must have ended. */
void ls_cpu_limit_leave(ls_cpu_watch *cpu);

/* Processor time of the thread that owns the CPU watch; 0 if the system cannot report it. Called by the watchdog
 * and by the owner. */
uint64_t ls_cpu_limit_cpu_ns(const ls_cpu_watch *cpu);

/* Resolution of ls_cpu_limit_cpu_ns() in ns. */
uint64_t ls_cpu_limit_cpu_step_ns(void);

/* Set the hook in the run `end_run` or `look_run` of this CPU watch, if that run has not ended. Called by the watchdog. */
void ls_cpu_limit_send(ls_cpu_watch *cpu);

/* Begin a run of the coroutine `running`, whose task has used `before_ns` in earlier runs. */
static inline void ls_cpu_watch_begin(ls_cpu_watch *cpu, lua_State *running, uint64_t before_ns)
{
    if (!cpu->joined) ls_cpu_limit_join(cpu);
    atomic_store_explicit(&cpu->running, running, memory_order_relaxed);
    atomic_store_explicit(&cpu->before_ns, before_ns, memory_order_relaxed);
    atomic_store_explicit(&cpu->run, ++cpu->runs, memory_order_release);
}

/* End the run. Returns the measured processor time of the task in ns; runs that the watchdog has not seen count 0. */
static inline uint64_t ls_cpu_watch_end(ls_cpu_watch *cpu)
{
    uint64_t used = atomic_load_explicit(&cpu->before_ns, memory_order_relaxed);
    const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_relaxed);
    if (atomic_load_explicit(&cpu->used_run, memory_order_acquire) == run)
        used = atomic_load_explicit(&cpu->used_ns, memory_order_relaxed);
    atomic_store_explicit(&cpu->run, 0, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&cpu->running, NULL, memory_order_relaxed);
    atomic_store_explicit(&cpu->exceeded, 0, memory_order_relaxed);
    return used;
}

/* Publish that the run continues in the coroutine `running`. */
static inline void ls_cpu_watch_inner(ls_cpu_watch *cpu, lua_State *running)
{
    atomic_store_explicit(&cpu->running, running, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* The watchdog does not see runs that are shorter than its tick. The thread itself therefore measures a task that
 * sleeps for less than LS_YIELD_SLEEP_S: it marks the start of the next run and reads the processor time at the end.
 * Where the processor clock has a coarse resolution, the elapsed monotonic time is an upper bound of the result. */
static inline void ls_cpu_watch_mark(ls_cpu_watch *cpu)
{
    cpu->mark_ns = ls_clock_ns();
    cpu->mark_cpu_ns = ls_cpu_limit_cpu_ns(cpu);
}

static inline uint64_t ls_cpu_watch_since_mark(const ls_cpu_watch *cpu)
{
    const uint64_t elapsed_ns = ls_clock_ns() - cpu->mark_ns;
    const uint64_t cpu_ns = ls_cpu_limit_cpu_ns(cpu) - cpu->mark_cpu_ns + ls_cpu_limit_cpu_step_ns();
    return cpu_ns < elapsed_ns ? cpu_ns : elapsed_ns;
}

static inline bool ls_cpu_watch_exceeded(const ls_cpu_watch *cpu)
{
    return atomic_load_explicit(&cpu->exceeded, memory_order_relaxed) != 0;
}

#endif
