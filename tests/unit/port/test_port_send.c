/* test_port_send.c - the contract of port.h on each back end: sends: gathered, long, of files, to a peer that is gone,
 * and the limit of inline completions. */
#include "port_fixture.h"

#include "base/os/thread.h"

TEST(small_slices_leave_at_once_in_order)
{
    net_place place;
    char got[32];
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    ls_slice slices[] = {ls_slice_static("one", 3), ls_slice_static("", 0), ls_slice_static(" two", 4),
                         ls_slice_static(" three", 6)};
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, slices, 4, NULL), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 13);
    assert_int_equal(atomic_load(&op.result), 13);
    net_read(theirs, got, 13);
    assert_memory_equal(got, "one two three", 13);
    assert_int_equal(atomic_load(&place.ctx.stats.send_inline), 1);
    net_quiet(&place, 0);
    net_conn_close(&place, sock, theirs);
}

/* 100 slices of uneven lengths, far more than the socket takes, to a reader that begins late. */
TEST(a_long_gather_send_goes_on_when_there_is_room)
{
    enum { SLICES = 100, LEN = 6 << 20 };
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    ls_slice slices[SLICES];
    ls_thread thread;
    size_t from = 0;
    for (int tcp = 0; tcp <= 1; tcp++, from = 0) {
        char *bytes = pattern(LEN, 1);
        net_place_open(&place);
        if (tcp)
            net_tcp_pair(&ours, &theirs);
        else
            net_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, false);
        for (int i = 0; i < SLICES; i++) {
            const size_t len = i == SLICES - 1 ? LEN - from : (size_t)(i * 1201 % 120000);
            slices[i] = ls_slice_static(bytes + from, len);
            from += len;
        }
        assert_int_equal(ls_op_send(&place.ctx, sock, &op, slices, SLICES, NULL), LS_PENDING);
        assert_in_range(atomic_load(&op.result), 1, LEN - 1);
        net_quiet(&place, 20); /* nobody reads: nothing completes */
        net_reader r = {theirs, LEN, malloc(LEN)};
        assert_int_equal(ls_thread_start(&thread, "reader", net_reader_main, &r), LS_OK);
        expect_packet(&place, &op, LEN);
        ls_thread_join(&thread);
        assert_memory_equal(r.bytes, bytes, LEN);
        net_quiet(&place, 0);
        ls_sock_close(&place.ctx, sock);
        close(theirs);
        net_place_close(&place);
        free(r.bytes);
        free(bytes);
    }
}

TEST_IN(net_place, place, a_file_range_follows_its_head)
{
    enum { FILE_LEN = 3 << 20, FROM = 12345, LEN = FILE_LEN - 2 * FROM };
    int ours, theirs;
    ls_op op = op_new();
    ls_thread thread;
    net_tcp_pair(&ours, &theirs);
    char *bytes = pattern(FILE_LEN, 2);
    FILE *file = tmpfile();
    assert_non_null(file);
    net_write(fileno(file), bytes, FILE_LEN);
    ls_sock *sock = net_attach(place, ours, false);
    ls_slice head[] = {ls_slice_static("he", 2), ls_slice_static("ad", 2)};
    const ls_file_range range = {fileno(file), FROM, LEN, NULL};
    net_reader r = {theirs, 4 + LEN, malloc(4 + LEN)};
    for (int heads = 2; heads >= 0; heads -= 2) { /* with a head, and without */
        r.len = (size_t)heads * 2 + LEN;
        assert_int_equal(ls_op_send(&place->ctx, sock, &op, heads ? head : NULL, (uint16_t)heads, &range), LS_PENDING);
        assert_int_equal(ls_thread_start(&thread, "reader", net_reader_main, &r), LS_OK);
        expect_packet(place, &op, (int64_t)r.len);
        ls_thread_join(&thread);
        if (heads) assert_memory_equal(r.bytes, "head", 4);
        assert_memory_equal(r.bytes + heads * 2, bytes + FROM, LEN);
    }
    const ls_file_range small = {fileno(file), FILE_LEN - 5, 5, NULL}, empty = {fileno(file), 0, 0, NULL};
    if (ls_op_send(&place->ctx, sock, &op, head, 2, &small) == LS_PENDING) expect_packet(place, &op, 9);
    assert_int_equal(atomic_load(&op.result), 9);
    assert_int_equal(ls_op_send(&place->ctx, sock, &op, head, 2, &empty), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 4);
    net_read(theirs, r.bytes, 13);
    assert_memory_equal(r.bytes + 4, bytes + FILE_LEN - 5, 5);

    const ls_file_range past = {fileno(file), FILE_LEN - 5, 6, NULL}; /* the file ends within the range: an error */
    const int how = ls_op_send(&place->ctx, sock, &op, head, 1, &past);
    assert_true(how < 0 || (how == LS_PENDING && net_next(place).result < 0));
    ls_sock_close(&place->ctx, sock);
    fclose(file);
    close(theirs);
    free(r.bytes);
    free(bytes);
}

TEST_IN(net_place, place, a_peer_that_has_gone_is_an_error_not_a_signal)
{
    int ours, theirs;
    ls_op op = op_new();
    net_pair(&ours, &theirs);
    close(theirs);
    ls_sock *sock = net_attach(place, ours, false);
    ls_slice slice = ls_slice_static("x", 1);
    int how;
    do how = ls_op_send(&place->ctx, sock, &op, &slice, 1, NULL); /* over TCP the first is lost before that is known */
    while (how == LS_DONE);
    assert_true(how == LS_EPIPE || how == LS_ERESET);
    net_quiet(place, 5);
    ls_sock_close(&place->ctx, sock);

    /* And while the send waits. */
    char *bytes = pattern(6 << 20, 3);
    net_pair(&ours, &theirs);
    sock = net_attach(place, ours, false);
    slice = ls_slice_static(bytes, 6 << 20);
    assert_int_equal(ls_op_send(&place->ctx, sock, &op, &slice, 1, NULL), LS_PENDING);
    close(theirs);
    assert_true(net_next(place).result < 0);
    ls_sock_close(&place->ctx, sock);
    free(bytes);
}

TEST(both_directions_complete_when_one_packet_fits)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 4);
    int theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    close(theirs); /* one event for both */
    for (int i = 0; i < 2; i++) seen |= net_next(&place).op == &in ? 1 : 2;
    assert_int_equal(seen, 3);
    assert_true(atomic_load(&out.result) < 0);
    net_quiet(&place, 5);
    ls_sock_close(&place.ctx, sock);
    free(bytes);
    net_place_close(&place);
}

TEST(shutdown_ends_the_stream_and_receives_go_on)
{
    net_place place;
    char room[8], c;
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_tcp_conn_open(&place, &theirs);
    ls_slice slice = ls_slice_static("bye", 3);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    assert_int_equal(ls_sock_shutdown(sock), LS_OK);
    net_read(theirs, room, 3);
    assert_int_equal(read(theirs, &c, 1), 0);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_write(theirs, "ok", 2);
    expect_packet(&place, &op, 2);
    net_conn_close(&place, sock, theirs);
}

TEST(last_bytes_leave_with_the_end_whatever_is_unread)
{
    for (int closes = 0; closes < 2; closes++) {
        net_place place;
        char room[10], c;
        int ours, theirs;
        ls_op op = op_new();
        net_place_open(&place);
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, false);
        net_write(theirs, "unread", 6);
        if (ls_op_recv(&place.ctx, sock, &op, room, 1) == LS_PENDING) expect_packet(&place, &op, 1);
        ls_sock_cork_fin(sock);
        ls_slice slice = ls_slice_static("last words", 10);
        assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
        if (closes)
            ls_sock_close(&place.ctx, sock);
        else
            assert_int_equal(ls_sock_shutdown(sock), LS_OK);
        net_read(theirs, room, 10);
        assert_memory_equal(room, "last words", 10);
        assert_true(read(theirs, &c, 1) <= 0); /* the end, or the reset that unread bytes make of a close */
        if (!closes) ls_sock_close(&place.ctx, sock);
        close(theirs);
        net_place_close(&place);
    }
}

TEST(inline_completions_end_after_their_time)
{
    net_place place;
    char room[64];
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    ls_slice slice = ls_slice_static("x", 1);
    net_quiet(&place, 0);
    assert_int_equal(place.ctx.inline_ms_max, LS_INLINE_MS_MAX);
    for (int i = 0; i < 20; i++) assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    place.ctx.inline_ms_max = 2;
    const uint64_t limit_ns = 2 * UINT64_C(1000000);
    assert_true(place.ctx.inline_since_ns > limit_ns);
    place.ctx.inline_since_ns -= limit_ns; /* as if the first had been that long ago */
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_PENDING);
    assert_int_equal(atomic_load(&place.ctx.stats.send_inline), 20);
    expect_packet(&place, &op, 1);                                                 /* a look at the port ... */
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE); /* ... and a new run */
    net_read(theirs, room, 22);
    net_conn_close(&place, sock, theirs);
}
