/* uring.c - the back end "uring": the owners of the rings, and the wait. See uring_internal.h. */
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

enum { PASS_ON_MIN = 8 }; /* completions left after a wait for which another thread is woken */

static ls_ring *ring_at(const struct ls_rings *rings, unsigned i)
{
    return atomic_load_explicit(&rings->at[i], memory_order_acquire);
}

static bool is_owner(const ls_ring *ring, const ls_thread_ctx *ctx)
{
    return atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx;
}

/* ---- owners ----------------------------------------------------------------------------------------------------- */

/* Have the ring poll the epoll set; the lock is held. */
static void poll_epoll(ls_port *port, ls_ring *ring)
{
    struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_EPOLL, ring->epoch, 0));
    if (sqe == NULL) return; /* no memory: the next wait tries again */
    sqe->opcode = IORING_OP_POLL_ADD;
    sqe->fd = port->epoll;
    sqe->poll32_events = POLLIN;
    sqe->len = IORING_POLL_ADD_MULTI;
    ring->polls_epoll = true;
}

/* Make this thread context the owner; rings->mutex is held. */
static void take_over(ls_ring *ring, ls_thread_ctx *ctx)
{
    ls_mutex_lock(&ring->lock);
    if (ring->polls_epoll) { /* the thread that posted that poll would finish it */
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
    atomic_store(&ring->epoll_events, true); /* check once: no thread may have done so recently */
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

/* The ring of this thread context, taken over or set up if it has none. NULL: no ring is available. */
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
    } else if (rings->failures < RING_FAILURES_MAX && count < RINGS_MAX && ls_ring_open(count, &ring) == LS_OK) {
        take_over(ring, ctx);
        atomic_store(&rings->at[count], ring);
        atomic_store(&rings->count, count + 1);
    }
    ctx->ring = ring;
    ls_mutex_unlock(&rings->mutex);
    return ring;
}

/* The kernel refuses the ring of this thread context: mark it dead and acquire another. */
static void give_up(ls_thread_ctx *ctx, ls_ring *ring, int error)
{
    struct ls_rings *rings = ctx->port->rings;
    ls_mutex_lock(&rings->mutex);
    ls_mutex_lock(&ring->lock);
    const bool owned = is_owner(ring, ctx);
    if (owned) {
        ring->dead = true;
        if (error == EBADF) ring->fd = -1; /* the number may be that of another file now */
        atomic_store(&ring->owner, NULL);
        atomic_fetch_add(&rings->retiring, 1);
        const uint64_t now_ns = ls_clock_ns();
        if (now_ns - rings->failed_ns > RING_FAILURES_MS * UINT64_C(1000000)) rings->failures = 0;
        rings->failed_ns = now_ns;
        rings->failures++;
    }
    const bool last = rings->failures >= RING_FAILURES_MAX;
    ls_mutex_unlock(&ring->lock);
    ls_mutex_unlock(&rings->mutex);
    if (!owned) return;
    ls_log(LS_LOG_ERROR, "io_uring_enter: %s; %s", strerror(error),
           last ? "it has failed too often: epoll serves from now on" : "another ring takes its place");
    (void)acquire_ring(ctx); /* first, so that the operations that continue have a ring to wait at */
    ls_uring_abort_unsubmitted(ctx, ring);
}

static void uring_detach(ls_port *port, ls_thread_ctx *ctx)
{
    struct ls_rings *rings = port->rings;
    ls_mutex_lock(&rings->mutex);
    ls_ring *ring = NULL;
    for (unsigned i = 0; i < atomic_load(&rings->count) && ring == NULL; i++)
        if (is_owner(ring_at(rings, i), ctx)) ring = ring_at(rings, i);
    bool detached = false;
    if (ring != NULL) {
        ls_mutex_lock(&ring->lock);
        detached = atomic_load(&ring->asleep) != ctx; /* else the context waits again already */
        if (detached) {
            atomic_store(&ring->owner, NULL); /* from here on it adds no entries, which needs the lock */
            ls_ring_submit(ring);             /* and its entries do not wait for a call */
        }
        ls_mutex_unlock(&ring->lock);
    }
    if (detached) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = EVENT_RING};
        (void)epoll_ctl(port->epoll, EPOLL_CTL_ADD, ring->fd, &event); /* reports completions that are there already */
    }
    ls_mutex_unlock(&rings->mutex);
}

/* ---- wake ------------------------------------------------------------------------------------------------------- */

/* Wake one thread that blocks, if any. Without one nothing is lost: a thread checks the queue and the rings
 * after it has marked itself asleep. */
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
        const bool submitted = sqe != NULL && ls_ring_queued(ring) == 0;
        ls_mutex_unlock(&ring->lock);
        if (submitted) return;
        ls_epoll_wake_set(port); /* the kernel has no memory for the entry: wake all through the epoll set */
        return;
    }
    if (atomic_load(&rings->ringless) > 0) ls_epoll_wake_set(port);
}

/* ---- wait ------------------------------------------------------------------------------------------------------- */

/* Take the events of the epoll set. The ring's poll of it is edge-triggered: when events may be left, check again
 * later and wake another thread, which may take the rest, or the same event (LEVEL PERSISTENT). */
static int take_epoll(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max)
{
    atomic_store(&ring->epoll_events, false);
    unsigned state = 0;
    const int n = ls_epoll_take_now(ctx, packets, max, &state);
    if (state & TAKE_INCOMPLETE) {
        atomic_store(&ring->epoll_events, true);
        ls_epoll_wake(ctx->port);
    }
    return n;
}

/* Take completions of other rings. */
static int steal(ls_thread_ctx *ctx, const ls_ring *own, ls_packet *packets, int max, bool *woken)
{
    struct ls_rings *rings = ctx->port->rings;
    const unsigned count = atomic_load(&rings->count);
    int n = 0;
    for (unsigned i = 1; i <= count && n < max; i++) {
        ls_ring *ring = ring_at(rings, ((own == NULL ? 0 : own->index) + i) % count);
        if (ring == own) continue;
        if (atomic_load(&ring->owner) == NULL &&
            ls_ring_queued(ring) > 0) { /* the kernel refused these when the owner left */
            ls_mutex_lock(&ring->lock);
            ls_ring_submit(ring);
            ls_mutex_unlock(&ring->lock);
        }
        if (ls_ring_ready(ring) > 0) n += ls_uring_reap(ctx, ring, packets + n, max - n, woken);
        if (n == max && ls_ring_ready(ring) > 0 && atomic_load(&ring->owner) == NULL) ls_epoll_wake(ctx->port);
    }
    return n;
}

/* Take all that is available without blocking. */
static int take_now(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max, bool *woken)
{
    int n = 0;
    /* Every other time the epoll set precedes the ring, so that neither can starve the other. */
    if (atomic_load_explicit(&ring->epoll_events, memory_order_relaxed) &&
        (atomic_load_explicit(&ctx->stats.waits, memory_order_relaxed) & 1))
        n = take_epoll(ctx, ring, packets, max);
    if (n < 0) return n;
    if (n < max && ls_ring_ready(ring) > 0) n += ls_uring_reap(ctx, ring, packets + n, max - n, woken);
    if (n == 0) n = steal(ctx, ring, packets, max, woken);
    if (n < max && atomic_load_explicit(&ring->epoll_events, memory_order_relaxed)) {
        const int more = take_epoll(ctx, ring, packets + n, max - n);
        if (more > 0 || n == 0) n += more;
    }
    return n;
}

/* Submit, and wait for a completion. */
static void enter(ls_thread_ctx *ctx, ls_ring *ring, int timeout_ms)
{
    ls_mutex_lock(&ring->lock);
    if (!is_owner(ring, ctx)) { /* another thread has detached this context */
        ls_mutex_unlock(&ring->lock);
        return;
    }
    if (!ring->polls_epoll) poll_epoll(ctx->port, ring);
    if (timeout_ms != 0) {
        atomic_store(&ring->asleep, ctx);
        if (atomic_load(&ctx->port->base.queued) > 0) timeout_ms = 0;
    }
    const unsigned queued = ls_ring_publish(ring);
    ls_mutex_unlock(&ring->lock); /* others may add a wake-up and submit: the kernel takes each entry once */

    atomic_store_explicit(&ring->since_ns, 0, memory_order_relaxed);
    const int error = ls_ring_enter(ring, queued, timeout_ms);
    ls_thread_ctx *self = ctx; /* unless another context has taken the ring over and sleeps */
    (void)atomic_compare_exchange_strong(&ring->asleep, &self, NULL);
    if (error == 0) {
        atomic_store_explicit(&ring->refused, 0, memory_order_relaxed);
        return;
    }
    /* No memory for an entry, or completions must be taken first: the entries stay and are submitted again. */
    const bool temporary = error == EAGAIN || error == ENOMEM || error == EBUSY;
    if (temporary && atomic_fetch_add_explicit(&ring->refused, 1, memory_order_relaxed) + 1 < RING_REFUSALS_MAX)
        ls_clock_sleep_ms(1);
    else
        give_up(ctx, ring, error);
}

/* While there is other work, entries wait until there are RING_SUBMIT_AT of them or RING_SUBMIT_US have passed. */
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
    /* A ring that was given up wakes no thread: check it at intervals. */
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
        /* The event may be of a ring without an owner that was filled after the check: check again before sleeping. */
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

/* ---- open and close --------------------------------------------------------------------------------------------- */

static int uring_open(ls_port *port)
{
    const char *failed;
    const int error = ls_ring_test(&failed);
    if (error != 0) {
        ls_log(LS_LOG_WARN, "io_uring cannot be used here (%s: %s): the back end is epoll", failed, strerror(error));
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
