/* error_text.h - the text of an error value, for the log. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_ERROR_TEXT_H
#define LS_SCRIPT_ERROR_TEXT_H

#include <lua.h>

/* Push a description of the error value at the absolute `index`, even if its __tostring fails: a string or number
 * itself; a table without __tostring with its fields, `{ code = 7, message = "no luck" }`, at most
 * LS_ERROR_FIELDS_MAX of them. The result is valid while the string is on the stack. */
enum { LS_ERROR_FIELDS_MAX = 12, LS_ERROR_FIELD_BYTES_MAX = 100 };
const char *ls_error_describe(lua_State *L, int index);

#endif
