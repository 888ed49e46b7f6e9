/* datagram.h - batches of datagrams: one operation receives up to LS_DATAGRAMS_MAX datagrams, or sends several.
 *
 * A received batch lies in pool memory: the addresses, and the bytes of several datagrams per block. The port takes
 * the memory when a datagram has arrived, so a waiting socket holds none. One receive may be pending per socket. To
 * let another thread receive the next batch while this one is handled, post the next receive first:
 *
 *     ls_datagrams *batch = op->recv_from.batch;         (belongs to the receiver)
 *     if (ls_op_recv_from(ctx, sock, op, ...) == LS_DONE) ls_port_post(port, op, op->result);
 *     ...handle batch, however long that takes...
 *     ls_datagrams_drop(batch);
 *
 * Batches are then received in the order of the socket, but threads may handle them in another order. */
#ifndef LS_PORT_DATAGRAM_H
#define LS_PORT_DATAGRAM_H

#include "port/port.h"

enum { LS_DATAGRAMS_MAX = 32, LS_DATAGRAM_BYTES_MAX = 65535 };
enum { LS_DATAGRAM_BLOCKS_MAX = 4 }; /* large blocks that one batch takes */
enum {
    LS_GATHER_US = 20,  /* length of the pause before a receive, see recv_from.gather below */
    LS_GATHER_AFTER = 8 /* small batches in a row */
};

struct ls_datagram {
    ls_slice slice;   /* received: one reference, which the receiver may move out (block = NULL) or add to */
    ls_sockaddr addr; /* received: the sender; sent: the destination, len 0: the connected peer */
    int error;        /* sent: why this datagram failed, else LS_OK */
    bool truncated;   /* received: it was longer than bytes_max; the rest is lost */
};

struct ls_datagrams {
    ls_block *block; /* the memory of this struct: one reference */
    unsigned count;
    ls_datagram at[];
};

void ls_datagrams_drop(ls_datagrams *batch); /* drops the slices and the batch */

/* Receive the datagrams that have arrived: at least one and at most `count` (1 to LS_DATAGRAMS_MAX; fewer when
 * bytes_max is so large that `count` do not fit into LS_DATAGRAM_BLOCKS_MAX blocks), each of at most bytes_max
 * bytes (1 to LS_DATAGRAM_BYTES_MAX). The result is their number, and op->recv_from.batch holds them; with an error
 * there is no batch. A datagram without bytes counts as any other. An ICMP error for an earlier datagram is dropped
 * on an unconnected socket; on a connected socket it is the result (LS_EREFUSED, ...), and the next receive may be
 * posted as usual.
 *
 * The caller sets op->recv_from.gather to allow gathering: a thread that does nothing but receive small batches of
 * this socket pauses for LS_GATHER_US before it receives, so that the next batch is larger. */
int ls_op_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, unsigned count, uint32_t bytes_max);

/* Send `count` datagrams (at least 1). The array and the bytes stay unchanged until completion; the references stay
 * with the caller. A datagram that the system refuses (too long, no route, ...) gets its error and is skipped; the
 * others are sent. The result is the number of datagrams sent, or the first error when none was. While the operation
 * is pending, op->result is the number of datagrams sent or skipped so far. */
int ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count);

#endif
