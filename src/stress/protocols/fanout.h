/* fanout.h - fan-out runs: publishers send messages to the server, which must deliver each to all subscribers of its
 * topic.
 *
 * A delivery is a request of the reports: rates and latencies are those of deliveries, from the publication. Every
 * message has a head (delivery.h), from which a subscriber knows its publisher, its number and its time.
 *
 *     start   publishers and subscribers connect. Publishers send a probe every 100 ms, and a subscriber is prepared
 *             when it has received one, so that the run does not begin before the server knows all subscribers.
 *     go      closed loop: a publisher sends its next message when all subscribers of its topic have received the last
 *             one; open loop: the messages of the schedule are distributed to the publishers.
 *     end     the publishers stop. A thread ends when its subscribers have received everything that was published, or
 *             nothing for the time limit of a request.
 *
 * The threads share ls_stress_fanout: each counter in it has one writer, except `arrived`. Publisher p and subscriber
 * s have the topics p and s modulo the number of topics. The last `stalled` subscribers never read. */
#ifndef LS_STRESS_FANOUT_H
#define LS_STRESS_FANOUT_H

#include <stdatomic.h>

#include "stress/load/worker.h"
#include "stress/protocols/delivery.h"
#include "stress/protocols/event_stream.h"

typedef struct ls_stress_publisher {
    ls_stress_worker *worker;
    ls_stress_vu *u;
    ls_op ready;                /* notifies it that a message has arrived at all subscribers */
    _Atomic bool notified;      /* `ready` was posted */
    _Atomic uint64_t published; /* messages, without probes */
    _Atomic uint64_t arrived;   /* closed loop: deliveries of its messages */
    uint64_t published_ns;      /* when the last one was sent */
    uint64_t readers;           /* subscribers of its topic that read, of all threads */
} ls_stress_publisher;

struct ls_stress_fanout {
    uint32_t run;                  /* ls_delivery_head.run */
    uint64_t opened_ns;            /* ls_delivery_head.sent_ns counts from here */
    _Atomic unsigned senders_left; /* threads with publishers that have not ended */
    _Atomic uint64_t ready;        /* subscribers that have received a probe */
    ls_stress_publisher *publishers;
};

struct ls_stress_subscriber {
    char head[LS_DELIVERY_HEAD_BYTES]; /* of a message that arrives in parts */
    size_t at;                         /* its bytes so far */
    bool differs;                      /* one of them is not the expected one */
    ls_sse sse;
    ls_delivery_track tracks[]; /* of the publishers of its topic */
};

/* For a plan of LS_STRESS_PLAN_FANOUT. LS_OK or LS_ENOMEM. */
int ls_stress_fanout_open(const ls_stress_plan *plan, struct ls_stress_fanout **out);
void ls_stress_fanout_close(struct ls_stress_fanout *fanout); /* NULL is allowed */

/* The threads that have publishers: 0 .. senders-1. */
unsigned ls_stress_fanout_senders(const ls_stress_plan *plan);

/* Give the virtual users of a new worker their roles and protocols: first its publishers, then its subscribers. LS_OK
 * or LS_ENOMEM. */
int ls_stress_fanout_attach(ls_stress_worker *w, struct ls_stress_fanout *fanout, const ls_stress_proto *publisher,
                            const ls_stress_proto *subscriber);
void ls_stress_fanout_free(ls_stress_vu *u); /* a subscriber */

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

/* A subscriber has received a message, or the data of an event. */
void ls_stress_fanout_deliver(ls_stress_vu *u, const char *bytes, size_t len);
/* The same by its head, for a message that arrived in parts. */
void ls_stress_fanout_count(ls_stress_vu *u, const ls_delivery_head *head);

/* Write the message of request `k` of a publisher to `out`: LS_DELIVERY_HEAD_BYTES + message_len bytes. */
void ls_stress_fanout_write(ls_stress_vu *u, uint32_t k, char *out);

extern const ls_stress_fanout_hooks ls_stress_fanout_hooks_of_all;

#endif
