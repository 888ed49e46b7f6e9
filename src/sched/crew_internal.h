/* crew_internal.h - what crew.c (the workers) and crew_watch.c (the watch) share. Nobody else includes it.
 *
 * Hot path. A worker owns the cache lines of its ls_worker and writes two words there per packet: `turn`, which is odd
 * while it is inside a packet, and `claim`, from which it takes the next packet of its batch. The watch reads both, and
 * takes what was not begun by changing `claim` itself. Everything else is under the crew's mutex, which a worker takes
 * only when it parks, leaves, comes back from being slow, or finds the watch asleep.
 *
 *     claim = batch << 16 | begun << 8 | count      packets[begun .. count - 1] are whoever's changes begun to count
 *     unparked = workers whose parked is false and that have not left
 *     unparked - slow <= threads, or excess > 0     (under the mutex) */
#ifndef LS_SCHED_CREW_INTERNAL_H
#define LS_SCHED_CREW_INTERNAL_H

#include "base/thread.h"
#include "sched/crew.h"

enum { CREW_LINE = 64 };

typedef struct ls_worker {
    _Alignas(CREW_LINE) ls_seat seat;
    ls_crew *crew;
    uint64_t batch;                         /* its own count of batches: tells claims apart */
    ls_packet packets[LS_WAIT_PACKETS_MAX]; /* the batch; the watch reads what it took from `claim` */

    _Alignas(CREW_LINE) _Atomic uint64_t turn;
    _Atomic uint64_t claim;
    _Atomic bool slow; /* written under the mutex, read by the worker before it waits */

    _Alignas(CREW_LINE) uint64_t seen_turn; /* the watch's, from here */
    uint64_t seen_ns;
    uint32_t slow_ms;
    ls_packet kept[LS_WAIT_PACKETS_MAX]; /* under the mutex: taken back, but the port had no memory for them */
    int kept_count;
    bool parked; /* under the mutex */
    ls_cond unpark;
    ls_thread thread;
} ls_worker;

struct ls_crew {
    ls_port *port;
    ls_crew_options options;
    int wait_max; /* packets that a worker takes at a time */
    ls_worker *workers;

    _Alignas(CREW_LINE) _Atomic bool stop; /* these three are read on the hot path and hardly ever written */
    _Atomic bool watch_asleep;
    _Atomic unsigned excess; /* workers that should park */

    _Alignas(CREW_LINE) ls_mutex mutex;
    ls_cond ended;            /* `alive` fell to 0 */
    ls_cond watch_wake;       /* `watch_asleep` was cleared, or `alive` fell to 0 */
    unsigned alive, unparked; /* threads that have not left; those of them that are not parked */
    _Atomic unsigned slow;
    _Atomic uint64_t spares_released;
    ls_op stop_op;    /* the packet that ends a worker; each that leaves posts it for the next */
    unsigned started; /* threads to join */
    bool watch_started;
    ls_thread watch;
};

static inline uint64_t crew_claim(uint64_t batch, int begun, int count)
{
    return batch << 16 | (uint64_t)begun << 8 | (uint64_t)count;
}

static inline int crew_claim_begun(uint64_t claim)
{
    return (int)(claim >> 8 & 255);
}

static inline int crew_claim_count(uint64_t claim)
{
    return (int)(claim & 255);
}

/* The mutex is held, and unparked or slow has changed: release spares, or say how many have to park. */
void ls_crew_balance(ls_crew *crew);

/* Mark the worker as slow or not; the mutex is held. */
void ls_crew_set_slow(ls_crew *crew, ls_worker *worker, bool slow);

/* The watch's thread; ends when `alive` is 0. */
void ls_crew_watch(void *crew);

/* A worker found watch_asleep set. */
void ls_crew_wake_watch(ls_crew *crew);

#endif
