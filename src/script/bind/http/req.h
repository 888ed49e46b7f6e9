/* req.h - the `req` object. Thread: the one that holds the state's actor. */
#ifndef LS_SCRIPT_BIND_REQ_H
#define LS_SCRIPT_BIND_REQ_H

#include <stddef.h>

#include "http/proxy/proxy_head.h"
#include "script/bind/http/request.h"

/* Make req.tls, if the connection uses TLS, before the exchange loses its session (ls_exchange_upgrade). Leaves the
 * stack as it is. */
void ls_request_keep_tls(lua_State *L, ls_request *request);

/* Push a table of the decoded pairs of "a=1&b=2". A repeated name keeps its first value. */
void ls_request_push_pairs(lua_State *L, const char *bytes, size_t len);
/* Push a table from each name to the list of its values, in order. Another name reads as an empty list. */
void ls_request_push_lists(lua_State *L, const char *bytes, size_t len);

/* Push the value of the field; several of one name are joined. nil: the request has no such field. */
void ls_request_push_header(lua_State *L, const ls_exchange *x, const char *name, size_t len);
/* The media type that the string at `index` names: itself, or that of an extension of file names. `call` begins the
 * message. */
const char *ls_request_check_type(lua_State *L, int index, const char *call);
/* Push the table of this slot, as the client has sent it. */
void ls_request_push_sent(lua_State *L, const ls_exchange *x, int slot);
static inline void ls_request_push_span(lua_State *L, const ls_exchange *x, ls_span span)
{
    lua_pushlstring(L, x->bytes + span.at, span.len);
}

/* Push the id of the request. Returns 1. */
int ls_request_push_id(lua_State *L, const ls_exchange *x);
/* Push this field of the address; nothing for NULL: of app:inject. Returns the number of values. */
int ls_request_push_address(lua_State *L, const ls_addr *addr, const char *name);
/* Push what a trusted proxy says of the client, if the peer is one and says it: "ip", "port", "remote", "scheme" or "host". A port may
 * be unknown: nil. The req object is at index 1. */
bool ls_request_take_forwarded(lua_State *L, ls_request *r, const char *name);
/* The listener, if the peer is one of its trusted proxies; else NULL. */
const struct ls_state_listener *ls_request_trusting(const ls_request *r);

/* What the request says in Forwarded and X-Forwarded-*, in strings that it keeps; only of a request of a trusted proxy
 * with Forwarded. May raise. */
ls_proxy_told ls_request_told(lua_State *L, const ls_request *r);

/* The address of the client's connection; NULL: it is that of a trusted proxy, or of app:inject. */
const ls_addr *ls_request_peer(const ls_request *r);

/* The request begins: take the X-Request-Id of a trusted proxy as its id, and note its client for records. Raises for
 * fields that name several clients; the response is 400. */
void ls_request_take_trusted(lua_State *L, const ls_request *r);

/* Push req.ip, behind a trusted proxy that of its client; "-": of app:inject. Also outside of the task. May raise. */
void ls_request_push_ip(lua_State *L, const ls_request *r);
void ls_request_push_logged_ip(lua_State *L, const ls_request *r); /* for a line of the log: ls_addr_logged */

/* The start of the request whose task waits, if there is a "log" hook or a record, else its last progress. 0:
 * unknown. */
uint64_t ls_request_began_ns(const ls_request *r, const ls_task *task);

/* Log that the body of the request was refused, with the address of the client (req.ip). May raise. */
void ls_request_log_refused(lua_State *L, const ls_request *r, int status, const char *why);

#endif
