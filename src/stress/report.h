/* report.h - a finished run as text, JSON, CSV and HTML. REPORTS.md in this folder specifies the formats for programs.
 *
 * No function changes the result; any thread. The reports are composed in an ls_strbuf, so that a file is written
 * completely or not at all. */
#ifndef LS_STRESS_REPORT_H
#define LS_STRESS_REPORT_H

#include <stddef.h>

#include "stress/result.h"
#include "stress/strbuf.h"

enum {
    LS_STRESS_EXIT_MET = 0,
    LS_STRESS_EXIT_FAILED = 1,  /* the run failed, or missed its rate */
    LS_STRESS_EXIT_USAGE = 2,   /* the command line is wrong */
    LS_STRESS_EXIT_MISSED = 99, /* at least one threshold was missed */
};

enum { LS_STRESS_FAILURE_BYTES = 1024 }; /* size of the buffer of ls_stress_failure_text */

/* The two lines before the run: the first lines of wrk. */
void ls_stress_report_head(ls_strbuf *to, const ls_stress_config *config);

/* Everything after the run: wrk's lines in wrk's format, then additional lines. */
void ls_stress_report_text(ls_strbuf *to, const ls_stress_result *result);

/* One JSON object (RFC 8259) and a newline; always valid. */
void ls_stress_report_json(ls_strbuf *to, const ls_stress_result *result);

/* The time series, the percentiles and, with TLS, the handshakes: tables (RFC 4180), separated by empty lines, each
 * with a line of names. */
void ls_stress_report_csv(ls_strbuf *to, const ls_stress_result *result);

/* A single file: the page of page/report.html with the JSON inside. */
void ls_stress_report_html(ls_strbuf *to, const ls_stress_result *result);

/* The report files to write; NULL: not this one. */
typedef struct ls_stress_files {
    const char *json;
    const char *csv;
    const char *html;
} ls_stress_files;

/* Before the run: check that each file can be written. Existing files stay unchanged, and new ones are removed. On
 * failure the error, with the file name and the reason in `why`. */
int ls_stress_files_probe(const ls_stress_files *files, char *why, size_t why_size);

/* After the run: write all files, also after a failure. Returns the first error, with the file name and the reason in
 * `why`. */
int ls_stress_files_write(const ls_stress_files *files, const ls_stress_result *result, char *why, size_t why_size);

/* In this order: FAILED: the run failed, or the load generator was late, so that its figures do not describe the
 * server; MISSED: a threshold was missed; FAILED: the server was too slow for the rate; MET. */
int ls_stress_report_exit(const ls_stress_result *result);

/* One line: why the run or its rate failed; NULL: it did not. */
const char *ls_stress_failure_text(char *buffer, size_t size, const ls_stress_result *result);

/* ---- shared by the reports -------------------------------------------------------------------------------------- */

/* The percentiles of the tables, in ascending order. */
extern const double ls_stress_percents[];
extern const size_t ls_stress_percent_count;

/* "p99.9" */
void ls_stress_percent_name(char *buffer, size_t size, double percent);

/* A duration with three significant digits and a unit: "830ns", "12.3us", "4.56ms", "1.20s", "75.0s"; "-" for NAN and
 * infinity. */
void ls_stress_time_text(char *buffer, size_t size, double ns);

/* The measured value of a threshold in the unit of its limit: "4.56ms", "19987.3/s", "0.02%", "3"; "-": not
 * measured. */
void ls_stress_actual_text(char *buffer, size_t size, const ls_stress_threshold *threshold);

#endif
