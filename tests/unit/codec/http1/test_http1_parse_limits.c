/* test_http1_parse_limits.c - request heads: each limit, at the limit and one above; resuming. */
/* sanitizers: asan; no thread starts */

#include "http1_parse_fixture.h"

TEST(limit_of_the_target)
{
    enum { TARGET_MAX = 80 };
    const ls_http_limits limits = {1000, TARGET_MAX, 10};
    ls_http_head head;
    char text[256], tail[] = " HTTP/1.1\r\n" HOST "\r\n";
    for (int with_query = 0; with_query < 2; with_query++) {
        memset(text, 'a', sizeof text);
        memcpy(text, "GET /", 5);
        if (with_query) text[10] = '?';
        memcpy(text + 4 + TARGET_MAX, tail, sizeof tail);
        assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), strlen(text));
        memset(text + 4 + TARGET_MAX, 'a', 1);
        memcpy(text + 4 + TARGET_MAX + 1, tail, sizeof tail);
        assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), -414);
        /* refused before the target ends, also in pieces */
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX, 0, &limits, &head), LS_HTTP_MORE);
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX + 1, 0, &limits, &head), -414);
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX + 1, 4 + TARGET_MAX, &limits, &head), -414);
    }
}

TEST(a_request_line_of_8000_octets_is_served)
{
    static char text[8192 + 64];
    ls_http_head head;
    size_t len;
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    len = 4 + 8192;
    memcpy(text + len, " HTTP/1.1\r\n" HOST "\r\n", sizeof " HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(parse_copy(text, strlen(text), 0, &defaults, &head), strlen(text));
    assert_int_equal(head.target.len, 8192);
}

TEST(limit_of_the_head)
{
    static const char text[] = "\r\n" GET "A: bcdefgh\r\nContent-Length: 8\r\n\r\n"
                               "the body";
    const size_t len = (size_t)(strstr(text, "the body") - text);
    ls_http_limits limits = {(uint32_t)len, 100, 10};
    ls_http_head head;
    assert_int_equal(parse_every_way(text, sizeof text - 1, &limits, &head), len);
    assert_int_equal(parse_every_way(text, len, &limits, &head), len);
    for (uint32_t max = 0; max < len; max++) { /* refused after `max` bytes, independent of later bytes */
        limits.head_bytes_max = max;
        assert_int_equal(parse_copy(text, max, 0, &limits, &head), -431);
        assert_int_equal(parse_copy(text, sizeof text - 1, 0, &limits, &head), -431);
        if (max > 1) {
            assert_int_equal(parse_copy(text, max - 1, 0, &limits, &head), LS_HTTP_MORE);
            assert_int_equal(parse_copy(text, max, max - 1, &limits, &head), -431);
        }
    }
}

TEST(limit_of_the_fields)
{
    static char text[16 * 1024];
    ls_http_limits limits = defaults;
    ls_http_head head;
    size_t len;
    strcpy(text, GET);
    for (int i = 1; i < LS_HTTP_FIELDS_MAX; i++) strcat(text, "A: b\r\n");
    len = strlen(text);
    strcpy(text + len, "\r\n");
    assert_int_equal(parse_every_way(text, len + 2, &limits, &head), len + 2);
    assert_int_equal(head.field_count, LS_HTTP_FIELDS_MAX);
    strcpy(text + len, "A: b\r\n\r\n");
    assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), -431);
    assert_int_equal(parse_copy(text, len, 0, &limits, &head), LS_HTTP_MORE);
    assert_int_equal(parse_copy(text, len + 1, len, &limits, &head), -431);
    limits.fields_max = 1000; /* the table is full */
    assert_int_equal(parse_copy(text, strlen(text), 0, &limits, &head), -431);

    limits.fields_max = 2;
    assert_true(parse_copy(GET "A: b\r\n\r\n", sizeof(GET "A: b\r\n\r\n") - 1, 0, &limits, &head) > 0);
    assert_int_equal(parse_copy(GET "A: b\r\nC: d\r\n\r\n", sizeof(GET "A: b\r\nC: d\r\n\r\n") - 1, 0, &limits, &head),
                     -431);
    limits.fields_max = 0;
    assert_true(parse_copy("GET / HTTP/1.0\r\n\r\n", 18, 0, &limits, &head) > 0);
    assert_int_equal(parse_copy("GET / HTTP/1.0\r\nA: b\r\n\r\n", 24, 0, &limits, &head), -431);
}

TEST(a_bare_lf_is_refused_at_once)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: h\n";
    ls_http_head head;
    assert_int_equal(parse_copy(text, sizeof text - 2, 5, &defaults, &head), LS_HTTP_MORE);
    assert_int_equal(parse_copy(text, sizeof text - 1, sizeof text - 2, &defaults, &head), -400);
}

/* The head comes byte by byte. The byte at `at` is the first that no head can have: the parser refuses it at once. */
static void is_refused_at(const char *text, size_t at)
{
    ls_http_head head;
    for (size_t n = 1; n <= at; n++) assert_int_equal(parse_copy(text, n, n - 1, &defaults, &head), LS_HTTP_MORE);
    if (parse_copy(text, at + 1, at, &defaults, &head) != -400) fail_msg("not refused at %zu: %s", at, text);
    assert_int_equal(parse_copy(text, strlen(text), at, &defaults, &head), -400); /* with the bytes behind it */
    if (text[at - 1] == '\r') assert_int_equal(parse_copy(text, strlen(text), at - 1, &defaults, &head), -400);
}

TEST(a_control_character_is_refused_at_once)
{
    static const char *const heads[] = {
        "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@",
        "GET / HTTP/1.1\r\nHost: hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh@",
        "GET / HTTP/1.1\r\nHost: hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh\r\nX: a@",
        "GET / HTTP/1.1\r\nHost: hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh\r\nX: aaa bbb \x80@",
    };
    static const char *const bad[] = {"\rb", "\r\r", "\r\x80", "\x01", "\x7f"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
            char text[160];
            const size_t at = strlen(heads[i]) - 1;
            if (i == 0 && bad[b][0] == '\r') continue; /* no CR is valid there: see the next test */
            (void)snprintf(text, sizeof text, "%.*s%scccc", (int)at, heads[i], bad[b]);
            is_refused_at(text, at + strlen(bad[b]) - 1);
        }
    }
}

TEST(a_cr_in_the_target_is_refused_at_the_next_byte)
{
    static const char text[] = "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\rb";
    ls_http_head head;
    assert_int_equal(parse_copy(text, sizeof text - 1, sizeof text - 2, &defaults, &head), -400);
    assert_int_equal(parse_copy(text, sizeof text - 1, sizeof text - 3, &defaults, &head), -400);
}

TEST(why_may_be_null)
{
    ls_http_head head;
    assert_int_equal(ls_http1_parse("\n", 1, 0, &defaults, &head, &terms, NULL), -400);
    assert_int_equal(ls_http1_parse("", 0, 0, &defaults, &head, &terms, NULL), LS_HTTP_MORE);
}
