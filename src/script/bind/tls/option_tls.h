/* option_tls.h - the options for TLS and for the PROXY protocol, as the modules of lua/luaserve pass them to the core.
 * What is returned for a listener lives as long as the state. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_OPTION_TLS_H
#define LS_SCRIPT_OPTION_TLS_H

#include <stddef.h>

#include <lua.h>

#include "net/network.h"
#include "net/tls/tls.h"
#include "script/core/runtime.h"

/* Read the field `tls` of the table at `index`: a list of { cert=, key=, password= }, with self_signed, ca, verify,
 * min, ciphers, tickets and alpn beside them; see ls_tls_options. Relative paths begin at the folder of the site.
 * NULL: the field is nil. Raises. */
const ls_tls_options *ls_option_tls(lua_State *L, int index);

/* The same for the table at `index` itself. Pushes a value that must live as long as *out; the texts belong to the
 * table. Raises. */
void ls_option_tls_server(lua_State *L, int index, ls_tls_options *out);

/* Read the table at `index`, the options of a client: { ca=, cert=, key=, password=, insecure=, min=, ciphers=, alpn=
 * }. The texts belong to the table, which receives the paths in their final form. *cert receives the certificate if
 * there is one. Raises. */
void ls_option_tls_client(lua_State *L, int index, ls_tls_cert *cert, ls_tls_options *out);

/* Read the field `name`, a list of texts of ls_network_parse; nil is an empty list. Raises. */
const ls_network *ls_option_networks(lua_State *L, int index, const char *name, size_t *count);

/* core.is_network(text) -> whether ls_network_parse accepts it */
int ls_core_is_network(lua_State *L);
int ls_core_tls_ticket_keys(lua_State *L);
extern const ls_module_common ls_listener_common; /* the ticket keys */

#endif
