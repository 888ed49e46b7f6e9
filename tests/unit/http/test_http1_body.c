/* test_http1_body.c - the request body as a handler reads it: every framing split at every byte, limits, 100 Continue,
 * slow clients, clients that close early, and unread bodies. */
/* sanitizers: asan; no thread starts */
#include "http1_fixture.h"

#include "http/http1_internal.h"
#include "net/stream/stream_internal.h"

#define OK      "HTTP/1.1 200 OK\r\nServer: luaserve\r\n"
#define POST    "POST / HTTP/1.1\r\nHost: h\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"

/* Read to the end: LS_DONE, LS_PENDING, or an error. */
static int read_all(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err;
    while ((err = ls_exchange_read(ctx, x, &part)) == LS_DONE && part.len > 0) {
        assert_true(r->body_len + part.len <= sizeof r->body);
        memcpy(r->body + r->body_len, part.ptr, part.len);
        r->body_len += part.len;
        ls_slice_drop(&part);
    }
    return err;
}

/* Respond with the whole body, or with the status for the read error. */
static void echo(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    const int err = read_all(r, ctx, x);
    if (err == LS_PENDING) return;
    r->error = err;
    if (err == LS_DONE) {
        ls_slice whole = ls_slice_static(r->body, r->body_len);
        assert_true(x->body_done);
        assert_int_equal(x->body_bytes, r->body_len);
        assert_int_equal(ls_exchange_read(ctx, x, &part), LS_DONE); /* a second read also returns the end */
        assert_int_equal(part.len, 0);
        (void)ls_exchange_respond(ctx, x, &whole, 1);
    } else {
        x->status = err == LS_EMSGSIZE ? 413 : err == LS_ETIMEDOUT ? 408 : 400;
        (void)ls_exchange_respond(ctx, x, NULL, 0);
    }
    fixture_end(r, ctx, x);
}

/* Respond with the trailers, once the body is read; a read of all of it does not show them before its end. */
static void list_trailers(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_pair field;
    size_t at = 0;
    const int err = read_all(r, ctx, x);
    if (err == LS_PENDING) assert_false(ls_exchange_next_trailer(x, &at, &field));
    if (err == LS_PENDING) return;
    r->body_len = 0;
    x->status = err < 0 ? 400 : 200;
    while (err == LS_DONE && ls_exchange_next_trailer(x, &at, &field))
        r->body_len += (size_t)snprintf(r->body + r->body_len, sizeof r->body - r->body_len, "%.*s=%.*s;",
                                        (int)field.name_len, field.name, (int)field.value_len, field.value);
    ls_slice slice = ls_slice_static(r->body, r->body_len);
    (void)ls_exchange_respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

/* Respond without reading the body. */
static void ignore(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    (void)ls_exchange_respond(ctx, x, NULL, 0);
    fixture_end(r, ctx, x);
}

#define HELLO   OK "Content-Length: 5\r\n\r\nhello"
#define NOTHING OK "Content-Length: 0\r\n\r\n"

static const char two_requests[] =
    POST "Content-Length: 5\r\n\r\nhello" POST CHUNKED "2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n";

TEST(every_framing)
{
    check(echo, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", NOTHING, false);
    check(echo, POST "Content-Length: 0\r\n\r\n", NOTHING, false);
    check(echo, POST "Content-Length: 5\r\n\r\nhello", HELLO, false);
    check(echo, POST CHUNKED "0\r\n\r\n", NOTHING, false);
    check(echo, POST CHUNKED "5\r\nhello\r\n0\r\n\r\n", HELLO, false);
    check(echo, "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
          OK "Content-Length: 5\r\nConnection: close\r\n\r\nhello", true);
    check(echo, two_requests, HELLO HELLO, false);
}

TEST(every_split)
{
    const size_t len = sizeof two_requests - 1;
    for (size_t split = 1; split < len; split++) {
        fixture *r = connected(echo);
        fixture_send(r, two_requests, split);
        fixture_send(r, two_requests + split, len - split);
        assert_string_equal(fixture_take(r), HELLO HELLO);
        fixture_close(r);
    }
}

TEST_WITH(fixture, r, byte_by_byte, connected(echo))
{
    for (size_t i = 0; i < sizeof two_requests - 1; i++) fixture_send(r, two_requests + i, 1);
    assert_string_equal(fixture_take(r), HELLO HELLO);
}

/* Heads with lengths around the size of a receive block: the body begins before, at and behind the end of the
 * block. */
TEST(a_body_behind_a_head_that_fills_the_block)
{
    static char request[LS_BLOCK_SMALL + 200];
    for (int head = LS_BLOCK_SMALL - 3; head <= LS_BLOCK_SMALL + 3; head++) {
        fixture *r = connected(echo);
        const int fixed = (int)sizeof(POST "Content-Length: 5\r\nX-Fill: \r\n\r\n") - 1;
        snprintf(request, sizeof request, POST "Content-Length: 5\r\nX-Fill: %0*d\r\n\r\nhello", head - fixed, 0);
        fixture_send(r, request, (size_t)head); /* the body follows */
        fixture_send(r, request + head, 5);
        assert_string_equal(fixture_take(r), HELLO);
        fixture_send(r, request, (size_t)head + 5); /* head and body together */
        assert_string_equal(fixture_take(r), HELLO);
        fixture_close(r);
    }
}

TEST(a_long_body)
{
    static char request[700000], expected[700000];
    const size_t body = 600000;
    for (int chunked = 0; chunked <= 1; chunked++) {
        fixture *r = connected(echo);
        int at = chunked ? snprintf(request, sizeof request, POST CHUNKED)
                         : snprintf(request, sizeof request, POST "Content-Length: %zu\r\n\r\n", body);
        for (size_t from = 0; from < body; from += 10000) {
            if (chunked) at += snprintf(request + at, sizeof request - (size_t)at, "2710\r\n");
            for (size_t i = from; i < from + 10000; i++) request[at++] = (char)('a' + i % 23);
            if (chunked) at += snprintf(request + at, sizeof request - (size_t)at, "\r\n");
        }
        if (chunked) at += snprintf(request + at, sizeof request - (size_t)at, "0\r\n\r\n");
        fixture_send(r, request, (size_t)at);
        int head = snprintf(expected, sizeof expected, OK "Content-Length: %zu\r\n\r\n", body);
        for (size_t i = 0; i < body; i++) expected[(size_t)head + i] = (char)('a' + i % 23);
        expected[(size_t)head + body] = '\0';
        assert_string_equal(fixture_take(r), expected);
        fixture_close(r);
    }
}

/* ---- limits ------------------------------------------------------------------------------------------------- */

#define TOO_LARGE \
    "HTTP/1.1 413 Content Too Large\r\nServer: luaserve\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

TEST(the_limit_is_exact)
{
    for (int past = 0; past <= 1; past++)
        for (int chunked = 0; chunked <= 1; chunked++) {
            fixture *r = fixture_open(echo, 0);
            char request[200];
            r->config.body_bytes_max = 5;
            fixture_connect(r);
            snprintf(request, sizeof request,
                     chunked ? POST CHUNKED "%d\r\nhello%s\r\n0\r\n\r\n" : POST "Content-Length: %d\r\n\r\nhello%s",
                     5 + past, past ? "!" : "");
            fixture_send(r, request, strlen(request));
            assert_string_equal(fixture_take(r), past ? TOO_LARGE : HELLO);
            assert_int_equal(r->error, past ? LS_EMSGSIZE : LS_DONE);
            assert_int_equal(r->ended, past);
            assert_int_equal(r->body_len, past ? 0 : 5); /* a body above the limit is not returned */
            fixture_close(r);
        }
}

static void without_limit(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->body_bytes_max = UINT64_MAX;
    echo(r, ctx, x);
}

TEST_WITH(fixture, r, a_handler_may_change_the_limit, fixture_open(without_limit, 0))
{
    r->config.body_bytes_max = 1;
    fixture_connect(r);
    fixture_send(r, two_requests, sizeof two_requests - 1);
    assert_string_equal(fixture_take(r), HELLO HELLO);
}

TEST(an_invalid_chunk_is_a_400)
{
    static const char response[] =
        "HTTP/1.1 400 Bad Request\r\nServer: luaserve\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    check(echo, POST CHUNKED "x\r\n", response, true);
    check(echo, POST CHUNKED "5\r\nhello!\r\n0\r\n\r\n", response, true);
}

/* ---- 100 Continue ------------------------------------------------------------------------------------------- */

#define EXPECT   POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
#define CONTINUE "HTTP/1.1 100 Continue\r\n\r\n"

TEST(continue_is_sent_when_the_handler_reads)
{
    fixture *r = connected(echo);
    for (int i = 0; i < 2; i++) {
        fixture_send(r, EXPECT, strlen(EXPECT));
        assert_string_equal(fixture_take(r), CONTINUE);
        fixture_send(r, "hello", 5);
        assert_string_equal(fixture_take(r), HELLO);
    }
    fixture_close(r);
    check(echo, EXPECT "hello", HELLO, false); /* the client did not wait for 100 Continue */
    check(echo, POST "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", NOTHING, false);
}

TEST(continue_is_not_sent_when_the_handler_does_not_read)
{
    check(ignore, EXPECT, OK "Content-Length: 0\r\nConnection: close\r\n\r\n", true);
    fixture *r = fixture_open(echo, 0);
    r->config.body_bytes_max = 4;
    fixture_connect(r);
    fixture_send(r, EXPECT, strlen(EXPECT));
    assert_string_equal(fixture_take(r), TOO_LARGE);
    fixture_close(r);
}

/* Read the body while the pool has no free block. */
static void read_without_memory(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_block *taken[64];
    unsigned count = 0;
    ls_slice part;
    while ((taken[count] = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) != NULL)
        assert_true(++count < sizeof taken / sizeof taken[0]);
    assert_int_equal(ls_exchange_read(ctx, x, &part), LS_ENOMEM);
    while (count > 0) ls_block_drop(taken[--count]);
    ignore(r, ctx, x);
}

/* A client that has its response need not send the body. The server must not take the next bytes for the body. */
TEST_WITH(fixture, r, an_unsent_continue_ends_the_connection,
          fixture_open(read_without_memory, (size_t)32 * LS_BLOCK_SMALL))
{
    fixture_connect(r);
    fixture_send(r, EXPECT, strlen(EXPECT));
    assert_string_equal(fixture_take(r), OK "Content-Length: 0\r\nConnection: close\r\n\r\n");
}

TEST_WITH(fixture, r, without_memory_for_the_trailers, fixture_open(read_without_memory, (size_t)32 * LS_BLOCK_SMALL))
{
    static const char request[] = POST CHUNKED "0\r\nX-A: 1\r\n\r\n" POST "Content-Length: 0\r\n\r\n";
    fixture_connect(r);
    fixture_send(r, request, sizeof request - 1);
    assert_string_equal(fixture_take(r), OK "Content-Length: 0\r\nConnection: close\r\n\r\n");
    assert_int_equal(r->starts, 1);
}

/* Write a part of the response, then the body as another part. */
static void write_then_read(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err;
    if (x->response == LS_RESPONSE_NONE) {
        part = fixture_part(ctx, "first", 5);
        assert_int_equal(ls_exchange_write(ctx, x, &part, 1), LS_DONE);
    }
    while ((err = ls_exchange_read(ctx, x, &part)) == LS_DONE && part.len > 0)
        assert_int_equal(ls_exchange_write(ctx, x, &part, 1), LS_DONE);
    if (err == LS_PENDING) return;
    (void)ls_exchange_finish(ctx, x);
    fixture_end(r, ctx, x);
}

/* There it would be part of the response body. */
TEST_WITH(fixture, r, continue_is_not_sent_behind_the_response_head, connected(write_then_read))
{
    static const char head[] = OK "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nfirst\r\n";
    fixture_send(r, EXPECT, strlen(EXPECT));
    assert_string_equal(fixture_take(r), head);
    fixture_send(r, "hello", 5); /* clients do not wait for 100 Continue indefinitely */
    assert_string_equal(fixture_take(r), "5\r\nhello\r\n0\r\n\r\n");
}

/* ---- unread bodies ------------------------------------------------------------------------------------------ */

TEST(a_short_body_is_skipped)
{
    const size_t len = sizeof two_requests - 1;
    check(ignore, two_requests, NOTHING NOTHING, false);
    for (size_t split = 1; split < len; split++) {
        fixture *r = connected(ignore);
        fixture_send(r, two_requests, split);
        fixture_send(r, two_requests + split, len - split);
        assert_string_equal(fixture_take(r), NOTHING NOTHING);
        assert_int_equal(r->starts, 2);
        fixture_close(r);
    }
}

TEST_WITH(fixture, r, the_response_does_not_wait_for_the_rest_of_the_body, connected(ignore))
{
    fixture_send(r, POST "Content-Length: 5\r\n\r\nhe", sizeof(POST "Content-Length: 5\r\n\r\nhe") - 1);
    assert_string_equal(fixture_take(r), NOTHING);
    fixture_send(r, "llo" POST "Content-Length: 0\r\n\r\n", 3 + sizeof(POST "Content-Length: 0\r\n\r\n") - 1);
    assert_string_equal(fixture_take(r), NOTHING);
}

enum { PARTS_QUEUED = 12, PART_BYTES = LS_BLOCK_LARGE };

static void put_parts(ls_thread_ctx *ctx, ls_exchange *x)
{
    for (int i = 0; i < PARTS_QUEUED; i++) {
        ls_block *block = ls_block_get(ctx->pool, PART_BYTES);
        assert_non_null(block);
        memset(block->data, 'p', PART_BYTES);
        ls_slice part = ls_slice_of(block, 0, PART_BYTES);
        ls_block_drop(block);
        assert_int_equal(ls_exchange_write(ctx, x, &part, 1), LS_DONE);
    }
}

/* The first request queues more bytes than the system takes and leaves its body unread. The second waits before it
 * responds. */
static void parts_then_wait(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->starts == 1) {
        put_parts(ctx, x);
        assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
        fixture_end(r, ctx, x);
    } else if (!r->started) {
        r->started = true;
    } else {
        ignore(r, ctx, x);
    }
}

/* The first response is sent while the handler of the second request waits. Until that handler ends, all packets of
 * the connection are pinned to its actor, also those of several sends. */
TEST_WITH(fixture, r, sends_while_the_next_handler_waits_are_pinned_to_its_actor, fixture_open(parts_then_wait, 0))
{
    static const char requests[] = POST "Content-Length: 5\r\n\r\nhello" POST "Content-Length: 0\r\n\r\n";
    ls_packet packet;
    int sends = 0;
    r->config.write_bytes_high = FIXTURE_TEXT_MAX;
    fixture_connect(r);
    net_write(r->theirs, requests, sizeof requests - 1);
    fixture_pump(r);
    assert_int_equal(r->starts, 2);
    assert_non_null(r->x);
    for (size_t before = SIZE_MAX; before != r->text_len;) {
        before = r->text_len;
        fixture_read(r);
        while (ls_port_wait(r->place.port, &r->place.ctx, &packet, 1, 0) > 0) {
            assert_ptr_equal(packet.op->actor, &r->actor);
            ls_packet_dispatch(&r->place.ctx, &packet);
            sends++;
        }
    }
    assert_true(sends > 0); /* a send was pending when the second request started */
    assert_true(r->text_len > (size_t)PARTS_QUEUED * PART_BYTES);
    assert_memory_equal(r->text + r->text_len - 7, "\r\n0\r\n\r\n", 7);
    (void)fixture_take(r);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), NOTHING);
}

TEST(trailers_of_a_body)
{
    static const char request[] =
        POST CHUNKED "2\r\nhe\r\n0\r\nX-A:1\r\nhost: other\r\nX-B:\t \t\r\n"
                     "Content-Length: 9\r\nx-a: \t2 3\t \r\n\r\n" POST "Content-Length: 5\r\n\r\nhello";
    const size_t len = sizeof request - 1;
    check(list_trailers, POST CHUNKED "0\r\n\r\n", NOTHING, false);
    for (size_t split = 1; split <= len; split++) {
        fixture *r = connected(list_trailers);
        fixture_send(r, request, split);
        if (split < len) fixture_send(r, request + split, len - split);
        assert_string_equal(fixture_take(r), OK "Content-Length: 19\r\n\r\nX-A=1;X-B=;x-a=2 3;" NOTHING);
        fixture_close(r);
    }
}

/* The section, which is longer than a small block, has at most LS_CHUNK_TRAILER_BYTES_MAX bytes. */
TEST(limit_of_the_trailers)
{
    static const char before[] = POST CHUNKED "0\r\nX-A: 1\r\nX: ", around[] = "X-A: 1\r\nX: \r\n\r\n";
    static char request[sizeof before + LS_CHUNK_TRAILER_BYTES_MAX];
    for (size_t past = 0; past <= 1; past++) {
        fixture *r = connected(list_trailers);
        const size_t fill = LS_CHUNK_TRAILER_BYTES_MAX - (sizeof around - 1) + past;
        size_t len = sizeof before - 1;
        memcpy(request, before, len);
        memset(request + len, 'v', fill);
        memcpy(request + len + fill, "\r\n\r\n", 4);
        len += fill + 4;
        for (size_t at = 0, part = 1000; at < len; at += part) {
            if (part > len - at) part = len - at;
            fixture_send(r, request + at, part);
        }
        assert_int_equal(r->body_len, past ? 0 : sizeof "X-A=1;X=;" - 1 + fill);
        assert_int_equal(r->ended, past); /* 400, and the connection is closed */
        fixture_close(r);
    }
}

TEST(a_long_unread_body_ends_the_connection)
{
    for (int past = 0; past <= 1; past++) { /* with Content-Length: decided with the response head */
        fixture *r = fixture_open(ignore, 0);
        char request[100];
        r->config.unread_bytes_max = 100;
        fixture_connect(r);
        snprintf(request, sizeof request, POST "Content-Length: %d\r\n\r\n", 100 + past);
        fixture_send(r, request, strlen(request));
        assert_string_equal(fixture_take(r), past ? OK "Content-Length: 0\r\nConnection: close\r\n\r\n" : NOTHING);
        assert_int_equal(r->ended, past);
        fixture_close(r);
    }
    for (int past = 0; past <= 1; past++) { /* chunked: found while the body is skipped */
        fixture *r = fixture_open(ignore, 0);
        char request[400];
        r->config.unread_bytes_max = 100;
        fixture_connect(r);
        snprintf(request, sizeof request, POST CHUNKED "%x\r\n%0*d\r\n0\r\n\r\n" POST "Content-Length: 0\r\n\r\n",
                 100 + past, 100 + past, 0);
        fixture_send(r, request, strlen(request));
        assert_string_equal(fixture_take(r), past ? NOTHING : NOTHING NOTHING);
        assert_int_equal(r->ended, past);
        fixture_close(r);
    }
}

/* Read once, and leave the rest. */
static void read_once(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    if (ls_exchange_read(ctx, x, &part) == LS_PENDING) return;
    ls_slice_drop(&part);
    ignore(r, ctx, x);
}

TEST(only_unread_bytes_count_for_the_limit)
{
    for (int chunked = 0; chunked <= 1; chunked++) {
        fixture *r = fixture_open(read_once, 0);
        char request[400];
        r->config.unread_bytes_max = 100;
        fixture_connect(r);
        snprintf(request, sizeof request,
                 chunked ? POST CHUNKED "5a\r\n%090d\r\n" : POST "Content-Length: 180\r\n\r\n%090d", 0);
        fixture_send(r, request, strlen(request));
        assert_string_equal(fixture_take(r), NOTHING); /* the response has no Connection: close */
        snprintf(request, sizeof request, chunked ? "5a\r\n%090d\r\n0\r\n\r\n%s" : "%090d%s", 0,
                 POST "Content-Length: 0\r\n\r\n");
        fixture_send(r, request, strlen(request));
        assert_string_equal(fixture_take(r), NOTHING);
        fixture_close(r);
    }
}

/* ---- slow clients, and clients that close early ------------------------------------------------------------- */

TEST_WITH(fixture, r, a_slow_body_times_out, fixture_open(echo, 0))
{
    r->config.body_grace_ms = 10;
    r->config.body_rate_min = 0; /* the whole body within body_grace_ms */
    r->config.linger_ms_max = 10;
    fixture_connect(r);
    fixture_send(r, POST "Content-Length: 5\r\n\r\nhell", sizeof(POST "Content-Length: 5\r\n\r\nhell") - 1);
    fixture_until_ended(r);
    assert_int_equal(r->error, LS_ETIMEDOUT);
    assert_string_equal(fixture_take(r), "HTTP/1.1 408 Request Timeout\r\nServer: luaserve\r\nContent-Length: 0\r\n"
                                         "Connection: close\r\n\r\n");
}

/* Queue more than the system takes, then read the body. */
static void parts_then_read(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (!r->started) {
        r->started = true;
        put_parts(ctx, x);
        assert_int_equal(ls_exchange_flush(ctx, x), LS_DONE);
    }
    r->error = read_all(r, ctx, x);
    if (r->error == LS_PENDING) return;
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

/* From now to a deadline of the stream, in ms. */
static uint32_t from_now_ms(const _Atomic uint32_t *deadline)
{
    assert_int_not_equal(atomic_load(deadline), 0);
    return atomic_load(deadline) - (uint32_t)ls_clock_coarse_ms();
}

/* While a send is pending, its deadline applies beside that of the body. */
TEST_WITH(fixture, r, the_body_and_the_send_have_deadlines_of_their_own, fixture_open(parts_then_read, 0))
{
    enum { STALL_MS = 60000, GRACE_MS = 600000 };
    r->config.write_bytes_high = FIXTURE_TEXT_MAX;
    r->config.send_stall_ms_max = STALL_MS;
    r->config.body_grace_ms = GRACE_MS;
    fixture_connect(r);
    net_write(r->theirs, POST "Content-Length: 5\r\n\r\nhell", sizeof(POST "Content-Length: 5\r\n\r\nhell") - 1);
    FIXTURE_UNTIL(r, r->x != NULL);
    const ls_stream *s = ls_http1_stream(ls_http1_conn_of(r->x));
    assert_true(from_now_ms(&s->send_at) <= STALL_MS);
    assert_true(from_now_ms(&s->recv_at) > STALL_MS);
    fixture_settle(r);
    assert_true(r->text_len > (size_t)PARTS_QUEUED * PART_BYTES);
    assert_int_equal(atomic_load(&s->send_at), 0);
    assert_true(from_now_ms(&s->recv_at) > STALL_MS);
    fixture_send(r, "o", 1);
    assert_null(r->x);
    assert_int_equal(r->error, LS_DONE);
    assert_memory_equal(r->body, "hello", 5);
}

TEST_WITH(fixture, r, a_slow_unread_body_ends_the_connection, fixture_open(ignore, 0))
{
    r->config.body_grace_ms = 10;
    r->config.linger_ms_max = 10;
    fixture_connect(r);
    fixture_send(r, POST "Content-Length: 5\r\n\r\nhell", sizeof(POST "Content-Length: 5\r\n\r\nhell") - 1);
    fixture_until_ended(r);
    assert_string_equal(fixture_take(r), NOTHING);
}

TEST(a_client_that_closes_early)
{
    for (int closes = 0; closes <= 1; closes++) {
        fixture *r = connected(echo);
        fixture_send(r, POST "Content-Length: 5\r\n\r\nhell", sizeof(POST "Content-Length: 5\r\n\r\nhell") - 1);
        assert_non_null(r->x);
        if (closes) {
            close(r->theirs);
            r->theirs = -1;
            fixture_pump(r);
        } else {
            assert_int_equal(shutdown(r->theirs, SHUT_WR), 0);
            fixture_settle(r);
            assert_true(r->ended);
            assert_string_equal(fixture_take(r), ""); /* no response to an incomplete request */
        }
        assert_null(r->x);
        assert_int_equal(r->error, LS_ECLOSED);
        fixture_close(r);
    }
}

/* ---- reading and writing at the same time ------------------------------------------------------------------- */

static void mirror(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err;
    for (;;) {
        if (r->step == 0) {
            if ((err = ls_exchange_read(ctx, x, &part)) == LS_PENDING) return;
            assert_int_equal(err, LS_DONE);
            if (part.len == 0) break;
            r->step = 1;
            if (ls_exchange_write(ctx, x, &part, 1) == LS_PENDING) return;
        }
        r->step = 0;
    }
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, a_body_is_echoed_while_it_arrives, connected(mirror))
{
    fixture_send(r, POST "Content-Length: 10\r\n\r\n", sizeof(POST "Content-Length: 10\r\n\r\n") - 1);
    assert_string_equal(fixture_take(r), "");
    fixture_send(r, "hello", 5);
    assert_string_equal(fixture_take(r), OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    fixture_send(r, "world", 5);
    assert_string_equal(fixture_take(r), "5\r\nworld\r\n0\r\n\r\n");
    ls_pools_stats stats;
    ls_pools_stat(r->place.pools, &stats);
    assert_int_equal(stats.bytes_copied, 0);
}
