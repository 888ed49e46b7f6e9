/* ws.c - see ws.h: the events of a connection, the tasks of its handlers, drain and close. */
#include "script/bind/ws/ws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io/log.h"
#include "http/exchange_run.h"
#include "script/bind/sock/sockets.h"
#include "script/bind/store/publish.h"
#include "script/core/lua/error_text.h"

struct ls_ws_stash {
    ls_ws_message message;
    ls_slice slices[];
};

/* ---- the message that waits ----------------------------------------------------------------------------------- */

const ls_ws_message *ls_ws_object_message(const ls_ws_object *o)
{
    if (o->closed || o->held) return NULL;
    if (o->stash != NULL) return &o->stash->message;
    return o->ws != NULL ? ls_ws_message_get(o->ws) : NULL;
}

static void drop_stash(ls_ws_object *o)
{
    if (o->stash == NULL) return;
    ls_slices_drop(o->stash->slices, o->stash->message.count);
    free(o->stash);
    o->stash = NULL;
}

/* Keep the message: its connection is freed. */
static void make_stash(ls_ws_object *o)
{
    const ls_ws_message *m = ls_ws_object_message(o);
    if (m == NULL || o->stash != NULL) return;
    struct ls_ws_stash *stash = malloc(sizeof *stash + m->count * sizeof stash->slices[0]);
    if (stash == NULL) return; /* the connection is lost, and its last message with it */
    stash->message = *m;
    stash->message.slices = stash->slices;
    for (unsigned n = 0; n < m->count; n++) {
        stash->slices[n] = m->slices[n];
        if (m->slices[n].block != NULL) (void)ls_block_hold(m->slices[n].block);
    }
    o->stash = stash;
}

static void consume(ls_thread_ctx *ctx, ls_ws_object *o)
{
    o->taken++;
    if (o->stash != NULL)
        drop_stash(o);
    else
        ls_ws_consume(ctx, o->ws);
}

/* The message is in Lua. */
static void hold(ls_ws_object *o)
{
    o->taken++;
    if (o->stash != NULL) {
        drop_stash(o);
    } else {
        o->held = true;
        ls_ws_flush_later(o);
    }
}

void ls_ws_object_resume(ls_thread_ctx *ctx, ls_ws_object *o)
{
    if (!o->held) return;
    o->held = false;
    if (o->ws != NULL) ls_ws_consume(ctx, o->ws);
}

bool ls_ws_object_take(lua_State *L, ls_ws_object *o)
{
    const ls_wss *wss = ls_wss_of(o->state);
    const uint32_t taken = o->taken;
    if (o->state->current != NULL) o->state->current->message++;
    const ls_ws_message *m = ls_ws_object_message(o);
    const int kind_ref = m->text ? wss->text_ref : wss->binary_ref;
    if (m->count <= 1) {
        lua_pushlstring(L, m->count > 0 ? m->slices[0].ptr : "", m->bytes); /* copies before it collects */
    } else {
        luaL_Buffer text;
        const size_t bytes = m->bytes;
        char *to = luaL_buffinitsize(L, &text, bytes);
        m = ls_ws_object_message(o); /* a finalizer may have taken it, or closed the WebSocket */
        if (m == NULL || o->taken != taken) {
            luaL_pushresultsize(&text, 0);
            lua_pop(L, 1);
            return false;
        }
        for (unsigned n = 0; n < m->count; to += m->slices[n++].len) memcpy(to, m->slices[n].ptr, m->slices[n].len);
        luaL_pushresultsize(&text, bytes);
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, kind_ref);
    if (o->taken == taken && ls_ws_object_message(o) != NULL) hold(o);
    return true;
}

/* ---- the tasks of the handlers of a route ----------------------------------------------------------------------- */

static void handler_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count);

/* Take a task for a handler; `take` is a function of task.h. NULL: out of memory, the connection ends. */
static ls_task *take_task(ls_thread_ctx *ctx, ls_ws_object *o, ls_task *(*take)(ls_state *, ls_thread_ctx *))
{
    ls_task *task = take(o->state, ctx);
    if (task == NULL) {
        ls_log(LS_LOG_ERROR, "not enough memory to run a handler of a WebSocket");
        ls_ws_object_close(ctx, o, LS_WS_INTERNAL, NULL, 0);
        return NULL;
    }
    task->ended = handler_ended;
    task->owner = o;
    task->ends_of = &o->ends;
    ls_task_enter(task, LS_SCOPE_WEBSOCKET);
    ls_task_count(task);
    o->task = task;
    return task;
}

/* `message` has returned. Whether another message has been received with it, which this task can take: it begins with
 * a processor time of its own. */
static bool next_message(lua_State *L, ls_ws_object *o)
{
    const ls_state *state = o->state;
    if (ls_actor_has_waiting(&state->actor)) return false;
    ls_ws_object_resume(state->ctx, o);
    if (o->ws != NULL) ls_ws_resume(state->ctx, o->ws);
    ls_cpu_watch_begin(state->cpu, L, 0);
    return ls_ws_object_message(o) != NULL && !ls_cpu_watch_exceeded(state->cpu);
}

/* How many of the `count` results on top of the stack say that something is wrong: 1, a value that nothing reads; 2, nil and a
 * reason. 0: there are none, or they are nil, or true, as that of ws:send. */
static int wrong_results(lua_State *L, int count)
{
    if (count == 0 || (lua_type(L, -count) == LUA_TBOOLEAN && lua_toboolean(L, -count))) return 0;
    if (!lua_isnil(L, -count)) return 1;
    return count > 1 && !lua_isnil(L, 1 - count) ? 2 : 0;
}

/* The results of the function are those of the task; below them is the object. */
static int pass_results(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    (void)context;
    return lua_gettop(L) - 1;
}

static int message_main(lua_State *L) /* (object as light userdata) */
{
    ls_ws_object *o = lua_touserdata(L, 1);
    do {
        lua_rawgeti(L, LUA_REGISTRYINDEX, o->route->message_ref);
        lua_rawgeti(L, LUA_REGISTRYINDEX, o->self_ref);
        if (!ls_ws_object_take(L, o)) return 0;
        lua_callk(L, 3, LUA_MULTRET, 0, pass_results); /* a task that has waited ends with this message */
        if (wrong_results(L, lua_gettop(L) - 1) > 0) break;
        lua_settop(L, 1);
    } while (next_message(L, o));
    return pass_results(L, LUA_OK, 0);
}

static int close_main(lua_State *L) /* (object as light userdata) */
{
    const ls_ws_object *o = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, o->route->close_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, o->self_ref);
    lua_pushinteger(L, o->code);
    lua_pushlstring(L, o->reason != NULL ? o->reason : "", o->reason_len);
    lua_callk(L, 3, LUA_MULTRET, 0, pass_results);
    return pass_results(L, LUA_OK, 0);
}

static bool run(ls_thread_ctx *ctx, ls_ws_object *o, lua_CFunction handler_main)
{
    ls_task *task = take_task(ctx, o, ls_task_take_outside);
    if (task == NULL) return false;
    lua_pushcfunction(task->co, handler_main);
    lua_pushlightuserdata(task->co, o);
    ls_task_run(ctx, task, 1);
    return true;
}

/* Run the next handler of the event form. false: none is due. */
static bool run_next(ls_thread_ctx *ctx, ls_ws_object *o)
{
    if (o->route->serve_ref != LUA_NOREF || atomic_load(&o->state->generation->closing) >= LS_CLOSING_FORCED)
        return false;
    if (ls_ws_object_message(o) != NULL) {
        if (o->route->message_ref != LUA_NOREF) return run(ctx, o, message_main);
        consume(ctx, o);
        return true;
    }
    if (!o->ended || o->close_ran || o->canceled) return false;
    o->close_ran = true;
    return o->route->close_ref != LUA_NOREF && run(ctx, o, close_main);
}

/* Separate the object from its connection. */
static void detach(ls_ws_object *o)
{
    if (o->ws != NULL) ((ls_ws_link *)ls_ws_user(o->ws))->object = NULL;
    o->ws = NULL;
    ls_subscriber_end(&o->subscriber);
    ls_task_ends_run(&o->ends, NULL);
    ls_list_remove(&o->unflushed);
    drop_stash(o);
}

void ls_ws_cancel(ls_ws_object *o)
{
    detach(o);
    free(o->name);
    free(o->reason);
    o->name = o->reason = NULL;
    o->reason_len = 0;
}

/* The connection has ended, and its last handler has returned: Lua may collect the object. */
static void finish(ls_thread_ctx *ctx, ls_ws_object *o)
{
    ls_state *state = o->state;
    ls_wss *wss = ls_wss_of(state);
    detach(o);
    luaL_unref(state->L, LUA_REGISTRYINDEX, o->self_ref);
    const unsigned left = atomic_fetch_sub_explicit(&state->long_lived, 1, memory_order_relaxed) - 1;
    ls_state_count_ended(ctx, state, &wss->ended, left);
}

/* Run what is due, one handler after the other; at the end give the object up. No task of the state runs. */
static void advance(ls_thread_ctx *ctx, ls_ws_object *o)
{
    if (o->advancing || o->task != NULL || o->route == NULL) return;
    o->advancing = true; /* a handler that ends at once calls this function */
    while (o->task == NULL && run_next(ctx, o)) {}
    o->advancing = false;
    if (o->task == NULL && o->ended) finish(ctx, o);
}

/* The name of the connection in the log. */
static void log_name(const ls_ws_object *o, const ls_request *r, char out[LS_REQUEST_NAME_BYTES])
{
    char text[LS_ADDR_TEXT_BYTES];
    if (r != NULL) {
        ls_request_log_name(r->x, out);
        return;
    }
    if (o->name != NULL) {
        (void)snprintf(out, LS_REQUEST_NAME_BYTES, "%s", o->name);
        return;
    }
    (void)snprintf(out, LS_REQUEST_NAME_BYTES, "WebSocket %.150s%s%s", o->route->name, o->ws != NULL ? " from " : "",
                   o->ws != NULL ? ls_stream_peer_text(ls_ws_stream(o->ws), text) : "");
}

static void end_request(ls_thread_ctx *ctx, ls_request *r)
{
    ls_exchange *x = r->x;
    ls_request_release_alone(ctx, r);
    ls_exchange_release(ctx, x);
}

/* What a function of the connection has returned: `wrong` as of wrong_results. */
typedef struct returned_value {
    const ls_ws_object *o;
    ls_task *task;
    const char *name;
    int wrong;
} returned_value;

static int log_value_protected(lua_State *L) /* (returned_value as light userdata) */
{
    const returned_value *returned = lua_touserdata(L, 1);
    const ls_ws_object *o = returned->o;
    const char *function = o->route->serve_ref != LUA_NOREF                    ? "the handler"
                           : o->close_ran                                      ? "close"
                           : returned->task->client != NULL || o->name != NULL ? "open"
                                                                               : "message";
    lua_xmove(returned->task->co, L, 1);
    if (returned->wrong == 2) /* a peer that has ended the connection is no error */
        ls_log(o->ended && !o->close_ran ? LS_LOG_INFO : LS_LOG_ERROR, "%s: %s: %s returned nil, %s", returned->name,
               o->route->name, function, ls_error_describe(L, 2));
    else
        ls_log(
            LS_LOG_ERROR,
            "%s: %s: %s returned %s, which nothing reads: write ws:send(text) to answer, ws:close(1008, \"why\") to "
            "refuse the client",
            returned->name, o->route->name, function, ls_error_describe(L, 2));
    return 0;
}

/* Whether the `count` results of a function of the connection are wrong. Logs it. */
static bool returned_wrong(ls_thread_ctx *ctx, const ls_ws_object *o, ls_task *task, int count)
{
    lua_State *co = task->co;
    char name[LS_REQUEST_NAME_BYTES];
    const int wrong = wrong_results(co, count);
    if (wrong == 0) return false;
    lua_pop(co, count - wrong);
    log_name(o, task->client, name);
    returned_value returned = {o, task, name, wrong};
    if (ls_state_report(o->state, ctx, log_value_protected, &returned) != LUA_OK)
        ls_log(LS_LOG_ERROR, "%s: not enough memory", name);
    return true;
}

static void handler_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_ws_object *o = task->owner;
    ls_request *r = task->client;
    const bool serves = o->route->serve_ref != LUA_NOREF;
    const bool wrong = status == LUA_OK && returned_wrong(ctx, o, task, count);
    if (status != LUA_OK || serves || wrong) ls_ws_object_deliver_waiting(ctx, o);
    if (status != LUA_OK) {
        char name[LS_REQUEST_NAME_BYTES];
        log_name(o, r, name);
        ls_task_log_error(ctx, task, name);
        ls_ws_object_close(ctx, o, LS_WS_INTERNAL, NULL, 0);
    } else if (serves || wrong) {
        ls_ws_object_close(ctx, o, wrong ? LS_WS_INTERNAL : LS_WS_NORMAL, NULL, 0);
    }
    free(o->name); /* the first function has ended */
    o->name = NULL;
    ls_task_release(ctx, task, status == LUA_OK); /* may run Lua */
    if (r != NULL) end_request(ctx, r);
    ls_ws_object_resume(ctx, o); /* o->task: it runs no further handler yet */
    o->task = NULL;
    advance(ctx, o);
}

/* Run the first function. `r` as for ls_ws_serve. */
static void run_first(ls_thread_ctx *ctx, ls_ws_object *o, ls_request *r)
{
    const bool serves = o->route->serve_ref != LUA_NOREF;
    ls_task *task = take_task(ctx, o, serves ? ls_task_take_new : ls_task_take_outside);
    if (task == NULL) {
        if (r != NULL) end_request(ctx, r);
        return;
    }
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, serves ? o->route->serve_ref : o->route->open_ref);
    lua_rawgeti(task->co, LUA_REGISTRYINDEX, o->self_ref);
    if (r != NULL) {
        r->task = task;
        task->client = r;
        task->serial = r->serial;
        lua_rawgeti(task->co, LUA_REGISTRYINDEX, r->req_ref);
    }
    ls_task_run(ctx, task, r != NULL ? 2 : 1);
}

/* A stop after which another process serves is a restart for the clients. */
static unsigned stop_code(const ls_state *state)
{
    return atomic_load(&state->generation->ending) & 1u << LS_END_OUTDATED ? LS_WS_RESTART : LS_WS_GOING_AWAY;
}

/* The code with which a state closes its connections; 0: they stay. */
static unsigned leaving_code(const ls_state *state)
{
    if (ls_state_is_ending(state, LS_END_STOP)) return stop_code(state);
    return ls_state_is_ending(state, LS_END_OUTDATED) ? LS_WS_RESTART : 0;
}

void ls_ws_serve(ls_thread_ctx *ctx, ls_ws_object *o, ls_request *r)
{
    /* Nothing runs before the end of this function but the first function. */
    o->advancing = true;
    if (o->ws == NULL || ls_ws_lost(o->ws)) { /* while the middleware continued */
        o->canceled = true;
        if (r != NULL) end_request(ctx, r);
    } else {
        const unsigned code = leaving_code(o->state);
        if (code != 0) ls_ws_object_close(ctx, o, code, NULL, 0);
        if (!o->canceled && ls_ws_has_first(o->route)) run_first(ctx, o, r);
        o->begun = true;
        /* After the handler has subscribed: a client that has got the 101 misses no message. */
        ls_ws_begin(ctx, o->ws);
    }
    o->advancing = false;
    advance(ctx, o);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static ls_ws_object *object_of(ls_ws *ws)
{
    return ((ls_ws_link *)ls_ws_user(ws))->object;
}

static void wake_receiver(ls_thread_ctx *ctx, ls_ws_object *o)
{
    ls_task *receiver = o->receiver;
    o->receiver = NULL;
    if (receiver != NULL) ls_task_wake(ctx, receiver, LS_OK);
}

static void on_message(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_ws_object *o = object_of(ws);
    if (o == NULL)
        ls_ws_consume(ctx, ws);
    else if (o->receiver != NULL)
        wake_receiver(ctx, o);
    else
        advance(ctx, o);
}

static void on_drained(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_ws_object *o = object_of(ws);
    if (o != NULL && !ls_list_empty(&o->senders)) ls_task_wake_all(ctx, &o->senders, LS_OK);
}

static void on_ended(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len)
{
    ls_ws_object *o = object_of(ws);
    ls_node woken;
    if (o == NULL) return;
    o->ended = true;
    o->code = (uint16_t)code;
    if (reason_len > 0 && (o->reason = malloc(reason_len)) != NULL) {
        memcpy(o->reason, reason, reason_len);
        o->reason_len = (uint16_t)reason_len;
    }
    ls_subscriber_end(&o->subscriber);
    ls_task_ends_run(&o->ends, NULL);
    ls_list_move(&woken, &o->senders);
    if (o->receiver != NULL) ls_list_push(&woken, &o->receiver->wait_node);
    o->receiver = NULL;
    advance(ctx, o);
    ls_task_wake_all(ctx, &woken, LS_OK); /* the object may be collected now */
}

static void on_freed(ls_thread_ctx *ctx, ls_ws *ws)
{
    ls_ws_link *link = ls_ws_user(ws);
    ls_ws_object *o = link->object;
    if (o != NULL) {
        make_stash(o);
        o->ws = NULL;
    }
    ls_list_remove(&link->node);
    if (link->limit != NULL) ls_conn_limit_leave(link->limit);
    if (link->counted) ls_sockets_closed(link->state);
    if (link->finishing) atomic_fetch_sub(&ls_wss_of(link->state)->finishing, 1);
    atomic_fetch_sub(&ls_wss_of(link->state)->live, 1);
}

const ls_ws_events ls_ws_lua_events = {on_message, on_drained, on_ended, on_freed};

/* ---- the object and its connection ------------------------------------------------------------------------------ */

ls_ws_object *ls_ws_push(lua_State *L)
{
    ls_state *state = ls_state_of(L);
    ls_ws_object *o = ls_object_push(L, sizeof *o, LS_WS_SLOTS - 1, &ls_ws_type);
    o->state = state;
    o->self_ref = LUA_NOREF;
    ls_node_init(&o->senders);
    ls_node_init(&o->unflushed);
    ls_subscriber_init(&o->subscriber, ls_topic_inbox_of(state), &ls_ws_subscriber);
    return o;
}

void ls_ws_connect(ls_ws_object *o, ls_ws *ws, ls_conn_limit *limit)
{
    ls_wss *wss = ls_wss_of(o->state);
    ls_ws_link *link = ls_ws_user(ws);
    *link = (ls_ws_link){.state = o->state, .object = o, .limit = limit};
    o->ws = ws;
    ls_node_init(&link->node);
    ls_list_push(&wss->open, &link->node);
    atomic_fetch_add(&wss->live, 1);
    if (o->route != NULL) atomic_fetch_add_explicit(&o->state->long_lived, 1, memory_order_relaxed);
}

void ls_ws_object_close(ls_thread_ctx *ctx, ls_ws_object *o, unsigned code, const char *reason, size_t reason_len)
{
    if (o->closed) return;
    if (o->ws != NULL) {
        ls_ws_link *link = ls_ws_user(o->ws);
        link->finishing = true;
        atomic_fetch_add(&ls_wss_of(o->state)->finishing, 1);
        ls_ws_close(ctx, o->ws, code, reason, reason_len);
    }
    ls_subscriber_end(&o->subscriber); /* nothing follows the Close frame, which the peer may never answer */
    if (ls_ws_object_message(o) != NULL) consume(ctx, o); /* the Close frame of the peer is after it */
    ls_ws_object_resume(ctx, o);
    o->closed = true;
    wake_receiver(ctx, o);
}

void ls_ws_object_deliver_waiting(ls_thread_ctx *ctx, ls_ws_object *o)
{
    if (!o->closed) (void)ls_topic_deliver_waiting(ctx, o->state, &o->subscriber);
}

void ls_ws_flush_later(ls_ws_object *o)
{
    ls_wss *wss = ls_wss_of(o->state);
    if (!ls_list_empty(&o->unflushed)) return;
    ls_list_push(&wss->unflushed, &o->unflushed);
    ls_state_flush_later(o->state, &wss->flush);
}

/* Before ls_ws_begin, which flushes, only a task of the request that waits sends the 101. */
static void flush_all(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    ls_wss *wss = LS_CONTAINER(flush, ls_wss, flush);
    LS_LIST_TAKE (ls_ws_object, o, &wss->unflushed, unflushed) {
        if (o->ws == NULL || (!o->begun && (!suspended || o->task != NULL))) continue;
        ls_ws_object_resume(ctx, o);
        (void)ls_ws_flush(ctx, o->ws);
    }
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

/* Those whose handshake continues close in ls_ws_serve. */
static void close_all(ls_thread_ctx *ctx, ls_state *state, unsigned code)
{
    LS_LIST_EACH (ls_ws_link, link, &ls_wss_of(state)->open, node)
        if (link->object != NULL && link->object->route != NULL && link->object->begun) {
            ls_subscriber_end(&link->object->subscriber);
            ls_ws_close(ctx, ls_ws_of(link), code, NULL, 0);
        }
}

static void ws_end(ls_thread_ctx *ctx, ls_state *state, enum ls_end_why why)
{
    if (why == LS_END_OUTDATED) close_all(ctx, state, LS_WS_RESTART);
    if (why == LS_END_STOP) close_all(ctx, state, stop_code(state));
}

/* Those of a replaced site that send their last bytes continue, until the drain ends by time. */
static void ws_close(ls_thread_ctx *ctx, ls_state *state)
{
    const bool may_send = atomic_load(&state->generation->closing) == LS_CLOSING;
    LS_LIST_EACH (ls_ws_link, link, &ls_wss_of(state)->open, node)
        if (!link->finishing || !may_send) ls_ws_abort(ctx, ls_ws_of(link));
}

static bool ws_closed(ls_state *state)
{
    return atomic_load(&ls_wss_of(state)->live) == 0;
}

static void ws_abandon(ls_state *state)
{
    LS_LIST_EACH_DROP (ls_ws_link, link, &ls_wss_of(state)->open, node) {
        if (link->object != NULL) link->object->ws = NULL;
        ls_list_remove(&link->node);
        ls_ws_free(ls_ws_of(link));
    }
}

static void ws_define(lua_State *L, ls_state *state)
{
    ls_wss *wss = ls_wss_of(state);
    ls_node_init(&wss->open);
    ls_node_init(&wss->unflushed);
    wss->flush.run = flush_all;
    lua_pushliteral(L, "text");
    wss->text_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_pushliteral(L, "binary");
    wss->binary_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static const luaL_Reg functions[] = {{"ws", ls_core_ws}, {"ws_origin", ls_core_ws_origin}, {NULL, NULL}};

static int common_open(void *own)
{
    return ls_ws_deflate_store_open(LS_WS_DEFLATE_TAKEOVER_BYTES_MAX, own);
}

static void common_close(void *own)
{
    ls_ws_deflate_store_close(*(ls_ws_deflate_store **)own);
}

static const ls_module_common common = {
    .bytes = sizeof(ls_ws_deflate_store *), .open = common_open, .close = common_close};

const ls_module ls_ws_module = {.name = "ws",
                                .bytes = sizeof(ls_wss),
                                .functions = functions,
                                .define = ws_define,
                                .end = ws_end,
                                .close = ws_close,
                                .closed = ws_closed,
                                .abandon = ws_abandon,
                                .common = &common};
