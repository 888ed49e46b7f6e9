/* test_http1_write.c - the bytes of responses: heads, bodies with Content-Length, chunked parts, and omitted
 * bodies. */
/* sanitizers: asan; no thread starts */
#include "http1_fixture.h"

#include "port/file/shared_file.h"

#define GET       "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
#define GET_CLOSE "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
#define HEAD      "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n"
#define GET_OLD   "GET / HTTP/1.0\r\n\r\n"
#define OK        "HTTP/1.1 200 OK\r\nServer: luaserve\r\n"

/* ---- whole responses ---------------------------------------------------------------------------------------- */

static void respond_text(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("hello", 5);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    assert_int_equal(x->response, LS_RESPONSE_DONE);
    fixture_end(r, ctx, x);
}

static void respond_201(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slices[3] = {ls_slice_static("a", 1), ls_slice_static("", 0), ls_slice_static("bc", 2)};
    x->status = 201;
    x->type = "text/plain";
    assert_int_equal(ls_exchange_header(ctx, x, "Location", 8, "/x", 2, false), LS_OK);
    assert_int_equal(ls_exchange_respond(ctx, x, slices, 3), LS_DONE);
    fixture_end(r, ctx, x);
}

static void respond_204(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("never seen", 10);
    x->status = 204;
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

static void respond_304(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->status = 304;
    assert_int_equal(ls_exchange_respond(ctx, x, NULL, 0), LS_DONE);
    fixture_end(r, ctx, x);
}

static void respond_empty(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE); /* no part was written */
    fixture_end(r, ctx, x);
}

static void respond_unknown(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->status = 599;
    assert_int_equal(ls_exchange_respond(ctx, x, NULL, 0), LS_DONE);
    fixture_end(r, ctx, x);
}

#define TEXT OK "Content-Type: text/plain\r\nContent-Length: 5\r\n"

TEST(whole_responses)
{
    check(respond_text, GET, TEXT "\r\nhello", false);
    check(respond_text, GET_CLOSE, TEXT "Connection: close\r\n\r\nhello", true);
    check(respond_text, GET_OLD, TEXT "Connection: close\r\n\r\nhello", true);
    check(respond_text, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", TEXT "Connection: keep-alive\r\n\r\nhello",
          false);
    check(respond_201, GET,
          "HTTP/1.1 201 Created\r\nServer: luaserve\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
          "Location: /x\r\n\r\nabc",
          false);
    check(respond_empty, GET, OK "Content-Length: 0\r\n\r\n", false);
    check(respond_unknown, GET, "HTTP/1.1 599 \r\nServer: luaserve\r\nContent-Length: 0\r\n\r\n", false);
}

TEST(responses_without_a_body)
{
    check(respond_text, HEAD HEAD, TEXT "\r\n" TEXT "\r\n", false);
    check(respond_201, HEAD,
          "HTTP/1.1 201 Created\r\nServer: luaserve\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
          "Location: /x\r\n\r\n",
          false);
    check(respond_204, GET GET,
          "HTTP/1.1 204 No Content\r\nServer: luaserve\r\n\r\nHTTP/1.1 204 No Content\r\nServer: luaserve\r\n\r\n",
          false);
    check(respond_304, GET, "HTTP/1.1 304 Not Modified\r\nServer: luaserve\r\n\r\n", false);
}

TEST_WITH(fixture, r, pipelined_responses_leave_in_one_send, connected(respond_text))
{
    fixture_send(r, GET, strlen(GET));
    const uint64_t before = atomic_load(&r->place.ctx.stats.send_inline);
    fixture_send(r, GET GET GET, 3 * strlen(GET));
    assert_int_equal(atomic_load(&r->place.ctx.stats.send_inline) - before, 1);
    assert_string_equal(fixture_take(r), TEXT "\r\nhello" TEXT "\r\nhello" TEXT "\r\nhello" TEXT "\r\nhello");
    assert_int_equal(r->starts, 4);
}

/* The extra fields are copied behind the head, or sent from their own block. */
static void respond_fields(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static char value[4000];
    ls_slice slice = ls_slice_static("hello", 5);
    memset(value, 'v', sizeof value);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ls_exchange_header(ctx, x, "X-Long", 6, value, r->body[0] ? sizeof value : 10, false), LS_OK);
    assert_int_equal(ls_exchange_header(ctx, x, "Content-Type", 12, "a/b", 3, false), LS_OK);
    x->type = "text/plain"; /* without effect: the handler set a Content-Type */
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST(extra_fields)
{
    for (int is_long = 0; is_long <= 1; is_long++) {
        fixture *r = connected(respond_fields);
        char expected[20000];
        int at = snprintf(expected, sizeof expected, OK "Content-Length: 5\r\n");
        r->body[0] = (char)is_long;
        for (int i = 0; i < 4; i++) {
            at += snprintf(expected + at, sizeof expected - (size_t)at, "X-Long: ");
            memset(expected + at, 'v', is_long ? 4000 : 10);
            at += is_long ? 4000 : 10;
            at += snprintf(expected + at, sizeof expected - (size_t)at, "\r\n");
        }
        snprintf(expected + at, sizeof expected - (size_t)at, "Content-Type: a/b\r\n\r\nhello");
        fixture_send(r, GET, strlen(GET));
        assert_string_equal(fixture_take(r), expected);
        fixture_close(r);
    }
}

/* Bytes of the handlers, and an external block for them. */
static char big[300000];
static ls_external big_block;
static int big_released;

static void release_big(ls_external *external)
{
    assert_ptr_equal(external, &big_block);
    big_released++;
}

static ls_slice big_slice(size_t len)
{
    ls_external_init(&big_block, LS_BLOCK_EXTERNAL, release_big);
    return ls_slice_external(&big_block, big, len);
}

static void respond_with_a_server(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice body = ls_slice_static("x", 1);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_header(ctx, x, "X-Server", 8, "no", 2, false), LS_OK);
    if (x->head.method == LS_HTTP_GET)
        assert_int_equal(ls_exchange_header(ctx, x, "server", 6, "mine", 4, false), LS_OK);
    assert_int_equal(ls_exchange_respond(ctx, x, &body, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST(a_server_field_of_the_site_replaces_the_default)
{
    check(respond_with_a_server, "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1\r\nX-Server: no\r\nserver: mine\r\n\r\nx",
          false);
    check(respond_with_a_server, "PUT / HTTP/1.1\r\nHost: h\r\n\r\n",
          "HTTP/1.1 200 OK\r\nServer: luaserve\r\nContent-Type: text/plain\r\nContent-Length: 1\r\nX-Server: "
          "no\r\n\r\nx",
          false);
}

static void fill_big(void)
{
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)('a' + i % 23);
}

/* The client receives the response with `len` bytes of `big`. */
static void expect_big(fixture *r, size_t len)
{
    char head[100];
    fixture_settle(r);
    const size_t head_len =
        (size_t)snprintf(head, sizeof head, OK "Content-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", len);
    const char *got = fixture_take(r);
    assert_memory_equal(got, head, head_len);
    assert_int_equal(strlen(got), head_len + len);
    fill_big();
    assert_memory_equal(got + head_len, big, len);
}

static void respond_big(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = big_slice(sizeof big);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, a_block_is_sent_without_a_copy_and_then_released, connected(respond_big))
{
    ls_pools_stats stats;
    fill_big();
    big_released = 0;
    net_write(r->theirs, GET, strlen(GET));
    fixture_pump(r);
    assert_null(r->x);
    assert_int_equal(big_released, 0); /* the client has not read yet */
    expect_big(r, sizeof big);
    assert_int_equal(big_released, 1);
    ls_pools_stat(r->place.pools, &stats);
    assert_int_equal(stats.bytes_copied, 0);
}

static size_t block_len;

static void respond_block(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = big_slice(block_len);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    block_len = (size_t)big_released; /* when respond returns */
    fixture_end(r, ctx, x);
}

TEST(a_small_block_is_copied_beside_the_head)
{
    static const struct {
        size_t len;
        bool copied;
    } rows[] = {{1, true}, {2047, true}, {2048, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture *r = connected(respond_block);
        fill_big();
        big_released = 0;
        block_len = rows[i].len;
        net_write(r->theirs, GET, strlen(GET));
        fixture_pump(r);
        assert_int_equal(block_len, rows[i].copied);
        expect_big(r, rows[i].len);
        assert_int_equal(big_released, 1);
        fixture_close(r);
    }
}

TEST_WITH(fixture, r, a_block_is_released_when_the_connection_is_lost, connected(respond_big))
{
    big_released = 0;
    net_write(r->theirs, GET, strlen(GET));
    fixture_pump(r);
    assert_int_equal(big_released, 0);
    close(r->theirs);
    r->theirs = -1;
    fixture_settle(r);
    assert_int_equal(big_released, 1);
}

static size_t static_len;

static void respond_static(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static(big, static_len);
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    memset(big, '-', sizeof big);
    fixture_end(r, ctx, x);
}

TEST(bytes_without_a_block_are_copied_before_the_call_returns)
{
    static const size_t lengths[] = {
        /* clang-format off */
        0, 16383, 16384, LS_BLOCK_LARGE, /* below 16384 beside the head */
        LS_BLOCK_LARGE + 1, sizeof big,
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fixture *r = connected(respond_static);
        static_len = lengths[i];
        fill_big();
        net_write(r->theirs, GET, strlen(GET));
        fixture_pump(r);
        assert_null(r->x);
        expect_big(r, static_len);
        fixture_close(r);
    }
}

/* ---- parts -------------------------------------------------------------------------------------------------- */

enum { LARGE_PART_BYTES = 65536 };

/* r->body is a list of calls, one letter each. */
static void make_calls(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    while (r->body[r->step] != '\0') {
        ls_slice parts[2];
        int err = LS_DONE;
        switch (r->body[r->step++]) {
        case 's': /* one small part */
            parts[0] = fixture_part(ctx, "abc", 3);
            err = ls_exchange_write(ctx, x, parts, 1);
            break;
        case 'm': /* two slices in one call */
            parts[0] = fixture_part(ctx, "abc", 3);
            parts[1] = fixture_part(ctx, "de", 2);
            err = ls_exchange_write(ctx, x, parts, 2);
            break;
        case 'h': /* one part of 3000 bytes */
            parts[0] = fixture_part(ctx, big, 3000);
            err = ls_exchange_write(ctx, x, parts, 1);
            break;
        case 'b': /* a few bytes without a block */
            parts[0] = ls_slice_static("bytes", 5);
            err = ls_exchange_write(ctx, x, parts, 1);
            break;
        case 'l': /* many of them */
            parts[0] = ls_slice_static(big, LARGE_PART_BYTES);
            err = ls_exchange_write(ctx, x, parts, 1);
            break;
        case 'e': /* slices without bytes: no chunk, and no end of the body */
            parts[0] = fixture_part(ctx, "", 0);
            parts[1] = ls_slice_static(NULL, 0);
            err = ls_exchange_write(ctx, x, parts, 2);
            break;
        case '0': err = ls_exchange_write(ctx, x, NULL, 0); break; /* the head alone */
        case 'f': err = ls_exchange_flush(ctx, x); break;
        case 'a': ls_exchange_abort(ctx, x); break;
        case 'w': return; /* wait for fixture_resume */
        case '5': x->length = 5; break;
        case 'x': fixture_end(r, ctx, x); return; /* ends before the response is complete */
        case '.':
            err = ls_exchange_finish(ctx, x);
            if (err < 0) r->error = err;
            fixture_end(r, ctx, x);
            return;
        default: fail();
        }
        if (err == LS_PENDING) return;
        if (err < 0) {
            r->error = err;
            fixture_end(r, ctx, x);
            return;
        }
    }
    fail(); /* every list ends with '.' or 'x' */
}

static void check_calls(const char *list, const char *request, const char *response, bool ends, int error)
{
    fixture *r = connected(make_calls);
    memcpy(r->body, list, strlen(list) + 1);
    fixture_send(r, request, strlen(request));
    while (r->x != NULL) fixture_resume(r);
    const char *got = fixture_take(r);
    if (response != NULL) assert_string_equal(got, response);
    assert_int_equal(r->ended, ends);
    assert_int_equal(r->error, error);
    fixture_close(r);
}

#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"
#define ABC     "3\r\nabc\r\n"
#define LAST    "0\r\n\r\n"

/* Parts stay queued until something sends them. */
TEST_WITH(fixture, r, parts_are_collected_until_the_handler_waits, connected(make_calls))
{
    memcpy(r->body, "swsbfws.", 9);
    fixture_send(r, GET, strlen(GET));
    assert_string_equal(fixture_take(r), CHUNKED ABC); /* sent because the handler waits */
    fixture_resume(r);
    assert_string_equal(fixture_take(r), ABC "5\r\nbytes\r\n");
    fixture_resume(r);
    assert_string_equal(fixture_take(r), ABC LAST);
}

TEST(parts_become_chunks)
{
    check_calls("s.", GET, CHUNKED ABC LAST, false, 0);
    check_calls("ss0em.", GET, CHUNKED ABC ABC ABC "2\r\nde\r\n" LAST, false, 0); /* a chunk for each slice */
    check_calls("sfs.", GET, CHUNKED ABC ABC LAST, false, 0);
    check_calls("b.", GET, CHUNKED "5\r\nbytes\r\n" LAST, false, 0);
    check_calls("sbs.", GET, CHUNKED ABC "5\r\nbytes\r\n" ABC LAST, false, 0);
    check_calls("0.", GET, CHUNKED LAST, false, 0);
    check_calls("e.", GET, CHUNKED LAST, false, 0);
    check_calls("swsws.", GET, CHUNKED ABC ABC ABC LAST, false, 0);
    check_calls("swsfws.", GET, CHUNKED ABC ABC ABC LAST, false, 0);
}

TEST(parts_without_the_chunked_coding)
{
    check_calls("sm.", GET_OLD, OK "Connection: close\r\n\r\nabcabcde", true, 0);
    check_calls("s.", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", OK "Connection: close\r\n\r\nabc", true, 0);
    check_calls("sb.", GET_OLD, OK "Connection: close\r\n\r\nabcbytes", true, 0);
    check_calls("slbe.", HEAD, OK "Transfer-Encoding: chunked\r\n\r\n", false, 0);
}

TEST(parts_with_a_content_length)
{
    check_calls("5m.", GET, OK "Content-Length: 5\r\n\r\nabcde", false, 0);
    check_calls("5b.", GET, OK "Content-Length: 5\r\n\r\nbytes", false, 0);
    check_calls("5m.", HEAD, OK "Content-Length: 5\r\n\r\n", false, 0);
    check_calls("5m.", GET_OLD, OK "Content-Length: 5\r\nConnection: close\r\n\r\nabcde", true, 0);
    check_calls("5s.", GET, "", true, LS_EMSGSIZE);  /* too short: no complete response */
    check_calls("5ms.", GET, "", true, LS_EMSGSIZE); /* too long: nothing is sent */
    check_calls("5sf.", GET, OK "Content-Length: 5\r\n\r\nabc", true, LS_EMSGSIZE);
}

TEST_WITH(fixture, r, parts_are_sent_while_the_handler_waits, connected(make_calls))
{
    memcpy(r->body, "sws.", 5);
    fixture_send(r, GET GET, 2 * strlen(GET));
    assert_string_equal(fixture_take(r), CHUNKED ABC);
    assert_int_equal(r->starts, 1); /* the second request waits */
    fixture_resume(r);
    assert_int_equal(r->starts, 2);
    assert_string_equal(fixture_take(r), ABC LAST CHUNKED ABC);
    fixture_resume(r);
    assert_string_equal(fixture_take(r), ABC LAST);
}

TEST(an_incomplete_response_ends_with_the_connection)
{
    check_calls("sfx", GET, CHUNKED ABC, true, 0); /* no last chunk */
    check_calls("x", GET GET, "", true, 0);        /* not even a head */
}

TEST(an_abort_drops_what_is_queued)
{
    check_calls("ax", GET GET, "", true, 0);
    check_calls("sfsax", GET, CHUNKED ABC, true, 0);
    check_calls("sfas", GET, CHUNKED ABC, true, LS_ECANCELED); /* later calls fail */
    check_calls("saf", GET, "", true, LS_ECANCELED);
    check_calls("sa.", GET, "", true, LS_ECANCELED);
    check_calls("wsas", GET, "", true, LS_ECANCELED);
}

/* Decode chunks. Returns the length of the body. */
static size_t unchunk(const char *at, char *out)
{
    size_t sum = 0;
    for (;;) {
        char *end;
        const size_t len = strtoul(at, &end, 16);
        assert_memory_equal(end, "\r\n", 2);
        memcpy(out + sum, end + 2, len);
        sum += len;
        at = end + 2 + len;
        assert_memory_equal(at, "\r\n", 2);
        at += 2;
        if (len == 0) {
            assert_int_equal(*at, '\0');
            return sum;
        }
    }
}

TEST_WITH(fixture, r, many_parts_of_all_kinds_arrive_complete, connected(make_calls))
{
    static char expected[FIXTURE_TEXT_MAX], got[FIXTURE_TEXT_MAX];
    static const char kinds[] = "smhlb";
    size_t len = 0;
    uint32_t seed = 3;
    int n = 0;
    for (; n < 120 && len < 600000; n++) {
        seed = seed * 1664525u + 1013904223u;
        const char kind = kinds[(seed >> 16) % 5];
        r->body[n] = kind;
        const char *from = kind == 's' ? "abc" : kind == 'm' ? "abcde" : kind == 'b' ? "bytes" : big;
        const size_t bytes = kind == 's' ? 3 : kind == 'h' ? 3000 : kind == 'l' ? LARGE_PART_BYTES : 5;
        memcpy(expected + len, from, bytes);
        len += bytes;
    }
    r->body[n] = '.';
    fixture_send(r, GET, strlen(GET)); /* the client reads only when the server waits: the handler waits often */
    assert_null(r->x);
    const char *text = fixture_take(r);
    assert_memory_equal(text, CHUNKED, strlen(CHUNKED));
    assert_int_equal(unchunk(text + strlen(CHUNKED), got), len);
    assert_memory_equal(got, expected, len);
}

/* ---- a client that does not read ---------------------------------------------------------------------------- */

static int blocks_written;

static void write_forever(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    for (;;) {
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
        assert_non_null(block);
        memset(block->data, 'x', block->cap);
        ls_slice slice = ls_slice_of(block, 0, block->cap);
        ls_block_drop(block);
        const int err = ls_exchange_write(ctx, x, &slice, 1); /* takes the slice on failure as well */
        if (err < 0) {
            assert_int_equal(err, x->error);
            r->error = err;
            fixture_end(r, ctx, x);
            return;
        }
        blocks_written++;
        if (err == LS_PENDING) return;
    }
}

TEST_WITH(fixture, r, above_the_high_water_mark_the_writer_waits, fixture_open(write_forever, 0))
{
    r->config.send_stall_ms_max = 60000;
    blocks_written = 0;
    fixture_connect(r);
    net_write(r->theirs, GET, strlen(GET));
    FIXTURE_UNTIL(r, r->x != NULL); /* suspended */
    int before;
    do { /* the system may take some time to move bytes into the peer's buffer */
        before = blocks_written;
        fixture_pump(r);
    } while (blocks_written > before);
    assert_in_range(before, 1, 40); /* the socket buffers and the high-water mark */
    char bytes[65536];
    for (size_t n = 0; n < 8 * sizeof bytes;) {
        const ssize_t got = recv(r->theirs, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got > 0) n += (size_t)got;
        fixture_pump(r);
    }
    fixture_pump(r);
    assert_true(blocks_written > before); /* woken when the queue is sent */
    close(r->theirs);                     /* the next send fails */
    r->theirs = -1;
    fixture_pump(r);
    assert_null(r->x);
    assert_true(r->error == LS_EPIPE || r->error == LS_ERESET);
}

TEST_WITH(fixture, r, a_client_that_does_not_read_is_disconnected, fixture_open(write_forever, 0))
{
    r->config.send_stall_ms_max = 20;
    blocks_written = 0;
    fixture_connect(r);
    net_write(r->theirs, GET, strlen(GET));
    FIXTURE_UNTIL(r, r->starts > 0 && r->x == NULL);
    assert_int_equal(r->error, LS_ETIMEDOUT);
}

/* ---- parts that responses share ----------------------------------------------------------------------------- */

/* The head, then the same chunk twice, and between them a part of its own; at last the chunk with nothing before it,
 * which leaves without the queue where the system allows it. */
static void sharing(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice block = fixture_part(ctx, "..................hello..", 25);
    const ls_slice chunk = {block.block, block.ptr + LS_SHARED_BEFORE, 5};
    ls_shared_part_frame(block.block->data + LS_SHARED_BEFORE, 5);
    assert_int_equal(ls_exchange_write(ctx, x, NULL, 0), LS_DONE);
    const bool head_only = x->head.method == LS_HTTP_HEAD;
    assert_int_equal(ls_exchange_write_shared(ctx, x, &chunk, true), head_only ? LS_DONE : LS_PENDING);
    assert_true(ls_exchange_queued(x) > 5 || head_only);
    ls_slice part = ls_slice_static("own", 3);
    assert_int_equal(ls_exchange_write(ctx, x, &part, 1), LS_DONE);
    assert_int_equal(ls_exchange_write_shared(ctx, x, &chunk, false), head_only ? LS_DONE : LS_PENDING);
    assert_true(ls_exchange_flush(ctx, x) >= 0);
    assert_true(ls_exchange_write_shared(ctx, x, &chunk, true) >= 0);
    assert_int_equal(ls_exchange_body_sent(x), head_only ? 0 : 18);
    ls_slice_drop(&block); /* the queue has references of its own */
    (void)ls_exchange_finish(ctx, x);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, a_shared_part_is_framed_for_each_client, fixture_open(sharing, 0))
{
    fixture_connect(r);
    fixture_send(r, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 27);
    const char *got = strstr(fixture_take(r), "\r\n\r\n");
    assert_non_null(got);
    assert_string_equal(got + 4, "5\r\nhello\r\n3\r\nown\r\n5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n");
    fixture_send(r, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", 28);
    got = strstr(fixture_take(r), "\r\n\r\n");
    assert_non_null(got);
    assert_string_equal(got + 4, "");
    fixture_send(r, "GET / HTTP/1.0\r\n\r\n", 18);
    got = strstr(fixture_take(r), "\r\n\r\n");
    assert_non_null(got);
    assert_string_equal(got + 4, "helloownhellohello");
    fixture_until_ended(r);
}

/* ---- a file that changes ------------------------------------------------------------------------------------ */

static const char changing[] = "test_http1_write.changing";

static void append_byte(const char *mode)
{
    FILE *out = fopen(changing, mode);
    assert_non_null(out);
    assert_int_equal(fputc('x', out), 'x');
    assert_int_equal(fclose(out), 0);
}

/* The last request of the connection gets a file, which changes before it is sent. */
static void respond_changing(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_shared_file *file;
    if (!x->close) {
        respond_text(r, ctx, x);
        return;
    }
    append_byte("wb");
    assert_int_equal(ls_shared_file_open(changing, &file), LS_OK);
    ls_slice slice = ls_shared_file_slice(file, 0, 1);
    ls_shared_file_drop(file);
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    append_byte("ab");
    fixture_end(r, ctx, x);
}

/* A 503 takes the place of a response of which nothing was sent. Behind another one, which is dropped as well, it
 * would be the answer to the request of that. */
TEST(a_file_that_changes_behind_another_response)
{
    for (int behind = 0; behind < 2; behind++) {
        fixture *r = connected(respond_changing);
        const char *const requests = behind ? GET GET_CLOSE : GET_CLOSE;
        fixture_send(r, requests, strlen(requests));
        const char *const got = fixture_take(r);
        assert_int_equal(strncmp(got, "HTTP/1.1 503 ", 13) == 0, !behind);
        if (behind) assert_string_equal(got, "");
        assert_true(r->ended);
        fixture_close(r);
        assert_int_equal(remove(changing), 0);
    }
}

/* ---- early hints ------------------------------------------------------------------------------------------------ */

#define HINTS "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

static int send_hints(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_hints hints = {.len = 0};
    assert_int_equal(ls_hints_add(&hints, "Link", 4, "</a>", 4), LS_OK);
    return ls_exchange_hints(ctx, x, &hints);
}

static void hints_without_memory(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_block *taken[64];
    unsigned count = 0;
    while ((taken[count] = ls_block_get(ctx->pool, LS_BLOCK_SMALL)) != NULL)
        assert_true(++count < sizeof taken / sizeof taken[0]);
    assert_int_equal(send_hints(ctx, x), LS_ENOMEM);
    assert_int_equal(x->error, 0);
    while (count > 0) ls_block_drop(taken[--count]);
    respond_text(r, ctx, x);
}

TEST_WITH(fixture, r, early_hints_without_memory_change_nothing,
          fixture_open(hints_without_memory, (size_t)32 * LS_BLOCK_SMALL))
{
    fixture_connect(r);
    fixture_send(r, GET, sizeof GET - 1);
    assert_string_equal(fixture_take(r), OK "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello");
}

/* Send hints until the queue is full; when it is sent, respond. */
static void many_hints(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    int err = LS_PENDING;
    if (!r->started)
        while ((err = send_hints(ctx, x)) == LS_DONE) r->step++;
    assert_int_equal(err, LS_PENDING);
    if (r->started) respond_text(r, ctx, x);
    r->started = true;
}

TEST_WITH(fixture, r, early_hints_for_a_client_that_does_not_read, connected(many_hints))
{
    net_write(r->theirs, GET, sizeof GET - 1);
    FIXTURE_UNTIL(r, r->x != NULL);
    const size_t hints = (size_t)r->step + 1;
    fixture_settle(r);
    const char *at = fixture_take(r);
    for (size_t n = 0; n < hints; n++, at += sizeof HINTS - 1) assert_memory_equal(at, HINTS, sizeof HINTS - 1);
    assert_string_equal(at, OK "Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello");
}

static void hint_then_respond_changing(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    assert_int_equal(send_hints(ctx, x), LS_DONE);
    respond_changing(r, ctx, x);
}

/* Early hints may be sent in part: no 503 takes the place of the response behind them. */
TEST(a_file_that_changes_behind_early_hints)
{
    check(hint_then_respond_changing, GET_CLOSE, HINTS, true);
    assert_int_equal(remove(changing), 0);
}
