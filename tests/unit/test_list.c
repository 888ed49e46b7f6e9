/* test_list.c - the tests of one program, which TEST of support.h collects before main() begins. */
#include "support.h"

static test_entry *first; /* by line: the order of constructors differs between systems */
static size_t count;

void test_join(test_entry *entry)
{
    test_entry **at = &first;
    while (*at != NULL && (*at)->line <= entry->line) at = &(*at)->next;
    entry->next = *at;
    *at = entry;
    count++;
}

int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    if (tests == NULL) return 1;
    size_t i = 0;
    for (const test_entry *entry = first; entry != NULL; entry = entry->next) tests[i++] = entry->test;
    const int failed = _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
    free(tests);
    return failed;
}
