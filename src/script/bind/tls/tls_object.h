/* tls_object.h - what TLS has negotiated, or why it has failed, as Lua values. Thread: the one that holds the state's
 * actor. */
#ifndef LS_SCRIPT_TLS_OBJECT_H
#define LS_SCRIPT_TLS_OBJECT_H

#include <lua.h>

struct ls_stream;
struct ls_tls_peer;

/* Push the table of req.tls and sock.tls; nil for NULL. */
void ls_push_tls_peer(lua_State *L, const struct ls_tls_peer *peer);
void ls_push_tls(lua_State *L, const struct ls_stream *s); /* the same of a stream */
/* Push nil, "TLS: why" and the code of `err`; for an empty `why`, the text of `err`. Returns 3. */
int ls_push_tls_failure(lua_State *L, int err, const char *why);

#endif
