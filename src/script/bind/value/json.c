/* json.c - see json.h: cjson in a Lua state. */
#include "script/bind/value/json.h"

#include <stdlib.h>
#include <string.h>

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

typedef struct key_text {
    const char *ptr;
    size_t len;
    lua_Integer key; /* its number in the list */
} key_text;

static int compare_texts(const void *left, const void *right)
{
    const key_text *a = left, *b = right;
    const int order = memcmp(a->ptr, b->ptr, a->len < b->len ? a->len : b->len);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

lua_Integer ls_cjson_push_sorted(lua_State *L)
{
    lua_Integer n = 0;
    luaL_checkstack(L, 6, NULL);
    lua_newtable(L); /* keys, and their texts at the negative indices */
    for (lua_pushnil(L); lua_next(L, -3); n++) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, n + 1);
        (void)luaL_tolstring(L, -1, NULL);
        lua_rawseti(L, -3, -n - 1);
    }
    key_text *texts = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *texts, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, -2, -i);
        texts[i - 1].ptr = lua_tolstring(L, -1, &texts[i - 1].len);
        texts[i - 1].key = i;
        lua_pop(L, 1);
    }
    qsort(texts, (size_t)n, sizeof *texts, compare_texts);
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, -3, texts[i - 1].key);
        lua_rawseti(L, -2, i);
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
    return n;
}

void ls_json_add_utf8(lua_State *L)
{
    for (int sorted = 0; sorted < 2; sorted++) {
        lua_getfield(L, -1, "encode");
        (void)lua_getupvalue(L, -1, 1);
        lua_pushboolean(L, 1);
        lua_pushboolean(L, sorted);
        lua_pushcclosure(L, lua_tocfunction(L, -4), 3);
        lua_setfield(L, -3, sorted ? "encode_sorted" : "encode_utf8");
        lua_pop(L, 1);
    }
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
