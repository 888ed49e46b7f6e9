/* test_h2_exchange.c - the queue of slices. */
/* sanitizers: asan; no thread starts */
#include "h2_fixture.h"

static void add(h2 *h, ls_h2_queue *q, ls_block *block, size_t from, size_t len)
{
    assert_int_equal(ls_h2_queue_add(q, ls_slice_of(block, from, len)), LS_OK);
}

TEST_WITH(h2, h, slices_in_their_order, h2_connected())
{
    ls_h2_queue q = {0};
    ls_block *block = ls_block_get(h->r->place.ctx.pool, LS_BLOCK_SMALL);
    assert_null(ls_h2_queue_first(&q));
    for (int round = 0; round < 3; round++) {
        add(h, &q, block, 0, 10);
        add(h, &q, block, 10, 5); /* joins its neighbour */
        add(h, &q, block, 20, 7);
        assert_int_equal(q.list.count, 2);
        assert_int_equal(q.bytes, 22);
        static const size_t max[] = {4, 11, SIZE_MAX}, at[] = {0, 4, 20}, len[] = {4, 11, 7};
        for (int i = 0; i < 3; i++) {
            ls_slice taken = ls_h2_queue_take(&q, max[i]);
            assert_ptr_equal(taken.ptr, block->data + at[i]);
            assert_int_equal(taken.len, len[i]);
            ls_slice_drop(&taken);
            if (i == 1) add(h, &q, block, 27, 0); /* joins one that is left */
        }
        assert_null(ls_h2_queue_first(&q));
        assert_int_equal(q.bytes, 0);
        for (size_t i = 0; i < 40; i++) add(h, &q, block, 2 * i, 1); /* grows */
        ls_h2_queue_clear(&q);
        assert_int_equal(q.bytes, 0);
        assert_null(ls_h2_queue_first(&q));
    }
    ls_block_drop(block);
}
