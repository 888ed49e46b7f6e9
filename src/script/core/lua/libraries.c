/* libraries.c - see libraries.h. */
#include "script/core/lua/libraries.h"

#include <lauxlib.h>
#include <lualib.h>

#include "base/io/log.h"
#include "script/core/generation.h"
#include "script/core/state.h"
#include "script/core/task.h"

/* math.randomseed of an additional state: while the site loads, the index of the state is added to the second number
 * of the seed. Each state runs the file of the site, and math.randomseed(os.time()) would give all of them one
 * sequence. */
static int math_randomseed(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    if (state->loading && !lua_isnone(L, 1)) {
        const lua_Unsigned second = (lua_Unsigned)luaL_optinteger(L, 2, 0) + state->index;
        lua_settop(L, 1);
        lua_pushinteger(L, (lua_Integer)second);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static int math_open(lua_State *L)
{
    luaopen_math(L);
    if (ls_state_of(L)->index > 0) {
        lua_getfield(L, -1, "randomseed");
        lua_pushcclosure(L, math_randomseed, 1);
        lua_setfield(L, -2, "randomseed");
    }
    return 1;
}

/* os.date calls strftime for each part of its format, which takes microseconds: a short one cannot exceed the
 * processor-time limit. */
static int os_date(lua_State *L)
{
    enum { FORMAT_BYTES_MAX = 4096 };
    size_t bytes = 0;
    (void)luaL_optlstring(L, 1, "", &bytes);
    luaL_argcheck(L, bytes <= FORMAT_BYTES_MAX, 1, "format longer than 4096 bytes");
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/* os.exit ends the whole server, which a handler rarely means: the log says so. */
static int os_exit(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    if (!state->loading && ls_generation_serves(state->generation)) {
        char line[80];
        ls_task_line(L, line, sizeof line);
        ls_log(LS_LOG_WARN,
               "os.exit%s%s ends the server at once: open requests and connections are closed. ls.stop() ends it in "
               "order",
               line[0] != '\0' ? " at " : "", line);
    }
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

static int os_open(lua_State *L)
{
    luaopen_os(L);
    lua_getfield(L, -1, "date");
    lua_pushcclosure(L, os_date, 1);
    lua_setfield(L, -2, "date");
    lua_getfield(L, -1, "exit");
    lua_pushcclosure(L, os_exit, 1);
    lua_setfield(L, -2, "exit");
    return 1;
}

void ls_libraries_open(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_LOADLIBNAME, luaopen_package},
                                         {LUA_COLIBNAME, luaopen_coroutine},
                                         {LUA_TABLIBNAME, ls_table_open},
                                         {LUA_IOLIBNAME, luaopen_io},
                                         {LUA_OSLIBNAME, os_open},
                                         {LUA_STRLIBNAME, ls_string_open},
                                         {LUA_MATHLIBNAME, math_open},
                                         {LUA_UTF8LIBNAME, luaopen_utf8},
                                         {LUA_DBLIBNAME, luaopen_debug},
                                         {NULL, NULL}};
    for (const luaL_Reg *library = libraries; library->func != NULL; library++) {
        luaL_requiref(L, library->name, library->func, 1);
        lua_pop(L, 1);
    }
}
