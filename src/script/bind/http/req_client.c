/* req_client.c - who the client is: the address of its connection or what a trusted proxy says (forwarded.lua), and the id that
 * names its request in logs. */
#include <string.h>

#include "base/io/log.h"
#include "codec/http_chars.h"
#include "http/record.h"
#include "net/refused.h"
#include "net/sock/addr.h"
#include "script/bind/bind_aux.h"
#include "script/bind/http/body.h"
#include "script/bind/http/req.h"
#include "script/bind/sock/listeners.h"

int ls_request_push_address(lua_State *L, const ls_addr *addr, const char *name)
{
    return addr != NULL ? ls_push_addr_field(L, name, addr) : 0;
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
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        ls_request_push_header(L, r->x, names[n], strlen(names[n]));
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

int ls_request_push_id(lua_State *L, const ls_exchange *x)
{
    char id[17];
    if (x->id_field > 0) {
        ls_request_push_span(L, x, x->head.fields[x->id_field - 1].value);
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
    return ls_request_push_id(L, x);
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

bool ls_request_take_forwarded(lua_State *L, ls_request *r, const char *name)
{
    const ls_state_listener *listener = ls_request_trusting(r);
    if (listener == NULL) {
        warn_untrusted(r);
        return false;
    }
    if (!ls_request_cached(L, r, 1, LS_REQ_FORWARDED)) push_forwarded(L, r, listener);
    const int type = lua_getfield(L, -1, name);
    if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) lua_pushnil(L);
    return type != LUA_TNIL;
}

/* ip(req), also outside of its task */
static int req_ip(lua_State *L)
{
    ls_request *r = lua_touserdata(L, 1);
    return ls_request_take_forwarded(L, r, "ip") ? 1 : ls_request_push_address(L, r->x->remote, "ip");
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
    if (ls_request_take_forwarded(L, r, "ip")) {
        if (!lua_isstring(L, -1) || ls_addr_parse(lua_tostring(L, -1), 0, &forwarded) < 0) return 1;
        addr = &forwarded;
    }
    if (addr == NULL || (addr->family != LS_ADDR_IP4 && addr->family != LS_ADDR_IP6)) return req_ip(L);
    return ls_push_bytes(L, (const char *)addr->bytes, addr->family == LS_ADDR_IP4 ? 4 : 8);
}

static const luaL_Reg functions[] = {{"request_id", core_request_id}, {"client", core_client}, {NULL, NULL}};

const ls_module ls_req_client_module = {.name = "req_client", .functions = functions};
