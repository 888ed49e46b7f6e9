/* handshake.c - see handshake.h. */
#include "net/handshake.h"

#include "base/io/log.h"
#include "net/stream/filter.h"

void ls_handshake_refresh(ls_tls *tls)
{
    char why[2048] = "";
    const int err = ls_tls_reload(tls, false, why, sizeof why);
    if (err < 0)
        ls_log(LS_LOG_ERROR, "%s; the certificates in use stay", why);
    else if (why[0] != '\0')
        ls_log(LS_LOG_WARN, "%s", why);
}

int ls_handshake_open(ls_handshake *h, ls_tls *tls, const char *server_name)
{
    const int err = ls_tls_session(tls, server_name, &h->session);
    if (err < 0) return err;
    h->status = LS_EAGAIN;
    h->fed = true; /* a client begins */
    return LS_OK;
}

void ls_handshake_close(ls_handshake *h)
{
    if (h->session != NULL) h->session->type->free(h->session);
    h->session = NULL;
}

int ls_handshake_step(ls_thread_ctx *ctx, ls_stream *s, ls_filter *session, int *status)
{
    ls_filter_out out = {.pool = ctx->pool};
    int err = LS_OK;
    *status = ls_tls_handshake(session, &out);
    for (unsigned i = 0; i < out.count; i++) {
        if (err == LS_OK) err = ls_stream_push(ctx, s, &out.slices[i]);
        if (err < 0) ls_slice_drop(&out.slices[i]);
    }
    return err;
}

/* The result of a receive. LS_OK or an error. */
static int feed(ls_stream *s, ls_handshake *h, int64_t received)
{
    if (received < 0) return (int)received;
    if (received == 0)
        h->session->type->feed_end(h->session);
    else
        h->session->type->feed(h->session, ls_stream_take(s));
    h->fed = true;
    return LS_OK;
}

/* Continue with the new input, and send the output. */
static int answer(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h)
{
    h->fed = false;
    const int err = ls_handshake_step(ctx, s, h->session, &h->status);
    return err < 0 || ls_stream_queued(s) == 0 ? err : ls_stream_flush(ctx, s);
}

static int end(ls_stream *s, ls_handshake *h)
{
    if (h->status < 0) return h->status;
    ls_stream_set_filter(s, h->session); /* the stream owns it */
    h->session = NULL;
    return LS_DONE;
}

/* Continue until an operation is pending or the handshake has ended. `err` < 0: the operation before has failed. */
static int run(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h, int err)
{
    int64_t received;
    for (;;) {
        if (err == LS_OK && h->fed && (err = answer(ctx, s, h)) == LS_PENDING) return LS_PENDING;
        if (err < 0 && h->status == LS_DONE) h->status = err;
        if (h->status != LS_EAGAIN) return end(s, h); /* an error of the session says more than one of the stream */
        if (err < 0) return err;
        err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &received);
        if (err == LS_PENDING) return LS_PENDING;
        err = err < 0 ? err : feed(s, h, received);
    }
}

int ls_handshake_begin(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h)
{
    return run(ctx, s, h, LS_OK);
}

int ls_handshake_received(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h, int64_t result)
{
    return run(ctx, s, h, feed(s, h, result));
}

int ls_handshake_sent(ls_thread_ctx *ctx, ls_stream *s, ls_handshake *h, int err)
{
    return run(ctx, s, h, err);
}

const char *ls_handshake_why(const ls_handshake *h, int err)
{
    return h->session != NULL && err == h->status ? ls_tls_why(h->session) : "";
}
