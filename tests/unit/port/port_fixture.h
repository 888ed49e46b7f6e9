/* port_fixture.h - what the tests of the port share: a port with one thread context, sockets made by POSIX calls, and
 * operations whose packets the test takes itself. Include it first. */
#ifndef TESTS_UNIT_PORT_PORT_FIXTURE_H
#define TESTS_UNIT_PORT_PORT_FIXTURE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "port/port.h"
#include "support.h"

typedef struct net_place { /* a port, and a thread context at it for the test's own thread */
    ls_port *port;
    ls_pools *pools;
    ls_thread_ctx ctx;
} net_place;

static inline void net_ctx_open(net_place *place, ls_thread_ctx *ctx, unsigned index)
{
    ls_pool *pool;
    assert_int_equal(ls_pool_open(place->pools, &pool), LS_OK);
    ls_pool_enter(pool);
    ls_thread_ctx_init(ctx, place->port, pool, index);
}

/* Sit at another port from now on. */
static inline void net_use(net_place *place, ls_port *port)
{
    place->port = port;
    ls_thread_ctx_init(&place->ctx, port, place->ctx.pool, 0);
}

static inline void net_place_open(net_place *place)
{
    const ls_port_options options = {.sockets_max = 512};
    assert_int_equal(ls_port_open(&options, &place->port), LS_OK);
    assert_int_equal(ls_pools_open(64u << 20, &place->pools), LS_OK);
    net_ctx_open(place, &place->ctx, 0);
}

/* Close the port. Its queue may hold the packet of a timer that nobody needs any more. */
static inline void net_place_release(net_place *place)
{
    ls_pools_stats stats;
    ls_pools_stat(place->pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    ls_port_close(place->port);
    ls_pool_close(place->ctx.pool);
    ls_pools_close(place->pools);
}

/* Close the port when no packet is left over. */
static inline void net_place_close(net_place *place)
{
    ls_packet packet;
    assert_int_equal(ls_port_wait(place->port, &place->ctx, &packet, 1, 0), 0);
    net_place_release(place);
}

/* Wait for the next packet, at most 30 s; an op with an actor is the caller's to dispatch. */
static inline ls_packet net_next(net_place *place)
{
    ls_packet packet = {.op = NULL};
    int n = 0;
    for (int i = 0; i < 300 && n == 0; i++) n = ls_port_wait(place->port, &place->ctx, &packet, 1, 100);
    assert_int_equal(n, 1);
    return packet;
}

/* Nothing comes within ms. */
static inline void net_quiet(net_place *place, int ms)
{
    ls_packet packet;
    assert_int_equal(ls_port_wait(place->port, &place->ctx, &packet, 1, ms), 0);
}

static inline void net_nonblocking(int fd)
{
    assert_true(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) >= 0);
}

/* A connected stream pair: ours non-blocking for the port, theirs blocking for the test. */
static inline void net_pair(int *ours, int *theirs)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    net_nonblocking(fds[0]);
    *ours = fds[0];
    *theirs = fds[1];
}

/* A TCP listener on a free port of 127.0.0.1, non-blocking; *at is its address. */
static inline int net_listen(ls_sockaddr *at)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *at = (ls_sockaddr){.len = len};
    memcpy(at->bytes, &in, len);
    return fd;
}

static inline int net_tcp(void) /* an unconnected, non-blocking socket */
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

static inline int net_dial(const ls_sockaddr *to) /* connected and blocking */
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)to->bytes, to->len), 0);
    return fd;
}

/* A connected TCP pair through a listener of its own, with buffers that a few hundred KiB fill. */
static inline void net_tcp_pair(int *ours, int *theirs)
{
    ls_sockaddr at;
    const int listener = net_listen(&at);
    *theirs = net_dial(&at);
    do *ours = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (*ours < 0);
    close(listener);
    assert_int_equal(setsockopt(*ours, SOL_SOCKET, SO_SNDBUF, &(int){65536}, sizeof(int)), 0);
    assert_int_equal(setsockopt(*theirs, SOL_SOCKET, SO_RCVBUF, &(int){65536}, sizeof(int)), 0);
}

static inline ls_sock *net_attach(net_place *place, int fd, bool fresh)
{
    ls_sock *sock;
    assert_int_equal(ls_sock_attach(place->port, fd, fresh, &sock), LS_OK);
    return sock;
}

static inline void net_write(int fd, const void *bytes, size_t len)
{
    assert_int_equal(write(fd, bytes, len), len);
}

/* Read exactly len bytes from a blocking socket. */
static inline void net_read(int fd, void *bytes, size_t len)
{
    for (size_t got = 0; got < len;) {
        const ssize_t n = read(fd, (char *)bytes + got, len - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
}

/* For ls_thread_start(): read this many bytes. */
typedef struct net_reader {
    int fd;
    size_t len;
    char *bytes;
} net_reader;

static inline void net_reader_main(void *arg)
{
    net_reader *r = arg;
    net_read(r->fd, r->bytes, r->len);
}

/* ---- operations whose packets the test takes itself
 * -------------------------------------------------------------- */

static inline void op_done_unexpectedly(ls_thread_ctx *ctx, ls_op *op)
{
    fail();
}

static inline ls_op op_new(void)
{
    return (ls_op){.done = op_done_unexpectedly};
}

/* The next packet is that of `op`, with this result. */
static inline void expect_packet(net_place *place, const ls_op *op, int64_t result)
{
    const ls_packet packet = net_next(place);
    assert_ptr_equal(packet.op, op);
    assert_null(packet.key);
    assert_int_equal(packet.result, result);
    assert_int_equal(atomic_load(&op->result), result);
}

static inline uint64_t blocks_live(net_place *place)
{
    ls_pools_stats stats;
    ls_pools_stat(place->pools, &stats);
    return stats.blocks_live;
}

/* Allocated bytes that depend on their place and on `seed`. */
static inline char *pattern(size_t len, unsigned seed)
{
    char *bytes = malloc(len);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)((i * 7 + i / 251 + seed) & 255);
    return bytes;
}

/* ---- a connection at a port of its own
 * ---------------------------------------------------------------------------- */

/* Open a port and attach one end of a stream pair to it; *theirs is the other end, blocking. */
static inline ls_sock *net_conn_open(net_place *place, int *theirs)
{
    int ours;
    net_place_open(place);
    net_pair(&ours, theirs);
    return net_attach(place, ours, false);
}

/* The same with a TCP connection. */
static inline ls_sock *net_tcp_conn_open(net_place *place, int *theirs)
{
    int ours;
    net_place_open(place);
    net_tcp_pair(&ours, theirs);
    return net_attach(place, ours, false);
}

/* Close both ends and the port. theirs < 0: the peer's end is closed already. */
static inline void net_conn_close(net_place *place, ls_sock *sock, int theirs)
{
    ls_sock_close(&place->ctx, sock);
    if (theirs >= 0) close(theirs);
    net_place_close(place);
}

#endif
