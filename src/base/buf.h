/* buf.h - refcounted byte blocks from per-thread pools, and slices that point into them.
 *
 * A block is filled once, then only read; an external block stands for bytes that lie elsewhere. Every slice holds one
 * reference. The last ls_slice_drop() returns the block to the pool it came from: the pool's owner thread puts it on a
 * free list without atomics; any other thread pushes it onto the pool's atomic return stack, which the owner empties
 * when its free list is empty.
 *
 * All pools of a server share one account (ls_pools), which holds the cap and the counters. Invariants:
 *     bytes_live = sum of the capacities of blocks with refs > 0
 *     bytes_live + bytes of free blocks that pools keep                     <= bytes_max
 *     a block with refs == 0 is on exactly one list, or was returned to the system
 * The last 1/64 of bytes_max, at most 1 MiB, is a reserve that only ls_block_get_reserved() takes from.
 * A pool keeps at most 256 tiny, 256 small and 16 large free blocks per list, and at most bytes_max / 64 in each.
 *
 * Threads: an ls_pool is used by the thread that entered it; any thread may drop a reference. */
#ifndef LS_BASE_BUF_H
#define LS_BASE_BUF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_pools ls_pools;
typedef struct ls_pool ls_pool;

enum { LS_BLOCK_TINY = 1480, LS_BLOCK_SMALL = 4096, LS_BLOCK_LARGE = 65536 }; /* payload bytes of the sizes */

enum ls_block_kind {
    LS_BLOCK_OF_TINY, /* of a pool: the bytes follow the header */
    LS_BLOCK_OF_SMALL,
    LS_BLOCK_OF_LARGE,
    LS_BLOCK_EXTERNAL, /* the bytes lie elsewhere and stay valid until the release: ls_external */
    LS_BLOCK_FILE      /* no bytes in memory: slices are ranges of a file, see port/file/shared_file.h */
};

/* refs; cap: payload bytes, LS_BLOCK_TINY, SMALL or LARGE, 0: not of a pool; next: while on a free list; from, to,
 * seen: else of the one who receives into the block and takes data[from .. to) bit by bit; kind: enum ls_block_kind. A
 * macro, because C11 allows no struct with a flexible array inside another one. */
#define LS_BLOCK_HEADER        \
    _Atomic uint32_t refs;     \
    uint32_t cap;              \
    ls_pool *home;             \
    union {                    \
        struct ls_block *next; \
        struct {               \
            uint32_t from, to; \
        };                     \
    };                         \
    uint32_t kind, seen

typedef struct ls_block {
    LS_BLOCK_HEADER;
    _Alignas(16) char data[];
} ls_block;

typedef struct ls_slice {
    ls_block *block; /* NULL: another owner keeps the bytes; nothing to drop */
    const char *ptr; /* of a LS_BLOCK_FILE: the offset in the file, see ls_slice_offset */
    size_t len;
} ls_slice;

/* A block for bytes that no pool owns, such as a Lua string or a file. `release` runs once, when the last reference is
 * dropped, on whichever thread drops it; it frees the struct. */
typedef struct ls_external {
    LS_BLOCK_HEADER; /* first, as in ls_block */
    void (*release)(struct ls_external *external);
} ls_external;

static inline ls_block *ls_external_block(ls_external *external)
{
    return (ls_block *)(void *)external;
}

/* Prepare a block of this kind with one reference. */
void ls_external_init(ls_external *external, enum ls_block_kind kind, void (*release)(ls_external *external));
void ls_external_free(ls_external *external); /* a release: free(3) */

typedef struct ls_pools_stats {
    uint64_t blocks_live, bytes_live; /* blocks with a reference, their payload bytes */
    uint64_t blocks_peak, bytes_peak; /* maximum taken from the system at one time: in use and cached */
    uint64_t bytes_max;
    uint64_t bytes_copied;    /* payload bytes that the core copied between blocks */
    uint64_t bytes_encrypted; /* payload bytes that filters encrypted, which writes each once more */
} ls_pools_stats;

/* Open the account. bytes_max caps the payload of all blocks. LS_OK or LS_ENOMEM. */
int ls_pools_open(size_t bytes_max, ls_pools **out);
void ls_pools_close(ls_pools *pools); /* after every ls_pool_close */
void ls_pools_stat(const ls_pools *pools, ls_pools_stats *out);

/* One pool for one thread. LS_OK or LS_ENOMEM. A pool closed while blocks are out is freed when the last returns. */
int ls_pool_open(ls_pools *pools, ls_pool **out);
void ls_pool_close(ls_pool *pool);
void ls_pool_enter(ls_pool *pool);       /* makes the calling thread the owner */
void ls_pool_leave(ls_pool *pool);       /* the owner has ended: none, until the next ls_pool_enter; any thread */
bool ls_pool_check(const ls_pool *pool); /* whether its free lists are as said above; by the owner */

/* A block with one reference; NULL at the cap or out of memory. `size` is LS_BLOCK_TINY, LS_BLOCK_SMALL or LS_BLOCK_LARGE. */
ls_block *ls_block_get_of(ls_pool *pool, enum ls_block_kind kind);
static inline ls_block *ls_block_get(ls_pool *pool, size_t size)
{
    return ls_block_get_of(pool, size == LS_BLOCK_TINY    ? LS_BLOCK_OF_TINY
                                 : size == LS_BLOCK_SMALL ? LS_BLOCK_OF_SMALL
                                                          : LS_BLOCK_OF_LARGE);
}

/* Move the received bytes of *block, from its `from` to its `to`, to the start of another one of this size, which
 * takes its place. LS_OK; LS_ENOMEM: nothing has changed. */
int ls_block_move(ls_pool *pool, ls_block **block, size_t size);

/* A small block as from ls_block_get, but when only the reserve is left, from the reserve. For what must be possible
 * with no memory left, such as to refuse a request; the caller soon drops the block. NULL: the reserve is used up. */
ls_block *ls_block_get_reserved(ls_pool *pool);
void ls_block_put(ls_block *block); /* drops the last reference; use ls_block_drop */

/* Count payload bytes that the core copied, or that a filter encrypted. Only the pool's owner thread calls them. */
void ls_pool_copied(ls_pool *pool, size_t bytes);
void ls_pool_encrypted(ls_pool *pool, size_t bytes);

static inline ls_block *ls_block_hold(ls_block *block)
{
    atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

static inline void ls_block_hold_many(ls_block *block, uint32_t count) /* + count references */
{
    atomic_fetch_add_explicit(&block->refs, count, memory_order_relaxed);
}

static inline void ls_block_drop_many(ls_block *block, uint32_t count) /* - count references, count >= 1 */
{
    if (atomic_fetch_sub_explicit(&block->refs, count, memory_order_acq_rel) == count) ls_block_put(block);
}

static inline void ls_block_drop(ls_block *block)
{
    /* A sole owner needs no read-modify-write: no other thread can add a reference to a block that only we hold. */
    if (atomic_load_explicit(&block->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) == 1)
        ls_block_put(block);
}

static inline ls_slice ls_slice_of(ls_block *block, size_t from, size_t len) /* +1 reference */
{
    return (ls_slice){ls_block_hold(block), block->data + from, len};
}

static inline ls_slice ls_slice_static(const void *ptr, size_t len)
{
    return (ls_slice){NULL, ptr, len};
}

/* A slice of an external block; `block` passes its reference on. */
static inline ls_slice ls_slice_external(ls_external *external, const void *ptr, size_t len)
{
    return (ls_slice){ls_external_block(external), ptr, len};
}

static inline bool ls_slice_is_file(const ls_slice *slice)
{
    return slice->block != NULL && slice->block->kind == LS_BLOCK_FILE;
}

/* A range of a file; `file` passes its reference on. */
static inline ls_slice ls_slice_of_file(ls_external *file, uint64_t offset, size_t len)
{
    return (ls_slice){ls_external_block(file), (const char *)(uintptr_t)offset, len};
}

static inline uint64_t ls_slice_offset(const ls_slice *slice)
{
    return (uint64_t)(uintptr_t)slice->ptr;
}

static inline void ls_slice_drop(ls_slice *slice) /* -1 reference; the slice is empty afterwards */
{
    if (slice->block != NULL) ls_block_drop(slice->block);
    *slice = (ls_slice){NULL, NULL, 0};
}

static inline void ls_slices_drop(ls_slice *slices, unsigned count)
{
    for (unsigned i = 0; i < count; i++) ls_slice_drop(&slices[i]);
}

static inline size_t ls_slices_bytes(const ls_slice *slices, unsigned count)
{
    size_t sum = 0;
    for (unsigned i = 0; i < count; i++) sum += slices[i].len;
    return sum;
}

#endif
