/* test_http1_parse.c - request heads: what is served, what is refused and with which status, and that no way of
 * cutting the bytes changes the verdict. */
#include "proto/http1_parse.h"

#include "support.h"

static const ls_http_limits defaults = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX};

#define HOST "Host: h\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST

/* Parse an exact copy; the head's spans fit any copy of the bytes. */
static int parse_copy(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *head)
{
    const char *why = NULL;
    char *copy = test_copy_exact(bytes, len);
    int result = ls_http1_parse(copy, len, seen, limits, head, &why);
    free(copy);
    assert_true((result < 0) == (why != NULL));
    return result;
}

static void assert_same_head(const ls_http_head *a, const ls_http_head *b)
{
    assert_int_equal(a->method, b->method);
    assert_int_equal(a->version_minor, b->version_minor);
    assert_int_equal(a->keep_alive, b->keep_alive);
    assert_int_equal(a->chunked, b->chunked);
    assert_int_equal(a->has_length, b->has_length);
    assert_int_equal(a->expect_continue, b->expect_continue);
    assert_int_equal(a->upgrade, b->upgrade);
    assert_true(a->content_length == b->content_length);
    assert_memory_equal(&a->method_name, &b->method_name, sizeof(ls_span));
    assert_memory_equal(&a->target, &b->target, sizeof(ls_span));
    assert_memory_equal(&a->path, &b->path, sizeof(ls_span));
    assert_int_equal(a->path_is_root, b->path_is_root);
    assert_memory_equal(&a->query, &b->query, sizeof(ls_span));
    assert_int_equal(a->has_query, b->has_query);
    assert_memory_equal(&a->host, &b->host, sizeof(ls_span));
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->field_count, b->field_count);
    assert_memory_equal(a->fields, b->fields, a->field_count * sizeof a->fields[0]);
}

/* The verdict on the whole holds for every way of cutting it:
 *   - a proper prefix of the head asks for more, or has the error of the whole;
 *   - going on after any prefix that asked for more gives the verdict of the whole;
 *   - so does feeding one byte at a time. */
static int parse_every_way(const char *bytes, size_t len, const ls_http_limits *limits, ls_http_head *head)
{
    ls_http_head again;
    const int whole = parse_copy(bytes, len, 0, limits, head);
    const size_t need = whole > 0 ? (size_t)whole : len;
    size_t seen = 0;
    for (size_t n = 0; n < need; n++) {
        int part = parse_copy(bytes, n, 0, limits, &again);
        if (whole >= 0) assert_int_equal(part, LS_HTTP_MORE);
        if (part != LS_HTTP_MORE) {
            assert_int_equal(part, whole);
            continue;
        }
        assert_int_equal(parse_copy(bytes, len, n, limits, &again), whole);
        if (whole > 0) assert_same_head(head, &again);
    }
    for (size_t n = 1; n <= need; n++) {
        int part = parse_copy(bytes, n, seen, limits, &again);
        if (part != LS_HTTP_MORE) {
            assert_int_equal(part, whole);
            if (whole > 0) assert_same_head(head, &again);
            return whole;
        }
        seen = n;
    }
    assert_true(whole <= 0);
    return whole;
}

static void is_served_to(const char *text, ls_http_head *head)
{
    int result = parse_every_way(text, strlen(text), &defaults, head);
    if (result != (int)strlen(text)) fail_msg("%d for: %s", result, text);
    assert_int_equal(head->bytes, strlen(text));
}

static void is_served(const char *text)
{
    ls_http_head head;
    is_served_to(text, &head);
}

static void is_refused_bytes(const char *bytes, size_t len, int status)
{
    ls_http_head head;
    int result = parse_every_way(bytes, len, &defaults, &head);
    if (result != -status) fail_msg("%d, wanted -%d, for: %.*s", result, status, (int)len, bytes);
}

static void is_refused(const char *text, int status)
{
    is_refused_bytes(text, strlen(text), status);
}

static void span_is(const char *bytes, ls_span span, const char *text)
{
    assert_int_equal(span.len, strlen(text));
    assert_memory_equal(bytes + span.at, text, span.len);
}

/* ---- the request line --------------------------------------------------------------------------------------- */

static void a_plain_request(void **state)
{
    static const char text[] =
        "GET /a/b?c=d&e=%20 HTTP/1.1\r\nHost: example.com:80\r\nX-Two:  a b \t\r\nEmpty:\r\n\r\n";
    ls_http_head head;
    const ls_http_field *field;
    (void)state;
    is_served_to(text, &head);
    assert_int_equal(head.method, LS_HTTP_GET);
    assert_int_equal(head.version_minor, 1);
    assert_true(head.keep_alive);
    assert_false(head.chunked || head.has_length || head.expect_continue || head.upgrade || head.path_is_root);
    assert_true(head.content_length == 0);
    span_is(text, head.method_name, "GET");
    span_is(text, head.target, "/a/b?c=d&e=%20");
    span_is(text, head.path, "/a/b");
    assert_true(head.has_query);
    span_is(text, head.query, "c=d&e=%20");
    span_is(text, head.host, "example.com:80");
    assert_int_equal(head.field_count, 3);
    span_is(text, head.fields[1].name, "X-Two");
    span_is(text, head.fields[1].value, "a b");
    span_is(text, head.fields[2].value, "");

    field = ls_http_head_find(&head, text, "x-TWO", 5);
    assert_ptr_equal(field, &head.fields[1]);
    assert_null(ls_http_head_find(&head, text, "x-tw", 4));
    assert_null(ls_http_head_find(&head, text, "X~Two", 5));
}

static void bytes_after_the_head_are_left_alone(void **state)
{
    static const char text[] = GET "Content-Length: 4\r\n\r\nbodyGET /next";
    ls_http_head head;
    int result;
    (void)state;
    result = parse_every_way(text, sizeof text - 1, &defaults, &head);
    assert_int_equal(result, strstr(text, "body") - text);
    assert_true(head.has_length && head.content_length == 4);
}

static void nothing_of_an_earlier_request_remains(void **state)
{
    ls_http_head head;
    (void)state;
    memset(&head, 0xa5, sizeof head);
    is_served_to("GET / HTTP/1.0\r\n\r\n", &head);
    assert_int_equal(head.host.len, 0);
    assert_int_equal(head.field_count, 0);
    assert_int_equal(head.query.len, 0);
    assert_false(head.keep_alive || head.chunked || head.has_length || head.expect_continue || head.upgrade);
    assert_false(head.has_query || head.path_is_root);
    assert_true(head.content_length == 0);
}

static void methods(void **state)
{
    /* clang-format off */
    static const struct {
        const char *name;
        ls_http_method method;
    } cases[] = {
        {"GET", LS_HTTP_GET},        {"HEAD", LS_HTTP_HEAD}, {"POST", LS_HTTP_POST},      {"PUT", LS_HTTP_PUT},
        {"PATCH", LS_HTTP_PATCH},    {"DELETE", LS_HTTP_DELETE},
        {"TRACE", LS_HTTP_TRACE},    {"OPTIONS", LS_HTTP_OPTIONS},
        {"get", LS_HTTP_OTHER},      {"GETS", LS_HTTP_OTHER},
        {"GE", LS_HTTP_OTHER},       {"PROPFIND", LS_HTTP_OTHER},
        {"M-SEARCH", LS_HTTP_OTHER}, {"!#$%&'*+-.^_`|~", LS_HTTP_OTHER},
        {"PRI", LS_HTTP_OTHER},      {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF", LS_HTTP_OTHER} /* 32 */
    };
    /* clang-format on */
    char text[128];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_http_head head;
        strcat(strcpy(text, cases[i].name), " / HTTP/1.1\r\n" HOST "\r\n");
        is_served_to(text, &head);
        assert_int_equal(head.method, cases[i].method);
        span_is(text, head.method_name, cases[i].name);
    }
    is_refused("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" HOST "\r\n", 501);
    is_refused("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG", 501);
}

static void bad_request_lines(void **state)
{
    /* clang-format off */
    static const char *const cases[] = {
        " GET / HTTP/1.1\r\n" HOST "\r\n", "\tGET / HTTP/1.1\r\n" HOST "\r\n", "GET  / HTTP/1.1\r\n" HOST "\r\n",
        "GET\t/ HTTP/1.1\r\n" HOST "\r\n", "GET /\tHTTP/1.1\r\n" HOST "\r\n", "GET /  HTTP/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.1 \r\n" HOST "\r\n", "GET / HTTP/1.1\n" HOST "\r\n", "GET / HTTP/1.1\r" HOST "\r\n",
        "GET / HTTP/1.1\r\r\n" HOST "\r\n", "GET /\r\n\r\n", "GET / \r\n\r\n", "GET\r\n\r\n", "GET \r\n\r\n",
        "GET HTTP/1.1\r\n" HOST "\r\n", "G@T / HTTP/1.1\r\n" HOST "\r\n", "G\xc3\xa9T / HTTP/1.1\r\n" HOST "\r\n",
        "(GET) / HTTP/1.1\r\n" HOST "\r\n", "GET: / HTTP/1.1\r\n" HOST "\r\n", "GET /a b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a#b HTTP/1.1\r\n" HOST "\r\n", "GET /?a#b HTTP/1.1\r\n" HOST "\r\n",
        "GET /a\x01 HTTP/1.1\r\n" HOST "\r\n", "GET /?a\x7f HTTP/1.1\r\n" HOST "\r\n",
        "GET /a\rb HTTP/1.1\r\n" HOST "\r\n", "GET /a\nb HTTP/1.1\r\n" HOST "\r\n",
        "GET a HTTP/1.1\r\n" HOST "\r\n", "GET ?a HTTP/1.1\r\n" HOST "\r\n", "GET h:80 HTTP/1.1\r\n" HOST "\r\n",
        "\n" GET "\r\n", "\r\n\n" GET "\r\n", "\r" GET "\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", /* the preface of HTTP/2 */
        "\x16\x03\x01\x02", /* TLS */
        "SSH-2.0-OpenSSH_9.2\r\n", "\xff\xfd\x01"
    };
    /* clang-format on */
    static const char nul[] = "GET /\0 HTTP/1.1\r\n" HOST "\r\n",
                      tls[] = "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) is_refused(cases[i], 400);
    is_refused_bytes(nul, sizeof nul - 1, 400);
    is_refused_bytes("\0", 1, 400);
    is_refused_bytes(tls, sizeof tls - 1, 400);
    is_refused_bytes(tls, 1, 400); /* its first byte is enough */
}

static void versions(void **state)
{
    static const struct {
        const char *version;
        int verdict; /* minor, or -status */
        bool keep_alive;
    } cases[] = {{"HTTP/1.1", 1, true},  {"HTTP/1.0", 0, false}, {"HTTP/1.2", 1, true},  {"HTTP/1.9", 1, true},
                 {"HTTP/2.0", -505, 0},  {"HTTP/9.9", -505, 0},  {"HTTP/0.9", -505, 0},  {"HTTP/3.0", -505, 0},
                 {"HTTP/1.11", -400, 0}, {"HTTP/11.1", -400, 0}, {"http/1.1", -400, 0},  {"Http/1.1", -400, 0},
                 {"HTTP/1", -400, 0},    {"HTTP/1.", -400, 0},   {"HTTP/.1", -400, 0},   {"HTTP/2", -400, 0},
                 {"HTTP/1.x", -400, 0},  {"HTTP/1,1", -400, 0},  {"HTTP /1.1", -400, 0}, {"HTTP/ 1.1", -400, 0},
                 {"HTTP/+1.1", -400, 0}, {"HTTP/1.-1", -400, 0}, {"HTTPS/1.1", -400, 0}, {"XTTP/1.1", -400, 0},
                 {"1.1", -400, 0},       {"HTTP/01.1", -400, 0}, {"", -400, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64] = "GET / ";
        ls_http_head head;
        strcat(strcat(text, cases[i].version), "\r\n" HOST "\r\n");
        if (cases[i].verdict < 0) {
            is_refused(text, -cases[i].verdict);
            continue;
        }
        is_served_to(text, &head);
        assert_int_equal(head.version_minor, cases[i].verdict);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
    }
}

static void empty_lines_before_the_request_line(void **state)
{
    ls_http_head head;
    (void)state;
    is_served_to("\r\n" GET "\r\n", &head);
    assert_int_equal(head.method_name.at, 2);
    is_served("\r\n\r\n\r\n\r\n" GET "\r\n");
    is_refused("\r\n\r\n\r\n\r\n\r\n" GET "\r\n", 400);
    is_refused("\r\n\r\n\r\n\r\n\r", 400);
}

/* ---- target forms ------------------------------------------------------------------------------------------- */

typedef struct target_case {
    const char *line, *path, *query, *host; /* query NULL: none */
    bool root;
} target_case;

static void targets(void **state)
{
    /* clang-format off */
    static const target_case cases[] = {
        {"GET /", "/", NULL, "h", false}, {"GET /?", "/", "", "h", false}, {"GET /?/?/", "/", "/?/", "h", false},
        {"GET //a//b/../c;x=1", "//a//b/../c;x=1", NULL, "h", false},
        {"GET /%zz%", "/%zz%", NULL, "h", false}, /* whoever decodes it refuses */
        {"GET /{a}|b^\"<>[]\\`?{|}^", "/{a}|b^\"<>[]\\`", "{|}^", "h", false},
        {"GET /\xc3\xa9?\xff", "/\xc3\xa9", "\xff", "h", false},
        {"GET /http://x/", "/http://x/", NULL, "h", false}, {"OPTIONS *", "*", NULL, "h", false},
        {"OPTIONS /x", "/x", NULL, "h", false}, {"GET http://a.example/", "/", NULL, "a.example", false},
        {"GET http://a.example", "", NULL, "a.example", true},
        {"GET http://a.example?q=/", "", "q=/", "a.example", true},
        {"GET HTTP://A.example:8080/x?y", "/x", "y", "A.example:8080", false},
        {"GET hTTps://[::1]:443/x", "/x", NULL, "[::1]:443", false},
        {"OPTIONS http://a.example", "", NULL, "a.example", true},
        {"GET http://a.example:/x", "/x", NULL, "a.example:", false},
        {"GET http://a/b@c:d", "/b@c:d", NULL, "a", false},
        {"CONNECT a.example:443", "a.example:443", NULL, "a.example:443", false},
        {"CONNECT [::1]:443", "[::1]:443", NULL, "[::1]:443", false}
    };
    static const char *const bad[] = {
        "GET *", "PRI *", "OPTIONS **", "OPTIONS *?", "HEAD *", "GET http://", "GET http:///x", "GET http://:80/",
        "GET http://a:b/", "GET http://u@a/", "GET http://u:p@a/", "GET http://a:70000/", "GET http://[::1/",
        "GET http://[]/", "GET http://a b/", "GET http://a\\b/", "GET http:/a", "GET http:a", "GET https://",
        "GET https://?", "GET ftp://a/", "GET ws://a/", "GET httpx://a/", "GET http//a", "GET javascript:a",
        "GET http://a#b", "GET http://a%/", "GET http://a%4/", "GET http://a%zz/", "GET http://\xc3\xa9/",
        "CONNECT /", "CONNECT *", "CONNECT a", "CONNECT a:", "CONNECT :80", "CONNECT a:80/",
        "CONNECT http://a:80/", "CONNECT u@a:80", "CONNECT a:65536"
    };
    /* clang-format on */
    char text[160];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_http_head head;
        strcat(strcpy(text, cases[i].line), " HTTP/1.1\r\n" HOST "\r\n");
        is_served_to(text, &head);
        span_is(text, head.target, strchr(cases[i].line, ' ') + 1);
        span_is(text, head.path, cases[i].path);
        assert_int_equal(head.path_is_root, cases[i].root);
        assert_int_equal(head.has_query, cases[i].query != NULL);
        span_is(text, head.query, cases[i].query != NULL ? cases[i].query : "");
        span_is(text, head.host, cases[i].host);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcpy(text, bad[i]), " HTTP/1.1\r\n" HOST "\r\n");
        is_refused(text, 400);
    }
}

static void hosts(void **state)
{
    /* clang-format off */
    static const char *const good[] = {
        "a", "a.b-c_d~e", "EXAMPLE.com", "example.com.", "127.0.0.1:8080", "999.1.1.1", "a:", "a:0", "a:65535",
        "a:00080", "%41b", "a!$&'()*+,;=", "[::]", "[::1]", "[::1]:8080", "[1:2:3:4:5:6:7:8]", "[1::8]",
        "[1:2:3:4:5:6:7::]", "[::2:3:4:5:6:7:8]", "[::ffff:1.2.3.4]", "[1:2:3:4:5:6:1.2.3.4]", "[abcd:EF01::]",
        "[1:2:3:4:5::1.2.3.4]"
    };
    static const char *const bad[] = {
        ":80", "a:65536", "a:99999999999999999999", "a:8x", "a:-1", "a:+1", "a:80:80", "a b", "a\tb", "a/b", "a?b",
        "a#b", "u@a", "a@b:80", "a\\b", "a\"", "<a>", "a,b c", "[", "]", "[]", "[:]", "[:::]", "[1]",
        "[1:2:3:4:5:6:7]", "[1:2:3:4:5:6:7:8:9]", "[1:2:3:4:5:6:7:8::]", "[1::2::3]", "[12345::]", "[g::]",
        "[1:2:3:4:5:6:7:]", "[:1:2:3:4:5:6:7]", "[::1.2.3]", "[::1.2.3.256]", "[::1.2.3.4.5]", "[::1.2.3.4:5]",
        "[::1]a", "[::1]80", "a[::1]", "[fe80::1%25eth0]", "[v1.x]", "%4", "%", "%g0", "a%", "\xc3\xa9", "a|b",
        "{a}", "a^b", "`", "[1:2:3:4:5:6:7:1.2.3.4]", "[1.2.3.4]", "::1",
        "[1:2:3:4:5:6::1.2.3.4]"
    };
    /* clang-format on */
    char text[128];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ls_http_head head;
        strcat(strcat(strcpy(text, "GET / HTTP/1.1\r\nhOST: "), good[i]), "\r\n\r\n");
        is_served_to(text, &head);
        span_is(text, head.host, good[i]);
        strcat(strcat(strcpy(text, "GET http://"), good[i]), "/ HTTP/1.0\r\n\r\n");
        is_served_to(text, &head);
        span_is(text, head.host, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, "GET / HTTP/1.1\r\nHost: "), bad[i]), "\r\n\r\n");
        is_refused(text, 400);
        strcat(strcat(strcpy(text, "GET http://x/ HTTP/1.0\r\nHost: "), bad[i]), "\r\n\r\n");
        is_refused(text, 400);
    }
}

static void how_many_hosts(void **state)
{
    ls_http_head head;
    (void)state;
    is_refused("GET / HTTP/1.1\r\n\r\n", 400);
    is_refused("GET / HTTP/1.1\r\nX-Host: h\r\n\r\n", 400);
    is_refused("GET http://a/ HTTP/1.1\r\n\r\n", 400);
    is_refused("OPTIONS * HTTP/1.1\r\n\r\n", 400);
    is_refused(GET HOST "\r\n", 400);
    is_refused(GET "hOsT: other\r\n\r\n", 400);
    is_refused("GET / HTTP/1.0\r\n" HOST HOST "\r\n", 400);
    is_refused("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400);
    is_refused("GET / HTTP/1.1\r\nHost: \t \r\n\r\n", 400);
    is_refused("GET / HTTP/1.0\r\nHost:\r\n\r\n", 400);
    is_refused("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400);
    is_served("GET / HTTP/1.0\r\n\r\n");
    is_served("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"); /* no authority in the target */
    is_served("CONNECT a:80 HTTP/1.1\r\nHost:\r\n\r\n");
    is_served_to("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", &head);
    assert_int_equal(head.host.len, 1); /* the absolute form wins */
    assert_int_equal(head.host.at, sizeof "GET http://" - 1);
}

/* ---- fields ------------------------------------------------------------------------------------------------- */

static void fields(void **state)
{
    /* clang-format off */
    static const char *const good[] = {
        "A: \x80\xff \xc3\xa9\r\n", "A:b\r\n", "A:\tb\t \r\n", "A:   \r\n", "!#$%&'*+-.^_`|~09azAZ: v\r\n",
        "A: a\tb c:d\"(),/;<=>?@[]\\{}\r\n", "A: 12345678901234567890\t2345678901234567890\r\n",
        "A: b\r\nA: b\r\n", "Hostile: x\r\nHos: x\r\n",
        "Content-Lengt: x\r\nContent-Length2: x\r\nContent_Length: x\r\n",
        "Transfer-Encodin: x\r\nTransfer_Encoding: chunked\r\n"
    };
    static const char *const bad[] = {
        " A: b\r\n", "\tA: b\r\n", "A : b\r\n", "A\t: b\r\n", ": b\r\n", ":\r\n", "A\r\n", "A b: c\r\n",
        "A(: b\r\n", "\xc3\xa9: b\r\n", "A\x7f: b\r\n", "A: b\n", "A: b\rc\r\n", "A: b\r\r\n", "A: b\n\r\n",
        "A: b\x01\r\n", "A: b\x7f\r\n", "A: 1234567\x0b\r\n", "A: 12345678\x1f\r\n",
        "A: 123456789\1771234567890\r\n", "A: b\r\n c\r\n", "A: b\r\n\tc\r\n", "A: b\r\n \r\n", "A:\r\n b\r\n",
        "\n", "\r\r\n", "\rX\n", "A@b: c\r\n", "A[]: c\r\n", "{A}: c\r\n", "A/B: c\r\n", "A,B: c\r\n", "A=B\r\n",
        "\"A\": c\r\n", "A\\: c\r\n", "Transfer-Encoding\x0b: chunked\r\n", "Content-Length : 5\r\n",
        "Transfer-Encoding : chunked\r\n", " Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n", "Content-Length\r\n: 5\r\n"
    };
    /* clang-format on */
    char text[160];
    static const char nul_value[] = GET "A: b\0c\r\n\r\n", nul_name[] = GET "A\0: b\r\n\r\n";
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        strcat(strcat(strcpy(text, GET), good[i]), "\r\n");
        is_served(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, GET), bad[i]), "\r\n");
        is_refused(text, 400);
        strcat(strcat(strcpy(text, "GET / HTTP/1.1\r\n"), bad[i]), HOST "\r\n"); /* as the first field */
        is_refused(text, 400);
    }
    is_refused_bytes(nul_value, sizeof nul_value - 1, 400);
    is_refused_bytes(nul_name, sizeof nul_name - 1, 400);
}

static void every_byte_in_a_value(void **state)
{
    (void)state;
    for (int pad = 0; pad < 17; pad++) { /* at every place within the words that are read */
        for (int c = 0; c < 256; c++) {
            const bool is_fine = c == '\t' || (c >= 0x20 && c != 0x7f);
            char text[64] = GET "A: x";
            ls_http_head head;
            size_t len = strlen(text);
            int result;
            memset(text + len, 0xe9, (size_t)pad);
            len += (size_t)pad;
            text[len++] = (char)c;
            memcpy(text + len, "yyyyyyyy\r\n\r\n", 12);
            len += 12;
            result = parse_copy(text, len, 0, &defaults, &head);
            assert_int_equal(result, is_fine ? (int)len : -400);
        }
    }
}

static void connection(void **state)
{
    static const struct {
        const char *version, *fields;
        bool keep_alive, upgrade;
    } cases[] = {{"1.1", "", true, false},
                 {"1.1", "Connection: close\r\n", false, false},
                 {"1.1", "CONNECTION: CLOSE\r\n", false, false},
                 {"1.1", "Connection: keep-alive\r\n", true, false},
                 {"1.1", "Connection: keep-alive, close\r\n", false, false},
                 {"1.1", "Connection:x ,\tClose\t,y\r\n", false, false},
                 {"1.1", "Connection: ,,\r\nConnection: foo\r\nConnection: ,close\r\n", false, false},
                 {"1.1", "Connection: closed\r\n", true, false},
                 {"1.1", "Connection: clos\r\n", true, false},
                 {"1.1", "Connection: close;x\r\n", true, false},
                 {"1.1", "Connection:\r\n", true, false},
                 {"1.1", "Proxy-Connection: close\r\n", true, false},
                 {"1.0", "", false, false},
                 {"1.0", "Connection: Keep-Alive\r\n", true, false},
                 {"1.0", "Connection: keep-alive\r\nConnection: close\r\n", false, false},
                 {"1.0", "Connection: keep_alive\r\n", false, false},
                 {"1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", true, true},
                 {"1.1", "Upgrade: websocket\r\nConnection: keep-alive, uPGRADE\r\n", true, true},
                 {"1.1", "Upgrade: websocket\r\n", true, false},
                 {"1.1", "Connection: upgrade\r\n", true, false},
                 {"1.1", "Connection: upgrade\r\nUpgrade:\r\n", true, false},
                 {"1.0", "Connection: upgrade, keep-alive\r\nUpgrade: websocket\r\n", true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[160] = "GET / HTTP/";
        ls_http_head head;
        strcat(strcat(strcat(strcat(text, cases[i].version), "\r\n" HOST), cases[i].fields), "\r\n");
        is_served_to(text, &head);
        assert_int_equal(head.keep_alive, cases[i].keep_alive);
        assert_int_equal(head.upgrade, cases[i].upgrade);
    }
}

static void content_length(void **state)
{
    static const struct {
        const char *value;
        uint64_t length;
    } good[] = {{"0", 0},
                {"5", 5},
                {" 42\t", 42},
                {"007", 7},
                {"0000000000000000010", 10},
                {"9223372036854775807", INT64_MAX}};
    /* clang-format off */
    static const char *const bad[] = {
        "", " ", "-1", "+5", "0x5", "1_0", "5 6", "5,5", "5, 5", "5,6", "5;", "5.0", "1e3", "\"5\"", "five",
        "5\t5", "-0", ",", "5,", "9223372036854775808", "9999999999999999999", "18446744073709551616",
        "18446744073709551621", "00000000000000000005", "99999999999999999999999999", "\xb2", "5\xa0"
    };
    /* clang-format on */
    char text[160];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ls_http_head head;
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "cONTENT-lENGTH:"), good[i].value), "\r\n\r\n");
        is_served_to(text, &head);
        assert_true(head.has_length && head.content_length == good[i].length && !head.chunked);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Content-Length: "), bad[i]), "\r\n\r\n");
        is_refused(text, 400);
    }
    is_refused(GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400);
    is_refused(GET "Content-Length: 5\r\ncontent-length: 6\r\n\r\n", 400);
    is_refused(GET "Content-Length: 0\r\nX: y\r\nContent-Length: 0\r\n\r\n", 400);
}

static void transfer_encoding(void **state)
{
    static const char *const good[] = {"chunked", "Chunked", "CHUNKED", "\tchunked \t"};
    static const struct {
        const char *value;
        int status;
    } bad[] = {{"", 400},
               {" ", 400},
               {",", 400},
               {"chunked,", 400},
               {",chunked", 400},
               {"chunked,,", 400},
               {"chunked, chunked", 400},
               {"chunked, gzip", 400},
               {"chunked, identity", 400},
               {"chunked;a=b", 400},
               {"chunked ;a", 400},
               {"chunked chunked", 400},
               {"chunked x", 400},
               {"x chunked", 400},
               {"\"chunked\"", 400},
               {"'chunked'x \"", 400},
               {"chunked\x80", 400},
               {"chun\tked", 400},
               {"(chunked)", 400},
               {"chunked\x0b", 400},
               {"\013chunked", 400},
               {"\014chunked", 400},
               {"chunked\x7f", 400},
               {"gzip,, chunked", 400},
               {"=", 400},
               {"gzip, chunked, gzip", 400},
               {"identity", 501},
               {"gzip", 501},
               {"xchunked", 501},
               {"chunkedx", 501},
               {"chunke", 501},
               {"chunked-", 501},
               {"'chunked'", 501},
               {"gzip, chunked", 501},
               {"identity, chunked", 501},
               {"gzip;q=1, chunked", 501},
               {"gzip ; q=1", 501},
               {"x-foo", 501},
               {"cow", 501},
               {"deflate,gzip", 501}};
    char text[160];
    ls_http_head head;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "tRANSFER-eNCODING:"), good[i]), "\r\n\r\n");
        is_served_to(text, &head);
        assert_true(head.chunked && !head.has_length);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: "), bad[i].value), "\r\n\r\n");
        is_refused(text, bad[i].status);
        /* beside a length, and in 1.0, it is 400 whatever the coding */
        strcat(strcat(strcpy(text, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: "), bad[i].value),
               "\r\nContent-Length: 3\r\n\r\n");
        is_refused(text, 400);
        strcat(strcat(strcpy(text, "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: "), bad[i].value), "\r\n\r\n");
        is_refused(text, 400);
    }
    is_refused(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused(GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400);
    is_refused(GET "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 501);
    is_refused(GET "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400);
    is_refused(GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused(GET "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
    is_refused("POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400);
    is_refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n", 400);
    is_served(GET "TE: trailers, deflate\r\nContent-Encoding: gzip\r\n\r\n"); /* no business of framing */
}

static void expect(void **state)
{
    static const char *const bad[] = {"",  "100",   "100-continu", "100-continue, 100-continue", "100-continue;x",
                                      "x", "200-ok"};
    char text[128];
    ls_http_head head;
    (void)state;
    is_served_to("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", &head);
    assert_true(head.expect_continue);
    is_served_to("POST / HTTP/1.1\r\n" HOST "eXPECT: \t100-CONTINUE \r\n\r\n", &head);
    assert_true(head.expect_continue);
    is_served_to("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", &head);
    assert_false(head.expect_continue);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        strcat(strcat(strcpy(text, GET "Expect: "), bad[i]), "\r\n\r\n");
        is_refused(text, 417);
        strcat(strcat(strcpy(text, "GET / HTTP/1.0\r\nExpect: "), bad[i]), "\r\n\r\n");
        is_served(text);
    }
    is_refused(GET "Expect: 100-continue\r\nExpect: x\r\n\r\n", 417);
    is_refused(GET "Expect: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400); /* framing first */
}

/* ---- limits: at the limit, and one past it ------------------------------------------------------------------ */

static void limit_of_the_target(void **state)
{
    enum { TARGET_MAX = 80 };
    const ls_http_limits limits = {1000, TARGET_MAX, 10};
    ls_http_head head;
    char text[256], tail[] = " HTTP/1.1\r\n" HOST "\r\n";
    (void)state;
    for (int with_query = 0; with_query < 2; with_query++) {
        memset(text, 'a', sizeof text);
        memcpy(text, "GET /", 5);
        if (with_query) text[10] = '?';
        memcpy(text + 4 + TARGET_MAX, tail, sizeof tail);
        assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), strlen(text));
        memset(text + 4 + TARGET_MAX, 'a', 1);
        memcpy(text + 4 + TARGET_MAX + 1, tail, sizeof tail);
        assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), -414);
        /* known before the target ends, also when it comes in pieces */
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX, 0, &limits, &head), LS_HTTP_MORE);
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX + 1, 0, &limits, &head), -414);
        assert_int_equal(parse_copy(text, 4 + TARGET_MAX + 1, 4 + TARGET_MAX, &limits, &head), -414);
    }
}

static void a_request_line_of_8000_octets_is_served(void **state)
{
    static char text[8192 + 64];
    ls_http_head head;
    size_t len;
    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    len = 4 + 8192;
    memcpy(text + len, " HTTP/1.1\r\n" HOST "\r\n", sizeof " HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(parse_copy(text, strlen(text), 0, &defaults, &head), strlen(text));
    assert_int_equal(head.target.len, 8192);
}

static void limit_of_the_head(void **state)
{
    static const char text[] = "\r\n" GET "A: bcdefgh\r\nContent-Length: 8\r\n\r\n"
                               "the body";
    const size_t len = (size_t)(strstr(text, "the body") - text);
    ls_http_limits limits = {(uint32_t)len, 100, 10};
    ls_http_head head;
    (void)state;
    assert_int_equal(parse_every_way(text, sizeof text - 1, &limits, &head), len);
    assert_int_equal(parse_every_way(text, len, &limits, &head), len);
    for (uint32_t max = 0; max < len; max++) { /* refused with max bytes, whatever comes */
        limits.head_bytes_max = max;
        assert_int_equal(parse_copy(text, max, 0, &limits, &head), -431);
        assert_int_equal(parse_copy(text, sizeof text - 1, 0, &limits, &head), -431);
        if (max > 1) {
            assert_int_equal(parse_copy(text, max - 1, 0, &limits, &head), LS_HTTP_MORE);
            assert_int_equal(parse_copy(text, max, max - 1, &limits, &head), -431);
        }
    }
}

static void limit_of_the_fields(void **state)
{
    static char text[16 * 1024];
    ls_http_limits limits = defaults;
    ls_http_head head;
    size_t len;
    (void)state;
    strcpy(text, GET);
    for (int i = 1; i < LS_HTTP_FIELDS_MAX; i++) strcat(text, "A: b\r\n");
    len = strlen(text);
    strcpy(text + len, "\r\n");
    assert_int_equal(parse_every_way(text, len + 2, &limits, &head), len + 2);
    assert_int_equal(head.field_count, LS_HTTP_FIELDS_MAX);
    strcpy(text + len, "A: b\r\n\r\n");
    assert_int_equal(parse_every_way(text, strlen(text), &limits, &head), -431);
    assert_int_equal(parse_copy(text, len, 0, &limits, &head), LS_HTTP_MORE);
    assert_int_equal(parse_copy(text, len + 1, len, &limits, &head), -431); /* its first byte is enough */
    limits.fields_max = 1000;                                               /* the table has no more room */
    assert_int_equal(parse_copy(text, strlen(text), 0, &limits, &head), -431);

    limits.fields_max = 2;
    assert_true(parse_copy(GET "A: b\r\n\r\n", sizeof(GET "A: b\r\n\r\n") - 1, 0, &limits, &head) > 0);
    assert_int_equal(parse_copy(GET "A: b\r\nC: d\r\n\r\n", sizeof(GET "A: b\r\nC: d\r\n\r\n") - 1, 0, &limits, &head),
                     -431);
    limits.fields_max = 0;
    assert_true(parse_copy("GET / HTTP/1.0\r\n\r\n", 18, 0, &limits, &head) > 0);
    assert_int_equal(parse_copy("GET / HTTP/1.0\r\nA: b\r\n\r\n", 24, 0, &limits, &head), -431);
}

static void a_bare_lf_is_refused_when_it_comes(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: h\n";
    ls_http_head head;
    (void)state;
    assert_int_equal(parse_copy(text, sizeof text - 2, 5, &defaults, &head), LS_HTTP_MORE);
    assert_int_equal(parse_copy(text, sizeof text - 1, sizeof text - 2, &defaults, &head), -400);
}

static void why_may_be_null(void **state)
{
    ls_http_head head;
    (void)state;
    assert_int_equal(ls_http1_parse("\n", 1, 0, &defaults, &head, NULL), -400);
    assert_int_equal(ls_http1_parse("", 0, 0, &defaults, &head, NULL), LS_HTTP_MORE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_request),
        cmocka_unit_test(bytes_after_the_head_are_left_alone),
        cmocka_unit_test(nothing_of_an_earlier_request_remains),
        cmocka_unit_test(methods),
        cmocka_unit_test(bad_request_lines),
        cmocka_unit_test(versions),
        cmocka_unit_test(empty_lines_before_the_request_line),
        cmocka_unit_test(targets),
        cmocka_unit_test(hosts),
        cmocka_unit_test(how_many_hosts),
        cmocka_unit_test(fields),
        cmocka_unit_test(every_byte_in_a_value),
        cmocka_unit_test(connection),
        cmocka_unit_test(content_length),
        cmocka_unit_test(transfer_encoding),
        cmocka_unit_test(expect),
        cmocka_unit_test(limit_of_the_target),
        cmocka_unit_test(a_request_line_of_8000_octets_is_served),
        cmocka_unit_test(limit_of_the_head),
        cmocka_unit_test(limit_of_the_fields),
        cmocka_unit_test(a_bare_lf_is_refused_when_it_comes),
        cmocka_unit_test(why_may_be_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
