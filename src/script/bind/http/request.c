/* request.c - see request.h. */
#include "script/bind/http/request.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "http/exchange_memory.h"
#include "http/record.h"
#include "script/bind/bind_aux.h"
#include "script/bind/tasks/hooks.h"
#include "script/core/lua/udata.h"
#include "script/core/mute.h"

const char ls_request_tag;
static const char response_tag;

/* The task that responds has ended: its end has passed on all parts, or drops them after an error. */
static void request_flush(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    ls_request *r = LS_CONTAINER(flush, ls_request, out.flush);
    if (r->x == NULL || (!suspended && state->current == r->task)) return;
    (void)ls_request_push_parts(ctx, r);
    /* Other tasks may wait for the exchange, while a topic or a job has written. */
    if (r->x->response == LS_RESPONSE_OPEN && ls_exchange_flush(ctx, r->x) < 0 && !ls_list_empty(&r->waiters))
        ls_task_wake_all(ctx, &r->waiters, LS_OK);
}

/* ---- the ring ---------------------------------------------------------------------------------------------- */

static ls_request *request_new(lua_State *L, ls_state *state)
{
    const ls_requests *all = ls_requests_of(state);
    ls_request *r = ls_object_new(L, sizeof *r, LS_REQ_SLOTS - 1, &ls_request_tag, all->req_meta_ref);
    r->state = state;
    r->req_ref = r->res_ref = LUA_NOREF;
    r->out.flush.run = request_flush;
    ls_node_init(&r->waiters);
    ls_response *response = ls_object_new(L, sizeof *response, LS_RES_SLOTS - 1, &response_tag, all->res_meta_ref);
    response->request = r;
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, LS_RES_REQ);

    /* If the second luaL_ref raises, the first keeps an unreachable pair alive: accepted, the state is out of
     * memory. */
    const int res_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    r->req_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    r->res_ref = res_ref;
    return r;
}

ls_request *ls_request_take(lua_State *L, ls_exchange *x)
{
    ls_state *state = ls_state_of(L);
    ls_requests *all = ls_requests_of(state);
    ls_task *task = state->current;
    ls_request *r;
    if (all->ring_count >= LS_REQUESTS_RING) {
        r = all->ring[all->ring_at];
        all->ring_at = (all->ring_at + 1) % LS_REQUESTS_FREE_MAX;
        all->ring_count--;
    } else {
        r = request_new(L, state);
    }
    assert(r->x == NULL && r->out.block == NULL);
    r->x = x;
    r->task = task;
    r->serial = ++all->serial;
    r->status_set = r->failing = r->returned = r->aborted = r->hung_up = false;
    r->no_file = 0;
    r->began_ns = ls_hooks_of(state)->at[LS_HOOK_LOG].count > 0 ? ls_clock_ns() : 0;
    r->in.state = LS_BODY_UNREAD;
    r->kind = NULL;
    r->in.error = LS_OK;
    r->time_ms_max = 0;
    r->out.written = 0;
    r->chain.runs = false;
    r->chain.place = NULL;
    r->dispatch_ref = task->dispatch_ref;
    task->client = r;
    task->serial = r->serial;
    return r;
}

/* Invalidate the objects, wake the waiters, and drop all references. */
static inline void end(ls_thread_ctx *ctx, ls_request *r)
{
    const ls_state *state = r->state;
    assert(r->x != NULL);
    r->x = NULL;
    r->task = NULL;
    if (r->in.slices != NULL) ls_body_in_drop(&r->in);
    if (r->in.decoder != NULL) {
        r->in.decoder->drop(r->in.decoder);
        r->in.decoder = NULL;
    }
    if (r->answer != LS_ANSWER_NONE) ls_request_drop_answer(r);
    ls_request_drop_parts(r);
    lua_State *L = state->L; /* nothing here allocates */
    if (r->has_body) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        lua_pushnil(L);
        lua_setiuservalue(L, -2, LS_RES_ANSWER);
        lua_pop(L, 1);
        r->has_body = false;
    }
    if (r->filled != 0) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
        for (int n = 1; r->filled >> n != 0; n++) {
            if ((r->filled & 1u << n) == 0) continue;
            lua_pushnil(L);
            lua_setiuservalue(L, -2, n);
        }
        lua_pop(L, 1);
        r->filled = 0;
    }
    if (!ls_list_empty(&r->waiters)) ls_task_wake_all(ctx, &r->waiters, LS_OK);
}

static void unref_objects(ls_request *r)
{
    ls_request_release_res(r);
    luaL_unref(r->state->L, LUA_REGISTRYINDEX, r->req_ref);
}

void ls_request_release(ls_thread_ctx *ctx, ls_request *r)
{
    ls_requests *all = ls_requests_of(r->state);
    end(ctx, r);
    if (all->ring_count < LS_REQUESTS_FREE_MAX) {
        all->ring[(all->ring_at + all->ring_count) % LS_REQUESTS_FREE_MAX] = r;
        all->ring_count++;
    } else {
        unref_objects(r);
    }
}

void ls_request_release_res(ls_request *r)
{
    luaL_unref(r->state->L, LUA_REGISTRYINDEX, r->res_ref);
    r->res_ref = LUA_NOREF;
}

void ls_request_release_alone(ls_thread_ctx *ctx, ls_request *r)
{
    end(ctx, r);
    unref_objects(r);
}

/* The time of the handler starts again. When the client has left, a handler without a limit, such as that of a stream
 * of events, has the limit of the others: it may not notice. */
static void watch(const ls_request *r, const ls_exchange *x)
{
    ls_task *task = r->task;
    if (x->error == 0) {
        ls_task_progress(task);
    } else if (task->time_ms_max == 0 && r->time_ms_max != 0 && !ls_exchange_upgraded(x)) {
        ls_task_limit(task, r->time_ms_max);
    }
}

/* Note whether the client has left before the response was complete. true: its task waits for what it cannot answer.
 * Not after an error of the handler's own: res:abort, another length than announced. */
static bool client_left(const ls_request *r)
{
    const int err = r->x->error;
    if (err == 0 || err == LS_EMSGSIZE || r->hung_up || r->task->client_is == LS_CLIENT_IGNORED ||
        r->x->response == LS_RESPONSE_DONE)
        return false;
    r->task->client_is = LS_CLIENT_LEFT;
    return ls_task_was_left(r->task) && r->task->waiting;
}

static void expect_end(ls_thread_ctx *ctx, ls_task *task)
{
    const ls_request *r = task->client;
    ls_exchange *x = r->x;
    if (x == NULL || r->task != task) return;
    if (x->response != LS_RESPONSE_DONE) (void)ls_exchange_expect_end(ctx, x);
    (void)client_left(r);
}

void ls_request_wake(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_request *r = x->task;
    if (r == NULL || r->x != x) return;
    ls_task *task = r->task;
    if (task != NULL) watch(r, x);
    const bool left = task != NULL && client_left(r);
    ls_task_wake_all(ctx, &r->waiters, LS_OK); /* may end the request, but not one whose task waits elsewhere */
    if (left) ls_task_wake(ctx, task, LS_ERESET);
}

void ls_request_tell_left(const ls_state *state)
{
    ls_task *task = state->current;
    ls_request *r = task != NULL ? task->client : NULL;
    if (r == NULL || r->task != task) return;
    r->hung_up = true;
    task->client_is = LS_CLIENT_IGNORED;
}

int ls_request_wait(lua_State *L, ls_request *r, lua_KContext context, lua_KFunction k)
{
    ls_task_may_wait(L);
    ls_list_push(&r->waiters, &r->state->current->wait_node);
    return ls_task_yield(L, LS_WAIT_WRITE, context, k);
}

/* ---- access ------------------------------------------------------------------------------------------------ */

static void request_refuse(lua_State *L, const ls_request *r)
{
    if (r->x == NULL)
        luaL_error(L, "request object used after its request ended; copy the values that are needed later");
    const ls_exchange *x = r->x;
    ls_request_push_method(L, x);
    if (x->head.path_is_root)
        lua_pushliteral(L, "/");
    else
        lua_pushlstring(L, x->bytes + x->head.path.at, x->head.path.len < 200 ? x->head.path.len : 200);
    luaL_error(
        L,
        "request object used outside its request: it belongs to %s %s, which is still running; only the handler "
        "of that request, and jobs that it starts with ls.spawn, may use it",
        lua_tostring(L, -2), lua_tostring(L, -1));
}

static ls_request *request_live(lua_State *L, ls_request *r)
{
    const ls_task *task = r->state->current;
    if (r->x == NULL || task == NULL || task->serial != r->serial) request_refuse(L, r);
    return r;
}

ls_request *ls_request_check_req(lua_State *L, int index)
{
    return request_live(L, ls_udata_check(L, index, &ls_request_tag, sizeof(ls_request), "request"));
}

ls_request *ls_request_check_res(lua_State *L, int index)
{
    const ls_response *response = ls_udata_check(L, index, &response_tag, sizeof *response, "response");
    return request_live(L, response->request);
}

ls_request *ls_response_test(lua_State *L, int index)
{
    const ls_response *response = ls_udata_test(L, index, &response_tag, sizeof *response);
    return response != NULL ? response->request : NULL;
}

ls_request *ls_request_of_res(lua_State *L, int index)
{
    const ls_response *response = lua_touserdata(L, index);
    ls_request *r = response->request;
    const ls_task *task = r->state->current;
    return r->x != NULL && task != NULL && task->serial == r->serial ? r : NULL;
}

void ls_request_cache(lua_State *L, ls_request *r, int self, int slot)
{
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, self, slot);
    r->filled |= 1u << slot;
}

bool ls_request_cached(lua_State *L, const ls_request *r, int self, int slot)
{
    if ((r->filled & 1u << slot) == 0) return false;
    lua_getiuservalue(L, self, slot);
    return true;
}

void ls_request_id_text(uint64_t id, char out[17])
{
    for (int n = 15; n >= 0; n--, id >>= 4) out[n] = "0123456789abcdef"[id & 15];
    out[16] = '\0';
}

/* The next line of the log is about this request. */
static void log_about(const ls_exchange *x, bool all)
{
    char id[17];
    if (!ls_log_is_json()) return;
    ls_request_id_text(x->id, id);
    const ls_span named = x->id_field > 0 ? x->head.fields[x->id_field - 1].value : (ls_span){0};
    ls_log_about(named.len > 0 ? x->bytes + named.at : id, named.len > 0 ? named.len : 16, all);
}

void ls_request_log_name(const ls_exchange *x, char out[LS_REQUEST_NAME_BYTES])
{
    log_about(x, false);
    const ls_http_head *head = &x->head;
    char id[17];
    size_t at;
    ls_request_id_text(x->id, id);
    const ls_span named = x->id_field > 0 ? head->fields[x->id_field - 1].value : (ls_span){0};
    at = (size_t)snprintf(out, LS_REQUEST_NAME_BYTES, "request %.*s %.*s ", named.len > 0 ? (int)named.len : 16,
                          named.len > 0 ? x->bytes + named.at : id,
                          head->method_name.len < 20 ? (int)head->method_name.len : 20,
                          x->bytes + head->method_name.at);
    if (head->path_is_root || head->path.len == 0)
        (void)snprintf(out + at, LS_REQUEST_NAME_BYTES - at, "/");
    else
        (void)snprintf(out + at, LS_REQUEST_NAME_BYTES - at, "%.*s%s",
                       head->path.len < 180 ? (int)head->path.len : 180, x->bytes + head->path.at,
                       head->path.len < 180 ? "" : "...");
}

bool ls_is_injected(const ls_exchange *x)
{
    return ls_exchange_transport(x) == &ls_memory_transport;
}

const char *ls_no_upgrade(const ls_exchange *x)
{
    return ls_is_injected(x) ? "app:inject has no connection to hand over" : x->transport->no_upgrade;
}

void ls_request_methods(lua_State *L, int meta_ref, const luaL_Reg *methods)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, meta_ref);
    lua_getfield(L, -1, "__index");
    (void)lua_getupvalue(L, -1, 1);
    ls_set_calls(L, methods);
    lua_pop(L, 3);
}

/* ---- slow requests ---------------------------------------------------------------------------------------------- */

static ls_task_times *times_of(const ls_exchange *x)
{
    _Static_assert(sizeof(ls_task_times) <= sizeof((ls_record_more *)0)->room, "they fit");
    ls_record_more *more = x->recorder != NULL && x->record_more != NULL ? (void *)x->record_more->data : NULL;
    return more != NULL && more->slow_ms > 0 ? (void *)more->room : NULL;
}

void ls_request_measure(ls_request *r, uint32_t ms)
{
    ls_record_more *more = ls_record_more_of(r->state->ctx, r->x);
    if (more == NULL) return;
    more->slow_ms = ms;
    r->task->times = ms > 0 ? (void *)more->room : NULL;
    ls_task_times *times = times_of(r->x);
    if (times != NULL && times->began_ns == 0) times->began_ns = ls_clock_ns();
}

void ls_request_measured(const ls_exchange *x)
{
    ls_task_times *times = times_of(x);
    if (times != NULL) times->ended_ns = ls_clock_ns();
}

static void slow_ended(ls_record_sink *sink, ls_thread_ctx *ctx, const ls_record *record)
{
    const ls_task_times *t = record->x != NULL ? times_of(record->x) : NULL;
    char name[LS_REQUEST_NAME_BYTES], line[400], host[LS_ADDR_TEXT_BYTES];
    if (t == NULL || t->ended_ns == 0 ||
        record->ended_ns - record->began_ns < record->more->slow_ms * UINT64_C(1000000))
        return;
    ls_request_log_name(record->x, name);
    const uint64_t ran_ns = t->ended_ns - t->began_ns - t->waited_ns;
    line[0] = '\0';
    if (t->waited_ns > 0)
        (void)snprintf(line, sizeof line, ", waited for %.3f s (%.3f s at %s)", (double)t->waited_ns / 1e9,
                       (double)t->longest_ns / 1e9, t->longest[0] != '\0' ? t->longest : "?");
    ls_log(LS_LOG_WARN,
           "%s of %s: slow: %.3f s, status %d, route %s: queued for %.3f s, ran for %.3f s%s, was sent in %.3f s",
           name, record->client != NULL ? ls_addr_logged(record->client, host) : "-",
           (double)(record->ended_ns - record->began_ns) / 1e9, record->status,
           record->route != NULL ? record->route->pattern : "-", (double)(t->began_ns - record->began_ns) / 1e9,
           (double)ran_ns / 1e9, line, (double)(record->ended_ns - t->ended_ns) / 1e9);
}

ls_record_sink ls_slow_sink = {slow_ended};

/* ---- the module -------------------------------------------------------------------------------------------- */

static void request_define(lua_State *L, ls_state *state)
{
    static const char *const methods[LS_HTTP_METHODS] = {"",      "GET",    "HEAD",    "POST",    "PUT",
                                                         "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"};
    ls_requests *all = ls_requests_of(state);
    state->expect_end = expect_end;
    for (int n = 0; n < LS_HTTP_METHODS; n++) {
        lua_pushstring(L, methods[n]);
        all->method_refs[n] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
}

/* A live task whose request has a transport that has not been aborted; NULL: none. */
static ls_request *request_in_progress(const ls_state *state)
{
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) {
        ls_request *r = task->client;
        if (r != NULL && r->x != NULL && !r->aborted) return r;
    }
    return NULL;
}

static void request_close(ls_thread_ctx *ctx, ls_state *state)
{
    for (ls_request *r; (r = request_in_progress(state)) != NULL;) {
        r->aborted = true;
        ls_exchange_abort(ctx, r->x); /* may end the task */
    }
}

/* core.time_max(req, ms): the task of the request ends when it waits for so long; 0: no limit. */
static int core_time_max(lua_State *L)
{
    ls_task_limit(ls_request_check_req(L, 1)->task, (uint32_t)luaL_checkinteger(L, 2));
    return 0;
}

/* core.slow(req, ms): the request is slow after so long; 0: never. */
static int core_slow(lua_State *L)
{
    ls_request_measure(ls_request_check_req(L, 1), (uint32_t)luaL_checkinteger(L, 2));
    return 0;
}

/* core.log(level, text): a line, of the request whose task writes it */
static int core_log(lua_State *L)
{
    enum ls_log_level level;
    if (ls_log_level_of(luaL_checkstring(L, 1), &level) < 0 || level == LS_LOG_OFF)
        return luaL_argerror(L, 1, "level must be \"debug\", \"info\", \"warn\" or \"error\"");
    const ls_text text = ls_check_text(L, 2);
    const ls_state *state = ls_state_of(L);
    if (level < ls_log_level_get() || ls_mute_is(state)) return 0;
    const ls_request *r = state->current != NULL ? state->current->client : NULL;
    if (r != NULL && r->tag == &ls_request_tag && r->x != NULL) log_about(r->x, true);
    ls_log_text(level, text.ptr, text.len);
    return 0;
}

static const luaL_Reg functions[] = {
    {"time_max", core_time_max}, {"slow", core_slow}, {"log", core_log}, {NULL, NULL}};

const ls_module ls_request_module = {.name = "request",
                                     .bytes = sizeof(ls_requests),
                                     .functions = functions,
                                     .define = request_define,
                                     .close = request_close};
