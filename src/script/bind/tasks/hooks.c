/* hooks.c - ls.on and ls.init. "start" and "drain" hooks run in every state; a state that is made later runs its
 * "start" hooks before its first request. The functions of ls.init run in the first state, before the site serves. */
#include "script/bind/tasks/hooks.h"

#include <stdlib.h>

#include "script/bind/bind_aux.h"
#include "script/bind/tasks/job.h"
#include "script/core/task.h"

enum { INIT_MESSAGE_BYTES = 1024 };

/* Append the function at `index` to a list of hooks. */
static void hooks_add(lua_State *L, ls_hook_list *hooks, int index)
{
    int *refs = realloc(hooks->refs, (hooks->count + 1) * sizeof *refs);
    if (refs == NULL) {
        luaL_error(L, "not enough memory");
        return;
    }
    hooks->refs = refs;
    lua_pushvalue(L, index);
    refs[hooks->count] = luaL_ref(L, LUA_REGISTRYINDEX);
    hooks->count++;
}

/* core.on("start"|"drain"|"log", fn). "start" and "drain" run in every state. */
static int core_on(lua_State *L)
{
    static const char *const names[] = {"start", "drain", "log", NULL};
    ls_state *state = ls_check_loading(L, "");
    const int kind = luaL_checkoption(L, 1, NULL, names);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    hooks_add(L, &ls_hooks_of(state)->at[kind], 2);
    return 0;
}

/* core.on_drain(fn): as core.on("drain", fn), also when the site is loaded. */
static int core_on_drain(lua_State *L)
{
    hooks_add(L, &ls_hooks_of(ls_state_of(L))->at[LS_HOOK_DRAIN], 1);
    return 0;
}

/* core.on_loaded(fn): at the end of the site's file, in every state; what it raises is an error of the site. */
static int core_on_loaded(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    hooks_add(L, &ls_hooks_of(ls_check_loading(L, ""))->at[LS_HOOK_LOADED], 1);
    return 0;
}

int ls_hooks_loaded(lua_State *L)
{
    const ls_hook_list *list = &ls_hooks_of(ls_state_of(L))->at[LS_HOOK_LOADED];
    for (unsigned n = 0; n < list->count; n++) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, list->refs[n]);
        lua_call(L, 0, 0);
    }
    return 0;
}

/* ls.init(fn: fun(reload: boolean))
 * Runs a function once for the server, before the first request is answered. It may wait. `reload` is false at the
 * start of the server, true at a reload. Only while the site loads.
 */
static int core_init(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "ls.init: ");
    luaL_checktype(L, 1, LUA_TFUNCTION);
    ls_check_arguments(L, 1, "ls.init(fn)");
    if (state->index == 0) hooks_add(L, &ls_hooks_of(state)->at[LS_HOOK_INIT], 1);
    return 0;
}

/* (reload): the functions from number `next` on, each in a call that may wait. */
static int init_next(lua_State *L, int status, lua_KContext next)
{
    const ls_hook_list *list = &ls_hooks_of(ls_state_of(L))->at[LS_HOOK_INIT];
    for (;;) {
        ls_task_log_failure(L, 2, "a function of ls.init"); /* that which has returned */
        lua_settop(L, 1);
        if ((unsigned)next >= list->count) return 0;
        lua_rawgeti(L, LUA_REGISTRYINDEX, list->refs[next++]);
        lua_pushvalue(L, 1);
        lua_callk(L, 1, LUA_MULTRET, next, init_next);
    }
}

static int init_main(lua_State *L)
{
    return init_next(L, LUA_OK, 0);
}

static void init_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    const ls_site_host *host = ls_state_runtime(task->state)->host;
    char message[INIT_MESSAGE_BYTES];
    if (status != LUA_OK) ls_task_log_error_to(ctx, task, "in an ls.init function", message, sizeof message);
    ls_task_release(ctx, task, status == LUA_OK);
    host->init_ended(host->server, status != LUA_OK ? message : NULL);
}

void ls_hooks_init(ls_thread_ctx *ctx, ls_state *state, bool reload)
{
    const ls_site_host *host = ls_state_runtime(state)->host;
    ls_task *task = ls_task_take_outside(state, ctx);
    if (task == NULL) {
        host->init_ended(host->server, "not enough memory");
        return;
    }
    task->ended = init_ended;
    ls_task_enter(task, LS_SCOPE_SITE);
    ls_task_count(task);
    lua_pushcfunction(task->co, init_main);
    lua_pushboolean(task->co, reload);
    ls_task_run(ctx, task, 1);
}

static void run_hooks(ls_thread_ctx *ctx, ls_state *state, enum ls_hook_kind kind, const char *what)
{
    const ls_hook_list *list = &ls_hooks_of(state)->at[kind];
    for (unsigned n = 0; n < list->count; n++)
        ls_job_run_ref(ctx, state, list->refs[n], kind == LS_HOOK_START ? LS_SCOPE_SITE : LS_SCOPE_JOB, what);
}

static void hooks_start(ls_thread_ctx *ctx, ls_state *state)
{
    run_hooks(ctx, state, LS_HOOK_START, "in a \"start\" hook");
}

/* At the reload, or at a stop that is the first end of the site. */
static void hooks_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why != LS_END_REPLACED && (why != LS_END_STOP || ls_state_is_ending(state, LS_END_REPLACED))) return;
    run_hooks(ctx, state, LS_HOOK_DRAIN, "in a \"drain\" hook");
}

static void hooks_free(ls_state *state)
{
    for (int kind = 0; kind < LS_HOOKS; kind++) free(ls_hooks_of(state)->at[kind].refs);
}

static const luaL_Reg functions[] = {
    {"on", core_on}, {"on_drain", core_on_drain}, {"on_loaded", core_on_loaded}, {"init", core_init}, {NULL, NULL}};

const ls_module ls_hooks_module = {.name = "hooks",
                                   .bytes = sizeof(ls_hooks),
                                   .functions = functions,
                                   .start = hooks_start,
                                   .end = hooks_end,
                                   .free = hooks_free};
