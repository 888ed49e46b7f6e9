/* tls_trust.h - the trust store of the system. tls_trust_posix.c or tls_trust_win32.c implements it. */
#ifndef LS_NET_TLS_TRUST_H
#define LS_NET_TLS_TRUST_H

#include <stdbool.h>
#include <stddef.h>

/* Receives one certificate as DER. false: stop. */
typedef bool ls_tls_trust_add(void *user, const void *der, size_t len);

/* Call `add` for each certificate authority that the system trusts for servers. LS_OK; LS_ENOTSUP: the library for TLS
 * finds them itself, in the folder that the distribution gave it; LS_ESYS: the store cannot be opened, or `add`
 * stopped. */
int ls_tls_trust_each(ls_tls_trust_add *add, void *user);

#endif
