/* options_internal.h - shared by options.c, options_value.c, options_line.c, options_table.c and options_finish.c. */
#ifndef LS_STRESS_OPTIONS_INTERNAL_H
#define LS_STRESS_OPTIONS_INTERNAL_H

#include "base/compiler.h"
#include "stress/options.h"

typedef struct ls_stress_why {
    char *text;
    size_t bytes;
} ls_stress_why;

LS_PRINTF(2, 3) void ls_stress_why_set(ls_stress_why *why, const char *format, ...);

typedef struct ls_stress_option {
    char letter;      /* -c; 0: no short form */
    const char *name; /* --connections, without the dashes; NULL: not on the command line */
    const char *key;  /* the name in a script's table; NULL: not there, or read by a function of its own */
    bool takes_value;
    int (*set)(ls_stress_options *o, const char *text, ls_stress_why *why); /* NULL: sets `field` */
    const char *right;                                                      /* the valid values, for messages */
    size_t field; /* offset in ls_stress_options: a bool without a value, else a text that is not empty */
} ls_stress_option;

extern const ls_stress_option ls_stress_options_known[];
extern const unsigned ls_stress_options_known_count;

/* ---- options_value.c -------------------------------------------------------------------------------------------- */

/* A whole number from `min` to `max`, as ls_stress_options_count(). LS_OK or LS_EINVAL. */
int ls_stress_options_integer(const char *text, double min, double max, double *out);

/* The bytes of a file, which live as long as the options. LS_OK; 1: the message is in `why`. */
int ls_stress_options_read_file(ls_stress_options *o, const char *path, const char **bytes, size_t *len,
                                ls_stress_why *why);

/* ---- options.c -------------------------------------------------------------------------------------------------- */

/* Set one option. LS_OK; or LS_EINVAL with a message in `why`. */
int ls_stress_options_set(ls_stress_options *o, const ls_stress_option *option, const char *name, const char *value,
                          ls_stress_why *why);

#endif
