/* small.h - memory for the small objects of one Lua state: free lists by size, filled from chunks.
 *
 * A request's strings and tables are a few dozen bytes each and live for microseconds. A state is used by one thread at a
 * time, so taking such a block is popping a list, without a lock or a search. Chunks go back to the system when the state
 * is closed; until then a size that was needed once stays at hand. The exclusive user of the state calls. */
#ifndef LS_SCRIPT_SMALL_H
#define LS_SCRIPT_SMALL_H

#include <stddef.h>

#include "base/compiler.h"

enum { LS_SMALL_BYTES_MAX = 256, LS_SMALL_STEP = 16, LS_SMALL_CHUNK_BYTES = 32768 };

typedef struct ls_small_block {
    struct ls_small_block *next;
} ls_small_block;

typedef struct ls_small {
    ls_small_block *free[LS_SMALL_BYTES_MAX / LS_SMALL_STEP];
    char *at, *end;         /* what is left of the newest chunk */
    ls_small_block *chunks; /* each begins with the link to the one before */
} ls_small;

void ls_small_open(ls_small *small);
void ls_small_close(ls_small *small); /* everything that was taken goes, too */

void *ls_small_fill(ls_small *small, size_t size); /* ls_small_take found its list empty */

/* 1 <= size <= LS_SMALL_BYTES_MAX. NULL: out of memory. Aligned to LS_SMALL_STEP. */
static inline void *ls_small_take(ls_small *small, size_t size)
{
    ls_small_block **list = &small->free[(size - 1) / LS_SMALL_STEP];
    ls_small_block *block = *list;
    if (block == NULL) return ls_small_fill(small, size);
    *list = block->next;
    LS_PREFETCH(*list); /* the next one, which has left the cache since it was given back */
    return block;
}

static inline void ls_small_give(ls_small *small, void *ptr, size_t size) /* the size it was taken with */
{
    ls_small_block *block = ptr, **list = &small->free[(size - 1) / LS_SMALL_STEP];
    block->next = *list;
    *list = block;
}

#endif
