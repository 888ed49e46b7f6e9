/* req.c - the `req` object: its fields, each made at the first access: those of req_sent.c and req_client.c. body.c has the body.
 *
 * `__index` is a function whose upvalue is one table: a name leads either to a method or to the number of a field, so
 * a field costs one lookup. Tables (query, headers, cookies, params) and the body's string are kept in user values
 * until the request ends. Fields that the site assigns are kept in a separate table; their names are remembered,
 * because a name that was never assigned and is nearly a field is probably misspelled. */
#include <string.h>

#include "codec/http_chars.h"
#include "net/tls/tls.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/req.h"
#include "script/bind/tls/tls_object.h"
#include "script/core/lua/udata.h"

enum {
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

/* Push the table that req keeps in this slot. */
static int push_table(lua_State *L, ls_request *r, int slot)
{
    if (ls_request_cached(L, r, 1, slot)) return 1;
    ls_request_push_sent(L, r->x, slot);
    ls_request_cache(L, r, 1, slot);
    return 1;
}

static int push_field(lua_State *L, ls_request *r, enum req_field field)
{
    const ls_exchange *x = r->x;
    const ls_http_head *head = &x->head;
    const char *const name = field_names[field];
    switch (field) {
    case REQ_METHOD: ls_request_push_method(L, x); return 1;
    case REQ_PATH: ls_request_push_path(L, x); return 1;
    case REQ_TARGET: ls_request_push_span(L, x, head->target); return 1;
    case REQ_VERSION: lua_pushstring(L, head->version == 20 ? "2" : head->version == 10 ? "1.0" : "1.1"); return 1;
    case REQ_PARAMS: return push_table(L, r, LS_REQ_PARAMS);
    case REQ_QUERY: return push_table(L, r, LS_REQ_QUERY);
    case REQ_QUERY_ALL: return push_table(L, r, LS_REQ_QUERY_ALL);
    case REQ_HEADERS_: return push_table(L, r, LS_REQ_HEADERS);
    case REQ_COOKIES: return push_table(L, r, LS_REQ_COOKIES);
    case REQ_IP:
    case REQ_PORT:
    case REQ_REMOTE: return ls_request_take_forwarded(L, r, name) ? 1 : ls_request_push_address(L, x->remote, name);
    case REQ_LOCAL_IP:
    case REQ_LOCAL_PORT:
    case REQ_LOCAL_ADDR: return ls_request_push_address(L, x->transport->local(x), name);
    case REQ_ID: return ls_request_push_id(L, x);
    case REQ_SCHEME:
        if (!ls_request_take_forwarded(L, r, name)) lua_pushstring(L, x->secure ? "https" : "http");
        return 1;
    case REQ_SECURE:
        return ls_push_boolean(L, ls_request_take_forwarded(L, r, "scheme") ? strcmp(lua_tostring(L, -1), "https") == 0
                                                                            : x->secure);
    case REQ_TLS:
        if (ls_request_cached(L, r, 1, LS_REQ_TLS)) return 1;
        push_tls(L, r, 1);
        return 1;
    case REQ_HOST:
    case REQ_AUTHORITY:
        if (!ls_request_take_forwarded(L, r, "host")) {
            if (head->host.len == 0) return 0;
            ls_request_push_span(L, x, head->host);
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

/* ---- the module -------------------------------------------------------------------------------------------- */

static void define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", req_gc}, {"__tostring", req_tostring}, {NULL, NULL}};
    luaL_newlib(L, meta);
    lua_newtable(L);
    for (size_t n = REQ_METHOD; n < sizeof field_names / sizeof field_names[0]; n++)
        ls_set_integer(L, field_names[n], (lua_Integer)n);
    lua_newtable(L);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_pushcclosure(L, req_index, 2);
    lua_setfield(L, -4, "__index");
    lua_pushcclosure(L, req_newindex, 2);
    lua_setfield(L, -2, "__newindex");
    ls_udata_define(L, "request", &ls_requests_of(state)->req_meta_ref);
}

static const luaL_Reg functions[] = {{"params", core_params},
                                     {"set_query", core_set_query},
                                     {"last_segment", core_last_segment},
                                     {"maker", core_maker},
                                     {"own", core_own},
                                     {NULL, NULL}};

const ls_module ls_req_module = {.name = "req", .functions = functions, .define = define};
