/* test_slots.c - slots never move, keep all but their first four bytes across lives, and end at the limit. */
#include "support.h"

#include "base/os/thread.h"
#include "port/slots.h"

TEST(every_number_once_up_to_the_limit)
{
    enum { MAX = LS_SLOTS_PER_CHUNK + 3 };
    static bool seen[MAX];
    ls_slots *slots;
    uint32_t number = 0;
    void *slot = NULL;
    assert_int_equal(ls_slots_open(MAX, 24, &slots), LS_OK);
    for (int i = 0; i < MAX; i++) {
        assert_int_equal(ls_slots_count(slots), i);
        assert_int_equal(ls_slots_take(slots, &number, &slot), LS_OK);
        assert_in_range(number, 0, MAX - 1);
        assert_false(seen[number]);
        seen[number] = true;
        assert_ptr_equal(ls_slots_at(slots, number), slot);
        for (int k = 0; k < 24; k++) assert_int_equal(((char *)slot)[k], 0);
    }
    void *const last = slot;
    const uint32_t last_number = number;
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_ELIMIT); /* one past it */
    assert_ptr_equal(slot, last);
    assert_int_equal(number, last_number);
    assert_int_equal(ls_slots_count(slots), MAX);

    ls_slots_give(slots, 7);
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_OK);
    assert_int_equal(number, 7);
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_ELIMIT);
    ls_slots_close(slots);
}

TEST(bytes_stay_across_lives)
{
    ls_slots *slots;
    uint32_t number;
    void *slot, *again;
    assert_int_equal(ls_slots_open(4, 8, &slots), LS_OK);
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_OK);
    memcpy(slot, "0123abc", 8);
    ls_slots_give(slots, number);
    assert_ptr_equal(ls_slots_at(slots, number), slot); /* readable by late events */
    assert_string_equal((char *)slot + 4, "abc");
    assert_int_equal(ls_slots_take(slots, &number, &again), LS_OK);
    assert_ptr_equal(again, slot);
    assert_string_equal((char *)again + 4, "abc");
    ls_slots_close(slots);
}

TEST(numbers_that_were_never_taken_have_no_slot)
{
    ls_slots *slots;
    uint32_t number;
    void *slot;
    assert_int_equal(ls_slots_open(2 * LS_SLOTS_PER_CHUNK, 8, &slots), LS_OK);
    assert_null(ls_slots_at(slots, 0));
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_OK);
    assert_null(ls_slots_at(slots, LS_SLOTS_PER_CHUNK));     /* a chunk that was not made yet */
    assert_null(ls_slots_at(slots, 2 * LS_SLOTS_PER_CHUNK)); /* past the last */
    assert_null(ls_slots_at(slots, UINT32_MAX));
    ls_slots_close(slots);

    assert_int_equal(ls_slots_open(0, 8, &slots), LS_OK); /* room for none */
    assert_int_equal(ls_slots_take(slots, &number, &slot), LS_ELIMIT);
    ls_slots_close(slots);
}

enum { THREADS = 4, ROUNDS = 2000, HELD = 32 };

/* Whoever has a slot has it alone: a counter in it that is not atomic. */
static void take_and_give(void *arg)
{
    ls_slots *slots = arg;
    uint32_t numbers[HELD];
    for (int round = 0; round < ROUNDS; round++) {
        const int n = 1 + round % HELD;
        for (int i = 0; i < n; i++) {
            void *slot;
            assert_int_equal(ls_slots_take(slots, &numbers[i], &slot), LS_OK);
            ++((int *)slot)[1];
        }
        for (int i = 0; i < n; i++) {
            --((int *)ls_slots_at(slots, numbers[i]))[1];
            ls_slots_give(slots, numbers[i]);
        }
    }
}

TEST(many_threads)
{
    ls_thread threads[THREADS];
    ls_slots *slots;
    assert_int_equal(ls_slots_open(THREADS * HELD, 2 * sizeof(int), &slots), LS_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(ls_thread_start(&threads[i], "slots", take_and_give, slots), LS_OK);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(ls_slots_count(slots), 0);
    for (uint32_t i = 0; i < THREADS * HELD; i++)
        if (ls_slots_at(slots, i) != NULL) assert_int_equal(((int *)ls_slots_at(slots, i))[1], 0);
    ls_slots_close(slots);
}
