/* http1_write.c - responses of HTTP/1.1: heads, bodies with Content-Length, chunked bodies.
 *
 * A head and a small body are written next to each other into the output block and leave in one send. The slices of a
 * large body, and of parts, are queued without a copy; only bytes without a block are copied. Every part of a chunked
 * body becomes one chunk. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "proto/http1_internal.h"

enum {
    HEAD_ROOM = 512,          /* a head without extra fields: status line, date, server, length, connection, type */
    FIELDS_COPIED_MAX = 8192, /* longer extra fields are queued from their own block */
    SEND_AT_BYTES = 16384,    /* write sends the queue when it has this length */
    BLOCK_BESIDE_BYTES = 2048 /* see fits_beside */
};
#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

static char *put(char *to, const void *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

static char *put_status(char *to, int status)
{
    if (status == 200) return PUT(to, "HTTP/1.1 200 OK\r\n");
    const char *text = ls_status_text(status);
    to = PUT(to, "HTTP/1.1 ");
    to = ls_put_number(to, (uint64_t)status);
    *to++ = ' ';
    to = put(to, text, strlen(text));
    return PUT(to, "\r\n");
}

static char *put_date(char *to, ls_http1_thread *thread)
{
    int64_t now_s = ls_clock_wall_s();
    if (thread->date_s != now_s) {
        thread->date_s = now_s;
        char *line = PUT(thread->date_line, "Date: ");
        ls_http_date(now_s, line);
        (void)PUT(line + LS_HTTP_DATE_BYTES, "\r\n");
    }
    return put(to, thread->date_line, sizeof thread->date_line);
}

/* Return the prepared head of a 200 response with a Content-Type; it ends before the number of the Content-Length.
 * NULL: the type is too long. */
static const ls_http1_ready *ready_for(ls_http1_thread *thread, const char *type)
{
    static const char before[] = "HTTP/1.1 200 OK\r\nServer: luaserve\r\n",
                      middle[] = "Content-Type: ", after[] = "\r\nContent-Length: ";
    const int64_t now_s = ls_clock_wall_s();
    for (unsigned i = 0; i < LS_HTTP1_READY; i++)
        if (thread->ready[i].type == type && thread->ready[i].date_s == now_s) return &thread->ready[i];

    const size_t type_len = strlen(type);
    ls_http1_ready *ready = &thread->ready[thread->ready_next++ % LS_HTTP1_READY];
    if (sizeof before + sizeof thread->date_line + sizeof middle + type_len + sizeof after > sizeof ready->text)
        return NULL;
    char *to = PUT(ready->text, before);
    to = put_date(to, thread);
    to = PUT(to, middle);
    to = put(to, type, type_len);
    to = PUT(to, after);
    ready->type = type;
    ready->date_s = thread->date_s;
    ready->len = (uint32_t)(to - ready->text);
    return ready;
}

/* Whether the connection is kept after this response: both sides allow it, and the end of the request is known and
 * near. */
static bool decide_keep(ls_http1_conn *c, ls_http1_exchange *e)
{
    const ls_exchange *x = &e->x;
    if (!x->head.keep_alive || x->close || x->error != 0 || e->continue_due) return false;
    if (atomic_load_explicit(&c->http->draining, memory_order_relaxed)) return false;
    return x->body_done || x->head.chunked || e->body_left <= c->http->config.unread_bytes_max;
}

/* Write the common lines of a head: all before Connection and the extra fields. */
static char *put_usual(char *to, ls_http1_thread *thread, const ls_http1_exchange *e, int64_t length, size_t type_len)
{
    const ls_exchange *x = &e->x;
    const ls_http1_ready *ready = NULL;
    const bool has_server = x->fields_len > 0 && ls_exchange_has_field(x, "server", 6); /* the site's own */
    if (!has_server && x->status == 200 && type_len > 0 && length >= 0 &&
        (ready = ready_for(thread, x->type)) != NULL) {
        to = put(to, ready->text, ready->len);
        to = ls_put_number(to, (uint64_t)length);
        return PUT(to, "\r\n");
    }
    to = put_status(to, x->status);
    if (!has_server) to = PUT(to, "Server: luaserve\r\n");
    to = put_date(to, thread);
    if (type_len > 0 && ls_status_has_content(x->status)) {
        to = PUT(to, "Content-Type: ");
        to = put(to, x->type, type_len);
        to = PUT(to, "\r\n");
    }
    if (e->chunked_out) {
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    } else if (length >= 0 && ls_status_is_framed(x->status)) {
        to = PUT(to, "Content-Length: ");
        to = ls_put_number(to, (uint64_t)length);
        to = PUT(to, "\r\n");
    }
    return to;
}

/* Queue the head. *at receives the address behind it, with room for `beside` bytes in the same block. `length` < 0:
 * the body is chunked, or ends with the connection. */
static int put_head(ls_thread_ctx *ctx, ls_http1_conn *c, ls_http1_exchange *e, int64_t length, size_t beside,
                    char **at)
{
    ls_exchange *x = &e->x;
    const bool framed = ls_status_is_framed(x->status), has_content = ls_status_has_content(x->status);
    const bool old = x->head.version_minor == 0;
    const size_t type_len = x->type != NULL && !x->has_type ? strlen(x->type) : 0;
    const size_t fields_copied = x->fields_len <= FIELDS_COPIED_MAX ? x->fields_len : 0;

    if (!has_content) length = 0;
    e->no_body = !has_content || x->head.method == LS_HTTP_HEAD;
    e->chunked_out = length < 0 && framed && !old;
    e->keep = decide_keep(c, e);
    if (length < 0 && framed && old) e->keep = false; /* the body ends with the connection */

    char *const from = ls_stream_room(ctx, ls_http1_stream(c), HEAD_ROOM + type_len + fields_copied + beside);
    if (from == NULL) {
        e->head_refused = true;
        return LS_ENOMEM;
    }
    ls_http1_thread *thread = ls_http1_thread_of(c->http, ctx);
    char *to = put_usual(from, thread, e, length, type_len);
    if (!e->keep)
        to = PUT(to, "Connection: close\r\n");
    else if (old)
        to = PUT(to, "Connection: keep-alive\r\n");
    if (fields_copied > 0) to = put(to, x->fields->data, fields_copied);
    if (fields_copied < x->fields_len) {
        ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
        ls_slice fields = ls_slice_of(x->fields, 0, x->fields_len);
        if (ls_stream_push(ctx, ls_http1_stream(c), &fields) < 0) {
            ls_slice_drop(&fields);
            return LS_ENOMEM;
        }
        if ((to = ls_stream_room(ctx, ls_http1_stream(c), 2 + beside)) == NULL) return LS_ENOMEM;
        to = PUT(to, "\r\n");
        ls_stream_commit(ls_http1_stream(c), 2);
    } else {
        to = PUT(to, "\r\n");
        ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
    }
    *at = to;
    ls_counter_add(&thread->responses, 1);
    return LS_OK;
}

static int put_copy(ls_thread_ctx *ctx, ls_http1_conn *c, const char *bytes, size_t len)
{
    while (len > 0) {
        const size_t run = len < LS_BLOCK_LARGE ? len : LS_BLOCK_LARGE;
        char *to = ls_stream_room(ctx, ls_http1_stream(c), run);
        if (to == NULL) return LS_ENOMEM;
        memcpy(to, bytes, run);
        ls_stream_commit(ls_http1_stream(c), run);
        bytes += run;
        len -= run;
    }
    return LS_OK;
}

/* Queue one slice, with a copy if it has no block. Takes its reference. */
static int put_slice(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *slice)
{
    if (slice->block == NULL) return put_copy(ctx, c, slice->ptr, slice->len);
    const int err = slice->len > 0 ? ls_stream_push(ctx, ls_http1_stream(c), slice) : LS_OK;
    if (err < 0 || slice->len == 0) ls_slice_drop(slice);
    return err;
}

/* The response cannot be completed. The client must not take the bytes sent so far for a complete response. */
static int fail(ls_exchange *x, int err)
{
    x->error = err;
    x->close = true;
    ls_http1_of(x)->keep = false;
    x->response = LS_RESPONSE_OPEN;
    return err;
}

/* Whether the begin of a body is copied next to the head: bytes without a block, which must be copied, and those of a
 * small block, of which a send in two parts takes longer than the copy. */
static bool fits_beside(const ls_slice *slice)
{
    if (slice->block == NULL) return slice->len < LS_HTTP1_BESIDE_BYTES;
    return slice->len < BLOCK_BESIDE_BYTES && !ls_slice_is_file(slice);
}

int ls_http1_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    assert(x->response == LS_RESPONSE_NONE);
    if (x->error != 0) {
        ls_slices_drop(slices, count);
        return x->error;
    }
    size_t length = ls_slices_bytes(slices, count);
    const bool beside = count > 0 && fits_beside(&slices[0]);
    char *to;
    int err = put_head(ctx, c, e, (int64_t)length, beside ? slices[0].len : 0, &to);
    unsigned i = 0;
    if (err == LS_OK && e->no_body) {
        ls_slices_drop(slices, count);
        i = count;
        length = 0;
    } else if (err == LS_OK && beside) {
        memcpy(to, slices[0].ptr, slices[0].len);
        ls_stream_commit(ls_http1_stream(c), slices[0].len);
        ls_slice_drop(&slices[0]);
        i = 1;
    }
    for (; err == LS_OK && i < count; i++) err = put_slice(ctx, c, &slices[i]);
    if (err < 0) {
        ls_slices_drop(slices + i, count - i);
        return fail(x, err);
    }
    x->body_sent = length;
    x->response = LS_RESPONSE_DONE;
    return LS_DONE;
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

/* Queue one slice as a chunk. Takes its reference. */
static int put_chunk(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *slice)
{
    static const char digits[] = "0123456789abcdef";
    char line[18];
    size_t at = sizeof line, len = slice->len;
    line[--at] = '\n';
    line[--at] = '\r';
    do {
        line[--at] = digits[len & 15];
        len >>= 4;
    } while (len > 0);
    char *to = ls_stream_room(ctx, ls_http1_stream(c), sizeof line);
    if (to != NULL) {
        memcpy(to, line + at, sizeof line - at);
        ls_stream_commit(ls_http1_stream(c), sizeof line - at);
    }
    if (to == NULL) {
        ls_slice_drop(slice);
        return LS_ENOMEM;
    }
    if (put_slice(ctx, c, slice) < 0) return LS_ENOMEM;
    if ((to = ls_stream_room(ctx, ls_http1_stream(c), 2)) == NULL) return LS_ENOMEM;
    (void)PUT(to, "\r\n");
    ls_stream_commit(ls_http1_stream(c), 2);
    return LS_OK;
}

int ls_http1_send_out(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = c->exchange != NULL ? ls_http1_exchange_of(c) : NULL;
    const int err = ls_stream_flush(ctx, ls_http1_stream(c));
    if (err == LS_DONE && e != NULL) e->begin_at = 0;
    return err; /* if it is LS_PENDING, another thread may own the connection now */
}

/* Send the queue. LS_PENDING while it is above the high-water mark. */
static int send_and_wait(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    ls_stream_set_actor(ls_http1_stream(c), x->actor);
    int err = ls_http1_send_out(ctx, c);
    if (err < 0) return fail(x, err);
    if (err == LS_DONE || ls_stream_queued(ls_http1_stream(c)) < c->http->config.write_bytes_high) return LS_DONE;
    e->awaits_sent = true;
    return LS_PENDING;
}

int ls_http1_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    int err = x->error;
    unsigned i = 0;
    if (err == 0 && x->response == LS_RESPONSE_NONE) {
        char *to;
        err = put_head(ctx, c, e, x->length, 0, &to);
        x->response = LS_RESPONSE_OPEN;
        e->part_bytes = 0;
    }
    if (err == 0) {
        const size_t bytes = ls_slices_bytes(slices, count);
        e->part_bytes += bytes;
        if (x->length >= 0 && e->part_bytes > (uint64_t)x->length) err = LS_EMSGSIZE;
        if (!e->no_body) x->body_sent += bytes;
    }
    for (; err == 0 && !e->no_body && i < count; i++) {
        const bool is_chunk = e->chunked_out && slices[i].len > 0; /* a chunk of no bytes would end the body */
        err = is_chunk ? put_chunk(ctx, c, &slices[i]) : put_slice(ctx, c, &slices[i]);
    }
    ls_slices_drop(slices + i, count - i);
    if (err < 0) return fail(x, err);
    return ls_stream_queued(ls_http1_stream(c)) >= SEND_AT_BYTES ? send_and_wait(ctx, x) : LS_DONE;
}

int ls_http1_write_chunk(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *chunk, bool now)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_stream *const s = ls_http1_stream(ls_http1_conn_of(x));
    assert(x->error != 0 || (x->response == LS_RESPONSE_OPEN && x->length < 0));
    if (x->error != 0) return x->error;
    if (e->no_body) return LS_DONE;
    const ls_slice data = ls_exchange_chunk_data(chunk);
    ls_slice part = e->chunked_out ? *chunk : data;
    const size_t sent = now ? ls_stream_try_send(s, part.ptr, part.len) : 0;
    part.ptr += sent;
    part.len -= sent;
    if (part.len > 0) {
        (void)ls_block_hold(part.block);
        if (ls_stream_push(ctx, s, &part) < 0) {
            ls_block_drop(part.block);
            return fail(x, LS_ENOMEM);
        }
    }
    x->body_sent += data.len;
    return part.len > 0 ? LS_PENDING : LS_DONE;
}

void ls_http1_prefetch(const ls_exchange *x, unsigned step)
{
    const ls_stream *s = ls_stream_of(x->conn);
    if (step > 0) {
        ls_stream_prefetch(s);
    } else {
        LS_PREFETCH(s);
        LS_PREFETCH(LS_CONTAINER(x, ls_http1_exchange, x));
    }
}

int ls_http1_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    return x->error != 0 ? x->error : send_and_wait(ctx, x);
}

/* The bytes of a pending send may still leave; those queued behind it are dropped. The release closes the connection as
 * without a response. */
void ls_http1_abort_response(ls_thread_ctx *ctx, ls_exchange *x)
{
    const ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    (void)ctx;
    if (x->error == 0) x->error = LS_ECANCELED;
    (void)ls_stream_truncate(ls_http1_stream(c), e->begin_at);
}

int ls_http1_finish(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    if (x->error != 0) return x->error;
    if (x->response == LS_RESPONSE_NONE) return ls_http1_respond(ctx, x, NULL, 0);
    if (x->length >= 0 && !e->no_body && e->part_bytes != (uint64_t)x->length) return fail(x, LS_EMSGSIZE);
    if (e->chunked_out && !e->no_body) {
        char *to = ls_stream_room(ctx, ls_http1_stream(c), 5);
        if (to == NULL) return fail(x, LS_ENOMEM);
        (void)PUT(to, "0\r\n\r\n");
        ls_stream_commit(ls_http1_stream(c), 5);
    }
    x->response = LS_RESPONSE_DONE;
    return LS_DONE;
}

/* ---- the last response of HTTP ------------------------------------------------------------------------------ */

int ls_http1_put_upgrade(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *protocol, size_t protocol_len)
{
    ls_http1_conn *c = ls_http1_conn_of(x);
    char *const from = ls_stream_room(ctx, ls_http1_stream(c), HEAD_ROOM + protocol_len);
    if (from == NULL) return LS_ENOMEM;
    char *to = put_status(from, status);
    if (x->fields_len == 0 || !ls_exchange_has_field(x, "server", 6)) to = PUT(to, "Server: luaserve\r\n");
    to = put_date(to, ls_http1_thread_of(c->http, ctx));
    if (protocol_len > 0) {
        to = PUT(to, "Connection: upgrade\r\nUpgrade: ");
        to = put(to, protocol, protocol_len);
        to = PUT(to, "\r\n");
    }
    ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
    if (x->fields_len > 0 && put_copy(ctx, c, x->fields->data, x->fields_len) < 0) return LS_ENOMEM;
    return put_copy(ctx, c, "\r\n", 2);
}

/* ---- without a handler -------------------------------------------------------------------------------------- */

int ls_http1_send_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why)
{
    const char *text = ls_status_text(status);
    const size_t text_len = strlen(text), why_len = why == NULL ? 0 : strlen(why);
    const size_t length = text_len + (why_len > 0 ? 2 + why_len : 0) + 1;
    ls_http1_thread *thread = ls_http1_thread_of(c->http, ctx);
    char *const from = ls_stream_room_reserved(ctx, ls_http1_stream(c), HEAD_ROOM + length);
    if (from == NULL) return LS_ENOMEM;
    char *to = put_status(from, status);
    to = PUT(to, "Server: luaserve\r\n");
    to = put_date(to, thread);
    to = PUT(to, "Content-Type: text/plain; charset=utf-8\r\nContent-Length: ");
    to = ls_put_number(to, length);
    if (status == 503) to = PUT(to, "\r\nRetry-After: 1");
    to = PUT(to, "\r\nConnection: close\r\n\r\n");
    to = put(to, text, text_len);
    if (why_len > 0) {
        to = PUT(to, ": ");
        to = put(to, why, why_len);
    }
    *to++ = '\n';
    ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
    ls_counter_add(&thread->refused, 1);
    return LS_OK;
}

int ls_http1_refuse_plain(ls_thread_ctx *ctx, ls_stream *s)
{
    static const char text[] = "400 Bad Request: plain HTTP on a port for HTTPS; the URL must begin with https://\n";
    char *const from = ls_stream_room_reserved(ctx, s, HEAD_ROOM + sizeof text);
    if (from == NULL) return LS_ENOMEM;
    char *to = put_status(from, 400);
    to = PUT(to, "Server: luaserve\r\nDate: ");
    ls_http_date(ls_clock_wall_s(), to);
    to += LS_HTTP_DATE_BYTES;
    to = PUT(to, "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ");
    to = ls_put_number(to, sizeof text - 1);
    to = PUT(to, "\r\nConnection: close\r\n\r\n");
    to = put(to, text, sizeof text - 1);
    ls_stream_commit(s, (size_t)(to - from));
    return LS_OK;
}
