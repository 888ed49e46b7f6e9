/* report.c - functions shared by the reports, and the report files. */
#include "stress/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/fopen.h"

const double ls_stress_percents[] = {50, 75, 90, 95, 99, 99.9, 99.99, 99.999};
const size_t ls_stress_percent_count = sizeof ls_stress_percents / sizeof ls_stress_percents[0];

void ls_stress_percent_name(char *buffer, size_t size, double percent)
{
    char number[48];
    ls_stress_fixed_text(number, sizeof number, percent, 6);
    size_t len = strlen(number);
    while (number[len - 1] == '0') len--;
    if (number[len - 1] == '.') len--;
    snprintf(buffer, size, "p%.*s", (int)len, number);
}

void ls_stress_time_text(char *buffer, size_t size, double ns)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
    char number[48];
    if (!isfinite(ns)) {
        snprintf(buffer, size, "-");
        return;
    }
    size_t unit = 0;
    /* A value that would round to 1000 uses the next unit. */
    while (unit < 3 && ns / units[unit].ns >= 999.5) unit++;
    double value = ns / units[unit].ns;
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(buffer, size, "%s%s", ls_stress_fixed_text(number, sizeof number, value, decimals), units[unit].unit);
}

void ls_stress_actual_text(char *buffer, size_t size, const ls_stress_threshold *t)
{
    char number[48];
    if (!isfinite(t->actual))
        snprintf(buffer, size, "-");
    else if (t->metric <= LS_STRESS_METRIC_STDEV)
        ls_stress_time_text(buffer, size, t->actual);
    else if (t->metric == LS_STRESS_METRIC_RATE) {
        snprintf(buffer, size, "%s/s", ls_stress_fixed_text(number, sizeof number, t->actual, 1));
    } else if (t->percent) {
        /* A share above 0 is never shown as 0.00%. */
        int decimals = t->actual > 0 && t->actual < 0.01 ? 6 : 2;
        snprintf(buffer, size, "%s%%", ls_stress_fixed_text(number, sizeof number, t->actual, decimals));
    } else {
        ls_stress_fixed_text(buffer, size, t->actual, 0);
    }
}

int ls_stress_report_exit(const ls_stress_result *result)
{
    const ls_stress_short is_short = ls_stress_result_short(result);
    if (result->failure != NULL || is_short == LS_STRESS_SHORT_OF_TIME) return LS_STRESS_EXIT_FAILED;
    if (ls_stress_result_missed(result) > 0 || ls_stress_result_checks_missed(result)) return LS_STRESS_EXIT_MISSED;
    return is_short != LS_STRESS_SHORT_NOT ? LS_STRESS_EXIT_FAILED : LS_STRESS_EXIT_MET;
}

const char *ls_stress_failure_text(char *buffer, size_t size, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    char target[48], rate[48], what[128], why[256], text[48];
    const ls_stress_short is_short = ls_stress_result_short(r);
    if (r->failure != NULL) {
        snprintf(buffer, size, "%s", r->failure);
        return buffer;
    }
    if (is_short == LS_STRESS_SHORT_NOT) return NULL;
    ls_stress_time_text(text, sizeof text, (double)r->behind_ns);
    if (r->unsent > 0)
        snprintf(what, sizeof what, "%llu of %llu due requests were never sent", (ull)r->unsent,
                 (ull)ls_histogram_count(r->lag));
    else
        snprintf(what, sizeof what, "the last request was sent %s late", text);
    if (is_short == LS_STRESS_SHORT_OF_CONNECTIONS) {
        snprintf(why, sizeof why,
                 "no connection was free; the server is too slow for this rate with %u connection%s (-c)",
                 r->config.connections, r->config.connections == 1 ? "" : "s");
    } else {
        ls_stress_time_text(text, sizeof text, (double)ls_histogram_max(r->lag));
        snprintf(
            why, sizeof why,
            "the load generator itself was late by up to %s, and its busiest thread used or waited for %.0f%% of a "
            "processor; use more threads (-t), another machine, or a lower rate",
            text, r->wanted * 100);
    }
    snprintf(buffer, size, "target rate %s requests/s, reached %s: %s, because %s",
             ls_stress_fixed_text(target, sizeof target, ls_stress_result_target_rate(r), 1),
             ls_stress_fixed_text(rate, sizeof rate, ls_stress_result_made_rate(r), 1), what, why);
    return buffer;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int write_failed(const char *path, int err, char *why, size_t why_size)
{
    /* strerror() is more specific than the table of errors, as for a full disk. No other thread runs. */
    const char *reason = err == LS_ESYS && errno != 0 ? strerror(errno) : ls_err_text(err);
    snprintf(why, why_size, "cannot write %s: %s", path, reason);
    return err;
}

static int probe(const char *path, char *why, size_t why_size)
{
    if (path == NULL) return LS_OK;
    bool is_new = false;
    FILE *to = ls_fopen(path, "r+b"); /* in this mode the open of a pipe does not block */
    if (to == NULL) {
        is_new = errno == ENOENT;
        if ((to = ls_fopen(path, "ab")) == NULL) return write_failed(path, ls_err_from_errno(errno), why, why_size);
    }
    fclose(to);
    if (is_new) (void)ls_remove(path); /* a failed run leaves no empty report; Windows cannot remove an open file */
    return LS_OK;
}

int ls_stress_files_probe(const ls_stress_files *files, char *why, size_t why_size)
{
    int err = probe(files->json, why, why_size);
    if (err == LS_OK) err = probe(files->csv, why, why_size);
    if (err == LS_OK) err = probe(files->html, why, why_size);
    return err;
}

int ls_stress_files_write(const ls_stress_files *files, const ls_stress_result *result, char *why, size_t why_size)
{
    const struct {
        const char *path;
        void (*write)(ls_strbuf *, const ls_stress_result *);
    } all[] = {
        {files->json, ls_stress_report_json},
        {files->csv, ls_stress_report_csv},
        {files->html, ls_stress_report_html},
    };
    int first = LS_OK;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].path == NULL) continue;
        ls_strbuf text = {0};
        all[i].write(&text, result);
        int err = ls_strbuf_save(&text, all[i].path);
        ls_strbuf_close(&text);
        if (err < 0 && first == LS_OK) first = write_failed(all[i].path, err, why, why_size);
    }
    return first;
}
