/* stream_fixture.h - a stream over a real socket, driven step by step: the test dispatches the packets and is the
 * other end. Include it first. */
#ifndef TESTS_UNIT_NET_STREAM_FIXTURE_H
#define TESTS_UNIT_NET_STREAM_FIXTURE_H

#include "port/port_fixture.h"

#include "net/stream/deadline.h"
#include "net/stream/stream.h"
#include "sched/actor.h"

enum { WIRE_PATIENCE_MS = 30000 };

typedef struct wire { /* a stream, its port, and its other end */
    net_place place;
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
    const int err = ls_stream_open(w->place.port, w->deadlines, ours, false, NULL, &wire_handler, sizeof w, &w->s);
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
