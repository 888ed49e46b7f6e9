/* engine.c - `luaserve stress`: the functions in C of lua/luaserve/stress/main.lua, which has the course of the
 * command.
 *
 * They raise their errors as texts. All that they open belongs to the engine, which ls_stress_main closes at the
 * end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <lauxlib.h>

#include "base/clock.h"
#include "base/crypto/digest.h"
#include "base/io/terminal.h"
#include "base/os/rlimit.h"
#include "base/os/signals.h"
#include "base/os/thread.h"
#include "port/port.h"
#include "script/bind/option.h"
#include "script/core/lua/lua_modules.h"
#include "script/core/lua/push.h"
#include "stress/engine.h"
#include "stress/load/deflate.h"
#include "stress/load/target.h"
#include "stress/load/worker.h"
#include "stress/load/ws_frames.h"
#include "stress/measure/counters_object.h"
#include "stress/protocols/fanout.h"
#include "stress/protocols/protocols.h"
#include "stress/scripts/script.h"

enum { CONNECT_MS_DEFAULT = 10000, WHY_BYTES = 1024, STATUS_FAILED = 1 };

typedef struct engine {
    lua_State *L; /* of main.lua */
    ls_stress_plan plan;
    ls_tls *tls;
    ls_signals *signals;
    ls_stress_worker *workers;
    ls_stress_script *main_script, **scripts;
    ls_stress_fanout *fanout; /* of a fan-out run; else NULL */
    unsigned opened, started, joined;
    ls_mutex mutex;
    ls_cond cond;
    unsigned prepared, finished; /* under mutex: workers that are prepared, that have finished */
    bool interrupted;            /* under mutex */
    bool failed;                 /* under mutex: a hook raised an error, so the run has no result */
} engine;

static engine *engine_of(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

/* Raise a text; luaL_error would add a place in main.lua to it. */
static int fail(lua_State *L, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)lua_pushvfstring(L, format, args);
    va_end(args);
    return lua_error(L);
}

/* ---- callbacks -------------------------------------------------------------------------------------------------- */

static void prepared(ls_stress_worker *w, void *user)
{
    engine *e = user;
    ls_mutex_lock(&e->mutex);
    e->prepared++;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

static void finished(ls_stress_worker *w, void *user)
{
    engine *e = user;
    const bool failed = w->script != NULL && ls_stress_script_error(w->script)[0] != '\0';
    ls_mutex_lock(&e->mutex);
    e->finished++;
    e->failed |= failed;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

/* SIGINT or SIGTERM, on the signal thread. A second one ends the process at once: a hook may be in an endless loop. */
static void interrupt(void *user)
{
    engine *e = user;
    ls_mutex_lock(&e->mutex);
    if (e->interrupted) _Exit(STATUS_FAILED);
    e->interrupted = true;
    ls_cond_broadcast(&e->cond);
    ls_mutex_unlock(&e->mutex);
}

/* ---- the run ---------------------------------------------------------------------------------------------------- */

static void stop_all(engine *e)
{
    for (unsigned i = 0; i < e->started; i++) ls_stress_worker_stop(&e->workers[i]);
}

/* Wait until every first connect has succeeded or failed. False: the run has ended already, or nothing is
 * connected. */
static bool wait_prepared(engine *e)
{
    ls_mutex_lock(&e->mutex);
    while (e->prepared < e->started && e->finished == 0 && !e->interrupted) ls_cond_wait(&e->cond, &e->mutex);
    const bool connected = e->finished == 0 && !e->interrupted;
    ls_mutex_unlock(&e->mutex);
    if (!connected) return false;
    uint64_t connects = 0;
    for (unsigned i = 0; i < e->started; i++) connects += ls_counter_read(&e->workers[i].count.connects);
    return connects > 0 && (e->fanout == NULL || atomic_load(&e->fanout->ready) > 0);
}

static void join_all(engine *e)
{
    stop_all(e);
    for (; e->joined < e->started; e->joined++) ls_stress_worker_join(&e->workers[e->joined]);
}

/* The first error of a hook, or "". */
static const char *script_error(const engine *e)
{
    for (unsigned i = 0; e->scripts != NULL && i < e->started; i++)
        if (ls_stress_script_error(e->scripts[i])[0] != '\0') return ls_stress_script_error(e->scripts[i]);
    return "";
}

/* ---- preparation ------------------------------------------------------------------------------------------------ */

static int open_worker(engine *e, unsigned index, uint32_t first_vu, uint32_t vu_count)
{
    const ls_stress_plan *plan = &e->plan;
    ls_stress_script *script = e->scripts != NULL ? e->scripts[index] : NULL;
    const ls_stress_script_traits *traits = script != NULL ? ls_stress_script_traits_of(script) : NULL;
    ls_stress_worker *w = &e->workers[index]; /* zeroed */
    w->plan = plan;
    w->index = index;
    w->senders = e->fanout != NULL ? ls_stress_fanout_senders(plan) : plan->threads;
    w->first_vu = first_vu;
    w->vu_count = vu_count;
    w->proto = e->fanout == NULL ? ls_stress_protocol(plan) : NULL;
    w->transport = plan->kind == LS_STRESS_TARGET_UDP ? &ls_stress_udp_transport
                   : plan->http2                      ? ls_stress_h2_transport
                                                      : &ls_stress_stream_transport;
    w->script = script;
    w->traits = traits;
    w->batch = traits != NULL ? traits->batch : 0;
    w->delay_ns = traits != NULL && traits->has_delay ? ls_stress_script_delay_ns : NULL;
    w->prepared = prepared;
    w->finished = finished;
    w->user = e;
    e->opened++;
    const int err = ls_stress_worker_open(w);
    if (err < 0) return err;
    if (script != NULL) ls_stress_script_attach(script, w);
    return e->fanout == NULL
               ? LS_OK
               : ls_stress_fanout_attach(w, e->fanout, ls_stress_publisher_protocol(plan), ls_stress_protocol(plan));
}

/* Raises when a script fails. */
static int open_workers(lua_State *L, engine *e)
{
    ls_stress_plan *plan = &e->plan;
    const unsigned threads = plan->threads;
    int err = LS_OK;
    uint32_t first = 0;
    if ((e->workers = calloc(threads, sizeof *e->workers)) == NULL) return LS_ENOMEM;
    if (e->main_script != NULL) {
        if ((e->scripts = calloc(threads, sizeof(ls_stress_script *))) == NULL) return LS_ENOMEM;
        for (unsigned i = 0; i < threads; i++) ls_stress_script_open(L, 1, plan, &e->scripts[i]);
        ls_stress_script_prepare(L, e->main_script, e->scripts, threads);
    }
    if (plan->mode == LS_STRESS_PLAN_FANOUT) err = ls_stress_fanout_open(plan, &e->fanout);
    for (unsigned i = 0; err == LS_OK && i < threads; i++) {
        const uint32_t count = ls_stress_plan_share(plan->connections, threads, i) * plan->streams +
                               ls_stress_plan_share(plan->publishers, threads, i);
        err = open_worker(e, i, first, count);
        first += count;
    }
    return err;
}

/* ---- functions of main.lua -------------------------------------------------------------------------------------- */

static int engine_load(lua_State *L)
{
    engine *e = engine_of(L);
    ls_stress_plan_read(L, 1, &e->plan);
    ls_stress_script_open(L, 1, &e->plan, &e->main_script);
    if (!e->plan.native) return 0;
    ls_stress_script_push_table(e->main_script, L);
    return 1;
}

static int engine_tls(lua_State *L)
{
    static const ls_option of_cert[] = {LS_OPTION(ls_tls_cert, cert), LS_OPTION(ls_tls_cert, key), LS_OPTIONS_END};
    static const ls_option tls[] = {LS_OPTION(ls_tls_options, ca), LS_OPTION(ls_tls_options, insecure),
                                    LS_OPTIONS_END};
    char why[WHY_BYTES] = "";
    ls_tls_cert cert = {0};
    ls_tls_options options = {.certs = &cert, .alpn = "http/1.1"};
    ls_options_read(L, 1, of_cert, &cert);
    ls_options_read(L, 1, tls, &options);
    lua_getfield(L, 1, "tls_resume");
    options.no_resumption = !lua_toboolean(L, -1);
    lua_getfield(L, 1, "http2");
    if (lua_toboolean(L, -1)) options.alpn = "h2,http/1.1";
    options.cert_count = cert.cert != NULL;
    const int err = ls_tls_open(&options, &engine_of(L)->plan.tls, why, sizeof why);
    return err == LS_OK ? 0 : fail(L, "%s", why[0] != '\0' ? why : ls_err_text(err));
}

static uint32_t connect_ms(const ls_stress_plan *plan)
{
    const uint64_t ms = plan->timeout_ns / 1000000u;
    return ms > 0 && ms < INT32_MAX ? (uint32_t)ms : CONNECT_MS_DEFAULT;
}

/* resolve(plan): sets plan.addr; unless the target is of UDP, this address has accepted a connection. */
static int engine_resolve(lua_State *L)
{
    ls_stress_plan *plan = &engine_of(L)->plan;
    ls_addr found[LS_LOOKUP_ADDRS_MAX];
    char numeric[LS_ADDR_TEXT_BYTES];
    ls_stress_plan_read(L, 1, plan);
    const int err = plan->kind == LS_STRESS_TARGET_UDP
                        ? ls_stress_target_lookup(plan->host, plan->port, found)
                        : ls_stress_target_connect(plan->host, plan->port, connect_ms(plan), &found[0]);
    if (err >= 0) {
        plan->addr = found[0];
        return 0;
    }
    if (ls_addr_parse(plan->host, plan->port, &found[0]) == LS_OK)
        return fail(L, "%s: %s", ls_addr_text(&found[0], numeric), ls_err_text(err));
    if (err == LS_ENOENT) return fail(L, "%s: unknown host", plan->host);
    return fail(L, "%s:%d: %s", plan->host, (int)plan->port, ls_err_text(err));
}

static int engine_open(lua_State *L)
{
    engine *e = engine_of(L);
    const int err = open_workers(L, e);
    return err == LS_OK ? 0
                        : fail(L, "%d connections on %d threads: %s", (int)e->plan.connections, (int)e->plan.threads,
                               ls_err_text(err));
}

/* start() -> the counters, the time in ns and as Unix time in us, whether the run can begin: the threads have started,
 * and a connect of each virtual user has succeeded or failed. */
static int engine_start(lua_State *L)
{
    engine *e = engine_of(L);
    const ls_signals_options stops = {.on_stop = interrupt, .user = e};
    const ls_stress_counters **counters = lua_newuserdatauv(L, e->opened * sizeof *counters, 0);
    const ls_stress_checks **checks = lua_newuserdatauv(L, e->opened * sizeof *checks, 0);
    int err = ls_signals_open(&stops, &e->signals);
    if (err == LS_OK) err = ls_signals_take_stops(e->signals);
    for (; err == LS_OK && e->started < e->opened; e->started++) {
        ls_stress_worker *w = &e->workers[e->started];
        counters[e->started] = &w->count;
        checks[e->started] = &w->checks;
        if ((err = ls_stress_worker_start(w)) < 0) break;
    }
    if (err < 0) return fail(L, "%d threads: %s", (int)e->opened, ls_err_text(err));
    const bool connected = wait_prepared(e);
    ls_stress_counters_push(L, counters, checks, e->started);
    lua_pushinteger(L, (lua_Integer)ls_clock_ns());
    lua_pushinteger(L, ls_clock_wall_us());
    lua_pushboolean(L, connected);
    return 4;
}

static int engine_go(lua_State *L)
{
    const engine *e = engine_of(L);
    const uint64_t start_ns = (uint64_t)luaL_checkinteger(L, 1);
    for (unsigned i = 0; i < e->started; i++) ls_stress_worker_go(&e->workers[i], start_ns);
    return 0;
}

/* wait(until_ns) -> the time; nothing: all workers have finished. Stops them after an interrupt or an error in a
 * hook. */
static int engine_wait(lua_State *L)
{
    engine *e = engine_of(L);
    const uint64_t until_ns = (uint64_t)luaL_checkinteger(L, 1);
    uint64_t now_ns = ls_clock_ns();
    ls_mutex_lock(&e->mutex);
    while (e->finished < e->started && now_ns < until_ns) {
        if (e->interrupted || e->failed) stop_all(e);
        (void)ls_cond_wait_ms(&e->cond, &e->mutex, (uint32_t)((until_ns - now_ns) / 1000000u + 1));
        now_ns = ls_clock_ns();
    }
    const bool finished = e->finished == e->started;
    ls_mutex_unlock(&e->mutex);
    if (finished) return 0;
    return ls_push_integer(L, (lua_Integer)now_ns);
}

/* join(start_ns) -> the time of the end, whether a signal interrupted the run, the first failure (the bytes of a
 * response or the line of a script) or "", the first error of a connect or nil. Raises the error of a hook. */
static int engine_join(lua_State *L)
{
    engine *e = engine_of(L);
    uint64_t end_ns = (uint64_t)luaL_checkinteger(L, 1) + 1;
    const char *failure = "";
    const ls_stress_worker *unconnected = NULL;
    char addr[LS_ADDR_TEXT_BYTES];
    join_all(e);
    if (script_error(e)[0] != '\0') return fail(L, "%s", script_error(e));
    for (unsigned i = e->started; i > 0; i--) {
        const ls_stress_worker *w = &e->workers[i - 1];
        if (w->ended_ns > end_ns) end_ns = w->ended_ns;
        if (w->first_failure[0] != '\0') failure = w->first_failure;
        if (atomic_load(&w->first_error) != 0) unconnected = w;
    }
    lua_pushinteger(L, (lua_Integer)end_ns);
    lua_pushboolean(L, e->interrupted);
    lua_pushstring(L, failure);
    if (unconnected == NULL) return 3;
    lua_pushfstring(L, "%s: %s", ls_addr_text(&unconnected->addr, addr), ls_err_text(unconnected->first_error));
    return 4;
}

/* done(summary, latency, rates): calls the hook done() of the script */
static int engine_done(lua_State *L)
{
    engine *e = engine_of(L);
    lua_settop(L, 3);
    if (e->main_script != NULL) ls_stress_script_done(L, e->main_script);
    return 0;
}

/* descriptors(n) -> the limit, which is raised to n if possible */
static int engine_descriptors(lua_State *L)
{
    return ls_push_integer(L, ls_descriptors_raise((uint32_t)luaL_checkinteger(L, 1)));
}

/* frame(binary, compressed, text) -> a frame of WebSocket with the message */
static int engine_frame(lua_State *L)
{
    size_t len;
    luaL_Buffer frame;
    const char *text = luaL_checklstring(L, 3, &len);
    char *to = luaL_buffinitsize(L, &frame, ls_stress_ws_frame_bytes(len));
    luaL_pushresultsize(&frame, ls_stress_ws_frame(lua_toboolean(L, 1) ? LS_WS_BINARY : LS_WS_TEXT,
                                                   lua_toboolean(L, 2), text, len, to));
    return 1;
}

/* deflate(text) -> the compressed text, or nil if it would not be shorter */
static int engine_deflate(lua_State *L)
{
    char *packed;
    size_t len, packed_len;
    const char *text = luaL_checklstring(L, 1, &len);
    if (ls_stress_deflate_once(text, len, &packed, &packed_len) < 0) return 0;
    lua_pushlstring(L, packed, packed_len);
    free(packed);
    return 1;
}

static int terminal_columns(lua_State *L)
{
    return ls_push_integer(L, ls_terminal_columns(stderr));
}

static int terminal_write(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    (void)fwrite(text, 1, len, stderr);
    (void)fflush(stderr);
    return 0;
}

int ls_stress_terminal_push(lua_State *L)
{
    static const luaL_Reg functions[] = {{"columns", terminal_columns}, {"write", terminal_write}, {NULL, NULL}};
    luaL_newlib(L, functions);
    ls_set_boolean(L, "is", ls_is_terminal(stderr));
    ls_set_boolean(L, "utf8", ls_terminal_utf8());
    ls_set_boolean(L, "color", !ls_terminal_no_color());
    return 1;
}

static void push_engine(lua_State *L, engine *e)
{
    static const luaL_Reg functions[] = {{"load", engine_load},
                                         {"tls", engine_tls},
                                         {"resolve", engine_resolve},
                                         {"open", engine_open},
                                         {"start", engine_start},
                                         {"go", engine_go},
                                         {"wait", engine_wait},
                                         {"join", engine_join},
                                         {"done", engine_done},
                                         {"descriptors", engine_descriptors},
                                         {"frame", engine_frame},
                                         {"deflate", engine_deflate},
                                         {"terminal", ls_stress_terminal_push},
                                         {NULL, NULL}};
    luaL_newlibtable(L, functions);
    lua_pushlightuserdata(L, e);
    luaL_setfuncs(L, functions, 1);
    ls_set_integer(L, "processors", ls_cpu_count());
    ls_set_text(L, "backend", ls_port_backend());
    lua_pushliteral(L, LS_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushlstring(L, (const char *)ls_stress_page, ls_stress_page_len);
    lua_setfield(L, -2, "page");
    ls_set_boolean(L, "compresses", ls_ws_deflate_library() != NULL);
    ls_set_boolean(L, "http2", ls_stress_h2_transport != NULL);
}

/* Runs protected. Arguments: the engine, argc, argv. Returns the exit status. */
static int run_command(lua_State *L)
{
    engine *e = lua_touserdata(L, 1);
    const int argc = (int)lua_tointeger(L, 2);
    char **argv = lua_touserdata(L, 3);
    ls_push_module(L, "luaserve.stress.main");
    push_engine(L, e);
    lua_createtable(L, argc, 0);
    for (int i = 1; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i);
    }
    lua_call(L, 2, 1);
    return 1;
}

static void engine_close(engine *e)
{
    join_all(e);
    if (e->signals != NULL) ls_signals_close(e->signals);
    for (unsigned i = 0; i < e->opened; i++) ls_stress_worker_close(&e->workers[i]);
    for (unsigned i = 0; e->scripts != NULL && i < e->plan.threads; i++) ls_stress_script_close(e->scripts[i]);
    ls_stress_script_close(e->main_script);
    ls_stress_fanout_close(e->fanout);
    if (e->plan.tls != NULL) ls_tls_drop(e->plan.tls);
    if (e->L != NULL) lua_close(e->L);
    free(e->scripts);
    free(e->workers);
    ls_cond_close(&e->cond);
    ls_mutex_close(&e->mutex);
    free(e);
}

int ls_stress_main(int argc, char **argv)
{
    engine *e = calloc(1, sizeof *e);
    int status = STATUS_FAILED;
    if (ls_digest_start() < 0 || e == NULL) {
        fprintf(stderr, "luaserve stress: not enough memory\n");
        free(e);
        return status;
    }
    ls_mutex_open(&e->mutex);
    ls_cond_open(&e->cond);
    ls_stress_http_init();
    e->L = ls_lua_modules_state();
    if (e->L != NULL) {
        lua_pushcfunction(e->L, run_command);
        lua_pushlightuserdata(e->L, e);
        lua_pushinteger(e->L, argc);
        lua_pushlightuserdata(e->L, argv);
    }
    if (e->L != NULL && lua_pcall(e->L, 3, 1, 0) == LUA_OK)
        status = (int)lua_tointeger(e->L, -1);
    else
        fprintf(stderr, "luaserve stress: %s\n", e->L != NULL ? lua_tostring(e->L, -1) : "not enough memory");
    engine_close(e);
    return status;
}
