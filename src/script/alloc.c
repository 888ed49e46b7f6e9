/* alloc.c - see alloc.h. */
#include "script/alloc.h"

#include <stdlib.h>
#include <string.h>

void ls_alloc_open(ls_alloc *alloc)
{
    memset(alloc, 0, sizeof *alloc);
}

void ls_alloc_close(ls_alloc *alloc)
{
    while (alloc->chunks != NULL) {
        ls_alloc_block *chunk = alloc->chunks;
        alloc->chunks = chunk->next;
        free(chunk);
    }
    ls_alloc_open(alloc);
}

void *ls_alloc_fill(ls_alloc *alloc, size_t size)
{
    const size_t bytes = (size + LS_ALLOC_STEP - 1) / LS_ALLOC_STEP * LS_ALLOC_STEP;
    if ((size_t)(alloc->end - alloc->at) < bytes) { /* the rest of the old chunk becomes a free block of its size */
        if (alloc->end > alloc->at) ls_alloc_give(alloc, alloc->at, (size_t)(alloc->end - alloc->at));
        ls_alloc_block *chunk = malloc(LS_ALLOC_CHUNK_BYTES);
        alloc->at = alloc->end = NULL;
        if (chunk == NULL) return NULL;
        chunk->next = alloc->chunks;
        alloc->chunks = chunk;
        alloc->at = (char *)chunk + LS_ALLOC_STEP;
        alloc->end = (char *)chunk + LS_ALLOC_CHUNK_BYTES;
    }
    void *block = alloc->at;
    alloc->at += bytes;
    return block;
}
