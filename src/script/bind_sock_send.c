/* bind_sock_send.c - the sending half of `sock`.
 *
 * Short strings are copied into the stream's block. Long strings are pinned: they are sent without a copy, and the
 * task waits until they are sent. Buffers share their blocks. The queue is sent with one gather send when the task
 * waits or ends, or when FLUSH_BYTES are queued. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "script/bind_aux.h"
#include "script/bind_sock.h"
#include "script/buffer.h"
#include "script/request.h"

enum {
    NESTED_MAX = 8,      /* levels of tables */
    PINNED_MAX = 64,     /* long strings inside tables that one send keeps on the stack; further ones are copied */
    FLUSH_BYTES = 32768, /* queued bytes that are sent at once */
};

typedef struct sending {
    ls_tcp *tcp;
    bool may_pin; /* the task can wait, so strings may be sent without a copy */
    bool pinned;
    int kept; /* strings pushed onto the stack to keep them alive */
} sending;

/* Raise for a value that cannot be sent, before anything is queued. From then on nothing may raise or allocate in Lua:
 * only the stack keeps a pinned string alive, and a finalizer may close the sock. Returns the number of strings inside
 * tables that queue_value may keep on the stack. */
static unsigned check_value(lua_State *L, int index, int arg, int depth)
{
    unsigned kept = 0;
    switch (lua_type(L, index)) {
    case LUA_TSTRING: return depth == 1 && lua_rawlen(L, index) >= LS_PIN_BYTES;
    case LUA_TNUMBER: return 0;
    case LUA_TTABLE:
        if (depth == NESTED_MAX) luaL_argerror(L, arg, "tables are nested too deeply");
        luaL_checkstack(L, 4, "tables are nested too deeply");
        for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, index); n <= count; n++) {
            lua_rawgeti(L, index, n);
            kept += check_value(L, lua_gettop(L), arg, depth + 1);
            lua_pop(L, 1);
        }
        return kept;
    default:
        if (ls_buffer_test(L, index) == NULL) luaL_typeerror(L, arg, "string, number, buffer or table of them");
        return 0;
    }
}

static int queue_slice(lua_State *L, const sending *s, const ls_slice *slice)
{
    (void)L;
    return ls_stream_push(s->tcp->state->ctx, ls_tcp_stream(s->tcp), slice);
}

static int queue_copy(const sending *s, const char *bytes, size_t len)
{
    while (len > 0) {
        const size_t run = len < LS_BLOCK_LARGE ? len : LS_BLOCK_LARGE;
        char *to = ls_stream_room(s->tcp->state->ctx, ls_tcp_stream(s->tcp), run);
        if (to == NULL) return LS_ENOMEM;
        memcpy(to, bytes, run);
        ls_stream_commit(ls_tcp_stream(s->tcp), run);
        bytes += run;
        len -= run;
    }
    return LS_OK;
}

static int queue_buffer(lua_State *L, const sending *s, const ls_buffer *buffer)
{
    for (unsigned n = 0; n < buffer->count; n++) {
        const ls_slice *from = &buffer->slices[n];
        ls_slice slice = {ls_block_hold(from->block), from->ptr, from->len};
        if (queue_slice(L, s, &slice) < 0) {
            ls_slice_drop(&slice);
            return LS_ENOMEM;
        }
    }
    return LS_OK;
}

/* Queue a number in the format of tostring(), without making a Lua string. */
static int queue_number(lua_State *L, const sending *s, int index)
{
    char text[64];
    int len;
    if (lua_isinteger(L, index)) {
        len = lua_integer2str(text, sizeof text, lua_tointeger(L, index));
    } else {
        len = lua_number2str(text, sizeof text - 2, lua_tonumber(L, index));
        if (text[strspn(text, "-0123456789")] == '\0') { /* it looks like an integer */
            memcpy(text + len, ".0", 2);
            len += 2;
        }
    }
    return queue_copy(s, text, (size_t)len);
}

static int queue_value(lua_State *L, sending *s, int index, int depth)
{
    size_t len;
    const char *bytes;
    int err = LS_OK;
    switch (lua_type(L, index)) {
    case LUA_TTABLE:
        for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, index); n <= count && err == LS_OK; n++) {
            const int kept = s->kept;
            lua_rawgeti(L, index, n);
            err = queue_value(L, s, lua_gettop(L), depth + 1);
            if (s->kept == kept) lua_pop(L, 1);
        }
        return err;
    case LUA_TUSERDATA: return queue_buffer(L, s, ls_buffer_test(L, index));
    case LUA_TNUMBER: return queue_number(L, s, index);
    default:
        bytes = lua_tolstring(L, index, &len);
        if (len < LS_PIN_BYTES || !s->may_pin || (depth > 0 && (s->kept == PINNED_MAX || depth > 1)))
            return queue_copy(s, bytes, len);
        if (depth > 0) s->kept++; /* it stays on the stack */
        s->pinned = true;
        return queue_slice(L, s, &(ls_slice){NULL, bytes, len});
    }
}

/* The result of a send: the queue was sent, or is short enough to go on. */
static int send_result(lua_State *L, int status, lua_KContext context)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    (void)status;
    (void)context;
    if (o->tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    if (o->tcp->send_end != LS_OK) return ls_push_failure(L, o->tcp->send_end);
    lua_pushboolean(L, 1);
    return 1;
}

/* Wait until the queue was sent. */
static int wait_until_sent(lua_State *L, ls_tcp *tcp)
{
    ls_list_push(&tcp->senders, &tcp->state->current->wait_node);
    return ls_task_suspend(L, 0, send_result);
}

/* sock:send(...) -> true | nil, message, code. Strings, numbers, buffers and tables of them. The data is sent when the
 * task waits or ends. Waits while more than write_bytes_high are queued, or a pinned string is not sent yet. */
int ls_sock_send(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    const int last = lua_gettop(L);
    unsigned kept = 0;
    for (int n = 2; n <= last; n++) kept += check_value(L, n, n, 0);
    if (kept > 0) /* only then: the stack never shrinks again */
        luaL_checkstack(L, (int)(kept < PINNED_MAX ? kept : PINNED_MAX) + NESTED_MAX + 4, "too much to send");
    ls_tcp *tcp = o->tcp;
    if (tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    if (tcp->send_end != LS_OK) return ls_push_failure(L, tcp->send_end);
    if (tcp->shut) return luaL_error(L, "sock:send after sock:shutdown");

    ls_thread_ctx *ctx = tcp->state->ctx;
    sending s = {tcp, ls_task_can_wait(L), false, 0};
    for (int n = 2; n <= last; n++) {
        if (queue_value(L, &s, n, 0) == LS_OK) continue;
        tcp->send_end = LS_ENOMEM; /* a part of the data may be queued, so nothing may follow it */
        break;
    }
    const size_t queued = ls_stream_queued(ls_tcp_stream(tcp));
    if (queued < FLUSH_BYTES && !s.pinned) {
        if (queued > 0 && !ls_stream_sending(ls_tcp_stream(tcp))) ls_tcp_flush_later(tcp);
        return send_result(L, LUA_OK, 0);
    }
    const int err = ls_tcp_flush(ctx, tcp);
    if (err == LS_PENDING &&
        (s.pinned || (ls_stream_queued(ls_tcp_stream(tcp)) > tcp->config->write_bytes_high && s.may_pin)))
        return wait_until_sent(L, tcp);
    return send_result(L, LUA_OK, 0);
}

/* sock:flush() -> true | nil, message, code. Sends the queue now; returns when the system has accepted all of it. */
int ls_sock_flush(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    if (o->tcp != NULL && ls_tcp_flush(o->tcp->state->ctx, o->tcp) == LS_PENDING) {
        ls_task_may_wait(L);
        return wait_until_sent(L, o->tcp);
    }
    return send_result(L, LUA_OK, 0);
}

/* sock:shutdown(["send"]) -> true | nil, message, code. Ends the sending direction after the queue was sent; receiving
 * goes on. */
int ls_sock_shutdown_lua(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *how = luaL_optstring(L, 2, "send");
    luaL_argcheck(L, strcmp(how, "send") == 0, 2, "direction must be \"send\"; sock:close() closes both directions");
    ls_tcp *tcp = o->tcp;
    if (tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    if (tcp->send_end != LS_OK) return ls_push_failure(L, tcp->send_end);
    if (!tcp->shut) {
        tcp->shut = true;
        const int flushed = ls_tcp_flush(tcp->state->ctx, tcp);
        const int err = flushed == LS_DONE ? ls_stream_shutdown(tcp->state->ctx, ls_tcp_stream(tcp)) : flushed;
        if (err < 0) return ls_push_failure(L, err);
    }
    lua_pushboolean(L, 1);
    return 1;
}
