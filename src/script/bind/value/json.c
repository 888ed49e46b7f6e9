/* json.c - see json.h: cjson in a Lua state. */
#include "script/bind/value/json.h"

#include <cjson_buffer.h>
#include <lauxlib.h>

#include "base/utf8.h"
#include "script/bind/bind_aux.h"

static inline void push_encode(lua_State *L, int index)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_json_of(ls_state_of(L))->encode_ref);
    lua_pushvalue(L, index);
}

/* The result of the encoder is on top. */
static inline bool take_encoded(lua_State *L, int index, ls_slice *text)
{
    strbuf_t *buffer = lua_touserdata(L, -1);
    lua_pop(L, 1);
    *text = (ls_slice){NULL, buffer->buf, buffer->length};
    if (text->len < LS_STRING_SHARED_MIN) return true;
    ls_cjson_strbuf_push(buffer);
    lua_replace(L, index);
    return false;
}

bool ls_json_encode(lua_State *L, int index, ls_slice *text)
{
    push_encode(L, index);
    lua_call(L, 1, 1);
    return take_encoded(L, index, text);
}

bool ls_json_encode_in(lua_State *L, int index, const char *call, ls_slice *text)
{
    push_encode(L, index);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) luaL_error(L, "%s: %s", call, luaL_tolstring(L, -1, NULL));
    return take_encoded(L, index, text);
}

/* (text) -> value. The upvalue: cjson.decode, which takes any bytes in strings. */
static int decode_utf8(lua_State *L)
{
    const ls_text text = ls_check_text(L, 1);
    if (!ls_utf8_valid(text.ptr, text.len)) return luaL_error(L, "JSON must be UTF-8"); /* RFC 8259 section 8.1 */
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

static int push_explanation(lua_State *L) /* (value) */
{
    ls_push_function(L, "luaserve.json_fault", "explain");
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

void ls_cjson_refuse(lua_State *L, const char *type, const char *reason)
{
    luaL_checkstack(L, 3, NULL);
    lua_pushcfunction(L, push_explanation);
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) == LUA_OK && lua_isstring(L, -1)) (void)lua_error(L);
    (void)luaL_error(L, "%s: %s", type, reason); /* without the modules of luaserve, or memory */
}

void ls_json_add_utf8(lua_State *L)
{
    lua_getfield(L, -1, "encode");
    (void)lua_getupvalue(L, -1, 1);
    lua_pushboolean(L, 1);
    lua_pushcclosure(L, lua_tocfunction(L, -3), 2);
    lua_setfield(L, -3, "encode_utf8");
    lua_pop(L, 1);
    lua_getfield(L, -1, "decode");
    lua_pushcclosure(L, decode_utf8, 1);
    lua_setfield(L, -2, "decode_utf8");
}

static void json_define(lua_State *L, ls_state *state)
{
    ls_json *json = ls_state_data(state, LS_SLOT_json);
    luaL_requiref(L, "cjson", ls_cjson_open, 0);
    lua_getfield(L, -1, "encode");
    (void)lua_getupvalue(L, -1, 1);
    lua_pushcclosure(L, ls_cjson_encode_body, 1);
    json->encode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    ls_json_add_utf8(L);
    lua_getfield(L, -1, "decode_utf8");
    json->decode_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pop(L, 1);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    ls_set_function(L, "cjson.safe", ls_cjson_safe_open);
    lua_pop(L, 1);
}

const ls_module ls_json_module = {.name = "json", .bytes = sizeof(ls_json), .define = json_define};
