/* httpsys_fixture.h - http.sys for tests: the fake API of httpsys_fake.h and a handler in C; the test dispatches the
 * packets. */
#ifndef LS_TESTS_HTTPSYS_FIXTURE_H
#define LS_TESTS_HTTPSYS_FIXTURE_H

#include "http_config.h"
#include "httpsys_fake.h"
#include "port/file/shared_file.h"

typedef struct fixture fixture;
typedef void fixture_run(fixture *r, ls_thread_ctx *ctx, ls_exchange *x);

struct fixture {
    ls_port *port;
    ls_pools *pools;
    ls_thread_ctx ctx;
    ls_http_config config;
    ls_http_handler handler;
    ls_httpsys_api api;
    ls_http_engine *http;
    ls_actor actor;
    fixture_run *run; /* the handler: when a request starts, and whenever it is woken */
    ls_exchange *x;   /* the current exchange, or NULL */
    int starts;       /* requests so far */
    int step;         /* for the handler */
    int result;       /* the last result that the handler stored */
    int writes;       /* calls of write, counted by the handler */
    ls_shared_file *file;
    ls_op resume; /* calls the handler again, inside its actor */
    char body[65536];
    size_t body_len;
    ls_block *block; /* for the handler; see fixture_make_block */
};

static inline void fixture_call(ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = x->task;
    r->run(r, ctx, x);
}

static inline void fixture_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *r = LS_CONTAINER(handler, fixture, handler);
    assert_true(ls_actor_try_enter(&r->actor, ctx));
    x->actor = &r->actor;
    x->task = r;
    x->wake = fixture_call;
    r->starts++;
    r->step = 0;
    r->body_len = 0;
    r->x = x;
    r->run(r, ctx, x);
}

static inline void fixture_end(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    r->x = NULL;
    ls_exchange_release(ctx, x);
}

static inline void fixture_pump(fixture *r)
{
    ls_packet packet;
    while (ls_port_wait(r->port, &r->ctx, &packet, 1, 0) > 0) {
        ls_packet_dispatch(&r->ctx, &packet);
        assert_null(r->ctx.inside);
    }
}

/* Make everything except the ls_httpsys. */
static inline fixture *fixture_make(fixture_run *run)
{
    const ls_port_options options = {.sockets_max = 8};
    ls_pool *pool;
    fixture *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(ls_port_open(&options, &r->port), LS_OK);
    assert_int_equal(ls_pools_open(16u << 20, &r->pools), LS_OK);
    assert_int_equal(ls_pool_open(r->pools, &pool), LS_OK);
    ls_pool_enter(pool);
    ls_thread_ctx_init(&r->ctx, r->port, pool, 0);
    test_http_config(&r->config);
    r->api = fake_api;
    r->handler.start = fixture_start;
    r->run = run;
    ls_actor_init(&r->actor);
    memset(&fake, 0, sizeof fake);
    fake.port = r->port;
    fake.wire = malloc(FAKE_TEXT_MAX);
    assert_non_null(fake.wire);
    return r;
}

static inline int fixture_open_urls(fixture *r, const char *urls, unsigned receives, uint32_t requests_max,
                                    char message[512])
{
    const ls_httpsys_options options = {.urls = urls,
                                        .config = &r->config,
                                        .handler = &r->handler,
                                        .threads = 1,
                                        .receives = receives,
                                        .requests_max = requests_max};
    return ls_httpsys_open_with(&r->api, r->port, &options, &r->http, message, 512);
}

/* Open and start the ls_httpsys of a fixture whose config and api may have been changed, and forget the calls. */
static inline void fixture_begin(fixture *r, unsigned receives, uint32_t requests_max)
{
    char message[512];
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0", receives, requests_max, message), LS_OK);
    r->http->ops->start(&r->ctx, r->http);
    assert_int_equal(fake_count('r'), receives);
    fake.calls[0] = '\0';
}

static inline fixture *fixture_open(fixture_run *run, unsigned receives)
{
    fixture *r = fixture_make(run);
    fixture_begin(r, receives, 64);
    return r;
}

/* Copy `text` into a pool block, as the script layer does for small parts. The slice has the only reference. */
static inline ls_slice fixture_part(ls_thread_ctx *ctx, const char *text)
{
    const size_t len = strlen(text);
    ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
    assert_non_null(block);
    memcpy(block->data, text, len);
    return (ls_slice){block, block->data, len};
}

/* A pool block with `text` for the handler. fixture_close drops it. */
static inline void fixture_make_block(fixture *r, const char *text)
{
    assert_non_null(r->block = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL));
    memcpy(r->block->data, text, strlen(text));
}

static inline void fixture_arrives(fixture *r, fake_request given)
{
    fake_arrives(given);
    fixture_pump(r);
}

/* Complete the oldest pending operation of that kind. */
static inline void fixture_complete(fixture *r, char kind, NTSTATUS status, uint32_t bytes)
{
    fake_complete(fake_find(kind), status, bytes);
    fixture_pump(r);
}

/* Complete the oldest pending body receive with `text`. */
static inline void fixture_body_arrives(fixture *r, const char *text)
{
    memcpy(fake_find('b')->buffer, text, strlen(text));
    fixture_complete(r, 'b', 0, (uint32_t)strlen(text));
}

static inline void fixture_free(fixture *r)
{
    ls_pools_stats stats;
    ls_packet packet;
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 0), 0);
    ls_pools_stat(r->pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    ls_port_close(r->port);
    ls_pool_close(r->ctx.pool);
    ls_pools_close(r->pools);
    free(fake.wire);
    free(r);
}

/* Drain and close. Every block must be free and no operation pending. */
static inline void fixture_close(fixture *r)
{
    if (r->block != NULL) ls_block_drop(r->block);
    for (int i = 0; i < 10 && r->http->ops->drain(r->http, false) > 0; i++) fixture_pump(r);
    assert_int_equal(r->http->ops->drain(r->http, false), 0);
    for (int i = 0; i < FAKE_PENDING_MAX; i++) assert_int_equal(fake.pending[i].kind, 0);
    r->http->ops->close(r->http);
    fixture_free(r);
}

static inline void fixture_resumed(ls_thread_ctx *ctx, ls_op *op)
{
    fixture *r = LS_CONTAINER(op, fixture, resume);
    r->run(r, ctx, r->x);
}

/* Call a suspended handler again. */
static inline void fixture_resume(fixture *r)
{
    r->resume = (ls_op){.done = fixture_resumed, .actor = &r->actor};
    ls_port_post(r->port, &r->resume, 0);
    fixture_pump(r);
}

/* ---- handlers ----------------------------------------------------------------------------------------------- */

static inline void respond_hello(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hello", 5);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

/* Respond at the next fixture_resume. */
static inline void respond_later(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ > 0) respond_hello(r, ctx, x);
}

#endif
