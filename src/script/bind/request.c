/* request.c - see request.h: the ring of request objects, and responses made from Lua values. */
#include "script/bind/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/http_text.h"
#include "script/bind/bind.h"
#include "script/bind/buffer.h"
#include "script/bind/hooks.h"
#include "script/bind/http_task.h"
#include "script/bind/json.h"
#include "script/bind/req.h"
#include "script/bind/res.h"
#include "script/bind/route_name.h"
#include "script/core/udata.h"

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
    if (r->x->response == LS_RESPONSE_OPEN && r->x->transport->flush(ctx, r->x) < 0 && !ls_list_empty(&r->waiters))
        ls_task_wake_all(ctx, &r->waiters, LS_OK);
}

/* ---- the ring ---------------------------------------------------------------------------------------------- */

static ls_request *request_new(lua_State *L, ls_state *state)
{
    const ls_requests *all = ls_requests_of(state);
    ls_request *r = lua_newuserdatauv(L, sizeof *r, LS_REQ_SLOTS - 1);
    *r = (ls_request){.tag = &ls_request_tag,
                      .state = state,
                      .req_ref = LUA_NOREF,
                      .res_ref = LUA_NOREF,
                      .flush.run = request_flush};
    ls_node_init(&r->waiters);
    lua_rawgeti(L, LUA_REGISTRYINDEX, all->req_meta_ref);
    lua_setmetatable(L, -2);

    ls_response *response = lua_newuserdatauv(L, sizeof *response, 1);
    *response = (ls_response){&response_tag, r};
    lua_rawgeti(L, LUA_REGISTRYINDEX, all->res_meta_ref);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, 1);

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
    r->status_set = r->failing = r->returned = r->aborted = false;
    r->began_ns = ls_hooks_of(state)->at[LS_HOOK_LOG].count > 0 ? ls_clock_ns() : 0;
    r->body_state = LS_BODY_UNREAD;
    r->websocket = false;
    r->body_error = LS_OK;
    r->written = 0;
    task->request = r;
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

/* Invalidate the objects, wake the waiters, and drop all references. */
static inline void end(ls_thread_ctx *ctx, ls_request *r)
{
    const ls_state *state = r->state;
    assert(r->x != NULL);
    r->x = NULL;
    r->task = NULL;
    if (r->body != NULL) ls_request_drop_body(r);
    if (r->out != NULL) {
        ls_block_drop(r->out);
        r->out = NULL;
    }
    r->out_from = r->out_len = 0;
    if (r->filled != 0) { /* this block allocates nothing */
        lua_State *L = state->L;
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
        for (int n = 1; n < LS_REQ_SLOTS; n++) {
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
    ls_request_forget_res(r);
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

void ls_request_forget_res(ls_request *r)
{
    luaL_unref(r->state->L, LUA_REGISTRYINDEX, r->res_ref);
    r->res_ref = LUA_NOREF;
}

void ls_request_release_alone(ls_thread_ctx *ctx, ls_request *r)
{
    end(ctx, r);
    unref_objects(r);
}

void ls_request_wake(ls_thread_ctx *ctx, ls_exchange *x)
{
    ls_request *r = x->task;
    if (r != NULL && r->x == x) ls_task_wake_all(ctx, &r->waiters, LS_OK);
}

int ls_request_wait(lua_State *L, ls_request *r, lua_KContext context, lua_KFunction k)
{
    ls_task_may_wait(L);
    ls_list_push(&r->waiters, &r->state->current->wait_node);
    return ls_task_suspend(L, context, k);
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

ls_request *ls_request_of_res(lua_State *L, int index)
{
    const ls_response *response = lua_touserdata(L, index);
    ls_request *r = response->request;
    const ls_task *task = r->state->current;
    return r->x != NULL && task != NULL && task->serial == r->serial ? r : NULL;
}

void ls_request_keep(lua_State *L, ls_request *r, int self, int slot)
{
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, self, slot);
    r->filled |= 1u << slot;
}

bool ls_request_kept(lua_State *L, const ls_request *r, int self, int slot)
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

static inline void push_encode(lua_State *L, int index)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_json_of(ls_state_of(L))->encode_ref);
    lua_pushvalue(L, index);
}

/* The two results of the encoder are on top. */
static inline bool take_encoded(lua_State *L, int index, ls_slice *text)
{
    const bool is_small = lua_islightuserdata(L, -2);
    if (is_small) *text = (ls_slice){NULL, lua_touserdata(L, -2), (size_t)lua_tointeger(L, -1)};
    lua_pop(L, 1);
    if (is_small)
        lua_pop(L, 1);
    else
        lua_replace(L, index);
    return is_small;
}

bool ls_json_encode(lua_State *L, int index, ls_slice *text)
{
    push_encode(L, index);
    lua_call(L, 1, 2);
    return take_encoded(L, index, text);
}

bool ls_json_encode_in(lua_State *L, int index, const char *call, ls_slice *text)
{
    push_encode(L, index);
    if (lua_pcall(L, 1, 2, 0) != LUA_OK) luaL_error(L, "%s: %s", call, luaL_tolstring(L, -1, NULL));
    return take_encoded(L, index, text);
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
    return x->transport->respond(r->state->ctx, x, slices, count);
}

int ls_request_respond_as(lua_State *L, ls_request *r, int index, const char *type)
{
    ls_body body;
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

int ls_request_respond_json(lua_State *L, ls_request *r, ls_slice text)
{
    if (is_sent(r)) return raise_sent(L);
    return respond_slices(r, &text, 1, ls_type_json);
}

int ls_request_respond_body(lua_State *L, ls_request *r, int index)
{
    ls_slice text;
    if (lua_type(L, index) != LUA_TTABLE) return ls_request_respond_as(L, r, index, type_text);
    if (ls_json_encode(L, index, &text)) return ls_request_respond_json(L, r, text);
    return ls_request_respond_as(L, r, index, ls_type_json);
}

int ls_request_respond_text(ls_request *r, int status)
{
    ls_exchange *x = r->x;
    char text[64];
    size_t len = 0;
    ls_slice slice;
    x->status = status;
    x->length = -1;
    x->type = ls_status_has_content(status) ? type_text : NULL;
    if (ls_status_has_content(status)) {
        const char *phrase = ls_status_text(status);
        len = strlen(phrase);
        if (len > sizeof text - 1) len = sizeof text - 1;
        memcpy(text, phrase, len);
        if (len == 0) {
            text[0] = (char)('0' + status / 100);
            text[1] = (char)('0' + status / 10 % 10);
            text[2] = (char)('0' + status % 10);
            len = 3;
        }
        text[len++] = '\n';
    }
    slice = ls_slice_static(text, len); /* short, so respond copies it */
    return x->transport->respond(r->state->ctx, x, &slice, len > 0);
}

int ls_request_push_parts(ls_thread_ctx *ctx, ls_request *r)
{
    ls_slice slice;
    if (r->out == NULL || r->x == NULL) return LS_DONE;
    if (r->out_from == r->out_len) { /* the head of a stream of events leaves without parts */
        if (r->x->response != LS_RESPONSE_NONE) return LS_DONE;
        return r->x->transport->write(ctx, r->x, NULL, 0);
    }
    slice = ls_slice_of(r->out, r->out_from, r->out_len - r->out_from);
    r->out_from = r->out_len;
    return r->x->transport->write(ctx, r->x, &slice, 1);
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
    at = (size_t)snprintf(out, LS_REQUEST_NAME_BYTES, "request %s %.*s ", id,
                          head->method_name.len < 20 ? (int)head->method_name.len : 20,
                          x->bytes + head->method_name.at);
    if (head->path_is_root || head->path.len == 0)
        (void)snprintf(out + at, LS_REQUEST_NAME_BYTES - at, "/");
    else
        (void)snprintf(out + at, LS_REQUEST_NAME_BYTES - at, "%.*s%s",
                       head->path.len < 180 ? (int)head->path.len : 180, x->bytes + head->path.at,
                       head->path.len < 180 ? "" : "...");
}

/* ---- the module -------------------------------------------------------------------------------------------- */

static void request_define(lua_State *L, ls_state *state)
{
    static const char *const methods[LS_HTTP_METHODS] = {"",      "GET",    "HEAD",    "POST",    "PUT",
                                                         "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"};
    ls_requests *all = ls_requests_of(state);
    for (int n = 0; n < LS_HTTP_METHODS; n++) {
        lua_pushstring(L, methods[n]);
        all->method_refs[n] = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    ls_request_define_req(L, all);
    ls_request_define_res(L, all);
}

/* A live task whose request has a transport that has not been aborted; NULL: none. */
static ls_request *request_in_progress(const ls_state *state)
{
    for (ls_node *node = state->tasks_live.next; node != &state->tasks_live; node = node->next) {
        ls_request *r = LS_CONTAINER(node, ls_task, node)->request;
        if (r != NULL && r->x != NULL && !r->aborted) return r;
    }
    return NULL;
}

static void request_close(ls_thread_ctx *ctx, ls_state *state)
{
    for (ls_request *r; (r = request_in_progress(state)) != NULL;) {
        r->aborted = true;
        r->x->transport->abort(ctx, r->x); /* may end the task */
    }
}

static const luaL_Reg request_functions[] = {{"params", ls_core_params},
                                             {"last_segment", ls_core_last_segment},
                                             {"body_max", ls_core_body_max},
                                             {"name_routes", ls_core_name_routes},
                                             {NULL, NULL}};

const ls_module ls_request_module = {.name = "request",
                                     .bytes = sizeof(ls_requests),
                                     .functions = request_functions,
                                     .define = request_define,
                                     .close = request_close};
