/* lua_folder.c - see lua_folder.h. */
#include "script/core/lua/lua_folder.h"
#include "script/core/lua/push.h"

#include <limits.h>

#include "base/err.h"
#include "port/file/file.h"

static int folder_kind(lua_State *L)
{
    static const char *const kinds[] = {
        [LS_FILE_REGULAR] = "file", [LS_FILE_DIRECTORY] = "folder", [LS_FILE_OTHER] = "device"};
    ls_file_info info;
    if (ls_file_stat(luaL_checkstring(L, 1), &info) < 0) return 0;
    return ls_push_text(L, kinds[info.type]);
}

/* true, or nil and the message. */
static int push_result(lua_State *L, int err)
{
    if (err == LS_OK) return ls_push_boolean(L, true);
    return ls_push_nil_text(L, ls_err_text(err));
}

static int push_names(lua_State *L) /* (the names as light userdata) */
{
    const ls_file_names *names = lua_touserdata(L, 1);
    lua_createtable(L, (int)names->count, 0);
    for (unsigned n = 0; n < names->count; n++) {
        const struct ls_file_name *name = &names->names[n];
        lua_createtable(L, 0, 2);
        ls_set_text(L, "name", name->name);
        ls_set_boolean(L, "folder", name->info.type == LS_FILE_DIRECTORY && !name->link);
        lua_rawseti(L, -2, (lua_Integer)n + 1);
    }
    return 1;
}

static int folder_list(lua_State *L)
{
    ls_file_names *names;
    const int err = ls_file_list(luaL_checkstring(L, 1), NULL, INT_MAX, &names);
    if (err < 0) return push_result(L, err);
    const int status = ls_pcall(L, push_names, names, 1);
    ls_file_names_free(names);
    return status == LUA_OK ? 1 : lua_error(L);
}

static int folder_is_absolute(lua_State *L)
{
    return ls_push_boolean(L, ls_file_is_absolute(luaL_checkstring(L, 1)));
}

static int folder_make(lua_State *L)
{
    return push_result(L, ls_file_mkdir(luaL_checkstring(L, 1), false));
}

static int folder_write_new(lua_State *L)
{
    size_t len;
    const char *path = luaL_checkstring(L, 1), *bytes = luaL_checklstring(L, 2, &len);
    const ls_slice slice = ls_slice_static(bytes, len);
    return push_result(L, ls_file_save(path, &slice, 1, LS_SAVE_NEW));
}

const luaL_Reg ls_lua_folder_functions[] = {
    {"kind", folder_kind},        {"list", folder_list},           {"is_absolute", folder_is_absolute},
    {"make_folder", folder_make}, {"write_new", folder_write_new}, {NULL, NULL}};
