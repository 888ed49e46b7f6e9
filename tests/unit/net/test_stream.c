/* test_stream.c - a stream without its queue and its deadlines: open, receive, handover, unread bytes, watch, closing in
 * every state, lingering. */
#include "stream_fixture.h"

#include "net/stream_internal.h"

/* ---- receive ------------------------------------------------------------------------------------------------ */

static void receiving(void **state)
{
    wire w;
    char room[4];
    (void)state;
    wire_open(&w);
    wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
    assert_true(ls_stream_receiving(w.s));
    assert_int_equal(blocks_live(&w.place), 0); /* an idle connection holds no buffer */
    net_write(w.theirs, "hello", 5);
    wire_step(&w);
    assert_int_equal(w.received, 1);
    assert_int_equal(w.result, 5);
    assert_false(ls_stream_receiving(w.s));
    wire_expect_taken(&w, "hello");

    wire_recv_pending(&w, room, sizeof room);
    net_write(w.theirs, "more", 4);
    wire_step(&w);
    assert_int_equal(w.result, 4);
    assert_memory_equal(room, "more", 4);

    assert_int_equal(shutdown(w.theirs, SHUT_WR), 0);
    assert_int_equal(wire_recv(&w, room, sizeof room), 0);
    wire_close(&w);
}

/* ---- close -------------------------------------------------------------------------------------------------- */

static void closing_in_each_state(void **state)
{
    enum { RX = 1, TX = 2, TIMER = 4, QUEUED = 8, ALL = 16 };
    wire w;
    (void)state;
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

static void closing_with_bytes_that_were_received(void **state)
{
    wire w;
    (void)state;
    wire_open(&w);
    wire_recv_pending(&w, NULL, LS_BLOCK_SMALL);
    net_write(w.theirs, "hello", 5);
    const ls_packet packet = net_next(&w.place);
    assert_int_equal(packet.result, 5);
    wire_stream_close(&w);
    ls_packet_dispatch(&w.place.ctx, &packet); /* its block is dropped */
    assert_int_equal(w.closed, 1);
    assert_int_equal(w.received, 0);
    assert_int_equal(blocks_live(&w.place), 0);
    wire_close(&w);
}

/* ---- lingering ---------------------------------------------------------------------------------------------- */

static void lingering_lets_the_peer_read_the_response(void **state)
{
    static char much[300000];
    wire w;
    (void)state;
    wire_open(&w);
    wire_queue_text(&w, "answer");
    assert_int_equal(wire_flush(&w), LS_DONE);
    net_write(w.theirs, "unread", 6); /* without lingering, a reset */
    ls_stream_linger(&w.place.ctx, w.s, 60000);
    for (size_t at = 0; at < sizeof much;) { /* the client continues to send */
        const ssize_t n = send(w.theirs, much + at, sizeof much - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        if (n > 0) at += (size_t)n;
        (void)wire_try(&w, 0);
        assert_int_equal(w.closed, 0);
    }
    wire_expect(&w, "answer");
    wire_expect_end(&w); /* our side was shut down */
    close(w.theirs);
    w.theirs = -1;
    wire_await(&w, &w.closed, 1);
    assert_int_equal(w.received + w.sent, 0);
    wire_close(&w);
}

static void lingering_has_a_time_limit(void **state)
{
    wire w;
    (void)state;
    wire_open(&w);
    const uint64_t at_ms = ls_clock_ns() / 1000000u + 10;
    ls_stream_linger(&w.place.ctx, w.s, 10);
    assert_int_equal(w.closed, 0);
    wire_await(&w, &w.closed, 1); /* the peer neither sends nor closes */
    assert_true(ls_clock_ns() / 1000000u >= at_ms);
    wire_expect_end(&w);
    wire_disconnect(&w);

    wire_connect(&w);
    ls_stream_linger(&w.place.ctx, w.s, 0); /* no lingering */
    assert_int_equal(w.closed, 1);
    wire_disconnect(&w);

    wire_connect(&w);
    net_write(w.theirs, "last words", 10);
    close(w.theirs);
    w.theirs = -1;
    ls_stream_linger(&w.place.ctx, w.s, 60000); /* the peer has closed */
    wire_close(&w);
}

/* ---- open --------------------------------------------------------------------------------------------------- */

static void a_full_port_closes_the_descriptor(void **state)
{
    const ls_port_options options = {.sockets_max = 1, .backend = test_backend()};
    wire w;
    ls_port *full;
    ls_sock *sock;
    int ours, theirs;
    (void)state;
    wire_place_open(&w);
    assert_int_equal(ls_port_open(&options, &full), LS_OK);
    assert_int_equal(ls_sock_attach(full, net_tcp(), NULL, false, &sock), LS_OK);
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

static void the_room_of_the_user_is_zeroed_and_leads_back(void **state)
{
    enum { BYTES = 1000 };
    wire w;
    ls_stream *s;
    int ours, theirs;
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receiving),
        cmocka_unit_test(closing_in_each_state),
        cmocka_unit_test(closing_with_bytes_that_were_received),
        cmocka_unit_test(lingering_lets_the_peer_read_the_response),
        cmocka_unit_test(lingering_has_a_time_limit),
        cmocka_unit_test(a_full_port_closes_the_descriptor),
        cmocka_unit_test(the_room_of_the_user_is_zeroed_and_leads_back),
    };
    return cmocka_run_group_tests_name("net/stream", tests, NULL, NULL);
}
