/* workers_internal.h - what workers.c (the workers) and watchdog.c (the watchdog) share. Nobody else includes it.
 *
 * Hot path. A worker owns the cache lines of its ls_worker and writes two words there per packet: `turn`, which is odd
 * while it is inside a packet, and `claim`, from which it takes the next packet of its batch. The watchdog reads both, and
 * takes what was not begun by changing `claim` itself. Everything else is under the workers' mutex, which a worker takes
 * only when it becomes idle, leaves, comes back from being stalled, or finds the watchdog asleep.
 *
 *     claim = batch << 16 | begun << 8 | count      packets[begun .. count - 1] are whoever's changes begun to count
 *     active = workers whose idle is false and that have not left
 *     active - stalled <= threads, or excess > 0     (under the mutex) */
#ifndef LS_SCHED_WORKERS_INTERNAL_H
#define LS_SCHED_WORKERS_INTERNAL_H

#include "base/thread.h"
#include "sched/workers.h"

enum { WORKERS_LINE = 64 };

typedef struct ls_worker {
    _Alignas(WORKERS_LINE) ls_thread_ctx ctx;
    ls_workers *workers;
    uint64_t batch;                         /* its own count of batches: tells claims apart */
    ls_packet packets[LS_WAIT_PACKETS_MAX]; /* the batch; the watchdog reads what it took from `claim` */

    _Alignas(WORKERS_LINE) _Atomic uint64_t turn;
    _Atomic uint64_t claim;
    _Atomic bool stalled; /* written under the mutex, read by the worker before it waits */

    _Alignas(WORKERS_LINE) uint64_t seen_turn; /* the watchdog's, from here */
    uint64_t seen_ns;
    uint32_t stalled_ms;
    ls_packet kept[LS_WAIT_PACKETS_MAX]; /* under the mutex: taken back, but the port had no memory for them */
    int kept_count;
    bool idle; /* under the mutex */
    ls_cond resume;
    ls_thread thread;
} ls_worker;

struct ls_workers {
    ls_port *port;
    ls_workers_options options;
    int wait_max; /* packets that a worker takes at a time */
    ls_worker *list;

    _Alignas(WORKERS_LINE) _Atomic bool stop; /* these three are read on the hot path and hardly ever written */
    _Atomic bool watchdog_asleep;
    _Atomic unsigned excess; /* workers that should park */

    _Alignas(WORKERS_LINE) ls_mutex mutex;
    ls_cond ended;          /* `alive` fell to 0 */
    ls_cond watchdog_wake;  /* `watchdog_asleep` was cleared, or `alive` fell to 0 */
    unsigned alive, active; /* threads that have not left; those of them that are not idle */
    _Atomic unsigned stalled;
    _Atomic uint64_t standbys_released;
    ls_op stop_op;    /* the packet that ends a worker; each that leaves posts it for the next */
    unsigned started; /* threads to join */
    bool watchdog_started;
    ls_thread watch;
};

static inline uint64_t batch_claim(uint64_t batch, int begun, int count)
{
    return batch << 16 | (uint64_t)begun << 8 | (uint64_t)count;
}

static inline int batch_claim_begun(uint64_t claim)
{
    return (int)(claim >> 8 & 255);
}

static inline int batch_claim_count(uint64_t claim)
{
    return (int)(claim & 255);
}

/* The mutex is held, and active or stalled has changed: release standby threads, or say how many have to park. */
void ls_workers_balance(ls_workers *workers);

/* Mark the worker as stalled or not; the mutex is held. */
void ls_workers_set_stalled(ls_workers *workers, ls_worker *worker, bool stalled);

/* The watchdog's thread; ends when `alive` is 0. */
void ls_watchdog_run(void *workers);

/* A worker found watchdog_asleep set. */
void ls_watchdog_wake(ls_workers *workers);

#endif
