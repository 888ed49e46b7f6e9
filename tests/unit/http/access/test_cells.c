/* test_cells.c - cells: blocks stay together, the value is the sum of the slots, and many threads add at a time. */
#include "support.h"

#include "base/os/thread.h"
#include "http/access/cells.h"

TEST(a_block_is_in_one_piece)
{
    ls_cells *cells;
    double values[LS_CELLS_BLOCK_MAX];
    assert_int_equal(ls_cells_open(&cells), LS_OK);
    uint32_t end = 1;
    for (uint32_t count = 1; count <= LS_CELLS_BLOCK_MAX; count += 93) {
        const uint32_t first = ls_cells_give(cells, count);
        assert_true(first >= end);
        end = first + count;
        assert_int_equal(ls_cells_given(cells), end);
        ls_cell *last = ls_cells_of(cells, 5, first);
        assert_non_null(last);
        assert_ptr_equal(ls_cells_of(cells, 5, end - 1), last + count - 1);
        ls_cell_add(last + count - 1, 1.5);
        ls_cell_set(ls_cells_of(cells, 0, first), 2);
        ls_cells_read(cells, first, count, values);
        assert_true(values[count - 1] == (count == 1 ? 3.5 : 1.5));
        assert_true(count == 1 || values[0] == 2);
    }
    ls_cells_close(cells);
}

TEST(further_blocks_are_refused)
{
    ls_cells *cells;
    unsigned blocks = 0;
    assert_int_equal(ls_cells_open(&cells), LS_OK);
    while (ls_cells_give(cells, LS_CELLS_BLOCK_MAX) != 0) blocks++;
    assert_in_range(blocks, 1700, 4000); /* enough for the requests of 16,384 routes */
    ls_cells_close(cells);
}

enum { THREADS = 4, ROUNDS = 10000 };
typedef struct adder {
    ls_thread thread;
    ls_cells *cells;
    uint32_t first;
    unsigned slot;
} adder;

static void add_many(void *arg)
{
    const adder *a = arg;
    for (int n = 0; n < ROUNDS; n++) {
        ls_cell_add(ls_cells_of(a->cells, a->slot, a->first), 1);
        ls_cell_add_shared(ls_cells_of(a->cells, 0, a->first + 1), 1);
    }
}

TEST(threads_add_at_a_time)
{
    adder adders[THREADS];
    ls_cells *cells;
    double values[2];
    assert_int_equal(ls_cells_open(&cells), LS_OK);
    const uint32_t first = ls_cells_give(cells, 2);
    for (unsigned n = 0; n < THREADS; n++) {
        adders[n] = (adder){.cells = cells, .first = first, .slot = n + 1};
        assert_int_equal(ls_thread_start(&adders[n].thread, "adder", add_many, &adders[n]), LS_OK);
    }
    for (unsigned n = 0; n < THREADS; n++) ls_thread_join(&adders[n].thread);
    ls_cells_read(cells, first, 2, values);
    assert_true(values[0] == THREADS * ROUNDS && values[1] == THREADS * ROUNDS);
    ls_cells_close(cells);
}
