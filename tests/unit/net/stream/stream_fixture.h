/* stream_fixture.h - a stream over a real socket, driven step by step: the test dispatches the packets and is the
 * other end. With LUASERVE_TEST_CARRIED in the environment the stream has a carrier, which has the socket. Include it
 * first. */
#ifndef TESTS_UNIT_NET_STREAM_FIXTURE_H
#define TESTS_UNIT_NET_STREAM_FIXTURE_H

#include "port/port_fixture.h"

#include "net/sock/sock.h"
#include "net/stream/carrier.h"
#include "net/stream/deadline.h"
#include "net/stream/stream.h"
#include "sched/actor.h"

enum { WIRE_PATIENCE_MS = 90000 };

typedef struct wire_carrier {
    ls_carrier base;
    ls_port *port;
    ls_sock *sock;
    bool closed;
    int released; /* number of calls */
} wire_carrier;

typedef struct wire { /* a stream, its port, and its other end */
    net_place place;
    wire_carrier carrier;
    ls_deadlines *deadlines;
    ls_stream *s; /* NULL after `closed` */
    bool closing; /* ls_stream_close was called */
    int ours, theirs;
    int received, sent, closed; /* number of calls */
    int64_t result;             /* of the last receive */
    int sent_err;
} wire;

static inline wire *wire_of(ls_stream *s)
{
    wire *w;
    memcpy(&w, ls_stream_user(s), sizeof w);
    return w;
}

static inline void wire_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    wire_of(s)->received++;
    wire_of(s)->result = result;
}

static inline void wire_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    wire_of(s)->sent++;
    wire_of(s)->sent_err = err;
}

static inline void wire_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    wire *w = wire_of(s);
    w->closed++;
    w->s = NULL;
    ls_stream_free(s);
}

static const ls_stream_handler wire_handler = {.received = wire_received, .sent = wire_sent, .closed = wire_closed};

/* ---- the carrier ------------------------------------------------------------------------------------------------ */

static inline wire_carrier *wire_carrier_of(const ls_carrier *carrier)
{
    return (wire_carrier *)(uintptr_t)carrier;
}

static inline int wire_carrier_recv(ls_thread_ctx *ctx, ls_carrier *c, ls_op *op, void *ptr, uint32_t len)
{
    return ls_op_recv(ctx, wire_carrier_of(c)->sock, op, ptr, len);
}

static inline int wire_carrier_send(ls_thread_ctx *ctx, ls_carrier *c, ls_op *op, ls_slice *slices, uint16_t count,
                                    const ls_file_range *file)
{
    return ls_op_send(ctx, wire_carrier_of(c)->sock, op, slices, count, file);
}

static inline int wire_carrier_shutdown(ls_thread_ctx *ctx, ls_carrier *c)
{
    return ls_sock_shutdown(wire_carrier_of(c)->sock);
}

static inline int wire_carrier_watch(ls_thread_ctx *ctx, ls_carrier *c, ls_op *op)
{
    return ls_op_watch(ctx, wire_carrier_of(c)->sock, op);
}

static inline bool wire_carrier_unwatch(ls_carrier *c, ls_op *op)
{
    return ls_op_unwatch(wire_carrier_of(c)->sock, op);
}

static inline void wire_carrier_cancel(ls_carrier *c, unsigned what)
{
    wire_carrier *wc = wire_carrier_of(c);
    assert_int_equal(wc->released, 0);
    if (!wc->closed) ls_sock_cancel(wc->port, wc->sock, ls_sock_generation(wc->sock), what);
}

static inline uint32_t wire_carrier_progress_ms(const ls_carrier *c)
{
    return ls_sock_progress_ms(wire_carrier_of(c)->sock);
}

static inline uint32_t wire_carrier_progress_take(ls_carrier *c)
{
    return ls_sock_progress_take(wire_carrier_of(c)->sock);
}

static inline int wire_carrier_local(const ls_carrier *c, ls_addr *out)
{
    return ls_sock_local(ls_sock_fd(wire_carrier_of(c)->sock), out);
}

static inline void wire_carrier_close(ls_thread_ctx *ctx, ls_carrier *c)
{
    wire_carrier_of(c)->closed = true;
    ls_sock_close(ctx, wire_carrier_of(c)->sock);
}

static inline void wire_carrier_release(ls_thread_ctx *ctx, ls_carrier *c)
{
    assert_true(wire_carrier_of(c)->closed);
    wire_carrier_of(c)->released++;
}

static const ls_carrier_type wire_carrier_type = {wire_carrier_recv,        wire_carrier_send,
                                                  wire_carrier_shutdown,    wire_carrier_watch,
                                                  wire_carrier_unwatch,     wire_carrier_cancel,
                                                  wire_carrier_progress_ms, wire_carrier_progress_take,
                                                  wire_carrier_local,       NULL,
                                                  wire_carrier_close,       wire_carrier_release};

static inline bool wire_carried(void)
{
    return getenv("LUASERVE_TEST_CARRIED") != NULL;
}

#define WIRE_SOCK(w) \
    (wire_carried() ? (w)->carrier.sock : (w)->s->sock) /* for a test that includes stream_internal.h */

/* ---- the stream ------------------------------------------------------------------------------------------------- */

/* Open the port without a stream. */
static inline void wire_place_open(wire *w)
{
    memset(w, 0, sizeof *w);
    net_place_open(&w->place);
    assert_int_equal(ls_stream_deadlines_open(w->place.port, &w->deadlines), LS_OK);
}

/* Make a stream of `ours`, which is closed on failure, and count its callbacks from 0. */
static inline int wire_attach(wire *w, int ours, int theirs)
{
    w->ours = ours;
    w->theirs = theirs;
    w->received = w->sent = w->closed = 0;
    w->s = NULL;
    w->closing = false;
    w->carrier = (wire_carrier){.base = {&wire_carrier_type}, .port = w->place.port};
    int err = LS_OK;
    if (!wire_carried()) {
        err = ls_stream_open(w->place.port, w->deadlines, ours, false, NULL, &wire_handler, sizeof w, &w->s);
    } else if ((err = ls_sock_attach(w->place.port, ours, false, &w->carrier.sock)) < 0) {
        close(ours);
    } else {
        err = ls_stream_open_carried(w->deadlines, &w->carrier.base, NULL, &wire_handler, sizeof w, &w->s);
    }
    if (err == LS_OK) memcpy(ls_stream_user(w->s), &w, sizeof w);
    return err;
}

static inline void wire_connect(wire *w)
{
    int ours, theirs;
    net_tcp_pair(&ours, &theirs);
    assert_int_equal(wire_attach(w, ours, theirs), LS_OK);
}

static inline void wire_open(wire *w)
{
    wire_place_open(w);
    wire_connect(w);
}

/* Dispatch the next packet. */
static inline void wire_step(wire *w)
{
    const ls_packet packet = net_next(&w->place);
    ls_packet_dispatch(&w->place.ctx, &packet);
}

/* Dispatch one packet if there is one within ms. */
static inline bool wire_try(wire *w, int ms)
{
    ls_packet packet;
    if (ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, ms) == 0) return false;
    ls_packet_dispatch(&w->place.ctx, &packet);
    return true;
}

static inline void wire_pump(wire *w)
{
    while (wire_try(w, 0)) continue;
}

/* Dispatch packets until *count reaches `want`. */
static inline void wire_await(wire *w, const int *count, int want)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (*count < want) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        (void)wire_try(w, 100);
    }
    assert_int_equal(*count, want);
}

static inline void wire_stream_close(wire *w)
{
    w->closing = true;
    ls_stream_close(&w->place.ctx, w->s);
}

/* Close the stream, if it is open, and the other end. */
static inline void wire_disconnect(wire *w)
{
    if (w->s != NULL && !w->closing) wire_stream_close(w);
    wire_await(w, &w->closed, 1);
    assert_null(w->s);
    assert_int_equal(w->carrier.released, w->carrier.sock != NULL);
    if (w->theirs >= 0) close(w->theirs);
    w->theirs = -1;
}

static inline void wire_place_close(wire *w)
{
    wire_pump(w); /* a tick of a deadline that is not needed any more */
    net_place_release(&w->place);
    ls_deadlines_close(w->deadlines);
}

static inline void wire_close(wire *w)
{
    wire_disconnect(w);
    wire_place_close(w);
}

/* Start a receive that must wait. */
static inline void wire_recv_pending(wire *w, void *ptr, uint32_t len)
{
    int64_t result;
    assert_int_equal(ls_stream_recv(&w->place.ctx, w->s, ptr, len, &result), LS_PENDING);
}

/* Receive, and wait for the result. */
static inline int64_t wire_recv(wire *w, void *ptr, uint32_t len)
{
    int64_t result = 0;
    const int before = w->received;
    const int err = ls_stream_recv(&w->place.ctx, w->s, ptr, len, &result);
    if (err == LS_DONE) return result;
    if (err != LS_PENDING) return err;
    wire_await(w, &w->received, before + 1);
    return w->result;
}

/* The bytes that were just received into a block are `text`; give the block back. */
static inline void wire_expect_taken(wire *w, const char *text)
{
    ls_slice bytes = ls_stream_take(w->s);
    assert_int_equal(bytes.len, strlen(text));
    assert_memory_equal(bytes.ptr, text, bytes.len);
    ls_slice_drop(&bytes);
}

static inline void wire_queue(wire *w, const void *bytes, size_t len)
{
    char *to = ls_stream_room(&w->place.ctx, w->s, len);
    assert_non_null(to);
    memcpy(to, bytes, len);
    ls_stream_commit(w->s, len);
}

static inline void wire_queue_text(wire *w, const char *text)
{
    wire_queue(w, text, strlen(text));
}

static inline void wire_push_static(wire *w, const void *bytes, size_t len)
{
    const ls_slice slice = ls_slice_static(bytes, len);
    assert_int_equal(ls_stream_push(&w->place.ctx, w->s, &slice), LS_OK);
}

static inline int wire_flush(wire *w)
{
    return ls_stream_flush(&w->place.ctx, w->s);
}

/* The next bytes that the other end reads are `text`. */
static inline void wire_expect(wire *w, const char *text)
{
    char got[256];
    const size_t len = strlen(text);
    assert_true(len <= sizeof got);
    net_read(w->theirs, got, len);
    assert_memory_equal(got, text, len);
}

/* The other end reads the end of the stream. */
static inline void wire_expect_end(wire *w)
{
    char byte;
    assert_int_equal(read(w->theirs, &byte, 1), 0);
}

/* Queue more than the socket takes before the other end reads; the send is pending. */
enum { WIRE_PLENTY = 8 << 20 };

static inline void wire_block_the_send(wire *w)
{
    static const char plenty[WIRE_PLENTY];
    wire_push_static(w, plenty, sizeof plenty);
    assert_int_equal(wire_flush(w), LS_PENDING);
}

/* The other end reads and discards until the pending send has ended. */
static inline void wire_drain(wire *w)
{
    static char room[65536];
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    for (const int before = w->sent; w->sent == before;) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        const ssize_t n = recv(w->theirs, room, sizeof room, MSG_DONTWAIT);
        (void)wire_try(w, n > 0 ? 0 : 1);
    }
}

/* Give the thread's pool room for `bytes` only. */
static inline void wire_memory(wire *w, size_t bytes)
{
    ls_pool_close(w->place.ctx.pool);
    ls_pools_close(w->place.pools);
    assert_int_equal(ls_pools_open(bytes, &w->place.pools), LS_OK);
    net_ctx_open(&w->place, &w->place.ctx, 0);
}

#endif
