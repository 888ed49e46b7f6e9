/* timer.h - the heap of armed timers behind ls_timer_set and ls_timer_cancel.
 *
 * A pure data structure: no clock and no lock. A back end keeps one for its port and serialises the calls. A 4-ary
 * heap: as many timers are moved or taken back before their time as ever fire, and a shallow heap moves cheaply. The
 * deadlines lie in the heap, so that sifting touches a timer only to tell it its new place.
 *
 *     timer->slot == 0          it is not armed
 *     timer->slot == n > 0      heap->at[n - 1].timer == timer
 *     at[i].ns >= at[(i - 1) / 4].ns   for every i > 0
 *
 * Timers belong to whoever armed them; those of the same deadline come in any order. */
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
void ls_heap_close(ls_heap *heap); /* timers still armed are disarmed */

/* Arm for at_ns, or move an armed timer (which cannot fail). LS_OK; LS_ENOMEM: nothing changed. */
int ls_heap_set(ls_heap *heap, ls_timer *timer, uint64_t at_ns);

/* false: it was not armed. */
bool ls_heap_remove(ls_heap *heap, ls_timer *timer);

/* The earliest timer if its time has come (at_ns <= now_ns), disarmed; else NULL. */
ls_timer *ls_heap_pop_due(ls_heap *heap, uint64_t now_ns);

/* The earliest deadline; UINT64_MAX when nothing is armed. */
uint64_t ls_heap_next_ns(const ls_heap *heap);

#endif
