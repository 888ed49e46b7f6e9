/* port_epoll_datagram.c - batches of datagrams over recvmmsg and sendmmsg: see datagram.h.
 *
 * Where a batch lies. The head (struct ls_datagrams) is followed by the bytes in the same large block, when one datagram
 * fits behind it; else it has a small block of its own. Further blocks are taken one by one, each only when the one
 * before was filled, so a few datagrams take one block.
 *
 *     | count | at[0] at[1] ... | bytes of 0 | bytes of 1 | ...      next block: | bytes of n | ...
 *
 * Neighbours of one length to one peer leave as one message that the system cuts up (UDP_SEGMENT): it looks for the way
 * once for all of them. Where it cannot (an old kernel, a device without checksums, a narrow path) the socket goes back
 * to one message each, for good. The counterpart for receiving, UDP_GRO, is not used: any message may then hold 64 KiB, so
 * each in a batch would need a large block; and datagrams of many peers, or of peers that do not do the same, come one by
 * one all the same. Measured on the loopback, per datagram sent and received, 32 in a batch: to one peer 3.7 us plain, 1.2
 * with UDP_SEGMENT, 0.2 with both; to 32 peers 4.4 plain, nothing gained by either. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "port/datagram.h"
#include "port/port_epoll.h"

/* A refusal that some earlier datagram met with on its way (ip(7), udp(7)). */
static bool is_report(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case ENONET:
    case ENOPROTOOPT:
    case EPROTO:
    case ECONNRESET: return true;
    default: return false;
    }
}

static bool is_connected(int fd)
{
    ls_sockaddr peer;
    socklen_t len = sizeof peer.bytes;
    return getpeername(fd, (struct sockaddr *)peer.bytes, &len) == 0;
}

/* ---- receive --------------------------------------------------------------------------------------------------- */

typedef struct room { /* where the next datagrams go */
    ls_block *block;
    size_t from, each;
} room;

static size_t head_bytes(unsigned count)
{
    return (sizeof(ls_datagrams) + count * sizeof(ls_datagram) + 15) & ~(size_t)15;
}

/* Take the head, and with it the first room if there is one left behind it. NULL: no memory. */
static ls_datagrams *batch_open(ls_seat *seat, unsigned *count, room *out)
{
    size_t head = head_bytes(*count);
    ls_block *block = NULL;
    if (head + out->each <= LS_BLOCK_LARGE) {
        if ((block = ls_block_get(seat->pool, LS_BLOCK_LARGE)) == NULL) return NULL;
        out->block = block;
        out->from = head;
    } else {
        const unsigned most = LS_DATAGRAM_BLOCKS_MAX * (LS_BLOCK_LARGE / (unsigned)out->each);
        if (*count > most) *count = most;
        assert(head_bytes(*count) <= LS_BLOCK_SMALL);
        if ((block = ls_block_get(seat->pool, LS_BLOCK_SMALL)) == NULL) return NULL;
        out->block = NULL;
    }
    ls_datagrams *batch = (ls_datagrams *)(void *)block->data;
    batch->block = block;
    batch->count = 0;
    return batch;
}

/* recvmmsg into what is left of the room, `most` at most. How many came, or an error; *asked is how many could have. */
static int receive_some(ls_sock *sock, ls_datagrams *batch, unsigned most, uint32_t bytes_max, const room *into,
                        unsigned *asked)
{
    struct mmsghdr messages[LS_DATAGRAMS_MAX];
    struct iovec iov[LS_DATAGRAMS_MAX];
    unsigned n = 0;
    for (size_t from = into->from; n < most && from + bytes_max <= LS_BLOCK_LARGE; n++, from += into->each) {
        ls_datagram *datagram = &batch->at[batch->count + n];
        iov[n] = (struct iovec){into->block->data + from, bytes_max};
        messages[n] = (struct mmsghdr){.msg_hdr = {.msg_name = datagram->addr.bytes,
                                                   .msg_namelen = sizeof datagram->addr.bytes,
                                                   .msg_iov = &iov[n],
                                                   .msg_iovlen = 1}};
    }
    *asked = n;
    const int got = recvmmsg(sock->fd, messages, n, MSG_DONTWAIT, NULL);
    for (int i = 0; i < got; i++) {
        ls_datagram *datagram = &batch->at[batch->count + (unsigned)i];
        const struct msghdr *header = &messages[i].msg_hdr;
        const size_t at = into->from + (size_t)i * into->each;
        datagram->slice = ls_slice_of(into->block, at, messages[i].msg_len);
        datagram->addr.len = header->msg_namelen;
        datagram->error = LS_OK;
        datagram->truncated = header->msg_flags & MSG_TRUNC;
    }
    return got;
}

static int64_t receive_failed(ls_sock *sock, int error, bool *again)
{
    *again = error == EINTR || (is_report(error) && !is_connected(sock->fd));
    return error == EAGAIN || error == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(error);
}

int64_t ls_epoll_recv_from(ls_seat *seat, ls_sock *sock, ls_op *op)
{
    const uint32_t bytes_max = op->len;
    unsigned count = op->count;
    room into = {.each = ((size_t)bytes_max + 15) & ~(size_t)15};
    ls_datagrams *batch = batch_open(seat, &count, &into);
    if (batch == NULL) return LS_ENOMEM;

    int64_t err = LS_OK;
    bool drained = false; /* there was less than asked for */
    bool own = false;     /* the room's block is our reference, not the batch's */
    for (unsigned blocks = 0; batch->count < count && blocks < LS_DATAGRAM_BLOCKS_MAX; blocks++) {
        if (blocks > 0 || into.block == NULL) {
            ls_block *block = ls_block_get(seat->pool, LS_BLOCK_LARGE);
            if (block == NULL) {
                err = LS_ENOMEM; /* with datagrams at hand those are the result */
                break;
            }
            if (own) ls_block_drop(into.block);
            into = (room){block, 0, into.each};
            own = true;
        }
        unsigned asked;
        bool again = false;
        int got;
        do {
            got = receive_some(sock, batch, count - batch->count, bytes_max, &into, &asked);
            if (got < 0) err = receive_failed(sock, errno, &again);
        } while (got < 0 && again);
        drained = got < 0 ? err == LS_EAGAIN : (unsigned)got < asked;
        if (got > 0) batch->count += (unsigned)got;
        if (drained || got < 0) break;
    }
    if (own) ls_block_drop(into.block);
    if (batch->count == 0) {
        ls_datagrams_drop(batch);
        return err;
    }
    if (!drained) op->count = (uint16_t)batch->count; /* all that fitted: the next receive is tried before it waits */
    op->recv_from.batch = batch;
    return batch->count;
}

int ls_op_recv_from(ls_seat *seat, ls_sock *sock, ls_op *op, unsigned count, uint32_t bytes_max)
{
    assert(count >= 1 && count <= LS_DATAGRAMS_MAX && bytes_max >= 1 && bytes_max <= LS_DATAGRAM_BYTES_MAX);
    op->kind = KIND_RECV_FROM;
    op->flags = 0;
    op->key = sock->key;
    op->count = (uint16_t)count;
    op->len = bytes_max;
    op->recv_from.batch = NULL;
    return ls_epoll_post_receive(seat, sock, op);
}

/* ---- send ------------------------------------------------------------------------------------------------------- */

/* Longer ones would seldom fit into a packet, and that is what a segment must do. */
enum { SEGMENT_BYTES_MAX = 1400 };

typedef union segment_size { /* a control message */
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(uint16_t))];
} segment_size;

/* How many from the first on can be segments of one message. */
static unsigned alike(const ls_datagram *datagrams, unsigned count)
{
    const size_t len = datagrams->slice.len;
    const uint32_t addr_len = datagrams->addr.len;
    unsigned n = 1;
    if (len == 0 || len > SEGMENT_BYTES_MAX) return 1;
    while (n < count && datagrams[n].slice.len == len && datagrams[n].addr.len == addr_len &&
           memcmp(datagrams[n].addr.bytes, datagrams->addr.bytes, addr_len) == 0)
        n++;
    return n;
}

enum { SEGMENTS_UNKNOWN, SEGMENTS, SEGMENTS_NEVER }; /* ls_sock.segments */

/* Kernels that do not know the control message would not refuse it, but send all as one datagram. */
static bool may_segment(ls_sock *sock)
{
    int now;
    if (sock->segments == SEGMENTS_UNKNOWN)
        sock->segments = getsockopt(sock->fd, IPPROTO_UDP, UDP_SEGMENT, &now, &(socklen_t){sizeof now}) == 0
                             ? SEGMENTS
                             : SEGMENTS_NEVER;
    return sock->segments == SEGMENTS;
}

static void set_segments(struct msghdr *message, segment_size *control, uint16_t bytes)
{
    control->header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof bytes), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
    memcpy(CMSG_DATA(&control->header), &bytes, sizeof bytes);
    message->msg_control = control;
    message->msg_controllen = sizeof control->room;
}

/* One sendmmsg. How many datagrams left, or -1 with errno; *segmented says that the first of them was one of several. */
static int send_some(ls_sock *sock, ls_datagram *datagrams, unsigned count, bool *segmented)
{
    struct mmsghdr messages[LS_DATAGRAMS_MAX];
    struct iovec iov[LS_DATAGRAMS_MAX];
    segment_size controls[LS_DATAGRAMS_MAX];
    unsigned n = 0, at = 0;
    if (count > LS_DATAGRAMS_MAX) count = LS_DATAGRAMS_MAX;
    for (; at < count; n++) {
        ls_datagram *first = &datagrams[at];
        unsigned run = alike(first, count - at);
        if (run > 1 && !may_segment(sock)) run = 1;
        messages[n] = (struct mmsghdr){.msg_hdr = {.msg_name = first->addr.len > 0 ? first->addr.bytes : NULL,
                                                   .msg_namelen = first->addr.len,
                                                   .msg_iov = &iov[at],
                                                   .msg_iovlen = run}};
        if (run > 1) set_segments(&messages[n].msg_hdr, &controls[n], (uint16_t)first->slice.len);
        for (const unsigned end = at + run; at < end; at++)
            iov[at] = (struct iovec){(char *)(uintptr_t)datagrams[at].slice.ptr, datagrams[at].slice.len};
    }
    const int left = sendmmsg(sock->fd, messages, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    *segmented = messages[0].msg_hdr.msg_iovlen > 1;
    if (left <= 0) return left;
    int sum = 0;
    for (int i = 0; i < left; i++) sum += (int)messages[i].msg_hdr.msg_iovlen;
    return sum;
}

/* What the system says when it does not cut up, or not into these pieces. */
static bool is_segments_refused(int error)
{
    return error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP || error == ENOPROTOOPT;
}

/* All were dealt with: how many left, or the error. */
static int64_t send_result(const ls_op *op)
{
    int64_t left = 0;
    int err = LS_OK;
    for (unsigned i = 0; i < op->count; i++) {
        if (op->send_to.at[i].error == LS_OK)
            left++;
        else if (err == LS_OK)
            err = op->send_to.at[i].error;
    }
    return left > 0 ? left : err;
}

int64_t ls_epoll_send_to(ls_sock *sock, ls_op *op)
{
    bool reported = false; /* a report was taken for this datagram: what comes next is its own */
    for (;;) {
        const int64_t done = atomic_load_explicit(&op->result, memory_order_relaxed);
        if (done == op->count) return send_result(op);
        ls_datagram *next = &op->send_to.at[done];
        bool segmented;
        int n = send_some(sock, next, op->count - (unsigned)done, &segmented);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (segmented && is_segments_refused(errno)) {
                sock->segments = SEGMENTS_NEVER;
                continue;
            }
            if (errno == EAGAIN || errno == EWOULDBLOCK) return LS_EAGAIN;
            if (is_report(errno) && !reported && !is_connected(sock->fd)) {
                reported = true;
                continue;
            }
            next->error = ls_err_from_errno(errno);
            n = 1;
        }
        reported = false;
        atomic_store_explicit(&op->result, done + n, memory_order_relaxed);
        atomic_fetch_add_explicit(&sock->progress, 1, memory_order_relaxed);
    }
}

int ls_op_send_to(ls_seat *seat, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count)
{
    assert(count >= 1);
    op->kind = KIND_SEND_TO;
    op->flags = 0;
    op->key = sock->key;
    op->count = count;
    op->send_to.at = datagrams;
    for (unsigned i = 0; i < count; i++) datagrams[i].error = LS_OK;
    return ls_epoll_post_transmit(seat, sock, op);
}
