/* acceptor.h - from a listening socket to a protocol: accepts posted ahead (net/listener.h), the PROXY header of
 * trusted peers, the TLS handshake; then the protocol's `start`.
 *
 * A plain connection goes to its protocol at once. Any other one is first a handshake, in one of these states:
 *
 *     accepted --> silent <--a part of the first record-- holding --PROXY header, TLS--> protocol->start
 *                    | |                                   ^  ^ |
 *                    | +-----------------bytes-------------+  | | failed: alert or 400, then read and discard
 *                    | no slot is free                        | |
 *                    +--------------> waiting ----------------+ +--> ending --> closed
 *
 * A silent or waiting handshake holds no buffer: it has received nothing, or at most 2 KiB of an incomplete first
 * record of TLS (ls_tls_is_small). At most handshakes_max are in the state holding, about 40 KiB each, so a flood of
 * half-open handshakes holds no more than that. When all slots are taken, further handshakes wait in their order, and
 * the oldest ones that were given handshake_ms_min are closed for them. */
#ifndef LS_NET_ACCEPTOR_H
#define LS_NET_ACCEPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "net/listener.h"
#include "net/network.h"
#include "net/stream/stream.h"
#include "net/tls/tls.h"

typedef struct ls_acceptor ls_acceptor;

/* A protocol that connections may speak. `start` receives the stream without a pending operation, without deadlines,
 * with its user's room zeroed; it replaces the handler (ls_stream_handover). From then on the stream and its place in
 * the connection limit (ls_conn_limit_leave) are the protocol's. */
typedef struct ls_acceptor_protocol {
    void (*start)(ls_thread_ctx *ctx, ls_stream *s, void *user);
    void *user;
    size_t user_bytes; /* the room it needs, see ls_stream_open */
} ls_acceptor_protocol;

/* What an acceptor does with its connections. It can be replaced while the acceptor is open. */
typedef struct ls_acceptor_service_options {
    ls_acceptor_protocol protocol;
    bool proxy_protocol;       /* trusted peers send a PROXY header */
    const ls_network *trusted; /* copied */
    size_t trusted_count;
    /* Clients that may connect. The lists are copied; allow_count 0: all. With a PROXY header the address is the one
     * that it names. Peers in `trusted` that send none are proxies, and have no limit. */
    const ls_network *allow, *deny;
    size_t allow_count, deny_count;
    uint32_t per_ip_max; /* connections of an address, see net/stream/peers.h; 0: no limit */
    ls_tls *tls;         /* NULL: plain; held */
    /* Queue the response to a client that sends plain HTTP instead of TLS: its first bytes. `user` is that of the protocol.
     * LS_OK or LS_ENOMEM. NULL: the protocol is not HTTP, and such bytes are a handshake that fails. */
    int (*refuse_plain_http)(ls_thread_ctx *ctx, ls_stream *s, void *user, ls_text received);
    uint32_t handshakes_max;   /* 0: a quarter of the connection limit, at least 64, at most 1024 */
    uint32_t handshake_ms_max; /* for PROXY header and TLS together; 0: 10 s */
    uint32_t handshake_ms_min; /* before it may be closed for a handshake that waits; 0: 1 s */
} ls_acceptor_service_options;

typedef struct ls_acceptor_service ls_acceptor_service;

/* Make a service for ls_acceptor_open or ls_acceptor_replace. The caller drops it. LS_OK or LS_ENOMEM. */
int ls_acceptor_service_open(const ls_acceptor_service_options *options, ls_acceptor_service **out);

/* Whether a handshake uses the service: it starts a protocol of the service it began with. Any thread. */
bool ls_acceptor_service_used(const ls_acceptor_service *service);

/* After the close of its acceptor; or after it was replaced, once ls_workers_passed and it is not used any more. */
void ls_acceptor_service_drop(ls_acceptor_service *service);

typedef struct ls_acceptor_options {
    ls_deadlines *deadlines;
    ls_conn_limit *limit;
    ls_listener_options listener; /* `ended` is not used */
} ls_acceptor_options;

/* Bind to `at` and listen; ls_acceptor_start posts the accepts. The caller keeps the service until it drops it.
 * Errors: see ls_listener_open. */
int ls_acceptor_open(ls_port *port, const ls_addr *at, const ls_acceptor_options *options,
                     ls_acceptor_service *service, ls_acceptor **out);
const ls_addr *ls_acceptor_addr(const ls_acceptor *acceptor); /* with the actual port */
void ls_acceptor_start(ls_thread_ctx *ctx, ls_acceptor *acceptor);

/* Connections that are accepted from now on use this service; handshakes continue with theirs. Not after the stop. Any
 * thread, one at a time. Returns the service before, for the caller to drop. */
ls_acceptor_service *ls_acceptor_replace(ls_acceptor *acceptor, ls_acceptor_service *service);
void ls_acceptor_set_backlog(ls_acceptor *acceptor,
                             uint32_t backlog); /* see ls_listener_set_backlog; not after the stop */

ls_fd ls_acceptor_keep(ls_acceptor *acceptor, bool kept); /* see ls_listener_keep */

/* Stop accepting, see ls_listener_stop. Handshakes continue. Once. */
void ls_acceptor_stop(ls_thread_ctx *ctx, ls_acceptor *acceptor);

/* After the stop: with `all`, close the handshakes, which are no requests, as ls_acceptor_abort does. Returns the
 * number of handshakes that are not closed yet and belong to no protocol, plus 1 while an accept or the packet of its
 * timer is outstanding. Call again until it is 0. Any thread. */
uint32_t ls_acceptor_drain(ls_acceptor *acceptor, bool all);

/* Close all handshakes; a send that begins at this moment may outlast it, until its deadline. Any thread. */
void ls_acceptor_abort(ls_acceptor *acceptor);
/* The same for the handshakes of a service that was replaced. One that ends at this moment may still start its
 * protocol. */
void ls_acceptor_abort_service(ls_acceptor *acceptor, const ls_acceptor_service *service);

/* After the stop, when ls_acceptor_drain has returned 0 and then ls_workers_passed, or no thread runs any more. */
void ls_acceptor_close(ls_acceptor *acceptor);

#endif
