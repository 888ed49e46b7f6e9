/* copy.h - read-only copies of tables: what a dict returns.
 *
 * A read-only copy is an empty table with one hidden field, the table with the content, and the metatable of all
 * copies. Reading, #, ipairs, pairs and next work as on a plain table; writing raises, also with rawset. Functions in
 * C that bypass metamethods see the hidden field, whose key is a light userdata, and refuse it.
 *
 * Thread: the one that uses the Lua state. */
#ifndef LS_SCRIPT_COPY_H
#define LS_SCRIPT_COPY_H

#include <stdbool.h>

#include <lua.h>

/* Create the metatable of read-only copies and replace the globals `next` and `rawset`, which are loaded, by one that
 * accepts copies and one that refuses them. Once per state. Raises when out of memory. */
void ls_copy_define(lua_State *L);

/* Push the metatable of read-only copies. */
void ls_copy_push_metatable(lua_State *L);

/* Push a new table with a hidden field, the table `content`, and the metatable at index `metatable`. Content that is
 * changed later changes the copy. Raises when out of memory. */
void ls_copy_push(lua_State *L, int content, int metatable);

/* If the table at `index` is a read-only copy, push its content and return true. Needs one stack slot. */
bool ls_copy_content(lua_State *L, int index);

/* Replace a read-only copy at `index` by its content, for functions that read fields without metamethods. Every other
 * value stays. Needs one stack slot. */
void ls_copy_open(lua_State *L, int index);

#endif
