/* timer.h - the heap of armed timers of ls_timer_set, ls_timer_move and ls_timer_cancel.
 *
 * A data structure without a clock and without a lock; each port has one and serialises the calls. The heap is 4-ary:
 * at least as many timers are moved or cancelled as expire, and a shallow heap moves entries in few steps. The heap
 * holds the deadlines, so that sifting touches a timer only to store its new index.
 *
 *     timer->slot == 0          the timer is not armed
 *     timer->slot == n > 0      heap->at[n - 1].timer == timer
 *     at[i].ns >= at[(i - 1) / 4].ns   for every i > 0
 *
 * Timers belong to their callers. Timers of the same deadline expire in any order. */
#ifndef LS_PORT_TIMER_H
#define LS_PORT_TIMER_H

#include "port/port.h"

typedef struct ls_heap_entry {
    uint64_t ns;
    ls_timer *timer;
} ls_heap_entry;

typedef struct ls_heap {
    ls_heap_entry *at;
    uint32_t count, room;
} ls_heap;

void ls_heap_open(ls_heap *heap);
void ls_heap_close(ls_heap *heap); /* disarms all timers */

/* Arm the timer for at_ns, or move an armed timer, which cannot fail. LS_OK; LS_ENOMEM: nothing was changed. */
int ls_heap_set(ls_heap *heap, ls_timer *timer, uint64_t at_ns);

/* Disarm. false: the timer was not armed. */
bool ls_heap_remove(ls_heap *heap, ls_timer *timer);

/* Disarm and return the earliest timer if at_ns <= now_ns, else NULL. */
ls_timer *ls_heap_pop_due(ls_heap *heap, uint64_t now_ns);

/* Whether the equations above hold for the entry i, if there is one. */
bool ls_heap_check(const ls_heap *heap, uint32_t i);

/* The earliest deadline; UINT64_MAX: no timer is armed. */
uint64_t ls_heap_next_ns(const ls_heap *heap);

#endif
