/* scenario.c - the scenario protocol: a conversation as sequential Lua code. Each connection has one coroutine, which
 * yields in the methods of sock.
 *
 *     sock:send(...)           the data is sent when the coroutine yields or ends, in one send; on udp each call is a
 *                              datagram
 *     sock:receive(n)          n bytes; "*l": a line without its end; "*a": everything until the server closes; no
 *                              argument: the bytes received so far, at least one; on udp the next datagram
 *     sock:receiveany(max)     the bytes received so far, at most max (the rest of a datagram is dropped)
 *     sock:receiveuntil(text)  the bytes before the text; the text is dropped
 *     sock:close()             the next round begins on a new connection
 *     vu:sleep(seconds)
 *     vu:ws(...)               see script_ws.c
 *
 * A failed receive returns nil, message, code and the bytes received so far, as in a server's handlers. A round ends
 * when the function returns; it is one request of the reports. A round that raises an error counts as a script error,
 * and its connection is replaced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "stress/arrivals.h"
#include "stress/scenario.h"
#include "stress/script_internal.h"
#include "stress/ws.h"

static const char sock_meta[] = "luaserve.stress.sock";

bool ls_stress_scenario_add(ls_stress_bytes *b, const void *data, size_t len)
{
    if (len > b->room - b->len) {
        size_t room = b->room > 0 ? b->room : 512;
        while (room - b->len < len) room *= 2;
        char *at = room > LS_STRESS_IN_BYTES_MAX ? NULL : realloc(b->at, room);
        if (at == NULL) return false;
        b->at = at;
        b->room = room;
    }
    if (len > 0) memcpy(b->at + b->len, data, len); /* no memory yet if both are empty */
    b->len += len;
    return true;
}

static bool add_datagram(ls_stress_bytes *b, const void *data, size_t len)
{
    const uint32_t size = (uint32_t)len;
    return ls_stress_scenario_add(b, &size, sizeof size) && ls_stress_scenario_add(b, data, len);
}

/* ---- receiving, from Lua ---------------------------------------------------------------------------------------- */

static struct ls_stress_scenario *check_sock(lua_State *L)
{
    struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)luaL_checkudata(L, 1, sock_meta);
    if (!sc->running || sc->co != L) luaL_error(L, "a sock can only be used inside its own scenario");
    if (sc->socket != LS_STRESS_SOCKET_NONE) luaL_error(L, "the connection is a WebSocket: use what vu:ws returned");
    return sc;
}

static const char *find(const char *in, size_t len, const char *pattern, size_t pattern_len)
{
    for (const char *at = in; len >= pattern_len; at++, len--) {
        const char *next = memchr(at, pattern[0], len - pattern_len + 1);
        if (next == NULL) return NULL;
        len -= (size_t)(next - at);
        at = next;
        if (memcmp(at, pattern, pattern_len) == 0) return at;
    }
    return NULL;
}

/* True if the input satisfies the request: *len bytes are the result, *used bytes are consumed. */
static bool has_input(const struct ls_stress_scenario *sc, size_t *len, size_t *used)
{
    const char *in = sc->in.at + sc->in_at, *at;
    const size_t have = sc->in.len - sc->in_at;
    if (have == 0 && sc->want != LS_STRESS_WANT_ALL && !(sc->want == LS_STRESS_WANT_BYTES && sc->want_bytes == 0))
        return false;
    switch (sc->want) {
    case LS_STRESS_WANT_BYTES: *len = *used = sc->want_bytes; return have >= sc->want_bytes;
    case LS_STRESS_WANT_LINE:
        if ((at = memchr(in, '\n', have)) == NULL) return false;
        *used = (size_t)(at - in) + 1;
        *len = *used > 1 && at[-1] == '\r' ? *used - 2 : *used - 1;
        return true;
    case LS_STRESS_WANT_UNTIL:
        if ((at = find(in, have, sc->until, sc->want_bytes)) == NULL) return false;
        *len = (size_t)(at - in);
        *used = *len + sc->want_bytes;
        return true;
    case LS_STRESS_WANT_ALL: *len = *used = have; return sc->peer_closed;
    default:
        *len = *used = sc->want == LS_STRESS_WANT_ANY && have > sc->want_bytes ? sc->want_bytes : have;
        return true;
    }
}

void ls_stress_scenario_consume(struct ls_stress_scenario *sc, size_t used)
{
    sc->in_at += used;
    if (sc->in_at == sc->in.len) sc->in_at = sc->in.len = 0;
}

/* Push the next datagram, cut to `want_bytes` if the caller gave a limit. */
static bool push_datagram(lua_State *L, struct ls_stress_scenario *sc)
{
    uint32_t size;
    if (sc->in.len - sc->in_at < sizeof size) return false;
    const char *in = sc->in.at + sc->in_at;
    memcpy(&size, in, sizeof size);
    const bool limited = sc->want == LS_STRESS_WANT_BYTES || sc->want == LS_STRESS_WANT_ANY;
    lua_pushlstring(L, in + sizeof size, limited && sc->want_bytes < size ? sc->want_bytes : size);
    ls_stress_scenario_consume(sc, sizeof size + size);
    return true;
}

static int continue_receive(lua_State *L, int status, lua_KContext context)
{
    struct ls_stress_scenario *sc = *(struct ls_stress_scenario **)lua_touserdata(L, 1);
    size_t len, used;
    (void)status;
    (void)context;
    if (sc->u->worker->plan->target.kind == LS_STRESS_TARGET_UDP) {
        if (push_datagram(L, sc)) return 1;
    } else if (has_input(sc, &len, &used)) {
        lua_pushlstring(L, sc->in.at != NULL ? sc->in.at + sc->in_at : "", len);
        ls_stress_scenario_consume(sc, used);
        return 1;
    }
    if (!sc->peer_closed && !sc->closed) return lua_yieldk(L, 0, 0, continue_receive);
    lua_pushnil(L);
    lua_pushliteral(L, "closed");
    lua_pushliteral(L, "ECLOSED");
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
    const bool datagram = sc->u->worker->plan->target.kind == LS_STRESS_TARGET_UDP;
    const size_t before = sc->out.len;
    const int count = lua_gettop(L);
    if (sc->peer_closed || sc->closed) {
        lua_pushnil(L);
        lua_pushliteral(L, "closed");
        lua_pushliteral(L, "ECLOSED");
        return 3;
    }
    for (int i = 2; i <= count; i++) luaL_checkstring(L, i);
    if (datagram) lua_concat(L, count - 1), lua_settop(L, 2);
    for (int i = 2; i <= lua_gettop(L); i++) {
        size_t len;
        const char *text = lua_tolstring(L, i, &len);
        if (!(datagram ? add_datagram(&sc->out, text, len) : ls_stress_scenario_add(&sc->out, text, len))) {
            sc->out.len = before; /* all or nothing: a script may catch the error and continue */
            return luaL_error(L, "unsent data exceeds 64 MiB");
        }
    }
    lua_pushboolean(L, 1);
    return 1;
}

static int sock_close(lua_State *L)
{
    check_sock(L)->closed = true;
    return 0;
}

struct ls_stress_scenario *ls_stress_scenario_running(lua_State *L, const char *what)
{
    struct ls_stress_scenario *sc = ls_stress_script_of(L)->running;
    if (sc == NULL || sc->co != L) luaL_error(L, "%s can only be called inside a scenario", what);
    return sc;
}

static int sleep_done(lua_State *L, int status, lua_KContext context)
{
    (void)L;
    (void)status;
    (void)context;
    return 0;
}

static void on_sleep_timer(ls_thread_ctx *ctx, ls_op *op);

static int vu_sleep(lua_State *L)
{
    const lua_Number seconds = luaL_checknumber(L, 2);
    struct ls_stress_scenario *sc = ls_stress_scenario_running(L, "vu:sleep");
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 2, "seconds must be 0 or more");
    ls_stress_vu *u = sc->u;
    if (u->timer == NULL && (u->timer = calloc(1, sizeof *u->timer)) == NULL)
        return luaL_error(L, "not enough memory");
    u->timer->op.done = on_sleep_timer;
    u->timer->op.key = u;
    u->worker->clock_stale = true;
    if (ls_timer_set(u->worker->port, u->timer, ls_stress_worker_now(u->worker) + (uint64_t)(seconds * 1e9)) < 0)
        return luaL_error(L, "not enough memory");
    u->timer_pending = true;
    sc->want = LS_STRESS_WANT_TIME;
    return lua_yieldk(L, 0, 0, sleep_done);
}

void ls_stress_scenario_define(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"send", sock_send},   {"receive", sock_receive},           {"receiveany", sock_receiveany},
        {"close", sock_close}, {"receiveuntil", sock_receiveuntil}, {NULL, NULL}};
    lua_pushcfunction(L, vu_sleep);
    lua_setfield(L, -2, "sleep");
    ls_stress_script_ws_define(L);
    luaL_newmetatable(L, sock_meta);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* ---- the coroutine ---------------------------------------------------------------------------------------------- */

static void begin_next_round(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    struct ls_stress_scenario *sc = LS_CONTAINER(op, struct ls_stress_scenario, next_round);
    sc->round_posted = false;
    ls_stress_arrivals_vu_ready(sc->u->worker, sc->u);
}

/* Send the output of the coroutine. False: the connection failed, and this round with it. */
static bool flush(struct ls_stress_scenario *sc)
{
    ls_stress_vu *u = sc->u;
    size_t at = 0;
    while (at < sc->out.len && !u->tx_pending) {
        uint32_t size = (uint32_t)(sc->out.len - at);
        if (u->worker->plan->target.kind == LS_STRESS_TARGET_UDP) {
            memcpy(&size, sc->out.at + at, sizeof size);
            at += sizeof size;
        }
        if (!ls_stress_vu_put(u, sc->out.at + at, size)) return false;
        at += size;
        if (!ls_stress_vu_send(u)) return false;
    }
    if (at < sc->out.len) memmove(sc->out.at, sc->out.at + at, sc->out.len - at);
    sc->out.len -= at;
    return true;
}

/* The round has ended and its output is sent. */
static void finish(struct ls_stress_scenario *sc)
{
    ls_stress_vu *u = sc->u;
    ls_stress_worker *w = u->worker;
    const bool keep = w->plan->config.keepalive && !sc->peer_closed && !sc->closed;
    sc->round_done = false;
    w->now_ns = ls_stress_worker_now(w);
    ls_stress_vu_complete(u, 0);
    if (!keep) {
        ls_stress_vu_close(u);
        ls_stress_worker_check_end(w);
    } else if (!sc->round_posted) {
        /* Not from here: a scenario that never waits would recurse. */
        sc->round_posted = true;
        sc->next_round.done = begin_next_round;
        (void)ls_port_post(w->port, &sc->next_round, NULL, 0);
    }
}

static void drop_coroutine(struct ls_stress_scenario *sc)
{
    lua_State *L = sc->u->worker->script->L;
    if (sc->co == NULL) return;
    (void)lua_resetthread(sc->co); /* closes its to-be-closed variables */
    luaL_unref(L, LUA_REGISTRYINDEX, sc->co_ref);
    sc->co = NULL;
    sc->suspended = false;
}

static void round_failed(struct ls_stress_scenario *sc)
{
    ls_stress_worker *w = sc->u->worker;
    const char *text = lua_type(sc->co, -1) == LUA_TSTRING ? lua_tostring(sc->co, -1) : "error object is not a string";
    if (w->first_failure[0] == '\0') (void)snprintf(w->first_failure, sizeof w->first_failure, "%s", text);
    drop_coroutine(sc);
    ls_stress_vu_fail(sc->u, LS_STRESS_ERROR_SCRIPT);
}

static void resume(struct ls_stress_scenario *sc, int arguments)
{
    ls_stress_worker *w = sc->u->worker;
    ls_stress_script *s = w->script;
    int results;
    sc->running = true;
    sc->suspended = false;
    s->running = sc;
    s->request = &sc->u->requests[sc->u->first];
    const int status = lua_resume(sc->co, s->L, arguments, &results);
    s->running = NULL;
    sc->running = false;
    w->clock_stale = true;
    if (status != LUA_OK && status != LUA_YIELD) {
        round_failed(sc);
        return;
    }
    lua_pop(sc->co, results);
    sc->suspended = status == LUA_YIELD;
    sc->round_done = status == LUA_OK;
    if (!flush(sc)) return;
    if (sc->round_done && sc->out.len == 0 && !sc->u->tx_pending) finish(sc);
}

static void on_sleep_timer(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = op->key;
    u->timer_pending = false;
    if (u->state == LS_STRESS_VU_OPEN)
        resume(u->scenario, 0);
    else
        ls_stress_vu_timer_done(u);
}

void ls_stress_scenario_wake(struct ls_stress_scenario *sc)
{
    size_t len, used;
    if (!sc->suspended || sc->want == LS_STRESS_WANT_TIME) return;
    if (sc->want >= LS_STRESS_WANT_UPGRADE) {
        if (sc->peer_closed || ls_stress_script_ws_ready(sc)) resume(sc, 0);
        return;
    }
    if (sc->peer_closed || sc->u->worker->plan->target.kind == LS_STRESS_TARGET_UDP || has_input(sc, &len, &used))
        resume(sc, 0);
}

/* Runs protected. Arguments: the scenario, a light userdata; the table of vus and their metatable. Creates its
 * coroutine and sock if needed, and returns the vu and the sock. */
static int prepare(lua_State *L)
{
    struct ls_stress_scenario *sc = lua_touserdata(L, 1);
    if (sc->co == NULL) {
        sc->co = lua_newthread(L);
        sc->co_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    if (sc->sock_ref == LUA_NOREF) {
        *(struct ls_stress_scenario **)lua_newuserdatauv(L, sizeof(void *), 0) = sc;
        luaL_setmetatable(L, sock_meta);
        sc->sock_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    ls_stress_script_push_vu(L, sc->u->worker->script, sc->u, 2, 3);
    lua_rawgeti(L, LUA_REGISTRYINDEX, sc->sock_ref);
    return 2;
}

static void start(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    ls_stress_script *s = u->worker->script;
    lua_State *L = s->L;
    lua_pushcfunction(L, prepare);
    lua_pushlightuserdata(L, sc);
    lua_pushvalue(L, AT_VUS);
    lua_pushvalue(L, AT_META);
    if (!ls_stress_script_call(s, 3, 2)) return;
    lua_pushvalue(L, AT_SCENARIO);
    lua_insert(L, -3);
    lua_xmove(L, sc->co, 3);
    resume(sc, 2);
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

static bool opened(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc == NULL) {
        if ((sc = calloc(1, sizeof *sc)) == NULL) {
            ls_stress_vu_fail(u, LS_STRESS_ERROR_CONNECT);
            return false;
        }
        sc->u = u;
        sc->sock_ref = sc->ws_ref = LUA_NOREF;
        u->scenario = sc;
    }
    sc->in.len = sc->in_at = sc->out.len = sc->part.len = 0;
    sc->socket = LS_STRESS_SOCKET_NONE;
    sc->peer_closed = sc->closed = sc->round_done = false;
    return true;
}

static bool received(ls_stress_vu *u, const char *data, size_t len)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc->in_at > 0) {
        memmove(sc->in.at, sc->in.at + sc->in_at, sc->in.len - sc->in_at);
        sc->in.len -= sc->in_at;
        sc->in_at = 0;
    }
    if (sc->socket != LS_STRESS_SOCKET_NONE) return ls_stress_script_ws_received(u, data, len);
    if (!(u->worker->plan->target.kind == LS_STRESS_TARGET_UDP ? add_datagram(&sc->in, data, len)
                                                               : ls_stress_scenario_add(&sc->in, data, len))) {
        ls_stress_worker_record_failure(u->worker, "unreceived data exceeds 64 MiB", data, 0);
        ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
        return false;
    }
    ls_stress_scenario_wake(sc);
    return u->state == LS_STRESS_VU_OPEN;
}

static void peer_closed(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    sc->peer_closed = true;
    if (u->outstanding == 0) {
        if (!u->used) u->reconnect_later = true;
        ls_stress_vu_close(u);
    } else {
        ls_stress_scenario_wake(sc);
    }
}

static void sent(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (!flush(sc)) return;
    if (sc->round_done && sc->out.len == 0 && !u->tx_pending) finish(sc);
}

static void closed(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    /* A timer that cannot be cancelled has its packet pending, and must not be set before that packet arrives. */
    if (u->timer_pending && ls_timer_cancel(u->worker->port, u->timer)) u->timer_pending = false;
    if (sc != NULL && sc->socket == LS_STRESS_SOCKET_OPEN) ls_stress_ws_closed(u);
    if (sc != NULL && sc->suspended) drop_coroutine(sc);
}

static void free_scenario(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc == NULL) return;
    free(sc->in.at);
    free(sc->out.at);
    free(sc->part.at);
    free(sc);
}

const ls_stress_proto ls_stress_scenario_proto = {
    .opened = opened,
    .received = received,
    .peer_closed = peer_closed,
    .closed = closed,
    .sent = sent,
    .free = free_scenario,
    .start = start,
    .message = ls_stress_script_ws_message,
};
