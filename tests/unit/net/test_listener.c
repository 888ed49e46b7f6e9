/* test_listener.c - accepts posted ahead, the shared connection limit, and the stop of a listener. */
#include "port/port_fixture.h"

#include <poll.h>
#include <sys/un.h>

#include "net/listener.h"
#include "net/sock/sock.h"
#include "sched/actor.h"
#include "sched/workers.h"
#include "system.h"

enum { FDS_MAX = 64 };

static const ls_listener_options two_accepts = {.backlog = 64, .accepts = 2};

typedef struct server_fixture { /* the accepted connections */
    net_place place;
    ls_conn_limit conn_limit;
    int fds[FDS_MAX];
    int count;
} server_fixture;

static void accepted(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from)
{
    server_fixture *h = user;
    assert_true(from->len > 0);
    assert_true(h->count < FDS_MAX);
    h->fds[h->count++] = fd;
}

static void server_fixture_open(server_fixture *h, uint32_t connections_max)
{
    memset(h, 0, sizeof *h);
    net_place_open(&h->place);
    ls_conn_limit_open(&h->conn_limit, connections_max);
}

/* Close the oldest connection. */
static void close_oldest(server_fixture *h)
{
    assert_true(h->count > 0);
    close(h->fds[0]);
    memmove(h->fds, h->fds + 1, (size_t)--h->count * sizeof h->fds[0]);
    ls_conn_limit_leave(&h->conn_limit);
}

static void server_fixture_close(server_fixture *h)
{
    while (h->count > 0) close_oldest(h);
    assert_true(ls_conn_limit_idle(&h->conn_limit));
    assert_true(ls_list_empty(&h->conn_limit.waiting));
    ls_conn_limit_close(&h->conn_limit);
    net_place_close(&h->place);
}

/* Handle packets until the port is empty. Earlier connects are accepted then: the system has queued them. */
static void pump(server_fixture *h)
{
    ls_packet packet;
    while (ls_port_wait(h->place.port, &h->place.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&h->place.ctx, &packet);
}

static ls_listener *listen_at(server_fixture *h, const char *host, uint32_t accepts)
{
    ls_listener *listener;
    ls_addr at;
    assert_int_equal(ls_addr_parse(host, 0, &at), LS_OK);
    assert_int_equal(ls_listener_open(h->place.port, &at, &(ls_listener_options){.backlog = 64, .accepts = accepts},
                                      &h->conn_limit, accepted, h, &listener),
                     LS_OK);
    return listener;
}

static int dial(const ls_listener *listener)
{
    ls_sockaddr to;
    ls_addr_to(ls_listener_addr(listener), &to);
    return net_dial(&to);
}

TEST_IN(server_fixture, h, accepts_are_posted_ahead, 100)
{
    int clients[10];
    ls_listener *listener = listen_at(h, "127.0.0.1", 4);
    assert_int_not_equal(ls_listener_addr(listener)->port, 0);
    clients[0] = dial(listener); /* before the start: waits in the queue */
    pump(h);
    assert_int_equal(h->count, 0);
    ls_listener_start(&h->place.ctx, listener);
    assert_int_equal(atomic_load(&h->conn_limit.count), 0);
    assert_false(ls_conn_limit_idle(&h->conn_limit));
    pump(h);
    assert_int_equal(h->count, 1);
    for (int i = 1; i < 10; i++) clients[i] = dial(listener);
    pump(h);
    assert_int_equal(h->count, 10);
    assert_int_equal(atomic_load(&h->conn_limit.count), 10);
    for (int i = 0; i < 10; i++) {
        net_write(clients[i], &i, sizeof i);
        close(clients[i]);
    }
    ls_listener_stop(&h->place.ctx, listener);
    pump(h);
    assert_int_equal(atomic_load(&h->conn_limit.count), 10);
}

TEST_IN(server_fixture, h, the_limit_is_exact, 3)
{
    int clients[5];
    char byte;
    ls_listener *listener = listen_at(h, "127.0.0.1", 4); /* more accepts than the limit */
    ls_listener_start(&h->place.ctx, listener);
    for (int i = 0; i < 3; i++) clients[i] = dial(listener);
    pump(h);
    assert_int_equal(h->count, 3); /* at the limit */
    for (int i = 3; i < 5; i++) clients[i] = dial(listener);
    pump(h);
    assert_int_equal(h->count, 3); /* one past the limit waits */
    assert_int_equal(atomic_load(&h->conn_limit.count), 3);

    close_oldest(h);
    pump(h);
    assert_int_equal(h->count, 3); /* one closed, one admitted */
    assert_int_equal(atomic_load(&h->conn_limit.count), 3);
    close_oldest(h);
    pump(h);
    assert_int_equal(h->count, 3);
    for (int i = 0; i < 3; i++) { /* in the order of arrival */
        net_write(h->fds[i], "x", 1);
        net_read(clients[2 + i], &byte, 1);
    }
    for (int i = 0; i < 3; i++) close_oldest(h);
    pump(h);
    assert_int_equal(h->count, 0);
    assert_int_equal(atomic_load(&h->conn_limit.count), 0);
    ls_listener_stop(&h->place.ctx, listener);
    pump(h);
    for (int i = 0; i < 5; i++) close(clients[i]);
}

TEST(listeners_share_the_limit)
{
    server_fixture h;
    int clients[5];
    server_fixture_open(&h, 2); /* a limit below the accepts of one listener */
    ls_listener *one = listen_at(&h, "127.0.0.1", 4), *two = listen_at(&h, "127.0.0.1", 4);
    ls_listener_start(&h.place.ctx, one);
    ls_listener_start(&h.place.ctx, two);
    clients[0] = dial(two); /* the posted accepts of an idle listener do not count */
    clients[1] = dial(two);
    pump(&h);
    assert_int_equal(h.count, 2);
    clients[2] = dial(one);
    pump(&h);
    clients[3] = dial(two);
    clients[4] = dial(one);
    pump(&h);
    assert_int_equal(h.count, 2);
    close_oldest(&h);
    pump(&h);
    assert_int_equal(h.count, 2);

    ls_listener_stop(&h.place.ctx, one); /* with a connection that waits for admission: it is not dropped */
    assert_int_equal(h.count, 3);
    pump(&h);
    close_oldest(&h);
    pump(&h);
    assert_int_equal(h.count, 2); /* still full */
    close_oldest(&h);
    pump(&h);
    assert_int_equal(h.count, 2); /* the one of `two` was admitted */
    ls_listener_stop(&h.place.ctx, two);
    pump(&h);
    for (int i = 0; i < 5; i++) close(clients[i]);
    server_fixture_close(&h);
}

/* A connection was admitted, and the listener is stopped before its packet is taken. */
TEST_IN(server_fixture, h, a_stop_during_an_admission, 1)
{
    int clients[3];
    ls_listener *listener = listen_at(h, "127.0.0.1", 1);
    ls_listener_start(&h->place.ctx, listener);
    for (int i = 0; i < 3; i++) clients[i] = dial(listener);
    pump(h);
    assert_int_equal(h->count, 1);
    close_oldest(h);
    ls_listener_stop(&h->place.ctx, listener);
    assert_int_equal(h->count, 1); /* the one in the system's queue */
    assert_false(ls_conn_limit_idle(&h->conn_limit));
    pump(h);
    assert_int_equal(h->count, 2);
    for (int i = 0; i < 3; i++) close(clients[i]);
}

TEST_IN(server_fixture, h, queued_connections_are_accepted_before_the_stop, 1)
{
    int clients[6];
    char byte;
    ls_listener *listener = listen_at(h, "127.0.0.1", 2);
    ls_listener_start(&h->place.ctx, listener);
    for (int i = 0; i < 6; i++) clients[i] = dial(listener);
    pump(h);
    assert_int_equal(h->count, 1);
    ls_listener_stop(&h->place.ctx, listener);
    assert_int_equal(h->count, 6); /* past the limit, rather than dropped */
    pump(h);
    assert_int_equal(atomic_load(&h->conn_limit.count), 6);
    for (int i = 0; i < 6; i++) { /* each is connected to one of our sockets */
        net_write(h->fds[i], "x", 1);
        assert_int_equal(shutdown(h->fds[i], SHUT_WR), 0);
    }
    for (int i = 0; i < 6; i++) {
        net_read(clients[i], &byte, 1);
        close(clients[i]);
    }
}

TEST_IN(server_fixture, h, a_stop_before_the_start, 1)
{
    ls_listener *listener = listen_at(h, "127.0.0.1", 2);
    const int client = dial(listener);
    ls_listener_stop(&h->place.ctx, listener);
    assert_int_equal(h->count, 0);
    close(client);
}

TEST(a_unix_path_is_removed_with_its_listener)
{
    server_fixture h;
    char dir[] = TEST_SCRATCH_PATH, host[64];
    assert_non_null(mkdtemp(dir));
    snprintf(host, sizeof host, "unix:%s/s", dir);
    server_fixture_open(&h, 4);
    if (!system_has_unix_sockets()) {
        ls_addr at;
        ls_listener *none = NULL;
        assert_int_equal(ls_addr_parse(host, 0, &at), LS_OK);
        assert_int_equal(ls_listener_open(h.place.port, &at, &two_accepts, &h.conn_limit, accepted, &h, &none),
                         LS_ENOTSUP);
        assert_null(none);
        assert_int_equal(rmdir(dir), 0);
        server_fixture_close(&h);
        return;
    }
    ls_listener *listener = listen_at(&h, host, 2);
    ls_listener_start(&h.place.ctx, listener);
    ls_sockaddr to;
    ls_addr_to(ls_listener_addr(listener), &to);
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)to.bytes, to.len), 0);
    pump(&h);
    assert_int_equal(h.count, 1);
    ls_listener_stop(&h.place.ctx, listener);
    pump(&h);
    assert_int_equal(access(host + 5, F_OK), -1);
    assert_int_equal(rmdir(dir), 0);
    close(client);
    server_fixture_close(&h);
}

/* The file of another listener, which was made after the first one's had been removed. */
TEST_IN(server_fixture, h, the_path_of_a_successor_is_kept, 4)
{
    char dir[] = TEST_SCRATCH_PATH, host[64];
    if (!system_has_unix_sockets()) return;
    assert_non_null(mkdtemp(dir));
    snprintf(host, sizeof host, "unix:%s/s", dir);
    ls_listener *first = listen_at(h, host, 2);
    ls_listener_start(&h->place.ctx, first);
    assert_int_equal(unlink(host + 5), 0);
    ls_listener *second = listen_at(h, host, 2);
    ls_listener_start(&h->place.ctx, second);
    ls_listener_stop(&h->place.ctx, first);
    pump(h);
    ls_sockaddr to;
    ls_addr_to(ls_listener_addr(second), &to);
    const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)to.bytes, to.len), 0);
    pump(h);
    assert_int_equal(h->count, 1);
    close(client);
    ls_listener_stop(&h->place.ctx, second);
    pump(h);
    assert_int_equal(rmdir(dir), 0);
}

TEST_IN(server_fixture, h, a_failed_open_leaves_nothing_open, 4)
{
    ls_listener *listener = NULL;
    ls_addr at;
    ls_listener *other = listen_at(h, "127.0.0.1", 1);
    assert_int_equal(
        ls_listener_open(h->place.port, ls_listener_addr(other), &two_accepts, &h->conn_limit, accepted, h, &listener),
        LS_EADDRINUSE);
    assert_null(listener);

    /* A port that is full. */
    ls_port *full;
    ls_sock *sock;
    const ls_port_options options = {.sockets_max = 1};
    assert_int_equal(ls_port_open(&options, &full), LS_OK);
    assert_int_equal(ls_sock_attach(full, net_tcp(), false, &sock), LS_OK);
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    assert_int_equal(ls_listener_open(full, &at, &two_accepts, &h->conn_limit, accepted, h, &listener), LS_ELIMIT);
    assert_null(listener);
    ls_thread_ctx ctx;
    ls_thread_ctx_init(&ctx, full, h->place.ctx.pool, 0);
    ls_sock_close(&ctx, sock);
    ls_port_close(full);
    ls_listener_stop(&h->place.ctx, other);
    pump(h);
}

TEST_IN(server_fixture, h, a_failed_open_leaves_no_path, 4)
{
    char dir[] = TEST_SCRATCH_PATH, host[64];
    ls_listener *listener = NULL;
    ls_addr at;
    ls_port *full;
    const ls_port_options options = {.sockets_max = 0};
    assert_int_equal(ls_port_open(&options, &full), LS_OK);
    assert_non_null(mkdtemp(dir));
    snprintf(host, sizeof host, "unix:%s/s", dir);
    assert_int_equal(ls_addr_parse(host, 0, &at), LS_OK);
    assert_int_equal(ls_listener_open(full, &at, &two_accepts, &h->conn_limit, accepted, h, &listener),
                     system_has_unix_sockets() ? LS_ELIMIT : LS_ENOTSUP);
    assert_null(listener);
    assert_int_equal(rmdir(dir), 0); /* so its path was removed */
    ls_port_close(full);
}

/* ---- with workers --------------------------------------------------------------------------------------------- */

enum { PLACES = 3, CLIENTS = 300, AT_A_TIME = 20 };

typedef struct storm {
    ls_conn_limit conn_limit;
    ls_port *port;
    ls_listener *listener;
    _Atomic int count;
    ls_op begin, stop;
    _Atomic bool stopped;
} storm;

static void greet_and_leave(ls_thread_ctx *ctx, void *user, ls_fd fd, const ls_sockaddr *from)
{
    storm *s = user;
    if (!atomic_load(&s->stopped)) assert_in_range(atomic_load(&s->conn_limit.count), 1, PLACES);
    atomic_fetch_add(&s->count, 1);
    assert_int_equal(write(fd, "x", 1), 1);
    ls_sock_discard(fd);
    ls_conn_limit_leave(&s->conn_limit);
}

static void begin(ls_thread_ctx *ctx, ls_op *op)
{
    ls_listener_start(ctx, LS_CONTAINER(op, storm, begin)->listener);
}

static void stop(ls_thread_ctx *ctx, ls_op *op)
{
    storm *s = LS_CONTAINER(op, storm, stop);
    atomic_store(&s->stopped, true);
    ls_listener_stop(ctx, s->listener);
}

TEST(workers_accept_each_connection_once_and_none_past_the_limit)
{
    static storm s;
    const ls_workers_options workers_options = {.threads = 3, .threads_max = 3};
    const ls_port_options port_options = {.sockets_max = 16};
    int fds[AT_A_TIME];
    char byte;
    ls_pools *pools;
    ls_workers *workers;
    ls_addr at;
    assert_int_equal(ls_pools_open(1 << 20, &pools), LS_OK);
    assert_int_equal(ls_port_open(&port_options, &s.port), LS_OK);
    ls_conn_limit_open(&s.conn_limit, PLACES);
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    assert_int_equal(ls_listener_open(s.port, &at, &(ls_listener_options){.backlog = 64, .accepts = 4}, &s.conn_limit,
                                      greet_and_leave, &s, &s.listener),
                     LS_OK);
    ls_sockaddr to;
    ls_addr_to(ls_listener_addr(s.listener), &to);
    s.begin.done = begin;
    s.stop.done = stop;
    assert_int_equal(ls_workers_open(s.port, pools, &workers_options, &workers), LS_OK);
    assert_int_equal(ls_workers_start(workers), LS_OK);
    ls_port_post(s.port, &s.begin, 0);
    for (int from = 0; from < CLIENTS; from += AT_A_TIME) {
        for (int i = 0; i < AT_A_TIME; i++) fds[i] = net_dial(&to);
        for (int i = 0; i < AT_A_TIME; i++) {
            net_read(fds[i], &byte, 1);
            close(fds[i]);
        }
    }
    for (int i = 0; i < AT_A_TIME; i++) fds[i] = net_dial(&to); /* these may still wait at the stop */
    ls_port_post(s.port, &s.stop, 0);
    for (int i = 0; i < AT_A_TIME; i++) {
        net_read(fds[i], &byte, 1);
        close(fds[i]);
    }
    while (!ls_conn_limit_idle(&s.conn_limit)) ls_clock_sleep_ms(1); /* the posted accepts complete */
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, 0));
    assert_int_equal(atomic_load(&s.count), CLIENTS + AT_A_TIME);
    ls_thread_ctx *ctx = ls_workers_ctx(workers, 0);
    ls_packet packet;
    while (ls_port_wait(s.port, ctx, &packet, 1, 0) > 0) ls_packet_dispatch(ctx, &packet);
    ls_workers_close(workers);
    ls_port_close(s.port);
    ls_conn_limit_close(&s.conn_limit);
    ls_pools_close(pools);
}
