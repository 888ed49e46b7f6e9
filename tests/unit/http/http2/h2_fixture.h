/* h2_fixture.h - a connection of HTTP/2 for tests: the place of http1_fixture.h with a client that puts frames together and
 * writes down those that it gets.
 *
 *     H1:200   the head of stream 1      D1:5   bytes of it, in any number of frames     .   behind both: the end
 *     R1:8     its reset, with the code  G5:0   GOAWAY, with the last stream and code    P p   a PING, its answer
 *
 * SETTINGS are left out, and WINDOW_UPDATE, which opens the windows of the client. */
#ifndef LS_TESTS_H2_FIXTURE_H
#define LS_TESTS_H2_FIXTURE_H

#include "http/http1_fixture.h"

#include "http/http2/h2.h"
#include "http/http2/h2_conn_internal.h"

typedef struct h2 {
    fixture *r;
    nghttp2_hd_inflater *inflater;
    char to[1 << 18], seen[1 << 16]; /* frames that are not sent yet; those of the server, written down */
    size_t to_len;
    int64_t window, stream_window; /* of the connection; of the stream that was requested last */
} h2;

static ls_exchange *kept[256]; /* by handlers of "/k" */
static int kept_count, ends;   /* handlers that have released their exchange */

static inline void h2_end(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ends++;
    fixture_end(r, ctx, x);
}

static inline void h2_say(fixture *r, ls_thread_ctx *ctx, ls_exchange *x, const char *text, size_t len)
{
    ls_slice slice = ls_slice_static(text, len);
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    h2_end(r, ctx, x);
}

static inline void h2_write(fixture *r, ls_thread_ctx *ctx, ls_exchange *x) /* 200 KiB */
{
    static char bytes[LS_BLOCK_SMALL];
    int err = LS_DONE;
    while (err == LS_DONE && x->written < 200 * 1024) {
        ls_slice part = fixture_part(ctx, bytes, 1024);
        if ((err = ls_exchange_write(ctx, x, &part, 1)) == LS_PENDING) return;
    }
    if (err == LS_DONE) (void)ls_exchange_finish(ctx, x);
    h2_end(r, ctx, x);
}

/* The handler of all requests: the letter of the path says what it does. */
static inline void h2_run(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static char text[100 * 1024];
    char number[24];
    ls_slice part;
    int err;
    const char does = x->bytes[x->head.path.at + x->head.path.len - 1];
    if (does == 'k') { /* kept until h2_release_kept, also without a client */
        if (x->error == 0) kept[kept_count++] = x;
        return;
    }
    if (x->error != 0) r->error = x->error;
    if (x->error != 0) h2_end(r, ctx, x);
    if (x->error != 0 || does == 'w') return; /* waits until the stream is lost */
    switch (does) {
    case 'R': /* reads, and says how many bytes */
        while ((err = ls_exchange_read(ctx, x, &part)) == LS_DONE && part.len > 0) ls_slice_drop(&part);
        if (err == LS_PENDING) return;
        assert_int_equal(err, LS_DONE);
        h2_say(r, ctx, x, number, (size_t)snprintf(number, sizeof number, "%d", (int)x->body_bytes));
        return;
    case 'b': h2_write(r, ctx, x); return;
    case 'q': h2_say(r, ctx, x, text, sizeof text); return;
    case 'f': assert_int_equal(ls_exchange_header(ctx, x, "a", 1, "b", 1, false), LS_OK); /* and as any other */
    default: h2_say(r, ctx, x, "hi", 2); return;
    }
}

static inline void h2_release(ls_thread_ctx *ctx, ls_op *op)
{
    while (kept_count > 0) h2_say(LS_CONTAINER(op, fixture, resume), ctx, kept[--kept_count], "hi", 2);
}

static inline void h2_release_kept(h2 *h)
{
    h->r->resume = (ls_op){.done = h2_release, .actor = &h->r->actor};
    ls_port_post(h->r->place.port, &h->r->resume, 0);
    fixture_settle(h->r);
}

/* ---- the client ---------------------------------------------------------------------------------------------- */

static inline uint32_t h2_number(const char *at, int count)
{
    uint32_t sum = 0;
    while (count-- > 0) sum = sum << 8 | (uint8_t)*at++;
    return sum;
}

static inline void h2_put(h2 *h, int type, int flags, uint32_t id, const void *payload, size_t len)
{
    const uint8_t head[] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,
                            (uint8_t)type,        (uint8_t)flags,      (uint8_t)(id >> 24),
                            (uint8_t)(id >> 16),  (uint8_t)(id >> 8),  (uint8_t)id};
    assert_true(h->to_len + sizeof head + len <= sizeof h->to);
    memcpy(h->to + h->to_len, head, sizeof head);
    if (len > 0) memcpy(h->to + h->to_len + sizeof head, payload, len);
    h->to_len += sizeof head + len;
}

static inline void h2_put_number(h2 *h, int type, uint32_t id, uint32_t number)
{
    h2_put(
        h, type, 0, id,
        (const uint8_t[]){(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number},
        4);
}

static inline void h2_preface(h2 *h)
{
    memcpy(h->to + h->to_len, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    h->to_len += NGHTTP2_CLIENT_MAGIC_LEN;
    h2_put(h, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    h2_put(h, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL, 0);
}

/* A request for "/" and this letter: GET, or POST whose body follows. */
static inline void h2_request(h2 *h, uint32_t id, char does, bool body)
{
    const char fields[] = {body ? '\x83' : '\x82', '\x86', '\x41', 1, 'h', '\x44', 2, '/', does};
    h->stream_window = LS_H2_WINDOW;
    h2_put(h, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | !body, id, fields, sizeof fields);
}

static inline void h2_data(h2 *h, uint32_t id, size_t len, bool end)
{
    static const char bytes[16384];
    h->window -= (int64_t)len;
    h->stream_window -= (int64_t)len;
    h2_put(h, NGHTTP2_DATA, end, id, bytes, len);
}

static inline void h2_reset(h2 *h, uint32_t id)
{
    h2_put_number(h, NGHTTP2_RST_STREAM, id, NGHTTP2_CANCEL);
}

/* The status of a head; 0: trailers. */
static inline int h2_status(h2 *h, const char *at, size_t len)
{
    int flags = 0, status = 0;
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        const ssize_t n = nghttp2_hd_inflate_hd2(h->inflater, &nv, &flags, (const uint8_t *)at, len, 1);
        assert_true(n >= 0);
        at += n;
        len -= (size_t)n;
        if (flags & NGHTTP2_HD_INFLATE_EMIT && nv.namelen == 7 && memcmp(nv.name, ":status", 7) == 0)
            status = atoi((const char *)nv.value);
    }
    nghttp2_hd_inflate_end_headers(h->inflater);
    return status;
}

/* Take the frames that the server has sent, written down. */
static inline char *h2_take(h2 *h)
{
    char *to = h->seen, *data = NULL; /* data: a last word that more bytes of its stream can join */
    const char *at = h->r->text, *const end = at + h->r->text_len;
    uint32_t data_id = 0, bytes = 0;
    *to = '\0';
    while (end - at >= 9 && (size_t)(end - at) >= 9 + h2_number(at, 3)) {
        const uint32_t len = h2_number(at, 3), id = h2_number(at + 5, 4), ended = at[4] & NGHTTP2_FLAG_END_STREAM;
        const char *payload = at + 9;
        const int type = at[3];
        at += 9 + len;
        if (type == NGHTTP2_WINDOW_UPDATE) *(id == 0 ? &h->window : &h->stream_window) += h2_number(payload, 4);
        if (type == NGHTTP2_SETTINGS || type == NGHTTP2_WINDOW_UPDATE) continue;
        bytes = type == NGHTTP2_DATA && data != NULL && data_id == id ? bytes + len : len;
        if (type != NGHTTP2_DATA || data_id != id) data = NULL;
        if (data != NULL) to = data;
        data = type == NGHTTP2_DATA ? to : NULL;
        data_id = id;
        assert_true(to < h->seen + sizeof h->seen - 64);
        if (to > h->seen) *to++ = ' ';
        switch (type) {
        case NGHTTP2_HEADERS: to += sprintf(to, "H%u:%d", id, h2_status(h, payload, len)); break;
        case NGHTTP2_DATA: to += sprintf(to, "D%u:%u", id, bytes); break;
        case NGHTTP2_RST_STREAM: to += sprintf(to, "R%u:%u", id, h2_number(payload, 4)); break;
        case NGHTTP2_GOAWAY: to += sprintf(to, "G%u:%u", h2_number(payload, 4), h2_number(payload + 4, 4)); break;
        case NGHTTP2_PING: to += sprintf(to, ended ? "p" : "P"); break;
        default: fail_msg("a frame of type %d", type);
        }
        if (type <= NGHTTP2_HEADERS && ended) to += sprintf(to, ".");
    }
    h->r->text_len = (size_t)(end - at);
    memmove(h->r->text, at, h->r->text_len);
    return h->seen;
}

/* Send the frames that were put together, in one piece; take those of the server. */
static inline char *h2_go(h2 *h)
{
    const size_t len = h->to_len;
    h->to_len = 0;
    fixture_send(h->r, h->to, len);
    return h2_take(h);
}

/* ---- the connection ------------------------------------------------------------------------------------------ */

/* Without a client: the config can be changed. */
static inline h2 *h2_new(void)
{
    h2 *h = calloc(1, sizeof *h);
    assert_non_null(h);
    kept_count = ends = 0;
    h->r = fixture_open(h2_run, 0);
    h->r->config.http2 = true;
    h->r->start = ls_http1_start;
    h->window = LS_H2_WINDOW;
    assert_int_equal(nghttp2_hd_inflate_new(&h->inflater), 0);
    return h;
}

static inline h2 *h2_connect(h2 *h)
{
    assert_int_equal(ls_h2_open(&h->r->config, &h->r->handler, &h->r->conn_limit, 1, &h->r->http), LS_OK);
    fixture_connect(h->r);
    return h;
}

static inline h2 *h2_connected(void)
{
    h2 *h = h2_connect(h2_new());
    h2_preface(h);
    assert_string_equal(h2_go(h), "");
    return h;
}

/* Every handler has ended, and no block is left: see fixture_close. */
static inline void h2_close(h2 *h)
{
    fixture_disconnect(h->r);
    assert_int_equal(ends, h->r->starts);
    fixture_close(h->r);
    nghttp2_hd_inflate_del(h->inflater);
    free(h);
}

#endif
