/* threshold.c - the parser and the evaluation of thresholds. */
#include "stress/threshold.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "stress/result.h"

static const char grammar[] =
    "a threshold is METRIC OPERATOR NUMBER[UNIT], for example \"p99 < 5ms\", \"rate >= 10000/s\", \"errors < 0.1%\":\n"
    "  METRIC    p50 ... p99.999, mean, min, max, stdev    latency; UNIT us, ms or s\n"
    "            rate                                      requests per second; UNIT /s or none\n"
    "            errors                                    failed requests and failed checks; UNIT % (of all) or "
    "none\n"
    "            1xx ... 5xx, 100 ... 599                  responses with that status; UNIT % or none\n"
    "            lost, reordered, duplicated               of the deliveries of --fanout; UNIT % (of the expected) or "
    "none\n"
    "            checks                                    failed checks; UNIT % (of all checks) or none\n"
    "            error_rate                                errors; UNIT %\n"
    "  OPERATOR  <  <=  >  >=  ==\n";

const char *ls_stress_threshold_grammar(void)
{
    return grammar;
}

/* The unread part of the text. */
typedef struct reader {
    const char *at;
    const char *end;
} reader;

static void skip_blanks(reader *in)
{
    while (in->at < in->end && (*in->at == ' ' || *in->at == '\t')) in->at++;
}

static size_t left(const reader *in)
{
    return (size_t)(in->end - in->at);
}

static bool is(const char *word, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(word, name, len) == 0;
}

/* Parse digits with at most one point, not at the beginning; no sign, no exponent, no hexadecimal. Returns the length,
 * 0: not a number. */
static size_t number_of(const char *text, size_t len, double *out)
{
    char copy[32];
    size_t n = 0, digits = 0, points = 0;
    while (n < len && (isdigit((unsigned char)text[n]) || text[n] == '.')) {
        if (text[n] == '.')
            points++;
        else
            digits++;
        n++;
    }
    if (digits == 0 || points > 1 || n >= sizeof copy || text[0] == '.') return 0;
    memcpy(copy, text, n);
    copy[n] = '\0';
    double value = 0, scale = 1;
    bool fraction = false;
    /* Not strtod(3), which depends on the locale. */
    for (size_t i = 0; i < n; i++) {
        if (copy[i] == '.') {
            fraction = true;
        } else {
            value = value * 10 + (copy[i] - '0');
            if (fraction) scale *= 10;
        }
    }
    *out = value / scale;
    return n;
}

static const struct {
    const char *name;
    ls_stress_metric metric;
    bool percent; /* the unit must be % */
} names[] = {
    {"mean", LS_STRESS_METRIC_MEAN, false},
    {"min", LS_STRESS_METRIC_MIN, false},
    {"max", LS_STRESS_METRIC_MAX, false},
    {"stdev", LS_STRESS_METRIC_STDEV, false},
    {"rate", LS_STRESS_METRIC_RATE, false},
    {"errors", LS_STRESS_METRIC_ERRORS, false},
    {"error_rate", LS_STRESS_METRIC_ERRORS, true},
    {"lost", LS_STRESS_METRIC_LOST, false},
    {"reordered", LS_STRESS_METRIC_REORDERED, false},
    {"duplicated", LS_STRESS_METRIC_DUPLICATED, false},
    {"checks", LS_STRESS_METRIC_CHECKS, false},
    {"checks_failed", LS_STRESS_METRIC_CHECKS, false},
};

static bool status_of(const char *word, size_t len, ls_stress_threshold *t)
{
    if (len != 3 || word[0] < '1' || word[0] > '5') return false;
    unsigned class = (unsigned)(word[0] - '0') * 100;
    if (word[1] == 'x' && word[2] == 'x') {
        t->status_from = class;
        t->status_to = class + 99;
    } else if (isdigit((unsigned char)word[1]) && isdigit((unsigned char)word[2])) {
        t->status_from = t->status_to = class + (unsigned)(word[1] - '0') * 10 + (unsigned)(word[2] - '0');
    } else {
        return false;
    }
    t->metric = LS_STRESS_METRIC_STATUS;
    return true;
}

/* Set the metric that `word` names. NULL, or an error message. */
static const char *metric_of(const char *word, size_t len, ls_stress_threshold *t, bool *percent_only)
{
    *percent_only = false;
    if (len == 0) return "missing metric";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!is(word, len, names[i].name)) continue;
        t->metric = names[i].metric;
        *percent_only = names[i].percent;
        return NULL;
    }
    if (status_of(word, len, t)) return NULL;
    if (word[0] == 'p' && len > 1 && number_of(word + 1, len - 1, &t->percentile) == len - 1) {
        t->metric = LS_STRESS_METRIC_PERCENTILE;
        return t->percentile > 0 && t->percentile < 100
                   ? NULL
                   : "a percentile must be above p0 and below p100 (use max for p100)";
    }
    return "unknown metric";
}

static bool op_of(reader *in, ls_stress_op *op)
{
    bool equal = left(in) >= 2 && in->at[1] == '=';
    char first = left(in) > 0 ? *in->at : '\0';
    if (first == '<')
        *op = equal ? LS_STRESS_OP_LESS_EQUAL : LS_STRESS_OP_LESS;
    else if (first == '>')
        *op = equal ? LS_STRESS_OP_GREATER_EQUAL : LS_STRESS_OP_GREATER;
    else if (first == '=' && equal)
        *op = LS_STRESS_OP_EQUAL;
    else
        return false;
    in->at += equal ? 2 : 1;
    return true;
}

static bool is_latency(ls_stress_metric metric)
{
    return metric <= LS_STRESS_METRIC_STDEV;
}

/* Convert `limit` to the unit of the metric. NULL, or an error message. */
static const char *unit_of(const char *unit, size_t len, ls_stress_threshold *t, bool percent_only)
{
    if (is_latency(t->metric)) {
        if (is(unit, len, "us"))
            t->limit *= 1e3;
        else if (is(unit, len, "ms"))
            t->limit *= 1e6;
        else if (is(unit, len, "s"))
            t->limit *= 1e9;
        else if (len == 0)
            return "a latency needs a unit: us, ms or s";
        else
            return "the unit of a latency is us, ms or s";
        return NULL;
    }
    if (t->metric == LS_STRESS_METRIC_RATE) {
        return len == 0 || is(unit, len, "/s") ? NULL : "the unit of a rate is /s or none";
    }
    t->percent = is(unit, len, "%");
    if (percent_only && !t->percent) return "the unit of error_rate is %";
    if (!t->percent && len > 0) return "a count has no unit (use % for a percentage)";
    if (t->percent && t->limit > 100) return "a percentage is at most 100%";
    if (!t->percent && t->limit != floor(t->limit)) return "a count is a whole number; use % for a percentage";
    return NULL;
}

/* Write the one-line message: the threshold, the invalid part, the reason. Long input is cut. */
static int refuse(const char *text, size_t len, const char *part, size_t part_len, const char *what, char *why,
                  size_t why_size)
{
    enum { SHOWN = 60 };
    bool whole = part == NULL || part_len == 0;
    snprintf(why, why_size, "threshold \"%.*s%s\": %s%.*s%s%s", (int)(len < SHOWN ? len : SHOWN), text,
             len > SHOWN ? "..." : "", whole ? "" : "\"", whole ? 0 : (int)(part_len < SHOWN ? part_len : SHOWN),
             whole ? "" : part, whole ? "" : "\": ", what);
    return LS_EINVAL;
}

int ls_stress_threshold_parse(const char *text, size_t len, ls_stress_threshold *out, char *why, size_t why_size)
{
    reader in = {text, text + len};
    skip_blanks(&in);
    while (in.end > in.at && (in.end[-1] == ' ' || in.end[-1] == '\t')) in.end--;
    text = in.at;
    len = left(&in);
    if (len == 0) return refuse(text, len, NULL, 0, "empty", why, why_size);
    if (len > LS_STRESS_THRESHOLD_TEXT_MAX) return refuse(text, len, NULL, 0, "longer than 80 bytes", why, why_size);

    ls_stress_threshold t = {0};
    memcpy(t.text, text, len);

    bool percent_only;
    const char *word = in.at, *wrong;
    while (in.at < in.end && (isalnum((unsigned char)*in.at) || *in.at == '.' || *in.at == '_')) in.at++;
    size_t word_len = (size_t)(in.at - word);
    if ((wrong = metric_of(word, word_len, &t, &percent_only)) != NULL) {
        return refuse(text, len, word, word_len, wrong, why, why_size);
    }
    skip_blanks(&in);
    if (!op_of(&in, &t.op)) {
        wrong = left(&in) == 0 ? "missing operator" : "expected <, <=, >, >= or ==";
        return refuse(text, len, in.at, left(&in), wrong, why, why_size);
    }
    skip_blanks(&in);
    size_t number_len = number_of(in.at, left(&in), &t.limit);
    if (number_len == 0) {
        wrong = left(&in) == 0 ? "missing number" : "expected a number such as 5 or 0.25";
        return refuse(text, len, in.at, left(&in), wrong, why, why_size);
    }
    in.at += number_len;
    skip_blanks(&in);
    if ((wrong = unit_of(in.at, left(&in), &t, percent_only)) != NULL) {
        return refuse(text, len, in.at, left(&in), wrong, why, why_size);
    }
    *out = t;
    return LS_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : NAN;
}

static uint64_t checks_made(const ls_stress_result *r)
{
    uint64_t made = 0;
    for (size_t i = 0; i < r->checks.count; i++) made += r->checks.list[i].passed + r->checks.list[i].failed;
    return made;
}

/* The measured value in the unit of the limit; NAN: not measured. */
static double measure(const ls_stress_threshold *t, const ls_stress_result *r)
{
    const ls_histogram *latency = ls_stress_result_latency(r);
    if (is_latency(t->metric) && ls_histogram_count(latency) == 0) return NAN;
    uint64_t errors = ls_stress_result_errors(r), count = 0, whole = 0;
    switch (t->metric) {
    case LS_STRESS_METRIC_PERCENTILE: return (double)ls_histogram_at(latency, t->percentile);
    case LS_STRESS_METRIC_MEAN: return ls_histogram_mean(latency);
    case LS_STRESS_METRIC_MIN: return (double)ls_histogram_min(latency);
    case LS_STRESS_METRIC_MAX: return (double)ls_histogram_max(latency);
    case LS_STRESS_METRIC_STDEV: return ls_histogram_stdev(latency);
    case LS_STRESS_METRIC_RATE: return ls_stress_result_rate(r);
    case LS_STRESS_METRIC_ERRORS:
        count = errors;
        whole = r->requests + errors - r->errors[LS_STRESS_ERROR_CHECK]; /* those are complete requests as well */
        break;
    case LS_STRESS_METRIC_STATUS:
        count = ls_stress_result_statuses(r, t->status_from, t->status_to);
        whole = ls_stress_result_statuses(r, 100, LS_STRESS_STATUS_MAX);
        break;
    case LS_STRESS_METRIC_LOST:
    case LS_STRESS_METRIC_REORDERED:
    case LS_STRESS_METRIC_DUPLICATED:
        if (!r->config.fanout) return NAN;
        count = t->metric == LS_STRESS_METRIC_LOST        ? r->lost
                : t->metric == LS_STRESS_METRIC_REORDERED ? r->reordered
                                                          : r->duplicated;
        whole = r->expected;
        break;
    case LS_STRESS_METRIC_CHECKS:
        count = ls_stress_checks_failed(&r->checks);
        whole = checks_made(r);
        break;
    }
    return t->percent ? share(count, whole) : (double)count;
}

void ls_stress_threshold_judge(ls_stress_threshold *t, const ls_stress_result *r)
{
    double a = t->actual = measure(t, r), limit = t->limit;
    /* Comparisons with NAN are false, so an unmeasured threshold is missed. */
    switch (t->op) {
    case LS_STRESS_OP_LESS: t->met = a < limit; break;
    case LS_STRESS_OP_LESS_EQUAL: t->met = a <= limit; break;
    case LS_STRESS_OP_GREATER: t->met = a > limit; break;
    case LS_STRESS_OP_GREATER_EQUAL: t->met = a >= limit; break;
    case LS_STRESS_OP_EQUAL: t->met = a == limit; break;
    }
}
