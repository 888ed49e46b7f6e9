/* test_http_condition.c - conditional requests (RFC 9110 13), entity tags and dates. */
/* sanitizers: asan; no thread starts */
#include "codec/http1/http1_parse.h"
#include "codec/http_condition.h"

#include "codec/http_text.h"
#include "support.h"

#define EARLIER "Sat, 29 Oct 1994 19:43:30 GMT"
#define SAME    "Sat, 29 Oct 1994 19:43:31 GMT"
#define LATER   "Sat, 29 Oct 1994 19:43:32 GMT"

enum { MODIFIED_S = 783459811, NOW_S = 1700000000 };

static const ls_http_limits limits = {65536, 8192, LS_HTTP_FIELDS_MAX};

typedef struct asked {
    char *text;
    ls_http_head head;
    ls_conditions conditions;
} asked;

static void ask(asked *a, const char *method, const char *fields)
{
    char text[2048];
    const int len = snprintf(text, sizeof text, "%s / HTTP/1.1\r\nHost: h\r\n%s\r\n", method, fields);
    a->text = test_copy_exact(text, (size_t)len);
    assert_int_equal(ls_http1_parse(a->text, (size_t)len, 0, &limits, &a->head, &(ls_http_terms){0}, NULL), len);
    ls_conditions_of(&a->head, a->text, &a->conditions);
}

static const char *answer(const char *method, const char *fields, const char *etag, bool dated)
{
    static const char *const names[] = {"200", "304", "412"};
    const ls_validators v = {etag, etag != NULL ? strlen(etag) : 0, dated, MODIFIED_S};
    asked a;
    ask(&a, method, fields);
    const enum ls_condition result = ls_condition_evaluate(&a.conditions, &v, NOW_S);
    free(a.text);
    return names[result];
}

TEST(the_table)
{
    static const char strong[] = "\"xyzzy\"", weak[] = "W/\"xyzzy\"";
    static const struct {
        const char *method, *fields, *etag, *result;
    } cases[] = {
        /* clang-format off */
        {"GET", "", strong, "200"},
        /* If-Match: strong comparison (13.1.1) */
        {"GET", "If-Match: \"xyzzy\"\r\n", strong, "200"}, {"PUT", "If-Match: \"xyzzy\"\r\n", strong, "200"},
        {"GET", "If-Match: \"other\"\r\n", strong, "412"},
        {"GET", "If-Match: \"r2d2xxxx\", \"xyzzy\", \"c3piozzzz\"\r\n", strong, "200"},
        {"GET", "If-Match: W/\"xyzzy\"\r\n", strong, "412"}, {"GET", "If-Match: \"xyzzy\"\r\n", weak, "412"},
        {"GET", "If-Match: *\r\n", strong, "200"}, {"GET", "If-Match: *\r\n", NULL, "200"},
        {"GET", "If-Match: \"xyzzy\"\r\n", NULL, "412"}, {"GET", "If-Match:\r\n", strong, "412"},
        {"GET", "If-Match: xyzzy\r\n", strong, "412"},
        {"GET", "If-Match: \"a\"\r\nIf-Match: \"xyzzy\"\r\n", strong, "200"},
        /* If-None-Match: weak comparison (13.1.2) */
        {"GET", "If-None-Match: \"xyzzy\"\r\n", strong, "304"},
        {"HEAD", "If-None-Match: \"xyzzy\"\r\n", strong, "304"},
        {"PUT", "If-None-Match: \"xyzzy\"\r\n", strong, "412"},
        {"GET", "If-None-Match: W/\"xyzzy\"\r\n", strong, "304"},
        {"GET", "If-None-Match: \"xyzzy\"\r\n", weak, "304"},
        {"GET", "If-None-Match: W/\"xyzzy\", W/\"r2d2xxxx\"\r\n", weak, "304"},
        {"GET", "If-None-Match: \"XYZZY\"\r\n", strong, "200"},
        {"GET", "If-None-Match: w/\"xyzzy\"\r\n", strong, "200"}, /* the W is case-sensitive */
        {"GET", "If-None-Match: *\r\n", strong, "304"}, {"PUT", "If-None-Match: *\r\n", strong, "412"},
        {"GET", "If-None-Match: \"a,b\" , \"xyzzy\"\r\n", strong, "304"}, /* a comma inside a tag */
        {"GET", "If-None-Match: \"a,\"xyzzy\"\r\n", strong, "200"},
        {"GET", "If-None-Match: ,, \"xyzzy\",\r\n", strong, "304"},
        {"GET", "If-None-Match: \"a\"\"xyzzy\"\r\n", strong, "200"},
        {"GET", "If-None-Match: \"xyzzy\r\n", strong, "200"},
        {"GET", "If-None-Match: \"a b\", \"xyzzy\"\r\n", strong, "200"}, /* no space in a tag */
        {"GET", "If-None-Match: W/\r\n", strong, "200"},
        {"GET", "If-None-Match: \"a\"\r\nif-none-match: \"xyzzy\"\r\n", strong, "304"},
        {"GET", "If-None-Match: \"xyzzy\"\r\n", NULL, "200"},
        /* If-Modified-Since (13.1.3) */
        {"GET", "If-Modified-Since: " SAME "\r\n", NULL, "304"},
        {"GET", "If-Modified-Since: " LATER "\r\n", NULL, "304"},
        {"GET", "If-Modified-Since: " EARLIER "\r\n", NULL, "200"},
        {"HEAD", "If-Modified-Since: " SAME "\r\n", strong, "304"},
        {"POST", "If-Modified-Since: " SAME "\r\n", strong, "200"},
        {"GET", "If-Modified-Since: yesterday\r\n", strong, "200"},
        {"GET", "If-Modified-Since: " SAME "\r\nIf-Modified-Since: " SAME "\r\n", strong, "200"},
        {"GET", "If-Modified-Since: " SAME "\r\nIf-None-Match: \"other\"\r\n", strong, "200"}, /* it is ignored */
        {"GET", "If-Modified-Since: " EARLIER "\r\nIf-None-Match: \"xyzzy\"\r\n", strong, "304"},
        {"GET", "If-Modified-Since: Saturday, 29-Oct-94 19:43:31 GMT\r\n", strong, "304"},
        {"GET", "If-Modified-Since: Sat Oct 29 19:43:31 1994\r\n", strong, "304"},
        /* If-Unmodified-Since (13.1.4) */
        {"GET", "If-Unmodified-Since: " SAME "\r\n", strong, "200"},
        {"GET", "If-Unmodified-Since: " LATER "\r\n", strong, "200"},
        {"GET", "If-Unmodified-Since: " EARLIER "\r\n", strong, "412"},
        {"PUT", "If-Unmodified-Since: " EARLIER "\r\n", strong, "412"},
        {"GET", "If-Unmodified-Since: never\r\n", strong, "200"},
        {"GET", "If-Unmodified-Since: " EARLIER "\r\nIf-Match: \"xyzzy\"\r\n", strong, "200"}, /* it is ignored */
        {"GET", "If-Unmodified-Since: " LATER "\r\nIf-Match: \"other\"\r\n", strong, "412"},
        /* the order of 13.2.2 */
        {"GET", "If-Match: \"xyzzy\"\r\nIf-None-Match: \"xyzzy\"\r\n", strong, "304"},
        {"GET", "If-Match: \"other\"\r\nIf-None-Match: \"xyzzy\"\r\n", strong, "412"},
        {"GET", "If-Unmodified-Since: " EARLIER "\r\nIf-None-Match: \"xyzzy\"\r\n", strong, "412"},
        {"GET", "If-Unmodified-Since: " SAME "\r\nIf-Modified-Since: " SAME "\r\n", strong, "304"},
        {"GET", "If-Matches: \"other\"\r\nXf-None-Match: *\r\n", strong, "200"}, /* other fields */
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = answer(cases[i].method, cases[i].fields, cases[i].etag, true);
        if (strcmp(got, cases[i].result) != 0) print_error("%s %s: %s\n", cases[i].method, cases[i].fields, got);
        assert_string_equal(got, cases[i].result);
    }
    /* without a date the conditions about dates are ignored */
    assert_string_equal(answer("GET", "If-Modified-Since: " SAME "\r\n", strong, false), "200");
    assert_string_equal(answer("GET", "If-Unmodified-Since: " EARLIER "\r\n", strong, false), "200");
}

TEST(any_says_whether_there_is_something_to_evaluate)
{
    static const char *const with[] = {"Range: bytes=0-1\r\n", "If-Match: *\r\n", "If-None-Match: *\r\n",
                                       "If-Modified-Since: x\r\n", "If-Unmodified-Since: x\r\n"};
    asked a;
    for (size_t i = 0; i < sizeof with / sizeof with[0]; i++) {
        ask(&a, "GET", with[i]);
        assert_true(a.conditions.any);
        free(a.text);
    }
    ask(&a, "GET", "If-Range: \"a\"\r\nAccept: */*\r\nRanges: 1\r\n"); /* If-Range alone has no effect */
    assert_false(a.conditions.any);
    free(a.text);
    ask(&a, "GET", "Range: bytes=0-1\r\nRange: bytes=2-3\r\n");
    assert_null(a.conditions.range);
    free(a.text);
}

TEST(if_range)
{
    static const char strong[] = "\"xyzzy\"", weak[] = "W/\"xyzzy\"";
    static const struct {
        const char *fields, *etag;
        int64_t now_s;
        bool applies;
    } cases[] = {
        /* clang-format off */
        {"", strong, NOW_S, true}, {"If-Range: \"xyzzy\"\r\n", strong, NOW_S, true},
        {"If-Range: \"other\"\r\n", strong, NOW_S, false},
        {"If-Range: W/\"xyzzy\"\r\n", weak, NOW_S, false}, /* weak tags never */
        {"If-Range: W/\"xyzzy\"\r\n", strong, NOW_S, false},
        {"If-Range: \"xyzzy\", \"b\"\r\n", strong, NOW_S, false}, /* not a list */
        {"If-Range: \"xyzzy\"\r\n", NULL, NOW_S, false}, {"If-Range: *\r\n", strong, NOW_S, false},
        {"If-Range: " SAME "\r\n", strong, NOW_S, true},
        {"If-Range: " LATER "\r\n", strong, NOW_S, false}, /* exactly equal */
        {"If-Range: " EARLIER "\r\n", strong, NOW_S, false},
        {"If-Range: " SAME "\r\n", strong, MODIFIED_S + 1, true},
        {"If-Range: " SAME "\r\n", strong, MODIFIED_S, false}, /* may change again within the second */
        {"If-Range: x\r\n", strong, NOW_S, false}, {"If-Range:\r\n", strong, NOW_S, false},
        {"If-Range: \"xyzzy\"\r\nIf-Range: \"xyzzy\"\r\n", strong, NOW_S, false},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *etag = cases[i].etag;
        const ls_validators v = {etag, etag != NULL ? strlen(etag) : 0, true, MODIFIED_S};
        asked a;
        ask(&a, "GET", cases[i].fields);
        assert_int_equal(ls_condition_range_applies(&a.conditions, &v, cases[i].now_s), cases[i].applies);
        free(a.text);
    }
}

TEST(tags_of_files)
{
    char out[LS_ETAG_BYTES + 1], suffix[LS_ETAG_SUFFIX_BYTES];
    out[ls_etag_of_file(0x1f4, 0x65000000, 0xabc, "", 0, out)] = '\0';
    assert_string_equal(out, "\"1f4-6500000000000abc\"");
    out[ls_etag_of_file(0, 0, 0, "-br", 3, out)] = '\0';
    assert_string_equal(out, "\"0-000000000-br\"");
    memset(suffix, 'x', sizeof suffix);
    assert_int_equal(ls_etag_of_file(UINT64_MAX, -1, 999999999, suffix, sizeof suffix, out), LS_ETAG_BYTES);
    /* one nanosecond, second or byte makes another tag */
    char other[LS_ETAG_BYTES];
    const size_t len = ls_etag_of_file(10, 20, 30, "", 0, out);
    assert_true(ls_etag_of_file(10, 20, 31, "", 0, other) != len || memcmp(out, other, len) != 0);
    assert_true(ls_etag_of_file(10, 21, 30, "", 0, other) != len || memcmp(out, other, len) != 0);
    assert_true(ls_etag_of_file(11, 20, 30, "", 0, other) != len || memcmp(out, other, len) != 0);
}

/* ---- dates
 * ------------------------------------------------------------------------------------------------------- */

static bool date(const char *text, size_t len, int64_t *out)
{
    char *copy = test_copy_exact(text, len);
    const bool valid = ls_http_date_parse(copy, len, NOW_S, out);
    free(copy);
    return valid;
}

TEST(dates_in_three_formats)
{
    static const struct {
        const char *text;
        int64_t s;
    } cases[] = {
        /* clang-format off */
        {"Sun, 06 Nov 1994 08:49:37 GMT", 784111777}, {"Sunday, 06-Nov-94 08:49:37 GMT", 784111777},
        {"Sun Nov  6 08:49:37 1994", 784111777}, {"Sun Nov 06 08:49:37 1994", 784111777},
        {"Thu, 01 Jan 1970 00:00:00 GMT", 0}, {"Wed, 31 Dec 1969 23:59:59 GMT", -1},
        {"Tue, 29 Feb 2000 12:00:00 GMT", 951825600}, {"Thu, 29 Feb 2024 12:00:00 GMT", 1709208000},
        {"Sat, 31 Dec 2016 23:59:60 GMT", 1483228800}, /* a leap second */
        {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799}, {"Sat, 01 Jan 0000 00:00:00 GMT", -62167219200},
        {"Mon, 06 Nov 1994 08:49:37 GMT", 784111777}, /* another day of the week */
        {"Saturday, 01-Jan-72 00:00:00 GMT", 3218832000}, /* 2072: at most 50 years after 2023 */
        {"Sunday, 01-Jan-73 00:00:00 GMT", 3250454400}, {"Monday, 01-Jan-74 00:00:00 GMT", 126230400}, /* 1974 */
        {"Wednesday, 01-Jan-00 00:00:00 GMT", 946684800},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t s = 1;
        assert_true(date(cases[i].text, strlen(cases[i].text), &s));
        assert_true(s == cases[i].s);
    }
}

TEST(other_texts_are_no_dates)
{
    static const char *const texts[] = {
        /* clang-format off */
        "sun, 06 Nov 1994 08:49:37 GMT", "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 gmt",
        "Sun, 06 Nov 1994 8:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 29 Feb 2023 08:49:37 GMT", "Sun, 29 Feb 1900 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:49:37 1994 GMT", "Sun Nov   6 08:49:37 1994",
        "Sun Nov 6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 GMT ", " Sun, 06 Nov 1994 08:49:37 GMT",
        "784111777", "", "Sun", "Sun Nov    08:49:37 1994", "Xyz, 06 Nov 1994 08:49:37 GMT",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t s = 12345;
        assert_false(date(texts[i], strlen(texts[i]), &s));
        assert_true(s == 12345);
    }
}

TEST(no_prefix_is_a_date)
{
    static const char *const texts[] = {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
                                        "Sun Nov  6 08:49:37 1994"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int64_t s;
        for (size_t n = 0; n < strlen(texts[i]); n++) assert_false(date(texts[i], n, &s));
        assert_true(date(texts[i], strlen(texts[i]), &s));
    }
}

TEST(written_dates_are_parsed)
{
    for (int64_t s = -62167219200; s < 253402300799; s += 86400 * 97 + 12345) {
        char text[LS_HTTP_DATE_BYTES];
        int64_t back = 0;
        ls_http_date(s, text);
        assert_true(date(text, sizeof text, &back));
        assert_true(back == s);
    }
}
