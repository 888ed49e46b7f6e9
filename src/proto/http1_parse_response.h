/* http1_parse_response.h - the head of an HTTP/1.x response, for clients: bytes in, framing and a count out (RFC 9112, 9110).
 *
 * Pure: no allocation, no socket, no clock. Strict where a client could be led astray: bare LF or CR, NUL, obs-fold, space
 * before a colon, several or odd Content-Lengths, Transfer-Encoding with Content-Length or in HTTP/1.0, and codings other
 * than chunked are refused. A status line without the space before an empty reason is accepted: many servers send it. */
#ifndef LS_PROTO_HTTP1_PARSE_RESPONSE_H
#define LS_PROTO_HTTP1_PARSE_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/http_text.h"

enum { LS_RESPONSE_FIELDS_MAX = 256 };

enum ls_framing {
    LS_FRAMING_NONE,    /* no body: to HEAD, 1xx, 204, 304; or Content-Length: 0 */
    LS_FRAMING_LENGTH,  /* `length` bytes */
    LS_FRAMING_CHUNKED, /* proto/http1_chunk.h reads it */
    LS_FRAMING_TO_END   /* until the connection ends */
};

typedef struct ls_http_response {
    uint16_t status; /* 100 to 999 */
    uint8_t version_minor;
    uint8_t framing; /* enum ls_framing */
    bool keep_alive; /* another request may follow on this connection (RFC 9112 section 9.3) */
    uint32_t bytes;  /* of the head, its empty line included */
    uint64_t length; /* of the body, with LS_FRAMING_LENGTH */
} ls_http_response;

/* Parse one head from bytes[0..len). `seen` is how many of these bytes an earlier call, that returned 0, was already given
 * (0 at first). `to_head`: it answers a HEAD request. Returns the bytes of the head (> 0), 0: there must be more, or
 * LS_EPROTO with *why (may be NULL) set to a short static text. A head longer than bytes_max, or with more than
 * LS_RESPONSE_FIELDS_MAX fields, is refused as soon as it cannot be shorter any more. */
int ls_http1_parse_response(const char *bytes, size_t len, size_t seen, size_t bytes_max, bool to_head,
                            ls_http_response *out, const char **why);

/* The next field of a head that was parsed well; *at is 0 at first and moves on. False: there are no more. */
bool ls_http1_response_field(const char *bytes, const ls_http_response *head, size_t *at, ls_pair *out);

#endif
