/* push.h - push one result of a function for Lua and return the number of results, set a field of a table, or take a
 * string of the arguments. */
#ifndef LS_SCRIPT_PUSH_H
#define LS_SCRIPT_PUSH_H

#include <stdbool.h>

#include <lauxlib.h>

#include "base/text.h"
#include "script/core/lua/number.h"

/* Each returns 1. */
static inline int ls_push_nil(lua_State *L)
{
    lua_pushnil(L);
    return 1;
}

static inline int ls_push_boolean(lua_State *L, bool value)
{
    lua_pushboolean(L, value);
    return 1;
}

static inline int ls_push_integer(lua_State *L, lua_Integer value)
{
    lua_pushinteger(L, value);
    return 1;
}

static inline int ls_push_number(lua_State *L, lua_Number value)
{
    lua_pushnumber(L, value);
    return 1;
}

static inline int ls_push_text(lua_State *L, const char *text) /* NULL: nil */
{
    lua_pushstring(L, text);
    return 1;
}

static inline int ls_push_bytes(lua_State *L, const char *bytes, size_t len)
{
    lua_pushlstring(L, bytes, len);
    return 1;
}

/* Each returns 2. */
static inline int ls_push_nil_text(lua_State *L, const char *text)
{
    lua_pushnil(L);
    return 1 + ls_push_text(L, text);
}

static inline int ls_push_false_text(lua_State *L, const char *text)
{
    lua_pushboolean(L, false);
    return 1 + ls_push_text(L, text);
}

/* lua_pcall of `function` with `data` as light userdata: it may raise, and the caller has something to drop. */
static inline int ls_pcall(lua_State *L, lua_CFunction function, void *data, int results)
{
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, data);
    return lua_pcall(L, 1, results, 0);
}

/* Push require(module). */
static inline void ls_push_module(lua_State *L, const char *module)
{
    lua_getglobal(L, "require");
    lua_pushstring(L, module);
    lua_call(L, 1, 1);
}

/* Set the field of the table at the top. */
static inline void ls_set_boolean(lua_State *L, const char *name, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

static inline void ls_set_integer(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static inline void ls_set_text(lua_State *L, const char *name, const char *text) /* NULL: no field */
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static inline void ls_set_function(lua_State *L, const char *name, lua_CFunction function)
{
    lua_pushcfunction(L, function);
    lua_setfield(L, -2, name);
}

/* The string at `index`; raises as luaL_checklstring. */
static inline ls_text ls_check_text(lua_State *L, int index)
{
    ls_text text;
    (void)ls_number_tolstring(L, index, &text.len);
    text.ptr = luaL_checklstring(L, index, &text.len);
    return text;
}

#endif
