/* dict_value.c - see dict_value.h. */
#include "script/bind/store/dict_value.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/io/log.h"
#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/value/buffer.h"
#include "script/store/copy.h"

enum { SHOWN_BYTES = 60 };

/* ---- arguments --------------------------------------------------------------------------------------------- */

/* Read the key at `index`. NULL, or what is wrong with it. */
static const char *read_key(lua_State *L, int index, ls_dict_key *key)
{
    int is_integer = 0;
    *key = (ls_dict_key){0};
    if (lua_type(L, index) == LUA_TSTRING) {
        key->bytes = lua_tolstring(L, index, &key->len);
        return key->len <= LS_DICT_KEY_BYTES_MAX ? NULL : "key must have at most 65535 bytes";
    }
    if (lua_type(L, index) == LUA_TNUMBER) key->integer = lua_tointegerx(L, index, &is_integer);
    if (is_integer) return NULL;
    if (lua_type(L, index) == LUA_TNUMBER)
        return lua_pushfstring(L, "key must be a string or an integer; got %f", lua_tonumber(L, index));
    return lua_pushfstring(L, "key must be a string or an integer; got %s", luaL_typename(L, index));
}

ls_dict_key ls_dict_check_key(lua_State *L, int index)
{
    ls_dict_key key;
    const char *wrong = read_key(L, index, &key);
    if (wrong != NULL) luaL_argerror(L, index, wrong);
    return key;
}

ls_dict_key ls_dict_check_index(lua_State *L, int index)
{
    ls_dict_key key;
    const char *wrong = read_key(L, index, &key);
    if (wrong != NULL) luaL_error(L, "dict: %s", wrong);
    return key;
}

bool ls_dict_is_no_key(lua_State *L, int index)
{
    int is_integer;
    if (lua_isnil(L, index)) return true;
    if (lua_type(L, index) != LUA_TNUMBER) return false;
    (void)lua_tointegerx(L, index, &is_integer);
    return !is_integer;
}

uint64_t ls_dict_check_ttl(lua_State *L, int index)
{
    if (lua_isnone(L, index) || (lua_isboolean(L, index) && !lua_toboolean(L, index))) return 0;
    luaL_argcheck(L, !lua_isnil(L, index), index,
                  "ttl is nil, as of a field that is missing; false is an entry that does not expire");
    const double ms = ceil(luaL_checknumber(L, index) * 1000);
    luaL_argcheck(L, ms > 0, index, "ttl must be more than 0 seconds; leave it out for an entry that does not expire");
    luaL_argcheck(L, ms <= LS_SECONDS_MAX * 1000, index,
                  "ttl is in seconds from now; for a time write at - os.time(), and leave it out for no end");
    return (uint64_t)ms;
}

ls_dict_value ls_dict_check_number(lua_State *L, int index, int64_t by_default)
{
    if (lua_isnoneornil(L, index)) return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = by_default};
    luaL_checktype(L, index, LUA_TNUMBER);
    if (lua_isinteger(L, index))
        return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = lua_tointeger(L, index)};
    return (ls_dict_value){.type = LS_DICT_FLOAT, .as.number = lua_tonumber(L, index)};
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

const char *ls_dict_push_size(lua_State *L, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    for (; bytes >= 1024 && bytes % 1024 == 0 && unit < 4; unit++) bytes /= 1024;
    return lua_pushfstring(L, "%I %s", (LUAI_UACINT)bytes, units[unit]);
}

static const char *push_key(lua_State *L, const ls_dict_key *key)
{
    if (key->bytes == NULL) return lua_pushfstring(L, "%I", (LUAI_UACINT)key->integer);
    const bool whole = key->len <= SHOWN_BYTES;
    lua_pushlstring(L, key->bytes, whole ? key->len : SHOWN_BYTES);
    return lua_pushfstring(L, "\"%s%s\"", lua_tostring(L, -1), whole ? "" : "...");
}

/* Push the text of `err`, which is about the key. Leaves what it was made of below it. */
static const char *push_reason(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    const char *name = ((const ls_shared_object *)(const void *)dict)->name;
    switch (err) {
    case LS_ELIMIT: {
        const char *size = ls_dict_push_size(L, ls_dict_options_get(dict).bytes_max);
        if (ls_dict_refuses_first(dict, err))
            ls_log(LS_LOG_WARN,
                   "the dict \"%s\" is full (%s) and refuses new entries: make it larger, as in { size = \"64m\" }, "
                   "or let "
                   "a cache remove its oldest entries: { evict = true }",
                   name, size);
        return lua_pushfstring(L, "no memory: the dict \"%s\" is full (%s); see size and evict of ls.dict", name,
                               size);
    }
    case LS_EMSGSIZE: {
        const char *size = ls_dict_push_size(L, ls_dict_options_get(dict).bytes_max), *at = push_key(L, key);
        if (ls_dict_refuses_first(dict, err))
            ls_log(
                LS_LOG_WARN,
                "the value of %s does not fit into the dict \"%s\" (%s) and is refused: make the dict larger, as in "
                "{ size = \"64m\" }, or keep a list short: rpush, then lpop",
                at, name, size);
        return lua_pushfstring(L, "no memory: the value of %s is larger than the dict \"%s\" (%s)", at, name, size);
    }
    case LS_EEXIST: return lua_pushfstring(L, "the key %s exists in the dict \"%s\"", push_key(L, key), name);
    case LS_ENOENT: return lua_pushfstring(L, "the key %s is not in the dict \"%s\"", push_key(L, key), name);
    default: return lua_pushstring(L, ls_err_text(err));
    }
}

int ls_dict_push_refused(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    return ls_push_failure_text(L, err, "%s", push_reason(L, dict, key, err));
}

int ls_dict_push_failed(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    if (err == LS_EEXIST || err == LS_ENOENT || err == LS_EAGAIN) return ls_dict_push_refused(L, dict, key, err);
    const char *reason = push_reason(L, dict, key, err);
    ls_push_function(L, "luaserve.dict", "refused");
    lua_pushstring(L, reason);
    lua_pushstring(L, ls_err_name(err));
    lua_call(L, 2, 0);
    return 0;
}

int ls_dict_push_wrong(lua_State *L, const ls_dict_key *key, const char *wrong)
{
    return ls_push_failure_text(L, LS_EINVAL, "the value of %s %s", push_key(L, key), wrong);
}

int ls_dict_push_done(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    return err < 0 ? ls_dict_push_failed(L, dict, key, err) : ls_push_result(L, err);
}

/* ---- values ------------------------------------------------------------------------------------------------ */

int ls_dict_read_value(lua_State *L, ls_dict *dict, int index, ls_dict_value *out, char *message)
{
    ls_value *value = NULL;
    *out = (ls_dict_value){.type = LS_DICT_NIL};
    switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL: return LS_OK;
    case LUA_TBOOLEAN:
        *out = (ls_dict_value){.type = LS_DICT_BOOLEAN, .as.boolean = lua_toboolean(L, index) != 0};
        return LS_OK;
    case LUA_TNUMBER: *out = ls_dict_check_number(L, index, 0); return LS_OK;
    case LUA_TSTRING: {
        size_t len;
        const char *bytes = lua_tolstring(L, index, &len);
        value = ls_value_string(bytes, len);
        if (value == NULL) return LS_ENOMEM;
        break;
    }
    default: {
        const ls_value_options options = {.bytes_max = (size_t)ls_dict_options_get(dict).bytes_max,
                                          .slices = ls_buffer_slices};
        const int err = ls_value_pack(L, index, &options, &value, message, LS_VALUE_MESSAGE_BYTES);
        if (err < 0) return err == LS_ELIMIT ? LS_EINVAL : err; /* too many levels */
    }
    }
    *out = (ls_dict_value){.type = LS_DICT_VALUE, .as.value = value};
    return LS_OK;
}

void ls_dict_push_scalar(lua_State *L, const ls_dict_value *value)
{
    switch (value->type) {
    case LS_DICT_BOOLEAN: lua_pushboolean(L, value->as.boolean); break;
    case LS_DICT_INTEGER: lua_pushinteger(L, value->as.integer); break;
    case LS_DICT_FLOAT: lua_pushnumber(L, value->as.number); break;
    default: lua_pushnil(L); break;
    }
}

typedef struct value_list {
    const ls_dict_value *values;
    size_t count;
    enum ls_dict_copy kind;
} value_list;

static int push_list_call(lua_State *L)
{
    const value_list *list = lua_touserdata(L, 1);
    lua_createtable(L, list->count > 1 << 20 ? 1 << 20 : (int)list->count, 0);
    for (size_t n = 0; n < list->count; n++) {
        if (list->values[n].type != LS_DICT_VALUE)
            ls_dict_push_scalar(L, &list->values[n]);
        else if (list->kind == LS_DICT_COPY_PLAIN)
            ls_value_push(L, list->values[n].as.value);
        else
            ls_value_push_copy(L, list->values[n].as.value);
        lua_rawseti(L, 2, (lua_Integer)n + 1);
    }
    if (list->kind == LS_DICT_COPY_READ_ONLY) {
        ls_copy_push_metatable(L);
        ls_copy_push(L, 2, 3);
    }
    return 1;
}

void ls_dict_give_list(lua_State *L, ls_dict_value *values, size_t count, enum ls_dict_copy kind)
{
    value_list list = {values, count, kind};
    const int status = ls_pcall(L, push_list_call, &list, 1);
    for (size_t n = 0; n < count; n++) ls_dict_value_drop(&values[n]);
    free(values);
    if (status != LUA_OK) lua_error(L);
}

void ls_dict_give_value(lua_State *L, ls_dict *dict, const ls_dict_key *key, ls_dict_value *value, bool read_only)
{
    ls_dict_value *values;
    size_t count;
    if (value->type == LS_DICT_VALUE) {
        ls_value_give(L, value->as.value, read_only);
    } else if (value->type != LS_DICT_LIST) {
        ls_dict_push_scalar(L, value);
    } else {
        const int err = ls_dict_range(dict, key, 1, -1, &values, &count);
        if (err == LS_ENOMEM) luaL_error(L, "not enough memory");
        if (err < 0 || count == 0)
            lua_pushnil(L); /* another thread has just removed the list */
        else
            ls_dict_give_list(L, values, count, read_only ? LS_DICT_COPY_READ_ONLY : LS_DICT_COPY_PLAIN);
    }
}
