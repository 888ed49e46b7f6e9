/* test_report.c - tests/unit/lua/test_stress_sampler.lua and test_stress_report.lua: the intervals and the reports of
 * simulated runs, whose figures come from real counters and histograms. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include <lauxlib.h>

#include "sample_object.h"
#include "script/core/lua/lua_modules.h"

static void run_tests_of(const char *file)
{
    lua_State *L = ls_lua_modules_state();
    assert_non_null(L);
    ls_lua_modules_path(L, TEST_TREE "/tests/unit/stress/samples.lua", NULL);
    ls_lua_modules_path(L, TEST_TREE "/tests/unit/lua/run.lua", NULL);
    ls_sample_push(L);
    lua_setglobal(L, "sample");
    if (luaL_loadfile(L, file) != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK) fail_msg("%s", lua_tostring(L, -1));
    unsigned count = 0;
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        const char *name = lua_tostring(L, -2);
        count++;
        luaL_loadstring(L, "local ok, message = xpcall(..., debug.traceback) return not ok and message");
        lua_insert(L, -2);
        lua_call(L, 1, 1);
        if (lua_toboolean(L, -1)) fail_msg("%s: %s", name, lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    assert_true(count > 0);
    lua_close(L);
}

TEST(the_sampler)
{
    run_tests_of(TEST_TREE "/tests/unit/lua/test_stress_sampler.lua");
}

TEST(the_reports)
{
    run_tests_of(TEST_TREE "/tests/unit/lua/test_stress_report.lua");
}
