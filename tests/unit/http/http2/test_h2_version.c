/* test_h2_version.c - which version a plain connection gets. That of TLS is what ALPN says: tests/e2e/test_http2.py. */
/* sanitizers: asan; no thread starts */
#include "h2_fixture.h"

#define REQUEST "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
#define OK      "HTTP/1.1 200 OK\r\n"

TEST(the_version_of_a_connection)
{
    static const struct {
        bool http2; /* the listener has it */
        size_t piece;
        const char *sent;
        const char *begins; /* the response of HTTP/1, or NULL: of HTTP/2 */
    } cases[] = {
        {true, SIZE_MAX, NGHTTP2_CLIENT_MAGIC, NULL},
        {true, 1, NGHTTP2_CLIENT_MAGIC, NULL},
        {true, 23, NGHTTP2_CLIENT_MAGIC, NULL},
        {true, 1, REQUEST, OK},
        {true, SIZE_MAX, REQUEST, OK},
        {true, 4, "PRI / HTTP/1.1\r\nHost: h\r\n\r\n", OK},
        {true, SIZE_MAX, REQUEST NGHTTP2_CLIENT_MAGIC, OK}, /* behind a request it is none */
        {false, SIZE_MAX, NGHTTP2_CLIENT_MAGIC, "HTTP/1.1 400 "},
        {false, 1, NGHTTP2_CLIENT_MAGIC, "HTTP/1.1 400 "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h2 *h = h2_new();
        const size_t len = strlen(cases[i].sent);
        h->r->config.http2 = cases[i].http2;
        h2_connect(h);
        for (size_t at = 0, n; at < len; at += n) {
            n = len - at < cases[i].piece ? len - at : cases[i].piece;
            fixture_send(h->r, cases[i].sent + at, n);
        }
        if (cases[i].begins != NULL) {
            assert_int_equal(strncmp(h->r->text, cases[i].begins, strlen(cases[i].begins)), 0);
        } else {
            h2_put(h, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
            h2_request(h, 1, '/', false);
            assert_string_equal(h2_go(h), "H1:200 D1:2.");
        }
        assert_int_equal(fixture_stats(h->r).connections, 1);
        h2_close(h);
    }
}
