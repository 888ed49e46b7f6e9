/* modules.c - see modules.h. */
#include "script/modules.h"

#include <lauxlib.h>
#include <lualib.h>
#include <stdint.h>
#include <string.h>

/* The loader of an embedded module in package.preload. Upvalue 1: index in ls_modules; upvalue 2: the bytecode
 * cache. */
static int embedded_load(lua_State *L)
{
    const size_t number = (size_t)lua_tointeger(L, lua_upvalueindex(1));
    ls_bytecode *const *bytecode = lua_touserdata(L, lua_upvalueindex(2));
    ls_bytecode_push(L, bytecode != NULL ? *bytecode : NULL, number);
    lua_pushstring(L, ls_modules[number].name);
    lua_call(L, 1, 1);
    return 1;
}

void ls_modules_preload(lua_State *L, const char *prefix, ls_bytecode *const *bytecode)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    for (size_t n = 0; n < ls_modules_count; n++) {
        if (strncmp(ls_modules[n].name, prefix, strlen(prefix)) != 0) continue;
        lua_pushinteger(L, (lua_Integer)n);
        lua_pushlightuserdata(L, (void *)(uintptr_t)bytecode);
        lua_pushcclosure(L, embedded_load, 2);
        lua_setfield(L, -2, ls_modules[n].name);
    }
    lua_pop(L, 1);
}

size_t ls_modules_directory(const char *file)
{
    size_t len = strlen(file);
    while (len > 0 && strchr("/" LUA_DIRSEP, file[len - 1]) == NULL) len--;
    return len;
}

void ls_modules_path(lua_State *L, const char *file)
{
    size_t len = ls_modules_directory(file);
    if (len > 1) len--; /* drop the separator, unless the directory is "/" */
    lua_getglobal(L, "package");
    const char *dir = len > 0 ? lua_pushlstring(L, file, len) : lua_pushliteral(L, ".");
    lua_getfield(L, -2, "path");
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", dir, dir, lua_tostring(L, -1));
    lua_setfield(L, -4, "path");
    lua_pop(L, 3);
}
