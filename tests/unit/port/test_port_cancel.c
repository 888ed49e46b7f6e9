/* test_port_cancel.c - the contract of port.h on each back end: cancelled operations and closed sockets: one
 * completion each, and none for the next socket. */
/* sanitizers: asan; no thread starts */
#include "port_fixture.h"

TEST(a_cancelled_operation_completes_once_and_the_socket_lives)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 5);
    int theirs;
    ls_op in = op_new(), out = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    ls_op_cancel(place.port, sock, &in); /* not pending: nothing */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
    ls_op_cancel(place.port, sock, &in);
    expect_packet(&place, &in, LS_ECANCELED);
    ls_op_cancel(place.port, sock, &in);
    net_quiet(&place, 5);
    ls_op_cancel(place.port, sock, &out);
    expect_packet(&place, &out, LS_ECANCELED);
    net_quiet(&place, 5);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    net_write(theirs, "still", 5);
    expect_packet(&place, &in, 5);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    free(bytes);
    net_place_close(&place);
}

TEST(close_cancels_what_is_pending)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 6);
    int theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    const int ours = (int)ls_sock_fd(sock);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
    ls_sock_close(&place.ctx, sock);
    assert_int_equal(fcntl(ours, F_GETFD), -1); /* the descriptor is gone at once */
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(&place);
        assert_int_equal(packet.result, LS_ECANCELED);
        seen |= packet.op == &in ? 1 : 2;
    }
    assert_int_equal(seen, 3);
    net_quiet(&place, 5);
    close(theirs);
    free(bytes);
    net_place_close(&place);
}

/* No thread takes packets any more when a server closes its last connections. */
TEST(a_port_closes_with_the_packets_of_closed_sockets)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 7);
    int theirs;
    ls_op in = op_new(), out = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
    ls_sock_close(&place.ctx, sock);
    net_place_release(&place);
    close(theirs);
    free(bytes);
}

/* An event that was on its way when the socket was closed does not reach the next user of slot and descriptor. */
TEST_IN(net_place, place, a_late_event_does_not_reach_the_next_socket)
{
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    for (int round = 0; round < 50; round++) {
        net_pair(&ours, &theirs);
        ls_sock *sock = net_attach(place, ours, false);
        const int held = dup(ours); /* keeps the open file, and with it the registration, alive */
        assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_write(theirs, "late", 4);
        ls_sock_close(&place->ctx, sock);
        expect_packet(place, &op, LS_ECANCELED);

        int next_ours, next_theirs;
        net_pair(&next_ours, &next_theirs);
        sock = net_attach(place, next_ours, false);
        assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_quiet(place, 0);
        net_write(next_theirs, "mine", 4);
        expect_packet(place, &op, 4);
        assert_memory_equal(room, "mine", 4);
        ls_sock_close(&place->ctx, sock);
        close(held);
        close(theirs);
        close(next_theirs);
    }
}

/* As the deadlines of a connection use it: from any thread, by the life of the socket. */
TEST(a_socket_is_cancelled_as_a_whole_while_it_lives)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 8);
    int ours, theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    const uint32_t life = ls_sock_generation(sock);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    ls_sock_cancel(place.port, sock, life, LS_CANCEL_RECV | LS_CANCEL_SEND); /* nothing is pending */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);

    const uint64_t before = ls_sock_progress_ms(sock);
    net_quiet(&place, 5);
    assert_true(ls_sock_progress_ms(sock) == before);
    while (ls_clock_coarse_ms() <= before) net_quiet(&place, 1);
    const size_t stuck = (size_t)atomic_load(&out.result);
    char *got = malloc(stuck);
    net_read(theirs, got, stuck);
    net_quiet(&place, 5);
    assert_true(ls_sock_progress_ms(sock) > before);

    ls_sock_cancel(place.port, sock, life + 1, LS_CANCEL_RECV | LS_CANCEL_SEND); /* another life */
    net_quiet(&place, 5);
    ls_sock_cancel(place.port, sock, life, LS_CANCEL_RECV | LS_CANCEL_SEND);
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(&place);
        assert_int_equal(packet.result, LS_ECANCELED);
        seen |= packet.op == &in ? 1 : 2;
    }
    assert_int_equal(seen, 3);
    ls_sock_close(&place.ctx, sock);
    close(theirs);

    net_pair(&ours, &theirs);
    sock = net_attach(&place, ours, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    if (ls_sock_generation(sock) != life)
        ls_sock_cancel(place.port, sock, life, LS_CANCEL_RECV | LS_CANCEL_SEND); /* the same slot, the life before */
    net_quiet(&place, 5);
    ls_sock_close(&place.ctx, sock);
    expect_packet(&place, &in, LS_ECANCELED);
    close(theirs);
    free(got);
    free(bytes);
    net_place_close(&place);
}

/* Cancel one direction, then the other. The second round begins with the other direction. */
TEST(one_direction_is_cancelled_alone)
{
    char room[8], *bytes = pattern(6 << 20, 9);
    for (int round = 0; round < 2; round++) {
        net_place place;
        int theirs;
        ls_op in = op_new(), out = op_new();
        ls_sock *sock = net_conn_open(&place, &theirs);
        const uint32_t life = ls_sock_generation(sock);
        const unsigned first = round == 0 ? LS_CANCEL_RECV : LS_CANCEL_SEND;
        const unsigned second = LS_CANCEL_RECV + LS_CANCEL_SEND - first;
        ls_slice slice = ls_slice_static(bytes, 6 << 20);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
        assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
        ls_sock_cancel(place.port, sock, life, 0); /* neither */
        net_quiet(&place, 5);
        ls_sock_cancel(place.port, sock, life, first);
        expect_packet(&place, first == LS_CANCEL_RECV ? &in : &out, LS_ECANCELED);
        net_quiet(&place, 5);
        ls_sock_cancel(place.port, sock, life, first); /* it is not pending any more */
        net_quiet(&place, 5);
        ls_sock_cancel(place.port, sock, life, second);
        expect_packet(&place, second == LS_CANCEL_RECV ? &in : &out, LS_ECANCELED);
        net_conn_close(&place, sock, theirs);
    }
    free(bytes);
}

/* The direction that was not cancelled goes on to its end. */
TEST(the_other_direction_goes_on)
{
    enum { BYTES = 6 << 20 };
    char room[8], *bytes = pattern(BYTES, 10), *got = malloc(BYTES);
    assert_non_null(got);
    for (int round = 0; round < 2; round++) {
        net_place place;
        int theirs;
        ls_op in = op_new(), out = op_new();
        ls_sock *sock = net_conn_open(&place, &theirs);
        const uint32_t life = ls_sock_generation(sock);
        ls_slice slice = ls_slice_static(bytes, BYTES);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
        assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
        ls_sock_cancel(place.port, sock, life, round == 0 ? LS_CANCEL_RECV : LS_CANCEL_SEND);
        expect_packet(&place, round == 0 ? &in : &out, LS_ECANCELED);
        if (round == 0) {
            ls_packet packet;
            size_t at = 0;
            int n = 0;
            while (at < BYTES) {
                const ssize_t run = recv(theirs, got + at, BYTES - at, MSG_DONTWAIT);
                if (run > 0) at += (size_t)run;
                if (n == 0) n = ls_port_wait(place.port, &place.ctx, &packet, 1, run > 0 ? 0 : 10);
            }
            if (n == 0) packet = net_next(&place);
            assert_ptr_equal(packet.op, &out);
            assert_int_equal(packet.result, BYTES);
            assert_memory_equal(got, bytes, BYTES);
        } else {
            net_write(theirs, "still", 5);
            expect_packet(&place, &in, 5);
            assert_memory_equal(room, "still", 5);
        }
        net_conn_close(&place, sock, theirs);
    }
    free(got);
    free(bytes);
}

/* A connect counts as a send. */
TEST_IN(net_place, place, a_pending_connect_is_cancelled_as_a_send)
{
    ls_sockaddr at;
    /* A listener whose backlog is full leaves further connects pending. */
    const int listener = net_listen(&at);
    int full[8];
    assert_int_equal(listen(listener, 0), 0);
    for (size_t i = 0; i < sizeof full / sizeof full[0]; i++) {
        full[i] = net_tcp();
        (void)connect(full[i], (const struct sockaddr *)at.bytes, at.len);
    }
    ls_op op = op_new();
    ls_sock *sock = net_attach(place, net_tcp(), false);
    const int err = ls_op_connect(&place->ctx, sock, &op, &at);
    if (err == LS_PENDING) { /* a system that takes it would refuse or connect at once */
        ls_sock_cancel(place->port, sock, ls_sock_generation(sock), LS_CANCEL_RECV);
        net_quiet(place, 5);
        ls_sock_cancel(place->port, sock, ls_sock_generation(sock), LS_CANCEL_SEND);
        expect_packet(place, &op, LS_ECANCELED);
    }
    ls_sock_close(&place->ctx, sock);
    for (size_t i = 0; i < sizeof full / sizeof full[0]; i++) close(full[i]);
    close(listener);
}
