/* buffer.c - the buffer object, see buffer.h. */
#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "script/bind/bind_aux.h"
#include "script/bind/modules.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"

static const char buffer_tag;

/* The pause between two full collections of a busy state: this multiple of the duration of the last one, at least
 * MIN. */
enum { COLLECT_ALL_SHARE = 100, COLLECT_ALL_MS_MIN = 5000 };

typedef struct buffers { /* of a state */
    int meta_ref;
    ls_buffer *late;         /* made by finalizers while the state closes */
    _Atomic int kept;        /* `live` at the start */
    _Atomic int live;        /* number of buffers that hold blocks */
    _Atomic size_t bytes;    /* bytes of blocks given to buffers since the last collection for buffers */
    size_t bytes_seen;       /* `bytes` at the watchdog's last tick */
    _Atomic size_t lua_kept; /* memory of Lua after the start, or after the last full collection */
    ls_state *state;
    ls_op collect_op;
    _Atomic bool collecting;     /* collect_op is posted and has not completed */
    bool collect_all;            /* collect_op makes a full collection; set before it is posted */
    uint64_t collect_all_due_ms; /* earliest time of the next full collection while busy; set before collect_op ends */
} buffers;

static buffers *buffers_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_buffer);
}

enum { LUA_BYTES_MIN = 16 * 1024 * 1024 };   /* garbage of Lua below which an idle state is not collected */
enum { BUFFER_BYTES_MIN = 2 * 1024 * 1024 }; /* bytes held by buffers below which no collection is started */

static ls_buffer *buffer_any(lua_State *L, int index)
{
    return ls_udata_test(L, index, &buffer_tag, sizeof(ls_buffer));
}

ls_buffer *ls_buffer_test(lua_State *L, int index)
{
    ls_buffer *buffer = buffer_any(L, index);
    if (buffer != NULL && buffer->expired)
        luaL_error(L,
                   "this chunk was valid for one round of its loop only; keep it with data:keep() or tostring(data)");
    return buffer;
}

static ls_buffer *buffer_check(lua_State *L, int index)
{
    ls_buffer *buffer = ls_buffer_test(L, index);
    if (buffer == NULL) luaL_typeerror(L, index, "buffer");
    return buffer;
}

const ls_slice *ls_buffer_slices(lua_State *L, int index, unsigned *count)
{
    static const ls_slice empty;
    const ls_buffer *buffer = buffer_any(L, index);
    if (buffer == NULL || buffer->expired) return NULL;
    *count = buffer->count;
    return buffer->count > 0 ? buffer->slices : &empty;
}

ls_buffer *ls_buffer_push(lua_State *L)
{
    const ls_state *state = ls_state_of(L);
    ls_buffer *buffer = ls_object_new(L, sizeof *buffer, 0, &buffer_tag, buffers_of(state)->meta_ref);
    if (state->closing) { /* Lua does not register its finalizer any more: see last_gc */
        buffer->late_next = buffers_of(state)->late;
        buffers_of(state)->late = buffer;
    }
    return buffer;
}

/* Count the buffers of this state that hold blocks: `change` is 1 or -1. */
static void count_live(lua_State *L, int change)
{
    ls_state *state = ls_state_of(L);
    const int live = atomic_load_explicit(&buffers_of(state)->live, memory_order_relaxed);
    atomic_store_explicit(&buffers_of(state)->live, live + change, memory_order_relaxed);
}

/* Double the room for slices. Their array is memory of the state and counts against its limit. false: the limit. */
static bool buffer_grow(lua_State *L, ls_buffer *buffer)
{
    void *user;
    const lua_Alloc alloc = lua_getallocf(L, &user);
    if (buffer->room > UINT_MAX / 2) return false;
    const unsigned room = buffer->room == 0 ? 4 : buffer->room * 2;
    ls_slice *slices =
        alloc(user, buffer->slices, buffer->room * sizeof *slices, room * sizeof *slices); /* never of size 0 */
    if (slices == NULL) return false;
    buffer->slices = slices;
    buffer->room = room;
    return true;
}

static void buffer_free_slices(lua_State *L, ls_buffer *buffer)
{
    void *user;
    const lua_Alloc alloc = lua_getallocf(L, &user);
    if (buffer->slices != NULL) (void)alloc(user, buffer->slices, buffer->room * sizeof *buffer->slices, 0);
}

/* Takes the reference; drops it and raises when out of memory. */
static void buffer_push(lua_State *L, ls_buffer *buffer, ls_slice slice)
{
    if (buffer->count == buffer->room && !buffer_grow(L, buffer)) {
        (void)lua_gc(L, LUA_GCCOLLECT); /* as Lua does at its limit; a finalizer may append to this buffer */
        if (buffer->count == buffer->room && !buffer_grow(L, buffer)) {
            ls_slice_drop(&slice);
            luaL_error(L, "not enough memory");
            return;
        }
    }
    if (buffer->count == 0) count_live(L, 1);
    buffer->slices[buffer->count++] = slice;
    buffer->len += slice.len;
}

void ls_buffer_add_slice(lua_State *L, ls_buffer *buffer, ls_slice slice)
{
    if (slice.len == 0) {
        ls_slice_drop(&slice);
        return;
    }
    buffer_push(L, buffer, slice);
    buffer->tail = NULL;
}

void ls_buffer_add_bytes(lua_State *L, ls_buffer *buffer, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t run;
        if (buffer->tail == NULL || buffer->tail_used == buffer->tail->cap) {
            /* ls_state_block may collect garbage, and a finalizer may append to this buffer: take the block first. */
            ls_block *block =
                ls_state_block(L, len > LS_BLOCK_SMALL || buffer->len > 0 ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
            buffer_push(L, buffer, (ls_slice){block, block->data, 0});
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
            const char *bytes = ls_number_tolstring(L, i, &len);
            ls_buffer_add_bytes(L, buffer, bytes, len);
        } else {
            const ls_buffer *other = ls_buffer_test(L, i);
            const unsigned count = other != NULL ? other->count : 0; /* `other` may be `buffer` itself */
            if (other == NULL) luaL_typeerror(L, i, "string or buffer");
            for (unsigned n = 0; n < count; n++) {
                const ls_slice *from = &other->slices[n];
                ls_buffer_add_slice(L, buffer, (ls_slice){ls_block_hold(from->block), from->ptr, from->len});
            }
        }
    }
}

/* ls.buffer(...: Data) -> buffer
 * Makes a buffer: bytes outside of the memory of Lua. Copies strings and numbers once; shares the blocks of buffers.
 */
static int core_buffer(lua_State *L)
{
    const int last = lua_gettop(L);
    ls_buffer *buffer = ls_buffer_push(L);
    buffer_append_values(L, buffer, 1, last);
    ls_buffer_account(L, buffer->len);
    return 1;
}

/* buffer:append(...: Data) -> buffer
 * Appends to the buffer. */
static int buffer_append(lua_State *L)
{
    ls_buffer *buffer = buffer_check(L, 1);
    const size_t before = buffer->len;
    buffer_append_values(L, buffer, 2, lua_gettop(L));
    ls_buffer_account(L, buffer->len - before);
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

/* buffer:tostring() -> text
 * A copy of the bytes, as a string. */
static int buffer_tostring(lua_State *L)
{
    const ls_buffer *buffer = buffer_check(L, 1);
    ls_slices_push_string(L, buffer->slices, buffer->count, buffer->len);
    return 1;
}

static int buffer_len(lua_State *L)
{
    return ls_push_integer(L, (lua_Integer)buffer_check(L, 1)->len);
}

/* buffer:sub(i: integer [, j: integer]) -> part: Buffer
 * A part of the bytes, which shares the blocks. Positions as in string.sub. */
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

static void buffer_drop(lua_State *L, ls_buffer *buffer)
{
    if (buffer->count > 0) count_live(L, -1);
    ls_slices_drop(buffer->slices, buffer->count);
    buffer_free_slices(L, buffer);
    *buffer = (ls_buffer){.tag = &buffer_tag, .late_next = buffer->late_next};
}

static int buffer_gc(lua_State *L)
{
    ls_buffer *buffer = buffer_any(L, 1);
    if (buffer != NULL) buffer_drop(L, buffer);
    return 0;
}

/* The last finalizer of the state, because it was the first object that got one: drops the buffers that other
 * finalizers made while the state closes. */
static int last_gc(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    for (ls_buffer *buffer = buffers_of(state)->late; buffer != NULL;) {
        ls_buffer *const next = buffer->late_next;
        buffer_drop(L, buffer);
        buffer = next;
    }
    buffers_of(state)->late = NULL;
    return 0;
}

static void buffer_prepare(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", last_gc}, {NULL, NULL}};
    (void)lua_newuserdatauv(L, 0, 0);
    luaL_newlib(L, meta);
    lua_setmetatable(L, -2);
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* alive until the state closes */
}

void ls_buffer_lend(ls_buffer *buffer)
{
    buffer->lent = true;
}

void ls_buffer_take_back(lua_State *L, int index)
{
    ls_buffer *buffer = buffer_any(L, index);
    if (buffer == NULL || !buffer->lent) return;
    buffer_drop(L, buffer);
    buffer->expired = true;
}

/* buffer:keep() -> buffer
 * Ends the loan of a chunk: it stays valid after its round of the loop. */
static int buffer_keep(lua_State *L)
{
    ls_buffer *buffer = buffer_check(L, 1);
    if (buffer->lent) {
        buffer->lent = false;
        ls_buffer_account(L, buffer->len);
    }
    lua_settop(L, 1);
    return 1;
}

static int collect(lua_State *L)
{
    atomic_store_explicit(&buffers_of(ls_state_of(L))->bytes, 0, memory_order_relaxed);
    (void)lua_gc(L, LUA_GCSTEP, 0);
    return 0;
}

/* A buffer is small for Lua and large for the pool. A young collection visits every coroutine, so collections are
 * started in proportion to the live memory, but before this state's share of the pool could be garbage. */
void ls_buffer_account(lua_State *L, size_t bytes)
{
    ls_state *state = ls_state_of(L);
    const ls_generation *generation = state->generation;
    const unsigned states = atomic_load_explicit(&generation->state_count, memory_order_relaxed);
    const uint64_t pool = generation->settings.pool_bytes_max, share = pool / (2 * (uint64_t)(states + 1));
    size_t collect_at = atomic_load_explicit(&state->bytes_live, memory_order_relaxed);
    if (collect_at < BUFFER_BYTES_MIN) collect_at = BUFFER_BYTES_MIN;
    if (pool > 0 && collect_at > share) collect_at = (size_t)share;
    const size_t held = atomic_load_explicit(&buffers_of(state)->bytes, memory_order_relaxed) + bytes;
    atomic_store_explicit(&buffers_of(state)->bytes, held, memory_order_relaxed);
    if (held >= collect_at) (void)collect(L);
}

static int collect_all(lua_State *L)
{
    atomic_store_explicit(&buffers_of(ls_state_of(L))->bytes, 0, memory_order_relaxed);
    (void)lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

static void collect_done(ls_thread_ctx *ctx, ls_op *op)
{
    buffers *b = LS_CONTAINER(op, buffers, collect_op);
    const uint64_t begun_ms = ls_clock_coarse_ms();
    if (!atomic_load(&b->state->closed))
        (void)ls_state_protected(b->state, ctx, b->collect_all ? collect_all : collect, NULL);
    if (b->collect_all) {
        atomic_store(&b->lua_kept, atomic_load_explicit(&b->state->bytes_live, memory_order_relaxed));
        const uint64_t now_ms = ls_clock_coarse_ms();
        const uint64_t rest_ms = (now_ms - begun_ms) * COLLECT_ALL_SHARE;
        b->collect_all_due_ms = now_ms + (rest_ms > COLLECT_ALL_MS_MIN ? rest_ms : COLLECT_ALL_MS_MIN);
    }
    atomic_store(&b->collecting, false);
}

static bool state_on_tick(const ls_generation *generation, buffers *b, uint64_t now_ms, bool idle)
{
    if (atomic_load_explicit(&b->collecting, memory_order_acquire)) return false;
    const size_t held = atomic_load_explicit(&b->bytes, memory_order_relaxed);
    const bool unchanged = held == b->bytes_seen;
    b->bytes_seen = held;
    /* A young collection does not free objects that have survived two of them, such as a large value of JSON. A full
     * one does: it runs when the workers are idle, and for buffers also in a server that is always busy, but rarely
     * enough to cost little. */
    const size_t lua = atomic_load_explicit(&b->state->bytes_live, memory_order_relaxed),
                 kept = atomic_load(&b->lua_kept);
    const bool all = (atomic_load_explicit(&b->live, memory_order_relaxed) > b->kept &&
                      (idle || now_ms >= b->collect_all_due_ms)) ||
                     (idle && lua > LUA_BYTES_MIN + kept + kept / 2);
    if (!all && (held == 0 || (!unchanged && !idle))) return false;
    b->collect_all = all;
    atomic_store(&b->collecting, true);
    if (atomic_load(&generation->closing) != LS_CLOSING_NOT) { /* after the store: see buffer_closed */
        atomic_store(&b->collecting, false);
        return false;
    }
    ls_port_post(generation->runtime->port, &b->collect_op, 0);
    return true;
}

bool ls_buffers_on_tick(ls_generation *generation, bool idle)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    const unsigned count = atomic_load(&generation->state_count);
    bool posted = false;
    if (!atomic_load(&generation->started)) return false;
    for (unsigned n = 0; n < count; n++) {
        const ls_state *state = atomic_load(&generation->states[n]);
        if (state != NULL && !atomic_load(&state->closed))
            posted |= state_on_tick(generation, buffers_of(state), now_ms, idle);
    }
    return posted;
}

/* A method of strings, called with the bytes of the buffer as a string; the upvalue is the function of `string`.
 * buffer:byte([i: integer [, j: integer]]) -> ...: integer
 * As string.byte.
 * buffer:find(pattern [, init: integer [, plain: boolean]]) -> first: integer?, last: integer?, ...: any
 * As string.find.
 * buffer:match(pattern [, init: integer]) -> ...: any
 * As string.match.
 * buffer:gmatch(pattern [, init: integer]) -> iterator: fun(): string?
 * As string.gmatch.
 * buffer:gsub(pattern, repl: string|number|table|function [, n: integer]) -> text, count: integer
 * As string.gsub.
 * buffer:upper|lower|reverse() -> text
 * As the function of `string`.
 * buffer:rep(n: integer [, sep: string]) -> text
 * As string.rep.
 * buffer:len() -> bytes: integer
 * As string.len.
 * buffer:unpack(fmt: string [, pos: integer]) -> ...: any
 * As string.unpack, with the buffer as the data and the format first. */
static int buffer_as_string(lua_State *L)
{
    const ls_buffer *buffer = buffer_check(L, 1);
    ls_slices_push_string(L, buffer->slices, buffer->count, buffer->len);
    lua_replace(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* buffer .. x, x .. buffer -> string */
static int buffer_concat(lua_State *L)
{
    luaL_tolstring(L, 1, NULL);
    luaL_tolstring(L, 2, NULL);
    lua_concat(L, 2);
    return 1;
}

/* Two buffers are equal when their bytes are. */
static int buffer_eq(lua_State *L)
{
    const ls_buffer *a = ls_buffer_test(L, 1), *b = ls_buffer_test(L, 2);
    bool equal = a != NULL && b != NULL && a->len == b->len;
    unsigned i = 0, j = 0;
    size_t at_a = 0, at_b = 0;
    while (equal && i < a->count && j < b->count) {
        size_t run = a->slices[i].len - at_a;
        if (run > b->slices[j].len - at_b) run = b->slices[j].len - at_b;
        equal = memcmp(a->slices[i].ptr + at_a, b->slices[j].ptr + at_b, run) == 0;
        at_a += run;
        at_b += run;
        if (at_a == a->slices[i].len) i++, at_a = 0;
        if (at_b == b->slices[j].len) j++, at_b = 0;
    }
    return ls_push_boolean(L, equal);
}

/* buffer is a Buffer: bytes outside of the memory of Lua. `==` compares the bytes.
 * #buffer: integer
 * buffer .. string|number|Buffer: Buffer
 * type Data: string|number|Buffer|Data[] - bytes to send: strings, numbers, buffers and lists of them */
static void buffer_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"buffer:tostring()", buffer_tostring},
                                       {"buffer:sub(i, j)", buffer_sub},
                                       {"append", buffer_append},
                                       {"buffer:keep()", buffer_keep},
                                       {NULL, NULL}};
    static const char *const string_methods[] = {"byte",  "find", "match",   "gmatch", "gsub",   "upper",
                                                 "lower", "rep",  "reverse", "len",    "unpack", NULL};
    static const luaL_Reg meta[] = {{"__tostring", buffer_tostring}, {"__len", buffer_len}, {"__gc", buffer_gc},
                                    {"__concat", buffer_concat},     {"__eq", buffer_eq},   {NULL, NULL}};
    static const ls_object_type type = {.name = "buffer", .methods = methods, .meta = meta};
    buffers *const own = buffers_of(state);
    own->state = state;
    own->collect_op = (ls_op){.done = collect_done, .actor = &state->actor};
    ls_object_define(L, &type, &own->meta_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, own->meta_ref);
    lua_getfield(L, -1, "__index");
    (void)lua_getupvalue(L, -1, 1); /* the methods */
    lua_getglobal(L, "string");
    for (unsigned n = 0; string_methods[n] != NULL; n++) {
        lua_getfield(L, -1, string_methods[n]);
        lua_pushcclosure(L, buffer_as_string, 1);
        lua_setfield(L, -3, string_methods[n]);
    }
    lua_pop(L, 4);
}

static void buffer_start(ls_thread_ctx *ctx, ls_state *state)
{
    atomic_store(&buffers_of(state)->lua_kept, atomic_load_explicit(&state->bytes_live, memory_order_relaxed));
    buffers_of(state)->kept = atomic_load_explicit(&buffers_of(state)->live, memory_order_relaxed);
}

/* `closing` is set before this load, so that the watchdog sees it, or this load sees its collection. */
static bool buffer_closed(ls_state *state)
{
    return !atomic_load(&buffers_of(state)->collecting);
}

static const luaL_Reg functions[] = {{"buffer", core_buffer}, {NULL, NULL}};

const ls_module ls_buffer_module = {.name = "buffer",
                                    .bytes = sizeof(buffers),
                                    .functions = functions,
                                    .prepare = buffer_prepare,
                                    .define = buffer_define,
                                    .start = buffer_start,
                                    .closed = buffer_closed};
