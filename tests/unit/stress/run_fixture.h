/* run_fixture.h - simulated runs: counters filled by the test, a sampler with a simulated clock, and the result. For
 * the tests of the reports, in C and, by report_sample.c, from other programs. */
#ifndef LS_TESTS_STRESS_SAMPLE_H
#define LS_TESTS_STRESS_SAMPLE_H

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "stress/sampler.h"

#define SAMPLE_SECOND UINT64_C(1000000000)
#define SAMPLE_START  (UINT64_C(12345) * SAMPLE_SECOND)

enum { SAMPLE_THREADS = 2 };

typedef struct sample {
    ls_stress_config config;
    ls_stress_counters counters[SAMPLE_THREADS];
    const ls_stress_counters *pointers[SAMPLE_THREADS];
    ls_stress_checks checks;
    ls_stress_sampler *sampler;
    uint64_t now;
    uint64_t random;
    unsigned step; /* ticks so far */
} sample;

static inline void sample_must(int ok)
{
    if (!ok) abort();
}

static inline double sample_uniform(sample *s) /* (0, 1); xorshift64, the same sequence in each run */
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return ((double)(s->random >> 11) + 0.5) / 9007199254740992.0;
}

static inline void sample_open(sample *s, const ls_stress_config *config)
{
    memset(s, 0, sizeof *s);
    s->config = *config;
    s->random = 88172645463325252u;
    s->now = SAMPLE_START;
    for (int t = 0; t < SAMPLE_THREADS; t++) {
        sample_must(ls_stress_counters_open(&s->counters[t], config->open_loop, config->tls, config->websocket) ==
                    LS_OK);
        s->pointers[t] = &s->counters[t];
    }
    sample_must(ls_stress_sampler_open(&s->config, s->pointers, SAMPLE_THREADS, s->now, &s->sampler) == LS_OK);
}

/* One response of `status` on thread t; late_ns: how long the request waited to be sent. */
static inline void sample_response(sample *s, int t, unsigned status, uint64_t ns, uint64_t late_ns, uint64_t lag_ns)
{
    ls_stress_counters *c = &s->counters[t];
    ls_counter_add(&c->requests, 1);
    ls_counter_add(&c->bytes_in, 240);
    ls_counter_add(&c->bytes_out, 60);
    ls_counter_add(&c->status[status], 1);
    ls_histogram_record(c->sent, ns);
    if (c->due != NULL) {
        ls_histogram_record(c->due, ns + late_ns);
        ls_histogram_record(c->lag, lag_ns);
    }
}

static inline bool sample_tick(sample *s, uint64_t ns)
{
    s->now += ns;
    s->step++;
    return ls_stress_sampler_tick(s->sampler, s->now);
}

static inline void sample_finish(sample *s, bool interrupted, const char *const *thresholds, size_t n,
                                 ls_stress_result *out)
{
    ls_stress_threshold parsed[16];
    const ls_stress_checks *checks[SAMPLE_THREADS] = {&s->checks};
    char why[256];
    sample_must(n <= 16);
    for (size_t i = 0; i < n; i++) {
        sample_must(ls_stress_threshold_parse(thresholds[i], strlen(thresholds[i]), &parsed[i], why, sizeof why) ==
                    LS_OK);
    }
    sample_must(ls_stress_sampler_finish(s->sampler, s->now, interrupted, checks, parsed, n, out) == LS_OK);
}

static inline void sample_close(sample *s)
{
    ls_stress_sampler_close(s->sampler);
    for (int t = 0; t < SAMPLE_THREADS; t++) ls_stress_counters_close(&s->counters[t]);
    ls_stress_checks_close(&s->checks);
}

/* ---- whole runs ------------------------------------------------------------------------------------------------- */

/* One tenth of a second of a server that responds in 200 us, with a tail; `rate` is per second and thread. During a
 * stall (open loop) no request is sent, and the due requests are late. */
static inline void sample_work(sample *s, double rate, bool stalled, uint64_t late_ns, unsigned bad_of_1000)
{
    unsigned n = stalled ? 0 : (unsigned)(rate / 10);
    for (int t = 0; t < SAMPLE_THREADS; t++) {
        for (unsigned i = 0; i < n; i++) {
            double u = sample_uniform(s);
            uint64_t ns = (uint64_t)(150e3 + 60e3 * -log(u) + (u < 0.004 ? 3e6 * sample_uniform(s) : 0));
            /* The backlog is sent within this tenth; the first request waited longest. */
            uint64_t late = late_ns > 0 ? (uint64_t)((double)late_ns * (1 - (double)i / n)) : 0;
            bool bad = sample_uniform(s) * 1000 < bad_of_1000;
            sample_response(s, t, bad ? 503 : 200, ns, late, (uint64_t)(20e3 * sample_uniform(s)));
        }
        atomic_store(&s->counters[t].connections, 32);
        atomic_store(&s->counters[t].connects, 32);
    }
}

static const ls_stress_config sample_closed_config = {
    .target = "http://127.0.0.1:8080/",
    .backend = "epoll",
    .threads = SAMPLE_THREADS,
    .connections = 64,
    .duration_ns = 10 * SAMPLE_SECOND,
    .pipeline = 1,
    .keepalive = true,
    .timeout_ns = 2 * SAMPLE_SECOND,
    .latency = true,
};

static inline ls_stress_config sample_open_config(void)
{
    ls_stress_config config = sample_closed_config;
    config.target = "http://127.0.0.1:8080/hello/ada?lang=fr";
    config.script = "checkout.lua";
    config.rate = 4000;
    config.open_loop = true;
    return config;
}

/* "closed", "tls", "fanout", "open", "ramp", "short", "empty", "hostile", "long". The result outlives the counters. thresholds == NULL:
 * those of the kind. False: unknown kind. */
static inline bool sample_run(const char *kind, ls_stress_result *out)
{
    static const char *const loose[] = {"p99 < 50ms", "errors < 1%"};
    static const char *const mixed[] = {"p99 < 5ms", "rate >= 3900/s", "errors < 0.1%", "5xx == 0", "checks == 0"};
    static const char *const one[] = {"p99 < 5ms"};
    static const ls_stress_stage stages[] = {
        {5 * SAMPLE_SECOND, 2000, 0}, {10 * SAMPLE_SECOND, 6000, 0}, {5 * SAMPLE_SECOND, 0, 0}};
    sample s;
    ls_stress_config config = sample_closed_config;
    const char *const *thresholds = loose;
    size_t n = 2;

    if (strcmp(kind, "closed") == 0) {
        sample_open(&s, &config);
        for (int i = 0; i < 100; i++) {
            sample_work(&s, 6000, false, 0, 0);
            sample_tick(&s, SAMPLE_SECOND / 10);
        }
    } else if (strcmp(kind, "tls") == 0) {
        config.target = "https://127.0.0.1:8443/";
        config.tls = config.tls_resume = true;
        sample_open(&s, &config);
        sample_work(&s, 6000, false, 0, 0);
        for (unsigned i = 0; i < 64; i++) ls_histogram_record(s.counters[0].handshake, 900000 + 10000 * i);
        ls_counter_add(&s.counters[0].handshakes_full, 2);
        ls_counter_add(&s.counters[1].handshakes_resumed, 62);
        ls_counter_add(&s.counters[1].handshakes_failed, 3);
        ls_counter_add(&s.counters[1].errors[LS_STRESS_ERROR_TLS], 3);
        sample_tick(&s, SAMPLE_SECOND / 10);
    } else if (strcmp(kind, "fanout") == 0) {
        config.target = "ws://127.0.0.1:8080/news";
        config.websocket = config.fanout = true;
        config.publishers = config.topics = 2;
        config.stalled = 1;
        config.message_bytes = 64;
        sample_open(&s, &config);
        sample_work(&s, 6000, false, 0, 0);
        for (unsigned i = 0; i < 66; i++) ls_histogram_record(s.counters[0].upgrade, 300000 + 10000 * i);
        ls_counter_add(&s.counters[0].upgrades, 66);
        ls_counter_add(&s.counters[1].upgrades_failed, 2);
        ls_counter_add(&s.counters[1].deflated, 60);
        ls_counter_add(&s.counters[1].codes[1013 - LS_STRESS_CODE_MIN], 4);
        ls_counter_add(&s.counters[0].published, 40);
        ls_counter_add(&s.counters[0].expected, 1203);
        ls_counter_add(&s.counters[0].lost, 3);
        ls_counter_add(&s.counters[1].reordered, 5);
        ls_counter_add(&s.counters[1].duplicated, 7);
        ls_counter_add(&s.counters[1].foreign, 9);
        sample_tick(&s, SAMPLE_SECOND / 10);
    } else if (strcmp(kind, "open") == 0) {
        config = sample_open_config();
        config.duration_ns = 30 * SAMPLE_SECOND;
        sample_open(&s, &config);
        for (int i = 0; i < 300; i++) {
            bool stalled = i >= 120 && i < 125;
            sample_work(&s, i == 125 ? 2000 * 6 : 2000, stalled, i == 125 ? SAMPLE_SECOND / 2 : 0,
                        i >= 200 && i < 230 ? 20 : 0);
            if (i == 210) ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_TIMEOUT], 12);
            if (i == 215) ls_counter_add(&s.counters[1].errors[LS_STRESS_ERROR_READ], 3);
            if (i % 10 == 0) ls_histogram_record(s.counters[0].lag, 3000000);
            sample_tick(&s, SAMPLE_SECOND / 10);
        }
        for (int i = 0; i < 1000; i++) sample_must(ls_stress_checks_count(&s.checks, "status", 6, true) == LS_OK);
        for (int i = 0; i < 1000; i++) {
            sample_must(ls_stress_checks_count(&s.checks, "body has the name", 17, i % 50 != 0) == LS_OK);
        }
        thresholds = mixed;
        n = 5;
    } else if (strcmp(kind, "ramp") == 0) {
        config = sample_open_config();
        config.rate = 0;
        config.duration_ns = 20 * SAMPLE_SECOND;
        config.stages = stages;
        config.stage_count = 3;
        sample_open(&s, &config);
        for (int i = 0; i < 200; i++) {
            double at = i / 10.0;
            double rate = at < 5 ? 400 * at : at < 15 ? 2000 + 400 * (at - 5) : 6000 - 1200 * (at - 15);
            sample_work(&s, rate / 2, false, 0, 0);
            for (int k = 0; k < 30; k++) ls_histogram_record(s.counters[0].lag, 2000000 + 50000 * (uint64_t)k);
            sample_tick(&s, SAMPLE_SECOND / 10);
        }
        atomic_store(&s.counters[0].unsent, 250);
    } else if (strcmp(kind, "short") == 0) { /* half of the due requests are never sent */
        config = sample_open_config();
        sample_open(&s, &config);
        for (int i = 0; i < 100; i++) {
            sample_work(&s, 1000, false, 0, 0);
            for (int k = 0; k < 200; k++) ls_histogram_record(s.counters[0].lag, 20000);
            sample_tick(&s, SAMPLE_SECOND / 10);
        }
        atomic_store(&s.counters[0].unsent, 20000);
        atomic_store(&s.counters[0].behind_ns, 5 * SAMPLE_SECOND);
        thresholds = NULL;
        n = 0;
    } else if (strcmp(kind, "empty") == 0) {
        config = sample_open_config();
        sample_open(&s, &config);
        ls_counter_add(&s.counters[0].errors[LS_STRESS_ERROR_CONNECT], 64);
        sample_tick(&s, SAMPLE_SECOND / 20);
        thresholds = one;
        n = 1;
    } else if (strcmp(kind, "hostile") == 0) {
        config.target =
            "http://127.0.0.1/</script><img src=x onerror=\"alert(1)\">&amp;\x01\xff\xc0\x80 \xf0\x9f\x8e\x89";
        config.script = "<!--\"\\\n'.lua";
        sample_open(&s, &config);
        sample_work(&s, 500, false, 0, 0);
        sample_tick(&s, SAMPLE_SECOND + 1);
        sample_must(ls_stress_checks_count(&s.checks, "</pre><script>\0\x1b[31m\xed\xa0\x80", 22, false) == LS_OK);
        thresholds = one;
        n = 1;
    } else if (strcmp(kind, "long") == 0) {
        config.duration_ns = 1800 * SAMPLE_SECOND;
        sample_open(&s, &config);
        for (int i = 0; i < 1800; i++) {
            sample_work(&s, 100 + 40 * sin(i / 200.0), false, 0, 0);
            sample_tick(&s, SAMPLE_SECOND);
        }
    } else {
        return false;
    }
    sample_finish(&s, strcmp(kind, "hostile") == 0, thresholds, n, out);
    /* The stages and strings are static, so the result may refer to them. */
    sample_close(&s);
    return true;
}

#endif
