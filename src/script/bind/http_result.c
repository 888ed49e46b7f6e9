/* http_result.c - see http_result.h.
 *
 * A value that would be ignored raises. A handler may have returned any number of values; Lua then guarantees no room
 * above them on the stack, so lua_settop removes surplus values first. */
#include "script/bind/http_result.h"

#include <stdbool.h>

#include <lauxlib.h>

#include "base/log.h"
#include "script/bind/bind_aux.h"
#include "script/bind/buffer.h"
#include "script/bind/res.h"
#include "script/core/error_text.h"
#include "script/shared/copy.h"

enum { SHOWN_MAX = 4 }; /* results in a message */

static const char right_order[] = "a handler returns body; body, headers; status; or status, body, headers";

static int result_count(lua_State *L)
{
    return lua_gettop(L) - (LS_HTTP_RESULT - 1);
}

/* Raise "the handler returned a table, 404; <right>". */
static int wrong_results(lua_State *L, int count, const char *right)
{
    luaL_Buffer text;
    if (count > SHOWN_MAX) count = SHOWN_MAX;
    while (count > 1 && lua_isnil(L, LS_HTTP_RESULT + count - 1)) count--;
    lua_settop(L, LS_HTTP_RESULT + count - 1);
    luaL_buffinit(L, &text);
    luaL_addstring(&text, "the handler returned ");
    for (int n = 0; n < count; n++) {
        const int at = LS_HTTP_RESULT + n, type = lua_type(L, at);
        if (n > 0) luaL_addstring(&text, ", ");
        if (type != LUA_TNIL && type != LUA_TNUMBER) luaL_addstring(&text, "a ");
        if (type == LUA_TNUMBER)
            luaL_tolstring(L, at, NULL);
        else
            lua_pushstring(L, ls_buffer_test(L, at) != NULL ? "buffer" : lua_typename(L, type));
        luaL_addvalue(&text);
    }
    luaL_addstring(&text, "; ");
    luaL_addstring(&text, right);
    luaL_pushresult(&text);
    return luaL_error(L, "%s", lua_tostring(L, -1));
}

static bool is_status(lua_State *L, int index)
{
    const lua_Integer status = lua_type(L, index) == LUA_TNUMBER ? lua_tointeger(L, index) : 0;
    return status >= 200 && status <= 999;
}

static void set_headers(lua_State *L, ls_request *r, int index)
{
    if (lua_isnoneornil(L, index)) return;
    if (lua_type(L, index) != LUA_TTABLE) (void)wrong_results(L, result_count(L), right_order);
    ls_copy_open(L, index);
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        const int top = lua_gettop(L);
        ls_request_set_header(L, r, top - 1, top);
        lua_settop(L, top - 1);
    }
}

static int result_status(lua_State *L, int index)
{
    int whole;
    const lua_Integer status = lua_tointegerx(L, index, &whole);
    if (!whole || status < 200 || status > 999)
        luaL_error(L, "the handler returned an invalid status: %s (a status is a whole number from 200 to 999)",
                   luaL_tolstring(L, index, NULL));
    return (int)status;
}

/* The handler has returned a body and further values: accept headers, refuse values that would be ignored. */
static void results_beside_body(lua_State *L, ls_request *r, int count)
{
    if (is_status(L, LS_HTTP_RESULT + 1)) (void)wrong_results(L, count, "the status comes first: return status, body");
    if (lua_type(L, LS_HTTP_RESULT + 1) == LUA_TNUMBER)
        (void)wrong_results(L, count, "put a call that returns several values, such as string.gsub, in parentheses");
    if (count == 2 && ls_is_loader_data(L, LS_HTTP_RESULT, LS_HTTP_RESULT + 1)) return; /* return require "page" */
    for (int n = 1; n < count; n++) {
        const int type = lua_type(L, LS_HTTP_RESULT + n);
        if (type != LUA_TNIL && (type != LUA_TTABLE || n > 1)) (void)wrong_results(L, count, right_order);
    }
    lua_settop(L, LS_HTTP_RESULT + 1); /* any number of nils may have followed: make room on the stack */
    set_headers(L, r, LS_HTTP_RESULT + 1);
}

/* The handler has returned a status and more than a body. */
static void results_beside_status(lua_State *L, ls_request *r, int count)
{
    for (int n = 3; n < count; n++)
        if (!lua_isnil(L, LS_HTTP_RESULT + n)) (void)wrong_results(L, count, right_order);
    lua_settop(L, LS_HTTP_RESULT + 2);
    set_headers(L, r, LS_HTTP_RESULT + 2);
}

/* The handler has returned nil and further values. */
static void results_beside_nil(lua_State *L, int count)
{
    if (is_status(L, LS_HTTP_RESULT + 1)) (void)wrong_results(L, count, "for a status alone: return status");
    if (!lua_isnil(L, LS_HTTP_RESULT + 1)) {
        lua_settop(L, LS_HTTP_RESULT + 1);
        luaL_error(L, "the handler returned nil, %s", ls_error_describe(L, LS_HTTP_RESULT + 1));
    }
    for (int n = 2; n < count; n++)
        if (!lua_isnil(L, LS_HTTP_RESULT + n)) (void)wrong_results(L, count, right_order);
    lua_settop(L, LS_HTTP_RESULT);
}

void ls_http_result_respond(lua_State *L, ls_request *r)
{
    ls_exchange *x = r->x;
    const int count = result_count(L);
    switch (count > 0 ? lua_type(L, LS_HTTP_RESULT) : LUA_TNIL) {
    case LUA_TNIL:
        if (count > 1) results_beside_nil(L, count);
        if (r->status_set) {
            x->type = NULL;
            x->length = -1;
            (void)x->transport->respond(r->state->ctx, x, NULL, 0);
        } else {
            (void)ls_request_respond_text(r, r->failing ? 500 : 204);
        }
        break;
    case LUA_TNUMBER:
        x->status = result_status(L, LS_HTTP_RESULT);
        if (count > 2) results_beside_status(L, r, count);
        if (count < 2 || lua_isnil(L, LS_HTTP_RESULT + 1))
            (void)ls_request_respond_text(r, x->status);
        else
            (void)ls_request_respond_body(L, r, LS_HTTP_RESULT + 1);
        break;
    case LUA_TSTRING:
    case LUA_TTABLE:
    case LUA_TUSERDATA:
        if (count > 1) results_beside_body(L, r, count);
        (void)ls_request_respond_body(L, r, LS_HTTP_RESULT);
        break;
    default: (void)wrong_results(L, count, right_order);
    }
}

void ls_http_result_unused(lua_State *L, const ls_request *r)
{
    const int type = result_count(L) > 0 ? lua_type(L, LS_HTTP_RESULT) : LUA_TNIL;
    if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TTABLE && ls_buffer_test(L, LS_HTTP_RESULT) == NULL)
        return;
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    ls_log(LS_LOG_ERROR, "%s: the handler returned a %s, but res has already %s the response", name,
           lua_typename(L, type), r->x->response == LS_RESPONSE_DONE ? "sent" : "started");
}
