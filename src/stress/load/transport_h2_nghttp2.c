/* transport_h2_nghttp2.c - streams of HTTP/2 connections, with the session of nghttp2 (RFC 9113): see transport.h.
 *
 * plan->streams virtual users that follow one another, a group, share a connection. Each has one stream at a time. To
 * the protocol (http.c) and to scripts it looks as HTTP/1.1: the text of a request becomes the fields of a stream, and
 * the fields of a response become the text of a head, with the framing that the body needs.
 *
 * The first virtual user of a group that opens is its opener: it connects with transport_stream.c, which leaves the
 * stream to `ready`; the others of the group wait. They are all connected when the SETTINGS of the server have arrived.
 * The last one that closes closes the connection. After a GOAWAY a connection takes no new requests: its virtual users
 * move to the next one, when they have no request or have one to send. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "codec/http1/http1_parse.h"
#include "codec/http_chars.h"
#include "stress/load/worker.h"

enum { WINDOW = 1 << 30, QUEUED_MAX = 128 << 10, CHUNK_SIZE_BYTES = 24 };

typedef struct ls_stress_h2_conn {
    ls_stress_worker *worker;
    ls_stress_vu *leader; /* the first of the group */
    ls_stream *stream;
    nghttp2_session *session;
    uint32_t users;     /* virtual users that are attached */
    uint32_t recv_room; /* size of the next receive */
    bool has_settings;  /* the server's SETTINGS have arrived */
    bool going;         /* takes no new requests */
    bool calling;       /* in a function of nghttp2 that calls back, which sends nothing and closes nothing */
    unsigned depth;     /* of calls that use the connection: the outermost one closes it */
    bool sending;       /* a flush is pending */
    bool broken;        /* a send has failed; what was received may say more, such as a GOAWAY */
    ls_stress_vu *last; /* the last one, released with the connection */
} h2_conn;

struct ls_stress_h2 { /* of a virtual user */
    h2_conn *conn;    /* NULL: not attached */
    int32_t stream_id;
    bool waits;    /* for the opener of its group */
    bool refused;  /* the connection does not take the request */
    bool has_head; /* of the response, which was passed on */
    bool has_length, is_chunked;
    bool has_chunk;       /* the response has had a chunk */
    ls_stress_bytes head; /* of the response */
    const char *piece;    /* for `deliver` */
    const char *body;     /* of the request */
    size_t body_left;
    char *copy; /* of the body of a script's request */
    /* Of the first virtual user of a group. */
    h2_conn *current;     /* which new streams use; NULL: none */
    ls_stress_vu *opener; /* NULL: none */
};

/* A request, of which the fields are in `nv`. */
struct ls_stress_h2_request {
    const char *text; /* of a request that stays valid; NULL: of another one */
    ls_http_head head;
    nghttp2_nv nv[LS_HTTP_FIELDS_MAX + 4];
    size_t count;
    const char *body;
    size_t body_len;
    char *names; /* in lower case */
    size_t names_room;
};

static ls_stress_vu *leader_of(const ls_stress_vu *u)
{
    const ls_stress_worker *w = u->worker;
    const size_t i = (size_t)(u - w->vus);
    return &w->vus[i - i % w->plan->streams];
}

/* The end of the group that begins with `leader`. */
static ls_stress_vu *group_end(const ls_stress_vu *leader)
{
    const ls_stress_worker *w = leader->worker;
    const size_t from = (size_t)(leader - w->vus), left = w->vu_count - from;
    return &w->vus[from + (left < w->plan->streams ? left : w->plan->streams)];
}

static struct ls_stress_h2 *make_h2(ls_stress_vu *u)
{
    if (u->h2 == NULL) u->h2 = calloc(1, sizeof *u->h2);
    return u->h2;
}

static bool is_on(const ls_stress_vu *u, const h2_conn *c)
{
    return u->h2 != NULL && u->h2->conn == c;
}

/* ---- the end of a connection ------------------------------------------------------------------------------------ */

static int flush(h2_conn *c);

static void conn_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    h2_conn *c = *(h2_conn **)ls_stream_user(s);
    ls_stress_vu *last = c->last;
    nghttp2_session_del(c->session);
    ls_stream_free(s);
    free(c);
    ls_stress_vu_released(last);
}

/* No virtual user is attached: say so, and close. */
static void close_conn(h2_conn *c)
{
    ls_stress_worker *w = c->worker;
    c->depth++; /* for ever */
    if (c->has_settings)
        atomic_store_explicit(&w->count.connections, ls_counter_read(&w->count.connections) - 1, memory_order_relaxed);
    if (nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR) == 0) (void)flush(c);
    ls_stream_close(&w->ctx, c->stream);
}

/* Around all that may close virtual users of a connection that it continues to use. */
static void enter(h2_conn *c)
{
    c->depth++;
}

static void leave(h2_conn *c)
{
    if (--c->depth == 0 && c->users == 0) close_conn(c);
}

/* The connection is lost: `result` as of a receive, not more than 0. All its virtual users close, and the last one
 * closes the connection. */
static void lose(h2_conn *c, int64_t result)
{
    ls_stress_vu *const leader = c->leader;
    c->going = true;
    if (!c->has_settings) ls_stress_worker_record_failure(c->worker, "the server does not speak HTTP/2", "", 0);
    if (leader->h2->current == c) leader->h2->current = NULL;
    for (ls_stress_vu *u = leader, *end = group_end(leader); u < end; u++) {
        if (!is_on(u, c)) continue;
        if (u->state == LS_STRESS_VU_CONNECTING)
            ls_stress_vu_connected(u, result < 0 ? (int)result : LS_ECLOSED);
        else
            ls_stress_vu_received(u, result);
    }
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* Send what the session has to send. LS_OK or LS_ENOMEM. */
static int flush(h2_conn *c)
{
    ls_stress_worker *w = c->worker;
    const uint8_t *bytes;
    while (!c->calling && !c->sending && !c->broken) {
        int64_t n = 1;
        while (n > 0 && ls_stream_queued(c->stream) < QUEUED_MAX) {
            c->calling = true;
            n = nghttp2_session_mem_send(c->session, &bytes);
            c->calling = false;
            if (n > 0 && ls_stream_put(&w->ctx, c->stream, bytes, (size_t)n) < 0) n = LS_ENOMEM;
            if (n > 0) ls_counter_add(&w->count.bytes_out, (uint64_t)n);
        }
        if (n < 0) return LS_ENOMEM;
        if (ls_stream_queued(c->stream) == 0) break;
        const int err = ls_stream_flush(&w->ctx, c->stream);
        w->clock_stale = true;
        c->broken = err < 0;
        c->sending = err == LS_PENDING;
    }
    return LS_OK;
}

static void conn_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    h2_conn *c = *(h2_conn **)ls_stream_user(s);
    enter(c);
    c->sending = false;
    c->broken = err < 0;
    if (flush(c) < 0) lose(c, LS_ENOMEM);
    leave(c);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    const ls_stress_vu *u = nghttp2_session_get_stream_user_data(session, id);
    if (u == NULL || u->h2->stream_id != id) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* is over */
    struct ls_stress_h2 *h = u->h2;
    const size_t n = h->body_left < room ? h->body_left : room;
    memcpy(to, h->body, n);
    h->body += n;
    h->body_left -= n;
    if (h->body_left == 0) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv nv_of(const char *name, size_t name_len, const char *value, size_t len)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, name_len, len, NGHTTP2_NV_FLAG_NONE};
}

static bool is_name(const char *name, size_t len, const char *const list[])
{
    for (size_t i = 0; list[i] != NULL; i++)
        if (strlen(list[i]) == len && memcmp(list[i], name, len) == 0) return true;
    return false;
}

/* The fields and the body of an HTTP/1.1 request. NULL; or why it has no form in HTTP/2. */
static const char *parse(const ls_stress_plan *plan, struct ls_stress_h2_request *r, const char *text, size_t len)
{
    static const char *const dropped[] = {
        "host", "connection", "keep-alive", "upgrade", "proxy-connection", "transfer-encoding", "te", NULL};
    static const ls_http_limits limits = {LS_STRESS_HEAD_BYTES_MAX, LS_STRESS_HEAD_BYTES_MAX, LS_HTTP_FIELDS_MAX};
    const ls_http_head *head = &r->head;
    const char *scheme = plan->tls != NULL ? "https" : "http", *why = NULL;
    ls_http_terms terms;
    const int n = ls_http1_parse(text, len, 0, &limits, &r->head, &terms, &why);
    if (n <= 0) return n < 0 && why != NULL ? why : "the head of the request does not end";
    if (terms.chunked) return "--http2: a body of a script needs Content-Length, not Transfer-Encoding";
    r->body = text + n;
    r->body_len = len - (size_t)n;
    if (r->body_len != head->content_length) return "--http2: a script must return one whole request at a time";
    if (r->names_room < (size_t)n) {
        char *names = realloc(r->names, (size_t)n);
        if (names == NULL) return "not enough memory";
        r->names = names;
        r->names_room = (size_t)n;
    }
    r->nv[0] = nv_of(":method", 7, text + head->method_name.at, head->method_name.len);
    r->nv[1] = nv_of(":scheme", 7, scheme, strlen(scheme));
    r->nv[2] = nv_of(":authority", 10, text + head->host.at, head->host.len);
    r->nv[3] = nv_of(":path", 5, text + head->target.at, head->target.len);
    r->count = 4;
    char *name = r->names;
    for (uint32_t i = 0; i < head->field_count; i++) {
        const ls_http_field *f = &head->fields[i];
        for (uint32_t k = 0; k < f->name.len; k++) name[k] = ls_char_lower(text[f->name.at + k]);
        if (is_name(name, f->name.len, dropped)) continue;
        r->nv[r->count++] = nv_of(name, f->name.len, text + f->value.at, f->value.len);
        name += f->name.len;
    }
    return NULL;
}

/* The parsed request. NULL: an error, counted. */
static struct ls_stress_h2_request *request_of(ls_stress_vu *u, const char *text, size_t len, bool is_static)
{
    ls_stress_worker *w = u->worker;
    struct ls_stress_h2_request *r = w->h2_request;
    if (r == NULL && (r = w->h2_request = calloc(1, sizeof *r)) == NULL) return NULL;
    if (is_static && r->text == text) return r;
    const char *why = parse(w->plan, r, text, len);
    r->text = is_static ? text : NULL;
    for (size_t i = 0; is_static && i < r->count; i++)
        r->nv[i].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
    if (why == NULL) return r;
    r->text = NULL;
    ls_stress_worker_record_failure(w, why, text, len);
    return NULL;
}

static bool submit(ls_stress_vu *u, const char *text, size_t len, bool is_static)
{
    struct ls_stress_h2 *h = u->h2;
    const struct ls_stress_h2_request *r = request_of(u, text, len, is_static);
    const nghttp2_data_provider body = {.read_callback = read_body};
    if (r == NULL) return false;
    free(h->copy);
    h->copy = NULL;
    h->body = r->body;
    h->body_left = r->body_len;
    h->has_head = h->has_length = h->is_chunked = h->has_chunk = false;
    h->stream_id = 0;
    h->refused = h->conn->going;
    if (h->refused) return true;
    if (!is_static && r->body_len > 0) {
        if ((h->copy = malloc(r->body_len)) == NULL) return false;
        h->body = memcpy(h->copy, r->body, r->body_len);
    }
    const int32_t id =
        nghttp2_submit_request(h->conn->session, NULL, r->nv, r->count, r->body_len > 0 ? &body : NULL, u);
    if (id > 0) h->stream_id = id;
    h->refused = id <= 0 && id != NGHTTP2_ERR_NOMEM;
    return id != NGHTTP2_ERR_NOMEM;
}

static bool put(ls_stress_vu *u, const char *bytes, size_t len)
{
    return submit(u, bytes, len, false);
}

static bool put_static(ls_stress_vu *u, const char *bytes, size_t len)
{
    return submit(u, bytes, len, true);
}

static int send(ls_stress_vu *u)
{
    h2_conn *c = u->h2->conn;
    u->output = 0; /* the bytes are those of the connection */
    if (u->h2->refused) {
        ls_stress_vu_retry_later(u); /* on the next connection */
        ls_stress_vu_close(u);
        return LS_PENDING;
    }
    enter(c);
    const int err = flush(c);
    leave(c);
    return err;
}

/* ---- responses -------------------------------------------------------------------------------------------------- */

/* The virtual user that waits for this stream, or NULL. */
static ls_stress_vu *waiting_for(const h2_conn *c, int32_t id)
{
    ls_stress_vu *u = nghttp2_session_get_stream_user_data(c->session, id);
    return u != NULL && is_on(u, c) && u->h2->stream_id == id && u->outstanding > 0 ? u : NULL;
}

static void pass(ls_stress_vu *u, const char *bytes, size_t len)
{
    u->h2->piece = bytes;
    ls_stress_vu_received(u, (int64_t)len);
}

static bool deliver(ls_stress_vu *u, int64_t result)
{
    return u->proto->received(u, u->h2->piece, (size_t)result);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    ls_stress_vu *u = waiting_for(user, frame->hd.stream_id);
    if (u != NULL && !u->h2->has_head) u->h2->head.len = 0;
    return 0;
}

static bool append(ls_stress_bytes *to, const char *a, size_t a_len, const char *b, size_t b_len)
{
    return ls_stress_bytes_add(to, a, a_len, SIZE_MAX) && ls_stress_bytes_add(to, b, b_len, SIZE_MAX);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    ls_stress_vu *u = waiting_for(user, frame->hd.stream_id);
    if (u == NULL || u->h2->has_head) return 0; /* trailers are not looked at */
    ls_stress_bytes *head = &u->h2->head;
    bool ok;
    if (name[0] == ':') {
        ok = append(head, "HTTP/1.1 ", 9, (const char *)value, len) && append(head, " ", 1, "\r\n", 2);
    } else {
        u->h2->has_length |= name_len == 14 && memcmp(name, "content-length", 14) == 0;
        ok = append(head, (const char *)name, name_len, ": ", 2) && append(head, (const char *)value, len, "\r\n", 2);
    }
    return ok && head->len <= LS_STRESS_HEAD_BYTES_MAX ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* The fields are complete: pass them on as a head. */
static void end_head(ls_stress_vu *u, bool has_body)
{
    static const char no_body[] = "content-length: 0\r\n\r\n", chunked[] = "transfer-encoding: chunked\r\n\r\n";
    struct ls_stress_h2 *h = u->h2;
    if (h->has_head || h->head.len < 12 || h->head.at[9] == '1') return; /* trailers, or an interim response */
    const bool never = u->requests[u->first].is_head || memcmp(h->head.at + 9, "204", 3) == 0 ||
                       memcmp(h->head.at + 9, "304", 3) == 0;
    h->has_head = true;
    h->is_chunked = !never && has_body && !h->has_length;
    const char *end = h->is_chunked ? chunked : has_body || never || h->has_length ? "\r\n" : no_body;
    if (ls_stress_bytes_add(&h->head, end, strlen(end), SIZE_MAX))
        pass(u, h->head.at, h->head.len);
    else
        (void)ls_stress_vu_fail_answer(u, "not enough memory", "", 0);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t len, void *user)
{
    char size[CHUNK_SIZE_BYTES];
    ls_stress_vu *u = waiting_for(user, id);
    if (u == NULL) return 0;
    if (u->h2->is_chunked) {
        const int n = snprintf(size, sizeof size, u->h2->has_chunk ? "\r\n%zx\r\n" : "%zx\r\n", len);
        u->h2->has_chunk = true;
        pass(u, size, (size_t)n);
        if (waiting_for(user, id) == NULL) return 0;
    }
    pass(u, (const char *)bytes, len);
    return 0;
}

/* The stream has no more data. */
static void end_body(const h2_conn *c, int32_t id)
{
    ls_stress_vu *u = waiting_for(c, id);
    if (u == NULL || !u->h2->is_chunked) return;
    const char *end = u->h2->has_chunk ? "\r\n0\r\n\r\n" : "0\r\n\r\n";
    pass(u, end, strlen(end));
}

/* The server has said that it takes no more streams. */
static void go_away(h2_conn *c)
{
    ls_stress_vu *const leader = c->leader;
    c->going = true;
    if (leader->h2->current == c) leader->h2->current = NULL;
    for (ls_stress_vu *u = leader, *end = group_end(leader); u < end; u++)
        if (is_on(u, c) && u->state == LS_STRESS_VU_OPEN && u->outstanding == 0) ls_stress_vu_received(u, 0);
}

static void attach(ls_stress_vu *u, h2_conn *c)
{
    u->attached = true;
    u->h2->conn = c;
    u->h2->stream_id = 0;
    c->users++;
}

/* The server speaks HTTP/2: the opener and those that wait for it are connected. */
static void settings_arrived(h2_conn *c)
{
    ls_stress_worker *w = c->worker;
    ls_stress_vu *const leader = c->leader, *const opener = leader->h2->opener;
    c->has_settings = true;
    ls_counter_add(&w->count.connects, 1);
    ls_counter_add(&w->count.connections, 1);
    leader->h2->current = c;
    leader->h2->opener = NULL;
    ls_stress_vu_connected(opener, LS_DONE);
    for (ls_stress_vu *u = leader, *end = group_end(leader); u < end; u++) {
        if (u->h2 == NULL || !u->h2->waits) continue;
        u->h2->waits = false;
        attach(u, c);
        ls_stress_vu_connected(u, LS_DONE);
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    h2_conn *c = user;
    const bool ends = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    ls_stress_vu *u;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        if (!c->has_settings && !(frame->hd.flags & NGHTTP2_FLAG_ACK) && c->users > 0) settings_arrived(c);
        break;
    case NGHTTP2_GOAWAY: go_away(c); break;
    case NGHTTP2_HEADERS:
        if ((u = waiting_for(c, frame->hd.stream_id)) != NULL) end_head(u, !ends);
        if (ends) end_body(c, frame->hd.stream_id);
        break;
    case NGHTTP2_DATA:
        if (ends) end_body(c, frame->hd.stream_id);
        break;
    default: break; /* nghttp2 has handled it */
    }
    return 0;
}

/* A stream has ended. One with a virtual user that waits for it was reset. */
static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    const h2_conn *c = user;
    char why[96];
    ls_stress_vu *u = waiting_for(c, id);
    if (u == NULL) return 0;
    u->h2->stream_id = 0;
    if (code == NGHTTP2_REFUSED_STREAM && c->going) { /* after the last one that its GOAWAY names: not processed */
        ls_stress_vu_retry_later(u);
        ls_stress_vu_close(u);
        return 0;
    }
    (void)snprintf(why, sizeof why, "the server reset the stream: %s", nghttp2_http2_strerror(code));
    ls_stress_worker_record_failure(u->worker, why, "", 0);
    (void)ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
    return 0;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* Pass received bytes to the session. LS_OK or LS_E*. */
static int64_t take(h2_conn *c, int64_t result)
{
    ls_stress_worker *w = c->worker;
    if (result <= 0) return result == 0 ? LS_ECLOSED : result;
    const ls_slice data = ls_stream_take(c->stream);
    ls_counter_add(&w->count.bytes_in, (uint64_t)result);
    c->recv_room = (uint32_t)result == data.block->cap ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
    c->calling = true;
    const ssize_t n = nghttp2_session_mem_recv(c->session, (const uint8_t *)data.ptr, data.len);
    c->calling = false;
    int err = n < 0 ? LS_EPROTO : flush(c);
    if (err == LS_OK && !nghttp2_session_want_read(c->session)) err = c->going ? LS_ECLOSED : LS_EPROTO;
    if (err == LS_EPROTO)
        ls_stress_worker_record_failure(
            w, c->has_settings ? "the server breaks the rules of HTTP/2" : "the server does not speak HTTP/2",
            data.ptr, data.len);
    ls_block_drop(data.block);
    return err;
}

/* Receive until it must wait, beginning with this result (LS_EAGAIN: nothing was received). */
static void receive_from(h2_conn *c, int64_t result)
{
    ls_stress_worker *w = c->worker;
    enter(c);
    for (int err = LS_DONE; err != LS_PENDING && c->users > 0;) {
        if (result != LS_EAGAIN && (result = take(c, result)) < 0) {
            lose(c, result == LS_ECLOSED ? 0 : result);
            break;
        }
        if (c->users == 0) break;
        err = ls_stream_recv(&w->ctx, c->stream, NULL, c->recv_room, &result);
        if (err < 0) result = err;
        w->clock_stale = true; /* the data may have arrived after the clock was read */
        if (err != LS_PENDING) w->now_ns = ls_stress_worker_now(w);
    }
    leave(c);
}

static void conn_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    receive_from(*(h2_conn **)ls_stream_user(s), result);
}

static const ls_stream_handler conn_handler = {.received = conn_received, .sent = conn_sent, .closed = conn_closed};

static int receive(ls_stress_vu *u, int64_t *result)
{
    return LS_PENDING; /* what the connection receives for it follows */
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static int make_session(h2_conn *c)
{
    static const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
                                                      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW}};
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return LS_ENOMEM;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    const int err = nghttp2_session_client_new(&c->session, callbacks, c);
    nghttp2_session_callbacks_del(callbacks);
    if (err == 0 &&
        nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) == 0 &&
        nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, WINDOW) == 0)
        return LS_OK;
    nghttp2_session_del(c->session);
    return LS_ENOMEM;
}

/* The stream of an opener is connected: it becomes that of a connection. LS_PENDING: until the server's SETTINGS;
 * LS_OK: the virtual user is attached already. */
static int ready(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    ls_tls_peer peer;
    if (u->stream == NULL) return LS_OK;
    if (w->plan->tls != NULL) {
        ls_tls_peer_of(ls_stream_filter(u->stream), &peer);
        if (peer.alpn == NULL || strcmp(peer.alpn, "h2") != 0) {
            ls_stress_vu_handshake_failed(u, "the server does not offer HTTP/2 (ALPN h2)", "", 0);
            return LS_EPROTO;
        }
    }
    h2_conn *c = calloc(1, sizeof *c);
    if (c == NULL) return LS_ENOMEM;
    c->worker = w;
    if (make_session(c) < 0) {
        free(c);
        return LS_ENOMEM;
    }
    c->leader = leader_of(u);
    c->recv_room = LS_BLOCK_SMALL;
    c->stream = u->stream;
    u->stream = NULL;
    ls_handshake_close(&u->handshake);
    *(h2_conn **)ls_stream_user(c->stream) = c;
    ls_stream_handover(c->stream, &conn_handler);
    attach(u, c);
    const int err = flush(c);
    if (err < 0) return err; /* then the close of the opener closes the connection */
    ls_stream_requeue(c->stream);
    return LS_PENDING;
}

static int open_stream(ls_stress_vu *u)
{
    ls_stress_vu *leader = leader_of(u);
    if (make_h2(u) == NULL || make_h2(leader) == NULL) return LS_ENOMEM;
    if (leader->h2->current != NULL) {
        attach(u, leader->h2->current);
        return LS_DONE;
    }
    if (leader->h2->opener != NULL) {
        u->attached = u->h2->waits = true;
        return LS_PENDING;
    }
    leader->h2->opener = u;
    const int err = ls_stress_stream_transport.open(u);
    if (err < 0 && !u->attached) leader->h2->opener = NULL; /* else its close does it */
    return err;
}

/* The opener closes before it is connected: those that wait for it have failed, too. */
static void opener_closes(ls_stress_vu *leader)
{
    leader->h2->opener = NULL;
    if (leader->worker->ending) return; /* they are closed as well */
    for (ls_stress_vu *u = leader, *end = group_end(leader); u < end; u++)
        if (u->h2 != NULL && u->h2->waits) ls_stress_vu_connected(u, LS_ECANCELED);
}

static void close_stream(ls_stress_vu *u)
{
    struct ls_stress_h2 *h = u->h2;
    ls_stress_vu *leader = leader_of(u);
    h2_conn *c = h->conn;
    if (leader->h2->opener == u) opener_closes(leader);
    if (u->stream != NULL) {
        ls_stress_stream_transport.close(u);
        return;
    }
    h->waits = false;
    if (c == NULL) {
        ls_stress_vu_released(u);
        return;
    }
    h->conn = NULL;
    if (h->stream_id > 0) {
        (void)nghttp2_session_set_stream_user_data(c->session, h->stream_id, NULL);
        (void)nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, h->stream_id, NGHTTP2_CANCEL);
        h->stream_id = 0;
    }
    if (c->users > 1) {
        c->users--;
        enter(c);
        (void)flush(c); /* a failure shows when it receives */
        leave(c);
        ls_stress_vu_released(u);
        return;
    }
    if (leader->h2->current == c) leader->h2->current = NULL;
    c->going = true;
    c->last = u;
    c->users = 0;
    if (c->depth == 0) close_conn(c);
}

static void free_stream(ls_stress_vu *u)
{
    struct ls_stress_h2 *h = u->h2;
    ls_stress_worker *w = u->worker;
    ls_stress_stream_transport.free(u);
    if (h != NULL) {
        if (h->conn != NULL && --h->conn->users == 0) {
            nghttp2_session_del(h->conn->session);
            ls_stream_free(h->conn->stream);
            free(h->conn);
        }
        free(h->head.at);
        free(h->copy);
        free(h);
    }
    if (w->h2_request != NULL) free(w->h2_request->names);
    free(w->h2_request);
    w->h2_request = NULL;
}

static const ls_stress_transport transport = {
    .ready = ready,
    .open = open_stream,
    .put = put,
    .put_static = put_static,
    .send = send,
    .receive = receive,
    .deliver = deliver,
    .close = close_stream,
    .free = free_stream,
};

const ls_stress_transport *const ls_stress_h2_transport = &transport;
