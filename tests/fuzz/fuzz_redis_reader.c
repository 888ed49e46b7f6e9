/* fuzz_redis_reader.c - properties of the reader of Redis replies for any bytes: in one piece and in pieces they give the
 * same values, and an error in both cases or in none; no reply is longer than the limit; all memory is freed. */
#include "fuzz.h"

#include <lauxlib.h>

#include "base/err.h"
#include "port/port.h"
#include "script/bind/redis/redis_reader.h"

enum { REPLY_BYTES_MAX = 300, PARTIAL = 1, TEXTS = 2 };

typedef struct text_buffer {
    char bytes[4 * REPLY_BYTES_MAX];
    size_t len;
} text_buffer;

static void add_bytes(text_buffer *text, const char *bytes, size_t len)
{
    FUZZ_HOLDS(len <= sizeof text->bytes - text->len);
    memcpy(text->bytes + text->len, bytes, len);
    text->len += len;
}

/* Add the value on top as text. */
static void add_value(lua_State *L, text_buffer *text, int level)
{
    size_t len;
    FUZZ_HOLDS(level <= LS_REDIS_LEVELS_MAX);
    luaL_checkstack(L, 4, NULL);
    if (lua_isnil(L, -1)) {
        add_bytes(text, "-", 1);
    } else if (lua_isboolean(L, -1)) {
        add_bytes(text, "0", 1);
    } else if (!lua_istable(L, -1)) {
        const char *bytes = luaL_tolstring(L, -1, &len);
        add_bytes(text, bytes, len);
        add_bytes(text, ",", 1);
        lua_pop(L, 1);
    } else {
        const bool is_error = lua_getfield(L, -1, "err") == LUA_TSTRING;
        if (is_error) add_value(L, text, level);
        lua_pop(L, 1);
        add_bytes(text, "(", 1);
        for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, -1); n <= count; n++) {
            FUZZ_HOLDS(lua_rawgeti(L, -1, n) != LUA_TNIL && !is_error);
            add_value(L, text, level + 1);
            lua_pop(L, 1);
        }
        add_bytes(text, ")", 1);
    }
}

/* Read the bytes in pieces of `step` bytes; the values are added to the list at TEXTS. Returns whether the reader has
 * failed. */
static bool read_all(lua_State *L, const char *data, size_t size, size_t step)
{
    ls_redis_reader *reader = ls_redis_reader_open();
    int result = LS_PENDING;
    FUZZ_HOLDS(reader != NULL);
    for (size_t at = 0; at < size && result == LS_PENDING; at += step) {
        const size_t len = size - at < step ? size - at : step;
        char *piece = fuzz_copy_exact(data + at, len);
        bool is_error;
        FUZZ_HOLDS(ls_redis_reader_feed(reader, piece, len) == LS_OK);
        free(piece);
        while ((result = ls_redis_reader_next(L, reader, PARTIAL, REPLY_BYTES_MAX, &is_error)) == LS_DONE) {
            text_buffer text = {.len = 0};
            FUZZ_HOLDS(lua_gettop(L) == TEXTS + 1);
            FUZZ_HOLDS(!is_error || lua_type(L, -1) == LUA_TSTRING);
            FUZZ_HOLDS(lua_rawgeti(L, PARTIAL, -1) != LUA_TTABLE); /* its user alone keeps the array */
            lua_pop(L, 1);
            add_value(L, &text, 0);
            lua_pushlstring(L, text.bytes, text.len);
            lua_rawseti(L, TEXTS, (lua_Integer)lua_rawlen(L, TEXTS) + 1);
            lua_settop(L, TEXTS);
        }
        lua_settop(L, TEXTS);
    }
    FUZZ_HOLDS(result == LS_PENDING || result == LS_EPROTO || result == LS_EMSGSIZE);
    FUZZ_HOLDS(ls_redis_reader_why(reader) != NULL);
    ls_redis_reader_close(reader);
    return result != LS_PENDING;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lua_State *L = luaL_newstate();
    FUZZ_HOLDS(L != NULL);
    bool failed[2];
    for (int run = 0; run < 2; run++) {
        lua_settop(L, 0);
        lua_newtable(L);
        lua_newtable(L);
        failed[run] = read_all(L, (const char *)data, size, run == 0 || size == 0 ? size + 1 : 1 + data[0] % 7u);
        lua_pushvalue(L, TEXTS);
        lua_setfield(L, LUA_REGISTRYINDEX, run == 0 ? "whole" : "pieces");
    }
    FUZZ_HOLDS(failed[0] == failed[1]);
    lua_settop(L, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, "whole");
    lua_getfield(L, LUA_REGISTRYINDEX, "pieces");
    FUZZ_HOLDS(lua_rawlen(L, 1) == lua_rawlen(L, 2));
    for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, 1); n <= count; n++) {
        lua_rawgeti(L, 1, n);
        lua_rawgeti(L, 2, n);
        FUZZ_HOLDS(lua_rawequal(L, 3, 4));
        lua_settop(L, 2);
    }
    lua_close(L);
    return 0;
}
