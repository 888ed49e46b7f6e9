/* libraries.c - see libraries.h. */
#include "script/core/libraries.h"

#include <lauxlib.h>
#include <lualib.h>

void ls_libraries_open(lua_State *L)
{
    static const luaL_Reg libraries[] = {{LUA_GNAME, luaopen_base},
                                         {LUA_LOADLIBNAME, luaopen_package},
                                         {LUA_COLIBNAME, luaopen_coroutine},
                                         {LUA_TABLIBNAME, ls_table_open},
                                         {LUA_IOLIBNAME, luaopen_io},
                                         {LUA_OSLIBNAME, luaopen_os},
                                         {LUA_STRLIBNAME, ls_string_open},
                                         {LUA_MATHLIBNAME, luaopen_math},
                                         {LUA_UTF8LIBNAME, luaopen_utf8},
                                         {LUA_DBLIBNAME, luaopen_debug},
                                         {NULL, NULL}};
    for (const luaL_Reg *library = libraries; library->func != NULL; library++) {
        luaL_requiref(L, library->name, library->func, 1);
        lua_pop(L, 1);
    }
}
