/* stream.h - a connection: a byte stream with a queue of output, two deadlines, an optional filter (TLS), and a
 * handler that may be replaced while it is connected.
 *
 * Threads: only the stream's owner, the thread that runs its current packet, may call, except where a function says
 * otherwise. A handler keeps that true by having one operation pending, or by pinning all of them to one actor
 * (ls_stream_set_actor).
 *
 * Memory: one allocation holds the stream and the data of its user. An idle stream is small: the queue, with the send
 * operation in it, lives at the start of the first pool block that is filled for sending, and is freed with it.
 *
 * All lengths, positions and results count plaintext. With a filter, the pending operation of the socket may carry
 * more or fewer bytes than the operation that the handler sees. */
#ifndef LS_NET_STREAM_H
#define LS_NET_STREAM_H

#include <stdbool.h>

#include "base/buf.h"
#include "net/sock/addr.h"
#include "port/port.h"

typedef struct ls_stream ls_stream;
typedef struct ls_deadlines ls_deadlines; /* net/stream/deadline.h */
typedef struct ls_filter ls_filter;       /* net/stream/filter.h */
typedef struct ls_carrier ls_carrier;     /* net/stream/carrier.h */
struct ls_tls_peer;                       /* net/tls/tls.h */

typedef struct ls_stream_handler {
    /* A pending receive completed: bytes (see ls_stream_take), 0 at the end of the stream, or LS_E*: LS_ETIMEDOUT, the
     * receive deadline passed; LS_ETRUNCATED, a filtered stream ended without the end of its protocol. */
    void (*received)(ls_thread_ctx *ctx, ls_stream *s, int64_t result);
    /* A pending flush ended. LS_OK: all bytes were sent. LS_E*: the queue was dropped; LS_ETIMEDOUT: the send made no
     * progress for stall_ms, or less than send_rate_min. */
    void (*sent)(ls_thread_ctx *ctx, ls_stream *s, int err);
    /* The last call, after ls_stream_close: nothing else refers to the stream any more. The handler frees it with
     * ls_stream_free, now or later. Any thread. */
    void (*closed)(ls_thread_ctx *ctx, ls_stream *s);
    uint32_t send_rate_min; /* of a send that has to wait, in bytes per second, see ls_stream_send_within; 0: any */
} ls_stream_handler;

/* The deadlines of all streams of a port; see net/stream/deadline.h. LS_OK or LS_ENOMEM. */
int ls_stream_deadlines_open(ls_port *port, ls_deadlines **out);

/* Take over a descriptor; on failure it is closed. `user_bytes`: room for the data of the user, zeroed. `peer` may be
 * NULL. `accepted`: the socket was just accepted and may have data. LS_OK, LS_ENOMEM, LS_ELIMIT. */
int ls_stream_open(ls_port *port, ls_deadlines *deadlines, ls_fd fd, bool accepted, const ls_addr *peer,
                   const ls_stream_handler *handler, size_t user_bytes, ls_stream **out);

/* The same with a new socket for addresses of `family` (of an ls_addr), for ls_stream_connect. Also LS_EMFILE,
 * LS_ENOTSUP. */
int ls_stream_open_unconnected(ls_port *port, ls_deadlines *deadlines, uint8_t family,
                               const ls_stream_handler *handler, size_t user_bytes, ls_stream **out);

/* The same with a carrier in place of a socket, which is released when the stream is closed, before the handler's
 * `closed`. Such a stream cannot connect and has no keep-alive; it is never idle in the sense of ls_stream_is_idle.
 * LS_OK or LS_ENOMEM: nothing was called. */
int ls_stream_open_carried(ls_deadlines *deadlines, ls_carrier *carrier, const ls_addr *peer,
                           const ls_stream_handler *handler, size_t user_bytes, ls_stream **out);

ls_deadlines *ls_stream_deadlines(const ls_stream *s); /* for a stream that it carries */

/* The room of the user, and back. */
void *ls_stream_user(ls_stream *s);
ls_stream *ls_stream_of(void *user);

/* Replace the handler. No operation is pending. The room of the user belongs to the new handler, which knows its size:
 * the opener of the stream reserved enough for every handler that may follow. Bytes that the old handler has received
 * but not consumed go back first (ls_stream_unread), so that the new one receives them. */
void ls_stream_handover(ls_stream *s, const ls_stream_handler *handler);

/* The handler: one that is a member of a struct leads to the struct (LS_CONTAINER). */
const ls_stream_handler *ls_stream_handled_by(const ls_stream *s);

/* Move the connection to a new stream with this handler and `user_bytes` of zeroed room, for a handler that needs more
 * room than the opener reserved: socket, addresses, filter, queue with its pending send, deadlines, actor and unread
 * bytes. No receive and no watch is pending, a send only inside the actor. No other thread may cancel operations of
 * `s` any more. Afterwards `s` has no connection: only ls_stream_user and ls_stream_free may follow. LS_OK; LS_ENOMEM:
 * nothing has changed. */
int ls_stream_move(ls_stream *s, const ls_stream_handler *handler, size_t user_bytes, ls_stream **out);

/* Pin the packets of operations posted from now on to `actor`; NULL: floating, any thread runs them. Not while a
 * receive is pending. */
void ls_stream_set_actor(ls_stream *s, ls_actor *actor);
ls_actor *ls_stream_actor(const ls_stream *s);

/* Put a filter between queue and socket, and between socket and handler. The stream owns it. No operation is pending
 * and nothing is queued. Bytes that were unread are its first input. */
void ls_stream_set_filter(ls_stream *s, ls_filter *filter);
ls_filter *ls_stream_filter(const ls_stream *s); /* NULL: none */
/* What TLS has negotiated below the carrier; NULL: no TLS, or no carrier. */
const struct ls_tls_peer *ls_stream_carried_peer(const ls_stream *s);

/* ---- addresses and the socket ------------------------------------------------------------------------------- */

/* The peer: that of the socket, or the one that a PROXY header named. The path of a Unix socket is not kept. */
void ls_stream_peer(const ls_stream *s, ls_addr *out);
char *ls_stream_peer_text(const ls_stream *s,
                          char out[LS_ADDR_TEXT_BYTES]); /* for the log, as ls_addr_logged, and the port */
void ls_stream_set_peer(ls_stream *s, const ls_addr *peer);
/* It is counted among the connections of its peer (ls_peers_enter): its close ends that. Before other threads know it. */
void ls_stream_set_counted(ls_stream *s);
/* The local address, also of a listener on all addresses. LS_OK or an error. */
int ls_stream_local(const ls_stream *s, ls_addr *out);
/* TCP keep-alive: probe a peer that was silent for idle_s. LS_OK or an error; LS_ENOTSUP: a Unix socket. */
int ls_stream_keepalive(ls_stream *s, bool on, uint32_t idle_s);
void ls_stream_unsent_max(ls_stream *s, uint32_t bytes); /* see ls_sock_unsent_max */
/* The user of the process at the other end of a Unix socket; see ls_sock_peer_user. */
int ls_stream_peer_user(const ls_stream *s, uint32_t *user);
/* Whether the system or the filter holds received bytes that were not read. */
bool ls_stream_has_unread(const ls_stream *s);
/* Whether the connection is open and silent: neither bytes nor the end of the stream can be received. A filter takes
 * in what is no data, such as a session ticket of TLS. No receive is pending. */
bool ls_stream_is_idle(ls_thread_ctx *ctx, ls_stream *s);
/* The same without a call of the system, see ls_sock_is_silent. false: not known. */
bool ls_stream_is_silent(const ls_stream *s);

/* ---- close -------------------------------------------------------------------------------------------------- */

/* Begin to close: the queue is dropped, pending operations end without a callback, then handler->closed runs. A filter
 * sends close_notify if nothing is pending and the socket takes it at once. */
void ls_stream_close(ls_thread_ctx *ctx, ls_stream *s);

/* Close so that the peer can read the last response although it is still sending (RFC 9112 section 9.6): shut down the
 * sending side, read and discard for at most linger_ms, then close. Nothing may be queued or pending. */
void ls_stream_linger(ls_thread_ctx *ctx, ls_stream *s, uint32_t linger_ms);

/* Free a stream after `closed`; or any stream once no thread runs any more and the port is closed. */
void ls_stream_free(ls_stream *s);

/* Shut down the sending side after everything that was sent: the end of the filter's protocol, then TCP FIN. Receives
 * continue. Nothing may be queued. LS_OK or an error. */
int ls_stream_shutdown(ls_thread_ctx *ctx, ls_stream *s);

/* Announce that ls_stream_shutdown or ls_stream_close follows the queued bytes: their last segment may carry the
 * FIN. */
void ls_stream_cork_fin(ls_stream *s);

/* ---- receive ------------------------------------------------------------------------------------------------ */

/* Receive into `ptr`; with ptr NULL, into a block of `len` bytes (a block size) from the pool; with ptr NULL and len
 * 0, wait until bytes or the end of the stream can be received. LS_DONE: *result as for `received`; LS_PENDING; or
 * LS_E*. */
int ls_stream_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len, int64_t *result);

/* The bytes of a receive into a block that completed, once, directly after it: a slice of the block, with its
 * reference. Only if its result was > 0. */
ls_slice ls_stream_take(ls_stream *s);

/* Give back received bytes that were not consumed: the next receive returns them. Takes the reference, which must have
 * a block. At most once before that receive. No receive is pending. */
void ls_stream_unread(ls_stream *s, ls_slice bytes);

/* Have handler->received called with LS_EAGAIN by a packet from the port's queue, after the packets that wait there.
 * Nothing is received. */
void ls_stream_requeue(ls_stream *s);

/* Cancel the pending receive, if any: `received` follows with LS_ECANCELED, or with the result that it already had.
 * Any thread, while the stream exists. */
void ls_stream_cancel_recv(ls_stream *s);
/* Cancel all operations. Any thread, while the stream exists. */
void ls_stream_cancel(ls_stream *s);

bool ls_stream_receiving(const ls_stream *s); /* a receive is pending */
bool ls_stream_sending(const ls_stream *s);   /* a flush is pending */

/* Connect an unconnected socket; *to must stay valid until the end. The receive deadline does not end it. LS_DONE;
 * LS_PENDING: handler->received follows with 0 or an error; or LS_E*. */
int ls_stream_connect(ls_thread_ctx *ctx, ls_stream *s, const ls_sockaddr *to);

/* ---- the queue ---------------------------------------------------------------------------------------------- */

/* Reserve n bytes of output (n <= LS_BLOCK_LARGE); NULL: out of memory. Write, then commit the number of bytes
 * written. */
char *ls_stream_room(ls_thread_ctx *ctx, ls_stream *s, size_t n);
void ls_stream_commit(ls_stream *s, size_t n);

/* Queue a copy of these bytes (len <= LS_BLOCK_LARGE). LS_OK or LS_ENOMEM. */
int ls_stream_put(ls_thread_ctx *ctx, ls_stream *s, const void *bytes, size_t len);

/* The same for one last short response (n < LS_BLOCK_SMALL / 2) when memory is exhausted: may use the reserve of the
 * pool. */
char *ls_stream_room_reserved(ls_thread_ctx *ctx, ls_stream *s, size_t n);

/* Queue a slice of a block: from a pool, external, or a range of a file. Its reference moves to the queue on success.
 * LS_OK or LS_ENOMEM. */
int ls_stream_push(ls_thread_ctx *ctx, ls_stream *s, const ls_slice *slice);

/* Send bytes at once, if nothing is queued. Returns the number of bytes that were sent, which may be 0: the caller
 * queues the rest. */
size_t ls_stream_try_send(ls_stream *s, const void *bytes, size_t len);
/* Prefetch what ls_stream_try_send reads beside *s. */
void ls_stream_prefetch(const ls_stream *s);

size_t ls_stream_queued(const ls_stream *s); /* bytes, including those of the pending send */

/* The position after the last queued byte. Positions count from 0 again when the queue has been sent. */
size_t ls_stream_end(const ls_stream *s);

/* Drop the queued bytes from `position` on, except those of the pending send. false: no byte before `position` is left
 * to send. */
bool ls_stream_truncate(ls_stream *s, size_t position);

/* Send the queue. LS_DONE: all bytes were sent. LS_PENDING: handler->sent follows when all bytes were sent, including
 * those queued meanwhile. LS_E*: the queue is dropped. LS_ECHANGED: a queued file was changed or truncated; no byte of
 * it was sent after the change was seen, and if ls_stream_may_send, no byte of the queue was sent at all. */
int ls_stream_flush(ls_thread_ctx *ctx, ls_stream *s);
bool ls_stream_may_send(const ls_stream *s); /* no send has failed */

/* Cancel the pending send, if any: handler->sent follows with LS_ECANCELED, and the queue is dropped; or with LS_OK,
 * if all bytes had been sent by then. */
void ls_stream_abort(ls_stream *s);

/* Drop the queue without a callback. No send is pending. */
void ls_stream_discard(ls_stream *s);

/* ---- deadlines ---------------------------------------------------------------------------------------------- */

/* The receive deadline: a receive that is pending `ms` from now ends with LS_ETIMEDOUT. 0: none. It stays until it is
 * set again. A later deadline than the one before costs one store. Below a second the time is exact, else a few ms
 * late. More than 12 days are 12 days. */
void ls_stream_recv_within(ls_stream *s, uint32_t ms);
/* The time until this deadline in ms; 0: it has passed, or was not set. Any thread, while the stream is open. */
uint32_t ls_stream_recv_ms_left(const ls_stream *s);

/* A pending send ends with LS_ETIMEDOUT after stall_ms without progress (0: never), and, measured over stall_ms, below
 * the send_rate_min of the handler. Of a send that is pending already, the time starts again. */
void ls_stream_send_within(ls_stream *s, uint32_t stall_ms);

/* ---- watch -------------------------------------------------------------------------------------------------- */

/* Watches for the loss of the connection (a reset, the close of both directions) while nothing else is pending. */
typedef struct ls_stream_watch {
    ls_op op;
    ls_stream *stream;
    void (*lost)(ls_thread_ctx *ctx, struct ls_stream_watch *watch);
} ls_stream_watch;

/* LS_PENDING: watch->lost follows once, unless ls_stream_unwatch returns true. LS_ERESET: it is lost already.
 * LS_ENOTSUP. */
int ls_stream_watch_begin(ls_thread_ctx *ctx, ls_stream *s, ls_stream_watch *watch);
/* true: the watch was pending, and `lost` does not follow. false: its packet is queued, or is about to be. */
bool ls_stream_unwatch(ls_stream *s, ls_stream_watch *watch);

#endif
