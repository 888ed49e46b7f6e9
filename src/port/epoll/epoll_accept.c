/* epoll_accept.c - listeners: accepts posted in advance, the list of listeners to accept from again, and those that
 * are out of descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "port/epoll/epoll_internal.h"

enum { ACCEPT_RETRY_MS = 100, EMFILE_LOG_MS = 60000 };

static void rescan_later(ls_port *port, ls_sock *sock)
{
    ls_mutex_lock(&port->base.mutex);
    const bool added = !(atomic_fetch_or(&sock->word, LISTED) & LISTED);
    if (added) {
        sock->list_next = port->rescan;
        port->rescan = sock;
        atomic_fetch_add(&port->base.queued, 1);
    }
    ls_mutex_unlock(&port->base.mutex);
    if (added) ls_epoll_wake(port);
}

/* Move the listeners that are out of descriptors to the list rescan. */
void ls_epoll_emfile_retry(ls_port *port)
{
    ls_mutex_lock(&port->base.mutex);
    while (port->emfile_waiting != NULL) {
        ls_sock *sock = port->emfile_waiting;
        port->emfile_waiting = sock->list_next;
        sock->list_next = port->rescan;
        port->rescan = sock;
        atomic_fetch_add(&port->base.queued, 1);
    }
    ls_mutex_unlock(&port->base.mutex);
    ls_epoll_wake(port);
}

/* Remove a closing listener from both lists; accept_mutex is held, so that no thread adds it again. */
void ls_epoll_unlist(ls_port *port, ls_sock *sock)
{
    ls_mutex_lock(&port->base.mutex);
    for (ls_sock **at = &port->rescan; *at != NULL; at = &(*at)->list_next)
        if (*at == sock) {
            *at = sock->list_next;
            atomic_fetch_sub(&port->base.queued, 1);
            break;
        }
    for (ls_sock **at = &port->emfile_waiting; *at != NULL; at = &(*at)->list_next)
        if (*at == sock) {
            *at = sock->list_next;
            break;
        }
    atomic_fetch_and(&sock->word, ~(uint64_t)LISTED);
    ls_mutex_unlock(&port->base.mutex);
}

bool ls_epoll_cancel_accept(ls_port *port, ls_sock *sock, ls_op *op)
{
    ls_mutex_lock(&port->accept_mutex);
    ls_op *before = NULL, *at = atomic_load(&sock->rx);
    for (; at != NULL && at != op; at = at->next) before = at;
    if (at != NULL && before == NULL)
        atomic_store(&sock->rx, at->next);
    else if (at != NULL)
        before->next = at->next;
    ls_mutex_unlock(&port->accept_mutex);
    return at != NULL;
}

static bool out_of_descriptors(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* The accepts stay pending until the retry timer expires. Logged at most once per EMFILE_LOG_MS.
 * accept_mutex is held. */
static void emfile_wait(ls_port *port, ls_sock *sock, int error)
{
    ls_mutex_lock(&port->base.mutex);
    if (!(atomic_fetch_or(&sock->word, LISTED) & LISTED)) {
        sock->list_next = port->emfile_waiting;
        port->emfile_waiting = sock;
    }
    ls_mutex_unlock(&port->base.mutex);
    atomic_store(&port->emfile_pending, true);
    const uint64_t now_ns = ls_clock_ns();
    if (now_ns >= port->emfile_logged_ns + EMFILE_LOG_MS * UINT64_C(1000000) || port->emfile_logged_ns == 0) {
        port->emfile_logged_ns = now_ns;
        ls_log(LS_LOG_WARN, "accept: %s; connections wait in the listeners' queues",
               ls_err_text(ls_err_from_errno(error)));
    }
    (void)ls_port_timer_set(port, &port->retry, now_ns + ACCEPT_RETRY_MS * UINT64_C(1000000));
}

/* Accept connections for the pending accepts, up to max. Called after an event, or when connections may be left from
 * the last call. accept4 does not block; under accept_mutex the descriptor cannot be closed meanwhile. */
int ls_epoll_accept(ls_thread_ctx *ctx, ls_sock *sock, ls_packet *packets, int max)
{
    ls_port *port = ctx->port;
    int n = 0;
    ls_mutex_lock(&port->accept_mutex);
    uint64_t word = atomic_load(&sock->word);
    while ((word & LISTENS) && !(word & CLOSING)) {
        ls_op *op = atomic_load(&sock->rx);
        if (op == NULL) { /* the next ls_op_accept tries again */
            atomic_fetch_or(&sock->word, RX_READY);
            break;
        }
        if (n == max) { /* the next wait of any thread continues */
            rescan_later(port, sock);
            break;
        }
        ls_sockaddr *from = op->accept.from;
        socklen_t len = sizeof from->bytes;
        int fd = accept4(sock->base.fd, from != NULL ? (struct sockaddr *)from->bytes : NULL,
                         from != NULL ? &len : NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            atomic_store(&sock->rx, op->next);
            if (from != NULL) from->len = len;
            op->accept.fd = fd;
            atomic_store_explicit(&op->result, 0, memory_order_relaxed);
            ls_counter_add(&ctx->stats.accepts, 1);
            atomic_store_explicit(&port->emfile_pending, false, memory_order_relaxed);
            packets[n++] = (ls_packet){.op = op};
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (out_of_descriptors(errno)) {
            emfile_wait(port, sock, errno);
            break;
        } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK || errno == EOPNOTSUPP) {
            atomic_store(&sock->rx, op->next); /* not a listening socket: permanent */
            packets[n++] = (ls_packet){.op = op, .result = ls_err_from_errno(errno)};
            atomic_store_explicit(&op->result, packets[n - 1].result, memory_order_relaxed);
        }
        /* Any other error concerns one connection that failed in the queue (accept(2)): try the next one. */
    }
    ls_mutex_unlock(&port->accept_mutex);
    return n;
}

int ls_op_accept(ls_thread_ctx *ctx, ls_sock *listener, ls_op *op, ls_sockaddr *from)
{
    ls_port *port = ctx->port;
    op->kind = KIND_ACCEPT;
    op->next = NULL;
    op->accept.from = from;
    op->accept.fd = LS_FD_NONE;
    atomic_fetch_or(&listener->word, LISTENS);
    int err = ls_epoll_register(port, listener, false);
    if (err < 0) return err;

    ls_mutex_lock(&port->accept_mutex);
    ls_op *last = atomic_load(&listener->rx);
    if (last == NULL) {
        atomic_store(&listener->rx, op);
    } else {
        while (last->next != NULL) last = last->next;
        last->next = op;
    }
    if (atomic_fetch_and(&listener->word, ~(uint64_t)RX_READY) & RX_READY) rescan_later(port, listener);
    ls_mutex_unlock(&port->accept_mutex);
    return LS_PENDING;
}
