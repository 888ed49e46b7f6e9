/* report_csv.c - tables for spreadsheets: the time series, the percentiles, and the handshakes of TLS. All fields are
 * numbers or empty, so no field needs quotes (RFC 4180 section 2). */
#include "stress/report.h"

static void put_us(ls_strbuf *to, uint64_t ns, int known, const char *end)
{
    if (known) ls_strbuf_fixed(to, (double)ns / 1e3, 3);
    ls_strbuf_put(to, end);
}

static void put_seconds(ls_strbuf *to, uint64_t ns)
{
    ls_strbuf_fixed(to, (double)ns / 1e9, 3);
    ls_strbuf_put(to, ",");
}

static void put_series(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    ls_strbuf_put(to, "from_s,to_s,requests,requests_per_s,errors,failed_status,bytes_in,bytes_out,connections,p50_us,"
                      "p99_us,max_us\r\n");
    for (size_t i = 0; i < r->point_count; i++) {
        const ls_stress_point *p = &r->points[i];
        put_seconds(to, p->from_ns);
        put_seconds(to, p->to_ns);
        ls_strbuf_format(to, "%llu,", (ull)p->requests);
        ls_strbuf_fixed(to, (double)p->requests * 1e9 / (double)(p->to_ns - p->from_ns), 3);
        ls_strbuf_format(to, ",%llu,%llu,%llu,%llu,%llu,", (ull)p->errors, (ull)p->failed_status, (ull)p->bytes_in,
                         (ull)p->bytes_out, (ull)p->connections);
        put_us(to, p->p50_ns, p->max_ns > 0, ",");
        put_us(to, p->p99_ns, p->max_ns > 0, ",");
        put_us(to, p->max_ns, p->max_ns > 0, "\r\n");
    }
}

static void put_row(ls_strbuf *to, const ls_stress_result *r, const char *percent, uint64_t due, uint64_t sent)
{
    ls_strbuf_format(to, "%s,", percent);
    put_us(to, due, r->due != NULL && ls_histogram_count(r->due) > 0, ",");
    put_us(to, sent, ls_histogram_count(r->sent) > 0, "\r\n");
}

static void put_spread(ls_strbuf *to, const ls_histogram *h)
{
    const int known = ls_histogram_count(h) > 0;
    put_us(to, (uint64_t)ls_histogram_mean(h), known, ",");
    put_us(to, ls_histogram_at(h, 50), known, ",");
    put_us(to, ls_histogram_at(h, 99), known, ",");
    put_us(to, ls_histogram_max(h), known, "\r\n");
}

static void put_handshakes(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    ls_strbuf_put(to, "\r\nfull_handshakes,resumed_handshakes,failed_handshakes,mean_us,p50_us,p99_us,max_us\r\n");
    ls_strbuf_format(to, "%llu,%llu,%llu,", (ull)r->handshakes_full, (ull)r->handshakes_resumed,
                     (ull)r->handshakes_failed);
    put_spread(to, r->handshake);
}

static void put_websocket(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    ls_strbuf_put(to,
                  "\r\nwebsocket_handshakes,failed_handshakes,deflate_handshakes,mean_us,p50_us,p99_us,max_us\r\n");
    ls_strbuf_format(to, "%llu,%llu,%llu,", (ull)r->upgrades, (ull)r->upgrades_failed, (ull)r->deflated);
    put_spread(to, r->upgrade);
}

static void put_fanout(ls_strbuf *to, const ls_stress_result *r)
{
    typedef unsigned long long ull;
    ls_strbuf_put(to, "\r\npublished,expected,delivered,lost,reordered,duplicated,ignored\r\n");
    ls_strbuf_format(to, "%llu,%llu,%llu,%llu,%llu,%llu,%llu\r\n", (ull)r->published, (ull)r->expected,
                     (ull)r->requests, (ull)r->lost, (ull)r->reordered, (ull)r->duplicated, (ull)r->foreign);
}

void ls_stress_report_csv(ls_strbuf *to, const ls_stress_result *r)
{
    char name[32];
    put_series(to, r);
    ls_strbuf_put(to, "\r\npercent,corrected_us,uncorrected_us\r\n");
    for (size_t i = 0; i < ls_stress_percent_count; i++) {
        double percent = ls_stress_percents[i];
        ls_stress_percent_name(name, sizeof name, percent);
        put_row(to, r, name + 1, r->due != NULL ? ls_histogram_at(r->due, percent) : 0,
                ls_histogram_at(r->sent, percent));
    }
    put_row(to, r, "100", r->due != NULL ? ls_histogram_max(r->due) : 0, ls_histogram_max(r->sent));
    if (r->handshake != NULL) put_handshakes(to, r);
    if (r->upgrade != NULL) put_websocket(to, r);
    if (r->config.fanout) put_fanout(to, r);
}
