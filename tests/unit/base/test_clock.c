/* test_clock.c - the clocks agree with each other. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "base/clock.h"

TEST(a_sleep_takes_at_least_its_time)
{
    const uint64_t before = ls_clock_ns();
    ls_clock_sleep_ms(20);
    assert_true(ls_clock_ns() - before >= 20 * UINT64_C(1000000));
}

TEST(the_coarse_clock_has_the_same_origin)
{
    const uint64_t before = ls_clock_ns() / 1000000;
    const uint64_t coarse = ls_clock_coarse_ms();
    const uint64_t after = ls_clock_ns() / 1000000;
    assert_true(coarse + 20 >= before); /* a tick is 10 ms at most */
    assert_true(coarse <= after);
}

TEST(wall_seconds_and_microseconds_agree)
{
    const int64_t before = ls_clock_wall_s();
    const int64_t us = ls_clock_wall_us();
    assert_true(us / 1000000 - before >= 0 && us / 1000000 - before <= 2);
    assert_true(before > 1577836800); /* 2020 */
}
