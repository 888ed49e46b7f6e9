/* route_name.c - see route_name.h. */
#include "script/bind/route_name.h"

#include <lauxlib.h>

#include "script/bind/request.h"

static const char names_key; /* registry: a table from dispatch functions to functions that name a route; weak keys,
                              * because the functions of app:inject become garbage */

int ls_core_name_routes(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key) != LUA_TTABLE) {
        lua_newtable(L);
        lua_createtable(L, 0, 1);
        lua_pushliteral(L, "k");
        lua_setfield(L, -2, "__mode");
        lua_setmetatable(L, -2);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &names_key);
        lua_replace(L, 3);
    }
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_rawset(L, 3);
    return 0;
}

bool ls_route_push(lua_State *L, int dispatch_ref, const ls_exchange *x, bool failing)
{
    const int top = lua_gettop(L);
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key) == LUA_TTABLE) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, dispatch_ref);
        if (lua_rawget(L, -2) == LUA_TFUNCTION) {
            ls_request_push_method(L, x);
            ls_request_push_path(L, x);
            lua_pushboolean(L, failing);
            if (lua_pcall(L, 3, 2, 0) == LUA_OK && lua_type(L, -2) == LUA_TSTRING) {
                if (lua_type(L, -1) != LUA_TSTRING) {
                    lua_pop(L, 1);
                    lua_pushliteral(L, "?");
                }
                lua_rotate(L, top + 1, 2);
                lua_settop(L, top + 2);
                return true;
            }
        }
    }
    lua_settop(L, top);
    return false;
}
