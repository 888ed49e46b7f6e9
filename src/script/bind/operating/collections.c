/* collections.c - counts the collections of Lua's garbage, young and full, for ls.stats(): each finalizes an object of the
 * state that nothing refers to, and whose finalizer makes the next one. */
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/state.h"

static _Atomic uint64_t *count_of(const ls_runtime *runtime)
{
    return ls_runtime_own(runtime, LS_SLOT_collections);
}

/* The metatable is the argument. */
static int make(lua_State *L)
{
    (void)lua_newuserdatauv(L, 0, 0);
    lua_insert(L, 1);
    lua_setmetatable(L, 1);
    return 0;
}

static int collected(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    if (state->closing) return 0;
    atomic_fetch_add_explicit(count_of(ls_state_runtime(state)), 1, memory_order_relaxed);
    (void)lua_getmetatable(L, 1);
    lua_pushcfunction(L, make);
    lua_pushvalue(L, 2);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK) return 0;
    lua_settop(L, 2);
    lua_setmetatable(L, 1); /* without memory: it lives until it is collected again */
    return 0;
}

static void define(lua_State *L, ls_state *state)
{
    lua_pushcfunction(L, make);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, collected);
    lua_setfield(L, -2, "__gc");
    lua_call(L, 1, 0);
}

static void stats(ls_runtime *runtime, ls_site_stat_fn *each, void *to)
{
    each(to, "lua_collections", (double)atomic_load_explicit(count_of(runtime), memory_order_relaxed));
}

static const ls_module_common common = {.bytes = sizeof(_Atomic uint64_t), .stats = stats};
const ls_module ls_collections_module = {.name = "collections", .define = define, .common = &common};
