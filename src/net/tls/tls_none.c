/* tls_none.c - see tls.h: a build without OpenSSL. There are no contexts, so there are no sessions. */
#include <stdio.h>

#include "base/err.h"
#include "net/tls/tls.h"

int ls_tls_open(const ls_tls_options *options, ls_tls **out, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "this luaserve was built without TLS");
    return LS_ENOTSUP;
}

ls_tls *ls_tls_hold(ls_tls *tls)
{
    return tls;
}

void ls_tls_drop(ls_tls *tls)
{
}

int ls_tls_keyring_open(ls_tls_keyring **out)
{
    return LS_ENOTSUP;
}

void ls_tls_keyring_drop(ls_tls_keyring *ring)
{
}

int ls_tls_keyring_set(ls_tls_keyring *ring, const char *bytes, size_t len)
{
    return LS_EINVAL;
}

int ls_tls_supply_open(ls_tls_supply **out)
{
    return LS_ENOTSUP;
}

void ls_tls_supply_drop(ls_tls_supply *supply)
{
}

int ls_tls_supply_set(ls_tls_supply *supply, const char *name, const char *pem, size_t len, char *why,
                      size_t why_bytes)
{
    return LS_ENOTSUP;
}

int ls_tls_supply_prove(ls_tls_supply *supply, const char *host, const uint8_t digest[LS_TLS_PROOF_BYTES])
{
    return LS_ENOTSUP;
}

const char *ls_tls_library(void)
{
    return NULL;
}

int ls_tls_reload(ls_tls *tls, bool force, char *why, size_t why_bytes)
{
    if (why_bytes > 0) why[0] = '\0';
    return LS_OK;
}

void ls_tls_expect_names(ls_tls *tls, const char *names, bool more)
{
}

void ls_tls_fingerprint(const ls_tls *tls, char out[96])
{
    out[0] = '\0';
}

void ls_tls_check_names(const ls_tls *tls, const char *names, const char *where)
{
}

int ls_tls_session(ls_tls *tls, const char *server_name, ls_filter **out)
{
    return LS_ENOTSUP;
}

bool ls_tls_is_small(const ls_filter *session)
{
    return false;
}

int ls_tls_handshake(ls_filter *session, ls_filter_out *out)
{
    return LS_ENOTSUP;
}

bool ls_tls_resumed(const ls_filter *session)
{
    return false;
}

const char *ls_tls_why(const ls_filter *session)
{
    return "built without TLS";
}

bool ls_tls_speaks(const ls_filter *session, const char *protocol)
{
    return false;
}

void ls_tls_peer_of(const ls_filter *session, ls_tls_peer *out)
{
    *out = (ls_tls_peer){.version = NULL};
}
