/* marshal.h - an immutable, refcounted copy of a Lua value, outside of any Lua state.
 *
 * A value is nil, a boolean, an integer, a float, a string, ls.json.null, or a table of values. Keys of tables are
 * booleans, numbers and strings. A buffer becomes a string. The mark of ls.json.array and the type of each number are
 * kept. A table that occurs twice is copied twice. A cycle, a function, a thread, a userdata and a table with a
 * metatable have no such copy: ls_value_pack() names the first one that it finds by its path, such as
 * "value.items[3].fn is a function".
 *
 * Threads: a value is only read after it was made, so any thread may hold, push and drop it. */
#ifndef LS_SCRIPT_MARSHAL_H
#define LS_SCRIPT_MARSHAL_H

#include <stdbool.h>
#include <stddef.h>

#include <lua.h>

#include "base/buf.h"

typedef struct ls_value ls_value;

enum {
    LS_VALUE_DEPTH_MAX = 100,    /* levels of tables */
    LS_VALUE_MESSAGE_BYTES = 256 /* enough for every message of ls_value_pack */
};

/* Its address is the key of the mark of ls.json.array: a field of the metatables of arrays, and the first of these
 * metatables in the registry. lua_cjson.c sets both. */
extern const char ls_array_mark;
/* Mark the table at the top: ls.json writes it as [] while it is empty. */
void ls_array_set_mark(lua_State *L);
/* Its address is the key of the mark of a metatable whose tables are shared as if they had none: core.plain sets
 * it. */
extern const char ls_plain_mark;

typedef struct ls_value_options {
    size_t bytes_max; /* of the copy, as ls_value_bytes() counts them; 0: no limit */
    const char *name; /* of the value in messages; NULL: "value" */
    /* NULL, or a function that returns the slices of the buffer at `index` and their number; NULL for another value.
     * It must neither allocate nor raise. */
    const ls_slice *(*slices)(lua_State *L, int index, unsigned *count);
} ls_value_options;

/* Copy the value at `index`. The caller owns one reference to *out. Does not change the stack, calls no metamethod and
 * does not raise. On failure *out is untouched and `message` receives the reason, truncated to fit:
 *   LS_EINVAL    a value without a copy, a cycle
 *   LS_ELIMIT    more than LS_VALUE_DEPTH_MAX levels
 *   LS_EMSGSIZE  more than bytes_max bytes
 *   LS_ENOMEM    out of memory, also of the Lua stack
 * `options` may be NULL. */
int ls_value_pack(lua_State *L, int index, const ls_value_options *options, ls_value **out, char *message,
                  size_t message_bytes);

/* A value that is a string of these bytes. NULL: out of memory. */
ls_value *ls_value_string(const char *bytes, size_t len);

/* The bytes of a string; NULL for a value of another type. */
const char *ls_value_text(const ls_value *value, size_t *len);

/* The code of the value, which a file can keep, and a value of such a code. NULL: damaged, or out of memory. */
const char *ls_value_code(const ls_value *value, size_t *len);
ls_value *ls_value_of_code(const char *code, size_t len);

ls_value *ls_value_hold(ls_value *value); /* +1 reference; returns `value` */
void ls_value_drop(ls_value *value);      /* -1 reference; the last one frees the value. NULL is allowed */

size_t ls_value_bytes(const ls_value *value); /* memory of the value, header included */
int ls_value_type(const ls_value *value);     /* LUA_T*; LUA_TLIGHTUSERDATA for ls.json.null */

/* Push the value. Tables are new. Raises "not enough memory". */
void ls_value_push(lua_State *L, const ls_value *value);
/* The same; tables are read-only copies, see copy.h. */
void ls_value_push_copy(lua_State *L, const ls_value *value);

/* ls_value_push() or, if `read_only`, ls_value_push_copy(); then drop the caller's reference, also when it raises. */
void ls_value_give(lua_State *L, ls_value *value, bool read_only);

#endif
