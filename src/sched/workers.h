/* workers.h - the threads of a port: workers, standby threads, and the watchdog that replaces a stalled one.
 *
 * `threads` workers (the concurrency value) wait at the port and dispatch packets, at most LS_WAIT_PACKETS per wait, or
 * LS_WAIT_PACKETS_MAX where one works alone. Every worker counts the packets it begins; the watchdog, a thread that sleeps
 * while nobody works, compares the counts twice in LS_STALL_MS. A worker that has not moved is inside a stalled or blocking
 * handler: the packets of its batch that it has not begun go back to the port, as does what waits at its thread context
 * (ls_port_detach), and a standby thread takes its place, up to threads_max. When the stalled one returns, one thread too many
 * finds that out before its next wait and becomes idle.
 *
 *     active workers that are not stalled <= threads */
#ifndef LS_SCHED_WORKERS_H
#define LS_SCHED_WORKERS_H

#include "port/port.h"

enum { LS_STALL_MS = 5 };

typedef struct ls_workers ls_workers;

typedef struct ls_workers_options {
    unsigned threads;     /* concurrency value, >= 1 */
    unsigned threads_max; /* with standby threads, >= threads */

    /* Each may be NULL. Takes packets without an op: posts and notifications. */
    void (*on_user_packet)(ls_thread_ctx *ctx, const ls_packet *packet);
    /* The watchdog's thread: the worker of `thread context` has been inside one packet for about ms; called every 2 to 3 ms while so. It
     * may have returned in the same moment. */
    void (*on_stall)(ls_thread_ctx *ctx, uint32_t ms, void *user);
    /* The watchdog's thread: every half second in which somebody worked, and with `idle` when nobody has for so long, which is
     * the last until somebody does. */
    void (*on_tick)(bool idle, void *user);
    void *user; /* of stalled and tick */
} ls_workers_options;

/* Make the thread contexts (with a buffer pool each) but start nothing. */
int ls_workers_open(ls_port *port, ls_pools *pools, const ls_workers_options *options, ls_workers **out);
ls_thread_ctx *ls_workers_ctx(ls_workers *workers,
                              unsigned index); /* 0 .. threads_max - 1; set thread context->user before the start */

/* Start the threads. On failure those that started have ended again. */
int ls_workers_start(ls_workers *workers);

/* Tell the workers to end after the packet they are in; returns at once. Any thread. Packets that were not begun stay in
 * the port, whose owner takes them after the join and before ls_workers_close. */
void ls_workers_stop(ls_workers *workers);

/* Wait until all have ended, at most ms (0: for ever). false: some are still inside a handler. */
bool ls_workers_join(ls_workers *workers, uint32_t ms);
void ls_workers_close(ls_workers *workers); /* joined before, or never started */

typedef struct ls_workers_stats {
    unsigned threads, threads_max, stalled; /* stalled: inside a handler for longer than LS_STALL_MS right now */
    uint64_t standbys_released;
    ls_thread_stats sum; /* the sum over all */
} ls_workers_stats;
void ls_workers_stat(const ls_workers *workers, ls_workers_stats *out);

#endif
