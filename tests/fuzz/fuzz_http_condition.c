/* fuzz_http_condition.c - properties of ranges, conditions and dates for any input: ranges lie in the representation and
 * do not overlap; a parsed date, written again, is the same date; the input as any of the fields of a request is
 * evaluated without a read past its end. */
#include "fuzz.h"

#include "codec/http_condition.h"
#include "codec/http_range.h"
#include "codec/http_text.h"

static void ranges(const char *bytes, size_t len, uint64_t size)
{
    ls_range out[LS_RANGES_MAX];
    unsigned count;
    const enum ls_range_result result = ls_range_parse(bytes, len, size, out, &count);
    if (result != LS_RANGE_PARTIAL) return;
    FUZZ_HOLDS(count >= 1 && count <= LS_RANGES_MAX);
    for (unsigned i = 0; i < count; i++) {
        FUZZ_HOLDS(out[i].bytes >= 1 && out[i].from < size && out[i].bytes <= size - out[i].from);
        for (unsigned j = 0; j < i; j++)
            FUZZ_HOLDS(out[i].from > out[j].from + out[j].bytes || out[j].from > out[i].from + out[i].bytes);
    }
}

static void date(const char *bytes, size_t len)
{
    char again[LS_HTTP_DATE_BYTES];
    int64_t at, back;
    if (!ls_http_date_parse(bytes, len, 1700000000, &at)) return;
    FUZZ_HOLDS(at >= -62167219200 && at <= 253402300800);
    if (at > 253402300799) return; /* a leap second at the end of the last year */
    ls_http_date(at, again);
    FUZZ_HOLDS(ls_http_date_parse(again, sizeof again, 1700000000, &back) && back == at);
}

static void conditions(const char *bytes, size_t len)
{
    static const char *const names[] = {"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
                                        "If-Range", "Range"};
    static const char etag[] = "\"1f4-6500000000000abc\"";
    const ls_validators v = {etag, sizeof etag - 1, true, 784111777};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        /* the name directly before the value, and nothing behind it */
        const size_t name_len = strlen(names[n]);
        char *text = malloc(name_len + len + 1);
        FUZZ_HOLDS(text != NULL);
        memcpy(text, names[n], name_len);
        memcpy(text + name_len, bytes, len);
        char *exact = fuzz_copy_exact(text, name_len + len);
        ls_http_head head = {.method = LS_HTTP_GET, .field_count = 1};
        head.fields[0] = (ls_http_field){{0, (uint32_t)name_len}, {(uint32_t)name_len, (uint32_t)len}};
        ls_conditions found;
        ls_conditions_of(&head, exact, &found);
        const enum ls_condition result = ls_condition_evaluate(&found, &v, 1700000000);
        (void)ls_condition_range_applies(&found, &v, 1700000000);
        FUZZ_HOLDS(found.any == (n != 4));
        if (n == 0 || n == 3) FUZZ_HOLDS(result != LS_CONDITION_NOT_MODIFIED);
        if (n == 1 || n == 2) FUZZ_HOLDS(result != LS_CONDITION_FAILED);
        if (n >= 4) FUZZ_HOLDS(result == LS_CONDITION_HOLDS);
        free(exact);
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy_exact(data, size);
    ranges(bytes, size, 10000);
    ranges(bytes, size, 0);
    ranges(bytes, size, UINT64_MAX);
    date(bytes, size);
    conditions(bytes, size);
    free(bytes);
    return 0;
}
