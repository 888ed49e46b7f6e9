/* bytecode.h - the embedded modules (modules.h) in the form that lua_dump(3) writes, made once for all Lua states of a site.
 *
 * To compile the modules is most of what it takes to open a state, and leaves several times their size in garbage; to read
 * what was compiled is quick and leaves none. So the first state to want a module has it compiled, in a Lua state of its
 * own that is closed again, and those after it read the result. Names, lines and texts of errors are the same both ways.
 *
 * One thread at a time: the one that loads the site. What is kept goes when all states are there. */
#ifndef LS_SCRIPT_BYTECODE_H
#define LS_SCRIPT_BYTECODE_H

#include <stddef.h>

#include <lua.h>

typedef struct ls_bytecode ls_bytecode;

/* LS_OK or LS_ENOMEM. */
int ls_bytecode_open(ls_bytecode **out);
void ls_bytecode_close(ls_bytecode *bytecode); /* NULL: does nothing */

/* Push the main function of the embedded module of this number (of ls_modules). With `compiled` NULL it is compiled in
 * L itself, for it alone; then any thread may call. Raises when memory is out. */
void ls_bytecode_push(lua_State *L, ls_bytecode *bytecode, size_t number);

#endif
