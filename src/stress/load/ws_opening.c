/* ws_opening.c - see ws_opening.h. Frames that the server has sent directly behind its response are unread: the OPEN virtual
 * user receives them first. */
#include "stress/load/ws_opening.h"

#include <stdlib.h>

#include "stress/load/transport.h"
#include "stress/load/worker.h"
#include "stress/load/ws_frames.h"

/* Queue and send the request. LS_DONE, LS_PENDING or an error. */
static int send_request(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_plan *plan = w->plan;
    ls_ws_request request = plan->ws_request;
    char *text, *target = NULL;
    size_t len;
    if (plan->mode == LS_STRESS_PLAN_FANOUT) {
        const bool publishes = u->role == LS_STRESS_ROLE_PUBLISHER;
        request.target = target = ls_stress_plan_topic(publishes ? plan->publish_path : request.target, u->topic);
    }
    int err = request.target != NULL ? ls_stress_ws_request(u, &request, &text, &len) : LS_ENOMEM;
    free(target);
    if (err < 0) return err;
    err = w->transport->put(u, text, len) ? ls_stream_flush(&w->ctx, u->stream) : LS_ENOMEM;
    free(text);
    w->clock_stale = true;
    if (err >= 0) ls_counter_add(&w->count.bytes_out, len);
    return err;
}

/* A receive has ended. LS_DONE; LS_EAGAIN: the response is not complete; or an error, counted. */
static int take_response(ls_stress_vu *u, int64_t received)
{
    ls_stress_worker *w = u->worker;
    size_t used = 0;
    if (received <= 0) {
        ls_stress_vu_handshake_failed(
            u, received == 0 ? "the server closed the connection" : ls_err_text((int)received), "", 0);
        return received == 0 ? LS_ECLOSED : (int)received;
    }
    ls_slice data = ls_stream_take(u->stream);
    ls_counter_add(&w->count.bytes_in, data.len);
    const int err = ls_stress_ws_response(u, data.ptr, data.len, &used);
    if (err == LS_DONE && used < data.len) {
        data.ptr += used;
        data.len -= used;
        ls_stream_unread(u->stream, data);
    } else {
        ls_slice_drop(&data);
    }
    return err;
}

/* Receive until the response is complete. As ls_stress_upgrade(). */
static int receive_response(ls_stress_vu *u, int status)
{
    while (status == LS_EAGAIN) {
        int64_t received = 0;
        const int err = ls_stream_recv(&u->worker->ctx, u->stream, NULL, LS_BLOCK_SMALL, &received);
        if (err == LS_PENDING) return LS_PENDING;
        u->worker->clock_stale = true;
        status = take_response(u, err < 0 ? err : received);
    }
    if (status == LS_DONE) ls_stream_handover(u->stream, &ls_stress_stream_handler);
    return status;
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    (void)ctx;
    ls_stress_vu *u = *(ls_stress_vu **)ls_stream_user(s);
    ls_stress_vu_connected(u, receive_response(u, take_response(u, result)));
}

/* The request was sent: only then is a receive posted. */
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    (void)ctx;
    ls_stress_vu *u = *(ls_stress_vu **)ls_stream_user(s);
    if (err < 0) ls_stress_vu_handshake_failed(u, ls_err_text(err), "", 0);
    ls_stress_vu_connected(u, receive_response(u, err < 0 ? err : LS_EAGAIN));
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stress_stream_handler.closed(ctx, s);
}

static const ls_stream_handler handler = {.received = received, .sent = sent, .closed = closed};

int ls_stress_upgrade(ls_stress_vu *u)
{
    u->step = LS_STRESS_STEP_UPGRADE;
    ls_stream_handover(u->stream, &handler);
    const int err = send_request(u);
    if (err == LS_PENDING) return LS_PENDING;
    if (err < 0) ls_stress_vu_handshake_failed(u, ls_err_text(err), "", 0);
    return receive_response(u, err < 0 ? err : LS_EAGAIN);
}
