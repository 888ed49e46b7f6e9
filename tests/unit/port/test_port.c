/* test_port.c - the contract of port.h, rule by rule, on whichever back end was built (LS_TEST_BACKEND names one). */
#define TESTS_FD_LIMIT 1 /* system_win32.h */
#include "port_fixture.h"

#include <stdio.h>

#include "base/log.h"
#include "base/thread.h"
#include "system.h"

enum { WORKERS = 4 };

static void count_done(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    (void)op;
    fail(); /* the tests take packets themselves */
}

static ls_op op_new(void)
{
    return (ls_op){.done = count_done};
}

/* The next packet is that of `op`, with this result. */
static void expect_packet(net_place *place, const ls_op *op, void *key, int64_t result)
{
    const ls_packet packet = net_next(place);
    assert_ptr_equal(packet.op, op);
    assert_ptr_equal(packet.key, key);
    assert_int_equal(packet.result, result);
    assert_int_equal(atomic_load(&op->result), result);
}

static uint64_t blocks_live(net_place *place)
{
    ls_pools_stats stats;
    ls_pools_stat(place->pools, &stats);
    return stats.blocks_live;
}

/* ---- the port, packets of one's own ------------------------------------------------------------------------------ */

static void the_back_end_is_named(void **state)
{
    const ls_port_options unknown = {.sockets_max = 4, .backend = "carrier pigeon"};
    ls_port *port = NULL;
    net_place place;
    (void)state;
    assert_int_equal(ls_port_open(&unknown, &port), LS_ENOTSUP);
    assert_null(port);
    net_open(&place);
    assert_non_null(strstr(ls_port_backends(), ls_port_backend(place.port)));
    net_close(&place);
}

static void posts_come_in_order_and_at_most_max_at_a_time(void **state)
{
    net_place place;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    ls_op ops[10];
    int seen = 0;
    (void)state;
    net_open(&place);
    net_quiet(&place, 0);
    net_quiet(&place, 5);
    for (int i = 0; i < 10; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_port_post(place.port, i % 5 == 4 ? NULL : &ops[i], &ops[i], 100 + i), LS_OK);
    }
    while (seen < 10) {
        const int max = 1 + seen % LS_WAIT_PACKETS_MAX;
        const int n = ls_port_wait(place.port, &place.ctx, packets, max, 1000);
        assert_in_range(n, 1, max);
        for (int k = 0; k < n; k++, seen++) {
            assert_ptr_equal(packets[k].op, seen % 5 == 4 ? NULL : &ops[seen]);
            assert_ptr_equal(packets[k].key, &ops[seen]);
            assert_int_equal(packets[k].result, 100 + seen);
        }
    }
    net_close(&place);
}

static void post_later(void *arg)
{
    net_place *place = arg;
    ls_clock_sleep_ms(20);
    assert_int_equal(ls_port_post(place->port, NULL, place, 1), LS_OK);
}

static void a_post_wakes_a_thread_that_waits_for_ever(void **state)
{
    net_place place;
    ls_thread thread;
    ls_packet packet;
    (void)state;
    net_open(&place);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_thread_start(&thread, "later", post_later, &place), LS_OK);
        assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, -1), 1);
        assert_ptr_equal(packet.key, &place);
        ls_thread_join(&thread);
    }
    net_close(&place);
}

typedef struct storm {
    net_place *place;
    int from, n;
    ls_op *ops;
    _Atomic int *taken, *left;
} storm;

static void storm_main(void *arg)
{
    storm *s = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(s->place, &ctx, 1);
    for (int i = 0; i < s->n || atomic_load(s->left) > 0; i++) {
        if (i < s->n) {
            s->ops[s->from + i] = op_new();
            ls_port_post(s->place->port, &s->ops[s->from + i], NULL, s->from + i);
            if (i % 5) continue;
        }
        const int n = ls_port_wait(s->place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, i < s->n ? 0 : 5);
        for (int k = 0; k < n; k++) atomic_fetch_add(&s->taken[packets[k].result], 1);
        if (n > 0) atomic_fetch_sub(s->left, n);
    }
    ls_pool_close(ctx.pool);
}

static void posts_from_many_threads_come_once_each(void **state)
{
    enum { EACH = 5000 };
    static ls_op ops[WORKERS * EACH];
    static _Atomic int taken[WORKERS * EACH];
    _Atomic int left = WORKERS * EACH;
    net_place place;
    ls_thread threads[WORKERS];
    storm storms[WORKERS];
    (void)state;
    net_open(&place);
    for (int i = 0; i < WORKERS; i++) {
        storms[i] = (storm){&place, i * EACH, EACH, ops, taken, &left};
        assert_int_equal(ls_thread_start(&threads[i], "storm", storm_main, &storms[i]), LS_OK);
    }
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < WORKERS * EACH; i++) assert_int_equal(taken[i], 1);
    net_close(&place);
}

/* ---- receive ------------------------------------------------------------------------------------------------------ */

static void receive_into_own_memory(void **state)
{
    net_place place;
    char room[8];
    int ours, theirs, key;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, &key, false);
    assert_int_equal(ls_sock_fd(sock), ours);
    assert_ptr_equal(ls_sock_key(sock), &key);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_quiet(&place, 5);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, &key, 5);
    assert_memory_equal(room, "hello", 5);
    net_quiet(&place, 5);

    /* More than there is room for: the rest is found by the next receive, in either of the two ways. */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_write(theirs, "0123456789", 10);
    expect_packet(&place, &op, &key, 8);
    assert_memory_equal(room, "01234567", 8);
    if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING)
        expect_packet(&place, &op, &key, 2);
    else
        assert_int_equal(atomic_load(&op.result), 2);
    assert_memory_equal(room, "89", 2);

    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    close(theirs);
    expect_packet(&place, &op, &key, 0);
    ls_sock_close(&place.ctx, sock);
    net_close(&place);
}

static void a_look_counts_its_packets_as_a_wait_does(void **state)
{
    net_place place;
    ls_packet packet = {.op = NULL};
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    const uint64_t before = atomic_load(&place.ctx.stats.packets);
    net_write(theirs, "hello", 5);
    for (int ms = 0; ls_port_wait(place.port, &place.ctx, &packet, 1, 0) == 0 && ms < 5000; ms++) ls_clock_sleep_ms(1);
    assert_ptr_equal(packet.op, &op);
    assert_int_equal(atomic_load(&place.ctx.stats.packets) - before, 1);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

static void a_fresh_socket_is_tried_at_once(void **state)
{
    net_place place;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    net_write(theirs, "hello", 5);
    ls_sock *sock = net_attach(&place, ours, NULL, true);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 5);
    assert_int_equal(atomic_load(&place.ctx.stats.recv_inline), 1);
    net_quiet(&place, 5); /* done inline: no packet comes */
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

static void an_idle_connection_holds_no_block(void **state)
{
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    for (int round = 0; round < 3; round++) {
        const uint32_t size = round == 1 ? LS_BLOCK_LARGE : LS_BLOCK_SMALL;
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, size), LS_PENDING);
        assert_int_equal(blocks_live(&place), 0);
        net_write(theirs, "hello", 5);
        expect_packet(&place, &op, NULL, 5);
        assert_int_equal(blocks_live(&place), 1);
        assert_int_equal(op.recv.block->cap, size);
        assert_memory_equal(op.recv.block->data, "hello", 5);
        ls_block_drop(op.recv.block);
    }
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    close(theirs);
    expect_packet(&place, &op, NULL, 0);
    assert_int_equal(blocks_live(&place), 0);
    ls_sock_close(&place.ctx, sock);
    net_close(&place);
}

static void a_reset_is_reported(void **state)
{
    const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_tcp_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    close(theirs);
    expect_packet(&place, &op, NULL, LS_ERESET);
    ls_sock_close(&place.ctx, sock);
    net_close(&place);
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
        expect_packet(place, op, NULL, 4);
    }
}

/* Last bytes and the end in one moment: of a reset the bytes may be lost, the end may not. */
static void an_end_right_behind_data_is_reported(void **state)
{
    net_place place;
    ls_thread thread;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    for (int round = 0; round < 600 / SYSTEM_SLOWNESS; round++) {
        const struct linger hard = {.l_onoff = round % 3 > 0, .l_linger = 0};
        net_tcp_pair(&ours, &theirs);
        assert_int_equal(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
        ls_sock *sock = net_attach(&place, ours, NULL, true);
        talk(&place, sock, &op, theirs, round % 2 ? 4 : 0);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_quiet(&place, 0);
        assert_int_equal(ls_thread_start(&thread, "reset", say_and_reset, &theirs), LS_OK);
        int64_t result = 1;
        for (int taken = 0; result > 0; taken++) {
            if (taken > 0) {
                const int how = ls_op_recv(&place.ctx, sock, &op, room, sizeof room);
                if (how < 0) break;
                if (how == LS_DONE) {
                    result = atomic_load(&op.result);
                    continue;
                }
            }
            result = net_next(&place).result;
        }
        ls_thread_join(&thread);
        ls_sock_close(&place.ctx, sock);
    }
    net_close(&place);
}

/* ---- a long stream --------------------------------------------------------------------------------------------------- */

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
static void a_stream_comes_whole_whatever_is_asked(void **state)
{
    static const uint32_t sizes[] = {0, 1, 100, 4096, 4097, 65536};
    static unsigned char room[65536];
    net_place place;
    ls_thread thread;
    int ours, theirs;
    size_t got = 0;
    uint32_t seed = 2;
    bool ended = false;
    (void)state;
    net_open(&place);
    net_tcp_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, true);
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
                if (impatient) ls_op_cancel(sock, &op);
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
    ls_sock_close(&place.ctx, sock);
    net_close(&place);
}

/* Every peer writes `bytes`, and each is received whole. Returns the most packets that one wait brought. */
static int batch_of(net_place *place, int count, const int *theirs, ls_sock **socks, ls_op *ops, uint32_t bytes)
{
    static char text[LS_BLOCK_LARGE];
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    int most = 0;
    for (int i = 0; i < count; i++) net_write(theirs[i], text, bytes);
    for (int left = count; left > 0;) {
        const int n = ls_port_wait(place->port, &place->ctx, packets, LS_WAIT_PACKETS_MAX, 1000);
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

static void a_batch_fits_into_the_cache(void **state)
{
    enum { COUNT = LS_WAIT_PACKETS_MAX };
    int ours, theirs[COUNT];
    ls_sock *socks[COUNT];
    ls_op ops[COUNT];
    net_place place;
    (void)state;
    net_open(&place);
    if (strcmp(ls_port_backend(place.port), "epoll") != 0) {
        net_close(&place);
        print_message("skipped: of another system: elsewhere it is the system that receives\n");
        skip();
    }
    for (int i = 0; i < COUNT; i++) {
        net_pair(&ours, &theirs[i]);
        socks[i] = net_attach(&place, ours, NULL, false);
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
        expect_packet(&place, &ops[i], NULL, LS_ECANCELED);
        close(theirs[i]);
    }
    net_close(&place);
}

/* What came for nobody goes with the socket: the next one, which has its place, does not see it. */
static void what_nobody_received_is_not_the_next_sockets(void **state)
{
    net_place place;
    char room[8];
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    for (int round = 0; round < 20; round++) {
        int ours, theirs;
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, NULL, true);
        talk(&place, sock, &op, theirs, 4);
        net_write(theirs, "nobody", 6);
        if (round % 2) net_quiet(&place, 0);
        ls_sock_close(&place.ctx, sock);
        while (read(theirs, room, sizeof room) > 0) continue;
        close(theirs);
    }
    net_close(&place);
}

static void data_before_the_end_is_not_lost(void **state)
{
    net_place place;
    char room[16];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    for (int early = 0; early <= 1; early++) { /* data and end before or after the receive is posted */
        net_open(&place);
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, NULL, early);
        int how = LS_PENDING;
        if (!early) how = ls_op_recv(&place.ctx, sock, &op, room, sizeof room);
        net_write(theirs, "last", 4);
        close(theirs);
        if (early) {
            ls_clock_sleep_ms(5);
            how = ls_op_recv(&place.ctx, sock, &op, room, sizeof room);
        }
        if (how == LS_PENDING) expect_packet(&place, &op, NULL, 4);
        assert_int_equal(atomic_load(&op.result), 4);
        if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING) expect_packet(&place, &op, NULL, 0);
        assert_int_equal(atomic_load(&op.result), 0);
        ls_sock_close(&place.ctx, sock);
        net_close(&place);
    }
}

static void a_pool_at_its_limit_fails_the_receive_and_loses_no_data(void **state)
{
    enum { BLOCKS = (64 << 20) / LS_BLOCK_LARGE };
    static ls_block *hoard[BLOCKS];
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    for (int i = 0; i < BLOCKS; i++) assert_non_null(hoard[i] = ls_block_get(place.ctx.pool, LS_BLOCK_LARGE));
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL), LS_PENDING);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, NULL, LS_ENOMEM);
    for (int i = 0; i < BLOCKS; i++) ls_block_drop(hoard[i]);
    if (ls_op_recv(&place.ctx, sock, &op, NULL, LS_BLOCK_SMALL) == LS_PENDING) expect_packet(&place, &op, NULL, 5);
    assert_int_equal(atomic_load(&op.result), 5);
    ls_block_drop(op.recv.block);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

/* ---- send --------------------------------------------------------------------------------------------------------- */

static void small_slices_leave_at_once_in_order(void **state)
{
    net_place place;
    char got[32];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice slices[] = {ls_slice_static("one", 3), ls_slice_static("", 0), ls_slice_static(" two", 4),
                         ls_slice_static(" three", 6)};
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, slices, 4, NULL), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 13);
    assert_int_equal(ls_op_sent(&op), 13);
    net_read(theirs, got, 13);
    assert_memory_equal(got, "one two three", 13);
    assert_int_equal(atomic_load(&place.ctx.stats.send_inline), 1);
    net_quiet(&place, 0);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

typedef struct reader {
    int fd;
    size_t len;
    char *bytes;
} reader;

static void reader_main(void *arg)
{
    reader *r = arg;
    net_read(r->fd, r->bytes, r->len);
}

static char *pattern(size_t len, unsigned seed)
{
    char *bytes = malloc(len);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)((i * 7 + i / 251 + seed) & 255);
    return bytes;
}

/* 100 slices of uneven lengths, far more than the socket takes, to a reader that begins late. */
static void a_long_gather_send_goes_on_when_there_is_room(void **state)
{
    enum { SLICES = 100, LEN = 6 << 20 };
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    ls_slice slices[SLICES];
    ls_thread thread;
    size_t from = 0;
    (void)state;
    for (int tcp = 0; tcp <= 1; tcp++, from = 0) {
        char *bytes = pattern(LEN, 1);
        net_open(&place);
        if (tcp)
            net_tcp_pair(&ours, &theirs);
        else
            net_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, &op, false);
        for (int i = 0; i < SLICES; i++) {
            const size_t len = i == SLICES - 1 ? LEN - from : (size_t)(i * 1201 % 120000);
            slices[i] = ls_slice_static(bytes + from, len);
            from += len;
        }
        assert_int_equal(ls_op_send(&place.ctx, sock, &op, slices, SLICES, NULL), LS_PENDING);
        assert_in_range(ls_op_sent(&op), 1, LEN - 1);
        net_quiet(&place, 20); /* nobody reads: nothing completes */
        reader r = {theirs, LEN, malloc(LEN)};
        assert_int_equal(ls_thread_start(&thread, "reader", reader_main, &r), LS_OK);
        expect_packet(&place, &op, &op, LEN);
        ls_thread_join(&thread);
        assert_memory_equal(r.bytes, bytes, LEN);
        net_quiet(&place, 0);
        ls_sock_close(&place.ctx, sock);
        close(theirs);
        net_close(&place);
        free(r.bytes);
        free(bytes);
    }
}

static void a_file_range_follows_its_head(void **state)
{
    enum { FILE_LEN = 3 << 20, FROM = 12345, LEN = FILE_LEN - 2 * FROM };
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    ls_thread thread;
    (void)state;
    net_open(&place);
    net_tcp_pair(&ours, &theirs);
    char *bytes = pattern(FILE_LEN, 2);
    FILE *file = tmpfile();
    assert_non_null(file);
    net_write(fileno(file), bytes, FILE_LEN);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice head[] = {ls_slice_static("he", 2), ls_slice_static("ad", 2)};
    const ls_file_range range = {fileno(file), FROM, LEN};
    reader r = {theirs, 4 + LEN, malloc(4 + LEN)};
    for (int heads = 2; heads >= 0; heads -= 2) { /* with a head, and without */
        r.len = (size_t)heads * 2 + LEN;
        assert_int_equal(ls_op_send(&place.ctx, sock, &op, heads ? head : NULL, (uint16_t)heads, &range), LS_PENDING);
        assert_int_equal(ls_thread_start(&thread, "reader", reader_main, &r), LS_OK);
        expect_packet(&place, &op, NULL, (int64_t)r.len);
        ls_thread_join(&thread);
        if (heads) assert_memory_equal(r.bytes, "head", 4);
        assert_memory_equal(r.bytes + heads * 2, bytes + FROM, LEN);
    }
    const ls_file_range small = {fileno(file), FILE_LEN - 5, 5}, empty = {fileno(file), 0, 0};
    if (ls_op_send(&place.ctx, sock, &op, head, 2, &small) == LS_PENDING) expect_packet(&place, &op, NULL, 9);
    assert_int_equal(atomic_load(&op.result), 9);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, head, 2, &empty), LS_DONE);
    assert_int_equal(atomic_load(&op.result), 4);
    net_read(theirs, r.bytes, 13);
    assert_memory_equal(r.bytes + 4, bytes + FILE_LEN - 5, 5);

    const ls_file_range past = {fileno(file), FILE_LEN - 5, 6}; /* the file ends within the range: an error */
    const int how = ls_op_send(&place.ctx, sock, &op, head, 1, &past);
    assert_true(how < 0 || (how == LS_PENDING && net_next(&place).result < 0));
    ls_sock_close(&place.ctx, sock);
    fclose(file);
    close(theirs);
    free(r.bytes);
    free(bytes);
    net_close(&place);
}

static void a_peer_that_has_gone_is_an_error_not_a_signal(void **state)
{
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    close(theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice slice = ls_slice_static("x", 1);
    int how;
    do how = ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL); /* over TCP the first is lost before that is known */
    while (how == LS_DONE);
    assert_true(how == LS_EPIPE || how == LS_ERESET);
    net_quiet(&place, 5);
    ls_sock_close(&place.ctx, sock);

    /* And while the send waits. */
    char *bytes = pattern(6 << 20, 3);
    net_pair(&ours, &theirs);
    sock = net_attach(&place, ours, NULL, false);
    slice = ls_slice_static(bytes, 6 << 20);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_PENDING);
    close(theirs);
    assert_true(net_next(&place).result < 0);
    ls_sock_close(&place.ctx, sock);
    free(bytes);
    net_close(&place);
}

static void both_directions_complete_when_one_packet_fits(void **state)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 4);
    int ours, theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
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
    net_close(&place);
}

static void shutdown_ends_the_stream_and_receives_go_on(void **state)
{
    net_place place;
    char room[8], c;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_tcp_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice slice = ls_slice_static("bye", 3);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    assert_int_equal(ls_sock_shutdown(sock), LS_OK);
    net_read(theirs, room, 3);
    assert_int_equal(read(theirs, &c, 1), 0);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    net_write(theirs, "ok", 2);
    expect_packet(&place, &op, NULL, 2);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

static void last_bytes_leave_with_the_end_whatever_is_unread(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        net_place place;
        char room[10], c;
        int ours, theirs;
        ls_op op = op_new();
        net_open(&place);
        net_tcp_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, NULL, false);
        net_write(theirs, "unread", 6);
        if (ls_op_recv(&place.ctx, sock, &op, room, 1) == LS_PENDING) expect_packet(&place, &op, NULL, 1);
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
        net_close(&place);
    }
}

static void inline_completions_end_after_their_time(void **state)
{
    net_place place;
    char room[64];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice slice = ls_slice_static("x", 1);
    net_quiet(&place, 0);
    for (int i = 0; i < 20; i++) assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    const uint64_t limit_ns = LS_INLINE_MS_MAX * UINT64_C(1000000);
    assert_true(place.ctx.inline_since_ns > limit_ns);
    place.ctx.inline_since_ns -= limit_ns; /* as if the first had been that long ago */
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_PENDING);
    assert_int_equal(atomic_load(&place.ctx.stats.send_inline), 20);
    expect_packet(&place, &op, NULL, 1);                                           /* a look at the port ... */
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE); /* ... and a new run */
    net_read(theirs, room, 22);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

/* ---- accept and connect -------------------------------------------------------------------------------------------- */

static void several_accepts_posted_ahead(void **state)
{
    enum { AHEAD = 6 };
    net_place place;
    ls_sockaddr at, from[AHEAD];
    ls_op ops[AHEAD];
    int dialled[AHEAD + 2], accepted = 0, key;
    (void)state;
    net_open(&place);
    ls_sock *listener = net_attach(&place, net_listen(&at), &key, false);
    for (int i = 0; i < AHEAD; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place.ctx, listener, &ops[i], i % 2 ? NULL : &from[i]), LS_PENDING);
    }
    for (int i = 0; i < AHEAD + 2; i++) dialled[i] = net_dial(&at); /* two more than are posted */
    while (accepted < AHEAD) {
        ls_packet packets[LS_WAIT_PACKETS_MAX];
        const int n = ls_port_wait(place.port, &place.ctx, packets, LS_WAIT_PACKETS_MAX, 1000);
        assert_in_range(n, 1, LS_WAIT_PACKETS_MAX);
        for (int k = 0; k < n; k++, accepted++) {
            assert_ptr_equal(packets[k].key, &key);
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
    net_quiet(&place, 10);
    for (int i = 0; i < 2; i++) { /* the two that waited in the system's queue */
        const int how = ls_op_accept(&place.ctx, listener, &ops[i], NULL);
        if (how == LS_PENDING) expect_packet(&place, &ops[i], &key, 0);
        assert_true(how >= 0);
        close(ops[i].accept.fd);
    }
    for (int i = 0; i < AHEAD + 2; i++) close(dialled[i]);
    assert_int_equal(atomic_load(&place.ctx.stats.accepts), AHEAD + 2);
    ls_sock_close(&place.ctx, listener);
    net_close(&place);
}

static void pending_accepts_can_be_cancelled_one_by_one_and_by_close(void **state)
{
    net_place place;
    ls_sockaddr at;
    ls_op ops[4];
    int seen = 0;
    (void)state;
    net_open(&place);
    ls_sock *listener = net_attach(&place, net_listen(&at), NULL, false);
    for (int i = 0; i < 4; i++) {
        ops[i] = op_new();
        assert_int_equal(ls_op_accept(&place.ctx, listener, &ops[i], NULL), LS_PENDING);
    }
    ls_op_cancel(listener, &ops[2]);
    expect_packet(&place, &ops[2], NULL, LS_ECANCELED);
    ls_op_cancel(listener, &ops[2]);
    net_quiet(&place, 5);
    const int fd = net_dial(&at);
    expect_packet(&place, &ops[0], NULL, 0);
    close(ops[0].accept.fd);
    ls_sock_close(&place.ctx, listener);
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(&place);
        assert_int_equal(packet.result, LS_ECANCELED);
        seen |= 1 << (packet.op - ops);
    }
    assert_int_equal(seen, 1 << 1 | 1 << 3);
    net_quiet(&place, 5);
    close(fd);
    net_close(&place);
}

static void accepts_survive_running_out_of_descriptors(void **state)
{
    net_place place;
    ls_sockaddr at;
    descriptors_before before;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    for (int by_time = 0; by_time <= 1; by_time++) {
        net_open(&place);
        net_pair(&ours, &theirs);
        ls_sock *spare = net_attach(&place, ours, NULL, false);
        ls_sock *listener = net_attach(&place, net_listen(&at), NULL, false);
        const int fd = net_dial(&at);
        close_the_door(&before);
        assert_int_equal(ls_op_accept(&place.ctx, listener, &op, NULL), LS_PENDING);
        net_quiet(&place, 30); /* it stays pending */
        if (by_time) {
            open_the_door(&before);
            expect_packet(&place, &op, NULL, 0); /* found by trying again */
        }
        ls_sock_close(&place.ctx, spare); /* a descriptor is free again */
        if (!by_time) expect_packet(&place, &op, NULL, 0);
        open_the_door(&before);
        assert_true(op.accept.fd != LS_FD_NONE);
        close(op.accept.fd);
        ls_sock_close(&place.ctx, listener);
        close(fd);
        close(theirs);
        net_quiet(&place, 150);
        net_close(&place);
    }
}

static void closing_a_listener_that_is_out_of_descriptors(void **state)
{
    net_place place;
    ls_sockaddr at;
    descriptors_before before;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    ls_sock *listener = net_attach(&place, net_listen(&at), NULL, false);
    const int fd = net_dial(&at);
    close_the_door(&before);
    assert_int_equal(ls_op_accept(&place.ctx, listener, &op, NULL), LS_PENDING);
    net_quiet(&place, 20);
    ls_sock_close(&place.ctx, listener);
    expect_packet(&place, &op, NULL, LS_ECANCELED);
    net_quiet(&place, 150);
    open_the_door(&before);
    close(fd);
    net_close(&place);
}

static void connect_succeeds_or_is_refused(void **state)
{
    net_place place;
    ls_sockaddr at;
    char room[8];
    ls_op op = op_new(), in = op_new();
    (void)state;
    net_open(&place);
    const int listener = net_listen(&at);
    ls_sock *sock = net_attach(&place, net_tcp(), &at, false);
    int how = ls_op_connect(&place.ctx, sock, &op, &at);
    if (how == LS_PENDING) expect_packet(&place, &op, &at, 0);
    assert_true(how >= 0);
    assert_int_equal(atomic_load(&op.result), 0);
    int peer;
    do peer = accept(listener, NULL, NULL);
    while (peer < 0);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    net_write(peer, "hi", 2);
    expect_packet(&place, &in, &at, 2);
    ls_slice slice = ls_slice_static("ho", 2);
    assert_int_equal(ls_op_send(&place.ctx, sock, &op, &slice, 1, NULL), LS_DONE);
    net_read(peer, room, 2);
    ls_sock_close(&place.ctx, sock);
    close(peer);
    close(listener); /* the port is free now: nobody listens */

    sock = net_attach(&place, net_tcp(), &at, false);
    how = ls_op_connect(&place.ctx, sock, &op, &at);
    assert_true(how == LS_EREFUSED || (how == LS_PENDING && net_next(&place).result == LS_EREFUSED));
    ls_sock_close(&place.ctx, sock);
    net_close(&place);
}

static void sockets_past_the_limit_stay_the_callers(void **state)
{
    const ls_port_options options = {.sockets_max = 3, .backend = test_backend()};
    ls_sock *socks[3], *more = NULL;
    net_place place;
    (void)state;
    net_open(&place);
    ls_port *usual = place.port, *small;
    assert_int_equal(ls_port_open(&options, &small), LS_OK);
    net_use(&place, small);
    for (int i = 0; i < 3; i++) socks[i] = net_attach(&place, net_tcp(), NULL, false);
    const int fd = net_tcp();
    assert_int_equal(ls_sock_attach(place.port, fd, NULL, false, &more), LS_ELIMIT);
    assert_null(more);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    ls_sock_close(&place.ctx, socks[1]);
    socks[1] = net_attach(&place, fd, NULL, false);
    for (int i = 0; i < 3; i++) ls_sock_close(&place.ctx, socks[i]);
    net_use(&place, usual);
    ls_port_close(small);
    net_close(&place);
}

/* ---- cancel and close ---------------------------------------------------------------------------------------------- */

static void a_cancelled_operation_completes_once_and_the_socket_lives(void **state)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 5);
    int ours, theirs;
    ls_op in = op_new(), out = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    ls_op_cancel(sock, &in); /* not pending: nothing */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);
    ls_op_cancel(sock, &in);
    expect_packet(&place, &in, NULL, LS_ECANCELED);
    ls_op_cancel(sock, &in);
    net_quiet(&place, 5);
    ls_op_cancel(sock, &out);
    expect_packet(&place, &out, NULL, LS_ECANCELED);
    net_quiet(&place, 5);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    net_write(theirs, "still", 5);
    expect_packet(&place, &in, NULL, 5);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    free(bytes);
    net_close(&place);
}

static void close_cancels_what_is_pending(void **state)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 6);
    int ours, theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
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
    net_close(&place);
}

/* An event that was on its way when the socket was closed does not reach the next user of slot and descriptor. */
static void a_late_event_does_not_reach_the_next_socket(void **state)
{
    net_place place;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    for (int round = 0; round < 50; round++) {
        net_pair(&ours, &theirs);
        ls_sock *sock = net_attach(&place, ours, NULL, false);
        const int held = dup(ours); /* keeps the open file, and with it the registration, alive */
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_write(theirs, "late", 4);
        ls_sock_close(&place.ctx, sock);
        expect_packet(&place, &op, NULL, LS_ECANCELED);

        int next_ours, next_theirs;
        net_pair(&next_ours, &next_theirs);
        sock = net_attach(&place, next_ours, &place, false);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
        net_quiet(&place, 0);
        net_write(next_theirs, "mine", 4);
        expect_packet(&place, &op, &place, 4);
        assert_memory_equal(room, "mine", 4);
        ls_sock_close(&place.ctx, sock);
        close(held);
        close(theirs);
        close(next_theirs);
    }
    net_close(&place);
}

/* As the deadlines of a connection use it: from any thread, by the life of the socket. */
static void a_socket_is_cancelled_as_a_whole_while_it_lives(void **state)
{
    net_place place;
    char room[8], *bytes = pattern(6 << 20, 8);
    int ours, theirs, seen = 0;
    ls_op in = op_new(), out = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    const uint32_t life = ls_sock_generation(sock);
    ls_slice slice = ls_slice_static(bytes, 6 << 20);
    ls_sock_cancel(sock, life); /* nothing is pending */
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_op_send(&place.ctx, sock, &out, &slice, 1, NULL), LS_PENDING);

    const uint64_t before = ls_sock_progress_ms(sock);
    net_quiet(&place, 5);
    assert_true(ls_sock_progress_ms(sock) == before);
    while (ls_clock_coarse_ms() <= before) net_quiet(&place, 1);
    const size_t stuck = (size_t)ls_op_sent(&out);
    char *got = malloc(stuck);
    net_read(theirs, got, stuck);
    net_quiet(&place, 5);
    assert_true(ls_sock_progress_ms(sock) > before);

    ls_sock_cancel(sock, life + 1); /* another life */
    net_quiet(&place, 5);
    ls_sock_cancel(sock, life);
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(&place);
        assert_int_equal(packet.result, LS_ECANCELED);
        seen |= packet.op == &in ? 1 : 2;
    }
    assert_int_equal(seen, 3);
    ls_sock_close(&place.ctx, sock);
    close(theirs);

    net_pair(&ours, &theirs);
    sock = net_attach(&place, ours, NULL, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &in, room, sizeof room), LS_PENDING);
    if (ls_sock_generation(sock) != life) ls_sock_cancel(sock, life); /* the same slot, the life before */
    net_quiet(&place, 5);
    ls_sock_close(&place.ctx, sock);
    expect_packet(&place, &in, NULL, LS_ECANCELED);
    close(theirs);
    free(got);
    free(bytes);
    net_close(&place);
}

/* ---- bytes that nobody asked for yet, and thread contexts that were left ------------------------------------------------------- */

/* Take `len` bytes with receives of changing kinds: into own memory, into small blocks, into large ones. */
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

static void bytes_that_come_before_they_are_asked_for_are_kept_in_order(void **state)
{
    enum { CHUNK = 3000, CHUNKS = 40, LEN = CHUNK * CHUNKS };
    static char got[LEN];
    char *bytes = pattern(LEN, 9), c;
    net_place place;
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    for (int round = 0; round < 4;
         round++) { /* all at once; with looks at the port between; the peer ends; it is closed */
        net_open(&place);
        net_tcp_pair(&ours, &theirs);
        assert_int_equal(setsockopt(ours, SOL_SOCKET, SO_RCVBUF, &(int){1 << 20}, sizeof(int)), 0);
        ls_sock *sock = net_attach(&place, ours, NULL, true);
        assert_int_equal(ls_op_recv(&place.ctx, sock, &op, &c, 1), LS_PENDING);
        net_write(theirs, "!", 1);
        expect_packet(&place, &op, NULL, 1);
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
            if (ls_op_recv(&place.ctx, sock, &op, &c, 1) == LS_PENDING) expect_packet(&place, &op, NULL, 0);
            assert_int_equal(atomic_load(&op.result), 0);
        } else if (round < 2) { /* and it waits again */
            assert_int_equal(ls_op_recv(&place.ctx, sock, &op, &c, 1), LS_PENDING);
            net_write(theirs, "?", 1);
            expect_packet(&place, &op, NULL, 1);
        }
        ls_sock_close(&place.ctx, sock);
        if (round != 2) close(theirs);
        net_close(&place);
    }
    free(bytes);
}

static void a_receive_without_room_tells_that_something_is_there(void **state)
{
    net_place place;
    char room[8];
    int ours, theirs;
    ls_op op = op_new();
    (void)state;
    net_open(&place);
    net_pair(&ours, &theirs);
    ls_sock *sock = net_attach(&place, ours, NULL, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, NULL, 0), LS_PENDING);
    net_quiet(&place, 5);
    net_write(theirs, "hello", 5);
    expect_packet(&place, &op, NULL, 0);
    assert_null(op.recv.block);
    if (ls_op_recv(&place.ctx, sock, &op, NULL, 0) == LS_PENDING) expect_packet(&place, &op, NULL, 0); /* still */
    if (ls_op_recv(&place.ctx, sock, &op, room, sizeof room) == LS_PENDING) expect_packet(&place, &op, NULL, 5);
    assert_memory_equal(room, "hello", 5);
    ls_sock_close(&place.ctx, sock);
    close(theirs);
    net_close(&place);
}

typedef struct visitor { /* a thread that waits once, posts from there, and then does something else for long */
    net_place *place;
    ls_thread_ctx ctx;
    ls_sock *sock;
    ls_op op, send;
    char room[8];
    ls_slice slice;
    ls_mutex mutex;
    ls_cond changed;
    bool posted, may_end;
    int theirs;
} visitor;

static void visitor_main(void *arg)
{
    visitor *v = arg;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(v->place, &v->ctx, 1);
    /* Two packets at a time: then sends may be left to be submitted with others. */
    assert_int_equal(ls_port_post(v->place->port, NULL, v, 0), LS_OK);
    assert_int_equal(ls_port_post(v->place->port, NULL, v, 0), LS_OK);
    for (int n = 0; n < 2;) n += ls_port_wait(v->place->port, &v->ctx, packets, LS_WAIT_PACKETS_MAX, 1000);
    assert_int_equal(ls_op_recv(&v->ctx, v->sock, &v->op, v->room, sizeof v->room), LS_PENDING);
    const int how = ls_op_send(&v->ctx, v->sock, &v->send, &v->slice, 1, NULL);
    assert_true(how >= 0);
    if (how == LS_DONE) ls_port_post(v->place->port, &v->send, NULL, 5);
    ls_mutex_lock(&v->mutex);
    v->posted = true;
    ls_cond_signal(&v->changed);
    while (!v->may_end) ls_cond_wait(&v->changed, &v->mutex);
    ls_mutex_unlock(&v->mutex);
    ls_pool_close(v->ctx.pool);
}

static void visitor_is_left(void *arg)
{
    visitor *v = arg;
    ls_clock_sleep_ms(20); /* the test's thread is asleep in its wait by now, which has no timeout */
    ls_port_detach(v->place->port, &v->ctx);
    ls_port_detach(v->place->port, &v->ctx);
    ls_clock_sleep_ms(5);
    net_write(v->theirs, "hello", 5);
}

/* A receive and a send that were posted by a thread which does not come back are others' when it was said to have left. */
static void others_take_what_waits_for_a_detached_thread(void **state)
{
    for (int late = 0; late <= 1; late++) { /* the bytes come before it is said, or after */
        visitor v = {.op = op_new(), .send = op_new(), .slice = ls_slice_static("ahoy!", 5)};
        net_place place;
        ls_thread thread, other;
        char got[8];
        int ours, theirs, seen = 0;
        (void)state;
        net_open(&place);
        net_pair(&ours, &theirs);
        v.theirs = theirs;
        v.place = &place;
        v.sock = net_attach(&place, ours, NULL, true);
        assert_int_equal(ls_mutex_open(&v.mutex), LS_OK);
        assert_int_equal(ls_cond_open(&v.changed), LS_OK);
        assert_int_equal(ls_thread_start(&thread, "visitor", visitor_main, &v), LS_OK);
        ls_mutex_lock(&v.mutex);
        while (!v.posted) ls_cond_wait(&v.changed, &v.mutex);
        ls_mutex_unlock(&v.mutex);
        if (late) {
            assert_int_equal(ls_thread_start(&other, "leave", visitor_is_left, &v), LS_OK);
        } else {
            net_write(theirs, "hello", 5);
            ls_port_detach(place.port, &v.ctx);
        }
        for (int i = 0; i < 2; i++) {
            ls_packet packet;
            assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, -1), 1);
            assert_int_equal(packet.result, 5);
            seen |= packet.op == &v.op ? 1 : 2;
        }
        if (late) ls_thread_join(&other);
        assert_int_equal(seen, 3);
        assert_memory_equal(v.room, "hello", 5);
        net_read(theirs, got, 5);
        assert_memory_equal(got, "ahoy!", 5);

        /* The next receive is posted here; then the thread ends, which ends what it had asked of the system. */
        char room[8];
        ls_op op = op_new();
        assert_int_equal(ls_op_recv(&place.ctx, v.sock, &op, room, sizeof room), LS_PENDING);
        ls_mutex_lock(&v.mutex);
        v.may_end = true;
        ls_cond_signal(&v.changed);
        ls_mutex_unlock(&v.mutex);
        ls_thread_join(&thread);
        net_quiet(&place, 10);
        net_write(theirs, "more", 4);
        expect_packet(&place, &op, NULL, 4);
        assert_memory_equal(room, "more", 4);
        ls_sock_close(&place.ctx, v.sock);
        close(theirs);
        ls_cond_close(&v.changed);
        ls_mutex_close(&v.mutex);
        net_close(&place);
    }
}

/* Races: four threads wait, write and cancel, while the test's own thread posts and closes. */
typedef struct race {
    ls_op op;                  /* the receive */
    ls_op post, write, cancel; /* make a worker do it */
    ls_sock *sock;
    int theirs;
    _Atomic int completions, errands, posted;
} race;

static _Atomic bool race_over;

static void race_received(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, op);
    const int64_t result = atomic_load(&op->result);
    (void)ctx;
    if (result > 0) ls_block_drop(op->recv.block);
    if (result != 1 && result != LS_ECANCELED) abort();
    atomic_fetch_add(&r->completions, 1);
}

static void race_post(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, post);
    if (ls_op_recv(ctx, r->sock, &r->op, NULL, LS_BLOCK_SMALL) != LS_PENDING) abort();
    atomic_store(&r->posted, 1);
}

static void race_write(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, write);
    (void)ctx;
    if (send(r->theirs, "x", 1, MSG_NOSIGNAL) < 0) { /* closed by now: as good */
    }
    atomic_fetch_add(&r->errands, 1);
}

static void race_cancel(ls_thread_ctx *ctx, ls_op *op)
{
    race *r = LS_CONTAINER(op, race, cancel);
    (void)ctx;
    ls_op_cancel(r->sock, &r->op);
    atomic_fetch_add(&r->errands, 1);
}

static void race_main(void *arg)
{
    net_place *place = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(place, &ctx, 1);
    while (!atomic_load(&race_over)) {
        const int n = ls_port_wait(place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, 5);
        for (int i = 0; i < n; i++) packets[i].op->done(&ctx, packets[i].op);
    }
    ls_pool_close(ctx.pool);
}

static void whatever_races_there_is_one_completion(void **state)
{
    enum { ROUNDS = 3000 / SYSTEM_SLOWNESS };
    static race races[ROUNDS];
    net_place place;
    ls_thread threads[WORKERS];
    (void)state;
    net_open(&place);
    ls_port_detach(place.port, &place.ctx);
    atomic_store(&race_over, false);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(ls_thread_start(&threads[i], "race", race_main, &place), LS_OK);
    for (int i = 0; i < ROUNDS; i++) {
        race *r = &races[i];
        const bool writes = i % 3 != 2, cancels = i % 3 != 1; /* write and cancel; write and close; cancel and close */
        int ours;
        memset(r, 0, sizeof *r);
        r->op.done = race_received;
        r->write.done = race_write;
        r->cancel.done = race_cancel;
        net_pair(&ours, &r->theirs);
        r->sock = net_attach(&place, ours, NULL, false);
        r->post.done = race_post;
        if (i & 1)
            race_post(&place.ctx, &r->post);
        else
            ls_port_post(place.port, &r->post, NULL, 0);
        while (atomic_load(&r->posted) == 0) ls_clock_sleep_ms(0);
        if (writes) ls_port_post(place.port, &r->write, NULL, 0);
        if (cancels) { /* needs the socket open */
            ls_port_post(place.port, &r->cancel, NULL, 0);
            while (atomic_load(&r->errands) < writes + cancels) ls_clock_sleep_ms(0);
        } else {
            for (volatile int spin = 0; spin < i % 2000; spin++) continue;
        }
        ls_sock_close(&place.ctx, r->sock);
        while (atomic_load(&r->errands) < writes + cancels || atomic_load(&r->completions) == 0) ls_clock_sleep_ms(0);
        close(r->theirs);
    }
    ls_clock_sleep_ms(20); /* for one completion too many */
    atomic_store(&race_over, true);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < ROUNDS; i++) assert_int_equal(atomic_load(&races[i].completions), 1);
    net_close(&place);
}

/* Echo over many connections by four threads: receive and send re-posted from inside, in any thread. */
typedef struct echo {
    ls_op in, out, start;
    ls_sock *sock;
    ls_slice slice;
} echo;

static _Atomic int echoes_open;

static void echo_receive(ls_thread_ctx *ctx, echo *e);

static void echo_sent(ls_thread_ctx *ctx, ls_op *op)
{
    echo *e = LS_CONTAINER(op, echo, out);
    ls_slice_drop(&e->slice);
    echo_receive(ctx, e);
}

static void echo_received(ls_thread_ctx *ctx, ls_op *op)
{
    echo *e = LS_CONTAINER(op, echo, in);
    const int64_t n = atomic_load(&op->result);
    if (n <= 0) {
        ls_sock_close(ctx, e->sock);
        atomic_fetch_sub(&echoes_open, 1);
        return;
    }
    e->slice = (ls_slice){op->recv.block, op->recv.block->data, (size_t)n};
    const int how = ls_op_send(ctx, e->sock, &e->out, &e->slice, 1, NULL);
    if (how < 0) abort();
    if (how == LS_DONE) echo_sent(ctx, &e->out);
}

static void echo_receive(ls_thread_ctx *ctx, echo *e)
{
    const int how = ls_op_recv(ctx, e->sock, &e->in, NULL, LS_BLOCK_SMALL);
    if (how < 0) abort();
    if (how == LS_DONE) echo_received(ctx, &e->in);
}

static void echo_start(ls_thread_ctx *ctx, ls_op *op)
{
    echo_receive(ctx, LS_CONTAINER(op, echo, start));
}

static void echoes_from_any_thread_lose_no_byte(void **state)
{
    enum { PEERS = 16, ROUNDS = 60, LEN = 20000 };
    static echo echoes[PEERS];
    static char got[LEN];
    int theirs[PEERS], ours;
    net_place place;
    ls_thread threads[WORKERS];
    (void)state;
    net_open(&place);
    ls_port_detach(place.port, &place.ctx);
    char *bytes = pattern(LEN, 7);
    atomic_store(&race_over, false);
    atomic_store(&echoes_open, PEERS);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(ls_thread_start(&threads[i], "echo", race_main, &place), LS_OK);
    for (int i = 0; i < PEERS; i++) {
        net_tcp_pair(&ours, &theirs[i]);
        echoes[i] = (echo){.in = {.done = echo_received}, .out = {.done = echo_sent}, .start = {.done = echo_start}};
        echoes[i].sock = net_attach(&place, ours, NULL, true);
        if (i & 1)
            echo_start(&place.ctx, &echoes[i].start);
        else
            ls_port_post(place.port, &echoes[i].start, NULL, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        const size_t len = round % 3 ? 1 + (size_t)round : LEN;
        for (int i = 0; i < PEERS; i++) net_write(theirs[i], bytes, len);
        for (int i = 0; i < PEERS; i++) {
            net_read(theirs[i], got, len);
            assert_memory_equal(got, bytes, len);
        }
    }
    for (int i = 0; i < PEERS; i++) close(theirs[i]);
    for (int ms = 0; atomic_load(&echoes_open) > 0 && ms < 5000; ms++) ls_clock_sleep_ms(1);
    assert_int_equal(atomic_load(&echoes_open), 0);
    atomic_store(&race_over, true);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    free(bytes);
    net_close(&place);
}

/* ---- timers --------------------------------------------------------------------------------------------------------- */

#define MS UINT64_C(1000000)

static void timers_come_in_order_and_not_early(void **state)
{
    net_place place;
    ls_timer timers[4];
    const int delay_ms[] = {30, 10, 0, 20}, order[] = {2, 1, 3, 0};
    (void)state;
    net_open(&place);
    const uint64_t start = ls_clock_ns();
    for (int i = 0; i < 4; i++) {
        timers[i] = (ls_timer){.op = {.done = count_done}};
        assert_int_equal(ls_timer_set(place.port, &timers[i], start + (uint64_t)delay_ms[i] * MS), LS_OK);
    }
    for (int i = 0; i < 4; i++) {
        const ls_packet packet = net_next(&place);
        assert_ptr_equal(packet.op, &timers[order[i]].op);
        assert_int_equal(packet.result, 0);
        assert_true(ls_clock_ns() >= start + (uint64_t)delay_ms[order[i]] * MS);
    }
    net_quiet(&place, 20);
    net_close(&place);
}

static void a_timer_can_be_moved_and_taken_back(void **state)
{
    net_place place;
    ls_timer a = {.op = {.done = count_done}}, b = {.op = {.done = count_done}};
    (void)state;
    net_open(&place);
    const uint64_t start = ls_clock_ns();
    assert_int_equal(ls_timer_set(place.port, &a, start + 10 * MS), LS_OK);
    assert_int_equal(ls_timer_set(place.port, &b, start + 3600000 * MS), LS_OK);
    assert_int_equal(ls_timer_set(place.port, &a, start + 3600000 * MS), LS_OK); /* later */
    assert_int_equal(ls_timer_set(place.port, &b, start + 30 * MS), LS_OK);      /* sooner */
    expect_packet(&place, &b.op, NULL, 0);
    assert_true(ls_clock_ns() >= start + 30 * MS);
    assert_false(ls_timer_move(place.port, &b, start));
    assert_true(ls_timer_move(place.port, &a, start + 80 * MS));
    assert_true(ls_timer_cancel(place.port, &a));
    assert_false(ls_timer_cancel(place.port, &a));
    assert_false(ls_timer_move(place.port, &a, start));
    assert_false(ls_timer_cancel(place.port, &b)); /* its packet came */
    net_quiet(&place, 80);
    assert_int_equal(ls_timer_set(place.port, &a, ls_clock_ns() - MS), LS_OK); /* the past is now */
    expect_packet(&place, &a.op, NULL, 0);
    assert_int_equal(ls_timer_set(place.port, &a, 0), LS_OK);
    expect_packet(&place, &a.op, NULL, 0);
    net_close(&place);
}

enum { CLOCKS = 64 };
typedef struct alarm_clock {
    ls_timer timer;
    _Atomic int fired;
} alarm_clock;

static void clock_rang(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    atomic_fetch_add(&LS_CONTAINER(op, alarm_clock, timer.op)->fired, 1);
}

typedef struct clocks {
    net_place *place;
    alarm_clock all[CLOCKS];
    int expected[CLOCKS];
} clocks;

/* Owns its clocks: set, move, take back, at random; counts how often each must ring. Waits at the port as well. */
static void clocks_main(void *arg)
{
    clocks *c = arg;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    unsigned dice = (unsigned)(uintptr_t)c;
    net_ctx_open(c->place, &ctx, 1);
    for (int step = 0; step < 4000; step++) {
        dice = dice * 1664525u + 1013904223u;
        const unsigned i = dice >> 16 & (CLOCKS - 1), what = dice >> 28;
        alarm_clock *one = &c->all[i];
        if (what < 8 && atomic_load(&one->fired) == c->expected[i]) { /* not armed, no packet on its way */
            c->expected[i]++;
            if (ls_timer_set(c->place->port, &one->timer, ls_clock_ns() + (dice >> 8 & 3) * MS / 2) < 0) abort();
        } else if (what < 12 && ls_timer_cancel(c->place->port, &one->timer)) {
            c->expected[i]--;
        }
        const int n = ls_port_wait(c->place->port, &ctx, packets, LS_WAIT_PACKETS_MAX, 0);
        for (int k = 0; k < n; k++) packets[k].op->done(&ctx, packets[k].op);
    }
    ls_pool_close(ctx.pool);
}

static void timers_from_many_threads_ring_exactly_as_often_as_they_should(void **state)
{
    static clocks all[WORKERS];
    net_place place;
    ls_thread threads[WORKERS];
    ls_packet packet;
    (void)state;
    net_open(&place);
    for (int i = 0; i < WORKERS; i++) {
        all[i].place = &place;
        for (int k = 0; k < CLOCKS; k++) all[i].all[k] = (alarm_clock){.timer = {.op = {.done = clock_rang}}};
    }
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(ls_thread_start(&threads[i], "clocks", clocks_main, &all[i]), LS_OK);
    for (int i = 0; i < WORKERS; i++) ls_thread_join(&threads[i]);
    while (ls_port_wait(place.port, &place.ctx, &packet, 1, 50) == 1) packet.op->done(&place.ctx, packet.op);
    for (int i = 0; i < WORKERS; i++)
        for (int k = 0; k < CLOCKS; k++) assert_int_equal(atomic_load(&all[i].all[k].fired), all[i].expected[k]);
    net_close(&place);
}

/* A thread that always finds a packet never blocks; it is told of timers all the same. */
static void a_timer_rings_beside_packets_without_end(void **state)
{
    net_place place;
    ls_timer timer = {.op = {.done = count_done}};
    ls_packet packet = {0};
    (void)state;
    net_open(&place);
    assert_int_equal(ls_timer_set(place.port, &timer, ls_clock_ns() + MS), LS_OK);
    const uint64_t give_up_ns = ls_clock_ns() + 20000 * MS;
    while (packet.op != &timer.op && ls_clock_ns() < give_up_ns) {
        assert_int_equal(ls_port_post(place.port, NULL, &place, 0), LS_OK);
        assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, -1), 1);
    }
    assert_ptr_equal(packet.op, &timer.op);
    while (ls_port_wait(place.port, &place.ctx, &packet, 1, 0) == 1) {} /* the last post */
    net_close(&place);
}

enum { HANDED_OVER = 500 };
typedef struct sleeper {
    net_place *place;
    alarm_clock *all;
    _Atomic int heard;
} sleeper;

static void sleeper_main(void *arg)
{
    sleeper *s = arg;
    ls_thread_ctx ctx;
    ls_packet packet;
    net_ctx_open(s->place, &ctx, 1);
    for (int i = 0; i < HANDED_OVER; i++) {
        if (ls_port_wait(s->place->port, &ctx, &packet, 1, -1) != 1) abort();
        packet.op->done(&ctx, packet.op);
        atomic_fetch_add(&s->heard, 1);
    }
    ls_pool_close(ctx.pool);
}

/* One thread only waits, the other only sets: whichever moment of the wait it is set in, the timer rings. */
static void a_timer_set_while_another_thread_goes_to_sleep_rings(void **state)
{
    static alarm_clock all[HANDED_OVER];
    net_place place;
    ls_thread thread;
    sleeper s = {.place = &place, .all = all};
    (void)state;
    net_open(&place);
    assert_int_equal(ls_thread_start(&thread, "sleeper", sleeper_main, &s), LS_OK);
    for (int i = 0; i < HANDED_OVER; i++) {
        const uint64_t now_ns = ls_clock_ns(), give_up_ns = now_ns + 20000 * MS;
        all[i] = (alarm_clock){.timer = {.op = {.done = clock_rang}}};
        assert_int_equal(ls_timer_set(place.port, &all[i].timer, now_ns + (uint64_t)(i % 7) * MS / 20), LS_OK);
        while (atomic_load(&s.heard) <= i && ls_clock_ns() < give_up_ns) {}
        assert_int_equal(atomic_load(&s.heard), i + 1);
    }
    ls_thread_join(&thread);
    for (int i = 0; i < HANDED_OVER; i++) assert_int_equal(atomic_load(&all[i].fired), 1);
    net_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_back_end_is_named),
        cmocka_unit_test(posts_come_in_order_and_at_most_max_at_a_time),
        cmocka_unit_test(a_post_wakes_a_thread_that_waits_for_ever),
        cmocka_unit_test(posts_from_many_threads_come_once_each),
        cmocka_unit_test(receive_into_own_memory),
        cmocka_unit_test(a_look_counts_its_packets_as_a_wait_does),
        cmocka_unit_test(a_fresh_socket_is_tried_at_once),
        cmocka_unit_test(an_idle_connection_holds_no_block),
        cmocka_unit_test(a_reset_is_reported),
        cmocka_unit_test(an_end_right_behind_data_is_reported),
        cmocka_unit_test(a_stream_comes_whole_whatever_is_asked),
        cmocka_unit_test(a_batch_fits_into_the_cache),
        cmocka_unit_test(what_nobody_received_is_not_the_next_sockets),
        cmocka_unit_test(data_before_the_end_is_not_lost),
        cmocka_unit_test(a_pool_at_its_limit_fails_the_receive_and_loses_no_data),
        cmocka_unit_test(small_slices_leave_at_once_in_order),
        cmocka_unit_test(a_long_gather_send_goes_on_when_there_is_room),
        cmocka_unit_test(a_file_range_follows_its_head),
        cmocka_unit_test(a_peer_that_has_gone_is_an_error_not_a_signal),
        cmocka_unit_test(both_directions_complete_when_one_packet_fits),
        cmocka_unit_test(shutdown_ends_the_stream_and_receives_go_on),
        cmocka_unit_test(last_bytes_leave_with_the_end_whatever_is_unread),
        cmocka_unit_test(inline_completions_end_after_their_time),
        cmocka_unit_test(several_accepts_posted_ahead),
        cmocka_unit_test(pending_accepts_can_be_cancelled_one_by_one_and_by_close),
        cmocka_unit_test(accepts_survive_running_out_of_descriptors),
        cmocka_unit_test(closing_a_listener_that_is_out_of_descriptors),
        cmocka_unit_test(connect_succeeds_or_is_refused),
        cmocka_unit_test(sockets_past_the_limit_stay_the_callers),
        cmocka_unit_test(a_cancelled_operation_completes_once_and_the_socket_lives),
        cmocka_unit_test(close_cancels_what_is_pending),
        cmocka_unit_test(a_late_event_does_not_reach_the_next_socket),
        cmocka_unit_test(a_socket_is_cancelled_as_a_whole_while_it_lives),
        cmocka_unit_test(bytes_that_come_before_they_are_asked_for_are_kept_in_order),
        cmocka_unit_test(a_receive_without_room_tells_that_something_is_there),
        cmocka_unit_test(others_take_what_waits_for_a_detached_thread),
        cmocka_unit_test(whatever_races_there_is_one_completion),
        cmocka_unit_test(echoes_from_any_thread_lose_no_byte),
        cmocka_unit_test(timers_come_in_order_and_not_early),
        cmocka_unit_test(a_timer_can_be_moved_and_taken_back),
        cmocka_unit_test(timers_from_many_threads_ring_exactly_as_often_as_they_should),
        cmocka_unit_test(a_timer_rings_beside_packets_without_end),
        cmocka_unit_test(a_timer_set_while_another_thread_goes_to_sleep_rings),
    };
    ls_log_set_level(LS_LOG_OFF); /* running out of descriptors is logged */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
