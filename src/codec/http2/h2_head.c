/* h2_head.c - see h2_head.h.
 *
 * A field is an error of the stream (LS_H2_HEAD_MALFORMED) if RFC 9113 says so of HTTP/2 alone: a client that makes such a
 * message does not speak HTTP/2. What is invalid in HTTP/1 as well has the status that it has there. */
#include "codec/http2/h2_head.h"

#include "base/err.h"
#include "codec/http_head_check.h"
#include "codec/http_text.h"

enum {
    SAW_METHOD = 1 << 0,
    SAW_SCHEME = 1 << 1,
    SAW_PATH = 1 << 2,
    SAW_AUTHORITY = 1 << 3,
    SAW_PROTOCOL = 1 << 4,
    SAW_REGULAR = 1 << 5
};

enum { FIELD_OVERHEAD = 32 }; /* RFC 9113 6.5.2 */

#define IS(text, bytes, len) ((len) == sizeof(text) - 1 && memcmp(bytes, text, sizeof(text) - 1) == 0)

static int fail(ls_h2_head *h, int result, const char *why)
{
    h->why = why;
    return h->result = result;
}

static int malformed(ls_h2_head *h, const char *why)
{
    return fail(h, LS_H2_HEAD_MALFORMED, why);
}

static ls_span copy(ls_h2_head *h, const char *bytes, size_t len)
{
    const ls_span span = {(uint32_t)h->used, (uint32_t)len};
    if (len > 0) memcpy(h->bytes + h->used, bytes, len);
    h->used += len;
    return span;
}

static int add_field(ls_h2_head *h, const char *name, size_t name_len, const char *value, size_t value_len)
{
    ls_http_head *head = h->head;
    if (head->field_count >= h->limits->fields_max || head->field_count >= LS_HTTP_FIELDS_MAX)
        return fail(h, -431, "too many fields");
    ls_http_field *field = &head->fields[head->field_count++];
    field->name = copy(h, name, name_len);
    field->value = copy(h, value, value_len);
    return LS_OK;
}

static bool is_scheme(const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!ls_char_is(at[i], LS_CHAR_HOST) && at[i] != '+') return false;
    return len > 0;
}

static int add_pseudo(ls_h2_head *h, const char *name, size_t name_len, const char *value, size_t value_len)
{
    const unsigned which = IS(":method", name, name_len)      ? SAW_METHOD
                           : IS(":scheme", name, name_len)    ? SAW_SCHEME
                           : IS(":path", name, name_len)      ? SAW_PATH
                           : IS(":authority", name, name_len) ? SAW_AUTHORITY
                           : IS(":protocol", name, name_len)  ? SAW_PROTOCOL
                                                              : 0;
    if (which == 0) return malformed(h, "unknown pseudo-header field");
    if (h->seen & SAW_REGULAR) return malformed(h, "pseudo-header field after a field");
    if (h->seen & which) return malformed(h, "repeated pseudo-header field");
    h->seen |= which;
    switch (which) {
    case SAW_METHOD: h->head->method_name = copy(h, value, value_len); return LS_OK;
    case SAW_SCHEME: return is_scheme(value, value_len) ? LS_OK : malformed(h, "bad :scheme");
    case SAW_PATH:
        if (value_len > h->limits->target_bytes_max) return fail(h, -414, "request target too long");
        h->head->target = copy(h, value, value_len);
        return LS_OK;
    case SAW_AUTHORITY:
        return add_field(h, "host", 4, value, value_len); /* before all regular fields: fields[0] or [1] */
    default:
        if (!ls_is_token(value, value_len)) return malformed(h, "bad :protocol");
        h->extended = true;
        h->get =
            copy(h, "GET", 3); /* with "upgrade" not longer than ":protocol" and what ls_h2_head_add has reserved */
        return add_field(h, "upgrade", 7, value, value_len);
    }
}

/* The first field of that name, or NULL. */
static const ls_http_field *find(const ls_h2_head *h, const char *name, size_t len)
{
    return ls_http_head_find(h->head, h->bytes, name, len);
}

bool ls_h2_field_valid(const char *name, size_t name_len, const char *value, size_t value_len)
{
    const char *const end = value + value_len;
    for (size_t i = 0; i < name_len; i++)
        if (!ls_char_is(name[i], LS_CHAR_LOWER)) return false;
    if (name_len == 0 || ls_char_skip_value(value, end) != end) return false;
    if (value_len > 0 && ((unsigned char)value[0] <= ' ' || (unsigned char)end[-1] <= ' ')) return false;
    switch (name_len) {
    case 2: return !IS("te", name, 2) || ls_text_same(value, value_len, "trailers", 8);
    case 7: return !IS("upgrade", name, 7);
    case 10: return !IS("connection", name, 10) && !IS("keep-alive", name, 10);
    case 16: return !IS("proxy-connection", name, 16);
    case 17: return !IS("transfer-encoding", name, 17);
    default: return true;
    }
}

void ls_h2_head_begin(ls_h2_head *h, ls_http_head *head, char *bytes, size_t capacity, const ls_http_limits *limits)
{
    *h = (ls_h2_head){.bytes = bytes, .capacity = capacity, .head = head, .limits = limits};
    memset(head, 0, offsetof(ls_http_head, fields)); /* it may fail before it has all of them */
}

int ls_h2_head_add(ls_h2_head *h, const char *name, size_t name_len, const char *value, size_t value_len)
{
    ls_http_head *head = h->head;
    const bool is_cookie = IS("cookie", name, name_len);
    const bool joins = is_cookie && h->cookie > 0 && h->cookie == head->field_count; /* the previous field is one */
    size_t needed = name_len + value_len + 2;
    if (h->result == LS_OK && h->list_bytes + name_len + value_len + FIELD_OVERHEAD <= h->limits->head_bytes_max) {
        if (h->cookies + (is_cookie && !joins) > 1) needed += h->cookie_bytes + value_len + 2; /* joined at the end */
        if (h->capacity - h->used < needed) return LS_H2_HEAD_FULL;
    }
    h->list_bytes += name_len + value_len + FIELD_OVERHEAD;
    if (h->result < 0) return h->result;
    if (h->list_bytes > h->limits->head_bytes_max) return fail(h, -431, "request head too large");
    if (name_len > 0 && name[0] == ':') return add_pseudo(h, name, name_len, value, value_len);

    if (!ls_h2_field_valid(name, name_len, value, value_len)) return malformed(h, "invalid field");
    h->seen |= SAW_REGULAR;
    if ((h->seen & SAW_AUTHORITY) && IS("host", name, name_len)) {
        const ls_span host = find(h, "host", 4)->value;
        if (!ls_text_same(value, value_len, h->bytes + host.at, host.len))
            return fail(h, -400, "Host differs from :authority");
        return LS_OK;
    }
    if (is_cookie) h->cookie_bytes += value_len + 2;
    if (joins) {
        (void)copy(h, "; ", 2);
        head->fields[h->cookie - 1].value.len += 2 + copy(h, value, value_len).len;
        return LS_OK;
    }
    const int result = add_field(h, name, name_len, value, value_len);
    if (is_cookie && result == LS_OK) h->cookie = head->field_count, h->cookies++;
    return result;
}

/* Make the fields "cookie" one, the first. ls_h2_head_add has left room. */
static void join_cookies(ls_h2_head *h)
{
    ls_http_head *head = h->head;
    ls_http_field *first = NULL;
    uint32_t count = 0;
    for (uint32_t n = 0; n < head->field_count; n++) {
        const ls_http_field field = head->fields[n];
        if (!IS("cookie", h->bytes + field.name.at, field.name.len)) {
            head->fields[count++] = field;
        } else if (first == NULL) {
            first = &head->fields[count++];
            *first = (ls_http_field){field.name, copy(h, h->bytes + field.value.at, field.value.len)};
        } else {
            first->value.len += copy(h, "; ", 2).len + copy(h, h->bytes + field.value.at, field.value.len).len;
        }
    }
    head->field_count = count;
}

/* The pseudo-header fields that a request must have, and those that it must not have (RFC 9113 8.3.1, 8.5, RFC 8441 4). */
static int check_pseudo(ls_h2_head *h)
{
    ls_http_head *head = h->head;
    const unsigned target = SAW_SCHEME | SAW_PATH;
    if (!(h->seen & SAW_METHOD)) return malformed(h, "no :method");
    const bool is_connect = IS("CONNECT", h->bytes + head->method_name.at, head->method_name.len);
    if (is_connect && !(h->seen & SAW_PROTOCOL)) {
        if (h->seen & target) return malformed(h, "CONNECT with :scheme or :path");
        if (!(h->seen & SAW_AUTHORITY)) return malformed(h, "CONNECT without :authority");
        head->target = find(h, "host", 4)->value;
        return LS_OK;
    }
    if (h->seen & SAW_PROTOCOL && !is_connect) return malformed(h, ":protocol without CONNECT");
    if ((h->seen & target) != target) return malformed(h, "no :scheme or no :path");
    const char *const path = h->bytes + head->target.at;
    if (head->target.len == 0 || (*path != '/' && !(IS("*", path, head->target.len) && !is_connect)))
        return malformed(h, "bad :path");
    return LS_OK;
}

static void become_get(ls_h2_head *h)
{
    ls_http_head *head = h->head;
    if (!ls_http_head_lists(head, h->bytes, "upgrade", 7, "websocket", 9)) (void)fail(h, -501, NULL);
    head->method = LS_HTTP_GET;
    head->method_name = h->get;
}

int ls_h2_head_end(ls_h2_head *h, const char **why)
{
    ls_http_head *head = h->head;
    ls_head_check c = {.base = h->bytes, .head = head, .terms = &(ls_http_terms){0}};
    if (h->result == LS_OK && check_pseudo(h) == LS_OK) {
        if (h->cookies > 1) join_cookies(h);
        if (h->extended) c.is_extended = true, c.saw = LS_SAW_CONNECTION_UPGRADE;
        head->version = 20;
        head->bytes = (uint32_t)h->used;
        ls_head_begin(&c);
        int step = ls_head_line(&c);
        for (uint32_t n = 0; step > 0 && n < head->field_count; n++) {
            const ls_http_field *field = &head->fields[n];
            const char *const value = h->bytes + field->value.at;
            step = ls_head_field(&c, h->bytes + field->name.at, field->name.len, value, value + field->value.len);
        }
        if (step > 0) step = ls_head_end(&c);
        if (step < 0) (void)fail(h, step, c.why);
        if (step >= 0 && h->extended) become_get(h);
        h->expect_continue = c.terms->expect_continue;
    }
    if (h->result < 0) *why = h->why;
    return h->result;
}
