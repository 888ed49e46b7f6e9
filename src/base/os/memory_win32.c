/* memory_win32.c - see memory.h. */
#include <windows.h>

#include <malloc.h>

#include "base/os/memory.h"

void *ls_memory_aligned(size_t align, size_t size)
{
    return _aligned_malloc(size, align);
}

void ls_memory_aligned_free(void *memory)
{
    _aligned_free(memory);
}

void ls_memory_share(unsigned arenas)
{
    (void)arenas; /* there is one heap */
}

void ls_memory_trim(void)
{
    (void)_heapmin(); /* the C library's heap, which may be the process heap */
}
