/* timer.c - the 4-ary heap of timer.h. Sifting moves a hole instead of swapping entries: one store per level. */
#include "port/timer.h"

#include <assert.h>
#include <stdlib.h>

#include "base/invariant.h"

enum { HEAP_WAYS = 4, HEAP_ROOM_FIRST = 64 };

bool ls_heap_check(const ls_heap *heap, uint32_t i)
{
    return i >= heap->count ||
           (heap->at[i].timer->slot == i + 1 && (i == 0 || heap->at[i].ns >= heap->at[(i - 1) / HEAP_WAYS].ns));
}

static void heap_put(ls_heap *heap, uint32_t i, ls_heap_entry entry)
{
    heap->at[i] = entry;
    entry.timer->slot = i + 1;
}

static void heap_up(ls_heap *heap, uint32_t hole, ls_heap_entry entry)
{
    while (hole > 0) {
        const uint32_t parent = (hole - 1) / HEAP_WAYS;
        if (heap->at[parent].ns <= entry.ns) break;
        heap_put(heap, hole, heap->at[parent]);
        hole = parent;
    }
    heap_put(heap, hole, entry);
}

static void heap_down(ls_heap *heap, uint32_t hole, ls_heap_entry entry)
{
    for (;;) {
        const uint64_t first = (uint64_t)hole * HEAP_WAYS + 1;
        if (first >= heap->count) break;
        const uint64_t end = first + HEAP_WAYS < heap->count ? first + HEAP_WAYS : heap->count;
        uint32_t least = (uint32_t)first;
        for (uint32_t i = least + 1; i < end; i++)
            if (heap->at[i].ns < heap->at[least].ns) least = i;
        if (heap->at[least].ns >= entry.ns) break;
        heap_put(heap, hole, heap->at[least]);
        hole = least;
    }
    heap_put(heap, hole, entry);
}

/* Put the entry in the hole, or above or below it. */
static void heap_place(ls_heap *heap, uint32_t hole, ls_heap_entry entry)
{
    if (hole > 0 && heap->at[(hole - 1) / HEAP_WAYS].ns > entry.ns)
        heap_up(heap, hole, entry);
    else
        heap_down(heap, hole, entry);
}

void ls_heap_open(ls_heap *heap)
{
    *heap = (ls_heap){NULL, 0, 0};
}

void ls_heap_close(ls_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) heap->at[i].timer->slot = 0;
    free(heap->at);
    ls_heap_open(heap);
}

int ls_heap_set(ls_heap *heap, ls_timer *timer, uint64_t at_ns)
{
    const ls_heap_entry entry = {at_ns, timer};
    if (timer->slot != 0) {
        assert(heap->at[timer->slot - 1].timer == timer);
        timer->at_ns = at_ns;
        heap_place(heap, timer->slot - 1, entry);
        LS_INVARIANT(ls_heap_check(heap, timer->slot - 1));
        return LS_OK;
    }
    if (heap->count == heap->room) {
        if (heap->room > UINT32_MAX / 2) return LS_ENOMEM;
        const uint32_t room = heap->room == 0 ? HEAP_ROOM_FIRST : heap->room * 2;
        ls_heap_entry *at = realloc(heap->at, room * sizeof *at);
        if (at == NULL) return LS_ENOMEM;
        heap->at = at;
        heap->room = room;
    }
    timer->at_ns = at_ns;
    heap_up(heap, heap->count++, entry);
    LS_INVARIANT(ls_heap_check(heap, timer->slot - 1));
    return LS_OK;
}

bool ls_heap_remove(ls_heap *heap, ls_timer *timer)
{
    if (timer->slot == 0) return false;
    const uint32_t hole = timer->slot - 1;
    assert(heap->at[hole].timer == timer);
    timer->slot = 0;
    const ls_heap_entry last = heap->at[--heap->count];
    if (hole != heap->count) heap_place(heap, hole, last); /* else it was the last entry */
    LS_INVARIANT(ls_heap_check(heap, hole));
    return true;
}

ls_timer *ls_heap_pop_due(ls_heap *heap, uint64_t now_ns)
{
    if (heap->count == 0 || heap->at[0].ns > now_ns) return NULL;
    ls_timer *timer = heap->at[0].timer;
    ls_heap_remove(heap, timer);
    return timer;
}

uint64_t ls_heap_next_ns(const ls_heap *heap)
{
    return heap->count == 0 ? UINT64_MAX : heap->at[0].ns;
}
