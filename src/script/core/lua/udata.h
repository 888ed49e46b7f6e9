/* udata.h - type check and metatable of the userdata objects.
 *
 * The first field of every object is the address of a tag that is unique to its type, so the type check is one
 * comparison instead of a registry lookup. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_UDATA_H
#define LS_SCRIPT_UDATA_H

#include <stddef.h>

#include <lua.h>

/* The object of type `tag`, at least `bytes` long, at `index`; NULL if the value has another type. */
static inline void *ls_udata_test(lua_State *L, int index, const void *tag, size_t bytes)
{
    void *object = lua_touserdata(L, index);
    if (object == NULL || lua_rawlen(L, index) < bytes) return NULL; /* the length of a light userdata is 0 */
    return *(const void *const *)object == tag ? object : NULL;
}

/* Raise "<name> expected". */
void ls_udata_refuse(lua_State *L, int index, const char *name);

/* As ls_udata_test, but raises if the value has another type. */
static inline void *ls_udata_check(lua_State *L, int index, const void *tag, size_t bytes, const char *name)
{
    void *object = ls_udata_test(L, index, tag, bytes);
    if (object == NULL) ls_udata_refuse(L, index, name);
    return object;
}

/* Pop the metatable of a type and store a registry reference to it in *ref. `name` becomes __name, which error
 * messages show; getmetatable() returns false to scripts. */
void ls_udata_define(lua_State *L, const char *name, int *ref);

#endif
