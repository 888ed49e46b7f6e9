/* bind_aux.h - auxiliary functions of the bindings: arguments in seconds, paths, arguments that would be ignored,
 * unknown names, and the three results of a failure. */
#ifndef LS_SCRIPT_BIND_AUX_H
#define LS_SCRIPT_BIND_AUX_H

#include <stdbool.h>

#include <lauxlib.h>

#include "script/core/lua/lua_modules.h" /* ls_push_function */
#include "script/core/lua/push.h"

/* Limits that C and Lua share, as fields of luaserve.core. */
#define LS_SSE_RETRY_MS_MAX 600000 /* more is hardly meant as seconds */
#define LS_SECONDS_MAX      3.2e8  /* 10 years: more is a time since 1970, or milliseconds */

/* Push nil, the message and the code of the LS_E* error `err`. Returns 3. May raise "not enough memory". */
int ls_push_failure(lua_State *L, int err);
/* The same with a message of its own, formatted as by lua_pushfstring(). */
int ls_push_failure_text(lua_State *L, int err, const char *format, ...);
/* true, or as ls_push_failure() for a negative result. */
int ls_push_result(lua_State *L, int result);

/* Push the address as text. Returns 1. */
struct ls_addr;
int ls_push_addr(lua_State *L, const struct ls_addr *addr);
/* Push a field of an object with addresses, by its name: "ip" and "local_ip" (a string; "unix:" and the path of a Unix
 * socket), "port" and "local_port" (an integer; none of a Unix socket), or the address as text. Returns the number of
 * values, 0 or 1. */
int ls_push_addr_field(lua_State *L, const char *name, const struct ls_addr *addr);

/* The state, while its site loads; raises afterwards. `prefix` begins the message: "" where lua/luaserve adds one. */
struct ls_state *ls_check_loading(lua_State *L, const char *prefix);

/* Whether a timer or a subscription that the site makes now is one for the whole server, which the first state runs: at
 * the top of the file, and in a function of "start" itself. */
bool ls_is_once(const struct ls_state *state);
/* Raise, unless the site ends: the handle of one made in "start" is used in another state than the first. */
void ls_refuse_once(lua_State *L, const char *call);

/* The number of seconds at `index`. Raises unless it is a number >= 0; NaN raises. */
double ls_check_seconds(lua_State *L, int index);

/* Replace the `count` values on top of the stack by a list of them whose field n is their number. */
void ls_pack(lua_State *L, int count);
/* Push the values of such a list, which is on top. Returns their number. Raises "stack overflow (`what`)". */
int ls_unpack(lua_State *L, const char *what);

/* Push the path at `index` as a path of the system: a relative one starts at the directory of the site, as it does for
 * `require`. Returns the string on the stack. */
const char *ls_push_site_path(lua_State *L, int index);

/* Push the path for the message of a refusal: `given` by the site, and, if it is relative to the directory of the
 * site, the complete one, and where a service may write. Uses up to 4 slots of the stack. */
const char *ls_push_refused_path(lua_State *L, const char *given);

/* Raise if an argument above stack index `most` is not nil: it would be ignored. `call` shows
 * the right call, such as "res:send(body)". The second result of `require` is ignored: res:json(require "data"). */
void ls_refuse_arguments(lua_State *L, int most, const char *call);
static inline void ls_check_arguments(lua_State *L, int most, const char *call)
{
    if (lua_gettop(L) > most) ls_refuse_arguments(L, most, call);
}

/* As luaL_setfuncs for the table at the top. A row that is named by its call, such as "sock:receive(pattern, max)", sets
 * the method of that name and counts the arguments of its calls before the function runs. */
void ls_set_calls(lua_State *L, const luaL_Reg *list);

/* Raise "<object> has no method or field '<name>'" for the name at index 2. The message suggests the most similar key
 * of the table at `known`. */
int ls_unknown_member(lua_State *L, const char *object, int known);

/* A type of objects, with fields if `index` is not NULL. */
typedef struct ls_object_type {
    const char *name;          /* for messages */
    const luaL_Reg *methods;   /* NULL: none, nor fields */
    const luaL_Reg *meta;      /* metamethods; NULL: none */
    const char *const *fields; /* their names; NULL ends them */
    lua_CFunction index;       /* __index; its upvalue is the table of the members */
    lua_CFunction newindex;    /* __newindex with the same upvalue; NULL: none */
    lua_CFunction drop;        /* __gc and __close; NULL: none */
} ls_object_type;

/* Make the metatable of the type, and store a registry reference to it in *ref. */
void ls_object_define(lua_State *L, const ls_object_type *type, int *ref);
/* In `index`: push the method that index 2 names and return true, or return false if it names a field. Raises as
 * ls_unknown_member() for another name. `object`: "a sock". */
bool ls_push_method(lua_State *L, const char *object);

/* Push a new object of the type, filled with zeros but for its first field, the tag (udata.h), which is `type`. The
 * first object of a state makes the metatable. May raise. */
void *ls_object_push(lua_State *L, size_t bytes, int user_values, const ls_object_type *type);
/* The same for objects that are made often: with a tag, and the metatable that ls_object_define has made. */
void *ls_object_new(lua_State *L, size_t bytes, int user_values, const void *tag, int meta_ref);
/* The object of ls_object_push at `index`, an argument of a function. Raises "bad argument" for another value. */
void *ls_object_check(lua_State *L, int index, size_t bytes, const ls_object_type *type);

#endif
