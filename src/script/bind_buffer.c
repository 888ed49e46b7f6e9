/* bind_buffer.c - the buffer object, see buffer.h. */
#include <stdlib.h>
#include <string.h>

#include "script/buffer.h"

static const char buffer_tag;

ls_buffer *ls_buffer_test(lua_State *L, int index)
{
    ls_buffer *buffer;
    if (lua_type(L, index) != LUA_TUSERDATA || lua_rawlen(L, index) < sizeof *buffer) return NULL;
    buffer = lua_touserdata(L, index);
    return buffer->tag == &buffer_tag ? buffer : NULL;
}

static ls_buffer *buffer_check(lua_State *L, int index)
{
    ls_buffer *buffer = ls_buffer_test(L, index);
    if (buffer == NULL) luaL_typeerror(L, index, "buffer");
    return buffer;
}

ls_buffer *ls_buffer_push(lua_State *L)
{
    ls_buffer *buffer = lua_newuserdatauv(L, sizeof *buffer, 0);
    *buffer = (ls_buffer){.tag = &buffer_tag};
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_state_of(L)->buffer_meta_ref);
    lua_setmetatable(L, -2);
    return buffer;
}

static void buffer_reserve(lua_State *L, ls_buffer *buffer)
{
    const unsigned room = buffer->room == 0 ? 4 : buffer->room * 2;
    ls_slice *slices;
    if (buffer->count < buffer->room) return;
    slices = realloc(buffer->slices, room * sizeof *slices);
    if (slices == NULL) luaL_error(L, "not enough memory");
    buffer->slices = slices;
    buffer->room = room;
}

void ls_buffer_add_slice(lua_State *L, ls_buffer *buffer, ls_slice slice)
{
    if (slice.len == 0) {
        ls_slice_drop(&slice);
        return;
    }
    if (buffer->count == buffer->room) {
        const unsigned room = buffer->room == 0 ? 4 : buffer->room * 2;
        ls_slice *slices = realloc(buffer->slices, room * sizeof *slices);
        if (slices == NULL) {
            ls_slice_drop(&slice);
            luaL_error(L, "not enough memory");
            return;
        }
        buffer->slices = slices;
        buffer->room = room;
    }
    buffer->slices[buffer->count++] = slice;
    buffer->len += slice.len;
    buffer->tail = NULL;
}

void ls_buffer_add_bytes(lua_State *L, ls_buffer *buffer, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t run;
        if (buffer->tail == NULL || buffer->tail_used == buffer->tail->cap) {
            ls_block *block;
            buffer_reserve(L, buffer);
            block = ls_state_block(L, len > LS_BLOCK_SMALL || buffer->len > 0 ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
            buffer->slices[buffer->count++] = (ls_slice){block, block->data, 0};
            buffer->tail = block;
            buffer->tail_used = 0;
        }
        run = buffer->tail->cap - buffer->tail_used;
        if (run > len) run = len;
        memcpy(buffer->tail->data + buffer->tail_used, bytes, run);
        buffer->tail_used += (uint32_t)run;
        buffer->slices[buffer->count - 1].len += run;
        buffer->len += run;
        bytes += run;
        len -= run;
    }
}

/* Append the values first..last of the stack to `buffer`. */
static void buffer_append_values(lua_State *L, ls_buffer *buffer, int first, int last)
{
    for (int i = first; i <= last; i++) {
        const int type = lua_type(L, i);
        if (type == LUA_TSTRING || type == LUA_TNUMBER) {
            size_t len;
            const char *bytes = lua_tolstring(L, i, &len);
            ls_buffer_add_bytes(L, buffer, bytes, len);
        } else {
            const ls_buffer *other = ls_buffer_test(L, i);
            const unsigned count = other != NULL ? other->count : 0; /* it may be the buffer itself */
            if (other == NULL) luaL_typeerror(L, i, "string or buffer");
            for (unsigned n = 0; n < count; n++) {
                const ls_slice *from = &other->slices[n];
                ls_buffer_add_slice(L, buffer, (ls_slice){ls_block_hold(from->block), from->ptr, from->len});
            }
        }
    }
}

/* ls.buffer(...) -> buffer. Strings and numbers are copied once, buffers are shared. */
int ls_buffer_new(lua_State *L)
{
    const int last = lua_gettop(L);
    ls_buffer *buffer = ls_buffer_push(L);
    buffer_append_values(L, buffer, 1, last);
    return 1;
}

/* buffer:append(...) -> buffer */
static int buffer_append(lua_State *L)
{
    ls_buffer *buffer = buffer_check(L, 1);
    buffer_append_values(L, buffer, 2, lua_gettop(L));
    lua_settop(L, 1);
    return 1;
}

void ls_slices_push_string(lua_State *L, const ls_slice *slices, unsigned count, size_t len)
{
    luaL_Buffer text;
    char *to;
    if (count == 1) {
        lua_pushlstring(L, slices[0].ptr, slices[0].len);
        return;
    }
    to = luaL_buffinitsize(L, &text, len);
    for (unsigned n = 0; n < count; n++) {
        memcpy(to, slices[n].ptr, slices[n].len);
        to += slices[n].len;
    }
    luaL_pushresultsize(&text, len);
}

/* buffer:tostring() -> string */
static int buffer_tostring(lua_State *L)
{
    const ls_buffer *buffer = buffer_check(L, 1);
    ls_slices_push_string(L, buffer->slices, buffer->count, buffer->len);
    return 1;
}

static int buffer_len(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)buffer_check(L, 1)->len);
    return 1;
}

/* buffer:sub(i [, j]) -> buffer that shares the blocks; positions as in string.sub. */
static int buffer_sub(lua_State *L)
{
    const ls_buffer *buffer = buffer_check(L, 1);
    const lua_Integer len = (lua_Integer)buffer->len;
    lua_Integer from = luaL_checkinteger(L, 2), to = luaL_optinteger(L, 3, -1);
    if (from < 0) from = from < -len ? 1 : len + from + 1;
    if (from == 0) from = 1;
    if (to < 0) to = to < -len ? 0 : len + to + 1;
    if (to > len) to = len;

    ls_buffer *piece = ls_buffer_push(L);
    size_t skip = from > to ? 0 : (size_t)(from - 1), left = from > to ? 0 : (size_t)(to - from + 1);
    for (unsigned n = 0; n < buffer->count && left > 0; n++) {
        const ls_slice *slice = &buffer->slices[n];
        size_t run;
        if (skip >= slice->len) {
            skip -= slice->len;
            continue;
        }
        run = slice->len - skip;
        if (run > left) run = left;
        ls_buffer_add_slice(L, piece, (ls_slice){ls_block_hold(slice->block), slice->ptr + skip, run});
        skip = 0;
        left -= run;
    }
    return 1;
}

static int buffer_gc(lua_State *L)
{
    ls_buffer *buffer = ls_buffer_test(L, 1);
    if (buffer == NULL) return 0;
    for (unsigned n = 0; n < buffer->count; n++) ls_slice_drop(&buffer->slices[n]);
    free(buffer->slices);
    *buffer = (ls_buffer){.tag = &buffer_tag};
    return 0;
}

void ls_buffer_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {
        {"tostring", buffer_tostring}, {"sub", buffer_sub}, {"append", buffer_append}, {NULL, NULL}};
    static const luaL_Reg meta[] = {
        {"__tostring", buffer_tostring}, {"__len", buffer_len}, {"__gc", buffer_gc}, {NULL, NULL}};
    luaL_newlib(L, meta);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushliteral(L, "buffer");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    state->buffer_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}
