/* test_latency.c - the histograms of routes: the limits of the buckets, and the sum over threads. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "http/latency.h"

static void end(ls_latency *latency, unsigned thread, const ls_route *route, uint64_t ns, int status)
{
    ls_thread_ctx ctx = {.index = thread};
    const ls_record record = {.route = route, .began_ns = 1000, .ended_ns = 1000 + ns, .status = status};
    ls_record_sink *sink = ls_latency_sink(latency);
    sink->ended(sink, &ctx, &record);
}

TEST(a_time_at_the_limit_is_in_the_bucket_and_one_past_it_in_the_next)
{
    ls_latency *latency;
    ls_latency_cell sum = {0};
    uint64_t before = 0, total_ns = 0;
    assert_int_equal(ls_latency_open(&latency), LS_OK);
    for (unsigned n = 0; n < LS_LATENCY_BUCKETS; n++) {
        const uint64_t limit = ls_latency_limit_ns(n);
        assert_true(limit > before);
        before = limit;
        end(latency, 0, NULL, limit, 200);
        end(latency, 0, NULL, limit + 1, 200);
        total_ns += 2 * limit + 1;
    }
    assert_true(ls_latency_add(latency, 0, &sum));
    for (unsigned n = 0; n <= LS_LATENCY_BUCKETS; n++)
        assert_int_equal(ls_counter_read(&sum.buckets[n]), n == 0 || n == LS_LATENCY_BUCKETS ? 1 : 2);
    assert_int_equal(ls_counter_read(&sum.sum_ns), total_ns);
    ls_latency_close(latency);
}

TEST(threads_and_routes)
{
    ls_latency *latency;
    ls_latency_cell sum = {0}, none = {0};
    ls_route first = {.number = 1}, last = {.number = LS_ROUTES_MAX};
    assert_int_equal(ls_latency_open(&latency), LS_OK);
    end(latency, 0, &first, 1, 204);
    end(latency, 1023, &first, 1, 503);
    end(latency, 1024, &first, 1, 503); /* no such thread */
    end(latency, 3, &last, 1, 99);      /* no class */
    assert_true(ls_latency_add(latency, 1, &sum));
    assert_int_equal(ls_counter_read(&sum.buckets[0]), 2);
    assert_int_equal(ls_counter_read(&sum.statuses[0][1]), 1);
    assert_int_equal(ls_counter_read(&sum.statuses[0][4]), 1);
    assert_false(ls_latency_add(latency, 0, &none));
    assert_false(ls_latency_add(latency, 2, &none));
    assert_true(ls_latency_add(latency, LS_ROUTES_MAX, &none));
    assert_int_equal(ls_counter_read(&none.buckets[0]), 1);
    ls_latency_close(latency);
}
