/* bytecode.h - cache of the embedded modules (lua_modules.h) as lua_dump() bytecode, shared by all Lua states.
 *
 * Compiling the modules is most of the cost of opening a state and leaves garbage of several times their size; loading
 * bytecode is fast and leaves none. The first state that requires a module compiles it in a temporary Lua state; later
 * states load the bytecode. Error messages carry the same chunk names and line numbers either way.
 *
 * Any thread. */
#ifndef LS_SCRIPT_BYTECODE_H
#define LS_SCRIPT_BYTECODE_H

#include <stddef.h>

#include <lua.h>

typedef struct ls_bytecode ls_bytecode;

#define LS_LUA_SOURCE_PREFIX "@luaserve/" /* of the names of their chunks */

/* Open an empty cache. Returns LS_OK or LS_ENOMEM. */
int ls_bytecode_open(ls_bytecode **out);
void ls_bytecode_close(ls_bytecode *bytecode); /* NULL: does nothing */

/* Push the main function of the embedded module with index `number` in ls_lua_modules. With `bytecode` NULL the module
 * is compiled in L and not cached. Raises when out of memory. */
void ls_bytecode_push(lua_State *L, ls_bytecode *bytecode, size_t number);

#endif
