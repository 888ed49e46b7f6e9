/* checks.c - a linear search that starts after the last hit: a script that makes the same checks for every response
 * finds each with one comparison. */
#include "stress/measure/checks.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const char others[] = "(others)";

void ls_stress_checks_close(ls_stress_checks *checks)
{
    free(checks->list);
    *checks = (ls_stress_checks){0};
}

static size_t truncate(size_t len)
{
    return len < LS_STRESS_CHECK_NAME_MAX ? len : LS_STRESS_CHECK_NAME_MAX;
}

/* The index of the name, or `count`. */
static size_t find(const ls_stress_checks *checks, const char *name, size_t len)
{
    for (size_t tried = 0; tried < checks->count; tried++) {
        size_t i = checks->last + 1 + tried;
        while (i >= checks->count) i -= checks->count;
        if (checks->list[i].len == len && memcmp(checks->list[i].name, name, len) == 0) return i;
    }
    return checks->count;
}

static ls_stress_check *find_or_add(ls_stress_checks *checks, const char *name, size_t len)
{
    len = truncate(len);
    size_t at = find(checks, name, len);
    if (at == checks->count && checks->count >= LS_STRESS_CHECKS_MAX) {
        name = others;
        len = sizeof others - 1;
        at = find(checks, name, len);
    }
    if (at == checks->count) {
        if (checks->count == checks->space) {
            size_t space = checks->space > 0 ? 2 * checks->space : 8;
            ls_stress_check *list = realloc(checks->list, space * sizeof *list);
            if (list == NULL) return NULL;
            checks->list = list;
            checks->space = space;
        }
        ls_stress_check *fresh = &checks->list[checks->count++];
        *fresh = (ls_stress_check){.len = len};
        memcpy(fresh->name, name, len);
    }
    checks->last = at;
    return &checks->list[at];
}

int ls_stress_checks_count(ls_stress_checks *checks, const char *name, size_t len, bool passed)
{
    ls_stress_check *check = find_or_add(checks, name, len);
    if (check == NULL) return LS_ENOMEM;
    check->passed += passed;
    check->failed += !passed;
    return LS_OK;
}
