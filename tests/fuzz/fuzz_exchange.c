/* fuzz_exchange.c - a handler that makes any sequence of calls that exchange_out.h and exchange_in.h allow, on the noting
 * transport, whose results are part of the input. noting_transport.h checks what the transport is told; here are the
 * properties of the other side:
 *   - the phases: NONE, OPEN, DONE; after an error each call returns it, the transport is told nothing, and it stays
 *   - a call that fails without ending the exchange has changed nothing
 *   - the transport got the bytes that were written, in order, and of a complete response all of them, with its end and
 *     its trailers, which the head has announced as far as they were known
 *   - a body is read up to its limit, and its trailers are seen at its end only
 *   - every block is released
 *
 * The first bytes choose the request; then each byte chooses a call, and those behind it its arguments and its results. */
#include "fuzz.h"

#define NOTING_HOLDS(property) FUZZ_HOLDS(property)
#include "../unit/http/noting_transport.h"

enum { BODY_MAX = 64, ROOM = NOTING_BYTES_MAX };

typedef struct world {
    const uint8_t *at, *end;
    ls_pools *pools;
    ls_thread_ctx ctx;
    char body[ROOM], trailers[ROOM]; /* what the handler has written */
    size_t body_len, trailers_len;
    size_t announced; /* bytes of the trailers that were known with the head */
    uint64_t read;    /* body bytes */
    unsigned seen;    /* trailers of the request that must be seen at the end of its body */
    noting n;
} world;

static uint8_t take(world *w)
{
    return w->at < w->end ? *w->at++ : 0;
}

/* ---- what the transport answers --------------------------------------------------------------------------------- */

static int transport_result(noting *n, enum noting_call call)
{
    static const int errors[] = {LS_ERESET, LS_EPIPE, LS_ENOMEM, LS_ECHANGED};
    const uint8_t byte = take(LS_CONTAINER(n, world, n));
    if (byte >= 240) return errors[byte % 4];
    return byte >= 200 && (call == NOTING_FLUSH || call == NOTING_SHARED) ? LS_PENDING : LS_DONE;
}

static ls_slice part_of(world *w, size_t len, bool with_block)
{
    static const char text[] = "0123456789abcdefghijklmnopqrstuv";
    ls_slice slice = ls_slice_static(text, len % sizeof text);
    if (!with_block) return slice;
    ls_block *block = ls_block_get(w->ctx.pool, LS_BLOCK_SMALL);
    if (block == NULL) return slice;
    memcpy(block->data + LS_SHARED_BEFORE, slice.ptr, slice.len);
    ls_shared_part_frame(block->data + LS_SHARED_BEFORE, slice.len);
    return (ls_slice){block, block->data + LS_SHARED_BEFORE, slice.len};
}

/* The end of a body: any lines, of which some count as trailers, in two pieces. */
static int end_body(world *w, uint8_t choice)
{
    static const struct {
        const char *line;
        bool counts;
    } lines[] = {{"X-A: 1\r\n", true}, {"hOST:\t2\r\n", false}, {"ETag:\r\n", true}, {"b: \t c d\t \r\n", true}};
    char text[100] = "";
    for (unsigned n = 0; n < 4; n++) {
        if (!(choice >> n & 1)) continue;
        strcat(text, lines[n].line);
        w->seen += lines[n].counts;
    }
    if (choice != 0) strcat(text, "\r\n");
    const size_t len = strlen(text), first = len * (choice >> 4) / 16;
    if (len > 0 && (ls_trailers_add(&w->ctx, &w->n.x.trailers, text, first) < 0 ||
                    ls_trailers_add(&w->ctx, &w->n.x.trailers, text + first, len - first) < 0))
        return LS_ENOMEM;
    w->n.x.body_done = true;
    return LS_DONE;
}

static int transport_more(noting *n, ls_slice *out)
{
    static const int errors[] = {LS_EPROTO, LS_ETIMEDOUT, LS_ENOMEM, LS_PENDING};
    world *w = LS_CONTAINER(n, world, n);
    const uint8_t byte = take(w);
    if (byte >= 240) return errors[byte % 4];
    if (byte >= 236)
        return n->x.error != 0 ? n->x.error : (n->x.error = LS_ERESET); /* what was received can be read */
    *out = byte >= 200 ? ls_slice_static(NULL, 0) : part_of(w, 1 + byte % 31, true);
    const int err = byte >= 180 ? end_body(w, take(w)) : LS_DONE;
    if (err < 0) ls_slice_drop(out);
    return err;
}

/* ---- what the handler does -------------------------------------------------------------------------------------- */

static void keep(char *to, size_t *len, const char *bytes, size_t count)
{
    FUZZ_HOLDS(count <= ROOM - *len);
    memcpy(to + *len, bytes, count);
    *len += count;
}

static int add_fields(world *w, unsigned call)
{
    static const char *const names[] = {"A",       "X-Long-Name", "Content-Type", "connection",
                                        "Upgrade", "Date",        "b c",          "ETag"};
    static const char *const values[] = {"1", "close", "", "a\r\nb"};
    ls_exchange *x = &w->n.x;
    const uint8_t choice = take(w);
    const char *const name = names[choice % 8], *const value = values[choice / 8 % 4];
    const bool valid = strcmp(name, "b c") != 0 && strcmp(value, "a\r\nb") != 0, refused = strcmp(name, "Date") == 0;
    int err;
    if (call == 0) {
        err = ls_exchange_header(&w->ctx, x, name, strlen(name), value, strlen(value), choice & 32);
        FUZZ_HOLDS(err == (x->response != LS_RESPONSE_NONE                               ? LS_EBUSY
                           : !valid                                                      ? LS_EINVAL
                           : refused || (choice % 8 == 3 && strcmp(value, "close") != 0) ? LS_EACCES
                                                                                         : LS_OK) ||
                   err == LS_ELIMIT || err == LS_ENOMEM);
        return LS_OK;
    }
    if (call == 1) {
        ls_hints hints = {.len = 0};
        (void)ls_hints_add(&hints, name, strlen(name), value, strlen(value));
        err = ls_exchange_hints(&w->ctx, x, &hints);
        FUZZ_HOLDS(x->error != 0 || (err == LS_EBUSY) == (x->response != LS_RESPONSE_NONE));
        return x->error == 0 && (err == LS_EBUSY || err < 0) ? LS_OK : err;
    }
    err = ls_exchange_trailer(&w->ctx, x, name, strlen(name), value, strlen(value));
    if (x->error != 0) return err;
    FUZZ_HOLDS((err == LS_EBUSY) == (x->response == LS_RESPONSE_DONE));
    FUZZ_HOLDS(err != LS_OK || (valid && ls_http_is_trailer(name, strlen(name))));
    if (err != LS_OK) return LS_OK;
    keep(w->trailers, &w->trailers_len, name, strlen(name));
    keep(w->trailers, &w->trailers_len, ": ", 2);
    keep(w->trailers, &w->trailers_len, value, strlen(value));
    keep(w->trailers, &w->trailers_len, "\r\n", 2);
    return LS_OK;
}

static int write_parts(world *w, bool whole)
{
    ls_slice slices[3];
    ls_exchange *x = &w->n.x;
    const uint8_t choice = take(w);
    const unsigned count = choice % 4;
    for (unsigned i = 0; i < count; i++) {
        slices[i] = part_of(w, take(w), choice >> (2 + i) & 1);
        keep(w->body, &w->body_len, slices[i].ptr, slices[i].len);
    }
    return whole ? ls_exchange_respond(&w->ctx, x, slices, count) : ls_exchange_write(&w->ctx, x, slices, count);
}

static int write_shared(world *w)
{
    const uint8_t choice = take(w);
    ls_slice part = part_of(w, 1 + choice % 31, true);
    if (part.block == NULL) return LS_OK;
    keep(w->body, &w->body_len, part.ptr, part.len);
    const int err = ls_exchange_write_shared(&w->ctx, &w->n.x, &part, choice & 64);
    ls_slice_drop(&part); /* the queue has one of its own */
    return err;
}

static int read_part(world *w)
{
    ls_exchange *x = &w->n.x;
    ls_slice part;
    ls_pair field;
    unsigned trailers = 0;
    const int err = ls_exchange_read(&w->ctx, x, &part);
    FUZZ_HOLDS(err >= 0 || x->close);
    if (err == LS_DONE) {
        w->read += part.len;
        FUZZ_HOLDS(part.len > 0 || x->body_done);
        ls_slice_drop(&part);
    }
    FUZZ_HOLDS(w->read <= BODY_MAX && (err != LS_DONE || w->read == x->body_bytes));
    for (size_t at = 0; ls_exchange_next_trailer(x, &at, &field);) trailers++;
    FUZZ_HOLDS(trailers == (x->body_done ? w->seen : 0));
    return LS_OK; /* x->error alone counts */
}

static int upgrade(world *w)
{
    const ls_stream_handler handler = {0};
    ls_exchange *x = &w->n.x;
    ls_upgraded out;
    const int err = ls_exchange_upgrade(&w->ctx, x, "p", 1, &handler, 0, &out);
    FUZZ_HOLDS((err == LS_OK) == (w->n.upgrades == 1 && x->error == LS_ECLOSED && x->response == LS_RESPONSE_DONE) ||
               x->error != 0);
    return err == LS_OK ? x->error : x->error == 0 ? LS_OK : err;
}

/* Settings of a response that has not begun. */
static void set(world *w)
{
    static const int statuses[] = {200, 204, 205, 304, 404, 101, 999, 200};
    const uint8_t choice = take(w);
    ls_exchange *x = &w->n.x;
    if (x->response != LS_RESPONSE_NONE) return;
    switch (choice % 4) {
    case 0: x->status = statuses[choice / 4 % 8]; break;
    case 1: x->length = choice / 4 - 1; break;
    case 2: x->type = "text/plain"; break;
    default:
        ls_exchange_drop_content(x);
        w->trailers_len = 0;
        break;
    }
}

/* Make one call. Returns its result as far as it may have ended the exchange, else LS_OK. */
static int call_once(world *w, uint8_t call)
{
    ls_exchange *x = &w->n.x;
    const bool failed = x->error != 0, begun = x->response != LS_RESPONSE_NONE, done = x->response == LS_RESPONSE_DONE;
    switch (call % 12) {
    case 0:
    case 1:
    case 2: return add_fields(w, call % 12);
    case 3: return failed || !begun ? write_parts(w, true) : LS_OK;
    case 4: return failed || !done ? write_parts(w, false) : LS_OK;
    case 5: return failed || (x->response == LS_RESPONSE_OPEN && x->length < 0) ? write_shared(w) : LS_OK;
    case 6: return ls_exchange_flush(&w->ctx, x);
    case 7: return failed || !done ? ls_exchange_finish(&w->ctx, x) : LS_OK;
    case 8: return read_part(w);
    case 9: return call >= 128 ? upgrade(w) : LS_OK;
    case 10:
        if (call >= 192) ls_exchange_abort(&w->ctx, x);
        return x->error;
    default: set(w); return LS_OK;
    }
}

static void check_call(world *w, uint8_t call)
{
    const ls_exchange *x = &w->n.x;
    const int error = x->error, phase = x->response;
    const size_t body_len = w->body_len;
    const unsigned heads = w->n.heads;
    const int err = call_once(w, call);
    if (error != 0) w->body_len = body_len;
    FUZZ_HOLDS(error == 0 || x->error == error);
    FUZZ_HOLDS(err >= 0 || err == x->error);
    FUZZ_HOLDS(err >= 0 || error == 0 || err == error);
    FUZZ_HOLDS((int)x->response >= phase || x->error != 0);
    if (w->n.heads == heads) return;
    w->announced = x->framing == LS_FRAMED_BY_PARTS ? w->trailers_len : 0;
    if (x->framing != LS_FRAMED_BY_PARTS || x->no_body) w->trailers_len = 0;
    FUZZ_HOLDS(ls_exchange_has_field(x, "trailer", 7) == (w->announced > 0) || x->fields_len > LS_BLOCK_LARGE / 2);
}

/* ---- one input -------------------------------------------------------------------------------------------------- */

static void begin(world *w)
{
    static const ls_http_method methods[] = {LS_HTTP_GET, LS_HTTP_HEAD, LS_HTTP_POST, LS_HTTP_CONNECT};
    static const enum ls_framed framings[] = {LS_FRAMED_BY_PARTS, LS_FRAMED_BY_CLOSE, LS_FRAMED_BY_LENGTH,
                                              LS_FRAMED_BY_PARTS};
    ls_exchange *x = &w->n.x;
    ls_pool *pool;
    const uint8_t choice = take(w);
    FUZZ_HOLDS(ls_pools_open(1 << 20, &w->pools) == LS_OK);
    FUZZ_HOLDS(ls_pool_open(w->pools, &pool) == LS_OK);
    ls_pool_enter(pool);
    w->ctx.pool = pool;
    w->n.result = transport_result;
    w->n.more = transport_more;
    x->transport = &noting_transport;
    x->head.method = methods[choice % 4];
    x->head.version = choice & 4 ? 10 : 11;
    x->open_framing = framings[choice >> 3 & 3];
    x->body_done = choice & 32;
    x->head.content_length = choice & 64 ? BODY_MAX + (choice >> 7) : 0;
    x->body_bytes_max = BODY_MAX;
    x->status = 200;
    x->length = -1;
}

static void end(world *w)
{
    noting *n = &w->n;
    ls_pools_stats stats;
    FUZZ_HOLDS(n->body_len <= w->body_len && memcmp(n->body, w->body, n->body_len) == 0);
    if (n->x.response == LS_RESPONSE_DONE && n->x.error == 0) {
        FUZZ_HOLDS(n->heads == 1);
        FUZZ_HOLDS(n->lasts == (n->x.framing == LS_FRAMED_BY_PARTS && !n->x.no_body));
        FUZZ_HOLDS(n->body_len == (n->x.no_body ? 0 : w->body_len) && ls_exchange_body_sent(&n->x) == n->body_len);
        FUZZ_HOLDS(n->length < 0 || n->x.no_body || (uint64_t)n->length == n->body_len);
    }
    FUZZ_HOLDS(n->trailers_len == (n->lasts > 0 ? w->trailers_len : 0) || n->lost);
    FUZZ_HOLDS(memcmp(n->trailers, w->trailers, n->trailers_len) == 0);
    ls_exchange_drop_fields(&n->x);
    ls_pools_stat(w->pools, &stats);
    FUZZ_HOLDS(stats.blocks_live == 0);
    ls_pool_close(w->ctx.pool);
    ls_pools_close(w->pools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w; /* the notes need no zeroes */
    memset(&w, 0, offsetof(world, body));
    w.body_len = w.trailers_len = w.announced = 0;
    w.read = 0;
    w.seen = 0;
    memset(&w.n, 0, offsetof(noting, body));
    memset(&w.n.body_len, 0, offsetof(noting, x) + offsetof(ls_exchange, head) - offsetof(noting, body_len));
    memset(&w.n.x.head, 0, offsetof(ls_http_head, fields));
    w.at = data;
    w.end = data + (size < 2000 ? size : 2000);
    begin(&w);
    while (w.at < w.end) check_call(&w, take(&w));
    end(&w);
    return 0;
}
