/* sim_stream.c - the bytes between the two ends of a connection. See sim.h.
 *
 * A stream has a queue of bytes at each end: those that can be read, followed by those that are on the way. A send puts
 * bytes into the queue of the other end and draws when its pieces arrive; their order is that of the sends. The end of
 * the stream and a reset travel in the same order.
 *
 *     readable + coming <= queue_bytes
 *
 * What the kernel does is done as it does it: data that was received before a reset can be read, then the reset is
 * reported once; a close with unread data is a reset; data for a closed socket are answered by a reset. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "port/sim/sim_socket.h"

enum { QUEUE_FEWEST = 4096, QUEUE_DOUBLINGS = 7, PIECES_MAX = 4, SLOW_BYTES_PER_S = 2000, MOST_UNSENT = 3 };
static const uint64_t second_ns = 1000000000;
/* What travels to an end of a connection; other numbers: so many bytes. */
static const uint64_t reset = UINT64_MAX, end = UINT64_MAX - 1, room = UINT64_MAX - 2;

typedef ls_sim_socket sock;

/* 0: what is sent arrives at once, as on the loopback interface. */
uint64_t ls_sim_latency_ns(void)
{
    return ls_sim_faults_now.latency_us_max > 0 ? 1000 * (1 + ls_sim_below(ls_sim_faults_now.latency_us_max)) : 0;
}

void ls_sim_stream_link(sock *a, sock *b)
{
    const uint64_t latency_ns = ls_sim_latency_ns();
    const uint64_t rate = ls_sim_chance(ls_sim_faults_now.slow_link) ? SLOW_BYTES_PER_S : 0;
    sock *const ends[] = {a, b};
    for (int i = 0; i < 2; i++) {
        ends[i]->latency_ns = latency_ns;
        ends[i]->bytes_per_s = rate;
        ends[i]->queue_bytes = (size_t)QUEUE_FEWEST << (rate > 0          ? 0
                                                        : latency_ns == 0 ? QUEUE_DOUBLINGS - 1
                                                                          : ls_sim_below(QUEUE_DOUBLINGS));
        ends[i]->queue = malloc(ends[i]->queue_bytes);
        (ends[i]->other = ends[!i])->refs++;
    }
}

void ls_sim_calm(void)
{
    ls_sim_faults_now =
        (ls_sim_faults){.latency_us_max = ls_sim_faults_now.latency_us_max, .preempt = ls_sim_faults_now.preempt};
    for (sock *s = ls_sim_sockets; s != NULL; s = s->next) s->bytes_per_s = 0;
}

static void arrives(void *to, uint64_t what);

/* What is sent now arrives after all that was sent before. */
static void travel(sock *to, uint64_t what)
{
    to->refs++;
    if (to->latency_ns == 0 && to->latest_ns <= ls_sim_now_ns()) {
        arrives(to, what);
        return;
    }
    uint64_t ns = ls_sim_now_ns() + to->latency_ns + ls_sim_below(to->latency_ns / 4 + 1);
    if (ns < to->latest_ns) ns = to->latest_ns;
    if (to->bytes_per_s > 0 && what < room) ns += what * second_ns / to->bytes_per_s;
    to->latest_ns = ns;
    ls_sim_at(ns, arrives, to, what);
}

void ls_sim_stream_part(sock *s)
{
    sock *const other = s->other;
    if (other == NULL) return;
    s->other = NULL;
    ls_sim_socket_drop(other);
}

static void arrives(void *to, uint64_t what)
{
    sock *const s = to;
    const bool is_open = s->state == CONNECTED && !s->is_closed;
    if (what == reset) {
        if (is_open) {
            s->state = BROKEN;
            s->error = s->has_received_end && s->has_sent_end ? 0 : s->has_received_end ? EPIPE : ECONNRESET;
            s->coming = 0;
            ls_sim_step("reset arrives", (int64_t)s->readable, 0);
            ls_sim_changed(&s->file, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        }
        if (s->other != NULL && s->other->is_closed) ls_sim_stream_part(s->other); /* no end follows */
        ls_sim_stream_part(s);
    } else if (what == end) {
        s->has_received_end = true;
        if (is_open) ls_sim_changed(&s->file, EPOLLIN | EPOLLRDHUP | (s->has_sent_end ? EPOLLHUP : 0));
        if (s->is_closed) ls_sim_stream_part(s);
    } else if (what == room) {
        if (is_open) ls_sim_changed(&s->file, EPOLLOUT);
    } else if (is_open) {
        s->coming -= what;
        s->readable += what;
        ls_sim_changed(&s->file, EPOLLIN);
    } else if (s->is_closed && s->other != NULL) {
        travel(s->other, reset);
    }
    ls_sim_socket_drop(s);
}

size_t ls_sim_stream_room(const sock *s)
{
    return s->other == NULL || s->other->is_closed ? QUEUE_FEWEST
                                                   : s->other->queue_bytes - s->other->readable - s->other->coming;
}

bool ls_sim_stream_has_room(const sock *s)
{
    return s->other == NULL || s->other->is_closed || ls_sim_stream_room(s) >= s->other->queue_bytes / MOST_UNSENT;
}

static void put(sock *to, const char *bytes, size_t len)
{
    const size_t at = (to->first + to->readable + to->coming) % to->queue_bytes;
    const size_t until_end = to->queue_bytes - at < len ? to->queue_bytes - at : len;
    memcpy(to->queue + at, bytes, until_end);
    memcpy(to->queue, bytes + until_end, len - until_end);
    to->coming += len;
}

static void send_pieces(sock *s, size_t len)
{
    sock *const to = s->other;
    for (unsigned i = 0; len > 0; i++) {
        const size_t piece =
            i + 1 == PIECES_MAX || to->latency_ns == 0 || ls_sim_chance(500000) ? len : 1 + (size_t)ls_sim_below(len);
        if (ls_sim_chance(ls_sim_faults_now.reset)) {
            ls_sim_step("reset", (int64_t)len, 0);
            to->coming -= to->is_closed ? 0 : len; /* these bytes never arrive */
            travel(to, reset);
            travel(s, reset);
            return;
        }
        travel(to, piece);
        len -= piece;
    }
}

ssize_t ls_sim_stream_send(sock *s, const struct iovec *vector, size_t count)
{
    size_t left, sent = 0;
    if (s->error != 0) return ls_sim_socket_take_error(s);
    if (s->state == CONNECTING) return ls_sim_failed(EAGAIN);
    if (s->state == UNCONNECTED || s->state == LISTENS) return ls_sim_failed(ENOTCONN);
    if (s->has_sent_end || s->state == BROKEN || s->other == NULL) return ls_sim_failed(EPIPE);
    for (size_t i = 0; i < count && (left = ls_sim_stream_room(s) - sent * s->other->is_closed) > 0; i++) {
        const size_t len = vector[i].iov_len < left ? vector[i].iov_len : left;
        if (!s->other->is_closed) put(s->other, vector[i].iov_base, len);
        sent += len;
        if (len < vector[i].iov_len) break;
    }
    size_t wanted = 0;
    for (size_t i = 0; i < count; i++) wanted += vector[i].iov_len;
    s->found_no_room = sent < wanted;
    if (sent == 0 && wanted > 0) return ls_sim_failed(EAGAIN);
    send_pieces(s, sent);
    return (ssize_t)sent;
}

ssize_t ls_sim_stream_receive(sock *s, const struct iovec *vector, size_t count, bool peek)
{
    size_t taken = 0;
    if (s->readable == 0) {
        if (s->error != 0) return ls_sim_socket_take_error(s);
        if (s->state == UNCONNECTED || s->state == LISTENS) return ls_sim_failed(ENOTCONN);
        if (s->has_received_end || s->state == BROKEN) return 0;
        return ls_sim_failed(EAGAIN);
    }
    for (size_t i = 0; i < count && taken < s->readable; i++) {
        const size_t len = vector[i].iov_len < s->readable - taken ? vector[i].iov_len : s->readable - taken;
        const size_t at = (s->first + taken) % s->queue_bytes;
        const size_t until_end = s->queue_bytes - at < len ? s->queue_bytes - at : len;
        memcpy(vector[i].iov_base, s->queue + at, until_end);
        memcpy((char *)vector[i].iov_base + until_end, s->queue, len - until_end);
        taken += len;
    }
    if (peek) return (ssize_t)taken;
    s->first = (s->first + taken) % s->queue_bytes;
    s->readable -= taken;
    if (s->other != NULL && s->other->found_no_room && ls_sim_stream_has_room(s->other)) {
        s->other->found_no_room = false;
        travel(s->other, room);
    }
    return (ssize_t)taken;
}

void ls_sim_stream_end(sock *s)
{
    if (s->has_sent_end || s->state != CONNECTED) return;
    s->has_sent_end = true;
    if (s->other != NULL) travel(s->other, end);
}

void ls_sim_stream_reset(sock *s)
{
    if (s->other != NULL) travel(s->other, reset);
    ls_sim_stream_part(s);
}
