/* option_tls.c - see option_tls.h. Structs are userdata, texts are strings of the given tables. Those of a listener
 * are kept by references of the registry, which are never dropped. */
#include "script/bind/option_tls.h"

#include <string.h>

#include <lauxlib.h>

#include "script/bind/bind_aux.h"
#include "script/bind/option.h"

/* Push a userdata of zeros. */
static void *new_zeroed(lua_State *L, size_t bytes)
{
    void *memory = lua_newuserdatauv(L, bytes > 0 ? bytes : 1, 0);
    memset(memory, 0, bytes);
    return memory;
}

/* The same, kept instead of pushed. */
static void *new_kept(lua_State *L, size_t bytes)
{
    void *memory = new_zeroed(L, bytes);
    (void)luaL_ref(L, LUA_REGISTRYINDEX);
    return memory;
}

/* The field `name` of the table at `index`, which holds the text; NULL: nil. */
static const char *field_text(lua_State *L, int index, const char *name)
{
    const int type = lua_getfield(L, index, name);
    const char *text = lua_tostring(L, -1);
    if (type != LUA_TNIL && (type != LUA_TSTRING || strlen(text) != lua_rawlen(L, -1)))
        luaL_error(L, "%s must be a string without NUL", name);
    lua_pop(L, 1);
    return text;
}

/* The same for a path, which the table has in its final form afterwards. */
static const char *field_path(lua_State *L, int index, const char *name)
{
    if (field_text(L, index, name) == NULL) return NULL;
    lua_getfield(L, index, name);
    (void)ls_push_site_path(L, -1);
    lua_setfield(L, index, name);
    lua_pop(L, 1);
    return field_text(L, index, name);
}

/* Push the userdata that holds them. */
static const ls_tls_cert *read_certs(lua_State *L, int index, unsigned count)
{
    ls_tls_cert *certs = new_zeroed(L, count * sizeof *certs);
    for (unsigned i = 0; i < count; i++) {
        lua_rawgeti(L, index, (lua_Integer)i + 1);
        const int one = lua_gettop(L);
        luaL_checktype(L, one, LUA_TTABLE);
        certs[i].cert = field_path(L, one, "cert");
        certs[i].key = field_path(L, one, "key");
        certs[i].password = field_text(L, one, "password");
        lua_settop(L, one - 1);
    }
    return certs;
}

void ls_option_tls_server(lua_State *L, int index, ls_tls_options *out)
{
    static const char *const verify[] = {"none", "optional", "required", NULL};
    luaL_checkstack(L, 10, NULL);
    index = lua_absindex(L, index);
    const unsigned count = (unsigned)lua_rawlen(L, index);
    *out = (ls_tls_options){.server = true,
                            .cert_count = count,
                            .certs = read_certs(L, index, count),
                            .self_signed = ls_option_flag(L, index, "self_signed"),
                            .ca = field_path(L, index, "ca"),
                            .tickets = field_path(L, index, "tickets"),
                            .min = field_text(L, index, "min"),
                            .ciphers = field_text(L, index, "ciphers"),
                            .alpn = field_text(L, index, "alpn")};
    lua_getfield(L, index, "verify");
    out->verify = (enum ls_tls_verify)luaL_checkoption(L, -1, "none", verify);
    lua_pop(L, 1);
}

const ls_tls_options *ls_option_tls(lua_State *L, int index)
{
    const int top = lua_gettop(L);
    if (lua_getfield(L, index, "tls") == LUA_TNIL) {
        lua_settop(L, top);
        return NULL;
    }
    luaL_checktype(L, -1, LUA_TTABLE);
    ls_tls_options *options = new_kept(L, sizeof *options);
    ls_option_tls_server(L, -1, options);
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* the certificates */
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* the table */
    return options;
}

void ls_option_tls_client(lua_State *L, int index, ls_tls_cert *cert, ls_tls_options *out)
{
    luaL_checkstack(L, 10, NULL);
    *cert = (ls_tls_cert){.cert = field_path(L, index, "cert"),
                          .key = field_path(L, index, "key"),
                          .password = field_text(L, index, "password")};
    *out = (ls_tls_options){.certs = cert,
                            .cert_count = cert->cert != NULL ? 1 : 0,
                            .ca = field_path(L, index, "ca"),
                            .insecure = ls_option_flag(L, index, "insecure"),
                            .min = field_text(L, index, "min"),
                            .ciphers = field_text(L, index, "ciphers"),
                            .alpn = field_text(L, index, "alpn")};
}

const ls_network *ls_option_networks(lua_State *L, int index, size_t *count)
{
    const int top = lua_gettop(L);
    *count = 0;
    if (lua_getfield(L, index, "trusted") == LUA_TNIL) {
        lua_settop(L, top);
        return NULL;
    }
    luaL_checktype(L, top + 1, LUA_TTABLE);
    const size_t length = lua_rawlen(L, top + 1);
    ls_network *networks = new_kept(L, length * sizeof *networks);
    for (size_t i = 0; i < length; i++) {
        lua_rawgeti(L, top + 1, (lua_Integer)i + 1);
        if (ls_network_parse(luaL_checkstring(L, -1), &networks[i]) < 0) luaL_error(L, "trusted: not a network");
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    *count = length;
    return networks;
}

int ls_core_is_network(lua_State *L)
{
    ls_network network;
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    lua_pushboolean(L, strlen(text) == len && ls_network_parse(text, &network) == LS_OK);
    return 1;
}
