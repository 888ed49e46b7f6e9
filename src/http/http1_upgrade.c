/* http1_upgrade.c - a connection that leaves HTTP/1.1: an upgrade (RFC 9110 section 7.8), or a tunnel (section 9.3.6).
 *
 * The stream moves to one that belongs to the new protocol, after the responses and with the received bytes that this
 * connection holds. What is left here, ls_http1_conn and its empty stream, stays until the handler returns the
 * exchange, as that of a lost connection does (LS_H1_DETACHED). */
#include <assert.h>

#include "http/http1_internal.h"

/* Move the stream, unless an abort of the engine has cancelled it: from now on nothing of HTTP cancels it. */
static int move(ls_http1_conn *c, const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    int err = LS_ECLOSED;
    ls_mutex_lock(&ls_http1_engine(c)->mutex);
    if (!atomic_load(&ls_http1_engine(c)->aborting))
        err = ls_stream_move(ls_http1_stream(c), handler, user_bytes, out);
    if (err == LS_OK) ls_list_remove(&c->node);
    ls_mutex_unlock(&ls_http1_engine(c)->mutex);
    return err;
}

int ls_http1_unexpect_end(ls_thread_ctx *ctx, ls_exchange *x)
{
    if (!ls_stream_receiving(x->stream)) return LS_DONE;
    ls_http1_of(x)->link |= LS_H1_UNEXPECTS;
    ls_stream_cancel_recv(x->stream);
    return LS_PENDING;
}

int ls_http1_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                     const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    ls_stream *const s = ls_http1_stream(c);
    const bool tunnel = x->head.method == LS_HTTP_CONNECT;
    int err;
    if (!tunnel && !(x->head.upgrade && ls_http_head_lists(&x->head, x->bytes, "upgrade", 7, protocol, protocol_len)))
        return LS_EINVAL;
    assert(!ls_stream_receiving(s));                 /* see ls_exchange_unexpect_end */
    if (!ls_http1_end_watch(c, e)) return LS_ERESET; /* its packet follows: the connection is lost */
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
    if (ls_http1_unparsed(c) > 0) {
        ls_stream_unread(out->stream, (ls_slice){c->in, c->in->data + c->in->from, ls_http1_unparsed(c)});
        c->in = NULL; /* the reference has moved */
    }
    out->limit = ls_http1_engine(c)->conn_limit;
    ls_counter_add(&ls_http_thread_of(ls_http1_engine(c), ctx)->responses, 1);
    e->link |= LS_H1_DETACHED | LS_H1_UPGRADED;
    return LS_OK;
}
