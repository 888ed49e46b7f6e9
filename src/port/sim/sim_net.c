/* sim_net.c - sockets: streams, datagrams, and the network between them. See sim.h.
 *
 * All sockets of the world are on one machine; an address belongs to the socket that is bound to it. A stream has a
 * queue of bytes at each end: those that can be read, followed by those that are on the way. A send puts bytes into the
 * queue of the other end and draws when its pieces arrive; their order is that of the sends. The end of the stream and
 * a reset travel in the same order.
 *
 *     readable + coming <= queue_bytes
 *
 * What the kernel does is done as it does it: data that was received before a reset can be read, then the reset is
 * reported once; a close with unread data is a reset; data for a closed socket are answered by a reset. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/sim/sim.h"

enum {
    QUEUE_FEWEST = 4096,
    QUEUE_DOUBLINGS = 7,
    PIECES_MAX = 4,
    DATAGRAMS_MAX = 256,
    PAIR_DATAGRAMS_MAX = 10,
    FIRST_PORT = 32768,
    PORTS = 28000
};
enum { SYN_TRIES = 6, SLOW_BYTES_PER_S = 2000, MOST_UNSENT = 3 }; /* a third of the queue is free: can be written */
static const uint64_t second_ns = 1000000000, lost_ns = UINT64_C(127000000000); /* tcp_syn_retries of tcp(7) */

typedef struct datagram {
    struct datagram *next;
    struct sockaddr_storage from;
    socklen_t from_len;
    size_t len;
    char bytes[];
} datagram;

typedef struct sock {
    ls_sim_file file;  /* first */
    struct sock *next; /* of all */
    unsigned refs;     /* the descriptor, each event on its way, the other end, the queue of a listener */
    int family, type, error;
    enum { UNCONNECTED, LISTENS, CONNECTING, CONNECTED, BROKEN } state; /* BROKEN: by a reset */
    bool is_bound, is_closed, reuses_port, resets_at_close, has_sent_end, has_received_end, found_no_room;
    struct sockaddr_storage local, remote;
    socklen_t local_len, remote_len;
    /* A stream. */
    struct sock *other; /* end; NULL: none any more */
    char *queue;
    size_t queue_bytes, first, readable, coming;
    uint64_t latency_ns, bytes_per_s, latest_ns; /* of what travels to this end; the last arrival */
    unsigned tries;                              /* of a connect */
    /* A listener: the connections to be accepted. */
    struct sock **waiting;
    unsigned waiting_count, waiting_max;
    /* Datagrams. */
    datagram *datagrams, **datagrams_last;
    unsigned datagram_count;
} sock;

static const ls_sim_kind sock_kind;
static bool is_full_pair(const sock *s);
static sock *all;
static unsigned next_port;

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static sock *new_sock(int family, int type)
{
    sock *const s = calloc(1, sizeof *s);
    *s = (sock){.next = all, .refs = 1, .family = family, .type = type, .local_len = sizeof(sa_family_t)};
    s->local.ss_family = (sa_family_t)family;
    if (family == AF_INET) s->local_len = sizeof(struct sockaddr_in);
    if (family == AF_INET6) s->local_len = sizeof(struct sockaddr_in6);
    s->datagrams_last = &s->datagrams;
    all = s;
    return s;
}

static void drop(sock *s)
{
    if (--s->refs > 0) return;
    sock **at = &all;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    for (datagram *d; (d = s->datagrams) != NULL; free(d)) s->datagrams = d->next;
    free(s->queue);
    free(s->waiting);
    free(s);
}

static sock *sock_of(int fd)
{
    return (sock *)(void *)ls_sim_file_of(fd, &sock_kind);
}

static int take_error(sock *s)
{
    const int error = s->error;
    s->error = 0;
    return ls_sim_failed(error);
}

static uint16_t *port_of(struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET) return &((struct sockaddr_in *)(void *)at)->sin_port;
    return &((struct sockaddr_in6 *)(void *)at)->sin6_port;
}

static bool is_any(const struct sockaddr_storage *at)
{
    if (at->ss_family == AF_INET) return ((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr == INADDR_ANY;
    return at->ss_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
}

static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                              &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr);
}

/* Whether a socket that is bound to `local` receives what is sent to `to`. */
static bool is_at(const sock *s, const struct sockaddr_storage *to, socklen_t to_len)
{
    if (!s->is_bound || s->is_closed) return false;
    if (to->ss_family == AF_UNIX)
        return s->family == AF_UNIX && s->local_len == to_len && memcmp(&s->local, to, to_len) == 0;
    if (s->family == AF_UNIX) return false;
    if (*port_of((struct sockaddr_storage *)&s->local) != *port_of((struct sockaddr_storage *)to)) return false;
    return (is_any(&s->local) && (s->family == to->ss_family || s->family == AF_INET6)) || is_same_host(&s->local, to);
}

static sock *find(int type, bool listens, const struct sockaddr_storage *to, socklen_t to_len)
{
    for (sock *s = all; s != NULL; s = s->next)
        if (s->type == type && (s->state == LISTENS) == listens && (type != SOCK_STREAM || listens) &&
            is_at(s, to, to_len))
            return s;
    return NULL;
}

int socket(int family, int type, int protocol)
{
    (void)protocol;
    ls_sim_call();
    if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) return ls_sim_failed(EAFNOSUPPORT);
    sock *const s = new_sock(family, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int fd = ls_sim_fd_open(&s->file, &sock_kind, !(type & SOCK_NONBLOCK));
    if (fd < 0) {
        drop(s);
        return ls_sim_failed(EMFILE);
    }
    ls_sim_step("socket", fd, type);
    return fd;
}

/* A port that no socket of this type has. */
static void bind_free_port(sock *s)
{
    do *port_of(&s->local) = htons((uint16_t)(FIRST_PORT + next_port++ % PORTS));
    while (find(s->type, s->type == SOCK_STREAM, &s->local, s->local_len) != NULL);
    s->is_bound = true;
}

int bind(int fd, const struct sockaddr *at, socklen_t len)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    struct sockaddr_storage to = {0};
    if (s == NULL) return -1;
    if (s->is_bound || len > sizeof to) return ls_sim_failed(EINVAL);
    memcpy(&to, at, len);
    if (to.ss_family != s->family) return ls_sim_failed(EAFNOSUPPORT);
    const bool is_free_port = s->family != AF_UNIX && *port_of(&to) == 0;
    for (const sock *other = all; other != NULL && !is_free_port; other = other->next)
        if (other->type == s->type && other->is_bound && !other->is_closed && other->state != CONNECTED &&
            other->state != BROKEN && other->family == s->family && !(other->reuses_port && s->reuses_port) &&
            (is_at(other, &to, len) || (s->family != AF_UNIX && is_any(&to) &&
                                        *port_of((struct sockaddr_storage *)&other->local) == *port_of(&to))))
            return ls_sim_failed(EADDRINUSE);
    s->local = to;
    s->local_len = len;
    s->is_bound = !is_free_port;
    if (is_free_port) bind_free_port(s);
    return 0;
}

int listen(int fd, int backlog)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (s->type == SOCK_DGRAM) return ls_sim_failed(EOPNOTSUPP);
    if (!s->is_bound) bind_free_port(s);
    s->state = LISTENS;
    s->waiting_max = (unsigned)backlog + 1;
    s->waiting = realloc(s->waiting, s->waiting_max * sizeof(sock *));
    return 0;
}

/* ---- what travels ----------------------------------------------------------------------------------------------- */

/* 0: what is sent arrives at once, as on the loopback interface. */
static uint64_t draw_latency(void)
{
    return ls_sim_faults_now.latency_us_max > 0 ? 1000 * (1 + ls_sim_below(ls_sim_faults_now.latency_us_max)) : 0;
}

static void set_link(sock *a, sock *b)
{
    const uint64_t latency_ns = draw_latency();
    const uint64_t rate = ls_sim_chance(ls_sim_faults_now.slow_link) ? SLOW_BYTES_PER_S : 0;
    sock *const ends[] = {a, b};
    for (int i = 0; i < 2; i++) {
        ends[i]->latency_ns = latency_ns;
        ends[i]->bytes_per_s = rate;
        ends[i]->queue_bytes = (size_t)QUEUE_FEWEST
                               << (rate > 0 ? 0 : latency_ns == 0 ? QUEUE_DOUBLINGS - 1 : ls_sim_below(QUEUE_DOUBLINGS));
        ends[i]->queue = malloc(ends[i]->queue_bytes);
    }
}

void ls_sim_calm(void)
{
    ls_sim_faults_now =
        (ls_sim_faults){.latency_us_max = ls_sim_faults_now.latency_us_max, .preempt = ls_sim_faults_now.preempt};
    for (sock *s = all; s != NULL; s = s->next) s->bytes_per_s = 0;
}

/* Let fn(to, n) happen when what is sent now arrives, after all that was sent before. */
static void travel(sock *to, void (*fn)(void *arg, uint64_t n), uint64_t n, uint64_t bytes)
{
    to->refs++;
    if (to->latency_ns == 0 && to->latest_ns <= ls_sim_now_ns()) {
        fn(to, n);
        return;
    }
    uint64_t ns = ls_sim_now_ns() + to->latency_ns + ls_sim_below(to->latency_ns / 4 + 1);
    if (ns < to->latest_ns) ns = to->latest_ns;
    if (to->bytes_per_s > 0) ns += bytes * second_ns / to->bytes_per_s;
    to->latest_ns = ns;
    ls_sim_at(ns, fn, to, n);
}

static void separate(sock *s)
{
    sock *const other = s->other;
    if (other == NULL) return;
    s->other = NULL;
    drop(other);
}

static void reset_arrives(void *arg, uint64_t unused)
{
    sock *const s = arg;
    (void)unused;
    if (s->state == CONNECTED && !s->is_closed) {
        s->state = BROKEN;
        s->error = s->has_received_end && s->has_sent_end ? 0 : s->has_received_end ? EPIPE : ECONNRESET;
        s->coming = 0;
        ls_sim_step("reset arrives", (int64_t)s->readable, 0);
        ls_sim_changed(&s->file, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    }
    if (s->other != NULL && s->other->is_closed) separate(s->other); /* no end follows */
    separate(s);
    drop(s);
}

static void end_arrives(void *arg, uint64_t unused)
{
    sock *const s = arg;
    (void)unused;
    s->has_received_end = true;
    if (s->state == CONNECTED && !s->is_closed)
        ls_sim_changed(&s->file, EPOLLIN | EPOLLRDHUP | (s->has_sent_end ? EPOLLHUP : 0));
    if (s->is_closed) separate(s);
    drop(s);
}

static void bytes_arrive(void *arg, uint64_t n)
{
    sock *const s = arg;
    if (s->is_closed) {
        if (s->other != NULL) travel(s->other, reset_arrives, 0, 0);
    } else if (s->state == CONNECTED) {
        s->coming -= n;
        s->readable += n;
        ls_sim_changed(&s->file, EPOLLIN);
    }
    drop(s);
}

static void room_arrives(void *arg, uint64_t unused)
{
    sock *const s = arg;
    (void)unused;
    if (s->state == CONNECTED && !s->is_closed) ls_sim_changed(&s->file, EPOLLOUT);
    drop(s);
}

static size_t room(const sock *s) /* for what is sent by s */
{
    return s->other == NULL || s->other->is_closed ? QUEUE_FEWEST
                                                   : s->other->queue_bytes - s->other->readable - s->other->coming;
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
            travel(to, reset_arrives, 0, 0);
            travel(s, reset_arrives, 0, 0);
            return;
        }
        travel(to, bytes_arrive, piece, piece);
        len -= piece;
    }
}

static ssize_t stream_send(sock *s, const struct iovec *vector, size_t count)
{
    size_t left, sent = 0;
    if (s->error != 0) return take_error(s);
    if (s->state == CONNECTING) return ls_sim_failed(EAGAIN);
    if (s->state == UNCONNECTED || s->state == LISTENS) return ls_sim_failed(ENOTCONN);
    if (s->has_sent_end || s->state == BROKEN || s->other == NULL) return ls_sim_failed(EPIPE);
    for (size_t i = 0; i < count && (left = room(s) - sent * s->other->is_closed) > 0; i++) {
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

static ssize_t stream_receive(sock *s, const struct iovec *vector, size_t count, bool peek)
{
    size_t taken = 0;
    if (s->readable == 0) {
        if (s->error != 0) return take_error(s);
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
    if (s->other != NULL && s->other->found_no_room && room(s->other) >= s->queue_bytes / MOST_UNSENT) {
        s->other->found_no_room = false;
        travel(s->other, room_arrives, 0, 0);
    }
    return (ssize_t)taken;
}

static void send_end(sock *s)
{
    if (s->has_sent_end || s->state != CONNECTED) return;
    s->has_sent_end = true;
    if (s->other != NULL) travel(s->other, end_arrives, 0, 0);
}

/* ---- connect and accept ----------------------------------------------------------------------------------------- */

static void connect_ends(void *arg, uint64_t error)
{
    sock *const s = arg;
    if (s->state == CONNECTING && !s->is_closed) {
        s->state = error == 0 ? CONNECTED : UNCONNECTED;
        s->error = (int)error;
        if (error != 0) separate(s);
        ls_sim_step("connect ends", (int64_t)error, 0);
        ls_sim_changed(&s->file, error == 0 ? EPOLLOUT : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    }
    drop(s);
}

static sock *make_accepted(sock *s, sock *listener)
{
    sock *const accepted = new_sock(listener->family, listener->type);
    accepted->state = CONNECTED;
    accepted->is_bound = true;
    accepted->local = s->remote;
    accepted->local_len = s->remote_len;
    accepted->remote = s->local;
    accepted->remote_len = s->local_len;
    set_link(s, accepted);
    (s->other = accepted)->refs++;
    (accepted->other = s)->refs++;
    listener->waiting[listener->waiting_count++] = accepted; /* the reference of new_sock */
    ls_sim_changed(&listener->file, EPOLLIN);
    return accepted;
}

static void connect_arrives(void *arg, uint64_t unused)
{
    sock *const s = arg;
    sock *const listener = find(SOCK_STREAM, true, &s->remote, s->remote_len);
    (void)unused;
    if (s->is_closed || s->state != CONNECTING) {
        drop(s);
    } else if (listener == NULL || ls_sim_chance(ls_sim_faults_now.connect_refused)) {
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_ends, s, ECONNREFUSED);
    } else if (listener->waiting_count < listener->waiting_max) {
        (void)make_accepted(s, listener);
        s->refs++; /* of the event, whose function drops it */
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_ends, s, 0);
        if (s->latest_ns < ls_sim_now_ns() + s->latency_ns) s->latest_ns = ls_sim_now_ns() + s->latency_ns;
        drop(s);
    } else if (s->tries < SYN_TRIES) { /* the queue of the listener is full: the kernel drops the SYN */
        ls_sim_at(ls_sim_now_ns() + (second_ns << s->tries++), connect_arrives, s, 0);
    } else {
        ls_sim_at(ls_sim_now_ns(), connect_ends, s, ETIMEDOUT);
    }
}

static int connect_datagram(sock *s, const struct sockaddr *to, socklen_t len)
{
    s->state = to->sa_family == AF_UNSPEC ? UNCONNECTED : CONNECTED;
    if (s->state == UNCONNECTED) return 0;
    memcpy(&s->remote, to, len);
    s->remote_len = len;
    if (!s->is_bound && s->family != AF_UNIX) bind_free_port(s);
    if (s->family == AF_INET && is_any(&s->local))
        ((struct sockaddr_in *)(void *)&s->local)->sin_addr = ((struct sockaddr_in *)(void *)&s->remote)->sin_addr;
    return 0;
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (len > sizeof s->remote) return ls_sim_failed(EINVAL);
    if (s->type == SOCK_DGRAM) return connect_datagram(s, to, len);
    if (s->state == CONNECTED) return ls_sim_failed(EISCONN);
    if (s->state == CONNECTING) return ls_sim_failed(EALREADY);
    memset(&s->remote, 0, sizeof s->remote);
    memcpy(&s->remote, to, len);
    s->remote_len = len;
    ls_sim_step("connect", fd, 0);
    if (!s->is_bound) {
        ((struct sockaddr_storage *)&s->local)->ss_family = s->remote.ss_family;
        memcpy(&s->local, &s->remote, len);
        s->local_len = len;
        bind_free_port(s);
    }
    s->state = CONNECTING;
    s->error = 0;
    s->tries = 0;
    s->latency_ns = draw_latency();
    s->refs++;
    if (ls_sim_chance(ls_sim_faults_now.connect_lost))
        ls_sim_at(ls_sim_now_ns() + lost_ns, connect_ends, s, ETIMEDOUT);
    else
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_arrives, s, 0);
    if (!s->file.waits) return ls_sim_failed(EINPROGRESS);
    while (s->state == CONNECTING) (void)ls_sim_wait(&s->file, UINT64_MAX);
    return s->error != 0 ? take_error(s) : 0;
}

static void give_address(const struct sockaddr_storage *from, socklen_t from_len, struct sockaddr *out,
                         socklen_t *out_len)
{
    if (out == NULL || out_len == NULL) return;
    memcpy(out, from, from_len < *out_len ? from_len : *out_len);
    *out_len = from_len;
}

int accept4(int fd, struct sockaddr *from, socklen_t *from_len, int flags)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (s->state != LISTENS) return ls_sim_failed(EINVAL);
    while (s->waiting_count == 0) {
        if (!s->file.waits) return ls_sim_failed(EAGAIN);
        (void)ls_sim_wait(&s->file, UINT64_MAX);
    }
    sock *const accepted = s->waiting[0];
    const bool is_aborted = ls_sim_chance(ls_sim_faults_now.accept_error);
    const int new = is_aborted ? -1 : ls_sim_fd_open(&accepted->file, &sock_kind, !(flags & SOCK_NONBLOCK));
    if (new < 0 && !is_aborted) return ls_sim_failed(EMFILE);
    memmove(s->waiting, s->waiting + 1, --s->waiting_count * sizeof(sock *));
    ls_sim_step("accept", new, s->waiting_count);
    if (is_aborted) {
        accepted->is_closed = true;
        if (accepted->other != NULL) travel(accepted->other, reset_arrives, 0, 0);
        separate(accepted);
        drop(accepted);
        return ls_sim_failed(ECONNABORTED);
    }
    give_address(&accepted->remote, accepted->remote_len, from, from_len);
    return new;
}

int accept(int fd, struct sockaddr *from, socklen_t *from_len)
{
    return accept4(fd, from, from_len, 0);
}

int socketpair(int family, int type, int protocol, int fds[2])
{
    sock *ends[2];
    const int plain = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    (void)protocol;
    ls_sim_call();
    for (int i = 0; i < 2; i++) {
        ends[i] = new_sock(family, plain);
        ends[i]->state = CONNECTED;
        fds[i] = ls_sim_fd_open(&ends[i]->file, &sock_kind, !(type & SOCK_NONBLOCK));
    }
    if (fds[0] < 0 || fds[1] < 0) {
        for (int i = 0; i < 2; i++) fds[i] < 0 ? drop(ends[i]) : (void)close(fds[i]);
        return ls_sim_failed(EMFILE);
    }
    set_link(ends[0], ends[1]);
    (ends[0]->other = ends[1])->refs++;
    (ends[1]->other = ends[0])->refs++;
    return 0;
}

/* A pipe: a pair of which one end only reads, and breaks the other one when it is closed. */
int pipe2(int fds[2], int flags)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | (flags & O_NONBLOCK), 0, fds) < 0) return -1;
    sock *const reads = sock_of(fds[0]);
    reads->has_sent_end = reads->other->has_received_end = reads->resets_at_close = true;
    return 0;
}

int shutdown(int fd, int how)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (s->state != CONNECTED) return ls_sim_failed(ENOTCONN);
    ls_sim_step("shutdown", fd, how);
    if (how != SHUT_RD) send_end(s);
    if (how != SHUT_WR) s->has_received_end = true;
    if (s->has_received_end) ls_sim_changed(&s->file, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
    return 0;
}

static void sock_close(ls_sim_file *file)
{
    sock *const s = (sock *)(void *)file;
    s->is_closed = true;
    for (unsigned i = 0; i < s->waiting_count; i++) {
        sock *const w = s->waiting[i];
        w->is_closed = true;
        if (w->other != NULL) travel(w->other, reset_arrives, 0, 0);
        separate(w);
        drop(w);
    }
    s->waiting_count = 0;
    if (s->type == SOCK_STREAM &&
        (s->state == CONNECTING || (s->state == CONNECTED && (s->readable > 0 || s->resets_at_close)))) {
        if (s->other != NULL) travel(s->other, reset_arrives, 0, 0);
        separate(s);
    } else {
        send_end(s);
        if (s->has_received_end) separate(s); /* both directions have ended */
    }
    drop(s);
}

static unsigned sock_poll(ls_sim_file *file)
{
    const sock *const s = (const sock *)(const void *)file;
    const unsigned error = s->error != 0 ? EPOLLERR : 0;
    if (s->type == SOCK_DGRAM) return (s->datagrams != NULL ? EPOLLIN : 0) | (is_full_pair(s) ? 0 : EPOLLOUT) | error;
    switch (s->state) {
    case UNCONNECTED: return EPOLLOUT | EPOLLHUP | (error != 0 ? EPOLLIN | error : 0);
    case LISTENS: return s->waiting_count > 0 ? EPOLLIN : 0;
    case CONNECTING: return 0;
    case BROKEN: return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | error;
    default:
        return (s->readable > 0 || s->has_received_end ? EPOLLIN : 0) | (s->has_received_end ? EPOLLRDHUP : 0) |
               (s->has_sent_end || s->other == NULL || room(s) >= s->other->queue_bytes / MOST_UNSENT ? EPOLLOUT : 0) |
               (s->has_sent_end && s->has_received_end ? EPOLLHUP : 0) | error;
    }
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

typedef struct flight {
    struct sockaddr_storage to;
    socklen_t to_len;
    sock *sender;
    datagram *d;
} flight;

static void datagram_arrives(void *arg, uint64_t unused)
{
    flight *const f = arg;
    (void)unused;
    sock *s =
        f->sender->family == AF_UNIX && f->to_len == 0 ? f->sender->other : find(SOCK_DGRAM, false, &f->to, f->to_len);
    if (s != NULL && s->state == CONNECTED && s->family != AF_UNIX && !is_same_host(&s->remote, &f->d->from)) s = NULL;
    if (s != NULL && !s->is_closed && s->datagram_count < DATAGRAMS_MAX) {
        *s->datagrams_last = f->d;
        s->datagrams_last = &f->d->next;
        s->datagram_count++;
        ls_sim_changed(&s->file, EPOLLIN);
    } else {
        if (s == NULL && f->sender->state == CONNECTED && !f->sender->is_closed) {
            f->sender->error = ECONNREFUSED; /* ICMP */
            ls_sim_changed(&f->sender->file, EPOLLERR | EPOLLIN | EPOLLOUT);
        }
        free(f->d);
    }
    drop(f->sender);
    free(f);
}

/* One end of a pair waits for the other one (unix(7)); datagrams of the network are dropped instead. */
static bool is_full_pair(const sock *s)
{
    return s->family == AF_UNIX && s->other != NULL && s->other->datagram_count >= PAIR_DATAGRAMS_MAX;
}

static ssize_t datagram_send(sock *s, const struct msghdr *m)
{
    size_t len = 0;
    const bool has_to = m->msg_name != NULL && m->msg_namelen > 0;
    if (s->error != 0) return take_error(s);
    if (!has_to && s->state != CONNECTED) return ls_sim_failed(EDESTADDRREQ);
    if (has_to && m->msg_namelen < sizeof(struct sockaddr_in)) return ls_sim_failed(EINVAL);
    for (size_t i = 0; i < m->msg_iovlen; i++) len += m->msg_iov[i].iov_len;
    if (len > 65507) return ls_sim_failed(EMSGSIZE);
    if (is_full_pair(s)) {
        s->found_no_room = true;
        return ls_sim_failed(EAGAIN);
    }
    if (!s->is_bound && s->family != AF_UNIX) bind_free_port(s);
    if (ls_sim_chance(ls_sim_faults_now.datagram_lost)) return (ssize_t)len;
    for (int copies = ls_sim_chance(ls_sim_faults_now.datagram_doubled) ? 2 : 1; copies > 0; copies--) {
        datagram *const d = malloc(sizeof *d + len);
        flight *const f = calloc(1, sizeof *f);
        char *at = d->bytes;
        *d = (datagram){
            .from = s->local, .from_len = s->family == AF_UNIX && !s->is_bound ? 0 : s->local_len, .len = len};
        f->to_len = has_to ? m->msg_namelen : s->remote_len;
        if (has_to)
            memcpy(&f->to, m->msg_name, m->msg_namelen);
        else
            f->to = s->remote;
        if (is_any(&d->from) && f->to.ss_family == d->from.ss_family) { /* it leaves from the address of the route */
            const uint16_t port = *port_of(&d->from);
            d->from = f->to;
            *port_of(&d->from) = port;
        }
        for (size_t i = 0; i < m->msg_iovlen; at += m->msg_iov[i++].iov_len)
            memcpy(at, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        f->d = d;
        (f->sender = s)->refs++;
        const uint64_t latency_ns = draw_latency();
        if (latency_ns == 0)
            datagram_arrives(f, 0);
        else
            ls_sim_at(ls_sim_now_ns() + latency_ns, datagram_arrives, f, 0);
    }
    return (ssize_t)len;
}

static ssize_t datagram_receive(sock *s, struct msghdr *m, bool peek)
{
    datagram *const d = s->datagrams;
    size_t at = 0;
    if (s->error != 0) return take_error(s);
    if (d == NULL) return ls_sim_failed(EAGAIN);
    for (size_t i = 0; i < m->msg_iovlen && at < d->len; i++) {
        const size_t len = m->msg_iov[i].iov_len < d->len - at ? m->msg_iov[i].iov_len : d->len - at;
        memcpy(m->msg_iov[i].iov_base, d->bytes + at, len);
        at += len;
    }
    m->msg_flags = at < d->len ? MSG_TRUNC : 0;
    m->msg_controllen = 0;
    if (m->msg_name != NULL) give_address(&d->from, d->from_len, m->msg_name, &m->msg_namelen);
    if (peek) return (ssize_t)at;
    if ((s->datagrams = d->next) == NULL) s->datagrams_last = &s->datagrams;
    s->datagram_count--;
    free(d);
    if (s->other != NULL && s->other->found_no_room) {
        s->other->found_no_room = false;
        ls_sim_changed(&s->other->file, EPOLLOUT);
    }
    return (ssize_t)at;
}

/* ---- send and receive ------------------------------------------------------------------------------------------- */

static ssize_t send_one(int fd, const struct msghdr *m, int flags)
{
    sock *const s = sock_of(fd);
    ssize_t n = -1;
    const bool waits = s != NULL && s->file.waits && !(flags & MSG_DONTWAIT);
    if (s == NULL) return -1;
    do n = s->type == SOCK_DGRAM ? datagram_send(s, m) : stream_send(s, m->msg_iov, m->msg_iovlen);
    while (n < 0 && errno == EAGAIN && waits && ls_sim_wait(&s->file, UINT64_MAX));
    ls_sim_step("send", fd, n);
    return n;
}

static ssize_t receive_one(int fd, struct msghdr *m, int flags)
{
    sock *const s = sock_of(fd);
    ssize_t n = -1;
    const bool waits = s != NULL && s->file.waits && !(flags & MSG_DONTWAIT);
    if (s == NULL) return -1;
    m->msg_flags = 0;
    do
        n = s->type == SOCK_DGRAM ? datagram_receive(s, m, flags & MSG_PEEK)
                                  : stream_receive(s, m->msg_iov, m->msg_iovlen, flags & MSG_PEEK);
    while (n < 0 && errno == EAGAIN && waits && ls_sim_wait(&s->file, UINT64_MAX));
    ls_sim_step("receive", fd, n);
    return n;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ls_sim_call();
    return send_one(fd, m, flags);
}

ssize_t sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec vector = {(void *)from, len};
    const struct msghdr m = {.msg_name = (void *)to, .msg_namelen = to_len, .msg_iov = &vector, .msg_iovlen = 1};
    ls_sim_call();
    return send_one(fd, &m, flags);
}

ssize_t send(int fd, const void *from, size_t len, int flags)
{
    return sendto(fd, from, len, flags, NULL, 0);
}

ssize_t recvfrom(int fd, void *restrict to, size_t len, int flags, struct sockaddr *restrict from,
                 socklen_t *restrict from_len)
{
    struct iovec vector = {to, len};
    struct msghdr m = {
        .msg_name = from, .msg_namelen = from_len != NULL ? *from_len : 0, .msg_iov = &vector, .msg_iovlen = 1};
    ls_sim_call();
    const ssize_t n = receive_one(fd, &m, flags);
    if (n >= 0 && from_len != NULL) *from_len = m.msg_namelen;
    return n;
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
    return recvfrom(fd, to, len, flags, NULL, NULL);
}

int sendmmsg(int fd, struct mmsghdr *m, unsigned count, int flags)
{
    unsigned n = 0;
    ls_sim_call();
    for (; n < count; n++) {
        const ssize_t len = send_one(fd, &m[n].msg_hdr, flags);
        if (len < 0) break;
        m[n].msg_len = (unsigned)len;
    }
    return n > 0 ? (int)n : -1;
}

int recvmmsg(int fd, struct mmsghdr *m, unsigned count, int flags, struct timespec *timeout)
{
    unsigned n = 0;
    (void)timeout;
    ls_sim_call();
    for (; n < count; n++) {
        const ssize_t len = receive_one(fd, &m[n].msg_hdr, n > 0 ? flags | MSG_DONTWAIT : flags);
        if (len < 0) break;
        m[n].msg_len = (unsigned)len;
    }
    return n > 0 ? (int)n : -1;
}

static ssize_t sock_read(ls_sim_file *file, void *to, size_t len)
{
    sock *const s = (sock *)(void *)file;
    struct iovec vector = {to, len};
    return stream_receive(s, &vector, 1, false);
}

static ssize_t sock_write(ls_sim_file *file, const void *from, size_t len)
{
    sock *const s = (sock *)(void *)file;
    struct iovec vector = {(void *)from, len};
    return stream_send(s, &vector, 1);
}

static const ls_sim_kind sock_kind = {
    .name = "socket", .poll = sock_poll, .read = sock_read, .write = sock_write, .close = sock_close};

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
    enum { PART = 16384 };
    char part[PART];
    ls_sim_call();
    sock *const s = sock_of(to);
    if (s == NULL) return -1;
    if (s->state == CONNECTED && s->other != NULL && room(s) == 0) {
        s->found_no_room = true;
        return ls_sim_failed(EAGAIN);
    }
    if (s->state == CONNECTED && s->other != NULL && room(s) < count) count = room(s);
    const ssize_t n = pread(from, part, count < PART ? count : PART, *offset);
    if (n <= 0) return n;
    const ssize_t sent =
        send_one(to, &(struct msghdr){.msg_iov = &(struct iovec){part, (size_t)n}, .msg_iovlen = 1}, 0);
    if (sent > 0) *offset += sent;
    return sent;
}

/* ---- names and options ------------------------------------------------------------------------------------------ */

int getsockname(int fd, struct sockaddr *restrict out, socklen_t *restrict len)
{
    const sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    give_address(&s->local, s->local_len, out, len);
    return 0;
}

int getpeername(int fd, struct sockaddr *restrict out, socklen_t *restrict len)
{
    const sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (s->state != CONNECTED) return ls_sim_failed(ENOTCONN);
    give_address(&s->remote, s->remote_len, out, len);
    return 0;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (level == SOL_SOCKET && name == SO_REUSEPORT && len >= sizeof(int)) s->reuses_port = *(const int *)value != 0;
    if (level == SOL_SOCKET && name == SO_LINGER && len >= sizeof(struct linger))
        s->resets_at_close =
            ((const struct linger *)value)->l_onoff != 0 && ((const struct linger *)value)->l_linger == 0;
    return 0; /* the others change nothing that can be seen here */
}

int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
    sock *const s = sock_of(fd);
    int result = 0;
    if (s == NULL) return -1;
    if (level == IPPROTO_UDP) return ls_sim_failed(ENOPROTOOPT); /* no segments: UDP_SEGMENT of udp(7) */
    if (level == SOL_SOCKET && name == SO_ERROR) {
        result = s->error;
        s->error = 0;
    } else if (level == SOL_SOCKET && name == SO_TYPE) {
        result = s->type;
    }
    memset(value, 0, *len);
    memcpy(value, &result, *len < sizeof result ? *len : sizeof result);
    return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    va_start(args, request);
    void *const value = va_arg(args, void *);
    va_end(args);
    if (!ls_sim_fd_is(fd)) return (int)ls_sim_result(ls_sim_syscall(SYS_ioctl, fd, (long)request, (long)value, 0, 0, 0));
    const sock *const s = sock_of(fd);
    if (s == NULL || request != FIONREAD) return ls_sim_failed(ENOTTY);
    *(int *)value = s->type == SOCK_DGRAM ? (s->datagrams != NULL ? (int)s->datagrams->len : 0) : (int)s->readable;
    return 0;
}

/* The back end makes the calls of each request without the C library (epoll_syscall.h). */
long syscall(long number, ...)
{
    va_list args;
    long a[6];
    va_start(args, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(args, long);
    va_end(args);
    switch (number) {
    case SYS_recvfrom: return recvfrom((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (void *)a[5]);
    case SYS_sendto: return sendto((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (void *)a[4], (socklen_t)a[5]);
    case SYS_recvmmsg: return recvmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3], NULL);
    case SYS_sendmmsg: return sendmmsg((int)a[0], (void *)a[1], (unsigned)a[2], (int)a[3]);
    case SYS_epoll_pwait: return epoll_wait((int)a[0], (void *)a[1], (int)a[2], (int)a[3]);
    case SYS_gettid: return getpid() + (long)ls_sim_thread_number();
    case SYS_membarrier:
    case SYS_sched_setattr: return 0; /* one thread runs at a time */
    default: break;
    }
    return ls_sim_result(ls_sim_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
