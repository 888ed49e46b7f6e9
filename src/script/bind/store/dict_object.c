/* dict_object.c - the object of ls.dict: a table that all Lua states share (script/store/dict.h).
 * lua/luaserve/dict.lua checks the options and adds the methods that are written in Lua: keys, update and the
 * iteration.
 *
 * Each object has a metatable of its own, whose __index is a table with the methods. So a method is found without a
 * call; the metatable of that table finds any other name in the dict.
 *
 * A table from a dict is a read-only copy (script/store/copy.h); the functions for dict.lua make plain tables. Because
 * nothing writes into a copy, the object keeps the last small ones and returns them again while their entries are
 * unchanged. They are found by the version of the entry. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/shared.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/store/dict_value.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/core/runtime.h"
#include "script/core/state.h"
#include "script/core/wait.h"
#include "script/store/copy.h"
#include "script/store/dict.h"
#include "script/store/dict_store.h"

static const char dict_tag;

enum { CACHE_BITS = 6, CACHE_SLOTS = 1 << CACHE_BITS, CACHED_BYTES_MAX = 4096 };

/* User values: the table of the cached copies, by slot; the function of core.dict_observe. */
typedef struct dict_object {
    const void *tag;
    ls_dict *dict;                  /* of the server: it outlives every state */
    bool observed;                  /* in dev mode */
    bool sync;                      /* a write waits until it is in the file */
    uint64_t versions[CACHE_SLOTS]; /* of the cached copies; LS_DICT_ABSENT: no copy */
} dict_object;

enum { SELF = 1, KEY, VALUE };

static dict_object *check_object(lua_State *L, int index)
{
    return ls_udata_check(L, index, &dict_tag, sizeof(dict_object), "dict");
}

static ls_dict *check_dict(lua_State *L, int index)
{
    return check_object(L, index)->dict;
}

ls_dict *ls_dict_check_unsynced(lua_State *L, int index)
{
    const dict_object *object = check_object(L, index);
    return object->sync ? NULL : object->dict;
}

/* Report a call to dev mode: its name, the dict at index `self`, and the arguments after `self`. */
static void report(lua_State *L, int self, const char *call)
{
    const int top = lua_gettop(L);
    luaL_checkstack(L, top + 3, NULL);
    (void)lua_getiuservalue(L, self, 2);
    lua_pushstring(L, call);
    lua_pushvalue(L, self);
    for (int n = KEY; n <= top; n++) lua_pushvalue(L, n);
    lua_call(L, top < KEY ? 2 : top - KEY + 3, 0);
}

/* The object at SELF of a call that dev mode may observe. */
static dict_object *check_called(lua_State *L, const char *call)
{
    dict_object *object = check_object(L, SELF);
    if (object->observed) report(L, SELF, call);
    return object;
}

/* ---- writes that wait --------------------------------------------------------------------------------------- */

static const ls_wait_kind sync_kind = {.cancel = ls_dict_store_cancel, .wait = LS_WAIT_WRITE}; /* the change stays */

/* Raise the failure of a write for the dict at `self`. */
static int sync_failed(lua_State *L, int self, int err)
{
    ls_push_function(L, "luaserve.dict", "write_failed");
    (void)luaL_tolstring(L, self, NULL);
    lua_pushstring(L, ls_err_text(err));
    lua_pushstring(L, ls_err_name(err));
    lua_call(L, 3, 0);
    return 0;
}

static int sync_done(lua_State *L, int status, lua_KContext context)
{
    ls_wait *wait = (ls_wait *)context; /* NOLINT(performance-no-int-to-ptr) */
    const int err = ls_wait_end(L, wait, NULL);
    if (err != LS_OK) return sync_failed(L, SELF + 1, err == LS_ETIMEDOUT ? LS_ECANCELED : err);
    return (int)lua_tointeger(L, 1);
}

/* A method has changed the dict, and its `results` are on top of the stack: with sync = true, return them when the
 * change is in the file. */
static int written(lua_State *L, const dict_object *object, int results)
{
    if (!object->sync) return results;
    ls_dict_store *store = ls_dict_store_of(object->dict);
    int err = LS_OK;
    if (!ls_task_can_wait(L)) {
        err = ls_dict_store_block(store);
        return err < 0 ? sync_failed(L, SELF, err) : results;
    }
    lua_pushinteger(L, results); /* below the others, of which the results stay on top */
    lua_insert(L, 1);
    ls_wait *wait = ls_wait_get(L, &sync_kind, store);
    if (wait == NULL) return luaL_error(L, "not enough memory");
    if (ls_dict_store_wait(store, &wait->waiter) == LS_PENDING) return ls_wait_suspend(L, wait, -1, false, sync_done);
    ls_wait_drop(wait);
    return results;
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
        ls_dict_give_value(L, object->dict, key, &value, true);
    return 1;
}

/* dict:get(key: string|number|nil) -> value
 * The value of a key; nil if it does not exist, also for nil and numbers that are no integers. */
static int dict_get(lua_State *L)
{
    dict_object *object = check_called(L, "get");
    if (ls_dict_is_no_key(L, KEY)) return ls_push_nil(L);
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    ls_check_arguments(L, KEY, "dict:get(key)");
    (void)lua_getiuservalue(L, SELF, 1);
    return get(L, object, lua_gettop(L), &key);
}

static int set(lua_State *L, enum ls_dict_mode mode, const char *call)
{
    const dict_object *object = check_called(L, mode == LS_DICT_SET ? "set" : "add");
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    const uint64_t ttl_ms = ls_dict_check_ttl(L, VALUE + 1);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    ls_check_arguments(L, VALUE + 1, call);
    luaL_checkany(L, VALUE);
    luaL_argcheck(L, !lua_isnil(L, VALUE), VALUE, "the value is nil; dict:delete(key) removes an entry");
    int err = ls_dict_read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) return luaL_argerror(L, VALUE, message);
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, mode, ttl_ms, 0);
    const int results = ls_dict_push_done(L, dict, &key, err);
    return err < 0 ? results : written(L, object, results);
}

/* dict:set(key, value [, ttl]) -> true
 * Sets the value of a key. The entry expires after `ttl` seconds. */
static int dict_set(lua_State *L)
{
    return set(L, LS_DICT_SET, "dict:set(key, value, ttl)");
}

/* dict:add(key, value [, ttl]) -> true | nil, message, code
 * Sets the value unless the key exists ("EEXIST"). */
static int dict_add(lua_State *L)
{
    return set(L, LS_DICT_ADD, "dict:add(key, value, ttl)");
}

/* dict:replace(key, value [, ttl]) -> true | nil, message, code
 * Sets the value if the key exists ("ENOENT"). */
static int dict_replace(lua_State *L)
{
    return set(L, LS_DICT_REPLACE, "dict:replace(key, value, ttl)");
}

/* dict:delete(key) -> existed: boolean
 * Removes a key. */
static int dict_delete(lua_State *L)
{
    const dict_object *object = check_called(L, "delete");
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    ls_check_arguments(L, KEY, "dict:delete(key)");
    lua_pushboolean(L, ls_dict_remove(object->dict, &key));
    return written(L, object, 1);
}

/* One that is not would stay in the counter for ever. */
static ls_dict_value check_finite(lua_State *L, int index, int64_t by_default)
{
    const ls_dict_value value = ls_dict_check_number(L, index, by_default);
    if (value.type == LS_DICT_FLOAT && !isfinite(value.as.number))
        luaL_argerror(L, index, "finite number expected, got inf or NaN, for which JSON has no form");
    return value;
}

/* Redis counts in texts: a caller that reads nil as "no counter" would stay at 0 for ever. */
static void refuse_digits(lua_State *L, const ls_dict_key *key)
{
    (void)lua_getiuservalue(L, SELF, 1);
    (void)get(L, check_object(L, SELF), lua_gettop(L), key);
    if (lua_type(L, -1) != LUA_TSTRING || !lua_isnumber(L, -1)) return;
    const char *digits = lua_tostring(L, -1), *name = luaL_tolstring(L, KEY, NULL);
    luaL_error(L, "dict:incr: the value of \"%s\" is a string, \"%s\"; store a number: tonumber(value)", name, digits);
}

/* dict:incr(key [, by: number [, init: number [, ttl]]]) -> value: number | nil, message, code
 * Adds `by`, 1 unless given, to a number. A key that does not exist gets `init`, 0 unless given, plus `by`; `ttl` is
 * the time to live of that new entry. */
static int dict_incr(lua_State *L)
{
    const dict_object *object = check_called(L, "incr");
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    if (lua_isnil(L, VALUE)) return luaL_argerror(L, VALUE, "number expected, got nil; to add 1, write 1");
    const ls_dict_value by = check_finite(L, VALUE, 1), init = check_finite(L, VALUE + 1, 0);
    const uint64_t ttl_ms = ls_dict_check_ttl(L, VALUE + 2);
    ls_dict_value sum;
    ls_check_arguments(L, VALUE + 2, "dict:incr(key, by, init, ttl)");
    const int err = ls_dict_incr(dict, &key, by, init, ttl_ms, &sum);
    if (err == LS_EINVAL && sum.type == LS_DICT_VALUE) refuse_digits(L, &key);
    if (err == LS_EINVAL)
        return ls_dict_push_wrong(
            L, &key, sum.type == LS_DICT_INTEGER ? "would exceed the range of an integer" : "is not a number");
    if (err < 0) return ls_dict_push_failed(L, dict, &key, err);
    ls_dict_push_scalar(L, &sum);
    return written(L, object, 1);
}

/* dict:ttl(key) -> seconds: number|false|nil
 * The seconds that an entry has left; false: it does not expire; nil: it does not exist. */
static int dict_ttl(lua_State *L)
{
    ls_dict *dict = check_dict(L, SELF);
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    uint64_t ms;
    ls_check_arguments(L, KEY, "dict:ttl(key)");
    if (!ls_dict_ttl(dict, &key, &ms)) return ls_push_nil(L);
    return ms == 0 ? ls_push_boolean(L, false) : ls_push_number(L, (double)ms / 1000);
}

/* dict:expire(key [, seconds]) -> existed: boolean
 * Sets the time to live; without seconds the entry does not expire any more. */
static int dict_expire(lua_State *L)
{
    const dict_object *object = check_object(L, SELF);
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    const uint64_t ms = ls_dict_check_ttl(L, VALUE);
    ls_check_arguments(L, VALUE, "dict:expire(key, seconds)");
    lua_pushboolean(L, ls_dict_expire(object->dict, &key, ms));
    return written(L, object, 1);
}

/* dict:len() -> count: integer
 * The number of entries. */
static int dict_len(lua_State *L)
{
    const dict_object *object = check_object(L, SELF);
    lua_settop(L, SELF); /* Lua passes the operand twice */
    lua_pushinteger(L, (lua_Integer)ls_dict_count(object->dict));
    if (object->observed) report(L, SELF, "#");
    return 1;
}

/* dict:clear()
 * Removes all entries. */
static int dict_clear(lua_State *L)
{
    const dict_object *object = check_called(L, "clear");
    ls_dict_clear(object->dict);
    return written(L, object, 0);
}

static const char not_a_list[] = "is not a list";

static int push(lua_State *L, bool head)
{
    const dict_object *object = check_called(L, head ? "lpush" : "rpush");
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    const int count = lua_gettop(L) - KEY;
    char message[LS_VALUE_MESSAGE_BYTES];
    size_t len;
    int err = LS_OK, taken = 0;
    luaL_checkany(L, VALUE);
    for (int n = 0; n < count; n++) luaL_argcheck(L, !lua_isnil(L, VALUE + n), VALUE + n, "value must not be nil");
    ls_dict_value *values = lua_newuserdatauv(L, (size_t)count * sizeof *values, 0);
    for (; taken < count && err == LS_OK; taken++)
        err = ls_dict_read_value(L, dict, VALUE + taken, &values[taken], message);
    if (err != LS_OK) {
        for (int n = 0; n < taken; n++) ls_dict_value_drop(&values[n]);
        return err == LS_EINVAL ? luaL_argerror(L, VALUE + taken - 1, message)
                                : ls_dict_push_failed(L, dict, &key, err);
    }
    err = ls_dict_push(dict, &key, values, (size_t)count, head, &len);
    if (err == LS_EINVAL) return ls_dict_push_wrong(L, &key, not_a_list);
    if (err < 0) return ls_dict_push_failed(L, dict, &key, err);
    lua_pushinteger(L, (lua_Integer)len);
    return written(L, object, 1);
}

/* dict:lpush(key, ...) -> length: integer | nil, message, code
 * Adds values to the front of a list, one after the other: the last one becomes the first. */
static int dict_lpush(lua_State *L)
{
    return push(L, true);
}

/* dict:rpush(key, ...) -> length: integer | nil, message, code
 * Adds values to the end of a list. */
static int dict_rpush(lua_State *L)
{
    return push(L, false);
}

static int pop(lua_State *L, bool head)
{
    const dict_object *object = check_object(L, SELF);
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    ls_dict_value value;
    ls_check_arguments(L, KEY, head ? "dict:lpop(key)" : "dict:rpop(key)");
    const int err = ls_dict_pop(dict, &key, head, &value);
    if (err == LS_EINVAL) return ls_dict_push_wrong(L, &key, not_a_list);
    if (err == LS_ENOENT)
        lua_pushnil(L);
    else if (value.type == LS_DICT_VALUE)
        ls_value_give(L, value.as.value, false);
    else
        ls_dict_push_scalar(L, &value);
    return written(L, object, 1);
}

/* dict:lpop(key) -> value | nil, message, code
 * Removes the first value of a list, and returns it; nil without a list. */
static int dict_lpop(lua_State *L)
{
    return pop(L, true);
}

/* dict:rpop(key) -> value | nil, message, code
 * Removes the last value of a list, and returns it; nil without a list. */
static int dict_rpop(lua_State *L)
{
    return pop(L, false);
}

/* dict:llen(key) -> length: integer | nil, message, code
 * The length of a list; 0 without one. */
static int dict_llen(lua_State *L)
{
    ls_dict *dict = check_called(L, "llen")->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    size_t len;
    ls_check_arguments(L, KEY, "dict:llen(key)");
    if (ls_dict_list_len(dict, &key, &len) < 0) return ls_dict_push_wrong(L, &key, not_a_list);
    return ls_push_integer(L, (lua_Integer)len);
}

/* dict:range(key [, first: integer [, last: integer]]) -> values: any[] | nil, message, code
 * The values of a list from one position, 1 unless given, to another, -1 unless given; negative ones count from the
 * end. */
static int dict_range(lua_State *L)
{
    ls_dict *dict = check_called(L, "range")->dict;
    const ls_dict_key key = ls_dict_check_key(L, KEY);
    const lua_Integer first = luaL_optinteger(L, VALUE, 1), last = luaL_optinteger(L, VALUE + 1, -1);
    ls_dict_value *values;
    size_t count;
    ls_check_arguments(L, VALUE + 1, "dict:range(key, first, last)");
    luaL_argcheck(L, first != 0, VALUE, "first is 0: positions count from 1");
    const int err = ls_dict_range(dict, &key, first, last, &values, &count);
    if (err == LS_EINVAL) return ls_dict_push_wrong(L, &key, not_a_list);
    if (err < 0) return ls_dict_push_failed(L, dict, &key, err);
    ls_dict_give_list(L, values, count, LS_DICT_COPY_READ_ONLY_VALUES);
    ls_array_set_mark(L);
    return 1;
}

/* dict is a Dict: a table that all Lua states share; `dict[key]`, `pairs(dict)` and `#dict` work as well. A table in
 * it comes out as a copy that cannot be changed: store the whole value again.
 * dict[string|integer]: any - the value of a key that is not the name of a method
 * #dict: integer
 * Upvalues: the object, the table of its copies. */
static int dict_index(lua_State *L)
{
    if (ls_dict_is_no_key(L, KEY)) return 0;
    dict_object *object = lua_touserdata(L, lua_upvalueindex(1));
    const ls_dict_key key = ls_dict_check_index(L, KEY);
    if (object->observed) report(L, lua_upvalueindex(1), "[key]");
    return get(L, object, lua_upvalueindex(2), &key);
}

/* dict[key] = value. The upvalue: the table of the methods, whose names are not read by dict[key]. */
static int dict_newindex(lua_State *L)
{
    const dict_object *object = check_called(L, "[key] = value");
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_index(L, KEY);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    lua_pushvalue(L, KEY);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) {
        const char *name = lua_tostring(L, KEY);
        return luaL_error(
            L, "dict: '%s' is the name of a method: write dict:set(\"%s\", value), and read it by dict:get(\"%s\")",
            name, name, name);
    }
    lua_settop(L, VALUE);
    int err = ls_dict_read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) return luaL_error(L, "dict: %s", message);
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, LS_DICT_SET, 0, 0);
    if (err < 0) return ls_dict_push_failed(L, dict, &key, err);
    return written(L, object, 0);
}

/* ---- functions for dict.lua -------------------------------------------------------------------------------- */

/* core.dict_read(dict, key) -> value, version: a table is plain. */
static int core_dict_read(lua_State *L)
{
    ls_dict *dict = check_dict(L, 1);
    const ls_dict_key key = ls_dict_check_key(L, 2);
    ls_dict_value value = {.type = LS_DICT_NIL};
    uint64_t version;
    (void)ls_dict_get(dict, &key, &value, &version);
    ls_dict_give_value(L, dict, &key, &value, false);
    lua_pushinteger(L, (lua_Integer)version);
    return 2;
}

/* core.dict_swap(dict, key, value, version) -> true | nil, message, code. "EAGAIN": another version; "EINVAL": a value
 * that cannot be shared. */
static int core_dict_swap(lua_State *L)
{
    const dict_object *object = check_called(L, "update");
    ls_dict *dict = object->dict;
    const ls_dict_key key = ls_dict_check_key(L, 2);
    const lua_Integer version = luaL_checkinteger(L, 4);
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_dict_value value;
    int err = ls_dict_read_value(L, dict, VALUE, &value, message);
    if (err == LS_EINVAL) return ls_push_failure_text(L, err, "%s", message);
    if (err == LS_OK) err = ls_dict_set(dict, &key, value, LS_DICT_SWAP, 0, (uint64_t)version);
    const int results = ls_dict_push_done(L, dict, &key, err);
    return err < 0 ? results : written(L, object, results);
}

/* core.dict_take(dict, place, key, token, full) -> seconds until the bucket has a token, 0: it was taken | nil,
 * message, code. The bucket, see ls_dict_take, is the entry with the key `place` .. `key`. */
static int core_dict_take(lua_State *L)
{
    const dict_object *object = check_object(L, SELF);
    const ls_text place = ls_check_text(L, 2), name = ls_check_text(L, 3);
    const ls_dict_bucket bucket = {.now = (double)(ls_clock_ns() + ls_clock_moved_ns()) / 1e9,
                                   .token = luaL_checknumber(L, 4),
                                   .full = luaL_checknumber(L, 5)};
    luaL_Buffer buffer;
    double wait;
    luaL_argcheck(L, place.len + name.len <= LS_DICT_KEY_BYTES_MAX, 3, "the key is too long");
    char *bytes = luaL_buffinitsize(L, &buffer, place.len + name.len);
    memcpy(bytes, place.ptr, place.len);
    memcpy(bytes + place.len, name.ptr, name.len);
    const ls_dict_key key = {.bytes = bytes, .len = place.len + name.len};
    const int err = ls_dict_take(object->dict, &key, &bucket, &wait);
    if (err < 0) return ls_dict_push_refused(L, object->dict, &key, err);
    lua_pushnumber(L, wait);
    return wait > 0 ? 1 : written(L, object, 1);
}

/* core.dict_observe(dict, fn): before each call that reads an entry, or writes into the dict, fn(call, dict, ...) is
 * called with the name of the method and its arguments; an update, before it stores the value. */
static int core_dict_observe(lua_State *L)
{
    check_object(L, 1)->observed = true;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, 2);
    return 0;
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
                ls_dict_give_value(L, s->dict, &key, &value, true);
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

/* core.dict_scan(dict, cursor, values) -> { key, value, ... } or { key, ... }, its length, the next cursor. cursor is
 * 0 for the first call and after the last. */
static int core_dict_scan(lua_State *L)
{
    scan s = {.dict = check_dict(L, 1), .values = lua_toboolean(L, 3) != 0};
    uint64_t cursor = (uint64_t)luaL_checkinteger(L, 2);
    if (ls_dict_scan(s.dict, &cursor, s.values, &s.items) < 0) {
        ls_dict_items_drop(&s.items);
        return luaL_error(L, "not enough memory");
    }
    const int status = ls_pcall(L, push_scan_call, &s, 2);
    ls_dict_items_drop(&s.items);
    if (status != LUA_OK) return lua_error(L);
    lua_pushinteger(L, (lua_Integer)cursor);
    return 3;
}

/* core.dict_content(value) -> the table of a read-only copy, whose fields rawget and rawlen read; each other value
 * as it is. */
static int core_dict_content(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    ls_copy_open(L, 1);
    return 1;
}

enum { DEPTH_MAX = 1000 /* of JSON, too */ };

static void check_depth(lua_State *L, int depth)
{
    if (depth > DEPTH_MAX) luaL_error(L, "more than %d levels of tables", DEPTH_MAX);
    luaL_checkstack(L, 8, NULL);
}

/* Replace the value on top of the stack by a plain copy, if it is a table. */
static void copy_plain(lua_State *L, int depth)
{
    if (!lua_istable(L, -1)) return;
    check_depth(L, depth);
    const int from = lua_gettop(L);
    ls_copy_open(L, from);
    int count = 0; /* makes the copy at once as large as it needs to be */
    for (lua_pushnil(L); lua_next(L, from) != 0; lua_pop(L, 1)) count++;
    lua_createtable(L, 0, count);
    for (lua_pushnil(L); lua_next(L, from) != 0;) {
        copy_plain(L, depth + 1);
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, from + 1);
    }
    lua_replace(L, from);
}

/* core.plain_copy(value) -> a deep copy without metatables, also of read-only copies */
static int core_plain_copy(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    copy_plain(L, 1);
    return 1;
}

static bool is_same(lua_State *L, int depth)
{
    const int a = lua_gettop(L) - 1, b = a + 1;
    bool same = lua_rawequal(L, a, b);
    if (same || !lua_istable(L, a) || !lua_istable(L, b)) return same;
    check_depth(L, depth);
    ls_copy_open(L, a);
    lua_Integer count = 0;
    for (lua_pushnil(L); lua_next(L, a) != 0; lua_settop(L, b + 1), count++) {
        lua_pushvalue(L, -2);
        (void)lua_rawget(L, b);
        if (!is_same(L, depth + 1)) return false;
    }
    for (lua_pushnil(L); lua_next(L, b) != 0; lua_pop(L, 1)) count--;
    return count == 0;
}

/* core.same(a, plain) -> whether the two values are equal, tables by their fields */
static int core_same(lua_State *L)
{
    lua_settop(L, 2);
    return ls_push_boolean(L, is_same(L, 1));
}

static int push_code_call(lua_State *L)
{
    size_t len;
    const char *code = ls_value_code(lua_touserdata(L, 1), &len);
    return ls_push_bytes(L, code, len);
}

/* core.value_encode(value) -> text | nil, message: a value as bytes, for a store outside of the process; the reason
 * names the part of the value that has no such form. */
static int core_value_encode(lua_State *L)
{
    static const ls_value_options options = {.slices = ls_buffer_slices};
    char message[LS_VALUE_MESSAGE_BYTES];
    ls_value *value = NULL;
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    const int err = ls_value_pack(L, 1, &options, &value, message, sizeof(message));
    if (err == LS_ENOMEM) return luaL_error(L, "not enough memory");
    if (err < 0) return ls_push_nil_text(L, message);
    const int status = ls_pcall(L, push_code_call, value, 1);
    ls_value_drop(value);
    return status == LUA_OK ? 1 : lua_error(L);
}

/* core.plain(metatable) -> metatable: tables that have it are shared as if they had none */
static int core_plain(lua_State *L)
{
    lua_settop(L, 1);
    lua_pushboolean(L, true);
    lua_rawsetp(L, 1, &ls_plain_mark);
    return 1;
}

/* core.value_decode(text, read_only) -> value | nil: damaged. Its tables are read-only copies, or the caller's. */
static int core_value_decode(lua_State *L)
{
    const ls_text code = ls_check_text(L, 1);
    ls_value *value = ls_value_of_code(code.ptr, code.len);
    if (value == NULL)
        lua_pushnil(L);
    else
        ls_value_give(L, value, lua_toboolean(L, 2));
    return 1;
}

static int dict_tostring(lua_State *L)
{
    lua_pushfstring(L, "dict '%s'", ((const ls_shared_object *)(const void *)check_dict(L, SELF))->name);
    return 1;
}

static const luaL_Reg methods[] = {{"get", dict_get},
                                   {"set", dict_set},
                                   {"add", dict_add},
                                   {"replace", dict_replace},
                                   {"delete", dict_delete},
                                   {"incr", dict_incr},
                                   {"ttl", dict_ttl},
                                   {"expire", dict_expire},
                                   {"dict:len(); of a list: dict:llen(key)", dict_len},
                                   {"dict:clear(); of one entry: dict:delete(key)", dict_clear},
                                   {"lpush", dict_lpush},
                                   {"rpush", dict_rpush},
                                   {"lpop", dict_lpop},
                                   {"rpop", dict_rpop},
                                   {"llen", dict_llen},
                                   {"range", dict_range},
                                   {NULL, NULL}};

/* Push the metatable of the object at index `object`. `more`: index of a table with methods in Lua; of these, "pairs"
 * becomes __pairs. */
static void push_metatable(lua_State *L, int object, int more)
{
    static const luaL_Reg metamethods[] = {{"__len", dict_len}, {"__tostring", dict_tostring}, {NULL, NULL}};
    luaL_newlib(L, metamethods);
    ls_set_text(L, "__name", "dict");
    ls_set_boolean(L, "__metatable", false);
    lua_getfield(L, more, "pairs");
    lua_setfield(L, -2, "__pairs");

    lua_newtable(L); /* __index */
    ls_set_calls(L, methods);
    for (lua_pushnil(L); lua_next(L, more) != 0; lua_pop(L, 1)) {
        if (strcmp(lua_tostring(L, -2), "pairs") == 0) continue;
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, -5);
    }
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, dict_newindex, 1);
    lua_setfield(L, -3, "__newindex");
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

/* core.dict(name, where, methods [, bytes_max, evict, file, sync]) -> dict | false, position of a definition with
 * other options, its size as text, its evict, its file, its sync | nil, message, code: the file cannot be opened */
static int core_dict(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *where = luaL_checkstring(L, 2);
    char message[300] = "";
    int error = LS_OK;
    lua_settop(L, 7);
    const bool has_file = !lua_isnil(L, 6);
    const ls_dict_options options = {.bytes_max = (uint64_t)luaL_optinteger(L, 4, 0),
                                     .evict = lua_toboolean(L, 5),
                                     .file = has_file ? ls_push_site_path(L, 6) : NULL,
                                     .name = name,
                                     .shares = ls_state_runtime(ls_state_of(L))->host->check,
                                     .sync = lua_toboolean(L, 7),
                                     .error = &error,
                                     .message = message,
                                     .message_bytes = sizeof message};
    const bool has_options = !lua_isnoneornil(L, 4);
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *found = NULL;
    luaL_checktype(L, 3, LUA_TTABLE);
    dict_object *object = lua_newuserdatauv(L, sizeof *object, 2);
    const int self = lua_gettop(L);
    ls_shared *shared = ls_state_runtime(ls_state_of(L))->shared;
    const ls_site_host *host = ls_state_runtime(ls_state_of(L))->host;
    int err;
    do {
        error = LS_OK;
        err = ls_shared_get(shared, &ls_dict_kind, name, where, has_options ? &options : NULL, &found, before);
    } while (error == LS_EBUSY && host->file_busy != NULL && host->file_busy(host->server, options.file));
    if (err == LS_EEXIST) {
        (void)ls_shared_get(shared, &ls_dict_kind, name, where, NULL, &found, before);
        const ls_dict_options other = ls_dict_options_get((ls_dict *)(void *)found);
        lua_pushboolean(L, 0);
        lua_pushstring(L, before);
        (void)ls_dict_push_size(L, other.bytes_max);
        lua_pushboolean(L, other.evict);
        lua_pushstring(L, other.file != NULL ? other.file : "none");
        lua_pushboolean(L, other.sync);
        return 6;
    }
    if (error < 0)
        return ls_push_failure_text(L, error, "%s: %s", ls_push_refused_path(L, lua_tostring(L, 6)), message);
    if (err < 0) return luaL_error(L, "not enough memory");
    ls_dict *dict = (ls_dict *)(void *)found;
    *object = (dict_object){.tag = &dict_tag, .dict = dict, .sync = ls_dict_options_get(dict).sync};
    push_metatable(L, self, 3);
    lua_setmetatable(L, self);
    return 1;
}

static const luaL_Reg functions[] = {{"dict", core_dict},
                                     {"dict_read", core_dict_read},
                                     {"dict_content", core_dict_content},
                                     {"dict_swap", core_dict_swap},
                                     {"dict_take", core_dict_take},
                                     {"dict_scan", core_dict_scan},
                                     {"dict_observe", core_dict_observe},
                                     {"plain_copy", core_plain_copy},
                                     {"same", core_same},
                                     {"value_encode", core_value_encode},
                                     {"plain", core_plain},
                                     {"value_decode", core_value_decode},
                                     {NULL, NULL}};

static void define(lua_State *L, ls_state *state)
{
    ls_copy_define(L);
}

const ls_module ls_dict_module = {.name = "dict", .functions = functions, .define = define};
