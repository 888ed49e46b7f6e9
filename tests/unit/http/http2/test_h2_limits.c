/* test_h2_limits.c - the limits of HTTP/2, each at the limit and one past it. */
/* sanitizers: asan; no thread starts */
#include "h2_fixture.h"

TEST_WITH(h2, h, resets, h2_connected())
{
    uint32_t id = 1;
    for (int i = 1; i < TEST_HTTP2_RESETS; i++, id += 2) {
        h2_request(h, id, 'w', false);
        h2_reset(h, id);
        assert_string_equal(h2_go(h), "");
    }
    h2_request(h, id, '/', false); /* a complete stream brings one back */
    (void)h2_go(h);
    for (int i = 0; i < 2; i++) {
        assert_false(h->r->ended);
        h2_request(h, id += 2, 'w', false);
        h2_reset(h, id);
        assert_string_equal(h2_go(h), i == 0 ? "" : "G259:11");
    }
    fixture_until_ended(h->r);
}

/* CVE-2025-8671: a fault for which we reset the stream, before its handler has started and after. */
TEST_WITH(h2, h, faults_that_reset_a_stream, h2_connected())
{
    h2_request(h, 1, 'R', true);
    h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 1, INT32_MAX);
    assert_string_equal(h2_go(h), "R1:3");
    assert_int_equal(h->r->starts, 0);
    h2_request(h, 3, 'R', true);
    assert_string_equal(h2_go(h), "");
    h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 3, INT32_MAX);
    assert_string_equal(h2_go(h), "R3:3");
    assert_int_equal(ends, 1);
    assert_int_equal(h->r->error, LS_ERESET);
    h2_request(h, 5, '/', false);
    assert_string_equal(h2_go(h), "H5:200 D5:2.");
    assert_int_equal(blocks_live(&h->r->place), 0);
}

TEST_WITH(h2, h, streams, h2_connected())
{
    uint32_t id = 1;
    for (int i = 0; i < TEST_HTTP2_STREAMS; i++, id += 2) h2_request(h, id, 'k', false);
    assert_string_equal(h2_go(h), "");
    assert_int_equal(h->r->starts, TEST_HTTP2_STREAMS);
    h2_request(h, id, '/', false);
    assert_string_equal(h2_go(h), "G255:1"); /* the client has acknowledged the limit */
    h2_release_kept(h);
}

/* A handler counts until it returns, also when its stream has ended. */
TEST_WITH(h2, h, handlers, h2_connected())
{
    uint32_t id = 1;
    for (int i = 0; i < TEST_HTTP2_STREAMS; i++, id += 2) {
        h2_request(h, id, 'k', false);
        (void)h2_go(h);
        if (i % 2) h2_reset(h, id);
    }
    h2_request(h, id, '/', false);
    assert_string_equal(h2_go(h), "R257:7");
    assert_int_equal(h->r->starts, TEST_HTTP2_STREAMS);
    h2_release_kept(h);
    assert_int_equal(ends, TEST_HTTP2_STREAMS);
    (void)h2_take(h);
    h2_request(h, id + 2, '/', false);
    assert_string_equal(h2_go(h), "H259:200 D259:2.");
}

/* A GET whose list of fields counts so many bytes (RFC 9113 section 6.5.2). */
static char *get_with_list(h2 *h, uint32_t id, size_t list_bytes)
{
    static const char fixed[] = "\x82\x86\x41\x01h\x84"; /* :method GET, :scheme http, :authority h, :path / */
    const size_t value = list_bytes - (7 + 3 + 7 + 4 + 10 + 1 + 5 + 1 + 4 * 32) - 32 - 1;
    static char fields[64 << 10];
    size_t len = sizeof fixed - 1;
    memcpy(fields, fixed, len);
    memcpy(fields + len, "\0\1a\x7f", 4); /* a literal "a" whose length follows: 127 + ... (RFC 7541 section 5.1) */
    len += 4;
    size_t rest = value - 127;
    for (; rest >= 128; rest /= 128) fields[len++] = (char)(rest % 128 + 128);
    fields[len++] = (char)rest;
    memset(fields + len, 'v', value);
    len += value;
    for (size_t at = 0; at < len; at += 16384)
        h2_put(h, at == 0 ? NGHTTP2_HEADERS : NGHTTP2_CONTINUATION,
               (at == 0 ? NGHTTP2_FLAG_END_STREAM : 0) | (at + 16384 >= len ? NGHTTP2_FLAG_END_HEADERS : 0), id,
               fields + at, len - at < 16384 ? len - at : 16384);
    return h2_go(h);
}

TEST_WITH(h2, h, the_list_of_fields, h2_connected())
{
    const size_t max = h->r->config.head.head_bytes_max;
    assert_string_equal(get_with_list(h, 1, max), "H1:200 D1:2.");
    assert_int_equal(strncmp(get_with_list(h, 3, max + 1), "H3:431 ", 7), 0);
    assert_int_equal(strncmp(get_with_list(h, 5, 2 * max), "H5:431 ", 7), 0);
    assert_string_equal(get_with_list(h, 7, 2 * max + 1), "R7:2");
    assert_int_equal(h->r->starts, 1);
}

TEST_WITH(h2, h, frames_that_carry_nothing, h2_connected())
{
    static const char bytes[16384];
    size_t left = 4 * ((1 << 20) + 1) - 1 - NGHTTP2_CLIENT_MAGIC_LEN - 2 * 9;
    while (left > 0) {
        const size_t n = left > 2 * sizeof bytes ? sizeof bytes : left > sizeof bytes + 9 ? left / 2 : left - 9;
        h2_put(h, 42, 0, 0, bytes, n);
        left -= 9 + n;
        assert_string_equal(h2_go(h), "");
    }
    h2_put(h, 42, 0, 0, NULL, 0);
    assert_string_equal(h2_go(h), "G0:11");
    fixture_until_ended(h->r);
}

TEST_WITH(h2, h, continuations, h2_connected())
{
    for (uint32_t id = 1, n = 8; n <= 9; id += 2, n++) {
        h2_put(h, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, id, "\x82\x86\x41\x01h\x84", 6);
        for (uint32_t i = 1; i <= n; i++)
            h2_put(h, NGHTTP2_CONTINUATION, i == n ? NGHTTP2_FLAG_END_HEADERS : 0, id, "\0\1a\1b", 5);
        assert_string_equal(h2_go(h), n == 8 ? "H1:200 D1:2." : "G0:1");
    }
    fixture_until_ended(h->r);
}

TEST_WITH(h2, h, answers_that_nobody_reads, h2_connected())
{
    for (int i = 0; i < 100; i++) h2_put(h, NGHTTP2_PING, 0, 0, "12345678", 8);
    assert_int_equal(strlen(h2_go(h)), 2 * 100 - 1); /* "p p ... p" */
    for (int i = 0; i < 102; i++) h2_put(h, NGHTTP2_PING, 0, 0, "12345678", 8);
    assert_non_null(strstr(h2_go(h), "G0:"));
    fixture_until_ended(h->r);
}
