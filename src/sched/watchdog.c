/* watchdog.c - the thread that detects a worker which stays inside one packet.
 *
 * It scans the workers while any of them is active, and sleeps after half a second without a packet. Only the watchdog
 * reads the clock; a worker only counts. Going to sleep needs care: a worker publishes its count with a plain store
 * and then reads `watchdog_asleep`, so each side may miss the other's write. The watchdog therefore sets the flag one
 * scan before it sleeps and reads all counts again. A worker that missed the flag stored its count before the flag
 * became visible to it, a whole scan ago: the watchdog sees the count. A worker that stores its count later sees the
 * flag. */
#include "base/clock.h"
#include "sched/workers_internal.h"

enum {
    SCAN_SHORT_MS = LS_STALL_MS / 2, /* a short and a long interval add up to LS_STALL_MS */
    SCAN_LONG_MS = LS_STALL_MS - SCAN_SHORT_MS,
    SCANS_PER_TICK = 1000 / LS_STALL_MS, /* half a second */
};

/* Claim the packets that the worker has not begun and return them to the port. The caller holds the mutex, which the
 * worker takes before it uses its packets again. */
static void requeue_unstarted(ls_workers *workers, ls_worker *worker)
{
    uint64_t claim = atomic_load_explicit(&worker->claim, memory_order_acquire);
    const int begun = batch_claim_begun(claim), count = batch_claim_count(claim);
    if (begun == count ||
        !atomic_compare_exchange_strong_explicit(&worker->claim, &claim, batch_claim(claim >> 16, count, count),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    for (int i = begun; i < count; i++) {
        const ls_packet *packet = &worker->packets[i];
        if (ls_port_requeue(workers->port, packet) < 0) worker->leftover[worker->leftover_count++] = *packet;
    }
}

/* Read the count of every worker. The caller holds the mutex. true: a worker is inside a packet or has begun one since
 * the last scan. */
static bool scan(ls_workers *workers)
{
    const uint64_t now = ls_clock_ns();
    bool busy = false;
    for (unsigned i = 0; i < workers->options.threads_max; i++) {
        ls_worker *worker = &workers->array[i];
        const uint64_t turn = atomic_load_explicit(&worker->turn, memory_order_acquire);
        worker->stalled_ms = 0;
        if (turn != worker->seen_turn) {
            worker->seen_turn = turn;
            worker->seen_ns = now;
            busy = true;
            ls_workers_set_stalled(workers, worker, false);
        } else if (turn & 1) {
            busy = true;
            const uint64_t ms = (now - worker->seen_ns) / 1000000;
            if (ms < LS_STALL_MS) continue;
            worker->stalled_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
            requeue_unstarted(workers, worker);
            ls_port_detach(workers->port, &worker->ctx);
            ls_workers_set_stalled(workers, worker, true);
        }
    }
    return busy;
}

/* Called without the mutex: the callback may call any function. Only this thread uses stalled_ms. */
static void report_stalls(ls_workers *workers)
{
    const ls_workers_options *options = &workers->options;
    if (options->on_stall == NULL) return;
    for (unsigned i = 0; i < options->threads_max; i++)
        if (workers->array[i].stalled_ms > 0)
            options->on_stall(&workers->array[i].ctx, workers->array[i].stalled_ms, options->user);
}

/* Called without the mutex, as above. */
static void report_tick(ls_workers *workers, bool idle)
{
    if (workers->options.on_tick != NULL) workers->options.on_tick(idle, workers->options.user);
}

void ls_watchdog_run(void *arg)
{
    ls_workers *workers = arg;
    unsigned idle_scans = 0, busy_scans = 0;
    uint32_t interval_ms = SCAN_SHORT_MS;
    ls_mutex_lock(&workers->mutex);
    while (workers->alive > 0) {
        ls_cond_wait_ms(&workers->watchdog_wake, &workers->mutex, interval_ms);
        interval_ms = LS_STALL_MS - interval_ms;
        if (scan(workers)) {
            idle_scans = 0;
            atomic_store_explicit(&workers->watchdog_asleep, false, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            report_stalls(workers);
            if (++busy_scans % SCANS_PER_TICK == 0) report_tick(workers, false);
            ls_mutex_lock(&workers->mutex);
        } else if (++idle_scans == SCANS_PER_TICK) {
            atomic_store_explicit(&workers->watchdog_asleep, true, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            report_tick(workers, true);
            ls_mutex_lock(&workers->mutex);
        } else if (idle_scans > SCANS_PER_TICK) {
            while (workers->alive > 0 && atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed))
                ls_cond_wait(&workers->watchdog_wake, &workers->mutex);
            idle_scans = 0;
        }
    }
    ls_mutex_unlock(&workers->mutex);
}

void ls_watchdog_wake(ls_workers *workers)
{
    ls_mutex_lock(&workers->mutex);
    if (atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed)) {
        atomic_store_explicit(&workers->watchdog_asleep, false, memory_order_relaxed);
        ls_cond_signal(&workers->watchdog_wake);
    }
    ls_mutex_unlock(&workers->mutex);
}
