/* threshold.h - conditions on the result of a run: "p99 < 5ms", "errors < 0.1%".
 *
 *     threshold = metric op number [unit]              blanks are allowed between the parts
 *     metric    = "p50" ... "p99.999" | "mean" | "min" | "max" | "stdev"    latency: us, ms or s
 *               | "rate"                                                      requests per second: /s or none
 *               | "errors" | "1xx" ... "5xx" | "100" ... "599" | "checks"     a count, or % of the requests
 *               | "lost" | "reordered" | "duplicated"                         a count, or % of the expected deliveries
 *     op        = "<" | "<=" | ">" | ">=" | "=="
 *
 * "errors" is the sum of all kinds of errors; "error_rate" is the same with the unit %. "checks" (or "checks_failed")
 * is the number of failed checks; its % is of all checks. Latencies of an open loop are corrected. Pure; any
 * thread. */
#ifndef LS_STRESS_THRESHOLD_H
#define LS_STRESS_THRESHOLD_H

#include <stdbool.h>
#include <stddef.h>

struct ls_stress_result;

enum { LS_STRESS_THRESHOLD_TEXT_MAX = 80 }; /* bytes of a threshold as given */

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
    LS_STRESS_METRIC_LOST,
    LS_STRESS_METRIC_REORDERED,
    LS_STRESS_METRIC_DUPLICATED,
} ls_stress_metric;

typedef enum ls_stress_op {
    LS_STRESS_OP_LESS,
    LS_STRESS_OP_LESS_EQUAL,
    LS_STRESS_OP_GREATER,
    LS_STRESS_OP_GREATER_EQUAL,
    LS_STRESS_OP_EQUAL,
} ls_stress_op;

typedef struct ls_stress_threshold {
    char text[LS_STRESS_THRESHOLD_TEXT_MAX + 1]; /* as given, without surrounding blanks */
    ls_stress_metric metric;
    ls_stress_op op;
    double percentile;    /* of LS_STRESS_METRIC_PERCENTILE: 0 to 100 */
    unsigned status_from; /* of LS_STRESS_METRIC_STATUS: the range of codes, both included */
    unsigned status_to;
    bool percent;  /* the limit is a percentage of the requests (or of the checks) */
    double limit;  /* nanoseconds, requests per second, a count, or percent */
    double actual; /* in the unit of `limit`; set by ls_stress_threshold_judge() */
    bool met;      /* set by ls_stress_threshold_judge() */
} ls_stress_threshold;

/* Parse a threshold. LS_OK; or LS_EINVAL, with `*out` untouched and a one-line message in `why` that names the invalid
 * part (print ls_stress_threshold_grammar() below it). */
int ls_stress_threshold_parse(const char *text, size_t len, ls_stress_threshold *out, char *why, size_t why_size);

/* The grammar, in several lines that end with a newline. Static string. */
const char *ls_stress_threshold_grammar(void);

/* Evaluate the threshold: sets `actual` and `met`. A latency or percentage without any measurement is missed, whatever
 * the operator. */
void ls_stress_threshold_judge(ls_stress_threshold *threshold, const struct ls_stress_result *result);

#endif
