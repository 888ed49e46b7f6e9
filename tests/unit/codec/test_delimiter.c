/* test_delimiter.c - the delimiter of a multipart body, in pieces that are cut anywhere. */
/* sanitizers: asan; no thread starts */
#include "codec/delimiter.h"

#include "support.h"

/* The data in front of the delimiter, and what follows from it on: "data|rest", or "data" and the bytes that may be a
 * part of it in parentheses. The pieces end at the positions in `cuts`; every piece is an exact copy. */
static const char *result_of(const char *delimiter, const char *body, const size_t *cuts, unsigned count)
{
    static char text[512];
    char *to = text;
    ls_delimiter d = {delimiter, strlen(delimiter), 0};
    size_t at = 0;
    for (unsigned n = 0; n <= count; n++) {
        const size_t len = (n < count ? cuts[n] : strlen(body)) - at;
        ls_delimiter_run run;
        char *piece = test_copy_exact(body + at, len);
        const bool found = ls_delimiter_next(&d, piece, len, &run);
        assert_true(run.data <= len && run.before < d.len && d.matched < d.len);
        to += sprintf(to, "%.*s%.*s", (int)run.before, delimiter, (int)run.data, piece);
        free(piece);
        if (found) {
            (void)sprintf(to, "|%.*s%s", (int)d.matched, delimiter, body + at + run.data);
            return text;
        }
        at += len;
    }
    (void)sprintf(to, d.matched > 0 ? "(%.*s)" : "%.*s", (int)d.matched, delimiter);
    return text;
}

static const struct {
    const char *body, *result;
} cases[] = {
    /* clang-format off */
    {"", ""}, {"abc", "abc"}, {"\r\n--b", "|\r\n--b"}, {"abc\r\n--b\r\nd", "abc|\r\n--b\r\nd"},
    {"\r\r\n--b--", "\r|\r\n--b--"}, {"\r\n\r\n--\r\n--b", "\r\n\r\n--|\r\n--b"},
    {"\r\n-\r\n--c\r\n--b\r\n--b", "\r\n-\r\n--c|\r\n--b\r\n--b"}, {"\n--b --b-\r", "\n--b --b-(\r)"},
    {"a\r\n-", "a(\r\n-)"}, {"a\r\n--", "a(\r\n--)"}, {"\r\r\r\r", "\r\r\r(\r)"},
    {"\r\nx--b\r-\n--b", "\r\nx--b\r-\n--b"},
    /* clang-format on */
};

TEST(the_delimiter_is_found_wherever_the_body_is_cut)
{
    for (unsigned n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const char *const body = cases[n].body, *const expected = cases[n].result;
        const size_t len = strlen(body);
        size_t every[64];
        for (size_t i = 0; i < len; i++) every[i] = i + 1;
        assert_string_equal(result_of("\r\n--b", body, NULL, 0), expected);
        assert_string_equal(result_of("\r\n--b", body, every, (unsigned)len), expected);
        for (size_t first = 0; first <= len; first++)
            for (size_t second = first; second <= len; second++)
                assert_string_equal(result_of("\r\n--b", body, (size_t[]){first, second}, 2), expected);
    }
}

/* All bodies of seven bytes of those of the delimiter, which has another length each time, in two pieces. */
TEST(no_body_has_another_result_than_a_plain_search)
{
    static const char bytes[] = "\r\n-b", *const delimiters[] = {"\r\n--", "\r\n--b", "\r\n---b"};
    char body[8] = "", expected[32];
    for (unsigned n = 0; n < 1U << 14; n++) {
        for (unsigned i = 0; i < 7; i++) body[i] = bytes[n >> (2 * i) & 3];
        for (unsigned m = 0; m < 3; m++) {
            const size_t cut = (n + m) % 8;
            const char *at = strstr(body, delimiters[m]);
            if (at != NULL) {
                (void)sprintf(expected, "%.*s|%s", (int)(at - body), body, at);
            } else {
                size_t tail = strlen(delimiters[m]);
                while (tail > 7 || strncmp(body + 7 - tail, delimiters[m], tail) != 0) tail--;
                (void)sprintf(expected, tail > 0 ? "%.*s(%s)" : "%.*s%s", (int)(7 - tail), body, body + 7 - tail);
            }
            assert_string_equal(result_of(delimiters[m], body, &cut, 1), expected);
        }
    }
}
