/* look.h - for ls_runtime.on_look: what core.look() returns of a thread that computes. */
#ifndef LS_SCRIPT_BIND_LOOK_H
#define LS_SCRIPT_BIND_LOOK_H

#include "script/core/state.h"

/* Inside the hook of a run, on its thread: note which line runs, of which request. */
void ls_look_place(lua_State *L, ls_state *state, uint64_t run, unsigned thread);

#endif
