/* req_sent.c - what the client has sent beside the body: the pairs of a query or of cookies and the fields of the head, each as a
 * table of all or one by its name. */
#include <string.h>

#include "codec/coding/http_accept.h"
#include "codec/http_text.h"
#include "codec/http_type.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/req.h"
#include "script/store/marshal.h"

enum { PAIRS_AT_ONCE = 16 }; /* of a query or a form in the first batch; each further pair costs a lookup */

static void push_raw(lua_State *L, const char *bytes, size_t len)
{
    lua_pushlstring(L, bytes, len);
}

/* Push the decoded text, or the text unchanged when it contains an invalid escape. */
static void push_decoded(lua_State *L, const char *bytes, size_t len)
{
    luaL_Buffer buffer;
    long decoded;
    char few[256];
    if (len <= sizeof few && (decoded = ls_percent_decode(bytes, len, true, few)) >= 0) {
        lua_pushlstring(L, few, (size_t)decoded);
        return;
    }
    char *to = luaL_buffinitsize(L, &buffer, len);
    decoded = ls_percent_decode(bytes, len, true, to);
    if (decoded < 0) {
        memcpy(to, bytes, len);
        decoded = (long)len;
    }
    luaL_pushresultsize(&buffer, (size_t)decoded);
}

static void push_name_and_value(lua_State *L, const ls_pair *pair, bool raw)
{
    void (*push)(lua_State *, const char *, size_t) = raw ? push_raw : push_decoded;
    push(L, pair->name, pair->name_len);
    push(L, pair->value, pair->value_len);
}

void ls_request_push_pairs(lua_State *L, const char *bytes, size_t len)
{
    const bool raw = memchr(bytes, '%', len) == NULL && memchr(bytes, '+', len) == NULL;
    ls_pair pairs[PAIRS_AT_ONCE];
    size_t at = 0;
    int count = 0;
    while (count < PAIRS_AT_ONCE && ls_query_next(bytes, len, &at, &pairs[count])) count++;
    lua_createtable(L, 0, count);
    for (int n = count; n-- > 0;) { /* backwards: the first pair of a repeated name is set last, and stays */
        push_name_and_value(L, &pairs[n], raw);
        lua_rawset(L, -3);
    }
    while (ls_query_next(bytes, len, &at, &pairs[0])) {
        push_name_and_value(L, &pairs[0], raw);
        lua_pushvalue(L, -2);
        if (lua_rawget(L, -4) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_rawset(L, -3);
        } else {
            lua_pop(L, 3);
        }
    }
}

/* __index of a table of lists: a name that is missing has an empty list, a new one for each access. */
static int lists_index(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING) return 0;
    lua_newtable(L);
    ls_array_set_mark(L); /* [] in JSON */
    return 1;
}

void ls_request_push_lists(lua_State *L, const char *bytes, size_t len)
{
    const bool raw = memchr(bytes, '%', len) == NULL && memchr(bytes, '+', len) == NULL;
    ls_pair pair;
    lua_newtable(L);
    for (size_t at = 0; ls_query_next(bytes, len, &at, &pair); lua_pop(L, 1)) {
        push_name_and_value(L, &pair, raw);
        lua_pushvalue(L, -2);
        if (lua_rawget(L, -4) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_createtable(L, 1, 0);
            lua_pushvalue(L, -3);
            lua_pushvalue(L, -2);
            lua_rawset(L, -6);
        }
        lua_insert(L, -2); /* the table, the name, the list, the value */
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        lua_remove(L, -2);
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(ls_state_of(L))->lists_meta_ref);
    lua_setmetatable(L, -2);
}

/* The next pair of the fields Cookie: of field *n, from *at on, or of a later one. Both begin with 0. */
static bool next_cookie(const ls_exchange *x, uint32_t *n, size_t *at, ls_pair *pair)
{
    for (; *n < x->head.field_count; ++*n, *at = 0) {
        const ls_http_field *field = &x->head.fields[*n];
        if (ls_text_same(x->bytes + field->name.at, field->name.len, "cookie", 6) &&
            ls_cookie_next(x->bytes + field->value.at, field->value.len, at, pair))
            return true;
    }
    return false;
}

static void push_cookies(lua_State *L, const ls_exchange *x)
{
    uint32_t n = 0;
    ls_pair pair;
    lua_newtable(L);
    for (size_t at = 0; next_cookie(x, &n, &at, &pair);) {
        lua_pushlstring(L, pair.name, pair.name_len);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -3) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_pushlstring(L, pair.value, pair.value_len);
            lua_rawset(L, -3);
        } else {
            lua_pop(L, 2);
        }
    }
}

/* core.cookie(req, name, tail) -> its value, as req.cookies[name] but without the table; its last `tail` bytes |
 * nil */
static int core_cookie(lua_State *L)
{
    const ls_exchange *x = ls_request_check_req(L, 1)->x;
    size_t len;
    const char *name = luaL_checklstring(L, 2, &len);
    const size_t tail = (size_t)luaL_checkinteger(L, 3);
    uint32_t n = 0;
    ls_pair pair;
    for (size_t at = 0; next_cookie(x, &n, &at, &pair);) {
        if (pair.name_len != len || memcmp(pair.name, name, len) != 0) continue;
        const size_t from = pair.value_len > tail ? pair.value_len - tail : 0;
        lua_pushlstring(L, pair.value, pair.value_len);
        lua_pushlstring(L, pair.value + from, pair.value_len - from);
        return 2;
    }
    return 0;
}

static void push_lower(lua_State *L, const char *bytes, size_t len)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, len);
    for (size_t n = 0; n < len; n++) to[n] = (char)(bytes[n] >= 'A' && bytes[n] <= 'Z' ? bytes[n] + 32 : bytes[n]);
    luaL_pushresultsize(&buffer, len);
}

/* __index of the headers table: looks the name up in lower case. */
static int headers_index(lua_State *L)
{
    size_t len;
    luaL_checktype(L, 1, LUA_TTABLE); /* a site can call this through getmetatable() */
    if (lua_type(L, 2) != LUA_TSTRING) return 0;
    const char *name = lua_tolstring(L, 2, &len);
    push_lower(L, name, len);
    lua_rawget(L, 1);
    return 1;
}

/* __newindex of the headers table, for names that it does not have as they are written. */
static int headers_newindex(lua_State *L)
{
    return luaL_error(L,
                      "the fields of a request and a response are read-only: \"%s\"; keep a value of your own in "
                      "req.NAME, and set what another server gets in the hook `request` of app:proxy",
                      luaL_tolstring(L, 2, NULL));
}

/* Add a field to the table on top of the stack; several of one name are joined. */
static void add_field(lua_State *L, const char *name, size_t name_len, const char *value, size_t value_len)
{
    push_lower(L, name, name_len);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_pushlstring(L, value, value_len);
    } else {
        lua_pushstring(L, ls_text_same(name, name_len, "cookie", 6) ? "; " : ", ");
        lua_pushlstring(L, value, value_len);
        lua_concat(L, 3);
    }
    lua_rawset(L, -3);
}

static void end_fields(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, ls_requests_of(ls_state_of(L))->headers_meta_ref);
    lua_setmetatable(L, -2);
}

/* Replace the string on top by that string joined with the value of `field`. */
static void join_field(lua_State *L, const ls_exchange *x, const ls_http_field *field, bool is_cookie)
{
    lua_pushstring(L, is_cookie ? "; " : ", ");
    ls_request_push_span(L, x, field->value);
    lua_concat(L, 3);
}

static void push_headers(lua_State *L, const ls_exchange *x)
{
    lua_createtable(L, 0, (int)x->head.field_count);
    for (uint32_t n = 0; n < x->head.field_count; n++) {
        const ls_http_field *field = &x->head.fields[n];
        add_field(L, x->bytes + field->name.at, field->name.len, x->bytes + field->value.at, field->value.len);
    }
    end_fields(L);
}

static void push_trailers(lua_State *L, const ls_exchange *x)
{
    ls_pair field;
    lua_newtable(L);
    for (size_t at = 0; ls_exchange_next_trailer(x, &at, &field);)
        add_field(L, field.name, field.name_len, field.value, field.value_len);
    end_fields(L);
}

void ls_request_push_header(lua_State *L, const ls_exchange *x, const char *name, size_t len)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, name, len);
    if (field == NULL) {
        lua_pushnil(L);
        return;
    }
    ls_request_push_span(L, x, field->value);
    for (const ls_http_field *end = x->head.fields + x->head.field_count; ++field < end;)
        if (ls_text_same(x->bytes + field->name.at, field->name.len, name, len))
            join_field(L, x, field, ls_text_same(name, len, "cookie", 6));
}

/* req:header(name) -> value: string | nil
 * The value of one header field; the name is found in any case. Does not make the table req.headers. */
static int req_header(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    size_t len;
    const char *name = luaL_checklstring(L, 2, &len);
    ls_request_push_header(L, r->x, name, len);
    return 1;
}

const char *ls_request_check_type(lua_State *L, int index, const char *call)
{
    const char *name = luaL_checkstring(L, index);
    if (strchr(name, '/') != NULL) return name;
    const char *type = ls_http_type_of_extension(strcmp(name, "text") == 0 ? "txt" : name + (*name == '.'));
    if (type == NULL)
        luaL_error(L,
                   "%s: unknown type '%s'; write a media type, such as \"text/plain\", or the extension of a file "
                   "name, such as \"html\"",
                   call, name);
    return type;
}

/* req:accepts(type: string, ...: string) -> type: string | nil
 * The first of the types that the client wants most (Accept, RFC 9110 section 12.5.1), or nil if it wants none of
 * them. A type is a media type or the extension of a file name: `req:accepts("html", "json")`. Adds `Vary: Accept` to
 * the response. */
static int req_accepts(lua_State *L)
{
    const ls_request *r = ls_request_check_req(L, 1);
    const int count = lua_gettop(L);
    int best = 0, best_weight = 0;
    (void)luaL_checkstring(L, 2);
    for (int n = 2; n <= count; n++) {
        bool named;
        const char *type = ls_request_check_type(L, n, "req:accepts");
        const size_t len = type == lua_tostring(L, n) ? strlen(type) : strcspn(type, "; ");
        const int weight = ls_accept_weight(&r->x->head, r->x->bytes, type, len, &named);
        if (weight <= best_weight) continue;
        best = n;
        best_weight = weight;
    }
    size_t len = 0;
    const char *vary = ls_exchange_find(r->x, "Vary", 4, &len);
    if (vary == NULL || !ls_text_same(vary, len, "Accept", 6)) /* a response that has begun remains as it is */
        (void)ls_exchange_header(r->state->ctx, r->x, "Vary", 4, "Accept", 6, false);
    if (best != 0)
        lua_pushvalue(L, best);
    else
        lua_pushnil(L);
    return 1;
}

void ls_request_push_sent(lua_State *L, const ls_exchange *x, int slot)
{
    const char *query = x->bytes + x->head.query.at;
    const size_t query_len = x->head.has_query ? x->head.query.len : 0;
    switch (slot) {
    case LS_REQ_QUERY: ls_request_push_pairs(L, query, query_len); break;
    case LS_REQ_QUERY_ALL: ls_request_push_lists(L, query, query_len); break;
    case LS_REQ_HEADERS: push_headers(L, x); break;
    case LS_REQ_COOKIES: push_cookies(L, x); break;
    case LS_REQ_TRAILERS: push_trailers(L, x); break;
    default: lua_newtable(L); break; /* params */
    }
}

/* core.sent(req) -> new tables of its headers, its cookies and its query, as the client has sent them. */
static int core_sent(lua_State *L)
{
    const ls_exchange *x = ls_request_check_req(L, 1)->x;
    ls_request_push_sent(L, x, LS_REQ_HEADERS);
    ls_request_push_sent(L, x, LS_REQ_COOKIES);
    ls_request_push_sent(L, x, LS_REQ_QUERY);
    return 3;
}

/* core.query(text, lists) -> the decoded parameters of a query string: as req.query, or as req.query_all. */
static int core_query(lua_State *L)
{
    const ls_text text = ls_check_text(L, 1);
    if (lua_toboolean(L, 2))
        ls_request_push_lists(L, text.ptr, text.len);
    else
        ls_request_push_pairs(L, text.ptr, text.len);
    return 1;
}

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"req:header(name)", req_header}, {"accepts", req_accepts}, {NULL, NULL}};
    static const luaL_Reg headers[] = {{"__index", headers_index}, {"__newindex", headers_newindex}, {NULL, NULL}};
    static const luaL_Reg lists[] = {{"__index", lists_index}, {NULL, NULL}};
    ls_requests *all = ls_requests_of(state);
    ls_request_methods(L, all->req_meta_ref, methods);
    luaL_newlib(L, headers);
    all->headers_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_newlib(L, lists);
    all->lists_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static const luaL_Reg functions[] = {
    {"sent", core_sent}, {"query", core_query}, {"cookie", core_cookie}, {NULL, NULL}};

const ls_module ls_req_sent_module = {.name = "req_sent", .functions = functions, .define = define};
