/* ws_deflate.h - permessage-deflate (RFC 7692): its negotiation, which is pure, and the compression of messages by
 * zlib.
 *
 * Without context takeover each message is compressed alone. The compressors and decompressors for that belong to the
 * server's store, which keeps a few; a connection borrows one for the time of a call and holds none. That is what the
 * server negotiates unless the site asks for context takeover, and then one compressed message serves many
 * connections. With context takeover a connection owns a compressor (up to 262 KiB) and a decompressor (up to 40 KiB).
 * The store limits the memory of all of them together: a handshake that would exceed it gets no context takeover.
 *
 * A message is inflated when all its frames have arrived: a connection whose message is not complete holds compressed
 * bytes only.
 *
 * Threads: a store and ls_ws_deflate_end: any. Other calls with an ls_ws_deflate: one at a time. */
#ifndef LS_CODEC_WS_WS_DEFLATE_H
#define LS_CODEC_WS_WS_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slices.h"

enum {
    LS_WS_DEFLATE_TEXT_MAX = 160,                /* bytes of an offer or response that this file writes */
    LS_WS_DEFLATE_BITS_MIN = 9,                  /* zlib has no smaller window */
    LS_WS_DEFLATE_BITS_MAX = 15,                 /* 32 KiB */
    LS_WS_DEFLATE_BYTES_MIN = 256,               /* shorter messages are not compressed; a default */
    LS_WS_DEFLATE_TAKEOVER_BYTES_MAX = 67108864, /* of all connections with context takeover; a default */
    LS_WS_INFLATE_FREE_BYTES = 1048576,          /* a message may inflate to this size in any case ... */
    LS_WS_INFLATE_RATIO_MAX = 100                /* ... and past it to this many times its compressed size */
};

typedef struct ls_ws_deflate_options { /* what a site or a client wants */
    bool takeover;                     /* context takeover in both directions */
    uint8_t server_bits, client_bits;  /* largest window: LS_WS_DEFLATE_BITS_MIN to LS_WS_DEFLATE_BITS_MAX */
    uint32_t bytes_min;                /* shorter messages are sent uncompressed */
} ls_ws_deflate_options;

#define LS_WS_DEFLATE_OPTIONS                                                         \
    {                                                                                 \
        .server_bits = LS_WS_DEFLATE_BITS_MAX, .client_bits = LS_WS_DEFLATE_BITS_MAX, \
        .bytes_min = LS_WS_DEFLATE_BYTES_MIN                                          \
    }

/* What was negotiated. Sides are named as in RFC 7692: `server_` concerns messages of the server. */
typedef struct ls_ws_deflate_params {
    bool server_takeover, client_takeover; /* context takeover */
    uint8_t server_bits, client_bits;      /* size of the window: 8 to 15 */
} ls_ws_deflate_params;

/* ---- negotiation: pure --------------------------------------------------------------------------------------- */

/* Choose the first acceptable offer of permessage-deflate in a Sec-WebSocket-Extensions value (RFC 7692 section 5.1;
 * several field lines: call once for each until one has an acceptable offer). An offer with an unknown, repeated or
 * invalid parameter, or with a window that zlib lacks, is declined. LS_OK: `text` receives the value of the response,
 * *len its length; LS_ENOENT: no acceptable offer; LS_EPROTO: the value breaks the grammar of RFC 6455 section 9.1. */
int ls_ws_deflate_accept(const char *offers, size_t offers_len, const ls_ws_deflate_options *options,
                         ls_ws_deflate_params *out, char text[LS_WS_DEFLATE_TEXT_MAX], size_t *len);

/* Write the offer of a client; returns its length. */
size_t ls_ws_deflate_offer(const ls_ws_deflate_options *options, char text[LS_WS_DEFLATE_TEXT_MAX]);

/* Check the response to that offer. LS_OK; LS_ENOENT: the value names no extension; LS_EPROTO: it names one that was
 * not offered, or has a parameter that does not answer the offer: *why receives a static text. */
int ls_ws_deflate_check(const char *response, size_t len, const ls_ws_deflate_options *options,
                        ls_ws_deflate_params *out, const char **why);

/* ---- the store of a server ------------------------------------------------------------------------------------ */

typedef struct ls_ws_deflate_store ls_ws_deflate_store;

/* Whether this build has zlib; its version, or NULL. Without it a store is NULL, and nothing is negotiated. */
const char *ls_ws_deflate_library(void);

/* A store without any compressor. LS_OK or LS_ENOMEM. Close: no connection uses it. */
int ls_ws_deflate_store_open(uint64_t takeover_bytes_max, ls_ws_deflate_store **out);
void ls_ws_deflate_store_close(ls_ws_deflate_store *store);           /* accepts NULL */
uint64_t ls_ws_deflate_store_bytes(const ls_ws_deflate_store *store); /* reserved for context takeover */

/* ---- a connection ---------------------------------------------------------------------------------------------- */

/* The compression of a connection; may be moved with its struct. Zeroes: not negotiated. */
typedef struct ls_ws_deflate {
    ls_ws_deflate_store *store;
    struct ls_ws_takeover *takeover; /* NULL: none in either direction */
    uint32_t bytes_min;
    uint8_t send_bits, receive_bits;
    bool send_takeover, receive_takeover;
} ls_ws_deflate;

static inline bool ls_ws_deflate_active(const ls_ws_deflate *d)
{
    return d->store != NULL;
}

/* Whether a message that was compressed without context takeover and with the largest window, for many connections,
 * may be sent on this one. */
static inline bool ls_ws_deflate_shares(const ls_ws_deflate *d)
{
    return d->store != NULL && !d->send_takeover && d->send_bits == LS_WS_DEFLATE_BITS_MAX;
}

/* Prepare what was negotiated, and reserve the memory of context takeover. LS_OK; LS_ELIMIT: the limit of the store is
 * reached; LS_ENOMEM. */
int ls_ws_deflate_begin(ls_ws_deflate_store *store, const ls_ws_deflate_params *params, uint32_t bytes_min,
                        bool client, ls_ws_deflate *out);
/* Free its memory: not negotiated. Again: no effect. */
void ls_ws_deflate_end(ls_ws_deflate *d);

/* The handshake of a server: ls_ws_deflate_accept, then ls_ws_deflate_begin; without context takeover when the limit
 * of the store is reached. LS_OK, LS_ENOENT (also if `store` is NULL), LS_EPROTO, LS_ENOMEM. */
int ls_ws_deflate_negotiate(ls_ws_deflate_store *store, const char *offers, size_t offers_len,
                            const ls_ws_deflate_options *options, ls_ws_deflate *out,
                            char text[LS_WS_DEFLATE_TEXT_MAX], size_t *len);

/* Compress a message, whose slices it does not take. `out`, an empty list, receives pool blocks without the last
 * 00 00 ff ff; the first slice has `room` (at most 64) free bytes of its block in front, for the head of a frame.
 * LS_OK; LS_EAGAIN: send it uncompressed, because it is shorter than bytes_min, does not become shorter (without
 * context takeover), or becomes so short that a receiver with the limits of LS_WS_INFLATE_* refuses it; LS_ENOMEM:
 * with context takeover the connection cannot continue. On an error `out` is empty. */
int ls_ws_deflate_message(ls_pool *pool, ls_ws_deflate *d, const ls_slice *slices, unsigned count, size_t room,
                          ls_slices *out);

/* The same for many connections: ls_ws_deflate_shares. */
int ls_ws_deflate_shared(ls_pool *pool, ls_ws_deflate_store *store, uint32_t bytes_min, const ls_slice *slices,
                         unsigned count, size_t room, ls_slices *out);

/* Inflate a message from the payloads of all its frames; takes the slices and drops each as soon as it is inflated.
 * `out`, an empty list, receives pool blocks: one if the message has at most LS_BLOCK_LARGE bytes. LS_OK; LS_EMSGSIZE:
 * longer than `bytes_max`, or past LS_WS_INFLATE_FREE_BYTES longer than LS_WS_INFLATE_RATIO_MAX times its compressed
 * size; LS_EPROTO: not valid DEFLATE data; LS_ENOMEM. On an error `out` is empty and the connection cannot
 * continue. */
int ls_ws_inflate_message(ls_pool *pool, ls_ws_deflate *d, ls_slice *slices, unsigned count, uint64_t bytes_max,
                          ls_slices *out);

/* The compressed bytes that a message of at most `bytes_max` bytes may have: more than any compressor makes of it. */
static inline uint64_t ls_ws_deflate_bound(uint64_t bytes_max)
{
    return bytes_max > UINT64_MAX / 2 ? bytes_max : bytes_max + bytes_max / 16 + 64;
}

#endif
