/* bind_aux.c - see bind_aux.h. */
#include "script/bind/bind_aux.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/sock/addr.h"
#include "port/file/file.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/lua/udata.h"
#include "script/core/task.h"

int ls_push_failure(lua_State *L, int err)
{
    return ls_push_failure_text(L, err, "%s", ls_err_text(err));
}

int ls_push_failure_text(lua_State *L, int err, const char *format, ...)
{
    va_list arguments;
    lua_pushnil(L);
    va_start(arguments, format);
    ls_task_failed(L, lua_pushvfstring(L, format, arguments));
    va_end(arguments);
    lua_pushstring(L, ls_err_name(err));
    return 3;
}

int ls_push_result(lua_State *L, int result)
{
    if (result < 0) return ls_push_failure(L, result);
    return ls_push_boolean(L, true);
}

int ls_push_addr(lua_State *L, const ls_addr *addr)
{
    char text[LS_ADDR_TEXT_BYTES];
    return ls_push_text(L, ls_addr_text(addr, text));
}

int ls_push_addr_field(lua_State *L, const char *name, const ls_addr *addr)
{
    char text[LS_ADDR_TEXT_BYTES];
    const size_t len = strlen(name);
    if (addr->family == LS_ADDR_NONE) return 0;
    if (strcmp(name + len - 2, "ip") == 0) return ls_push_text(L, ls_addr_host(addr, text));
    if (strcmp(name + len - 2, "rt") != 0) return ls_push_addr(L, addr);
    if (addr->family == LS_ADDR_UNIX) return 0;
    return ls_push_integer(L, addr->port);
}

ls_state *ls_check_loading(lua_State *L, const char *prefix)
{
    ls_state *state = ls_state_of(L);
    if (!state->loading) luaL_error(L, "%smust be called while the site loads", prefix);
    return state;
}

bool ls_is_once(const ls_state *state)
{
    return state->current != NULL ? state->current->starts : state->loading;
}

void ls_refuse_once(lua_State *L, const char *call)
{
    if (ls_generation_retired(ls_state_of(L)->generation) == 0)
        luaL_error(L,
                   "%s: it was made in ls.on(\"start\") and runs in the first Lua state only; one that is made at the "
                   "top of the file can be ended in any state",
                   call);
}

double ls_check_seconds(lua_State *L, int index)
{
    const double seconds = luaL_checknumber(L, index);
    luaL_argcheck(L, seconds >= 0, index, "number of seconds must be 0 or more"); /* false for NaN */
    luaL_argcheck(L, seconds <= LS_SECONDS_MAX || isinf(seconds), index,
                  "the time is in seconds: this is more than 10 years");
    return seconds;
}

void ls_pack(lua_State *L, int count)
{
    lua_createtable(L, count, 1);
    lua_insert(L, -1 - count);
    for (int n = count; n >= 1; n--) lua_rawseti(L, -1 - n, n);
    ls_set_integer(L, "n", count);
}

int ls_unpack(lua_State *L, const char *what)
{
    const int list = lua_gettop(L);
    lua_getfield(L, list, "n");
    const int count = (int)lua_tointeger(L, -1);
    lua_settop(L, list);
    luaL_checkstack(L, count + 1, what);
    for (int n = 1; n <= count; n++) lua_rawgeti(L, list, n);
    return count;
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

const char *ls_push_refused_path(lua_State *L, const char *given)
{
    const char *state = getenv("STATE_DIRECTORY"); /* ls.data */
    if (ls_file_is_absolute(given)) return lua_pushstring(L, given);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "luaserve.core");
    lua_getfield(L, -1, "dir");
    return lua_pushfstring(L, state != NULL ? "%s (%s/%s, outside of ls.data, %s)" : "%s (%s/%s)", given,
                           lua_tostring(L, -1), given, state);
}

void ls_refuse_arguments(lua_State *L, int most, const char *call)
{
    const int last = lua_gettop(L);
    luaL_checkstack(L, last - most + 4, "too many arguments");
    ls_push_function(L, "luaserve.usage", "no_more");
    lua_pushstring(L, call);
    if (most == 0) lua_pushnil(L);
    for (int n = most > 0 ? most : 1; n <= last; n++) lua_pushvalue(L, n);
    lua_call(L, last - most + 2, 0);
}

/* Upvalues: the function, the highest index of an argument, the call. */
static int counted(lua_State *L)
{
    const int most = (int)lua_tointeger(L, lua_upvalueindex(2));
    if (lua_gettop(L) > most) ls_refuse_arguments(L, most, lua_tostring(L, lua_upvalueindex(3)));
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

void ls_set_calls(lua_State *L, const luaL_Reg *list)
{
    for (; list->name != NULL; list++) {
        const char *colon = strchr(list->name, ':'), *open = strchr(list->name, '(');
        lua_pushcfunction(L, list->func);
        if (colon == NULL) {
            lua_setfield(L, -2, list->name);
            continue;
        }
        int most = 1 + (open[1] != ')');
        for (const char *at = open; *at != ')'; at++) most += *at == ',';
        lua_pushlstring(L, colon + 1, (size_t)(open - colon - 1));
        lua_insert(L, -2);
        lua_pushinteger(L, most);
        lua_pushstring(L, list->name);
        lua_pushcclosure(L, counted, 3);
        lua_rawset(L, -3);
    }
}

int ls_unknown_member(lua_State *L, const char *object, int known)
{
    known = lua_absindex(L, known);
    ls_push_function(L, "luaserve.names", "unknown_member");
    lua_pushstring(L, object);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, known);
    lua_call(L, 3, 0);
    return 0; /* not reached */
}

/* Upvalues: the methods, the name of the object. */
static int methods_index(lua_State *L)
{
    return ls_push_method(L, lua_tostring(L, lua_upvalueindex(2)));
}

static void push_functions(lua_State *L, const luaL_Reg *list, int more)
{
    for (const luaL_Reg *at = list; at != NULL && at->name != NULL; at++) more++;
    lua_createtable(L, 0, more);
    if (list != NULL) ls_set_calls(L, list);
}

static void push_members(lua_State *L, const ls_object_type *type)
{
    push_functions(L, type->methods, 0);
    for (const char *const *field = type->fields; field != NULL && *field != NULL; field++)
        ls_set_boolean(L, *field, true);
    if (type->newindex != NULL) {
        lua_pushvalue(L, -1);
        lua_pushcclosure(L, type->newindex, 1);
        lua_setfield(L, -3, "__newindex");
    }
    if (type->index == NULL) lua_pushfstring(L, "a %s", type->name);
    lua_pushcclosure(L, type->index != NULL ? type->index : methods_index, type->index != NULL ? 1 : 2);
    lua_setfield(L, -2, "__index");
}

static void push_metatable(lua_State *L, const ls_object_type *type)
{
    push_functions(L, type->meta, 5); /* and __index, __gc, __close, __name, __metatable */
    if (type->methods != NULL) push_members(L, type);
    if (type->drop != NULL) {
        ls_set_function(L, "__gc", type->drop);
        ls_set_function(L, "__close", type->drop);
    }
}

void ls_object_define(lua_State *L, const ls_object_type *type, int *ref)
{
    push_metatable(L, type);
    ls_udata_define(L, type->name, ref);
}

void *ls_object_push(lua_State *L, size_t bytes, int user_values, const ls_object_type *type)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, type) == LUA_TNIL) {
        int ref;
        lua_pop(L, 1);
        ls_object_define(L, type, &ref);
        lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, type);
    }
    const void **object = lua_newuserdatauv(L, bytes, user_values);
    memset(object, 0, bytes);
    *object = type;
    lua_insert(L, -2);
    lua_setmetatable(L, -2);
    return object;
}

void *ls_object_new(lua_State *L, size_t bytes, int user_values, const void *tag, int meta_ref)
{
    const void **object = lua_newuserdatauv(L, bytes, user_values);
    memset(object, 0, bytes);
    *object = tag;
    lua_rawgeti(L, LUA_REGISTRYINDEX, meta_ref);
    lua_setmetatable(L, -2);
    return object;
}

void *ls_object_check(lua_State *L, int index, size_t bytes, const ls_object_type *type)
{
    void *object = ls_udata_test(L, index, type, bytes);
    if (object == NULL) luaL_typeerror(L, index, type->name);
    return object;
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
