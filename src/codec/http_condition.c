/* http_condition.c - see http_condition.h. */
#include "codec/http_condition.h"

#include <string.h>

#include "codec/http_text.h"

#define NAME_IS(field, bytes, literal)           \
    ((field)->name.len == sizeof(literal) - 1 && \
     ls_text_same((bytes) + (field)->name.at, (field)->name.len, literal, sizeof(literal) - 1))

/* ---- the fields ------------------------------------------------------------------------------------------------- */

/* A field that must be there once. Returns whether it is there for the second time. */
static bool set_single(const ls_http_field **to, const ls_http_field *field, bool repeated)
{
    const bool again = repeated || *to != NULL;
    *to = again ? NULL : field;
    return again;
}

void ls_conditions_of(const ls_http_head *head, const char *bytes, ls_conditions *out)
{
    bool modified_repeated = false, unmodified_repeated = false, range_repeated = false;
    *out = (ls_conditions){.head = head, .bytes = bytes};
    for (uint32_t i = 0; i < head->field_count; i++) {
        const ls_http_field *field = &head->fields[i];
        const char first = (char)(bytes[field->name.at] | 0x20);
        if (first != 'i' && first != 'r') continue;
        if (NAME_IS(field, bytes, "range")) range_repeated = set_single(&out->range, field, range_repeated);
        if (NAME_IS(field, bytes, "if-match")) out->match = true;
        if (NAME_IS(field, bytes, "if-range"))
            out->if_range_invalid = set_single(&out->if_range, field, out->if_range_invalid);
        if (NAME_IS(field, bytes, "if-none-match")) out->none_match = true;
        if (NAME_IS(field, bytes, "if-modified-since"))
            modified_repeated = set_single(&out->modified_since, field, modified_repeated);
        if (NAME_IS(field, bytes, "if-unmodified-since"))
            unmodified_repeated = set_single(&out->unmodified_since, field, unmodified_repeated);
    }
    out->any = out->match || out->none_match || out->modified_since != NULL || out->unmodified_since != NULL ||
               out->range != NULL;
}

/* ---- entity tags ------------------------------------------------------------------------------------------------ */

typedef struct tag {
    bool weak;
    const char *opaque; /* with its quotes */
    size_t len;
} tag;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Parse the entity tag at *at and advance after it. */
static bool parse_tag(const char **at, const char *end, tag *out)
{
    const char *p = *at;
    out->weak = end - p >= 2 && p[0] == 'W' && p[1] == '/';
    if (out->weak) p += 2;
    if (p == end || *p != '"') return false;
    out->opaque = p++;
    while (p < end && *p != '"') {
        const unsigned char c = (unsigned char)*p;
        if (c < 0x21 || c == 0x7f) return false; /* etagc (RFC 9110 8.8.3) */
        p++;
    }
    if (p == end) return false;
    *at = ++p;
    out->len = (size_t)(p - out->opaque);
    return true;
}

static bool tags_match(const tag *a, const tag *b, bool strongly)
{
    if (strongly && (a->weak || b->weak)) return false;
    return a->len == b->len && memcmp(a->opaque, b->opaque, a->len) == 0;
}

/* Whether the list of entity tags, or "*", contains `own`; NULL: the representation has no tag. A list that is invalid
 * counts up to its first error. */
static bool list_contains(const char *at, size_t len, const tag *own, bool strongly)
{
    const char *const end = at + len;
    if (len == 1 && *at == '*') return true;
    for (;;) {
        tag one;
        while (at < end && (is_blank(*at) || *at == ',')) at++;
        if (at == end || !parse_tag(&at, end, &one)) return false;
        const char *next = at;
        while (next < end && is_blank(*next)) next++;
        if (next < end && *next != ',') return false;
        if (own != NULL && tags_match(&one, own, strongly)) return true;
        at = next;
    }
}

/* Whether one of the fields with that name contains the tag: several lines are one list (RFC 9110 5.3). */
static bool fields_contain(const ls_conditions *c, const char *name, size_t name_len, const tag *own, bool strongly)
{
    for (uint32_t i = 0; i < c->head->field_count; i++) {
        const ls_http_field *field = &c->head->fields[i];
        if (ls_text_same(c->bytes + field->name.at, field->name.len, name, name_len) &&
            list_contains(c->bytes + field->value.at, field->value.len, own, strongly))
            return true;
    }
    return false;
}

static const tag *own_tag(const ls_validators *v, tag *room)
{
    const char *at = v->etag;
    return v->etag_len > 0 && parse_tag(&at, v->etag + v->etag_len, room) ? room : NULL;
}

/* ---- evaluation ------------------------------------------------------------------------------------------------- */

static bool date_of(const ls_conditions *c, const ls_http_field *field, int64_t now_s, int64_t *out)
{
    return field != NULL && ls_http_date_parse(c->bytes + field->value.at, field->value.len, now_s, out);
}

enum ls_condition ls_condition_evaluate(const ls_conditions *c, const ls_validators *v, int64_t now_s)
{
    const bool reads = c->head->method == LS_HTTP_GET || c->head->method == LS_HTTP_HEAD;
    tag room;
    const tag *own = own_tag(v, &room);
    int64_t date_s;
    if (c->match) {
        if (!fields_contain(c, "if-match", 8, own, true)) return LS_CONDITION_FAILED;
    } else if (v->dated && date_of(c, c->unmodified_since, now_s, &date_s) && v->modified_s > date_s) {
        return LS_CONDITION_FAILED;
    }
    if (c->none_match) {
        if (!fields_contain(c, "if-none-match", 13, own, false)) return LS_CONDITION_HOLDS;
        return reads ? LS_CONDITION_NOT_MODIFIED : LS_CONDITION_FAILED;
    }
    if (reads && v->dated && date_of(c, c->modified_since, now_s, &date_s) && v->modified_s <= date_s)
        return LS_CONDITION_NOT_MODIFIED;
    return LS_CONDITION_HOLDS;
}

bool ls_condition_range_applies(const ls_conditions *c, const ls_validators *v, int64_t now_s)
{
    if (c->if_range_invalid) return false;
    if (c->if_range == NULL) return true;
    const char *at = c->bytes + c->if_range->value.at, *const end = at + c->if_range->value.len;
    tag room, wanted;
    int64_t date_s;
    if (parse_tag(&at, end, &wanted)) {
        const tag *own = own_tag(v, &room);
        return at == end && own != NULL && tags_match(&wanted, own, true);
    }
    return v->dated && v->modified_s < now_s && date_of(c, c->if_range, now_s, &date_s) && date_s == v->modified_s;
}

/* ---- the tag of a file ------------------------------------------------------------------------------------------ */

static char *put_hex(char *to, uint64_t n, unsigned least)
{
    char digits[16];
    unsigned count = 0;
    for (; n > 0 || count < least; n >>= 4) digits[count++] = "0123456789abcdef"[n & 15];
    while (count > 0) *to++ = digits[--count];
    return to;
}

size_t ls_etag_of_file(uint64_t bytes, int64_t modified_s, uint32_t modified_ns, const char *suffix, size_t suffix_len,
                       char out[LS_ETAG_BYTES])
{
    char *to = out;
    *to++ = '"';
    to = put_hex(to, bytes, 1);
    *to++ = '-';
    to = put_hex(to, (uint64_t)modified_s, 1);
    to = put_hex(to, modified_ns, 8);
    if (suffix_len > LS_ETAG_SUFFIX_BYTES) suffix_len = LS_ETAG_SUFFIX_BYTES;
    memcpy(to, suffix, suffix_len);
    to += suffix_len;
    *to++ = '"';
    return (size_t)(to - out);
}
