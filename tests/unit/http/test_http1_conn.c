/* test_http1_conn.c - the connection: keep-alive, refused requests, deadlines, drain, and out of memory at every
 * step. */
/* sanitizers: asan; no thread starts */
#include "http1_fixture.h"

#include "base/io/log.h"
#include "system.h"

#define OK       "HTTP/1.1 200 OK\r\nServer: luaserve\r\n"
#define GET      "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
#define HI       OK "Content-Length: 2\r\n\r\nhi"
#define HO       OK "Content-Length: 2\r\n\r\nho"
#define HI_CLOSE OK "Content-Length: 2\r\nConnection: close\r\n\r\nhi"

static void hi(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hi", 2);
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

/* Respond at the next fixture_resume. */
static void later(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->started) hi(r, ctx, x);
    r->started = true;
}

/* ---- requests in sequence ----------------------------------------------------------------------------------- */

TEST_WITH(fixture, r, requests_in_sequence, connected(hi))
{
    ls_pools_stats pools;
    for (int i = 1; i <= 3; i++) {
        send_text(r, GET);
        assert_string_equal(fixture_take(r), HI);
        assert_int_equal(r->starts, i);
        ls_pools_stat(r->place.pools, &pools);
        assert_int_equal(pools.blocks_live, 0); /* an idle connection has no block */
    }
    const ls_http_stats stats = fixture_stats(r);
    assert_int_equal(stats.connections, 1);
    assert_int_equal(stats.requests, 3);
    assert_int_equal(stats.responses, 3);
    assert_int_equal(stats.refused, 0);
    assert_int_equal(stats.open, 1);
}

static uint64_t last_id;

static void check_exchange(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    assert_true(x->id != last_id);
    last_id = x->id;
    assert_int_equal(x->remote->family, LS_ADDR_UNIX);
    assert_int_equal(x->transport->local(x)->family, LS_ADDR_IP4);
    assert_int_equal(x->transport->local(x)->port, 8080);
    assert_false(x->secure);
    assert_int_equal(x->head.path.len, 4);
    assert_memory_equal(x->bytes + x->head.path.at, "/abc", 4);
    assert_true(x->head.has_query);
    assert_memory_equal(x->bytes + x->head.query.at, "d=e", 3);
    hi(r, ctx, x);
}

TEST_WITH(fixture, r, the_exchange_that_a_handler_gets, fixture_open(check_exchange, 0))
{
    static const char request[] = "GET /abc?d=e HTTP/1.1\r\nHost: h\r\n\r\n";
    ls_addr local;
    assert_int_equal(ls_addr_parse("127.0.0.1", 8080, &local), LS_OK);
    fixture_serve(r);
    ls_http1_local(r->http, &local);
    fixture_connect(r);
    send_text(r, request);
    fixture_send(r, request, 10); /* at another offset of the block */
    send_text(r, request + 10);
    send_text(r, request);
    assert_string_equal(fixture_take(r), HI HI HI);
}

TEST_WITH(fixture, r, the_next_request_waits_for_the_response, connected(later))
{
    send_text(r, GET GET);
    assert_string_equal(fixture_take(r), "");
    assert_int_equal(r->starts, 1);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI);
    assert_int_equal(r->starts, 2);
    send_text(r, GET); /* arrives while the second is handled */
    assert_int_equal(r->starts, 2);
    fixture_resume(r);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI HI);
    assert_int_equal(r->starts, 3);
}

static ls_op waiting; /* a packet for the actor, such as the end of a sleep; its result is when it ran */

static void waiting_ran(ls_thread_ctx *ctx, ls_op *op)
{
    const fixture *r = LS_CONTAINER(ctx->inside, fixture, actor);
    op->result = r->starts;
}

/* Respond at once, or at the next fixture_resume for the request `step`; the first response leaves a packet for the
 * actor. */
static void hi_beside_a_packet(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->starts == r->error && !r->started) {
        r->started = true;
        return;
    }
    if (waiting.done == NULL) {
        waiting = (ls_op){.done = waiting_ran, .actor = &r->actor};
        ls_actor_post(&r->actor, ctx, &waiting);
    }
    hi(r, ctx, x);
}

/* A connection that always has a next request lets the packets of its actor run: also when the thread is inside the
 * actor because a handler was woken. */
TEST(pipelined_requests_give_way)
{
    for (int suspends = 0; suspends <= 1; suspends++) {
        fixture *r = connected(hi_beside_a_packet);
        waiting = (ls_op){0};
        r->error = suspends; /* which request suspends */
        send_text(r, GET GET GET GET);
        if (suspends) fixture_resume(r);
        assert_string_equal(fixture_take(r), HI HI HI HI);
        assert_int_equal(r->starts, 4);
        assert_int_equal(waiting.result, 1 + suspends); /* a woken connection takes one request first */
        send_text(r, GET);
        assert_string_equal(fixture_take(r), HI);
        fixture_close(r);
    }
}

/* ---- another handler ---------------------------------------------------------------------------------------- */

static struct {
    ls_http_handler handler;
    ls_actor actor;
    int starts;
} other;

static void other_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("ho", 2);
    assert_ptr_equal(handler, &other.handler);
    if (ctx->inside == NULL) assert_true(ls_actor_try_enter(&other.actor, ctx));
    assert_ptr_equal(ctx->inside, &other.actor); /* it must not run inside the actor of the handler before */
    x->actor = &other.actor;
    other.starts++;
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    ls_exchange_release(ctx, x);
}

static void replace_handler(fixture *r)
{
    memset(&other, 0, sizeof other);
    other.handler.start = other_start;
    ls_actor_init(&other.actor);
    r->http->ops->replace(r->http, &other.handler);
}

TEST_WITH(fixture, r, an_open_connection_gets_the_new_handler, connected(hi))
{
    send_text(r, GET);
    assert_string_equal(fixture_take(r), HI);
    replace_handler(r);
    send_text(r, GET GET);
    assert_string_equal(fixture_take(r), HO HO);
    assert_int_equal(r->starts, 1);
    assert_int_equal(fixture_stats(r).connections, 1);
}

/* A request that waits is answered by its handler; those behind it in the same packet by the new one. */
TEST_WITH(fixture, r, a_suspended_request_stays_with_its_handler, connected(later))
{
    send_text(r, GET GET GET);
    assert_int_equal(r->starts, 1);
    replace_handler(r);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI HO HO);
    assert_int_equal(r->starts, 1);
}

/* Its head is in the block of the exchange; one without room there stays where it was received. */
TEST_WITH(fixture, r, a_request_that_waits_holds_one_block, connected(later))
{
    static const struct {
        const char *more; /* further fields, which a tiny block has no room for */
        int len;          /* of the field A */
        uint64_t blocks, bytes;
    } cases[] = {{"", 3, 1, LS_BLOCK_TINY},
                 {"b:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\nb:\r\n", 3, 1, LS_BLOCK_SMALL},
                 {"", 2000, 1, LS_BLOCK_SMALL},
                 {"", 3600, 2, (uint64_t)2 * LS_BLOCK_SMALL}};
    char text[4000];
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        ls_pools_stats pools;
        r->started = false;
        (void)snprintf(text, sizeof text, "GET /abc HTTP/1.1\r\nHost: h\r\nA: %0*d\r\n%s\r\n", cases[n].len, 1,
                       cases[n].more);
        send_text(r, text);
        ls_pools_stat(r->place.pools, &pools);
        assert_int_equal(pools.blocks_live, cases[n].blocks);
        assert_int_equal(pools.bytes_live, cases[n].bytes);
        assert_memory_equal(r->x->bytes + r->x->head.path.at, "/abc", 4);
        const ls_span value = r->x->head.fields[1].value;
        assert_int_equal(value.len, cases[n].len);
        assert_memory_equal(r->x->bytes + value.at + value.len - 3, "001", 3);
        fixture_resume(r);
        assert_string_equal(fixture_take(r), HI);
    }
}

static void hi_and_replace(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    replace_handler(r); /* in a server, another thread does */
    hi(r, ctx, x);
}

TEST_WITH(fixture, r, a_request_behind_the_replacement_runs_outside_of_the_old_actor, connected(hi_and_replace))
{
    send_text(r, GET GET);
    assert_string_equal(fixture_take(r), HI HO);
}

/* The rest of a body that the old handler did not read is skipped, then the new one gets the next request. */
TEST_WITH(fixture, r, a_body_is_skipped_across_the_replacement, connected(hi_and_replace))
{
    send_text(r, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
    send_text(r, "ab");
    send_text(r, "cd" GET);
    assert_string_equal(fixture_take(r), HI HO);
}

TEST_WITH(fixture, r, requests_after_close_get_no_response, connected(hi))
{
    send_text(r, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" GET "nonsense\r\n\r\n");
    assert_string_equal(fixture_take(r), HI_CLOSE); /* no second response, no 400 */
    assert_true(r->ended);
    assert_int_equal(r->starts, 1);
}

TEST_WITH(fixture, r, a_half_closed_client_gets_its_response, connected(later))
{
    send_text(r, GET);
    assert_int_equal(shutdown(r->theirs, SHUT_WR), 0);
    fixture_settle(r);
    assert_non_null(r->x);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI);
    assert_true(r->ended);
}

TEST(a_head_split_at_every_byte)
{
    static const char text[] = "\r\nGET /abc HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n" GET;
    for (size_t split = 1; split < sizeof text - 1; split++) {
        fixture *r = connected(hi);
        fixture_send(r, text, split);
        send_text(r, text + split);
        assert_string_equal(fixture_take(r), HI HI);
        fixture_close(r);
    }
}

/* Heads longer than a receive block move to a larger block, together with the bytes behind them. */
TEST(long_heads)
{
    static char text[40000];
    for (int fill = 3000; fill < 16000; fill += 1237) {
        fixture *r = connected(hi);
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: h\r\nX-Fill: %0*d\r\n\r\n" GET, fill, 0);
        send_text(r, text);
        fixture_send(r, text, 100);
        for (size_t at = 100, len = strlen(text); at < len; at += 999)
            fixture_send(r, text + at, len - at < 999 ? len - at : 999);
        assert_string_equal(fixture_take(r), HI HI HI HI);
        fixture_close(r);
    }
}

/* ---- refused requests --------------------------------------------------------------------------------------- */

static void refused(const char *request, const char *before, const char *status_line)
{
    fixture *r = connected(hi);
    char expected[300];
    send_text(r, request);
    const char *got = fixture_take(r);
    assert_memory_equal(got, before, strlen(before));
    got += strlen(before);
    snprintf(expected, sizeof expected, "%s\r\nServer: luaserve\r\nContent-Type: text/plain; charset=utf-8\r\n",
             status_line);
    assert_memory_equal(got, expected, strlen(expected));
    const char *length = strstr(got, "Content-Length: "), *body = strstr(got, "\r\n\r\n");
    assert_non_null(length);
    assert_non_null(body);
    assert_int_equal(strtoul(length + 16, NULL, 10), strlen(body + 4));
    assert_non_null(strstr(got, "\r\nConnection: close\r\n"));
    assert_true(r->ended);
    assert_int_equal(fixture_stats(r).refused, 1);
    fixture_close(r);
}

TEST(a_refused_request_gets_the_reason_and_ends_the_connection)
{
    static char text[20000];
    refused("nonsense\r\n\r\n", "", "HTTP/1.1 400 Bad Request");
    refused(GET "GET / HTTP/1.1\r\n\r\n" GET, HI,
            "HTTP/1.1 400 Bad Request"); /* no Host; the request behind it is ignored */
    refused("GET / HTTP/2.0\r\nHost: h\r\n\r\n", "", "HTTP/1.1 505 HTTP Version Not Supported");
    refused("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "",
            "HTTP/1.1 501 Not Implemented");
    refused("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", "",
            "HTTP/1.1 400 Bad Request");
    refused("GET / HTTP/1.1\r\nHost: h\r\nExpect: the unexpected\r\n\r\n", "", "HTTP/1.1 417 Expectation Failed");
    snprintf(text, sizeof text, "GET /%09000d HTTP/1.1\r\nHost: h\r\n\r\n", 0);
    refused(text, "", "HTTP/1.1 414 URI Too Long");
    snprintf(text, sizeof text, GET "GET / HTTP/1.1\r\nHost: h\r\nX: %017000d\r\n\r\n", 0);
    refused(text, HI, "HTTP/1.1 431 Request Header Fields Too Large");
}

TEST_WITH(fixture, r, limits_out_of_range, connected(hi))
{
    ls_http_engine *http = NULL;
    ls_http_config config;
    test_http_config(&config);
    config.head.head_bytes_max = LS_BLOCK_LARGE + 1;
    assert_int_equal(ls_http1_open(&config, &r->handler, &r->conn_limit, 1, &http), LS_EINVAL);
    test_http_config(&config);
    config.head.fields_max = LS_HTTP_FIELDS_MAX + 1;
    assert_int_equal(ls_http1_open(&config, &r->handler, &r->conn_limit, 1, &http), LS_EINVAL);
    assert_null(http);
    test_http_config(&config);
    config.head.head_bytes_max = LS_BLOCK_LARGE;
    assert_int_equal(ls_http1_open(&config, &r->handler, &r->conn_limit, 1, &http), LS_OK);
    http->ops->close(http);
}

/* ---- deadlines ---------------------------------------------------------------------------------------------- */

#define TOO_SLOW "HTTP/1.1 408 Request Timeout\r\n"

TEST_WITH(fixture, r, a_silent_client_is_disconnected, fixture_open(hi, 0))
{
    r->config.head_ms_max = 10;
    fixture_connect(r);
    fixture_until_ended(r);
    assert_string_equal(fixture_take(r), "");
}

/* A client whose first bytes arrive after the deadline is disconnected without a 408: on a machine that stood still
 * for this time, try again with a longer one. */
TEST(a_slow_head_is_a_408)
{
    for (int second = 0; second <= 1; second++) {
        const char *got = "";
        for (uint32_t ms = 10; *got == '\0'; ms *= 2) {
            fixture *r = fixture_open(hi, 0);
            assert_true(ms < 10000);
            r->config.head_ms_max = ms;
            r->config.linger_ms_max = 10;
            fixture_connect(r);
            if (second) send_text(r, GET);
            fixture_send(r, GET, strlen(GET) - 1);
            fixture_until_ended(r);
            got = fixture_take(r);
            fixture_close(r);
        }
        if (second) {
            assert_memory_equal(got, HI, strlen(HI));
            got += strlen(HI);
        }
        assert_memory_equal(got, TOO_SLOW, strlen(TOO_SLOW));
    }
}

TEST_WITH(fixture, r, an_idle_connection_is_closed, fixture_open(hi, 0))
{
    r->config.idle_ms_max = 10;
    fixture_connect(r);
    send_text(r, GET);
    fixture_until_ended(r);
    assert_string_equal(fixture_take(r), HI); /* without a 408 */
}

TEST(a_handler_that_waits_has_no_deadline)
{
    fixture *r;
    uint32_t ms = 5;
    for (;; ms *= 2) {
        r = fixture_open(later, 0);
        assert_true(ms < 10000);
        r->config.head_ms_max = r->config.idle_ms_max = r->config.body_grace_ms = r->config.send_stall_ms_max = ms;
        fixture_connect(r);
        send_text(r, GET);
        if (r->x != NULL) break;
        fixture_close(r); /* the machine stood still, and the head did not arrive in time */
    }
    const uint64_t until = ls_clock_ns() + 6 * ms * UINT64_C(1000000);
    while (ls_clock_ns() < until) fixture_step(r);
    assert_non_null(r->x);
    assert_int_equal(r->x->error, 0);
    fixture_resume(r);
    fixture_until_ended(r); /* idle again */
    assert_string_equal(fixture_take(r), HI);
    fixture_close(r);
}

/* ---- the loss of a connection whose handler waits ------------------------------------------------------------- */

/* Wait for the end of the client in step 0; the wake ends the request. */
static void expecting(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        r->error = ls_exchange_expect_end(ctx, x);
        if (r->error == LS_OK) return;
    } else {
        r->error = x->error;
    }
    if (x->error == 0)
        hi(r, ctx, x);
    else
        fixture_end(r, ctx, x);
}

TEST(the_end_of_the_client_wakes_the_handler)
{
    enum { CLOSED, HALF, PIPELINED, BEFORE, ABORTED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        fixture *r = connected(expecting);
        r->error = 1;
        send_text(r, way == BEFORE ? GET GET : GET);
        assert_int_equal(r->error, LS_OK);
        assert_int_equal(r->step, 1);
        if (way == PIPELINED || way == BEFORE) { /* bytes are not the end */
            if (way == PIPELINED) send_text(r, GET);
            assert_int_equal(r->step, 1);
            fixture_resume(r);
            assert_string_equal(fixture_take(r), HI);
            assert_int_equal(r->starts, 2);
            fixture_resume(r);
            assert_string_equal(fixture_take(r), HI);
            send_text(r, GET); /* the receive that was pending has ended */
            assert_int_equal(r->starts, 3);
            fixture_resume(r);
            assert_string_equal(fixture_take(r), HI);
        } else if (way == ABORTED) {
            r->http->ops->abort(r->http);
            fixture_settle(r);
            assert_int_equal(r->step, 2);
            assert_int_equal(r->error, LS_ECANCELED);
        } else {
            if (way == HALF) {
                assert_int_equal(shutdown(r->theirs, SHUT_WR), 0);
            } else {
                close(r->theirs);
                r->theirs = -1;
            }
            fixture_pump(r);
            assert_int_equal(r->step, 2);
            assert_true(r->error == LS_ECLOSED || r->error == LS_ERESET);
            assert_int_equal(fixture_stats(r).open, 0);
        }
        fixture_close(r);
    }
}

static void woken(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) return;
    r->error = x->error;
    fixture_end(r, ctx, x);
}

/* Also behind the bytes of a next request, with which the receive for the end of the client has ended. */
TEST(a_reset_wakes_the_handler)
{
    int ours, theirs;
    ls_stream *s;
    const struct linger reset = {1, 0};
    if (!system_watches_connections()) {
        print_message("skipped: of another system: the loss of a connection without a receive\n");
        skip();
    }
    for (int pipelined = 0; pipelined < 2; pipelined++) {
        fixture *r = fixture_open(pipelined ? expecting : woken, 0);
        fixture_serve(r);
        net_tcp_pair(&ours, &theirs);
        r->theirs = theirs;
        atomic_fetch_add(&r->conn_limit.count, 1);
        assert_int_equal(ls_stream_open(r->place.port, r->deadlines, ours, true, NULL, NULL, ls_http1_user_bytes, &s),
                         LS_OK);
        ls_http1_start(&r->place.ctx, s, r->http);
        send_text(r, GET);
        FIXTURE_UNTIL(r, r->step > 0);
        if (pipelined) send_text(r, GET);
        fixture_pump(r);
        assert_int_equal(r->step, 1);
        assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        close(theirs);
        r->theirs = -1;
        FIXTURE_UNTIL(r, r->step > 1);
        assert_int_equal(r->step, 2); /* by the watch */
        assert_int_equal(r->error, LS_ERESET);
        fixture_close(r);
    }
}

/* ---- drain -------------------------------------------------------------------------------------------------- */

/* Drain as the server does, several times: each call may need a packet. */
static uint32_t drain(fixture *r, bool all)
{
    uint32_t open = 0;
    for (int i = 0; i < 3; i++) {
        (void)r->http->ops->drain(r->http, all);
        fixture_settle(r);
        open = r->http->ops->drain(r->http, all);
        fixture_settle(r);
    }
    return open;
}

TEST_WITH(fixture, r, a_drain_closes_idle_connections, connected(hi))
{
    send_text(r, GET);
    assert_string_equal(fixture_take(r), HI);
    assert_int_equal(drain(r, false), 0);
    assert_true(r->ended);
    assert_string_equal(fixture_take(r), "");
}

TEST_WITH(fixture, r, a_drain_spares_connections_without_a_request, connected(hi))
{
    fixture_settle(r);
    assert_int_equal(drain(r, false), 1);
    send_text(r, GET);
    assert_string_equal(fixture_take(r), HI_CLOSE);
    assert_true(r->ended);
    fixture_disconnect(r);
    fixture_connect(r);
    fixture_settle(r);
    assert_int_equal(drain(r, false), 1);
    assert_int_equal(drain(r, true), 0);
    assert_true(r->ended);
}

TEST(a_drain_lets_requests_end)
{
    fixture *r = connected(later);
    send_text(r, GET GET);
    assert_int_equal(drain(r, true), 1);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI_CLOSE); /* the second request was not started */
    assert_int_equal(r->starts, 1);
    assert_true(r->ended);
    fixture_close(r);

    r = connected(later);
    fixture_send(r, GET, 10); /* a partial head */
    assert_int_equal(drain(r, true), 1);
    send_text(r, &GET[10]);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), HI_CLOSE);
    fixture_close(r);
}

static void reader(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    const int err = ls_exchange_read(ctx, x, &part);
    if (err == LS_PENDING) return;
    assert_true(err < 0);
    r->error = err;
    fixture_end(r, ctx, x);
}

TEST(an_abort_ends_waiting_connections)
{
    fixture *r = connected(reader);
    send_text(r, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n");
    assert_non_null(r->x);
    r->http->ops->abort(r->http);
    fixture_settle(r);
    assert_null(r->x);
    assert_int_equal(r->error, LS_ECANCELED);
    assert_true(r->ended);
    fixture_close(r);

    r = connected(hi);
    fixture_send(r, GET, 10);
    r->http->ops->abort(r->http);
    fixture_settle(r);
    assert_true(r->ended);
    fixture_close(r);

    r = connected(hi); /* lingers, so that the client reads the error */
    send_text(r, "GET / HTTP/1.1\r\n\r\n");
    assert_int_equal(fixture_stats(r).open, 1);
    r->http->ops->abort(r->http);
    fixture_settle(r);
    assert_int_equal(fixture_stats(r).open, 0);
    fixture_close(r);
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

static void echo_in_parts(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err = LS_DONE;
    while (x->error == 0) {
        if (r->step == 0) {
            if ((err = ls_exchange_read(ctx, x, &part)) == LS_PENDING) return;
            if (err < 0 || part.len == 0) break;
            r->step = 1;
            if ((err = ls_exchange_write(ctx, x, &part, 1)) == LS_PENDING) return;
            if (err < 0) break;
        }
        r->step = 0;
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
        if (block == NULL) {
            err = LS_ENOMEM;
            break;
        }
        memcpy(block->data, "and then ", 9);
        part = (ls_slice){block, block->data, 9};
        if ((err = ls_exchange_write(ctx, x, &part, 1)) == LS_PENDING) return;
        if (err < 0) break;
    }
    r->error = x->error != 0 ? x->error : err;
    if (r->error >= 0) r->error = ls_exchange_finish(ctx, x);
    fixture_end(r, ctx, x);
}

static void quiet_sink(int level, const char *line, size_t len, void *user)
{
}

/* The same requests with a pool limit of 1, 2, 3, ... blocks: each time the responses are complete or the connection
 * ends. No block leaks. */
TEST(out_of_memory_at_every_step)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char tail[] = "0\r\n\r\n";
    static char chunk[6000];
    unsigned complete = 0, refused_503 = 0, closed = 0;
    ls_log_set_sink(quiet_sink, NULL);
    snprintf(chunk, sizeof chunk, "1000\r\n%04096d\r\n", 0);
    for (size_t blocks = 1; blocks < 80; blocks += blocks < 24 ? 1 : 7) {
        fixture *r = fixture_open(echo_in_parts, blocks * LS_BLOCK_SMALL);
        r->config.linger_ms_max = 1;
        fixture_connect(r);
        send_text(r, GET);
        send_text(r, head);
        for (int i = 0; i < 5; i++) send_text(r, chunk);
        send_text(r, tail);
        send_text(r, GET);
        const char *got = fixture_take(r);
        const size_t len = strlen(got);
        if (!r->ended) {
            complete++;
            assert_memory_equal(got + len - 5, "0\r\n\r\n", 5);
            assert_int_equal(r->starts, 3);
        } else if (strstr(got, "HTTP/1.1 503 ") != NULL) {
            refused_503++;
        } else {
            closed++;
        }
        fixture_close(r); /* asserts that no block is live */
    }
    ls_log_set_sink(NULL, NULL);
    assert_true(complete > 0); /* with the highest limits */
    assert_true(refused_503 + closed > 0);
}
