/* carrier.h - what a stream uses in place of a socket, such as a stream of an HTTP/2 connection: ls_stream_open_carried.
 *
 * The contract is that of the functions of port.h with the same names: an operation that returns LS_PENDING completes
 * exactly once, with a packet (ls_port_post with its result), also when it is cancelled; with LS_DONE op->result is
 * set; with an error it was not posted. At most one receive, one send and one watch are pending. Until it completes the
 * carrier may use the fields of the operation, except `done` and `actor`.
 *
 * Threads. The owner of the stream calls, but any thread calls cancel and the progress of a send, at any time until
 * `release`. A stream whose owner may close it while an operation is pending is pinned to an actor. */
#ifndef LS_NET_CARRIER_H
#define LS_NET_CARRIER_H

#include "net/sock/addr.h"
#include "port/port.h"

struct ls_tls_peer; /* net/tls/tls.h */

typedef struct ls_carrier ls_carrier;

typedef struct ls_carrier_type {
    /* As ls_op_recv. Into a block: op->recv.block is the carrier's choice, with a reference, and op->recv.ptr where the
     * bytes begin in it. */
    int (*recv)(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op, void *ptr, uint32_t len);
    /* As ls_op_send; LS_ENOTSUP: a range of a file. */
    int (*send)(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op, ls_slice *slices, uint16_t count,
                const ls_file_range *file);
    int (*end_send)(ls_thread_ctx *ctx, ls_carrier *carrier); /* as ls_sock_shutdown */
    /* As ls_op_watch and ls_op_unwatch. */
    int (*watch)(ls_thread_ctx *ctx, ls_carrier *carrier, ls_op *op);
    bool (*unwatch)(ls_carrier *carrier, ls_op *op);
    void (*cancel)(ls_carrier *carrier, unsigned what); /* bits of enum ls_cancel; no effect after the close */
    /* As ls_sock_progress_ms and ls_sock_progress_take. */
    uint32_t (*progress_ms)(const ls_carrier *carrier);
    uint32_t (*progress_take)(ls_carrier *carrier);
    int (*local)(const ls_carrier *carrier, ls_addr *out); /* the local address: LS_OK or an error */
    /* What TLS has negotiated below the carrier, valid until the release; NULL: no TLS. */
    const struct ls_tls_peer *(*peer)(const ls_carrier *carrier);
    void (*close)(ls_thread_ctx *ctx, ls_carrier *carrier); /* as ls_sock_close */
    /* The last call, after the close and the packets of all operations. Not for a stream that is freed without a
     * close. */
    void (*release)(ls_thread_ctx *ctx, ls_carrier *carrier);
} ls_carrier_type;

struct ls_carrier {
    const ls_carrier_type *type;
};

#endif
