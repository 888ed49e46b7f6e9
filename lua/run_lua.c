/* run_lua.c - runs a Lua script while luaserve is built: run_lua SCRIPT ARGUMENT... */
#include <stdio.h>

#include <lauxlib.h>
#include <lualib.h>

int main(int argc, char **argv)
{
    lua_State *L = luaL_newstate();
    if (L == NULL || argc < 2) return 2;
    luaL_openlibs(L);
    lua_createtable(L, argc, 0);
    for (int i = 1; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - 1);
    }
    lua_setglobal(L, "arg");
    const int failed = luaL_dofile(L, argv[1]);
    if (failed) fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_close(L);
    return failed;
}
