/* number.h - a number as text: the fewest digits that read back as the same number, for everything that leaves the
 * program: bodies, pages, messages, parameters of databases. (tostring and `..` of Lua write 14 digits.) */
#ifndef LS_SCRIPT_NUMBER_H
#define LS_SCRIPT_NUMBER_H

#include <stdbool.h>

#include <lua.h>

enum { LS_NUMBER_BYTES = 40 };

/* Write the number at `index`. A float without a fraction is written as one, "3.0"; with `whole` as an integer, "3".
 * Returns the length; there is no NUL. */
size_t ls_number_write(char to[LS_NUMBER_BYTES], lua_State *L, int index, bool whole);

/* As lua_tolstring() for such a text: the value at `index` becomes it if it is a number. May raise. */
const char *ls_number_tolstring(lua_State *L, int index, size_t *len);

#endif
