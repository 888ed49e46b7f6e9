/* http_head.h - the head of a request, whatever carried it: method, target and fields as spans of its bytes, so that
 * the head can move in memory. What only concerns the connection is not part of it: see
 * ls_http_terms. */
#ifndef LS_CODEC_HTTP_HEAD_H
#define LS_CODEC_HTTP_HEAD_H

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

/* What a head says about the connection. */
typedef struct ls_http_terms {
    bool keep_alive;      /* by the version and Connection */
    bool chunked;         /* a chunked body follows */
    bool expect_continue; /* Expect: 100-continue, HTTP/1.1 and later */
} ls_http_terms;

typedef struct ls_http_limits {
    uint32_t head_bytes_max;   /* request line + fields + empty line; a longer head is a 431 */
    uint32_t target_bytes_max; /* a longer target is a 414 */
    uint32_t fields_max;       /* <= LS_HTTP_FIELDS_MAX; more fields are a 431 */
} ls_http_limits;

typedef struct ls_http_head {
    ls_http_method method;
    uint8_t version; /* 10, 11 or 20 */
    bool has_body;   /* with or without a known length */
    bool has_length;
    bool lists;              /* Connection lists others than close, keep-alive and upgrade, such as names of fields */
    bool upgrade;            /* the client offers to change the protocol: Upgrade, in HTTP/1.1 with Connection */
    uint64_t content_length; /* 0 unless has_length */
    ls_span method_name;
    ls_span target;    /* as sent */
    ls_span path;      /* of the target, as sent; "*" for the target "*" */
    bool path_is_root; /* absolute-form without a path: `path` is empty and means "/" */
    ls_span query;     /* the bytes after the '?', or empty */
    bool has_query;
    ls_span host; /* the authority of an absolute-form target, otherwise the Host field */
    uint32_t field_count;
    uint32_t bytes; /* length of the whole head, including skipped empty lines before it; of one that is not text, the
                     * end of its last part */
    ls_http_field fields[LS_HTTP_FIELDS_MAX];
} ls_http_head;

/* Whether an element of the fields `name`, which are lists, equals `element`; case is ignored. A client offers an element
 * of "upgrade" only with "Connection: upgrade" in HTTP/1.1 (RFC 9110 section 7.8): head->upgrade. */
bool ls_http_head_lists(const ls_http_head *head, const char *bytes, const char *name, size_t name_len,
                        const char *element, size_t len);

/* Whether a field of that name has an effect as a trailer. false: it frames or routes the message, changes how the
 * request or the response is handled, authenticates, or describes the content (RFC 9110 section 6.5.1), which all must
 * be known before the content. Case is ignored. */
bool ls_http_is_trailer(const char *name, size_t len);

/* Return the first field with that name, or NULL; case is ignored. */
const ls_http_field *ls_http_head_find(const ls_http_head *head, const char *bytes, const char *name, size_t len);

/* The next one: *at is 0 at first, and the call advances it. */
const ls_http_field *ls_http_head_next(const ls_http_head *head, const char *bytes, const char *name, size_t len,
                                       uint32_t *at);

#endif
