/* fuzz_http1_parse.c - properties of the head parser for any input:
 *   - every span is inside the head;
 *   - an accepted head has at most one Host, and one framing of the body;
 *   - a prefix gives the head of the whole, LS_HTTP_MORE, or the error of the whole; resuming gives the same
 * results. */
#include "fuzz.h"

#include "codec/http1/http1_parse.h"
#include "codec/http_text.h"

static void inside(ls_span span, int bytes)
{
    FUZZ_HOLDS(span.at <= (uint32_t)bytes && span.len <= (uint32_t)bytes - span.at);
}

static bool same_span(ls_span a, ls_span b)
{
    return a.at == b.at && a.len == b.len;
}

static void check_fields(const ls_http_head *head, const char *bytes, int n, bool chunked)
{
    unsigned hosts = 0, lengths = 0, codings = 0;
    for (uint32_t i = 0; i < head->field_count; i++) {
        const ls_http_field *f = &head->fields[i];
        const char *name = bytes + f->name.at, *value = bytes + f->value.at;
        inside(f->name, n);
        inside(f->value, n);
        FUZZ_HOLDS(ls_is_token(name, f->name.len));
        FUZZ_HOLDS(ls_is_field_value(value, f->value.len));
        FUZZ_HOLDS(f->value.len == 0 || (value[0] > ' ' || value[0] < 0));
        FUZZ_HOLDS(f->value.len == 0 || (value[f->value.len - 1] > ' ' || value[f->value.len - 1] < 0));
        hosts += ls_text_same(name, f->name.len, "host", 4);
        lengths += ls_text_same(name, f->name.len, "content-length", 14);
        codings += ls_text_same(name, f->name.len, "transfer-encoding", 17);
    }
    FUZZ_HOLDS(hosts <= 1 && (hosts == 1 || head->version == 10));
    FUZZ_HOLDS(lengths == head->has_length && codings == chunked && lengths + codings <= 1);
}

static void check_head(const ls_http_head *head, const char *bytes, int n, const ls_http_limits *limits, bool chunked)
{
    FUZZ_HOLDS(head->bytes == (uint32_t)n && (uint32_t)n <= limits->head_bytes_max);
    FUZZ_HOLDS(memcmp(bytes + n - 4, "\r\n\r\n", 4) == 0);
    FUZZ_HOLDS(head->field_count <= limits->fields_max && head->field_count <= LS_HTTP_FIELDS_MAX);
    FUZZ_HOLDS((head->version == 10 || head->version == 11) && (unsigned)head->method < LS_HTTP_METHODS);
    FUZZ_HOLDS(head->has_length || head->content_length == 0);
    FUZZ_HOLDS(head->content_length <= INT64_MAX);
    FUZZ_HOLDS(head->target.len > 0 && head->target.len <= limits->target_bytes_max);
    FUZZ_HOLDS((head->path.len == 0) == head->path_is_root);
    FUZZ_HOLDS(head->has_query || head->query.len == 0);
    inside(head->method_name, n);
    inside(head->target, n);
    inside(head->path, n);
    inside(head->query, n);
    inside(head->host, n);
    FUZZ_HOLDS(ls_is_token(bytes + head->method_name.at, head->method_name.len));
    check_fields(head, bytes, n, chunked);
}

static void same_head(const ls_http_head *a, const ls_http_head *b)
{
    FUZZ_HOLDS(a->method == b->method && a->version == b->version && a->has_body == b->has_body);
    FUZZ_HOLDS(a->has_length == b->has_length && a->content_length == b->content_length && a->upgrade == b->upgrade);
    FUZZ_HOLDS(same_span(a->method_name, b->method_name) && same_span(a->target, b->target));
    FUZZ_HOLDS(same_span(a->path, b->path) && same_span(a->query, b->query) && same_span(a->host, b->host));
    FUZZ_HOLDS(a->path_is_root == b->path_is_root && a->has_query == b->has_query);
    FUZZ_HOLDS(a->bytes == b->bytes && a->field_count == b->field_count);
    FUZZ_HOLDS(memcmp(a->fields, b->fields, a->field_count * sizeof a->fields[0]) == 0);
}

typedef struct parsed {
    ls_http_head head;
    ls_http_terms terms;
} parsed;

static void same(const parsed *a, const parsed *b)
{
    same_head(&a->head, &b->head);
    FUZZ_HOLDS(a->terms.keep_alive == b->terms.keep_alive && a->terms.chunked == b->terms.chunked);
    FUZZ_HOLDS(a->terms.expect_continue == b->terms.expect_continue);
}

static int parse(const uint8_t *data, size_t size, size_t seen, const ls_http_limits *limits, parsed *to)
{
    char *copy = fuzz_copy_exact(data, size);
    const char *why = NULL;
    int n;
    memset(to, 0xa5, sizeof *to); /* to find members that the parser does not set */
    n = ls_http1_parse(copy, size, seen, limits, &to->head, &to->terms, &why);
    FUZZ_HOLDS(n <= (int)size && (n < 0) == (why != NULL));
    if (n > 0) check_head(&to->head, copy, n, limits, to->terms.chunked);
    free(copy);
    return n;
}

static void try_limits(const uint8_t *data, size_t size, const ls_http_limits *limits)
{
    static parsed whole, part;
    const int whole_result = parse(data, size, 0, limits, &whole);
    const size_t need = whole_result > 0 ? (size_t)whole_result : size;
    const size_t step = 1 + need / 128; /* for long inputs not every prefix */
    size_t seen = 0;
    FUZZ_HOLDS(whole_result >= 0 || whole_result == -400 || whole_result == -414 || whole_result == -417 ||
               whole_result == -431 || whole_result == -501 || whole_result == -505);
    if (whole_result > 0) {
        FUZZ_HOLDS(parse(data, need, 0, limits, &part) == whole_result);
        same(&whole, &part);
    }
    for (size_t n = 0; n < need; n += step) {
        int early = parse(data, n, 0, limits, &part), late;
        FUZZ_HOLDS(early == LS_HTTP_MORE || (early < 0 && early == whole_result));
        if (early != LS_HTTP_MORE || n == 0) continue;
        late = parse(data, size, n, limits, &part);
        FUZZ_HOLDS(late == whole_result ||
                   (late == LS_HTTP_MORE && whole_result < 0)); /* an error within a line is found at its end */
        if (late > 0) same(&whole, &part);
    }
    for (size_t n = 1; n <= need; n = n + step <= need || n == need ? n + step : need) {
        int now = parse(data, n, seen, limits, &part);
        FUZZ_HOLDS(now == LS_HTTP_MORE || now == whole_result);
        if (now > 0) same(&whole, &part);
        if (now != LS_HTTP_MORE) break;
        FUZZ_HOLDS(n < need || whole_result <= 0);
        seen = n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ls_http_limits usual = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX}, tight = {96, 24, 3};
    try_limits(data, size, &usual);
    try_limits(data, size, &tight);
    return 0;
}
