/* test_notify_rules.c - the contract of notify.h: the rules, one by one, with one thread. */
/* sanitizers: asan; no thread starts */
#include "notify_fixture.h"

TEST_IN(net_place, place, each_registration_has_its_own_result)
{
    pair a, b;
    int key_a, key_b, file, gone;
    pair_open(&a, false);
    pair_open(&b, true);
    file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    gone = dup(file);
    close(gone);
    ls_sock *sock = net_attach(place, a.theirs, false);
    ls_op op = {.done = NULL};
    char room[4];
    assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);

    const uint8_t good = LEVEL_ONESHOT;
    struct {
        ls_registration r;
        int result;
    } table[] = {
        {{.fd = a.ours, .key = &key_a, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_OK},
        {{.fd = a.ours, .key = &key_b, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EEXIST},
        {{.fd = b.ours, .key = &key_b, .events = 0, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_OK},
        {{.fd = b.ours, .operation = LS_NOTIFY_DISABLE}, LS_OK},
        {{.fd = b.ours, .key = &key_a, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EEXIST},
        {{.fd = b.ours, .events = OUT, .trigger = good, .operation = LS_NOTIFY_ENABLE}, LS_OK},
        {{.fd = a.theirs, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EEXIST},
        {{.fd = file, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_ENOTSUP},
        {{.fd = gone, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = -1, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = -1, .operation = LS_NOTIFY_REMOVE}, LS_EINVAL},
        {{.fd = LS_NOTIFY_FD_MAX, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_ELIMIT},
        {{.fd = LS_NOTIFY_FD_MAX - 1, .events = IN, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = b.theirs, .events = IN, .trigger = good, .operation = LS_NOTIFY_ENABLE}, LS_ENOENT},
        {{.fd = b.theirs, .operation = LS_NOTIFY_DISABLE}, LS_ENOENT},
        {{.fd = b.theirs, .operation = LS_NOTIFY_REMOVE}, LS_ENOENT},
        {{.fd = b.theirs, .events = IN, .trigger = LS_TRIGGER_LEVEL, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = b.theirs, .events = IN, .trigger = LS_TRIGGER_ONESHOT, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = b.theirs, .events = IN, .trigger = good | LS_TRIGGER_EDGE, .operation = LS_NOTIFY_REGISTER},
         LS_EINVAL},
        {{.fd = b.theirs, .events = IN, .trigger = good | 16, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = b.theirs, .events = IN | 8, .trigger = good, .operation = LS_NOTIFY_REGISTER}, LS_EINVAL},
        {{.fd = b.theirs, .events = IN, .trigger = good, .operation = 77}, LS_EINVAL},
        {{.operation = LS_NOTIFY_NONE}, LS_OK},
    };
    enum { ROWS = sizeof table / sizeof table[0] };
    ls_registration all[ROWS];
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    for (int i = 0; i < ROWS; i++) all[i] = table[i].r;
    /* It would wait for ever, but some failed: it only looks, and finds that a datagram can be sent. */
    const int n = ls_port_notify(place->port, &place->ctx, all, ROWS, packets, LS_WAIT_PACKETS_MAX, -1);
    for (int i = 0; i < ROWS; i++) {
        if (all[i].result != table[i].result) print_error("row %d\n", i);
        assert_int_equal(all[i].result, table[i].result);
    }
    assert_int_equal(n, 1);
    assert_ptr_equal(packets[0].key, &key_b);
    assert_int_equal(packets[0].events, OUT);

    /* None fails: the wait of the same call waits, and brings what it is event_count to look for. */
    ls_registration arm = {.fd = b.ours, .events = IN, .trigger = good, .operation = LS_NOTIFY_ENABLE};
    assert_int_equal(send(b.theirs, "x", 1, 0), 1);
    assert_int_equal(ls_port_notify(place->port, &place->ctx, &arm, 1, packets, LS_WAIT_PACKETS_MAX, -1), 1);
    assert_int_equal(arm.result, LS_OK);
    assert_ptr_equal(packets[0].key, &key_b);
    assert_int_equal(packets[0].events, IN);
    assert_int_equal(ls_port_notify(place->port, &place->ctx, NULL, 0, packets, 1, 0), 0);

    remove_and_take(place, a.ours, &key_a);
    remove_and_take(place, b.ours, &key_b);
    ls_sock_close(&place->ctx, sock);
    assert_ptr_equal(net_next(place).op, &op);
    close(a.ours);
    pair_close(&b);
    close(file);
}

TEST_IN(net_place, place, an_attached_socket_finds_itself_registered)
{
    pair p;
    char room[4];
    ls_op op = {.done = NULL};
    pair_open(&p, false);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, p.ours, NULL, IN, EDGE_PERSISTENT), LS_OK);
    ls_sock *sock = net_attach(place, p.ours, false);
    assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_EEXIST);
    ls_port_unregister(place->port, p.ours);
    ls_sock_close(&place->ctx, sock);
    close(p.theirs);
}

/* REMOVE of the old socket is still in the queue when its number is another's already. */
TEST_IN(net_place, place, a_number_used_again_is_another_registration)
{
    pair a, b;
    int one, two;
    pair_open(&a, false);
    pair_open(&b, false);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, a.ours, &one, IN, LEVEL_PERSISTENT), LS_OK);
    assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, a.ours, NULL, 0, 0), LS_OK);
    assert_int_equal(dup2(b.ours, a.ours), a.ours); /* closes one, and the number is the other's */
    close(b.ours);
    b.ours = a.ours;
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, b.ours, &two, IN, LEVEL_ONESHOT), LS_OK);
    in_begin(&b);
    int removes = 0, ins = 0;
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(place);
        if (packet.events == LS_EVENT_REMOVE && packet.key == &one) removes++;
        if (packet.events == IN && packet.key == &two) ins++;
    }
    assert_int_equal(removes, 1);
    assert_int_equal(ins, 1);
    remove_and_take(place, b.ours, &two);
    close(a.theirs);
    pair_close(&b);
}

/* Closed behind the back of its registration, and the number is a socket of the port's now: what is asked for in the
 * name of the old one must not reach the new one. */
TEST_IN(net_place, place, a_number_that_a_socket_of_the_port_has_now)
{
    static const uint8_t asked[] = {LS_NOTIFY_ENABLE, LS_NOTIFY_DISABLE, LS_NOTIFY_REMOVE};
    pair a, b;
    int one;
    for (int k = 0; k < TRIGGERS; k++)
        for (size_t n = 0; n < sizeof asked / sizeof asked[0]; n++) {
            char room[4];
            ls_op op = {.done = NULL};
            pair_open(&a, false);
            pair_open(&b, false);
            assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, a.ours, &one, IN, triggers[k]), LS_OK);
            assert_int_equal(dup2(b.ours, a.ours), a.ours); /* closes the one, and the number is the other's */
            close(b.ours);
            ls_sock *sock = net_attach(place, a.ours, false);
            assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
            assert_int_equal(notify(place->port, asked[n], a.ours, NULL, IN, triggers[k]), LS_ENOENT);
            net_write(b.theirs, "x", 1);
            const ls_packet packet = net_next(place);
            assert_ptr_equal(packet.op, &op);
            assert_int_equal(packet.result, 1);
            ls_sock_close(&place->ctx, sock);
            net_quiet(place, 0);
            close(a.theirs);
            close(b.theirs);
        }
}

TEST_IN(net_place, place, a_closed_socket_is_dropped_without_remove)
{
    pair a, b;
    int one, two;
    for (int k = 0; k < TRIGGERS; k++)
        for (int disabled = 0; disabled <= 1; disabled++) {
            /* Plain close: the number is found free, and nothing comes with the old key. */
            pair_open(&a, false);
            assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, a.ours, &one, IN | HANGUP, triggers[k]), LS_OK);
            if (disabled) assert_int_equal(notify(place->port, LS_NOTIFY_DISABLE, a.ours, NULL, 0, 0), LS_OK);
            in_begin(&a);
            until(a.ours, POLLIN);
            pair_open(&b, false);
            assert_int_equal(dup2(b.ours, a.ours), a.ours);
            close(b.ours);
            b.ours = a.ours;
            net_quiet(place, 0);
            assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, b.ours, &two, IN, triggers[k]), LS_OK);
            net_quiet(place, 0);
            in_begin(&b);
            expect_event(place, &two, IN);

            /* Its operations do not find it, whether the number is free or in use again. */
            close(b.ours);
            assert_int_equal(
                notify(place->port, k & 1 ? LS_NOTIFY_REMOVE : LS_NOTIFY_ENABLE, b.ours, NULL, IN, triggers[k]),
                LS_ENOENT);
            assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, b.ours, NULL, 0, 0), LS_ENOENT);
            net_quiet(place, 0);
            close(a.theirs);
            close(b.theirs);
        }

    /* Forgotten before it is closed. */
    pair_open(&a, false);
    in_begin(&a);
    until(a.ours, POLLIN);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, a.ours, &one, IN, LEVEL_PERSISTENT), LS_OK);
    ls_port_unregister(place->port, a.ours);
    ls_port_unregister(place->port, a.ours);
    ls_port_unregister(place->port, -1);
    ls_port_unregister(place->port, LS_NOTIFY_FD_MAX);
    net_quiet(place, 0);
    pair_close(&a);
}

/* A packet that waited in somebody's batch, or was given back, while its registration changed. */
TEST_IN(net_place, place, what_is_out_of_date_does_not_come)
{
    pair p;
    int key;
    pair_open(&p, false);
    in_begin(&p);
    for (int change = 0; change < 5; change++) {
        assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, p.ours, &key, IN, EDGE_ONESHOT), LS_OK);
        const ls_packet packet = net_next(place);
        assert_int_equal(ls_port_requeue(place->port, &packet), LS_OK);
        const ls_packet again = net_next(place);
        assert_ptr_equal(again.key, &key);
        assert_int_equal(again.events, IN);
        assert_true(ls_packet_current(place->port, &again));
        assert_int_equal(ls_port_requeue(place->port, &again), LS_OK);
        if (change == 0) {
            expect_event(place, &key, IN);
        } else if (change == 1) {
            assert_int_equal(notify(place->port, LS_NOTIFY_DISABLE, p.ours, NULL, 0, 0), LS_OK);
        } else if (change == 2) { /* event_count again by the arming, once */
            assert_int_equal(notify(place->port, LS_NOTIFY_ENABLE, p.ours, NULL, IN, EDGE_ONESHOT), LS_OK);
            expect_event(place, &key, IN);
        } else if (change == 3) {
            ls_port_unregister(place->port, p.ours);
        }
        if (change != 0) {
            assert_true(change == 4 || !ls_packet_current(place->port, &again));
        }
        if (change < 4) net_quiet(place, 0);
        if (change != 3) {
            assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, p.ours, NULL, 0, 0), LS_OK);
            const ls_packet last = net_next(place); /* before it, the one given back is passed over */
            assert_int_equal(last.events, LS_EVENT_REMOVE);
            assert_int_equal(ls_port_requeue(place->port, &last), LS_OK); /* REMOVE does come again */
            expect_event(place, &key, LS_EVENT_REMOVE);
            net_quiet(place, 0);
        }
    }
    pair_close(&p);
}

TEST(many_are_closed_without_remove)
{
    net_place place;
    uint16_t last = 0;
    net_place_open(&place);
    for (int i = 0; i < 5000 / SYSTEM_SLOWNESS; i++) {
        struct sockaddr_in at;
        int fd = udp_bound(&at);
        while (at.sin_port == last) { /* on Windows the address tells it from the last socket with its number */
            close(fd);
            fd = udp_bound(&at);
        }
        last = at.sin_port;
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, NULL, IN, triggers[i % TRIGGERS]), LS_OK);
        close(fd);
    }
    net_quiet(&place, 0);
    net_place_close(&place); /* the leak checker looks on */
}

TEST(datagrams_are_seen_by_who_registers_before_bind)
{
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        int key;
        net_place_open(&place);
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const int from = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        loopback(&at);
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, &key, IN | HANGUP, triggers[k]), LS_OK);
        net_quiet(&place, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
        net_quiet(&place, 0);
        assert_int_equal(sendto(from, "1", 1, 0, (struct sockaddr *)&at, len), 1);
        expect_event(&place, &key, IN);
        remove_and_take(&place, fd, &key);
        close(fd);
        close(from);
        net_place_close(&place);
    }
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec at;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at), 0);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Wait without a packet, and without turning round and round. */
static void idle(net_place *place)
{
    const uint64_t before = thread_cpu_ns();
    net_quiet(place, 100);
    assert_true(thread_cpu_ns() - before < 50000000);
}

TEST(a_stream_that_was_never_connected_has_no_events)
{
    for (int k = 0; k < TRIGGERS; k++)
        for (int unix_socket = 0; unix_socket <= system_has_unix_sockets(); unix_socket++) {
            net_place place;
            ls_sockaddr at;
            int key;
            net_place_open(&place);
            const int listener = net_listen(&at);
            const int fd = socket(unix_socket ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, &key, IN | OUT | HANGUP, triggers[k]), LS_OK);
            idle(&place);
            if (!unix_socket) {
                const int err = connect(fd, (struct sockaddr *)at.bytes, at.len);
                assert_true(err == 0 || errno == EINPROGRESS);
                expect_event(&place, &key, OUT);
            }
            assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0), LS_OK);
            while (net_next(&place).events != LS_EVENT_REMOVE) {
                /* a level-triggered one went on telling */
            }
            close(fd);
            close(listener);
            net_place_close(&place);
        }
}

TEST(a_listener_may_be_registered_before_it_listens)
{
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        ls_sockaddr at = {.len = sizeof(struct sockaddr_in)};
        struct sockaddr_in in;
        int key;
        net_place_open(&place);
        const int fd = net_tcp();
        loopback(&in);
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, &key, IN, triggers[k]), LS_OK);
        net_quiet(&place, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
        assert_int_equal(listen(fd, 8), 0);
        socklen_t len = sizeof in;
        assert_int_equal(getsockname(fd, (struct sockaddr *)at.bytes, &len), 0);
        const int client = net_dial(&at);
        expect_event(&place, &key, IN);
        remove_and_take(&place, fd, &key);
        close(client);
        close(fd);
        net_place_close(&place);
    }
}

/* The kernel reports EPOLLHUP to those who did not ask: no packet, and no turning round and round. */
TEST(a_hangup_outside_the_filter_is_not_reported)
{
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        pair p;
        int key;
        net_place_open(&place);
        pair_open(&p, false);
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, &key, 0, triggers[k]), LS_OK);
        assert_int_equal(shutdown(p.ours, SHUT_WR), 0);
        close(p.theirs);
        p.theirs = -1;
        until(p.ours, POLLHUP);
        idle(&place);
        assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, p.ours, NULL, HANGUP, triggers[k]), LS_OK);
        expect_event(&place, &key, HANGUP);
        assert_int_equal(notify(place.port, LS_NOTIFY_DISABLE, p.ours, NULL, 0, 0), LS_OK);
        idle(&place);
        remove_and_take(&place, p.ours, &key);
        pair_close(&p);
        net_place_close(&place);
    }
}

TEST_IN(net_place, place, pipes_have_events)
{
    int ends[2], reader, writer;
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, ends[0], &reader, IN | HANGUP, LEVEL_ONESHOT), LS_OK);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, ends[1], &writer, OUT, LEVEL_ONESHOT), LS_OK);
    expect_event(place, &writer, OUT);
    net_write(ends[1], "x", 1);
    expect_event(place, &reader, IN);
    remove_and_take(place, ends[1], &writer);
    close(ends[1]);
    assert_int_equal(notify(place->port, LS_NOTIFY_ENABLE, ends[0], NULL, IN | HANGUP, LEVEL_ONESHOT), LS_OK);
    expect_event(place, &reader, IN | HANGUP);
    remove_and_take(place, ends[0], &reader);
    close(ends[0]);

    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(notify(place->port, LS_NOTIFY_REGISTER, ends[1], &writer, 0, EDGE_PERSISTENT), LS_OK);
    close(ends[0]);
    expect_event(place, &writer, LS_EVENT_ERR);
    ls_port_unregister(place->port, ends[1]);
    close(ends[1]);
}

TEST_IN(net_place, place, all_kinds_come_through_one_wait)
{
    pair told_of, received;
    int key_told, key_post;
    char room[8];
    ls_op op = {.done = NULL};
    ls_timer timer = {.op = {.done = NULL}};
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    int seen[5] = {0}, sum = 0;
    pair_open(&told_of, false);
    pair_open(&received, false);
    ls_sock *sock = net_attach(place, received.ours, false);
    ls_registration r = {
        .fd = told_of.ours, .key = &key_told, .events = IN, .trigger = LEVEL_ONESHOT, .operation = LS_NOTIFY_REGISTER};
    assert_int_equal(ls_op_recv(&place->ctx, sock, &op, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_port_post_key(place->port, &key_post, 5), LS_OK);
    assert_int_equal(ls_timer_set(place->port, &timer, ls_clock_ns()), LS_OK);
    in_begin(&told_of);
    in_begin(&received);
    for (int i = 0; i < 20 && sum < 4; i++) {
        const int n = ls_port_notify(place->port, &place->ctx, &r, 1, packets, LS_WAIT_PACKETS_MAX, 60000);
        assert_int_equal(r.result, LS_OK);
        r.operation = LS_NOTIFY_NONE;
        for (int k = 0; k < n; k++, sum++) {
            const ls_packet *packet = &packets[k];
            if (packet->events != 0) {
                assert_ptr_equal(packet->key, &key_told);
                assert_null(packet->op);
                seen[0]++;
            } else if (packet->op == &op) {
                assert_int_equal(packet->result, 4);
                seen[1]++;
            } else if (packet->op == &timer.op) {
                seen[2]++;
            } else {
                assert_ptr_equal(packet->key, &key_post);
                assert_int_equal(packet->result, 5);
                assert_null(packet->op);
                seen[3]++;
            }
        }
    }
    for (int i = 0; i < 4; i++) assert_int_equal(seen[i], 1);
    remove_and_take(place, told_of.ours, &key_told);
    ls_sock_close(&place->ctx, sock);
    pair_close(&told_of);
    close(received.theirs);
}

TEST(a_port_may_be_closed_with_registrations)
{
    net_place place;
    pair a, b;
    net_place_open(&place);
    pair_open(&a, false);
    pair_open(&b, true);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, NULL, IN, LEVEL_PERSISTENT), LS_OK);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, b.ours, NULL, IN, EDGE_ONESHOT), LS_OK);
    net_place_close(&place);
    pair_close(&a);
    pair_close(&b);
}
