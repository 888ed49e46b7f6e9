/* deadline.c - the deadlines of deadline.h: a wheel under a mutex, and one timer of the port.
 *
 *     idle --(arm: ls_timer_set)--> ticking --(the timer expires)--> tick --(entries are left)--> ticking
 *                                                                        \--(the wheel is empty)--> idle
 *
 * While `ticking`, the timer is armed for timer_ms, or its packet is queued or being handled. An earlier deadline
 * moves an armed timer; when the packet is under way the move fails, and the tick finds the deadline in the wheel. A
 * timer that is too early after a disarm stays: its tick finds nothing. In state idle the wheel is empty. */
#include "net/stream/deadline.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/os/thread.h"

enum { TICK_BATCH = 64 }; /* deadlines that a tick handles before it lets other threads have the lock */

struct ls_deadlines {
    ls_port *port;
    ls_deadline_fn *run;
    ls_peers peers;
    ls_timer timer;
    ls_mutex mutex; /* protects everything below, and the entries */
    bool ticking;
    uint32_t timer_ms;
    ls_node due; /* entries that the tick has taken from the wheel and not handled yet */
    ls_wheel wheel;
};

/* The time of the port's timers at which at_ms begins. */
static uint64_t ns_of(uint32_t at_ms)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    const int32_t ahead_ms = (int32_t)(at_ms - (uint32_t)now_ms);
    return ahead_ms > 0 ? (now_ms + (uint32_t)ahead_ms) * 1000000u : 0;
}

static int timer_start(ls_deadlines *d, uint32_t at_ms)
{
    const int err = ls_timer_set(d->port, &d->timer, ns_of(at_ms));
    if (err < 0) return err;
    d->ticking = true;
    d->timer_ms = at_ms;
    return LS_OK;
}

static void deadline_insert(ls_deadlines *d, ls_deadline *deadline, uint32_t at_ms)
{
    ls_wheel_add(&d->wheel, &deadline->entry, at_ms);
    atomic_store(&deadline->entry.armed_ms, at_ms);
}

static void deadline_remove(ls_deadline *deadline)
{
    ls_wheel_remove(&deadline->entry);
    atomic_store(&deadline->entry.armed_ms, 0);
}

/* Run up to TICK_BATCH of the due deadlines. false: there are no more. */
static bool run_batch(ls_deadlines *d, uint32_t now_ms)
{
    for (int n = 0; n < TICK_BATCH; n++) {
        if (ls_list_empty(&d->due)) return false;
        ls_deadline *deadline = LS_CONTAINER(d->due.next, ls_deadline, entry.node);
        deadline_remove(deadline);
        const uint32_t again_ms = d->run(deadline, now_ms);
        if (again_ms != 0) deadline_insert(d, deadline, again_ms);
    }
    return true;
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    ls_deadlines *d = LS_CONTAINER(op, ls_deadlines, timer.op);
    /* Not the coarse clock, which may lag the timer: the tick would find nothing due. */
    const uint32_t now_ms = (uint32_t)(ls_clock_ns() / 1000000u);
    uint32_t next_ms;
    ls_mutex_lock(&d->mutex);
    ls_wheel_advance(&d->wheel, now_ms, &d->due);
    while (run_batch(d, now_ms)) {
        ls_mutex_unlock(&d->mutex);
        ls_mutex_lock(&d->mutex);
    }
    d->ticking = false;
    if (ls_wheel_next(&d->wheel, &next_ms) && timer_start(d, next_ms) < 0) {
        d->ticking = true; /* no memory for the timer: tick again at once, which needs none */
        ls_port_post(d->port, &d->timer.op, 0);
    }
    ls_mutex_unlock(&d->mutex);
}

int ls_deadline_arm(ls_deadlines *d, ls_deadline *deadline, uint32_t at_ms)
{
    int err = LS_OK;
    ls_mutex_lock(&d->mutex);
    /* The deadline may be armed although the owner has found armed_ms 0: `due` has run since. */
    if (ls_wheel_has(&deadline->entry) && !ls_deadline_before(at_ms, deadline->entry.at_ms)) goto unlock;
    ls_wheel_remove(&deadline->entry);
    if (!d->ticking) ls_wheel_advance(&d->wheel, (uint32_t)ls_clock_coarse_ms(), &d->due); /* the wheel is empty */
    deadline_insert(d, deadline, at_ms);
    if (!d->ticking) {
        err = timer_start(d, at_ms);
        if (err < 0) deadline_remove(deadline);
    } else if (ls_deadline_before(at_ms, d->timer_ms) && ls_timer_move(d->port, &d->timer, ns_of(at_ms))) {
        d->timer_ms = at_ms;
    }
unlock:
    ls_mutex_unlock(&d->mutex);
    return err;
}

void ls_deadline_disarm(ls_deadlines *d, ls_deadline *deadline)
{
    ls_mutex_lock(&d->mutex);
    deadline_remove(deadline);
    ls_mutex_unlock(&d->mutex);
}

int ls_deadlines_open(ls_port *port, ls_deadline_fn *due, ls_deadlines **out)
{
    ls_deadlines *d = calloc(1, sizeof *d);
    if (d == NULL) return LS_ENOMEM;
    ls_mutex_open(&d->mutex);
    ls_peers_open(&d->peers);
    d->port = port;
    d->run = due;
    d->timer.op.done = tick;
    ls_node_init(&d->due);
    ls_wheel_open(&d->wheel, (uint32_t)ls_clock_coarse_ms());
    *out = d;
    return LS_OK;
}

ls_port *ls_deadlines_port(const ls_deadlines *d)
{
    return d->port;
}

ls_peers *ls_deadlines_peers(ls_deadlines *d)
{
    return &d->peers;
}

void ls_deadlines_close(ls_deadlines *d)
{
    ls_peers_close(&d->peers);
    ls_mutex_close(&d->mutex);
    free(d);
}
