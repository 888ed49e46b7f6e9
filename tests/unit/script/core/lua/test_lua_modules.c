/* test_lua_modules.c - the bytecode of the embedded modules. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include <lauxlib.h>

#include "script/core/lua/lua_modules.h"

TEST(messages_name_the_file_and_the_line_of_a_module)
{
    int in_folders = 0;
    for (size_t n = 0; n < ls_lua_modules_count; n++) {
        const ls_lua_module *module = &ls_lua_modules[n];
        lua_Debug info;
        lua_State *L = luaL_newstate();
        assert_non_null(L);
        const char *file = luaL_gsub(L, module->name, ".", "/");
        file = lua_pushfstring(L, "%s%s", file, strcmp(file, "luaserve") == 0 ? "/init.lua" : ".lua");
        assert_int_equal(luaL_loadbufferx(L, module->bytes, module->len, "", "b"), LUA_OK);
        assert_true(lua_getinfo(L, ">SL", &info));
        assert_string_equal(info.short_src, file);
        lua_pushnil(L);
        assert_true(lua_next(L, -2)); /* of the active lines */
        in_folders += strchr(strchr(file, '/') + 1, '/') != NULL;
        lua_close(L);
    }
    assert_true(in_folders > 0); /* luaserve.test.client is luaserve/test/client.lua */
}
