/* test_stream.c - a stream without its queue and its deadlines: open, receive, handover, unread bytes, watch, closing
 * in every state, lingering, its actor. */
#include "stream_fixture.h"

#include "base/os/thread.h"
#include "net/stream/stream_internal.h"

/* ---- receive ------------------------------------------------------------------------------------------------ */

TEST_IN(wire, w, receiving)
{
    char room[4];
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    assert_true(ls_stream_receiving(w->s));
    assert_int_equal(blocks_live(&w->place), 0); /* an idle connection holds no buffer */
    net_write(w->theirs, "hello", 5);
    wire_step(w);
    assert_int_equal(w->received, 1);
    assert_int_equal(w->result, 5);
    assert_false(ls_stream_receiving(w->s));
    wire_expect_taken(w, "hello");

    wire_recv_pending(w, room, sizeof room);
    net_write(w->theirs, "more", 4);
    wire_step(w);
    assert_int_equal(w->result, 4);
    assert_memory_equal(room, "more", 4);

    assert_int_equal(shutdown(w->theirs, SHUT_WR), 0);
    assert_int_equal(wire_recv(w, room, sizeof room), 0);
}

TEST_IN(wire, w, a_receive_is_cancelled_or_requeued)
{
    ls_stream_cancel_recv(w->s); /* nothing is pending */
    ls_stream_cancel(w->s);
    net_quiet(&w->place, 0);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    ls_stream_cancel_recv(w->s);
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, LS_ECANCELED);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_block_the_send(w);
    ls_stream_cancel(w->s);
    wire_await(w, &w->received, 2);
    wire_await(w, &w->sent, 1);
    assert_int_equal(w->result, LS_ECANCELED);
    assert_int_equal(w->sent_err, LS_ECANCELED);

    ls_stream_requeue(w->s);
    assert_true(ls_stream_receiving(w->s));
    assert_int_equal(w->received, 2); /* a packet */
    wire_await(w, &w->received, 3);
    assert_int_equal(w->result, LS_EAGAIN);
    net_write(w->theirs, "on", 2);
    assert_int_equal(wire_recv(w, NULL, LS_BLOCK_SMALL), 2);
    wire_expect_taken(w, "on");
    ls_stream_requeue(w->s); /* closing while that packet is queued */
    wire_stream_close(w);
    assert_int_equal(w->closed, 0);
}

/* ---- connect ------------------------------------------------------------------------------------------------ */

TEST(a_new_socket_connects)
{
    wire w, *self = &w;
    ls_sockaddr at;
    char text[5];
    wire_place_open(&w);
    const int listener = net_listen(&at);
    assert_int_equal(
        ls_stream_open_unconnected(w.place.port, w.deadlines, LS_ADDR_IP4, &wire_handler, sizeof self, &w.s), LS_OK);
    memcpy(ls_stream_user(w.s), &self, sizeof self);
    const int err = ls_stream_connect(&w.place.ctx, w.s, &at);
    if (err == LS_PENDING) wire_await(&w, &w.received, 1);
    assert_int_equal(err == LS_PENDING ? w.result : err, LS_OK);
    net_nonblocking(listener);
    do w.theirs = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (w.theirs < 0 && errno == EAGAIN);
    assert_true(w.theirs >= 0);
    close(listener);
    memcpy(ls_stream_room(&w.place.ctx, w.s, 5), "hello", 5);
    ls_stream_commit(w.s, 5);
    assert_int_equal(ls_stream_flush(&w.place.ctx, w.s), LS_DONE);
    net_read(w.theirs, text, 5);
    assert_memory_equal(text, "hello", 5);
    wire_close(&w);
}

TEST(an_unknown_family_is_refused)
{
    wire w;
    wire_place_open(&w);
    assert_true(ls_stream_open_unconnected(w.place.port, w.deadlines, 99, &wire_handler, sizeof(void *), &w.s) < 0);
    wire_place_close(&w);
}

/* ---- handover ----------------------------------------------------------------------------------------------- */

static int second_received, second_sent; /* calls of the second handler */
static int64_t second_result;

static void on_second_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    assert_non_null(s);
    second_received++;
    second_result = result;
}

static void on_second_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    assert_non_null(s);
    assert_int_equal(err, LS_OK);
    second_sent++;
}

static const ls_stream_handler second_handler = {
    .received = on_second_received, .sent = on_second_sent, .closed = wire_closed};

/* Receive "headrest" and give back "rest"; the second handler follows. */
static void hand_over_with_unread_bytes(wire *w)
{
    net_write(w->theirs, "headrest", 8);
    assert_int_equal(wire_recv(w, NULL, LS_BLOCK_SMALL), 8);
    const ls_slice all = ls_stream_take(w->s);
    assert_memory_equal(all.ptr, "headrest", 8);
    ls_stream_unread(w->s, (ls_slice){all.block, all.ptr + 4, 4});
    assert_true(ls_stream_has_unread(w->s));
    second_received = second_sent = 0;
    ls_stream_handover(w->s, &second_handler);
}

TEST(unread_bytes_are_received_by_the_next_handler)
{
    enum { INTO_A_BLOCK, IN_PARTS, PROBED, AGAIN_UNREAD, CLOSED, LINGERED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        wire w;
        char room[8];
        int64_t result = -1;
        wire_open(&w);
        hand_over_with_unread_bytes(&w);
        if (way == IN_PARTS) {
            for (int part = 0; part < 2; part++) {
                assert_int_equal(ls_stream_recv(&w.place.ctx, w.s, room + 3 * part, 3, &result), LS_DONE);
                assert_int_equal(result, part == 0 ? 3 : 1);
                assert_int_equal(ls_stream_has_unread(w.s), part == 0);
            }
            assert_memory_equal(room, "rest", 4);
        } else if (way < CLOSED) {
            if (way == PROBED) {
                assert_int_equal(ls_stream_recv(&w.place.ctx, w.s, NULL, 0, &result), LS_DONE);
                assert_int_equal(result, 0);
            }
            assert_int_equal(ls_stream_recv(&w.place.ctx, w.s, NULL, LS_BLOCK_SMALL, &result), LS_DONE);
            assert_int_equal(result, 4);
            if (way == AGAIN_UNREAD) {
                const ls_slice rest = ls_stream_take(w.s);
                ls_stream_unread(w.s, (ls_slice){rest.block, rest.ptr + 1, 3});
                assert_int_equal(ls_stream_recv(&w.place.ctx, w.s, NULL, LS_BLOCK_LARGE, &result), LS_DONE);
                wire_expect_taken(&w, "est");
            } else {
                wire_expect_taken(&w, "rest");
            }
        }
        if (way < CLOSED) { /* then those of the socket */
            assert_int_equal(blocks_live(&w.place), 0);
            wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
            net_write(w.theirs, "more", 4);
            wire_await(&w, &second_received, 1);
            assert_int_equal(second_result, 4);
            wire_expect_taken(&w, "more");
        }
        if (way == LINGERED) ls_stream_linger(&w.place.ctx, w.s, 1);
        wire_close(&w);
    }
}

/* Nothing is pending, but bytes may be queued, unread, reserved or unconsumed in the socket, and a deadline, an actor
 * or a watch may be set. */
static void a_watch_is_lost(ls_thread_ctx *ctx, ls_stream_watch *watch)
{
    watch->stream = NULL;
}

TEST(the_handler_is_replaced_in_every_state)
{
    enum { FRESH, RESERVED, QUEUED, SENT, TIMED_OUT, CANCELLED, PINNED, DEADLINE, WATCHED, ENDED, STATES };
    for (int at = 0; at < STATES; at++) {
        wire w;
        ls_actor actor;
        ls_stream_watch watch = {.lost = a_watch_is_lost};
        bool watched = false;
        wire_open(&w);
        second_received = second_sent = 0;
        if (at == RESERVED) assert_non_null(ls_stream_room(&w.place.ctx, w.s, 100));
        if (at == QUEUED) wire_queue_text(&w, "queued");
        if (at == SENT) {
            wire_block_the_send(&w);
            wire_drain(&w);
        }
        if (at == TIMED_OUT) {
            ls_stream_recv_within(w.s, 1);
            assert_int_equal(wire_recv(&w, NULL, LS_BLOCK_SMALL), LS_ETIMEDOUT);
            ls_stream_recv_within(w.s, 0);
        }
        if (at == CANCELLED) {
            wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
            ls_stream_cancel_recv(w.s);
            wire_await(&w, &w.received, 1);
        }
        if (at == PINNED) {
            ls_actor_init(&actor);
            ls_stream_set_actor(w.s, &actor);
            assert_ptr_equal(ls_stream_actor(w.s), &actor);
        }
        if (at == DEADLINE) ls_stream_recv_within(w.s, 1);
        if (at == WATCHED) {
            const int err = ls_stream_watch_begin(&w.place.ctx, w.s, &watch);
            if (err != LS_ENOTSUP) assert_int_equal(err, LS_PENDING);
            watched = err == LS_PENDING;
        }
        if (at == ENDED) {
            assert_int_equal(shutdown(w.theirs, SHUT_WR), 0);
            assert_int_equal(wire_recv(&w, NULL, LS_BLOCK_SMALL), 0);
        }
        const int before = w.received;
        ls_stream_handover(w.s, &second_handler);
        if (at == QUEUED) {
            assert_int_equal(wire_flush(&w), LS_DONE);
            wire_expect(&w, "queued");
        }
        wire_block_the_send(&w); /* the callbacks are those of the second */
        while (second_sent == 0) {
            static char room[65536];
            const ssize_t n = recv(w.theirs, room, sizeof room, MSG_DONTWAIT);
            (void)wire_try(&w, n > 0 ? 0 : 1);
        }
        if (at != ENDED) {
            wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
            if (at != DEADLINE) net_write(w.theirs, "bytes", 5);
            wire_await(&w, &second_received, 1);
            assert_int_equal(second_result, at == DEADLINE ? LS_ETIMEDOUT : 5);
            if (at != DEADLINE) wire_expect_taken(&w, "bytes");
        }
        if (watched) assert_true(ls_stream_unwatch(w.s, &watch));
        assert_int_equal(w.received, before);
        wire_close(&w);
    }
}

/* ---- watch -------------------------------------------------------------------------------------------------- */

typedef struct watching {
    ls_stream_watch watch; /* first */
    int lost;
} watching;

static void on_lost(ls_thread_ctx *ctx, ls_stream_watch *watch)
{
    ((watching *)(void *)watch)->lost++;
}

TEST(a_watch_sees_the_loss_of_the_connection)
{
    const struct linger reset = {.l_onoff = 1};
    wire w;
    watching v = {.watch.lost = on_lost};
    wire_open(&w);
    const int err = ls_stream_watch_begin(&w.place.ctx, w.s, &v.watch);
    if (err == LS_ENOTSUP) {
        wire_close(&w);
        return;
    }
    assert_int_equal(err, LS_PENDING);
    assert_ptr_equal(v.watch.stream, w.s);
    assert_true(ls_stream_unwatch(w.s, &v.watch));
    net_quiet(&w.place, 0);
    assert_int_equal(ls_stream_watch_begin(&w.place.ctx, w.s, &v.watch), LS_PENDING);
    net_write(w.theirs, "data", 4); /* is no loss */
    assert_int_equal(shutdown(w.theirs, SHUT_WR), 0);
    net_quiet(&w.place, 5);
    assert_int_equal(v.lost, 0);
    assert_int_equal(setsockopt(w.theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(w.theirs);
    w.theirs = -1;
    wire_await(&w, &v.lost, 1);
    assert_false(ls_stream_unwatch(w.s, &v.watch));
    assert_int_equal(ls_stream_watch_begin(&w.place.ctx, w.s, &v.watch), LS_ERESET);
    assert_int_equal(w.received + w.sent, 0);
    wire_close(&w);
}

/* ---- addresses ---------------------------------------------------------------------------------------------- */

TEST_IN(wire, w, the_addresses_of_a_stream)
{
    static const char *const texts[] = {"192.0.2.7", "2001:db8::7"};
    ls_addr addr, got;
    for (int i = 0; i < 2; i++) {
        memset(&got, 0, sizeof got);
        assert_int_equal(ls_addr_parse(texts[i], (uint16_t)(i + 7), &addr), LS_OK);
        ls_stream_set_peer(w->s, &addr);
        ls_stream_peer(w->s, &got);
        assert_int_equal(got.family, addr.family);
        assert_int_equal(got.port, i + 7);
        assert_memory_equal(got.bytes, addr.bytes, i == 0 ? 4 : 16);
    }
    assert_int_equal(ls_stream_local(w->s, &got), LS_OK);
    assert_int_equal(got.family, LS_ADDR_IP4);
    assert_int_not_equal(got.port, 0);
    const int err = wire_carried() ? LS_ENOTSUP : LS_OK;
    assert_int_equal(ls_stream_keepalive(w->s, true, 60), err);
    assert_int_equal(ls_stream_keepalive(w->s, false, 0), err);
}

/* ---- close -------------------------------------------------------------------------------------------------- */

TEST(closing_in_each_state)
{
    enum { RX = 1, TX = 2, TIMER = 4, QUEUED = 8, ALL = 16 };
    wire w;
    wire_place_open(&w);
    for (int what = 0; what < ALL; what++) {
        wire_connect(&w);
        if (what & TIMER) ls_stream_recv_within(w.s, 60000);
        if (what & RX) wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
        if (what & TX) wire_block_the_send(&w);
        if (what & QUEUED) {
            assert_non_null(ls_stream_room(&w.place.ctx, w.s, 10));
            ls_stream_commit(w.s, 10);
        }
        wire_stream_close(&w);
        assert_int_equal(w.closed, what & (RX | TX) ? 0 : 1); /* packets may still arrive */
        for (int n = !!(what & RX) + !!(what & TX); n > 0; n--) {
            assert_int_equal(w.closed, 0);
            wire_step(&w);
        }
        assert_int_equal(w.closed, 1);
        assert_int_equal(w.received + w.sent, 0); /* no callback */
        assert_int_equal(blocks_live(&w.place), 0);
        net_quiet(&w.place, 0);
        wire_disconnect(&w);
    }
    wire_place_close(&w);
}

TEST_IN(wire, w, closing_with_bytes_that_were_received)
{
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    net_write(w->theirs, "hello", 5);
    const ls_packet packet = net_next(&w->place);
    assert_int_equal(packet.result, 5);
    wire_stream_close(w);
    ls_packet_dispatch(&w->place.ctx, &packet); /* its block is dropped */
    assert_int_equal(w->closed, 1);
    assert_int_equal(w->received, 0);
    assert_int_equal(blocks_live(&w->place), 0);
}

/* ---- lingering ---------------------------------------------------------------------------------------------- */

TEST_IN(wire, w, lingering_lets_the_peer_read_the_response)
{
    static char much[300000];
    wire_queue_text(w, "answer");
    assert_int_equal(wire_flush(w), LS_DONE);
    net_write(w->theirs, "unread", 6); /* without lingering, a reset */
    ls_stream_linger(&w->place.ctx, w->s, 60000);
    for (size_t at = 0; at < sizeof much;) { /* the client continues to send */
        const ssize_t n = send(w->theirs, much + at, sizeof much - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        if (n > 0) at += (size_t)n;
        (void)wire_try(w, 0);
        assert_int_equal(w->closed, 0);
    }
    wire_expect(w, "answer");
    wire_expect_end(w); /* our side was shut down */
    close(w->theirs);
    w->theirs = -1;
    wire_await(w, &w->closed, 1);
    assert_int_equal(w->received + w->sent, 0);
}

TEST_IN(wire, w, lingering_has_a_time_limit)
{
    const uint64_t at_ms = ls_clock_ns() / 1000000u + 10;
    ls_stream_linger(&w->place.ctx, w->s, 10);
    assert_int_equal(w->closed, 0);
    wire_await(w, &w->closed, 1); /* the peer neither sends nor closes */
    assert_true(ls_clock_ns() / 1000000u >= at_ms);
    wire_expect_end(w);
    wire_disconnect(w);

    wire_connect(w);
    ls_stream_linger(&w->place.ctx, w->s, 0); /* no lingering */
    assert_int_equal(w->closed, 1);
    wire_disconnect(w);

    wire_connect(w);
    net_write(w->theirs, "last words", 10);
    close(w->theirs);
    w->theirs = -1;
    ls_stream_linger(&w->place.ctx, w->s, 60000); /* the peer has closed */
}

/* ---- open --------------------------------------------------------------------------------------------------- */

TEST(a_full_port_closes_the_descriptor)
{
    const ls_port_options options = {.sockets_max = 1};
    wire w;
    ls_port *full;
    ls_sock *sock;
    int ours, theirs;
    wire_place_open(&w);
    assert_int_equal(ls_port_open(&options, &full), LS_OK);
    assert_int_equal(ls_sock_attach(full, net_tcp(), false, &sock), LS_OK);
    net_pair(&ours, &theirs);
    ls_port *const usual = w.place.port;
    w.place.port = full;
    assert_int_equal(wire_attach(&w, ours, theirs), LS_ELIMIT);
    w.place.port = usual;
    assert_null(w.s);
    wire_expect_end(&w);
    close(theirs);
    ls_thread_ctx ctx;
    ls_thread_ctx_init(&ctx, full, w.place.ctx.pool, 0);
    ls_sock_close(&ctx, sock);
    ls_port_close(full);
    wire_place_close(&w);
}

TEST(the_room_of_the_user_is_zeroed_and_leads_back)
{
    enum { BYTES = 1000 };
    wire w;
    ls_stream *s;
    int ours, theirs;
    wire_place_open(&w);
    net_pair(&ours, &theirs);
    assert_int_equal(ls_stream_open(w.place.port, w.deadlines, ours, true, NULL, &wire_handler, BYTES, &s), LS_OK);
    char *const user = ls_stream_user(s);
    assert_int_equal((uintptr_t)user % sizeof(void *), 0);
    for (int i = 0; i < BYTES; i++) assert_int_equal(user[i], 0);
    memset(user, 'x', BYTES); /* a sanitizer checks its end */
    assert_ptr_equal(ls_stream_of(user), s);
    wire *const room = &w;
    memcpy(user, &room, sizeof room);
    w.s = s;
    w.theirs = theirs;
    wire_close(&w);
}

/* ---- the actor ---------------------------------------------------------------------------------------------- */

typedef struct taker {
    wire *w;
    ls_thread thread;
} taker;

static void taker_main(void *arg)
{
    wire *w = ((taker *)arg)->w;
    ls_packet packet;
    ls_thread_ctx ctx;
    net_ctx_open(&w->place, &ctx, 1);
    while (ls_port_wait(w->place.port, &ctx, &packet, 1, 100) == 0) continue;
    ls_packet_dispatch(&ctx, &packet);
    ls_pool_close(ctx.pool);
}

/* Another thread takes the packet of a receive and reads its actor. ThreadSanitizer reports it if that is written. */
TEST_IN(wire, w, the_actor_of_a_pending_receive_is_set_again)
{
    taker other = {.w = w};
    ls_actor actor;
    ls_actor_init(&actor);
    assert_true(ls_actor_try_enter(&actor, &w->place.ctx));
    ls_stream_set_actor(w->s, &actor);
    ls_stream_requeue(w->s);
    assert_int_equal(ls_thread_start(&other.thread, "taker", taker_main, &other), LS_OK);
    ls_stream_set_actor(w->s, &actor);
    ls_thread_join(&other.thread);
    assert_int_equal(w->received, 0);
    ls_actor_leave(&actor, &w->place.ctx);
    assert_int_equal(w->received, 1);
    assert_int_equal(w->result, LS_EAGAIN);
}
