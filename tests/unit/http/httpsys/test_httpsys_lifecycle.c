/* test_httpsys_lifecycle.c - http.sys from open to close: URLs, receives, limits, drain and abort. */
#include "httpsys_fixture.h"

/* ---- open --------------------------------------------------------------------------------------------------- */

TEST(opens_in_order_and_closes_in_reverse)
{
    char message[512];
    fixture *r = fixture_make(respond_hello);
    r->config.head_ms_max = 1500;
    r->config.idle_ms_max = 1;
    r->config.body_grace_ms = 100000000;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0https://a.example:443/b/\0", 2, 8, message), LS_OK);
    expect_calls("init session timeouts:2,1,65535 queue group1 add1:http://+:80/ add1:https://a.example:443/b/ ");
    r->http->ops->close(r->http);
    expect_calls("-add1:http://+:80/ -add1:https://a.example:443/b/ -group1 -queue -session term ");
    fixture_free(r);
}

TEST(one_group_per_url_on_systems_that_need_it)
{
    char message[512];
    fixture *r = fixture_make(respond_hello);
    fake.one_url_a_group = true;
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0http://+:81/\0", 2, 8, message), LS_OK);
    expect_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ group2 add2:http://+:81/ ");
    r->http->ops->close(r->http);
    expect_calls("-add1:http://+:80/ -add2:http://+:81/ -group1 -group2 -queue -session term ");
    fixture_free(r);
}

TEST(a_refused_url_gives_the_reason_and_leaves_nothing_open)
{
    static const struct {
        ULONG error;
        int code;
        const char *message;
    } cases[] = {{ERROR_ACCESS_DENIED, LS_EACCES, "netsh http add urlacl url=http://+:80/ user="},
                 {ERROR_ACCESS_DENIED, LS_EACCES, "access denied (error 5)"},
                 {ERROR_ACCESS_DENIED, LS_EACCES, "user=\"NT AUTHORITY\\LOCAL SERVICE\""},
                 {ERROR_ALREADY_EXISTS, LS_EEXIST, "registered already (error 183)"},
                 {ERROR_SHARING_VIOLATION, LS_EACCES, "listens on that port (error 32)"},
                 {ERROR_INVALID_PARAMETER, LS_EINVAL, "invalid URL (error 87), the form is http://host:port/path/"},
                 {ERROR_BAD_NET_NAME, LS_ESYS, "(error 67)"}};
    (void)SetEnvironmentVariableA("USERDOMAIN", "NT AUTHORITY"); /* as a service */
    (void)SetEnvironmentVariableA("USERNAME", "LOCAL SERVICE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char message[512];
        fixture *r = fixture_make(respond_hello);
        fake.add_error = cases[i].error;
        assert_int_equal(fixture_open_urls(r, "http://+:80/\0", 2, 8, message), cases[i].code);
        assert_non_null(strstr(message, "http://+:80/"));
        assert_non_null(strstr(message, cases[i].message));
        expect_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ -group1 -queue -session term ");
        fixture_free(r);
    }
}

TEST(a_refused_second_url_removes_the_first)
{
    char message[512];
    fixture *r = fixture_make(respond_hello);
    assert_int_equal(fixture_open_urls(r, "http://+:80/\0\xff\0", 2, 8, message), LS_EINVAL);
    assert_non_null(strstr(message, "not valid UTF-8"));
    expect_calls("init session timeouts:10,75,10 queue group1 add1:http://+:80/ -add1:http://+:80/ -group1 -queue "
                 "-session term ");
    fixture_free(r);
}

TEST(too_many_urls)
{
    char message[512], urls[256] = "";
    size_t at = 0;
    fixture *r = fixture_make(respond_hello);
    for (int i = 0; i <= LS_HTTPSYS_URLS_MAX; i++) at += (size_t)sprintf(urls + at, "http://a:%d/", i + 1) + 1;
    assert_int_equal(fixture_open_urls(r, urls, 2, 8, message), LS_ELIMIT);
    assert_string_equal(message, "more than 16 URLs");
    fixture_free(r);
}

/* ---- receives ----------------------------------------------------------------------------------------------- */

TEST_WITH(fixture, r, a_large_head_is_received_again, fixture_open(respond_hello, 1))
{
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    expect_calls("receive:8,large ");
    fixture_arrives(r, (fake_request){.id = 8});
    expect_calls("send:8,end receive:0,small ");
}

TEST_WITH(fixture, r, a_head_above_the_largest_buffer_is_a_431, fixture_open(respond_hello, 1))
{
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    expect_calls("receive:8,large send:8,close receive:0,large ");
    expect_wire("431 Request Header Fields Too Large;Connection: close;Content-Length: 56;Content-Type: text/plain; "
                "charset=utf-8;Server: luaserve;;Request Header Fields Too Large: request head too large\n");
    assert_int_equal(r->starts, 0);
}

TEST_WITH(fixture, r, a_connection_closed_before_its_large_head_is_received, fixture_open(respond_hello, 1))
{
    fake.receive_error = ERROR_CONNECTION_INVALID;
    fixture_arrives(r, (fake_request){.id = 8, .more_data = true});
    expect_calls("receive:8,large receive:0,large ");
}

TEST_WITH(fixture, r, limits_of_the_head_hold, fixture_make(respond_hello))
{
    r->config.head.target_bytes_max = 16;
    fixture_begin(r, 1, 8);
    fixture_arrives(r, (fake_request){.id = 1, .target = "/456789012345678"});
    fixture_arrives(r, (fake_request){.id = 2, .target = "/456789012345678x"});
    assert_int_equal(r->starts, 1);
    assert_non_null(strstr(fake.calls, "send:2,close"));
    ls_http_stats stats = {0};
    r->http->ops->stat(r->http, &stats);
    assert_int_equal(stats.refused, 1);
}

TEST_WITH(fixture, r, a_refused_receive_is_retried, fixture_open(respond_hello, 1))
{
    fake.receive_error = ERROR_NO_SYSTEM_RESOURCES;
    fixture_arrives(r, (fake_request){.id = 1});
    assert_int_equal(fake_count('r'), 0);
    ls_packet packet;
    assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 60000), 1); /* the packet of the timer */
    ls_packet_dispatch(&r->ctx, &packet);
    assert_int_equal(fake_count('r'), 1);
}

/* Receives that complete at once are served in the same packet, but at most RUN_MAX of them. */
TEST_WITH(fixture, r, receives_that_complete_at_once, fixture_open(respond_hello, 1))
{
    enum { RUN_MAX = 64, MANY = 150 };
    ls_packet packet;
    fake.receives_inline = MANY;
    fake_arrives((fake_request){.id = 1});
    for (int packets = 1, starts = 0; packets <= 3; packets++) {
        assert_int_equal(ls_port_wait(r->port, &r->ctx, &packet, 1, 0), 1);
        ls_packet_dispatch(&r->ctx, &packet);
        assert_in_range(r->starts - starts, 1, RUN_MAX + 1);
        starts = r->starts;
    }
    assert_int_equal(r->starts, MANY + 1);
    assert_int_equal(fake_count('r'), 1);
    assert_int_equal(r->ctx.stats.recv_inline, MANY);
}

TEST_WITH(fixture, r, connect_is_refused, fixture_open(respond_hello, 1))
{
    fixture_arrives(r, (fake_request){.id = 1, .verb = HttpVerbCONNECT, .target = "a.example:443"});
    expect_calls("send:1,close receive:0,small ");
    assert_int_equal(r->starts, 0);
    assert_memory_equal(fake.wire, "501 Not Implemented;", 20);
}

TEST_WITH(fixture, r, at_the_limit_no_receive_is_posted, fixture_make(respond_later))
{
    fixture_begin(r, 1, 1);
    fixture_arrives(r, (fake_request){.id = 1});
    expect_calls("");
    fixture_resume(r);
    expect_calls("send:1,end receive:0,small ");
}

TEST_WITH(fixture, r, out_of_memory_cancels_the_request, fixture_open(respond_hello, 1))
{
    ls_block *held[512];
    unsigned count = 0;
    while (count < 512 && (held[count] = ls_block_get(r->ctx.pool, LS_BLOCK_LARGE)) != NULL) count++;
    ls_block *small[64];
    unsigned smalls = 0;
    while (smalls < 64 && (small[smalls] = ls_block_get(r->ctx.pool, LS_BLOCK_SMALL)) != NULL) smalls++;
    fixture_arrives(r, (fake_request){.id = 1}); /* no memory for an exchange; its buffer is free again */
    expect_calls("cancel:1 receive:0,small ");
    while (smalls > 0) ls_block_drop(small[--smalls]);
    while (count > 0) ls_block_drop(held[--count]);
    fixture_arrives(r, (fake_request){.id = 2});
    expect_calls("send:2,end receive:0,small ");
}

/* ---- drain and abort ---------------------------------------------------------------------------------------- */

TEST_WITH(fixture, r, a_drain_waits_for_current_requests, fixture_open(respond_later, 2))
{
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    assert_int_equal(r->http->ops->drain(r->http, false), 3);
    expect_calls("-add1:http://+:80/ -group1 ");
    assert_int_equal(r->http->ops->drain(r->http, false), 3);
    expect_calls("");
    fixture_resume(r);
    expect_calls("send:1,close ");
    assert_int_equal(r->http->ops->drain(r->http, false), 2);
    expect_calls("stop:r stop:r ");
    fixture_pump(r);
    assert_int_equal(r->http->ops->drain(r->http, false), 0);
    expect_calls("shutdown ");
}

/* The request arrives while the receives are being cancelled. */
TEST_WITH(fixture, r, a_request_during_the_cancellation_gets_a_response, fixture_open(respond_hello, 2))
{
    fake_arrives((fake_request){.id = 1});
    assert_int_equal(r->http->ops->drain(r->http, false), 2);
    fake.calls[0] = '\0';
    fixture_pump(r);
    expect_calls("send:1,close ");
    assert_int_equal(r->http->ops->drain(r->http, false), 0);
}

TEST_WITH(fixture, r, an_abort_shuts_the_queue_down, fixture_open(respond_later, 1))
{
    fixture_arrives(r, (fake_request){.id = 1});
    fake.calls[0] = '\0';
    r->http->ops->abort(r->http);
    expect_calls("stop:r shutdown ");
    fixture_resume(r);
}
