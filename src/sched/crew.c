/* crew.c - the workers: their loop, parking, and the way they start and end. The watch is in crew_watch.c; what lies in
 * which cache line, and who may touch it, in crew_internal.h.
 *
 * The end. ls_crew_stop sets `stop`, wakes the parked, and posts one packet. The worker that takes it posts it again for
 * the next before it leaves, so it reaches everybody, one after the other. A worker that sees `stop` runs no further
 * packet: it gives what it has, and what it still takes, back to the port until the stop packet comes. So whatever was
 * posted before is still in the port afterwards, for its owner to dispose of. */
#include "sched/crew_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "port/notify.h"

void ls_crew_balance(ls_crew *crew)
{
    const bool stop = atomic_load_explicit(&crew->stop, memory_order_relaxed);
    const unsigned threads = crew->options.threads;
    unsigned running = crew->unparked - atomic_load_explicit(&crew->slow, memory_order_relaxed);
    for (unsigned i = 0; i < crew->started && running < threads && !stop; i++) {
        ls_worker *spare = &crew->workers[i];
        if (!spare->parked) continue;
        spare->parked = false;
        crew->unparked++;
        running++;
        atomic_fetch_add_explicit(&crew->spares_released, 1, memory_order_relaxed);
        ls_cond_signal(&spare->unpark);
    }
    atomic_store_explicit(&crew->excess, running > threads && !stop ? running - threads : 0, memory_order_relaxed);
}

void ls_crew_set_slow(ls_crew *crew, ls_worker *worker, bool slow)
{
    if (atomic_load_explicit(&worker->slow, memory_order_relaxed) == slow) return;
    const unsigned count = atomic_load_explicit(&crew->slow, memory_order_relaxed);
    atomic_store_explicit(&crew->slow, slow ? count + 1 : count - 1, memory_order_relaxed);
    ls_crew_balance(crew);
    /* Last: the worker that no longer finds itself slow must find that it is one too many. */
    atomic_store_explicit(&worker->slow, slow, memory_order_release);
}

/* ---- a worker ---------------------------------------------------------------------------------------------- */

static void worker_run(ls_worker *worker, const ls_packet *packet)
{
    const ls_crew_options *options = &worker->crew->options;
    if (packet->op != NULL)
        ls_packet_dispatch(&worker->seat, packet);
    else if (options->bare != NULL && ls_packet_current(worker->crew->port, packet))
        options->bare(&worker->seat, packet);
}

/* Give packets that the caller has claimed back to the port. true: the stop packet was among them; that one stays. */
static bool worker_put_back(ls_worker *worker, int from, int count)
{
    ls_crew *crew = worker->crew;
    bool last = false;
    for (int i = from; i < count; i++) {
        const ls_packet *packet = &worker->packets[i];
        if (packet->op == &crew->stop_op)
            last = true;
        else if (ls_port_give_back(crew->port, packet) < 0)
            worker_run(worker, packet); /* no memory for a bare packet: better late than lost */
    }
    return last;
}

/* The watch has taken the rest of the batch. Wait until it has read it, and run what it had to leave here. */
static void worker_run_kept(ls_worker *worker)
{
    ls_packet kept[LS_WAIT_PACKETS_MAX];
    ls_mutex_lock(&worker->crew->mutex);
    const int count = worker->kept_count;
    for (int i = 0; i < count; i++) kept[i] = worker->kept[i];
    worker->kept_count = 0;
    ls_mutex_unlock(&worker->crew->mutex);
    for (int i = 0; i < count; i++) worker_run(worker, &kept[i]);
}

/* Claim the packets from `begun` up to `to`. false: the watch was quicker. */
static bool worker_claim(ls_worker *worker, int begun, int to, int count)
{
    uint64_t claim = crew_claim(worker->batch, begun, count);
    return atomic_compare_exchange_strong_explicit(&worker->claim, &claim, crew_claim(worker->batch, to, count),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Run the packets taken in one wait. true: the stop packet was among them. */
static bool worker_batch(ls_worker *worker, int count)
{
    ls_crew *crew = worker->crew;
    bool last = false;
    if (atomic_load_explicit(&crew->stop, memory_order_relaxed)) return worker_put_back(worker, 0, count);

    uint64_t turn = atomic_load_explicit(&worker->turn, memory_order_relaxed) + 1;
    worker->batch++;
    atomic_store_explicit(&worker->claim, crew_claim(worker->batch, 1, count), memory_order_release);
    atomic_store_explicit(&worker->turn, turn, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); /* crew_watch.c counts on this order, as far as the compiler goes */
    if (atomic_load_explicit(&crew->watch_asleep, memory_order_relaxed)) ls_crew_wake_watch(crew);

    for (int i = 0;;) {
        const ls_packet *packet = &worker->packets[i];
        if (packet->op == &crew->stop_op)
            last = true;
        else
            worker_run(worker, packet);
        if (++i == count) break;
        const bool stop = atomic_load_explicit(&crew->stop, memory_order_relaxed);
        if (!worker_claim(worker, i, stop ? count : i + 1, count)) {
            worker_run_kept(worker);
            break;
        }
        if (stop) {
            last |= worker_put_back(worker, i, count);
            break;
        }
        turn += 2;
        atomic_store_explicit(&worker->turn, turn, memory_order_release);
    }
    atomic_store_explicit(&worker->turn, turn + 1, memory_order_release);
    return last;
}

/* Back from a slow packet, or one too many, or a spare at its start. false: the crew stopped while it was parked. */
static bool worker_settle(ls_worker *worker)
{
    ls_crew *crew = worker->crew;
    ls_mutex_lock(&crew->mutex);
    ls_crew_set_slow(crew, worker, false);
    if (!worker->parked && atomic_load_explicit(&crew->excess, memory_order_relaxed) > 0) {
        worker->parked = true;
        ls_port_leave(crew->port, &worker->seat);
        crew->unparked--;
        ls_crew_balance(crew);
    }
    while (worker->parked && !atomic_load_explicit(&crew->stop, memory_order_relaxed))
        ls_cond_wait(&worker->unpark, &crew->mutex);
    const bool go_on = !worker->parked;
    ls_mutex_unlock(&crew->mutex);
    return go_on;
}

static void worker_leave(ls_worker *worker, bool has_stop_packet)
{
    ls_crew *crew = worker->crew;
    ls_port_leave(crew->port, &worker->seat);
    ls_mutex_lock(&crew->mutex);
    ls_crew_set_slow(crew, worker, false);
    if (!worker->parked) crew->unparked--;
    const bool others = crew->unparked > 0;
    if (--crew->alive == 0) {
        ls_cond_broadcast(&crew->ended);
        ls_cond_signal(&crew->watch_wake);
    }
    ls_mutex_unlock(&crew->mutex);
    if (has_stop_packet && others) (void)ls_port_post(crew->port, &crew->stop_op, &crew->stop_op, 0);
}

static void worker_main(void *arg)
{
    ls_worker *worker = arg;
    ls_crew *crew = worker->crew;
    ls_pool_enter(worker->seat.pool);
    bool last = false, go_on = worker_settle(worker);
    while (go_on && !last) {
        const int n = ls_port_wait(crew->port, &worker->seat, worker->packets, crew->wait_max, -1);
        if (n < 0) {
            ls_log(LS_LOG_ERROR, "thread %u cannot wait at the port (%s); the server stops", worker->seat.index,
                   ls_err_text(n));
            ls_crew_stop(crew);
            break;
        }
        if (n > 0) last = worker_batch(worker, n);
        if (!last && (atomic_load_explicit(&worker->slow, memory_order_acquire) ||
                      atomic_load_explicit(&crew->excess, memory_order_relaxed) > 0))
            go_on = worker_settle(worker);
    }
    worker_leave(worker, last);
}

/* ---- the crew ---------------------------------------------------------------------------------------------- */

/* For an owner that empties the port after a worker failed to wait: the stop packet may be left in it. */
static void stop_packet_ignored(ls_seat *seat, ls_op *op)
{
    (void)seat;
    (void)op;
}

static int worker_open(ls_crew *crew, ls_pools *pools, unsigned index)
{
    ls_worker *worker = &crew->workers[index];
    ls_pool *pool;
    *worker = (ls_worker){.crew = crew};
    int err = ls_cond_open(&worker->unpark);
    if (err < 0) return err;
    if ((err = ls_pool_open(pools, &pool)) < 0) {
        ls_cond_close(&worker->unpark);
        return err;
    }
    ls_seat_init(&worker->seat, crew->port, pool, index);
    return LS_OK;
}

static void workers_close(ls_crew *crew, unsigned count)
{
    while (count-- > 0) {
        ls_pool_close(crew->workers[count].seat.pool);
        ls_cond_close(&crew->workers[count].unpark);
    }
    ls_memory_aligned_free(crew->workers);
}

int ls_crew_open(ls_port *port, ls_pools *pools, const ls_crew_options *options, ls_crew **out)
{
    unsigned opened = 0;
    assert(options->threads >= 1 && options->threads_max >= options->threads);
    ls_crew *crew = ls_memory_aligned(CREW_LINE, sizeof *crew);
    if (crew == NULL) return LS_ENOMEM;
    *crew = (ls_crew){.port = port, .options = *options, .stop_op = {.done = stop_packet_ignored}};
    crew->wait_max = options->threads == 1 ? LS_WAIT_PACKETS_MAX : LS_WAIT_PACKETS;

    int err = ls_mutex_open(&crew->mutex);
    if (err < 0) goto fail_mutex;
    if ((err = ls_cond_open(&crew->ended)) < 0) goto fail_ended;
    if ((err = ls_cond_open(&crew->watch_wake)) < 0) goto fail_watch_wake;
    err = LS_ENOMEM;
    if ((crew->workers = ls_memory_aligned(CREW_LINE, options->threads_max * sizeof *crew->workers)) == NULL)
        goto fail_workers;
    for (; opened < options->threads_max; opened++)
        if ((err = worker_open(crew, pools, opened)) < 0) goto fail_worker;
    *out = crew;
    return LS_OK;

fail_worker:
    workers_close(crew, opened);
fail_workers:
    ls_cond_close(&crew->watch_wake);
fail_watch_wake:
    ls_cond_close(&crew->ended);
fail_ended:
    ls_mutex_close(&crew->mutex);
fail_mutex:
    ls_memory_aligned_free(crew);
    return err;
}

void ls_crew_close(ls_crew *crew)
{
    assert(crew->started == 0);
    workers_close(crew, crew->options.threads_max);
    ls_cond_close(&crew->watch_wake);
    ls_cond_close(&crew->ended);
    ls_mutex_close(&crew->mutex);
    ls_memory_aligned_free(crew);
}

ls_seat *ls_crew_seat(ls_crew *crew, unsigned index)
{
    assert(index < crew->options.threads_max);
    return &crew->workers[index].seat;
}

int ls_crew_start(ls_crew *crew)
{
    char name[16];
    int err = LS_OK;
    ls_mutex_lock(&crew->mutex); /* a worker takes it first of all: none runs before all is set */
    for (unsigned i = 0; i < crew->options.threads_max && err == LS_OK; i++) {
        ls_worker *worker = &crew->workers[i];
        (void)snprintf(name, sizeof name, "ls-worker-%u", i % 10000);
        if ((err = ls_thread_start(&worker->thread, name, worker_main, worker)) < 0) break;
        worker->parked = i >= crew->options.threads;
        if (!worker->parked) crew->unparked++;
        crew->alive++;
        crew->started++;
    }
    if (err == LS_OK && (err = ls_thread_start(&crew->watch, "ls-watch", ls_crew_watch, crew)) == LS_OK)
        crew->watch_started = true;
    ls_mutex_unlock(&crew->mutex);
    if (err < 0) {
        ls_crew_stop(crew);
        (void)ls_crew_join(crew, 0);
    }
    return err;
}

void ls_crew_stop(ls_crew *crew)
{
    ls_mutex_lock(&crew->mutex);
    const bool first = crew->unparked > 0 && !atomic_load_explicit(&crew->stop, memory_order_relaxed);
    if (first) {
        atomic_store_explicit(&crew->stop, true, memory_order_relaxed);
        ls_crew_balance(crew);
        for (unsigned i = 0; i < crew->started; i++) ls_cond_signal(&crew->workers[i].unpark);
    }
    ls_mutex_unlock(&crew->mutex);
    if (first) (void)ls_port_post(crew->port, &crew->stop_op, &crew->stop_op, 0);
}

bool ls_crew_join(ls_crew *crew, uint32_t ms)
{
    const uint64_t end_ns = ls_clock_ns() + (uint64_t)ms * 1000000;
    ls_mutex_lock(&crew->mutex);
    while (crew->alive > 0) {
        const uint64_t now_ns = ls_clock_ns();
        if (ms == 0) {
            ls_cond_wait(&crew->ended, &crew->mutex);
        } else if (now_ns < end_ns) {
            ls_cond_wait_ms(&crew->ended, &crew->mutex, (uint32_t)((end_ns - now_ns) / 1000000) + 1);
        } else {
            ls_mutex_unlock(&crew->mutex);
            return false;
        }
    }
    ls_mutex_unlock(&crew->mutex);
    while (crew->started > 0) ls_thread_join(&crew->workers[--crew->started].thread);
    if (crew->watch_started) ls_thread_join(&crew->watch);
    crew->watch_started = false;
    return true;
}

void ls_crew_stat(const ls_crew *crew, ls_crew_stats *out)
{
    uint64_t sum[7] = {0};
    for (unsigned i = 0; i < crew->options.threads_max; i++) {
        const ls_seat_stats *seat = &crew->workers[i].seat.stats;
        const _Atomic uint64_t *counters[] = {&seat->packets,     &seat->waits,       &seat->recv_inline,
                                              &seat->recv_queued, &seat->send_inline, &seat->send_queued,
                                              &seat->accepts};
        for (int k = 0; k < 7; k++) sum[k] += atomic_load_explicit(counters[k], memory_order_relaxed);
    }
    *out = (ls_crew_stats){
        .threads = crew->options.threads,
        .threads_max = crew->options.threads_max,
        .slow = atomic_load_explicit(&crew->slow, memory_order_relaxed),
        .spares_released = atomic_load_explicit(&crew->spares_released, memory_order_relaxed),
        .seats = {.packets = sum[0],
                  .waits = sum[1],
                  .recv_inline = sum[2],
                  .recv_queued = sum[3],
                  .send_inline = sum[4],
                  .send_queued = sum[5],
                  .accepts = sum[6]},
    };
}
