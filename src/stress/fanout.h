/* fanout.h - fan-out runs: publishers send messages to the server, which must deliver each to all subscribers of its
 * topic.
 *
 * A delivery is a request of the reports: rates and latencies are those of deliveries, from the publication. Every
 * message has a head (delivery.h), from which a subscriber knows its publisher, its number and its time.
 *
 *     start   publishers and subscribers connect. Publishers send a probe every 100 ms, and a subscriber has settled
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

#include "stress/delivery.h"
#include "stress/worker.h"

typedef struct ls_stress_publisher {
    ls_stress_worker *worker;
    ls_stress_vu *u;
    ls_op ready;                /* tells it that a message has arrived at all subscribers */
    _Atomic bool told;          /* `ready` is on its way */
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

/* For a plan of LS_STRESS_PLAN_FANOUT. LS_OK or LS_ENOMEM. */
int ls_stress_fanout_open(const ls_stress_plan *plan, struct ls_stress_fanout **out);
void ls_stress_fanout_close(struct ls_stress_fanout *fanout); /* NULL is allowed */

/* The threads that have publishers: 0 .. senders-1. */
unsigned ls_stress_fanout_senders(const ls_stress_plan *plan);

/* Give the virtual users of a new worker their roles: first its publishers, then its subscribers. LS_OK or
 * LS_ENOMEM. */
int ls_stress_fanout_attach(ls_stress_worker *w, struct ls_stress_fanout *fanout);
void ls_stress_fanout_free(ls_stress_vu *u);

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

/* Before the run, every 100 ms: send probes; give up subscribers that have received none within the time limit. */
void ls_stress_fanout_prepare(ls_stress_worker *w);

/* A subscriber has received a message, or the data of an event. */
void ls_stress_fanout_deliver(ls_stress_vu *u, const char *bytes, size_t len);
/* The same by its head, for a message that arrived in parts. */
void ls_stress_fanout_count(ls_stress_vu *u, const ls_delivery_head *head);

/* Closed loop: the number of messages that this publisher may send now. */
uint32_t ls_stress_fanout_room(const ls_stress_vu *u);
/* Closed loop: publishers whose message has not arrived everywhere within the time limit continue. */
void ls_stress_fanout_time_out(ls_stress_worker *w);

/* Write the message of request `k` of a publisher to `out`: LS_DELIVERY_HEAD_BYTES + message_len bytes. */
void ls_stress_fanout_write(ls_stress_vu *u, uint32_t k, char *out);

/* Compose `count` publications as POST requests (ls_stress_proto.compose). */
bool ls_stress_fanout_post(ls_stress_vu *u, uint32_t count);

/* The publishers of this worker have ended. */
void ls_stress_fanout_ended(ls_stress_worker *w);

/* After that: whether nothing more will arrive. */
bool ls_stress_fanout_done(const ls_stress_worker *w);

/* At the end: count the lost messages. */
void ls_stress_fanout_count_lost(ls_stress_worker *w);

/* A text with each {topic} replaced by the number, in allocated memory; NULL: out of memory. */
char *ls_stress_fanout_topic(const char *text, unsigned topic);

extern const ls_stress_proto ls_stress_ws_subscriber_proto, ls_stress_ws_publisher_proto,
    ls_stress_sse_subscriber_proto;

#endif
