/* coroutine.c - Lua's coroutine library, changed so that calls inside a coroutine can wait.
 *
 * A task is itself a coroutine. When a call waits inside an inner coroutine, every coroutine from there up to the
 * task yields, and the wake resumes them in the reverse order. Such a yield carries no values; task->waiting
 * distinguishes it from a yield of the script. Every coroutine of the chain is marked with LS_EXTRA_WAITS
 * (state.h), so that no other code resumes or closes it. For the script the call just blocks.
 *
 *     task: resume(a) -> a: resume(b) -> b: ls.sleep(1)       b yields to a, a to the task, the task to the port
 *
 * The innermost running coroutine is published in the thread's CPU watch for the processor-time limit. */
#include "script/core/lua/libraries.h"
#include "script/core/lua/push.h"
#include "script/core/task.h"

enum { RESUME_FAILED = -1, RESUME_WAITS = -2 };

static bool is_waiting(lua_State *co)
{
    return (*ls_state_extra(co) & LS_EXTRA_WAITS) != 0;
}

static bool has_exceeded(lua_State *co)
{
    return (*ls_state_extra(co) & LS_EXTRA_EXCEEDED) != 0;
}

static lua_State *check_coroutine(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_argexpected(L, co != NULL, 1, "coroutine");
    return co;
}

/* The run continues in L. */
static void run_in(const ls_state *state, lua_State *L)
{
    ls_cpu_watch_inner(state->cpu, L);
    if (ls_cpu_watch_exceeded(state->cpu)) lua_sethook(L, ls_state_hook, LUA_MASKCOUNT, 1);
}

/* Resume `co` with `nargs` values on its stack. Returns the number of results, moved to L; RESUME_FAILED: the error
 * is on top of L; RESUME_WAITS: the task waits, in co or in a coroutine that co has resumed. */
static int resume_inner(lua_State *L, lua_State *co, int nargs)
{
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    const bool blocks = task != NULL && !lua_isyieldable(L);
    int count = 0;
    *ls_state_extra(co) &= ~(uintptr_t)LS_EXTRA_WAITS;
    if (blocks) task->blocked++;
    run_in(state, co);
    const int status = lua_resume(co, L, nargs, &count);
    if (blocks) task->blocked--;
    run_in(state, L);
    if (status == LUA_YIELD && task != NULL && (task->waiting || task->killed)) return RESUME_WAITS;
    if (status != LUA_OK && status != LUA_YIELD) {
        if (ls_cpu_watch_exceeded(state->cpu)) *ls_state_extra(co) |= LS_EXTRA_EXCEEDED;
        lua_xmove(co, L, 1);
        return RESUME_FAILED;
    }
    if (!lua_checkstack(L, count + 1)) {
        lua_pop(co, count);
        lua_pushliteral(L, "too many results to resume");
        return RESUME_FAILED;
    }
    lua_xmove(co, L, count);
    return count;
}

/* Close the to-be-closed variables of `co`, which may run Lua code that cannot wait. Returns the status. */
static int reset_inner(lua_State *L, lua_State *co)
{
    const ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    if (task != NULL) task->blocked++;
    run_in(state, co);
    const int status = lua_resetthread(co);
    if (task != NULL) task->blocked--;
    run_in(state, L);
    return status;
}

static int resume_first(lua_State *L, lua_State *co, int nargs)
{
    if (is_waiting(co)) {
        lua_pushliteral(L, "cannot resume waiting coroutine");
        return RESUME_FAILED;
    }
    if (!lua_checkstack(co, nargs)) {
        lua_pushliteral(L, "too many arguments to resume");
        return RESUME_FAILED;
    }
    lua_xmove(L, co, nargs);
    return resume_inner(L, co, nargs);
}

/* An inner coroutine waits: mark L as waiting and yield to the next outer coroutine. */
static int yield_on(lua_State *L, lua_KFunction k)
{
    *ls_state_extra(L) |= LS_EXTRA_WAITS;
    return lua_yieldk(L, 0, 0, k);
}

static int resume_results(lua_State *L, int count);

static int resume_again(lua_State *L, int status, lua_KContext context)
{
    return resume_results(L, resume_inner(L, lua_tothread(L, 1), 0));
}

static int resume_results(lua_State *L, int count)
{
    if (count == RESUME_WAITS) return yield_on(L, resume_again);
    lua_pushboolean(L, count >= 0);
    if (count < 0) count = 1;
    lua_insert(L, -(count + 1));
    return count + 1;
}

static int co_resume(lua_State *L)
{
    lua_State *co = check_coroutine(L);
    return resume_results(L, resume_first(L, co, lua_gettop(L) - 1));
}

static int wrap_results(lua_State *L, lua_State *co, int count);

static int wrap_again(lua_State *L, int status, lua_KContext context)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    return wrap_results(L, co, resume_inner(L, co, 0));
}

static int wrap_results(lua_State *L, lua_State *co, int count)
{
    if (count == RESUME_WAITS) return yield_on(L, wrap_again);
    if (count >= 0) return count;
    const int status = lua_status(co);
    if (status != LUA_OK && status != LUA_YIELD && !has_exceeded(co)) { /* dead after an error: close its variables */
        const int closed = reset_inner(L, co);
        if (closed != LUA_OK && lua_gettop(co) > 0) { /* an error in a __close replaces the first one */
            lua_pop(L, 1);
            lua_xmove(co, L, 1);
        }
    }
    if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

static int wrap_call(lua_State *L)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    return wrap_results(L, co, resume_first(L, co, lua_gettop(L)));
}

static int co_create(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    return 1;
}

static int co_wrap(lua_State *L)
{
    (void)co_create(L);
    lua_pushcclosure(L, wrap_call, 1);
    return 1;
}

static bool is_task_root(lua_State *L)
{
    const ls_task *task = ls_state_of(L)->current;
    return task != NULL && task->co == L;
}

static int co_yield (lua_State *L)
{
    if (is_task_root(L)) return luaL_error(L, "attempt to yield from outside a coroutine");
    return lua_yield(L, lua_gettop(L));
}

static int co_isyieldable(lua_State *L)
{
    lua_State *co = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
    return ls_push_boolean(L, !is_task_root(co) && lua_isyieldable(co));
}

static const char *status_of(lua_State *L, lua_State *co)
{
    lua_Debug ar;
    if (L == co) return "running";
    if (is_waiting(co)) return "normal"; /* it belongs to a waiting task */
    switch (lua_status(co)) {
    case LUA_YIELD: return "suspended";
    case LUA_OK:
        if (lua_getstack(co, 0, &ar)) return "normal";
        return lua_gettop(co) == 0 ? "dead" : "suspended";
    default: return "dead";
    }
}

static int co_status(lua_State *L)
{
    return ls_push_text(L, status_of(L, check_coroutine(L)));
}

static int co_close(lua_State *L)
{
    lua_State *co = check_coroutine(L);
    const char *status = status_of(L, co);
    if (status[0] != 's' && status[0] != 'd')
        return luaL_error(L, "cannot close a %s coroutine", is_waiting(co) ? "waiting" : status);
    if (has_exceeded(co)) return luaL_error(L, "cannot close a coroutine that used too much processor time");
    const int closed = reset_inner(L, co);
    lua_pushboolean(L, closed == LUA_OK);
    if (closed == LUA_OK) return 1;
    lua_xmove(co, L, 1);
    return 2;
}

void ls_coroutine_define(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"create", co_create},           {"resume", co_resume}, {"wrap", co_wrap},   {"yield", co_yield },
        {"isyieldable", co_isyieldable}, {"status", co_status}, {"close", co_close}, {NULL, NULL}};
    lua_getglobal(L, "coroutine");
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
