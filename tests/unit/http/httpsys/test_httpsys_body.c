/* test_httpsys_body.c - request bodies from http.sys. */
#include "httpsys_fixture.h"

/* Respond with the whole body. */
static void echo(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    int err;
    while ((err = ls_exchange_read(ctx, x, &part)) == LS_DONE && part.len > 0) {
        memcpy(r->body + r->body_len, part.ptr, part.len);
        r->body_len += part.len;
        ls_slice_drop(&part);
    }
    if (err == LS_PENDING) return;
    r->result = err;
    ls_slice slice = ls_slice_static(r->body, r->body_len);
    if (err == LS_DONE) (void)ls_exchange_respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

TEST_WITH(fixture, r, a_body_is_read_to_its_end, fixture_open(echo, 1))
{
    fake.body = "one|two|three|";
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    expect_calls("body:1 body:1 body:1 body:1 send:1,end receive:0,small ");
    expect_wire("200 OK;Content-Length: 11;Server: luaserve;;onetwothree");
    fake.body = "onetwo"; /* with Content-Length no call is needed for the end */
    fixture_arrives(r, (fake_request){.id = 2, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    expect_calls("body:2 send:2,end receive:0,small ");
}

TEST_WITH(fixture, r, a_body_that_arrives_slowly, fixture_open(echo, 1))
{
    enum { END_OF_FILE = (int)0xC0000011 };
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fake_count('b'), 1); /* at most one receive is pending */
        fixture_body_arrives(r, "abc");
    }
    fixture_complete(r, 'b', END_OF_FILE, 0);
    expect_wire("200 OK;Content-Length: 9;Server: luaserve;;abcabcabc");
}

TEST_WITH(fixture, r, a_body_whose_connection_is_reset, fixture_open(echo, 1))
{
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    fixture_complete(r, 'b', (NTSTATUS)0xC000020D, 0);
    assert_int_equal(r->result, LS_ERESET);
    expect_calls("body:1 receive:0,small cancel:1 ");
}

TEST_WITH(fixture, r, a_body_that_is_too_large, fixture_make(echo))
{
    r->config.body_bytes_max = 5;
    fixture_begin(r, 1, 8);
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    assert_int_equal(r->result, LS_EMSGSIZE);
    expect_calls("cancel:1 receive:0,small "); /* without a receive */
    fake.body = "one|two|";
    fixture_arrives(r, (fake_request){.id = 2, .verb = HttpVerbPOST, .chunked = true, .has_body = true});
    assert_int_equal(r->result, LS_EMSGSIZE);
    expect_calls("body:2 body:2 cancel:2 receive:0,small ");
}

/* A body receive is pending when the response is complete. It is cancelled first. */
static void respond_during_a_read(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_slice part;
    if (r->step++ == 0) {
        assert_int_equal(ls_exchange_read(ctx, x, &part), LS_PENDING);
        return;
    }
    if (r->step == 2) respond_hello(r, ctx, x);
}

TEST_WITH(fixture, r, an_unneeded_body_receive_is_cancelled, fixture_open(respond_during_a_read, 1))
{
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbPOST, .length = "6", .has_body = true});
    fake.calls[0] = '\0';
    fixture_resume(r);
    expect_calls("stop:b send:1,end ");
}
