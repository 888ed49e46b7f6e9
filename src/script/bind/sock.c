/* sock.c - the object `sock`: its metatable, its limits, close and its fields. sock_receive.c and
 * sock_send.c have the two directions, sock_starttls.c the change to TLS. */
#include <string.h>

#include "base/err.h"
#include "net/sock.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/option.h"
#include "script/bind/sock.h"
#include "script/core/udata.h"

ls_tcp_object *ls_tcp_check(lua_State *L)
{
    return ls_udata_check(L, 1, &ls_tcp_tag, sizeof(ls_tcp_object), "sock");
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

const ls_tcp_config ls_tcp_config_default = {.receive_ms_max = 60000,
                                             .send_ms_max = 60000,
                                             .write_bytes_high = 256 * 1024,
                                             .queue_bytes_max = 1024 * 1024,
                                             .line_bytes_max = 64 * 1024,
                                             .message_bytes_max = 8 * 1024 * 1024,
                                             .keepalive_s = 0};

void ls_tcp_options(lua_State *L, int index, ls_tcp_config *out)
{
    ls_option_u32(L, index, "receive_ms_max", UINT32_MAX, &out->receive_ms_max);
    ls_option_u32(L, index, "send_ms_max", UINT32_MAX, &out->send_ms_max);
    ls_option_u32(L, index, "write_bytes_high", UINT32_MAX, &out->write_bytes_high);
    ls_option_u32(L, index, "queue_bytes_max", UINT32_MAX, &out->queue_bytes_max);
    ls_option_u32(L, index, "line_bytes_max", UINT32_MAX, &out->line_bytes_max);
    ls_option_u32(L, index, "keepalive_s", UINT32_MAX, &out->keepalive_s);
    (void)ls_option_number(L, index, "message_bytes_max", UINT64_MAX, &out->message_bytes_max);
}

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

/* sock:settimeouts(connect, send, read), in seconds. nil leaves a timeout as it is, false removes it. `connect` has no
 * effect: the sock is connected. */
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

/* sock:setkeepalive([seconds | false]) -> true | nil, message, code. TCP keepalive probes (SO_KEEPALIVE). */
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
    const int err = ls_stream_keepalive(ls_tcp_stream(o->tcp), on, (uint32_t)seconds);
    if (err < 0) return ls_push_failure(L, err);
    lua_pushboolean(L, 1);
    return 1;
}

/* sock:close() -> true. Queued data is sent before the connection closes. A second call has no effect. */
static int sock_close(lua_State *L)
{
    ls_tcp_object *o = ls_tcp_check(L);
    ls_state *state = ls_state_of(L);
    o->lost = LS_OK;
    if (o->tcp != NULL && state->port != NULL) ls_tcp_finish(state->ctx, o->tcp);
    lua_pushboolean(L, 1);
    return 1;
}

/* sock:abort(): closes at once and drops queued data. */
static int sock_abort(lua_State *L)
{
    ls_tcp_object *o = ls_tcp_check(L);
    o->lost = LS_OK;
    if (o->tcp != NULL) ls_tcp_abort(ls_state_of(L)->ctx, o->tcp);
    return 0;
}

static int push_addr(lua_State *L, const ls_addr *addr)
{
    char text[LS_ADDR_TEXT_BYTES];
    lua_pushstring(L, ls_addr_text(addr, text));
    return 1;
}

static int sock_index(lua_State *L)
{
    ls_addr addr;
    if (ls_push_method(L, "a sock")) return 1;
    const ls_tcp_object *o = ls_tcp_check(L);
    const char *name = lua_tostring(L, 2);
    if (strcmp(name, "queued") == 0) { /* bytes that the script sent and the system has not accepted yet */
        lua_pushinteger(L, o->tcp != NULL ? (lua_Integer)ls_stream_queued(ls_tcp_stream(o->tcp)) : 0);
        return 1;
    }
    if (o->tcp == NULL) return 0;
    if (strcmp(name, "remote") == 0) {
        ls_stream_peer(ls_tcp_stream(o->tcp), &addr);
        return push_addr(L, &addr);
    }
    if (strcmp(name, "tls") == 0) {
        ls_push_tls(L, ls_stream_filter(ls_tcp_stream(o->tcp)));
        return 1;
    }
    if (strcmp(name, "local_addr") == 0)
        return ls_stream_local(ls_tcp_stream(o->tcp), &addr) < 0 ? 0 : push_addr(L, &addr);
    if (o->tcp->ended == LS_OK) return 0;
    lua_pushstring(L, ls_err_name(o->tcp->ended)); /* ended */
    return 1;
}

static int sock_tostring(lua_State *L)
{
    const ls_tcp_object *o = ls_tcp_check(L);
    ls_addr addr;
    char text[LS_ADDR_TEXT_BYTES];
    if (o->tcp == NULL) {
        lua_pushliteral(L, "sock (closed)");
        return 1;
    }
    ls_stream_peer(ls_tcp_stream(o->tcp), &addr);
    lua_pushfstring(L, "sock (%s)", ls_addr_text(&addr, text));
    return 1;
}

void ls_sock_define(lua_State *L, int *ref)
{
    static const luaL_Reg methods[] = {{"receive", ls_sock_receive},
                                       {"receiveany", ls_sock_receiveany},
                                       {"receiveuntil", ls_sock_receiveuntil},
                                       {"lines", ls_sock_lines},
                                       {"chunks", ls_sock_chunks},
                                       {"send", ls_sock_send},
                                       {"flush", ls_sock_flush},
                                       {"shutdown", ls_sock_shutdown_lua},
                                       {"starttls", ls_sock_starttls},
                                       {"settimeouts", sock_settimeouts},
                                       {"setkeepalive", sock_setkeepalive},
                                       {"subscribe", ls_sock_subscribe},
                                       {"unsubscribe", ls_sock_unsubscribe},
                                       {"close", sock_close},
                                       {"abort", sock_abort},
                                       {NULL, NULL}};
    static const char *const fields[] = {"remote", "local_addr", "tls", "queued", "ended", NULL};
    static const luaL_Reg meta[] = {
        {"__gc", sock_close}, {"__close", sock_close}, {"__tostring", sock_tostring}, {NULL, NULL}};
    luaL_newlib(L, meta);
    luaL_newlib(L, methods);
    ls_set_members(L, fields, sock_index);
    ls_udata_define(L, "sock", ref);
}
