/* test_alloc.c - blocks of every size keep their bytes, return to the free list of their size class, and are freed
 * with the allocator. */
#include "support.h"

#include <stdint.h>
#include <string.h>

#include "script/alloc.h"

enum { BLOCKS = 400 };

/* Blocks of all sizes are live at the same time, each filled to its last byte: none overlaps another, all are
 * aligned. */
static void blocks_do_not_overlap(void **state)
{
    static unsigned char *at[BLOCKS];
    ls_alloc alloc;
    (void)state;
    ls_alloc_open(&alloc);
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_ALLOC_BYTES_MAX;
        assert_non_null(at[i] = ls_alloc_take(&alloc, size));
        assert_int_equal((uintptr_t)at[i] % LS_ALLOC_STEP, 0);
        memset(at[i], (int)(i & 255), size);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_ALLOC_BYTES_MAX;
        for (size_t n = 0; n < size; n++) assert_int_equal(at[i][n], i & 255);
    }
    ls_alloc_close(&alloc);
}

/* The next allocation of the same size class returns the freed block; another class does not. */
static void a_block_returns_to_its_size(void **state)
{
    ls_alloc alloc;
    (void)state;
    ls_alloc_open(&alloc);
    void *sixteen = ls_alloc_take(&alloc, 16), *seventeen = ls_alloc_take(&alloc, 17);
    ls_alloc_give(&alloc, sixteen, 16);
    assert_ptr_not_equal(ls_alloc_take(&alloc, 17), sixteen);
    assert_ptr_equal(ls_alloc_take(&alloc, 1), sixteen);
    ls_alloc_give(&alloc, seventeen, 17);
    assert_ptr_equal(ls_alloc_take(&alloc, 32), seventeen);
    ls_alloc_close(&alloc);
}

/* The largest blocks fill several chunks; the rest at the end of a chunk becomes a free block. */
static void chunks_are_used_up(void **state)
{
    ls_alloc alloc;
    unsigned chunks = 0;
    (void)state;
    ls_alloc_open(&alloc);
    for (unsigned i = 0; i < 3 * LS_ALLOC_CHUNK_BYTES / LS_ALLOC_BYTES_MAX; i++)
        assert_non_null(ls_alloc_take(&alloc, LS_ALLOC_BYTES_MAX));
    for (const ls_alloc_block *chunk = alloc.chunks; chunk != NULL; chunk = chunk->next) chunks++;
    assert_int_equal(chunks, 4);
    assert_non_null(alloc.free[LS_ALLOC_BYTES_MAX / LS_ALLOC_STEP - 2]); /* a chunk less its link, modulo the block */
    ls_alloc_close(&alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_do_not_overlap),
        cmocka_unit_test(a_block_returns_to_its_size),
        cmocka_unit_test(chunks_are_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
