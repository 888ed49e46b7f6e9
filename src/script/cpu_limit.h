/* cpu_limit.h - the processor-time budget of what runs in Lua, without a permanent hook.
 *
 * A count hook that is always there makes every VM instruction slower. So a thread only says in its CPU watch what it
 * runs: two stores per request. The workers' watchdog, which wakes while a worker has been inside one packet for some
 * time, reads that thread's processor clock, and when the run has used too much, sends the thread a signal whose
 * handler sets the hook, as lua.c does for SIGINT (on Windows, stops it and sets the hook itself). The hook raises at
 * the next instruction, and stays until the run is over.
 *
 * Fields say who writes them: the thread that the CPU watch belongs to (its signal handler included), or the watchdog. */
#ifndef LS_SCRIPT_CPU_LIMIT_H
#define LS_SCRIPT_CPU_LIMIT_H

#include <lua.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/thread.h"

typedef struct ls_cpu_watch {
    _Alignas(64) _Atomic(lua_State *) running; /* thread: the innermost coroutine that runs */
    _Atomic uint64_t run;                      /* thread: number of this run, 0: nothing runs */
    _Atomic uint64_t before_ns;                /* thread: processor time of the task's earlier runs, as far as known */
    _Atomic int over;                          /* thread: this run has used too much */
    uint64_t runs;                             /* thread: counts them */
    bool joined;                               /* thread: `thread` is set */
    uint64_t mark_ns, mark_cpu_ns;             /* thread: monotonic and processor time at ls_cpu_watch_mark() */
    ls_thread thread;                          /* set before the first run is announced */

    _Alignas(64) _Atomic uint64_t end_run; /* watchdog: the run that has to end */
    _Atomic uint64_t used_run, used_ns; /* watchdog: what a run had used when last looked at, earlier runs included */
    uint64_t seen_run, seen_ns;         /* watchdog: the thread's clock when it first saw this run */
} ls_cpu_watch;

/* Install the signal handler; `hook` raises the error. Once per process is enough, again is harmless. LS_OK or
 * LS_ESYS. */
int ls_cpu_limit_install(lua_Hook hook);

/* The calling thread is the one of this CPU watch: note it, and let the signal in. */
void ls_cpu_limit_join(ls_cpu_watch *cpu);

/* The thread has ended: what joining took is given back. */
void ls_cpu_limit_leave(ls_cpu_watch *cpu);

/* The watchdog's thread, or the CPU watch's own. Processor time of the CPU watch's thread; 0 when it cannot be read. */
uint64_t ls_cpu_limit_cpu_ns(const ls_cpu_watch *cpu);

/* The step in which ls_cpu_limit_cpu_ns() advances, in ns. */
uint64_t ls_cpu_limit_cpu_step_ns(void);

/* The watchdog's thread. */
void ls_cpu_limit_send(ls_cpu_watch *cpu);

static inline void ls_cpu_watch_begin(ls_cpu_watch *cpu, lua_State *running, uint64_t before_ns)
{
    if (!cpu->joined) ls_cpu_limit_join(cpu);
    atomic_store_explicit(&cpu->running, running, memory_order_relaxed);
    atomic_store_explicit(&cpu->before_ns, before_ns, memory_order_relaxed);
    atomic_store_explicit(&cpu->run, ++cpu->runs, memory_order_release);
}

/* Returns the processor time in ns that the task is known to have used by now; runs too short to be seen count 0. */
static inline uint64_t ls_cpu_watch_end(ls_cpu_watch *cpu)
{
    uint64_t used = atomic_load_explicit(&cpu->before_ns, memory_order_relaxed);
    const uint64_t run = atomic_load_explicit(&cpu->run, memory_order_relaxed);
    if (atomic_load_explicit(&cpu->used_run, memory_order_acquire) == run)
        used = atomic_load_explicit(&cpu->used_ns, memory_order_relaxed);
    atomic_store_explicit(&cpu->run, 0, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&cpu->running, NULL, memory_order_relaxed);
    atomic_store_explicit(&cpu->over, 0, memory_order_relaxed);
    return used;
}

static inline void ls_cpu_watch_inner(ls_cpu_watch *cpu, lua_State *running)
{
    atomic_store_explicit(&cpu->running, running, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* The watchdog does not see runs that are shorter than its tick. A task that gives way and runs again, for ever, in such
 * short runs is measured by its own thread: mark the begin of the run, and ask for its processor time at the end. Where
 * the thread's processor time advances in long steps, the time on the clock since the mark bounds the answer. */
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

static inline bool ls_cpu_watch_over(const ls_cpu_watch *cpu)
{
    return atomic_load_explicit(&cpu->over, memory_order_relaxed) != 0;
}

#endif
