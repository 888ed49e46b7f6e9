/* lua_modules.c - see lua_modules.h. */
#include "script/core/lua/lua_modules.h"

#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lualib.h>

#include "base/io/fopen.h"
#include "port/file/image.h"

/* The loader of an embedded module in package.preload. Upvalue: index in ls_lua_modules. */
static int embedded_load(lua_State *L)
{
    const ls_lua_module *module = &ls_lua_modules[lua_tointeger(L, lua_upvalueindex(1))];
    if (luaL_loadbufferx(L, module->bytes, module->len, module->name, "b") != LUA_OK) return lua_error(L);
    lua_pushstring(L, module->name);
    lua_call(L, 1, 1);
    return 1;
}

void ls_lua_modules_preload(lua_State *L, const char *prefix)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    for (size_t n = 0; n < ls_lua_modules_count; n++) {
        if (strncmp(ls_lua_modules[n].name, prefix, strlen(prefix)) != 0) continue;
        lua_pushinteger(L, (lua_Integer)n);
        lua_pushcclosure(L, embedded_load, 1);
        lua_setfield(L, -2, ls_lua_modules[n].name);
    }
    lua_pop(L, 1);
}

static int open_libraries(lua_State *L)
{
    luaL_openlibs(L);
    ls_lua_modules_preload(L, "luaserve");
    return 0;
}

/* (name of a module) -> the module */
static int load_module(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_getfield(L, -1, lua_tostring(L, 1));
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

void ls_push_function(lua_State *L, const char *module, const char *name)
{
    luaL_requiref(L, module, load_module, 0);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

lua_State *ls_lua_modules_state(void)
{
    lua_State *L = luaL_newstate();
    if (L == NULL) return NULL;
    lua_pushcfunction(L, open_libraries);
    if (lua_pcall(L, 0, 0, 0) == LUA_OK) return L;
    lua_close(L);
    return NULL;
}

size_t ls_lua_modules_directory(const char *file)
{
    size_t len = strlen(file);
    while (len > 0 && strchr("/" LUA_DIRSEP, file[len - 1]) == NULL) len--;
    return len;
}

/* Push the directory of `file`: "." when the name has none. */
static const char *push_directory(lua_State *L, const char *file)
{
    size_t len = ls_lua_modules_directory(file);
    if (len > 1) len--; /* drop the separator, unless the directory is "/" */
    return len > 0 ? lua_pushlstring(L, file, len) : lua_pushliteral(L, ".");
}

static bool exists(lua_State *L, const char *path, ls_lua_modules_cached_fn *kept)
{
    if ((kept != NULL && kept(L, path)) || ls_image_has_file(path)) return true;
    FILE *file = ls_fopen(path, "r");
    if (file != NULL) (void)fclose(file);
    return file != NULL;
}

typedef struct beside_with { /* a full userdata: upvalue 3 */
    ls_lua_modules_cached_fn *kept;
} beside_with;

/* loadfile and dofile with the directory of the site. Upvalue 1: the function of the library; upvalue 2: the
 * directory. A relative name of a file that exists there is replaced. */
static int beside_finished(lua_State *L, int status, lua_KContext context)
{
    return lua_gettop(L);
}

static int beside(lua_State *L)
{
    const char *name = lua_type(L, 1) == LUA_TSTRING ? lua_tostring(L, 1) : NULL;
    if (name != NULL && !ls_file_is_absolute(name)) {
        lua_pushfstring(L, "%s/%s", lua_tostring(L, lua_upvalueindex(2)), name);
        const beside_with *with = lua_touserdata(L, lua_upvalueindex(3));
        if (ls_image_site() != NULL || exists(L, lua_tostring(L, -1), with->kept))
            lua_replace(L, 1);
        else
            lua_pop(L, 1);
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, beside_finished); /* the file may wait */
    return beside_finished(L, LUA_OK, 0);
}

void ls_lua_modules_path(lua_State *L, const char *file, ls_lua_modules_cached_fn *kept)
{
    static const char *const functions[] = {"dofile", "loadfile"};
    lua_getglobal(L, "package");
    const char *dir = push_directory(L, file);
    const bool packed = ls_image_site() != NULL; /* then no module is taken from the working directory */
    lua_getfield(L, -2, packed ? "cpath" : "path");
    if (packed) {
        const char *own = lua_pushfstring(L, ";%s/?", dir);
        luaL_gsub(L, lua_tostring(L, -2), ";." LUA_DIRSEP "?", own);
        lua_setfield(L, -5, "cpath");
        lua_pop(L, 1);
    }
    lua_pushfstring(L, packed ? "%s/?.lua;%s/?/init.lua" : "%s/?.lua;%s/?/init.lua;%s", dir, dir, lua_tostring(L, -1));
    lua_setfield(L, -4, "path");
    lua_pop(L, 1);
    for (size_t n = 0; n < sizeof functions / sizeof functions[0] && strcmp(dir, ".") != 0; n++) {
        lua_getglobal(L, functions[n]);
        lua_pushvalue(L, -2);
        beside_with *with = lua_newuserdatauv(L, sizeof *with, 0);
        with->kept = kept;
        lua_pushcclosure(L, beside, 3);
        lua_setglobal(L, functions[n]);
    }
    lua_pop(L, 2);
}
