/* test_view.c - the lines of the live view in windows of every width. tests/e2e/test_stress_view.py shows them on a
 * terminal. */
#include "support.h"

#include <stdio.h>

#include "run_fixture.h"
#include "stress/view.h"

/* The columns of a line on a terminal: without color sequences; a character of several bytes is one column. */
static size_t columns_of(const char *line, size_t len)
{
    size_t columns = 0;
    for (size_t i = 0; i < len; i++) {
        if (line[i] == '\x1b') {
            while (line[i] != 'm') i++;
        } else if (((unsigned char)line[i] & 0xc0) != 0x80) {
            columns++;
        }
    }
    return columns;
}

static void run_for(sample *s, const ls_stress_config *config, int seconds)
{
    sample_open(s, config);
    for (int i = 0; i < 10 * seconds; i++) {
        sample_work(s, 200 + 20 * i, false, 0, 0);
        sample_tick(s, SAMPLE_SECOND / 10);
    }
}

static void never_wider_than_the_window(void **state)
{
    sample s;
    ls_stress_config config = sample_open_config();
    (void)state;
    run_for(&s, &config, 9);
    ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_READ], 123456);
    sample_tick(&s, SAMPLE_SECOND / 10);
    for (unsigned columns = 1; columns <= 250; columns++) {
        for (int variant = 0; variant < 4; variant++) {
            ls_stress_view view = {.kind = LS_STRESS_VIEW_SCREEN, .utf8 = variant & 1, .color = variant & 2};
            ls_strbuf t = {0};
            ls_stress_view_screen(&t, &view, s.sampler, columns);
            unsigned lines = 0;
            for (const char *at = t.bytes; *at != '\0'; lines++) {
                size_t len = strcspn(at, "\n");
                if (columns_of(at, len) > columns) fail_msg("%u columns: %.*s", columns, (int)len, at);
                at += len + 1;
            }
            assert_int_equal(lines, LS_STRESS_VIEW_LINES_MAX);
            if (!(variant & 2)) assert_null(strchr(t.bytes, '\x1b'));
            if (variant & 2) assert_non_null(strstr(t.bytes, "\x1b[0m"));
            if (!(variant & 1)) {
                for (size_t i = 0; i < t.len; i++) assert_true((unsigned char)t.bytes[i] < 0x80);
            }
            ls_strbuf_close(&t);
        }
    }
    sample_close(&s);
}

static void the_view_shows_the_live_figures(void **state)
{
    sample s;
    ls_strbuf t = {0};
    ls_stress_view view = {.kind = LS_STRESS_VIEW_SCREEN};
    ls_stress_config config = sample_closed_config;
    (void)state;
    sample_open(&s, &config);
    for (int i = 0; i < 25; i++) {
        for (int k = 0; k < 100; k++) sample_response(&s, 0, i == 20 ? 500 : 200, 250000, 0, 0);
        sample_tick(&s, SAMPLE_SECOND / 10);
    }
    ls_stress_view_screen(&t, &view, s.sampler, 90);
    assert_string_equal(t.bytes,
                        "[============>                                       ]  25%  2.5s of 10.0s, 7.5s left\n"
                        "1000/s  0 errors, 100 with status 400+  2500 requests  0 connections\n"
                        "p50 250us  p99 250us  max 250us  p99 ##\n");
    ls_strbuf_close(&t);

    t = (ls_strbuf){0};
    ls_stress_view_line(&t, s.sampler);
    assert_string_equal(t.bytes, "    2s  1000 requests/s  p50 250us  p99 250us  max 250us  errors 0\n");
    ls_strbuf_close(&t);
    sample_close(&s);
}

static void the_first_second_has_no_latency(void **state)
{
    sample s;
    ls_strbuf t = {0};
    ls_stress_view view = {.kind = LS_STRESS_VIEW_SCREEN};
    ls_stress_config config = sample_closed_config;
    (void)state;
    config.duration_ns = 0;
    config.requests = 300;
    sample_open(&s, &config);
    for (int k = 0; k < 100; k++) sample_response(&s, 0, 200, 250000, 0, 0);
    sample_tick(&s, SAMPLE_SECOND / 10);
    ls_stress_view_line(&t, s.sampler);
    assert_int_equal(t.len, 0);
    ls_stress_view_screen(&t, &view, s.sampler, 30);
    assert_string_equal(t.bytes, " 33%  0.1s\n1000/s  0 errors  100 requests\nlatency: shown after 1 s\n");
    ls_strbuf_close(&t);
    sample_close(&s);
}

/* 100 deliveries of each message: its progress is that of the messages. */
static void the_progress_of_a_fan_out_run(void **state)
{
    sample s;
    ls_strbuf t = {0};
    ls_stress_view view = {.kind = LS_STRESS_VIEW_SCREEN};
    ls_stress_config config = sample_closed_config;
    (void)state;
    config.duration_ns = 0;
    config.requests = 40;
    config.rate = 10;
    config.open_loop = config.fanout = true;
    config.publishers = 1;
    sample_open(&s, &config);
    for (int i = 0; i < 10; i++) {
        ls_counter_add(&s.counters[0].published, 1);
        for (int k = 0; k < 100; k++) sample_response(&s, 1, 0, 250000, 0, 0);
        sample_tick(&s, SAMPLE_SECOND / 10);
    }
    ls_stress_view_screen(&t, &view, s.sampler, 90);
    assert_non_null(strstr(t.bytes, "]  25%  1.0s\n1000/s  0 errors  1000 requests"));
    ls_strbuf_close(&t);
    sample_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_wider_than_the_window),
        cmocka_unit_test(the_view_shows_the_live_figures),
        cmocka_unit_test(the_first_second_has_no_latency),
        cmocka_unit_test(the_progress_of_a_fan_out_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
