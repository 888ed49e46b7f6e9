/* body.c - the body of a request: whole (as string, buffer, JSON or form) or in chunks.
 *
 * Received blocks are kept as slices until the body is complete; a buffer shares them. A body that does not arrive
 * whole raises, also when the client has left: a nil would remove an entry where the site stores the result. When the
 * site does not catch the error, the error decides the status of the response. So does a refusal of req:json and
 * req:form; its reason, user value LS_REQ_REFUSED, is sent. */
#include "script/bind/http/body.h"

#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "codec/http_text.h"
#include "script/bind/bind_aux.h"
#include "script/bind/dev_mode.h"
#include "script/bind/http/req.h"
#include "script/bind/option.h"
#include "script/bind/value/buffer.h"
#include "script/bind/value/json.h"
#include "script/store/copy.h"

enum body_want { WANT_BODY, WANT_BUFFER, WANT_JSON, WANT_FORM };
enum {
    WANT_KIND = 3,
    WANT_OBJECT = 4,
    WANT_NULL = 8,
    WANT_ALL = 16,
    WANT_ARRAY = 32,
    WANT_NO_NULL = 64
}; /* options of the last two */

int ls_body_status(int err)
{
    switch (err) {
    case LS_EMSGSIZE: return 413;
    case LS_ETIMEDOUT: return 408;
    case LS_ENOMEM: return 503;
    default: return 400;
    }
}

int ls_body_failed(lua_State *L, ls_request *r, int err)
{
    r->in.state = LS_BODY_FAILED;
    ls_body_in_drop(&r->in);
    r->in.error = err;
    switch (err) {
    case LS_EMSGSIZE:
        if (r->in.decoder != NULL) return ls_task_error(L, "the request body, decoded, is larger than its limit");
        return ls_task_error(L, "the request body is larger than %I bytes", (lua_Integer)r->x->body_bytes_max);
    case LS_ETIMEDOUT: return ls_task_error(L, "the request body arrived too slowly");
    case LS_EPROTO: return ls_task_error(L, "the request body is malformed");
    case LS_ENOMEM: return ls_task_error(L, "not enough memory for the request body");
    default: return ls_task_left_error(L, "the request body is not whole: ");
    }
}

/* The body was read, or is being read, and cannot be read from its start. */
static int raise_read(lua_State *L, const ls_request *r)
{
    switch ((enum ls_body_state)r->in.state) {
    case LS_BODY_READING: return ls_task_error(L, "another task is reading the request body");
    case LS_BODY_STREAMED:
        return ls_task_error(
            L, "the request body was already begun by req:chunks() or req:parts(), or passed on by app:proxy, and its "
               "bytes arrive once: "
               "to use it twice, read it whole before with req:buffer(), or into a file; to continue a loop "
               "that has ended early, keep its iterator: local next_chunk = req:chunks()");
    default: return ls_task_error(L, "the request body could not be read");
    }
}

/* Push the whole body as a string, which the request keeps for later calls. */
static void push_body_string(lua_State *L, ls_request *r)
{
    if (ls_request_cached(L, r, 1, LS_REQ_BODY)) return;
    ls_slices_push_string(L, r->in.slices, r->in.count, r->in.len);
    ls_request_cache(L, r, 1, LS_REQ_BODY);
}

int ls_body_refuse(lua_State *L, ls_request *r, int status)
{
    ls_request_cache(L, r, 1, LS_REQ_REFUSED);
    r->in.refused = (int16_t)status;
    return ls_task_error(L, "%s", lua_tostring(L, -1));
}

static int refuse_type(lua_State *L, ls_request *r, const char *expected, ls_span type)
{
    const char *given = lua_pushlstring(L, r->x->bytes + type.at, type.len < 100 ? type.len : 100);
    lua_pushfstring(L, "the Content-Type must be %s; %s%s", expected, type.len > 0 ? "got " : "it is missing", given);
    return ls_body_refuse(L, r, 415);
}

/* The media type of the Content-Type, without parameters; empty: it is missing. */
static ls_span media_type(const ls_exchange *x)
{
    ls_span type = {0};
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, "content-type", 12);
    if (field == NULL) return type;
    const char *value = x->bytes + field->value.at;
    type.at = field->value.at;
    while (type.len < field->value.len && strchr("; \t", value[type.len]) == NULL) type.len++;
    return type;
}

static bool type_is(const ls_exchange *x, ls_span type, const char *name)
{
    return ls_text_same(x->bytes + type.at, type.len, name, strlen(name));
}

static const char type_form[] = "application/x-www-form-urlencoded", type_multipart[] = "multipart/form-data";

/* application/json and application/x+json. A program, such as curl, may leave the type out, or that of a form in
 * place. A page of another site could send these without a preflight, but not without the field Origin. */
static bool is_json(const ls_exchange *x, ls_span type)
{
    if (type_is(x, type, "application/json")) return true;
    if (type.len > 5 && ls_text_same(x->bytes + type.at + type.len - 5, 5, "+json", 5)) return true;
    return (type.len == 0 || type_is(x, type, type_form)) &&
           ls_http_head_find(&x->head, x->bytes, "origin", 6) == NULL;
}

static int decode_protected(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_json_of(ls_state_of(L))->decode_ref);
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* The kind of the JSON value from `text` to `end`, for a message. */
static const char *json_kind(const char *text, const char *end)
{
    const char c = *text;
    if (text == end) return "an empty body";
    switch (c) {
    case '{': return "an object";
    case '[': return "an array";
    case '"': return "a string";
    case 't':
    case 'f': return "a boolean";
    case 'n': return "null";
    default: return c == '-' || (c >= '0' && c <= '9') ? "a number" : "malformed JSON";
    }
}

/* Remove the nulls of the objects in the table on top of the stack. Those of arrays keep the places of the others.
 * `refuse`: the first one is an error, because the field would seem not to be given. */
static void drop_nulls(lua_State *L, ls_request *r,
                       bool refuse) /* NOLINT(misc-no-recursion): the decoder limits the levels */
{
    luaL_checkstack(L, 4, NULL);
    for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
        if (lua_type(L, -1) == LUA_TTABLE) drop_nulls(L, r, refuse);
        if (lua_type(L, -1) != LUA_TLIGHTUSERDATA || lua_type(L, -2) != LUA_TSTRING) continue;
        if (refuse) {
            lua_pushfstring(L,
                            "the field \"%s\" of this PATCH is null; a site that clears fields reads them by "
                            "req:json{ null = true }, as ls.json.null",
                            lua_tostring(L, -2));
            (void)ls_body_refuse(L, r, 400);
        }
        lua_pushvalue(L, -2);
        lua_pushnil(L);
        lua_rawset(L, -5);
    }
}

/* Decode the text on top of the stack, which must be an object or an array; `want` may ask for one of them. The first
 * character tells an empty object from an empty array, which are the same table in Lua. */
static int push_json(lua_State *L, ls_request *r, int want)
{
    size_t len;
    const ls_span type = media_type(r->x);
    if (!is_json(r->x, type)) return refuse_type(L, r, "application/json", type);
    const char *const expected = want & WANT_OBJECT  ? "a JSON object"
                                 : want & WANT_ARRAY ? "a JSON array"
                                                     : "a JSON object or array";
    const char *text = lua_tolstring(L, -1, &len), *const end = text + len, *at = text + strspn(text, " \t\r\n");
    if ((*at != '{' || want & WANT_ARRAY) && (*at != '[' || want & WANT_OBJECT)) {
        lua_pushfstring(L, "the request body must be %s; got %s", expected, json_kind(at, end));
        return ls_body_refuse(L, r, 400);
    }
    lua_pushcfunction(L, decode_protected);
    lua_pushvalue(L, -2);
    const int status = lua_pcall(L, 1, 1, 0);
    if (status == LUA_OK) {
        if (!(want & WANT_NULL) && strstr(at, "null") != NULL)
            drop_nulls(L, r, !(want & WANT_NO_NULL) && r->x->head.method == LS_HTTP_PATCH);
        return 1;
    }
    if (status == LUA_ERRMEM) return lua_error(L); /* the body may be valid */
    lua_pushfstring(L, "the request body must be %s; it is malformed: %s", expected, lua_tostring(L, -1));
    return ls_body_refuse(L, r, 400);
}

/* Whether the string, or each string of the list, at `index` is UTF-8. */
static bool is_utf8(lua_State *L, int index)
{
    size_t len;
    bool valid = true;
    if (lua_type(L, index) != LUA_TTABLE) {
        const char *text = lua_tolstring(L, index, &len);
        return ls_utf8_valid(text, len);
    }
    for (lua_Integer n = (lua_Integer)lua_rawlen(L, index); n > 0 && valid; n--) {
        lua_rawgeti(L, index, n);
        valid = is_utf8(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return valid;
}

/* The fields of a form are on top of the stack: refuse them unless they are UTF-8, as pages and JSON require. */
static int check_form(lua_State *L, ls_request *r)
{
    const int form = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, form) != 0; lua_pop(L, 1)) {
        if (is_utf8(L, form + 1) && is_utf8(L, form + 2)) continue;
        lua_pushliteral(L, "the form must be UTF-8");
        return ls_body_refuse(L, r, 400);
    }
    if (ls_dev_of(ls_state_runtime(r->state)) != NULL) {
        ls_push_function(L, "luaserve.dev_state", "watch_fields");
        lua_pushvalue(L, 1);
        lua_pushvalue(L, form);
        lua_call(L, 2, 0);
    }
    return 1;
}

/* The fields of the multipart body on top of the stack: multipart.lua. `all`: lists. */
static int push_multipart(lua_State *L, ls_request *r, bool all)
{
    const ls_http_field *type = ls_http_head_find(&r->x->head, r->x->bytes, "content-type", 12);
    ls_push_function(L, "luaserve.multipart", "fields");
    lua_insert(L, -2);
    lua_pushlstring(L, r->x->bytes + type->value.at, type->value.len);
    if (all)
        lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(r->state)->lists_meta_ref);
    else
        lua_pushnil(L);
    lua_call(L, 3, 2);
    if (lua_isnil(L, -2)) return ls_body_refuse(L, r, 400);
    lua_pop(L, 1);
    return check_form(L, r);
}

/* Decode the text on top of the stack as a form. */
static int push_form(lua_State *L, ls_request *r, int want)
{
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    const ls_span type = media_type(r->x);
    if (type_is(r->x, type, type_multipart)) return push_multipart(L, r, want & WANT_ALL);
    if (!type_is(r->x, type, type_form)) {
        lua_pushfstring(L, "%s or %s", type_form, type_multipart);
        return refuse_type(L, r, lua_tostring(L, -1), type);
    }
    if (want & WANT_ALL)
        ls_request_push_lists(L, text, len);
    else
        ls_request_push_pairs(L, text, len);
    return check_form(L, r);
}

static int push_buffer(lua_State *L, ls_request *r)
{
    ls_buffer *buffer = ls_buffer_push(L);
    for (unsigned n = 0; n < r->in.count; n++) {
        const ls_slice *slice = &r->in.slices[n];
        if (slice->block != NULL)
            ls_buffer_add_slice(L, buffer, (ls_slice){ls_block_hold(slice->block), slice->ptr, slice->len});
        else
            ls_buffer_add_bytes(L, buffer, slice->ptr, slice->len);
    }
    return 1;
}

static int body_ready(lua_State *L, ls_request *r, int want)
{
    if (want == WANT_BUFFER) {
        ls_buffer_account(L, r->in.len);
        return push_buffer(L, r);
    }
    push_body_string(L, r);
    switch (want & WANT_KIND) {
    case WANT_JSON: return push_json(L, r, want);
    case WANT_FORM: return push_form(L, r, want);
    default: return 1;
    }
}

static int body_read(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_req(L, 1);
    lua_settop(L, 1);
    for (;;) {
        ls_slice slice;
        const int err = ls_body_read(r, &slice);
        if (err == LS_PENDING) {
            if (!ls_task_can_wait(L))
                r->in.state = LS_BODY_UNREAD; /* it raises; another task may still read the body */
            return ls_request_wait(L, r, context, body_read);
        }
        if (err < 0) return ls_body_failed(L, r, err);
        if (slice.len == 0) {
            ls_slice_drop(&slice);
            break;
        }
        if (!ls_body_in_keep(&r->in, ls_state_pool(r->state), slice)) return ls_body_failed(L, r, LS_ENOMEM);
    }
    r->in.state = LS_BODY_WHOLE;
    return body_ready(L, r, (int)context);
}

static int body_get(lua_State *L, int want)
{
    ls_request *r = ls_request_check_req(L, 1);
    switch ((enum ls_body_state)r->in.state) {
    case LS_BODY_UNREAD: r->in.state = LS_BODY_READING; return body_read(L, LUA_OK, want);
    case LS_BODY_WHOLE: return body_ready(L, r, want);
    default: return raise_read(L, r);
    }
}

/* req:body() -> body: string
 * The body as a string. Waits until it is complete, and raises if it does not arrive whole. */
static int req_body(lua_State *L)
{
    return body_get(L, WANT_BODY);
}

/* req:buffer() -> body: Buffer
 * The body as a buffer, which shares the received blocks. Waits until it is complete, and raises if it does not arrive
 * whole. */
static int req_buffer(lua_State *L)
{
    return body_get(L, WANT_BUFFER);
}

/* Whether the argument of req:json is a schema of check.lua: options follow it, or it is an object of ls.check, or a
 * table of strings and tables. */
static bool is_schema(lua_State *L)
{
    const int top = lua_gettop(L);
    if (!lua_isnoneornil(L, 3)) return true;
    if (lua_type(L, 2) != LUA_TTABLE) return lua_type(L, 2) == LUA_TSTRING; /* read_body says what is right */
    bool found = luaL_getmetafield(L, 2, "__name") == LUA_TSTRING && strcmp(lua_tostring(L, -1), "check") == 0;
    if (!found) {
        lua_pushvalue(L, 2);
        ls_copy_open(L, -1);
        lua_pushnil(L);
        found = lua_next(L, -2) != 0 && (lua_type(L, -1) == LUA_TSTRING || lua_type(L, -1) == LUA_TTABLE);
    }
    lua_settop(L, top);
    return found;
}

/* Raise for a nil in place of the schema: the body would not be checked. */
static void refuse_nil(lua_State *L, const char *call)
{
    if (lua_gettop(L) < 2 || !lua_isnil(L, 2)) return;
    luaL_error(L, "%s: the schema or the options are nil: a name is misspelt, or has its value later", call);
}

static int schema_done(lua_State *L, int status, lua_KContext context)
{
    return lua_gettop(L);
}

/* req:json or req:form with a schema: check.lua, which reads the body without one. */
static int read_checked(lua_State *L, const char *kind)
{
    ls_push_function(L, "luaserve.check", "read_body");
    lua_pushstring(L, kind);
    lua_rotate(L, 1, 2);
    lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, schema_done);
    return schema_done(L, LUA_OK, 0);
}

/* Push what the schema of the route has made of the body, before the handler: route_schema.lua has it with core.own, by the name
 * of the method, which the site cannot assign. */
static bool push_checked(lua_State *L, const char *name)
{
    if (lua_gettop(L) > 1 || !ls_request_cached(L, ls_request_check_req(L, 1), 1, LS_REQ_OWN)) return false;
    if (lua_getfield(L, 2, name) != LUA_TNIL) return true;
    lua_settop(L, 1);
    return false;
}

typedef struct json_options {
    bool object, array, null;
} json_options;

/* req:json([options: JsonOptions]) -> value: table
 * req:json(schema: Check|table [, options: CheckBodyOptions]) -> value: table | given: table, errors: table<string,
 * string> The body, decoded from JSON: an object or an array. Any other body raises, and gives a 400 or 415 if the
 * site does not catch that. A null in an object is absent, and in a PATCH another 400. With a schema of `ls.check`, a body that does not fit
 * raises, and gives a 422. In a route with the option `json`, the call without arguments returns the checked value. Waits until the body is complete.
 * options is a JsonOptions: options of req:json.
 * options.object: boolean - the body must be an object
 * options.array: boolean - the body must be an array
 * options.null: boolean - true: a null in an object is ls.json.null; false: absent, in a PATCH as well */
static int req_json(lua_State *L)
{
    static const ls_option options[] = {LS_OPTION(json_options, object), LS_OPTION(json_options, array),
                                        LS_OPTION(json_options, null), LS_OPTIONS_END};
    json_options given = {false};
    if (push_checked(L, "json")) return 1;
    refuse_nil(L, "req:json");
    if (is_schema(L)) return read_checked(L, "json");
    ls_options_take(L, 2, "req:json", options, &given);
    const bool no_null = lua_istable(L, 2) && lua_getfield(L, 2, "null") == LUA_TBOOLEAN && !given.null;
    if (given.object && given.array) return luaL_error(L, "req:json: object and array exclude each other");
    return body_get(L, WANT_JSON | (given.object ? WANT_OBJECT : 0) | (given.array ? WANT_ARRAY : 0) |
                           (given.null ? WANT_NULL : 0) | (no_null ? WANT_NO_NULL : 0));
}

/* req:form() -> form: table<string, string>
 * req:form(schema: Check|table [, options: CheckBodyOptions]) -> form: table<string, any> | given: table<string,
 * string>, errors: table<string, string>
 * The fields of an HTML form of either type; of several with one name the first. Parts with a file name are left out.
 * Another body raises, and gives a 400 or 415 if the site does not catch that. With a schema of `ls.check`, strings
 * become numbers and booleans, and a form that does not fit raises, and gives a 422. Waits until the body is
 * complete. */
static int req_form(lua_State *L)
{
    if (push_checked(L, "form")) return 1;
    refuse_nil(L, "req:form");
    if (!lua_isnoneornil(L, 2) || !lua_isnoneornil(L, 3)) return read_checked(L, "form");
    return body_get(L, WANT_FORM);
}

/* req:form_all() -> form: table<string, string[]>
 * The fields of an HTML form, with the list of all values of each name. Waits until the body is complete. */
static int req_form_all(lua_State *L)
{
    return body_get(L, WANT_FORM | WANT_ALL);
}

enum { CHUNKS_REQ = 1, CHUNKS_BEGUN /* upvalues of the iterator of req:chunks() */ };

static int chunks_next(lua_State *L, int status, lua_KContext context)
{
    ls_request *r = ls_request_check_req(L, lua_upvalueindex(CHUNKS_REQ));
    ls_slice slice;
    lua_settop(L, 0);
    const int err = ls_body_read(r, &slice);
    if (err == LS_PENDING) return ls_request_wait(L, r, context, chunks_next);
    if (err < 0) return ls_body_failed(L, r, err);
    if (slice.len == 0) {
        ls_slice_drop(&slice);
        return ls_push_nil(L);
    }
    /* lua_pushlstring may raise: until then the request owns the slice. */
    if (!ls_body_in_keep(&r->in, ls_state_pool(r->state), slice)) return ls_body_failed(L, r, LS_ENOMEM);
    lua_pushlstring(L, slice.ptr, slice.len);
    ls_body_in_drop(&r->in);
    return 1;
}

static int chunks_iterate(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, lua_upvalueindex(CHUNKS_REQ));
    const bool begun = lua_toboolean(L, lua_upvalueindex(CHUNKS_BEGUN));
    if (r->in.state != (begun ? LS_BODY_STREAMED : LS_BODY_UNREAD)) return raise_read(L, r);
    if (!begun &&
        ls_task_can_wait(L)) { /* where it cannot wait, it raises, and another loop may still read the body */
        r->in.state = LS_BODY_STREAMED;
        lua_pushboolean(L, true);
        lua_replace(L, lua_upvalueindex(CHUNKS_BEGUN));
    }
    return chunks_next(L, LUA_OK, 0);
}

static int chunks_whole(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(1));
    return 1;
}

/* core.request_chunks(req) -> an iterator over the parts of the body, which may be called again after its end. */
static int core_request_chunks(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    switch ((enum ls_body_state)r->in.state) {
    case LS_BODY_UNREAD:
        lua_pushvalue(L, 1);
        lua_pushboolean(L, false);
        lua_pushcclosure(L, chunks_iterate, CHUNKS_BEGUN);
        return 1;
    case LS_BODY_WHOLE: /* already read: the whole body is one chunk */
        push_body_string(L, r);
        if (lua_rawlen(L, -1) == 0) lua_pushnil(L);
        lua_pushcclosure(L, chunks_whole, 1);
        return 1;
    default: return raise_read(L, r);
    }
}

/* req:chunks() -> iterator: fun(): string?
 * Iterates over the parts of the body as they arrive, once: a second loop raises, unless it has the iterator of the
 * first; so does a second ls.fetch that sends them: once.lua. Raises when the body is invalid or the client
 * disconnects. */
static int req_chunks(lua_State *L)
{
    core_request_chunks(L);
    ls_push_function(L, "luaserve.once", "iterator");
    lua_insert(L, -2);
    lua_pushliteral(L, "req:chunks()");
    lua_pushliteral(L, "req:buffer()");
    lua_call(L, 3, 1);
    return 1;
}

/* req:parts() -> iterator: fun(): Part?
 * Iterates over the parts of a multipart form as they arrive: multipart.lua. Another body, and a malformed one,
 * raises, and gives a 415 or 400 if the site does not catch that. */
static int req_parts(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    const ls_span type = media_type(r->x);
    if (!type_is(r->x, type, type_multipart)) return refuse_type(L, r, type_multipart, type);
    if (r->in.state != LS_BODY_UNREAD && r->in.state != LS_BODY_WHOLE) return raise_read(L, r);
    const ls_http_field *field = ls_http_head_find(&r->x->head, r->x->bytes, "content-type", 12);
    ls_push_function(L, "luaserve.multipart", "parts");
    lua_pushvalue(L, 1);
    lua_pushlstring(L, r->x->bytes + field->value.at, field->value.len);
    lua_call(L, 2, 1);
    return 1;
}

/* core.refuse(req, status, reason): raises the reason, which is the response unless the site catches the error. */
static int core_refuse(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    const int status = (int)luaL_checkinteger(L, 2);
    (void)luaL_checkstring(L, 3);
    lua_settop(L, 3);
    return ls_body_refuse(L, r, status);
}

/* core.status_text(status) -> the phrase of the status; "": it is not registered. */
static int core_status_text(lua_State *L)
{
    return ls_push_text(L, ls_status_text((int)luaL_checkinteger(L, 1)));
}

/* core.body_max(req, bytes|nil) -> whether the announced Content-Length exceeds the new limit. nil: no limit. */
static int core_body_max(lua_State *L)
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
    return ls_push_boolean(L, ls_body_is_too_large(x));
}

/* core.too_large(req) -> the status of a response to a body whose announced length exceeds its limit, which the log
 * shows. core.too_large(req, reason): raises the reason, as core.refuse does with that status. */
static int core_too_large(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    const int status = ls_body_status(LS_EMSGSIZE);
    lua_settop(L, 2);
    if (lua_isstring(L, 2)) return ls_body_refuse(L, r, status);
    ls_request_log_refused(L, r, status, "the request body is larger than its limit");
    return ls_push_integer(L, status);
}

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"req:body()", req_body},
                                       {"req:buffer()", req_buffer},
                                       {"req:json(schema, options)", req_json},
                                       {"req:form(schema, options)", req_form},
                                       {"req:form_all()", req_form_all},
                                       {"req:chunks()", req_chunks},
                                       {"req:parts()", req_parts},
                                       {NULL, NULL}};
    ls_request_methods(L, ls_requests_of(state)->req_meta_ref, methods);
}

static const luaL_Reg functions[] = {
    {"body_max", core_body_max},       {"refuse", core_refuse},       {"request_chunks", core_request_chunks},
    {"status_text", core_status_text}, {"too_large", core_too_large}, {NULL, NULL}};

const ls_module ls_body_module = {.name = "body", .functions = functions, .define = define};
