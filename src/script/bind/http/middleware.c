/* middleware.c - see middleware.h.
 *
 *     run       calls middleware 0                                        in the task of the request
 *     next      calls layer(function n + 1), protected                    called by middleware n
 *     layer     calls the function and records its results
 *
 * `next` finds the chain in its upvalue and the place in the request: chain_at. A limit that ends a function behind
 * next() is an error there: the middleware goes on. */
#include "script/bind/http/middleware.h"

#include <stdint.h>
#include <string.h>

#include <lauxlib.h>

#include "base/log.h"
#include "script/bind/http/http_result.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/request.h"
#include "script/core/error_text.h"
#include "script/core/task.h"

enum { CHAIN = 1, NEXT, PLACES /* upvalues of run and next */, MIDDLEWARE_MAX = 63 };
enum { ENDS = 2 /* index: task->ends before the call of next() */ };

/* Push the objects of the request. */
static void push_objects(lua_State *L, const ls_request *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
}

static bool is_begun(const ls_request *r)
{
    return r->x->response != LS_RESPONSE_NONE || r->out != NULL;
}

/* Middleware `at` has returned `results` values: it has called next(), or it has answered, or this raises. `places` is
 * the index of the table of their places, which the chain holds. */
static void check_answered(lua_State *L, ls_request *r, unsigned at, int places, int results)
{
    if (results > 1 || !lua_isnoneornil(L, LS_HTTP_RESULT)) {
        luaL_checkstack(L, 1, NULL);
        lua_rawgeti(L, places, (lua_Integer)at + 1);
        r->middleware = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    if ((r->chain_called & UINT64_C(1) << at) != 0 || results > 0 || r->answer != LS_ANSWER_NONE || r->status_set ||
        is_begun(r) || r->x->error != 0)
        return;
    lua_rawgeti(L, places, (lua_Integer)at + 1);
    lua_pushfstring(
        L,
        "%s: the middleware neither called next() nor answered the request: call next(), or return a response such "
        "as return 403",
        lua_tostring(L, -1));
    (void)lua_error(L); /* not luaL_error: the place is that of the middleware alone */
}

/* ---- a function behind next() --------------------------------------------------------------------------------- */

/* The stack is the table of places, nil for a handler; then the results from LS_HTTP_RESULT on. */
static int layer_returned(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_state_of(L)->current->client;
    if (lua_istable(L, 1))
        check_answered(L, r, r->chain_at, 1, lua_gettop(L) - 1);
    else
        r->middleware = NULL;
    r->returned = true;
    if (is_begun(r))
        ls_http_result_unused(L, r);
    else
        ls_http_result_record(L, r);
    r->returned = false;
    return 0;
}

static int layer(lua_State *L) /* (places | nil, function, its arguments...) */
{
    lua_callk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, layer_returned);
    return layer_returned(L, LUA_OK, 0);
}

/* Push the error at the top of the stack, which was caught, as text with its traceback. */
static void push_error(lua_State *L, ls_task *task)
{
    ls_task_push_traceback(L, task, lua_tostring(L, -1));
    ls_task_drop_error(task);
}

static void log_error(lua_State *L, const ls_request *r, enum ls_log_level level)
{
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    ls_log(level, "%s: %s", name, lua_tostring(L, -1));
}

/* Call the function below its `count` arguments and the message handler at `handler`; a limit that ends it is an error of
 * the call too. */
static int call_caught(lua_State *L, ls_task *task, int count, int handler, lua_KContext context, lua_KFunction k)
{
    task->catches++;
    return k(L, lua_pcallk(L, count, 0, handler, context, k), context);
}

/* The beginning of `k`. Whether a limit has ended the call, or has passed while it returned: pushes its message, and the
 * same with a traceback. */
static bool limit_has_ended(lua_State *L, ls_request *r)
{
    ls_task *task = r->task;
    task->catches--;
    if (!ls_task_is_over(task)) return false;
    ls_task_catch(L, task, lua_touserdata(L, ENDS));
    const int traceback = lua_gettop(L);
    ls_http_push_exceeded(L, task, r->x, r->failing);
    ls_task_go_on(task);
    if (lua_isstring(L, traceback))
        lua_pushfstring(L, "%s\n%s", lua_tostring(L, -1), lua_tostring(L, traceback));
    else
        lua_pushvalue(L, -1);
    return true;
}

static int error_handled(lua_State *L, int status, lua_KContext answer)
{
    ls_request *r = ls_state_of(L)->current->client;
    const bool limit = limit_has_ended(L, r);
    r->failing = false;
    if (status == LUA_OK || status == LUA_YIELD) return 0;
    if (is_begun(r) || (status == LUA_ERRMEM && !limit)) return lua_error(L); /* of a limit: with its traceback */
    if (!limit) push_error(L, r->task);
    log_error(L, r, LS_LOG_ERROR);
    r->x->status = (int)answer;
    ls_request_describe(L, r, LS_ANSWER_STATUS, 0);
    return 0;
}

/* The error and its traceback at the top of the stack become the response `status`, or that of app:error. */
static int answer_failure(lua_State *L, ls_request *r, int status)
{
    const int traceback = lua_gettop(L);
    log_error(L, r, LS_LOG_ERROR);
    r->returned = false;
    ls_request_describe(L, r, LS_ANSWER_NONE, 0);
    r->x->status = status;
    r->failing = true;
    lua_pushcfunction(L, ls_task_keep_error);
    lua_pushcfunction(L, layer);
    lua_pushnil(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->task->failed_ref);
    push_objects(L, r);
    lua_pushvalue(L, traceback - 1);
    lua_pushvalue(L, traceback);
    return call_caught(L, r->task, 6, traceback + 1, status, error_handled);
}

/* The error at the top of the stack becomes the response: the one of a mistake of the client, or that of app:error. */
static int answer_error(lua_State *L, ls_request *r)
{
    char refused[LS_REFUSED_BYTES] = "";
    const int error = lua_gettop(L), mistake = ls_http_client_mistake(L, r, error, refused, sizeof refused);
    ls_exchange_drop_content(r->x);
    r->status_set = false;
    if (ls_task_is_left_error(L, error) && r->body_error == LS_OK) { /* a page of app:error would have no reader */
        log_error(L, r, LS_LOG_INFO);
        r->x->status = 500;
        ls_request_describe(L, r, LS_ANSWER_STATUS, 0);
        return 0;
    }
    if (mistake != 0) {
        (void)ls_error_describe(L, error);
        ls_task_drop_error(r->task);
        if (r->body_error != LS_OK && !ls_task_is_left_error(L, error))
            ls_request_log_refused(L, r, mistake, lua_tostring(L, -1));
        else
            log_error(L, r, LS_LOG_INFO);
        r->x->close = r->x->close || r->body_error != LS_OK;
        r->x->status = mistake;
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        if (refused[0] != '\0') lua_pushfstring(L, "%s\n", refused);
        if (refused[0] == '{') /* as in http_task.c */
            (void)ls_exchange_header(r->state->ctx, r->x, "Content-Type", 12, ls_type_json, strlen(ls_type_json),
                                     true);
        ls_request_describe(L, r, refused[0] != '\0' ? LS_ANSWER_BODY : LS_ANSWER_STATUS, -2);
        return 0;
    }
    push_error(L, r->task);
    if (r->returned) { /* no function of the site is active: its traceback tells nothing */
        ls_http_name_route(L, r, error, r->task->dispatch_ref);
        lua_pushvalue(L, error);
        lua_replace(L, error + 1);
    }
    return answer_failure(L, r, 500);
}

/* The stack is the message handler, the ends, and the error if there is one. `at` called next(). */
static int next_returned(lua_State *L, int status, lua_KContext at)
{
    ls_request *r = ls_state_of(L)->current->client;
    const int answer = r->task->timed_out ? 503 : 500;
    const bool limit = limit_has_ended(L, r);
    r->chain_at = (uint8_t)at;
    if (status == LUA_OK || status == LUA_YIELD) return 0;
    if (is_begun(r) || (status == LUA_ERRMEM && !limit) || r->task->cpu_exceeded) {
        if (limit) lua_pop(L, 1);
        return lua_error(L);
    }
    if (!limit) return answer_error(L, r);
    ls_exchange_drop_content(r->x);
    r->status_set = false;
    return answer_failure(L, r, answer);
}

/* next(): runs the rest of the chain. Returns nothing: res has the response. */
static int chain_next(lua_State *L)
{
    ls_task *task = ls_state_of(L)->current;
    ls_request *r = task != NULL ? task->client : NULL;
    const unsigned length = (unsigned)lua_rawlen(L, lua_upvalueindex(CHAIN));
    if (r == NULL || !r->chained || r->chain != lua_topointer(L, lua_upvalueindex(CHAIN)) ||
        r->chain_at + 1u >= length)
        return luaL_error(L, "next() belongs to the middleware that got it, in the task of its request");
    const unsigned at = r->chain_at;
    if (lua_gettop(L) > 0)
        return luaL_error(
            L, "next() takes no arguments: req and res are those of the middleware; raise an error with error()");
    if ((r->chain_called & UINT64_C(1) << at) != 0)
        return luaL_error(L, "next() was called before by this middleware");
    r->chain_called |= UINT64_C(1) << at;
    r->chain_at = (uint8_t)(at + 1);
    lua_pushcfunction(L, ls_task_keep_error);
    lua_pushlightuserdata(L, task->ends);
    lua_pushcfunction(L, layer);
    const bool is_handler = length == at + 2;
    if (is_handler)
        lua_pushnil(L);
    else
        lua_pushvalue(L, lua_upvalueindex(PLACES));
    lua_rawgeti(L, lua_upvalueindex(CHAIN), (lua_Integer)at + 2);
    push_objects(L, r);
    if (!is_handler) lua_pushvalue(L, lua_upvalueindex(NEXT));
    return call_caught(L, task, is_handler ? 4 : 5, 1, (lua_KContext)at, next_returned);
}

/* ---- the outermost function ----------------------------------------------------------------------------------- */

static int run_returned(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_state_of(L)->current->client;
    const int results = lua_gettop(L) - 1;
    r->chained = false;
    check_answered(L, r, 0, 1, results);
    return results;
}

static int chain_run(lua_State *L) /* (req, res) */
{
    ls_request *r = ls_request_check_req(L, 1);
    r->chained = true;
    r->chain = lua_topointer(L, lua_upvalueindex(CHAIN));
    r->chain_at = 0;
    r->chain_called = 0;
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(PLACES));
    lua_insert(L, 1);
    lua_rawgeti(L, lua_upvalueindex(CHAIN), 1);
    lua_insert(L, 2);
    lua_pushvalue(L, lua_upvalueindex(NEXT));
    lua_callk(L, 3, LUA_MULTRET, 0, run_returned);
    return run_returned(L, LUA_OK, 0);
}

int ls_core_chain(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_rawlen(L, 1) > MIDDLEWARE_MAX + 1)
        return luaL_error(L, "more than %d middleware functions for a route", (int)MIDDLEWARE_MAX);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, chain_next, 3);
    lua_pushvalue(L, -1);
    (void)lua_setupvalue(L, -2, NEXT); /* next passes itself on */
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 3);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, chain_run, 3);
    return 1;
}
