/* test_port_recv.c - the contract of port.h on each back end: receives: into memory of the caller and of the pool,
 * resets, ends, and bytes that come early. */
#include "port_fixture.h"

#include "base/os/thread.h"
#include "system.h"

TEST(receive_into_own_memory)
{
    net_place place;
    char room[8];
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    assert_true(fcntl((int)ls_sock_fd(sock), F_GETFD) >= 0);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_quiet(&place, 5);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, 5);
    assert_memory_equal(room, "hello", 5);
    net_quiet(&place, 5);

    /* More than there is room for: the rest is found by the next receive, in either of the two ways. */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_write(theirs, "0123456789", 10);
    expect_packet(&place, &op, 8);
    assert_memory_equal(room, "01234567", 8);
    if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING)
        expect_packet(&place, &op, 2);
    else
        assert_int_equal(atomic_load(&op.result), 2);
    assert_memory_equal(room, "89", 2);

    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    close(theirs);
    expect_packet(&place, &op, 0);
    net_conn_close(&place, sock, -1);
}

TEST(a_look_counts_its_packets_as_a_wait_does)
{
    net_place place;
    ls_packet packet = {.op = NULL};
    char room[8];
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    const uint64_t before = atomic_load(&place.ctx.stats.packets);
    net_write(theirs, "hello", 5);
    for (int ms = 0; ls_port_wait(place.port, &place.ctx, &packet, 1, 0) == 0 && ms < 5000; ms++) ls_clock_sleep_ms(1);
    assert_ptr_equal(packet.op, &op);
    assert_int_equal(atomic_load(&place.ctx.stats.packets) - before, 1);
    net_conn_close(&place, sock, theirs);
}

TEST(a_fresh_socket_is_tried_at_once)
{
    net_place place;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    net_place_open(&place);
    net_pair(&ours, &theirs);
    net_write(theirs, "hello", 5);
    ls_sock *sock = net_attach(&place, ours, true);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 5);
    assert_int_equal(atomic_load(&place.ctx.stats.recv_inline), 1);
    net_quiet(&place, 5); /* done inline: no packet comes */
    net_conn_close(&place, sock, theirs);
}

TEST(an_idle_connection_holds_no_block)
{
    net_place place;
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    for (int round = 0; round < 3; round++) {
        const uint32_t size = round == 1 ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, size), LS_PENDING);
        assert_int_equal(blocks_live(&place), 0);
        net_write(theirs, "hello", 5);
        expect_packet(&place, &op, 5);
        assert_int_equal(blocks_live(&place), 1);
        assert_int_equal(op.recv.block->cap, size);
        assert_memory_equal(op.recv.block->data, "hello", 5);
        ls_block_drop(op.recv.block);
    }
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    close(theirs);
    expect_packet(&place, &op, 0);
    assert_int_equal(blocks_live(&place), 0);
    net_conn_close(&place, sock, -1);
}

TEST(a_reset_is_reported)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    net_place place;
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_tcp_conn_open(&place, &theirs);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    close(theirs);
    expect_packet(&place, &op, LS_ERESET);
    net_conn_close(&place, sock, -1);
}

static void say_and_reset(void *arg)
{
    const int fd = *(const int *)arg;
    net_write(fd, "last", 4);
    close(fd);
}

/* Some messages, each waited for: a connection that goes on for long may be received from in another way. */
static void talk(net_place *place, ls_sock *sock, ls_op *op, int theirs, int messages)
{
    char room[8];
    for (int i = 0; i < messages; i++) {
        assert_int_equal(ls_op_recv(&place->ctx, sock, op, room, sizeof room), LS_PENDING);
        net_quiet(place, 0);
        net_write(theirs, "talk", 4);
        expect_packet(place, op, 4);
    }
}

/* Last bytes and the end in one moment: of a reset the bytes may be lost, the end may not. */
TEST_IN(net_place, place, an_end_right_behind_data_is_reported)
{
    ls_thread thread;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    for (int round = 0; round < 600 / SYSTEM_SLOWNESS; round++) {
        const struct linger hard = {.l_onoff = round % 3 > 0, .l_linger = 0};
        net_tcp_pair(&ours, &theirs);
        assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
        ls_sock *sock = net_attach(place, ours, true);
        talk(place, sock, &op, theirs, round % 2 ? 4 : 0);
        assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_quiet(place, 0);
        assert_int_equal(ls_thread_start(&thread, "reset", say_and_reset, &theirs), LS_OK);
        int64_t result = 1;
        for (int taken = 0; result > 0; taken++) {
            if (taken > 0) {
                const int how = ls_op_recv(&place->ctx, sock, &op, room, sizeof room);
                if (how < 0) break;
                if (how == LS_DONE) {
                    result = atomic_load(&op.result);
                    continue;
                }
            }
            result = net_next(place).result;
        }
        ls_thread_join(&thread);
        ls_sock_close(&place->ctx, sock);
    }
}

enum { STREAM_BYTES = 4 << 20 };

static unsigned char stream_byte(size_t at)
{
    return (unsigned char)(at * 31 + (at >> 8) * 7);
}

static uint32_t dice(uint32_t *state, uint32_t sides)
{
    *state = *state * 1664525 + 1013904223;
    return (*state >> 8) % sides;
}

/* Pieces of all sizes, most of them small, with pauses. */
static void stream_out(void *arg)
{
    const int fd = *(const int *)arg;
    static unsigned char piece[100000];
    uint32_t seed = 1;
    for (size_t sent = 0; sent < STREAM_BYTES;) {
        size_t len = dice(&seed, 4) > 0 ? 1 + dice(&seed, 300) : 1 + dice(&seed, sizeof piece);
        if (len > STREAM_BYTES - sent) len = STREAM_BYTES - sent;
        for (size_t i = 0; i < len; i++) piece[i] = stream_byte(sent + i);
        net_write(fd, piece, len);
        sent += len;
        if (dice(&seed, 8) == 0) ls_clock_sleep_ms(1);
    }
    close(fd);
}

/* Receives of all sizes, some of them cancelled, and some time between them: every byte comes, in order. */
TEST(a_stream_comes_whole_whatever_is_asked)
{
    static const uint32_t sizes[] = {0, 1, 100, 4096, 4097, 65536};
    static unsigned char room[65536];
    net_place place;
    ls_thread thread;
    int ours, theirs;
    size_t got = 0;
    uint32_t seed = 2;
    bool ended = false;
    net_place_open(&place);
    net_tcp_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, true);
    ls_op op = op_new();
    assert_int_equal(ls_thread_start(&thread, "stream", stream_out, &theirs), LS_OK);
    while (!ended) {
        /* For a while always the same, then another: what lasts is treated in a way of its own. */
        const uint32_t len = sizes[dice(&seed, 6)];
        const bool whole = len == LS_BLOCK_SMALL || len == LS_BLOCK_LARGE;
        const bool pool = whole && dice(&seed, 2) == 0, impatient = dice(&seed, 3) == 0;
        for (uint32_t times = dice(&seed, 12); times > 0 && !ended; times--) {
            const int how = ls_op_recv(&place.ctx, sock, &op, pool ? NULL : room, len);
            assert_true(how >= 0);
            if (how == LS_PENDING) {
                if (impatient) ls_op_cancel(place.port, sock, &op);
                assert_ptr_equal(net_next(&place).op, &op);
            }
            const int64_t result = atomic_load(&op.result);
            if (result == LS_ECANCELED) continue;
            assert_in_range(result, 0, len);
            const unsigned char *bytes = op.recv.block != NULL ? (unsigned char *)op.recv.block->data : room;
            for (int64_t i = 0; i < result; i++) assert_int_equal(bytes[i], stream_byte(got + (size_t)i));
            if (op.recv.block != NULL) ls_block_drop(op.recv.block);
            got += (size_t)result;
            ended = result == 0 && len > 0;
            if (dice(&seed, 64) == 0) ls_clock_sleep_ms(2); /* more comes than is asked for */
        }
    }
    assert_int_equal(got, STREAM_BYTES);
    ls_thread_join(&thread);
    net_conn_close(&place, sock, -1);
}

/* Every peer writes `bytes`, and each is received whole. Returns the most packets that one wait brought. */
static int batch_of(net_place *place, int count, const int *theirs, ls_sock **socks, ls_op *ops, uint32_t bytes)
{
    static char text[LS_BLOCK_LARGE];
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    int most = 0;
    for (int i = 0; i < count; i++) net_write(theirs[i], text, bytes);
    for (int left = count; left > 0;) {
        const int n = ls_port_wait(place->port, &place->ctx, packets, LS_WAIT_PACKETS_MAX, 60000);
        assert_in_range(n, 1, left);
        if (n > most) most = n;
        for (int k = 0; k < n; k++) {
            assert_int_equal(packets[k].result, bytes);
            ls_block_drop(packets[k].op->recv.block);
        }
        left -= n;
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(ls_op_recv(&place->ctx, socks[i], &ops[i], NULL, LS_BLOCK_LARGE), LS_PENDING);
    return most;
}

TEST(a_batch_fits_into_the_cache)
{
    enum { COUNT = LS_WAIT_PACKETS_MAX };
    int ours, theirs[COUNT];
    ls_sock *socks[COUNT];
    ls_op ops[COUNT];
    net_place place;
    net_place_open(&place);
    if (strcmp(ls_port_backend(), "epoll") != 0) {
        net_place_close(&place);
        print_message("skipped: of another system: elsewhere it is the system that receives\n");
        skip();
    }
    for (int i = 0; i < COUNT; i++) {
        net_pair(&ours, &theirs[i]);
        socks[i] = net_attach(&place, ours, false);
        ops[i] = op_new();
        assert_int_equal(ls_op_recv(&place.ctx, socks[i], &ops[i], NULL, LS_BLOCK_LARGE), LS_PENDING);
    }
    assert_int_equal(batch_of(&place, COUNT, theirs, socks, ops, 10), COUNT);
    assert_int_equal(batch_of(&place, COUNT, theirs, socks, ops, LS_BLOCK_LARGE), COUNT);
    assert_int_equal(batch_of(&place, COUNT, theirs, socks, ops, LS_BLOCK_LARGE), 2);
    assert_int_equal(batch_of(&place, COUNT, theirs, socks, ops, 10), 8); /* 2, 4, 8, and the rest */
    assert_int_equal(batch_of(&place, COUNT, theirs, socks, ops, 10), COUNT);
    for (int i = 0; i < COUNT; i++) {
        ls_sock_close(&place.ctx, socks[i]);
        expect_packet(&place, &ops[i], LS_ECANCELED);
        close(theirs[i]);
    }
    net_place_close(&place);
}

/* What came for nobody goes with the socket: the next one, which has its place, does not see it. */
TEST_IN(net_place, place, what_nobody_received_is_not_the_next_sockets)
{
    char room[8];
    ls_op op = op_new();
    for (int round = 0; round < 20; round++) {
        int ours, theirs;
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(place, ours, true);
        talk(place, sock, &op, theirs, 4);
        net_write(theirs, "nobody", 6);
        if (round % 2) net_quiet(place, 0);
        ls_sock_close(&place->ctx, sock);
        while (read(theirs, room, sizeof room) > 0) continue;
        close(theirs);
    }
}

TEST(data_before_the_end_is_not_lost)
{
    net_place place;
    char room[16];
    int ours, theirs;
    ls_op op = op_new();
    for (int early = 0; early <= 1; early++) { /* data and end before or after the receive is posted */
        net_place_open(&place);
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, early);
        int how = LS_PENDING;
        if (!early) how = ls_op_recv(&place.ctx, sock, &op, room, sizeof room);
        net_write(theirs, "last", 4);
        close(theirs);
        if (early) {
            ls_clock_sleep_ms(5);
            how = ls_op_recv(&place.ctx, sock, &op, room, sizeof room);
        }
        if (how == LS_PENDING) expect_packet(&place, &op, 4);
        assert_int_equal(atomic_load(&op.result), 4);
        if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING) expect_packet(&place, &op, 0);
        assert_int_equal(atomic_load(&op.result), 0);
        ls_sock_close(&place.ctx, sock);
        net_place_close(&place);
    }
}

static void expect_watch(net_place *place, ls_op *op, int posted, int64_t result)
{
    if (posted == LS_PENDING) {
        expect_packet(place, op, result);
    } else {
        assert_int_equal(posted, result);
    }
}

static void reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(fd);
}

/* Data and the end of the peer's data do not end a watch; a reset does, whatever was received before. */
TEST(a_watch_reports_a_reset_only)
{
    for (int kind = 0; kind < 5; kind++) {
        net_place place;
        int theirs;
        ls_op op = op_new(), rx = op_new();
        ls_packet packet;
        char room[16];
        ls_sock *sock = net_conn_open(&place, &theirs);
        if (kind == 4) { /* lost before the watch */
            reset(theirs);
            while (recv((int)ls_sock_fd(sock), room, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN) {}
        }
        const int posted = ls_op_watch(&place.ctx, sock, &op);
        if (posted == LS_ENOTSUP) {
            if (kind < 4) close(theirs);
            ls_sock_close(&place.ctx, sock);
            net_place_close(&place);
            print_message("skipped: of another system: the loss of a connection without a receive\n");
            skip();
        }
        if (kind < 4) assert_int_equal(posted, LS_PENDING);
        if (kind == 1 || kind == 3) net_write(theirs, "data", 4);
        if (kind == 2 || kind == 3) assert_int_equal(shutdown(theirs, SHUT_WR), 0);
        if (kind == 1) { /* a receive beside the watch */
            if (ls_op_recv(&place.ctx, sock, &rx, room, sizeof room) == LS_PENDING) expect_packet(&place, &rx, 4);
            assert_int_equal(atomic_load(&rx.result), 4);
            net_write(theirs, "more", 4);
        }
        if (kind < 4) {
            assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, 20), 0);
            assert_true(ls_op_unwatch(sock, &op)); /* no packet follows */
            assert_false(ls_op_unwatch(sock, &op));
            assert_int_equal(ls_op_watch(&place.ctx, sock, &op), LS_PENDING);
            reset(theirs);
        }
        expect_watch(&place, &op, posted, LS_ERESET);
        assert_false(ls_op_unwatch(sock, &op));
        assert_int_equal(ls_op_watch(&place.ctx, sock, &op), LS_ERESET); /* from now on at once */
        ls_sock_close(&place.ctx, sock);
        net_place_close(&place);
    }
}

TEST(closing_ends_a_watch)
{
    net_place place;
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    const int posted = ls_op_watch(&place.ctx, sock, &op);
    ls_sock_close(&place.ctx, sock);
    if (posted == LS_PENDING) expect_packet(&place, &op, LS_ECANCELED);
    close(theirs);
    net_place_close(&place);
}

/* A discard needs no block. */
TEST(discarding)
{
    enum { BYTES = 50000, BLOCKS = (63 << 20) / LS_BLOCK_LARGE }; /* the buffers of every system hold BYTES */
    static ls_block *hoard[BLOCKS];
    net_place place;
    int theirs;
    ls_op op = op_new();
    char *bytes = calloc(1, BYTES);
    assert_non_null(bytes);
    ls_sock *sock = net_conn_open(&place, &theirs);
    for (int i = 0; i < BLOCKS; i++) assert_non_null(hoard[i] = ls_block_get(place.ctx.pool, LS_BLOCK_LARGE));
    for (int round = 0; round < 2; round++) {
        int64_t sum = 0;
        int posted = ls_op_discard(&place.ctx, sock, &op);
        assert_int_equal(posted, LS_PENDING);
        net_write(theirs, bytes, BYTES);
        while (sum < BYTES) {
            if (posted == LS_PENDING) (void)net_next(&place);
            const int64_t n = atomic_load(&op.result);
            assert_true(n > 0 && n <= 16384);
            sum += n;
            if (sum < BYTES) posted = ls_op_discard(&place.ctx, sock, &op);
        }
        assert_int_equal(sum, BYTES);
    }
    assert_int_equal(shutdown(theirs, SHUT_WR), 0);
    if (ls_op_discard(&place.ctx, sock, &op) == LS_PENDING) expect_packet(&place, &op, 0);
    assert_int_equal(atomic_load(&op.result), 0);
    for (int i = 0; i < BLOCKS; i++) ls_block_drop(hoard[i]);
    net_conn_close(&place, sock, theirs);
    free(bytes);
}

TEST(a_pool_at_its_limit_fails_the_receive_and_loses_no_data)
{
    enum { BLOCKS = (63 << 20) / LS_BLOCK_LARGE }; /* of 64 MiB; the rest is the reserve */
    static ls_block *hoard[BLOCKS];
    net_place place;
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    for (int i = 0; i < BLOCKS; i++) assert_non_null(hoard[i] = ls_block_get(place.ctx.pool, LS_BLOCK_LARGE));
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, LS_ENOMEM);
    for (int i = 0; i < BLOCKS; i++) ls_block_drop(hoard[i]);
    if (ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL) == LS_PENDING) expect_packet(&place, &op, 5);
    assert_int_equal(atomic_load(&op.result), 5);
    ls_block_drop(op.recv.block);
    net_conn_close(&place, sock, theirs);
}

static void receive_all(net_place *place, ls_sock *sock, char *to, size_t len)
{
    ls_op op = op_new();
    for (size_t got = 0, i = 0; got < len; i++) {
        const uint32_t room = i % 3 == 0 ? 100 : i % 3 == 1 ? LS_BLOCK_SMALL : LS_BLOCK_LARGE;
        char *own = i % 3 == 0 ? to + got : NULL;
        const int how = ls_op_recv(&place->ctx, sock, &op, own, len - got < 100 && own != NULL ? 1 : room);
        if (how == LS_PENDING) assert_ptr_equal(net_next(place).op, &op);
        const int64_t n = atomic_load(&op.result);
        assert_in_range(n, 1, len - got);
        if (own == NULL) {
            memcpy(to + got, op.recv.block->data, (size_t)n);
            ls_block_drop(op.recv.block);
        }
        got += (size_t)n;
    }
}

TEST(bytes_that_come_before_they_are_asked_for_are_kept_in_order)
{
    enum { CHUNK = 3000, CHUNKS = 40, LEN = CHUNK * CHUNKS };
    static char got[LEN];
    char *bytes = pattern(LEN, 9), c;
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    for (int round = 0; round < 4;
         round++) { /* all at once; with looks at the port between; the peer ends; it is closed */
        net_place_open(&place);
        net_tcp_pair(&ours, &theirs);
        assert_int_equal(setsockopt(ours, SOL_SOCKET, SO_RCVBUF, &(int){1 << 20}, sizeof(int)), 0);
        ls_sock *sock = net_attach(&place, ours, true);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, &c, 1), LS_PENDING);
        net_write(theirs, "!", 1);
        expect_packet(&place, &op, 1);
        for (int i = 0; i < CHUNKS; i++) {
            net_write(theirs, bytes + (size_t)i * CHUNK, CHUNK);
            if (round > 0) net_quiet(&place, i % 4 == 0 ? 1 : 0);
        }
        if (round == 2) close(theirs);
        if (round < 3) {
            receive_all(&place, sock, got, LEN);
            assert_memory_equal(got, bytes, LEN);
        }
        if (round == 2) {
            if (ls_op_recv(&place.ctx, sock, &op, &c, 1) == LS_PENDING) expect_packet(&place, &op, 0);
            assert_int_equal(atomic_load(&op.result), 0);
        } else if (round < 2) { /* and it waits again */
            assert_int_equal(ls_op_recv(&place.ctx, sock, &op, &c, 1), LS_PENDING);
            net_write(theirs, "?", 1);
            expect_packet(&place, &op, 1);
        }
        ls_sock_close(&place.ctx, sock);
        if (round != 2) close(theirs);
        net_place_close(&place);
    }
    free(bytes);
}

TEST(a_receive_without_room_tells_that_something_is_there)
{
    net_place place;
    char room[8];
    int theirs;
    ls_op op = op_new();
    ls_sock *sock = net_conn_open(&place, &theirs);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, 0), LS_PENDING);
    net_quiet(&place, 5);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, 0);
    assert_null(op.recv.block);
    if (ls_op_recv(&place.ctx, sock, &op, NULL, 0) == LS_PENDING) expect_packet(&place, &op, 0); /* still */
    if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING) expect_packet(&place, &op, 5);
    assert_memory_equal(room, "hello", 5);
    net_conn_close(&place, sock, theirs);
}
