/* udp.c - see udp.h.
 *
 * Lifetime of the socket. Every use lies between enter and leave, which count; close sets a bit in the same word, and
 * the last thread inside closes the socket. So no call is made on a closed socket. One thread at a time posts receives
 * (the one that took the packet of the previous receive), one at a time posts sends (the one that set `sending`). */
#include "net/udp/udp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "base/list.h"
#include "base/os/thread.h"
#include "net/sock/sock.h"

#define CLOSED   (UINT32_C(1) << 31)
#define RETRY_NS UINT64_C(10000000) /* after a failed receive, most often for lack of memory */

typedef struct waiting_batch {
    ls_datagrams *batch;
    unsigned count;
} waiting_batch;

struct ls_udp {
    ls_port *port;
    ls_sock *sock;
    ls_udp_batch_fn *batch;          /* bound */
    ls_udp_received_fn *received_fn; /* connected */
    _Atomic(void *) user;
    ls_addr addr;
    bool both_families;
    _Atomic unsigned batch_max;
    _Atomic uint32_t datagram_bytes_max;
    _Atomic bool gather, in_order;

    _Atomic uint32_t inside; /* threads between enter and leave, plus CLOSED */
    _Atomic bool stopping;
    bool emptied;          /* by the chain of receives, after the stop */
    unsigned left;         /* datagrams that it may still take */
    _Atomic uint32_t busy; /* chain of receives, plus batches being handled */
    ls_op recv_op, send_op;
    ls_timer retry;

    ls_mutex mutex; /* guards the fields below */
    bool started;
    bool sending; /* a thread posts sends, or a send is pending, or the socket was not started */
    unsigned queue_from, queue_count;
    unsigned queue_room;       /* grows up to LS_UDP_QUEUE_BATCHES_MAX */
    waiting_batch *queue;      /* circular */
    waiting_batch with_system; /* used by the thread that set `sending` */

    _Atomic bool drops_own;
    _Atomic bool own_logged;
    _Atomic uint64_t received, batches, truncated, sent, failed, own, dropped;
};

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* ---- use counting ----------------------------------------------------------------------------------------------- */

static bool enter(ls_udp *udp)
{
    uint32_t inside = atomic_load_explicit(&udp->inside, memory_order_relaxed);
    do {
        if (inside & CLOSED) return false;
    } while (!atomic_compare_exchange_weak(&udp->inside, &inside, inside + 1));
    return true;
}

/* The caller must not touch udp afterwards, unless something else keeps it from being freed. */
static void leave(ls_thread_ctx *ctx, ls_udp *udp)
{
    ls_sock *const sock = udp->sock;
    if (atomic_fetch_sub(&udp->inside, 1) == (CLOSED | 1)) ls_sock_close(ctx, sock);
}

void ls_udp_close(ls_thread_ctx *ctx, ls_udp *udp)
{
    ls_udp_stop(ctx, udp);
    if (atomic_fetch_or(&udp->inside, CLOSED) == 0) ls_sock_close(ctx, udp->sock);
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

static int post_receive(ls_thread_ctx *ctx, ls_udp *udp)
{
    return ls_op_recv_from(ctx, udp->sock, &udp->recv_op, atomic_load_explicit(&udp->batch_max, memory_order_relaxed),
                           atomic_load_explicit(&udp->datagram_bytes_max, memory_order_relaxed));
}

/* Post the next receive. After a stop the chain continues until the socket is empty: what has arrived is handled. */
static void receive(ls_thread_ctx *ctx, ls_udp *udp)
{
    const bool last = atomic_load(&udp->stopping);
    if ((last && (udp->emptied || udp->left == 0)) || !enter(udp)) {
        atomic_fetch_sub(&udp->busy, 1);
        return;
    }
    udp->recv_op.recv_from.gather = atomic_load_explicit(&udp->gather, memory_order_relaxed);
    udp->emptied = last; /* before the post: then another thread may have its packet */
    const int posted = post_receive(ctx, udp);
    if (posted != LS_PENDING) udp->emptied = false;
    if (posted == LS_DONE) {
        ls_port_post(udp->port, &udp->recv_op, udp->recv_op.result);
    } else if (posted < 0) {
        if (ls_timer_set(udp->port, &udp->retry, ls_clock_ns() + RETRY_NS) < 0) {
            ls_log(LS_LOG_ERROR, "out of memory: one UDP socket stops receiving");
            atomic_fetch_sub(&udp->busy, 1);
        }
    } else if (atomic_load(&udp->stopping)) {
        ls_op_cancel(udp->port, udp->sock,
                     &udp->recv_op); /* ls_udp_stop may have cancelled before the receive was posted */
    }
    leave(ctx, udp);
}

static void retry_due(ls_thread_ctx *ctx, ls_op *op)
{
    receive(ctx, LS_CONTAINER(op, ls_udp, retry.op));
}

/* Whether the datagram came from this socket. A socket on all interfaces has every address of this machine. */
static bool is_own(const ls_udp *udp, const ls_sockaddr *source)
{
    ls_addr from;
    if (ls_sockaddr_port(source) != udp->addr.port) return false;
    ls_addr_of(source, &from); /* an IPv4-mapped address as IPv4 */
    if (!ls_addr_is_any(&udp->addr))
        return from.family == udp->addr.family && memcmp(from.bytes, udp->addr.bytes, from.bytes_len) == 0;
    return ls_udp_addr_is_local(&from);
}

/* Remove the datagrams that came from this socket. */
static void drop_own(ls_udp *udp, ls_datagrams *batch)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < batch->count; i++) {
        ls_datagram *datagram = &batch->at[i];
        if (is_own(udp, &datagram->addr))
            ls_slice_drop(&datagram->slice);
        else if (kept++ != i)
            batch->at[kept - 1] = *datagram;
    }
    if (kept == batch->count) return;
    count(&udp->own, batch->count - kept);
    batch->count = kept;
    if (!atomic_exchange(&udp->own_logged, true)) {
        char text[LS_ADDR_TEXT_BYTES];
        ls_log(LS_LOG_DEBUG, "udp://%s: dropped a datagram whose source is the socket's own address",
               ls_addr_text(&udp->addr, text));
    }
}

static void received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_udp *udp = LS_CONTAINER(op, ls_udp, recv_op);
    const int64_t result = op->result;
    ls_datagrams *batch = result > 0 ? op->recv_from.batch : NULL;
    if (batch == NULL) {
        if (result == LS_ENOMEM && !atomic_load(&udp->stopping) &&
            ls_timer_set(udp->port, &udp->retry, ls_clock_ns() + RETRY_NS) == LS_OK)
            return;
        receive(ctx, udp);
        return;
    }
    const bool in_order = atomic_load_explicit(&udp->in_order, memory_order_relaxed);
    atomic_fetch_add(&udp->busy, 1);
    if (atomic_load(&udp->stopping)) udp->left -= batch->count < udp->left ? batch->count : udp->left;
    if (!in_order) receive(ctx, udp); /* another thread may take the next batch while this one handles the batch */
    count(&udp->received, batch->count);
    count(&udp->batches, 1);
    for (unsigned i = 0; i < batch->count; i++)
        if (batch->at[i].truncated) count(&udp->truncated, 1);
    if (atomic_load_explicit(&udp->drops_own, memory_order_relaxed)) drop_own(udp, batch);
    if (batch->count > 0)
        udp->batch(ctx, atomic_load_explicit(&udp->user, memory_order_acquire), udp, batch);
    else
        ls_datagrams_drop(batch);
    if (in_order) receive(ctx, udp);
    atomic_fetch_sub(&udp->busy, 1);
}

void ls_udp_stop(ls_thread_ctx *ctx, ls_udp *udp)
{
    atomic_store(&udp->stopping, true);
    if (!enter(udp)) return;
    ls_op_cancel(udp->port, udp->sock, &udp->recv_op);
    if (ls_timer_cancel(udp->port, &udp->retry)) atomic_fetch_sub(&udp->busy, 1);
    leave(ctx, udp);
}

bool ls_udp_idle(ls_udp *udp)
{
    ls_mutex_lock(&udp->mutex); /* a sender's last step is to release it */
    const bool no_operation = atomic_load(&udp->busy) == 0 && (!udp->sending || !udp->started);
    /* A thread whose operation has ended may not have left yet. Read last: a thread that enters was busy or
     * sending. */
    const bool idle = no_operation && (atomic_load(&udp->inside) & ~CLOSED) == 0;
    ls_mutex_unlock(&udp->mutex);
    return idle;
}

/* ---- receive on request ----------------------------------------------------------------------------------------- */

static void connected_received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_udp *udp = LS_CONTAINER(op, ls_udp, recv_op);
    const int64_t result = op->result;
    atomic_fetch_sub(&udp->busy, 1);
    if (result > 0) count(&udp->received, (uint64_t)result);
    udp->received_fn(ctx, atomic_load_explicit(&udp->user, memory_order_relaxed),
                     result > 0 ? op->recv_from.batch : NULL, result > 0 ? LS_OK : (int)result);
}

int ls_udp_receive(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams **out)
{
    if (!enter(udp)) return LS_ECLOSED;
    atomic_fetch_add(&udp->busy, 1);
    const int posted = post_receive(ctx, udp);
    if (posted != LS_PENDING) atomic_fetch_sub(&udp->busy, 1);
    if (posted == LS_DONE) {
        count(&udp->received, (uint64_t)udp->recv_op.result);
        *out = udp->recv_op.recv_from.batch;
    }
    leave(ctx, udp);
    return posted;
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* The system has finished the batch with_system: `left` of its datagrams were sent, or an error. */
static void batch_sent(ls_udp *udp, int64_t left)
{
    const unsigned all = udp->with_system.count, out = left > 0 ? (unsigned)left : 0;
    if (out > 0) count(&udp->sent, out);
    if (out < all) count(&udp->failed, all - out);
    ls_datagrams_drop(udp->with_system.batch);
    udp->with_system = (waiting_batch){NULL, 0};
}

/* Take the next batch from the queue. true: the caller sends it; false: the queue is empty and others may send. */
static bool next_batch(ls_udp *udp)
{
    ls_mutex_lock(&udp->mutex);
    const bool more = udp->queue_count > 0;
    if (more) {
        udp->with_system = udp->queue[udp->queue_from];
        udp->queue_from = (udp->queue_from + 1) % udp->queue_room;
        udp->queue_count--;
    }
    udp->sending = more;
    ls_mutex_unlock(&udp->mutex);
    return more;
}

/* Send with_system, then the queue, until a send is pending. Returns the result of the first batch. */
static int pump(ls_thread_ctx *ctx, ls_udp *udp)
{
    int64_t first = 0;
    for (bool is_first = true;; is_first = false) {
        int64_t left = LS_ECLOSED;
        const unsigned all = udp->with_system.count;
        if (enter(udp)) {
            const int posted = ls_op_send_to(ctx, udp->sock, &udp->send_op, udp->with_system.batch->at, (uint16_t)all);
            left = posted == LS_DONE ? udp->send_op.result : posted;
            leave(ctx, udp);
            if (posted == LS_PENDING)
                return (int)(is_first ? all : first); /* the thread that takes the packet sends the rest */
        }
        if (is_first) first = left;
        batch_sent(udp, left);
        if (!next_batch(udp)) return (int)first;
    }
}

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    ls_udp *udp = LS_CONTAINER(op, ls_udp, send_op);
    batch_sent(udp, op->result);
    if (next_batch(udp)) (void)pump(ctx, udp);
}

/* Append the batch to the queue. The caller holds the mutex. LS_OK; LS_ELIMIT, LS_ENOMEM. */
static int queue_push(ls_udp *udp, waiting_batch batch)
{
    if (udp->queue_count == udp->queue_room) {
        const unsigned room = udp->queue_room == 0 ? 16 : 2 * udp->queue_room;
        waiting_batch *queue;
        if (room > LS_UDP_QUEUE_BATCHES_MAX) return LS_ELIMIT;
        if ((queue = malloc(room * sizeof *queue)) == NULL) return LS_ENOMEM;
        for (unsigned i = 0; i < udp->queue_count; i++) queue[i] = udp->queue[(udp->queue_from + i) % udp->queue_room];
        free(udp->queue);
        udp->queue = queue;
        udp->queue_room = room;
        udp->queue_from = 0;
    }
    udp->queue[(udp->queue_from + udp->queue_count++) % udp->queue_room] = batch;
    return LS_OK;
}

int ls_udp_send(ls_thread_ctx *ctx, ls_udp *udp, ls_datagrams *batch, unsigned n)
{
    assert(n >= 1 && n <= batch->count);
    int err = LS_ECLOSED;
    bool ours = false;
    ls_mutex_lock(&udp->mutex);
    if (atomic_load_explicit(&udp->inside, memory_order_relaxed) & CLOSED) {
        /* closed: drop the batch; the active sender fails the queued ones */
    } else if (udp->sending) {
        err = queue_push(udp, (waiting_batch){batch, n});
    } else {
        ours = udp->sending = true;
        udp->with_system = (waiting_batch){batch, n};
    }
    ls_mutex_unlock(&udp->mutex);
    if (ours) return pump(ctx, udp);
    if (err == LS_OK) return (int)n;
    ls_datagrams_drop(batch);
    count(&udp->failed, n);
    return err;
}

/* ---- batches to send -------------------------------------------------------------------------------------------- */

static ls_datagrams *batch_of_one(ls_block *block, const ls_sockaddr *to, ls_slice slice)
{
    ls_datagrams *batch = (ls_datagrams *)(void *)block->data;
    batch->block = block;
    batch->count = 1;
    batch->at[0] = (ls_datagram){.slice = slice, .addr = *to};
    return batch;
}

int ls_udp_compose(ls_pool *pool, const ls_sockaddr *to, size_t len, ls_datagrams **out, char **bytes)
{
    const size_t head = sizeof(ls_datagrams) + sizeof(ls_datagram);
    ls_slice slice;
    if (len > LS_UDP_PAYLOAD_MAX) return LS_EMSGSIZE;
    ls_block *block = ls_block_get(pool, LS_BLOCK_SMALL);
    if (block == NULL) return LS_ENOMEM;
    if (head + len <= LS_BLOCK_SMALL) {
        slice = ls_slice_of(block, head, len);
    } else {
        ls_block *large = ls_block_get(pool, LS_BLOCK_LARGE);
        if (large == NULL) {
            ls_block_drop(block);
            return LS_ENOMEM;
        }
        slice = (ls_slice){large, large->data, len};
    }
    *bytes = (char *)(uintptr_t)slice.ptr;
    *out = batch_of_one(block, to, slice);
    return LS_OK;
}

int ls_udp_wrap(ls_pool *pool, const ls_sockaddr *to, ls_slice slice, ls_datagrams **out)
{
    ls_block *block = slice.len > LS_UDP_PAYLOAD_MAX ? NULL : ls_block_get(pool, LS_BLOCK_SMALL);
    if (block == NULL) {
        const int err = slice.len > LS_UDP_PAYLOAD_MAX ? LS_EMSGSIZE : LS_ENOMEM;
        ls_slice_drop(&slice);
        return err;
    }
    *out = batch_of_one(block, to, slice);
    return LS_OK;
}

int ls_udp_target(const ls_udp *udp, const ls_addr *to, ls_sockaddr *out)
{
    ls_addr mapped = *to;
    if (to->family == LS_ADDR_IP4 && udp->addr.family == LS_ADDR_IP6) {
        if (!udp->both_families) return LS_ENOTSUP;
        mapped =
            (ls_addr){.family = LS_ADDR_IP6, .bytes_len = 16, .port = to->port, .bytes = {[10] = 0xff, [11] = 0xff}};
        memcpy(mapped.bytes + 12, to->bytes, 4);
    } else if (to->family != udp->addr.family) {
        return LS_ENOTSUP;
    }
    ls_addr_to(&mapped, out);
    return LS_OK;
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

void ls_udp_setup_defaults(ls_udp_setup *setup)
{
    *setup = (ls_udp_setup){
        .batch = LS_UDP_BATCH_DEFAULT, .gather = true, .datagram_bytes_max = LS_UDP_DATAGRAM_BYTES_DEFAULT};
}

/* `at` or `to`, as in ls_udp_sock_open. */
static int open_any(ls_port *port, const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_udp **out)
{
    ls_fd fd;
    int err = LS_ENOMEM;
    ls_udp *udp = calloc(1, sizeof *udp);
    if (udp == NULL) return err;
    udp->port = port;
    atomic_init(&udp->batch_max, setup->batch);
    atomic_init(&udp->datagram_bytes_max, setup->datagram_bytes_max);
    atomic_init(&udp->gather, setup->gather);
    atomic_init(&udp->in_order, setup->in_order);
    udp->both_families = at != NULL && at->family == LS_ADDR_IP6 && ls_addr_is_any(at);
    udp->send_op.done = sent;
    udp->retry.op.done = retry_due;
    ls_mutex_open(&udp->mutex);
    if ((err = ls_udp_sock_open(setup, at, to, &fd, &udp->addr)) < 0) goto fail_mutex;
    /* `fresh` is false, so the first receive is pending before receives and sends are posted concurrently. */
    if ((err = ls_sock_attach(port, fd, false, &udp->sock)) < 0) goto fail_fd;
    if (at != NULL) ls_sock_share(udp->sock);
    *out = udp;
    return LS_OK;

fail_fd:
    ls_sock_discard(fd);
fail_mutex:
    ls_mutex_close(&udp->mutex);
    free(udp);
    return err;
}

int ls_udp_open(ls_port *port, const ls_udp_setup *setup, const ls_addr *at, ls_udp_batch_fn *batch, void *user,
                ls_udp **out)
{
    ls_udp *udp;
    int err = open_any(port, setup, at, NULL, &udp);
    if (err < 0) return err;
    udp->batch = batch;
    atomic_init(&udp->user, user);
    udp->recv_op.done = received;
    udp->left = LS_UDP_LAST_MAX;
    atomic_init(&udp->drops_own, setup->group_count == 0);
    udp->sending = true; /* until the start: the first receive must be the first operation on the socket */
    *out = udp;
    return LS_OK;
}

int ls_udp_connect(ls_port *port, const ls_udp_setup *setup, const ls_addr *to, ls_actor *actor,
                   ls_udp_received_fn *fn, void *user, ls_udp **out)
{
    ls_udp *udp;
    int err = open_any(port, setup, NULL, to, &udp);
    if (err < 0) return err;
    udp->received_fn = fn;
    atomic_init(&udp->user, user);
    udp->recv_op.done = connected_received;
    udp->started = true;
    udp->recv_op.actor = actor;
    *out = udp;
    return LS_OK;
}

void ls_udp_start(ls_thread_ctx *ctx, ls_udp *udp)
{
    ls_mutex_lock(&udp->mutex);
    udp->started = true;
    ls_mutex_unlock(&udp->mutex);
    atomic_fetch_add(&udp->busy, 1);
    receive(ctx, udp);
    if (next_batch(udp)) (void)pump(ctx, udp);
}

int ls_udp_change(ls_udp *udp, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    return ls_udp_sock_change(ls_sock_fd(udp->sock), &udp->addr, before, setup);
}

void ls_udp_replace(ls_udp *udp, const ls_udp_setup *setup, void *user)
{
    atomic_store_explicit(&udp->batch_max, setup->batch, memory_order_relaxed);
    atomic_store_explicit(&udp->datagram_bytes_max, setup->datagram_bytes_max, memory_order_relaxed);
    atomic_store_explicit(&udp->gather, setup->gather, memory_order_relaxed);
    atomic_store_explicit(&udp->in_order, setup->in_order, memory_order_relaxed);
    atomic_store_explicit(&udp->drops_own, setup->group_count == 0, memory_order_relaxed);
    atomic_store(&udp->user, user);
}

ls_fd ls_udp_fd(const ls_udp *udp)
{
    return ls_sock_fd(udp->sock);
}

const ls_addr *ls_udp_addr(const ls_udp *udp)
{
    return &udp->addr;
}

bool ls_udp_closed(const ls_udp *udp)
{
    return (atomic_load(&udp->inside) & CLOSED) != 0;
}

void ls_udp_free(ls_udp *udp)
{
    if (udp->with_system.batch != NULL) ls_datagrams_drop(udp->with_system.batch);
    while (udp->queue_count > 0) {
        ls_datagrams_drop(udp->queue[udp->queue_from].batch);
        udp->queue_from = (udp->queue_from + 1) % udp->queue_room;
        udp->queue_count--;
    }
    free(udp->queue);
    ls_mutex_close(&udp->mutex);
    free(udp);
}

void ls_udp_stat(ls_udp *udp, ls_udp_stats *sum)
{
    if (enter(udp)) {
        ls_thread_ctx ctx = {.port = udp->port};
        atomic_store_explicit(&udp->dropped, ls_udp_sock_dropped(ls_sock_fd(udp->sock)), memory_order_relaxed);
        leave(&ctx, udp);
    }
    sum->received += atomic_load_explicit(&udp->received, memory_order_relaxed);
    sum->batches += atomic_load_explicit(&udp->batches, memory_order_relaxed);
    sum->truncated += atomic_load_explicit(&udp->truncated, memory_order_relaxed);
    sum->sent += atomic_load_explicit(&udp->sent, memory_order_relaxed);
    sum->failed += atomic_load_explicit(&udp->failed, memory_order_relaxed);
    sum->own += atomic_load_explicit(&udp->own, memory_order_relaxed);
    sum->dropped += atomic_load_explicit(&udp->dropped, memory_order_relaxed);
}
