/* options.h - the options of a run, from the command line and from the table of a native script: one table of options
 * serves both, so the same function reads `--rate 20k` and `rate = "20k"`. Command-line options override those of the
 * script. */
#ifndef LS_STRESS_OPTIONS_H
#define LS_STRESS_OPTIONS_H

#include <lua.h>
#include <stdbool.h>
#include <stdio.h>

#include "stress/plan.h"
#include "stress/threshold.h"

enum { LS_STRESS_THRESHOLDS_MAX = 64, LS_STRESS_WHY_BYTES = 1024 };

typedef struct ls_stress_options {
    ls_stress_plan plan;
    const char *url, *json, *csv, *html;
    const char *ca, *cert, *key; /* PEM files of TLS */
    bool insecure, tls_resume_given;
    bool text_given; /* --text */
    size_t size;     /* --size; 0: not given */
    uint64_t cycles; /* --cycles; 0: not given */
    bool quiet, help;
    bool connections_given, threads_given, rate_given, duration_given;
    ls_stress_threshold thresholds[LS_STRESS_THRESHOLDS_MAX];
    unsigned threshold_count;
    ls_stress_stage stages[LS_STRESS_STAGES_MAX];
    unsigned stage_count;
    uint64_t given; /* bit i: the command line gave option i */
    char **texts;   /* allocated texts; ls_stress_options_close() frees them */
    size_t text_count, text_room;
} ls_stress_options;

/* Parse argv[1..argc). LS_OK; or LS_EINVAL, with the error and the valid form in `why`. argv must outlive the
 * options. */
int ls_stress_options_parse(ls_stress_options *options, int argc, char **argv, char *why, size_t why_bytes);

/* Read the options in the table at `index` of a script's state, except those that the command line gave. script.c
 * handles the functions in the table (request, response, scenario, setup, done). Returns as above. */
int ls_stress_options_table(ls_stress_options *options, lua_State *L, int index, char *why, size_t why_bytes);

/* Fill in the defaults and check the combination of all options. The plan is then complete except for plan.addr.
 * Returns as above; also LS_ENOTSUP for an unsupported URL, and LS_ENOMEM. */
int ls_stress_options_finish(ls_stress_options *options, char *why, size_t why_bytes);

void ls_stress_options_close(ls_stress_options *options);
void ls_stress_options_usage(FILE *to);

/* A copy of the text that lives as long as the options; NULL: out of memory. */
char *ls_stress_options_keep(ls_stress_options *options, const char *text, size_t len);

/* ---- pure, for tests -------------------------------------------------------------------------------------------- */

int ls_stress_options_count(const char *text, double *out); /* "20k", "1.5M": steps of 1000. LS_OK or LS_EINVAL */
int ls_stress_options_time_ns(const char *text,
                              uint64_t *out); /* "10s", "500ms", "2m", "1.5h", "3" (seconds). LS_OK or LS_EINVAL */

#endif
