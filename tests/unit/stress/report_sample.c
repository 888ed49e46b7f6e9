/* report_sample.c - writes the reports of a simulated run, for tests of the reports in other languages.
 *
 * usage: report_sample KIND text|json|csv|html      the report on stdout; KIND as in run_fixture.h
 *        report_sample view N                       the live view on stderr: N ticks of an open run. After each tick
 *                                                   it waits for a byte on stdin, so the test controls the time.
 *                                                   Then it closes the view and prints "done" on stdout */
#include <stdio.h>

#include "run_fixture.h"
#include "stress/report.h"
#include "stress/view.h"

static int write_report(const char *kind, const char *format)
{
    static const struct {
        const char *name;
        void (*write)(ls_strbuf *, const ls_stress_result *);
    } formats[] = {
        {"text", ls_stress_report_text},
        {"json", ls_stress_report_json},
        {"csv", ls_stress_report_csv},
        {"html", ls_stress_report_html},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(format, formats[i].name) != 0) continue;
        ls_stress_result result;
        ls_strbuf text = {0};
        if (!sample_run(kind, &result)) break;
        if (strcmp(format, "text") == 0) ls_stress_report_head(&text, &result.config);
        formats[i].write(&text, &result);
        bool whole = !text.failed && fwrite(text.bytes, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
        int status = whole ? ls_stress_report_exit(&result) : 1;
        ls_strbuf_close(&text);
        ls_stress_result_close(&result);
        return status;
    }
    fprintf(stderr, "report_sample: unknown kind or format\n");
    return 2;
}

static int show_view(int ticks)
{
    sample s;
    ls_stress_config config = sample_open_config();
    ls_stress_view view;
    sample_open(&s, &config);
    ls_stress_view_open(&view, stderr, false);
    for (int i = 0; i < ticks; i++) {
        sample_work(&s, 10000, false, 0, 0); /* half a second at 4000/s */
        if (i == ticks - 1) ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_READ], 7);
        ls_stress_view_draw(&view, s.sampler, sample_tick(&s, SAMPLE_SECOND / 2));
        if (getchar() == EOF) break;
    }
    ls_stress_view_close(&view);
    ls_stress_view_close(&view);
    sample_close(&s);
    printf("done\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "view") == 0) return show_view(atoi(argv[2]));
    if (argc == 3) return write_report(argv[1], argv[2]);
    fprintf(stderr, "usage: report_sample KIND FORMAT | report_sample view TICKS\n");
    return 2;
}
