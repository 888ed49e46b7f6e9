/* small.c - see small.h. */
#include "script/small.h"

#include <stdlib.h>
#include <string.h>

void ls_small_open(ls_small *small)
{
    memset(small, 0, sizeof *small);
}

void ls_small_close(ls_small *small)
{
    while (small->chunks != NULL) {
        ls_small_block *chunk = small->chunks;
        small->chunks = chunk->next;
        free(chunk);
    }
    ls_small_open(small);
}

void *ls_small_fill(ls_small *small, size_t size)
{
    const size_t bytes = (size + LS_SMALL_STEP - 1) / LS_SMALL_STEP * LS_SMALL_STEP;
    if ((size_t)(small->end - small->at) < bytes) { /* the end of the old chunk goes to the list of its size */
        if (small->end > small->at) ls_small_give(small, small->at, (size_t)(small->end - small->at));
        ls_small_block *chunk = malloc(LS_SMALL_CHUNK_BYTES);
        small->at = small->end = NULL;
        if (chunk == NULL) return NULL;
        chunk->next = small->chunks;
        small->chunks = chunk;
        small->at = (char *)chunk + LS_SMALL_STEP;
        small->end = (char *)chunk + LS_SMALL_CHUNK_BYTES;
    }
    void *block = small->at;
    small->at += bytes;
    return block;
}
