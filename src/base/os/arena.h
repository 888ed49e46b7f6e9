/* arena.h - the memory of one owner that works for a moment and then is idle for long, such as the session of a
 * connection. Its blocks lie side by side on pages of their own. While the owner is idle, the arena is packed: it holds
 * only the words that are not zero, and the pages belong to the system. Unpacked, every block is at its address again.
 *
 *     pages:  lists of free blocks | block | block | free block | ...     used     not used: zeros
 *
 * A block has its size in front. Freed blocks are used again for the same size, those above 512 bytes for less, too.
 * What does not fit on the pages is allocated with malloc and not packed. One thread at a time uses an arena. */
#ifndef LS_BASE_ARENA_H
#define LS_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

enum { LS_ARENA_BYTES = 65536 /* of the pages; memory is needed for those that are written to */ };

typedef struct ls_arena { /* zeroed: an arena without pages, which has them from the first block on */
    char *pages;
    uint64_t *packed; /* a bit for each word of the pages, then those that are not zero; NULL: it is not packed */
    size_t words;     /* of the pages, that are packed */
} ls_arena;

/* As malloc, calloc, realloc and free; `arena` is an ls_arena. A library that takes such functions has them so. A block
 * lies at a multiple of 16. */
void *ls_arena_take(size_t size, void *arena);
void *ls_arena_take_zeros(size_t count, size_t size, void *arena);
void *ls_arena_resize(void *block, size_t size, void *arena);
void ls_arena_give(void *block, void *arena);

/* Until ls_arena_unpack no block may be used. Takes some microseconds, as the unpacking does. Nothing happens if it is
 * packed, or if there is no memory to do it. */
void ls_arena_pack(ls_arena *arena);
void ls_arena_unpack(ls_arena *arena);

/* All blocks are free, but those of malloc: the pages keep their addresses and need no memory. It is not packed. */
void ls_arena_clear(ls_arena *arena);
/* The same, and the pages are given back. */
void ls_arena_close(ls_arena *arena);

#endif
