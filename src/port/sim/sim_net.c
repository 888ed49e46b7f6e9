/* sim_net.c - sockets: their addresses, connections, datagrams and calls. See sim.h; sim_stream.c has the bytes of a
 * connection. All sockets of the world are on one machine; an address belongs to the socket that is bound to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "port/sim/sim_socket.h"

enum { DATAGRAMS_MAX = 256, PAIR_DATAGRAMS_MAX = 10, FIRST_PORT = 32768, PORTS = 28000, SYN_TRIES = 6 };
static const uint64_t second_ns = 1000000000, lost_ns = UINT64_C(127000000000); /* tcp_syn_retries of tcp(7) */

typedef ls_sim_socket sock;
typedef ls_sim_addr addr;

typedef struct ls_sim_datagram {
    struct ls_sim_datagram *next;
    sock *sender;
    addr from, to;
    size_t len;
    char bytes[];
} datagram;

static const ls_sim_kind sock_kind;
static bool is_full_pair(const sock *s);
ls_sim_socket *ls_sim_sockets;
static unsigned next_port;

/* ---- sockets ---------------------------------------------------------------------------------------------------- */

static sock *new_sock(int family, int type)
{
    sock *const s = calloc(1, sizeof *s);
    *s = (sock){.next = ls_sim_sockets, .refs = 1, .family = family, .type = type};
    s->local.family = (sa_family_t)family;
    s->local.len = family == AF_INET    ? sizeof(struct sockaddr_in)
                   : family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                        : sizeof(sa_family_t);
    s->datagrams_last = &s->datagrams;
    ls_sim_sockets = s;
    return s;
}

void ls_sim_socket_drop(sock *s)
{
    if (--s->refs > 0) return;
    sock **at = &ls_sim_sockets;
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

int ls_sim_socket_take_error(sock *s)
{
    const int error = s->error;
    s->error = 0;
    return ls_sim_failed(error);
}

static in_port_t *port_of(addr *at)
{
    return at->family == AF_INET ? &at->in.sin_port : &at->in6.sin6_port;
}

static bool is_any(const addr *at)
{
    return at->family == AF_INET ? at->in.sin_addr.s_addr == INADDR_ANY
                                 : at->family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&at->in6.sin6_addr);
}

static bool is_same_host(const addr *a, const addr *b)
{
    if (a->family != b->family) return false;
    return a->family == AF_INET ? a->in.sin_addr.s_addr == b->in.sin_addr.s_addr
                                : IN6_ARE_ADDR_EQUAL(&a->in6.sin6_addr, &b->in6.sin6_addr);
}

static bool has_port(const addr *a, const addr *b)
{
    return *port_of((addr *)a) == *port_of((addr *)b);
}

/* Whether a socket that is bound to `local` receives what is sent to `to`. */
static bool is_at(const sock *s, const addr *to)
{
    if (!s->is_bound || s->is_closed || (s->family == AF_UNIX) != (to->family == AF_UNIX)) return false;
    if (to->family == AF_UNIX) return s->local.len == to->len && memcmp(&s->local.any, &to->any, to->len) == 0;
    if (!has_port(&s->local, to)) return false;
    return (is_any(&s->local) && (s->family == to->family || s->family == AF_INET6)) || is_same_host(&s->local, to);
}

static sock *find(int type, bool listens, const addr *to)
{
    for (sock *s = ls_sim_sockets; s != NULL; s = s->next)
        if (s->type == type && (s->state == LISTENS) == listens && (type != SOCK_STREAM || listens) && is_at(s, to))
            return s;
    return NULL;
}

static addr addr_of(const struct sockaddr *from, socklen_t len)
{
    addr to = {.len = len};
    memcpy(&to.any, from, len);
    return to;
}

static void give_address(const addr *from, struct sockaddr *out, socklen_t *out_len)
{
    if (out == NULL || out_len == NULL) return;
    memcpy(out, &from->any, from->len < *out_len ? from->len : *out_len);
    *out_len = from->len;
}

int socket(int family, int type, int protocol)
{
    (void)protocol;
    ls_sim_call();
    if (family != AF_INET && family != AF_INET6 && family != AF_UNIX) return ls_sim_failed(EAFNOSUPPORT);
    sock *const s = new_sock(family, type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int fd = ls_sim_fd_open(&s->file, &sock_kind, !(type & SOCK_NONBLOCK));
    if (fd < 0) {
        ls_sim_socket_drop(s);
        return ls_sim_failed(EMFILE);
    }
    ls_sim_step("socket", fd, type);
    return fd;
}

/* A port that no socket of this type has. */
static void bind_free_port(sock *s)
{
    do *port_of(&s->local) = htons((uint16_t)(FIRST_PORT + next_port++ % PORTS));
    while (find(s->type, s->type == SOCK_STREAM, &s->local) != NULL);
    s->is_bound = true;
}

/* Another socket has what `s` would be bound to. */
static bool is_taken(const sock *other, const sock *s, const addr *at)
{
    if (other->type != s->type || other->family != s->family || !other->is_bound || other->is_closed ||
        other->state == CONNECTED || other->state == BROKEN || (other->reuses_port && s->reuses_port))
        return false;
    return is_at(other, at) || (s->family != AF_UNIX && is_any(at) && has_port(&other->local, at));
}

int bind(int fd, const struct sockaddr *at, socklen_t len)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (s->is_bound || len > sizeof s->local.any) return ls_sim_failed(EINVAL);
    if (at->sa_family != s->family) return ls_sim_failed(EAFNOSUPPORT);
    addr to = addr_of(at, len);
    const bool is_free_port = s->family != AF_UNIX && *port_of(&to) == 0;
    for (const sock *other = ls_sim_sockets; other != NULL && !is_free_port; other = other->next)
        if (is_taken(other, s, &to)) return ls_sim_failed(EADDRINUSE);
    s->local = to;
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

/* ---- connect and accept ----------------------------------------------------------------------------------------- */

static void connect_ends(void *arg, uint64_t error)
{
    sock *const s = arg;
    if (s->state == CONNECTING && !s->is_closed) {
        s->state = error == 0 ? CONNECTED : UNCONNECTED;
        s->error = (int)error;
        if (error != 0) ls_sim_stream_part(s);
        ls_sim_step("connect ends", (int64_t)error, 0);
        ls_sim_changed(&s->file, error == 0 ? EPOLLOUT : EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    }
    ls_sim_socket_drop(s);
}

static void make_accepted(sock *s, sock *listener)
{
    sock *const accepted = new_sock(listener->family, listener->type);
    accepted->state = CONNECTED;
    accepted->is_bound = true;
    accepted->local = s->remote;
    accepted->remote = s->local;
    ls_sim_stream_link(s, accepted);
    listener->waiting[listener->waiting_count++] = accepted; /* the reference of new_sock */
    ls_sim_changed(&listener->file, EPOLLIN);
}

/* Of a listener that does not accept it. */
static void refuse(sock *accepted)
{
    accepted->is_closed = true;
    ls_sim_stream_reset(accepted);
    ls_sim_socket_drop(accepted);
}

static void connect_arrives(void *arg, uint64_t unused)
{
    sock *const s = arg;
    sock *const listener = find(SOCK_STREAM, true, &s->remote);
    (void)unused;
    if (s->is_closed || s->state != CONNECTING) {
        ls_sim_socket_drop(s);
    } else if (listener == NULL || ls_sim_chance(ls_sim_faults_now.connect_refused)) {
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_ends, s, ECONNREFUSED);
    } else if (listener->waiting_count < listener->waiting_max) {
        make_accepted(s, listener);
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_ends, s, 0);
        if (s->latest_ns < ls_sim_now_ns() + s->latency_ns) s->latest_ns = ls_sim_now_ns() + s->latency_ns;
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
    s->remote = addr_of(to, len);
    if (!s->is_bound && s->family != AF_UNIX) bind_free_port(s);
    if (s->family == AF_INET && is_any(&s->local)) s->local.in.sin_addr = s->remote.in.sin_addr;
    return 0;
}

int connect(int fd, const struct sockaddr *to, socklen_t len)
{
    ls_sim_call();
    sock *const s = sock_of(fd);
    if (s == NULL) return -1;
    if (len > sizeof s->remote.any) return ls_sim_failed(EINVAL);
    if (s->type == SOCK_DGRAM) return connect_datagram(s, to, len);
    if (s->state == CONNECTED) return ls_sim_failed(EISCONN);
    if (s->state == CONNECTING) return ls_sim_failed(EALREADY);
    s->remote = addr_of(to, len);
    ls_sim_step("connect", fd, 0);
    if (!s->is_bound) {
        s->local = s->remote;
        bind_free_port(s);
    }
    s->state = CONNECTING;
    s->error = 0;
    s->tries = 0;
    s->latency_ns = ls_sim_latency_ns();
    s->refs++;
    if (ls_sim_chance(ls_sim_faults_now.connect_lost))
        ls_sim_at(ls_sim_now_ns() + lost_ns, connect_ends, s, ETIMEDOUT);
    else
        ls_sim_at(ls_sim_now_ns() + s->latency_ns, connect_arrives, s, 0);
    if (!s->file.waits) return ls_sim_failed(EINPROGRESS);
    while (s->state == CONNECTING) (void)ls_sim_wait(&s->file, UINT64_MAX);
    return s->error != 0 ? ls_sim_socket_take_error(s) : 0;
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
        refuse(accepted);
        return ls_sim_failed(ECONNABORTED);
    }
    give_address(&accepted->remote, from, from_len);
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
        for (int i = 0; i < 2; i++) fds[i] < 0 ? ls_sim_socket_drop(ends[i]) : (void)close(fds[i]);
        return ls_sim_failed(EMFILE);
    }
    ls_sim_stream_link(ends[0], ends[1]);
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
    if (how != SHUT_RD) ls_sim_stream_end(s);
    if (how != SHUT_WR) s->has_received_end = true;
    if (s->has_received_end) ls_sim_changed(&s->file, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
    return 0;
}

static void sock_close(ls_sim_file *file)
{
    sock *const s = (sock *)(void *)file;
    s->is_closed = true;
    for (unsigned i = 0; i < s->waiting_count; i++) refuse(s->waiting[i]);
    s->waiting_count = 0;
    if (s->type == SOCK_STREAM &&
        (s->state == CONNECTING || (s->state == CONNECTED && (s->readable > 0 || s->resets_at_close)))) {
        ls_sim_stream_reset(s);
    } else {
        ls_sim_stream_end(s);
        if (s->has_received_end) ls_sim_stream_part(s); /* both directions have ended */
    }
    ls_sim_socket_drop(s);
}

static unsigned sock_poll(ls_sim_file *file)
{
    const sock *const s = (const sock *)(const void *)file;
    const unsigned error = s->error != 0 ? EPOLLERR : 0;
    if (s->type == SOCK_DGRAM)
        return (s->datagrams != NULL ? EPOLLIN : 0) |
               (is_full_pair(s) || (s->family != AF_UNIX && s->found_no_room) ? 0 : EPOLLOUT) | error;
    switch (s->state) {
    case UNCONNECTED: return EPOLLOUT | EPOLLHUP | (error != 0 ? EPOLLIN | error : 0);
    case LISTENS: return s->waiting_count > 0 ? EPOLLIN : 0;
    case CONNECTING: return 0;
    case BROKEN: return EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | error;
    default:
        return (s->readable > 0 || s->has_received_end ? EPOLLIN : 0) | (s->has_received_end ? EPOLLRDHUP : 0) |
               (s->has_sent_end || ls_sim_stream_has_room(s) ? EPOLLOUT : 0) |
               (s->has_sent_end && s->has_received_end ? EPOLLHUP : 0) | error;
    }
}

/* ---- datagrams -------------------------------------------------------------------------------------------------- */

static void datagram_arrives(void *arg, uint64_t unused)
{
    datagram *const d = arg;
    sock *const sender = d->sender;
    (void)unused;
    sock *s = sender->family == AF_UNIX && d->to.len == 0 ? sender->other : find(SOCK_DGRAM, false, &d->to);
    if (s != NULL && s->state == CONNECTED && s->family != AF_UNIX && !is_same_host(&s->remote, &d->from)) s = NULL;
    if (s != NULL && !s->is_closed && s->datagram_count < DATAGRAMS_MAX) {
        *s->datagrams_last = d;
        s->datagrams_last = &d->next;
        s->datagram_count++;
        ls_sim_changed(&s->file, EPOLLIN);
    } else {
        if (s == NULL && sender->state == CONNECTED && !sender->is_closed) {
            sender->error = ECONNREFUSED; /* ICMP */
            ls_sim_changed(&sender->file, EPOLLERR | EPOLLIN | EPOLLOUT);
        }
        free(d);
    }
    ls_sim_socket_drop(sender);
}

/* One end of a pair waits for the other one (unix(7)); datagrams of the network are dropped instead. */
static bool is_full_pair(const sock *s)
{
    return s->family == AF_UNIX && s->other != NULL && s->other->datagram_count >= PAIR_DATAGRAMS_MAX;
}

/* The system has sent what was queued before. */
static void datagram_room_comes(void *arg, uint64_t unused)
{
    sock *const s = arg;
    (void)unused;
    s->found_no_room = false;
    if (!s->is_closed) ls_sim_changed(&s->file, EPOLLOUT);
    ls_sim_socket_drop(s);
}

static ssize_t datagram_send(sock *s, const struct msghdr *m)
{
    size_t len = 0;
    const bool has_to = m->msg_name != NULL && m->msg_namelen > 0;
    if (s->error != 0) return ls_sim_socket_take_error(s);
    if (!has_to && s->state != CONNECTED) return ls_sim_failed(EDESTADDRREQ);
    if (has_to && m->msg_namelen < sizeof(struct sockaddr_in)) return ls_sim_failed(EINVAL);
    for (size_t i = 0; i < m->msg_iovlen; i++) len += m->msg_iov[i].iov_len;
    if (len > 65507) return ls_sim_failed(EMSGSIZE);
    if (is_full_pair(s)) s->found_no_room = true;
    if (is_full_pair(s) || (s->family != AF_UNIX && s->found_no_room)) return ls_sim_failed(EAGAIN);
    if (!s->is_bound && s->family != AF_UNIX) bind_free_port(s);
    if (s->family != AF_UNIX && ls_sim_chance(ls_sim_faults_now.datagram_late)) {
        s->found_no_room = true;
        s->refs++;
        ls_sim_at(ls_sim_now_ns() + 1 + ls_sim_latency_ns(), datagram_room_comes, s, 0);
        return ls_sim_failed(EAGAIN);
    }
    if (ls_sim_chance(ls_sim_faults_now.datagram_lost)) return (ssize_t)len;
    for (int copies = ls_sim_chance(ls_sim_faults_now.datagram_doubled) ? 2 : 1; copies > 0; copies--) {
        datagram *const d = malloc(sizeof *d + len);
        char *at = d->bytes;
        *d = (datagram){.sender = s, .from = s->local, .to = s->remote, .len = len};
        if (s->family == AF_UNIX && !s->is_bound) d->from.len = 0;
        if (has_to) d->to = addr_of(m->msg_name, m->msg_namelen);
        if (is_any(&d->from) && d->to.family == d->from.family) { /* it leaves from the address of the route */
            d->from = d->to;
            *port_of(&d->from) = *port_of(&s->local);
        }
        for (size_t i = 0; i < m->msg_iovlen; at += m->msg_iov[i++].iov_len)
            memcpy(at, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
        s->refs++;
        const uint64_t latency_ns = ls_sim_latency_ns();
        if (latency_ns == 0)
            datagram_arrives(d, 0);
        else
            ls_sim_at(ls_sim_now_ns() + latency_ns, datagram_arrives, d, 0);
    }
    return (ssize_t)len;
}

static ssize_t datagram_receive(sock *s, struct msghdr *m, bool peek)
{
    datagram *const d = s->datagrams;
    size_t at = 0;
    if (s->error != 0) return ls_sim_socket_take_error(s);
    if (d == NULL) return ls_sim_failed(EAGAIN);
    for (size_t i = 0; i < m->msg_iovlen && at < d->len; i++) {
        const size_t len = m->msg_iov[i].iov_len < d->len - at ? m->msg_iov[i].iov_len : d->len - at;
        memcpy(m->msg_iov[i].iov_base, d->bytes + at, len);
        at += len;
    }
    m->msg_flags = at < d->len ? MSG_TRUNC : 0;
    m->msg_controllen = 0;
    if (m->msg_name != NULL) give_address(&d->from, m->msg_name, &m->msg_namelen);
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

static ssize_t transfer(int fd, struct msghdr *m, int flags, bool sends)
{
    sock *const s = sock_of(fd);
    ssize_t n;
    if (s == NULL) return -1;
    const bool waits = s->file.waits && !(flags & MSG_DONTWAIT), peeks = flags & MSG_PEEK;
    if (!sends) m->msg_flags = 0;
    do
        if (s->type == SOCK_DGRAM)
            n = sends ? datagram_send(s, m) : datagram_receive(s, m, peeks);
        else
            n = sends ? ls_sim_stream_send(s, m->msg_iov, m->msg_iovlen)
                      : ls_sim_stream_receive(s, m->msg_iov, m->msg_iovlen, peeks);
    while (n < 0 && errno == EAGAIN && waits && ls_sim_wait(&s->file, UINT64_MAX));
    ls_sim_step(sends ? "send" : "receive", fd, n);
    return n;
}

/* Only the first message may be awaited. */
static int transfer_many(int fd, struct mmsghdr *m, unsigned count, int flags, bool sends)
{
    unsigned n = 0;
    ls_sim_call();
    for (ssize_t len; n < count; m[n++].msg_len = (unsigned)len)
        if ((len = transfer(fd, &m[n].msg_hdr, n > 0 && !sends ? flags | MSG_DONTWAIT : flags, sends)) < 0) break;
    return n > 0 ? (int)n : -1;
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ls_sim_call();
    return transfer(fd, (struct msghdr *)m, flags, true);
}

ssize_t sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    struct iovec vector = {(void *)from, len};
    return sendmsg(
        fd, &(struct msghdr){.msg_name = (void *)to, .msg_namelen = to_len, .msg_iov = &vector, .msg_iovlen = 1},
        flags);
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
    const ssize_t n = transfer(fd, &m, flags, false);
    if (n >= 0 && from_len != NULL) *from_len = m.msg_namelen;
    return n;
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
    return recvfrom(fd, to, len, flags, NULL, NULL);
}

int sendmmsg(int fd, struct mmsghdr *m, unsigned count, int flags)
{
    return transfer_many(fd, m, count, flags, true);
}

int recvmmsg(int fd, struct mmsghdr *m, unsigned count, int flags, struct timespec *timeout)
{
    (void)timeout;
    return transfer_many(fd, m, count, flags, false);
}

static ssize_t sock_transfer(ls_sim_file *file, const struct iovec *bytes, bool writes)
{
    sock *const s = (sock *)(void *)file;
    return writes ? ls_sim_stream_send(s, bytes, 1) : ls_sim_stream_receive(s, bytes, 1, false);
}

static const ls_sim_kind sock_kind = {.poll = sock_poll, .transfer = sock_transfer, .close = sock_close};

ssize_t sendfile(int to, int from, off_t *offset, size_t count)
{
    enum { PART = 16384 };
    char part[PART];
    ls_sim_call();
    sock *const s = sock_of(to);
    if (s == NULL) return -1;
    const size_t room = s->state == CONNECTED && s->other != NULL ? ls_sim_stream_room(s) : PART;
    if (room == 0) s->found_no_room = true;
    if (room == 0) return ls_sim_failed(EAGAIN);
    if (count > room) count = room;
    const ssize_t n = pread(from, part, count < PART ? count : PART, *offset);
    if (n <= 0) return n;
    const ssize_t sent =
        transfer(to, &(struct msghdr){.msg_iov = &(struct iovec){part, (size_t)n}, .msg_iovlen = 1}, 0, true);
    if (sent > 0) *offset += sent;
    return sent;
}

/* ---- names and options ------------------------------------------------------------------------------------------ */

int getsockname(int fd, struct sockaddr *restrict out, socklen_t *restrict len)
{
    const sock *const s = sock_of(fd);
    if (s != NULL) give_address(&s->local, out, len);
    return s != NULL ? 0 : -1;
}

int getpeername(int fd, struct sockaddr *restrict out, socklen_t *restrict len)
{
    const sock *const s = sock_of(fd);
    if (s != NULL && s->state != CONNECTED) return ls_sim_failed(ENOTCONN);
    if (s != NULL) give_address(&s->remote, out, len);
    return s != NULL ? 0 : -1;
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
    if (!ls_sim_fd_is(fd))
        return (int)ls_sim_result(ls_sim_syscall(SYS_ioctl, fd, (long)request, (long)value, 0, 0, 0));
    const sock *const s = sock_of(fd);
    if (s == NULL || request != FIONREAD) return ls_sim_failed(ENOTTY);
    *(int *)value = s->type == SOCK_DGRAM ? (s->datagrams != NULL ? (int)s->datagrams->len : 0) : (int)s->readable;
    return 0;
}
