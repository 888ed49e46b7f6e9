/* fuzz_marshal.c - properties of copies of Lua values: the input is a program that builds a value; its copy has the same
 * content, types and sizes as the value, a copy of the copy as well, and a limit of bytes below its size refuses it. */
#include "fuzz.h"

#include <stdbool.h>

#include <lauxlib.h>
#include <lualib.h>

#include "base/err.h"
#include "script/store/copy.h"
#include "script/store/marshal.h"

typedef struct input {
    const uint8_t *at, *end;
} input;

static unsigned take(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* Push the value that the next bytes describe. */
static void build(lua_State *L, input *in, unsigned depth)
{
    luaL_checkstack(L, 8, NULL);
    switch (take(in) % 8) {
    case 0: lua_pushnil(L); break;
    case 1: lua_pushboolean(L, (int)(take(in) & 1)); break;
    case 2: lua_pushinteger(L, (lua_Integer)(int8_t)take(in)); break;
    case 3: lua_pushinteger(L, (lua_Integer)((uint64_t)take(in) << (take(in) % 64))); break;
    case 4: lua_pushnumber(L, (double)take(in) / 7); break;
    case 5: {
        size_t len = take(in);
        if (len > (size_t)(in->end - in->at)) len = (size_t)(in->end - in->at);
        lua_pushlstring(L, (const char *)in->at, len);
        in->at += len;
        break;
    }
    case 6: lua_pushlightuserdata(L, NULL); break;
    default: {
        const unsigned count = depth < 150 ? take(in) % 32 : 0;
        lua_newtable(L);
        for (unsigned n = 0; n < count && in->at < in->end; n++) {
            if (take(in) & 1)
                lua_pushinteger(L, (lua_Integer)n + 1);
            else
                build(L, in, 1000);
            build(L, in, depth + 1);
            if (lua_isnil(L, -2) || lua_type(L, -2) == LUA_TTABLE || lua_type(L, -2) == LUA_TLIGHTUSERDATA)
                lua_pop(L, 2);
            else
                lua_rawset(L, -3);
        }
    }
    }
}

/* Whether both are equal in value and type. b may be a read-only copy. */
static bool same(lua_State *L, int a, int b)
{
    const int top = lua_gettop(L);
    size_t count = 0, others = 0;
    if (lua_type(L, a) != lua_type(L, b)) return false;
    if (lua_type(L, a) == LUA_TNUMBER && lua_isinteger(L, a) != lua_isinteger(L, b)) return false;
    if (lua_type(L, a) != LUA_TTABLE) return lua_rawequal(L, a, b);
    luaL_checkstack(L, 8, NULL);
    if (ls_copy_content(L, b)) b = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, a); lua_pop(L, 1), count++) {
        lua_pushvalue(L, -2);
        lua_rawget(L, b);
        const bool equal = same(L, lua_gettop(L) - 1, lua_gettop(L));
        lua_pop(L, 1);
        if (!equal) return false;
    }
    for (lua_pushnil(L); lua_next(L, b); lua_pop(L, 1)) others++;
    lua_settop(L, top);
    return count == others;
}

static int run(lua_State *L)
{
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_value *value = NULL, *again = NULL;
    build(L, lua_touserdata(L, 1), 0);
    const int err = ls_value_pack(L, 2, NULL, &value, message, sizeof message);
    if (err != LS_OK) {
        FUZZ_HOLDS(err == LS_ELIMIT && strstr(message, "100 levels") != NULL);
        return 0;
    }
    ls_value_options options = {.bytes_max = ls_value_bytes(value)};
    ls_value_push(L, value);      /* 3 */
    ls_value_push_copy(L, value); /* 4 */
    FUZZ_HOLDS(same(L, 2, 3));
    FUZZ_HOLDS(same(L, 2, 4));
    FUZZ_HOLDS(ls_value_pack(L, 4, NULL, &again, message, sizeof message) == LS_OK);
    ls_value_give(L, again, false); /* 5 */
    FUZZ_HOLDS(same(L, 2, 5));
    FUZZ_HOLDS(ls_value_pack(L, 2, &options, &again, message, sizeof message) == LS_OK);
    ls_value_drop(again);
    options.bytes_max--;
    FUZZ_HOLDS(ls_value_pack(L, 2, &options, &again, message, sizeof message) == LS_EMSGSIZE);
    ls_value_drop(value);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, data + size};
    lua_State *L = luaL_newstate();
    FUZZ_HOLDS(L != NULL);
    luaL_requiref(L, LUA_GNAME, luaopen_base, 1);
    ls_copy_define(L);
    lua_settop(L, 0);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, &in);
    FUZZ_HOLDS(lua_pcall(L, 1, 0, 0) == LUA_OK);
    lua_close(L);
    return 0;
}
