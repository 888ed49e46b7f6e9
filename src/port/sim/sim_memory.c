/* sim_memory.c - malloc and mmap at the same addresses in each run: Lua seeds its hashes with addresses, and programs
 * order by them. See sim.h.
 *
 * Blocks come from lists by size, a power of two or one and a half of it, which reuse the latest first. Each block has
 * its size in front. Freed memory is filled, so that a use of it shows. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "port/sim/sim.h"

enum { CLASSES = 80, HEAD_BYTES = 16, FREED = 0xdb, PAGE_BYTES = 4096, LARGE_PAGE_BYTES = 2 << 20 };
static const uintptr_t first = UINT64_C(0x200000000000);
static const size_t most_bytes = UINT64_C(1) << 40;

typedef struct head {       /* before each block */
    uint64_t size;          /* that can be used */
    uint32_t class, offset; /* offset: of the memory before the head, of an aligned block */
} head;
_Static_assert(sizeof(head) == HEAD_BYTES, "blocks are aligned");

typedef struct free_block {
    struct free_block *next;
} free_block;

static struct {
    size_t used_bytes;
    free_block *lists[CLASSES];
    atomic_flag busy; /* a thread of the system that ends may free beside the one that has the turn */
} arena;

/* The next part of the memory, zeros. Its pages are large ones: those of a run would be thousands of page faults. */
static uintptr_t take(size_t bytes, size_t alignment)
{
    const size_t at = (arena.used_bytes + alignment - 1) / alignment * alignment;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (arena.used_bytes == 0) {
        (void)ls_sim_syscall(SYS_mmap, (long)first, (long)most_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        (void)ls_sim_syscall(SYS_madvise, (long)first, (long)most_bytes, MADV_HUGEPAGE, 0, 0, 0);
    }
    if (bytes > most_bytes - at) return 0;
    arena.used_bytes = at + bytes;
    return first + at;
}

void ls_sim_memory_begin(void)
{
    (void)take(0, LARGE_PAGE_BYTES);
}

static head *head_of(const void *block)
{
    return (head *)((uintptr_t)block - HEAD_BYTES);
}

void *malloc(size_t size)
{
    size_t rounded = 16; /* then 24, 32, 48, 64, 96 ... */
    unsigned class = 0;
    for (; rounded < size && rounded < most_bytes; class ++)
        rounded = class % 2 == 0 ? rounded / 2 * 3 : rounded / 3 * 4;
    while (atomic_flag_test_and_set(&arena.busy)) {}
    free_block *block = arena.lists[class];
    const uintptr_t at = block == NULL ? take(rounded + HEAD_BYTES, HEAD_BYTES) : 0;
    if (block != NULL) {
        arena.lists[class] = block->next;
    } else if (at != 0) {
        *(head *)at = (head){.size = rounded, .class = class};
        block = (free_block *)(at + HEAD_BYTES);
    }
    ls_sim_total.blocks += block != NULL;
    atomic_flag_clear(&arena.busy);
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
    ls_sim_total.blocks--;
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

void *realloc(void *block, size_t size)
{
    const size_t old = block != NULL ? head_of(block)->size : 0;
    if (block != NULL && size <= old && size > old / 4) return block;
    void *const to = malloc(size);
    if (to == NULL || block == NULL) return to;
    memcpy(to, block, old < size ? old : size);
    free(block);
    return to;
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    char *const block = malloc(size + alignment + HEAD_BYTES);
    if (block == NULL) return ENOMEM;
    const uintptr_t at = ((uintptr_t)block + HEAD_BYTES + alignment - 1) / alignment * alignment;
    *head_of((void *)at) = (head){.size = size, .offset = (uint32_t)(at - (uintptr_t)block)};
    *out = (void *)at;
    return 0;
}

/* Stacks of threads, and other memory without a file; files are those of the system. */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (at == NULL && fd < 0 && (flags & MAP_ANONYMOUS) && (flags & MAP_PRIVATE)) {
        while (atomic_flag_test_and_set(&arena.busy)) {}
        at = (void *)take(bytes, PAGE_BYTES);
        atomic_flag_clear(&arena.busy);
        if (at != NULL && protection == PROT_NONE) (void)mprotect(at, bytes, protection);
        return at != NULL ? at : (void *)(intptr_t)ls_sim_failed(ENOMEM);
    }
    const long result = ls_sim_syscall(SYS_mmap, (long)at, (long)bytes, protection, flags, fd, offset);
    return result >= 0 || result < -PAGE_BYTES ? (void *)result : (void *)(intptr_t)ls_sim_failed((int)-result);
}
