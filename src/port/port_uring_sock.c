/* port_uring_sock.c - receives and sends of one socket through a ring: see uring_posix.h.
 *
 * A receive that has to wait is an entry of the ring of whoever posts it. What came although its operation was cancelled
 * meanwhile is kept: bytes in a buffer of the ring (the socket's stash), the peer's end, an error. All this is under
 * the lock of the ring that the socket was last armed on (sock->ring).
 *
 *     something is kept  =>  RX_READY is set, or whoever posts is about to look
 *     RX_WAIT is set     =>  RX_RING is set, or the socket is in the epoll set
 *
 * An entry can end without saying anything about the socket: the ring had no buffer, the thread that submitted it has
 * ended. Then the socket itself is asked, and armed again if it has nothing. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "port/uring_posix.h"

static ls_ring *ring_of(const ls_sock *sock)
{
    return atomic_load_explicit(&sock->port->rings->at[atomic_load_explicit(&sock->ring, memory_order_relaxed) - 1],
                                memory_order_relaxed);
}

/* Bytes for the receive from the stash, which is not empty, or LS_ENOMEM. The ring's lock is held. */
static int64_t stash_take(ls_seat *seat, ls_ring *ring, ls_sock *sock, ls_op *op)
{
    if (op->len == 0) return 0; /* asked only whether something is there, and it is */
    char *to = op->recv.ptr;
    if (to == NULL) {
        ls_block *block = ls_block_get(seat->pool, op->len);
        if (block == NULL) return LS_ENOMEM;
        op->recv.block = block;
        to = block->data;
    }
    const uint16_t id = sock->stash;
    uint32_t bytes = (uint32_t)(sock->stash_end - sock->stash_from);
    if (bytes > op->len) bytes = op->len;
    memcpy(to, ring->bytes + (size_t)id * BUFFER_BYTES + sock->stash_from, bytes);
    sock->stash_from = (uint16_t)(sock->stash_from + bytes);
    if (sock->stash_from == sock->stash_end) {
        sock->stash = STASH_NONE;
        atomic_store_explicit(&sock->kept, false, memory_order_relaxed);
        ls_ring_give_buffer(ring, id);
    }
    return bytes;
}

/* ---- receive ------------------------------------------------------------------------------------------------------ */

static bool is_stream(ls_sock *sock)
{
    int type = 0;
    if (sock->stream == STREAM_UNKNOWN)
        sock->stream =
            getsockopt(sock->fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) == 0 && type == SOCK_STREAM
                ? STREAM
                : STREAM_NOT;
    return sock->stream == STREAM;
}

bool ls_uring_holds(const ls_port *port, ls_fd fd)
{
    return fd < LS_NOTIFY_FD_MAX && (atomic_load(&port->rings->armed[fd / 64]) >> (fd % 64) & 1);
}

/* The receive has to wait: have the ring do it. A small one of a stream is done by the ring; for a large one the ring says
 * when there is something. false: it has to be done with epoll. */
bool ls_uring_arm(ls_seat *seat, ls_sock *sock, const ls_op *op)
{
    ls_ring *ring = seat->ring;
    /* The next batch of datagrams is asked for before one is handled, so that another thread may have it: any thread. */
    if (ring == NULL || op->kind != KIND_RECV || !is_stream(sock)) return false;
    /* Registered for notifications? Perhaps by who had this descriptor before; the epoll set knows. */
    if (ls_notices_hold(sock->port->notices, sock->fd)) return false;
    const bool receives = op->len > 0 && op->len <= LS_BLOCK_SMALL;
    bool armed = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == seat) {
        const uint32_t generation = WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
        struct io_uring_sqe *sqe =
            ls_ring_entry(ring, ls_ring_data(receives ? TAG_RECEIVE : TAG_READY, generation, sock->number));
        if (sqe != NULL) {
            sqe->fd = sock->fd;
            if (receives) {
                sqe->opcode = IORING_OP_RECV;
                sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
                sqe->flags = IOSQE_BUFFER_SELECT;
                sqe->len = op->len < BUFFER_BYTES ? op->len : BUFFER_BYTES;
            } else {
                sqe->opcode = IORING_OP_POLL_ADD;
                sqe->poll32_events = POLLIN | POLLRDHUP;
            }
            assert(sock->stash == STASH_NONE);
            sock->armed_tag = receives ? TAG_RECEIVE : TAG_READY;
            if (atomic_exchange_explicit(&sock->ring, (uint16_t)(ring->index + 1), memory_order_relaxed) == 0)
                ls_ring_mark(sock->port->rings, sock->fd, true);
            atomic_fetch_or(&sock->word, RX_RING);
            armed = true;
        }
    }
    ls_mutex_unlock(&ring->lock);
    return armed;
}

/* The descriptor is about to be closed: nothing of this socket may be left in the ring. */
void ls_uring_disarm(ls_sock *sock)
{
    ls_ring *ring = ring_of(sock);
    ls_ring_mark(sock->port->rings, sock->fd, false);
    ls_mutex_lock(&ring->lock);
    if (sock->stash != STASH_NONE) ls_ring_give_buffer(ring, sock->stash);
    sock->stash = STASH_NONE;
    const uint64_t word = atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    struct io_uring_sqe *sqe = NULL;
    if (word & RX_RING) sqe = ls_ring_entry(ring, ls_ring_data(TAG_CANCEL, 0, 0));
    if (sqe != NULL) {
        sqe->opcode = IORING_OP_ASYNC_CANCEL;
        sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
        sqe->addr = ls_ring_data(sock->armed_tag, WORD_GENERATION(word), sock->number);
    }
    /* Before the descriptor's number can be another's, and so that the peer hears of the end now. */
    if (word & RX_RING) ls_ring_submit(ring);
    ls_mutex_unlock(&ring->lock);
}

int64_t ls_uring_receive(ls_seat *seat, ls_sock *sock, ls_op *op)
{
    ls_ring *ring = ring_of(sock);
    int64_t result = LS_EAGAIN;
    ls_mutex_lock(&ring->lock);
    if (sock->stash != STASH_NONE) {
        result = stash_take(seat, ring, sock, op);
    } else if (sock->ring_error != 0) {
        result = sock->ring_error;
        sock->ring_error = 0;
        atomic_store_explicit(&sock->kept, false, memory_order_relaxed);
    } else if (sock->ring_ended) {
        result = 0;
    } else if (!(atomic_load(&sock->word) & RX_RING)) {
        result = ASK_SOCKET;
    }
    ls_mutex_unlock(&ring->lock);
    return result;
}

typedef struct reaped { /* what is to be done when the lock has been given back */
    ls_sock *sock;      /* NULL: an operation on a file */
    ls_op *op;
    int32_t sent; /* of a send: what the system said */
    bool is_send;
} reaped;

/* Keep what a receive brought. false: nothing that says anything about the socket. */
static bool keep(ls_ring *ring, ls_sock *sock, const struct io_uring_cqe *cqe)
{
    const bool has_buffer = cqe->flags & IORING_CQE_F_BUFFER;
    const uint16_t id = (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
    if (cqe->res > 0 && has_buffer) {
        sock->stash = id;
        sock->stash_from = 0;
        sock->stash_end = (uint16_t)cqe->res;
        atomic_store_explicit(&sock->kept, true, memory_order_relaxed);
        return true;
    }
    if (has_buffer) ls_ring_give_buffer(ring, id);
    switch (-cqe->res) {
    case 0: sock->ring_ended = true; break;
    case ENOBUFS: ls_ring_more_buffers(ring); return false;
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case ECANCELED: return false;
    default: sock->ring_error = ls_err_from_errno(-cqe->res); break;
    }
    atomic_store_explicit(&sock->kept, true, memory_order_relaxed);
    return true;
}

/* What is kept, as the result of the operation that waits. Then the next receive is tried first if something is left. */
static int64_t hand_over(ls_seat *seat, ls_ring *ring, ls_sock *sock, ls_op *op)
{
    int64_t result = 0;
    if (sock->stash != STASH_NONE) {
        result = stash_take(seat, ring, sock, op);
    } else if (sock->ring_error != 0) {
        result = sock->ring_error;
        sock->ring_error = 0;
        atomic_store_explicit(&sock->kept, false, memory_order_relaxed);
    }
    return result;
}

/* The completion of a receive, or of what says that there is something. True: *packet is one; or later->op is set, and
 * RX_BUSY is ours now. */
static bool take_received(ls_seat *seat, ls_ring *ring, const struct io_uring_cqe *cqe, ls_packet *packet,
                          reaped *later)
{
    ls_sock *sock = ls_slots_at(seat->port->socks, (uint32_t)cqe->user_data & ((1u << TAG_SHIFT) - 1));
    uint64_t old = atomic_load(&sock->word), new;
    if (WORD_GENERATION(old) != (uint32_t)(cqe->user_data >> 32) || !(old & RX_RING)) {
        if (cqe->flags & IORING_CQE_F_BUFFER)
            ls_ring_give_buffer(ring, (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT)); /* closed meanwhile */
        return false;
    }
    /* As long as RX_RING is set a close waits for the lock (ls_uring_disarm); afterwards RX_BUSY holds it up, or nothing
     * is done here any more. */
    const bool kept = ls_ring_tag(cqe->user_data) == TAG_RECEIVE && keep(ring, sock, cqe);
    do {
        if (!(old & RX_WAIT))
            new = (old & ~(uint64_t)RX_RING) | RX_READY;
        else if (kept)
            new = old & ~(uint64_t)RX_WAIT;
        else
            new = (old & ~(uint64_t)(RX_WAIT | RX_RING)) | RX_BUSY;
    } while (!atomic_compare_exchange_weak(&sock->word, &old, new));
    if (!(old & RX_WAIT)) return false;

    ls_op *op = atomic_load_explicit(&sock->rx, memory_order_relaxed);
    if (!kept) {
        later->sock = sock;
        later->op = op;
        return true;
    }
    const int64_t result = hand_over(seat, ring, sock, op);
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    ls_epoll_count(&seat->stats.recv_queued);
    *packet = (ls_packet){.key = sock->key, .op = op, .result = result};
    if (result <= 0 || sock->stash != STASH_NONE) atomic_fetch_or(&sock->word, RX_READY);
    atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    return true;
}

/* ---- send ---------------------------------------------------------------------------------------------------------- */

/* Leave the send to the ring, with others. false: it is to be done here and now. */
bool ls_uring_send(ls_seat *seat, ls_sock *sock, ls_op *op)
{
    ls_ring *ring = seat->ring;
    if (ring == NULL || atomic_load_explicit(&ring->batch, memory_order_relaxed) < 2)
        return false; /* nothing to share a call with */
    if (op->kind != KIND_SEND || op->send.file != NULL || op->count == 0 || op->count > SEND_SLICES_MAX) return false;
    bool queued = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == seat) {
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(TAG_SEND, 0, sock->number));
        if (sqe != NULL) {
            sqe->fd = sock->fd;
            sqe->msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL | (sock->ends ? MSG_MORE : 0);
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

/* ---- completions ---------------------------------------------------------------------------------------------------- */

/* Bytes, or an error that is one. The others say nothing about the socket: it is asked again. */
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

/* Without the lock. 0 packets or 1. */
static int finish(ls_seat *seat, const reaped *r, ls_packet *packet)
{
    void *key = r->op->key;
    bool complete;
    if (r->sock == NULL) {
        const int err = ls_files_submit(seat->port->files, (ls_file_op *)(void *)r->op);
        complete = err < 0;
        if (complete) atomic_store_explicit(&r->op->result, err, memory_order_relaxed);
    } else if (r->is_send) {
        complete = ls_epoll_transmitted(r->sock, r->op, sent_of(r->sent));
        if (complete) ls_epoll_count(&seat->stats.send_queued);
    } else {
        complete = ls_epoll_receive(seat, r->sock, r->op);
        if (complete) ls_epoll_count(&seat->stats.recv_queued);
    }
    if (!complete) return 0;
    *packet =
        (ls_packet){.key = key, .op = r->op, .result = atomic_load_explicit(&r->op->result, memory_order_relaxed)};
    return 1;
}

int ls_uring_reap(ls_seat *seat, ls_ring *ring, ls_packet *packets, int max, bool *woken)
{
    reaped later[LS_WAIT_PACKETS_MAX];
    int n = 0, left = 0;
    if (max > LS_WAIT_PACKETS_MAX) max = LS_WAIT_PACKETS_MAX;
    ls_mutex_lock(&ring->lock);
    uint32_t head = atomic_load_explicit(ring->cq_khead, memory_order_relaxed);
    const uint32_t tail = atomic_load_explicit(ring->cq_ktail, memory_order_acquire), from = head;
    const ls_seat *owner = atomic_load_explicit(&ring->owner, memory_order_relaxed);
    for (; head != tail && n + left < max; head++) {
        const struct io_uring_cqe cqe = ring->cqes[head & ring->cq_mask];
        const unsigned tag = ls_ring_tag(cqe.user_data);
        /* These are for the owner, who may be on its way into the call that sleeps: it must find them there. */
        if ((tag == TAG_WAKE || tag == TAG_EPOLL) && owner != NULL && owner != seat) break;
        later[left] = (reaped){.op = NULL};
        switch (tag) {
        case TAG_RECEIVE:
        case TAG_READY:
            if (!take_received(seat, ring, &cqe, &packets[n], &later[left])) break;
            if (later[left].op != NULL)
                left++;
            else
                n++;
            break;
        case TAG_SEND: {
            ls_sock *sock = ls_slots_at(seat->port->socks, (uint32_t)cqe.user_data & ((1u << TAG_SHIFT) - 1));
            later[left++] = (reaped){sock, atomic_load_explicit(&sock->tx, memory_order_relaxed), cqe.res, true};
            break;
        }
        case TAG_FILE: {
            ls_file_op *file = ls_ring_file_of(cqe.user_data);
            if (ls_uring_file_ended(file, cqe.res))
                packets[n++] =
                    (ls_packet){.key = file->op.key, .op = &file->op, .result = atomic_load(&file->op.result)};
            else
                later[left++] = (reaped){.op = &file->op};
            break;
        }
        case TAG_WAKE: *woken = true; break;
        case TAG_EPOLL:
            atomic_store_explicit(&ring->epoll_events, true, memory_order_relaxed);
            if (!(cqe.flags & IORING_CQE_F_MORE) && (uint32_t)(cqe.user_data >> 32) == ring->epoch)
                ring->polls_epoll = false;
            break;
        default: break; /* TAG_CANCEL: what it was to cancel had ended */
        }
    }
    if (head != from) atomic_store_explicit(ring->cq_khead, head, memory_order_release);
    ls_mutex_unlock(&ring->lock);
    for (int i = 0; i < left; i++) n += finish(seat, &later[i], &packets[n]);
    return n;
}
