/* proxy.c - see proxy.h: the request to the server, and its response.
 *
 * Every packet, of either side, calls `run`, which moves both directions as far as they go:
 *
 *     run --> send_request   until the client has sent no more, or the server's queue is full
 *         \-> take_response  until the server has sent no more, or the client's queue is full
 *
 * A silent server costs the client nothing but the wait; but a client may leave meanwhile, which only a receive tells. That
 * receive is posted after LS_PROXY_LOOK_MS, because most responses arrive earlier. */
#include "http/proxy/proxy.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

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

static void drop_in(ls_proxy *p)
{
    if (p->in != NULL) ls_block_drop(p->in);
    p->in = NULL;
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
    const uint32_t len = p->x->fields_len;
    if (!p->pauses || len == 0) return LS_OK;
    p->own = ls_block_get(ctx->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (p->own == NULL) return LS_ENOMEM;
    memcpy(p->own->data, p->x->fields->data, len);
    return LS_OK;
}

/* The exchange is the caller's again. */
static void give_back(ls_proxy *p)
{
    ls_exchange *x = p->x;
    if (p->wake == NULL) return; /* it is already */
    x->wake = p->wake;
    x->task = p->task;
    p->wake = NULL;
}

static void close_both(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_proxy_close_stream(ctx, &p->up, p->in);
    p->in = NULL;
    ls_proxy_close_stream(ctx, &p->client, NULL);
}

/* Another request may follow on the connection to the server. */
static bool can_keep(const ls_proxy *p)
{
    return p->answered && p->last && p->reader.head.keep_alive && p->sent && !p->cut && p->in == NULL &&
           !p->upgraded && !ls_stream_receiving(p->up) && ls_stream_queued(p->up) == 0;
}

/* Drop what was taken from the head of the response. */
static void undo(ls_proxy *p)
{
    ls_exchange *x = p->x;
    if (!p->answered) return;
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
    ls_stream_set_actor(up, NULL);
    ls_stream_pool_put(ctx, p->pool, p->key, p->key_len, up);
    atomic_fetch_sub(p->live, 1);
}

void ls_proxy_refuse(ls_thread_ctx *ctx, ls_proxy *p)
{
    undo(p);
    p->last = p->reader.head.framing == LS_FRAMING_NONE;
    if (p->up != NULL && can_keep(p)) keep_stream(ctx, p);
}

void ls_proxy_end(ls_thread_ctx *ctx, ls_proxy *p, int err)
{
    ls_exchange *x = p->x;
    p->err = err;
    give_back(p);
    if (p->paused) return;
    if (err < 0 && x->response == LS_RESPONSE_NONE) undo(p);
    drop_fields(p);
    if (err == LS_OK && p->up != NULL && can_keep(p)) keep_stream(ctx, p);
    close_both(ctx, p);
    /* Behind the pool: the next request of the client finds the connection there. */
    if (err == LS_OK && !p->upgraded) (void)ls_exchange_flush(ctx, x);
    if (err < 0 && !p->upgraded && x->response == LS_RESPONSE_OPEN) ls_exchange_abort(ctx, x);
}

void ls_proxy_drop(ls_thread_ctx *ctx, ls_proxy *p)
{
    give_back(p);
    close_both(ctx, p);
    drop_fields(p);
    p->paused = false;
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
    drop_in(p);
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

/* Queue the end of the chunked coding, with the trailers of the client. LS_OK or LS_ENOMEM. */
static int put_end(ls_thread_ctx *ctx, const ls_proxy *p)
{
    const size_t room =
        5 + (p->x->trailers != NULL ? 2 * (size_t)p->x->trailers->to : 0); /* ": " may be longer than ":" */
    ls_pair field;
    char *const from = ls_stream_room(ctx, p->up, room), *to = from;
    if (from == NULL) return LS_ENOMEM;
    to = (char *)memcpy(to, "0\r\n", 3) + 3;
    for (size_t at = 0; ls_exchange_next_trailer(p->x, &at, &field);) {
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
static int cut(ls_proxy *p)
{
    p->sent = p->cut = true;
    return LS_DONE;
}

/* LS_DONE: the request is queued; LS_PENDING; LS_E*: the body of the client cannot be read. */
static int send_request(ls_thread_ctx *ctx, ls_proxy *p)
{
    while (!p->sent && !p->awaits_100) {
        ls_slice part = {0};
        if (ls_stream_queued(p->up) >= LS_PROXY_QUEUE_BYTES) {
            const int err = ls_stream_flush(ctx, p->up);
            if (err < 0) return cut(p);
            if (err == LS_PENDING) return err;
        }
        int err = p->given_count > 0 ? LS_DONE : ls_exchange_read(ctx, p->x, &part);
        if (err < 0) {
            p->blame = LS_PROXY_CLIENT;
            return err;
        }
        if (err == LS_PENDING) break;
        if (p->given_count > 0) {
            part = *p->given++;
            p->given_count--;
            if (part.block != NULL) (void)ls_block_hold(part.block);
        } else if (part.len > 0) {
            p->body_read = true;
        }
        p->progressed = true;
        if (part.len > 0) {
            err = put_part(ctx, p, &part);
        } else if (p->x->body_done) {
            ls_slice_drop(&part);
            p->sent = true;
            if (p->chunked) err = put_end(ctx, p);
        }
        if (err < 0) return err;
    }
    if (!p->cut && ls_stream_queued(p->up) > 0 && ls_stream_flush(ctx, p->up) < 0) return cut(p);
    return p->sent ? LS_DONE : LS_PENDING;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* Take the result of a receive. LS_DONE, or LS_E*: LS_ECLOSED at the end. */
static int store(ls_proxy *p, int64_t result)
{
    if (result <= 0) return result == 0 ? LS_ECLOSED : (int)result;
    p->silent = false;
    p->waited_ms = 0;
    if (p->in == NULL) {
        const ls_slice slice = ls_stream_take(p->up);
        p->in = slice.block;
        p->in->from = p->in->to = (uint32_t)(slice.ptr - slice.block->data);
        p->large = result >= LS_BLOCK_SMALL;
    }
    p->in->to += (uint32_t)result;
    p->filled = p->in->to == p->in->cap;
    return LS_DONE;
}

/* A head that fills its block moves to a large one. */
static int make_room(ls_thread_ctx *ctx, ls_proxy *p)
{
    const uint32_t have = p->in->to - p->in->from;
    if (p->in->to < p->in->cap) return LS_OK;
    ls_block *next = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
    if (next == NULL) return LS_ENOMEM;
    memcpy(next->data, p->in->data + p->in->from, have);
    ls_pool_copied(ctx->pool, have);
    next->from = 0;
    next->to = have;
    drop_in(p);
    p->in = next;
    return LS_OK;
}

/* LS_DONE: there are more bytes in p->in; LS_PENDING; LS_E*. */
static int receive(ls_thread_ctx *ctx, ls_proxy *p)
{
    int64_t result;
    int err;
    if (ls_stream_receiving(p->up)) return LS_PENDING;
    const uint32_t left_ms = p->timeout_ms - p->waited_ms;
    const bool limited = p->timeout_ms > 0 && !p->patient;
    p->wait_ms = !p->watching && (!limited || left_ms > LS_PROXY_LOOK_MS) ? LS_PROXY_LOOK_MS : limited ? left_ms : 0;
    ls_stream_recv_within(p->up, p->wait_ms);
    if (p->in == NULL) {
        err = ls_stream_recv(ctx, p->up, NULL, p->large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL, &result);
    } else {
        if ((err = make_room(ctx, p)) < 0) return err;
        err = ls_stream_recv(ctx, p->up, p->in->data + p->in->to, p->in->cap - p->in->to, &result);
    }
    return err == LS_PENDING ? err : store(p, err < 0 ? err : result);
}

/* The pending receive has ended without a byte. LS_OK: wait on. */
static int waited(ls_thread_ctx *ctx, ls_proxy *p)
{
    p->waited_ms = p->progressed || !p->sent ? 0 : p->waited_ms + p->wait_ms;
    p->progressed = false;
    p->awaits_100 = false; /* a server that does not know it: RFC 9110 section 10.1.1 */
    if (p->timeout_ms > 0 && !p->patient && p->waited_ms >= p->timeout_ms) return LS_ETIMEDOUT;
    if (p->watching || !p->sent || !p->x->body_done || p->reader.asked == LS_ASKED_UPGRADE) return LS_OK;
    p->watching = true;
    return ls_exchange_expect_end(ctx, p->x) < 0 ? p->x->error : LS_OK;
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
        if (head.status == 100) p->awaits_100 = false;
        if (head.status != 103) continue;
        for (size_t n = 0; ls_http1_response_field(from, &head, &n, &field);)
            if (ls_text_same(field.name, field.name_len, "link", 4))
                (void)ls_hints_add(&hints, field.name, field.name_len, field.value, field.value_len);
        if (hints.len > 0) (void)ls_exchange_hints(ctx, p->x, &hints);
    }
}

/* Whether a field of the server was left out, because the response had one before. */
static bool overrules(const ls_proxy *p, const char *bytes, const ls_http_response *head, const char *name)
{
    ls_text text;
    return ls_proxy_response_field(bytes, head, name, &text) &&
           ls_proxy_is_own(p->x, p->own_fields_len, name, strlen(name));
}

/* LS_DONE: the head was taken; LS_EAGAIN: it is incomplete; LS_PENDING: the proxy is a tunnel; LS_E*. */
static int take_head(ls_thread_ctx *ctx, ls_proxy *p)
{
    size_t skip = 0;
    const char *bytes = p->in->data + p->in->from;
    const int length =
        ls_http1_read_head(&p->reader, bytes, p->in->to - p->in->from, LS_PROXY_HEAD_BYTES_MAX, &skip, &p->why);
    if (skip > 0) take_interims(ctx, p, bytes, skip);
    p->in->from += (uint32_t)skip;
    if (p->in->from == p->in->to) drop_in(p);
    if (length <= 0) return length < 0 ? length : LS_EAGAIN;
    bytes += skip;
    const ls_http_response *head = &p->reader.head;
    ls_text text = {NULL, 0};
    p->answered = true;
    p->awaits_100 = false;
    p->own_fields_len = p->x->fields_len;
    p->own_type = p->x->has_type;
    int err = keep_own(ctx, p);
    if (err == LS_OK) err = ls_proxy_take_response(ctx, p->x, bytes, head);
    if (err == LS_OK && ls_proxy_response_field(bytes, head, "content-type", &text))
        p->patient = text.len >= 17 && ls_text_same(text.ptr, 17, "text/event-stream", 17);
    p->overruled = p->pauses && (overrules(p, bytes, head, "cache-control") || overrules(p, bytes, head, "expires"));
    if (err == LS_OK && head->status == 101) return ls_proxy_tunnel(ctx, p);
    p->in->from += (uint32_t)length;
    if (p->in->from == p->in->to) drop_in(p);
    return err;
}

/* Collect lines of the trailer section; at its end the trailers are those of the response. One that has no effect as a trailer,
 * or no room, is left out. LS_OK or LS_ENOMEM. */
static int take_trailers(ls_thread_ctx *ctx, ls_proxy *p, const char *lines, size_t len, bool end)
{
    ls_pair field;
    const int err = ls_trailers_add(ctx, &p->trailers, lines, len);
    if (err < 0 || !end) return err;
    for (size_t at = 0; ls_trailers_next(p->trailers, &at, &field);)
        (void)ls_exchange_trailer(ctx, p->x, field.name, field.name_len, field.value, field.value_len);
    return LS_OK;
}

/* Pass on what p->in has of the body. LS_DONE, LS_E*. */
static int pass_body(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_exchange *x = p->x;
    ls_slice slices[SLICES];
    unsigned count = 0;
    int err = LS_OK;
    do {
        const size_t have = p->in != NULL ? p->in->to - p->in->from : 0;
        const char *const bytes = have > 0 ? p->in->data + p->in->from : "";
        ls_chunk_run part;
        if (have == 0 && p->reader.head.framing != LS_FRAMING_NONE) break;
        if ((err = ls_http1_read_body(&p->reader, bytes, have, &part, &p->why)) < 0) break;
        if (part.trailers > 0) err = take_trailers(ctx, p, bytes + part.used - part.trailers, part.trailers, part.end);
        if (part.len > 0) slices[count++] = ls_slice_of(p->in, p->in->from + part.from, part.len);
        if (p->in != NULL) p->in->from += (uint32_t)part.used;
        p->last = part.end;
    } while (err == LS_OK && count < SLICES && !p->last);
    if (err == LS_OK && p->in != NULL && p->in->from == p->in->to) drop_in(p);
    if (err < 0) {
        ls_slices_drop(slices, count);
        return err;
    }
    if (p->tap != NULL) p->tap(p->tap_to, slices, count, p->last);
    if (p->last && x->response == LS_RESPONSE_NONE && x->head.method != LS_HTTP_HEAD &&
        ls_status_has_content(x->status))
        return ls_exchange_respond(ctx, x, slices, count);
    if (count > 0 || x->response == LS_RESPONSE_NONE) err = ls_exchange_write(ctx, x, slices, count);
    return err < 0 ? err : LS_DONE;
}

/* LS_DONE: the response is complete, or paused; LS_PENDING; LS_E*. */
static int take_response(ls_thread_ctx *ctx, ls_proxy *p)
{
    ls_exchange *x = p->x;
    for (;;) {
        int err = LS_DONE;
        if (!p->answered) {
            err = p->in != NULL ? take_head(ctx, p) : LS_EAGAIN;
            if (err == LS_DONE && p->pauses) {
                p->paused = true;
                return LS_DONE;
            }
        } else if (!p->last) {
            err = pass_body(ctx, p);
            if (err < 0 && x->error != 0) p->blame = LS_PROXY_CLIENT;
        }
        if (err < 0 && err != LS_EAGAIN) return err;
        if (err == LS_PENDING) return err;
        if (p->last) {
            err = x->response == LS_RESPONSE_DONE ? LS_DONE : ls_exchange_finish(ctx, x);
            if (err < 0) p->blame = LS_PROXY_CLIENT;
            return err < 0 ? err : LS_DONE;
        }
        /* A part leaves at once, such as an event; behind a receive that filled its block, with what can be received now. */
        if (x->response != LS_RESPONSE_NONE && (!p->filled || ls_exchange_queued(x) >= LS_PROXY_QUEUE_BYTES)) {
            err = ls_exchange_flush(ctx, x);
            if (err < 0) p->blame = LS_PROXY_CLIENT;
            if (err != LS_DONE) return err;
        }
        if (p->answered && p->in != NULL) continue; /* more slices than SLICES, or the start of the body */
        if (p->answered && x->response == LS_RESPONSE_NONE && p->reader.head.framing == LS_FRAMING_NONE) continue;
        err = receive(ctx, p);
        if (err == LS_ECLOSED && p->answered && ls_http1_read_end(&p->reader) == LS_OK) {
            p->last = true;
            continue;
        }
        if (err == LS_ECLOSED && !p->silent) return LS_ETRUNCATED;
        if (err == LS_PENDING && p->answered && (x->response == LS_RESPONSE_NONE || ls_exchange_queued(x) > 0)) {
            /* The head does not wait for the body, nor what was received for more. */
            err = x->response == LS_RESPONSE_NONE ? ls_exchange_write(ctx, x, NULL, 0) : LS_DONE;
            if (err >= 0) err = ls_exchange_flush(ctx, x);
            if (err < 0) p->blame = LS_PROXY_CLIENT;
            return err < 0 ? err : LS_PENDING;
        }
        if (err != LS_DONE) return err;
    }
}

/* Move both directions. LS_DONE: it has ended. */
static int move(ls_thread_ctx *ctx, ls_proxy *p)
{
    int err = p->x->error;
    if (err != 0) p->blame = LS_PROXY_CLIENT;
    if (err == 0 && !p->upgrade_waits) err = send_request(ctx, p);
    if (err >= 0) err = p->upgrade_waits ? ls_proxy_tunnel(ctx, p) : take_response(ctx, p);
    if (err == LS_PENDING && (p->upgraded || p->upgrade_waits)) return err;
    if (err >= 0 && !p->answered && !p->awaits_100 && !p->sent) { /* 100 may have come just now */
        err = send_request(ctx, p);
        if (err >= 0) err = LS_PENDING;
    }
    if (err == LS_PENDING) return err;
    ls_proxy_end(ctx, p, err);
    return LS_DONE;
}

static void run(ls_thread_ctx *ctx, ls_proxy *p)
{
    if (move(ctx, p) == LS_DONE) p->done(ctx, p); /* may free it */
}

/* ---- packets ---------------------------------------------------------------------------------------------------- */

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_proxy *p = ((ls_proxy_room *)ls_stream_user(s))->proxy;
    int err = result == LS_ETIMEDOUT ? waited(ctx, p) : store(p, result);
    if (err == LS_ECLOSED && p->answered && ls_http1_read_end(&p->reader) == LS_OK) {
        p->last = true;
        err = LS_OK;
    }
    if (err == LS_ECLOSED && !p->silent) err = LS_ETRUNCATED;
    if (err < 0) {
        if (p->x->error != 0) p->blame = LS_PROXY_CLIENT;
        ls_proxy_end(ctx, p, err);
        p->done(ctx, p);
    } else {
        run(ctx, p);
    }
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ls_proxy *p = ((ls_proxy_room *)ls_stream_user(s))->proxy;
    if (err < 0) (void)cut(p);
    p->progressed = true;
    if (!p->paused) run(ctx, p);
}

static void client_ready(ls_thread_ctx *ctx, ls_exchange *x)
{
    run(ctx, x->task);
}

/* ---- begin ------------------------------------------------------------------------------------------------------ */

static void take_exchange(ls_proxy *p)
{
    p->wake = p->x->wake;
    p->task = p->x->task;
    p->x->wake = client_ready;
    p->x->task = p;
}

int ls_proxy_start(ls_thread_ctx *ctx, ls_proxy *p, ls_stream *up, const ls_proxy_change *change)
{
    ls_exchange *x = p->x;
    bool chunked;
    const int err = ls_proxy_put_request(ctx, x, up, change, &chunked);
    if (err < 0) return err;
    ls_proxy_room *room = ls_stream_user(up);
    *room = (ls_proxy_room){.proxy = p, .live = p->live};
    atomic_fetch_add(p->live, 1);
    ls_stream_handover(up, &handler);
    ls_stream_set_actor(up, x->actor);
    ls_stream_send_within(up, p->timeout_ms);
    p->up = up;
    p->chunked = chunked;
    p->silent = true;
    p->awaits_100 = x->continue_due;
    ls_http1_reader_init(&p->reader, x->head.method == LS_HTTP_HEAD ? LS_ASKED_HEAD
                                     : ls_proxy_upgrade(x) != NULL  ? LS_ASKED_UPGRADE
                                                                    : LS_ASKED_BODY);
    take_exchange(p);
    if (p->awaits_100 && ls_stream_flush(ctx, up) < 0) (void)cut(p);
    return move(ctx, p);
}

int ls_proxy_go_on(ls_thread_ctx *ctx, ls_proxy *p)
{
    p->paused = p->pauses = false;
    take_exchange(p);
    return move(ctx, p);
}
