/* sock_fixture.h - ls.tcp connections for one test: the test acts as the listener of a site, and the peers are the
 * other ends of socket pairs. Bytes that a peer writes are available at once, so each piece that is written and
 * then pumped is received by itself: the test decides where one block ends and the next begins. */
#ifndef LS_TESTS_SUPPORT_SOCK_H
#define LS_TESTS_SUPPORT_SOCK_H

#define _GNU_SOURCE /* mkstemp */
#include "script/site_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

typedef struct sock_fixture {
    test_site *t;
    ls_conn_limit conn_limit;
    ls_tcp_server *server;
    int peer; /* of `served` */
} sock_fixture;

enum { FIXTURE_CONNECTIONS_MAX = 100, FIXTURE_PATIENCE_MS = 10000 };

/* `serve` is the body of function(sock). It may use show() of site_fixture.lua. `options` are the
 * fields of the table for core.tcp that differ from those below. */
static inline void fixture_open(sock_fixture *fixture, const char *options, const char *serve)
{
    static const char frame[] =
        "core.tcp{ host = '127.0.0.1', port = 0, receive_ms_max = 60000, send_ms_max = 60000, write_bytes_high = "
        "262144, "
        "queue_bytes_max = 1048576, line_bytes_max = 65536, message_bytes_max = 8388608, serve = function(sock)\n%s\n"
        "end, %s }";
    const size_t room = sizeof frame + strlen(options) + strlen(serve);
    char *text = malloc(room);
    assert_non_null(text);
    (void)snprintf(text, room, frame, serve, options);
    fixture->peer = -1;
    fixture->t = test_site_open(text);
    free(text);
    if (fixture->t->opened != LS_OK) fail_msg("the site does not load: %s", fixture->t->message);
    ls_conn_limit_open(&fixture->conn_limit, FIXTURE_CONNECTIONS_MAX);
    fixture->server = ls_site_tcp_server(fixture->t->site, 0, &fixture->conn_limit);
}

/* Dispatch packets until the queue is empty. */
static inline void fixture_pump(const sock_fixture *fixture)
{
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    int count;
    while ((count = ls_port_wait(fixture->t->port, &fixture->t->ctx, packets, LS_WAIT_PACKETS_MAX, 0)) > 0)
        for (int n = 0; n < count; n++) ls_packet_dispatch(&fixture->t->ctx, &packets[n]);
}

/* Wait for packets and dispatch them until `line` has been logged. */
static inline void fixture_await(const sock_fixture *fixture, const char *line)
{
    const uint64_t until_ns = ls_clock_ns() + FIXTURE_PATIENCE_MS * UINT64_C(1000000);
    while (strstr(fixture->t->log, line) == NULL) {
        ls_packet packet;
        if (ls_clock_ns() > until_ns) fail_msg("not logged: %s\n%s", line, fixture->t->log);
        if (ls_port_wait(fixture->t->port, &fixture->t->ctx, &packet, 1, 20) > 0)
            ls_packet_dispatch(&fixture->t->ctx, &packet);
    }
}

static inline bool fixture_logged(const sock_fixture *fixture, const char *line)
{
    return strstr(fixture->t->log, line) != NULL;
}

static inline void fixture_accept(sock_fixture *fixture, int ours, const ls_sockaddr *from)
{
    atomic_fetch_add(&fixture->conn_limit.count, 1); /* a listener would have entered the limit */
    ls_addr peer;
    ls_stream *s;
    ls_addr_of(from, &peer);
    assert_int_equal(
        ls_stream_open(fixture->t->port, fixture->t->deadlines, ours, true, &peer, NULL, ls_tcp_user_bytes, &s),
        LS_OK);
    ls_tcp_start(&fixture->t->ctx, s, fixture->server);
}

/* A connection over a pair of Unix sockets. Returns the end of the peer, which is non-blocking. */
static inline int fixture_connect(sock_fixture *fixture)
{
    const struct sockaddr un = {.sa_family = AF_UNIX};
    ls_sockaddr from = {.len = sizeof un.sa_family};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    memcpy(from.bytes, &un, sizeof un.sa_family);
    fixture_accept(fixture, fds[0], &from);
    return fds[1];
}

/* The same over TCP. */
static inline int fixture_connect_tcp(sock_fixture *fixture)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    ls_sockaddr from;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), theirs = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&in, len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(connect(theirs, (struct sockaddr *)&in, len), 0);
    const int ours = accept4(listener, (struct sockaddr *)&in, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(ours >= 0);
    close(listener);
    from.len = len;
    memcpy(from.bytes, &in, len);
    assert_true(fcntl(theirs, F_SETFL, fcntl(theirs, F_GETFL) | O_NONBLOCK) >= 0);
    fixture_accept(fixture, ours, &from);
    return theirs;
}

/* Write all bytes; pump while the socket buffer is full. Returns early if the connection has been closed. */
static inline void fixture_write(const sock_fixture *fixture, int peer, const void *bytes, size_t len)
{
    const uint64_t until_ns = ls_clock_ns() + FIXTURE_PATIENCE_MS * UINT64_C(1000000);
    for (size_t at = 0; at < len;) {
        const ssize_t n = send(peer, (const char *)bytes + at, len - at, MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
        assert_true(n > 0 || errno == EAGAIN);
        if (n < 0) fixture_pump(fixture);
        assert_true(ls_clock_ns() < until_ns);
    }
    fixture_pump(fixture);
}

static inline void fixture_send(const sock_fixture *fixture, int peer, const char *text)
{
    fixture_write(fixture, peer, text, strlen(text));
}

/* Read and pump until the end of the stream, a reset, or `max` bytes. Returns the number of bytes. */
static inline size_t fixture_read(const sock_fixture *fixture, int peer, char *to, size_t max)
{
    const uint64_t until_ns = ls_clock_ns() + FIXTURE_PATIENCE_MS * UINT64_C(1000000);
    size_t at = 0;
    while (at < max) {
        const ssize_t n = read(peer, to + at, max - at);
        if (n == 0 || (n < 0 && errno != EAGAIN)) break;
        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        ls_packet packet;
        if (ls_port_wait(fixture->t->port, &fixture->t->ctx, &packet, 1, 5) > 0)
            ls_packet_dispatch(&fixture->t->ctx, &packet);
        if (ls_clock_ns() > until_ns) fail_msg("neither bytes nor the end\n%s", fixture->t->log);
    }
    return at;
}

/* The peer shuts down its direction; all bytes it then receives must equal `expected`. */
static inline void fixture_ends_with(sock_fixture *fixture, int peer, const char *expected)
{
    char got[8192];
    (void)shutdown(peer, SHUT_WR); /* fails if our end has closed already */
    got[fixture_read(fixture, peer, got, sizeof got - 1)] = '\0';
    if (strcmp(got, expected) != 0) fail_msg("got      %s\nexpected %s\n%s", got, expected, fixture->t->log);
    close(peer);
    if (peer == fixture->peer) fixture->peer = -1;
}

/* Close the site. No connection may be open, no error logged, no block in use, and the limit must be 0. */
static inline void fixture_close(sock_fixture *fixture)
{
    ls_pools_stats stats;
    const uint64_t until_ns = ls_clock_ns() + FIXTURE_PATIENCE_MS * UINT64_C(1000000);
    while (ls_site_connections(fixture->t->site) > 0) {
        ls_packet packet;
        if (ls_clock_ns() > until_ns) fail_msg("a connection is left\n%s", fixture->t->log);
        if (ls_port_wait(fixture->t->port, &fixture->t->ctx, &packet, 1, 20) > 0)
            ls_packet_dispatch(&fixture->t->ctx, &packet);
    }
    assert_int_equal(atomic_load(&fixture->conn_limit.count), 0);
    if (fixture_logged(fixture, "connection from")) fail_msg("%s", fixture->t->log);
    assert_int_equal(lua_gc(test_state(fixture->t)->L, LUA_GCCOLLECT), 0); /* buffers */
    ls_pools_stat(fixture->t->pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
    test_site_close(fixture->t);
    ls_conn_limit_close(&fixture->conn_limit);
}

/* The peer closes its end, and the test ends. */
static inline void fixture_leave(sock_fixture *fixture, int peer)
{
    close(peer);
    fixture_close(fixture);
}

typedef sock_fixture served; /* with one connection, to `peer` */

static inline void served_open(served *fixture, const char *options, const char *serve)
{
    fixture_open(fixture, options, serve);
    fixture->peer = fixture_connect(fixture);
}

static inline void served_close(served *fixture)
{
    if (fixture->peer >= 0) close(fixture->peer);
    fixture_close(fixture);
}

#endif
