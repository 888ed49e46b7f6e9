/* req.c - the `req` object: its fields, each made at the first access. body.c has the body.
 *
 * `__index` is a function whose upvalue is one table: a name leads either to a method or to the number of a field, so
 * a field costs one lookup. Tables (query, headers, cookies, params) and the body's string are kept in user values
 * until the request ends. Fields that the site assigns are kept in a separate table; their names are remembered,
 * because a name that was never assigned and is nearly a field is probably misspelled. */
#include <string.h>

#include "base/io/log.h"
#include "codec/coding/http_accept.h"
#include "codec/http_chars.h"
#include "codec/http_text.h"
#include "codec/http_type.h"
#include "http/record.h"
#include "net/refused.h"
#include "net/sock/addr.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/body.h"
#include "script/bind/http/req.h"
#include "script/bind/http/request.h"
#include "script/bind/sock/listeners.h"
#include "script/bind/tls/tls_object.h"
#include "script/core/lua/udata.h"
#include "script/store/marshal.h"

enum {
    PAIRS_AT_ONCE = 16,         /* pairs of a query or a form in the first batch; each further pair costs a lookup */
    NAMES_REMEMBERED_MAX = 256, /* names that are no fields, of all requests: see remember_name */
    NAME_BYTES_MAX = 64
};

enum req_field {
    REQ_METHOD = 1,
    REQ_PATH,
    REQ_TARGET,
    REQ_VERSION,
    REQ_PARAMS,
    REQ_QUERY,
    REQ_QUERY_ALL,
    REQ_HEADERS_,
    REQ_COOKIES,
    REQ_IP,
    REQ_PORT,
    REQ_REMOTE,
    REQ_LOCAL_IP,
    REQ_LOCAL_PORT,
    REQ_LOCAL_ADDR,
    REQ_ID,
    REQ_SCHEME,
    REQ_SECURE,
    REQ_TLS,
    REQ_HOST,
    REQ_AUTHORITY,
    REQ_TRAILERS
};
static const char *const field_names[] = {NULL,     "method",    "path",       "target",     "version", "params",
                                          "query",  "query_all", "headers",    "cookies",    "ip",      "port",
                                          "remote", "local_ip",  "local_port", "local_addr", "id",      "scheme",
                                          "secure", "tls",       "host",       "authority",  "trailers"};

static void push_span(lua_State *L, const ls_exchange *x, ls_span span)
{
    lua_pushlstring(L, x->bytes + span.at, span.len);
}

/* ---- tables ------------------------------------------------------------------------------------------------ */

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

static void push_cookies(lua_State *L, const ls_exchange *x)
{
    lua_newtable(L);
    for (uint32_t n = 0; n < x->head.field_count; n++) {
        const ls_http_field *field = &x->head.fields[n];
        ls_pair pair;
        if (!ls_text_same(x->bytes + field->name.at, field->name.len, "cookie", 6)) continue;
        for (size_t at = 0; ls_cookie_next(x->bytes + field->value.at, field->value.len, &at, &pair);) {
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
}

/* core.cookie(req, name, tail) -> its value, as req.cookies[name] but without the table; its last `tail` bytes |
 * nil */
static int core_cookie(lua_State *L)
{
    const ls_exchange *x = ls_request_check_req(L, 1)->x;
    size_t len;
    const char *name = luaL_checklstring(L, 2, &len);
    const size_t tail = (size_t)luaL_checkinteger(L, 3);
    for (uint32_t n = 0; n < x->head.field_count; n++) {
        const ls_http_field *field = &x->head.fields[n];
        ls_pair pair;
        if (!ls_text_same(x->bytes + field->name.at, field->name.len, "cookie", 6)) continue;
        for (size_t at = 0; ls_cookie_next(x->bytes + field->value.at, field->value.len, &at, &pair);) {
            if (pair.name_len != len || memcmp(pair.name, name, len) != 0) continue;
            const size_t from = pair.value_len > tail ? pair.value_len - tail : 0;
            lua_pushlstring(L, pair.value, pair.value_len);
            lua_pushlstring(L, pair.value + from, pair.value_len - from);
            return 2;
        }
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
    push_span(L, x, field->value);
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

/* Push the value of the field; several of one name are joined. nil: the request has no such field. */
static void push_header(lua_State *L, const ls_exchange *x, const char *name, size_t len)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, name, len);
    if (field == NULL) {
        lua_pushnil(L);
        return;
    }
    push_span(L, x, field->value);
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
    push_header(L, r->x, name, len);
    return 1;
}

/* Push the media type that the string at `index` names: itself, or that of an extension of file names. */
static const char *push_type(lua_State *L, int index)
{
    const char *name = luaL_checkstring(L, index);
    if (strchr(name, '/') != NULL) return lua_pushstring(L, name);
    const char *type = ls_http_type_of_extension(strcmp(name, "text") == 0 ? "txt" : name + (*name == '.'));
    if (type == NULL)
        luaL_error(L,
                   "req:accepts: unknown type '%s'; write a media type, such as \"text/plain\", or the extension of a "
                   "file name, such as \"html\"",
                   name);
    return lua_pushlstring(L, type, strcspn(type, "; "));
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
        const char *type = push_type(L, n);
        const int weight = ls_accept_weight(&r->x->head, r->x->bytes, type, strlen(type), &named);
        lua_pop(L, 1);
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

/* ---- fields ------------------------------------------------------------------------------------------------ */

/* Push the host of the authority on top of the stack: in lower case, without the port and the dot of the root. */
static int push_host(lua_State *L)
{
    luaL_Buffer host;
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    if (text == NULL) return 1; /* a proxy does not tell it */
    const bool bracket = *text == '[';
    const char *end = memchr(text, bracket ? ']' : ':', len);
    if (end != NULL) len = (size_t)(end - text) + bracket;
    if (len > 0 && text[len - 1] == '.') len--;
    char *to = luaL_buffinitsize(L, &host, len);
    for (size_t n = 0; n < len; n++) to[n] = ls_char_lower(text[n]);
    luaL_pushresultsize(&host, len);
    return 1;
}

static int push_address(lua_State *L, const ls_addr *addr, enum req_field field)
{
    return addr != NULL ? ls_push_addr_field(L, field_names[field], addr) : 0;
}

/* hop(text) -> the address in its usual form, whether it is trusted | nil. Upvalue: the listener. */
static int forwarded_hop(lua_State *L)
{
    const ls_state_listener *listener = lua_touserdata(L, lua_upvalueindex(1));
    const ls_text text = ls_check_text(L, 1);
    char host[LS_ADDR_TEXT_BYTES];
    ls_addr addr;
    if (strspn(text.ptr, "0123456789abcdefABCDEF.:") != text.len || ls_addr_parse(text.ptr, 0, &addr) < 0) return 0;
    ls_addr_unmap(&addr);
    lua_pushstring(L, ls_addr_host(&addr, host));
    lua_pushboolean(L, ls_networks_have(listener->trusted, listener->trusted_count, &addr));
    return 2;
}

/* Push the table of what trusted proxies say about the client, see forwarded.lua, and keep it with the request. */
static void push_forwarded(lua_State *L, ls_request *r, const ls_state_listener *listener)
{
    static const char *const names[] = {"forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"};
    ls_push_function(L, "luaserve.forwarded", "read");
    lua_pushlightuserdata(L, (void *)(uintptr_t)listener);
    lua_pushcclosure(L, forwarded_hop, 1);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) push_header(L, r->x, names[n], strlen(names[n]));
    lua_call(L, 5, 1);
    ls_request_cache(L, r, 1, LS_REQ_FORWARDED);
}

const ls_state_listener *ls_request_trusting(const ls_request *r)
{
    const ls_state_listener *listener = ls_listener_of(r->state, r->dispatch_ref);
    return listener != NULL && listener->trusted_count > 0 && r->x->remote != NULL &&
                   ls_networks_have(listener->trusted, listener->trusted_count, r->x->remote)
               ? listener
               : NULL;
}

/* Whether the text can name a request in logs: characters of a token, and : = @ only. */
static bool is_request_id(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!ls_char_is(text[i], LS_CHAR_TOKEN) && strchr(":=@", text[i]) == NULL) return false;
    return len > 0 && len <= LS_REQUEST_ID_BYTES_MAX;
}

/* The request is named by this field, if it has one that can name it. */
static void name_by(ls_exchange *x, const char *name, size_t len)
{
    const ls_http_field *field = ls_http_head_find(&x->head, x->bytes, name, len);
    if (field != NULL && is_request_id(x->bytes + field->value.at, field->value.len))
        x->id_field = (uint32_t)(field - x->head.fields) + 1;
}

static int push_id(lua_State *L, const ls_exchange *x)
{
    char id[17];
    if (x->id_field > 0) {
        push_span(L, x, x->head.fields[x->id_field - 1].value);
        return 1;
    }
    ls_request_id_text(x->id, id);
    return ls_push_bytes(L, id, 16);
}

/* told(req) -> the table of forwarded.lua, which the request keeps */
static int told(lua_State *L)
{
    ls_request *r = lua_touserdata(L, 1);
    if (!ls_request_cached(L, r, 1, LS_REQ_FORWARDED)) push_forwarded(L, r, ls_request_trusting(r));
    return 1;
}

/* refuse(req): raise if the fields of a trusted proxy say what no one may believe: see forwarded.lua */
static int refuse(lua_State *L)
{
    (void)told(L);
    return lua_getfield(L, -1, "refused") != LUA_TNIL ? ls_body_refuse(L, lua_touserdata(L, 1), 400) : 0;
}

void ls_request_take_trusted(lua_State *L, const ls_request *r)
{
    ls_exchange *x = r->x;
    if (ls_request_trusting(r) == NULL) return;
    name_by(x, "x-request-id", 12);
    ls_record_more *more = ls_record_more_of(r->state->ctx, x);
    if (more != NULL) {
        ls_request_push_ip(L, r);
        const bool hidden = strcmp(lua_tostring(L, -1), "unknown") == 0;
        more->has_client = ls_addr_parse(lua_tostring(L, -1), 0, &more->client) == LS_OK || hidden;
        if (hidden) more->client = (ls_addr){.family = LS_ADDR_NONE};
        lua_pop(L, 1);
    }
    if (ls_http_head_find(&x->head, x->bytes, "forwarded", 9) == NULL) return;
    lua_pushcfunction(L, refuse);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_call(L, 1, 0);
}

/* core.request_id(req, name) -> the value of the field `name`, in lower case, if a trusted proxy sends one that can
 * name a request: the log names the request by it; else req.id. */
static int core_request_id(lua_State *L)
{
    size_t len;
    const ls_request *r = ls_request_check_req(L, 1);
    ls_exchange *x = r->x;
    const char *name = luaL_checklstring(L, 2, &len);
    if (ls_request_trusting(r) != NULL) name_by(x, name, len);
    return push_id(L, x);
}

/* The peer says whom it forwards, and is not trusted: all of its clients have its address. Logged once. */
static void warn_untrusted(const ls_request *r)
{
    _Atomic bool *const warned = &r->state->generation->forwarded_warned;
    const ls_exchange *x = r->x;
    char text[LS_ADDR_TEXT_BYTES];
    if (atomic_load_explicit(warned, memory_order_relaxed) || x->remote == NULL ||
        ls_listener_of(r->state, r->dispatch_ref) == NULL ||
        (ls_http_head_find(&x->head, x->bytes, "x-forwarded-for", 15) == NULL &&
         ls_http_head_find(&x->head, x->bytes, "forwarded", 9) == NULL) ||
        atomic_exchange(warned, true))
        return;
    const char *host = ls_addr_host(x->remote, text);
    ls_log(LS_LOG_WARN,
           "a request of %s names another client in X-Forwarded-For or Forwarded, and this address is not in "
           "`trusted` of "
           "ls.listen: req.ip is %s for all of its clients. If it is your proxy, write trusted = { \"%s\" } "
           "(logged once)",
           host, host, host);
}

const ls_addr *ls_request_peer(const ls_request *r)
{
    if (ls_request_trusting(r) != NULL) return NULL;
    warn_untrusted(r);
    return r->x->remote;
}

/* Push the field from what a trusted proxy says, if the client is one and says something about it. A port may be
 * unknown: nil. */
static bool take_forwarded(lua_State *L, ls_request *r, enum req_field field)
{
    const ls_state_listener *listener = ls_request_trusting(r);
    if (listener == NULL) {
        warn_untrusted(r);
        return false;
    }
    if (!ls_request_cached(L, r, 1, LS_REQ_FORWARDED)) push_forwarded(L, r, listener);
    const int type = lua_getfield(L, -1, field_names[field]);
    if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) lua_pushnil(L);
    return type != LUA_TNIL;
}

/* ip(req), also outside of its task */
static int req_ip(lua_State *L)
{
    ls_request *r = lua_touserdata(L, 1);
    return take_forwarded(L, r, REQ_IP) ? 1 : push_address(L, r->x->remote, REQ_IP);
}

ls_proxy_told ls_request_told(lua_State *L, const ls_request *r)
{
    static const char *const names[] = {"ip", "scheme", "host"};
    ls_text texts[3];
    if (ls_request_trusting(r) == NULL || ls_http_head_find(&r->x->head, r->x->bytes, "forwarded", 9) == NULL)
        return (ls_proxy_told){.any = false};
    lua_pushcfunction(L, told);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_call(L, 1, 1);
    for (int n = 0; n < 3; n++) {
        (void)lua_getfield(L, -1 - n, names[n]);
        texts[n].ptr = lua_tolstring(L, -1, &texts[n].len);
    }
    lua_pop(L, 4);
    return (ls_proxy_told){true, texts[0], texts[1], texts[2]};
}

void ls_request_push_ip(lua_State *L, const ls_request *r)
{
    lua_pushcfunction(L, req_ip);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    lua_call(L, 1, 1);
    if (!lua_isstring(L, -1)) lua_pushliteral(L, "-"); /* app:inject */
}

void ls_request_push_logged_ip(lua_State *L, const ls_request *r)
{
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr addr;
    ls_request_push_ip(L, r);
    if (!ls_log_masks_addresses() || ls_addr_parse(lua_tostring(L, -1), 0, &addr) < 0) return;
    lua_pop(L, 1);
    lua_pushstring(L, ls_addr_logged(&addr, text));
}

void ls_request_log_refused(lua_State *L, const ls_request *r, int status, const char *why)
{
    char name[LS_REQUEST_NAME_BYTES];
    ls_request_log_name(r->x, name);
    const int top = lua_gettop(L);
    ls_request_push_logged_ip(L, r);
    ls_refused_log("%s %d: %s: %s", lua_tostring(L, -1), status, name, why);
    lua_settop(L, top);
}

/* core.client(req) -> who the client is, in few bytes: its IPv4 address, or its IPv6 network of 64 bits, which one
 * client has as a whole; else req.ip */
static int core_client(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    ls_addr forwarded;
    const ls_addr *addr = r->x->remote;
    if (take_forwarded(L, r, REQ_IP)) {
        if (!lua_isstring(L, -1) || ls_addr_parse(lua_tostring(L, -1), 0, &forwarded) < 0) return 1;
        addr = &forwarded;
    }
    if (addr == NULL || (addr->family != LS_ADDR_IP4 && addr->family != LS_ADDR_IP6)) return req_ip(L);
    return ls_push_bytes(L, (const char *)addr->bytes, addr->family == LS_ADDR_IP4 ? 4 : 8);
}

/* Push req.tls and keep it in the req object at `self`. */
static void push_tls(lua_State *L, ls_request *r, int self)
{
    const ls_exchange *x = r->x;
    ls_tls_peer room;
    ls_push_tls_peer(L, x->transport->peer != NULL ? x->transport->peer(x, &room) : NULL);
    ls_request_cache(L, r, self, LS_REQ_TLS);
}

void ls_request_keep_tls(lua_State *L, ls_request *r)
{
    const int top = lua_gettop(L);
    if (!r->x->secure) return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->req_ref);
    if (!ls_request_cached(L, r, top + 1, LS_REQ_TLS)) push_tls(L, r, top + 1);
    lua_settop(L, top);
}

/* Push the table of this slot, as the client has sent it. */
static void push_sent(lua_State *L, const ls_exchange *x, int slot)
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
    push_sent(L, x, LS_REQ_HEADERS);
    push_sent(L, x, LS_REQ_COOKIES);
    push_sent(L, x, LS_REQ_QUERY);
    return 3;
}

/* Push the table that req keeps in this slot. */
static int push_table(lua_State *L, ls_request *r, int slot)
{
    if (ls_request_cached(L, r, 1, slot)) return 1;
    push_sent(L, r->x, slot);
    ls_request_cache(L, r, 1, slot);
    return 1;
}

static int push_field(lua_State *L, ls_request *r, enum req_field field)
{
    const ls_exchange *x = r->x;
    const ls_http_head *head = &x->head;
    switch (field) {
    case REQ_METHOD: ls_request_push_method(L, x); return 1;
    case REQ_PATH: ls_request_push_path(L, x); return 1;
    case REQ_TARGET: push_span(L, x, head->target); return 1;
    case REQ_VERSION: lua_pushstring(L, head->version == 20 ? "2" : head->version == 10 ? "1.0" : "1.1"); return 1;
    case REQ_PARAMS: return push_table(L, r, LS_REQ_PARAMS);
    case REQ_QUERY: return push_table(L, r, LS_REQ_QUERY);
    case REQ_QUERY_ALL: return push_table(L, r, LS_REQ_QUERY_ALL);
    case REQ_HEADERS_: return push_table(L, r, LS_REQ_HEADERS);
    case REQ_COOKIES: return push_table(L, r, LS_REQ_COOKIES);
    case REQ_IP:
    case REQ_PORT:
    case REQ_REMOTE: return take_forwarded(L, r, field) ? 1 : push_address(L, x->remote, field);
    case REQ_LOCAL_IP:
    case REQ_LOCAL_PORT:
    case REQ_LOCAL_ADDR: return push_address(L, x->transport->local(x), field);
    case REQ_ID: return push_id(L, x);
    case REQ_SCHEME:
        if (!take_forwarded(L, r, field)) lua_pushstring(L, x->secure ? "https" : "http");
        return 1;
    case REQ_SECURE:
        return ls_push_boolean(L, take_forwarded(L, r, REQ_SCHEME) ? strcmp(lua_tostring(L, -1), "https") == 0
                                                                   : x->secure);
    case REQ_TLS:
        if (ls_request_cached(L, r, 1, LS_REQ_TLS)) return 1;
        push_tls(L, r, 1);
        return 1;
    case REQ_HOST:
    case REQ_AUTHORITY:
        if (!take_forwarded(L, r, REQ_HOST)) {
            if (head->host.len == 0) return 0;
            push_span(L, x, head->host);
        }
        return field == REQ_HOST ? push_host(L) : 1;
    case REQ_TRAILERS: return x->body_done ? push_table(L, r, LS_REQ_TRAILERS) : 0;
    }
    return 0;
}

/* Remember that the site knows the name at index 2, which no field has: upvalue 2 is the set of such names, with their
 * number at [1]. Returns false if the name is in the set or the set is full. */
static bool remember_name(lua_State *L)
{
    size_t len;
    if (lua_type(L, 2) != LUA_TSTRING) return false;
    (void)lua_tolstring(L, 2, &len);
    lua_pushvalue(L, 2);
    const bool known = lua_rawget(L, lua_upvalueindex(2)) != LUA_TNIL;
    lua_rawgeti(L, lua_upvalueindex(2), 1);
    const lua_Integer count = lua_tointeger(L, -1);
    lua_pop(L, 2);
    if (known || count >= NAMES_REMEMBERED_MAX || len > NAME_BYTES_MAX) return false;
    lua_pushvalue(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, lua_upvalueindex(2));
    lua_pushinteger(L, count + 1);
    lua_rawseti(L, lua_upvalueindex(2), 1);
    return true;
}

/* req.NAME is nil: if NAME is nearly a field, it is probably misspelled. A site may set any name, and read it in a
 * request that has not set it, so this does not raise: it logs each name once, unless the site has set it before. */
static int unknown_field(lua_State *L)
{
    if (remember_name(L)) {
        ls_push_function(L, "luaserve.names", "warn_misspelled");
        lua_pushvalue(L, 2);
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_call(L, 2, 0);
    }
    return ls_push_nil(L);
}

/* The C function of a field that is made at the first access. It is never called: its first upvalue is. The second one is the
 * message about an assignment, which the metatable of the value that was made has as __assign. */
static int maker(lua_State *L)
{
    return 0;
}

enum { OWN = 4, MAKER, MADE }; /* the stack of make: the request, the name, nil, then these */

static int make_returned(lua_State *L, int status, lua_KContext context)
{
    lua_pushvalue(L, 2);
    (void)lua_rawget(L, OWN);
    if (!lua_rawequal(L, -1, MAKER)) return 1; /* another task of the request was faster */
    lua_pushvalue(L, 2);
    lua_pushvalue(L, MADE);
    lua_rawset(L, OWN);
    lua_settop(L, MADE);
    return 1;
}

static int make(lua_State *L, const ls_request *r)
{
    (void)lua_getupvalue(L, MAKER, 1);
    lua_pushvalue(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, r->res_ref);
    lua_callk(L, 2, 1, 0, make_returned);
    return make_returned(L, LUA_OK, 0);
}

/* core.maker(fn, message) -> a value for core.own: the first access to the field calls fn(req, res), whose result it
 * becomes; res is nil after a WebSocket. An assignment of the site raises the message. */
static int core_maker(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TSTRING);
    lua_settop(L, 2);
    lua_pushcclosure(L, maker, 2);
    return 1;
}

/* Raise if the field at index 2 is that of a maker; on top of the stack is the table of the fields of the site. */
static void check_assignable(lua_State *L)
{
    lua_pushvalue(L, 2);
    const int type = lua_rawget(L, -2);
    const bool made = type == LUA_TTABLE && luaL_getmetafield(L, -1, "__assign") != LUA_TNIL;
    const bool makes = type == LUA_TFUNCTION && lua_tocfunction(L, -1) == maker && lua_getupvalue(L, -1, 2) != NULL;
    if (made || makes) luaL_error(L, "%s", lua_tostring(L, -1));
    lua_pop(L, 1);
}

/* core.own(req, name [, value]) -> what the site or luaserve has assigned to req.NAME, a maker as it is; the metatable
 * of a table. Assigns a value. */
static int core_own(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    const bool assigns = lua_gettop(L) > 2;
    luaL_checktype(L, 2, LUA_TSTRING);
    lua_settop(L, 3);
    if (!ls_request_cached(L, r, 1, LS_REQ_OWN)) {
        if (!assigns) return 0;
        lua_createtable(L, 0, 1);
        ls_request_cache(L, r, 1, LS_REQ_OWN);
    }
    lua_pushvalue(L, 2);
    (void)lua_rawget(L, 4);
    if (assigns) {
        lua_pushvalue(L, 2);
        lua_pushvalue(L, 3);
        lua_rawset(L, 4);
    }
    return lua_istable(L, 5) && lua_getmetatable(L, 5) ? 2 : 1;
}

/* req is a Request: the first argument of a handler.
 * req.method: string - "GET", as the client has sent it
 * req.path: string - the path of the target, as it was sent
 * req.target: string - the whole target
 * req.version: string - "2", "1.1" or "1.0"
 * req.params: table<string, string> - parameters of the route, decoded
 * req.query: table<string, string> - parameters of the query string, decoded; the first of each name
 * req.query_all: table<string, string[]> - the same, with all values of each name
 * req.headers: table<string, string> - header fields; names are found in any case
 * req.cookies: table<string, string> - cookies by name
 * req.trailers: table<string, string>? - the fields after a chunked body; nil before the body was read to its end
 * req.host: string? - of the field Host: in lower case, without port
 * req.authority: string? - the field Host, with its port
 * req.scheme: "http"|"https" - of the connection, or of that to the proxy
 * req.secure: boolean - whether the scheme is "https"
 * req.tls: TlsInfo? - what TLS has negotiated
 * req.ip: string? - address of the client
 * req.port: integer? - port of the client; nil if it is not known
 * req.remote: string? - both as text
 * req.local_ip: string? - address to which the client connected
 * req.local_port: integer? - port to which the client connected
 * req.local_addr: string? - both as text
 * req.id: string - 16 hexadecimal digits, unique in this process
 * req[string]: any - what the site assigns, for this request */
static int req_index(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, lua_upvalueindex(1))) {
    case LUA_TFUNCTION: return 1;
    case LUA_TNUMBER: return push_field(L, r, (enum req_field)lua_tointeger(L, -1));
    default: break;
    }
    if (!ls_request_cached(L, r, 1, LS_REQ_OWN)) return unknown_field(L);
    lua_pushvalue(L, 2);
    switch (lua_rawget(L, -2)) {
    case LUA_TNIL: return unknown_field(L);
    case LUA_TFUNCTION: return lua_tocfunction(L, -1) == maker ? make(L, r) : 1;
    default: return 1;
    }
}

/* req.NAME = value keeps a value for this request; the names of fields and methods are read-only. */
static int req_newindex(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
        return luaL_error(L, "req.%s is read-only", lua_tostring(L, 2));
    lua_settop(L, 3);
    (void)remember_name(L);
    if (!ls_request_cached(L, r, 1, LS_REQ_OWN)) {
        lua_createtable(L, 0, 1);
        ls_request_cache(L, r, 1, LS_REQ_OWN);
    } else {
        check_assignable(L);
    }
    lua_insert(L, 2);
    lua_rawset(L, 2);
    return 0;
}

static int req_gc(lua_State *L)
{
    ls_request *r = ls_udata_test(L, 1, &ls_request_tag, sizeof *r);
    if (r == NULL) return 0;
    ls_body_in_drop(&r->in);
    ls_request_drop_parts(r);
    r->x = NULL;
    return 0;
}

static int req_tostring(lua_State *L)
{
    return ls_push_text(L, "request");
}

/* ---- for router.lua ---------------------------------------------------------------------------------------- */

/* core.last_segment(req, path, leaves) -> leaf | nil. Splits `path` before its last segment: leaf =
 * leaves["/prefix/"], and req.params becomes { [leaf[1]] = segment }. Returns nil without an effect when there is no
 * such leaf, when the last segment is empty, or when the path contains a "%". */
static int core_last_segment(lua_State *L)
{
    ls_request *r = ls_request_check_req(L, 1);
    size_t len;
    const char *path = luaL_checklstring(L, 2, &len);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    size_t from = len;
    while (from > 0 && path[from - 1] != '/') from--;
    if (from == len || memchr(path, '%', len) != NULL) return 0;
    lua_pushlstring(L, path, from);
    if (lua_rawget(L, 3) != LUA_TTABLE) return 0;
    lua_createtable(L, 0, 1);
    lua_rawgeti(L, 4, 1);
    lua_pushlstring(L, path + from, len - from);
    lua_rawset(L, 5);
    r->filled |= 1u << LS_REQ_PARAMS;
    lua_setiuservalue(L, 1, LS_REQ_PARAMS);
    return 1;
}

/* Set the table of a field of req to that at index 2, or nil: it is made again. */
static int set_table(lua_State *L, int slot)
{
    ls_request *r = ls_request_check_req(L, 1);
    if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    if (lua_isnil(L, 2))
        r->filled &= ~(1u << slot);
    else
        r->filled |= 1u << slot;
    lua_setiuservalue(L, 1, slot);
    return 0;
}

/* core.params(req, table|nil): sets req.params. */
static int core_params(lua_State *L)
{
    return set_table(L, LS_REQ_PARAMS);
}

/* core.set_query(req, table): sets req.query. */
static int core_set_query(lua_State *L)
{
    return set_table(L, LS_REQ_QUERY);
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

/* ---- the module -------------------------------------------------------------------------------------------- */

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg methods[] = {{"req:header(name)", req_header}, {"accepts", req_accepts}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", req_gc}, {"__tostring", req_tostring}, {NULL, NULL}};
    static const luaL_Reg headers[] = {{"__index", headers_index}, {"__newindex", headers_newindex}, {NULL, NULL}};
    static const luaL_Reg lists[] = {{"__index", lists_index}, {NULL, NULL}};
    ls_requests *all = ls_requests_of(state);
    luaL_newlib(L, meta);
    lua_newtable(L);
    ls_set_calls(L, methods);
    for (size_t n = REQ_METHOD; n < sizeof field_names / sizeof field_names[0]; n++)
        ls_set_integer(L, field_names[n], (lua_Integer)n);
    lua_newtable(L);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_pushcclosure(L, req_index, 2);
    lua_setfield(L, -4, "__index");
    lua_pushcclosure(L, req_newindex, 2);
    lua_setfield(L, -2, "__newindex");
    ls_udata_define(L, "request", &all->req_meta_ref);
    luaL_newlib(L, headers);
    all->headers_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    luaL_newlib(L, lists);
    all->lists_meta_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

static const luaL_Reg functions[] = {{"params", core_params},
                                     {"set_query", core_set_query},
                                     {"sent", core_sent},
                                     {"last_segment", core_last_segment},
                                     {"query", core_query},
                                     {"request_id", core_request_id},
                                     {"client", core_client},
                                     {"cookie", core_cookie},
                                     {"maker", core_maker},
                                     {"own", core_own},
                                     {NULL, NULL}};

const ls_module ls_req_module = {.name = "req", .functions = functions, .define = define};
