/* http1_fixture.h - an HTTP/1.1 connection for tests: a real socket pair and a handler in C; the test dispatches the
 * packets. A pair of Unix sockets delivers bytes at once, so without a packet in the port nothing more happens. */
#ifndef LS_TESTS_HTTP1_FIXTURE_H
#define LS_TESTS_HTTP1_FIXTURE_H

#include "port/port_fixture.h"

#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "http/exchange_run.h"
#include "http/http1.h"
#include "http_config.h"
#include "net/stream/deadline.h"
#include "sched/actor.h"

enum { FIXTURE_TEXT_MAX = 1 << 20, FIXTURE_PATIENCE_MS = 90000 };

typedef struct fixture fixture;
typedef void fixture_run(fixture *r, ls_thread_ctx *ctx, ls_exchange *x);

struct fixture {
    net_place place;
    ls_conn_limit conn_limit;
    ls_http_config config;
    ls_http_handler handler;
    ls_http_engine *http;
    void (*start)(ls_thread_ctx *ctx, ls_stream *s, void *http); /* NULL: ls_http1_start */
    ls_deadlines *deadlines;
    ls_actor actor;
    fixture_run *run; /* the handler: when a request starts, and whenever it is woken */
    int starts;       /* requests so far */
    ls_exchange *x;   /* the current exchange, or NULL */
    bool started;     /* false in the first call of `run` for a request; handlers set it */
    int step;         /* for the handler */
    int error;        /* the last result that the handler stored */
    int theirs;       /* the client's socket */
    ls_op resume;     /* calls the handler again, inside its actor */
    char body[FIXTURE_TEXT_MAX];
    size_t body_len;
    ls_slice slices[256];
    unsigned slice_count;
    char *text; /* bytes that the client received */
    size_t text_len;
    bool ended; /* the client saw the end of the stream, or a reset */
};

static inline void fixture_call(ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = x->task;
    r->run(r, ctx, x);
}

static inline void fixture_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = LS_CONTAINER(handler, fixture, handler);
    if (ctx->inside == NULL) assert_true(ls_actor_try_enter(&r->actor, ctx));
    assert_ptr_equal(ctx->inside, &r->actor);
    x->actor = &r->actor;
    x->task = r;
    x->wake = fixture_call;
    r->starts++;
    r->x = x;
    r->step = 0;
    r->body_len = 0;
    r->slice_count = 0;
    r->started = false;
    r->run(r, ctx, x);
}

/* Release the exchange, as the last call of a handler. */
static inline void fixture_end(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    for (unsigned i = 0; i < r->slice_count; i++) ls_slice_drop(&r->slices[i]);
    r->slice_count = 0;
    r->x = NULL;
    ls_exchange_release(ctx, x);
}

/* Copy `text` into a pool block, as the script layer does for small parts. The slice has the only reference. */
static inline ls_slice fixture_part(ls_thread_ctx *ctx, const char *text, size_t len)
{
    ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
    assert_non_null(block);
    assert_true(len <= block->cap);
    memcpy(block->data, text, len);
    return (ls_slice){block, block->data, len};
}

static inline fixture *fixture_open(fixture_run *run, size_t pool_bytes)
{
    fixture *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->text = malloc(FIXTURE_TEXT_MAX);
    assert_non_null(r->text);
    net_place_open(&r->place);
    if (pool_bytes > 0) {
        ls_pool_close(r->place.ctx.pool);
        ls_pools_close(r->place.pools);
        assert_int_equal(ls_pools_open(pool_bytes, &r->place.pools), LS_OK);
        net_ctx_open(&r->place, &r->place.ctx, 0);
    }
    assert_int_equal(ls_stream_deadlines_open(r->place.port, &r->deadlines), LS_OK);
    ls_conn_limit_open(&r->conn_limit, 8);
    test_http_config(&r->config);
    r->handler.start = fixture_start;
    r->run = run;
    r->theirs = -1;
    ls_actor_init(&r->actor);
    return r;
}

static inline void fixture_pump(fixture *r)
{
    ls_packet packet;
    while (ls_port_wait(r->place.port, &r->place.ctx, &packet, 1, 0) > 0) {
        ls_packet_dispatch(&r->place.ctx, &packet);
        assert_null(r->place.ctx.inside);
    }
}

/* Receive as the client until no bytes are left. */
static inline void fixture_read(fixture *r)
{
    while (!r->ended) {
        const ssize_t n = recv(r->theirs, r->text + r->text_len, FIXTURE_TEXT_MAX - 1 - r->text_len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (n <= 0) r->ended = true;
        if (n > 0) r->text_len += (size_t)n;
    }
    r->text[r->text_len] = '\0';
}

/* Dispatch packets and receive, until there is nothing left for both. */
static inline void fixture_settle(fixture *r)
{
    size_t before;
    do {
        before = r->text_len;
        fixture_pump(r);
        fixture_read(r);
    } while (r->text_len != before);
    fixture_pump(r);
}

/* Wait for a packet, at most 10 ms, and dispatch it. */
static inline void fixture_step(fixture *r)
{
    ls_packet packet;
    if (ls_port_wait(r->place.port, &r->place.ctx, &packet, 1, 10) > 0) ls_packet_dispatch(&r->place.ctx, &packet);
}

/* Dispatch packets until the condition holds. */
#define FIXTURE_UNTIL(r, condition)                                          \
    do {                                                                     \
        const uint64_t end_ms_ = ls_clock_coarse_ms() + FIXTURE_PATIENCE_MS; \
        while (!(condition)) {                                               \
            assert_true(ls_clock_coarse_ms() < end_ms_);                     \
            fixture_step(r);                                                 \
        }                                                                    \
    } while (0)

/* Settle until the client has seen the end of the connection. */
static inline void fixture_until_ended(fixture *r)
{
    FIXTURE_UNTIL(r, (fixture_settle(r), r->ended));
}

static inline void fixture_serve(fixture *r)
{
    assert_int_equal(ls_http1_open(&r->config, &r->handler, &r->conn_limit, 1, &r->http), LS_OK);
}

static inline void fixture_connect(fixture *r)
{
    const ls_addr peer = {.family = LS_ADDR_UNIX};
    ls_stream *s;
    int ours;
    if (r->http == NULL) fixture_serve(r);
    net_pair(&ours, &r->theirs);
    r->text_len = 0;
    r->ended = false;
    atomic_fetch_add(&r->conn_limit.count, 1);
    assert_int_equal(ls_stream_open(r->place.port, r->deadlines, ours, true, &peer, NULL, ls_http1_user_bytes, &s),
                     LS_OK);
    (r->start != NULL ? r->start : ls_http1_start)(&r->place.ctx, s, r->http);
}

static inline void fixture_send(fixture *r, const char *bytes, size_t len)
{
    while (len > 0) {
        const ssize_t n = send(r->theirs, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
            break; /* the server closed already; the test checks its responses */
        }
        fixture_settle(r);
    }
    fixture_settle(r);
}

static inline ls_http_stats fixture_stats(const fixture *r)
{
    ls_http_stats stats = {0};
    r->http->ops->stat(r->http, &stats);
    return stats;
}

static inline void fixture_disconnect(fixture *r)
{
    if (r->theirs >= 0) close(r->theirs);
    r->theirs = -1;
    fixture_pump(r);
    /* A lingering close or a timer may take time. */
    FIXTURE_UNTIL(r, fixture_stats(r).open == 0 && atomic_load(&r->conn_limit.count) == 0);
}

static inline void fixture_close(fixture *r)
{
    fixture_disconnect(r);
    r->http->ops->close(r->http);
    ls_conn_limit_close(&r->conn_limit);
    fixture_pump(r); /* the tick of a deadline that is not needed any more */
    net_place_release(&r->place);
    ls_deadlines_close(r->deadlines);
    free(r->text);
    free(r);
}

static inline void fixture_resumed(ls_thread_ctx *ctx, ls_op *op)
{
    fixture *r = LS_CONTAINER(op, fixture, resume);
    assert_non_null(r->x);
    r->run(r, ctx, r->x);
}

/* Call a suspended handler again. */
static inline void fixture_resume(fixture *r)
{
    r->resume = (ls_op){.done = fixture_resumed, .actor = &r->actor};
    ls_port_post(r->place.port, &r->resume, 0);
    fixture_settle(r);
}

/* Return the received text without its Date lines, and clear it. */
static inline char *fixture_take(fixture *r)
{
    static char out[FIXTURE_TEXT_MAX];
    char *to = out;
    for (const char *at = r->text, *end = at + r->text_len; at < end;) {
        if (end - at >= 37 && memcmp(at, "Date: ", 6) == 0 && memcmp(at + 35, "\r\n", 2) == 0)
            at += 37;
        else
            *to++ = *at++;
    }
    *to = '\0';
    r->text_len = 0;
    return out;
}

/* A fixture with a client that is connected. */
static inline fixture *connected(fixture_run *run)
{
    fixture *r = fixture_open(run, 0);
    fixture_connect(r);
    return r;
}

static inline void send_text(fixture *r, const char *text)
{
    fixture_send(r, text, strlen(text));
}

/* The client sends `request` and receives exactly `response`; `ends`: then the server closes the connection. */
static inline void check(fixture_run *run, const char *request, const char *response, bool ends)
{
    fixture *r = connected(run);
    send_text(r, request);
    assert_string_equal(fixture_take(r), response);
    assert_int_equal(r->ended, ends);
    fixture_close(r);
}

#endif
