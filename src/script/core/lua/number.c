/* number.c - see number.h. */
#include "script/core/lua/number.h"

#include <cjson_number.h>
#include <math.h>
#include <string.h>

_Static_assert(LS_NUMBER_BYTES >= FPCONV_G_FMT_BUFSIZE, "room for a number");

size_t ls_number_write(char to[LS_NUMBER_BYTES], lua_State *L, int index, bool whole)
{
    const lua_Number number = lua_tonumber(L, index);
    const lua_Integer integer = lua_tointeger(L, index);
    if (lua_isinteger(L, index) || (whole && (lua_Number)integer == number)) return ls_cjson_write_integer(to, integer);
    if (isnan(number)) { /* printf may write "-nan" */
        memcpy(to, "nan", 3);
        return 3;
    }
    return ls_cjson_write_float(to, number, FPCONV_SHORTEST);
}

const char *ls_number_tolstring(lua_State *L, int index, size_t *len)
{
    char text[LS_NUMBER_BYTES];
    if (lua_type(L, index) == LUA_TNUMBER && !lua_isinteger(L, index)) {
        index = lua_absindex(L, index);
        lua_pushlstring(L, text, ls_number_write(text, L, index, false));
        lua_replace(L, index);
    }
    return lua_tolstring(L, index, len);
}
