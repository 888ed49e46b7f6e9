/* cells.c - see cells.h. */
#include "http/access/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { CHUNK = LS_CELLS_BLOCK_MAX, CHUNKS_MAX = 2048 };

typedef struct chunks {
    void *_Atomic at[CHUNKS_MAX]; /* ls_cell[CHUNK] */
} chunks;

struct ls_cells {
    _Atomic uint32_t used;
    _Atomic unsigned slots_used;
    void *_Atomic slots[LS_CELLS_SLOTS]; /* chunks * */
};

int ls_cells_open(ls_cells **out)
{
    ls_cells *cells = calloc(1, sizeof *cells);
    if (cells == NULL) return LS_ENOMEM;
    atomic_init(&cells->used, 1); /* 0 is no cell */
    *out = cells;
    return LS_OK;
}

void ls_cells_close(ls_cells *cells)
{
    for (unsigned slot = 0; slot < LS_CELLS_SLOTS; slot++) {
        chunks *of = atomic_load(&cells->slots[slot]);
        for (unsigned n = 0; of != NULL && n < CHUNKS_MAX; n++) free(atomic_load(&of->at[n]));
        free(of);
    }
    free(cells);
}

uint32_t ls_cells_give(ls_cells *cells, uint32_t count)
{
    uint32_t used = atomic_load(&cells->used), first;
    do {
        first = used / CHUNK == (used + count - 1) / CHUNK ? used : (used / CHUNK + 1) * CHUNK;
        if (first + count > CHUNK * CHUNKS_MAX) return 0;
    } while (!atomic_compare_exchange_weak(&cells->used, &used, first + count));
    return first;
}

uint32_t ls_cells_given(const ls_cells *cells)
{
    return atomic_load(&cells->used);
}

/* *at, made of zeros at first. NULL: out of memory. */
static void *made(void *_Atomic *at, size_t bytes)
{
    void *found = atomic_load_explicit(at, memory_order_acquire);
    if (found != NULL) return found;
    void *fresh = calloc(1, bytes);
    if (fresh == NULL || atomic_compare_exchange_strong(at, &found, fresh)) return fresh;
    free(fresh); /* another thread was first */
    return found;
}

ls_cell *ls_cells_of(ls_cells *cells, unsigned slot, uint32_t first)
{
    unsigned used = atomic_load_explicit(&cells->slots_used, memory_order_relaxed);
    while (slot >= used && !atomic_compare_exchange_weak(&cells->slots_used, &used, slot + 1)) {}
    chunks *of = made(&cells->slots[slot], sizeof *of);
    ls_cell *chunk = of != NULL ? made(&of->at[first / CHUNK], CHUNK * sizeof *chunk) : NULL;
    return chunk != NULL ? &chunk[first % CHUNK] : NULL;
}

static double value_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void ls_cell_add(ls_cell *cell, double n)
{
    const double value = value_of(atomic_load_explicit(cell, memory_order_relaxed)) + n;
    atomic_store_explicit(cell, bits_of(value), memory_order_relaxed);
}

void ls_cell_add_shared(ls_cell *cell, double n)
{
    uint64_t bits = atomic_load(cell);
    while (!atomic_compare_exchange_weak(cell, &bits, bits_of(value_of(bits) + n))) {}
}

void ls_cell_set(ls_cell *cell, double value)
{
    atomic_store(cell, bits_of(value));
}

void ls_cells_read(const ls_cells *cells, uint32_t first, unsigned count, double *values)
{
    const unsigned slots = atomic_load(&cells->slots_used);
    for (unsigned n = 0; n < count; n++) values[n] = 0;
    for (unsigned slot = 0; slot < slots; slot++) {
        chunks *of = atomic_load_explicit(&cells->slots[slot], memory_order_acquire);
        ls_cell *chunk = of != NULL ? atomic_load_explicit(&of->at[first / CHUNK], memory_order_acquire) : NULL;
        for (unsigned n = 0; chunk != NULL && n < count; n++)
            values[n] += value_of(atomic_load_explicit(&chunk[first % CHUNK + n], memory_order_relaxed));
    }
}
