/* test_sampler.c - intervals and samples from counters, with a simulated clock; checks by name. */
#include "support.h"

#include <stdio.h>

#include "run_fixture.h"

static void intervals_end_at_whole_seconds(void **state)
{
    sample s;
    ls_stress_result r;
    (void)state;
    sample_open(&s, &sample_closed_config);
    sample_response(&s, 0, 200, 1000, 0, 0);
    sample_response(&s, 1, 500, 3000, 0, 0);
    ls_counter_add(&s.counters[1].errors[LS_STRESS_ERROR_WRITE], 5);
    assert_false(sample_tick(&s, SAMPLE_SECOND - 1));
    assert_null(ls_stress_sampler_last(s.sampler));
    assert_true(sample_tick(&s, 1)); /* exactly one second */
    const ls_stress_point *p = ls_stress_sampler_last(s.sampler);
    assert_true(p->from_ns == 0 && p->to_ns == SAMPLE_SECOND);
    assert_true(p->requests == 2 && p->errors == 5 && p->failed_status == 1);
    assert_true(p->bytes_in == 480 && p->bytes_out == 120);
    assert_true(p->p50_ns == 1000 && p->p99_ns == 3000 && p->max_ns == 3000);

    /* A late tick closes one interval of three and a half seconds, not several. */
    sample_response(&s, 0, 200, 9000000, 0, 0);
    assert_true(sample_tick(&s, 7 * SAMPLE_SECOND / 2));
    p = ls_stress_sampler_last(s.sampler);
    assert_true(p->from_ns == SAMPLE_SECOND && p->to_ns == 9 * SAMPLE_SECOND / 2 && p->requests == 1);
    assert_true(p->p50_ns == 9000000 && p->max_ns == 9000000); /* of this interval only */
    assert_false(sample_tick(&s, SAMPLE_SECOND / 2 - 1));
    assert_true(sample_tick(&s, 1));
    p = ls_stress_sampler_last(s.sampler);
    assert_true(p->requests == 0 && p->p50_ns == 0 && p->max_ns == 0);

    /* The rest of a second is an interval. */
    sample_response(&s, 1, 200, 2000, 0, 0);
    s.now += SAMPLE_SECOND / 4;
    sample_finish(&s, true, NULL, 0, &r);
    assert_true(r.point_count == 4);
    assert_true(r.points[3].from_ns == 5 * SAMPLE_SECOND && r.points[3].to_ns == 21 * SAMPLE_SECOND / 4);
    assert_true(r.points[3].requests == 1);
    assert_true(r.interrupted && r.duration_ns == 21 * SAMPLE_SECOND / 4);
    assert_true(r.requests == 4 && r.status[200] == 3 && r.status[500] == 1);
    assert_true(ls_stress_result_errors(&r) == 5);
    assert_true(ls_histogram_count(r.sent) == 4 && r.due == NULL && r.lag == NULL);
    assert_false(r.points_cut);
    sample_close(&s);
    ls_stress_result_close(&r);
    ls_stress_result_close(&r); /* a result of all zeros may be closed again */
}

/* Handshakes and the probes of a fan-out run come before the run. */
static void bytes_before_the_run_do_not_count(void **state)
{
    ls_stress_counters counters;
    const ls_stress_counters *pointer = &counters;
    ls_stress_sampler *sampler;
    ls_stress_result r;
    (void)state;
    assert_int_equal(ls_stress_counters_open(&counters, false, false, false), LS_OK);
    ls_counter_add(&counters.bytes_in, 1000);
    ls_counter_add(&counters.bytes_out, 2000);
    assert_int_equal(ls_stress_sampler_open(&sample_closed_config, &pointer, 1, SAMPLE_START, &sampler), LS_OK);
    ls_counter_add(&counters.bytes_in, 30);
    ls_counter_add(&counters.bytes_out, 20);
    assert_true(ls_stress_sampler_tick(sampler, SAMPLE_START + SAMPLE_SECOND));
    assert_int_equal(ls_stress_sampler_finish(sampler, SAMPLE_START + SAMPLE_SECOND, false, NULL, NULL, 0, &r), LS_OK);
    assert_true(r.bytes_in == 30 && r.bytes_out == 20);
    assert_true(r.point_count == 1 && r.points[0].bytes_in == 30 && r.points[0].bytes_out == 20);
    ls_stress_result_close(&r);
    ls_stress_sampler_close(sampler);
    ls_stress_counters_close(&counters);
}

/* The threads end at two seconds, the last tick is at 2.05 s, and one response arrives after it. */
static void the_series_ends_with_the_run(void **state)
{
    static const struct {
        uint64_t last_tick_ns, end_ns;
        size_t points;
    } cases[] = {
        {41 * SAMPLE_SECOND / 20, 2 * SAMPLE_SECOND, 2},                    /* the tick is late */
        {2 * SAMPLE_SECOND, 2 * SAMPLE_SECOND, 2},                          /* to the nanosecond */
        {2 * SAMPLE_SECOND, 2 * SAMPLE_SECOND + SAMPLE_SECOND / 10 - 1, 2}, /* the rest is too short */
        {2 * SAMPLE_SECOND, 2 * SAMPLE_SECOND + SAMPLE_SECOND / 10, 3},     /* the rest is an interval */
        {3 * SAMPLE_SECOND + SAMPLE_SECOND / 20, 2 * SAMPLE_SECOND, 2},     /* a tick after the end of the run */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sample s;
        ls_stress_result r;
        sample_open(&s, &sample_closed_config);
        sample_response(&s, 0, 200, 1000, 0, 0);
        sample_tick(&s, SAMPLE_SECOND);
        sample_response(&s, 1, 200, 2000, 0, 0);
        if (cases[i].last_tick_ns > 3 * SAMPLE_SECOND) sample_tick(&s, SAMPLE_SECOND);
        sample_tick(&s, SAMPLE_START + cases[i].last_tick_ns - s.now);
        sample_response(&s, 1, 503, 7000000, 0, 0);
        s.now = SAMPLE_START + cases[i].end_ns;
        sample_finish(&s, false, NULL, 0, &r);
        assert_int_equal(r.point_count, cases[i].points);
        uint64_t requests = 0, at = 0, max = 0;
        for (size_t p = 0; p < r.point_count; p++) {
            assert_true(r.points[p].from_ns == at && r.points[p].to_ns > at);
            at = r.points[p].to_ns;
            requests += r.points[p].requests;
            max = r.points[p].max_ns > max ? r.points[p].max_ns : max;
        }
        assert_true(at == r.duration_ns && r.duration_ns == cases[i].end_ns);
        assert_true(requests == 3 && r.requests == 3 && max == 7000000);
        assert_true(r.points[r.point_count - 1].failed_status == 1);
        assert_true(ls_histogram_max(r.rates) < 100); /* no sample of a time in the future */
        sample_close(&s);
        ls_stress_result_close(&r);
    }
}

/* The threads have closed their connections before ls_stress_sampler_finish(). */
static void connections_of_the_last_interval(void **state)
{
    sample s;
    ls_stress_result r;
    (void)state;
    sample_open(&s, &sample_closed_config);
    atomic_store(&s.counters[0].connections, 40);
    sample_tick(&s, SAMPLE_SECOND / 2);
    atomic_store(&s.counters[0].connections, 30);
    sample_tick(&s, SAMPLE_SECOND / 2);
    atomic_store(&s.counters[0].connections, 20);
    sample_tick(&s, SAMPLE_SECOND / 2);
    atomic_store(&s.counters[0].connections, 0);
    s.now += SAMPLE_SECOND / 4;
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.point_count == 2 && r.points[0].connections == 40 && r.points[1].connections == 20);
    sample_close(&s);
    ls_stress_result_close(&r);

    sample_open(&s, &sample_closed_config); /* ended before the first tick; 7 connections were made */
    atomic_store(&s.counters[0].connects, 7);
    s.now += SAMPLE_SECOND / 20;
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.point_count == 1 && r.points[0].connections == 7);
    sample_close(&s);
    ls_stress_result_close(&r);
}

static void each_thread_is_a_sample_of_the_rate(void **state)
{
    sample s;
    ls_stress_result r;
    (void)state;
    sample_open(&s, &sample_closed_config);
    for (int tick = 0; tick < 10; tick++) {
        for (int i = 0; i < 20; i++) sample_response(&s, 0, 200, 1000, 0, 0);
        for (int i = 0; i < 40; i++) sample_response(&s, 1, 200, 1000, 0, 0);
        sample_tick(&s, SAMPLE_SECOND / 10);
        sample_tick(&s, 1000); /* too close to the last one to be a sample */
    }
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(ls_histogram_count(r.rates) == 20);
    assert_in_range(ls_histogram_min(r.rates), 199, 200);
    assert_in_range(ls_histogram_max(r.rates), 399, 401);
    sample_close(&s);
    ls_stress_result_close(&r);
}

static void a_run_shorter_than_a_tick_has_a_rate(void **state)
{
    sample s;
    ls_stress_result r;
    (void)state;
    sample_open(&s, &sample_closed_config);
    sample_response(&s, 0, 200, 1000, 0, 0);
    s.now += 1000000;
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(ls_histogram_count(r.rates) == SAMPLE_THREADS && ls_histogram_max(r.rates) == 1000);
    assert_true(r.point_count == 1);
    assert_true(ls_stress_result_rate(&r) == 1000);
    sample_close(&s);
    ls_stress_result_close(&r);

    sample_open(&s, &sample_closed_config); /* a duration of 0: no division by it */
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.point_count == 0 && ls_stress_result_rate(&r) == 0);
    sample_close(&s);
    ls_stress_result_close(&r);
}

static void the_live_rate_covers_the_last_second(void **state)
{
    sample s;
    ls_stress_live live;
    (void)state;
    sample_open(&s, &sample_closed_config);
    atomic_store(&s.counters[0].connections, 30);
    atomic_store(&s.counters[1].connections, 34);
    for (int tick = 0; tick < 30; tick++) {
        for (int i = 0; i < (tick < 15 ? 10 : 50); i++) sample_response(&s, 0, 200, 1000, 0, 0);
        sample_tick(&s, SAMPLE_SECOND / 10);
        ls_stress_sampler_live(s.sampler, &live);
        if (tick == 0 || tick == 14) assert_true(live.rate == 100);
    }
    assert_true(live.rate == 500);
    assert_true(live.requests == 15 * 10 + 15 * 50 && live.elapsed_ns == 3 * SAMPLE_SECOND && live.connections == 64);
    sample_close(&s);
}

static void the_number_of_intervals_is_limited(void **state)
{
    sample s;
    ls_stress_result r;
    (void)state;
    sample_open(&s, &sample_closed_config);
    for (int i = 0; i < LS_STRESS_POINTS_MAX; i++) assert_true(sample_tick(&s, SAMPLE_SECOND));
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.point_count == LS_STRESS_POINTS_MAX && !r.points_cut);
    sample_close(&s);
    ls_stress_result_close(&r);

    sample_open(&s, &sample_closed_config);
    for (int i = 0; i < LS_STRESS_POINTS_MAX; i++) sample_tick(&s, SAMPLE_SECOND);
    sample_response(&s, 0, 200, 1000, 0, 0);
    sample_tick(&s, SAMPLE_SECOND);
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.point_count == LS_STRESS_POINTS_MAX && r.points_cut);
    assert_true(r.requests == 1 &&
                r.duration_ns == (LS_STRESS_POINTS_MAX + 1) * SAMPLE_SECOND); /* the totals are complete */
    sample_close(&s);
    ls_stress_result_close(&r);
}

/* The average of the schedule: the area under its ramps divided by the time. */
static void the_target_rate_is_the_average_of_the_stages(void **state)
{
    static const ls_stress_stage stages[] = {{10 * SAMPLE_SECOND, 100, 0}, {10 * SAMPLE_SECOND, 100, 0}};
    ls_stress_result r = {.config = sample_open_config(), .duration_ns = 20 * SAMPLE_SECOND};
    (void)state;
    assert_true(ls_stress_result_target_rate(&r) == 4000);
    r.config.rate = 0;
    r.config.stages = stages;
    r.config.stage_count = 2;
    assert_true(ls_stress_result_target_rate(&r) == 75); /* 500 in the ramp, 1000 after it */
    r.duration_ns = 5 * SAMPLE_SECOND;
    assert_true(ls_stress_result_target_rate(&r) == 25); /* ended in the middle of the ramp */
    r.config.open_loop = false;
    assert_true(ls_stress_result_target_rate(&r) == 0);
}

static void a_late_load_generator_is_detected(void **state)
{
    ls_stress_result r = {.lag = ls_histogram_open()};
    (void)state;
    assert_false(ls_stress_result_engine_late(&r));
    for (int i = 0; i < 99; i++) ls_histogram_record(r.lag, 1000);
    ls_histogram_record(r.lag, 50000000); /* one value in a hundred is the maximum, not the 99th percentile */
    assert_false(ls_stress_result_engine_late(&r));
    ls_histogram_record(r.lag, 50000000);
    assert_true(ls_stress_result_engine_late(&r));
    ls_stress_result_close(&r);
    assert_false(ls_stress_result_engine_late(&r));
}

/* 1000 requests were due; `late` of them were noticed late_ms late. Responses took response_ms; 0: no responses. */
static ls_stress_short short_with_response_time(unsigned response_ms, const char *what, uint64_t unsent,
                                                uint64_t behind_ms, int late, unsigned late_ms, double wanted)
{
    ls_stress_result r = {.config = sample_open_config(),
                          .duration_ns = SAMPLE_SECOND,
                          .unsent = unsent,
                          .behind_ns = behind_ms * 1000000,
                          .wanted = wanted,
                          .sent = ls_histogram_open(),
                          .lag = ls_histogram_open()};
    if (strcmp(what, "number") == 0) r.config.requests = 1000;
    for (int i = 0; i < 1000; i++) ls_histogram_record(r.lag, i < late ? late_ms * UINT64_C(1000000) : 1000);
    for (int i = 0; i < 99 && response_ms > 0; i++)
        ls_histogram_record(r.sent, i < 50 ? response_ms * UINT64_C(1000000) : SAMPLE_SECOND);
    const ls_stress_short is_short = ls_stress_result_short(&r);
    ls_stress_result_close(&r);
    return is_short;
}

/* Late by 20 ms, with responses in 1 ms. */
static ls_stress_short short_of(const char *what, uint64_t unsent, uint64_t behind_ms, int late, double wanted)
{
    return short_with_response_time(1, what, unsent, behind_ms, late, 20, wanted);
}

static void a_missed_rate_has_a_reason(void **state)
{
    (void)state;
    assert_int_equal(short_of("time", 10, 900, 0, 0.1), LS_STRESS_SHORT_NOT); /* 1 % */
    assert_int_equal(short_of("time", 11, 99, 0, 0.1), LS_STRESS_SHORT_NOT);
    assert_int_equal(short_of("time", 11, 100, 0, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_of("time", 100, 900, 49, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_of("time", 100, 900, 50, 0.1), LS_STRESS_SHORT_OF_TIME);
    assert_int_equal(short_of("time", 100, 900, 0, 0.89), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_of("time", 100, 900, 0, 0.9), LS_STRESS_SHORT_OF_TIME);
    assert_int_equal(short_of("time", 0, 900, 1000, 1), LS_STRESS_SHORT_NOT); /* late, and all requests are sent */
    assert_int_equal(short_of("number", 0, 99, 0, 0.1), LS_STRESS_SHORT_NOT);
    assert_int_equal(short_of("number", 0, 100, 0, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_of("number", 0, 100, 1, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS); /* 20 ms of 100 */
    assert_int_equal(short_of("number", 0, 100, 0, 1), LS_STRESS_SHORT_OF_TIME);

    /* A delay of less than half of the median response time counts for the server. */
    assert_int_equal(short_with_response_time(38, "time", 100, 900, 50, 20, 0.1), LS_STRESS_SHORT_OF_TIME);
    assert_int_equal(short_with_response_time(44, "time", 100, 900, 1000, 20, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_with_response_time(0, "time", 100, 900, 1000, 20, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_with_response_time(1, "time", 100, 900, 1000, 9, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    /* One delay of half of the time behind counts for the load generator, whatever the response time. */
    assert_int_equal(short_with_response_time(1000, "time", 100, 900, 1, 440, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_with_response_time(1000, "time", 100, 900, 1, 460, 0.1), LS_STRESS_SHORT_OF_TIME);
    assert_int_equal(short_with_response_time(1000, "number", 0, 900, 1, 440, 0.1), LS_STRESS_SHORT_OF_CONNECTIONS);
    assert_int_equal(short_with_response_time(1000, "number", 0, 900, 1, 460, 0.1), LS_STRESS_SHORT_OF_TIME);

    ls_stress_result r = {.unsent = 100};
    assert_int_equal(ls_stress_result_short(&r), LS_STRESS_SHORT_NOT); /* a closed loop */
    r.lag = ls_histogram_open();
    r.unsent = 0;
    assert_int_equal(ls_stress_result_short(&r), LS_STRESS_SHORT_NOT); /* no request was due */
    ls_stress_result_close(&r);
}

/* The maximum of all threads: of the time behind, and of the processor time. */
static void the_result_has_the_maximum_of_all_threads(void **state)
{
    const ls_stress_config config = sample_open_config();
    ls_stress_result r;
    sample s;
    (void)state;
    sample_open(&s, &config);
    atomic_store(&s.counters[0].behind_ns, 7);
    atomic_store(&s.counters[1].behind_ns, 5);
    atomic_store(&s.counters[0].wanted_ns, SAMPLE_SECOND / 4);
    atomic_store(&s.counters[1].wanted_ns, SAMPLE_SECOND / 2);
    s.now += SAMPLE_SECOND;
    sample_finish(&s, false, NULL, 0, &r);
    assert_true(r.behind_ns == 7 && r.wanted == 0.5);
    sample_close(&s);
    ls_stress_result_close(&r);
}

static void checks_by_name(void **state)
{
    ls_stress_checks a = {0}, b = {0};
    char name[LS_STRESS_CHECK_NAME_MAX + 8];
    (void)state;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ls_stress_checks_count(&a, "status", 6, true), LS_OK);
        assert_int_equal(ls_stress_checks_count(&a, "body", 4, i < 7), LS_OK);
    }
    assert_int_equal(a.count, 2);
    assert_true(ls_stress_checks_find(&a, "status", 6)->passed == 10);
    assert_true(ls_stress_checks_find(&a, "body", 4)->failed == 3);
    assert_null(ls_stress_checks_find(&a, "bod", 3));
    assert_true(ls_stress_checks_failed(&a) == 3);

    assert_int_equal(ls_stress_checks_count(&b, "body", 4, false), LS_OK);
    assert_int_equal(ls_stress_checks_count(&b, "new", 3, true), LS_OK);
    assert_int_equal(ls_stress_checks_add(&a, &b), LS_OK);
    assert_int_equal(a.count, 3);
    assert_true(ls_stress_checks_find(&a, "body", 4)->failed == 4 &&
                ls_stress_checks_find(&a, "body", 4)->passed == 7);

    /* A long name is cut; the long name finds the cut one. */
    memset(name, 'x', sizeof name);
    assert_int_equal(ls_stress_checks_count(&a, name, LS_STRESS_CHECK_NAME_MAX, true), LS_OK);
    assert_int_equal(ls_stress_checks_count(&a, name, LS_STRESS_CHECK_NAME_MAX + 1, true), LS_OK);
    assert_true(ls_stress_checks_find(&a, name, sizeof name)->passed == 2);

    /* The limit of names, and names beyond it. */
    while (a.count < LS_STRESS_CHECKS_MAX) {
        snprintf(name, sizeof name, "check %zu", a.count);
        assert_int_equal(ls_stress_checks_count(&a, name, strlen(name), true), LS_OK);
    }
    assert_null(ls_stress_checks_find(&a, "(others)", 8));
    assert_int_equal(ls_stress_checks_count(&a, "one more", 8, false), LS_OK);
    assert_int_equal(ls_stress_checks_count(&a, "and another", 11, true), LS_OK);
    assert_null(ls_stress_checks_find(&a, "one more", 8));
    assert_true(ls_stress_checks_find(&a, "(others)", 8)->failed == 1);
    assert_true(ls_stress_checks_find(&a, "(others)", 8)->passed == 1);
    assert_int_equal(a.count, LS_STRESS_CHECKS_MAX + 1);
    ls_stress_checks_close(&a);
    ls_stress_checks_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_end_at_whole_seconds),
        cmocka_unit_test(bytes_before_the_run_do_not_count),
        cmocka_unit_test(the_series_ends_with_the_run),
        cmocka_unit_test(connections_of_the_last_interval),
        cmocka_unit_test(each_thread_is_a_sample_of_the_rate),
        cmocka_unit_test(a_run_shorter_than_a_tick_has_a_rate),
        cmocka_unit_test(the_live_rate_covers_the_last_second),
        cmocka_unit_test(the_number_of_intervals_is_limited),
        cmocka_unit_test(the_target_rate_is_the_average_of_the_stages),
        cmocka_unit_test(a_late_load_generator_is_detected),
        cmocka_unit_test(a_missed_rate_has_a_reason),
        cmocka_unit_test(the_result_has_the_maximum_of_all_threads),
        cmocka_unit_test(checks_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
