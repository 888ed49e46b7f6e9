/* epoll_gather.h - moderation of small datagram batches: a thread that one socket keeps busy with small batches sleeps
 * for LS_GATHER_US before it receives, so that the next batch is larger. epoll_gather.c explains when and why.
 *
 * The state belongs to a thread context. It is allocated when the context first receives a batch on a socket
 * that allows gathering (op->recv_from.gather) and freed when the port is closed. Only the context's own
 * thread touches it. */
#ifndef LS_PORT_EPOLL_EPOLL_GATHER_H
#define LS_PORT_EPOLL_EPOLL_GATHER_H

#include "port/port.h"

struct epoll_event; /* of <sys/epoll.h> */

typedef struct ls_gathering {
    struct ls_gathering *next; /* in the port's list */
    bool candidate;            /* the last packet was a batch that was not full; the wait for the next one is timed */
    uint64_t event;            /* the kernel's event that reported that batch */
    uint64_t wait_ns;          /* start of the current wait */
    unsigned run;              /* small batches in a row, without a pause or another packet in between */
    bool slack_set;            /* the thread's timer slack was lowered */
    uint64_t count;            /* sleeps so far */
    /* The comparison of both ways, repeated in rounds of steps: */
    unsigned step;           /* of the round */
    unsigned step_datagrams; /* received in this step */
    uint64_t step_ns;        /* start of this step; 0: it has not begun */
    uint64_t best_ns[2];     /* per 1,024 datagrams, the fastest step of this round without and with sleeping */
    bool pays;               /* sleeping was not slower */
} ls_gathering;

static inline bool ls_gathering_candidate(const ls_thread_ctx *ctx)
{
    return ctx->gathering != NULL && ctx->gathering->candidate;
}

/* A wait returned `count` events (at least 1) that were not handled yet; the context is a candidate.
 * Sleeps if that pays. */
void ls_gathering_before(ls_thread_ctx *ctx, const struct epoll_event *events, int count);

/* `op`, which allows gathering, received a batch (or an error) because of `event`. */
void ls_gathering_after(ls_thread_ctx *ctx, uint64_t event, const ls_op *op);

/* The run of small batches ends: another thread received from the same socket. */
void ls_gathering_interrupt(ls_thread_ctx *ctx);

void ls_gatherings_free(ls_gathering *list);

#endif
