/* bind_aux.c - see bind_aux.h. */
#include "script/bind_aux.h"

#include <lauxlib.h>

#include "base/err.h"

int ls_push_failure(lua_State *L, int err)
{
    lua_pushnil(L);
    lua_pushstring(L, ls_err_text(err));
    lua_pushstring(L, ls_err_name(err));
    return 3;
}

double ls_check_seconds(lua_State *L, int index)
{
    const double seconds = luaL_checknumber(L, index);
    luaL_argcheck(L, seconds >= 0, index, "number of seconds must be 0 or more"); /* false for NaN */
    return seconds;
}
