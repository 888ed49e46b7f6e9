/* test_udp.c - UDP sockets on the port: batches in both directions, truncation, errors, the queue's limit, and closing
 * with pending operations. */
#include "port/port_fixture.h"

#include "base/os/thread.h"
#include "net/udp/udp.h"
#include "sched/actor.h"

typedef struct fixture { /* a bound ls_udp, and an ordinary socket as its peer */
    net_place place;
    ls_udp *udp;
    int peer;
    ls_sockaddr at, from; /* addresses of the ls_udp and of the peer */
    bool reply, nested;
    int inside, deepest; /* calls of `handle`, and the most of them at one time */
    int batches, largest, datagrams, cut;
    size_t bytes;
} fixture;

static void pump(fixture *w);

static void handle(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch)
{
    fixture *w = user;
    if (++w->inside > w->deepest) w->deepest = w->inside;
    if (w->nested) pump(w); /* as another worker would meanwhile */
    w->inside--;
    w->batches++;
    w->datagrams += (int)batch->count;
    if ((int)batch->count > w->largest) w->largest = (int)batch->count;
    for (unsigned n = 0; n < batch->count; n++) {
        w->bytes += batch->at[n].slice.len;
        if (batch->at[n].truncated) w->cut++;
    }
    if (!w->reply)
        ls_datagrams_drop(batch);
    else
        assert_int_equal(ls_udp_send(ctx, udp, batch, batch->count), batch->count); /* back to the senders */
}

static ls_addr loopback(uint16_t port)
{
    ls_addr at;
    assert_int_equal(ls_addr_parse("127.0.0.1", port, &at), LS_OK);
    return at;
}

/* A non-blocking socket on the loopback. */
static int plain_socket(ls_sockaddr *at)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    *at = (ls_sockaddr){.len = len};
    memcpy(at->bytes, &in, len);
    return fd;
}

static void fixture_open(fixture *w, const ls_udp_setup *given)
{
    ls_udp_setup setup;
    const ls_addr at = loopback(0);
    memset(w, 0, sizeof *w);
    net_place_open(&w->place);
    ls_udp_setup_defaults(&setup);
    assert_int_equal(ls_udp_open(w->place.port, given != NULL ? given : &setup, &at, handle, w, &w->udp), LS_OK);
    ls_addr_to(ls_udp_addr(w->udp), &w->at);
    w->peer = plain_socket(&w->from);
}

/* Handle packets until the port is empty. Datagrams sent earlier are queued by the system already. */
static void pump(fixture *w)
{
    ls_packet packet;
    while (ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&w->place.ctx, &packet);
}

static void peer_send(const fixture *w, const void *bytes, size_t len)
{
    assert_int_equal(sendto(w->peer, bytes, len, 0, (const struct sockaddr *)w->at.bytes, w->at.len), len);
}

/* Receive one datagram at the peer; -1: none. */
static ssize_t peer_receive(const fixture *w, char *to, size_t room)
{
    return recv(w->peer, to, room, 0);
}

static ls_udp_stats stats_of(const fixture *w)
{
    ls_udp_stats stats = {0};
    ls_udp_stat(w->udp, &stats);
    return stats;
}

static ls_datagrams *compose(fixture *w, const char *text)
{
    ls_datagrams *batch;
    char *bytes;
    assert_int_equal(ls_udp_compose(w->place.ctx.pool, &w->from, strlen(text), &batch, &bytes), LS_OK);
    memcpy(bytes, text, strlen(text));
    return batch;
}

static void fixture_close(fixture *w)
{
    ls_udp_close(&w->place.ctx, w->udp);
    pump(w);
    assert_true(ls_udp_idle(w->udp));
    ls_udp_free(w->udp);
    close(w->peer);
    net_place_close(&w->place); /* asserts that every block was returned */
}

/* ---- receive
 * ------------------------------------------------------------------------------------------------------ */

TEST(in_order_a_batch_waits_for_the_one_before_it)
{
    enum { SENT = 8 };
    for (int in_order = 0; in_order <= 1; in_order++) {
        ls_udp_setup setup;
        fixture w;
        ls_udp_setup_defaults(&setup);
        setup.batch = 1;
        setup.in_order = in_order;
        fixture_open(&w, &setup);
        w.nested = true;
        for (int n = 0; n < SENT; n++) peer_send(&w, "x", 1);
        ls_udp_start(&w.place.ctx, w.udp);
        pump(&w);
        assert_int_equal(w.batches, SENT);
        assert_int_equal(w.deepest, in_order ? 1 : SENT);
        setup.in_order = !in_order; /* as a reload that changes the number of states */
        ls_udp_replace(w.udp, &setup, &w);
        w.deepest = 0;
        for (int n = 0; n < SENT; n++) peer_send(&w, "x", 1);
        pump(&w);
        assert_int_equal(w.batches, 2 * SENT);
        /* The receive that completes first was posted before the change. */
        assert_int_equal(w.deepest, in_order ? SENT : 1);
        fixture_close(&w);
    }
}

TEST(batches_in_and_replies_out)
{
    enum { SENT = 50, BATCH = 8 };
    ls_udp_setup setup;
    fixture w;
    char text[16], got[16];
    ls_udp_setup_defaults(&setup);
    setup.batch = BATCH;
    fixture_open(&w, &setup);
    w.reply = true;
    for (int n = 0; n < SENT; n++) peer_send(&w, text, (size_t)snprintf(text, sizeof text, "number %d", n));
    ls_udp_start(&w.place.ctx, w.udp); /* nothing is received before the start */
    assert_int_equal(w.datagrams, 0);
    pump(&w);
    assert_int_equal(w.datagrams, SENT);
    assert_int_equal(w.largest, BATCH);
    assert_in_range(w.batches, (SENT + BATCH - 1) / BATCH, SENT / 2);
    for (int n = 0; n < SENT; n++) { /* one thread handles them in order */
        const int len = snprintf(text, sizeof text, "number %d", n);
        assert_int_equal(peer_receive(&w, got, sizeof got), len);
        assert_memory_equal(got, text, (size_t)len);
    }
    assert_int_equal(peer_receive(&w, got, sizeof got), -1);
    peer_send(&w, "", 0); /* an empty datagram is valid */
    pump(&w);
    assert_int_equal(peer_receive(&w, got, sizeof got), 0);
    const ls_udp_stats stats = stats_of(&w);
    assert_int_equal(stats.received, SENT + 1);
    assert_int_equal(stats.batches, w.batches);
    assert_int_equal(stats.sent, SENT + 1);
    assert_int_equal(stats.failed, 0);
    assert_int_equal(stats.truncated, 0);
    fixture_close(&w);
}

TEST(truncated_datagrams_are_marked)
{
    ls_udp_setup setup;
    fixture w;
    ls_udp_setup_defaults(&setup);
    setup.datagram_bytes_max = 5;
    fixture_open(&w, &setup);
    ls_udp_start(&w.place.ctx, w.udp);
    peer_send(&w, "12345", 5); /* at the limit */
    pump(&w);
    assert_int_equal(w.cut, 0);
    assert_int_equal(w.bytes, 5);
    peer_send(&w, "123456", 6); /* one past it */
    peer_send(&w, "123", 3);    /* the next one is complete */
    pump(&w);
    assert_int_equal(w.datagrams, 3);
    assert_int_equal(w.cut, 1);
    assert_int_equal(w.bytes, 5 + 5 + 3);
    assert_int_equal(stats_of(&w).truncated, 1);
    fixture_close(&w);
}

TEST_IN(fixture, w, without_memory_it_retries, NULL)
{
    enum { BLOCKS = 2048 };
    static ls_block *held[BLOCKS];
    int count = 0;
    ls_udp_start(&w->place.ctx, w->udp);
    while (count < BLOCKS && (held[count] = ls_block_get(w->place.ctx.pool, LS_BLOCK_LARGE)) != NULL) count++;
    assert_true(count < BLOCKS);
    ls_block *small;
    static ls_block *smalls[BLOCKS];
    int small_count = 0;
    while (small_count < BLOCKS && (small = ls_block_get(w->place.ctx.pool, LS_BLOCK_SMALL)) != NULL)
        smalls[small_count++] = small;
    peer_send(w, "patience", 8);
    pump(w);
    assert_int_equal(w->datagrams, 0);
    while (count > 0) ls_block_drop(held[--count]);
    while (small_count > 0) ls_block_drop(smalls[--small_count]);
    const ls_packet packet = net_next(&w->place); /* the timer */
    ls_packet_dispatch(&w->place.ctx, &packet);
    pump(w);
    assert_int_equal(w->datagrams, 1);
}

TEST_IN(fixture, w, after_a_stop_nothing_is_received_but_sends_continue, NULL)
{
    char got[8];
    ls_udp_start(&w->place.ctx, w->udp);
    peer_send(w, "one", 3);
    pump(w);
    assert_int_equal(w->datagrams, 1);
    assert_false(ls_udp_idle(w->udp)); /* a receive is pending */
    ls_udp_stop(&w->place.ctx, w->udp);
    ls_udp_stop(&w->place.ctx, w->udp);
    pump(w);
    assert_true(ls_udp_idle(w->udp));
    peer_send(w, "two", 3);
    pump(w);
    assert_int_equal(w->datagrams, 1);
    assert_int_equal(ls_udp_send(&w->place.ctx, w->udp, compose(w, "still"), 1), 1);
    assert_int_equal(peer_receive(w, got, sizeof got), 5);
}

TEST(what_has_arrived_before_a_stop_is_handled)
{
    for (int in_order = 0; in_order < 2; in_order++) {
        ls_udp_setup setup;
        fixture w;
        ls_udp_setup_defaults(&setup);
        setup.batch = 4;
        setup.in_order = in_order;
        fixture_open(&w, &setup);
        ls_udp_start(&w.place.ctx, w.udp);
        for (int n = 0; n < 90; n++) peer_send(&w, "x", 1);
        ls_udp_stop(&w.place.ctx, w.udp);
        pump(&w);
        assert_int_equal(w.datagrams, 90);
        assert_true(ls_udp_idle(w.udp));
        fixture_close(&w);
    }
}

TEST_IN(fixture, w, clients_that_send_on_do_not_keep_a_socket, NULL)
{
    ls_packet packet;
    ls_udp_start(&w->place.ctx, w->udp);
    for (int n = 0; n < 40; n++) peer_send(w, "x", 1);
    ls_udp_stop(&w->place.ctx, w->udp);
    while (ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, 0) > 0) {
        const int before = w->datagrams;
        ls_packet_dispatch(&w->place.ctx, &packet);
        for (int n = before; n < w->datagrams; n++) peer_send(w, "x", 1); /* as many as were taken */
    }
    assert_true(ls_udp_idle(w->udp));
    assert_in_range(w->datagrams, LS_UDP_LAST_MAX, LS_UDP_LAST_MAX + LS_UDP_BATCH_DEFAULT);
}

/* ---- send
 * --------------------------------------------------------------------------------------------------------- */

TEST(the_queue_has_a_limit)
{
    fixture w;
    ls_packet packet;
    fixture_open(&w, NULL); /* before the start every batch is queued */
    for (int n = 0; n < LS_UDP_QUEUE_BATCHES_MAX; n++)
        assert_int_equal(ls_udp_send(&w.place.ctx, w.udp, compose(&w, "x"), 1), 1);     /* at the limit */
    assert_int_equal(ls_udp_send(&w.place.ctx, w.udp, compose(&w, "x"), 1), LS_ELIMIT); /* one past it */
    assert_int_equal(stats_of(&w).failed, 1);
    assert_int_equal(stats_of(&w).sent, 0);
    assert_int_equal(ls_port_wait(w.place.port, &w.place.ctx, &packet, 1, 0), 0);
    ls_udp_start(&w.place.ctx, w.udp);
    pump(&w);
    assert_int_equal(stats_of(&w).sent, LS_UDP_QUEUE_BATCHES_MAX);
    assert_int_equal(ls_udp_send(&w.place.ctx, w.udp, compose(&w, "x"), 1), 1); /* there is room again */
    assert_int_equal(stats_of(&w).sent, LS_UDP_QUEUE_BATCHES_MAX + 1);
    fixture_close(&w);
}

TEST_IN(fixture, w, a_failed_send_does_not_affect_others, NULL)
{
    static const char big[70000];
    char got[8], *bytes;
    ls_datagrams *batch;
    ls_udp_start(&w->place.ctx, w->udp);
    assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &w->from, ls_slice_static(big, LS_UDP_PAYLOAD_MAX), &batch),
                     LS_OK);
    assert_int_equal(ls_udp_send(&w->place.ctx, w->udp, batch, 1), 1); /* the maximum */
    assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &w->from, ls_slice_static(big, LS_UDP_PAYLOAD_MAX + 1), &batch),
                     LS_EMSGSIZE);
    assert_int_equal(ls_udp_compose(w->place.ctx.pool, &w->from, LS_UDP_PAYLOAD_MAX + 1, &batch, &bytes), LS_EMSGSIZE);

    const struct sockaddr_in nowhere = {.sin_family = AF_INET}; /* port 0: EINVAL */
    ls_sockaddr to = {.len = sizeof nowhere};
    memcpy(to.bytes, &nowhere, sizeof nowhere);
    assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &to, ls_slice_static("x", 1), &batch), LS_OK);
    assert_int_equal(ls_udp_send(&w->place.ctx, w->udp, batch, 1), LS_EINVAL);
    assert_int_equal(ls_udp_send(&w->place.ctx, w->udp, compose(w, "after"), 1), 1);
    assert_int_equal(stats_of(w).sent, 2);
    assert_int_equal(stats_of(w).failed, 1);
    assert_int_equal(peer_receive(w, got, sizeof got), sizeof got); /* truncated to the buffer */
    assert_int_equal(peer_receive(w, got, sizeof got), 5);
}

TEST_IN(net_place, place, addresses_of_both_families)
{
    ls_udp_setup setup;
    ls_addr any, four = loopback(7), six;
    ls_sockaddr to;
    ls_udp *udp;
    ls_udp_setup_defaults(&setup);
    assert_int_equal(ls_addr_parse("::1", 7, &six), LS_OK);
    assert_int_equal(ls_udp_open(place->port, &setup, &(ls_addr){.family = LS_ADDR_IP4, .bytes = {127, 0, 0, 1}},
                                 handle, NULL, &udp),
                     LS_OK);
    assert_int_equal(ls_udp_target(udp, &four, &to), LS_OK);
    assert_int_equal(ls_udp_target(udp, &six, &to), LS_ENOTSUP);
    ls_udp_close(&place->ctx, udp);
    ls_udp_free(udp);
    assert_int_equal(ls_addr_parse("*", 0, &any), LS_OK);
    assert_int_equal(ls_udp_open(place->port, &setup, &any, handle, NULL, &udp), LS_OK);
    assert_int_equal(ls_udp_target(udp, &six, &to), LS_OK);
    assert_int_equal(ls_udp_target(udp, &four, &to), LS_OK);
    const struct sockaddr_in6 *mapped = (const struct sockaddr_in6 *)(const void *)to.bytes;
    assert_int_equal(mapped->sin6_family, AF_INET6);
    assert_true(IN6_IS_ADDR_V4MAPPED(&mapped->sin6_addr));
    ls_udp_close(&place->ctx, udp);
    ls_udp_free(udp);
}

/* ---- ends
 * --------------------------------------------------------------------------------------------------------- */

TEST(a_close_with_pending_operations)
{
    fixture w;
    for (int started = 0; started < 2; started++) {
        fixture_open(&w, NULL);
        for (int n = 0; n < 20; n++) assert_int_equal(ls_udp_send(&w.place.ctx, w.udp, compose(&w, "queued"), 1), 1);
        if (started) ls_udp_start(&w.place.ctx, w.udp); /* a receive is pending */
        peer_send(&w, "comes too late", 14);
        ls_udp_close(&w.place.ctx, w.udp);
        ls_udp_close(&w.place.ctx, w.udp); /* harmless */
        assert_int_equal(ls_udp_send(&w.place.ctx, w.udp, compose(&w, "x"), 1), LS_ECLOSED);
        pump(&w);
        assert_int_equal(ls_udp_addr(w.udp)->family, LS_ADDR_IP4); /* the object still exists */
        assert_int_equal(stats_of(&w).sent, started ? 20 : 0);
        ls_udp_free(w.udp);
        close(w.peer);
        net_place_close(&w.place);
    }
}

TEST_IN(fixture, w, a_failed_open_leaves_nothing_open, NULL)
{
    ls_udp_setup setup;
    ls_udp *second = NULL;
    ls_udp_setup_defaults(&setup);
    assert_int_equal(ls_udp_open(w->place.port, &setup, ls_udp_addr(w->udp), handle, w, &second), LS_EADDRINUSE);
    assert_null(second);
    (void)snprintf(setup.interface, sizeof setup.interface, "nosuch0");
    setup.ttl = 1;
    const ls_addr at = loopback(0);
    assert_int_equal(ls_udp_open(w->place.port, &setup, &at, handle, w, &second), LS_ENOENT);
    assert_null(second);
}

/* ---- connected
 * ---------------------------------------------------------------------------------------------------- */

typedef struct result {
    ls_datagrams *batch;
    int err, calls;
} result;

/* The receive that is posted keeps the size of its blocks; its batch goes to the new user all the same. */
TEST(a_replaced_user_gets_the_next_batches)
{
    ls_udp_setup setup;
    fixture w, other = {.reply = false};
    char text[64] = "";
    fixture_open(&w, NULL);
    ls_udp_start(&w.place.ctx, w.udp);
    peer_send(&w, text, sizeof text);
    pump(&w);
    assert_int_equal(w.datagrams, 1);
    ls_udp_setup_defaults(&setup);
    setup.batch = 1;
    setup.datagram_bytes_max = 16;
    ls_udp_replace(w.udp, &setup, &other);
    peer_send(&w, text, sizeof text);
    pump(&w);
    assert_int_equal(other.datagrams, 1);
    for (int i = 0; i < 4; i++) peer_send(&w, text, i % 2 ? 16 : 17); /* the limit, and one past it */
    pump(&w);
    assert_int_equal(w.datagrams, 1);
    assert_int_equal(other.datagrams, 5);
    assert_int_equal(other.largest, 1);
    assert_true(other.cut == 2 || other.cut == 3);
    assert_int_equal(stats_of(&w).received, 6);
    fixture_close(&w);
}

static int option_of(int fd, int level, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
    return value;
}

TEST(options_of_a_bound_socket_change_and_go_back)
{
    ls_udp_setup before, after;
    ls_sockaddr unused;
    const ls_addr at = loopback(0);
    const int fd = plain_socket(&unused);
    ls_udp_setup_defaults(&before);
    after = before;
    after.broadcast = true;
    after.loop_set = true;
    after.loop = false;
    after.ttl = 7;
    after.recv_buffer_bytes = 65536;
    const int usual = option_of(fd, SOL_SOCKET, SO_RCVBUF);
    assert_int_equal(ls_udp_sock_change(fd, &at, &before, &after), LS_OK);
    assert_int_equal(option_of(fd, SOL_SOCKET, SO_BROADCAST), 1);
    assert_int_equal(option_of(fd, IPPROTO_IP, IP_MULTICAST_LOOP), 0);
    assert_int_equal(option_of(fd, IPPROTO_IP, IP_MULTICAST_TTL), 7);
    assert_int_not_equal(option_of(fd, SOL_SOCKET, SO_RCVBUF), usual);
    assert_int_equal(ls_udp_sock_change(fd, &at, &after, &before), LS_OK);
    assert_int_equal(option_of(fd, SOL_SOCKET, SO_BROADCAST), 0);
    close(fd);
}

TEST(a_change_that_fails_is_reported)
{
    ls_udp_setup before, after;
    fixture w;
    ls_udp_setup_defaults(&before);
    fixture_open(&w, &before);
    after = before;
    after.group_count = 1;
    (void)snprintf(after.interface, sizeof after.interface, "no-such-if");
    assert_int_equal(ls_addr_parse("239.1.2.3", 0, &after.groups[0]), LS_OK);
    assert_int_equal(ls_udp_change(w.udp, &before, &after), LS_ENOENT);
    assert_int_equal(ls_udp_change(w.udp, &after, &before),
                     LS_OK); /* the way back, as a plan that is undone goes it */
    ls_udp_start(&w.place.ctx, w.udp);
    peer_send(&w, "x", 1);
    pump(&w);
    assert_int_equal(w.datagrams, 1);
    fixture_close(&w);
}

static void received(ls_thread_ctx *ctx, void *user, ls_datagrams *batch, int err)
{
    result *a = user;
    a->batch = batch;
    a->err = err;
    a->calls++;
}

TEST_IN(fixture, w, a_connected_socket_receives_on_request, NULL)
{
    ls_udp_setup setup;
    ls_datagrams *batch;
    result a = {NULL, 0, 0};
    ls_udp *udp;
    ls_addr to;
    char got[8];
    ls_udp_setup_defaults(&setup);
    ls_addr_of(&w->from, &to);
    assert_int_equal(ls_udp_connect(w->place.port, &setup, &to, NULL, received, &a, &udp), LS_OK);
    ls_sockaddr ours;
    ls_addr_to(ls_udp_addr(udp), &ours);
    assert_int_equal(ls_udp_receive(&w->place.ctx, udp, &batch), LS_PENDING);
    assert_int_equal(sendto(w->peer, "one", 3, 0, (const struct sockaddr *)ours.bytes, ours.len), 3);
    pump(w);
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.err, LS_OK);
    assert_int_equal(a.batch->count, 1);
    assert_memory_equal(a.batch->at[0].slice.ptr, "one", 3);
    ls_datagrams_drop(a.batch);

    ls_sockaddr stranger;
    const int other = plain_socket(&stranger); /* datagrams of other senders are dropped */
    assert_int_equal(sendto(other, "no", 2, 0, (const struct sockaddr *)ours.bytes, ours.len), 2);
    assert_int_equal(ls_udp_receive(&w->place.ctx, udp, &batch), LS_PENDING);
    pump(w);
    assert_int_equal(a.calls, 1);
    const ls_sockaddr connected = {.len = 0};
    assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &connected, ls_slice_static("two", 3), &batch), LS_OK);
    assert_int_equal(ls_udp_send(&w->place.ctx, udp, batch, 1), 1);
    assert_int_equal(peer_receive(w, got, sizeof got), 3);

    close(w->peer); /* an ICMP refusal is the result, and the socket remains usable */
    assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &connected, ls_slice_static("three", 5), &batch), LS_OK);
    assert_int_equal(ls_udp_send(&w->place.ctx, udp, batch, 1), 1);
    pump(w);
    assert_int_equal(a.calls, 2);
    assert_null(a.batch);
    assert_int_equal(a.err, LS_EREFUSED);
    assert_int_equal(ls_udp_receive(&w->place.ctx, udp, &batch), LS_PENDING);
    ls_udp_close(&w->place.ctx, udp);
    pump(w);
    assert_int_equal(a.calls, 3); /* exactly once, including the close */
    assert_int_equal(a.err, LS_ECANCELED);
    assert_int_equal(ls_udp_receive(&w->place.ctx, udp, &batch), LS_ECLOSED);
    assert_true(ls_udp_idle(udp));
    ls_udp_free(udp);
    close(other);
    w->peer = plain_socket(&stranger);
}

/* Another thread takes the packet of a send, and finishes it, before the call that posted it returns. */
static ls_udp *racing; /* for this socket; NULL: disabled */

int __real_ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count);
int __wrap_ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count)
{
    if (racing == NULL) return __real_ls_op_send_to(ctx, sock, op, datagrams, count);
    op->result = count;
    op->done(ctx, op);
    assert_false(ls_udp_idle(racing)); /* the poster has not left yet */
    return LS_PENDING;
}

TEST_IN(fixture, w, a_thread_inside_prevents_the_free, NULL)
{
    ls_udp_setup setup;
    ls_datagrams *batch;
    result a = {NULL, 0, 0};
    const ls_sockaddr connected = {.len = 0};
    const ls_addr to = loopback(9);
    ls_udp *udp;
    ls_udp_setup_defaults(&setup);
    assert_int_equal(ls_udp_connect(w->place.port, &setup, &to, NULL, received, &a, &udp), LS_OK);
    for (int closed = 0; closed < 2; closed++) {
        assert_int_equal(ls_udp_wrap(w->place.ctx.pool, &connected, ls_slice_static("x", 1), &batch), LS_OK);
        racing = udp;
        assert_int_equal(ls_udp_send(&w->place.ctx, udp, batch, 1), closed ? LS_ECLOSED : 1);
        racing = NULL;
        assert_true(ls_udp_idle(udp));
        if (!closed) ls_udp_close(&w->place.ctx, udp);
    }
    ls_udp_free(udp);
    pump(w);
}

/* ---- threads
 * ------------------------------------------------------------------------------------------------------ */

enum { SENDERS = 4, EACH = 500 };

typedef struct sender {
    fixture *w;
    ls_thread thread;
    unsigned index;
    unsigned refused, accepted, closed;
    _Atomic unsigned *ready;
    _Atomic bool *stop;
} sender;

/* Sends, handles batches, and sees the close in the middle. */
static void sender_main(void *arg)
{
    sender *s = arg;
    net_place here = s->w->place;
    ls_thread_ctx ctx;
    net_ctx_open(&here, &ctx, s->index);
    for (unsigned n = 0; !atomic_load(s->stop); n++) {
        ls_datagrams *batch;
        char *bytes;
        ls_packet packet;
        if (n < EACH && ls_udp_compose(ctx.pool, &s->w->at, 4, &batch, &bytes) == LS_OK) {
            memcpy(bytes, "self", 4);
            const int sent = ls_udp_send(&ctx, s->w->udp, batch, 1);
            if (sent == 1)
                s->accepted++;
            else if (sent == LS_ECLOSED)
                s->closed++;
            else
                s->refused++;
        }
        if (n == EACH / 2) atomic_fetch_add(s->ready, 1);
        if (ls_port_wait(here.port, &ctx, &packet, 1, n < EACH ? 0 : 5) > 0) ls_packet_dispatch(&ctx, &packet);
    }
    ls_pool_close(ctx.pool);
}

static _Atomic uint64_t received_by_threads;

static void count_only(ls_thread_ctx *ctx, void *user, ls_udp *udp, ls_datagrams *batch)
{
    atomic_fetch_add(&received_by_threads, batch->count);
    ls_datagrams_drop(batch);
}

TEST(many_threads_send_receive_and_close)
{
    _Atomic unsigned ready = 0;
    _Atomic bool stop = false;
    sender senders[SENDERS];
    ls_udp_setup setup;
    ls_udp_stats stats = {0};
    unsigned accepted = 0, rejected = 0;
    fixture w;
    const ls_addr at = loopback(0);
    memset(&w, 0, sizeof w);
    atomic_store(&received_by_threads, 0);
    net_place_open(&w.place);
    ls_udp_setup_defaults(&setup);
    setup.batch = 4;
    assert_int_equal(ls_udp_open(w.place.port, &setup, &at, count_only, NULL, &w.udp), LS_OK);
    ls_addr_to(ls_udp_addr(w.udp), &w.at);
    ls_udp_start(&w.place.ctx, w.udp);
    for (unsigned n = 0; n < SENDERS; n++) {
        senders[n] = (sender){.w = &w, .index = n + 1, .ready = &ready, .stop = &stop};
        assert_int_equal(ls_thread_start(&senders[n].thread, "sender", sender_main, &senders[n]), LS_OK);
    }
    while (atomic_load(&ready) < SENDERS) ls_clock_sleep_ms(1);
    ls_udp_close(&w.place.ctx, w.udp); /* each thread is in the second half of its loop or later */
    while (!ls_udp_idle(w.udp)) ls_clock_sleep_ms(1);
    atomic_store(&stop, true);
    for (unsigned n = 0; n < SENDERS; n++) {
        ls_thread_join(&senders[n].thread);
        accepted += senders[n].accepted;
        rejected += senders[n].refused + senders[n].closed;
    }
    ls_udp_stat(w.udp, &stats);
    assert_int_equal(stats.sent + stats.failed, accepted + rejected); /* each batch was counted once */
    assert_int_equal(stats.received, stats.own);                      /* the socket sends to itself */
    assert_int_equal(atomic_load(&received_by_threads), 0);
    assert_true(stats.received <= stats.sent);
    assert_true(stats.sent > 0);
    ls_udp_free(w.udp);
    net_place_close(&w.place);
}
