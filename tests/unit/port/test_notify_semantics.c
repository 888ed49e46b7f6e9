/* test_notify_semantics.c - the contract of notify.h: every cell of (level, edge) x (one-shot, persistent) x (IN, OUT,
 * HANGUP, ERR) for TCP and UDP, taken by one thread and by many. */
#include "notify_fixture.h"

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

static void check_reported(bench *b, event_count *t, uint8_t trigger, int least)
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

static void check_quiet(bench *b, event_count *t)
{
    settle(b);
    const int before = atomic_load(&t->events);
    settle(b);
    assert_int_equal(atomic_load(&t->events), before);
}

static void cell(bench *b, bool udp, uint8_t trigger, const cause *c)
{
    ls_port *port = b->net.port;
    event_count t = {0};
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
        check_reported(b, &t, trigger, 1);

        /* Enabled while the condition holds, it is told again: level because it holds, edge because it looks
         * afresh. */
        int before = atomic_load(&t.events);
        assert_int_equal(notify(port, LS_NOTIFY_ENABLE, p.ours, NULL, filter, trigger), LS_OK);
        check_reported(b, &t, trigger, before + 1);

        assert_int_equal(notify(port, LS_NOTIFY_DISABLE, p.ours, NULL, 0, 0), LS_OK);
        if (c->event == LS_EVENT_IN) c->begin(&p); /* more to tell, and nobody is event_count */
        check_quiet(b, &t);
        before = atomic_load(&t.events);
        assert_int_equal(notify(port, LS_NOTIFY_ENABLE, p.ours, NULL, filter, trigger), LS_OK);
        check_reported(b, &t, trigger, before + 1);

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
                check_reported(b, &t, trigger, before + 1);
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

TEST(every_cell_tcp_one_thread)
{
    cells(false, 0);
}

TEST(every_cell_udp_one_thread)
{
    cells(true, 0);
}

TEST(every_cell_tcp_many_threads)
{
    cells(false, THREADS);
}

TEST(every_cell_udp_many_threads)
{
    cells(true, THREADS);
}
