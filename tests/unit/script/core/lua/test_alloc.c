/* test_alloc.c - blocks of every size keep their bytes, return to the free list of their size class, and are freed
 * with the allocator; chunks without blocks in use return to the system. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "script/core/lua/alloc.h"

enum { BLOCKS = 400 };

/* Blocks of all sizes are live at the same time, each filled to its last byte: none overlaps another, all are
 * aligned. */
TEST_IN(ls_alloc, alloc, blocks_do_not_overlap)
{
    static unsigned char *at[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_ALLOC_BYTES_MAX;
        assert_non_null(at[i] = ls_alloc_take(alloc, size));
        assert_int_equal((uintptr_t)at[i] % LS_ALLOC_STEP, 0);
        memset(at[i], (int)(i & 255), size);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_ALLOC_BYTES_MAX;
        for (size_t n = 0; n < size; n++) assert_int_equal(at[i][n], i & 255);
    }
}

/* The next allocation of the same size class returns the freed block; another class does not. */
TEST_IN(ls_alloc, alloc, a_block_returns_to_its_size)
{
    void *sixteen = ls_alloc_take(alloc, 16), *seventeen = ls_alloc_take(alloc, 17);
    ls_alloc_give(alloc, sixteen);
    assert_ptr_not_equal(ls_alloc_take(alloc, 17), sixteen);
    assert_ptr_equal(ls_alloc_take(alloc, 1), sixteen);
    ls_alloc_give(alloc, seventeen);
    assert_ptr_equal(ls_alloc_take(alloc, 32), seventeen);
}

enum { CHUNKS = 40, PER_CHUNK = (LS_ALLOC_CHUNK_BYTES - sizeof(ls_alloc_chunk)) / LS_ALLOC_BYTES_MAX };

static void *many[CHUNKS * PER_CHUNK];

static void take_many(ls_alloc *alloc)
{
    for (unsigned i = 0; i < CHUNKS * PER_CHUNK; i++)
        assert_non_null(many[i] = ls_alloc_take(alloc, LS_ALLOC_BYTES_MAX));
}

/* A chunk is used to its last block before the next one is allocated. */
TEST_IN(ls_alloc, alloc, chunks_are_used_up)
{
    take_many(alloc);
    assert_int_equal(alloc->chunks, CHUNKS);
    for (unsigned i = 0; i < CHUNKS * PER_CHUNK; i++) memset(many[i], 1, LS_ALLOC_BYTES_MAX);
    assert_non_null(ls_alloc_take(alloc, LS_ALLOC_BYTES_MAX));
    assert_int_equal(alloc->chunks, CHUNKS + 1);
}

/* After all blocks were freed, in any order, the open chunk and the spare ones remain. All classes use the spares. */
TEST_IN(ls_alloc, alloc, free_chunks_return_to_the_system)
{
    for (unsigned round = 0; round < 3; round++) {
        const unsigned steps[] = {1, 7, CHUNKS * PER_CHUNK - 1}, step = steps[round];
        take_many(alloc);
        assert_int_equal(alloc->chunks, CHUNKS);
        for (unsigned i = 0, at = 0; i < CHUNKS * PER_CHUNK; i++, at = (at + step) % (CHUNKS * PER_CHUNK))
            ls_alloc_give(alloc, many[at]);
        assert_int_equal(alloc->chunks, LS_ALLOC_SPARES_MAX + 1);
    }
    for (size_t size = 1; size <= LS_ALLOC_SPARES_MAX * LS_ALLOC_STEP; size += LS_ALLOC_STEP)
        assert_non_null(ls_alloc_take(alloc, size));
    assert_int_equal(alloc->chunks, LS_ALLOC_SPARES_MAX + 1);
    assert_non_null(ls_alloc_take(alloc, LS_ALLOC_BYTES_MAX - LS_ALLOC_STEP));
    assert_int_equal(alloc->chunks, LS_ALLOC_SPARES_MAX + 2);
}

/* One block in use keeps its chunk. The free blocks of such chunks are used before a new chunk is allocated. */
TEST_IN(ls_alloc, alloc, a_block_in_use_keeps_its_chunk)
{
    take_many(alloc);
    for (unsigned i = 0; i < CHUNKS * PER_CHUNK; i++) {
        if (i % PER_CHUNK == 5)
            memset(many[i], 42, LS_ALLOC_BYTES_MAX);
        else
            ls_alloc_give(alloc, many[i]);
    }
    assert_int_equal(alloc->chunks, CHUNKS);
    for (unsigned i = 0; i < CHUNKS * (PER_CHUNK - 1); i++) {
        unsigned char *block = ls_alloc_take(alloc, LS_ALLOC_BYTES_MAX);
        assert_non_null(block);
        memset(block, 1, LS_ALLOC_BYTES_MAX);
    }
    assert_int_equal(alloc->chunks, CHUNKS);
    for (unsigned i = 5; i < CHUNKS * PER_CHUNK; i += PER_CHUNK)
        for (unsigned n = 0; n < LS_ALLOC_BYTES_MAX; n++) assert_int_equal(((unsigned char *)many[i])[n], 42);
}
