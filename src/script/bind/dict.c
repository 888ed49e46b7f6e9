/* dict.c - the object of ls.dict: a table that all Lua states share (script/shared/dict.h). lua/luaserve/dict.lua checks
 * the options and adds the methods that are written in Lua: keys, update and the iteration.
 *
 * Each object has a metatable of its own, whose __index is a table with the methods. So a method is found without a
 * call; the metatable of that table finds any other name in the dict.
 *
 * A table from a dict is a read-only copy (script/shared/copy.h); the functions for dict.lua make plain tables. Because
 * nothing writes into a copy, the object keeps the last small ones and returns them again while their entries are
 * unchanged. They are found by the version of the entry. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/bind/bind_aux.h"
#include "script/bind/buffer.h"
#include "script/bind/modules.h"
#include "script/core/runtime.h"
#include "script/core/state.h"
#include "script/core/udata.h"
#include "script/shared/copy.h"
#include "script/shared/dict.h"
#include "script/shared/shared.h"

static const char dict_tag;

enum { CACHE_BITS = 6, CACHE_SLOTS = 1 << CACHE_BITS, CACHED_BYTES_MAX = 4096 };

typedef struct dict_object { /* its user value is the table of the cached copies, by slot */
    const void *tag;
    ls_dict *dict;                  /* of the server: it outlives every state */
    uint64_t versions[CACHE_SLOTS]; /* of the cached copies; LS_DICT_ABSENT: no copy */
} dict_object;

enum { SELF = 1, KEY, VALUE, TTL_MS_MAX_BITS = 53, SHOWN_BYTES = 60 };

/* ---- arguments --------------------------------------------------------------------------------------------- */

static dict_object *check_object(lua_State *L, int index)
{
    return ls_udata_check(L, index, &dict_tag, sizeof(dict_object), "dict");
}

static ls_dict *check_dict(lua_State *L, int index)
{
    return check_object(L, index)->dict;
}

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

static ls_dict_key check_key(lua_State *L, int index)
{
    ls_dict_key key;
    const char *wrong = read_key(L, index, &key);
    if (wrong != NULL) luaL_argerror(L, index, wrong);
    return key;
}

/* The same in a metamethod, whose arguments have no numbers for its caller. */
static ls_dict_key check_index(lua_State *L, int index)
{
    ls_dict_key key;
    const char *wrong = read_key(L, index, &key);
    if (wrong != NULL) luaL_error(L, "dict: %s", wrong);
    return key;
}

/* The time to live in milliseconds; 0 without one. */
static uint64_t check_ttl(lua_State *L, int index)
{
    if (lua_isnoneornil(L, index)) return 0;
    const double ms = ceil(luaL_checknumber(L, index) * 1000);
    luaL_argcheck(L, ms > 0, index, "ttl must be more than 0 seconds; leave it out for an entry that does not expire");
    return ms < 0x1p53 ? (uint64_t)ms : (uint64_t)1 << TTL_MS_MAX_BITS;
}

static ls_dict_value check_number(lua_State *L, int index, int64_t by_default)
{
    if (lua_isnoneornil(L, index)) return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = by_default};
    luaL_checktype(L, index, LUA_TNUMBER);
    if (lua_isinteger(L, index))
        return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = lua_tointeger(L, index)};
    return (ls_dict_value){.type = LS_DICT_FLOAT, .as.number = lua_tonumber(L, index)};
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

static const char *push_size(lua_State *L, uint64_t bytes)
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

static const char *push_reason(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    const char *name = ((const ls_shared_object *)(const void *)dict)->name;
    switch (err) {
    case LS_ELIMIT:
        return lua_pushfstring(L, "no memory: the dict \"%s\" is full (%s)", name,
                               push_size(L, ls_dict_options_get(dict).bytes_max));
    case LS_EMSGSIZE:
        return lua_pushfstring(L, "no memory: the value of %s is larger than the dict \"%s\" (%s)", push_key(L, key),
                               name, push_size(L, ls_dict_options_get(dict).bytes_max));
    case LS_EEXIST: return lua_pushfstring(L, "the key %s exists in the dict \"%s\"", push_key(L, key), name);
    case LS_ENOENT: return lua_pushfstring(L, "the key %s is not in the dict \"%s\"", push_key(L, key), name);
    default: return lua_pushstring(L, ls_err_text(err));
    }
}

/* Push nil, the message, which is at the top of the stack, and the code. Returns 3. */
static int push_message(lua_State *L, int err)
{
    lua_pushnil(L);
    lua_pushvalue(L, -2);
    lua_pushstring(L, ls_err_name(err));
    return 3;
}

static int push_failed(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    (void)push_reason(L, dict, key, err);
    return push_message(L, err);
}

/* The value of the key has another type than the operation needs. */
static int push_wrong(lua_State *L, const ls_dict_key *key, const char *wrong)
{
    (void)lua_pushfstring(L, "the value of %s %s", push_key(L, key), wrong);
    return push_message(L, LS_EINVAL);
}

static int push_done(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err)
{
    if (err < 0) return push_failed(L, dict, key, err);
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* The value at `index`; the caller owns its reference. LS_OK, LS_EMSGSIZE, LS_ENOMEM, or LS_EINVAL for a value that
 * cannot be shared, with the reason in `message` (LS_VALUE_MESSAGE_BYTES). Does not raise. */
static int read_value(lua_State *L, ls_dict *dict, int index, ls_dict_value *out, char *message)
{
    ls_value *value = NULL;
    *out = (ls_dict_value){.type = LS_DICT_NIL};
    switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL: return LS_OK;
    case LUA_TBOOLEAN:
        *out = (ls_dict_value){.type = LS_DICT_BOOLEAN, .as.boolean = lua_toboolean(L, index) != 0};
        return LS_OK;
    case LUA_TNUMBER: *out = check_number(L, index, 0); return LS_OK;
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

static void push_scalar(lua_State *L, const ls_dict_value *value)
{
    switch (value->type) {
    case LS_DICT_BOOLEAN: lua_pushboolean(L, value->as.boolean); break;
    case LS_DICT_INTEGER: lua_pushinteger(L, value->as.integer); break;
    case LS_DICT_FLOAT: lua_pushnumber(L, value->as.number); break;
    default: lua_pushnil(L); break;
    }
}

enum copy_kind { COPY_PLAIN, COPY_READ_ONLY, COPY_READ_ONLY_VALUES };

typedef struct value_list {
    const ls_dict_value *values;
    size_t count;
    enum copy_kind kind;
} value_list;

static int push_list_call(lua_State *L)
{
    const value_list *list = lua_touserdata(L, 1);
    lua_createtable(L, list->count > 1 << 20 ? 1 << 20 : (int)list->count, 0);
    for (size_t n = 0; n < list->count; n++) {
        if (list->values[n].type != LS_DICT_VALUE)
            push_scalar(L, &list->values[n]);
        else if (list->kind == COPY_PLAIN)
            ls_value_push(L, list->values[n].as.value);
        else
            ls_value_push_copy(L, list->values[n].as.value);
        lua_rawseti(L, 2, (lua_Integer)n + 1);
    }
    if (list->kind == COPY_READ_ONLY) {
        ls_copy_push_metatable(L);
        ls_copy_push(L, 2, 3);
    }
    return 1;
}

/* Push a table of the values; drop their references and free the array, also when it raises. */
static void give_list(lua_State *L, ls_dict_value *values, size_t count, enum copy_kind kind)
{
    value_list list = {values, count, kind};
    lua_pushcfunction(L, push_list_call);
    lua_pushlightuserdata(L, &list);
    const int status = lua_pcall(L, 1, 1, 0);
    for (size_t n = 0; n < count; n++) ls_dict_value_drop(&values[n]);
    free(values);
    if (status != LUA_OK) lua_error(L);
}

/* Push the value, and drop its reference; for a list, read it. */
static void give_value(lua_State *L, ls_dict *dict, const ls_dict_key *key, ls_dict_value *value, bool read_only)
{
    ls_dict_value *values;
    size_t count;
    if (value->type == LS_DICT_VALUE) {
        ls_value_give(L, value->as.value, read_only);
    } else if (value->type != LS_DICT_LIST) {
        push_scalar(L, value);
    } else {
        const int err = ls_dict_range(dict, key, 1, -1, &values, &count);
        if (err == LS_ENOMEM) luaL_error(L, "not enough memory");
        if (err < 0 || count == 0)
            lua_pushnil(L); /* another thread has just removed the list */
        else
            give_list(L, values, count, read_only ? COPY_READ_ONLY : COPY_PLAIN);
    }
}

/* ---- methods ----------------------------------------------------------------------------------------------- */

/* Push the table of the entry with this version, and drop the reference. `cache`: index of the table of the copies. */
static void give_table(lua_State *L, dict_object *object, int cache, ls_value *value, uint64_t version)
{
    const unsigned slot = (unsigned)(version * 0x9e3779b97f4a7c15 >> (64 - CACHE_BITS));
    if (object->versions[slot] == version) {
        ls_value_drop(value);
        (void)lua_rawgeti(L, cache, (lua_Integer)slot + 1);
        return;
    }
    const bool small = ls_value_bytes(value) <= CACHED_BYTES_MAX;
    ls_value_give(L, value, true); /* a finalizer that runs meanwhile may use the slot */
    if (!small) return;
    object->versions[slot] = LS_DICT_ABSENT; /* until the copy is there: the next call may raise */
    lua_pushvalue(L, -1);
    lua_rawseti(L, cache, (lua_Integer)slot + 1);
    object->versions[slot] = version;
}

static int get(lua_State *L, dict_object *object, int cache, const ls_dict_key *key)
{
    ls_dict_value value;
    uint64_t version;
    if (!ls_dict_get(object->dict, key, &value, &version))
        lua_pushnil(L);
    else if (value.type == LS_DICT_VALUE && ls_value_type(value.as.value) == LUA_TTABLE)
        give_table(L, object, cache, value.as.value, version);
    else
        give_value(L, object->dict, key, &value, true);
    return 1;
}

/* dict:get(key) -> value | nil */
static int dict_get(lua_State *L)
{
    dict_object *object = check_object(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    ls_check_arguments(L, KEY, "dict:get(key)");
    (void)lua_getiuservalue(L, SELF, 1);
    return get(L, object, lua_gettop(L), &key);
}

static int set(lua_State *L, enum ls_dict_mode mode, const char *call)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    const uint64_t ttl_ms = check_ttl(L, VALUE + 1);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    ls_check_arguments(L, VALUE + 1, call);
    luaL_checkany(L, VALUE);
    luaL_argcheck(L, mode == LS_DICT_SET || !lua_isnil(L, VALUE), VALUE, "value must not be nil");
    int err = read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) return luaL_argerror(L, VALUE, message);
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, mode, ttl_ms, 0);
    return push_done(L, dict, &key, err);
}

/* dict:set(key, value [, ttl]) -> true | nil, message, code. A nil removes the entry. */
static int dict_set(lua_State *L)
{
    return set(L, LS_DICT_SET, "dict:set(key, value, ttl)");
}

/* dict:add(key, value [, ttl]) -> true | nil, message, code ("EEXIST" if the key exists) */
static int dict_add(lua_State *L)
{
    return set(L, LS_DICT_ADD, "dict:add(key, value, ttl)");
}

/* dict:replace(key, value [, ttl]) -> true | nil, message, code ("ENOENT" if the key does not exist) */
static int dict_replace(lua_State *L)
{
    return set(L, LS_DICT_REPLACE, "dict:replace(key, value, ttl)");
}

/* dict:delete(key) -> whether it existed */
static int dict_delete(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    ls_check_arguments(L, KEY, "dict:delete(key)");
    lua_pushboolean(L, ls_dict_remove(dict, &key));
    return 1;
}

/* dict:incr(key [, by [, init [, ttl]]]) -> the new number | nil, message, code. A key that does not exist gets init,
 * by default 0, plus by; ttl is the time to live of that new entry. */
static int dict_incr(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    const ls_dict_value by = check_number(L, VALUE, 1), init = check_number(L, VALUE + 1, 0);
    const uint64_t ttl_ms = check_ttl(L, VALUE + 2);
    ls_dict_value sum;
    ls_check_arguments(L, VALUE + 2, "dict:incr(key, by, init, ttl)");
    const int err = ls_dict_incr(dict, &key, by, init, ttl_ms, &sum);
    if (err == LS_EINVAL)
        return push_wrong(L, &key,
                          sum.type == LS_DICT_INTEGER ? "would exceed the range of an integer" : "is not a number");
    if (err < 0) return push_failed(L, dict, &key, err);
    push_scalar(L, &sum);
    return 1;
}

/* dict:ttl(key) -> seconds that the entry has left | false: it does not expire | nil: it does not exist */
static int dict_ttl(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    uint64_t ms;
    ls_check_arguments(L, KEY, "dict:ttl(key)");
    if (!ls_dict_ttl(dict, &key, &ms))
        lua_pushnil(L);
    else if (ms == 0)
        lua_pushboolean(L, 0);
    else
        lua_pushnumber(L, (double)ms / 1000);
    return 1;
}

/* dict:expire(key [, seconds]) -> whether it exists. Without seconds the entry does not expire any more. */
static int dict_expire(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    const uint64_t ms = check_ttl(L, VALUE);
    ls_check_arguments(L, VALUE, "dict:expire(key, seconds)");
    lua_pushboolean(L, ls_dict_expire(dict, &key, ms));
    return 1;
}

static int dict_len(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)ls_dict_count(check_dict(L, SELF)));
    return 1;
}

static int dict_clear(lua_State *L)
{
    ls_dict_clear(check_dict(L, SELF));
    return 0;
}

static const char not_a_list[] = "is not a list";

static int push(lua_State *L, bool head)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    const int count = lua_gettop(L) - KEY;
    char message[LS_VALUE_MESSAGE_BYTES];
    size_t len;
    int err = LS_OK, taken = 0;
    luaL_checkany(L, VALUE);
    for (int n = 0; n < count; n++) luaL_argcheck(L, !lua_isnil(L, VALUE + n), VALUE + n, "value must not be nil");
    ls_dict_value *values = lua_newuserdatauv(L, (size_t)count * sizeof *values, 0);
    for (; taken < count && err == LS_OK; taken++) err = read_value(L, dict, VALUE + taken, &values[taken], message);
    if (err != LS_OK) {
        for (int n = 0; n < taken; n++) ls_dict_value_drop(&values[n]);
        return err == LS_EINVAL ? luaL_argerror(L, VALUE + taken - 1, message) : push_failed(L, dict, &key, err);
    }
    err = ls_dict_push(dict, &key, values, (size_t)count, head, &len);
    if (err == LS_EINVAL) return push_wrong(L, &key, not_a_list);
    if (err < 0) return push_failed(L, dict, &key, err);
    lua_pushinteger(L, (lua_Integer)len);
    return 1;
}

/* dict:lpush(key, value...) -> the length of the list | nil, message, code. The last value becomes the first. */
static int dict_lpush(lua_State *L)
{
    return push(L, true);
}

static int dict_rpush(lua_State *L)
{
    return push(L, false);
}

static int pop(lua_State *L, bool head)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    ls_dict_value value;
    ls_check_arguments(L, KEY, head ? "dict:lpop(key)" : "dict:rpop(key)");
    const int err = ls_dict_pop(dict, &key, head, &value);
    if (err == LS_EINVAL) return push_wrong(L, &key, not_a_list);
    if (err == LS_ENOENT)
        lua_pushnil(L);
    else if (value.type == LS_DICT_VALUE)
        ls_value_give(L, value.as.value, false);
    else
        push_scalar(L, &value);
    return 1;
}

/* dict:lpop(key) -> the first value, removed from the list | nil: no list | nil, message, code */
static int dict_lpop(lua_State *L)
{
    return pop(L, true);
}

static int dict_rpop(lua_State *L)
{
    return pop(L, false);
}

/* dict:llen(key) -> the length of the list, 0 without one | nil, message, code */
static int dict_llen(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    size_t len;
    ls_check_arguments(L, KEY, "dict:llen(key)");
    if (ls_dict_list_len(dict, &key, &len) < 0) return push_wrong(L, &key, not_a_list);
    lua_pushinteger(L, (lua_Integer)len);
    return 1;
}

/* dict:range(key [, first [, last]]) -> table of the values from position first, by default 1, to last, by default -1,
 * the last value | nil, message, code */
static int dict_range(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_key(L, KEY);
    const lua_Integer first = luaL_optinteger(L, VALUE, 1), last = luaL_optinteger(L, VALUE + 1, -1);
    ls_dict_value *values;
    size_t count;
    ls_check_arguments(L, VALUE + 1, "dict:range(key, first, last)");
    const int err = ls_dict_range(dict, &key, first, last, &values, &count);
    if (err == LS_EINVAL) return push_wrong(L, &key, not_a_list);
    if (err < 0) return push_failed(L, dict, &key, err);
    give_list(L, values, count, COPY_READ_ONLY_VALUES);
    return 1;
}

/* dict[key] for a name that is not a method. Upvalues: the object, the table of its copies. */
static int dict_index(lua_State *L)
{
    const ls_dict_key key = check_index(L, KEY);
    return get(L, lua_touserdata(L, lua_upvalueindex(1)), lua_upvalueindex(2), &key);
}

/* dict[key] = value */
static int dict_newindex(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = check_index(L, KEY);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    int err = read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) return luaL_error(L, "dict: %s", message);
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, LS_DICT_SET, 0, 0);
    if (err < 0) return luaL_error(L, "%s", push_reason(L, dict, &key, err));
    return 0;
}

/* ---- functions for dict.lua -------------------------------------------------------------------------------- */

/* core.dict_read(dict, key) -> value, version: a table is plain. */
static int core_dict_read(lua_State *L)
{
    ls_dict *dict = check_dict(L, 1);
    const ls_dict_key key = check_key(L, 2);
    ls_dict_value value = {.type = LS_DICT_NIL};
    uint64_t version;
    (void)ls_dict_get(dict, &key, &value, &version);
    give_value(L, dict, &key, &value, false);
    lua_pushinteger(L, (lua_Integer)version);
    return 2;
}

/* core.dict_swap(dict, key, value, version) -> true | nil, message, code. "EAGAIN": another version; "EINVAL": a value
 * that cannot be shared. */
static int core_dict_swap(lua_State *L)
{
    ls_dict *dict = check_dict(L, 1);
    const ls_dict_key key = check_key(L, 2);
    const lua_Integer version = luaL_checkinteger(L, 4);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    int err = read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) {
        (void)lua_pushstring(L, message);
        return push_message(L, err);
    }
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, LS_DICT_SWAP, 0, (uint64_t)version);
    return push_done(L, dict, &key, err);
}

typedef struct scan {
    ls_dict *dict;
    ls_dict_items items;
    bool values;
} scan;

static int push_scan_call(lua_State *L)
{
    scan *s = lua_touserdata(L, 1);
    lua_Integer at = 0;
    lua_createtable(L, (int)(s->items.count * (s->values ? 2 : 1)), 0);
    for (size_t n = 0; n < s->items.count; n++) {
        const ls_dict_key key = ls_dict_item_key(&s->items, n);
        ls_dict_value value = s->items.items[n].value;
        if (s->values) {
            if (value.type == LS_DICT_VALUE)
                ls_value_push_copy(L, value.as.value);
            else
                give_value(L, s->dict, &key, &value, true);
            if (lua_isnil(L, -1)) { /* a list that was just removed */
                lua_pop(L, 1);
                continue;
            }
            lua_rawseti(L, 2, at + 2);
        }
        if (key.bytes != NULL)
            lua_pushlstring(L, key.bytes, key.len);
        else
            lua_pushinteger(L, key.integer);
        lua_rawseti(L, 2, at + 1);
        at += s->values ? 2 : 1;
    }
    lua_pushinteger(L, at);
    return 2;
}

/* core.dict_scan(dict, cursor, values) -> { key, value, ... } or { key, ... }, its length, the next cursor. cursor is 0
 * for the first call and after the last. */
static int core_dict_scan(lua_State *L)
{
    scan s = {.dict = check_dict(L, 1), .values = lua_toboolean(L, 3) != 0};
    uint64_t cursor = (uint64_t)luaL_checkinteger(L, 2);
    if (ls_dict_scan(s.dict, &cursor, s.values, &s.items) < 0) {
        ls_dict_items_drop(&s.items);
        return luaL_error(L, "not enough memory");
    }
    lua_pushcfunction(L, push_scan_call);
    lua_pushlightuserdata(L, &s);
    const int status = lua_pcall(L, 1, 2, 0);
    ls_dict_items_drop(&s.items);
    if (status != LUA_OK) return lua_error(L);
    lua_pushinteger(L, (lua_Integer)cursor);
    return 3;
}

static const luaL_Reg methods[] = {{"get", dict_get},
                                   {"set", dict_set},
                                   {"add", dict_add},
                                   {"replace", dict_replace},
                                   {"delete", dict_delete},
                                   {"incr", dict_incr},
                                   {"ttl", dict_ttl},
                                   {"expire", dict_expire},
                                   {"len", dict_len},
                                   {"clear", dict_clear},
                                   {"lpush", dict_lpush},
                                   {"rpush", dict_rpush},
                                   {"lpop", dict_lpop},
                                   {"rpop", dict_rpop},
                                   {"llen", dict_llen},
                                   {"range", dict_range},
                                   {NULL, NULL}};

/* Push the metatable of the object at index `object`. `more`: index of a table with methods in Lua; of these, "pairs" becomes
 * __pairs. */
static void push_metatable(lua_State *L, int object, int more)
{
    static const luaL_Reg metamethods[] = {{"__newindex", dict_newindex}, {"__len", dict_len}, {NULL, NULL}};
    luaL_newlib(L, metamethods);
    lua_pushliteral(L, "dict");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_getfield(L, more, "pairs");
    lua_setfield(L, -2, "__pairs");

    luaL_newlib(L, methods); /* __index */
    for (lua_pushnil(L); lua_next(L, more) != 0; lua_pop(L, 1)) {
        if (strcmp(lua_tostring(L, -2), "pairs") == 0) continue;
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -5);
    }
    lua_createtable(L, 0, 1); /* the metatable of __index */
    lua_pushvalue(L, object);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, object, 1);
    lua_pushcclosure(L, dict_index, 2);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "__index");
}

/* core.dict(name, where, methods [, bytes_max, evict]) -> dict | false, position of a definition with other options,
 * its size as text, its evict */
static int core_dict(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *where = luaL_checkstring(L, 2);
    const ls_dict_options options = {(uint64_t)luaL_optinteger(L, 4, LS_DICT_BYTES_DEFAULT), lua_toboolean(L, 5)};
    const bool has_options = !lua_isnoneornil(L, 4);
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *found = NULL;
    luaL_checktype(L, 3, LUA_TTABLE);
    dict_object *object = lua_newuserdatauv(L, sizeof *object, 1);
    const int self = lua_gettop(L);
    ls_shared *shared = ls_state_runtime(ls_state_of(L))->shared;
    const int err = ls_shared_get(shared, &ls_dict_kind, name, where, has_options ? &options : NULL, &found, before);
    if (err == LS_EEXIST) {
        (void)ls_shared_get(shared, &ls_dict_kind, name, where, NULL, &found, before);
        const ls_dict_options other = ls_dict_options_get((ls_dict *)(void *)found);
        lua_pushboolean(L, 0);
        lua_pushstring(L, before);
        (void)push_size(L, other.bytes_max);
        lua_pushboolean(L, other.evict);
        return 4;
    }
    if (err < 0) return luaL_error(L, "not enough memory");
    *object = (dict_object){.tag = &dict_tag, .dict = (ls_dict *)(void *)found};
    push_metatable(L, self, 3);
    lua_setmetatable(L, self);
    return 1;
}

static const luaL_Reg functions[] = {{"dict", core_dict},
                                     {"dict_read", core_dict_read},
                                     {"dict_swap", core_dict_swap},
                                     {"dict_scan", core_dict_scan},
                                     {NULL, NULL}};

static void define(lua_State *L, ls_state *state)
{
    (void)state;
    ls_copy_define(L);
}

const ls_module ls_dict_module = {.name = "dict", .functions = functions, .define = define};
