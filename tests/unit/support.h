/* support.h - shared by all unit tests: cmocka with the headers it requires, and small helpers. */
#ifndef LS_TESTS_SUPPORT_H
#define LS_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
