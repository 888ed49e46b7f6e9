/* test_exchange_out.c - the table of exchange_table.h through a transport of this test, in memory, a kept request, and
 * HTTP/1.1. That of http.sys is test_httpsys_table.c. */
/* sanitizers: asan; no thread starts */
#include "http1_fixture.h"

#include "codec/http1/http1_chunk.h"
#include "codec/http1/http1_parse_response.h"
#include "exchange_table.h"
#include "http/exchange_memory.h"
#include "noting_transport.h"
#include "port/file/shared_file.h"

static fixture *place; /* the pool, and the connections of HTTP/1.1 */

/* The exchange of the row, as a transport makes it. */
static void fill(ls_exchange *x, const table_row *row)
{
    x->bytes = row->method;
    x->head.method = row->method[0] == 'H' ? LS_HTTP_HEAD : row->method[0] == 'G' ? LS_HTTP_GET : LS_HTTP_POST;
    x->head.version = (uint8_t)(10 + row->version);
    x->open_framing = row->version > 0 ? LS_FRAMED_BY_PARTS : LS_FRAMED_BY_CLOSE;
    x->body_done = true;
}

/* ---- a transport that only notes what it is told ---------------------------------------------------------------- */

static table_seen serve_noting(const table_row *row)
{
    static noting n;
    memset(&n, 0, offsetof(noting, x) + offsetof(ls_exchange, head));
    fill(&n.x, row);
    n.x.transport = &noting_transport;
    table_handle(&place->place.ctx, &n.x);
    table_seen seen = {.complete = n.x.response == LS_RESPONSE_DONE && n.x.error == 0,
                       .status = n.x.status,
                       .length = n.length,
                       .chunked = n.x.framing == LS_FRAMED_BY_PARTS,
                       .closes = n.x.close,
                       .has_type = n.x.type != NULL,
                       .announced = ls_exchange_has_field(&n.x, "trailer", 7),
                       .trailers = n.trailers_len,
                       .hints = n.hints,
                       .body_len = n.body_len};
    assert_true(n.body_len <= sizeof seen.body);
    memcpy(seen.body, n.body, n.body_len);
    assert_int_equal(n.aborts, strchr(row->calls, 'a') != NULL && n.x.error != LS_EMSGSIZE);
    if (seen.complete) assert_int_equal(n.lasts, seen.chunked && !n.x.no_body);
    if (seen.complete) assert_int_equal(ls_exchange_body_sent(&n.x), seen.body_len);
    ls_exchange_drop_fields(&n.x);
    return seen;
}

TEST(what_a_transport_is_told)
{
    assert_true(table_run(serve_noting, true, 0) >= 200);
}

/* The connection is kept if both sides allow it, and the next request is near. */
TEST(what_of_the_request_is_unread)
{
    enum { MAX = 100 };
    static const struct {
        bool done, has_length, continue_due, close;
        uint64_t length, read;
        bool closes;
    } rows[] = {
        {.done = true, .has_length = true, .length = MAX + 1, .read = MAX + 1},
        {.done = true, .close = true, .closes = true},
        {.has_length = true, .length = MAX},
        {.has_length = true, .length = MAX, .close = true, .closes = true},
        {.has_length = true, .length = MAX, .continue_due = true, .closes = true},
        {.has_length = true, .length = MAX + 1, .closes = true},
        {.has_length = true, .length = UINT64_MAX, .closes = true},
        {.has_length = true, .length = MAX + 5, .read = 5},
        {.has_length = true, .length = MAX + 6, .read = 5, .closes = true},
        {.read = MAX + 1}, /* chunked: its length is unknown */
        {.continue_due = true, .closes = true},
    };
    static noting n;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&n, 0, offsetof(noting, x) + offsetof(ls_exchange, head));
        fill(&n.x, &(table_row){.method = "POST", .version = 1});
        n.x.transport = &noting_transport;
        n.x.status = 200;
        n.x.length = -1;
        n.x.unread_bytes_max = MAX;
        n.x.body_done = rows[i].done;
        n.x.head.has_length = rows[i].has_length;
        n.x.head.content_length = rows[i].length;
        n.x.body_bytes = rows[i].read;
        n.x.continue_due = rows[i].continue_due;
        n.x.close = rows[i].close;
        assert_int_equal(ls_exchange_respond(&place->place.ctx, &n.x, NULL, 0), LS_DONE);
        if (n.x.close != rows[i].closes) fail_msg("row %d: close is %d", (int)i, n.x.close);
    }
}

/* ---- in memory
 * ---------------------------------------------------------------------------------------------------- */

static table_seen serve_memory(const table_row *row)
{
    static ls_memory_exchange m;
    ls_memory_exchange_init(&m, NULL, 0);
    fill(&m.x, row);
    table_handle(&place->place.ctx, &m.x);
    table_seen seen = {.complete = ls_memory_exchange_complete(&m),
                       .status = m.x.status,
                       .length = m.length,
                       .chunked = m.x.framing == LS_FRAMED_BY_PARTS,
                       .closes = m.x.close,
                       .has_type = m.x.type != NULL,
                       .announced = ls_exchange_has_field(&m.x, "trailer", 7),
                       .trailers = m.x.end_fields != NULL ? m.x.end_fields->to : 0,
                       .body_len = m.response_len};
    assert_true(m.response_len <= sizeof seen.body);
    if (m.response_len > 0) memcpy(seen.body, m.response, m.response_len);
    ls_memory_exchange_free(&m);
    return seen;
}

TEST(responses_in_memory)
{
    (void)table_run(serve_memory, false, 0);
}

/* The owner of the exchange gets the reason. */
TEST(a_response_in_memory_that_fails)
{
    static ls_memory_exchange m;
    static const char path[] = "test_exchange_out.short";
    ls_shared_file *file;
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(ls_shared_file_open(path, &file), LS_OK);
    ls_memory_exchange_init(&m, NULL, 0);
    fill(&m.x, &(table_row){.method = "GET", .version = 1});
    ls_slice slices[] = {ls_slice_static("head", 4), ls_shared_file_slice(file, 0, 1)};
    ls_shared_file_drop(file);
    (void)ls_exchange_respond(&place->place.ctx, &m.x, slices, 2);
    assert_int_equal(m.failed, LS_ECHANGED);
    assert_false(ls_memory_exchange_complete(&m));
    ls_memory_exchange_free(&m);
    assert_int_equal(remove(path), 0);
}

/* ---- a kept request
 * ------------------------------------------------------------------------------------------------ */

static table_seen serve_kept(const table_row *row)
{
    static ls_memory_exchange m;
    ls_memory_exchange_init(&m, NULL, 0);
    fill(&m.x, row);
    ls_exchange *const x = ls_exchange_keep(&m.x);
    assert_non_null(x);
    table_handle(&place->place.ctx, x);
    const table_seen seen = {.complete = x->response == LS_RESPONSE_DONE && x->error == 0};
    ls_exchange_release(&place->place.ctx, x);
    return seen;
}

TEST(a_kept_request_has_no_response)
{
    (void)table_run(serve_kept, false, LS_ECLOSED);
}

/* ---- HTTP/1.1
 * ------------------------------------------------------------------------------------------------------ */

static void handle(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    table_handle(ctx, x);
    fixture_end(r, ctx, x);
}

static bool is(const char *bytes, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(bytes, text, len) == 0;
}

/* The body behind a head. false: it is incomplete. */
static bool take_body(table_seen *seen, const ls_http_response *head, const char *at, size_t len)
{
    ls_chunks chunks;
    ls_chunk_run run = {.end = false};
    if (head->framing != LS_FRAMING_CHUNKED) {
        assert_true(len <= sizeof seen->body);
        memcpy(seen->body, at, seen->body_len = len);
        if (head->framing == LS_FRAMING_TO_END) return place->ended;
        return len == (head->framing == LS_FRAMING_LENGTH ? head->length : 0);
    }
    for (ls_chunks_init(&chunks); len > 0 && !run.end; at += run.used, len -= run.used) {
        assert_int_equal(ls_chunks_next(&chunks, at, len, &run, NULL), LS_OK);
        memcpy(seen->body + seen->body_len, at + run.from, run.len);
        seen->body_len += run.len;
        if (run.end) seen->trailers = run.trailers - 2;
    }
    return run.end && len == 0;
}

static table_seen serve_http1(const table_row *row)
{
    static const char hint[] = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    table_seen seen = {.length = -1};
    ls_http_response head;
    ls_pair field;
    char request[100];
    size_t at = 0;
    fixture_connect(place);
    const int len = snprintf(request, sizeof request, "%s / HTTP/1.%d\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
                             row->method, row->version);
    fixture_send(place, request, (size_t)len);
    const char *text = place->text;
    size_t text_len = place->text_len;
    for (; strncmp(text, hint, sizeof hint - 1) == 0;
         seen.hints++, text += sizeof hint - 1, text_len -= sizeof hint - 1) {}
    const int head_len = ls_http1_parse_response(text, text_len, 0, 4096, row->method[0] == 'H', &head, NULL);
    if (text_len > 0) {
        assert_true(head_len > 0);
        seen.status = head.status;
        while (ls_http1_response_field(text, &head, &at, &field)) {
            seen.chunked |= is(field.name, field.name_len, "Transfer-Encoding");
            seen.closes |= is(field.name, field.name_len, "Connection") && is(field.value, field.value_len, "close");
            seen.has_type |= is(field.name, field.name_len, "Content-Type");
            seen.announced |= is(field.name, field.name_len, "Trailer") && is(field.value, field.value_len, "X-Sum");
            if (is(field.name, field.name_len, "Content-Length")) seen.length = strtol(field.value, NULL, 10);
        }
        seen.complete = take_body(&seen, &head, text + head_len, text_len - (size_t)head_len);
        assert_int_equal(place->ended, seen.closes || !seen.complete);
    }
    fixture_disconnect(place);
    return seen;
}

TEST(responses_of_http1)
{
    (void)table_run(serve_http1, true, 0);
}

static int set_up(void **state)
{
    place = fixture_open(handle, 0);
    fixture_serve(place);
    return 0;
}

static int tear_down(void **state)
{
    fixture_close(place);
    return 0;
}

int main(void)
{
    return test_run(set_up, tear_down);
}
