/* udata.c - see udata.h. */
#include "script/core/lua/udata.h"

#include <lauxlib.h>

#include "script/core/lua/push.h"

/* As luaL_typeerror. A method whose object is missing was called with a dot: res.html("x"). */
void ls_udata_refuse(lua_State *L, int index, const char *name)
{
    lua_Debug ar = {0};
    if (index != 1 || lua_getstack(L, 0, &ar) == 0 || lua_getinfo(L, "n", &ar) == 0 || ar.name == NULL)
        luaL_typeerror(L, index, name);
    const char *got =
        luaL_getmetafield(L, index, "__name") == LUA_TSTRING ? lua_tostring(L, -1) : luaL_typename(L, index);
    luaL_error(L, "'%s' is a method of a %s: call it with a colon, such as object:%s(...); got %s for the object",
               ar.name, name, ar.name, got);
}

void ls_udata_define(lua_State *L, const char *name, int *ref)
{
    ls_set_text(L, "__name", name);
    ls_set_boolean(L, "__metatable", 0);
    *ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
