/* iocp_send.c - a send: the calls of WSASend and TransmitFile that send slices and a range of a file.
 *
 * TransmitFile sends a file without a copy. A client edition of Windows carries out two TransmitFile operations of the
 * whole system at a time and queues the others, so that two slow peers would stop all other files. Therefore the port
 * calls TransmitFile on server editions only, and not for Unix sockets. Otherwise each call reads a part of the file
 * into a block, which WSASend sends after the slices. The part is read by the calling thread, as sendfile(2) does on
 * Linux. */

#include "port/file/file_internal.h"
#include "port/file/shared_file.h"
#include "port/win32/iocp_internal.h"

enum { BUFFERS_MAX = 64 };

/* Fill `buffers` with up to SEND_BYTES_MAX bytes of the slices after `sent` bytes. Returns the number of buffers;
 * *file_from is the number of bytes of the file range sent so far (negative: slices are left), *last: the buffers end
 * with the last slice. */
static int fill_buffers(const ls_op *op, int64_t sent, WSABUF *buffers, int64_t *file_from, bool *last)
{
    int n = 0;
    int64_t skip = sent;
    uint32_t room = SEND_BYTES_MAX;
    *last = true;
    for (uint16_t i = 0; i < op->count; i++) {
        const ls_slice *slice = &op->send.slices[i];
        if (skip >= (int64_t)slice->len) {
            skip -= (int64_t)slice->len;
            continue;
        }
        const size_t left = slice->len - (size_t)skip;
        if (n == BUFFERS_MAX || room == 0) {
            *last = false;
            break;
        }
        const ULONG len = left < room ? (ULONG)left : room;
        buffers[n++] = (WSABUF){.len = len, .buf = (char *)(uintptr_t)slice->ptr + skip};
        room -= len;
        skip = 0;
        if (len < left) *last = false;
    }
    *file_from = n > 0 ? -1 : skip;
    return n;
}

/* One TransmitFile: `head` (may be NULL) and a part of the file. Returns an error number as WSASend does. */
static int transmit_file(ls_sock *sock, const ls_file_range *file, uint64_t file_from, WSABUF *head)
{
    enum { FILE_BYTES_MAX = 1 << 20 }; /* per call, so that progress is reported */
    const uint64_t offset = file->offset + file_from, left = file->len - file_from;
    TRANSMIT_FILE_BUFFERS around = {.Head = head != NULL ? head->buf : NULL,
                                    .HeadLength = head != NULL ? head->len : 0};
    sock->tx.overlapped.Offset = (DWORD)offset;
    sock->tx.overlapped.OffsetHigh = (DWORD)(offset >> 32);
    if (sock->provider->transmit(sock->base.fd, (HANDLE)file->fd, left < FILE_BYTES_MAX ? (DWORD)left : FILE_BYTES_MAX,
                                 0, &sock->tx.overlapped, head != NULL ? &around : NULL, 0))
        return 0;
    return WSAGetLastError();
}

void ls_win32_drop_file_block(ls_sock *sock)
{
    if (sock->file_block == NULL) return;
    ls_block_drop(sock->file_block);
    sock->file_block = NULL;
}

/* Read the next part of the file into sock->file_block. LS_OK; LS_EINVAL: the file is shorter than the range;
 * LS_E*. */
static int read_part(ls_thread_ctx *ctx, ls_sock *sock, const ls_file_range *file, uint64_t file_from, WSABUF *out)
{
    const uint64_t left = file->len - file_from;
    ls_block *block = ls_block_get(ctx->pool, left <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
    if (block == NULL) return LS_ENOMEM;
    const size_t len = left < block->cap ? (size_t)left : block->cap;
    const int64_t n = ls_file_read(file->fd, block->data, len, file->offset + file_from);
    if (n <= 0) {
        ls_block_drop(block);
        return n < 0 ? (int)n : LS_EINVAL;
    }
    sock->file_block = block;
    *out = (WSABUF){.len = (ULONG)n, .buf = block->data};
    return LS_OK;
}

/* Make the next call of a send. LS_DONE: *bytes were sent at once; LS_PENDING; LS_EAGAIN: all is sent; or LS_E*. */
static int post_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, int64_t sent, DWORD *bytes)
{
    const ls_file_range *file = op->send.file != NULL && op->send.file->len > 0 ? op->send.file : NULL;
    WSABUF buffers[BUFFERS_MAX + 1]; /* and a part of the file */
    int64_t file_from;
    bool last;
    int error = 0;
    int n = fill_buffers(op, sent, buffers, &file_from, &last);
    ls_win32_prepare(&sock->tx, op);
    *bytes = 0;
    if (n == 0 && (file == NULL || (uint64_t)file_from >= file->len)) return LS_EAGAIN;
    if (sock->tx.stop || !sock->open) return LS_ECANCELED;
    if (file != NULL && file->shared != NULL && !ls_shared_file_unchanged(file->shared))
        return sent > 0 ? LS_EINVAL : LS_ECHANGED;
    const bool reaches_file = file != NULL && last, transmits = sock->provider->transmit != NULL;
    const uint64_t from = file_from < 0 ? 0 : (uint64_t)file_from;
    if (reaches_file && transmits && n <= 1) {
        error = transmit_file(sock, file, from, n > 0 ? &buffers[0] : NULL);
        if (error == 0) (void)WSAGetOverlappedResult(sock->base.fd, &sock->tx.overlapped, bytes, FALSE, &(DWORD){0});
    } else {
        if (reaches_file && transmits) {
            n--; /* the last slice is sent with the file */
        } else if (reaches_file) {
            const int err = read_part(ctx, sock, file, from, &buffers[n]);
            if (err < 0) return err;
            n++;
        }
        if (WSASend(sock->base.fd, buffers, (DWORD)n, bytes, 0, &sock->tx.overlapped, NULL) != 0)
            error = WSAGetLastError();
    }
    return ls_win32_posted(sock, &sock->tx, error);
}

int64_t ls_win32_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    for (;;) {
        const int64_t sent = atomic_load_explicit(&op->result, memory_order_relaxed);
        DWORD bytes;
        const int outcome = post_send(ctx, sock, op, sent, &bytes);
        if (outcome == LS_PENDING) return LS_EAGAIN;
        ls_win32_drop_file_block(sock);
        if (outcome == LS_EAGAIN) return sent;
        if (outcome < 0) return outcome;
        if (bytes == 0) return LS_EINVAL; /* the file is shorter than the range */
        atomic_store_explicit(&op->result, sent + bytes, memory_order_relaxed);
        ls_sock_progressed(&sock->base, bytes);
    }
}
