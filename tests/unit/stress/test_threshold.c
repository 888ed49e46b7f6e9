/* test_threshold.c - valid and invalid thresholds, error messages, and the evaluation. */
#include "support.h"

#include <math.h>

#include "run_fixture.h"
#include "stress/threshold.h"

static ls_stress_threshold parsed(const char *text)
{
    ls_stress_threshold t;
    char why[256] = "";
    size_t len = strlen(text);
    char *copy = test_copy_exact(text, len);
    if (ls_stress_threshold_parse(copy, len, &t, why, sizeof why) != LS_OK) fail_msg("%s", why);
    free(copy);
    return t;
}

static void valid_thresholds_are_parsed(void **state)
{
    static const struct {
        const char *text;
        ls_stress_metric metric;
        ls_stress_op op;
        double limit;
        bool percent;
    } cases[] = {
        {"p99 < 5ms", LS_STRESS_METRIC_PERCENTILE, LS_STRESS_OP_LESS, 5e6, false},
        {"p50<250us", LS_STRESS_METRIC_PERCENTILE, LS_STRESS_OP_LESS, 250e3, false},
        {"  p99.99\t<=  1.5 s  ", LS_STRESS_METRIC_PERCENTILE, LS_STRESS_OP_LESS_EQUAL, 1.5e9, false},
        {"p99.999 < 5s", LS_STRESS_METRIC_PERCENTILE, LS_STRESS_OP_LESS, 5e9, false},
        {"mean < 1ms", LS_STRESS_METRIC_MEAN, LS_STRESS_OP_LESS, 1e6, false},
        {"min > 0us", LS_STRESS_METRIC_MIN, LS_STRESS_OP_GREATER, 0, false},
        {"max <= 0.25s", LS_STRESS_METRIC_MAX, LS_STRESS_OP_LESS_EQUAL, 250e6, false},
        {"stdev < 100us", LS_STRESS_METRIC_STDEV, LS_STRESS_OP_LESS, 100e3, false},
        {"rate >= 10000/s", LS_STRESS_METRIC_RATE, LS_STRESS_OP_GREATER_EQUAL, 10000, false},
        {"rate > 99.5", LS_STRESS_METRIC_RATE, LS_STRESS_OP_GREATER, 99.5, false},
        {"errors == 0", LS_STRESS_METRIC_ERRORS, LS_STRESS_OP_EQUAL, 0, false},
        {"errors < 0.1%", LS_STRESS_METRIC_ERRORS, LS_STRESS_OP_LESS, 0.1, true},
        {"error_rate < 100%", LS_STRESS_METRIC_ERRORS, LS_STRESS_OP_LESS, 100, true},
        {"checks == 0", LS_STRESS_METRIC_CHECKS, LS_STRESS_OP_EQUAL, 0, false},
        {"checks_failed < 1 %", LS_STRESS_METRIC_CHECKS, LS_STRESS_OP_LESS, 1, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_stress_threshold t = parsed(cases[i].text);
        assert_int_equal(t.metric, cases[i].metric);
        assert_int_equal(t.op, cases[i].op);
        assert_true(fabs(t.limit - cases[i].limit) <= cases[i].limit * 1e-12);
        assert_int_equal(t.percent, cases[i].percent);
    }
    assert_true(fabs(parsed("p99.99 < 1s").percentile - 99.99) < 1e-12);
    assert_string_equal(parsed(" \t p99 < 5ms ").text, "p99 < 5ms");
    ls_stress_threshold class = parsed("5xx == 0"), one = parsed("404 < 3%");
    assert_true(class.status_from == 500 && class.status_to == 599);
    assert_true(one.status_from == 404 && one.status_to == 404 && one.percent);
}

/* Each message names the invalid part and the valid form; the output is untouched. */
static void invalid_thresholds_are_refused(void **state)
{
    static const struct {
        const char *text;
        const char *reason;
    } cases[] = {
        {"", "empty"},
        {"   ", "empty"},
        {"< 5ms", "missing metric"},
        {"p99", "missing operator"},
        {"p99 <", "missing number"},
        {"p99 < ms", "\"ms\": expected a number"},
        {"p99 < -5ms", "expected a number"},
        {"p99 < +5ms", "expected a number"},
        {"p99 < .5ms", "expected a number"},
        {"p99 < 0x5ms", "\"x5ms\": the unit of a latency is us, ms or s"},
        {"p99 < 1e3ms", "\"e3ms\""},
        {"p99 < 1.2.3ms", "expected a number"},
        {"p99 < nan", "expected a number"},
        {"p99 < inf", "expected a number"},
        {"p99 < 5", "needs a unit: us, ms or s"},
        {"p99 < 5m", "the unit of a latency is us, ms or s"},
        {"p99 < 5MS", "the unit of a latency is us, ms or s"},
        {"p99 < 5ms 6", "the unit of a latency"},
        {"p99 = 5ms", "\"= 5ms\": expected <, <=, >, >= or =="},
        {"p99 != 5ms", "expected <"},
        {"p99 =< 5ms", "expected <"},
        {"p99 5ms", "expected <"},
        {"p99 => 5ms", "expected <"},
        {"p0 < 5ms", "above p0 and below p100"},
        {"p100 < 5ms", "above p0 and below p100"},
        {"p < 5ms", "\"p\": unknown metric"},
        {"p99x < 5ms", "\"p99x\": unknown metric"},
        {"P99 < 5ms", "unknown metric"},
        {"latency < 5ms", "\"latency\": unknown metric"},
        {"6xx == 0", "unknown metric"},
        {"0xx == 0", "unknown metric"},
        {"5XX == 0", "unknown metric"},
        {"99 == 0", "unknown metric"},
        {"rate > 5ms", "the unit of a rate is /s"},
        {"rate > 5%", "the unit of a rate is /s"},
        {"errors < 5ms", "a count has no unit"},
        {"errors < 0.5", "a count is a whole number"},
        {"errors < 100.1%", "at most 100%"},
        {"error_rate < 5", "the unit of error_rate is %"},
        {"p99 < 11111111111111111111111111111111111111ms", "expected a number"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_stress_threshold t = {.limit = 77};
        char why[512] = "";
        size_t len = strlen(cases[i].text);
        char *copy = test_copy_exact(cases[i].text, len);
        assert_int_equal(ls_stress_threshold_parse(copy, len, &t, why, sizeof why), LS_EINVAL);
        if (strstr(why, cases[i].reason) == NULL) fail_msg("%s: %s", cases[i].text, why);
        assert_null(strchr(why, '\n'));
        assert_true(t.limit == 77);
        free(copy);
    }
}

static void the_length_is_limited_to_80_bytes(void **state)
{
    char text[LS_STRESS_THRESHOLD_TEXT_MAX + 2], why[64];
    ls_stress_threshold t;
    (void)state;
    memset(text, ' ', sizeof text);
    memcpy(text, "p99", 3);
    memcpy(text + LS_STRESS_THRESHOLD_TEXT_MAX - 4, "<5ms", 4);
    assert_int_equal(ls_stress_threshold_parse(text, LS_STRESS_THRESHOLD_TEXT_MAX, &t, why, sizeof why), LS_OK);
    text[LS_STRESS_THRESHOLD_TEXT_MAX - 4] = ' ';
    memcpy(text + LS_STRESS_THRESHOLD_TEXT_MAX - 3, "<5ms", 4);
    assert_int_equal(ls_stress_threshold_parse(text, LS_STRESS_THRESHOLD_TEXT_MAX + 1, &t, why, sizeof why),
                     LS_EINVAL);
    assert_true(strlen(why) < sizeof why); /* cut, and zero-terminated */
    assert_non_null(strstr(ls_stress_threshold_grammar(), "OPERATOR  <  <=  >  >=  =="));
}

/* ---- evaluation ------------------------------------------------------------------------------------------------- */

static bool met(const ls_stress_result *r, const char *text)
{
    ls_stress_threshold t = parsed(text);
    ls_stress_threshold_judge(&t, r);
    return t.met;
}

/* 1000 responses of exactly 1 ms in one second: 990 with status 200, 8 with 404, 2 with 503; 10 errors; 4 checks, of
 * which one failed. */
static void small_run(ls_stress_result *r)
{
    sample s;
    sample_open(&s, &sample_closed_config);
    for (int i = 0; i < 1000; i++) sample_response(&s, i % 2, i < 990 ? 200 : i < 998 ? 404 : 503, 1000000, 0, 0);
    ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_READ], 4);
    ls_counter_add(&s.counters[1].errors[LS_STRESS_ERROR_ANSWER], 6);
    for (int i = 0; i < 4; i++) assert_int_equal(ls_stress_checks_count(&s.checks, "c", 1, i > 0), LS_OK);
    sample_tick(&s, SAMPLE_SECOND);
    sample_finish(&s, false, NULL, 0, r);
    sample_close(&s);
}

static void thresholds_compare_with_the_measured_values(void **state)
{
    ls_stress_result r;
    (void)state;
    small_run(&r);
    /* Each operator below, at and above the limit. */
    assert_true(met(&r, "p99 < 1.001ms") && !met(&r, "p99 < 1ms") && !met(&r, "p99 < 999us"));
    assert_true(met(&r, "p50 <= 1ms") && !met(&r, "p50 <= 999us"));
    assert_true(met(&r, "p50 > 999us") && !met(&r, "p50 > 1ms"));
    assert_true(met(&r, "p50 >= 1ms") && !met(&r, "p50 >= 1001us"));
    assert_true(met(&r, "p50 == 1ms") && !met(&r, "p50 == 2ms"));
    assert_true(met(&r, "mean == 1ms") && met(&r, "min == 1ms") && met(&r, "max == 1ms") && met(&r, "stdev == 0us"));
    assert_true(met(&r, "rate == 1000/s") && !met(&r, "rate > 1000"));
    assert_true(met(&r, "errors == 10") && !met(&r, "errors < 10") && met(&r, "errors < 11"));
    assert_true(met(&r, "errors < 1%") && !met(&r, "error_rate < 0.99%")); /* 10 of 1010 */
    assert_true(met(&r, "4xx == 8") && met(&r, "5xx == 2") && met(&r, "404 == 8") && met(&r, "503 <= 0.2%"));
    assert_true(met(&r, "2xx >= 99%") && !met(&r, "2xx > 99%") && met(&r, "3xx == 0"));
    assert_true(met(&r, "checks == 1") && met(&r, "checks <= 25%") && !met(&r, "checks < 25%"));
    ls_stress_result_close(&r);
}

/* Of a fan-out run with server-sent events, whose deliveries have no status. */
static void a_percentage_of_a_status_is_of_all_responses(void **state)
{
    ls_stress_result r;
    sample s;
    (void)state;
    sample_open(&s, &sample_closed_config);
    for (int i = 0; i < 90; i++) sample_response(&s, 0, 0, 1000000, 0, 0);
    ls_counter_add(&s.counters[1].status[204], 9);
    ls_counter_add(&s.counters[1].status[503], 1);
    sample_tick(&s, SAMPLE_SECOND);
    sample_finish(&s, false, NULL, 0, &r);
    sample_close(&s);
    assert_true(met(&r, "2xx == 90%") && met(&r, "503 == 10%") && met(&r, "204 == 9"));
    ls_stress_result_close(&r);
}

static void open_loops_use_corrected_latency(void **state)
{
    ls_stress_result r;
    sample s;
    ls_stress_config config = sample_open_config();
    (void)state;
    sample_open(&s, &config);
    for (int i = 0; i < 100; i++) sample_response(&s, 0, 200, 1000000, 400000000, 0);
    sample_tick(&s, SAMPLE_SECOND);
    sample_finish(&s, false, NULL, 0, &r);
    sample_close(&s);
    assert_true(!met(&r, "p50 < 400ms") && met(&r, "p50 < 402ms"));
    ls_stress_result_close(&r);
}

/* Without measurements a condition on latency is missed with any operator; a count is 0. */
static void a_threshold_without_measurements_is_missed(void **state)
{
    ls_stress_result r;
    sample s;
    (void)state;
    sample_open(&s, &sample_closed_config);
    sample_tick(&s, SAMPLE_SECOND);
    sample_finish(&s, false, NULL, 0, &r);
    sample_close(&s);
    assert_true(!met(&r, "p99 < 5ms") && !met(&r, "p99 >= 0us") && !met(&r, "mean < 1s") && !met(&r, "errors < 1%"));
    assert_true(met(&r, "errors == 0") && met(&r, "5xx == 0") && !met(&r, "rate > 0") && !met(&r, "checks < 1%"));
    ls_stress_result_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_thresholds_are_parsed),
        cmocka_unit_test(invalid_thresholds_are_refused),
        cmocka_unit_test(the_length_is_limited_to_80_bytes),
        cmocka_unit_test(thresholds_compare_with_the_measured_values),
        cmocka_unit_test(a_percentage_of_a_status_is_of_all_responses),
        cmocka_unit_test(open_loops_use_corrected_latency),
        cmocka_unit_test(a_threshold_without_measurements_is_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
