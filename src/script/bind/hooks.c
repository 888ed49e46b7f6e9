/* hooks.c - ls.on and ls.once. "start" and "drain" hooks run in every state; a state that is made later runs its
 * "start" hooks before its first request. */
#include "script/bind/hooks.h"

#include <stdlib.h>

#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"

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

/* core.once(fn): fn runs at the start, in the first state only. */
static int core_once(lua_State *L)
{
    ls_state *state = ls_check_loading(L, "ls.once: ");
    luaL_checktype(L, 1, LUA_TFUNCTION);
    ls_check_arguments(L, 1, "ls.once(fn)");
    if (state->index == 0) hooks_add(L, &ls_hooks_of(state)->at[LS_HOOK_ONCE], 1);
    return 0;
}

static void run_hooks(ls_thread_ctx *ctx, ls_state *state, enum ls_hook_kind kind, const char *what)
{
    const ls_hook_list *list = &ls_hooks_of(state)->at[kind];
    for (unsigned n = 0; n < list->count; n++) ls_job_run_ref(ctx, state, list->refs[n], what);
}

static void hooks_start(ls_thread_ctx *ctx, ls_state *state)
{
    run_hooks(ctx, state, LS_HOOK_ONCE, "in an ls.once function");
    run_hooks(ctx, state, LS_HOOK_START, "in a \"start\" hook");
}

static void hooks_retire(ls_thread_ctx *ctx, ls_state *state)
{
    run_hooks(ctx, state, LS_HOOK_DRAIN, "in a \"drain\" hook");
}

static void hooks_free(ls_state *state)
{
    for (int kind = 0; kind < LS_HOOKS; kind++) free(ls_hooks_of(state)->at[kind].refs);
}

static const luaL_Reg functions[] = {{"on", core_on}, {"once", core_once}, {NULL, NULL}};

const ls_module ls_hooks_module = {.name = "hooks",
                                   .bytes = sizeof(ls_hooks),
                                   .functions = functions,
                                   .start = hooks_start,
                                   .retire = hooks_retire,
                                   .free = hooks_free};
