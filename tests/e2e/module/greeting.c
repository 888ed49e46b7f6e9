/* greeting.c - a Lua module in C, as sites load it with require: it uses the lua_* functions of the program that loads
 * it, and links no Lua of its own. */
#include <lauxlib.h>
#include <lua.h>

#if defined(_WIN32)
#define MODULE_API __declspec(dllexport)
#else
#define MODULE_API __attribute__((visibility("default")))
#endif

/* greeting.hello(name) -> "hello, name" */
static int hello(lua_State *L)
{
    lua_pushfstring(L, "hello, %s", luaL_checkstring(L, 1));
    return 1;
}

/* greeting.call(fn) -> what fn() returns; an error of fn passes through the module's frames. */
static int call(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    lua_call(L, 0, 1);
    return 1;
}

MODULE_API int luaopen_greeting(lua_State *L);
int luaopen_greeting(lua_State *L)
{
    static const luaL_Reg functions[] = {{"hello", hello}, {"call", call}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
