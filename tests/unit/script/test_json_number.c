/* test_json_number.c - numbers are formatted as lua-cjson formats them. */
#include "support.h"

#include <math.h>
#include <string.h>

/* The linker resolves the first to the function of json_number.c, the second to that of lua-cjson. */
int fpconv_g_fmt(char *text, double number, int precision);
int __real_fpconv_g_fmt(char *text, double number, int precision); /* NOLINT(bugprone-reserved-identifier) */

static void expect_same(double number, int precision)
{
    char expected[32], written[32];
    const int len = __real_fpconv_g_fmt(expected, number, precision);
    memset(written, '#', sizeof written);
    assert_int_equal(fpconv_g_fmt(written, number, precision), len);
    assert_string_equal(written, expected);
}

static void expect_same_with_both_signs(double number)
{
    for (int precision = 1; precision <= 14; precision++) {
        expect_same(number, precision);
        expect_same(-number, precision);
    }
}

static void whole_numbers(void **state)
{
    (void)state;
    expect_same_with_both_signs(0);
    for (double power = 1; power < 1e18; power *= 10) {
        expect_same_with_both_signs(power - 1);
        expect_same_with_both_signs(power);
        expect_same_with_both_signs(power + 1);
        expect_same_with_both_signs(power * 7);
    }
    for (int bits = 1; bits < 64; bits++) expect_same_with_both_signs(ldexp(1, bits) - 1);
}

static void other_numbers(void **state)
{
    (void)state;
    static const double numbers[] = {0.1, 0.5, 1.5, 99.99, 99999999999999.5, 123456.789, 1e-5, 1e-300, 1e300};
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) expect_same_with_both_signs(numbers[n]);
    expect_same_with_both_signs(INFINITY);
    expect_same(NAN, 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers), cmocka_unit_test(other_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
