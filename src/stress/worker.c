/* worker.c - the thread of a worker: its clock, what it looks at now and then, and when it begins and ends. See worker.h;
 * who asks when is in arrivals.c. */
#include "stress/worker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "stress/script.h"

enum { OPENING_MAX = 64, PULSE_MS = 100, STOPPED_MS = 1000, PORT_SPARE = 8 };
#define MS UINT64_C(1000000)

static char go_order, stop_order; /* keys of the packets that main posts */

uint64_t ls_stress_worker_now(ls_stress_worker *w)
{
    if (w->stale) {
        w->fresh_ns = ls_clock_ns();
        w->stale = false;
    }
    return w->fresh_ns;
}

void ls_stress_worker_note_failure(ls_stress_worker *w, const char *why, const char *bytes, size_t len)
{
    if (w->first_failure[0] != '\0') return;
    size_t at = (size_t)snprintf(w->first_failure, sizeof w->first_failure, len > 0 ? "%s: \"" : "%s", why);
    if (len == 0) return;
    for (size_t i = 0; i < len && i < 48 && at + 8 < sizeof w->first_failure; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        at += (size_t)snprintf(w->first_failure + at, sizeof w->first_failure - at,
                               c >= 0x20 && c < 0x7f && c != '"' && c != '\\' ? "%c" : "\\x%02x", c);
    }
    (void)snprintf(w->first_failure + at, sizeof w->first_failure - at, "\"");
}

void ls_stress_worker_check(ls_stress_worker *w, const char *name, size_t len, bool passed)
{
    if (!passed) ls_counter_add(&w->count.checks_failed, 1);
    (void)ls_stress_checks_count(&w->checks, name, len, passed); /* without memory it is in the total alone */
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void end_now(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->timer != NULL && ls_timer_cancel(w->port, u->timer)) u->timing = false;
        ls_stress_vu_close(u);
    }
    (void)ls_timer_cancel(w->port, &w->tick);
    (void)ls_timer_cancel(w->port, &w->pulse);
    w->done = w->unclosed == 0;
}

/* The age of what was never answered is a corrected latency, too: `count` requests from the virtual user's oldest on. */
static void record_ages(ls_stress_worker *w, const ls_stress_vu *u, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t due_ns = u->requests[(u->first + i) % w->pipeline].due_ns;
        ls_histogram_record(w->count.due, w->now_ns > due_ns ? w->now_ns - due_ns : 0);
    }
}

/* Open loop, at the end: what was to be asked again on a new connection is not. */
static void drop_retries(ls_stress_worker *w, ls_stress_vu *u)
{
    record_ages(w, u, u->to_retry);
    ls_counter_add(&w->count.unsent, u->to_retry);
    w->to_retry -= u->to_retry;
    u->to_retry = 0;
}

/* No answer is waited for any more. */
static void give_up(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        record_ages(w, u, u->outstanding);
        if (u->outstanding > 0) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_TIMEOUT], u->outstanding);
        u->outstanding = 0;
    }
    w->busy = 0;
    w->grace_ns = UINT64_MAX;
    end_now(w);
}

/* Open loop, while the last answers are waited for: those that take longer than a request may. */
static void end_late_ones(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->config.timeout_ns;
    for (uint32_t i = 0; limit_ns > 0 && i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        if (u->state != LS_STRESS_VU_OPEN || u->outstanding == 0) continue;
        const uint64_t sent_ns = u->requests[u->first].sent_ns;
        if (sent_ns >= w->now_ns || w->now_ns - sent_ns < limit_ns) continue;
        record_ages(w, u, u->outstanding);
        ls_stress_vu_timed_out(u);
    }
}

/* What the run looks like from here when its last request was sent. */
static void sum_up(ls_stress_worker *w)
{
    const uint64_t wanted_ns = ls_thread_wanted_ns();
    atomic_store_explicit(&w->count.wanted_ns, wanted_ns - w->wanted_ns, memory_order_relaxed);
    if (w->open_loop) ls_stress_worker_count_unsent(w);
}

/* No new requests from now on. In open loop the last answers are waited for, each as long as a request may take; when the run
 * was stopped, or a request may take for ever, no longer than STOPPED_MS. */
static void begin_to_end(ls_stress_worker *w, bool stopped)
{
    if (w->ending) return;
    if (w->going && w->end_ns > w->now_ns) w->end_ns = w->now_ns;
    if (w->going && w->open_loop) ls_stress_worker_arrivals(w); /* what was due and not seen to be */
    w->ending = true;
    w->ended_ns = w->end_ns;
    if (w->going) sum_up(w);
    if (!w->going || !w->open_loop) {
        end_now(w);
        return;
    }
    for (uint32_t i = 0; i < w->vu_count; i++) drop_retries(w, &w->vus[i]);
    if (stopped || w->plan->config.timeout_ns == 0) w->grace_ns = w->now_ns + STOPPED_MS * MS;
    if (w->busy == 0) end_now(w);
}

void ls_stress_worker_stop_inside(ls_stress_worker *w)
{
    w->stop_asked = true;
}

void ls_stress_worker_look(ls_stress_worker *w)
{
    if (!w->going) return;
    if (w->ending) {
        if (w->busy == 0) w->end_asked = true;
        return;
    }
    if (w->busy + w->to_retry > 0) return;
    bool over = w->left == 0;
    if (!over && w->plan->sends > 0) {
        over = true;
        for (uint32_t i = 0; over && i < w->vu_count; i++)
            over = w->vus[i].left == 0 && w->vus[i].outstanding + w->vus[i].to_retry == 0;
    }
    if (over) w->end_asked = true;
}

void ls_stress_worker_closed(ls_stress_worker *w, ls_stress_vu *u)
{
    if (w->ending) {
        if (w->open_loop) drop_retries(w, u);
        if (w->unclosed == 0) w->done = true;
        return;
    }
    if (u->broken) w->any_broken = true;
    if (u->parked || u->broken || u->opening) return;
    u->opening = true;
    u->again = NULL;
    *w->open_last = u;
    w->open_last = &u->again;
}

/* ---- now and then ------------------------------------------------------------------------------------------------ */

/* How many of this worker's connections are to be in use then. */
static uint32_t active_at(const ls_stress_worker *w, uint64_t at_ns)
{
    const uint32_t threads = w->plan->config.threads;
    const uint32_t all = ls_stress_schedule_connections(&w->plan->schedule, at_ns);
    const uint32_t mine = all > w->index ? (all - w->index + threads - 1) / threads : 0;
    return mine < w->vu_count ? mine : w->vu_count;
}

static void set_active(ls_stress_worker *w)
{
    const uint32_t mine = active_at(w, w->now_ns - w->start_ns);
    for (; w->active < mine; w->active++) {
        ls_stress_vu *u = &w->vus[w->active];
        u->parked = false;
        if (u->state == LS_STRESS_VU_CLOSED) ls_stress_worker_closed(w, u);
    }
    for (; w->active > mine; w->active--) {
        ls_stress_vu *u = &w->vus[w->active - 1];
        u->parked = true;
        if (u->state == LS_STRESS_VU_OPEN && u->outstanding == 0) ls_stress_vu_close(u);
    }
}

static void scan_vus(ls_stress_worker *w)
{
    const uint64_t limit_ns = w->plan->config.timeout_ns;
    w->scanned_ns = w->now_ns;
    w->any_broken = false;
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        const uint64_t since_ns = u->state == LS_STRESS_VU_CONNECTING                   ? u->began_ns
                                  : u->state == LS_STRESS_VU_OPEN && u->outstanding > 0 ? u->requests[u->first].sent_ns
                                                                                        : UINT64_MAX;
        if (limit_ns > 0 && since_ns < w->now_ns && w->now_ns - since_ns >= limit_ns) ls_stress_vu_timed_out(u);
        if (!u->broken || u->state != LS_STRESS_VU_CLOSED) continue;
        u->broken = !w->going; /* before the start one attempt is enough to know */
        ls_stress_worker_closed(w, u);
    }
}

static void pulsed(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_worker *w = LS_CONTAINER(op, ls_stress_worker, pulse.op);
    uint64_t next_ns = w->now_ns + PULSE_MS * MS;
    if (w->going && !w->ending && w->now_ns >= w->end_ns) begin_to_end(w, false);
    if (w->ending) {
        end_late_ones(w);
        if (w->busy > 0 && w->now_ns >= w->grace_ns) give_up(w);
    } else {
        const uint64_t limit_ns = w->plan->config.timeout_ns;
        const uint64_t scan_ns = limit_ns / 16 < 1000 * MS ? limit_ns / 16 : 1000 * MS;
        if (w->any_broken || w->now_ns - w->scanned_ns >= scan_ns) scan_vus(w);
        if (w->going && w->plan->config.stage_count > 0) set_active(w);
        if (w->going && w->end_ns < next_ns) next_ns = w->end_ns;
    }
    if (!w->done && ls_timer_set(w->port, &w->pulse, next_ns) < 0) w->done = true;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

void ls_stress_worker_settle(ls_stress_worker *w, ls_stress_vu *u)
{
    if (u->settled) return;
    u->settled = true;
    if (++w->settled_vus == w->vu_count) w->settled(w, w->user);
}

static void open_some(ls_stress_worker *w)
{
    /* What is opened may be closed at once and listed again: that is for the next round. */
    ls_stress_vu **const end = w->open_last;
    while (w->open_first != NULL && w->opening < OPENING_MAX) {
        ls_stress_vu *u = w->open_first;
        const bool is_last = &u->again == end;
        if ((w->open_first = u->again) == NULL) w->open_last = &w->open_first;
        u->opening = false;
        if (u->state == LS_STRESS_VU_CLOSED && !w->ending && !u->parked) (void)ls_stress_vu_open(u);
        if (is_last) return;
    }
}

static void go(ls_stress_worker *w)
{
    if (w->ending || w->going) return;
    w->going = true;
    w->ended_ns = w->start_ns;
    w->wanted_ns = ls_thread_wanted_ns();
    const uint64_t length_ns = w->plan->config.duration_ns;
    w->end_ns = length_ns > 0 ? w->start_ns + length_ns : UINT64_MAX;
    (void)ls_timer_move(w->port, &w->pulse,
                        w->end_ns < w->now_ns + PULSE_MS * MS ? w->end_ns : w->now_ns + PULSE_MS * MS);
    if (w->plan->config.stage_count > 0) set_active(w);
    for (uint32_t i = 0; i < w->vu_count; i++) ls_stress_worker_free(w, &w->vus[i]);
    if (w->open_loop) ls_stress_worker_arrivals(w);
    ls_stress_worker_look(w);
}

static void stop(ls_stress_worker *w)
{
    begin_to_end(w, true);
    if (w->grace_ns == UINT64_MAX && w->busy > 0)
        w->grace_ns = w->now_ns + STOPPED_MS * MS; /* it was ending already */
}

static void order(ls_stress_worker *w, const ls_packet *packet)
{
    if (packet->key == &go_order)
        go(w);
    else
        stop(w);
}

static void work(void *arg)
{
    ls_stress_worker *w = arg;
    ls_packet packets[LS_WAIT_PACKETS];
    ls_pool_enter(w->pool);
    w->now_ns = w->fresh_ns = w->scanned_ns = ls_clock_ns();
    if (ls_timer_set(w->port, &w->pulse, w->now_ns + PULSE_MS * MS) < 0) w->done = true;
    for (uint32_t i = 0; i < w->vu_count; i++) {
        if (w->vus[i].parked)
            ls_stress_worker_settle(w, &w->vus[i]);
        else
            ls_stress_worker_closed(w, &w->vus[i]);
    }
    while (!w->done) {
        const bool more = w->open_first != NULL && w->opening < OPENING_MAX;
        int n = ls_port_wait(w->port, &w->ctx, packets, LS_WAIT_PACKETS, more ? 0 : -1);
        if (n < 0) break; /* only a programmer's error makes the wait fail */
        w->now_ns = w->fresh_ns = ls_clock_ns();
        w->stale = false;
        for (int i = 0; i < n; i++) {
            if (packets[i].op == NULL)
                order(w, &packets[i]);
            else
                packets[i].op->done(&w->ctx, packets[i].op);
        }
        /* The pulse is for who has nothing else to do, and comes late to who has. */
        if (w->going && w->now_ns >= w->end_ns) begin_to_end(w, false);
        if (w->open_first != NULL) open_some(w);
        if (w->stop_asked) stop(w);
        if (w->end_asked) {
            if (!w->ending) sum_up(w);
            w->ending = true;
            end_now(w);
            w->end_asked = false;
        }
    }
    w->over(w, w->user);
}

static void free_vus(ls_stress_worker *w)
{
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        free(u->datagram);
        free(u->timer);
        free(u->held);
        free(u->text);
        if (w->proto->free != NULL) w->proto->free(u);
    }
    free(w->requests);
    free(w->vus);
}

/* All of them closed, those that are not in use at the start parked. On failure nothing is left. */
static int make_vus(ls_stress_worker *w)
{
    const ls_stress_plan *plan = w->plan;
    const size_t count = w->vu_count > 0 ? w->vu_count : 1; /* calloc may have nothing for 0 */
    const bool has_timers = w->script != NULL && ls_stress_script_has_delay(w->script);
    w->vus = calloc(count, sizeof *w->vus);
    w->requests = calloc(count * w->pipeline, sizeof *w->requests);
    if (w->vus == NULL || w->requests == NULL) {
        free(w->vus);
        free(w->requests);
        return LS_ENOMEM;
    }
    for (uint32_t i = 0; i < w->vu_count; i++) {
        ls_stress_vu *u = &w->vus[i];
        u->worker = w;
        u->index = w->first_vu + i;
        u->requests = &w->requests[(size_t)i * w->pipeline];
        u->left = plan->sends > 0 ? plan->sends : UINT64_MAX;
        u->parked = i >= w->active;
        if (plan->target.kind == LS_TARGET_UDP && (u->datagram = calloc(1, sizeof *u->datagram)) == NULL) goto fail;
        if (has_timers && (u->timer = calloc(1, sizeof *u->timer)) == NULL) goto fail;
        if (has_timers) u->timer->op.done = ls_stress_worker_slept;
    }
    return LS_OK;

fail:
    free_vus(w);
    return LS_ENOMEM;
}

int ls_stress_worker_open(ls_stress_worker *w, const ls_stress_plan *plan, unsigned index, uint32_t first_vu,
                          uint32_t vu_count, ls_stress_script *script)
{
    static const ls_stress_proto *const protos[] = {
        [LS_PLAN_STATIC] = &ls_stress_http,
        [LS_PLAN_SCRIPT] = &ls_stress_http,
        [LS_PLAN_ECHO] = &ls_stress_echo,
        [LS_PLAN_SCENARIO] = &ls_stress_scenario_proto,
    };
    int err;
    memset(w, 0, sizeof *w);
    w->plan = plan;
    w->index = index;
    w->proto = protos[plan->mode];
    w->script = script;
    w->batch = script != NULL ? ls_stress_script_batch(script) : 1;
    w->pipeline = w->batch > plan->config.pipeline ? w->batch : plan->config.pipeline;
    w->open_loop = plan->config.open_loop;
    w->next_ns = w->grace_ns = UINT64_MAX;
    w->end_ns = UINT64_MAX;
    w->free_last = &w->free_first;
    w->open_last = &w->open_first;
    w->tick.op.done = ls_stress_worker_ticked;
    w->pulse.op.done = pulsed;
    w->first_vu = first_vu;
    w->vu_count = vu_count;
    w->active = active_at(w, 0);
    w->left = UINT64_MAX;
    if (plan->config.requests > 0 && plan->sends == 0)
        w->left =
            plan->config.requests / plan->config.threads + (index < plan->config.requests % plan->config.threads);
    w->addr = plan->addr;
    if ((err = make_vus(w)) < 0) return err;
    /* What connections hold is bounded: a receive takes a block only when data is there, and gives it back at once. */
    if ((err = ls_pools_open((size_t)256 << 20, &w->pools)) < 0) goto fail_users;
    if ((err = ls_pool_open(w->pools, &w->pool)) < 0) goto fail_pools;
    if ((err = ls_port_open(&(ls_port_options){.sockets_max = vu_count + PORT_SPARE}, &w->port)) < 0) goto fail_pool;
    if ((err = ls_stress_counters_open(&w->count, w->open_loop)) < 0) goto fail_port;
    ls_thread_ctx_init(&w->ctx, w->port, w->pool, 0);
    if (script != NULL) ls_stress_script_belongs(script, w);
    ls_addr_to(&w->addr, &w->to);
    return LS_OK;

fail_port:
    ls_port_close(w->port);
fail_pool:
    ls_pool_close(w->pool);
fail_pools:
    ls_pools_close(w->pools);
fail_users:
    free_vus(w);
    return err;
}

int ls_stress_worker_start(ls_stress_worker *w)
{
    char name[16];
    (void)snprintf(name, sizeof name, "ls-stress-%u", w->index % 10000u);
    return ls_thread_start(&w->thread, name, work, w);
}

void ls_stress_worker_go(ls_stress_worker *w, uint64_t start_ns)
{
    w->start_ns = start_ns;
    (void)ls_port_post(w->port, NULL, &go_order, 0);
}

void ls_stress_worker_stop(ls_stress_worker *w)
{
    (void)ls_port_post(w->port, NULL, &stop_order, 0);
}

void ls_stress_worker_join(ls_stress_worker *w)
{
    ls_thread_join(&w->thread);
}

void ls_stress_worker_close(ls_stress_worker *w)
{
    ls_port_close(w->port); /* first: timers and posts that nobody waited for any more may still be in its queue */
    free_vus(w);
    ls_pool_close(w->pool);
    ls_pools_close(w->pools);
    ls_stress_counters_close(&w->count);
    ls_stress_checks_close(&w->checks);
}
