/* uring_file.c - operations on files with io_uring: see file.h and uring_internal.h.
 *
 * An operation is an entry of the ring of the posting thread. The kernel carries it out at once if it need not wait,
 * else in a thread of its own (io-wq) or when the page has been read. When the result concerns the kernel and not the
 * file (the entry was interrupted, the submitting thread has ended, the file does not support non-blocking calls) the
 * operation goes to the pool.
 *
 *     op->where == FILE_BACKEND + index of the ring  <=>  its completion was not taken (under the ring's lock) */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "port/file_posix.h"
#include "port/uring/uring_internal.h"

static void fill_stat(struct io_uring_sqe *sqe, const ls_file_op *op, struct statx *statx_result)
{
    const bool open = op->action == DO_STAT_OPEN;
    sqe->opcode = IORING_OP_STATX;
    sqe->fd = open ? op->fd : AT_FDCWD;
    sqe->addr = (uintptr_t)(open ? "" : op->path);
    sqe->len = STATX_BASIC_STATS;
    sqe->off = (uintptr_t)statx_result;
    sqe->statx_flags = open ? AT_EMPTY_PATH : 0;
}

static void fill(struct io_uring_sqe *sqe, const ls_file_op *op, struct statx *statx_result)
{
    sqe->fd = op->fd;
    switch (op->action) {
    case DO_OPEN:
        sqe->opcode = IORING_OP_OPENAT;
        sqe->fd = AT_FDCWD;
        sqe->addr = (uintptr_t)op->path;
        sqe->len = LS_FILE_MODE;
        sqe->open_flags = (uint32_t)ls_file_open_flags(op->flags);
        break;
    case DO_STAT:
    case DO_STAT_OPEN: fill_stat(sqe, op, statx_result); break;
    case DO_READ:
    case DO_WRITE:
        sqe->opcode = op->action == DO_READ ? IORING_OP_READ : IORING_OP_WRITE;
        sqe->addr = (uintptr_t)op->bytes;
        sqe->len = op->op.len;
        sqe->off = op->offset;
        break;
    case DO_SYNC: sqe->opcode = IORING_OP_FSYNC; break;
    case DO_UNLINK:
        sqe->opcode = IORING_OP_UNLINKAT;
        sqe->fd = AT_FDCWD;
        sqe->addr = (uintptr_t)op->path;
        break;
    default:
        sqe->opcode = IORING_OP_CLOSE;
        sqe->flags = IOSQE_ASYNC; /* the last close of a file may wait for the device */
        break;
    }
}

static bool file_post(ls_thread_ctx *ctx, ls_file_op *op)
{
    ls_ring *ring = ctx->ring;
    if (ring == NULL) return false;
    struct statx *statx_result = NULL;
    if (op->action == DO_STAT || op->action == DO_STAT_OPEN) {
        if ((statx_result = malloc(sizeof *statx_result)) == NULL) return false;
    }
    bool posted = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx) {
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_file(op));
        if (sqe != NULL) {
            if (statx_result != NULL) op->bytes = statx_result;
            fill(sqe, op, statx_result);
            atomic_store(&op->where, (uint16_t)(FILE_BACKEND + ring->index));
            posted = true;
        }
    }
    ls_mutex_unlock(&ring->lock);
    if (!posted) free(statx_result);
    return posted;
}

static void file_cancel(ls_port *port, ls_file_op *op)
{
    const uint16_t where = atomic_load(&op->where);
    if (where < FILE_BACKEND) return;
    ls_ring *ring = atomic_load_explicit(&port->rings->at[where - FILE_BACKEND], memory_order_acquire);
    ls_mutex_lock(&ring->lock);
    struct io_uring_sqe *sqe = NULL;
    if (atomic_load(&op->where) == where) sqe = ls_ring_entry(ring, ls_ring_data(TAG_CANCEL, 0, 0));
    if (sqe != NULL) {
        sqe->opcode = IORING_OP_ASYNC_CANCEL;
        sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
        sqe->addr = ls_ring_file(op);
        ls_ring_submit(ring);
    }
    ls_mutex_unlock(&ring->lock);
}

static void fill_info(ls_file_info *info, const struct statx *st)
{
    const mode_t mode = st->stx_mode;
    info->type = S_ISREG(mode) ? LS_FILE_REGULAR : S_ISDIR(mode) ? LS_FILE_DIRECTORY : LS_FILE_OTHER;
    info->bytes = info->type == LS_FILE_REGULAR ? st->stx_size : 0;
    info->modified_s = st->stx_mtime.tv_sec;
    info->modified_ns = st->stx_mtime.tv_nsec;
    info->volume = makedev(st->stx_dev_major, st->stx_dev_minor);
    info->file = st->stx_ino;
}

bool ls_uring_file_ended(ls_file_op *op, int32_t result)
{
    struct statx *statx_result = op->action == DO_STAT || op->action == DO_STAT_OPEN ? op->bytes : NULL;
    const bool stop = atomic_load(&op->stop);
    bool ended = true;
    int64_t value = result;
    if (statx_result != NULL && result == 0) fill_info(&op->info, statx_result);
    free(statx_result);
    switch (-result) {
    case ECANCELED:
    case EINTR:
        ended = stop;
        value = LS_ECANCELED;
        break;
    case EAGAIN: ended = false; break;
    default:
        if (result < 0) value = ls_err_from_errno(-result);
        break;
    }
    if (op->action == DO_OPEN && result >= 0) {
        op->fd = result;
        value = 0;
    }
    if (ended) atomic_store_explicit(&op->op.result, value, memory_order_relaxed);
    atomic_store(&op->where, FILE_NOWHERE);
    return ended;
}

/* Take one completion. */
static void ended(ls_ring *ring, uint64_t data, int32_t result)
{
    if (ls_ring_tag(data) != TAG_FILE) return;
    ring->files--;
    (void)ls_uring_file_ended(ls_ring_file_of(data), result);
}

void ls_uring_files_end(ls_ring *ring)
{
    if (ring->files == 0) return;
    ls_mutex_lock(&ring->lock);
    while (ls_ring_queued(ring) > 0) { /* these were not submitted */
        const uint32_t tail = atomic_load_explicit(&ring->sq_tail, memory_order_relaxed) - 1;
        atomic_store_explicit(&ring->sq_tail, tail, memory_order_relaxed);
        ended(ring, ring->sqes[tail & ring->sq_mask].user_data, -ECANCELED);
    }
    struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_CANCEL, 0, 0));
    if (sqe != NULL) {
        sqe->opcode = IORING_OP_ASYNC_CANCEL;
        sqe->cancel_flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
    }
    while (ring->files > 0) {
        if (ls_ring_ready(ring) == 0) {
            /* A dead ring, and one whose calls fail, is checked at intervals. */
            const unsigned queued = ls_ring_publish(ring);
            if (ring->fd < 0 || ls_ring_enter(ring, queued, RING_RETIRING_MS) != 0) ls_clock_sleep_ms(1);
            continue;
        }
        const uint32_t head = atomic_load_explicit(ring->cq_khead, memory_order_relaxed);
        const struct io_uring_cqe cqe = ring->cqes[head & ring->cq_mask];
        atomic_store_explicit(ring->cq_khead, head + 1, memory_order_release);
        ended(ring, cqe.user_data, cqe.res);
    }
    ls_mutex_unlock(&ring->lock);
}

const ls_file_backend ls_uring_files = {.post = file_post, .cancel = file_cancel};
