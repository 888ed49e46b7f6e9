/* error_text.h - the text of an error value, for the log. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_ERROR_TEXT_H
#define LS_SCRIPT_ERROR_TEXT_H

#include <stdbool.h>

#include <lua.h>

/* Push a description of the error value at the absolute `index`, even if its __tostring fails: a string or number
 * itself; a table without __tostring with its fields, `{ code = 7, message = "no luck" }`, at most
 * LS_ERROR_FIELDS_MAX of them. The result is valid while the string is on the stack. */
enum { LS_ERROR_FIELDS_MAX = 12, LS_ERROR_FIELD_BYTES_MAX = 100 };
const char *ls_error_describe(lua_State *L, int index);

/* Whether the error value at the absolute `index` is the failure of a database (lua/luaserve/failure.lua).
 * *unreached: its server was not reached, or did not answer in time. */
bool ls_error_is_failure(lua_State *L, int index, bool *unreached);
/* Log the error value at the absolute `index`, "name: text", with `traced`, its text and traceback. The failure of a
 * database is logged without, once in a minute for each place and kind. */
void ls_error_log(lua_State *L, int index, const char *name, const char *traced);

/* As luaL_traceback, without the frames of luaserve and those of C that it calls. The message alone, if the site has no
 * frame and the error is not one of luaserve. */
void ls_error_traceback(lua_State *L, lua_State *co, const char *message, int level);

#endif
