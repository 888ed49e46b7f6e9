/* memory_win32.c - see memory.h. */
#include <windows.h>

#include <malloc.h>
#include <string.h>

#include "base/os/memory.h"

void *ls_memory_aligned(size_t align, size_t size)
{
    return _aligned_malloc(size, align);
}

void ls_memory_aligned_free(void *memory)
{
    _aligned_free(memory);
}

void *ls_memory_pages(size_t size)
{
    return VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
}

void ls_memory_pages_free(void *pages, size_t size)
{
    (void)size;
    (void)VirtualFree(pages, 0, MEM_RELEASE);
}

void ls_memory_discard(void *pages, size_t size)
{
    memset(pages, 0, size);
    (void)VirtualAlloc(pages, size, MEM_RESET, PAGE_READWRITE); /* they keep the zeros, or are zeros again */
    (void)VirtualUnlock(pages, size);                           /* they leave the working set */
}

void ls_memory_share(unsigned arenas)
{
    (void)arenas; /* there is one heap */
}

void ls_memory_trim(void)
{
    (void)_heapmin(); /* the C library's heap, which may be the process heap */
}
