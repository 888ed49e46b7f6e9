/* worker.h - one thread of the load generator: its own port, its virtual users (vu.h), its counters and its script.
 *
 * The threads of a client are independent, so each has a port of its own and the threads share nothing during a run:
 * the plan is read-only, each counter has one writer, and a stop is a packet. Files: worker.c (the thread, its start
 * and its end), arrivals.c (which virtual user sends when), vu.c (one connection), its transports transport_stream.c
 * and transport_udp.c (transport.h), and the protocols http.c, echo.c and scenario.c (protocol.h).
 *
 * A run of a worker:
 *     start   each virtual user connects, at most CONNECTING_MAX at a time; prepared() when all connects have ended.
 *             The main thread waits for all workers.
 *     go      closed loop: each virtual user sends a request, and the next one after each response;
 *             open loop: the arrival timer dispatches due requests to idle virtual users.
 *     end     the duration is over, all requests are made, or a stop arrived. An open loop waits for outstanding
 *             responses. Then all virtual users close, all packets arrive, and the thread ends.
 *
 * ended_ns is the end of the duration, or of a run that ends by its number of requests the last response. 0: this
 * worker had none. A delivery of a fan-out run may arrive before `go`, because another worker has begun.
 *
 * The worker reads the clock once per batch of packets (now_ns, the time of responses), and again before a send if it
 * has done work since (ls_stress_worker_now). */
#ifndef LS_STRESS_WORKER_H
#define LS_STRESS_WORKER_H

#include <stdatomic.h>

#include "base/os/thread.h"
#include "net/stream/stream.h"
#include "stress/load/protocol.h"
#include "stress/load/transport.h"
#include "stress/load/vu.h"
#include "stress/measure/checks.h"
#include "stress/measure/counters.h"
#include "stress/plan/plan.h"

typedef struct ls_stress_script ls_stress_script;
typedef struct ls_stress_fanout ls_stress_fanout;

/* The part of fanout.c in the course of a run. */
typedef struct ls_stress_fanout_hooks {
    bool (*tick)(ls_stress_worker *w);       /* about every 100 ms until the end. True: no publication follows */
    uint32_t (*room)(const ls_stress_vu *u); /* the number of messages that this publisher may send now */
    void (*ended)(ls_stress_worker *w);      /* the publishers of this worker have ended */
    bool (*complete)(ls_stress_worker *w);   /* after that: true: nothing more arrives; counts the lost messages */
} ls_stress_fanout_hooks;

enum { LS_STRESS_HEAD_CACHE_BYTES = 1024 };

struct ls_stress_worker {
    /* For ls_stress_worker_open(): set by its caller. */
    const ls_stress_plan *plan;
    unsigned index, senders;      /* of the thread; the threads that make requests are 0 .. senders-1 */
    uint32_t first_vu, vu_count;  /* its virtual users */
    const ls_stress_proto *proto; /* NULL: ls_stress_fanout_attach() gives each virtual user one */
    const ls_stress_transport *transport;
    ls_stress_script *script;                     /* or NULL; not closed */
    const struct ls_stress_script_traits *traits; /* of a script */
    uint32_t batch; /* requests in one string of a wrk script, which are sent together; else 0, and 1 from then on */
    uint64_t (*delay_ns)(ls_stress_script *script);    /* of a script for wrk that has delay(); else NULL */
    void (*prepared)(ls_stress_worker *w, void *user); /* all first connects have ended; in the worker's thread */
    void (*finished)(ls_stress_worker *w, void *user); /* the thread is about to end */
    void *user;

    ls_pools *pools;
    ls_pool *pool;
    ls_port *port;
    ls_deadlines *deadlines; /* which the streams do not use */
    ls_thread_ctx ctx;
    ls_thread thread;
    ls_op go, stop;       /* the commands: with an operation, a post needs no memory */
    _Atomic bool stopped; /* `stop` was posted */
    ls_addr addr;         /* the server: the plan's address, or the one that a script's setup() chose */
    ls_sockaddr to;

    uint64_t now_ns;   /* when this batch of packets arrived */
    uint64_t clock_ns; /* the last clock reading; out of date if clock_stale */
    bool clock_stale;

    ls_stress_vu *vus;
    ls_stress_request *requests;
    uint32_t pipeline; /* outstanding requests per virtual user: the plan's, or `batch` if that is more */
    ls_node idle;      /* open loop: virtual users that are connected and idle */
    ls_node to_open;   /* those to connect after this batch, at most CONNECTING_MAX at a time */
    uint32_t connecting, prepared_vus;
    uint32_t active; /* virtual users 0 .. active-1 are in use: stages of connections */

    bool running, ending, done;         /* after go; no new requests; the thread returns */
    bool closing;                       /* fan-out: all deliveries have arrived */
    bool by_number;                     /* fan-out: ends with the last delivery, because all publications are made */
    bool stop_requested, end_requested; /* checked after each batch */
    bool any_reconnect;                 /* a virtual user waits for the housekeeping to reconnect */
    bool open_loop;
    uint64_t start_ns, end_ns, ended_ns;  /* ended_ns: of the figures of this worker */
    uint64_t left;                        /* requests this worker has still to make; UINT64_MAX: no limit */
    uint64_t due_count;                   /* open loop: turns of this worker (arrivals.c) that are due, */
    uint64_t dispatched;                  /*            of these, turns that a virtual user took, */
    uint64_t next_due_ns;                 /*            when the first turn that waits was due, */
    uint64_t late_ns;                     /*            and how late the last turn was dispatched */
    uint64_t wanted_ns;                   /* ls_thread_wanted_ns at the start */
    uint64_t outstanding;                 /* requests, of all virtual users */
    uint64_t retries;                     /* requests to send again, of all virtual users */
    uint32_t unclosed;                    /* virtual users with a socket or pending packets */
    ls_timer arrival_timer, housekeeping; /* the next due request; time limits, reconnects, stages and the end */
    uint64_t scanned_ns, grace_ns;

    ls_stress_fanout *fanout; /* of all threads; NULL: another kind of run */
    const ls_stress_fanout_hooks *fanout_hooks;
    uint32_t publisher_count; /* fan-out: virtual users 0 .. publisher_count-1, */
    uint64_t *readers;        /*          subscribers of each topic that read, */
    uint64_t delivered_ns;    /*          the last delivery, */
    bool event_failed;    /*          a subscriber has lost its stream: do not wait long for deliveries at the end */
    uint64_t prepared_ns; /*          the last progress of the preparation */

    ls_stress_counters count;
    ls_stress_checks checks;
    struct ls_stress_deflate *deflate;       /* of --compress; else NULL */
    struct ls_stress_h2_request *h2_request; /* of --http2: the last one; else NULL */
    _Atomic int first_error;                 /* LS_E* of the first connect that failed; written by the worker alone */
    char first_failure[256];                 /* the first failure of a request; read after the join */

    uint32_t cached_len;    /* HTTP: the last head of a response, */
    ls_http1_reader cached; /*       and its reader after it; the next head is mostly the same */
    char cache[LS_STRESS_HEAD_CACHE_BYTES];
};

/* Prepare everything that can fail. Other fields than those of the caller are 0. Close it after an error, too. */
int ls_stress_worker_open(ls_stress_worker *w);
int ls_stress_worker_start(ls_stress_worker *w);                  /* start the thread, which begins to connect */
void ls_stress_worker_go(ls_stress_worker *w, uint64_t start_ns); /* any thread, once, after prepared() */
void ls_stress_worker_stop(ls_stress_worker *w);                  /* any thread, any number of times: end early */
void ls_stress_worker_join(ls_stress_worker *w);
void ls_stress_worker_close(ls_stress_worker *w); /* joined, or never started */

/* ---- in the worker's thread ------------------------------------------------------------------------------------- */

/* The time; reads the clock only if it is stale. */
uint64_t ls_stress_worker_now(ls_stress_worker *w);

/* Record why a response is invalid, with its first bytes; only the first call has an effect. */
void ls_stress_worker_record_failure(ls_stress_worker *w, const char *why, const char *bytes, size_t len);

/* End the run after this batch of packets: thread:stop(), or an error in a hook. */
void ls_stress_worker_request_stop(ls_stress_worker *w);

/* Count one outcome of the check `name` of a request. */
void ls_stress_worker_count_check(ls_stress_worker *w, ls_stress_request *request, const char *name, size_t len,
                                  bool passed);

/* The ages of requests without a response are corrected latencies: those of `count` requests, beginning with the
 * virtual user's oldest. */
void ls_stress_worker_record_ages(ls_stress_worker *w, const ls_stress_vu *u, uint32_t count);

/* Open loop, at the end: retries are not sent; they count as unsent. */
void ls_stress_worker_drop_retries(ls_stress_worker *w, ls_stress_vu *u);

/* The virtual user's first connect has succeeded or failed. */
void ls_stress_worker_vu_prepared(ls_stress_worker *w, ls_stress_vu *u);

/* The virtual user has no socket and no pending packets. */
void ls_stress_worker_vu_closed(ls_stress_worker *w, ls_stress_vu *u);

/* After a request has ended: end the run if it was the last one. */
void ls_stress_worker_check_end(ls_stress_worker *w);

#endif
