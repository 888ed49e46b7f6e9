/* fuzz_websocket.c - a whole connection: the input goes through a real socket pair into the connection code, one thread
 * dispatches the packets, the user echoes the messages, and the peer reads the output.
 *
 * The first byte of the input selects the role, the compression, the limit of a message, when the user takes its messages,
 * and the size of the pieces of the rest. Properties:
 *   - without compression, the messages, the end and its code are those of a decoder that sees all bytes at once;
 *   - with compression they do not depend on the pieces;
 *   - the output is well-formed frames: an echo of each message in order, at most one pong for each ping, with the bytes of a
 *     ping, and at last at most one Close frame, behind which nothing follows;
 *   - `ended` and `freed` are called once, and every block is released. */
#define _GNU_SOURCE
#include "fuzz_peer.h"

#include "base/utf8.h"
#include "sched/actor.h"
#include "ws/websocket.h"

enum { OUT_MAX = 1 << 21, EVENTS_MAX = 1 << 21, NEVER_MS = 600000 };

enum choice { CLIENT = 1, COMPRESSED = 2, SMALL_LIMIT = 4, LATER = 8, PIECES = 16 };

typedef struct record { /* what was received: messages, each with its length, kind and bytes; then the end */
    size_t len;
    unsigned code;
    size_t pings;
    uint8_t bytes[EVENTS_MAX];
} record;

typedef struct fixture {
    fuzz_peer peer;
    ls_actor actor;
    ls_ws_config config;
    ls_ws_deflate_store *store;
    ls_ws *ws; /* NULL after `freed` */
    bool later;
    unsigned ended, freed;
    record got;
} fixture;

static void record_message(record *r, bool text, const void *bytes, size_t len)
{
    const uint32_t size = (uint32_t)len;
    FUZZ_HOLDS(r->len + sizeof size + 1 + len <= EVENTS_MAX);
    memcpy(r->bytes + r->len, &size, sizeof size);
    r->bytes[r->len + sizeof size] = text;
    if (len > 0) memcpy(r->bytes + r->len + sizeof size + 1, bytes, len);
    r->len += sizeof size + 1 + len;
}

/* ---- the decoder ---------------------------------------------------------------------------------------------- */

typedef struct decoder {
    const ls_ws_config *config;
    bool in_message, text;
    ls_utf8 utf8;
    char *message;
    size_t len;
} decoder;

/* Decode a data frame with `have` bytes of its payload. 0, or the code that refuses it. */
static unsigned decode_data(decoder *d, record *out, const ls_ws_head *head, const char *payload, size_t have)
{
    const bool whole = have == head->length;
    if ((head->opcode != LS_WS_CONTINUATION) == d->in_message) return LS_WS_PROTOCOL_ERROR;
    if (!d->in_message) {
        d->in_message = true;
        d->text = head->opcode == LS_WS_TEXT;
        d->utf8 = (ls_utf8){0};
        d->len = 0;
    }
    if (head->length > d->config->message_bytes_max || d->len + head->length > d->config->message_bytes_max)
        return LS_WS_TOO_BIG;
    for (size_t i = 0; i < have; i++)
        d->message[d->len + i] = (char)(payload[i] ^ (head->masked ? head->key[i % 4] : 0));
    if (d->text && !ls_utf8_feed(&d->utf8, d->message + d->len, have)) return LS_WS_BAD_DATA;
    d->len += have;
    if (!whole || !head->fin) return 0;
    if (d->text && !ls_utf8_complete(&d->utf8)) return LS_WS_BAD_DATA;
    d->in_message = false;
    record_message(out, d->text, d->message, d->len);
    return 0;
}

/* A control frame that is complete. 0, or the code of the end. */
static unsigned decode_control(record *out, const ls_ws_head *head, const char *bytes)
{
    char payload[LS_WS_CONTROL_BYTES_MAX];
    const size_t len = (size_t)head->length;
    unsigned code;
    const char *reason;
    size_t reason_len;
    ls_ws_mask_copy(payload, bytes, len, head->key, 0); /* the key of a frame without a mask is 0 */
    if (head->opcode == LS_WS_PING) out->pings++;
    if (head->opcode != LS_WS_CLOSE) return 0;
    const int err = ls_ws_close_parse(payload, len, &code, &reason, &reason_len);
    return err < 0 ? (unsigned)-err : code;
}

static void decode(const ls_ws_config *config, const uint8_t *data, size_t size, record *out)
{
    const ls_ws_rules rules = {.masked = !config->client};
    decoder d = {.config = config, .message = malloc(config->message_bytes_max)};
    unsigned code = 0;
    FUZZ_HOLDS(d.message != NULL);
    for (size_t at = 0; code == 0;) {
        ls_ws_head head;
        const char *why;
        const int n = ls_ws_head_parse((const char *)data + at, size - at, &rules, &head, &why);
        if (n <= 0) {
            code = n < 0 ? (unsigned)-n : LS_WS_ABNORMAL;
            break;
        }
        at += (size_t)n;
        const size_t have = head.length < size - at ? (size_t)head.length : size - at;
        const char *const payload = (const char *)data + at;
        if (head.opcode < LS_WS_CLOSE)
            code = decode_data(&d, out, &head, payload, have);
        else if (have == head.length)
            code = decode_control(out, &head, payload);
        at += have;
        if (code == 0 && have < head.length) code = LS_WS_ABNORMAL;
    }
    out->code = code;
    free(d.message);
}

/* ---- the user --------------------------------------------------------------------------------------------------- */

static fixture *fixture_of(ls_ws *ws)
{
    return *(fixture **)ls_ws_user(ws);
}

static void take(ls_thread_ctx *ctx, fixture *w)
{
    const ls_ws_message *m = ls_ws_message_get(w->ws);
    char *bytes = malloc(m->bytes > 0 ? m->bytes : 1);
    ls_slice *slices = calloc(m->count, sizeof *slices);
    size_t len = 0;
    FUZZ_HOLDS(bytes != NULL && slices != NULL && m->count > 0);
    for (unsigned i = 0; i < m->count; i++) {
        memcpy(bytes + len, m->slices[i].ptr, m->slices[i].len);
        len += m->slices[i].len;
        slices[i] = m->slices[i];
        ls_block_hold(slices[i].block);
    }
    FUZZ_HOLDS(len == m->bytes && len <= w->config.message_bytes_max);
    FUZZ_HOLDS(!m->text || ls_utf8_valid(bytes, len));
    record_message(&w->got, m->text, bytes, len);
    const int err = ls_ws_send(ctx, w->ws, m->text ? LS_WS_TEXT : LS_WS_BINARY, slices, m->count);
    FUZZ_HOLDS(err == LS_DONE || err == LS_PENDING || err == LS_ECLOSED);
    free(slices);
    free(bytes);
    ls_ws_consume(ctx, w->ws);
}

static void on_message(ls_thread_ctx *ctx, ls_ws *ws)
{
    fixture *w = fixture_of(ws);
    FUZZ_HOLDS(w->ended == 0);
    if (!w->later) take(ctx, w);
}

static void on_drained(ls_thread_ctx *ctx, ls_ws *ws)
{
    (void)ctx;
    FUZZ_HOLDS(fixture_of(ws)->ended == 0);
}

static void on_ended(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    fixture *w = fixture_of(ws);
    (void)ctx;
    FUZZ_HOLDS(++w->ended == 1 && ls_utf8_valid(reason, reason_len));
    w->got.code = code;
}

static void on_freed(ls_thread_ctx *ctx, ls_ws *ws)
{
    fixture *w = fixture_of(ws);
    (void)ctx;
    FUZZ_HOLDS(++w->freed == 1 && w->ended == 1);
    w->ws = NULL;
}

static const ls_ws_events events = {on_message, on_drained, on_ended, on_freed};

/* ---- the peer --------------------------------------------------------------------------------------------------- */

static void settle(fuzz_peer *peer)
{
    fixture *w = LS_CONTAINER(peer, fixture, peer);
    for (;;) {
        fuzz_peer_settle(peer);
        if (!w->later || w->ws == NULL || ls_ws_message_get(w->ws) == NULL) return;
        FUZZ_HOLDS(ls_actor_try_enter(&w->actor, &peer->ctx));
        take(&peer->ctx, w);
        if (w->ws != NULL) (void)ls_ws_flush(&peer->ctx, w->ws);
        ls_actor_leave(&w->actor, &peer->ctx);
    }
}

/* Check the output, and that it echoes the messages. An incomplete frame may be the last: the connection was lost. */
static void check_output(const fixture *w)
{
    const ls_ws_rules rules = {.masked = w->config.client, .compressed = w->store != NULL};
    size_t echoed = 0, pongs = 0;
    bool closed = false;
    char *payload = malloc(OUT_MAX);
    FUZZ_HOLDS(payload != NULL);
    for (size_t at = 0; at < w->peer.out_len;) {
        ls_ws_head head;
        const char *why;
        const int n = ls_ws_head_parse(w->peer.out + at, w->peer.out_len - at, &rules, &head, &why);
        FUZZ_HOLDS(n >= 0 && !closed && (n == 0 || head.fin));
        if (n == 0 || head.length > w->peer.out_len - at - (size_t)n) break;
        ls_ws_mask_copy(payload, w->peer.out + at + n, (size_t)head.length, head.key, 0);
        at += (size_t)n + (size_t)head.length;
        closed = head.opcode == LS_WS_CLOSE;
        pongs += head.opcode == LS_WS_PONG;
        if (head.opcode >= LS_WS_CLOSE) continue;
        uint32_t size;
        FUZZ_HOLDS(head.opcode != LS_WS_CONTINUATION && echoed + 5 <= w->got.len);
        memcpy(&size, w->got.bytes + echoed, sizeof size);
        FUZZ_HOLDS(w->got.bytes[echoed + 4] == (head.opcode == LS_WS_TEXT));
        if (!head.compressed) FUZZ_HOLDS(size == head.length && memcmp(w->got.bytes + echoed + 5, payload, size) == 0);
        echoed += 5 + size;
    }
    if (w->store == NULL) FUZZ_HOLDS(pongs <= w->got.pings);
    if (w->got.code != LS_WS_ABNORMAL) FUZZ_HOLDS(closed);
    free(payload);
}

/* ---- one input ---------------------------------------------------------------------------------------------- */

static void world_open(fixture *w, unsigned choice)
{
    const ls_ws_deflate_params params = {
        .server_takeover = true, .client_takeover = true, .server_bits = 15, .client_bits = 15};
    ls_ws_deflate deflate = {0};
    ls_stream *s;
    w->config = (ls_ws_config){.client = choice & CLIENT,
                               .message_bytes_max = choice & SMALL_LIMIT ? 300 : 100000,
                               .queue_bytes_max = 1 << 20,
                               .write_bytes_high = 4096,
                               .ping_ms = NEVER_MS,
                               .pong_ms = NEVER_MS,
                               .message_ms_max = NEVER_MS,
                               .close_ms_max = NEVER_MS,
                               .send_stall_ms_max = NEVER_MS};
    w->later = choice & LATER;
    fuzz_peer_open(&w->peer, 1 << 24, OUT_MAX);
    ls_actor_init(&w->actor);
    FUZZ_HOLDS(ls_stream_open(w->peer.port, w->peer.deadlines, w->peer.ours, true, NULL, &ls_ws_stream_handler,
                              ls_ws_room(sizeof(fixture *)), &s) == LS_OK);
    ls_stream_set_actor(s, &w->actor);
    if ((choice & COMPRESSED) && ls_ws_deflate_library() != NULL) {
        FUZZ_HOLDS(ls_ws_deflate_store_open(1 << 24, &w->store) == LS_OK);
        FUZZ_HOLDS(ls_ws_deflate_begin(w->store, &params, 64, w->config.client, &deflate) == LS_OK);
    }
    w->ws = ls_ws_open(s, &w->config, w->store != NULL ? &deflate : NULL, &events);
    *(fixture **)ls_ws_user(w->ws) = w;
    FUZZ_HOLDS(ls_actor_try_enter(&w->actor, &w->peer.ctx));
    ls_ws_begin(&w->peer.ctx, w->ws);
    ls_actor_leave(&w->actor, &w->peer.ctx);
}

static fixture *run(unsigned choice, const uint8_t *data, size_t size, size_t piece)
{
    fixture *w = malloc(sizeof *w);
    FUZZ_HOLDS(w != NULL);
    memset(w, 0, offsetof(fixture, got.bytes));
    world_open(w, choice);
    for (size_t at = 0; at < size;) {
        const size_t len = size - at < piece ? size - at : piece;
        fuzz_peer_send(&w->peer, data + at, len, settle);
        at += len;
    }
    if (!w->peer.ended) (void)shutdown(w->peer.theirs, SHUT_WR);
    settle(&w->peer);
    fuzz_peer_hang_up(&w->peer);
    settle(&w->peer);
    FUZZ_HOLDS(w->freed == 1);
    ls_ws_deflate_store_close(w->store);
    return w;
}

/* Its output is gone with it. */
static void finish(fixture *w)
{
    fuzz_peer_close(&w->peer);
    free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 2, 7, 61, 1021, 4093, 16384};
    if (size == 0) return 0;
    const unsigned choice = data[0] % PIECES;
    const size_t piece = pieces[data[0] / PIECES % (sizeof pieces / sizeof pieces[0])];
    if (size - 1 > 1 << 19) return 0; /* the output and the record have room for it, not for more */
    fixture *w = run(choice, data + 1, size - 1, piece);
    record *wanted = malloc(sizeof *wanted);
    FUZZ_HOLDS(wanted != NULL);
    wanted->len = wanted->pings = 0;
    if (w->store == NULL) {
        decode(&w->config, data + 1, size - 1, wanted);
        w->got.pings = wanted->pings;
    } else {
        fixture *again = run(choice, data + 1, size - 1, SIZE_MAX);
        memcpy(wanted, &again->got, sizeof *wanted);
        finish(again);
    }
    FUZZ_HOLDS(w->got.len == wanted->len && memcmp(w->got.bytes, wanted->bytes, wanted->len) == 0);
    FUZZ_HOLDS(w->got.code == wanted->code);
    check_output(w);
    free(wanted);
    finish(w);
    return 0;
}
