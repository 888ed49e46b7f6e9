/* proxy.c - see proxy.h: the request to the server, and its response.
 *
 * Every packet, of either side, calls `run`, which moves both directions as far as they go:
 *
 *     run --> send_request   until the client has sent no more, or the server's queue is full
 *         \-> take_response  until the server has sent no more, or the client's queue is full
 *
 * A silent server costs the client nothing but the wait; but a client may leave meanwhile, which only a receive tells.
 * That receive is posted after LS_PROXY_LOOK_MS, because most responses arrive earlier. */
#include "http/proxy/proxy.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "http/proxy/proxy_internal.h"

enum { SLICES = 16, LINE_BYTES = 20 };

static void run(ls_thread_ctx *ctx, ls_proxy *p);
static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
static void sent(ls_thread_ctx *ctx, ls_stream *s, int err);

static const ls_stream_handler handler = {.received = received, .sent = sent, .closed = ls_proxy_closed};

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void ls_proxy_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    const ls_proxy_room room = *(ls_proxy_room *)ls_stream_user(s);
    if (room.block != NULL) ls_block_drop(room.block);
    if (room.limit != NULL) ls_conn_limit_leave(room.limit);
    ls_stream_free(s);
    atomic_fetch_sub(room.live, 1);
}

void ls_proxy_close_stream(ls_thread_ctx *ctx, ls_stream **s, ls_block *block)
{
    ls_stream *closing = *s;
    if (closing == NULL) {
        if (block != NULL) ls_block_drop(block);
        return;
    }
    ls_proxy_room *room = ls_stream_user(closing);
    room->proxy = NULL;
    room->block = block;
    *s = NULL;
    ls_stream_close(ctx, closing);
}

static void drop_fields(ls_proxy *p)
{
    if (p->own != NULL) ls_block_drop(p->own);
    if (p->trailers != NULL) ls_block_drop(p->trailers);
    p->own = p->trailers = NULL;
}

/* Keep the fields that the response has before those of the server. LS_OK or LS_ENOMEM. */
static int keep_own(ls_thread_ctx *ctx, ls_proxy *p)
{
    const uint32_t len = p->with.x->fields_len;
    if (!p->with.pauses || len == 0) return LS_OK;
    p->own = ls_block_get(ctx->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (p->own == NULL) return LS_ENOMEM;
    memcpy(p->own->data, p->with.x->fields->data, len);
    return LS_OK;
}

/* The exchange is the caller's again. */
static void give_back(ls_proxy *p)
{
    ls_exchange *x = p->with.x;
    if (p->wake == NULL) return; /* it is already */
    x->wake = p->wake;
    x->task = p->task;
    p->wake = NULL;
}

static void close_both(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_proxy_close_stream(ctx, &p->up, p->c.in.block);
    p->c.in = (ls_slice){0};
    ls_proxy_close_stream(ctx, &p->client, NULL);
}

/* Another request may follow on the connection to the server. */
static bool can_keep(const ls_proxy *p)
{
    return ls_http_client_may_keep(&p->c) && p->request == LS_PROXY_SENT && !ls_stream_receiving(p->up) &&
           ls_stream_queued(p->up) == 0;
}

/* Drop what was taken from the head of the response. */
static void undo(ls_proxy *p)
{
    ls_exchange *x = p->with.x;
    if (!ls_proxy_has_head(p)) return;
    x->fields_len = p->own_fields_len;
    if (p->own != NULL) memcpy(x->fields->data, p->own->data, p->own_fields_len); /* a hook may have changed them */
    x->has_type = p->own_type;
    x->has_date = false;
    x->status = 200;
    x->length = -1;
}

static void keep_stream(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_stream *up = p->up;
    p->up = NULL;
    ls_stream_pool_put(ctx, p->with.pool, p->with.key, p->with.key_len, up);
    atomic_fetch_sub(p->with.live, 1);
}

void ls_proxy_refuse(ls_thread_ctx *ctx, ls_proxy *p)
{
    undo(p);
    if (p->c.reader.head.framing == LS_FRAMING_NONE) p->c.phase = LS_CLIENT_WHOLE;
    if (p->up != NULL && can_keep(p)) keep_stream(ctx, p);
}

void ls_proxy_end(ls_thread_ctx *ctx, ls_proxy *p, int err)
{
    ls_exchange *x = p->with.x;
    p->err = err;
    give_back(p);
    if (p->life == LS_PROXY_PAUSED) return;
    if (err < 0 && x->response == LS_RESPONSE_NONE) undo(p);
    drop_fields(p);
    if (err == LS_OK && p->up != NULL && can_keep(p)) keep_stream(ctx, p);
    close_both(ctx, p);
    /* After the pool: the next request of the client finds the connection there. */
    if (err == LS_OK) (void)ls_exchange_flush(ctx, x);
    if (err < 0 && p->life != LS_PROXY_TUNNEL && x->response == LS_RESPONSE_OPEN) ls_exchange_abort(ctx, x);
}

void ls_proxy_drop(ls_thread_ctx *ctx, ls_proxy *p)
{
    give_back(p);
    close_both(ctx, p);
    drop_fields(p);
    p->life = LS_PROXY_DROPPED;
}

static void abandon(ls_stream *s)
{
    if (s == NULL) return;
    const ls_proxy_room *room = ls_stream_user(s);
    atomic_fetch_sub(room->live, 1);
    ls_stream_free(s);
}

void ls_proxy_abandon(ls_proxy *p)
{
    abandon(p->up);
    abandon(p->client);
    ls_http_client_drop(&p->c);
    drop_fields(p);
    p->up = p->client = NULL;
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* Queue a slice, framed. Takes its reference. LS_OK or LS_ENOMEM. */
static int put_part(ls_thread_ctx *ctx, const ls_proxy *p, ls_slice *part)
{
    char line[LINE_BYTES];
    const size_t line_len = p->chunked ? (size_t)snprintf(line, sizeof line, "%zx\r\n", part->len) : 0;
    if (p->chunked && ls_stream_put(ctx, p->up, line, line_len) < 0) goto no_memory;
    if (part->block == NULL) { /* of app:inject */
        for (size_t at = 0, len; at < part->len; at += len) {
            len = part->len - at < LS_BLOCK_SMALL ? part->len - at : LS_BLOCK_SMALL;
            if (ls_stream_put(ctx, p->up, part->ptr + at, len) < 0) goto no_memory;
        }
    } else if (ls_stream_push(ctx, p->up, part) < 0) {
        goto no_memory;
    }
    return p->chunked ? ls_stream_put(ctx, p->up, "\r\n", 2) : LS_OK;

no_memory:
    ls_slice_drop(part);
    return LS_ENOMEM;
}

/* Queue the end of the chunked coding, with the trailers of the client: servers may add them to the fields of the head,
 * so what a client may not say there it may not say here. LS_OK or LS_ENOMEM. */
static int put_end(ls_thread_ctx *ctx, const ls_proxy *p)
{
    ls_proxy_filter filter = p->with.filter;
    filter.trusted = false; /* such a proxy speaks for itself in the head */
    const size_t room =
        5 + (p->with.x->trailers != NULL ? 2 * (size_t)p->with.x->trailers->to : 0); /* ": " may be longer than ":" */
    ls_pair field;
    char *const from = ls_stream_room(ctx, p->up, room), *to = from;
    if (from == NULL) return LS_ENOMEM;
    to = (char *)memcpy(to, "0\r\n", 3) + 3;
    for (size_t at = 0; ls_exchange_next_trailer(p->with.x, &at, &field);) {
        if (!ls_proxy_passes(p->with.x, &filter, field.name, field.name_len)) continue;
        to = (char *)memcpy(to, field.name, field.name_len) + field.name_len;
        to = (char *)memcpy(to, ": ", 2) + 2;
        to = (char *)memcpy(to, field.value, field.value_len) + field.value_len;
        to = (char *)memcpy(to, "\r\n", 2) + 2;
    }
    memcpy(to, "\r\n", 2);
    ls_stream_commit(p->up, (size_t)(to + 2 - from));
    return LS_OK;
}

/* The server takes no more of the request. It may have answered before. */
static int truncate_request(ls_proxy *p)
{
    p->request = LS_PROXY_TRUNCATED;
    return LS_DONE;
}

static bool is_sent(const ls_proxy *p)
{
    return p->request >= LS_PROXY_SENT;
}

/* The time for which the server is silent begins: a byte was received from it or sent to it, or the client was ready. */
static void progress(ls_proxy *p)
{
    p->progress_ms = ls_clock_coarse_ms();
}

/* The server awaits the body. */
static void body_may_follow(ls_proxy *p)
{
    if (p->request == LS_PROXY_AWAITS_100) p->request = LS_PROXY_SENDING;
}

/* LS_DONE: the request is queued; LS_PENDING; LS_E*: the body of the client cannot be read. */
static int send_request(ls_thread_ctx *ctx, ls_proxy *p)
{
    while (p->request == LS_PROXY_SENDING) {
        ls_slice part = {0};
        if (ls_stream_queued(p->up) >= LS_PROXY_QUEUE_BYTES) {
            const int err = ls_stream_flush(ctx, p->up);
            if (err < 0) return truncate_request(p);
            if (err == LS_PENDING) return err;
        }
        int err = p->with.given_count > 0 ? LS_DONE : ls_exchange_read(ctx, p->with.x, &part);
        if (err < 0) {
            p->of_client = true;
            return err;
        }
        if (err == LS_PENDING) break;
        if (p->with.given_count > 0) {
            part = *p->with.given++;
            p->with.given_count--;
            if (part.block != NULL) (void)ls_block_hold(part.block);
        } else if (part.len > 0) {
            p->body_read = true;
        }
        progress(p);
        if (part.len > 0) {
            err = put_part(ctx, p, &part);
        } else if (p->with.x->body_done) {
            ls_slice_drop(&part);
            p->request = LS_PROXY_SENT;
            if (p->chunked) err = put_end(ctx, p);
        }
        if (err < 0) return err;
    }
    if (p->request != LS_PROXY_TRUNCATED && ls_stream_queued(p->up) > 0 && ls_stream_flush(ctx, p->up) < 0)
        return truncate_request(p);
    return is_sent(p) ? LS_DONE : LS_PENDING;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* Milliseconds for which the server has had all of the request and sent nothing. */
static uint32_t silent_ms(const ls_proxy *p)
{
    return is_sent(p) ? (uint32_t)(ls_clock_coarse_ms() - p->progress_ms) : 0;
}

/* As ls_http_client_receive, within the limit. */
static int receive(ls_thread_ctx *ctx, ls_proxy *p)
{
    if (ls_stream_receiving(p->up)) return LS_PENDING;
    const uint32_t waited_ms = silent_ms(p), timeout_ms = p->with.timeout_ms;
    const uint32_t left_ms = waited_ms < timeout_ms ? timeout_ms - waited_ms : 1;
    const bool limited = timeout_ms > 0 && !p->patient;
    ls_stream_recv_within(p->up, !p->watching && (!limited || left_ms > LS_PROXY_LOOK_MS) ? LS_PROXY_LOOK_MS
                                 : limited                                                ? left_ms
                                                                                          : 0);
    const int err = ls_http_client_receive(ctx, &p->c, p->up);
    if (err == LS_DONE) progress(p);
    return err;
}

/* The pending receive has ended without a byte. LS_OK: wait on. */
static int waited(ls_thread_ctx *ctx, ls_proxy *p)
{
    const uint32_t waited_ms = silent_ms(p);
    body_may_follow(p); /* a server that does not know it: RFC 9110 section 10.1.1 */
    if (p->with.timeout_ms > 0 && !p->patient && waited_ms >= p->with.timeout_ms) return LS_ETIMEDOUT;
    if (p->watching || !is_sent(p) || !p->with.x->body_done || p->c.reader.asked == LS_ASKED_UPGRADE) return LS_OK;
    p->watching = true;
    return ls_exchange_expect_end(ctx, p->with.x) < 0 ? p->with.x->error : LS_OK;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* Pass on early hints (RFC 8297), and note 100. The bytes are heads that were parsed before. */
static void take_interims(ls_thread_ctx *ctx, ls_proxy *p, const char *bytes, size_t len)
{
    ls_http_response head;
    for (size_t at = 0; at < len; at += head.bytes) {
        const char *const from = bytes + at;
        ls_hints hints = {.len = 0};
        ls_pair field;
        if (ls_http1_parse_response(from, len - at, 0, LS_PROXY_HEAD_BYTES_MAX, false, &head, NULL) <= 0) return;
        if (head.status == 100) body_may_follow(p);
        if (head.status != 103) continue;
        for (size_t n = 0; ls_http1_response_field(from, &head, &n, &field);)
            if (ls_text_same(field.name, field.name_len, "link", 4))
                (void)ls_hints_add(&hints, field.name, field.name_len, field.value, field.value_len);
        if (hints.len > 0) (void)ls_exchange_hints(ctx, p->with.x, &hints);
    }
}

/* Whether a field of the server was left out, because the response had one before. */
static bool overrules(const ls_proxy *p, const char *bytes, const ls_http_response *head, const char *name)
{
    ls_text text;
    return ls_proxy_response_field(bytes, head, name, &text) &&
           ls_proxy_is_own(p->with.x, p->own_fields_len, name, strlen(name));
}

/* LS_DONE: the head was taken; LS_EAGAIN: it is incomplete; LS_PENDING: the proxy is a tunnel; LS_E*. */
static int take_head(ls_thread_ctx *ctx, ls_proxy *p)
{
    size_t skip;
    const int length = ls_http_client_head(&p->c, &skip);
    if (skip > 0) take_interims(ctx, p, p->c.in.ptr, skip);
    ls_http_client_consume(&p->c, skip);
    if (length <= 0) return length < 0 ? length : LS_EAGAIN;
    const char *const bytes = p->c.in.ptr;
    const ls_http_response *head = &p->c.reader.head;
    body_may_follow(p);
    p->own_fields_len = p->with.x->fields_len;
    p->own_type = p->with.x->has_type;
    int err = keep_own(ctx, p);
    if (err == LS_OK) err = ls_proxy_take_response(ctx, p->with.x, bytes, head, &p->with.place, &p->patient);
    p->overruled =
        p->with.pauses && (overrules(p, bytes, head, "cache-control") || overrules(p, bytes, head, "expires"));
    if (err == LS_OK && head->status == 101) return ls_proxy_tunnel(ctx, p);
    ls_http_client_consume(&p->c, (size_t)length);
    return err;
}

/* Collect lines of the trailer section; at its end the trailers are those of the response. One that has no effect as a
 * trailer, or no room, is left out. LS_OK or LS_ENOMEM. */
static int take_trailers(ls_thread_ctx *ctx, ls_proxy *p, const char *lines, size_t len, bool end)
{
    ls_pair field;
    const int err = ls_trailers_add(ctx, &p->trailers, lines, len);
    if (err < 0 || !end) return err;
    for (size_t at = 0; ls_trailers_next(p->trailers, &at, &field);)
        (void)ls_exchange_trailer(ctx, p->with.x, field.name, field.name_len, field.value, field.value_len);
    return LS_OK;
}

/* Pass on what was received of the body. LS_DONE, LS_E*. */
static int pass_body(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_exchange *x = p->with.x;
    ls_slice slices[SLICES], part;
    ls_text trailers;
    unsigned count = 0;
    int err;
    do {
        err = ls_http_client_next(&p->c, &part, &trailers);
        if (err < 0) break;
        if (part.len > 0) slices[count++] = part;
        if (trailers.len > 0) err = take_trailers(ctx, p, trailers.ptr, trailers.len, p->c.phase == LS_CLIENT_WHOLE);
    } while (err >= 0 && count < SLICES && p->c.phase == LS_CLIENT_BODY);
    const bool last = p->c.phase == LS_CLIENT_WHOLE;
    if (err == LS_EAGAIN) err = LS_OK;
    if (err < 0) {
        ls_slices_drop(slices, count);
        return err;
    }
    if (p->tap != NULL) p->tap->take(p->tap, slices, count, last);
    if (last && x->response == LS_RESPONSE_NONE && x->head.method != LS_HTTP_HEAD && ls_status_has_content(x->status))
        return ls_exchange_respond(ctx, x, slices, count);
    if (count > 0 || x->response == LS_RESPONSE_NONE) err = ls_exchange_write(ctx, x, slices, count);
    return err < 0 ? err : LS_DONE;
}

/* LS_DONE: the response is complete, or paused; LS_PENDING; LS_E*. */
static int take_response(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_exchange *x = p->with.x;
    for (;;) {
        int err = LS_DONE;
        if (!ls_proxy_has_head(p)) {
            err = p->c.in.len > 0 ? take_head(ctx, p) : LS_EAGAIN;
            if (err == LS_DONE && p->with.pauses) {
                p->life = LS_PROXY_PAUSED;
                return LS_DONE;
            }
        } else if (p->c.phase == LS_CLIENT_BODY) {
            err = pass_body(ctx, p);
            if (err < 0 && x->error != 0) p->of_client = true;
        }
        if (err < 0 && err != LS_EAGAIN) return err;
        if (err == LS_PENDING) return err;
        if (p->c.phase == LS_CLIENT_WHOLE) {
            err = x->response == LS_RESPONSE_DONE ? LS_DONE : ls_exchange_finish(ctx, x);
            if (err < 0) p->of_client = true;
            return err < 0 ? err : LS_DONE;
        }
        /* A part leaves at once, such as an event; after a receive that filled its block, with what can be received
         * now. */
        if (x->response != LS_RESPONSE_NONE && (!p->c.filled || ls_exchange_queued(x) >= LS_PROXY_QUEUE_BYTES)) {
            err = ls_exchange_flush(ctx, x);
            if (err < 0) p->of_client = true;
            if (err != LS_DONE) return err;
        }
        if (ls_proxy_has_head(p) && p->c.in.len > 0) continue; /* more slices than SLICES, or the start of the body */
        if (ls_proxy_has_head(p) && x->response == LS_RESPONSE_NONE && p->c.reader.head.framing == LS_FRAMING_NONE)
            continue;
        err = receive(ctx, p);
        if (err == LS_OK) continue;
        if (err == LS_PENDING && ls_proxy_has_head(p) &&
            (x->response == LS_RESPONSE_NONE || ls_exchange_queued(x) > 0)) {
            /* The head does not wait for the body, nor what was received for more. */
            err = x->response == LS_RESPONSE_NONE ? ls_exchange_write(ctx, x, NULL, 0) : LS_DONE;
            if (err >= 0) err = ls_exchange_flush(ctx, x);
            if (err < 0) p->of_client = true;
            return err < 0 ? err : LS_PENDING;
        }
        if (err != LS_DONE) return err;
    }
}

/* Move both directions. LS_DONE: it has ended. */
static int move(ls_thread_ctx *ctx, ls_proxy *p)
{
    int err = p->with.x->error;
    if (err != 0) p->of_client = true;
    const bool upgrading = p->life == LS_PROXY_UPGRADING;
    if (err == 0 && !upgrading) err = send_request(ctx, p);
    if (err >= 0) err = upgrading ? ls_proxy_tunnel(ctx, p) : take_response(ctx, p);
    if (err == LS_PENDING && p->life >= LS_PROXY_UPGRADING) return err;
    if (err >= 0 && !ls_proxy_has_head(p) && p->request == LS_PROXY_SENDING) { /* 100 may have come just now */
        err = send_request(ctx, p);
        if (err >= 0) err = LS_PENDING;
    }
    if (err == LS_PENDING) return err;
    ls_proxy_end(ctx, p, err);
    return LS_DONE;
}

static void run(ls_thread_ctx *ctx, ls_proxy *p)
{
    if (move(ctx, p) == LS_DONE) p->with.done(ctx, p); /* may free it */
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_proxy *p = ((ls_proxy_room *)ls_stream_user(s))->proxy;
    int err = result == LS_ETIMEDOUT ? waited(ctx, p) : ls_http_client_received(&p->c, s, result);
    if (result > 0) progress(p);
    if (err < 0) {
        if (p->with.x->error != 0) p->of_client = true;
        ls_proxy_end(ctx, p, err);
        p->with.done(ctx, p);
    } else {
        run(ctx, p);
    }
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_proxy *p = ((ls_proxy_room *)ls_stream_user(s))->proxy;
    if (err < 0) (void)truncate_request(p);
    progress(p);
    if (p->life != LS_PROXY_PAUSED) run(ctx, p);
}

static void client_ready(ls_thread_ctx *ctx, ls_exchange *x)
{
    progress(x->task);
    run(ctx, x->task);
}

/* ---- begin ------------------------------------------------------------------------------------------------------ */

static void take_exchange(ls_proxy *p)
{
    p->wake = p->with.x->wake;
    p->task = p->with.x->task;
    p->with.x->wake = client_ready;
    p->with.x->task = p;
    progress(p);
}

int ls_proxy_start(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *up, const ls_proxy_change *change)
{
    ls_exchange *x = p->with.x;
    bool chunked;
    const int err = ls_proxy_put_request(ctx, x, up, &p->with.filter, change, &chunked);
    if (err < 0) return err;
    ls_proxy_room *room = ls_stream_user(up);
    *room = (ls_proxy_room){.proxy = p, .live = p->with.live};
    atomic_fetch_add(p->with.live, 1);
    ls_stream_handover(up, &handler);
    ls_stream_set_actor(up, x->actor);
    ls_stream_send_within(up, p->with.timeout_ms);
    p->up = up;
    p->chunked = chunked;
    p->request = x->continue_due ? LS_PROXY_AWAITS_100 : LS_PROXY_SENDING;
    ls_http_client_init(&p->c,
                        x->head.method == LS_HTTP_HEAD ? LS_ASKED_HEAD
                        : ls_proxy_upgrade(x) != NULL  ? LS_ASKED_UPGRADE
                                                       : LS_ASKED_BODY,
                        LS_PROXY_HEAD_BYTES_MAX);
    take_exchange(p);
    if (x->continue_due && ls_stream_flush(ctx, up) < 0) (void)truncate_request(p);
    return move(ctx, p);
}

int ls_proxy_resume(ls_thread_ctx *ctx, ls_proxy *p)
{
    assert(p->life == LS_PROXY_PAUSED);
    p->life = LS_PROXY_RUNS;
    p->with.pauses = false;
    take_exchange(p);
    return move(ctx, p);
}

ls_proxy *ls_proxy_new(const ls_proxy_options *options, size_t user_bytes)
{
    const ls_text drops = options->filter.drops;
    ls_proxy *p = calloc(1, sizeof *p + user_bytes + drops.len);
    if (p == NULL) return NULL;
    p->with = *options;
    p->with.filter.drops.ptr = (char *)(p + 1) + user_bytes;
    if (drops.len > 0) memcpy((char *)(p + 1) + user_bytes, drops.ptr, drops.len);
    return p;
}

void *ls_proxy_user(ls_proxy *p)
{
    return p + 1;
}

void ls_proxy_free(ls_proxy *p)
{
    if (p->tap != NULL) ls_proxy_tap_remove(p->tap);
    free(p);
}

/* ---- what the caller asks --------------------------------------------------------------------------------------- */

ls_proxy_result ls_proxy_result_of(const ls_proxy *p)
{
    return (ls_proxy_result){.err = p->err,
                             .why = p->c.why,
                             .of_client = p->of_client,
                             .unanswered = p->c.phase == LS_CLIENT_SILENT && !p->body_read,
                             .body_read = p->body_read,
                             .upgraded = p->life == LS_PROXY_TUNNEL};
}

bool ls_proxy_has_head(const ls_proxy *p)
{
    return p->c.phase >= LS_CLIENT_BODY;
}

bool ls_proxy_is_paused(const ls_proxy *p)
{
    return p->life == LS_PROXY_PAUSED;
}

ls_proxy_pause ls_proxy_pause_of(const ls_proxy *p)
{
    return (ls_proxy_pause){
        .x = p->with.x,
        .own_fields = {p->own != NULL ? p->own->data : NULL, p->own != NULL ? p->own_fields_len : 0},
        .trusted = p->with.filter.trusted,
        .overruled = p->overruled,
        .ends_with_stream = p->c.reader.head.framing == LS_FRAMING_TO_END};
}

void ls_proxy_tap_set(ls_proxy *p, ls_proxy_tap *tap)
{
    if (p->tap != NULL) p->tap->of = NULL;
    p->tap = tap;
    tap->of = p;
}

void ls_proxy_tap_remove(ls_proxy_tap *tap)
{
    if (tap->of != NULL) tap->of->tap = NULL;
    tap->of = NULL;
}
