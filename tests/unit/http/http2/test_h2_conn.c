/* test_h2_conn.c - a connection of HTTP/2: frames in any pieces, streams that are reset, credit for bodies, the drain. */
/* sanitizers: asan; no thread starts */
#include "h2_fixture.h"

/* ---- frames -------------------------------------------------------------------------------------------------- */

TEST_WITH(h2, h, requests_and_bodies, h2_connected())
{
    h2_request(h, 1, '/', false);
    h2_request(h, 3, 'R', true);
    assert_string_equal(h2_go(h), "H1:200 D1:2.");
    h2_data(h, 3, 700, false);
    h2_data(h, 3, 4000, true);
    h2_put(h, NGHTTP2_PING, 0, 0, "12345678", 8);
    assert_string_equal(h2_go(h), "p H3:200 D3:4.");
}

TEST(frames_that_are_cut_at_each_byte)
{
    for (size_t cut = 0, len = 1; cut < len; cut++) { /* 0: each byte by itself */
        h2 *h = h2_connect(h2_new());
        h2_preface(h);
        h2_request(h, 3, 'R', true);
        h2_data(h, 3, 5, false);
        h2_put(h, 42, 0, 3, "unknown", 7);
        h2_data(h, 3, 0, true);
        len = h->to_len;
        for (size_t at = 0, n; at < len; at += n) {
            n = cut == 0 ? 1 : at == 0 ? cut : len - cut;
            fixture_send(h->r, h->to + at, n);
        }
        assert_string_equal(h2_take(h), "H3:200 D3:1.");
        h2_close(h);
    }
}

/* ---- resets -------------------------------------------------------------------------------------------------- */

/* {letter of the request, whether a body follows, before the handler has run, result of the handler} */
TEST(a_stream_that_is_reset)
{
    static const struct {
        char does;
        bool body, at_once;
        int starts, error;
    } cases[] = {
        {'/', false, true, 0, 0},          /* before its start has run */
        {'R', true, false, 1, LS_ERESET},  /* while the handler waits for the body */
        {'b', false, false, 1, LS_ERESET}, /* for room */
        {'w', false, false, 1, LS_ERESET}, /* for something else */
        {'k', false, false, 1, 0},         /* while it does not look */
        {'q', false, false, 1, 0},         /* after its release, when the response waits for the window */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h2 *h = h2_connected();
        h2_request(h, 1, cases[i].does, cases[i].body);
        if (!cases[i].at_once) (void)h2_go(h);
        h2_reset(h, 1);
        assert_string_equal(h2_go(h), "");
        assert_int_equal(h->r->starts, cases[i].starts);
        assert_int_equal(h->r->error, cases[i].error);
        assert_int_equal(ends, cases[i].does == 'k' ? 0 : cases[i].starts);
        h2_release_kept(h);
        h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 0, LS_H2_WINDOW);
        h2_request(h, 3, '/', false);
        assert_string_equal(h2_go(h), "H3:200 D3:2.");
        assert_int_equal(blocks_live(&h->r->place), 0);
        h2_close(h);
    }
}

TEST_WITH(h2, h, a_client_that_leaves, h2_connected())
{
    for (int i = 0; i < 6; i++) h2_request(h, 1 + 2 * (uint32_t)i, "Rbwkq/"[i], i == 0);
    (void)h2_go(h);
    close(h->r->theirs);
    h->r->theirs = -1;
    FIXTURE_UNTIL(h->r, ends == 5);
    h2_release_kept(h);
}

/* ---- windows ------------------------------------------------------------------------------------------------- */

TEST_WITH(h2, h, a_response_waits_for_the_windows, h2_connected())
{
    h2_request(h, 1, 'q', false);
    assert_string_equal(h2_go(h), "H1:200 D1:65535");
    h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 1, 30000);
    assert_string_equal(h2_go(h), "");
    h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 0, 1 << 20);
    assert_string_equal(h2_go(h), "D1:30000");
    h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 1, 1 << 20);
    assert_string_equal(h2_go(h), "D1:6865.");
    h2_request(h, 3, 'b', false); /* its handler is woken at each step */
    for (uint32_t left = 200 * 1024 - 65535; left > 0;) {
        const uint32_t n = left < 20000 ? left : 20000;
        (void)h2_go(h);
        if (left > 100 * 1024) assert_int_equal(ends, 1);
        h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 3, n);
        left -= n;
    }
    const char *last = h2_go(h);
    assert_int_equal(last[strlen(last) - 1], '.');
}

/* Upload, in what the windows allow. */
static void upload(h2 *h, uint32_t id, size_t left)
{
    h2_request(h, id, 'R', true);
    while (left > 0) {
        size_t n = left < 16000 ? left : 16000;
        if ((int64_t)n > h->window) n = (size_t)h->window;
        if ((int64_t)n > h->stream_window) n = (size_t)h->stream_window;
        assert_true(n > 0); /* the handler has read everything */
        left -= n;
        h2_data(h, id, n, left == 0);
        const char *seen = h2_go(h);
        if (left > 0) assert_string_equal(seen, "");
    }
    assert_int_equal(strncmp(h->seen, "H", 1), 0);
}

TEST_WITH(h2, h, aborted_uploads_return_their_credit, h2_new())
{
    uint32_t id = 1;
    h->r->config.body_bytes_max = 16 << 20;
    h2_connect(h);
    h2_preface(h);
    (void)h2_go(h);
    for (int i = 0; i < 1000; i++, id += 4) {
        assert_true(h->window > 2 * 16384);
        h2_request(h, id, "RwbkR"[i % 5], true);
        h2_data(h, id, 16384, false);
        if (i % 3 == 0) (void)h2_go(h); /* else it is reset before its start has run */
        if (i % 2 == 0) h2_data(h, id, 100, false);
        h2_reset(h, id);
        h2_put_number(h, NGHTTP2_WINDOW_UPDATE, 0, LS_H2_WINDOW); /* for what "b" has sent */
        h2_request(h, id + 2, '/', false);
        (void)h2_go(h);
        h2_release_kept(h);
    }
    upload(h, id, 10 << 20);
}

/* The window of a stream grows for a handler that reads. */
TEST_WITH(h2, h, windows_that_grow, h2_connected())
{
    upload(h, 1, 4 << 20);
    assert_true(h->stream_window > 4 * LS_H2_WINDOW);
    assert_true(h->stream_window <= TEST_HTTP2_WINDOW);
    assert_true(h->window <= TEST_HTTP2_WINDOW && h->window > TEST_HTTP2_WINDOW / 4);
}

/* ---- a body that is not read ------------------------------------------------------------------------------------- */

static int records;

static void note_record(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    records += record->status == 200 && record->end == LS_RECORD_COMPLETE;
}

/* A request whose response ends before its body, of which little or all of a window is received by then. */
static h2 *unread(uint32_t linger_ms, size_t early)
{
    static ls_record_sink sink = {note_record};
    static ls_recorder recorder = {.count = 1, .sinks = {&sink}};
    h2 *h = h2_new();
    records = 0;
    h->r->handler.recorder = &recorder;
    h->r->config.linger_ms_max = linger_ms;
    h2_connect(h);
    h2_preface(h);
    h2_request(h, 1, 'f', true);
    for (; early > 16000; early -= 16000) h2_data(h, 1, 16000, false);
    h2_data(h, 1, early, false);
    assert_string_equal(h2_go(h), "H1:200 D1:2.");
    assert_int_equal(records, 1);
    return h;
}

TEST(an_unread_body_is_discarded)
{
    for (int full = 0; full < 2; full++) {
        h2 *h = unread(FIXTURE_PATIENCE_MS, full ? LS_H2_WINDOW : 5);
        assert_true(h->stream_window >= TEST_HTTP2_WINDOW / 2); /* from before the response */
        for (int i = 0; i < 1000; i++) {
            h2_data(h, 1, 16000, i == 999);
            assert_string_equal(h2_go(h), "");
            assert_true(h->window > 16000 && h->stream_window > 16000);
        }
        h2_request(h, 3, '/', false);
        assert_string_equal(h2_go(h), "H3:200 D3:2.");
        assert_int_equal(blocks_live(&h->r->place), 0);
        assert_int_equal(records, 2);
        h2_close(h);
    }
}

/* Until then the stream is open: h2spec's rules of 6.1, 6.9 and 8.1, when the server answers first. */
TEST(faults_of_an_unread_body)
{
    static const struct {
        int type, flags;
        const char *payload;
        size_t len;
        const char *seen;
    } cases[] = {
        {NGHTTP2_WINDOW_UPDATE, 0, "\0\0\0\0", 4, "G1:1"},
        {NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, "\0\1a\1b", 5, "R1:1"}, /* trailers without the end */
        {NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, "\11ab", 3, "G1:1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        h2 *h = unread(FIXTURE_PATIENCE_MS, 5);
        h2_put(h, cases[i].type, cases[i].flags, 1, cases[i].payload, cases[i].len);
        assert_string_equal(h2_go(h), cases[i].seen);
        h2_close(h);
    }
}

TEST(an_unread_body_that_does_not_end)
{
    h2 *h = unread(0, 5);
    FIXTURE_UNTIL(h->r, (fixture_settle(h->r), h->r->text_len > 0));
    assert_string_equal(h2_take(h), "R1:0");
    h2_data(h, 1, 5, false);
    h2_request(h, 3, '/', false);
    assert_string_equal(h2_go(h), "H3:200 D3:2.");
    assert_int_equal(records, 2);
    h2_close(h);
}

/* ---- drain --------------------------------------------------------------------------------------------------- */

static char *drain(h2 *h)
{
    (void)h->r->http->ops->drain(h->r->http, false);
    fixture_settle(h->r);
    return h2_take(h);
}

TEST_WITH(h2, h, a_drain, h2_connected())
{
    h2_request(h, 1, 'k', false);
    assert_string_equal(h2_go(h), "");
    assert_string_equal(drain(h), "G2147483647:0 P");
    h2_put(h, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, "luaserve", 8);
    h2_request(h, 3, '/', false); /* sent before the client has seen the GOAWAY */
    assert_string_equal(h2_go(h), "H3:200 G3:0 D3:2.");
    assert_false(h->r->ended);
    h2_release_kept(h);
    assert_string_equal(h2_take(h), "H1:200 D1:2.");
    fixture_until_ended(h->r);
}

TEST_WITH(h2, h, a_drain_without_an_answer, h2_connected())
{
    assert_string_equal(drain(h), "G2147483647:0 P");
    fixture_until_ended(h->r);
    assert_string_equal(h2_take(h), "G0:0");
}

TEST_WITH(h2, h, an_abort, h2_connected())
{
    for (int i = 0; i < 3; i++) h2_request(h, 1 + 2 * (uint32_t)i, "Rwb"[i], i == 0);
    (void)h2_go(h);
    h->r->http->ops->abort(h->r->http);
    fixture_until_ended(h->r);
    assert_int_equal(ends, 3);
}

/* It holds little, serves again, and ends. */
TEST_WITH(h2, h, an_idle_connection, h2_connected())
{
    h2_request(h, 1, 'k', false);
    assert_string_equal(h2_go(h), "");
    const ls_h2_conn *c = kept[0]->conn;
    h2_release_kept(h);
    assert_string_equal(h2_take(h), "H1:200 D1:2.");
    for (uint32_t id = 3; id < 9; id += 2) {
        FIXTURE_UNTIL(h->r, c->memory.packed != NULL);
        assert_true(c->memory.words > 0);
        h2_request(h, id, 'h', false);
        assert_non_null(strstr(h2_go(h), ":200"));
        assert_null(c->memory.packed);
    }
    FIXTURE_UNTIL(h->r, c->memory.packed != NULL);
}
