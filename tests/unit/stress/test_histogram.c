/* test_histogram.c - comparison with sorted values, the limits and one value beyond, and reads during writes. */
#include "support.h"

#include <math.h>
#include <stdatomic.h>

#include "base/os/thread.h"
#include "stress/measure/histogram.h"

static ls_histogram *opened(void)
{
    ls_histogram *h = ls_histogram_open();
    assert_non_null(h);
    return h;
}

static uint64_t random_state = 42;

static uint64_t next_random(void) /* xorshift64 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Three significant digits: at least the value, and at most 0.1 % more. */
static void assert_three_digits(uint64_t got, uint64_t exact)
{
    assert_true(got >= exact);
    assert_true((double)(got - exact) <= (double)exact / 1000);
}

TEST(empty_is_zero)
{
    ls_histogram *h = opened();
    size_t slot = 0;
    uint64_t ns = 7;
    assert_true(ls_histogram_count(h) == 0);
    assert_true(ls_histogram_min(h) == 0);
    assert_true(ls_histogram_max(h) == 0);
    assert_true(ls_histogram_percentile(h, 50) == 0);
    assert_true(ls_histogram_mean(h) == 0);
    assert_true(ls_histogram_stdev(h) == 0);
    assert_true(ls_histogram_within(h, 1) == 0);
    assert_true(ls_histogram_below(h, 1) == 100);
    assert_true(ls_histogram_next(h, &slot, &ns) == 0);
    assert_true(ns == 7);
    ls_histogram_close(h);
    ls_histogram_close(NULL);
}

/* Slots have no gaps and no overlaps: the greatest value of a slot is one less than the least of the next. The test
 * records both sides of every border. */
TEST(slots_have_no_gaps)
{
    assert_int_equal(ls_histogram_slot(0), 0);
    assert_int_equal(ls_histogram_slot(2047), 2047);
    assert_int_equal(ls_histogram_slot(LS_HISTOGRAM_NS_MAX), LS_HISTOGRAM_SLOTS - 1);
    size_t last = 0;
    for (unsigned bit = 11; bit <= 41; bit++) {
        uint64_t step = UINT64_C(1) << (bit - 10), from = UINT64_C(1) << bit;
        for (uint64_t v = from; v < 2 * from && v <= LS_HISTOGRAM_NS_MAX; v += step) {
            size_t slot = ls_histogram_slot(v);
            if (last != 0) assert_int_equal(slot, last + 1);
            assert_int_equal(ls_histogram_slot(v - 1), slot - 1);
            last = slot;
        }
    }
    assert_int_equal(last, LS_HISTOGRAM_SLOTS - 1);
}

TEST_WITH(ls_histogram, h, every_magnitude_has_three_digits, opened())
{
    for (uint64_t v = 1; v <= LS_HISTOGRAM_NS_MAX; v += v / 777 + 1) {
        ls_histogram_clear(h);
        ls_histogram_record(h, v);
        ls_histogram_record(h, LS_HISTOGRAM_NS_MAX); /* so that the maximum does not limit the result */
        assert_three_digits(ls_histogram_percentile(h, 50), v);
        if (v > 100000) v += v / 50; /* nearly all small values, then samples */
    }
}

TEST_WITH(ls_histogram, h, percentiles_of_sorted_values, opened())
{
    enum { N = 100000 };
    static const double percents[] = {0.001, 1, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999};
    enum { P = sizeof percents / sizeof percents[0] };
    uint64_t *values = malloc(N * sizeof *values);
    assert_non_null(values);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++) {
        values[i] = 1000 + next_random() % (UINT64_C(1) << (10 + next_random() % 24)); /* 1 us to 17 s */
        ls_histogram_record(h, values[i]);
        sum += (double)values[i];
    }
    double mean = sum / N;
    for (size_t i = 0; i < N; i++) squares += ((double)values[i] - mean) * ((double)values[i] - mean);
    double stdev = sqrt(squares / N);
    qsort(values, N, sizeof *values, by_value);

    for (size_t i = 0; i < P; i++) {
        size_t rank = (size_t)ceil(percents[i] / 100 * N - 1e-6); /* nearest rank, from 1 */
        assert_three_digits(ls_histogram_percentile(h, percents[i]), values[rank - 1]);
    }
    assert_true(ls_histogram_percentile(h, 0) == values[0]);
    assert_true(ls_histogram_percentile(h, 100) == values[N - 1]);
    assert_true(ls_histogram_min(h) == values[0]);
    assert_true(ls_histogram_max(h) == values[N - 1]);
    assert_true(ls_histogram_count(h) == N);
    assert_true(fabs(ls_histogram_mean(h) - mean) < mean / 2000);
    assert_true(fabs(ls_histogram_stdev(h) - stdev) < stdev / 1000);

    size_t within = 0, below = 0;
    for (size_t i = 0; i < N; i++) {
        within += fabs((double)values[i] - mean) <= stdev;
        below += values[i] <= 1000000;
    }
    assert_true(fabs(ls_histogram_within(h, 1) - 100.0 * (double)within / N) < 0.1);
    assert_true(fabs(ls_histogram_below(h, 1000000) - 100.0 * (double)below / N) < 0.1);

    size_t slot = 0;
    uint64_t ns, before = 0, seen = 0, count;
    while ((count = ls_histogram_next(h, &slot, &ns)) != 0) {
        assert_true(ns > before);
        before = ns;
        seen += count;
    }
    assert_true(seen == N);
    assert_true(before == values[N - 1]);
    free(values);
}

/* The 99.9th percentile of a thousand values is the 999th, not the greatest: rounding must not increase the rank. */
TEST_WITH(ls_histogram, h, rank_is_not_rounded_up, opened())
{
    for (uint64_t i = 1; i <= 1000; i++) ls_histogram_record(h, i);
    assert_true(ls_histogram_percentile(h, 99.9) == 999);
    assert_true(ls_histogram_percentile(h, 99.91) == 1000);
    assert_true(ls_histogram_percentile(h, 50) == 500);
    assert_true(ls_histogram_percentile(h, 0.01) == 1);
}

TEST_WITH(ls_histogram, h, at_the_limit_and_one_past, opened())
{
    ls_histogram_record(h, LS_HISTOGRAM_NS_MAX);
    assert_true(atomic_load(&h->clipped) == 0);
    assert_true(ls_histogram_max(h) == LS_HISTOGRAM_NS_MAX);
    ls_histogram_record(h, LS_HISTOGRAM_NS_MAX + 1);
    ls_histogram_record(h, UINT64_MAX);
    assert_true(atomic_load(&h->clipped) == 2);
    assert_true(ls_histogram_count(h) == 3);
    assert_true(ls_histogram_max(h) == LS_HISTOGRAM_NS_MAX);
    assert_true(ls_histogram_percentile(h, 50) == LS_HISTOGRAM_NS_MAX);
    ls_histogram_record(h, 0);
    assert_true(ls_histogram_min(h) == 0);
    assert_true(ls_histogram_percentile(h, 25) == 0);
    ls_histogram_clear(h);
    assert_true(ls_histogram_count(h) == 0);
    assert_true(atomic_load(&h->clipped) == 0);
    ls_histogram_record(h, 5);
    assert_true(ls_histogram_min(h) == 5 && ls_histogram_max(h) == 5);
}

TEST_WITH(ls_histogram, h, equal_values_do_not_deviate, opened())
{
    for (int i = 0; i < 1000; i++) ls_histogram_record(h, 1234567);
    assert_true(ls_histogram_stdev(h) == 0);
    assert_true(ls_histogram_within(h, 1) == 100);
    assert_true(ls_histogram_percentile(h, 50) == 1234567); /* the maximum is exact */
}

TEST(merged_is_as_if_recorded_in_one)
{
    ls_histogram *one = opened(), *a = opened(), *b = opened(), *sum = opened();
    for (int i = 0; i < 10000; i++) {
        uint64_t v = next_random() % 100000000;
        ls_histogram_record(one, v);
        ls_histogram_record(i % 3 == 0 ? a : b, v);
    }
    ls_histogram_record(one, UINT64_MAX);
    ls_histogram_record(b, UINT64_MAX);
    ls_histogram_add(sum, a);
    ls_histogram_add(sum, b);
    assert_memory_equal(sum, one, sizeof *sum);
    ls_histogram_close(one);
    ls_histogram_close(a);
    ls_histogram_close(b);
    ls_histogram_close(sum);
}

TEST(between_two_moments)
{
    ls_histogram *h = opened(), *before = opened(), *between = opened();
    ls_histogram_record(h, 1000);
    ls_histogram_record(h, 9000000);
    ls_histogram_add(before, h);
    ls_histogram_record(h, 5000);
    ls_histogram_record(h, 7000);
    ls_histogram_between(between, h, before);
    assert_true(ls_histogram_count(between) == 2);
    assert_three_digits(ls_histogram_percentile(between, 50), 5000);
    assert_three_digits(ls_histogram_max(between), 7000);
    ls_histogram_between(between, h, h);
    assert_true(ls_histogram_count(between) == 0);
    assert_true(ls_histogram_min(between) == 0 && ls_histogram_max(between) == 0);
    ls_histogram_close(h);
    ls_histogram_close(before);
    ls_histogram_close(between);
}

/* ---- one writer, one reader: for ThreadSanitizer ---------------------------------------------------------------- */

enum { RECORDED = 100000 };

typedef struct pair {
    ls_histogram *h;
    _Atomic int done;
} pair;

static void record_many(void *arg)
{
    pair *p = arg;
    for (uint64_t i = 0; i < RECORDED; i++) ls_histogram_record(p->h, i % 5000 * 100);
    atomic_store(&p->done, 1);
}

TEST(read_while_written)
{
    pair p = {.h = opened()};
    ls_histogram *copy = opened();
    ls_thread thread;
    assert_int_equal(ls_thread_start(&thread, "record", record_many, &p), LS_OK);
    uint64_t before = 0;
    bool ended;
    do {
        ended = atomic_load(&p.done);
        ls_histogram_clear(copy);
        ls_histogram_add(copy, p.h);
        uint64_t n = ls_histogram_count(copy);
        assert_true(n >= before && n <= RECORDED); /* counts only grow, and no value is counted twice */
        assert_true(ls_histogram_percentile(copy, 99) <= 500000);
        before = n;
    } while (!ended);
    ls_thread_join(&thread);
    assert_true(ls_histogram_count(p.h) == RECORDED);
    ls_histogram_close(copy);
    ls_histogram_close(p.h);
}
