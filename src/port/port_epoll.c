/* port_epoll.c - the completion port on Linux: one epoll set shared by all threads, edge-triggered.
 *
 * epoll tells readiness; the port promises completions. So a readiness event is turned into the pending operation's
 * completion by doing the system call right there, in the thread that took the event, before the packet is returned.
 *
 * One 64-bit word per socket decides who may do what. Its upper half is the generation of the slot: an event that the
 * kernel reports late, for a socket closed meanwhile, fails the first comparison and is dropped. In the lower half, for
 * each direction (rx: receive or accept; tx: send or connect)
 *
 *     WAIT    an operation is pending and nobody works on it      (sock->rx, sock->tx name it)
 *     BUSY    a thread works on it: it took WAIT away by a compare-and-swap, so there is only one
 *     READY   an event came that nobody has used yet: the next operation is tried before it waits
 *     STOP    a cancellation came while BUSY: do not wait again
 *
 *                 post                event, claim
 *      (nothing) -----> WAIT ---------------------------> BUSY --> packet
 *                         ^                                |
 *                         +---- would block, no READY -----+
 *
 * WAIT and BUSY exclude each other per direction. The descriptor is closed when CLOSING is set and nobody is BUSY: by
 * ls_sock_close itself or by the last one that was, so no system call ever runs on a number that was given away.
 *
 * Listeners are different in one thing: several accepts may wait, in a list under accept_mutex; WAIT and BUSY are not
 * used for them. A listener that may have more connections than it had accepts or room for is listed: any thread's next
 * wait looks at it again. One that ran out of descriptors is listed apart, until a descriptor is closed or some time has
 * passed.
 *
 * Locks: accept_mutex before mutex; heap_mutex before mutex. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "port/port.h"
#include "port/slots.h"
#include "port/timer.h"

enum { /* of the lower half of ls_sock.word */
    OPEN = 1u << 0,
    CLOSING = 1u << 1,
    ENDED = 1u << 2, /* hang-up or error was reported: a short receive does not mean that nothing is left */
    LISTENS = 1u << 3,
    RX_WAIT = 1u << 4,
    RX_BUSY = 1u << 5,
    RX_READY = 1u << 6,
    RX_STOP = 1u << 7,
    TX_SHIFT = 4, /* the same four for sending */
    TX_WAIT = RX_WAIT << TX_SHIFT,
    TX_BUSY = RX_BUSY << TX_SHIFT,
    TX_READY = RX_READY << TX_SHIFT,
    TX_STOP = RX_STOP << TX_SHIFT,
};

enum { KIND_NONE, KIND_RECV, KIND_ACCEPT, KIND_SEND, KIND_CONNECT };
enum { FLAG_HEAP_NODE = 1 }; /* a bare post: free the node when its packet is taken */
enum { ACCEPT_RETRY_MS = 100, IOV_MAX_HERE = 64 };

#define WORD_FLAGS(word) ((uint32_t)(word))
#define WORD_GENERATION(word) ((uint32_t)((word) >> 32))

struct ls_sock {
    _Atomic uint64_t word;
    ls_port *port;
    void *key;
    ls_fd fd;
    uint32_t number;
    _Atomic(ls_op *) rx; /* listeners: the first of the waiting accepts, the others behind it by ->next */
    _Atomic(ls_op *) tx;
    ls_sock *list_next;  /* under port->mutex: on port->look or port->starved */
    bool listed;         /* under port->mutex: on one of them */
    _Atomic uint32_t progress; /* of pending sends */
    bool registered, registered_out; /* written by whoever posts, which is one thread at a time */
};

struct ls_port {
    int epoll, wake, alarm; /* wake: an eventfd; alarm: a timerfd */
    ls_slots *socks;
    _Atomic uint32_t waiting;   /* threads that are about to block, or do */
    _Atomic uint32_t queued;    /* length of the queue below; read without the mutex to see that there is none */
    ls_mutex mutex;
    ls_op *first, **last;       /* posted packets */
    ls_sock *look, *starved;    /* listeners to look at again: at the next wait; when a descriptor is free again */
    _Atomic bool starving;      /* starved is not empty, or was not a moment ago */
    ls_mutex accept_mutex;
    ls_timer retry;             /* of the starved; never a packet */
    ls_mutex heap_mutex;
    ls_heap heap;
    uint64_t alarm_ns;          /* what the timerfd is set to; UINT64_MAX: nothing */
};

static const uint64_t wake_event = UINT64_MAX, alarm_event = UINT64_MAX - 1;

const char *ls_port_backends(void)
{
    return "epoll";
}

const char *ls_port_backend(const ls_port *port)
{
    (void)port;
    return "epoll";
}

void ls_seat_init(ls_seat *seat, ls_port *port, ls_pool *pool, unsigned index)
{
    memset(seat, 0, sizeof *seat);
    seat->port = port;
    seat->pool = pool;
    seat->index = index;
}

/* Counters are written by their own thread and read by any: plain increments that a reader cannot tear. */
static void count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* ---- open and close ---------------------------------------------------------------------------------------- */

static int epoll_watch(ls_port *port, int fd, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = data};
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &event);
}

int ls_port_open(const ls_port_options *options, ls_port **out)
{
    int err = LS_ENOMEM;
    if (options->backend != NULL && strcmp(options->backend, "auto") != 0 && strcmp(options->backend, "epoll") != 0)
        return LS_ENOTSUP;

    ls_port *port = calloc(1, sizeof *port);
    if (port == NULL) return err;
    port->last = &port->first;
    port->alarm_ns = UINT64_MAX;
    ls_heap_open(&port->heap);
    if ((err = ls_mutex_open(&port->mutex)) < 0) goto fail_port;
    if ((err = ls_mutex_open(&port->heap_mutex)) < 0) goto fail_mutex;
    if ((err = ls_mutex_open(&port->accept_mutex)) < 0) goto fail_heap_mutex;
    if ((err = ls_slots_open(options->sockets_max, sizeof(ls_sock), &port->socks)) < 0) goto fail_accept_mutex;
    errno = 0;
    if ((port->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) goto fail_epoll;
    if ((port->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) goto fail_wake;
    if ((port->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) < 0) goto fail_alarm;
    if (epoll_watch(port, port->wake, wake_event) < 0 || epoll_watch(port, port->alarm, alarm_event) < 0)
        goto fail_watch;
    *out = port;
    return LS_OK;

fail_watch:
    close(port->alarm);
fail_alarm:
    close(port->wake);
fail_wake:
    close(port->epoll);
fail_epoll:
    err = ls_err_from_errno(errno); /* of the call that failed: close(2) of a good descriptor leaves it alone */
    ls_slots_close(port->socks);
fail_accept_mutex:
    ls_mutex_close(&port->accept_mutex);
fail_heap_mutex:
    ls_mutex_close(&port->heap_mutex);
fail_mutex:
    ls_mutex_close(&port->mutex);
fail_port:
    ls_heap_close(&port->heap);
    free(port);
    return err;
}

void ls_port_close(ls_port *port)
{
    assert(ls_slots_count(port->socks) == 0);
    assert(atomic_load(&port->waiting) == 0);
    while (port->first != NULL) { /* bare posts that nobody waited for any more */
        ls_op *op = port->first;
        port->first = op->next;
        if (op->flags & FLAG_HEAP_NODE) free(op);
    }
    close(port->alarm);
    close(port->wake);
    close(port->epoll);
    ls_slots_close(port->socks);
    ls_heap_close(&port->heap);
    ls_mutex_close(&port->accept_mutex);
    ls_mutex_close(&port->heap_mutex);
    ls_mutex_close(&port->mutex);
    free(port);
}

/* ---- the queue of posted packets --------------------------------------------------------------------------- */

static void wake_one(ls_port *port)
{
    /* Edge-triggered, so each write wakes a thread that blocks, and nobody needs to read the counter. It would block only
     * after 2^64 - 2 writes. */
    if (atomic_load(&port->waiting) > 0) {
        ssize_t written = write(port->wake, &(uint64_t){1}, sizeof(uint64_t));
        (void)written;
    }
}

/* A thread that is about to block first raises `waiting`, then looks at `queued`; a poster first raises `queued`, then
 * looks at `waiting`. Both sequentially consistent: one of the two sees the other. */
static void enqueue(ls_port *port, ls_op *op)
{
    op->next = NULL;
    ls_mutex_lock(&port->mutex);
    *port->last = op;
    port->last = &op->next;
    atomic_fetch_add(&port->queued, 1);
    ls_mutex_unlock(&port->mutex);
    wake_one(port);
}

int ls_port_post(ls_port *port, ls_op *op, void *key, int64_t result)
{
    if (op == NULL) {
        if ((op = calloc(1, sizeof *op)) == NULL) return LS_ENOMEM;
        op->flags = FLAG_HEAP_NODE;
    }
    op->key = key;
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    enqueue(port, op);
    return LS_OK;
}

static void look_again(ls_port *port, ls_sock *sock)
{
    ls_mutex_lock(&port->mutex);
    bool news = !sock->listed;
    if (news) {
        sock->listed = true;
        sock->list_next = port->look;
        port->look = sock;
        atomic_fetch_add(&port->queued, 1);
    }
    ls_mutex_unlock(&port->mutex);
    if (news) wake_one(port);
}

static void packet_of(ls_op *op, ls_packet *out)
{
    *out = (ls_packet){op->key, op, atomic_load_explicit(&op->result, memory_order_relaxed)};
    if (op->flags & FLAG_HEAP_NODE) {
        out->op = NULL;
        free(op);
    }
}

static int accept_ready(ls_seat *seat, ls_sock *sock, ls_packet *packets, int max);

/* Up to max packets from the queue, and accepts of listeners that had more than fitted. */
static int take_queued(ls_seat *seat, ls_packet *packets, int max)
{
    ls_port *port = seat->port;
    int n = 0;
    while (n < max) {
        ls_mutex_lock(&port->mutex);
        ls_op *op = port->first;
        ls_sock *sock = NULL;
        if (op != NULL) {
            if ((port->first = op->next) == NULL) port->last = &port->first;
        } else if ((sock = port->look) != NULL) {
            port->look = sock->list_next;
            sock->listed = false;
        }
        if (op != NULL || sock != NULL) atomic_fetch_sub(&port->queued, 1);
        ls_mutex_unlock(&port->mutex);

        if (op != NULL)
            packet_of(op, &packets[n++]);
        else if (sock != NULL)
            n += accept_ready(seat, sock, packets + n, max - n);
        else
            break;
    }
    /* Several posts may have made a single wake-up. What does not fit here is for the next thread. */
    if (n > 0 && atomic_load(&port->queued) > 0) wake_one(port);
    return n;
}

/* ---- inline completions ------------------------------------------------------------------------------------ */

/* Count one more inline completion; true when this run of them has lasted its time. The first after a wait, which is the
 * one of a plain request, reads no clock. */
static bool inline_over(ls_seat *seat)
{
    if (++seat->inline_run == 1) return false;
    uint64_t now_ns = ls_clock_coarse_ms() * 1000000u;
    if (seat->inline_since_ns == 0) seat->inline_since_ns = now_ns;
    return now_ns >= seat->inline_since_ns + LS_INLINE_MS_MAX * UINT64_C(1000000);
}

/* An operation that is complete at once: hand it back, or queue it when inline completions had their time. */
static int complete_inline(ls_seat *seat, ls_op *op, int64_t result, _Atomic uint64_t *inlined, _Atomic uint64_t *queued)
{
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    if (inline_over(seat)) {
        count(queued);
        enqueue(seat->port, op);
        return LS_PENDING;
    }
    count(inlined);
    return LS_DONE;
}

/* ---- sockets ------------------------------------------------------------------------------------------------ */

int ls_sock_attach(ls_port *port, ls_fd fd, void *key, bool fresh, ls_sock **out)
{
    uint32_t number;
    void *slot;
    int err = ls_slots_take(port->socks, &number, &slot);
    if (err < 0) return err;

    ls_sock *sock = slot;
    sock->port = port;
    sock->key = key;
    sock->fd = fd;
    sock->number = number;
    sock->list_next = NULL;
    sock->listed = sock->registered = sock->registered_out = false;
    atomic_store_explicit(&sock->rx, NULL, memory_order_relaxed);
    atomic_store_explicit(&sock->tx, NULL, memory_order_relaxed);
    uint64_t generation = WORD_GENERATION(atomic_load(&sock->word));
    atomic_store(&sock->word, generation << 32 | OPEN | (fresh ? RX_READY : 0));
    *out = sock;
    return LS_OK;
}

ls_fd ls_sock_fd(const ls_sock *sock)
{
    return sock->fd;
}

void *ls_sock_key(const ls_sock *sock)
{
    return sock->key;
}

/* Registered when an operation has to wait for the first time; for sending only when a send once had to wait. */
static int register_for(ls_sock *sock, bool out)
{
    if (sock->registered && (!out || sock->registered_out)) return LS_OK;
    uint64_t generation = WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLRDHUP | EPOLLET | (out ? EPOLLOUT : 0),
        .data.u64 = generation << 32 | sock->number,
    };
    int how = sock->registered ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(sock->port->epoll, how, sock->fd, &event) < 0) return ls_err_from_errno(errno);
    sock->registered = true;
    sock->registered_out = out;
    return LS_OK;
}

/* Listeners that ran out of descriptors may try again. */
static void feed_starved(ls_port *port)
{
    ls_mutex_lock(&port->mutex);
    while (port->starved != NULL) {
        ls_sock *sock = port->starved;
        port->starved = sock->list_next;
        sock->list_next = port->look;
        port->look = sock;
        atomic_fetch_add(&port->queued, 1);
    }
    ls_mutex_unlock(&port->mutex);
    wake_one(port);
}

/* CLOSING is set and nobody is BUSY: the one that saw that first comes here. */
static void close_now(ls_sock *sock)
{
    ls_port *port = sock->port;
    uint64_t next_generation = (uint64_t)WORD_GENERATION(atomic_load(&sock->word)) + 1;
    close(sock->fd);
    atomic_store(&sock->word, next_generation << 32);
    ls_slots_give(port->socks, sock->number);
    if (atomic_load_explicit(&port->starving, memory_order_relaxed)) feed_starved(port);
}

/* Clear `mine` (BUSY of one direction, with its STOP), set `ready`; the last one out of a closing socket closes it. */
static void leave_busy(ls_sock *sock, uint32_t mine, uint32_t ready)
{
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_relaxed), new;
    do {
        new = (old & ~(uint64_t)mine) | ready;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    if ((new & CLOSING) && !(new & (RX_BUSY | TX_BUSY))) close_now(sock);
}

enum park { PARKED, RETRY, STOPPED };

/* The operation would block. Wait for an event; or look again when one came meanwhile; or give up when asked to.
 * `busy` is RX_BUSY or TX_BUSY when the caller claimed the operation, 0 when it is posting it. STOPPED keeps BUSY. */
static enum park park(ls_sock *sock, uint32_t shift, uint32_t busy)
{
    const uint32_t wait = RX_WAIT << shift, ready = RX_READY << shift, stop = RX_STOP << shift;
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_acquire), new;
    do {
        if (old & (CLOSING | stop)) return STOPPED;
        new = old & ready ? old & ~(uint64_t)ready : (old & ~(uint64_t)busy) | wait;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    return old & ready ? RETRY : PARKED;
}

/* The listener is going away; accept_mutex is held, so that nobody lists it again. */
static void unlist(ls_port *port, ls_sock *sock)
{
    ls_mutex_lock(&port->mutex);
    for (ls_sock **at = &port->look; *at != NULL; at = &(*at)->list_next)
        if (*at == sock) {
            *at = sock->list_next;
            atomic_fetch_sub(&port->queued, 1);
            break;
        }
    for (ls_sock **at = &port->starved; *at != NULL; at = &(*at)->list_next)
        if (*at == sock) {
            *at = sock->list_next;
            break;
        }
    sock->listed = false;
    ls_mutex_unlock(&port->mutex);
}

void ls_sock_close(ls_seat *seat, ls_sock *sock)
{
    ls_port *port = seat->port;
    ls_op *accepts = NULL;
    if (atomic_load(&sock->word) & LISTENS) { /* nobody may begin another accept */
        ls_mutex_lock(&port->accept_mutex);
        accepts = atomic_exchange(&sock->rx, NULL);
        unlist(port, sock);
        ls_mutex_unlock(&port->accept_mutex);
    }
    uint64_t old = atomic_load(&sock->word), new;
    do {
        assert((old & OPEN) && !(old & CLOSING));
        new = (old & ~(uint64_t)(RX_WAIT | TX_WAIT)) | CLOSING;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));

    while (accepts != NULL) {
        ls_op *op = accepts;
        accepts = op->next;
        (void)ls_port_post(port, op, sock->key, LS_ECANCELED);
    }
    if (old & RX_WAIT) (void)ls_port_post(port, atomic_load(&sock->rx), sock->key, LS_ECANCELED);
    if (old & TX_WAIT) (void)ls_port_post(port, atomic_load(&sock->tx), sock->key, LS_ECANCELED);
    if (!(old & (RX_BUSY | TX_BUSY))) close_now(sock);
}

int ls_sock_shutdown(ls_sock *sock)
{
    return shutdown(sock->fd, SHUT_WR) < 0 ? ls_err_from_errno(errno) : LS_OK;
}

static bool cancel_accept(ls_sock *sock, ls_op *op)
{
    ls_mutex_lock(&sock->port->accept_mutex);
    ls_op *before = NULL, *at = atomic_load(&sock->rx);
    for (; at != NULL && at != op; at = at->next) before = at;
    if (at != NULL && before == NULL)
        atomic_store(&sock->rx, at->next);
    else if (at != NULL)
        before->next = at->next;
    ls_mutex_unlock(&sock->port->accept_mutex);
    return at != NULL;
}

/* The cancelled operation, if it is ours to complete now. `op` NULL: whichever is pending. */
static ls_op *cancel_direction(ls_sock *sock, uint32_t generation, ls_op *op, uint32_t shift)
{
    const uint32_t wait = RX_WAIT << shift, busy = RX_BUSY << shift, stop = RX_STOP << shift;
    uint64_t old = atomic_load(&sock->word), new;
    ls_op *pending;
    do {
        pending = atomic_load(shift == 0 ? &sock->rx : &sock->tx);
        if (WORD_GENERATION(old) != generation || !(old & (wait | busy)) || (op != NULL && pending != op)) return NULL;
        new = old & wait ? old & ~(uint64_t)wait : old | stop;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    /* Read again, now that it cannot change: the word may have come back to the same value with another operation. */
    return old & wait ? atomic_load(shift == 0 ? &sock->rx : &sock->tx) : NULL;
}

static void cancel_pending(ls_sock *sock, uint32_t generation, ls_op *op)
{
    for (uint32_t shift = 0; shift <= TX_SHIFT; shift += TX_SHIFT) {
        ls_op *ours = cancel_direction(sock, generation, op, shift);
        if (ours != NULL) (void)ls_port_post(sock->port, ours, ours->key, LS_ECANCELED);
    }
}

uint32_t ls_sock_generation(const ls_sock *sock)
{
    return WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
}

void ls_sock_cancel(ls_sock *sock, uint32_t generation)
{
    cancel_pending(sock, generation, NULL);
}

uint32_t ls_sock_progress(const ls_sock *sock)
{
    return atomic_load_explicit(&sock->progress, memory_order_relaxed);
}

void ls_op_cancel(ls_sock *sock, ls_op *op)
{
    uint64_t word = atomic_load(&sock->word);
    if (!(word & LISTENS))
        cancel_pending(sock, WORD_GENERATION(word), op);
    else if (cancel_accept(sock, op))
        (void)ls_port_post(sock->port, op, sock->key, LS_ECANCELED);
}

/* ---- receive -------------------------------------------------------------------------------------------------- */

/* One recv(2). Bytes, 0 at the end, LS_EAGAIN, or another error; takes pool memory only for as long as it brings any. */
static int64_t receive_once(ls_seat *seat, ls_sock *sock, ls_op *op)
{
    if (op->len == 0) return 0; /* asked only whether something is there, and it is */
    char *ptr = op->recv.ptr;
    ls_block *block = NULL;
    if (ptr == NULL) {
        if ((block = ls_block_get(seat->pool, op->len)) == NULL) return LS_ENOMEM;
        ptr = block->data;
    }
    ssize_t n;
    do {
        n = recv(sock->fd, ptr, op->len, 0);
    } while (n < 0 && errno == EINTR);
    int64_t result = n;
    if (n < 0) result = errno == EAGAIN || errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
    if (n > 0)
        op->recv.block = block;
    else if (block != NULL)
        ls_block_drop(block);
    return result;
}

/* Whether more may be waiting after this result, so that the next receive is tried before it waits: on a stream a
 * receive that did not fill its room took all there was (epoll(7)), unless the end is near. */
static uint32_t ready_after(const ls_sock *sock, const ls_op *op, int64_t result)
{
    bool ended = atomic_load_explicit(&sock->word, memory_order_relaxed) & ENDED;
    return result <= 0 || result == (int64_t)op->len || ended ? RX_READY : 0;
}

/* The caller holds RX_BUSY. True: complete, op->result is set and BUSY is gone. */
static bool receive_claimed(ls_seat *seat, ls_sock *sock, ls_op *op)
{
    int64_t result;
    while ((result = receive_once(seat, sock, op)) == LS_EAGAIN) {
        enum park how = park(sock, 0, RX_BUSY);
        if (how == PARKED) return false;
        if (how == STOPPED) {
            result = LS_ECANCELED;
            break;
        }
    }
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    leave_busy(sock, RX_BUSY | RX_STOP, result == LS_ECANCELED ? 0 : ready_after(sock, op, result));
    return true;
}

int ls_op_recv(ls_seat *seat, ls_sock *sock, ls_op *op, void *ptr, uint32_t len)
{
    op->kind = KIND_RECV;
    op->key = sock->key;
    op->len = len;
    op->recv.ptr = ptr;
    op->recv.block = NULL;
    atomic_store_explicit(&sock->rx, op, memory_order_relaxed);

    bool must_try = false;
    if (!sock->registered) { /* nothing can be reported yet, so only the first receive of a fresh socket is ready */
        uint64_t old = atomic_load_explicit(&sock->word, memory_order_relaxed);
        must_try = old & RX_READY;
        if (must_try) atomic_fetch_and(&sock->word, ~(uint64_t)RX_READY);
    }
    for (;;) {
        if (must_try) {
            int64_t result = receive_once(seat, sock, op);
            if (result != LS_EAGAIN) {
                uint32_t ready = ready_after(sock, op, result);
                if (ready != 0) atomic_fetch_or(&sock->word, ready);
                if (result < 0) {
                    return (int)result; /* not posted: no packet will come */
                }
                return complete_inline(seat, op, result, &seat->stats.recv_inline, &seat->stats.recv_queued);
            }
        }
        int err = register_for(sock, sock->registered_out);
        if (err < 0) return err;
        if (park(sock, 0, 0) == PARKED) return LS_PENDING;
        must_try = true;
    }
}

/* ---- send ----------------------------------------------------------------------------------------------------- */

/* Fill iov with what is left of the slices after `sent` bytes. Returns the entries; *file_from is how far the file range
 * has come (negative: the slices are not all sent). */
static int gather(const ls_op *op, int64_t sent, struct iovec *iov, int64_t *file_from)
{
    int n = 0;
    int64_t skip = sent;
    for (uint16_t i = 0; i < op->count && n < IOV_MAX_HERE; i++) {
        const ls_slice *slice = &op->send.slices[i];
        if (skip >= (int64_t)slice->len) {
            skip -= (int64_t)slice->len;
            continue;
        }
        iov[n++] = (struct iovec){(char *)(uintptr_t)slice->ptr + skip, slice->len - (size_t)skip};
        skip = 0;
    }
    *file_from = n > 0 ? -1 : skip;
    return n;
}

static ssize_t send_vector(int fd, struct iovec *iov, int n, int flags)
{
    if (n == 1) return send(fd, iov[0].iov_base, iov[0].iov_len, flags);
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    return sendmsg(fd, &message, flags);
}

/* System calls until all is sent (the sum), it would block (LS_EAGAIN; op->result says how far), or it fails. */
static int64_t send_all(ls_sock *sock, ls_op *op)
{
    const ls_file_range *file = op->send.file;
    int64_t sent = atomic_load_explicit(&op->result, memory_order_relaxed);
    for (;;) {
        struct iovec iov[IOV_MAX_HERE];
        int64_t file_from;
        ssize_t n = 0;
        size_t asked = 0;
        int entries = gather(op, sent, iov, &file_from);
        if (entries > 0) {
            for (int i = 0; i < entries; i++) asked += iov[i].iov_len;
            n = send_vector(sock->fd, iov, entries, MSG_NOSIGNAL | (file != NULL && file->len > 0 ? MSG_MORE : 0));
        } else if (file != NULL && (uint64_t)file_from < file->len) {
            off_t from = (off_t)(file->offset + (uint64_t)file_from);
            asked = (size_t)(file->len - (uint64_t)file_from);
            n = sendfile(sock->fd, file->fd, &from, asked < 1u << 30 ? asked : 1u << 30);
            if (n == 0) return LS_EINVAL; /* the file is shorter than the range */
        } else {
            return sent;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
        sent += n;
        if (entries > 0 && (size_t)n == asked && file == NULL && entries < IOV_MAX_HERE) return sent;
        atomic_store_explicit(&op->result, sent, memory_order_relaxed);
        atomic_fetch_add_explicit(&sock->progress, 1, memory_order_relaxed);
    }
}

static int64_t connect_result(ls_sock *sock)
{
    int error = 0;
    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) < 0) error = errno;
    if (error != 0) return ls_err_from_errno(error);
    /* No error yet does not say connected: the event may be an old one. */
    ls_sockaddr peer;
    socklen_t len = sizeof peer.bytes;
    if (getpeername(sock->fd, (struct sockaddr *)peer.bytes, &len) == 0) return 0;
    return errno == ENOTCONN ? LS_EAGAIN : ls_err_from_errno(errno);
}

/* The caller holds TX_BUSY. True: complete, as with receive_claimed. */
static bool transmit_claimed(ls_sock *sock, ls_op *op)
{
    int64_t result;
    while ((result = op->kind == KIND_SEND ? send_all(sock, op) : connect_result(sock)) == LS_EAGAIN) {
        enum park how = park(sock, TX_SHIFT, TX_BUSY);
        if (how == PARKED) return false;
        if (how == STOPPED) {
            result = LS_ECANCELED;
            break;
        }
    }
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    leave_busy(sock, TX_BUSY | TX_STOP, 0);
    return true;
}

int ls_op_send(ls_seat *seat, ls_sock *sock, ls_op *op, ls_slice *slices, uint16_t slice_count,
               const ls_file_range *file)
{
    op->kind = KIND_SEND;
    op->key = sock->key;
    op->count = slice_count;
    op->send.slices = slices;
    op->send.file = file;
    atomic_store_explicit(&op->result, 0, memory_order_relaxed);
    for (;;) {
        int64_t result = send_all(sock, op);
        if (result >= 0)
            return complete_inline(seat, op, result, &seat->stats.send_inline, &seat->stats.send_queued);
        if (result != LS_EAGAIN) return (int)result;
        int err = register_for(sock, true);
        if (err < 0) return err;
        atomic_store_explicit(&sock->tx, op, memory_order_relaxed);
        if (park(sock, TX_SHIFT, 0) == PARKED) return LS_PENDING;
    }
}

int64_t ls_op_sent(const ls_op *op)
{
    return atomic_load_explicit(&op->result, memory_order_relaxed);
}

int ls_op_connect(ls_seat *seat, ls_sock *sock, ls_op *op, const ls_sockaddr *to)
{
    (void)seat;
    op->kind = KIND_CONNECT;
    op->key = sock->key;
    op->connect.addr = to;
    if (connect(sock->fd, (const struct sockaddr *)to->bytes, to->len) == 0) {
        atomic_store_explicit(&op->result, 0, memory_order_relaxed);
        return LS_DONE;
    }
    /* EAGAIN is a Unix listener's full backlog: nothing will report when that changes. */
    if (errno != EINPROGRESS && errno != EINTR) return errno == EAGAIN ? LS_EREFUSED : ls_err_from_errno(errno);
    int err = register_for(sock, true);
    if (err < 0) return err;
    for (;;) {
        atomic_store_explicit(&sock->tx, op, memory_order_relaxed);
        if (park(sock, TX_SHIFT, 0) == PARKED) return LS_PENDING;
        int64_t result = connect_result(sock);
        if (result == LS_EAGAIN) continue;
        atomic_store_explicit(&op->result, result, memory_order_relaxed);
        return result < 0 ? (int)result : LS_DONE;
    }
}

/* ---- accept --------------------------------------------------------------------------------------------------- */

static bool out_of_descriptors(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* Keep the accepts, look again in a while. Said once, until an accept succeeds. accept_mutex is held. */
static void starve(ls_port *port, ls_sock *sock, int error)
{
    ls_mutex_lock(&port->mutex);
    if (!sock->listed) {
        sock->listed = true;
        sock->list_next = port->starved;
        port->starved = sock;
    }
    ls_mutex_unlock(&port->mutex);
    if (!atomic_exchange(&port->starving, true))
        ls_log(LS_LOG_WARN, "accept: %s; connections wait in the listeners' queues",
               ls_err_text(ls_err_from_errno(error)));
    (void)ls_timer_set(port, &port->retry, ls_clock_ns() + ACCEPT_RETRY_MS * UINT64_C(1000000));
}

/* Accept what is there for the accepts that are posted, up to max. The caller knows that an event came, or that more
 * was left the last time. accept4 does not block; under accept_mutex the descriptor cannot be given away meanwhile. */
static int accept_ready(ls_seat *seat, ls_sock *sock, ls_packet *packets, int max)
{
    ls_port *port = seat->port;
    int n = 0;
    ls_mutex_lock(&port->accept_mutex);
    uint64_t word = atomic_load(&sock->word);
    while ((word & LISTENS) && !(word & CLOSING)) {
        ls_op *op = atomic_load(&sock->rx);
        if (op == NULL) { /* whoever posts the next looks */
            atomic_fetch_or(&sock->word, RX_READY);
            break;
        }
        if (n == max) { /* any thread's next wait looks */
            look_again(port, sock);
            break;
        }
        ls_sockaddr *from = op->accept.from;
        socklen_t len = sizeof from->bytes;
        int fd = accept4(sock->fd, from != NULL ? (struct sockaddr *)from->bytes : NULL, from != NULL ? &len : NULL,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            atomic_store(&sock->rx, op->next);
            if (from != NULL) from->len = len;
            op->accept.fd = fd;
            atomic_store_explicit(&op->result, 0, memory_order_relaxed);
            count(&seat->stats.accepts);
            atomic_store_explicit(&port->starving, false, memory_order_relaxed);
            packets[n++] = (ls_packet){sock->key, op, 0};
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (out_of_descriptors(errno)) {
            starve(port, sock, errno);
            break;
        } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) {
            atomic_store(&sock->rx, op->next); /* not a listening socket: that will not get better */
            packets[n++] = (ls_packet){sock->key, op, ls_err_from_errno(errno)};
            atomic_store_explicit(&op->result, packets[n - 1].result, memory_order_relaxed);
        }
        /* Any other error is that of a connection which died in the queue (accept(2)): the next one. */
    }
    ls_mutex_unlock(&port->accept_mutex);
    return n;
}

int ls_op_accept(ls_seat *seat, ls_sock *listener, ls_op *op, ls_sockaddr *from)
{
    ls_port *port = seat->port;
    op->kind = KIND_ACCEPT;
    op->key = listener->key;
    op->next = NULL;
    op->accept.from = from;
    op->accept.fd = LS_FD_NONE;
    atomic_fetch_or(&listener->word, LISTENS);
    int err = register_for(listener, false);
    if (err < 0) return err;

    ls_mutex_lock(&port->accept_mutex);
    ls_op *last = atomic_load(&listener->rx);
    if (last == NULL) {
        atomic_store(&listener->rx, op);
    } else {
        while (last->next != NULL) last = last->next;
        last->next = op;
    }
    if (atomic_fetch_and(&listener->word, ~(uint64_t)RX_READY) & RX_READY) look_again(port, listener);
    ls_mutex_unlock(&port->accept_mutex);
    return LS_PENDING;
}

/* ---- timers --------------------------------------------------------------------------------------------------- */

/* Under heap_mutex: have the timerfd fire at the earliest deadline. One that fires too early is harmless, so it is moved
 * only when it would be late. */
static void set_alarm(ls_port *port)
{
    uint64_t next_ns = ls_heap_next_ns(&port->heap);
    if (next_ns >= port->alarm_ns) return;
    port->alarm_ns = next_ns;
    if (next_ns == 0) next_ns = 1; /* 0 would disarm it */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(next_ns / 1000000000u), .tv_nsec = (long)(next_ns % 1000000000u)}};
    int err = timerfd_settime(port->alarm, TFD_TIMER_ABSTIME, &spec, NULL);
    assert(err == 0);
    (void)err;
}

int ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    ls_mutex_lock(&port->heap_mutex);
    int err = ls_heap_set(&port->heap, timer, at_ns);
    if (err == LS_OK) set_alarm(port);
    ls_mutex_unlock(&port->heap_mutex);
    return err;
}

bool ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    ls_mutex_lock(&port->heap_mutex);
    bool is_armed = timer->slot != 0;
    if (is_armed) {
        (void)ls_heap_set(&port->heap, timer, at_ns);
        set_alarm(port);
    }
    ls_mutex_unlock(&port->heap_mutex);
    return is_armed;
}

bool ls_timer_cancel(ls_port *port, ls_timer *timer)
{
    ls_mutex_lock(&port->heap_mutex);
    bool was_armed = ls_heap_remove(&port->heap, timer);
    ls_mutex_unlock(&port->heap_mutex);
    return was_armed;
}

/* Everything that is due becomes a posted packet, so that several threads can share a burst. */
static void alarm_rang(ls_port *port)
{
    uint64_t now_ns = ls_clock_ns();
    for (;;) {
        ls_mutex_lock(&port->heap_mutex);
        ls_timer *timer = ls_heap_pop_due(&port->heap, now_ns);
        if (timer == NULL) {
            port->alarm_ns = UINT64_MAX;
            set_alarm(port);
        } else if (timer == &port->retry) {
            feed_starved(port);
        } else {
            /* Inside the mutex: once it is released without the timer armed, its owner counts on the packet. */
            atomic_store_explicit(&timer->op.result, 0, memory_order_relaxed);
            enqueue(port, &timer->op);
        }
        ls_mutex_unlock(&port->heap_mutex);
        if (timer == NULL) return;
    }
}

/* ---- wait ------------------------------------------------------------------------------------------------------ */

/* Turn one event into packets (two at most: one for each direction). */
static int take_event(ls_seat *seat, const struct epoll_event *event, ls_packet *packets, int max)
{
    ls_sock *sock = ls_slots_at(seat->port->socks, (uint32_t)event->data.u64);
    const uint32_t generation = (uint32_t)(event->data.u64 >> 32);
    const bool in = event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    const bool out = event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR);
    const bool ended = event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);

    uint64_t old = atomic_load_explicit(&sock->word, memory_order_acquire), new;
    do {
        if (WORD_GENERATION(old) != generation || !(old & OPEN) || (old & CLOSING)) return 0;
        if (old & LISTENS) return accept_ready(seat, sock, packets, max);
        new = old;
        if (ended) new |= ENDED;
        if (in) new = old & RX_WAIT ? (new & ~(uint64_t)RX_WAIT) | RX_BUSY : new | RX_READY;
        if (out) new = old & TX_WAIT ? (new & ~(uint64_t)TX_WAIT) | TX_BUSY : new | TX_READY;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));

    int n = 0;
    if (in && (old & RX_WAIT)) {
        ls_op *op = atomic_load_explicit(&sock->rx, memory_order_relaxed);
        void *key = sock->key;
        if (receive_claimed(seat, sock, op)) {
            count(&seat->stats.recv_queued);
            packets[n++] = (ls_packet){key, op, atomic_load_explicit(&op->result, memory_order_relaxed)};
        }
    }
    if (out && (old & TX_WAIT)) {
        ls_op *op = atomic_load_explicit(&sock->tx, memory_order_relaxed);
        if (transmit_claimed(sock, op)) {
            count(&seat->stats.send_queued);
            if (n < max)
                packets[n++] = (ls_packet){op->key, op, atomic_load_explicit(&op->result, memory_order_relaxed)};
            else
                enqueue(seat->port, op); /* op->key and op->result are set */
        }
    }
    return n;
}

static int take_events(ls_seat *seat, ls_packet *packets, int max, int timeout_ms)
{
    ls_port *port = seat->port;
    struct epoll_event events[LS_WAIT_PACKETS_MAX];
    int n = 0;
    int got = epoll_wait(port->epoll, events, max < LS_WAIT_PACKETS_MAX ? max : LS_WAIT_PACKETS_MAX, timeout_ms);
    if (got < 0) return errno == EINTR ? 0 : ls_err_from_errno(errno);
    for (int i = 0; i < got; i++) {
        if (events[i].data.u64 == alarm_event)
            alarm_rang(port);
        else if (events[i].data.u64 != wake_event)
            n += take_event(seat, &events[i], packets + n, max - n - (got - 1 - i));
    }
    return n;
}

int ls_port_wait(ls_port *port, ls_seat *seat, ls_packet *packets, int max, int timeout_ms)
{
    const uint64_t end_ns = timeout_ms > 0 ? ls_clock_ns() + (uint64_t)timeout_ms * 1000000u : 0;
    seat->inline_run = 0;
    seat->inline_since_ns = 0;
    count(&seat->stats.waits);
    for (;;) {
        int n = 0;
        if (atomic_load(&port->queued) > 0) {
            /* Sockets first every other time, so that neither side can starve the other. */
            if (atomic_load_explicit(&seat->stats.waits, memory_order_relaxed) & 1) n = take_events(seat, packets, max, 0);
            if (n >= 0 && n < max) n += take_queued(seat, packets + n, max - n);
        }
        if (n == 0 && timeout_ms == 0) {
            n = take_events(seat, packets, max, 0);
            if (n == 0) n = take_queued(seat, packets, max); /* an alarm may just have rung */
            return n;
        }
        if (n == 0) {
            int left_ms = -1;
            if (timeout_ms > 0) {
                uint64_t now_ns = ls_clock_ns();
                if (now_ns >= end_ns) return 0;
                left_ms = (int)((end_ns - now_ns + 999999u) / 1000000u);
            }
            atomic_fetch_add(&port->waiting, 1);
            n = take_events(seat, packets, max, atomic_load(&port->queued) > 0 ? 0 : left_ms);
            atomic_fetch_sub(&port->waiting, 1);
        }
        if (n != 0) {
            if (n > 0)
                atomic_store_explicit(&seat->stats.packets,
                                      atomic_load_explicit(&seat->stats.packets, memory_order_relaxed) + (uint64_t)n,
                                      memory_order_relaxed);
            return n;
        }
    }
}
