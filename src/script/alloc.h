/* alloc.h - memory for the small objects of one Lua state: free lists by size, filled from chunks.
 *
 * A request's strings and tables are a few dozen bytes each and live for microseconds. A state is used by one thread at a
 * time, so taking such a block is popping a list, without a lock or a search. Chunks go back to the system when the state
 * is closed; until then a size that was needed once stays at hand. The exclusive user of the state calls. */
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
    char *at, *end;         /* what is left of the newest chunk */
    ls_alloc_block *chunks; /* each begins with the link to the one before */
} ls_alloc;

void ls_alloc_open(ls_alloc *alloc);
void ls_alloc_close(ls_alloc *alloc); /* everything that was taken goes, too */

void *ls_alloc_fill(ls_alloc *alloc, size_t size); /* ls_alloc_take found its list empty */

/* 1 <= size <= LS_ALLOC_BYTES_MAX. NULL: out of memory. Aligned to LS_ALLOC_STEP. */
static inline void *ls_alloc_take(ls_alloc *alloc, size_t size)
{
    ls_alloc_block **list = &alloc->free[(size - 1) / LS_ALLOC_STEP];
    ls_alloc_block *block = *list;
    if (block == NULL) return ls_alloc_fill(alloc, size);
    *list = block->next;
    LS_PREFETCH(*list); /* the next one, which has left the cache since it was given back */
    return block;
}

static inline void ls_alloc_give(ls_alloc *alloc, void *ptr, size_t size) /* the size it was taken with */
{
    ls_alloc_block *block = ptr, **list = &alloc->free[(size - 1) / LS_ALLOC_STEP];
    block->next = *list;
    *list = block;
}

#endif
