/* datagram.h - batches of datagrams: one operation receives, or sends, up to LS_DATAGRAMS_MAX of them.
 *
 * A batch received lies in pool memory as a whole: the addresses, and the bytes of several datagrams per block. The
 * memory is taken when something is there, so a socket that waits holds none. One receive may be pending per socket. To
 * have the next batch come to another thread while this one is handled, post the next receive first:
 *
 *     ls_datagrams *batch = op->recv_from.batch;         (ours from the packet on)
 *     if (ls_op_recv_from(thread context, sock, op, ...) == LS_DONE) ls_port_post(port, op, op->key, op->result);
 *     ...handle batch, however long that takes...
 *     ls_datagrams_drop(batch);
 *
 * The order of batches then is that of the socket, the order in which threads handle them is not. */
#ifndef LS_PORT_DATAGRAM_H
#define LS_PORT_DATAGRAM_H

#include "port/port.h"

enum { LS_DATAGRAMS_MAX = 32, LS_DATAGRAM_BYTES_MAX = 65535 };
enum { LS_DATAGRAM_BLOCKS_MAX = 4 }; /* large blocks that one batch takes */
enum {
    LS_GATHER_US = 20,
    LS_GATHER_AFTER = 8
}; /* how long; after how many small batches, one right behind the other */

struct ls_datagram {
    ls_slice slice;   /* received: one reference, which may be taken out (held, or set to none) */
    ls_sockaddr addr; /* who sent it, or whom it goes to; len 0: the connected peer */
    int error;        /* of one that could not be sent, else LS_OK */
    bool truncated;   /* received: it was longer than the room; the rest is lost */
};

struct ls_datagrams {
    ls_block *block; /* where this lies: one reference */
    unsigned count;
    ls_datagram at[];
};

void ls_datagrams_drop(ls_datagrams *batch); /* its slices, and the batch */

/* Receive what is there, at least one datagram and at most `count` (1 to LS_DATAGRAMS_MAX; less when bytes_max is so
 * large that they do not fit into LS_DATAGRAM_BLOCKS_MAX blocks), each of at most bytes_max bytes (1 to
 * LS_DATAGRAM_BYTES_MAX). The result is their number, and op->recv_from.batch holds them; an error hands over nothing.
 * An empty datagram is one like any other. On an unconnected socket nobody's refusal (ICMP) is an error: it is dropped.
 * On a connected one it is the result (LS_EREFUSED, ...), and the next receive may be posted as usual.
 *
 * op->recv_from.gather, which is the caller's to set, allows this: a thread that small batches of this socket keep busy, with
 * nothing else to do, lets the next datagrams gather for LS_GATHER_US before it takes them. */
int ls_op_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, unsigned count, uint32_t bytes_max);

/* Send `count` datagrams (at least 1), which stay as they are until completion; the references stay the caller's. One
 * that the system refuses (too long, no route, ...) gets its error and is passed over: a bad one costs no other. The
 * result is the number of those that left, or the first error when none did. While it is pending, ls_op_sent tells how
 * many were dealt with. */
int ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count);

#endif
