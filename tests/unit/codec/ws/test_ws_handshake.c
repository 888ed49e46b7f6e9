/* test_ws_handshake.c - the opening handshake: each rule of the server and of the client, subprotocols, origins. */
/* sanitizers: asan; no thread starts */
#include "codec/http1/http1_parse.h"
#include "codec/http1/http1_reader.h"
#include "codec/ws/ws_handshake.h"

#include "base/crypto/digest.h"
#include "support.h"

#define KEY    "dGhlIHNhbXBsZSBub25jZQ==" /* RFC 6455 section 1.3 */
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define START  "GET /chat HTTP/1.1\r\nHost: server.example.com\r\n"
#define FIELDS "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define KEYED  "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version: 13\r\n"
#define LIST(...)                                                                                       \
    {                                                                                                   \
        (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *) \
    }

static const ls_http_limits limits = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX};
static const ls_ws_policy same_origin = {.any_origin = false};

static bool has_sha1(void)
{
    uint8_t digest[LS_SHA1_BYTES];
    return ls_sha1("", 0, digest) == LS_OK;
}

/* ---- the server ------------------------------------------------------------------------------------------------- */

/* Parse the request, and check it; out->protocol refers to `text`. */
static int check_with(const char *text, bool secure, const ls_ws_policy *policy, ls_ws_handshake *out)
{
    ls_http_head head;
    const char *why = NULL;
    const int parsed = ls_http1_parse(text, strlen(text), 0, &limits, &head, &(ls_http_terms){0}, &why);
    if (parsed <= 0) fail_msg("%d (%s) for: %s", parsed, why != NULL ? why : "", text);
    char host[512];
    (void)snprintf(host, sizeof host, "%.*s", (int)head.host.len, text + head.host.at);
    const int status = ls_ws_handshake_check(&head, text, secure, host, policy, out);
    if (status == 501 && !has_sha1()) return 101; /* built without OpenSSL: all else was checked before */
    assert_true((status == 101) == (out->why[0] == '\0'));
    return status;
}

/* The handshake with these lines added gives this status and text. */
static void gives(const char *text, int status, const char *why)
{
    ls_ws_handshake out;
    const int result = check_with(text, false, &same_origin, &out);
    if (result != status || (status != 101 && strstr(out.why, why) == NULL))
        fail_msg("%d (%s), wanted %d (%s), for: %s", result, out.why, status, why, text);
    if (status == 426) {
        assert_non_null(strstr(out.fields, "Sec-WebSocket-Version: 13\r\n"));
        assert_non_null(strstr(out.fields, "Upgrade: websocket\r\n"));
    } else {
        assert_string_equal(out.fields, status == 405 ? "Allow: GET\r\n" : "");
    }
}

TEST(example_of_the_rfc)
{
    static const char text[] = START FIELDS KEYED "Origin: http://server.example.com\r\n"
                                                  "Sec-WebSocket-Protocol: chat, superchat\r\n\r\n";
    const ls_ws_policy policy = {.protocols = LIST("superchat", "chat")};
    ls_ws_handshake out;
    assert_int_equal(check_with(text, false, &policy, &out), 101);
    if (has_sha1()) assert_string_equal(out.accept, ACCEPT);
    assert_int_equal(out.protocol_len, 4); /* the first of the client */
    assert_memory_equal(out.protocol, "chat", 4);
}

TEST(rules_of_the_request)
{
    static const struct {
        const char *text;
        int status;
        const char *why;
    } cases[] = {
        {START FIELDS KEYED "\r\n", 101, ""},
        {START "upgrade: h2c, WebSocket\r\nconnection: keep-alive, uPgRaDe\r\n" KEYED "\r\n", 101, ""},
        {START "Upgrade: h2c\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" KEYED "\r\n", 101, ""},
        {START FIELDS "Content-Length: 0\r\n" KEYED "\r\n", 101, ""},
        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n" FIELDS KEYED "\r\n", 405, "GET"},
        {"HEAD / HTTP/1.1\r\nHost: h\r\n" FIELDS KEYED "\r\n", 405, "GET"},
        {"GET / HTTP/1.0\r\nHost: h\r\n" FIELDS KEYED "\r\n", 400, "HTTP/1.1"},
        {START KEYED "\r\n", 426, "\"Upgrade: websocket\" is missing"},
        {START "Connection: Upgrade\r\nUpgrade: h2c\r\n" KEYED "\r\n", 426, "\"Upgrade: websocket\" is missing"},
        {START "Connection: Upgrade\r\nUpgrade: websocket2\r\n" KEYED "\r\n", 426,
         "\"Upgrade: websocket\" is missing"},
        {START "Upgrade: websocket\r\n" KEYED "\r\n", 400, "\"Connection: upgrade\" is missing"},
        {START "Upgrade: websocket\r\nConnection: keep-alive\r\n" KEYED "\r\n", 400,
         "\"Connection: upgrade\" is missing"},
        {START FIELDS "Content-Length: 1\r\n" KEYED "\r\n", 400, "no body"},
        {START FIELDS "Transfer-Encoding: chunked\r\n" KEYED "\r\n", 400, "no body"},
        {START FIELDS "Sec-WebSocket-Key: " KEY "\r\n\r\n", 426, "Sec-WebSocket-Version is missing"},
        {START FIELDS "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version: 8\r\n\r\n", 426, "unsupported"},
        {START FIELDS "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version: 14\r\n\r\n", 426, "unsupported"},
        {START FIELDS "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version: 13, 8\r\n\r\n", 426, "unsupported"},
        {START FIELDS "Sec-WebSocket-Key: " KEY "\r\nSec-WebSocket-Version:\r\n\r\n", 426, "unsupported"},
        {START FIELDS KEYED "Sec-WebSocket-Version: 13\r\n\r\n", 400, "more than one Sec-WebSocket-Version"},
        {START FIELDS "Sec-WebSocket-Version: 13\r\n\r\n", 400, "Sec-WebSocket-Key is missing"},
        {START FIELDS KEYED "Sec-WebSocket-Key: " KEY "\r\n\r\n", 400, "more than one Sec-WebSocket-Key"},
        {START FIELDS KEYED "Sec-WebSocket-Protocol: a b\r\n\r\n", 400, "Sec-WebSocket-Protocol is not a list"},
        {START FIELDS KEYED "Sec-WebSocket-Protocol: a, , b\r\n\r\n", 101, ""},
        {START FIELDS KEYED "Sec-WebSocket-Protocol:\r\n\r\n", 101, ""},
        {START FIELDS KEYED "Origin: http://a\r\nOrigin: http://a\r\n\r\n", 400, "more than one Origin"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) gives(cases[n].text, cases[n].status, cases[n].why);
}

TEST(keys)
{
    static const struct {
        const char *key;
        bool valid;
    } cases[] = {
        /* clang-format off */
        {KEY, true}, {"AQIDBAUGBwgJCgsMDQ4PEC==", true}, /* section 4.1: bits of the last digit are set */
        {"++++++++++++++//////////==", false}, /* 26 characters */
        {"++++++++++/////////////==", false}, /* 25 */
        {"++++++++++//////////09==", true}, {"++++++++++//////////0==", false}, /* 23 */
        {"++++++++++//////////09A=", false}, /* 17 bytes */
        {"++++++++++//////////09AA", false}, /* 18 bytes */
        {"++++++++++//////////0===", false}, {"++++++++++/////////-09==", false}, /* not in the alphabet */
        {"++++++++++//////// //09==", false}, {"=+++++++++//////////09==", false}, {"==", false}, {"", false},
        /* clang-format on */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char text[512];
        snprintf(text, sizeof text, START FIELDS "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n",
                 cases[n].key);
        gives(text, cases[n].valid ? 101 : 400, "Sec-WebSocket-Key is not the base64 of 16 bytes");
    }
}

TEST(protocols)
{
    static const struct {
        const char *lines, *chosen;
    } cases[] = {
        {"", NULL},
        {"Sec-WebSocket-Protocol: chat.v1\r\n", "chat.v1"},
        {"Sec-WebSocket-Protocol: other\r\n", NULL},
        {"Sec-WebSocket-Protocol: other, chat.v2, chat.v1\r\n", "chat.v2"},
        {"Sec-WebSocket-Protocol: other\r\nSec-WebSocket-Protocol: chat.v1,chat.v2\r\n", "chat.v1"},
        {"Sec-WebSocket-Protocol: CHAT.V1\r\n", NULL}, /* case matters */
        {"Sec-WebSocket-Protocol: chat.v\r\n", NULL},
        {"Sec-WebSocket-Protocol: chat.v11\r\n", NULL},
    };
    const ls_ws_policy policy = {.protocols = LIST("chat.v1", "chat.v2")};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        char text[512];
        ls_ws_handshake out;
        snprintf(text, sizeof text, START FIELDS KEYED "%s\r\n", cases[n].lines);
        assert_int_equal(check_with(text, false, &policy, &out), 101);
        if (cases[n].chosen == NULL) {
            assert_null(out.protocol);
        } else {
            assert_int_equal(out.protocol_len, strlen(cases[n].chosen));
            assert_memory_equal(out.protocol, cases[n].chosen, out.protocol_len);
        }
        assert_int_equal(check_with(text, false, &same_origin, &out), 101);
        assert_null(out.protocol); /* the route supports none */
    }
}

static int origin_status(const char *host, const char *origin, bool secure, const ls_ws_policy *policy)
{
    char text[512];
    ls_ws_handshake out;
    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\n" FIELDS KEYED "\r\n", host, origin);
    const int status = check_with(text, secure, policy, &out);
    if (status == 403) assert_non_null(strstr(out.why, "Origin"));
    return status;
}

TEST(same_origin_rules)
{
    static const struct {
        const char *host, *origin;
        int plain, tls; /* the status without and with TLS */
    } cases[] = {
        /* clang-format off */
        {"example.org", "http://example.org", 101, 403},
        {"example.org", "https://example.org", 101, 101}, /* plain: behind a proxy that ends TLS */
        {"EXAMPLE.org", "HTTPS://example.ORG", 101, 101}, {"example.org:80", "http://example.org", 101, 403},
        {"example.org", "http://example.org:80", 101, 403},
        {"example.org:443", "https://example.org", 101, 101},
        {"example.org", "https://example.org:443", 101, 101},
        {"example.org:8080", "http://example.org:8080", 101, 403},
        {"example.org:8443", "https://example.org:8443", 101, 101},
        {"example.org:", "https://example.org", 101, 101},
        {"example.org:8080", "http://example.org", 403, 403},
        {"example.org", "http://example.org:8080", 403, 403},
        {"example.org:80", "https://example.org", 403, 403},
        {"example.org", "http://example.org.evil.example", 403, 403},
        {"example.org", "http://evil.example", 403, 403}, {"example.org", "http://xample.org", 403, 403},
        {"example.org", "https://www.example.org", 403, 403}, {"example.org", "ftp://example.org", 403, 403},
        {"example.org", "chrome-extension://example.org", 403, 403}, {"example.org", "null", 403, 403},
        {"null", "null", 403, 403}, {"example.org", "", 403, 403}, {"example.org", "example.org", 403, 403},
        {"example.org", "http://", 403, 403},
        {"example.org", "http://example.org/", 403, 403}, /* an origin has no path */
        {"example.org", "http://u@example.org", 403, 403}, {"example.org", "http://example.org:8o", 403, 403},
        {"example.org", "http://example.org:65616", 403, 403}, /* 65536 + 80 */
        {"example.org", "http://example.org http://evil.example", 403, 403},
        {"[::1]", "http://[::1]", 101, 403}, {"[::1]:8080", "http://[::1]:8080", 101, 403},
        {"[::1]:8080", "http://[::1]:8081", 403, 403}, {"[::1]", "http://[::2]", 403, 403},
        {"[::1]", "http://[::1", 403, 403}, {"[::1]", "http://[::1]x", 403, 403},
        {"127.0.0.1:9", "http://127.0.0.1:9", 101, 403},
        /* clang-format on */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const int plain = origin_status(cases[n].host, cases[n].origin, false, &same_origin);
        const int tls = origin_status(cases[n].host, cases[n].origin, true, &same_origin);
        if (plain != cases[n].plain || tls != cases[n].tls)
            fail_msg("%d %d for host %s origin %s", plain, tls, cases[n].host, cases[n].origin);
    }
}

TEST(lists_of_origins)
{
    const ls_ws_policy policy = {.origins =
                                     LIST("https://a.example", "http://B.example:8080", "chrome-extension://abc")};
    const ls_ws_policy null_too = {.origins = LIST("null")}, any = {.any_origin = true};
    assert_int_equal(origin_status("h", "https://a.example", false, &policy), 101);
    assert_int_equal(origin_status("h", "https://a.example:443", false, &policy), 101);
    assert_int_equal(origin_status("h", "HTTPS://A.EXAMPLE", false, &policy), 101);
    assert_int_equal(origin_status("h", "http://b.example:8080", true, &policy), 101);
    assert_int_equal(origin_status("h", "chrome-extension://abc", true, &policy), 101);
    assert_int_equal(origin_status("h", "http://a.example", false, &policy), 403);
    assert_int_equal(origin_status("h", "http://a.example:443", false, &policy), 403);
    assert_int_equal(origin_status("h", "http://b.example", false, &policy), 403);
    assert_int_equal(origin_status("h", "other-extension://abc", false, &policy), 403);
    assert_int_equal(origin_status("h", "http://h", false, &policy), 403); /* the list replaces the default */
    assert_int_equal(origin_status("h", "null", false, &policy), 403);
    assert_int_equal(origin_status("h", "null", false, &null_too), 101);
    assert_int_equal(origin_status("h", "http://null", false, &null_too), 403);
    assert_int_equal(origin_status("h", "anything at all", false, &any), 101);
}

TEST(valid_origins)
{
    static const char *const valid[] = {"http://a", "https://a.example:8443", "null", "http://[::1]:80", "app://x"};
    static const char *const invalid[] = {"",           "a", "a.example", "http:/a",    "http://",    "http://a/",
                                          "http://a:b", "*", "://a",      "http://a b", "http://:80", "http://a:99999",
                                          "http://[]x"};
    for (size_t n = 0; n < sizeof valid / sizeof valid[0]; n++) {
        char *copy = test_copy_exact(valid[n], strlen(valid[n]));
        if (!ls_ws_origin_valid(copy, strlen(valid[n]))) fail_msg("refused: %s", valid[n]);
        free(copy);
    }
    for (size_t n = 0; n < sizeof invalid / sizeof invalid[0]; n++) {
        char *copy = test_copy_exact(invalid[n], strlen(invalid[n]));
        if (ls_ws_origin_valid(copy, strlen(invalid[n]))) fail_msg("accepted: %s", invalid[n]);
        free(copy);
    }
}

/* ---- the client ------------------------------------------------------------------------------------------------- */

static const ls_ws_deflate_options deflate = LS_WS_DEFLATE_OPTIONS;
static const ls_ws_request asked = {.host = "server.example.com",
                                    .target = "/chat?x=1",
                                    .protocols = LIST("chat", "superchat"),
                                    .deflate = &deflate,
                                    .fields = "Origin: http://example.com\r\n",
                                    .key = KEY};
static const ls_ws_request bare = {.host = "h", .target = "/", .key = KEY};

TEST(writes_the_request)
{
    static const char whole[] = "GET /chat?x=1 HTTP/1.1\r\nHost: server.example.com\r\nConnection: Upgrade\r\n"
                                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n"
                                "Sec-WebSocket-Protocol: chat, superchat\r\n"
                                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                                "client_no_context_takeover; client_max_window_bits\r\n"
                                "Origin: http://example.com\r\n\r\n";
    char text[512];
    assert_int_equal(ls_ws_request_write(&asked, text, sizeof text), sizeof whole - 1);
    assert_string_equal(text, whole);
    for (size_t room = 0; room <= sizeof whole; room++) { /* never past the room, and always with the NUL */
        char *exact = test_copy_exact(text, room);
        assert_int_equal(ls_ws_request_write(&asked, exact, room), sizeof whole - 1);
        if (room > 0) {
            assert_memory_equal(exact, whole, room - 1);
            assert_int_equal(exact[room - 1], '\0');
        }
        free(exact);
    }
    (void)ls_ws_request_write(&bare, text, sizeof text);
    assert_string_equal(text, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                              "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n");
}

/* The server accepts what the client writes, with a key of its own. */
TEST(the_server_accepts_the_request)
{
    const ls_ws_policy policy = {.protocols = LIST("superchat"), .any_origin = true};
    char text[512], again[LS_WS_KEY_CHARS + 1];
    ls_ws_request own = asked;
    ls_ws_handshake out;
    ls_ws_key(own.key);
    ls_ws_key(again);
    assert_int_equal(strlen(own.key), LS_WS_KEY_CHARS);
    assert_string_not_equal(own.key, again);
    (void)ls_ws_request_write(&own, text, sizeof text);
    assert_int_equal(check_with(text, false, &policy, &out), 101);
    assert_int_equal(out.protocol_len, 9);
}

static int check_response(const char *text, const ls_ws_request *request, ls_ws_response *out,
                          char why[LS_WS_WHY_BYTES])
{
    ls_http1_reader reader;
    const char *wrong = NULL;
    size_t skip;
    ls_http1_reader_init(&reader, LS_ASKED_UPGRADE);
    char *copy = test_copy_exact(text, strlen(text));
    const int parsed = ls_http1_read_head(&reader, copy, strlen(text), 4096, &skip, &wrong);
    if (parsed <= 0) fail_msg("%d for: %s", parsed, text);
    const int err = ls_ws_response_check(&reader.head, copy + skip, request, out, why);
    free(copy);
    return err;
}

TEST(rules_of_the_response)
{
#define ANSWER   "HTTP/1.1 101 Switching Protocols\r\n"
#define ACCEPTED "Sec-WebSocket-Accept: " ACCEPT "\r\n"
#define AGREED   "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"HTTP/1.1 103 \r\n\r\n" ANSWER FIELDS ACCEPTED "\r\n", NULL},
        {ANSWER FIELDS ACCEPTED "\r\n", NULL},
        {ANSWER "upgrade: WebSocket\r\nconnection: keep-alive, upgrade\r\n" ACCEPTED "\r\n", NULL},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Protocol: superchat\r\n\r\n", NULL},
        {ANSWER FIELDS ACCEPTED AGREED "\r\n", NULL},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Extensions:\r\n\r\n", NULL},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
         "the server ignored server_no_context_takeover"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Extensions: x\r\n\r\n", "an extension that was not offered"},
        {ANSWER "Connection: Upgrade\r\n" ACCEPTED "\r\n", "\"Upgrade: websocket\" is missing"},
        {ANSWER "Upgrade: h2c\r\nConnection: Upgrade\r\n" ACCEPTED "\r\n", "Upgrade is not"},
        {ANSWER "Upgrade: websocket\r\n" ACCEPTED "\r\n", "\"Connection: upgrade\" is missing"},
        {ANSWER "Upgrade: websocket\r\nConnection: close\r\n" ACCEPTED "\r\n", "\"Connection: upgrade\" is missing"},
        {ANSWER FIELDS "\r\n", "Sec-WebSocket-Accept is missing"},
        {ANSWER FIELDS "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOp=\r\n\r\n", "does not match"},
        {ANSWER FIELDS "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo\r\n\r\n", "does not match"},
        {ANSWER FIELDS "Sec-WebSocket-Accept: S3PPLMBITXAQ9KYGZZHZRBK+XOO=\r\n\r\n", "does not match"},
        {ANSWER FIELDS ACCEPTED ACCEPTED "\r\n", "more than one Sec-WebSocket-Accept"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Protocol: other\r\n\r\n", "subprotocol"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Protocol: Chat\r\n\r\n", "subprotocol"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Protocol: chat, superchat\r\n\r\n", "subprotocol"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
         "more than one"},
        {ANSWER FIELDS ACCEPTED "Sec-WebSocket-Extensions: a\r\nSec-WebSocket-Extensions: b\r\n\r\n", "more than one"},
    };
    if (!has_sha1()) skip();
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        ls_ws_response out;
        char why[LS_WS_WHY_BYTES];
        const int result = check_response(cases[n].text, &asked, &out, why);
        if (cases[n].why == NULL ? result != LS_OK || why[0] != '\0'
                                 : result != LS_EPROTO || strstr(why, cases[n].why) == NULL)
            fail_msg("%d (%s) for: %s", result, why, cases[n].text);
    }
}

TEST(refusals_have_the_status_and_the_phrase)
{
#define TEN "0123456789"
    static const char *const cases[][2] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "the server answered 200 OK"},
        {"HTTP/1.1 403 Forbidden\r\n" FIELDS ACCEPTED "\r\n", "the server answered 403 Forbidden"},
        {"HTTP/1.1 426\r\n\r\n", "the server answered 426"},
        {"HTTP/1.1 426 \r\n\r\n", "the server answered 426"},
        {"HTTP/1.1 500 A\tb\r\n\r\n", "the server answered 500 A"},
        {"HTTP/1.1 500 A\xffz\r\n\r\n", "the server answered 500 A"},
        {"HTTP/1.1 503 " TEN TEN TEN TEN TEN TEN "\r\n\r\n", "the server answered 503 " TEN TEN TEN TEN TEN TEN},
        {"HTTP/1.1 503 " TEN TEN TEN TEN TEN TEN "x\r\n\r\n", "the server answered 503 " TEN TEN TEN TEN TEN TEN},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        ls_ws_response out;
        char why[LS_WS_WHY_BYTES];
        assert_int_equal(check_response(cases[n][0], &asked, &out, why), LS_EREFUSED);
        assert_string_equal(why, cases[n][1]);
    }
}

TEST(what_was_negotiated)
{
    static const char text[] = ANSWER FIELDS ACCEPTED AGREED "Sec-WebSocket-Protocol: superchat\r\n\r\n";
    ls_ws_response out;
    char why[LS_WS_WHY_BYTES];
    if (!has_sha1()) skip();
    assert_int_equal(check_response(text, &asked, &out, why), LS_OK);
    assert_int_equal(out.protocol, 1);
    assert_true(out.deflated && !out.deflate.server_takeover && !out.deflate.client_takeover);
    assert_int_equal(out.deflate.server_bits, LS_WS_DEFLATE_BITS_MAX);
    assert_int_equal(check_response(text, &bare, &out, why), LS_EPROTO); /* neither was asked for */
    assert_non_null(strstr(why, "subprotocol"));
    assert_int_equal(check_response(ANSWER FIELDS ACCEPTED AGREED "\r\n", &bare, &out, why), LS_EPROTO);
    assert_non_null(strstr(why, "extension"));
    assert_int_equal(check_response(ANSWER FIELDS ACCEPTED "\r\n", &bare, &out, why), LS_OK);
    assert_int_equal(out.protocol, -1);
    assert_false(out.deflated);
}
