/* test_checks.c - checks by name: their order, a long name, the limit of names. */
#include "support.h"

#include "stress/measure/checks.h"

/* The check of that name, of which a check keeps the first bytes; NULL: there is none. */
static const ls_stress_check *find_check(const ls_stress_checks *checks, const char *name, size_t len)
{
    if (len > LS_STRESS_CHECK_NAME_MAX) len = LS_STRESS_CHECK_NAME_MAX;
    for (size_t i = 0; i < checks->count; i++)
        if (checks->list[i].len == len && memcmp(checks->list[i].name, name, len) == 0) return &checks->list[i];
    return NULL;
}

TEST(checks_by_name)
{
    ls_stress_checks a = {0};
    char name[LS_STRESS_CHECK_NAME_MAX + 8];
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ls_stress_checks_count(&a, "status", 6, true), LS_OK);
        assert_int_equal(ls_stress_checks_count(&a, "body", 4, i < 7), LS_OK);
    }
    assert_int_equal(a.count, 2);
    assert_true(find_check(&a, "status", 6)->passed == 10);
    assert_true(find_check(&a, "body", 4)->failed == 3);
    assert_null(find_check(&a, "bod", 3));
    assert_true(find_check(&a, "status", 6)->failed == 0);

    /* A long name is cut; the long name finds the cut one. */
    memset(name, 'x', sizeof name);
    assert_int_equal(ls_stress_checks_count(&a, name, LS_STRESS_CHECK_NAME_MAX, true), LS_OK);
    assert_int_equal(ls_stress_checks_count(&a, name, LS_STRESS_CHECK_NAME_MAX + 1, true), LS_OK);
    assert_true(find_check(&a, name, sizeof name)->passed == 2);

    /* The limit of names, and names beyond it. */
    while (a.count < LS_STRESS_CHECKS_MAX) {
        snprintf(name, sizeof name, "check %zu", a.count);
        assert_int_equal(ls_stress_checks_count(&a, name, strlen(name), true), LS_OK);
    }
    assert_null(find_check(&a, "(others)", 8));
    assert_int_equal(ls_stress_checks_count(&a, "one more", 8, false), LS_OK);
    assert_int_equal(ls_stress_checks_count(&a, "and another", 11, true), LS_OK);
    assert_null(find_check(&a, "one more", 8));
    assert_true(find_check(&a, "(others)", 8)->failed == 1);
    assert_true(find_check(&a, "(others)", 8)->passed == 1);
    assert_int_equal(a.count, LS_STRESS_CHECKS_MAX + 1);
    ls_stress_checks_close(&a);
}
