/* transport_stream.c - a connection on a stream (net/stream/stream.h): see transport.h.
 *
 * The worker's thread alone waits for packets of its port, so it owns all its streams. The time limits are those of
 * the worker; the streams have no deadlines of their own. */
#include <stdlib.h>
#include <string.h>

#include "stress/load/worker.h"

/* Output longer than a block, in memory of its own. */
typedef struct long_output {
    ls_external external; /* first */
    char bytes[];
} long_output;

static ls_stress_vu *vu_of(ls_stream *s)
{
    return *(ls_stress_vu **)ls_stream_user(s);
}

static void released(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stress_vu *u = vu_of(s);
    u->stream = NULL;
    ls_handshake_close(&u->handshake);
    ls_stream_free(s);
    ls_stress_vu_released(u);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_stress_vu_received(vu_of(s), result);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_stress_vu_sent(vu_of(s), err);
}

static const ls_stream_handler open_handler = {.received = received, .sent = sent, .closed = released};

/* ---- connect ---------------------------------------------------------------------------------------------------- */

/* The result of a step of the TLS handshake. LS_DONE: the stream encrypts; LS_PENDING; or LS_E*, counted. */
static int tls_stepped(ls_stress_vu *u, int err)
{
    ls_stress_worker *w = u->worker;
    if (err == LS_PENDING) return err;
    w->clock_stale = true;
    if (err < 0) {
        const char *why = ls_handshake_why(&u->handshake, err);
        ls_stress_vu_handshake_failed(u, why[0] != '\0' ? why : ls_err_text(err), "", 0);
        return err;
    }
    const uint64_t now_ns = ls_stress_worker_now(w), start_ns = u->handshake_start_ns;
    const bool resumed = ls_tls_resumed(ls_stream_filter(u->stream));
    ls_counter_add(resumed ? &w->count.handshakes_resumed : &w->count.handshakes_full, 1);
    ls_histogram_record(w->count.handshake, now_ns > start_ns ? now_ns - start_ns : 0);
    ls_stream_handover(u->stream, &open_handler);
    return LS_DONE;
}

static void tls_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_stress_vu *u = vu_of(s);
    ls_stress_vu_connected(u, tls_stepped(u, ls_handshake_received(ctx, s, &u->handshake, result)));
}

static void tls_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_stress_vu *u = vu_of(s);
    ls_stress_vu_connected(u, tls_stepped(u, ls_handshake_sent(ctx, s, &u->handshake, err)));
}

static const ls_stream_handler tls_handler = {.received = tls_received, .sent = tls_sent, .closed = released};

/* The stream is connected. As tls_stepped(). */
static int connected_stream(ls_stress_vu *u)
{
    const ls_stress_plan *plan = u->worker->plan;
    ls_stream_handover(u->stream, plan->tls != NULL ? &tls_handler : &open_handler);
    if (plan->tls == NULL) return LS_DONE;
    u->step = LS_STRESS_STEP_TLS;
    u->handshake_start_ns = ls_stress_worker_now(u->worker);
    const int err = ls_handshake_open(&u->handshake, plan->tls, plan->host);
    return tls_stepped(u, err < 0 ? err : ls_handshake_begin(&u->worker->ctx, u->stream, &u->handshake));
}

static void connected(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_stress_vu *u = vu_of(s);
    if (result < 0) {
        ls_stress_vu_connected(u, (int)result);
        return;
    }
    ls_stress_vu_connected(u, connected_stream(u));
}

static const ls_stream_handler connecting_handler = {.received = connected, .sent = NULL, .closed = released};

static int open_stream(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    int err =
        ls_stream_open_unconnected(w->port, w->deadlines, w->addr.family, &connecting_handler, sizeof u, &u->stream);
    if (err < 0) return err;
    *(ls_stress_vu **)ls_stream_user(u->stream) = u;
    u->attached = true;
    u->recv_room = LS_BLOCK_SMALL;
    err = ls_stream_connect(&w->ctx, u->stream, &w->to);
    return err == LS_DONE ? connected_stream(u) : err;
}

/* ---- send, receive, close --------------------------------------------------------------------------------------- */

static bool put_long(ls_stress_vu *u, const char *bytes, size_t len)
{
    long_output *out = malloc(sizeof *out + len);
    if (out == NULL) return false;
    ls_external_init(&out->external, LS_BLOCK_EXTERNAL, ls_external_free);
    memcpy(out->bytes, bytes, len);
    ls_slice slice = ls_slice_external(&out->external, out->bytes, len);
    if (ls_stream_push(&u->worker->ctx, u->stream, &slice) == LS_OK) return true;
    ls_slice_drop(&slice);
    return false;
}

static bool put(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (len > LS_BLOCK_LARGE) return put_long(u, bytes, len);
    return ls_stream_put(&u->worker->ctx, u->stream, bytes, len) == LS_OK;
}

static bool put_static(ls_stress_vu *u, const char *bytes, size_t len)
{
    const ls_slice slice = ls_slice_static(bytes, len);
    return ls_stream_push(&u->worker->ctx, u->stream, &slice) == LS_OK;
}

static int send(ls_stress_vu *u)
{
    return ls_stream_flush(&u->worker->ctx, u->stream);
}

static int receive(ls_stress_vu *u, int64_t *result)
{
    return ls_stream_recv(&u->worker->ctx, u->stream, NULL, u->recv_room, result);
}

static bool deliver(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    const ls_slice data = ls_stream_take(u->stream);
    ls_counter_add(&w->count.bytes_in, (uint64_t)result);
    /* A receive that fills its block is part of a large response: the next one gets a large block. */
    u->recv_room = (uint32_t)result == data.block->cap ? LS_BLOCK_LARGE
                   : result > LS_BLOCK_SMALL           ? u->recv_room
                                                       : LS_BLOCK_SMALL;
    const bool ok = u->proto->received(u, data.ptr, data.len);
    ls_block_drop(data.block);
    return ok;
}

static void close_stream(ls_stress_vu *u)
{
    ls_stream_close(&u->worker->ctx, u->stream);
}

static void free_stream(ls_stress_vu *u)
{
    ls_handshake_close(&u->handshake);
    if (u->stream != NULL) ls_stream_free(u->stream);
}

const ls_stress_transport ls_stress_stream_transport = {
    .open = open_stream,
    .put = put,
    .put_static = put_static,
    .send = send,
    .receive = receive,
    .deliver = deliver,
    .close = close_stream,
    .free = free_stream,
};
