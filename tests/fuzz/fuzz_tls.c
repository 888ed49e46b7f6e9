/* fuzz_tls.c - a server session of TLS for any input. The first byte of the input selects what the rest is, and the
 * size of the pieces in which it arrives:
 *   - the bytes that a new session receives;
 *   - the bytes that a session receives after a handshake with a client;
 *   - a mask, which changes what that client sends: its ClientHello, or its records.
 *
 * Properties: a failure has a reason and stays; nothing is decrypted that the client did not send; the output is
 * bounded; a session that has failed or ended holds no input; every block is released. */
#include "fuzz.h"

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "net/tls/tls.h"
#include "port/port.h"

enum { PLAIN_MAX = 1 << 16, WIRE_MAX = 1 << 18, ANSWER_MAX = 1 << 14 };
enum mode { NEW, CONNECTED, MASKED_HELLO, MASKED_RECORDS, MODES };

static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

static ls_pools *pools;
static ls_pool *pool;
static ls_tls *server_tls, *client_tls;

static void open_contexts(void)
{
    const ls_tls_options server = {.server = true, .self_signed = true, .alpn = "h2,http/1.1"};
    const ls_tls_options client = {.insecure = true, .alpn = "http/1.1"};
    char why[256];
    FUZZ_HOLDS(ls_pools_open(64 << 20, &pools) == LS_OK && ls_pool_open(pools, &pool) == LS_OK);
    ls_pool_enter(pool);
    FUZZ_HOLDS(ls_tls_open(&server, &server_tls, why, sizeof why) == LS_OK);
    FUZZ_HOLDS(ls_tls_open(&client, &client_tls, why, sizeof why) == LS_OK);
}

typedef struct side {
    ls_filter *f;
    int handshake;
    int64_t reading;
    char *wire; /* written, not yet delivered */
    size_t wire_len, plain_len;
} side;

static side open_side(ls_tls *tls)
{
    side s = {.handshake = LS_EAGAIN, .reading = LS_EAGAIN, .wire = malloc(WIRE_MAX)};
    FUZZ_HOLDS(s.wire != NULL && ls_tls_session(tls, NULL, &s.f) == LS_OK);
    return s;
}

static void close_side(side *s)
{
    s->f->type->free(s->f);
    free(s->wire);
}

static void take_out(side *s, ls_filter_out *out)
{
    FUZZ_HOLDS(out->count <= LS_FILTER_OUT_MAX);
    for (unsigned i = 0; i < out->count; i++) {
        FUZZ_HOLDS(out->slices[i].len > 0 && out->slices[i].len <= WIRE_MAX - s->wire_len);
        memcpy(s->wire + s->wire_len, out->slices[i].ptr, out->slices[i].len);
        s->wire_len += out->slices[i].len;
    }
    ls_slices_drop(out->slices, out->count);
}

static void step(side *s)
{
    if (s->handshake == LS_EAGAIN) {
        ls_filter_out out = {.pool = pool};
        s->handshake = ls_tls_handshake(s->f, &out);
        take_out(s, &out);
        FUZZ_HOLDS(s->handshake == LS_DONE || s->handshake == LS_EAGAIN || ls_tls_why(s->f)[0] != '\0');
    }
    if (s->handshake != LS_DONE) return;
    for (unsigned char room[1000];;) {
        s->reading = s->f->type->read(s->f, (char *)room, sizeof room);
        if (s->reading <= 0) break;
        for (int64_t i = 0; i < s->reading; i++)
            FUZZ_HOLDS(room[i] == (unsigned char)text[s->plain_len++ % (sizeof text - 1)]);
    }
    FUZZ_HOLDS(s->reading != LS_EPROTO || ls_tls_why(s->f)[0] != '\0');
}

/* Deliver bytes in pieces, each in a block of its own. */
static void feed(side *to, const uint8_t *bytes, size_t len, size_t piece)
{
    for (size_t at = 0; at < len; at += piece) {
        ls_block *block = ls_block_get(pool, LS_BLOCK_LARGE);
        const size_t part = len - at < piece ? len - at : piece;
        FUZZ_HOLDS(block != NULL);
        memcpy(block->data, bytes + at, part);
        to->f->type->feed(to->f, (ls_slice){block, block->data, part});
        step(to);
        FUZZ_HOLDS(!to->f->type->has_input(to->f));
    }
}

static void shake_hands(side *client, side *server)
{
    step(client);
    while (client->wire_len > 0 || server->wire_len > 0) {
        const size_t from_client = client->wire_len;
        client->wire_len = 0;
        feed(server, (uint8_t *)client->wire, from_client, LS_BLOCK_LARGE);
        const size_t from_server = server->wire_len;
        server->wire_len = 0;
        feed(client, (uint8_t *)server->wire, from_server, LS_BLOCK_LARGE);
    }
    FUZZ_HOLDS(client->handshake == LS_DONE && server->handshake == LS_DONE);
}

static void send_text(side *client)
{
    const ls_slice slice = ls_slice_static(text, sizeof text - 1);
    ls_filter_out out = {.pool = pool};
    FUZZ_HOLDS(client->f->type->write(client->f, &slice, 1, &out) == (int64_t)slice.len);
    take_out(client, &out);
}

/* What the client sends, changed by the mask. */
static void feed_masked(side *client, side *server, const uint8_t *mask, size_t len, size_t piece)
{
    for (size_t i = 0; i < len && i < client->wire_len; i++) client->wire[i] ^= (char)mask[i];
    feed(server, (uint8_t *)client->wire, client->wire_len, piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 7, 100, LS_BLOCK_LARGE};
    if (pools == NULL) open_contexts();
    if (size == 0) return 0;
    const enum mode mode = data[0] % MODES;
    const size_t piece = pieces[data[0] / MODES % 4];
    side server = open_side(server_tls), client = open_side(client_tls);
    data++;
    size--;
    if (mode == CONNECTED || mode == MASKED_RECORDS) shake_hands(&client, &server);
    if (mode == NEW || mode == CONNECTED) {
        feed(&server, data, size, piece);
        FUZZ_HOLDS(server.plain_len == 0);
    } else if (mode == MASKED_HELLO) {
        step(&client);
        feed_masked(&client, &server, data, size, piece);
    } else {
        for (int i = 0; i < 3; i++) send_text(&client);
        feed_masked(&client, &server, data, size, piece);
        FUZZ_HOLDS(server.plain_len <= 3 * (sizeof text - 1));
    }
    server.f->type->feed_end(server.f);
    step(&server);
    FUZZ_HOLDS(server.handshake != LS_EAGAIN); /* the end is an end in every state */
    FUZZ_HOLDS(server.handshake != LS_DONE || server.reading != LS_EAGAIN);
    ls_filter_out out = {.pool = pool};
    (void)server.f->type->end(server.f, &out);
    take_out(&server, &out);
    FUZZ_HOLDS(server.wire_len <= ANSWER_MAX);
    close_side(&server);
    close_side(&client);
    ls_pools_stats stats;
    ls_pools_stat(pools, &stats);
    FUZZ_HOLDS(stats.blocks_live == 0);
    return 0;
}
