/* epoll_sock.c - one socket: its word (epoll_internal.h), attach, close, cancel, receive, send, connect. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/os/signals.h"
#include "port/epoll/epoll_internal.h"
#include "port/epoll/epoll_syscall.h"
#include "port/file/shared_file.h"

enum { IOV_MAX_HERE = 64 };

/* ---- attach, close, cancel ------------------------------------------------------------------------------- */

int ls_sock_attach(ls_port *port, ls_fd fd, bool maybe_readable, ls_sock **out)
{
    uint32_t number;
    void *slot;
    int err = ls_slots_take(port->socks, &number, &slot);
    if (err < 0) return err;

    ls_sock *sock = slot;
    sock->base.fd = fd;
    atomic_store_explicit(&sock->base.progress_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&sock->base.progress_bytes, 0, memory_order_relaxed);
    sock->number = number;
    atomic_store_explicit(&sock->rx, NULL, memory_order_relaxed);
    atomic_store_explicit(&sock->tx, NULL, memory_order_relaxed);
    atomic_store_explicit(&sock->watch, NULL, memory_order_relaxed); /* also those of datagrams */
    uint64_t generation = WORD_GENERATION(atomic_load(&sock->word));
    atomic_store(&sock->word, generation << 32 | OPEN | (maybe_readable ? RX_READY : 0));
    *out = sock;
    return LS_OK;
}

void ls_sock_share(ls_sock *sock)
{
    atomic_fetch_or(&sock->word, SHARED);
}

uint32_t ls_sock_generation(const ls_sock *sock)
{
    return WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
}

bool ls_sock_is_silent(const ls_sock *sock)
{
    return (atomic_load_explicit(&sock->word, memory_order_relaxed) & (IN_SET | RX_READY | ENDED)) == IN_SET;
}

/* Add the socket to the epoll set when an operation has to wait for the first time; with EPOLLOUT only when a
 * send has to wait. */
int ls_epoll_register(ls_port *port, ls_sock *sock, bool out)
{
    const uint32_t wanted = out ? IN_SET | IN_SET_OUT : IN_SET;
    const uint64_t word = atomic_load_explicit(&sock->word, memory_order_relaxed);
    if ((word & wanted) == wanted) return LS_OK;
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLRDHUP | EPOLLET | (out ? EPOLLOUT : 0),
        .data.u64 = (uint64_t)WORD_GENERATION(word) << 32 | sock->number,
    };
    int err = LS_OK;
    if (!(word & IN_SET))
        err = ls_epoll_add(port, sock->base.fd, &event);
    else if (epoll_ctl(port->epoll, EPOLL_CTL_MOD, sock->base.fd, &event) < 0)
        err = ls_err_from_errno(errno);
    if (err == LS_OK) atomic_fetch_or_explicit(&sock->word, wanted, memory_order_relaxed);
    return err;
}

/* CLOSING is set and no direction is BUSY: called by the one thread that caused this state. */
static void close_now(ls_port *port, ls_sock *sock)
{
    const uint64_t word = atomic_load(&sock->word);
    const uint64_t next_generation = (uint64_t)WORD_GENERATION(word) + 1;
    if (word & CORKED) (void)ls_sock_shutdown(sock); /* sends corked bytes, which a reset would drop */
    if ((word & SHARED) && (word & IN_SET)) (void)epoll_ctl(port->epoll, EPOLL_CTL_DEL, sock->base.fd, NULL);
    close(sock->base.fd);
    atomic_store(&sock->word, next_generation << 32);
    ls_slots_give(port->socks, sock->number);
    if (atomic_load_explicit(&port->emfile_pending, memory_order_relaxed)) ls_epoll_emfile_retry(port);
}

/* Clear `bits` (BUSY and STOP of one direction) and set `ready`; the last BUSY thread of a closing
 * socket closes it. */
static void leave_busy(ls_port *port, ls_sock *sock, uint32_t bits, uint32_t ready)
{
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_relaxed), new;
    do {
        new = (old & ~(uint64_t)bits) | ready;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    if ((new &CLOSING) && !(new &(RX_BUSY | TX_BUSY))) close_now(port, sock);
}

enum wait_state { WAITING, RETRY, STOPPED };

/* The operation would block. WAITING: it is pending until an event; RETRY: an event arrived meanwhile; STOPPED: it was
 * cancelled or the socket is closing, and BUSY stays set. `busy` is RX_BUSY or TX_BUSY when the caller claimed the
 * operation, 0 when it is posting it. */
static enum wait_state begin_wait(ls_sock *sock, uint32_t shift, uint32_t busy)
{
    const uint32_t wait = RX_WAIT << shift, ready = RX_READY << shift, stop = RX_STOP << shift;
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_acquire), new;
    do {
        if (old & (CLOSING | stop)) return STOPPED;
        new = old &ready ? old & ~(uint64_t)ready : (old & ~(uint64_t)busy) | wait;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    return old & ready ? RETRY : WAITING;
}

void ls_sock_close(ls_thread_ctx *ctx, ls_sock *sock)
{
    ls_port *port = ctx->port;
    ls_op *accepts = NULL;
    if (atomic_load(&sock->word) & LISTENS) { /* from here on no thread begins an accept */
        ls_mutex_lock(&port->accept_mutex);
        accepts = atomic_exchange(&sock->rx, NULL);
        ls_epoll_unlist(port, sock);
        ls_mutex_unlock(&port->accept_mutex);
    }
    uint64_t old = atomic_load(&sock->word), new;
    do {
        assert((old & OPEN) && !(old & CLOSING));
        new = (old & ~(uint64_t)(RX_WAIT | TX_WAIT | WATCH)) | CLOSING;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));

    while (accepts != NULL) {
        ls_op *op = accepts;
        accepts = op->next;
        ls_queue_post(port, op, LS_ECANCELED);
    }
    if (old & RX_WAIT) ls_queue_post(port, atomic_load(&sock->rx), LS_ECANCELED);
    if (old & TX_WAIT) ls_queue_post(port, atomic_load(&sock->tx), LS_ECANCELED);
    if (old & WATCH) ls_queue_post(port, atomic_load(&sock->watch), LS_ECANCELED);
    if (!(old & (RX_BUSY | TX_BUSY))) close_now(port, sock);
}

int ls_sock_shutdown(ls_sock *sock)
{
    if (atomic_load_explicit(&sock->word, memory_order_relaxed) & CORKED)
        atomic_fetch_and(&sock->word, ~(uint64_t)CORKED);
    return shutdown(sock->base.fd, SHUT_WR) < 0 ? ls_err_from_errno(errno) : LS_OK;
}

void ls_sock_cork_fin(ls_sock *sock)
{
    atomic_fetch_or(&sock->word, CORKED);
}

/* Cancel one direction. Returns the operation if the caller must complete it, else NULL. `op` NULL:
 * any pending one. */
static ls_op *cancel_direction(ls_sock *sock, uint32_t generation, ls_op *op, uint32_t shift)
{
    const uint32_t wait = RX_WAIT << shift, busy = RX_BUSY << shift, stop = RX_STOP << shift;
    uint64_t old = atomic_load(&sock->word), new;
    ls_op *pending;
    do {
        pending = atomic_load(shift == 0 ? &sock->rx : &sock->tx);
        if (WORD_GENERATION(old) != generation || !(old & (wait | busy)) || (op != NULL && pending != op)) return NULL;
        new = old &wait ? old & ~(uint64_t)wait : old | stop;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    /* Read it again, now that it cannot change: the word may have returned to the same value with
     * another operation. */
    return old & wait ? atomic_load(shift == 0 ? &sock->rx : &sock->tx) : NULL;
}

static void cancel_pending(ls_port *port, ls_sock *sock, uint32_t generation, ls_op *op, unsigned what)
{
    for (uint32_t shift = 0; shift <= TX_SHIFT; shift += TX_SHIFT) {
        if (!(what & (shift == 0 ? LS_CANCEL_RECV : LS_CANCEL_SEND))) continue;
        ls_op *cancelled = cancel_direction(sock, generation, op, shift);
        if (cancelled != NULL) ls_queue_post(port, cancelled, LS_ECANCELED);
    }
}

void ls_sock_cancel(ls_port *port, ls_sock *sock, uint32_t generation, unsigned what)
{
    cancel_pending(port, sock, generation, NULL, what);
}

void ls_op_cancel(ls_port *port, ls_sock *sock, ls_op *op)
{
    uint64_t word = atomic_load(&sock->word);
    if (!(word & LISTENS))
        cancel_pending(port, sock, WORD_GENERATION(word), op, LS_CANCEL_RECV | LS_CANCEL_SEND);
    else if (ls_epoll_cancel_accept(port, sock, op))
        ls_queue_post(port, op, LS_ECANCELED);
}

/* ---- watch ----------------------------------------------------------------------------------------------- */

int ls_op_watch(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    op->kind = KIND_WATCH;
    atomic_store_explicit(&op->result, 0, memory_order_relaxed);
    atomic_store_explicit(&sock->watch, op, memory_order_relaxed);
    const int err = ls_epoll_register(ctx->port, sock, false); /* which a receive needs next */
    if (err < 0) return err;
    uint64_t old = atomic_load_explicit(&sock->word, memory_order_relaxed);
    do {
        assert(!(old & (WATCH | CLOSING)));
        if (old & LOST) return LS_ERESET;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, old | WATCH));
    return LS_PENDING;
}

bool ls_op_unwatch(ls_sock *sock, ls_op *op)
{
    assert(atomic_load_explicit(&sock->watch, memory_order_relaxed) == op);
    return atomic_fetch_and(&sock->word, ~(uint64_t)WATCH) & WATCH;
}

/* ---- receive --------------------------------------------------------------------------------------------- */

/* A receive of KIND_DISCARD. Out of line: the bytes would be in the frame of every receive. */
LS_NOINLINE static int64_t discard_once(ls_sock *sock)
{
    char bytes[LS_DISCARD_BYTES];
    ssize_t n;
    do {
        n = ls_epoll_sys_recv(sock->base.fd, bytes, sizeof bytes);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) return n;
    return errno == EAGAIN || errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
}

/* One recv(2), or one batch. Returns bytes (or datagrams), 0 at the end, LS_EAGAIN or another error. Pool memory is
 * held only if data were received. */
static int64_t receive_once(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    if (op->kind == KIND_RECV_FROM) return ls_epoll_recv_from(ctx, sock, op);
    if (op->kind == KIND_DISCARD) return discard_once(sock);
    if (op->len == 0) return 0; /* a readiness probe: data or the end can be received */
    char *ptr = op->recv.ptr;
    ls_block *block = NULL;
    if (ptr == NULL) {
        if ((block = ls_block_get(ctx->pool, op->len)) == NULL) return LS_ENOMEM;
        ptr = block->data;
    }
    ssize_t n;
    do {
        n = ls_epoll_sys_recv(sock->base.fd, ptr, op->len);
    } while (n < 0 && errno == EINTR);
    int64_t result = n;
    if (n < 0) result = errno == EAGAIN || errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
    if (n > 0)
        op->recv.block = block;
    else if (block != NULL)
        ls_block_drop(block);
    return result;
}

/* RX_READY if more data may be available after this result, so that the next receive is tried before it waits. On a
 * stream a receive of less than the requested length took all data (epoll(7)), unless the end was reported. */
static uint32_t ready_after(const ls_sock *sock, const ls_op *op, int64_t result)
{
    if (op->kind == KIND_RECV_FROM) return result <= 0 || result == (int64_t)op->count ? RX_READY : 0;
    const bool ended = atomic_load_explicit(&sock->word, memory_order_relaxed) & ENDED;
    return result <= 0 || result == (int64_t)op->len || ended ? RX_READY : 0;
}

bool ls_epoll_receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    int64_t result;
    while ((result = receive_once(ctx, sock, op)) == LS_EAGAIN) {
        const int err = ls_epoll_register(ctx->port, sock, false);
        if (err < 0) {
            result = err;
            break;
        }
        enum wait_state state = begin_wait(sock, 0, RX_BUSY);
        if (state == WAITING) return false;
        if (state == STOPPED) {
            result = LS_ECANCELED;
            break;
        }
    }
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    leave_busy(ctx->port, sock, RX_BUSY | RX_STOP, result == LS_ECANCELED ? 0 : ready_after(sock, op, result));
    return true;
}

int ls_sock_post_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    atomic_store_explicit(&sock->rx, op, memory_order_relaxed);

    /* Before the socket is in the epoll set RX_READY is set only for the first receive of an accepted connection. */
    const uint64_t old = atomic_load_explicit(&sock->word, memory_order_relaxed);
    bool must_try = (old & (IN_SET | RX_READY)) == RX_READY;
    if (must_try) atomic_fetch_and(&sock->word, ~(uint64_t)RX_READY);
    for (;;) {
        if (must_try) {
            int64_t result = receive_once(ctx, sock, op);
            if (result != LS_EAGAIN) {
                uint32_t ready = ready_after(sock, op, result);
                if (ready != 0) atomic_fetch_or(&sock->word, ready);
                if (result < 0) {
                    return (int)result; /* not posted: no packet follows */
                }
                return ls_op_complete(ctx, op, result, &ctx->stats.recv_inline, &ctx->stats.recv_queued);
            }
        }
        const int err = ls_epoll_register(ctx->port, sock, false);
        if (err < 0) return err;
        if (begin_wait(sock, 0, 0) == WAITING) return LS_PENDING;
        must_try = true;
    }
}

/* ---- send and connect ------------------------------------------------------------------------------------ */

/* Fill iov with the rest of the slices after `sent` bytes. Returns the number of entries; *file_from is the number of
 * bytes of the file range sent so far (negative: slices are left). */
static int fill_iov(const ls_op *op, int64_t sent, struct iovec *iov, int64_t *file_from)
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
    if (n == 1) return ls_epoll_sys_send(fd, iov[0].iov_base, iov[0].iov_len, flags);
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    return sendmsg(fd, &message, flags);
}

/* Make system calls until all is sent (returns the sum), a call would block (LS_EAGAIN; op->result is the number of
 * bytes sent so far), or a call fails. */
static int64_t send_all(ls_sock *sock, ls_op *op)
{
    const ls_file_range *file = op->send.file;
    const bool file_follows = file != NULL && file->len > 0;
    const bool corked = atomic_load_explicit(&sock->word, memory_order_relaxed) & CORKED;
    int64_t sent = atomic_load_explicit(&op->result, memory_order_relaxed);
    if (file_follows && file->shared != NULL && !ls_shared_file_unchanged(file->shared))
        return sent > 0 ? LS_EINVAL : LS_ECHANGED;
    for (;;) {
        struct iovec iov[IOV_MAX_HERE];
        int64_t file_from;
        ssize_t n = 0;
        size_t requested = 0;
        int entries = fill_iov(op, sent, iov, &file_from);
        if (entries > 0) {
            for (int i = 0; i < entries; i++) requested += iov[i].iov_len;
            n = send_vector(sock->base.fd, iov, entries, MSG_NOSIGNAL | (corked || file_follows ? MSG_MORE : 0));
        } else if (file != NULL && (uint64_t)file_from < file->len) {
            off_t from = (off_t)(file->offset + (uint64_t)file_from);
            requested = (size_t)(file->len - (uint64_t)file_from);
            const bool guarded = ls_pipe_guard_enter();
            n = sendfile(sock->base.fd, file->fd, &from, requested < 1u << 30 ? requested : 1u << 30);
            ls_pipe_guard_leave(guarded);
            if (n == 0) return LS_EINVAL; /* the file is shorter than the range */
        } else {
            return sent;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
        sent += n;
        if (entries > 0 && (size_t)n == requested && file == NULL && entries < IOV_MAX_HERE) return sent;
        atomic_store_explicit(&op->result, sent, memory_order_relaxed);
        ls_sock_progressed(&sock->base, n);
    }
}

static int64_t connect_result(ls_sock *sock)
{
    int error = 0;
    if (getsockopt(sock->base.fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}) < 0) error = errno;
    if (error != 0) return ls_err_from_errno(error);
    /* No error does not mean connected: the event may be an old one. */
    ls_sockaddr peer;
    socklen_t len = sizeof peer.bytes;
    if (getpeername(sock->base.fd, (struct sockaddr *)peer.bytes, &len) == 0) return 0;
    return errno == ENOTCONN ? LS_EAGAIN : ls_err_from_errno(errno);
}

static int64_t transmit_once(ls_sock *sock, ls_op *op)
{
    switch (op->kind) {
    case KIND_SEND: return send_all(sock, op);
    case KIND_SEND_TO: return ls_epoll_send_to(sock, op);
    default: return connect_result(sock);
    }
}

bool ls_epoll_transmit(ls_port *port, ls_sock *sock, ls_op *op)
{
    int64_t result;
    while ((result = transmit_once(sock, op)) == LS_EAGAIN) {
        const int err = ls_epoll_register(port, sock, true);
        if (err < 0) {
            result = err;
            break;
        }
        enum wait_state state = begin_wait(sock, TX_SHIFT, TX_BUSY);
        if (state == WAITING) return false;
        if (state == STOPPED) {
            result = LS_ECANCELED;
            break;
        }
    }
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    leave_busy(port, sock, TX_BUSY | TX_STOP, 0);
    return true;
}

size_t ls_sock_try_send(ls_sock *sock, const void *bytes, size_t len)
{
    if (atomic_load_explicit(&sock->word, memory_order_relaxed) & CORKED) return 0;
    const ssize_t n = ls_epoll_sys_send(sock->base.fd, bytes, len, MSG_NOSIGNAL);
    return n > 0 ? (size_t)n : 0;
}

int ls_sock_post_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    atomic_store_explicit(&op->result, 0, memory_order_relaxed);
    for (;;) {
        int64_t result = transmit_once(sock, op);
        if (result >= 0) return ls_op_complete(ctx, op, result, &ctx->stats.send_inline, &ctx->stats.send_queued);
        if (result != LS_EAGAIN) return (int)result;
        int err = ls_epoll_register(ctx->port, sock, true);
        if (err < 0) return err;
        atomic_store_explicit(&sock->tx, op, memory_order_relaxed);
        if (begin_wait(sock, TX_SHIFT, 0) == WAITING) return LS_PENDING;
    }
}

int ls_op_connect(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, const ls_sockaddr *to)
{
    op->kind = KIND_CONNECT;
    op->connect.addr = to;
    if (connect(sock->base.fd, (const struct sockaddr *)to->bytes, to->len) == 0) {
        atomic_store_explicit(&op->result, 0, memory_order_relaxed);
        return LS_DONE;
    }
    /* EAGAIN: the backlog of a Unix listener is full, and no event reports when that changes. */
    if (errno != EINPROGRESS && errno != EINTR) return errno == EAGAIN ? LS_EREFUSED : ls_err_from_errno(errno);
    int err = ls_epoll_register(ctx->port, sock, true);
    if (err < 0) return err;
    for (;;) {
        atomic_store_explicit(&sock->tx, op, memory_order_relaxed);
        if (begin_wait(sock, TX_SHIFT, 0) == WAITING) return LS_PENDING;
        int64_t result = connect_result(sock);
        if (result == LS_EAGAIN) continue;
        atomic_store_explicit(&op->result, result, memory_order_relaxed);
        return result < 0 ? (int)result : LS_DONE;
    }
}
