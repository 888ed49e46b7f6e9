/* fuzz_response_copy.c - properties of stored responses that are read from a second store, whose files anybody may have
 * written: one that is accepted has whole lines without fields of a connection, keeps its texts, and can be found only by
 * a request that selects it; the invariants of the cache hold; all memory is freed.
 *
 * The first bytes choose the status and the lengths of the texts, which follow. */
#include "fuzz.h"

#include "codec/http1/http1_parse.h"
#include "http/proxy/response_cache.h"

typedef struct input {
    const char *at;
    size_t left;
} input;

static unsigned number(input *in)
{
    if (in->left == 0) return 0;
    in->left--;
    return (unsigned char)*in->at++;
}

/* The next bytes, in memory of exactly their length. The caller frees it. */
static ls_text text(input *in, size_t len)
{
    if (len > in->left) len = in->left;
    const ls_text out = {fuzz_copy_exact(in->at, len), len};
    in->at += len;
    in->left -= len;
    return out;
}

static void check(const ls_stored *entry, ls_text key, ls_text lines, ls_text body)
{
    ls_pair field;
    size_t at = 0;
    FUZZ_HOLDS(entry->status >= 200 && entry->status <= 599);
    FUZZ_HOLDS(entry->body.len == body.len && memcmp(entry->body.ptr, body.ptr, body.len) == 0);
    FUZZ_HOLDS(entry->key.len == key.len && memcmp(entry->key.ptr, key.ptr, key.len) == 0);
    FUZZ_HOLDS(entry->lines.len == lines.len);
    while (ls_lines_next(entry->lines.ptr, entry->lines.len, &at, &field)) {
        FUZZ_HOLDS(field.name_len > 0 && !ls_proxy_is_hop(field.name, field.name_len));
        FUZZ_HOLDS(memchr(field.value, '\r', field.value_len) == NULL &&
                   memchr(field.value, '\n', field.value_len) == NULL);
    }
    FUZZ_HOLDS(at == lines.len);
    FUZZ_HOLDS(entry->validators.etag == NULL ||
               (entry->validators.etag >= entry->lines.ptr && entry->validators.etag <= entry->lines.ptr + lines.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: h\r\nlang: de\r\n\r\n";
    static const ls_http_limits limits = {1000, 1000, 100};
    static const size_t bytes_max = 4096;
    input in = {(const char *)data, size};
    ls_shared_object *object;
    ls_exchange x = {.bytes = request};
    ls_stored *found;
    ls_fill *fill;
    FUZZ_HOLDS(ls_response_cache_kind.open(&bytes_max, &object) == LS_OK);
    FUZZ_HOLDS(ls_http1_parse(request, sizeof request - 1, 0, &limits, &x.head, &(ls_http_terms){0}, NULL) ==
               (int)sizeof request - 1);
    ls_response_cache *cache = (ls_response_cache *)(void *)object;
    const ls_selecting by = {.x = &x, .lines = {"", 0}};
    while (in.left > 0) {
        const int status = (int)(number(&in) * 4 + 100);
        const unsigned lens[] = {number(&in), number(&in), number(&in), number(&in)};
        const ls_freshness fresh = {.lifetime_ms = lens[0]};
        const ls_text key = text(&in, lens[0]), select = text(&in, lens[1]), lines = text(&in, lens[2]);
        const ls_text body = text(&in, lens[3]);
        ls_stored *entry = ls_stored_read(status, &fresh, key, select, lines, body);
        if (entry != NULL) {
            check(entry, key, lines, body);
            FUZZ_HOLDS(ls_response_cache_claim(cache, key, 0, NULL, &fill) == LS_OK);
            FUZZ_HOLDS(ls_fill_restore(fill, entry));
            ls_fill_end(fill, NULL, false);
            ls_stored_drop(entry);
            const int result = ls_response_cache_find(cache, key, &by, &found);
            if (result == LS_OK) ls_stored_drop(found);
            FUZZ_HOLDS(select.len > 0 || result == LS_OK);
        }
        FUZZ_HOLDS(ls_response_cache_check(cache));
        free((char *)(uintptr_t)key.ptr);
        free((char *)(uintptr_t)select.ptr);
        free((char *)(uintptr_t)lines.ptr);
        free((char *)(uintptr_t)body.ptr);
    }
    ls_response_cache_kind.close(object);
    return 0;
}
