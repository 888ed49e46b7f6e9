/* h2_conn.c - an HTTP/2 connection: bytes to nghttp2 and from it, its end, and the drain.
 *
 * A receive is always posted, but while nghttp2 has many answers to send: a client that never reads them gets no more.
 * What leaves is made by ls_h2_pump alone: it lets each exchange of the list `ready` say what it has, takes frames of
 * nghttp2 while the queue of the stream is short, and flushes once. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/http2/h2_conn_internal.h"
#include "net/refused.h"

enum { ANSWERS_MAX = 1000 /* frames that wait in nghttp2 */ };

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);
static void closed(ls_thread_ctx *ctx, ls_stream *s);

const ls_stream_handler ls_h2_stream_handler = {.received = received, .sent = sent, .closed = closed};

static ls_h2_conn *conn_of(ls_stream *s)
{
    return *(ls_h2_conn **)ls_stream_user(s);
}

/* A packet of c->actor begins. */
static void enter(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    c->ctx = ctx;
    c->now_ms = ls_clock_coarse_ms();
    ls_arena_unpack(&c->memory);
}

/* ---- the engine's lists ---------------------------------------------------------------------------------------- */

ls_h2_conn *ls_h2_take_conn(ls_h2 *h2)
{
    ls_mutex_lock(&h2->server->mutex);
    ls_h2_conn *c = h2->unused;
    if (c != NULL) h2->unused = c->next_unused;
    ls_mutex_unlock(&h2->server->mutex);
    if (c == NULL && (c = calloc(1, sizeof *c)) != NULL) {
        ls_actor_init(&c->actor);
        ls_mutex_open(&c->lock);
        c->pump = (ls_op){.done = ls_h2_pump, .actor = &c->actor};
    }
    if (c != NULL) memset(&c->h2, 0, sizeof *c - offsetof(ls_h2_conn, h2));
    return c;
}

static void unlist(ls_h2_conn *c)
{
    if (!c->listed) return;
    ls_mutex_lock(&c->http->mutex);
    ls_list_remove(&c->node);
    ls_mutex_unlock(&c->http->mutex);
    c->listed = false;
}

void ls_h2_put_back(ls_h2 *h2, ls_h2_conn *c)
{
    free(c->peer);
    c->peer = NULL;
    ls_mutex_lock(&h2->server->mutex);
    c->next_unused = h2->unused;
    h2->unused = c;
    ls_mutex_unlock(&h2->server->mutex);
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

static void recycle_if_unused(ls_h2_conn *c)
{
    if (c->http == NULL || c->s != NULL || !ls_list_empty(&c->exchanges) || atomic_load(&c->pump_runs)) return;
    ls_http_server *http = c->http;
    assert(c->session == NULL);
    ls_h2_put_back(c->h2, c);
    atomic_fetch_sub_explicit(&http->http2_open, 1, memory_order_relaxed);
    atomic_fetch_sub(&http->open, 1); /* the last access: at 0 the owner may close `http` */
}

/* All streams end, and nothing more is sent. */
static void end_session(ls_thread_ctx *ctx, ls_h2_conn *c, int lost)
{
    if (c->session == NULL) return;
    LS_LIST_EACH_DROP (ls_h2_exchange, e, &c->exchanges, node) {
        if (!e->closed) ls_h2_end_stream(ctx, e, lost);
    }
    nghttp2_session_del(c->session);
    c->session = NULL;
    ls_arena_clear(&c->memory);
}

static void close_conn(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    if (c->closing) return;
    c->closing = true;
    unlist(c);
    end_session(ctx, c, LS_ERESET);
    ls_slice_drop(&c->in);
    ls_stream_close(ctx, c->s);
}

static void drop_received(ls_h2_conn *c)
{
    ls_slice bytes = ls_stream_take(c->s);
    c->limits.received += bytes.len;
    ls_slice_drop(&bytes);
}

/* Discard what a client still sends, until its end, or until it is more than may have been on its way. */
static void discard(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    while (c->limits.received <= c->http->config.http2_window_bytes_max) {
        int64_t result = 0;
        const int err = ls_stream_recv(ctx, c->s, NULL, LS_BLOCK_SMALL, &result);
        if (err == LS_PENDING) return;
        if (err < 0 || result <= 0) break;
        drop_received(c);
    }
    close_conn(ctx, c);
}

/* Everything is sent: let the client read it although it may still be sending (RFC 9112 section 9.6 says why). */
static void linger(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    end_session(ctx, c, LS_ERESET);
    c->limits.received = 0;
    ls_stream_recv_within(c->s, c->http->config.linger_ms_max);
    if (ls_stream_shutdown(ctx, c->s) < 0)
        close_conn(ctx, c);
    else if (!ls_stream_receiving(c->s))
        discard(ctx, c);
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_h2_conn *c = conn_of(s);
    ls_conn_limit *limit = c->http->conn_limit;
    ls_workers_later(ctx, &c->ended);
    ls_conn_limit_leave(limit);
}

static void ended(ls_thread_ctx *ctx, ls_op *op)
{
    ls_h2_conn *c = LS_CONTAINER(op, ls_h2_conn, ended);
    ls_stream_free(c->s);
    c->s = NULL;
    recycle_if_unused(c);
}

/* ---- a drain ------------------------------------------------------------------------------------------------- */

/* The server drains, or the connection has had its requests or its time. */
static bool is_last(const ls_h2_conn *c)
{
    const ls_http_config *config = &c->http->config;
    return atomic_load_explicit(&c->http->draining, memory_order_relaxed) ||
           (config->requests_max > 0 && c->requests >= config->requests_max) ||
           (config->conn_ms_max > 0 && c->now_ms - c->opened_ms >= config->conn_ms_max);
}

/* Requests may be on their way to a server that wants no more. So the first GOAWAY names no last stream; the second
 * one does, when the answer to a PING shows that the client has seen the first (RFC 9113 section 6.8). */
static void drain(ls_h2_conn *c)
{
    int err = 0;
    if (c->drain == LS_H2_OPEN && is_last(c)) {
        c->drain = LS_H2_ANNOUNCED;
        c->drain_ms = c->now_ms;
        ls_stream_recv_within(c->s, LS_H2_TICK_MS);
        err = nghttp2_submit_shutdown_notice(c->session);
    } else if (c->drain == LS_H2_ANSWERED) { /* here, not inside nghttp2: it may know of further requests by now */
        c->drain = LS_H2_GOING;
        const int32_t last = nghttp2_session_get_last_proc_stream_id(c->session);
        err = nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0);
    }
    if (err != 0) c->failed = true;
}

/* The PING follows the first one here, because nghttp2 sends a PING before other frames. */
void ls_h2_goaway_sent(ls_h2_conn *c)
{
    static const uint8_t text[8] = "luaserve";
    if (c->drain == LS_H2_ANNOUNCED && nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, text) != 0) c->failed = true;
}

/* ---- out ----------------------------------------------------------------------------------------------------- */

static void serve_ready(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    ls_h2_exchange *first = NULL;
    for (ls_h2_exchange *e = atomic_exchange(&c->ready, NULL), *next; e != NULL; e = next) { /* oldest first */
        next = e->next_ready;
        e->next_ready = first;
        first = e;
    }
    for (ls_h2_exchange *e = first, *next; e != NULL; e = next) {
        next = e->next_ready;
        ls_h2_serve(ctx, e);
    }
}

/* Let nghttp2 make frames. LS_PENDING: there may be more, for which the queue has no room; LS_DONE; or an error. */
static int make_frames(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    const uint8_t *bytes;
    while (ls_stream_queued(c->s) < LS_H2_SEND_AHEAD) {
        const ssize_t n = nghttp2_session_mem_send(c->session, &bytes); /* DATA goes to ls_h2_send_data */
        if (n == 0) return ls_stream_queued(c->s) < LS_H2_SEND_AHEAD ? LS_DONE : LS_PENDING;
        if (n < 0 || ls_stream_put(ctx, c->s, bytes, (size_t)n) < 0) return LS_ENOMEM;
    }
    return LS_PENDING;
}

/* Send what there is. false: the connection is lost. */
static bool send_out(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    for (;;) {
        const int made = make_frames(ctx, c);
        if (made < 0) return false;
        if (ls_stream_sending(c->s)) return true;
        const int err = ls_stream_flush(ctx, c->s);
        if (err < 0) return false;
        if (err == LS_PENDING || made == LS_DONE) return true;
    }
}

static void receive(ls_thread_ctx *ctx, ls_h2_conn *c);

/* Send, then see whether the connection has ended: the last step of each packet. */
static void send_then(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    if (c->session == NULL) return;
    if (atomic_load_explicit(&c->http->aborting, memory_order_relaxed)) c->failed = true;
    if (!c->failed) drain(c);
    if (c->failed || !send_out(ctx, c)) {
        close_conn(ctx, c);
        return;
    }
    if (!nghttp2_session_want_read(c->session) && !nghttp2_session_want_write(c->session) &&
        ls_stream_queued(c->s) == 0)
        linger(ctx, c);
    else if (c->paused && nghttp2_session_get_outbound_queue_size(c->session) < ANSWERS_MAX)
        receive(ctx, c);
}

void ls_h2_pump(ls_thread_ctx *ctx, ls_op *op)
{
    ls_h2_conn *c = LS_CONTAINER(op, ls_h2_conn, pump);
    enter(ctx, c);
    atomic_store(&c->pump_runs, false); /* before `ready` is read: what is listed from now on asks for another run */
    serve_ready(ctx, c);
    send_then(ctx, c);
    recycle_if_unused(c);
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_h2_conn *c = conn_of(s);
    enter(ctx, c);
    if (c->closing) return;
    if (err < 0) c->failed = true;
    if (c->session == NULL || c->failed)
        close_conn(ctx, c);
    else
        send_then(ctx, c);
}

/* ---- in ------------------------------------------------------------------------------------------------------ */

/* nghttp2 has given the connection up, without a GOAWAY of its own. */
static void given_up(ls_thread_ctx *ctx, ls_h2_conn *c, int code)
{
    char text[LS_ADDR_TEXT_BYTES];
    char goaway[17] = {0, 0, 8, 7 /* GOAWAY */};
    goaway[16] = code == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR;
    ls_refused_log("%s HTTP/2: %s", ls_addr_logged(&c->remote, text),
                   code == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? "the connection does not begin with the preface"
                                                        : nghttp2_strerror(code));
    if (code != NGHTTP2_ERR_NOMEM && !ls_stream_sending(c->s) &&
        ls_stream_put(ctx, c->s, goaway, sizeof goaway) == LS_OK && ls_stream_flush(ctx, c->s) == LS_DONE)
        linger(ctx, c);
    else
        c->failed = true;
}

static uint32_t number_of(const uint8_t *bytes, unsigned count)
{
    uint32_t number = 0;
    for (unsigned n = 0; n < count; n++) number = number << 8 | bytes[n];
    return number;
}

/* The number of the bytes that belong to the frame of which c->head and c->frame_left tell, or to the next one. */
static size_t frame_bytes(ls_h2_conn *c, const uint8_t *bytes, size_t len)
{
    size_t n = 0;
    if (c->frame_left == 0) {
        while (n < len && c->head_bytes < LS_H2_FRAME_HEAD) c->head[c->head_bytes++] = bytes[n++];
        if (c->head_bytes < LS_H2_FRAME_HEAD) return n;
        c->head_bytes = 0;
        c->frame_left = number_of(c->head, 3);
        const nghttp2_frame_hd head = {.length = c->frame_left,
                                       .type = c->head[3],
                                       .flags = c->head[4],
                                       .stream_id = (int32_t)(number_of(c->head + 5, 4) & INT32_MAX)};
        ls_h2_begin_frame(c, &head, len - n >= 4 ? (int32_t)(number_of(bytes + n, 4) & INT32_MAX) : -1);
    }
    const size_t rest = len - n < c->frame_left ? len - n : c->frame_left;
    c->frame_left -= (uint32_t)rest;
    return n + rest;
}

/* Give nghttp2 what was received, frame by frame: it does not tell of those that it ignores. */
static void feed(ls_thread_ctx *ctx, ls_h2_conn *c, ls_slice received)
{
    const uint8_t *at = (const uint8_t *)received.ptr, *const end = at + received.len;
    ssize_t taken = 0;
    c->in = received;
    ls_h2_count_received(c, received.len);
    while (taken >= 0 && at < end) {
        const size_t n = frame_bytes(c, at, (size_t)(end - at));
        taken = nghttp2_session_mem_recv(c->session, at, n);
        at += n;
    }
    ls_slice_drop(&c->in);
    if (taken < 0) given_up(ctx, c, (int)taken);
}

static void tick(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    if (c->session == NULL) return;
    const uint64_t ms = c->now_ms - c->tick_ms;
    if (ms < LS_H2_TICK_MS / 2) return; /* a receive may have ended before its deadline, or a few ms early */
    c->tick_ms = c->now_ms;
    ls_h2_tick(ctx, c, ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX);
}

/* A receive has ended. */
static void take(ls_thread_ctx *ctx, ls_h2_conn *c, int64_t result)
{
    c->idle = result == LS_ETIMEDOUT && c->streams == 0 && c->head_ms == 0;
    if (result > 0) {
        const ls_slice bytes = ls_stream_take(c->s);
        c->fast = (size_t)result >= LS_BLOCK_SMALL;
        feed(ctx, c, bytes);
    } else if (result != LS_ETIMEDOUT && (result != LS_ECANCELED || atomic_load(&c->http->aborting))) {
        c->failed = true; /* else a drain begins */
    }
    if (!c->failed) tick(ctx, c);
}

static void receive(ls_thread_ctx *ctx, ls_h2_conn *c)
{
    int64_t result;
    while (!c->failed && c->session != NULL) {
        c->paused = nghttp2_session_get_outbound_queue_size(c->session) >= ANSWERS_MAX;
        if (c->paused || !nghttp2_session_want_read(c->session)) break;
        ls_stream_recv_within(c->s, ls_h2_deadline(c));
        const int err = ls_stream_recv(ctx, c->s, NULL, c->fast ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, &result);
        if (err == LS_PENDING) break;
        take(ctx, c, err == LS_DONE ? result : err);
    }
    if (c->session == NULL) return;
    const bool drains = c->drain < LS_H2_GOING && is_last(c);
    if (drains || c->failed || nghttp2_session_want_write(c->session) || !nghttp2_session_want_read(c->session))
        ls_h2_run_later(ctx, c);
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_h2_conn *c = conn_of(s);
    enter(ctx, c);
    if (c->closing) return;
    if (c->session != NULL) {
        take(ctx, c, result);
        receive(ctx, c);
        if (c->idle) ls_arena_pack(&c->memory);
    } else if (result > 0) {
        drop_received(c);
        discard(ctx, c);
    } else {
        close_conn(ctx, c);
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static bool open_session(ls_h2_conn *c)
{
    nghttp2_mem memory = {&c->memory, ls_arena_take, ls_arena_give, ls_arena_take_zeros, ls_arena_resize};
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, c->http->config.http2_streams_max},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, c->http->config.head.head_bytes_max},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
        {NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1},
    };
    /* Browsers that find the last one open no connection of HTTP/1.1 for a WebSocket any more. */
    c->tunnels = atomic_load_explicit(&c->http->handler, memory_order_acquire)->tunnels;
    const uint32_t most = c->http->config.http2_window_bytes_max;
    const size_t count = sizeof settings / sizeof *settings - !c->tunnels;
    return nghttp2_session_server_new3(&c->session, c->h2->callbacks, c, c->h2->options, &memory) == 0 &&
           nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, count) == 0 &&
           nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                 most < LS_H2_CONN_WINDOW ? (int32_t)most : LS_H2_CONN_WINDOW) == 0;
}

void ls_h2_begin(ls_thread_ctx *ctx, ls_op *op)
{
    ls_h2_conn *c = LS_CONTAINER(op, ls_h2_conn, begin);
    const ls_slice first = c->in;
    enter(ctx, c);
    c->in = ls_slice_static(NULL, 0);
    c->frame_left = NGHTTP2_CLIENT_MAGIC_LEN;
    c->ended = (ls_op){.done = ended, .actor = &c->actor};
    c->opened_ms = c->tick_ms = c->idle_ms = c->head_ms = c->now_ms; /* the preface is due as a head is */
    if (!open_session(c)) {
        c->in = first;
        close_conn(ctx, c);
        return;
    }
    if (first.len > 0) feed(ctx, c, first);
    receive(ctx, c);
    ls_h2_run_later(ctx, c);
}
