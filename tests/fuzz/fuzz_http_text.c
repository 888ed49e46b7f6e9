/* fuzz_http_text.c - properties of the small grammars for any input: results are inside the input, every call
 * advances, and decoding an encoded result gives the result again. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <time.h>

#include "codec/http_text.h"

static bool has(const char *bytes, size_t len, char c)
{
    return len > 0 && memchr(bytes, c, len) != NULL;
}

static bool inside(const char *bytes, size_t len, const char *part, size_t part_len)
{
    return part >= bytes && part <= bytes + len && part_len <= (size_t)(bytes + len - part);
}

static void percent(const char *bytes, size_t len, bool plus)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = malloc(len + 1), *again = fuzz_copy_exact(bytes, len), *encoded, *back;
    FUZZ_HOLDS(out != NULL);
    const long n = ls_percent_decode(bytes, len, plus, out);
    FUZZ_HOLDS(n >= -1 && n <= (long)len);
    FUZZ_HOLDS(ls_percent_decode(again, len, plus, again) == n); /* in place */
    if (n >= 0) {
        FUZZ_HOLDS(memcmp(again, out, (size_t)n) == 0 && !has(out, (size_t)n, '\0'));
        FUZZ_HOLDS((size_t)n == len || has(bytes, len, '%'));
        encoded = malloc(3 * (size_t)n + 1);
        back = malloc(3 * (size_t)n + 1);
        FUZZ_HOLDS(encoded != NULL && back != NULL);
        for (long i = 0; i < n; i++) {
            encoded[3 * i] = '%';
            encoded[3 * i + 1] = digits[(uint8_t)out[i] >> 4];
            encoded[3 * i + 2] = digits[(uint8_t)out[i] & 15];
        }
        FUZZ_HOLDS(ls_percent_decode(encoded, 3 * (size_t)n, plus, back) == n);
        FUZZ_HOLDS(memcmp(back, out, (size_t)n) == 0);
        free(encoded);
        free(back);
    } else {
        FUZZ_HOLDS(has(bytes, len, '%') || has(bytes, len, '\0'));
    }
    free(out);
    free(again);
}

/* The number of non-empty parts between separators. */
static size_t parts(const char *bytes, size_t len, char separator)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++) count += bytes[i] != separator && (i == 0 || bytes[i - 1] == separator);
    return count;
}

static void query(const char *bytes, size_t len)
{
    ls_pair pair;
    size_t at = 0, before = 0, count = 0;
    for (; ls_query_next(bytes, len, &at, &pair); before = at, count++) {
        FUZZ_HOLDS(at > before && at <= len);
        FUZZ_HOLDS(inside(bytes, len, pair.name, pair.name_len) && inside(bytes, len, pair.value, pair.value_len));
        FUZZ_HOLDS(!has(pair.name, pair.name_len, '&') && !has(pair.name, pair.name_len, '='));
        FUZZ_HOLDS(!has(pair.value, pair.value_len, '&'));
    }
    FUZZ_HOLDS(at == len && count == parts(bytes, len, '&'));
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void cookies(const char *bytes, size_t len)
{
    ls_pair pair;
    size_t at = 0, before = 0, count = 0;
    for (; ls_cookie_next(bytes, len, &at, &pair); before = at, count++) {
        FUZZ_HOLDS(at > before && at <= len);
        FUZZ_HOLDS(inside(bytes, len, pair.name, pair.name_len) && inside(bytes, len, pair.value, pair.value_len));
        FUZZ_HOLDS(pair.name_len > 0 && !is_blank(pair.name[0]) && !is_blank(pair.name[pair.name_len - 1]));
        FUZZ_HOLDS(!has(pair.name, pair.name_len, ';') && !has(pair.name, pair.name_len, '='));
        FUZZ_HOLDS(!has(pair.value, pair.value_len, ';'));
    }
    FUZZ_HOLDS(count <= parts(bytes, len, ';'));
}

static void classes(const char *bytes, size_t len)
{
    if (ls_is_token(bytes, len)) FUZZ_HOLDS(len > 0 && ls_is_field_value(bytes, len));
    if (ls_is_field_value(bytes, len))
        FUZZ_HOLDS(!has(bytes, len, '\r') && !has(bytes, len, '\n') && !has(bytes, len, '\0'));
    if (len > 1 && ls_is_token(bytes, len)) FUZZ_HOLDS(ls_is_token(bytes, len - 1) && ls_is_token(bytes + 1, len - 1));
}

static void same(const char *bytes, size_t len)
{
    const size_t half = len / 2;
    char *upper = fuzz_copy_exact(bytes, len);
    for (size_t i = 0; i < len; i++)
        if (upper[i] >= 'a' && upper[i] <= 'z') upper[i] = (char)(upper[i] - 32);
    FUZZ_HOLDS(ls_text_same(bytes, len, upper, len));
    FUZZ_HOLDS(len == 0 || !ls_text_same(bytes, len, upper, len - 1));
    FUZZ_HOLDS(ls_text_same(bytes, half, bytes + half, half) == ls_text_same(bytes + half, half, bytes, half));
    free(upper);
}

static void date(const char *bytes, size_t len)
{
    const int64_t first = -62167219200, last = 253402300799; /* the years 0 to 9999 */
    char text[LS_HTTP_DATE_BYTES + 1];
    struct tm tm = {0};
    int64_t at = 0;
    if (len < sizeof at) return;
    memcpy(&at, bytes, sizeof at);
    ls_http_date(at, text);
    text[LS_HTTP_DATE_BYTES] = '\0';
    FUZZ_HOLDS(strlen(text) == LS_HTTP_DATE_BYTES);
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    FUZZ_HOLDS(end != NULL && *end == '\0');
    const int weekday = tm.tm_wday;
    FUZZ_HOLDS((int64_t)timegm(&tm) == (at < first ? first : at > last ? last : at));
    FUZZ_HOLDS(tm.tm_wday == weekday);
    FUZZ_HOLDS(ls_status_text((int)at) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy_exact(data, size);
    percent(bytes, size, false);
    percent(bytes, size, true);
    query(bytes, size);
    cookies(bytes, size);
    classes(bytes, size);
    same(bytes, size);
    date(bytes, size);
    free(bytes);
    return 0;
}
