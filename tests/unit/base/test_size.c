/* test_size.c - sizes as people write them. */
#include "support.h"

#include "base/err.h"
#include "base/size.h"

static void good_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"123", 123},
        {"64k", 65536},
        {"64K", 65536},
        {"10m", 10u << 20},
        {"2g", UINT64_C(2) << 30},
        {"2G", UINT64_C(2) << 30},
        {"007", 7},
        {"18446744073709551615", UINT64_MAX},
        {"17179869183g", UINT64_C(17179869183) << 30},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t value = 99;
        assert_int_equal(ls_size_parse(cases[i].text, &value), LS_OK);
        assert_true(value == cases[i].value);
    }
}

static void refused(const char *text, int err)
{
    uint64_t value = 99;
    assert_int_equal(ls_size_parse(text, &value), err);
    assert_true(value == 99); /* untouched */
}

static void bad_sizes(void **state)
{
    static const char *const cases[] = {"", "k", "-1", "+1", " 1", "1 ", "1kb", "1kk", "1x", "0x10", "1.5m", "1 k"};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) refused(cases[i], LS_EINVAL);
}

static void one_past_what_fits(void **state)
{
    (void)state;
    refused("18446744073709551616", LS_ELIMIT);
    refused("17179869184g", LS_ELIMIT);
    refused("99999999999999999999999999", LS_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_sizes),
        cmocka_unit_test(bad_sizes),
        cmocka_unit_test(one_past_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
