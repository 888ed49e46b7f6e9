/* file_response.c - see file_response.h. */
#include "script/bind/files/file_response.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "codec/http_range.h"
#include "codec/http_text.h"
#include "script/core/lua/push.h"

enum { SLICES_MAX = 2 * LS_RANGES_MAX + 1, LINES_ROOM = 256 + LS_FILE_LINES_MAX };

/* The lines of the file as the response, which stand after those of the handler. */
typedef struct file_lines {
    ls_validators v;
    char tag[LS_ETAG_BYTES]; /* of a part */
    size_t len, rest;        /* from `rest` on: what a 304 with a tag leaves out */
    char bytes[LINES_ROOM];
} file_lines;

static void add(file_lines *to, const char *bytes, size_t len)
{
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
}

static void compose(const ls_file_answer *a, file_lines *l)
{
    const ls_cached_file *entry = a->entry;
    l->v = (ls_validators){
        .etag = entry->etag, .etag_len = entry->etag_len, .dated = entry->dated, .modified_s = entry->info.modified_s};
    if (a->part) {
        char suffix[LS_ETAG_SUFFIX_BYTES];
        const int len =
            snprintf(suffix, sizeof suffix, "-%llx-%llx", (unsigned long long)a->from, (unsigned long long)a->bytes);
        l->v.etag = l->tag;
        l->v.etag_len = ls_etag_of_info(&entry->info, suffix, (size_t)len, l->tag);
    }
    if (a->without_tag) l->v.etag_len = 0;
    l->len = 0;
    if (l->v.etag_len > 0) {
        add(l, "ETag: ", 6);
        add(l, l->v.etag, l->v.etag_len);
        add(l, "\r\n", 2);
    }
    add(l, a->lines, a->lines_len);
    l->rest = l->len;
    add(l, entry->lines + entry->etag_line_len, entry->lines_len - (size_t)entry->etag_line_len);
}

static bool find_line(const file_lines *l, const char *name, size_t len, ls_pair *out)
{
    for (size_t at = 0; ls_lines_next(l->bytes, l->len, &at, out);)
        if (ls_text_same(out->name, out->name_len, name, len)) return true;
    return false;
}

/* Whether a field that the handler has set stays. */
static bool is_of_handler(const char *name, size_t len)
{
    return ls_text_same(name, len, "cache-control", 13) || ls_text_same(name, len, "etag", 4) ||
           ls_text_same(name, len, "last-modified", 13) || ls_text_same(name, len, "accept-ranges", 13);
}

/* Add the lines to those of the handler, one by one. */
static int merge_lines(ls_request *r, const file_lines *l)
{
    ls_pair n;
    for (size_t at = 0; ls_lines_next(l->bytes, l->len, &at, &n);) {
        const bool adds = ls_text_same(n.name, n.name_len, "vary", 4);
        if (is_of_handler(n.name, n.name_len) && ls_exchange_has_field(r->x, n.name, n.name_len)) continue;
        const int err = ls_exchange_header(r->state->ctx, r->x, n.name, n.name_len, n.value, n.value_len, !adds);
        if (err < 0) return err;
    }
    return LS_OK;
}

static int put_lines(ls_request *r, const file_lines *l)
{
    if (r->x->fields_len > 0) return merge_lines(r, l);
    return ls_exchange_lines(r->state->ctx, r->x, l->bytes, l->len);
}

/* The validators of the response, of which the handler may have set some. */
static void own_validators(const ls_exchange *x, ls_validators *v)
{
    size_t len;
    const char *own = ls_exchange_find(x, "etag", 4, &len);
    if (own != NULL) {
        v->etag = own;
        v->etag_len = len;
    }
    if (ls_exchange_has_field(x, "last-modified", 13)) v->dated = false;
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

static uint64_t size_of(const ls_file_answer *a)
{
    return a->part ? a->bytes : a->entry->info.bytes;
}

static int respond(ls_request *r, const ls_file_answer *a, file_lines *l)
{
    ls_exchange *x = r->x;
    const bool reads = x->head.method == LS_HTTP_GET || x->head.method == LS_HTTP_HEAD;
    const uint64_t size = size_of(a);
    ls_conditions conditions = {0};
    ls_range ranges[LS_RANGES_MAX];
    unsigned count = 0;
    if (x->status == 200 && reads) ls_conditions_of(&x->head, x->bytes, &conditions);
    enum ls_range_result range = LS_RANGE_WHOLE;
    if (conditions.any) {
        const int64_t now_s = ls_clock_wall_s();
        own_validators(x, &l->v);
        switch (ls_condition_evaluate(&conditions, &l->v, now_s)) {
        case LS_CONDITION_FAILED: ls_exchange_drop_content(x); return ls_request_respond_text(r, 412);
        case LS_CONDITION_NOT_MODIFIED: {
            if (l->v.etag_len > 0) l->len = l->rest; /* RFC 9110 15.4.5: the tag is enough */
            const int err = put_lines(r, l);
            return err < 0 ? err : respond_empty(r, 304);
        }
        case LS_CONDITION_HOLDS: break;
        }
        range = evaluate_range(&conditions, &l->v, now_s, size, ranges, &count);
        if (range == LS_RANGE_UNSATISFIABLE) return respond_unsatisfiable(r, size);
    }
    const int err = put_lines(r, l);
    if (err < 0) return err;
    if (range == LS_RANGE_PARTIAL) return respond_ranges(r, a, ranges, count, size);
    ls_slice slice = ls_cached_file_slice(a->entry, a->from, size, x->secure);
    return respond_slices(r, &slice, 1, a->type);
}

/* The tag of the handler is that of another representation. */
static void drop_tag_if_encoded(ls_request *r, const ls_file_answer *a)
{
    if (a->encoded) ls_exchange_remove(r->x, "etag", 4);
}

int ls_file_respond(ls_request *r, const ls_file_answer *a)
{
    file_lines lines;
    drop_tag_if_encoded(r, a);
    compose(a, &lines);
    return respond(r, a, &lines);
}

/* ---- described
 * ---------------------------------------------------------------------------------------------------- */

typedef struct described {
    ls_answer_later base; /* first */
    ls_file_answer answer;
    file_lines lines;
} described;

static int described_respond(ls_request *r, ls_answer_later *later)
{
    described *d = (described *)(void *)later;
    return respond(r, &d->answer, &d->lines);
}

static int described_push_field(lua_State *L, ls_answer_later *later, const char *name, size_t len)
{
    const described *d = (const described *)(const void *)later;
    ls_pair found;
    if (ls_text_same(name, len, "content-type", 12)) return ls_push_text(L, d->answer.type);
    if (ls_text_same(name, len, "content-length", 14)) {
        lua_pushfstring(L, "%I", (LUAI_UACINT)size_of(&d->answer));
        return 1;
    }
    return find_line(&d->lines, name, len, &found) ? ls_push_bytes(L, found.value, found.value_len) : ls_push_nil(L);
}

static void described_remove_field(ls_answer_later *later, const char *name, size_t len)
{
    described *d = (described *)(void *)later;
    file_lines *l = &d->lines;
    ls_pair found;
    if (ls_text_same(name, len, "etag", 4)) l->v.etag_len = 0;
    if (ls_text_same(name, len, "last-modified", 13)) l->v.dated = false;
    while (find_line(l, name, len, &found)) {
        char *const from = l->bytes + (found.name - l->bytes),
                    *to = l->bytes + (found.value - l->bytes) + found.value_len + 2;
        const size_t bytes = (size_t)(to - from);
        if (from < l->bytes + l->rest) l->rest -= bytes;
        l->len -= bytes;
        memmove(from, to, l->len - (size_t)(from - l->bytes));
    }
}

static void described_drop(ls_answer_later *later)
{
    described *d = (described *)(void *)later;
    ls_cached_file_drop(d->answer.entry);
    free(d);
}

int ls_file_describe(ls_request *r, const ls_file_answer *a)
{
    described *d = malloc(sizeof *d);
    if (d == NULL) return LS_ENOMEM;
    d->base = (ls_answer_later){described_respond, described_push_field, described_remove_field, described_drop};
    d->answer = *a;
    d->answer.lines = NULL; /* those of the caller */
    drop_tag_if_encoded(r, a);
    compose(a, &d->lines);
    (void)ls_block_hold(ls_external_block(&a->entry->external));
    ls_request_describe_later(r, &d->base);
    return LS_OK;
}
