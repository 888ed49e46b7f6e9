/* tls_contexts.h - the TLS contexts of ls.connect and sock:starttls in a site: one for each set of options, so that
 * files and the trust store are read once and sessions are resumed. Any thread. */
#ifndef LS_SCRIPT_TLS_CONTEXTS_H
#define LS_SCRIPT_TLS_CONTEXTS_H

#include "net/tls/tls.h"
#include "script/bind/modules.h"
#include "script/core/state.h"

enum { LS_TLS_CONTEXTS_MAX = 64 }; /* contexts that are kept; one more replaces the oldest */

typedef struct ls_tls_contexts ls_tls_contexts;

/* LS_OK, LS_ENOMEM or the error of the mutex. */
int ls_tls_contexts_open(ls_tls_contexts **out);
void ls_tls_contexts_close(ls_tls_contexts *contexts); /* contexts in use stay until their users drop them */

/* Those of the server. */
static inline ls_tls_contexts *ls_tls_contexts_of(const ls_state *state)
{
    return *(ls_tls_contexts *const *)ls_runtime_own(ls_state_runtime(state), LS_SLOT_connect);
}

/* A context with these options (without self_signed), with a reference of the caller. Files that have changed are read
 * again; if that fails, the log says why, and those read before stay. LS_OK, or the result of ls_tls_open with its
 * reason in `why`. */
int ls_tls_contexts_get(ls_tls_contexts *contexts, const ls_tls_options *options, ls_tls **out, char *why,
                        size_t why_bytes);

#endif
