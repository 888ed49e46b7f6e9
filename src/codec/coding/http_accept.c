/* http_accept.c - see http_accept.h. Weights are in thousandths, as the grammar has three digits (RFC 9110 12.4.2). */
#include "codec/coding/http_accept.h"

#include <string.h>

#include "codec/http_chars.h"
#include "codec/http_text.h"

enum { WEIGHT_ONE = 1000, WEIGHT_NONE = -1 };

#define IS(from, to, literal) ls_text_same(from, (size_t)((to) - (from)), literal, sizeof(literal) - 1)

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The qvalue in [at, end), or WEIGHT_NONE. The zero in front of the point may be absent: Java sends "q=.2". */
static int parse_qvalue(const char *at, const char *end)
{
    int weight = 0, digit = 100;
    if (end - at < 2 || *at != '.') {
        if (at == end || (*at != '0' && *at != '1')) return WEIGHT_NONE;
        weight = (*at++ - '0') * WEIGHT_ONE;
    }
    if (at < end && *at++ != '.') return WEIGHT_NONE;
    for (; at < end; at++, digit /= 10) {
        if (digit == 0 || !ls_char_digit(*at)) return WEIGHT_NONE;
        weight += (*at - '0') * digit;
    }
    return weight <= WEIGHT_ONE ? weight : WEIGHT_NONE;
}

/* Split "name;a=b;q=0.5": *to receives the end of the name. Returns the weight, or WEIGHT_NONE if it is invalid. */
static int parse_element(const char *from, const char **to)
{
    const char *const end = *to, *at = from;
    int weight = WEIGHT_ONE;
    while (at < end && *at != ';') at++;
    for (*to = at; *to > from && is_blank((*to)[-1]);) (*to)--;
    while (at < end) {
        const char *name = ++at; /* after the ';' */
        while (name < end && is_blank(*name)) name++;
        while (at < end && *at != ';') at++;
        const char *stop = at;
        while (stop > name && is_blank(stop[-1])) stop--;
        if (stop - name >= 2 && (*name == 'q' || *name == 'Q') && name[1] == '=') {
            weight = parse_qvalue(name + 2, stop);
            if (weight == WEIGHT_NONE) return weight;
        }
    }
    return weight;
}

unsigned ls_accept_codings(const ls_http_head *head, const char *bytes, const enum ls_coding *offered, unsigned count,
                           enum ls_coding out[LS_CODINGS])
{
    int weights[LS_CODINGS], identity = WEIGHT_NONE, any = WEIGHT_NONE;
    unsigned accepted = 0;
    uint32_t i = 0;
    const ls_http_field *field = ls_http_head_next(head, bytes, "accept-encoding", 15, &i);
    if (field == NULL) return 0;
    for (unsigned n = 0; n < LS_CODINGS; n++) weights[n] = WEIGHT_NONE;
    for (; field != NULL; field = ls_http_head_next(head, bytes, "accept-encoding", 15, &i)) {
        const char *at = bytes + field->value.at, *const end = at + field->value.len, *from, *to;
        while (ls_list_next(&at, end, &from, &to)) {
            const int weight = parse_element(from, &to);
            if (weight == WEIGHT_NONE) continue;
            const int coding = ls_coding_find(from, (size_t)(to - from));
            if (coding >= 0) weights[coding] = weight;
            if (IS(from, to, "identity")) identity = weight;
            if (IS(from, to, "*")) any = weight;
        }
    }
    if (identity == WEIGHT_NONE) identity = any;
    for (unsigned n = 0; n < count; n++) {
        int *const weight = &weights[offered[n]];
        unsigned at = accepted;
        if (*weight == WEIGHT_NONE) *weight = any;
        if (*weight <= 0 || *weight < identity) continue;
        for (; at > 0 && weights[out[at - 1]] < *weight; at--) out[at] = out[at - 1];
        out[at] = offered[n];
        accepted++;
    }
    return accepted;
}

int ls_accept_weight(const ls_http_head *head, const char *bytes, const char *type, size_t len, bool *named)
{
    enum { TYPE, SUBTYPES, ANY, RANGES };
    const char *const slash = memchr(type, '/', len);
    const size_t main_len = slash != NULL ? (size_t)(slash - type) : len;
    int weights[RANGES] = {WEIGHT_NONE, WEIGHT_NONE, WEIGHT_NONE};
    bool present = false;
    const ls_http_field *field;
    for (uint32_t i = 0; (field = ls_http_head_next(head, bytes, "accept", 6, &i)) != NULL;) {
        const char *at = bytes + field->value.at, *const end = at + field->value.len, *from, *to;
        present = true;
        while (ls_list_next(&at, end, &from, &to)) {
            const int weight = parse_element(from, &to);
            const size_t range = (size_t)(to - from);
            if (weight == WEIGHT_NONE) continue;
            if (ls_text_same(from, range, type, len)) weights[TYPE] = weight;
            if (range == main_len + 2 && ls_text_same(from, main_len, type, main_len) && from[range - 2] == '/' &&
                from[range - 1] == '*')
                weights[SUBTYPES] = weight;
            if (IS(from, to, "*/*")) weights[ANY] = weight;
        }
    }
    *named = weights[TYPE] > 0;
    for (int n = TYPE; n < RANGES; n++) {
        if (weights[n] != WEIGHT_NONE) return weights[n];
    }
    return present ? 0 : WEIGHT_ONE;
}

enum ls_accept_page ls_accept_page(const ls_http_head *head, const char *bytes)
{
    bool named;
    if (ls_accept_weight(head, bytes, "text/html", 9, &named) == 0) return LS_PAGE_REFUSED;
    return named ? LS_PAGE_NAMED : LS_PAGE_POSSIBLE;
}
