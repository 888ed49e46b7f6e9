/* test_bytecode.c - embedded modules are compiled once: the bytecode equals that of the source, chunk names and lines
 * included. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include <lauxlib.h>

#include "script/core/lua/bytecode.h"
#include "script/core/lua/lua_modules.h"

typedef struct text {
    char *bytes;
    size_t len;
} text;

static int append(lua_State *L, const void *bytes, size_t len, void *user)
{
    text *to = user;
    assert_non_null(to->bytes = realloc(to->bytes, to->len + len));
    memcpy(to->bytes + to->len, bytes, len);
    to->len += len;
    return 0;
}

/* Pop the function on top of L and return its bytecode. */
static text dumped(lua_State *L)
{
    text all = {NULL, 0};
    assert_int_equal(lua_dump(L, append, &all, 0), 0);
    lua_pop(L, 1);
    return all;
}

TEST(bytecode_equals_the_compiled_source)
{
    ls_bytecode *bytecode;
    assert_int_equal(ls_bytecode_open(&bytecode), LS_OK);
    assert_true(ls_lua_modules_count > 0);
    for (size_t n = 0; n < ls_lua_modules_count; n++) {
        text forms[3]; /* compiled without a cache; compiled for the cache; loaded from the cache */
        for (int i = 0; i < 3; i++) {
            lua_State *L = luaL_newstate();
            assert_non_null(L);
            ls_bytecode_push(L, i == 0 ? NULL : bytecode, n);
            assert_true(lua_isfunction(L, -1));
            forms[i] = dumped(L);
            lua_close(L);
        }
        for (int i = 1; i < 3; i++) {
            assert_int_equal(forms[i].len, forms[0].len);
            assert_memory_equal(forms[i].bytes, forms[0].bytes, forms[0].len);
        }
        for (int i = 0; i < 3; i++) free(forms[i].bytes);
    }
    ls_bytecode_close(bytecode);
}

TEST(messages_name_the_module)
{
    ls_bytecode *bytecode;
    lua_Debug info;
    int in_folders = 0;
    assert_int_equal(ls_bytecode_open(&bytecode), LS_OK);
    for (size_t n = 0; n < ls_lua_modules_count; n++) {
        const char *file;
        lua_State *L = luaL_newstate();
        assert_non_null(L);
        file = luaL_gsub(L, ls_lua_modules[n].name, ".", "/");
        file = lua_pushfstring(L, "%s%s", file, strcmp(file, "luaserve") == 0 ? "/init.lua" : ".lua");
        ls_bytecode_push(L, bytecode, n);
        assert_true(lua_getinfo(L, ">S", &info));
        assert_string_equal(info.short_src, file);
        in_folders += strchr(strchr(file, '/') + 1, '/') != NULL;
        lua_close(L);
    }
    assert_true(in_folders > 0); /* luaserve.test.client is luaserve/test/client.lua */
    ls_bytecode_close(bytecode);
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

typedef struct budget {
    size_t live, most;
} budget;

static void *spend(void *user, void *ptr, size_t old_size, size_t new_size)
{
    budget *b = user;
    if (ptr == NULL) old_size = 0;
    if (new_size > old_size && b->live - old_size + new_size > b->most) return NULL;
    b->live = b->live - old_size + new_size;
    if (new_size > 0) return realloc(ptr, new_size);
    free(ptr);
    return NULL;
}

static int push_first(lua_State *L)
{
    ls_bytecode_push(L, lua_touserdata(L, 1), 0);
    return 1;
}

/* With too little memory the call raises and leaks nothing; with enough it pushes the function. */
TEST(out_of_memory_raises)
{
    ls_bytecode *bytecode;
    int failed = 0, status = LUA_ERRMEM;
    assert_int_equal(ls_bytecode_open(&bytecode), LS_OK);
    for (size_t more = 0; status != LUA_OK; more += 256) {
        budget b = {0, SIZE_MAX};
        lua_State *L = lua_newstate(spend, &b);
        assert_non_null(L);
        lua_pushcfunction(L, push_first);
        lua_pushlightuserdata(L, bytecode);
        b.most = b.live + more;
        status = lua_pcall(L, 1, 1, 0);
        b.most = SIZE_MAX;
        if (status == LUA_OK)
            assert_true(lua_isfunction(L, -1));
        else
            assert_int_equal(status, LUA_ERRMEM);
        failed += status != LUA_OK;
        lua_close(L);
        assert_int_equal(b.live, 0);
    }
    assert_true(failed > 0);
    ls_bytecode_close(bytecode);
    ls_bytecode_close(NULL);
}
