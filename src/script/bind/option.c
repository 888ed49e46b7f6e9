/* option.c - see option.h. */
#include "script/bind/option.h"

#include <string.h>

#include <lauxlib.h>

#include "script/bind/bind_aux.h"
#include "script/store/copy.h"

/* Set an unsigned integer of 1, 2, 4 or 8 bytes. */
static void set_number(void *to, size_t bytes, uint64_t value)
{
    switch (bytes) {
    case 1: *(uint8_t *)to = (uint8_t)value; break;
    case 2: *(uint16_t *)to = (uint16_t)value; break;
    case 4: *(uint32_t *)to = (uint32_t)value; break;
    default: *(uint64_t *)to = value; break;
    }
}

/* The value is on top of the stack; `to` is the field, `call` begins messages. */
static void read_number(lua_State *L, const char *call, const ls_option *o, void *to)
{
    const uint64_t most = o->max > 0 ? o->max : UINT64_MAX >> (64 - 8 * o->bytes);
    int whole;
    const uint64_t value = (uint64_t)lua_tointegerx(L, -1, &whole);
    if (!whole || value > most)
        luaL_error(L, "%s%s must be a whole number from 0 to %I; got %s", call, o->name, (lua_Integer)most,
                   luaL_tolstring(L, -1, NULL));
    set_number(to, o->bytes, value);
}

static double read_float(lua_State *L, const char *call, const ls_option *o)
{
    if (lua_type(L, -1) != LUA_TNUMBER)
        luaL_error(L, "%s%s must be a number; got a %s", call, o->name, luaL_typename(L, -1));
    return lua_tonumber(L, -1);
}

/* The string without NUL on top of the stack. */
static const char *check_text(lua_State *L, const char *call, const ls_option *o)
{
    size_t len = 0;
    const char *text = lua_tolstring(L, -1, &len);
    if (text == NULL || strlen(text) != len) luaL_error(L, "%s%s must be a string without NUL", call, o->name);
    return text;
}

static void read_text(lua_State *L, const char *call, const ls_option *o, char *to)
{
    const char *text = check_text(L, call, o);
    const size_t len = strlen(text), most = o->max > 0 ? o->max : o->bytes - 1u;
    if (len > most) luaL_error(L, "%s%s must be a string of at most %d bytes", call, o->name, (int)most);
    memcpy(to, text, len + 1);
}

/* A string that was made of a number would not be held by the table. */
static const char *read_string(lua_State *L, const char *call, const ls_option *o)
{
    if (lua_type(L, -1) == LUA_TNUMBER) luaL_error(L, "%s%s must be a string; got a number", call, o->name);
    return o->kind == LS_OPTION_BYTES ? lua_tostring(L, -1) : check_text(L, call, o);
}

/* `index`: the table, absolute. */
static const char *read_path(lua_State *L, const char *call, int index, const ls_option *o)
{
    (void)check_text(L, call, o);
    const char *path = ls_push_site_path(L, -1);
    lua_setfield(L, index, o->name); /* which holds it */
    return path;
}

static void read_all(lua_State *L, const char *call, int index, const ls_option *o, void *out)
{
    index = lua_absindex(L, index);
    luaL_checkstack(L, 4, NULL);
    for (; o->name != NULL; o++) {
        void *to = (char *)out + o->offset;
        if (lua_getfield(L, index, o->name) != LUA_TNIL) switch ((enum ls_option_kind)o->kind) {
            case LS_OPTION_NUMBER: read_number(L, call, o, to); break;
            case LS_OPTION_FLOAT: *(double *)to = read_float(L, call, o); break;
            case LS_OPTION_FLAG: *(bool *)to = lua_toboolean(L, -1); break;
            case LS_OPTION_TEXT: read_text(L, call, o, to); break;
            case LS_OPTION_STRING:
            case LS_OPTION_BYTES: *(const char **)to = read_string(L, call, o); break;
            case LS_OPTION_PATH: *(const char **)to = read_path(L, call, index, o); break;
            }
        lua_pop(L, 1);
    }
}

void ls_options_read(lua_State *L, int index, const ls_option *options, void *out)
{
    read_all(L, "", index, options, out);
}

/* Raise: the table at `given` has a key that names no option. */
static void refuse_names(lua_State *L, const char *call, const ls_option *options, int given)
{
    ls_push_function(L, "luaserve.options", "check_names");
    lua_pushstring(L, call);
    lua_pushvalue(L, given);
    lua_newtable(L);
    for (const ls_option *o = options; o->name != NULL; o++) ls_set_boolean(L, o->name, true);
    lua_pushboolean(L, 1);
    lua_call(L, 4, 0);
}

/* Raise unless the keys of the table on top of the stack are names of options, and a flag is a boolean. */
static void check_names(lua_State *L, const char *call, const ls_option *options)
{
    const int given = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, given) != 0; lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        const ls_option *o = options;
        while (o->name != NULL && strcmp(o->name, name) != 0) o++;
        if (o->name == NULL)
            refuse_names(L, call, options, given);
        else if (o->kind == LS_OPTION_FLAG && !lua_isboolean(L, -1))
            luaL_error(L, "%s: %s must be true or false; got a %s", call, name, luaL_typename(L, -1));
    }
}

void ls_options_take(lua_State *L, int index, const char *call, const ls_option *options, void *out)
{
    if (lua_isnoneornil(L, index)) return;
    luaL_checktype(L, index, LUA_TTABLE);
    lua_pushvalue(L, index);
    ls_copy_open(L, -1);
    check_names(L, call, options);
    read_all(L, lua_pushfstring(L, "%s: ", call), -2, options, out);
    lua_pop(L, 2);
}

int ls_option_function(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TFUNCTION) luaL_error(L, "%s must be a function", name);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}
