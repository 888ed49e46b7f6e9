/* marshal.c - see marshal.h.
 *
 * The copy is one block of memory: a header, then the value in a prefix code. A byte gives the type; numbers of
 * elements and lengths of strings are in base 128, the lowest digits first, and the highest bit of each byte but the
 * last is set. An integer is in the same form after the zigzag map, which makes small absolute values short.
 *     table:  type, number of array elements, number of other fields (both 4 bytes), elements, pairs of key and value
 * The array part is t[1] to t[#t]. A nil inside it is an element. */
#include "script/store/marshal.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "base/escape.h"
#include "script/store/copy.h"

struct ls_value {
    _Atomic uint32_t refs;
    size_t len; /* of the code */
    unsigned char code[];
};

const char ls_array_mark = 0;
const char ls_plain_mark = 0;

enum code_type {
    CODE_NIL,
    CODE_FALSE,
    CODE_TRUE,
    CODE_NULL,
    CODE_INTEGER,
    CODE_FLOAT,
    CODE_STRING,
    CODE_TABLE,
    CODE_ARRAY
};

enum { TABLE_HEAD_BYTES = 8, NUMBER_BYTES_MAX = 10, STACK_BYTES = 512, SLOTS_PER_LEVEL = 3, KEY_BYTES_SHOWN = 40 };

/* ---- reasons ----------------------------------------------------------------------------------------------- */

/* A table that is being copied, and its key whose value is being copied. */
typedef struct level {
    const struct level *up;
    const void *table;
    int key_type; /* LUA_T*; LUA_TNIL: the key itself is being copied */
    bool key_is_integer;
    union {
        lua_Integer integer;
        lua_Number number;
        bool boolean;
        struct {
            const char *bytes;
            size_t len;
        } string;
    } key;
} level;

typedef struct packer {
    lua_State *L;
    unsigned char *base, *at, *end; /* base: `stack`, or allocated */
    size_t bytes_max;               /* of the code */
    const ls_value_options *options;
    int error;
    char *message;
    size_t message_bytes, message_len;
    unsigned char stack[STACK_BYTES];
} packer;

static void say(packer *pack, const char *text)
{
    while (*text != '\0' && pack->message_len + 1 < pack->message_bytes) pack->message[pack->message_len++] = *text++;
    if (pack->message_bytes > 0) pack->message[pack->message_len] = '\0';
}

static bool is_name(const char *bytes, size_t len)
{
    if (len == 0 || len > KEY_BYTES_SHOWN) return false;
    for (size_t n = 0; n < len; n++) {
        const char c = bytes[n];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (n == 0 || c < '0' || c > '9')) return false;
    }
    return true;
}

static void say_key(packer *pack, const level *in)
{
    char text[64];
    switch (in->key_type) {
    case LUA_TSTRING: {
        const char *bytes = in->key.string.bytes;
        size_t left = in->key.string.len, shown = 0;
        if (is_name(bytes, left)) {
            (void)snprintf(text, sizeof text, ".%.*s", (int)left, bytes);
            say(pack, text);
            return;
        }
        say(pack, "[\"");
        while (left > 0 && shown < KEY_BYTES_SHOWN) {
            char escaped[LS_ESCAPE_BYTES_MAX + 1];
            size_t taken;
            (void)ls_escape_character(escaped, bytes, left, &taken);
            say(pack, escaped);
            bytes += taken;
            left -= taken;
            shown += taken;
        }
        say(pack, left > 0 ? "...\"]" : "\"]");
        return;
    }
    case LUA_TNUMBER:
        if (in->key_is_integer)
            (void)snprintf(text, sizeof text, "[" LUA_INTEGER_FMT "]", (LUAI_UACINT)in->key.integer);
        else
            (void)snprintf(text, sizeof text, "[" LUA_NUMBER_FMT "]", (LUAI_UACNUMBER)in->key.number);
        say(pack, text);
        return;
    case LUA_TBOOLEAN: say(pack, in->key.boolean ? "[true]" : "[false]"); return;
    default: return;
    }
}

/* The path of the table of `in`, or with `key` of the value in it. */
static void say_path(packer *pack, const level *in, bool key)
{
    if (in == NULL) {
        say(pack, pack->options != NULL && pack->options->name != NULL ? pack->options->name : "value");
        return;
    }
    say_path(pack, in->up, true);
    if (key) say_key(pack, in);
}

static bool refuse(packer *pack, int error, const level *in, const char *reason)
{
    pack->error = error;
    if (in != NULL && in->key_type == LUA_TNIL) say(pack, "a key of ");
    say_path(pack, in, true);
    say(pack, reason);
    return false;
}

static bool fail(packer *pack, int error, const char *reason)
{
    pack->error = error;
    say(pack, reason);
    return false;
}

static bool too_long(packer *pack)
{
    char reason[64];
    (void)snprintf(reason, sizeof reason, " needs more than %zu bytes", pack->bytes_max + sizeof(ls_value));
    return refuse(pack, LS_EMSGSIZE, NULL, reason);
}

/* `type`: LUA_T*. */
static bool refuse_type(packer *pack, const level *in, int type)
{
    char reason[80];
    (void)snprintf(reason, sizeof reason, " is a %s, which cannot be shared", lua_typename(pack->L, type));
    return refuse(pack, LS_EINVAL, in, reason);
}

/* ---- pack -------------------------------------------------------------------------------------------------- */

static bool room_slow(packer *pack, size_t bytes)
{
    const size_t used = (size_t)(pack->at - pack->base);
    size_t room = (size_t)(pack->end - pack->base);
    if (bytes > pack->bytes_max - used) return too_long(pack);
    while (room - used < bytes) room = room < pack->bytes_max / 2 ? room * 2 : pack->bytes_max;
    unsigned char *base = realloc(pack->base == pack->stack ? NULL : pack->base, room);
    if (base == NULL) return fail(pack, LS_ENOMEM, "not enough memory");
    if (pack->base == pack->stack) memcpy(base, pack->stack, used);
    pack->base = base;
    pack->at = base + used;
    pack->end = base + room;
    return true;
}

/* Make room for `bytes` more. bytes_max counts what is written, not the room. */
static inline bool room_for(packer *pack, size_t bytes)
{
    return (size_t)(pack->end - pack->at) >= bytes || room_slow(pack, bytes);
}

static inline unsigned char *write_number(unsigned char *at, uint64_t number)
{
    for (; number >= 0x80; number >>= 7) *at++ = (unsigned char)(number | 0x80);
    *at++ = (unsigned char)number;
    return at;
}

static inline unsigned number_bytes(uint64_t number)
{
    return number < 0x80 ? 1 : ls_high_bit(number) / 7 + 1;
}

static bool pack_string(packer *pack, const char *bytes, size_t len)
{
    if (!room_for(pack, 1 + number_bytes(len) + len)) return false;
    *pack->at++ = CODE_STRING;
    pack->at = write_number(pack->at, len);
    memcpy(pack->at, bytes, len);
    pack->at += len;
    return true;
}

static bool pack_slices(packer *pack, const ls_slice *slices, unsigned count)
{
    size_t len = 0;
    for (unsigned n = 0; n < count; n++) len += slices[n].len;
    if (!room_for(pack, 1 + number_bytes(len) + len)) return false;
    *pack->at++ = CODE_STRING;
    pack->at = write_number(pack->at, len);
    for (unsigned n = 0; n < count; n++) {
        memcpy(pack->at, slices[n].ptr, slices[n].len);
        pack->at += slices[n].len;
    }
    return true;
}

static bool pack_byte(packer *pack, enum code_type type)
{
    if (!room_for(pack, 1)) return false;
    *pack->at++ = (unsigned char)type;
    return true;
}

static bool pack_number(packer *pack, int index)
{
    lua_State *L = pack->L;
    if (lua_isinteger(L, index)) {
        const lua_Integer integer = lua_tointeger(L, index);
        const uint64_t zigzag = ((uint64_t)integer << 1) ^ (integer < 0 ? UINT64_MAX : 0);
        if (!room_for(pack, 1 + number_bytes(zigzag))) return false;
        *pack->at++ = CODE_INTEGER;
        pack->at = write_number(pack->at, zigzag);
    } else {
        const lua_Number number = lua_tonumber(L, index);
        if (!room_for(pack, 1 + sizeof number)) return false;
        *pack->at++ = CODE_FLOAT;
        memcpy(pack->at, &number, sizeof number);
        pack->at += sizeof number;
    }
    return true;
}

static bool pack_table(packer *pack, int table, const level *up, unsigned depth);

static bool pack_any(packer *pack, int index, const level *in, unsigned depth)
{
    lua_State *L = pack->L;
    const int type = lua_type(L, index);
    switch (type) {
    case LUA_TNIL: return pack_byte(pack, CODE_NIL);
    case LUA_TBOOLEAN: return pack_byte(pack, lua_toboolean(L, index) ? CODE_TRUE : CODE_FALSE);
    case LUA_TNUMBER: return pack_number(pack, index);
    case LUA_TSTRING: {
        size_t len;
        const char *bytes = lua_tolstring(L, index, &len); /* a string: it is not converted */
        return pack_string(pack, bytes, len);
    }
    case LUA_TTABLE: return pack_table(pack, index, in, depth);
    case LUA_TLIGHTUSERDATA:
        if (lua_touserdata(L, index) == NULL) return pack_byte(pack, CODE_NULL);
        break;
    case LUA_TUSERDATA:
        if (pack->options != NULL && pack->options->slices != NULL) {
            unsigned count;
            const ls_slice *slices = pack->options->slices(L, index, &count);
            if (slices != NULL) return pack_slices(pack, slices, count);
        }
        break;
    default: break;
    }
    return refuse_type(pack, in, type == LUA_TLIGHTUSERDATA ? LUA_TUSERDATA : type);
}

/* Note the key at `index` for the path of its value. */
static void note_key(lua_State *L, int index, level *in)
{
    in->key_type = lua_type(L, index);
    if (in->key_type == LUA_TSTRING) {
        in->key.string.bytes = lua_tolstring(L, index, &in->key.string.len);
    } else if (in->key_type == LUA_TBOOLEAN) {
        in->key.boolean = lua_toboolean(L, index) != 0;
    } else if (in->key_type == LUA_TNUMBER) {
        in->key_is_integer = lua_isinteger(L, index) != 0;
        if (in->key_is_integer)
            in->key.integer = lua_tointeger(L, index);
        else
            in->key.number = lua_tonumber(L, index);
    }
}

/* The elements and the other fields of the table at `table`; in->table is that table. */
static bool pack_fields(packer *pack, int table, level *in, unsigned depth, enum code_type type)
{
    lua_State *L = pack->L;
    const size_t elements = (size_t)lua_rawlen(L, table);
    size_t fields = 0;
    if (elements > UINT32_MAX) return too_long(pack);
    if (!room_for(pack, 1 + TABLE_HEAD_BYTES)) return false;
    *pack->at++ = (unsigned char)type;
    const size_t head = (size_t)(pack->at - pack->base);
    pack->at += TABLE_HEAD_BYTES;
    in->key_type = LUA_TNUMBER;
    in->key_is_integer = true;
    for (size_t n = 1; n <= elements; n++) {
        (void)lua_rawgeti(L, table, (lua_Integer)n);
        in->key.integer = (lua_Integer)n;
        if (!pack_any(pack, lua_gettop(L), in, depth)) return false;
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, table) != 0; lua_pop(L, 1)) {
        const int key = lua_gettop(L) - 1;
        if (lua_isinteger(L, key)) {
            const lua_Integer integer = lua_tointeger(L, key);
            if (integer >= 1 && (lua_Unsigned)integer <= elements) continue;
        }
        const int key_type = lua_type(L, key);
        if (key_type != LUA_TSTRING && key_type != LUA_TNUMBER && key_type != LUA_TBOOLEAN) {
            in->key_type = LUA_TNIL;
            return refuse_type(pack, in, key_type);
        }
        if (!pack_any(pack, key, in, depth)) return false;
        note_key(L, key, in);
        if (!pack_any(pack, key + 1, in, depth)) return false;
        fields++;
    }
    if (fields > UINT32_MAX) return too_long(pack);
    const uint32_t counts[2] = {(uint32_t)elements, (uint32_t)fields};
    memcpy(pack->base + head, counts, sizeof counts);
    return true;
}

static bool pack_table(packer *pack, int table, const level *up, unsigned depth)
{
    lua_State *L = pack->L;
    level in = {.up = up};
    enum code_type type = CODE_TABLE;
    if (depth == LS_VALUE_DEPTH_MAX) return refuse(pack, LS_ELIMIT, NULL, " has more than 100 levels of tables");
    if (!lua_checkstack(L, SLOTS_PER_LEVEL + 3)) return fail(pack, LS_ENOMEM, "not enough memory");
    const int top = lua_gettop(L);
    if (ls_copy_content(L, table)) table = lua_gettop(L);
    const int own = lua_gettop(L);
    in.table = lua_topointer(L, table);
    for (const level *above = up; above != NULL; above = above->up) {
        if (above->table != in.table) continue;
        (void)refuse(pack, LS_EINVAL, up, " refers to ");
        say_path(pack, above, false);
        say(pack, ": a cycle");
        return false;
    }
    if (lua_getmetatable(L, table)) {
        if (lua_rawgetp(L, -1, &ls_array_mark) != LUA_TNIL)
            type = CODE_ARRAY;
        else if (lua_rawgetp(L, -2, &ls_plain_mark) == LUA_TNIL)
            return refuse(pack, LS_EINVAL, up, " has a metatable; only plain tables can be shared");
        lua_settop(L, own);
    }
    if (!pack_fields(pack, table, &in, depth + 1, type)) return false;
    lua_settop(L, top);
    return true;
}

static ls_value *value_new(const void *code, size_t len)
{
    ls_value *value = malloc(sizeof *value + len);
    if (value == NULL) return NULL;
    atomic_init(&value->refs, 1);
    value->len = len;
    if (code != NULL) memcpy(value->code, code, len);
    return value;
}

int ls_value_pack(lua_State *L, int index, const ls_value_options *options, ls_value **out, char *message,
                  size_t message_bytes)
{
    const int top = lua_gettop(L);
    packer pack; /* not initialised as a whole: `stack` is large */
    pack.L = L;
    pack.base = pack.at = pack.stack;
    pack.end = pack.stack + sizeof pack.stack;
    pack.bytes_max = SIZE_MAX / 4;
    pack.options = options;
    pack.error = LS_OK;
    pack.message = message;
    pack.message_bytes = message_bytes;
    pack.message_len = 0;
    if (options != NULL && options->bytes_max > 0) {
        pack.bytes_max = options->bytes_max > sizeof(ls_value) ? options->bytes_max - sizeof(ls_value) : 0;
        if (pack.bytes_max < sizeof pack.stack) pack.end = pack.stack + pack.bytes_max;
    }
    if (pack_any(&pack, lua_absindex(L, index), NULL, 0)) {
        ls_value *value = value_new(pack.base, (size_t)(pack.at - pack.base));
        if (value != NULL)
            *out = value;
        else
            (void)fail(&pack, LS_ENOMEM, "not enough memory");
    }
    if (pack.base != pack.stack) free(pack.base);
    lua_settop(L, top);
    return pack.error;
}

ls_value *ls_value_string(const char *bytes, size_t len)
{
    const size_t head = 1 + number_bytes(len);
    ls_value *value = value_new(NULL, head + len);
    if (value == NULL) return NULL;
    value->code[0] = CODE_STRING;
    memcpy(write_number(value->code + 1, len), bytes, len);
    return value;
}

ls_value *ls_value_hold(ls_value *value)
{
    (void)atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
    return value;
}

void ls_value_drop(ls_value *value)
{
    if (value == NULL) return;
    if (atomic_fetch_sub_explicit(&value->refs, 1, memory_order_release) > 1) return;
    (void)atomic_load_explicit(&value->refs, memory_order_acquire); /* all reads of other threads come before free */
    free(value);
}

size_t ls_value_bytes(const ls_value *value)
{
    return sizeof *value + value->len;
}

int ls_value_type(const ls_value *value)
{
    static const int types[] = {[CODE_NIL] = LUA_TNIL,        [CODE_FALSE] = LUA_TBOOLEAN,
                                [CODE_TRUE] = LUA_TBOOLEAN,   [CODE_NULL] = LUA_TLIGHTUSERDATA,
                                [CODE_INTEGER] = LUA_TNUMBER, [CODE_FLOAT] = LUA_TNUMBER,
                                [CODE_STRING] = LUA_TSTRING,  [CODE_TABLE] = LUA_TTABLE,
                                [CODE_ARRAY] = LUA_TTABLE};
    return types[value->code[0]];
}

/* ---- push -------------------------------------------------------------------------------------------------- */

static inline const unsigned char *read_number(const unsigned char *at, uint64_t *number)
{
    uint64_t digits = *at & 0x7f;
    for (unsigned shift = 7; *at++ >= 0x80; shift += 7) digits |= (uint64_t)(*at & 0x7f) << shift;
    *number = digits;
    return at;
}

/* ---- code of a file ------------------------------------------------------------------------------------------ */

const char *ls_value_text(const ls_value *value, size_t *len)
{
    uint64_t number;
    if (value->code[0] != CODE_STRING) return NULL;
    const unsigned char *at = read_number(value->code + 1, &number);
    *len = (size_t)number;
    return (const char *)at;
}

const char *ls_value_code(const ls_value *value, size_t *len)
{
    *len = value->len;
    return (const char *)value->code;
}

/* The end of the number at `at`; NULL: it goes beyond `end`, or has more than 64 bits. */
static const unsigned char *check_number(const unsigned char *at, const unsigned char *end, uint64_t *number)
{
    const unsigned char *last = at;
    while (last < end && *last >= 0x80 && last - at < NUMBER_BYTES_MAX) last++;
    return last == end || last - at == NUMBER_BYTES_MAX ? NULL : read_number(at, number);
}

/* The end of the code at `at`; NULL: it is not one. `key`: of a table. */
static const unsigned char *check_code(const unsigned char *at, const unsigned char *end, unsigned depth, bool key)
{
    uint64_t number;
    uint32_t counts[2];
    double value;
    if (at == NULL || at == end || depth > LS_VALUE_DEPTH_MAX) return NULL;
    const unsigned char type = *at++;
    switch (type) {
    case CODE_NIL:
    case CODE_NULL: return key ? NULL : at;
    case CODE_FALSE:
    case CODE_TRUE: return at;
    case CODE_INTEGER: return check_number(at, end, &number);
    case CODE_FLOAT:
        if ((size_t)(end - at) < sizeof value) return NULL;
        memcpy(&value, at, sizeof value);
        return key && value != value ? NULL : at + sizeof value;
    case CODE_STRING:
        at = check_number(at, end, &number);
        return at != NULL && number <= (size_t)(end - at) ? at + number : NULL;
    case CODE_TABLE:
    case CODE_ARRAY: break;
    default: return NULL;
    }
    if (key || (size_t)(end - at) < sizeof counts) return NULL;
    memcpy(counts, at, sizeof counts);
    at += sizeof counts;
    if (counts[0] > (size_t)(end - at) || counts[1] > (size_t)(end - at)) return NULL; /* each has a byte at least */
    for (uint32_t n = 0; n < counts[0] && at != NULL; n++) at = check_code(at, end, depth + 1, false);
    for (uint32_t n = 0; n < counts[1] && at != NULL; n++) {
        at = check_code(at, end, depth + 1, true);
        at = check_code(at, end, depth + 1, false);
    }
    return at;
}

ls_value *ls_value_of_code(const char *code, size_t len)
{
    const unsigned char *begin = (const unsigned char *)code, *end = begin + len;
    return check_code(begin, end, 0, false) == end && len > 0 ? value_new(code, len) : NULL;
}

/* ---- push, continued ------------------------------------------------------------------------------------------ */

static const unsigned char *push_table(lua_State *L, const unsigned char *at, int copy_meta, bool array);

/* Push the value whose code begins at `at`. copy_meta: stack index of the metatable of copies, or 0 for plain tables.
 * Returns the end of the code. */
static const unsigned char *push_any(lua_State *L, const unsigned char *at, int copy_meta)
{
    uint64_t number;
    switch (*at++) {
    case CODE_FALSE: lua_pushboolean(L, 0); break;
    case CODE_TRUE: lua_pushboolean(L, 1); break;
    case CODE_NULL: lua_pushlightuserdata(L, NULL); break;
    case CODE_INTEGER:
        at = read_number(at, &number);
        lua_pushinteger(L, (lua_Integer)((number >> 1) ^ (0 - (number & 1))));
        break;
    case CODE_FLOAT: {
        lua_Number value;
        memcpy(&value, at, sizeof value);
        lua_pushnumber(L, value);
        at += sizeof value;
        break;
    }
    case CODE_STRING:
        at = read_number(at, &number);
        (void)lua_pushlstring(L, (const char *)at, (size_t)number);
        at += number;
        break;
    case CODE_TABLE: return push_table(L, at, copy_meta, false);
    case CODE_ARRAY: return push_table(L, at, copy_meta, true);
    default: lua_pushnil(L); break; /* CODE_NIL */
    }
    return at;
}

static int table_room(uint32_t count) /* of lua_createtable: a hint */
{
    return count > INT32_MAX / 2 ? INT32_MAX / 2 : (int)count;
}

void ls_array_set_mark(lua_State *L)
{
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, &ls_array_mark);
    lua_setmetatable(L, -2);
}

static const unsigned char *push_table(lua_State *L, const unsigned char *at, int copy_meta, bool array)
{
    uint32_t counts[2];
    memcpy(counts, at, sizeof counts);
    at += sizeof counts;
    luaL_checkstack(L, SLOTS_PER_LEVEL + 2, NULL);
    lua_createtable(L, table_room(counts[0]), table_room(counts[1]));
    const int table = lua_gettop(L);
    for (uint32_t n = 1; n <= counts[0]; n++) {
        at = push_any(L, at, copy_meta);
        lua_rawseti(L, table, n);
    }
    for (uint32_t n = 0; n < counts[1]; n++) {
        at = push_any(L, at, copy_meta);
        at = push_any(L, at, copy_meta);
        lua_rawset(L, table);
    }
    if (array) ls_array_set_mark(L);
    if (copy_meta != 0) {
        ls_copy_push(L, table, copy_meta);
        lua_replace(L, table);
    }
    return at;
}

void ls_value_push(lua_State *L, const ls_value *value)
{
    luaL_checkstack(L, 1, NULL);
    (void)push_any(L, value->code, 0);
}

void ls_value_push_copy(lua_State *L, const ls_value *value)
{
    luaL_checkstack(L, 2, NULL);
    if (value->code[0] < CODE_TABLE) {
        (void)push_any(L, value->code, 0);
        return;
    }
    ls_copy_push_metatable(L);
    (void)push_any(L, value->code, lua_gettop(L));
    lua_remove(L, -2);
}

static int push_plain_call(lua_State *L)
{
    ls_value_push(L, lua_touserdata(L, 1));
    return 1;
}

static int push_copy_call(lua_State *L)
{
    ls_value_push_copy(L, lua_touserdata(L, 1));
    return 1;
}

void ls_value_give(lua_State *L, ls_value *value, bool read_only)
{
    int status = LUA_ERRMEM;
    if (value->code[0] < CODE_STRING && lua_checkstack(L, 1)) { /* needs no memory */
        (void)push_any(L, value->code, 0);
        status = LUA_OK;
    } else if (lua_checkstack(L, 2)) {
        lua_pushcfunction(L, read_only ? push_copy_call : push_plain_call);
        lua_pushlightuserdata(L, value);
        status = lua_pcall(L, 1, 1, 0);
    } else {
        ls_value_drop(value);
        luaL_error(L, "stack overflow");
        return;
    }
    ls_value_drop(value);
    if (status != LUA_OK) lua_error(L);
}
