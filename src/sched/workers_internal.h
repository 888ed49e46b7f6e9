/* workers_internal.h - state shared by workers.c and watchdog.c. No other file of src/ includes it.
 *
 * Hot path. A worker owns the cache lines of its ls_worker and writes two words there per packet: `turn`, which is odd
 * while it is inside a packet, and `claim`, from which it takes the next packet of its batch. The watchdog reads both,
 * and takes packets that were not begun by changing `claim` itself, ops that run later by emptying `later`. Everything
 * else is under the mutex of ls_workers, which a worker takes only to become idle, to exit, after a stall, or when it
 * finds the watchdog asleep.
 *
 *     claim = batch << 16 | begun << 8 | count      the thread that sets begun to count owns packets[begun .. count -
 *                                                   1]
 *     later = the ops of ls_workers_later that were not begun, or NULL for a moment while the worker changes the list
 *     turn is even  =>  later == NULL
 *     active = workers that run and whose idle is false
 *     active - stalled <= threads + burst, or excess > 0     (under the mutex) */
#ifndef LS_SCHED_WORKERS_INTERNAL_H
#define LS_SCHED_WORKERS_INTERNAL_H

#include "base/os/thread.h"
#include "sched/workers.h"

enum { CACHE_LINE_BYTES = 64 };

typedef struct ls_worker {
    _Alignas(CACHE_LINE_BYTES) ls_thread_ctx ctx;
    ls_workers *workers;
    uint64_t batch;                         /* counts the batches: distinguishes their claims */
    ls_op *later_last;                      /* of the list `later`, unless that is empty */
    ls_packet packets[LS_WAIT_PACKETS_MAX]; /* the batch; the watchdog reads the packets it claimed */

    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t turn;
    _Atomic uint64_t claim;
    _Atomic(ls_op *) later; /* oldest first */
    _Atomic bool stalled;   /* these two are written under the mutex, and read by the worker before it waits */
    _Atomic bool low;       /* its thread has the lower priority */

    _Alignas(CACHE_LINE_BYTES) uint64_t seen_turn; /* from here: used by the watchdog */
    uint64_t seen_ns;
    _Atomic uint32_t inside_ms; /* in one packet; 0: not since the last scan; written by the watchdog */
    ls_packet leftover[LS_WAIT_PACKETS_MAX]; /* under the mutex: claimed, but the port had no memory to requeue them */
    int leftover_count;
    bool idle; /* under the mutex, like the rest */
    /* Of the thread. ENDED: not joined. LEFT: it is not joined at all, and may run. */
    enum ls_worker_life { WORKER_NONE, WORKER_RUNS, WORKER_ENDED, WORKER_LEFT } life;
    uint32_t thread_id;
    ls_cond resume;
    ls_thread thread;
} ls_worker;

struct ls_workers {
    ls_port *port;
    ls_pools *pools;
    ls_workers_options options;
    int wait_max; /* packets per wait */
    ls_worker *array;
    _Atomic unsigned opened; /* workers 0 to opened - 1 are initialized; under the mutex, grows */

    _Alignas(CACHE_LINE_BYTES) _Atomic bool stop; /* these three are read on the hot path and rarely written */
    _Atomic bool watchdog_asleep;
    _Atomic unsigned excess; /* number of workers that must become idle */

    _Alignas(CACHE_LINE_BYTES) ls_mutex mutex;
    ls_cond ended;          /* `alive` fell to 0 */
    ls_cond watchdog_wake;  /* `watchdog_asleep` was cleared, or `alive` fell to 0 */
    unsigned alive, active; /* threads that have not exited; those of them that are not idle */
    unsigned burst;         /* may run in addition to `threads`: others have just stalled (watchdog.c) */
    _Atomic unsigned stalled;
    _Atomic uint64_t standbys_released;
    ls_op stop_op; /* the packet that ends a worker; each worker posts it again when it exits */
    bool watchdog_started;
    bool start_failed; /* logged */
    ls_thread watchdog;
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

/* Release standby threads that are idle, or set how many workers must idle. The caller holds the mutex and has changed
 * active or stalled. */
void ls_workers_balance(ls_workers *workers);

/* Join the threads that have ended, and start threads while too few run. true: a thread is about to end. The caller
 * holds the mutex and is the watchdog: a new thread has the priority of the thread that starts it. */
bool ls_workers_replace(ls_workers *workers);

/* Mark the worker as stalled or not. The caller holds the mutex. */
void ls_workers_set_stalled(ls_workers *workers, ls_worker *worker, bool stalled);

/* Return what the worker has not begun to the port: the rest of its batch, and the ops that run later. The caller holds
 * the mutex, which the worker takes before it uses its packets again. */
void ls_workers_requeue_unstarted(ls_workers *workers, ls_worker *worker);

/* Post the ops of a list, or of an empty one (NULL). */
void ls_workers_post_list(ls_workers *workers, ls_op *first);

/* Main function of the watchdog's thread; returns when the workers are stopped and `alive` is 0. */
void ls_watchdog_run(void *workers);

/* Wake the watchdog; a worker calls it when it finds watchdog_asleep set. The second form: the caller holds the
 * mutex. */
void ls_watchdog_wake(ls_workers *workers);
void ls_watchdog_wake_locked(ls_workers *workers);

#endif
