/* iocp_accept.c - listeners: accepts posted in advance with AcceptEx, each with the socket for its connection.
 *
 * When the system returns no socket, or has no memory for an accept, the accept waits: the listener is put on
 * port->emfile_waiting, and a timer tries again. Windows has no limit of descriptors, but memory can be short.
 *
 * A listener that is closed with pending accepts keeps its descriptor until the packets of its cancelled accepts were
 * taken; the last one closes it. An accept that completed before the cancellation has a connection, which must not be
 * lost, and which takes over the properties of the listener while that is open (SO_UPDATE_ACCEPT_CONTEXT). */
#include "port/win32/iocp_internal.h"

#include <stdlib.h>
#include <string.h>
#include <ws2tcpip.h>

#include "base/clock.h"
#include "base/io/log.h"

enum { ACCEPT_RETRY_MS = 100, ADDRESS_BYTES = sizeof(SOCKADDR_STORAGE) + 16 };

/* Remove the accept from the list of the listener. The mutex is held. */
static void unlink_accept(ls_sock *sock, const win_accept *accept)
{
    win_accept **at = &sock->accepts;
    while (*at != accept) at = &(*at)->next;
    *at = accept->next;
}

static void emfile_wait(ls_sock *sock, int err)
{
    ls_port *port = sock->port;
    ls_mutex_lock(&port->base.mutex);
    const bool added = !sock->emfile_waiting;
    if (added) { /* append: see ls_win32_emfile_retry */
        ls_sock **last = &port->emfile_waiting;
        while (*last != NULL) last = &(*last)->list_next;
        *last = sock;
        sock->list_next = NULL;
        sock->emfile_waiting = true;
    }
    ls_mutex_unlock(&port->base.mutex);
    if (added) ls_log(LS_LOG_WARN, "accept: %s; connections wait in the listeners' queues", ls_err_text(err));
    (void)ls_port_timer_set(port, &port->retry, ls_clock_ns() + ACCEPT_RETRY_MS * UINT64_C(1000000));
}

/* Open a socket for AcceptEx: non-blocking, and with the TCP_NODELAY of the listener, which AcceptEx does not copy. */
static SOCKET open_socket(ls_sock *sock)
{
    u_long on = 1;
    DWORD no_delay = 0;
    int len = sizeof no_delay;
    WSAPROTOCOL_INFOW *protocol = sock->protocol;
    const SOCKET fd = WSASocketW(protocol->iAddressFamily, protocol->iSocketType, protocol->iProtocol, NULL, 0,
                                 WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (fd == INVALID_SOCKET) return fd;
    (void)ioctlsocket(fd, FIONBIO, &on);
    if (getsockopt(sock->base.fd, IPPROTO_TCP, TCP_NODELAY, (char *)&no_delay, &len) == 0 && no_delay != 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, (const char *)&no_delay, sizeof no_delay);
    return fd;
}

/* The mutex is held. LS_PENDING: posted, or the accept waits for a socket; LS_DONE: a connection was accepted; or
 * LS_E*, a permanent error. */
static int post_accept(ls_sock *sock, win_accept *accept)
{
    for (;;) {
        if (accept->fd == INVALID_SOCKET && (accept->fd = open_socket(sock)) == INVALID_SOCKET) {
            emfile_wait(sock, ls_winsock_error());
            return LS_PENDING;
        }
        DWORD bytes;
        int error = 0;
        ls_win32_prepare(&accept->request, accept->request.op);
        if (!sock->provider->accept(sock->base.fd, accept->fd, accept->addresses, 0, ADDRESS_BYTES, ADDRESS_BYTES,
                                    &bytes, &accept->request.overlapped))
            error = WSAGetLastError();
        /* The connection was reset before it was accepted: try the next one. */
        if (error == WSAECONNRESET || error == WSAECONNABORTED) continue;
        const int outcome = ls_win32_posted(sock, &accept->request, error);
        if (outcome != LS_ENOMEM && outcome != LS_EMFILE) return outcome;
        emfile_wait(sock, outcome);
        return LS_PENDING;
    }
}

/* Set the result of an accept that has a connection. */
static void fill_op(ls_sock *sock, win_accept *accept, ls_op *op)
{
    struct sockaddr *local, *remote;
    int local_len = 0, remote_len = 0;
    ls_sockaddr *from = op->accept.from;
    sock->provider->accept_addresses(accept->addresses, 0, ADDRESS_BYTES, ADDRESS_BYTES, &local, &local_len, &remote,
                                     &remote_len);
    if (from != NULL) {
        from->len = remote_len > 0 && (size_t)remote_len <= sizeof from->bytes ? (uint32_t)remote_len : 0;
        if (from->len > 0) memcpy(from->bytes, remote, from->len);
    }
    op->accept.fd = (ls_fd)accept->fd;
    accept->fd = INVALID_SOCKET;
}

static void free_accept(win_accept *accept)
{
    if (accept->fd != INVALID_SOCKET) (void)closesocket(accept->fd);
    free(accept);
}

/* Give the accepted socket the properties of the listener, which getpeername, shutdown and others need. LS_OK;
 * LS_ECLOSED: the connection was closed meanwhile. */
static int update(const ls_sock *sock, const win_accept *accept)
{
    const SOCKET listener = sock->base.fd;
    const int failed =
        setsockopt(accept->fd, SOL_SOCKET, SO_UPDATE_ACCEPT_CONTEXT, (const char *)&listener, sizeof listener);
    return failed ? LS_ECLOSED : LS_OK;
}

bool ls_win32_accepted(ls_thread_ctx *ctx, win_request *request, ls_packet *out)
{
    win_accept *accept = (win_accept *)(void *)request;
    ls_sock *sock = request->sock;
    ls_op *op = request->op;
    ls_mutex_lock(&sock->mutex);
    request->pending = false;
    sock->held--;
    int64_t result = ls_win32_status(request);
    if (result == LS_OK) result = update(sock, accept);
    if (!sock->open && result != LS_OK) {
        result = LS_ECANCELED;
    } else if (result != LS_OK && result != LS_ECANCELED) {
        /* An error of one connection (a reset in the queue): try the next one, with a new socket. */
        (void)closesocket(accept->fd);
        accept->fd = INVALID_SOCKET;
        int outcome = post_accept(sock, accept);
        if (outcome == LS_PENDING) {
            ls_mutex_unlock(&sock->mutex);
            return false;
        }
        result = outcome == LS_DONE ? update(sock, accept) : outcome;
    }
    if (result == LS_OK) {
        fill_op(sock, accept, op);
        ls_counter_add(&ctx->stats.accepts, 1);
    }
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    *out = (ls_packet){.op = op, .result = result};
    unlink_accept(sock, accept);
    ls_win32_leave(sock);
    free_accept(accept);
    return true;
}

/* The mutex is held. A connection accepted at once goes through the queue as well: an accept always
 * returns LS_PENDING. */
static int post_or_queue(ls_sock *sock, win_accept *accept)
{
    const int outcome = post_accept(sock, accept);
    if (outcome != LS_DONE) return outcome;
    accept->request.pending = true;
    sock->held++;
    accept->request.overlapped.Internal = 0; /* success */
    if (PostQueuedCompletionStatus(sock->port->iocp, 0, KEY_REQUEST, &accept->request.overlapped)) return LS_PENDING;
    accept->request.pending = false;
    sock->held--;
    return LS_ENOMEM;
}

int ls_op_accept(ls_thread_ctx *ctx, ls_sock *listener, ls_op *op, ls_sockaddr *from)
{
    int err = LS_ENOMEM;
    if (listener->provider->accept == NULL || listener->provider->accept_addresses == NULL) return LS_ENOTSUP;
    win_accept *accept = calloc(1, sizeof *accept);
    if (accept == NULL) return err;
    op->kind = KIND_ACCEPT;
    op->accept.from = from;
    op->accept.fd = LS_FD_NONE;
    accept->request = (win_request){.type = WIN_ACCEPT, .op = op, .sock = listener};
    accept->fd = INVALID_SOCKET;

    ls_mutex_lock(&listener->mutex);
    if (listener->protocol == NULL) {
        int len = sizeof *listener->protocol;
        WSAPROTOCOL_INFOW *protocol = malloc(sizeof *protocol);
        if (protocol == NULL) goto fail;
        if (getsockopt(listener->base.fd, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)protocol, &len) != 0) {
            err = ls_winsock_error();
            free(protocol);
            goto fail;
        }
        listener->protocol = protocol;
    }
    win_accept **last = &listener->accepts;
    while (*last != NULL) last = &(*last)->next;
    *last = accept;
    if ((err = post_or_queue(listener, accept)) != LS_PENDING) {
        *last = NULL;
        goto fail;
    }
    ls_mutex_unlock(&listener->mutex);
    return LS_PENDING;

fail:
    ls_mutex_unlock(&listener->mutex);
    free_accept(accept);
    return err;
}

static void unlist(ls_sock *sock)
{
    ls_port *port = sock->port;
    ls_mutex_lock(&port->base.mutex);
    for (ls_sock **at = &port->emfile_waiting; *at != NULL; at = &(*at)->list_next)
        if (*at == sock) {
            *at = sock->list_next;
            break;
        }
    sock->emfile_waiting = false;
    ls_mutex_unlock(&port->base.mutex);
}

void ls_win32_close_accepts(ls_sock *sock)
{
    unlist(sock);
    free(sock->protocol);
    sock->protocol = NULL;
    for (win_accept **at = &sock->accepts; *at != NULL;) {
        win_accept *accept = *at;
        if (accept->request.pending) {
            at = &accept->next; /* its packet follows */
        } else {
            *at = accept->next;
            ls_queue_post(sock->port, accept->request.op, LS_ECANCELED);
            free_accept(accept);
        }
    }
}

bool ls_win32_cancel_accept(ls_sock *sock, ls_op *op)
{
    win_accept *accept = sock->accepts;
    while (accept != NULL && accept->request.op != op) accept = accept->next;
    if (accept == NULL) return false;
    if (accept->request.pending) {
        (void)CancelIoEx((HANDLE)sock->base.fd, &accept->request.overlapped);
        return false;
    }
    unlink_accept(sock, accept);
    free_accept(accept);
    return true;
}

/* Try each listener on the list once; a listener without a socket again is appended. A listener that is closed
 * meanwhile is harmless: its slot has no waiting accepts, even if it was reused. */
void ls_win32_emfile_retry(ls_port *port)
{
    unsigned count = 0;
    ls_mutex_lock(&port->base.mutex);
    for (const ls_sock *sock = port->emfile_waiting; sock != NULL; sock = sock->list_next) count++;
    ls_mutex_unlock(&port->base.mutex);
    for (; count > 0; count--) {
        ls_mutex_lock(&port->base.mutex);
        ls_sock *sock = port->emfile_waiting;
        if (sock != NULL) {
            port->emfile_waiting = sock->list_next;
            sock->emfile_waiting = false;
        }
        ls_mutex_unlock(&port->base.mutex);
        if (sock == NULL) return;
        ls_mutex_lock(&sock->mutex);
        for (win_accept *accept = sock->accepts; sock->open && accept != NULL; accept = accept->next)
            if (!accept->request.pending && post_or_queue(sock, accept) < 0) emfile_wait(sock, LS_ENOMEM);
        ls_mutex_unlock(&sock->mutex);
    }
}
