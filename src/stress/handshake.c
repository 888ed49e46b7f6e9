/* handshake.c - see handshake.h. Receives and sends alternate: what the session produced is sent before more is
 * received. */
#include "stress/handshake.h"

#include <stdio.h>
#include <stdlib.h>

#include "net/tls.h"
#include "stress/transport.h"
#include "stress/worker.h"

struct ls_stress_handshake {
    ls_filter *session;
    const ls_stream_handler *then;
    uint64_t start_ns;
    int status; /* of the session, while its output is being sent */
};

void ls_stress_handshake_drop(ls_stress_vu *u)
{
    if (u->handshake == NULL) return;
    if (u->handshake->session != NULL) u->handshake->session->type->free(u->handshake->session);
    free(u->handshake);
    u->handshake = NULL;
}

void ls_stress_handshake_failed(ls_stress_worker *w, const char *why)
{
    char text[sizeof w->first_failure];
    (void)snprintf(text, sizeof text, "TLS handshake: %s", why);
    ls_stress_worker_record_failure(w, text, "", 0);
    ls_counter_add(&w->count.handshakes_failed, 1);
}

/* Let the session continue, and send its output. LS_DONE: complete; LS_EAGAIN: it needs input; LS_PENDING: `sent`
 * follows; or an error. */
static int advance(ls_stress_vu *u)
{
    struct ls_stress_handshake *h = u->handshake;
    ls_thread_ctx *ctx = &u->worker->ctx;
    ls_filter_out out = {.pool = u->worker->pool};
    int err = LS_OK;
    h->status = ls_tls_handshake(h->session, &out);
    for (unsigned i = 0; i < out.count; i++) {
        if (err == LS_OK && (err = ls_stream_push(ctx, u->stream, &out.slices[i])) == LS_OK) continue;
        ls_slice_drop(&out.slices[i]);
    }
    if (err == LS_OK) err = ls_stream_flush(ctx, u->stream);
    const bool failed =
        h->status < 0 && h->status != LS_EAGAIN; /* then an alert that cannot be sent is not the error */
    return err == LS_PENDING || (err < 0 && !failed) ? err : h->status;
}

static int feed(ls_stress_vu *u, int64_t received)
{
    ls_filter *session = u->handshake->session;
    if (received < 0) return (int)received;
    if (received > 0)
        session->type->feed(session, ls_stream_take(u->stream));
    else
        session->type->feed_end(session);
    return advance(u);
}

/* The handshake is complete: the session becomes the filter of the stream. */
static void complete(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_handshake *h = u->handshake;
    const uint64_t now_ns = ls_stress_worker_now(w);
    ls_counter_add(ls_tls_resumed(h->session) ? &w->count.handshakes_resumed : &w->count.handshakes_full, 1);
    ls_histogram_record(w->count.handshake, now_ns > h->start_ns ? now_ns - h->start_ns : 0);
    ls_stream_set_filter(u->stream, h->session);
    ls_stream_handover(u->stream, h->then);
    h->session = NULL;
    ls_stress_handshake_drop(u);
}

/* Continue from this result of advance() as far as possible without waiting. Returns as ls_stress_handshake(). */
static int run(ls_stress_vu *u, int status)
{
    while (status == LS_EAGAIN) {
        int64_t received = 0;
        const int err = ls_stream_recv(&u->worker->ctx, u->stream, NULL, LS_BLOCK_SMALL, &received);
        if (err == LS_PENDING) return LS_PENDING;
        status = feed(u, err < 0 ? err : received);
    }
    u->worker->clock_stale = true;
    if (status == LS_DONE)
        complete(u);
    else if (status < 0)
        ls_stress_handshake_failed(u->worker, u->handshake->status == status ? ls_tls_why(u->handshake->session)
                                                                             : ls_err_text(status));
    return status;
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    (void)ctx;
    ls_stress_vu *u = *(ls_stress_vu **)ls_stream_user(s);
    ls_stress_vu_connected(u, run(u, feed(u, result)));
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    (void)ctx;
    ls_stress_vu *u = *(ls_stress_vu **)ls_stream_user(s);
    const int status = u->handshake->status;
    ls_stress_vu_connected(u, run(u, err < 0 && (status >= 0 || status == LS_EAGAIN) ? err : status));
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stress_vu *u = *(ls_stress_vu **)ls_stream_user(s);
    const ls_stream_handler *then = u->handshake->then;
    ls_stress_handshake_drop(u);
    then->closed(ctx, s);
}

static const ls_stream_handler handler = {received, sent, closed};

int ls_stress_handshake(ls_stress_vu *u, const ls_stream_handler *then)
{
    const ls_stress_plan *plan = u->worker->plan;
    struct ls_stress_handshake *h = calloc(1, sizeof *h);
    u->step = LS_STRESS_STEP_TLS;
    const int err = h != NULL ? ls_tls_session(plan->tls, plan->target.host, &h->session) : LS_ENOMEM;
    if (err < 0) {
        free(h);
        ls_stress_handshake_failed(u->worker, ls_err_text(err));
        return err;
    }
    h->then = then;
    h->start_ns = ls_stress_worker_now(u->worker);
    u->handshake = h;
    ls_stream_handover(u->stream, &handler);
    return run(u, advance(u));
}
