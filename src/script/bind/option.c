/* option.c - see option.h. */
#include "script/bind/option.h"

#include <string.h>

#include <lauxlib.h>

bool ls_option_number(lua_State *L, int index, const char *name, uint64_t max, uint64_t *out)
{
    int whole;
    const bool set = lua_getfield(L, index, name) != LUA_TNIL;
    const lua_Integer value = lua_tointegerx(L, -1, &whole);
    lua_pop(L, 1);
    if (!set) return false;
    if (!whole || value < 0 || (uint64_t)value > max)
        luaL_error(L, "%s must be a whole number from 0 to %I", name,
                   max < LUA_MAXINTEGER ? (lua_Integer)max : LUA_MAXINTEGER);
    *out = (uint64_t)value;
    return true;
}

void ls_option_u32(lua_State *L, int index, const char *name, uint32_t max, uint32_t *out)
{
    uint64_t value;
    if (ls_option_number(L, index, name, max, &value)) *out = (uint32_t)value;
}

bool ls_option_flag(lua_State *L, int index, const char *name)
{
    lua_getfield(L, index, name);
    const bool value = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return value;
}

void ls_option_text(lua_State *L, int index, const char *name, char *out, size_t room)
{
    size_t len = 0;
    if (lua_getfield(L, index, name) != LUA_TNIL) {
        const char *text = lua_tolstring(L, -1, &len);
        if (text == NULL || strlen(text) != len || len >= room)
            luaL_error(L, "%s must be a string of at most %d bytes", name, (int)room - 1);
        else
            memcpy(out, text, len + 1);
    }
    lua_pop(L, 1);
}

int ls_option_function(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TFUNCTION) luaL_error(L, "%s must be a function", name);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}
