/* test_http1_parse_response.c - response heads for clients: body framing and errors; the result does not depend on
 * splits. */
/* sanitizers: asan; no thread starts */
#include "codec/http1/http1_parse_response.h"

#include "support.h"

enum { BYTES_MAX = 4096 };

static int parse_copy(const char *bytes, size_t len, size_t seen, bool to_head, ls_http_response *head)
{
    const char *why = NULL;
    char *copy = test_copy_exact(bytes, len);
    int result = ls_http1_parse_response(copy, len, seen, BYTES_MAX, to_head, head, &why);
    free(copy);
    assert_true((result < 0) == (why != NULL));
    assert_true(result >= 0 || result == LS_EPROTO);
    return result;
}

/* Parse the whole, and check that every way to feed the bytes gives the same result: a proper prefix returns 0 or the
 * error of the whole, resuming after each prefix and feeding single bytes give the result of the whole. */
static int parse_every_way(const char *bytes, size_t len, bool to_head, ls_http_response *head)
{
    ls_http_response again;
    const int whole = parse_copy(bytes, len, 0, to_head, head);
    const size_t need = whole > 0 ? (size_t)whole : len;
    size_t seen = 0;
    for (size_t n = 0; n < need; n++) {
        int part = parse_copy(bytes, n, 0, to_head, &again);
        if (whole >= 0) assert_int_equal(part, 0);
        if (part != 0) {
            assert_int_equal(part, whole);
            continue;
        }
        assert_int_equal(parse_copy(bytes, len, n, to_head, &again), whole);
        if (whole > 0) assert_memory_equal(&again, head, sizeof again);
    }
    for (size_t n = 1; n <= need; n++) {
        int part = parse_copy(bytes, n, seen, to_head, &again);
        if (part != 0) {
            assert_int_equal(part, whole);
            return whole;
        }
        seen = n;
    }
    assert_true(whole <= 0);
    return whole;
}

static ls_http_response good(const char *text)
{
    ls_http_response head;
    memset(&head, 0, sizeof head); /* memcmp also compares the padding */
    assert_int_equal(parse_every_way(text, strlen(text), false, &head), strlen(text));
    assert_int_equal(head.bytes, strlen(text));
    return head;
}

static void is_framed(const char *text, int framing, uint64_t length, bool keep_alive)
{
    ls_http_response head = good(text);
    assert_int_equal(head.framing, framing);
    if (framing == LS_FRAMING_LENGTH) assert_true(head.length == length);
    assert_int_equal(head.keep_alive, keep_alive);
}

static void is_refused(const char *text)
{
    ls_http_response head;
    if (parse_every_way(text, strlen(text), false, &head) >= 0) fail_msg("not refused: %s", text);
}

TEST(the_status_line)
{
    assert_int_equal(good("HTTP/1.1 200 OK\r\n\r\n").status, 200);
    assert_int_equal(good("HTTP/1.1 299 \r\n\r\n").status, 299);
    assert_int_equal(good("HTTP/1.1 404\r\n\r\n").status, 404); /* without the space that the grammar requires */
    assert_int_equal(good("HTTP/1.0 999 W\xc3\xa4rm, \"so\"\r\n\r\n").status, 999);
    assert_int_equal(good("HTTP/1.0 200 OK\r\n\r\n").version_minor, 0);
    assert_int_equal(good("HTTP/1.2 200 OK\r\n\r\n").version_minor, 1);
    static const char *const others[] = {
        /* clang-format off */
        "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.x 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/1.1 200 OK\n\n", "HTTP/1.1 200 OK\r\r\n\r\n", "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n", "\x15\x03\x01",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) is_refused(others[i]);
}

TEST(the_end_of_the_body)
{
    is_framed("HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n", LS_FRAMING_LENGTH, 13, true);
    is_framed("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", LS_FRAMING_NONE, 0, true);
    is_framed("HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 9223372036854775807 \t\r\n\r\n", LS_FRAMING_LENGTH, INT64_MAX, true);
    is_framed("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", LS_FRAMING_CHUNKED, 0, true);
    is_framed("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", LS_FRAMING_TO_END, 0, false);
    is_framed("HTTP/1.1 100 Continue\r\n\r\n", LS_FRAMING_NONE, 0, true);
    is_framed("HTTP/1.1 204 No Content\r\n\r\n", LS_FRAMING_NONE, 0, true);
    is_framed("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", LS_FRAMING_NONE, 0, true);
    ls_http_response head;
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_int_equal(parse_every_way(text, sizeof text - 1, true, &head), sizeof text - 1);
    assert_int_equal(head.framing, LS_FRAMING_NONE);
}

TEST(whether_another_request_may_follow)
{
    is_framed("HTTP/1.1 204 x\r\nConnection: close\r\n\r\n", LS_FRAMING_NONE, 0, false);
    is_framed("HTTP/1.1 204 x\r\nConnection: a, CLOSE ,b\r\n\r\n", LS_FRAMING_NONE, 0, false);
    is_framed("HTTP/1.1 204 x\r\nConnection: closed\r\n\r\n", LS_FRAMING_NONE, 0, true);
    is_framed("HTTP/1.0 204 x\r\n\r\n", LS_FRAMING_NONE, 0, false);
    is_framed("HTTP/1.0 204 x\r\nConnection: Keep-Alive\r\n\r\n", LS_FRAMING_NONE, 0, true);
    is_framed("HTTP/1.0 204 x\r\nConnection: keep-alive, close\r\n\r\n", LS_FRAMING_NONE, 0, false);
}

TEST(ambiguous_framing_is_refused)
{
#define LINE "HTTP/1.1 200 OK\r\n"
    static const char *const texts[] = {
        /* clang-format off */
        LINE "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", LINE "Content-Length: 1, 1\r\n\r\n",
        LINE "Content-Length:\r\n\r\n", LINE "Content-Length: -1\r\n\r\n", LINE "Content-Length: +1\r\n\r\n",
        LINE "Content-Length: 0x1\r\n\r\n", LINE "Content-Length: 1 1\r\n\r\n",
        LINE "Content-Length: 9223372036854775808\r\n\r\n",
        LINE "Content-Length: 00000000000000000001\r\n\r\n",
        LINE "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        LINE "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        LINE "Transfer-Encoding: gzip, chunked\r\n\r\n",
        LINE "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", LINE " Folded: x\r\n\r\n",
        LINE "A: b\r\n folded\r\n\r\n", LINE "A : b\r\n\r\n", LINE ": b\r\n\r\n", LINE "A\r\n\r\n",
        LINE "A: b\n\r\n", LINE "A: b\rc\r\n\r\n", LINE "A: \x7f\r\n\r\n",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) is_refused(texts[i]);
}

TEST(limits_of_the_head)
{
    char text[BYTES_MAX + 64] = LINE "A: ";
    ls_http_response head;
    const char *why = NULL;
    const size_t from = strlen(text);
    memset(text + from, 'a', sizeof text - from);
    memcpy(text + BYTES_MAX - 4, "\r\n\r\n", 4);
    assert_int_equal(parse_copy(text, BYTES_MAX, 0, false, &head), BYTES_MAX);
    memset(text + from, 'a', sizeof text - from);
    assert_int_equal(parse_copy(text, BYTES_MAX - 1, 0, false, &head), 0);
    assert_int_equal(parse_copy(text, BYTES_MAX, BYTES_MAX - 1, false, &head), LS_EPROTO);

    char *many = malloc(LS_RESPONSE_FIELDS_MAX * 6 + 64);
    assert_non_null(many);
    size_t at = strlen(strcpy(many, LINE));
    for (int i = 0; i <= LS_RESPONSE_FIELDS_MAX; i++) {
        memcpy(many + at, "\r\n\r\n", 4);
        int result = ls_http1_parse_response(many, at + 2, 0, 1 << 20, false, &head, &why);
        assert_true(i <= LS_RESPONSE_FIELDS_MAX ? result > 0 : result < 0);
        at += strlen(strcpy(many + at, "a:b\r\n"));
    }
    assert_int_equal(ls_http1_parse_response(many, at, 0, 1 << 20, false, &head, &why), LS_EPROTO);
    free(many);
}

TEST(the_fields_in_order)
{
    static const char text[] = LINE "A: b\r\nX-Empty:\r\nTwo:  words here \t\r\nA:c\r\n\r\nBody: no\r\n";
    static const char *const expected[][2] = {{"A", "b"}, {"X-Empty", ""}, {"Two", "words here"}, {"A", "c"}};
    ls_http_response head;
    ls_pair field;
    size_t at = 0;
    assert_true(parse_copy(text, sizeof text - 1, 0, false, &head) > 0);
    for (size_t i = 0; i < 4; i++) {
        assert_true(ls_http1_response_field(text, &head, &at, &field));
        assert_int_equal(field.name_len, strlen(expected[i][0]));
        assert_memory_equal(field.name, expected[i][0], field.name_len);
        assert_int_equal(field.value_len, strlen(expected[i][1]));
        assert_memory_equal(field.value, expected[i][1], field.value_len);
    }
    assert_false(ls_http1_response_field(text, &head, &at, &field));
    assert_true(parse_copy(LINE "\r\n", sizeof LINE + 1, 0, false, &head) > 0);
    at = 0;
    assert_false(ls_http1_response_field(LINE "\r\n", &head, &at, &field));
}
