/* h2_head.h - the fields of a request in HTTP/2, one after the other, to the head of a request (RFC 9113 section 8).
 *
 * Handlers see the same as of HTTP/1: `:authority` is the field "host", an extended CONNECT for a WebSocket (RFC 8441) a GET, its
 * `:protocol` the field "upgrade", and the fields "cookie" are one (RFC 9113 section 8.2.3). The target, the authority and the fields that frame
 * the message are checked by http_head_check.h, as for HTTP/1.
 *
 * Pure: the bytes are the caller's. Each is copied once; if fields "cookie" are not neighbours, their values once more. */
#ifndef LS_CODEC_HTTP2_H2_HEAD_H
#define LS_CODEC_HTTP2_H2_HEAD_H

#include "codec/http_head.h"

enum {
    LS_H2_HEAD_MALFORMED = -1, /* a stream error PROTOCOL_ERROR (RFC 9113 section 8.1.1) */
    LS_H2_HEAD_FULL = 1
};

typedef struct ls_h2_head {
    char *bytes;           /* of the spans of `head` */
    size_t capacity, used; /* of the bytes */
    size_t list_bytes;     /* of all fields so far, as SETTINGS_MAX_HEADER_LIST_SIZE counts them (RFC 9113 6.5.2) */
    bool expect_continue;  /* set by ls_h2_head_end */
    bool extended;         /* an extended CONNECT; set by ls_h2_head_add */
    ls_http_head *head;    /* these are private */
    const ls_http_limits *limits;
    const char *why;
    int result;
    unsigned seen;
    ls_span get;              /* "GET", if it is extended */
    uint32_t cookie, cookies; /* one more than the place of the last field "cookie"; the number of them */
    size_t cookie_bytes;
} ls_h2_head;

/* Begin a head in bytes[0..capacity). `limits` is read until ls_h2_head_end; head_bytes_max is that of list_bytes. */
void ls_h2_head_begin(ls_h2_head *h, ls_http_head *head, char *bytes, size_t capacity, const ls_http_limits *limits);

/* Add a field, also of a head that has failed, for its list_bytes. LS_OK; LS_H2_HEAD_FULL: nothing was changed; replace h->bytes by a
 * larger copy, set h->capacity, and call again (2 * head_bytes_max are enough for every head); LS_H2_HEAD_MALFORMED, or -(HTTP
 * status), and every further call returns the same. */
int ls_h2_head_add(ls_h2_head *h, const char *name, size_t name_len, const char *value, size_t value_len);

/* The end of the fields: sets all of the head. LS_OK; LS_H2_HEAD_MALFORMED or -(HTTP status), and *why receives a short static
 * text. has_body is that of Content-Length: whether a body follows is known by END_STREAM, and for the caller to set. */
int ls_h2_head_end(ls_h2_head *h, const char **why);

/* Whether a message may have this field, among its fields or as a trailer. Pseudo-header fields are none of these, nor are those
 * of HTTP/1 that concern the connection. */
bool ls_h2_field_valid(const char *name, size_t name_len, const char *value, size_t value_len);

#endif
