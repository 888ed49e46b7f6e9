/* bind_sock_receive.c - the receiving half of `sock`.
 *
 * A receive that finds too little suspends its task; each packet of bytes resumes it, and it looks again. What it has
 * looked at in vain is remembered, so that a line that comes a byte at a time costs a look at each byte once.
 *
 * Bytes become a Lua string when they are asked for as such. receiveany and chunks hand out what came: below
 * TCP_STRING_MAX bytes as a string, which costs less than the object that would share the block, else as a buffer
 * that does share it.
 *
 * Whatever Lua allocates may set off its collector, and with it finalizers of the script: these may close the very sock
 * that is being received from, or receive from it. So after an allocation the tcp is looked up again (`still`). */
#include <string.h>

#include "base/err.h"
#include "script/bind.h"
#include "script/bind_sock.h"
#include "script/buffer.h"
#include "script/site_internal.h"

enum { TCP_STRING_MAX = LS_BLOCK_SMALL }; /* more than that is handed out as a buffer */

/* Whether the sock, which is at index 1, has still got `n` bytes of tcp, after a finalizer may have run. */
static bool still(lua_State *L, const ls_tcp *tcp, size_t n)
{
    const ls_tcp_object *o = lua_touserdata(L, 1);
    return o->tcp == tcp && tcp->received >= n;
}

/* ---- waiting for bytes ------------------------------------------------------------------------------------------ */

enum { END_DRAINING = -1000 }; /* beside the LS_E* codes */

/* LS_DONE: more came, look again; LS_PENDING: wait; LS_E*, END_DRAINING: no more will come. */
static int more(lua_State *L, ls_tcp *tcp)
{
    const ls_state *state = tcp->state;
    if (tcp->receive_end != LS_OK) return tcp->receive_end;
    int err = ls_tcp_fill(state->ctx, tcp);
    if (err == LS_ENOMEM) {
        (void)lua_gc(L, LUA_GCCOLLECT); /* what buffers hold does not count as Lua's memory */
        if (!still(L, tcp, 0)) return LS_ECLOSED;
        if (tcp->receive_end != LS_OK) return tcp->receive_end;
        err = ls_tcp_fill(state->ctx, tcp);
    }
    return err == LS_PENDING && state->draining && tcp->server != NULL && tcp->received == 0 ? END_DRAINING : err;
}

static int wait_for_more(lua_State *L, ls_tcp *tcp, lua_KContext context, lua_KFunction k)
{
    ls_task_may_wait(L);
    ls_tcp_receive_begins(tcp, tcp->state->current);
    return ls_task_suspend(L, context, k);
}

/* The connection of a receive that begins or continues. NULL: it failed, with *err. Raises when another task receives. */
static ls_tcp *receiving(lua_State *L, int status, int *err)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    ls_tcp *tcp = o->tcp;
    *err = LS_ECLOSED;
    if (tcp == NULL) return NULL;
    if (status == LUA_OK) {
        if (tcp->receiver != NULL) luaL_error(L, "another task already receives from this socket");
        tcp->scanned = 0;
        return tcp;
    }
    *err = tcp->state->current->wake_result;
    return tcp;
}

/* nil, message, code */
static int failed(lua_State *L, int err)
{
    if (err == END_DRAINING) {
        lua_pushnil(L);
        lua_pushliteral(L, "draining");
        lua_pushliteral(L, "ECLOSED");
        return 3;
    }
    return ls_push_failure(L, err);
}

/* Push the first n received bytes as a string, and drop them and `also` more. false: a finalizer was there first, and
 * nothing that is of use is on the stack. */
static bool push_bytes(lua_State *L, ls_tcp *tcp, size_t n, size_t also)
{
    if (n <= tcp->head.len || n == 0) {
        lua_pushlstring(L, n > 0 ? tcp->head.ptr : "", n); /* copies before it collects */
    } else {
        luaL_Buffer text;
        size_t at = 0;
        char *to = luaL_buffinitsize(L, &text, n);
        if (!still(L, tcp, n)) return false;
        for (uint32_t i = 0; at < n; i++) {
            const ls_slice *slice = ls_tcp_slice(tcp, i);
            const size_t run = slice->len < n - at ? slice->len : n - at;
            memcpy(to + at, slice->ptr, run);
            at += run;
        }
        luaL_pushresultsize(&text, n);
    }
    if (still(L, tcp, n + also)) ls_tcp_consume(tcp, n + also);
    return true;
}

/* The same as the only result. */
static int return_bytes(lua_State *L, ls_tcp *tcp, size_t n, size_t also)
{
    return push_bytes(L, tcp, n, also) ? 1 : failed(L, LS_ECLOSED);
}

/* nil, message, code, and what has come so far */
static int failed_partly(lua_State *L, ls_tcp *tcp, int err)
{
    const int top = lua_gettop(L), results = failed(L, err);
    if (tcp == NULL || !still(L, tcp, 0) || !push_bytes(L, tcp, tcp->received, 0)) {
        lua_settop(L, top + results);
        return results;
    }
    return results + 1;
}

/* ---- receive: so many bytes, a line, all ------------------------------------------------------------------------ */

static int receive_count(lua_State *L, int status, lua_KContext count)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return failed_partly(L, NULL, err);
    while (tcp->received < (size_t)count) {
        if (status == LUA_OK || err == LS_OK) err = more(L, tcp);
        if (err == LS_PENDING) return wait_for_more(L, tcp, count, receive_count);
        if (err != LS_DONE) return failed_partly(L, tcp, err);
    }
    return return_bytes(L, tcp, (size_t)count, 0);
}

/* Where the first line feed lies behind what was looked at: its position, or -1. */
static int64_t find_line(ls_tcp *tcp)
{
    size_t at = 0;
    for (uint32_t n = 0; at < tcp->received; n++) {
        const ls_slice *slice = ls_tcp_slice(tcp, n);
        if (at + slice->len > tcp->scanned) {
            const size_t from = tcp->scanned > at ? tcp->scanned - at : 0;
            const char *found = memchr(slice->ptr + from, '\n', slice->len - from);
            if (found != NULL) return (int64_t)(at + (size_t)(found - slice->ptr));
        }
        at += slice->len;
    }
    tcp->scanned = at;
    return -1;
}

static char byte_at(const ls_tcp *tcp, size_t at)
{
    uint32_t n = 0;
    const ls_slice *slice;
    while (at >= (slice = ls_tcp_slice(tcp, n))->len) {
        at -= slice->len;
        n++;
    }
    return slice->ptr[at];
}

/* What there is of the line so far, its end apart, of which `at` is the line feed's place (-1: not here yet). */
static size_t line_bytes(const ls_tcp *tcp, int64_t at, bool *cr)
{
    const size_t bytes = at < 0 ? tcp->received : (size_t)at;
    *cr = bytes > 0 && byte_at(tcp, bytes - 1) == '\r';
    return bytes - *cr;
}

/* 1 value: the line. LS_PENDING, or an error. */
static int try_line(lua_State *L, ls_tcp *tcp)
{
    for (;;) {
        const int64_t at = tcp->received > tcp->scanned ? find_line(tcp) : -1;
        bool cr;
        const size_t bytes = line_bytes(tcp, at, &cr);
        if (bytes > tcp->config->line_bytes_max) return LS_EMSGSIZE;
        if (at >= 0) return push_bytes(L, tcp, bytes, 1u + cr) ? LS_DONE : LS_ECLOSED;
        const int err = more(L, tcp);
        if (err != LS_DONE) return err;
    }
}

static int receive_line(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return failed_partly(L, NULL, err);
    if (status == LUA_OK || err == LS_OK) err = try_line(L, tcp);
    if (err == LS_DONE) return 1;
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, receive_line);
    return err == LS_EMSGSIZE ? failed(L, err) : failed_partly(L, tcp, err); /* too long: it stays */
}

static int receive_all(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return failed_partly(L, NULL, err);
    if (status == LUA_OK) err = LS_DONE;
    while (err == LS_DONE) {
        if (tcp->received > tcp->config->message_bytes_max) return failed(L, LS_EMSGSIZE);
        err = more(L, tcp);
    }
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, receive_all);
    if (err != LS_ECLOSED || !still(L, tcp, 0)) return failed_partly(L, tcp, err);
    return return_bytes(L, tcp, tcp->received, 0);
}

/* sock:receive([n | "*l" | "*a"]) -> string | nil, message, code, what came before. Without an argument a line. */
int ls_sock_receive(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    if (lua_type(L, 2) == LUA_TNUMBER) {
        const lua_Integer n = luaL_checkinteger(L, 2);
        luaL_argcheck(L, n >= 0, 2, "a number of bytes cannot be negative");
        if (o->tcp != NULL && (uint64_t)n > o->tcp->config->message_bytes_max) return failed(L, LS_EMSGSIZE);
        lua_settop(L, 1);
        return receive_count(L, LUA_OK, n);
    }
    const char *what = lua_isnoneornil(L, 2) ? "l" : lua_tostring(L, 2);
    if (what != NULL && what[0] == '*') what++;
    luaL_argcheck(L, what != NULL && (what[0] == 'l' || what[0] == 'a') && what[1] == '\0', 2,
                  "receive takes a number of bytes, \"*l\" (a line) or \"*a\" (all until the end)");
    lua_settop(L, 1);
    return what[0] == 'l' ? receive_line(L, LUA_OK, 0) : receive_all(L, LUA_OK, 0);
}

/* ---- receiveany, chunks, lines ------------------------------------------------------------------------------------ */

/* Push up to `max` of what came: a string, or a buffer that shares the blocks. `lent`: only until it is taken back.
 * false as for push_bytes. */
static bool push_some(lua_State *L, ls_tcp *tcp, size_t max, bool lent)
{
    const size_t n = tcp->received < max ? tcp->received : max;
    if (n < TCP_STRING_MAX) return push_bytes(L, tcp, n, 0);
    ls_buffer *buffer = ls_buffer_push(L);
    if (!still(L, tcp, n)) return false;
    size_t at = 0;
    for (uint32_t i = 0; at < n; i++) {
        const ls_slice *slice = ls_tcp_slice(tcp, i);
        const size_t run = slice->len < n - at ? slice->len : n - at;
        ls_buffer_add_slice(L, buffer, (ls_slice){ls_block_hold(slice->block), slice->ptr, run});
        at += run;
    }
    ls_tcp_consume(tcp, n);
    if (lent)
        ls_buffer_lend(buffer);
    else
        ls_buffer_account(L, n);
    return true;
}

static int receive_any(lua_State *L, int status, lua_KContext max)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return failed(L, err);
    while (tcp->received == 0) {
        if (status == LUA_OK || err == LS_OK) err = more(L, tcp);
        if (err == LS_PENDING) return wait_for_more(L, tcp, max, receive_any);
        if (err != LS_DONE) return failed(L, err);
    }
    return push_some(L, tcp, (size_t)max, false) ? 1 : failed(L, LS_ECLOSED);
}

/* sock:receiveany([max]) -> what is there, at most max bytes: a string or (4 KiB and more) a buffer | nil, message,
 * code. */
int ls_sock_receiveany(lua_State *L)
{
    const lua_Integer max = luaL_optinteger(L, 2, LS_BLOCK_LARGE);
    (void)ls_tcp_check(L);
    luaL_argcheck(L, max > 0, 2, "a number of bytes, at least 1");
    lua_settop(L, 1);
    return receive_any(L, LUA_OK, max);
}

/* The end of an iteration: why is a field of the sock, for those who want to know. tcp NULL: it could not begin or go on. */
static int iteration_ends(lua_State *L, ls_tcp *tcp, int err)
{
    if (tcp != NULL && still(L, tcp, 0)) tcp->ended = (int8_t)(err == END_DRAINING ? LS_ECLOSED : err);
    lua_pushnil(L);
    return 1;
}

/* What `for` takes: the function that gives the next one, and the sock, at index 1. */
static int iterate(lua_State *L, lua_CFunction next)
{
    (void)ls_tcp_check(L);
    lua_pushcfunction(L, next);
    lua_pushvalue(L, 1);
    return 2;
}

/* Stack: the sock, the chunk before. */
static int chunks_go_on(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return iteration_ends(L, NULL, err);
    while (tcp->received == 0) {
        if (status == LUA_OK || err == LS_OK) err = more(L, tcp);
        if (err == LS_PENDING) return wait_for_more(L, tcp, context, chunks_go_on);
        if (err != LS_DONE) return iteration_ends(L, tcp, err);
    }
    return push_some(L, tcp, LS_BLOCK_LARGE, true) ? 1 : iteration_ends(L, tcp, LS_ECLOSED);
}

static int chunks_next(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TUSERDATA) ls_buffer_take_back(L, 2);
    lua_settop(L, 1);
    return chunks_go_on(L, LUA_OK, 0);
}

/* for data in sock:chunks() do ... end: what comes, as it comes, as receiveany gives it, until the end, a failure or a
 * timeout; sock.ended says which. A buffer is the loop's until its next round: data:keep() keeps it. */
int ls_sock_chunks(lua_State *L)
{
    return iterate(L, chunks_next);
}

static int lines_go_on(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    if (tcp == NULL) return iteration_ends(L, NULL, err);
    if (status == LUA_OK || err == LS_OK) err = try_line(L, tcp);
    if (err == LS_DONE) return 1;
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, lines_go_on);
    if (err == LS_ECLOSED && still(L, tcp, 1) && push_bytes(L, tcp, tcp->received, 0))
        return 1; /* the last line may lack its end */
    return iteration_ends(L, tcp, err);
}

static int lines_next(lua_State *L)
{
    lua_settop(L, 1);
    return lines_go_on(L, LUA_OK, 0);
}

/* for line in sock:lines() do ... end: lines without their ends, until the end, a failure, a timeout or a line that is
 * too long; sock.ended says which. */
int ls_sock_lines(lua_State *L)
{
    return iterate(L, lines_next);
}

/* ---- receiveuntil --------------------------------------------------------------------------------------------------- */

/* The search of Knuth, Morris and Pratt, which never looks back: it goes on across blocks and waits. */
typedef struct until {
    size_t limit;
    bool inclusive;
    uint16_t len, matched;
    uint16_t fall_back[]; /* [i]: how much still matches when byte i does not */
} until;

static void until_prepare(until *u, const char *pattern)
{
    uint16_t k = 0;
    u->fall_back[0] = 0;
    for (uint16_t i = 1; i < u->len; i++) {
        u->fall_back[i] = k;
        while (k > 0 && pattern[i] != pattern[k]) k = u->fall_back[k];
        if (pattern[i] == pattern[k]) k++;
    }
}

/* Look at what was not looked at. The number of bytes up to the end of the pattern, or -1. */
static int64_t until_find(ls_tcp *tcp, until *u, const char *pattern)
{
    size_t at = 0;
    for (uint32_t n = 0; at < tcp->received; n++) {
        const ls_slice *slice = ls_tcp_slice(tcp, n);
        size_t i = tcp->scanned > at ? tcp->scanned - at : 0;
        for (; i < slice->len; i++) {
            if (u->matched == 0) { /* the usual case, in the fast way */
                const char *first = memchr(slice->ptr + i, pattern[0], slice->len - i);
                if (first == NULL) break;
                i = (size_t)(first - slice->ptr);
            }
            while (u->matched > 0 && slice->ptr[i] != pattern[u->matched]) u->matched = u->fall_back[u->matched];
            if (slice->ptr[i] == pattern[u->matched]) u->matched++;
            if (u->matched == u->len) return (int64_t)(at + i + 1);
        }
        at += slice->len;
    }
    tcp->scanned = at;
    return -1;
}

/* Stack: the sock, the pattern, the search. */
static int receive_until(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receiving(L, status, &err);
    until *u = lua_touserdata(L, 3);
    if (tcp == NULL) return failed_partly(L, NULL, err);
    if (status == LUA_OK) err = LS_DONE;
    while (err == LS_DONE) {
        const int64_t found = until_find(tcp, u, lua_tostring(L, 2));
        if (found >= 0 && (size_t)found - u->len <= u->limit) {
            return return_bytes(L, tcp, (size_t)found - (u->inclusive ? 0 : u->len), u->inclusive ? 0 : u->len);
        }
        if (tcp->received >= u->limit + u->len) return failed(L, LS_EMSGSIZE);
        err = more(L, tcp);
    }
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, receive_until);
    return failed_partly(L, tcp, err);
}

/* sock:receiveuntil(pattern [, { inclusive = true, limit = bytes }]) -> what came before the pattern, which is plain
 * bytes | nil, message, code, what came before. */
int ls_sock_receiveuntil(lua_State *L)
{
    size_t len;
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *pattern = luaL_checklstring(L, 2, &len);
    lua_Integer limit = o->tcp != NULL ? (lua_Integer)o->tcp->config->line_bytes_max : 0;
    bool inclusive = false;
    luaL_argcheck(L, len > 0, 2, "the pattern is empty");
    if (len > LS_TCP_PATTERN_MAX) return luaL_error(L, "the pattern is longer than %d bytes", LS_TCP_PATTERN_MAX);
    if (!lua_isnoneornil(L, 3)) {
        luaL_checktype(L, 3, LUA_TTABLE);
        lua_pushnil(L);
        while (lua_next(L, 3) != 0) {
            const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
            if (strcmp(name, "inclusive") == 0) {
                inclusive = lua_toboolean(L, -1);
            } else if (strcmp(name, "limit") == 0) {
                int whole;
                limit = lua_tointegerx(L, -1, &whole);
                if (!whole || limit < 0)
                    return luaL_error(L, "receiveuntil: limit must be a number of bytes, 0 or more");
            } else {
                return luaL_error(L, "receiveuntil: unknown option '%s'; there are 'inclusive' and 'limit'", name);
            }
            lua_pop(L, 1);
        }
    }
    lua_settop(L, 2);
    until *u = lua_newuserdatauv(L, sizeof *u + len * sizeof u->fall_back[0], 0);
    *u = (until){.limit = (size_t)limit, .inclusive = inclusive, .len = (uint16_t)len};
    until_prepare(u, pattern);
    return receive_until(L, LUA_OK, 0);
}
