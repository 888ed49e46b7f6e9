/* scope.c - see scope.h. */
#include "script/core/scope.h"

#include <stdio.h>

/* A letter for each wait in the order of enum ls_wait_for: a task that runs, is idle, waits for a message, for one of
 * Redis, for a permit of Redis, for a result, writes, is held; a timer that calls once, repeatedly; a subscription. n:
 * now, l: later, -: never. */
#define ALL "lnnnnnnlnnn" /* the work ends: tasks that run at once, operations first */
#define MOST(row)                                                                                         \
    [LS_SCOPE_REQUEST] = row, [LS_SCOPE_CONNECTION] = row, [LS_SCOPE_SITE] = row, [LS_SCOPE_BATCH] = row, \
    [LS_SCOPE_TIMER] = row, [LS_SCOPE_JOB] = row

static const char table[LS_ENDS][LS_SCOPES][LS_WAITS + 1] = {
    /* A handler may have more to do than to answer: only a value that would be lost on it ends it. */
    [LS_END_CLIENT_LEFT] = {[LS_SCOPE_REQUEST] = "--nn-n-----"},
    [LS_END_TIMEOUT] = {MOST("-nnnnnn----"), [LS_SCOPE_WEBSOCKET] = "-nnnnnn----"},
    /* The next site begins SITE and TIMER again. What a client waits for is completed. */
    [LS_END_REPLACED] = {[LS_SCOPE_REQUEST] = "---------nn",
                         [LS_SCOPE_CONNECTION] = "---------n-",
                         [LS_SCOPE_SITE] = "-nnnn---nnn",
                         [LS_SCOPE_BATCH] = "--nn-----nn",
                         [LS_SCOPE_TIMER] = "--------nnn",
                         [LS_SCOPE_JOB] = "---------nn"},
    /* Values that are sent during the drain are received; Redis keeps its own for the next start. */
    [LS_END_STOP] = {[LS_SCOPE_REQUEST] = "---------nn",
                     [LS_SCOPE_CONNECTION] = "---------nn",
                     [LS_SCOPE_WEBSOCKET] = "---------nn",
                     [LS_SCOPE_SITE] = "---nn---nnn",
                     [LS_SCOPE_BATCH] = "---n-----nn",
                     [LS_SCOPE_TIMER] = "--------nnn",
                     [LS_SCOPE_JOB] = "---------nn"},
    [LS_END_SPARE] = {[LS_SCOPE_SITE] = "--n--------", [LS_SCOPE_BATCH] = "--n--------"},
    [LS_END_UNUSED] = {MOST(ALL)},
    [LS_END_REQUESTS] = {[LS_SCOPE_REQUEST] = ALL},
    [LS_END_TIME] = {MOST(ALL)},
    [LS_END_CLOSED] = {MOST(ALL), [LS_SCOPE_NONE] = ALL, [LS_SCOPE_WEBSOCKET] = ALL},
};

enum ls_scope_end ls_scope_ends(enum ls_end_why why, enum ls_scope scope, enum ls_wait_for wait)
{
    const char letter = table[why][scope][wait];
    return letter == 'n' ? LS_ENDS_NOW : letter == 'l' ? LS_ENDS_LATER : LS_ENDS_NEVER;
}

enum ls_end_why ls_scope_end_of(unsigned reasons, enum ls_scope scope, enum ls_wait_for wait)
{
    for (enum ls_end_why why = LS_END_NONE; reasons != 0; why++, reasons >>= 1)
        if ((reasons & 1) != 0 && ls_scope_ends(why, scope, wait) == LS_ENDS_NOW) return why;
    return LS_END_NONE;
}

enum ls_scope ls_scope_of_job(enum ls_scope scope)
{
    return scope == LS_SCOPE_REQUEST || scope == LS_SCOPE_CONNECTION ? LS_SCOPE_JOB : scope;
}

enum ls_scope ls_scope_of_timer(enum ls_scope scope)
{
    return scope == LS_SCOPE_SITE ? LS_SCOPE_TIMER : scope == LS_SCOPE_BATCH ? LS_SCOPE_JOB : ls_scope_of_job(scope);
}

enum ls_scope ls_scope_with_value(enum ls_scope scope)
{
    return scope == LS_SCOPE_SITE ? LS_SCOPE_BATCH : scope == LS_SCOPE_TIMER ? LS_SCOPE_JOB : scope;
}

static const struct {
    const char *one, *many, *stat;
} names[LS_SCOPES] = {
    [LS_SCOPE_NONE] = {"a task", "tasks", NULL},
    [LS_SCOPE_REQUEST] = {"a request", "requests", "running.requests"},
    [LS_SCOPE_CONNECTION] = {"a TCP connection", "TCP connections", "running.connections"},
    [LS_SCOPE_WEBSOCKET] = {"a task of WebSockets", "tasks of WebSockets", "running.websockets"},
    [LS_SCOPE_SITE] = {"a task of ls.init or \"start\"", "tasks of ls.init or \"start\"", "running.site"},
    [LS_SCOPE_TIMER] = {"a timer", "timers", "running.timers"},
    [LS_SCOPE_JOB] = {"a job", "jobs", "running.jobs"},
};

static enum ls_scope named(enum ls_scope scope)
{
    return scope == LS_SCOPE_BATCH ? LS_SCOPE_SITE : scope;
}

const char *ls_scope_name(enum ls_scope scope)
{
    return names[named(scope)].one;
}

static unsigned count_of(const unsigned counts[LS_SCOPES], enum ls_scope scope)
{
    return counts[scope] + (scope == LS_SCOPE_SITE ? counts[LS_SCOPE_BATCH] : 0);
}

void ls_scope_describe(const unsigned counts[LS_SCOPES], char *out, size_t out_bytes)
{
    size_t len = 0;
    (void)snprintf(out, out_bytes, "nothing");
    for (enum ls_scope scope = LS_SCOPE_REQUEST; scope < LS_SCOPES && len < out_bytes; scope++) {
        const unsigned count = named(scope) == scope ? count_of(counts, scope) : 0;
        const char *const before = len > 0 ? ", " : "";
        if (count == 1) len += (size_t)snprintf(out + len, out_bytes - len, "%s%s", before, names[scope].one);
        if (count > 1)
            len += (size_t)snprintf(out + len, out_bytes - len, "%s%u %s", before, count, names[scope].many);
    }
}

void ls_scope_each(const unsigned counts[LS_SCOPES], void (*each)(void *to, const char *name, double value), void *to)
{
    for (enum ls_scope scope = LS_SCOPE_REQUEST; scope < LS_SCOPES; scope++)
        if (named(scope) == scope) each(to, names[scope].stat, count_of(counts, scope));
}
