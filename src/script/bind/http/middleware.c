/* middleware.c - the middleware around a handler, and the function `next` that it gets.
 *
 * A chain is made once for a route: the functions of app:use, outermost first, then the handler. A request runs it in
 * one task without making tables or closures. next() runs the rest of the chain and records what it answers in `res`
 * (ls_http_result_record); the errors of the rest become responses there. Thread: the one that holds the state's
 * actor.
 *
 *     run       calls middleware 0                            in the task of the request
 *     next      calls function n + 1, protected               called by middleware n
 *               records its results, protected unless they are usual ones
 *
 * `next` finds the functions in its upvalues and the place in the request: chain_at. A limit that ends a function
 * after next() is an error there: the middleware continues. */
#include <stdint.h>
#include <string.h>

#include <lauxlib.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/http_result.h"
#include "script/bind/http/http_task.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/store/dict_value.h"
#include "script/core/lua/error_text.h"
#include "script/core/task.h"

/* Upvalues of run and next: the userdata ls_chain, next itself, the table of places, the first function; and of next
 * all others after it. */
enum { CHAIN = 1, NEXT, PLACES, FUNCTIONS };
enum { MIDDLEWARE_MAX = 63 };
/* Stack indices in next: task->ends before the call, the message handler, and the results; or an error and the same
 * with its traceback. */
enum { ENDS = 1, HANDLER, RESULTS, ERROR = RESULTS, TRACEBACK };

struct ls_chain {
    uint8_t length; /* number of functions: the middleware, and the handler */
};

/* Push the objects of the request. */
static void push_objects(lua_State *L, const ls_request *r)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
}

/* Middleware `at` has returned what is on the stack from `first` on: it has called next(), or it has answered, or this
 * raises. `places` is the index of the table of their places, which the chain holds. */
static void check_answered(lua_State *L, ls_request *r, unsigned at, int places, int first)
{
    const int results = lua_gettop(L) - (first - 1);
    if (results > 1 || !lua_isnoneornil(L, first)) {
        luaL_checkstack(L, 1, NULL);
        lua_rawgeti(L, places, (lua_Integer)at + 1);
        r->chain.place = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    if ((r->chain.called & UINT64_C(1) << at) != 0 || results > 0 || r->answer != LS_ANSWER_NONE || r->status_set ||
        ls_request_has_begun(r) || r->x->error != 0)
        return;
    lua_rawgeti(L, places, (lua_Integer)at + 1);
    lua_pushfstring(
        L,
        "%s: the middleware neither called next() nor answered the request: call next(), or return a response such "
        "as return 403",
        lua_tostring(L, -1));
    (void)lua_error(L); /* not luaL_error: the place is that of the middleware alone */
}

/* ---- the results of a function after next() -------------------------------------------------------------------- */

/* (the table of places, nil for a handler; its results): checks and records them. */
static int record(lua_State *L)
{
    ls_request *r = ls_state_of(L)->current->client;
    if (lua_istable(L, 1))
        check_answered(L, r, r->chain.at + 1u, 1, LS_HTTP_RESULT);
    else
        r->chain.place = NULL;
    r->returned = true;
    if (ls_request_has_begun(r))
        ls_http_result_unused(L, r);
    else
        ls_http_result_record(L, r);
    r->returned = false;
    return 0;
}

/* The same for the usual results from index `first` on, which cannot be wrong: a body alone, `res`, or none where the
 * response is described. false: they are others. */
static bool record_usual(lua_State *L, ls_request *r, int first, bool is_handler)
{
    const int count = lua_gettop(L) - (first - 1);
    if (ls_request_has_begun(r) || count > 1) return false;
    if (!is_handler)
        return count == 0 && r->answer != LS_ANSWER_NONE && (r->chain.called & UINT64_C(2) << r->chain.at) != 0;
    r->chain.place = NULL;
    switch (count == 0 ? LUA_TNIL : lua_type(L, first)) {
    case LUA_TNIL: return r->answer != LS_ANSWER_NONE;
    case LUA_TUSERDATA: return r->answer != LS_ANSWER_NONE && ls_response_test(L, first) == r;
    case LUA_TSTRING:
    case LUA_TTABLE:
        if (r->described != NULL) return false;
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        lua_pushvalue(L, first);
        ls_request_describe(L, r, LS_ANSWER_BODY, first + 1);
        return true;
    default: return false;
    }
}

/* Call the function below its `count` arguments and the message handler at `handler`; a limit that ends it is an error
 * of the call too. */
static int call_caught(lua_State *L, ls_task *task, int count, int handler, lua_KContext context, lua_KFunction k)
{
    task->catches++;
    return k(L, lua_pcallk(L, count, LUA_MULTRET, handler, context, k), context);
}

/* Whether a limit has ended the call, or has passed while it returned: pushes its message, and the same with a
 * traceback. */
static bool limit_has_ended(lua_State *L, ls_request *r)
{
    ls_task *task = r->task;
    task->catches--;
    if (!ls_task_is_over(task)) return false;
    luaL_checkstack(L, LUA_MINSTACK, NULL); /* there may be any number of results */
    ls_task_catch(L, task, lua_touserdata(L, ENDS));
    const int traceback = lua_gettop(L);
    ls_http_push_exceeded(L, task, r->x, r->failing);
    ls_task_continue(task);
    if (lua_isstring(L, traceback))
        lua_pushfstring(L, "%s\n%s", lua_tostring(L, -1), lua_tostring(L, traceback));
    else
        lua_pushvalue(L, -1);
    lua_remove(L, traceback);
    return true;
}

/* The beginning of a continuation of call_caught: records the results, which begin at `first`, after the message
 * handler. chain_at is the middleware that called next() again. `places`: the index of the table of places, 0 for a
 * handler. Returns the status; then the error is at `first`. *limit: limit_has_ended() is the reason, and has pushed
 * its texts. */
static int take_results(lua_State *L, ls_request *r, int status, int first, int places, bool *limit)
{
    *limit = limit_has_ended(L, r);
    if (status != LUA_OK && status != LUA_YIELD) return status;
    if (*limit) lua_pop(L, 2);
    *limit = false;
    if (record_usual(L, r, first, places == 0)) return LUA_OK;
    luaL_checkstack(L, 2, NULL);
    lua_pushcfunction(L, record);
    if (places != 0)
        lua_pushvalue(L, places);
    else
        lua_pushnil(L);
    lua_rotate(L, first, 2);
    r->task->catches++;
    status = lua_pcall(L, lua_gettop(L) - first, 0, first - 1);
    *limit = limit_has_ended(L, r);
    return status;
}

/* ---- its errors --------------------------------------------------------------------------------------------- */

/* Push the error at the top of the stack, which was caught, as text with its traceback. */
static void push_error(lua_State *L, ls_task *task)
{
    ls_task_push_traceback(L, task, lua_tostring(L, -1));
    ls_task_drop_error(task);
}

/* Log what is at the top of the stack. `error`: the index of the error that it traces. */
static void log_error(lua_State *L, const ls_request *r, enum ls_log_level level, int error)
{
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    if (level == LS_LOG_ERROR)
        ls_error_log(L, error, name, lua_tostring(L, -1));
    else
        ls_log(level, "%s: %s", name, lua_tostring(L, -1));
}

static int error_handled(lua_State *L, int status, lua_KContext answer)
{
    ls_request *r = ls_state_of(L)->current->client;
    bool limit;
    status = take_results(L, r, status, TRACEBACK + 2, 0, &limit);
    r->failing = false;
    r->described = NULL;
    if (status == LUA_OK) return 0;
    if (ls_request_has_begun(r) || (status == LUA_ERRMEM && !limit))
        return lua_error(L); /* of a limit: with its traceback */
    if (!limit) push_error(L, r->task);
    log_error(L, r, LS_LOG_ERROR, TRACEBACK + 2);
    r->x->status = (int)answer;
    ls_request_describe(L, r, LS_ANSWER_STATUS, 0);
    return 0;
}

/* The error at ERROR and TRACEBACK, the top of the stack, becomes the response `status`, or that of app:error. */
static int answer_failure(lua_State *L, ls_request *r, int status)
{
    log_error(L, r, LS_LOG_ERROR, ERROR);
    r->returned = false;
    ls_request_describe(L, r, LS_ANSWER_NONE, 0);
    r->x->status = status;
    r->failing = true;
    lua_pushcfunction(L, ls_task_keep_error);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->task->failed_ref);
    push_objects(L, r);
    lua_pushvalue(L, ERROR);
    lua_pushvalue(L, TRACEBACK);
    return call_caught(L, r->task, 4, TRACEBACK + 1, status, error_handled);
}

/* The error at ERROR, the top of the stack, becomes the response: the one of a mistake of the client, or that of
 * app:error. */
static int answer_error(lua_State *L, ls_request *r)
{
    char refused[LS_REFUSED_BYTES] = "";
    const int mistake = ls_http_client_mistake(L, r, ERROR, refused, sizeof refused);
    ls_exchange_drop_content(r->x);
    r->status_set = false;
    if (ls_task_is_left_error(L, ERROR) && r->in.error == LS_OK) { /* a page of app:error would have no reader */
        log_error(L, r, LS_LOG_INFO, ERROR);
        r->x->status = 500;
        ls_request_describe(L, r, LS_ANSWER_STATUS, 0);
        return 0;
    }
    if (mistake != 0) {
        (void)ls_error_describe(L, ERROR);
        ls_task_drop_error(r->task);
        if (r->in.error != LS_OK && !ls_task_is_left_error(L, ERROR))
            ls_request_log_refused(L, r, mistake, lua_tostring(L, -1));
        else
            log_error(L, r, LS_LOG_INFO, ERROR);
        r->x->close = r->x->close || r->in.error != LS_OK;
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
        ls_http_name_route(L, r, ERROR, r->task->dispatch_ref);
        lua_pushvalue(L, ERROR);
        lua_replace(L, TRACEBACK);
    }
    return answer_failure(L, r, ls_http_is_unreached(L, ERROR, r->x, r->task->dispatch_ref, r->failing) ? 503 : 500);
}

/* Whether next() of middleware `at` runs the handler. The chain is the closure's own: the request may have begun
 * another one. */
static bool is_last(lua_State *L, lua_KContext at)
{
    const struct ls_chain *chain = lua_touserdata(L, lua_upvalueindex(CHAIN));
    return at + 2 == chain->length;
}

/* Middleware `at` called next(). */
static int next_returned(lua_State *L, int status, lua_KContext at)
{
    ls_request *r = ls_state_of(L)->current->client;
    const int answer = r->task->ending >= LS_END_TIMEOUT ? 503 : 500;
    bool limit;
    r->chain.at = (uint8_t)at;
    status = take_results(L, r, status, RESULTS, is_last(L, at) ? 0 : lua_upvalueindex(PLACES), &limit);
    r->described = NULL;
    if (status == LUA_OK) return 0;
    if (ls_request_has_begun(r) || (status == LUA_ERRMEM && !limit) || r->task->cpu_exceeded) {
        if (limit) lua_pop(L, 1);
        return lua_error(L);
    }
    if (!limit) return answer_error(L, r);
    lua_remove(L, ERROR); /* the texts of the limit take its place */
    ls_exchange_drop_content(r->x);
    r->status_set = false;
    return answer_failure(L, r, answer);
}

/* next(): runs the rest of the chain. Returns nothing: res has the response. */
static int chain_next(lua_State *L)
{
    ls_task *task = ls_state_of(L)->current;
    ls_request *r = task != NULL ? task->client : NULL;
    if (r == NULL || !r->chain.runs || r->chain.functions != lua_touserdata(L, lua_upvalueindex(CHAIN)) ||
        r->chain.at + 1u >= r->chain.functions->length)
        return luaL_error(L, "next() belongs to the middleware that got it, in the task of its request");
    const unsigned at = r->chain.at;
    if (lua_gettop(L) > 0)
        return luaL_error(
            L, "next() takes no arguments: req and res are those of the middleware; raise an error with error()");
    if ((r->chain.called & UINT64_C(1) << at) != 0)
        return luaL_error(L, "next() was called before by this middleware");
    ls_request_check_undescribed(L, r);
    r->chain.called |= UINT64_C(1) << at;
    r->chain.at = (uint8_t)(at + 1);
    lua_pushlightuserdata(L, task->ends);
    lua_pushcfunction(L, ls_task_keep_error);
    lua_pushvalue(L, lua_upvalueindex(FUNCTIONS + (int)at + 1));
    push_objects(L, r);
    const bool is_handler = is_last(L, at);
    if (!is_handler) lua_pushvalue(L, lua_upvalueindex(NEXT));
    return call_caught(L, task, is_handler ? 2 : 3, HANDLER, (lua_KContext)at, next_returned);
}

/* ---- the outermost function ----------------------------------------------------------------------------------- */

static int run_returned(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_state_of(L)->current->client;
    r->chain.runs = false;
    const int results = lua_gettop(L) - 2;
    check_answered(L, r, 0, lua_upvalueindex(PLACES), 3);
    return results;
}

static int chain_run(lua_State *L) /* (req, res), those of the task */
{
    const ls_task *task = ls_state_of(L)->current;
    ls_request *r = task != NULL ? task->client : NULL;
    if (r == NULL) return luaL_error(L, "the functions of a route run in the task of their request");
    r->chain.runs = true;
    r->chain.functions = lua_touserdata(L, lua_upvalueindex(CHAIN));
    r->chain.at = 0;
    r->chain.called = 0;
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(FUNCTIONS));
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_pushvalue(L, lua_upvalueindex(NEXT));
    lua_callk(L, 3, LUA_MULTRET, 0, run_returned);
    return run_returned(L, LUA_OK, 0);
}

/* core.chain(functions, places) -> run(req, res): the middleware functions and, last, the handler; the places of the
 * middleware, such as "site.lua:12", for messages. */
static int core_chain(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    const int length = (int)lua_rawlen(L, 1);
    if (length > MIDDLEWARE_MAX + 1)
        return luaL_error(L, "more than %d middleware functions for a route", (int)MIDDLEWARE_MAX);
    luaL_checkstack(L, FUNCTIONS + length, NULL);
    struct ls_chain *chain = lua_newuserdatauv(L, sizeof *chain, 0);
    chain->length = (uint8_t)length;
    lua_pushnil(L);
    lua_pushvalue(L, 2);
    for (int n = 1; n <= length; n++) lua_rawgeti(L, 1, n);
    lua_pushcclosure(L, chain_next, FUNCTIONS - 1 + length);
    lua_pushvalue(L, -1);
    (void)lua_setupvalue(L, -2, NEXT); /* next passes itself on */
    for (int n = CHAIN; n <= FUNCTIONS; n++) (void)lua_getupvalue(L, 3, n);
    lua_pushcclosure(L, chain_run, FUNCTIONS);
    return 1;
}

/* ---- the middleware of luaserve.rate_limit, where it counts addresses in a dict of this server ----------------- */

enum { LIMITER = 1, INNER, OTHERWISE }; /* upvalues of limit */
enum { PLACE_BYTES_MAX = 1024, ADDRESS_BYTES_MAX = 8 };

typedef struct limiter {
    ls_dict *dict; /* of the server: it outlives every state */
    ls_dict_bucket bucket;
    size_t place_len;
    char key[PLACE_BYTES_MAX + ADDRESS_BYTES_MAX]; /* begins with the place */
} limiter;

/* Take a token of the client, without a Lua string for its address. */
static bool take_token(limiter *l, const ls_addr *client)
{
    double wait;
    if (client == NULL || (client->family != LS_ADDR_IP4 && client->family != LS_ADDR_IP6)) return false;
    const size_t len = client->family == LS_ADDR_IP4 ? 4 : ADDRESS_BYTES_MAX; /* as core.client */
    memcpy(l->key + l->place_len, client->bytes, len);
    l->bucket.now = (double)(ls_clock_ns() + ls_clock_moved_ns()) / 1e9;
    return ls_dict_take(l->dict, &(ls_dict_key){.bytes = l->key, .len = l->place_len + len}, &l->bucket, &wait) ==
               LS_OK &&
           wait == 0;
}

static int limit_returned(lua_State *L, int status, lua_KContext context)
{
    return lua_gettop(L);
}

static int limit(lua_State *L) /* (req, res, next) */
{
    limiter *l = lua_touserdata(L, lua_upvalueindex(LIMITER));
    const ls_addr *client = ls_request_peer(ls_request_check_req(L, 1));
    lua_settop(L, 3);
    lua_pushvalue(L, lua_upvalueindex(take_token(l, client) ? INNER : OTHERWISE));
    lua_insert(L, 1);
    lua_callk(L, 3, LUA_MULTRET, 0, limit_returned);
    return limit_returned(L, LUA_OK, 0);
}

/* core.limiter(dict, place, token, full, inner, otherwise) -> function(req, res, next): calls `inner` when core.dict_take
 * takes a token for the address of the connection, else `otherwise`, which decides about clients of trusted proxies, too.
 * nil: the dict is written to a file before a call returns, or the place is too long. */
static int core_limiter(lua_State *L)
{
    ls_dict *dict = ls_dict_check_unsynced(L, 1);
    const ls_text place = ls_check_text(L, 2);
    const ls_dict_bucket bucket = {.token = luaL_checknumber(L, 3), .full = luaL_checknumber(L, 4)};
    if (dict == NULL || place.len > PLACE_BYTES_MAX) return 0;
    limiter *l = lua_newuserdatauv(L, sizeof *l, 0);
    *l = (limiter){.dict = dict, .bucket = bucket, .place_len = place.len};
    memcpy(l->key, place.ptr, place.len);
    lua_pushvalue(L, 5);
    lua_pushvalue(L, 6);
    lua_pushcclosure(L, limit, OTHERWISE);
    return 1;
}

static const luaL_Reg functions[] = {{"chain", core_chain}, {"limiter", core_limiter}, {NULL, NULL}};

const ls_module ls_middleware_module = {.name = "middleware", .functions = functions};
