/* test_rings.c - the back end "uring": a ring that dies costs nothing. */
#include "port_fixture.h"

#include <stdio.h>

#include "port/file.h"
#include "port/notify.h"

enum { ROUNDS = 12 }; /* more than there are rings to be had: in the end the epoll set serves alone */

static void never_done(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    (void)op;
    fail(); /* the tests take packets themselves */
}

/* Close the descriptors of all rings, as a careless library may. How many there were. */
static int close_rings(void)
{
    int closed = 0;
    for (int fd = 3; fd < 256; fd++) {
        char path[40], name[64] = "";
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) < 0 || strcmp(name, "anon_inode:[io_uring]") != 0) continue;
        assert_int_equal(close(fd), 0);
        closed++;
    }
    return closed;
}

typedef struct line { /* a connection */
    ls_sock *sock;
    int theirs;
    ls_op op, send_op;
    char room[64];
} line;

static void line_open(net_place *place, line *l)
{
    int ours;
    net_tcp_pair(&ours, &l->theirs);
    l->sock = net_attach(place, ours, l, true);
    l->op = l->send_op = (ls_op){.done = never_done};
}

static void line_receive(net_place *place, line *l)
{
    assert_int_equal(ls_op_recv(&place->ctx, l->sock, &l->op, l->room, sizeof l->room), LS_PENDING);
}

/* Each line with a message for it gets it, once; `posted` says whether its receive is pending. */
static void lines_hear(net_place *place, line *lines, int n)
{
    for (int i = 0; i < n; i++) net_write(lines[i].theirs, "hello", 5);
    for (int i = 0; i < n; i++) {
        const ls_packet packet = net_next(place);
        line *l = packet.key;
        assert_ptr_equal(packet.op, &l->op);
        assert_int_equal(packet.result, 5);
        assert_memory_equal(l->room, "hello", 5);
    }
    net_quiet(place, 0);
}

static void a_ring_that_dies_costs_nothing(void **state)
{
    enum { LINES = 6 };
    line lines[LINES];
    net_place place;
    char path[] = TEST_SCRATCH_PATH, text[8];
    const int fd = mkstemp(path);
    int died = 0;
    (void)state;
    assert_true(fd >= 0);
    net_write(fd, "content", 7);
    net_open(&place);
    for (int i = 0; i < LINES; i++) line_open(&place, &lines[i]);
    for (int round = 0; round < ROUNDS; round++) {
        /* The kernel has these; of those that have waited more often, as one receive that goes on. */
        for (int i = 0; i < LINES / 2; i++) line_receive(&place, &lines[i]);
        net_quiet(&place, 0);
        /* And it has not seen those yet. */
        for (int i = LINES / 2; i < LINES; i++) line_receive(&place, &lines[i]);
        ls_file_op read_op = {.op = {.done = never_done, .key = &read_op}};
        assert_int_equal(ls_file_read(&place.ctx, &read_op, fd, text, 7, 0), LS_PENDING);
        if (round % 3 == 1) net_write(lines[0].theirs, "early", 5); /* came before the end */
        died += close_rings();
        const int waits = round % 3 == 1 ? 2 : 1;
        for (int i = 0; i < waits; i++) {
            const ls_packet packet = net_next(&place);
            if (packet.op == &read_op.op) {
                assert_int_equal(packet.result, 7);
                assert_memory_equal(text, "content", 7);
            } else {
                assert_ptr_equal(packet.key, &lines[0]);
                assert_int_equal(packet.result, 5);
                assert_memory_equal(lines[0].room, "early", 5);
                line_receive(&place, &lines[0]);
            }
        }
        lines_hear(&place, lines, LINES);
    }
    assert_true(died > 2);
    assert_int_equal(close_rings(), 0); /* there are no more: the last rounds went without */

    /* One that is closed although the dead ring may still know it. */
    for (int i = 0; i < LINES; i++) {
        line_receive(&place, &lines[i]);
        ls_sock_close(&place.ctx, lines[i].sock);
        assert_int_equal(net_next(&place).result, LS_ECANCELED);
        assert_int_equal(read(lines[i].theirs, text, 1), 0);
        close(lines[i].theirs);
    }
    close(fd);
    unlink(path);
    net_close(&place);
}

/* Sends that share a call: the ring dies between their posting and the call. */
static void sends_that_wait_for_a_dead_ring_leave(void **state)
{
    enum { LINES = 4 };
    line lines[LINES];
    ls_slice slices[LINES];
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    char got[8];
    net_place place;
    (void)state;
    net_open(&place);
    for (int i = 0; i < LINES; i++) {
        line_open(&place, &lines[i]);
        line_receive(&place, &lines[i]);
    }
    net_quiet(&place, 0);
    for (int i = 0; i < LINES; i++) net_write(lines[i].theirs, "ask", 3);
    int n = 0;
    while (n < LINES) { /* a batch, so that the answers are left to the ring */
        const int more = ls_port_wait(place.port, &place.ctx, packets, LS_WAIT_PACKETS_MAX, 1000);
        assert_true(more > 0);
        n += more;
    }
    int pending = 0;
    for (int i = 0; i < LINES; i++) {
        slices[i] = (ls_slice){.ptr = "answer", .len = 6};
        const int how = ls_op_send(&place.ctx, lines[i].sock, &lines[i].send_op, &slices[i], 1, NULL);
        assert_in_range(how, LS_DONE, LS_PENDING);
        pending += how == LS_PENDING;
    }
    assert_true(pending > 0);
    assert_true(close_rings() > 0);
    for (int i = 0; i < pending; i++) assert_int_equal(net_next(&place).result, 6);
    for (int i = 0; i < LINES; i++) {
        net_read(lines[i].theirs, got, 6);
        assert_memory_equal(got, "answer", 6);
        ls_sock_close(&place.ctx, lines[i].sock);
        close(lines[i].theirs);
    }
    net_close(&place);
}

/* A thread that always finds something never comes to the call that waits: what it has added leaves all the same. */
static void what_is_added_leaves_although_there_is_always_something(void **state)
{
    int always[2];
    net_place place;
    ls_packet packet;
    (void)state;
    net_open(&place);
    net_pair(&always[0], &always[1]);
    net_write(always[1], "x", 1);
    ls_registration level = {.fd = always[0],
                             .key = &level,
                             .events = LS_EVENT_IN,
                             .trigger = LS_TRIGGER_PERSISTENT | LS_TRIGGER_LEVEL,
                             .operation = LS_NOTIFY_REGISTER};
    assert_int_equal(ls_port_notify(place.port, NULL, &level, 1, NULL, 0, 0), 0);
    assert_int_equal(level.result, LS_OK);
    assert_ptr_equal(net_next(&place).key, &level);

    ls_file_op op = {.op = {.done = never_done, .key = &op}};
    assert_int_equal(ls_file_stat(&place.ctx, &op, "/"), LS_PENDING);
    const uint64_t from_ns = ls_clock_ns();
    bool done = false;
    while (!done && ls_clock_ns() - from_ns < UINT64_C(5000000000)) {
        assert_int_equal(ls_port_wait(place.port, &place.ctx, &packet, 1, 0), 1); /* always */
        done = packet.op == &op.op;
    }
    assert_true(done);
    ls_port_forget(place.port, always[0]);
    close(always[0]);
    close(always[1]);
    while (ls_port_wait(place.port, &place.ctx, &packet, 1, 0) > 0) continue;
    net_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_that_dies_costs_nothing),
        cmocka_unit_test(sends_that_wait_for_a_dead_ring_leave),
        cmocka_unit_test(what_is_added_leaves_although_there_is_always_something),
    };
    assert_int_equal(setenv("LS_TEST_BACKEND", "uring", 1), 0); /* for no other */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
