/* test_access_log.c - the lines of an access log: what a client sends cannot forge one. */
#include "support.h"

#include "base/err.h"
#include "codec/http1/http1_parse.h"
#include "http/access/access_log.h"
#include "http/http1.h"

enum { PARTS_MAX = 40 };

typedef struct request {
    ls_exchange x;
    ls_record record;
    ls_access_part parts[PARTS_MAX];
    ls_access_log log;
    char line[LS_LINE_LOG_LINE_MAX];
} request;

static const ls_addr client = {.family = LS_ADDR_IP4, .bytes_len = 4, .port = 4000, .bytes = {192, 0, 2, 77}};

static void set_format(request *r, const char *format)
{
    r->log.part_count = 0;
    while (*format != '\0') {
        const size_t len = strcspn(format + 1, format[0] == '$' ? " \",}" : "$") + 1;
        ls_access_part *part = &r->parts[r->log.part_count++];
        assert_true(r->log.part_count < PARTS_MAX);
        *part = (ls_access_part){LS_ACCESS_LITERAL, {format, len}};
        for (uint8_t what = 1; *format == '$' && what < LS_ACCESS_WHATS; what++) {
            const char *name = ls_access_names[what];
            const size_t n = strlen(name);
            if (strncmp(format + 1, name, n) == 0 && (len - 1 == n || name[n - 1] == '_'))
                *part = (ls_access_part){what, {format + 1 + n, len - 1 - n}};
        }
        assert_true(*format != '$' || part->what != LS_ACCESS_LITERAL);
        format += len;
    }
    r->log.parts = r->parts;
}

static request *request_new(const char *format, const char *bytes)
{
    static const ls_http_limits limits = {.head_bytes_max = 65536, .target_bytes_max = 32768, .fields_max = 100};
    request *r = calloc(1, sizeof *r);
    ls_http_terms terms;
    assert_non_null(r);
    r->x.bytes = bytes;
    r->x.id = 0x0123456789abcdef;
    assert_true(ls_http1_parse(bytes, strlen(bytes), 0, &limits, &r->x.head, &terms, NULL) > 0);
    r->record = (ls_record){.x = &r->x,
                            .remote = &client,
                            .client = &client,
                            .protocol = "HTTP/1.1",
                            .status = 200,
                            .sent = 12,
                            .began_ns = 1000000,
                            .first_ns = 6000000,
                            .ended_ns = 1235000000};
    set_format(r, format);
    return r;
}

static const char *line_of(request *r)
{
    const size_t len = ls_access_line(&r->log, &r->record, INT64_C(1796052519123456), r->line);
    assert_true(len < sizeof r->line);
    r->line[len] = '\0';
    return r->line;
}

TEST(a_line_has_the_values_of_its_request)
{
    static const char bytes[] =
        "GET /a%20b?q=1 HTTP/1.1\r\nHost: h\r\nX-Y: z\r\nAuthorization: Basic dXNlcjpwYXNz\r\n\r\n";
    request *r =
        request_new("$remote_addr - $remote_user [$time_local ] \"$request \" $status $body_bytes_sent $http_x-y "
                    "$http_none $request_time $first_byte_time $request_id $route $uri $args $host $msec",
                    bytes);
    ls_route *route = calloc(1, sizeof *route + 8);
    memcpy(route->pattern, "/:name", route->len = 6);
    r->record.route = route;
    assert_string_equal(line_of(r),
                        "192.0.2.77 - user [30/Nov/2026:15:28:39 +0000 ] \"GET /a%20b?q=1 HTTP/1.1 \" 200 12 z - "
                        "1.234 0.005 0123456789abcdef /:name /a%20b q=1 h 1796052519.123");
    free(route);
    free(r);
}

TEST(no_value_forges_a_line)
{
    static const char bytes[] = "GET /\xc3\xa4\xff HTTP/1.1\r\nHost: h\r\nUser-Agent: a\" \\ \t\xc3\xa4\xc3 \r\n\r\n";
    request *r = request_new("\"$http_user-agent\" $request_uri", bytes);
    assert_string_equal(line_of(r), "\"a\\x22 \\x5C \\x09\\xC3\\xA4\\xC3\" /\\xC3\\xA4\\xFF");
    set_format(r, "{$http_user-agent,$http_none,$status,$upstream_addr}");
    r->log.json = true;
    assert_string_equal(line_of(r), "{\"a\\\" \\\\ \\u0009\xc3\xa4\xef\xbf\xbd\",null,200,null}");
    r->record.x = NULL; /* what is no request */
    r->record.line = (ls_text){"GET /?token=1&a=2 HTTP/9", 24};
    set_format(r, "{$request,$request_id}");
    assert_string_equal(line_of(r), "{\"GET /?token=1&a=2 HTTP/9\",null}");
    free(r);
}

TEST(each_byte_at_each_place_of_a_value)
{
    request *r = request_new("$request", "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    char value[18], expected[32];
    r->record.x = NULL;
    for (unsigned byte = 0; byte < 256; byte++)
        for (size_t at = 0; at < sizeof value; at++) {
            const bool plain = byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\';
            memset(value, 'a', sizeof value);
            value[at] = (char)byte;
            r->record.line = (ls_text){value, sizeof value};
            (void)snprintf(expected, sizeof expected, plain ? "%.*s%c%s" : "%.*s\\x%02X%s", (int)at,
                           "aaaaaaaaaaaaaaaaa", byte, "aaaaaaaaaaaaaaaaa" + at);
            assert_string_equal(line_of(r), expected);
        }
    free(r);
}

TEST(secrets_are_masked)
{
    static const char bytes[] = "GET /?a=1&token=s3&%74oken=s4&tokens=5&token HTTP/1.1\r\nHost: h\r\n"
                                "Referer: http://h/?token=s6#x\r\n\r\n";
    static const ls_text masked[] = {{"token", 5}};
    const ls_addr ip6 = {.family = LS_ADDR_IP6, .bytes_len = 16, .bytes = {0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 3}};
    request *r = request_new("$request $request_uri $args $http_referer $remote_addr", bytes);
    r->log.masked = masked;
    r->log.masked_count = 1;
    r->log.masks_addresses = true;
    assert_string_equal(line_of(r), "GET /?a=1&token=***&%74oken=***&tokens=5&token HTTP/1.1 "
                                    "/?a=1&token=***&%74oken=***&tokens=5&token "
                                    "a=1&token=***&%74oken=***&tokens=5&token http://h/?token=***#x 192.0.2.0");
    r->record.client = &ip6;
    set_format(r, "$remote_addr");
    assert_string_equal(line_of(r), "2001:db8:1::");
    free(r);
}

TEST(a_long_value_is_cut_and_the_line_stays_whole)
{
    char *bytes = malloc(60000);
    memset(bytes, 'a', 60000);
    memcpy(bytes, "GET /", 5);
    memcpy(bytes + 30000, " HTTP/1.1\r\nHost: h\r\nX: ", 23);
    memset(bytes + 30023, '"', 20000);
    memcpy(bytes + 50023, "\r\n\r\n", 5);
    request *r = request_new(
        "{$request_uri,$http_x,$http_x,$http_x,$http_x,$http_x,$http_x,$http_x,$http_x,$http_x,$status}", bytes);
    for (int json = 0; json <= 1; json++) {
        r->log.json = json;
        const char *line = line_of(r);
        const size_t len = strlen(line);
        assert_true(len > 20000 && len < LS_LINE_LOG_LINE_MAX);
        assert_string_equal(line + len - 5, ",200}");
        assert_memory_equal(line, json ? "{\"/aaa" : "{/aaaa", 6);
        for (size_t n = 0; json && n < len; n++) /* no escape was cut in the middle */
            if (line[n] == '\\') assert_true(line[++n] == '"');
    }
    free(r);
    free(bytes);
}
