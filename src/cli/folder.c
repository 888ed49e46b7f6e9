/* folder.c - the functions of Lua: see folder.h. */
#include "cli/folder.h"

#include <errno.h>
#include <string.h>

static int folder_kind(lua_State *L)
{
    static const char *const names[] = {NULL, "file", "folder"};
    lua_pushstring(L, names[ls_folder_kind(luaL_checkstring(L, 1))]);
    return 1;
}

/* Push the results of a call: true, or nil and the message of an errno value. */
static int push_result(lua_State *L, int err)
{
    if (err == 0) {
        lua_pushboolean(L, 1);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, strerror(err));
    return 2;
}

void ls_folder_add(lua_State *L, const char *name, int is_folder)
{
    lua_createtable(L, 0, 2);
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, is_folder);
    lua_setfield(L, -2, "folder");
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

static int folder_list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    lua_newtable(L);
    const int err = ls_folder_read(L, path);
    return err == 0 ? 1 : push_result(L, err);
}

static int folder_is_absolute(lua_State *L)
{
    lua_pushboolean(L, ls_folder_is_absolute(luaL_checkstring(L, 1)));
    return 1;
}

static int folder_make(lua_State *L)
{
    return push_result(L, ls_folder_make(luaL_checkstring(L, 1)));
}

static int folder_write_new(lua_State *L)
{
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    FILE *to = ls_folder_create_file(luaL_checkstring(L, 1));
    if (to == NULL) return push_result(L, errno);
    int err = fwrite(bytes, 1, len, to) == len ? 0 : errno;
    if (fclose(to) != 0 && err == 0) err = errno;
    return push_result(L, err);
}

const luaL_Reg ls_folder_functions[] = {
    {"kind", folder_kind},        {"list", folder_list},           {"is_absolute", folder_is_absolute},
    {"make_folder", folder_make}, {"write_new", folder_write_new}, {NULL, NULL}};
