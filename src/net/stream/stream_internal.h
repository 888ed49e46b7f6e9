/* stream_internal.h - shared by the files of a stream: stream.c (open, close, receive, deadlines) and stream_queue.c
 * (the queue, send).
 *
 * Threads. At most one of receive and send is pending on a stream without an actor, so that its packets follow one
 * another. rx_pending and tx_pending need no lock for that reason. */
#ifndef LS_NET_STREAM_INTERNAL_H
#define LS_NET_STREAM_INTERNAL_H

#include <stdatomic.h>

#include "net/stream/carrier.h"
#include "net/stream/deadline.h"
#include "net/stream/filter.h"
#include "net/stream/stream.h"

typedef struct ls_outq ls_outq;

/* Bits of ls_stream.flags, which a tick changes beside the owner. */
enum {
    LS_STREAM_RECV_EXPIRED = 1, /* the deadline passed: report a cancelled operation as timed out */
    LS_STREAM_SEND_EXPIRED = 2,
    LS_STREAM_PACED = 4, /* the measurement belongs to the pending send */
    LS_STREAM_CLOSING = 8,
    LS_STREAM_CARRIED = 16, /* has a carrier; set when it is opened */
    LS_STREAM_COUNTED = 32, /* among the connections of its peer */
};

struct ls_stream {
    _Atomic(const ls_stream_handler *) handler; /* a tick reads it beside the owner */
    ls_deadlines *deadlines;
    union {
        ls_sock *sock;
        ls_carrier *carrier; /* LS_STREAM_CARRIED */
    };
    union {
        ls_outq *out;      /* NULL while nothing is queued */
        ls_filter *filter; /* of a stream that is `filtered`: has the queue in its `out` */
    };
    ls_op rx; /* rx.actor: the actor of all packets. rx.recv: the bytes of ls_stream_take */
    ls_deadline deadline;
    /* In the time of ls_deadline; 0: none. A tick reads them beside the owner. */
    _Atomic uint32_t recv_at, send_at;
    _Atomic uint32_t stall_ms;
    uint32_t paced_from; /* of the tick: start of the current measurement of a send's rate */
    uint32_t generation; /* of sock */
    uint32_t peer_scope; /* peer_*: as in ls_addr */
    unsigned char peer[16];
    uint16_t peer_port;
    uint8_t peer_family;
    _Atomic uint8_t flags;
    bool filtered;
    bool rx_pending, tx_pending; /* no atomic in their word: compilers access two of them as one */
    bool lingering : 1;
    bool aborted : 1; /* the pending send was aborted: send nothing after it */
    bool unread : 1;  /* rx.recv holds bytes that were given back, rx.result their number */
    bool corked : 1;  /* ls_stream_cork_fin */
    bool failed : 1;  /* the filter, which was logged */
    bool ended : 1;   /* the end of the filter's protocol, such as close_notify, must not be sent any more */
    bool ending : 1;  /* the pending send is that end alone: no callback follows, but the shutdown of our side */
    bool large : 1;   /* the last receive of the filter's input filled its block */
    _Alignas(void *) char user[];
};

static inline ls_filter *ls_stream_filter_of(const ls_stream *s) /* NULL: none */
{
    return s->filtered ? s->filter : NULL;
}

static inline ls_outq **ls_stream_outq(ls_stream *s)
{
    return s->filtered ? &s->filter->out : &s->out;
}

static inline bool ls_stream_is(const ls_stream *s, uint8_t flag)
{
    return atomic_load_explicit(&s->flags, memory_order_relaxed) & flag;
}

static inline void ls_stream_clear(ls_stream *s, uint8_t flags)
{
    if (ls_stream_is(s, flags)) atomic_fetch_and(&s->flags, (uint8_t)~flags);
}

/* The carrier; NULL: there is a socket. */
static inline ls_carrier *ls_stream_carrier(const ls_stream *s)
{
    return ls_stream_is(s, LS_STREAM_CARRIED) ? s->carrier : NULL;
}

/* Shut down the sending side of the socket or the carrier. */
static inline int ls_stream_shut_down(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_carrier *c = ls_stream_carrier(s);
    return c == NULL ? ls_sock_shutdown(s->sock) : c->type->end_send(ctx, c);
}

/* The result of an operation; `expired` is LS_STREAM_RECV_EXPIRED or LS_STREAM_SEND_EXPIRED. */
static inline int64_t ls_stream_outcome(const ls_stream *s, int64_t result, uint8_t expired)
{
    return result == LS_ECANCELED && (atomic_load(&s->flags) & expired) ? LS_ETIMEDOUT : result;
}

/* stream.c */
void ls_stream_log_filter(ls_stream *s); /* it has returned LS_EPROTO: log the reason, once */
void ls_stream_linger_on(ls_thread_ctx *ctx, ls_stream *s);
void ls_stream_end_close(ls_thread_ctx *ctx, ls_stream *s); /* it is closing, and no operation is pending any more */
void ls_stream_send_begins(ls_stream *s);                   /* the deadline of a send starts */

/* stream_queue.c */
void ls_stream_pin(ls_stream *s); /* the actor of the pending send is kept until its packet has run */
void ls_stream_drop_queue(ls_stream *s);
void ls_stream_send_answer(ls_stream *s); /* of the filter: as much of it as the system takes, if nothing is queued */
void ls_stream_moved_queue(ls_stream *s); /* the queue, if there is one, came with the socket of another stream */
/* Send the end of the filter's protocol, or the alert that it holds. LS_DONE, LS_PENDING or an error. */
int ls_stream_send_end(ls_thread_ctx *ctx, ls_stream *s);

#endif
