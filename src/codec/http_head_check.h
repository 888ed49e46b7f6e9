/* http_head_check.h - what the parts of a request's head may be, and what they mean: target, authority, and the fields that
 * frame the message or concern the connection (RFC 9110, RFC 9112).
 *
 * The parser of HTTP/1 calls a function for each part when it has read it, so the steps of each request are here, inline. A
 * head whose parts come apart from a library is completed by ls_http_head_complete. Pure.
 *
 * Where the RFCs leave a choice:
 *   - The target may contain any visible character except '#', and bytes from 0x80. Browsers and curl send {|}^[]"<>
 *     and UTF-8 unescaped, and these characters cannot break framing. The decoder of the target checks its escapes.
 *   - A second Content-Length is refused, even with the same value.
 *   - Transfer-Encoding: exactly one "chunked" in total. Another coding before it or alone: 501. Anything after
 *     chunked, an empty element, a parameter of chunked: 400.
 *   - An empty Host is accepted only if the target needs no Host: "*", authority-form, absolute-form.
 *   - The port of an authority is 0 to 65535 or empty; IPvFuture and zone identifiers are refused.
 *   - A method longer than LS_METHOD_BYTES_MAX is a 501 (RFC 9112 3). */
#ifndef LS_CODEC_HTTP_HEAD_CHECK_H
#define LS_CODEC_HTTP_HEAD_CHECK_H

#include <string.h>

#include "base/compiler.h"
#include "codec/http_chars.h"
#include "codec/http_head.h"
#include "codec/http_text.h"

enum { LS_METHOD_BYTES_MAX = 32 };

enum { LS_HEAD_STEP_DONE = 1 }; /* the result of a step; otherwise an error, or that of the parser */

/* Complete a head that is not read as text: version, method_name, target and the fields are set, as spans of `bytes`.
 * Checks them as ls_http1_parse does and sets all else. 0; or -(HTTP status), and *why receives a short static text. */
int ls_http_head_complete(ls_http_head *head, const char *bytes, ls_http_terms *terms, const char **why);

/* ---- the steps ---------------------------------------------------------------------------------------------- */

/* Fields that were found. ls_head_end evaluates them. */
enum {
    LS_SAW_HOST = 1 << 0,
    LS_SAW_TRANSFER = 1 << 1,
    LS_SAW_CHUNKED = 1 << 2,
    LS_SAW_OTHER_CODING = 1 << 3,
    LS_SAW_CLOSE = 1 << 4,
    LS_SAW_KEEP_ALIVE = 1 << 5,
    LS_SAW_CONNECTION_UPGRADE = 1 << 6,
    LS_SAW_UPGRADE = 1 << 7,
    LS_SAW_CONTINUE = 1 << 8,
    LS_SAW_OTHER_EXPECTATION = 1 << 9,
    LS_SAW_LISTED = 1 << 10
};

typedef struct ls_head_check {
    const char *base; /* of the spans */
    ls_http_head *head;
    ls_http_terms *terms;
    const char *why; /* of an error */
    unsigned saw;
    bool needs_host;    /* origin-form: only Host gives the authority */
    bool has_authority; /* authority-form or absolute-form: head->host is set already */
    bool is_extended;   /* a CONNECT with a path (RFC 8441) */
} ls_head_check;

static inline void ls_head_begin(ls_head_check *c)
{
    c->head->has_length = false;
    c->head->content_length = 0;
    c->head->host = (ls_span){0, 0};
}

static inline int ls_head_fail(ls_head_check *c, int status, const char *why)
{
    c->why = why;
    return -status;
}

static inline ls_span ls_head_span(const ls_head_check *c, const char *from, const char *to)
{
    return (ls_span){(uint32_t)(from - c->base), (uint32_t)(to - from)};
}

static LS_INLINE ls_http_method ls_http_method_of(const char *name, size_t len)
{
    switch (len) {
    case 3:
        if (memcmp(name, "GET", 3) == 0) return LS_HTTP_GET;
        if (memcmp(name, "PUT", 3) == 0) return LS_HTTP_PUT;
        break;
    case 4:
        if (memcmp(name, "POST", 4) == 0) return LS_HTTP_POST;
        if (memcmp(name, "HEAD", 4) == 0) return LS_HTTP_HEAD;
        break;
    case 5:
        if (memcmp(name, "PATCH", 5) == 0) return LS_HTTP_PATCH;
        if (memcmp(name, "TRACE", 5) == 0) return LS_HTTP_TRACE;
        break;
    case 6:
        if (memcmp(name, "DELETE", 6) == 0) return LS_HTTP_DELETE;
        break;
    case 7:
        if (memcmp(name, "OPTIONS", 7) == 0) return LS_HTTP_OPTIONS;
        if (memcmp(name, "CONNECT", 7) == 0) return LS_HTTP_CONNECT;
        break;
    default: break;
    }
    return LS_HTTP_OTHER;
}

/* Take method and target apart: head->method_name and head->target. */
int ls_head_line(ls_head_check *c);

/* The other forms than origin-form (RFC 9112 3.2). */
int ls_head_other_form(ls_head_check *c, const char *from, const char *to);

int ls_head_bad_target(ls_head_check *c, char bad);

/* Take the target apart: its characters are valid. mark: its first '?', or NULL. */
static LS_INLINE int ls_head_target(ls_head_check *c, const char *from, const char *mark, const char *to)
{
    ls_http_head *head = c->head;
    head->target = ls_head_span(c, from, to);
    head->path_is_root = false;
    if (*from != '/' || (head->method == LS_HTTP_CONNECT && !c->is_extended)) {
        head->has_query = false;
        head->query = (ls_span){0, 0};
        return ls_head_other_form(c, from, to);
    }
    c->needs_host = true;
    head->has_query = mark != NULL;
    head->path = ls_head_span(c, from, mark != NULL ? mark : to);
    head->query = mark != NULL ? ls_head_span(c, mark + 1, to) : (ls_span){0, 0};
    return LS_HEAD_STEP_DONE;
}

/* Whether n bytes equal the word; case is ignored. `word` consists of lower-case letters, digits and '-'; the bytes
 * are token or field-value characters. For these, setting bit 5 maps no other character onto the word. */
static inline bool ls_head_spells(const char *bytes, const char *word, size_t n)
{
    const uint64_t fold = 0x2020202020202020u;
    if (n < 8) {
        unsigned differ = 0;
        for (size_t i = 0; i < n; i++) differ |= (unsigned)((bytes[i] | 0x20) ^ word[i]);
        return differ == 0;
    }
    for (size_t i = 0; i + 8 < n; i += 8)
        if ((ls_load8(bytes + i) | fold) != ls_load8(word + i)) return false;
    return (ls_load8(bytes + (n - 8)) | fold) == ls_load8(word + (n - 8));
}

void ls_head_connection_field(ls_head_check *c, const char *at, const char *end);
int ls_head_transfer_field(ls_head_check *c, const char *at, const char *end);
int ls_head_host_field(ls_head_check *c, const char *at, const char *end);

static inline int ls_head_length_field(ls_head_check *c, const char *at, const char *end)
{
    if (c->head->has_length) return ls_head_fail(c, 400, "several Content-Length fields");
    if (!ls_length_parse(at, (size_t)(end - at), &c->head->content_length))
        return ls_head_fail(c, 400, "bad Content-Length");
    c->head->has_length = true;
    return LS_HEAD_STEP_DONE;
}

/* Evaluate a field that is known here. The length of the name excludes almost all other fields. */
static LS_INLINE int ls_head_field(ls_head_check *c, const char *name, size_t name_len, const char *value,
                                   const char *value_end)
{
    switch (name_len) {
    case 4:
        if (ls_head_spells(name, "host", 4)) return ls_head_host_field(c, value, value_end);
        break;
    case 6:
        if (ls_head_spells(name, "expect", 6)) {
            bool is_continue = value_end - value == 12 && ls_head_spells(value, "100-continue", 12);
            c->saw |= is_continue ? LS_SAW_CONTINUE : LS_SAW_OTHER_EXPECTATION;
        }
        break;
    case 7:
        if (ls_head_spells(name, "upgrade", 7) && value < value_end) c->saw |= LS_SAW_UPGRADE;
        break;
    case 10:
        if (ls_head_spells(name, "connection", 10)) ls_head_connection_field(c, value, value_end);
        break;
    case 14:
        if (ls_head_spells(name, "content-length", 14)) return ls_head_length_field(c, value, value_end);
        break;
    case 17:
        if (ls_head_spells(name, "transfer-encoding", 17)) return ls_head_transfer_field(c, value, value_end);
        break;
    default: break;
    }
    return LS_HEAD_STEP_DONE;
}

/* The checks that need all fields. */
static inline int ls_head_end(ls_head_check *c)
{
    ls_http_head *head = c->head;
    const unsigned saw = c->saw, both = LS_SAW_UPGRADE | LS_SAW_CONNECTION_UPGRADE;
    const bool is_11 = head->version > 10;
    if (is_11 && !(saw & LS_SAW_HOST)) return ls_head_fail(c, 400, "no Host");
    if (saw & LS_SAW_TRANSFER) {
        if (head->has_length) return ls_head_fail(c, 400, "Transfer-Encoding with Content-Length");
        if (!is_11) return ls_head_fail(c, 400, "Transfer-Encoding in HTTP/1.0");
        if (saw & LS_SAW_OTHER_CODING) return ls_head_fail(c, 501, "unknown transfer coding");
    }
    if (is_11 && (saw & LS_SAW_OTHER_EXPECTATION)) return ls_head_fail(c, 417, "unknown expectation");
    c->terms->chunked = (saw & LS_SAW_CHUNKED) != 0;
    head->has_body = c->terms->chunked || head->content_length > 0;
    c->terms->keep_alive = !(saw & LS_SAW_CLOSE) && (is_11 || (saw & LS_SAW_KEEP_ALIVE));
    c->terms->expect_continue = is_11 && (saw & LS_SAW_CONTINUE);
    head->upgrade = is_11 && (saw & both) == both;
    head->lists = (saw & LS_SAW_LISTED) != 0;
    return LS_HEAD_STEP_DONE;
}

#endif
