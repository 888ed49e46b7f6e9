/* test_small.c - blocks of every size keep their bytes, come back to their own list, and end with the lists. */
#include "support.h"

#include <stdint.h>
#include <string.h>

#include "script/small.h"

enum { BLOCKS = 400 };

/* Blocks of all sizes at a time, each filled to its last byte: none overlaps another, all are aligned. */
static void blocks_do_not_overlap(void **state)
{
    static unsigned char *at[BLOCKS];
    ls_small small;
    (void)state;
    ls_small_open(&small);
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_SMALL_BYTES_MAX;
        assert_non_null(at[i] = ls_small_take(&small, size));
        assert_int_equal((uintptr_t)at[i] % LS_SMALL_STEP, 0);
        memset(at[i], (int)(i & 255), size);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        const size_t size = 1 + (i * 37) % LS_SMALL_BYTES_MAX;
        for (size_t n = 0; n < size; n++) assert_int_equal(at[i][n], i & 255);
    }
    ls_small_close(&small);
}

/* What was given back is what the next of its size class gets; another class does not. */
static void a_block_returns_to_its_size(void **state)
{
    ls_small small;
    (void)state;
    ls_small_open(&small);
    void *sixteen = ls_small_take(&small, 16), *seventeen = ls_small_take(&small, 17);
    ls_small_give(&small, sixteen, 16);
    assert_ptr_not_equal(ls_small_take(&small, 17), sixteen);
    assert_ptr_equal(ls_small_take(&small, 1), sixteen);
    ls_small_give(&small, seventeen, 17);
    assert_ptr_equal(ls_small_take(&small, 32), seventeen);
    ls_small_close(&small);
}

/* The largest blocks fill several chunks, and what is left at the end of one is not lost. */
static void chunks_are_used_up(void **state)
{
    ls_small small;
    unsigned chunks = 0;
    (void)state;
    ls_small_open(&small);
    for (unsigned i = 0; i < 3 * LS_SMALL_CHUNK_BYTES / LS_SMALL_BYTES_MAX; i++)
        assert_non_null(ls_small_take(&small, LS_SMALL_BYTES_MAX));
    for (const ls_small_block *chunk = small.chunks; chunk != NULL; chunk = chunk->next) chunks++;
    assert_int_equal(chunks, 4);
    assert_non_null(small.free[LS_SMALL_BYTES_MAX / LS_SMALL_STEP - 2]); /* a chunk less its link, modulo the block */
    ls_small_close(&small);
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
