/* test_stream_move.c - a connection that moves to another stream: each part of it does, and the old stream is a
 * shell. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

#include "fake_filter.h"
#include "net/stream/stream_internal.h"

static int second_received, second_sent; /* calls of the second handler */
static int64_t second_result;
static int second_err;

static void on_second_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    assert_ptr_equal(s, wire_of(s)->s);
    second_received++;
    second_result = result;
}

static void on_second_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    assert_ptr_equal(s, wire_of(s)->s);
    second_sent++;
    second_err = err;
}

static const ls_stream_handler second_handler = {
    .received = on_second_received, .sent = on_second_sent, .closed = wire_closed};

enum { ROOM = 500 };

/* Move w->s, free the old stream, and check what is new. */
static void move(wire *w)
{
    static const char zero[ROOM];
    ls_stream *const old = w->s;
    ls_addr before, after;
    ls_stream_peer(old, &before);
    second_received = second_sent = 0;
    assert_int_equal(ls_stream_move(old, &second_handler, ROOM, &w->s), LS_OK);
    assert_ptr_not_equal(w->s, old);
    assert_memory_equal(ls_stream_user(w->s), zero, ROOM);
    memcpy(ls_stream_user(w->s), &w, sizeof w);
    ls_stream_free(old);
    ls_stream_peer(w->s, &after);
    assert_int_equal(before.family, after.family);
    assert_int_equal(before.port, after.port);
}

static void drain_second(wire *w)
{
    static char room[65536];
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (second_sent == 0) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        const ssize_t n = recv(w->theirs, room, sizeof room, MSG_DONTWAIT);
        (void)wire_try(w, n > 0 ? 0 : 1);
    }
}

TEST_IN(wire, w, an_idle_connection_moves)
{
    ls_actor actor;
    ls_addr peer;
    ls_actor_init(&actor);
    ls_stream_set_actor(w->s, &actor);
    assert_int_equal(ls_addr_parse("10.1.2.3", 99, &peer), LS_OK);
    ls_stream_set_peer(w->s, &peer);
    move(w);
    assert_ptr_equal(ls_stream_actor(w->s), &actor);
    ls_stream_peer(w->s, &peer);
    assert_int_equal(peer.port, 99);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    net_write(w->theirs, "hello", 5);
    wire_await(w, &second_received, 1);
    assert_int_equal(second_result, 5);
    wire_expect_taken(w, "hello");
    wire_queue_text(w, "back");
    assert_int_equal(wire_flush(w), LS_DONE);
    wire_expect(w, "back");
}

TEST_IN(wire, w, queued_output_moves)
{
    wire_queue_text(w, "first ");
    move(w);
    assert_int_equal(ls_stream_queued(w->s), 6);
    wire_queue_text(w, "second");
    assert_int_equal(wire_flush(w), LS_DONE);
    wire_expect(w, "first second");
    wire_queue_text(w, "dropped"); /* with the stream */
    move(w);
}

TEST(a_pending_send_moves)
{
    enum { SENT, ABORTED, CLOSED, LOST, WAYS };
    for (int way = 0; way < WAYS; way++) {
        wire w;
        ls_actor actor;
        wire_open(&w);
        ls_actor_init(&actor);
        ls_stream_set_actor(w.s, &actor);
        wire_block_the_send(&w);
        wire_queue_text(&w, "behind");
        move(&w);
        assert_true(ls_stream_sending(w.s));
        if (way == SENT) {
            drain_second(&w);
            assert_int_equal(second_err, LS_OK);
            assert_int_equal(ls_stream_queued(w.s), 0);
        } else if (way == ABORTED) {
            ls_stream_abort(w.s);
            wire_await(&w, &second_sent, 1);
            assert_int_equal(second_err, LS_ECANCELED);
        } else if (way == LOST) {
            ls_stream_cancel(w.s);
            wire_await(&w, &second_sent, 1);
            assert_int_equal(second_err, LS_ECANCELED);
        }
        assert_int_equal(w.sent, 0); /* the first handler hears nothing */
        wire_close(&w);
    }
}

TEST(unread_bytes_move)
{
    enum { RECEIVED, CLOSED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        wire w;
        int64_t result;
        wire_open(&w);
        net_write(w.theirs, "headrest", 8);
        assert_int_equal(wire_recv(&w, NULL, LS_BLOCK_SMALL), 8);
        const ls_slice all = ls_stream_take(w.s);
        ls_stream_unread(w.s, (ls_slice){all.block, all.ptr + 4, 4});
        move(&w);
        assert_true(ls_stream_has_unread(w.s));
        if (way == RECEIVED) {
            assert_int_equal(ls_stream_recv(&w.place.ctx, w.s, NULL, LS_BLOCK_SMALL, &result), LS_DONE);
            assert_int_equal(result, 4);
            wire_expect_taken(&w, "rest");
            assert_int_equal(blocks_live(&w.place), 0);
        }
        wire_close(&w);
    }
}

TEST(a_filter_moves_with_its_input)
{
    wire w;
    int freed = 0;
    char records[64], got[6];
    fake_peer peer = {.head_have = 0};
    wire_open(&w);
    fake_filter *f = fake_open(&freed);
    ls_stream_set_filter(w.s, &f->base);
    size_t len = fake_record(records, "one", 3);
    len += fake_record(records + len, "two", 3);
    net_write(w.theirs, records, len);
    assert_int_equal(wire_recv(&w, NULL, LS_BLOCK_SMALL), 3);
    wire_expect_taken(&w, "one");
    wire_queue_text(&w, "ab");
    move(&w);
    assert_ptr_equal(ls_stream_filter(w.s), &f->base);
    assert_int_equal(freed, 0);
    assert_int_equal(wire_recv(&w, NULL, LS_BLOCK_SMALL), 3); /* from the input that the filter holds */
    wire_expect_taken(&w, "two");
    wire_queue_text(&w, "c");
    assert_int_equal(wire_flush(&w), LS_DONE);
    size_t plain = 0;
    while (plain < 3) {
        net_read(w.theirs, got, 1);
        if (fake_peer_read(&peer, got, 1) == 1) assert_int_equal(got[0], "abc"[plain++]);
    }
    wire_disconnect(&w);
    assert_int_equal(freed, 1);
    wire_place_close(&w);
}

TEST_IN(wire, w, both_deadlines_move)
{
    ls_actor actor;
    ls_actor_init(&actor);
    ls_stream_set_actor(w->s, &actor);
    ls_stream_recv_within(w->s, 30);
    ls_stream_send_within(w->s, 20);
    wire_block_the_send(w);
    move(w);
    assert_int_not_equal(atomic_load(&w->s->deadline.entry.armed_ms), 0);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_await(w, &second_sent, 1);
    assert_int_equal(second_err, LS_ETIMEDOUT);
    wire_await(w, &second_received, 1);
    assert_int_equal(second_result, LS_ETIMEDOUT);
    move(w); /* also those that have passed */
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_await(w, &second_received, 1);
    assert_int_equal(second_result, LS_ETIMEDOUT);
}

TEST_IN(wire, w, a_stream_without_deadlines_arms_none)
{
    ls_stream_recv_within(w->s, 60000);
    ls_stream_recv_within(w->s, 0);
    move(w);
    assert_int_equal(atomic_load(&w->s->deadline.entry.armed_ms), 0);
}
