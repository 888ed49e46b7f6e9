/* mute.h - the output of a site while it loads appears once, not once per Lua state.
 *
 * While a state other than the first one loads, its io.stdout and io.stderr write to the null device, and print and
 * ls.log do nothing. Other effects of the file, such as writing to a file of its own, take place in every state.
 *
 * Thread: the one that loads the state. */
#ifndef LS_SCRIPT_MUTE_H
#define LS_SCRIPT_MUTE_H

#include <stdio.h>

#include "script/core/state.h"

enum { LS_MUTE_STREAMS = 2 };

typedef struct ls_mute { /* all zero: nothing is redirected */
    luaL_Stream *streams[LS_MUTE_STREAMS];
    FILE *files[LS_MUTE_STREAMS];
} ls_mute;

static inline bool ls_mute_is(const ls_state *state)
{
    return state->loading && state->index > 0;
}

/* Define `print`: it is silent where ls_mute_is(), and writes each line as a whole. It and io.stdout write to standard
 * output as base/io/output.h does. Raises when out of memory. */
void ls_mute_define(lua_State *L);

/* Redirect io.stdout and io.stderr to `null` until ls_mute_end(); NULL: does nothing. Pushes two values, which must
 * stay on the stack until then. Raises when out of memory. */
void ls_mute_begin(lua_State *L, FILE *null, ls_mute *quiet);
void ls_mute_end(ls_mute *quiet);

#endif
