/* http1_parse.h - the head of an HTTP/1.x request: bytes in, spans and a length out (RFC 9112, RFC 9110).
 *
 * Pure: no allocation, no socket, no clock. All spans are offsets into the bytes, so the head can move in memory.
 * Where the RFC leaves a choice the parser is strict. It refuses a bare LF or CR, NUL, obs-fold, space before a colon,
 * more than one Host, more than one Content-Length, a list or another invalid value as Content-Length, and
 * Transfer-Encoding with Content-Length or in HTTP/1.0. */
#ifndef LS_CODEC_HTTP1_HTTP1_PARSE_H
#define LS_CODEC_HTTP1_HTTP1_PARSE_H

#include "codec/http_head.h"

enum { LS_HTTP_MORE = 0 };

/* Parse one request head from bytes[0..len). `seen` is the length that an earlier call with result LS_HTTP_MORE got (0
 * at first): only the search for the end of the head resumes there. Returns the length of the head (> 0),
 * LS_HTTP_MORE, or -(HTTP status): -400, -414, -417, -431, -501, -505. After an error the framing is lost: send an
 * error response and close. The parser refuses a head as soon as it must exceed a limit. On an error *why (unless
 * NULL) receives a short static text for the response and the log. */
int ls_http1_parse(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *out,
                   ls_http_terms *terms, const char **why);

#endif
