/* websocket.c - a WebSocket connection: open, packets, deadlines, close; see ws_internal.h.
 *
 * `run` is where everything happens: it handles the received frames, sends the queue, receives, and begins again until
 * the receive has to wait. The calls of the user that must continue do so through it, or, where no event may be
 * called, by a packet that they cause (`wake`).
 *
 * The receive deadline of the stream ends only a receive that waits. A peer that never lets us wait is limited by
 * until_ms. */
#include "ws/websocket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "ws/ws_internal.h"

enum { RECEIVES_MAX = 16 }; /* then other connections have their turn */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);
static void closed(ls_thread_ctx *ctx, ls_stream *s);

const ls_stream_handler ls_ws_stream_handler = {.received = received, .sent = sent, .closed = closed};

_Static_assert(sizeof(ls_ws) <= 200, "an idle connection is small");

/* ---- open and free ---------------------------------------------------------------------------------------------- */

size_t ls_ws_room(size_t user_bytes)
{
    return sizeof(ls_ws) + user_bytes;
}

ls_ws *ls_ws_open(ls_stream *s, const ls_ws_config *config, ls_ws_deflate *deflate, const ls_ws_events *events)
{
    ls_ws *ws = ls_stream_user(s);
    assert(ls_stream_actor(s) != NULL);
    ws->config = config;
    ws->events = events;
    if (deflate != NULL) {
        ws->deflate = *deflate;
        memset(deflate, 0, sizeof *deflate);
    }
    ls_stream_send_within(s, config->send_stall_ms_max);
    return ws;
}

void *ls_ws_user(ls_ws *ws)
{
    return ws->user;
}

ls_ws *ls_ws_of(void *user)
{
    return LS_CONTAINER(user, ls_ws, user);
}

ls_stream *ls_ws_stream(ls_ws *ws)
{
    return ls_ws_stream_of(ws);
}

static void drop_all(ls_ws *ws)
{
    ls_ws_drop_message(ws);
    ls_ws_drop_received(ws);
    ls_ws_deflate_end(&ws->deflate);
    free(ws->pong);
    ws->pong = NULL;
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_ws *ws = ls_stream_user(s);
    ws->events->freed(ctx, ws); /* a message that waits can still be taken */
    drop_all(ws);
    ls_stream_free(s);
}

void ls_ws_free(ls_ws *ws)
{
    drop_all(ws);
    ls_stream_free(ls_ws_stream_of(ws));
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void call_ended(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    if (ws->ended) return;
    ws->ended = true;
    ws->events->ended(ctx, ws, code, reason, reason_len);
}

/* A peer that reads nothing does not keep the connection after its end. */
static void limit_last_send(ls_ws *ws)
{
    const uint32_t stall_ms = ws->config->send_stall_ms_max, close_ms = ws->config->close_ms_max;
    if (stall_ms == 0 || close_ms < stall_ms) ls_stream_send_within(ls_ws_stream_of(ws), close_ms > 0 ? close_ms : 1);
}

/* Queue our Close frame, unless that was done. */
static void say_close(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    if (ws->state != LS_WS_STATE_OPEN) return;
    limit_last_send(ws);
    ws->state = ls_ws_put_close(ctx, ws, code, reason, reason_len) < 0 ? LS_WS_STATE_LOST : LS_WS_STATE_CLOSING;
}

static void go_last(ls_ws *ws)
{
    if (ws->state != LS_WS_STATE_LOST) ws->state = LS_WS_STATE_LAST;
    ws->timed = false;
}

void ls_ws_close_received(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    say_close(ctx, ws, code, NULL, 0);
    go_last(ws);
    call_ended(ctx, ws, code, reason, reason_len);
}

void ls_ws_refuse(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *why)
{
    say_close(ctx, ws, code, why, strlen(why));
    go_last(ws);
    ws->refused = true;
    call_ended(ctx, ws, code, why, strlen(why));
}

/* Cause a packet, so that `run` continues outside of the user's call. */
static void wake(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    int64_t result;
    if (!ls_stream_receiving(s) && !ws->begun) { /* bytes may be unread from before the upgrade */
        const int err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
        if (err == LS_DONE && result > 0) ls_block_drop(ls_stream_take(s).block);
        ws->begun = true;
    }
    if (ls_stream_receiving(s))
        ls_stream_cancel_recv(s);
    else
        ls_stream_requeue(s);
}

/* The connection is lost: close the socket. */
static void end(ls_thread_ctx *ctx, ls_ws *ws, bool packet)
{
    if (!packet) {
        wake(ctx, ws);
        return;
    }
    ws->looping = true;
    call_ended(ctx, ws, LS_WS_ABNORMAL, "", 0);
    ws->looping = false;
    ls_ws_drop_received(ws);
    ls_stream_close(ctx, ls_ws_stream_of(ws));
}

/* ---- deadlines -------------------------------------------------------------------------------------------------- */

static void time_out_after(ls_ws *ws, uint32_t ms)
{
    ws->timed = true;
    ws->until_ms = (uint32_t)ls_clock_coarse_ms() + ms;
    ls_stream_recv_within(ls_ws_stream_of(ws), ms > 0 ? ms : 1);
}

static bool is_late(const ls_ws *ws)
{
    return ws->timed && (int32_t)((uint32_t)ls_clock_coarse_ms() - ws->until_ms) > 0;
}

/* Set the deadline of the receive that is about to be posted, or is pending. */
static void set_deadline(ls_ws *ws)
{
    const ls_ws_config *config = ws->config;
    ls_stream *const s = ls_ws_stream_of(ws);
    if (ws->timed) return;
    switch ((enum ls_ws_state)ws->state) {
    case LS_WS_STATE_OPEN:
        if (config->message_ms_max > 0 && ls_ws_in_progress(ws))
            time_out_after(ws, config->message_ms_max);
        else if (!ws->pinged)
            ls_stream_recv_within(s, config->ping_ms);
        break;
    case LS_WS_STATE_CLOSING:
        if (ls_stream_queued(s) > 0)
            ls_stream_recv_within(s, 0); /* the send limits decide until our Close frame is sent */
        else
            time_out_after(ws, config->close_ms_max);
        break;
    default: time_out_after(ws, config->close_ms_max); break;
    }
}

static void timed_out(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->state == LS_WS_STATE_OPEN && ws->timed) {
        ls_ws_refuse(ctx, ws, LS_WS_POLICY, "the message took too long");
    } else if (ws->state == LS_WS_STATE_OPEN && !ws->pinged) {
        ws->pinged = true;
        (void)ls_ws_put_control(ctx, ws, LS_WS_PING, NULL, 0, false);
        ls_stream_recv_within(ls_ws_stream_of(ws), ws->config->pong_ms > 0 ? ws->config->pong_ms : 1);
    } else if (ws->state != LS_WS_STATE_CLOSING || ws->timed) { /* else ls_ws_close has replaced that deadline */
        ws->state = LS_WS_STATE_LOST;
    }
}

/* ---- run -------------------------------------------------------------------------------------------------------- */

static void call_drained(ls_thread_ctx *ctx, ls_ws *ws)
{
    ws->awaits_drained = false;
    if (!ws->ended) ws->events->drained(ctx, ws);
}

static void send_queue(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    while (ws->state != LS_WS_STATE_LOST && !ls_stream_sending(s)) {
        if (ls_stream_queued(s) > 0) {
            if (ws->state == LS_WS_STATE_LAST && (!ws->config->client || ws->refused)) ls_stream_cork_fin(s);
            const int err = ls_stream_flush(ctx, s);
            if (err == LS_PENDING) return;
            if (err < 0) {
                ws->state = LS_WS_STATE_LOST;
                return;
            }
        }
        if (!ws->awaits_drained) return;
        call_drained(ctx, ws); /* it may queue more */
    }
}

/* All is sent, and nothing more will be. */
static void begin_ending(ls_thread_ctx *ctx, ls_ws *ws)
{
    ws->state = LS_WS_STATE_ENDING;
    ls_ws_drop_received(ws);
    if ((!ws->config->client || ws->refused) && ls_stream_shutdown(ctx, ls_ws_stream_of(ws)) < 0)
        ws->state = LS_WS_STATE_LOST;
}

/* A receive has failed. */
static void failed(ls_thread_ctx *ctx, ls_ws *ws, int err)
{
    if (err == LS_ETIMEDOUT)
        timed_out(ctx, ws);
    else if (err == LS_ENOMEM && ws->large && ws->in == NULL)
        ws->large = false; /* a small block may be left */
    else if (err == LS_ENOMEM && ws->state <= LS_WS_STATE_CLOSING)
        ls_ws_refuse(ctx, ws, LS_WS_INTERNAL, "out of memory");
    else if (err != LS_ECANCELED || ws->state != LS_WS_STATE_CLOSING) /* else see timed_out */
        ws->state = LS_WS_STATE_LOST;
}

/* `packet`: called by a packet, which may close the stream; else by a call of the user. */
static void run(ls_thread_ctx *ctx, ls_ws *ws, bool packet)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    ws->looping = true;
    for (unsigned receives = 0;; receives++) {
        const enum ls_ws_taken taken = ls_ws_take_frames(ctx, ws);
        send_queue(ctx, ws);
        if (ws->state == LS_WS_STATE_LAST) {
            if (ls_stream_sending(s)) break; /* `sent` continues */
            begin_ending(ctx, ws);
        }
        if (ws->state == LS_WS_STATE_LOST) break;
        if (taken == LS_WS_TAKEN_MESSAGE) {
            if (ws->waiting && ws->state == LS_WS_STATE_OPEN) break;
            continue; /* `drained` has consumed it, or closes the connection */
        }
        if (!ls_stream_receiving(s) || ws->state == LS_WS_STATE_CLOSING) set_deadline(ws);
        if (ls_stream_receiving(s)) break;
        if (taken == LS_WS_TAKEN_MANY || receives >= RECEIVES_MAX) {
            ls_stream_requeue(s);
            break;
        }
        const int err = is_late(ws) ? LS_ETIMEDOUT : ls_ws_receive(ctx, ws);
        if (err == LS_PENDING) break;
        if (err < 0) failed(ctx, ws, err);
    }
    ws->looping = false;
    if (ws->state == LS_WS_STATE_LOST) end(ctx, ws, packet);
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_ws *ws = ls_stream_user(s);
    const bool probed = ws->probing && result == 0;
    ws->probing = false;
    ws->probed = probed;
    if (result > 0) {
        ls_ws_bytes_received(ws, (uint32_t)result);
    } else if (!probed && result != LS_EAGAIN) { /* EAGAIN: it was requeued */
        ws->looping = true;
        failed(ctx, ws, result == 0 ? LS_ECLOSED : (int)result);
    }
    run(ctx, ws, true);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_ws *ws = ls_stream_user(s);
    if (err < 0) ws->state = LS_WS_STATE_LOST;
    if (!ws->begun && ws->state != LS_WS_STATE_LOST) return; /* of a flush before ls_ws_begin, which continues */
    ws->looping = true;
    ls_ws_put_pong(ctx, ws);
    run(ctx, ws, true);
}

/* ---- calls of the user ------------------------------------------------------------------------------------------ */

void ls_ws_begin(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->state != LS_WS_STATE_LOST) run(ctx, ws, false);
}

const ls_ws_message *ls_ws_message_get(const ls_ws *ws)
{
    return ws->waiting ? &ws->message : NULL;
}

void ls_ws_consume(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (!ws->waiting) return;
    ws->waiting = false;
    ls_ws_drop_message(ws);
    if (!ws->looping && ws->state != LS_WS_STATE_LOST) run(ctx, ws, false);
}

void ls_ws_resume(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->looping) (void)ls_ws_take_frames(ctx, ws);
}

int ls_ws_flush(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->state == LS_WS_STATE_LOST) return LS_ECLOSED;
    if (ws->looping) return ws->awaits_drained ? LS_PENDING : LS_DONE;
    const int err = ls_stream_flush(ctx, ls_ws_stream_of(ws));
    if (err == LS_PENDING) {
        ws->awaits_drained = true;
    } else if (err < 0) {
        ws->state = LS_WS_STATE_LOST;
        wake(ctx, ws);
    } else if (ws->awaits_drained) {
        call_drained(ctx, ws);
    }
    return err;
}

size_t ls_ws_queued(const ls_ws *ws)
{
    return ls_stream_queued(ls_ws_stream_of((ls_ws *)(uintptr_t)ws));
}

void ls_ws_close(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    ls_stream *const s = ls_ws_stream_of(ws);
    if (ws->state != LS_WS_STATE_OPEN) return;
    say_close(ctx, ws, code, reason, reason_len);
    if (ws->state == LS_WS_STATE_CLOSING) {
        ls_ws_skip_messages(ws);
        ws->timed = false;
        if (ws->looping || !ws->begun) return;
        if (ls_stream_flush(ctx, s) < 0) ws->state = LS_WS_STATE_LOST;
    }
    if (ws->state == LS_WS_STATE_LOST) {
        if (!ws->looping) wake(ctx, ws);
    } else if (ls_stream_receiving(s)) {
        set_deadline(ws);
    } else {
        ls_stream_requeue(s); /* a message waits; receive the peer's Close frame meanwhile */
    }
}

bool ls_ws_closing(const ls_ws *ws)
{
    return ws->state != LS_WS_STATE_OPEN;
}

bool ls_ws_lost(const ls_ws *ws)
{
    return ws->state == LS_WS_STATE_LOST;
}

void ls_ws_abort(ls_thread_ctx *ctx, ls_ws *ws)
{
    if (ws->state == LS_WS_STATE_LOST) return;
    ws->state = LS_WS_STATE_LOST;
    if (!ws->looping) wake(ctx, ws);
}
