/* h2_limits.c - clients that cost much and bring little, and those that are slow.
 *
 *   handlers   a request counts until its handler returns, not until its stream ends: http2_streams_max for one
 *              connection, further ones are refused (CVE-2023-44487, CVE-2025-8671)
 *   resets     by the client, or by us for its fault, cost one of a budget; a stream that was completed brings one back.
 *              Without a budget the connection ends. There is no limit for a lifetime: cancelling is what clients do
 *   frames     that carry nothing (PING, SETTINGS, empty DATA, WINDOW_UPDATE, PRIORITY, ignored heads): 4 bytes
 *              received for each byte of a head or a body, both ways, and 1 MiB beyond
 *   answers    nghttp2 counts acknowledgements and SETTINGS; with ANSWERS_MAX frames to send nothing is received
 *   heads      their size by h2_head.c; the frames of one by nghttp2; their time, as that of the preface, is head_ms_max
 *   bodies     body_grace_ms, then body_rate_min, while the handler waits for them
 *   unread     a body that is sent on after the end of the response: linger_ms_max
 *   responses  send_stall_ms_max, with send_rate_min, while the window of the stream is too small */
#include "http/http2/h2_conn_internal.h"
#include "net/refused.h"

enum {
    CONTINUATIONS_MAX = 8,
    ACKNOWLEDGEMENTS_MAX = 100,
    EMPTY_BYTES_MAX = 1 << 20,
    EMPTY_SHARE = 4,
    DRAIN_MS_MAX = 1000 /* for the answer to the PING of a drain */
};

void ls_h2_limit_options(nghttp2_option *options)
{
    nghttp2_option_set_max_outbound_ack(options, ACKNOWLEDGEMENTS_MAX);
    nghttp2_option_set_max_continuations(options, CONTINUATIONS_MAX);
}

void ls_h2_go_away(ls_h2_conn *c, uint32_t code, const char *why)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_refused_log("%s HTTP/2: %s: the connection is closed", ls_addr_logged(&c->remote, text), why);
    ls_counter_add(&ls_http_thread_of(c->http, c->ctx)->http2_ended, 1);
    if (nghttp2_session_terminate_session(c->session, code) != 0) c->failed = true;
}

int ls_h2_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user)
{
    ls_h2_conn *c = user;
    char text[LS_ADDR_TEXT_BYTES];
    ls_refused_log("%s HTTP/2: stream %d: %s", ls_addr_logged(&c->remote, text), (int)frame->hd.stream_id,
                   nghttp2_strerror(code));
    ls_h2_exchange *e = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (e == NULL) return 0;
    ls_mutex_lock(&c->lock);
    e->lost = LS_ERESET; /* from now on, not from the reset: a handler that has not started does not */
    ls_h2_tell(c->ctx, e);
    ls_mutex_unlock(&c->lock);
    return 0;
}

/* ---- numbers of streams ---------------------------------------------------------------------------------------- */

/* The place of a stream in `opened`; -1: it was passed over when a later one was opened (RFC 9113 section 5.1.1), or is
 * older than all that are remembered. */
static int place_of(const ls_h2_limits *limits, int32_t id)
{
    for (int n = 0; n < LS_H2_OPENED_MAX; n++)
        if (limits->opened[n].id == id) return n;
    return -1;
}

/* A frame for a stream that nghttp2 does not know any more: it ignores these. Frames that were on their way when we
 * have reset the stream are no fault. */
static void check_closed(ls_h2_conn *c, const nghttp2_frame_hd *head)
{
    const ls_h2_limits *limits = &c->limits;
    const int place = place_of(limits, head->stream_id);
    if (place >= 0 && limits->opened[place].ended)
        ls_h2_go_away(c, NGHTTP2_STREAM_CLOSED, "a frame of a stream that the client has ended");
    else if (place < 0 && head->type == NGHTTP2_HEADERS && head->stream_id > limits->opened[limits->opened_at].id)
        ls_h2_go_away(c, NGHTTP2_PROTOCOL_ERROR, "a stream was opened out of order");
}

/* Follow the life of the streams, for check_closed. */
static void note_stream(ls_h2_conn *c, const nghttp2_frame_hd *head)
{
    ls_h2_limits *limits = &c->limits;
    const bool ends = head->type == NGHTTP2_RST_STREAM || head->flags & NGHTTP2_FLAG_END_STREAM;
    if (head->type == NGHTTP2_HEADERS && head->stream_id > limits->opened_last) {
        limits->opened_last = limits->opened[limits->opened_at].id = head->stream_id;
        limits->opened[limits->opened_at].ended = ends;
        limits->opened_at = (limits->opened_at + 1) % LS_H2_OPENED_MAX;
        return;
    }
    if (head->type != NGHTTP2_RST_STREAM && head->stream_id <= limits->opened_last &&
        nghttp2_session_find_stream(c->session, head->stream_id) == NULL)
        check_closed(c, head);
    const int place = ends ? place_of(limits, head->stream_id) : -1;
    if (place >= 0) limits->opened[place].ended = true;
}

void ls_h2_begin_frame(ls_h2_conn *c, const nghttp2_frame_hd *head, int32_t word)
{
    const uint8_t type = head->type;
    /* Also of those that no handler reads: their windows are a limit. Padding is no payload: ls_h2_data_chunk. */
    if (type == NGHTTP2_DATA && !(head->flags & NGHTTP2_FLAG_PADDED)) c->limits.payload += head->length;
    if (type == NGHTTP2_HEADERS && c->head_ms == 0) c->head_ms = c->now_ms; /* up to the end of its block */
    if (type == NGHTTP2_DATA || type == NGHTTP2_HEADERS || type == NGHTTP2_RST_STREAM) note_stream(c, head);
    /* nghttp2 does not read these */
    if (type == NGHTTP2_PRIORITY && (head->stream_id == 0 || head->stream_id == word))
        ls_h2_go_away(c, NGHTTP2_PROTOCOL_ERROR, "PRIORITY without a stream, or of one that depends on itself");
}

/* ---- costs ----------------------------------------------------------------------------------------------------- */

void ls_h2_count_reset(ls_h2_conn *c)
{
    ls_counter_add(&ls_http_thread_of(c->http, c->ctx)->http2_resets, 1);
    if (c->limits.budget > 0 && --c->limits.budget == 0)
        ls_h2_go_away(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many streams were reset");
}

void ls_h2_count_received(ls_h2_conn *c, size_t bytes)
{
    ls_h2_limits *limits = &c->limits;
    const bool before = limits->received / EMPTY_SHARE > limits->payload + EMPTY_BYTES_MAX;
    limits->received += bytes;
    if (!before && limits->received / EMPTY_SHARE > limits->payload + EMPTY_BYTES_MAX)
        ls_h2_go_away(c, NGHTTP2_ENHANCE_YOUR_CALM, "too many frames carry nothing");
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

uint32_t ls_h2_deadline(const ls_h2_conn *c)
{
    const uint64_t idle_max = c->http->config.idle_ms_max != 0 ? c->http->config.idle_ms_max : UINT32_MAX,
                   idle = c->now_ms - c->idle_ms;
    if (c->head_ms != 0 || c->streams > 0 || c->drain == LS_H2_ANNOUNCED) return LS_H2_TICK_MS;
    if (!c->idle && idle + LS_H2_IDLE_MS < idle_max) return LS_H2_IDLE_MS;
    return idle + LS_H2_TICK_MS < idle_max ? (uint32_t)(idle_max - idle) : LS_H2_TICK_MS;
}

/* The body of a request that the handler waits for. */
static void tick_body(ls_thread_ctx *ctx, ls_h2_exchange *e, uint32_t ms)
{
    const ls_http_config *config = &e->c->http->config;
    uint64_t allowed_ms = config->body_grace_ms;
    if (config->body_rate_min > 0) allowed_ms += e->body_received * 1000 / config->body_rate_min;
    ls_mutex_lock(&e->c->lock);
    if (e->awaits & LS_H2_AWAITS_BODY) e->waited_ms += ms;
    if (e->waited_ms > allowed_ms) e->in_error = LS_ETIMEDOUT;
    if (e->in_error != 0) ls_h2_tell(ctx, e);
    ls_mutex_unlock(&e->c->lock);
}

/* A response that waits for the window of its stream. true: it is too slow. */
static bool tick_response(ls_h2_exchange *e, uint32_t ms)
{
    const ls_http_config *config = &e->c->http->config;
    ls_mutex_lock(&e->c->lock);
    const bool waits = e->submitted && !e->deferred && e->out.bytes > 0;
    ls_mutex_unlock(&e->c->lock);
    if (waits) e->stalled_ms += ms;
    if (waits && (config->send_stall_ms_max == 0 || e->stalled_ms < config->send_stall_ms_max)) return false;
    const bool slow = waits && e->measured < 1 + (uint64_t)config->send_rate_min * e->stalled_ms / 1000;
    e->stalled_ms = 0;
    e->measured = 0;
    return slow;
}

void ls_h2_tick(ls_thread_ctx *ctx, ls_h2_conn *c, uint32_t ms)
{
    const ls_http_config *config = &c->http->config;
    const uint64_t now_ms = c->now_ms;
    if (c->head_ms != 0 && config->head_ms_max != 0 && now_ms - c->head_ms >= config->head_ms_max) {
        c->head_ms = now_ms;
        ls_h2_go_away(c, NGHTTP2_PROTOCOL_ERROR, "a head, or the preface, took too long");
    }
    if (c->drain == LS_H2_ANNOUNCED && now_ms - c->drain_ms >= DRAIN_MS_MAX) c->drain = LS_H2_ANSWERED;
    if (c->streams == 0 && c->head_ms == 0 && config->idle_ms_max != 0 && now_ms - c->idle_ms >= config->idle_ms_max &&
        nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR) != 0)
        c->failed = true;
    LS_LIST_EACH (ls_h2_exchange, e, &c->exchanges, node) {
        if (e->closed) continue;
        ls_h2_window_grew(e, true);
        tick_body(ctx, e, ms);
        if (e->unread_ms != 0 && now_ms - e->unread_ms >= config->linger_ms_max)
            ls_h2_reset(e, NGHTTP2_NO_ERROR, NULL);
        if (tick_response(e, ms)) ls_h2_reset(e, NGHTTP2_CANCEL, "the response is taken too slowly");
    }
}
