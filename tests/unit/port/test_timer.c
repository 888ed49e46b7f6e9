/* test_timer.c - the heap of timers: order, moving, taking back, and the invariants after every step. */
/* sanitizers: asan; no thread starts */
#include "port/timer.h"

#include "support.h"

static void check_heap(const ls_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++) {
        assert_true(ls_heap_check(heap, i));
        assert_true(heap->at[i].timer->at_ns == heap->at[i].ns);
    }
}

TEST_IN(ls_heap, heap, an_empty_heap_has_no_deadline)
{
    ls_timer timer;
    memset(&timer, 0, sizeof timer);
    assert_true(ls_heap_next_ns(heap) == UINT64_MAX);
    assert_null(ls_heap_pop_due(heap, UINT64_MAX));
    assert_false(ls_heap_remove(heap, &timer));
}

TEST_IN(ls_heap, heap, a_timer_is_due_at_its_time_and_not_before)
{
    ls_timer timer;
    memset(&timer, 0, sizeof timer);
    assert_int_equal(ls_heap_set(heap, &timer, 100), LS_OK);
    timer.slot++;
    assert_false(ls_heap_check(heap, 0));
    timer.slot--;
    assert_null(ls_heap_pop_due(heap, 99));
    assert_ptr_equal(ls_heap_pop_due(heap, 100), &timer);
    assert_int_equal(timer.slot, 0);
    assert_null(ls_heap_pop_due(heap, 100));
}

TEST_IN(ls_heap, heap, timers_come_in_the_order_of_their_deadlines)
{
    enum { N = 1000 };
    static ls_timer timers[N];
    memset(timers, 0, sizeof timers);
    srand(1);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ls_heap_set(heap, &timers[i], (uint64_t)(rand() % 500)), LS_OK);
        check_heap(heap);
    }
    uint64_t before = 0;
    for (int i = 0; i < N; i++) {
        const uint64_t next = ls_heap_next_ns(heap);
        ls_timer *timer = ls_heap_pop_due(heap, UINT64_MAX);
        assert_non_null(timer);
        assert_true(timer->at_ns == next && next >= before);
        before = next;
        check_heap(heap);
    }
    assert_int_equal(heap->count, 0);
}

/* Against a model that has no structure at all: a plain array that is searched. */
TEST(random_set_move_remove_and_pop_agree_with_a_plain_array)
{
    enum { N = 64, STEPS = 20000 };
    static ls_timer timers[N];
    static uint64_t model[N]; /* 0: not armed */
    ls_heap heap;
    memset(timers, 0, sizeof timers);
    memset(model, 0, sizeof model);
    ls_heap_open(&heap);
    srand(2);
    for (int step = 0; step < STEPS; step++) {
        const int i = rand() % N;
        uint64_t least = UINT64_MAX;
        switch (rand() % 4) {
        case 0:
        case 1:
            model[i] = 1 + (uint64_t)(rand() % 1000);
            assert_int_equal(ls_heap_set(&heap, &timers[i], model[i]), LS_OK);
            break;
        case 2:
            assert_int_equal(ls_heap_remove(&heap, &timers[i]), model[i] != 0);
            model[i] = 0;
            break;
        default: {
            const uint64_t now = (uint64_t)(rand() % 300);
            ls_timer *timer = ls_heap_pop_due(&heap, now);
            for (int j = 0; j < N; j++)
                if (model[j] != 0 && model[j] < least) least = model[j];
            if (least <= now) {
                assert_non_null(timer);
                assert_true(model[timer - timers] == least);
                model[timer - timers] = 0;
            } else {
                assert_null(timer);
            }
        }
        }
        least = UINT64_MAX;
        for (int j = 0; j < N; j++) {
            assert_int_equal(timers[j].slot != 0, model[j] != 0);
            if (model[j] != 0 && model[j] < least) least = model[j];
        }
        assert_true(ls_heap_next_ns(&heap) == least);
        check_heap(&heap);
    }
    ls_heap_close(&heap);
    for (int j = 0; j < N; j++) assert_int_equal(timers[j].slot, 0);
}
