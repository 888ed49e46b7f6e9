/* sock_receive.c - the receiving half of `sock`.
 *
 * A receive suspends its task while too few bytes are available; each arrival of bytes resumes the task, which
 * searches again. tcp->scanned counts the bytes already searched, so that a line that arrives one byte at a time costs
 * one look at each byte.
 *
 * receive and lines return strings. receiveany and chunks return the available bytes: below TCP_STRING_MAX as a
 * string, which costs less than an object that shares the block, else as a buffer, which shares the block.
 *
 * Any allocation of Lua may run its collector, and with it finalizers of the script, which may close this sock or
 * receive from it. So after an allocation has_bytes checks the tcp again. */
#include <string.h>

#include "base/io/log.h"
#include "script/bind/dev_mode.h"
#include "script/bind/sock/sock_object.h"

enum { TCP_STRING_MAX = LS_BLOCK_SMALL }; /* this many bytes and more become a buffer */

/* Whether the sock at index 1 still owns `tcp`, with at least `n` received bytes, after a finalizer may have run. */
static bool has_bytes(lua_State *L, const ls_tcp *tcp, size_t n)
{
    const ls_tcp_object *o = lua_touserdata(L, 1);
    return o->tcp == tcp && tcp->received >= n;
}

/* ---- waiting for bytes ------------------------------------------------------------------------------------------ */

enum { END_DRAINING = -1000 }; /* beside the LS_E* codes */

/* Receive more. LS_DONE: bytes arrived, search again; LS_PENDING: wait; LS_E*, END_DRAINING: no more bytes follow. */
static int receive_more(lua_State *L, ls_tcp *tcp)
{
    const ls_state *state = tcp->state;
    if (tcp->receive_end != LS_OK) return tcp->receive_end;
    int err = ls_tcp_fill(state->ctx, tcp);
    if (err == LS_ENOMEM) {
        (void)lua_gc(L, LUA_GCCOLLECT); /* the collector does not count the blocks of buffers as memory */
        if (!has_bytes(L, tcp, 0)) return LS_ECLOSED;
        if (tcp->receive_end != LS_OK) return tcp->receive_end;
        err = ls_tcp_fill(state->ctx, tcp);
    }
    return err == LS_PENDING && ls_state_is_ending(state, LS_END_STOP) && !tcp->client && tcp->received == 0
               ? END_DRAINING
               : err;
}

static int wait_for_more(lua_State *L, ls_tcp *tcp, lua_KContext context, lua_KFunction k)
{
    ls_task_may_wait(L);
    ls_tcp_receive_begins(tcp, tcp->state->current);
    return ls_task_yield(L, LS_WAIT_WRITE, context, k);
}

/* The connection of a receive that starts (status LUA_OK) or resumes. *err: the result of the wait. NULL with *err
 * when the sock is closed. Raises when another task is receiving. */
static ls_tcp *receive_resume(lua_State *L, int status, int *err)
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
    if (tcp->receiver == tcp->state->current) tcp->receiver = NULL; /* the task resumes only to end */
    return tcp;
}

static void check_late(lua_State *L, int err)
{
    ls_tcp_object *o = ls_tcp_check(L);
    if (err != LS_ETIMEDOUT)
        ls_task_check_late(L, &o->late, "sock:receive", "local line, why = sock:receive() if not line then break end");
}

/* nil, message, code */
static int push_failed(lua_State *L, int err)
{
    check_late(L, err);
    return err == END_DRAINING ? ls_push_failure_text(L, LS_ECLOSED, "draining") : ls_push_failure(L, err);
}

/* Push the first n received bytes as a string, then consume them and `also` more. false: a finalizer took bytes first;
 * the values on the stack are then useless. */
static bool push_bytes(lua_State *L, ls_tcp *tcp, size_t n, size_t also)
{
    if (n <= tcp->head.len || n == 0) {
        lua_pushlstring(L, n > 0 ? tcp->head.ptr : "", n); /* copies before it collects */
    } else {
        luaL_Buffer text;
        size_t at = 0;
        char *to = luaL_buffinitsize(L, &text, n);
        if (!has_bytes(L, tcp, n)) return false;
        for (uint32_t i = 0; at < n; i++) {
            const ls_slice *slice = ls_tcp_slice(tcp, i);
            const size_t run = slice->len < n - at ? slice->len : n - at;
            memcpy(to + at, slice->ptr, run);
            at += run;
        }
        luaL_pushresultsize(&text, n);
    }
    if (has_bytes(L, tcp, n + also)) ls_tcp_consume(tcp, n + also);
    if (tcp->object != NULL && n > 0) tcp->object->late = 0;
    ls_task *task = ls_state_of(L)->current;
    if (task != NULL && task->scope == LS_SCOPE_CONNECTION) task->message++;
    return true;
}

/* push_bytes as the result of the method. */
static int return_bytes(lua_State *L, ls_tcp *tcp, size_t n, size_t also)
{
    return push_bytes(L, tcp, n, also) ? 1 : push_failed(L, LS_ECLOSED);
}

/* nil, message, code, and the bytes received so far */
static int push_failed_partial(lua_State *L, ls_tcp *tcp, int err)
{
    const int top = lua_gettop(L), results = push_failed(L, err);
    if (tcp == NULL || !has_bytes(L, tcp, 0) || !push_bytes(L, tcp, tcp->received, 0)) {
        lua_settop(L, top + results);
        return results;
    }
    return results + 1;
}

/* ---- receive: n bytes, a line, all ------------------------------------------------------------------------------ */

static int receive_count(lua_State *L, int status, lua_KContext count)
{
    int err;
    ls_tcp *tcp = receive_resume(L, status, &err);
    if (tcp == NULL) return push_failed_partial(L, NULL, err);
    while (tcp->received < (size_t)count) {
        if (status == LUA_OK || err == LS_OK) err = receive_more(L, tcp);
        if (err == LS_PENDING) return wait_for_more(L, tcp, count, receive_count);
        if (err != LS_DONE) return push_failed_partial(L, tcp, err);
    }
    return return_bytes(L, tcp, (size_t)count, 0);
}

/* The position of the first line feed that was not searched before, or -1. */
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

/* The length of the line so far without its end. `at`: the position of the line feed, -1 if it has not arrived. *cr: a
 * CR precedes the end. */
static size_t line_bytes(const ls_tcp *tcp, int64_t at, bool *cr)
{
    const size_t bytes = at < 0 ? tcp->received : (size_t)at;
    *cr = bytes > 0 && byte_at(tcp, bytes - 1) == '\r';
    return bytes - *cr;
}

/* LS_DONE: the line was pushed. LS_PENDING, or an error. */
static int try_line(lua_State *L, ls_tcp *tcp)
{
    for (;;) {
        const int64_t at = tcp->received > tcp->scanned ? find_line(tcp) : -1;
        bool cr;
        const size_t bytes = line_bytes(tcp, at, &cr);
        if (bytes > tcp->config->line_bytes_max) return LS_EMSGSIZE;
        if (at >= 0) return push_bytes(L, tcp, bytes, 1u + cr) ? LS_DONE : LS_ECLOSED;
        const int err = receive_more(L, tcp);
        if (err != LS_DONE) return err;
    }
}

enum { AS_RESULT, IN_LOOP }; /* how the value is used */

static int iteration_ends(lua_State *L, ls_tcp *tcp, int err);

static int receive_line(lua_State *L, int status, lua_KContext use)
{
    int err;
    ls_tcp *tcp = receive_resume(L, status, &err);
    if (tcp != NULL && (status == LUA_OK || err == LS_OK)) err = try_line(L, tcp);
    if (err == LS_DONE) return 1;
    if (err == LS_PENDING) return wait_for_more(L, tcp, use, receive_line);
    if (use == IN_LOOP && tcp != NULL && err == LS_ECLOSED && has_bytes(L, tcp, 1))
        err = LS_ETRUNCATED; /* the last line lacks its end: it may be cut off */
    if (use == IN_LOOP) return iteration_ends(L, tcp, err);
    return err == LS_EMSGSIZE ? push_failed(L, err) : push_failed_partial(L, tcp, err); /* too long: the bytes stay */
}

static int receive_all(lua_State *L, int status, lua_KContext context)
{
    int err;
    ls_tcp *tcp = receive_resume(L, status, &err);
    if (tcp == NULL) return push_failed_partial(L, NULL, err);
    if (status == LUA_OK) err = LS_DONE;
    while (err == LS_DONE) {
        if (tcp->received > tcp->config->message_bytes_max) return push_failed(L, LS_EMSGSIZE);
        err = receive_more(L, tcp);
    }
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, receive_all);
    if (err != LS_ECLOSED || !has_bytes(L, tcp, 0)) return push_failed_partial(L, tcp, err);
    return return_bytes(L, tcp, tcp->received, 0);
}

/* sock:receive([what: integer|"*l"|"*a"|"l"|"a"]) -> data: string | nil, message, code, partial: string
 * Receives a number of bytes, a line ("*l", the default) or everything until the end of the stream ("*a"). After a
 * failure `partial` has the bytes that had arrived. */
int ls_sock_receive(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    if (lua_type(L, 2) == LUA_TNUMBER) {
        const lua_Integer n = luaL_checkinteger(L, 2);
        luaL_argcheck(L, n >= 0, 2, "number of bytes must be 0 or more");
        if (o->tcp != NULL && (uint64_t)n > o->tcp->config->message_bytes_max) return push_failed(L, LS_EMSGSIZE);
        lua_settop(L, 1);
        return receive_count(L, LUA_OK, n);
    }
    const char *what = lua_isnoneornil(L, 2) ? "l" : lua_tostring(L, 2);
    if (what != NULL && what[0] == '*') what++;
    luaL_argcheck(L, what != NULL && (what[0] == 'l' || what[0] == 'a') && what[1] == '\0', 2,
                  "number of bytes, \"*l\" (a line) or \"*a\" (all until the end) expected");
    lua_settop(L, 1);
    return what[0] == 'l' ? receive_line(L, LUA_OK, AS_RESULT) : receive_all(L, LUA_OK, 0);
}

/* ---- receiveany, chunks, lines ---------------------------------------------------------------------------------- */

/* Push up to `max` received bytes as a string, or as a buffer that shares the blocks. `lent`: lend the buffer to the
 * loop. false as push_bytes. */
static bool push_some(lua_State *L, ls_tcp *tcp, size_t max, bool lent)
{
    const size_t n = tcp->received < max ? tcp->received : max;
    if (n < TCP_STRING_MAX) return push_bytes(L, tcp, n, 0);
    ls_buffer *buffer = ls_buffer_push(L);
    if (!has_bytes(L, tcp, n)) return false;
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

/* A loop ends although the peer has not ended its direction, which many sites do not expect. */
static void log_end(lua_State *L, ls_tcp *tcp, int err)
{
    char text[LS_ADDR_TEXT_BYTES];
    const char *const why = err == LS_EMSGSIZE     ? "a line is longer than max_line"
                            : err == LS_ETIMEDOUT  ? "nothing came for read_timeout seconds"
                            : err == LS_ETRUNCATED ? "the last line has no end, and was dropped"
                                                   : NULL;
    if (why == NULL) return;
    ls_log(ls_dev_of(ls_state_runtime(ls_state_of(L))) != NULL ? LS_LOG_INFO : LS_LOG_DEBUG,
           "connection from %s: the loop over what it sends ends: %s", ls_stream_peer_text(ls_tcp_stream(tcp), text),
           why);
}

/* The end of an iteration; sock.ended keeps the reason. tcp NULL: the sock is closed. */
static int iteration_ends(lua_State *L, ls_tcp *tcp, int err)
{
    ls_tcp_object *o = ls_tcp_check(L);
    check_late(L, err);
    if (tcp != NULL) log_end(L, tcp, err);
    if (o->tcp == NULL) err = o->lost < 0 ? o->lost : LS_ECLOSED;
    o->ended = (int8_t)(err == END_DRAINING ? LS_ECLOSED : err);
    return ls_push_nil(L);
}

/* `max`: the most bytes of the result; 0: in a loop. */
static int receive_any(lua_State *L, int status, lua_KContext max)
{
    const bool in_loop = max == 0;
    int err;
    ls_tcp *tcp = receive_resume(L, status, &err);
    while (tcp != NULL && tcp->received == 0) {
        if (status == LUA_OK || err == LS_OK) err = receive_more(L, tcp);
        if (err == LS_PENDING) return wait_for_more(L, tcp, max, receive_any);
        if (err != LS_DONE) return in_loop ? iteration_ends(L, tcp, err) : push_failed(L, err);
    }
    if (tcp != NULL && push_some(L, tcp, in_loop ? LS_BLOCK_LARGE : (size_t)max, in_loop)) return 1;
    return in_loop ? iteration_ends(L, tcp, LS_ECLOSED) : push_failed(L, LS_ECLOSED);
}

/* sock:receiveany([max]) -> data: string|Buffer | nil, message, code
 * Waits until data has arrived, and returns at most `max` bytes (65536) of it: a string, or a buffer from 4 KiB on. */
int ls_sock_receiveany(lua_State *L)
{
    const lua_Integer max = luaL_optinteger(L, 2, LS_BLOCK_LARGE);
    (void)ls_tcp_check(L);
    luaL_argcheck(L, max > 0, 2, "number of bytes must be at least 1");
    lua_settop(L, 1);
    return receive_any(L, LUA_OK, max);
}

/* Return the values for a generic `for`: the iterator function, and the sock at index 1. */
static int iterate(lua_State *L, lua_CFunction next)
{
    (void)ls_tcp_check(L);
    lua_pushcfunction(L, next);
    lua_pushvalue(L, 1);
    return 2;
}

/* The iterator. Stack: the sock, the previous chunk. */
static int chunks_next(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TUSERDATA) ls_buffer_take_back(L, 2);
    lua_settop(L, 1);
    return receive_any(L, LUA_OK, 0);
}

/* sock:chunks() -> iterator: fun(): (string|Buffer)?
 * Iterates over the data that arrives; each chunk is what receiveany would return. The loop ends at the end of the
 * stream, at an error or a timeout; sock.ended is the reason. A buffer is valid for one round; data:keep() keeps it.
 */
int ls_sock_chunks(lua_State *L)
{
    return iterate(L, chunks_next);
}

static int lines_next(lua_State *L)
{
    lua_settop(L, 1);
    return receive_line(L, LUA_OK, IN_LOOP);
}

/* sock:lines() -> iterator: fun(): string?
 * Iterates over the lines, without their ends. The loop ends at the end of the stream, at an error, a timeout or a
 * line that is too long; sock.ended is the reason, "ETRUNCATED" when the last line has no end. Its bytes stay
 * unread. */
int ls_sock_lines(lua_State *L)
{
    return iterate(L, lines_next);
}

/* ---- receiveuntil ----------------------------------------------------------------------------------------------- */

/* The search of Knuth, Morris and Pratt. It reads every byte once, and so continues across blocks and waits. */
typedef struct until {
    size_t limit;
    bool inclusive;
    uint16_t len, matched;
    uint16_t fall_back[]; /* [i]: the length that still matches when byte i differs */
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

/* Search the bytes from tcp->scanned on. The number of bytes up to the end of the pattern, or -1. */
static int64_t until_find(ls_tcp *tcp, until *u, const char *pattern)
{
    size_t at = 0;
    for (uint32_t n = 0; at < tcp->received; n++) {
        const ls_slice *slice = ls_tcp_slice(tcp, n);
        size_t i = tcp->scanned > at ? tcp->scanned - at : 0;
        for (; i < slice->len; i++) {
            if (u->matched == 0) { /* the usual case: skip to the first byte of the pattern */
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
    ls_tcp *tcp = receive_resume(L, status, &err);
    until *u = lua_touserdata(L, 3);
    if (tcp == NULL) return push_failed_partial(L, NULL, err);
    if (status == LUA_OK) err = LS_DONE;
    while (err == LS_DONE) {
        const int64_t found = until_find(tcp, u, lua_tostring(L, 2));
        if (found >= 0 && (size_t)found - u->len <= u->limit) {
            return return_bytes(L, tcp, (size_t)found - (u->inclusive ? 0 : u->len), u->inclusive ? 0 : u->len);
        }
        if (tcp->received >= u->limit + u->len) return push_failed(L, LS_EMSGSIZE);
        err = receive_more(L, tcp);
    }
    if (err == LS_PENDING) return wait_for_more(L, tcp, context, receive_until);
    return push_failed_partial(L, tcp, err);
}

/* sock:receiveuntil(pattern [, options: UntilOptions]) -> data: string | nil, message, code, partial: string
 * Receives the bytes before a string of 1 to 1024 literal bytes, which is dropped.
 * options is an UntilOptions: options of sock:receiveuntil.
 * options.inclusive: boolean - the result includes the pattern
 * options.limit: integer - most bytes before the pattern; default: max_line */
int ls_sock_receiveuntil(lua_State *L)
{
    static const ls_option options[] = {LS_OPTION(until, inclusive), LS_OPTION_MAX(until, limit, INT32_MAX),
                                        LS_OPTIONS_END};
    size_t len;
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *pattern = luaL_checklstring(L, 2, &len);
    until given = {.limit = o->tcp != NULL ? o->tcp->config->line_bytes_max : 0};
    luaL_argcheck(L, len > 0, 2, "the pattern is empty");
    if (len > LS_TCP_PATTERN_MAX) return luaL_error(L, "the pattern is longer than %d bytes", LS_TCP_PATTERN_MAX);
    ls_options_take(L, 3, "sock:receiveuntil", options, &given);
    given.len = (uint16_t)len;
    lua_settop(L, 2);
    until *u = lua_newuserdatauv(L, sizeof *u + len * sizeof u->fall_back[0], 0);
    *u = given;
    until_prepare(u, pattern);
    return receive_until(L, LUA_OK, 0);
}
