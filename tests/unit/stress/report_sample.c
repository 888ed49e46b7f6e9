/* report_sample.c - writes the reports of a simulated run, for tests of the reports in other languages. The rest of it
 * is report_sample.lua.
 *
 * usage: report_sample report_sample.lua KIND text|json|csv|html   the report on stdout; KIND as in samples.lua
 *        report_sample report_sample.lua view N                    the live view on stderr: N ticks of an open run.
 *                                                                  After
 *                                                   each tick it waits for a byte on stdin, so the test controls the
 *                                                   time. Then it closes the view and prints "done" on stdout */
#include <stdio.h>

#include <lauxlib.h>

#include "sample_object.h"
#include "script/core/lua/lua_modules.h"
#include "stress/engine.h"

int main(int argc, char **argv)
{
    lua_State *L = ls_lua_modules_state();
    if (L == NULL || argc != 4 || luaL_loadfile(L, argv[1]) != LUA_OK) {
        fprintf(stderr,
                "usage: report_sample report_sample.lua KIND FORMAT | report_sample report_sample.lua view TICKS\n");
        return 2;
    }
    ls_lua_modules_path(L, argv[1], NULL);
    ls_sample_push(L);
    lua_pushcfunction(L, ls_stress_terminal_push);
    lua_pushlstring(L, (const char *)ls_stress_page, ls_stress_page_len);
    lua_pushstring(L, argv[2]);
    lua_pushstring(L, argv[3]);
    if (lua_pcall(L, 5, 1, 0) != LUA_OK) fprintf(stderr, "%s\n", lua_tostring(L, -1));
    const int status = lua_isinteger(L, -1) ? (int)lua_tointeger(L, -1) : 2;
    lua_close(L);
    return status;
}
