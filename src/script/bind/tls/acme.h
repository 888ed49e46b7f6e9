/* acme.h - the certificates that lua/luaserve/acme.lua gets from an authority while the server runs. Thread: the one
 * that holds the state's actor. */
#ifndef LS_SCRIPT_ACME_H
#define LS_SCRIPT_ACME_H

#include <lua.h>

#include "net/tls/tls.h"

/* Those of the server, for its listeners. Raises without memory or OpenSSL. */
ls_tls_supply *ls_tls_supply_of(lua_State *L);

#endif
