/* cjson_buffer.c - see cjson_buffer.h. */
#include "cjson_buffer.h"

#include <stdbool.h>
#include <stdint.h>

enum { FIRST_BYTES = 1024, LARGE_BYTES = 1 << 20 };

void ls_cjson_strbuf_init(strbuf_t *s, lua_State *l)
{
    s->buf = NULL;
    s->size = s->length = 0;
    s->l = l;
    s->alloc = lua_getallocf(l, &s->alloc_data);
}

void ls_cjson_strbuf_free(strbuf_t *s)
{
    if (s->buf != NULL) (void)s->alloc(s->alloc_data, s->buf, s->size, 0);
    s->buf = NULL;
    s->size = s->length = 0;
}

static bool resize(strbuf_t *s, size_t size)
{
    char *moved = s->alloc(s->alloc_data, s->buf, s->size, size);
    if (moved == NULL) return false;
    s->buf = moved;
    s->size = size;
    return true;
}

static void raise_no_memory(strbuf_t *s)
{
    ls_cjson_strbuf_free(s);
    lua_pushliteral(s->l, "not enough memory"); /* Lua's own text: it becomes LUA_ERRMEM and exists already */
    (void)lua_error(s->l);
}

void ls_cjson_strbuf_grow(strbuf_t *s, size_t more)
{
    if (more > SIZE_MAX / 4 - s->length) raise_no_memory(s);
    const size_t need = s->length + more;
    /* A large buffer has less to spare, because the limit of the state is near. */
    const size_t wanted = need > LARGE_BYTES ? need + need / 4 : need < FIRST_BYTES ? FIRST_BYTES : need * 2;
    if (resize(s, wanted) || resize(s, need + need / 16) || resize(s, need)) return;
    strbuf_t held = *s;
    s->buf = NULL; /* a finalizer that encodes gets a buffer of its own */
    s->size = s->length = 0;
    (void)lua_gc(held.l, LUA_GCCOLLECT);
    ls_cjson_strbuf_free(s);
    *s = held;
    if (!resize(s, need)) raise_no_memory(s);
}

static int push_bytes(lua_State *l)
{
    const strbuf_t *s = lua_touserdata(l, 1);
    lua_pushlstring(l, s->buf, s->length);
    return 1;
}

void ls_cjson_strbuf_push(strbuf_t *s)
{
    lua_State *l = s->l;
    if (s->size <= STRBUF_KEEP_BYTES) {
        lua_pushlstring(l, s->buf, s->length);
        return;
    }
    (void)resize(s, s->length > 0 ? s->length : 1); /* the string needs as much again */
    lua_pushcfunction(l, push_bytes);
    lua_pushlightuserdata(l, s);
    const int status = lua_pcall(l, 1, 1, 0);
    ls_cjson_strbuf_free(s);
    if (status != LUA_OK) (void)lua_error(l);
}
