/* mute.c - see mute.h. */
#include "script/core/mute.h"

#include "base/io/output.h"

/* print(...), as in the library of Lua, but the line is written at once and whole, so that the lines of several
 * threads do not mix; and a reader of standard output that does not read does not stop it. */
static int quiet_print(lua_State *L)
{
    const int count = lua_gettop(L);
    size_t bytes;
    const char *line;
    const ls_state *state = ls_state_of(L);
    if (ls_mute_is(state)) return 0;
    luaL_checkstack(L, 2 * count + LUA_MINSTACK, "print: too many arguments");
    for (int i = 1; i <= count; i++) {
        luaL_tolstring(L, i, NULL);
        lua_pushstring(L, i < count ? "\t" : "\n");
    }
    if (count == 0) lua_pushliteral(L, "\n");
    lua_concat(L, lua_gettop(L) - count);
    line = lua_tolstring(L, -1, &bytes);
    (void)fflush(ls_output_stdio()); /* the text of io.write before it */
    ls_output_write(LS_OUTPUT_STDOUT, line, bytes, state->loading || ls_output_waits());
    return 0;
}

void ls_mute_define(lua_State *L)
{
    lua_pushcfunction(L, quiet_print);
    lua_setglobal(L, "print");
    lua_getglobal(L, "io");
    lua_getfield(L, -1, "stdout");
    luaL_Stream *out = luaL_checkudata(L, -1, LUA_FILEHANDLE);
    out->f = ls_output_stdio();
    lua_pop(L, 2);
}

void ls_mute_begin(lua_State *L, FILE *null, ls_mute *quiet)
{
    static const char *const names[LS_MUTE_STREAMS] = {"stdout", "stderr"};
    lua_getglobal(L, "io");
    for (int n = 0; n < LS_MUTE_STREAMS; n++) {
        lua_getfield(L, -1 - n, names[n]);
        quiet->streams[n] = luaL_checkudata(L, -1, LUA_FILEHANDLE);
    }
    lua_remove(L, -1 - LS_MUTE_STREAMS);
    for (int n = 0; n < LS_MUTE_STREAMS && null != NULL; n++) {
        quiet->files[n] = quiet->streams[n]->f;
        quiet->streams[n]->f = null;
    }
}

void ls_mute_end(ls_mute *quiet)
{
    for (int n = 0; n < LS_MUTE_STREAMS; n++)
        if (quiet->files[n] != NULL) quiet->streams[n]->f = quiet->files[n];
}
