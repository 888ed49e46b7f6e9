/* http1_parse_response.c - the head of a response, in one pass from left to right.
 *
 * As in http1_parse.c, every step refuses the first byte that a valid head cannot have there, and returns STEP_MORE at
 * the end of the bytes. A prefix therefore never has another error than the whole. A partial head is parsed again from
 * its start only if new bytes end a line, or while the status line is incomplete. */
#include "codec/http1/http1_parse_response.h"

#include <string.h>

#include "base/err.h"
#include "codec/http_chars.h"

enum { STEP_DONE = 1, STEP_MORE = 0, STATUS_LINE_PREFIX = 12 /* "HTTP/1.1 200" */ };

enum { SAW_TRANSFER = 1, SAW_CHUNKED = 2, SAW_CLOSE = 4, SAW_KEEP_ALIVE = 8, SAW_ENCODING = 16 };

typedef struct response_parse {
    const char *at, *end;
    ls_http_response *head;
    const char *why;
    unsigned saw;
} response_parse;

static int fail(response_parse *p, const char *why)
{
    p->why = why;
    return LS_EPROTO;
}

/* Check that p->at is CR LF, and skip it. */
static int line_end(response_parse *p, const char *wrong)
{
    if (p->at == p->end) return STEP_MORE;
    if (*p->at != '\r') return fail(p, *p->at == '\n' ? "bare LF" : wrong);
    if (p->end - p->at < 2) return STEP_MORE;
    if (p->at[1] != '\n') return fail(p, "bare CR");
    p->at += 2;
    return STEP_DONE;
}

static int status_line(response_parse *p)
{
    static const char version[] = "HTTP/1.";
    unsigned status = 0;
    for (size_t i = 0; i < STATUS_LINE_PREFIX; i++) {
        if (p->at == p->end) return STEP_MORE;
        const char c = *p->at++;
        if (i < 7 ? c != version[i] : i == 7 ? !ls_char_digit(c) : i == 8 && c != ' ')
            return fail(p, i < 8 ? "not an HTTP/1.x response" : "bad status line");
        if (i == 7) p->head->version_minor = c > '0';
        if (i < 9) continue;
        if (!ls_char_digit(c) || (i == 9 && c == '0')) return fail(p, "bad status");
        status = status * 10 + (unsigned)(c - '0');
    }
    p->head->status = (uint16_t)status;
    if (p->at < p->end && *p->at == ' ') p->at = ls_char_skip_value(p->at, p->end);
    return line_end(p, "bad status line");
}

/* ---- fields that determine the end of the body -------------------------------------------------------------- */

static bool is_name(const char *name, const char *end, const char *wanted, size_t len)
{
    return (size_t)(end - name) == len && ls_text_same(name, len, wanted, len);
}

static int length_field(response_parse *p, const char *at, const char *end)
{
    if (p->head->has_length) return fail(p, "several Content-Length fields");
    if (!ls_length_parse(at, (size_t)(end - at), &p->head->length)) return fail(p, "bad Content-Length");
    p->head->has_length = true;
    return STEP_DONE;
}

static void connection_field(response_parse *p, const char *at, const char *end)
{
    const char *from, *to;
    while (ls_list_next(&at, end, &from, &to)) {
        if (is_name(from, to, "close", 5))
            p->saw |= SAW_CLOSE;
        else if (is_name(from, to, "keep-alive", 10))
            p->saw |= SAW_KEEP_ALIVE;
        else if (to > from)
            p->head->lists = true;
    }
}

static int transfer_field(response_parse *p, const char *at, const char *end)
{
    if (p->saw & SAW_TRANSFER || !is_name(at, end, "chunked", 7)) return fail(p, "unknown transfer coding");
    p->saw |= SAW_TRANSFER | SAW_CHUNKED;
    return STEP_DONE;
}

static void encoding_field(response_parse *p, const char *at, const char *end)
{
    p->head->coding = (int8_t)(p->saw & SAW_ENCODING ? -1 : ls_coding_find(at, (size_t)(end - at)));
    p->saw |= SAW_ENCODING;
}

/* Evaluate a field that the parser knows. */
static int known_field(response_parse *p, const char *name, const char *name_end, const char *value, const char *end)
{
    if (is_name(name, name_end, "content-length", 14)) return length_field(p, value, end);
    if (is_name(name, name_end, "transfer-encoding", 17)) return transfer_field(p, value, end);
    if (is_name(name, name_end, "connection", 10)) connection_field(p, value, end);
    if (is_name(name, name_end, "content-encoding", 16)) encoding_field(p, value, end);
    return STEP_DONE;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int field_section(response_parse *p)
{
    for (unsigned count = 0;; count++) {
        if (p->at == p->end) return STEP_MORE;
        if (*p->at == '\r') return line_end(p, NULL);
        if (count == LS_RESPONSE_FIELDS_MAX) return fail(p, "too many fields");

        const char *const name = p->at, *const end = p->end, *name_end = name;
        while (name_end < end && ls_char_is(*name_end, LS_CHAR_TOKEN)) name_end++;
        if (name_end == end) return STEP_MORE;
        if (*name_end != ':' || name_end == name)
            return fail(p, is_blank(*name_end) ? "white space where a field name should be" : "bad field name");
        const char *value = name_end + 1;
        while (value < end && is_blank(*value)) value++;
        const char *value_end = p->at = ls_char_skip_value(value, end);
        int step = line_end(p, "control character in a field");
        if (step <= 0) return step;
        if (p->at == p->end) return STEP_MORE; /* the next line may continue the value: see ls_http1_unfold */
        if (is_blank(*p->at)) return fail(p, "a field of several lines");
        while (value_end > value && is_blank(value_end[-1])) value_end--;
        if ((step = known_field(p, name, name_end, value, value_end)) <= 0) return step;
    }
}

/* Determine the end of the body, in the order of RFC 9112 section 6.3. */
static int check_fields(response_parse *p, bool to_head)
{
    ls_http_response *head = p->head;
    const bool is_11 = head->version_minor > 0;
    if (p->saw & SAW_TRANSFER) {
        if (head->has_length) return fail(p, "Transfer-Encoding with Content-Length");
        if (!is_11) return fail(p, "Transfer-Encoding in HTTP/1.0");
    }
    if (to_head || !ls_status_is_framed(head->status))
        head->framing = LS_FRAMING_NONE;
    else if (p->saw & SAW_CHUNKED)
        head->framing = LS_FRAMING_CHUNKED;
    else if (head->has_length)
        head->framing = head->length > 0 ? LS_FRAMING_LENGTH : LS_FRAMING_NONE;
    else
        head->framing = LS_FRAMING_TO_END;
    head->keep_alive =
        head->framing != LS_FRAMING_TO_END && !(p->saw & SAW_CLOSE) && (is_11 || (p->saw & SAW_KEEP_ALIVE));
    return STEP_DONE;
}

int ls_http1_parse_response(const char *bytes, size_t len, size_t seen, size_t bytes_max, bool to_head,
                            ls_http_response *out, const char **why)
{
    const bool is_full = len >= bytes_max;
    response_parse p = {.at = bytes, .end = bytes + (is_full ? bytes_max : len), .head = out};
    if (!is_full && seen >= STATUS_LINE_PREFIX && seen < len && memchr(bytes + seen - 1, '\n', len - seen + 1) == NULL)
        return 0;
    *out = (ls_http_response){.coding = -1};
    int step;
    if ((step = status_line(&p)) > 0 && (step = field_section(&p)) > 0 && (step = check_fields(&p, to_head)) > 0) {
        out->bytes = (uint32_t)(p.at - bytes);
        return (int)out->bytes;
    }
    if (step == STEP_MORE && is_full) step = fail(&p, "the head of the response is too large");
    if (step < 0 && why != NULL) *why = p.why;
    return step;
}

bool ls_http1_unfold(char *bytes, size_t len)
{
    char *const end = bytes + len, *at = memchr(bytes, '\n', len); /* the end of the status line */
    bool found = false;
    while (at != NULL && ++at < end) { /* after the end of a line, or after a break that was replaced */
        char *const lf = memchr(at, '\n', (size_t)(end - at));
        if (lf == NULL || lf - at <= 1) break; /* the end of the head */
        if (lf + 1 < end && lf[-1] == '\r' && is_blank(lf[1])) {
            lf[-1] = lf[0] = ' ';
            found = true;
        }
        at = lf;
    }
    return found;
}

bool ls_http1_response_field(const char *bytes, const ls_http_response *head, size_t *at, ls_pair *out)
{
    if (*at == 0) *at = (size_t)((const char *)memchr(bytes, '\n', head->bytes) + 1 - bytes); /* the status line */
    return ls_lines_next_received(bytes, head->bytes, at, out);
}
