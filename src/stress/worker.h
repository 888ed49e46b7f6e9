/* worker.h - one thread of the load engine: its own port, its connections ("virtual users"), its counters, its script.
 *
 * Threads of a client are independent of each other, so each has a port for itself and nothing is shared while a run
 * lasts: the plan is read-only, the counters have one writer, and a stop is a packet. Files: worker.c (the thread, its
 * beginning and end), arrivals.c (who asks when), vu.c (one connection: connect, ask, receive, close), http.c, echo.c and
 * scenario.c (what the bytes mean: ls_stress_proto).
 *
 * A run, seen from a worker:
 *     start -> every virtual user connects (at most OPENING_MAX at a time) -> settled(): the other threads, too -> go
 *     go: closed loop: each virtual user asks, and asks again when it was answered
 *         open loop: the tick dispatches what is due to virtual users that are free, first come first served; what finds none
 *         waits, and its latency goes on counting from the moment it was due
 *     end: the duration is over, nothing is left to ask, or a stop: open loop waits for what is on its way;
 *         then everything is closed, every packet taken, and the thread ends.
 *
 * Time is read once for a batch of packets (now_ns: when answers came), and again before a send when work was done since
 * (ls_stress_worker_now). */
#ifndef LS_STRESS_WORKER_H
#define LS_STRESS_WORKER_H

#include <stdatomic.h>

#include "base/thread.h"
#include "port/datagram.h"
#include "port/port.h"
#include "proto/http1_chunk.h"
#include "proto/http1_parse_response.h"
#include "stress/checks.h"
#include "stress/counters.h"
#include "stress/plan.h"

typedef struct ls_stress_worker ls_stress_worker;
typedef struct ls_stress_vu ls_stress_vu;
typedef struct ls_stress_script ls_stress_script;

/* One request on its way. */
typedef struct ls_stress_request {
    uint64_t due_ns, sent_ns; /* closed loop: due when sent */
    bool to_head;
} ls_stress_request;

typedef enum ls_stress_vu_state {
    LS_STRESS_VU_CLOSED, /* no socket */
    LS_STRESS_VU_CONNECTING,
    LS_STRESS_VU_OPEN,
    LS_STRESS_VU_CLOSING /* the socket is closed, packets are still to come */
} ls_stress_vu_state;

struct ls_stress_vu {
    ls_op rx, tx;
    ls_sock *sock;
    ls_stress_worker *worker;
    uint32_t index;  /* in the whole run, from 0 */
    uint8_t state;   /* ls_stress_vu_state */
    uint8_t pending; /* operations whose packets are to come */
    bool rx_pending, tx_pending;
    bool listed;                 /* on the worker's list of free ones */
    bool parked;                 /* not in use now: a stage has fewer connections, or its sends are done */
    bool sleeping;               /* its script said to wait before the next request */
    bool settled;                /* its first attempt to connect has ended */
    bool used;                   /* this connection has had an answer */
    bool broken;                 /* to be connected again at the next pulse, not at once */
    bool opening;                /* on the list of those to open */
    uint32_t room;               /* of the next receive: LS_BLOCK_SMALL or LS_BLOCK_LARGE */
    uint32_t outstanding, first; /* asks[(first + i) % pipeline], i < outstanding, are on their way */
    uint32_t to_retry;           /* to be asked on a new connection, as the server closed this one in order */
    uint64_t began_ns;           /* connecting since */
    uint64_t left;               /* requests that it is still to make; UINT64_MAX: no limit */
    ls_stress_request *requests;
    ls_stress_vu *next, *again; /* on the list of free ones; of those to open */
    ls_slice slice;             /* what tx sends */
    char *big;                  /* the slice's bytes when they are too many for a block */
    ls_datagram *datagram;      /* of a datagram target */
    ls_timer *timer;            /* of the script's delays; NULL without */
    bool timing;                /* a scenario's sleep is armed, or its packet is to come: then it is not closed yet */

    /* http: the answer that is coming */
    uint8_t phase;
    uint32_t held_len, held_room;
    char *held; /* the head while it is not complete, or what the script wants to see; NULL until needed */
    ls_http_response head;
    uint64_t body_left, body_len;
    uint32_t crc;
    bool differs; /* from the body that is expected */
    ls_chunks chunks;

    /* echo */
    uint64_t sent_count, echo_count; /* messages composed, messages that came back */
    uint32_t echo_at, echo_len;      /* of `text`, compared so far */
    char *text;                      /* the message that is to come back next */

    struct ls_stress_scenario *scenario;
};

/* What the bytes mean. Where a function returns bool, false says that the connection is of no use any more; who says so
 * has counted why, and has closed or reopened it. */
typedef struct ls_stress_proto {
    bool (*opened)(ls_stress_vu *u); /* connected; may be NULL */
    bool (*received)(ls_stress_vu *u, const char *bytes,
                     size_t len);                     /* bytes of an open connection, or one datagram */
    void (*ended)(ls_stress_vu *u);                   /* the peer sent its end */
    bool (*compose)(ls_stress_vu *u, uint32_t count); /* the bytes of `count` requests into u->slice */
    void (*lost)(ls_stress_vu *u);                    /* the socket goes: forget what was half there */
    void (*flushed)(ls_stress_vu *u);                 /* a send that was pending has ended well; may be NULL */
    void (*free)(ls_stress_vu *u);                    /* the worker closes; may be NULL */
    void (*begin)(ls_stress_vu *u); /* NULL: compose and send; else start the one request, whose ask is noted */
} ls_stress_proto;

void ls_http_prepare(void); /* once, before any worker runs */

extern const ls_stress_proto ls_stress_http, ls_stress_echo, ls_stress_scenario_proto;

enum { LS_HEAD_CACHE_BYTES = 1024 };

struct ls_stress_worker {
    const ls_stress_plan *plan;
    unsigned index;
    const ls_stress_proto *proto;
    ls_pools *pools;
    ls_pool *pool;
    ls_port *port;
    ls_thread_ctx ctx;
    ls_thread thread;
    ls_addr addr; /* whom it asks: the plan's, or what a script's setup said */
    ls_sockaddr to;

    uint64_t now_ns;   /* of this batch of packets */
    uint64_t fresh_ns; /* read again since, when `stale` */
    bool stale;

    ls_stress_vu *vus;
    ls_stress_request *requests;
    uint32_t vu_count, first_vu;
    uint32_t
        pipeline;   /* requests of one virtual user on their way: the plan's, or how many the script's string holds */
    uint32_t batch; /* requests that are asked together or not at all (wrk scripts), else 1 */
    ls_stress_vu *free_first, **free_last; /* open loop: connected, nothing to do */
    ls_stress_vu *open_first, **open_last; /* to be connected after this batch, as many at a time as OPENING_MAX */
    uint32_t opening, settled_vus;
    uint32_t active; /* virtual users 0 .. active-1 are in use: stages of connections */

    bool going, ending, done;   /* after go; no new requests; nothing is left */
    bool stop_asked, end_asked; /* looked at after each batch */
    bool any_broken;            /* some virtual user waits for the pulse to be connected again */
    bool open_loop;
    uint64_t start_ns, end_ns, ended_ns;
    uint64_t left;        /* requests this worker is still to make; UINT64_MAX: no limit */
    uint64_t noticed;     /* open loop: of this worker's turns (arrivals.c), those seen to be due; */
    uint64_t taken;       /*            of these, those that a virtual user took */
    uint64_t next_ns;     /*            when the first that is not taken is due */
    uint64_t behind_ns;   /*            how long after it was due the last was taken */
    uint64_t wanted_ns;   /* ls_thread_wanted_ns at the beginning */
    uint64_t busy;        /* requests on their way, all virtual users together */
    uint64_t to_retry;    /* requests to be asked again, likewise */
    uint32_t unclosed;    /* virtual users with a socket or packets to come */
    ls_timer tick, pulse; /* the next arrival; what is looked at now and then */
    uint64_t scanned_ns, grace_ns;

    ls_stress_counters count;
    ls_stress_checks checks;
    ls_stress_script *script;
    _Atomic int first_error; /* LS_E* of the first connection that failed; written by the worker alone */
    char first_failure[256]; /* the first answer that broke the protocol; read after the join */

    uint32_t cached_len; /* the head seen last, and what it said: the next is mostly the same */
    bool cached_to_head;
    ls_http_response cached;
    char cache[LS_HEAD_CACHE_BYTES];

    void (*settled)(ls_stress_worker *w, void *user); /* all connections are made, or failed; in the worker's thread */
    void (*over)(ls_stress_worker *w, void *user);    /* the thread is about to end */
    void *user;
};

/* Prepare everything that can fail; `script` may be NULL and is the worker's to use, not to close. LS_OK; or an error
 * and nothing is left open. */
int ls_stress_worker_open(ls_stress_worker *w, const ls_stress_plan *plan, unsigned index, uint32_t first_vu,
                          uint32_t vu_count, ls_stress_script *script);
int ls_stress_worker_start(ls_stress_worker *w);                  /* the thread begins to connect */
void ls_stress_worker_go(ls_stress_worker *w, uint64_t start_ns); /* any thread, once, after settled() */
void ls_stress_worker_stop(ls_stress_worker *w);                  /* any thread: end early */
void ls_stress_worker_join(ls_stress_worker *w);
void ls_stress_worker_close(ls_stress_worker *w); /* joined, or never started */

/* ---- inside, in the worker's thread ------------------------------------------------------------------------------ */

uint64_t ls_stress_worker_now(ls_stress_worker *w); /* the clock, if something was sent since it was read */
void ls_stress_worker_note_failure(ls_stress_worker *w, const char *why, const char *bytes, size_t len);
void ls_stress_worker_stop_inside(ls_stress_worker *w); /* thread:stop() */
void ls_stress_worker_check(ls_stress_worker *w, const char *name, size_t len, bool passed);

/* worker.c, called by the others */
void ls_stress_worker_settle(ls_stress_worker *w,
                             ls_stress_vu *u); /* its first attempt to connect has ended, one way or the other */
void ls_stress_worker_closed(ls_stress_worker *w,
                             ls_stress_vu *u);   /* it has no socket, and no packet of it is to come any more */
void ls_stress_worker_look(ls_stress_worker *w); /* a request has ended: is that all? */

/* arrivals.c */
void ls_stress_worker_free(ls_stress_worker *w,
                           ls_stress_vu *u); /* open, and may be asked: in closed loop it is, at once */
void ls_stress_worker_arrivals(
    ls_stress_worker *w); /* open loop: those that are due go to free virtual users; the tick comes for the next */
void ls_stress_worker_count_unsent(
    ls_stress_worker *w); /* at the end: what was due and never sent; its age is a corrected latency */
void ls_stress_worker_ticked(ls_thread_ctx *ctx, ls_op *op);
void ls_stress_worker_slept(ls_thread_ctx *ctx, ls_op *op); /* op.key: a virtual user whose script's delay is over */

/* vu.c */
int ls_stress_vu_open(ls_stress_vu *u); /* closed: begin to connect. LS_OK; an error is counted, and no packet comes */
void ls_stress_vu_close(
    ls_stress_vu *u); /* ls_stress_worker_closed() follows, and may open it anew. Harmless when it is closed */
void ls_stress_vu_due(ls_stress_vu *u, uint32_t i,
                      uint64_t due_ns); /* open loop, before ls_stress_vu_request: when its i-th is due */
void ls_stress_vu_request(ls_stress_vu *u, uint32_t count);
void ls_stress_vu_retry_later(ls_stress_vu *u); /* what is on its way is to be asked again on the next connection */
void ls_stress_vu_retry(ls_stress_vu *u);       /* that */
void ls_stress_vu_timed_out(ls_stress_vu *u);
void ls_stress_vu_timed(ls_stress_vu *u); /* the packet of its timer has come while it closes: `timing` is false now */
bool ls_stress_vu_room(ls_stress_vu *u, size_t len, char **out);      /* len bytes for u->slice; false: no memory */
bool ls_stress_vu_more_room(ls_stress_vu *u, size_t len, char **out); /* len bytes more, behind those */
bool ls_stress_vu_send(ls_stress_vu *u); /* u->slice leaves; false: the connection failed */
void ls_stress_vu_fail(ls_stress_vu *u,
                       ls_stress_error kind); /* what is on its way failed; the connection is opened anew */
void ls_stress_vu_answered(ls_stress_vu *u, unsigned status); /* the oldest request; 0: the protocol has no status */

#endif
