/* fuzz_h2_head.c - properties of the head of HTTP/2 for any fields. The input is a list of fields, each after the two lengths of its
 * name and its value; the first byte chooses the limits.
 *   - it does not matter how much room there is, and how often it grows;
 *   - every span is inside the bytes; the fields of an accepted head are valid, and are those of the input, with one Host and at
 *     most one Cookie and Content-Length;
 *   - the target is what HTTP/1 would accept from the same method and host. */
#include "fuzz.h"

#include "base/err.h"
#include "codec/http1/http1_parse.h"
#include "codec/http2/h2_head.h"
#include "codec/http_text.h"

static const ls_http_limits usual = {16 * 1024, 8 * 1024, LS_HTTP_FIELDS_MAX}, tight = {400, 24, 4};

/* Collect the fields in `room` bytes, or in as many as are needed (0). */
static int collect(const uint8_t *data, size_t size, const ls_http_limits *limits, size_t room, ls_h2_head *h,
                   ls_http_head *head)
{
    const char *why = NULL;
    int failed = LS_OK;
    memset(head, 0xa5, sizeof *head);
    ls_h2_head_begin(h, head, malloc(room + 1), room, limits);
    while (size >= 2) {
        const size_t name = data[0] < size - 2 ? data[0] : size - 2;
        const size_t value = data[1] < size - 2 - name ? data[1] : size - 2 - name;
        char *const copy = fuzz_copy_exact(data + 2, name + value);
        int result;
        while ((result = ls_h2_head_add(h, copy, name, copy + name, value)) == LS_H2_HEAD_FULL) {
            FUZZ_HOLDS(failed == LS_OK && h->capacity < 2 * limits->head_bytes_max);
            h->bytes = realloc(h->bytes, ++h->capacity);
        }
        FUZZ_HOLDS(failed == LS_OK || result == failed);
        failed = result;
        free(copy);
        data += 2 + name + value;
        size -= 2 + name + value;
    }
    const int result = ls_h2_head_end(h, &why);
    FUZZ_HOLDS(failed == LS_OK || result == failed);
    FUZZ_HOLDS((result < 0) == (why != NULL) && h->used <= h->capacity);
    FUZZ_HOLDS(result == LS_OK || result == LS_H2_HEAD_MALFORMED || result == -400 || result == -414 ||
               result == -417 || result == -431 || result == -501);
    return result;
}

static bool inside(ls_span span, const ls_h2_head *h)
{
    return span.at <= h->used && span.len <= h->used - span.at;
}

static void check_head(const ls_h2_head *h, const ls_http_head *head, const ls_http_limits *limits)
{
    unsigned hosts = 0, cookies = 0, lengths = 0;
    FUZZ_HOLDS(head->version == 20 && head->bytes == h->used && head->field_count <= limits->fields_max);
    FUZZ_HOLDS(h->list_bytes <= limits->head_bytes_max && head->target.len <= limits->head_bytes_max);
    FUZZ_HOLDS(inside(head->method_name, h) && inside(head->target, h) && inside(head->path, h));
    FUZZ_HOLDS(inside(head->query, h) && inside(head->host, h));
    for (uint32_t n = 0; n < head->field_count; n++) {
        const ls_http_field *f = &head->fields[n];
        FUZZ_HOLDS(inside(f->name, h) && inside(f->value, h));
        const char *const name = h->bytes + f->name.at, *const value = h->bytes + f->value.at;
        FUZZ_HOLDS(ls_is_field_value(value, f->value.len));
        FUZZ_HOLDS(ls_h2_field_valid(name, f->name.len, value, f->value.len) ||
                   (head->upgrade && n < 2 && ls_text_same(name, f->name.len, "upgrade", 7)) ||
                   ls_text_same(name, f->name.len, "cookie", 6)); /* empty values make "; " an end */
        hosts += ls_text_same(name, f->name.len, "host", 4);
        cookies += ls_text_same(name, f->name.len, "cookie", 6);
        lengths += ls_text_same(name, f->name.len, "content-length", 14);
    }
    FUZZ_HOLDS(hosts == 1 && cookies <= 1 && lengths == head->has_length);
}

/* An HTTP/1 server behind us accepts the request line and the host. */
static void check_as_http1(const ls_h2_head *h, const ls_http_head *head)
{
    static char text[3 * 16 * 1024];
    static ls_http_head again;
    const ls_http_limits limits = {sizeof text, sizeof text, LS_HTTP_FIELDS_MAX};
    const ls_span method = head->method_name, target = head->target, host = head->host;
    if (head->upgrade) return;
    const int len =
        snprintf(text, sizeof text, "%.*s %.*s HTTP/1.1\r\nHost: %.*s\r\n\r\n", (int)method.len, h->bytes + method.at,
                 (int)target.len, h->bytes + target.at, (int)host.len, h->bytes + host.at);
    FUZZ_HOLDS(ls_http1_parse(text, (size_t)len, 0, &limits, &again, &(ls_http_terms){0}, NULL) == len);
    FUZZ_HOLDS(again.method == head->method && again.path.len == head->path.len && again.host.len == host.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ls_http_head grown_head, fixed_head;
    ls_h2_head grown, fixed;
    if (size == 0) return 0;
    const ls_http_limits *limits = data[0] & 1 ? &tight : &usual;
    const int result = collect(data + 1, size - 1, limits, 0, &grown, &grown_head);
    FUZZ_HOLDS(collect(data + 1, size - 1, limits, 2 * usual.head_bytes_max, &fixed, &fixed_head) == result);
    if (result == LS_OK) {
        check_head(&grown, &grown_head, limits);
        check_as_http1(&grown, &grown_head);
        FUZZ_HOLDS(grown.used == fixed.used && memcmp(grown.bytes, fixed.bytes, fixed.used) == 0);
        FUZZ_HOLDS(grown_head.field_count == fixed_head.field_count);
    }
    free(grown.bytes);
    free(fixed.bytes);
    return 0;
}
