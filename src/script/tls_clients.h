/* tls_clients.h - the TLS contexts of a site's client connections: one for each set of options, so that the trust store is
 * read once and sessions are resumed. Any thread. */
#ifndef LS_SCRIPT_TLS_CLIENTS_H
#define LS_SCRIPT_TLS_CLIENTS_H

#include "net/tls.h"

enum { LS_TLS_CLIENTS_MAX = 64 }; /* contexts that are kept; one more replaces the oldest */

typedef struct ls_tls_clients ls_tls_clients;

/* LS_OK, LS_ENOMEM or the error of the mutex. */
int ls_tls_clients_open(ls_tls_clients **out);
void ls_tls_clients_close(ls_tls_clients *clients); /* contexts in use stay until their users drop them */

/* A context with these options (of a client, with at most one certificate), with a reference of the caller. Files that
 * have changed are read again; if that fails, the certificates read before stay. LS_OK, or the result of ls_tls_open
 * with its reason in `why`. */
int ls_tls_clients_get(ls_tls_clients *clients, const ls_tls_options *options, ls_tls **out, char *why,
                       size_t why_bytes);

#endif
