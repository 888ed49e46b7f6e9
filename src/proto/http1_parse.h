/* http1_parse.h - the head of an HTTP/1.x request: bytes in, slices and a count out (RFC 9112, RFC 9110).
 *
 * Pure: no allocation, no socket, no clock. Everything is an offset into the bytes given, so the head can move.
 * Strict where the RFC lets a recipient choose: bare LF or CR, NUL, obs-fold, space before a colon, several Hosts,
 * several or listed or odd Content-Lengths, Transfer-Encoding with Content-Length or in HTTP/1.0 are refused. */
#ifndef LS_PROTO_HTTP1_PARSE_H
#define LS_PROTO_HTTP1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_HTTP_FIELDS_MAX = 100 }; /* room in the table; the limit in force may be lower */

typedef enum ls_http_method {
    LS_HTTP_OTHER, /* a valid token that is none of the following */
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
    uint32_t at, len; /* into the bytes that were parsed */
} ls_span;

typedef struct ls_http_field {
    ls_span name, value; /* value without surrounding white space; neither is changed */
} ls_http_field;

typedef struct ls_http_limits {
    uint32_t head_bytes_max;   /* request line + fields + the empty line; 431 past it */
    uint32_t target_bytes_max; /* 414 past it */
    uint32_t fields_max;       /* <= LS_HTTP_FIELDS_MAX; 431 past it */
} ls_http_limits;

typedef struct ls_http_head {
    ls_http_method method;
    uint8_t version_minor; /* HTTP/1.x */
    bool keep_alive;       /* what version and Connection say */
    bool chunked;          /* a body in chunks follows */
    bool has_length;
    bool expect_continue;    /* Expect: 100-continue, HTTP/1.1 only */
    bool upgrade;            /* Connection names upgrade and an Upgrade field is there */
    uint64_t content_length; /* 0 unless has_length */
    ls_span method_name;
    ls_span target;    /* as sent */
    ls_span path;      /* of the target, as sent; for "*" it is "*" */
    bool path_is_root; /* absolute form without a path: `path` is empty and means "/" */
    ls_span query;     /* after the '?', without it; empty when there is none */
    bool has_query;
    ls_span host; /* authority of an absolute-form target, else the Host field */
    uint32_t field_count;
    uint32_t bytes; /* of the whole head, skipped empty lines before it included */
    ls_http_field fields[LS_HTTP_FIELDS_MAX];
} ls_http_head;

enum { LS_HTTP_MORE = 0 };

/* Parse one request head from bytes[0..len). `seen` is how many of these bytes an earlier call, that returned
 * LS_HTTP_MORE, was already given (0 at first): only the search for the end of the head resumes there.
 * Returns the bytes of the head (> 0), LS_HTTP_MORE, or -(HTTP status): -400, -414, -417, -431, -501, -505. After an
 * error the framing is lost: answer and close. With LS_HTTP_MORE the limits hold already: a head that can only become
 * too long is refused at once. *why (may be NULL) gets a short static text for the answer and the log on an error. */
int ls_http1_parse(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *out,
                   const char **why);

/* The field `name` (any case), or NULL; with several of that name the first. */
const ls_http_field *ls_http_head_find(const ls_http_head *head, const char *bytes, const char *name, size_t len);

#endif
