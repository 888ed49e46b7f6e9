/* few_descriptors_posix.h - by RLIMIT_NOFILE. */
#ifndef TESTS_UNIT_PORT_FEW_DESCRIPTORS_POSIX_H
#define TESTS_UNIT_PORT_FEW_DESCRIPTORS_POSIX_H

#include <sys/resource.h>
#include <unistd.h>

typedef struct rlimit descriptors_before;

/* The lowest limit that lets nothing more be opened. */
static inline void close_the_door(descriptors_before *before)
{
    const int next = dup(0);
    struct rlimit now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    close(next);
    now = *before;
    now.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
}

static inline void open_the_door(const descriptors_before *before)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, before), 0);
}

#endif
