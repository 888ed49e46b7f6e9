/* test_report.c - the printed report: wrk's lines to the column, ours after them, and what each kind of run says. The
 * files that programs read are tested with their own parsers in tests/e2e/test_stress_report.py. */
#include "support.h"

#include <stdio.h>

#include "run_fixture.h"
#include "stress/report.h"

/* Everything that a kind of run prints; the caller frees it. */
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
    if (strstr(text, part) == NULL) fail_msg("not in it: %s\n%s", part, text);
}

static void assert_has_not(const char *text, const char *part)
{
    if (strstr(text, part) != NULL) fail_msg("in it: %s\n%s", part, text);
}

/* A run of known numbers, so that every character of wrk's part is known: of four answers three take 100 us (the slot of
 * which ends at 100.03) and one 1.1 ms; each thread answers 40,000 and 30,000 in a second, in turn. */
static void wrk_lines_to_the_column(void **state)
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
                sample_answer(&s, thread, i % 1000 == 0 ? 404 : 200, i % 4 == 3 ? 1100000 : 100000, 0, 0);
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

static void head_says_how_long(void **state)
{
    static const struct {
        uint64_t ns, requests;
        const char *line;
    } cases[] = {
        {10 * SAMPLE_SECOND, 0, "Running 10s test @ u\n"}, {50 * SAMPLE_SECOND, 0, "Running 50s test @ u\n"},
        {51 * SAMPLE_SECOND, 0, "Running 1m test @ u\n"}, /* as wrk does, from 0.85 of a minute on */
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

static void closed_loop_without_faults_is_short(void **state)
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

static void open_loop_shows_both_sides(void **state)
{
    char *text = printed("open"), line[64];
    unsigned due = 0, sent = 0;
    (void)state;
    assert_has(text, "\n              corrected  uncorrected\n  p50             193us        191us\n");
    const char *p99 = strstr(text, "\n  p99  ");
    assert_non_null(p99);
    snprintf(line, sizeof line, "%.50s", p99 + 1);
    assert_int_equal(sscanf(line, " p99 %ums %uus", &due, &sent), 2);
    assert_in_range(due, 240, 260); /* the stall of half a second took 2000 of 120,000 with it, evenly */
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

static void a_late_engine_is_warned_of(void **state)
{
    char *text = printed("ramp");
    (void)state;
    assert_has(text, "Warning: the load engine itself was late against its schedule, by 3.30ms or more for 1% of the "
                     "requests and 3.45ms at most;");
    assert_has_not(text, "asked for"); /* 46 short of 60,000 */
    free(text);
}

static void nothing_answered(void **state)
{
    char *text = printed("empty");
    (void)state;
    assert_has(text, "    Latency     0.00us    0.00us   0.00us    0.00%\n");
    assert_has(text, "  0 requests in 50.00ms, 0.00B read\n");
    assert_has(text, "  Socket errors: connect 64, read 0, write 0, timeout 0\n");
    assert_has(text, "Requests/sec:      0.00\nTransfer/sec:       0.00B\n");
    assert_has(text, "Warning: asked for 4000.0 requests/s, reached 0.0 (0.0%)\n");
    assert_has(text, "  p50                 -            -\n");
    assert_has(text, "  MISSED  p99 < 5ms (measured: -)\n");
    free(text);
}

static void texts_of_scripts_cannot_steer_the_terminal(void **state)
{
    char *text = printed("hostile");
    (void)state;
    assert_has(text, "Ended early, after 1.00s\n");
    assert_has(text, "  FAILED  </pre><script>??[31m");
    assert_null(strchr(text, '\x1b'));
    free(text);
}

/* The engine's own failure judges nobody; a server that is too slow for the load has missed what it missed. */
static void a_load_that_could_not_be_made(void **state)
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
         "asked for 4000.0 requests/s, reached 100.0: 50 of 100 were due and never sent, as no connection was free; "
         "the "
         "server is too slow for this rate, or for 64 connections (-c)"},
        {NULL, 50, 0, true, 99, "no connection was free"},
        {NULL, 50, 0.97, false, 1,
         "the load engine itself was late, by up to 1.00us, with 97% of a processor wanted by its busiest thread"},
        {NULL, 50, 0.97, true, 1, "the load engine itself was late"},
        {"nobody listens", 0, 0, true, 1, "nobody listens"},
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

static void exit_status(void **state)
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

static void files_that_cannot_be_written(void **state)
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
        cmocka_unit_test(wrk_lines_to_the_column),
        cmocka_unit_test(head_says_how_long),
        cmocka_unit_test(closed_loop_without_faults_is_short),
        cmocka_unit_test(open_loop_shows_both_sides),
        cmocka_unit_test(a_late_engine_is_warned_of),
        cmocka_unit_test(nothing_answered),
        cmocka_unit_test(texts_of_scripts_cannot_steer_the_terminal),
        cmocka_unit_test(a_load_that_could_not_be_made),
        cmocka_unit_test(exit_status),
        cmocka_unit_test(files_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
