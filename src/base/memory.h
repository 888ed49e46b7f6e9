/* memory.h - giving memory back to the system. memory_posix.c supplies it. */
#ifndef LS_BASE_MEMORY_H
#define LS_BASE_MEMORY_H

/* What the allocator holds and nobody uses goes back, as far as the system can. Takes milliseconds after a peak; for
 * moments when nothing else is to be done. Any thread. */
void ls_memory_trim(void);

#endif
