/* test_http_text.c - percent-encoding, pairs, cookies, tokens, dates, reason phrases, and the table of character
 * classes. */
/* sanitizers: asan; no thread starts */
#include "codec/http_text.h"

#include "codec/http_chars.h"
#include "support.h"

/* Decode an exact copy, also in place. `wanted` NULL: the decoder refuses it. */
static void decodes_to(const char *text, size_t len, bool plus, const char *wanted, size_t wanted_len)
{
    char *copy = test_copy_exact(text, len), out[64];
    long n = ls_percent_decode(copy, len, plus, out);
    if (wanted == NULL) {
        assert_int_equal(n, -1);
    } else {
        assert_int_equal(n, wanted_len);
        assert_memory_equal(out, wanted, wanted_len);
        assert_int_equal(ls_percent_decode(copy, len, plus, copy), n); /* in place */
        assert_memory_equal(copy, wanted, wanted_len);
    }
    free(copy);
}

TEST(percent_decode)
{
    static const char *const bad[] = {"%", "%4", "a%", "%4g", "%g4", "%%41", "%00", "a%00b", "% 41", "%-1", "%+1"};
    decodes_to("", 0, false, "", 0);
    decodes_to("abc", 3, false, "abc", 3);
    decodes_to("a%20b%2Fc%2f", 12, false, "a b/c/", 6);
    decodes_to("a+b%2B", 6, false, "a+b+", 4);
    decodes_to("a+b%2B", 6, true, "a b+", 4);
    decodes_to("%41%ff%C3%a9", 12, false, "A\xff\xc3\xa9", 4);
    decodes_to("%2541", 5, false, "%41", 3); /* decoded only once */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) decodes_to(bad[i], strlen(bad[i]), false, NULL, 0);
    decodes_to("a\0b", 3, false, NULL, 0);
}

typedef bool next_fn(const char *bytes, size_t len, size_t *at, ls_pair *out);

/* Check all pairs, written as "name|value\n"... */
static void pairs_are(next_fn *next, const char *text, const char *wanted)
{
    char *copy = test_copy_exact(text, strlen(text)), got[256] = "";
    size_t at = 0;
    ls_pair pair;
    while (next(copy, strlen(text), &at, &pair)) {
        strncat(got, pair.name, pair.name_len);
        strcat(got, "|");
        strncat(got, pair.value, pair.value_len);
        strcat(got, "\n");
    }
    assert_string_equal(got, wanted);
    assert_false(next(copy, strlen(text), &at, &pair));
    free(copy);
}

TEST(query)
{
    pairs_are(ls_query_next, "", "");
    pairs_are(ls_query_next, "&&&", "");
    pairs_are(ls_query_next, "a=1", "a|1\n");
    pairs_are(ls_query_next, "a=1&b=2&a=3", "a|1\nb|2\na|3\n");
    pairs_are(ls_query_next, "&a=1&&b&", "a|1\nb|\n");
    pairs_are(ls_query_next, "a==b=c&=v&=", "a|=b=c\n|v\n|\n");
    pairs_are(ls_query_next, "a%3D=%26+;x", "a%3D|%26+;x\n");
}

TEST(cookies)
{
    pairs_are(ls_cookie_next, "", "");
    pairs_are(ls_cookie_next, "a=1", "a|1\n");
    pairs_are(ls_cookie_next, "a=1; b=2;c=3 ;\td=4", "a|1\nb|2\nc|3\nd|4\n");
    pairs_are(ls_cookie_next, "a=\"x y\"; b=\"; c=\"\"", "a|x y\nb|\"\nc|\n");
    pairs_are(ls_cookie_next, ";; ; a=1;", "a|1\n");
    pairs_are(ls_cookie_next, "nameless; =v; a = b=c ", "a|b=c\n");
    pairs_are(ls_cookie_next, "a=", "a|\n");
}

TEST(lines)
{
    pairs_are(ls_lines_next, "", "");
    pairs_are(ls_lines_next, "A: b\r\nX-Empty: \r\nTwo:  a: b \r\n", "A|b\nX-Empty|\nTwo| a: b \n");
    pairs_are(ls_lines_next_received, "", "");
    pairs_are(ls_lines_next_received, "A: b\r\nX-Empty:\r\nTwo: \ta: b \r\nc:d\r\n", "A|b\nX-Empty|\nTwo|a: b\nc|d\n");
    pairs_are(ls_lines_next_received, "A:b\r\n\r\nC: d\r\n", "A|b\n");
}

TEST(classes_follow_the_grammars)
{
    static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for (int i = 0; i < 256; i++) {
        const char c = (char)i;
        const bool is_alnum = i != 0 && strchr(alnum, i) != NULL;
        const bool is_visible = i > 0x20 && i < 0x7f;
        const bool is_high = i >= 0x80;
        assert_int_equal(ls_char_is(c, LS_CHAR_TOKEN), is_alnum || (i != 0 && strchr("!#$%&'*+-.^_`|~", i) != NULL));
        assert_int_equal(ls_char_is(c, LS_CHAR_LOWER), ls_char_is(c, LS_CHAR_TOKEN) && !(i >= 'A' && i <= 'Z'));
        assert_int_equal(ls_char_is(c, LS_CHAR_TARGET), (is_visible || is_high) && i != '#');
        assert_int_equal(ls_char_is(c, LS_CHAR_PATH), (is_visible || is_high) && i != '#' && i != '?');
        assert_int_equal(ls_char_is(c, LS_CHAR_VALUE), is_visible || is_high || i == ' ' || i == '\t');
        assert_int_equal(ls_char_is(c, LS_CHAR_HOST), is_alnum || (i != 0 && strchr("-._", i) != NULL));
        assert_int_equal(ls_char_is(c, LS_CHAR_HEX), i != 0 && strchr("0123456789abcdefABCDEF", i) != NULL);
        assert_int_equal(ls_char_is(c, LS_CHAR_NAME), (is_visible || i == ' ') && strchr("/\\:*?\"<>|", i) == NULL);
        assert_int_equal(ls_char_lower(c), (char)(i >= 'A' && i <= 'Z' ? i + 32 : i));
    }
}

TEST(tokens_and_values)
{
    assert_true(ls_is_token("X-a.b", 5));
    assert_false(ls_is_token("", 0));
    assert_false(ls_is_token("a b", 3));
    assert_false(ls_is_token("a:", 2));
    assert_false(ls_is_token("a\0", 2));
    assert_true(ls_is_field_value("", 0));
    assert_true(ls_is_field_value("a\tb \xff", 5));
    assert_false(ls_is_field_value("a\r", 2));
    assert_false(ls_is_field_value("a\n", 2));
    assert_false(ls_is_field_value("a\0", 2));
    assert_false(ls_is_field_value("\x7f", 1));
    assert_true(ls_text_same("Content-TYPE", 12, "content-type", 12));
    assert_false(ls_text_same("a", 1, "ab", 2));
    assert_false(ls_text_same("[", 1, "{", 1)); /* only letters have case */
    assert_false(ls_text_same("\xc3\x89", 2, "\xc3\xa9", 2));
    assert_true(ls_text_same("", 0, "", 0));
}

TEST(phrases)
{
    assert_string_equal(ls_status_text(200), "OK");
    assert_string_equal(ls_status_text(413), "Content Too Large");
    assert_string_equal(ls_status_text(505), "HTTP Version Not Supported");
    assert_string_equal(ls_status_text(299), "");
    assert_string_equal(ls_status_text(-1), "");
    for (int status = -1; status < 1000; status++) assert_true(strlen(ls_status_text(status)) < 40);
}

TEST(statuses_with_and_without_content)
{
    static const int neither[] = {100, 101, 103, 199, 204, 304},
                     both[] = {200, 203, 206, 299, 301, 303, 305, 404, 599, 999};
    for (size_t i = 0; i < sizeof neither / sizeof neither[0]; i++) {
        assert_false(ls_status_is_framed(neither[i]));
        assert_false(ls_status_has_content(neither[i]));
    }
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++) {
        assert_true(ls_status_is_framed(both[i]));
        assert_true(ls_status_has_content(both[i]));
    }
    assert_true(ls_status_is_framed(205));
    assert_false(ls_status_has_content(205));
}

static void date_is(int64_t wall_s, const char *wanted)
{
    char out[LS_HTTP_DATE_BYTES + 1];
    out[LS_HTTP_DATE_BYTES] = '\0';
    ls_http_date(wall_s, out);
    assert_string_equal(out, wanted);
}

TEST(dates)
{
    date_is(784111777, "Sun, 06 Nov 1994 08:49:37 GMT"); /* the example of RFC 9110 */
    date_is(0, "Thu, 01 Jan 1970 00:00:00 GMT");
    date_is(-1, "Wed, 31 Dec 1969 23:59:59 GMT");
    date_is(-86400, "Wed, 31 Dec 1969 00:00:00 GMT");
    date_is(951782399, "Mon, 28 Feb 2000 23:59:59 GMT");
    date_is(951782400, "Tue, 29 Feb 2000 00:00:00 GMT");
    date_is(951868800, "Wed, 01 Mar 2000 00:00:00 GMT");
    date_is(4107542400, "Mon, 01 Mar 2100 00:00:00 GMT"); /* 2100 is not a leap year */
    date_is(4107542399, "Sun, 28 Feb 2100 23:59:59 GMT");
    date_is(2147483648, "Tue, 19 Jan 2038 03:14:08 GMT");
    date_is(253402300799, "Fri, 31 Dec 9999 23:59:59 GMT");
    date_is(INT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT");
    date_is(-62167219200, "Sat, 01 Jan 0000 00:00:00 GMT");
    date_is(INT64_MIN, "Sat, 01 Jan 0000 00:00:00 GMT");
}

TEST(lists)
{
    static const char text[] = " a ,\tb c\t,, d";
    static const char *const elements[] = {"a", "b c", "", "d"};
    const char *at = text, *from, *to;
    for (size_t i = 0; i < 4; i++) {
        assert_true(ls_list_next(&at, text + sizeof text - 1, &from, &to));
        assert_int_equal(to - from, strlen(elements[i]));
        assert_memory_equal(from, elements[i], strlen(elements[i]));
    }
    assert_false(ls_list_next(&at, text + sizeof text - 1, &from, &to));
    at = text;
    assert_true(ls_list_next(&at, text, &from, &to)); /* an empty list has one element */
    assert_ptr_equal(from, to);
    assert_false(ls_list_next(&at, text, &from, &to));
}

TEST(lengths)
{
    static const char *const wrong[] = {"", "-1", "+1", "1 ", "0x1", "9223372036854775808", "00000000000000000001"};
    uint64_t length = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(ls_length_parse(wrong[i], strlen(wrong[i]), &length));
    assert_int_equal(length, 7);
    assert_true(ls_length_parse("0000000000000000012", 19, &length));
    assert_int_equal(length, 12);
    assert_true(ls_length_parse("9223372036854775807", 19, &length));
    assert_int_equal(length, INT64_MAX);
}

/* Every day of the years 1900 to 2500 follows the day before. */
TEST(days_follow_each_other)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec", weekdays[] = "MonTueWedThuFriSatSun";
    int64_t day = -25567; /* 1900-01-01, a Monday */
    int weekday = 0;
    for (int year = 1900; year <= 2500; year++) {
        const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        for (int month = 0; month < 12; month++) {
            for (int d = 1; d <= month_days[month] + (leap && month == 1); d++, day++, weekday = (weekday + 1) % 7) {
                char out[LS_HTTP_DATE_BYTES], wanted[64];
                ls_http_date(day * 86400 + 45296, out);
                snprintf(wanted, sizeof wanted, "%.3s, %02d %.3s %04d 12:34:56 GMT", weekdays + 3 * weekday, d,
                         months + 3 * month, year);
                assert_memory_equal(out, wanted, LS_HTTP_DATE_BYTES);
            }
        }
    }
}
