/* exchange_table.h - the same responses through every transport: what the client must get is a table of this file,
 * written from RFC 9110 and RFC 9112, not from exchange_out.c. A program of tests has a function that serves one row
 * through its transport and says what the client got. */
#ifndef LS_TESTS_EXCHANGE_TABLE_H
#define LS_TESTS_EXCHANGE_TABLE_H

#include "http/exchange_in.h"
#include "http/exchange_out.h"
#include "support.h"

/* What the handler does, one letter each: r respond "abc", e respond without a body, s write "abc", t write "de" from
 * a block, n write nothing, a abort, f finish, x add the trailer "X-Sum: 7", h send early hints. */
static const char *const table_calls[] = {"r",    "e",  "f",    "stf", "nsf",   "nf",   "snt",  "ar",   "saf",
                                          "astf", "sa", "xstf", "xr",  "xe",    "xf",   "sxtf", "stxf", "sxa",
                                          "xar",  "rx", "hr",   "hxe", "hhstf", "shtf", "rh",   "har"};
static const int table_status[] = {200, 204, 205, 304, 404};
static const char *const table_methods[] = {"GET", "HEAD", "POST"};

typedef struct table_row {
    int status;
    const char *method, *calls;
    int64_t length; /* announced, for parts; -1: none */
    int version;    /* the minor one */
} table_row;

/* What the client gets. Without a complete response only `complete` counts. */
typedef struct table_seen {
    bool complete; /* it can take the response for complete */
    int status;
    int64_t length; /* Content-Length; -1: none */
    bool chunked, closes, has_type;
    bool announced;  /* by the field Trailer */
    size_t trailers; /* bytes of them, without the empty line */
    unsigned hints;  /* responses 103 before it */
    char body[16];
    size_t body_len;
} table_seen;

static const table_row *table_now; /* for handlers */
static bool table_hints;           /* the transport can send a 103 */
static int table_error;            /* the first error that a call returned */

static inline ls_slice table_block(ls_thread_ctx *ctx, const char *text)
{
    ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
    assert_non_null(block);
    memcpy(block->data, text, strlen(text));
    return (ls_slice){block, block->data, strlen(text)};
}

/* The handler: make the calls of the row. */
static inline void table_handle(ls_thread_ctx *ctx, ls_exchange *x)
{
    x->status = table_now->status;
    x->type = "text/plain";
    x->length = table_now->length;
    table_error = 0;
    for (const char *call = table_now->calls; *call != '\0'; call++) {
        ls_slice slice = ls_slice_static("abc", 3);
        int err = LS_DONE;
        switch (*call) {
        case 'r': err = ls_exchange_respond(ctx, x, &slice, 1); break;
        case 'e': err = ls_exchange_respond(ctx, x, NULL, 0); break;
        case 's': err = ls_exchange_write(ctx, x, &slice, 1); break;
        case 't':
            slice = table_block(ctx, "de");
            err = ls_exchange_write(ctx, x, &slice, 1);
            break;
        case 'n': err = ls_exchange_write(ctx, x, NULL, 0); break;
        case 'a': ls_exchange_abort(ctx, x); break;
        case 'f': err = ls_exchange_finish(ctx, x); break;
        case 'h': {
            const bool late = x->error == 0 && x->response != LS_RESPONSE_NONE;
            ls_hints hints = {.len = 0};
            assert_int_equal(ls_hints_add(&hints, "Link", 4, "</a>", 4), LS_OK);
            err = ls_exchange_hints(ctx, x, &hints);
            assert_int_equal(err == LS_EBUSY, late);
            if (late) continue;
            break;
        }
        case 'x': {
            const bool late = x->error == 0 && x->response == LS_RESPONSE_DONE;
            err = ls_exchange_trailer(ctx, x, "X-Sum", 5, "7", 1);
            assert_int_equal(err == LS_EBUSY, late);
            if (late) continue;
            break;
        }
        default: fail();
        }
        if (err < 0 && table_error == 0) table_error = err;
        assert_true(err >= 0 || x->error == err);
    }
}

/* The error of the row: 0, LS_ECANCELED, or LS_EMSGSIZE. */
static inline int table_error_of(const table_row *row)
{
    const bool empty = row->status != 200 && row->status != 404;
    int64_t written = 0;
    for (const char *call = row->calls; *call != '\0'; call++) {
        if (*call == 'a') return call[1] == '\0' ? 0 : LS_ECANCELED; /* no call after the last one fails */
        if (*call == 'f' && row->length >= 0 && written > 0 && written < row->length && !empty &&
            strcmp(row->method, "HEAD") != 0)
            return LS_EMSGSIZE;
        written += *call == 's' ? 3 : *call == 't' ? 2 : 0;
        if ((*call == 's' || *call == 't') && row->length >= 0 && written > row->length) return LS_EMSGSIZE;
    }
    return 0;
}

static inline table_seen table_expected(const table_row *row)
{
    const bool ends = strpbrk(row->calls, "ref") != NULL && strchr(row->calls, 'a') == NULL;
    const size_t hints = strspn(row->calls, "h");
    const bool head = strcmp(row->method, "HEAD") == 0, first = row->calls[hints] == 'x';
    /* RFC 9112 7.1.2: trailers need the chunked coding, so a whole body gets it for their sake */
    const bool parts = strpbrk(row->calls, "stn") != NULL || (first && row->version > 0);
    table_seen seen = {.complete = ends && table_error_of(row) == 0, .status = row->status, .length = -1};
    if (table_hints && row->version > 0) seen.hints = (unsigned)hints; /* RFC 9110 15.2: no 1xx to HTTP/1.0 */
    switch (row->status) {
    case 204:
    case 304: break;                  /* RFC 9110 8.6: no Content-Length in a 204; a 304 has none of its own */
    case 205: seen.length = 0; break; /* RFC 9110 15.3.6 */
    default:
        seen.has_type = true;
        for (const char *call = row->calls; *call != '\0'; call++) {
            const char *text = *call == 'r' || *call == 's' ? "abc" : *call == 't' ? "de" : "";
            memcpy(seen.body + seen.body_len, text, strlen(text));
            seen.body_len += strlen(text);
        }
        if (!parts)
            seen.length = (int64_t)seen.body_len;
        else if (row->length >= 0)
            seen.length = row->length;
        else if (row->version > 0)
            seen.chunked = true; /* RFC 9112 7.1 */
        else
            seen.closes = true; /* RFC 9112 6.3, item 8 */
        seen.announced = seen.chunked && first;
        if (seen.chunked && !head && strchr(row->calls, 'x') != NULL) seen.trailers = sizeof "X-Sum: 7\r\n" - 1;
        if (head) seen.body_len = 0;
        break;
    }
    return seen;
}

typedef table_seen table_serve(const table_row *row);

static inline void table_check(const table_row *row, table_serve *serve, int refused)
{
    const table_seen expected = table_expected(row);
    table_now = row;
    const table_seen seen = serve(row);
    const int error = refused != 0 ? refused : table_error_of(row);
    const bool complete = expected.complete && refused == 0;
    bool same = seen.complete == complete && table_error == error;
    if (complete)
        same = same && seen.status == expected.status && seen.length == expected.length &&
               seen.chunked == expected.chunked && seen.closes == expected.closes &&
               seen.has_type == expected.has_type && seen.announced == expected.announced &&
               seen.trailers == expected.trailers && seen.hints == expected.hints &&
               seen.body_len == expected.body_len && memcmp(seen.body, expected.body, expected.body_len) == 0;
    if (same) return;
    fail_msg(
        "%s HTTP/1.%d, %d, calls %s, length %d: complete %d, error %d (%d), length %d (%d), chunked %d, closes %d, "
        "type %d, announced %d, trailers %zu, hints %u, body %.*s",
        row->method, row->version, row->status, row->calls, (int)row->length, seen.complete, table_error, error,
        (int)seen.length, (int)expected.length, seen.chunked, seen.closes, seen.has_type, seen.announced,
        seen.trailers, seen.hints, (int)seen.body_len, seen.body);
}

/* Serve every row. `hints`: see table_hints. `refused`: the error that every call gets, or 0. Returns the number of
 * rows. */
static inline unsigned table_run(table_serve *serve, bool hints, int refused)
{
    static const int64_t lengths[] = {-1, 5, 6, 2};
    unsigned rows = 0;
    table_hints = hints;
    for (size_t call = 0; call < sizeof table_calls / sizeof table_calls[0]; call++)
        for (size_t status = 0; status < sizeof table_status / sizeof table_status[0]; status++)
            for (size_t method = 0; method < sizeof table_methods / sizeof table_methods[0]; method++)
                for (int version = 0; version <= 1; version++)
                    for (size_t length = 0; length < sizeof lengths / sizeof lengths[0]; length++) {
                        const table_row row = {table_status[status], table_methods[method], table_calls[call],
                                               lengths[length], version};
                        if (row.length >= 0 && strstr(row.calls, "stf") == NULL) continue;
                        table_check(&row, serve, refused);
                        rows++;
                    }
    return rows;
}

#endif
