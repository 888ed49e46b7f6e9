/* ws_object.c - the object `ws`: its methods and fields. */
#include <string.h>

#include "base/utf8.h"
#include "script/bind/http/respond.h"
#include "script/bind/tls/tls_object.h"
#include "script/bind/ws/ws.h"
#include "script/core/lua/udata.h"

ls_ws_object *ls_ws_check(lua_State *L)
{
    return ls_udata_check(L, 1, &ls_ws_type, sizeof(ls_ws_object), "WebSocket");
}

bool ls_ws_is_closed(const ls_ws_object *o)
{
    return o->ws == NULL || o->closed || ls_ws_closing(o->ws);
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

/* A connection that is lost has its end, and with it ws.code, soon: receive waits for that. */
static bool no_message_follows(const ls_ws_object *o)
{
    return o->ws == NULL || o->closed || o->ended;
}

/* Stack: the object, then what the method got. Whether the call ends with nil at the close: messages(). */
static int receive(lua_State *L, int status, lua_KContext iterates)
{
    ls_ws_object *o = lua_touserdata(L, 1);
    ls_task *task = o->state->current;
    int woken = LS_OK;
    if (status != LUA_OK) {
        woken = task->wake_result;
        if (o->receiver == task) o->receiver = NULL; /* a timeout, or the state closes */
    }
    ls_ws_object_resume(o->state->ctx, o);
    if (ls_ws_object_message(o) != NULL && ls_ws_object_take(L, o)) return 2;
    if (no_message_follows(o)) {
        ls_task_check_late(L, &o->late, "ws:receive", "for message in ws:messages() do");
        if (!iterates) return ls_push_failure(L, LS_ECLOSED);
        return ls_push_nil(L);
    }
    if (woken < 0) return ls_push_failure(L, woken);
    if (o->receiver != NULL) return luaL_error(L, "another task already receives from this WebSocket");
    ls_task_may_wait(L);
    o->receiver = task;
    return ls_task_yield(L, LS_WAIT_WRITE, iterates, receive);
}

static ls_ws_object *check_receive(lua_State *L, const char *name)
{
    ls_ws_object *o = ls_ws_check(L);
    if (o->route != NULL && o->route->serve_ref == LUA_NOREF)
        luaL_error(L, "ws:%s: the messages of this WebSocket go to the function 'message' of app:ws", name);
    if (o->receiver != NULL) luaL_error(L, "another task already receives from this WebSocket");
    return o;
}

/* ws:receive([timeout]) -> data: string, kind: "text"|"binary" | nil, message, code
 * Waits for a message. */
static int ws_receive(lua_State *L)
{
    ls_ws_object *o = check_receive(L, "receive");
    const double timeout = lua_isnoneornil(L, 2) ? -1 : ls_check_seconds(L, 2);
    lua_settop(L, 1);
    ls_ws_object_resume(o->state->ctx, o);
    if (timeout >= 0 && ls_ws_object_message(o) == NULL && !no_message_follows(o)) {
        ls_task_may_wait(L);
        ls_task_alarm(L, o->state->current, timeout);
    }
    return receive(L, LUA_OK, 0);
}

/* The iterator. Stack: the object, the message before. */
static int messages_next(lua_State *L)
{
    (void)check_receive(L, "messages");
    lua_settop(L, 1);
    return receive(L, LUA_OK, 1);
}

/* ws:messages() -> iterator: fun(): string?, "text"|"binary"
 * Iterates over the messages, with their kinds, until the connection has ended. */
static int ws_messages(lua_State *L)
{
    (void)check_receive(L, "messages");
    lua_pushcfunction(L, messages_next);
    lua_pushvalue(L, 1);
    return 2;
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

static enum ls_ws_opcode check_kind(lua_State *L, int index)
{
    static const char format[] = "ws:send: the kind is \"text\" or \"binary\", not %s%s%s; join values with `..`";
    if (lua_isnoneornil(L, index)) return LS_WS_TEXT;
    const char *kind = lua_tostring(L, index);
    if (kind == NULL) luaL_error(L, format, "a ", luaL_typename(L, index), "");
    if (strcmp(kind, "text") == 0) return LS_WS_TEXT;
    if (strcmp(kind, "binary") != 0) luaL_error(L, format, "\"", kind, "\"");
    return LS_WS_BINARY;
}

/* Get the slices of the string, number or buffer at `index`. Raises; may run a finalizer. */
static void get_data(lua_State *L, int index, ls_body *out)
{
    if (lua_type(L, index) == LUA_TTABLE)
        luaL_argerror(L, index, "string, number or buffer expected, got a table; send ls.json.encode(t)");
    const int err = ls_body_of(L, index, out);
    if (err == LS_ENOMEM) luaL_error(L, "not enough memory");
    if (err < 0) luaL_typeerror(L, index, "string, number or buffer");
}

static bool is_utf8(const ls_body *body)
{
    ls_utf8 state = {0};
    for (unsigned n = 0; n < body->count; n++)
        if (!ls_utf8_feed(&state, body->slices[n].ptr, body->slices[n].len)) return false;
    return ls_utf8_complete(&state);
}

/* The result of a send. `err`: that of the call; the connection may have ended since. */
static int send_result(lua_State *L, int status, lua_KContext err)
{
    const ls_ws_object *o = lua_touserdata(L, 1);
    if (err >= 0 && status != LUA_OK && ls_ws_is_closed(o) && o->ended) err = LS_ECLOSED;
    return ls_push_result(L, (int)err);
}

/* Whether a send waits: for room in the queue, or for ws.code, which a lost connection has soon. */
static bool send_waits(const ls_ws_object *o, int err)
{
    if (o->ws == NULL || o->ended) return false;
    return ls_ws_lost(o->ws) || (err == LS_PENDING && ls_ws_queued(o->ws) > o->config->write_bytes_high);
}

/* ws:send(data [, kind: "text"|"binary"]) -> true | nil, message, code
 * Sends a message; text, the default, must be UTF-8. Waits while more than write_ahead bytes are queued. */
static int ws_send(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    const enum ls_ws_opcode kind = check_kind(L, 3);
    ls_body body;
    ls_check_arguments(L, 3, "ws:send(data, kind)");
    get_data(L, 2, &body);
    if (kind == LS_WS_TEXT && !is_utf8(&body)) {
        ls_slices_drop(body.slices, body.count);
        ls_body_free(&body);
        return luaL_argerror(L, 2, "text must be UTF-8; send other bytes with ws:send(data, \"binary\")");
    }
    ls_thread_ctx *ctx = o->state->ctx;
    int err = LS_ECLOSED;
    if (ls_ws_is_closed(o)) {
        ls_slices_drop(body.slices, body.count);
        ls_task_sent_late(L);
    } else {
        err = ls_ws_send(ctx, o->ws, kind, body.slices, body.count);
    }
    ls_body_free(&body);
    if (err == LS_PENDING)
        (void)ls_ws_flush(ctx, o->ws);
    else if (err == LS_DONE)
        ls_ws_flush_later(o);
    if (send_waits(o, err) && ls_task_can_wait(L)) {
        ls_list_push(&o->senders, &o->state->current->wait_node);
        return ls_task_yield(L, LS_WAIT_WRITE, err, send_result);
    }
    return send_result(L, LUA_OK, err);
}

/* ws:ping([data: string]) -> true | nil, message, code
 * Sends a ping with at most 125 bytes. */
static int ws_ping(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    size_t len;
    const char *data = luaL_optlstring(L, 2, "", &len);
    if (len > LS_WS_CONTROL_BYTES_MAX)
        return luaL_error(L, "ws:ping: the data of a ping have at most %d bytes", LS_WS_CONTROL_BYTES_MAX);
    const int err = ls_ws_is_closed(o) ? LS_ECLOSED : ls_ws_control(o->state->ctx, o->ws, LS_WS_PING, data, len);
    if (err >= 0) ls_ws_flush_later(o);
    return ls_push_result(L, err);
}

/* ---- close ------------------------------------------------------------------------------------------------------ */

/* ws:close([code: integer [, reason: string]]) -> true
 * Begins the closing handshake, with the code 1000 unless given, and at most 123 bytes of UTF-8 as the reason.
 * Messages that were queued are sent before. A second call has no effect. */
static int ws_close(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    size_t len;
    const lua_Integer code = luaL_optinteger(L, 2, LS_WS_NORMAL);
    const char *reason = luaL_optlstring(L, 3, "", &len);
    if (code < 0 || code > 4999 || !ls_ws_code_valid((unsigned)code))
        return luaL_error(
            L, "ws:close: invalid code %I; a site uses 1000 (normal), 1001 to 1003, 1007 to 1014, or 3000 to 4999",
            code);
    if (len > LS_WS_REASON_BYTES_MAX)
        return luaL_error(L, "ws:close: the reason has at most %d bytes; got %I", LS_WS_REASON_BYTES_MAX,
                          (lua_Integer)len);
    if (!ls_utf8_valid(reason, len)) return luaL_error(L, "ws:close: the reason must be UTF-8");
    o->refused = o->task != NULL && o->task == o->state->current;
    ls_ws_object_deliver_waiting(o->state->ctx, o);
    ls_ws_object_close(o->state->ctx, o, (unsigned)code, reason, len);
    return ls_push_boolean(L, true);
}

/* The object of a client is garbage. That of a server is kept until its end. */
static int ws_gc(lua_State *L)
{
    ls_ws_object *o = ls_ws_check(L);
    if (o->ws != NULL && o->state->port != NULL) ls_ws_object_close(o->state->ctx, o, LS_WS_GOING_AWAY, NULL, 0);
    ls_ws_cancel(o);
    return 0;
}

static int ws_close_variable(lua_State *L) /* (object, error or nil) */
{
    lua_settop(L, 1);
    return ws_close(L);
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* ws is a WebSocket: a WebSocket, of a route or of ls.websocket.
 * ws.ip: string? - address of the peer; nil when the connection has ended
 * ws.port: integer? - port of the peer
 * ws.remote: string? - both as text
 * ws.local_ip: string? - address of this side; nil when the connection has ended
 * ws.local_port: integer? - port of this side
 * ws.local_addr: string? - both as text
 * ws.tls: TlsInfo? - what TLS has negotiated
 * ws.protocol: string? - the subprotocol
 * ws.closed: boolean - nothing more can be sent
 * ws.queued: integer - bytes that the system has not accepted yet
 * ws.code: integer? - of the Close frame of the peer, 1005 without one in it, 1006 without a frame; nil before the end
 * ws.reason: string? - of the Close frame of the peer; nil before the end
 * ws[string]: any - other names belong to the site: ws.user = "ada" */
static int push_field(lua_State *L, const ls_ws_object *o, const char *name)
{
    if (strcmp(name, "closed") == 0) {
        lua_pushboolean(L, ls_ws_is_closed(o));
    } else if (strcmp(name, "queued") == 0) {
        lua_pushinteger(L, o->ws != NULL ? (lua_Integer)ls_ws_queued(o->ws) : 0);
    } else if (strcmp(name, "protocol") == 0) {
        lua_getiuservalue(L, 1, LS_WS_PROTOCOL);
    } else if (strcmp(name, "code") == 0) {
        if (!o->ended) return 0;
        lua_pushinteger(L, o->code);
    } else if (strcmp(name, "reason") == 0) {
        if (!o->ended) return 0;
        lua_pushlstring(L, o->reason != NULL ? o->reason : "", o->reason_len);
    } else if (o->ws == NULL) {
        return 0;
    } else if (strcmp(name, "tls") == 0) {
        ls_push_tls(L, ls_ws_stream(o->ws));
    } else {
        ls_addr addr;
        ls_stream_peer(ls_ws_stream(o->ws), &addr);
        if (strncmp(name, "local_", 6) == 0 && ls_stream_local(ls_ws_stream(o->ws), &addr) < 0) return 0;
        return ls_push_addr_field(L, name, &addr);
    }
    return 1;
}

/* Upvalue: the methods and the names of the fields. Another name is a field of the site. */
static int ws_index(lua_State *L)
{
    lua_settop(L, 2);
    lua_pushvalue(L, 2);
    const int type = lua_rawget(L, lua_upvalueindex(1));
    if (type == LUA_TFUNCTION) return 1; /* which checks the object */
    const ls_ws_object *o = ls_ws_check(L);
    if (type != LUA_TNIL) return push_field(L, o, lua_tostring(L, 2));
    if (lua_getiuservalue(L, 1, LS_WS_OWN) != LUA_TTABLE) return 0;
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
    return 1;
}

/* ws.NAME = value keeps a value with the connection; the names of fields and methods are read-only. */
static int ws_newindex(lua_State *L)
{
    (void)ls_ws_check(L);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) return luaL_error(L, "ws.%s is read-only", lua_tostring(L, 2));
    lua_settop(L, 3);
    if (lua_getiuservalue(L, 1, LS_WS_OWN) != LUA_TTABLE) {
        lua_createtable(L, 0, 1);
        lua_pushvalue(L, -1);
        lua_setiuservalue(L, 1, LS_WS_OWN);
    }
    lua_insert(L, 2);
    lua_settop(L, 4);
    lua_rawset(L, 2);
    return 0;
}

static int ws_tostring(lua_State *L)
{
    const ls_ws_object *o = ls_ws_check(L);
    char text[LS_ADDR_TEXT_BYTES];
    if (ls_ws_is_closed(o)) return ls_push_text(L, "WebSocket (closed)");
    lua_pushfstring(L, "WebSocket (%s)", ls_stream_peer_text(ls_ws_stream(o->ws), text));
    return 1;
}

static const luaL_Reg methods[] = {{"send", ws_send},
                                   {"ws:receive(timeout)", ws_receive},
                                   {"ws:messages()", ws_messages},
                                   {"ws:ping(data)", ws_ping},
                                   {"ws:close(code, reason)", ws_close},
                                   {"ws:subscribe(topic, options)", ls_ws_subscribe},
                                   {"ws:unsubscribe(topic)", ls_ws_unsubscribe},
                                   {NULL, NULL}};
static const char *const fields[] = {"ip",       "port",   "remote", "local_ip", "local_port", "local_addr", "tls",
                                     "protocol", "closed", "queued", "code",     "reason",     NULL};
static const luaL_Reg meta[] = {
    {"__gc", ws_gc}, {"__close", ws_close_variable}, {"__tostring", ws_tostring}, {NULL, NULL}};
const ls_object_type ls_ws_type = {.name = "WebSocket",
                                   .methods = methods,
                                   .meta = meta,
                                   .fields = fields,
                                   .index = ws_index,
                                   .newindex = ws_newindex};
