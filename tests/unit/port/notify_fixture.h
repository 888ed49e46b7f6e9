/* notify_fixture.h - what the tests of notify.h share: registrations whose events are counted, by one thread or by four,
 * and pairs of sockets with the calls that begin and end each condition. Include it first.
 *
 * Nothing sleeps: what has to come is awaited. That nothing more comes is known once every thread has looked at the
 * port since (settle): with many threads each takes its part in three rounds of packets, which release no thread
 * before all have one, and of two waits of a thread one looks at the sockets first. */
#ifndef TESTS_UNIT_PORT_NOTIFY_FIXTURE_H
#define TESTS_UNIT_PORT_NOTIFY_FIXTURE_H

#include "port_fixture.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <time.h>

#include "base/os/thread.h"
#include "port/notify.h"
#include "system.h"

enum { THREADS = 4, ROUNDS = 3, LOOKS = 8, PATIENCE_MS = 60000 };

/* What was event_count about one registration; its key points here. */
typedef struct event_count {
    _Atomic int events, removes;
    _Atomic uint32_t all; /* every event bit that ever came but REMOVE */
} event_count;

/* ---- one thread, or four ---------------------------------------------------------------------------------------- */

typedef struct bench {
    net_place net;
    int threads; /* 0: the test's own */
    ls_thread thread[THREADS];
    ls_mutex mutex;
    ls_cond news;
    int arrived, round; /* under the mutex */
    int next_index;
} bench;

static char round_key, stop_key;

static inline void bench_count(const ls_packet *packet)
{
    event_count *t = packet->key;
    assert_null(packet->op);
    assert_int_not_equal(packet->events, 0);
    if (packet->events & LS_EVENT_REMOVE) {
        assert_int_equal(packet->events, LS_EVENT_REMOVE);
        atomic_fetch_add(&t->removes, 1);
    } else {
        atomic_fetch_or(&t->all, packet->events);
        atomic_fetch_add(&t->events, 1);
    }
}

static inline void bench_thread(void *arg)
{
    bench *b = arg;
    ls_thread_ctx ctx;
    ls_packet packet;
    ls_mutex_lock(&b->mutex);
    const unsigned index = (unsigned)++b->next_index;
    ls_mutex_unlock(&b->mutex);
    net_ctx_open(&b->net, &ctx, index);
    for (;;) {
        const int n = ls_port_wait(b->net.port, &ctx, &packet, 1, -1);
        assert_int_equal(n, 1);
        if (packet.key == &stop_key) break;
        if (packet.key != &round_key) {
            bench_count(&packet);
            continue;
        }
        ls_mutex_lock(&b->mutex);
        const int round = b->round;
        if (++b->arrived == b->threads) {
            b->arrived = 0;
            b->round++;
            ls_cond_broadcast(&b->news);
        }
        while (b->round == round) ls_cond_wait(&b->news, &b->mutex);
        ls_mutex_unlock(&b->mutex);
    }
    ls_pool_close(ctx.pool);
}

static inline void bench_open(bench *b, int threads)
{
    *b = (bench){.threads = threads};
    net_place_open(&b->net);
    ls_mutex_open(&b->mutex);
    ls_cond_open(&b->news);
    for (int i = 0; i < threads; i++)
        assert_int_equal(ls_thread_start(&b->thread[i], "bench", bench_thread, b), LS_OK);
}

static inline void bench_close(bench *b)
{
    for (int i = 0; i < b->threads; i++) assert_int_equal(ls_port_post_key(b->net.port, &stop_key, 0), LS_OK);
    for (int i = 0; i < b->threads; i++) ls_thread_join(&b->thread[i]);
    ls_cond_close(&b->news);
    ls_mutex_close(&b->mutex);
    net_place_close(&b->net);
}

/* Take whatever is there: afterwards everything that was event_count is counted. */
static inline void settle(bench *b)
{
    ls_packet packet;
    if (b->threads == 0)
        for (int i = 0; i < LOOKS; i++)
            if (ls_port_wait(b->net.port, &b->net.ctx, &packet, 1, 0) == 1) bench_count(&packet);
    for (int r = 0; b->threads > 0 && r < ROUNDS; r++) {
        ls_mutex_lock(&b->mutex);
        const int round = b->round;
        ls_mutex_unlock(&b->mutex);
        for (int i = 0; i < b->threads; i++) assert_int_equal(ls_port_post_key(b->net.port, &round_key, 0), LS_OK);
        ls_mutex_lock(&b->mutex);
        while (b->round == round) assert_true(ls_cond_wait_ms(&b->news, &b->mutex, PATIENCE_MS));
        ls_mutex_unlock(&b->mutex);
    }
}

/* Wait until the counter is at least `least`. */
static inline void await(bench *b, const _Atomic int *counter, int least)
{
    const uint64_t end_ns = ls_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
    while (atomic_load(counter) < least) {
        ls_packet packet;
        assert_true(ls_clock_ns() < end_ns);
        if (b->threads == 0) {
            if (ls_port_wait(b->net.port, &b->net.ctx, &packet, 1, 100) == 1) bench_count(&packet);
        } else {
            ls_clock_sleep_ms(1); /* the other threads' turn */
        }
    }
}

/* ---- what makes an event, and what ends it
 * ------------------------------------------------------------------------- */

typedef struct pair {
    bool udp;
    int ours, theirs;
} pair;

static inline void loopback(struct sockaddr_in *at)
{
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline int udp_bound(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    loopback(at);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

static inline void pair_open(pair *p, bool udp)
{
    p->udp = udp;
    if (!udp) {
        net_tcp_pair(&p->ours, &p->theirs);
        return;
    }
    struct sockaddr_in ours, theirs;
    p->ours = udp_bound(&ours);
    p->theirs = udp_bound(&theirs);
    assert_int_equal(connect(p->ours, (struct sockaddr *)&theirs, sizeof theirs), 0);
    assert_int_equal(connect(p->theirs, (struct sockaddr *)&ours, sizeof ours), 0);
}

static inline void pair_close(pair *p)
{
    close(p->ours);
    if (p->theirs >= 0) close(p->theirs);
}

static inline bool is_now(int fd, short events)
{
    struct pollfd at = {.fd = fd, .events = events};
    (void)poll(&at, 1, 0);
    return at.revents & events;
}

static inline void until(int fd, short events) /* the system needs a moment to carry things over */
{
    struct pollfd at = {.fd = fd, .events = events};
    assert_int_equal(poll(&at, 1, PATIENCE_MS), 1);
}

static inline void in_begin(pair *p)
{
    assert_int_equal(send(p->theirs, "data", 4, 0), 4);
}

static inline void in_end(pair *p)
{
    char room[64];
    while (recv(p->ours, room, sizeof room, 0) > 0) {
        /* until it would block */
    }
}

static inline void out_begin(pair *p)
{
    static char room[65536];
    if (p->udp) return; /* always */
    while (!is_now(p->ours, POLLOUT))
        if (recv(p->theirs, room, sizeof room, MSG_DONTWAIT) < 0) until(p->theirs, POLLIN);
}

static inline void out_room(pair *p, int bytes)
{
    assert_int_equal(setsockopt(p->ours, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
}

/* Full; and then with less room than what is queued, so that it stays full however much still goes over by itself. */
static inline void out_end(pair *p)
{
    static const char bytes[65536];
    out_room(p, (int)sizeof bytes);
    while (send(p->ours, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
        /* until it would block */
    }
    out_room(p, 1);
    assert_false(is_now(p->ours, POLLOUT));
}

static inline void hangup_begin(pair *p)
{
    if (p->udp)
        assert_int_equal(shutdown(p->ours, SHUT_RDWR), 0); /* not a hang-up, but the kernel's EPOLLHUP */
    else
        assert_int_equal(shutdown(p->theirs, SHUT_WR), 0);
}

static inline void err_begin(pair *p)
{
    if (p->udp) {
        if (p->theirs >= 0) close(p->theirs);
        p->theirs = -1;
        (void)send(p->ours, "anybody?", 8, 0); /* nobody: ICMP says so */
    } else {
        assert_int_equal(setsockopt(p->theirs, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)),
                         0);
        close(p->theirs);
        p->theirs = -1;
    }
}

static inline void err_end(pair *p)
{
    char room[8];
    until(p->ours, POLLERR);
    assert_int_equal(recv(p->ours, room, sizeof room, 0), -1);
    assert_int_equal(errno, p->udp ? ECONNREFUSED : ECONNRESET);
}

static const uint8_t triggers[] = {
    LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
    LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT,
};
enum { TRIGGERS = sizeof triggers / sizeof triggers[0] };

static inline int notify(ls_port *port, uint8_t operation, ls_fd fd, void *key, uint32_t events, uint8_t trigger)
{
    ls_registration r = {
        .fd = fd, .key = key, .events = (uint16_t)events, .trigger = trigger, .operation = operation, .result = 99};
    assert_int_equal(ls_port_notify(port, NULL, &r, 1, NULL, 0, 0), 0);
    return r.result;
}

enum {
    LEVEL_PERSISTENT = LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LEVEL_ONESHOT = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT
};
enum {
    EDGE_PERSISTENT = LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    EDGE_ONESHOT = LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT
};
enum { IN = LS_EVENT_IN, OUT = LS_EVENT_OUT, HANGUP = LS_EVENT_HANGUP };

static inline void expect_event(net_place *place, void *key, uint32_t events)
{
    const ls_packet packet = net_next(place);
    assert_null(packet.op);
    assert_ptr_equal(packet.key, key);
    assert_int_equal(packet.events, events);
    assert_true(ls_packet_current(place->port, &packet));
}

static inline void remove_and_take(net_place *place, int fd, void *key)
{
    assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0), LS_OK);
    expect_event(place, key, LS_EVENT_REMOVE);
}

#endif
