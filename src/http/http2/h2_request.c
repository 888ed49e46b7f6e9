/* h2_request.c - what nghttp2 finds in the frames of a client: requests, their bodies and their ends.
 *
 * The fields of a request are copied once, to the rest of the block that has the exchange, or into a large block when they are long.
 * A body is not copied: its slices share the block into which the connection has received, unless they are so short
 * that they would hold much more memory than they have. */
#include <string.h>

#include "base/crypto/random.h"
#include "codec/base64.h"
#include "http/http2/h2_conn_internal.h"
#include "net/refused.h"

enum {
    BODY_COPIED_MAX = 2048 /* shorter pieces of a body are copied */
};

/* ---- begin and end ------------------------------------------------------------------------------------------- */

static ls_h2_exchange *exchange_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* Return the credit for bytes of the body that no handler will read. */
static void credit_connection(ls_h2_exchange *e)
{
    if (e->uncredited > 0 && nghttp2_session_consume_connection(e->c->session, e->uncredited) != 0)
        e->c->failed = true;
    e->uncredited = 0;
}

int ls_h2_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    ls_h2_conn *c = user;
    ls_h2_exchange *e = exchange_of(session, id);
    if (e == NULL) return 0;
    credit_connection(e);
    uint32_t *const budget = &c->limits.budget; /* see h2_limits.c */
    if (e->end_sent && *budget > 0 && *budget < c->http->config.http2_resets_max) (*budget)++;
    ls_h2_end_stream(c->ctx, e, e->end_sent && (!e->tunnels || e->in_end) ? 0 : LS_ERESET);
    return 0;
}

/* ---- the head ------------------------------------------------------------------------------------------------ */

/* A stream that gets no exchange: its fields are decoded, and lost. */
static int refuse_stream(ls_h2_conn *c, nghttp2_session *session, int32_t id)
{
    ls_counter_add(&ls_http_thread_of(c->http, c->ctx)->http2_refused, 1);
    return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM) == 0
               ? 0
               : NGHTTP2_ERR_CALLBACK_FAILURE;
}

int ls_h2_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    ls_h2_conn *c = user;
    const int32_t id = frame->hd.stream_id;
    const bool trailers = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
    c->heading = trailers ? exchange_of(session, id) : NULL;
    if (trailers) return 0;
    const uint32_t peer_max = c->http->config.streams_per_ip_max;
    ls_peers *const peers = ls_deadlines_peers(c->deadlines);
    if (c->running >= c->http->config.http2_streams_max) return refuse_stream(c, session, id);
    const int err = peer_max > 0 ? ls_peers_enter(peers, &c->remote, LS_PEERS_STREAMS, peer_max) : LS_OK;
    if (err == LS_ELIMIT) ls_refusals_add_peer(peers, &c->remote, LS_PEERS_STREAMS, peer_max);
    if (err < 0) return refuse_stream(c, session, id);
    ls_block *self = ls_block_get(c->ctx->pool, LS_BLOCK_SMALL);
    if (self == NULL && peer_max > 0) ls_peers_leave(peers, &c->remote, LS_PEERS_STREAMS);
    if (self == NULL) return refuse_stream(c, session, id);
    ls_h2_exchange *e = (ls_h2_exchange *)(void *)self->data;
    memset(e, 0, offsetof(ls_h2_exchange, x) + offsetof(ls_exchange, head));
    e->c = c;
    e->self = self;
    e->id = id;
    e->left = -1;
    e->window = LS_H2_WINDOW;
    e->of_peer = peer_max > 0;
    e->released = true; /* until it has a handler */
    e->x.head_bytes = ls_slice_of(self, sizeof *e, 0);
    ls_h2_head_begin(&e->head, &e->x.head, self->data + sizeof *e, self->cap - sizeof *e, &c->http->config.head);
    ls_list_push(&c->exchanges, &e->node);
    c->streams++;
    c->heading = e;
    (void)nghttp2_session_set_stream_user_data(session, id, e);
    return 0;
}

/* Move the fields to a large block. false: no memory, or they are in one. */
static bool grow(ls_h2_exchange *e)
{
    ls_block *block = e->x.head_bytes.block == e->self ? ls_block_get(e->c->ctx->pool, LS_BLOCK_LARGE) : NULL;
    if (block == NULL) return false;
    memcpy(block->data, e->head.bytes, e->head.used);
    e->head.bytes = block->data;
    e->head.capacity = block->cap;
    ls_slice_drop(&e->x.head_bytes);
    e->x.head_bytes = (ls_slice){block, block->data, 0};
    return true;
}

static int trailer(ls_h2_exchange *e, const char *name, size_t name_len, const char *value, size_t value_len)
{
    ls_thread_ctx *ctx = e->c->ctx;
    const size_t have = e->in_trailers != NULL ? e->in_trailers->to : 0;
    if (have + name_len + value_len + 4 > LS_TRAILER_BYTES_MAX) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (ls_trailers_add(ctx, &e->in_trailers, name, name_len) < 0 ||
        ls_trailers_add(ctx, &e->in_trailers, ": ", 2) < 0 ||
        ls_trailers_add(ctx, &e->in_trailers, value, value_len) < 0 ||
        ls_trailers_add(ctx, &e->in_trailers, "\r\n", 2) < 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return 0;
}

int ls_h2_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                 const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
    ls_h2_conn *c = user;
    ls_h2_exchange *e = c->heading;
    c->limits.payload += name_len + value_len;
    if (e == NULL) return 0;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return trailer(e, (const char *)name, name_len, (const char *)value, value_len);
    int err;
    do err = ls_h2_head_add(&e->head, (const char *)name, name_len, (const char *)value, value_len);
    while (err == LS_H2_HEAD_FULL && grow(e));
    const bool far_too_long = e->head.list_bytes > 2 * (size_t)c->http->config.head.head_bytes_max;
    if (err != LS_H2_HEAD_FULL && !far_too_long) return 0;
    ls_h2_count_reset(c);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* a reset, INTERNAL_ERROR */
}

/* ---- the handler --------------------------------------------------------------------------------------------- */

/* x.op, later and outside of every actor: c->actor is not held while a Lua state is entered, which may take time. */
static void start(ls_thread_ctx *ctx, ls_op *op)
{
    ls_exchange *x = LS_CONTAINER(op, ls_exchange, op);
    ls_h2_exchange *e = ls_h2_of(x);
    ls_h2_conn *c = e->c;
    ls_mutex_lock(&c->lock);
    const bool lost = e->lost != 0;
    if (lost) e->released = true;
    ls_h2_unlock(ctx, e, lost);
    if (lost) return;
    x->handler = atomic_load_explicit(&c->http->handler, memory_order_acquire); /* here: see ls_http_engine_ops */
    if (ls_exchange_start(ctx, x)) x->transport->returned(ctx, x);
    ls_exchange_leave(ctx);
}

static void fill_exchange(ls_h2_conn *c, ls_h2_exchange *e, bool has_body)
{
    ls_exchange *x = &e->x;
    const ls_http_config *config = &c->http->config;
    x->transport = &c->h2->transport;
    x->conn = c;
    x->bytes = e->x.head_bytes.ptr;
    x->id = ++ls_http_thread_of(c->http, c->ctx)->next_id;
    x->remote = &c->remote;
    x->secure = c->peer != NULL;
    x->body_bytes_max = config->body_bytes_max;
    x->unread_bytes_max = UINT64_MAX; /* a body that is not read ends with its stream */
    x->body_done = !has_body;
    x->head.has_body = has_body;
    x->status = 200;
    x->open_framing = LS_FRAMED_BY_PARTS;
    x->length = -1;
    x->op = (ls_op){.done = start};
    ls_record_begin(x, atomic_load_explicit(&c->http->handler, memory_order_acquire));
}

/* A request for a WebSocket has a key in HTTP/1.1. */
static int add_key(ls_h2_exchange *e)
{
    static const char name[] = "sec-websocket-key";
    unsigned char bytes[16];
    char key[24];
    if (ls_http_head_find(&e->x.head, e->head.bytes, name, sizeof name - 1) != NULL)
        return LS_OK; /* HAProxy sends one */
    ls_random(bytes, sizeof bytes);
    (void)ls_base64_write(bytes, sizeof bytes, false, key);
    int err;
    do err = ls_h2_head_add(&e->head, name, sizeof name - 1, key, sizeof key);
    while (err == LS_H2_HEAD_FULL && grow(e));
    return err == LS_H2_HEAD_FULL ? -431 : err;
}

/* Without a wish of the client its responses share the connection, so that a short one does not wait for a long one
 * (RFC 9218 section 10 leaves that to the server). */
static void share(ls_h2_conn *c, const ls_h2_exchange *e)
{
    const nghttp2_extpri shared = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    if (ls_http_head_find(&e->x.head, e->x.bytes, "priority", 8) == NULL &&
        nghttp2_session_change_extpri_stream_priority(c->session, e->id, &shared, 0) == NGHTTP2_ERR_NOMEM)
        c->failed = true;
}

/* The head is complete. */
static void begin_request(ls_h2_conn *c, ls_h2_exchange *e, bool has_body)
{
    const char *why = NULL;
    int err = e->head.extended ? add_key(e) : LS_OK;
    if (err == LS_OK) err = ls_h2_head_end(&e->head, &why);
    e->connects = e->head.extended || e->x.head.method == LS_HTTP_CONNECT;
    if (e->connects) has_body = false; /* what follows is for the tunnel */
    fill_exchange(c, e, has_body);
    if (err == LS_H2_HEAD_MALFORMED) {
        e->x.refused = true;
        ls_h2_reset(e, NGHTTP2_PROTOCOL_ERROR, why);
        return;
    }
    if (err < 0) {
        ls_h2_refuse(c->ctx, e, -err, why);
        return;
    }
    share(c, e);
    ls_counter_add(&ls_http_thread_of(c->http, c->ctx)->requests, 1);
    e->x.continue_due = e->head.expect_continue && has_body;
    e->released = false; /* no other thread knows it yet */
    e->counted = true;
    c->running++;
    c->requests++;
    ls_workers_later(c->ctx, &e->x.op);
}

/* ---- the body ------------------------------------------------------------------------------------------------ */

/* Copy a short piece, after the last one. */
static int copy_piece(ls_h2_exchange *e, const char *bytes, size_t len, ls_slice *out)
{
    if (e->in_fill == NULL || e->in_fill->cap - e->in_filled < len) {
        if (e->in_fill != NULL) ls_block_drop(e->in_fill);
        if ((e->in_fill = ls_block_get(e->c->ctx->pool, LS_BLOCK_SMALL)) == NULL) return LS_ENOMEM;
        e->in_filled = 0;
    }
    memcpy(e->in_fill->data + e->in_filled, bytes, len);
    ls_pool_copied(e->c->ctx->pool, len);
    *out = ls_slice_of(e->in_fill, e->in_filled, len);
    e->in_filled += (uint32_t)len;
    return LS_OK;
}

/* A handler that reads as fast as it gets, and has used up its window, gets a larger one, and with it the connection. */
static void grow_window(ls_h2_exchange *e, bool reads)
{
    if (!reads || e->arrived < e->window) return;
    ls_h2_widen(e, 4 * (uint64_t)e->window);
    e->arrived = 0;
}

int ls_h2_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *user)
{
    ls_h2_conn *c = user;
    ls_h2_exchange *e = exchange_of(session, id);
    ls_slice piece;
    if (flags & NGHTTP2_FLAG_PADDED) c->limits.payload += len;
    if (e == NULL || e->closed || e->unread_ms != 0)
        return nghttp2_session_consume(session, id, len) == 0 ? 0 : NGHTTP2_ERR_NOMEM;
    if (len == 0) return 0;
    if (len < BODY_COPIED_MAX) {
        if (copy_piece(e, (const char *)bytes, len, &piece) < 0) return NGHTTP2_ERR_NOMEM;
    } else {
        piece = (ls_slice){ls_block_hold(c->in.block), (const char *)bytes, len};
    }
    e->body_received += len;
    e->uncredited += (uint32_t)len;
    e->arrived += (uint32_t)len;
    ls_mutex_lock(&c->lock);
    const bool reads = ls_h2_queue_first(&e->in) == NULL;
    const int err = ls_h2_queue_add(&e->in, piece);
    ls_h2_tell(c->ctx, e);
    ls_mutex_unlock(&c->lock);
    if (err < 0) return NGHTTP2_ERR_NOMEM;
    grow_window(e, reads);
    return 0;
}

static void end_body(ls_h2_conn *c, ls_h2_exchange *e)
{
    ls_mutex_lock(&c->lock);
    e->in_end = true;
    ls_h2_tell(c->ctx, e);
    ls_mutex_unlock(&c->lock);
}

int ls_h2_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    ls_h2_conn *c = user;
    const bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    ls_h2_exchange *e = frame->hd.type == NGHTTP2_HEADERS ? c->heading : exchange_of(session, frame->hd.stream_id);
    c->head_ms = 0;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (e == NULL) break;
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            begin_request(c, e, !end);
        else if (end)
            end_body(c, e);
        break;
    case NGHTTP2_DATA:
        if (e != NULL && end) end_body(c, e);
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK && c->drain == LS_H2_ANNOUNCED) c->drain = LS_H2_ANSWERED;
        break;
    case NGHTTP2_WINDOW_UPDATE:
        if (e != NULL) ls_h2_window_grew(e, false);
        if (frame->hd.stream_id == 0)
            LS_LIST_EACH (ls_h2_exchange, each, &c->exchanges, node) ls_h2_window_grew(each, false);
        break;
    case NGHTTP2_RST_STREAM: ls_h2_count_reset(c); break;
    default: break;
    }
    return 0;
}
