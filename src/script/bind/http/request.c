/* request.c - see request.h: the ring of request objects, and responses made from Lua values. */
#include "script/bind/http/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/shared.h"
#include "codec/http_text.h"
#include "net/refused.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/bind/value/buffer.h"
#include "script/bind/value/json.h"
#include "script/bind/work/hooks.h"
#include "script/core/lua/udata.h"
#include "script/core/wait.h"

const char ls_request_tag;
static const char response_tag;

const char ls_type_html[] = "text/html; charset=utf-8", ls_type_json[] = "application/json";
static const char type_text[] = "text/plain; charset=utf-8";

/* The task that responds has ended: its end has passed on all parts, or drops them after an error. */
static void request_flush(ls_thread_ctx *ctx, ls_state *state, ls_flush *flush, bool suspended)
{
    ls_request *r = LS_CONTAINER(flush, ls_request, flush);
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
    r->flush.run = request_flush;
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
    assert(r->x == NULL && r->out == NULL);
    r->x = x;
    r->task = task;
    r->serial = ++all->serial;
    r->status_set = r->failing = r->returned = r->aborted = r->hung_up = false;
    r->no_file = 0;
    r->began_ns = ls_hooks_of(state)->at[LS_HOOK_LOG].count > 0 ? ls_clock_ns() : 0;
    r->body_state = LS_BODY_UNREAD;
    r->websocket = false;
    r->body_error = LS_OK;
    r->time_ms_max = 0;
    r->written = 0;
    r->chained = false;
    r->middleware = NULL;
    r->dispatch_ref = task->dispatch_ref;
    task->client = r;
    task->serial = r->serial;
    return r;
}

void ls_request_drop_body(ls_request *r)
{
    ls_slices_drop(r->body, r->body_count);
    free(r->body);
    r->body = NULL;
    r->body_fill = NULL;
    r->body_count = r->body_room = 0;
    r->body_len = 0;
}

static void drop_answer(ls_request *r)
{
    if (r->later != NULL) r->later->drop(r->later);
    r->later = NULL;
    r->answer = LS_ANSWER_NONE;
}

void ls_request_describe(lua_State *L, ls_request *r, enum ls_answer answer, int res)
{
    drop_answer(r);
    r->answer = (uint8_t)answer;
    if (answer < LS_ANSWER_BODY) return;
    lua_setiuservalue(L, res, LS_RES_ANSWER);
    r->has_body = true;
}

const char *ls_request_answer_type(lua_State *L, const ls_request *r)
{
    switch (r->answer) {
    case LS_ANSWER_STATUS: return ls_status_has_content(r->x->status) ? type_text : NULL;
    case LS_ANSWER_HTML: return ls_type_html;
    case LS_ANSWER_JSON: return ls_type_json;
    case LS_ANSWER_BODY: break;
    default: return NULL;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
    const bool is_table = lua_getiuservalue(L, -1, LS_RES_ANSWER) == LUA_TTABLE;
    lua_pop(L, 2);
    return is_table ? ls_type_json : type_text;
}

void ls_request_describe_later(ls_request *r, ls_answer_later *later)
{
    drop_answer(r);
    r->answer = LS_ANSWER_LATER;
    r->later = later;
}

/* Invalidate the objects, wake the waiters, and drop all references. */
static inline void end(ls_thread_ctx *ctx, ls_request *r)
{
    const ls_state *state = r->state;
    assert(r->x != NULL);
    r->x = NULL;
    r->task = NULL;
    if (r->body != NULL) ls_request_drop_body(r);
    if (r->coding != NULL) ls_body_coding_drop(r);
    if (r->answer != LS_ANSWER_NONE) drop_answer(r);
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

/* The time of the handler begins anew. When the client has left, a handler without a limit, such as that of a stream of
 * events, has the limit of the others: it may not notice. */
static void watch(const ls_request *r, const ls_exchange *x)
{
    ls_task *task = r->task;
    if (x->error == 0) {
        ls_task_progress(task);
    } else if (task->time_ms_max == 0 && r->time_ms_max != 0 && !ls_exchange_upgraded(x)) {
        task->time_ms_max = r->time_ms_max;
        if (task->waiting) ls_task_watch(task);
    }
}

/* Note whether the client has left before the response was complete. true: its task waits for what it cannot answer. Not
 * after an error of the handler's own: res:abort, another length than announced. */
static bool client_left(const ls_request *r)
{
    const int err = r->x->error;
    if (err == 0 || err == LS_EMSGSIZE || r->hung_up || r->task->client_is == LS_CLIENT_IGNORED || r->x->response == LS_RESPONSE_DONE)
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

/* ---- response bodies --------------------------------------------------------------------------------------- */

int ls_body_of(lua_State *L, int index, ls_body *out)
{
    const int type = lua_type(L, index);
    out->slices = out->few;
    if (type == LUA_TSTRING || type == LUA_TNUMBER) {
        out->few[0].block = NULL;
        out->few[0].ptr = lua_tolstring(L, index, &out->few[0].len);
        out->count = out->few[0].len > 0;
        if (out->few[0].len >= LS_STRING_SHARED_MIN) {
            (void)ls_strings_reserve(L, 1);
            out->few[0] = ls_string_slice(L, index);
        }
        return LS_OK;
    }
    const ls_buffer *buffer = ls_buffer_test(L, index);
    if (buffer == NULL) return LS_EINVAL;
    if (buffer->count > sizeof out->few / sizeof out->few[0]) {
        out->slices = malloc(buffer->count * sizeof *out->slices);
        if (out->slices == NULL) return LS_ENOMEM;
    }
    out->count = buffer->count;
    for (unsigned n = 0; n < buffer->count; n++) {
        out->slices[n] = buffer->slices[n];
        (void)ls_block_hold(out->slices[n].block);
    }
    return LS_OK;
}

void ls_body_free(ls_body *body)
{
    if (body->slices != body->few) free(body->slices);
}

static bool is_sent(const ls_request *r) /* a finalizer may respond after the caller's check */
{
    return r->x->response != LS_RESPONSE_NONE || r->out != NULL;
}

static int raise_sent(lua_State *L)
{
    return luaL_error(L, "the response was already sent");
}

/* Takes the references of the slices. */
static inline int respond_slices(ls_request *r, ls_slice *slices, unsigned count, const char *type)
{
    ls_exchange *x = r->x;
    if (!ls_status_has_content(x->status)) {
        ls_slices_drop(slices, count);
        count = 0;
        type = NULL;
    }
    x->type = type;
    x->length = -1;
    return ls_exchange_respond(r->state->ctx, x, slices, count);
}

/* Dev mode: the page at `index` may be changed. Not one with a validator, such as a file: the browser could keep it. Text
 * without a media type is shown to the function, too: it may be HTML. */
static void change_page(lua_State *L, const ls_request *r, int index, const char *type)
{
    const ls_exchange *x = r->x;
    size_t len = strlen(type), policy_len = 0;
    const bool plain = !x->has_type && type == type_text;
    if (x->has_type) type = ls_exchange_find(x, "Content-Type", 12, &len);
    if (type == NULL || len < 9 || (!plain && !ls_text_same(type, 9, "text/html", 9)) || ls_is_injected(x) ||
        ls_exchange_has_field(x, "Content-Encoding", 16) || ls_exchange_has_field(x, "ETag", 4) ||
        ls_exchange_has_field(x, "Last-Modified", 13))
        return;
    if (lua_type(L, index) != LUA_TSTRING && ls_buffer_test(L, index) == NULL) return;
    luaL_checkstack(L, 5, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(r->state)->page_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    (void)luaL_tolstring(L, index, NULL);
    const char *policy = ls_exchange_find(x, "Content-Security-Policy", 23, &policy_len);
    if (plain)
        lua_pushboolean(L, 0);
    else if (policy != NULL)
        lua_pushlstring(L, policy, policy_len);
    else
        lua_pushnil(L);
    lua_pushstring(L, r->middleware);
    lua_call(L, 4, 1);
    if (lua_type(L, -1) == LUA_TSTRING)
        lua_replace(L, index);
    else
        lua_pop(L, 1);
}

int ls_request_respond_as(lua_State *L, ls_request *r, int index, const char *type)
{
    ls_body body;
    if (ls_requests_of(r->state)->page_ref != 0) change_page(L, r, index, type);
    const int err = ls_body_of(L, index, &body);
    if (err == LS_ENOMEM) return luaL_error(L, "not enough memory");
    if (err < 0)
        return luaL_error(L, "invalid response body: string, number, table or buffer expected, got %s",
                          luaL_typename(L, index));
    if (is_sent(r)) {
        ls_slices_drop(body.slices, body.count);
        ls_body_free(&body);
        return raise_sent(L);
    }
    const int result = respond_slices(r, body.slices, body.count, type);
    ls_body_free(&body);
    return result;
}

int ls_request_respond_json(lua_State *L, ls_request *r, int index)
{
    ls_slice text;
    if (!ls_json_encode(L, index, &text)) return ls_request_respond_as(L, r, index, ls_type_json);
    return is_sent(r) ? raise_sent(L) : respond_slices(r, &text, 1, ls_type_json);
}

int ls_request_respond_body(lua_State *L, ls_request *r, int index)
{
    return lua_type(L, index) == LUA_TTABLE ? ls_request_respond_json(L, r, index)
                                            : ls_request_respond_as(L, r, index, type_text);
}

int ls_request_respond_text(ls_request *r, int status)
{
    ls_exchange *x = r->x;
    const char *phrase = ls_status_text(status);
    char text[64];
    x->status = status;
    x->length = -1;
    x->type = NULL;
    if (!ls_status_has_content(status)) return ls_exchange_respond(r->state->ctx, x, NULL, 0);
    const int len =
        phrase[0] != '\0' ? snprintf(text, sizeof text, "%s\n", phrase) : snprintf(text, sizeof text, "%d\n", status);
    ls_slice slice = ls_slice_static(text, (size_t)len); /* short, so respond copies it */
    x->type = type_text;
    return ls_exchange_respond(r->state->ctx, x, &slice, 1);
}

int ls_request_push_parts(ls_thread_ctx *ctx, ls_request *r)
{
    ls_slice slice;
    if (r->out == NULL || r->x == NULL) return LS_DONE;
    if (r->out_from == r->out_len) { /* the head of a stream of events leaves without parts */
        if (r->x->response != LS_RESPONSE_NONE) return LS_DONE;
        return ls_exchange_write(ctx, r->x, NULL, 0);
    }
    slice = ls_slice_of(r->out, r->out_from, r->out_len - r->out_from);
    r->out_from = r->out_len;
    return ls_exchange_write(ctx, r->x, &slice, 1);
}

void ls_request_id_text(uint64_t id, char out[17])
{
    for (int n = 15; n >= 0; n--, id >>= 4) out[n] = "0123456789abcdef"[id & 15];
    out[16] = '\0';
}

void ls_request_log_name(const ls_exchange *x, char out[LS_REQUEST_NAME_BYTES])
{
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

void ls_request_log_refused(lua_State *L, const ls_request *r, int status, const char *why)
{
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    const int top = lua_gettop(L);
    ls_request_push_ip(L, r);
    ls_refused_log("%s %d: %s: %s", lua_tostring(L, -1), status, name, why);
    lua_settop(L, top);
}

void ls_request_methods(lua_State *L, int meta_ref, const luaL_Reg *methods)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, meta_ref);
    lua_getfield(L, -1, "__index");
    (void)lua_getupvalue(L, -1, 1);
    luaL_setfuncs(L, methods, 0);
    lua_pop(L, 3);
}

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
    for (ls_node *node = state->tasks_live.next; node != &state->tasks_live; node = node->next) {
        ls_request *r = LS_CONTAINER(node, ls_task, node)->client;
        if (r != NULL && r->x != NULL && !r->aborted) return r;
    }
    return NULL;
}

enum { REPORTED_MAX = 10 /* tasks of a state in the log of a drain */ };

/* The time since the start of the request, if there is a "log" hook, else since its last progress. "": unknown. */
static void note_age(const ls_request *r, const ls_task *task, char out[32])
{
    const uint64_t from_ns = r->began_ns != 0   ? r->began_ns
                             : task->due_ns > 0 ? task->due_ns - task->time_ms_max * UINT64_C(1000000)
                                                : 0;
    out[0] = '\0';
    if (from_ns != 0) (void)snprintf(out, 32, ", for %.1f s", (double)(ls_clock_ns() - from_ns) / 1e9);
}

static void log_ended(lua_State *L, const ls_request *r, const ls_task *task, const char *at, const char *line)
{
    char name[LS_REQUEST_NAME_BYTES], age[32];
    ls_request_log_name(r->x, name);
    note_age(r, task, age);
    ls_request_push_ip(L, r);
    ls_log(LS_LOG_WARN, "ended: %s of %s waits%s%s%s", name, lua_tostring(L, -1), at, line, age);
}

static int report_main(lua_State *L)
{
    const ls_state *state = lua_touserdata(L, 1);
    const bool ended = atomic_load(&state->generation->reporting) == LS_REPORT_ENDED;
    const enum ls_log_level level = ended ? LS_LOG_WARN : LS_LOG_INFO;
    const char *const what = ended ? "ended" : "draining";
    char line[80 + LS_SHARED_NAME_BYTES_MAX + 40];
    unsigned count = 0;
    LS_LIST_EACH (const ls_task, task, &state->tasks_live, node) {
        const ls_request *r = task->client;
        if (!task->waiting || count++ >= REPORTED_MAX) continue;
        lua_settop(L, 0);
        ls_task_line(task->co, line, 80);
        const char *const at = line[0] != '\0' ? " at " : "";
        ls_wait_describe(task, line + strlen(line), sizeof line - 80);
        if (ended && r != NULL && r->x != NULL)
            log_ended(L, r, task, at, line);
        else if (r != NULL && r->x != NULL && ls_route_push(L, task->dispatch_ref, r->x, false))
            ls_log(LS_LOG_INFO, "draining: the handler of %s (%s) waits%s%s", lua_tostring(L, -2), lua_tostring(L, -1),
                   at, line);
        else
            ls_log(level, "%s: %s waits%s%s", what, ls_scope_name((enum ls_scope)task->scope), at, line);
    }
    if (count > REPORTED_MAX) ls_log(level, "%s: %u further tasks wait", what, count - REPORTED_MAX);
    return 0;
}

static void request_report(ls_thread_ctx *ctx, ls_state *state)
{
    (void)ls_state_protected(state, ctx, report_main, state);
}

static void request_close(ls_thread_ctx *ctx, ls_state *state)
{
    for (ls_request *r; (r = request_in_progress(state)) != NULL;) {
        r->aborted = true;
        ls_exchange_abort(ctx, r->x); /* may end the task */
    }
}

/* core.too_large(req) -> 413, which the log shows: the announced body is larger than its limit. */
static int core_too_large(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    ls_request_log_refused(L, r, 413, "the request body is larger than its limit");
    return ls_push_integer(L, 413);
}

/* core.time_max(req, ms): the task of the request ends when it waits for so long; 0: no limit. */
static int core_time_max(lua_State *L)
{
    ls_task *task = ls_request_check_req(L, 1)->task;
    task->time_ms_max = (uint32_t)luaL_checkinteger(L, 2);
    task->due_ns = 0;
    return 0;
}

static const luaL_Reg functions[] = {{"time_max", core_time_max}, {"too_large", core_too_large}, {NULL, NULL}};

const ls_module ls_request_module = {.name = "request",
                                     .bytes = sizeof(ls_requests),
                                     .functions = functions,
                                     .define = request_define,
                                     .report = request_report,
                                     .close = request_close};
