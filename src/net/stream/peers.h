/* peers.h - how many connections, and streams of HTTP/2, each address has: for limits per address.
 *
 * An IPv6 address counts as its /64 network, all of which one client has. A Unix socket has no address and is not
 * counted. One table for all listeners of a server; only those with such a limit use it. Any thread. */
#ifndef LS_NET_PEERS_H
#define LS_NET_PEERS_H

#include "base/counter.h"
#include "base/os/thread.h"
#include "net/sock/addr.h"

enum ls_peers_kind { LS_PEERS_CONNECTIONS, LS_PEERS_STREAMS, LS_PEERS_KINDS };

/* Clients that are refused for one reason: ls_refusals_add (net/refused.h). */
typedef struct ls_refusals {
    _Atomic uint64_t count, logged, logged_ms; /* `logged`: the count at the last line */
} ls_refusals;

typedef struct ls_peers {
    ls_mutex mutex; /* guards the table */
    struct ls_peer **buckets;
    uint32_t bucket_count, count;
    uint64_t seed[2];
    ls_refusals refused[LS_PEERS_KINDS], denied;
    _Atomic uint64_t handshakes, handshakes_failed; /* of TLS, that accepted connections have ended or failed */
} ls_peers;

void ls_peers_open(ls_peers *peers);
void ls_peers_close(ls_peers *peers);

/* Count one more of the address, unless it has `max`: ls_peers_leave follows. LS_OK, LS_ELIMIT, LS_ENOMEM. */
int ls_peers_enter(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind, uint32_t max);
void ls_peers_leave(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind);

#endif
