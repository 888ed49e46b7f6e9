/* test_schedule.c - the due times of requests: evenly spaced at a constant rate, the integral of the rate in ramps. */
/* sanitizers: asan; no thread starts */
#include "stress/plan/schedule.h"

#include "support.h"

#define S UINT64_C(1000000000)

static void near(uint64_t a, uint64_t b, uint64_t by)
{
    if ((a > b ? a - b : b - a) > by) fail_msg("%llu, not about %llu", (unsigned long long)a, (unsigned long long)b);
}

TEST(a_constant_rate_is_even)
{
    ls_stress_schedule s;
    ls_stress_schedule_constant(&s, 20000, 64, UINT64_MAX);
    assert_true(ls_stress_schedule_due_ns(&s, 0) == 0);
    for (uint64_t k = 1; k < 100; k++) near(ls_stress_schedule_due_ns(&s, k), k * 50000, 1);
    /* Rounding errors do not accumulate over an hour. */
    near(ls_stress_schedule_due_ns(&s, UINT64_C(72000000)), 3600 * S, 1000);
    assert_int_equal(ls_stress_schedule_connections(&s, 5 * S), 64);
}

TEST(without_a_rate_nothing_is_due)
{
    ls_stress_schedule s;
    ls_stress_schedule_constant(&s, 0, 10, UINT64_MAX);
    assert_true(ls_stress_schedule_due_ns(&s, 0) == UINT64_MAX);
    assert_true(ls_stress_schedule_due_ns(&s, 7) == UINT64_MAX);
}

/* From 0 to 1000/s within 10 s request k is due at sqrt(k / 50) s, 5,000 in all; then 1000/s for 5 s; then down to
 * 0. */
TEST(a_ramp_is_the_integral)
{
    static const ls_stress_stage stages[] = {{.duration_ns = 10 * S, .rate = 1000},
                                             {.duration_ns = 5 * S, .rate = 1000},
                                             {.duration_ns = 10 * S, .rate = 0}};
    ls_stress_schedule s;
    uint64_t before = 0;
    ls_stress_schedule_stages(&s, 0, 10, stages, 3);
    assert_true(s.duration_ns == 25 * S);
    near(ls_stress_schedule_due_ns(&s, 0), 0, 0);
    near(ls_stress_schedule_due_ns(&s, 50), 1 * S, 10);
    near(ls_stress_schedule_due_ns(&s, 200), 2 * S, 10);
    near(ls_stress_schedule_due_ns(&s, 1250), 5 * S, 10);
    near(ls_stress_schedule_due_ns(&s, 5000), 10 * S, 10);
    near(ls_stress_schedule_due_ns(&s, 7500), 12 * S + S / 2, 10);
    near(ls_stress_schedule_due_ns(&s, 10000), 15 * S, 10);
    near(ls_stress_schedule_due_ns(&s, 13750), 20 * S, 10); /* three quarters of the last 5,000 */
    assert_true(ls_stress_schedule_due_ns(&s, 14999) < 25 * S);
    assert_true(ls_stress_schedule_due_ns(&s, 15000) == UINT64_MAX);
    for (uint64_t k = 0; k < 15000; k++) {
        const uint64_t at = ls_stress_schedule_due_ns(&s, k);
        assert_true(at >= before);
        before = at;
    }
}

TEST(a_jump_takes_no_time)
{
    static const ls_stress_stage stages[] = {
        {.duration_ns = S, .rate = 100}, {.duration_ns = 0, .rate = 1000}, {.duration_ns = S, .rate = 1000}};
    ls_stress_schedule s;
    ls_stress_schedule_stages(&s, 100, 10, stages, 3);
    near(ls_stress_schedule_due_ns(&s, 50), S / 2, 1);
    near(ls_stress_schedule_due_ns(&s, 100), S, 1);
    near(ls_stress_schedule_due_ns(&s, 600), S + S / 2, 1);
    assert_true(ls_stress_schedule_due_ns(&s, 1100) == UINT64_MAX);
}

TEST(a_pause_is_skipped)
{
    static const ls_stress_stage stages[] = {
        {.duration_ns = S, .rate = 0}, {.duration_ns = 2 * S, .rate = 0}, {.duration_ns = S, .rate = 200}};
    ls_stress_schedule s;
    ls_stress_schedule_stages(&s, 200, 10, stages, 3);
    assert_true(ls_stress_schedule_due_ns(&s, 99) < S);
    near(ls_stress_schedule_due_ns(&s, 100), 3 * S, 1);
    near(ls_stress_schedule_due_ns(&s, 125), 3 * S + S / 2, 10);
    assert_true(ls_stress_schedule_due_ns(&s, 200) == UINT64_MAX);
}

TEST(connections_follow_the_stages)
{
    static const ls_stress_stage stages[] = {{.duration_ns = 10 * S, .connections = 100},
                                             {.duration_ns = 10 * S, .connections = 50}};
    ls_stress_schedule s;
    ls_stress_schedule_stages(&s, 0, 0, stages, 2);
    assert_int_equal(ls_stress_schedule_connections(&s, 0), 0);
    assert_int_equal(ls_stress_schedule_connections(&s, 5 * S), 50);
    assert_int_equal(ls_stress_schedule_connections(&s, 10 * S), 100);
    assert_int_equal(ls_stress_schedule_connections(&s, 15 * S), 75);
    assert_int_equal(ls_stress_schedule_connections(&s, 20 * S), 50);
    assert_int_equal(ls_stress_schedule_connections(&s, 99 * S), 50);
    assert_true(ls_stress_schedule_due_ns(&s, 0) == UINT64_MAX);
}
