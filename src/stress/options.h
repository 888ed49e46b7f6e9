/* options.h - what a run is to do, from the command line and from the table that a script returns: one table of options
 * serves both, so that `--rate 20k` and `rate = "20k"` are read by the same function. What the command line says wins. */
#ifndef LS_STRESS_OPTIONS_H
#define LS_STRESS_OPTIONS_H

#include <lua.h>
#include <stdbool.h>
#include <stdio.h>

#include "stress/plan.h"
#include "stress/threshold.h"

enum { LS_STRESS_THRESHOLDS_MAX = 64, LS_OPTIONS_WHY_BYTES = 1024 };

typedef struct ls_stress_options {
    ls_stress_plan plan;
    const char *url, *json, *csv, *html;
    bool quiet, help;
    bool connections_given, threads_given, rate_given, duration_given;
    ls_stress_threshold thresholds[LS_STRESS_THRESHOLDS_MAX];
    unsigned threshold_count;
    ls_stress_stage stages[LS_SCHEDULE_STAGES_MAX];
    unsigned stage_count;
    uint64_t given; /* bit i: option i was set by the command line */
    char **texts;   /* made on the way, given back by ls_stress_options_close */
    size_t text_count, text_room;
} ls_stress_options;

/* Read argv[1..argc). LS_OK, or LS_EINVAL with what is wrong, and what would be right, in `why`. argv stays. */
int ls_stress_options_parse(ls_stress_options *options, int argc, char **argv, char *why, size_t why_bytes);

/* The table at `index` of a script's state; options that the command line gave stay. Functions in it (request, response,
 * scenario, setup, done) are script.c's affair. As above. */
int ls_stress_options_table(ls_stress_options *options, lua_State *L, int index, char *why, size_t why_bytes);

/* Everything was said: fill in what was not, and look whether it fits together. Afterwards the plan is ready but for
 * plan.addr. As above; LS_ENOTSUP for what is not built in, LS_ENOMEM. */
int ls_stress_options_finish(ls_stress_options *options, char *why, size_t why_bytes);

void ls_stress_options_close(ls_stress_options *options);
void ls_stress_options_usage(FILE *to);

/* A copy of the text that lives as long as the options; NULL: no memory. */
char *ls_stress_options_keep(ls_stress_options *options, const char *text, size_t len);

/* ---- pure, for tests ---------------------------------------------------------------------------------------------- */

int ls_stress_options_count(const char *text, double *out);     /* "20k", "1.5M": 1000 each. LS_OK or LS_EINVAL */
int ls_stress_options_time_ns(const char *text, uint64_t *out); /* "10s", "500ms", "2m", "1.5h", "3": seconds */

#endif
