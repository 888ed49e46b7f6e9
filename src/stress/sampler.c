/* sampler.c - each interval is the difference between two reads of the counters. Its latencies are the difference
 * between two merged histograms, so the threads hand nothing over. */
#include "stress/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"

#define SECOND UINT64_C(1000000000)

enum { RECENT = 11 }; /* ticks: the live rate covers the last ten */

typedef struct sums {
    uint64_t requests;
    uint64_t errors;
    uint64_t failed_status;
    uint64_t bytes_in;
    uint64_t bytes_out;
} sums;

struct ls_stress_sampler {
    ls_stress_config config;
    const ls_stress_counters *const *counters;
    size_t threads;
    uint64_t start_ns;
    int64_t started_us;
    uint64_t *thread_requests; /* per thread, at sampled_ns */
    uint64_t sampled_ns;
    ls_histogram *rates;

    ls_histogram *now; /* all threads merged, at the end of the interval */
    ls_histogram *before;
    ls_histogram *between;
    uint64_t interval_ns; /* start of the open interval */
    uint64_t most_open;   /* maximum of connections at the ticks of the open interval */
    sums at_interval;
    uint64_t before_in, before_out; /* bytes before the start: of handshakes and of a fan-out run's probes */
    ls_stress_point *points;
    size_t count;
    size_t space;
    bool cut;
    ls_stress_point last; /* even beyond LS_STRESS_POINTS_MAX */

    ls_stress_live live;
    struct {
        uint64_t at_ns;
        uint64_t requests;
    } recent[RECENT];
    size_t ticks;
};

static sums sum_counters(const ls_stress_sampler *m)
{
    sums s = {0};
    for (size_t t = 0; t < m->threads; t++) {
        const ls_stress_counters *c = m->counters[t];
        s.requests += ls_counter_read(&c->requests);
        s.bytes_in += ls_counter_read(&c->bytes_in);
        s.bytes_out += ls_counter_read(&c->bytes_out);
        for (size_t i = 0; i < LS_STRESS_ERROR_KINDS; i++) s.errors += ls_counter_read(&c->errors[i]);
        for (size_t i = 400; i <= LS_STRESS_STATUS_MAX; i++) s.failed_status += ls_counter_read(&c->status[i]);
    }
    s.bytes_in -= m->before_in;
    s.bytes_out -= m->before_out;
    return s;
}

int ls_stress_sampler_open(const ls_stress_config *config, const ls_stress_counters *const *counters, size_t threads,
                           uint64_t start_ns, ls_stress_sampler **out)
{
    ls_stress_sampler *m = calloc(1, sizeof *m);
    if (m == NULL) return LS_ENOMEM;
    m->config = *config;
    m->counters = counters;
    m->threads = threads;
    m->start_ns = m->sampled_ns = m->interval_ns = start_ns;
    m->started_us =
        ls_clock_wall_us() - (int64_t)(ls_clock_ns() - start_ns) / 1000; /* start_ns may be in the future */
    m->recent[0].at_ns = start_ns;
    m->ticks = 1;
    const sums before = sum_counters(m);
    m->before_in = before.bytes_in;
    m->before_out = before.bytes_out;
    m->thread_requests = calloc(threads, sizeof *m->thread_requests);
    m->rates = ls_histogram_open();
    m->now = ls_histogram_open();
    m->before = ls_histogram_open();
    m->between = ls_histogram_open();
    if (m->thread_requests == NULL || m->rates == NULL || m->now == NULL || m->before == NULL || m->between == NULL) {
        ls_stress_sampler_close(m);
        return LS_ENOMEM;
    }
    *out = m;
    return LS_OK;
}

void ls_stress_sampler_close(ls_stress_sampler *m)
{
    if (m == NULL) return;
    ls_histogram_close(m->rates);
    ls_histogram_close(m->now);
    ls_histogram_close(m->before);
    ls_histogram_close(m->between);
    free(m->thread_requests);
    free(m->points);
    free(m);
}

static uint64_t open_connections(const ls_stress_sampler *m)
{
    uint64_t n = 0;
    for (size_t t = 0; t < m->threads; t++) n += ls_counter_read(&m->counters[t]->connections);
    return n;
}

/* Sample the rate of each thread. A tick too close to the last sample is skipped, as its rate would be noise. */
static void sample_rates(ls_stress_sampler *m, uint64_t now_ns, uint64_t least_ns)
{
    if (now_ns <= m->sampled_ns) return; /* the threads ended before the last tick */
    uint64_t passed = now_ns - m->sampled_ns;
    if (passed < least_ns) return;
    for (size_t t = 0; t < m->threads; t++) {
        uint64_t requests = ls_counter_read(&m->counters[t]->requests);
        double rate = (double)(requests - m->thread_requests[t]) * (double)SECOND / (double)passed;
        ls_histogram_record(m->rates, (uint64_t)(rate + 0.5));
        m->thread_requests[t] = requests;
    }
    m->sampled_ns = now_ns;
}

static bool append_point(ls_stress_sampler *m, const ls_stress_point *p)
{
    if (m->count == LS_STRESS_POINTS_MAX) return false;
    if (m->count == m->space) {
        size_t space = m->space > 0 ? 2 * m->space : 64;
        ls_stress_point *points = realloc(m->points, space * sizeof *points);
        if (points == NULL) return false;
        m->points = points;
        m->space = space;
    }
    m->points[m->count++] = *p;
    return true;
}

static void measure_latency(ls_stress_sampler *m, ls_stress_point *p)
{
    static const double percents[] = {50, 99};
    uint64_t values[2];
    ls_histogram_clear(m->now);
    for (size_t t = 0; t < m->threads; t++) {
        const ls_stress_counters *c = m->counters[t];
        ls_histogram_add(m->now, c->due != NULL ? c->due : c->sent);
    }
    ls_histogram_between(m->between, m->now, m->before);
    ls_histogram_at_each(m->between, percents, 2, values);
    /* The end of a slot may exceed the exact maximum of the run, which is known. */
    uint64_t most = ls_histogram_max(m->now), max = ls_histogram_max(m->between);
    p->p50_ns = values[0] < most ? values[0] : most;
    p->p99_ns = values[1] < most ? values[1] : most;
    p->max_ns = max < most ? max : most;
    ls_histogram *swap = m->before;
    m->before = m->now;
    m->now = swap;
}

static void close_interval(ls_stress_sampler *m, uint64_t now_ns, const sums *s)
{
    ls_stress_point *p = &m->last;
    *p = (ls_stress_point){
        .from_ns = m->interval_ns - m->start_ns,
        .to_ns = now_ns - m->start_ns,
        .requests = s->requests - m->at_interval.requests,
        .errors = s->errors - m->at_interval.errors,
        .failed_status = s->failed_status - m->at_interval.failed_status,
        .bytes_in = s->bytes_in - m->at_interval.bytes_in,
        .bytes_out = s->bytes_out - m->at_interval.bytes_out,
        .connections = m->most_open,
    };
    if (p->requests > 0) measure_latency(m, p);
    if (!append_point(m, p)) m->cut = true; /* the totals are complete, and the reports contain a warning */
    m->interval_ns = now_ns;
    m->most_open = 0;
    m->at_interval = *s;
}

bool ls_stress_sampler_tick(ls_stress_sampler *m, uint64_t now_ns)
{
    sums s = sum_counters(m);
    sample_rates(m, now_ns, LS_STRESS_TICK_MS / 2 * UINT64_C(1000000));

    size_t at = m->ticks % RECENT, oldest = m->ticks < RECENT ? 0 : (m->ticks + 1) % RECENT;
    m->recent[at].at_ns = now_ns;
    m->recent[at].requests = s.requests;
    m->ticks++;
    uint64_t span = now_ns - m->recent[oldest].at_ns;
    m->live = (ls_stress_live){
        .elapsed_ns = now_ns - m->start_ns,
        .requests = s.requests,
        .errors = s.errors,
        .failed_status = s.failed_status,
        .connections = open_connections(m),
        .rate = span > 0 ? (double)(s.requests - m->recent[oldest].requests) * (double)SECOND / (double)span : 0,
    };
    m->live.ended = m->config.fanout ? 0 : s.requests + s.errors;
    for (size_t t = 0; t < m->threads; t++) {
        const ls_stress_counters *c = m->counters[t];
        m->live.checks_failed += ls_counter_read(&c->checks_failed);
        if (m->config.fanout)
            m->live.ended += ls_counter_read(&c->published);
        else
            m->live.ended -= ls_counter_read(&c->errors[LS_STRESS_ERROR_CHECK]); /* complete as well */
    }

    if (m->live.connections > m->most_open) m->most_open = m->live.connections;
    /* Intervals end at the first tick after each whole second since the start. */
    if ((now_ns - m->start_ns) / SECOND == (m->interval_ns - m->start_ns) / SECOND) return false;
    close_interval(m, now_ns, &s);
    return true;
}

void ls_stress_sampler_live(const ls_stress_sampler *m, ls_stress_live *out)
{
    *out = m->live;
}

const ls_stress_config *ls_stress_sampler_config(const ls_stress_sampler *m)
{
    return &m->config;
}

const ls_stress_point *ls_stress_sampler_points(const ls_stress_sampler *m, size_t *count)
{
    *count = m->count;
    return m->points;
}

const ls_stress_point *ls_stress_sampler_last(const ls_stress_sampler *m)
{
    return m->last.to_ns > 0 ? &m->last : NULL;
}

/* ---- the result ------------------------------------------------------------------------------------------------- */

static void total(const ls_stress_sampler *m, ls_stress_result *r)
{
    const sums s = sum_counters(m);
    r->requests = s.requests;
    r->bytes_in = s.bytes_in;
    r->bytes_out = s.bytes_out;
    for (size_t t = 0; t < m->threads; t++) {
        const ls_stress_counters *c = m->counters[t];
        r->connects += ls_counter_read(&c->connects);
        r->handshakes_full += ls_counter_read(&c->handshakes_full);
        r->handshakes_resumed += ls_counter_read(&c->handshakes_resumed);
        r->handshakes_failed += ls_counter_read(&c->handshakes_failed);
        r->published += ls_counter_read(&c->published);
        r->expected += ls_counter_read(&c->expected);
        r->lost += ls_counter_read(&c->lost);
        r->reordered += ls_counter_read(&c->reordered);
        r->duplicated += ls_counter_read(&c->duplicated);
        r->foreign += ls_counter_read(&c->foreign);
        r->upgrades += ls_counter_read(&c->upgrades);
        r->deflated += ls_counter_read(&c->deflated);
        r->upgrades_failed += ls_counter_read(&c->upgrades_failed);
        for (size_t i = 0; i < LS_STRESS_CODE_COUNT; i++) r->codes[i] += ls_counter_read(&c->codes[i]);
        r->unsent += ls_counter_read(&c->unsent);
        const uint64_t behind_ns = ls_counter_read(&c->behind_ns), wanted_ns = ls_counter_read(&c->wanted_ns);
        if (behind_ns > r->behind_ns) r->behind_ns = behind_ns;
        if (r->duration_ns > 0 && (double)wanted_ns > r->wanted * (double)r->duration_ns)
            r->wanted = (double)wanted_ns / (double)r->duration_ns;
        for (size_t i = 0; i < LS_STRESS_ERROR_KINDS; i++) r->errors[i] += ls_counter_read(&c->errors[i]);
        for (size_t i = 0; i <= LS_STRESS_STATUS_MAX; i++) r->status[i] += ls_counter_read(&c->status[i]);
    }
}

/* Merge one histogram of all threads; *out stays NULL if they have none. LS_OK or LS_ENOMEM. */
static int merge(const ls_stress_sampler *m, const ls_histogram *(*which)(const ls_stress_counters *),
                 ls_histogram **out)
{
    for (size_t t = 0; t < m->threads; t++) {
        const ls_histogram *from = which(m->counters[t]);
        if (from == NULL) continue;
        if (*out == NULL && (*out = ls_histogram_open()) == NULL) return LS_ENOMEM;
        ls_histogram_add(*out, from);
    }
    return LS_OK;
}

static const ls_histogram *which_sent(const ls_stress_counters *c)
{
    return c->sent;
}

static const ls_histogram *which_due(const ls_stress_counters *c)
{
    return c->due;
}

static const ls_histogram *which_lag(const ls_stress_counters *c)
{
    return c->lag;
}

static const ls_histogram *which_handshake(const ls_stress_counters *c)
{
    return c->handshake;
}

static const ls_histogram *which_upgrade(const ls_stress_counters *c)
{
    return c->upgrade;
}

static int fill(const ls_stress_sampler *m, const ls_stress_checks *const *checks,
                const ls_stress_threshold *thresholds, size_t threshold_count, ls_stress_result *r)
{
    int err;
    total(m, r);
    if ((err = merge(m, which_sent, &r->sent)) < 0) return err;
    if ((err = merge(m, which_due, &r->due)) < 0) return err;
    if ((err = merge(m, which_lag, &r->lag)) < 0) return err;
    if ((err = merge(m, which_handshake, &r->handshake)) < 0) return err;
    if ((err = merge(m, which_upgrade, &r->upgrade)) < 0) return err;
    for (size_t t = 0; checks != NULL && t < m->threads; t++) {
        if (checks[t] != NULL && (err = ls_stress_checks_add(&r->checks, checks[t])) < 0) return err;
    }
    if (threshold_count > 0) {
        r->thresholds = malloc(threshold_count * sizeof *thresholds);
        if (r->thresholds == NULL) return LS_ENOMEM;
        memcpy(r->thresholds, thresholds, threshold_count * sizeof *thresholds);
        r->threshold_count = threshold_count;
    }
    return LS_OK;
}

/* The connections of a run that ended before the first tick: all that were configured, or made if fewer. */
static uint64_t made_connections(const ls_stress_sampler *m)
{
    const uint64_t all = m->config.connections + m->config.publishers;
    uint64_t made = 0;
    for (size_t t = 0; t < m->threads; t++) made += ls_counter_read(&m->counters[t]->connects);
    return made < all ? made : all;
}

/* Add `rest` to `p`. */
static void merge_points(ls_stress_point *p, const ls_stress_point *rest)
{
    p->to_ns = rest->to_ns;
    p->requests += rest->requests;
    p->errors += rest->errors;
    p->failed_status += rest->failed_status;
    p->bytes_in += rest->bytes_in;
    p->bytes_out += rest->bytes_out;
    if (rest->connections > p->connections) p->connections = rest->connections;
    if (rest->p50_ns > p->p50_ns) p->p50_ns = rest->p50_ns;
    if (rest->p99_ns > p->p99_ns) p->p99_ns = rest->p99_ns;
    if (rest->max_ns > p->max_ns) p->max_ns = rest->max_ns;
}

/* The series ends at the end of the run. The last tick may be later, and the rest after the last whole interval may be
 * too short for a rate: such a rest becomes part of the previous interval. */
static void close_series(ls_stress_sampler *m, uint64_t end_ns)
{
    const uint64_t short_ns = LS_STRESS_TICK_MS * UINT64_C(1000000), duration = end_ns - m->start_ns;
    const uint64_t seen_ns = end_ns > m->interval_ns ? end_ns : m->interval_ns;
    sums s = sum_counters(m);
    if (m->most_open == 0) m->most_open = m->last.connections; /* the threads have closed their connections by now */
    if (m->ticks == 1) m->most_open = made_connections(m);
    if (seen_ns > m->interval_ns || memcmp(&s, &m->at_interval, sizeof s) != 0) close_interval(m, seen_ns, &s);
    if (m->cut) return;
    while (m->count > 1 && m->points[m->count - 1].from_ns + short_ns > duration) {
        merge_points(&m->points[m->count - 2], &m->points[m->count - 1]);
        m->count--;
    }
    if (m->count > 0) m->points[m->count - 1].to_ns = duration;
}

int ls_stress_sampler_finish(ls_stress_sampler *m, uint64_t end_ns, bool interrupted,
                             const ls_stress_checks *const *checks, const ls_stress_threshold *thresholds,
                             size_t threshold_count, ls_stress_result *out)
{
    ls_stress_result r = {
        .config = m->config,
        .started_us = m->started_us,
        .duration_ns = end_ns - m->start_ns,
        .interrupted = interrupted,
    };
    int err = fill(m, checks, thresholds, threshold_count, &r);
    if (err < 0) {
        ls_stress_result_close(&r);
        return err;
    }
    /* A run shorter than one tick has a rate as well. */
    sample_rates(m, end_ns, ls_histogram_count(m->rates) > 0 ? LS_STRESS_TICK_MS / 2 * UINT64_C(1000000) : 1);
    close_series(m, end_ns);

    r.rates = m->rates;
    r.points = m->points;
    r.point_count = m->count;
    r.points_cut = m->cut;
    m->rates = NULL;
    m->points = NULL;
    m->count = 0;
    for (size_t i = 0; i < r.threshold_count; i++) ls_stress_threshold_judge(&r.thresholds[i], &r);
    *out = r;
    return LS_OK;
}
