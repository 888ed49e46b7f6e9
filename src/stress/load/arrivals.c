/* arrivals.c - which virtual user sends when. See arrivals.h.
 *
 * Due requests of a worker are counted, not stored: request i of thread t is request i * threads + t of the schedule,
 * which gives its due time (in a fan-out run, of the threads that have publishers). Where a script returns several
 * requests at once (w->batch), one turn stands for `batch` requests of the schedule, all due with the first of them.
 *
 * dispatched <= due_count; dispatched < due_count only while no idle virtual user can send */
#include "stress/load/arrivals.h"

static uint64_t due_ns(const ls_stress_worker *w, uint64_t turn)
{
    const uint64_t number = (turn * w->senders + w->index) * w->batch;
    const uint64_t at_ns = ls_stress_schedule_due_ns(&w->plan->schedule, number);
    return at_ns > UINT64_MAX - w->start_ns ? UINT64_MAX : at_ns + w->start_ns;
}

static void push_idle(ls_stress_worker *w, ls_stress_vu *u)
{
    if (ls_list_empty(&u->idle)) ls_list_push(&w->idle, &u->idle);
}

/* True if the pipeline has room for one more turn after `more` requests that are about to be sent. */
static bool has_room(const ls_stress_worker *w, const ls_stress_vu *u, uint32_t more)
{
    const uint32_t used = u->outstanding + more;
    return used + w->batch <= w->pipeline && (w->batch == 1 || used == 0);
}

static bool can_send(const ls_stress_worker *w, const ls_stress_vu *u)
{
    return u->state == LS_STRESS_VU_OPEN && !u->tx_pending && !u->delayed && !u->inactive && has_room(w, u, 0);
}

/* The first idle virtual user that can send, or NULL. */
static ls_stress_vu *pop_idle(ls_stress_worker *w)
{
    LS_LIST_TAKE (ls_stress_vu, u, &w->idle, idle)
        if (can_send(w, u)) return u;
    return NULL;
}

/* ---- open loop -------------------------------------------------------------------------------------------------- */

/* Dispatch the oldest due requests to the virtual user, as many as it has room for, in one send. A publication over
 * WebSocket is complete when it is sent: no response follows that would dispatch the next one. */
static void dispatch_to(ls_stress_worker *w, ls_stress_vu *u)
{
    do {
        const uint64_t now_ns = ls_stress_worker_now(w);
        uint32_t count = 0;
        for (; w->dispatched < w->due_count && has_room(w, u, count); count += w->batch) {
            w->late_ns = now_ns > w->next_due_ns ? now_ns - w->next_due_ns : 0;
            for (uint32_t i = 0; i < w->batch; i++) ls_stress_vu_set_due(u, count + i, w->next_due_ns);
            w->next_due_ns = ++w->dispatched < w->due_count ? due_ns(w, w->dispatched) : UINT64_MAX;
        }
        ls_stress_vu_request(u, count);
    } while (w->dispatched < w->due_count && can_send(w, u));
    if (can_send(w, u)) push_idle(w, u); /* the pipeline has room for more */
}

void ls_stress_arrivals_dispatch(ls_stress_worker *w)
{
    uint64_t now_ns = ls_stress_worker_now(w), at_ns;
    if (w->index >= w->senders) return;
    for (;;) {
        at_ns = (w->due_count - w->dispatched) * w->batch < w->left ? due_ns(w, w->due_count) : UINT64_MAX;
        if (at_ns > now_ns || at_ns >= w->end_ns) break;
        for (uint32_t i = 0; i < w->batch; i++) ls_histogram_record(w->count.lag, now_ns - at_ns);
        if (w->due_count++ == w->dispatched) w->next_due_ns = at_ns;
        ls_stress_vu *u = w->due_count - w->dispatched == 1 ? pop_idle(w) : NULL;
        if (u == NULL) continue; /* this turn and later ones wait */
        dispatch_to(w, u);
        now_ns = ls_stress_worker_now(w);
    }
    if (at_ns < w->end_ns && ls_timer_set(w->port, &w->arrival_timer, at_ns) < 0) w->stop_requested = true;
}

void ls_stress_arrivals_on_timer(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_worker *w = LS_CONTAINER(op, ls_stress_worker, arrival_timer.op);
    if (w->running && !w->ending) ls_stress_arrivals_dispatch(w);
}

void ls_stress_arrivals_count_unsent(ls_stress_worker *w)
{
    uint64_t late_ns = w->late_ns;
    if (w->dispatched < w->due_count) late_ns = w->end_ns > w->next_due_ns ? w->end_ns - w->next_due_ns : 0;
    atomic_store_explicit(&w->count.late_ns, late_ns, memory_order_relaxed);
    for (; w->dispatched < w->due_count; w->dispatched++) {
        const uint64_t at_ns = due_ns(w, w->dispatched);
        for (uint32_t i = 0; i < w->batch; i++)
            if (w->fanout == NULL) ls_histogram_record(w->count.due, w->end_ns > at_ns ? w->end_ns - at_ns : 0);
        ls_counter_add(&w->count.unsent, w->batch);
    }
}

/* ---- closed loop ------------------------------------------------------------------------------------------------ */

void ls_stress_arrivals_on_delay(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_timer, timer.op)->u;
    u->delayed = false;
    if (!u->worker->ending && can_send(u->worker, u)) ls_stress_vu_request(u, u->worker->batch);
}

/* Fill the pipeline, within the limits of the run. */
static void send_next(ls_stress_worker *w, ls_stress_vu *u)
{
    uint32_t count = w->batch > 1 ? w->batch : w->pipeline - u->outstanding;
    if (w->fanout != NULL) {
        const uint32_t room = w->fanout_hooks->room(u);
        if (room == 0) return;
        if (room < count) count = room;
    }
    if (w->batch == 1 && count > w->left) count = (uint32_t)w->left;
    if (w->batch == 1 && count > u->left) count = (uint32_t)u->left;
    if (count == 0 || w->left == 0 || u->left == 0) {
        ls_stress_worker_check_end(w);
        if (u->left == 0 && u->outstanding == 0 && !w->end_requested) {
            u->inactive = true;
            ls_stress_vu_close(u);
        }
        return;
    }
    if (w->delay_ns != NULL) {
        const uint64_t wait_ns = w->delay_ns(w->script);
        if (w->stop_requested) return;
        if (wait_ns > 0) {
            u->delayed = true;
            if (ls_timer_set(w->port, &u->timer->timer, ls_stress_worker_now(w) + wait_ns) == LS_OK) return;
            u->delayed = false;
        }
    }
    ls_stress_vu_request(u, count);
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

void ls_stress_arrivals_vu_ready(ls_stress_worker *w, ls_stress_vu *u)
{
    if (!w->running || u->state != LS_STRESS_VU_OPEN || u->role == LS_STRESS_ROLE_LISTENER) return;
    if (w->ending) {
        ls_stress_worker_check_end(w);
        return;
    }
    if (u->inactive && u->outstanding == 0 && u->retries == 0) {
        ls_stress_vu_close(u);
        return;
    }
    if (u->retries > 0 && !u->tx_pending) {
        ls_stress_vu_retry(u);
        return;
    }
    if (!can_send(w, u)) return;
    if (!w->open_loop) {
        send_next(w, u);
    } else {
        if (w->dispatched < w->due_count)
            dispatch_to(w, u);
        else
            push_idle(w, u);
        if (w->left == 0 || w->outstanding == 0) ls_stress_worker_check_end(w);
    }
}
