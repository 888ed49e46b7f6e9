/* sock_object.c - the object `sock`: its metatable, its limits, close and its fields. sock_receive.c and
 * sock_send.c have the two directions, sock_starttls.c the change to TLS. */
#include <string.h>

#include "base/err.h"
#include "script/bind/sock/sock_object.h"
#include "script/bind/tls/tls_object.h"
#include "script/core/lua/udata.h"

ls_tcp_object *ls_tcp_check(lua_State *L)
{
    return ls_udata_check(L, 1, &ls_sock_type, sizeof(ls_tcp_object), "sock");
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

#define OPTION(field) LS_OPTION(ls_tcp_config, field)
const ls_option ls_tcp_options[] = {OPTION(receive_ms_max),  OPTION(send_ms_max),    OPTION(write_bytes_high),
                                    OPTION(queue_bytes_max), OPTION(line_bytes_max), OPTION(message_bytes_max),
                                    OPTION(keepalive_s),     LS_OPTIONS_END};

/* ---- methods ---------------------------------------------------------------------------------------------------- */

/* The number of seconds at `index` as milliseconds in *ms. nil leaves *ms; false and 0 mean no limit. */
static void timeout_arg(lua_State *L, int index, uint32_t *ms)
{
    if (lua_isnoneornil(L, index)) return;
    if (lua_isboolean(L, index) && !lua_toboolean(L, index)) {
        *ms = 0;
        return;
    }
    const double seconds = ls_check_seconds(L, index);
    *ms = seconds == 0 ? 0 : seconds > 4e6 ? 4000000000u : seconds < 0.001 ? 1 : (uint32_t)(seconds * 1e3);
}

/* sock:settimeouts([connect: number|false [, send: number|false [, read: number|false]]])
 * Changes the time limits, in seconds. nil leaves one as it is, false removes it. `connect` has no effect: the sock is
 * connected. */
static int sock_settimeouts(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    uint32_t connect = 0, send = o->tcp != NULL ? o->tcp->send_ms_max : 0,
             receive = o->tcp != NULL ? o->tcp->receive_ms_max : 0;
    timeout_arg(L, 2, &connect);
    timeout_arg(L, 3, &send);
    timeout_arg(L, 4, &receive);
    if (o->tcp == NULL) return 0;
    ls_tcp_set_timeouts(o->tcp, receive, send);
    return 0;
}

/* sock:setkeepalive([seconds: integer|boolean]) -> true | nil, message, code
 * Turns the probes of TCP keep-alive on, after 60 seconds unless given, or off (false). */
static int sock_setkeepalive(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    const bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
    double seconds = LS_TCP_KEEPALIVE_S;
    if (lua_type(L, 2) == LUA_TNUMBER)
        seconds = luaL_checknumber(L, 2);
    else if (!lua_isnoneornil(L, 2) && !lua_isboolean(L, 2))
        seconds = 0;
    luaL_argcheck(L, seconds >= 1 && seconds <= 32767, 2, "seconds must be from 1 to 32767, or false");
    if (o->tcp == NULL) return ls_push_failure(L, LS_ECLOSED);
    return ls_push_result(L, ls_stream_keepalive(ls_tcp_stream(o->tcp), on, (uint32_t)seconds));
}

/* sock:close() -> true
 * Closes the connection after the queued bytes were sent. A second call has no effect. */
static int sock_close(lua_State *L)
{
    ls_tcp_object *o = ls_tcp_check(L);
    ls_state *state = ls_state_of(L);
    o->lost = LS_OK;
    if (o->tcp != NULL && state->port != NULL) ls_tcp_finish(state->ctx, o->tcp);
    return ls_push_boolean(L, true);
}

/* sock:abort()
 * Closes the connection at once and drops the queued bytes. */
static int sock_abort(lua_State *L)
{
    ls_tcp_object *o = ls_tcp_check(L);
    o->lost = LS_OK;
    if (o->tcp != NULL) ls_tcp_abort(ls_state_of(L)->ctx, o->tcp);
    return 0;
}

/* sock is a Sock: a TCP or Unix connection.
 * sock.ip: string? - address of the peer; nil when closed
 * sock.port: integer? - port of the peer; nil when closed, and of a Unix socket
 * sock.remote: string? - both as text
 * sock.local_ip: string? - address of this side; nil when closed
 * sock.local_port: integer? - port of this side
 * sock.local_addr: string? - both as text
 * sock.tls: TlsInfo? - what TLS has negotiated
 * sock.queued: integer - bytes that the system has not accepted yet
 * sock.ended: Code? - why the last loop of lines or chunks ended */
static int sock_index(lua_State *L)
{
    ls_addr addr;
    if (ls_push_method(L, "a sock")) return 1;
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *name = lua_tostring(L, 2);
    if (strcmp(name, "queued") == 0) { /* bytes that the script sent and the system has not accepted yet */
        return ls_push_integer(L, o->tcp != NULL ? (lua_Integer)ls_stream_queued(ls_tcp_stream(o->tcp)) : 0);
    }
    if (strcmp(name, "ended") == 0) {
        if (o->ended == LS_OK) return 0;
        return ls_push_text(L, ls_err_name(o->ended));
    }
    if (o->tcp == NULL) return 0;
    if (strcmp(name, "tls") == 0) {
        ls_push_tls(L, ls_tcp_stream(o->tcp));
        return 1;
    }
    if (strncmp(name, "local_", 6) == 0)
        return ls_stream_local(ls_tcp_stream(o->tcp), &addr) < 0 ? 0 : ls_push_addr_field(L, name, &addr);
    ls_stream_peer(ls_tcp_stream(o->tcp), &addr);
    return ls_push_addr_field(L, name, &addr);
}

static int sock_tostring(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    char text[LS_ADDR_TEXT_BYTES];
    if (o->tcp == NULL) return ls_push_text(L, "sock (closed)");
    lua_pushfstring(L, "sock (%s)", ls_stream_peer_text(ls_tcp_stream(o->tcp), text));
    return 1;
}

static const luaL_Reg methods[] = {{"sock:receive(what)", ls_sock_receive},
                                   {"sock:receiveany(max)", ls_sock_receiveany},
                                   {"sock:receiveuntil(pattern, options)", ls_sock_receiveuntil},
                                   {"sock:lines()", ls_sock_lines},
                                   {"sock:chunks()", ls_sock_chunks},
                                   {"send", ls_sock_send},
                                   {"sock:flush()", ls_sock_flush},
                                   {"sock:shutdown(direction)", ls_sock_shutdown_lua},
                                   {"sock:starttls(options)", ls_sock_starttls},
                                   {"sock:settimeouts(connect, send, read)", sock_settimeouts},
                                   {"sock:setkeepalive(seconds)", sock_setkeepalive},
                                   {"sock:subscribe(topic, options)", ls_sock_subscribe},
                                   {"sock:unsubscribe(topic)", ls_sock_unsubscribe},
                                   {"sock:close()", sock_close},
                                   {"sock:abort()", sock_abort},
                                   {NULL, NULL}};
static const char *const fields[] = {"ip",         "port", "remote", "local_ip", "local_port",
                                     "local_addr", "tls",  "queued", "ended",    NULL};
static const luaL_Reg meta[] = {
    {"__gc", sock_close}, {"__close", sock_close}, {"__tostring", sock_tostring}, {NULL, NULL}};
const ls_object_type ls_sock_type = {
    .name = "sock", .methods = methods, .meta = meta, .fields = fields, .index = sock_index};
