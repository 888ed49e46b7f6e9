/* bytecode.c - see bytecode.h. */
#include "script/core/lua/bytecode.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "base/err.h"
#include "base/os/thread.h"
#include "script/core/lua/lua_modules.h"

enum { SOURCE_BYTES = 80 };

typedef struct module {
    char *bytes; /* NULL: not compiled yet */
    size_t len, room;
} module; /* never changes once it is compiled */

struct ls_bytecode {
    ls_mutex mutex; /* held while a module is compiled */
    size_t count;
    module modules[];
};

int ls_bytecode_open(ls_bytecode **out)
{
    ls_bytecode *bytecode = calloc(1, sizeof *bytecode + ls_lua_modules_count * sizeof bytecode->modules[0]);
    if (bytecode == NULL) return LS_ENOMEM;
    ls_mutex_open(&bytecode->mutex);
    bytecode->count = ls_lua_modules_count;
    *out = bytecode;
    return LS_OK;
}

void ls_bytecode_close(ls_bytecode *bytecode)
{
    if (bytecode == NULL) return;
    for (size_t n = 0; n < bytecode->count; n++) free(bytecode->modules[n].bytes);
    ls_mutex_close(&bytecode->mutex);
    free(bytecode);
}

/* The chunk name shown in error messages: "@luaserve/init.lua", "@luaserve/test/run.lua". */
static const char *source_of(const char *name, char text[SOURCE_BYTES])
{
    const char *dot = strchr(name, '.');
    (void)snprintf(text, SOURCE_BYTES, LS_LUA_SOURCE_PREFIX "%s.lua", dot != NULL ? dot + 1 : "init");
    for (char *at = strchr(text, '.'), *next; at != NULL && (next = strchr(at + 1, '.')) != NULL; at = next) *at = '/';
    return text;
}

static int compile(lua_State *L, size_t number)
{
    const ls_lua_module *embedded = &ls_lua_modules[number];
    char source[SOURCE_BYTES];
    return luaL_loadbufferx(L, embedded->bytes, embedded->len, source_of(embedded->name, source), "t");
}

static int append(lua_State *L, const void *bytes, size_t len, void *user)
{
    module *to = user;
    if (to->len + len > to->room) {
        const size_t room = 2 * to->room + len;
        char *grown = realloc(to->bytes, room);
        if (grown == NULL) return 1;
        to->bytes = grown;
        to->room = room;
    }
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
    return 0;
}

/* Compile in a temporary Lua state, which takes the compiler's garbage with it. false: out of memory. */
static bool compile_apart(module *to, size_t number)
{
    lua_State *L = luaL_newstate();
    module made = {NULL, 0, 0};
    if (L == NULL) return false;
    const bool good = compile(L, number) == LUA_OK && lua_dump(L, append, &made, 0) == 0;
    lua_close(L);
    if (good)
        *to = made;
    else
        free(made.bytes);
    return good;
}

/* The compiled module; NULL: out of memory. */
static const module *compiled(ls_bytecode *bytecode, size_t number)
{
    module *kept = &bytecode->modules[number];
    ls_mutex_lock(&bytecode->mutex);
    const bool good = kept->bytes != NULL || compile_apart(kept, number);
    ls_mutex_unlock(&bytecode->mutex);
    return good ? kept : NULL;
}

void ls_bytecode_push(lua_State *L, ls_bytecode *bytecode, size_t number)
{
    const module *kept = bytecode != NULL ? compiled(bytecode, number) : NULL;
    char source[SOURCE_BYTES];
    int status;
    if (kept == NULL)
        status = compile(L, number);
    else
        status = luaL_loadbufferx(L, kept->bytes, kept->len, source_of(ls_lua_modules[number].name, source), "b");
    if (status != LUA_OK) (void)lua_error(L);
}
