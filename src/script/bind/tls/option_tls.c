/* option_tls.c - see option_tls.h. Structs are userdata, texts are strings of the given tables. Those of a listener
 * are kept by references of the registry, which are never dropped. */
#include "script/bind/tls/option_tls.h"

#include <string.h>

#include <lauxlib.h>

#include "script/bind/modules.h"
#include "script/bind/option.h"
#include "script/bind/tls/acme.h"
#include "script/core/lua/push.h"
#include "script/core/state.h"

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

#define CERT(field) LS_OPTION_FILE(ls_tls_cert, field)
static const ls_option cert_options[] = {CERT(cert), CERT(key), LS_OPTION(ls_tls_cert, password),
                                         LS_OPTION(ls_tls_cert, supplied), LS_OPTIONS_END};
#define OPTION(field) LS_OPTION(ls_tls_options, field)
static const ls_option options[] = {OPTION(self_signed), LS_OPTION_FILE(ls_tls_options, ca),
                                    OPTION(verify),      OPTION(insecure),
                                    OPTION(min),         OPTION(ciphers),
                                    OPTION(alpn),        LS_OPTION_FILE(ls_tls_options, tickets),
                                    OPTION(names),       LS_OPTIONS_END};

/* Push the userdata that holds them. */
static const ls_tls_cert *read_certs(lua_State *L, int index, unsigned count)
{
    ls_tls_cert *certs = new_zeroed(L, count * sizeof *certs);
    for (unsigned i = 0; i < count; i++) {
        lua_rawgeti(L, index, (lua_Integer)i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        ls_options_read(L, -1, cert_options, &certs[i]);
        lua_pop(L, 1);
    }
    return certs;
}

void ls_option_tls_server(lua_State *L, int index, ls_tls_options *out)
{
    luaL_checkstack(L, 10, NULL);
    index = lua_absindex(L, index);
    const unsigned count = (unsigned)lua_rawlen(L, index);
    *out = (ls_tls_options){.server = true, .cert_count = count, .certs = read_certs(L, index, count)};
    ls_options_read(L, index, options, out);
}

/* The keys of the server's listeners with the option ticket_secret; NULL: none yet. */
static ls_tls_keyring **keyring_of(lua_State *L)
{
    return ls_runtime_own(ls_state_runtime(ls_state_of(L)), LS_SLOT_listener);
}

static void keyring_close(void *own)
{
    ls_tls_keyring *ring = *(ls_tls_keyring **)own;
    if (ring != NULL) ls_tls_keyring_drop(ring);
}

const ls_module_common ls_listener_common = {.bytes = sizeof(ls_tls_keyring *), .close = keyring_close};

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
    if (lua_getfield(L, top + 1, "keyring") == LUA_TBOOLEAN) {
        ls_tls_keyring **ring = keyring_of(L);
        if (*ring == NULL) (void)ls_tls_keyring_open(ring);
        options->keyring = *ring;
    }
    lua_pop(L, 1);
    for (unsigned i = 0; i < options->cert_count && options->supply == NULL; i++)
        if (options->certs[i].supplied != NULL) options->supply = ls_tls_supply_of(L);
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* the certificates */
    (void)luaL_ref(L, LUA_REGISTRYINDEX); /* the table */
    return options;
}

void ls_option_tls_client(lua_State *L, int index, ls_tls_cert *cert, ls_tls_options *out)
{
    *cert = (ls_tls_cert){0};
    ls_options_read(L, index, cert_options, cert);
    *out = (ls_tls_options){.certs = cert, .cert_count = cert->cert != NULL ? 1 : 0};
    ls_options_read(L, index, options, out);
}

const ls_network *ls_option_networks(lua_State *L, int index, const char *name, size_t *count)
{
    const int top = lua_gettop(L);
    *count = 0;
    if (lua_getfield(L, index, name) == LUA_TNIL) {
        lua_settop(L, top);
        return NULL;
    }
    luaL_checktype(L, top + 1, LUA_TTABLE);
    const size_t length = lua_rawlen(L, top + 1);
    ls_network *networks = new_kept(L, length * sizeof *networks);
    for (size_t i = 0; i < length; i++) {
        lua_rawgeti(L, top + 1, (lua_Integer)i + 1);
        if (ls_network_parse(luaL_checkstring(L, -1), &networks[i]) < 0) luaL_error(L, "%s: not a network", name);
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    *count = length;
    return networks;
}

/* core.tls_ticket_keys(keys): keys of 80 bytes each for all listeners whose table tls has keyring = true. */
int ls_core_tls_ticket_keys(lua_State *L)
{
    size_t len;
    const char *bytes = luaL_checklstring(L, 1, &len);
    ls_tls_keyring *ring = *keyring_of(L);
    if (ring != NULL && ls_tls_keyring_set(ring, bytes, len) < 0) luaL_error(L, "ticket keys of 80 bytes expected");
    return 0;
}

int ls_core_is_network(lua_State *L)
{
    ls_network network;
    const ls_text text = ls_check_text(L, 1);
    return ls_push_boolean(L, strlen(text.ptr) == text.len && ls_network_parse(text.ptr, &network) == LS_OK);
}
