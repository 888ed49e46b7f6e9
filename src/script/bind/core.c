/* core.c - functions of the module `luaserve.core` that belong to no object: the time, the log, statistics, the
 * stop. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/thread.h"
#include "codec/http_text.h"
#include "http/http2/h2.h"
#include "http/httpsys/httpsys.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/push.h"
#include "script/core/mute.h"
#include "script/core/task.h"

/* ls.now() -> seconds
 * The time of a monotonic clock. */
static int core_now(lua_State *L)
{
    ls_check_arguments(L, 0, "ls.now()");
    return ls_push_number(L, (double)(ls_clock_ns() + ls_clock_moved_ns()) / 1e9);
}

/* core.wall_time() -> seconds since 1970, with microseconds */
static int core_wall_time(lua_State *L)
{
    return ls_push_number(L, (double)(ls_clock_wall_us() + (int64_t)(ls_clock_moved_ns() / 1000)) / 1e6);
}

/* core.retired() -> whether another site has taken over, or the server stops */
static int core_retired(lua_State *L)
{
    return ls_push_boolean(L, ls_generation_retired(ls_state_of(L)->generation) != 0);
}

/* core.detach(): the task, and those that it begins, hand their work over to the next site themselves; a reload does
 * not end them where they wait. */
static int core_detach(lua_State *L)
{
    ls_task *task = ls_state_of(L)->current;
    if (task != NULL) ls_task_enter(task, LS_SCOPE_JOB);
    return 0;
}

/* core.remote_wait() -> whether a reload ends a command of Redis that blocks, of this task. Ends the task here when
 * its site has been replaced, or the server stops. Raises where it cannot wait. */
static int core_remote_wait(lua_State *L)
{
    ls_task_may_wait(L);
    ls_task_end_before(L, LS_WAIT_REMOTE);
    const enum ls_scope scope = (enum ls_scope)ls_state_of(L)->current->scope;
    return ls_push_boolean(L, ls_scope_ends(LS_END_REPLACED, scope, LS_WAIT_REMOTE) == LS_ENDS_NOW);
}

/* core.lease_wait(): the same before a wait for a permit of Redis. */
static int core_lease_wait(lua_State *L)
{
    ls_task_may_wait(L);
    ls_task_end_before(L, LS_WAIT_LEASE);
    return 0;
}

/* core.received(): the task has a value that a reload must not lose. */
static int core_received(lua_State *L)
{
    ls_task *task = ls_state_of(L)->current;
    if (task != NULL) ls_task_received(task);
    return 0;
}

/* core.percent_decode(s [, plus]) -> string, or nil for an invalid escape or a NUL. `plus`: "+" is a space. */
static int core_percent_decode(lua_State *L)
{
    luaL_Buffer buffer;
    const ls_text text = ls_check_text(L, 1);
    const bool plus = lua_toboolean(L, 2);
    char *to = luaL_buffinitsize(L, &buffer, text.len);
    const long decoded = ls_percent_decode(text.ptr, text.len, plus, to);
    luaL_pushresultsize(&buffer, decoded < 0 ? 0 : (size_t)decoded);
    if (decoded < 0) lua_pushnil(L);
    return 1;
}

/* core.http_date(seconds since 1970) -> "Sun, 06 Nov 1994 08:49:37 GMT" */
static int core_http_date(lua_State *L)
{
    char date[LS_HTTP_DATE_BYTES];
    ls_http_date(luaL_checkinteger(L, 1), date);
    return ls_push_bytes(L, date, sizeof date);
}

/* core.http_date_parse(text) -> seconds since 1970 | nil: for one of the three formats of RFC 9110 5.6.7. */
static int core_http_date_parse(lua_State *L)
{
    int64_t seconds;
    const ls_text text = ls_check_text(L, 1);
    if (!ls_http_date_parse(text.ptr, text.len, ls_clock_wall_s(), &seconds)) return 0;
    return ls_push_integer(L, seconds);
}

#define RUNNING "running." /* before the names of a table of their own */
enum { STATS_MAX = 128 };
typedef struct stats_list { /* filled by the server's code, in which nothing may raise; then copied into a table */
    unsigned count;
    struct {
        char name[48];
        double value;
    } at[STATS_MAX];
} stats_list;

static void stats_add(void *to, const char *name, double value)
{
    stats_list *list = to;
    if (list->count == STATS_MAX) return;
    (void)snprintf(list->at[list->count].name, sizeof list->at[0].name, "%s", name);
    list->at[list->count++].value = value;
}

/* ls.stats() -> counters: Stats
 * Counters of the whole process. */
static int core_stats(lua_State *L)
{
    ls_check_arguments(L, 0, "ls.stats()");
    stats_list *list = lua_newuserdatauv(L, sizeof *list, 0);
    list->count = 0;
    ls_runtime_stats(ls_state_runtime(ls_state_of(L)), stats_add, list);
    lua_createtable(L, 0, (int)list->count);
    lua_newtable(L);
    for (unsigned n = 0; n < list->count; n++) {
        const double value = list->at[n].value;
        if (value == (double)(lua_Integer)value && value < 9e15 && value > -9e15)
            lua_pushinteger(L, (lua_Integer)value);
        else
            lua_pushnumber(L, value);
        if (strncmp(list->at[n].name, RUNNING, sizeof RUNNING - 1) == 0)
            lua_setfield(L, -2, list->at[n].name + sizeof RUNNING - 1);
        else
            lua_setfield(L, -3, list->at[n].name);
    }
    lua_setfield(L, -2, "running");
    return 1;
}

/* core.readiness() -> "ready", "unready" (by `luaserve unready`) or "draining" */
static int core_readiness(lua_State *L)
{
    const unsigned unready = atomic_load(&ls_state_runtime(ls_state_of(L))->unready);
    lua_pushstring(L, unready & LS_UNREADY_DRAINS ? "draining" : unready != 0 ? "unready" : "ready");
    return 1;
}

/* ls.stop()
 * Begins to drain the server, as SIGTERM does. Not while the site loads. */
static int core_stop(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    ls_check_arguments(L, 0, "ls.stop()");
    if (state->loading) return luaL_error(L, "ls.stop: the server has not started");
    const ls_site_host *host = ls_state_runtime(state)->host;
    if (host != NULL && host->stop != NULL) host->stop(host->server);
    return 0;
}

/* core.failed(...) -> its arguments, the results of a function of luaserve that begin with nil and a reason */
static int core_failed(lua_State *L)
{
    ls_task_failed(L, luaL_checkstring(L, 2));
    return lua_gettop(L);
}

/* core.can_wait() -> whether a call that waits is possible here */
static int core_can_wait(lua_State *L)
{
    return ls_push_boolean(L, ls_task_can_wait(L));
}

/* core.task() -> the coroutine of the running task, also inside of another one; nothing: no task runs */
static int core_task(lua_State *L)
{
    const ls_task *task = ls_state_of(L)->current;
    if (task == NULL) return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->ref);
    return 1;
}

/* ls.thread() -> number: integer
 * The number of the thread that runs the caller, from 1; 0 while the site loads. */
static int core_thread(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    ls_check_arguments(L, 0, "ls.thread()");
    return ls_push_integer(L, state->loading || state->ctx == NULL ? 0 : (lua_Integer)state->ctx->index + 1);
}

/* ls.processors() -> count: integer
 * The number of processors that this process may use. */
static int core_processors(lua_State *L)
{
    ls_check_arguments(L, 0, "ls.processors()");
    return ls_push_integer(L, (lua_Integer)ls_cpu_count());
}

/* The fields of the table `luaserve.core`: version, http_sys, http2, backend, limits that C and Lua share. */
static void core_define(lua_State *L, ls_state *state)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "luaserve.core");
    ls_set_text(L, "version", LS_VERSION);
    ls_set_boolean(L, "http_sys", ls_httpsys_supported());
    ls_set_boolean(L, "http2", ls_h2_library() != NULL);
    ls_set_text(L, "backend", ls_port_backend());
    lua_pushinteger(L, (lua_Integer)LS_SECONDS_MAX);
    lua_setfield(L, -2, "seconds_max");
    lua_pushinteger(L, LS_SSE_RETRY_MS_MAX);
    lua_setfield(L, -2, "sse_retry_ms_max");
    lua_pop(L, 2);
}

static const luaL_Reg functions[] = {{"now", core_now},
                                     {"wall_time", core_wall_time},
                                     {"retired", core_retired},
                                     {"detach", core_detach},
                                     {"remote_wait", core_remote_wait},
                                     {"lease_wait", core_lease_wait},
                                     {"received", core_received},
                                     {"stats", core_stats},
                                     {"readiness", core_readiness},
                                     {"stop", core_stop},
                                     {"can_wait", core_can_wait},
                                     {"failed", core_failed},
                                     {"task", core_task},
                                     {"thread", core_thread},
                                     {"processors", core_processors},
                                     {"percent_decode", core_percent_decode},
                                     {"http_date", core_http_date},
                                     {"http_date_parse", core_http_date_parse},
                                     {NULL, NULL}};

const ls_module ls_core_module = {.name = "core", .functions = functions, .define = core_define};
