/* iocp_sock.c - one socket: attach, close, cancel, receive, connect, and the end of a send. */
#include "port/win32/iocp_internal.h"

#include <afunix.h>
#include <assert.h>
#include <string.h>
#include <ws2tcpip.h>

/* ---- attach, close, cancel ------------------------------------------------------------------------------- */

static void extension(SOCKET fd, GUID name, void *out, size_t bytes)
{
    DWORD got;
    memset(out, 0, bytes);
    if (WSAIoctl(fd, SIO_GET_EXTENSION_FUNCTION_POINTER, &name, sizeof name, out, (DWORD)bytes, &got, NULL, NULL) != 0)
        memset(out, 0, bytes); /* not supported by this kind of socket: its use returns LS_ENOTSUP */
}

/* The provider of a socket; its functions are looked up once. NULL: the table is full. */
static const win_provider *provider_of(ls_port *port, SOCKET fd, const WSAPROTOCOL_INFOW *protocol)
{
    const win_provider *found = NULL;
    ls_mutex_lock(&port->base.mutex);
    for (int i = 0; i < WIN_PROVIDERS_MAX && found == NULL; i++) {
        win_provider *provider = &port->providers[i];
        if (provider->catalog == protocol->dwCatalogEntryId) {
            found = provider;
        } else if (provider->catalog == 0) {
            extension(fd, (GUID)WSAID_ACCEPTEX, &provider->accept, sizeof provider->accept);
            extension(fd, (GUID)WSAID_GETACCEPTEXSOCKADDRS, &provider->accept_addresses,
                      sizeof provider->accept_addresses);
            extension(fd, (GUID)WSAID_CONNECTEX, &provider->connect, sizeof provider->connect);
            if (port->transmits && protocol->iAddressFamily != AF_UNIX) /* not documented for Unix sockets */
                extension(fd, (GUID)WSAID_TRANSMITFILE, &provider->transmit, sizeof provider->transmit);
            provider->skips = protocol->dwServiceFlags1 & XP1_IFS_HANDLES;
            provider->catalog = protocol->dwCatalogEntryId;
            found = provider;
        }
    }
    ls_mutex_unlock(&port->base.mutex);
    return found;
}

int ls_sock_attach(ls_port *port, ls_fd fd, bool maybe_readable, ls_sock **out)
{
    enum { MODES = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS | FILE_SKIP_SET_EVENT_ON_HANDLE };
    WSAPROTOCOL_INFOW protocol;
    struct sockaddr_storage peer;
    int protocol_len = sizeof protocol, peer_len = sizeof peer;
    uint32_t number;
    void *slot;
    int err = ls_slots_take(port->socks, &number, &slot);
    if (err < 0) return err;
    ls_sock *sock = slot;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL_INFOW, (char *)&protocol, &protocol_len) != 0) {
        err = ls_winsock_error();
        goto fail;
    }
    sock->provider = provider_of(port, fd, &protocol);
    if (sock->provider == NULL) {
        err = LS_ELIMIT;
        goto fail;
    }
    if (CreateIoCompletionPort((HANDLE)fd, port->iocp, KEY_REQUEST, 0) == NULL) {
        err = GetLastError() == ERROR_INVALID_PARAMETER ? LS_EEXIST : ls_err_from_win32(GetLastError());
        goto fail;
    }
    ls_win32_mark_attached(port, fd, true);
    sock->skips = sock->provider->skips && SetFileCompletionNotificationModes((HANDLE)fd, MODES);
    sock->port = port;
    sock->base.fd = fd;
    atomic_store_explicit(&sock->base.progress_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&sock->base.progress_bytes, 0, memory_order_relaxed);
    sock->number = number;
    sock->open = true;
    sock->ready = maybe_readable;
    sock->connected = protocol.iSocketType == SOCK_DGRAM && getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0;
    sock->held = 0;
    sock->emfile_waiting = sock->closes_late = false;
    sock->waited = false;
    sock->list_next = NULL;
    sock->accepts = NULL;
    sock->protocol = NULL;
    sock->file_block = NULL;
    sock->rx = (win_request){.type = WIN_RECEIVE, .sock = sock};
    sock->tx = (win_request){.type = WIN_SEND, .sock = sock};
    *out = sock;
    return LS_OK;

fail:
    ls_slots_give(port->socks, number);
    return err;
}

void ls_sock_share(ls_sock *sock)
{
}

bool ls_sock_is_silent(const ls_sock *sock)
{
    (void)sock; /* nothing is reported while no receive is posted */
    return false;
}

uint32_t ls_sock_generation(const ls_sock *sock)
{
    return atomic_load_explicit(&sock->generation, memory_order_relaxed);
}

static void close_descriptor(ls_sock *sock)
{
    ls_win32_mark_attached(sock->port, sock->base.fd, false);
    (void)closesocket(sock->base.fd);
}

void ls_win32_leave(ls_sock *sock)
{
    ls_port *port = sock->port;
    const uint32_t number = sock->number;
    const bool over = !sock->open && sock->held == 0;
    if (over && sock->closes_late) close_descriptor(sock);
    ls_mutex_unlock(&sock->mutex);
    if (over) ls_slots_give(port->socks, number);
}

void ls_sock_close(ls_thread_ctx *ctx, ls_sock *sock)
{
    ls_mutex_lock(&sock->mutex);
    assert(sock->open);
    /* Cancel, not only close: the handle may have been duplicated, and Wine continues a send after the close. */
    if (sock->held > 0) (void)CancelIoEx((HANDLE)sock->base.fd, NULL);
    ls_win32_close_accepts(sock);
    sock->closes_late = sock->accepts != NULL;
    if (!sock->closes_late) close_descriptor(sock);
    sock->open = false;
    atomic_fetch_add(&sock->generation, 1);
    ls_win32_leave(sock);
}

int ls_sock_shutdown(ls_sock *sock)
{
    return shutdown(sock->base.fd, SD_SEND) != 0 ? ls_winsock_error() : LS_OK;
}

size_t ls_sock_try_send(ls_sock *sock, const void *bytes, size_t len)
{
    return 0;
}

void ls_sock_cork_fin(ls_sock *sock)
{
    (void)sock; /* Winsock has no MSG_MORE */
}

/* The mutex is held. `op` NULL: any pending operation. */
static void cancel_request(ls_sock *sock, win_request *request, const ls_op *op)
{
    if (!request->pending || (op != NULL && request->op != op)) return;
    request->stop = true; /* if it has just completed without a result, it is not posted again */
    (void)CancelIoEx((HANDLE)sock->base.fd, &request->overlapped);
}

void ls_sock_cancel(ls_port *port, ls_sock *sock, uint32_t generation, unsigned what)
{
    ls_mutex_lock(&sock->mutex);
    if (sock->open && ls_sock_generation(sock) == generation) {
        if (what & LS_CANCEL_RECV) cancel_request(sock, &sock->rx, NULL);
        if (what & LS_CANCEL_SEND) cancel_request(sock, &sock->tx, NULL);
    }
    ls_mutex_unlock(&sock->mutex);
}

void ls_op_cancel(ls_port *port, ls_sock *sock, ls_op *op)
{
    bool cancelled = false;
    ls_mutex_lock(&sock->mutex);
    if (sock->open) {
        cancel_request(sock, &sock->rx, op);
        cancel_request(sock, &sock->tx, op);
        cancelled = ls_win32_cancel_accept(sock, op);
    }
    ls_mutex_unlock(&sock->mutex);
    if (cancelled) ls_queue_post(port, op, LS_ECANCELED);
}

/* Winsock has no event for the loss of a connection alone: a receive of 0 bytes completes for data as well, and a poll
 * of the device for each suspended request would cost more than the connection. */
int ls_op_watch(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    return LS_ENOTSUP;
}

bool ls_op_unwatch(ls_sock *sock, ls_op *op)
{
    return false;
}

/* ---- requests -------------------------------------------------------------------------------------------- */

void ls_win32_prepare(win_request *request, ls_op *op)
{
    memset(&request->overlapped, 0, sizeof request->overlapped);
    request->op = op;
}

int ls_win32_posted(ls_sock *sock, win_request *request, int error)
{
    if (error != 0 && error != WSA_IO_PENDING) {
        /* An overlapped call returns WSAEWOULDBLOCK when too many requests are outstanding: it was not posted. */
        const bool too_many = error == WSAEWOULDBLOCK || error == WSAEINPROGRESS || error == WSAEALREADY;
        return too_many ? LS_ENOMEM : ls_err_from_win32((uint32_t)error);
    }
    if (error == 0 && sock->skips) return LS_DONE;
    request->pending = true;
    sock->held++;
    return LS_PENDING;
}

int ls_win32_status(const win_request *request)
{
    const uint32_t status = (uint32_t)request->overlapped.Internal;
    if (status >> 31 == 0) return LS_OK;
    return request->sock->open ? ls_err_from_status(status) : LS_ECANCELED;
}

/* The packet of the request was taken: the kernel no longer holds it. */
static ls_op *request_end(ls_sock *sock, win_request *request)
{
    ls_op *op = request->op;
    assert(request->pending);
    request->pending = false;
    sock->held--;
    return op;
}

void ls_win32_discard(win_request *request)
{
    ls_sock *sock = request->sock;
    ls_mutex_lock(&sock->mutex);
    (void)request_end(sock, request);
    ls_win32_drop_file_block(sock);
    ls_win32_leave(sock);
}

/* ---- receive --------------------------------------------------------------------------------------------- */

static int64_t discard_now(ls_sock *sock)
{
    char bytes[LS_DISCARD_BYTES];
    const int n = recv(sock->base.fd, bytes, sizeof bytes, 0);
    return n >= 0 ? n : ls_winsock_error();
}

/* Receive the data available now into pool memory: bytes, 0 at the end, LS_EAGAIN or another error. */
static int64_t receive_now(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    if (op->kind == KIND_RECV_FROM) return ls_win32_recv_from(ctx, sock, op);
    char *ptr = op->recv.ptr;
    ls_block *block = NULL;
    if (op->kind == KIND_DISCARD) return discard_now(sock);
    if (op->len == 0) return 0; /* a readiness probe: data or the end can be received */
    if (ptr == NULL) {
        if ((block = ls_block_get(ctx->pool, op->len)) == NULL) return LS_ENOMEM;
        ptr = block->data;
    }
    const int n = recv(sock->base.fd, ptr, (int)op->len, 0);
    const int64_t result = n >= 0 ? n : ls_winsock_error();
    if (n > 0)
        op->recv.block = block;
    else if (block != NULL)
        ls_block_drop(block);
    return result;
}

static bool has_caller_memory(const ls_op *op)
{
    return op->kind == KIND_RECV && op->recv.ptr != NULL && op->len > 0;
}

/* true: more data may be available after this result, so the next receive is tried before it waits. */
static bool ready_after(const ls_op *op, int64_t result)
{
    return result <= 0 || result == (int64_t)(op->kind == KIND_RECV_FROM ? op->count : op->len);
}

/* Post the request that waits: a receive into the caller's memory, or one of 0 bytes that completes when data arrive.
 * *bytes is the number received, if it completes at once. */
static int post_wait(ls_sock *sock, ls_op *op, DWORD *bytes)
{
    /* On a stream a receive of 0 bytes waits for data. On a datagram socket it would consume a datagram, so it is a
     * peek, which completes with WSAEMSGSIZE when a datagram has arrived. */
    DWORD flags = op->kind == KIND_RECV_FROM ? MSG_PEEK : 0;
    WSABUF buffer = {.len = 0, .buf = NULL};
    if (has_caller_memory(op)) buffer = (WSABUF){.len = op->len, .buf = op->recv.ptr};
    if (!sock->waited && ls_win32_is_registered(sock->port, sock->base.fd)) return LS_EEXIST;
    sock->waited = true;
    ls_win32_prepare(&sock->rx, op);
    *bytes = 0;
    int error = 0;
    if (WSARecv(sock->base.fd, &buffer, 1, bytes, &flags, &sock->rx.overlapped, NULL) != 0) error = WSAGetLastError();
    if (op->kind == KIND_RECV_FROM && (error == WSAEMSGSIZE || ls_win32_is_report(error))) {
        /* A datagram has arrived, or an ICMP report. For a call that failed no packet follows; but WSAEMSGSIZE is a
         * warning to the system, which counts as a success. */
        return error == WSAEMSGSIZE ? ls_win32_posted(sock, &sock->rx, 0) : LS_DONE;
    }
    return ls_win32_posted(sock, &sock->rx, error);
}

/* Try and wait until there is a result or the kernel holds the request (LS_EAGAIN). `tries`: data may be available. */
static int64_t receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, bool tries)
{
    for (;; tries = true) {
        DWORD bytes;
        if (tries && !has_caller_memory(op)) {
            const int64_t result = receive_now(ctx, sock, op);
            if (result != LS_EAGAIN) return result;
        }
        if (sock->rx.stop) return LS_ECANCELED;
        const int outcome = post_wait(sock, op, &bytes);
        if (outcome == LS_PENDING) return LS_EAGAIN;
        if (outcome < 0) return outcome;
        if (has_caller_memory(op)) return bytes;
    }
}

/* The peek of a datagram socket has completed: a datagram has arrived, or the ICMP report for an earlier one. */
static int64_t receive_peeked(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, int status)
{
    const bool refused = status != LS_OK && status != LS_EMSGSIZE;
    if (refused && sock->connected) return status == LS_ERESET ? LS_EREFUSED : status;
    return receive(ctx, sock, op, true);
}

bool ls_win32_received(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out)
{
    ls_sock *sock = request->sock;
    ls_mutex_lock(&sock->mutex);
    ls_op *op = request_end(sock, request);
    int64_t result = ls_win32_status(request);
    if (!sock->open)
        result = LS_ECANCELED;
    else if (op->kind == KIND_RECV_FROM && result != LS_ECANCELED)
        result = receive_peeked(ctx, sock, op, (int)result);
    else if (result == LS_OK)
        result = has_caller_memory(op) ? (int64_t)bytes : receive(ctx, sock, op, true);
    *out = (ls_packet){.op = op, .result = result};
    if (result != LS_EAGAIN) {
        atomic_store_explicit(&op->result, result, memory_order_relaxed);
        sock->ready = result != LS_ECANCELED && ready_after(op, result);
        ls_counter_add(&ctx->stats.recv_queued, 1);
    }
    ls_win32_leave(sock);
    return result != LS_EAGAIN;
}

int ls_sock_post_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    ls_mutex_lock(&sock->mutex);
    assert(!sock->rx.pending);
    const bool tries = sock->ready && op->len > 0;
    sock->ready = false;
    sock->rx.stop = false;
    const int64_t result = receive(ctx, sock, op, tries);
    if (result != LS_EAGAIN) sock->ready = ready_after(op, result);
    ls_mutex_unlock(&sock->mutex);
    if (result == LS_EAGAIN) return LS_PENDING;
    if (result < 0) return (int)result; /* not posted: no packet follows */
    return ls_op_complete(ctx, op, result, &ctx->stats.recv_inline, &ctx->stats.recv_queued);
}

/* ---- connect --------------------------------------------------------------------------------------------- */

/* ConnectEx needs a bound socket. */
static void bind_any(ls_sock *sock, ADDRESS_FAMILY family, int len)
{
    struct sockaddr_storage any = {.ss_family = family};
    (void)bind(sock->base.fd, (struct sockaddr *)&any, len); /* fails if the socket is bound already */
}

/* Connect to a Unix socket without ConnectEx, which not every version has for them. The peer is on this machine, so
 * the result is there at once. Returns an error number. */
static int connect_local(ls_sock *sock, const ls_sockaddr *to)
{
    u_long on = 1, off = 0;
    (void)ioctlsocket(sock->base.fd, FIONBIO, &off);
    const int failed = connect(sock->base.fd, (const struct sockaddr *)(const void *)to->bytes, (int)to->len);
    const int error = failed ? WSAGetLastError() : 0;
    (void)ioctlsocket(sock->base.fd, FIONBIO, &on);
    return error;
}

static int64_t connect_result(ls_sock *sock, int result)
{
    /* getpeername and shutdown need this after ConnectEx. */
    if (result == LS_OK && setsockopt(sock->base.fd, SOL_SOCKET, SO_UPDATE_CONNECT_CONTEXT, NULL, 0) != 0)
        return ls_winsock_error();
    return result;
}

int ls_op_connect(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, const ls_sockaddr *to)
{
    op->kind = KIND_CONNECT;
    op->connect.addr = to;
    atomic_store_explicit(&op->result, 0, memory_order_relaxed);
    const ADDRESS_FAMILY family = ((const struct sockaddr *)(const void *)to->bytes)->sa_family;
    const bool local = family == AF_UNIX;
    if (sock->provider->connect == NULL && !local) return LS_ENOTSUP;
    if (local && to->bytes[offsetof(struct sockaddr_un, sun_path)] == '\0') return LS_ENOTSUP; /* an abstract name */
    ls_mutex_lock(&sock->mutex);
    assert(!sock->tx.pending);
    sock->tx.stop = false;
    bind_any(sock, family, local ? (int)sizeof(struct sockaddr_un) : (int)to->len);
    ls_win32_prepare(&sock->tx, op);
    int error = WSAEOPNOTSUPP;
    if (sock->provider->connect != NULL) {
        error = sock->provider->connect(sock->base.fd, (const struct sockaddr *)(const void *)to->bytes, (int)to->len,
                                        NULL, 0, NULL, &sock->tx.overlapped)
                    ? 0
                    : WSAGetLastError();
    }
    int outcome;
    if (local && (error == WSAEOPNOTSUPP || error == WSAEINVAL)) {
        error = connect_local(sock, to);
        outcome = error != 0 ? ls_err_from_win32((uint32_t)error) : LS_DONE;
    } else {
        outcome = ls_win32_posted(sock, &sock->tx, error);
        if (outcome == LS_DONE) outcome = (int)connect_result(sock, LS_OK);
    }
    ls_mutex_unlock(&sock->mutex);
    return outcome;
}

/* ---- both ------------------------------------------------------------------------------------------------ */

bool ls_win32_transmitted(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out)
{
    ls_sock *sock = request->sock;
    ls_mutex_lock(&sock->mutex);
    ls_op *op = request_end(sock, request);
    const int status = ls_win32_status(request);
    int64_t result = status;
    ls_win32_drop_file_block(sock);
    if (op->kind == KIND_SEND_TO) {
        ls_win32_sent_to(sock, op, status);
        result = ls_win32_send_to(sock, op);
    } else if (op->kind == KIND_CONNECT) {
        result = sock->open ? connect_result(sock, status) : LS_ECANCELED;
    } else if (status == LS_OK) {
        const int64_t sent = atomic_load_explicit(&op->result, memory_order_relaxed) + bytes;
        atomic_store_explicit(&op->result, sent, memory_order_relaxed);
        ls_sock_progressed(&sock->base, bytes);
        if (bytes == 0)
            result = LS_EINVAL; /* the file is shorter than the range */
        else
            result = ls_win32_send(ctx, sock, op);
    } else if (!sock->open) {
        result = LS_ECANCELED;
    }
    *out = (ls_packet){.op = op, .result = result};
    if (result != LS_EAGAIN) {
        atomic_store_explicit(&op->result, result, memory_order_relaxed);
        ls_counter_add(&ctx->stats.send_queued, 1);
    }
    ls_win32_leave(sock);
    return result != LS_EAGAIN;
}

int ls_sock_post_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    atomic_store_explicit(&op->result, 0, memory_order_relaxed);
    ls_mutex_lock(&sock->mutex);
    assert(!sock->tx.pending);
    sock->tx.stop = false;
    const int64_t result = op->kind == KIND_SEND_TO ? ls_win32_send_to(sock, op) : ls_win32_send(ctx, sock, op);
    ls_mutex_unlock(&sock->mutex);
    if (result == LS_EAGAIN) return LS_PENDING;
    if (result < 0) return (int)result;
    return ls_op_complete(ctx, op, result, &ctx->stats.send_inline, &ctx->stats.send_queued);
}
