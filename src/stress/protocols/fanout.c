/* fanout.c - see fanout.h. fanout_ws.c and fanout_sse.c have the protocols. */
#include "stress/protocols/fanout.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crypto/random.h"
#include "stress/load/arrivals.h"

#define PREPARE_NS_MAX UINT64_C(10000000000) /* without --timeout */
#define FAILED_NS_MAX  UINT64_C(1000000000)  /* after the end, if a subscriber has failed by an event */

unsigned ls_stress_fanout_senders(const ls_stress_plan *plan)
{
    return plan->publishers < plan->threads ? plan->publishers : plan->threads;
}

int ls_stress_fanout_open(const ls_stress_plan *plan, struct ls_stress_fanout **out)
{
    struct ls_stress_fanout *f = calloc(1, sizeof *f);
    if (f == NULL) return LS_ENOMEM;
    if ((f->publishers = calloc(plan->publishers, sizeof *f->publishers)) == NULL) {
        free(f);
        return LS_ENOMEM;
    }
    ls_random(&f->run, sizeof f->run);
    f->opened_ns = ls_clock_ns();
    atomic_store(&f->senders_left, ls_stress_fanout_senders(plan));
    for (unsigned p = 0; p < plan->publishers; p++)
        f->publishers[p].readers =
            ls_stress_plan_share(plan->connections - plan->stalled, plan->topics, p % plan->topics);
    *out = f;
    return LS_OK;
}

void ls_stress_fanout_close(struct ls_stress_fanout *f)
{
    if (f == NULL) return;
    free(f->publishers);
    free(f);
}

static void on_ready(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stress_publisher *p = LS_CONTAINER(op, ls_stress_publisher, ready);
    atomic_store(&p->notified, false); /* before the look at `arrived`: a later arrival notifies it again */
    ls_stress_arrivals_vu_ready(p->worker, p->u);
}

int ls_stress_fanout_attach(ls_stress_worker *w, struct ls_stress_fanout *fanout, const ls_stress_proto *publisher,
                            const ls_stress_proto *subscriber)
{
    const ls_stress_plan *plan = w->plan;
    const uint32_t publishers = ls_stress_plan_share(plan->publishers, plan->threads, w->index);
    const uint32_t subscribers = ls_stress_plan_share(plan->connections, plan->threads, w->index);
    const uint32_t first = ls_stress_plan_share_before(plan->publishers, plan->threads, w->index);
    const uint32_t first_subscriber = ls_stress_plan_share_before(plan->connections, plan->threads, w->index);
    const size_t tracks = (plan->publishers + plan->topics - 1) / plan->topics;
    w->fanout = fanout;
    w->fanout_hooks = &ls_stress_fanout_hooks_of_all;
    w->readers = calloc(plan->topics, sizeof *w->readers);
    w->publisher_count = publishers;
    if (w->readers == NULL) return LS_ENOMEM;
    for (uint32_t i = 0; i < publishers; i++) {
        ls_stress_vu *u = &w->vus[i];
        u->role = LS_STRESS_ROLE_PUBLISHER;
        u->number = first + i;
        u->topic = u->number % plan->topics;
        u->proto = publisher;
        fanout->publishers[u->number].worker = w;
        fanout->publishers[u->number].u = u;
        fanout->publishers[u->number].ready.done = on_ready;
    }
    for (uint32_t i = 0; i < subscribers; i++) {
        ls_stress_vu *u = &w->vus[publishers + i];
        u->role = LS_STRESS_ROLE_LISTENER;
        u->number = first_subscriber + i;
        u->topic = u->number % plan->topics;
        u->stalled = u->number >= plan->connections - plan->stalled;
        u->proto = subscriber;
        if ((u->subscriber = calloc(1, sizeof *u->subscriber + tracks * sizeof(ls_delivery_track))) == NULL)
            return LS_ENOMEM;
        if (!u->stalled) w->readers[u->topic]++;
    }
    return LS_OK;
}

void ls_stress_fanout_free(ls_stress_vu *u)
{
    if (u->subscriber == NULL) return;
    ls_sse_close(&u->subscriber->sse);
    free(u->subscriber);
}

/* ---- publications ----------------------------------------------------------------------------------------------- */

void ls_stress_fanout_write(ls_stress_vu *u, uint32_t k, char *out)
{
    ls_stress_worker *w = u->worker;
    ls_stress_request *request = &u->requests[(u->first + k) % w->pipeline];
    const uint64_t due_ns = w->open_loop ? request->due_ns : UINT64_MAX;
    ls_stress_publisher *p = &w->fanout->publishers[u->number];
    const uint64_t now_ns = ls_stress_worker_now(w);
    ls_delivery_head head = {
        .run = w->fanout->run, .publisher = (uint16_t)u->number, .sent_ns = now_ns - w->fanout->opened_ns};
    if (w->running) {
        if (request->number == 0) { /* else a retry: the message that the server has not read has its number already */
            ls_counter_add(&p->published, 1);
            ls_counter_add(&w->count.published, 1);
            request->number = ls_counter_read(&p->published);
        }
        head.number = request->number;
        head.late_ns = due_ns < now_ns ? now_ns - due_ns : 0;
        p->published_ns = now_ns;
    }
    ls_delivery_write(&head, out);
    memcpy(out + LS_DELIVERY_HEAD_BYTES, w->plan->message, w->plan->message_len);
}

static uint32_t room(const ls_stress_vu *u)
{
    const ls_stress_publisher *p = &u->worker->fanout->publishers[u->number];
    const uint64_t all = ls_counter_read(&p->published) * p->readers, arrived = atomic_load(&p->arrived);
    const uint64_t missing = all > arrived ? (all - arrived + p->readers - 1) / p->readers : 0;
    return missing < u->worker->pipeline ? u->worker->pipeline - (uint32_t)missing : 0;
}

/* Closed loop: publishers whose message has not arrived everywhere within the time limit continue. */
static void time_out(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->timeout_ns;
    for (uint32_t i = 0; limit_ns > 0 && i < w->publisher_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        ls_stress_publisher *p = &w->fanout->publishers[u->number];
        const uint64_t all = ls_counter_read(&p->published) * p->readers;
        if (atomic_load(&p->arrived) >= all || w->now_ns < p->published_ns + limit_ns) continue;
        ls_stress_worker_record_failure(w, "a message did not arrive at all subscribers within the time limit", "", 0);
        ls_counter_add(&w->count.errors[LS_STRESS_ERROR_TIMEOUT], 1);
        atomic_store(&p->arrived, all);
        ls_stress_arrivals_vu_ready(w, u);
    }
}

/* ---- deliveries ------------------------------------------------------------------------------------------------- */

/* Closed loop: the publisher may continue when its message has arrived everywhere. */
static void notify_publisher(ls_stress_worker *w, ls_stress_publisher *p)
{
    if (w->open_loop || (atomic_fetch_add(&p->arrived, 1) + 1) % p->readers != 0) return;
    if (p->worker == w)
        ls_stress_arrivals_vu_ready(w, p->u);
    else if (!atomic_exchange(&p->notified, true))
        ls_port_post(p->worker->port, &p->ready, 0);
}

/* A message that is not of this run or topic; before the run there are probes of other topics. */
static void count_foreign(ls_stress_worker *w)
{
    if (w->running) ls_counter_add(&w->count.foreign, 1);
}

void ls_stress_fanout_count(ls_stress_vu *u, const ls_delivery_head *head)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_plan *plan = w->plan;
    const uint64_t now_ns = w->now_ns;
    if (head->run != w->fanout->run || head->publisher >= plan->publishers ||
        head->publisher % plan->topics != u->topic) {
        count_foreign(w);
        return;
    }
    if (head->number == 0) {
        if (!u->prepared) atomic_fetch_add(&w->fanout->ready, 1);
        ls_stress_worker_vu_prepared(w, u);
        return;
    }
    u->used = true;
    switch (ls_delivery_take(&u->subscriber->tracks[head->publisher / plan->topics], head->number)) {
    case LS_DELIVERY_DUPLICATED: ls_counter_add(&w->count.duplicated, 1); return;
    case LS_DELIVERY_REORDERED: ls_counter_add(&w->count.reordered, 1); break;
    default: break;
    }
    ls_counter_add(&w->count.requests, 1);
    ls_counter_add(&w->count.status[0], 1);
    const uint64_t sent_ns = w->fanout->opened_ns + head->sent_ns;
    const uint64_t latency_ns = now_ns > sent_ns ? now_ns - sent_ns : 0;
    ls_histogram_record(w->count.sent, latency_ns);
    if (w->open_loop) ls_histogram_record(w->count.due, latency_ns + head->late_ns);
    w->delivered_ns = now_ns;
    if (!w->ending || w->by_number) w->ended_ns = now_ns;
    notify_publisher(w, &w->fanout->publishers[head->publisher]);
}

void ls_stress_fanout_deliver(ls_stress_vu *u, const char *bytes, size_t len)
{
    ls_stress_worker *w = u->worker;
    ls_delivery_head head;
    if (!ls_delivery_read(bytes, len, &head)) {
        count_foreign(w);
        return;
    }
    const ls_stress_plan *plan = w->plan;
    if (len != LS_DELIVERY_HEAD_BYTES + plan->message_len ||
        memcmp(bytes + LS_DELIVERY_HEAD_BYTES, plan->message, plan->message_len) != 0) {
        ls_stress_worker_record_failure(w, "a delivery differs from the message", bytes, len);
        ls_counter_add(&w->count.errors[LS_STRESS_ERROR_ANSWER], 1);
        return;
    }
    ls_stress_fanout_count(u, &head);
}

/* ---- before the run --------------------------------------------------------------------------------------------- */

static void fail_unprepared(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->prepared || u->state == LS_STRESS_VU_CONNECTING) continue;
        ls_stress_worker_record_failure(
            w,
            "a subscriber received no message within the time limit: the server must publish to it what it receives "
            "on --publish-path",
            "", 0);
        ls_counter_add(&w->count.errors[LS_STRESS_ERROR_SUBSCRIBE], 1);
        ls_stress_worker_vu_prepared(w, u);
    }
}

/* Send probes; close the waiting of subscribers that have received none within the time limit. */
static void prepare(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->timeout_ns > 0 ? w->plan->timeout_ns : PREPARE_NS_MAX;
    for (uint32_t i = 0; i < w->publisher_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->state == LS_STRESS_VU_OPEN && !u->tx_pending && u->outstanding == 0) ls_stress_vu_request(u, 1);
    }
    if (w->prepared_vus < w->vu_count && w->now_ns - w->prepared_ns >= limit_ns) fail_unprepared(w);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void ended(ls_stress_worker *w)
{
    w->delivered_ns = w->now_ns;
    if (w->publisher_count > 0) atomic_fetch_sub(&w->fanout->senders_left, 1);
}

/* The deliveries that this worker's subscribers should have received. */
static uint64_t expected(const ls_stress_worker *w)
{
    const ls_stress_plan *plan = w->plan;
    uint64_t sum = 0;
    for (unsigned p = 0; p < plan->publishers; p++)
        sum += ls_counter_read(&w->fanout->publishers[p].published) * w->readers[p % plan->topics];
    return sum;
}

static bool complete(ls_stress_worker *w)
{
    uint64_t limit_ns = w->plan->timeout_ns > 0 ? w->plan->timeout_ns : PREPARE_NS_MAX;
    if (w->event_failed && limit_ns > FAILED_NS_MAX) limit_ns = FAILED_NS_MAX;
    if (atomic_load(&w->fanout->senders_left) > 0) return false;
    const uint64_t all = expected(w), received = ls_counter_read(&w->count.requests);
    const bool late = w->now_ns > w->delivered_ns && w->now_ns - w->delivered_ns >= limit_ns;
    if (w->now_ns < w->grace_ns && w->unclosed > 0 && received < all && !late) return false;
    atomic_store_explicit(&w->count.expected, all, memory_order_relaxed);
    atomic_store_explicit(&w->count.lost, all > received ? all - received : 0, memory_order_relaxed);
    return true;
}

static bool tick(ls_stress_worker *w)
{
    if (!w->running) {
        prepare(w);
        return false;
    }
    if (!w->open_loop) time_out(w);
    return atomic_load(&w->fanout->senders_left) == 0; /* all requests of -n are made */
}

const ls_stress_fanout_hooks ls_stress_fanout_hooks_of_all = {
    .tick = tick, .room = room, .ended = ended, .complete = complete};
