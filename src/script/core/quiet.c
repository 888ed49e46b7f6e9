/* quiet.c - see quiet.h. */
#include "script/core/quiet.h"

/* print(...). Upvalue 1: the function of the library. */
static int quiet_print(lua_State *L)
{
    if (ls_quiet_is(ls_state_of(L))) return 0;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

void ls_quiet_define(lua_State *L)
{
    lua_getglobal(L, "print");
    lua_pushcclosure(L, quiet_print, 1);
    lua_setglobal(L, "print");
}

void ls_quiet_begin(lua_State *L, FILE *null, ls_quiet *quiet)
{
    static const char *const names[LS_QUIET_STREAMS] = {"stdout", "stderr"};
    lua_getglobal(L, "io");
    for (int n = 0; n < LS_QUIET_STREAMS; n++) {
        lua_getfield(L, -1 - n, names[n]);
        quiet->streams[n] = luaL_checkudata(L, -1, LUA_FILEHANDLE);
    }
    lua_remove(L, -1 - LS_QUIET_STREAMS);
    for (int n = 0; n < LS_QUIET_STREAMS && null != NULL; n++) {
        quiet->files[n] = quiet->streams[n]->f;
        quiet->streams[n]->f = null;
    }
}

void ls_quiet_end(ls_quiet *quiet)
{
    for (int n = 0; n < LS_QUIET_STREAMS; n++)
        if (quiet->files[n] != NULL) quiet->streams[n]->f = quiet->files[n];
}
