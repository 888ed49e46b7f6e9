/* result.c - figures computed from a finished run. */
#include "stress/result.h"

#include <stdlib.h>

#define LAG_NS_MAX  UINT64_C(1000000) /* ls_stress_result_engine_late: the limit of the 99th percentile */
#define LAG_PERCENT 99.0

#define SHORT_LAG_NS UINT64_C(10000000)
#define SHORT_WANTED 0.9

void ls_stress_result_close(ls_stress_result *r)
{
    ls_histogram_close(r->sent);
    ls_histogram_close(r->due);
    ls_histogram_close(r->lag);
    ls_histogram_close(r->handshake);
    ls_histogram_close(r->upgrade);
    ls_histogram_close(r->rates);
    ls_stress_checks_close(&r->checks);
    free(r->points);
    free(r->thresholds);
    *r = (ls_stress_result){0};
}

const ls_histogram *ls_stress_result_latency(const ls_stress_result *r)
{
    return r->due != NULL ? r->due : r->sent;
}

double ls_stress_result_rate(const ls_stress_result *r)
{
    return r->duration_ns > 0 ? (double)r->requests * 1e9 / (double)r->duration_ns : 0;
}

uint64_t ls_stress_result_made(const ls_stress_result *r)
{
    return r->config.fanout ? r->published : r->requests;
}

double ls_stress_result_made_rate(const ls_stress_result *r)
{
    return r->duration_ns > 0 ? (double)ls_stress_result_made(r) * 1e9 / (double)r->duration_ns : 0;
}

uint64_t ls_stress_result_errors(const ls_stress_result *r)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < LS_STRESS_ERROR_KINDS; i++) sum += r->errors[i];
    return sum;
}

uint64_t ls_stress_result_statuses(const ls_stress_result *r, unsigned from, unsigned to)
{
    uint64_t sum = 0;
    for (unsigned i = from; i <= to && i <= LS_STRESS_STATUS_MAX; i++) sum += r->status[i];
    return sum;
}

bool ls_stress_result_engine_late(const ls_stress_result *r)
{
    return r->lag != NULL && ls_histogram_at(r->lag, LAG_PERCENT) >= LAG_NS_MAX;
}

/* The number of requests that the load generator noticed late, relative to the median response time. */
static double seen_late(const ls_stress_result *r)
{
    const uint64_t response_ns = ls_histogram_count(r->sent) > 0 ? ls_histogram_at(r->sent, 50) : r->behind_ns;
    const uint64_t late_ns = response_ns / 2 > SHORT_LAG_NS ? response_ns / 2 : SHORT_LAG_NS;
    return (double)ls_histogram_count(r->lag) * (100 - ls_histogram_below(r->lag, late_ns)) / 100;
}

ls_stress_short ls_stress_result_short(const ls_stress_result *r)
{
    const double share = LS_STRESS_SHORT_PERCENT / 100;
    if (r->lag == NULL || r->behind_ns < LS_STRESS_SHORT_NS) return LS_STRESS_SHORT_NOT;
    const bool unsent = (double)r->unsent > share * (double)ls_histogram_count(r->lag);
    const bool behind = r->config.requests > 0 && (double)r->behind_ns > share * (double)r->duration_ns;
    if (!unsent && !behind) return LS_STRESS_SHORT_NOT;
    if (r->wanted >= SHORT_WANTED) return LS_STRESS_SHORT_OF_TIME;
    const bool stood_still = 2 * ls_histogram_max(r->lag) >= r->behind_ns;
    const bool late = stood_still || (unsent && 2 * seen_late(r) >= (double)r->unsent);
    return late ? LS_STRESS_SHORT_OF_TIME : LS_STRESS_SHORT_OF_CONNECTIONS;
}

double ls_stress_result_target_rate(const ls_stress_result *r)
{
    const ls_stress_config *config = &r->config;
    if (!config->open_loop) return 0;
    if (config->stage_count == 0) return config->rate;

    /* The area under the ramps, up to the end of the run. */
    double requests = 0, rate = config->rate, left = (double)r->duration_ns / 1e9, all = 0;
    for (size_t i = 0; i < config->stage_count && left > 0; i++) {
        double whole = (double)config->stages[i].duration_ns / 1e9, part = whole < left ? whole : left;
        double end = whole > 0 ? rate + (config->stages[i].rate - rate) * part / whole : config->stages[i].rate;
        requests += (rate + end) / 2 * part;
        all += part;
        left -= part;
        rate = config->stages[i].rate;
    }
    return all > 0 ? requests / all : 0;
}

size_t ls_stress_result_missed(const ls_stress_result *r)
{
    size_t missed = 0;
    for (size_t i = 0; i < r->threshold_count; i++) missed += !r->thresholds[i].met;
    return missed;
}

bool ls_stress_result_checks_missed(const ls_stress_result *r)
{
    for (size_t i = 0; i < r->threshold_count; i++) {
        const ls_stress_metric metric = r->thresholds[i].metric;
        if (metric == LS_STRESS_METRIC_ERRORS || metric == LS_STRESS_METRIC_CHECKS) return false;
    }
    return ls_stress_checks_failed(&r->checks) > 0;
}
