/* exchange_out.h - the response of an exchange: what HTTP says about it, once, above every transport.
 *
 *     NONE --hints()*, respond(whole body)----------------------> DONE
 *        \--write(part), flush()--> OPEN --write(part)*--finish()--^
 *
 *     at each point: error (the connection is lost, or the response is), abort --> error != 0, and the release closes
 *
 * A handler (the script layer) calls these functions; they decide, and a transport (ls_transport in exchange.h)
 * writes. Decided here, when the head is queued, and never by a transport:
 *
 *   no_body   a response to HEAD, or a status without content (1xx, 204, 205, 304): its slices are dropped unseen
 *   framing   NOT: the status has no length either (1xx, 204, 304).  BY_LENGTH: Content-Length, that of the whole
 *             body, the announced one of a body in parts, 0 of a 205.  BY_PARTS: the length is unknown, and the
 *                                                                      transport marks the
 *             end (the chunked coding; the end of a stream of HTTP/2).  BY_CLOSE: the length is unknown, and the end
 *                                                                       of the
 *             connection is the end: x->close is set. An unknown length gets x->open_framing, which the transport set
 *             when it made the exchange; it is BY_LENGTH of one that collects the parts to send them as a whole.
 *   close     the connection is not kept: this response needs its end, or the end of the request is too far to be
 *             skipped: the client waits for 100 Continue, or more than x->unread_bytes_max of the body follow
 *   type      Content-Type, unless the fields have one, or there is no content: else NULL
 *   length    more or fewer bytes than announced end the exchange with LS_EMSGSIZE; a HEAD may write none
 *
 * The phase (x->response), x->error and the number of written bytes change here alone. So a transport gets `head`
 * once, then `data` in order, never after an error, and with bytes only if they are to be sent. After an error nothing
 * more of the response leaves than the transport has sent, and the client must not take it for complete: the transport
 * closes the connection, or resets the stream.
 *
 * Threads. The calls come from inside x->actor. HTTP/1 has one exchange of a connection at a time, so the actor of the
 * exchange is that of the stream and nothing is locked. Where a connection carries several exchanges (HTTP/2), these
 * run in different actors, and the connection in one of its own: there the functions of the transport are the border
 * (http2/h2_conn_internal.h). Nothing in these files touches anything but *x, and of *x the connection changes only
 * `queued`: whatever else it has to say, such as a loss, it says in x->actor.
 *
 * Early hints (ls_exchange_hints) are responses of their own before the head: LS_DATA_HINTS, and no phase. Trailers
 * (ls_exchange_trailer) are fields at the end of BY_PARTS: the slice of LS_DATA_LAST. A whole response that has some
 * is sent BY_PARTS for their sake, unless its length is all that the client understands. */
#ifndef LS_HTTP_EXCHANGE_OUT_H
#define LS_HTTP_EXCHANGE_OUT_H

#include "http/exchange.h"

/* Results of all: LS_DONE; LS_PENDING: x->wake follows when the queue is sent; or a negative code, which x->error has
 * too. Slices: their references are taken, on failure as well. The bytes of one without a block are copied before the
 * call returns. One may be a range of a file (port/file/shared_file.h): the system reads it, and a file that changes
 * meanwhile ends the connection. */

/* Send a response 103 with these fields (RFC 8297) before the response: its
 * client may load what they name. It may be called several times. Without effect to a client of HTTP/1.0 (RFC 9110
 * section 15.2), and where the transport has no place for it. LS_PENDING as for write. LS_EBUSY: the response has
 * begun; LS_ENOMEM with x->error 0: nothing is queued. */
int ls_exchange_hints(ls_thread_ctx *ctx, ls_exchange *x, const ls_hints *hints);

/* A whole response. Nothing was written before. */
int ls_exchange_respond(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);

/* One part, before the first one the head. Small parts are not collected: the caller does that in a block, as
 * script/bind/http/res.c. LS_PENDING: it is queued, above the high-water mark. */
int ls_exchange_write(ls_thread_ctx *ctx, ls_exchange *x, ls_slice *slices, unsigned count);

/* A part that many responses share is data with room around it, in which a transport that frames parts finds its
 * frame: so one send has both. Fill that room, of LS_SHARED_BEFORE bytes before data[0..len) and LS_SHARED_AFTER after
 * it. */
enum { LS_SHARED_BEFORE = 18, LS_SHARED_AFTER = 2 };
void ls_shared_part_frame(char *data, size_t len); /* by HTTP/1.1, the one that needs it */

/* Write such a part, which has bytes and a block, after the head of this response; its length is unknown. The queue
 * takes a reference of its own. `now`: send it at once, if nothing is queued. LS_DONE:
 * there is nothing to flush; LS_PENDING: it is queued, also above the high-water mark, and the next flush sends it. */
int ls_exchange_write_shared(ls_thread_ctx *ctx, ls_exchange *x, const ls_slice *part, bool now);

/* A whole response without a handler: the text of the status and `why` (NULL: none), and a line of the log of refused
 * requests. */
void ls_exchange_refuse(ls_thread_ctx *ctx, ls_exchange *x, int status, const char *why);

/* Send the queue now; LS_PENDING as for write. The response may be complete. */
int ls_exchange_flush(ls_thread_ctx *ctx, ls_exchange *x);

/* The response has no more parts. */
int ls_exchange_finish(ls_thread_ctx *ctx, ls_exchange *x);

/* Cancel the exchange: nothing more of the response is sent, further calls return LS_ECANCELED, and the release closes
 * the connection. */
void ls_exchange_abort(ls_thread_ctx *ctx, ls_exchange *x);

/* Before an upgrade: end the receive that ls_exchange_expect_end has posted. LS_DONE; LS_PENDING: call again in
 * x->wake; x->error. */
int ls_exchange_unexpect_end(ls_thread_ctx *ctx, ls_exchange *x);

/* Take the connection over (RFC 9110 sections 7.8 and 9.3.6): queue the head of the response, which is 101 with
 * "Connection: upgrade" and "Upgrade: protocol", or for CONNECT x->status (2xx), with the fields of x; then hand the
 * connection, with the bytes received after the request, to `handler` with `user_bytes` of room.
 * ls_exchange_unexpect_end has returned LS_DONE just before. The actor of the stream is x->actor; a flush of earlier
 * responses may be pending, of which the handler gets `sent`. The exchange stays valid until its release, without a
 * connection and without its TLS session: its response is complete, x->status is the one that was sent, x->error is
 * LS_ECLOSED. LS_OK; LS_EBUSY: a response has begun; LS_EINVAL: the body was not read to its end, the request did not
 * ask for this protocol (Connection and Upgrade), or x->status of a CONNECT is not 2xx; LS_ENOTSUP: see no_upgrade;
 * LS_ERESET and the like: it is lost; LS_ENOMEM. On an error nothing has changed, except that after the last ones
 * Upgrade is not in the fields any more. */
int ls_exchange_upgrade(ls_thread_ctx *ctx, ls_exchange *x, const char *protocol, size_t protocol_len,
                        const ls_stream_handler *handler, size_t user_bytes, ls_upgraded *out);

/* The response cannot be completed: returns `err`, which x->error has from now on. */
int ls_exchange_fail(ls_exchange *x, int err);

/* Bytes that the system has not accepted yet. */
static inline size_t ls_exchange_queued(const ls_exchange *x)
{
    return x->stream != NULL ? ls_stream_queued(x->stream) : atomic_load_explicit(&x->queued, memory_order_relaxed);
}

/* Bytes of the body that the transport has accepted, without framing. */
static inline uint64_t ls_exchange_body_sent(const ls_exchange *x)
{
    uint64_t bytes = x->written;
    for (const ls_response_filter *filter = x->filter; filter != NULL; filter = filter->below)
        if (filter->changes) bytes = filter->bytes;
    return x->no_body ? 0 : bytes;
}

#endif
