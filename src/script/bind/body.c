/* body.c - the body of a request: whole (as string, buffer, JSON or form) or in chunks.
 *
 * Received blocks are kept as slices until the body is complete; a buffer shares them. An invalid body raises; when
 * the site does not catch the error, the error decides the status of the response. So does the error of
 * req:json{ object = true } for a body that is no object; its reason, user value LS_REQ_REFUSED, is sent. After a
 * disconnect the functions return nil, message, code. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "proto/http_text.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"
#include "script/bind/buffer.h"
#include "script/bind/json.h"
#include "script/bind/req.h"
#include "script/bind/request.h"
#include "script/shared/copy.h"

enum { PIECES_MANY = 8, PIECE_BYTES_SMALL = 1024 };

enum body_want { WANT_BODY, WANT_BUFFER, WANT_JSON, WANT_JSON_OBJECT, WANT_FORM, WANT_FORM_ALL };

/* The body cannot be read: raise, or return nil, message, code when the connection is lost. */
static int body_failed(lua_State *L, ls_request *r, int err)
{
    r->body_state = LS_BODY_FAILED;
    ls_request_drop_body(r);
    switch (err) {
    case LS_EMSGSIZE:
        r->body_error = err;
        return luaL_error(L, "the request body is larger than %I bytes", (lua_Integer)r->x->body_bytes_max);
    case LS_ETIMEDOUT: r->body_error = err; return luaL_error(L, "the request body arrived too slowly");
    case LS_EPROTO: r->body_error = err; return luaL_error(L, "the request body is malformed");
    case LS_ENOMEM: r->body_error = err; return luaL_error(L, "not enough memory for the request body");
    default: return ls_push_failure(L, err); /* the connection is lost */
    }
}

static bool body_push(ls_request *r, ls_slice slice)
{
    if (r->body == NULL || r->body_count == r->body_room) {
        const unsigned room = r->body_room == 0 ? 8 : r->body_room * 2;
        ls_slice *body = realloc(r->body, room * sizeof *body);
        if (body == NULL) {
            ls_slice_drop(&slice);
            return false;
        }
        r->body = body;
        r->body_room = room;
    }
    r->body[r->body_count++] = slice;
    r->body_len += slice.len;
    return true;
}

/* Room for len bytes behind the last piece, in the request's own block r->body_fill. NULL when out of memory. */
static char *body_room(ls_request *r, const ls_slice *last, size_t len)
{
    if (r->body_fill != NULL && last->block == r->body_fill) {
        const size_t used = (size_t)(last->ptr - r->body_fill->data) + last->len;
        if (r->body_fill->cap - used >= len) return r->body_fill->data + used;
    }
    ls_block *block =
        ls_block_get(ls_state_pool(r->state), r->body_len < LS_BLOCK_LARGE ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (block == NULL || !body_push(r, (ls_slice){block, block->data, 0})) return NULL;
    r->body_fill = block;
    return block->data;
}

/* Keep a piece of the body. Takes the reference. false when out of memory. Adjacent pieces become one slice. When
 * there are many pieces, small ones are copied into one block: otherwise a body of tiny chunks would keep the chunk
 * framing between them in memory, and one slice for each. */
static bool body_keep_slice(ls_request *r, ls_slice slice)
{
    ls_slice *last = r->body_count > 0 ? &r->body[r->body_count - 1] : NULL;
    if (last != NULL && last->block == slice.block && last->ptr + last->len == slice.ptr) {
        last->len += slice.len;
        r->body_len += slice.len;
        ls_slice_drop(&slice);
        return true;
    }
    if (last == NULL || r->body_count < PIECES_MANY || slice.len > PIECE_BYTES_SMALL) return body_push(r, slice);
    char *to = body_room(r, last, slice.len);
    if (to != NULL) {
        memcpy(to, slice.ptr, slice.len);
        ls_pool_copied(ls_state_pool(r->state), slice.len);
        r->body[r->body_count - 1].len += slice.len;
        r->body_len += slice.len;
    }
    ls_slice_drop(&slice);
    return to != NULL;
}

/* Push the whole body as a string, which the request keeps for later calls. */
static void push_body_string(lua_State *L, ls_request *r)
{
    if (ls_request_kept(L, r, 1, LS_REQ_BODY)) return;
    ls_slices_push_string(L, r->body, r->body_count, r->body_len);
    ls_request_keep(L, r, 1, LS_REQ_BODY);
}

static int decode_protected(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_json_of(ls_state_of(L))->decode_ref);
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

static int push_json(lua_State *L)
{
    lua_pushcfunction(L, decode_protected);
    lua_insert(L, -2);
    const int status = lua_pcall(L, 1, 1, 0);
    if (status == LUA_OK) return 1;
    if (status == LUA_ERRMEM) return lua_error(L); /* the body may be valid */
    lua_pushnil(L);
    lua_insert(L, -2);
    lua_pushliteral(L, "EINVAL");
    return 3;
}

/* The kind of the JSON value from `text` to `end`, for a message. */
static const char *json_kind(const char *text, const char *end)
{
    const char c = *text;
    if (text == end) return "an empty body";
    switch (c) {
    case '[': return "an array";
    case '"': return "a string";
    case 't':
    case 'f': return "a boolean";
    case 'n': return "null";
    default: return c == '-' || (c >= '0' && c <= '9') ? "a number" : "malformed JSON";
    }
}

/* Raise for the reason on top of the stack, which is the body of the response if the site does not catch the error. */
static int refuse_body(lua_State *L, ls_request *r)
{
    ls_request_keep(L, r, 1, LS_REQ_REFUSED);
    return luaL_error(L, "%s", lua_tostring(L, -1));
}

/* The text on top of the stack must be a JSON object. The first character tells an empty object from an empty array,
 * which are the same table in Lua. */
static int push_json_object(lua_State *L, ls_request *r)
{
    size_t len;
    const char *text = lua_tolstring(L, -1, &len), *const end = text + len;
    text += strspn(text, " \t\r\n");
    if (*text != '{') {
        lua_pushfstring(L, "the request body must be a JSON object; got %s", json_kind(text, end));
        return refuse_body(L, r);
    }
    if (push_json(L) == 1) return 1;
    lua_pushfstring(L, "the request body must be a JSON object; it is malformed: %s", lua_tostring(L, -2));
    return refuse_body(L, r);
}

static bool is_form(const ls_exchange *x)
{
    static const char type[] = "application/x-www-form-urlencoded";
    const size_t len = sizeof type - 1;
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "content-type", 12);
    const char *value;
    if (field == NULL || field->value.len < len) return false;
    value = x->bytes + field->value.at;
    return ls_text_same(value, len, type, len) &&
           (field->value.len == len || value[len] == ';' || value[len] == ' ' || value[len] == '\t');
}

static int push_form(lua_State *L, const ls_exchange *x, bool all)
{
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    if (!is_form(x)) {
        lua_pushnil(L);
        lua_pushliteral(L, "the Content-Type is not application/x-www-form-urlencoded");
        lua_pushliteral(L, "EINVAL");
        return 3;
    }
    if (all)
        ls_request_push_lists(L, text, len);
    else
        ls_request_push_pairs(L, text, len);
    return 1;
}

static int push_buffer(lua_State *L, ls_request *r)
{
    ls_buffer *buffer = ls_buffer_push(L);
    for (unsigned n = 0; n < r->body_count; n++) {
        const ls_slice *slice = &r->body[n];
        if (slice->block != NULL)
            ls_buffer_add_slice(L, buffer, (ls_slice){ls_block_hold(slice->block), slice->ptr, slice->len});
        else
            ls_buffer_add_bytes(L, buffer, slice->ptr, slice->len);
    }
    return 1;
}

static int body_ready(lua_State *L, ls_request *r, enum body_want want)
{
    if (want == WANT_BUFFER) {
        ls_buffer_account(L, r->body_len);
        return push_buffer(L, r);
    }
    push_body_string(L, r);
    if (want == WANT_JSON) return push_json(L);
    if (want == WANT_JSON_OBJECT) return push_json_object(L, r);
    if (want == WANT_FORM || want == WANT_FORM_ALL) return push_form(L, r->x, want == WANT_FORM_ALL);
    return 1;
}

static int body_read(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_req(L, 1);
    (void)status;
    lua_settop(L, 1);
    for (;;) {
        ls_slice slice;
        const int err = r->x->transport->read(r->state->ctx, r->x, &slice);
        if (err == LS_PENDING) {
            if (!ls_task_can_wait(L))
                r->body_state = LS_BODY_UNREAD; /* it raises; another task may still read the body */
            return ls_request_wait(L, r, context, body_read);
        }
        if (err < 0) return body_failed(L, r, err);
        if (slice.len == 0) {
            ls_slice_drop(&slice);
            break;
        }
        if (!body_keep_slice(r, slice)) return body_failed(L, r, LS_ENOMEM);
    }
    r->body_state = LS_BODY_WHOLE;
    return body_ready(L, r, (enum body_want)context);
}

static int body_get(lua_State *L, enum body_want want)
{
    ls_request *r = ls_request_check_req(L, 1);
    switch ((enum ls_body_state)r->body_state) {
    case LS_BODY_UNREAD: r->body_state = LS_BODY_READING; return body_read(L, LUA_OK, want);
    case LS_BODY_WHOLE: return body_ready(L, r, want);
    case LS_BODY_READING: return luaL_error(L, "another task is reading the request body");
    case LS_BODY_STREAMED: return luaL_error(L, "the request body was already read with req:chunks()");
    case LS_BODY_FAILED: break;
    }
    if (r->body_error != LS_OK) return luaL_error(L, "the request body could not be read");
    return ls_push_failure(L, r->x->error != 0 ? r->x->error : LS_ECLOSED);
}

/* req:body() -> string | nil, message, code */
int ls_req_body(lua_State *L)
{
    ls_check_arguments(L, 1, "req:body()");
    return body_get(L, WANT_BODY);
}

/* req:buffer() -> buffer | nil, message, code. The buffer shares the received blocks. */
int ls_req_buffer(lua_State *L)
{
    ls_check_arguments(L, 1, "req:buffer()");
    return body_get(L, WANT_BUFFER);
}

/* Whether the options of req:json at index 2 ask for an object. Raises on other options. */
static bool json_wants_object(lua_State *L)
{
    bool object = false;
    luaL_checktype(L, 2, LUA_TTABLE);
    ls_copy_open(L, 2);
    lua_pushnil(L);
    while (lua_next(L, 2) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING || strcmp(lua_tostring(L, -2), "object") != 0)
            luaL_error(L, "req:json: unknown option '%s'; the only option is object", luaL_tolstring(L, -2, NULL));
        if (!lua_isboolean(L, -1))
            luaL_error(L, "req:json: object must be true or false; got a %s", luaL_typename(L, -1));
        object = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    return object;
}

/* req:json([{ object = true }]) -> value | nil, message, code. With `object` it raises for a body that is no object. */
int ls_req_json(lua_State *L)
{
    ls_check_arguments(L, 2, "req:json(options)");
    return body_get(L, !lua_isnoneornil(L, 2) && json_wants_object(L) ? WANT_JSON_OBJECT : WANT_JSON);
}

/* req:form() -> table | nil, message, code. The first value of a repeated name counts. */
int ls_req_form(lua_State *L)
{
    ls_check_arguments(L, 1, "req:form()");
    return body_get(L, WANT_FORM);
}

/* req:form_all() -> table of lists | nil, message, code */
int ls_req_form_all(lua_State *L)
{
    ls_check_arguments(L, 1, "req:form_all()");
    return body_get(L, WANT_FORM_ALL);
}

/* The iterator of req:chunks(): its invariant state is the req object. */
static int chunks_next(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_req(L, 1);
    ls_slice slice;
    (void)status;
    lua_settop(L, 1);
    const int err = r->x->transport->read(r->state->ctx, r->x, &slice);
    if (err == LS_PENDING) return ls_request_wait(L, r, context, chunks_next);
    if (err < 0) {
        const int results = body_failed(L, r, err);
        return results == 3 ? luaL_error(L, "the client disconnected: %s", ls_err_text(err)) : results;
    }
    if (slice.len == 0) {
        ls_slice_drop(&slice);
        lua_pushnil(L);
        return 1;
    }
    /* lua_pushlstring may raise: until then the request owns the slice. */
    if (!body_keep_slice(r, slice)) return body_failed(L, r, LS_ENOMEM);
    lua_pushlstring(L, slice.ptr, slice.len);
    ls_request_drop_body(r);
    return 1;
}

static int chunks_iterate(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    if (r->body_state != LS_BODY_STREAMED) return luaL_error(L, "the request body could not be read");
    return chunks_next(L, LUA_OK, 0);
}

static int chunks_whole(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(1));
    return 1;
}

/* for chunk in req:chunks() do ... end. Raises when the body is invalid or the client disconnects. */
int ls_req_chunks(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    ls_check_arguments(L, 1, "req:chunks()");
    switch ((enum ls_body_state)r->body_state) {
    case LS_BODY_UNREAD: r->body_state = LS_BODY_STREAMED; break;
    case LS_BODY_STREAMED: break;
    case LS_BODY_WHOLE: /* already read: the whole body is one chunk */
        push_body_string(L, r);
        if (lua_rawlen(L, -1) == 0) lua_pushnil(L);
        lua_pushcclosure(L, chunks_whole, 1);
        return 1;
    case LS_BODY_READING: return luaL_error(L, "another task is reading the request body");
    case LS_BODY_FAILED: return luaL_error(L, "the request body could not be read");
    }
    lua_pushcfunction(L, chunks_iterate);
    lua_pushvalue(L, 1);
    return 2;
}

/* core.body_max(req, bytes|nil) -> whether the announced Content-Length exceeds the new limit. nil: no limit. */
int ls_core_body_max(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    ls_exchange *x = r->x;
    if (lua_isnoneornil(L, 2)) {
        x->body_bytes_max = UINT64_MAX;
    } else {
        const lua_Integer bytes = luaL_checkinteger(L, 2);
        luaL_argcheck(L, bytes >= 0, 2, "limit must be 0 or more");
        x->body_bytes_max = bytes == LUA_MAXINTEGER ? UINT64_MAX : (uint64_t)bytes;
    }
    lua_pushboolean(L, x->head.has_length && x->head.content_length > x->body_bytes_max);
    return 1;
}
