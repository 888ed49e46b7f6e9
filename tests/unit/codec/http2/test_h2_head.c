/* test_h2_head.c - the fields of HTTP/2 to the head of a request. A row is a list of "name: value" lines; a line that begins with
 * a colon is a pseudo-header field. */
/* sanitizers: asan; no thread starts */
#include "codec/http2/h2_head.h"

#include "support.h"

#define GET ":method: GET\n:scheme: https\n:path: /\n:authority: h\n"

static const ls_http_limits defaults = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX};

/* Add each line; the bytes grow when they are full, into exact copies. The result of ls_h2_head_end, and of every call of
 * ls_h2_head_add after the first failure. */
static int add_lines(ls_h2_head *h, const char *lines, const ls_http_limits *limits, ls_http_head *head,
                     const char **why)
{
    int failed = LS_OK;
    memset(head, 0xa5, sizeof *head);
    ls_h2_head_begin(h, head, malloc(1), 0, limits);
    *why = NULL;
    for (const char *at = lines; *at != '\0';) {
        const char *const colon = strchr(at + 1, ':'), *const end = strchr(at, '\n');
        char *const name = test_copy_exact(at, (size_t)(colon - at));
        const size_t len = (size_t)(end - colon) - 2;
        char *const value = test_copy_exact(colon + 2, len);
        int result;
        while ((result = ls_h2_head_add(h, name, (size_t)(colon - at), value, len)) == LS_H2_HEAD_FULL) {
            h->capacity = h->capacity * 2 + 1;
            assert_true(h->capacity < 4 * limits->head_bytes_max);
            h->bytes = realloc(h->bytes, h->capacity);
        }
        if (failed < 0) assert_int_equal(result, failed);
        failed = result;
        free(name);
        free(value);
        at = end + 1;
    }
    const int result = ls_h2_head_end(h, why);
    if (failed < 0) assert_int_equal(result, failed);
    assert_true((result < 0) == (*why != NULL));
    assert_true(h->used <= h->capacity);
    return result;
}

static void span_is(const ls_h2_head *h, ls_span span, const char *text)
{
    assert_int_equal(span.len, strlen(text));
    assert_memory_equal(h->bytes + span.at, text, span.len);
}

TEST(a_head)
{
    ls_http_head head;
    ls_h2_head h;
    const char *why;
    assert_int_equal(add_lines(&h,
                               ":method: POST\n:authority: example.com:8443\n:scheme: https\n:path: /a/b?c=d\n"
                               "content-length: 12\nx-empty: \nexpect: 100-continue\nte: trailers\n",
                               &defaults, &head, &why),
                     LS_OK);
    assert_int_equal(head.method, LS_HTTP_POST);
    assert_int_equal(head.version, 20);
    assert_true(head.has_length && head.has_body && h.expect_continue && head.has_query);
    assert_false(head.upgrade || head.lists || head.path_is_root);
    assert_true(head.content_length == 12);
    span_is(&h, head.method_name, "POST");
    span_is(&h, head.target, "/a/b?c=d");
    span_is(&h, head.path, "/a/b");
    span_is(&h, head.query, "c=d");
    span_is(&h, head.host, "example.com:8443");
    assert_int_equal(head.field_count, 5);
    assert_int_equal(head.bytes, h.used);
    span_is(&h, head.fields[0].name, "host");
    span_is(&h, head.fields[0].value, "example.com:8443");
    span_is(&h, head.fields[2].name, "x-empty");
    span_is(&h, head.fields[2].value, "");
    span_is(&h, head.fields[4].value, "trailers");
    assert_int_equal(h.list_bytes, 7 + 4 + 10 + 16 + 7 + 5 + 5 + 8 + 14 + 2 + 7 + 6 + 12 + 2 + 8 + 8 * 32);
    free(h.bytes);
}

/* A request is refused, and recorded, with what is known of its head: nothing of an earlier one in the same memory. */
TEST(a_head_that_ends_before_its_target)
{
    ls_http_head head;
    ls_h2_head h;
    const char *why;
    char bytes[64];
    memset(&head, 0xff, sizeof head);
    ls_h2_head_begin(&h, &head, bytes, sizeof bytes, &defaults);
    assert_int_equal(ls_h2_head_add(&h, "A", 1, "b", 1), LS_H2_HEAD_MALFORMED);
    assert_int_equal(ls_h2_head_end(&h, &why), LS_H2_HEAD_MALFORMED);
    assert_true(head.method != LS_HTTP_HEAD && head.method != LS_HTTP_CONNECT && !head.has_length);
    assert_int_equal(head.method_name.len + head.target.len + head.path.len + head.query.len + head.host.len, 0);
}

/* The fields as lines, with the host and the target. */
static void served_as(const char *lines, const char *host, const char *target, const char *fields)
{
    ls_http_head head;
    ls_h2_head h;
    const char *why;
    char text[1024] = "";
    if (add_lines(&h, lines, &defaults, &head, &why) != LS_OK) fail_msg("%s: %s", why, lines);
    for (uint32_t n = 0; n < head.field_count; n++) {
        const ls_http_field *f = &head.fields[n];
        sprintf(text + strlen(text), "%.*s: %.*s\n", (int)f->name.len, h.bytes + f->name.at, (int)f->value.len,
                h.bytes + f->value.at);
    }
    assert_string_equal(text, fields);
    span_is(&h, head.host, host);
    span_is(&h, head.target, target);
    assert_int_equal(head.upgrade, strstr(lines, ":protocol") != NULL);
    free(h.bytes);
}

TEST(heads_that_are_served)
{
#define GET_OF(path) ":method: GET\n:scheme: https\n:path: " path "\n"
    static const char *const rows[][4] = {
        {GET, "h", "/", "host: h\n"},
        {GET_OF("/") "host: h\nx: y\n", "h", "/", "host: h\nx: y\n"}, /* only Host */
        {GET "x: y\nhost: H\n", "h", "/", "host: h\nx: y\n"},         /* the same host once */
        {":authority: [::1]:8\n" GET_OF("/?"), "[::1]:8", "/?", "host: [::1]:8\n"},
        {":method: OPTIONS\n:scheme: http\n:path: *\n:authority: h\n", "h", "*", "host: h\n"},
        {":method: CONNECT\n:authority: h:80\n", "h:80", "h:80", "host: h:80\n"},
        {":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /chat?a\n:authority: h\nx: y\n", "h",
         "/chat?a", "upgrade: websocket\nhost: h\nx: y\n"},
        {":method: BREW\n:scheme: coap+tcp\n:path: /\n:authority: h\n", "h", "/", "host: h\n"},
        {GET "cookie: a=1\ncookie: b=2\ncookie: \ncookie: c=3\nx: y\n", "h", "/",
         "host: h\ncookie: a=1; b=2; ; c=3\nx: y\n"},
        {GET "cookie: a=1\nx: y\ncookie: b=2\ncookie: c=3\nz: y\ncookie: d\n", "h", "/",
         "host: h\ncookie: a=1; b=2; c=3; d\nx: y\nz: y\n"},
        {GET "cookie: a\nhost: h\ncookie: b\ncookies: c\n", "h", "/", "host: h\ncookie: a; b\ncookies: c\n"},
        {GET "x: \x80\t a b\xff\ntrailer: te\n", "h", "/", "host: h\nx: \x80\t a b\xff\ntrailer: te\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        served_as(rows[i][0], rows[i][1], rows[i][2], rows[i][3]);
}

TEST(heads_that_are_refused)
{
    enum { BAD = LS_H2_HEAD_MALFORMED };
    static const struct {
        const char *lines;
        int result;
        const char *why;
    } rows[] = {
        {"", BAD, "no :method"},
        {":scheme: https\n:path: /\n:authority: h\n", BAD, "no :method"},
        {":method: GET\n:path: /\n:authority: h\n", BAD, "no :scheme or no :path"},
        {":method: GET\n:scheme: https\n:authority: h\n", BAD, "no :scheme or no :path"},
        {GET_OF(""), BAD, "bad :path"},
        {GET_OF("a") ":authority: h\n", BAD, "bad :path"},
        {GET_OF("http://h/") ":authority: h\n", BAD, "bad :path"},
        {GET_OF("**") ":authority: h\n", BAD, "bad :path"},
        {":method: GET\n:scheme: a:\n", BAD, "bad :scheme"},
        {":method: GET\n:scheme: \n", BAD, "bad :scheme"},
        {":method: GET\n" GET, BAD, "repeated pseudo-header field"},
        {GET ":authority: h\n", BAD, "repeated pseudo-header field"},
        {GET ":path: /\n", BAD, "repeated pseudo-header field"},
        {GET ":status: 200\n", BAD, "unknown pseudo-header field"},
        {GET ":x: y\n", BAD, "unknown pseudo-header field"},
        {GET ":Path: y\n", BAD, "unknown pseudo-header field"},
        {":method: GET\nx: y\n:scheme: https\n:path: /\n", BAD, "pseudo-header field after a field"},
        {GET ":protocol: websocket\n", BAD, ":protocol without CONNECT"},
        {GET ":protocol: a b\n", BAD, "bad :protocol"},
        {":method: CONNECT\n:scheme: https\n:path: /\n:authority: h:1\n", BAD, "CONNECT with :scheme or :path"},
        {":method: CONNECT\nhost: h:1\n", BAD, "CONNECT without :authority"},
        {":method: CONNECT\n:protocol: websocket\n:authority: h\n", BAD, "no :scheme or no :path"},
        {":method: CONNECT\n:protocol: a\n:authority: h\n:path: *\n:scheme: https\n", BAD, "bad :path"},
        {GET "X: y\n", BAD, "invalid field"},
        {GET "x y: z\n", BAD, "invalid field"},
        {GET "x: \x01\n", BAD, "invalid field"},
        {GET "x: a\rb\n", BAD, "invalid field"},
        {GET "x:  a\n", BAD, "invalid field"},
        {GET "x: a\t\n", BAD, "invalid field"},
        {GET "connection: close\n", BAD, "invalid field"},
        {GET "keep-alive: 1\n", BAD, "invalid field"},
        {GET "proxy-connection: close\n", BAD, "invalid field"},
        {GET "transfer-encoding: chunked\n", BAD, "invalid field"},
        {GET "upgrade: websocket\n", BAD, "invalid field"},
        {GET "te: gzip\n", BAD, "invalid field"},
        {GET "te: trailers, gzip\n", BAD, "invalid field"},
        {GET "host: other\n", -400, "Host differs from :authority"},
        {GET_OF("/"), -400, "no Host"},
        {GET_OF("/") "host: h\nhost: h\n", -400, "several Host fields"},
        {GET_OF("/") ":authority: u@h\n", -400, "bad Host"},
        {GET_OF("/") ":authority: \n", -400, "bad Host"},
        {GET_OF("/") "host: h:99999\n", -400, "bad Host"},
        {GET_OF("/#a") ":authority: h\n", -400, "fragment in the request target"},
        {GET_OF("/ a") ":authority: h\n", -400, "bad character in the request target"},
        {GET_OF("*") ":authority: h\n", -400, "the target * is only valid for OPTIONS"},
        {":method: CONNECT\n:authority: h\n", -400, "CONNECT needs a host and a port"},
        {":method: G T\n:scheme: https\n:path: /\n:authority: h\n", -400, "bad method"},
        {":method: GET\n:scheme: https\n:path: /\n:authority: a.example,b\n", -400, "bad Host"},
        {":method: GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG\n:scheme: https\n:path: /\n:authority: h\n", -501,
         "method too long"},
        {GET "content-length: 1\ncontent-length: 1\n", -400, "several Content-Length fields"},
        {GET "content-length: 1, 1\n", -400, "bad Content-Length"},
        {GET "expect: x\n", -417, "unknown expectation"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_http_head head;
        ls_h2_head h;
        const char *why;
        const int result = add_lines(&h, rows[i].lines, &defaults, &head, &why);
        if (result != rows[i].result || strcmp(why, rows[i].why) != 0)
            fail_msg("%d %s, wanted %d %s: %s", result, why, rows[i].result, rows[i].why, rows[i].lines);
        free(h.bytes);
    }
}

TEST(limits)
{
    static const struct {
        const char *lines;
        ls_http_limits limits;
        int result;
    } rows[] = {
        {GET "x: y\n", {7 + 3 + 7 + 5 + 5 + 1 + 10 + 1 + 2 + 5 * 32, 1, 2}, LS_OK},
        {GET "x: y\n", {7 + 3 + 7 + 5 + 5 + 1 + 10 + 1 + 2 + 5 * 32 - 1, 1, 2}, -431},
        {GET "x: y\n", {1024, 1, 1}, -431},
        {GET_OF("/a") ":authority: h\n", {1024, 1, 2}, -414},
        {GET "cookie: a\ncookie: b\ncookie: c\n", {1024, 1, 2}, LS_OK}, /* neighbours are one field */
        {GET "cookie: a\nx: y\ncookie: b\n", {1024, 1, 3}, -431},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_http_head head;
        ls_h2_head h;
        const char *why;
        const int result = add_lines(&h, rows[i].lines, &rows[i].limits, &head, &why);
        if (result != rows[i].result) fail_msg("%d in row %d", result, (int)i);
        free(h.bytes);
    }
}

/* A head that has failed still counts: the connection ends one whose fields do not end. */
TEST(a_failed_head_counts_its_fields)
{
    static char bytes[1024];
    ls_http_head head;
    ls_h2_head h;
    ls_h2_head_begin(&h, &head, bytes, sizeof bytes, &defaults);
    assert_int_equal(ls_h2_head_add(&h, "A", 1, "b", 1), LS_H2_HEAD_MALFORMED);
    assert_int_equal(ls_h2_head_add(&h, "a", 1, bytes, sizeof bytes), LS_H2_HEAD_MALFORMED);
    assert_int_equal(h.list_bytes, 2 + 1 + sizeof bytes + 2 * 32);
}

TEST(trailers)
{
    assert_true(ls_h2_field_valid("grpc-status", 11, "0", 1));
    assert_false(ls_h2_field_valid(":status", 7, "200", 3));
    assert_false(ls_h2_field_valid("", 0, "", 0));
    assert_false(ls_h2_field_valid("a", 1, "b\0", 2));
}
