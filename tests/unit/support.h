/* support.h - shared by all unit tests: cmocka with the headers it requires, those that most tests use, and small helpers. */
#ifndef LS_TESTS_SUPPORT_H
#define LS_TESTS_SUPPORT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

/* TEST(name) { ... } defines a test of the program. The tests of a file run in the order of their lines. */
typedef struct test_entry test_entry;
struct test_entry {
    struct CMUnitTest test;
    int line;
    test_entry *next;
};

void test_join(test_entry *entry);
int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down); /* all of them -> the exit status */

#define TEST_ENTRY(title, function)                                                                    \
    __attribute__((constructor)) static void title##_joins(void)                                       \
    {                                                                                                  \
        static test_entry entry = {.test = {.name = #title, .test_func = function}, .line = __LINE__}; \
        test_join(&entry);                                                                             \
    }

#define TEST(name)                         \
    static void name(void **unused_state); \
    TEST_ENTRY(name, name)                 \
    static void name(void **unused_state)

/* TEST_IN(place, p, name, arguments...) { ... } defines a test with a fixture: its body has `place *p`, which
 * place_open(p, arguments...) has opened, and place_close(p) closes it when the test has passed. */
#define TEST_IN(type, fixture, name, ...)      \
    static void name(type *fixture);           \
    static void name##_in(void **unused_state) \
    {                                          \
        type fixture;                          \
        type##_open(&fixture, ##__VA_ARGS__);  \
        name(&fixture);                        \
        type##_close(&fixture);                \
    }                                          \
    TEST_ENTRY(name, name##_in)                \
    static void name(type *fixture)

/* TEST_WITH(place, p, name, open(...)) { ... } has a fixture that open(...) returns; place_close(p) closes it. */
#define TEST_WITH(type, fixture, name, opened)   \
    static void name(type *fixture);             \
    static void name##_with(void **unused_state) \
    {                                            \
        type *fixture = opened;                  \
        name(fixture);                           \
        type##_close(fixture);                   \
    }                                            \
    TEST_ENTRY(name, name##_with)                \
    static void name(type *fixture)

/* Patterns of mkdtemp(3) and mkstemp(3), which replace the X: relative to a directory, and in /tmp. */
#define TEST_SCRATCH_NAME "luaserve-test-XXXXXX"
#define TEST_SCRATCH_PATH "/tmp/" TEST_SCRATCH_NAME

/* A copy of exactly len bytes (one byte when len is 0), so that a sanitizer sees a read one byte past its end. */
static inline char *test_copy_exact(const void *bytes, size_t len)
{
    char *copy = malloc(len > 0 ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    return copy;
}

#endif
