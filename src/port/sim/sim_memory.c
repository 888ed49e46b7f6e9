/* sim_memory.c - malloc and mmap at the same addresses in each run: Lua seeds its hashes with addresses, and programs
 * order by them. See sim.h.
 *
 * Blocks of up to LARGEST bytes come from lists by size, a power of two or one and a half of it, which reuse the latest
 * first; larger ones have pages of their own. Each block has its size in front. Freed memory is filled, so that a use
 * of it shows. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "port/sim/sim.h"

enum { CLASSES = 80, HEAD_BYTES = 16, CHUNK_BYTES = 1 << 20, PAGE_BYTES = 4096, FREED = 0xdb };
static const uintptr_t arena_first = UINT64_C(0x200000000000);
static const size_t arena_bytes = UINT64_C(1) << 40;

typedef struct head {       /* before each block */
    uint64_t size;          /* that can be used */
    uint32_t class, offset; /* offset: of the memory before the head, of an aligned block */
} head;
_Static_assert(sizeof(head) == HEAD_BYTES, "blocks are aligned");

typedef struct free_block {
    struct free_block *next;
} free_block;

static struct {
    uintptr_t next, end, pages; /* the free part of the latest chunk; the first page that was never used */
    free_block *lists[CLASSES];
    unsigned blocks;  /* that are in use */
    atomic_flag busy; /* a thread of the system that ends may free beside the one that has the turn */
} arena;

static void *map_at(uintptr_t at, size_t bytes, int protection)
{
    const long result = ls_sim_syscall(SYS_mmap, (long)at, (long)bytes, protection,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    return result == (long)at ? (void *)at : NULL;
}

static uintptr_t take_pages(size_t bytes)
{
    if (arena.pages == 0) arena.pages = arena_first;
    const uintptr_t at = arena.pages;
    bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    if (at + bytes > arena_first + arena_bytes || map_at(at, bytes, PROT_READ | PROT_WRITE) == NULL) return 0;
    arena.pages += bytes;
    return at;
}

/* Sizes 16, 24, 32, 48, 64, 96 ... */
static unsigned class_of(size_t size, size_t *rounded)
{
    unsigned class = 0;
    size_t power = 16;
    for (;; power *= 2, class += 2) {
        if (size <= power) {
            *rounded = power;
            return class;
        }
        if (size <= power + power / 2) {
            *rounded = power + power / 2;
            return class + 1;
        }
    }
}

static void *allocate(size_t size)
{
    size_t rounded;
    if (size > arena_bytes / 4) return NULL;
    const unsigned class = class_of(size, &rounded);
    const size_t bytes = (rounded + HEAD_BYTES + 15) / 16 * 16;
    void *result = NULL;
    while (atomic_flag_test_and_set(&arena.busy)) {}
    if (arena.lists[class] != NULL) {
        result = arena.lists[class];
        arena.lists[class] = arena.lists[class]->next;
    } else {
        uintptr_t at = 0;
        if (bytes > CHUNK_BYTES / 4) {
            at = take_pages(bytes);
        } else {
            if (arena.next + bytes > arena.end) {
                arena.next = take_pages(CHUNK_BYTES);
                arena.end = arena.next == 0 ? 0 : arena.next + CHUNK_BYTES;
            }
            if (arena.next != 0) {
                at = arena.next;
                arena.next += bytes;
            }
        }
        if (at != 0) {
            *(head *)at = (head){.size = rounded, .class = class};
            result = (void *)(at + HEAD_BYTES);
        }
    }
    arena.blocks += result != NULL;
    atomic_flag_clear(&arena.busy);
    return result;
}

unsigned ls_sim_blocks(void)
{
    return arena.blocks;
}

static head *head_of(const void *block)
{
    return (head *)((uintptr_t)block - HEAD_BYTES);
}

void *malloc(size_t size)
{
    void *const block = allocate(size);
    if (block == NULL) errno = ENOMEM;
    return block;
}

void free(void *block)
{
    if (block == NULL) return;
    head *h = head_of(block);
    if (h->offset > 0) h = (head *)((uintptr_t)h - h->offset);
    free_block *const f = (free_block *)(h + 1);
    while (atomic_flag_test_and_set(&arena.busy)) {}
    memset(f, FREED, h->size < PAGE_BYTES ? h->size : PAGE_BYTES);
    f->next = arena.lists[h->class];
    arena.lists[h->class] = f;
    arena.blocks--;
    atomic_flag_clear(&arena.busy);
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    void *const block = malloc(bytes);
    return block != NULL ? memset(block, 0, bytes) : NULL;
}

size_t malloc_usable_size(void *block)
{
    return block != NULL ? head_of(block)->size : 0;
}

void *realloc(void *block, size_t size)
{
    const size_t old = malloc_usable_size(block);
    if (block != NULL && size <= old && size > old / 4) return block;
    void *const to = malloc(size);
    if (to == NULL || block == NULL) return to;
    memcpy(to, block, old < size ? old : size);
    free(block);
    return to;
}

void *memalign(size_t alignment, size_t size)
{
    if (alignment <= 16) return malloc(size);
    char *const block = malloc(size + alignment + HEAD_BYTES);
    if (block == NULL) return NULL;
    const uintptr_t at = ((uintptr_t)block + HEAD_BYTES + alignment - 1) / alignment * alignment;
    *head_of((void *)at) = (head){.size = size, .offset = (uint32_t)(at - (uintptr_t)block)};
    return (void *)at;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *const block = memalign(alignment, size);
    if (block != NULL) *out = block;
    return block != NULL ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) __attribute__((alias("memalign")));

/* Stacks of threads, and other memory without a file; files are those of the system. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (at == NULL && fd < 0 && (flags & MAP_ANONYMOUS) && (flags & MAP_PRIVATE)) {
        while (atomic_flag_test_and_set(&arena.busy)) {}
        at = (void *)take_pages(bytes);
        atomic_flag_clear(&arena.busy);
        if (at != NULL && protection == PROT_NONE) (void)mprotect(at, bytes, protection);
        return at != NULL ? at : (void *)(intptr_t)ls_sim_failed(ENOMEM);
    }
    const long result = ls_sim_syscall(SYS_mmap, (long)at, (long)bytes, protection, flags, fd, offset);
    return result >= 0 || result < -PAGE_BYTES ? (void *)result : (void *)(intptr_t)ls_sim_failed((int)-result);
}
