/* report_json.c - the run as one JSON object. REPORTS.md specifies it. Names may be added; a change of a name's
 * meaning increases FORMAT. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/http_text.h"
#include "stress/report.h"

enum { FORMAT = 2 };

/* ---- members: each writes the comma before itself --------------------------------------------------------------- */

static void put_name(ls_strbuf *to, const char *name)
{
    char last = to->len > 0 ? to->bytes[to->len - 1] : '{';
    if (last != '{' && last != '[') ls_strbuf_put(to, ",");
    ls_strbuf_format(to, "\"%s\":", name);
}

static void put_number(ls_strbuf *to, const char *name, double number)
{
    put_name(to, name);
    ls_strbuf_json_number(to, number, 3);
}

/* Seconds, to the nanosecond; null if not `known`. */
static void put_seconds(ls_strbuf *to, const char *name, uint64_t ns, bool known)
{
    put_name(to, name);
    ls_strbuf_json_number(to, known ? (double)ns / 1e9 : NAN, 9);
}

static void put_count(ls_strbuf *to, const char *name, uint64_t count)
{
    put_name(to, name);
    ls_strbuf_format(to, "%llu", (unsigned long long)count);
}

static void put_bool(ls_strbuf *to, const char *name, bool value)
{
    put_name(to, name);
    ls_strbuf_put(to, value ? "true" : "false");
}

static void put_string(ls_strbuf *to, const char *name, const char *text)
{
    put_name(to, name);
    if (text == NULL)
        ls_strbuf_put(to, "null");
    else
        ls_strbuf_json_string(to, text, strlen(text));
}

static void open_value(ls_strbuf *to, const char *name, const char *bracket)
{
    put_name(to, name);
    ls_strbuf_put(to, bracket);
}

/* Open an object, or write null. Returns `present`. */
static bool open_part(ls_strbuf *to, const char *name, bool present)
{
    open_value(to, name, present ? "{" : "null");
    return present;
}

static void next_element(ls_strbuf *to)
{
    if (to->len > 0 && to->bytes[to->len - 1] != '[') ls_strbuf_put(to, ",");
}

static double or_null(double number, bool known)
{
    return known ? number : NAN;
}

static double us(double ns)
{
    return ns / 1e3;
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

/* RFC 3339, from the parts of HTTP's "Sun, 06 Nov 1994 08:49:37 GMT". */
static void put_started(ls_strbuf *to, int64_t at_us)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char date[LS_HTTP_DATE_BYTES];
    int month = 1;
    ls_http_date(at_us / 1000000, date);
    while (month < 12 && memcmp(months + 3 * (month - 1), date + 8, 3) != 0) month++;
    put_name(to, "started");
    ls_strbuf_format(to, "\"%.4s-%02d-%.2sT%.8s.%03dZ\"", date + 12, month, date + 5, date + 17,
                     (int)(at_us / 1000 % 1000));
}

static void put_config(ls_strbuf *to, const ls_stress_config *c)
{
    open_value(to, "config", "{");
    put_string(to, "target", c->target);
    put_string(to, "script", c->script);
    put_string(to, "mode", c->open_loop ? "open" : "closed");
    put_count(to, "threads", c->threads);
    put_count(to, "connections", c->connections);
    put_seconds(to, "duration_s", c->duration_ns, c->duration_ns > 0);
    put_number(to, "requests", or_null((double)c->requests, c->requests > 0));
    put_number(to, "rate_per_s", or_null(c->rate, c->open_loop));
    put_count(to, "pipeline", c->pipeline);
    put_number(to, "message_bytes", or_null((double)c->message_bytes, c->message_bytes > 0));
    put_bool(to, "keepalive", c->keepalive);
    if (c->tls)
        put_bool(to, "tls_resume", c->tls_resume);
    else
        put_string(to, "tls_resume", NULL);
    put_seconds(to, "timeout_s", c->timeout_ns, c->timeout_ns > 0);
    put_string(to, "backend", c->backend);
    open_value(to, "stages", "[");
    for (size_t i = 0; i < c->stage_count; i++) {
        next_element(to);
        ls_strbuf_put(to, "{");
        put_seconds(to, "duration_s", c->stages[i].duration_ns, true);
        put_number(to, "rate_per_s", or_null(c->stages[i].rate, c->open_loop));
        put_number(to, "connections", or_null(c->stages[i].connections, c->stages[i].connections > 0));
        ls_strbuf_put(to, "}");
    }
    ls_strbuf_put(to, "]}");
}

static void put_totals(ls_strbuf *to, const ls_stress_result *r)
{
    const double seconds = (double)r->duration_ns / 1e9;
    open_value(to, "totals", "{");
    put_seconds(to, "duration_s", r->duration_ns, true);
    put_count(to, "requests", r->requests);
    put_number(to, "requests_per_s", ls_stress_result_rate(r));
    put_number(to, "asked_per_s", or_null(ls_stress_result_target_rate(r), r->config.open_loop));
    put_count(to, "unsent", r->unsent);
    put_seconds(to, "behind_s", r->behind_ns, r->config.open_loop);
    put_count(to, "connects", r->connects);
    put_count(to, "bytes_in", r->bytes_in);
    put_count(to, "bytes_out", r->bytes_out);
    put_number(to, "bytes_in_per_s", seconds > 0 ? (double)r->bytes_in / seconds : 0);
    put_number(to, "bytes_out_per_s", seconds > 0 ? (double)r->bytes_out / seconds : 0);
    ls_strbuf_put(to, "}");
}

/* The percentages of the curve: ten steps for each halving of the remaining percentage, so that they are evenly spaced
 * on an axis of 1/(1 - q). The curve ends where less than one value remains. */
static void put_curve(ls_strbuf *to, const ls_histogram *h, uint64_t count)
{
    enum { STEPS = 10, BATCH = 400 };
    double percents[BATCH];
    uint64_t values[BATCH];
    size_t n = 0;
    double left = 100;
    while (n + STEPS < BATCH && left / 100 * (double)count >= 1) {
        for (int i = 0; i < STEPS; i++) percents[n++] = 100 - left + left / 2 * i / STEPS;
        left /= 2;
    }
    percents[n++] = 100;
    ls_histogram_at_each(h, percents, n, values);
    open_value(to, "curve", "[");
    for (size_t i = 0; i < n; i++) {
        char percent[48];
        next_element(to);
        ls_strbuf_put(to, "[");
        ls_strbuf_put(to, ls_stress_fixed_text(percent, sizeof percent, percents[i], 9));
        ls_strbuf_put(to, ",");
        ls_strbuf_json_number(to, us((double)values[i]), 3);
        ls_strbuf_put(to, "]");
    }
    ls_strbuf_put(to, "]");
}

/* All figures are null when nothing was measured. */
static void put_latency(ls_strbuf *to, const char *name, const ls_histogram *h, bool curve)
{
    if (!open_part(to, name, h != NULL)) return;
    uint64_t count = ls_histogram_count(h);
    bool any = count > 0;
    char percent[32];
    put_count(to, "count", count);
    put_number(to, "min", or_null(us((double)ls_histogram_min(h)), any));
    put_number(to, "mean", or_null(us(ls_histogram_mean(h)), any));
    put_number(to, "stdev", or_null(us(ls_histogram_stdev(h)), any));
    put_number(to, "max", or_null(us((double)ls_histogram_max(h)), any));
    put_number(to, "within_stdev_percent", or_null(ls_histogram_within(h, 1), any));
    put_count(to, "over_an_hour", ls_histogram_clipped(h));
    open_value(to, "percentiles", "{");
    for (size_t i = 0; i < ls_stress_percent_count; i++) {
        ls_stress_percent_name(percent, sizeof percent, ls_stress_percents[i]);
        put_number(to, percent, or_null(us((double)ls_histogram_at(h, ls_stress_percents[i])), any));
    }
    ls_strbuf_put(to, "}");
    if (curve && any)
        put_curve(to, h, count);
    else if (curve)
        ls_strbuf_put(to, ",\"curve\":[]");
    ls_strbuf_put(to, "}");
}

static void put_tls(ls_strbuf *to, const ls_stress_result *r)
{
    if (!open_part(to, "tls", r->handshake != NULL)) return;
    put_count(to, "full", r->handshakes_full);
    put_count(to, "resumed", r->handshakes_resumed);
    put_count(to, "failed", r->handshakes_failed);
    put_latency(to, "handshake_us", r->handshake, false);
    ls_strbuf_put(to, "}");
}

static void put_websocket(ls_strbuf *to, const ls_stress_result *r)
{
    char name[8];
    if (!open_part(to, "websocket", r->upgrade != NULL)) return;
    put_count(to, "handshakes", r->upgrades);
    put_count(to, "failed", r->upgrades_failed);
    put_count(to, "deflate", r->deflated);
    put_latency(to, "handshake_us", r->upgrade, false);
    open_value(to, "close_codes", "{");
    for (unsigned i = 0; i < LS_STRESS_CODE_COUNT; i++) {
        if (r->codes[i] == 0) continue;
        (void)snprintf(name, sizeof name, "%u", LS_STRESS_CODE_MIN + i);
        put_count(to, name, r->codes[i]);
    }
    ls_strbuf_put(to, "}}");
}

static void put_fanout(ls_strbuf *to, const ls_stress_result *r)
{
    const ls_stress_config *c = &r->config;
    if (!open_part(to, "fanout", c->fanout)) return;
    put_count(to, "publishers", c->publishers);
    put_count(to, "subscribers", c->connections);
    put_count(to, "topics", c->topics);
    put_count(to, "stalled", c->stalled);
    put_bool(to, "sse", c->sse);
    put_count(to, "published", r->published);
    put_number(to, "published_per_s", ls_stress_result_made_rate(r));
    put_count(to, "expected", r->expected);
    put_count(to, "delivered", r->requests);
    put_count(to, "lost", r->lost);
    put_count(to, "reordered", r->reordered);
    put_count(to, "duplicated", r->duplicated);
    put_count(to, "ignored", r->foreign);
    ls_strbuf_put(to, "}");
}

static void put_thread_rate(ls_strbuf *to, const ls_histogram *rates)
{
    open_value(to, "thread_rate_per_s", "{");
    put_count(to, "samples", ls_histogram_count(rates));
    put_number(to, "mean", ls_histogram_mean(rates));
    put_number(to, "stdev", ls_histogram_stdev(rates));
    put_number(to, "max", (double)ls_histogram_max(rates));
    put_number(to, "within_stdev_percent", ls_histogram_within(rates, 1));
    ls_strbuf_put(to, "}");
}

static void put_responses(ls_strbuf *to, const ls_stress_result *r)
{
    char name[8] = "000";
    open_value(to, "status", "{");
    for (unsigned i = 100; i <= LS_STRESS_STATUS_MAX; i++) {
        if (r->status[i] == 0) continue;
        name[0] = (char)('0' + i / 100);
        name[1] = (char)('0' + i / 10 % 10);
        name[2] = (char)('0' + i % 10);
        put_count(to, name, r->status[i]);
    }
    ls_strbuf_put(to, "}");
    open_value(to, "status_classes", "{");
    for (unsigned i = 1; i <= 5; i++) {
        memcpy(name, (char[]){(char)('0' + i), 'x', 'x', '\0'}, 4);
        put_count(to, name, ls_stress_result_statuses(r, i * 100, i * 100 + 99));
    }
    ls_strbuf_put(to, "}");
    open_value(to, "errors", "{");
    put_count(to, "total", ls_stress_result_errors(r));
    for (size_t i = 0; i < LS_STRESS_ERROR_KINDS; i++) {
        put_count(to, ls_stress_error_name((ls_stress_error)i), r->errors[i]);
    }
    ls_strbuf_put(to, "}");
    open_value(to, "checks", "[");
    for (size_t i = 0; i < r->checks.count; i++) {
        const ls_stress_check *c = &r->checks.list[i];
        next_element(to);
        ls_strbuf_put(to, "{");
        put_name(to, "name");
        ls_strbuf_json_string(to, c->name, c->len);
        put_count(to, "passed", c->passed);
        put_count(to, "failed", c->failed);
        ls_strbuf_put(to, "}");
    }
    ls_strbuf_put(to, "]");
}

static void put_thresholds(ls_strbuf *to, const ls_stress_result *r)
{
    char actual[48];
    open_value(to, "thresholds", "[");
    for (size_t i = 0; i < r->threshold_count; i++) {
        const ls_stress_threshold *t = &r->thresholds[i];
        bool latency = t->metric <= LS_STRESS_METRIC_STDEV;
        ls_stress_actual_text(actual, sizeof actual, t);
        next_element(to);
        ls_strbuf_put(to, "{");
        put_string(to, "text", t->text);
        put_name(to, "metric");
        ls_strbuf_json_string(to, t->text, strcspn(t->text, " \t<>="));
        put_bool(to, "met", t->met);
        put_number(to, "limit", latency ? us(t->limit) : t->limit);
        put_number(to, "actual", latency ? us(t->actual) : t->actual);
        put_string(to, "unit", latency ? "us" : t->percent ? "%" : t->metric == LS_STRESS_METRIC_RATE ? "/s" : "");
        put_string(to, "actual_text", actual);
        ls_strbuf_put(to, "}");
    }
    ls_strbuf_put(to, "]");
}

static void put_series(ls_strbuf *to, const ls_stress_result *r)
{
    open_value(to, "series", "[");
    for (size_t i = 0; i < r->point_count; i++) {
        const ls_stress_point *p = &r->points[i];
        bool any = p->max_ns > 0;
        next_element(to);
        ls_strbuf_put(to, "\n{");
        put_seconds(to, "from_s", p->from_ns, true);
        put_seconds(to, "to_s", p->to_ns, true);
        put_count(to, "requests", p->requests);
        put_number(to, "requests_per_s", (double)p->requests * 1e9 / (double)(p->to_ns - p->from_ns));
        put_count(to, "errors", p->errors);
        put_count(to, "failed_status", p->failed_status);
        put_count(to, "bytes_in", p->bytes_in);
        put_count(to, "bytes_out", p->bytes_out);
        put_count(to, "connections", p->connections);
        put_number(to, "p50_us", or_null(us((double)p->p50_ns), any));
        put_number(to, "p99_us", or_null(us((double)p->p99_ns), any));
        put_number(to, "max_us", or_null(us((double)p->max_ns), any));
        ls_strbuf_put(to, "}");
    }
    ls_strbuf_put(to, "]");
    put_bool(to, "series_cut", r->points_cut);
}

void ls_stress_report_json(ls_strbuf *to, const ls_stress_result *r)
{
    static const char *const short_of[] = {
        [LS_STRESS_SHORT_OF_CONNECTIONS] = "connections", [LS_STRESS_SHORT_OF_TIME] = "time"};
    char failure[LS_STRESS_FAILURE_BYTES];
    ls_strbuf_put(to, "{");
    put_string(to, "format", "luaserve-stress");
    put_count(to, "version", FORMAT);
    put_string(to, "luaserve", LS_VERSION);
    put_started(to, r->started_us);
    put_bool(to, "interrupted", r->interrupted);
    put_count(to, "exit_status", (uint64_t)ls_stress_report_exit(r));
    put_string(to, "failure", ls_stress_failure_text(failure, sizeof failure, r));
    put_string(to, "short_of", short_of[ls_stress_result_short(r)]);
    put_config(to, &r->config);
    put_totals(to, r);
    open_value(to, "latency_us", "{");
    put_latency(to, "corrected", r->due, true);
    put_latency(to, "uncorrected", r->sent, true);
    ls_strbuf_put(to, "}");
    put_tls(to, r);
    put_websocket(to, r);
    put_fanout(to, r);
    put_latency(to, "engine_lag_us", r->lag, false);
    put_bool(to, "engine_late", ls_stress_result_engine_late(r));
    put_thread_rate(to, r->rates);
    put_responses(to, r);
    put_thresholds(to, r);
    put_series(to, r);
    ls_strbuf_put(to, "}\n");
}
