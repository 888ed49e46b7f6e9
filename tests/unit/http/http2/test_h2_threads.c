/* test_h2_threads.c - several threads run the handlers of one connection, in several actors, while its client resets
 * streams, sends bodies, opens windows and leaves. */
#include "h2_fixture.h"

enum { THREADS = 4, ACTORS = 6, ROUNDS = 40, STEPS = 150 };

static ls_actor actors[ACTORS];
static _Atomic int starts, releases;

static void release(ls_thread_ctx *ctx, ls_exchange *x)
{
    atomic_fetch_add(&releases, 1);
    ls_exchange_release(ctx, x);
}

/* As the letter of the path says; "w" waits until its stream is lost. */
static void go_on(ls_thread_ctx *ctx, ls_exchange *x)
{
    static char bytes[8192];
    const char does = x->bytes[x->head.path.at + x->head.path.len - 1];
    ls_slice part;
    int err = x->error;
    if (err == 0 && does == 'w') return;
    while (does == 'R' && err == 0) {
        if ((err = ls_exchange_read(ctx, x, &part)) == LS_PENDING) return;
        if (err == LS_DONE && part.len == 0) break;
        if (err == LS_DONE) err = ls_exchange_write(ctx, x, &part, 1);
        if (err == LS_PENDING) return;
    }
    while (does == 'b' && err == 0 && x->written < 300 * 1024) {
        part = ls_slice_static(bytes, sizeof bytes);
        if ((err = ls_exchange_write(ctx, x, &part, 1)) == LS_PENDING) return;
    }
    part = ls_slice_static("hi", 2);
    if (does == '/' && err == 0)
        (void)ls_exchange_respond(ctx, x, &part, 1);
    else if (err == 0 && does != 'e')
        (void)ls_exchange_finish(ctx, x);
    release(ctx, x);
}

static void start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_actor *actor = x->actor != NULL ? x->actor : &actors[x->id % ACTORS];
    x->actor = actor;
    if (ctx->inside == NULL && !ls_actor_try_enter(actor, ctx)) return; /* it is started again, inside */
    x->wake = go_on;
    atomic_fetch_add(&starts, 1);
    go_on(ctx, x);
}

/* One of the last requests. */
static uint32_t recent(uint32_t id)
{
    const uint32_t back = 2 * ((uint32_t)rand() % 10);
    return id > back ? id - back : 1;
}

static void send_at_once(h2 *h)
{
    static char discarded[1 << 16];
    for (size_t at = 0; at < h->to_len;) {
        const ssize_t n = send(h->r->theirs, h->to + at, h->to_len - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) break;
        if (n > 0) at += (size_t)n;
        while (recv(h->r->theirs, discarded, sizeof discarded, MSG_DONTWAIT) > 0) {}
    }
    h->to_len = 0;
}

static void a_client(h2 *h, bool drains)
{
    uint32_t id = 1;
    fixture_connect(h->r);
    h2_preface(h);
    for (int i = 0; i < STEPS; i++) {
        switch (rand() % 8) {
        case 0: h2_reset(h, recent(id)); break;
        case 1: h2_data(h, recent(id), (size_t)rand() % 16384, rand() % 4 == 0); break;
        case 2: h2_put_number(h, NGHTTP2_WINDOW_UPDATE, rand() % 2 ? 0 : recent(id), 30000); break;
        case 3: send_at_once(h); break;
        default: h2_request(h, id += 2, "/R/b/w/e"[rand() % 8], rand() % 3 == 0); break;
        }
    }
    send_at_once(h);
    if (drains) (void)h->r->http->ops->drain(h->r->http, true);
    fixture_disconnect(h->r);
}

TEST(handlers_of_one_connection_on_several_threads)
{
    const ls_workers_options options = {.threads = THREADS, .threads_max = THREADS};
    ls_workers *workers;
    h2 *h = h2_new();
    srand(7);
    for (int i = 0; i < ACTORS; i++) ls_actor_init(&actors[i]);
    h->r->handler.start = start;
    h->r->config.linger_ms_max = 1;
    h->r->place.ctx.index = THREADS; /* the test's own thread */
    assert_int_equal(ls_workers_open(h->r->place.port, h->r->place.pools, &options, &workers), LS_OK);
    assert_int_equal(ls_workers_start(workers), LS_OK);
    assert_int_equal(ls_h2_open(&h->r->config, &h->r->handler, &h->r->conn_limit, THREADS + 1, &h->r->http), LS_OK);
    for (int i = 1; i <= ROUNDS; i++) {
        a_client(h, i == ROUNDS);
        assert_int_equal(atomic_load(&releases), atomic_load(&starts));
    }
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, 0));
    ls_workers_close(workers);
    h2_close(h);
}
