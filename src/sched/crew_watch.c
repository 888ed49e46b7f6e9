/* crew_watch.c - the thread that notices a worker which stays inside one packet.
 *
 * It ticks while anybody works and sleeps when for half a second nobody did. It alone reads the clock: a worker only
 * counts. Falling asleep needs care, because a worker publishes its count with a plain store and then reads
 * `watch_asleep`, so the two may pass each other unseen. The watch therefore raises its flag one tick before it sleeps
 * and looks at all counts again. A worker that missed the flag stored its count before the flag became visible to it,
 * a whole tick ago: the count is seen. One that begins later sees the flag. */
#include "base/clock.h"
#include "sched/crew_internal.h"

enum {
    WATCH_TICK_SHORT_MS = LS_SLOW_MS / 2, /* two ticks, a short and a long one, are LS_SLOW_MS */
    WATCH_TICK_LONG_MS = LS_SLOW_MS - WATCH_TICK_SHORT_MS,
    WATCH_PULSE_TICKS = 1000 / LS_SLOW_MS, /* half a second */
};

/* Take what the worker has not begun and give it to the port. The mutex is held: the worker waits for it before it
 * uses its packets again. */
static void watch_take_back(ls_crew *crew, ls_worker *worker)
{
    uint64_t claim = atomic_load_explicit(&worker->claim, memory_order_acquire);
    const int begun = crew_claim_begun(claim), count = crew_claim_count(claim);
    if (begun == count ||
        !atomic_compare_exchange_strong_explicit(&worker->claim, &claim, crew_claim(claim >> 16, count, count),
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    for (int i = begun; i < count; i++) {
        const ls_packet *packet = &worker->packets[i];
        if (ls_port_give_back(crew->port, packet) < 0) worker->kept[worker->kept_count++] = *packet;
    }
}

/* Look at every worker once; the mutex is held. true: somebody works, or has since the last look. */
static bool watch_look(ls_crew *crew)
{
    const uint64_t now = ls_clock_ns();
    bool busy = false;
    for (unsigned i = 0; i < crew->options.threads_max; i++) {
        ls_worker *worker = &crew->workers[i];
        const uint64_t turn = atomic_load_explicit(&worker->turn, memory_order_acquire);
        worker->slow_ms = 0;
        if (turn != worker->seen_turn) {
            worker->seen_turn = turn;
            worker->seen_ns = now;
            busy = true;
            ls_crew_set_slow(crew, worker, false);
        } else if (turn & 1) {
            busy = true;
            const uint64_t ms = (now - worker->seen_ns) / 1000000;
            if (ms < LS_SLOW_MS) continue;
            worker->slow_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
            watch_take_back(crew, worker);
            ls_port_leave(crew->port, &worker->seat);
            ls_crew_set_slow(crew, worker, true);
        }
    }
    return busy;
}

/* Without the mutex: the callback may do what it likes, and slow_ms is ours. */
static void watch_tell(ls_crew *crew)
{
    const ls_crew_options *options = &crew->options;
    if (options->slow == NULL) return;
    for (unsigned i = 0; i < options->threads_max; i++)
        if (crew->workers[i].slow_ms > 0)
            options->slow(&crew->workers[i].seat, crew->workers[i].slow_ms, options->user);
}

/* Without the mutex, too. */
static void watch_pulse(ls_crew *crew, bool idle)
{
    if (crew->options.pulse != NULL) crew->options.pulse(idle, crew->options.user);
}

void ls_crew_watch(void *arg)
{
    ls_crew *crew = arg;
    unsigned idle = 0, ticks = 0;
    uint32_t tick_ms = WATCH_TICK_SHORT_MS;
    ls_mutex_lock(&crew->mutex);
    while (crew->alive > 0) {
        ls_cond_wait_ms(&crew->watch_wake, &crew->mutex, tick_ms);
        tick_ms = LS_SLOW_MS - tick_ms;
        if (watch_look(crew)) {
            idle = 0;
            atomic_store_explicit(&crew->watch_asleep, false, memory_order_relaxed);
            ls_mutex_unlock(&crew->mutex);
            watch_tell(crew);
            if (++ticks % WATCH_PULSE_TICKS == 0) watch_pulse(crew, false);
            ls_mutex_lock(&crew->mutex);
        } else if (++idle == WATCH_PULSE_TICKS) {
            atomic_store_explicit(&crew->watch_asleep, true, memory_order_relaxed);
            ls_mutex_unlock(&crew->mutex);
            watch_pulse(crew, true);
            ls_mutex_lock(&crew->mutex);
        } else if (idle > WATCH_PULSE_TICKS) {
            while (crew->alive > 0 && atomic_load_explicit(&crew->watch_asleep, memory_order_relaxed))
                ls_cond_wait(&crew->watch_wake, &crew->mutex);
            idle = 0;
        }
    }
    ls_mutex_unlock(&crew->mutex);
}

void ls_crew_wake_watch(ls_crew *crew)
{
    ls_mutex_lock(&crew->mutex);
    if (atomic_load_explicit(&crew->watch_asleep, memory_order_relaxed)) {
        atomic_store_explicit(&crew->watch_asleep, false, memory_order_relaxed);
        ls_cond_signal(&crew->watch_wake);
    }
    ls_mutex_unlock(&crew->mutex);
}
