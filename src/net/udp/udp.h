/* udp.h - a UDP socket on the port that receives and sends in batches. Any thread.
 *
 * A bound socket has one chain of receives: when a batch arrives, the next receive is posted, then `batch` runs. So a
 * slow handler delays only its own batch, and another thread may handle the next batch first. With `in_order` the next
 * receive is posted when `batch` has returned. A failed receive is retried later; only stop and close end the chain.
 *
 * A datagram whose source is the socket's own address is dropped, because a reply to it would be received again,
 * without end. A socket in a multicast group receives its own datagrams.
 *
 * Any thread may send. One batch is with the system at a time; batches sent meanwhile, or before the start, wait in a
 * queue of LS_UDP_QUEUE_BATCHES_MAX; a batch past that limit fails with LS_ELIMIT.
 *
 * The object outlives its socket: after ls_udp_close every call returns LS_ECLOSED. ls_udp_free frees it, once no
 * thread can call any more and it is idle or the port is closed. */
#ifndef LS_NET_UDP_H
#define LS_NET_UDP_H

#include "net/sock/addr.h"
#include "port/datagram.h"

enum { LS_UDP_QUEUE_BATCHES_MAX = 1024, LS_UDP_GROUPS_MAX = 16, LS_UDP_PAYLOAD_MAX = 65507 };
enum { LS_UDP_BATCH_DEFAULT = 32, LS_UDP_DATAGRAM_BYTES_DEFAULT = 2048 };
enum { LS_UDP_LAST_MAX = 65536 }; /* datagrams after a stop, if clients send on: then a batch more at most */

/* Options of a socket. */
typedef struct ls_udp_setup {
    unsigned batch;              /* datagrams per receive, 1 to LS_DATAGRAMS_MAX */
    uint32_t datagram_bytes_max; /* 1 to LS_UDP_PAYLOAD_MAX; longer received datagrams are truncated and marked */
    uint32_t recv_buffer_bytes, send_buffer_bytes; /* SO_RCVBUF, SO_SNDBUF; 0: the system's default */
    bool reuse_port;     /* several sockets (processes) may share the address; each receives a copy of multicast */
    bool gather;         /* as op->recv_from.gather (port/datagram.h); ignored for a batch of 1 */
    bool in_order;       /* a batch is handled after the one before it */
    bool broadcast;      /* may send to broadcast addresses */
    bool loop_set, loop; /* multicast loopback: whether this machine receives its own multicast */
    uint8_t ttl;         /* of multicast; 0: the system's default, which is 1 */
    char interface[64];  /* for multicast: its name or one of its addresses; "": the system's choice */
    unsigned group_count;
    ls_addr groups[LS_UDP_GROUPS_MAX]; /* to join; all of one family */
} ls_udp_setup;

void ls_udp_setup_defaults(ls_udp_setup *setup);

/* Open a descriptor bound to `at` (port 0 picks a port; or the inherited one, see net/sock/inherited.h), or connected to `to` if `at` is NULL. *local receives its
 * address. LS_OK; LS_EADDRINUSE, LS_EADDRNOTAVAIL, LS_ENOTSUP, LS_EACCES, LS_ENOENT (unknown interface), ...
 * udp_posix.c or udp_win32.c implements it. */
int ls_udp_sock_open(const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_fd *out, ls_addr *local);

/* Change the options of a bound socket of the family of `at`: broadcast, buffers, multicast. An option that `setup`
 * leaves to the system's default keeps its value, and so does reuse_port, which is fixed when the socket is bound.
 * LS_OK, or the first error; what was changed before it stays changed. */
int ls_udp_sock_change(ls_fd fd, const ls_addr *at, const ls_udp_setup *before, const ls_udp_setup *setup);

/* The number of datagrams that the system has dropped because its buffer of the socket was full; 0 where it does not
 * tell (SO_MEMINFO of Linux). */
uint32_t ls_udp_sock_dropped(ls_fd fd);

/* Whether `addr`, of IPv4 or IPv6, is an address of this machine: whether a socket can be bound to it. */
bool ls_udp_addr_is_local(const ls_addr *addr);

typedef struct ls_udp ls_udp;

/* Handles one batch and owns it. Called inside no actor. */
typedef void ls_udp_batch_fn(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch);

typedef struct ls_udp_stats {
    uint64_t received, batches, truncated; /* datagrams received, in how many batches, how many were truncated */
    uint64_t sent, failed;                 /* datagrams sent; refused by the system or by the queue's limit */
    uint64_t own;                          /* received from the socket's own address, and dropped */
    uint64_t dropped;                      /* by the system, whose buffer of the socket was full; Linux only */
} ls_udp_stats;

/* Open a bound socket and attach it; nothing is received before ls_udp_start. On failure nothing is left open. */
int ls_udp_open(ls_port *port, const ls_udp_setup *setup, const ls_addr *at, ls_udp_batch_fn *batch, void *user,
                ls_udp **out);
void ls_udp_start(ls_thread_ctx *ctx, ls_udp *udp);
ls_fd ls_udp_fd(const ls_udp *udp); /* of a socket that is open */

/* Change the options of the socket from those of `before` to those of `setup`, see ls_udp_sock_change. It must be
 * open. */
int ls_udp_change(ls_udp *udp, const ls_udp_setup *before, const ls_udp_setup *setup);

/* Pass the batches that arrive from now on to another user, and receive as `setup` says (batch, gather,
 * datagram_bytes_max). The user before gets no further batch once ls_workers_passed. Any thread, one at a time. */
void ls_udp_replace(ls_udp *udp, const ls_udp_setup *setup, void *user);
const ls_addr *ls_udp_addr(const ls_udp *udp);

/* A connected socket receives on request: `received` gets the batch (NULL with an error) and the error inside the
 * actor. One receive at a time. All calls except ls_udp_send must come from inside the actor. */
typedef void ls_udp_received_fn(ls_thread_ctx *ctx, void *user, ls_datagrams *batch, int err);
int ls_udp_connect(ls_port *port, const ls_udp_setup *setup, const ls_addr *to, ls_actor *actor,
                   ls_udp_received_fn *received, void *user, ls_udp **out);
/* LS_DONE: *out is the batch; LS_PENDING: `received` will be called; or an error. Only LS_PENDING leads to a call. */
int ls_udp_receive(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams **out);

/* Stop receiving, as soon as the datagrams that have arrived are handled. Sending continues. Any thread. */
void ls_udp_stop(ls_thread_ctx *ctx, ls_udp *udp);
/* No batch is being received, handled or sent: once closed, it may be freed. */
bool ls_udp_idle(ls_udp *udp);
void ls_udp_close(ls_thread_ctx *ctx, ls_udp *udp); /* any thread, more than once */
bool ls_udp_closed(const ls_udp *udp);
void ls_udp_free(ls_udp *udp);
void ls_udp_stat(ls_udp *udp, ls_udp_stats *sum); /* adds */

/* Send the first `count` datagrams of the batch; takes ownership of the batch in any case. Its bytes must not change
 * any more. Returns the number sent or queued, or the error of the first datagram if that number is 0. Any thread. */
int ls_udp_send(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams *batch, unsigned count);

/* Make a batch of one datagram to `to` with len bytes, to be written at *bytes. LS_OK; LS_EMSGSIZE, LS_ENOMEM. */
int ls_udp_compose(ls_pool *pool, const ls_sockaddr *to, size_t len, ls_datagrams **out, char **bytes);
/* The same with existing bytes. Takes the slice, also on failure. */
int ls_udp_wrap(ls_pool *pool, const ls_sockaddr *to, ls_slice slice, ls_datagrams **out);

/* Convert the address to the form that this socket sends to: a socket of both families maps IPv4 addresses. LS_OK;
 * LS_ENOTSUP: the socket is of another family. */
int ls_udp_target(const ls_udp *udp, const ls_addr *to, ls_sockaddr *out);

#endif
