/* engine.c - `luaserve stress` from the command line to the exit status: options and script, the threads, the
 * sampler's ticks, the reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/escape.h"
#include "base/rlimit.h"
#include "base/signals.h"
#include "luaserve.h"
#include "stress/fanout.h"
#include "stress/options.h"
#include "stress/report.h"
#include "stress/sampler.h"
#include "stress/script.h"
#include "stress/view.h"
#include "stress/worker.h"

enum { DESCRIPTORS_SPARE = 64, DESCRIPTORS_PER_THREAD = 4, PROBE_MS_DEFAULT = 10000 };

typedef struct engine {
    ls_stress_options options;
    ls_stress_worker *workers;
    ls_stress_script *main_script, **scripts;
    ls_stress_fanout *fanout; /* of a fan-out run; else NULL */
    unsigned opened, started;
    ls_mutex mutex;
    ls_cond cond;
    unsigned settled, finished; /* under mutex: workers that have settled, that have finished */
    bool interrupted;           /* under mutex */
    bool failed;                /* under mutex: a hook raised an error, so the run has no result */
    char why[LS_STRESS_WHY_BYTES];
} engine;

/* A message of a script may contain text of the server. */
static void print_error(const char *what, const char *text)
{
    char form[LS_ESCAPE_BYTES_MAX + 1];
    fprintf(stderr, "luaserve stress: %s", what);
    for (size_t at = 0, taken, len = strlen(text); at < len; at += taken) {
        const size_t n = ls_escape_character(form, text + at, len - at, &taken);
        if (text[at] == '\n' || text[at] == '\t')
            fputc(text[at], stderr); /* the grammar of thresholds, a traceback */
        else
            fwrite(form, 1, n, stderr);
    }
    fputc('\n', stderr);
}

static int fail(const engine *e)
{
    print_error("", e->why);
    return LS_STRESS_EXIT_FAILED;
}

/* ---- callbacks -------------------------------------------------------------------------------------------------- */

static void settled(ls_stress_worker *w, void *user)
{
    engine *e = user;
    (void)w;
    ls_mutex_lock(&e->mutex);
    e->settled++;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

static void finished(ls_stress_worker *w, void *user)
{
    engine *e = user;
    const bool failed = w->script != NULL && ls_stress_script_error(w->script)[0] != '\0';
    ls_mutex_lock(&e->mutex);
    e->finished++;
    e->failed |= failed;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

/* SIGINT or SIGTERM, on the signal thread. A second one ends the process at once: a hook may be in an endless loop. */
static void interrupt(void *user)
{
    engine *e = user;
    ls_mutex_lock(&e->mutex);
    if (e->interrupted) _Exit(LS_STRESS_EXIT_FAILED);
    e->interrupted = true;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static void stop_all(engine *e)
{
    for (unsigned i = 0; i < e->started; i++) ls_stress_worker_stop(&e->workers[i]);
}

/* Wait until every first connect has succeeded or failed. False: the run has ended already, or nothing is
 * connected. */
static bool wait_settled(engine *e)
{
    ls_mutex_lock(&e->mutex);
    while (e->settled < e->started && e->finished == 0 && !e->interrupted) ls_cond_wait(&e->cond, &e->mutex);
    const bool connected = e->finished == 0 && !e->interrupted;
    ls_mutex_unlock(&e->mutex);
    if (!connected) return false;
    uint64_t connects = 0;
    for (unsigned i = 0; i < e->started; i++) connects += ls_counter_read(&e->workers[i].count.connects);
    return connects > 0 && (e->fanout == NULL || atomic_load(&e->fanout->ready) > 0);
}

/* Tick until all workers have finished. Stop them after an interrupt or an error in a hook. */
static void sample_until_finished(engine *e, ls_stress_sampler *sampler)
{
    const uint64_t tick_ns = LS_STRESS_TICK_MS * UINT64_C(1000000);
    uint64_t next_ns = ls_clock_ns() + tick_ns;
    ls_stress_view view;
    bool stopping = false;
    ls_stress_view_open(&view, stderr, e->options.quiet);
    ls_mutex_lock(&e->mutex);
    while (e->finished < e->started) {
        const uint64_t now_ns = ls_clock_ns();
        if (!stopping && (e->interrupted || e->failed)) {
            stop_all(e);
            stopping = true;
        }
        if (now_ns < next_ns) {
            (void)ls_cond_wait_ms(&e->cond, &e->mutex, (uint32_t)((next_ns - now_ns) / 1000000u + 1));
            continue;
        }
        ls_mutex_unlock(&e->mutex);
        const bool closed = ls_stress_sampler_tick(sampler, now_ns);
        ls_stress_view_draw(&view, sampler, closed);
        next_ns += tick_ns;
        ls_mutex_lock(&e->mutex);
    }
    ls_mutex_unlock(&e->mutex);
    ls_stress_view_close(&view);
}

static uint64_t run_end_ns(const engine *e, uint64_t start_ns)
{
    uint64_t end_ns = start_ns + 1;
    for (unsigned i = 0; i < e->started; i++)
        if (e->workers[i].ended_ns > end_ns) end_ns = e->workers[i].ended_ns;
    return end_ns;
}

/* Explain why there are no responses: the first error. */
static void explain_no_response(engine *e)
{
    const ls_stress_config *config = &e->options.plan.config;
    uint64_t timeouts = 0, reads = 0;
    for (unsigned i = 0; i < e->started; i++) {
        const ls_stress_worker *w = &e->workers[i];
        char text[LS_ADDR_TEXT_BYTES];
        int err = atomic_load(&w->first_error);
        if (w->first_failure[0] != '\0') {
            snprintf(e->why, sizeof e->why, "%s: no valid response; first error: %s", config->target,
                     w->first_failure);
            return;
        }
        if (err < 0) {
            snprintf(e->why, sizeof e->why, "%s: %s", ls_addr_text(&w->addr, text), ls_err_text(err));
            return;
        }
        timeouts += ls_counter_read(&w->count.errors[LS_STRESS_ERROR_TIMEOUT]);
        reads += ls_counter_read(&w->count.errors[LS_STRESS_ERROR_READ]);
    }
    snprintf(e->why, sizeof e->why, "%s: %s", config->target,
             e->interrupted ? "interrupted before the first response"
             : timeouts > 0 ? "no complete response within the time limit"
             : reads > 0    ? "the server closed every connection without a response"
                            : "no response before the end of the run");
}

static const char *script_error(const engine *e)
{
    for (unsigned i = 0; i < e->started; i++) {
        const char *error = e->scripts != NULL ? ls_stress_script_error(e->scripts[i]) : "";
        if (error[0] != '\0') return error;
    }
    return "";
}

/* Print the first failure: the bytes of the response, or the line of the script. */
static void print_first_failure(const engine *e)
{
    for (unsigned i = 0; i < e->started; i++) {
        if (e->workers[i].first_failure[0] == '\0') continue;
        print_error("first error: ", e->workers[i].first_failure);
        return;
    }
}

static int write_files(engine *e, const ls_stress_result *result)
{
    const ls_stress_files files = {.json = e->options.json, .csv = e->options.csv, .html = e->options.html};
    return ls_stress_files_write(&files, result, e->why, sizeof e->why);
}

/* No responses, so no figures to print; the report files contain the reason and the counts. */
static int report_no_response(engine *e, ls_stress_result *result)
{
    char why[LS_STRESS_WHY_BYTES];
    explain_no_response(e);
    const int status = fail(e);
    snprintf(why, sizeof why, "%s", e->why);
    result->failure = why;
    if (e->main_script != NULL && ls_stress_script_done(e->main_script, result, e->why, sizeof e->why) < 0) fail(e);
    if (write_files(e, result) < 0) fail(e);
    return status;
}

static int report(engine *e, const ls_stress_result *result)
{
    int status = ls_stress_report_exit(result);
    ls_strbuf text = {0};
    ls_stress_report_text(&text, result);
    if (text.failed || fwrite(text.bytes, 1, text.len, stdout) != text.len || fflush(stdout) != 0) {
        snprintf(e->why, sizeof e->why, "cannot write the report to standard output");
        status = fail(e);
    }
    ls_strbuf_close(&text);
    print_first_failure(e);
    if (e->main_script != NULL && ls_stress_script_done(e->main_script, result, e->why, sizeof e->why) < 0)
        status = fail(e);
    if (write_files(e, result) < 0) status = fail(e);
    if (ls_stress_failure_text(e->why, sizeof e->why, result) != NULL) fail(e);
    return status;
}

/* Run the started threads to their end, and report. Returns the exit status. */
static int measure(engine *e)
{
    ls_stress_plan *plan = &e->options.plan;
    ls_stress_sampler *sampler = NULL;
    ls_stress_result result = {0};
    const ls_stress_counters **counters = calloc(e->started, sizeof(void *));
    const ls_stress_checks **checks = calloc(e->started, sizeof(void *));
    int status = LS_STRESS_EXIT_FAILED;
    uint64_t start_ns = 0;
    snprintf(e->why, sizeof e->why, "not enough memory");
    if (counters == NULL || checks == NULL) goto end;
    for (unsigned i = 0; i < e->started; i++) {
        counters[i] = &e->workers[i].count;
        checks[i] = &e->workers[i].checks;
    }
    const bool connected = wait_settled(e);
    start_ns = ls_clock_ns();
    if (ls_stress_sampler_open(&plan->config, counters, e->started, start_ns, &sampler) < 0) goto end;
    if (connected) {
        for (unsigned i = 0; i < e->started; i++) ls_stress_worker_go(&e->workers[i], start_ns);
        sample_until_finished(e, sampler);
    }
end:
    stop_all(e);
    for (unsigned i = 0; i < e->started; i++) ls_stress_worker_join(&e->workers[i]);
    const char *error = script_error(e);
    if (error[0] != '\0') {
        snprintf(e->why, sizeof e->why, "%s", error);
        fail(e);
    } else if (sampler == NULL ||
               ls_stress_sampler_finish(sampler, run_end_ns(e, start_ns), e->interrupted, checks,
                                        e->options.thresholds, e->options.threshold_count, &result) < 0) {
        fail(e);
    } else {
        const bool empty = plan->config.hold ? result.connects == 0 : result.requests == 0;
        status = empty ? report_no_response(e, &result) : report(e, &result);
        ls_stress_result_close(&result);
    }
    ls_stress_sampler_close(sampler);
    free(counters);
    free(checks);
    return status;
}

/* ---- preparation ------------------------------------------------------------------------------------------------ */

static int open_workers(engine *e)
{
    ls_stress_plan *plan = &e->options.plan;
    const unsigned threads = plan->config.threads;
    int err = LS_ENOMEM;
    unsigned from = 0;
    if ((e->workers = calloc(threads, sizeof *e->workers)) == NULL) goto fail;
    if (e->main_script != NULL) {
        if ((e->scripts = calloc(threads, sizeof(ls_stress_script *))) == NULL) goto fail;
        for (unsigned i = 0; i < threads; i++)
            if (ls_stress_script_open(plan, &e->scripts[i], e->why, sizeof e->why) < 0) return LS_ESCRIPT;
        if (ls_stress_script_prepare(e->main_script, e->scripts, threads, e->why, sizeof e->why) < 0)
            return LS_ESCRIPT;
    }
    if (plan->config.fanout && (err = ls_stress_fanout_open(plan, &e->fanout)) < 0) goto fail;
    for (unsigned i = 0; i < threads; i++) {
        ls_stress_worker *w = &e->workers[i];
        const uint32_t vu_count = ls_stress_plan_share(plan->config.connections, threads, i) +
                                  ls_stress_plan_share(plan->config.publishers, threads, i);
        if ((err = ls_stress_worker_open(w, plan, i, from, vu_count, e->scripts != NULL ? e->scripts[i] : NULL,
                                         e->fanout)) < 0)
            goto fail;
        w->settled = settled;
        w->finished = finished;
        w->user = e;
        from += vu_count;
        e->opened++;
    }
    return LS_OK;

fail:
    snprintf(e->why, sizeof e->why, "%u connections on %u threads: %s", plan->config.connections, threads,
             ls_err_text(err));
    return err;
}

static int start_workers(engine *e)
{
    for (; e->started < e->opened; e->started++) {
        int err = ls_stress_worker_start(&e->workers[e->started]);
        if (err == LS_OK) continue;
        snprintf(e->why, sizeof e->why, "%u threads: %s", e->opened, ls_err_text(err));
        stop_all(e);
        for (unsigned i = 0; i < e->started; i++) ls_stress_worker_join(&e->workers[i]);
        return err;
    }
    return LS_OK;
}

/* *usage_error becomes false when a later error is not one of the command line but of a script or the system. */
static int prepare(engine *e, bool *usage_error)
{
    ls_stress_plan *plan = &e->options.plan;
    const ls_stress_files files = {.json = e->options.json, .csv = e->options.csv, .html = e->options.html};
    int err;
    if (plan->script_path != NULL) {
        /* A script for wrk can read the URL while it loads. */
        if (e->options.url != NULL &&
            (err = ls_stress_target_parse(e->options.url, &plan->target, e->why, sizeof e->why)) < 0)
            return err;
        *usage_error = false;
        if ((err = ls_stress_script_open(plan, &e->main_script, e->why, sizeof e->why)) < 0) return err;
        if (plan->dialect == LS_STRESS_DIALECT_TABLE) {
            err = ls_stress_options_table(&e->options, ls_stress_script_state(e->main_script), LS_STRESS_SCRIPT_TABLE,
                                          e->why, sizeof e->why);
            if (err < 0) return err;
        } else {
            plan->mode = LS_STRESS_PLAN_SCRIPT;
            *usage_error = true; /* such a script has no options; all come from the command line */
        }
    }
    if ((err = ls_stress_options_finish(&e->options, e->why, sizeof e->why)) < 0) return err;
    *usage_error = false;
    if ((err = ls_stress_files_probe(&files, e->why, sizeof e->why)) < 0) return err;

    const ls_stress_config *config = &plan->config;
    const uint32_t wanted =
        config->connections + config->publishers + config->threads * DESCRIPTORS_PER_THREAD + DESCRIPTORS_SPARE;
    const uint32_t have = ls_descriptors_raise(wanted);
    if (have < wanted) {
        snprintf(e->why, sizeof e->why, "%u connections need %u file descriptors; the limit is %u (ulimit -n)",
                 config->connections, wanted, have);
        return LS_EMFILE;
    }
    const uint64_t probe_ms = config->timeout_ns / 1000000u;
    return ls_stress_target_resolve(&plan->target,
                                    probe_ms > 0 && probe_ms < INT32_MAX ? (uint32_t)probe_ms : PROBE_MS_DEFAULT,
                                    &plan->addr, e->why, sizeof e->why);
}

static void engine_close(engine *e)
{
    for (unsigned i = 0; i < e->opened; i++) ls_stress_worker_close(&e->workers[i]);
    for (unsigned i = 0; e->scripts != NULL && i < e->options.plan.config.threads; i++)
        ls_stress_script_close(e->scripts[i]);
    ls_stress_script_close(e->main_script);
    ls_stress_fanout_close(e->fanout);
    free(e->scripts);
    free(e->workers);
    ls_stress_options_close(&e->options);
    ls_cond_close(&e->cond);
    ls_mutex_close(&e->mutex);
    free(e);
}

int ls_stress_main(int argc, char **argv)
{
    engine *e = calloc(1, sizeof *e);
    ls_signals *signals = NULL;
    int status = LS_STRESS_EXIT_FAILED;
    if (ls_digest_start() < 0 || e == NULL || ls_mutex_open(&e->mutex) < 0 || ls_cond_open(&e->cond) < 0) {
        fprintf(stderr, "luaserve stress: not enough memory\n");
        free(e);
        return status;
    }
    bool usage_error = true; /* until the command line has been parsed and checked */
    int err = ls_stress_options_parse(&e->options, argc, argv, e->why, sizeof e->why);
    if (err == LS_OK && !e->options.help && (err = prepare(e, &usage_error)) == LS_OK) err = open_workers(e);
    if (err < 0) {
        fail(e);
        if (usage_error && err == LS_EINVAL) status = LS_STRESS_EXIT_USAGE;
    } else if (e->options.help) {
        ls_stress_options_usage(stdout);
        status = 0;
    } else {
        ls_strbuf head = {0};
        ls_stress_http_init();
        ls_stress_report_head(&head, &e->options.plan.config);
        (void)fwrite(head.bytes, 1, head.len, stdout);
        (void)fflush(stdout);
        ls_strbuf_close(&head);
        const ls_signals_options stops = {.on_stop = interrupt, .user = e};
        if (ls_signals_open(&stops, &signals) < 0 || ls_signals_take_stops(signals) < 0 || start_workers(e) < 0)
            fail(e);
        else
            status = measure(e);
        if (signals != NULL) ls_signals_close(signals);
    }
    engine_close(e);
    return status;
}
