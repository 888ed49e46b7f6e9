/* workers.c - the workers: their loop, idling, start and stop. watchdog.c holds the watchdog. workers_internal.h
 * describes the cache lines and which thread may touch each.
 *
 * Stop. ls_workers_stop sets `stop`, wakes the idle workers, and posts one packet. The worker that takes it posts it
 * again for the next before it exits, so it reaches every worker in turn. A worker that sees `stop` runs no further
 * packet: it returns its packets, and those it still receives, to the port until the stop packet arrives. So the port
 * keeps every packet that was posted earlier, for its owner to dispose of.
 *
 * Ops that run later. Each op of ls_workers_later runs once. The list lies in `later` while the worker runs packets and
 * ops, so that a stall in one of them does not hold it back. Worker and watchdog take all of it, with an exchange for
 * NULL: one of the two gets each list that was stored.
 *
 *     worker, in ls_workers_later:   W1 exchange later for NULL     watchdog:  D1 exchange later for NULL
 *                                    W2 store the list with the op             post each op
 *     worker, to run the oldest:     W1 exchange later for NULL
 *                                    W2 store the list without it
 *
 * Between W1 and W2 `later` is NULL: the watchdog gets nothing, and W2 overwrites no list, as only the worker stores
 * one. Only the worker writes the links of a list and follows them after W1. If D1 was first, W1 gets NULL, and the
 * worker begins a new list: it never follows `later_last` into a list that it has not got back. D1 acquires what W2 has
 * released, so the watchdog sees all links. No op is left over: before `turn` becomes even the worker finds `later`
 * NULL, inside no packet and no op, so that W2 cannot follow; all that was in it has run or is in the port. */
#include "sched/workers_internal.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/os/memory.h"
#include "port/notify.h"
#include "sched/actor.h"

enum { STANDBY_IDLE_MS_MAX = 10000 }; /* default of ls_workers_options.standby_idle_ms_max */

void ls_workers_balance(ls_workers *workers)
{
    const bool stop = atomic_load_explicit(&workers->stop, memory_order_relaxed);
    const unsigned threads = workers->options.threads + workers->burst;
    unsigned running = workers->active - atomic_load_explicit(&workers->stalled, memory_order_relaxed);
    for (unsigned i = 0; i < workers->opened && running < threads && !stop; i++) {
        ls_worker *standby = &workers->array[i];
        if (standby->life != WORKER_RUNS || !standby->idle) continue;
        standby->idle = false;
        workers->active++;
        running++;
        atomic_fetch_add_explicit(&workers->standbys_released, 1, memory_order_relaxed);
        ls_cond_signal(&standby->resume);
    }
    atomic_store_explicit(&workers->excess, running > threads && !stop ? running - threads : 0, memory_order_relaxed);
}

void ls_workers_set_stalled(ls_workers *workers, ls_worker *worker, bool stalled)
{
    if (atomic_load_explicit(&worker->stalled, memory_order_relaxed) == stalled) return;
    const unsigned count = atomic_load_explicit(&workers->stalled, memory_order_relaxed);
    atomic_store_explicit(&workers->stalled, stalled ? count + 1 : count - 1, memory_order_relaxed);
    ls_workers_balance(workers);
    /* Last: a worker that finds this flag cleared must find the new `excess`. */
    atomic_store_explicit(&worker->stalled, stalled, memory_order_release);
}

/* ---- a worker ---------------------------------------------------------------------------------------------- */

static void worker_run(ls_worker *worker, const ls_packet *packet)
{
    const ls_workers_options *options = &worker->workers->options;
    if (packet->op != NULL)
        ls_packet_dispatch(&worker->ctx, packet);
    else if (options->on_user_packet != NULL && ls_packet_current(worker->workers->port, packet))
        options->on_user_packet(&worker->ctx, packet);
}

/* Return packets that the caller has claimed to the port. true: the stop packet was among them; it is not returned. */
static bool worker_requeue(ls_worker *worker, int from, int count)
{
    ls_workers *workers = worker->workers;
    bool stop_seen = false;
    for (int i = from; i < count; i++) {
        const ls_packet *packet = &worker->packets[i];
        if (packet->op == &workers->stop_op)
            stop_seen = true;
        else if (ls_port_requeue(workers->port, packet) < 0)
            worker_run(worker, packet); /* no memory for a user packet: run it late rather than lose it */
    }
    return stop_seen;
}

/* The watchdog claimed the rest of the batch. Wait until it has read it, and run the packets it could not requeue. */
static void worker_run_leftover(ls_worker *worker)
{
    ls_packet leftover[LS_WAIT_PACKETS_MAX];
    ls_mutex_lock(&worker->workers->mutex);
    const int count = worker->leftover_count;
    for (int i = 0; i < count; i++) leftover[i] = worker->leftover[i];
    worker->leftover_count = 0;
    ls_mutex_unlock(&worker->workers->mutex);
    for (int i = 0; i < count; i++) worker_run(worker, &leftover[i]);
}

/* Claim the packets from `begun` up to `to`. false: the watchdog has claimed them. */
static bool worker_claim(ls_worker *worker, int begun, int to, int count)
{
    uint64_t claim = batch_claim(worker->batch, begun, count);
    return atomic_compare_exchange_strong_explicit(&worker->claim, &claim, batch_claim(worker->batch, to, count),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Count the packet or the op that begins. */
static void worker_begin(ls_worker *worker)
{
    const uint64_t turn = atomic_load_explicit(&worker->turn, memory_order_relaxed);
    atomic_store_explicit(&worker->turn, (turn + 1) | 1, memory_order_release);
    /* watchdog.c and ls_workers_snapshot depend on this order of the compiler's */
    atomic_signal_fence(memory_order_seq_cst);
}

/* A stalled worker, or one too many: it ends its batch and calls worker_idle_if_excess. */
static bool worker_must_pause(const ls_worker *worker)
{
    return atomic_load_explicit(&worker->stalled, memory_order_acquire) ||
           atomic_load_explicit(&worker->low, memory_order_relaxed) ||
           atomic_load_explicit(&worker->workers->excess, memory_order_relaxed) > 0;
}

/* ---- ops that run later ---------------------------------------------------------------------------------------- */

void ls_workers_later(ls_thread_ctx *ctx, ls_op *op)
{
    ls_worker *worker = ctx->worker;
    if (worker == NULL || (atomic_load_explicit(&worker->turn, memory_order_relaxed) & 1) == 0) {
        ls_port_post(ctx->port, op, 0);
        return;
    }
    ls_op *first = atomic_exchange_explicit(&worker->later, NULL, memory_order_relaxed); /* W1 */
    op->next = NULL;
    if (first == NULL)
        first = op;
    else
        worker->later_last->next = op;
    worker->later_last = op;
    atomic_store_explicit(&worker->later, first, memory_order_release); /* W2 */
}

void ls_workers_post_list(ls_workers *workers, ls_op *first)
{
    for (ls_op *op = first, *next; op != NULL; op = next) {
        next = op->next;
        ls_port_post(workers->port, op, 0);
    }
}

/* Run the ops after a batch of `count` packets; those past the limits go to the port. */
static void worker_run_later(ls_worker *worker, int count)
{
    ls_workers *workers = worker->workers;
    uint64_t end_ns = UINT64_MAX;
    ls_op *op;
    for (int n = 0; (op = atomic_exchange_explicit(&worker->later, NULL, memory_order_relaxed)) != NULL; n++) {
        if (n == 1) end_ns = ls_clock_ns() + LS_LATER_MS_MAX * UINT64_C(1000000); /* one op alone reads no clock */
        if (n == count * LS_LATER_OPS_MAX || (n > 1 && ls_clock_ns() >= end_ns) || worker_must_pause(worker) ||
            atomic_load_explicit(&workers->stop, memory_order_relaxed)) {
            ls_workers_post_list(workers, op);
            return;
        }
        atomic_store_explicit(&worker->later, op->next, memory_order_release);
        worker_begin(worker);
        ls_packet_dispatch(&worker->ctx, &(ls_packet){.op = op});
    }
}

/* ---- the loop -------------------------------------------------------------------------------------------------- */

/* Run the packets of one wait. true: the stop packet was among them. */
static bool worker_run_batch(ls_worker *worker, int count)
{
    ls_workers *workers = worker->workers;
    bool stop_seen = false;
    if (atomic_load_explicit(&workers->stop, memory_order_relaxed)) return worker_requeue(worker, 0, count);

    worker->batch++;
    atomic_store_explicit(&worker->claim, batch_claim(worker->batch, 1, count), memory_order_release);
    worker_begin(worker);
    if (atomic_load_explicit(&workers->watchdog_asleep, memory_order_relaxed)) ls_watchdog_wake(workers);

    for (int i = 0;;) {
        const ls_packet *packet = &worker->packets[i];
        if (packet->op == &workers->stop_op)
            stop_seen = true;
        else
            worker_run(worker, packet);
        if (++i == count) break;
        const bool stop = atomic_load_explicit(&workers->stop, memory_order_relaxed);
        if (!worker_claim(worker, i, stop ? count : i + 1, count)) {
            worker_run_leftover(worker);
            break;
        }
        if (stop) {
            stop_seen |= worker_requeue(worker, i, count);
            break;
        }
        worker_begin(worker);
    }
    if (atomic_load_explicit(&worker->later, memory_order_relaxed) != NULL) worker_run_later(worker, count);
    atomic_store_explicit(&worker->turn, atomic_load_explicit(&worker->turn, memory_order_relaxed) + 1,
                          memory_order_release);
    return stop_seen;
}

static bool worker_is_standby(const ls_worker *worker)
{
    return worker->ctx.index >= worker->workers->options.threads;
}

/* Called at the start, after a stalled packet, and when there is a worker too many: clears the stalled mark, and idles
 * until the worker is needed. A standby thread that idles for long ends; another one takes the place of a standby
 * thread. false: the thread ends, for that reason, because the workers were stopped while it idled, or its priority
 * stays low. */
static bool worker_idle_if_excess(ls_worker *worker)
{
    ls_workers *workers = worker->workers;
    bool waits = true;
    ls_mutex_lock(&workers->mutex);
    ls_workers_set_stalled(workers, worker, false);
    const bool ends = atomic_load_explicit(&worker->low, memory_order_relaxed) &&
                      !atomic_load_explicit(&workers->stop, memory_order_relaxed) &&
                      !ls_thread_set_low(worker->thread_id, false);
    atomic_store_explicit(&worker->low, false, memory_order_relaxed);
    if (ends) { /* a stop from now on does not count on it */
        worker->life = WORKER_ENDED;
        worker->idle = true;
        workers->active--;
        ls_workers_balance(workers);
    } else if (!worker->idle && atomic_load_explicit(&workers->excess, memory_order_relaxed) > 0) {
        worker->idle = true;
        workers->active--;
        ls_workers_balance(workers);
    }
    while (worker->idle && !ends && waits && !atomic_load_explicit(&workers->stop, memory_order_relaxed))
        waits = ls_cond_wait_ms(&worker->resume, &workers->mutex, workers->options.standby_idle_ms_max);
    if (worker->idle && !waits && !worker_is_standby(worker) &&
        !atomic_load_explicit(&workers->stop, memory_order_relaxed)) {
        worker->idle = false;
        workers->active++;
        ls_workers_balance(workers);
    }
    const bool active = !worker->idle;
    ls_mutex_unlock(&workers->mutex);
    return active;
}

static void worker_exit(ls_worker *worker, bool has_stop_packet)
{
    ls_workers *workers = worker->workers;
    ls_mutex_lock(&workers->mutex);
    ls_workers_set_stalled(workers, worker, false);
    if (!worker->idle) workers->active--;
    const bool others_active = workers->active > 0;
    if (worker->life == WORKER_RUNS) worker->life = WORKER_ENDED;
    if (--workers->alive == 0) ls_cond_broadcast(&workers->ended);
    ls_workers_balance(workers);
    ls_watchdog_wake_locked(workers); /* it joins the thread and starts another one if too few run */
    ls_mutex_unlock(&workers->mutex);
    if (has_stop_packet && others_active) ls_port_post(workers->port, &workers->stop_op, 0);
}

static void worker_main(void *arg)
{
    ls_worker *worker = arg;
    ls_workers *workers = worker->workers;
    ls_pool_enter(worker->ctx.pool);
    ls_mutex_lock(&workers->mutex); /* the one who started the thread holds it until all fields are set */
    worker->thread_id = ls_thread_id();
    ls_mutex_unlock(&workers->mutex);
    const int wait_ms = worker_is_standby(worker) ? (int)workers->options.standby_idle_ms_max : -1;
    bool stop_seen = false, active = worker_idle_if_excess(worker);
    while (active && !stop_seen) {
        const int n = ls_port_wait(workers->port, &worker->ctx, worker->packets, workers->wait_max, wait_ms);
        if (n < 0) {
            ls_log(LS_LOG_ERROR, "worker %u cannot wait for packets: %s; the server stops", worker->ctx.index,
                   ls_err_text(n));
            ls_workers_stop(workers);
            break;
        }
        if (n > 0) stop_seen = worker_run_batch(worker, n);
        if (!stop_seen && worker_must_pause(worker)) active = worker_idle_if_excess(worker);
    }
    worker_exit(worker, stop_seen);
}

/* ---- the pool of workers ------------------------------------------------------------------------------------ */

/* Runs only if a worker failed to wait: the owner, which then empties the port, may find the stop packet in it. */
static void ignore_stop_packet(ls_thread_ctx *ctx, ls_op *op)
{
}

/* Initialize the next worker. */
static int worker_open(ls_workers *workers)
{
    const unsigned index = workers->opened;
    ls_worker *worker = &workers->array[index];
    ls_pool *pool;
    *worker = (ls_worker){.workers = workers};
    const int err = ls_pool_open(workers->pools, &pool);
    if (err < 0) return err;
    ls_cond_open(&worker->resume);
    ls_thread_ctx_init(&worker->ctx, workers->port, pool, index);
    worker->ctx.worker = worker;
    worker->ctx.inline_ms_max = LS_WORKER_INLINE_MS_MAX;
    atomic_store_explicit(&workers->opened, index + 1, memory_order_release);
    return LS_OK;
}

/* The caller holds the mutex. */
static int worker_start(ls_workers *workers, unsigned index)
{
    ls_worker *worker = &workers->array[index];
    char name[16];
    int err = LS_OK;
    if (worker->ctx.pool == NULL) err = ls_pool_open(workers->pools, &worker->ctx.pool);
    if (err < 0) return err;
    (void)snprintf(name, sizeof name, "ls-worker-%u", index % 10000);
    if ((err = ls_thread_start_parent(&worker->thread, name, worker_main, worker)) < 0) return err;
    worker->life = WORKER_RUNS;
    workers->start_failed = false;
    worker->idle = false;
    atomic_store_explicit(&worker->low, false, memory_order_relaxed);
    workers->active++;
    workers->alive++;
    return LS_OK;
}

static void worker_ended(ls_workers *workers, ls_worker *worker)
{
    worker->life = WORKER_NONE;
    ls_pool_leave(worker->ctx.pool);
    if (workers->options.on_thread_end != NULL) workers->options.on_thread_end(&worker->ctx, workers->options.user);
}

/* The number of a worker without a thread, which is made if all have one. */
static int worker_without_thread(ls_workers *workers, unsigned *index)
{
    for (unsigned i = 0; i < workers->opened; i++)
        if (workers->array[i].life == WORKER_NONE) {
            *index = i;
            return LS_OK;
        }
    *index = workers->opened;
    return *index < workers->options.threads_max ? worker_open(workers) : LS_ELIMIT;
}

bool ls_workers_replace(ls_workers *workers)
{
    unsigned index;
    bool ending = false;
    int err = LS_OK;
    for (unsigned i = 0; i < workers->opened; i++) {
        ls_worker *worker = &workers->array[i];
        if (worker->life != WORKER_ENDED) continue;
        if (!ls_thread_try_join(&worker->thread)) {
            ending = true; /* the watchdog does not wait: the thread may have a low priority */
            continue;
        }
        worker_ended(workers, worker);
        if (i < workers->options.threads) continue;
        ls_pool_close(worker->ctx.pool);
        worker->ctx.pool = NULL;
    }
    if (atomic_load_explicit(&workers->stop, memory_order_relaxed)) return ending;
    for (unsigned i = 0; i < workers->options.threads && err == LS_OK; i++)
        if (workers->array[i].life == WORKER_NONE && (err = worker_start(workers, i)) == LS_OK)
            ls_workers_balance(workers); /* a standby thread that took its place becomes idle */
    while (err == LS_OK && workers->active - atomic_load_explicit(&workers->stalled, memory_order_relaxed) <
                               workers->options.threads + workers->burst) {
        if ((err = worker_without_thread(workers, &index)) < 0 || (err = worker_start(workers, index)) < 0) break;
        atomic_fetch_add_explicit(&workers->standbys_released, 1, memory_order_relaxed);
    }
    if (err < 0 && err != LS_ELIMIT && !workers->start_failed) {
        workers->start_failed = true;
        ls_log(LS_LOG_WARN, "cannot start a further thread, work waits for the %u that run: %s", workers->alive,
               ls_err_text(err));
    }
    return ending;
}

void ls_workers_close(ls_workers *workers)
{
    assert(workers->alive == 0);
    for (unsigned i = 0; i < workers->opened; i++) {
        if (workers->array[i].ctx.pool != NULL) ls_pool_close(workers->array[i].ctx.pool);
        ls_cond_close(&workers->array[i].resume);
    }
    ls_memory_aligned_free(workers->array);
    ls_cond_close(&workers->watchdog_wake);
    ls_cond_close(&workers->ended);
    ls_mutex_close(&workers->mutex);
    ls_memory_aligned_free(workers);
}

int ls_workers_open(ls_port *port, ls_pools *pools, const ls_workers_options *options, ls_workers **out)
{
    assert(options->threads >= 1 && options->threads_max >= options->threads);
    ls_workers *workers = ls_memory_aligned(CACHE_LINE_BYTES, sizeof *workers);
    if (workers == NULL) return LS_ENOMEM;
    *workers =
        (ls_workers){.port = port, .pools = pools, .options = *options, .stop_op = {.done = ignore_stop_packet}};
    if (options->standby_idle_ms_max == 0) workers->options.standby_idle_ms_max = STANDBY_IDLE_MS_MAX;
    workers->wait_max = options->threads == 1 ? LS_WAIT_PACKETS_MAX : LS_WAIT_PACKETS;

    ls_mutex_open(&workers->mutex);
    ls_cond_open(&workers->ended);
    ls_cond_open(&workers->watchdog_wake);
    int err = LS_ENOMEM;
    if ((workers->array = ls_memory_aligned(CACHE_LINE_BYTES, options->threads_max * sizeof *workers->array)) == NULL)
        goto fail;
    while (workers->opened < options->threads)
        if ((err = worker_open(workers)) < 0) goto fail;
    *out = workers;
    return LS_OK;

fail:
    ls_workers_close(workers);
    return err;
}

ls_thread_ctx *ls_workers_ctx(ls_workers *workers, unsigned index)
{
    assert(index < workers->options.threads);
    return &workers->array[index].ctx;
}

int ls_workers_start(ls_workers *workers)
{
    int err = LS_OK;
    ls_mutex_lock(&workers->mutex); /* a worker takes it first, so none runs before all fields are set */
    for (unsigned i = 0; i < workers->options.threads && err == LS_OK; i++) err = worker_start(workers, i);
    if (err == LS_OK &&
        (err = ls_thread_start_parent(&workers->watchdog, "ls-watchdog", ls_watchdog_run, workers)) == LS_OK)
        workers->watchdog_started = true; /* it starts workers, which inherit its mask of blocked signals */
    ls_mutex_unlock(&workers->mutex);
    if (err < 0) {
        ls_workers_stop(workers);
        (void)ls_workers_join(workers, 0);
    }
    return err;
}

void ls_workers_stop(ls_workers *workers)
{
    ls_mutex_lock(&workers->mutex);
    const bool started = workers->alive > 0 || workers->watchdog_started,
               first = started && !atomic_load_explicit(&workers->stop, memory_order_relaxed);
    if (first) {
        atomic_store_explicit(&workers->stop, true, memory_order_relaxed);
        ls_workers_balance(workers);
        for (unsigned i = 0; i < workers->opened; i++) ls_cond_signal(&workers->array[i].resume);
        ls_watchdog_wake_locked(workers);
    }
    const bool post = first && workers->active > 0; /* the idle ones end without a packet */
    ls_mutex_unlock(&workers->mutex);
    if (post) ls_port_post(workers->port, &workers->stop_op, 0);
}

bool ls_workers_join(ls_workers *workers, uint32_t ms)
{
    const uint64_t end_ns = ls_clock_ns() + (uint64_t)ms * 1000000;
    ls_mutex_lock(&workers->mutex);
    while (workers->alive > 0) {
        const uint64_t now_ns = ls_clock_ns();
        if (ms == 0) {
            ls_cond_wait(&workers->ended, &workers->mutex);
        } else if (now_ns < end_ns) {
            ls_cond_wait_ms(&workers->ended, &workers->mutex, (uint32_t)((end_ns - now_ns) / 1000000) + 1);
        } else {
            ls_mutex_unlock(&workers->mutex);
            return false;
        }
    }
    ls_mutex_unlock(&workers->mutex);
    if (workers->watchdog_started) ls_thread_join(&workers->watchdog);
    workers->watchdog_started = false;
    for (unsigned i = 0; i < workers->opened; i++) {
        if (workers->array[i].life == WORKER_NONE) continue;
        ls_thread_join(&workers->array[i].thread);
        worker_ended(workers, &workers->array[i]);
    }
    return true;
}

unsigned ls_workers_leave(ls_workers *workers)
{
    ls_mutex_lock(&workers->mutex);
    const unsigned alive = workers->alive;
    for (unsigned i = 0; i < workers->opened; i++) {
        if (workers->array[i].life == WORKER_NONE) continue;
        ls_thread_detach(&workers->array[i].thread);
        workers->array[i].life = WORKER_LEFT;
    }
    if (workers->watchdog_started) ls_thread_detach(&workers->watchdog);
    workers->watchdog_started = false;
    ls_mutex_unlock(&workers->mutex);
    return alive;
}

/* A worker stores its turn and then loads pointers, without a barrier in between. ls_thread_barrier puts one into
 * every worker: a load that ran before it has its turn visible here, a load that runs later finds the new pointers. */
void ls_workers_snapshot(ls_workers *workers, uint64_t *turns)
{
    ls_thread_barrier();
    const unsigned opened = atomic_load_explicit(&workers->opened, memory_order_acquire);
    for (unsigned i = 0; i < workers->options.threads_max; i++)
        turns[i] = i < opened ? atomic_load_explicit(&workers->array[i].turn, memory_order_acquire) : 0;
}

bool ls_workers_passed(const ls_workers *workers, uint64_t *turns)
{
    bool passed = true;
    for (unsigned i = 0; i < workers->options.threads_max; i++) {
        if ((turns[i] & 1) == 0) continue; /* it was waiting, or has passed in an earlier call */
        if (atomic_load_explicit(&workers->array[i].turn, memory_order_acquire) == turns[i])
            passed = false;
        else
            turns[i] = 0;
    }
    return passed;
}

void ls_workers_stat(const ls_workers *workers, ls_workers_stats *out)
{
    uint64_t sum[7] = {0};
    const unsigned opened = atomic_load_explicit(&workers->opened, memory_order_acquire);
    for (unsigned i = 0; i < opened; i++) {
        const ls_thread_stats *stats = &workers->array[i].ctx.stats;
        const _Atomic uint64_t *counters[] = {&stats->packets,     &stats->waits,       &stats->recv_inline,
                                              &stats->recv_queued, &stats->send_inline, &stats->send_queued,
                                              &stats->accepts};
        for (int k = 0; k < 7; k++) sum[k] += atomic_load_explicit(counters[k], memory_order_relaxed);
    }
    *out = (ls_workers_stats){
        .threads = workers->options.threads,
        .threads_max = workers->options.threads_max,
        .stalled = atomic_load_explicit(&workers->stalled, memory_order_relaxed),
        .standbys_released = atomic_load_explicit(&workers->standbys_released, memory_order_relaxed),
        .sum = {.packets = sum[0],
                .waits = sum[1],
                .recv_inline = sum[2],
                .recv_queued = sum[3],
                .send_inline = sum[4],
                .send_queued = sum[5],
                .accepts = sum[6]},
    };
}

unsigned ls_workers_look(const ls_workers *workers, ls_worker_look *out, unsigned max)
{
    const unsigned opened = atomic_load_explicit(&workers->opened, memory_order_acquire);
    unsigned n = 0;
    for (; n < opened && n < max; n++) {
        out[n].inside = (atomic_load_explicit(&workers->array[n].turn, memory_order_relaxed) & 1) != 0;
        out[n].ms = out[n].inside ? atomic_load_explicit(&workers->array[n].inside_ms, memory_order_relaxed) : 0;
    }
    return n;
}
