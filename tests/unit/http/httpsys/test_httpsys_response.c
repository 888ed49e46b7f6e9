/* test_httpsys_response.c - responses through http.sys: the API calls, their order, and the bytes. */
#include "httpsys_fixture.h"

/* ---- whole responses ---------------------------------------------------------------------------------------- */

TEST_WITH(fixture, r, a_response_is_sent_and_the_receive_posted_again, fixture_open(respond_hello, 4))
{
    fixture_arrives(r, (fake_request){.id = 9});
    expect_calls("send:9,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;hello");
    assert_int_equal(fake_count('r'), 4);
    ls_http_stats stats = {0};
    r->http->ops->stat(r->http, &stats);
    assert_int_equal(stats.requests, 1);
    assert_int_equal(stats.responses, 1);
    assert_int_equal(stats.open, 0);
}

TEST_WITH(fixture, r, the_receive_does_not_wait_for_the_send, fixture_open(respond_hello, 1))
{
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    fixture_arrives(r, (fake_request){.id = 2});
    expect_calls("send:1,end receive:0,small send:2,end receive:0,small ");
    fake_complete(fake_find('s'), 0, 1);
    fixture_complete(r, 's', 0, 1);
    assert_int_equal(fake_count('s'), 0);
}

static void respond_fields(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static const char *const lines[][2] = {{"Set-Cookie", "a=1"}, {"set-cookie", "b=2"}, {"Location", "/x"},
                                           {"X-One", "1"},        {"X-Two", ""},         {"X-3", "3"},
                                           {"X-4", "4"},          {"X-5", "5"},          {"Server", "mine"}};
    x->status = 302;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(
            ls_exchange_header(ctx, x, lines[i][0], strlen(lines[i][0]), lines[i][1], strlen(lines[i][1]), false),
            LS_OK);
    assert_int_equal(ls_exchange_header(ctx, x, "Connection", 10, "close", 5, false), LS_OK);
    assert_int_equal(ls_exchange_respond(ctx, x, NULL, 0), LS_DONE);
    fixture_end(r, ctx, x);
}

static void respond_204(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static("never", 5);
    x->status = 204;
    x->type = "text/plain";
    assert_int_equal(ls_exchange_respond(ctx, x, &slice, 1), LS_DONE);
    fixture_end(r, ctx, x);
}

/* Respond with a slice of a block, and with bytes without a block. */
static void respond_large(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slices[2] = {ls_slice_of(r->block, 0, 512), ls_slice_static(r->body, sizeof r->body)};
    assert_int_equal(ls_exchange_respond(ctx, x, slices, 2), LS_DONE);
    memset(r->body, 'z', sizeof r->body); /* they were copied */
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, blocks_are_sent_without_a_copy_and_other_bytes_copied, fixture_open(respond_large, 1))
{
    fixture_make_block(r, "b");
    memset(r->body, 'a', sizeof r->body);
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(fake.last_chunk_count, 2);
    assert_ptr_equal(fake.last_chunks[0].FromMemory.pBuffer, r->block->data);
    assert_int_equal(fake.last_chunks[1].FromMemory.BufferLength, sizeof r->body);
    fixture_complete(r, 's', 0, 1);
    assert_null(r->x);
    for (size_t i = 1; i <= sizeof r->body; i++) assert_int_equal(fake.wire[fake.wire_len - i], 'a');
}

static void respond_20_slices(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slices[20];
    for (int i = 0; i < 20; i++) slices[i] = ls_slice_of(r->block, (size_t)i, 1);
    assert_int_equal(ls_exchange_respond(ctx, x, slices, 20), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST(many_slices_go_in_several_calls)
{
    for (int pend = 0; pend < 2; pend++) {
        fixture *r = fixture_open(respond_20_slices, 1);
        fixture_make_block(r, "abcdefghijklmnopqrst");
        fake.sends_pend = pend == 1;
        fixture_arrives(r, (fake_request){.id = 1});
        for (int i = 0; pend == 1 && i < 3; i++) fixture_complete(r, 's', 0, 1);
        expect_calls(pend == 1 ? "send:1,more receive:0,small entity:1,more entity:1,end "
                               : "send:1,more entity:1,more entity:1,end receive:0,small ");
        expect_wire("200 OK;Content-Length: 20;Server: luaserve;;abcdefghijklmnopqrst");
        fixture_close(r);
    }
}

/* ---- responses in parts ------------------------------------------------------------------------------------- */

static void write_parts(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice parts[2];
    if (r->step++ == 0) {
        parts[0] = fixture_part(ctx, "ab");
        parts[1] = fixture_part(ctx, "c");
        assert_int_equal(ls_exchange_write(ctx, x, parts, 2), LS_DONE);
        return; /* suspended: the parts are sent now */
    }
    parts[0] = fixture_part(ctx, "0123456789abcdef");
    assert_int_equal(ls_exchange_write(ctx, x, parts, 1), LS_DONE);
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, parts_become_chunks, fixture_open(write_parts, 1))
{
    fixture_arrives(r, (fake_request){.id = 1});
    expect_calls("send:1,more receive:0,small ");
    expect_wire("200 OK;Transfer-Encoding: chunked;Server: luaserve;;3\r\nabc\r\n");
    assert_int_not_equal(fake.buffered, 0); /* else each part waits for the peer's acknowledgement */
    fixture_resume(r);
    expect_calls("entity:1,end ");
    expect_wire("10\r\n0123456789abcdef\r\n0\r\n\r\n");
}

static void write_head_first(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    if (r->step++ == 0) {
        assert_int_equal(ls_exchange_write(ctx, x, NULL, 0), LS_DONE);
        return;
    }
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, a_head_is_sent_before_the_parts, fixture_open(write_head_first, 1))
{
    fixture_arrives(r, (fake_request){.id = 1});
    expect_calls("send:1,more receive:0,small ");
    expect_wire("200 OK;Transfer-Encoding: chunked;Server: luaserve;;");
    fixture_resume(r);
    expect_calls("entity:1,end ");
    expect_wire("0\r\n\r\n");
}

static void write_parts_with_length(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    x->length = 19;
    write_parts(r, ctx, x);
}

static void write_without_a_block(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = ls_slice_static(r->body, 16);
    assert_int_equal(ls_exchange_write(ctx, x, &slice, 1), LS_DONE);
    memset(r->body, 'z', sizeof r->body); /* they were copied */
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

/* The head and a part are sent and pending; the handler gives up. */
static void write_and_abort(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = fixture_part(ctx, "abc");
    assert_int_equal(ls_exchange_write(ctx, x, &slice, 1), LS_DONE);
    assert_int_equal(ls_exchange_flush(ctx, x), LS_DONE);
    ls_exchange_abort(ctx, x);
    assert_int_equal(x->error, LS_ECANCELED);
    slice = fixture_part(ctx, "def");
    assert_int_equal(ls_exchange_write(ctx, x, &slice, 1), LS_ECANCELED);
    assert_int_equal(ls_exchange_finish(ctx, x), LS_ECANCELED);
    fixture_end(r, ctx, x);
}

TEST(an_aborted_response_is_cancelled)
{
    for (int pends = 0; pends <= 1; pends++) {
        fixture *r = fixture_open(write_and_abort, 1);
        fake.sends_pend = pends;
        fixture_arrives(r, (fake_request){.id = 5});
        assert_non_null(strstr(fake.calls, "cancel:5 "));
        if (pends) fixture_complete(r, 's', (NTSTATUS)0xC0000120, 0);
        assert_null(strstr(fake.wire != NULL ? fake.wire : "", "def"));
        assert_null(strstr(fake.calls, "end "));
        fixture_close(r);
    }
}

static void write_too_little(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice slice = fixture_part(ctx, "abc");
    x->length = 4;
    assert_int_equal(ls_exchange_write(ctx, x, &slice, 1), LS_DONE);
    assert_int_equal(ls_exchange_finish(ctx, x), LS_EMSGSIZE);
    fixture_end(r, ctx, x);
}

/* Write until the transport returns LS_PENDING, three times. */
static void write_until_pending(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    int err = LS_DONE;
    while (err == LS_DONE && r->writes++ < 100) {
        ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
        assert_non_null(block);
        memset(block->data, 'x', 8192);
        ls_slice slice = {block, block->data, 8192};
        err = ls_exchange_write(ctx, x, &slice, 1);
    }
    if (err == LS_PENDING && r->step++ < 2) return;
    assert_int_equal(err, LS_PENDING);
    assert_int_equal(ls_exchange_finish(ctx, x), LS_DONE);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, the_writer_waits_for_a_slow_client, fixture_open(write_until_pending, 1))
{
    r->config.write_bytes_high = 65536;
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_in_range(r->writes, 8, 9); /* 64 KiB are queued */
    assert_int_equal(r->step, 1);
    for (int i = 0; i < 40 && fake_count('s') > 0; i++) {
        assert_int_equal(fake_count('s'), 1);
        fixture_complete(r, 's', 0, 1);
    }
    assert_int_equal(r->step, 3);
    assert_in_range(r->writes, 24, 27);
    assert_null(r->x);
}

/* On a system without HttpSendResponseEntityBody (Wine). */
TEST_WITH(fixture, r, parts_are_sent_as_a_whole_without_the_call_for_parts, fixture_make(write_parts))
{
    r->api.SendResponseEntityBody = NULL;
    fixture_begin(r, 1, 8);
    fixture_arrives(r, (fake_request){.id = 1});
    expect_calls("receive:0,small ");
    fixture_resume(r);
    expect_calls("send:1,end ");
    expect_wire("200 OK;Content-Length: 19;Server: luaserve;;abc0123456789abcdef");
    r->run = respond_20_slices;
    fixture_make_block(r, "xxxxxxxxxxxxxxxxxxxx");
    fixture_arrives(r, (fake_request){.id = 2});
    expect_calls("send:2,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 20;Server: luaserve;;xxxxxxxxxxxxxxxxxxxx");
}

/* ---- no response, and failed sends -------------------------------------------------------------------------- */

static void end_without_response(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, without_the_call_to_cancel_it_is_a_500, fixture_make(end_without_response))
{
    r->api.CancelHttpRequest = NULL;
    fixture_begin(r, 1, 8);
    fixture_arrives(r, (fake_request){.id = 3});
    expect_calls("send:3,close receive:0,small ");
    expect_wire(
        "500 Internal Server Error;Connection: close;Content-Length: 22;Content-Type: text/plain; charset=utf-8;"
        "Server: luaserve;;Internal Server Error\n");
}

TEST_WITH(fixture, r, a_send_that_fails_later, fixture_open(respond_large, 1))
{
    enum { DISCONNECTED = (int)0xC000020D }; /* STATUS_CONNECTION_RESET */
    fixture_make_block(r, "b");
    fake.sends_pend = true;
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    fixture_complete(r, 's', DISCONNECTED, 0);
    expect_calls("cancel:1 ");
}

/* ---- one request, one response ------------------------------------------------------------------------------ */

/* What a handler does with one request: the calls of the API, and the bytes. */
static const struct {
    const char *name;
    fixture_run *run;
    fake_request request;
    const char *calls, *wire;
    bool suspends; /* and is resumed once */
    ULONG send_error;
} responses[] = {
    {"a request with Connection: close closes",
     respond_hello,
     {.id = 1, .closes = true},
     "send:1,close receive:0,small ",
     .wire = "200 OK;Connection: close;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;hello"},
    {"fields become known or unknown headers",
     respond_fields,
     {.id = 1},
     "send:1,close receive:0,small ",
     .wire = "302 Found;Connection: close;Content-Length: 0;Location: /x;Server: mine;Set-Cookie: a=1;"
             "set-cookie: b=2;X-One: 1;X-Two: ;X-3: 3;X-4: 4;X-5: 5;;"},
    {"the response to HEAD has no body",
     respond_hello,
     {.id = 1, .verb = HttpVerbHEAD},
     "send:1,end receive:0,small ",
     .wire = "200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;"},
    {"a 204 has no body",
     respond_204,
     {.id = 2},
     "send:2,end receive:0,small ",
     .wire = "204 No Content;Server: luaserve;;"},
    {"for HTTP/1.0 the body ends with the connection",
     write_parts,
     {.id = 1, .http10 = true},
     "send:1,more receive:0,small entity:1,close ",
     .wire = "200 OK;Connection: close;Server: luaserve;;abc0123456789abcdef",
     .suspends = true},
    {"for HTTP/2 the system frames the body",
     write_parts,
     {.id = 1, .http2 = true},
     "send:1,more receive:0,small entity:1,close ",
     .wire = "200 OK;Connection: close;Server: luaserve;;abc0123456789abcdef",
     .suspends = true},
    {"HTTP/2 does not end with a whole response",
     respond_hello,
     {.id = 2, .http2 = true},
     "send:2,end receive:0,small ",
     .wire = "200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;hello"},
    {"parts with a Content-Length are not chunked",
     write_parts_with_length,
     {.id = 1},
     "send:1,more receive:0,small entity:1,end ",
     .wire = "200 OK;Content-Length: 19;Server: luaserve;;abc0123456789abcdef",
     .suspends = true},
    {"a part without a block is copied",
     write_without_a_block,
     {.id = 1},
     "send:1,end receive:0,small ",
     .wire = "200 OK;Transfer-Encoding: chunked;Server: luaserve;;10\r\naaaaaaaaaaaaaaaa\r\n0\r\n\r\n"},
    {"an incomplete response is cancelled", write_too_little, {.id = 5}, "cancel:5 receive:0,small ", .wire = ""},
    {"without a response the request is cancelled",
     end_without_response,
     {.id = 3},
     "cancel:3 receive:0,small ",
     .wire = ""},
    {"a send that fails at once",
     respond_hello,
     {.id = 3},
     "send:3,end cancel:3 receive:0,small ",
     .wire = "200 OK;Content-Length: 5;Content-Type: text/plain;Server: luaserve;;",
     .send_error = ERROR_CONNECTION_INVALID},
};

TEST(one_request_one_response)
{
    for (size_t i = 0; i < sizeof responses / sizeof responses[0]; i++) {
        print_message("  %s\n", responses[i].name);
        fixture *r = fixture_open(responses[i].run, 1);
        memset(r->body, 'a', sizeof r->body);
        fake.send_error = responses[i].send_error;
        fixture_arrives(r, responses[i].request);
        if (responses[i].suspends) fixture_resume(r);
        expect_calls(responses[i].calls);
        expect_wire(responses[i].wire);
        fixture_close(r);
    }
}
