/* workers.h - the threads of a port: workers, standby threads, and the watchdog that replaces a stalled worker.
 *
 * `threads` workers (the concurrency value) wait at the port and dispatch packets: at most LS_WAIT_PACKETS per wait,
 * or LS_WAIT_PACKETS_MAX with a single worker. Every worker counts the packets it begins. The watchdog is a thread
 * that sleeps while no worker is busy; otherwise it compares the counts once in LS_STALL_MS. A worker whose count has
 * not changed is stalled, after twice that time at the latest: its handler is slow or blocks. The watchdog returns the
 * packets of its batch that it has not begun to the port and releases a standby thread in its place, up to threads_max.
 * When the stalled worker returns, one worker is too many; it detects that before its next wait and becomes idle.
 *
 * Standby threads are started when they are needed; one that has been idle for standby_idle_ms_max ends. One that is
 * not idle hands its work to an idle one of the first `threads`, which stay.
 *
 * A stalled worker that computes runs at a lower priority from then on, so that the others hardly notice it. When it
 * returns, it runs at the normal priority again; where the system does not allow that, the thread ends and another one
 * is started when it is needed.
 *
 *     active workers that are not stalled <= threads, and for some milliseconds as many more as have just stalled */
#ifndef LS_SCHED_WORKERS_H
#define LS_SCHED_WORKERS_H

#include "port/port.h"

enum { LS_STALL_MS = 5 };
/* A worker returns to the port after this time of inline completions, so that a client that sends or takes data all
 * the time does not keep it from the packets of others. */
enum { LS_WORKER_INLINE_MS_MAX = 2 };
enum { LS_LATER_OPS_MAX = 64, LS_LATER_MS_MAX = 2 }; /* ls_workers_later */

typedef struct ls_workers ls_workers;

typedef struct ls_workers_options {
    unsigned threads;             /* concurrency value, >= 1 */
    unsigned threads_max;         /* including standby threads, >= threads */
    uint32_t standby_idle_ms_max; /* 0: 10 s */

    /* Callbacks; each may be NULL. */

    /* Handles a packet without an op: a post or a notification. */
    void (*on_user_packet)(ls_thread_ctx *ctx, const ls_packet *packet);
    /* On the watchdog's thread: the worker of `ctx` has been inside one packet for about ms. Called every 2 to 3 ms
     * until it returns; the worker may have returned by the time of the call. Returns the processor time in ns since
     * the first call for the packet; a worker that uses much of it runs at a lower priority from then on. */
    uint64_t (*on_stall)(ls_thread_ctx *ctx, uint32_t ms, void *user);
    /* On the watchdog's thread: called every half second while packets arrive. idle=true: no worker was busy for
     * half a second; the next call follows when work resumes, or after half a second if the call returns true. */
    bool (*on_tick)(bool idle, void *user);
    /* On the watchdog's thread, or in ls_workers_join: the thread with this context has ended; another one may be
     * started with the same context. */
    void (*on_thread_end)(ls_thread_ctx *ctx, void *user);
    void *user; /* argument of on_stall, on_tick and on_thread_end */
} ls_workers_options;

/* Create the thread contexts of the workers, each with a buffer pool; starts no thread. */
int ls_workers_open(ls_port *port, ls_pools *pools, const ls_workers_options *options, ls_workers **out);

/* The thread context of a worker; index: 0 to threads - 1. */
ls_thread_ctx *ls_workers_ctx(ls_workers *workers, unsigned index);

/* Start the threads. On failure the threads that did start have ended. */
int ls_workers_start(ls_workers *workers);

/* Request the workers to end after their current packet; returns immediately. Any thread. Packets that were not begun
 * stay in the port; the port's owner takes them after the join and before ls_workers_close. */
void ls_workers_stop(ls_workers *workers);

/* Inside a packet: run the op later on this thread, as the packet of a post (op->done, op->actor; op->result is not
 * kept). It runs after the packets that the thread has taken with this one, and after the ops of earlier calls. It
 * cannot fail, because the operation is the node.
 *
 * Each op counts as a packet: for the watchdog, for the priority, and for ls_workers_snapshot. So it loads what it
 * finds through an atomic pointer when it runs, and never takes it from the packet that has called this.
 *
 * The ops that were not begun go to the port, in their order, for any worker
 *     - when the thread stalls: in the packet that has called this, or in another one before the op
 *     - after LS_LATER_OPS_MAX ops for each packet that the thread has taken, or LS_LATER_MS_MAX in several ops
 *     - when the thread must become idle, or the workers stop
 * and ops of later calls may then run before them. A thread that is no worker, or not inside a packet, posts the op to
 * the port at once. */
void ls_workers_later(ls_thread_ctx *ctx, ls_op *op);

/* Wait until all threads have ended, at most ms (0: no limit). false: a worker is still inside a handler. */
bool ls_workers_join(ls_workers *workers, uint32_t ms);
/* Instead of the join and the close: the threads that have not ended continue. Each ends after its current packet, and
 * uses `workers`, the port and the pools until then. Returns their number. */
unsigned ls_workers_leave(ls_workers *workers);
void ls_workers_close(ls_workers *workers); /* joined, or never started */

/* Quiescence: when an object that packets find through an atomic pointer may be freed. Replace the pointer, take a
 * snapshot, and free the object once ls_workers_passed: every worker then waits, or has begun another packet since the
 * snapshot, so that no packet that found the object is running. A packet that suspends and keeps a reference beyond
 * its end must count it by other means.
 *
 * `turns` has room for threads_max numbers. Any thread but a worker's; a worker that stays inside one packet never
 * passes it. */
void ls_workers_snapshot(ls_workers *workers, uint64_t *turns);
bool ls_workers_passed(const ls_workers *workers, uint64_t *turns);

typedef struct ls_workers_stats {
    unsigned threads, threads_max, stalled; /* stalled: now inside a handler for longer than LS_STALL_MS */
    uint64_t standbys_released;
    ls_thread_stats sum; /* sum over all workers */
} ls_workers_stats;
void ls_workers_stat(const ls_workers *workers, ls_workers_stats *out);

typedef struct ls_worker_look { /* what a thread does now */
    bool inside; /* a packet; else it waits for one */
    uint32_t ms; /* in the same packet, as far as the watchdog knows: 0 means less than some milliseconds */
} ls_worker_look;
/* Of the first `max` threads that were started so far, those that have ended included; returns their number. Any thread. */
unsigned ls_workers_look(const ls_workers *workers, ls_worker_look *out, unsigned max);

#endif
