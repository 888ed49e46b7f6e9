/* test_port_accept.c - the contract of port.h on each back end: accepts posted ahead, listeners without descriptors,
 * connects. */
/* sanitizers: asan; no thread starts */
#define TESTS_FD_LIMIT 1 /* system_win32.h */
#include "port_fixture.h"

#include "base/io/log.h"
#include "system.h"

TEST_IN(net_place, place, several_accepts_posted_ahead)
{
    enum { AHEAD = 6 };
    ls_sockaddr at, from[AHEAD];
    ls_op ops[AHEAD];
    int dialled[AHEAD + 2], accepted = 0;
    ls_sock *listener = net_attach(place, net_listen(&at), false);
    for (int i = 0; i < AHEAD; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place->ctx, listener, &ops[i], i % 2 ? NULL : &from[i]), LS_PENDING);
    }
    for (int i = 0; i < AHEAD + 2; i++) dialled[i] = net_dial(&at); /* two more than are posted */
    while (accepted < AHEAD) {
        ls_packet packets[LS_WAIT_PACKETS_MAX];
        const int n = ls_port_wait(place->port, &place->ctx, packets, LS_WAIT_PACKETS_MAX, 60000);
        assert_in_range(n, 1, LS_WAIT_PACKETS_MAX);
        for (int k = 0; k < n; k++, accepted++) {
            assert_int_equal(packets[k].result, 0);
            const int fd = packets[k].op->accept.fd;
            const ptrdiff_t i = packets[k].op - ops;
            assert_in_range(i, 0, AHEAD - 1);
            assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
            if (i % 2 == 0) assert_int_equal(((struct sockaddr *)from[i].bytes)->sa_family, AF_INET);
            if (i % 2 == 0) assert_int_equal(from[i].len, sizeof(struct sockaddr_in));
            close(fd);
        }
    }
    net_quiet(place, 10);
    for (int i = 0; i < 2; i++) { /* the two that waited in the system's queue */
        const int how = ls_op_accept(&place->ctx, listener, &ops[i], NULL);
        if (how == LS_PENDING) expect_packet(place, &ops[i], 0);
        assert_true(how >= 0);
        close(ops[i].accept.fd);
    }
    for (int i = 0; i < AHEAD + 2; i++) close(dialled[i]);
    assert_int_equal(atomic_load(&place->ctx.stats.accepts), AHEAD + 2);
    ls_sock_close(&place->ctx, listener);
}

TEST_IN(net_place, place, pending_accepts_can_be_cancelled_one_by_one_and_by_close)
{
    ls_sockaddr at;
    ls_op ops[4];
    int seen = 0;
    ls_sock *listener = net_attach(place, net_listen(&at), false);
    for (int i = 0; i < 4; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place->ctx, listener, &ops[i], NULL), LS_PENDING);
    }
    ls_op_cancel(place->port, listener, &ops[2]);
    expect_packet(place, &ops[2], LS_ECANCELED);
    ls_op_cancel(place->port, listener, &ops[2]);
    net_quiet(place, 5);
    const int fd = net_dial(&at);
    expect_packet(place, &ops[0], 0);
    close(ops[0].accept.fd);
    ls_sock_close(&place->ctx, listener);
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(place);
        assert_int_equal(packet.result, LS_ECANCELED);
        seen |= 1 << (packet.op - ops);
    }
    assert_int_equal(seen, 1 << 1 | 1 << 3);
    net_quiet(place, 5);
    close(fd);
}

TEST(accepts_survive_running_out_of_descriptors)
{
    net_place place;
    ls_sockaddr at;
    descriptors_before before;
    int ours, theirs;
    ls_op op = op_new();
    for (int by_time = 0; by_time <= 1; by_time++) {
        net_place_open(&place);
        net_pair(&ours, &theirs);
        ls_sock *spare = net_attach(&place, ours, false);
        ls_sock *listener = net_attach(&place, net_listen(&at), false);
        const int fd = net_dial(&at);
        exhaust_descriptors(&before);
        assert_int_equal(ls_op_accept(&place.ctx, listener, &op, NULL), LS_PENDING);
        net_quiet(&place, 30); /* it stays pending */
        if (by_time) {
            restore_descriptors(&before);
            expect_packet(&place, &op, 0); /* found by trying again */
        }
        ls_sock_close(&place.ctx, spare); /* a descriptor is free again */
        if (!by_time) expect_packet(&place, &op, 0);
        restore_descriptors(&before);
        assert_true(op.accept.fd != LS_FD_NONE);
        close(op.accept.fd);
        ls_sock_close(&place.ctx, listener);
        close(fd);
        close(theirs);
        net_quiet(&place, 150);
        net_place_close(&place);
    }
}

TEST_IN(net_place, place, closing_a_listener_that_is_out_of_descriptors)
{
    ls_sockaddr at;
    descriptors_before before;
    ls_op op = op_new();
    ls_sock *listener = net_attach(place, net_listen(&at), false);
    const int fd = net_dial(&at);
    exhaust_descriptors(&before);
    assert_int_equal(ls_op_accept(&place->ctx, listener, &op, NULL), LS_PENDING);
    net_quiet(place, 20);
    ls_sock_close(&place->ctx, listener);
    expect_packet(place, &op, LS_ECANCELED);
    net_quiet(place, 150);
    restore_descriptors(&before);
    close(fd);
}

TEST(connect_succeeds_or_is_refused)
{
    net_place place;
    ls_sockaddr at;
    char room[8];
    ls_op op = op_new(), in = op_new();
    net_place_open(&place);
    const int listener = net_listen(&at);
    ls_sock *sock = net_attach(&place, net_tcp(), false);
    int how = ls_op_connect(&place.ctx, sock, &op, &at);
    if (how == LS_PENDING) expect_packet(&place, &op, 0);
    assert_true(how >= 0);
    assert_int_equal(atomic_load(&op.result), 0);
    int peer;
    do peer = accept(listener, NULL, NULL);
    while (peer < 0);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    net_write(peer, "hi", 2);
    expect_packet(&place, &in, 2);
    ls_slice slice = ls_slice_static("ho", 2);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    net_read(peer, room, 2);
    ls_sock_close(&place.ctx, sock);
    close(peer);
    close(listener); /* the port is free now: nobody listens */

    sock = net_attach(&place, net_tcp(), false);
    how = ls_op_connect(&place.ctx, sock, &op, &at);
    assert_true(how == LS_EREFUSED || (how == LS_PENDING && net_next(&place).result == LS_EREFUSED));
    net_conn_close(&place, sock, -1);
}

TEST_IN(net_place, place, sockets_past_the_limit_stay_the_callers)
{
    const ls_port_options options = {.sockets_max = 3};
    ls_sock *socks[3], *more = NULL;
    ls_port *usual = place->port, *small;
    assert_int_equal(ls_port_open(&options, &small), LS_OK);
    net_use(place, small);
    for (int i = 0; i < 3; i++) socks[i] = net_attach(place, net_tcp(), false);
    const int fd = net_tcp();
    assert_int_equal(ls_sock_attach(place->port, fd, false, &more), LS_ELIMIT);
    assert_null(more);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    ls_sock_close(&place->ctx, socks[1]);
    socks[1] = net_attach(place, fd, false);
    for (int i = 0; i < 3; i++) ls_sock_close(&place->ctx, socks[i]);
    net_use(place, usual);
    ls_port_close(small);
}

int main(void)
{
    ls_log_set_level(LS_LOG_OFF); /* running out of descriptors is logged */
    return test_run(NULL, NULL);
}
