/* script_sock.c - sock, the connection of a scenario, and vu:sleep.
 *
 *     sock:send(...)           the data is sent when the coroutine yields or ends, in one send; on udp each call is a
 *                              datagram
 *     sock:receive(n)          n bytes; "*l": a line without its end; "*a": everything until the server closes; no
 *                              argument: the bytes received so far, at least one; on udp the next datagram
 *     sock:receiveany(max)     the bytes received so far, at most max (the rest of a datagram is dropped)
 *     sock:receiveuntil(text)  the bytes before the text; the text is dropped
 *     sock:close()             the next round begins on a new connection
 *     vu:sleep(seconds)
 *
 * A failed receive returns nil, message, code and the bytes received so far, as in a server's handlers. */
#include <stdlib.h>
#include <string.h>

#include "script/core/lua/push.h"
#include "stress/scripts/scenario.h"
#include "stress/scripts/script_internal.h"

static struct ls_stress_scenario *check_sock(lua_State *L)
{
    struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)luaL_checkudata(L, 1, ls_stress_sock_meta);
    if (!sc->running || sc->co != L) luaL_error(L, "a sock can only be used inside its own scenario");
    if (sc->socket != LS_STRESS_SOCKET_NONE) luaL_error(L, "the connection is a WebSocket: use what vu:ws returned");
    return sc;
}

/* Push the next datagram, truncated to `want_bytes` if the caller gave a limit. */
static bool push_datagram(lua_State *L, struct ls_stress_scenario *sc)
{
    uint32_t size;
    if (sc->in.len - sc->in_at < sizeof size) return false;
    const char *in = sc->in.at + sc->in_at;
    memcpy(&size, in, sizeof size);
    const bool limited = sc->want == LS_STRESS_WANT_BYTES || sc->want == LS_STRESS_WANT_ANY;
    lua_pushlstring(L, in + sizeof size, limited && sc->want_bytes < size ? sc->want_bytes : size);
    ls_stress_scenario_consume(sc, sizeof size + size);
    sc->first_receive = false;
    return true;
}

static int continue_receive(lua_State *L, int status, lua_KContext context)
{
    struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)lua_touserdata(L, 1);
    size_t len, used;
    if (sc->u->worker->plan->kind == LS_STRESS_TARGET_UDP) {
        if (push_datagram(L, sc)) return 1;
    } else if (ls_stress_scenario_has_input(sc, &len, &used)) {
        lua_pushlstring(L, sc->in.at != NULL ? sc->in.at + sc->in_at : "", len);
        ls_stress_scenario_consume(sc, used);
        sc->first_receive = false;
        return 1;
    }
    if (!sc->peer_closed && !sc->closed) return lua_yieldk(L, 0, 0, continue_receive);
    sc->unreceived |= sc->first_receive && !sc->closed;
    sc->first_receive = false;
    (void)ls_stress_scenario_failure(L, "closed", "ECLOSED");
    lua_pushlstring(L, sc->in.at != NULL ? sc->in.at + sc->in_at : "", sc->in.len - sc->in_at);
    ls_stress_scenario_consume(sc, sc->in.len - sc->in_at);
    return 4;
}

static int sock_receive(lua_State *L)
{
    struct ls_stress_scenario *sc = check_sock(L);
    if (lua_isnoneornil(L, 2)) {
        sc->want = LS_STRESS_WANT_ANY;
        sc->want_bytes = SIZE_MAX;
    } else if (lua_type(L, 2) == LUA_TNUMBER) {
        const lua_Integer n = luaL_checkinteger(L, 2);
        luaL_argcheck(L, n >= 0 && n <= LS_STRESS_IN_BYTES_MAX, 2, "number of bytes out of range (0 to 64 MiB)");
        sc->want = LS_STRESS_WANT_BYTES;
        sc->want_bytes = (size_t)n;
    } else {
        static const char *const kinds[] = {"*l", "*a", "l", "a", NULL};
        sc->want = luaL_checkoption(L, 2, NULL, kinds) % 2 == 0 ? LS_STRESS_WANT_LINE : LS_STRESS_WANT_ALL;
    }
    return continue_receive(L, LUA_OK, 0);
}

static int sock_receiveany(lua_State *L)
{
    struct ls_stress_scenario *sc = check_sock(L);
    const lua_Integer most = luaL_optinteger(L, 2, LS_STRESS_IN_BYTES_MAX);
    luaL_argcheck(L, most > 0, 2, "number of bytes must be 1 or more");
    sc->want = LS_STRESS_WANT_ANY;
    sc->want_bytes = (size_t)most;
    return continue_receive(L, LUA_OK, 0);
}

static int sock_receiveuntil(lua_State *L)
{
    struct ls_stress_scenario *sc = check_sock(L);
    size_t len;
    const char *text = luaL_checklstring(L, 2, &len);
    luaL_argcheck(L, len > 0 && len <= LS_STRESS_UNTIL_BYTES_MAX, 2, "text must be 1 to 64 bytes long");
    memcpy(sc->until, text, len);
    sc->want = LS_STRESS_WANT_UNTIL;
    sc->want_bytes = len;
    return continue_receive(L, LUA_OK, 0);
}

static int sock_send(lua_State *L)
{
    struct ls_stress_scenario *sc = check_sock(L);
    const bool datagram = sc->u->worker->plan->kind == LS_STRESS_TARGET_UDP;
    const size_t before = sc->out.len;
    const int count = lua_gettop(L);
    if (sc->peer_closed || sc->closed) return ls_stress_scenario_failure(L, "closed", "ECLOSED");
    for (int i = 2; i <= count; i++) luaL_checkstring(L, i);
    if (datagram) lua_concat(L, count - 1), lua_settop(L, 2);
    for (int i = 2; i <= lua_gettop(L); i++) {
        size_t len;
        const char *text = lua_tolstring(L, i, &len);
        if (!(datagram ? ls_stress_scenario_add_datagram(&sc->out, text, len)
                       : ls_stress_scenario_add(&sc->out, text, len))) {
            sc->out.len = before; /* all or nothing: a script may catch the error and continue */
            return luaL_error(L, "unsent data exceeds 64 MiB");
        }
    }
    return ls_push_boolean(L, 1);
}

static int sock_close(lua_State *L)
{
    check_sock(L)->closed = true;
    return 0;
}

static void on_sleep_timer(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_timer, timer.op)->u;
    u->timer_pending = false;
    if (u->state == LS_STRESS_VU_OPEN)
        ls_stress_scenario_resume(u->scenario, 0);
    else
        ls_stress_vu_finish_close(u);
}

static int vu_sleep(lua_State *L)
{
    const lua_Number seconds = luaL_checknumber(L, 2);
    struct ls_stress_scenario *sc = ls_stress_scenario_running(L, "vu:sleep");
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 2, "seconds must be 0 or more");
    ls_stress_vu *u = sc->u;
    if (u->timer == NULL && (u->timer = calloc(1, sizeof *u->timer)) == NULL)
        return luaL_error(L, "not enough memory");
    u->timer->timer.op.done = on_sleep_timer;
    u->timer->u = u;
    u->worker->clock_stale = true;
    if (ls_timer_set(u->worker->port, &u->timer->timer, ls_stress_worker_now(u->worker) + (uint64_t)(seconds * 1e9)) <
        0)
        return luaL_error(L, "not enough memory");
    u->timer_pending = true;
    sc->want = LS_STRESS_WANT_TIME;
    return lua_yield(L, 0);
}

void ls_stress_script_sock_define(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"send", sock_send},   {"receive", sock_receive},           {"receiveany", sock_receiveany},
        {"close", sock_close}, {"receiveuntil", sock_receiveuntil}, {NULL, NULL}};
    ls_set_function(L, "sleep", vu_sleep);
    luaL_newmetatable(L, ls_stress_sock_meta);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}
