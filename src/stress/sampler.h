/* sampler.h - reads the counters of all threads during a run: makes the time series, the live figures, and at the end
 * the result.
 *
 * One thread owns the sampler and calls ls_stress_sampler_tick() every LS_STRESS_TICK_MS. The sampler takes no lock
 * and does not write to the counters. The order of calls:
 *
 *     ls_stress_sampler_open, start the threads, ls_stress_sampler_tick ..., join the threads,
 *     ls_stress_sampler_finish */
#ifndef LS_STRESS_SAMPLER_H
#define LS_STRESS_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/counters.h"
#include "stress/result.h"

enum { LS_STRESS_TICK_MS = 100 }; /* the interval of wrk's Req/Sec samples */

typedef struct ls_stress_sampler ls_stress_sampler;

/* The run begins at start_ns (ls_clock_ns). `counters` has one entry per thread; the counters must outlive the
 * sampler. Bytes that they have now are not part of the run. The configuration is copied, its strings are not. LS_OK or
 * LS_ENOMEM. */
int ls_stress_sampler_open(const ls_stress_config *config, const ls_stress_counters *const *counters, size_t threads,
                           uint64_t start_ns, ls_stress_sampler **out);
void ls_stress_sampler_close(ls_stress_sampler *sampler); /* NULL is allowed */

/* Read the counters. Ticks may be late or missing: rates are computed from the time that has passed. True if this tick
 * closed an interval of the series, which is then ls_stress_sampler_last(). */
bool ls_stress_sampler_tick(ls_stress_sampler *sampler, uint64_t now_ns);

/* The live figures of the last tick. */
typedef struct ls_stress_live {
    uint64_t elapsed_ns;
    uint64_t requests; /* since the start */
    uint64_t errors;   /* of all kinds */
    uint64_t failed_status;
    uint64_t checks_failed;
    uint64_t ended;       /* requests that are complete or have failed; fan-out: messages published */
    uint64_t connections; /* open now */
    double rate;          /* average of about the last second */
} ls_stress_live;
void ls_stress_sampler_live(const ls_stress_sampler *sampler, ls_stress_live *out);

const ls_stress_config *ls_stress_sampler_config(const ls_stress_sampler *sampler);

/* The closed intervals, at most LS_STRESS_POINTS_MAX; and the last one, even beyond that number. The pointers are
 * valid until the next tick. */
const ls_stress_point *ls_stress_sampler_points(const ls_stress_sampler *sampler, size_t *count);
const ls_stress_point *ls_stress_sampler_last(const ls_stress_sampler *sampler); /* NULL: no interval is closed */

/* After the join; the threads ended at end_ns. Closes the last interval and moves everything into *out, which the
 * caller owns. `checks` has the table of each thread (NULL, or NULL entries: no checks). `thresholds` are copied and
 * evaluated. The sampler can then only be closed. LS_OK or LS_ENOMEM (*out is untouched). */
int ls_stress_sampler_finish(ls_stress_sampler *sampler, uint64_t end_ns, bool interrupted,
                             const ls_stress_checks *const *checks, const ls_stress_threshold *thresholds,
                             size_t threshold_count, ls_stress_result *out);

#endif
