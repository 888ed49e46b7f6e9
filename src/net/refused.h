/* refused.h - the log of refused clients: requests that no handler gets or whose body is refused, TLS handshakes and
 * PROXY headers that fail. One line each, such as "refused 192.0.2.1 400: invalid header name", with the level info,
 * for all servers of the process. Called only when a client is refused. Any thread. */
#ifndef LS_NET_REFUSED_H
#define LS_NET_REFUSED_H

#include "base/compiler.h"
#include "net/stream/peers.h"

/* A second; the others are counted, and the log says how many. With the level debug there is no limit. */
enum { LS_REFUSED_LINES_MAX = 20 };

LS_PRINTF(1, 2) void ls_refused_log(const char *format, ...); /* format: after "refused "; the address comes first */
void ls_refused_report(void);                                 /* log the number of lines that were left out, if any */

/* Count a client that is refused for `reason`, and log it, unless such a line was logged within a minute. */
void ls_refusals_add(ls_refusals *refusals, const ls_addr *addr, const char *reason);
/* The same of an address that has `max` connections or streams. */
void ls_refusals_add_peer(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind, uint32_t max);

#endif
