/* test_httpsys_table.c - the table of exchange_table.h through http.sys. */
#include "http/exchange_table.h"
#include "httpsys_fixture.h"

static void handle(fixture *r, ls_thread_ctx *ctx, ls_exchange *x)
{
    table_handle(ctx, x);
    fixture_end(r, ctx, x);
}

static bool has(const char *text)
{
    return strstr(fake.wire, text) != NULL;
}

/* The wire of the fake has a head as "200 OK;Name: value;;", then the body. */
static table_seen serve(const table_row *row)
{
    static HTTP_REQUEST_ID id;
    table_seen seen = {.length = -1};
    fixture *r = fixture_open(handle, 1);
    const HTTP_VERB verb = row->method[0] == 'H' ? HttpVerbHEAD : row->method[0] == 'G' ? HttpVerbGET : HttpVerbPOST;
    fixture_arrives(r, (fake_request){.id = ++id, .verb = verb, .http10 = row->version == 0, .keeps = true});
    fake.wire[fake.wire_len] = '\0';
    seen.complete = strstr(fake.calls, ",end") != NULL || strstr(fake.calls, ",close") != NULL;
    if (seen.complete) {
        const char *const length = strstr(fake.wire, "Content-Length: ");
        const char *body = strstr(fake.wire, ";;") + 2;
        seen.status = atoi(fake.wire);
        if (length != NULL) seen.length = strtol(length + 16, NULL, 10);
        seen.chunked = has("Transfer-Encoding: chunked;");
        seen.closes = has("Connection: close;");
        seen.has_type = has("Content-Type: text/plain;");
        seen.announced = has("Trailer: X-Sum;");
        while (seen.chunked && row->method[0] != 'H' && *body != '0') { /* chunks without extensions */
            char *at;
            const size_t len = strtoul(body, &at, 16);
            memcpy(seen.body + seen.body_len, at + 2, len);
            seen.body_len += len;
            body = at + 2 + len + 2;
        }
        if (seen.chunked && row->method[0] != 'H')
            seen.trailers = strlen(body) - strlen("0\r\n"
                                                  "\r\n");
        if (!seen.chunked) memcpy(seen.body, body, seen.body_len = strlen(body));
    }
    fixture_close(r);
    return seen;
}

TEST(responses_of_httpsys)
{
    assert_true(table_run(serve, false, 0) >= 200);
}
