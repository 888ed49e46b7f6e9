/* folder.h - files and folders for the commands `luaserve test` and `luaserve new`. Names are UTF-8. folder.c has the
 * functions of Lua, folder_posix.c or folder_win32.c the system. Any thread. */
#ifndef LS_CLI_FOLDER_H
#define LS_CLI_FOLDER_H

#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>

/* For Lua; a failure is nil and a message.
 *     kind(path) -> "file", "folder" or nil; links are followed
 *     list(path) -> list of { name =, folder = boolean } without "." and "..", in any order. A link to a folder is not
 *                   listed as one, so a search ends
 *     is_absolute(path) -> boolean
 *     make_folder(path) -> true; it must not exist
 *     write_new(path, bytes) -> true; the file must not exist */
extern const luaL_Reg ls_folder_functions[];

/* ---- the system ------------------------------------------------------------------------------------------------- */

enum ls_folder_kind { LS_FOLDER_NONE, LS_FOLDER_FILE, LS_FOLDER_FOLDER };
enum ls_folder_kind ls_folder_kind(const char *path);

/* Append the entries to the table on top of the stack with ls_folder_add. 0, or an errno value. Raises when out of
 * memory. */
int ls_folder_read(lua_State *L, const char *path);
void ls_folder_add(lua_State *L, const char *name, int is_folder);

int ls_folder_is_absolute(const char *path);
int ls_folder_make(const char *path); /* 0, or an errno value */

/* Open a new file for writing, in binary. NULL: errno is set. */
FILE *ls_folder_create_file(const char *path);

#endif
