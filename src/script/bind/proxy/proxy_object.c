/* proxy_object.c - a request of app:proxy: the task that waits while http/proxy.h moves its bytes.
 *
 * lua/luaserve/proxy.lua decides: it picks an upstream server, dials when no connection is idle, repeats what may be
 * repeated, and answers when nothing else does. A call belongs to the task that makes it: when the task ends first,
 * both connections are closed. Lua sees a call only while it is paused, by a handle that knows when the call has
 * ended. Thread: the one that holds the state's actor. */
#include "script/bind/proxy/proxy_object.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/proxy/peer.h"
#include "http/record.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/body.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/option.h"
#include "script/bind/sock/sock_object.h"
#include "script/core/lua/udata.h"
#include "script/core/runtime.h"

static const ls_object_type upstream_type = {.name = "upstream"};

enum { UPSTREAM_STRINGS = 4 }; /* user values that hold key, host, prefix and place */

typedef struct upstream {
    const void *tag;
    ls_peer *peer;
    const char *key, *host, *prefix, *place; /* host NULL: that of the client; place: see ls_proxy_place */
    size_t key_len, host_len, prefix_len, place_len;
    uint32_t timeout_ms, slow_ms;
    uint64_t body_bytes_max; /* of a request */
    bool pauses, checked;
} upstream;

typedef struct proxy_call { /* the room of the user of a proxy */
    ls_proxy *p;
    struct call_handle *handle; /* NULL: Lua has none */
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

typedef struct call_handle {
    const void *tag;
    proxy_call *call; /* NULL: it has ended */
} call_handle;

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
    ls_exchange *x = call->request->x;
    if (x != NULL) ls_record_upstream_end(x, ls_proxy_has_head(call->p) ? x->status : 0);
    if (state->port != NULL)
        ls_proxy_drop(state->ctx, call->p);
    else
        ls_proxy_abandon(call->p);
    if (call->handle != NULL) call->handle->call = NULL;
    ls_task_end_remove(&call->end);
    ls_list_remove(&call->node);
    atomic_fetch_sub(&call->peer->active, 1);
    ls_proxy_free(call->p);
}

static void task_ended(ls_task_end *end)
{
    call_free(LS_CONTAINER(end, proxy_call, end));
}

static void done(ls_thread_ctx *ctx, ls_proxy *p)
{
    proxy_call *call = ls_proxy_user(p);
    call->over = true;
    ls_task_wake(ctx, call->task, LS_OK);
}

/* The proxy reads no more of the body. */
static void release_body(const proxy_call *call)
{
    if (call->reads)
        call->request->in.state = ls_proxy_result_of(call->p).body_read ? LS_BODY_STREAMED : LS_BODY_UNREAD;
}

/* nil, message, code, whether the request may be sent again, whether the connection was used before. Raises when the
 * client is the reason. */
static int push_failure(lua_State *L, proxy_call *call)
{
    const ls_proxy_result p = ls_proxy_result_of(call->p);
    ls_request *r = call->request;
    const bool reused = call->reused, client = p.of_client;
    const bool left = client && r->x->error != 0;
    release_body(call);
    call_free(call);
    if (left) {
        r->task->client_is = LS_CLIENT_LEFT;
        return ls_task_left_error(L, "app:proxy: ");
    }
    if (client && r->x->response == LS_RESPONSE_NONE) return ls_body_failed(L, r, p.err);
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
        lua_pushboolean(L, p.unanswered);
    else
        lua_pushnil(L);
    lua_pushboolean(L, reused);
    return 5;
}

/* ---- the handle ------------------------------------------------------------------------------------------------- */

static int drop_handle(lua_State *L)
{
    const call_handle *handle = lua_touserdata(L, 1);
    if (handle->call != NULL) handle->call->handle = NULL;
    return 0;
}

static const ls_object_type call_type = {.name = "proxy call", .drop = drop_handle};

static int push_handle(lua_State *L, proxy_call *call)
{
    call_handle *handle = ls_object_push(L, sizeof *handle, 0, &call_type);
    handle->call = call;
    call->handle = handle;
    return 1;
}

static proxy_call *check_paused(lua_State *L, int index)
{
    const call_handle *handle = ls_object_check(L, index, sizeof *handle, &call_type);
    luaL_argcheck(L, handle->call != NULL && ls_proxy_is_paused(handle->call->p), index, "the call is not paused");
    return handle->call;
}

ls_proxy *ls_proxy_check_paused(lua_State *L, int index)
{
    return check_paused(L, index)->p;
}

/* ---- the result of a call --------------------------------------------------------------------------------------- */

static int push_result(lua_State *L, proxy_call *call)
{
    const ls_proxy_result result = ls_proxy_result_of(call->p);
    ls_task_limit(call->task, call->time_ms_max);
    if (ls_proxy_has_head(call->p)) ls_peer_answered(call->peer);
    if (ls_proxy_is_paused(call->p)) {
        /* The call that follows sets it again, but none follows an error of the site. */
        if (call->reads) call->request->in.state = LS_BODY_STREAMED;
        return push_handle(L, call);
    }
    if (result.err < 0 && !result.upgraded) return push_failure(L, call);
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
    ls_task_limit(call->task, 0);
    return ls_task_yield(L, LS_WAIT_WRITE, (lua_KContext)call, call_continue);
}

/* ---- the call --------------------------------------------------------------------------------------------------- */

static ls_text check_text(lua_State *L, int index)
{
    size_t len;
    const char *ptr = luaL_optlstring(L, index, NULL, &len);
    return (ls_text){ptr, ptr != NULL ? len : 0};
}

/* The connection of the sock at `index`, or an idle one. NULL: none. */
static ls_stream *take_stream(lua_State *L, int index, const ls_request *r, const upstream *u)
{
    const ls_http_head *head = &r->x->head;
    const bool repeats = !head->has_body && (head->method == LS_HTTP_GET || head->method == LS_HTTP_HEAD);
    if (lua_isnoneornil(L, index))
        return ls_stream_pool_take(r->state->ctx, ls_state_runtime(r->state)->streams, u->key, u->key_len, repeats);
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

/* core.proxy_send(res, upstream, sock|nil, strip, lines|nil, drops|nil, target|nil, pauses) -> true | call | false |
 * nil, message, code, whether the request may be sent again (nil: its response has begun), whether the connection was
 * used before. Sends the request of `res` to the upstream server and passes its response on. A call: the head of the
 * response was taken, see proxy_resume. Without a sock, an idle connection is taken; false: no connection is idle.
 * strip, lines, drops, target: see ls_proxy_change, ls_proxy_filter. */
static int proxy_send(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_state *state = r->state;
    const upstream *u = ls_object_check(L, 2, sizeof *u, &upstream_type);
    ls_proxy_change change = {.host = {u->host, u->host_len},
                              .prefix = {u->prefix, u->prefix_len},
                              .strip = (unsigned)luaL_checkinteger(L, 4),
                              .lines = check_text(L, 5),
                              .target = check_text(L, 7)};
    ls_task_may_wait(L);
    if (r->in.state != LS_BODY_UNREAD && r->in.state != LS_BODY_WHOLE)
        return luaL_error(L, "app:proxy: the body of the request was read already");
    r->x->body_bytes_max = u->body_bytes_max;
    if (r->in.state == LS_BODY_UNREAD && r->x->head.content_length > u->body_bytes_max)
        return ls_body_failed(L, r, LS_EMSGSIZE);
    if (!ls_proxy_path_stays(r->x, &change)) return push_unsent(L, state, u, NULL, LS_EINVAL);
    ls_proxy_options options = {.x = r->x,
                                .pool = ls_state_runtime(state)->streams,
                                .key = u->key,
                                .key_len = u->key_len,
                                .live = &data_of(state)->live,
                                .timeout_ms = u->timeout_ms,
                                .pauses = u->pauses || lua_toboolean(L, 8),
                                .place = {.url = {u->place, u->place_len}, .strip = change.strip},
                                .filter = {.drops = check_text(L, 6),
                                           .trusted = ls_request_trusting(r) != NULL,
                                           .told = ls_request_told(L, r)},
                                .done = done};
    if (r->in.state == LS_BODY_WHOLE) {
        options.given = r->in.slices;
        options.given_count = r->in.count;
        change.has_length = r->x->head.has_body;
        change.length = r->in.len;
        options.filter.decoded = r->in.decoder != NULL;
    }
    ls_proxy *p = ls_proxy_new(&options, sizeof(proxy_call));
    if (p == NULL) return luaL_error(L, "not enough memory");
    ls_stream *up = take_stream(L, 3, r, u);
    if (up == NULL) {
        ls_proxy_free(p);
        if (!lua_isnoneornil(L, 3)) return push_unsent(L, state, u, NULL, LS_ECLOSED);
        return ls_push_boolean(L, false);
    }
    if (r->x->recorder != NULL) {
        ls_addr peer;
        ls_stream_peer(up, &peer);
        ls_record_upstream_begin(state->ctx, r->x, &peer);
    }
    const int err = ls_proxy_start(state->ctx, p, up, &change);
    if (err < 0) {
        ls_record_upstream_end(r->x, 0);
        ls_proxy_free(p);
        return push_unsent(L, state, u, up, err);
    }
    proxy_call *call = ls_proxy_user(p);
    call->p = p;
    call->state = state;
    call->request = r;
    call->task = state->current;
    call->time_ms_max = call->task->time_ms_max;
    call->peer = u->peer;
    call->reused = lua_isnoneornil(L, 3);
    call->reads = r->in.state == LS_BODY_UNREAD && r->x->head.has_body;
    if (call->reads) r->in.state = LS_BODY_READING;
    call->end.run = task_ended;
    atomic_fetch_add(&u->peer->active, 1);
    ls_task_end_add(call->task, &call->end);
    ls_list_push(&data_of(state)->open, &call->node);
    return wait_for(L, call, err);
}

/* The call at index 2, of the request. */
static proxy_call *check_call_of(lua_State *L, const ls_request *r)
{
    proxy_call *call = check_paused(L, 2);
    luaL_argcheck(L, call->request == r && call->task == r->state->current, 2, "the call is of another request");
    return call;
}

/* core.proxy_resume(res, call) -> as proxy_send: pass the response on, with the status and the fields that res has
 * now. */
static int proxy_resume(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    proxy_call *call = check_call_of(L, r);
    ls_task_may_wait(L);
    r->status_set = true;
    return wait_for(L, call, ls_proxy_resume(r->state->ctx, call->p));
}

/* core.proxy_refuse(res, call [, if_described]) -> whether the response was dropped; with `if_described`, only if the hook
 * has described another one, which keeps its status and, as a redirect, its Location. Nothing else of it is in res. */
static int proxy_refuse(lua_State *L)
{
    const ls_request *r = ls_res_check_open(L);
    proxy_call *call = check_call_of(L, r);
    ls_exchange *x = r->x;
    const int status = x->status;
    size_t len = 0;
    if (lua_toboolean(L, 3) && r->answer == LS_ANSWER_NONE) return ls_push_boolean(L, false);
    const char *at = r->answer == LS_ANSWER_STATUS ? ls_exchange_find(x, "Location", 8, &len) : NULL;
    if (at != NULL) at = lua_pushlstring(L, at, len);
    ls_proxy_refuse(r->state->ctx, call->p);
    release_body(call);
    call_free(call);
    if (r->answer != LS_ANSWER_NONE) x->status = status;
    if (at != NULL && ls_exchange_header(r->state->ctx, x, "Location", 8, at, len, true) < 0)
        return luaL_error(L, "not enough memory");
    return ls_push_boolean(L, true);
}

/* ---- upstream servers ------------------------------------------------------------------------------------------- */

/* The field of the options, which user value `slot` of the upstream on the top keeps. */
static const char *keep_field(lua_State *L, const char *name, int slot, size_t *len)
{
    lua_pushstring(L, name);
    if (lua_rawget(L, 1) != LUA_TSTRING) {
        lua_pop(L, 1);
        return NULL;
    }
    const char *text = lua_tolstring(L, -1, len);
    (void)lua_setiuservalue(L, -2, slot);
    return text;
}

/* core.proxy_upstream(options) -> upstream. options.key: see net/stream/stream_pool.h; origin: the name of its peer;
 * host, prefix, place; timeout_ms, slow_ms, body_bytes_max, pauses, checked: see ls_peer_share. */
static int proxy_upstream(lua_State *L)
{
    static const ls_option options[] = {LS_OPTION(upstream, timeout_ms),     LS_OPTION(upstream, slow_ms),
                                        LS_OPTION(upstream, body_bytes_max), LS_OPTION(upstream, pauses),
                                        LS_OPTION(upstream, checked),        LS_OPTIONS_END};
    ls_state *state = ls_state_of(L);
    char before[LS_SHARED_WHERE_BYTES];
    ls_shared_object *object;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "origin");
    const char *origin = lua_tostring(L, -1);
    upstream *u = ls_object_push(L, sizeof *u, UPSTREAM_STRINGS, &upstream_type);
    ls_options_read(L, 1, options, u);
    u->key = keep_field(L, "key", 1, &u->key_len);
    u->host = keep_field(L, "host", 2, &u->host_len);
    u->prefix = keep_field(L, "prefix", 3, &u->prefix_len);
    u->place = keep_field(L, "place", 4, &u->place_len);
    luaL_argcheck(L, origin != NULL && u->key != NULL && u->prefix != NULL && u->place != NULL, 1,
                  "origin, key, prefix and place expected");
    if (ls_shared_get(ls_state_runtime(state)->shared, &ls_peer_kind, origin, "", NULL, &object, before) < 0)
        return luaL_error(L, "not enough memory");
    u->peer = (ls_peer *)(void *)object;
    return 1;
}

static upstream *check_upstream(lua_State *L)
{
    return ls_object_check(L, 1, sizeof(upstream), &upstream_type);
}

/* core.proxy_load(upstream) -> the number of its requests, the share of its weight (0: it is down), the end of the
 * time for which failed requests have taken it out, in ms; nil: its checks fail */
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

/* core.proxy_refused(upstream, count) -> see ls_peer_refused. */
static int proxy_refused(lua_State *L)
{
    return ls_push_integer(
        L, ls_peer_refused(check_upstream(L)->peer, ls_clock_coarse_ms(), (uint32_t)luaL_checkinteger(L, 2)));
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

static void proxy_close(ls_thread_ctx *ctx, ls_state *state)
{
    LS_LIST_EACH (const proxy_call, call, &data_of(state)->open, node)
        ls_proxy_drop(ctx, call->p); /* its task ends when it runs next */
}

static bool proxy_closed(ls_state *state)
{
    return atomic_load(&data_of(state)->live) == 0;
}

static void proxy_abandon(ls_state *state)
{
    LS_LIST_EACH (const proxy_call, call, &data_of(state)->open, node) ls_proxy_abandon(call->p);
}

/* core.proxy_said(req) -> the lines of what a trusted proxy says about the origin, but for X-Forwarded-Proto and -Host. */
static int proxy_said(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    const ls_proxy_filter filter = {.trusted = ls_request_trusting(r) != NULL, .told = {.any = true}};
    luaL_Buffer lines;
    luaL_buffinit(L, &lines);
    for (uint32_t n = 0; n < r->x->head.field_count; n++) {
        const ls_http_field *field = &r->x->head.fields[n];
        const char *const name = r->x->bytes + field->name.at;
        if (!ls_proxy_name_begins(name, field->name.len, "x-forwarded-", 12) ||
            !ls_proxy_passes(r->x, &filter, name, field->name.len))
            continue;
        luaL_addlstring(&lines, name, field->name.len);
        luaL_addstring(&lines, ": ");
        luaL_addlstring(&lines, r->x->bytes + field->value.at, field->value.len);
        luaL_addstring(&lines, "\r\n");
    }
    luaL_pushresult(&lines);
    return 1;
}

static const luaL_Reg functions[] = {
    {"proxy_send", proxy_send},         {"proxy_resume", proxy_resume}, {"proxy_refuse", proxy_refuse},
    {"proxy_upstream", proxy_upstream}, {"proxy_load", proxy_load},     {"proxy_failed", proxy_failed},
    {"proxy_refused", proxy_refused},   {"proxy_back", proxy_back},     {"proxy_mark", proxy_mark},
    {"proxy_hash", proxy_hash},         {"proxy_said", proxy_said},     {NULL, NULL}};

const ls_module ls_proxy_module = {.name = "proxy",
                                   .bytes = sizeof(proxy_data),
                                   .lists = true,
                                   .functions = functions,
                                   .close = proxy_close,
                                   .closed = proxy_closed,
                                   .abandon = proxy_abandon};
