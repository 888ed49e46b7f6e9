/* memory_posix.c - see memory.h. */
#define _GNU_SOURCE
#include "base/os/memory.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

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

void *ls_memory_pages(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    (void)madvise(pages, size, MADV_NOHUGEPAGE); /* a huge one would keep what was discarded */
    return pages;
}

void ls_memory_pages_free(void *pages, size_t size)
{
    (void)munmap(pages, size);
}

void ls_memory_discard(void *pages, size_t size)
{
    (void)madvise(pages, size, MADV_DONTNEED);
}

void ls_memory_share(unsigned arenas)
{
    (void)mallopt(M_ARENA_MAX, (int)arenas);
}

void ls_memory_trim(void)
{
    (void)malloc_trim(0);
}
