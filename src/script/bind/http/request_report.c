/* request_report.c - what the tasks of a state wait for, in the log of a drain that takes long. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/shared.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/core/wait.h"

enum { REPORTED_MAX = 10 /* tasks of a state in the log of a drain */, STATUS_MAX = 1000 /* in a status */ };

uint64_t ls_request_began_ns(const ls_request *r, const ls_task *task)
{
    if (r->began_ns != 0) return r->began_ns;
    if (r->x != NULL && r->x->recorder != NULL) return r->x->began_ns;
    return task->due_ns > 0 ? task->due_ns - task->time_ms_max * UINT64_C(1000000) : 0;
}

static void note_age(const ls_request *r, const ls_task *task, char out[32])
{
    const uint64_t from_ns = ls_request_began_ns(r, task);
    out[0] = '\0';
    if (from_ns != 0) (void)snprintf(out, 32, ", for %.1f s", (double)(ls_clock_ns() - from_ns) / 1e9);
}

/* `what`: "ended: " or, of a status, "". */
static void log_request(lua_State *L, const char *what, const ls_request *r, const ls_task *task, const char *at,
                        const char *line)
{
    char name[LS_REQUEST_NAME_BYTES], age[32];
    const bool routed = what[0] == '\0' && ls_route_push(L, task->dispatch_ref, r->x, false);
    ls_request_log_name(r->x, name);
    note_age(r, task, age);
    ls_request_push_logged_ip(L, r);
    if (routed)
        ls_log(LS_LOG_WARN, "%s of %s, handler of %s (%s), waits%s%s%s", name, lua_tostring(L, -1),
               lua_tostring(L, -3), lua_tostring(L, -2), at, line, age);
    else
        ls_log(LS_LOG_WARN, "%s%s of %s waits%s%s%s", what, name, lua_tostring(L, -1), at, line, age);
}

static int report_main(lua_State *L)
{
    const ls_state *state = lua_touserdata(L, 1);
    const bool status = atomic_load(&state->generation->status_turn) != atomic_load(&state->status_turn),
               ended = atomic_load(&state->generation->reporting) == LS_REPORT_ENDED && !status;
    const enum ls_log_level level = ended ? LS_LOG_WARN : LS_LOG_INFO;
    const char *const what = status ? "" : ended ? "ended: " : "draining: ";
    const unsigned most = status ? STATUS_MAX : REPORTED_MAX;
    char line[80 + LS_SHARED_NAME_BYTES_MAX + 40];
    unsigned count = 0;
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) {
        const ls_request *r = task->client;
        if (!task->waiting || count++ >= most) continue;
        lua_settop(L, 0);
        ls_task_line(task->co, line, 80);
        const char *const at = line[0] != '\0' ? " at " : "";
        ls_wait_describe(task, line + strlen(line), sizeof line - 80);
        if ((ended || status) && r != NULL && r->x != NULL)
            log_request(L, what, r, task, at, line);
        else if (r != NULL && r->x != NULL && ls_route_push(L, task->dispatch_ref, r->x, false))
            ls_log(LS_LOG_INFO, "draining: the handler of %s (%s) waits%s%s", lua_tostring(L, -2), lua_tostring(L, -1),
                   at, line);
        else
            ls_log(level, "%s%s waits%s%s", what, ls_scope_name((enum ls_scope)task->scope), at, line);
    }
    if (count > most) ls_log(level, "%s%u further tasks wait", what, count - most);
    return 0;
}

static void report(ls_thread_ctx *ctx, ls_state *state)
{
    (void)ls_state_protected(state, ctx, report_main, state);
}

const ls_module ls_request_report_module = {.name = "request_report", .report = report};
