/* preload.c - see preload.h. */
#include "script/site/preload.h"

#include <string.h>

#include <lauxlib.h>

#include "script/bind/value/json.h"

static int open_cjson(lua_State *L)
{
    (void)ls_cjson_open(L);
    const int module = lua_gettop(L);
    ls_json_add_utf8(L);
    lua_settop(L, module);
    return 1;
}

static int open_core(lua_State *L)
{
    static const ls_module *const modules[] = {&ls_core_module, &ls_text_module, &ls_crypto_module, &ls_dict_module};
    static const char names[] = " percent_decode url_encode crypto_encode crypto_decode dict_content ";
    lua_newtable(L);
    for (size_t n = 0; n < sizeof modules / sizeof modules[0]; n++)
        for (const luaL_Reg *f = modules[n]->functions; f->name != NULL; f++) {
            lua_pushcfunction(L, f->func);
            if (strstr(names, lua_pushfstring(L, " %s ", f->name)) != NULL) {
                lua_pushvalue(L, -2);
                lua_setfield(L, -4, f->name);
            }
            lua_pop(L, 2);
        }
    return 1;
}

void ls_site_preload(lua_State *L)
{
    static const luaL_Reg open[] = {
        {"cjson", open_cjson}, {"cjson.safe", ls_cjson_safe_open}, {"luaserve.core", open_core}, {NULL, NULL}};
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    luaL_setfuncs(L, open, 0);
    lua_pop(L, 1);
}
