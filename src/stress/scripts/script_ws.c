/* script_ws.c - vu:ws in scenarios: the connection of a virtual user becomes a WebSocket.
 *
 *     vu:ws([path [, options]])   the handshake; returns ws. Again on the same connection: the same ws
 *     ws:send(data [, kind])      a message, "text" or "binary"; it is sent when the coroutine yields or ends
 *     ws:receive()                the next message and its kind; nil, message, code at the end
 *     ws:messages()               an iterator of these
 *     ws:close([code [, reason]]) a Close frame; waits for the server's. The next round begins on a new connection
 *     ws.protocol, ws.code        the subprotocol; the code of the server's Close frame
 *
 * Received messages are in `in`: each follows its length, a uint32_t, and a byte, 1 for text. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "script/core/lua/push.h"
#include "stress/load/ws_frames.h"
#include "stress/scripts/scenario.h"
#include "stress/scripts/script_internal.h"

enum { MESSAGE_HEAD = sizeof(uint32_t) + 1 };

static const char ws_meta[] = "luaserve.stress.ws";

/* ---- vu:ws ------------------------------------------------------------------------------------------------------ */

static void push_ws(lua_State *L, struct ls_stress_scenario *sc)
{
    if (sc->ws_ref == LUA_NOREF) {
        *(struct ls_stress_scenario **)lua_newuserdatauv(L, sizeof(void *), 1) = sc; /* its value: the subprotocol */
        luaL_setmetatable(L, ws_meta);
        sc->ws_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, sc->ws_ref);
}

static int continue_upgrade(lua_State *L, int status, lua_KContext context)
{
    struct ls_stress_scenario *sc = (struct ls_stress_scenario *)context;
    if (sc->socket == LS_STRESS_SOCKET_OPEN) {
        push_ws(L, sc);
        lua_pushstring(L, sc->u->ws->protocol); /* nil for NULL */
        (void)lua_setiuservalue(L, -2, 1);
        return 1;
    }
    if (sc->socket == LS_STRESS_SOCKET_FAILED)
        return ls_stress_scenario_failure(L, "the server did not accept the handshake of WebSocket", "EPROTO");
    if (sc->peer_closed) return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    return lua_yieldk(L, 0, context, continue_upgrade);
}

/* open(vu, path, fields, protocols): vu:ws with the checked arguments of lua/luaserve/stress/vu_ws.lua, or nil for
 * those of the plan. fields: header lines; protocols: a list of strings. */
static int vu_ws_open(lua_State *L)
{
    struct ls_stress_scenario *sc = ls_stress_scenario_running(L, "vu:ws");
    ls_ws_request request = sc->u->worker->plan->ws_request;
    unsigned count = 0;
    char *text;
    size_t len;
    if (sc->closed || (sc->peer_closed && sc->socket != LS_STRESS_SOCKET_OPEN))
        return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    if (sc->socket == LS_STRESS_SOCKET_OPEN) {
        push_ws(L, sc);
        return 1;
    }
    if (sc->in.len > sc->in_at)
        return luaL_error(L, "vu:ws: the connection has bytes that sock:receive has not taken");
    lua_settop(L, 4);
    if (!lua_isnil(L, 2)) request.target = lua_tostring(L, 2);
    if (!lua_isnil(L, 3)) request.fields = lua_tostring(L, 3);
    luaL_checkstack(L, LS_STRESS_PROTOCOLS_MAX + LUA_MINSTACK, NULL); /* the names stay here until the response */
    const char **names = lua_newuserdatauv(L, LS_STRESS_PROTOCOLS_MAX * sizeof *names, 0);
    while (lua_istable(L, 4) && count < LS_STRESS_PROTOCOLS_MAX &&
           lua_rawgeti(L, 4, (lua_Integer)count + 1) == LUA_TSTRING)
        names[count++] = lua_tostring(L, -1);
    if (count > 0) request.protocols = (ls_ws_names){names, count};
    sc->u->step = LS_STRESS_STEP_UPGRADE;
    if (ls_stress_ws_request(sc->u, &request, &text, &len) < 0) return luaL_error(L, "not enough memory");
    const bool added = ls_stress_scenario_add(&sc->out, text, len);
    free(text);
    if (!added) return luaL_error(L, "not enough memory");
    sc->socket = LS_STRESS_SOCKET_OPENING;
    sc->want = LS_STRESS_WANT_UPGRADE;
    return lua_yieldk(L, 0, (lua_KContext)sc, continue_upgrade);
}

/* ---- ws --------------------------------------------------------------------------------------------------------- */

static struct ls_stress_scenario *check_ws(lua_State *L)
{
    struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)luaL_checkudata(L, 1, ws_meta);
    if (!sc->running || sc->co != L) luaL_error(L, "a ws can only be used inside its own scenario");
    return sc;
}

static bool is_over(const struct ls_stress_scenario *sc)
{
    return sc->peer_closed || sc->closed || sc->socket != LS_STRESS_SOCKET_OPEN;
}

/* Append a frame to the output of the coroutine: a message, or Close. Raises. */
static void put_frame(lua_State *L, struct ls_stress_scenario *sc, enum ls_ws_opcode opcode, const char *data,
                      size_t len)
{
    char *frame = malloc(ls_stress_ws_frame_bytes(len));
    const size_t n = frame == NULL           ? 0
                     : opcode == LS_WS_CLOSE ? ls_stress_ws_frame(opcode, false, data, len, frame)
                                             : ls_stress_ws_message(sc->u, opcode, data, len, frame);
    const bool added = n > 0 && ls_stress_scenario_add(&sc->out, frame, n);
    free(frame);
    if (!added) luaL_error(L, "unsent data exceeds 64 MiB");
}

static int ws_send(lua_State *L)
{
    static const char *const kinds[] = {"text", "binary", NULL};
    struct ls_stress_scenario *sc = check_ws(L);
    size_t len;
    const char *data = luaL_checklstring(L, 2, &len);
    const bool text = luaL_checkoption(L, 3, "text", kinds) == 0;
    luaL_argcheck(L, !text || ls_utf8_valid(data, len), 2, "text must be UTF-8; send other bytes as \"binary\"");
    if (is_over(sc)) return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    put_frame(L, sc, text ? LS_WS_TEXT : LS_WS_BINARY, data, len);
    sc->asked = true;
    return ls_push_boolean(L, 1);
}

static int continue_message(lua_State *L, int status, lua_KContext context)
{
    struct ls_stress_scenario *sc = (struct ls_stress_scenario *)context;
    if (sc->in.len > sc->in_at) {
        const char *in = sc->in.at + sc->in_at;
        uint32_t len;
        memcpy(&len, in, sizeof len);
        lua_pushlstring(L, in + MESSAGE_HEAD, len);
        lua_pushstring(L, in[sizeof len] != 0 ? "text" : "binary");
        ls_stress_scenario_consume(sc, MESSAGE_HEAD + len);
        sc->asked = false;
        return 2;
    }
    if (is_over(sc)) return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    return lua_yieldk(L, 0, context, continue_message);
}

static int ws_receive(lua_State *L)
{
    struct ls_stress_scenario *sc = check_ws(L);
    sc->want = LS_STRESS_WANT_MESSAGE;
    return continue_message(L, LUA_OK, (lua_KContext)sc);
}

static int ws_messages(lua_State *L)
{
    (void)check_ws(L);
    lua_pushcfunction(L, ws_receive);
    lua_pushvalue(L, 1);
    return 2;
}

static int continue_close(lua_State *L, int status, lua_KContext context)
{
    struct ls_stress_scenario *sc = (struct ls_stress_scenario *)context;
    if (!sc->peer_closed) return lua_yieldk(L, 0, context, continue_close);
    return ls_push_boolean(L, 1);
}

static int ws_close(lua_State *L)
{
    struct ls_stress_scenario *sc = check_ws(L);
    size_t len;
    const lua_Integer code = luaL_optinteger(L, 2, LS_WS_NORMAL);
    const char *reason = luaL_optlstring(L, 3, "", &len);
    char payload[LS_WS_CONTROL_BYTES_MAX];
    luaL_argcheck(L, code > 0 && code <= LS_STRESS_CODE_MAX && ls_ws_code_valid((unsigned)code), 2,
                  "a code is 1000 to 1003, 1007 to 1014, or 3000 to 4999");
    luaL_argcheck(L, len <= LS_WS_REASON_BYTES_MAX && ls_utf8_valid(reason, len), 3,
                  "a reason is UTF-8 of at most 123 bytes");
    if (is_over(sc)) return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    payload[0] = (char)(code >> 8);
    payload[1] = (char)code;
    memcpy(payload + 2, reason, len);
    put_frame(L, sc, LS_WS_CLOSE, payload, 2 + len);
    sc->u->ws->close_sent = true;
    sc->closed = true;
    sc->want = LS_STRESS_WANT_END;
    return lua_yieldk(L, 0, (lua_KContext)sc, continue_close);
}

static int ws_index(lua_State *L)
{
    const struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)luaL_checkudata(L, 1, ws_meta);
    const char *name = luaL_checkstring(L, 2);
    if (strcmp(name, "protocol") == 0) {
        (void)lua_getiuservalue(L, 1, 1);
    } else if (strcmp(name, "code") == 0) {
        const unsigned code = sc->u->ws->code;
        if (code == 0)
            lua_pushnil(L);
        else
            lua_pushinteger(L, code);
    } else {
        lua_getfield(L, lua_upvalueindex(1), name);
    }
    return 1;
}

void ls_stress_script_ws_define(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"send", ws_send}, {"receive", ws_receive}, {"messages", ws_messages}, {"close", ws_close}, {NULL, NULL}};
    const ls_stress_plan *plan = ls_stress_script_of(L)->plan;
    lua_getfield(L, LUA_REGISTRYINDEX, ls_stress_script_vu_ws);
    lua_pushcfunction(L, vu_ws_open);
    lua_pushstring(L, plan->target);
    lua_pushstring(L, plan->ws_request.fields);
    lua_call(L, 3, 1);
    lua_setfield(L, -2, "ws");
    luaL_newmetatable(L, ws_meta);
    luaL_newlib(L, methods);
    lua_pushcclosure(L, ws_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
