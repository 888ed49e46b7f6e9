/* test_stream_pool.c - idle streams: taken by origin, the limits, the ends that a peer or time brings. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

#include <stdio.h>

#include "net/stream_pool.h"

enum { STREAMS_MAX = LS_STREAM_POOL_MAX + 1 };

static struct {
    wire w; /* the port and its deadlines; it has no stream of its own */
    ls_stream_pool *pool;
    int theirs[STREAMS_MAX];
    unsigned made;
} at;

static void open_pool(void)
{
    wire_place_open(&at.w);
    at.made = 0;
    assert_int_equal(ls_stream_pool_open(at.w.place.port, &at.pool), LS_OK);
}

static void close_pool(void)
{
    ls_stream_pool_drain(&at.w.place.ctx, at.pool);
    assert_int_equal(ls_stream_pool_count(at.pool), 0);
    for (unsigned n = 0; n < at.made; n++)
        if (at.theirs[n] >= 0) close(at.theirs[n]);
    wire_place_close(&at.w);
    ls_stream_pool_close(at.pool);
}

/* A new stream; its other end is at.theirs[its number]. */
static ls_stream *make(void)
{
    ls_stream *s;
    int ours;
    net_pair(&ours, &at.theirs[at.made++]);
    assert_int_equal(ls_stream_open(at.w.place.port, at.w.deadlines, ours, false, NULL, &wire_handler, 8, &s), LS_OK);
    return s;
}

static void put(const char *key, ls_stream *s)
{
    ls_stream_pool_put(&at.w.place.ctx, at.pool, key, strlen(key), s);
}

static ls_stream *take(const char *key)
{
    return ls_stream_pool_take(&at.w.place.ctx, at.pool, key, strlen(key));
}

/* The pool has closed our end: the other one reads the end of the stream. */
static bool is_closed(unsigned number)
{
    char byte;
    const ssize_t n = recv(at.theirs[number], &byte, 1, MSG_DONTWAIT); /* with bytes unread it is reset */
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void a_stream_is_taken_by_its_origin_the_youngest_first(void **state)
{
    (void)state;
    open_pool();
    ls_stream *a = make(), *b = make(), *other = make();
    put("http://a", a);
    put("http://b", other);
    put("http://a", b);
    assert_int_equal(ls_stream_pool_count(at.pool), 3);
    assert_null(take("http://"));
    assert_null(take("http://a "));
    assert_ptr_equal(take("http://a"), b);
    assert_ptr_equal(take("http://a"), a);
    assert_null(take("http://a"));
    assert_ptr_equal(take("http://b"), other);
    assert_int_equal(ls_stream_pool_count(at.pool), 0);
    put("", a);
    assert_ptr_equal(take(""), a);
    put("http://a", a);
    put("http://a", b);
    put("http://a", other);
    close_pool();
}

static void a_taken_stream_works(void **state)
{
    wire *const w = &at.w;
    (void)state;
    open_pool();
    put("k", make());
    w->s = take("k");
    assert_null(ls_stream_actor(w->s));
    memcpy(ls_stream_user(w->s), &w, sizeof w);
    ls_stream_handover(w->s, &wire_handler);
    net_write(at.theirs[0], "data", 4);
    assert_int_equal(wire_recv(w, NULL, LS_BLOCK_SMALL), 4);
    wire_expect_taken(w, "data");
    wire_stream_close(w);
    wire_await(w, &w->closed, 1);
    close_pool();
}

static void a_stream_that_ended_or_has_bytes_is_not_taken(void **state)
{
    (void)state;
    open_pool();
    ls_stream *idle = make();
    put("k", idle);
    put("k", make());
    put("k", make());
    put("k", make());
    close(at.theirs[1]); /* FIN */
    at.theirs[1] = -1;
    net_write(at.theirs[2], "x", 1); /* a response that nobody asked for */
    assert_int_equal(shutdown(at.theirs[3], SHUT_WR), 0);
    assert_ptr_equal(take("k"), idle);
    assert_true(is_closed(2) && is_closed(3));
    assert_int_equal(ls_stream_pool_count(at.pool), 0);
    put("k", idle);
    close_pool();
}

static void one_more_than_the_limit_of_an_origin_is_closed(void **state)
{
    (void)state;
    open_pool();
    for (unsigned n = 0; n < LS_STREAM_POOL_ORIGIN_MAX; n++) put("k", make());
    assert_int_equal(ls_stream_pool_count(at.pool), LS_STREAM_POOL_ORIGIN_MAX);
    put("k", make());
    assert_int_equal(ls_stream_pool_count(at.pool), LS_STREAM_POOL_ORIGIN_MAX);
    assert_true(is_closed(LS_STREAM_POOL_ORIGIN_MAX));
    assert_false(is_closed(LS_STREAM_POOL_ORIGIN_MAX - 1));
    put("other", make()); /* the limit is that of one origin */
    assert_int_equal(ls_stream_pool_count(at.pool), LS_STREAM_POOL_ORIGIN_MAX + 1);
    close_pool();
}

static void one_more_than_the_limit_of_all_closes_the_oldest(void **state)
{
    char key[16];
    (void)state;
    open_pool();
    for (unsigned n = 0; n < LS_STREAM_POOL_MAX; n++) {
        (void)snprintf(key, sizeof key, "k%u", n);
        put(key, make());
    }
    assert_int_equal(ls_stream_pool_count(at.pool), LS_STREAM_POOL_MAX);
    assert_false(is_closed(0));
    put("one more", make());
    assert_int_equal(ls_stream_pool_count(at.pool), LS_STREAM_POOL_MAX);
    assert_true(is_closed(0));
    assert_false(is_closed(1) || is_closed(LS_STREAM_POOL_MAX));
    assert_null(take("k0"));
    close_pool();
}

static void a_sweep_closes_what_is_old_or_ended(void **state)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    (void)state;
    open_pool();
    put("k", make());
    put("k", make());
    ls_stream_pool_sweep(&at.w.place.ctx, at.pool, now_ms);
    assert_int_equal(ls_stream_pool_count(at.pool), 2);
    assert_int_equal(shutdown(at.theirs[0], SHUT_WR), 0);
    ls_stream_pool_sweep(&at.w.place.ctx, at.pool, now_ms);
    assert_int_equal(ls_stream_pool_count(at.pool), 1);
    assert_true(is_closed(0));
    ls_stream_pool_sweep(&at.w.place.ctx, at.pool, now_ms + LS_STREAM_POOL_IDLE_MS - 1);
    assert_int_equal(ls_stream_pool_count(at.pool), 1);
    ls_stream_pool_sweep(&at.w.place.ctx, at.pool, ls_clock_coarse_ms() + LS_STREAM_POOL_IDLE_MS);
    assert_int_equal(ls_stream_pool_count(at.pool), 0);
    assert_true(is_closed(1));
    close_pool();
}

static void the_timer_sweeps_while_streams_are_idle(void **state)
{
    (void)state;
    open_pool();
    put("k", make());
    assert_int_equal(shutdown(at.theirs[0], SHUT_WR), 0);
    wire_step(&at.w); /* waits for the packet of the timer */
    assert_int_equal(ls_stream_pool_count(at.pool), 0);
    assert_true(is_closed(0));
    net_quiet(&at.w.place, LS_STREAM_POOL_TICK_MS + 100); /* it is not armed while no stream is idle */
    put("k", make());
    wire_step(&at.w);
    assert_int_equal(ls_stream_pool_count(at.pool), 1);
    wire_step(&at.w); /* armed again */
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_taken_by_its_origin_the_youngest_first),
        cmocka_unit_test(a_taken_stream_works),
        cmocka_unit_test(a_stream_that_ended_or_has_bytes_is_not_taken),
        cmocka_unit_test(one_more_than_the_limit_of_an_origin_is_closed),
        cmocka_unit_test(one_more_than_the_limit_of_all_closes_the_oldest),
        cmocka_unit_test(a_sweep_closes_what_is_old_or_ended),
        cmocka_unit_test(the_timer_sweeps_while_streams_are_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
