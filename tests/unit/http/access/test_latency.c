/* test_latency.c - the histograms of routes: the limits of the buckets, and the sum over threads. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "http/access/latency.h"

typedef struct counts {
    ls_cells *cells;
    ls_latency latency;
    double values[LS_LATENCY_CELLS];
} counts;

static void counts_open(counts *c)
{
    assert_int_equal(ls_cells_open(&c->cells), LS_OK);
    c->latency = (ls_latency){.cells = c->cells};
}

static void counts_close(const counts *c)
{
    ls_cells_close(c->cells);
}

static void end(counts *c, unsigned thread, const ls_route *route, uint64_t ns, int status)
{
    ls_thread_ctx ctx = {.index = thread};
    const ls_record record = {.route = route, .began_ns = 1000, .ended_ns = 1000 + ns, .status = status};
    ls_latency_ended(&c->latency.sink, &ctx, &record);
}

static bool read_route(counts *c, unsigned route)
{
    const uint32_t first = c->latency.routes[route];
    if (first > 0) ls_cells_read(c->cells, first, LS_LATENCY_CELLS, c->values);
    return first > 0;
}

TEST(a_time_at_the_limit_is_in_the_bucket_and_one_past_it_in_the_next)
{
    counts c;
    uint64_t total_ns = 0;
    counts_open(&c);
    for (unsigned n = 0; n < LS_LATENCY_BUCKETS - 1; n++) {
        const uint64_t limit = (n % 2 == 0 ? UINT64_C(50000) : UINT64_C(70710)) << n / 2;
        end(&c, 0, NULL, limit, 200);
        end(&c, 0, NULL, limit + 1, 200);
        total_ns += 2 * limit + 1;
    }
    assert_true(read_route(&c, 0));
    for (unsigned n = 0; n < LS_LATENCY_BUCKETS; n++)
        assert_true(c.values[n] == (n == 0 || n == LS_LATENCY_BUCKETS - 1 ? 1 : 2));
    assert_in_range((uint64_t)c.values[LS_LATENCY_US], total_ns / 1000 - 1, total_ns / 1000 + 1);
    counts_close(&c);
}

TEST(threads_and_routes)
{
    counts c;
    const ls_route first = {.number = 1}, last = {.number = LS_ROUTES_MAX};
    counts_open(&c);
    end(&c, 0, &first, 1, 204);
    end(&c, LS_CELLS_SLOTS - 2, &first, 1, 503);
    end(&c, LS_CELLS_SLOTS - 1, &first, 1, 503); /* no such thread */
    end(&c, 3, &last, 1, 99);                    /* no class */
    assert_true(read_route(&c, 1));
    assert_true(c.values[0] == 2 && c.values[LS_LATENCY_ENDS + LS_RECORD_COMPLETE] == 2);
    assert_true(c.values[LS_LATENCY_STATUSES + 1 * LS_HTTP_METHODS + LS_HTTP_OTHER] == 1);
    assert_true(c.values[LS_LATENCY_STATUSES + 4 * LS_HTTP_METHODS + LS_HTTP_OTHER] == 1);
    assert_false(read_route(&c, 0));
    assert_false(read_route(&c, 2));
    assert_true(read_route(&c, LS_ROUTES_MAX));
    assert_true(c.values[0] == 1 && c.values[LS_LATENCY_STATUSES + LS_HTTP_OTHER] == 1);
    counts_close(&c);
}
