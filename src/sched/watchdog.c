/* watchdog.c - the thread that notices a worker which stays inside one packet.
 *
 * It ticks while anybody works and sleeps when for half a second nobody did. It alone reads the clock: a worker only
 * counts. Falling asleep needs care, because a worker publishes its count with a plain store and then reads
 * `watchdog_asleep`, so the two may pass each other unseen. The watchdog therefore raises its flag one tick before it sleeps
 * and looks at all counts again. A worker that missed the flag stored its count before the flag became visible to it,
 * a whole tick ago: the count is seen. One that begins later sees the flag. */
#include "base/clock.h"
#include "sched/workers_internal.h"

enum {
    WATCHDOG_TICK_SHORT_MS = LS_STALL_MS / 2, /* two ticks, a short and a long one, are LS_STALL_MS */
    WATCHDOG_TICK_LONG_MS = LS_STALL_MS - WATCHDOG_TICK_SHORT_MS,
    WATCHDOG_TICKS = 1000 / LS_STALL_MS, /* half a second */
};

/* Take what the worker has not begun and give it to the port. The mutex is held: the worker waits for it before it
 * uses its packets again. */
static void watchdog_take_back(ls_workers *workers, ls_worker *worker)
{
    uint64_t claim = atomic_load_explicit(&worker->claim, memory_order_acquire);
    const int begun = batch_claim_begun(claim), count = batch_claim_count(claim);
    if (begun == count ||
        !atomic_compare_exchange_strong_explicit(&worker->claim, &claim, batch_claim(claim >> 16, count, count),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    for (int i = begun; i < count; i++) {
        const ls_packet *packet = &worker->packets[i];
        if (ls_port_requeue(workers->port, packet) < 0) worker->kept[worker->kept_count++] = *packet;
    }
}

/* Look at every worker once; the mutex is held. true: somebody works, or has since the last look. */
static bool watchdog_look(ls_workers *workers)
{
    const uint64_t now = ls_clock_ns();
    bool busy = false;
    for (unsigned i = 0; i < workers->options.threads_max; i++) {
        ls_worker *worker = &workers->list[i];
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
            watchdog_take_back(workers, worker);
            ls_port_detach(workers->port, &worker->ctx);
            ls_workers_set_stalled(workers, worker, true);
        }
    }
    return busy;
}

/* Without the mutex: the callback may do what it likes, and stalled_ms is ours. */
static void watchdog_on_stall(ls_workers *workers)
{
    const ls_workers_options *options = &workers->options;
    if (options->on_stall == NULL) return;
    for (unsigned i = 0; i < options->threads_max; i++)
        if (workers->list[i].stalled_ms > 0)
            options->on_stall(&workers->list[i].ctx, workers->list[i].stalled_ms, options->user);
}

/* Without the mutex, too. */
static void watchdog_on_tick(ls_workers *workers, bool idle)
{
    if (workers->options.on_tick != NULL) workers->options.on_tick(idle, workers->options.user);
}

void ls_watchdog_run(void *arg)
{
    ls_workers *workers = arg;
    unsigned idle = 0, ticks = 0;
    uint32_t tick_ms = WATCHDOG_TICK_SHORT_MS;
    ls_mutex_lock(&workers->mutex);
    while (workers->alive > 0) {
        ls_cond_wait_ms(&workers->watchdog_wake, &workers->mutex, tick_ms);
        tick_ms = LS_STALL_MS - tick_ms;
        if (watchdog_look(workers)) {
            idle = 0;
            atomic_store_explicit(&workers->watchdog_asleep, false, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            watchdog_on_stall(workers);
            if (++ticks % WATCHDOG_TICKS == 0) watchdog_on_tick(workers, false);
            ls_mutex_lock(&workers->mutex);
        } else if (++idle == WATCHDOG_TICKS) {
            atomic_store_explicit(&workers->watchdog_asleep, true, memory_order_relaxed);
            ls_mutex_unlock(&workers->mutex);
            watchdog_on_tick(workers, true);
            ls_mutex_lock(&workers->mutex);
        } else if (idle > WATCHDOG_TICKS) {
            while (workers->alive > 0 && atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed))
                ls_cond_wait(&workers->watchdog_wake, &workers->mutex);
            idle = 0;
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
