/* tls_object.c - what TLS has negotiated, as a table: req.tls and sock.tls; and why a handshake has failed. */
#include "script/bind/tls/tls_object.h"

#include "base/err.h"
#include "net/stream/stream.h"
#include "net/tls/tls.h"
#include "script/bind/bind_aux.h"

static void set_text(lua_State *L, const char *name, const char *text)
{
    if (text == NULL || text[0] == '\0') return;
    ls_set_text(L, name, text);
}

/* tls is a TlsInfo: what TLS has negotiated.
 * tls.version: string - "TLSv1.2" or "TLSv1.3"
 * tls.cipher: string - such as "TLS_AES_256_GCM_SHA384"
 * tls.alpn: string? - the protocol that was negotiated
 * tls.server_name: string? - the name that the client has asked for
 * tls.resumed: boolean - whether an earlier session was resumed
 * tls.verified: boolean - whether the certificate of the peer was checked and accepted
 * tls.client: Certificate? - of a client with a certificate
 * tls.server: Certificate? - of a sock that is the client
 * certificate is a Certificate: the certificate of a peer.
 * certificate.subject: string - whom it names
 * certificate.issuer: string - who has signed it
 * certificate.fingerprint: string - SHA-256, hexadecimal digits with colons */
void ls_push_tls_peer(lua_State *L, const ls_tls_peer *peer)
{
    if (peer == NULL) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 7);
    set_text(L, "version", peer->version);
    set_text(L, "cipher", peer->cipher);
    set_text(L, "alpn", peer->alpn);
    set_text(L, "server_name", peer->server_name);
    ls_set_boolean(L, "resumed", peer->resumed);
    ls_set_boolean(L, "verified", peer->verified);
    if (peer->fingerprint[0] == '\0') return;
    lua_createtable(L, 0, 3);
    set_text(L, "subject", peer->subject);
    set_text(L, "issuer", peer->issuer);
    set_text(L, "fingerprint", peer->fingerprint);
    lua_setfield(L, -2, peer->is_client ? "client" : "server");
}

void ls_push_tls(lua_State *L, const ls_stream *s)
{
    const ls_filter *session = ls_stream_filter(s);
    ls_tls_peer peer;
    if (session != NULL) ls_tls_peer_of(session, &peer);
    ls_push_tls_peer(L, session != NULL ? &peer : ls_stream_carried_peer(s));
}

int ls_push_tls_failure(lua_State *L, int err, const char *why)
{
    return ls_push_failure_text(L, err, "TLS: %s", why[0] != '\0' ? why : ls_err_text(err));
}
