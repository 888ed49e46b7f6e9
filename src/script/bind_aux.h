/* bind_aux.h - auxiliary functions of the bindings: an argument in seconds, and the three results of a failure. */
#ifndef LS_SCRIPT_BIND_AUX_H
#define LS_SCRIPT_BIND_AUX_H

#include <lua.h>

/* Push nil, the message and the code of the LS_E* error `err`. Returns 3. May raise "not enough memory". */
int ls_push_failure(lua_State *L, int err);

/* The number of seconds at `index`. Raises unless it is a number >= 0; NaN raises. */
double ls_check_seconds(lua_State *L, int index);

#endif
