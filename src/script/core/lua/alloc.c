/* alloc.c - see alloc.h.
 *
 * A chunk is in one of four places: open (one for each class), in the list `partial` of its class, in `full`, or in
 * `spares`. `notice` is live - 1 for a full chunk, because its next freed block makes it partial, and 0 for all
 * others, whose last freed block makes them spare. */
#include "script/core/lua/alloc.h"

#include <string.h>

#include "base/os/memory.h"

enum { HEADER_BYTES = (sizeof(ls_alloc_chunk) + LS_ALLOC_STEP - 1) / LS_ALLOC_STEP * LS_ALLOC_STEP };

/* The open chunk of a class that has none. It is full; no block belongs to it, so it is never written. */
static ls_alloc_chunk no_chunk;

void ls_alloc_open(ls_alloc *alloc)
{
    memset(alloc, 0, sizeof *alloc);
    for (unsigned n = 0; n < LS_ALLOC_CLASSES; n++) {
        alloc->open[n] = &no_chunk;
        ls_node_init(&alloc->partial[n]);
    }
    ls_node_init(&alloc->full);
    ls_node_init(&alloc->spares);
}

static void free_all(ls_node *list)
{
    LS_LIST_TAKE (ls_alloc_chunk, chunk, list, node) ls_memory_aligned_free(chunk);
}

void ls_alloc_close(ls_alloc *alloc)
{
    for (unsigned n = 0; n < LS_ALLOC_CLASSES; n++) {
        if (alloc->open[n] != &no_chunk) ls_memory_aligned_free(alloc->open[n]);
        free_all(&alloc->partial[n]);
    }
    free_all(&alloc->full);
    free_all(&alloc->spares);
    ls_alloc_open(alloc);
}

static ls_alloc_chunk *take_first(ls_node *list)
{
    ls_node *node = list->next;
    ls_list_remove(node);
    return LS_CONTAINER(node, ls_alloc_chunk, node);
}

/* A chunk of the class with a free block, or NULL: out of memory. */
static ls_alloc_chunk *chunk_get(ls_alloc *alloc, unsigned class)
{
    ls_alloc_chunk *chunk;
    if (!ls_list_empty(&alloc->partial[class])) return take_first(&alloc->partial[class]);
    if (alloc->spare_count > 0) {
        chunk = take_first(&alloc->spares);
        alloc->spare_count--;
    } else {
        chunk = ls_memory_aligned(LS_ALLOC_ALIGN, LS_ALLOC_CHUNK_BYTES);
        if (chunk == NULL) return NULL;
        alloc->chunks++;
    }
    memset(chunk, 0, sizeof *chunk);
    chunk->at = (char *)chunk + HEADER_BYTES;
    chunk->bytes = (class + 1) * LS_ALLOC_STEP;
    ls_node_init(&chunk->node);
    return chunk;
}

static bool is_used_up(const ls_alloc_chunk *chunk)
{
    return chunk == &no_chunk || chunk->at + chunk->bytes > (const char *)chunk + LS_ALLOC_CHUNK_BYTES;
}

void *ls_alloc_fill(ls_alloc *alloc, size_t size)
{
    const unsigned class = (unsigned)((size - 1) / LS_ALLOC_STEP);
    ls_alloc_chunk *chunk = alloc->open[class];
    if (is_used_up(chunk)) {
        ls_alloc_chunk *next = chunk_get(alloc, class);
        if (next == NULL) return NULL;
        if (chunk != &no_chunk) {
            chunk->notice = chunk->live - 1;
            ls_list_push(&alloc->full, &chunk->node);
        }
        alloc->open[class] = chunk = next;
        if (chunk->free != NULL) return ls_alloc_take(alloc, size);
    }
    void *block = chunk->at;
    LS_UNPOISON(block, chunk->bytes); /* a spare chunk may have had blocks before */
    chunk->at += chunk->bytes;
    chunk->live++;
    return block;
}

void ls_alloc_noticed(ls_alloc *alloc, ls_alloc_chunk *chunk)
{
    const unsigned class = chunk->bytes / LS_ALLOC_STEP - 1;
    if (chunk->live > 0) { /* it was full */
        chunk->notice = 0;
        ls_list_remove(&chunk->node);
        ls_list_push(&alloc->partial[class], &chunk->node);
    } else if (chunk != alloc->open[class]) {
        ls_list_remove(&chunk->node);
        if (alloc->spare_count < LS_ALLOC_SPARES_MAX) {
            alloc->spare_count++;
            ls_list_push(&alloc->spares, &chunk->node);
        } else {
            alloc->chunks--;
            ls_memory_aligned_free(chunk);
        }
    }
}
