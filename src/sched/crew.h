/* crew.h - the threads of a port: workers, spares, and the watch that replaces a slow one.
 *
 * `threads` workers (the concurrency value) wait at the port and dispatch packets, at most LS_WAIT_PACKETS per wait, or
 * LS_WAIT_PACKETS_MAX where one works alone. Every worker counts the packets it begins; the watch, a thread that sleeps
 * while nobody works, compares the counts twice in LS_SLOW_MS. A worker that has not moved is inside a slow or blocking
 * handler: the packets of its batch that it has not begun go back to the port, as does what waits at its seat
 * (ls_port_leave), and a spare thread takes its place, up to threads_max. When the slow one returns, one thread too many
 * finds that out before its next wait and parks.
 *
 *     unparked workers that are not slow <= threads */
#ifndef LS_SCHED_CREW_H
#define LS_SCHED_CREW_H

#include "port/port.h"

enum { LS_SLOW_MS = 5 };

typedef struct ls_crew ls_crew;

typedef struct ls_crew_options {
    unsigned threads;     /* concurrency value, >= 1 */
    unsigned threads_max; /* with spares, >= threads */

    /* Each may be NULL. Takes packets without an op: posts and notifications. */
    void (*bare)(ls_seat *seat, const ls_packet *packet);
    /* The watch's thread: the worker of `seat` has been inside one packet for about ms; called every 2 to 3 ms while so. It
     * may have returned in the same moment. */
    void (*slow)(ls_seat *seat, uint32_t ms, void *user);
    /* The watch's thread: every half second in which somebody worked, and with `idle` when nobody has for so long, which is
     * the last until somebody does. */
    void (*pulse)(bool idle, void *user);
    void *user; /* of slow and pulse */
} ls_crew_options;

/* Make the seats (with a buffer pool each) but start nothing. */
int ls_crew_open(ls_port *port, ls_pools *pools, const ls_crew_options *options, ls_crew **out);
ls_seat *ls_crew_seat(ls_crew *crew, unsigned index); /* 0 .. threads_max - 1; set seat->user before the start */

/* Start the threads. On failure those that started have ended again. */
int ls_crew_start(ls_crew *crew);

/* Tell the workers to end after the packet they are in; returns at once. Any thread. Packets that were not begun stay in
 * the port, whose owner takes them after the join and before ls_crew_close. */
void ls_crew_stop(ls_crew *crew);

/* Wait until all have ended, at most ms (0: for ever). false: some are still inside a handler. */
bool ls_crew_join(ls_crew *crew, uint32_t ms);
void ls_crew_close(ls_crew *crew); /* joined before, or never started */

typedef struct ls_crew_stats {
    unsigned threads, threads_max, slow; /* slow: inside a handler for longer than LS_SLOW_MS right now */
    uint64_t spares_released;
    ls_seat_stats seats; /* the sum over all */
} ls_crew_stats;
void ls_crew_stat(const ls_crew *crew, ls_crew_stats *out);

#endif
