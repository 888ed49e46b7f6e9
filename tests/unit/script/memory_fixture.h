/* memory_fixture.h - allocations that fail: for programs linked with --wrap of malloc, calloc and realloc. */
#ifndef LS_TESTS_MEMORY_FIXTURE_H
#define LS_TESTS_MEMORY_FIXTURE_H

#include "support.h"

static int test_allocations_left = -1; /* the next allocation after this many fails, and all later ones; -1: none */

void *__real_malloc(size_t size);             /* NOLINT */
void *__real_realloc(void *ptr, size_t size); /* NOLINT */

void *__real_calloc(size_t count, size_t size); /* NOLINT */

static inline int test_allocation_fails(void)
{
    if (test_allocations_left < 0) return 0;
    if (test_allocations_left == 0) return 1;
    test_allocations_left--;
    return 0;
}

void *__wrap_malloc(size_t size) /* NOLINT */
{
    return test_allocation_fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) /* NOLINT */
{
    return test_allocation_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *ptr, size_t size) /* NOLINT */
{
    return test_allocation_fails() ? NULL : __real_realloc(ptr, size);
}

#endif
