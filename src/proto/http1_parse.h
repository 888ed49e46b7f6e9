/* http1_parse.h - the head of an HTTP/1.x request: bytes in, spans and a length out (RFC 9112, RFC 9110).
 *
 * Pure: no allocation, no socket, no clock. All spans are offsets into the bytes, so the head can move in memory.
 * Where the RFC leaves a choice the parser is strict. It refuses a bare LF or CR, NUL, obs-fold, space before a colon,
 * more than one Host, more than one Content-Length, a list or another invalid value as Content-Length, and
 * Transfer-Encoding with Content-Length or in HTTP/1.0. */
#ifndef LS_PROTO_HTTP1_PARSE_H
#define LS_PROTO_HTTP1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_HTTP_FIELDS_MAX = 100 }; /* the size of the table; ls_http_limits may set a lower limit */

typedef enum ls_http_method {
    LS_HTTP_OTHER, /* every other valid token */
    LS_HTTP_GET,
    LS_HTTP_HEAD,
    LS_HTTP_POST,
    LS_HTTP_PUT,
    LS_HTTP_PATCH,
    LS_HTTP_DELETE,
    LS_HTTP_OPTIONS,
    LS_HTTP_CONNECT,
    LS_HTTP_TRACE,
    LS_HTTP_METHODS
} ls_http_method;

typedef struct ls_span {
    uint32_t at, len; /* offset into the parsed bytes, and length */
} ls_span;

typedef struct ls_http_field {
    ls_span name, value; /* as sent; the value without surrounding white space */
} ls_http_field;

typedef struct ls_http_limits {
    uint32_t head_bytes_max;   /* request line + fields + empty line; a longer head is a 431 */
    uint32_t target_bytes_max; /* a longer target is a 414 */
    uint32_t fields_max;       /* <= LS_HTTP_FIELDS_MAX; more fields are a 431 */
} ls_http_limits;

typedef struct ls_http_head {
    ls_http_method method;
    uint8_t version_minor; /* of HTTP/1.x: 0 or 1 */
    bool keep_alive;       /* by the version and Connection */
    bool chunked;          /* a chunked body follows */
    bool has_length;
    bool expect_continue;    /* Expect: 100-continue, HTTP/1.1 only */
    bool upgrade;            /* Connection contains upgrade, and Upgrade has a value; HTTP/1.1 only */
    uint64_t content_length; /* 0 unless has_length */
    ls_span method_name;
    ls_span target;    /* as sent */
    ls_span path;      /* of the target, as sent; "*" for the target "*" */
    bool path_is_root; /* absolute-form without a path: `path` is empty and means "/" */
    ls_span query;     /* the bytes behind the '?', or empty */
    bool has_query;
    ls_span host; /* the authority of an absolute-form target, otherwise the Host field */
    uint32_t field_count;
    uint32_t bytes; /* length of the whole head, including skipped empty lines before it */
    ls_http_field fields[LS_HTTP_FIELDS_MAX];
} ls_http_head;

enum { LS_HTTP_MORE = 0 };

/* Parse one request head from bytes[0..len). `seen` is the length that an earlier call with result LS_HTTP_MORE got (0
 * at first): only the search for the end of the head resumes there. Returns the length of the head (> 0),
 * LS_HTTP_MORE, or -(HTTP status): -400, -414, -417, -431, -501, -505. After an error the framing is lost: send an
 * error response and close. The parser refuses a head as soon as it must exceed a limit. On an error *why (unless
 * NULL) receives a short static text for the response and the log. */
int ls_http1_parse(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *out,
                   const char **why);

/* Whether an element of the field Upgrade equals `protocol`, such as "websocket"; case is ignored (RFC 9110 section
 * 7.8). The client offers it only with "Connection: upgrade" in HTTP/1.1: head->upgrade. */
bool ls_http_head_upgrades_to(const ls_http_head *head, const char *bytes, const char *protocol, size_t len);

/* Return the first field with that name, or NULL; case is ignored. */
const ls_http_field *ls_http_head_find(const ls_http_head *head, const char *bytes, const char *name, size_t len);

#endif
