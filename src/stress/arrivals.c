/* arrivals.c - who asks when. Closed loop: a virtual user that was answered, at once, or when its script's delay is over. Open loop:
 * whoever is free when a request is due; what finds nobody waits in line.
 *
 * Requests of a worker that are due are counted, not kept: number i of thread t is number i * threads + t of the schedule,
 * and any moment can be computed from that. Where a script makes several requests at once (w->batch), one turn of the line
 * is so many numbers of the schedule, due with the first of them.
 *
 *     taken <= noticed; taken < noticed only while no virtual user that is free can ask */
#include "base/list.h"
#include "stress/script.h"
#include "stress/worker.h"

static uint64_t due_ns(const ls_stress_worker *w, uint64_t turn)
{
    const uint64_t number = (turn * w->plan->config.threads + w->index) * w->batch;
    const uint64_t at_ns = ls_stress_schedule_due_ns(&w->plan->schedule, number);
    return at_ns > UINT64_MAX - w->start_ns ? UINT64_MAX : at_ns + w->start_ns;
}

static void put_free(ls_stress_worker *w, ls_stress_vu *u)
{
    if (u->listed) return;
    u->listed = true;
    u->next = NULL;
    *w->free_last = u;
    w->free_last = &u->next;
}

/* Is there room for a turn behind `more` requests that it is about to send? */
static bool has_room(const ls_stress_worker *w, const ls_stress_vu *u, uint32_t more)
{
    const uint32_t used = u->outstanding + more;
    return used + w->batch <= w->pipeline && (w->batch == 1 || used == 0);
}

static bool can_ask(const ls_stress_worker *w, const ls_stress_vu *u)
{
    return u->state == LS_STRESS_VU_OPEN && !u->tx_pending && !u->sleeping && !u->parked && has_room(w, u, 0);
}

/* A virtual user of the list of free ones that can ask, or NULL. */
static ls_stress_vu *take_free(ls_stress_worker *w)
{
    while (w->free_first != NULL) {
        ls_stress_vu *u = w->free_first;
        if ((w->free_first = u->next) == NULL) w->free_last = &w->free_first;
        u->listed = false;
        if (can_ask(w, u)) return u;
    }
    return NULL;
}

/* ---- open loop --------------------------------------------------------------------------------------------------- */

/* Let the virtual user ask what was due first: as much as it has room for leaves in one send. */
static void take_due(ls_stress_worker *w, ls_stress_vu *u)
{
    const uint64_t now_ns = ls_stress_worker_now(w);
    uint32_t count = 0;
    for (; w->taken < w->noticed && has_room(w, u, count); count += w->batch) {
        w->behind_ns = now_ns > w->next_ns ? now_ns - w->next_ns : 0;
        for (uint32_t i = 0; i < w->batch; i++) ls_stress_vu_due(u, count + i, w->next_ns);
        w->next_ns = ++w->taken < w->noticed ? due_ns(w, w->taken) : UINT64_MAX;
    }
    ls_stress_vu_request(u, count);
    if (can_ask(w, u)) put_free(w, u); /* pipelining: there is room for more */
}

void ls_stress_worker_arrivals(ls_stress_worker *w)
{
    uint64_t now_ns = ls_stress_worker_now(w), at_ns;
    for (;;) {
        at_ns = (w->noticed - w->taken) * w->batch < w->left ? due_ns(w, w->noticed) : UINT64_MAX;
        if (at_ns > now_ns || at_ns >= w->end_ns) break;
        for (uint32_t i = 0; i < w->batch; i++) ls_histogram_record(w->count.lag, now_ns - at_ns);
        if (w->noticed++ == w->taken) w->next_ns = at_ns;
        ls_stress_vu *u = w->noticed - w->taken == 1 ? take_free(w) : NULL;
        if (u == NULL) continue; /* it waits; so do those after it */
        take_due(w, u);
        now_ns = ls_stress_worker_now(w);
    }
    if (at_ns < w->end_ns && ls_timer_set(w->port, &w->tick, at_ns) < 0) w->stop_asked = true;
}

void ls_stress_worker_ticked(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_worker *w = LS_CONTAINER(op, ls_stress_worker, tick.op);
    if (w->going && !w->ending) ls_stress_worker_arrivals(w);
}

void ls_stress_worker_count_unsent(ls_stress_worker *w)
{
    uint64_t behind_ns = w->behind_ns;
    if (w->taken < w->noticed) behind_ns = w->end_ns > w->next_ns ? w->end_ns - w->next_ns : 0;
    atomic_store_explicit(&w->count.behind_ns, behind_ns, memory_order_relaxed);
    for (; w->taken < w->noticed; w->taken++) {
        const uint64_t at_ns = due_ns(w, w->taken);
        for (uint32_t i = 0; i < w->batch; i++)
            ls_histogram_record(w->count.due, w->end_ns > at_ns ? w->end_ns - at_ns : 0);
        ls_counter_add(&w->count.unsent, w->batch);
    }
}

/* ---- closed loop ------------------------------------------------------------------------------------------------- */

void ls_stress_worker_slept(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = op->key;
    u->sleeping = false;
    if (!u->worker->ending && can_ask(u->worker, u)) ls_stress_vu_request(u, u->worker->batch);
}

/* Ask as much as may be on its way. */
static void ask_more(ls_stress_worker *w, ls_stress_vu *u)
{
    uint32_t count = w->batch > 1 ? w->batch : w->pipeline - u->outstanding;
    if (w->batch == 1 && count > w->left) count = (uint32_t)w->left;
    if (w->batch == 1 && count > u->left) count = (uint32_t)u->left;
    if (count == 0 || w->left == 0 || u->left == 0) {
        ls_stress_worker_look(w);
        if (u->left == 0 && u->outstanding == 0 && !w->end_asked) {
            u->parked = true;
            ls_stress_vu_close(u);
        }
        return;
    }
    if (u->timer != NULL && ls_stress_script_has_delay(w->script)) {
        const uint64_t wait_ns = ls_stress_script_delay_ns(w->script);
        if (w->stop_asked) return;
        if (wait_ns > 0) {
            u->sleeping = true;
            u->timer->op.key = u;
            if (ls_timer_set(w->port, u->timer, ls_stress_worker_now(w) + wait_ns) == LS_OK) return;
            u->sleeping = false;
        }
    }
    ls_stress_vu_request(u, count);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

void ls_stress_worker_free(ls_stress_worker *w, ls_stress_vu *u)
{
    if (!w->going || u->state != LS_STRESS_VU_OPEN) return;
    if (w->ending) {
        ls_stress_worker_look(w);
        return;
    }
    if (u->parked && u->outstanding == 0 && u->to_retry == 0) {
        ls_stress_vu_close(u);
        return;
    }
    if (u->to_retry > 0 && !u->tx_pending) {
        ls_stress_vu_retry(u);
        return;
    }
    if (!can_ask(w, u)) return;
    if (!w->open_loop) {
        ask_more(w, u);
    } else {
        if (w->taken < w->noticed)
            take_due(w, u);
        else
            put_free(w, u);
        if (w->left == 0 || w->busy == 0) ls_stress_worker_look(w);
    }
}
