/* test_port_queue.c - the contract of port.h on each back end: packets of one's own: their order, their number, and
 * the threads that wait for them. */
#include "port_fixture.h"

#include "base/os/thread.h"

enum { WORKERS = 4 };

TEST_IN(net_place, place, posts_come_in_order_and_at_most_max_at_a_time)
{
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    ls_op ops[10];
    int seen = 0;
    net_quiet(place, 0);
    net_quiet(place, 5);
    for (int i = 0; i < 10; i++) {
        ops[i] = op_new();
        if (i % 5 == 4)
            assert_int_equal(ls_port_post_key(place->port, &ops[i], 100 + i), LS_OK);
        else
            ls_port_post(place->port, &ops[i], 100 + i);
    }
    while (seen < 10) {
        const int max = 1 + seen % LS_WAIT_PACKETS_MAX;
        const int n = ls_port_wait(place->port, &place->ctx, packets, max, 60000);
        assert_in_range(n, 1, max);
        for (int k = 0; k < n; k++, seen++) {
            assert_ptr_equal(packets[k].op, seen % 5 == 4 ? NULL : &ops[seen]);
            assert_ptr_equal(packets[k].key, seen % 5 == 4 ? &ops[seen] : NULL);
            assert_int_equal(packets[k].result, 100 + seen);
        }
    }
}

static void post_later(void *arg)
{
    net_place *place = arg;
    ls_clock_sleep_ms(20);
    assert_int_equal(ls_port_post_key(place->port, place, 1), LS_OK);
}

TEST_IN(net_place, place, a_post_wakes_a_thread_that_waits_for_ever)
{
    ls_thread thread;
    ls_packet packet;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_thread_start(&thread, "later", post_later, place), LS_OK);
        assert_int_equal(ls_port_wait(place->port, &place->ctx, &packet, 1, -1), 1);
        assert_ptr_equal(packet.key, place);
        ls_thread_join(&thread);
    }
}

typedef struct storm {
    net_place *place;
    int from, n;
    ls_op *ops;
    _Atomic int *taken, *left;
} storm;

static void storm_main(void *arg)
{
    storm *s = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(s->place, &ctx, 1);
    for (int i = 0; i < s->n || atomic_load(s->left) > 0; i++) {
        if (i < s->n) {
            s->ops[s->from + i] = op_new();
            ls_port_post(s->place->port, &s->ops[s->from + i], s->from + i);
            if (i % 5) continue;
        }
        const int n = ls_port_wait(s->place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, i < s->n ? 0 : 5);
        for (int k = 0; k < n; k++) atomic_fetch_add(&s->taken[packets[k].result], 1);
        if (n > 0) atomic_fetch_sub(s->left, n);
    }
    ls_pool_close(ctx.pool);
}

TEST_IN(net_place, place, posts_from_many_threads_come_once_each)
{
    enum { EACH = 5000 };
    static ls_op ops[WORKERS * EACH];
    static _Atomic int taken[WORKERS * EACH];
    _Atomic int left = WORKERS * EACH;
    ls_thread threads[WORKERS];
    storm storms[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        storms[i] = (storm){place, i * EACH, EACH, ops, taken, &left};
        assert_int_equal(ls_thread_start(&threads[i], "storm", storm_main, &storms[i]), LS_OK);
    }
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < WORKERS * EACH; i++) assert_int_equal(taken[i], 1);
}
