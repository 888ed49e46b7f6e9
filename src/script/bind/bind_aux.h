/* bind_aux.h - auxiliary functions of the bindings: arguments in seconds, paths, arguments that would be ignored,
 * unknown names, and the three results of a failure. */
#ifndef LS_SCRIPT_BIND_AUX_H
#define LS_SCRIPT_BIND_AUX_H

#include <stdbool.h>

#include <lua.h>

/* Push nil, the message and the code of the LS_E* error `err`. Returns 3. May raise "not enough memory". */
int ls_push_failure(lua_State *L, int err);

/* The state, while its site loads; raises afterwards. `prefix` begins the message: "" where lua/luaserve adds one. */
struct ls_state *ls_check_loading(lua_State *L, const char *prefix);

/* The number of seconds at `index`. Raises unless it is a number >= 0; NaN raises. */
double ls_check_seconds(lua_State *L, int index);

/* Push the path at `index` as a path of the system: a relative one starts at the directory of the site, as it does for
 * `require`. Returns the string on the stack. */
const char *ls_push_site_path(lua_State *L, int index);

/* Whether the value at `extra` may be the second result of the `require` that returned the value at `value`: a string
 * behind a module. */
bool ls_is_loader_data(lua_State *L, int value, int extra);

/* Raise if an argument above stack index `most` is not nil: it would be ignored. `call` shows the right call, such as
 * "res:send(body)". The second result of `require` is ignored: res:json(require "data"). */
void ls_refuse_arguments(lua_State *L, int most, const char *call);
static inline void ls_check_arguments(lua_State *L, int most, const char *call)
{
    if (lua_gettop(L) > most) ls_refuse_arguments(L, most, call);
}

/* Push the function `name` of a module of luaserve. false: the site has not loaded it; nothing is pushed. */
bool ls_push_function(lua_State *L, const char *module, const char *name);

/* Raise "<object> has no method or field '<name>'" for the name at index 2. The message suggests the most similar key
 * of the table at `known`. */
int ls_unknown_member(lua_State *L, const char *object, int known);

/* For an object with methods only: pop the table of methods and make it __index of the metatable below it. Another
 * name raises as ls_unknown_member() does. */
void ls_set_methods(lua_State *L, const char *object);

/* For an object with methods and fields: pop the table of methods, add the names of the fields (NULL ends them), and
 * make `index` with that table as its upvalue __index of the metatable below it. */
void ls_set_members(lua_State *L, const char *const fields[], lua_CFunction index);
/* In `index`: push the method that index 2 names and return true, or return false if it names a field. Raises as
 * ls_unknown_member() for another name. */
bool ls_push_method(lua_State *L, const char *object);

#endif
