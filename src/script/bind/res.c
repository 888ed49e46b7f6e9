/* res.c - the `res` object: status, header lines, and the body in one piece or in parts.
 *
 * Parts written by the task of the handler are collected in a pool block until the block is full, or the task waits,
 * calls res:flush() or ends: many small writes become few slices. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "proto/http_text.h"
#include "proto/http_type.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/buffer.h"
#include "script/bind/request.h"
#include "script/bind/res.h"
#include "script/core/udata.h"
#include "script/shared/copy.h"

enum { SEND_AT_BYTES = 16384 }; /* res:send sends a body of this length itself; others leave when the handler ends */

/* The response is complete. */
static int raise_sent(lua_State *L, const ls_request *r)
{
    if (r->websocket)
        return luaL_error(L, "the response 101 was sent, and the connection is a WebSocket: set header fields before "
                             "next(), and send data with ws:send");
    return luaL_error(L, ls_exchange_upgraded(r->x) ? "the connection was taken over; use the sock of res:upgrade"
                                                    : "the response was sent already");
}

ls_request *ls_res_check_open(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    if (r->x->response == LS_RESPONSE_DONE) (void)raise_sent(L, r);
    if (r->x->response == LS_RESPONSE_OPEN || r->out != NULL)
        luaL_error(L, "the head of the response was sent already");
    return r;
}

static int check_status(lua_State *L, int index)
{
    const lua_Integer status = luaL_checkinteger(L, index);
    if (status < 200 || status > 999)
        return luaL_error(L, "invalid status %I (a status is a whole number from 200 to 999)", status);
    return (int)status;
}

/* res:status(n) -> res; res:status() -> n */
static int res_status(lua_State *L)
{
    ls_check_arguments(L, 2, "res:status(number)");
    if (lua_isnoneornil(L, 2)) {
        lua_pushinteger(L, ls_request_check_res(L, 1)->x->status);
        return 1;
    }
    ls_request *r = ls_res_check_open(L);
    r->x->status = check_status(L, 2);
    r->status_set = true;
    lua_settop(L, 1);
    return 1;
}

static void header_line(lua_State *L, ls_request *r, int name, int value, bool replace)
{
    size_t name_len, value_len;
    if (lua_type(L, value) != LUA_TSTRING && lua_type(L, value) != LUA_TNUMBER)
        luaL_error(L, "invalid value of header '%s': string or number expected, got %s", lua_tostring(L, name),
                   luaL_typename(L, value));
    const char *n = lua_tolstring(L, name, &name_len), *v = lua_tolstring(L, value, &value_len);
    ls_exchange *x = r->x;
    if (ls_text_same(n, name_len, "content-length", 14)) {
        int whole;
        const lua_Integer length = lua_tointegerx(L, value, &whole);
        if (!whole || length < 0) luaL_error(L, "invalid Content-Length '%s'", v);
        x->length = length;
        return;
    }
    switch (ls_exchange_header(r->state->ctx, x, n, name_len, v, value_len, replace)) {
    case LS_OK: break;
    case LS_EINVAL:
        if (!ls_is_token(n, name_len)) luaL_error(L, "invalid header name '%s'", n);
        luaL_error(L, "invalid value of header '%s': it contains a line break or another control character", n);
        break;
    case LS_ELIMIT: luaL_error(L, "the headers of the response exceed %d bytes", LS_BLOCK_LARGE); break;
    case LS_EACCES: luaL_error(L, "header '%s' is set by the server, because it frames the message", n); break;
    case LS_EBUSY: luaL_error(L, "the head of the response was sent already"); break;
    default: luaL_error(L, "not enough memory for a header"); break;
    }
}

void ls_request_set_header(lua_State *L, ls_request *r, int name, int value)
{
    if (lua_type(L, name) != LUA_TSTRING)
        luaL_error(L, "invalid header name: string expected, got %s", luaL_typename(L, name));
    if (lua_type(L, value) != LUA_TTABLE) {
        header_line(L, r, name, value, true);
        return;
    }
    ls_copy_open(L, value);
    const lua_Integer count = (lua_Integer)lua_rawlen(L, value);
    for (lua_Integer n = 1; n <= count; n++) {
        lua_rawgeti(L, value, n);
        header_line(L, r, name, lua_gettop(L), n == 1);
        lua_pop(L, 1);
    }
}

/* res:header(name, value) -> res. Replaces; a table of values gives several lines. */
static int res_header(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    ls_check_arguments(L, 3, "res:header(name, value)");
    luaL_checkany(L, 3);
    ls_request_set_header(L, r, 2, 3);
    lua_settop(L, 1);
    return 1;
}

/* res:type(name) -> res. Sets the Content-Type: a media type, or the extension of a file name. */
static int res_type(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    const char *name = luaL_checkstring(L, 2);
    ls_check_arguments(L, 2, "res:type(name)");
    if (strchr(name, '/') == NULL) {
        const char *known = ls_http_type_of_extension(strcmp(name, "text") == 0 ? "txt" : name + (*name == '.'));
        if (known == NULL)
            return luaL_error(L,
                              "res:type: unknown type '%s'; write a media type, such as \"text/plain\", or the "
                              "extension of a file name, such as \"html\"",
                              name);
        lua_pushstring(L, known);
        lua_replace(L, 2);
    }
    lua_settop(L, 2);
    lua_pushliteral(L, "Content-Type");
    header_line(L, r, 3, 2, true);
    lua_settop(L, 1);
    return 1;
}

/* ---- cookies ----------------------------------------------------------------------------------------------- */

/* Push the field `name` of the options at index 4; false when it is nil or false. A raw access: the table keeps the
 * value alive. */
static bool cookie_option(lua_State *L, const char *name)
{
    if (lua_type(L, 4) != LUA_TTABLE) return false;
    lua_pushstring(L, name);
    if (lua_rawget(L, 4) == LUA_TNIL || (lua_isboolean(L, -1) && !lua_toboolean(L, -1))) {
        lua_pop(L, 1);
        return false;
    }
    return true;
}

static void cookie_text(lua_State *L, luaL_Buffer *line, const char *option, const char *label)
{
    if (!cookie_option(L, option)) return;
    size_t len = 0;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : NULL;
    if (text == NULL || memchr(text, ';', len) != NULL || !ls_is_field_value(text, len))
        luaL_error(L, "res:cookie: %s must be a string without ';' or control characters", option);
    lua_pop(L, 1); /* the table keeps the string; luaL_Buffer expects its own value on top */
    luaL_addstring(line, label);
    luaL_addlstring(line, text, len);
}

static double cookie_number(lua_State *L, const char *option)
{
    int is_number;
    const double value = lua_tonumberx(L, -1, &is_number);
    if (!is_number || value != value || value > 253402300799.0 || value < -253402300799.0)
        luaL_error(L, "res:cookie: %s must be a number of seconds", option);
    lua_pop(L, 1);
    return value;
}

static const char *same_site_of(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    const size_t len = text != NULL ? strlen(text) : 0;
    lua_pop(L, 1);
    if (ls_text_same(text != NULL ? text : "", len, "lax", 3)) return "Lax";
    if (ls_text_same(text != NULL ? text : "", len, "strict", 6)) return "Strict";
    if (ls_text_same(text != NULL ? text : "", len, "none", 4)) return "None";
    luaL_error(L, "res:cookie: same_site must be \"lax\", \"strict\" or \"none\"");
    return NULL;
}

static void cookie_check_options(lua_State *L)
{
    static const char *const known[] = {"path",   "domain",    "max_age",   "expires",
                                        "secure", "http_only", "same_site", NULL};
    if (lua_isnoneornil(L, 4)) return;
    luaL_checktype(L, 4, LUA_TTABLE);
    ls_copy_open(L, 4);
    lua_pushnil(L);
    while (lua_next(L, 4) != 0) {
        const char *const *name = known;
        lua_pop(L, 1);
        const char *key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
        while (*name != NULL && strcmp(*name, key) != 0) name++;
        if (*name == NULL)
            luaL_error(L,
                       "res:cookie: unknown option '%s'; the options are path, domain, max_age, expires, secure, "
                       "http_only and same_site",
                       luaL_tolstring(L, -1, NULL));
    }
}

/* res:cookie(name, value [, options]) -> res */
static int res_cookie(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    size_t name_len, value_len, len;
    const char *name = luaL_checklstring(L, 2, &name_len), *value = luaL_checklstring(L, 3, &value_len);
    char text[64];
    luaL_Buffer line;
    ls_check_arguments(L, 4, "res:cookie(name, value, options)");
    if (!ls_is_token(name, name_len)) return luaL_error(L, "invalid cookie name '%s'", name);
    if (!ls_is_cookie_value(value, value_len))
        return luaL_error(L,
                          "invalid value of cookie '%s': it contains a space, '\"', ',', ';', '\\' or a control "
                          "character; encode it first, for instance with ls.url.encode",
                          name);
    cookie_check_options(L);
    lua_settop(L, 4);

    luaL_buffinit(L, &line);
    luaL_addlstring(&line, name, name_len);
    luaL_addchar(&line, '=');
    luaL_addlstring(&line, value, value_len);
    cookie_text(L, &line, "path", "; Path=");
    cookie_text(L, &line, "domain", "; Domain=");
    if (cookie_option(L, "max_age")) {
        (void)snprintf(text, sizeof text, "; Max-Age=%.0f", cookie_number(L, "max_age"));
        luaL_addstring(&line, text);
    }
    if (cookie_option(L, "expires")) {
        const double at = cookie_number(L, "expires");
        char date[LS_HTTP_DATE_BYTES];
        ls_http_date(at < 0 ? 0 : (int64_t)at, date);
        luaL_addstring(&line, "; Expires=");
        luaL_addlstring(&line, date, sizeof date);
    }
    if (cookie_option(L, "secure")) {
        lua_pop(L, 1);
        luaL_addstring(&line, "; Secure");
    }
    if (cookie_option(L, "http_only")) {
        lua_pop(L, 1);
        luaL_addstring(&line, "; HttpOnly");
    }
    if (cookie_option(L, "same_site")) {
        const char *same_site = same_site_of(L);
        luaL_addstring(&line, "; SameSite=");
        luaL_addstring(&line, same_site);
    }
    luaL_pushresult(&line);
    const char *bytes = lua_tolstring(L, -1, &len);
    const int err = ls_exchange_header(r->state->ctx, r->x, "Set-Cookie", 10, bytes, len, false);
    if (err < 0) return luaL_error(L, "cannot set cookie '%s': %s", name, ls_err_text(err));
    lua_settop(L, 1);
    return 1;
}

/* ---- the body in one piece --------------------------------------------------------------------------------- */

/* true, or nil, message, code for a negative result */
static int push_result(lua_State *L, int result)
{
    if (result < 0) return ls_push_failure(L, result);
    lua_pushboolean(L, 1);
    return 1;
}

/* Every event of the exchange wakes its waiters: check whether the queue was sent. */
static int queue_done(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_res(L, 1);
    ls_exchange *x = r->x;
    (void)status;
    if (x->error == 0 && x->response != LS_RESPONSE_NONE && x->transport->flush(r->state->ctx, x) == LS_PENDING)
        return ls_request_wait(L, r, context, queue_done);
    return push_result(L, x->error);
}

/* `type`: the Content-Type, NULL for that of the value. */
static int send_value(lua_State *L, ls_request *r, int index, const char *type)
{
    ls_slice text;
    if (type == ls_type_json || (type == NULL && lua_type(L, index) == LUA_TTABLE)) {
        if (ls_json_encode(L, index, &text)) return push_result(L, ls_request_respond_json(L, r, text));
        type = ls_type_json;
    }
    int result = type != NULL ? ls_request_respond_as(L, r, index, type) : ls_request_respond_body(L, r, index);
    /* Another task than the handler's must not wait: the handler may end the request meanwhile. */
    if (result >= 0 && r->x->body_sent >= SEND_AT_BYTES && r->state->current == r->task && ls_task_can_wait(L)) {
        result = r->x->transport->flush(r->state->ctx, r->x);
        if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    }
    return push_result(L, result);
}

/* res:send(body) -> true | nil, message, code. String, buffer, number, or a table for JSON. */
static int res_send(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:send(body)");
    lua_settop(L, 2);
    return send_value(L, r, 2, NULL);
}

/* res:html(text) -> true | nil, message, code. String, number or buffer. */
static int res_html(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:html(text)");
    if (lua_type(L, 2) == LUA_TTABLE) return luaL_error(L, "res:html: string, number or buffer expected, got table");
    lua_settop(L, 2);
    return send_value(L, r, 2, ls_type_html);
}

/* res:json(value) -> true | nil, message, code */
static int res_json(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:json(value)");
    lua_settop(L, 2);
    return send_value(L, r, 2, ls_type_json);
}

/* res:redirect(url [, 302]) -> true | nil, message, code */
static int res_redirect(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    (void)luaL_checkstring(L, 2);
    ls_check_arguments(L, 3, "res:redirect(url, status)");
    const lua_Integer code = luaL_optinteger(L, 3, 302);
    luaL_argcheck(L, code >= 300 && code <= 399, 3, "status of a redirect must be from 300 to 399");
    lua_pushliteral(L, "Location");
    header_line(L, r, lua_gettop(L), 2, true);
    return push_result(L, ls_request_respond_text(r, (int)code));
}

/* ---- the body in parts ------------------------------------------------------------------------------------- */

/* A full block goes to the transport. */
int ls_request_collect(lua_State *L, ls_request *r, const char *bytes, size_t len)
{
    int result = LS_DONE;
    while (len > 0) {
        size_t size = len > LS_BLOCK_SMALL ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
        if (r->out != NULL && r->out_len == r->out->cap) {
            const int err = ls_request_push_parts(r->state->ctx, r);
            if (err < 0) return err;
            if (err == LS_PENDING) result = err;
            ls_block_drop(r->out);
            r->out = NULL;
            r->out_from = r->out_len = 0;
            size = LS_BLOCK_LARGE;
        }
        if (r->out == NULL) {
            ls_block *block = ls_state_block(L, size);
            if (r->out != NULL) { /* ls_state_block collected garbage, and a finalizer wrote */
                ls_block_drop(block);
                continue;
            }
            r->out = block;
            r->out_from = r->out_len = 0;
        }
        size_t run = r->out->cap - r->out_len;
        if (run > len) run = len;
        memcpy(r->out->data + r->out_len, bytes, run);
        ls_request_flush_later(r);
        r->out_len += (uint32_t)run;
        bytes += run;
        len -= run;
    }
    return result;
}

/* Pass a buffer or a long string to the transport, behind the collected parts. */
static int write_slices(lua_State *L, ls_request *r, int index)
{
    ls_body body;
    if (ls_body_of(L, index, &body) < 0) return luaL_error(L, "not enough memory");
    r->written += ls_slices_bytes(body.slices, body.count);
    int done = ls_request_push_parts(r->state->ctx, r);
    if (body.count > 0) { /* takes the references, also when the connection is lost */
        const int written = r->x->transport->write(r->state->ctx, r->x, body.slices, body.count);
        ls_request_flush_later(r);
        if (done >= 0) done = written;
    }
    ls_body_free(&body);
    return done;
}

static int write_all(lua_State *L, ls_request *r)
{
    ls_exchange *x = r->x;
    ls_thread_ctx *ctx = r->state->ctx;
    const int last = lua_gettop(L);
    int result = LS_DONE;
    for (int index = 2; index <= last; index++) {
        const int type = lua_type(L, index);
        const bool is_long = type == LUA_TSTRING && lua_rawlen(L, index) >= LS_PART_SHARED_MIN;
        int done;
        if (is_long) (void)ls_strings_reserve(L, 1); /* first: it may run a finalizer, which may respond */
        if (x->response == LS_RESPONSE_DONE)
            return luaL_error(L, "the response was sent already"); /* sent by a finalizer */
        if (x->error != 0) return ls_push_failure(L, x->error);
        if (type == LUA_TSTRING && !is_long) { /* res_write has converted numbers */
            size_t len;
            const char *bytes = lua_tolstring(L, index, &len);
            r->written += len;
            done = ls_request_collect(L, r, bytes, len);
        } else {
            done = write_slices(L, r, index);
        }
        if (done < 0) return ls_push_failure(L, done);
        if (done == LS_PENDING) result = done;
    }
    if (r->state->current != r->task) {
        const int done = ls_request_push_parts(ctx, r);
        if (done < 0) return ls_push_failure(L, done);
        if (done == LS_PENDING) result = done;
    }
    if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    return push_result(L, x->error);
}

/* res:write(...) -> true | nil, message, code. Waits while too much is queued. */
static int res_write(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    uint64_t bytes = 0;
    const int last = lua_gettop(L);
    if (r->x->response == LS_RESPONSE_DONE) return raise_sent(L, r);
    if (r->owned != NULL)
        return luaL_error(L, "res:write: the response is a stream of events; write with sse:send or sse:comment");
    for (int n = 2; n <= last; n++) { /* check all arguments first: nothing is written when one is invalid */
        const int type = lua_type(L, n);
        const ls_buffer *buffer = NULL;
        if (type == LUA_TNUMBER) (void)lua_tostring(L, n);
        if (type != LUA_TSTRING && type != LUA_TNUMBER && (buffer = ls_buffer_test(L, n)) == NULL)
            return luaL_typeerror(L, n, "string, number or buffer");
        bytes += buffer != NULL ? buffer->len : lua_rawlen(L, n);
    }
    if (r->x->length >= 0 && r->written + bytes > (uint64_t)r->x->length)
        return luaL_error(L, "res:write: the body exceeds the Content-Length of %I bytes", (lua_Integer)r->x->length);
    return write_all(L, r);
}

/* res:flush() -> true | nil, message, code */
static int res_flush(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    ls_check_arguments(L, 1, "res:flush(); res:write sends data");
    int result = ls_request_push_parts(r->state->ctx, r);
    if (ls_exchange_upgraded(r->x)) return raise_sent(L, r);
    if (r->x->error != 0) return ls_push_failure(L, r->x->error);
    if (result >= 0 && r->x->response != LS_RESPONSE_DONE) result = r->x->transport->flush(r->state->ctx, r->x);
    if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    return push_result(L, result);
}

/* res:abort(): closes the connection; nothing more is sent. */
static int res_abort(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    ls_check_arguments(L, 1, "res:abort(), which sends nothing");
    if (ls_exchange_upgraded(r->x)) return raise_sent(L, r);
    r->x->transport->abort(r->state->ctx, r->x);
    return 0;
}

/* ---- the object -------------------------------------------------------------------------------------------- */

static int res_index(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, lua_upvalueindex(1))) {
    case LUA_TFUNCTION: return 1;
    case LUA_TNUMBER: lua_pushboolean(L, r->x->response != LS_RESPONSE_NONE || r->out != NULL); return 1; /* sent */
    default: return ls_unknown_member(L, "res", lua_upvalueindex(1));
    }
}

static int res_newindex(lua_State *L)
{
    return luaL_error(L, "res.%s cannot be set; use a method, such as res:status(201)", luaL_tolstring(L, 2, NULL));
}

void ls_request_define_res(lua_State *L, ls_requests *requests)
{
    static const luaL_Reg methods[] = {{"status", res_status},      {"header", res_header}, {"cookie", res_cookie},
                                       {"write", res_write},        {"flush", res_flush},   {"send", res_send},
                                       {"html", res_html},          {"json", res_json},     {"type", res_type},
                                       {"redirect", res_redirect},  {"file", ls_res_file},  {"sse", ls_res_sse},
                                       {"upgrade", ls_res_upgrade}, {"abort", res_abort},   {NULL, NULL}};
    lua_newtable(L);
    luaL_newlib(L, methods);
    lua_pushinteger(L, 1);
    lua_setfield(L, -2, "sent");
    lua_pushcclosure(L, res_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, res_newindex);
    lua_setfield(L, -2, "__newindex");
    ls_udata_define(L, "response", &requests->res_meta_ref);
}
