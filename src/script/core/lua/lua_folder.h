/* lua_folder.h - files and folders for the commands `luaserve test` and `luaserve new`. Any thread. */
#ifndef LS_SCRIPT_LUA_FOLDER_H
#define LS_SCRIPT_LUA_FOLDER_H

#include <lauxlib.h>

/* Names are UTF-8 on Windows, else bytes. The calls wait for the device. A failure is nil and a message.
 *     kind(path) -> "file", "folder", "device" (also a pipe or a socket) or nil; links are followed
 *     list(path) -> list of { name =, folder = boolean } without "." and "..", in any order. A link to a folder is not
 *                   listed as one, so a search ends
 *     is_absolute(path) -> boolean
 *     make_folder(path) -> true; it must not exist
 *     write_new(path, bytes) -> true; the file must not exist */
extern const luaL_Reg ls_lua_folder_functions[];

#endif
