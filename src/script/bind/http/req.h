/* req.h - the `req` object. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_REQ_H
#define LS_SCRIPT_BIND_REQ_H

#include <stddef.h>

#include "script/bind/http/request.h"

/* Make req.tls, if the connection uses TLS, before the exchange loses its session (ls_exchange_upgrade). Leaves the
 * stack as it is. */
void ls_request_keep_tls(lua_State *L, ls_request *request);

/* Push a table of the decoded pairs of "a=1&b=2". A repeated name keeps its first value. */
void ls_request_push_pairs(lua_State *L, const char *bytes, size_t len);
/* Push a table from each name to the list of its values, in order. Another name reads as an empty list. */
void ls_request_push_lists(lua_State *L, const char *bytes, size_t len);

/* The listener, if the peer is one of its trusted proxies; else NULL. */
const struct ls_state_listener *ls_request_trusting(const ls_request *r);

/* Push req.ip, behind a trusted proxy that of its client; "-": of app:inject. Also outside of the task. May raise. */
void ls_request_push_ip(lua_State *L, const ls_request *r);

/* Log that the body of the request was refused, with the address of the client (req.ip). May raise. */
void ls_request_log_refused(lua_State *L, const ls_request *r, int status, const char *why);

#endif
