/* watchdog.c - the thread that detects a worker which stays inside one packet.
 *
 * It scans the workers every LS_STALL_MS while any of them is active, and sleeps after half a second without a packet.
 * Each scan is a timer of the system and two changes of the thread, as dear as several requests. Only the watchdog reads
 * the clock; a worker only counts. Going to sleep needs care: a worker publishes its count with a plain store and then
 * reads `watchdog_asleep`, so each side may miss the other's write. The watchdog therefore sets the flag one scan before
 * it sleeps and reads all counts again. A worker that missed the flag stored its count before the flag became visible to
 * it, a whole scan ago: the watchdog sees the count. A worker that stores its count later sees the flag. */
#include "base/clock.h"
#include "sched/workers_internal.h"

enum {
    SCAN_SHORT_MS = LS_STALL_MS / 2,
    SCANS_PER_TICK = 500 / LS_STALL_MS, /* half a second */
    TICK_MS = 500,
    LOW_CPU_MS = 20,        /* processor time of a packet, then its thread gets the lower priority */
    LOW_CPU_CROWDED_MS = 1, /* the same while all that may run are stalled */
};

/* As many workers as may run are stalled, so that more of the kind may be on their way: find them soon. */
static bool is_crowded(const ls_workers *workers)
{
    return atomic_load_explicit(&workers->stalled, memory_order_relaxed) >= workers->options.threads;
}

void ls_workers_requeue_unstarted(ls_workers *workers, ls_worker *worker)
{
    uint64_t claim = atomic_load_explicit(&worker->claim, memory_order_acquire);
    const int begun = batch_claim_begun(claim), count = batch_claim_count(claim);
    if (begun < count &&
        atomic_compare_exchange_strong_explicit(&worker->claim, &claim, batch_claim(claim >> 16, count, count),
                                                memory_order_acq_rel, memory_order_relaxed))
        for (int i = begun; i < count; i++) {
            const ls_packet *packet = &worker->packets[i];
            if (ls_port_requeue(workers->port, packet) < 0) worker->leftover[worker->leftover_count++] = *packet;
        }
    ls_workers_post_list(workers, atomic_exchange_explicit(&worker->later, NULL, memory_order_acquire));
}

/* Many handlers that compute or block may have come at once. While all that may run stall within a scan, more than
 * `threads` may run, so that the last of 32 is found after 5 scans and not after 16. */
static void set_burst(ls_workers *workers, unsigned stalled_before)
{
    const unsigned stalled = atomic_load_explicit(&workers->stalled, memory_order_relaxed),
                   fresh = is_crowded(workers) && stalled > stalled_before ? stalled - stalled_before : 0;
    if (fresh <= workers->burst && workers->burst == 0) return;
    workers->burst = fresh > workers->burst ? fresh : workers->burst - 1;
    ls_workers_balance(workers);
}

/* Read the count of every worker, and replace threads. The caller holds the mutex. true: a worker is inside a packet
 * or has begun one since the last scan, or a thread is about to end. */
static bool scan(ls_workers *workers)
{
    const uint64_t now = ls_clock_ns(), stall_ms = is_crowded(workers) ? SCAN_SHORT_MS : LS_STALL_MS;
    const unsigned stalled = atomic_load_explicit(&workers->stalled, memory_order_relaxed);
    bool busy = false;
    for (unsigned i = 0; i < workers->opened; i++) {
        ls_worker *worker = &workers->array[i];
        const uint64_t turn = atomic_load_explicit(&worker->turn, memory_order_acquire);
        atomic_store_explicit(&worker->inside_ms, 0, memory_order_relaxed);
        if (turn != worker->seen_turn) {
            worker->seen_turn = turn;
            worker->seen_ns = now;
            busy = true;
            ls_workers_set_stalled(workers, worker, false);
        } else if (turn & 1) {
            busy = true;
            const uint64_t ms = (now - worker->seen_ns) / 1000000;
            atomic_store_explicit(&worker->inside_ms, ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX, memory_order_relaxed);
            if (ms < stall_ms) continue;
            ls_workers_requeue_unstarted(workers, worker);
            ls_workers_set_stalled(workers, worker, true);
        }
    }
    set_burst(workers, stalled);
    busy |= ls_workers_replace(workers);
    return busy;
}

/* The worker computes: lower its priority, unless it has returned. */
static void lower(ls_workers *workers, ls_worker *worker)
{
    ls_mutex_lock(&workers->mutex);
    if (worker->life == WORKER_RUNS && !atomic_load_explicit(&worker->low, memory_order_relaxed) &&
        atomic_load_explicit(&worker->turn, memory_order_acquire) == worker->seen_turn) {
        atomic_store_explicit(&worker->low, true, memory_order_relaxed);
        (void)ls_thread_set_low(worker->thread_id, true);
    }
    ls_mutex_unlock(&workers->mutex);
}

/* Called without the mutex: the callback may call any function. */
static void report_stalls(ls_workers *workers)
{
    const ls_workers_options *options = &workers->options;
    const uint64_t low_ns = (is_crowded(workers) ? LOW_CPU_CROWDED_MS : LOW_CPU_MS) * UINT64_C(1000000);
    if (options->on_stall == NULL) return;
    for (unsigned i = 0; i < workers->opened; i++) {
        ls_worker *worker = &workers->array[i];
        const uint32_t ms = atomic_load_explicit(&worker->inside_ms, memory_order_relaxed);
        if (ms > 0 && options->on_stall(&worker->ctx, ms, options->user) >= low_ns) lower(workers, worker);
    }
}

/* Called without the mutex, as above. */
static bool report_tick(ls_workers *workers, bool idle)
{
    return workers->options.on_tick != NULL && workers->options.on_tick(idle, workers->options.user);
}

static bool ended(const ls_workers *workers)
{
    return workers->alive == 0 && atomic_load_explicit(&workers->stop, memory_order_relaxed);
}

void ls_watchdog_run(void *arg)
{
    ls_workers *workers = arg;
    unsigned idle_scans = 0, scans = 0; /* scans: since the last tick, also those between short and rare packets */
    bool more = false;
    ls_thread_set_brief();
    ls_mutex_lock(&workers->mutex);
    while (!ended(workers)) {
        ls_cond_wait_ms(&workers->watchdog_wake, &workers->mutex, is_crowded(workers) ? SCAN_SHORT_MS : LS_STALL_MS);
        scans++;
        if (scan(workers)) {
            idle_scans = 0;
            atomic_store_explicit(&workers->watchdog_asleep, false, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            report_stalls(workers);
            if (scans >= SCANS_PER_TICK) {
                (void)report_tick(workers, false);
                scans = 0;
            }
            ls_mutex_lock(&workers->mutex);
        } else if (++idle_scans == SCANS_PER_TICK) {
            atomic_store_explicit(&workers->watchdog_asleep, true, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            more = report_tick(workers, true);
            scans = 0;
            ls_mutex_lock(&workers->mutex);
        } else if (idle_scans > SCANS_PER_TICK) {
            while (!ended(workers) && atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed)) {
                if (!more) {
                    ls_cond_wait(&workers->watchdog_wake, &workers->mutex);
                } else if (!ls_cond_wait_ms(&workers->watchdog_wake, &workers->mutex, TICK_MS)) {
                    ls_mutex_unlock(&workers->mutex);
                    more = report_tick(workers, true);
                    ls_mutex_lock(&workers->mutex);
                }
            }
            idle_scans = 0;
        }
    }
    ls_mutex_unlock(&workers->mutex);
}

void ls_watchdog_wake_locked(ls_workers *workers)
{
    atomic_store_explicit(&workers->watchdog_asleep, false, memory_order_relaxed);
    ls_cond_signal(&workers->watchdog_wake);
}

void ls_watchdog_wake(ls_workers *workers)
{
    ls_mutex_lock(&workers->mutex);
    if (atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed)) ls_watchdog_wake_locked(workers);
    ls_mutex_unlock(&workers->mutex);
}
