/* http1_parse_response.h - the head of an HTTP/1.x response, for clients: bytes in, framing and a length out (RFC
 * 9112, RFC 9110).
 *
 * Pure: no allocation, no socket, no clock. The parser refuses input that could confuse a client: a bare LF or CR,
 * NUL, obs-fold, space before a colon, more than one Content-Length or an invalid one, Transfer-Encoding with
 * Content-Length or in HTTP/1.0, and codings other than chunked. It accepts a status line without the space before an
 * empty reason phrase, which many servers send; and reads HTTP/1.2 and later as HTTP/1.1 (RFC 9110 section 2.5). */
#ifndef LS_CODEC_HTTP1_HTTP1_PARSE_RESPONSE_H
#define LS_CODEC_HTTP1_HTTP1_PARSE_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/coding/http_coding.h"
#include "codec/http_text.h"

enum { LS_RESPONSE_FIELDS_MAX = 256 };

enum ls_framing {
    LS_FRAMING_NONE,    /* no body: response to HEAD, 1xx, 204, 304, or Content-Length: 0 */
    LS_FRAMING_LENGTH,  /* `length` bytes */
    LS_FRAMING_CHUNKED, /* for the decoder of codec/http1/http1_chunk.h */
    LS_FRAMING_TO_END   /* the body ends with the connection */
};

typedef struct ls_http_response {
    uint16_t status; /* 100 to 999 */
    uint8_t version_minor;
    uint8_t framing; /* enum ls_framing */
    int8_t coding;   /* enum ls_coding: the one name in Content-Encoding; -1: none, another, or several */
    bool keep_alive; /* another request may follow on this connection (RFC 9112 section 9.3) */
    bool has_length; /* it has a Content-Length */
    bool lists;      /* Connection lists others than close and keep-alive, such as names of fields */
    uint32_t bytes;  /* length of the head, including its empty line */
    uint64_t length; /* of the body, for has_length */
} ls_http_response;

/* Parse one response head from bytes[0..len). `seen` is the length that an earlier call with result 0 got (0 at
 * first). `to_head`: the request was HEAD. Returns the length of the head (> 0); 0: the head is incomplete; or
 * LS_EPROTO, and *why (unless NULL) receives a short static text. The parser refuses a head as soon as it must exceed
 * bytes_max or LS_RESPONSE_FIELDS_MAX fields. */
int ls_http1_parse_response(const char *bytes, size_t len, size_t seen, size_t bytes_max, bool to_head,
                            ls_http_response *out, const char **why);

/* Replace each line break within a field of the head by spaces (obs-fold): so a user agent reads it (RFC 9112 section
 * 5.2). bytes[0..len) begins with the head. Whether there was one. */
bool ls_http1_unfold(char *bytes, size_t len);

/* Get the next field of a successfully parsed head. *at is 0 at first; the call advances it. False: no more fields. */
bool ls_http1_response_field(const char *bytes, const ls_http_response *head, size_t *at, ls_pair *out);

#endif
