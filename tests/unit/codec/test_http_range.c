/* test_http_range.c - the Range field, Content-Range, the parts of multipart/byteranges. */
/* sanitizers: asan; no thread starts */
#include "codec/http_range.h"

#include "support.h"

/* The result as text: "whole", "416", or the ranges, such as "0-499,600-699". The copy is exact-sized. */
static const char *result_of(const char *value, size_t len, uint64_t size)
{
    static char text[1024];
    ls_range ranges[LS_RANGES_MAX];
    unsigned count = 99;
    char *copy = test_copy_exact(value, len);
    const enum ls_range_result result = ls_range_parse(copy, len, size, ranges, &count);
    free(copy);
    if (result == LS_RANGE_WHOLE) return "whole";
    if (result == LS_RANGE_UNSATISFIABLE) return "416";
    assert_in_range(count, 1, LS_RANGES_MAX);
    uint64_t sum = 0;
    char *to = text;
    for (unsigned i = 0; i < count; i++) {
        assert_true(ranges[i].bytes >= 1 && ranges[i].from < size && ranges[i].bytes <= size - ranges[i].from);
        sum += ranges[i].bytes;
        to += sprintf(to, "%s%llu-%llu", i > 0 ? "," : "", (unsigned long long)ranges[i].from,
                      (unsigned long long)(ranges[i].from + ranges[i].bytes - 1));
    }
    assert_true(sum <= size);
    return text;
}

TEST(the_examples_of_the_rfc)
{
    static const struct {
        const char *value, *result;
    } cases[] = {
        /* clang-format off */
        /* RFC 9110 14.1.2, for a representation of 10000 bytes */
        {"bytes=0-499", "0-499"}, {"bytes=500-999", "500-999"}, {"bytes=-500", "9500-9999"},
        {"bytes=9500-", "9500-9999"}, {"bytes=0-0,-1", "0-0,9999-9999"},
        {"bytes= 0-999, 4500-5499, -1000", "0-999,4500-5499,9000-9999"},
        {"bytes=500-600,601-999", "500-999"}, /* they touch */
        {"bytes=500-700,601-999", "500-999"},
        /* unsatisfiable ones are left out */
        {"bytes=10000-", "416"}, {"bytes=10000-10000", "416"}, {"bytes=9999-", "9999-9999"},
        {"bytes=9999-10000", "9999-9999"}, {"bytes=-0", "416"}, {"bytes=-0,0-0", "0-0"},
        {"bytes=20000-,1-2", "1-2"}, {"bytes=-10000", "0-9999"}, {"bytes=-10001", "0-9999"},
        {"bytes=0-", "0-9999"}, {"BYTES=1-1", "1-1"}, {"bytes=1-1,,2-2,", "1-2"}, {"bytes=,1-1", "1-1"},
        {"bytes=1-1 ,\t3-3", "1-1,3-3"}, {"bytes=007-0009", "7-9"},
        /* numbers beyond 64 bits */
        {"bytes=0-99999999999999999999999999", "0-9999"}, {"bytes=99999999999999999999999999-", "416"},
        {"bytes=-99999999999999999999999999", "0-9999"},
        {"bytes=18446744073709551615-18446744073709551615", "416"}, {"bytes=18446744073709551616-0", "whole"},
        /* another unit, or invalid: ignored */
        {"", "whole"}, {"bytes", "whole"}, {"bytes=", "whole"}, {"bytes=,", "whole"}, {"bytes =0-1", "whole"},
        {"lines=0-1", "whole"}, {"none", "whole"}, {"bytes=-", "whole"}, {"bytes=--1", "whole"},
        {"bytes=1", "whole"}, {"bytes=2-1", "whole"}, {"bytes=0-1,2-1", "whole"}, {"bytes=0-1,x", "whole"},
        {"bytes=0-1;2-3", "whole"}, {"bytes=0 -1", "whole"}, {"bytes=0- 1", "whole"}, {"bytes=+0-1", "whole"},
        {"bytes=0-1x", "whole"}, {"bytes=0x0-1", "whole"}, {"bytes=0-1, bytes=2-3", "whole"},
        /* order and overlaps */
        {"bytes=500-599,0-9", "500-599,0-9"}, {"bytes=0-9,20-29,5-24", "0-29"},
        {"bytes=20-29,0-9,5-24", "0-29"}, {"bytes=100-199,0-9,150-159", "100-199,0-9"},
        {"bytes=5-5,3-3,4-4", "3-5"}, {"bytes=0-9,11-19", "0-9,11-19"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(result_of(cases[i].value, strlen(cases[i].value), 10000), cases[i].result);
}

TEST(small_and_empty_representations)
{
    assert_string_equal(result_of("bytes=0-", 8, 1), "0-0");
    assert_string_equal(result_of("bytes=-1", 8, 1), "0-0");
    assert_string_equal(result_of("bytes=1-", 8, 1), "416");
    assert_string_equal(result_of("bytes=0-", 8, 0), "416");
    assert_string_equal(result_of("bytes=0-0", 9, 0), "416");
    assert_string_equal(result_of("bytes=-5", 8, 0), "whole"); /* satisfiable, but no Content-Range can say it */
    assert_string_equal(result_of("bytes=-0", 8, 0), "416");
    assert_string_equal(result_of("bytes=0-18446744073709551615", 28, UINT64_MAX), "0-18446744073709551614");
}

/* The cut text is evaluated as a whole: it never reads past its end, and gives what its own syntax says. */
TEST(every_prefix)
{
    static const char text[] = "bytes=10-19,30-39,-5";
    static const char *const results[] = {
        "whole", "whole", "whole",       "whole", "whole",       "whole",       "whole", /* up to "bytes=" */
        "whole", "whole", "10-99",       "whole", "10-19",       "10-19", /* "1", "10", "10-", "10-1", "10-19", "," */
        "whole", "whole", "10-19,30-99", "whole", "10-19,30-39", "10-19,30-39", "whole", "10-19,30-39,95-99",
    };
    for (size_t n = 0; n < sizeof text; n++) assert_string_equal(result_of(text, n, 100), results[n]);
}

TEST(the_number_of_ranges_is_limited)
{
    char text[256] = "bytes=0-0", *to = text + strlen(text);
    for (unsigned n = 1; n < LS_RANGES_MAX; n++) to += sprintf(to, ",%u-%u", 2 * n, 2 * n);
    assert_int_equal(strncmp(result_of(text, strlen(text), 100), "0-0,2-2,4-4,", 12), 0);
    (void)sprintf(to, ",98-98");
    assert_string_equal(result_of(text, strlen(text), 100), "whole");
    (void)sprintf(to, ",500-"); /* one that is left out counts as well */
    assert_string_equal(result_of(text, strlen(text), 100), "whole");
}

TEST(content_range)
{
    const ls_range range = {42, 1192}, most = {UINT64_MAX - 2, 2};
    char out[LS_CONTENT_RANGE_BYTES + 1];
    out[ls_content_range(&range, 1234, out)] = '\0';
    assert_string_equal(out, "bytes 42-1233/1234");
    out[ls_content_range(NULL, 1234, out)] = '\0';
    assert_string_equal(out, "bytes */1234");
    out[ls_content_range(&most, UINT64_MAX, out)] = '\0';
    assert_string_equal(out, "bytes 18446744073709551613-18446744073709551614/18446744073709551615");
}

TEST(parts)
{
    const uint64_t random[2] = {0x123456789abcdef0, 0xf};
    const ls_range range = {500, 500};
    char boundary[LS_BOUNDARY_BYTES], head[LS_PART_HEAD_BYTES + 15 + 1], end[LS_PARTS_END_BYTES + 1];
    ls_boundary(random, boundary);
    assert_memory_equal(boundary, "0fedcba987654321f000000000000000", LS_BOUNDARY_BYTES);
    head[ls_part_head(boundary, true, "application/pdf", 15, &range, 8000, head)] = '\0';
    assert_string_equal(head, "--0fedcba987654321f000000000000000\r\nContent-Type: application/pdf\r\n"
                              "Content-Range: bytes 500-999/8000\r\n\r\n");
    head[ls_part_head(boundary, false, "a/b", 3, &range, 8000, head)] = '\0';
    assert_string_equal(head, "\r\n--0fedcba987654321f000000000000000\r\nContent-Type: a/b\r\n"
                              "Content-Range: bytes 500-999/8000\r\n\r\n");
    assert_int_equal(ls_parts_end(boundary, end), LS_PARTS_END_BYTES);
    end[LS_PARTS_END_BYTES] = '\0';
    assert_string_equal(end, "\r\n--0fedcba987654321f000000000000000--\r\n");
}

TEST(the_longest_head_of_a_part_has_room)
{
    const uint64_t random[2] = {0, 0};
    const ls_range range = {UINT64_MAX - 2, 2};
    char boundary[LS_BOUNDARY_BYTES], *head = malloc(LS_PART_HEAD_BYTES + 3);
    assert_non_null(head);
    ls_boundary(random, boundary);
    assert_in_range(ls_part_head(boundary, false, "a/b", 3, &range, UINT64_MAX, head), 1, LS_PART_HEAD_BYTES + 3);
    free(head);
}
