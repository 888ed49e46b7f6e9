/* result.h - a finished run. The reports (report.h), the thresholds and the done() hook of scripts read this and
 * nothing else.
 *
 * ls_stress_sampler_finish() makes a result from the counters of all threads; ls_stress_result_close() frees it. The
 * caller owns the strings of the configuration, which must outlive the result. Read-only once made; any thread. */
#ifndef LS_STRESS_RESULT_H
#define LS_STRESS_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/checks.h"
#include "stress/config.h"
#include "stress/counters.h"
#include "stress/threshold.h"

/* One interval of the run: about one second, the last one shorter. */
typedef struct ls_stress_point {
    uint64_t from_ns; /* since the start */
    uint64_t to_ns;
    uint64_t requests;
    uint64_t errors;        /* of all kinds */
    uint64_t failed_status; /* responses with status 400 and above */
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connections; /* the maximum of all samples */
    uint64_t p50_ns;      /* corrected in an open loop; 0: no responses in the interval */
    uint64_t p99_ns;
    uint64_t max_ns;
} ls_stress_point;

enum { LS_STRESS_POINTS_MAX = 86400 }; /* one day; later intervals are in the totals only */

typedef struct ls_stress_result {
    ls_stress_config config;
    int64_t started_us;   /* wall clock, microseconds since 1970 UTC */
    uint64_t duration_ns; /* measured */
    bool interrupted;     /* ended early by a signal or by the script */
    const char *failure;  /* why the run failed; NULL: it did not, or it missed its rate (ls_stress_result_short) */

    uint64_t requests;
    uint64_t bytes_in;
    uint64_t bytes_out;
    uint64_t connects;
    /* Open loop: requests that were due and not sent at the end of the run; how long the first of these had waited or,
     * if all were sent, how late the last one was sent. */
    uint64_t unsent;
    uint64_t behind_ns;
    double wanted; /* share of the run for which the busiest thread used or waited for a processor: 1 is all of it */
    uint64_t errors[LS_STRESS_ERROR_KINDS];
    uint64_t status[LS_STRESS_STATUS_MAX + 1];
    ls_stress_checks checks;

    ls_histogram *sent;      /* uncorrected: from the send */
    ls_histogram *due;       /* corrected: from the due time; NULL in a closed loop */
    ls_histogram *lag;       /* how late the load generator noticed due requests; NULL in a closed loop */
    ls_histogram *handshake; /* of TLS, from the connect to its end; NULL without TLS */
    uint64_t handshakes_full, handshakes_resumed, handshakes_failed;
    ls_histogram *upgrade; /* handshakes of WebSocket, from the request to the response; NULL: not WebSocket */
    uint64_t upgrades, upgrades_failed, deflated; /* deflated: with permessage-deflate */
    /* Fan-out: messages sent; of their deliveries those expected (of subscribers that read) and lost; deliveries
     * behind a later one, deliveries again; messages that are not of this run. `requests` counts deliveries, without
     * duplicated ones. */
    uint64_t published, expected, lost, reordered, duplicated, foreign;
    uint64_t codes[LS_STRESS_CODE_COUNT]; /* ends of WebSockets by the server, by their code from LS_STRESS_CODE_MIN */
    ls_histogram *rates; /* requests per second of one thread, sampled every 100 ms: wrk's Req/Sec. Not nanoseconds */

    ls_stress_point *points;
    size_t point_count;
    bool points_cut; /* the run had more than LS_STRESS_POINTS_MAX intervals */

    ls_stress_threshold *thresholds; /* evaluated */
    size_t threshold_count;
} ls_stress_result;

void ls_stress_result_close(ls_stress_result *result); /* leaves it all zero, which may be closed again */

/* The latency that thresholds and scripts use: `due` in an open loop, else `sent`. */
const ls_histogram *ls_stress_result_latency(const ls_stress_result *result);

double ls_stress_result_rate(const ls_stress_result *result); /* requests per second; 0 if the duration is 0 */
/* The requests of the schedule: in a fan-out run the messages, else `requests`; and their rate. */
uint64_t ls_stress_result_made(const ls_stress_result *result);
double ls_stress_result_made_rate(const ls_stress_result *result);
uint64_t ls_stress_result_errors(const ls_stress_result *result); /* of all kinds */
uint64_t ls_stress_result_statuses(const ls_stress_result *result, unsigned from,
                                   unsigned to); /* from and to included */

/* True if the load generator noticed 1 % of the requests 1 ms late or more, so that its figures also describe this
 * machine. False in a closed loop. */
bool ls_stress_result_engine_late(const ls_stress_result *result);

/* Open loop: did the run miss its rate? It did if the schedule was behind by LS_STRESS_SHORT_NS or more at the end,
 * and more than LS_STRESS_SHORT_PERCENT of the due requests had not been sent or, in a run with a number of requests,
 * the last one was sent late by more than that share of the run.
 *
 * The reason is the load generator (OF_TIME) if its busiest thread used or waited for a processor for 90 % of the run;
 * if one delay was at least half as long as the time by which the run was behind; or if it noticed at least half as
 * many requests late as were not sent, where late is 10 ms and half of the median response time, or more. Otherwise no
 * connection was free (OF_CONNECTIONS): the server kept all of them busy. */
#define LS_STRESS_SHORT_PERCENT 1.0
#define LS_STRESS_SHORT_NS      UINT64_C(100000000)

typedef enum ls_stress_short {
    LS_STRESS_SHORT_NOT,
    LS_STRESS_SHORT_OF_CONNECTIONS, /* the server was too slow */
    LS_STRESS_SHORT_OF_TIME         /* the load generator was late */
} ls_stress_short;

ls_stress_short ls_stress_result_short(const ls_stress_result *result);

/* The average rate of the schedule, stages included; 0 in a closed loop. */
double ls_stress_result_target_rate(const ls_stress_result *result);

/* Whether checks have failed and no threshold limits errors or checks. Such a run fails as with a missed threshold. */
bool ls_stress_result_checks_missed(const ls_stress_result *result);

/* The number of missed thresholds. */
size_t ls_stress_result_missed(const ls_stress_result *result);

#endif
