/* scenario.c - the scenario protocol: a conversation as sequential Lua code. Each connection has one coroutine, which
 * yields in the methods of sock (script_sock.c) and ws (script_ws.c).
 *
 * A round ends when the function returns; it is one request of the reports. A round that raises an error counts as a
 * script error, and its connection is replaced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/load/arrivals.h"
#include "stress/load/ws_frames.h"
#include "stress/scripts/scenario.h"
#include "stress/scripts/script_internal.h"

const char ls_stress_sock_meta[] = "luaserve.stress.sock";

bool ls_stress_scenario_add(ls_stress_bytes *b, const void *data, size_t len)
{
    return ls_stress_bytes_add(b, data, len, LS_STRESS_IN_BYTES_MAX);
}

bool ls_stress_scenario_add_datagram(ls_stress_bytes *b, const void *data, size_t len)
{
    const uint32_t size = (uint32_t)len;
    return ls_stress_scenario_add(b, &size, sizeof size) && ls_stress_scenario_add(b, data, len);
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

bool ls_stress_scenario_has_input(const struct ls_stress_scenario *sc, size_t *len, size_t *used)
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

int ls_stress_scenario_failure(lua_State *L, const char *message, const char *code)
{
    lua_pushnil(L);
    lua_pushstring(L, message);
    lua_pushstring(L, code);
    return 3;
}

struct ls_stress_scenario *ls_stress_scenario_running(lua_State *L, const char *what)
{
    struct ls_stress_scenario *sc = ls_stress_script_of(L)->running;
    if (sc == NULL || sc->co != L) luaL_error(L, "%s can only be called inside a scenario", what);
    return sc;
}

/* ---- the coroutine ---------------------------------------------------------------------------------------------- */

static void begin_next_round(ls_thread_ctx *ctx, ls_op *op)
{
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
        if (u->worker->plan->kind == LS_STRESS_TARGET_UDP) {
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

/* The server has done what the virtual user waited for, if it did. */
static void end_wait(const ls_stress_vu *u)
{
    ls_counter *longest_ns = &u->worker->count.longest_wait_ns;
    if (u->waits_since_ns == 0) return;
    const uint64_t wait_ns = ls_stress_worker_now(u->worker) - u->waits_since_ns;
    if (wait_ns > ls_counter_read(longest_ns)) atomic_store_explicit(longest_ns, wait_ns, memory_order_relaxed);
}

/* The round has ended and its output is sent. */
static void finish(struct ls_stress_scenario *sc)
{
    ls_stress_vu *u = sc->u;
    ls_stress_worker *w = u->worker;
    const bool keep = w->plan->keepalive && !sc->peer_closed && !sc->closed;
    sc->round_done = false;
    if (sc->unreceived && w->running) ls_counter_add(&w->count.unreceived, 1);
    end_wait(u);
    w->now_ns = ls_stress_worker_now(w);
    ls_stress_vu_complete(u, 0);
    if (!keep) {
        ls_stress_vu_close(u);
        ls_stress_worker_check_end(w);
    } else if (!sc->round_posted) {
        /* Not from here: a scenario that never waits would recurse. */
        sc->round_posted = true;
        sc->next_round.done = begin_next_round;
        ls_port_post(w->port, &sc->next_round, 0);
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
    (void)ls_stress_vu_fail(sc->u, LS_STRESS_ERROR_SCRIPT);
}

void ls_stress_scenario_resume(struct ls_stress_scenario *sc, int arguments)
{
    ls_stress_worker *w = sc->u->worker;
    ls_stress_script *s = w->script;
    int results;
    sc->u->waits_since_ns = 0;
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
    if (sc->round_done && sc->out.len == 0 && !sc->u->tx_pending) {
        finish(sc);
        return;
    }
    const bool listens = sc->want == LS_STRESS_WANT_MESSAGE && !sc->asked;
    if (sc->round_done || (sc->want != LS_STRESS_WANT_TIME && !listens))
        sc->u->waits_since_ns = ls_stress_worker_now(w);
}

/* Whether what the coroutine waits for is there. */
static bool is_ready(const struct ls_stress_scenario *sc)
{
    size_t len, used;
    switch (sc->want) {
    case LS_STRESS_WANT_UPGRADE: return sc->socket != LS_STRESS_SOCKET_OPENING;
    case LS_STRESS_WANT_MESSAGE: return sc->in.len > sc->in_at;
    case LS_STRESS_WANT_END: return sc->peer_closed;
    default: return sc->u->worker->plan->kind == LS_STRESS_TARGET_UDP || ls_stress_scenario_has_input(sc, &len, &used);
    }
}

/* Resume the coroutine if what it waits for is there, or cannot arrive any more. */
static void wake(struct ls_stress_scenario *sc)
{
    if (!sc->suspended || sc->want == LS_STRESS_WANT_TIME) return;
    const bool ready = is_ready(sc);
    if (ready) end_wait(sc->u);
    if (ready || sc->peer_closed) ls_stress_scenario_resume(sc, 0);
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
        luaL_setmetatable(L, ls_stress_sock_meta);
        sc->sock_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    ls_stress_script_push_vu(L, sc->u->worker->script, sc->u, 2, 3);
    ls_stress_script_count_iteration(L);
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
    sc->first_receive = true;
    sc->unreceived = false;
    ls_stress_scenario_resume(sc, 2);
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

static bool opened(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc == NULL) {
        if ((sc = calloc(1, sizeof *sc)) == NULL) return ls_stress_vu_fail(u, LS_STRESS_ERROR_CONNECT);
        sc->u = u;
        sc->sock_ref = sc->ws_ref = LUA_NOREF;
        u->scenario = sc;
    }
    sc->in.len = sc->in_at = sc->out.len = sc->part.len = 0;
    sc->socket = LS_STRESS_SOCKET_NONE;
    sc->peer_closed = sc->closed = sc->round_done = sc->asked = false;
    return true;
}

/* Bytes after vu:ws. */
static bool received_by_ws(ls_stress_vu *u, const char *bytes, size_t len)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc->socket == LS_STRESS_SOCKET_OPENING) {
        size_t used;
        const int err = ls_stress_ws_response(u, bytes, len, &used);
        if (err == LS_EAGAIN) return true;
        sc->socket = err == LS_DONE ? LS_STRESS_SOCKET_OPEN : LS_STRESS_SOCKET_FAILED;
        if (err < 0) sc->closed = true; /* the next round has a new connection */
        bytes += err == LS_DONE ? used : len;
        len -= err == LS_DONE ? used : len;
        wake(sc);
        if (u->state != LS_STRESS_VU_OPEN || len == 0) return u->state == LS_STRESS_VU_OPEN;
    }
    return sc->socket == LS_STRESS_SOCKET_FAILED || ls_stress_ws_received(u, bytes, len);
}

static bool message(ls_stress_vu *u, const char *bytes, size_t len, bool last)
{
    struct ls_stress_scenario *sc = u->scenario;
    const uint32_t size = (uint32_t)(sc->part.len + len);
    const char kind = u->ws->text;
    bool ok = last || ls_stress_scenario_add(&sc->part, bytes, len);
    if (last) {
        ok = ls_stress_scenario_add(&sc->in, &size, sizeof size) && ls_stress_scenario_add(&sc->in, &kind, 1) &&
             (sc->part.len == 0 || ls_stress_scenario_add(&sc->in, sc->part.at, sc->part.len)) &&
             ls_stress_scenario_add(&sc->in, bytes, len);
        sc->part.len = 0;
    }
    if (!ok) return ls_stress_vu_fail_answer(u, "unreceived messages exceed 64 MiB", "", 0);
    if (last) wake(sc);
    return u->state == LS_STRESS_VU_OPEN;
}

static bool received(ls_stress_vu *u, const char *data, size_t len)
{
    struct ls_stress_scenario *sc = u->scenario;
    if (sc->in_at > 0) {
        memmove(sc->in.at, sc->in.at + sc->in_at, sc->in.len - sc->in_at);
        sc->in.len -= sc->in_at;
        sc->in_at = 0;
    }
    if (sc->socket != LS_STRESS_SOCKET_NONE) return received_by_ws(u, data, len);
    if (!(u->worker->plan->kind == LS_STRESS_TARGET_UDP ? ls_stress_scenario_add_datagram(&sc->in, data, len)
                                                        : ls_stress_scenario_add(&sc->in, data, len)))
        return ls_stress_vu_fail_answer(u, "unreceived data exceeds 64 MiB", data, 0);
    wake(sc);
    return u->state == LS_STRESS_VU_OPEN;
}

static void peer_closed(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    sc->peer_closed = true;
    if (u->outstanding > 0)
        wake(sc);
    else
        ls_stress_vu_peer_closed(u, NULL);
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
    if (u->timer_pending && ls_timer_cancel(u->worker->port, &u->timer->timer)) u->timer_pending = false;
    if (sc != NULL && sc->socket == LS_STRESS_SOCKET_OPEN) ls_stress_ws_closed(u);
    if (sc != NULL && sc->suspended) drop_coroutine(sc);
}

static void free_scenario(ls_stress_vu *u)
{
    struct ls_stress_scenario *sc = u->scenario;
    ls_stress_ws_free(u);
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
    .message = message,
};
