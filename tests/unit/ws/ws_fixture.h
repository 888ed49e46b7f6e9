/* ws_fixture.h - a WebSocket connection over a real socket, driven step by step: the test dispatches the packets, is
 * the user of the connection, and writes and reads the frames of the peer. Include it first. */
#ifndef TESTS_UNIT_PROTO_WS_FIXTURE_H
#define TESTS_UNIT_PROTO_WS_FIXTURE_H

#include "net/stream/stream_fixture.h"

#include "ws/websocket.h"

enum { WS_TEXT_MAX = 1 << 16 };

typedef struct ws_place {
    wire wire; /* its port and the other end */
    ls_actor actor;
    ls_ws_config config;
    ls_ws *ws; /* NULL after `freed` */
    bool echo; /* send each message back */
    bool keep; /* leave each message waiting */
    void (*on_message)(struct ws_place *p);
    void (*on_drained)(struct ws_place *p);
    int messages, drained, ended, freed;
    bool text; /* of the last message */
    unsigned slices;
    size_t bytes;
    char *last; /* its bytes */
    unsigned code;
    char reason[128];
} ws_place;

static inline ws_place *ws_place_of(ls_ws *ws)
{
    ws_place *p;
    memcpy(&p, ls_ws_user(ws), sizeof p);
    return p;
}

/* Keep a copy of the message that waits. */
static inline void ws_look(ws_place *p)
{
    const ls_ws_message *m = ls_ws_message_get(p->ws);
    size_t at = 0;
    assert_non_null(m);
    assert_true(m->count >= 1);
    free(p->last);
    p->last = malloc(m->bytes + 1);
    p->text = m->text;
    p->slices = m->count;
    p->bytes = m->bytes;
    for (unsigned i = 0; i < m->count; i++) {
        memcpy(p->last + at, m->slices[i].ptr, m->slices[i].len);
        at += m->slices[i].len;
    }
    assert_int_equal(at, m->bytes);
    p->last[at] = '\0';
}

static inline void ws_echo(ws_place *p)
{
    const ls_ws_message *m = ls_ws_message_get(p->ws);
    ls_slice *slices = calloc(m->count, sizeof *slices);
    for (unsigned i = 0; i < m->count; i++) {
        slices[i] = m->slices[i];
        ls_block_hold(slices[i].block);
    }
    assert_true(ls_ws_send(&p->wire.place.ctx, p->ws, m->text ? LS_WS_TEXT : LS_WS_BINARY, slices, m->count) >= 0);
    free(slices);
}

static inline void ws_on_message(ls_thread_ctx *ctx, ls_ws *ws)
{
    ws_place *p = ws_place_of(ws);
    assert_ptr_equal(ctx->inside, &p->actor);
    assert_int_equal(p->ended, 0);
    p->messages++;
    ws_look(p);
    if (p->echo) ws_echo(p);
    if (p->on_message != NULL) p->on_message(p);
    if (!p->keep) ls_ws_consume(ctx, ws);
}

static inline void ws_on_drained(ls_thread_ctx *ctx, ls_ws *ws)
{
    ws_place *p = ws_place_of(ws);
    assert_ptr_equal(ctx->inside, &p->actor);
    assert_int_equal(p->ended, 0);
    p->drained++;
    if (p->on_drained != NULL) p->on_drained(p);
}

static inline void ws_on_ended(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t len)
{
    ws_place *p = ws_place_of(ws);
    assert_ptr_equal(ctx->inside, &p->actor);
    p->ended++;
    p->code = code;
    assert_true(len < sizeof p->reason);
    memcpy(p->reason, reason, len);
    p->reason[len] = '\0';
    assert_true(ls_ws_closing(ws));
}

static inline void ws_on_freed(ls_thread_ctx *ctx, ls_ws *ws)
{
    ws_place *p = ws_place_of(ws);
    assert_ptr_equal(ctx->inside, &p->actor);
    p->freed++;
    p->ws = NULL;
}

static const ls_ws_events ws_events = {ws_on_message, ws_on_drained, ws_on_ended, ws_on_freed};

/* Open the port. The deadlines are long: a test shortens the one that it waits for before ws_open. */
static inline void ws_place_open(ws_place *p)
{
    memset(p, 0, sizeof *p);
    wire_place_open(&p->wire);
    ls_actor_init(&p->actor);
    p->config = (ls_ws_config){.message_bytes_max = 1 << 20,
                               .queue_bytes_max = 1 << 20,
                               .write_bytes_high = 65536,
                               .ping_ms = 60000,
                               .pong_ms = 60000,
                               .message_ms_max = 60000,
                               .close_ms_max = 60000,
                               .send_stall_ms_max = 60000};
}

/* Run `fn` inside the actor. */
static inline void ws_inside(ws_place *p, void (*fn)(ws_place *p))
{
    assert_true(ls_actor_try_enter(&p->actor, &p->wire.place.ctx));
    fn(p);
    ls_actor_leave(&p->actor, &p->wire.place.ctx);
}

static inline void ws_do_begin(ws_place *p)
{
    ls_ws_begin(&p->wire.place.ctx, p->ws);
}

/* Make the connection, without the begin. */
static inline void ws_make(ws_place *p, ls_ws_deflate *deflate)
{
    ls_stream *s;
    int ours;
    net_tcp_pair(&ours, &p->wire.theirs);
    p->messages = p->drained = p->ended = p->freed = 0;
    assert_int_equal(ls_stream_open(p->wire.place.port, p->wire.deadlines, ours, false, NULL, &ls_ws_stream_handler,
                                    ls_ws_room(sizeof p), &s),
                     LS_OK);
    ls_stream_set_actor(s, &p->actor);
    p->ws = ls_ws_open(s, &p->config, deflate, &ws_events);
    memcpy(ls_ws_user(p->ws), &p, sizeof p);
}

static inline void ws_connect(ws_place *p)
{
    ws_make(p, NULL);
    ws_inside(p, ws_do_begin);
}

static inline void ws_open(ws_place *p, bool client)
{
    ws_place_open(p);
    p->config.client = client;
    ws_connect(p);
}

typedef ws_place ws_server, ws_client; /* a place, and in it a connection of this role */

static inline void ws_server_open(ws_server *p)
{
    ws_open(p, false);
}

static inline void ws_client_open(ws_client *p)
{
    ws_open(p, true);
}

static inline void ws_do_abort(ws_place *p)
{
    ls_ws_abort(&p->wire.place.ctx, p->ws);
}

static inline void ws_await(ws_place *p, const int *count, int want)
{
    wire_await(&p->wire, count, want);
}

/* The connection ends by itself. */
static inline void ws_await_freed(ws_place *p)
{
    ws_await(p, &p->freed, 1);
    assert_int_equal(p->ended, 1);
    if (p->wire.theirs >= 0) close(p->wire.theirs);
    p->wire.theirs = -1;
}

static inline void ws_disconnect(ws_place *p)
{
    if (p->ws != NULL) ws_inside(p, ws_do_abort);
    ws_await_freed(p);
}

static inline void ws_place_close(ws_place *p)
{
    free(p->last);
    p->last = NULL;
    wire_place_close(&p->wire);
}

static inline void ws_close(ws_place *p)
{
    ws_disconnect(p);
    ws_place_close(p);
}

static inline void ws_server_close(ws_server *p)
{
    ws_close(p);
}

static inline void ws_client_close(ws_client *p)
{
    ws_close(p);
}

/* ---- the peer --------------------------------------------------------------------------------------------------- */

/* Write a frame as the peer of `p` does; returns its length. `flags`: of the first byte. */
enum { WS_FIN = 0x80, WS_RSV1 = 0x40 };

static inline size_t ws_frame(const ws_place *p, char *out, unsigned first, const void *payload, size_t len)
{
    ls_ws_head head = {.length = len,
                       .opcode = first & 15,
                       .fin = first & WS_FIN,
                       .compressed = first & WS_RSV1,
                       .masked = !p->config.client,
                       .key = {0x12, 0xf4, 0x56, 0x9a}};
    const size_t n = ls_ws_head_write(&head, out);
    if (len > 0) memcpy(out + n, payload, len);
    if (head.masked) ls_ws_mask(out + n, len, head.key, 0);
    return n + len;
}

/* Send bytes as the peer; packets are dispatched while the socket takes no more. */
static inline void ws_write(ws_place *p, const char *bytes, size_t len)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (len > 0) {
        const ssize_t n = send(p->wire.theirs, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        assert_true(ls_clock_coarse_ms() < until_ms);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else {
            (void)wire_try(&p->wire, 10);
        }
    }
}

static inline void ws_say(ws_place *p, unsigned first, const void *payload, size_t len)
{
    char *bytes = malloc(len + LS_WS_HEAD_BYTES_MAX);
    ws_write(p, bytes, ws_frame(p, bytes, first, payload, len));
    free(bytes);
}

static inline void ws_say_text(ws_place *p, const char *text)
{
    ws_say(p, WS_FIN | LS_WS_TEXT, text, strlen(text));
}

static inline void ws_say_close(ws_place *p, unsigned code, const char *reason)
{
    char payload[LS_WS_CONTROL_BYTES_MAX] = {(char)(code >> 8), (char)code};
    memcpy(payload + 2, reason, strlen(reason));
    ws_say(p, WS_FIN | LS_WS_CLOSE, payload, code == LS_WS_NO_CODE ? 0 : 2 + strlen(reason));
}

/* Read exactly len bytes as the peer, and dispatch packets meanwhile. false: the end of the stream. */
static inline bool ws_read(ws_place *p, char *to, size_t len)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (len > 0) {
        const ssize_t n = recv(p->wire.theirs, to, len, MSG_DONTWAIT);
        assert_true(ls_clock_coarse_ms() < until_ms);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return false;
        if (n > 0) {
            to += n;
            len -= (size_t)n;
        } else {
            (void)wire_try(&p->wire, 10);
        }
    }
    return true;
}

/* Read a frame as the peer; returns its payload, to be freed. */
static inline char *ws_hear(ws_place *p, ls_ws_head *head)
{
    const ls_ws_rules rules = {.masked = p->config.client, .compressed = true};
    char bytes[LS_WS_HEAD_BYTES_MAX];
    const char *why = "the connection has ended";
    size_t have = 0;
    int n = 0;
    while (n == 0) {
        assert_true(have < sizeof bytes);
        assert_true(ws_read(p, bytes + have, 1));
        n = ls_ws_head_parse(bytes, ++have, &rules, head, &why);
        if (n < 0) fail_msg("%s", why);
    }
    char *payload = malloc((size_t)head->length + 1);
    assert_true(ws_read(p, payload, (size_t)head->length));
    if (head->masked) ls_ws_mask(payload, (size_t)head->length, head->key, 0);
    payload[head->length] = '\0';
    return payload;
}

/* The peer reads this frame next. */
static inline void ws_expect(ws_place *p, unsigned opcode, const void *payload, size_t len)
{
    ls_ws_head head;
    char *bytes = ws_hear(p, &head);
    assert_int_equal(head.opcode, opcode);
    assert_true(head.fin);
    assert_int_equal(head.length, len);
    assert_memory_equal(bytes, payload, len);
    free(bytes);
}

static inline void ws_expect_text(ws_place *p, const char *text)
{
    ws_expect(p, LS_WS_TEXT, text, strlen(text));
}

/* The peer reads a Close frame with this code next. */
static inline void ws_expect_close(ws_place *p, unsigned code)
{
    ls_ws_head head;
    char *bytes = ws_hear(p, &head);
    assert_int_equal(head.opcode, LS_WS_CLOSE);
    if (code == LS_WS_NO_CODE)
        assert_int_equal(head.length, 0);
    else
        assert_int_equal((unsigned char)bytes[0] << 8 | (unsigned char)bytes[1], code);
    free(bytes);
}

/* The peer reads the end of the stream next. */
static inline void ws_expect_end(ws_place *p)
{
    char byte;
    assert_false(ws_read(p, &byte, 1));
}

static inline void ws_hang_up(ws_place *p)
{
    close(p->wire.theirs);
    p->wire.theirs = -1;
}

#endif
