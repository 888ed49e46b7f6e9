/* http1_end.c - the end of an exchange, but for the usual one: a body that the handler has not read, a response that
 * is not complete, a connection that is lost while the handler waits. */
#include "http/http1_internal.h"

static void lost(ls_thread_ctx *ctx, ls_stream_watch *watch);

/* The length is bounded: exchange_out.c closes after a long one, and a chunked body ends the connection when it
 * exceeds the limit. */
ls_http1_outcome ls_http1_skip_body(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = ls_http1_exchange_of(c);
    ls_http1_set_phase(c, LS_H1_SKIPPING);
    int err = LS_DONE;
    while (!e->x.body_done) {
        ls_slice part;
        err = ls_http1_body_take(ctx, c, &part);
        if (err == LS_EAGAIN) {
            /* Send the response first: the client may wait for it. One operation at a time. From here on packets may
             * run on any thread. Not earlier: if the whole body is received already, the next handler starts while a
             * send is pending, and the packets of that send must run in the handler's actor. */
            ls_stream_set_actor(ls_http1_stream(c), NULL);
            err = e->x.error != 0 ? e->x.error : e->read_error;
            if (err == LS_OK) err = ls_http1_send_out(ctx, c);
            if (err == LS_DONE) err = ls_http1_body_receive(ctx, c);
            if (err == LS_PENDING) return LS_H1_RELEASED;
            if (err == LS_DONE) continue;
        }
        if (err < 0) break;
        e->x.body_bytes += part.len;
        e->skipped += part.len;
        ls_slice_drop(&part);
        if (e->skipped > ls_http1_engine(c)->config.unread_bytes_max) {
            err = LS_EMSGSIZE;
            break;
        }
    }
    ls_http1_drop_exchange(ctx, c);
    if (err >= 0) return LS_H1_AGAIN;
    c->linger = true;
    ls_http1_send_last(ctx, c);
    return LS_H1_RELEASED;
}

/* The client must not take the response for complete. The responses to pipelined requests before it are sent. Without
 * memory for its head a short response takes its place. */
void ls_http1_end_incomplete(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    const ls_http1_exchange *e = ls_http1_exchange_of(c);
    const bool refused = e->x.error == LS_ENOMEM && (e->x.response == LS_RESPONSE_NONE || e->head_refused);
    const bool at_once = e->link & LS_H1_LOST || atomic_load(&ls_http1_engine(c)->aborting);
    ls_stream *const s = ls_http1_stream(c);
    const bool earlier = ls_stream_truncate(s, e->begin_at);
    ls_http1_drop_exchange(ctx, c);
    if (!earlier && !ls_stream_sending(s)) ls_stream_discard(s);
    if (at_once || (!earlier && !refused)) {
        ls_http1_conn_close(ctx, c);
    } else if (refused) {
        ls_http1_end_with_error(ctx, c, 503, "out of buffers");
    } else {
        c->linger = true;
        ls_http1_send_last(ctx, c);
    }
}

bool ls_http1_is_complete(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link & LS_H1_DETACHED) {
        ls_http1_drop_exchange(ctx, c);
        ls_http1_drop_received(c);
        ls_http1_conn_drop(c);
        return false;
    }
    ls_stream *const s = ls_http1_stream(c);
    if (!ls_stream_receiving(s) && ls_http1_end_watch(c, e)) return true;
    ls_http1_set_phase(c, LS_H1_ENDING);
    if (ls_stream_receiving(s)) ls_stream_cancel_recv(s);
    return false;
}

/* ---- a lost connection ---------------------------------------------------------------------------------------- */

bool ls_http1_end_watch(ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link & LS_H1_WATCHED && ls_stream_unwatch(ls_http1_stream(c), &e->watch))
        e->link &= (uint8_t)~LS_H1_WATCHED;
    return !(e->link & LS_H1_WATCHED);
}

void ls_http1_detach(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->x.error == 0) e->x.error = LS_ERESET;
    ls_stream *const s = ls_http1_stream(c);
    if (e->link & LS_H1_EXPECTS_END) ls_stream_cancel_recv(s); /* it has no deadline */
    if (ls_stream_receiving(s) || ls_stream_sending(s) || !ls_http1_end_watch(c, e)) return;
    e->link |= LS_H1_DETACHED;
    atomic_fetch_add(&c->holders, 1);
    ls_http1_conn_unlist(c);
    ls_stream_close(ctx, s);
    ls_exchange_wake(ctx, &e->x);
}

void ls_http1_watch(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e)
{
    if (e->link == 0) {
        e->watch.lost = lost;
        ls_stream_set_actor(ls_http1_stream(c), e->x.actor);
        const int err = ls_stream_watch_begin(ctx, ls_http1_stream(c), &e->watch);
        if (err == LS_PENDING) e->link = LS_H1_WATCHED;
        if (err == LS_ERESET) e->link = LS_H1_LOST; /* other errors: the loss is found by the next operation */
    }
    if (e->link & LS_H1_LOST) ls_http1_detach(ctx, c, e);
}

static void lost(ls_thread_ctx *ctx, ls_stream_watch *watch)
{
    ls_http1_exchange *e = LS_CONTAINER(watch, ls_http1_exchange, watch);
    ls_http1_conn *c = ls_http1_conn_of(&e->x);
    e->link = (uint8_t)((e->link & ~LS_H1_WATCHED) | LS_H1_LOST);
    if (atomic_load_explicit(&c->phase, memory_order_relaxed) != LS_H1_ENDING)
        ls_http1_detach(ctx, c, e);
    else
        ls_http1_end_exchange(ctx, c);
}
