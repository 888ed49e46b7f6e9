/* tls.c - what TLS has negotiated, as a table: req.tls and sock.tls; and why a handshake has failed. */
#include <lauxlib.h>

#include "base/err.h"
#include "net/tls.h"
#include "script/bind/bind.h"
#include "script/bind/bind_aux.h"

static void set_text(lua_State *L, const char *name, const char *text)
{
    if (text == NULL || text[0] == '\0') return;
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

void ls_push_tls(lua_State *L, const ls_filter *session)
{
    ls_tls_peer peer;
    if (session == NULL) {
        lua_pushnil(L);
        return;
    }
    ls_tls_peer_of(session, &peer);
    lua_createtable(L, 0, 7);
    set_text(L, "version", peer.version);
    set_text(L, "cipher", peer.cipher);
    set_text(L, "alpn", peer.alpn);
    set_text(L, "server_name", peer.server_name);
    lua_pushboolean(L, peer.resumed);
    lua_setfield(L, -2, "resumed");
    lua_pushboolean(L, peer.verified);
    lua_setfield(L, -2, "verified");
    if (peer.fingerprint[0] == '\0') return;
    lua_createtable(L, 0, 3);
    set_text(L, "subject", peer.subject);
    set_text(L, "issuer", peer.issuer);
    set_text(L, "fingerprint", peer.fingerprint);
    lua_setfield(L, -2, peer.is_client ? "client" : "server");
}

int ls_push_tls_failure(lua_State *L, int err, const char *why)
{
    const int count = ls_push_failure(L, err);
    lua_pushfstring(L, "TLS: %s", why[0] != '\0' ? why : ls_err_text(err));
    lua_replace(L, -3);
    return count;
}
