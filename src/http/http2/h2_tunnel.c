/* h2_tunnel.c - a WebSocket (RFC 8441), or another tunnel of CONNECT, over a stream of HTTP/2: the carrier of an
 * ls_stream, in place of a socket.
 *
 * The ls_stream belongs to the actor of the handler, as one that was upgraded from HTTP/1.1. Its operations use the
 * queues of the exchange: a receive takes from `in`, a send is done when little is left in `out`. What the connection
 * changes completes them (see `tell`). The exchange stays until the stream releases the carrier. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/http2/h2_conn_internal.h"
#include "net/stream/carrier.h"

/* An operation of the stream, and an op of our own that ends it: one that runs later keeps no result. */
typedef struct operation {
    ls_op *pending; /* NULL: none; under c->lock */
    ls_op later, *op;
    int64_t result;
} operation;

typedef struct ls_h2_tunnel {
    ls_carrier carrier; /* first */
    ls_h2_exchange *e;
    ls_port *port;
    operation rx, tx, watch;
    /* under c->lock */
    size_t tx_bytes;
    size_t left; /* of `out`, when it was last seen */
    /* any thread */
    _Atomic uint32_t progress_ms; /* when less was left than before */
    _Atomic uint32_t progress;    /* bytes since the last look */
} tunnel;

static tunnel *of(const ls_carrier *carrier)
{
    return (tunnel *)(void *)(uintptr_t)carrier;
}

static void completed(ls_thread_ctx *ctx, ls_op *later)
{
    const operation *o = LS_CONTAINER(later, operation, later);
    ls_op *op = o->op;
    atomic_store_explicit(&op->result, o->result, memory_order_relaxed);
    op->done(ctx, op);
}

/* End a pending operation, if there is one. Under c->lock. */
static void complete(ls_thread_ctx *ctx, operation *o, int64_t result)
{
    if (o->pending == NULL) return;
    o->op = o->pending;
    o->pending = NULL;
    o->result = result;
    o->later = (ls_op){.done = completed, .actor = o->op->actor};
    ls_workers_later(ctx, &o->later);
}

/* ---- receive: under c->lock ---------------------------------------------------------------------------------- */

/* Whether a receive completes now: *result. The bytes are copied: who receives a block also writes into it, after the
 * bytes and over them (a WebSocket has a mask), and here other frames share it. */
static bool take(ls_thread_ctx *ctx, ls_h2_exchange *e, ls_op *op, char *ptr, uint32_t len, int64_t *result)
{
    *result = 0;
    if (ls_h2_queue_first(&e->in) == NULL) {
        if (!e->in_end) *result = e->lost;
        return e->in_end || e->lost != 0;
    }
    if (ptr == NULL && len == 0) return true;
    if (ptr == NULL) {
        if ((op->recv.block = ls_block_get(ctx->pool, len)) == NULL) *result = LS_ENOMEM;
        if (*result < 0) return true;
        op->recv.ptr = ptr = op->recv.block->data;
    }
    size_t taken = 0;
    while (taken < len && ls_h2_queue_first(&e->in) != NULL) {
        ls_slice slice = ls_h2_queue_take(&e->in, len - taken);
        memcpy(ptr + taken, slice.ptr, slice.len);
        taken += slice.len;
        ls_slice_drop(&slice);
    }
    ls_pool_copied(ctx->pool, taken);
    e->credit += taken;
    *result = (int64_t)taken;
    return true;
}

static int recv(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op, void *ptr, uint32_t len)
{
    tunnel *t = of(carrier);
    int64_t result;
    op->recv.block = NULL;
    ls_mutex_lock(&t->e->c->lock);
    const bool done = take(ctx, t->e, op, ptr, len, &result);
    if (!done) {
        op->recv.ptr = ptr;
        op->len = len;
        t->rx.pending = op;
    }
    ls_h2_unlock(ctx, t->e, t->e->credit > 0);
    if (!done) return LS_PENDING;
    if (result < 0) return (int)result;
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    return LS_DONE;
}

/* ---- send ---------------------------------------------------------------------------------------------------- */

static bool has_sent(const ls_h2_exchange *e)
{
    return e->out.bytes < e->c->http->config.write_bytes_high;
}

static int send(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op, ls_slice *slices, uint16_t count,
                const ls_file_range *file)
{
    tunnel *t = of(carrier);
    ls_h2_exchange *e = t->e;
    int err = file != NULL ? LS_ENOTSUP : LS_OK;
    for (unsigned n = 0; n < count && err == LS_OK; n++) {
        if (slices[n].block != NULL) (void)ls_block_hold(slices[n].block);
        err = ls_h2_add(ctx, e, slices[n]);
    }
    if (err < 0) return err;
    ls_mutex_lock(&e->c->lock);
    const int lost = e->lost != 0 ? e->lost : e->closed ? LS_EPIPE : LS_OK;
    const bool done = has_sent(e);
    t->tx_bytes = ls_slices_bytes(slices, count);
    t->left = e->out.bytes;
    if (lost == 0 && !done) t->tx.pending = op;
    if (lost == 0 && !done) e->awaits |= LS_H2_AWAITS_SENT;
    ls_h2_unlock(ctx, e, true);
    if (lost < 0) return lost;
    if (!done) return LS_PENDING;
    atomic_store_explicit(&op->result, (int64_t)t->tx_bytes, memory_order_relaxed);
    return LS_DONE;
}

static int end_send(ls_thread_ctx *ctx, ls_carrier *carrier)
{
    ls_h2_exchange *e = of(carrier)->e;
    ls_mutex_lock(&e->c->lock);
    e->out_end = true;
    ls_h2_unlock(ctx, e, true);
    return LS_OK;
}

/* ---- the connection has changed something, or the stream wants no more ------------------------------------------ */

static void tell(ls_thread_ctx *ctx, ls_h2_exchange *e)
{
    tunnel *t = e->tunnel;
    int64_t result;
    if (e->out.bytes < t->left) {
        t->progress += (uint32_t)(t->left - e->out.bytes);
        t->progress_ms = (uint32_t)ls_clock_coarse_ms();
    }
    t->left = e->out.bytes;
    ls_op *rx = t->rx.pending;
    if (rx != NULL && take(ctx, e, rx, rx->recv.ptr, rx->len, &result)) {
        complete(ctx, &t->rx, result);
        ls_h2_list(ctx, e); /* for the credit */
    }
    if (e->lost != 0 || has_sent(e)) complete(ctx, &t->tx, e->lost != 0 ? e->lost : (int64_t)t->tx_bytes);
    if (e->lost != 0) complete(ctx, &t->watch, LS_ERESET);
}

static void cancel(ls_carrier *carrier, unsigned what)
{
    tunnel *t = of(carrier);
    operation *const all[] = {&t->rx, &t->tx};
    ls_mutex_lock(&t->e->c->lock);
    for (unsigned n = 0; n < 2; n++) {
        ls_op *op = what & (n == 0 ? LS_CANCEL_RECV : LS_CANCEL_SEND) ? all[n]->pending : NULL;
        if (op == NULL) continue;
        all[n]->pending = NULL;
        ls_port_post(t->port, op, LS_ECANCELED);
    }
    ls_mutex_unlock(&t->e->c->lock);
}

static int watch(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op)
{
    tunnel *t = of(carrier);
    ls_mutex_lock(&t->e->c->lock);
    const bool lost = t->e->lost != 0;
    if (!lost) t->watch.pending = op;
    ls_mutex_unlock(&t->e->c->lock);
    return lost ? LS_ERESET : LS_PENDING;
}

static bool unwatch(ls_carrier *carrier, ls_op *op)
{
    tunnel *t = of(carrier);
    ls_mutex_lock(&t->e->c->lock);
    const bool was = t->watch.pending == op;
    if (was) t->watch.pending = NULL;
    ls_mutex_unlock(&t->e->c->lock);
    return was;
}

static uint32_t progress_ms(const ls_carrier *carrier)
{
    return atomic_load(&of(carrier)->progress_ms);
}

static uint32_t progress_take(ls_carrier *carrier)
{
    return atomic_exchange(&of(carrier)->progress, 0);
}

static int local(const ls_carrier *carrier, ls_addr *out)
{
    *out = of(carrier)->e->c->local;
    return LS_OK;
}

static const ls_tls_peer *peer(const ls_carrier *carrier)
{
    return of(carrier)->e->c->peer;
}

/* ---- the ends ------------------------------------------------------------------------------------------------ */

static void close(ls_thread_ctx *ctx, ls_carrier *carrier)
{
    tunnel *t = of(carrier);
    ls_h2_exchange *e = t->e;
    ls_mutex_lock(&e->c->lock);
    complete(ctx, &t->rx, LS_ECANCELED);
    complete(ctx, &t->tx, LS_ECANCELED);
    complete(ctx, &t->watch, LS_ECANCELED);
    if (!e->out_end || !e->in_end) e->aborted = true; /* a reset, as a socket that is closed early sends */
    ls_h2_unlock(ctx, e, true);
}

static void release(ls_thread_ctx *ctx, ls_carrier *carrier)
{
    tunnel *t = of(carrier);
    ls_h2_exchange *e = t->e;
    ls_mutex_lock(&e->c->lock);
    e->tunnel = NULL;
    ls_h2_unlock(ctx, e, true); /* the connection may free the exchange now */
    free(t);
}

static const ls_carrier_type type = {.recv = recv,
                                     .send = send,
                                     .end_send = end_send,
                                     .watch = watch,
                                     .unwatch = unwatch,
                                     .cancel = cancel,
                                     .progress_ms = progress_ms,
                                     .progress_take = progress_take,
                                     .local = local,
                                     .peer = peer,
                                     .close = close,
                                     .release = release};

int ls_h2_tunnel(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                 const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out)
{
    ls_h2_exchange *e = LS_CONTAINER(x, ls_h2_exchange, x);
    if (!e->connects) return LS_ENOTSUP;
    if (e->head.extended && !ls_http_head_lists(&x->head, x->bytes, "upgrade", 7, protocol, protocol_len))
        return LS_EINVAL;
    tunnel *t = calloc(1, sizeof *t);
    if (t == NULL) return LS_ENOMEM;
    t->carrier.type = &type;
    t->e = e;
    t->port = ctx->port;
    const int err = ls_stream_open_carried(e->c->deadlines, &t->carrier, x->remote, handler, user_bytes, &out->stream);
    if (err < 0) {
        free(t);
        return err;
    }
    ls_stream_set_actor(out->stream, x->actor);
    out->limit = NULL;
    ls_exchange_drop_upgrade(x);
    ls_exchange_remove(x, "sec-websocket-accept", 20); /* HTTP/2 has neither key nor answer */
    ls_counter_add(&ls_http_thread_of(e->c->http, ctx)->responses, 1);
    ls_mutex_lock(&e->c->lock);
    e->tunnel = t;
    e->tunnel_tell = tell;
    e->tunnels = true;
    e->headed = true;
    e->length = -1;
    ls_h2_unlock(ctx, e, true);
    return LS_OK;
}
