/* report_text.c - the printed report.
 *
 * The first part is in the format of wrk 4, column for column, because programs parse wrk's output: the same titles,
 * widths, units and rounding. Additional lines follow wrk's last line. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "stress/report.h"

static double seconds_of(const ls_stress_result *r)
{
    return (double)r->duration_ns / 1e9;
}

/* ---- wrk's units ------------------------------------------------------------------------------------------------ */

typedef struct units {
    double step;
    const char *names[7]; /* the base unit first; NULL after the last */
} units;

/* wrk changes to the next unit at 0.85 of it. It never shows microseconds as seconds or seconds as hours: from one
 * second it counts in seconds, which become minutes at most. */
static const units microseconds = {1000, {"us", "ms", NULL}};
static const units seconds = {60, {"s", "m", NULL}};
static const units binary = {1024, {"", "K", "M", "G", "T", NULL}};
static const units metric = {1000, {"", "k", "M", "G", "T", NULL}};

typedef struct shown {
    char text[64];
} shown;

static shown show(double number, const units *u, int decimals)
{
    shown s;
    char digits[48];
    size_t unit = 0;
    while (u->names[unit + 1] != NULL && number >= u->step * 0.85) {
        number /= u->step;
        unit++;
    }
    snprintf(s.text, sizeof s.text, "%s%s", ls_stress_fixed_text(digits, sizeof digits, number, decimals),
             u->names[unit]);
    return s;
}

static shown show_time(double ns)
{
    double us = ns / 1000;
    return us >= 1e6 ? show(us / 1e6, &seconds, 2) : show(us, &microseconds, 2);
}

static shown show_metric(double number)
{
    return show(number, &metric, 2);
}

/* Right-aligned by the numbers, not by the units: a unit of two letters ends at the end of the column, a shorter one
 * is followed by blanks. */
static void put_aligned(ls_strbuf *to, shown s, int width)
{
    size_t len = strlen(s.text);
    int blanks = 2;
    for (size_t i = 1; i <= 2 && i <= len; i++) {
        char c = s.text[len - i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) blanks--;
    }
    width -= blanks;
    ls_strbuf_format(to, "%*.*s%.*s", width, width, s.text, blanks, "  ");
}

/* ---- wrk's lines ------------------------------------------------------------------------------------------------ */

void ls_stress_report_head(ls_strbuf *to, const ls_stress_config *config)
{
    const double s = (double)config->duration_ns / 1e9;
    if (config->duration_ns == 0)
        ls_strbuf_format(to, "Running %llu requests", (unsigned long long)config->requests);
    else if (s < 1)
        ls_strbuf_format(to, "Running %llums test", (unsigned long long)(config->duration_ns / 1000000));
    else
        ls_strbuf_format(to, "Running %s test", show(s, &seconds, 0).text);
    ls_strbuf_format(to, " @ %s\n  %u threads and %u connections\n", config->target, config->threads,
                     config->connections);
}

static void put_stats(ls_strbuf *to, const char *name, const ls_histogram *h, shown (*show_as)(double))
{
    char digits[48];
    ls_strbuf_format(to, "    %-10s", name);
    put_aligned(to, show_as(ls_histogram_mean(h)), 8);
    put_aligned(to, show_as(ls_histogram_stdev(h)), 10);
    put_aligned(to, show_as((double)ls_histogram_max(h)), 9);
    ls_strbuf_format(to, "%8s%%\n", ls_stress_fixed_text(digits, sizeof digits, ls_histogram_within(h, 1), 2));
}

static void put_distribution(ls_strbuf *to, const ls_histogram *h)
{
    static const double percents[] = {50, 75, 90, 99};
    char digits[48];
    ls_strbuf_put(to, "  Latency Distribution\n");
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        ls_strbuf_format(to, "%7s%%", ls_stress_fixed_text(digits, sizeof digits, percents[i], 0));
        put_aligned(to, show_time((double)ls_histogram_at(h, percents[i])), 10);
        ls_strbuf_put(to, "\n");
    }
}

static void put_wrk(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    const ls_histogram *latency = ls_stress_result_latency(r);
    const uint64_t *e = r->errors;
    char digits[48];
    double duration = seconds_of(r);

    ls_strbuf_format(to, "  Thread Stats%6s%11s%8s%12s\n", "Avg", "Stdev", "Max", "+/- Stdev");
    put_stats(to, "Latency", latency, show_time);
    put_stats(to, "Req/Sec", r->rates, show_metric);
    if (r->config.latency) put_distribution(to, latency);
    ls_strbuf_format(to, "  %llu requests in %s, %sB read\n", (ull)r->requests, show_time((double)r->duration_ns).text,
                     show((double)r->bytes_in, &binary, 2).text);
    if (e[LS_STRESS_ERROR_CONNECT] + e[LS_STRESS_ERROR_READ] + e[LS_STRESS_ERROR_WRITE] + e[LS_STRESS_ERROR_TIMEOUT] >
        0) {
        ls_strbuf_format(to, "  Socket errors: connect %llu, read %llu, write %llu, timeout %llu\n",
                         (ull)e[LS_STRESS_ERROR_CONNECT], (ull)e[LS_STRESS_ERROR_READ], (ull)e[LS_STRESS_ERROR_WRITE],
                         (ull)e[LS_STRESS_ERROR_TIMEOUT]);
    }
    uint64_t failed = ls_stress_result_statuses(r, 400, LS_STRESS_STATUS_MAX);
    if (failed > 0) ls_strbuf_format(to, "  Non-2xx or 3xx responses: %llu\n", (ull)failed);
    ls_strbuf_format(to, "Requests/sec: %9s\n",
                     ls_stress_fixed_text(digits, sizeof digits, ls_stress_result_rate(r), 2));
    ls_strbuf_format(to, "Transfer/sec: %10sB\n",
                     show(duration > 0 ? (double)r->bytes_in / duration : 0, &binary, 2).text);
}

/* ---- additional lines ------------------------------------------------------------------------------------------- */

static void put_both(ls_strbuf *to, const ls_stress_result *r, const char *name, double percent)
{
    char due[32] = "-", sent[32] = "-";
    if (ls_histogram_count(r->due) > 0) ls_stress_time_text(due, sizeof due, (double)ls_histogram_at(r->due, percent));
    if (ls_histogram_count(r->sent) > 0) {
        ls_stress_time_text(sent, sizeof sent, (double)ls_histogram_at(r->sent, percent));
    }
    ls_strbuf_format(to, "  %-8s %12s %12s\n", name, due, sent);
}

static void put_side_by_side(ls_strbuf *to, const ls_stress_result *r)
{
    char name[32];
    ls_strbuf_put(to, "\nLatency from the due time of each request (corrected) and from its send (uncorrected)\n");
    ls_strbuf_format(to, "  %-8s %12s %12s\n", "", "corrected", "uncorrected");
    for (size_t i = 0; i < ls_stress_percent_count; i++) {
        ls_stress_percent_name(name, sizeof name, ls_stress_percents[i]);
        put_both(to, r, name, ls_stress_percents[i]);
    }
    put_both(to, r, "max", 100);
}

/* "; mean 1.20ms, ..." if there is a value, and the end of the line. */
static void put_spread(ls_strbuf *to, const ls_histogram *h)
{
    char mean[48], p50[48], p99[48], max[48];
    if (ls_histogram_count(h) > 0) {
        ls_stress_time_text(mean, sizeof mean, ls_histogram_mean(h));
        ls_stress_time_text(p50, sizeof p50, (double)ls_histogram_at(h, 50));
        ls_stress_time_text(p99, sizeof p99, (double)ls_histogram_at(h, 99));
        ls_stress_time_text(max, sizeof max, (double)ls_histogram_max(h));
        ls_strbuf_format(to, "; mean %s, p50 %s, p99 %s, max %s", mean, p50, p99, max);
    }
    ls_strbuf_put(to, "\n");
}

static void put_handshakes(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    if (r->handshake == NULL) return;
    ls_strbuf_format(to, "TLS handshakes: full %llu, resumed %llu, failed %llu", (ull)r->handshakes_full,
                     (ull)r->handshakes_resumed, (ull)r->handshakes_failed);
    put_spread(to, r->handshake);
}

static void put_websocket(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    const char *between = "Closed by the server: ";
    if (r->upgrade == NULL || r->upgrades + r->upgrades_failed == 0) return;
    ls_strbuf_format(to, "WebSocket handshakes: %llu, failed %llu", (ull)r->upgrades, (ull)r->upgrades_failed);
    if (r->deflated > 0) ls_strbuf_format(to, ", permessage-deflate %llu", (ull)r->deflated);
    put_spread(to, r->upgrade);
    for (unsigned i = 0; i < LS_STRESS_CODE_COUNT; i++) {
        if (r->codes[i] == 0) continue;
        ls_strbuf_format(to, "%s%u %llu", between, LS_STRESS_CODE_MIN + i, (ull)r->codes[i]);
        between = ", ";
    }
    if (between[0] == ',') ls_strbuf_put(to, "\n");
}

static void put_fanout(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    char rate[48];
    const ls_stress_config *c = &r->config;
    if (!c->fanout) return;
    ls_strbuf_format(to, "Published: %llu messages of %zu bytes, %s/s, by %u publisher%s to %u subscriber%s",
                     (ull)r->published, c->message_bytes,
                     ls_stress_fixed_text(rate, sizeof rate, ls_stress_result_made_rate(r), 2), c->publishers,
                     c->publishers == 1 ? "" : "s", c->connections, c->connections == 1 ? "" : "s");
    if (c->topics > 1) ls_strbuf_format(to, " of %u topics", c->topics);
    if (c->stalled > 0) ls_strbuf_format(to, ", %u of them stalled", c->stalled);
    ls_strbuf_format(to, "\nDelivered: %llu of %llu, lost %llu, reordered %llu, duplicated %llu\n", (ull)r->requests,
                     (ull)r->expected, (ull)r->lost, (ull)r->reordered, (ull)r->duplicated);
    if (r->foreign > 0) ls_strbuf_format(to, "Ignored: %llu messages of another run or topic\n", (ull)r->foreign);
}

static void put_errors(ls_strbuf *to, const ls_stress_result *r)
{
    static const ls_stress_error kinds[] = {
        LS_STRESS_ERROR_TLS,    LS_STRESS_ERROR_HANDSHAKE, LS_STRESS_ERROR_SUBSCRIBE, LS_STRESS_ERROR_ANSWER,
        LS_STRESS_ERROR_SCRIPT, LS_STRESS_ERROR_BODY,      LS_STRESS_ERROR_CHECK};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (r->errors[kinds[i]] == 0) continue;
        ls_strbuf_format(to, "Errors: %s %llu (%s)\n", ls_stress_error_name(kinds[i]),
                         (unsigned long long)r->errors[kinds[i]], ls_stress_error_text(kinds[i]));
    }
    if (ls_stress_result_statuses(r, 400, LS_STRESS_STATUS_MAX) == 0) return;
    const char *between = "";
    ls_strbuf_put(to, "Status: ");
    for (unsigned i = 100; i <= LS_STRESS_STATUS_MAX; i++) {
        if (r->status[i] == 0) continue;
        ls_strbuf_format(to, "%s%u %llu", between, i, (unsigned long long)r->status[i]);
        between = ", ";
    }
    ls_strbuf_put(to, "\n");
}

static void put_warnings(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    char a[48], b[48], c[48], failure[LS_STRESS_FAILURE_BYTES];
    double target = ls_stress_result_target_rate(r), rate = ls_stress_result_made_rate(r);
    if (r->interrupted) {
        ls_stress_time_text(a, sizeof a, (double)r->duration_ns);
        ls_strbuf_format(to, "Ended early, after %s\n", a);
    }
    /* Requests that are outstanding at the end, at most one per connection, are not a shortfall. */
    double allowed = target * 0.01 * seconds_of(r) + r->config.connections;
    if (ls_stress_failure_text(failure, sizeof failure, r) != NULL) {
        ls_strbuf_format(to, "Failed: %s\n", failure);
    } else if (target > 0 && target * seconds_of(r) - (double)ls_stress_result_made(r) > allowed) {
        ls_strbuf_format(to, "Warning: target rate %s requests/s, reached %s (%s%%)\n",
                         ls_stress_fixed_text(a, sizeof a, target, 1), ls_stress_fixed_text(b, sizeof b, rate, 1),
                         ls_stress_fixed_text(c, sizeof c, 100 * rate / target, 1));
    }
    if (ls_stress_result_engine_late(r) && ls_stress_result_short(r) != LS_STRESS_SHORT_OF_TIME) {
        ls_stress_time_text(a, sizeof a, (double)ls_histogram_at(r->lag, 99));
        ls_stress_time_text(b, sizeof b, (double)ls_histogram_max(r->lag));
        ls_strbuf_format(to,
                         "Warning: the load generator itself was behind its schedule, by %s or more for 1%% of the "
                         "requests and by %s "
                         "at most;\n  the corrected latencies contain this delay. Use more threads, another machine, "
                         "or a lower rate\n",
                         a, b);
    }
    if (ls_histogram_clipped(ls_stress_result_latency(r)) > 0) {
        ls_strbuf_format(to, "Warning: %llu latencies above one hour count as one hour\n",
                         (ull)ls_histogram_clipped(ls_stress_result_latency(r)));
    }
    if (ls_stress_result_statuses(r, 100, LS_STRESS_STATUS_MAX) > 0 && ls_stress_result_statuses(r, 200, 399) == 0)
        ls_strbuf_put(to, "WARNING: NO RESPONSE HAD A STATUS OF 2xx OR 3xx\n");
    if (r->points_cut)
        ls_strbuf_put(to, "Warning: the time series ends before the run does; the totals are complete\n");
}

/* Names from scripts may contain control characters, which must not reach a terminal. */
static void put_printable(ls_strbuf *to, const char *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        const unsigned char *c = (const unsigned char *)bytes + at;
        const size_t n = ls_utf8_len(c, len - at);
        if (n == 0 || ls_utf8_is_control(c, n))
            ls_strbuf_put(to, "?");
        else
            ls_strbuf_add(to, bytes + at, n);
        at += n > 0 ? n : 1;
    }
}

static void put_checks(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    if (r->checks.count == 0) return;
    ls_strbuf_put(to, "\nChecks\n");
    for (size_t i = 0; i < r->checks.count; i++) {
        const ls_stress_check *c = &r->checks.list[i];
        const uint64_t made = c->passed + c->failed;
        ls_strbuf_put(to, c->failed > 0 ? "  FAILED  " : "  passed  ");
        put_printable(to, c->name, c->len);
        if (c->failed > 0)
            ls_strbuf_format(to, ": %llu of %llu\n", (ull)c->failed, (ull)made);
        else
            ls_strbuf_format(to, ": %llu\n", (ull)c->passed);
    }
    if (ls_stress_result_checks_missed(r))
        ls_strbuf_format(to, "The run has failed: %llu failed checks, and no threshold on errors or checks\n",
                         (ull)ls_stress_checks_failed(&r->checks));
}

static void put_thresholds(ls_strbuf *to, const ls_stress_result *r)
{
    char actual[48];
    if (r->threshold_count == 0) return;
    ls_strbuf_put(to, "\nThresholds\n");
    for (size_t i = 0; i < r->threshold_count; i++) {
        const ls_stress_threshold *t = &r->thresholds[i];
        ls_stress_actual_text(actual, sizeof actual, t);
        ls_strbuf_format(to, "  %s  %s (measured: %s)\n", t->met ? "met   " : "MISSED", t->text, actual);
    }
}

void ls_stress_report_text(ls_strbuf *to, const ls_stress_result *r)
{
    put_wrk(to, r);
    put_handshakes(to, r);
    put_websocket(to, r);
    put_fanout(to, r);
    put_errors(to, r);
    put_warnings(to, r);
    if (r->due != NULL) put_side_by_side(to, r);
    put_checks(to, r);
    put_thresholds(to, r);
}
