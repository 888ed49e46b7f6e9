/* file_response.c - see file_response.h. */
#include "script/bind/files/file_response.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "codec/http_range.h"
#include "codec/http_text.h"

enum { SLICES_MAX = 2 * LS_RANGES_MAX + 1, TEXT_BYTES = 256 + LS_FILE_LINES_MAX };

typedef struct text { /* lines that are being collected */
    size_t len;
    char bytes[TEXT_BYTES];
} text;

static void text_add(text *to, const char *bytes, size_t len)
{
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
}

/* Whether a field that the handler has set stays. */
static bool is_of_handler(const char *name, size_t len)
{
    return ls_text_same(name, len, "cache-control", 13) || ls_text_same(name, len, "last-modified", 13) ||
           ls_text_same(name, len, "accept-ranges", 13);
}

/* Add the lines to those of the handler, one by one. */
static int merge_lines(ls_request *r, const char *at, size_t len)
{
    const char *const end = at + len;
    while (at < end) {
        const char *colon = memchr(at, ':', (size_t)(end - at)), *stop = memchr(at, '\r', (size_t)(end - at));
        const size_t name_len = (size_t)(colon - at);
        const bool adds = ls_text_same(at, name_len, "vary", 4);
        int err = LS_OK;
        if (!is_of_handler(at, name_len) || !ls_exchange_has_field(r->x, at, name_len))
            err = ls_exchange_header(r->state->ctx, r->x, at, name_len, colon + 2, (size_t)(stop - colon - 2), !adds);
        if (err < 0) return err;
        at = stop + 2;
    }
    return LS_OK;
}

static int put_lines(ls_request *r, const text *lines)
{
    if (r->x->fields_len > 0) return merge_lines(r, lines->bytes, lines->len);
    return ls_exchange_lines(r->state->ctx, r->x, lines->bytes, lines->len);
}

/* Collect the lines that describe the representation. `v` receives its validators, of which the handler may have set some;
 * `tag` is room for its tag. */
static void describe(const ls_exchange *x, const ls_file_answer *a, char tag[LS_ETAG_BYTES], ls_validators *v,
                     text *lines)
{
    const ls_cached_file *entry = a->entry;
    size_t own_len = 0;
    const char *own = a->coded ? NULL : ls_exchange_find(x, "etag", 4, &own_len);
    *v = (ls_validators){
        .etag = entry->etag, .etag_len = entry->etag_len, .dated = entry->dated, .modified_s = entry->info.modified_s};
    if (a->part) {
        char suffix[LS_ETAG_SUFFIX_BYTES];
        const int len =
            snprintf(suffix, sizeof suffix, "-%llx-%llx", (unsigned long long)a->from, (unsigned long long)a->bytes);
        v->etag = tag;
        v->etag_len = ls_etag_of_file(entry->info.bytes, entry->info.modified_s, entry->info.modified_ns, suffix,
                                      (size_t)len, tag);
    }
    if (a->without_tag) v->etag_len = 0;
    if (ls_exchange_has_field(x, "last-modified", 13)) v->dated = false;
    if (own != NULL) {
        v->etag = own;
        v->etag_len = own_len;
    } else if (v->etag_len > 0) {
        text_add(lines, "ETag: ", 6);
        text_add(lines, v->etag, v->etag_len);
        text_add(lines, "\r\n", 2);
    }
    text_add(lines, a->lines, a->lines_len);
}

static void add_rest(const ls_cached_file *entry, text *lines) /* Accept-Ranges, Last-Modified */
{
    text_add(lines, entry->lines + entry->etag_line_len, entry->lines_len - (size_t)entry->etag_line_len);
}

static int respond_empty(ls_request *r, int status)
{
    ls_exchange *x = r->x;
    x->status = status;
    x->type = NULL;
    x->length = -1;
    return ls_exchange_respond(r->state->ctx, x, NULL, 0);
}

static int respond_slices(ls_request *r, ls_slice *slices, unsigned count, const char *type)
{
    ls_exchange *x = r->x;
    x->type = type;
    x->length = -1;
    return ls_exchange_respond(r->state->ctx, x, slices, count);
}

static int put_content_range(ls_request *r, const ls_range *range, uint64_t size)
{
    char value[LS_CONTENT_RANGE_BYTES];
    const size_t len = ls_content_range(range, size, value);
    return ls_exchange_header(r->state->ctx, r->x, "Content-Range", 13, value, len, true);
}

static int respond_unsatisfiable(ls_request *r, uint64_t size)
{
    ls_exchange_drop_content(r->x);
    const int err = put_content_range(r, NULL, size);
    return err < 0 ? err : ls_request_respond_text(r, 416);
}

/* ---- several ranges --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t n) /* the finalizer of splitmix64 */
{
    n = (n ^ n >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    n = (n ^ n >> 27) * UINT64_C(0x94d049bb133111eb);
    return n ^ n >> 31;
}

static int put_multipart_type(ls_request *r, const char boundary[LS_BOUNDARY_BYTES])
{
    char value[sizeof LS_MULTIPART_TYPE - 1 + LS_BOUNDARY_BYTES];
    memcpy(value, LS_MULTIPART_TYPE, sizeof LS_MULTIPART_TYPE - 1);
    memcpy(value + sizeof LS_MULTIPART_TYPE - 1, boundary, LS_BOUNDARY_BYTES);
    return ls_exchange_header(r->state->ctx, r->x, "Content-Type", 12, value, sizeof value, true);
}

/* The type for the heads of the parts: that of the handler or of the file. */
static const char *type_of(const ls_request *r, const ls_file_answer *a, size_t *len)
{
    const char *own = r->x->has_type ? ls_exchange_find(r->x, "content-type", 12, len) : NULL;
    if (own != NULL) return own;
    *len = strlen(a->type);
    return a->type;
}

static int respond_parts(ls_request *r, const ls_file_answer *a, const ls_range *ranges, unsigned count, uint64_t size)
{
    const uint64_t now_ns = ls_clock_ns(), random[2] = {mix(now_ns ^ r->x->id << 32), mix(now_ns + (uintptr_t)r)};
    char boundary[LS_BOUNDARY_BYTES];
    ls_slice slices[SLICES_MAX];
    size_t type_len, at = 0;
    unsigned n = 0;
    const char *type = type_of(r, a, &type_len);
    const size_t room = count * (LS_PART_HEAD_BYTES + type_len) + LS_PARTS_END_BYTES;
    if (room > LS_BLOCK_LARGE) return LS_ELIMIT;
    ls_block *heads = ls_block_get(r->state->ctx->pool, room <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (heads == NULL) return LS_ENOMEM;
    ls_boundary(random, boundary);
    for (unsigned i = 0; i < count; i++) {
        const size_t len = ls_part_head(boundary, i == 0, type, type_len, &ranges[i], size, heads->data + at);
        slices[n++] = ls_slice_of(heads, at, len);
        slices[n++] = ls_cached_file_slice(a->entry, a->from + ranges[i].from, ranges[i].bytes, r->x->secure);
        at += len;
    }
    slices[n++] = ls_slice_of(heads, at, ls_parts_end(boundary, heads->data + at));
    ls_block_drop(heads);
    const int err = put_multipart_type(r, boundary);
    if (err < 0) {
        ls_slices_drop(slices, n);
        return err;
    }
    r->x->status = 206;
    return respond_slices(r, slices, n, NULL);
}

static int respond_ranges(ls_request *r, const ls_file_answer *a, const ls_range *ranges, unsigned count,
                          uint64_t size)
{
    if (count > 1) return respond_parts(r, a, ranges, count, size);
    const int err = put_content_range(r, &ranges[0], size);
    if (err < 0) return err;
    ls_slice slice = ls_cached_file_slice(a->entry, a->from + ranges[0].from, ranges[0].bytes, r->x->secure);
    r->x->status = 206;
    return respond_slices(r, &slice, 1, a->type);
}

/* ---- the response ----------------------------------------------------------------------------------------------- */

/* The Range field, if it applies. RFC 9110 14.2: it is defined for GET only. */
static enum ls_range_result evaluate_range(const ls_conditions *c, const ls_validators *v, int64_t now_s,
                                           uint64_t size, ls_range *ranges, unsigned *count)
{
    if (c->range == NULL || c->head->method != LS_HTTP_GET || !ls_condition_range_applies(c, v, now_s))
        return LS_RANGE_WHOLE;
    return ls_range_parse(c->bytes + c->range->value.at, c->range->value.len, size, ranges, count);
}

int ls_file_respond(ls_request *r, const ls_file_answer *a)
{
    ls_exchange *x = r->x;
    const bool reads = x->head.method == LS_HTTP_GET || x->head.method == LS_HTTP_HEAD;
    const uint64_t size = a->part ? a->bytes : a->entry->info.bytes;
    ls_conditions conditions = {0};
    ls_range ranges[LS_RANGES_MAX];
    unsigned count = 0;
    char tag[LS_ETAG_BYTES];
    ls_validators v;
    text lines;
    lines.len = 0;
    describe(x, a, tag, &v, &lines);
    if (x->status == 200 && reads) ls_conditions_of(&x->head, x->bytes, &conditions);
    enum ls_range_result range = LS_RANGE_WHOLE;
    if (conditions.any) {
        const int64_t now_s = ls_clock_wall_s();
        switch (ls_condition_evaluate(&conditions, &v, now_s)) {
        case LS_CONDITION_FAILED: ls_exchange_drop_content(x); return ls_request_respond_text(r, 412);
        case LS_CONDITION_NOT_MODIFIED: {
            if (v.etag_len == 0) add_rest(a->entry, &lines); /* RFC 9110 15.4.5: the tag is enough */
            const int err = put_lines(r, &lines);
            return err < 0 ? err : respond_empty(r, 304);
        }
        case LS_CONDITION_HOLDS: break;
        }
        range = evaluate_range(&conditions, &v, now_s, size, ranges, &count);
        if (range == LS_RANGE_UNSATISFIABLE) return respond_unsatisfiable(r, size);
    }
    add_rest(a->entry, &lines);
    const int err = put_lines(r, &lines);
    if (err < 0) return err;
    if (range == LS_RANGE_PARTIAL) return respond_ranges(r, a, ranges, count, size);
    ls_slice slice = ls_cached_file_slice(a->entry, a->from, size, x->secure);
    return respond_slices(r, &slice, 1, a->type);
}

/* ---- described ---------------------------------------------------------------------------------------------------- */

typedef struct described {
    ls_answer_later base; /* first */
    ls_file_answer answer;
    char lines[];
} described;

static int described_respond(ls_request *r, ls_answer_later *later)
{
    return ls_file_respond(r, &((described *)(void *)later)->answer);
}

static void described_drop(ls_answer_later *later)
{
    described *d = (described *)(void *)later;
    ls_cached_file_drop(d->answer.entry);
    free(d);
}

int ls_file_describe(ls_request *r, const ls_file_answer *a)
{
    described *d = malloc(sizeof *d + a->lines_len);
    if (d == NULL) return LS_ENOMEM;
    d->base = (ls_answer_later){described_respond, described_drop};
    d->answer = *a;
    if (a->lines_len > 0) memcpy(d->lines, a->lines, a->lines_len);
    d->answer.lines = d->lines;
    (void)ls_block_hold(ls_external_block(&a->entry->external));
    ls_request_describe_later(r, &d->base);
    return LS_OK;
}
