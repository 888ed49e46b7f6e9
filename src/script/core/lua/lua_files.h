/* lua_files.h - the Lua files that a generation of a site consists of: those that `require`, `dofile` and `loadfile`
 * read while the site loads, and templates (lua/luaserve/template.lua).
 *
 * The first state keeps the text of each file. The additional states load this text, so that all states of a
 * generation run the same code, however late they are made and whatever happens to the files meanwhile. Files that are
 * read after the load come from the disk, or from inside the program (port/file/image.h).
 *
 * Thread: one thread loads the first state and writes; later any thread reads. */
#ifndef LS_SCRIPT_LUA_FILES_H
#define LS_SCRIPT_LUA_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include <lua.h>

typedef struct ls_lua_file ls_lua_file;

typedef struct ls_lua_files { /* of a generation; zero: none */
    ls_lua_file *first;
} ls_lua_files;

void ls_lua_files_free(ls_lua_files *files);

/* Replace the searcher of Lua modules, `dofile` and `loadfile` by those that keep files and load what was kept. The
 * standard libraries are open. Raises when out of memory. */
void ls_lua_files_define(lua_State *L);

/* Whether the state of L loads, is not the first one, and the first one has loaded this path. */
bool ls_lua_files_cached(lua_State *L, const char *path);

/* core.kept_text(path) -> text | nil. What the first state has kept of another file; nil in that state while it
 * loads. */
int ls_lua_files_kept_text(lua_State *L);
/* core.kept() -> table: the path of each module by its name, and true by the path of each file. */
int ls_lua_files_kept(lua_State *L);
/* core.keep_text(path, text). For the additional states; without effect except in the first state while it loads. */
int ls_lua_files_keep_text(lua_State *L);

/* Read a whole file. LS_OK, and the caller frees *text; LS_ENOMEM; LS_ENOENT: errno tells why, and *what is the
 * operation that failed. */
int ls_lua_text_read(const char *path, char **text, size_t *bytes, const char **what);

/* Push the chunk, as luaL_loadfilex does: skip a byte order mark and a first line that begins with '#'. Returns a
 * status of Lua; on failure the message is pushed. */
int ls_lua_text_load(lua_State *L, const char *text, size_t bytes, const char *chunk_name, const char *mode);

#endif
