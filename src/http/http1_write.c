/* http1_write.c - responses of HTTP/1.1: heads, bodies with Content-Length, chunked bodies.
 *
 * A head and a small body are written next to each other into the output block and leave in one send. The slices of a
 * large body, and of parts, are queued without a copy; only bytes without a block are copied. Every part of a chunked
 * body becomes one chunk. */
#include <string.h>

#include "base/clock.h"
#include "http/http1_internal.h"

enum {
    HEAD_ROOM = 512,          /* a head without extra fields: status line, date, server, length, connection, type */
    FIELDS_COPIED_MAX = 8192, /* longer extra fields are queued from their own block */
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

const char *ls_http_date_now(ls_http_thread *thread)
{
    int64_t now_s = ls_clock_wall_s();
    if (thread->date_s != now_s) {
        thread->date_s = now_s;
        char *line = PUT(thread->date_line, "Date: ");
        ls_http_date(now_s, line);
        (void)PUT(line + LS_HTTP_DATE_BYTES, "\r\n");
    }
    return thread->date_line + sizeof "Date: " - 1;
}

static char *put_date(char *to, ls_http_thread *thread)
{
    (void)ls_http_date_now(thread);
    return put(to, thread->date_line, sizeof thread->date_line);
}

/* Return the prepared head of a 200 response with a Content-Type; it ends before the number of the Content-Length.
 * NULL: the type is too long. */
static const ls_http1_ready *ready_for(ls_http_thread *thread, const char *type)
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

/* Whether the site, or an upstream server, has set Server. */
static bool has_server(const ls_exchange *x)
{
    return x->may_have_server && ls_exchange_has_field(x, "server", 6);
}

/* Write the common lines of a head: all before Connection and the extra fields. */
static char *put_usual(char *to, ls_http_thread *thread, const ls_exchange *x, int64_t length, size_t type_len)
{
    const ls_http1_ready *ready = NULL;
    const bool own_server = has_server(x);
    if (!own_server && !x->has_date && x->status == 200 && type_len > 0 && x->framing == LS_FRAMED_BY_LENGTH &&
        (ready = ready_for(thread, x->type)) != NULL) {
        to = put(to, ready->text, ready->len);
        to = ls_put_number(to, (uint64_t)length);
        return PUT(to, "\r\n");
    }
    to = put_status(to, x->status);
    if (!own_server) to = PUT(to, "Server: luaserve\r\n");
    if (!x->has_date) to = put_date(to, thread);
    if (type_len > 0) {
        to = PUT(to, "Content-Type: ");
        to = put(to, x->type, type_len);
        to = PUT(to, "\r\n");
    }
    if (x->framing == LS_FRAMED_BY_PARTS) {
        to = PUT(to, "Transfer-Encoding: chunked\r\n");
    } else if (x->framing == LS_FRAMED_BY_LENGTH) {
        to = PUT(to, "Content-Length: ");
        to = ls_put_number(to, (uint64_t)length);
        to = PUT(to, "\r\n");
    }
    return to;
}

static inline int put_run(ls_thread_ctx *ctx, ls_http1_conn *c, const char *bytes, size_t len)
{
    char *to = ls_stream_room(ctx, ls_http1_stream(c), len);
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, bytes, len);
    ls_stream_commit(ls_http1_stream(c), len);
    return LS_OK;
}

static int put_copy(ls_thread_ctx *ctx, ls_http1_conn *c, const char *bytes, size_t len)
{
    int err = LS_OK;
    while (err == LS_OK && len > 0) {
        const size_t run = len < LS_BLOCK_LARGE ? len : LS_BLOCK_LARGE;
        err = put_run(ctx, c, bytes, run);
        bytes += run;
        len -= run;
    }
    return err;
}

/* Queue one slice, with a copy if it has no block. Takes its reference. */
static int put_slice(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *slice)
{
    if (slice->block == NULL) return put_copy(ctx, c, slice->ptr, slice->len);
    const int err = slice->len > 0 ? ls_stream_push(ctx, ls_http1_stream(c), slice) : LS_OK;
    if (err < 0 || slice->len == 0) ls_slice_drop(slice);
    return err;
}

/* Whether the start of a body is copied next to the head: bytes without a block, which must be copied, and those of a
 * small block, of which a send in two parts takes longer than the copy. */
static bool fits_beside(const ls_slice *slice)
{
    if (slice->block == NULL) return slice->len < LS_HTTP1_BESIDE_BYTES;
    return slice->len < BLOCK_BESIDE_BYTES && !ls_slice_is_file(slice);
}

static char *put_size_line(char line[LS_SHARED_BEFORE], size_t len) /* right-aligned */
{
    char *at = line + LS_SHARED_BEFORE;
    *--at = '\n';
    *--at = '\r';
    do {
        *--at = "0123456789abcdef"[len & 15];
        len >>= 4;
    } while (len > 0);
    return at;
}

/* Queue one slice as a chunk. Takes its reference. */
static int put_chunk(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *slice)
{
    char line[LS_SHARED_BEFORE];
    const char *const from = put_size_line(line, slice->len);
    if (put_run(ctx, c, from, (size_t)(line + sizeof line - from)) < 0) {
        ls_slice_drop(slice);
        return LS_ENOMEM;
    }
    return put_slice(ctx, c, slice) < 0 ? LS_ENOMEM : put_run(ctx, c, "\r\n", 2);
}

static int put_body(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count)
{
    ls_http1_conn *c = ls_http1_conn_of(x);
    int err = LS_OK;
    unsigned i = 0;
    for (; err == LS_OK && i < count; i++) {
        const bool is_chunk = x->framing == LS_FRAMED_BY_PARTS && slices[i].len > 0; /* one of no bytes is the end */
        err = is_chunk ? put_chunk(ctx, c, &slices[i]) : put_slice(ctx, c, &slices[i]);
    }
    ls_slices_drop(slices + i, count - i);
    return err;
}

/* Queue the extra fields from their own block. Returns the address after them, with `room` bytes of room. */
static char *push_fields(ls_thread_ctx *ctx, ls_exchange *x, size_t room)
{
    ls_slice fields = ls_slice_of(x->fields, 0, x->fields_len);
    if (ls_stream_push(ctx, x->stream, &fields) == LS_OK) return ls_stream_room(ctx, x->stream, room);
    ls_slice_drop(&fields);
    return NULL;
}

int ls_http1_head(ls_thread_ctx *ctx, ls_exchange *x, int64_t length, ls_slice *slices, unsigned count)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    const bool beside = count > 0 && x->framing == LS_FRAMED_BY_LENGTH && fits_beside(&slices[0]);
    const size_t type_len = x->type != NULL ? strlen(x->type) : 0, body = beside ? slices[0].len : 0;
    const size_t fields_copied = x->fields_len <= FIELDS_COPIED_MAX ? x->fields_len : 0;

    ls_http_server *http = ls_http1_engine(c);
    if (atomic_load_explicit(&http->draining, memory_order_relaxed)) x->close = true;
    char *from = ls_stream_room(ctx, x->stream, HEAD_ROOM + type_len + fields_copied + body);
    if (from == NULL) {
        e->head_refused = true;
        goto no_memory;
    }
    ls_http_thread *thread = ls_http_thread_of(http, ctx);
    char *to = put_usual(from, thread, x, length, type_len);
    if (x->close)
        to = PUT(to, "Connection: close\r\n");
    else if (x->head.version == 10)
        to = PUT(to, "Connection: keep-alive\r\n");
    if (fields_copied > 0) {
        to = put(to, x->fields->data, fields_copied);
    } else if (x->fields_len > 0) {
        ls_stream_commit(x->stream, (size_t)(to - from));
        if ((from = to = push_fields(ctx, x, 2 + body)) == NULL) goto no_memory;
    }
    to = PUT(to, "\r\n");
    if (beside) to = put(to, slices[0].ptr, body);
    ls_stream_commit(x->stream, (size_t)(to - from));
    ls_counter_add(&thread->responses, 1);
    if (!beside) return count > 0 ? put_body(ctx, x, slices, count) : LS_OK;
    ls_slice_drop(&slices[0]);
    return count > 1 ? put_body(ctx, x, slices + 1, count - 1) : LS_OK;

no_memory:
    ls_slices_drop(slices, count);
    return LS_ENOMEM;
}

void ls_shared_part_frame(char *data, size_t len)
{
    (void)put_size_line(data - LS_SHARED_BEFORE, len);
    (void)PUT(data + len, "\r\n");
}

/* A part that responses share has its frame around it. */
static int put_shared(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *part, bool now)
{
    if (x->framing == LS_FRAMED_BY_PARTS) {
        size_t line = 3;
        for (size_t len = part->len >> 4; len > 0; len >>= 4) line++;
        part->ptr -= line;
        part->len += line + 2;
    }
    const size_t sent = now ? ls_stream_try_send(x->stream, part->ptr, part->len) : 0;
    part->ptr += sent;
    part->len -= sent;
    const int err = part->len == 0 ? LS_DONE : ls_stream_push(ctx, x->stream, part) < 0 ? LS_ENOMEM : LS_PENDING;
    if (err != LS_PENDING) ls_slice_drop(part);
    return err;
}

static int put_trailers(ls_thread_ctx *ctx, ls_http1_conn *c, ls_slice *lines)
{
    if (put_run(ctx, c, "0\r\n", 3) < 0) {
        ls_slice_drop(lines);
        return LS_ENOMEM;
    }
    return put_slice(ctx, c, lines) < 0 ? LS_ENOMEM : put_run(ctx, c, "\r\n", 2);
}

/* Put a response 103 before the others of this request. A file that has changed is not answered with a 503 any more:
 * part of this response may have been sent. */
static int put_hints(ls_thread_ctx *ctx, ls_http1_conn *c, const ls_slice *lines)
{
    static const char status[] = "HTTP/1.1 103 Early Hints\r\n";
    char *const from = ls_stream_room(ctx, ls_http1_stream(c), sizeof status + lines->len + 2);
    if (from == NULL) return LS_ENOMEM;
    char *to = put(PUT(from, status), lines->ptr, lines->len);
    to = PUT(to, "\r\n");
    ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
    c->pipelined = true;
    return LS_OK;
}

int ls_http1_data(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count, unsigned how)
{
    if (how & LS_DATA_SHARED) return put_shared(ctx, x, slices, how & LS_DATA_NOW);
    if (how & LS_DATA_HINTS) return put_hints(ctx, ls_http1_conn_of(x), slices);
    if (how & LS_DATA_LAST && count == 0) return put_run(ctx, ls_http1_conn_of(x), "0\r\n\r\n", 5);
    if (how & LS_DATA_LAST) return put_trailers(ctx, ls_http1_conn_of(x), slices);
    return put_body(ctx, x, slices, count);
}

int ls_http1_send_out(ls_thread_ctx *ctx, ls_http1_conn *c)
{
    ls_http1_exchange *e = c->exchange != NULL ? ls_http1_exchange_of(c) : NULL;
    const int err = ls_stream_flush(ctx, ls_http1_stream(c));
    if (err == LS_DONE && e != NULL) e->begin_at = 0;
    return err; /* if it is LS_PENDING, another thread may own the connection now */
}

/* After an abort the bytes of a pending send may still leave; those queued after it are dropped. The release closes
 * the connection as without a response. */
int ls_http1_flush(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_http1_exchange *e = ls_http1_of(x);
    ls_http1_conn *c = ls_http1_conn_of(x);
    if (x->error != 0) {
        (void)ls_stream_truncate(ls_http1_stream(c), e->begin_at);
        return x->error;
    }
    ls_stream_set_actor(x->stream, x->actor);
    const int err = ls_http1_send_out(ctx, c);
    if (err <= LS_DONE || ls_stream_queued(x->stream) < ls_http1_engine(c)->config.write_bytes_high)
        return err < 0 ? err : LS_DONE;
    e->awaits_sent = true;
    return LS_PENDING;
}

/* ---- the last response of HTTP ------------------------------------------------------------------------------ */

int ls_http1_put_upgrade(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *protocol, size_t protocol_len)
{
    ls_http1_conn *c = ls_http1_conn_of(x);
    char *const from = ls_stream_room(ctx, ls_http1_stream(c), HEAD_ROOM + protocol_len);
    if (from == NULL) return LS_ENOMEM;
    char *to = put_status(from, status);
    if (!has_server(x)) to = PUT(to, "Server: luaserve\r\n");
    if (!x->has_date) to = put_date(to, ls_http_thread_of(ls_http1_engine(c), ctx));
    if (protocol_len > 0) {
        to = PUT(to, "Connection: upgrade\r\nUpgrade: ");
        to = put(to, protocol, protocol_len);
        to = PUT(to, "\r\n");
    }
    ls_stream_commit(ls_http1_stream(c), (size_t)(to - from));
    if (x->fields_len > 0 && put_copy(ctx, c, x->fields->data, x->fields_len) < 0) return LS_ENOMEM;
    return put_run(ctx, c, "\r\n", 2);
}

/* ---- without a handler -------------------------------------------------------------------------------------- */

size_t ls_http1_error_bytes(int status, const char *why)
{
    return strlen(ls_status_text(status)) + (why != NULL && why[0] != '\0' ? 2 + strlen(why) : 0) + 1;
}

/* Queue such a response: `text`, and why unless it is NULL. Its bytes, or LS_ENOMEM. */
static int put_error(ls_thread_ctx *ctx, ls_stream *s, ls_http_server *http, int status, const char *text,
                     const char *why)
{
    const size_t text_len = strlen(text), why_len = why == NULL ? 0 : strlen(why);
    const size_t length = text_len + (why_len > 0 ? 2 + why_len : 0) + 1;
    char *const from = ls_stream_room_reserved(ctx, s, HEAD_ROOM + length);
    if (from == NULL) return LS_ENOMEM;
    char *to = put_status(from, status);
    to = PUT(to, "Server: luaserve\r\n");
    to = put_date(to, ls_http_thread_of(http, ctx));
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
    ls_stream_commit(s, (size_t)(to - from));
    ls_counter_add(&ls_http_thread_of(http, ctx)->refused, 1);
    return (int)length;
}

int ls_http1_send_error(ls_thread_ctx *ctx, ls_http1_conn *c, int status, const char *why)
{
    return put_error(ctx, ls_http1_stream(c), ls_http1_engine(c), status, ls_status_text(status), why);
}

int ls_http1_refuse_plain(ls_thread_ctx *ctx, ls_stream *s, void *engine, ls_text received)
{
    static const char why[] = "plain HTTP on a port for HTTPS; the URL must begin with https://";
    ls_http_server *http = LS_CONTAINER((ls_http_engine *)engine, ls_http_server, engine);
    const ls_http_handler *handler = atomic_load_explicit(&http->handler, memory_order_acquire);
    const int sent = put_error(ctx, s, http, 400, "400 Bad Request", why);
    if (sent >= 0 && handler->recorder != NULL) {
        ls_addr peer;
        ls_stream_peer(s, &peer);
        ls_record_refused(
            ctx, handler,
            &(ls_record){
                .line = received, .remote = &peer, .status = 400, .began_ns = ls_clock_ns(), .sent = (uint64_t)sent});
    }
    return sent < 0 ? sent : LS_OK;
}
