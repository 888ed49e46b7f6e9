/* memory.h - allocator functions that differ between systems. memory_posix.c or memory_win32.c implements it. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>

/* Allocate `size` bytes at a multiple of `align` (a power of two, and at least the size of a pointer). NULL: out of
 * memory. Free with ls_memory_aligned_free, not free(); it accepts NULL. */
void *ls_memory_aligned(size_t align, size_t size);
void ls_memory_aligned_free(void *memory);

/* Reserve `size` bytes of zeros, a multiple of 64 KiB, on pages of their own: only those that are written to need memory.
 * NULL: out of memory. */
void *ls_memory_pages(size_t size);
void ls_memory_pages_free(void *pages, size_t size);
/* The first `size` bytes of the pages are zeros again, and need no memory. */
void ls_memory_discard(void *pages, size_t size);

/* Let the threads of the process share this many arenas of the allocator: each keeps some memory after a peak. */
void ls_memory_share(unsigned arenas);

/* Return unused memory of the allocator to the system, as far as the system can. Takes milliseconds after a peak, so
 * call it while idle. Any thread. */
void ls_memory_trim(void);

#endif
