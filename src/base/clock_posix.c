/* clock_posix.c - the clocks of clock.h from clock_gettime(2). The coarse ones are read without a counter access and
 * are at most one scheduler tick late. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "base/clock.h"

static struct timespec now(clockid_t clock)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(clock, &t); /* cannot fail: the clocks exist and t is ours */
    return t;
}

uint64_t ls_clock_ns(void)
{
    const struct timespec t = now(CLOCK_MONOTONIC);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t ls_clock_coarse_ms(void)
{
    const struct timespec t = now(CLOCK_MONOTONIC_COARSE);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int64_t ls_clock_wall_s(void)
{
    return (int64_t)now(CLOCK_REALTIME_COARSE).tv_sec;
}

int64_t ls_clock_wall_us(void)
{
    const struct timespec t = now(CLOCK_REALTIME);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void ls_clock_sleep_ms(uint32_t ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        /* interrupted by a signal: sleep for the rest */
    }
}
