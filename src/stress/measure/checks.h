/* checks.h - the checks that a script makes of responses, by name: vu:check(status == 200, "status").
 *
 * A table of at most LS_STRESS_CHECKS_MAX names in the order of their first use. Each thread has one for itself; the
 * sampler (lua/luaserve/stress/sampler.lua) merges them after the threads have ended. */
#ifndef LS_STRESS_CHECKS_H
#define LS_STRESS_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_STRESS_CHECKS_MAX = 256,    /* names; checks of further names count as "(others)" */
    LS_STRESS_CHECK_NAME_MAX = 80, /* bytes of a name; a longer name is truncated */
};

typedef struct ls_stress_check {
    char name[LS_STRESS_CHECK_NAME_MAX + 1];
    size_t len;
    uint64_t passed;
    uint64_t failed;
} ls_stress_check;

typedef struct ls_stress_checks {
    ls_stress_check *list;
    size_t count;
    size_t space;
    size_t last; /* index of the last hit: scripts make their checks in the same order each time */
} ls_stress_checks;

/* All zero is an empty table. */
void ls_stress_checks_close(ls_stress_checks *checks);

/* Count one outcome. LS_OK or LS_ENOMEM (not counted). */
int ls_stress_checks_count(ls_stress_checks *checks, const char *name, size_t len, bool passed);

#endif
