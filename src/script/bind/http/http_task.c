/* http_task.c - a request in Lua: its task, the dispatch function, errors.
 *
 * All code that may raise runs inside the coroutine of the task, with http_main as its first function; there is no
 * other protected call around the handler. An error kills the coroutine. Then a second task runs the function
 * `failed`, or a 500 response is sent without Lua. */
#include "script/bind/http/http_task.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/io/log.h"
#include "codec/http_text.h"
#include "http/coding/coding_filter.h"
#include "http/exchange_run.h"
#include "script/bind/http/body.h"
#include "script/bind/http/http_result.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/http/site_listener.h"
#include "script/bind/tasks/hooks.h"
#include "script/core/lua/error_text.h"
#include "script/core/lua/push.h"

/* ---- inside the task --------------------------------------------------------------------------------------- */

/* Push the third argument of the "log" hooks.
 * info is a LogInfo: what a hook of "log" receives.
 * info.status: integer - status of the response; 0: none was begun
 * info.bytes: integer - bytes of the body that were passed to the connection
 * info.duration: number - seconds from the start of the handler to the end of the response */
static void push_log_info(lua_State *L, const ls_request *r)
{
    lua_createtable(L, 0, 3);
    ls_set_integer(L, "status", r->x->response != LS_RESPONSE_NONE ? r->x->status : 0);
    ls_set_integer(L, "bytes", (lua_Integer)ls_exchange_body_sent(r->x));
    lua_pushnumber(L, (double)(ls_clock_ns() - r->began_ns) / 1e9);
    lua_setfield(L, -2, "duration");
}

/* Run the ls.on("log") hooks. Each is protected: an error in a hook is only logged. */
static void run_log_hooks(lua_State *L, ls_request *r)
{
    const ls_state *state = r->state;
    push_log_info(L, r);
    const int info = lua_gettop(L);
    for (unsigned n = 0; n < ls_hooks_of(state)->at[LS_HOOK_LOG].count && r->x != NULL; n++) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, ls_hooks_of(state)->at[LS_HOOK_LOG].refs[n]);
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        lua_pushvalue(L, info);
        if (lua_pcall(L, 3, 0, 0) != LUA_OK) {
            char name[LS_REQUEST_NAME_BYTES];
            ls_request_log_name(r->x, name);
            ls_log(LS_LOG_ERROR, "%s: in a \"log\" hook: %s", name, ls_error_describe(L, lua_gettop(L)));
            lua_pop(L, 2);
        }
    }
}

static int http_done(lua_State *L, ls_request *r)
{
    if (ls_hooks_of(r->state)->at[LS_HOOK_LOG].count > 0) run_log_hooks(L, r);
    return 0;
}

static int http_finish_parts(lua_State *L, ls_request *r)
{
    ls_exchange *x = r->x;
    (void)ls_request_push_parts(r->state->ctx, r);
    if (x->length >= 0 && (uint64_t)x->length != r->out.written && x->error == 0 && !x->no_body)
        return luaL_error(L, "Content-Length is %I, but the handler wrote %I bytes", (lua_Integer)x->length,
                          (lua_Integer)r->out.written);
    (void)ls_exchange_finish(r->state->ctx, x);
    return http_done(L, r);
}

/* The handler has returned: its results start at LS_HTTP_RESULT. */
static int http_returned(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = (ls_request *)context; /* NOLINT(performance-no-int-to-ptr) */
    if (status != LUA_OK && status != LUA_YIELD) return lua_error(L);
    r->returned = true;
    if (ls_request_has_begun(r)) {
        if (r->owned != NULL && r->kind->returned != NULL) r->kind->returned(r->state->ctx, r->owned);
        ls_http_result_unused(L, r);
        lua_settop(L, LS_HTTP_RESULT - 1);
    } else {
        ls_http_result_respond(L, r);
    }
    if (r->x->response == LS_RESPONSE_DONE) return http_done(L, r);
    return ls_coding_filter_waits(r->x) ? ls_response_coding_finish(L, r, http_done) : http_finish_parts(L, r);
}

/* Push the function for the path of a GET that needs no dispatch. false: nothing was pushed. */
static bool push_get(lua_State *L, const ls_state *state, const ls_exchange *x)
{
    const ls_site_handler *h = (const ls_site_handler *)(const void *)x->handler;
    if (x->head.method != LS_HTTP_GET || h == NULL || ls_listeners_of(state)->at[h->index].gets_ref == LUA_REFNIL ||
        ls_body_is_too_large(x))
        return false;
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_listeners_of(state)->at[h->index].gets_ref);
    ls_request_push_path(L, x);
    if (lua_rawget(L, -2) == LUA_TFUNCTION) {
        lua_replace(L, -2);
        return true;
    }
    lua_pop(L, 2);
    return false;
}

static int http_main(lua_State *L) /* (exchange as light userdata); task->protects */
{
    ls_exchange *x = lua_touserdata(L, 1);
    ls_state *state = ls_state_of(L);
    ls_task *task = state->current;
    ls_request *r = ls_request_take(L, x);

    x->task = r;
    x->status = 200;
    if (ls_listeners_of(state)->trusts) ls_request_take_trusted(L, r);
    if (x->recorder != NULL && x->handler != NULL && ls_slow_ms_of(x->handler) > 0)
        ls_request_measure(r, ls_slow_ms_of(x->handler));
    lua_pushcfunction(L, ls_task_keep_error);
    lua_replace(L, 1);
    const bool found = push_get(L, state, x);
    if (!found) lua_rawgeti(L, LUA_REGISTRYINDEX, task->dispatch_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
    if (!found) {
        ls_request_push_method(L, x);
        ls_request_push_path(L, x);
        lua_pushboolean(L, ls_body_is_too_large(x));
    }
    return http_returned(L, lua_pcallk(L, found ? 2 : 5, LUA_MULTRET, 1, (lua_KContext)r, http_returned),
                         (lua_KContext)r);
}

static int http_failed_main(lua_State *L) /* (request as light userdata, error, traceback) */
{
    ls_request *r = lua_touserdata(L, 1);
    r->returned = false;
    r->chain.place = NULL;
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_replace(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->state->current->failed_ref);
    lua_insert(L, 2);
    lua_pushvalue(L, 1);
    lua_insert(L, 3);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
    lua_insert(L, 4);
    lua_callk(L, 4, LUA_MULTRET, (lua_KContext)r, http_returned);
    return http_returned(L, LUA_OK, (lua_KContext)r);
}

/* ---- after the task ---------------------------------------------------------------------------------------- */

typedef struct http_failure {
    ls_state *state;
    ls_exchange *x;
    ls_request *request;
    ls_task *task;           /* dead, its error on top; NULL: out of memory, and the task is freed */
    const ls_task *exceeded; /* the task, if it has exceeded the limit of CPU time and is not freed */
    int dispatch_ref;
    bool retry;     /* create a task for `failed` */
    bool unreached; /* a database */
    ls_task *next;
    char refused[LS_REFUSED_BYTES]; /* not "": the handler refused the request's body, for this reason */
} http_failure;

bool ls_route_push(lua_State *L, int dispatch_ref, const ls_exchange *x, bool failing)
{
    const int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "luaserve.router") == LUA_TTABLE && lua_getfield(L, -1, "name") == LUA_TFUNCTION) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, dispatch_ref);
        ls_request_push_method(L, x);
        ls_request_push_path(L, x);
        lua_pushboolean(L, failing);
        if (x->head.host.len > 0)
            lua_pushlstring(L, x->bytes + x->head.host.at, x->head.host.len);
        else
            lua_pushnil(L);
        if (lua_pcall(L, 5, 2, 0) == LUA_OK && lua_type(L, -2) == LUA_TSTRING) {
            lua_rotate(L, top + 1, 2);
            lua_settop(L, top + 2);
            return true;
        }
    }
    lua_settop(L, top);
    return false;
}

void ls_http_name_route(lua_State *L, const ls_request *r, int index, int dispatch_ref)
{
    if (lua_type(L, index) != LUA_TSTRING) return;
    if (r->chain.place != NULL) {
        lua_pushfstring(L, "%s: %s", r->chain.place, lua_tostring(L, index));
        lua_replace(L, index);
        return;
    }
    if (!ls_route_push(L, dispatch_ref, r->x, r->failing)) return;
    lua_pushfstring(L, "%s: %s: %s", lua_tostring(L, -1), lua_tostring(L, -2), lua_tostring(L, index));
    lua_replace(L, index);
    lua_pop(L, 2);
}

bool ls_http_is_unreached(lua_State *L, int index, const ls_exchange *x, int dispatch_ref, bool failing)
{
    bool unreached;
    if (!ls_error_is_failure(L, index, &unreached)) return false;
    lua_pushliteral(L, "where");
    if (lua_rawget(L, index) == LUA_TNIL && ls_route_push(L, dispatch_ref, x, failing)) {
        lua_pushliteral(L, "where"); /* a tail call has left no line of the site */
        lua_insert(L, -2);
        lua_rawset(L, index);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return unreached;
}

void ls_http_push_exceeded(lua_State *L, const ls_task *task, const ls_exchange *x, bool failing)
{
    const int top = lua_gettop(L) + 1;
    const char *route = NULL;
    if (ls_route_push(L, task->dispatch_ref, x, failing))
        route = lua_pushfstring(L, "%s (%s)", lua_tostring(L, -2), lua_tostring(L, -1));
    (void)ls_task_push_exceeded(L, task, route);
    lua_insert(L, top);
    lua_settop(L, top);
}

/* Whether the error at `index` is that of a body which req:json or req:form refused. Copies the reason. */
static bool body_was_refused(lua_State *L, const ls_request *r, int index, char *out, size_t out_bytes)
{
    size_t len, reason_len;
    bool refused = false;
    if ((r->filled & 1u << LS_REQ_REFUSED) == 0 || lua_type(L, index) != LUA_TSTRING) return false;
    const char *text = lua_tolstring(L, index, &len);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_getiuservalue(L, -1, LS_REQ_REFUSED);
    const char *reason = lua_tolstring(L, -1, &reason_len);
    if (reason != NULL && len >= reason_len && memcmp(text + len - reason_len, reason, reason_len) == 0) {
        (void)snprintf(out, out_bytes, "%s", reason);
        refused = true;
    }
    lua_pop(L, 2);
    return refused;
}

static int http_describe(lua_State *L)
{
    http_failure *f = lua_touserdata(L, 1);
    const ls_request *r = f->request;
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(f->x, name);
    lua_settop(L, 0);
    if (f->exceeded != NULL)
        ls_http_push_exceeded(L, f->exceeded, f->x, r != NULL && r->failing);
    else if (f->task != NULL)
        lua_xmove(f->task->co, L, 1);
    else
        lua_pushliteral(L, "not enough memory");
    if (f->task != NULL && r != NULL && r->returned) ls_http_name_route(L, r, 1, f->dispatch_ref);
    const char *message = ls_error_describe(L, 1);
    if (f->exceeded != NULL && ls_task_is_canceled(f->exceeded)) {
        ls_log(LS_LOG_INFO, "%s: %s", name, lua_tostring(L, 1));
        return 0;
    }
    const bool left = ls_task_is_left_error(L, 1);
    if (!left && r != NULL && r->in.error != LS_OK) {
        ls_request_log_refused(L, r, ls_body_status(r->in.error), message);
        return 0;
    }
    if (left || (r != NULL && f->retry && body_was_refused(L, r, 1, f->refused, sizeof f->refused))) {
        ls_log(LS_LOG_INFO, "%s: %s", name, message);
        return 0;
    }
    if (f->task != NULL && (r == NULL || !r->returned)) /* else no function of the site is active */
        ls_task_push_traceback(L, f->task, message);
    else
        lua_pushvalue(L, 2);
    f->unreached = ls_http_is_unreached(L, 1, f->x, f->dispatch_ref, r != NULL && r->failing);
    ls_error_log(L, 1, name, lua_tostring(L, 3));
    if (!f->retry) return 0;

    ls_task *next = ls_task_take(L, f->state);
    lua_pushcfunction(next->co, http_failed_main);
    lua_pushlightuserdata(next->co, f->request);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_xmove(L, next->co, 2);
    f->next = next;
    return 0;
}

int ls_http_client_mistake(lua_State *L, const ls_request *r, int index, char *reason, size_t reason_bytes)
{
    if (r->in.error != LS_OK) return ls_body_status(r->in.error);
    return body_was_refused(L, r, index, reason, reason_bytes) ? r->in.refused : 0;
}

/* Respond without Lua. The body is `line`, short and without a line break; JSON if it begins with a brace. */
static void respond_without_lua(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *line)
{
    ls_slice text[] = {ls_slice_static(line, strlen(line)), ls_slice_static("\n", 1)};
    ls_exchange_drop_content(x);
    x->status = status;
    x->type = *line == '{' ? ls_type_json : "text/plain; charset=utf-8";
    (void)ls_exchange_respond(ctx, x, text, 2);
}

static void http_end(ls_thread_ctx *ctx, ls_exchange *x, ls_request *r)
{
    if (x->recorder != NULL) ls_request_measured(x);
    if (r != NULL) ls_request_release(ctx, r);
    x->task = NULL;
    ls_exchange_release(ctx, x);
}

/* Runs the "log" hooks for a response that was made without Lua. */
static int log_hooks_main(lua_State *L)
{
    run_log_hooks(L, lua_touserdata(L, 1));
    return 0;
}

static void log_hooks_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_exchange *x = task->owner;
    ls_request *r = task->client;
    ls_task_release(ctx, task, status == LUA_OK);
    http_end(ctx, x, r);
}

/* Take a task that runs the "log" hooks; it needs an owner and an end. NULL: no hooks, or out of memory. */
static ls_task *take_log_task(ls_thread_ctx *ctx, ls_request *r)
{
    ls_task *task;
    if (r == NULL || ls_hooks_of(r->state)->at[LS_HOOK_LOG].count == 0 ||
        (task = ls_task_take_outside(r->state, ctx)) == NULL)
        return NULL;
    ls_task_enter(task, LS_SCOPE_REQUEST);
    task->client = r;
    task->client_is = LS_CLIENT_IGNORED;
    task->serial = r->serial;
    r->task = task;
    lua_pushcfunction(task->co, log_hooks_main);
    lua_pushlightuserdata(task->co, r);
    return task;
}

static void http_end_logged(ls_thread_ctx *ctx, ls_exchange *x, ls_request *r)
{
    ls_task *task = take_log_task(ctx, r);
    if (task == NULL) {
        http_end(ctx, x, r);
        return;
    }
    task->ended = log_hooks_ended;
    task->owner = x;
    ls_task_run(ctx, task, 1);
}

/* Log the error of the task, take a task for `failed` if f->retry, and release the task. */
static void report(ls_thread_ctx *ctx, ls_task *task, http_failure *f)
{
    const int described = ls_state_report(f->state, ctx, http_describe, f);
    ls_task_release(ctx, task, false);
    if (described == LUA_OK) return;
    f->task = NULL;
    f->exceeded = NULL;
    if (ls_state_report(f->state, ctx, http_describe, f) == LUA_OK) return;
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(f->x, name);
    ls_log(LS_LOG_ERROR, "%s: not enough memory", name);
}

ls_task *ls_http_task_failed(ls_thread_ctx *ctx, ls_task *task, ls_exchange *x)
{
    ls_request *r = task->client;
    http_failure f = {.state = task->state,
                      .x = x,
                      .request = r,
                      .task = task,
                      .exceeded = task->cpu_exceeded ? task : NULL,
                      .dispatch_ref = task->dispatch_ref};
    report(ctx, task, &f);
    return take_log_task(ctx, r);
}

static void http_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    ls_exchange *x = task->owner;
    ls_request *r = task->client;
    if (status == LUA_OK) {
        ls_task_release(ctx, task, true);
        http_end(ctx, x, r);
        return;
    }

    const int dispatch_ref = task->dispatch_ref, failed_ref = task->failed_ref;
    int failure_status = task->ending >= LS_END_TIMEOUT ? 503 : 500;
    http_failure f = {.state = task->state,
                      .x = x,
                      .request = r,
                      .task = task,
                      .exceeded = task->cpu_exceeded ? task : NULL,
                      .dispatch_ref = dispatch_ref};
    f.retry = r != NULL && !r->failing && x->response == LS_RESPONSE_NONE && x->error == 0 && r->in.error == LS_OK;
    report(ctx, task, &f);
    if (f.unreached) failure_status = 503;
    if (x->response == LS_RESPONSE_OPEN) {
        x->close = true; /* part of the response is sent: closing the connection shows that it is incomplete */
    } else if (x->error != 0 && x->response == LS_RESPONSE_NONE && r != NULL && r->in.error != LS_OK) {
        x->status = ls_body_status(r->in.error); /* for the "log" hooks */
    } else if (x->response == LS_RESPONSE_NONE && x->error == 0) {
        if (r != NULL && f.next != NULL) {
            ls_exchange_drop_content(x);
            x->status = failure_status;
            r->failing = true;
            r->status_set = false;
            ls_request_drop_parts(r);
            ls_request_drop_answer(r);
            r->out.written = 0;
            r->task = f.next;
            ls_task_enter(f.next, LS_SCOPE_REQUEST);
            f.next->ended = http_ended;
            f.next->owner = x;
            f.next->client = r;
            f.next->serial = r->serial;
            f.next->dispatch_ref = dispatch_ref;
            f.next->failed_ref = failed_ref;
            ls_task_run(ctx, f.next, 3);
            return;
        }
        int answer = failure_status;
        if (r != NULL && r->in.error != LS_OK) {
            x->close = true;
            answer = ls_body_status(r->in.error);
        } else if (f.refused[0] != '\0') {
            answer = r->in.refused;
        }
        respond_without_lua(ctx, x, answer, f.refused[0] != '\0' ? f.refused : ls_status_text(answer));
    }
    http_end_logged(ctx, x, r);
}

static void owner_ended(ls_thread_ctx *ctx, ls_task *task, int status, int count)
{
    const ls_request *r = task->client;
    if (r->owned != NULL) r->kind->drop(ctx, r->owned);
    http_ended(ctx, task, status, count);
}

void ls_http_task_owns(ls_request *request, void *owned, const ls_response_kind *kind)
{
    request->owned = owned;
    request->kind = kind;
    request->task->ended = owner_ended;
    request->time_ms_max = request->task->time_ms_max;
    ls_task_limit(request->task, 0);
}

/* ---- start ------------------------------------------------------------------------------------------------- */

void ls_http_task_start(ls_thread_ctx *ctx, ls_state *state, ls_exchange *x, int dispatch_ref, int failed_ref,
                        uint32_t time_ms_max)
{
    ls_task *task = ls_task_take_outside(state, ctx);
    x->actor = &state->actor;
    x->task = NULL;
    x->wake = ls_request_wake;
    if (task == NULL) {
        ls_log(LS_LOG_ERROR, "not enough memory to run a request");
        respond_without_lua(ctx, x, 500, ls_status_text(500));
        ls_exchange_release(ctx, x);
        return;
    }
    ls_task_enter(task, LS_SCOPE_REQUEST);
    task->ended = http_ended;
    task->protects = true;
    task->owner = x;
    task->dispatch_ref = dispatch_ref;
    task->failed_ref = failed_ref;
    task->time_ms_max = time_ms_max;
    lua_pushcfunction(task->co, http_main);
    lua_pushlightuserdata(task->co, x);
    ls_task_run(ctx, task, 1);
}

/* The log has one line per LOG_MS about it. */
static void log_refusal(ls_generation *g)
{
    enum { LOG_MS = 10000 };
    const uint64_t now_ms = ls_clock_coarse_ms();
    uint64_t last_ms = atomic_load_explicit(&g->refused_ms, memory_order_relaxed);
    if ((last_ms > 0 && now_ms - last_ms < LOG_MS) ||
        !atomic_compare_exchange_strong(&g->refused_ms, &last_ms, now_ms))
        return;
    if (ls_generation_has_memory(g))
        ls_log(LS_LOG_WARN, "%u handlers compute or block, which is threads_max of ls.config: requests get 503",
               g->states_max);
    else
        ls_log(LS_LOG_WARN, "the Lua states have reached max_states_memory of ls.config: requests that need a further "
                            "state get 503");
}

LS_NOINLINE static void refuse(ls_thread_ctx *ctx, ls_generation *g, ls_exchange *x)
{
    static const char retry_after[] = "Retry-After: 1\r\n";
    log_refusal(g);
    (void)ls_exchange_lines(ctx, x, retry_after,
                            sizeof retry_after - 1); /* the answer goes without it if no memory is left */
    respond_without_lua(ctx, x, 503, ls_status_text(503));
    ls_exchange_release(ctx, x);
}

void ls_http_handler_start(const ls_http_handler *handler, ls_thread_ctx *ctx, ls_exchange *x)
{
    const ls_site_handler *h = (const ls_site_handler *)(const void *)handler;
    ls_state *state = x->actor != NULL ? ls_state_of_actor(x->actor) : NULL;
    const ls_span path = x->head.path;
    if (state != NULL) {
        ls_state_begin_request(ctx, state); /* it has waited for the state */
    } else if ((state = ls_generation_enter_own(h->generation, ctx, x->bytes + path.at, path.len)) == NULL) {
        if (ls_generation_is_full(h->generation))
            refuse(ctx, h->generation, x);
        else
            x->actor = &ls_generation_busy_state(h->generation, ctx)->actor;
        return;
    }
    assert(state->generation == h->generation);
    const ls_state_listener *listener = &ls_listeners_of(state)->at[h->index];
    ls_http_task_start(ctx, state, x, listener->dispatch_ref, listener->failed_ref, h->time_ms_max);
}
