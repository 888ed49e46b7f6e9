/* udata.c - see udata.h. */
#include "script/core/udata.h"

#include <lauxlib.h>

void *ls_udata_check(lua_State *L, int index, const void *tag, size_t bytes, const char *name)
{
    void *object = ls_udata_test(L, index, tag, bytes);
    if (object == NULL) luaL_typeerror(L, index, name);
    return object;
}

void ls_udata_define(lua_State *L, const char *name, int *ref)
{
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    *ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
