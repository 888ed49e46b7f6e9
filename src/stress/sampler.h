/* sampler.h - reads the threads' counters while they run: the per-second series, the live figures, and in the end the
 * result.
 *
 * One thread owns the sampler and ticks it every LS_STRESS_TICK_MS; it takes no lock and never touches what it reads. In
 * order:
 *
 *     ls_stress_sampler_open -> start the threads -> ls_stress_sampler_tick ... -> join the threads -> ls_stress_sampler_finish
 */
#ifndef LS_STRESS_SAMPLER_H
#define LS_STRESS_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stress/counters.h"
#include "stress/result.h"

enum { LS_STRESS_TICK_MS = 100 }; /* the interval of wrk's Req/Sec samples */

typedef struct ls_stress_sampler ls_stress_sampler;

/* The run begins at start_ns (ls_clock_ns). `counters` are one for each thread; they must outlive the sampler. The
 * configuration is copied, its texts are not. LS_OK or LS_ENOMEM. */
int ls_stress_sampler_open(const ls_stress_config *config, const ls_stress_counters *const *counters, size_t threads,
                           uint64_t start_ns, ls_stress_sampler **out);
void ls_stress_sampler_close(ls_stress_sampler *sampler); /* NULL is allowed */

/* Look at the counters. Ticks may come late or be left out: rates are divided by the time that has passed. True when
 * this tick has closed an interval of the series: there is a new ls_stress_sampler_last(). */
bool ls_stress_sampler_tick(ls_stress_sampler *sampler, uint64_t now_ns);

/* The live figures of the last tick. */
typedef struct ls_stress_live {
    uint64_t elapsed_ns;
    uint64_t requests; /* since the start */
    uint64_t errors;   /* of all kinds */
    uint64_t failed_status;
    uint64_t checks_failed;
    uint64_t connections; /* open now */
    double rate;          /* of about the last second */
} ls_stress_live;
void ls_stress_sampler_live(const ls_stress_sampler *sampler, ls_stress_live *out);

const ls_stress_config *ls_stress_sampler_config(const ls_stress_sampler *sampler);

/* The intervals closed so far, at most LS_STRESS_POINTS_MAX; and the last one in any case. The pointers are good until
 * the next tick. */
const ls_stress_point *ls_stress_sampler_points(const ls_stress_sampler *sampler, size_t *count);
const ls_stress_point *ls_stress_sampler_last(const ls_stress_sampler *sampler); /* NULL: none yet */

/* The threads have ended at end_ns: close the last interval and move everything into *out, which then belongs to the
 * caller. `checks` are the threads' tables (NULL entries, or NULL for all: none). `thresholds` are copied and judged.
 * Afterwards the sampler can only be closed. LS_OK or LS_ENOMEM (then *out is untouched). */
int ls_stress_sampler_finish(ls_stress_sampler *sampler, uint64_t end_ns, bool interrupted,
                             const ls_stress_checks *const *checks, const ls_stress_threshold *thresholds,
                             size_t threshold_count, ls_stress_result *out);

#endif
