/* test_deadline.c - the deadlines of a port: when they run, what moves and ends them, and threads that use them while
 * they run. */
#include "port/port_fixture.h"

#include "base/os/thread.h"
#include "net/stream/deadline.h"
#include "sched/actor.h"

enum { FAR_MS = 3600000 };

typedef struct item {     /* a deadline and what it did */
    ls_deadline deadline; /* first */
    _Atomic int runs;
    _Atomic uint32_t again_ms; /* the result of the next run; 0 from then on */
    _Atomic uint32_t run_at_ms;
    _Atomic bool freed; /* `due` must not run any more */
} item;

static uint32_t item_due(ls_deadline *deadline, uint32_t now_ms)
{
    item *i = (item *)deadline;
    assert_false(atomic_load(&i->freed));
    assert_int_equal(atomic_load(&deadline->entry.armed_ms), 0);
    assert_false(ls_deadline_before(now_ms, deadline->entry.at_ms));
    atomic_store(&i->run_at_ms, now_ms);
    atomic_fetch_add(&i->runs, 1);
    return atomic_exchange(&i->again_ms, 0);
}

static uint32_t now(void)
{
    return ls_deadline_time(ls_clock_coarse_ms());
}

static uint32_t in_ms(uint32_t ms)
{
    return ls_deadline_time(ls_clock_coarse_ms() + ms);
}

typedef struct place { /* a port with deadlines */
    net_place net;
    ls_deadlines *d;
} place;

static void place_open(place *p)
{
    net_place_open(&p->net);
    assert_int_equal(ls_deadlines_open(p->net.port, item_due, &p->d), LS_OK);
}

static void handle(place *p, int timeout_ms)
{
    ls_packet packet;
    if (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, timeout_ms) > 0) ls_packet_dispatch(&p->net.ctx, &packet);
}

static void place_close(place *p)
{
    handle(p, 0); /* a tick whose deadlines are disarmed */
    net_place_release(&p->net);
    ls_deadlines_close(p->d);
}

static void await_runs(place *p, item *i, int runs)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + 30000;
    while (atomic_load(&i->runs) < runs) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        handle(p, 100);
    }
    assert_int_equal(atomic_load(&i->runs), runs);
}

TEST_IN(place, p, a_deadline_runs_once_and_not_early)
{
    item i = {.runs = 0};
    for (int round = 1; round <= 3; round++) {
        const uint32_t at_ms = in_ms(20);
        assert_int_equal(ls_deadline_arm(p->d, &i.deadline, at_ms), LS_OK);
        assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), at_ms);
        await_runs(p, &i, round);
        assert_false(ls_deadline_before(atomic_load(&i.run_at_ms), at_ms));
        assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), 0);
        net_quiet(&p->net, 0);
    }
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, ls_deadline_time(ls_clock_coarse_ms() - 1000)), LS_OK);
    await_runs(p, &i, 4); /* one in the past */
}

TEST_IN(place, p, a_deadline_runs_again_at_the_time_it_returns)
{
    item i = {.runs = 0};
    atomic_store(&i.again_ms, in_ms(30));
    const uint32_t again_ms = atomic_load(&i.again_ms);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(5)), LS_OK);
    await_runs(p, &i, 1);
    assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), again_ms);
    await_runs(p, &i, 2);
    assert_false(ls_deadline_before(atomic_load(&i.run_at_ms), again_ms));
    assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), 0);
}

TEST_IN(place, p, an_earlier_time_moves_a_deadline_and_a_later_one_does_not)
{
    item i = {.runs = 0};
    const uint32_t early_ms = in_ms(20);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(FAR_MS)), LS_OK);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, early_ms), LS_OK);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(FAR_MS)), LS_OK);
    assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), early_ms);
    await_runs(p, &i, 1);
}

TEST_IN(place, p, a_disarmed_deadline_does_not_run)
{
    item gone = {.runs = 0}, other = {.runs = 0};
    ls_deadline_disarm(p->d, &gone.deadline); /* it was never armed */
    assert_int_equal(ls_deadline_arm(p->d, &gone.deadline, in_ms(5)), LS_OK);
    assert_int_equal(ls_deadline_arm(p->d, &other.deadline, in_ms(30)), LS_OK);
    ls_deadline_disarm(p->d, &gone.deadline);
    assert_int_equal(atomic_load(&gone.deadline.entry.armed_ms), 0);
    await_runs(p, &other, 1); /* the timer was early; the tick goes on to the other */
    assert_int_equal(atomic_load(&gone.runs), 0);
}

/* More deadlines than a batch, at few different times, some disarmed, all run. */
TEST_IN(place, p, many_deadlines_run_in_batches)
{
    enum { MANY = 1000 };
    static item items[MANY];
    memset(items, 0, sizeof items);
    const uint64_t base_ms = ls_clock_coarse_ms();
    for (int n = 0; n < MANY; n++)
        assert_int_equal(ls_deadline_arm(p->d, &items[n].deadline, ls_deadline_time(base_ms + (uint32_t)(n % 5) * 10)),
                         LS_OK);
    for (int n = 0; n < MANY; n += 3) ls_deadline_disarm(p->d, &items[n].deadline);
    for (int n = 0; n < MANY; n++) {
        if (n % 3 != 0) await_runs(p, &items[n], 1);
    }
    for (int n = 0; n < MANY; n++) assert_int_equal(atomic_load(&items[n].runs), n % 3 != 0);
}

/* ---- no memory for the timer ---------------------------------------------------------------------------------- */

static _Atomic bool no_room;

int __real_ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns);

int __wrap_ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    return atomic_load(&no_room) ? LS_ENOMEM : __real_ls_timer_set(port, timer, at_ns);
}

TEST_IN(place, p, without_room_for_the_timer_nothing_is_armed)
{
    item i = {.runs = 0};
    atomic_store(&no_room, true);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(1)), LS_ENOMEM);
    assert_int_equal(atomic_load(&i.deadline.entry.armed_ms), 0);
    atomic_store(&no_room, false);
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(1)), LS_OK);
    await_runs(p, &i, 1);
}

TEST_IN(place, p, a_tick_without_room_for_the_timer_loses_no_deadline)
{
    item first = {.runs = 0}, later = {.runs = 0};
    assert_int_equal(ls_deadline_arm(p->d, &first.deadline, in_ms(1)), LS_OK);
    assert_int_equal(ls_deadline_arm(p->d, &later.deadline, in_ms(30)), LS_OK);
    atomic_store(&no_room, true);
    await_runs(p, &first, 1);
    await_runs(p, &later, 1);
    atomic_store(&no_room, false);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

typedef struct ticker { /* a thread that handles the timer's packets */
    place *place;
    ls_thread thread;
    unsigned index;
    _Atomic bool *stop;
} ticker;

static void ticker_main(void *arg)
{
    ticker *t = arg;
    ls_packet packet;
    ls_thread_ctx ctx;
    net_ctx_open(&t->place->net, &ctx, t->index);
    while (!atomic_load(t->stop))
        if (ls_port_wait(t->place->net.port, &ctx, &packet, 1, 1) > 0) ls_packet_dispatch(&ctx, &packet);
    ls_pool_close(ctx.pool);
}

typedef struct owner { /* a thread that arms, disarms and frees its own deadlines */
    place *place;
    ls_thread thread;
    uint32_t seed;
    int runs;
} owner;

static uint32_t rnd(owner *o)
{
    o->seed = o->seed * 1664525u + 1013904223u;
    return o->seed >> 8;
}

static void owner_main(void *arg)
{
    enum { OWNED = 40, ROUNDS = 20000 };
    owner *o = arg;
    ls_deadlines *d = o->place->d;
    item *items[OWNED] = {NULL};
    const uint64_t until_ms = ls_clock_coarse_ms() + 4000; /* fewer rounds on a busy machine */
    for (int round = 0; round < ROUNDS && ls_clock_coarse_ms() < until_ms; round++) {
        item **at = &items[rnd(o) % OWNED];
        if (*at == NULL) {
            *at = calloc(1, sizeof **at);
            assert_non_null(*at);
        }
        switch (rnd(o) % 4) {
        case 0: /* gone while its tick may wait for the lock */
            ls_deadline_disarm(d, &(*at)->deadline);
            o->runs += atomic_load(&(*at)->runs);
            atomic_store(&(*at)->freed, true);
            free(*at);
            *at = NULL;
            break;
        case 1: atomic_store(&(*at)->again_ms, in_ms(rnd(o) % 4)); /* fall through */
        default: assert_int_equal(ls_deadline_arm(d, &(*at)->deadline, in_ms(rnd(o) % 8)), LS_OK);
        }
    }
    for (int n = 0; n < OWNED; n++) { /* what is armed last is kept in every interleaving */
        if (items[n] == NULL) continue;
        atomic_store(&items[n]->again_ms, 0);
        const int before = atomic_load(&items[n]->runs);
        assert_int_equal(ls_deadline_arm(d, &items[n]->deadline, now()), LS_OK);
        const uint64_t hang_ms = ls_clock_coarse_ms() + 30000;
        while (atomic_load(&items[n]->runs) == before) assert_true(ls_clock_coarse_ms() < hang_ms);
        ls_deadline_disarm(d, &items[n]->deadline);
        o->runs += atomic_load(&items[n]->runs);
        free(items[n]);
    }
}

TEST_IN(place, p, threads_arm_and_disarm_while_ticks_run)
{
    enum { TICKERS = 2, OWNERS = 3 };
    ticker tickers[TICKERS];
    owner owners[OWNERS];
    _Atomic bool stop = false;
    int runs = 0;
    for (unsigned n = 0; n < TICKERS; n++) {
        tickers[n] = (ticker){.place = p, .index = n + 1, .stop = &stop};
        assert_int_equal(ls_thread_start(&tickers[n].thread, "ticker", ticker_main, &tickers[n]), LS_OK);
    }
    for (unsigned n = 0; n < OWNERS; n++) {
        owners[n] = (owner){.place = p, .seed = n + 1};
        assert_int_equal(ls_thread_start(&owners[n].thread, "owner", owner_main, &owners[n]), LS_OK);
    }
    for (unsigned n = 0; n < OWNERS; n++) {
        ls_thread_join(&owners[n].thread);
        runs += owners[n].runs;
    }
    atomic_store(&stop, true);
    for (unsigned n = 0; n < TICKERS; n++) ls_thread_join(&tickers[n].thread);
    assert_true(runs > 0);
    item i = {.runs = 0};
    assert_int_equal(ls_deadline_arm(p->d, &i.deadline, in_ms(1)), LS_OK);
    await_runs(p, &i, 1);
}
