/* slots.c - see slots.h. The free slots form a stack: the first four bytes of each are 1 + the number of the next. */
#include "port/slots.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/os/thread.h"

struct ls_slots {
    ls_mutex mutex; /* guards all fields; chunks and taken are also read without it */
    size_t slot_bytes;
    uint32_t count_max;
    uint32_t made;       /* every number taken so far is smaller */
    uint32_t first_free; /* 1 + the number of the top of the stack; 0: it is empty */
    _Atomic uint32_t taken;
    _Atomic(char *) chunks[];
};

int ls_slots_open(uint32_t count_max, size_t slot_bytes, ls_slots **out)
{
    size_t chunks = ((size_t)count_max + LS_SLOTS_PER_CHUNK - 1) / LS_SLOTS_PER_CHUNK;
    ls_slots *slots = calloc(1, sizeof *slots + chunks * sizeof slots->chunks[0]);
    if (slots == NULL) return LS_ENOMEM;
    ls_mutex_open(&slots->mutex);
    slots->slot_bytes = slot_bytes;
    slots->count_max = count_max;
    *out = slots;
    return LS_OK;
}

void ls_slots_close(ls_slots *slots)
{
    for (uint32_t c = 0; c * LS_SLOTS_PER_CHUNK < slots->made; c++) free(atomic_load(&slots->chunks[c]));
    ls_mutex_close(&slots->mutex);
    free(slots);
}

/* Allocate the chunk of number slots->made, unless it exists. */
static int grow(ls_slots *slots)
{
    uint32_t chunk = slots->made / LS_SLOTS_PER_CHUNK;
    if (atomic_load_explicit(&slots->chunks[chunk], memory_order_relaxed) != NULL) return LS_OK;
    char *bytes = calloc(LS_SLOTS_PER_CHUNK, slots->slot_bytes);
    if (bytes == NULL) return LS_ENOMEM;
    atomic_store_explicit(&slots->chunks[chunk], bytes, memory_order_release);
    return LS_OK;
}

int ls_slots_take(ls_slots *slots, uint32_t *number, void **out)
{
    int err = LS_OK;
    uint32_t n = 0;
    ls_mutex_lock(&slots->mutex);
    if (slots->first_free > 0) {
        n = slots->first_free - 1;
        slots->first_free = *(uint32_t *)ls_slots_at(slots, n);
    } else if (slots->made == slots->count_max) {
        err = LS_ELIMIT;
    } else if ((err = grow(slots)) == LS_OK) {
        n = slots->made++;
    }
    ls_mutex_unlock(&slots->mutex);
    if (err < 0) return err;
    atomic_fetch_add_explicit(&slots->taken, 1, memory_order_relaxed);
    *number = n;
    *out = ls_slots_at(slots, n);
    return LS_OK;
}

void ls_slots_give(ls_slots *slots, uint32_t number)
{
    ls_mutex_lock(&slots->mutex);
    assert(number < slots->made);
    *(uint32_t *)ls_slots_at(slots, number) = slots->first_free;
    slots->first_free = number + 1;
    ls_mutex_unlock(&slots->mutex);
    atomic_fetch_sub_explicit(&slots->taken, 1, memory_order_relaxed);
}

void *ls_slots_at(const ls_slots *slots, uint32_t number)
{
    if (number >= slots->count_max) return NULL;
    char *chunk = atomic_load_explicit(&slots->chunks[number / LS_SLOTS_PER_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : chunk + (number % LS_SLOTS_PER_CHUNK) * slots->slot_bytes;
}

uint32_t ls_slots_count(const ls_slots *slots)
{
    return atomic_load_explicit(&slots->taken, memory_order_relaxed);
}
