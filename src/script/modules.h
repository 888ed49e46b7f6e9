/* modules.h - the Lua modules of lua/luaserve/, kept in the program as bytes, and how a Lua state finds them and those beside
 * the file that it runs. The table is generated at build time by lua/embed.cmake; read-only, any thread. */
#ifndef LS_SCRIPT_MODULES_H
#define LS_SCRIPT_MODULES_H

#include <lua.h>
#include <stddef.h>

#include "script/bytecode.h"

typedef struct ls_module_source {
    const char *name;  /* "luaserve" for init.lua, "luaserve.<file>" for the others */
    const char *bytes; /* the source text, no terminator */
    size_t len;
} ls_module_source;

extern const ls_module_source ls_modules[]; /* sorted as listed; one entry with a NULL name follows the last */
extern const size_t ls_modules_count;

/* `require` finds the modules whose names begin so, by package.preload, before it looks at package.path. The libraries are
 * open. *compiled, which may be set or NULL whenever a module is loaded, holds them in compiled form; `compiled` may be NULL
 * itself. Raises when there is no memory. */
void ls_modules_preload(lua_State *L, const char *prefix, ls_bytecode *const *bytecode);

/* `require` looks beside `file` before it looks where it would have: package.path. Raises when there is no memory. */
void ls_modules_path(lua_State *L, const char *file);

#endif
