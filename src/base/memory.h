/* memory.h - what C's own allocator does not do alike everywhere. memory_posix.c or memory_win32.c supplies it. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

#include <stddef.h>

/* Memory that begins at a multiple of `align` (a power of two) for `size` bytes (a multiple of it), or NULL. Not for
 * free(): it goes back with ls_memory_aligned_free, which takes NULL as well. */
void *ls_memory_aligned(size_t align, size_t size);
void ls_memory_aligned_free(void *memory);

/* What the allocator holds and nobody uses goes back, as far as the system can. Takes milliseconds after a peak; for
 * moments when nothing else is to be done. Any thread. */
void ls_memory_trim(void);

#endif
