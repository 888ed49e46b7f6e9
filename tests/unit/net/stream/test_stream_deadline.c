/* test_stream_deadline.c - the two deadlines of a stream: when they end an operation, what moves them, and threads
 * that set them while they pass. */
#include "stream_fixture.h"

#include "base/os/thread.h"
#include "net/stream/stream_internal.h"

static uint32_t armed(const wire *w)
{
    return atomic_load(&w->s->deadline.entry.armed_ms);
}

static uint64_t now_ms(void)
{
    return ls_clock_ns() / 1000000u;
}

TEST_IN(wire, w, a_receive_ends_at_its_deadline)
{
    for (int i = 1; i <= 2; i++) { /* twice on the same stream */
        const uint64_t at_ms = now_ms() + 10;
        ls_stream_recv_within(w->s, 10);
        wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
        wire_await(w, &w->received, i);
        assert_int_equal(w->result, LS_ETIMEDOUT);
        assert_true(now_ms() >= at_ms);
    }
}

TEST_IN(wire, w, a_passed_deadline_ends_a_later_receive)
{
    ls_stream_recv_within(w->s, 1);
    wire_step(w); /* nothing is pending */
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_await(w, &w->received, 1); /* a later tick looks again */
    assert_int_equal(w->result, LS_ETIMEDOUT);
}

TEST_IN(wire, w, a_later_deadline_leaves_the_tick_alone)
{
    assert_int_equal(armed(w), 0);
    ls_stream_recv_within(w->s, 20);
    const uint32_t soon_ms = armed(w);
    assert_int_not_equal(soon_ms, 0);
    ls_stream_recv_within(w->s, 60000);
    assert_int_equal(armed(w), soon_ms); /* one store */
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_step(w); /* the tick at the earlier deadline */
    assert_int_equal(w->received, 0);
    const uint32_t later_ms = armed(w);
    assert_true(ls_deadline_before(soon_ms + 30000, later_ms));

    ls_stream_recv_within(w->s, 0); /* removed: lazily as well */
    assert_int_equal(armed(w), later_ms);
    ls_stream_recv_within(w->s, 10); /* an earlier deadline moves the tick */
    assert_true(ls_deadline_before(armed(w), later_ms));
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, LS_ETIMEDOUT);
}

TEST_IN(wire, w, a_removed_deadline_disarms_the_tick)
{
    ls_stream_recv_within(w->s, 5);
    ls_stream_recv_within(w->s, 0);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_step(w);
    assert_int_equal(armed(w), 0);
    assert_int_equal(w->received, 0);
    assert_true(ls_stream_receiving(w->s));
}

/* Have the tick look at the deadlines now, as if that of the send had passed. */
static void look_at_the_send(wire *w)
{
    const uint32_t now = ls_deadline_time(ls_clock_coarse_ms());
    atomic_store(&w->s->send_at, ls_deadline_time(now - 1));
    assert_int_equal(ls_deadline_arm(w->deadlines, &w->s->deadline, now), LS_OK);
    wire_step(w);
}

TEST_IN(wire, w, progress_moves_the_deadline_of_a_send)
{
    enum { STALL_MS = 600000 };
    ls_stream_send_within(w->s, STALL_MS);
    wire_block_the_send(w); /* a part was sent: progress */
    assert_int_not_equal(ls_sock_progress_ms(WIRE_SOCK(w)), 0);
    look_at_the_send(w);
    assert_int_equal(w->sent, 0);
    assert_int_equal(atomic_load(&w->s->send_at), (uint32_t)(ls_sock_progress_ms(WIRE_SOCK(w)) + STALL_MS));
    ls_stream_send_within(w->s, 1); /* no further progress */
    while (now_ms() <= ls_sock_progress_ms(WIRE_SOCK(w)) + 1) continue;
    look_at_the_send(w);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->sent_err, LS_ETIMEDOUT);
    assert_int_equal(ls_stream_queued(w->s), 0);
}

/* The peer takes bytes before every deadline, but fewer than the minimum rate. */
TEST(a_send_below_the_minimum_rate_ends)
{
    enum { STALL_MS = 60 };
    for (int round = 0; round < 2; round++) {
        const bool is_slow = round == 0;
        ls_stream_handler handler = wire_handler;
        wire w;
        wire_open(&w);
        handler.send_rate_min = is_slow ? UINT32_MAX : 1;
        ls_stream_handover(w.s, &handler);
        ls_stream_send_within(w.s, STALL_MS);
        wire_block_the_send(&w);
        const uint64_t until_ms = now_ms() + 8 * STALL_MS;
        while (w.sent == 0 && (is_slow || now_ms() < until_ms)) {
            char bytes[65536];
            (void)recv(w.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
            (void)wire_try(&w, 2);
        }
        if (is_slow) {
            assert_int_equal(w.sent, 1);
            assert_true(w.sent_err == LS_ETIMEDOUT || w.sent_err == LS_OK);
        }
        wire_close(&w);
    }
}

/* ---- two deadlines ------------------------------------------------------------------------------------------ */

TEST_IN(wire, w, a_receive_times_out_while_a_send_goes_on)
{
    ls_stream_send_within(w->s, 600000);
    ls_stream_recv_within(w->s, 10);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_block_the_send(w);
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, LS_ETIMEDOUT);
    assert_int_equal(w->sent, 0);
    assert_true(ls_stream_sending(w->s));
    wire_drain(w);
    assert_int_equal(w->sent_err, LS_OK);
}

TEST_IN(wire, w, a_send_times_out_while_receives_go_on)
{
    char room[8];
    ls_stream_recv_within(w->s, 600000);
    ls_stream_send_within(w->s, 20);
    wire_recv_pending(w, room, sizeof room);
    wire_block_the_send(w);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->sent_err, LS_ETIMEDOUT);
    assert_int_equal(ls_stream_queued(w->s), 0);
    assert_int_equal(w->received, 0);
    assert_true(ls_stream_receiving(w->s));
    net_write(w->theirs, "still", 5);
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, 5);
}

TEST_IN(wire, w, both_deadlines_pass_at_once)
{
    ls_stream_recv_within(w->s, 20);
    ls_stream_send_within(w->s, 20);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_block_the_send(w);
    wire_await(w, &w->received, 1);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->result, LS_ETIMEDOUT);
    assert_int_equal(w->sent_err, LS_ETIMEDOUT);
}

/* The tick runs a second after the deadline: the process stood still, and the bytes may wait in the socket. */
TEST(a_late_tick_gives_a_second_of_grace)
{
    for (int round = 0; round < 2; round++) {
        const bool arrives = round == 1;
        wire w;
        wire_open(&w);
        ls_stream_send_within(w.s, 600000);
        wire_block_the_send(&w);
        wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
        const uint32_t now = (uint32_t)now_ms(), at = ls_deadline_time(now - 1000);
        atomic_store(&w.s->recv_at, at);
        assert_int_equal(ls_deadline_arm(w.deadlines, &w.s->deadline, at), LS_OK);
        wire_step(&w);
        assert_int_equal(w.received + w.sent, 0);
        assert_true(ls_stream_receiving(w.s));
        assert_false(ls_deadline_before(armed(&w), now + 1000));
        if (arrives) net_write(w.theirs, "here", 4);
        wire_await(&w, &w.received, 1);
        assert_int_equal(w.result, arrives ? 4 : LS_ETIMEDOUT);
        if (arrives) wire_expect_taken(&w, "here");
        assert_int_equal(w.sent, 0);
        wire_close(&w);
    }
}

/* It passes while nothing is pending. */
TEST_IN(wire, w, a_removed_deadline_leaves_no_trace)
{
    ls_stream_recv_within(w->s, 1);
    wire_step(w);
    ls_stream_recv_within(w->s, 0);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    ls_stream_cancel_recv(w->s);
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, LS_ECANCELED);
}

TEST_IN(wire, w, limits_apply_to_the_pending_send)
{
    wire_block_the_send(w); /* without a limit */
    ls_stream_send_within(w->s, 20);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->sent_err, LS_ETIMEDOUT);

    wire_disconnect(w);
    wire_connect(w);
    ls_stream_send_within(w->s, 20);
    wire_block_the_send(w);
    ls_stream_send_within(w->s, 0);
    while (armed(w) != 0) wire_step(w); /* the tick finds no deadline */
    assert_int_equal(w->sent, 0);
    ls_stream_abort(w->s);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->sent_err, LS_ECANCELED);
}

TEST_IN(wire, w, the_longest_deadline)
{
    ls_stream_recv_within(w->s, UINT32_MAX);
    ls_stream_send_within(w->s, UINT32_MAX);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_block_the_send(w);
    assert_int_equal(ls_deadline_arm(w->deadlines, &w->s->deadline, ls_deadline_time(ls_clock_coarse_ms())), LS_OK);
    wire_step(w); /* a look */
    net_quiet(&w->place, 0);
    assert_int_equal(w->received + w->sent, 0);
}

TEST_IN(wire, w, closing_while_the_ticks_packet_is_queued)
{
    ls_stream_recv_within(w->s, 1);
    const ls_packet packet = net_next(&w->place);
    wire_stream_close(w); /* and freed: the tick does not touch it */
    assert_int_equal(w->closed, 1);
    ls_packet_dispatch(&w->place.ctx, &packet);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

enum { MANY = 32, MANY_THREADS = 3, ROUNDS = 60 };

typedef struct many { /* streams whose owners are whichever of the threads runs their packet */
    wire w;           /* its place and deadlines */
    _Atomic int left; /* streams that have not done their rounds */
    _Atomic int wrong;
} many;

typedef struct one { /* the user data of such a stream */
    many *all;
    int rounds;
    uint32_t seed;
} one;

static void begin_round(ls_thread_ctx *ctx, ls_stream *s)
{
    one *o = ls_stream_user(s);
    int64_t result;
    o->seed = o->seed * 1664525u + 1013904223u;
    const unsigned way = o->seed >> 29;
    if (way & 1) ls_stream_recv_within(s, 0);
    if (way & 2) ls_stream_recv_within(s, 60000);
    if (way & 4) ls_stream_recv_within(s, 2);
    if ((way & 6) == 6) ls_stream_recv_within(s, 0);
    ls_stream_recv_within(s, 1); /* this one counts */
    if (ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result) != LS_PENDING) atomic_fetch_add(&o->all->wrong, 1);
}

static void many_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    one *o = ls_stream_user(s);
    if (result != LS_ETIMEDOUT) atomic_fetch_add(&o->all->wrong, 1);
    if (++o->rounds < ROUNDS)
        begin_round(ctx, s);
    else
        ls_stream_close(ctx, s);
}

static void many_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    one *o = ls_stream_user(s);
    atomic_fetch_sub(&o->all->left, 1);
    ls_stream_free(s);
}

static void many_main(void *arg)
{
    static _Atomic unsigned next;
    many *m = arg;
    ls_packet packet;
    ls_thread_ctx ctx;
    const uint64_t until_ms = now_ms() + 2 * WIRE_PATIENCE_MS;
    net_ctx_open(&m->w.place, &ctx, 1 + atomic_fetch_add(&next, 1) % MANY_THREADS);
    while (atomic_load(&m->left) > 0 && now_ms() < until_ms)
        if (ls_port_wait(m->w.place.port, &ctx, &packet, 1, 5) > 0) ls_packet_dispatch(&ctx, &packet);
    ls_pool_close(ctx.pool);
}

/* Deadlines are set while they pass on another thread: the last one is kept in every interleaving, or a receive would
 * stay pending for ever. */
TEST(a_deadline_set_while_a_tick_runs_is_kept)
{
    static const ls_stream_handler handler = {.received = many_received, .sent = wire_sent, .closed = many_closed};
    many m = {.wrong = 0};
    ls_thread threads[MANY_THREADS];
    int theirs[MANY];
    wire_place_open(&m.w);
    atomic_store(&m.left, MANY);
    for (int i = 0; i < MANY; i++) {
        ls_stream *s;
        int ours;
        net_pair(&ours, &theirs[i]);
        assert_int_equal(ls_stream_open(m.w.place.port, m.w.deadlines, ours, false, NULL, &handler, sizeof(one), &s),
                         LS_OK);
        *(one *)ls_stream_user(s) = (one){.all = &m, .seed = (uint32_t)i};
        begin_round(&m.w.place.ctx, s);
    }
    for (int i = 0; i < MANY_THREADS; i++)
        assert_int_equal(ls_thread_start(&threads[i], "ticks", many_main, &m), LS_OK);
    for (int i = 0; i < MANY_THREADS; i++) ls_thread_join(&threads[i]);
    assert_int_equal(atomic_load(&m.left), 0);
    assert_int_equal(atomic_load(&m.wrong), 0);
    for (int i = 0; i < MANY; i++) close(theirs[i]);
    wire_place_close(&m.w);
}
