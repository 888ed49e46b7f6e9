/* vu_handshake.c - see vu_handshake.h. */
#include "stress/load/vu_handshake.h"

#include <stdlib.h>

#include "net/handshake.h"
#include "stress/load/transport.h"
#include "stress/load/worker.h"

struct ls_stress_handshake {
    ls_handshake handshake;
    ls_filter *session;
    const ls_stream_handler *then;
    uint64_t start_ns;
};

void ls_stress_handshake_drop(ls_stress_vu *u)
{
    if (u->handshake == NULL) return;
    ls_handshake_close(&u->handshake->handshake);
    free(u->handshake);
    u->handshake = NULL;
}

/* The result of a step. Returns as ls_stress_handshake(). */
static int stepped(ls_stress_vu *u, int err)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_handshake *h = u->handshake;
    if (err == LS_PENDING) return err;
    w->clock_stale = true;
    if (err < 0) {
        const char *why = ls_handshake_why(&h->handshake, err);
        ls_stress_vu_handshake_failed(u, why[0] != '\0' ? why : ls_err_text(err), "", 0);
        return err;
    }
    const uint64_t now_ns = ls_stress_worker_now(w);
    ls_counter_add(ls_tls_resumed(h->session) ? &w->count.handshakes_resumed : &w->count.handshakes_full, 1);
    ls_histogram_record(w->count.handshake, now_ns > h->start_ns ? now_ns - h->start_ns : 0);
    ls_stream_handover(u->stream, h->then);
    ls_stress_handshake_drop(u);
    return LS_DONE;
}

static ls_stress_vu *vu_of(ls_stream *s)
{
    return *(ls_stress_vu **)ls_stream_user(s);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_stress_vu *u = vu_of(s);
    ls_stress_vu_connected(u, stepped(u, ls_handshake_received(ctx, s, &u->handshake->handshake, result)));
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_stress_vu *u = vu_of(s);
    ls_stress_vu_connected(u, stepped(u, ls_handshake_sent(ctx, s, &u->handshake->handshake, err)));
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stress_vu *u = vu_of(s);
    const ls_stream_handler *then = u->handshake->then;
    ls_stress_handshake_drop(u);
    then->closed(ctx, s);
}

static const ls_stream_handler handler = {.received = received, .sent = sent, .closed = closed};

int ls_stress_handshake(ls_stress_vu *u, const ls_stream_handler *then)
{
    const ls_stress_plan *plan = u->worker->plan;
    struct ls_stress_handshake *h = calloc(1, sizeof *h);
    u->step = LS_STRESS_STEP_TLS;
    const int err = h != NULL ? ls_handshake_open(&h->handshake, plan->tls, plan->host) : LS_ENOMEM;
    if (err < 0) {
        free(h);
        ls_stress_vu_handshake_failed(u, ls_err_text(err), "", 0);
        return err;
    }
    h->session = h->handshake.session; /* the stream owns it when the handshake is complete */
    h->then = then;
    h->start_ns = ls_stress_worker_now(u->worker);
    u->handshake = h;
    ls_stream_handover(u->stream, &handler);
    return stepped(u, ls_handshake_begin(&u->worker->ctx, u->stream, &h->handshake));
}
