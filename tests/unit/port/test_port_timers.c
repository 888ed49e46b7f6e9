/* test_port_timers.c - the contract of port.h on each back end: timers: order, moving, cancelling, and many
 * threads. */
#include "port_fixture.h"

#include "base/os/thread.h"

enum { WORKERS = 4 };

#define MS UINT64_C(1000000)

TEST_IN(net_place, place, timers_come_in_order_and_not_early)
{
    ls_timer timers[4];
    const int delay_ms[] = {30, 10, 0, 20}, order[] = {2, 1, 3, 0};
    const uint64_t start = ls_clock_ns();
    for (int i = 0; i < 4; i++) {
        timers[i] = (ls_timer){.op = {.done = op_done_unexpectedly}};
        assert_int_equal(ls_timer_set(place->port, &timers[i], start + (uint64_t)delay_ms[i] * MS), LS_OK);
    }
    for (int i = 0; i < 4; i++) {
        const ls_packet packet = net_next(place);
        assert_ptr_equal(packet.op, &timers[order[i]].op);
        assert_int_equal(packet.result, 0);
        assert_true(ls_clock_ns() >= start + (uint64_t)delay_ms[order[i]] * MS);
    }
    net_quiet(place, 20);
}

TEST_IN(net_place, place, a_timer_can_be_moved_and_taken_back)
{
    ls_timer a = {.op = {.done = op_done_unexpectedly}}, b = {.op = {.done = op_done_unexpectedly}};
    const uint64_t start = ls_clock_ns();
    assert_int_equal(ls_timer_set(place->port, &a, start + 10 * MS), LS_OK);
    assert_int_equal(ls_timer_set(place->port, &b, start + 3600000 * MS), LS_OK);
    assert_int_equal(ls_timer_set(place->port, &a, start + 3600000 * MS), LS_OK); /* later */
    assert_int_equal(ls_timer_set(place->port, &b, start + 30 * MS), LS_OK);      /* sooner */
    expect_packet(place, &b.op, 0);
    assert_true(ls_clock_ns() >= start + 30 * MS);
    assert_false(ls_timer_move(place->port, &b, start));
    assert_true(ls_timer_move(place->port, &a, start + 80 * MS));
    assert_true(ls_timer_cancel(place->port, &a));
    assert_false(ls_timer_cancel(place->port, &a));
    assert_false(ls_timer_move(place->port, &a, start));
    assert_false(ls_timer_cancel(place->port, &b)); /* its packet came */
    net_quiet(place, 80);
    assert_int_equal(ls_timer_set(place->port, &a, ls_clock_ns() - MS), LS_OK); /* the past is now */
    expect_packet(place, &a.op, 0);
    assert_int_equal(ls_timer_set(place->port, &a, 0), LS_OK);
    expect_packet(place, &a.op, 0);
}

enum { CLOCKS = 64 };
typedef struct alarm_clock {
    ls_timer timer;
    _Atomic int fired;
} alarm_clock;

static void clock_rang(ls_thread_ctx *ctx, ls_op *op)
{
    atomic_fetch_add(&LS_CONTAINER(op, alarm_clock, timer.op)->fired, 1);
}

typedef struct clocks {
    net_place *place;
    alarm_clock all[CLOCKS];
    int expected[CLOCKS];
} clocks;

/* Owns its clocks: set, move, take back, at random; counts how often each must ring. Waits at the port as well. */
static void clocks_main(void *arg)
{
    clocks *c = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    unsigned dice = (unsigned)(uintptr_t)c;
    net_ctx_open(c->place, &ctx, 1);
    for (int step = 0; step < 4000; step++) {
        dice = dice * 1664525u + 1013904223u;
        const unsigned i = dice >> 16 & (CLOCKS - 1), what = dice >> 28;
        alarm_clock *one = &c->all[i];
        if (what < 8 && atomic_load(&one->fired) == c->expected[i]) { /* not armed, no packet on its way */
            c->expected[i]++;
            if (ls_timer_set(c->place->port, &one->timer, ls_clock_ns() + (dice >> 8 & 3) * MS / 2) < 0) abort();
        } else if (what < 12 && ls_timer_cancel(c->place->port, &one->timer)) {
            c->expected[i]--;
        }
        const int n = ls_port_wait(c->place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, 0);
        for (int k = 0; k < n; k++) packets[k].op->done(&ctx, packets[k].op);
    }
    ls_pool_close(ctx.pool);
}

TEST_IN(net_place, place, timers_from_many_threads_ring_exactly_as_often_as_they_should)
{
    static clocks all[WORKERS];
    ls_thread threads[WORKERS];
    ls_packet packet;
    for (int i = 0; i < WORKERS; i++) {
        all[i].place = place;
        for (int k = 0; k < CLOCKS; k++) all[i].all[k] = (alarm_clock){.timer = {.op = {.done = clock_rang}}};
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(ls_thread_start(&threads[i], "clocks", clocks_main, &all[i]), LS_OK);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    while (ls_port_wait(place->port, &place->ctx, &packet, 1, 50) == 1) packet.op->done(&place->ctx, packet.op);
    for (int i = 0; i < WORKERS; i++)
        for (int k = 0; k < CLOCKS; k++) assert_int_equal(atomic_load(&all[i].all[k].fired), all[i].expected[k]);
}

/* A thread that always finds a packet never blocks; it is told of timers all the same. */
TEST_IN(net_place, place, a_timer_rings_beside_packets_without_end)
{
    ls_timer timer = {.op = {.done = op_done_unexpectedly}};
    ls_packet packet = {0};
    assert_int_equal(ls_timer_set(place->port, &timer, ls_clock_ns() + MS), LS_OK);
    const uint64_t give_up_ns = ls_clock_ns() + 20000 * MS;
    while (packet.op != &timer.op && ls_clock_ns() < give_up_ns) {
        assert_int_equal(ls_port_post_key(place->port, place, 0), LS_OK);
        assert_int_equal(ls_port_wait(place->port, &place->ctx, &packet, 1, -1), 1);
    }
    assert_ptr_equal(packet.op, &timer.op);
    while (ls_port_wait(place->port, &place->ctx, &packet, 1, 0) == 1) {} /* the last post */
}

enum { HANDED_OVER = 500 };
typedef struct sleeper {
    net_place *place;
    alarm_clock *all;
    _Atomic int heard;
} sleeper;

static void sleeper_main(void *arg)
{
    sleeper *s = arg;
    ls_thread_ctx ctx;
    ls_packet packet;
    net_ctx_open(s->place, &ctx, 1);
    for (int i = 0; i < HANDED_OVER; i++) {
        if (ls_port_wait(s->place->port, &ctx, &packet, 1, -1) != 1) abort();
        packet.op->done(&ctx, packet.op);
        atomic_fetch_add(&s->heard, 1);
    }
    ls_pool_close(ctx.pool);
}

/* One thread only waits, the other only sets: whichever moment of the wait it is set in, the timer rings. */
TEST_IN(net_place, place, a_timer_set_while_another_thread_goes_to_sleep_rings)
{
    static alarm_clock all[HANDED_OVER];
    ls_thread thread;
    sleeper s = {.place = place, .all = all};
    assert_int_equal(ls_thread_start(&thread, "sleeper", sleeper_main, &s), LS_OK);
    for (int i = 0; i < HANDED_OVER; i++) {
        const uint64_t now_ns = ls_clock_ns(), give_up_ns = now_ns + 20000 * MS;
        all[i] = (alarm_clock){.timer = {.op = {.done = clock_rang}}};
        assert_int_equal(ls_timer_set(place->port, &all[i].timer, now_ns + (uint64_t)(i % 7) * MS / 20), LS_OK);
        while (atomic_load(&s.heard) <= i && ls_clock_ns() < give_up_ns) {}
        assert_int_equal(atomic_load(&s.heard), i + 1);
    }
    ls_thread_join(&thread);
    for (int i = 0; i < HANDED_OVER; i++) assert_int_equal(atomic_load(&all[i].fired), 1);
}
