/* copy.c - see copy.h. */
#include "script/store/copy.h"

#include <lauxlib.h>

static const char hidden; /* its address is the key of the hidden field, and of the metatable in the registry */

void ls_copy_push_metatable(lua_State *L)
{
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, &hidden);
}

void ls_copy_push(lua_State *L, int content, int metatable)
{
    content = lua_absindex(L, content);
    metatable = lua_absindex(L, metatable);
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, content);
    lua_rawsetp(L, -2, &hidden);
    lua_pushvalue(L, metatable);
    lua_setmetatable(L, -2);
}

bool ls_copy_content(lua_State *L, int index)
{
    if (lua_rawgetp(L, index, &hidden) == LUA_TTABLE) return true;
    lua_pop(L, 1);
    return false;
}

void ls_copy_open(lua_State *L, int index)
{
    if (lua_type(L, index) != LUA_TTABLE || !lua_getmetatable(L, index)) return; /* most tables have no metatable */
    lua_pop(L, 1);
    index = lua_absindex(L, index);
    if (ls_copy_content(L, index)) lua_replace(L, index);
}

/* The metamethods have no other table than a copy: __metatable hides the metatable from scripts. debug.getmetatable
 * does not, so each of them checks. */
static void check_copy(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TTABLE || !ls_copy_content(L, 1)) luaL_typeerror(L, 1, "read-only copy");
}

static int copy_index(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TTABLE || lua_rawgetp(L, 1, &hidden) != LUA_TTABLE)
        return luaL_typeerror(L, 1, "read-only copy");
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
    return 1;
}

/* Push "site.lua:12: ", the line of the innermost function in Lua: table.sort(dict.list) writes from a C function. */
static void push_where(lua_State *L)
{
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar) != 0; level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0) {
            lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
            return;
        }
    }
    lua_pushliteral(L, "");
}

static int copy_newindex(lua_State *L)
{
    push_where(L);
    lua_pushliteral(L, "the value of a dict is a read-only copy; to change it, store the whole value again: "
                       "todos[key] = t, or use todos:update(key, function(t) t.done = true; return t end)");
    lua_concat(L, 2);
    return lua_error(L);
}

/* rawset(t, key, value) for plain tables: a state that reads an entry again gets the same copy. */
static int copy_rawset(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checkany(L, 2);
    luaL_checkany(L, 3);
    lua_settop(L, 3);
    if (lua_getmetatable(L, 1)) {
        if (ls_copy_content(L, 1)) return copy_newindex(L);
        lua_pop(L, 1);
    }
    lua_rawset(L, 1);
    return 1;
}

static int copy_len(lua_State *L)
{
    check_copy(L);
    lua_pushinteger(L, (lua_Integer)lua_rawlen(L, -1));
    return 1;
}

/* next(t [, key]) for plain tables and copies. */
static int copy_next(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    ls_copy_open(L, 1);
    if (lua_next(L, 1)) return 2;
    lua_pushnil(L);
    return 1;
}

static int copy_pairs(lua_State *L)
{
    check_copy(L);
    lua_pushcfunction(L, copy_next);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

void ls_copy_define(lua_State *L)
{
    static const luaL_Reg metamethods[] = {{"__index", copy_index},
                                           {"__newindex", copy_newindex},
                                           {"__len", copy_len},
                                           {"__pairs", copy_pairs},
                                           {NULL, NULL}};
    luaL_newlib(L, metamethods);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &hidden);
    lua_pushcfunction(L, copy_next);
    lua_setglobal(L, "next");
    lua_pushcfunction(L, copy_rawset);
    lua_setglobal(L, "rawset");
}
