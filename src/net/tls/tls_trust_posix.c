/* tls_trust_posix.c - see tls_trust.h: OpenSSL's default folder, such as /etc/ssl/certs, is that of the system. */
#include "base/err.h"
#include "net/tls/tls_trust.h"

int ls_tls_trust_each(ls_tls_trust_add *add, void *user)
{
    return LS_ENOTSUP;
}
