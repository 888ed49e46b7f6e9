/* options_internal.h - what options.c and options_table.c share. */
#ifndef LS_STRESS_OPTIONS_INTERNAL_H
#define LS_STRESS_OPTIONS_INTERNAL_H

#include "base/compiler.h"
#include "stress/options.h"

typedef struct ls_stress_why {
    char *text;
    size_t bytes;
} ls_stress_why;

LS_PRINTF(2, 3) void ls_why_set(ls_stress_why *why, const char *format, ...);

typedef struct ls_stress_option {
    char letter;      /* of the command line; 0: none */
    const char *name; /* of the command line, without its dashes; NULL: not there */
    const char *key;  /* in a script's table; NULL: not there, or with a function of its own */
    bool takes_value;
    int (*set)(ls_stress_options *o, const char *text, ls_stress_why *why);
    const char *right; /* what a value has to be */
} ls_stress_option;

extern const ls_stress_option ls_stress_options_known[];
extern const unsigned ls_stress_options_known_count;

/* Set one option. LS_OK, or LS_EINVAL with the reason. */
int ls_stress_options_set(ls_stress_options *o, const ls_stress_option *option, const char *name, const char *value,
                          ls_stress_why *why);

#endif
