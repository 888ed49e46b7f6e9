/* ws_internal.h - shared by the files of a WebSocket connection: websocket.c (open, packets, deadlines, close),
 * ws_receive.c (frames to messages), ws_send.c (messages to frames).
 *
 *     OPEN --(ls_ws_close)--> CLOSING --(the peer's Close frame)--> LAST --(all is sent)--> ENDING --> closed
 *        \--(the peer's Close frame, or a frame is refused)---------/
 *     from everywhere --(the connection is lost, ls_ws_abort)--> LOST --> closed
 *
 * CLOSING: our Close frame is queued; data frames are skipped. LAST: both sides have said Close, or we refuse to read
 * on; nothing more is parsed. ENDING: our last byte is sent. A server, and who refuses, has ended its stream and reads
 * on until the peer does so, because closing a socket with unread bytes is a reset that could destroy the Close frame
 * on its way; a client waits for the server to close first (RFC 6455 section 7.1.1). */
#ifndef LS_WS_WS_INTERNAL_H
#define LS_WS_WS_INTERNAL_H

#include "base/utf8.h"
#include "sched/actor.h"
#include "ws/websocket.h"

enum ls_ws_state { LS_WS_STATE_OPEN, LS_WS_STATE_CLOSING, LS_WS_STATE_LAST, LS_WS_STATE_ENDING, LS_WS_STATE_LOST };

typedef struct ls_ws_pong { /* the answer to the newest ping, while a send is pending */
    uint8_t len;
    char bytes[];
} ls_ws_pong;

/* The block `in` holds received bytes:
 *
 *     data ... from ... ready ... to ... cap
 *              |        |         '- the next receive into this block
 *              |        '- here begin bytes that were not looked at
 *              '- inside a frame: its payload, unmasked and checked, that is not in `parts` yet
 *
 * Between two frames ready == from, and the head of the next frame begins there. */
struct ls_ws { /* the fields that a publication needs come first: one cache line */
    const ls_ws_config *config;
    const ls_ws_events *events;
    ls_ws_deflate deflate;
    uint8_t state;
    bool looping;            /* frames are handled or an event runs: flush later */
    bool begun : 1;          /* the first receive was posted */
    bool in_frame : 1;       /* the head of a data frame was read, its payload not to the end */
    bool in_message : 1;     /* a data frame has begun a message */
    bool fin : 1;            /* the frame is the last of its message */
    bool text : 1;           /* of the message */
    bool compressed : 1;     /* likewise */
    bool waiting : 1;        /* `message` waits for ls_ws_consume */
    bool borrowed : 1;       /* its slice holds no reference but uses that of `in` */
    bool large : 1;          /* the next block to receive into is large */
    bool short_read : 1;     /* the last block got less than a small one holds */
    bool probing : 1;        /* the pending receive has length 0 */
    bool probed : 1;         /* it has ended: bytes can be received */
    bool timed : 1;          /* the receive deadline is until_ms */
    bool pinged : 1;         /* nothing was received since our ping */
    bool awaits_drained : 1; /* a call has returned LS_PENDING */
    bool ended : 1;          /* the event was called */
    bool refused : 1;        /* LAST, ENDING: the peer may still be sending */
    ls_block *in;            /* NULL: none */
    uint32_t from, ready, to;
    uint32_t until_ms; /* if `timed`: when the message, or the closing handshake, has taken too long */
    uint64_t left;     /* bytes of the frame's payload from `ready` on */
    uint8_t key[4];    /* of the frame, for the byte at `ready` */
    ls_utf8 utf8;
    ls_slices parts; /* the message that waits, or its part so far */
    ls_ws_message message;
    ls_ws_pong *pong; /* NULL: none */
    _Alignas(void *) char user[];
};

static inline ls_stream *ls_ws_stream_of(ls_ws *ws)
{
    return ls_stream_of(ws);
}

/* Packets wait for the actor, such as received messages of other connections. */
static inline bool ls_ws_others_wait(const ls_thread_ctx *ctx)
{
    return ctx->inside != NULL && ls_actor_has_waiting(ctx->inside);
}

/* ---- websocket.c ----------------------------------------------------------------------------------------------- */

/* The peer has sent a Close frame. Calls `ended`. */
void ls_ws_close_received(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len);
/* Send a Close frame with this code, and read nothing more. Calls `ended`. */
void ls_ws_refuse(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *why);

/* ---- ws_receive.c ---------------------------------------------------------------------------------------------- */

enum ls_ws_taken {
    LS_WS_TAKEN_ALL,     /* more bytes are needed */
    LS_WS_TAKEN_MESSAGE, /* a message waits for ls_ws_consume */
    LS_WS_TAKEN_MANY,    /* many frames were handled, and other packets wait: continue later */
    LS_WS_TAKEN_LAST     /* nothing more is parsed */
};

/* Handle the received frames. Calls `message` and `ended`. */
enum ls_ws_taken ls_ws_take_frames(ls_thread_ctx *ctx, ls_ws *ws);
/* Receive once. LS_DONE: there are bytes; LS_PENDING; LS_ECLOSED: the end of the stream; or another error. */
int ls_ws_receive(ls_thread_ctx *ctx, ls_ws *ws);
void ls_ws_bytes_received(ls_ws *ws, uint32_t bytes); /* by a receive that was pending */
/* A frame or message was received in part. */
static inline bool ls_ws_in_progress(const ls_ws *ws)
{
    return ws->in_frame || ws->in_message || ws->from < ws->to;
}
/* Our Close frame is queued: data frames are skipped from now on. */
void ls_ws_skip_messages(ls_ws *ws);
/* Drop the received bytes, but not a message that waits. */
void ls_ws_drop_received(ls_ws *ws);
void ls_ws_drop_message(ls_ws *ws);

/* ---- ws_send.c ------------------------------------------------------------------------------------------------- */

/* Queue a control frame. `last`: a Close frame, which may use the reserve of the pool. LS_OK or LS_ENOMEM. */
int ls_ws_put_control(ls_thread_ctx *ctx, ls_ws *ws, enum ls_ws_opcode opcode, const char *bytes, size_t len,
                      bool last);
/* The same with a code and a reason, which is truncated to LS_WS_REASON_BYTES_MAX bytes. */
int ls_ws_put_close(ls_thread_ctx *ctx, ls_ws *ws, unsigned code, const char *reason, size_t reason_len);
/* Answer a ping, now or when the pending send has ended: then ls_ws_put_pong. */
void ls_ws_pong_later(ls_thread_ctx *ctx, ls_ws *ws, const char *bytes, size_t len);
void ls_ws_put_pong(ls_thread_ctx *ctx, ls_ws *ws);

#endif
