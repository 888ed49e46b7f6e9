/* result.h - everything that a finished run is made of. The reports (report.h), the thresholds and the scripts' done()
 * read this and nothing else.
 *
 * ls_stress_sampler_finish() makes one from the threads' counters; ls_stress_result_close() frees it. Texts of the
 * configuration belong to whoever gave them and must live as long as the result. Read-only once made; any thread. */
#ifndef LS_STRESS_RESULT_H
#define LS_STRESS_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/checks.h"
#include "stress/config.h"
#include "stress/counters.h"
#include "stress/threshold.h"

/* One interval of the run: usually a second, the last one shorter. */
typedef struct ls_stress_point {
    uint64_t from_ns; /* since the start */
    uint64_t to_ns;
    uint64_t requests;
    uint64_t errors;        /* of all kinds */
    uint64_t failed_status; /* answers with status 400 and above */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connections; /* the most that were open at one look */
    uint64_t p50_ns;      /* from the due moment in open loop, else from the send; 0 when nothing was answered */
    uint64_t p99_ns;
    uint64_t max_ns;
} ls_stress_point;

enum { LS_STRESS_POINTS_MAX = 86400 }; /* a day of seconds; what comes later is in the totals only */

typedef struct ls_stress_result {
    ls_stress_config config;
    int64_t started_us;   /* wall clock, microseconds since 1970 UTC */
    uint64_t duration_ns; /* how long it took */
    bool interrupted;     /* ended early by the virtual user or the script */
    const char
        *failure; /* why the run could not be made; NULL: it was, unless ls_stress_result_short says otherwise */

    uint64_t requests;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connects;
    uint64_t unsent;    /* open loop: due, and not sent when the run ended */
    uint64_t behind_ns; /* open loop: how long the first of them had waited; none: how late the last one was sent */
    double wanted; /* of the run, the share for which the busiest thread had or wanted a processor: 1 is all of it */
    uint64_t errors[LS_STRESS_ERROR_KINDS];
    uint64_t status[LS_STRESS_STATUS_MAX + 1];
    ls_stress_checks checks;

    ls_histogram *sent;  /* uncorrected: from the actual send */
    ls_histogram *due;   /* corrected: from the moment it was due; NULL in closed loop */
    ls_histogram *lag;   /* how late the engine was against its own schedule; NULL in closed loop */
    ls_histogram *rates; /* requests per second of one thread, sampled every 100 ms: wrk's Req/Sec. Not nanoseconds */

    ls_stress_point *points;
    size_t point_count;
    bool points_cut; /* the run was longer than LS_STRESS_POINTS_MAX intervals */

    ls_stress_threshold *thresholds; /* judged */
    size_t threshold_count;
} ls_stress_result;

void ls_stress_result_close(ls_stress_result *result); /* leaves it all zero; that may be closed again */

/* What latencies are judged by: `due` where there is a schedule, else `sent`. */
const ls_histogram *ls_stress_result_latency(const ls_stress_result *result);

double ls_stress_result_rate(const ls_stress_result *result); /* requests per second; 0 for a run without duration */
uint64_t ls_stress_result_errors(const ls_stress_result *result);                               /* of all kinds */
uint64_t ls_stress_result_statuses(const ls_stress_result *result, unsigned from, unsigned to); /* both included */

/* The engine was late against its own schedule by 1 ms or more for one request in a hundred: its figures say more about
 * this machine than about the server. False in closed loop. */
bool ls_stress_result_lags(const ls_stress_result *result);

/* Open loop: was the load made that was asked for? Not when it was behind its schedule at the end by LS_STRESS_SHORT_NS or
 * more, and then more than LS_STRESS_SHORT_PERCENT of the requests that were due had not been sent, or, of a run with a
 * number of requests, the last one left later than it was due by that share of the run.
 *
 * Whose doing that was: the engine's, when its busiest thread had or wanted a processor for nine tenths of the run; when it
 * was late once by half of what the first or the last one was behind; or when it saw half as many requests late as were not
 * sent, late being 10 ms or more and half of what the answers took, or more. Else they waited for a connection, of which
 * the server keeps all busy. */
#define LS_STRESS_SHORT_PERCENT 1.0
#define LS_STRESS_SHORT_NS      UINT64_C(100000000)

typedef enum ls_stress_short {
    LS_STRESS_SHORT_NOT,
    LS_STRESS_SHORT_OF_CONNECTIONS, /* the server's doing */
    LS_STRESS_SHORT_OF_TIME         /* the engine's */
} ls_stress_short;

ls_stress_short ls_stress_result_short(const ls_stress_result *result);

/* The rate that the schedule asked for on average, stages included; 0 in closed loop. */
double ls_stress_result_asked(const ls_stress_result *result);

/* How many of the thresholds were missed. */
size_t ls_stress_result_missed(const ls_stress_result *result);

#endif
