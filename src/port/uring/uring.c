/* uring.c - the back end "uring": which thread looks at which ring, and how it waits. See uring_internal.h. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "port/uring/uring_internal.h"

enum { PASS_ON_MIN = 8 }; /* completions left over for which another thread is woken */

static ls_ring *ring_at(const struct ls_rings *rings, unsigned i)
{
    return atomic_load_explicit(&rings->at[i], memory_order_acquire);
}

static bool is_owner(const ls_ring *ring, const ls_thread_ctx *ctx)
{
    return atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx;
}

/* ---- whose ring ---------------------------------------------------------------------------------------------------- */

/* Have the ring tell of the epoll set's events; the lock is held. */
static void poll_epoll(ls_port *port, ls_ring *ring)
{
    struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_EPOLL, ring->epoch, 0));
    if (sqe == NULL) return; /* no memory: tried again at the next wait */
    sqe->opcode = IORING_OP_POLL_ADD;
    sqe->fd = port->epoll;
    sqe->poll32_events = POLLIN;
    sqe->len = IORING_POLL_ADD_MULTI;
    ring->polls_epoll = true;
}

/* The thread context owns it from now on; rings->mutex is held. */
static void take_over(ls_ring *ring, ls_thread_ctx *ctx)
{
    ls_mutex_lock(&ring->lock);
    if (ring->polls_epoll) { /* that poll would be finished by the thread that posted it */
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_CANCEL, 0, 0));
        if (sqe != NULL) {
            sqe->opcode = IORING_OP_ASYNC_CANCEL;
            sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
            sqe->addr = ls_ring_data(TAG_EPOLL, ring->epoch, 0);
        }
        ring->polls_epoll = false;
    }
    ring->epoch++;
    atomic_store(&ring->owner, ctx);
    atomic_store(&ring->epoll_events, true); /* look once: nobody may have, lately */
    ls_mutex_unlock(&ring->lock);
    ctx->ring = ring;
}

static bool is_dead(ls_ring *ring)
{
    ls_mutex_lock(&ring->lock);
    const bool dead = ring->dead;
    ls_mutex_unlock(&ring->lock);
    return dead;
}

/* The ring that this thread context waits at, or NULL: there is none for it. */
static ls_ring *acquire_ring(ls_thread_ctx *ctx)
{
    ls_port *port = ctx->port;
    struct ls_rings *rings = port->rings;
    ls_ring *ring = ctx->ring;
    if (ring != NULL && is_owner(ring, ctx)) return ring;

    ls_mutex_lock(&rings->mutex);
    const unsigned count = atomic_load(&rings->count);
    ring = NULL;
    for (unsigned i = 0; i < count && ring == NULL; i++)
        if (atomic_load(&ring_at(rings, i)->owner) == NULL && !is_dead(ring_at(rings, i))) ring = ring_at(rings, i);
    if (ring != NULL) {
        (void)epoll_ctl(port->epoll, EPOLL_CTL_DEL, ring->fd, NULL);
        take_over(ring, ctx);
    } else if (rings->deaths < RING_DEATHS_MAX && count < RINGS_MAX && ls_ring_open(count, &ring) == LS_OK) {
        take_over(ring, ctx);
        atomic_store(&rings->at[count], ring);
        atomic_store(&rings->count, count + 1);
    }
    ctx->ring = ring;
    ls_mutex_unlock(&rings->mutex);
    return ring;
}

/* The kernel refuses the ring of this thread context: it takes another. */
static void give_up(ls_thread_ctx *ctx, ls_ring *ring, int error)
{
    struct ls_rings *rings = ctx->port->rings;
    ls_mutex_lock(&rings->mutex);
    ls_mutex_lock(&ring->lock);
    const bool ours = is_owner(ring, ctx);
    if (ours) {
        ring->dead = true;
        if (error == EBADF) ring->fd = -1; /* whoever closed it may have another there now */
        atomic_store(&ring->owner, NULL);
        atomic_fetch_add(&rings->retiring, 1);
        const uint64_t now_ns = ls_clock_ns();
        if (now_ns - rings->died_ns > RING_DEATHS_MS * UINT64_C(1000000)) rings->deaths = 0;
        rings->died_ns = now_ns;
        rings->deaths++;
    }
    const bool last = rings->deaths >= RING_DEATHS_MAX;
    ls_mutex_unlock(&ring->lock);
    ls_mutex_unlock(&rings->mutex);
    if (!ours) return;
    ls_log(LS_LOG_ERROR, "io_uring_enter: %s; %s", strerror(error),
           last ? "it has failed too often: epoll serves from now on" : "another ring takes its place");
    (void)acquire_ring(ctx); /* first, so that what goes on has where to wait */
    ls_uring_abort_unsubmitted(ctx, ring);
}

static void uring_detach(ls_port *port, ls_thread_ctx *ctx)
{
    struct ls_rings *rings = port->rings;
    ls_mutex_lock(&rings->mutex);
    ls_ring *ring = NULL;
    for (unsigned i = 0; i < atomic_load(&rings->count) && ring == NULL; i++)
        if (is_owner(ring_at(rings, i), ctx)) ring = ring_at(rings, i);
    bool left = false;
    if (ring != NULL) {
        ls_mutex_lock(&ring->lock);
        left = atomic_load(&ring->asleep) != ctx; /* else it waits again by now */
        if (left) {
            atomic_store(&ring->owner, NULL); /* it adds nothing more: that is done under the lock */
            ls_ring_submit(ring);             /* and what it has added does not wait for anybody */
        }
        ls_mutex_unlock(&ring->lock);
    }
    if (left) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = EVENT_RING};
        (void)epoll_ctl(port->epoll, EPOLL_CTL_ADD, ring->fd, &event); /* reports what is there already */
    }
    ls_mutex_unlock(&rings->mutex);
}

/* ---- wake ---------------------------------------------------------------------------------------------------------- */

/* A thread that blocks, if there is one. Without one nothing is lost: a thread looks at the queue, and at the rings, after it
 * has said that it sleeps. */
static void uring_wake(ls_port *port)
{
    struct ls_rings *rings = port->rings;
    const unsigned count = atomic_load(&rings->count);
    for (unsigned i = 0; i < count; i++) {
        ls_ring *ring = ring_at(rings, i);
        if (atomic_load(&ring->asleep) == NULL || atomic_exchange(&ring->asleep, NULL) == NULL) continue;
        ls_mutex_lock(&ring->lock);
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_WAKE, 0, 0));
        if (sqe != NULL) {
            sqe->opcode = IORING_OP_NOP;
            ls_ring_submit(ring);
        }
        const bool gone = sqe != NULL && ls_ring_queued(ring) == 0;
        ls_mutex_unlock(&ring->lock);
        if (gone) return;
        ls_epoll_wake_set(port); /* the kernel has no memory for it: wake all by the epoll set */
        return;
    }
    if (atomic_load(&rings->ringless) > 0) ls_epoll_wake_set(port);
}

/* ---- wait ---------------------------------------------------------------------------------------------------------- */

/* What the epoll set has. It reports by an edge: look again when that may not have been all, and tell others, who may be
 * told of the same thing at a time (a persistent level), or of the rest. */
static int look(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max)
{
    atomic_store(&ring->epoll_events, false);
    unsigned what = 0;
    const int n = ls_epoll_take_now(ctx, packets, max, &what);
    if (what & TAKE_INCOMPLETE) {
        atomic_store(&ring->epoll_events, true);
        ls_epoll_wake(ctx->port);
    }
    return n;
}

/* Completions of other rings. */
static int steal(ls_thread_ctx *ctx, const ls_ring *own, ls_packet *packets, int max, bool *woken)
{
    struct ls_rings *rings = ctx->port->rings;
    const unsigned count = atomic_load(&rings->count);
    int n = 0;
    for (unsigned i = 1; i <= count && n < max; i++) {
        ls_ring *ring = ring_at(rings, ((own == NULL ? 0 : own->index) + i) % count);
        if (ring == own) continue;
        if (atomic_load(&ring->owner) == NULL && ls_ring_queued(ring) > 0) { /* the kernel could not take it then */
            ls_mutex_lock(&ring->lock);
            ls_ring_submit(ring);
            ls_mutex_unlock(&ring->lock);
        }
        if (ls_ring_ready(ring) > 0) n += ls_uring_reap(ctx, ring, packets + n, max - n, woken);
        if (n == max && ls_ring_ready(ring) > 0 && atomic_load(&ring->owner) == NULL) ls_epoll_wake(ctx->port);
    }
    return n;
}

/* Everything that can be had without blocking. */
static int take_now(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max, bool *woken)
{
    int n = 0;
    /* Every other time first, so that neither side can starve the other. */
    if (atomic_load_explicit(&ring->epoll_events, memory_order_relaxed) &&
        (atomic_load_explicit(&ctx->stats.waits, memory_order_relaxed) & 1))
        n = look(ctx, ring, packets, max);
    if (n < 0) return n;
    if (n < max && ls_ring_ready(ring) > 0) n += ls_uring_reap(ctx, ring, packets + n, max - n, woken);
    if (n == 0) n = steal(ctx, ring, packets, max, woken);
    if (n < max && atomic_load_explicit(&ring->epoll_events, memory_order_relaxed)) {
        const int more = look(ctx, ring, packets + n, max - n);
        if (more > 0 || n == 0) n += more;
    }
    return n;
}

/* Submit, and wait until something has come. */
static void enter(ls_thread_ctx *ctx, ls_ring *ring, int timeout_ms)
{
    ls_mutex_lock(&ring->lock);
    if (!is_owner(ring, ctx)) { /* somebody thought that we would not come back so soon */
        ls_mutex_unlock(&ring->lock);
        return;
    }
    if (!ring->polls_epoll) poll_epoll(ctx->port, ring);
    if (timeout_ms != 0) {
        atomic_store(&ring->asleep, ctx);
        if (atomic_load(&ctx->port->base.queued) > 0) timeout_ms = 0;
    }
    const unsigned queued = ls_ring_publish(ring);
    ls_mutex_unlock(&ring->lock); /* others may add a wake-up and submit meanwhile: the kernel takes each entry once */

    atomic_store_explicit(&ring->since_ns, 0, memory_order_relaxed);
    const int error = ls_ring_enter(ring, queued, timeout_ms);
    ls_thread_ctx *self = ctx; /* if somebody has taken the ring over, it is not ours to say that nobody sleeps */
    (void)atomic_compare_exchange_strong(&ring->asleep, &self, NULL);
    if (error == 0) {
        atomic_store_explicit(&ring->refused, 0, memory_order_relaxed);
        return;
    }
    /* No memory for a request, or completions to be taken first: what was added stays, and is tried again. */
    const bool passes = error == EAGAIN || error == ENOMEM || error == EBUSY;
    if (passes && atomic_fetch_add_explicit(&ring->refused, 1, memory_order_relaxed) + 1 < RING_REFUSALS_MAX)
        ls_clock_sleep_ms(1);
    else
        give_up(ctx, ring, error);
}

/* What was added waits for company, as long as there is other work: RING_SUBMIT_AT entries, or RING_SUBMIT_US. */
static void submit_if_due(ls_ring *ring)
{
    const uint32_t queued = ls_ring_queued(ring);
    if (queued == 0) {
        atomic_store_explicit(&ring->since_ns, 0, memory_order_relaxed);
        return;
    }
    const uint64_t now_ns = ls_clock_ns();
    uint64_t since_ns = atomic_load_explicit(&ring->since_ns, memory_order_relaxed);
    if (since_ns == 0) since_ns = now_ns;
    const bool due = queued >= RING_SUBMIT_AT || now_ns - since_ns >= RING_SUBMIT_US * UINT64_C(1000);
    atomic_store_explicit(&ring->since_ns, due ? 0 : since_ns, memory_order_relaxed);
    if (!due) return;
    ls_mutex_lock(&ring->lock);
    ls_ring_submit(ring);
    ls_mutex_unlock(&ring->lock);
}

static int uring_take(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms)
{
    ls_port *port = ctx->port;
    ls_ring *ring = acquire_ring(ctx);
    /* A ring that was given up wakes nobody. */
    if (atomic_load_explicit(&port->rings->retiring, memory_order_relaxed) > 0 &&
        (timeout_ms < 0 || timeout_ms > RING_RETIRING_MS))
        timeout_ms = RING_RETIRING_MS;
    if (ring == NULL) {
        atomic_fetch_add(&port->rings->ringless, 1);
        bool woken = false;
        int n = steal(ctx, NULL, packets, max, &woken);
        if (n == 0) n = ls_epoll_take(ctx, packets, max, atomic_load(&port->base.queued) > 0 ? 0 : timeout_ms);
        atomic_fetch_sub(&port->rings->ringless, 1);
        return n;
    }

    bool woken = false;
    int n = take_now(ctx, ring, packets, max, &woken);
    if (n == 0) {
        /* What was reported may be a ring that nobody waits at, filled after we looked: look again first. */
        const bool again = woken || atomic_load_explicit(&ring->epoll_events, memory_order_relaxed);
        enter(ctx, ring, again ? 0 : timeout_ms);
        n = take_now(ctx, ring, packets, max, &woken);
    } else {
        submit_if_due(ring);
    }
    if (n > 0) {
        atomic_store_explicit(&ring->batch, (unsigned)n, memory_order_relaxed);
        if (ls_ring_ready(ring) >= PASS_ON_MIN || (woken && atomic_load(&port->base.queued) > 0)) ls_epoll_wake(port);
    }
    return n;
}

/* ---- open and close ------------------------------------------------------------------------------------------------ */

static int uring_open(ls_port *port)
{
    const char *what;
    const int error = ls_ring_test(&what);
    if (error != 0) {
        ls_log(LS_LOG_WARN, "io_uring cannot be used here (%s: %s): the back end is epoll", what, strerror(error));
        return LS_ENOTSUP;
    }
    struct ls_rings *rings = calloc(1, sizeof *rings);
    if (rings == NULL) return LS_ENOMEM;
    int err = ls_mutex_open(&rings->mutex);
    if (err < 0) {
        free(rings);
        return err;
    }
    port->rings = rings;
    return LS_OK;
}

static void uring_close(ls_port *port)
{
    struct ls_rings *rings = port->rings;
    for (unsigned i = 0; i < atomic_load(&rings->count); i++) {
        ls_uring_files_end(ring_at(rings, i));
        ls_ring_close(ring_at(rings, i));
    }
    ls_mutex_close(&rings->mutex);
    free(rings);
}

const ls_backend ls_backend_uring = {.name = "uring",
                                     .open = uring_open,
                                     .close = uring_close,
                                     .take = uring_take,
                                     .wake = uring_wake,
                                     .detach = uring_detach,
                                     .arm = ls_uring_arm,
                                     .cancel_recv = ls_uring_cancel_recv,
                                     .send = ls_uring_send,
                                     .receive = ls_uring_receive,
                                     .disarm = ls_uring_disarm,
                                     .holds = ls_uring_holds,
                                     .files = &ls_uring_files};
