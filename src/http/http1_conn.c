/* http1_conn.c - an HTTP/1.1 connection: receive, parse, call the handler, flush, receive again.
 *
 * ls_http1_run runs while the connection has no exchange. It takes requests from the received bytes until a request
 * suspends, the bytes are consumed, packets wait for the Lua state, or the connection ends. Its last action is to post
 * the next receive: from then on another thread may run the connection.
 *
 * The handler can be replaced at any time (ls_http_engine_ops.replace). A thread that holds an actor starts only
 * requests of the handler that the actor belongs to. When such a thread finds the handler replaced, it requeues the
 * connection, and the next packet loads the new handler. So after the replacement the old handler runs only in packets
 * that had begun. */
#include <assert.h>
#include <string.h>

#include "http/http1_internal.h"
#include "net/tls/tls.h"

enum { HEAD_TAIL_MIN = 512 }; /* with less room after it, a partial head moves to another block */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);

const ls_stream_handler ls_http1_stream_handler = {.received = received, .sent = sent, .closed = ls_http1_closed};

/* ---- receive ------------------------------------------------------------------------------------------------ */

void ls_http1_append_rx(ls_http1_conn *c, uint32_t bytes)
{
    if (c->in == NULL) {
        const ls_slice slice = ls_stream_take(ls_http1_stream(c));
        c->in = slice.block;
        c->in->from = c->in->to = (uint32_t)(slice.ptr - slice.block->data);
        c->in->seen = 0;
    }
    c->in->to += bytes;
}

/* Make room after a partial head: move the head to another block when the end of its block is near. A head gets at
 * most one large block, and head_bytes_max is not larger than that. */
static int make_head_room(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const uint32_t have = c->in->to - c->in->from, room = c->in->cap - c->in->to;
    if (room >= HEAD_TAIL_MIN || (room > 0 && c->in->from == 0 && c->in->cap == LS_BLOCK_LARGE)) return LS_OK;
    if (have >= LS_BLOCK_LARGE) return LS_EMSGSIZE;
    return ls_block_move(ctx->pool, &c->in, have + HEAD_TAIL_MIN <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
}

/* Receive the next request, or the rest of its head. LS_DONE: bytes were received; LS_PENDING: another thread may own
 * the connection now. */
static int read_more(ls_thread_ctx *ctx, const ls_http_server *http, ls_http1_conn *c)
{
    const ls_http_config *config = &http->config;
    ls_stream *const s = ls_http1_stream(c);
    const enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
    int64_t result;
    int err;
    if (ls_http1_unparsed(c) == 0) ls_http1_drop_received(c);
    ls_stream_set_actor(s, NULL);
    if (c->in == NULL) {
        if (phase != LS_H1_FRESH) {
            ls_http1_set_phase(c, LS_H1_IDLE);
            ls_stream_recv_within(s, config->idle_ms_max);
        }
        err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
    } else {
        if ((err = make_head_room(ctx, c)) < 0) return err;
        if (phase != LS_H1_HEAD) { /* the first bytes of a head set its deadline; for the first head the accept did */
            if (phase != LS_H1_FRESH) ls_stream_recv_within(s, config->head_ms_max);
            c->head_ms = (uint32_t)ls_clock_coarse_ms();
            ls_http1_set_phase(c, LS_H1_HEAD);
        }
        err = ls_stream_recv(ctx, s, c->in->data + c->in->to, c->in->cap - c->in->to, &result);
    }
    if (err != LS_DONE) return err;
    if (result <= 0) return result == 0 ? LS_ECLOSED : (int)result;
    ls_http1_append_rx(c, (uint32_t)result);
    return LS_DONE;
}

/* The bytes that were received are no request, or there is no memory for one. */
static void refuse(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why)
{
    const ls_http_handler *handler = atomic_load_explicit(&ls_http1_engine(c)->handler, memory_order_acquire);
    if (handler->recorder != NULL) {
        ls_addr peer;
        const bool in_parts = atomic_load_explicit(&c->phase, memory_order_relaxed) == LS_H1_HEAD;
        const uint32_t ms = in_parts ? (uint32_t)ls_clock_coarse_ms() - c->head_ms : 0;
        ls_stream_peer(ls_http1_stream(c), &peer);
        ls_record_refused(
            ctx, handler,
            &(ls_record){.line = {c->in != NULL ? c->in->data + c->in->from : NULL, ls_http1_unparsed(c)},
                         .remote = &peer,
                         .secure = ls_stream_filter(ls_http1_stream(c)) != NULL,
                         .status = status,
                         .began_ns = ls_clock_ns() - ms * UINT64_C(1000000),
                         .sent = ls_http1_error_bytes(status, why)});
    }
    ls_http1_end_with_error(ctx, c, status, why);
}

/* ---- one exchange ------------------------------------------------------------------------------------------- */

static void fill_exchange(ls_thread_ctx *ctx, ls_http_server *http, ls_http1_conn *c, ls_http1_exchange *e,
                          uint32_t head_bytes)
{
    ls_exchange *x = &e->x;
    ls_stream *const s = ls_http1_stream(c);
    e->awaits_sent = e->head_refused = e->fast = false;
    e->link = 0;
    e->begin_at = ls_stream_end(s); /* not 0: a pipelined request */
    c->pipelined = e->begin_at > 0;
    c->began = true;
    ls_stream_peer(s, &e->remote);

    x->transport = &ls_http1_transport;
    x->conn = c;
    x->stream = s;
    atomic_init(&x->queued, 0);
    x->actor = ctx->inside; /* a pipelined request */
    x->task = NULL;
    x->wake = NULL;
    x->id = ++ls_http_thread_of(http, ctx)->next_id;
    x->bytes = c->in->data + c->in->from;
    x->remote = &e->remote;
    x->secure = ls_stream_filter(s) != NULL;
    x->body_bytes_max = http->config.body_bytes_max;
    x->unread_bytes_max = http->config.unread_bytes_max;
    x->status = 200;
    x->response = LS_RESPONSE_NONE;
    x->open_framing = x->head.version > 10 ? LS_FRAMED_BY_PARTS : LS_FRAMED_BY_CLOSE;
    x->no_body = false;
    x->close = !e->terms.keep_alive;
    x->has_type = x->has_date = x->may_have_server = false;
    x->type = NULL;
    x->fields = NULL;
    x->fields_len = 0;
    x->trailers = x->end_fields = NULL;
    x->filter = NULL;
    x->id_field = 0;
    x->length = -1;
    x->written = 0;
    x->error = 0;
    c->in->seen = 0;
    ls_http1_body_begin(e);
    if (x->body_done && c->in->from + head_bytes == c->in->to) { /* no bytes after the head: the reference moves */
        x->head_bytes = (ls_slice){c->in, x->bytes, head_bytes};
        c->in = NULL;
    } else {
        x->head_bytes = ls_slice_of(c->in, c->in->from, head_bytes);
        c->in->from += head_bytes;
    }
}

/* The response is complete, and recorded when it is sent. Unless the bytes of a next request wait already. */
static ls_http1_outcome end_when_sent(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_stream *const s = ls_http1_stream(c);
    if (ls_http1_unparsed(c) == 0 && ls_stream_queued(s) > 0) {
        ls_http1_set_phase(c, LS_H1_SENDING);
        ls_stream_set_actor(s, NULL);
        const int err = ls_http1_send_out(ctx, c);
        if (err == LS_PENDING) return LS_H1_RELEASED;
        if (err < 0) {
            if (!ls_http1_end_changed(ctx, c, err)) ls_http1_conn_lost(ctx, c, err);
            return LS_H1_RELEASED;
        }
    }
    ls_http1_drop_exchange(ctx, c);
    return LS_H1_AGAIN;
}

static ls_http1_outcome after_exchange(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if ((e->link != 0 || ls_stream_receiving(ls_http1_stream(c))) && !ls_http1_is_complete(ctx, c, e))
        return LS_H1_RELEASED;
    const bool whole = ls_exchange_is_complete(&e->x), unread = !e->x.body_done;
    if (whole && !e->x.close) {
        if (unread) return ls_http1_skip_body(ctx, c);
        if (e->x.recorder != NULL) return end_when_sent(ctx, c);
        ls_http1_drop_exchange(ctx, c);
        return LS_H1_AGAIN;
    }
    /* A client that sent "Connection: close" sends no more bytes; others may still be sending. */
    c->linger = whole && (e->terms.keep_alive || unread);
    if (!whole) {
        ls_http1_end_incomplete(ctx, c);
        return LS_H1_RELEASED;
    }
    if (e->x.recorder == NULL) ls_http1_drop_exchange(ctx, c);
    ls_http1_send_last(ctx, c);
    return LS_H1_RELEASED;
}

void ls_http1_end_exchange(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http_handler *const handler = ls_http1_exchange_of(c)->x.handler;
    if (after_exchange(ctx, c) == LS_H1_AGAIN) ls_http1_run(ctx, c, handler);
}

/* A handler that waits holds no receive block: the text of the head moves to the end of the block of the exchange, if
 * there is room after the fields. */
static void keep_head(ls_block *block, ls_exchange *x)
{
    ls_slice *const head = &x->head_bytes;
    char *const to = block->data + block->cap - head->len;
    if (head->block == block || to < (const char *)&x->head.fields[x->head.field_count]) return;
    memcpy(to, head->ptr, head->len);
    ls_slice_drop(head);
    *head = ls_slice_of(block, (size_t)(to - block->data), head->len);
    x->bytes = to;
}

/* The handler suspended. Send the parts written so far. */
static void leave_suspended(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if (e->link & LS_H1_DETACHED) return;
    keep_head(c->exchange, &e->x);
    const ls_stream *const s = ls_http1_stream(c);
    /* The stream posts further sends for this actor. */
    assert((!ls_stream_receiving(s) && !ls_stream_sending(s)) || ls_stream_actor(s) == e->x.actor);
    if (ls_stream_queued(s) > 0 && !ls_stream_sending(s)) (void)ls_exchange_flush(ctx, &e->x);
    ls_http1_watch(ctx, c, e);
}

/* A packet of a body that is skipped has run. */
static void skip_on(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http_handler *const handler = ls_http1_exchange_of(c)->x.handler;
    if (ls_http1_skip_body(ctx, c) == LS_H1_AGAIN) ls_http1_run(ctx, c, handler);
}

static ls_http1_outcome handle(ls_thread_ctx *ctx, ls_http_server *http, ls_http1_conn *c,
                               const ls_http_handler *handler, uint32_t head_bytes)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    fill_exchange(ctx, http, c, e, head_bytes);
    e->x.handler = handler;
    ls_record_begin(&e->x, handler);
    ls_counter_add(&ls_http_thread_of(http, ctx)->requests, 1);
    ls_http1_set_phase(c, LS_H1_HANDLING);
    /* Bytes for the tunnel may follow, which a client has let others choose: they are no requests if it is refused. */
    if (e->x.head.method == LS_HTTP_CONNECT || ls_http1_is_last(c)) e->x.close = true;
    return ls_exchange_start(ctx, &e->x) ? after_exchange(ctx, c) : LS_H1_RELEASED;
}

/* Packets wait for the actor that the thread is inside, such as the end of a sleep in the same Lua state. */
static bool others_wait(const ls_thread_ctx *ctx)
{
    return ctx->inside != NULL && ls_actor_has_waiting(ctx->inside);
}

/* The handler of the actor that the thread is inside was replaced. */
static bool is_replaced(const ls_thread_ctx *ctx, const ls_http_server *http, const ls_http_handler *handler)
{
    return ctx->inside != NULL && atomic_load_explicit(&http->handler, memory_order_relaxed) != handler;
}

/* Begin an exchange with the head that was received. The bytes of the head, or a result of ls_http1_parse; *why: static
 * text. Without a head there is no exchange. */
static int begin(ls_thread_ctx *ctx, const ls_http_server *http, ls_http1_conn *c, uint32_t have, const char **why)
{
    ls_http_limits limits = http->config.head;
    bool tiny = have <= LS_HTTP1_TINY_HEAD_BYTES && limits.fields_max > LS_HTTP1_TINY_FIELDS;
    for (int err;; tiny = false) {
        limits.fields_max = tiny ? LS_HTTP1_TINY_FIELDS : http->config.head.fields_max;
        *why = "out of buffers";
        if ((c->exchange = ls_block_get(ctx->pool, tiny ? LS_BLOCK_TINY : LS_BLOCK_SMALL)) == NULL) return -503;
        ls_http1_exchange *e = ls_http1_exchange_of(c);
        err = ls_http1_parse(c->in->data + c->in->from, have, c->in->seen, &limits, &e->x.head, &e->terms, why);
        if (err > 0) return err;
        ls_block_drop(c->exchange);
        c->exchange = NULL;
        if (err != -431 || !tiny) return err; /* else there may be more fields than those of a tiny block */
    }
}

static void run(ls_thread_ctx *ctx, ls_http_server *http, ls_http1_conn *c, const ls_http_handler *handler)
{
    ls_stream *const s = ls_http1_stream(c);
    int err;
    for (;;) {
        const uint32_t have = ls_http1_unparsed(c);
        if (have > 0 && have > c->in->seen && !is_replaced(ctx, http, handler)) {
            const char *why = NULL;
            err = begin(ctx, http, c, have, &why);
            if (err > 0) {
                if (handle(ctx, http, c, handler, (uint32_t)err) == LS_H1_RELEASED) return;
                if (c->in != NULL && ls_stream_queued(s) < http->config.write_bytes_high && !others_wait(ctx))
                    continue;
            } else if (err < 0 && ls_http1_is_http2(c)) {
                ls_http1_leave(ctx, c);
                return;
            } else if (err < 0) {
                refuse(ctx, c, -err, why);
                return;
            } else {
                c->in->seen = have;
            }
        }
        err = LS_DONE; /* an operation that is posted below may complete on another thread at once */
        if (ls_stream_queued(s) > 0) {
            enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
            ls_http1_set_phase(c, LS_H1_SENDING);
            ls_stream_set_actor(s, NULL);
            err = ls_http1_send_out(ctx, c);
            if (err == LS_PENDING) return;
            ls_http1_set_phase(c, phase);
        }
        if (err == LS_DONE && c->in != NULL && ls_http1_unparsed(c) > c->in->seen) {
            if (!others_wait(ctx) && !is_replaced(ctx, http, handler)) continue;
            ls_http1_set_phase(c, LS_H1_IDLE);
            ls_stream_set_actor(s, NULL);
            ls_stream_requeue(s); /* `received` continues with the next request */
            return;
        }
        if (err == LS_DONE) err = read_more(ctx, http, c);
        if (err == LS_DONE) continue;
        if (err == LS_ENOMEM)
            refuse(ctx, c, 503, "out of buffers");
        else if (err != LS_PENDING && !ls_http1_end_changed(ctx, c, err))
            ls_http1_conn_close(ctx, c);
        return;
    }
}

void ls_http1_run(ls_thread_ctx *ctx, ls_http1_conn *c, const ls_http_handler *handler)
{
    ls_http_server *http = ls_http1_engine(c);
    if (ctx->inside != NULL) {
        run(ctx, http, c, handler);
    } else {
        run(ctx, http, c, atomic_load_explicit(&http->handler, memory_order_acquire));
        ls_exchange_leave(ctx);
    }
}

/* ---- packets ------------------------------------------------------------------------------------------------ */

static void received_for_head(ls_thread_ctx *ctx, ls_http1_conn *c, int64_t result)
{
    enum ls_http1_phase phase = atomic_load_explicit(&c->phase, memory_order_relaxed);
    if (result > 0) {
        ls_http1_append_rx(c, (uint32_t)result);
        ls_http1_run(ctx, c, NULL);
    } else if (result == LS_EAGAIN) {
        ls_http1_run(ctx, c, NULL); /* it was requeued */
    } else if (result == LS_ETIMEDOUT && c->in != NULL) {
        refuse(ctx, c, 408, "the request head took too long");
    } else if (result == LS_ECANCELED && (phase == LS_H1_HEAD || !c->last_look) &&
               !atomic_load(&ls_http1_engine(c)->aborting)) {
        c->last_look = phase != LS_H1_HEAD; /* a drain cancelled the receive, but bytes may be in transit */
        ls_http1_run(ctx, c, NULL);
    } else if (result == LS_ENOMEM) {
        refuse(ctx, c, 503, "out of buffers");
    } else {
        ls_http1_conn_close(ctx, c);
    }
}

/* The receive that was pending when the exchange ended has completed. Its bytes are part of the body, or follow it. An
 * error other than the cancellation ends the connection; the end of the stream is found by the next receive. */
static void receive_ended(ls_http1_conn *c, ls_exchange *x, int64_t result)
{
    ls_http1_body_waited(x);
    if (result > 0)
        ls_http1_append_rx(c, (uint32_t)result);
    else if (result < 0 && (result != LS_ECANCELED || atomic_load(&ls_http1_engine(c)->aborting)) && x->error == 0)
        x->error = (int)result;
}

static void end_received(ls_thread_ctx *ctx, ls_http1_conn *c, int64_t result)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    const bool unexpects = e->link & LS_H1_UNEXPECTS;
    e->link &= (uint8_t) ~(LS_H1_EXPECTS_END | LS_H1_UNEXPECTS);
    if (ls_http1_expected(c, result) < 0) e->link |= LS_H1_LOST;
    if (e->link & LS_H1_LOST)
        ls_http1_detach(ctx, c, e);
    else if (unexpects)
        ls_exchange_wake(ctx, &e->x);
    else
        ls_http1_watch(ctx, c, e); /* bytes of a next request: the end follows them, a reset does not */
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_http1_conn *c = ls_stream_user(s);
    if (c->exchange == NULL) {
        received_for_head(ctx, c, result);
    } else {
        ls_exchange *x = &ls_http1_exchange_of(c)->x;
        switch ((enum ls_http1_phase)atomic_load_explicit(&c->phase, memory_order_relaxed)) {
        case LS_H1_ENDING:
            receive_ended(c, x, result);
            ls_http1_end_exchange(ctx, c);
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
                ls_exchange_wake(ctx, x);
            }
            break;
        }
    }
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_http1_conn *c = ls_stream_user(s);
    switch ((enum ls_http1_phase)atomic_load_explicit(&c->phase, memory_order_relaxed)) {
    case LS_H1_HANDLING: {
        ls_http1_exchange *e = ls_http1_exchange_of(c);
        if (err < 0) e->link |= LS_H1_LOST;
        if (err < 0 && e->x.error == 0) e->x.error = err;
        if (err == LS_OK) e->begin_at = 0;
        if (e->awaits_sent) {
            e->awaits_sent = false;
            ls_exchange_wake(ctx, &e->x);
        } else if (e->link & LS_H1_LOST) {
            ls_http1_detach(ctx, c, e);
        }
        break;
    }
    case LS_H1_ENDING: /* `received` continues when the receive completes */
        if (err < 0 && ls_http1_exchange_of(c)->x.error == 0) ls_http1_exchange_of(c)->x.error = err;
        break;
    case LS_H1_SENDING:
        if (err < 0) {
            ls_http1_conn_lost(ctx, c, err);
        } else {
            if (c->exchange != NULL) ls_http1_drop_exchange(ctx, c);
            ls_http1_set_phase(c, LS_H1_IDLE);
            ls_http1_run(ctx, c, NULL);
        }
        break;
    case LS_H1_SKIPPING:
        if (err < 0) ls_http1_exchange_of(c)->x.error = err;
        skip_on(ctx, c);
        break;
    default: ls_http1_conn_lost(ctx, c, err); break;
    }
}

/* ---- the transport ------------------------------------------------------------------------------------------ */

static void returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->released)
        ls_http1_end_exchange(ctx, ls_http1_conn_of(x));
    else
        leave_suspended(ctx, ls_http1_conn_of(x));
}

static const ls_addr *local(const ls_exchange *x)
{
    ls_http1_conn *c = x->conn;
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    if (e->link & LS_H1_UPGRADED) return &e->local;
    if (e->link & LS_H1_DETACHED) return &ls_http1_engine(c)->local;
    if (!ls_addr_is_any(&ls_http1_engine(c)->local) || ls_stream_local(ls_http1_stream(c), &e->local) < 0)
        return &ls_http1_engine(c)->local;
    return &e->local;
}

static const ls_tls_peer *peer(const ls_exchange *x, ls_tls_peer *room)
{
    const ls_filter *session = x->stream != NULL ? ls_stream_filter(x->stream) : NULL;
    if (session == NULL) return NULL;
    ls_tls_peer_of(session, room);
    return room;
}

const ls_transport ls_http1_transport = {
    .head = ls_http1_head,
    .data = ls_http1_data,
    .flush = ls_http1_flush,
    .more = ls_http1_more,
    .returned = returned,
    .upgrade = ls_http1_upgrade,
    .unexpect_end = ls_http1_unexpect_end,
    .local = local,
    .peer = peer,
    .hints = true,
};
