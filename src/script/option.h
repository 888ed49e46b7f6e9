/* option.h - the fields of a table of options, as the modules of lua/luaserve hand them to the core: names and units are the
 * core's, and what a site wrote was checked there. So what is wrong here raises with the core's name.
 *
 * `index` is where the table lies; a field that is nil leaves *out as it is. Inside the state's actor. */
#ifndef LS_SCRIPT_OPTION_H
#define LS_SCRIPT_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lua.h>

/* A whole number from 0 to max. true: it is set. Raises. */
bool ls_option_number(lua_State *L, int index, const char *name, uint64_t max, uint64_t *out);
void ls_option_u32(lua_State *L, int index, const char *name, uint32_t max, uint32_t *out);

/* Whether the field is true. */
bool ls_option_flag(lua_State *L, int index, const char *name);

/* A string without a NUL, its terminator included at most `room` bytes long. Raises. */
void ls_option_text(lua_State *L, int index, const char *name, char *out, size_t room);

/* A function: its reference in the registry. Raises. */
int ls_option_function(lua_State *L, int index, const char *name);

#endif
