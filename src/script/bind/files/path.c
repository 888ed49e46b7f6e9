/* path.c - ls.dir, ls.safe_join, and the numbers of users and groups for the owner of a Unix socket. */
#include <string.h>

#include <lauxlib.h>

#include "base/err.h"
#include "base/io/owner.h"
#include "base/io/path.h"
#include "codec/http_path.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/core/lua/lua_files.h"

/* Check that the path at index 4, which begins with the directory at index 1, stays in it. A relative path is checked
 * from both directories that its user may start at: res:file starts at that of the site, io.open at the working
 * directory. */
static int check_beneath(lua_State *L)
{
    const int err = ls_path_check_beneath(lua_tostring(L, 1), lua_tostring(L, 4));
    if (err < 0) return err;
    const char *directory = ls_push_site_path(L, 1);
    return ls_path_check_beneath(directory, ls_push_site_path(L, 4));
}

/* ls.safe_join(directory: string, path) -> path | nil, message, code
 * Joins a directory and a decoded path that a client sent; the result is below the directory. EINVAL: the path does
 * not name something inside the directory on every system; EACCES: a symbolic link in it leads out of the
 * directory. */
static int core_safe_join(lua_State *L)
{
    size_t directory_len, len;
    const char *directory = luaL_checklstring(L, 1, &directory_len);
    const char *path = luaL_checklstring(L, 2, &len);
    const char *reason = ls_http_path_wrong(path, len);
    ls_check_arguments(L, 2, "ls.safe_join(directory, path)");
    if (directory_len == 0 || strlen(directory) != directory_len)
        return luaL_argerror(L, 1, "directory must be a path, such as \".\" for the working directory of the server");
    if (reason != NULL) return ls_push_failure_text(L, LS_EINVAL, "invalid path: %s", reason);
    lua_settop(L, 3);
    lua_pushfstring(L, directory[directory_len - 1] == '/' ? "%s%s" : "%s/%s", directory, path);
    const int err = check_beneath(L);
    lua_settop(L, 4);
    if (err == LS_OK) return 1;
    if (err != LS_EACCES) return ls_push_failure(L, err);
    return ls_push_failure_text(L, err, "a symbolic link leads out of the directory");
}

/* core.absolute_path(directory) -> its absolute path | nil: there is no such directory */
static int core_absolute_path(lua_State *L)
{
    char absolute[LS_PATH_BYTES];
    luaL_checkstring(L, 1);
    return ls_path_absolute(ls_push_site_path(L, 1), absolute) ? ls_push_text(L, absolute) : 0;
}

static int push_id(lua_State *L, int err, uint32_t id)
{
    if (err < 0) return ls_push_failure(L, err);
    return ls_push_integer(L, id);
}

/* core.user_id(name) -> number | nil, message, code. ENOENT: unknown name; ENOTSUP: Windows. */
static int core_user_id(lua_State *L)
{
    uint32_t id = 0;
    const int err = ls_user_id(luaL_checkstring(L, 1), &id);
    return push_id(L, err, id);
}

/* core.group_id(name) -> number | nil, message, code */
static int core_group_id(lua_State *L)
{
    uint32_t id = 0;
    const int err = ls_group_id(luaL_checkstring(L, 1), &id);
    return push_id(L, err, id);
}

/* The field of the table `luaserve.core`: dir, the directory of the site as an absolute path. */
static void path_define(lua_State *L, ls_state *state)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "luaserve.core");
    lua_pushliteral(L, ".");
    const char *directory = ls_push_site_path(L, -1);
    char absolute[LS_PATH_BYTES];
    lua_pushstring(L, ls_path_absolute(directory, absolute) ? absolute : directory); /* that of an embedded text */
    lua_setfield(L, -4, "dir");
    lua_pop(L, 4);
}

static const luaL_Reg functions[] = {{"safe_join", core_safe_join},
                                     {"absolute_path", core_absolute_path},
                                     {"user_id", core_user_id},
                                     {"group_id", core_group_id},
                                     {"kept", ls_lua_files_kept},
                                     {"kept_text", ls_lua_files_kept_text},
                                     {"keep_text", ls_lua_files_keep_text},
                                     {NULL, NULL}};

const ls_module ls_path_module = {.name = "path", .functions = functions, .define = path_define};
