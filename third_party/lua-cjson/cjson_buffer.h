/* cjson_buffer.h - the buffer of lua_cjson.c, in place of lua-cjson's strbuf.h.
 *
 * The memory comes from the allocator of the Lua state, so it counts against max_memory. The owner is a userdata with
 * __gc that contains the strbuf_t. A buffer that cannot grow frees its memory and raises "not enough memory". At most
 * STRBUF_KEEP_BYTES stay allocated between two uses: strbuf_push() and strbuf_release() free a larger buffer. */
#ifndef LS_CJSON_BUFFER_H
#define LS_CJSON_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <lua.h>

#define STRBUF_KEEP_BYTES ((size_t)65536)

typedef struct strbuf_t {
    char *buf; /* NULL: no memory */
    size_t size, length;
    int utf8;     /* strings with other bytes are refused */
    int sorted;   /* the members of objects are in the order of their names */
    lua_State *l; /* the coroutine that uses the buffer; set before the first append */
    lua_Alloc alloc;
    void *alloc_data;
} strbuf_t;

/* An empty buffer without memory. */
void ls_cjson_strbuf_init(strbuf_t *s, lua_State *l);
/* Frees the memory; the buffer is empty and may be used again. */
void ls_cjson_strbuf_free(strbuf_t *s);
/* Makes room for `more` bytes. Needs one free stack slot. May run a full garbage collection, whose finalizers may use
 * the buffer; its bytes are then unchanged, but at another address. */
void ls_cjson_strbuf_grow(strbuf_t *s, size_t more);
/* Pushes the bytes as a string. Needs two free stack slots. May raise "not enough memory". */
void ls_cjson_strbuf_push(strbuf_t *s);

/* Raises for a value of this type without a JSON form; names its path in the value at index 1. */
void ls_cjson_refuse(lua_State *l, const char *type, const char *reason);

/* Pushes a list of the keys of the table on top in the order of their text; returns how many. Needs one free stack slot. */
lua_Integer ls_cjson_push_sorted(lua_State *l);

static inline void strbuf_reset(strbuf_t *s, lua_State *l)
{
    s->length = 0;
    s->l = l;
}

static inline void strbuf_release(strbuf_t *s)
{
    if (s->size > STRBUF_KEEP_BYTES) ls_cjson_strbuf_free(s);
}

static inline void strbuf_ensure_empty_length(strbuf_t *s, size_t len)
{
    if (s->size - s->length < len) ls_cjson_strbuf_grow(s, len);
}

static inline char *strbuf_empty_ptr(const strbuf_t *s)
{
    return s->buf + s->length;
}

static inline void strbuf_extend_length(strbuf_t *s, size_t len)
{
    s->length += len;
}

/* Whether one of the 8 bytes is not ASCII or may need an escape: below 0x20, '"', '\\', 0x7f. */
static inline int strbuf_needs_look(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u;
    return ((word | (word - 0x20 * ones) | ((word ^ 0x22 * ones) - ones) | ((word ^ 0x5c * ones) - ones) |
             (word + ones)) &
            0x80 * ones) != 0;
}

static inline void strbuf_append_char_unsafe(strbuf_t *s, char c)
{
    s->buf[s->length++] = c;
}

static inline void strbuf_append_char(strbuf_t *s, char c)
{
    strbuf_ensure_empty_length(s, 1);
    strbuf_append_char_unsafe(s, c);
}

static inline void strbuf_append_mem_unsafe(strbuf_t *s, const char *c, size_t len)
{
    memcpy(s->buf + s->length, c, len);
    s->length += len;
}

static inline void strbuf_append_mem(strbuf_t *s, const char *c, size_t len)
{
    strbuf_ensure_empty_length(s, len);
    strbuf_append_mem_unsafe(s, c, len);
}

#endif
