/* fuzz_json.c - properties of the JSON decoder and encoder for any text: a value that is decoded can be encoded and
 * decoded again, and the second text is the same; numbers keep their type; all memory is freed. */
#include "fuzz.h"

#include <math.h>
#include <stdbool.h>

#include <lauxlib.h>
#include <lualib.h>

#include "script/bind/value/json.h"

enum { BYTES_MAX = 64 << 20, CASES_MAX = 1000 }; /* CASES_MAX: a new state, so that a leak is found */

static size_t live;

static void *counted(void *user, void *ptr, size_t old_size, size_t new_size)
{
    (void)user;
    if (ptr == NULL) old_size = 0;
    if (new_size == 0) {
        live -= old_size;
        free(ptr);
        return NULL;
    }
    if (new_size > old_size && live - old_size + new_size > BYTES_MAX) return NULL;
    void *moved = realloc(ptr, new_size);
    if (moved != NULL) live += new_size - old_size;
    return moved;
}

static lua_State *open_state(void)
{
    lua_State *L = lua_newstate(counted, NULL);
    FUZZ_HOLDS(L != NULL);
    luaL_requiref(L, LUA_GNAME, luaopen_base, 1);
    luaL_requiref(L, "cjson", ls_cjson_open, 1);
    FUZZ_HOLDS(!luaL_dostring(L, "cjson.decode_invalid_numbers(false) cjson.encode_sparse_array(true)"));
    lua_getfield(L, 2, "encode");
    lua_getfield(L, 2, "decode");
    return L;
}

/* Push encode or decode of the value at `index`. */
static bool call(lua_State *L, int function, int index)
{
    lua_pushvalue(L, function);
    lua_pushvalue(L, index);
    return lua_pcall(L, 1, 1, 0) == LUA_OK;
}

/* Whether both are equal in value and type. */
static bool same(lua_State *L, int a, int b)
{
    if (lua_type(L, a) != lua_type(L, b)) return false;
    if (lua_type(L, a) == LUA_TNUMBER)
        return lua_isinteger(L, a) == lua_isinteger(L, b) && lua_compare(L, a, b, LUA_OPEQ) &&
               signbit(lua_tonumber(L, a)) == signbit(lua_tonumber(L, b));
    if (lua_type(L, a) != LUA_TTABLE) return lua_rawequal(L, a, b);
    size_t count = 0, others = 0;
    luaL_checkstack(L, 8, NULL);
    for (lua_pushnil(L); lua_next(L, a); lua_pop(L, 1), count++) {
        lua_pushvalue(L, -2);
        lua_rawget(L, b);
        const bool equal = same(L, lua_gettop(L) - 1, lua_gettop(L));
        lua_pop(L, 1);
        if (!equal) {
            lua_pop(L, 2);
            return false;
        }
    }
    for (lua_pushnil(L); lua_next(L, b); lua_pop(L, 1)) others++;
    return count == others;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lua_State *L;
    static unsigned cases;
    if (L == NULL) L = open_state();
    lua_settop(L, 4); /* base, cjson, encode, decode */
    lua_pushlstring(L, (const char *)data, size);
    if (call(L, 4, 5)) {
        if (call(L, 3, 6)) {           /* 7: the text */
            FUZZ_HOLDS(call(L, 4, 7)); /* 8 */
            FUZZ_HOLDS(same(L, 6, 8));
            FUZZ_HOLDS(call(L, 3, 8));                                 /* 9 */
            if (!lua_istable(L, 8)) FUZZ_HOLDS(lua_rawequal(L, 7, 9)); /* tables: in another order */
            FUZZ_HOLDS(lua_rawlen(L, 7) == lua_rawlen(L, 9));
        } else { /* a number past the range of a float; deeper than encode allows is not possible */
            FUZZ_HOLDS(strstr(lua_tostring(L, -1), "NaN or Inf") != NULL);
        }
    } else {
        FUZZ_HOLDS(lua_isstring(L, -1));
    }
    lua_settop(L, 4);
    if (++cases % CASES_MAX == 0 || size == 0) {
        lua_close(L);
        L = NULL;
        FUZZ_HOLDS(live == 0);
    }
    return 0;
}
