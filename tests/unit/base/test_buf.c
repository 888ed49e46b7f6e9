/* test_buf.c - pools: references, the cap, the counters, and blocks dropped by other threads. */
#include "support.h"

#include "base/buf.h"
#include "base/os/thread.h"

enum { CAP = 64 * 1024 * 1024 };

typedef struct fixture {
    ls_pools *pools;
    ls_pool *pool;
} fixture;

static fixture open_pool(size_t bytes_max)
{
    fixture f;
    assert_int_equal(ls_pools_open(bytes_max, &f.pools), LS_OK);
    assert_int_equal(ls_pool_open(f.pools, &f.pool), LS_OK);
    ls_pool_enter(f.pool);
    return f;
}

static void close_pool(fixture *f)
{
    ls_pool_close(f->pool);
    ls_pools_close(f->pools);
}

static ls_pools_stats stat_of(const fixture *f)
{
    ls_pools_stats stats;
    ls_pools_stat(f->pools, &stats);
    return stats;
}

TEST(a_block_lives_as_long_as_its_slices)
{
    fixture f = open_pool(CAP);
    ls_block *block = ls_block_get(f.pool, LS_BLOCK_SMALL);
    assert_non_null(block);
    assert_int_equal(block->cap, LS_BLOCK_SMALL);
    memset(block->data, 'x', block->cap);
    ls_slice a = ls_slice_of(block, 0, 10), b = ls_slice_of(block, 4000, 96);
    assert_int_equal(b.ptr - a.ptr, 4000);
    ls_block_drop(block);
    assert_int_equal(stat_of(&f).blocks_live, 1);
    ls_slice_drop(&a);
    assert_null(a.block);
    assert_int_equal(a.len, 0);
    assert_int_equal(stat_of(&f).blocks_live, 1);
    assert_int_equal(b.ptr[95], 'x');
    ls_slice_drop(&b);
    ls_slice_drop(&b); /* empty: no reference to drop */
    assert_int_equal(stat_of(&f).blocks_live, 0);
    close_pool(&f);
}

TEST(a_static_slice_has_no_block)
{
    ls_slice s = ls_slice_static("hello", 5);
    assert_null(s.block);
    assert_memory_equal(s.ptr, "hello", 5);
    ls_slice_drop(&s);
    assert_null(s.ptr);
}

TEST(data_is_aligned)
{
    fixture f = open_pool(CAP);
    ls_block *small = ls_block_get(f.pool, LS_BLOCK_SMALL), *large = ls_block_get(f.pool, LS_BLOCK_LARGE);
    assert_int_equal((uintptr_t)small->data % 16, 0);
    assert_int_equal((uintptr_t)large->data % 16, 0);
    assert_int_equal(large->cap, LS_BLOCK_LARGE);
    memset(large->data, 0, large->cap);
    ls_block_drop(small);
    ls_block_drop(large);
    close_pool(&f);
}

TEST(the_counters_count)
{
    fixture f = open_pool(CAP);
    ls_block *a = ls_block_get(f.pool, LS_BLOCK_SMALL), *b = ls_block_get(f.pool, LS_BLOCK_LARGE);
    ls_pools_stats stats = stat_of(&f);
    assert_int_equal(stats.blocks_live, 2);
    assert_int_equal(stats.bytes_live, LS_BLOCK_SMALL + LS_BLOCK_LARGE);
    assert_int_equal(stats.blocks_peak, 2);
    assert_int_equal(stats.bytes_peak, LS_BLOCK_SMALL + LS_BLOCK_LARGE);
    assert_int_equal(stats.bytes_max, CAP);
    assert_int_equal(stats.bytes_copied, 0);
    assert_int_equal(stats.bytes_encrypted, 0);
    ls_pool_encrypted(f.pool, 5);
    ls_pool_encrypted(f.pool, 2);
    ls_pool_copied(f.pool, 1000);
    ls_pool_copied(f.pool, 24);
    ls_block_drop(a);
    ls_block_drop(b);
    assert_true(ls_pool_check(f.pool));
#ifndef LS_POOL_CACHE_SMALL /* the pool keeps dropped blocks */
    atomic_fetch_add(&a->refs, 1);
    assert_false(ls_pool_check(f.pool));
    atomic_fetch_sub(&a->refs, 1);
#endif
    stats = stat_of(&f);
    assert_int_equal(stats.blocks_live, 0);
    assert_int_equal(stats.bytes_live, 0);
    assert_int_equal(stats.blocks_peak, 2);
    assert_int_equal(stats.bytes_copied, 1024);
    ls_pool_close(f.pool);
    assert_int_equal(stat_of(&f).bytes_copied, 1024); /* outlives the pool */
    assert_int_equal(stat_of(&f).bytes_encrypted, 7);
    ls_pools_close(f.pools);
}

/* Take blocks of one size until the pool fails; returns their number. */
static size_t take_all(ls_pool *pool, size_t size, ls_block **out, size_t max)
{
    size_t n = 0;
    while (n < max && (out[n] = ls_block_get(pool, size)) != NULL) n++;
    return n;
}

static void drop_all(ls_block **blocks, size_t n)
{
    for (size_t i = 0; i < n; i++) ls_block_drop(blocks[i]);
}

TEST(the_cap_holds_at_its_limit)
{
    enum { BLOCKS = 3 };
    ls_block *blocks[BLOCKS + 2];
    fixture f = open_pool(BLOCKS * LS_BLOCK_SMALL);
    assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, BLOCKS + 2), BLOCKS);
    assert_null(ls_block_get(f.pool, LS_BLOCK_LARGE));
    ls_block_drop(blocks[2]);
    assert_non_null(blocks[2] = ls_block_get(f.pool, LS_BLOCK_SMALL));
    assert_null(ls_block_get(f.pool, LS_BLOCK_SMALL));
    drop_all(blocks, BLOCKS);
    close_pool(&f);

    f = open_pool(BLOCKS * LS_BLOCK_SMALL - 1); /* one byte short */
    assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, BLOCKS + 2), BLOCKS - 1);
    drop_all(blocks, BLOCKS - 1);
    close_pool(&f);

    f = open_pool(0);
    assert_null(ls_block_get(f.pool, LS_BLOCK_SMALL));
    close_pool(&f);
}

/* Cached blocks of one size are freed for the other size. */
TEST(cached_blocks_make_room_at_the_cap)
{
    enum { LARGE = 63, SMALL = LARGE * LS_BLOCK_LARGE / LS_BLOCK_SMALL };
    static ls_block *blocks[SMALL + 1];
    fixture f = open_pool((LARGE + 1) * LS_BLOCK_LARGE); /* the last 1/64 is the reserve */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(take_all(f.pool, LS_BLOCK_LARGE, blocks, LARGE + 1), LARGE);
        drop_all(blocks, LARGE);
        assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, SMALL + 1), SMALL);
        drop_all(blocks, SMALL);
    }
    assert_int_equal(stat_of(&f).bytes_peak, LARGE * LS_BLOCK_LARGE);
    close_pool(&f);
}

/* One of two pools can use nearly all memory: the other keeps at most 1/64 per size and list. */
TEST(another_pool_caches_little)
{
    enum { SMALL = 1008, RESERVE = 16 };
    static ls_block *blocks[SMALL + 1];
    fixture f = open_pool((SMALL + RESERVE) * LS_BLOCK_SMALL);
    ls_pool *neighbour;
    assert_int_equal(ls_pool_open(f.pools, &neighbour), LS_OK);
    ls_pool_enter(neighbour);
    assert_int_equal(take_all(neighbour, LS_BLOCK_SMALL, blocks, SMALL + 1), SMALL);
    assert_null(ls_block_get(f.pool, LS_BLOCK_SMALL)); /* one account */
    drop_all(blocks, SMALL);
    const size_t n = take_all(f.pool, LS_BLOCK_SMALL, blocks, SMALL + 1);
    assert_true(n >= SMALL - (SMALL + RESERVE) / 64);
    drop_all(blocks, n);
    ls_pool_close(neighbour);
    assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, SMALL + 1), SMALL);
    drop_all(blocks, SMALL);
    close_pool(&f);
}

/* At the cap the reserve still has blocks. They never become blocks that others get. */
TEST(the_reserve)
{
    enum { ALL = 256, RESERVE = ALL / 64, ORDINARY = ALL - RESERVE };
    static ls_block *blocks[ORDINARY + 1];
    ls_block *reserved[RESERVE];
    fixture f = open_pool(ALL * LS_BLOCK_SMALL);
    for (int round = 0; round < 3; round++) {
        ls_block *early = ls_block_get_reserved(f.pool); /* an ordinary one, as long as there are any */
        assert_non_null(early);
        ls_block_drop(early);
        assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, ORDINARY + 1), ORDINARY);
        for (int n = 0; n < RESERVE; n++) assert_non_null(reserved[n] = ls_block_get_reserved(f.pool));
        assert_null(ls_block_get_reserved(f.pool));
        assert_int_equal(stat_of(&f).blocks_live, ALL);
        assert_int_equal(stat_of(&f).bytes_peak, ALL * LS_BLOCK_SMALL);
        ls_block_drop(reserved[0]);
        assert_null(ls_block_get(f.pool, LS_BLOCK_SMALL));
        assert_non_null(reserved[0] = ls_block_get_reserved(f.pool));
        drop_all(reserved, RESERVE);
        assert_null(ls_block_get(f.pool, LS_BLOCK_SMALL));
        drop_all(blocks, ORDINARY);
        assert_int_equal(stat_of(&f).blocks_live, 0);
    }
    close_pool(&f);
}

TEST(no_reserve_below_64_blocks)
{
    enum { ALL = 63 };
    static ls_block *blocks[ALL + 1];
    fixture f = open_pool(ALL * LS_BLOCK_SMALL);
    assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, ALL + 1), ALL);
    assert_null(ls_block_get_reserved(f.pool));
    drop_all(blocks, ALL);
    close_pool(&f);
}

TEST(a_block_of_the_reserve_outlives_the_pools)
{
    enum { ALL = 64 };
    static ls_block *blocks[ALL];
    fixture f = open_pool(ALL * LS_BLOCK_SMALL);
    assert_int_equal(take_all(f.pool, LS_BLOCK_SMALL, blocks, ALL), ALL - 1);
    ls_block *last = ls_block_get_reserved(f.pool);
    assert_non_null(last);
    drop_all(blocks, ALL - 1);
    close_pool(&f);
    ls_block_drop(last); /* AddressSanitizer checks what this frees */
}

enum { HANDED = 2000 };

typedef struct handed {
    ls_block *blocks[HANDED];
    size_t count;
} handed;

static void drop_handed(void *arg)
{
    handed *h = arg;
    drop_all(h->blocks, h->count);
}

static void drop_elsewhere(handed *h)
{
    ls_thread thread;
    assert_int_equal(ls_thread_start(&thread, "drop", drop_handed, h), LS_OK);
    ls_thread_join(&thread);
}

TEST(blocks_return_from_other_threads)
{
    static handed h;
    fixture f = open_pool(CAP);
    for (int round = 0; round < 3; round++) {
        h.count = take_all(f.pool, LS_BLOCK_SMALL, h.blocks, HANDED);
        assert_int_equal(h.count, HANDED);
        assert_int_equal(stat_of(&f).blocks_live, HANDED);
        drop_elsewhere(&h);
        assert_int_equal(stat_of(&f).blocks_live, 0);
    }
    assert_true(stat_of(&f).blocks_peak <= HANDED + 256);
    close_pool(&f);
}

TEST(a_closed_pool_lives_until_its_last_block_returns)
{
    static handed h;
    for (size_t here = 0; here < 3;
         here++) { /* blocks dropped before the close, by the owner, another thread, or both */
        fixture f = open_pool(CAP);
        h.count = take_all(f.pool, LS_BLOCK_SMALL, h.blocks, HANDED);
        while (here != 1 && h.count > HANDED - 100) ls_block_drop(h.blocks[--h.count]);
        if (here != 0) {
            handed *first = calloc(1, sizeof *first);
            assert_non_null(first);
            while (first->count < HANDED / 2) first->blocks[first->count++] = h.blocks[--h.count];
            drop_elsewhere(first);
            free(first);
        }
        ls_pool_close(f.pool);
        assert_int_equal(stat_of(&f).blocks_live, h.count);
        ls_pools_close(f.pools); /* the account waits as well */
        ls_block_drop(h.blocks[--h.count]);
        drop_elsewhere(&h);
    }
}

/* Several threads, each with its pool: every thread gets blocks, passes them on, and drops blocks of others. */
enum { WORKERS = 4, ROUNDS = 20000, SLOTS = 64 };

typedef struct exchange {
    _Atomic(ls_block *) slots[SLOTS];
    ls_pools *pools;
    _Atomic int failed;
} exchange;

static void pass_blocks(void *arg)
{
    exchange *x = arg;
    ls_pool *pool;
    if (ls_pool_open(x->pools, &pool) < 0) {
        x->failed = 1;
        return;
    }
    ls_pool_enter(pool);
    unsigned seed = (unsigned)(uintptr_t)pool;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 1664525 + 1013904223;
        ls_block *block = ls_block_get(pool, seed >> 30 == 0 ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
        if (block == NULL) continue; /* the cap is small on purpose */
        memcpy(block->data, &i, sizeof i);
        ls_slice slice = ls_slice_of(block, 0, sizeof i);
        block = atomic_exchange_explicit(&x->slots[seed / 65536 % SLOTS], block, memory_order_acq_rel);
        int seen;
        memcpy(&seen, slice.ptr, sizeof seen);
        if (seen != i) x->failed = 2; /* another thread has overwritten the block */
        ls_slice_drop(&slice);
        if (block != NULL) ls_block_drop(block);
    }
    ls_pool_close(pool);
}

TEST(threads_pass_blocks_to_each_other)
{
    static exchange x;
    ls_thread threads[WORKERS];
    ls_pools_stats stats;
    assert_int_equal(ls_pools_open(4 * 1024 * 1024, &x.pools), LS_OK);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(ls_thread_start(&threads[i], "pass", pass_blocks, &x), LS_OK);
    for (int i = 0; i < 100; i++) {
        ls_pools_stat(x.pools, &stats); /* at any time */
        assert_true(stats.bytes_peak <= stats.bytes_max);
    }
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(x.failed, 0);
    size_t left = 0;
    for (int i = 0; i < SLOTS; i++) left += x.slots[i] != NULL;
    ls_pools_stat(x.pools, &stats);
    assert_int_equal(stats.blocks_live, left);
    for (int i = 0; i < SLOTS; i++) {
        if (x.slots[i] != NULL) ls_block_drop(x.slots[i]);
    }
    ls_pools_stat(x.pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    assert_true(stats.bytes_peak <= stats.bytes_max);
    ls_pools_close(x.pools);
}
