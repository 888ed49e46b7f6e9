/* engine.h - what main.lua of the load generator gets from engine.c. */
#ifndef LS_STRESS_ENGINE_H
#define LS_STRESS_ENGINE_H

#include <lua.h>

/* Push the terminal of lua/luaserve/stress/view.lua: standard error. A function of Lua: terminal() -> the table. */
int ls_stress_terminal_push(lua_State *L);

#endif
