/* udp.h - a UDP socket on the port: batches in, batches out, from any thread.
 *
 * A bound socket has one chain of receives: a batch comes, the next receive is posted, then the batch goes to `batch`. So
 * a slow handler holds up its own batch only. A failure to receive is waited out; nothing but stop and close ends it.
 *
 * Sends may come from any thread. One batch is with the system at a time; those that come meanwhile, or before the
 * start, wait in a queue of LS_UDP_QUEUE_BATCHES_MAX, past which they are refused with LS_ELIMIT.
 *
 * The object outlives its socket: after ls_udp_close every call says LS_ECLOSED. ls_udp_free ends it, when nobody can
 * call any more, and it is idle or the port is closed. */
#ifndef LS_NET_UDP_H
#define LS_NET_UDP_H

#include "net/addr.h"
#include "port/datagram.h"

enum { LS_UDP_QUEUE_BATCHES_MAX = 1024, LS_UDP_GROUPS_MAX = 16, LS_UDP_PAYLOAD_MAX = 65507 };
enum { LS_UDP_BATCH_DEFAULT = 32, LS_UDP_DATAGRAM_BYTES_DEFAULT = 2048 };

/* How the socket is made. */
typedef struct ls_udp_setup {
    unsigned batch;              /* datagrams per receive, 1 to LS_DATAGRAMS_MAX */
    uint32_t datagram_bytes_max; /* received; 1 to LS_UDP_PAYLOAD_MAX. Longer ones are cut, and say so */
    uint32_t recv_buffer_bytes, send_buffer_bytes; /* the system's; 0: its default */
    bool reuse_port;     /* several sockets (processes) may share the address; for multicast, all get a copy */
    bool gather;         /* as op->recv_from.gather (port/datagram.h); a batch of 1 never does */
    bool broadcast;      /* may send to broadcast addresses */
    bool loop_set, loop; /* whether what it sends to a group comes back to this machine */
    uint8_t ttl;         /* of multicast; 0: the system's default, which is 1 */
    char interface[64];  /* of multicast: a name, or an address of it; "": the system's choice */
    unsigned group_count;
    ls_addr groups[LS_UDP_GROUPS_MAX]; /* to join; all of one family */
} ls_udp_setup;

void ls_udp_setup_defaults(ls_udp_setup *setup);

/* A descriptor bound to `at` (port 0 picks one), or connected to `to` when `at` is NULL. *local is its address. LS_OK;
 * LS_EADDRINUSE, LS_EADDRNOTAVAIL, LS_ENOTSUP, LS_EACCES, LS_ENOENT (no such interface), ... udp_posix.c supplies it. */
int ls_udp_sock_open(const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_fd *out, ls_addr *local);

typedef struct ls_udp ls_udp;

/* Handles one batch, which is its own from now on. Inside no actor. */
typedef void ls_udp_batch_fn(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch);

typedef struct ls_udp_stats {
    uint64_t received, batches, truncated; /* datagrams that came, in how many batches, how many were cut */
    uint64_t sent, failed;                 /* datagrams that left; that the system or the queue's limit refused */
} ls_udp_stats;

/* Open a bound socket and attach it; nothing is received before the start. On failure nothing is left open. */
int ls_udp_open(ls_port *port, const ls_udp_setup *setup, const ls_addr *at, ls_udp_batch_fn *batch, void *user,
                ls_udp **out);
void ls_udp_start(ls_thread_ctx *ctx, ls_udp *udp);
const ls_addr *ls_udp_addr(const ls_udp *udp);

/* A connected socket that receives when it is asked to: batch and error go to `came`, inside the actor. One receive at a
 * time; all calls but send come from inside the actor. */
typedef void ls_udp_came_fn(ls_thread_ctx *ctx, void *user, ls_datagrams *batch,
                            int err); /* batch: NULL with an error */
int ls_udp_connect(ls_port *port, const ls_udp_setup *setup, const ls_addr *to, ls_actor *actor, ls_udp_came_fn *came,
                   void *user, ls_udp **out);
/* LS_DONE: *out is the batch, and `came` is not called. LS_PENDING: it will be. Or an error, and it is not called. */
int ls_udp_receive(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams **out);

/* Receive no more; what waits in the system is left there. Sending goes on. Any thread. */
void ls_udp_stop(ls_thread_ctx *ctx, ls_udp *udp);
/* No batch will come or is being handled, and nothing is being sent: once closed, it may be freed. */
bool ls_udp_idle(ls_udp *udp);
void ls_udp_close(ls_thread_ctx *ctx, ls_udp *udp); /* any thread, more than once */
void ls_udp_free(ls_udp *udp);
void ls_udp_stat(const ls_udp *udp, ls_udp_stats *out);

/* Send the first `count` datagrams of the batch, whose bytes do not change any more; takes the batch in any case.
 * The number that left or was queued, or the error of the first when there was none. Any thread. */
int ls_udp_send(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams *batch, unsigned count);

/* A batch of one datagram to `to` with room for len bytes, whose place is *bytes. LS_OK; LS_EMSGSIZE, LS_ENOMEM. */
int ls_udp_compose(ls_pool *pool, const ls_sockaddr *to, size_t len, ls_datagrams **out, char **bytes);
/* The same around bytes that exist. Takes the slice, also when it fails. */
int ls_udp_wrap(ls_pool *pool, const ls_sockaddr *to, ls_slice slice, ls_datagrams **out);

/* The address in the form that this socket sends to: an IPv4 address is mapped on a socket of both families. LS_OK, or
 * LS_ENOTSUP when the socket is of another family. */
int ls_udp_target(const ls_udp *udp, const ls_addr *to, ls_sockaddr *out);

#endif
