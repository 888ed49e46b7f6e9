/* bind_aux.c - see bind_aux.h. */
#include "script/bind/bind_aux.h"

#include <string.h>

#include <lauxlib.h>

#include "base/err.h"
#include "port/file.h"
#include "script/core/lua_modules.h"
#include "script/core/state.h"

int ls_push_failure(lua_State *L, int err)
{
    lua_pushnil(L);
    lua_pushstring(L, ls_err_text(err));
    lua_pushstring(L, ls_err_name(err));
    return 3;
}

ls_state *ls_check_loading(lua_State *L, const char *prefix)
{
    ls_state *state = ls_state_of(L);
    if (!state->loading) luaL_error(L, "%smust be called while the site loads", prefix);
    return state;
}

double ls_check_seconds(lua_State *L, int index)
{
    const double seconds = luaL_checknumber(L, index);
    luaL_argcheck(L, seconds >= 0, index, "number of seconds must be 0 or more"); /* false for NaN */
    return seconds;
}

const char *ls_push_site_path(lua_State *L, int index)
{
    const char *site = ls_state_of(L)->generation->path, *path = lua_tostring(L, index);
    const size_t directory_len = ls_lua_modules_directory(site);
    if (directory_len == 0 || ls_file_is_absolute(path)) {
        lua_pushvalue(L, index);
    } else {
        index = lua_absindex(L, index);
        lua_pushlstring(L, site, directory_len);
        lua_pushvalue(L, index);
        lua_concat(L, 2);
    }
    return lua_tostring(L, -1);
}

bool ls_is_loader_data(lua_State *L, int value, int extra)
{
    const int top = lua_gettop(L);
    bool found = false;
    if (lua_type(L, extra) != LUA_TSTRING || !lua_checkstack(L, 4)) return false;
    if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE) == LUA_TTABLE) {
        lua_pushnil(L);
        while (!found && lua_next(L, top + 1) != 0) {
            found = lua_rawequal(L, -1, value) != 0;
            lua_pop(L, 1);
        }
    }
    lua_settop(L, top);
    return found;
}

void ls_refuse_arguments(lua_State *L, int most, const char *call)
{
    const int last = lua_gettop(L);
    int extra = most + 1;
    if (ls_is_loader_data(L, most, extra)) extra++;
    while (extra <= last && lua_isnil(L, extra)) extra++;
    if (extra > last) return;
    int whole;
    const lua_Integer number = lua_tointegerx(L, extra, &whole);
    if (lua_type(L, extra) != LUA_TNUMBER || !whole)
        luaL_error(L, "too many arguments for %s: got a %s as well", call, luaL_typename(L, extra));
    else if (strncmp(call, "res:", 4) == 0 && number >= 200 && number <= 999)
        luaL_error(L, "too many arguments for %s: got %I as well; set the status before, with res:status(%I)", call,
                   number, number);
    else
        luaL_error(L,
                   "too many arguments for %s: got %I as well; put a call that returns several values, such as "
                   "string.gsub, in parentheses",
                   call, number);
}

bool ls_push_function(lua_State *L, const char *module, const char *name)
{
    const int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, module) == LUA_TTABLE && lua_getfield(L, -1, name) == LUA_TFUNCTION) {
        lua_replace(L, top + 1);
        lua_settop(L, top + 1);
        return true;
    }
    lua_settop(L, top);
    return false;
}

/* Push the suggestion of usage.lua for `name`, or an empty string: "; did you mean 'send'?" */
static const char *suggestion(lua_State *L, int name, int known)
{
    if (ls_push_function(L, "luaserve.usage", "suggest")) {
        lua_pushvalue(L, name);
        lua_pushvalue(L, known);
        lua_call(L, 2, 1);
    } else {
        lua_pushliteral(L, "");
    }
    return lua_tostring(L, -1);
}

int ls_unknown_member(lua_State *L, const char *object, int known)
{
    known = lua_absindex(L, known);
    const char *name = luaL_tolstring(L, 2, NULL);
    return luaL_error(L, "%s has no method or field '%s'%s", object, name, suggestion(L, 2, known));
}

/* Upvalues: the methods, the name of the object. */
static int methods_index(lua_State *L)
{
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return 1;
    return ls_unknown_member(L, lua_tostring(L, lua_upvalueindex(2)), lua_upvalueindex(1));
}

void ls_set_methods(lua_State *L, const char *object)
{
    lua_pushstring(L, object);
    lua_pushcclosure(L, methods_index, 2);
    lua_setfield(L, -2, "__index");
}

void ls_set_members(lua_State *L, const char *const fields[], lua_CFunction index)
{
    for (; *fields != NULL; fields++) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, *fields);
    }
    lua_pushcclosure(L, index, 1);
    lua_setfield(L, -2, "__index");
}

bool ls_push_method(lua_State *L, const char *object)
{
    lua_pushvalue(L, 2);
    const int type = lua_rawget(L, lua_upvalueindex(1));
    if (type == LUA_TNIL) return ls_unknown_member(L, object, lua_upvalueindex(1));
    if (type == LUA_TFUNCTION) return true;
    lua_pop(L, 1);
    return false;
}
