/* worker.c - the thread of a worker: its clock, its housekeeping, its start and its end. See worker.h; arrivals.c
 * decides which virtual user sends when. */
#include "stress/load/worker.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/stream/deadline.h"
#include "stress/load/arrivals.h"
#include "stress/load/deflate.h"

enum { CONNECTING_MAX = 64, HOUSEKEEPING_MS = 100, STOP_GRACE_MS = 1000, PORT_SPARE = 8 };
#define MS UINT64_C(1000000)

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void close_all(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->timer != NULL && ls_timer_cancel(w->port, &u->timer->timer)) u->timer_pending = false;
        ls_stress_vu_close(u);
    }
    (void)ls_timer_cancel(w->port, &w->arrival_timer);
    (void)ls_timer_cancel(w->port, &w->housekeeping);
    w->done = w->unclosed == 0;
}

/* Stop waiting for responses. */
static void fail_outstanding(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        ls_stress_worker_record_ages(w, u, u->outstanding);
        if (u->outstanding > 0) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_TIMEOUT], u->outstanding);
        u->outstanding = 0;
    }
    w->outstanding = 0;
    w->grace_ns = UINT64_MAX;
    close_all(w);
}

/* Open loop, at the end: fail requests that exceed the time limit. */
static void time_out_late(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->timeout_ns;
    for (uint32_t i = 0; limit_ns > 0 && i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->state != LS_STRESS_VU_OPEN || u->outstanding == 0) continue;
        const uint64_t sent_ns = u->requests[u->first].sent_ns;
        if (sent_ns >= w->now_ns || w->now_ns - sent_ns < limit_ns) continue;
        ls_stress_worker_record_ages(w, u, u->outstanding);
        ls_stress_vu_time_out(u);
    }
}

/* Record the totals at the end of the schedule. */
static void record_totals(ls_stress_worker *w)
{
    const uint64_t wanted_ns = ls_thread_wanted_ns();
    atomic_store_explicit(&w->count.wanted_ns, wanted_ns - w->wanted_ns, memory_order_relaxed);
    if (w->open_loop) ls_stress_arrivals_count_unsent(w);
}

/* Record how long the outstanding requests of a closed loop have waited; of a scenario how long its present wait for
 * the server has lasted. */
static void record_waiting(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        const ls_stress_vu *u = &w->vus[i];
        for (uint32_t n = 0; n < u->outstanding; n++) {
            const uint64_t since_ns = w->plan->mode != LS_STRESS_PLAN_SCENARIO
                                          ? u->requests[(u->first + n) % w->pipeline].sent_ns
                                      : u->waits_since_ns > 0 ? u->waits_since_ns
                                                              : w->end_ns;
            ls_histogram_record(w->count.waiting, w->end_ns > since_ns ? w->end_ns - since_ns : 0);
        }
    }
}

/* Send no new requests. An open loop waits for outstanding responses, each until its time limit; at most STOP_GRACE_MS
 * after a stop, or without a time limit. */
static void end_run(ls_stress_worker *w, bool stopped)
{
    if (w->ending) return;
    w->by_number = w->fanout != NULL && !stopped && w->now_ns < w->end_ns;
    if (w->running && w->end_ns > w->now_ns) w->end_ns = w->now_ns;
    if (w->running && w->open_loop)
        ls_stress_arrivals_dispatch(w); /* count the requests that became due since the last dispatch */
    w->ending = true;
    if (w->running) {
        if (!w->by_number || w->publisher_count > 0) w->ended_ns = w->end_ns;
        record_totals(w);
    }
    if (!w->running || (!w->open_loop && w->fanout == NULL)) {
        if (w->running) record_waiting(w);
        close_all(w);
        return;
    }
    for (uint32_t i = 0; i < w->vu_count; i++) ls_stress_worker_drop_retries(w, &w->vus[i]);
    if (stopped || (w->plan->timeout_ns == 0 && w->fanout == NULL)) w->grace_ns = w->now_ns + STOP_GRACE_MS * MS;
    if (w->fanout != NULL)
        w->fanout_hooks->ended(w);
    else if (w->outstanding == 0)
        close_all(w);
}

/* Fan-out, after the publishers have ended: close when all deliveries have arrived. */
static void end_fanout(ls_stress_worker *w)
{
    if (w->closing || !w->fanout_hooks->complete(w)) return;
    w->closing = true;
    close_all(w);
}

/* ---- housekeeping ----------------------------------------------------------------------------------------------- */

/* The number of this worker's virtual users in use at that time: in a fan-out run all, whose stages are rates. */
static uint32_t active_at(const ls_stress_worker *w, uint64_t at_ns)
{
    if (w->plan->mode == LS_STRESS_PLAN_FANOUT) return w->vu_count;
    const uint32_t threads = w->plan->threads;
    const uint32_t all = ls_stress_schedule_connections(&w->plan->schedule, at_ns);
    const uint32_t mine = (all > w->index ? (all - w->index + threads - 1) / threads : 0) * w->plan->streams;
    return mine < w->vu_count ? mine : w->vu_count;
}

static void set_active(ls_stress_worker *w)
{
    const uint32_t mine = active_at(w, w->now_ns - w->start_ns);
    for (; w->active < mine; w->active++) {
        ls_stress_vu *u = &w->vus[w->active];
        u->inactive = false;
        if (u->state == LS_STRESS_VU_CLOSED) ls_stress_worker_vu_closed(w, u);
    }
    for (; w->active > mine; w->active--) {
        ls_stress_vu *u = &w->vus[w->active - 1];
        u->inactive = true;
        if (u->state == LS_STRESS_VU_OPEN && u->outstanding == 0) ls_stress_vu_close(u);
    }
}

static void scan_vus(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->timeout_ns;
    w->scanned_ns = w->now_ns;
    w->any_reconnect = false;
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        const uint64_t since_ns = u->state == LS_STRESS_VU_CONNECTING                   ? u->connect_start_ns
                                  : u->state == LS_STRESS_VU_OPEN && u->outstanding > 0 ? u->requests[u->first].sent_ns
                                                                                        : UINT64_MAX;
        if (limit_ns > 0 && since_ns < w->now_ns && w->now_ns - since_ns >= limit_ns) ls_stress_vu_time_out(u);
        if (!u->reconnect_later || u->state != LS_STRESS_VU_CLOSED) continue;
        u->reconnect_later = !w->running; /* before the run one attempt is enough */
        ls_stress_worker_vu_closed(w, u);
    }
}

static void on_housekeeping(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_worker *w = LS_CONTAINER(op, ls_stress_worker, housekeeping.op);
    uint64_t next_ns = w->now_ns + HOUSEKEEPING_MS * MS;
    if (w->fanout != NULL && !w->ending && w->fanout_hooks->tick(w)) end_run(w, false);
    if (w->ending) {
        time_out_late(w);
        if (w->fanout == NULL && w->outstanding > 0 && w->now_ns >= w->grace_ns) fail_outstanding(w);
    } else {
        const uint64_t limit_ns = w->plan->timeout_ns;
        const uint64_t scan_ns = limit_ns / 16 < 1000 * MS ? limit_ns / 16 : 1000 * MS;
        if (w->any_reconnect || w->now_ns - w->scanned_ns >= scan_ns) scan_vus(w);
        if (w->running && w->plan->staged) set_active(w);
        if (w->running && w->end_ns < next_ns) next_ns = w->end_ns;
    }
    if (!w->done && ls_timer_set(w->port, &w->housekeeping, next_ns) < 0) w->done = true;
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void open_queued(ls_stress_worker *w)
{
    /* A connect may fail at once and list its virtual user again; the next round opens it. */
    const ls_node *const last = w->to_open.prev;
    for (bool is_last = false; !is_last && !ls_list_empty(&w->to_open) && w->connecting < CONNECTING_MAX;) {
        ls_stress_vu *u = LS_CONTAINER(w->to_open.next, ls_stress_vu, to_open);
        is_last = &u->to_open == last;
        ls_list_remove(&u->to_open);
        if (u->state == LS_STRESS_VU_CLOSED && !w->ending && !u->inactive) (void)ls_stress_vu_open(u);
    }
}

/* A command of the main thread, as on_stop. */
static void on_go(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_worker *w = LS_CONTAINER(op, ls_stress_worker, go);
    if (w->ending || w->running) return;
    w->running = true;
    w->wanted_ns = ls_thread_wanted_ns();
    const uint64_t length_ns = w->plan->duration_ns;
    w->end_ns = length_ns > 0 ? w->start_ns + length_ns : UINT64_MAX;
    (void)ls_timer_move(w->port, &w->housekeeping,
                        w->end_ns < w->now_ns + HOUSEKEEPING_MS * MS ? w->end_ns : w->now_ns + HOUSEKEEPING_MS * MS);
    if (w->plan->staged) set_active(w);
    for (uint32_t i = 0; i < w->vu_count; i++) ls_stress_arrivals_vu_ready(w, &w->vus[i]);
    if (w->open_loop) ls_stress_arrivals_dispatch(w);
    ls_stress_worker_check_end(w);
}

static void stop(ls_stress_worker *w)
{
    end_run(w, true);
    if (w->grace_ns == UINT64_MAX && (w->outstanding > 0 || w->fanout != NULL))
        w->grace_ns = w->now_ns + STOP_GRACE_MS * MS; /* the run was ending already */
}

static void on_stop(ls_thread_ctx *ctx, ls_op *op)
{
    stop(LS_CONTAINER(op, ls_stress_worker, stop));
}

static void worker_main(void *arg)
{
    ls_stress_worker *w = arg;
    ls_packet packets[LS_WAIT_PACKETS];
    ls_pool_enter(w->pool);
    w->now_ns = w->clock_ns = w->scanned_ns = w->prepared_ns = ls_clock_ns();
    if (ls_timer_set(w->port, &w->housekeeping, w->now_ns + HOUSEKEEPING_MS * MS) < 0) w->done = true;
    for (uint32_t i = 0; i < w->vu_count; i++) {
        if (w->vus[i].inactive)
            ls_stress_worker_vu_prepared(w, &w->vus[i]);
        else
            ls_stress_worker_vu_closed(w, &w->vus[i]);
    }
    while (!w->done) {
        const bool more = !ls_list_empty(&w->to_open) && w->connecting < CONNECTING_MAX;
        int n = ls_port_wait(w->port, &w->ctx, packets, LS_WAIT_PACKETS, more ? 0 : -1);
        if (n < 0) break; /* only incorrect arguments make the wait fail */
        w->now_ns = w->clock_ns = ls_clock_ns();
        w->clock_stale = false;
        for (int i = 0; i < n; i++) packets[i].op->done(&w->ctx, packets[i].op);
        /* The end of the duration is here, after all responses that have arrived, not in the housekeeping. */
        if (w->running && w->now_ns >= w->end_ns) end_run(w, false);
        open_queued(w);
        if (w->stop_requested) stop(w);
        if (w->end_requested && w->fanout != NULL) {
            w->end_requested = false;
            end_run(w, false);
        }
        if (w->fanout != NULL && w->ending && w->running) end_fanout(w);
        if (w->end_requested) {
            if (!w->ending) record_totals(w);
            w->ending = true;
            close_all(w);
            w->end_requested = false;
        }
    }
    w->finished(w, w->user);
}

static void free_vus(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count && w->vus != NULL; i++) {
        ls_stress_vu *u = &w->vus[i];
        w->transport->free(u);
        free(u->timer);
        free(u->http.buf.at);
        free(u->echo.text);
        if (u->proto != NULL && u->proto->free != NULL) u->proto->free(u); /* NULL: not attached */
    }
    free(w->readers);
    free(w->requests);
    free(w->vus);
}

/* Create the virtual users, CLOSED; those that the first stage does not use are inactive. */
static int make_vus(ls_stress_worker *w)
{
    const ls_stress_plan *plan = w->plan;
    const size_t count = w->vu_count > 0 ? w->vu_count : 1; /* calloc(0) may return NULL */
    w->vus = calloc(count, sizeof *w->vus);
    w->requests = calloc(count * w->pipeline, sizeof *w->requests);
    if (w->vus == NULL || w->requests == NULL) return LS_ENOMEM;
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        u->worker = w;
        u->proto = w->proto;
        ls_node_init(&u->idle);
        ls_node_init(&u->to_open);
        u->role = plan->mode == LS_STRESS_PLAN_HOLD ? LS_STRESS_ROLE_LISTENER : LS_STRESS_ROLE_CLIENT;
        u->index = w->first_vu + i;
        u->requests = &w->requests[(size_t)i * w->pipeline];
        u->left = plan->sends > 0 ? plan->sends : UINT64_MAX;
        u->inactive = i >= w->active;
        if (w->delay_ns == NULL) continue;
        if ((u->timer = calloc(1, sizeof *u->timer)) == NULL) return LS_ENOMEM;
        u->timer->timer.op.done = ls_stress_arrivals_on_delay;
        u->timer->u = u;
    }
    return LS_OK;
}

int ls_stress_worker_open(ls_stress_worker *w)
{
    const ls_stress_plan *plan = w->plan;
    if (w->batch == 0) w->batch = 1;
    w->pipeline = w->batch > plan->pipeline ? w->batch : plan->pipeline;
    w->open_loop = plan->open_loop;
    w->next_due_ns = w->grace_ns = UINT64_MAX;
    w->end_ns = UINT64_MAX;
    ls_node_init(&w->idle);
    ls_node_init(&w->to_open);
    w->arrival_timer.op.done = ls_stress_arrivals_on_timer;
    w->housekeeping.op.done = on_housekeeping;
    w->active = active_at(w, 0);
    w->left = UINT64_MAX;
    if (plan->requests > 0 && plan->sends == 0 && w->index < w->senders)
        w->left = plan->requests / w->senders + (w->index < plan->requests % w->senders);
    w->addr = plan->addr;
    int err = make_vus(w);
    /* 256 MiB are enough: a receive takes a block only when data has arrived, and gives it back at once. */
    if (err == LS_OK) err = ls_pools_open((size_t)256 << 20, &w->pools);
    if (err == LS_OK) err = ls_pool_open(w->pools, &w->pool);
    if (err == LS_OK) err = ls_port_open(&(ls_port_options){.sockets_max = w->vu_count + PORT_SPARE}, &w->port);
    if (err == LS_OK) err = ls_stream_deadlines_open(w->port, &w->deadlines);
    if (err == LS_OK) err = ls_stress_counters_open(&w->count, w->open_loop, plan->tls != NULL, plan->websocket);
    if (err == LS_OK && plan->compress) err = ls_stress_deflate_open(&w->deflate);
    if (err < 0) return err;
    ls_thread_ctx_init(&w->ctx, w->port, w->pool, 0);
    w->go.done = on_go;
    w->stop.done = on_stop;
    return LS_OK;
}

int ls_stress_worker_start(ls_stress_worker *w)
{
    char name[16];
    ls_addr_to(&w->addr, &w->to);
    (void)snprintf(name, sizeof name, "ls-stress-%u", w->index % 10000u);
    return ls_thread_start_parent(&w->thread, name, worker_main, w);
}

void ls_stress_worker_go(ls_stress_worker *w, uint64_t start_ns)
{
    w->start_ns = start_ns;
    ls_port_post(w->port, &w->go, 0);
}

void ls_stress_worker_stop(ls_stress_worker *w)
{
    if (!atomic_exchange(&w->stopped, true)) ls_port_post(w->port, &w->stop, 0);
}

void ls_stress_worker_join(ls_stress_worker *w)
{
    ls_thread_join(&w->thread);
}

void ls_stress_worker_close(ls_stress_worker *w)
{
    /* The port first: its queue may hold packets of the users' timers and posts. */
    if (w->port != NULL) ls_port_close(w->port);
    if (w->deadlines != NULL) ls_deadlines_close(w->deadlines);
    free_vus(w);
    ls_stress_deflate_close(w->deflate);
    if (w->pool != NULL) ls_pool_close(w->pool);
    if (w->pools != NULL) ls_pools_close(w->pools);
    ls_stress_counters_close(&w->count);
    ls_stress_checks_close(&w->checks);
}
