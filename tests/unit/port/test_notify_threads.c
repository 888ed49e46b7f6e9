/* test_notify_threads.c - the contract of notify.h: one-shot registrations and many threads (scenario S4), changes
 * beside packets under way, and notifications that the watchdog requeues. */
#include "notify_fixture.h"

#include "sched/workers.h"

enum { STORM_SOCKETS = 40, STORM_BYTES = 2000 / SYSTEM_SLOWNESS };

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
                (void)ls_port_post_key(s->net.port, &stop_key, 0); /* for the next */
                ls_pool_close(ctx.pool);
                return;
            }
            storm_end *end = packets[i].key;
            assert_int_equal(atomic_fetch_add(&end->inside, 1), 0); /* nobody else has it */
            const ls_fd fd = end->p.ours;
            if (packets[i].events & LS_EVENT_REMOVE) {
                close(fd);
                if (atomic_fetch_sub(&s->open, 1) == 1) ls_port_post_key(s->net.port, &stop_key, 0); /* the last */
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

TEST(one_shots_have_one_owner_at_a_time)
{
    static storm s;
    ls_thread threads[THREADS];
    char bytes[50] = {0};
    net_place_open(&s.net);
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
    net_place_close(&s.net);
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
            ls_port_unregister(c->net.port, p.ours);
        else
            assert_int_equal(notify(c->net.port, LS_NOTIFY_REMOVE, p.ours, c, 0, 0), LS_OK);
        close(p.ours);
        if (i % 3 != 0) close(p.theirs);
    }
}

TEST(registrations_come_and_go_under_way)
{
    static churn c;
    ls_thread takers[THREADS / 2], changers[THREADS / 2];
    int forgotten = 0;
    net_place_open(&c.net);
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
    net_place_close(&c.net);
}

static _Atomic bool workers_blocked, workers_continue;
static event_count workers_events[3];

static void take_or_block(ls_thread_ctx *ctx, const ls_packet *packet)
{
    if (packet->events == 0) { /* a post: stay in it */
        atomic_store(&workers_blocked, true);
        while (!atomic_load(&workers_continue)) ls_clock_sleep_ms(1);
        return;
    }
    bench_count(packet);
}

/* One worker takes a packet that it stays in, and with it notifications. The watch gives those back, and they are
 * still notifications when the spare takes them. */
TEST(workers_requeue_notifications_as_they_are)
{
    bench b = {.threads = 1}; /* for await: others take the packets */
    pair p[3];
    ls_workers *workers;
    const ls_workers_options options = {.threads = 1, .threads_max = 2, .on_user_packet = take_or_block};
    net_place_open(&b.net);
    assert_int_equal(ls_workers_open(b.net.port, b.net.pools, &options, &workers), LS_OK);
    assert_int_equal(ls_port_post_key(b.net.port, NULL, 0), LS_OK);
    for (int i = 0; i < 3; i++) {
        pair_open(&p[i], false);
        in_begin(&p[i]);
        until(p[i].ours, POLLIN);
        assert_int_equal(notify(b.net.port, LS_NOTIFY_REGISTER, p[i].ours, &workers_events[i], IN, LEVEL_ONESHOT),
                         LS_OK);
    }
    assert_int_equal(ls_workers_start(workers), LS_OK);
    for (int i = 0; i < 3; i++) await(&b, &workers_events[i].events, 1);
    for (int i = 0; i < 3; i++) assert_int_equal(notify(b.net.port, LS_NOTIFY_REMOVE, p[i].ours, NULL, 0, 0), LS_OK);
    for (int i = 0; i < 3; i++) await(&b, &workers_events[i].removes, 1);
    while (!atomic_load(&workers_blocked)) ls_clock_sleep_ms(1);
    atomic_store(&workers_continue, true);
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, PATIENCE_MS));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&workers_events[i].events), 1);
        assert_int_equal(atomic_load(&workers_events[i].all), IN);
        pair_close(&p[i]);
    }
    ls_workers_close(workers);
    net_place_close(&b.net);
}
