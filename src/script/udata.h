/* udata.h - what the objects that Lua sees have in common.
 *
 * Each is a userdata that begins with the address of its kind's tag: one comparison tells it from all others, without a
 * look into the registry. Inside the state's actor. */
#ifndef LS_SCRIPT_UDATA_H
#define LS_SCRIPT_UDATA_H

#include <stddef.h>

#include <lua.h>

/* The object of this kind (`bytes` long, or longer) at `index`, or NULL when it is another thing. */
static inline void *ls_udata_test(lua_State *L, int index, const void *tag, size_t bytes)
{
    if (lua_type(L, index) != LUA_TUSERDATA || lua_rawlen(L, index) < bytes) return NULL;
    void *object = lua_touserdata(L, index);
    return *(const void *const *)object == tag ? object : NULL;
}

/* The same; raises "<name> expected" when it is another thing. */
void *ls_udata_check(lua_State *L, int index, const void *tag, size_t bytes, const char *name);

/* Pop the metatable of a kind and keep it: *ref. `name` is for messages; getmetatable() gives scripts false. */
void ls_udata_define(lua_State *L, const char *name, int *ref);

#endif
