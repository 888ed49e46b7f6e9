/* test_strbuf.c - numbers, JSON strings and HTML from valid and invalid input. */
#include "support.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "stress/report.h"
#include "stress/strbuf.h"

static const char *fixed(double number, int decimals)
{
    static char buffer[48];
    return ls_stress_fixed_text(buffer, sizeof buffer, number, decimals);
}

static void fixed_numbers(void **state)
{
    (void)state;
    assert_string_equal(fixed(0, 2), "0.00");
    assert_string_equal(fixed(1.005e3, 0), "1005");
    assert_string_equal(fixed(0.996, 2), "1.00");
    assert_string_equal(fixed(99.994, 2), "99.99");
    assert_string_equal(fixed(-1.5, 1), "-1.5");
    assert_string_equal(fixed(-0.001, 2), "0.00"); /* no "-0.00" */
    assert_string_equal(fixed(0.000001, 6), "0.000001");
    assert_string_equal(fixed(9.1e18, 0), "9100000000000000000");
    assert_string_equal(fixed(9.3e18, 0), "-");
    assert_string_equal(fixed(9.3e15, 3), "-");
    assert_string_equal(fixed(NAN, 2), "-");
    assert_string_equal(fixed(INFINITY, 2), "-");
    assert_string_equal(fixed(-INFINITY, 2), "-");
}

static const char *json_number(double number, int decimals)
{
    static char buffer[64];
    ls_strbuf t = {0};
    ls_strbuf_json_number(&t, number, decimals);
    snprintf(buffer, sizeof buffer, "%s", t.bytes);
    ls_strbuf_close(&t);
    return buffer;
}

static void json_numbers(void **state)
{
    (void)state;
    assert_string_equal(json_number(0, 3), "0");
    assert_string_equal(json_number(100, 3), "100");
    assert_string_equal(json_number(1.25, 3), "1.25");
    assert_string_equal(json_number(1.2504, 3), "1.25");
    assert_string_equal(json_number(-3.1, 3), "-3.1");
    assert_string_equal(json_number(120.4, 0), "120");
    assert_string_equal(json_number(0.000400001, 9), "0.000400001");
    assert_string_equal(json_number(1e9, 9), "1000000000");
    assert_string_equal(json_number(NAN, 3), "null");
    assert_string_equal(json_number(INFINITY, 3), "null");
}

/* A script may set the locale of the process. */
static void numbers_ignore_the_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR"};
    bool set = false;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++) set = setlocale(LC_ALL, names[i]) != NULL;
    assert_string_equal(fixed(1.5, 1), "1.5"); /* also without these locales */
    assert_string_equal(json_number(1.5, 3), "1.5");
    setlocale(LC_ALL, "C");
}

static const char *json_string(const char *bytes, size_t len)
{
    static char buffer[256];
    char *copy = test_copy_exact(bytes, len);
    ls_strbuf t = {0};
    ls_strbuf_json_string(&t, copy, len);
    snprintf(buffer, sizeof buffer, "%s", t.bytes);
    ls_strbuf_close(&t);
    free(copy);
    return buffer;
}

#define JSON(literal) json_string(literal, sizeof literal - 1)
#define NONE          "\\ufffd"

static void json_strings(void **state)
{
    (void)state;
    assert_string_equal(JSON(""), "\"\"");
    assert_string_equal(JSON("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    assert_string_equal(JSON("\0\x01\n\x1f\x7f"), "\"\\u0000\\u0001\\u000a\\u001f\\u007f\"");
    assert_string_equal(JSON("</script>"), "\"\\u003c/script>\"");
    assert_string_equal(JSON("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\x89"), "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\x89\"");
    assert_string_equal(JSON("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\""); /* U+10FFFF */
    assert_string_equal(JSON("\xf4\x90\x80\x80"), "\"" NONE NONE NONE NONE "\"");
    assert_string_equal(JSON("\xc0\x80"), "\"" NONE NONE "\"");          /* overlong */
    assert_string_equal(JSON("\xe0\x9f\xbf"), "\"" NONE NONE NONE "\""); /* overlong */
    assert_string_equal(JSON("\xed\xa0\x80"), "\"" NONE NONE NONE "\""); /* a surrogate */
    assert_string_equal(JSON("\xf0\x8f\xbf\xbf"), "\"" NONE NONE NONE NONE "\"");
    assert_string_equal(JSON("\xff\xfe"), "\"" NONE NONE "\"");
    assert_string_equal(JSON("\x80g"), "\"" NONE "g\"");
    assert_string_equal(JSON("\xe2\x82"), "\"" NONE NONE "\""); /* ends inside a character */
    assert_string_equal(JSON("\xe2\x82g"), "\"" NONE NONE "g\"");
}

static void html_text(void **state)
{
    static const char text[] = "<a href=\"x\">&\x01\t\n\xff\xc3\xa9";
    ls_strbuf t = {0};
    (void)state;
    ls_strbuf_html(&t, text, sizeof text - 1);
    assert_string_equal(t.bytes, "&lt;a href=&quot;x&quot;&gt;&amp;?\t\n?\xc3\xa9");
    ls_strbuf_close(&t);
}

static void grows_and_formats(void **state)
{
    ls_strbuf t = {0};
    char expected[8];
    (void)state;
    for (unsigned i = 0; i < 10000; i++) ls_strbuf_format(&t, "%05u;", i);
    assert_int_equal(t.len, 60000);
    assert_int_equal(strlen(t.bytes), 60000);
    for (unsigned i = 0; i < 10000; i += 999) {
        snprintf(expected, sizeof expected, "%05u;", i);
        assert_memory_equal(t.bytes + (size_t)6 * i, expected, 6);
    }
    assert_false(t.failed);
    assert_int_equal(ls_strbuf_save(&t, "/no/such/folder/file"), LS_ENOENT);
    t.failed = true;
    assert_int_equal(ls_strbuf_save(&t, "/no/such/folder/file"), LS_ENOMEM);
    ls_strbuf_close(&t);
}

static const char *time_text(double ns)
{
    static char buffer[48];
    ls_stress_time_text(buffer, sizeof buffer, ns);
    return buffer;
}

static void times_have_three_digits(void **state)
{
    (void)state;
    assert_string_equal(time_text(0), "0ns");
    assert_string_equal(time_text(999), "999ns");
    assert_string_equal(time_text(999.6), "1.00us");
    assert_string_equal(time_text(1234), "1.23us");
    assert_string_equal(time_text(9994), "9.99us");
    assert_string_equal(time_text(9996), "10.0us");
    assert_string_equal(time_text(99940), "99.9us");
    assert_string_equal(time_text(99960), "100us");
    assert_string_equal(time_text(999499), "999us");
    assert_string_equal(time_text(999500), "1.00ms");
    assert_string_equal(time_text(4.56e6), "4.56ms");
    assert_string_equal(time_text(1.2e9), "1.20s");
    assert_string_equal(time_text(3.6e12), "3600s");
    assert_string_equal(time_text(NAN), "-");
}

static void percent_names(void **state)
{
    char name[32];
    (void)state;
    ls_stress_percent_name(name, sizeof name, 50);
    assert_string_equal(name, "p50");
    ls_stress_percent_name(name, sizeof name, 99.999);
    assert_string_equal(name, "p99.999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_numbers),
        cmocka_unit_test(json_numbers),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(html_text),
        cmocka_unit_test(grows_and_formats),
        cmocka_unit_test(times_have_three_digits),
        cmocka_unit_test(percent_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
