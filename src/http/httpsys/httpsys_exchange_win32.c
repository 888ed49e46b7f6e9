/* httpsys_exchange_win32.c - one request of http.sys, from its head to the release of its memory, and its body.
 *
 * The buffer that http.sys filled contains all bytes to which the spans of the head refer; the exchange keeps it until
 * the end. A body is received into blocks, one receive at a time and only when the handler reads, so that http.sys
 * stops the client while the handler does not read. The handler gets slices of those blocks. */
#include <assert.h>
#include <string.h>
#include <winsock2.h>
#include <ws2tcpip.h>

#include "base/io/log.h"
#include "http/httpsys/httpsys_internal_win32.h"
#include "http/record.h"

enum { TAIL_BYTES_MIN = 1024 }; /* a receive into a smaller free end is not worth it */

static void body_received(ls_thread_ctx *ctx, ls_op *op);
static const ls_transport transport;

/* ---- begin and end ------------------------------------------------------------------------------------------ */

/* Cancel a request that gets no response, or no complete one: http.sys closes its connection. On a system without
 * HttpCancelHttpRequest (Wine 8.0) a 500 is queued, if the head is not sent yet. True: the 500 is queued. */
static bool cancel(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    ls_httpsys *http = e->http;
    if (http->api.CancelHttpRequest != NULL) {
        (void)http->api.CancelHttpRequest(http->queue, e->id, NULL);
        return false;
    }
    if (e->head_sent) return false;
    ls_httpsys_out_drop(e);
    memset(&e->response, 0, sizeof e->response);
    e->x.fields_len = 0;
    e->x.has_type = e->x.has_date = false;
    ls_exchange_drop_trailers(&e->x);
    e->x.error = 0;
    e->x.response = LS_RESPONSE_NONE;
    ls_httpsys_send_error(ctx, e, 500, NULL);
    return e->x.response == LS_RESPONSE_DONE;
}

static void exchange_drop(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    ls_httpsys *http = e->http;
    ls_httpsys_out_drop(e);
    if (e->in != NULL) ls_block_drop(e->in);
    ls_exchange_end(ctx, &e->x);
    ls_slice_drop(&e->x.head_bytes);
    ls_block_drop(e->self);
    ls_httpsys_request_ended(http);
}

static void set_address(const SOCKADDR *from, ls_addr *out)
{
    ls_sockaddr sa = {.len = 0};
    if (from != NULL && from->sa_family == AF_INET)
        sa.len = sizeof(struct sockaddr_in);
    else if (from != NULL && from->sa_family == AF_INET6)
        sa.len = sizeof(struct sockaddr_in6);
    memset(out, 0, sizeof *out);
    if (sa.len == 0) return;
    memcpy(sa.bytes, from, sa.len);
    ls_addr_of(&sa, out);
}

/* Create the exchange of request `id`. NULL: no memory. */
static ls_httpsys_exchange *exchange_new(ls_thread_ctx *ctx, ls_httpsys *http, HTTP_REQUEST_ID id)
{
    ls_block *self = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
    if (self == NULL) return NULL;
    ls_httpsys_exchange *e = (ls_httpsys_exchange *)(void *)self->data;
    memset(e, 0, offsetof(ls_httpsys_exchange, x) + offsetof(ls_exchange, head));
    e->http = http;
    e->config = atomic_load_explicit(&http->config, memory_order_acquire);
    e->x.handler = atomic_load_explicit(&http->handler, memory_order_acquire);
    e->self = self;
    e->id = id;
    e->rx.op.done = body_received;
    e->tx.op.done = ls_httpsys_transmitted;
    e->out.slices = e->out.few;
    e->out.room = LS_HTTPSYS_SLICES_FEW;
    e->chunks = e->chunks_few;
    e->unknown = e->unknown_few;
    e->x.transport = &transport;
    e->x.conn = e;
    e->x.id = ++http->threads[ctx->index].next_id;
    e->x.remote = &e->remote;
    e->x.body_bytes_max = e->config->body_bytes_max;
    e->x.unread_bytes_max = UINT64_MAX; /* http.sys skips it */
    e->x.status = 200;
    e->x.length = -1;
    ls_record_begin(&e->x, e->x.handler);
    atomic_fetch_add(&http->live, 1); /* before the receive that returned it can retire */
    atomic_fetch_add(&http->open, 1);
    return e;
}

/* The handler released the exchange, or the request had no handler. */
static void after_exchange(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    if (e->rx_pending) { /* body_received calls this function again */
        e->phase = LS_HS_ENDING;
        (void)e->http->api.CancelIoEx(e->http->queue, &e->rx.overlapped);
        return;
    }
    int err = e->x.error != 0 ? e->x.error : e->x.response == LS_RESPONSE_DONE ? LS_OK : LS_ECANCELED;
    if (err == LS_OK) {
        e->phase = LS_HS_LAST;
        if (e->tx_pending) return; /* ls_httpsys_transmitted continues */
        e->x.actor = NULL;
        err = ls_httpsys_send_out(ctx, e);
        if (err == LS_PENDING) return;
    }
    if (err < 0) { /* close the connection, so that the client does not take the response for complete */
        if (cancel(ctx, e)) {
            after_exchange(ctx, e); /* at most once: then the head is sent */
            return;
        }
        e->phase = LS_HS_CANCELLED;
        if (e->tx_pending) return;
    }
    exchange_drop(ctx, e);
}

/* The handler suspended. Send the parts written so far. */
static void leave_suspended(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    if (ls_httpsys_has_output(e) && !e->tx_pending && e->x.error == 0) (void)ls_exchange_flush(ctx, &e->x);
}

static void returned(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->released)
        after_exchange(ctx, ls_httpsys_of(x));
    else
        leave_suspended(ctx, ls_httpsys_of(x));
}

void ls_httpsys_transmitted(ls_thread_ctx *ctx, ls_op *op)
{
    ls_httpsys_exchange *e = LS_CONTAINER(op, ls_httpsys_exchange, tx.op);
    int err = ls_httpsys_sent(e);
    if (e->phase == LS_HS_CANCELLED) {
        exchange_drop(ctx, e);
        return;
    }
    if (err == LS_OK && e->x.error == 0) err = ls_httpsys_send_out(ctx, e);
    if (err == LS_PENDING) return;
    if (err < 0 && e->x.error == 0) e->x.error = err;
    if (e->phase == LS_HS_LAST) {
        after_exchange(ctx, e);
    } else if (e->phase == LS_HS_HANDLING && e->awaits_sent) {
        e->awaits_sent = false;
        ls_exchange_wake(ctx, &e->x);
    } /* otherwise the handler does not wait for it; in ENDING body_received continues */
}

/* ---- a request ---------------------------------------------------------------------------------------------- */

static void send_error(ls_thread_ctx *ctx, ls_httpsys_exchange *e, int status, const char *why)
{
    ls_httpsys_send_error(ctx, e, status, why);
    after_exchange(ctx, e);
}

/* Without memory for a response the request can only be cancelled. */
static void refuse(ls_httpsys *http, HTTP_REQUEST_ID id)
{
    ls_log(LS_LOG_WARN, "request refused: %s", ls_err_text(LS_ENOMEM));
    if (http->api.CancelHttpRequest != NULL) (void)http->api.CancelHttpRequest(http->queue, id, NULL);
}

void ls_httpsys_serve_too_large(ls_thread_ctx *ctx, ls_httpsys *http, HTTP_REQUEST_ID id)
{
    ls_httpsys_exchange *e = exchange_new(ctx, http, id);
    if (e == NULL) {
        refuse(http, id);
        return;
    }
    memset(&e->x.head, 0, offsetof(ls_http_head, fields));
    e->x.head.version = 11;
    e->x.head.method = LS_HTTP_OTHER;
    send_error(ctx, e, 431, "request head too large");
}

void ls_httpsys_serve(ls_thread_ctx *ctx, ls_httpsys *http, ls_block *buffer)
{
    const HTTP_REQUEST *request = (const HTTP_REQUEST *)(const void *)buffer->data;
    ls_httpsys_exchange *e = exchange_new(ctx, http, request->RequestId);
    const char *why = NULL;
    bool keep_alive = false;
    assert(ctx->inside == NULL);
    if (e == NULL) {
        refuse(http, request->RequestId);
        ls_block_drop(buffer);
        return;
    }
    ls_exchange *x = &e->x;
    x->bytes = buffer->data;
    x->head_bytes = (ls_slice){buffer, buffer->data, buffer->cap};
    set_address(request->Address.pRemoteAddress, &e->remote);
    set_address(request->Address.pLocalAddress, &e->local);
    x->secure = request->pSslInfo != NULL;
    const int err = ls_httpsys_read_head(request, buffer->data + buffer->cap - LS_HTTPSYS_NAMES_BYTES,
                                         &e->config->head, &x->head, &keep_alive, &why);
    x->body_done = (request->Flags & HTTP_REQUEST_FLAG_MORE_ENTITY_BODY_EXISTS) == 0;
    e->body_left = x->head.content_length;
    x->close = !keep_alive;
    if (http->api.SendResponseEntityBody == NULL)
        x->open_framing = LS_FRAMED_BY_LENGTH;                           /* it is sent as a whole */
    else if (request->Version.MajorVersion > 1 || x->head.version == 10) /* the end of the stream of HTTP/2 */
        x->open_framing = LS_FRAMED_BY_CLOSE;
    else
        x->open_framing = LS_FRAMED_BY_PARTS;
    if (err < 0) {
        send_error(ctx, e, -err, why);
        return;
    }
    ls_counter_add(&http->threads[ctx->index].requests, 1);
    if (x->head.method == LS_HTTP_CONNECT) {
        send_error(ctx, e, 501, "CONNECT not supported");
        return;
    }
    if (ls_exchange_start(ctx, x)) after_exchange(ctx, e);
    ls_exchange_leave(ctx);
}

/* ---- its body ----------------------------------------------------------------------------------------------- */

/* A body receive has completed: bytes, the end of the body, or an error. */
static void body_arrived(ls_httpsys_exchange *e)
{
    const int64_t result = atomic_load_explicit(&e->rx.op.result, memory_order_relaxed);
    e->rx_pending = false;
    if (e->rx.error == ERROR_HANDLE_EOF || result == 0)
        e->x.body_done = true;
    else if (result > 0)
        e->in_to += (uint32_t)result;
    else if (e->x.error == 0 && e->phase == LS_HS_HANDLING) /* not after the cancellation of an unneeded receive */
        e->x.error = (int)result;
}

static void body_received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_httpsys_exchange *e = LS_CONTAINER(op, ls_httpsys_exchange, rx.op);
    body_arrived(e);
    if (e->phase == LS_HS_ENDING)
        after_exchange(ctx, e);
    else
        ls_exchange_wake(ctx, &e->x);
}

/* Receive into the free end of e->in, or into a new block. */
static int receive(ls_thread_ctx *ctx, ls_httpsys_exchange *e)
{
    ls_httpsys *http = e->http;
    const bool fast = e->in != NULL && e->in_to == e->in->cap; /* a slow client must not hold a large block */
    if (e->in != NULL && e->in->cap - e->in_to < TAIL_BYTES_MIN) {
        ls_block_drop(e->in);
        e->in = NULL;
    }
    if (e->in == NULL) {
        const bool large = fast && !(e->x.head.has_length && e->body_left <= LS_BLOCK_SMALL);
        if ((e->in = ls_block_get(ctx->pool, large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL)) == NULL) return LS_ENOMEM;
        e->in_from = e->in_to = 0;
    }
    ls_overlapped_prepare(&e->rx);
    e->rx.op.actor = e->x.actor;
    e->rx_pending = true;
    const ULONG error = http->api.ReceiveRequestEntityBody(http->queue, e->id, 0, e->in->data + e->in_to,
                                                           e->in->cap - e->in_to, NULL, &e->rx.overlapped);
    if (ls_overlapped_posted(ctx, &e->rx, error, false) == LS_PENDING) return LS_PENDING;
    body_arrived(e);
    return LS_DONE;
}

static int more(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *out)
{
    ls_httpsys_exchange *e = ls_httpsys_of(x);
    if (out == NULL) return LS_OK; /* http.sys tells nothing about the client before a send */
    for (;;) {
        if (e->in_from < e->in_to) {
            const uint32_t len = e->in_to - e->in_from;
            *out = ls_slice_of(e->in, e->in_from, len);
            e->in_from = e->in_to;
            if (x->head.has_length) {
                e->body_left -= len < e->body_left ? len : e->body_left;
                if (e->body_left == 0) x->body_done = true;
            }
            return LS_DONE;
        }
        if (x->body_done) return LS_DONE;
        if (x->error != 0) return x->error;
        if (e->rx_pending) return LS_PENDING; /* posted for another task */
        int err = LS_OK;
        if (ls_httpsys_has_output(e)) err = ls_httpsys_send_out(ctx, e); /* the client may wait for these parts */
        if (err >= 0) err = receive(ctx, e);
        if (err == LS_PENDING || err == LS_ENOMEM) return err;
        if (err < 0) return x->error = err;
    }
}

static const ls_addr *local(const ls_exchange *x)
{
    return &LS_CONTAINER(x, const ls_httpsys_exchange, x)->local;
}

static const ls_transport transport = {
    .head = ls_httpsys_head,
    .data = ls_httpsys_data,
    .flush = ls_httpsys_flush,
    .more = more,
    .returned = returned,
    .local = local,
    .no_upgrade = "the listener uses http.sys, which cannot hand over a connection",
};
