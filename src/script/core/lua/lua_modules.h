/* lua_modules.h - the Lua modules of lua/luaserve/, embedded in the program, and where a Lua state looks for modules.
 *
 * lua/embed.lua generates the table at build time. It is read-only; any thread may read it. The modules are bytecode with
 * the names and lines for messages: compiling them would be most of the cost of opening a state, and leave garbage of
 * several times their size. All releases of Lua 5.4 have the same virtual machine, so that of the system may load it. */
#ifndef LS_SCRIPT_LUA_MODULES_H
#define LS_SCRIPT_LUA_MODULES_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

#define LS_LUA_SOURCE_PREFIX "@luaserve/" /* of the names of their chunks, such as "@luaserve/test/run.lua" */

typedef struct ls_lua_module {
    const char *name;  /* "luaserve" for init.lua, "luaserve.<file>" for the others */
    const char *bytes; /* of lua_dump() */
    size_t len;
} ls_lua_module;

extern const ls_lua_module ls_lua_modules[]; /* in the order of the build list; an entry with a NULL name ends it */
extern const size_t ls_lua_modules_count;

/* Register the modules whose names begin with `prefix` in package.preload, which `require` searches before
 * package.path. The standard libraries must be open. Raises when out of memory. */
void ls_lua_modules_preload(lua_State *L, const char *prefix);

/* Push the function `name` of a module of lua/luaserve, which is loaded at its first use. May raise. */
void ls_push_function(lua_State *L, const char *module, const char *name);

/* A state for command lines: the libraries of Lua, and all modules of luaserve. NULL: out of memory. */
lua_State *ls_lua_modules_state(void);

/* The length of the directory in the path `file`, with the separator at its end; 0: the working directory. */
size_t ls_lua_modules_directory(const char *file);

/* Put the directory of `file` in front of package.path, and let dofile and loadfile look for a relative name there
 * first, then in the working directory; in a packed program (image.h) only there. `kept`: NULL, or whether a path exists for this state although it may have
 * vanished. Raises when out of memory. */
typedef bool ls_lua_modules_cached_fn(lua_State *L, const char *path);
void ls_lua_modules_path(lua_State *L, const char *file, ls_lua_modules_cached_fn *kept);

#endif
