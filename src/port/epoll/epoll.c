/* epoll.c - the port: open and close, the queue of posted packets, and the wait. See epoll_internal.h. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "port/epoll/epoll_internal.h"
#include "port/epoll/epoll_syscall.h"
#include "port/work_internal.h"

_Static_assert(offsetof(ls_port, base) == 0 && offsetof(ls_sock, base) == 0, "common.c casts to the base");

const char *ls_port_backend(void)
{
    return "epoll";
}

/* ---- open and close -------------------------------------------------------------------------------------- */

static int epoll_add(ls_port *port, int fd, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = data};
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int kernel_open(ls_port *port)
{
    if ((port->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        (port->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0 ||
        (port->timerfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0 ||
        epoll_add(port, port->eventfd, EVENT_WAKE) < 0 || epoll_add(port, port->timerfd, EVENT_TIMERFD) < 0)
        return ls_err_from_errno(errno);
    return LS_OK;
}

/* What ls_port_open has opened so far. */
static void free_port(ls_port *port)
{
    const int fds[] = {port->timerfd, port->eventfd, port->epoll};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0) close(fds[i]);
    if (port->watchers != NULL) ls_watchers_close(port->watchers);
    if (port->socks != NULL) ls_slots_close(port->socks);
    ls_gatherings_free(port->gatherings);
    ls_mutex_close(&port->accept_mutex);
    ls_port_base_close(&port->base);
    free(port);
}

int ls_port_open(const ls_port_options *options, ls_port **out)
{
    int err = LS_ENOMEM;
    assert(options->sockets_max < WATCHER_BIT);

    ls_port *port = calloc(1, sizeof *port);
    if (port == NULL) return err;
    ls_port_base_open(&port->base);
    ls_mutex_open(&port->accept_mutex);
    port->epoll = port->eventfd = port->timerfd = -1;
    if ((err = ls_slots_open(options->sockets_max, sizeof(ls_sock), &port->socks)) < 0 ||
        (err = ls_watchers_open(&port->watchers)) < 0 || (err = kernel_open(port)) < 0 ||
        (err = ls_work_pool_open(port, ls_port_enqueue, &port->base.work)) < 0) {
        free_port(port);
        return err;
    }
    *out = port;
    return LS_OK;
}

void ls_port_close(ls_port *port)
{
    assert(ls_slots_count(port->socks) == 0);
    assert(atomic_load(&port->waiting) == 0);
    ls_work_pool_close(port->base.work); /* first, because its threads may post */
    ls_queue_free(&port->base);
    free_port(port);
}

/* ---- the queue of posted packets ------------------------------------------------------------------------- */

/* The eventfd is edge-triggered: each write wakes a thread that blocks, and the counter need not be read. A write
 * would block only after 2^64 - 2 writes. */
void ls_epoll_wake(ls_port *port)
{
    if (atomic_load(&port->waiting) == 0) return;
    const ssize_t written = write(port->eventfd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
}

/* A thread that is about to block first increments `waiting`, then reads `queued`; a poster first increments `queued`,
 * then reads `waiting`. Both are sequentially consistent: at least one of the two sees the other. */
void ls_port_enqueue(ls_port *port, ls_op *op)
{
    ls_queue_push(&port->base, op);
    ls_epoll_wake(port);
}

/* Up to max packets from the queue, and accepts of the listeners on the list rescan. */
static int take_queued(ls_thread_ctx *ctx, ls_packet *packets, int max)
{
    ls_port *port = ctx->port;
    int n = 0;
    while (n < max) {
        ls_mutex_lock(&port->base.mutex);
        ls_op *op = ls_queue_pop(&port->base);
        ls_sock *sock = NULL;
        if (op == NULL && (sock = port->rescan) != NULL) {
            port->rescan = sock->list_next;
            atomic_fetch_and(&sock->word, ~(uint64_t)LISTED);
        }
        if (op != NULL || sock != NULL) atomic_fetch_sub(&port->base.queued, 1);
        ls_mutex_unlock(&port->base.mutex);

        if (op != NULL)
            n += ls_packet_of_queued(port, op, &packets[n]) ? 1 : 0;
        else if (sock != NULL)
            n += ls_epoll_accept(ctx, sock, packets + n, max - n);
        else
            break;
    }
    /* Several posts may have caused a single wake-up. Another thread takes the packets that do not fit here. */
    if (n > 0 && atomic_load(&port->base.queued) > 0) ls_epoll_wake(port);
    return n;
}

/* ---- wait ------------------------------------------------------------------------------------------------ */

/* The data of a batch stay in the processor's cache until they are handled. A batch with more bytes than this would
 * evict its own data: then a wait takes fewer events, and more again when they bring few bytes. */
enum { BATCH_BYTES_MAX = 2 * LS_BLOCK_LARGE };

static void adapt_events_max(ls_thread_ctx *ctx, int events, int64_t bytes)
{
    if (bytes > BATCH_BYTES_MAX) {
        const int fit = (int)((int64_t)BATCH_BYTES_MAX * events / bytes);
        ctx->events_max = fit > 0 ? fit : 1;
    } else if (events == ctx->events_max && 2 * bytes <= BATCH_BYTES_MAX) {
        ctx->events_max = 2 * events < LS_WAIT_PACKETS_MAX ? 2 * events : LS_WAIT_PACKETS_MAX;
    }
}

/* The connection of a socket is lost. Its watch, if one is pending, is queued: it is rare. */
LS_NOINLINE static void lose(ls_port *port, ls_sock *sock, uint32_t generation)
{
    ls_op *watch;
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_acquire);
    do {
        if (WORD_GENERATION(old) != generation || !(old & OPEN) || (old & (CLOSING | LISTENS))) return;
        watch = atomic_load_explicit(&sock->watch, memory_order_relaxed); /* later the socket may be closed */
    } while (!atomic_compare_exchange_weak(&sock->word, &old, (old & ~(uint64_t)WATCH) | LOST));
    if (!(old & WATCH)) return;
    atomic_store_explicit(&watch->result, LS_ERESET, memory_order_relaxed);
    ls_port_enqueue(port, watch);
}

/* Turn one event into packets (at most two: one for each direction). *bytes grows by the bytes received from a
 * stream. */
static int take_event(ls_thread_ctx *ctx, const struct epoll_event *event, ls_packet *packets, int max, int64_t *bytes)
{
    ls_sock *sock = ls_slots_at(ctx->port->socks, (uint32_t)event->data.u64);
    const uint32_t generation = (uint32_t)(event->data.u64 >> 32);
    const bool in = event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    const bool out = event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR);
    const bool ended = event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);

    if (event->events & (EPOLLHUP | EPOLLERR)) lose(ctx->port, sock, generation);
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_acquire), new;
    do {
        if (WORD_GENERATION(old) != generation || !(old & OPEN) || (old & CLOSING)) return 0;
        if (old & LISTENS) return ls_epoll_accept(ctx, sock, packets, max);
        new = old;
        if (ended) new |= ENDED;
        if (in) new = old &RX_WAIT ? (new & ~(uint64_t)RX_WAIT) | RX_BUSY : new | RX_READY;
        if (out) new = old &TX_WAIT ? (new & ~(uint64_t)TX_WAIT) | TX_BUSY : new | TX_READY;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));

    int n = 0;
    if (in && (old & RX_WAIT)) {
        ls_op *op = atomic_load_explicit(&sock->rx, memory_order_relaxed);
        if (ls_epoll_receive(ctx, sock, op)) {
            ls_counter_add(&ctx->stats.recv_queued, 1);
            if (op->kind == KIND_RECV_FROM && op->recv_from.gather) ls_gathering_after(ctx, event->data.u64, op);
            packets[n] = ls_packet_of(op);
            if (op->kind == KIND_RECV && packets[n].result > 0) *bytes += packets[n].result;
            n++;
        }
    }
    if (out && (old & TX_WAIT)) {
        ls_op *op = atomic_load_explicit(&sock->tx, memory_order_relaxed);
        if (ls_epoll_transmit(ctx->port, sock, op)) {
            ls_counter_add(&ctx->stats.send_queued, 1);
            if (n < max)
                packets[n++] = ls_packet_of(op);
            else
                ls_port_enqueue(ctx->port, op); /* op->result is set */
        }
    }
    return n;
}

/* The packets of events, and those of timers that are due; what does not fit of the latter another thread takes. */
static int take_events(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms)
{
    ls_port *port = ctx->port;
    struct epoll_event events[LS_WAIT_PACKETS_MAX];
    int n = 0;
    int64_t bytes = 0;
    bool timer_fired = false;
    const bool blocks = timeout_ms != 0;
    if (blocks) {
        atomic_fetch_add(&port->waiting, 1);
        if (atomic_load(&port->timerfd_late)) ls_epoll_timerfd_arm(port);
        if (atomic_load(&port->base.queued) > 0) timeout_ms = 0;
    }
    const int got = ls_epoll_sys_wait(port->epoll, events, max < ctx->events_max ? max : ctx->events_max, timeout_ms);
    if (blocks) atomic_fetch_sub(&port->waiting, 1);
    if (got < 0) return errno == EINTR ? 0 : ls_err_from_errno(errno);
    if (got > 0 && ls_gathering_candidate(ctx)) ls_gathering_before(ctx, events, got);
    for (int i = 0; i < got; i++) {
        if (events[i].data.u64 == EVENT_TIMERFD)
            timer_fired = true;
        else if (events[i].data.u64 == EVENT_WAKE)
            continue;
        else if (events[i].data.u64 & WATCHER_BIT)
            n += ls_epoll_take_watcher(port, events[i].data.u64, events[i].events, packets + n);
        else
            n += take_event(ctx, &events[i], packets + n, max - n - (got - 1 - i), &bytes);
    }
    adapt_events_max(ctx, got, bytes);
    if (timer_fired) {
        ls_epoll_timer_expire(port);
        if (n < max)
            n += take_queued(ctx, packets + n, max - n);
        else if (atomic_load(&port->base.queued) > 0)
            ls_epoll_wake(port);
    }
    return n;
}

int ls_port_wait(ls_port *port, ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms)
{
    uint64_t now_ns = timeout_ms > 0 ? ls_clock_ns() : 0;
    const uint64_t end_ns = now_ns + (uint64_t)timeout_ms * 1000000u;
    ls_inline_reset(ctx);
    ls_counter_add(&ctx->stats.waits, 1);
    if (ls_gathering_candidate(ctx)) ctx->gathering->wait_ns = ls_clock_ns();
    for (;;) {
        int n = 0;
        if (atomic_load(&port->timerfd_late)) ls_epoll_timerfd_arm(port); /* even if queued packets prevent blocking */
        if (atomic_load(&port->base.queued) > 0) {
            /* Every other time sockets precede the queue, so that neither can starve the other. */
            if (atomic_load_explicit(&ctx->stats.waits, memory_order_relaxed) & 1)
                n = take_events(ctx, packets, max, 0);
            if (n >= 0 && n < max) n += take_queued(ctx, packets + n, max - n);
        }
        if (n == 0) {
            int left_ms = timeout_ms;
            if (timeout_ms > 0) {
                if (now_ns >= end_ns) return 0;
                left_ms = (int)((end_ns - now_ns + 999999u) / 1000000u);
            }
            n = take_events(ctx, packets, max, left_ms);
            if (n == 0 && timeout_ms > 0) now_ns = ls_clock_ns();
        }
        if (n > 0) ls_counter_add(&ctx->stats.packets, (uint64_t)n);
        if (n != 0 || timeout_ms == 0) return n;
    }
}
