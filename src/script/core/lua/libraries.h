/* libraries.h - the standard libraries of Lua: string and table with our patches (third_party/patches), so that the
 * processor-time limit ends their functions as well, io, whose popen waits for no other stream, os, whose date takes
 * no endless format, and math, whose randomseed gives each state a sequence of its own. */
#ifndef LS_SCRIPT_LIBRARIES_H
#define LS_SCRIPT_LIBRARIES_H

#include <lua.h>

/* Define all standard libraries, as luaL_openlibs does, in a state of state.h. */
void ls_libraries_open(lua_State *L);

/* coroutine.c: replace functions of the coroutine library, which is loaded. */
void ls_coroutine_define(lua_State *L);

/* The patched libraries. */
int ls_string_open(lua_State *L);
int ls_table_open(lua_State *L);

#endif
