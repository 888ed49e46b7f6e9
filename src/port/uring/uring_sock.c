/* uring_sock.c - receives and sends of one socket through a ring: see uring_internal.h.
 *
 * A receive that has to wait is an entry of the ring of whoever posts it. What came although its operation was cancelled
 * meanwhile, or before there was one, is kept: bytes in buffers of the ring (the socket's receive backlog), then the peer's end, or an
 * error. All this is under the lock of the ring that the socket was last armed on (sock->ring).
 *
 *     something is kept  =>  RX_READY is set, or whoever posts is about to look
 *     RX_WAIT is set     =>  RX_RING is set, or the socket is in the epoll set
 *
 * An entry can end without saying anything about the socket: the ring had no buffer, the thread that submitted it has
 * ended, it was cancelled for the sake of a large receive. Then the socket itself is asked, and armed again if it has nothing;
 * everything that came by the ring has been taken from the receive backlog before. */
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

/* ---- the receive backlog; the ring's lock is held ----------------------------------------------------------------------------- */

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

/* Bytes for the receive from the receive backlog, which is not empty, or LS_ENOMEM. */
static int64_t backlog_take(ls_thread_ctx *ctx, ls_ring *ring, ls_sock *sock, ls_op *op)
{
    if (op->len == 0) return 0; /* asked only whether something is there, and it is */
    char *to = op->recv.ptr;
    if (to == NULL) {
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
        memcpy(to + n, ring->bytes + (size_t)sock->backlog_first * BUFFER_BYTES + buffer->from, bytes);
        n += bytes;
        buffer->from = (uint16_t)(buffer->from + bytes);
        if (buffer->from == buffer->end) backlog_drop_first(ring, sock);
    }
    return n;
}

/* What is kept, as the result of a receive. LS_EAGAIN: nothing is. */
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

/* ---- receive ------------------------------------------------------------------------------------------------------ */

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

/* Have the epoll set tell of the end: a multishot receive may miss it. */
static bool watch(ls_sock *sock)
{
    if (atomic_load_explicit(&sock->watched, memory_order_relaxed)) return true;
    const uint64_t generation = WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = generation << 32 | sock->number};
    const int err = ls_epoll_add(sock->port, sock->base.fd, &event);
    if (err < 0 && err != LS_EEXIST) return false; /* EEXIST: a send waits, and it is told of everything */
    atomic_store_explicit(&sock->watched, true, memory_order_relaxed);
    return true;
}

static unsigned tag_for(ls_sock *sock, const ls_op *op)
{
    if (op->len == 0 || op->len > LS_BLOCK_SMALL) return TAG_READY;
    if (sock->waits < WAITS_ONE_BY_ONE) {
        sock->waits++;
        return TAG_RECEIVE;
    }
    return watch(sock) ? TAG_STREAM : TAG_RECEIVE;
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

/* End what receives. false: no memory; it goes on. The ring's lock is held. */
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

/* A multishot receive is in the way of a large one, which goes into the memory where it is wanted. */
static void make_way(ls_sock *sock)
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

/* The receive has to wait: have the ring do it. A small one of a stream is done by the ring; for a large one the ring says
 * when there is something. false: it has to be done with epoll. */
bool ls_uring_arm(ls_thread_ctx *ctx, ls_sock *sock, const ls_op *op)
{
    ls_ring *ring = ctx->ring;
    if (atomic_load_explicit(&sock->word, memory_order_relaxed) & RX_RING) {
        if (op->len == 0 || op->len > LS_BLOCK_SMALL) make_way(sock);
        return true;
    }
    /* The next batch of datagrams is asked for before one is handled, so that another thread may have it: any thread. */
    if (ring == NULL || op->kind != KIND_RECV || !is_stream(sock)) return false;
    /* Registered for notifications? Perhaps by who had this descriptor before; the epoll set knows. */
    if (ls_watchers_hold(sock->port->watchers, sock->base.fd)) return false;
    const unsigned tag = tag_for(sock, op);
    bool armed = false;
    ls_mutex_lock(&ring->lock);
    if (atomic_load_explicit(&ring->owner, memory_order_relaxed) == ctx) {
        const uint32_t generation = WORD_GENERATION(atomic_load_explicit(&sock->word, memory_order_relaxed));
        struct io_uring_sqe *sqe = ls_ring_entry(ring, ls_ring_data(tag, generation, sock->number));
        if (sqe != NULL) {
            fill_receive(sqe, sock, op, tag);
            assert(sock->backlog_count == 0);
            sock->armed_tag = (uint8_t)tag;
            sock->armed_epoch = ring->epoch;
            sock->recv_cancelled = false;
            if (atomic_exchange_explicit(&sock->ring, (uint16_t)(ring->index + 1), memory_order_relaxed) == 0)
                ls_ring_mark(sock->port->rings, sock->base.fd, true);
            atomic_fetch_or(&sock->word, RX_RING);
            armed = true;
        }
    }
    ls_mutex_unlock(&ring->lock);
    return armed;
}

/* The epoll set tells of the end, or of what comes since a send had to wait: what a multishot receive may have missed, or
 * need not bring any more. When it has ended the socket itself is asked. Nobody keeps the socket from being closed here, and
 * its slot from being another's: only atomics are read of it, until the lock of its ring and the word say that it is still
 * the one. What was armed in another ring meanwhile finds the end by itself. */
void ls_uring_cancel_recv(ls_port *port, ls_sock *sock, uint32_t generation)
{
    const unsigned place = atomic_load_explicit(&sock->ring, memory_order_relaxed);
    if (place == 0) return;
    ls_ring *ring = atomic_load_explicit(&port->rings->at[place - 1], memory_order_relaxed);
    ls_mutex_lock(&ring->lock);
    const uint64_t word = atomic_load(&sock->word);
    if (WORD_GENERATION(word) == generation && (word & RX_RING) &&
        atomic_load_explicit(&sock->ring, memory_order_relaxed) == place && sock->armed_tag == TAG_STREAM &&
        !sock->recv_cancelled) {
        if (cancel(ring, sock, generation))
            ls_ring_submit(ring);
        else if (!ring->dead) /* else it ends anyway */
            ls_epoll_report_again(sock, generation);
    }
    ls_mutex_unlock(&ring->lock);
}

/* The descriptor is about to be closed: nothing of this socket may be left in the ring. */
void ls_uring_disarm(ls_sock *sock)
{
    ls_ring *ring = ring_of(sock);
    ls_ring_mark(sock->port->rings, sock->base.fd, false);
    ls_mutex_lock(&ring->lock);
    while (sock->backlog_count > 0) backlog_drop_first(ring, sock);
    const uint64_t word = atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    if ((word & RX_RING) && ring->dead) {
        (void)shutdown(sock->base.fd,
                       SHUT_RDWR); /* as soon as the ring is closed its receive ends; the peer hears of it now */
    } else if (word & RX_RING) {
        if (!sock->recv_cancelled) (void)cancel(ring, sock, WORD_GENERATION(word));
        /* Before the descriptor's number can be another's, and so that the peer hears of the end now. */
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
    bool says = true;
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
        says = false;
        break;
    case EAGAIN:
    case EINTR:
    case ENOMEM:
    case ECANCELED: says = false; break;
    default: sock->ring_error = ls_err_from_errno(-cqe->res); break;
    }
    if (says) note_backlog(sock);
    return says;
}

/* Whether a multishot receive should end: it is too far ahead of who reads, or the kernel finishes it in a thread that is
 * not the ring's any more: it has to be interrupted for each piece. */
static bool has_gone_astray(const ls_ring *ring, const ls_sock *sock)
{
    const bool orphaned = atomic_load_explicit(&ring->owner, memory_order_relaxed) == NULL;
    return !sock->recv_cancelled &&
           (sock->backlog_count >= BACKLOG_MAX || sock->armed_epoch != ring->epoch || orphaned);
}

/* The completion of a receive, or of what says that there is something. True: *packet is one; or later->op is set, and
 * RX_BUSY is ours now. */
static bool take_received(ls_thread_ctx *ctx, ls_ring *ring, const struct io_uring_cqe *cqe, ls_packet *packet,
                          reaped *later)
{
    ls_sock *sock = ls_slots_at(ctx->port->socks, (uint32_t)cqe->user_data & ((1u << TAG_SHIFT) - 1));
    const uint32_t generation = (uint32_t)(cqe->user_data >> 32);
    const bool last = !(cqe->flags & IORING_CQE_F_MORE);
    uint64_t old = atomic_load(&sock->word), new;
    if (WORD_GENERATION(old) != generation || !(old & RX_RING)) {
        if (cqe->flags & IORING_CQE_F_BUFFER)
            ls_ring_give_buffer(ring, (uint16_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT)); /* closed meanwhile */
        return false;
    }
    /* As long as RX_RING is set a close waits for the lock (ls_uring_disarm); afterwards RX_BUSY holds it up, or nothing
     * is done here any more. */
    const bool kept = ls_ring_tag(cqe->user_data) != TAG_READY && keep(ring, sock, cqe);
    if (!last && has_gone_astray(ring, sock) && cancel(ring, sock, generation)) ls_ring_submit(ring);
    do {
        if (!(old & RX_WAIT))
            new = (last ? old & ~(uint64_t)RX_RING : old) | RX_READY;
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
    const int64_t result = take_received_bytes(ctx, ring, sock, op);
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    ls_counter_add(&ctx->stats.recv_queued, 1);
    *packet = (ls_packet){.key = sock->base.key, .op = op, .result = result};
    if (result <= 0 || atomic_load_explicit(&sock->has_backlog, memory_order_relaxed))
        atomic_fetch_or(&sock->word, RX_READY);
    if (last) atomic_fetch_and(&sock->word, ~(uint64_t)RX_RING);
    return true;
}

/* ---- send ---------------------------------------------------------------------------------------------------------- */

/* Leave the send to the ring, with others. false: it is to be done here and now. */
bool ls_uring_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    ls_ring *ring = ctx->ring;
    if (ring == NULL || atomic_load_explicit(&ring->batch, memory_order_relaxed) < 2)
        return false; /* nothing to share a call with */
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

/* One completion; the ring's lock is held. */
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
        assert(sock != NULL); /* it is not closed before its send has ended */
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
    default: return NOTHING; /* TAG_CANCEL: what it was to cancel had ended */
    }
}

/* A dead ring holds no file's memory any more: have the kernel end what else it has of it; or all of that has come. */
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
        enum taken what = NOTHING;
        ls_mutex_lock(&ring->lock);
        more = ls_ring_queued(ring) > 0;
        if (more) { /* the last one added first: only one of a socket, or of a file, can be among them */
            const uint32_t tail = atomic_load_explicit(&ring->sq_tail, memory_order_relaxed) - 1;
            const struct io_uring_cqe cqe = {.user_data = ring->sqes[tail & ring->sq_mask].user_data,
                                             .res = -ECANCELED};
            atomic_store_explicit(&ring->sq_tail, tail, memory_order_relaxed);
            what = take_completion(ctx, ring, &cqe, &packet, &later, &woken);
        } else {
            retire(ctx, ring);
        }
        ls_mutex_unlock(&ring->lock);
        if (what == LATER && finish(ctx, &later, &packet) == 0) what = NOTHING;
        if (what != NOTHING) ls_port_enqueue(ctx->port, packet.op); /* its key and result are set */
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
        /* These are for the owner, who may be on its way into the call that sleeps: it must find them there. */
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
