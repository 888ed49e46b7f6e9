/* http_range.c - see http_range.h. */
#include "codec/http_range.h"

#include <assert.h>
#include <string.h>

#include "codec/http_chars.h"
#include "codec/http_text.h"

#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

/* Parse digits, at least one. A number above 2^64 - 1 becomes 2^64 - 1: it is beyond every end. */
static bool parse_number(const char **at, const char *end, uint64_t *out)
{
    const char *from = *at;
    uint64_t n = 0;
    for (; *at < end && ls_char_digit(**at); (*at)++) {
        const unsigned digit = (unsigned)(**at - '0');
        n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
    }
    *out = n;
    return *at > from;
}

enum element { ELEMENT_INVALID, ELEMENT_BEYOND, ELEMENT_EMPTY_SUFFIX, ELEMENT_GOOD };

/* One int-range or suffix-range (RFC 9110 14.1.1). */
static enum element parse_element(const char *at, const char *end, uint64_t size, ls_range *out)
{
    uint64_t first, last = UINT64_MAX;
    if (*at == '-') {
        uint64_t suffix;
        at++;
        if (!parse_number(&at, end, &suffix) || at < end) return ELEMENT_INVALID;
        if (suffix == 0) return ELEMENT_BEYOND;
        if (size == 0) return ELEMENT_EMPTY_SUFFIX;
        out->bytes = suffix < size ? suffix : size;
        out->from = size - out->bytes;
        return ELEMENT_GOOD;
    }
    if (!parse_number(&at, end, &first) || at == end || *at != '-') return ELEMENT_INVALID;
    at++;
    if (at < end && (!parse_number(&at, end, &last) || at < end || last < first)) return ELEMENT_INVALID;
    if (first >= size) return ELEMENT_BEYOND;
    if (last >= size) last = size - 1;
    *out = (ls_range){first, last - first + 1};
    return ELEMENT_GOOD;
}

static bool touch(const ls_range *a, const ls_range *b)
{
    return a->from <= b->from + b->bytes && b->from <= a->from + a->bytes;
}

/* Make *into cover both. */
static void cover(ls_range *into, const ls_range *other)
{
    const uint64_t end = into->from + into->bytes, other_end = other->from + other->bytes;
    if (other->from < into->from) into->from = other->from;
    into->bytes = (other_end > end ? other_end : end) - into->from;
}

/* Add a range after the others, or to the first that it touches; this one may then touch others. */
static void add(ls_range *ranges, unsigned *count, const ls_range *range)
{
    unsigned into = 0;
    while (into < *count && !touch(&ranges[into], range)) into++;
    if (into == *count) {
        ranges[(*count)++] = *range;
        return;
    }
    cover(&ranges[into], range);
    for (unsigned i = 0; i < *count;) {
        if (i == into || !touch(&ranges[into], &ranges[i])) {
            i++;
            continue;
        }
        const unsigned keep = i < into ? i : into, drop = i < into ? into : i;
        cover(&ranges[keep], &ranges[drop]);
        memmove(&ranges[drop], &ranges[drop + 1], (*count - drop - 1) * sizeof *ranges);
        (*count)--;
        into = keep;
        i = 0;
    }
}

enum ls_range_result ls_range_parse(const char *bytes, size_t len, uint64_t size, ls_range out[LS_RANGES_MAX],
                                    unsigned *count)
{
    static const char unit[] = "bytes=";
    const char *at = bytes + sizeof unit - 1, *const end = bytes + len;
    const char *from, *to;
    unsigned elements = 0;
    bool whole = false;
    *count = 0;
    if (len < sizeof unit - 1 || !ls_text_same(bytes, sizeof unit - 1, unit, sizeof unit - 1)) return LS_RANGE_WHOLE;
    while (ls_list_next(&at, end, &from, &to)) {
        ls_range range;
        if (from == to) continue; /* an empty element of a list (RFC 9110 5.6.1.2) */
        if (++elements > LS_RANGES_MAX) return LS_RANGE_WHOLE;
        switch (parse_element(from, to, size, &range)) {
        case ELEMENT_INVALID: return LS_RANGE_WHOLE;
        case ELEMENT_BEYOND: break;
        case ELEMENT_EMPTY_SUFFIX: whole = true; break;
        case ELEMENT_GOOD: add(out, count, &range); break;
        }
    }
    if (elements == 0 || whole) return LS_RANGE_WHOLE;
    return *count > 0 ? LS_RANGE_PARTIAL : LS_RANGE_UNSATISFIABLE;
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

size_t ls_content_range(const ls_range *range, uint64_t size, char out[LS_CONTENT_RANGE_BYTES])
{
    char *to = PUT(out, "bytes ");
    if (range == NULL) {
        *to++ = '*';
    } else {
        to = ls_put_number(to, range->from);
        *to++ = '-';
        to = ls_put_number(to, range->from + range->bytes - 1);
    }
    *to++ = '/';
    to = ls_put_number(to, size);
    return (size_t)(to - out);
}

void ls_boundary(const uint64_t random[2], char out[LS_BOUNDARY_BYTES])
{
    for (unsigned i = 0; i < LS_BOUNDARY_BYTES; i++) out[i] = "0123456789abcdef"[random[i / 16] >> (i % 16 * 4) & 15];
}

size_t ls_part_head(const char boundary[LS_BOUNDARY_BYTES], bool first, const char *type, size_t type_len,
                    const ls_range *range, uint64_t size, char *out)
{
    char *to = out;
    if (!first) to = PUT(to, "\r\n");
    to = PUT(to, "--");
    memcpy(to, boundary, LS_BOUNDARY_BYTES);
    to = PUT(to + LS_BOUNDARY_BYTES, "\r\nContent-Type: ");
    memcpy(to, type, type_len);
    to = PUT(to + type_len, "\r\nContent-Range: ");
    to += ls_content_range(range, size, to);
    to = PUT(to, "\r\n\r\n");
    assert((size_t)(to - out) <= LS_PART_HEAD_BYTES + type_len);
    return (size_t)(to - out);
}

size_t ls_parts_end(const char boundary[LS_BOUNDARY_BYTES], char out[LS_PARTS_END_BYTES])
{
    char *to = PUT(out, "\r\n--");
    memcpy(to, boundary, LS_BOUNDARY_BYTES);
    to = PUT(to + LS_BOUNDARY_BYTES, "--\r\n");
    return (size_t)(to - out);
}
