/* res.c - the `res` object: status, header lines, and the body in one piece or in parts.
 *
 * Parts written by the task of the handler are collected in a pool block until the block is full, or the task waits,
 * calls res:flush() or ends: many small writes become few slices. */
#include <string.h>

#include "base/err.h"
#include "codec/http_text.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/req.h"
#include "script/bind/http/respond.h"
#include "script/bind/value/buffer.h"
#include "script/core/lua/udata.h"
#include "script/store/copy.h"

/* The response is complete. */
static int raise_sent(lua_State *L, const ls_request *r)
{
    return luaL_error(L, "%s",
                      r->kind != NULL && r->kind->sent != NULL
                          ? r->kind->sent
                          : "the response was sent already: set status and fields before next(), "
                            "or for app:proxy in its hook 'response'");
}

ls_request *ls_res_check_open(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    if (r->x->response == LS_RESPONSE_DONE) (void)raise_sent(L, r);
    if (r->x->response == LS_RESPONSE_OPEN && r->x->error != 0 && r->x->error != LS_EMSGSIZE && r->x->written == 0)
        (void)ls_task_left_error(L, ""); /* nothing was sent: a send has failed while the task waited */
    if (r->x->response == LS_RESPONSE_OPEN || r->out.block != NULL)
        luaL_error(L,
                   "the head of the response was sent already: set status and fields before it begins, in middleware "
                   "before next()");
    return r;
}

void ls_res_check_undescribed(lua_State *L, const ls_request *r, const char *call)
{
    ls_request_check_undescribed(L, r);
    if (r->answer != LS_ANSWER_NONE) luaL_error(L, "%s: the handler has described the response already", call);
}

static int check_status(lua_State *L, int index)
{
    if (lua_type(L, index) == LUA_TSTRING) luaL_checktype(L, index, LUA_TNUMBER); /* no conversion */
    const lua_Integer status = luaL_checkinteger(L, index);
    if (status < 200 || status > 999)
        return luaL_error(L, "invalid status %I (a status is a whole number from 200 to 999)", status);
    return (int)status;
}

/* res:status(status) -> res
 * res:status() -> status
 * Sets the status; without an argument, returns it. */
static int res_status(lua_State *L)
{
    ls_check_arguments(L, 2, "res:status(status)");
    if (lua_isnoneornil(L, 2)) return ls_push_integer(L, ls_request_check_res(L, 1)->x->status);
    ls_request *r = ls_res_check_open(L);
    r->x->status = check_status(L, 2);
    r->status_set = true;
    lua_settop(L, 1);
    return 1;
}

/* Raise for a field that the exchange has refused. */
static int raise_field(lua_State *L, int err, const char *kind, const char *name, size_t name_len)
{
    if (err != LS_EINVAL) return luaL_error(L, "not enough memory for a %s", kind);
    if (!ls_is_token(name, name_len)) return luaL_error(L, "invalid %s name '%s'", kind, name);
    return luaL_error(L, "invalid value of %s '%s': it contains a line break or another control character", kind,
                      name);
}

static void header_line(lua_State *L, ls_request *r, int name, int value, bool replace)
{
    size_t name_len, value_len;
    if (lua_type(L, value) != LUA_TSTRING && lua_type(L, value) != LUA_TNUMBER)
        luaL_error(L, "invalid value of header '%s': string or number expected, got %s", lua_tostring(L, name),
                   luaL_typename(L, value));
    const char *n = lua_tolstring(L, name, &name_len), *v = ls_number_tolstring(L, value, &value_len);
    ls_exchange *x = r->x;
    if (ls_text_same(n, name_len, "content-length", 14)) {
        int whole;
        const lua_Integer length = lua_tointegerx(L, value, &whole);
        if (!whole || length < 0) luaL_error(L, "invalid Content-Length '%s'", v);
        x->length = length;
        return;
    }
    const int err = ls_exchange_header(r->state->ctx, x, n, name_len, v, value_len, replace);
    switch (err) {
    case LS_OK: break;
    case LS_ELIMIT: luaL_error(L, "the headers of the response exceed %d bytes", LS_BLOCK_LARGE); break;
    case LS_EACCES: luaL_error(L, "header '%s' is set by the server: leave it out", n); break;
    case LS_EBUSY: luaL_error(L, "the head of the response was sent already"); break;
    default: (void)raise_field(L, err, "header", n, name_len); break;
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
    if (count == 0) lua_pushnil(L);
    if (count == 0 && lua_next(L, value) != 0)
        luaL_error(L, "invalid value of header '%s': a list of values expected, got a table with names",
                   lua_tostring(L, name));
    for (lua_Integer n = 1; n <= count; n++) {
        lua_rawgeti(L, value, n);
        header_line(L, r, name, lua_gettop(L), n == 1);
        lua_pop(L, 1);
    }
}

void ls_request_set_headers(lua_State *L, ls_request *r, int index)
{
    if (lua_isnoneornil(L, index)) return;
    ls_copy_open(L, index);
    lua_pushnil(L);
    while (lua_next(L, index) != 0) {
        const int top = lua_gettop(L);
        ls_request_set_header(L, r, top - 1, top);
        lua_settop(L, top - 1);
    }
}

/* Push the value of the field at index 2; nil if it is not set. */
static int push_header(lua_State *L, const ls_request *r)
{
    size_t name_len, len;
    const char *name = luaL_checklstring(L, 2, &name_len), *value = ls_exchange_find(r->x, name, name_len, &len);
    if (value != NULL) return ls_push_bytes(L, value, len);
    if (r->later != NULL && r->x->response == LS_RESPONSE_NONE)
        return r->later->push_field(L, r->later, name, name_len);
    if (r->x->length >= 0 && ls_text_same(name, name_len, "content-length", 14)) {
        lua_pushfstring(L, "%I", (LUAI_UACINT)r->x->length);
        return 1;
    }
    if (ls_text_same(name, name_len, "content-type", 12)) return ls_push_text(L, ls_request_answer_type(L, r));
    return ls_push_nil(L);
}

/* core.be_private(res) -> whether the response has not begun: then no cache may give it to others, unless it has a
 * Cache-Control of its own. nil, after a WebSocket: it has. */
static int core_be_private(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) return 0;
    const ls_request *r = ls_request_check_res(L, 1);
    size_t len;
    const bool begun = ls_request_has_begun(r);
    if (!begun && ls_exchange_find(r->x, "Cache-Control", 13, &len) == NULL &&
        ls_exchange_header(r->state->ctx, r->x, "Cache-Control", 13, "private", 7, true) < 0)
        return luaL_error(L, "the headers of the response exceed %d bytes", LS_BLOCK_LARGE);
    return ls_push_boolean(L, !begun);
}

/* res:header(name, value: string|number|(string|number)[]|nil) -> res
 * res:header(name) -> value: string | nil
 * Sets a header field: replaces its value; a list makes several fields, nil removes it. Without a second argument it
 * returns the value of the field. A second cookie is one of res:cookie: a text as Set-Cookie, which would remove the
 * first one, raises. */
static int res_header(lua_State *L)
{
    if (lua_gettop(L) == 2) return push_header(L, ls_request_check_res(L, 1));
    ls_request *r = ls_res_check_open(L);
    ls_check_arguments(L, 3, "res:header(name, value)");
    luaL_checkany(L, 2);
    const ls_text name = ls_check_text(L, 2);
    const bool removes = lua_isnil(L, 3);
    if (!removes && !lua_istable(L, 3) && ls_text_same(name.ptr, name.len, "set-cookie", 10) &&
        ls_exchange_has_field(r->x, name.ptr, name.len))
        return luaL_error(L, "res:header(\"Set-Cookie\", value) would remove the cookie that the response has: write "
                             "res:cookie(name, value), which adds one, or a list of all values");
    if (removes)
        ls_exchange_remove(r->x, name.ptr, name.len);
    else
        ls_request_set_header(L, r, 2, 3);
    if (r->later != NULL && (removes || !ls_text_same(name.ptr, name.len, "vary", 4)))
        r->later->remove_field(r->later, name.ptr, name.len);
    lua_settop(L, 1);
    return 1;
}

/* res:trailer(name, value: string|number) -> res
 * Adds a field after the body, for what is known only then. It is sent if the response has no length: if its parts are
 * written by res:write, or it is a whole one to a client of HTTP/1.1. */
static int res_trailer(lua_State *L)
{
    const ls_request *r = ls_request_check_res(L, 1);
    const ls_text name = ls_check_text(L, 2), value = ls_check_text(L, 3);
    if (r->x->response == LS_RESPONSE_DONE) return raise_sent(L, r);
    if (r->x->length >= 0)
        return luaL_error(L, "res:trailer: a response with a Content-Length has no trailers: leave the length out");
    const int err = ls_exchange_trailer(r->state->ctx, r->x, name.ptr, name.len, value.ptr, value.len);
    switch (err) {
    case LS_EINVAL:
    case LS_ENOMEM: return raise_field(L, err, "trailer", name.ptr, name.len);
    case LS_EACCES:
        return luaL_error(L, "'%s' cannot be a trailer: a client needs it before the body; use res:header", name.ptr);
    case LS_ELIMIT: return luaL_error(L, "the trailers of the response exceed %d bytes", LS_TRAILER_BYTES_MAX);
    default: break; /* LS_OK; or the connection is lost, which a write tells */
    }
    lua_settop(L, 1);
    return 1;
}

/* res:type(name) -> res
 * Sets the Content-Type: a media type, or the extension of a file name. */
static int res_type(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    lua_settop(L, 2);
    const char *type = ls_request_check_type(L, 2, "res:type");
    if (type != lua_tostring(L, 2)) lua_pushstring(L, type);
    lua_pushliteral(L, "Content-Type");
    header_line(L, r, lua_gettop(L), lua_gettop(L) - 1, true);
    lua_settop(L, 1);
    return 1;
}

/* res:cookie(name, value: string|number|nil [, options: CookieOptions]) -> res
 * Adds a cookie; nil deletes it. */
static int res_cookie(lua_State *L)
{
    size_t len;
    (void)ls_res_check_open(L);
    if (lua_gettop(L) == 2) return luaL_error(L, "res:cookie: the value is missing; res:cookie(name, nil) deletes");
    lua_settop(L, 4);
    ls_push_function(L, "luaserve.cookie", "line");
    lua_insert(L, 2);
    lua_call(L, 3, 1);
    const ls_request *r = ls_res_check_open(L); /* a finalizer may have responded */
    const char *line = lua_tolstring(L, 2, &len);
    const int err = ls_exchange_header(r->state->ctx, r->x, "Set-Cookie", 10, line, len, false);
    if (err < 0) return luaL_error(L, "cannot set the cookie: %s", ls_err_text(err));
    lua_settop(L, 1);
    return 1;
}

/* ---- the body in one piece --------------------------------------------------------------------------------- */

/* Push the result of a part that was written. */
static int push_written(lua_State *L, int error)
{
    if (error != 0) ls_request_tell_left(ls_state_of(L));
    return ls_push_result(L, error);
}

/* Every event of the exchange wakes its waiters: check whether the queue was sent. */
static int queue_done(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_res(L, 1);
    ls_exchange *x = r->x;
    if (x->error == 0 && ls_exchange_flush(r->state->ctx, x) == LS_PENDING)
        return ls_request_wait(L, r, context, queue_done);
    return push_written(L, x->error);
}

/* Describe the response; its body is at index 2, if it has one. Returns res. */
static int describe(lua_State *L, ls_request *r, enum ls_answer answer, const char *call)
{
    ls_request_check_undescribed(L, r);
    lua_settop(L, answer < LS_ANSWER_BODY ? 1 : 2);
    ls_request_describe(L, r, answer, 1);
    ls_request_note_call(L, r, call);
    return 1;
}

static void check_body(lua_State *L, const char *call)
{
    const int type = lua_type(L, 2);
    if (type != LUA_TSTRING && type != LUA_TNUMBER && ls_buffer_test(L, 2) == NULL)
        luaL_error(L, "%s: string, number or buffer expected, got %s", call, luaL_typename(L, 2));
}

/* res:send(body: Data|table) -> res
 * Makes this the body of the response, which is sent when the handler has returned. A table becomes JSON. */
static int res_send(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:send(body)");
    if (lua_type(L, 2) != LUA_TTABLE) check_body(L, "res:send");
    return describe(L, r, LS_ANSWER_BODY, "res:send");
}

/* res:html(text: Data) -> res
 * Makes a page the body. */
static int res_html(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:html(text)");
    check_body(L, "res:html");
    return describe(L, r, LS_ANSWER_HTML, "res:html");
}

static int render_done(lua_State *L, int status, lua_KContext context)
{
    ls_request_check_res(L, 1)->described = "res:render";
    return 1;
}

/* res:render(name: string [, values: table]) -> res
 * Makes the page of a template the body: template.lua. The template may wait. */
static int res_render(lua_State *L)
{
    ls_request_check_undescribed(L, ls_res_check_open(L));
    lua_settop(L, 3);
    ls_push_function(L, "luaserve.template", "respond");
    lua_insert(L, 1);
    lua_callk(L, 3, 1, 0, render_done);
    return render_done(L, LUA_OK, 0);
}

/* res:json(value) -> res
 * Makes a value the body, as JSON. */
static int res_json(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_checkany(L, 2);
    ls_check_arguments(L, 2, "res:json(value)");
    return describe(L, r, LS_ANSWER_JSON, "res:json");
}

/* Push the reference at `index` with the characters escaped that no URL has (RFC 3986 section 2): many clients do not
 * follow another one, and read "\" as "/". Control characters stay: no field can have them. */
static void push_location(lua_State *L, int index)
{
    luaL_Buffer text;
    const ls_text url = ls_check_text(L, index);
    luaL_buffinitsize(L, &text, 3 * url.len + 1); /* snprintf ends with a zero byte */
    for (size_t i = 0; i < url.len; i++) {
        const unsigned char c = (unsigned char)url.ptr[i];
        const bool stays = c == '\0' || (c < 0x80 && strchr(" \"<>\\^`{|}\t", c) == NULL);
        luaL_addsize(&text, stays ? 0 : (size_t)snprintf(luaL_buffaddr(&text) + luaL_bufflen(&text), 4, "%%%02X", c));
        if (stays) luaL_addchar(&text, (char)c);
    }
    luaL_pushresult(&text);
}

/* res:redirect(url: string [, status]) -> res
 * Makes the response a redirect; the default status is 302. Characters that no URL has, such as blanks, are escaped. */
static int res_redirect(lua_State *L)
{
    ls_request *r = ls_res_check_open(L);
    luaL_argcheck(L, *luaL_checkstring(L, 2) != '\0', 2, "the URL is empty; for the home page write \"/\"");
    const lua_Integer code = luaL_optinteger(L, 3, 302);
    luaL_argcheck(L, code >= 300 && code <= 399, 3, "status of a redirect must be from 300 to 399");
    ls_request_check_undescribed(L, r);
    lua_pushliteral(L, "Location");
    push_location(L, 2);
    header_line(L, r, lua_gettop(L) - 1, lua_gettop(L), true);
    r->x->status = (int)code;
    r->status_set = true;
    return describe(L, r, LS_ANSWER_STATUS, "res:redirect");
}

/* res:body() -> body: string|number|Buffer|table|nil
 * The body that is described; nil for a file, a redirect, a status alone, and a response that has begun. */
static int res_body(lua_State *L)
{
    const ls_request *r = ls_request_check_res(L, 1);
    if (r->answer < LS_ANSWER_BODY || r->answer == LS_ANSWER_LATER) return ls_push_nil(L);
    lua_getiuservalue(L, 1, LS_RES_ANSWER);
    return 1;
}

/* ---- the body in parts ------------------------------------------------------------------------------------- */

/* Pass a buffer or a long string to the transport, after the collected parts. */
static int write_slices(lua_State *L, ls_request *r, int index)
{
    ls_body body;
    if (ls_body_of(L, index, &body) < 0) return luaL_error(L, "not enough memory");
    r->out.written += ls_slices_bytes(body.slices, body.count);
    int done = ls_request_push_parts(r->state->ctx, r);
    if (body.count > 0) { /* takes the references, also when the connection is lost */
        const int written = ls_exchange_write(r->state->ctx, r->x, body.slices, body.count);
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
    if (x->error == 0 && x->response == LS_RESPONSE_OPEN && x->no_body) /* the client has it all, and may have left */
        return push_written(L, LS_ECLOSED);
    if (x->error == 0) ls_task_progress(r->task);
    int result = LS_DONE;
    for (int index = 2; index <= last; index++) {
        const int type = lua_type(L, index);
        const bool is_long = type == LUA_TSTRING && lua_rawlen(L, index) >= LS_PART_SHARED_MIN;
        int done;
        if (is_long) (void)ls_strings_reserve(L, 1); /* first: it may run a finalizer, which may respond */
        if (x->response == LS_RESPONSE_DONE)
            return luaL_error(L, "the response was sent already"); /* sent by a finalizer */
        if (x->error != 0) return push_written(L, x->error);
        if (type == LUA_TSTRING && !is_long) { /* res_write has converted numbers */
            size_t len;
            const char *bytes = lua_tolstring(L, index, &len);
            r->out.written += len;
            done = ls_request_collect(L, r, bytes, len);
        } else {
            done = write_slices(L, r, index);
        }
        if (done < 0) return push_written(L, done);
        if (done == LS_PENDING) result = done;
    }
    if (r->state->current != r->task) {
        const int done = ls_request_push_parts(ctx, r);
        if (done < 0) return push_written(L, done);
        if (done == LS_PENDING) result = done;
    }
    if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    return push_written(L, x->error);
}

/* res:write(...: Data) -> true | nil, message, code
 * Sends a part of the body; the response ends when the handler returns. Waits while too much is queued. */
static int res_write(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    uint64_t bytes = 0;
    const int last = lua_gettop(L);
    if (r->x->response == LS_RESPONSE_DONE) return raise_sent(L, r);
    ls_res_check_undescribed(L, r, "res:write");
    if (r->owned != NULL && r->kind->no_write != NULL) return luaL_error(L, "res:write: %s", r->kind->no_write);
    for (int n = 2; n <= last; n++) { /* check all arguments first: nothing is written when one is invalid */
        const int type = lua_type(L, n);
        const ls_buffer *buffer = NULL;
        if (type == LUA_TNUMBER) (void)ls_number_tolstring(L, n, NULL);
        if (type != LUA_TSTRING && type != LUA_TNUMBER && (buffer = ls_buffer_test(L, n)) == NULL)
            return luaL_typeerror(L, n, "string, number or buffer");
        bytes += buffer != NULL ? buffer->len : lua_rawlen(L, n);
    }
    if (r->x->length >= 0 && r->out.written + bytes > (uint64_t)r->x->length)
        return luaL_error(L, "res:write: the body exceeds the Content-Length of %I bytes", (lua_Integer)r->x->length);
    return write_all(L, r);
}

/* res:flush() -> true | nil, message, code
 * Sends what was written, and waits until the system has accepted it. */
static int res_flush(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    int result = ls_request_push_parts(r->state->ctx, r);
    if (ls_exchange_upgraded(r->x)) return raise_sent(L, r);
    if (r->x->error != 0) return push_written(L, r->x->error);
    if (result >= 0 && r->x->response != LS_RESPONSE_DONE) result = ls_exchange_flush(r->state->ctx, r->x);
    if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    return ls_push_result(L, result);
}

/* Add the field of the name at `name` with the value on top of the stack. */
static void add_hint(lua_State *L, ls_hints *all, int name)
{
    size_t name_len, value_len;
    const char *n = lua_tolstring(L, name, &name_len);
    if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
        luaL_error(L, "res:early_hints: invalid value of header '%s': string or number expected, got %s", n,
                   luaL_typename(L, -1));
    const char *v = ls_number_tolstring(L, -1, &value_len);
    const int err = ls_hints_add(all, n, name_len, v, value_len);
    if (err == LS_EACCES) luaL_error(L, "res:early_hints: header '%s' is set by the server: leave it out", n);
    if (err == LS_ELIMIT) luaL_error(L, "res:early_hints: the fields exceed %d bytes", LS_HINTS_BYTES_MAX);
    if (err < 0) (void)raise_field(L, err, "header", n, name_len);
}

/* res:early_hints(fields: Headers) -> true | nil, message, code
 * Sends these header fields at once in a response 103, before the response: the client may load what a Link names. */
static int res_early_hints(lua_State *L)
{
    ls_hints all;
    ls_request *r = ls_res_check_open(L);
    all.len = 0;
    luaL_checktype(L, 2, LUA_TTABLE);
    ls_copy_open(L, 2);
    for (lua_pushnil(L); lua_next(L, 2) != 0; lua_settop(L, 3)) {
        if (lua_type(L, 3) != LUA_TSTRING)
            return luaL_error(L, "res:early_hints: invalid header name: string expected, got %s", luaL_typename(L, 3));
        if (lua_type(L, 4) != LUA_TTABLE) {
            add_hint(L, &all, 3);
            continue;
        }
        ls_copy_open(L, 4);
        for (lua_Integer n = 1, count = (lua_Integer)lua_rawlen(L, 4); n <= count; n++, lua_settop(L, 4)) {
            lua_rawgeti(L, 4, n);
            add_hint(L, &all, 3);
        }
    }
    const int result = ls_exchange_hints(r->state->ctx, r->x, &all);
    if (result == LS_PENDING) return ls_request_wait(L, r, 0, queue_done);
    return ls_push_result(L, result);
}

/* res:abort()
 * Closes the connection without the rest of the response. */
static int res_abort(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    if (ls_exchange_upgraded(r->x)) return raise_sent(L, r);
    r->hung_up |= r->x->error == 0;
    ls_exchange_abort(r->state->ctx, r->x);
    return 0;
}

/* ---- the object -------------------------------------------------------------------------------------------- */

/* res is a Response: the second argument of a handler.
 * res.sent: boolean - whether the response has begun */
static int res_index(lua_State *L)
{
    ls_request *r = ls_request_check_res(L, 1);
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, lua_upvalueindex(1))) {
    case LUA_TFUNCTION: return 1;
    case LUA_TNUMBER: lua_pushboolean(L, ls_request_has_begun(r)); return 1; /* sent */
    default: return ls_unknown_member(L, "res", lua_upvalueindex(1));
    }
}

static int res_newindex(lua_State *L)
{
    return luaL_error(L, "res.%s cannot be set; use a method, such as res:status(201)", luaL_tolstring(L, 2, NULL));
}

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"status", res_status},
                                       {"header", res_header},
                                       {"res:cookie(name, value, options)", res_cookie},
                                       {"write", res_write},
                                       {"res:flush(); res:write sends data", res_flush},
                                       {"send", res_send},
                                       {"res:body(), which returns the body; res:send(body) sets it", res_body},
                                       {"html", res_html},
                                       {"json", res_json},
                                       {"res:render(name, values)", res_render},
                                       {"res:type(name)", res_type},
                                       {"res:redirect(url, status)", res_redirect},
                                       {"res:abort(), which sends nothing", res_abort},
                                       {"res:trailer(name, value)", res_trailer},
                                       {"res:early_hints(fields)", res_early_hints},
                                       {NULL, NULL}};
    lua_newtable(L);
    lua_newtable(L);
    ls_set_calls(L, methods);
    ls_set_integer(L, "sent", 1);
    lua_pushcclosure(L, res_index, 1);
    lua_setfield(L, -2, "__index");
    ls_set_function(L, "__newindex", res_newindex);
    ls_udata_define(L, "response", &ls_requests_of(state)->res_meta_ref);
}

/* core.response_status(value) -> the status of a response | nil: it has ended, or the value is something else */
static int core_response_status(lua_State *L)
{
    const ls_request *r = ls_response_test(L, 1);
    return r != NULL && r->x != NULL ? ls_push_integer(L, r->x->status) : 0;
}

static const luaL_Reg functions[] = {
    {"be_private", core_be_private}, {"response_status", core_response_status}, {NULL, NULL}};

const ls_module ls_res_module = {.name = "res", .functions = functions, .define = define};
