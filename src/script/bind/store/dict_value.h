/* dict_value.h - keys, values and failures of ls.dict between Lua and script/store/dict.h, for dict.c.
 *
 * A value that is given away is pushed in a protected call: its reference is dropped also when Lua has no memory. The
 * other functions that push raise then. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_DICT_VALUE_H
#define LS_SCRIPT_BIND_DICT_VALUE_H

#include <lauxlib.h>
#include <lua.h>

#include "script/store/dict.h"

/* The key at `index`. Raises unless it is a string within the limit or an integer; ls_dict_check_index() is for
 * metamethods, whose arguments have no numbers for the caller. */
ls_dict_key ls_dict_check_key(lua_State *L, int index);
ls_dict_key ls_dict_check_index(lua_State *L, int index);

/* Whether the value at `index` is nil or a number that is no integer: reading such a key gives nil, as reading a table
 * does. */
bool ls_dict_is_no_key(lua_State *L, int index);

/* The time to live in milliseconds; 0 for false or none. Raises unless it is a number of seconds above 0. */
uint64_t ls_dict_check_ttl(lua_State *L, int index);

/* The number at `index`; by_default for nil or none. Raises for another type. */
ls_dict_value ls_dict_check_number(lua_State *L, int index, int64_t by_default);

/* The value at `index`; the caller owns its reference. LS_OK, LS_EMSGSIZE, LS_ENOMEM, or LS_EINVAL for a value that
 * cannot be shared, with the reason in `message` (LS_VALUE_MESSAGE_BYTES). Does not raise. */
int ls_dict_read_value(lua_State *L, ls_dict *dict, int index, ls_dict_value *out, char *message);

/* Push a boolean or a number; nil for another type. */
void ls_dict_push_scalar(lua_State *L, const ls_dict_value *value);

enum ls_dict_copy { LS_DICT_COPY_PLAIN, LS_DICT_COPY_READ_ONLY, LS_DICT_COPY_READ_ONLY_VALUES };

/* Push a table of the values, which, or whose tables, are read-only by `kind`; drop their references and free the
 * array from malloc(3), also when it raises. */
void ls_dict_give_list(lua_State *L, ls_dict_value *values, size_t count, enum ls_dict_copy kind);

/* Push the value of `key` and drop its reference, also when it raises. A list is read from the dict; nil if another
 * thread has just removed it. */
void ls_dict_give_value(lua_State *L, ls_dict *dict, const ls_dict_key *key, ls_dict_value *value, bool read_only);

/* Push a number of bytes as text, such as "16 MiB". */
const char *ls_dict_push_size(lua_State *L, uint64_t bytes);

/* The dict at `index`; NULL: with sync = true. Raises for another value. */
ls_dict *ls_dict_check_unsynced(lua_State *L, int index);

/* ---- failures: the results of a method ----------------------------------------------------------------------- */

/* Push nil, the text of `err`, which is about the key, and the code: LS_EEXIST, LS_ENOENT, LS_EAGAIN. Returns 3. Others
 * raise: so a full dict is not taken for an entry that does not exist. */
int ls_dict_push_failed(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err);
/* The same for any error, without raising. */
int ls_dict_push_refused(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err);
/* The same for a value of another type than the method needs: "the value of <key> <wrong>". Returns 3. */
int ls_dict_push_wrong(lua_State *L, const ls_dict_key *key, const char *wrong);
/* Push true, or the failure. Returns the number of results. */
int ls_dict_push_done(lua_State *L, ls_dict *dict, const ls_dict_key *key, int err);

#endif
