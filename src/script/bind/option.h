/* option.h - readers for the option tables that the modules of lua/luaserve pass to the core.
 *
 * Field names and units are those of the core. The Lua modules validate what a site wrote, so an error here names
 * the field of the core.
 *
 * `index` is the stack index of the table. A field that is nil leaves *out unchanged. A function marked "raises"
 * raises a Lua error for an invalid value. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_OPTION_H
#define LS_SCRIPT_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

/* A whole number from 0 to max; raises. ls_option_number returns true if the field is set. */
bool ls_option_number(lua_State *L, int index, const char *name, uint64_t max, uint64_t *out);
void ls_option_u32(lua_State *L, int index, const char *name, uint32_t max, uint32_t *out);

/* The truth value of the field; nil is false. */
bool ls_option_flag(lua_State *L, int index, const char *name);

/* A string without embedded NUL; it takes at most `room` bytes with its terminator. Raises. */
void ls_option_text(lua_State *L, int index, const char *name, char *out, size_t room);

/* A function; returns a registry reference to it. Raises. */
int ls_option_function(lua_State *L, int index, const char *name);

#endif
