/* stream.h - a connected byte stream: one receive at a time, a queue of slices on its way out, one deadline.
 *
 * Who may call: the stream's owner, which is whoever runs its current packet. A protocol keeps that true by having one
 * operation under way, or by pinning all of them to one actor (s->actor) while a request is handled. The timer alone
 * runs beside the owner; it only reads numbers and cancels.
 *
 * An idle stream is small: the queue, with the send operation in it, lives at the start of the first pool block that is
 * filled for sending, and goes with it. Memory: embedded in the protocol's connection, which goes in proto->closed. */
#ifndef LS_NET_STREAM_H
#define LS_NET_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/buf.h"
#include "port/port.h"

typedef struct ls_stream ls_stream;
typedef struct ls_outq ls_outq;

typedef struct ls_stream_proto {
    /* A receive that was pending completed: bytes, 0 at the end, or LS_E* (LS_ETIMEDOUT: the deadline passed). Memory
     * that the port supplied is in s->rx.recv.block, and the callee's. */
    void (*received)(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
    /* A flush that was pending ended: LS_OK, all has left; or LS_E*, the queue is dropped. */
    void (*sent)(ls_thread_ctx *ctx, ls_stream *s, int err);
    /* The last call, after ls_stream_close: nothing refers to the stream any more. Any thread. */
    void (*closed)(ls_thread_ctx *ctx, ls_stream *s);
    /* May be NULL: then the deadline cancels what is pending. Else it is told here, inside s->actor, and nothing is
     * cancelled; there is no deadline any more until the next one is set. */
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
    _Atomic uint64_t deadline_ms; /* ls_clock_coarse_ms; UINT64_MAX: none */
    _Atomic uint64_t timer_ms;    /* what the timer is armed for; 0: it is not */
    _Atomic uint32_t stall_ms; /* not 0: the deadline is no earlier than so long after the last progress of a send */
    _Atomic uint8_t refs;      /* the owner until closed; the timer while armed */
    _Atomic bool closing;
    _Atomic bool expired;                   /* the deadline passed: what is cancelled was timed out */
    uint32_t generation;                    /* of sock */
    bool rx_pending, tx_pending, lingering; /* no atomic in their word: compilers read two of them as one */
    bool aborted;                           /* the pending send was: nothing is sent behind it */
};

/* Take over a descriptor (closed on failure as well). Operations and the timer may be used from now on. */
int ls_stream_open(ls_stream *s, ls_port *port, const ls_stream_proto *proto, ls_fd fd);

/* Begin to close: what is queued is dropped, pending operations end without a callback, then proto->closed. */
void ls_stream_close(ls_thread_ctx *ctx, ls_stream *s);

/* Close so that the peer can read the last answer although it is still sending (RFC 9112 section 9.6): end our side,
 * read and discard for at most linger_ms, then close. Nothing may be queued or pending. */
void ls_stream_linger(ls_thread_ctx *ctx, ls_stream *s, uint32_t linger_ms);

/* Receive: ptr NULL takes `len` (a block size) from the pool. LS_DONE: s->rx.result as for received; LS_PENDING; or
 * LS_E*. */
int ls_stream_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len);

/* Connect a socket that is not connected; *to stays until the end. LS_DONE; LS_PENDING: proto->received comes with 0 or an
 * error; or LS_E*. */
int ls_stream_connect(ls_thread_ctx *ctx, ls_stream *s, const ls_sockaddr *to);

/* Memory for n bytes of output (n <= LS_BLOCK_LARGE), or NULL: no memory. Write, then commit how many came to be. */
char *ls_stream_room(ls_thread_ctx *ctx, ls_stream *s, size_t n);
void ls_stream_commit(ls_stream *s, size_t n);

/* Bytes of the block being written to that are still free: that many are given by ls_stream_room without another block. */
size_t ls_stream_room_left(const ls_stream *s);

/* Queue a slice; its reference moves to the queue on success. Bytes without a block must live until the flush that sends
 * them has ended. LS_OK or LS_ENOMEM. */
int ls_stream_push(ls_thread_ctx *ctx, ls_stream *s, const ls_slice *slice);

size_t ls_stream_queued(const ls_stream *s); /* bytes, those being sent included */

/* Send what is queued. LS_DONE: all has left. LS_PENDING: proto->sent comes when all has, what is queued meanwhile
 * included. LS_E*: the queue is dropped. */
int ls_stream_flush(ls_thread_ctx *ctx, ls_stream *s);

/* Cancel the pending send, if there is one: proto->sent comes with LS_ECANCELED, and what is queued is dropped; or all had
 * left in that moment. */
void ls_stream_abort(ls_stream *s);

/* Drop what is queued, without a callback. Nothing is being sent, or no thread runs any more and the port is closed. */
void ls_stream_discard(ls_stream *s);

/* Nothing is to take longer than until then. Storing a later deadline is one store; the timer looks when the earlier one
 * has passed. stall_ms: see the field. */
void ls_stream_deadline(ls_stream *s, uint64_t at_ms, uint32_t stall_ms);

#endif
