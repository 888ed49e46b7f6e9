/* fuzz_http1_conn.c - a whole connection: the input goes through a real socket pair into the connection code, one
 * thread dispatches the packets, a small handler responds, and a strict reader checks the output.
 *
 * The first byte of the input selects the behaviour of the handler and the size of the pieces of the rest. Properties:
 *   - the output is a sequence of well-formed responses; the last one may be incomplete if the handler abandoned it;
 *   - nothing follows a response with "Connection: close";
 *   - there are no more responses than started requests, except at most one refusal;
 *   - every block and every connection is released. */
#define _GNU_SOURCE
#include "fuzz_http.h"

#include "base/list.h"
#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/exchange_run.h"
#include "sched/actor.h"

enum { OUT_MAX = 1 << 20, BODY_MAX = 4096 };

enum behaviour { RESPOND, READ_ALL, MIRROR, PARTS, READ_ONCE, ABANDON, RESPOND_204, BEHAVIOURS };

typedef struct fixture {
    fuzz_http http;
    ls_actor actor;
    enum behaviour behaviour;
    int starts;
    bool abandoned;
} fixture;

/* ---- the handler -------------------------------------------------------------------------------------------- */

static void finish(fixture *w, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (x->response != LS_RESPONSE_DONE) w->abandoned = true;
    ls_exchange_release(ctx, x);
}

static void respond(fixture *w, ls_thread_ctx *ctx, ls_exchange *x, int status)
{
    ls_slice slice = ls_slice_static("text", 4);
    x->status = status;
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    finish(w, ctx, x);
}

/* Write one part of a response, in a pool block or without one. */
static int write_part(ls_thread_ctx *ctx, ls_exchange *x, bool without_block)
{
    static const char text[] = "part";
    ls_slice part = ls_slice_static(text, sizeof text - 1);
    if (!without_block) {
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
        if (block == NULL) return LS_ENOMEM;
        memcpy(block->data, text, sizeof text - 1);
        part = (ls_slice){block, block->data, sizeof text - 1};
    }
    return ls_exchange_write(ctx, x, &part, 1);
}

static void run(ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *w = x->task;
    ls_slice part = {0};
    int err = LS_DONE;
    switch (w->behaviour) {
    case READ_ALL:
    case READ_ONCE:
        do {
            if ((err = ls_exchange_read(ctx, x, &part)) == LS_PENDING) return;
            if (err < 0) break;
            FUZZ_HOLDS(x->body_bytes <= BODY_MAX);
            err = part.len > 0 ? LS_PENDING : LS_DONE;
            ls_slice_drop(&part);
        } while (err == LS_PENDING && w->behaviour == READ_ALL);
        respond(w, ctx, x, err < 0 ? 400 : 200);
        return;
    case MIRROR:
        for (;;) {
            if ((err = ls_exchange_read(ctx, x, &part)) == LS_PENDING) return;
            if (err < 0 || part.len == 0) break;
            /* LS_PENDING: the part is queued, but the client reads slowly; `run` is called again to read on. */
            if ((err = ls_exchange_write(ctx, x, &part, 1)) != LS_DONE) break;
        }
        if (err == LS_PENDING) return;
        if (err == LS_DONE) (void)ls_exchange_finish(ctx, x);
        finish(w, ctx, x);
        return;
    case PARTS:
        for (int i = 0; i < 3 && err >= 0; i++) err = write_part(ctx, x, i == 1);
        if (err >= 0) (void)ls_exchange_finish(ctx, x);
        finish(w, ctx, x);
        return;
    case ABANDON:
        if (w->starts > 1) {
            if (write_part(ctx, x, false) >= 0) (void)ls_exchange_flush(ctx, x);
            finish(w, ctx, x);
            return;
        }
        respond(w, ctx, x, 200);
        return;
    case RESPOND_204: respond(w, ctx, x, 204); return;
    default: respond(w, ctx, x, 200); return;
    }
}

static void start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *w = LS_CONTAINER(handler, fixture, http.handler);
    if (ctx->inside == NULL) FUZZ_HOLDS(ls_actor_try_enter(&w->actor, ctx));
    x->actor = &w->actor;
    x->task = w;
    x->wake = run;
    w->starts++;
    run(ctx, x);
}

/* ---- the output --------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *at, *end;
} reader;

/* Take the line at r->at, without its CR LF. False: it is incomplete. */
static bool take_line(reader *r, const char **line, size_t *len)
{
    const char *end = memmem(r->at, (size_t)(r->end - r->at), "\r\n", 2);
    if (end == NULL) return false;
    *line = r->at;
    *len = (size_t)(end - r->at);
    r->at = end + 2;
    FUZZ_HOLDS(memchr(*line, '\n', *len) == NULL && memchr(*line, '\r', *len) == NULL);
    return true;
}

static bool take_chunks(reader *r)
{
    const char *line;
    size_t len, chunk;
    do {
        char number[20] = {0};
        if (!take_line(r, &line, &len)) return false;
        FUZZ_HOLDS(len > 0 && len < sizeof number && strspn(line, "0123456789abcdef") == len);
        memcpy(number, line, len);
        chunk = strtoul(number, NULL, 16);
        if ((size_t)(r->end - r->at) < chunk + 2) return false;
        FUZZ_HOLDS(memcmp(r->at + chunk, "\r\n", 2) == 0);
        r->at += chunk + 2;
    } while (chunk > 0);
    return true;
}

typedef struct response {
    int status;
    bool complete, close;
} response;

/* Take one response. If another response follows its head at once, it was a response to HEAD. */
static response take_response(reader *r)
{
    response v = {0};
    const char *line;
    size_t len, length = 0;
    bool chunked = false, has_length = false;
    if (!take_line(r, &line, &len)) return v;
    FUZZ_HOLDS(len >= 13 && memcmp(line, "HTTP/1.1 ", 9) == 0 && line[12] == ' ');
    v.status = atoi(line + 9);
    FUZZ_HOLDS(v.status >= 100 && v.status <= 599);
    for (;;) {
        if (!take_line(r, &line, &len)) return v;
        if (len == 0) break;
        FUZZ_HOLDS(memchr(line, ':', len) != NULL);
        if (memcmp(line, "Content-Length: ", 16) == 0) {
            FUZZ_HOLDS(!has_length);
            has_length = true;
            length = strtoul(line + 16, NULL, 10);
        }
        if (len == 26 && memcmp(line, "Transfer-Encoding: chunked", 26) == 0) chunked = true;
        if (len == 17 && memcmp(line, "Connection: close", 17) == 0) v.close = true;
    }
    FUZZ_HOLDS(!(chunked && has_length));
    const size_t left = (size_t)(r->end - r->at);
    const bool no_body =
        v.status < 200 || v.status == 204 || left == 0 || (left >= 9 && memcmp(r->at, "HTTP/1.1 ", 9) == 0);
    v.complete = true;
    if (no_body) return v;
    if (chunked) {
        v.complete = take_chunks(r);
    } else if (has_length) {
        v.complete = left >= length;
        r->at += v.complete ? length : left;
    } else {
        r->at = r->end; /* the body ends with the connection */
    }
    return v;
}

static void check(fixture *w, const ls_http_stats *stats)
{
    reader r = {w->http.peer.out, w->http.peer.out + w->http.peer.out_len};
    uint64_t responses = 0;
    bool closed = false;
    while (r.at < r.end) {
        FUZZ_HOLDS(!closed);
        const response v = take_response(&r);
        FUZZ_HOLDS(v.complete || w->abandoned);
        if (!v.complete) break;
        if (v.status == 100) continue;
        responses++;
        closed = v.close;
    }
    FUZZ_HOLDS(responses <= (uint64_t)w->starts + stats->refused);
    FUZZ_HOLDS(stats->refused <= 1); /* a refusal is the last response */
}

/* ---- one input ---------------------------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 2, 7, 61, 1021, 4096};
    ls_http_stats stats;
    if (size == 0) return 0;
    fixture *w = calloc(1, sizeof *w);
    FUZZ_HOLDS(w != NULL);
    fuzz_peer *client = &w->http.peer;
    ls_actor_init(&w->actor);
    w->behaviour = data[0] % BEHAVIOURS;
    fuzz_http_open(&w->http, 1 << 22, OUT_MAX);
    w->http.config.body_bytes_max = BODY_MAX;
    w->http.config.unread_bytes_max = BODY_MAX / 2;
    w->http.handler.start = start;
    FUZZ_HOLDS(ls_http1_open(&w->http.config, &w->http.handler, &w->http.conn_limit, 1, &w->http.http) == LS_OK);
    ls_http1_start(&client->ctx, w->http.stream, w->http.http);
    const size_t piece = pieces[data[0] / BEHAVIOURS % (sizeof pieces / sizeof pieces[0])];
    for (size_t at = 1; at < size;) {
        const size_t len = size - at < piece ? size - at : piece;
        fuzz_peer_send(client, data + at, len, fuzz_peer_settle);
        at += len;
    }
    if (!client->ended) (void)shutdown(client->theirs, SHUT_WR);
    fuzz_peer_settle(client);
    fuzz_http_hang_up(&w->http, &stats);
    check(w, &stats);
    fuzz_http_close(&w->http);
    free(w);
    return 0;
}
