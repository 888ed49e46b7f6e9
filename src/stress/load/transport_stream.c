/* transport_stream.c - a connection on a stream (net/stream.h): see transport.h.
 *
 * The worker's thread alone waits for packets of its port, so it owns all its streams. The time limits are those of the
 * worker; the streams have no deadlines of their own. */
#include <stdlib.h>
#include <string.h>

#include "net/stream.h"
#include "stress/load/transport.h"
#include "stress/load/vu_handshake.h"
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
    (void)ctx;
    ls_stress_vu *u = vu_of(s);
    u->stream = NULL;
    ls_stream_free(s);
    ls_stress_vu_released(u);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    (void)ctx;
    ls_stress_vu_received(vu_of(s), result);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    (void)ctx;
    ls_stress_vu_sent(vu_of(s), err);
}

static const ls_stream_handler open_handler = {.received = received, .sent = sent, .closed = released};

/* The stream is connected. As ls_stress_handshake(). */
static int connected_stream(ls_stress_vu *u)
{
    ls_stream_handover(u->stream, &open_handler);
    return u->worker->plan->tls != NULL ? ls_stress_handshake(u, &open_handler) : LS_DONE;
}

static void connected(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    (void)ctx;
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

static void free_long(ls_external *external)
{
    free(external);
}

static bool put_long(ls_stress_vu *u, const char *bytes, size_t len)
{
    long_output *out = malloc(sizeof *out + len);
    if (out == NULL) return false;
    ls_external_init(&out->external, LS_BLOCK_EXTERNAL, free_long);
    memcpy(out->bytes, bytes, len);
    ls_slice slice = ls_slice_external(&out->external, out->bytes, len);
    if (ls_stream_push(&u->worker->ctx, u->stream, &slice) == LS_OK) return true;
    ls_slice_drop(&slice);
    return false;
}

static bool put(ls_stress_vu *u, const char *bytes, size_t len)
{
    if (len > LS_BLOCK_LARGE) return put_long(u, bytes, len);
    char *to = ls_stream_room(&u->worker->ctx, u->stream, len);
    if (to == NULL) return false;
    memcpy(to, bytes, len);
    ls_stream_commit(u->stream, len);
    return true;
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
    ls_stress_handshake_drop(u);
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
