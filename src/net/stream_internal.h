/* stream_internal.h - shared by the files of a stream: stream.c (open, close, receive, deadlines) and stream_queue.c
 * (the queue, send).
 *
 * Threads. At most one of receive and send is pending on a stream without an actor, so that its packets follow one
 * another. rx_pending and tx_pending need no lock for that reason. */
#ifndef LS_NET_STREAM_INTERNAL_H
#define LS_NET_STREAM_INTERNAL_H

#include <stdatomic.h>

#include "net/deadline.h"
#include "net/filter.h"
#include "net/stream.h"

typedef struct ls_outq ls_outq;

struct ls_stream {
    const ls_stream_handler *handler;
    ls_deadlines *deadlines;
    ls_sock *sock;
    ls_outq *out;      /* NULL while nothing is queued */
    ls_filter *filter; /* NULL: none */
    ls_op rx;          /* rx.actor: the actor of all packets. rx.recv: the bytes of ls_stream_take */
    ls_deadline deadline;
    /* In the time of ls_deadline; 0: none. A tick reads them beside the owner. */
    _Atomic uint32_t recv_at, send_at;
    _Atomic uint32_t stall_ms, rate_min;
    uint32_t generation;             /* of sock */
    uint32_t paced_from, paced_size; /* of the tick: the current measurement of a send's rate; size in units of 256 */
    uint32_t peer_scope;             /* peer_*: as in ls_addr */
    unsigned char peer[16];
    uint16_t peer_port;
    uint8_t peer_family;
    _Atomic bool recv_expired, send_expired; /* the deadline passed: report a cancelled operation as timed out */
    _Atomic bool paced;                      /* the measurement belongs to the pending send */
    _Atomic bool closing;
    bool rx_pending, tx_pending; /* no atomic in their word: compilers access two of them as one */
    bool lingering : 1;
    bool aborted : 1; /* the pending send was aborted: send nothing after it */
    bool unread : 1;  /* rx.recv holds bytes that were given back, rx.result their number */
    bool corked : 1;  /* ls_stream_cork_fin */
    bool failed : 1;  /* the filter, which was logged */
    bool
        ended : 1; /* the end of the filter's protocol is in the queue, or was sent, or a send failed: it is not sent */
    bool ending : 1; /* the pending send is that end alone: no callback follows, but the shutdown of our side */
    bool large : 1;  /* the last receive of the filter's input filled its block */
    _Alignas(void *) char user[];
};

static inline int64_t ls_stream_outcome(int64_t result, const _Atomic bool *expired)
{
    return result == LS_ECANCELED && atomic_load(expired) ? LS_ETIMEDOUT : result;
}

/* stream.c */
void ls_stream_log_filter(ls_stream *s); /* it has returned LS_EPROTO: log the reason, once */
void ls_stream_linger_on(ls_thread_ctx *ctx, ls_stream *s);
void ls_stream_settled(ls_thread_ctx *ctx, ls_stream *s); /* it is closing, and no operation is pending any more */
void ls_stream_send_begins(ls_stream *s);                 /* the deadline of a send starts */

/* stream_queue.c */
void ls_stream_drop_queue(ls_stream *s);
void ls_stream_move_queue(ls_stream *from, ls_stream *to); /* `to` has none */
/* Send the end of the filter's protocol, or the alert that it holds. LS_DONE, LS_PENDING or an error. */
int ls_stream_send_end(ls_thread_ctx *ctx, ls_stream *s);

#endif
