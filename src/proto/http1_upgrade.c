/* http1_upgrade.c - a connection that leaves HTTP/1.1: an upgrade (RFC 9110 section 7.8), or a tunnel (section 9.3.6).
 *
 * The stream moves to one that belongs to the new protocol, behind the responses and with the received bytes that this
 * connection holds. What is left here, ls_http1_conn and its empty stream, stays until the handler returns the
 * exchange, as that of a lost connection does (LS_H1_DETACHED). */
#include <assert.h>

#include "proto/http1_internal.h"

/* The response head is 101 or a 2xx, so no Content-Length and no Transfer-Encoding follow. */
static int check(const ls_exchange *x, const char *protocol, size_t len)
{
    if (x->error != 0) return x->error;
    if (x->response != LS_RESPONSE_NONE) return LS_EBUSY;
    if (!x->body_done) return LS_EINVAL;
    if (x->head.method == LS_HTTP_CONNECT) return x->status >= 200 && x->status <= 299 ? LS_OK : LS_EINVAL;
    return x->head.upgrade && ls_http_head_upgrades_to(&x->head, x->bytes, protocol, len) ? LS_OK : LS_EINVAL;
}

/* Move the stream, unless ls_http1_abort has cancelled it: from now on nothing of HTTP cancels it. */
static int move(ls_http1_conn *c, const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    int err = LS_ECLOSED;
    ls_mutex_lock(&c->http->mutex);
    if (!atomic_load(&c->http->aborting)) err = ls_stream_move(ls_http1_stream(c), handler, user_bytes, out);
    if (err == LS_OK) ls_list_remove(&c->node);
    ls_mutex_unlock(&c->http->mutex);
    return err;
}

int ls_http1_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                     const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    ls_stream *const s = ls_http1_stream(c);
    int err = check(x, protocol, protocol_len);
    if (err < 0) return err;
    assert(!ls_stream_receiving(s));                 /* the body is complete */
    if (!ls_http1_end_watch(c, e)) return LS_ERESET; /* its packet follows: the connection is lost */
    const bool tunnel = x->head.method == LS_HTTP_CONNECT;
    const size_t begin = ls_stream_end(s);
    e->local = *x->transport->local(x);
    ls_stream_set_actor(s, x->actor);
    ls_exchange_drop_upgrade(x);
    err = ls_http1_put_upgrade(ctx, x, tunnel ? x->status : 101, protocol, tunnel ? 0 : protocol_len);
    if (err == LS_OK) err = move(c, handler, user_bytes, &out->stream);
    if (err < 0) {
        if (!ls_stream_truncate(s, begin) && !ls_stream_sending(s)) ls_stream_discard(s);
        return err;
    }
    if (c->in != NULL && c->in_from < c->in_to) {
        ls_stream_unread(out->stream, (ls_slice){c->in, c->in->data + c->in_from, c->in_to - c->in_from});
        c->in = NULL; /* the reference has moved */
        c->in_from = c->in_to = 0;
    }
    out->limit = c->http->conn_limit;
    ls_counter_add(&ls_http1_thread_of(c->http, ctx)->responses, 1);
    if (!tunnel) x->status = 101;
    x->response = LS_RESPONSE_DONE;
    x->error = LS_ECLOSED;
    e->link |= LS_H1_DETACHED | LS_H1_UPGRADED;
    return LS_OK;
}
