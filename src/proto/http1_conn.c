/* http1_conn.c - an HTTP/1.1 connection: receive, parse, call the handler, flush, receive again.
 *
 * ls_http1_run runs while the connection has no exchange. It takes requests from the received bytes until a request
 * suspends, the bytes are consumed, packets wait for the Lua state, or the connection ends. Its last action is to post
 * the next receive: from then on another thread may run the connection.
 *
 * The handler can be replaced at any time. The thread inside an actor may start only requests of the handler whose actor
 * it is: so the handler is loaded when the thread is outside, and a thread that is inside and finds it replaced goes on
 * in a packet of its own, outside. So the handler before starts no request after the packets that run at that time. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/memory.h"
#include "proto/http1_internal.h"
#include "sched/actor.h"

enum { HEAD_TAIL_MIN = 512 }; /* with less room behind it, a partial head moves to another block */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);
static void closed(ls_thread_ctx *ctx, ls_stream *s);
static void lost(ls_thread_ctx *ctx, ls_stream_watch *watch);
static void wake(ls_thread_ctx *ctx, ls_exchange *x);

static const ls_stream_handler stream_handler = {received, sent, closed};

/* ---- the listener ------------------------------------------------------------------------------------------- */

int ls_http1_open(const ls_http_config *config, const ls_http_handler *handler, ls_conn_limit *limit, unsigned threads,
                  ls_http1 **out)
{
    int err = LS_ENOMEM;
    if (config->head.head_bytes_max > LS_BLOCK_LARGE || config->head.fields_max > LS_HTTP_FIELDS_MAX) return LS_EINVAL;
    ls_http1 *http = calloc(1, sizeof *http);
    if (http == NULL) return err;
    http->threads = ls_memory_aligned(_Alignof(ls_http1_thread), threads * sizeof *http->threads);
    if (http->threads == NULL) goto fail_alloc;
    memset(http->threads, 0, threads * sizeof *http->threads);
    for (unsigned i = 0; i < threads; i++) http->threads[i].next_id = (uint64_t)i << 40;
    if ((err = ls_mutex_open(&http->mutex)) < 0) goto fail_threads;
    http->config = *config;
    atomic_init(&http->handler, handler);
    http->conn_limit = limit;
    http->thread_count = threads;
    ls_node_init(&http->conns);
    *out = http;
    return LS_OK;

fail_threads:
    ls_memory_aligned_free(http->threads);
fail_alloc:
    free(http);
    return err;
}

void ls_http1_close(ls_http1 *http)
{
    assert(ls_list_empty(&http->conns));
    ls_mutex_close(&http->mutex);
    ls_memory_aligned_free(http->threads);
    free(http);
}

void ls_http1_local(ls_http1 *http, const ls_addr *local)
{
    http->local = *local;
}

void ls_http1_stat(const ls_http1 *http, ls_http1_stats *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i < http->thread_count; i++) {
        const ls_http1_thread *thread = &http->threads[i];
        out->connections += atomic_load_explicit(&thread->connections, memory_order_relaxed);
        out->requests += atomic_load_explicit(&thread->requests, memory_order_relaxed);
        out->responses += atomic_load_explicit(&thread->responses, memory_order_relaxed);
        out->refused += atomic_load_explicit(&thread->refused, memory_order_relaxed);
    }
    out->open = atomic_load(&http->open); /* after 0 the owner may close `http`, so the last accesses come before */
}

void ls_http1_replace(ls_http1 *http, const ls_http_handler *handler)
{
    atomic_store(&http->handler, handler);
}

const ls_http_config *ls_http1_config(const ls_http1 *http)
{
    return &http->config;
}

uint32_t ls_http1_drain(ls_http1 *http, bool all)
{
    atomic_store(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    for (ls_node *node = http->conns.next; node != &http->conns; node = node->next) {
        ls_http1_conn *c = LS_CONTAINER(node, ls_http1_conn, node);
        uint8_t phase = atomic_load(&c->phase);
        /* The phase may change meanwhile. That is harmless: only a receive is cancelled, and the owner posts it
         * again. */
        if (phase == LS_H1_IDLE || (all && phase == LS_H1_FRESH)) ls_stream_cancel_recv(ls_http1_stream(c));
    }
    ls_mutex_unlock(&http->mutex);
    return atomic_load(&http->open);
}

void ls_http1_abort(ls_http1 *http)
{
    atomic_store(&http->aborting, true);
    atomic_store(&http->draining, true);
    ls_mutex_lock(&http->mutex);
    for (ls_node *node = http->conns.next; node != &http->conns; node = node->next) {
        ls_http1_conn *c = LS_CONTAINER(node, ls_http1_conn, node);
        ls_stream_cancel(ls_http1_stream(c));
    }
    ls_mutex_unlock(&http->mutex);
}

/* ---- open and close a connection ---------------------------------------------------------------------------- */

static void set_phase(ls_http1_conn *c, enum ls_http1_phase phase)
{
    atomic_store_explicit(&c->phase, (uint8_t)phase, memory_order_relaxed);
}

const size_t ls_http1_user_bytes = sizeof(ls_http1_conn);

void ls_http1_start(ls_thread_ctx *ctx, ls_stream *s, void *http1)
{
    ls_http1 *http = http1;
    ls_http1_conn *c = ls_stream_user(s);
    ls_stream_handover(s, &stream_handler);
    c->http = http;
    atomic_store_explicit(&c->holders, 1, memory_order_relaxed);
    ls_stream_send_limits(s, http->config.send_stall_ms_max, http->config.send_rate_min);
    ls_counter_add(&ls_http1_thread_of(http, ctx)->connections, 1);
    atomic_fetch_add(&http->open, 1);
    ls_mutex_lock(&http->mutex);
    ls_list_push(&http->conns, &c->node);
    ls_mutex_unlock(&http->mutex);

    set_phase(c, LS_H1_FRESH);
    ls_stream_recv_within(s, http->config.head_ms_max);
    const bool outside = ctx->inside == NULL;
    ls_http1_run(ctx, c, NULL);
    if (outside && ctx->inside != NULL) ls_actor_leave(ctx->inside, ctx);
}

static void drop_received(ls_http1_conn *c)
{
    if (c->in != NULL) ls_block_drop(c->in);
    c->in = NULL;
}

static void unlist(ls_http1_conn *c)
{
    ls_mutex_lock(&c->http->mutex);
    ls_list_remove(&c->node);
    ls_mutex_unlock(&c->http->mutex);
}

static void conn_close(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    assert(c->exchange == NULL);
    drop_received(c);
    unlist(c);
    ls_stream *const s = ls_http1_stream(c);
    if (c->linger && !ls_stream_sending(s)) /* without memory for an error response a send may be pending: cancel it */
        ls_stream_linger(ctx, s, c->http->config.linger_ms_max);
    else
        ls_stream_close(ctx, s);
}

static void drop_conn(ls_http1_conn *c)
{
    ls_http1 *http = c->http;
    if (atomic_fetch_sub(&c->holders, 1) != 1) return;
    ls_stream_free(ls_http1_stream(c));
    atomic_fetch_sub(&http->open, 1); /* the last access: at 0 the owner may close `http` */
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    (void)ctx;
    ls_http1_conn *c = ls_stream_user(s);
    ls_conn_limit *limit = c->http->conn_limit;
    drop_conn(c);
    ls_conn_limit_leave(limit); /* here, because a lingering connection still has its socket */
}

/* Send the queue, then close. */
static void send_last(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    set_phase(c, LS_H1_LAST);
    ls_stream *const s = ls_http1_stream(c);
    ls_stream_set_actor(s, NULL);
    if (!ls_stream_sending(s)) ls_stream_cork_fin(s);
    if (ls_http1_send_out(ctx, c) != LS_PENDING) conn_close(ctx, c);
}

/* Send an error response and close: the bytes of the client are invalid or too slow, or memory is exhausted. */
static void send_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why)
{
    c->linger = true;
    if (ls_http1_send_error(ctx, c, status, why) < 0)
        conn_close(ctx, c);
    else
        send_last(ctx, c);
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

void ls_http1_append_rx(ls_http1_conn *c, uint32_t bytes)
{
    if (c->in == NULL) {
        const ls_slice slice = ls_stream_take(ls_http1_stream(c));
        c->in = slice.block;
        c->in_from = c->in_to = (uint32_t)(slice.ptr - slice.block->data);
    }
    c->in_to += bytes;
}

static void drop_consumed(ls_http1_conn *c)
{
    if (c->in == NULL || c->in_from < c->in_to) return;
    ls_block_drop(c->in);
    c->in = NULL;
    c->in_from = c->in_to = 0;
}

/* Make room behind a partial head: move the head to another block when the end of its block is near. A head gets at
 * most one large block, and head_bytes_max is not larger than that. */
static int make_head_room(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const uint32_t have = c->in_to - c->in_from, room = c->in->cap - c->in_to;
    if (room >= HEAD_TAIL_MIN || (room > 0 && c->in_from == 0 && c->in->cap == LS_BLOCK_LARGE)) return LS_OK;
    if (have >= LS_BLOCK_LARGE) return LS_EMSGSIZE;
    ls_block *next = ls_block_get(ctx->pool, have + HEAD_TAIL_MIN <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (next == NULL) return LS_ENOMEM;
    memcpy(next->data, c->in->data + c->in_from, have);
    ls_pool_copied(ctx->pool, have);
    ls_block_drop(c->in);
    c->in = next;
    c->in_from = 0;
    c->in_to = have;
    return LS_OK;
}

/* Receive the next request, or the rest of its head. LS_DONE: bytes were received; LS_PENDING: another thread may own
 * the connection now. */
static int read_more(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http_config *config = &c->http->config;
    ls_stream *const s = ls_http1_stream(c);
    const enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
    int64_t result;
    int err;
    drop_consumed(c);
    ls_stream_set_actor(s, NULL);
    if (c->in == NULL) {
        if (phase != LS_H1_FRESH) {
            set_phase(c, LS_H1_IDLE);
            ls_stream_recv_within(s, config->idle_ms_max);
        }
        err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
    } else {
        if ((err = make_head_room(ctx, c)) < 0) return err;
        if (phase != LS_H1_HEAD) { /* the first bytes of a head set its deadline; for the first head the accept did */
            if (phase != LS_H1_FRESH) ls_stream_recv_within(s, config->head_ms_max);
            set_phase(c, LS_H1_HEAD);
        }
        err = ls_stream_recv(ctx, s, c->in->data + c->in_to, c->in->cap - c->in_to, &result);
    }
    if (err != LS_DONE) return err;
    if (result <= 0) return result == 0 ? LS_ECLOSED : (int)result;
    ls_http1_append_rx(c, (uint32_t)result);
    return LS_DONE;
}

/* ---- one exchange ------------------------------------------------------------------------------------------- */

static void fill_exchange(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e, uint32_t head_bytes)
{
    ls_exchange *x = &e->x;
    e->awaits_sent = e->ended = e->keep = e->chunked_out = e->no_body = e->head_refused = e->fast = false;
    e->link = 0;
    e->begin_at = ls_stream_end(ls_http1_stream(c)); /* not 0: a pipelined request */
    ls_stream_peer(ls_http1_stream(c), &e->remote);

    x->transport = &ls_http1_transport;
    x->conn = c;
    x->actor = NULL;
    x->task = NULL;
    x->wake = NULL;
    x->id = ++ls_http1_thread_of(c->http, ctx)->next_id;
    x->bytes = c->in->data + c->in_from;
    x->remote = &e->remote;
    x->secure = ls_stream_filter(ls_http1_stream(c)) != NULL;
    x->body_bytes_max = c->http->config.body_bytes_max;
    x->status = 200;
    x->response = LS_RESPONSE_NONE;
    x->close = false;
    x->has_type = false;
    x->type = NULL;
    x->fields = NULL;
    x->fields_len = 0;
    x->length = -1;
    x->body_sent = 0;
    x->error = 0;
    c->seen = 0;
    ls_http1_body_begin(e);
    if (x->body_done && c->in_from + head_bytes == c->in_to) { /* no bytes behind the head: the reference moves */
        x->head_bytes = (ls_slice){c->in, x->bytes, head_bytes};
        c->in = NULL;
        c->in_from = c->in_to = 0;
    } else {
        x->head_bytes = ls_slice_of(c->in, c->in_from, head_bytes);
        c->in_from += head_bytes;
    }
}

enum outcome {
    AGAIN,   /* ls_http1_run continues */
    RELEASED /* the connection is closing, or another thread may own it */
};

static void drop_exchange(ls_http1_conn *c)
{
    ls_exchange *x = &ls_http1_exchange_of(c)->x;
    if (x->fields != NULL) ls_block_drop(x->fields);
    ls_slice_drop(&x->head_bytes);
    ls_block_drop(c->exchange);
    c->exchange = NULL;
}

/* Read a body that the handler did not read to its end, to find the next request. The length is bounded: decide_keep
 * accepts only short bodies, and a chunked body ends the connection when it exceeds the limit. */
static enum outcome skip_body(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    set_phase(c, LS_H1_SKIPPING);
    c->looping = false;
    int err = LS_DONE;
    while (!e->x.body_done) {
        ls_slice part;
        err = ls_http1_body_take(c, &part);
        if (err == LS_EAGAIN) {
            /* Send the response first: the client may wait for it. One operation at a time. From here on packets may
             * run on any thread. Not earlier: if the whole body is received already, the next handler starts while a
             * send is pending, and the packets of that send must run in the handler's actor. */
            ls_stream_set_actor(ls_http1_stream(c), NULL);
            err = e->x.error != 0 ? e->x.error : e->read_error;
            if (err == LS_OK) err = ls_http1_send_out(ctx, c);
            if (err == LS_DONE) err = ls_http1_body_receive(ctx, c);
            if (err == LS_PENDING) return RELEASED;
            if (err == LS_DONE) continue;
        }
        if (err < 0) break;
        e->x.body_bytes += part.len;
        e->skipped += part.len;
        ls_slice_drop(&part);
        if (e->skipped > c->http->config.unread_bytes_max) {
            err = LS_EMSGSIZE;
            break;
        }
    }
    drop_exchange(c);
    if (err >= 0) return AGAIN;
    c->linger = true;
    send_last(ctx, c);
    return RELEASED;
}

bool ls_http1_end_watch(ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link & LS_H1_WATCHED && ls_stream_unwatch(ls_http1_stream(c), &e->watch))
        e->link &= (uint8_t)~LS_H1_WATCHED;
    return !(e->link & LS_H1_WATCHED);
}

/* The response is not complete, so that nothing more of it is sent: the client must not take it for complete. The
 * responses to pipelined requests before it are sent. Without memory for its head a short response takes its place. */
LS_NOINLINE static void end_incomplete(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http1_exchange *e = ls_http1_exchange_of(c);
    const bool refused = e->x.error == LS_ENOMEM && (e->x.response == LS_RESPONSE_NONE || e->head_refused);
    const bool at_once = e->link & LS_H1_LOST || atomic_load(&c->http->aborting);
    ls_stream *const s = ls_http1_stream(c);
    const bool earlier = ls_stream_truncate(s, e->begin_at);
    drop_exchange(c);
    if (!earlier && !ls_stream_sending(s)) ls_stream_discard(s);
    if (at_once || (!earlier && !refused)) {
        conn_close(ctx, c);
    } else if (refused) {
        send_error(ctx, c, 503, "out of buffers");
    } else {
        c->linger = true;
        send_last(ctx, c);
    }
}

/* The handler released the exchange. true: no packet of it follows. Else the connection is released: it is closed
 * already, or `received` or `lost` calls after_exchange again. */
LS_NOINLINE static bool is_settled(ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link & LS_H1_DETACHED) {
        drop_exchange(c);
        drop_received(c);
        drop_conn(c);
        return false;
    }
    ls_stream *const s = ls_http1_stream(c);
    if (!ls_stream_receiving(s) && ls_http1_end_watch(c, e)) return true;
    set_phase(c, LS_H1_ENDING);
    c->looping = false;
    if (ls_stream_receiving(s)) ls_stream_cancel_recv(s);
    return false;
}

static enum outcome after_exchange(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if ((e->link != 0 || ls_stream_receiving(ls_http1_stream(c))) && !is_settled(c, e)) return RELEASED;
    const enum ls_response_phase response = e->x.response;
    const bool whole = response == LS_RESPONSE_DONE && e->x.error == 0, unread = !e->x.body_done;
    if (whole && e->keep) {
        if (unread) return skip_body(ctx, c);
        drop_exchange(c);
        return AGAIN;
    }
    /* A client that sent "Connection: close" sends no more bytes; others may still be sending. */
    c->linger = whole && (e->x.head.keep_alive || unread);
    if (!whole) {
        end_incomplete(ctx, c);
        return RELEASED;
    }
    drop_exchange(c);
    send_last(ctx, c);
    return RELEASED;
}

/* The same, then the next request. */
static void end_exchange(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http_handler *const handler = ls_http1_exchange_of(c)->handler;
    if (after_exchange(ctx, c) == AGAIN) ls_http1_run(ctx, c, handler);
}

/* The connection is lost while the handler waits: close the socket now, and wake the handler. It keeps the exchange; its
 * calls return x->error. An operation that is pending ends first, with an error. The connection may be gone afterwards. */
static void detach(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->x.error == 0) e->x.error = LS_ERESET;
    ls_stream *const s = ls_http1_stream(c);
    if (e->link & LS_H1_EXPECTS_END) ls_stream_cancel_recv(s); /* it has no deadline */
    if (ls_stream_receiving(s) || ls_stream_sending(s) || !ls_http1_end_watch(c, e)) return;
    e->link |= LS_H1_DETACHED;
    atomic_fetch_add(&c->holders, 1);
    unlist(c);
    ls_stream_close(ctx, s);
    wake(ctx, &e->x);
}

/* Learn of the loss of the connection while the handler waits for something else. */
static void watch(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link == 0) {
        e->watch.lost = lost;
        ls_stream_set_actor(ls_http1_stream(c), e->x.actor);
        const int err = ls_stream_watch_begin(ctx, ls_http1_stream(c), &e->watch);
        if (err == LS_PENDING) e->link = LS_H1_WATCHED;
        if (err == LS_ERESET) e->link = LS_H1_LOST; /* other errors: the loss is found by the next operation */
    }
    if (e->link & LS_H1_LOST) detach(ctx, c, e);
}

static void lost(ls_thread_ctx *ctx, ls_stream_watch *watch)
{
    ls_http1_exchange *e = LS_CONTAINER(watch, ls_http1_exchange, watch);
    ls_http1_conn *c = ls_http1_conn_of(&e->x);
    e->link = (uint8_t)((e->link & ~LS_H1_WATCHED) | LS_H1_LOST);
    if (atomic_load_explicit(&c->phase, memory_order_relaxed) != LS_H1_ENDING)
        detach(ctx, c, e);
    else
        end_exchange(ctx, c);
}

/* The handler suspended. Send the parts written so far. */
static void leave_suspended(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if (e->link & LS_H1_DETACHED) return;
    const ls_stream *const s = ls_http1_stream(c);
    /* The stream posts further sends for this actor. */
    assert((!ls_stream_receiving(s) && !ls_stream_sending(s)) || ls_stream_actor(s) == e->x.actor);
    if (ls_stream_queued(s) > 0 && !ls_stream_sending(s)) (void)ls_http1_flush(ctx, &e->x);
    watch(ctx, c, e);
}

/* A packet of a body that is skipped has run. */
static void skip_on(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http_handler *const handler = ls_http1_exchange_of(c)->handler;
    if (skip_body(ctx, c) == AGAIN) ls_http1_run(ctx, c, handler);
}

static void start_waiting(ls_thread_ctx *ctx, ls_op *op)
{
    ls_http1_exchange *e = LS_CONTAINER(op, ls_http1_exchange, start_op);
    ls_http1_conn *c = ls_http1_conn_of(&e->x);
    c->looping = true;
    e->handler->start(e->handler, ctx, &e->x);
    c->looping = false;
    if (!e->ended)
        leave_suspended(ctx, c);
    else
        end_exchange(ctx, c);
}

/* Every actor is in use: the request waits for one. */
LS_NOINLINE static void start_later(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    c->looping = false;
    e->start_op = (ls_op){.done = start_waiting, .actor = e->x.actor};
    ls_actor_post(e->x.actor, ctx, &e->start_op);
}

static enum outcome handle(ls_thread_ctx *ctx, ls_http1_conn *c, const ls_http_handler *handler, uint32_t head_bytes)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    fill_exchange(ctx, c, e, head_bytes);
    e->handler = handler;
    ls_counter_add(&ls_http1_thread_of(c->http, ctx)->requests, 1);
    set_phase(c, LS_H1_HANDLING);
    /* Bytes for the tunnel may follow, which a client has let others choose: they are no requests if it is refused. */
    if (e->x.head.method == LS_HTTP_CONNECT) e->x.close = true;
    handler->start(handler, ctx, &e->x);
    if (e->ended) return after_exchange(ctx, c);
    if (ctx->inside == NULL) {
        start_later(ctx, c, e);
        return RELEASED;
    }
    c->looping = false;
    leave_suspended(ctx, c);
    return RELEASED;
}

/* Packets wait for the actor that the thread is inside, such as the end of a sleep in the same Lua state. */
static bool others_wait(const ls_thread_ctx *ctx)
{
    return ctx->inside != NULL && ls_actor_has_waiting(ctx->inside);
}

/* The handler of the actor that the thread is inside was replaced. */
static bool is_replaced(const ls_thread_ctx *ctx, const ls_http1_conn *c, const ls_http_handler *handler)
{
    return ctx->inside != NULL && atomic_load_explicit(&c->http->handler, memory_order_relaxed) != handler;
}

void ls_http1_run(ls_thread_ctx *ctx, ls_http1_conn *c, const ls_http_handler *handler)
{
    ls_stream *const s = ls_http1_stream(c);
    int err;
    if (ctx->inside == NULL) handler = atomic_load_explicit(&c->http->handler, memory_order_acquire);
    for (;;) {
        const uint32_t have = c->in_to - c->in_from;
        c->looping = true;
        if (have > c->seen && !is_replaced(ctx, c, handler)) {
            if ((c->exchange = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) == NULL) {
                send_error(ctx, c, 503, "out of buffers");
                return;
            }
            const char *why = NULL;
            err = ls_http1_parse(c->in->data + c->in_from, have, c->seen, &c->http->config.head,
                                 &ls_http1_exchange_of(c)->x.head, &why);
            if (err > 0) {
                if (handle(ctx, c, handler, (uint32_t)err) == RELEASED) return;
                if (c->in != NULL && ls_stream_queued(s) < c->http->config.write_bytes_high && !others_wait(ctx))
                    continue;
            } else {
                ls_block_drop(c->exchange);
                c->exchange = NULL;
                if (err < 0) {
                    send_error(ctx, c, -err, why);
                    return;
                }
                c->seen = have;
            }
        }
        c->looping = false; /* an operation that is posted below may complete on another thread at once */
        err = LS_DONE;
        if (ls_stream_queued(s) > 0) {
            enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
            set_phase(c, LS_H1_SENDING);
            ls_stream_set_actor(s, NULL);
            err = ls_http1_send_out(ctx, c);
            if (err == LS_PENDING) return;
            set_phase(c, phase);
        }
        if (err == LS_DONE && c->in_to - c->in_from > c->seen) {
            if (!others_wait(ctx) && !is_replaced(ctx, c, handler)) continue;
            set_phase(c, LS_H1_IDLE);
            ls_stream_set_actor(s, NULL);
            ls_stream_requeue(s); /* `received` continues with the next request */
            return;
        }
        if (err == LS_DONE) err = read_more(ctx, c);
        if (err == LS_PENDING) return;
        if (err == LS_ENOMEM) {
            send_error(ctx, c, 503, "out of buffers");
            return;
        }
        if (err < 0) {
            conn_close(ctx, c);
            return;
        }
    }
}

/* ---- packets ------------------------------------------------------------------------------------------------ */

static void wake(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    e->ended = false;
    c->looping = true; /* a release inside wake is handled below, not deep in the handler's stack */
    x->wake(ctx, x);
    c->looping = false;
    if (!e->ended)
        leave_suspended(ctx, c);
    else
        end_exchange(ctx, c);
}

static void received_for_head(ls_thread_ctx *ctx, ls_http1_conn *c, int64_t result)
{
    enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
    if (result > 0) {
        ls_http1_append_rx(c, (uint32_t)result);
        ls_http1_run(ctx, c, NULL);
    } else if (result == LS_EAGAIN) {
        ls_http1_run(ctx, c, NULL); /* it was requeued */
    } else if (result == LS_ETIMEDOUT && c->in != NULL) {
        send_error(ctx, c, 408, "the request head took too long");
    } else if (result == LS_ECANCELED && (phase == LS_H1_HEAD || !c->last_look) && !atomic_load(&c->http->aborting)) {
        c->last_look = phase != LS_H1_HEAD; /* a drain cancelled the receive, but bytes may be in transit */
        ls_http1_run(ctx, c, NULL);
    } else if (result == LS_ENOMEM) {
        send_error(ctx, c, 503, "out of buffers");
    } else {
        conn_close(ctx, c);
    }
}

/* The receive that was pending when the exchange ended has completed. Its bytes are part of the body, or follow it. An
 * error other than the cancellation ends the connection; the end of the stream is found by the next receive. */
static void receive_ended(ls_http1_conn *c, ls_exchange *x, int64_t result)
{
    ls_http1_body_waited(x);
    if (result > 0)
        ls_http1_append_rx(c, (uint32_t)result);
    else if (result < 0 && (result != LS_ECANCELED || atomic_load(&c->http->aborting)) && x->error == 0)
        x->error = (int)result;
}

static void end_received(ls_thread_ctx *ctx, ls_http1_conn *c, int64_t result)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    e->link &= (uint8_t)~LS_H1_EXPECTS_END;
    if (ls_http1_expected(c, result) < 0) e->link |= LS_H1_LOST;
    if (e->link & LS_H1_LOST) detach(ctx, c, e);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_http1_conn *c = ls_stream_user(s);
    const bool outside = ctx->inside == NULL;
    if (c->exchange == NULL) {
        received_for_head(ctx, c, result);
    } else {
        ls_exchange *x = &ls_http1_exchange_of(c)->x;
        switch ((enum ls_http1_phase)atomic_load_explicit(&c->phase, memory_order_relaxed)) {
        case LS_H1_ENDING:
            receive_ended(c, x, result);
            end_exchange(ctx, c);
            break;
        case LS_H1_SKIPPING:
            ls_http1_body_received(ctx, x, result);
            skip_on(ctx, c);
            break;
        default:
            if (ls_http1_of(x)->link & LS_H1_EXPECTS_END) {
                end_received(ctx, c, result);
            } else {
                ls_http1_body_received(ctx, x, result);
                wake(ctx, x);
            }
            break;
        }
    }
    if (outside && ctx->inside != NULL) ls_actor_leave(ctx->inside, ctx);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_http1_conn *c = ls_stream_user(s);
    const bool outside = ctx->inside == NULL;
    switch ((enum ls_http1_phase)atomic_load_explicit(&c->phase, memory_order_relaxed)) {
    case LS_H1_HANDLING: {
        ls_http1_exchange *e = ls_http1_exchange_of(c);
        if (err < 0) e->link |= LS_H1_LOST;
        if (err < 0 && e->x.error == 0) e->x.error = err;
        if (err == LS_OK) e->begin_at = 0;
        if (e->awaits_sent) {
            e->awaits_sent = false;
            wake(ctx, &e->x);
        } else if (e->link & LS_H1_LOST) {
            detach(ctx, c, e);
        }
        break;
    }
    case LS_H1_ENDING: /* `received` continues when the receive completes */
        if (err < 0 && ls_http1_exchange_of(c)->x.error == 0) ls_http1_exchange_of(c)->x.error = err;
        break;
    case LS_H1_SENDING:
        if (err < 0) {
            conn_close(ctx, c);
        } else {
            set_phase(c, LS_H1_IDLE);
            ls_http1_run(ctx, c, NULL);
        }
        break;
    case LS_H1_SKIPPING:
        if (err < 0) ls_http1_exchange_of(c)->x.error = err;
        skip_on(ctx, c);
        break;
    default: conn_close(ctx, c); break;
    }
    if (outside && ctx->inside != NULL) ls_actor_leave(ctx->inside, ctx);
}

/* ---- the transport ------------------------------------------------------------------------------------------ */

static void release(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    if (c->looping) {
        e->ended = true; /* the caller of the handler checks it */
    } else {
        end_exchange(ctx, c);
    }
}

static const ls_addr *local(const ls_exchange *x)
{
    ls_http1_conn *c = x->conn;
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if (e->link & LS_H1_UPGRADED) return &e->local;
    if (e->link & LS_H1_DETACHED) return &c->http->local;
    if (!ls_addr_is_any(&c->http->local) || ls_stream_local(ls_http1_stream(c), &e->local) < 0) return &c->http->local;
    return &e->local;
}

static const ls_filter *session(const ls_exchange *x)
{
    const ls_http1_conn *c = x->conn;
    if (ls_http1_exchange_of(c)->link & LS_H1_UPGRADED)
        return NULL; /* it belongs to the new owner of the connection */
    return ls_stream_filter(ls_http1_stream(x->conn));
}

static size_t queued(const ls_exchange *x)
{
    return ls_stream_queued(ls_http1_stream(x->conn));
}

const ls_http_transport ls_http1_transport = {
    .local = local,
    .session = session,
    .read = ls_http1_body_read,
    .respond = ls_http1_respond,
    .write = ls_http1_write,
    .write_chunk = ls_http1_write_chunk,
    .prefetch = ls_http1_prefetch,
    .queued = queued,
    .flush = ls_http1_flush,
    .finish = ls_http1_finish,
    .release = release,
    .abort = ls_http1_abort_response,
    .upgrade = ls_http1_upgrade,
    .expect_end = ls_http1_expect_end,
};
