/* stream.h - a connected byte stream: one receive at a time, a queue of slices to send, one deadline.
 *
 * Threads: only the stream's owner, the thread that runs its current packet, may call. A protocol keeps that true by
 * having one operation pending, or by pinning all of them to one actor (s->actor) while it handles a request. Only the
 * timer runs beside the owner; it reads atomic fields and cancels.
 *
 * An idle stream is small: the queue, with the send operation in it, lives at the start of the first pool block that
 * is filled for sending, and is freed with it. Memory: embedded in the protocol's connection, which proto->closed
 * frees. */
#ifndef LS_NET_STREAM_H
#define LS_NET_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "port/port.h"

typedef struct ls_stream ls_stream;
typedef struct ls_outq ls_outq;

typedef struct ls_stream_proto {
    /* A pending receive completed: bytes, 0 at the end of the stream, or LS_E* (LS_ETIMEDOUT: the deadline passed).
     * Memory that the port supplied is in s->rx.recv.block, which the callee owns. */
    void (*received)(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
    /* A pending flush ended. LS_OK: all bytes were sent; LS_E*: the queue was dropped. */
    void (*sent)(ls_thread_ctx *ctx, ls_stream *s, int err);
    /* The last call, after ls_stream_close: nothing refers to the stream any more. Any thread. */
    void (*closed)(ls_thread_ctx *ctx, ls_stream *s);
    /* May be NULL: then the deadline cancels the pending operations. Otherwise it runs inside s->actor when the
     * deadline passes, and nothing is cancelled; the stream then has no deadline until the next one is set. */
    void (*expired)(ls_thread_ctx *ctx, ls_stream *s);
} ls_stream_proto;

struct ls_stream {
    const ls_stream_proto *proto;
    ls_port *port;
    ls_sock *sock;
    ls_actor *actor; /* packets are pinned to it; NULL: floating */
    ls_outq *out;    /* NULL while nothing is queued */
    ls_op rx;
    ls_timer timer;
    _Atomic uint64_t deadline_ms; /* in the time of ls_clock_coarse_ms; UINT64_MAX: no deadline */
    _Atomic uint64_t timer_ms;    /* the time for which the timer is armed; 0: not armed */
    _Atomic uint32_t stall_ms;    /* not 0: the deadline is at least this long after the last progress of a send */
    _Atomic uint8_t refs;         /* the owner until closed; the timer while armed */
    _Atomic bool closing;
    _Atomic bool expired;   /* the deadline passed: report a cancelled operation as timed out */
    uint32_t generation;    /* of sock */
    uint32_t send_rate_min; /* bytes per second that a send with stall_ms must make, measured over stall_ms; 0: none */
    uint64_t paced_from_ms, paced_bytes, paced_deadline_ms; /* for the timer: the current measurement */
    bool rx_pending, tx_pending, lingering; /* no atomic in their word: compilers access two of them as one */
    bool aborted;                           /* the pending send was aborted: send nothing after it */
};

/* Take over a descriptor; on failure it is closed. Operations and the timer may be used from now on. The owner may set
 * send_rate_min afterwards. */
int ls_stream_open(ls_stream *s, ls_port *port, const ls_stream_proto *proto, ls_fd fd);

/* Begin to close: the queue is dropped, pending operations end without a callback, then proto->closed runs. */
void ls_stream_close(ls_thread_ctx *ctx, ls_stream *s);

/* Close so that the peer can read the last response although it is still sending (RFC 9112 section 9.6): shut down the
 * sending side, read and discard for at most linger_ms, then close. Nothing may be queued or pending. */
void ls_stream_linger(ls_thread_ctx *ctx, ls_stream *s, uint32_t linger_ms);

/* Receive; with ptr NULL, into a block of `len` bytes (a block size) from the pool. LS_DONE: s->rx.result as for
 * `received`; LS_PENDING; or LS_E*. */
int ls_stream_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len);

/* Have proto->received called with LS_EAGAIN by a packet from the port's queue, behind the packets that wait there.
 * Nothing is received. */
void ls_stream_requeue(ls_stream *s);

/* Connect an unconnected socket; *to must stay valid until the end. LS_DONE; LS_PENDING: proto->received follows with
 * 0 or an error; or LS_E*. */
int ls_stream_connect(ls_thread_ctx *ctx, ls_stream *s, const ls_sockaddr *to);

/* Reserve n bytes of output (n <= LS_BLOCK_LARGE); NULL: out of memory. Write, then commit the number of bytes
 * written. */
char *ls_stream_room(ls_thread_ctx *ctx, ls_stream *s, size_t n);
void ls_stream_commit(ls_stream *s, size_t n);

/* The same for one last short response (n < LS_BLOCK_SMALL / 2) when memory is exhausted: may use the reserve of the
 * pool. */
char *ls_stream_room_reserved(ls_thread_ctx *ctx, ls_stream *s, size_t n);

/* Queue a slice; its reference moves to the queue on success. Bytes without a block must stay valid until the flush
 * that sends them has ended. LS_OK or LS_ENOMEM. */
int ls_stream_push(ls_thread_ctx *ctx, ls_stream *s, const ls_slice *slice);

size_t ls_stream_queued(const ls_stream *s); /* bytes, including those of the pending send */

/* The position behind the last queued byte. Positions count from 0 again when the queue has been sent. */
size_t ls_stream_end(const ls_stream *s);

/* Drop the queued bytes from `position` on, except those of the pending send. false: no byte before `position` is left
 * to send. */
bool ls_stream_truncate(ls_stream *s, size_t position);

/* Send the queue. LS_DONE: all bytes were sent. LS_PENDING: proto->sent follows when all bytes were sent, including
 * those queued meanwhile. LS_E*: the queue is dropped. */
int ls_stream_flush(ls_thread_ctx *ctx, ls_stream *s);

/* Cancel the pending send, if any: proto->sent follows with LS_ECANCELED, and the queue is dropped; or with LS_OK, if
 * all bytes had been sent by then. */
void ls_stream_abort(ls_stream *s);

/* Drop the queue without a callback. No send is pending, or no thread runs any more and the port is closed. */
void ls_stream_discard(ls_stream *s);

/* Set the deadline of all operations. A later deadline costs one store; the timer re-arms itself after the earlier
 * one. stall_ms: see the field; with send_rate_min, the progress of a send moves the deadline only while it has
 * that rate. */
void ls_stream_deadline(ls_stream *s, uint64_t at_ms, uint32_t stall_ms);

#endif
