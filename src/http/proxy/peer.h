/* peer.h - what all Lua states of a server know about one upstream server of app:proxy: its requests and its health.
 *
 * Any thread may call these functions; nothing blocks. */
#ifndef LS_HTTP_PEER_H
#define LS_HTTP_PEER_H

#include <stdatomic.h>

#include "base/shared.h"

typedef struct ls_peer {
    ls_shared_object shared;         /* first; its name is the origin */
    _Atomic uint32_t active;         /* requests that are under way */
    _Atomic uint32_t fails;          /* in a row */
    _Atomic bool unhealthy;          /* its checks fail */
    _Atomic bool out;                /* failed requests have set down_until_ms, and none was sent after it */
    _Atomic uint32_t refused;        /* requests without a usable server that the log does not have yet */
    _Atomic uint64_t refused_due_ms; /* its next line about them */
    /* By ls_clock_coarse_ms: no request before it, unless there is no other server; 0: none. From then on it starts
     * slowly. */
    _Atomic uint64_t down_until_ms;
} ls_peer;

extern const ls_shared_kind ls_peer_kind; /* of ls_shared_get, without options */

/* The part of its weight that it has now: 0: it is down; 1: all. After a failure it grows from a tenth within slow_ms.
 * `checked`: the caller makes checks; without them those of a site before do not count. */
double ls_peer_share(const ls_peer *peer, uint64_t now_ms, uint32_t slow_ms, bool checked);

/* A request has failed: after fails_max in a row it is down for down_ms. Whether this failure has taken it out. */
bool ls_peer_failed(ls_peer *peer, uint64_t now_ms, uint32_t fails_max, uint32_t down_ms);

/* Whether it gets the first request after the time without them: true for one caller. */
bool ls_peer_back(ls_peer *peer, uint64_t now_ms);

/* `count` requests more were refused because no server is usable; the peer is the first one. Returns the number of such
 * requests if the log is to have it now, once a second at most; else 0. */
uint32_t ls_peer_refused(ls_peer *peer, uint64_t now_ms, uint32_t count);

/* Checks of its health have failed or passed. */
void ls_peer_mark(ls_peer *peer, uint64_t now_ms, bool healthy);

static inline void ls_peer_answered(ls_peer *peer)
{
    if (atomic_load_explicit(&peer->fails, memory_order_relaxed) != 0) atomic_store(&peer->fails, 0);
}

#endif
