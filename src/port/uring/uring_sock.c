/* uring_sock.c - receives and sends of one socket through a ring: see uring_internal.h.
 *
 * A receive that has to wait is an entry in the ring of the posting thread. Data that arrive after the receive was
 * cancelled, or before one is posted, are kept: bytes in provided buffers (the receive backlog of the socket),
 * then the end of the stream or an error. All this is guarded by the lock of the ring on which the socket was last
 * armed (sock->ring).
 *
 *     something is kept  =>  RX_READY is set, or the thread that posts a receive is about to check
 *     RX_WAIT is set     =>  RX_RING is set, or the socket is in the epoll set
 *
 * An entry can end without a result for the socket: the ring had no buffer, the thread that submitted it has ended, or
 * it was cancelled in favour of a large receive. Then the socket itself is read, and armed again if it has no data;
 * the backlog was taken before. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "port/uring/uring_internal.h"

static ls_ring *ring_of(const ls_sock *sock)
{
    return atomic_load_explicit(&sock->port->rings->at[atomic_load_explicit(&sock->ring, memory_order_relaxed) - 1],
                                memory_order_relaxed);
}

/* ---- the receive backlog; the lock of the ring is held ---------------------------------------------------------- */

static void note_backlog(ls_sock *sock)
{
    atomic_store_explicit(&sock->has_backlog, sock->backlog_count > 0 || sock->ring_error != 0, memory_order_relaxed);
}

static void backlog_put(ls_ring *ring, ls_sock *sock, uint16_t id, uint16_t bytes)
{
    ring->buffers[id] = (ring_buffer){.next = BACKLOG_NONE, .end = bytes};
    if (sock->backlog_count++ == 0)
        sock->backlog_first = id;
    else
        ring->buffers[sock->backlog_last].next = id;
    sock->backlog_last = id;
}

static void backlog_drop_first(ls_ring *ring, ls_sock *sock)
{
    const uint16_t id = sock->backlog_first;
    sock->backlog_first = ring->buffers[id].next;
    sock->backlog_count--;
    ls_ring_give_buffer(ring, id);
}

/* Move bytes of the backlog, which is not empty, into the receive. Returns their number or LS_ENOMEM. */
static int64_t backlog_take(ls_thread_ctx *ctx, ls_ring *ring, ls_sock *sock, ls_op *op)
{
    if (op->len == 0) return 0; /* a readiness probe: data can be received */
    char *to = op->recv.ptr;
    if (to == NULL && op->kind != KIND_DISCARD) {
        ls_block *block = ls_block_get(ctx->pool, op->len);
        if (block == NULL) return LS_ENOMEM;
        op->recv.block = block;
        to = block->data;
    }
    uint32_t n = 0;
    while (n < op->len && sock->backlog_count > 0) {
        ring_buffer *buffer = &ring->buffers[sock->backlog_first];
        uint32_t bytes = (uint32_t)(buffer->end - buffer->from);
        if (bytes > op->len - n) bytes = op->len - n;
        if (to != NULL) memcpy(to + n, ring->bytes + (size_t)sock->backlog_first * BUFFER_BYTES + buffer->from, bytes);
        n += bytes;
        buffer->from = (uint16_t)(buffer->from + bytes);
        if (buffer->from == buffer->end) backlog_drop_first(ring, sock);
    }
    return n;
}

/* The result of a receive from what is kept. LS_EAGAIN: nothing. */
static int64_t take_received_bytes(ls_thread_ctx *ctx, ls_ring *ring, ls_sock *sock, ls_op *op)
{
    int64_t result = LS_EAGAIN;
    if (sock->backlog_count > 0) {
        result = backlog_take(ctx, ring, sock, op);
    } else if (sock->ring_error != 0) {
        result = sock->ring_error;
        sock->ring_error = 0;
    } else if (sock->ring_ended) {
        result = 0;
    }
    note_backlog(sock);
    return result;
}

/* ---- receive ---------------------------------------------------------------------------------------------------- */

static bool is_stream(ls_sock *sock)
{
    int type = 0;
    if (sock->stream == STREAM_UNKNOWN)
        sock->stream = getsockopt(sock->base.fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) == 0 &&
                               type == SOCK_STREAM
                           ? STREAM
                           : STREAM_NOT;
    return sock->stream == STREAM;
}

bool ls_uring_holds(const ls_port *port, ls_fd fd)
{
    return fd < LS_NOTIFY_FD_MAX && (atomic_load(&port->rings->armed[fd / 64]) >> (fd % 64) & 1);
}

static unsigned tag_for(ls_sock *sock, const ls_op *op)
{
    if (op->len == 0 || op->len > LS_BLOCK_SMALL) return TAG_READY;
    if (sock->waits < WAITS_ONE_BY_ONE) {
        sock->waits++;
        return TAG_RECEIVE;
    }
    return ls_epoll_report_end(sock) ? TAG_STREAM : TAG_RECEIVE; /* a multishot receive may miss the end */
}

static void fill_receive(struct io_uring_sqe *sqe, const ls_sock *sock, const ls_op *op, unsigned tag)
{
    sqe->fd = sock->base.fd;
    if (tag == TAG_READY) {
        sqe->opcode = IORING_OP_POLL_ADD;
        sqe->poll32_events = POLLIN | POLLRDHUP;
        return;
    }
    sqe->opcode = IORING_OP_RECV;
    sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
    sqe->flags = IOSQE_BUFFER_SELECT;
    if (tag == TAG_STREAM)
        sqe->ioprio |= IORING_RECV_MULTISHOT;
    else
        sqe->len = op->len < BUFFER_BYTES ? op->len : BUFFER_BYTES;
}

/* Cancel the armed receive. false: no memory, it continues. The lock of the ring is held. */
static bool cancel(ls_ring *ring, ls_sock *sock, uint32_t generation)
{
    struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_CANCEL, 0, 0));
    if (sqe == NULL) return false;
    sqe->opcode = IORING_OP_ASYNC_CANCEL;
    sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
    sqe->addr = ls_ring_data(sock->armed_tag, generation, sock->number);
    sock->recv_cancelled = true;
    return true;
}

/* Cancel a multishot receive in favour of a large receive, which receives into the memory of the operation. */
static void cancel_multishot(ls_sock *sock)
{
    ls_ring *ring = ring_of(sock);
    ls_mutex_lock(&ring->lock);
    const uint64_t word = atomic_load(&sock->word);
    if ((word & RX_RING) && sock->armed_tag == TAG_STREAM && !sock->recv_cancelled) {
        sock->waits = 0;
        if (cancel(ring, sock, WORD_GENERATION(word))) ls_ring_submit(ring);
    }
    ls_mutex_unlock(&ring->lock);
}

/* The receive has to wait: arm it on the ring. The ring carries out a small receive of a stream and polls for a large
 * one. false: the receive has to wait at the epoll set. */
bool ls_uring_arm(ls_thread_ctx *ctx, ls_sock *sock, const ls_op *op)
{
    ls_ring *ring = ctx->ring;
    if (atomic_load_explicit(&sock->word, memory_order_relaxed) & RX_RING) {
        if (op->len == 0 || op->len > LS_BLOCK_SMALL) cancel_multishot(sock);
        return true;
    }
    /* Not for datagrams: the receive of the next batch is posted before the current one is handled, for any other
     * thread, and a ring is tied to the thread that posts. */
    if (ring == NULL || op->kind != KIND_RECV || !is_stream(sock)) return false;
    /* A registration for notifications, possibly of a previous socket of this descriptor: the epoll set decides. */
    if (ls_watchers_hold(sock->port->watchers, sock->base.fd)) return false;
    unsigned tag = tag_for(sock, op);
    bool armed = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx) {
        const uint32_t generation = WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(tag, generation, sock->number));
        if (sqe != NULL) {
            assert(sock->backlog_count == 0);
            if (atomic_exchange_explicit(&sock->ring, (uint16_t)(ring->index + 1), memory_order_relaxed) == 0)
                ls_ring_mark(sock->port->rings, sock->base.fd, true);
            const uint64_t old = atomic_fetch_or(&sock->word, RX_RING);
            if (tag == TAG_STREAM && (old & ENDED)) { /* the epoll set does not report the end again */
                tag = TAG_RECEIVE;
                sqe->user_data = ls_ring_data(tag, generation, sock->number);
            }
            fill_receive(sqe, sock, op, tag);
            sock->armed_tag = (uint8_t)tag;
            sock->armed_epoch = ring->epoch;
            sock->recv_cancelled = false;
            armed = true;
        }
    }
    ls_mutex_unlock(&ring->lock);
    return armed;
}

/* The epoll set has reported the end, or data (since a send had to wait): cancel the multishot receive, which may have
 * missed it; when that has ended the socket itself is read. The socket may be closed meanwhile and its slot reused:
 * only its atomics are read until the lock of its ring is held and the word proves that it is the same socket. A
 * receive that was armed in another ring meanwhile is no multishot receive, because ENDED was set, and detects the
 * end. */
void ls_uring_cancel_recv(ls_port *port, ls_sock *sock, uint32_t generation)
{
    const unsigned index = atomic_load_explicit(&sock->ring, memory_order_relaxed);
    if (index == 0) return;
    ls_ring *ring = atomic_load_explicit(&port->rings->at[index - 1], memory_order_relaxed);
    ls_mutex_lock(&ring->lock);
    const uint64_t word = atomic_load(&sock->word);
    if (WORD_GENERATION(word) == generation && (word & RX_RING) &&
        atomic_load_explicit(&sock->ring, memory_order_relaxed) == index && sock->armed_tag == TAG_STREAM &&
        !sock->recv_cancelled) {
        if (cancel(ring, sock, generation))
            ls_ring_submit(ring);
        else if (!ring->dead) /* a dead ring ends it anyway */
            ls_epoll_report_again(sock, generation);
    }
    ls_mutex_unlock(&ring->lock);
}

/* The descriptor is about to be closed: remove all of this socket from the ring. */
void ls_uring_disarm(ls_sock *sock)
{
    ls_ring *ring = ring_of(sock);
    ls_ring_mark(sock->port->rings, sock->base.fd, false);
    ls_mutex_lock(&ring->lock);
    while (sock->backlog_count > 0) backlog_drop_first(ring, sock);
    const uint64_t word = atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    if ((word & RX_RING) && ring->dead) {
        (void)shutdown(sock->base.fd,
                       SHUT_RDWR); /* the receive ends when the ring is closed; the peer gets the FIN now */
    } else if (word & RX_RING) {
        if (!sock->recv_cancelled) (void)cancel(ring, sock, WORD_GENERATION(word));
        /* Before the descriptor can be reused, and so that the peer gets the FIN now. */
        ls_ring_submit(ring);
    }
    ls_mutex_unlock(&ring->lock);
}

int64_t ls_uring_receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    ls_ring *ring = ring_of(sock);
    ls_mutex_lock(&ring->lock);
    int64_t result = take_received_bytes(ctx, ring, sock, op);
    if (result == LS_EAGAIN && !(atomic_load(&sock->word) & RX_RING)) result = TRY_SOCKET;
    ls_mutex_unlock(&ring->lock);
    return result;
}

typedef struct reaped { /* a completion to be finished without the lock */
    ls_sock *sock;      /* NULL: an operation on a file */
    ls_op *op;
    int32_t sent; /* the result of a send */
    bool is_send;
} reaped;

/* Keep the result of a receive. false: it does not concern the socket. */
static bool keep_result(ls_ring *ring, ls_sock *sock, const struct io_uring_cqe *cqe)
{
    const bool has_buffer = cqe->flags & IORING_CQE_F_BUFFER;
    const uint16_t id = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
    bool concerns_socket = true;
    if (cqe->res > 0 && has_buffer) {
        backlog_put(ring, sock, id, (uint16_t)cqe->res);
        note_backlog(sock);
        return true;
    }
    if (has_buffer) ls_ring_give_buffer(ring, id);
    switch (-cqe->res) {
    case 0: sock->ring_ended = true; break;
    case ENOBUFS:
        ls_ring_more_buffers(ring);
        concerns_socket = false;
        break;
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case ECANCELED: concerns_socket = false; break;
    default: sock->ring_error = ls_err_from_errno(-cqe->res); break;
    }
    if (concerns_socket) note_backlog(sock);
    return concerns_socket;
}

/* true: the multishot receive should end, because its backlog is full, or because its thread no longer owns the ring:
 * the kernel would interrupt that thread for each piece. */
static bool should_end(const ls_ring *ring, const ls_sock *sock)
{
    const bool orphaned = atomic_load_explicit(&ring->owner, memory_order_relaxed) == NULL;
    return !sock->recv_cancelled &&
           (sock->backlog_count >= BACKLOG_MAX || sock->armed_epoch != ring->epoch || orphaned);
}

/* The completion of a receive or of a poll. true: *packet is a packet; or later->op is set, and the
 * caller holds RX_BUSY. */
static bool take_received(ls_thread_ctx *ctx, ls_ring *ring, const struct io_uring_cqe *cqe, ls_packet *packet,
                          reaped *later)
{
    ls_sock *sock = ls_slots_at(ctx->port->socks, (uint32_t)cqe->user_data & ((1u << TAG_SHIFT) - 1));
    const uint32_t generation = (uint32_t)(cqe->user_data >> 32);
    const bool last = !(cqe->flags & IORING_CQE_F_MORE);
    uint64_t old = atomic_load(&sock->word), new;
    if (WORD_GENERATION(old) != generation || !(old & RX_RING)) {
        if (cqe->flags & IORING_CQE_F_BUFFER)
            ls_ring_give_buffer(ring, (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT)); /* the socket was closed */
        return false;
    }
    /* While RX_RING is set a close waits for the lock (ls_uring_disarm); afterwards RX_BUSY delays it, or this
     * function does not use the socket any more. */
    const bool stored = ls_ring_tag(cqe->user_data) != TAG_READY && keep_result(ring, sock, cqe);
    if (!last && should_end(ring, sock) && cancel(ring, sock, generation)) ls_ring_submit(ring);
    do {
        if (!(old & RX_WAIT))
            new = (last ? old & ~(uint64_t)RX_RING : old) | RX_READY;
        else if (stored)
            new = old & ~(uint64_t)RX_WAIT;
        else
            new = (old & ~(uint64_t)(RX_WAIT | RX_RING)) | RX_BUSY;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    if (!(old & RX_WAIT)) return false;

    ls_op *op = atomic_load_explicit(&sock->rx, memory_order_relaxed);
    if (!stored) {
        later->sock = sock;
        later->op = op;
        return true;
    }
    const int64_t result = take_received_bytes(ctx, ring, sock, op);
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    ls_counter_add(&ctx->stats.recv_queued, 1);
    *packet = (ls_packet){.key = sock->base.key, .op = op, .result = result};
    if (result <= 0 || atomic_load_explicit(&sock->has_backlog, memory_order_relaxed))
        atomic_fetch_or(&sock->word, RX_READY);
    if (last) atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    return true;
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* Add the send to the ring, to be submitted with others. false: the caller must send now. */
bool ls_uring_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    ls_ring *ring = ctx->ring;
    if (ring == NULL || atomic_load_explicit(&ring->batch, memory_order_relaxed) < 2)
        return false; /* no other entry to share the call with */
    if (op->kind != KIND_SEND || op->send.file != NULL || op->count == 0 || op->count > SEND_SLICES_MAX) return false;
    bool queued = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx) {
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_SEND, 0, sock->number));
        if (sqe != NULL) {
            sqe->fd = sock->base.fd;
            sqe->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | (sock->corked ? MSG_MORE : 0);
            if (op->count == 1) {
                const size_t len = op->send.slices->len;
                sqe->opcode = IORING_OP_SEND;
                sqe->addr = (uintptr_t)op->send.slices->ptr;
                sqe->len = len < 1u << 30 ? (uint32_t)len : 1u << 30;
            } else {
                send_room *room =
                    &ring->sends[(atomic_load_explicit(&ring->sq_tail, memory_order_relaxed) - 1) & ring->sq_mask];
                for (unsigned i = 0; i < op->count; i++)
                    room->iov[i] = (struct iovec){(char *)(uintptr_t)op->send.slices[i].ptr, op->send.slices[i].len};
                room->message = (struct msghdr){.msg_iov = room->iov, .msg_iovlen = op->count};
                sqe->opcode = IORING_OP_SENDMSG;
                sqe->addr = (uintptr_t)&room->message;
                sqe->len = 1;
            }
            atomic_store_explicit(&sock->tx, op, memory_order_relaxed);
            atomic_fetch_or(&sock->word, TX_BUSY);
            queued = true;
        }
    }
    ls_mutex_unlock(&ring->lock);
    return queued;
}

/* ---- completions ------------------------------------------------------------------------------------------------ */

/* Bytes or an error of the socket. 0 for errors that do not concern the socket: the send is tried again. */
static int64_t sent_of(int32_t result)
{
    switch (-result) {
    case EAGAIN:
    case EINTR:
    case ECANCELED: /* the thread that submitted it has ended */
    case ENOMEM: return 0;
    default: return result < 0 ? ls_err_from_errno(-result) : result;
    }
}

/* Finish a completion without the lock. Returns 0 or 1 packets. */
static int finish(ls_thread_ctx *ctx, const reaped *r, ls_packet *packet)
{
    void *key = r->op->key;
    bool complete;
    if (r->sock == NULL) {
        const int err = ls_files_submit(ctx->port->base.files, (ls_file_op *)(void *)r->op);
        complete = err < 0;
        if (complete) atomic_store_explicit(&r->op->result, err, memory_order_relaxed);
    } else if (r->is_send) {
        complete = ls_epoll_transmitted(r->sock, r->op, sent_of(r->sent));
        if (complete) ls_counter_add(&ctx->stats.send_queued, 1);
    } else {
        complete = ls_epoll_receive(ctx, r->sock, r->op);
        if (complete) ls_counter_add(&ctx->stats.recv_queued, 1);
    }
    if (!complete) return 0;
    *packet =
        (ls_packet){.key = key, .op = r->op, .result = atomic_load_explicit(&r->op->result, memory_order_relaxed)};
    return 1;
}

enum taken { NOTHING, PACKET, LATER };

/* Take one completion; the lock of the ring is held. */
static enum taken take_completion(ls_thread_ctx *ctx, ls_ring *ring, const struct io_uring_cqe *cqe, ls_packet *packet,
                                  reaped *later, bool *woken)
{
    const unsigned tag = ls_ring_tag(cqe->user_data);
    if (!(cqe->flags & IORING_CQE_F_MORE) && tag != TAG_CANCEL) ring->awaited--;
    *later = (reaped){.op = NULL};
    switch (tag) {
    case TAG_RECEIVE:
    case TAG_STREAM:
    case TAG_READY:
        if (!take_received(ctx, ring, cqe, packet, later)) return NOTHING;
        return later->op != NULL ? LATER : PACKET;
    case TAG_SEND: {
        ls_sock *sock = ls_slots_at(ctx->port->socks, (uint32_t)cqe->user_data & ((1u << TAG_SHIFT) - 1));
        assert(sock != NULL); /* TX_BUSY delays its close */
        *later = (reaped){sock, atomic_load_explicit(&sock->tx, memory_order_relaxed), cqe->res, true};
        return LATER;
    }
    case TAG_FILE: {
        ls_file_op *file = ls_ring_file_of(cqe->user_data);
        ring->files--;
        later->op = &file->op;
        if (!ls_uring_file_ended(file, cqe->res)) return LATER;
        *packet = (ls_packet){.key = file->op.key, .op = &file->op, .result = atomic_load(&file->op.result)};
        return PACKET;
    }
    case TAG_WAKE: *woken = true; return NOTHING;
    case TAG_EPOLL:
        atomic_store_explicit(&ring->epoll_events, true, memory_order_relaxed);
        if (!(cqe->flags & IORING_CQE_F_MORE) && (uint32_t)(cqe->user_data >> 32) == ring->epoch)
            ring->polls_epoll = false;
        return NOTHING;
    default: return NOTHING; /* TAG_CANCEL: the entry had ended already */
    }
}

/* Of a dead ring: close it once the kernel holds no memory of file operations, which cancels its other entries; it is
 * retired when the last completion was taken. */
static void retire(ls_thread_ctx *ctx, ls_ring *ring)
{
    if (ring->files == 0 && ring->fd >= 0) {
        close(ring->fd);
        ring->fd = -1;
    }
    if (ring->awaited == 0 && !ring->retired) {
        ring->retired = true;
        atomic_fetch_sub(&ctx->port->rings->retiring, 1);
    }
}

void ls_uring_abort_unsubmitted(ls_thread_ctx *ctx, ls_ring *ring)
{
    bool more = true, woken;
    while (more) {
        ls_packet packet;
        reaped later;
        enum taken outcome = NOTHING;
        ls_mutex_lock(&ring->lock);
        more = ls_ring_queued(ring) > 0;
        if (more) { /* newest first; a socket or a file has at most one of them */
            const uint32_t tail = atomic_load_explicit(&ring->sq_tail, memory_order_relaxed) - 1;
            const struct io_uring_cqe cqe = {.user_data = ring->sqes[tail & ring->sq_mask].user_data,
                                             .res = -ECANCELED};
            atomic_store_explicit(&ring->sq_tail, tail, memory_order_relaxed);
            outcome = take_completion(ctx, ring, &cqe, &packet, &later, &woken);
        } else {
            retire(ctx, ring);
        }
        ls_mutex_unlock(&ring->lock);
        if (outcome == LATER && finish(ctx, &later, &packet) == 0) outcome = NOTHING;
        if (outcome != NOTHING) ls_port_enqueue(ctx->port, packet.op); /* its key and result are set */
    }
}

int ls_uring_reap(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max, bool *woken)
{
    reaped later[LS_WAIT_PACKETS_MAX];
    int n = 0, left = 0;
    if (max > LS_WAIT_PACKETS_MAX) max = LS_WAIT_PACKETS_MAX;
    ls_mutex_lock(&ring->lock);
    uint32_t head = atomic_load_explicit(ring->cq_khead, memory_order_relaxed);
    const uint32_t tail = atomic_load_explicit(ring->cq_ktail, memory_order_acquire), from = head;
    const ls_thread_ctx *owner = atomic_load_explicit(&ring->owner, memory_order_relaxed);
    for (; head != tail && n + left < max; head++) {
        const struct io_uring_cqe cqe = ring->cqes[head & ring->cq_mask];
        const unsigned tag = ls_ring_tag(cqe.user_data);
        /* These are for the owner, which may be about to sleep: it must find them. */
        if ((tag == TAG_WAKE || tag == TAG_EPOLL) && owner != NULL && owner != ctx) break;
        switch (take_completion(ctx, ring, &cqe, &packets[n], &later[left], woken)) {
        case PACKET: n++; break;
        case LATER: left++; break;
        default: break;
        }
    }
    if (head != from) atomic_store_explicit(ring->cq_khead, head, memory_order_release);
    if (ring->dead) retire(ctx, ring);
    ls_mutex_unlock(&ring->lock);
    for (int i = 0; i < left; i++) n += finish(ctx, &later[i], &packets[n]);
    return n;
}
