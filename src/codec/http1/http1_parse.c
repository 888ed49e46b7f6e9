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
 *   - those of http_head_check.h. */
#include "codec/http1/http1_parse.h"

#include <string.h>

#include "codec/http_chars.h"
#include "codec/http_head_check.h"

enum { EMPTY_LINES_MAX = 4 };

typedef struct parse {
    ls_head_check c;
    const char *at, *end;
    const ls_http_limits *limits;
} parse;

static int fail(parse *p, int status, const char *why)
{
    return ls_head_fail(&p->c, status, why);
}

/* ---- the request line --------------------------------------------------------------------------------------- */

static inline int method(parse *p)
{
    const char *from = p->at, *at = from;
    while (at < p->end && ls_char_is(*at, LS_CHAR_TOKEN)) at++;
    if (at - from > LS_METHOD_BYTES_MAX) return fail(p, 501, "method too long");
    if (at == p->end) return LS_HTTP_MORE;
    if (*at != ' ' || at == from) return fail(p, 400, "bad method");
    p->c.head->method_name = ls_head_span(&p->c, from, at);
    p->c.head->method = ls_http_method_of(from, (size_t)(at - from));
    p->at = at + 1;
    return LS_HEAD_STEP_DONE;
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
    if (at == end) return (size_t)(at - from) > max ? fail(p, 414, "request target too long") : LS_HTTP_MORE;
    if (*at != ' ')
        return *at == '\r' || *at == '\n' ? fail(p, 400, "no HTTP version") : ls_head_bad_target(&p->c, *at);
    if (at == from) return fail(p, 400, "no request target");
    p->at = at + 1;
    return ls_head_target(&p->c, from, mark, at);
}

static inline int version(parse *p)
{
    static const char shape[] = "HTTP/0.0\r\n"; /* a 0 matches any digit */
    enum { SHAPE_BYTES = sizeof shape - 1 };
    const char *at = p->at;
    if (p->end - at >= SHAPE_BYTES && memcmp(at, "HTTP/1.1\r\n", SHAPE_BYTES) == 0) {
        p->c.head->version = 11;
        p->at = at + SHAPE_BYTES;
        return LS_HEAD_STEP_DONE;
    }
    const size_t len = p->end - at < SHAPE_BYTES ? (size_t)(p->end - at) : SHAPE_BYTES;
    for (size_t i = 0; i < len; i++)
        if (shape[i] == '0' ? !ls_char_digit(at[i]) : at[i] != shape[i]) return fail(p, 400, "bad HTTP version");
    if (len < SHAPE_BYTES) return LS_HTTP_MORE;
    if (at[5] != '1') return fail(p, 505, "unsupported HTTP version");
    p->c.head->version = at[7] != '0' ? 11 : 10;
    p->at = at + SHAPE_BYTES;
    return LS_HEAD_STEP_DONE;
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

/* ---- the field section -------------------------------------------------------------------------------------- */

static int bad_name(parse *p, const char *from, const char *at)
{
    if (at == from) return fail(p, 400, *at == ' ' || *at == '\t' ? "white space before a field" : "no field name");
    return fail(p, 400, *at == ' ' || *at == '\t' ? "white space before a colon" : "bad field name");
}

/* Check that the line at `at` ends in CR LF. */
static inline int line_end(parse *p, const char *at)
{
    if (p->end - at >= 2 && memcmp(at, "\r\n", 2) == 0) return LS_HEAD_STEP_DONE;
    if (*at != '\r') return fail(p, 400, *at == '\n' ? "bare LF" : "control character in a field");
    if (p->end - at < 2) return LS_HTTP_MORE;
    if (at[1] != '\n') return fail(p, 400, "bare CR");
    return LS_HEAD_STEP_DONE;
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
        at = value_end = ls_char_skip_value(at, end);
        if (at == end) return LS_HTTP_MORE;
        if ((step = line_end(p, at)) <= 0) return step;
        while (value_end > value && (unsigned char)value_end[-1] <= ' ') value_end--; /* of a value only HTAB and SP */
        at += 2;

        p->c.head->fields[count++] =
            (ls_http_field){ls_head_span(&p->c, name, name_end), ls_head_span(&p->c, value, value_end)};
        step = ls_head_field(&p->c, name, (size_t)(name_end - name), value, value_end);
        if (step <= 0) return step;
    }
    if ((step = line_end(p, at)) <= 0) return step;
    p->at = at + 2;
    p->c.head->field_count = count;
    return LS_HEAD_STEP_DONE;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* Whether bytes[seen..len) can change the result LS_HTTP_MORE. `seen` > 0. A bare CR, a bare LF and other control
 * characters change it at once; other invalid bytes, such as a space in a field name, only when the line ends. */
static bool may_change_result(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits)
{
    enum { SKIPPED_BYTES_MAX = 2 * EMPTY_LINES_MAX }; /* every request line is longer */
    if (seen > len) seen = len;
    /* Within the method: clients of another protocol get the error at once, and the check is cheap. */
    if (seen <= SKIPPED_BYTES_MAX + LS_METHOD_BYTES_MAX) return true;
    /* From the byte before `seen`: it may be a CR, or the LF before the first byte of a field above the limit. */
    const char *const end = bytes + len, *const at = ls_char_skip_value(bytes + seen - 1, end);
    if (at < end - 1 || (at < end && *at != '\r')) return true;
    /* Still in the request line: the target may be too long. */
    return len > limits->target_bytes_max && len > SKIPPED_BYTES_MAX &&
           memchr(bytes + SKIPPED_BYTES_MAX, '\n', len - SKIPPED_BYTES_MAX) == NULL;
}

int ls_http1_parse(const char *bytes, size_t len, size_t seen, const ls_http_limits *limits, ls_http_head *out,
                   ls_http_terms *terms, const char **why)
{
    const bool is_full = len >= limits->head_bytes_max;
    parse p = {.c = {.base = bytes, .head = out, .terms = terms}, .at = bytes, .limits = limits};
    int step;
    if (!is_full && seen > 0 && !may_change_result(bytes, len, seen, limits)) return LS_HTTP_MORE;
    p.end = bytes + (is_full ? limits->head_bytes_max : len);
    ls_head_begin(&p.c);
    if ((step = request_line(&p)) > 0 && (step = field_section(&p)) > 0 && (step = ls_head_end(&p.c)) > 0) {
        out->bytes = (uint32_t)(p.at - bytes);
        return (int)out->bytes;
    }
    if (step == LS_HTTP_MORE && is_full) step = fail(&p, 431, "request head too large");
    if (step < 0 && why != NULL) *why = p.c.why;
    return step;
}
