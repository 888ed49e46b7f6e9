/* json.c - see json.h: cjson in a Lua state. */
#include "script/bind/json.h"

#include <lauxlib.h>

static void json_define(lua_State *L, ls_state *state)
{
    ls_json *json = ls_state_data(state, LS_SLOT_json);
    luaL_requiref(L, "cjson", ls_cjson_open, 0);
    lua_getfield(L, -1, "encode");
    (void)lua_getupvalue(L, -1, 1);
    lua_pushinteger(L, LS_STRING_SHARED_MIN);
    lua_pushcclosure(L, ls_cjson_encode_body, 2);
    json->encode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    lua_getfield(L, -1, "decode");
    json->decode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, ls_cjson_safe_open);
    lua_setfield(L, -2, "cjson.safe");
    lua_pop(L, 1);
}

const ls_module ls_json_module = {.name = "json", .bytes = sizeof(ls_json), .define = json_define};
