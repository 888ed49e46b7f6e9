/* arena.c - see arena.h. */
#include "base/os/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/os/memory.h"

enum {
    STEP = 16,
    CLASSES = 512 / STEP + 1, /* of the sizes up to 512 bytes; 0 has the larger ones */
    WORD_BITS = 64
};

typedef struct pages {
    size_t used;           /* where the next block will be; 0: no block was taken yet */
    void *unused[CLASSES]; /* free blocks: each begins with the address of the next one */
} pages;

enum { FIRST = (sizeof(pages) + sizeof(size_t) + STEP - 1) / STEP * STEP };

/* In front of the block: its bytes, with these. */
static size_t *size_of(void *block)
{
    return (size_t *)block - 1;
}

static pages *pages_of(ls_arena *arena)
{
    if (arena->pages == NULL && (arena->pages = ls_memory_pages(LS_ARENA_BYTES)) == NULL) return NULL;
    pages *p = (pages *)(void *)arena->pages;
    if (p->used == 0) p->used = FIRST;
    return p;
}

static void **list_of(pages *p, size_t bytes)
{
    return &p->unused[bytes / STEP < CLASSES ? bytes / STEP : 0];
}

static void *take_unused(pages *p, size_t bytes)
{
    void **from = list_of(p, bytes), *block;
    for (;; from = block) {
        if ((block = *from) == NULL) return NULL;
        LS_UNPOISON(block, sizeof(void *));
        if (*size_of(block) >= bytes) break;
    }
    LS_UNPOISON(block, *size_of(block) - sizeof(size_t));
    *from = *(void **)block;
    return block;
}

void *ls_arena_take(size_t size, void *to)
{
    ls_arena *arena = to;
    const size_t bytes = (size + sizeof(size_t) + STEP - 1) / STEP * STEP;
    pages *p = pages_of(arena);
    assert(arena->packed == NULL);
    char *block = p != NULL ? take_unused(p, bytes) : NULL;
    if (block != NULL) return block;
    if (p != NULL && bytes <= LS_ARENA_BYTES - p->used) {
        block = arena->pages + p->used;
        p->used += bytes;
    } else if ((block = malloc(STEP + bytes)) != NULL) {
        block += STEP;
    } else {
        return NULL;
    }
    *size_of(block) = bytes;
    return block;
}

void *ls_arena_take_zeros(size_t count, size_t size, void *arena)
{
    void *block = ls_arena_take(count * size, arena);
    return block != NULL ? memset(block, 0, count * size) : NULL;
}

void ls_arena_give(void *block, void *to)
{
    ls_arena *arena = to;
    if (block == NULL) return;
    assert(arena->packed == NULL);
    if ((uintptr_t)block - (uintptr_t)arena->pages >= LS_ARENA_BYTES) {
        free((char *)block - STEP);
        return;
    }
    void **list = list_of((pages *)(void *)arena->pages, *size_of(block));
    *(void **)block = *list;
    *list = block;
    LS_POISON(block, *size_of(block) - sizeof(size_t));
}

void *ls_arena_resize(void *block, size_t size, void *arena)
{
    const size_t have = block != NULL ? *size_of(block) - sizeof(size_t) : 0;
    if (size <= have && block != NULL) return block;
    void *larger = ls_arena_take(size, arena);
    if (larger == NULL) return NULL;
    if (block != NULL) memcpy(larger, block, have);
    ls_arena_give(block, arena);
    return larger;
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

/* Freed blocks need not be kept, but for their lists. */
static void zero_unused(pages *p)
{
    for (unsigned n = 0; n < CLASSES; n++)
        for (void *block = p->unused[n]; block != NULL; block = *(void **)block) {
            LS_UNPOISON(block, *size_of(block) - sizeof(size_t));
            memset((char *)block + sizeof(void *), 0, *size_of(block) - sizeof(size_t) - sizeof(void *));
        }
}

void ls_arena_pack(ls_arena *arena)
{
    pages *p = (pages *)(void *)arena->pages;
    if (p == NULL || p->used == 0 || arena->packed != NULL) return;
    zero_unused(p);
    const uint64_t *from = (const uint64_t *)(const void *)arena->pages;
    const size_t words = p->used / sizeof *from, bits = (words + WORD_BITS - 1) / WORD_BITS;
    size_t count = 0;
    for (size_t n = 0; n < words; n++) count += from[n] != 0;
    uint64_t *to = calloc(bits + count, sizeof *to), *next = to + bits;
    if (to == NULL) return;
    for (size_t n = 0; n < words; n++) {
        if (from[n] == 0) continue;
        to[n / WORD_BITS] |= UINT64_C(1) << n % WORD_BITS;
        *next++ = from[n];
    }
    ls_memory_discard(arena->pages, p->used);
    arena->packed = to;
    arena->words = words;
}

void ls_arena_unpack(ls_arena *arena)
{
    if (arena->packed == NULL) return;
    const uint64_t *bits = arena->packed, *next = bits + (arena->words + WORD_BITS - 1) / WORD_BITS;
    uint64_t *to = (uint64_t *)(void *)arena->pages;
    for (size_t n = 0; n < arena->words; n++)
        if (bits[n / WORD_BITS] >> n % WORD_BITS & 1) to[n] = *next++;
    free(arena->packed);
    arena->packed = NULL;
}

void ls_arena_clear(ls_arena *arena)
{
    pages *p = (pages *)(void *)arena->pages;
    free(arena->packed);
    if (p != NULL && arena->packed == NULL && p->used > 0) {
        LS_UNPOISON(p, p->used);
        ls_memory_discard(p, p->used);
    }
    arena->packed = NULL;
}

void ls_arena_close(ls_arena *arena)
{
    ls_arena_clear(arena);
    if (arena->pages != NULL) ls_memory_pages_free(arena->pages, LS_ARENA_BYTES);
    arena->pages = NULL;
}
