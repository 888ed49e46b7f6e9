/* uring_ring.c - one io_uring: the arrays shared with the kernel, the provided buffers, and the test whether the
 * kernel supports all that is used. The calls are io_uring_setup(2), io_uring_enter(2) and io_uring_register(2); the
 * first manual page describes the layout of the shared memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/uring/uring_internal.h"

static int sys_enter(const ls_ring *ring, unsigned submit, unsigned wait, unsigned flags, const void *arg,
                     size_t bytes)
{
    const long n = syscall(SYS_io_uring_enter, ring->fd, submit, wait, flags, arg, bytes);
    return n < 0 ? -errno : (int)n;
}

static int sys_register(const ls_ring *ring, unsigned opcode, const void *arg, unsigned count)
{
    return (int)syscall(SYS_io_uring_register, ring->fd, opcode, arg, count);
}

/* ---- open and close -------------------------------------------------------------------------------------------- */

static size_t provided_bytes(void)
{
    return BUFFERS_MAX * sizeof(struct io_uring_buf);
}

static void *map_new(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int map_queues(ls_ring *ring, const struct io_uring_params *params)
{
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    const size_t sq = params->sq_off.array + params->sq_entries * sizeof(uint32_t);
    const size_t cq = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
    ring->map_bytes = sq > cq ? sq : cq;
    ring->sqes_bytes = params->sq_entries * sizeof(struct io_uring_sqe);
    char *map = mmap(NULL, ring->map_bytes, prot, flags, ring->fd, IORING_OFF_SQ_RING);
    if (map == MAP_FAILED) return -1;
    void *sqes = mmap(NULL, ring->sqes_bytes, prot, flags, ring->fd, IORING_OFF_SQES);
    if (sqes == MAP_FAILED) {
        munmap(map, ring->map_bytes);
        return -1;
    }
    ring->map = map;
    ring->map_sqes = ring->sqes = sqes;
    ring->sq_khead = (_Atomic uint32_t *)(void *)(map + params->sq_off.head);
    ring->sq_ktail = (_Atomic uint32_t *)(void *)(map + params->sq_off.tail);
    ring->sq_kflags = (_Atomic uint32_t *)(void *)(map + params->sq_off.flags);
    ring->sq_mask = params->sq_entries - 1;
    atomic_store(&ring->sq_tail, atomic_load(ring->sq_ktail));
    ring->cq_khead = (_Atomic uint32_t *)(void *)(map + params->cq_off.head);
    ring->cq_ktail = (_Atomic uint32_t *)(void *)(map + params->cq_off.tail);
    ring->cq_mask = params->cq_entries - 1;
    ring->cqes = (struct io_uring_cqe *)(void *)(map + params->cq_off.cqes);
    uint32_t *array = (uint32_t *)(void *)(map + params->sq_off.array);
    for (uint32_t i = 0; i < params->sq_entries; i++) array[i] = i; /* entries are used in order */
    return 0;
}

static int make_buffers(ls_ring *ring)
{
    if ((ring->provided = map_new(provided_bytes())) == NULL) return -1;
    if ((ring->bytes = map_new((size_t)BUFFERS_MAX * BUFFER_BYTES)) == NULL) goto fail_provided;
    const struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)ring->provided, .ring_entries = BUFFERS_MAX};
    if (sys_register(ring, IORING_REGISTER_PBUF_RING, &reg, 1) < 0) goto fail_bytes;
    ring->buffers_count = BUFFERS_FIRST;
    for (uint16_t id = 0; id < BUFFERS_FIRST; id++) ls_ring_give_buffer(ring, id);
    return 0;

fail_bytes:
    munmap(ring->bytes, (size_t)BUFFERS_MAX * BUFFER_BYTES);
fail_provided:
    munmap(ring->provided, provided_bytes());
    return -1;
}

int ls_ring_open(unsigned index, ls_ring **out)
{
    int err = LS_ENOMEM;
    struct io_uring_params params = {.flags =
                                         IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE,
                                     .cq_entries = RING_COMPLETIONS};
    errno = ENOMEM;
    ls_ring *ring = calloc(1, sizeof *ring);
    if (ring == NULL) return err;
    ring->index = index;
    if ((ring->sends = calloc(RING_ENTRIES, sizeof *ring->sends)) == NULL) goto fail_ring;
    if ((ring->buffers = calloc(BUFFERS_MAX, sizeof *ring->buffers)) == NULL) goto fail_sends;
    if ((err = ls_mutex_open(&ring->lock)) < 0) goto fail_buffers;
    if ((ring->fd = (int)syscall(SYS_io_uring_setup, RING_ENTRIES, &params)) < 0) goto fail_fd;
    if (map_queues(ring, &params) < 0) goto fail_map;
    if (make_buffers(ring) < 0) goto fail_queues;
    *out = ring;
    return LS_OK;

fail_queues:
    munmap(ring->map_sqes, ring->sqes_bytes);
    munmap(ring->map, ring->map_bytes);
fail_map:
    close(ring->fd);
fail_fd:
    err = ls_err_from_errno(errno);
    ls_mutex_close(&ring->lock);
fail_buffers:
    free(ring->buffers);
fail_sends:
    free(ring->sends);
fail_ring:
    free(ring);
    return err;
}

void ls_ring_close(ls_ring *ring)
{
    munmap(ring->map_sqes, ring->sqes_bytes);
    munmap(ring->map, ring->map_bytes);
    if (ring->fd >= 0) close(ring->fd);
    munmap(ring->bytes, (size_t)BUFFERS_MAX * BUFFER_BYTES);
    munmap(ring->provided, provided_bytes());
    ls_mutex_close(&ring->lock);
    free(ring->buffers);
    free(ring->sends);
    free(ring);
}

/* ---- submit and wait ------------------------------------------------------------------------------------------- */

/* true: an entry of this kind may wait for long. */
static bool may_wait(unsigned tag)
{
    return tag == TAG_RECEIVE || tag == TAG_STREAM || tag == TAG_READY || tag == TAG_FILE;
}

struct io_uring_sqe *ls_ring_entry(ls_ring *ring, uint64_t data)
{
    const unsigned tag = ls_ring_tag(data);
    if (ring->dead || (may_wait(tag) && ring->awaited >= RING_AWAITED_MAX)) return NULL;
    if (ls_ring_queued(ring) > ring->sq_mask) ls_ring_submit(ring);
    if (ls_ring_queued(ring) > ring->sq_mask) return NULL;
    if (tag != TAG_CANCEL) ring->awaited++; /* a cancellation that succeeds has no completion */
    if (tag == TAG_FILE) ring->files++;
    const uint32_t tail = atomic_load_explicit(&ring->sq_tail, memory_order_relaxed);
    struct io_uring_sqe *sqe = &ring->sqes[tail & ring->sq_mask];
    memset(sqe, 0, sizeof *sqe);
    sqe->user_data = data;
    /* The kernel sees the entry at the next call; until then the caller, who holds the lock, fills it in. */
    atomic_store_explicit(&ring->sq_tail, tail + 1, memory_order_relaxed);
    return sqe;
}

unsigned ls_ring_publish(ls_ring *ring)
{
    atomic_store_explicit(ring->sq_ktail, atomic_load_explicit(&ring->sq_tail, memory_order_relaxed),
                          memory_order_release);
    return ls_ring_queued(ring);
}

/* Entries that the kernel cannot take now (no memory) stay for the next call. */
void ls_ring_submit(ls_ring *ring)
{
    if (ring->dead) return;
    const unsigned queued = ls_ring_publish(ring);
    if (queued > 0) (void)sys_enter(ring, queued, 0, 0, NULL, 0);
}

int ls_ring_enter(ls_ring *ring, unsigned queued, int timeout_ms)
{
    const struct __kernel_timespec time = {.tv_sec = timeout_ms / 1000,
                                           .tv_nsec = (long long)(timeout_ms % 1000) * 1000000};
    const struct io_uring_getevents_arg arg = {.sigmask_sz = _NSIG / 8, .ts = (uintptr_t)&time};
    int n;
    if (timeout_ms <= 0)
        n = sys_enter(ring, queued, timeout_ms < 0, IORING_ENTER_GETEVENTS, NULL, _NSIG / 8);
    else
        n = sys_enter(ring, queued, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
    return n < 0 && n != -EINTR && n != -ETIME ? -n : 0;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

void ls_ring_give_buffer(ls_ring *ring, uint16_t id)
{
    struct io_uring_buf *entry = &ring->provided->bufs[ring->provided_tail & (BUFFERS_MAX - 1)];
    entry->addr = (uintptr_t)(ring->bytes + (size_t)id * BUFFER_BYTES);
    entry->len = BUFFER_BYTES;
    entry->bid = id;
    atomic_store_explicit((_Atomic uint16_t *)&ring->provided->tail, ++ring->provided_tail, memory_order_release);
}

void ls_ring_more_buffers(ls_ring *ring)
{
    const unsigned from = ring->buffers_count, to = from < BUFFERS_MAX ? 2 * from : from;
    for (unsigned id = from; id < to; id++) ls_ring_give_buffer(ring, (uint16_t)id);
    ring->buffers_count = (uint16_t)to;
}

/* ---- test ------------------------------------------------------------------------------------------------------- */

/* Wait at most a second for the next completion. false: none. */
static bool test_next(ls_ring *ring, struct io_uring_cqe *out)
{
    if (ls_ring_ready(ring) == 0 && ls_ring_enter(ring, ls_ring_publish(ring), 1000) != 0) return false;
    if (ls_ring_ready(ring) == 0) return false;
    const uint32_t head = atomic_load_explicit(ring->cq_khead, memory_order_relaxed);
    *out = ring->cqes[head & ring->cq_mask];
    atomic_store_explicit(ring->cq_khead, head + 1, memory_order_release);
    return true;
}

/* A receive into a provided buffer, as uring_sock.c posts it. */
static void test_receive(ls_ring *ring, int from, bool multishot)
{
    struct io_uring_sqe *sqe = ls_ring_entry(ring, 1);
    sqe->opcode = IORING_OP_RECV;
    sqe->fd = from;
    sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
    sqe->flags = IOSQE_BUFFER_SELECT;
    if (multishot)
        sqe->ioprio |= IORING_RECV_MULTISHOT;
    else
        sqe->len = BUFFER_BYTES;
    ls_ring_submit(ring);
}

/* NULL, or the name of the operation that does not work. */
static const char *test_with(ls_ring *ring, int sock, int peer)
{
    struct io_uring_cqe cqe;
    for (int i = 0; i < 4; i++) { /* two single receives, then one multishot receive */
        const bool multishot = i >= 2;
        if (i <= 2) test_receive(ring, sock, multishot);
        if (ls_ring_ready(ring) > 0) return multishot ? "multishot receives" : "a receive that waits";
        if (send(peer, "ring", 4, MSG_NOSIGNAL) != 4 || !test_next(ring, &cqe)) return "a receive";
        const unsigned id = cqe.flags >> IORING_CQE_BUFFER_SHIFT;
        if (cqe.user_data != 1 || cqe.res != 4 || !(cqe.flags & IORING_CQE_F_BUFFER) || id >= BUFFERS_FIRST ||
            memcmp(ring->bytes + (size_t)id * BUFFER_BYTES, "ring", 4) != 0)
            return "a receive into provided buffers";
        if (!(cqe.flags & IORING_CQE_F_MORE) != !multishot) return "multishot receives";
    }
    struct io_uring_sqe *sqe = ls_ring_entry(ring, 2);
    sqe->opcode = IORING_OP_ASYNC_CANCEL;
    sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
    sqe->addr = 1;
    if (!test_next(ring, &cqe) || cqe.user_data != 1 || cqe.res != -ECANCELED) return "a cancelled operation";
    sqe = ls_ring_entry(ring, 3);
    sqe->opcode = IORING_OP_SEND;
    sqe->fd = sock;
    sqe->addr = (uintptr_t) "back";
    sqe->len = 4;
    sqe->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    if (!test_next(ring, &cqe) || cqe.user_data != 3 || cqe.res != 4) return "a send";
    return NULL;
}

int ls_ring_test(const char **failed)
{
    ls_ring *ring;
    int fds[2];
    *failed = "io_uring_setup";
    if (ls_ring_open(0, &ring) < 0) return errno;
    *failed = "socketpair";
    int error = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0) {
        error = errno;
    } else {
        *failed = test_with(ring, fds[0], fds[1]);
        if (*failed != NULL) error = ENOTSUP;
        close(fds[0]);
        close(fds[1]);
    }
    ls_ring_close(ring);
    return error;
}
