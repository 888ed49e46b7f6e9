/* http1_parse.c - the head of a request, in one pass from left to right.
 *
 * Every step reads bytes in order and refuses the first byte that a valid head cannot have there. At the end of the
 * bytes the result is LS_HTTP_MORE. A prefix therefore has one of three results: the head of the whole, LS_HTTP_MORE,
 * or the error of the whole. Errors that need the whole head (no Host, Transfer-Encoding with Content-Length) are
 * found at its end: framing errors (400) before unsupported features (501, 417).
 *
 * Resuming. A partial head is parsed again from its start, but only if the new bytes can change the result: they end
 * or begin a line, belong to the method, or reach a limit. That is at most twice per line, and the number of lines is
 * limited.
 *
 * Where the RFCs leave a choice:
 *   - A few empty lines before the request line are skipped (RFC 9112 2.2); more are refused.
 *   - HTTP/1.2 to 1.9 are handled as 1.1 (RFC 9110 2.5). Other major versions: 505. HTTP/1.11, http/1.1, no version:
 *     400.
 *   - The target may contain any visible character except '#', and bytes from 0x80. Browsers and curl send {|}^[]"<>
 *     and UTF-8 unescaped, and these characters cannot break framing. The decoder of the target checks its escapes.
 *   - A second Content-Length is refused, even with the same value.
 *   - Transfer-Encoding: exactly one "chunked" in total. Another coding before it or alone: 501. Anything after
 *     chunked, an empty element, a parameter of chunked: 400.
 *   - An empty Host is accepted only if the target needs no Host: "*", authority-form, absolute-form.
 *   - The port of an authority is 0 to 65535 or empty; IPvFuture and zone identifiers are refused.
 *   - A method longer than METHOD_BYTES_MAX is a 501 (RFC 9112 3). */
#include "codec/http1/http1_parse.h"

#include <string.h>

#include "base/compiler.h"
#include "codec/http_chars.h"
#include "codec/http_text.h"

enum { METHOD_BYTES_MAX = 32, EMPTY_LINES_MAX = 4 };

enum { STEP_DONE = 1 }; /* the result of a step; otherwise LS_HTTP_MORE or an error */

/* Fields that were found. check_fields evaluates them at the end of the head. */
enum {
    SAW_HOST = 1 << 0,
    SAW_TRANSFER = 1 << 1,
    SAW_CHUNKED = 1 << 2,
    SAW_OTHER_CODING = 1 << 3,
    SAW_CLOSE = 1 << 4,
    SAW_KEEP_ALIVE = 1 << 5,
    SAW_CONNECTION_UPGRADE = 1 << 6,
    SAW_UPGRADE = 1 << 7,
    SAW_CONTINUE = 1 << 8,
    SAW_OTHER_EXPECTATION = 1 << 9,
    SAW_LISTED = 1 << 10
};

typedef struct parse {
    const char *base, *at, *end;
    const ls_http_limits *limits;
    ls_http_head *head;
    ls_http1_terms *terms;
    const char *why;
    unsigned saw;
    bool needs_host;    /* origin-form: only Host gives the authority */
    bool has_authority; /* authority-form or absolute-form: head->host is set already */
} parse;

static int fail(parse *p, int status, const char *why)
{
    p->why = why;
    return -status;
}

static inline ls_span span_of(const parse *p, const char *from, const char *to)
{
    return (ls_span){(uint32_t)(from - p->base), (uint32_t)(to - from)};
}

static inline uint64_t load8(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Whether n bytes equal the word; case is ignored. `word` consists of lower-case letters, digits and '-'; the bytes
 * are token or field-value characters. For these, setting bit 5 maps no other character onto the word. */
static inline bool spells(const char *bytes, const char *word, size_t n)
{
    const uint64_t fold = 0x2020202020202020u;
    if (n < 8) {
        unsigned differ = 0;
        for (size_t i = 0; i < n; i++) differ |= (unsigned)((bytes[i] | 0x20) ^ word[i]);
        return differ == 0;
    }
    for (size_t i = 0; i + 8 < n; i += 8)
        if ((load8(bytes + i) | fold) != load8(word + i)) return false;
    return (load8(bytes + (n - 8)) | fold) == load8(word + (n - 8));
}

/* ---- targets and authorities -------------------------------------------------------------------------------- */

static bool valid_ip4(const char *at, const char *end)
{
    for (int part = 0; part < 4; part++) {
        unsigned value = 0, digits = 0;
        if (part > 0 && (at == end || *at++ != '.')) return false;
        while (at < end && ls_char_digit(*at) && digits < 3) value = value * 10 + (unsigned)(*at++ - '0'), digits++;
        if (digits == 0 || value > 255) return false;
    }
    return at == end;
}

/* IPv6address (RFC 3986 3.2.2): eight groups. One run of groups may be "::", the last two may be an IPv4 address. */
static bool valid_ip6(const char *at, const char *end)
{
    unsigned groups = 0;
    bool gap = false;
    if (end - at >= 2 && at[0] == ':' && at[1] == ':') {
        gap = true;
        at += 2;
    }
    while (at < end) {
        const char *group = at;
        while (at < end && at - group < 4 && ls_char_is(*at, LS_CHAR_HEX)) at++;
        if (at == group) return false;
        if (at < end && *at == '.') return valid_ip4(group, end) && (gap ? groups + 2 <= 7 : groups + 2 == 8);
        groups++;
        if (at == end) break;
        if (*at++ != ':' || at == end) return false;
        if (*at == ':') {
            if (gap) return false;
            gap = true;
            at++;
        }
    }
    return gap ? groups <= 7 : groups == 8;
}

static bool valid_port(const char *at, const char *end)
{
    unsigned value = 0;
    for (; at < end; at++) {
        if (!ls_char_digit(*at)) return false;
        value = value * 10 + (unsigned)(*at - '0');
        if (value > 65535) return false;
    }
    return true;
}

/* uri-host [":" port] with a non-empty host (RFC 9110 7.2). *port receives the address of the digits, or NULL without
 * a colon. */
static bool valid_authority(const char *at, const char *end, const char **port)
{
    const char *host = at;
    *port = NULL;
    if (at < end && *at == '[') {
        const char *close = memchr(at, ']', (size_t)(end - at));
        if (close == NULL || !valid_ip6(at + 1, close)) return false;
        at = close + 1;
    } else {
        for (; at < end; at++) {
            if (ls_char_is(*at, LS_CHAR_HOST)) continue;
            if (*at != '%') break;
            if (end - at < 3 || !ls_char_is(at[1], LS_CHAR_HEX) || !ls_char_is(at[2], LS_CHAR_HEX)) return false;
            at += 2;
        }
        if (at == host) return false;
    }
    if (at == end) return true;
    if (*at != ':') return false; /* this includes the '@' of a userinfo */
    *port = at + 1;
    return valid_port(at + 1, end);
}

static int absolute_form(parse *p, const char *from, const char *to)
{
    ls_http_head *head = p->head;
    const char *at, *port;
    size_t len = (size_t)(to - from);
    if (len > 7 && ls_text_same(from, 7, "http://", 7))
        from += 7;
    else if (len > 8 && ls_text_same(from, 8, "https://", 8))
        from += 8;
    else
        return fail(p, 400, "bad request target");
    for (at = from; at < to && *at != '/' && *at != '?'; at++) {}
    if (!valid_authority(from, at, &port)) return fail(p, 400, "bad authority in the request target");
    head->host = span_of(p, from, at);
    p->has_authority = true;
    from = at;
    while (at < to && *at != '?') at++;
    head->path = span_of(p, from, at);
    head->path_is_root = at == from;
    head->has_query = at < to;
    head->query = head->has_query ? span_of(p, at + 1, to) : (ls_span){0, 0};
    return STEP_DONE;
}

/* The other forms than origin-form (RFC 9112 3.2). */
static int other_form(parse *p, const char *from, const char *to)
{
    ls_http_head *head = p->head;
    const char *port;
    if (head->method == LS_HTTP_CONNECT) {
        if (!valid_authority(from, to, &port) || port == NULL || port == to)
            return fail(p, 400, "CONNECT needs a host and a port");
        head->host = head->path = span_of(p, from, to);
        p->has_authority = true;
        return STEP_DONE;
    }
    if (to - from == 1 && *from == '*') {
        if (head->method != LS_HTTP_OPTIONS) return fail(p, 400, "the target * is only valid for OPTIONS");
        head->path = head->target;
        return STEP_DONE;
    }
    return absolute_form(p, from, to);
}

/* ---- the request line --------------------------------------------------------------------------------------- */

static LS_INLINE ls_http_method method_of(const char *name, size_t len)
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

static inline int method(parse *p)
{
    const char *from = p->at, *at = from;
    while (at < p->end && ls_char_is(*at, LS_CHAR_TOKEN)) at++;
    if (at - from > METHOD_BYTES_MAX) return fail(p, 501, "method too long");
    if (at == p->end) return LS_HTTP_MORE;
    if (*at != ' ' || at == from) return fail(p, 400, "bad method");
    p->head->method_name = span_of(p, from, at);
    p->head->method = method_of(from, (size_t)(at - from));
    p->at = at + 1;
    return STEP_DONE;
}

/* Take the target apart: its characters are valid. mark: its first '?', or NULL. */
static LS_INLINE int split_target(parse *p, const char *from, const char *mark, const char *to)
{
    ls_http_head *head = p->head;
    head->target = span_of(p, from, to);
    head->path_is_root = false;
    if (*from != '/' || head->method == LS_HTTP_CONNECT) {
        head->has_query = false;
        head->query = (ls_span){0, 0};
        return other_form(p, from, to);
    }
    p->needs_host = true;
    head->has_query = mark != NULL;
    head->path = span_of(p, from, mark != NULL ? mark : to);
    head->query = mark != NULL ? span_of(p, mark + 1, to) : (ls_span){0, 0};
    return STEP_DONE;
}

static int bad_target(parse *p, char c)
{
    return fail(p, 400, c == '#' ? "fragment in the request target" : "bad character in the request target");
}

static inline int target(parse *p)
{
    const char *from = p->at, *at = from, *end = p->end, *mark = NULL;
    const size_t max = p->limits->target_bytes_max;
    if ((size_t)(end - from) > max) end = from + max + 1; /* one past the limit is enough to know */
    while (at < end && ls_char_is(*at, LS_CHAR_PATH)) at++;
    if (at < end && *at == '?') {
        mark = at;
        while (at < end && ls_char_is(*at, LS_CHAR_TARGET)) at++;
    }
    if ((size_t)(at - from) > max) return fail(p, 414, "request target too long");
    if (at == end) return LS_HTTP_MORE;
    if (*at != ' ') return *at == '\r' || *at == '\n' ? fail(p, 400, "no HTTP version") : bad_target(p, *at);
    if (at == from) return fail(p, 400, "no request target");
    p->at = at + 1;
    return split_target(p, from, mark, at);
}

static inline int version(parse *p)
{
    static const char shape[] = "HTTP/0.0\r\n"; /* a 0 matches any digit */
    enum { SHAPE_BYTES = sizeof shape - 1 };
    const char *at = p->at;
    const size_t len = (size_t)(p->end - at) < SHAPE_BYTES ? (size_t)(p->end - at) : SHAPE_BYTES;
    if (len == SHAPE_BYTES && memcmp(at, "HTTP/1.1\r\n", SHAPE_BYTES) == 0) {
        p->head->version = 11;
        p->at = at + SHAPE_BYTES;
        return STEP_DONE;
    }
    for (size_t i = 0; i < len; i++)
        if (shape[i] == '0' ? !ls_char_digit(at[i]) : at[i] != shape[i]) return fail(p, 400, "bad HTTP version");
    if (len < SHAPE_BYTES) return LS_HTTP_MORE;
    if (at[5] != '1') return fail(p, 505, "unsupported HTTP version");
    p->head->version = at[7] != '0' ? 11 : 10;
    p->at = at + SHAPE_BYTES;
    return STEP_DONE;
}

static inline int request_line(parse *p)
{
    int step;
    for (unsigned lines = 0;; lines++, p->at += 2) {
        if (p->at == p->end) return LS_HTTP_MORE;
        if (*p->at != '\r') break;
        if (lines == EMPTY_LINES_MAX) return fail(p, 400, "too many empty lines");
        if (p->end - p->at < 2) return LS_HTTP_MORE;
        if (p->at[1] != '\n') return fail(p, 400, "bare CR");
    }
    if ((step = method(p)) <= 0 || (step = target(p)) <= 0) return step;
    return version(p);
}

/* ---- fields that the parser evaluates ----------------------------------------------------------------------- */

static void connection_field(parse *p, const char *at, const char *end)
{
    const char *from, *to;
    while (ls_list_next(&at, end, &from, &to)) {
        const size_t len = (size_t)(to - from);
        if (len == 5 && spells(from, "close", 5))
            p->saw |= SAW_CLOSE;
        else if (len == 7 && spells(from, "upgrade", 7))
            p->saw |= SAW_CONNECTION_UPGRADE;
        else if (len == 10 && spells(from, "keep-alive", 10))
            p->saw |= SAW_KEEP_ALIVE;
        else if (len > 0)
            p->saw |= SAW_LISTED;
    }
}

static int transfer_field(parse *p, const char *at, const char *end)
{
    const char *from, *to;
    p->saw |= SAW_TRANSFER;
    while (ls_list_next(&at, end, &from, &to)) {
        const char *name = from;
        if (p->saw & SAW_CHUNKED) return fail(p, 400, "a transfer coding after chunked");
        while (from < to && ls_char_is(*from, LS_CHAR_TOKEN)) from++;
        if (from == name) return fail(p, 400, "bad Transfer-Encoding");
        if (from - name == 7 && spells(name, "chunked", 7)) {
            if (from != to) return fail(p, 400, "bad Transfer-Encoding");
            p->saw |= SAW_CHUNKED;
            continue;
        }
        while (from < to && (*from == ' ' || *from == '\t')) from++;
        if (from < to && *from != ';') return fail(p, 400, "bad Transfer-Encoding");
        p->saw |= SAW_OTHER_CODING;
    }
    return STEP_DONE;
}

static int length_field(parse *p, const char *at, const char *end)
{
    if (p->head->has_length) return fail(p, 400, "several Content-Length fields");
    if (!ls_length_parse(at, (size_t)(end - at), &p->head->content_length)) return fail(p, 400, "bad Content-Length");
    p->head->has_length = true;
    return STEP_DONE;
}

static int host_field(parse *p, const char *at, const char *end)
{
    const char *port;
    if (p->saw & SAW_HOST) return fail(p, 400, "several Host fields");
    p->saw |= SAW_HOST;
    if (at == end ? p->needs_host : !valid_authority(at, end, &port)) return fail(p, 400, "bad Host");
    if (!p->has_authority) p->head->host = span_of(p, at, end);
    return STEP_DONE;
}

/* Evaluate a field that the parser knows. The length of the name excludes almost all other fields. */
static LS_INLINE int known_field(parse *p, const char *name, size_t name_len, const char *value, const char *value_end)
{
    switch (name_len) {
    case 4:
        if (spells(name, "host", 4)) return host_field(p, value, value_end);
        break;
    case 6:
        if (spells(name, "expect", 6)) {
            bool is_continue = value_end - value == 12 && spells(value, "100-continue", 12);
            p->saw |= is_continue ? SAW_CONTINUE : SAW_OTHER_EXPECTATION;
        }
        break;
    case 7:
        if (spells(name, "upgrade", 7) && value < value_end) p->saw |= SAW_UPGRADE;
        break;
    case 10:
        if (spells(name, "connection", 10)) connection_field(p, value, value_end);
        break;
    case 14:
        if (spells(name, "content-length", 14)) return length_field(p, value, value_end);
        break;
    case 17:
        if (spells(name, "transfer-encoding", 17)) return transfer_field(p, value, value_end);
        break;
    default: break;
    }
    return STEP_DONE;
}

/* ---- the field section -------------------------------------------------------------------------------------- */

/* Return the first byte that a field value cannot contain. The first loop skips eight bytes at a time while none of
 * them is below 0x20 or DEL. A subtraction borrows only from a byte that is itself such a byte, so a word without one
 * gives no false match. */
static inline const char *skip_value(const char *at, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    for (; end - at >= 8; at += 8) {
        uint64_t word = load8(at), del = word ^ (ones * 0x7f);
        if ((((word - ones * 0x20) & ~word) | ((del - ones) & ~del)) & (ones * 0x80)) break;
    }
    while (at < end && ls_char_is(*at, LS_CHAR_VALUE)) at++;
    return at;
}

static int bad_name(parse *p, const char *from, const char *at)
{
    if (at == from) return fail(p, 400, *at == ' ' || *at == '\t' ? "white space before a field" : "no field name");
    return fail(p, 400, *at == ' ' || *at == '\t' ? "white space before a colon" : "bad field name");
}

/* Check that the line at `at` ends in CR LF. */
static inline int line_end(parse *p, const char *at)
{
    if (*at != '\r') return fail(p, 400, *at == '\n' ? "bare LF" : "control character in a field");
    if (p->end - at < 2) return LS_HTTP_MORE;
    if (at[1] != '\n') return fail(p, 400, "bare CR");
    return STEP_DONE;
}

static inline int field_section(parse *p)
{
    const char *at = p->at, *const end = p->end;
    const uint32_t max = p->limits->fields_max < LS_HTTP_FIELDS_MAX ? p->limits->fields_max : LS_HTTP_FIELDS_MAX;
    uint32_t count = 0;
    int step;
    for (;;) {
        const char *name, *name_end, *value, *value_end;
        if (at == end) return LS_HTTP_MORE;
        if (*at == '\r') break;
        if (count == max) return fail(p, 431, "too many fields");

        name = at;
        while (at < end && ls_char_is(*at, LS_CHAR_TOKEN)) at++;
        if (at == end) return LS_HTTP_MORE;
        if (*at != ':' || at == name) return bad_name(p, name, at);
        name_end = at++;

        while (at < end && (*at == ' ' || *at == '\t')) at++;
        value = at;
        at = value_end = skip_value(at, end);
        if (at == end) return LS_HTTP_MORE;
        if ((step = line_end(p, at)) <= 0) return step;
        while (value_end > value && (value_end[-1] == ' ' || value_end[-1] == '\t')) value_end--;
        at += 2;

        p->head->fields[count++] = (ls_http_field){span_of(p, name, name_end), span_of(p, value, value_end)};
        step = known_field(p, name, (size_t)(name_end - name), value, value_end);
        if (step <= 0) return step;
    }
    if ((step = line_end(p, at)) <= 0) return step;
    p->at = at + 2;
    p->head->field_count = count;
    return STEP_DONE;
}

/* The checks that need all fields. */
static inline int check_fields(parse *p)
{
    ls_http_head *head = p->head;
    const unsigned saw = p->saw;
    const bool is_11 = head->version > 10;
    if (is_11 && !(saw & SAW_HOST)) return fail(p, 400, "no Host");
    if (saw & SAW_TRANSFER) {
        if (head->has_length) return fail(p, 400, "Transfer-Encoding with Content-Length");
        if (!is_11) return fail(p, 400, "Transfer-Encoding in HTTP/1.0");
        if (saw & SAW_OTHER_CODING) return fail(p, 501, "unknown transfer coding");
    }
    if (is_11 && (saw & SAW_OTHER_EXPECTATION)) return fail(p, 417, "unknown expectation");
    p->terms->chunked = (saw & SAW_CHUNKED) != 0;
    head->has_body = p->terms->chunked || head->content_length > 0;
    p->terms->keep_alive = !(saw & SAW_CLOSE) && (is_11 || (saw & SAW_KEEP_ALIVE));
    p->terms->expect_continue = is_11 && (saw & SAW_CONTINUE);
    head->upgrade = is_11 && (saw & SAW_UPGRADE) && (saw & SAW_CONNECTION_UPGRADE);
    head->lists = (saw & SAW_LISTED) != 0;
    head->bytes = (uint32_t)(p->at - p->base);
    return STEP_DONE;
}

/* ---- a head that is not text -------------------------------------------------------------------------------- */

/* p->at becomes the end of the head as far as its parts are known. */
static void reach(parse *p, ls_span part)
{
    const char *const end = p->base + part.at + part.len;
    if (end > p->at) p->at = end;
}

static int check_line(parse *p)
{
    ls_http_head *head = p->head;
    const char *const name = p->base + head->method_name.at, *const from = p->base + head->target.at;
    const char *at = from, *const to = from + head->target.len;
    if (!ls_is_token(name, head->method_name.len)) return fail(p, 400, "bad method");
    if (head->method_name.len > METHOD_BYTES_MAX) return fail(p, 501, "method too long");
    if (at == to) return fail(p, 400, "no request target");
    while (at < to && ls_char_is(*at, LS_CHAR_TARGET)) at++;
    if (at < to) return bad_target(p, *at);
    head->method = method_of(name, head->method_name.len);
    reach(p, head->method_name);
    reach(p, head->target);
    return split_target(p, from, memchr(from, '?', head->target.len), to);
}

static int check_field(parse *p, const ls_http_field *field)
{
    const char *const name = p->base + field->name.at, *const value = p->base + field->value.at;
    if (!ls_is_token(name, field->name.len)) return fail(p, 400, "bad field name");
    if (!ls_is_field_value(value, field->value.len)) return fail(p, 400, "control character in a field");
    reach(p, field->name);
    reach(p, field->value);
    return known_field(p, name, field->name.len, value, value + field->value.len);
}

int ls_http1_complete(ls_http_head *head, const char *bytes, bool *keep_alive, const char **why)
{
    ls_http1_terms terms;
    parse p = {.base = bytes, .at = bytes, .head = head, .terms = &terms};
    head->has_length = false;
    head->content_length = 0;
    head->host = (ls_span){0, 0};
    int step = check_line(&p);
    for (uint32_t n = 0; step > 0 && n < head->field_count; n++) step = check_field(&p, &head->fields[n]);
    if (step > 0) step = check_fields(&p);
    if (step < 0) {
        *why = p.why;
        return step;
    }
    *keep_alive = terms.keep_alive;
    return 0;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* Whether bytes[seen..len) can change the result LS_HTTP_MORE. `seen` > 0. A bare CR, a bare LF and other control
 * characters change it at once; other invalid bytes, such as a space in a field name, only when the line ends. */
static bool may_change_result(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits)
{
    enum { SKIPPED_BYTES_MAX = 2 * EMPTY_LINES_MAX }; /* every request line is longer */
    if (seen > len) seen = len;
    /* Within the method: clients of another protocol get the error at once, and the check is cheap. */
    if (seen <= SKIPPED_BYTES_MAX + METHOD_BYTES_MAX) return true;
    /* From the byte before `seen`: it may be a CR, or the LF before the first byte of a field above the limit. */
    const char *const end = bytes + len, *const at = skip_value(bytes + seen - 1, end);
    if (at < end - 1 || (at < end && *at != '\r')) return true;
    /* Still in the request line: the target may be too long. */
    return len > limits->target_bytes_max && len > SKIPPED_BYTES_MAX &&
           memchr(bytes + SKIPPED_BYTES_MAX, '\n', len - SKIPPED_BYTES_MAX) == NULL;
}

int ls_http1_parse(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *out,
                   ls_http1_terms *terms, const char **why)
{
    const bool is_full = len >= limits->head_bytes_max;
    parse p = {.base = bytes, .at = bytes, .limits = limits, .head = out, .terms = terms};
    int step;
    if (!is_full && seen > 0 && !may_change_result(bytes, len, seen, limits)) return LS_HTTP_MORE;
    p.end = bytes + (is_full ? limits->head_bytes_max : len);
    out->has_length = false;
    out->content_length = 0;
    out->host = (ls_span){0, 0};

    if ((step = request_line(&p)) > 0 && (step = field_section(&p)) > 0 && (step = check_fields(&p)) > 0)
        return (int)out->bytes;
    if (step == LS_HTTP_MORE && is_full) step = fail(&p, 431, "request head too large");
    if (step < 0 && why != NULL) *why = p.why;
    return step;
}
