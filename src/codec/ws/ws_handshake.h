/* ws_handshake.h - the opening handshake of WebSocket over HTTP/1.1, of both sides (RFC 6455 sections 4.1 and 4.2).
 *
 * Pure but for the random key of a client: heads and bytes in, a status or a code and a text out; no allocation. The
 * server negotiates the value of Sec-WebSocket-Extensions with ws_deflate.h. */
#ifndef LS_CODEC_WS_WS_HANDSHAKE_H
#define LS_CODEC_WS_WS_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/http1/http1_parse_response.h"
#include "codec/http_head.h"
#include "codec/ws/ws_deflate.h"

enum { LS_WS_KEY_CHARS = 24, LS_WS_ACCEPT_CHARS = 28 }; /* base64 of 16 and of 20 bytes */

typedef struct ls_ws_names { /* strings that end with a NUL */
    const char *const *names;
    unsigned count;
} ls_ws_names;

/* ---- the server ------------------------------------------------------------------------------------------------- */

typedef struct ls_ws_policy { /* of a route */
    ls_ws_names protocols;    /* subprotocols that the server supports */
    ls_ws_names origins;      /* allowed origins, each ls_ws_origin_valid; none: the origin of the server only */
    bool any_origin;          /* `origins` is not used */
} ls_ws_policy;

typedef struct ls_ws_handshake {
    char accept[LS_WS_ACCEPT_CHARS + 1]; /* the value of Sec-WebSocket-Accept; status 101 */
    const char *protocol; /* the value of Sec-WebSocket-Protocol, in the bytes of the head; NULL: no such field */
    size_t protocol_len;
    const char *why;    /* another status: what is wrong, a static text */
    const char *fields; /* another status: header lines that the response needs, "" mostly. Static text */
} ls_ws_handshake;

/* Check the request of a client. `secure`: it was received over TLS. The first of the client's subprotocols that the
 * server supports is chosen; none is no error (section 4.2.2). Returns the status of the response:
 *     101  *out has the fields
 *     400  invalid: a body, HTTP/1.0, Connection, Sec-WebSocket-Key, Sec-WebSocket-Protocol, a repeated field
 *     403  the policy does not allow the Origin. A request without Origin is allowed: it is not from a browser
 *     405  not GET
 *     426  no Upgrade to "websocket", or another version than 13
 *     501  built without SHA-1
 *
 * Same origin (RFC 6454): the host of Origin is `host`, that of the request or of a trusted proxy, and the ports are
 * equal, where a missing port is
 * the default of the Origin's scheme. Over TLS the scheme must be https. Without TLS it may be https too: a proxy in
 * front has ended TLS, because browsers do not open ws:// on such a page. */
int ls_ws_handshake_check(const ls_http_head *head, const char *bytes, bool secure, const char *host,
                          const ls_ws_policy *policy, ls_ws_handshake *out);

/* Whether it is a serialized origin: scheme "://" host [":" port], or "null". */
bool ls_ws_origin_valid(const char *origin, size_t len);

/* ---- the client ------------------------------------------------------------------------------------------------- */

enum { LS_WS_WHY_BYTES = 160, LS_WS_PHRASE_BYTES_MAX = 60 /* of a reason phrase in a message */ };

typedef struct ls_ws_request {
    const char *host;                     /* the value of Host */
    const char *target;                   /* the path with the query */
    ls_ws_names protocols;                /* tokens; in order of preference */
    const ls_ws_deflate_options *deflate; /* of the offer of permessage-deflate; NULL: no extension is offered */
    const char *fields;                   /* further lines "Name: value\r\n"...; NULL: none */
    char key[LS_WS_KEY_CHARS + 1];        /* of ls_ws_key */
} ls_ws_request;

/* Make a random key (section 4.1, 7.). */
void ls_ws_key(char out[LS_WS_KEY_CHARS + 1]);

/* Write the request, and a NUL if there is room. Its strings must be valid. Returns the length; if that is not below
 * `room`, the text is cut off: call again with more room, as for snprintf(3). */
size_t ls_ws_request_write(const ls_ws_request *request, char *out, size_t room);

typedef struct ls_ws_response {
    int protocol;                 /* the index of the subprotocol in the request's list; -1: none */
    bool deflated;                /* permessage-deflate was negotiated, */
    ls_ws_deflate_params deflate; /* with these parameters */
} ls_ws_response;

/* Check the response, whose head at `bytes` was read by http1_reader.h for LS_ASKED_UPGRADE. LS_OK; LS_EREFUSED:
 * another status than 101; LS_EPROTO; LS_ENOTSUP: built without SHA-1; LS_ENOMEM. After the first two, `why` receives
 * what is wrong, such as "the server answered 403 Forbidden"; else "". */
int ls_ws_response_check(const ls_http_response *head, const char *bytes, const ls_ws_request *request,
                         ls_ws_response *out, char why[LS_WS_WHY_BYTES]);

#endif
