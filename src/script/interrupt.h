/* interrupt.h - the processor-time budget of what runs in Lua, without a permanent hook.
 *
 * A count hook that is always there makes every VM instruction slower. So a thread only says in its slot what it
 * runs: two stores per request. The crew's watch, which wakes while a worker has been inside one packet for some
 * time, reads that thread's processor clock, and when the run has used too much, sends the thread a signal whose
 * handler sets the hook, as lua.c does for SIGINT (on Windows, stops it and sets the hook itself). The hook raises at
 * the next instruction, and stays until the run is over.
 *
 * Fields say who writes them: the thread that the slot belongs to (its signal handler included), or the watch. */
#ifndef LS_SCRIPT_INTERRUPT_H
#define LS_SCRIPT_INTERRUPT_H

#include <lua.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/thread.h"

typedef struct ls_slot {
    _Alignas(64) _Atomic(lua_State *) running; /* thread: the innermost coroutine that runs */
    _Atomic uint64_t run;                      /* thread: number of this run, 0: nothing runs */
    _Atomic uint64_t before_ns;                /* thread: processor time of the task's earlier runs, as far as known */
    _Atomic int over;                          /* thread: this run has used too much */
    uint64_t runs;                             /* thread: counts them */
    bool joined;                               /* thread: `thread` is set */
    uint64_t mark_ns, mark_cpu_ns;             /* thread: monotonic and processor time at ls_slot_mark() */
    ls_thread thread;                          /* set before the first run is announced */

    _Alignas(64) _Atomic uint64_t end_run; /* watch: the run that has to end */
    _Atomic uint64_t used_run, used_ns;    /* watch: what a run had used when last looked at, earlier runs included */
    uint64_t seen_run, seen_ns;            /* watch: the thread's clock when it first saw this run */
} ls_slot;

/* Install the signal handler; `hook` raises the error. Once per process is enough, again is harmless. LS_OK or
 * LS_ESYS. */
int ls_interrupt_install(lua_Hook hook);

/* The calling thread is the one of this slot: note it, and let the signal in. */
void ls_interrupt_join(ls_slot *slot);

/* The thread has ended: what joining took is given back. */
void ls_interrupt_leave(ls_slot *slot);

/* The watch's thread, or the slot's own. Processor time of the slot's thread; 0 when it cannot be read. */
uint64_t ls_interrupt_cpu_ns(const ls_slot *slot);

/* The step in which ls_interrupt_cpu_ns() advances, in ns. */
uint64_t ls_interrupt_cpu_step_ns(void);

/* The watch's thread. */
void ls_interrupt_send(ls_slot *slot);

static inline void ls_slot_begin(ls_slot *slot, lua_State *running, uint64_t before_ns)
{
    if (!slot->joined) ls_interrupt_join(slot);
    atomic_store_explicit(&slot->running, running, memory_order_relaxed);
    atomic_store_explicit(&slot->before_ns, before_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->run, ++slot->runs, memory_order_release);
}

/* Returns the processor time in ns that the task is known to have used by now; runs too short to be seen count 0. */
static inline uint64_t ls_slot_end(ls_slot *slot)
{
    uint64_t used = atomic_load_explicit(&slot->before_ns, memory_order_relaxed);
    const uint64_t run = atomic_load_explicit(&slot->run, memory_order_relaxed);
    if (atomic_load_explicit(&slot->used_run, memory_order_acquire) == run)
        used = atomic_load_explicit(&slot->used_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->run, 0, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&slot->running, NULL, memory_order_relaxed);
    atomic_store_explicit(&slot->over, 0, memory_order_relaxed);
    return used;
}

static inline void ls_slot_inner(ls_slot *slot, lua_State *running)
{
    atomic_store_explicit(&slot->running, running, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* The watch does not see runs that are shorter than its tick. A task that gives way and runs again, for ever, in such
 * short runs is measured by its own thread: mark the begin of the run, and ask for its processor time at the end. Where
 * the thread's processor time advances in long steps, the time on the clock since the mark bounds the answer. */
static inline void ls_slot_mark(ls_slot *slot)
{
    slot->mark_ns = ls_clock_ns();
    slot->mark_cpu_ns = ls_interrupt_cpu_ns(slot);
}

static inline uint64_t ls_slot_since_mark(const ls_slot *slot)
{
    const uint64_t elapsed_ns = ls_clock_ns() - slot->mark_ns;
    const uint64_t cpu_ns = ls_interrupt_cpu_ns(slot) - slot->mark_cpu_ns + ls_interrupt_cpu_step_ns();
    return cpu_ns < elapsed_ns ? cpu_ns : elapsed_ns;
}

static inline bool ls_slot_over(const ls_slot *slot)
{
    return atomic_load_explicit(&slot->over, memory_order_relaxed) != 0;
}

#endif
