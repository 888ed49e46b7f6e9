/* threshold.h - what a run must keep: "p99 < 5ms", "errors < 0.1%".
 *
 *     threshold = metric op number [unit]              blanks are allowed between the parts
 *     metric    = "p50" ... "p99.999" | "mean" | "min" | "max" | "stdev"    latency: us, ms or s
 *               | "rate"                                                      requests per second: /s or nothing
 *               | "errors" | "1xx" ... "5xx" | "100" ... "599" | "checks"     a count, or % of the requests
 *     op        = "<" | "<=" | ">" | ">=" | "=="
 *
 * "errors" are connect, read, write, timeout, bad answers and script errors together; "error_rate" is another name of
 * it for which the unit must be %. "checks" (or "checks_failed") are checks that failed; with % of all checks made.
 * Latencies are measured from the moment a request was due where there is a schedule. Pure; any thread. */
#ifndef LS_STRESS_THRESHOLD_H
#define LS_STRESS_THRESHOLD_H

#include <stdbool.h>
#include <stddef.h>

struct ls_stress_result;

enum { LS_STRESS_THRESHOLD_TEXT_MAX = 80 }; /* bytes of a threshold as it is written */

typedef enum ls_stress_metric {
    LS_STRESS_METRIC_PERCENTILE,
    LS_STRESS_METRIC_MEAN,
    LS_STRESS_METRIC_MIN,
    LS_STRESS_METRIC_MAX,
    LS_STRESS_METRIC_STDEV,
    LS_STRESS_METRIC_RATE,
    LS_STRESS_METRIC_ERRORS,
    LS_STRESS_METRIC_STATUS,
    LS_STRESS_METRIC_CHECKS,
} ls_stress_metric;

typedef enum ls_stress_op {
    LS_STRESS_OP_LESS,
    LS_STRESS_OP_LESS_EQUAL,
    LS_STRESS_OP_GREATER,
    LS_STRESS_OP_GREATER_EQUAL,
    LS_STRESS_OP_EQUAL,
} ls_stress_op;

typedef struct ls_stress_threshold {
    char text[LS_STRESS_THRESHOLD_TEXT_MAX + 1]; /* as it was written, without blanks around it */
    ls_stress_metric metric;
    ls_stress_op op;
    double percentile;    /* of LS_STRESS_METRIC_PERCENTILE: 0 to 100 */
    unsigned status_from; /* of LS_STRESS_METRIC_STATUS: the codes it counts, both included */
    unsigned status_to;
    bool percent;  /* the limit is a share of the requests (of the checks made) */
    double limit;  /* nanoseconds for latencies; per second for the rate; a count, or percent */
    double actual; /* in the unit of `limit`; set by ls_stress_threshold_judge() */
    bool met;      /* likewise */
} ls_stress_threshold;

/* Read one. On failure LS_EINVAL, `*out` is untouched and `why` holds one line that says what is wrong with which part
 * (ls_stress_threshold_grammar() is the text to print below it). */
int ls_stress_threshold_parse(const char *text, size_t len, ls_stress_threshold *out, char *why, size_t why_size);

/* The grammar for people: several lines, each ended by a newline. Static text. */
const char *ls_stress_threshold_grammar(void);

/* Compare with what the run was; sets `actual` and `met`. A latency or a share of no requests at all is not met, whatever
 * it is compared with: a run that measured nothing has kept no promise. */
void ls_stress_threshold_judge(ls_stress_threshold *threshold, const struct ls_stress_result *result);

#endif
