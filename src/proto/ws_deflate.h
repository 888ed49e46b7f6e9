/* ws_deflate.h - permessage-deflate (RFC 7692): its negotiation, which is pure, and the compression of messages by zlib.
 *
 * Without context takeover a message is compressed alone, and the compressor belongs to the thread, so that a connection
 * needs no memory for it. That is what the server negotiates unless the site asks for context takeover, because then one
 * compressed message serves many connections. With context takeover a connection owns its compressor (up to 256 KiB) and
 * its decompressor (up to 32 KiB); a limit for all connections together decides whether a handshake gets it. */
#ifndef LS_PROTO_WS_DEFLATE_H
#define LS_PROTO_WS_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What was negotiated. Sides are named as in RFC 7692: `server_` concerns messages of the server. */
typedef struct ls_ws_deflate_params {
    bool server_takeover, client_takeover; /* context takeover */
    uint8_t server_bits, client_bits;      /* size of the window: 8 to 15 */
} ls_ws_deflate_params;

typedef struct ls_ws_deflate ls_ws_deflate; /* the compressor and decompressor of a connection or of a thread */

/* Whether this build has zlib. */
bool ls_ws_deflate_available(void);

#endif
