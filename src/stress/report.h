/* report.h - a finished run as text, JSON, CSV and HTML. REPORTS.md in this folder describes the formats for those who
 * read them by program.
 *
 * All functions take the result as it is and change nothing; any thread. Texts go into an ls_strbuf, so that what is
 * written is whole or not there. */
#ifndef LS_STRESS_REPORT_H
#define LS_STRESS_REPORT_H

#include <stddef.h>

#include "stress/result.h"
#include "stress/strbuf.h"

enum {
    LS_STRESS_EXIT_MET = 0,
    LS_STRESS_EXIT_FAILED = 1,  /* the run, or the load that was asked for, could not be made */
    LS_STRESS_EXIT_USAGE = 2,   /* the command line is wrong */
    LS_STRESS_EXIT_MISSED = 99, /* at least one threshold was missed */
};

enum { LS_STRESS_FAILURE_BYTES = 1024 }; /* of ls_stress_failure_text */

/* The two lines that stand before the run: what wrk prints first. */
void ls_stress_report_head(ls_strbuf *to, const ls_stress_config *config);

/* Everything after the run: wrk's lines as wrk writes them, then what wrk does not know. */
void ls_stress_report_text(ls_strbuf *to, const ls_stress_result *result);

/* One JSON object (RFC 8259) and a newline; always valid. */
void ls_stress_report_json(ls_strbuf *to, const ls_stress_result *result);

/* The series, an empty line, the percentiles: two tables (RFC 4180), each with a line of names. */
void ls_stress_report_csv(ls_strbuf *to, const ls_stress_result *result);

/* One file that needs no other: the page of report.html with the JSON inside. */
void ls_stress_report_html(ls_strbuf *to, const ls_stress_result *result);

/* Files that are asked for; NULL: not. */
typedef struct ls_stress_files {
    const char *json;
    const char *csv;
    const char *html;
} ls_stress_files;

/* Before the run: can each of them be written? What exists stays as it is, and what does not is not there afterwards.
 * On failure the code, and `why` names the file and the reason. */
int ls_stress_files_probe(const ls_stress_files *files, char *why, size_t why_size);

/* After it: write all of them. On failure the first code; `why` names the file and the reason, and the others are
 * written nevertheless. */
int ls_stress_files_write(const ls_stress_files *files, const ls_stress_result *result, char *why, size_t why_size);

/* In this order: FAILED when there is a failure, or when the engine itself could not make the load, so that its figures
 * judge nobody; MISSED, also when it is the server that was too slow for the load; FAILED for that alone; MET. */
int ls_stress_report_exit(const ls_stress_result *result);

/* One line: why the run could not be made as it was asked for; NULL: it was. */
const char *ls_stress_failure_text(char *buffer, size_t size, const ls_stress_result *result);

/* ---- parts that the reports share ------------------------------------------------------------------------------- */

/* The percentiles of the tables, ascending. */
extern const double ls_stress_percents[];
extern const size_t ls_stress_percent_count;

/* "p99.9" */
void ls_stress_percent_name(char *buffer, size_t size, double percent);

/* A duration as people read it, three significant digits: "830ns", "12.3us", "4.56ms", "1.20s", "75.0s"; "-" for what
 * is not a number. */
void ls_stress_time_text(char *buffer, size_t size, double ns);

/* The measured side of a threshold in the unit of its limit: "4.56ms", "19987.3/s", "0.02%", "3"; "-" when nothing was
 * measured. */
void ls_stress_actual_text(char *buffer, size_t size, const ls_stress_threshold *threshold);

#endif
