/* test_http1_upgrade.c - a connection that leaves HTTP/1.1: the head of the response, what the new owner gets, what is
 * left of the exchange, refusals, and a copy of the request that stays. */
/* sanitizers: asan; no thread starts */
#include "http1_fixture.h"

#include "system.h"

#define UPGRADE   "GET /u?a=b HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: other, Echo/2\r\n\r\n"
#define CONNECT   "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n"
#define GET       "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
#define OK        "HTTP/1.1 200 OK\r\nServer: luaserve\r\n"
#define HI        OK "Content-Length: 2\r\n\r\nhi"
#define SWITCHING "HTTP/1.1 101 Switching Protocols\r\nServer: luaserve\r\nConnection: upgrade\r\nUpgrade: echo/2\r\n"

/* ---- the protocol: returns all bytes, and closes at the end
 * --------------------------------------------------------- */

typedef struct echo {
    ls_conn_limit *limit;
    int receives, sends;
} echo;

static echo *last_echo;

static void echo_on(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    int err = LS_DONE;
    while (err == LS_DONE && result > 0) {
        const ls_slice bytes = ls_stream_take(s);
        assert_int_equal(ls_stream_push(ctx, s, &bytes), LS_OK);
        (void)ls_stream_flush(ctx, s);
        err = ls_stream_recv(ctx, s, NULL, LS_BLOCK_SMALL, &result);
    }
    if (err != LS_PENDING) ls_stream_close(ctx, s);
}

static void echo_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ((echo *)ls_stream_user(s))->receives++;
    echo_on(ctx, s, result);
}

static void echo_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    ((echo *)ls_stream_user(s))->sends++;
}

static void echo_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_conn_limit *limit = ((echo *)ls_stream_user(s))->limit;
    last_echo = NULL;
    ls_stream_free(s);
    ls_conn_limit_leave(limit);
}

static const ls_stream_handler echo_handler = {.received = echo_received, .sent = echo_sent, .closed = echo_closed};

static int take_over(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol)
{
    ls_upgraded up;
    int64_t result;
    const int err = ls_exchange_upgrade(ctx, x, protocol, strlen(protocol), &echo_handler, sizeof(echo), &up);
    if (err < 0) return err;
    last_echo = ls_stream_user(up.stream);
    last_echo->limit = up.limit;
    (void)ls_stream_flush(ctx, up.stream);
    const int received = ls_stream_recv(ctx, up.stream, NULL, LS_BLOCK_SMALL, &result);
    if (received != LS_PENDING) echo_on(ctx, up.stream, received < 0 ? received : result);
    return err;
}

/* ---- handlers ------------------------------------------------------------------------------------------------- */

static void hi(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hi", 2);
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

static bool is_path(const ls_exchange *x, const char *path)
{
    return x->head.path.len == strlen(path) && memcmp(x->bytes + x->head.path.at, path, strlen(path)) == 0;
}

/* Upgrade requests for /u, and of CONNECT; respond to others. */
static void upgrading(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (!is_path(x, "/u") && x->head.method != LS_HTTP_CONNECT) {
        hi(r, ctx, x);
        return;
    }
    r->error = take_over(ctx, x, "echo/2");
    if (r->error < 0) {
        hi(r, ctx, x);
    } else {
        assert_true(ls_exchange_upgraded(x));
        fixture_end(r, ctx, x);
    }
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

TEST(an_upgrade)
{
    fixture *r = connected(upgrading);
    send_text(r, UPGRADE);
    assert_int_equal(r->error, LS_OK);
    assert_string_equal(fixture_take(r), SWITCHING "\r\n");
    assert_int_equal(fixture_stats(r).open, 0);
    assert_int_equal(atomic_load(&r->conn_limit.count), 1); /* it keeps its place */
    send_text(r, "some bytes");
    assert_string_equal(fixture_take(r), "some bytes");
    send_text(r, GET); /* not HTTP any more */
    assert_string_equal(fixture_take(r), GET);
    const ls_http_stats stats = fixture_stats(r);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.responses, 1);
    assert_int_equal(stats.connections, 1);
    fixture_close(r);
    assert_null(last_echo);
}

TEST(bytes_behind_the_head)
{
    fixture *r = connected(upgrading);
    send_text(r, UPGRADE "at once" GET);
    assert_string_equal(fixture_take(r), SWITCHING "\r\nat once" GET);
    fixture_close(r);
    r = connected(upgrading);
    for (const char *at = UPGRADE "xyz"; *at != '\0'; at++) fixture_send(r, at, 1);
    assert_string_equal(fixture_take(r), SWITCHING "\r\nxyz");
    fixture_close(r);
}

TEST_WITH(fixture, r, earlier_responses_leave_first, connected(upgrading))
{
    send_text(r, GET GET UPGRADE "!");
    assert_string_equal(fixture_take(r), HI HI SWITCHING "\r\n!");
}

static void flushed_before(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static const char plenty[4 << 20];
    if (is_path(x, "/u")) {
        assert_true(ls_stream_sending(ls_stream_of(x->conn)));
        upgrading(r, ctx, x);
        return;
    }
    if (r->step++ == 0) {
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
        assert_non_null(block);
        memset(block->data, 'x', LS_BLOCK_LARGE);
        for (int n = 0; n < (int)(sizeof plenty / LS_BLOCK_LARGE); n++)
            r->slices[n] = ls_slice_of(block, 0, LS_BLOCK_LARGE);
        (void)ls_exchange_respond(ctx, x, r->slices, sizeof plenty / LS_BLOCK_LARGE);
        ls_block_drop(block);
        (void)ls_exchange_flush(ctx, x);
        fixture_end(r, ctx, x); /* the send of this response is pending */
    }
}

TEST_WITH(fixture, r, a_pending_send_of_an_earlier_response, fixture_open(flushed_before, 0))
{
    r->config.write_bytes_high = 64 << 20;
    fixture_connect(r);
    /* both requests in one receive; the response is longer than the socket takes */
    assert_int_equal(send(r->theirs, GET UPGRADE "!", strlen(GET UPGRADE "!"), MSG_NOSIGNAL), strlen(GET UPGRADE "!"));
    size_t sum = 0;
    char tail[256] = "";
    static char part[65536];
    const size_t head = strlen(OK "Content-Length: 4194304\r\n\r\n") + 37, switching = strlen(SWITCHING "\r\n!") + 37;
    for (int i = 0; i < 100000 && sum < head + (4u << 20) + switching; i++) {
        fixture_pump(r);
        const ssize_t n = recv(r->theirs, part, sizeof part, MSG_DONTWAIT);
        if (n <= 0) continue;
        sum += (size_t)n;
        if ((size_t)n < sizeof tail)
            memcpy(tail, part, (size_t)n);
        else
            memcpy(tail, part + n - sizeof tail + 1, sizeof tail - 1);
    }
    assert_int_equal(sum, head + (4u << 20) + switching);
    assert_int_equal(r->error, LS_OK);
    assert_non_null(strstr(tail, "!"));
    assert_true(last_echo->sends > 0);
}

TEST_WITH(fixture, r, a_tunnel, connected(upgrading))
{
    send_text(r, CONNECT "through");
    assert_string_equal(fixture_take(r), OK "\r\nthrough");
}

static void with_fields(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    assert_int_equal(ls_exchange_header(ctx, x, "X-A", 3, "1", 1, false), LS_OK);
    assert_int_equal(ls_exchange_header(ctx, x, "Server", 6, "mine", 4, false), LS_OK);
    upgrading(r, ctx, x);
}

TEST_WITH(fixture, r, the_fields_of_the_response, connected(with_fields))
{
    send_text(r, UPGRADE);
    assert_string_equal(fixture_take(r),
                        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo/2\r\n"
                        "X-A: 1\r\nServer: mine\r\n\r\n");
}

static void at_the_end_of_a_body(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part = ls_slice_static(NULL, 0);
    int err = LS_DONE;
    if (r->step == 0) {
        r->error = take_over(ctx, x, "echo/2");
        assert_int_equal(r->error, x->body_done ? LS_OK : LS_EINVAL);
        r->step = 1;
    }
    while (!x->body_done && (err = ls_exchange_read(ctx, x, &part)) == LS_DONE) ls_slice_drop(&part);
    if (err == LS_PENDING) return;
    upgrading(r, ctx, x);
}

TEST_WITH(fixture, r, a_body_comes_first, connected(at_the_end_of_a_body))
{
    send_text(r,
              "POST /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo/2\r\nContent-Length: 5\r\n\r\nab");
    assert_string_equal(fixture_take(r), "");
    send_text(r, "cdebehind");
    assert_string_equal(fixture_take(r), SWITCHING "\r\nbehind");
}

TEST_WITH(fixture, r, refusals, connected(upgrading))
{
    static const char *const requests[] = {
        "GET /u HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /u HTTP/1.1\r\nHost: h\r\nUpgrade: echo/2\r\n\r\n",                      /* no Connection: upgrade */
        "GET /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", /* another protocol */
        "GET /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo/22\r\n\r\n",
        "GET /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade:\r\n\r\n",
    };
    for (size_t n = 0; n < sizeof requests / sizeof requests[0]; n++) {
        send_text(r, requests[n]);
        assert_int_equal(r->error, LS_EINVAL);
        assert_string_equal(fixture_take(r), HI); /* nothing has changed */
    }
    send_text(r, "GET /u HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: echo/2\r\n\r\n");
    assert_int_equal(r->error, LS_EINVAL);
    fixture_until_ended(r);
}

static void begun(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part = ls_slice_static("hi", 2);
    (void)ls_exchange_write(ctx, x, &part, 1);
    r->error = take_over(ctx, x, "echo/2");
    (void)ls_exchange_finish(ctx, x);
    fixture_end(r, ctx, x);
}

static void bad_status(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->status = 300;
    r->error = take_over(ctx, x, "");
    x->status = 200;
    hi(r, ctx, x);
}

static void aborted(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_exchange_abort(ctx, x);
    r->error = take_over(ctx, x, "echo/2");
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, it_is_too_late, connected(begun))
{
    send_text(r, UPGRADE);
    assert_int_equal(r->error, LS_EBUSY);
    assert_string_equal(fixture_take(r), OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
    r->run = bad_status;
    send_text(r, CONNECT GET);
    assert_int_equal(r->error, LS_EINVAL);
    assert_string_equal(fixture_take(r), OK "Content-Length: 2\r\nConnection: close\r\n\r\nhi");
    fixture_disconnect(r);
    fixture_connect(r);
    r->run = aborted;
    send_text(r, UPGRADE);
    assert_int_equal(r->error, LS_ECANCELED);
    fixture_until_ended(r);
}

/* The handler keeps the exchange. */
static void staying(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hi", 2);
    if (!r->started) {
        r->started = true;
        assert_int_equal(take_over(ctx, x, "echo/2"), LS_OK);
        return;
    }
    assert_true(is_path(x, "/u"));
    assert_int_equal(x->status, 101);
    assert_int_equal(x->response, LS_RESPONSE_DONE);
    assert_int_equal(ls_exchange_flush(ctx, x), LS_ECLOSED);
    assert_int_equal(ls_exchange_write(ctx, x, &slice, 1), LS_ECLOSED);
    assert_int_equal(ls_exchange_finish(ctx, x), LS_ECLOSED);
    assert_int_equal(ls_exchange_upgrade(ctx, x, "echo/2", 6, &echo_handler, 1, NULL), LS_ECLOSED);
    assert_int_equal(ls_exchange_read(ctx, x, &slice), LS_DONE);
    assert_int_equal(slice.len, 0);
    assert_null(x->stream);
    assert_int_equal(x->transport->local(x)->family, system_has_unix_sockets() ? LS_ADDR_UNIX : LS_ADDR_IP4);
    ls_exchange_abort(ctx, x);
    fixture_end(r, ctx, x);
}

/* Dispatch packets until the new owner has found that the connection is lost. */
static void await_the_loss(fixture *r)
{
    while (atomic_load(&r->conn_limit.count) > 0) {
        const ls_packet packet = net_next(&r->place);
        ls_packet_dispatch(&r->place.ctx, &packet);
    }
}

TEST(the_exchange_stays_until_its_release)
{
    for (int lost = 0; lost < 2; lost++) {
        fixture *r = fixture_open(staying, 0);
        ls_addr any;
        assert_int_equal(ls_addr_parse("0.0.0.0", 0, &any), LS_OK);
        fixture_serve(r);
        ls_http1_local(r->http, &any); /* so that the address is that of the socket */
        fixture_connect(r);
        send_text(r, UPGRADE "a");
        assert_string_equal(fixture_take(r), SWITCHING "\r\na");
        assert_int_equal(fixture_stats(r).open, 1);
        send_text(r, "b");
        assert_string_equal(fixture_take(r), "b");
        if (lost) {
            close(r->theirs);
            r->theirs = -1;
            await_the_loss(r);
        }
        fixture_resume(r);
        assert_int_equal(fixture_stats(r).open, 0);
        fixture_close(r);
    }
}

static void after_a_wait(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->started) upgrading(r, ctx, x);
    r->started = true;
}

TEST(after_a_wait_the_connection_may_be_lost)
{
    const struct linger reset = {1, 0};
    fixture *r = connected(after_a_wait);
    send_text(r, UPGRADE "behind");
    assert_string_equal(fixture_take(r), "");
    fixture_resume(r); /* the watch of the waiting handler ends */
    assert_string_equal(fixture_take(r), SWITCHING "\r\nbehind");
    fixture_close(r);
    r = connected(after_a_wait);
    send_text(r, UPGRADE);
    assert_int_equal(setsockopt(r->theirs, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(r->theirs);
    r->theirs = -1;
    if (system_watches_connections()) {
        const ls_packet lost = net_next(&r->place);
        fixture_resume(r); /* before that packet is dispatched */
        assert_int_equal(r->error, LS_ERESET);
        ls_packet_dispatch(&r->place.ctx, &lost);
    } else {
        fixture_resume(r);
        assert_int_equal(r->error, LS_OK);
        await_the_loss(r);
    }
    fixture_close(r);
}

TEST_WITH(fixture, r, drain_and_abort_leave_it_alone, connected(upgrading))
{
    send_text(r, UPGRADE);
    assert_int_equal(r->http->ops->drain(r->http, true), 0);
    r->http->ops->abort(r->http);
    fixture_settle(r);
    (void)fixture_take(r);
    send_text(r, "on");
    assert_string_equal(fixture_take(r), "on");
}

static void abort_first(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    r->http->ops->abort(r->http);
    r->error = take_over(ctx, x, "echo/2");
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, an_abort_comes_first, connected(abort_first))
{
    send_text(r, UPGRADE);
    assert_int_equal(r->error, LS_ECLOSED);
    fixture_until_ended(r);
    assert_string_equal(fixture_take(r), "");
}

/* ---- a copy that stays
 * -------------------------------------------------------------------------------------------- */

static ls_exchange *copy;

static void keeping(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    copy = ls_exchange_keep(x);
    hi(r, ctx, x);
}

static bool span_is(const ls_exchange *x, ls_span span, const char *text)
{
    return span.len == strlen(text) && memcmp(x->bytes + span.at, text, span.len) == 0;
}

TEST(a_copy_of_the_request_stays)
{
    fixture *r = connected(keeping);
    send_text(r, "\r\nPOST /p?q=1 HTTP/1.1\r\nHost: h:1\r\nX-A: b \r\nContent-Length: 0\r\n\r\n");
    ls_exchange_release(&r->place.ctx, copy);
    send_text(r, GET);
    ls_exchange *const last = copy;
    assert_true(span_is(last, last->head.path, "/"));
    ls_exchange_release(&r->place.ctx, last);
    send_text(r, "POST /p?q=1 HTTP/1.1\r\nHost: h:1\r\nX-A: b \r\nContent-Length: 0\r\n\r\n");
    ls_exchange *x = copy;
    (void)fixture_take(r);
    fixture_close(r);

    ls_thread_ctx ctx = {.port = NULL};
    ls_slice slice = ls_slice_static("hi", 2);
    assert_int_equal(x->head.method, LS_HTTP_POST);
    assert_true(span_is(x, x->head.method_name, "POST"));
    assert_true(span_is(x, x->head.target, "/p?q=1"));
    assert_true(span_is(x, x->head.path, "/p"));
    assert_true(span_is(x, x->head.query, "q=1"));
    assert_true(span_is(x, x->head.host, "h:1"));
    assert_int_equal(x->head.field_count, 3);
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "x-a", 3);
    assert_non_null(field);
    assert_true(span_is(x, field->value, "b"));
    assert_int_equal(x->remote->family, LS_ADDR_UNIX);
    assert_non_null(x->transport->local(x));
    assert_int_equal(ls_exchange_respond(&ctx, x, &slice, 1), LS_ECLOSED);
    assert_int_equal(ls_exchange_flush(&ctx, x), LS_ECLOSED);
    assert_int_equal(ls_exchange_read(&ctx, x, &slice), LS_DONE);
    assert_int_equal(slice.len, 0);
    assert_int_equal(ls_exchange_upgrade(&ctx, x, "a", 1, NULL, 0, NULL), LS_ECLOSED);
    ls_exchange_abort(&ctx, x);
    ls_exchange_release(&ctx, x);
}
