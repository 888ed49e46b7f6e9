/* test_websocket_close.c - the end of a WebSocket connection: closing handshakes in all orders, lost connections,
 * refused frames, deadlines. */
/* sanitizers: asan; no thread starts */
#include "ws_fixture.h"

/* ---- calls of the user ------------------------------------------------------------------------------------------ */

static void do_close(ws_place *p)
{
    ls_ws_close(&p->wire.place.ctx, p->ws, LS_WS_NORMAL, "done", 4);
}

static void do_close_twice(ws_place *p)
{
    do_close(p);
    assert_true(ls_ws_closing(p->ws));
    ls_ws_close(&p->wire.place.ctx, p->ws, LS_WS_GOING_AWAY, "again", 5);
}

static void do_consume(ws_place *p)
{
    ls_ws_consume(&p->wire.place.ctx, p->ws);
}

static void do_send_refused(ws_place *p)
{
    ls_slice slice = ls_slice_static("x", 1), frame = ls_slice_static("\x81\x01x", 3);
    ls_thread_ctx *ctx = &p->wire.place.ctx;
    assert_int_equal(ls_ws_send(ctx, p->ws, LS_WS_TEXT, &slice, 1), LS_ECLOSED);
    assert_int_equal(ls_ws_control(ctx, p->ws, LS_WS_PING, "x", 1), LS_ECLOSED);
    assert_int_equal(ls_ws_publish(ctx, p->ws, &frame, NULL, true), LS_ECLOSED);
}

/* Nothing is readable at the peer, and the stream has not ended. */
static void expect_silence(ws_place *p)
{
    char byte;
    wire_pump(&p->wire);
    assert_int_equal(recv(p->wire.theirs, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

/* Both Close frames were exchanged: a server ends its stream first, a client waits for the server. */
static void expect_tcp_end(ws_place *p)
{
    if (p->config.client)
        expect_silence(p);
    else
        ws_expect_end(p);
    wire_pump(&p->wire);
    assert_int_equal(p->freed, 0);
    ws_hang_up(p);
    ws_await_freed(p);
}

/* A test of a connection in both roles. */
#define TEST_OF_BOTH(p, name)                 \
    static void name(ws_place *p);            \
    TEST_IN(ws_server, server, name##_server) \
    {                                         \
        name(server);                         \
    }                                         \
    TEST_IN(ws_client, client, name##_client) \
    {                                         \
        name(client);                         \
    }                                         \
    static void name(ws_place *p)

/* ---- the closing handshake -------------------------------------------------------------------------------------- */

TEST_OF_BOTH(p, peer_closes)
{
    ws_say_close(p, 4001, "enough");
    ws_expect_close(p, 4001);
    assert_int_equal(p->ended, 1);
    assert_int_equal(p->code, 4001);
    assert_string_equal(p->reason, "enough");
    ws_inside(p, do_send_refused);
    ws_inside(p, do_close_twice); /* no effect */
    expect_tcp_end(p);
}

TEST_IN(ws_server, p, peer_closes_without_code)
{
    ws_say_close(p, LS_WS_NO_CODE, "");
    ws_expect_close(p, LS_WS_NO_CODE);
    assert_int_equal(p->code, LS_WS_NO_CODE);
    expect_tcp_end(p);
}

TEST_OF_BOTH(p, we_close)
{
    ws_inside(p, do_close_twice);
    ws_inside(p, do_send_refused);
    ws_expect(p, LS_WS_CLOSE,
              "\x03\xe8"
              "done",
              6);
    expect_silence(p); /* no second frame, and the stream is open */
    assert_int_equal(p->ended, 0);
    ws_say_close(p, LS_WS_NORMAL, "done");
    ws_await(p, &p->ended, 1);
    assert_int_equal(p->code, LS_WS_NORMAL);
    expect_tcp_end(p);
}

TEST_OF_BOTH(p, close_frames_cross)
{
    ws_say_close(p, LS_WS_GOING_AWAY, "");
    ws_inside(p, do_close); /* the peer's frame is in the socket */
    ws_expect_close(p, LS_WS_NORMAL);
    ws_await(p, &p->ended, 1);
    assert_int_equal(p->code, LS_WS_GOING_AWAY);
    expect_tcp_end(p);
}

/* Data behind the peer's Close frame are ignored, even invalid ones, and its frame ends a message that lacks
 * fragments. */
TEST_OF_BOTH(p, close_inside_a_message)
{
    ws_say(p, LS_WS_TEXT, "beginning", 9);
    ws_say_close(p, LS_WS_NORMAL, "");
    ws_say(p, WS_FIN | LS_WS_CONTINUATION, "end", 3);
    ws_write(p, "\xff\xff\xff\xff\xff", 5);
    ws_expect_close(p, LS_WS_NORMAL);
    expect_tcp_end(p);
    assert_int_equal(p->messages, 0);
    assert_int_equal(p->code, LS_WS_NORMAL);
}

/* Between our Close frame and that of the peer, data are skipped and pings get no answer; what is invalid is refused
 * without a second Close frame. */
TEST_IN(ws_server, p, data_after_our_close)
{
    static char bytes[100000];
    char frame[64];
    ws_say(p, LS_WS_TEXT, "beginning", 9); /* a message, and a frame, are half received */
    const size_t len = ws_frame(p, frame, LS_WS_CONTINUATION, "continued", 9);
    ws_write(p, frame, len - 3);
    wire_pump(&p->wire);
    ws_inside(p, do_close);
    ws_write(p, frame + len - 3, 3);
    ws_say(p, WS_FIN | LS_WS_CONTINUATION, "end", 3);
    ws_say_text(p, "another");
    ws_say(p, WS_FIN | LS_WS_BINARY, bytes, sizeof bytes);
    ws_say(p, WS_FIN | LS_WS_PING, "ping", 4);
    ws_expect_close(p, LS_WS_NORMAL);
    expect_silence(p);
    ws_say_close(p, LS_WS_NORMAL, "");
    expect_tcp_end(p);
    assert_int_equal(p->messages, 0);

    ws_connect(p);
    ws_inside(p, do_close);
    ws_write(p, "\xff\xff", 2);
    ws_expect_close(p, LS_WS_NORMAL);
    ws_await(p, &p->ended, 1);
    assert_int_equal(p->code, LS_WS_PROTOCOL_ERROR);
    expect_tcp_end(p);
}

/* ---- a message that waits --------------------------------------------------------------------------------------- */

TEST_IN(ws_server, p, close_is_seen_behind_messages)
{
    p->keep = true;
    ws_say_text(p, "one");
    ws_say_text(p, "two");
    ws_say_close(p, LS_WS_NORMAL, "");
    ws_await(p, &p->messages, 1);
    wire_pump(&p->wire);
    assert_int_equal(p->ended, 0);
    ws_inside(p, do_consume);
    ws_await(p, &p->messages, 2);
    assert_string_equal(p->last, "two");
    assert_int_equal(p->ended, 0);
    ws_inside(p, do_consume);
    ws_await(p, &p->ended, 1);
    ws_expect_close(p, LS_WS_NORMAL);
    expect_tcp_end(p);
}

TEST_IN(ws_server, p, message_outlives_our_close)
{
    p->keep = true;
    ws_say_text(p, "one");
    ws_say_text(p, "two");
    ws_await(p, &p->messages, 1);
    ws_inside(p, do_close);
    ws_expect_close(p, LS_WS_NORMAL);
    ws_say_text(p, "three");
    ws_say_close(p, LS_WS_NORMAL, "");
    ws_await(p, &p->ended, 1); /* although the message was not consumed */
    ws_look(p);
    assert_string_equal(p->last, "one");
    ws_inside(p, do_consume);
    assert_null(ls_ws_message_get(p->ws));
    expect_tcp_end(p);
    assert_int_equal(p->messages, 1);

    ws_connect(p); /* not even after the end */
    ws_say_text(p, "one");
    ws_await(p, &p->messages, 1);
    ws_inside(p, do_close);
    ws_expect_close(p, LS_WS_NORMAL);
    ws_say_close(p, LS_WS_NORMAL, "");
    expect_tcp_end(p);
}

static void do_send_above_mark(ws_place *p)
{
    ls_slice slice = ls_slice_static("answer", 6);
    assert_int_equal(ls_ws_send(&p->wire.place.ctx, p->ws, LS_WS_TEXT, &slice, 1), LS_PENDING);
}

/* `drained` closes the connection while a message waits: the peer's Close frame is received nevertheless. */
TEST_IN(ws_server, p, close_when_drained)
{
    p->config.write_bytes_high = 0;
    p->keep = true;
    p->on_message = do_send_above_mark;
    p->on_drained = do_close;
    ws_say_text(p, "one");
    ws_say_text(p, "two");
    ws_expect_text(p, "answer");
    ws_expect_close(p, LS_WS_NORMAL);
    ws_say_close(p, LS_WS_NORMAL, "");
    ws_await(p, &p->ended, 1);
    assert_int_equal(p->messages, 1);
    expect_tcp_end(p);
}

/* ---- inside events ---------------------------------------------------------------------------------------------- */

static void call_in_event(void (*fn)(ws_place *p), unsigned code)
{
    ws_place p;
    ws_open(&p, false);
    p.on_message = fn;
    ws_say_text(&p, "one");
    ws_say_text(&p, "two");
    if (code != 0) {
        ws_expect_close(&p, code);
        ws_say_close(&p, code, "");
    }
    ws_await(&p, &p.ended, 1);
    assert_int_equal(p.messages, 1);
    ws_expect_end(&p);
    ws_hang_up(&p);
    ws_await_freed(&p);
    ws_place_close(&p);
}

TEST(closes_and_aborts_in_an_event)
{
    call_in_event(do_close_twice, LS_WS_NORMAL);
    call_in_event(ws_do_abort, 0);
}

TEST_IN(ws_place, p, aborts_anywhere)
{
    ws_make(p, NULL); /* before ls_ws_begin */
    ws_disconnect(p);
    assert_int_equal(p->code, LS_WS_ABNORMAL);
    ws_connect(p); /* idle */
    ws_disconnect(p);
    ws_connect(p); /* inside a frame */
    ws_write(p, "\x81", 1);
    wire_pump(&p->wire);
    ws_disconnect(p);
    p->keep = true;
    ws_connect(p); /* a message waits */
    ws_say_text(p, "one");
    ws_await(p, &p->messages, 1);
    ws_inside(p, ws_do_abort);
    ws_inside(p, do_consume);
    ws_await_freed(p);
    p->keep = false;
    ws_connect(p); /* our Close frame is sent */
    ws_inside(p, do_close);
    ws_disconnect(p);
    ws_connect(p); /* we wait for the peer's end of the stream */
    ws_say_close(p, LS_WS_NORMAL, "");
    ws_await(p, &p->ended, 1);
    ws_disconnect(p);
    assert_int_equal(p->code, LS_WS_NORMAL);
}

/* The deadline of the receive has cancelled it, and the user closes before the packet of the receive runs. */
TEST_IN(ws_place, p, close_meets_a_deadline)
{
    p->config.ping_ms = 20;
    ws_connect(p);
    wire_step(&p->wire); /* the tick */
    ws_inside(p, do_close);
    ws_expect_close(p, LS_WS_NORMAL);
    wire_pump(&p->wire);
    assert_int_equal(p->ended, 0);
    ws_say_close(p, 4001, "later");
    ws_expect_end(p);
    assert_int_equal(p->code, 4001);
    ws_hang_up(p);
    ws_await_freed(p);
}

TEST_IN(ws_place, p, close_before_begin)
{
    ws_make(p, NULL);
    ws_inside(p, do_close);
    ws_inside(p, ws_do_begin);
    ws_expect_close(p, LS_WS_NORMAL);
    ws_say_close(p, LS_WS_NORMAL, "");
    expect_tcp_end(p);
}

/* ---- lost connections ------------------------------------------------------------------------------------------- */

TEST_IN(ws_place, p, peer_hangs_up)
{
    static const char *const before[] = {"", "\x81", "\x81\x85\1\2\3\4ab", "\x01\x81\1\2\3\4a"};
    for (int reset = 0; reset <= 1; reset++) {
        for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
            const struct linger now = {.l_onoff = 1};
            ws_connect(p);
            ws_write(p, before[i], strlen(before[i]));
            wire_pump(&p->wire);
            if (reset) assert_int_equal(setsockopt(p->wire.theirs, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
            ws_hang_up(p);
            ws_await_freed(p);
            assert_int_equal(p->code, LS_WS_ABNORMAL);
            assert_int_equal(p->messages, 0);
        }
    }
    ws_connect(p); /* a message before the end is delivered */
    ws_say_text(p, "last words");
    ws_hang_up(p);
    ws_await_freed(p);
    assert_string_equal(p->last, "last words");
    assert_int_equal(p->code, LS_WS_ABNORMAL);
}

/* ---- refused frames --------------------------------------------------------------------------------------------- */

TEST_IN(ws_place, p, refuses_invalid_frames)
{
    static const struct {
        const char *bytes;
        size_t len;
        unsigned code;
    } cases[] = {
        {"\x81\x05hello", 7, LS_WS_PROTOCOL_ERROR},                                       /* not masked */
        {"\xc1\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* RSV1 was not negotiated */
        {"\xa1\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* RSV2 */
        {"\x83\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* reserved opcode */
        {"\x8b\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* reserved control opcode */
        {"\x09\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* fragmented ping */
        {"\x89\xfe\0\x80", 4, LS_WS_PROTOCOL_ERROR},                                      /* long ping */
        {"\x82\xfe\0\x7d", 4, LS_WS_PROTOCOL_ERROR},                                      /* length not minimal */
        {"\x80\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* nothing to continue */
        {"\x01\x81\0\0\0\0a\x01\x81\0\0\0\0a", 14, LS_WS_PROTOCOL_ERROR},                 /* a message in a message */
        {"\x01\x81\0\0\0\0a\x80\x81\0\0\0\0b\x80\x80\0\0\0\0", 20, LS_WS_PROTOCOL_ERROR}, /* it has ended */
        {"\x88\x81\0\0\0\0a", 7, LS_WS_PROTOCOL_ERROR},                                   /* Close with one byte */
        {"\x88\x82\0\0\0\0\x03\xed", 8, LS_WS_PROTOCOL_ERROR},                            /* code 1005 */
        {"\x88\x82\0\0\0\0\0\0", 8, LS_WS_PROTOCOL_ERROR},                                /* code 0 */
        {"\x88\x83\0\0\0\0\x03\xe8\xff", 9, LS_WS_BAD_DATA},                              /* reason */
        {"\x81\x81\0\0\0\0\xff", 7, LS_WS_BAD_DATA},
        {"\x82\xff\0\0\0\1\0\0\0\0\0\0\0\0", 14, LS_WS_TOO_BIG},
    };
    static char garbage[1 << 20];
    memset(garbage, 0xff, sizeof garbage);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ws_connect(p);
        ws_write(p, cases[i].bytes, cases[i].len);
        ws_write(p, garbage, sizeof garbage); /* the peer reads the Close frame although it goes on sending */
        ws_expect_close(p, cases[i].code);
        assert_int_equal(p->code, cases[i].code);
        assert_true(strlen(p->reason) > 0);
        ws_expect_end(p);
        wire_pump(&p->wire);
        assert_int_equal(p->freed, 0); /* it lingers */
        ws_hang_up(p);
        ws_await_freed(p);
    }
    p->config.client = true;
    ws_connect(p);
    ws_write(p, "\x81\x81\0\0\0\0a", 7); /* masked */
    ws_expect_close(p, LS_WS_PROTOCOL_ERROR);
    ws_expect_end(p); /* a client that fails the connection does not wait */
    ws_hang_up(p);
    ws_await_freed(p);
}

/* ---- deadlines -------------------------------------------------------------------------------------------------- */

TEST_IN(ws_place, p, pings_an_idle_peer)
{
    p->config.ping_ms = 20;
    p->config.pong_ms = 60000;
    ws_connect(p);
    for (int i = 0; i < 3; i++) {
        ws_expect(p, LS_WS_PING, "", 0);
        ws_say(p, WS_FIN | LS_WS_PONG, "", 0);
    }
    assert_int_equal(p->ended, 0);
    ws_disconnect(p);
    p->config.pong_ms = 20; /* the peer does not answer */
    ws_connect(p);
    ws_await_freed(p);
    assert_int_equal(p->code, LS_WS_ABNORMAL);
    p->config.ping_ms = 0; /* no pings: pong_ms alone ends nothing */
    ws_connect(p);
    (void)wire_try(&p->wire, 60);
    assert_int_equal(p->ended, 0);
    ws_disconnect(p);
}

/* While a message waits, the peer is not judged. */
TEST_IN(ws_place, p, message_that_waits_stops_the_clock)
{
    p->config.ping_ms = p->config.pong_ms = p->config.message_ms_max = 10;
    p->keep = true;
    ws_connect(p);
    ws_say_text(p, "one");
    ws_write(p, "\x81", 1);
    ws_await(p, &p->messages, 1);
    (void)wire_try(&p->wire, 60);
    assert_int_equal(p->ended, 0);
    ws_inside(p, do_consume); /* now the rest of the second one is late */
    ws_expect_close(p, LS_WS_POLICY);
    ws_disconnect(p);
}

TEST_IN(ws_place, p, message_must_end_in_time)
{
    p->config.message_ms_max = 50;
    ws_connect(p);
    ws_write(p, "\x81", 1);
    ws_expect_close(p, LS_WS_POLICY);
    assert_int_equal(p->code, LS_WS_POLICY);
    ws_disconnect(p);

    ws_connect(p); /* fragments without end do not extend it, nor do pings */
    ws_say(p, LS_WS_TEXT, "a", 1);
    while (p->ended == 0) {
        char frames[64];
        size_t len = ws_frame(p, frames, LS_WS_CONTINUATION, "a", 1);
        len += ws_frame(p, frames + len, WS_FIN | LS_WS_PONG, "", 0);
        ws_write(p, frames, len);
        (void)wire_try(&p->wire, 1);
    }
    assert_int_equal(p->code, LS_WS_POLICY);
    ws_disconnect(p);
    p->echo = true;
    ws_connect(p); /* whole messages go on for longer */
    for (const uint64_t until_ms = ls_clock_coarse_ms() + 150; ls_clock_coarse_ms() < until_ms;) {
        ws_say_text(p, "whole");
        ws_expect_text(p, "whole");
    }
    ws_disconnect(p);
}

TEST_IN(ws_place, p, closing_handshake_must_end_in_time)
{
    for (int client = 0; client <= 1; client++) {
        p->config.client = client;
        p->config.close_ms_max = 30;
        ws_connect(p); /* the peer does not answer */
        ws_inside(p, do_close);
        ws_await_freed(p);
        assert_int_equal(p->code, LS_WS_ABNORMAL);
        ws_connect(p); /* it sends data without end instead */
        ws_inside(p, do_close);
        while (p->freed == 0) {
            char frame[64];
            (void)send(p->wire.theirs, frame, ws_frame(p, frame, WS_FIN | LS_WS_TEXT, "data", 4),
                       MSG_DONTWAIT | MSG_NOSIGNAL);
            (void)wire_try(&p->wire, 1);
        }
        assert_int_equal(p->code, LS_WS_ABNORMAL);
        ws_await_freed(p);
        ws_connect(p); /* it does not close the connection */
        ws_say_close(p, LS_WS_NORMAL, "");
        ws_await(p, &p->freed, 1);
        assert_int_equal(p->code, LS_WS_NORMAL);
        ws_await_freed(p);
        p->config.close_ms_max = 0; /* we do not wait */
        ws_connect(p);
        ws_say_close(p, LS_WS_NORMAL, "");
        ws_await_freed(p);
    }
}

enum { PLENTY_BYTES = 8 << 20 };

static void do_send_plenty(ws_place *p)
{
    static char bytes[PLENTY_BYTES / 64];
    for (int i = 0; i < 64; i++) {
        ls_slice slice = ls_slice_static(bytes, sizeof bytes);
        assert_true(ls_ws_send(&p->wire.place.ctx, p->ws, LS_WS_BINARY, &slice, 1) >= 0);
    }
    assert_int_equal(ls_ws_flush(&p->wire.place.ctx, p->ws), LS_PENDING);
}

TEST_IN(ws_place, p, peer_that_reads_nothing)
{
    p->config.send_stall_ms_max = 50;
    ws_connect(p);
    ws_inside(p, do_send_plenty);
    ws_await_freed(p);
    assert_int_equal(p->code, LS_WS_ABNORMAL);

    p->config.send_stall_ms_max = 0; /* no limit, but for the last bytes */
    p->config.close_ms_max = 50;
    ws_connect(p);
    ws_inside(p, do_send_plenty);
    ws_inside(p, do_close);
    ws_await_freed(p);
    assert_int_equal(p->code, LS_WS_ABNORMAL);

    p->config.close_ms_max = 60000; /* a slow peer gets all, our Close frame too */
    ws_connect(p);
    ws_inside(p, do_send_plenty);
    ws_inside(p, do_close);
    for (int i = 0; i < 64; i++) {
        ls_ws_head head;
        free(ws_hear(p, &head));
        assert_int_equal(head.length, PLENTY_BYTES / 64);
    }
    ws_expect_close(p, LS_WS_NORMAL);
    ws_say_close(p, LS_WS_NORMAL, "");
    expect_tcp_end(p);
}
