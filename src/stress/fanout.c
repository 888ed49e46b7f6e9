/* fanout.c - see fanout.h. fanout_ws.c and fanout_sse.c have the protocols. */
#include "stress/fanout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/random.h"
#include "stress/arrivals.h"
#include "stress/subscriber.h"

#define PREPARE_NS_MAX UINT64_C(10000000000) /* without --timeout */

unsigned ls_stress_fanout_senders(const ls_stress_plan *plan)
{
    return plan->config.publishers < plan->config.threads ? plan->config.publishers : plan->config.threads;
}

int ls_stress_fanout_open(const ls_stress_plan *plan, struct ls_stress_fanout **out)
{
    const ls_stress_config *config = &plan->config;
    struct ls_stress_fanout *f = calloc(1, sizeof *f);
    if (f == NULL) return LS_ENOMEM;
    if ((f->publishers = calloc(config->publishers, sizeof *f->publishers)) == NULL) {
        free(f);
        return LS_ENOMEM;
    }
    ls_random(&f->run, sizeof f->run);
    f->opened_ns = ls_clock_ns();
    atomic_store(&f->senders_left, ls_stress_fanout_senders(plan));
    for (unsigned p = 0; p < config->publishers; p++)
        f->publishers[p].readers =
            ls_stress_plan_share(config->connections - config->stalled, config->topics, p % config->topics);
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
    (void)ctx;
    atomic_store(&p->told, false); /* before the look at `arrived`: a later arrival tells it again */
    ls_stress_arrivals_vu_ready(p->worker, p->u);
}

int ls_stress_fanout_attach(ls_stress_worker *w, struct ls_stress_fanout *fanout)
{
    const ls_stress_plan *plan = w->plan;
    const ls_stress_config *config = &plan->config;
    const uint32_t publishers = ls_stress_plan_share(config->publishers, config->threads, w->index);
    const uint32_t subscribers = ls_stress_plan_share(config->connections, config->threads, w->index);
    const uint32_t first = ls_stress_plan_share_before(config->publishers, config->threads, w->index);
    const uint32_t first_subscriber = ls_stress_plan_share_before(config->connections, config->threads, w->index);
    const size_t tracks = (config->publishers + config->topics - 1) / config->topics;
    w->fanout = fanout;
    w->readers = calloc(config->topics, sizeof *w->readers);
    w->publisher_count = publishers;
    if (w->readers == NULL) return LS_ENOMEM;
    for (uint32_t i = 0; i < publishers; i++) {
        ls_stress_vu *u = &w->vus[i];
        u->role = LS_STRESS_ROLE_PUBLISHER;
        u->number = first + i;
        u->topic = u->number % config->topics;
        u->proto = plan->config.sse ? &ls_stress_http_proto : &ls_stress_ws_publisher_proto;
        fanout->publishers[u->number].worker = w;
        fanout->publishers[u->number].u = u;
        fanout->publishers[u->number].ready.done = on_ready;
    }
    for (uint32_t i = 0; i < subscribers; i++) {
        ls_stress_vu *u = &w->vus[publishers + i];
        u->role = LS_STRESS_ROLE_LISTENER;
        u->number = first_subscriber + i;
        u->topic = u->number % config->topics;
        u->stalled = u->number >= config->connections - config->stalled;
        u->proto = plan->config.sse ? &ls_stress_sse_subscriber_proto : &ls_stress_ws_subscriber_proto;
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

char *ls_stress_fanout_topic(const char *text, unsigned topic)
{
    static const char name[] = "{topic}";
    enum { DIGITS_MAX = 10 };
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += sizeof name - 1) count++;
    char *out = malloc(strlen(text) + count * DIGITS_MAX + 1), *to = out;
    if (out == NULL) return NULL;
    for (const char *at = text; *at != '\0';) {
        if (strncmp(at, name, sizeof name - 1) == 0) {
            to += snprintf(to, DIGITS_MAX + 1, "%u", topic);
            at += sizeof name - 1;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
    return out;
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

bool ls_stress_fanout_post(ls_stress_vu *u, uint32_t count)
{
    const ls_stress_plan *plan = u->worker->plan;
    const size_t body_len = LS_DELIVERY_HEAD_BYTES + plan->message_len;
    char *path = ls_stress_fanout_topic(plan->publish_path, u->topic), *body = malloc(body_len);
    bool ok = path != NULL && body != NULL;
    for (uint32_t k = u->outstanding - count; ok && k < u->outstanding; k++) {
        size_t len;
        ls_stress_fanout_write(u, k, body);
        char *request = ls_stress_plan_request(plan, "POST", path, body, body_len, 1, &len);
        ok = request != NULL && ls_stress_vu_put(u, request, len);
        if (request == NULL) ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
        free(request);
    }
    if (path == NULL || body == NULL) ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    free(path);
    free(body);
    return ok;
}

uint32_t ls_stress_fanout_room(const ls_stress_vu *u)
{
    const ls_stress_publisher *p = &u->worker->fanout->publishers[u->number];
    const uint64_t all = ls_counter_read(&p->published) * p->readers, arrived = atomic_load(&p->arrived);
    const uint64_t missing = all > arrived ? (all - arrived + p->readers - 1) / p->readers : 0;
    return missing < u->worker->pipeline ? u->worker->pipeline - (uint32_t)missing : 0;
}

void ls_stress_fanout_time_out(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->config.timeout_ns;
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
static void tell_publisher(ls_stress_worker *w, ls_stress_publisher *p)
{
    if (w->open_loop || (atomic_fetch_add(&p->arrived, 1) + 1) % p->readers != 0) return;
    if (p->worker == w)
        ls_stress_arrivals_vu_ready(w, p->u);
    else if (!atomic_exchange(&p->told, true))
        (void)ls_port_post(p->worker->port, &p->ready, NULL, 0);
}

/* A message that is not of this run or topic; before the run there are probes of other topics. */
static void count_foreign(ls_stress_worker *w)
{
    if (w->running) ls_counter_add(&w->count.foreign, 1);
}

void ls_stress_fanout_count(ls_stress_vu *u, const ls_delivery_head *head)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_config *config = &w->plan->config;
    const uint64_t now_ns = w->now_ns;
    if (head->run != w->fanout->run || head->publisher >= config->publishers ||
        head->publisher % config->topics != u->topic) {
        count_foreign(w);
        return;
    }
    if (head->number == 0) {
        if (!u->settled) atomic_fetch_add(&w->fanout->ready, 1);
        ls_stress_worker_vu_settled(w, u);
        return;
    }
    u->used = true;
    switch (ls_delivery_take(&u->subscriber->tracks[head->publisher / config->topics], head->number)) {
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
    tell_publisher(w, &w->fanout->publishers[head->publisher]);
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

static void give_up(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->settled || u->state == LS_STRESS_VU_CONNECTING) continue;
        ls_stress_worker_record_failure(
            w,
            "a subscriber received no message within the time limit: the server must publish to it what it receives "
            "on --publish-path",
            "", 0);
        ls_counter_add(&w->count.errors[LS_STRESS_ERROR_SUBSCRIBE], 1);
        ls_stress_worker_vu_settled(w, u);
    }
}

void ls_stress_fanout_prepare(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->config.timeout_ns > 0 ? w->plan->config.timeout_ns : PREPARE_NS_MAX;
    for (uint32_t i = 0; i < w->publisher_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->state == LS_STRESS_VU_OPEN && !u->tx_pending && u->outstanding == 0) ls_stress_vu_request(u, 1);
    }
    if (w->settled_vus < w->vu_count && w->now_ns - w->settled_ns >= limit_ns) give_up(w);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void ls_stress_fanout_ended(ls_stress_worker *w)
{
    w->delivered_ns = w->now_ns;
    if (w->publisher_count > 0) atomic_fetch_sub(&w->fanout->senders_left, 1);
}

/* The deliveries that this worker's subscribers should have received. */
static uint64_t expected(const ls_stress_worker *w)
{
    const ls_stress_config *config = &w->plan->config;
    uint64_t sum = 0;
    for (unsigned p = 0; p < config->publishers; p++)
        sum += ls_counter_read(&w->fanout->publishers[p].published) * w->readers[p % config->topics];
    return sum;
}

bool ls_stress_fanout_done(const ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->config.timeout_ns > 0 ? w->plan->config.timeout_ns : PREPARE_NS_MAX;
    if (atomic_load(&w->fanout->senders_left) > 0) return false;
    if (w->now_ns >= w->grace_ns || w->unclosed == 0) return true;
    return ls_counter_read(&w->count.requests) >= expected(w) ||
           (w->now_ns > w->delivered_ns && w->now_ns - w->delivered_ns >= limit_ns);
}

void ls_stress_fanout_count_lost(ls_stress_worker *w)
{
    const uint64_t all = expected(w), received = ls_counter_read(&w->count.requests);
    atomic_store_explicit(&w->count.expected, all, memory_order_relaxed);
    atomic_store_explicit(&w->count.lost, all > received ? all - received : 0, memory_order_relaxed);
}
