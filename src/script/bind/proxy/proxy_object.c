/* proxy_object.c - a request of app:proxy: the task that waits while http/proxy.h moves its bytes.
 *
 * lua/luaserve/proxy.lua decides: it picks an upstream server, dials when no connection is idle, repeats what may be
 * repeated, and answers when nothing else does. A call belongs to the task that makes it: when the task ends first, both
 * connections are closed. Thread: the one that holds the state's actor. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/proxy/proxy.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/req.h"
#include "script/bind/http/res.h"
#include "script/bind/option.h"
#include "script/bind/sock/sock_object.h"
#include "script/core/runtime.h"
#include "script/core/lua/udata.h"
#include "base/hash.h"
#include "http/proxy/peer.h"

static const ls_object_type upstream_type = {.name = "upstream"};

typedef struct upstream { /* the strings are those of the table of options, user value 1 */
    const void *tag;
    ls_peer *peer;
    const char *key, *host, *prefix; /* host NULL: that of the client */
    size_t key_len, host_len, prefix_len;
    uint32_t timeout_ms, slow_ms;
    uint64_t body_bytes_max; /* of a request */
    bool pauses, checked;
} upstream;

typedef struct proxy_call {
    ls_proxy p; /* first */
    ls_node node;
    ls_state *state;
    ls_request *request;
    ls_task *task;
    ls_peer *peer;
    ls_task_end end;
    uint32_t time_ms_max; /* of the task, which has no limit while it waits here */
    bool reused;          /* the connection was idle before */
    bool over;            /* of the proxy */
    bool reads;           /* the body of the request, which no one else may read meanwhile */
} proxy_call;

typedef struct proxy_data { /* of a state */
    ls_node open;
    _Atomic uint32_t live; /* streams */
} proxy_data;

static proxy_data *data_of(const ls_state *state)
{
    return ls_state_data(state, LS_SLOT_proxy);
}

/* ---- the end of a call ------------------------------------------------------------------------------------------ */

static void call_free(proxy_call *call)
{
    ls_state *state = call->state;
    if (state->port != NULL)
        ls_proxy_drop(state->ctx, &call->p);
    else
        ls_proxy_abandon(&call->p);
    ls_task_end_remove(&call->end);
    ls_list_remove(&call->node);
    atomic_fetch_sub(&call->peer->active, 1);
    free(call);
}

static void task_ended(ls_task_end *end)
{
    call_free(LS_CONTAINER(end, proxy_call, end));
}

static void done(ls_thread_ctx *ctx, ls_proxy *p)
{
    proxy_call *call = (proxy_call *)(void *)p;
    call->over = true;
    ls_task_wake(ctx, call->task, LS_OK);
}

/* The proxy reads no more of the body. */
static void release_body(const proxy_call *call)
{
    if (call->reads) call->request->body_state = call->p.body_read ? LS_BODY_STREAMED : LS_BODY_UNREAD;
}

/* nil, message, code, whether the request may be sent again, whether the connection was used before. Raises when the
 * client is the reason. */
static int push_failure(lua_State *L, proxy_call *call)
{
    const ls_proxy p = call->p;
    ls_request *r = call->request;
    const bool reused = call->reused, client = p.blame == LS_PROXY_CLIENT;
    const bool left = client && r->x->error != 0;
    release_body(call);
    call_free(call);
    if (left) {
        r->task->client_left = true;
        return ls_task_left_error(L, "app:proxy: ");
    }
    if (client && r->x->response == LS_RESPONSE_NONE) return ls_request_body_failed(L, r, p.err);
    if (client)
        (void)ls_push_failure_text(L, p.err, "the body of the client: %s", ls_err_text(p.err));
    else if (p.err == LS_EPROTO)
        (void)ls_push_failure_text(L, p.err, "invalid response: %s", p.why);
    else if (p.err == LS_ETRUNCATED)
        (void)ls_push_failure_text(L, p.err, "the response was cut off before its end");
    else if (p.err == LS_ECLOSED)
        (void)ls_push_failure_text(L, p.err, "the server closed the connection without a response");
    else
        (void)ls_push_failure(L, p.err);
    if (r->x->response == LS_RESPONSE_NONE)
        lua_pushboolean(L, p.silent && !p.body_read);
    else
        lua_pushnil(L);
    lua_pushboolean(L, reused);
    return 5;
}

static int push_result(lua_State *L, proxy_call *call)
{
    call->task->time_ms_max = call->time_ms_max;
    if (call->p.answered) ls_peer_answered(call->peer);
    if (call->p.paused) {
        /* The call that follows sets it again, but none follows an error of the site. */
        if (call->reads) call->request->body_state = LS_BODY_STREAMED;
        lua_pushlightuserdata(L, call);
        return 1;
    }
    if (call->p.err < 0 && !call->p.upgraded) return push_failure(L, call);
    release_body(call);
    call_free(call);
    return ls_push_boolean(L, true);
}

static int call_continue(lua_State *L, int status, lua_KContext context)
{
    proxy_call *call = (proxy_call *)context; /* NOLINT(performance-no-int-to-ptr) */
    if (!call->over) ls_state_end_run(L);     /* the task resumes only to end */
    return push_result(L, call);
}

/* The proxy has begun. */
static int wait_for(lua_State *L, proxy_call *call, int err)
{
    if (err == LS_DONE) return push_result(L, call);
    call->over = false;
    call->time_ms_max = call->task->time_ms_max;
    call->task->time_ms_max = 0;
    return ls_task_yield(L, (lua_KContext)call, call_continue);
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static ls_text check_text(lua_State *L, int index)
{
    size_t len;
    const char *ptr = luaL_optlstring(L, index, NULL, &len);
    return (ls_text){ptr, ptr != NULL ? len : 0};
}

/* The connection of the sock at `index`, or an idle one. NULL: none. */
static ls_stream *take_stream(lua_State *L, int index, const ls_state *state, const upstream *u)
{
    if (lua_isnoneornil(L, index))
        return ls_stream_pool_take(state->ctx, ls_state_runtime(state)->streams, u->key, u->key_len);
    ls_tcp_object *sock = ls_udata_check(L, index, &ls_sock_type, sizeof *sock, "sock");
    return sock->tcp != NULL ? ls_tcp_detach(sock->tcp) : NULL;
}

/* Nothing was sent on the stream (NULL: none): the pool gets it, and Lua the failure. */
static int push_unsent(lua_State *L, const ls_state *state, const upstream *u, ls_stream *up, int err)
{
    if (up != NULL) ls_stream_set_actor(up, NULL);
    if (up != NULL) ls_stream_pool_put(state->ctx, ls_state_runtime(state)->streams, u->key, u->key_len, up);
    if (err == LS_EINVAL)
        (void)ls_push_failure_text(L, err, "the path has a segment \".\" or \"..\"");
    else
        (void)ls_push_failure(L, err);
    lua_pushboolean(L, 0);
    lua_pushboolean(L, 0);
    return 5;
}

/* core.proxy_send(res, upstream, sock|nil, strip, lines|nil, drops|nil, target|nil, pauses) -> true | call | false | nil, message,
 * code, whether the request may be sent again (nil: its response has begun), whether the connection was used before. Sends the request of `res` to the
 * upstream server and passes its response on. A light userdata: the head of the response was taken, see proxy_go_on.
 * Without a sock, an idle connection is taken; false: no connection is idle. strip, lines, drops, target: see
 * ls_proxy_change. */
static int proxy_send(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_state *state = r->state;
    const upstream *u = ls_udata_check(L, 2, &upstream_type, sizeof *u, "upstream");
    ls_proxy_change change = {.host = {u->host, u->host_len},
                              .prefix = {u->prefix, u->prefix_len},
                              .strip = (unsigned)luaL_checkinteger(L, 4),
                              .lines = check_text(L, 5),
                              .drops = check_text(L, 6),
                              .target = check_text(L, 7),
                              .trusted = ls_request_trusting(r) != NULL};
    ls_task_may_wait(L);
    if (r->body_state != LS_BODY_UNREAD && r->body_state != LS_BODY_WHOLE)
        return luaL_error(L, "app:proxy: the body of the request was read already");
    r->x->body_bytes_max = u->body_bytes_max;
    if (r->body_state == LS_BODY_UNREAD && r->x->head.content_length > u->body_bytes_max)
        return ls_request_body_failed(L, r, LS_EMSGSIZE);
    if (!ls_proxy_path_stays(r->x, &change)) return push_unsent(L, state, u, NULL, LS_EINVAL);
    proxy_call *call = calloc(1, sizeof *call);
    if (call == NULL) return luaL_error(L, "not enough memory");
    ls_stream *up = take_stream(L, 3, state, u);
    if (up == NULL) {
        free(call);
        if (!lua_isnoneornil(L, 3)) return push_unsent(L, state, u, NULL, LS_ECLOSED);
        return ls_push_boolean(L, false);
    }
    call->p = (ls_proxy){.x = r->x,
                         .pool = ls_state_runtime(state)->streams,
                         .key = u->key,
                         .key_len = u->key_len,
                         .live = &data_of(state)->live,
                         .timeout_ms = u->timeout_ms,
                         .pauses = u->pauses || lua_toboolean(L, 8),
                         .done = done};
    if (r->body_state == LS_BODY_WHOLE) {
        call->p.given = r->body;
        call->p.given_count = r->body_count;
        change.has_length = r->x->head.has_body;
        change.length = r->body_len;
        change.decoded = r->coding != NULL;
    }
    const int err = ls_proxy_start(state->ctx, &call->p, up, &change);
    if (err < 0) {
        free(call);
        return push_unsent(L, state, u, up, err);
    }
    call->state = state;
    call->request = r;
    call->task = state->current;
    call->time_ms_max = call->task->time_ms_max;
    call->peer = u->peer;
    call->reused = lua_isnoneornil(L, 3);
    call->reads = r->body_state == LS_BODY_UNREAD && r->x->head.has_body;
    if (call->reads) r->body_state = LS_BODY_READING;
    call->end.run = task_ended;
    atomic_fetch_add(&u->peer->active, 1);
    ls_task_end_add(call->task, &call->end);
    ls_list_push(&data_of(state)->open, &call->node);
    return wait_for(L, call, err);
}

static proxy_call *check_call(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TLIGHTUSERDATA);
    return lua_touserdata(L, 2);
}

/* core.proxy_go_on(res, call) -> as proxy_send: pass the response on, with the status and the fields that res has now. */
static int proxy_go_on(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    proxy_call *call = check_call(L);
    ls_task_may_wait(L);
    r->status_set = true;
    return wait_for(L, call, ls_proxy_go_on(r->state->ctx, &call->p));
}

/* core.proxy_refuse(res, call): drop the response; nothing of it is in res. */
static int proxy_refuse(lua_State *L)
{
    const ls_request *r = ls_res_check_open(L);
    proxy_call *call = check_call(L);
    ls_proxy_refuse(r->state->ctx, &call->p);
    release_body(call);
    call_free(call);
    return 0;
}

/* ---- upstream servers ------------------------------------------------------------------------------------------- */

static const char *field_text(lua_State *L, const char *name, size_t *len)
{
    lua_getfield(L, 1, name);
    const char *text = lua_tolstring(L, -1, len); /* the table holds it */
    lua_pop(L, 1);
    return text;
}

/* core.proxy_upstream(options) -> upstream. options.key: see net/stream/stream_pool.h; origin: the name of its peer; host,
 * prefix; timeout_ms, slow_ms, body_bytes_max, pauses, checked: see ls_peer_share. */
static int proxy_upstream(lua_State *L)
{
    static const ls_option options[] = {LS_OPTION(upstream, timeout_ms),     LS_OPTION(upstream, slow_ms),
                                        LS_OPTION(upstream, body_bytes_max), LS_OPTION(upstream, pauses),
                                        LS_OPTION(upstream, checked),        LS_OPTIONS_END};
    ls_state *state = ls_state_of(L);
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *object;
    size_t len;
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *origin = field_text(L, "origin", &len);
    upstream *u = ls_object_push(L, sizeof *u, 1, &upstream_type);
    lua_pushvalue(L, 1);
    (void)lua_setiuservalue(L, -2, 1);
    ls_options_read(L, 1, options, u);
    u->key = field_text(L, "key", &u->key_len);
    u->host = field_text(L, "host", &u->host_len);
    u->prefix = field_text(L, "prefix", &u->prefix_len);
    if (ls_shared_get(ls_state_runtime(state)->shared, &ls_peer_kind, origin, "", NULL, &object, before) < 0)
        return luaL_error(L, "not enough memory");
    u->peer = (ls_peer *)(void *)object;
    return 1;
}

static upstream *check_upstream(lua_State *L)
{
    return ls_udata_check(L, 1, &upstream_type, sizeof(upstream), "upstream");
}

/* core.proxy_load(upstream) -> the number of its requests, the share of its weight (0: it is down), the end of the time
 * for which failed requests have taken it out, in ms; nil: its checks fail */
static int proxy_load(lua_State *L)
{
    const upstream *u = check_upstream(L);
    lua_pushinteger(L, atomic_load_explicit(&u->peer->active, memory_order_relaxed));
    lua_pushnumber(L, ls_peer_share(u->peer, ls_clock_coarse_ms(), u->slow_ms, u->checked));
    if (u->checked && atomic_load_explicit(&u->peer->unhealthy, memory_order_relaxed)) return 2;
    lua_pushinteger(L, (lua_Integer)atomic_load_explicit(&u->peer->down_until_ms, memory_order_relaxed));
    return 3;
}

/* core.proxy_failed(upstream, fails_max, down_ms) -> whether this failure of a request has taken it out. */
static int proxy_failed(lua_State *L)
{
    const upstream *u = check_upstream(L);
    return ls_push_boolean(L, ls_peer_failed(u->peer, ls_clock_coarse_ms(), (uint32_t)luaL_checkinteger(L, 2),
                                             (uint32_t)luaL_checkinteger(L, 3)));
}

/* core.proxy_back(upstream) -> whether this is the first request to it after it was out. */
static int proxy_back(lua_State *L)
{
    return ls_push_boolean(L, ls_peer_back(check_upstream(L)->peer, ls_clock_coarse_ms()));
}

/* core.proxy_refused(upstream) -> see ls_peer_refused. */
static int proxy_refused(lua_State *L)
{
    return ls_push_integer(L, ls_peer_refused(check_upstream(L)->peer, ls_clock_coarse_ms()));
}

/* core.proxy_mark(upstream, healthy): the result of its checks. */
static int proxy_mark(lua_State *L)
{
    ls_peer_mark(check_upstream(L)->peer, ls_clock_coarse_ms(), lua_toboolean(L, 2));
    return 0;
}

/* core.proxy_hash(text) -> a number above 0 and below 1, the same in all states and servers. */
static int proxy_hash(lua_State *L)
{
    static const uint64_t seed[2] = {0, 0};
    const ls_text text = ls_check_text(L, 1);
    return ls_push_number(L, ((double)(ls_hash(seed, text.ptr, text.len) >> 11) + 0.5) / 9007199254740992.0);
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

static void proxy_define(lua_State *L, ls_state *state)
{
    ls_node_init(&data_of(state)->open);
}

static void proxy_close(ls_thread_ctx *ctx, ls_state *state)
{
    for (ls_node *node = data_of(state)->open.next; node != &data_of(state)->open; node = node->next)
        ls_proxy_drop(ctx, &LS_CONTAINER(node, proxy_call, node)->p); /* its task ends when it runs next */
}

static bool proxy_closed(ls_state *state)
{
    return atomic_load(&data_of(state)->live) == 0;
}

static void proxy_abandon(ls_state *state)
{
    for (ls_node *node = data_of(state)->open.next; node != &data_of(state)->open; node = node->next)
        ls_proxy_abandon(&LS_CONTAINER(node, proxy_call, node)->p);
}

static const luaL_Reg functions[] = {{"proxy_send", proxy_send},
                                     {"proxy_go_on", proxy_go_on},
                                     {"proxy_refuse", proxy_refuse},
                                     {"proxy_upstream", proxy_upstream},
                                     {"proxy_load", proxy_load},
                                     {"proxy_failed", proxy_failed},
                                     {"proxy_refused", proxy_refused},
                                     {"proxy_back", proxy_back},
                                     {"proxy_mark", proxy_mark},
                                     {"proxy_hash", proxy_hash},
                                     {NULL, NULL}};

const ls_module ls_proxy_module = {.name = "proxy",
                                   .bytes = sizeof(proxy_data),
                                   .functions = functions,
                                   .define = proxy_define,
                                   .close = proxy_close,
                                   .closed = proxy_closed,
                                   .abandon = proxy_abandon};
