/* sock_send.c - the sending half of `sock`.
 *
 * Short strings are copied into the stream's block. Long strings (string_block.h) and buffers share their blocks with
 * the queue. The queue is sent with one gather send when the task waits or ends, or when FLUSH_BYTES are queued. */
#include <string.h>

#include "script/bind/sock/sock_object.h"
#include "script/store/copy.h"

enum {
    NESTED_MAX = 8,      /* levels of tables */
    FLUSH_BYTES = 32768, /* queued bytes that are sent at once */
};

static const char other_keys[] = "list expected, got a table with other keys; send ls.json.encode(t)";

/* Raise for a value that cannot be sent, before anything is queued. Returns the number of long strings in it. */
static unsigned check_value(lua_State *L, int index, int arg, int depth)
{
    unsigned strings = 0;
    lua_Integer len, count;
    switch (lua_type(L, index)) {
    case LUA_TSTRING: return lua_rawlen(L, index) >= LS_STRING_SHARED_MIN;
    case LUA_TNUMBER: return 0;
    case LUA_TTABLE:
        if (depth == NESTED_MAX) luaL_argerror(L, arg, "tables are nested too deeply");
        luaL_checkstack(L, 4, "tables are nested too deeply");
        ls_copy_open(L, index);
        len = count = (lua_Integer)lua_rawlen(L, index);
        for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1), count--) {
            const lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
            if (key < 1 || key > len) luaL_argerror(L, arg, other_keys);
            strings += check_value(L, lua_gettop(L), arg, depth + 1);
        }
        if (count != 0) luaL_argerror(L, arg, other_keys);
        return strings;
    default:
        if (ls_buffer_test(L, index) == NULL) luaL_typeerror(L, arg, "string, number, buffer or table of them");
        return 0;
    }
}

/* Takes the reference of the slice. */
static int queue_slice(ls_tcp *tcp, ls_slice slice)
{
    const int err = ls_stream_push(tcp->state->ctx, ls_tcp_stream(tcp), &slice);
    if (err < 0) ls_slice_drop(&slice);
    return err;
}

int ls_sock_queue_copy(ls_tcp *tcp, const char *bytes, size_t len)
{
    return len == 0 ? LS_OK : ls_stream_put(tcp->state->ctx, ls_tcp_stream(tcp), bytes, len);
}

int ls_sock_queue_string(lua_State *L, ls_tcp *tcp, int index)
{
    size_t len;
    const char *bytes = lua_tolstring(L, index, &len);
    return len < LS_STRING_SHARED_MIN ? ls_sock_queue_copy(tcp, bytes, len)
                                      : queue_slice(tcp, ls_string_slice(L, index));
}

int ls_sock_queue_buffer(ls_tcp *tcp, const ls_buffer *buffer)
{
    int err = LS_OK;
    for (unsigned n = 0; n < buffer->count && err == LS_OK; n++) {
        const ls_slice *from = &buffer->slices[n];
        err = queue_slice(tcp, (ls_slice){ls_block_hold(from->block), from->ptr, from->len});
    }
    return err;
}

/* Queue a number in the format of tostring(), without making a Lua string. */
static int queue_number(lua_State *L, ls_tcp *tcp, int index)
{
    char text[LS_NUMBER_BYTES];
    return ls_sock_queue_copy(tcp, text, ls_number_write(text, L, index, false));
}

/* Nothing here may raise or allocate in Lua: a finalizer could close the sock. */
static int queue_value(lua_State *L, ls_tcp *tcp, int index)
{
    int err = LS_OK;
    switch (lua_type(L, index)) {
    case LUA_TTABLE:
        ls_copy_open(L, index);
        for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, index); n <= count && err == LS_OK; n++) {
            lua_rawgeti(L, index, n);
            err = queue_value(L, tcp, lua_gettop(L));
            lua_pop(L, 1);
        }
        return err;
    case LUA_TUSERDATA: return ls_sock_queue_buffer(tcp, ls_buffer_test(L, index));
    case LUA_TNUMBER: return queue_number(L, tcp, index);
    default: return ls_sock_queue_string(L, tcp, index);
    }
}

/* Raise if a task changes the connection to TLS: whether bytes of another task are encrypted would be left to
 * chance. */
static void check_not_starting(lua_State *L, const ls_tcp *tcp)
{
    if (tcp->starttls != NULL) luaL_error(L, "another task waits in sock:starttls of this socket");
}

/* The reason why a sock without connection cannot send. */
static int push_closed(lua_State *L, const ls_tcp_object *o)
{
    return ls_push_failure(L, o->lost < 0 ? o->lost : LS_ECLOSED);
}

/* The result of a send: the queue was sent, or is short enough to continue. */
static int send_result(lua_State *L, int status, lua_KContext context)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    if (o->tcp == NULL) return push_closed(L, o);
    return ls_push_result(L, o->tcp->send_end);
}

/* Wait until the queue was sent. */
static int wait_until_sent(lua_State *L, ls_tcp *tcp)
{
    ls_list_push(&tcp->senders, &tcp->state->current->wait_node);
    return ls_task_yield(L, LS_WAIT_WRITE, 0, send_result);
}

/* sock:send(...: Data) -> true | nil, message, code
 * Queues strings, numbers, buffers and tables of them, which are sent when the task waits or ends. Waits while more
 * than write_ahead bytes are queued. */
int ls_sock_send(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    const int last = lua_gettop(L);
    unsigned strings;
    do {
        strings = 0;
        for (int n = 2; n <= last; n++) strings += check_value(L, n, n, 0);
    } while (strings > 0 && ls_strings_reserve(L, strings)); /* a finalizer may change a table of the arguments */
    ls_tcp *tcp = o->tcp;
    if (tcp == NULL || tcp->send_end != LS_OK) ls_task_sent_late(L);
    if (tcp == NULL) return push_closed(L, o);
    if (tcp->send_end != LS_OK) return ls_push_failure(L, tcp->send_end);
    if (tcp->shut) return luaL_error(L, "sock:send after sock:shutdown");
    check_not_starting(L, tcp);

    ls_thread_ctx *ctx = tcp->state->ctx;
    for (int n = 2; n <= last; n++) {
        if (queue_value(L, tcp, n) == LS_OK) continue;
        tcp->send_end = LS_ENOMEM; /* a part of the data may be queued, so nothing may follow it */
        break;
    }
    const size_t queued = ls_stream_queued(ls_tcp_stream(tcp));
    if (queued < FLUSH_BYTES) {
        if (queued > 0 && !ls_stream_sending(ls_tcp_stream(tcp))) ls_tcp_flush_later(tcp);
        return send_result(L, LUA_OK, 0);
    }
    const int err = ls_tcp_flush(ctx, tcp);
    if (err == LS_PENDING && ls_stream_queued(ls_tcp_stream(tcp)) > tcp->config->write_bytes_high &&
        ls_task_can_wait(L))
        return wait_until_sent(L, tcp);
    return send_result(L, LUA_OK, 0);
}

/* sock:flush() -> true | nil, message, code
 * Sends the queue now; returns when the system has accepted all of it. */
int ls_sock_flush(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    if (o->tcp != NULL) check_not_starting(L, o->tcp);
    if (o->tcp != NULL && ls_tcp_flush(o->tcp->state->ctx, o->tcp) == LS_PENDING) {
        ls_task_may_wait(L);
        return wait_until_sent(L, o->tcp);
    }
    return send_result(L, LUA_OK, 0);
}

/* sock:shutdown([direction: "send"]) -> true | nil, message, code
 * Ends the sending direction after the queue was sent; receiving continues. */
int ls_sock_shutdown_lua(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *how = luaL_optstring(L, 2, "send");
    luaL_argcheck(L, strcmp(how, "send") == 0, 2, "direction must be \"send\"; sock:close() closes both directions");
    ls_tcp *tcp = o->tcp;
    if (tcp == NULL) return push_closed(L, o);
    if (tcp->send_end != LS_OK) return ls_push_failure(L, tcp->send_end);
    check_not_starting(L, tcp);
    if (!tcp->shut) {
        tcp->shut = true;
        const int lost = ls_tcp_topics_finish(tcp->state->ctx, tcp);
        if (lost < 0) {
            ls_tcp_lose(tcp->state->ctx, tcp, lost);
            return ls_push_failure(L, lost);
        }
        const int flushed = ls_tcp_flush(tcp->state->ctx, tcp);
        const int err = flushed == LS_DONE ? ls_stream_shutdown(tcp->state->ctx, ls_tcp_stream(tcp)) : flushed;
        return ls_push_result(L, err);
    }
    return ls_push_result(L, LS_OK);
}
