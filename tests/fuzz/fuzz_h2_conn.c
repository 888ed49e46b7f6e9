/* fuzz_h2_conn.c - a whole connection of HTTP/2: the input goes through a real socket pair into the server, one thread
 * dispatches the packets, handlers in two actors respond, and a strict reader checks the output.
 *
 * The first byte of the input selects the size of the pieces of the rest, and `choices`. The second letter of a path
 * selects what its handler does. Properties:
 *   - the output is a sequence of well-formed frames: SETTINGS first; no HEADERS or DATA behind the end of a stream or
 *     its reset; field blocks that HPACK decodes, with one final status; as many bytes as Content-Length says;
 *   - DATA stay within the window of the connection;
 *   - at most TEST_HTTP2_STREAMS handlers run at a time, and each one that waits is woken when its stream ends;
 *   - every exchange, every block and every connection is released.
 * With libFuzzer, a mutator changes whole frames. */
#define _GNU_SOURCE
#include "fuzz_http.h"

#include "http/http2/h2.h"
#include "http/http2/h2_conn_internal.h"

enum { OUT_MAX = 4 << 20, BODY_MAX = 100 << 10, BIG = 200 << 10, TASKS_MAX = 4096, STREAMS_MAX = 4096 };
enum choices { BARE = 8, READS_LATE = 16, DRAINS = 32, ABORTS = 64 }; /* BARE: the input has the preface itself */

typedef struct fixture fixture;
typedef struct task { /* a handler */
    fixture *w;
    ls_exchange *x; /* NULL: released */
    char does;
    bool posted;
    size_t written;
    ls_op resume;
} task;

struct fixture {
    fuzz_http http;
    ls_actor actors[2];
    task tasks[TASKS_MAX];
    int starts, live;
};

/* ---- the handlers -------------------------------------------------------------------------------------------- */

static void finish(ls_thread_ctx *ctx, task *t)
{
    ls_exchange *x = t->x;
    t->x = NULL;
    t->w->live--;
    ls_exchange_release(ctx, x);
}

static void respond(ls_thread_ctx *ctx, task *t, int status)
{
    ls_slice slice = ls_slice_static("text", 4);
    t->x->status = status;
    (void)ls_exchange_respond(ctx, t->x, &slice, 1);
    finish(ctx, t);
}

static int write_part(ls_thread_ctx *ctx, task *t, size_t len)
{
    ls_block *block = ls_block_get(ctx->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (block == NULL) return LS_ENOMEM;
    memset(block->data, 'x', len);
    ls_slice part = {block, block->data, len};
    t->written += len;
    return ls_exchange_write(ctx, t->x, &part, 1);
}

static void finish_with(ls_thread_ctx *ctx, task *t, int err)
{
    if (err >= 0) (void)ls_exchange_finish(ctx, t->x);
    finish(ctx, t);
}

static void mirror(ls_thread_ctx *ctx, task *t)
{
    ls_slice part;
    int err;
    while ((err = ls_exchange_read(ctx, t->x, &part)) == LS_DONE && part.len > 0)
        if ((err = ls_exchange_write(ctx, t->x, &part, 1)) != LS_DONE) break;
    if (err != LS_PENDING) finish_with(ctx, t, err);
}

/* Read the body, or its first part. */
static void reading(ls_thread_ctx *ctx, task *t, bool all)
{
    ls_slice part;
    int err;
    while ((err = ls_exchange_read(ctx, t->x, &part)) == LS_DONE && part.len > 0) {
        FUZZ_HOLDS(t->x->body_bytes <= BODY_MAX);
        ls_slice_drop(&part);
        if (!all) break;
    }
    if (err == LS_PENDING) return;
    respond(ctx, t, err < 0 ? 400 : 200);
}

static void run(ls_thread_ctx *ctx, task *t)
{
    ls_exchange *x = t->x;
    static ls_hints hints;
    int err = 0;
    switch (x->error != 0 ? 'e' : t->does) {
    case 'R': reading(ctx, t, true); return;
    case 'o': reading(ctx, t, false); return;
    case 'm': mirror(ctx, t); return;
    case 'p':
        if (ls_exchange_trailer(ctx, x, "t", 1, "v", 1) == LS_OK)
            for (int i = 0; i < 3 && err >= 0; i++) err = write_part(ctx, t, 700);
        finish_with(ctx, t, err);
        return;
    case 'b': /* in parts, with its length before them, or without */
    case 'B':
        x->length = t->does == 'b' ? BIG : -1;
        while (t->written < BIG && err == LS_DONE) err = write_part(ctx, t, 20 << 10);
        if (err == LS_DONE) err = ls_exchange_flush(ctx, x);
        if (err != LS_PENDING) finish_with(ctx, t, err);
        return;
    case 'a': /* ends before its response is complete */
    case 'l':
        x->length = t->does == 'l' ? 10 : -1;
        if (write_part(ctx, t, 4) >= 0) (void)ls_exchange_flush(ctx, x);
        finish(ctx, t);
        return;
    case 'x':
        if (write_part(ctx, t, 4) >= 0) ls_exchange_abort(ctx, x);
        finish(ctx, t);
        return;
    case 'h':
        hints.len = 0;
        if (ls_hints_add(&hints, "Link", 4, "</a>", 4) == LS_OK) (void)ls_exchange_hints(ctx, x, &hints);
        respond(ctx, t, 200);
        return;
    case 'e': finish(ctx, t); return;
    case 'n': respond(ctx, t, 204); return;
    case 'w': /* at the next piece of the input */
        if (!t->posted) return;
        respond(ctx, t, 200);
        return;
    default: respond(ctx, t, 200); return;
    }
}

static void woken(ls_thread_ctx *ctx, ls_exchange *x)
{
    run(ctx, x->task);
}

static void resumed(ls_thread_ctx *ctx, ls_op *op)
{
    task *t = LS_CONTAINER(op, task, resume);
    if (t->x != NULL) run(ctx, t);
}

static void start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    fixture *w = LS_CONTAINER(handler, fixture, http.handler);
    FUZZ_HOLDS(w->starts < TASKS_MAX);
    task *t = &w->tasks[w->starts++];
    ls_actor *actor = &w->actors[w->starts % 2];
    if (ctx->inside == NULL) FUZZ_HOLDS(ls_actor_try_enter(actor, ctx));
    *t = (task){.w = w, .x = x, .does = x->head.path.len > 1 ? x->bytes[x->head.path.at + 1] : '/'};
    FUZZ_HOLDS(++w->live <= TEST_HTTP2_STREAMS);
    x->actor = ctx->inside;
    x->task = t;
    x->wake = woken;
    run(ctx, t);
}

/* ---- the client ---------------------------------------------------------------------------------------------- */

static void resume_tasks(fixture *w)
{
    for (int i = 0; i < w->starts; i++) {
        task *t = &w->tasks[i];
        if (t->x == NULL || t->posted || t->does != 'w') continue;
        t->posted = true;
        t->resume = (ls_op){.done = resumed, .actor = t->x->actor};
        ls_port_post(w->http.peer.port, &t->resume, 0);
    }
    fuzz_peer_settle(&w->http.peer);
}

/* ---- the output ---------------------------------------------------------------------------------------------- */

typedef struct frame {
    const uint8_t *bytes;
    size_t len;
    int type, flags;
    uint32_t id;
} frame;

static uint32_t number(const uint8_t *bytes, size_t count)
{
    uint32_t sum = 0;
    while (count-- > 0) sum = sum << 8 | *bytes++;
    return sum;
}

static bool take_frame(const uint8_t **at, const uint8_t *end, frame *f)
{
    if (end - *at < 9 || (size_t)(end - *at) < 9 + number(*at, 3)) return false;
    *f = (frame){*at + 9, number(*at, 3), (*at)[3], (*at)[4], number(*at + 5, 4) & INT32_MAX};
    *at += 9 + f->len;
    return true;
}

typedef struct stream {
    uint32_t id;
    bool headed, ended;
    int64_t length, bytes; /* length: of Content-Length; -1 */
} stream;

static void check_fields(nghttp2_hd_inflater *inflater, const frame *f, stream *s)
{
    const uint8_t *at = f->bytes;
    size_t left = f->len;
    int status = 0, flags = 0;
    FUZZ_HOLDS(f->flags & NGHTTP2_FLAG_END_HEADERS);
    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        const ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, at, left, 1);
        FUZZ_HOLDS(n >= 0);
        at += n;
        left -= (size_t)n;
        if (!(flags & NGHTTP2_HD_INFLATE_EMIT)) continue;
        if (nv.namelen == 7 && memcmp(nv.name, ":status", 7) == 0) status = atoi((const char *)nv.value);
        if (nv.namelen == 14 && memcmp(nv.name, "content-length", 14) == 0) s->length = atoi((const char *)nv.value);
        for (size_t i = 0; i < nv.namelen; i++) FUZZ_HOLDS(nv.name[i] < 'A' || nv.name[i] > 'Z');
    }
    nghttp2_hd_inflate_end_headers(inflater);
    FUZZ_HOLDS(s->headed ? status == 0 && f->flags & NGHTTP2_FLAG_END_STREAM : status >= 100 && status <= 599);
    FUZZ_HOLDS(status >= 200 || s->headed || !(f->flags & NGHTTP2_FLAG_END_STREAM));
    s->headed |= status >= 200;
}

static void check(const fixture *w, uint64_t window)
{
    const uint8_t *at = (const uint8_t *)w->http.peer.out, *const end = at + w->http.peer.out_len;
    stream *streams = calloc(STREAMS_MAX, sizeof *streams);
    nghttp2_hd_inflater *inflater;
    uint64_t bytes = 0;
    frame f;
    if (end - at >= 7 && memcmp(at, "HTTP/1.", 7) == 0) at = end;
    FUZZ_HOLDS(streams != NULL && nghttp2_hd_inflate_new(&inflater) == 0);
    for (bool first = true; take_frame(&at, end, &f); first = false) {
        stream *s = &streams[f.id % STREAMS_MAX];
        FUZZ_HOLDS(f.len <= 16384);
        FUZZ_HOLDS(!first || f.type == NGHTTP2_SETTINGS || f.type == NGHTTP2_GOAWAY);
        FUZZ_HOLDS(f.type <= NGHTTP2_CONTINUATION);
        if (s->id == 0) *s = (stream){.id = f.id, .length = -1};
        if (s->id != f.id) break; /* two streams have one place: enough is seen */
        if (f.type == NGHTTP2_RST_STREAM) s->ended = true;
        if (f.type != NGHTTP2_HEADERS && f.type != NGHTTP2_DATA) continue;
        FUZZ_HOLDS(f.id % 2 == 1 && !s->ended);
        if (f.type == NGHTTP2_DATA) {
            FUZZ_HOLDS(s->headed);
            s->bytes += (int64_t)f.len;
            bytes += f.len;
        } else {
            check_fields(inflater, &f, s);
        }
        s->ended = f.flags & NGHTTP2_FLAG_END_STREAM;
        FUZZ_HOLDS(s->length < 0 || s->bytes <= s->length);
        FUZZ_HOLDS(!s->ended || s->length < 0 || s->bytes == 0 || s->bytes == s->length);
    }
    FUZZ_HOLDS(bytes <= window);
    nghttp2_hd_inflate_del(inflater);
    free(streams);
}

/* The window of the connection, as the frames of the input open it. */
static uint64_t window_of(const uint8_t *at, const uint8_t *end)
{
    uint64_t sum = LS_H2_WINDOW;
    frame f;
    while (take_frame(&at, end, &f))
        if (f.type == NGHTTP2_WINDOW_UPDATE && f.id == 0 && f.len == 4) sum += number(f.bytes, 4) & INT32_MAX;
    return sum;
}

/* ---- one input ----------------------------------------------------------------------------------------------- */

static void world_open(fixture *w)
{
    fuzz_http *http = &w->http;
    for (int i = 0; i < 2; i++) ls_actor_init(&w->actors[i]);
    fuzz_http_open(http, 1 << 24, OUT_MAX);
    http->config.body_bytes_max = BODY_MAX;
    http->config.http2 = true;
    http->handler.start = start;
    FUZZ_HOLDS(ls_h2_open(&http->config, &http->handler, &http->conn_limit, 1, &http->http) == LS_OK);
    ls_http1_start(&http->peer.ctx, http->stream, http->http);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[8] = {SIZE_MAX, 1, 2, 7, 61, 1021, 4096, 16384};
    ls_http_stats stats;
    if (size == 0) return 0;
    fixture *w = calloc(1, sizeof *w);
    FUZZ_HOLDS(w != NULL);
    fuzz_peer *client = &w->http.peer;
    world_open(w);
    ls_http_engine *server = w->http.http;
    client->reads = !(data[0] & READS_LATE);
    if (!(data[0] & BARE)) fuzz_peer_send(client, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN, fuzz_peer_settle);
    for (size_t at = 1, piece = pieces[data[0] % 8]; at < size; at += piece) {
        if (piece > size - at) piece = size - at;
        fuzz_peer_send(client, data + at, piece, fuzz_peer_settle);
        resume_tasks(w);
        if (data[0] & DRAINS && at + piece > size / 2) (void)server->ops->drain(server, false);
        if (data[0] & ABORTS && at + piece > size / 2) server->ops->abort(server);
    }
    client->reads = true;
    fuzz_peer_settle(client);
    if (!client->ended && size % 2) (void)shutdown(client->theirs, SHUT_WR);
    fuzz_peer_settle(client);
    fuzz_http_hang_up(&w->http, &stats);
    FUZZ_HOLDS(w->live == 0); /* no handler waits for ever */
    FUZZ_HOLDS(atomic_load(&w->actors[0].pins) == 0 && atomic_load(&w->actors[1].pins) == 0);
    const size_t magic = data[0] & BARE && size > NGHTTP2_CLIENT_MAGIC_LEN ? NGHTTP2_CLIENT_MAGIC_LEN : 0;
    check(w, window_of(data + 1 + magic, data + size));
    fuzz_http_close(&w->http);
    free(w);
    return 0;
}

/* ---- the mutator --------------------------------------------------------------------------------------------- */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static uint32_t draw(unsigned *seed, uint32_t below)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 8) % below;
}

/* Write a likely frame of at most 200 bytes; the fields of its head are literals. Returns its length. */
static size_t put_frame(uint8_t *to, unsigned *seed)
{
    static const char does[] = "RompbBalxhenwr/", frames[] = {1, 1, 1, 0, 0, 8, 8, 3, 4, 6, 2, 7, 9, 16};
    const uint8_t head[9] = {0,
                             0,
                             0,
                             (uint8_t)frames[draw(seed, sizeof frames)],
                             (uint8_t)(draw(seed, 64) & 0x2d),
                             0,
                             0,
                             0,
                             (uint8_t)(draw(seed, 8) == 0 ? draw(seed, 4) : 1 + 2 * draw(seed, 12))};
    uint8_t payload[200] = {0x82 + draw(seed, 2), 0x86, 0x41, 1, 'h', 0x44, 2, '/', (uint8_t)does[draw(seed, 15)]};
    size_t len = 9;
    memcpy(to, head, 9);
    switch (head[3]) {
    case NGHTTP2_HEADERS: to[4] = (uint8_t)(4 | draw(seed, 2)); break;
    case NGHTTP2_DATA:
        to[4] = (uint8_t)draw(seed, 2);
        len = draw(seed, sizeof payload);
        break;
    case NGHTTP2_WINDOW_UPDATE:
        len = 4;
        payload[0] = 0;
        payload[1] = (uint8_t)(1 << draw(seed, 8));
        if (draw(seed, 2)) to[8] = 0;
        break;
    case NGHTTP2_SETTINGS:
        len = 6;
        memcpy(payload, (const uint8_t[]){0, (uint8_t)(1 + draw(seed, 9)), 0, 0, (uint8_t)draw(seed, 256), 0}, 6);
        break;
    case NGHTTP2_PING: len = 8; break;
    case NGHTTP2_RST_STREAM: len = 4; break;
    case NGHTTP2_PRIORITY: len = 5; break;
    default: break;
    }
    if (head[3] == NGHTTP2_SETTINGS || head[3] == NGHTTP2_PING || head[3] == NGHTTP2_GOAWAY) to[8] = 0;
    if (head[3] == NGHTTP2_SETTINGS || head[3] == NGHTTP2_PING) to[4] = (uint8_t)(draw(seed, 8) == 0);
    to[2] = (uint8_t)len;
    memcpy(to + 9, payload, len);
    return 9 + len;
}

/* Insert a frame, or copy, move, cut or change one; or else what libFuzzer does with the bytes. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    const uint8_t *starts[64], *at = data + 1;
    uint8_t made[512];
    unsigned count = 0;
    frame f;
    if (size == 0 || draw(&seed, 4) == 0) return LLVMFuzzerMutate(data, size, max);
    while (count < 64) {
        starts[count++] = at;
        if (!take_frame(&at, data + size, &f)) break;
    }
    uint8_t *to = data + (starts[draw(&seed, count)] - data);
    const uint8_t *from = starts[draw(&seed, count)], *after = from;
    const bool whole = take_frame(&after, data + size, &f);
    size_t len = put_frame(made, &seed);
    switch (draw(&seed, 6)) {
    case 0: /* copy */
        if (!whole || f.len + 9 > sizeof made) break;
        len = f.len + 9;
        memcpy(made, from, len);
        break;
    case 1: /* remove */
        if (!whole) break;
        memmove(data + (from - data), after, (size_t)(data + size - after));
        return size - 9 - f.len;
    case 2: /* change a byte of its head */
        if (!whole) break;
        data[from - data + 3 + draw(&seed, 6)] ^= (uint8_t)(1 << draw(&seed, 8));
        return size;
    case 3: /* flags or stream */
        if (!whole) break;
        data[from - data + 4] ^= (uint8_t)(1 << draw(&seed, 6));
        data[from - data + 8] = (uint8_t)draw(&seed, 16);
        return size;
    default: break;
    }
    if (size + len > max) return LLVMFuzzerMutate(data, size, max);
    memmove(to + len, to, (size_t)(data + size - to));
    memcpy(to, made, len);
    return size + len;
}
