/* test_http1_parse_line.c - request heads: the request line and its target, versions, and Host. */
/* sanitizers: asan; no thread starts */
#include "http1_parse_fixture.h"

/* ---- the request line --------------------------------------------------------------------------------------- */

TEST(a_simple_request)
{
    static const char text[] =
        "GET /a/b?c=d&e=%20 HTTP/1.1\r\nHost: example.com:80\r\nX-Two:  a b \t\r\nEmpty:\r\n\r\n";
    ls_http_head head;
    const ls_http_field *field;
    is_served_to(text, &head);
    assert_int_equal(head.method, LS_HTTP_GET);
    assert_int_equal(head.version, 11);
    assert_true(terms.keep_alive);
    assert_false(terms.chunked || head.has_length || terms.expect_continue || head.upgrade || head.path_is_root);
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

TEST(bytes_after_the_head_are_not_consumed)
{
    static const char text[] = GET "Content-Length: 4\r\n\r\nbodyGET /next";
    ls_http_head head;
    int result;
    result = parse_every_way(text, sizeof text - 1, &defaults, &head);
    assert_int_equal(result, strstr(text, "body") - text);
    assert_true(head.has_length && head.content_length == 4);
}

TEST(the_head_is_reset_for_each_request)
{
    ls_http_head head;
    memset(&head, 0xa5, sizeof head);
    is_served_to("GET / HTTP/1.0\r\n\r\n", &head);
    assert_int_equal(head.host.len, 0);
    assert_int_equal(head.field_count, 0);
    assert_int_equal(head.query.len, 0);
    assert_false(terms.keep_alive || terms.chunked || head.has_length || terms.expect_continue || head.upgrade);
    assert_false(head.has_query || head.path_is_root);
    assert_true(head.content_length == 0);
}

TEST(methods)
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

TEST(bad_request_lines)
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) is_refused(cases[i], 400);
    is_refused_bytes(nul, sizeof nul - 1, 400);
    is_refused_bytes("\0", 1, 400);
    is_refused_bytes(tls, sizeof tls - 1, 400);
    is_refused_bytes(tls, 1, 400); /* its first byte is enough */
}

TEST(versions)
{
    static const struct {
        const char *version;
        int result; /* the minor version, or -status */
        bool keep_alive;
    } cases[] = {{"HTTP/1.1", 1, true},  {"HTTP/1.0", 0, false}, {"HTTP/1.2", 1, true},  {"HTTP/1.9", 1, true},
                 {"HTTP/2.0", -505, 0},  {"HTTP/9.9", -505, 0},  {"HTTP/0.9", -505, 0},  {"HTTP/3.0", -505, 0},
                 {"HTTP/1.11", -400, 0}, {"HTTP/11.1", -400, 0}, {"http/1.1", -400, 0},  {"Http/1.1", -400, 0},
                 {"HTTP/1", -400, 0},    {"HTTP/1.", -400, 0},   {"HTTP/.1", -400, 0},   {"HTTP/2", -400, 0},
                 {"HTTP/1.x", -400, 0},  {"HTTP/1,1", -400, 0},  {"HTTP /1.1", -400, 0}, {"HTTP/ 1.1", -400, 0},
                 {"HTTP/+1.1", -400, 0}, {"HTTP/1.-1", -400, 0}, {"HTTPS/1.1", -400, 0}, {"XTTP/1.1", -400, 0},
                 {"1.1", -400, 0},       {"HTTP/01.1", -400, 0}, {"", -400, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64] = "GET / ";
        ls_http_head head;
        strcat(strcat(text, cases[i].version), "\r\n" HOST "\r\n");
        if (cases[i].result < 0) {
            is_refused(text, -cases[i].result);
            continue;
        }
        is_served_to(text, &head);
        assert_int_equal(head.version, 10 + cases[i].result);
        assert_int_equal(terms.keep_alive, cases[i].keep_alive);
    }
}

TEST(empty_lines_before_the_request_line)
{
    ls_http_head head;
    is_served_to("\r\n" GET "\r\n", &head);
    assert_int_equal(head.method_name.at, 2);
    is_served("\r\n\r\n\r\n\r\n" GET "\r\n");
    is_refused("\r\n\r\n\r\n\r\n\r\n" GET "\r\n", 400);
    is_refused("\r\n\r\n\r\n\r\n\r", 400);
}

/* ---- target forms ------------------------------------------------------------------------------------------- */

typedef struct target_case {
    const char *line, *path, *query, *host; /* query NULL: no query */
    bool root;
} target_case;

TEST(targets)
{
    /* clang-format off */
    static const target_case cases[] = {
        {"GET /", "/", NULL, "h", false}, {"GET /?", "/", "", "h", false}, {"GET /?/?/", "/", "/?/", "h", false},
        {"GET //a//b/../c;x=1", "//a//b/../c;x=1", NULL, "h", false},
        {"GET /%zz%", "/%zz%", NULL, "h", false}, /* the decoder refuses it */
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

TEST(hosts)
{
    /* clang-format off */
    static const char *const good[] = {
        "a", "a.b-c_d", "_a.-b-", "EXAMPLE.com", "example.com.", "127.0.0.1:8080", "999.1.1.1", "a:", "a:0", "a:65535",
        "a:00080", "[::]", "[::1]", "[::1]:8080", "[1:2:3:4:5:6:7:8]", "[1::8]",
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
        "[1:2:3:4:5:6::1.2.3.4]", "a,b", "a;b", "%41b", "a%00", "a!", "a$", "a&", "a'", "(a)", "*.a", "a+b", "a=b", "~a",
        ".", ".a", "a..b", "a..", ".:80"
    };
    /* clang-format on */
    char text[128];
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

TEST(number_of_hosts)
{
    ls_http_head head;
    static const char *const refused[] = {
        /* clang-format off */
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nX-Host: h\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\n\r\n", GET HOST "\r\n", GET "hOsT: other\r\n\r\n",
        "GET / HTTP/1.0\r\n" HOST HOST "\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: \t \r\n\r\n", "GET / HTTP/1.0\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) is_refused(refused[i], 400);
    is_served("GET / HTTP/1.0\r\n\r\n");
    is_served("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"); /* no authority in the target */
    is_served("CONNECT a:80 HTTP/1.1\r\nHost:\r\n\r\n");
    is_served_to("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", &head);
    assert_int_equal(head.host.len, 1); /* the absolute-form target overrides Host */
    assert_int_equal(head.host.at, sizeof "GET http://" - 1);
}

/* ---- a head of parts ---------------------------------------------------------------------------------------- */

TEST(parts_that_are_refused)
{
#define METHOD_32 "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF"
    static const struct {
        const char *method, *target, *name, *value;
        int status;
        const char *why;
    } rows[] = {
        /* clang-format off */
        {METHOD_32, "/", "Host", "h", 0, NULL}, {METHOD_32 "G", "/", "Host", "h", 501, "method too long"},
        {"", "/", "Host", "h", 400, "bad method"}, {"G T", "/", "Host", "h", 400, "bad method"},
        {"GET\r\n", "/", "Host", "h", 400, "bad method"}, {"GET", "", "Host", "h", 400, "no request target"},
        {"GET", "a", "Host", "h", 400, "bad request target"},
        {"GET", "/ HTTP/1.1\r\nX: y", "Host", "h", 400, "bad character in the request target"},
        {"GET", "/a?b\n", "Host", "h", 400, "bad character in the request target"},
        {"GET", "/a#b", "Host", "h", 400, "fragment in the request target"},
        {"GET", "http://a b/", "Host", "h", 400, "bad character in the request target"},
        {"GET", "http://a@b/", "Host", "h", 400, "bad authority in the request target"},
        {"GET", "*", "Host", "h", 400, "the target * is only valid for OPTIONS"},
        {"CONNECT", "/", "Host", "h", 400, "CONNECT needs a host and a port"},
        {"GET", "/", "Host", "a b", 400, "bad Host"}, {"GET", "/", "X", "h", 400, "no Host"},
        {"GET", "/", "", "h", 400, "bad field name"}, {"GET", "/", "Host: x", "h", 400, "bad field name"},
        {"GET", "/", "X", "a\r\nY: b", 400, "control character in a field"},
        {"GET", "/", "Content-Length", "1x", 400, "bad Content-Length"},
        {"GET", "/", "Transfer-Encoding", "chunked, a", 400, "a transfer coding after chunked"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const parts[] = {rows[i].method, rows[i].target, rows[i].name, rows[i].value}, *why = NULL;
        char text[128];
        ls_span spans[4];
        ls_http_head head;
        uint32_t end = 0;
        for (int n = 0; n < 4; n++) {
            spans[n] = (ls_span){end, (uint32_t)strlen(parts[n])};
            memcpy(text + end, parts[n], spans[n].len);
            end += spans[n].len;
        }
        char *const copy = test_copy_exact(text, end);
        head.version = 11;
        head.method_name = spans[0];
        head.target = spans[1];
        head.field_count = 1;
        head.fields[0] = (ls_http_field){spans[2], spans[3]};
        if (ls_http_head_complete(&head, copy, &terms, &why) != -rows[i].status)
            fail_msg("row %d: %s", (int)i, why);
        if (rows[i].why != NULL) assert_string_equal(why, rows[i].why);
        free(copy);
    }
#undef METHOD_32
}
