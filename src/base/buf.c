/* buf.c - pools of blocks: a free list for the owner, a return stack for other threads, one account for all pools.
 *
 *     owner:   get <- free list <- (empty) take the whole return stack <- (empty) the system, if the cap allows
 *              put -> free list -> (full) the system
 *     others:  put -> return stack -> (full) the system
 *
 * The account counts what was taken from the system, so that getting and putting cached blocks touches no memory
 * that threads share:
 *     bytes_live + bytes cached (free lists and return stacks) = pools->taken <= bytes_max
 * At the cap a pool first returns its own cached blocks of the other sizes. It cannot reach the blocks that other pools
 * cache, so those caches are small: at most 1/64 of bytes_max per size, list and pool.
 *
 * The reserve is a pool without an owner: its blocks return to the system by the path of the others, and are never
 * cached, so that they stay a reserve.
 *
 * A pool that is closed while blocks are out has CLOSED on its return stack; the thread that drops the last block
 * frees the pool.
 *     orphans after the close  = blocks still out
 *     orphans before the close = -(blocks that others returned to the system directly) <= 0
 * so exactly one change makes it 0 after the close. */
#include "base/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/counter.h"
#include "base/err.h"
#include "base/invariant.h"
#include "base/list.h"
#include "base/os/thread.h"

/* Free blocks that a list may hold. The AddressSanitizer build sets them to 0, so that it detects every use of a
 * dropped block. */
#ifndef LS_POOL_CACHE_SMALL
#define LS_POOL_CACHE_SMALL 256
#define LS_POOL_CACHE_LARGE 16
#endif
enum { CACHE_SHARE = 64, RESERVE_SHARE = 64, RESERVE_BYTES_MAX = 1 << 20, LINE_BYTES = 64 };
enum { TINY = LS_BLOCK_OF_TINY, SMALL = LS_BLOCK_OF_SMALL, LARGE = LS_BLOCK_OF_LARGE, SIZES };

typedef struct cache {
    ls_block *free;
    uint32_t count;
} cache;

struct ls_pools {
    uint64_t bytes_max;
    uint64_t reserve_bytes; /* of bytes_max, for the pool `reserve` only */
    ls_pool *reserve;
    uint32_t cache_max[SIZES];
    ls_counter taken[SIZES], taken_peak[SIZES]; /* blocks from the system */
    ls_counter taken_bytes, taken_bytes_peak;
    ls_counter copied_before, encrypted_before; /* by pools that were freed */
    ls_mutex lock;                              /* of the two below */
    ls_node pools;
    unsigned refs; /* the account itself and every pool that exists */
};

struct ls_pool {
    /* used by the owner only */
    _Atomic(const char *) owner; /* &thread_mark of that thread; NULL: no owner */
    ls_pools *account;
    cache caches[SIZES];
    ls_counter gets[SIZES], puts[SIZES];
    uint64_t returns_taken; /* blocks taken from the return stack */
    ls_counter copied, encrypted;
    ls_node node;
    char apart[LINE_BYTES];
    /* used by every thread */
    _Atomic(ls_block *) returned;
    ls_counter returned_count[SIZES]; /* on the stack; may be briefly ahead of it */
    ls_counter foreign_puts[SIZES];
    _Atomic int64_t orphans;
};

/* Its address identifies the thread. */
static LS_THREAD_LOCAL char thread_mark;

/* The return stack of a closed pool ends in this. It is never read as a block. */
static char closed_mark;
#define CLOSED ((ls_block *)(void *)&closed_mark)

static const uint32_t sizes[SIZES] = {LS_BLOCK_TINY, LS_BLOCK_SMALL, LS_BLOCK_LARGE},
                      cached_max[SIZES] = {LS_POOL_CACHE_SMALL, LS_POOL_CACHE_SMALL, LS_POOL_CACHE_LARGE};

/* ---- the account ---- */

static void raise_peak(ls_counter *peak, uint64_t value)
{
    uint64_t was = ls_counter_read(peak);
    while (was < value &&
           !atomic_compare_exchange_weak_explicit(peak, &was, value, memory_order_relaxed, memory_order_relaxed)) {
        /* `was` holds the value another thread stored: compare again */
    }
}

static ls_block *take_from_system(ls_pool *pool, uint32_t kind)
{
    ls_pools *const account = pool->account;
    const size_t size = sizes[kind];
    const uint64_t bytes_max =
        pool == account->reserve ? account->bytes_max : account->bytes_max - account->reserve_bytes;
    uint64_t bytes = ls_counter_read(&account->taken_bytes);
    do {
        if (size > bytes_max || bytes > bytes_max - size) return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&account->taken_bytes, &bytes, bytes + size, memory_order_relaxed,
                                                    memory_order_relaxed));
    ls_block *const block = malloc(sizeof *block + size);
    if (block == NULL) {
        atomic_fetch_sub_explicit(&account->taken_bytes, size, memory_order_relaxed);
        return NULL;
    }
    block->cap = sizes[kind];
    block->home = pool;
    block->kind = kind;
    block->next = NULL;
    const uint64_t count = atomic_fetch_add_explicit(&account->taken[kind], 1, memory_order_relaxed) + 1;
    raise_peak(&account->taken_peak[kind], count);
    raise_peak(&account->taken_bytes_peak, bytes + size);
    return block;
}

static void give_to_system(ls_pools *account, ls_block *block)
{
    atomic_fetch_sub_explicit(&account->taken[block->kind], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&account->taken_bytes, block->cap, memory_order_relaxed);
    free(block);
}

int ls_pools_open(size_t bytes_max, ls_pools **out)
{
    ls_pools *pools = calloc(1, sizeof *pools);
    if (pools == NULL) return LS_ENOMEM;
    ls_mutex_open(&pools->lock);
    pools->bytes_max = bytes_max;
    for (int i = 0; i < SIZES; i++) {
        const size_t share = bytes_max / CACHE_SHARE / sizes[i];
        pools->cache_max[i] = share < cached_max[i] ? (uint32_t)share : cached_max[i];
    }
    ls_node_init(&pools->pools);
    pools->refs = 1;
    const int err = ls_pool_open(pools, &pools->reserve);
    if (err < 0) {
        ls_mutex_close(&pools->lock);
        free(pools);
        return err;
    }
    const uint64_t share = bytes_max / RESERVE_SHARE;
    pools->reserve_bytes = (share < RESERVE_BYTES_MAX ? share : RESERVE_BYTES_MAX) / LS_BLOCK_SMALL * LS_BLOCK_SMALL;
    *out = pools;
    return LS_OK;
}

/* Drops one reference; `pool` is the pool that held it, or NULL. */
static void drop_account(ls_pools *pools, ls_pool *pool)
{
    ls_mutex_lock(&pools->lock);
    if (pool != NULL) {
        ls_list_remove(&pool->node);
        /* ls_counter_add needs one writer at a time: the holder of the lock */
        ls_counter_add(&pools->copied_before, ls_counter_read(&pool->copied));
        ls_counter_add(&pools->encrypted_before, ls_counter_read(&pool->encrypted));
    }
    const bool last = --pools->refs == 0;
    ls_mutex_unlock(&pools->lock);
    if (!last) return;
    LS_INVARIANT(ls_counter_read(&pools->taken_bytes) == 0);
    ls_mutex_close(&pools->lock);
    free(pools);
}

void ls_pools_close(ls_pools *pools)
{
    ls_pool_close(pools->reserve);
    drop_account(pools, NULL);
}

void ls_pools_stat(const ls_pools *pools, ls_pools_stats *out)
{
    ls_pools *const account = (ls_pools *)(uintptr_t)pools; /* only the lock is changed */
    uint64_t live[SIZES] = {0};
    uint64_t copied, encrypted;
    ls_mutex_lock(&account->lock);
    copied = ls_counter_read(&account->copied_before);
    encrypted = ls_counter_read(&account->encrypted_before);
    for (ls_node *n = account->pools.next; n != &account->pools; n = n->next) {
        ls_pool *const pool = LS_CONTAINER(n, ls_pool, node);
        copied += ls_counter_read(&pool->copied);
        encrypted += ls_counter_read(&pool->encrypted);
        for (int i = 0; i < SIZES; i++) {
            const uint64_t back = ls_counter_read(&pool->puts[i]) + ls_counter_read(&pool->foreign_puts[i]);
            const uint64_t gets = ls_counter_read(&pool->gets[i]);
            if (gets > back) live[i] += gets - back; /* the counters move while they are read: back may exceed gets */
        }
    }
    ls_mutex_unlock(&account->lock);
    out->blocks_live = out->bytes_live = out->blocks_peak = 0;
    for (int i = 0; i < SIZES; i++) {
        out->blocks_live += live[i];
        out->bytes_live += live[i] * sizes[i];
        out->blocks_peak += ls_counter_read(&account->taken_peak[i]);
    }
    out->bytes_peak = ls_counter_read(&account->taken_bytes_peak);
    out->bytes_max = account->bytes_max;
    out->bytes_copied = copied;
    out->bytes_encrypted = encrypted;
}

/* ---- one pool ---- */

int ls_pool_open(ls_pools *pools, ls_pool **out)
{
    ls_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return LS_ENOMEM;
    pool->account = pools;
    ls_mutex_lock(&pools->lock);
    ls_list_push(&pools->pools, &pool->node);
    pools->refs++;
    ls_mutex_unlock(&pools->lock);
    *out = pool;
    return LS_OK;
}

static void free_pool(ls_pool *pool)
{
    drop_account(pool->account, pool);
    free(pool);
}

bool ls_pool_check(const ls_pool *pool)
{
    for (int i = 0; i < SIZES; i++) {
        const cache *c = &pool->caches[i];
        uint32_t count = 0;
        for (const ls_block *block = c->free; block != NULL; block = block->next, count++)
            if (block->home != pool || block->kind != (uint32_t)i || atomic_load(&block->refs) != 0) return false;
        if (count != c->count || count > pool->account->cache_max[i]) return false;
    }
    return ls_counter_read(&pool->account->taken_bytes) <= pool->account->bytes_max;
}

static void trim(ls_pool *pool, uint32_t index)
{
    cache *const c = &pool->caches[index];
    while (c->free != NULL) {
        ls_block *const block = c->free;
        c->free = block->next;
        give_to_system(pool->account, block);
    }
    c->count = 0;
}

static inline void cache_or_free(ls_pool *pool, ls_block *block, uint32_t index)
{
    cache *const c = &pool->caches[index];
    if (c->count >= pool->account->cache_max[index]) {
        give_to_system(pool->account, block);
        return;
    }
    block->next = c->free;
    c->free = block;
    c->count++;
}

/* Move the returned blocks to the free lists, and leave `head` (NULL or CLOSED) in their place. */
static void take_returned(ls_pool *pool, ls_block *head)
{
    uint64_t counts[SIZES] = {0};
    ls_block *block = atomic_exchange_explicit(&pool->returned, head, memory_order_acquire);
    while (block != NULL) {
        ls_block *const next = block->next;
        const uint32_t index = block->kind;
        counts[index]++;
        cache_or_free(pool, block, index);
        block = next;
    }
    for (int i = 0; i < SIZES; i++) {
        if (counts[i] > 0) atomic_fetch_sub_explicit(&pool->returned_count[i], counts[i], memory_order_relaxed);
        pool->returns_taken += counts[i];
    }
    LS_INVARIANT(ls_pool_check(pool));
}

void ls_pool_close(ls_pool *pool)
{
    atomic_store_explicit(&pool->owner, NULL, memory_order_relaxed);
    take_returned(pool, CLOSED);
    for (uint32_t i = 0; i < SIZES; i++) trim(pool, i);

    uint64_t out = 0; /* includes blocks that others returned to the system, which `orphans` counts as well */
    for (int i = 0; i < SIZES; i++) out += ls_counter_read(&pool->gets[i]) - ls_counter_read(&pool->puts[i]);
    const int64_t left = (int64_t)(out - pool->returns_taken);
    if (atomic_fetch_add_explicit(&pool->orphans, left, memory_order_acq_rel) + left == 0) free_pool(pool);
}

void ls_pool_enter(ls_pool *pool)
{
    atomic_store_explicit(&pool->owner, &thread_mark, memory_order_relaxed);
}

void ls_pool_leave(ls_pool *pool)
{
    LS_INVARIANT(ls_pool_check(pool));
    atomic_store_explicit(&pool->owner, NULL, memory_order_relaxed);
}

/* ---- blocks ---- */

/* The free list is empty. Out of line: inlined, it would make the fast path save registers. */
LS_NOINLINE static ls_block *get_slowly(ls_pool *pool, uint32_t kind)
{
    cache *const c = &pool->caches[kind];
    if (atomic_load_explicit(&pool->returned, memory_order_relaxed) != NULL) take_returned(pool, NULL);
    if (c->free == NULL) {
        ls_block *block = take_from_system(pool, kind);
        if (block == NULL) { /* retry with the memory of the other free lists */
            for (uint32_t i = 0; i < SIZES; i++) trim(pool, i);
            block = take_from_system(pool, kind);
        }
        return block;
    }
    ls_block *const block = c->free;
    c->free = block->next;
    c->count--;
    return block;
}

ls_block *ls_block_get_of(ls_pool *pool, enum ls_block_kind kind)
{
    assert(atomic_load_explicit(&pool->owner, memory_order_relaxed) == &thread_mark);
    cache *const c = &pool->caches[kind];
    ls_block *block = c->free;
    if (block != NULL) {
        c->free = block->next;
        c->count--;
    } else if ((block = get_slowly(pool, kind)) == NULL) {
        return NULL;
    }
    ls_counter_add(&pool->gets[kind], 1);
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

int ls_block_move(ls_pool *pool, ls_block **block, size_t size)
{
    ls_block *const from = *block, *const to = ls_block_get(pool, size);
    const uint32_t have = from->to - from->from;
    if (to == NULL) return LS_ENOMEM;
    memcpy(to->data, from->data + from->from, have);
    ls_pool_copied(pool, have);
    to->from = 0;
    to->to = have;
    to->seen = from->seen;
    ls_block_drop(from);
    *block = to;
    return LS_OK;
}

ls_block *ls_block_get_reserved(ls_pool *pool)
{
    ls_pool *const reserve = pool->account->reserve;
    ls_block *block = ls_block_get(pool, LS_BLOCK_SMALL);
    if (block != NULL || (block = take_from_system(reserve, SMALL)) == NULL) return block;
    atomic_fetch_add_explicit(&reserve->gets[SMALL], 1, memory_order_relaxed); /* by any thread */
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

/* The block counts as out until the last statement, so the pool exists until then. */
static void put_foreign(ls_pool *pool, ls_block *block, uint32_t index)
{
    atomic_fetch_add_explicit(&pool->foreign_puts[index], 1, memory_order_relaxed);
    if (pool != pool->account->reserve &&
        ls_counter_read(&pool->returned_count[index]) < pool->account->cache_max[index]) {
        ls_block *head = atomic_load_explicit(&pool->returned, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->returned_count[index], 1, memory_order_relaxed);
        while (head != CLOSED) {
            block->next = head;
            if (atomic_compare_exchange_weak_explicit(&pool->returned, &head, block, memory_order_release,
                                                      memory_order_relaxed))
                return;
        }
    }
    give_to_system(pool->account, block);
    if (atomic_fetch_sub_explicit(&pool->orphans, 1, memory_order_acq_rel) == 1) free_pool(pool);
}

void ls_external_init(ls_external *external, enum ls_block_kind kind, void (*release)(ls_external *external))
{
    atomic_init(&external->refs, 1);
    external->cap = 0;
    external->home = NULL;
    external->next = NULL;
    external->kind = kind;
    external->release = release;
}

void ls_external_free(ls_external *external)
{
    free(external);
}

void ls_block_put(ls_block *block)
{
    if (block->kind >= SIZES) {
        ls_external *external = (ls_external *)(void *)block;
        external->release(external);
        return;
    }
    ls_pool *const pool = block->home;
    const uint32_t index = block->kind;
    atomic_store_explicit(&block->refs, 0, memory_order_relaxed);
    if (atomic_load_explicit(&pool->owner, memory_order_relaxed) != &thread_mark) {
        put_foreign(pool, block, index);
        return;
    }
    ls_counter_add(&pool->puts[index], 1);
    cache_or_free(pool, block, index);
}

void ls_pool_copied(ls_pool *pool, size_t bytes)
{
    ls_counter_add(&pool->copied, bytes);
}

void ls_pool_encrypted(ls_pool *pool, size_t bytes)
{
    ls_counter_add(&pool->encrypted, bytes);
}
