/* websocket.h - a WebSocket connection after its handshake, of a server or a client (RFC 6455), on a stream.
 *
 * The connection receives by itself: it answers pings, checks the peer with pings of its own, joins the fragments of a
 * message, inflates it, and does the closing handshake. It stops receiving while a message waits that its user has not
 * taken: that is the back-pressure for the peer. What it sends is queued; ls_ws_flush sends the queue.
 *
 *     open --> (messages both ways) --> closing: a Close frame was queued or received --> ended --> freed
 *
 * Every call and event happens inside one actor, that of the stream. Events are called by packets, by ls_ws_begin and
 * ls_ws_consume, and `drained` by ls_ws_flush too. While an event runs, or while received frames are handled one after
 * the other, no call causes an event, and nothing is flushed: the queue leaves in one send at the end.
 *
 * Memory: ls_ws is the user data of its stream, followed by the `user_bytes` of its user. An idle connection holds no
 * buffer. It stays valid through every call and event until `freed`, which only a packet calls. */
#ifndef LS_WS_WEBSOCKET_H
#define LS_WS_WEBSOCKET_H

#include "base/buf.h"
#include "codec/ws/ws_deflate.h"
#include "codec/ws/ws_frame.h"
#include "net/stream/stream.h"

typedef struct ls_ws ls_ws;

typedef struct ls_ws_config {   /* of one route or client; stays valid until the connection is freed */
    bool client;                /* the role: a client masks, and lets the server close the connection first */
    uint64_t message_bytes_max; /* of a received message, also inflated: 1009; default 1 MiB */
    uint32_t queue_bytes_max;   /* ls_ws_publish refuses above it, unless nothing is queued; default 1 MiB */
    uint32_t write_bytes_high;  /* high-water mark: ls_ws_send returns LS_PENDING above it */
    uint32_t ping_ms,
        pong_ms; /* nothing was received for ping_ms: a ping; then nothing for pong_ms: the end. 0: no pings */
    uint32_t message_ms_max;    /* from the first byte of a message to its last: 1008; 0: no limit */
    uint32_t close_ms_max;      /* for the Close frame of the peer, and for the end of the stream; 0: does not wait */
    uint32_t send_stall_ms_max; /* a send without progress ends the connection; 0: no limit */
} ls_ws_config;

typedef struct ls_ws_message { /* one slice mostly */
    bool text;                 /* valid UTF-8 */
    unsigned count;
    const ls_slice *slices;
    size_t bytes;
} ls_ws_message;

typedef struct ls_ws_events {
    /* A message is complete: ls_ws_message, then ls_ws_consume, now or later. Frames after it wait meanwhile. */
    void (*message)(ls_thread_ctx *ctx, ls_ws *ws);
    /* The queue was sent after a call that returned LS_PENDING. Not after `ended`. */
    void (*drained)(ls_thread_ctx *ctx, ls_ws *ws);
    /* No message follows, and nothing more can be sent: the peer has sent a Close frame, or the connection was lost
     * (LS_WS_ABNORMAL), or a frame was refused (`code` and `reason` of the Close frame that it gets). Once; the reason
     * is valid during the call. A message that waits can still be taken until `freed`. */
    void (*ended)(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len);
    /* The last call: the stream is closed. Its memory is freed when the function returns. */
    void (*freed)(ls_thread_ctx *ctx, ls_ws *ws);
} ls_ws_events;

/* Bytes of room that a stream needs for a connection with `user_bytes` of its user. */
size_t ls_ws_room(size_t user_bytes);
extern const ls_stream_handler ls_ws_stream_handler;

/* Make the connection of a stream with ls_ws_stream_handler and this room, whose actor is set. `deflate`: what the
 * handshake has negotiated, which moves into the connection, or NULL. Nothing is received before ls_ws_begin. */
ls_ws *ls_ws_open(ls_stream *s, const ls_ws_config *config, ls_ws_deflate *deflate, const ls_ws_events *events);
/* Flush the queue, and receive from now on. Once. May call events. */
void ls_ws_begin(ls_thread_ctx *ctx, ls_ws *ws);

void *ls_ws_user(ls_ws *ws);
ls_ws *ls_ws_of(void *user);
ls_stream *ls_ws_stream(ls_ws *ws);

/* ---- receive ------------------------------------------------------------------------------------------------ */

/* The message that waits; NULL: none. Valid until ls_ws_consume; hold the block of a slice to keep its bytes
 * longer. */
const ls_ws_message *ls_ws_message_get(const ls_ws *ws);
/* Drop it, if there is one, and continue: may call events, unless one runs. */
void ls_ws_consume(ls_thread_ctx *ctx, ls_ws *ws);
/* Inside `message`, after ls_ws_consume: handle the frames after it now, up to the next message. Calls events. */
void ls_ws_resume(ls_thread_ctx *ctx, ls_ws *ws);

/* ---- send --------------------------------------------------------------------------------------------------- */

/* Queue a message (text or binary). Takes the references in every case; a slice without a block is copied. Text must
 * be valid UTF-8. Compressed if that was negotiated and it is long enough. LS_DONE; LS_PENDING: queued, but the queue
 * is above the high-water mark, `drained` follows when it is sent; LS_ECLOSED: a Close frame was queued or received,
 * or the connection is lost; LS_ENOMEM: nothing was queued; with context takeover the connection is lost. */
int ls_ws_send(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, ls_slice *slices, unsigned count);

/* Queue a ping or pong with at most LS_WS_CONTROL_BYTES_MAX bytes; they are copied. LS_DONE, LS_ECLOSED, LS_ENOMEM. */
int ls_ws_control(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, const char *bytes, size_t len);

/* Queue a message for many connections of servers: `plain` is the whole frame; `compressed` the same message
 * compressed without context takeover, or NULL. Which one depends on what this connection has negotiated. Holds a
 * reference of its own. `now`: send it at once, if nothing is queued. LS_DONE: it was sent; LS_PENDING: it is queued,
 * ls_ws_flush sends it; LS_ELIMIT: the queue is not empty and would exceed queue_bytes_max, nothing was queued;
 * LS_ECLOSED; LS_ENOMEM. */
int ls_ws_publish(ls_thread_ctx *ctx, ls_ws *ws, const ls_slice *plain, const ls_slice *compressed, bool now);
/* Prefetch what ls_ws_publish reads, in step 0 and, when that has arrived, in step 1. */
void ls_ws_prefetch(ls_ws *ws, unsigned step);
/* Whether ls_ws_publish uses `compressed`. */
bool ls_ws_takes_compressed(const ls_ws *ws);

/* Send the queue. LS_DONE: it was sent, or is sent after the event that runs; LS_PENDING: `drained` follows; or an
 * error: `ended` follows, or was called. */
int ls_ws_flush(ls_thread_ctx *ctx, ls_ws *ws);

size_t ls_ws_queued(const ls_ws *ws); /* bytes */

/* ---- close -------------------------------------------------------------------------------------------------- */

/* Queue a Close frame and flush: the closing handshake begins. No message follows; `ended` follows with the code of
 * the peer, or LS_WS_ABNORMAL after close_ms_max. `code` LS_WS_NO_CODE: a frame without a payload. `reason` is valid
 * UTF-8 with at most LS_WS_REASON_BYTES_MAX bytes. Again: no effect. */
void ls_ws_close(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len);
bool ls_ws_closing(const ls_ws *ws); /* a Close frame was queued or received, or the connection is lost */
bool ls_ws_lost(const ls_ws *ws);    /* the connection is lost: `ended` follows by a packet unless it was called */

/* Drop the queue and close the connection at once, without a Close frame. `ended` follows unless it was called. */
void ls_ws_abort(ls_thread_ctx *ctx, ls_ws *ws);

/* Free a connection when no thread runs any more and the port is closed. No event follows. */
void ls_ws_free(ls_ws *ws);

#endif
