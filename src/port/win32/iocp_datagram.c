/* iocp_datagram.c - batches of datagrams: see datagram.h, and datagram_internal.h for the layout of a batch.
 *
 * A receive waits with a peek of 0 bytes. When it has completed, non-blocking calls receive the datagrams, one each,
 * because Winsock has no recvmmsg. So one request serves a whole batch, and a waiting socket holds no memory. Blocks
 * are taken one by one, each when the previous one is full, so a few datagrams take one block.
 *
 * Sends are non-blocking calls as well; a datagram that would block becomes an overlapped WSASendTo. */
#include <ws2tcpip.h>

#include "port/datagram_internal.h"
#include "port/win32/iocp_internal.h"

/* Winsock reports an ICMP error for an earlier datagram as the error of a later call. */
bool ls_win32_is_report(int error)
{
    switch (error) {
    case WSAECONNRESET: /* port unreachable */
    case WSAENETRESET:  /* time to live exceeded */
    case WSAECONNREFUSED:
    case WSAENETUNREACH:
    case WSAEHOSTUNREACH: return true;
    default: return false;
    }
}

/* The ICMP report on a connected socket, with the same code as on other systems. */
static int report_of(int error)
{
    return error == WSAECONNRESET ? LS_EREFUSED : ls_err_from_win32((uint32_t)error);
}

/* ---- receive --------------------------------------------------------------------------------------------------- */

typedef struct room { /* the memory for the next datagram */
    ls_block *block;
    size_t from, each;
    bool own;        /* `block` holds a reference that must be dropped; the head's belongs to the batch */
    unsigned blocks; /* blocks taken for bytes so far */
} room;

/* Make room for bytes_max more bytes. LS_OK; LS_ENOMEM; LS_ELIMIT: the batch has all its blocks. */
static int room_for(ls_thread_ctx *ctx, room *into, uint32_t bytes_max)
{
    if (into->block != NULL && into->from + bytes_max <= LS_BLOCK_LARGE) return LS_OK;
    if (into->blocks == LS_DATAGRAM_BLOCKS_MAX) return LS_ELIMIT;
    ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_LARGE);
    if (block == NULL) return LS_ENOMEM;
    if (into->own) ls_block_drop(into->block);
    into->block = block;
    into->from = 0;
    into->own = true;
    into->blocks++;
    return LS_OK;
}

/* Receive one datagram. LS_OK, LS_EAGAIN or another error of the socket. */
static int receive_one(ls_sock *sock, ls_datagram *datagram, const room *into, uint32_t bytes_max)
{
    for (;;) {
        int len = sizeof datagram->addr.bytes, error = 0;
        int n = recvfrom(sock->base.fd, into->block->data + into->from, (int)bytes_max, 0,
                         (struct sockaddr *)(void *)datagram->addr.bytes, &len);
        if (n < 0) error = WSAGetLastError();
        if (error == WSAEMSGSIZE) n = (int)bytes_max; /* truncated: the room is full */
        if (n < 0 && ls_win32_is_report(error)) {
            if (sock->connected) return report_of(error);
            continue;
        }
        if (n < 0) return ls_err_from_win32((uint32_t)error);
        datagram->slice = ls_slice_of(into->block, into->from, (size_t)n);
        datagram->addr.len = (uint32_t)len;
        datagram->error = LS_OK;
        datagram->truncated = error == WSAEMSGSIZE;
        return LS_OK;
    }
}

int64_t ls_win32_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    const uint32_t bytes_max = op->len;
    unsigned count = op->count;
    room into = {.each = ls_datagram_room(bytes_max)};
    ls_datagrams *batch = ls_batch_open(ctx->pool, &count, into.each, &into.from);
    if (batch == NULL) return LS_ENOMEM;
    if (into.from > 0) {
        into.block = batch->block;
        into.blocks = 1;
    }

    int err = LS_OK;
    while (batch->count < count && (err = room_for(ctx, &into, bytes_max)) == LS_OK) {
        if ((err = receive_one(sock, &batch->at[batch->count], &into, bytes_max)) < 0) break;
        batch->count++;
        into.from += into.each;
    }
    if (into.own) ls_block_drop(into.block);
    if (batch->count == 0) { /* otherwise the batch is the result, and the error is ignored */
        ls_datagrams_drop(batch);
        return err;
    }
    op->recv_from.batch = batch;
    return batch->count;
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

static void datagram_done(ls_sock *sock, ls_op *op, int err)
{
    const int64_t done = atomic_load_explicit(&op->result, memory_order_relaxed);
    op->send_to.at[done].error = err;
    atomic_store_explicit(&op->result, done + 1, memory_order_relaxed);
    ls_sock_progressed(&sock->base, 0);
}

void ls_win32_sent_to(ls_sock *sock, ls_op *op, int err)
{
    if (err != LS_ECANCELED) datagram_done(sock, op, err == LS_ERESET ? LS_EREFUSED : err);
}

/* Send one datagram without waiting: 0 or an error number. */
static int send_one(ls_sock *sock, const ls_datagram *datagram)
{
    const struct sockaddr *to =
        datagram->addr.len > 0 ? (const struct sockaddr *)(const void *)datagram->addr.bytes : NULL;
    for (bool reported = false;; reported = true) {
        const int n =
            sendto(sock->base.fd, datagram->slice.ptr, (int)datagram->slice.len, 0, to, (int)datagram->addr.len);
        if (n >= 0) return 0;
        const int error = WSAGetLastError();
        /* On an unconnected socket the report is for an earlier datagram: try again once. */
        if (reported || sock->connected || !ls_win32_is_report(error)) return error;
    }
}

int64_t ls_win32_send_to(ls_sock *sock, ls_op *op)
{
    for (;;) {
        const int64_t done = atomic_load_explicit(&op->result, memory_order_relaxed);
        if (done == op->count) return ls_batch_sent(op);
        if (sock->tx.stop || !sock->open) return LS_ECANCELED;
        const ls_datagram *next = &op->send_to.at[done];
        int error = send_one(sock, next);
        if (error == WSAEWOULDBLOCK) {
            WSABUF buffer = {.len = (ULONG)next->slice.len, .buf = (char *)(uintptr_t)next->slice.ptr};
            const struct sockaddr *to =
                next->addr.len > 0 ? (const struct sockaddr *)(const void *)next->addr.bytes : NULL;
            DWORD bytes;
            ls_win32_prepare(&sock->tx, op);
            error = 0;
            if (WSASendTo(sock->base.fd, &buffer, 1, &bytes, 0, to, (int)next->addr.len, &sock->tx.overlapped, NULL) !=
                0)
                error = WSAGetLastError();
            if (error == WSAEWOULDBLOCK) error = WSAENOBUFS; /* too many requests are outstanding */
            if ((error == 0 || error == WSA_IO_PENDING) && ls_win32_posted(sock, &sock->tx, error) == LS_PENDING)
                return LS_EAGAIN;
        }
        datagram_done(sock, op, error == 0 ? LS_OK : report_of(error));
    }
}
