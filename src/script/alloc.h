/* alloc.h - size-class allocator for the small objects of one Lua state.
 *
 * Most strings and tables of a request are a few dozen bytes and live for microseconds. Each size class is a free
 * list that is filled from chunks. Only one thread uses a state at a time, so an allocation pops a list: there is
 * no lock and no search. Chunks return to the system when the state closes; a freed block stays in the list of its
 * class until then. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_ALLOC_H
#define LS_SCRIPT_ALLOC_H

#include <stddef.h>

#include "base/compiler.h"

enum { LS_ALLOC_BYTES_MAX = 256, LS_ALLOC_STEP = 16, LS_ALLOC_CHUNK_BYTES = 32768 };

typedef struct ls_alloc_block {
    struct ls_alloc_block *next;
} ls_alloc_block;

typedef struct ls_alloc {
    ls_alloc_block *free[LS_ALLOC_BYTES_MAX / LS_ALLOC_STEP];
    char *at, *end;         /* the unused rest of the newest chunk */
    ls_alloc_block *chunks; /* newest first; each begins with the link to the previous chunk */
} ls_alloc;

void ls_alloc_open(ls_alloc *alloc);
void ls_alloc_close(ls_alloc *alloc); /* frees all chunks, and with them every block still in use */

void *ls_alloc_fill(ls_alloc *alloc, size_t size); /* slow path of ls_alloc_take: the free list is empty */

/* Allocate a block, aligned to LS_ALLOC_STEP; 1 <= size <= LS_ALLOC_BYTES_MAX. NULL: out of memory. */
static inline void *ls_alloc_take(ls_alloc *alloc, size_t size)
{
    ls_alloc_block **list = &alloc->free[(size - 1) / LS_ALLOC_STEP];
    ls_alloc_block *block = *list;
    if (block == NULL) return ls_alloc_fill(alloc, size);
    *list = block->next;
    LS_PREFETCH(*list); /* the next block: it has left the cache since it was freed */
    return block;
}

/* Free a block; `size` is the size passed to ls_alloc_take(). */
static inline void ls_alloc_give(ls_alloc *alloc, void *ptr, size_t size)
{
    ls_alloc_block *block = ptr, **list = &alloc->free[(size - 1) / LS_ALLOC_STEP];
    block->next = *list;
    *list = block;
}

#endif
