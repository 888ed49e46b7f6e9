/* http_result.c - see http_result.h.
 *
 * A value that would be ignored raises. A handler may have returned any number of values; Lua then guarantees no room
 * above them on the stack, so lua_settop removes surplus values first. */
#include "script/bind/http/http_result.h"

#include <stdbool.h>

#include <lauxlib.h>

#include "base/err.h"
#include "base/io/log.h"
#include "codec/http_text.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/respond.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/error_text.h"

enum { SHOWN_MAX = 5 }; /* results that the message needs */

static int result_count(lua_State *L)
{
    return lua_gettop(L) - (LS_HTTP_RESULT - 1);
}

/* Who has returned. */
static const char *returner(lua_State *L)
{
    const ls_request *r = ls_state_of(L)->current->client;
    return r->chain.place != NULL ? "middleware" : "handler";
}

/* Raise "the handler returned a table, 404; ...", which result.lua writes. Returns if the second result may be
 * ignored. */
static void check_results(lua_State *L)
{
    const int count = result_count(L) < SHOWN_MAX ? result_count(L) : SHOWN_MAX;
    lua_settop(L, LS_HTTP_RESULT + count - 1);
    ls_push_function(L, "luaserve.result", "message");
    lua_pushstring(L, returner(L));
    for (int n = 0; n < count; n++) lua_pushvalue(L, LS_HTTP_RESULT + n);
    lua_call(L, count + 1, 1);
    if (!lua_isnil(L, -1)) luaL_error(L, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
}

/* Results after the first `used` must be nil; there may be any number of them. Makes room on the stack. */
static void refuse_rest(lua_State *L, int used)
{
    const int count = result_count(L);
    for (int n = used; n < count; n++)
        if (!lua_isnil(L, LS_HTTP_RESULT + n)) check_results(L);
    lua_settop(L, LS_HTTP_RESULT + used - 1);
}

/* `alone`: without a body. Then it must be a registered status, because a handler may return a count by mistake. */
static int result_status(lua_State *L, int index, bool alone)
{
    int whole;
    const lua_Integer status = lua_tointegerx(L, index, &whole);
    const bool in_range = whole && status >= 200 && status <= 999;
    if (alone && (!in_range || *ls_status_text((int)status) == '\0'))
        luaL_error(L,
                   "the %s returned the number %s, which is no registered status; for a number as text: return "
                   "tostring(n)",
                   returner(L), luaL_tolstring(L, index, NULL));
    if (!in_range)
        luaL_error(L, "the %s returned an invalid status: %s (a status is a whole number from 200 to 999)",
                   returner(L), luaL_tolstring(L, index, NULL));
    return (int)status;
}

/* Result number `n` is a table of header fields; all after it are nil. */
static void take_headers(lua_State *L, ls_request *r, int n)
{
    const int index = LS_HTTP_RESULT + n - 1;
    if (!lua_isnoneornil(L, index) && lua_type(L, index) != LUA_TTABLE) {
        check_results(L);
        lua_settop(L, index - 1);
    }
    refuse_rest(L, n);
    ls_request_set_headers(L, r, index);
}

/* The handler has returned nil and further values. */
static void results_beside_nil(lua_State *L)
{
    if (!lua_isnil(L, LS_HTTP_RESULT + 1) && lua_type(L, LS_HTTP_RESULT + 1) != LUA_TNUMBER) {
        lua_settop(L, LS_HTTP_RESULT + 1);
        luaL_error(L, "the %s returned nil, %s; for a status of your own: return ... or 404", returner(L),
                   ls_error_describe(L, LS_HTTP_RESULT + 1));
    }
    refuse_rest(L, 1);
}

/* Whether the first result is res, or the `true` of res:file: the response is described already. */
static bool is_described(lua_State *L, const ls_request *r)
{
    if (lua_type(L, LS_HTTP_RESULT) == LUA_TBOOLEAN)
        return lua_toboolean(L, LS_HTTP_RESULT) && (r->answer != LS_ANSWER_NONE || r->x->response != LS_RESPONSE_NONE);
    return ls_response_test(L, LS_HTTP_RESULT) == r;
}

/* Whether the results are 200, 201 or 206, and nil: the client would take the name of the status for the content, although
 * the call that makes the body has failed, or has found nothing. */
static bool lacks_body(lua_State *L, const ls_request *r)
{
    return (r->x->status == 200 || r->x->status == 201 || r->x->status == 206) && lua_isnil(L, LS_HTTP_RESULT + 1) &&
           r->x->head.method != LS_HTTP_HEAD;
}

/* Whether the results are the status of a redirect and a body, which a client would show in place of the page that is meant:
 * the fields or the URL stand in the place of the body. */
static bool lacks_location(lua_State *L, const ls_request *r, int count)
{
    const int status = r->x->status;
    return (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) &&
           !lua_isnil(L, LS_HTTP_RESULT + 1) && (count < 3 || lua_isnil(L, LS_HTTP_RESULT + 2)) &&
           !ls_exchange_has_field(r->x, "Location", 8);
}

/* What the results describe. *index receives the body for LS_ANSWER_BODY; 0: there are no results, so the description
 * that res has remains. */
static enum ls_answer take(lua_State *L, ls_request *r, int *index)
{
    const int count = result_count(L), type = count > 0 ? lua_type(L, LS_HTTP_RESULT) : LUA_TNIL;
    *index = 0;
    if (type == LUA_TNIL || ((type == LUA_TBOOLEAN || type == LUA_TUSERDATA) && is_described(L, r))) {
        if (count > 1) results_beside_nil(L);
        return (enum ls_answer)r->answer;
    }
    ls_request_check_undescribed(L, r);
    *index = LS_HTTP_RESULT;
    switch (type) {
    case LUA_TNUMBER:
        r->x->status = result_status(L, LS_HTTP_RESULT, count < 2 || lua_isnil(L, LS_HTTP_RESULT + 1));
        r->status_set = true;
        if (count > 1 && (lacks_body(L, r) || lacks_location(L, r, count))) check_results(L);
        if (count > 2) take_headers(L, r, 3);
        if (count < 2 || lua_isnil(L, LS_HTTP_RESULT + 1)) return LS_ANSWER_STATUS;
        *index = LS_HTTP_RESULT + 1;
        return LS_ANSWER_BODY;
    case LUA_TSTRING:
    case LUA_TTABLE:
    case LUA_TUSERDATA:
        if (count > 1) take_headers(L, r, 2);
        return LS_ANSWER_BODY;
    default: check_results(L); return LS_ANSWER_NONE; /* not reached */
    }
}

/* A HEAD without a result that has a Content-Length: that of the body which a GET would send. */
static bool announces(const ls_request *r)
{
    return r->x->length >= 0 && r->x->head.method == LS_HTTP_HEAD;
}

/* The status of a handler that has described no response. Raises for GET and HEAD, and when it has returned nil: a call
 * that has found nothing, whose result was to be the response. */
static int empty_status(lua_State *L, const ls_request *r)
{
    char name[LS_REQUEST_NAME_BYTES];
    const ls_http_method method = r->x->head.method;
    if (r->failing) return r->x->status;
    const bool is_nil = result_count(L) > 0 && lua_isnil(L, LS_HTTP_RESULT);
    if (r->no_file == 0 && r->x->error == 0 && (is_nil || method == LS_HTTP_GET || method == LS_HTTP_HEAD))
        return luaL_error(
            L, is_nil ? "the handler returned nil: for what is absent write return ... or 404, for an empty "
                        "response return 204"
                      : "the handler described no response: write return before the body, or return 204 "
                        "for an empty one");
    if (r->no_file == 0) return 204;
    ls_request_log_name(r->x, name);
    ls_log(LS_LOG_ERROR,
           "%s: res:file has found no file that it can send, and the handler has not answered: the client gets %d; "
           "write: return res:file(path) or 404",
           name, r->no_file);
    return r->no_file;
}

static void respond(lua_State *L, ls_request *r, enum ls_answer answer, int index)
{
    ls_exchange *x = r->x;
    switch (answer) {
    case LS_ANSWER_NONE:
        if (announces(r) && !r->failing) {
            x->type = NULL;
            if (ls_exchange_write(r->state->ctx, x, NULL, 0) >= 0) (void)ls_exchange_finish(r->state->ctx, x);
            return;
        }
        if (!r->status_set) {
            (void)ls_request_respond_text(r, empty_status(L, r));
            return;
        }
        x->type = NULL;
        x->length = -1;
        (void)ls_exchange_respond(r->state->ctx, x, NULL, 0);
        return;
    case LS_ANSWER_STATUS: (void)ls_request_respond_text(r, x->status); return;
    case LS_ANSWER_BODY: (void)ls_request_respond_body(L, r, index); return;
    case LS_ANSWER_HTML: (void)ls_request_respond_as(L, r, index, ls_type_html); return;
    case LS_ANSWER_JSON: (void)ls_request_respond_json(L, r, index); return;
    case LS_ANSWER_LATER: {
        const int err = r->later->respond(r, r->later);
        if (err == LS_ELIMIT || err == LS_ENOMEM) luaL_error(L, "res:file: %s", ls_err_text(err));
        return;
    }
    }
}

void ls_http_result_respond(lua_State *L, ls_request *r)
{
    int index;
    const enum ls_answer answer = take(L, r, &index);
    if (index == 0 && answer >= LS_ANSWER_BODY && answer != LS_ANSWER_LATER) {
        lua_settop(L, LS_HTTP_RESULT - 1);
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        lua_getiuservalue(L, LS_HTTP_RESULT, LS_RES_ANSWER);
        index = LS_HTTP_RESULT + 1;
    }
    respond(L, r, answer, index);
}

void ls_http_result_record(lua_State *L, ls_request *r)
{
    int index;
    const enum ls_answer answer = take(L, r, &index);
    if (index == 0 && (answer != LS_ANSWER_NONE || r->status_set || announces(r))) return;
    if (index == 0) r->x->status = empty_status(L, r);
    if (answer == LS_ANSWER_BODY) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
        lua_pushvalue(L, index);
    }
    ls_request_describe(L, r, answer == LS_ANSWER_BODY ? answer : LS_ANSWER_STATUS, -2);
}

void ls_http_result_unused(lua_State *L, const ls_request *r)
{
    const int type = result_count(L) > 0 ? lua_type(L, LS_HTTP_RESULT) : LUA_TNIL;
    if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TTABLE && ls_buffer_test(L, LS_HTTP_RESULT) == NULL)
        return;
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    ls_log(LS_LOG_ERROR, "%s: the %s returned a %s, but res has already %s the response", name, returner(L),
           lua_typename(L, type), r->x->response == LS_RESPONSE_DONE ? "sent" : "started");
}
