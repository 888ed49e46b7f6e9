/* h2_exchange.c - the transport of HTTP/2: the calls of a handler, inside its own actor. They only put down what the
 * connection is to do, and take what it has put down: see h2_conn_internal.h. */
#include <assert.h>
#include <string.h>

#include "http/http2/h2_conn_internal.h"

enum { CREDIT_MIN = 16384 /* bytes of a body that were read, at which the connection learns of it */ };

/* ---- queues -------------------------------------------------------------------------------------------------- */

int ls_h2_queue_add(ls_h2_queue *q, ls_slice slice)
{
    const unsigned count = q->list.count;
    ls_slice *last = q->at < count ? &ls_slices_items(&q->list)[count - 1] : NULL;
    q->bytes += slice.len;
    if (last != NULL && slice.block != NULL && last->block == slice.block && last->ptr + last->len == slice.ptr) {
        last->len += slice.len;
        ls_slice_drop(&slice);
        return LS_OK;
    }
    if (q->at == count) q->at = q->list.count = 0;
    if (ls_slices_add(&q->list, slice) == LS_OK) return LS_OK;
    q->bytes -= slice.len;
    ls_slice_drop(&slice);
    return LS_ENOMEM;
}

ls_slice ls_h2_queue_take(ls_h2_queue *q, size_t max)
{
    ls_slice *first = ls_h2_queue_first(q), taken = *first;
    if (first->len <= max) {
        q->at++;
    } else {
        taken.len = max;
        (void)ls_block_hold(first->block);
        first->ptr = (const char *)((uintptr_t)first->ptr + max); /* no pointer, but an offset, in a file */
        first->len -= max;
    }
    q->bytes -= taken.len;
    return taken;
}

void ls_h2_queue_clear(ls_h2_queue *q)
{
    for (ls_slice *first; (first = ls_h2_queue_first(q)) != NULL; q->at++) ls_slice_drop(first);
    q->list.count = 0;
    ls_slices_clear(&q->list);
    *q = (ls_h2_queue){0};
}

/* ---- to the connection --------------------------------------------------------------------------------------- */

void ls_h2_run_later(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    if (!atomic_exchange(&c->pump_runs, true)) ls_workers_later(ctx, &c->pump);
}

void ls_h2_list(ls_thread_ctx *ctx, ls_h2_exchange *e)
{
    if (e->listed) return;
    e->listed = true;
    e->next_ready = atomic_load_explicit(&e->c->ready, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&e->c->ready, &e->next_ready, e)) {}
    ls_h2_run_later(ctx, e->c);
}

/* All of it under the lock: then the connection finds neither the exchange, to free it, nor itself unused before
 * c->pump is on its way. */
void ls_h2_unlock(ls_thread_ctx *ctx, ls_h2_exchange *e, bool changed)
{
    ls_h2_conn *c = e->c;
    e->head_due = e->headed;
    if (changed) ls_h2_list(ctx, e);
    ls_mutex_unlock(&c->lock);
}

/* ---- from the connection ------------------------------------------------------------------------------------- */

/* Whether the handler waits for something that is there. */
static bool has_news(const ls_h2_exchange *e)
{
    const bool body = e->in.bytes > 0 || e->in_end || e->in_error != 0,
               room = e->out.bytes < e->c->http->config.write_bytes_high / 4;
    return e->lost != 0 || (e->awaits & LS_H2_AWAITS_BODY && body) || (e->awaits & LS_H2_AWAITS_SENT && room);
}

static void woken(ls_thread_ctx *ctx, ls_op *op)
{
    ls_h2_exchange *e = LS_CONTAINER(op, ls_h2_exchange, wake);
    ls_exchange *x = &e->x;
    ls_actor *actor = op->actor;
    ls_mutex_lock(&e->c->lock);
    e->waking = false;
    const bool released = e->released;
    const bool news = !released && has_news(e) && (e->lost == 0 || x->error == 0);
    if (news && e->lost != 0) x->error = e->lost;
    if (news) e->awaits = 0;
    ls_h2_unlock(ctx, e, released); /* the connection frees it */
    atomic_fetch_sub(&actor->pins, 1);
    if (news) ls_exchange_wake(ctx, x);
}

void ls_h2_tell(ls_thread_ctx *ctx, ls_h2_exchange *e)
{
    if (e->tunnel != NULL) {
        e->tunnel_tell(ctx, e);
        return;
    }
    if (!e->entered || e->released || e->waking || !has_news(e)) return;
    e->waking = true;
    e->wake = (ls_op){.done = woken, .actor = e->x.actor};
    atomic_fetch_add(&e->x.actor->pins, 1); /* the handler may release the exchange, and the state end, before it */
    ls_workers_later(ctx, &e->wake);
}

/* ---- output -------------------------------------------------------------------------------------------------- */

/* A copy of bytes without a block. LS_OK or LS_ENOMEM. */
static int copy(ls_thread_ctx *ctx, ls_h2_exchange *e, const char *bytes, size_t len, ls_slice *out)
{
    if (e->fill == NULL && e->x.head_bytes.block == e->self) { /* first what the fields have left */
        e->fill = ls_block_hold(e->self);
        e->filled = (uint32_t)(e->head.bytes + e->head.used - e->self->data);
    }
    if (e->fill == NULL || e->fill->cap - e->filled < len) {
        ls_block *fill = ls_block_get(ctx->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (fill == NULL) return LS_ENOMEM;
        if (e->fill != NULL) ls_block_drop(e->fill);
        e->fill = fill;
        e->filled = 0;
    }
    memcpy(e->fill->data + e->filled, bytes, len);
    *out = ls_slice_of(e->fill, e->filled, len);
    e->filled += (uint32_t)len;
    return LS_OK;
}

int ls_h2_add(ls_thread_ctx *ctx, ls_h2_exchange *e, ls_slice slice)
{
    int err = LS_OK;
    if (slice.len == 0) {
        ls_slice_drop(&slice);
        return LS_OK;
    }
    for (bool own = slice.block == NULL; err == LS_OK && slice.len > 0;) {
        ls_slice part = slice;
        if (own) part.len = slice.len < LS_BLOCK_LARGE ? slice.len : LS_BLOCK_LARGE;
        const size_t len = part.len;
        if (own && (err = copy(ctx, e, part.ptr, len, &part)) < 0) break;
        ls_mutex_lock(&e->c->lock);
        err = e->lost != 0 ? e->lost : ls_h2_queue_add(&e->out, part);
        if (e->lost != 0) ls_slice_drop(&part);
        ls_mutex_unlock(&e->c->lock);
        if (err == LS_OK) atomic_fetch_add_explicit(&e->x.queued, len, memory_order_relaxed);
        slice.ptr += len;
        slice.len -= len;
    }
    return err;
}

static int add_all(ls_thread_ctx *ctx, ls_h2_exchange *e, ls_slice *slices, unsigned count)
{
    int err = LS_OK;
    unsigned n = 0;
    while (err == LS_OK && n < count) err = ls_h2_add(ctx, e, slices[n++]);
    if (n < count) ls_slices_drop(slices + n, count - n);
    return err;
}

static int head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    ls_h2_exchange *e = ls_h2_of(x);
    const int err = add_all(ctx, e, slices, count);
    if (err < 0) return err;
    ls_counter_add(&ls_http_thread_of(e->c->http, ctx)->responses, 1);
    e->headed = true; /* `returned` or a flush follows */
    e->length = x->framing == LS_FRAMED_BY_LENGTH ? length : -1;
    return LS_OK;
}

static int add_hints(ls_thread_ctx *ctx, ls_h2_exchange *e, const ls_slice *lines)
{
    ls_mutex_lock(&e->c->lock);
    const int err = e->lost != 0 ? e->lost : ls_trailers_add(ctx, &e->hints, lines->ptr, lines->len);
    ls_mutex_unlock(&e->c->lock);
    return err;
}

static int data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    ls_h2_exchange *e = ls_h2_of(x);
    if (how & LS_DATA_HINTS) return add_hints(ctx, e, slices);
    if (!(how & LS_DATA_LAST)) {
        const int err = add_all(ctx, e, slices, count);
        return err == LS_OK && how & LS_DATA_SHARED ? LS_PENDING : err;
    }
    ls_slices_drop(slices, count); /* the lines of the trailers are in x->end_fields */
    ls_mutex_lock(&e->c->lock);
    e->out_end = true;
    e->trailers_due = count > 0;
    const int lost = e->lost;
    ls_mutex_unlock(&e->c->lock);
    return lost;
}

static int flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_h2_exchange *e = ls_h2_of(x);
    const size_t high = e->c->http->config.write_bytes_high;
    ls_mutex_lock(&e->c->lock);
    const int lost = e->lost;
    const bool full = lost == 0 && x->error == 0 && e->out.bytes >= high;
    if (x->error != 0 && lost == 0) e->aborted = true;
    if (full) e->awaits |= LS_H2_AWAITS_SENT;
    ls_h2_unlock(ctx, e, lost == 0);
    return x->error != 0 ? x->error : lost != 0 ? lost : full ? LS_PENDING : LS_DONE;
}

/* ---- input --------------------------------------------------------------------------------------------------- */

static int more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    ls_h2_exchange *e = ls_h2_of(x);
    int err = LS_DONE;
    bool changed = false;
    ls_mutex_lock(&e->c->lock);
    if (out == NULL) { /* a client that ends its direction has ended the request */
        err = e->lost;
    } else if (ls_h2_queue_first(&e->in) != NULL) {
        *out = ls_h2_queue_take(&e->in, SIZE_MAX);
        e->credit += out->len;
        changed = e->credit >= CREDIT_MIN;
    } else if (e->in_error != 0) {
        err = e->in_error;
    } else if (e->lost != 0 && !e->in_end) {
        err = x->error = e->lost;
    } else if (!e->in_end) {
        e->awaits |= LS_H2_AWAITS_BODY;
        if (x->continue_due && x->response == LS_RESPONSE_NONE) changed = e->continue_due = true;
        err = LS_PENDING;
    }
    if (err == LS_DONE && out != NULL && e->in_end && ls_h2_queue_first(&e->in) == NULL) {
        x->body_done = true;
        x->trailers = e->in_trailers;
        e->in_trailers = NULL;
    }
    ls_h2_unlock(ctx, e, changed || (err == LS_PENDING && e->credit > 0));
    if (out != NULL && (err == LS_DONE || changed)) x->continue_due = false; /* sent, or not waited for */
    return err;
}

/* ---- the rest ------------------------------------------------------------------------------------------------ */

static void returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_h2_exchange *e = ls_h2_of(x);
    ls_mutex_lock(&e->c->lock);
    const bool released = e->released = x->released;
    if (!released) e->entered = true;
    if (!released && (e->lost == 0 || x->error == 0)) ls_h2_tell(ctx, e);
    ls_h2_unlock(ctx, e, released || e->headed || e->out.bytes > 0 || e->out_end);
}

static const ls_addr *local(const ls_exchange *x)
{
    return &((const ls_h2_conn *)x->conn)->local;
}

static const ls_tls_peer *peer(const ls_exchange *x, ls_tls_peer *room)
{
    return ((const ls_h2_conn *)x->conn)->peer;
}

const ls_transport ls_h2_transport = {
    .head = head,
    .data = data,
    .flush = flush,
    .more = more,
    .returned = returned,
    .local = local,
    .peer = peer,
    .no_upgrade = "a connection of HTTP/2 carries other requests, too",
    .hints = true,
};

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void drop_block(ls_block **block)
{
    if (*block != NULL) ls_block_drop(*block);
    *block = NULL;
}

/* Under c->lock. */
static bool is_unused(const ls_h2_exchange *e)
{
    return e->closed && e->released && !e->listed && !e->waking && e->tunnel == NULL;
}

static void free_exchange(ls_h2_exchange *e)
{
    ls_h2_conn *c = e->c;
    if (e->of_peer) ls_peers_leave(ls_deadlines_peers(c->deadlines), &c->remote, LS_PEERS_STREAMS);
    ls_list_remove(&e->node);
    ls_h2_queue_clear(&e->out);
    ls_h2_queue_clear(&e->in);
    drop_block(&e->in_trailers);
    drop_block(&e->hints);
    drop_block(&e->in_fill);
    drop_block(&e->fill);
    if (e->lost != 0 && e->x.error == 0) e->x.error = e->lost;
    ls_exchange_end(c->ctx, &e->x);
    ls_slice_drop(&e->x.head_bytes);
    ls_block_drop(e->self);
}

void ls_h2_free_if_unused(ls_h2_exchange *e)
{
    if (!e->closed) return;
    ls_mutex_lock(&e->c->lock);
    const bool unused = is_unused(e);
    ls_mutex_unlock(&e->c->lock);
    if (unused) free_exchange(e);
}

void ls_h2_end_stream(ls_thread_ctx *ctx, ls_h2_exchange *e, int lost)
{
    ls_h2_conn *c = e->c;
    assert(!e->closed);
    if (--c->streams == 0) c->idle_ms = c->now_ms;
    if (c->heading == e) c->heading = NULL;
    ls_mutex_lock(&c->lock);
    e->closed = true; /* a tunnel looks at it */
    if (lost != 0) e->lost = lost;
    if (lost != 0) ls_h2_tell(ctx, e);
    const bool unused = is_unused(e);
    ls_mutex_unlock(&c->lock);
    if (unused) free_exchange(e);
}
