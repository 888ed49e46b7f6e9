/* test_report.c - the printed report: wrk's lines, column for column, the additional lines, and the report of each
 * kind of run. tests/e2e/test_stress_report.py tests the files with parsers of their formats. */
#include "support.h"

#include <stdio.h>

#include "run_fixture.h"
#include "stress/report.h"

/* The complete printed report of a kind of run; the caller frees it. */
static char *printed(const char *kind)
{
    ls_stress_result r;
    ls_strbuf t = {0};
    assert_true(sample_run(kind, &r));
    ls_stress_report_head(&t, &r.config);
    ls_stress_report_text(&t, &r);
    assert_false(t.failed);
    ls_stress_result_close(&r);
    return t.bytes;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("missing: %s\n%s", part, text);
}

static void assert_has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) fail_msg("unexpected: %s\n%s", part, text);
}

/* A run with known numbers, so every character of wrk's part is known: of four responses three take 100 us (a slot
 * that ends at 100.03) and one 1.1 ms; each thread completes 40,000 and 30,000 requests per second, in turn. */
static void wrk_lines_have_wrk_columns(void **state)
{
    sample s;
    ls_stress_result r;
    ls_strbuf t = {0};
    ls_stress_config config = sample_closed_config;
    (void)state;
    config.duration_ns = 2 * SAMPLE_SECOND;
    sample_open(&s, &config);
    for (int tick = 0; tick < 20; tick++) {
        for (int i = 0; i < (tick % 2 ? 3000 : 4000); i++) {
            for (int thread = 0; thread < 2; thread++) {
                sample_response(&s, thread, i % 1000 == 0 ? 404 : 200, i % 4 == 3 ? 1100000 : 100000, 0, 0);
            }
        }
        sample_tick(&s, SAMPLE_SECOND / 10);
    }
    ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_READ], 3);
    ls_counter_add(&s.counters[1].errors[LS_STRESS_ERROR_TIMEOUT], 12);
    sample_finish(&s, false, NULL, 0, &r);
    ls_stress_report_head(&t, &r.config);
    ls_stress_report_text(&t, &r);
    assert_string_equal(t.bytes, "Running 2s test @ http://127.0.0.1:8080/\n"
                                 "  2 threads and 64 connections\n"
                                 "  Thread Stats   Avg      Stdev     Max   +/- Stdev\n"
                                 "    Latency   350.00us  433.01us   1.10ms   75.00%\n"
                                 "    Req/Sec    35.00k     5.00k   40.00k   100.00%\n"
                                 "  Latency Distribution\n"
                                 "     50%  100.03us\n"
                                 "     75%  100.03us\n"
                                 "     90%    1.10ms\n"
                                 "     99%    1.10ms\n"
                                 "  140000 requests in 2.00s, 32.04MB read\n"
                                 "  Socket errors: connect 0, read 3, write 0, timeout 12\n"
                                 "  Non-2xx or 3xx responses: 140\n"
                                 "Requests/sec:  70000.00\n"
                                 "Transfer/sec:     16.02MB\n"
                                 "Status: 200 139860, 404 140\n");
    ls_strbuf_close(&t);
    ls_stress_result_close(&r);
    sample_close(&s);
}

static void the_head_shows_the_duration(void **state)
{
    static const struct {
        uint64_t ns, requests;
        const char *line;
    } cases[] = {
        {10 * SAMPLE_SECOND, 0, "Running 10s test @ u\n"}, {50 * SAMPLE_SECOND, 0, "Running 50s test @ u\n"},
        {51 * SAMPLE_SECOND, 0, "Running 1m test @ u\n"}, /* as in wrk, from 0.85 of a minute */
        {120 * SAMPLE_SECOND, 0, "Running 2m test @ u\n"}, {SAMPLE_SECOND / 2, 0, "Running 500ms test @ u\n"},
        {0, 1000, "Running 1000 requests @ u\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_strbuf t = {0};
        ls_stress_config config = sample_closed_config;
        config.target = "u";
        config.duration_ns = cases[i].ns;
        config.requests = cases[i].requests;
        ls_stress_report_head(&t, &config);
        assert_memory_equal(t.bytes, cases[i].line, strlen(cases[i].line));
        ls_strbuf_close(&t);
    }
}

static void a_closed_loop_without_errors_prints_no_warnings(void **state)
{
    char *text = printed("closed");
    (void)state;
    assert_has_not(text, "errors:");
    assert_has_not(text, "Non-2xx");
    assert_has_not(text, "Status:");
    assert_has_not(text, "Warning");
    assert_has_not(text, "corrected");
    assert_has_not(text, "Checks");
    assert_has(text, "\nThresholds\n  met     p99 < 50ms (measured: ");
    free(text);
}

static void an_open_loop_prints_both_latencies(void **state)
{
    char *text = printed("open"), line[64];
    unsigned due = 0, sent = 0;
    (void)state;
    assert_has(text, "\n              corrected  uncorrected\n  p50             193us        191us\n");
    const char *p99 = strstr(text, "\n  p99  ");
    assert_non_null(p99);
    snprintf(line, sizeof line, "%.50s", p99 + 1);
    assert_int_equal(sscanf(line, " p99 %ums %uus", &due, &sent), 2);
    assert_in_range(due, 240, 260); /* the stall of half a second delayed 2000 of 120,000 requests, evenly */
    assert_in_range(sent, 350, 500);
    assert_has(text, "Socket errors: connect 0, read 3, write 0, timeout 12\n");
    assert_has(text, "\nChecks\n  passed  status: 1000\n  FAILED  body has the name: 20 of 1000\n");
    assert_has(text, "  MISSED  p99 < 5ms (measured: ");
    assert_has(text, "  met     rate >= 3900/s (measured: 4000.0/s)\n");
    assert_has(text, "  met     errors < 0.1% (measured: 0.01%)\n");
    assert_has(text, "  MISSED  5xx == 0 (measured: ");
    assert_has_not(text, "Warning");
    free(text);
}

static void a_late_load_generator_is_reported(void **state)
{
    char *text = printed("ramp");
    (void)state;
    assert_has(text, "Warning: the load generator itself was behind its schedule, by 3.30ms or more for 1% of the "
                     "requests and by 3.45ms at most;");
    assert_has_not(text, "target rate"); /* 46 fewer than 60,000 */
    free(text);
}

static void a_run_without_responses_is_reported(void **state)
{
    char *text = printed("empty");
    (void)state;
    assert_has(text, "    Latency     0.00us    0.00us   0.00us    0.00%\n");
    assert_has(text, "  0 requests in 50.00ms, 0.00B read\n");
    assert_has(text, "  Socket errors: connect 64, read 0, write 0, timeout 0\n");
    assert_has(text, "Requests/sec:      0.00\nTransfer/sec:       0.00B\n");
    assert_has(text, "Warning: target rate 4000.0 requests/s, reached 0.0 (0.0%)\n");
    assert_has(text, "  p50                 -            -\n");
    assert_has(text, "  MISSED  p99 < 5ms (measured: -)\n");
    free(text);
}

static void check_names_cannot_control_the_terminal(void **state)
{
    char *text = printed("hostile");
    (void)state;
    assert_has(text, "Ended early, after 1.00s\n");
    assert_has(text, "  FAILED  </pre><script>??[31m");
    assert_null(strchr(text, '\x1b'));
    free(text);
}

/* A late load generator makes its thresholds meaningless; with a slow server a missed threshold counts. */
static void a_missed_rate_decides_the_exit_status(void **state)
{
    static const struct {
        const char *failure;
        uint64_t unsent;
        double wanted;
        bool missed;
        int status;
        const char *text;
    } rows[] = {
        {NULL, 0, 0, false, 0, NULL},
        {NULL, 0, 0, true, 99, NULL},
        {NULL, 50, 0, false, 1,
         "target rate 4000.0 requests/s, reached 100.0: 50 of 100 due requests were never sent, because no connection "
         "was free; the server is too slow for this rate with 64 connections (-c)"},
        {NULL, 50, 0, true, 99, "no connection was free"},
        {NULL, 50, 0.97, false, 1,
         "the load generator itself was late by up to 1.00us, and its busiest thread used or waited for 97% of a "
         "processor"},
        {NULL, 50, 0.97, true, 1, "the load generator itself was late"},
        {"no server", 0, 0, true, 1, "no server"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_stress_threshold threshold = {.met = !rows[i].missed};
        char text[LS_STRESS_FAILURE_BYTES];
        ls_stress_result r = {.config = sample_open_config(),
                              .duration_ns = SAMPLE_SECOND,
                              .requests = 100,
                              .failure = rows[i].failure,
                              .unsent = rows[i].unsent,
                              .behind_ns = SAMPLE_SECOND,
                              .wanted = rows[i].wanted,
                              .sent = ls_histogram_open(),
                              .lag = ls_histogram_open(),
                              .thresholds = &threshold,
                              .threshold_count = 1};
        for (int k = 0; k < 100; k++) ls_histogram_record(r.lag, 1000);
        assert_int_equal(ls_stress_report_exit(&r), rows[i].status);
        if (rows[i].text == NULL)
            assert_null(ls_stress_failure_text(text, sizeof text, &r));
        else
            assert_has(ls_stress_failure_text(text, sizeof text, &r), rows[i].text);
        ls_histogram_close(r.sent);
        ls_histogram_close(r.lag);
    }
}

/* A run may last less than a millisecond. */
static void seconds_are_exact_in_json(void **state)
{
    ls_strbuf text = {0};
    ls_stress_result r;
    (void)state;
    assert_true(sample_run("empty", &r));
    r.duration_ns = 400001;
    ls_stress_report_json(&text, &r);
    assert_has(text.bytes, "\"totals\":{\"duration_s\":0.000400001,");
    ls_strbuf_close(&text);
    ls_stress_result_close(&r);
}

static void exit_status_of_each_kind(void **state)
{
    static const struct {
        const char *kind;
        int status;
    } cases[] = {{"closed", 0}, {"open", 99}, {"short", 1}, {"empty", 99}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_stress_result r;
        assert_true(sample_run(cases[i].kind, &r));
        assert_int_equal(ls_stress_report_exit(&r), cases[i].status);
        ls_stress_result_close(&r);
    }
}

static void unwritable_files_are_reported(void **state)
{
    char why[256] = "";
    ls_stress_files none = {0}, bad = {.csv = "/no/such/folder/a.csv"};
    ls_stress_result r;
    (void)state;
    assert_true(sample_run("closed", &r));
    assert_int_equal(ls_stress_files_probe(&none, why, sizeof why), LS_OK);
    assert_int_equal(ls_stress_files_write(&none, &r, why, sizeof why), LS_OK);
    assert_string_equal(why, "");
    assert_int_equal(ls_stress_files_probe(&bad, why, sizeof why), LS_ENOENT);
    assert_string_equal(why, "cannot write /no/such/folder/a.csv: not found");
    why[0] = '\0';
    assert_int_equal(ls_stress_files_write(&bad, &r, why, sizeof why), LS_ENOENT);
    assert_string_equal(why, "cannot write /no/such/folder/a.csv: not found");
    ls_stress_result_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrk_lines_have_wrk_columns),
        cmocka_unit_test(the_head_shows_the_duration),
        cmocka_unit_test(a_closed_loop_without_errors_prints_no_warnings),
        cmocka_unit_test(an_open_loop_prints_both_latencies),
        cmocka_unit_test(a_late_load_generator_is_reported),
        cmocka_unit_test(a_run_without_responses_is_reported),
        cmocka_unit_test(check_names_cannot_control_the_terminal),
        cmocka_unit_test(a_missed_rate_decides_the_exit_status),
        cmocka_unit_test(seconds_are_exact_in_json),
        cmocka_unit_test(exit_status_of_each_kind),
        cmocka_unit_test(unwritable_files_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
