/* test_record.c - the records of requests: one for each, when its response is sent, or cannot be. */
#include "http1_fixture.h"

#include "http/record.h"
#include "system.h"

enum { LONG_BYTES = 1 << 19 /* more than a pair of sockets takes */ };

typedef struct notes {
    ls_record_sink sink;
    ls_recorder recorder;
    char text[1024]; /* a line for each record */
} notes;

static notes noted;

static void ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *r)
{
    static const char *const ends[] = {"complete", "left", "aborted", "refused"};
    const size_t at = strlen(noted.text);
    assert_ptr_equal(sink, &noted.sink);
    assert_true(r->began_ns > 0 && r->ended_ns >= r->began_ns);
    assert_true(r->first_ns == 0 || (r->first_ns >= r->began_ns && r->first_ns <= r->ended_ns));
    const ls_text line = r->x != NULL ? (ls_text){r->x->bytes + r->x->head.target.at, r->x->head.target.len} : r->line;
    (void)snprintf(noted.text + at, sizeof noted.text - at, "%.*s %d %s %s %s %u\n", (int)line.len, line.ptr,
                   r->status, ends[r->end], r->protocol, r->first_ns > 0 ? "first" : "-", (unsigned)r->sent);
}

static void handler(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    static char text[LONG_BYTES];
    const char what = x->bytes[x->head.target.at + 1];
    ls_slice slice = ls_slice_static(text, what == 'l' ? sizeof text : 5);
    const bool first = !r->started;
    r->started = true;
    if (what == 'w' && first) return;
    if (what == 'p' && first) {
        (void)ls_exchange_write(ctx, x, &slice, 1);
        return;
    }
    if (what == 'a') ls_exchange_abort(ctx, x);
    if (x->error == 0) (void)ls_exchange_respond(ctx, x, &slice, 1);
    fixture_end(r, ctx, x);
}

static fixture *recorded(void)
{
    fixture *r = fixture_open(handler, 0);
    memset(&noted, 0, sizeof noted);
    noted.sink.ended = ended;
    noted.recorder = (ls_recorder){.count = 1, .sinks = {&noted.sink}};
    r->handler.recorder = &noted.recorder;
    fixture_connect(r);
    return r;
}

#define RECORDS(request, expected)                 \
    do {                                           \
        fixture *r = recorded();                   \
        send_text(r, request);                     \
        fixture_disconnect(r);                     \
        assert_string_equal(noted.text, expected); \
        fixture_close(r);                          \
    } while (0)

TEST(every_end_of_a_request_has_a_record)
{
    RECORDS("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "/a 444 aborted HTTP/1.1 - 0\n");
    RECORDS("GET /s HTTP/1.1\r\nHost: h\r\n\r\n", "/s 200 complete HTTP/1.1 first 5\n");
    RECORDS("HEAD /s HTTP/1.1\r\nHost: h\r\n\r\n", "/s 200 complete HTTP/1.1 first 0\n");
    RECORDS("GET /s HTTP/1.0\r\n\r\n", "/s 200 complete HTTP/1.0 first 5\n"); /* the response closes */
    RECORDS("POST /s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "/s 200 complete HTTP/1.1 first 5\n");
    RECORDS(
        "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET", /* pipelined, the last incomplete */
        "/1 200 complete HTTP/1.1 first 5\n/2 200 complete HTTP/1.1 first 5\n");
    RECORDS("GET /s HTTP/1.1\r\n\r\n", "GET /s HTTP/1.1 400 refused HTTP/1.1 first 21\n");
    RECORDS("\x16\x03\x01", "\x16\x03\x01 400 refused HTTP/1.1 first 24\n");
}

TEST(a_client_that_leaves_is_recorded)
{
    if (!system_watches_connections()) {
        print_message("skipped: of another system: the loss of a connection without a receive\n");
        skip();
    }
    fixture *r = recorded();
    send_text(r, "GET /w HTTP/1.1\r\nHost: h\r\n\r\n");
    fixture_disconnect(r);
    assert_string_equal(noted.text, "/w 499 left HTTP/1.1 - 0\n");
    noted.text[0] = '\0';
    fixture_connect(r);
    send_text(r, "GET /p HTTP/1.1\r\nHost: h\r\n\r\n"); /* part of its response has left */
    assert_string_equal(noted.text, "");
    fixture_disconnect(r);
    assert_string_equal(noted.text, "/p 200 left HTTP/1.1 first 5\n");
    fixture_close(r);
}

TEST(a_long_response_is_recorded_when_it_is_sent)
{
    static const char request[] = "GET /l HTTP/1.1\r\nHost: h\r\n\r\n";
    static const char close[] = "GET /l HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    fixture *r = recorded();
    for (int keeps = 1; keeps >= 0; keeps--) {
        const char *text = keeps ? request : close;
        noted.text[0] = '\0';
        assert_int_equal(send(r->theirs, text, strlen(text), MSG_NOSIGNAL), strlen(text));
        FIXTURE_UNTIL(r, r->starts == 2 - keeps);
        fixture_pump(r);
        assert_string_equal(noted.text, ""); /* the client does not read */
        FIXTURE_UNTIL(r, (r->text_len = 0, fixture_settle(r), noted.text[0] != '\0'));
        assert_string_equal(noted.text, "/l 200 complete HTTP/1.1 first 524288\n");
    }
    fixture_disconnect(r);
    noted.text[0] = '\0';
    fixture_connect(r);
    assert_int_equal(send(r->theirs, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    FIXTURE_UNTIL(r, r->starts == 3);
    fixture_pump(r);
    fixture_disconnect(r);
    assert_string_equal(noted.text, "/l 200 left HTTP/1.1 first 524288\n");
    fixture_close(r);
}
