/* alloc.h - size-class allocator for the small objects of one Lua state.
 *
 * Most strings and tables of a request are a few dozen bytes and live for microseconds. A chunk holds blocks of one
 * size class and has a list of its free blocks. Only one thread uses a state at a time, so an allocation pops the list
 * of the class's open chunk: there is no lock and no search. A chunk whose blocks are all free returns to the system;
 * a few are kept for the next allocations. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_ALLOC_H
#define LS_SCRIPT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

enum {
    LS_ALLOC_BYTES_MAX = 256,
    LS_ALLOC_STEP = 16,
    LS_ALLOC_CLASSES = LS_ALLOC_BYTES_MAX / LS_ALLOC_STEP,
    LS_ALLOC_ALIGN = 32768,                     /* of a chunk: the address of a block gives that of its chunk */
    LS_ALLOC_CHUNK_BYTES = LS_ALLOC_ALIGN - 64, /* the C library's header of the next chunk fits into the rest */
    LS_ALLOC_SPARES_MAX = 8                     /* free chunks that are kept: 256 KiB */
};

typedef struct ls_alloc_block {
    struct ls_alloc_block *next;
} ls_alloc_block;

typedef struct ls_alloc_chunk {
    ls_alloc_block *free; /* blocks that were freed */
    char *at;             /* the rest that was never used */
    uint32_t live;        /* blocks in use */
    uint32_t notice;      /* ls_alloc_give calls ls_alloc_noticed when `live` falls to this number */
    uint32_t bytes;       /* of a block */
    ls_node node;         /* of a list of ls_alloc, except when the chunk is open */
} ls_alloc_chunk;

typedef struct ls_alloc {
    ls_alloc_chunk *open[LS_ALLOC_CLASSES]; /* the chunk that blocks are taken from; never NULL */
    ls_node partial[LS_ALLOC_CLASSES];      /* other chunks of the class with free blocks */
    ls_node full, spares;
    unsigned spare_count;
    unsigned chunks; /* all */
} ls_alloc;

void ls_alloc_open(ls_alloc *alloc);
void ls_alloc_close(ls_alloc *alloc); /* frees all chunks, and with them every block still in use */

void *ls_alloc_fill(ls_alloc *alloc, size_t size);             /* slow path of ls_alloc_take: the free list is empty */
void ls_alloc_noticed(ls_alloc *alloc, ls_alloc_chunk *chunk); /* slow path of ls_alloc_give */

/* Allocate a block, aligned to LS_ALLOC_STEP; 1 <= size <= LS_ALLOC_BYTES_MAX. NULL: out of memory. */
static inline void *ls_alloc_take(ls_alloc *alloc, size_t size)
{
    ls_alloc_chunk *chunk = alloc->open[(size - 1) / LS_ALLOC_STEP];
    ls_alloc_block *block = chunk->free;
    if (block == NULL) return ls_alloc_fill(alloc, size);
    LS_UNPOISON(block, chunk->bytes);
    chunk->free = block->next;
    chunk->live++;
    LS_PREFETCH(chunk->free); /* the next block: it has left the cache since it was freed */
    return block;
}

/* Free a block of ls_alloc_take(). */
static inline void ls_alloc_give(ls_alloc *alloc, void *ptr)
{
    ls_alloc_block *block = ptr;
    ls_alloc_chunk *chunk = (ls_alloc_chunk *)(void *)((char *)ptr - (uintptr_t)ptr % LS_ALLOC_ALIGN);
    block->next = chunk->free;
    chunk->free = block;
    LS_POISON(block, chunk->bytes);
    if (--chunk->live == chunk->notice) ls_alloc_noticed(alloc, chunk);
}

#endif
