/* memory_posix.c - see memory.h. */
#define _GNU_SOURCE
#include "base/os/memory.h"

#include <malloc.h>
#include <stdlib.h>

void *ls_memory_aligned(size_t align, size_t size)
{
    void *memory;
    return posix_memalign(&memory, align, size) == 0 ? memory
                                                     : NULL; /* aligned_alloc takes only multiples of `align` */
}

void ls_memory_aligned_free(void *memory)
{
    free(memory);
}

void ls_memory_share(unsigned arenas)
{
    (void)mallopt(M_ARENA_MAX, (int)arenas);
}

void ls_memory_trim(void)
{
    (void)malloc_trim(0);
}
