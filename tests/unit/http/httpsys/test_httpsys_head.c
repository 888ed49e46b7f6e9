/* test_httpsys_head.c - conversion of HTTP_REQUEST to ls_http_head, and of response fields to
 * HTTP_RESPONSE_HEADERS. */
#include "support.h"

#include "http/httpsys/httpsys_head_win32.h"

static const ls_http_limits limits = {.head_bytes_max = 16384, .target_bytes_max = 8192, .fields_max = 100};

/* A request in the layout of http.sys: the structure, then its texts; at the end the memory for names. */
typedef struct layout {
    HTTP_REQUEST *request;
    char *to, *names;
    HTTP_UNKNOWN_HEADER unknown[128];
    const char *why;
    ls_http_head head;
    bool keep_alive;
} layout;

static void layout_open(layout *l, HTTP_VERB verb, const char *target)
{
    memset(l, 0, sizeof *l);
    assert_non_null(l->request = calloc(1, 65536));
    l->to = (char *)(l->request + 1);
    l->names = (char *)l->request + 65536 - LS_HTTPSYS_NAMES_BYTES;
    l->request->Verb = verb;
    l->request->Version = (HTTP_VERSION){1, 1};
    l->request->pRawUrl = l->to;
    l->request->RawUrlLength = (USHORT)strlen(target);
    l->to += sprintf(l->to, "%s", target) + 1;
    l->request->Headers.pUnknownHeaders = l->unknown;
}

static const char *put(layout *l, const char *text)
{
    char *at = l->to;
    l->to += sprintf(at, "%s", text) + 1;
    return at;
}

static void add_known(layout *l, HTTP_HEADER_ID id, const char *value)
{
    l->request->Headers.KnownHeaders[id] = (HTTP_KNOWN_HEADER){(USHORT)strlen(value), put(l, value)};
}

static void add_unknown(layout *l, const char *name, const char *value)
{
    HTTP_UNKNOWN_HEADER *field = &l->unknown[l->request->Headers.UnknownHeaderCount++];
    *field = (HTTP_UNKNOWN_HEADER){(USHORT)strlen(name), (USHORT)strlen(value), put(l, name), put(l, value)};
}

static int translate(layout *l, const ls_http_limits *given)
{
    return ls_httpsys_read_head(l->request, l->names, given, &l->head, &l->keep_alive, &l->why);
}

static void span_is(const layout *l, ls_span span, const char *text)
{
    assert_int_equal(span.len, strlen(text));
    if (span.len > 0) assert_memory_equal((const char *)l->request + span.at, text, span.len);
}

static void layout_close(layout *l)
{
    free(l->request);
}

TEST_IN(layout, l, all_parts_of_a_request, HttpVerbPOST, "/a/b?c=d")
{
    add_known(l, HttpHeaderHost, "h:81");
    add_known(l, HttpHeaderContentLength, "007");
    add_known(l, HttpHeaderUserAgent, "");
    add_known(l, HttpHeaderExpect, "100-Continue");
    add_unknown(l, "X-One", "1");
    assert_int_equal(translate(l, &limits), 0);
    assert_int_equal(l->head.method, LS_HTTP_POST);
    span_is(l, l->head.method_name, "POST");
    span_is(l, l->head.target, "/a/b?c=d");
    span_is(l, l->head.path, "/a/b");
    span_is(l, l->head.query, "c=d");
    span_is(l, l->head.host, "h:81");
    assert_true(l->head.has_query && l->head.has_length && l->keep_alive);
    assert_int_equal(l->head.content_length, 7);
    assert_int_equal(l->head.version, 11);
    assert_int_equal(l->head.field_count, 5);
    const ls_http_field *field = ls_http_head_find(&l->head, (const char *)l->request, "x-one", 5);
    assert_non_null(field);
    span_is(l, field->value, "1");
    assert_non_null(ls_http_head_find(&l->head, (const char *)l->request, "user-agent", 10));
    assert_null(ls_http_head_find(&l->head, (const char *)l->request, "accept", 6));
}

TEST(targets_of_all_forms)
{
    static const struct {
        const char *target, *path, *query, *host;
        bool root, has_query;
    } cases[] = {{"/", "/", "", "h", false, false},      {"/?", "/", "", "h", false, true},
                 {"*", "*", "", "h", false, false},      {"http://a:1/x?y?z", "/x", "y?z", "a:1", false, true},
                 {"http://a", "", "", "a", true, false}, {"https://a?q", "", "q", "a", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layout l;
        layout_open(&l, HttpVerbOPTIONS, cases[i].target);
        add_known(&l, HttpHeaderHost, "h");
        assert_int_equal(translate(&l, &limits), 0);
        span_is(&l, l.head.path, cases[i].path);
        span_is(&l, l.head.query, cases[i].query);
        span_is(&l, l.head.host, cases[i].host);
        assert_int_equal(l.head.path_is_root, cases[i].root);
        assert_int_equal(l.head.has_query, cases[i].has_query);
        layout_close(&l);
    }
}

TEST(methods_by_number_and_by_name)
{
    static const struct {
        HTTP_VERB verb;
        const char *unknown, *name;
        ls_http_method method;
    } cases[] = {
        /* clang-format off */
        {HttpVerbGET, NULL, "GET", LS_HTTP_GET}, {HttpVerbHEAD, NULL, "HEAD", LS_HTTP_HEAD},
        {HttpVerbPUT, NULL, "PUT", LS_HTTP_PUT}, {HttpVerbDELETE, NULL, "DELETE", LS_HTTP_DELETE},
        {HttpVerbOPTIONS, NULL, "OPTIONS", LS_HTTP_OPTIONS}, {HttpVerbTRACE, NULL, "TRACE", LS_HTTP_TRACE},
        {HttpVerbCONNECT, NULL, "CONNECT", LS_HTTP_CONNECT}, {HttpVerbSEARCH, NULL, "SEARCH", LS_HTTP_OTHER},
        {HttpVerbPROPPATCH, NULL, "PROPPATCH", LS_HTTP_OTHER},
        {HttpVerbUnknown, "PATCH", "PATCH", LS_HTTP_PATCH}, {HttpVerbUnknown, "patch", "patch", LS_HTTP_OTHER},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layout l;
        layout_open(&l, cases[i].verb, cases[i].verb == HttpVerbCONNECT ? "h:1" : "/");
        add_known(&l, HttpHeaderHost, "h");
        if (cases[i].unknown != NULL) {
            l.request->pUnknownVerb = put(&l, cases[i].unknown);
            l.request->UnknownVerbLength = (USHORT)strlen(cases[i].unknown);
        }
        assert_int_equal(translate(&l, &limits), 0);
        assert_int_equal(l.head.method, cases[i].method);
        span_is(&l, l.head.method_name, cases[i].name);
        layout_close(&l);
    }
}

TEST(an_upgrade_needs_both_fields)
{
    static const struct {
        USHORT minor;
        const char *connection, *upgrade;
        bool asked;
    } cases[] = {{1, "Upgrade", "websocket", true},   {1, "keep-alive, upgrade", "websocket", true},
                 {1, "upgrades", "websocket", false}, {1, "upgrade", NULL, false},
                 {1, NULL, "websocket", false},       {0, "upgrade", "websocket", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layout l;
        layout_open(&l, HttpVerbGET, "/");
        l.request->Version.MinorVersion = cases[i].minor;
        add_known(&l, HttpHeaderHost, "h");
        if (cases[i].connection != NULL) add_known(&l, HttpHeaderConnection, cases[i].connection);
        if (cases[i].upgrade != NULL) add_known(&l, HttpHeaderUpgrade, cases[i].upgrade);
        assert_int_equal(translate(&l, &limits), 0);
        assert_int_equal(l.head.upgrade, cases[i].asked);
        layout_close(&l);
    }
}

TEST(version_and_connection_decide_keep_alive)
{
    static const struct {
        USHORT minor;
        const char *connection;
        bool keep;
    } cases[] = {
        {1, NULL, true}, {1, "Close", false}, {1, "keep-alive", true}, {0, NULL, false}, {0, "Keep-Alive", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layout l;
        layout_open(&l, HttpVerbGET, "/");
        l.request->Version.MinorVersion = cases[i].minor;
        add_known(&l, HttpHeaderHost, "h");
        if (cases[i].connection != NULL) add_known(&l, HttpHeaderConnection, cases[i].connection);
        assert_int_equal(translate(&l, &limits), 0);
        assert_int_equal(l.keep_alive, cases[i].keep);
        assert_int_equal(l.head.version, 10 + cases[i].minor);
        layout_close(&l);
    }
}

TEST_IN(layout, l, a_chunked_body_has_no_length, HttpVerbPOST, "/")
{
    add_known(l, HttpHeaderHost, "h");
    add_known(l, HttpHeaderTransferEncoding, "chunked");
    assert_int_equal(translate(l, &limits), 0);
    assert_true(l->head.has_body && !l->head.has_length);
    assert_int_equal(l->head.content_length, 0);
}

TEST(bad_lengths_are_refused)
{
    static const char *const bad[] = {"-1", "1x", " 1", "12345678901234567890"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        layout l;
        layout_open(&l, HttpVerbPOST, "/");
        add_known(&l, HttpHeaderHost, "h");
        add_known(&l, HttpHeaderContentLength, bad[i]);
        assert_int_equal(translate(&l, &limits), -400);
        assert_string_equal(l.why, "bad Content-Length");
        layout_close(&l);
    }
}

/* All fields that http.sys has numbers for, and its longest method name: LS_HTTPSYS_NAMES_BYTES is large enough. */
TEST_IN(layout, l, every_known_field_at_once, HttpVerbPROPPATCH, "/")
{
    for (int id = 0; id < HttpHeaderRequestMaximum; id++)
        add_known(l, (HTTP_HEADER_ID)id, id == HttpHeaderTransferEncoding ? "chunked" : "1");
    assert_int_equal(translate(l, &limits), -400);
    assert_string_equal(l->why, "Transfer-Encoding with Content-Length"); /* checked behind all fields */
    assert_int_equal(l->head.field_count, HttpHeaderRequestMaximum);
    const ls_http_field *last = &l->head.fields[HttpHeaderRequestMaximum - 1];
    span_is(l, last->name, "User-Agent");
    assert_true(last->name.at + last->name.len <= 65536);
}

TEST(limits_at_the_limit_and_one_past_it)
{
    for (int past = 0; past < 2; past++) {
        layout l;
        ls_http_limits tight = {.head_bytes_max = 16384, .target_bytes_max = 4, .fields_max = 100};
        layout_open(&l, HttpVerbGET, past ? "/2345" : "/234");
        add_known(&l, HttpHeaderHost, "h");
        assert_int_equal(translate(&l, &tight), past ? -414 : 0);
        layout_close(&l);

        tight = (ls_http_limits){.head_bytes_max = 16384, .target_bytes_max = 4, .fields_max = 3};
        layout_open(&l, HttpVerbGET, "/");
        add_known(&l, HttpHeaderHost, "h");
        for (int i = 0; i < 2 + past; i++) add_unknown(&l, "X", "1");
        assert_int_equal(translate(&l, &tight), past ? -431 : 0);
        layout_close(&l);

        static const char text[] = "GET / HTTP/1.1\r\nHost: h\r\nX: 1\r\n\r\n";
        tight = (ls_http_limits){
            .head_bytes_max = (uint32_t)(sizeof text - 1 - (size_t)past), .target_bytes_max = 4, .fields_max = 100};
        layout_open(&l, HttpVerbGET, "/");
        add_known(&l, HttpHeaderHost, "h");
        add_unknown(&l, "X", "1");
        assert_int_equal(translate(&l, &tight), past ? -431 : 0);
        layout_close(&l);
    }
}

TEST(fields_of_a_response)
{
    static const char lines[] = "Location: /x\r\nX-A: \r\nETag: \"1\"\r\netag: \"2\"\r\nContent-MD5: q\r\n";
    HTTP_RESPONSE_HEADERS to;
    HTTP_UNKNOWN_HEADER unknown[5];
    ls_block *const block = malloc(sizeof *block + sizeof lines);
    const ls_exchange x = {.fields = block, .fields_len = sizeof lines - 1};
    assert_non_null(block);
    memcpy(block->data, lines, sizeof lines);
    memset(&to, 0, sizeof to);
    assert_int_equal(ls_httpsys_fields(&x, &to, unknown), 2);
    assert_int_equal(to.UnknownHeaderCount, 2);
    assert_ptr_equal(to.pUnknownHeaders, unknown);
    assert_memory_equal(unknown[0].pName, "X-A", 3);
    assert_int_equal(unknown[0].NameLength, 3);
    assert_int_equal(unknown[0].RawValueLength, 0);
    assert_memory_equal(unknown[1].pRawValue, "\"2\"", 3);
    assert_memory_equal(to.KnownHeaders[HttpHeaderEtag].pRawValue, "\"1\"", 3);
    assert_memory_equal(to.KnownHeaders[HttpHeaderLocation].pRawValue, "/x", 2);
    assert_int_equal(to.KnownHeaders[HttpHeaderContentMd5].RawValueLength, 1);
    free(block);
}
