/* test_notify.c - the contract of notify.h: first every cell of (level, edge) x (one-shot, persistent) x (IN, OUT, HANGUP,
 * ERR) for TCP and UDP, taken by one thread and by 16; then the rules one by one.
 *
 * Nothing sleeps. What has to come is awaited. That nothing more comes is known once every thread has looked at the port
 * since (settle): with 16 threads each takes its part in three rounds of packets that release nobody before all have one,
 * and of two waits of a thread one looks at the sockets first. */
#include "port_fixture.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/un.h>
#include <time.h>

#include "base/thread.h"
#include "port/notify.h"
#include "sched/workers.h"
#include "system.h"

enum { THREADS = 16, ROUNDS = 3, LOOKS = 8, PATIENCE_MS = 10000 };

/* What was told about one registration; its key points here. */
typedef struct told {
    _Atomic int events, removes;
    _Atomic uint32_t all; /* every event bit that ever came but REMOVE */
} told;

/* ---- one thread, or 16 -------------------------------------------------------------------------------------------- */

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

static void bench_count(const ls_packet *packet)
{
    told *t = packet->key;
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

static void bench_thread(void *arg)
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

static void bench_open(bench *b, int threads)
{
    *b = (bench){.threads = threads};
    net_open(&b->net);
    assert_int_equal(ls_mutex_open(&b->mutex), LS_OK);
    assert_int_equal(ls_cond_open(&b->news), LS_OK);
    for (int i = 0; i < threads; i++)
        assert_int_equal(ls_thread_start(&b->thread[i], "bench", bench_thread, b), LS_OK);
}

static void bench_close(bench *b)
{
    for (int i = 0; i < b->threads; i++) assert_int_equal(ls_port_post(b->net.port, NULL, &stop_key, 0), LS_OK);
    for (int i = 0; i < b->threads; i++) ls_thread_join(&b->thread[i]);
    ls_cond_close(&b->news);
    ls_mutex_close(&b->mutex);
    net_close(&b->net);
}

/* Take whatever is there: afterwards everything that was told is counted. */
static void settle(bench *b)
{
    ls_packet packet;
    if (b->threads == 0)
        for (int i = 0; i < LOOKS; i++)
            if (ls_port_wait(b->net.port, &b->net.ctx, &packet, 1, 0) == 1) bench_count(&packet);
    for (int r = 0; b->threads > 0 && r < ROUNDS; r++) {
        ls_mutex_lock(&b->mutex);
        const int round = b->round;
        ls_mutex_unlock(&b->mutex);
        for (int i = 0; i < b->threads; i++) assert_int_equal(ls_port_post(b->net.port, NULL, &round_key, 0), LS_OK);
        ls_mutex_lock(&b->mutex);
        while (b->round == round) assert_true(ls_cond_wait_ms(&b->news, &b->mutex, PATIENCE_MS));
        ls_mutex_unlock(&b->mutex);
    }
}

/* Wait until the counter is at least `least`. */
static void await(bench *b, const _Atomic int *counter, int least)
{
    const uint64_t end_ns = ls_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
    while (atomic_load(counter) < least) {
        ls_packet packet;
        assert_true(ls_clock_ns() < end_ns);
        if (b->threads == 0) {
            if (ls_port_wait(b->net.port, &b->net.ctx, &packet, 1, 100) == 1) bench_count(&packet);
        } else {
            (void)poll(NULL, 0, 0); /* the other threads' turn */
        }
    }
}

/* ---- what makes an event, and what ends it ------------------------------------------------------------------------- */

typedef struct pair {
    bool udp;
    int ours, theirs;
} pair;

static void loopback(struct sockaddr_in *at)
{
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int udp_bound(struct sockaddr_in *at)
{
    socklen_t len = sizeof *at;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    loopback(at);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)at, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
    return fd;
}

static void pair_open(pair *p, bool udp)
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

static void pair_close(pair *p)
{
    close(p->ours);
    if (p->theirs >= 0) close(p->theirs);
}

static bool is_now(int fd, short events)
{
    struct pollfd at = {.fd = fd, .events = events};
    (void)poll(&at, 1, 0);
    return at.revents & events;
}

static void until(int fd, short events) /* the system needs a moment to carry things over */
{
    struct pollfd at = {.fd = fd, .events = events};
    assert_int_equal(poll(&at, 1, PATIENCE_MS), 1);
}

static void in_begin(pair *p)
{
    assert_int_equal(send(p->theirs, "data", 4, 0), 4);
}

static void in_end(pair *p)
{
    char room[64];
    while (recv(p->ours, room, sizeof room, 0) > 0) {
        /* until it would block */
    }
}

static void out_begin(pair *p)
{
    static char room[65536];
    if (p->udp) return; /* always */
    while (!is_now(p->ours, POLLOUT))
        if (recv(p->theirs, room, sizeof room, MSG_DONTWAIT) < 0) until(p->theirs, POLLIN);
}

static void out_room(pair *p, int bytes)
{
    assert_int_equal(setsockopt(p->ours, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
}

/* Full; and then with less room than what is queued, so that it stays full however much still goes over by itself. */
static void out_end(pair *p)
{
    static const char bytes[65536];
    out_room(p, (int)sizeof bytes);
    while (send(p->ours, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {
        /* until it would block */
    }
    out_room(p, 1);
    assert_false(is_now(p->ours, POLLOUT));
}

static void hangup_begin(pair *p)
{
    if (p->udp)
        assert_int_equal(shutdown(p->ours, SHUT_RDWR), 0); /* not a hang-up, but the kernel's EPOLLHUP */
    else
        assert_int_equal(shutdown(p->theirs, SHUT_WR), 0);
}

static void err_begin(pair *p)
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

static void err_end(pair *p)
{
    char room[8];
    until(p->ours, POLLERR);
    assert_int_equal(recv(p->ours, room, sizeof room, 0), -1);
    assert_int_equal(errno, p->udp ? ECONNREFUSED : ECONNRESET);
}

typedef struct cause {
    const char *name;
    uint32_t event;
    void (*begin)(pair *p);
    void (*end)(pair *p); /* NULL: cannot be ended */
} cause;

static const cause causes[] = {
    {"IN", LS_EVENT_IN, in_begin, in_end},
    {"OUT", LS_EVENT_OUT, out_begin, out_end},
    {"HANGUP", LS_EVENT_HANGUP, hangup_begin, NULL},
    {"ERR", LS_EVENT_ERR, err_begin, err_end},
};
enum { CAUSES = sizeof causes / sizeof causes[0] };

static const uint8_t triggers[] = {
    LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT,
    LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT,
};
enum { TRIGGERS = sizeof triggers / sizeof triggers[0] };

/* ---- the cells ------------------------------------------------------------------------------------------------------ */

static int notify(ls_port *port, uint8_t operation, ls_fd fd, void *key, uint32_t events, uint8_t trigger)
{
    ls_registration r = {
        .fd = fd, .key = key, .events = (uint16_t)events, .trigger = trigger, .operation = operation, .result = 99};
    assert_int_equal(ls_port_notify(port, NULL, &r, 1, NULL, 0, 0), 0);
    return r.result;
}

/* The condition holds, and has been told at least `least` times. Is it told further, as the trigger says? */
static void check_told(bench *b, told *t, uint8_t trigger, int least)
{
    await(b, &t->events, least);
    settle(b);
    const int once = atomic_load(&t->events);
    settle(b);
    const int twice = atomic_load(&t->events);
    if (trigger & LS_TRIGGER_ONESHOT) assert_int_equal(once, least); /* not a second time, to no thread */
    if (trigger == (LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT))
        assert_true(twice > once);
    else
        assert_int_equal(twice, once);
}

static void check_quiet(bench *b, told *t)
{
    settle(b);
    const int before = atomic_load(&t->events);
    settle(b);
    assert_int_equal(atomic_load(&t->events), before);
}

static void cell(bench *b, bool udp, uint8_t trigger, const cause *c)
{
    ls_port *port = b->net.port;
    told t = {0};
    pair p;
    const uint32_t filter = c->event & ~(uint32_t)LS_EVENT_ERR;
    const bool always = udp && c->event == LS_EVENT_OUT, never = udp && c->event == LS_EVENT_HANGUP;
    pair_open(&p, udp);
    if (c->event == LS_EVENT_OUT && !always) out_end(&p);
    assert_int_equal(notify(port, LS_NOTIFY_REGISTER, p.ours, &t, filter, trigger), LS_OK);
    if (!always) {
        settle(b);
        assert_int_equal(atomic_load(&t.events), 0);
    }

    c->begin(&p);
    if (never) {
        check_quiet(b, &t);
        assert_int_equal(atomic_load(&t.events), 0);
    } else {
        check_told(b, &t, trigger, 1);

        /* Enabled while the condition holds, it is told again: level because it holds, edge because it looks afresh. */
        int before = atomic_load(&t.events);
        assert_int_equal(notify(port, LS_NOTIFY_ENABLE, p.ours, NULL, filter, trigger), LS_OK);
        check_told(b, &t, trigger, before + 1);

        assert_int_equal(notify(port, LS_NOTIFY_DISABLE, p.ours, NULL, 0, 0), LS_OK);
        if (c->event == LS_EVENT_IN) c->begin(&p); /* more to tell, and nobody is told */
        check_quiet(b, &t);
        before = atomic_load(&t.events);
        assert_int_equal(notify(port, LS_NOTIFY_ENABLE, p.ours, NULL, filter, trigger), LS_OK);
        check_told(b, &t, trigger, before + 1);

        if (c->end != NULL && !always && (udp || c->event != LS_EVENT_ERR || !system_resets_stay())) {
            c->end(&p);
            check_quiet(b, &t);
            before = atomic_load(&t.events);
            if (trigger & LS_TRIGGER_ONESHOT)
                assert_int_equal(notify(port, LS_NOTIFY_ENABLE, p.ours, NULL, filter, trigger), LS_OK);
            check_quiet(b, &t);
            assert_int_equal(atomic_load(&t.events), before);
            if (udp || c->event != LS_EVENT_ERR) { /* a TCP connection fails once */
                c->begin(&p);
                check_told(b, &t, trigger, before + 1);
            }
        }
        assert_int_equal(atomic_load(&t.all), c->event);
    }

    assert_int_equal(notify(port, LS_NOTIFY_REMOVE, p.ours, NULL, 0, 0), LS_OK);
    await(b, &t.removes, 1);
    settle(b);
    const int last = atomic_load(&t.events);
    if (p.theirs >= 0 && c->event != LS_EVENT_HANGUP) c->begin(&p);
    settle(b);
    assert_int_equal(atomic_load(&t.events), last);
    assert_int_equal(atomic_load(&t.removes), 1);
    pair_close(&p);
}

static void cells(bool udp, int threads)
{
    bench b;
    bench_open(&b, threads);
    for (int k = 0; k < TRIGGERS; k++)
        for (int c = 0; c < CAUSES; c++) {
            print_message("  %s %s, %s\n", triggers[k] & LS_TRIGGER_LEVEL ? "level" : "edge",
                          triggers[k] & LS_TRIGGER_ONESHOT ? "one-shot" : "persistent", causes[c].name);
            if (udp && causes[c].event == LS_EVENT_ERR && !system_keeps_errors())
                print_message("  left out: the system takes the error of a datagram socket before anybody is told\n");
            else
                cell(&b, udp, triggers[k], &causes[c]);
        }
    bench_close(&b);
}

static void every_cell_tcp_one_thread(void **state)
{
    (void)state;
    cells(false, 0);
}

static void every_cell_udp_one_thread(void **state)
{
    (void)state;
    cells(true, 0);
}

static void every_cell_tcp_16_threads(void **state)
{
    (void)state;
    cells(false, THREADS);
}

static void every_cell_udp_16_threads(void **state)
{
    (void)state;
    cells(true, THREADS);
}

/* ---- one rule each --------------------------------------------------------------------------------------------------- */

enum {
    LEVEL_PERSISTENT = LS_TRIGGER_LEVEL | LS_TRIGGER_PERSISTENT,
    LEVEL_ONESHOT = LS_TRIGGER_LEVEL | LS_TRIGGER_ONESHOT
};
enum {
    EDGE_PERSISTENT = LS_TRIGGER_EDGE | LS_TRIGGER_PERSISTENT,
    EDGE_ONESHOT = LS_TRIGGER_EDGE | LS_TRIGGER_ONESHOT
};
enum { IN = LS_EVENT_IN, OUT = LS_EVENT_OUT, HANGUP = LS_EVENT_HANGUP };

static void expect_event(net_place *place, void *key, uint32_t events)
{
    const ls_packet packet = net_next(place);
    assert_null(packet.op);
    assert_ptr_equal(packet.key, key);
    assert_int_equal(packet.events, events);
    assert_true(ls_packet_current(place->port, &packet));
}

static void remove_and_take(net_place *place, int fd, void *key)
{
    assert_int_equal(notify(place->port, LS_NOTIFY_REMOVE, fd, NULL, 0, 0), LS_OK);
    expect_event(place, key, LS_EVENT_REMOVE);
}

static void each_registration_has_its_own_result(void **state)
{
    net_place place;
    pair a, b;
    int key_a, key_b, file, gone;
    (void)state;
    net_open(&place);
    pair_open(&a, false);
    pair_open(&b, true);
    file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    gone = dup(file);
    close(gone);
    ls_sock *sock = net_attach(&place, a.theirs, NULL, false);
    ls_op op = {.done = NULL};
    char room[4];
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);

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
    const int n = ls_port_notify(place.port, &place.ctx, all, ROWS, packets, LS_WAIT_PACKETS_MAX, -1);
    for (int i = 0; i < ROWS; i++) {
        if (all[i].result != table[i].result) print_error("row %d\n", i);
        assert_int_equal(all[i].result, table[i].result);
    }
    assert_int_equal(n, 1);
    assert_ptr_equal(packets[0].key, &key_b);
    assert_int_equal(packets[0].events, OUT);

    /* None fails: the wait of the same call waits, and brings what it is told to look for. */
    ls_registration arm = {.fd = b.ours, .events = IN, .trigger = good, .operation = LS_NOTIFY_ENABLE};
    assert_int_equal(send(b.theirs, "x", 1, 0), 1);
    assert_int_equal(ls_port_notify(place.port, &place.ctx, &arm, 1, packets, LS_WAIT_PACKETS_MAX, -1), 1);
    assert_int_equal(arm.result, LS_OK);
    assert_ptr_equal(packets[0].key, &key_b);
    assert_int_equal(packets[0].events, IN);
    assert_int_equal(ls_port_notify(place.port, &place.ctx, NULL, 0, packets, 1, 0), 0);

    remove_and_take(&place, a.ours, &key_a);
    remove_and_take(&place, b.ours, &key_b);
    ls_sock_close(&place.ctx, sock);
    assert_ptr_equal(net_next(&place).op, &op);
    close(a.ours);
    pair_close(&b);
    close(file);
    net_close(&place);
}

static void an_attached_socket_finds_itself_registered(void **state)
{
    net_place place;
    pair p;
    char room[4];
    ls_op op = {.done = NULL};
    (void)state;
    net_open(&place);
    pair_open(&p, false);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, NULL, IN, EDGE_PERSISTENT), LS_OK);
    ls_sock *sock = net_attach(&place, p.ours, NULL, false);
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_EEXIST);
    ls_port_forget(place.port, p.ours);
    ls_sock_close(&place.ctx, sock);
    close(p.theirs);
    net_close(&place);
}

static void the_key_changes_by_remove_and_register(void **state)
{
    net_place place;
    pair p;
    int one, two;
    (void)state;
    net_open(&place);
    pair_open(&p, false);
    in_begin(&p);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, &one, IN, LEVEL_PERSISTENT), LS_OK);
    expect_event(&place, &one, IN);
    assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, p.ours, &two, IN, LEVEL_PERSISTENT), LS_OK);
    expect_event(&place, &one, IN); /* not by enabling */
    assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, p.ours, NULL, 0, 0), LS_OK);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, &two, IN, LEVEL_PERSISTENT), LS_EBUSY);
    assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, p.ours, NULL, 0, 0), LS_ENOENT);
    expect_event(&place, &one, LS_EVENT_REMOVE);
    net_quiet(&place, 0);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, &two, IN, LEVEL_PERSISTENT), LS_OK);
    expect_event(&place, &two, IN);
    remove_and_take(&place, p.ours, &two);
    pair_close(&p);
    net_close(&place);
}

/* REMOVE of the old socket is still in the queue when its number is another's already. */
static void a_number_used_again_is_another_registration(void **state)
{
    net_place place;
    pair a, b;
    int one, two;
    (void)state;
    net_open(&place);
    pair_open(&a, false);
    pair_open(&b, false);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, &one, IN, LEVEL_PERSISTENT), LS_OK);
    assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, a.ours, NULL, 0, 0), LS_OK);
    assert_int_equal(dup2(b.ours, a.ours), a.ours); /* closes one, and the number is the other's */
    close(b.ours);
    b.ours = a.ours;
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, b.ours, &two, IN, LEVEL_ONESHOT), LS_OK);
    in_begin(&b);
    int removes = 0, ins = 0;
    for (int i = 0; i < 2; i++) {
        const ls_packet packet = net_next(&place);
        if (packet.events == LS_EVENT_REMOVE && packet.key == &one) removes++;
        if (packet.events == IN && packet.key == &two) ins++;
    }
    assert_int_equal(removes, 1);
    assert_int_equal(ins, 1);
    remove_and_take(&place, b.ours, &two);
    close(a.theirs);
    pair_close(&b);
    net_close(&place);
}

/* Closed behind the back of its registration, and the number is a socket of the port's now: what is asked for in the name
 * of the old one must not reach the new one. */
static void a_number_that_a_socket_of_the_port_has_now(void **state)
{
    static const uint8_t asked[] = {LS_NOTIFY_ENABLE, LS_NOTIFY_DISABLE, LS_NOTIFY_REMOVE};
    net_place place;
    pair a, b;
    int one;
    (void)state;
    net_open(&place);
    for (int k = 0; k < TRIGGERS; k++)
        for (size_t n = 0; n < sizeof asked / sizeof asked[0]; n++) {
            char room[4];
            ls_op op = {.done = NULL};
            pair_open(&a, false);
            pair_open(&b, false);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, &one, IN, triggers[k]), LS_OK);
            assert_int_equal(dup2(b.ours, a.ours), a.ours); /* closes the one, and the number is the other's */
            close(b.ours);
            ls_sock *sock = net_attach(&place, a.ours, NULL, false);
            assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
            assert_int_equal(notify(place.port, asked[n], a.ours, NULL, IN, triggers[k]), LS_ENOENT);
            net_write(b.theirs, "x", 1);
            const ls_packet packet = net_next(&place);
            assert_ptr_equal(packet.op, &op);
            assert_int_equal(packet.result, 1);
            ls_sock_close(&place.ctx, sock);
            net_quiet(&place, 0);
            close(a.theirs);
            close(b.theirs);
        }
    net_close(&place);
}

static void a_closed_socket_is_dropped_without_remove(void **state)
{
    net_place place;
    pair a, b;
    int one, two;
    (void)state;
    net_open(&place);
    for (int k = 0; k < TRIGGERS; k++)
        for (int disabled = 0; disabled <= 1; disabled++) {
            /* Plain close: the number is found free, and nothing comes with the old key. */
            pair_open(&a, false);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, &one, IN | HANGUP, triggers[k]), LS_OK);
            if (disabled) assert_int_equal(notify(place.port, LS_NOTIFY_DISABLE, a.ours, NULL, 0, 0), LS_OK);
            in_begin(&a);
            until(a.ours, POLLIN);
            pair_open(&b, false);
            assert_int_equal(dup2(b.ours, a.ours), a.ours);
            close(b.ours);
            b.ours = a.ours;
            net_quiet(&place, 0);
            assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, b.ours, &two, IN, triggers[k]), LS_OK);
            net_quiet(&place, 0);
            in_begin(&b);
            expect_event(&place, &two, IN);

            /* Its operations do not find it, whether the number is free or in use again. */
            close(b.ours);
            assert_int_equal(
                notify(place.port, k & 1 ? LS_NOTIFY_REMOVE : LS_NOTIFY_ENABLE, b.ours, NULL, IN, triggers[k]),
                LS_ENOENT);
            assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, b.ours, NULL, 0, 0), LS_ENOENT);
            net_quiet(&place, 0);
            close(a.theirs);
            close(b.theirs);
        }

    /* Forgotten before it is closed. */
    pair_open(&a, false);
    in_begin(&a);
    until(a.ours, POLLIN);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, &one, IN, LEVEL_PERSISTENT), LS_OK);
    ls_port_forget(place.port, a.ours);
    ls_port_forget(place.port, a.ours);
    ls_port_forget(place.port, -1);
    ls_port_forget(place.port, LS_NOTIFY_FD_MAX);
    net_quiet(&place, 0);
    pair_close(&a);
    net_close(&place);
}

/* A packet that waited in somebody's batch, or was given back, while its registration changed. */
static void what_is_out_of_date_does_not_come(void **state)
{
    net_place place;
    pair p;
    int key;
    (void)state;
    net_open(&place);
    pair_open(&p, false);
    in_begin(&p);
    for (int change = 0; change < 5; change++) {
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, p.ours, &key, IN, EDGE_ONESHOT), LS_OK);
        const ls_packet packet = net_next(&place);
        assert_int_equal(ls_port_requeue(place.port, &packet), LS_OK);
        const ls_packet again = net_next(&place);
        assert_ptr_equal(again.key, &key);
        assert_int_equal(again.events, IN);
        assert_true(ls_packet_current(place.port, &again));
        assert_int_equal(ls_port_requeue(place.port, &again), LS_OK);
        if (change == 0) {
            expect_event(&place, &key, IN);
        } else if (change == 1) {
            assert_int_equal(notify(place.port, LS_NOTIFY_DISABLE, p.ours, NULL, 0, 0), LS_OK);
        } else if (change == 2) { /* told again by the arming, once */
            assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, p.ours, NULL, IN, EDGE_ONESHOT), LS_OK);
            expect_event(&place, &key, IN);
        } else if (change == 3) {
            ls_port_forget(place.port, p.ours);
        }
        if (change != 0) {
            assert_true(change == 4 || !ls_packet_current(place.port, &again));
        }
        if (change < 4) net_quiet(&place, 0);
        if (change != 3) {
            assert_int_equal(notify(place.port, LS_NOTIFY_REMOVE, p.ours, NULL, 0, 0), LS_OK);
            const ls_packet last = net_next(&place); /* before it, the one given back is passed over */
            assert_int_equal(last.events, LS_EVENT_REMOVE);
            assert_int_equal(ls_port_requeue(place.port, &last), LS_OK); /* REMOVE does come again */
            expect_event(&place, &key, LS_EVENT_REMOVE);
            net_quiet(&place, 0);
        }
    }
    pair_close(&p);
    net_close(&place);
}

static void many_are_closed_without_a_word(void **state)
{
    net_place place;
    (void)state;
    net_open(&place);
    for (int i = 0; i < 5000 / SYSTEM_SLOWNESS; i++) {
        struct sockaddr_in at;
        const int fd = udp_bound(&at);
        assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, fd, NULL, IN, triggers[i % TRIGGERS]), LS_OK);
        close(fd);
    }
    net_quiet(&place, 0);
    net_close(&place); /* the leak checker looks on */
}

static void datagrams_are_seen_by_who_registers_before_bind(void **state)
{
    (void)state;
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        struct sockaddr_in at;
        socklen_t len = sizeof at;
        int key;
        net_open(&place);
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
        net_close(&place);
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

static void a_stream_that_was_never_connected_has_no_events(void **state)
{
    (void)state;
    for (int k = 0; k < TRIGGERS; k++)
        for (int unix_socket = 0; unix_socket <= system_has_unix_sockets(); unix_socket++) {
            net_place place;
            ls_sockaddr at;
            int key;
            net_open(&place);
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
            net_close(&place);
        }
}

static void a_listener_may_be_registered_before_it_listens(void **state)
{
    (void)state;
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        ls_sockaddr at = {.len = sizeof(struct sockaddr_in)};
        struct sockaddr_in in;
        int key;
        net_open(&place);
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
        net_close(&place);
    }
}

/* The kernel reports EPOLLHUP to those who did not ask: no packet, and no turning round and round. */
static void a_hangup_that_nobody_asked_for_is_not_told(void **state)
{
    (void)state;
    for (int k = 0; k < TRIGGERS; k++) {
        net_place place;
        pair p;
        int key;
        net_open(&place);
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
        net_close(&place);
    }
}

static void pipes_are_told_of_too(void **state)
{
    net_place place;
    int ends[2], reader, writer;
    (void)state;
    net_open(&place);
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, ends[0], &reader, IN | HANGUP, LEVEL_ONESHOT), LS_OK);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, ends[1], &writer, OUT, LEVEL_ONESHOT), LS_OK);
    expect_event(&place, &writer, OUT);
    net_write(ends[1], "x", 1);
    expect_event(&place, &reader, IN);
    remove_and_take(&place, ends[1], &writer);
    close(ends[1]);
    assert_int_equal(notify(place.port, LS_NOTIFY_ENABLE, ends[0], NULL, IN | HANGUP, LEVEL_ONESHOT), LS_OK);
    expect_event(&place, &reader, IN | HANGUP);
    remove_and_take(&place, ends[0], &reader);
    close(ends[0]);

    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, ends[1], &writer, 0, EDGE_PERSISTENT), LS_OK);
    close(ends[0]);
    expect_event(&place, &writer, LS_EVENT_ERR);
    ls_port_forget(place.port, ends[1]);
    close(ends[1]);
    net_close(&place);
}

static void all_kinds_come_through_one_wait(void **state)
{
    net_place place;
    pair told_of, received;
    int key_told, key_received, key_post;
    char room[8];
    ls_op op = {.done = NULL};
    ls_timer timer = {.op = {.done = NULL}};
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    int seen[5] = {0}, sum = 0;
    (void)state;
    net_open(&place);
    pair_open(&told_of, false);
    pair_open(&received, false);
    ls_sock *sock = net_attach(&place, received.ours, &key_received, false);
    ls_registration r = {
        .fd = told_of.ours, .key = &key_told, .events = IN, .trigger = LEVEL_ONESHOT, .operation = LS_NOTIFY_REGISTER};
    assert_int_equal(ls_op_recv(&place.ctx, sock, &op, room, sizeof room), LS_PENDING);
    assert_int_equal(ls_port_post(place.port, NULL, &key_post, 5), LS_OK);
    assert_int_equal(ls_timer_set(place.port, &timer, ls_clock_ns()), LS_OK);
    in_begin(&told_of);
    in_begin(&received);
    for (int i = 0; i < 20 && sum < 4; i++) {
        const int n = ls_port_notify(place.port, &place.ctx, &r, 1, packets, LS_WAIT_PACKETS_MAX, 1000);
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
    remove_and_take(&place, told_of.ours, &key_told);
    ls_sock_close(&place.ctx, sock);
    pair_close(&told_of);
    close(received.theirs);
    net_close(&place);
}

static void a_port_may_be_closed_with_registrations(void **state)
{
    net_place place;
    pair a, b;
    (void)state;
    net_open(&place);
    pair_open(&a, false);
    pair_open(&b, true);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, a.ours, NULL, IN, LEVEL_PERSISTENT), LS_OK);
    assert_int_equal(notify(place.port, LS_NOTIFY_REGISTER, b.ours, NULL, IN, EDGE_ONESHOT), LS_OK);
    net_close(&place);
    pair_close(&a);
    pair_close(&b);
}

/* ---- 16 threads, one-shot: the way of S4 ----------------------------------------------------------------------------- */

enum { STORM_SOCKETS = 40, STORM_BYTES = 2000 };

typedef struct storm_end {
    pair p;
    _Atomic int inside;
    int got; /* whoever has the packet */
} storm_end;

typedef struct storm {
    net_place net;
    _Atomic int open; /* ends whose REMOVE was not taken */
    storm_end ends[STORM_SOCKETS];
} storm;

static void storm_thread(void *arg)
{
    storm *s = arg;
    ls_thread_ctx ctx;
    ls_registration batch[3];
    ls_packet packets[3];
    size_t count = 0;
    net_ctx_open(&s->net, &ctx, 1);
    for (;;) {
        const int n = ls_port_notify(s->net.port, &ctx, batch, count, packets, 3, -1);
        for (size_t i = 0; i < count; i++) assert_int_equal(batch[i].result, LS_OK);
        count = 0;
        for (int i = 0; i < n; i++) {
            char room[7];
            if (packets[i].key == &stop_key) {
                (void)ls_port_post(s->net.port, NULL, &stop_key, 0); /* for the next */
                ls_pool_close(ctx.pool);
                return;
            }
            storm_end *end = packets[i].key;
            assert_int_equal(atomic_fetch_add(&end->inside, 1), 0); /* nobody else has it */
            const ls_fd fd = end->p.ours;
            if (packets[i].events & LS_EVENT_REMOVE) {
                close(fd);
                if (atomic_fetch_sub(&s->open, 1) == 1) ls_port_post(s->net.port, NULL, &stop_key, 0); /* the last */
                continue;
            }
            const ssize_t got = recv(fd, room, sizeof room, 0);
            assert_true(got >= 0);
            end->got += (int)got;
            batch[count++] =
                (ls_registration){.fd = fd,
                                  .events = IN | HANGUP,
                                  .trigger = LEVEL_ONESHOT,
                                  .operation = got == 0 ? (uint8_t)LS_NOTIFY_REMOVE : (uint8_t)LS_NOTIFY_ENABLE};
            atomic_fetch_sub(&end->inside, 1);
        }
    }
}

static void one_shots_have_one_owner_at_a_time(void **state)
{
    static storm s;
    ls_thread threads[THREADS];
    char bytes[50] = {0};
    (void)state;
    net_open(&s.net);
    atomic_store(&s.open, STORM_SOCKETS);
    for (int i = 0; i < STORM_SOCKETS; i++) {
        net_pair(&s.ends[i].p.ours, &s.ends[i].p.theirs);
        assert_int_equal(
            notify(s.net.port, LS_NOTIFY_REGISTER, s.ends[i].p.ours, &s.ends[i], IN | HANGUP, LEVEL_ONESHOT), LS_OK);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(ls_thread_start(&threads[i], "storm", storm_thread, &s), LS_OK);
    for (int sent = 0; sent < STORM_BYTES; sent += (int)sizeof bytes)
        for (int i = 0; i < STORM_SOCKETS; i++) net_write(s.ends[i].p.theirs, bytes, sizeof bytes);
    for (int i = 0; i < STORM_SOCKETS; i++) close(s.ends[i].p.theirs);
    for (int i = 0; i < THREADS; i++) ls_thread_join(&threads[i]);
    for (int i = 0; i < STORM_SOCKETS; i++) assert_int_equal(s.ends[i].got, STORM_BYTES);
    assert_ptr_equal(net_next(&s.net).key, &stop_key);
    net_close(&s.net);
}

/* Registered, changed and removed by some while others take. Nothing comes for a key that is gone. */
enum { CHURN_TURNS = 300 / SYSTEM_SLOWNESS };

typedef struct churn {
    net_place net;
    _Atomic int removes;
    _Atomic bool over;
} churn;

static void churn_take(void *arg)
{
    churn *c = arg;
    ls_thread_ctx ctx;
    ls_packet packets[3];
    net_ctx_open(&c->net, &ctx, 1);
    while (!atomic_load(&c->over)) {
        const int n = ls_port_wait(c->net.port, &ctx, packets, 3, 5);
        for (int i = 0; i < n; i++) {
            assert_ptr_equal(packets[i].key, c);
            if (packets[i].events & LS_EVENT_REMOVE) atomic_fetch_add(&c->removes, 1);
        }
    }
    ls_pool_close(ctx.pool);
}

static void churn_change(void *arg)
{
    churn *c = arg;
    for (int i = 0; i < CHURN_TURNS; i++) {
        pair p;
        net_pair(&p.ours, &p.theirs);
        assert_int_equal(notify(c->net.port, LS_NOTIFY_REGISTER, p.ours, c, IN | HANGUP, triggers[i % TRIGGERS]),
                         LS_OK);
        net_write(p.theirs, "x", 1);
        assert_int_equal(notify(c->net.port, LS_NOTIFY_ENABLE, p.ours, c, IN | OUT, triggers[i % 3]), LS_OK);
        if (i % 5 == 0) assert_int_equal(notify(c->net.port, LS_NOTIFY_DISABLE, p.ours, c, 0, 0), LS_OK);
        if (i % 3 == 0) close(p.theirs);
        if (i % 7 == 0)
            ls_port_forget(c->net.port, p.ours);
        else
            assert_int_equal(notify(c->net.port, LS_NOTIFY_REMOVE, p.ours, c, 0, 0), LS_OK);
        close(p.ours);
        if (i % 3 != 0) close(p.theirs);
    }
}

static void registrations_come_and_go_under_way(void **state)
{
    static churn c;
    ls_thread takers[THREADS / 2], changers[THREADS / 2];
    int forgotten = 0;
    (void)state;
    net_open(&c.net);
    for (int i = 0; i < THREADS / 2; i++) {
        assert_int_equal(ls_thread_start(&takers[i], "take", churn_take, &c), LS_OK);
        assert_int_equal(ls_thread_start(&changers[i], "change", churn_change, &c), LS_OK);
    }
    for (int i = 0; i < CHURN_TURNS; i++) forgotten += i % 7 == 0;
    for (int i = 0; i < THREADS / 2; i++) ls_thread_join(&changers[i]);
    const int expected = (CHURN_TURNS - forgotten) * (THREADS / 2);
    for (int i = 0; i < 2000 && atomic_load(&c.removes) < expected; i++) ls_clock_sleep_ms(5);
    assert_int_equal(atomic_load(&c.removes), expected);
    atomic_store(&c.over, true);
    for (int i = 0; i < THREADS / 2; i++) ls_thread_join(&takers[i]);
    net_close(&c.net);
}

/* ---- a workers ------------------------------------------------------------------------------------------------------------ */

static _Atomic bool workers_blocked, workers_go_on;
static told workers_told[3];

static void workers_bare(ls_thread_ctx *ctx, const ls_packet *packet)
{
    (void)ctx;
    if (packet->events == 0) { /* a post: stay in it */
        atomic_store(&workers_blocked, true);
        while (!atomic_load(&workers_go_on)) ls_clock_sleep_ms(1);
        return;
    }
    bench_count(packet);
}

/* One worker takes a packet that it stays in, and with it notifications. The watch gives those back, and they are still
 * notifications when the spare takes them. */
static void workers_requeue_notifications_as_they_are(void **state)
{
    bench b = {.threads = 1}; /* for await: others take the packets */
    pair p[3];
    ls_workers *workers;
    const ls_workers_options options = {.threads = 1, .threads_max = 2, .on_user_packet = workers_bare};
    (void)state;
    net_open(&b.net);
    assert_int_equal(ls_workers_open(b.net.port, b.net.pools, &options, &workers), LS_OK);
    assert_int_equal(ls_port_post(b.net.port, NULL, NULL, 0), LS_OK);
    for (int i = 0; i < 3; i++) {
        pair_open(&p[i], false);
        in_begin(&p[i]);
        until(p[i].ours, POLLIN);
        assert_int_equal(notify(b.net.port, LS_NOTIFY_REGISTER, p[i].ours, &workers_told[i], IN, LEVEL_ONESHOT),
                         LS_OK);
    }
    assert_int_equal(ls_workers_start(workers), LS_OK);
    for (int i = 0; i < 3; i++) await(&b, &workers_told[i].events, 1);
    for (int i = 0; i < 3; i++) assert_int_equal(notify(b.net.port, LS_NOTIFY_REMOVE, p[i].ours, NULL, 0, 0), LS_OK);
    for (int i = 0; i < 3; i++) await(&b, &workers_told[i].removes, 1);
    while (!atomic_load(&workers_blocked)) ls_clock_sleep_ms(1);
    atomic_store(&workers_go_on, true);
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, PATIENCE_MS));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&workers_told[i].events), 1);
        assert_int_equal(atomic_load(&workers_told[i].all), IN);
        pair_close(&p[i]);
    }
    ls_workers_close(workers);
    net_close(&b.net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_tcp_one_thread),
        cmocka_unit_test(every_cell_udp_one_thread),
        cmocka_unit_test(every_cell_tcp_16_threads),
        cmocka_unit_test(every_cell_udp_16_threads),
        cmocka_unit_test(each_registration_has_its_own_result),
        cmocka_unit_test(an_attached_socket_finds_itself_registered),
        cmocka_unit_test(the_key_changes_by_remove_and_register),
        cmocka_unit_test(a_number_used_again_is_another_registration),
        cmocka_unit_test(a_number_that_a_socket_of_the_port_has_now),
        cmocka_unit_test(a_closed_socket_is_dropped_without_remove),
        cmocka_unit_test(what_is_out_of_date_does_not_come),
        cmocka_unit_test(many_are_closed_without_a_word),
        cmocka_unit_test(datagrams_are_seen_by_who_registers_before_bind),
        cmocka_unit_test(a_stream_that_was_never_connected_has_no_events),
        cmocka_unit_test(a_listener_may_be_registered_before_it_listens),
        cmocka_unit_test(a_hangup_that_nobody_asked_for_is_not_told),
        cmocka_unit_test(pipes_are_told_of_too),
        cmocka_unit_test(all_kinds_come_through_one_wait),
        cmocka_unit_test(a_port_may_be_closed_with_registrations),
        cmocka_unit_test(one_shots_have_one_owner_at_a_time),
        cmocka_unit_test(registrations_come_and_go_under_way),
        cmocka_unit_test(workers_requeue_notifications_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
