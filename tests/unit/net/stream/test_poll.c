/* test_poll.c - polls: reports inside the actor, arming, removal, reuse of descriptors and of memory, and threads. */
#include "port/port_fixture.h"

#include "base/os/thread.h"
#include "net/stream/poll.h"
#include "sched/actor.h"

typedef struct watch { /* a poll and its reports */
    ls_poll *poll;
    _Atomic int reports, removes;
    uint32_t events;
    bool close_in_report;
} watch;

typedef struct place { /* a port with polls, actors, and a pair of sockets */
    net_place net;
    ls_polls *polls;
    ls_actor actor, other;
    watch w, next;
    int ours, theirs; /* -1: the test has closed it */
} place;

static void watch_report(ls_thread_ctx *ctx, ls_poll *poll, uint32_t events)
{
    watch *w = ls_poll_user(poll);
    assert_non_null(ctx->inside);
    assert_ptr_equal(w->poll, poll);
    w->events |= events;
    if (events & LS_EVENT_REMOVE) {
        assert_int_equal(events, LS_EVENT_REMOVE);
        atomic_fetch_add(&w->removes, 1);
    } else {
        atomic_fetch_add(&w->reports, 1);
    }
    if (!w->close_in_report) return;
    w->poll = NULL;
    ls_poll_close(poll);
}

static void dispatch(ls_thread_ctx *ctx, const ls_packet *packet)
{
    if (packet->op != NULL)
        ls_packet_dispatch(ctx, packet);
    else if (ls_packet_current(ctx->port, packet))
        ls_packet_handler_call(ctx, packet);
}

static void handle_all(place *p)
{
    ls_packet packet;
    while (ls_port_wait(p->net.port, &p->net.ctx, &packet, 1, 0) > 0) dispatch(&p->net.ctx, &packet);
}

static void place_open(place *p)
{
    *p = (place){.ours = -1};
    net_place_open(&p->net);
    assert_int_equal(ls_polls_open(p->net.port, &p->polls), LS_OK);
    ls_actor_init(&p->actor);
    ls_actor_init(&p->other);
    net_pair(&p->ours, &p->theirs);
}

static void place_close(place *p)
{
    handle_all(p);
    if (p->ours >= 0) close(p->ours);
    if (p->theirs >= 0) close(p->theirs);
    handle_all(p);
    net_place_close(&p->net);
    ls_polls_close(p->polls); /* after the port, as a site does */
}

static void await(place *p, const _Atomic int *count, int n)
{
    while (atomic_load(count) < n) {
        const ls_packet packet = net_next(&p->net);
        dispatch(&p->net.ctx, &packet);
    }
    assert_int_equal(atomic_load(count), n);
}

static int watch_open(place *p, watch *w, int fd, ls_actor *actor, uint16_t events, uint8_t trigger)
{
    const ls_poll_options options = {
        .actor = actor, .fd = fd, .events = events, .trigger = trigger, .report = watch_report, .user = w};
    assert_true(ls_actor_try_enter(actor, &p->net.ctx));
    const int err = ls_poll_open(p->polls, &options, &w->poll);
    ls_actor_leave(actor, &p->net.ctx);
    return err;
}

static void open_ok(place *p, watch *w, int fd, uint16_t events, uint8_t trigger)
{
    assert_int_equal(watch_open(p, w, fd, &p->actor, events, trigger), LS_OK);
    assert_int_equal(ls_poll_fd(w->poll), fd);
    assert_int_equal(ls_poll_events(w->poll), events);
}

/* The same on a descriptor whose last REMOVE packet was possibly not taken yet. */
static void open_again(place *p, watch *w, int fd, uint16_t events, uint8_t trigger)
{
    int err;
    while ((err = watch_open(p, w, fd, &p->actor, events, trigger)) == LS_EBUSY) {
        const ls_packet packet = net_next(&p->net);
        dispatch(&p->net.ctx, &packet);
    }
    assert_int_equal(err, LS_OK);
}

static void watch_close(place *p, watch *w)
{
    ls_poll *poll = w->poll;
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    w->poll = NULL; /* any report from now on fails */
    ls_poll_close(poll);
    ls_actor_leave(&p->actor, &p->net.ctx);
}

static int arm(place *p, watch *w, uint16_t events)
{
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    const int err = ls_poll_arm(w->poll, events);
    ls_actor_leave(&p->actor, &p->net.ctx);
    return err;
}

static int remove_poll(place *p, watch *w)
{
    assert_true(ls_actor_try_enter(&p->actor, &p->net.ctx));
    const int err = ls_poll_remove(w->poll);
    ls_actor_leave(&p->actor, &p->net.ctx);
    return err;
}

enum { ONCE = LS_TRIGGER_ONESHOT | LS_TRIGGER_LEVEL, EDGES = LS_TRIGGER_PERSISTENT | LS_TRIGGER_EDGE };

TEST_IN(place, p, a_oneshot_reports_once_per_arming)
{
    open_ok(p, &p->w, p->ours, LS_EVENT_IN, ONCE);
    net_write(p->theirs, "x", 1);
    await(p, &p->w.reports, 1);
    assert_int_equal(p->w.events, LS_EVENT_IN);
    net_quiet(&p->net, 20); /* although the byte was not read */
    for (int n = 2; n < 5; n++) {
        assert_int_equal(arm(p, &p->w, LS_EVENT_IN), LS_OK);
        await(p, &p->w.reports, n);
    }
    p->w.events = 0;
    assert_int_equal(arm(p, &p->w, LS_EVENT_OUT), LS_OK); /* other events */
    assert_int_equal(ls_poll_events(p->w.poll), LS_EVENT_OUT);
    await(p, &p->w.reports, 5);
    assert_int_equal(p->w.events, LS_EVENT_OUT);
    watch_close(p, &p->w);
}

TEST_IN(place, p, events_are_collected_while_the_actor_is_busy)
{
    open_ok(p, &p->w, p->ours, LS_EVENT_IN | LS_EVENT_HANGUP, EDGES);
    ls_thread_ctx holder = p->net.ctx; /* stands for another thread, inside the actor */
    assert_true(ls_actor_try_enter(&p->actor, &holder));
    net_write(p->theirs, "x", 1);
    ls_packet packet = net_next(&p->net);
    dispatch(&p->net.ctx, &packet);
    net_read(p->ours, &(char){0}, 1); /* Windows reports the end behind the last byte */
    close(p->theirs);
    p->theirs = -1;
    packet = net_next(&p->net);
    dispatch(&p->net.ctx, &packet);
    assert_int_equal(atomic_load(&p->w.reports), 0);
    ls_actor_leave(&p->actor, &holder);
    assert_int_equal(atomic_load(&p->w.reports), 1);
    assert_int_equal(p->w.events & (LS_EVENT_IN | LS_EVENT_HANGUP), LS_EVENT_IN | LS_EVENT_HANGUP);
    watch_close(p, &p->w);
}

TEST_IN(place, p, a_removed_poll_reports_its_end_and_nothing_else)
{
    open_ok(p, &p->w, p->ours, LS_EVENT_IN, EDGES);
    net_write(p->theirs, "x", 1);
    assert_int_equal(remove_poll(p, &p->w), LS_OK);
    assert_int_equal(arm(p, &p->w, LS_EVENT_IN), LS_ENOENT);
    assert_int_equal(watch_open(p, &p->next, p->ours, &p->actor, LS_EVENT_IN, ONCE), LS_EBUSY);
    await(p, &p->w.removes, 1);
    assert_int_equal(atomic_load(&p->w.reports), 0);
    assert_int_equal(remove_poll(p, &p->w), LS_ENOENT);
    open_ok(p, &p->next, p->ours, LS_EVENT_IN, ONCE); /* the descriptor is free again */
    watch_close(p, &p->w);
    await(p, &p->next.reports, 1);
    watch_close(p, &p->next);
}

TEST_IN(place, p, a_closed_poll_reports_nothing)
{
    for (int how = 0; how < 4; how++) {
        open_again(p, &p->w, p->ours, LS_EVENT_IN, EDGES);
        ls_thread_ctx holder = p->net.ctx;
        assert_true(ls_actor_try_enter(&p->actor, &holder));
        if (how & 1) { /* its op is in the actor's inbox */
            net_write(p->theirs, "x", 1);
            const ls_packet packet = net_next(&p->net);
            dispatch(&p->net.ctx, &packet);
        }
        if (how & 2) assert_int_equal(ls_poll_remove(p->w.poll), LS_OK);
        ls_poll *poll = p->w.poll;
        p->w.poll = NULL;
        ls_poll_close(poll);
        ls_actor_leave(&p->actor, &holder);
        handle_all(p);
        assert_int_equal(atomic_load(&p->w.reports) + atomic_load(&p->w.removes), 0);
    }
    open_again(p, &p->w, p->ours, LS_EVENT_IN, ONCE); /* and one that closes itself */
    p->w.close_in_report = true;
    await(p, &p->w.reports, 1);
    assert_null(p->w.poll);
    handle_all(p);
    assert_int_equal(atomic_load(&p->w.removes), 0);
}

TEST_IN(place, p, a_forgotten_descriptor_is_free_at_once)
{
    open_ok(p, &p->w, p->ours, LS_EVENT_IN, ONCE);
    assert_ptr_equal(ls_polls_find(p->polls, p->ours, &p->actor, watch_report), p->w.poll);
    assert_null(ls_polls_find(p->polls, p->ours, &p->other, watch_report));
    assert_null(ls_polls_find(p->polls, p->ours, &p->actor, NULL));
    assert_null(ls_polls_find(p->polls, p->theirs, &p->actor, watch_report));
    ls_polls_unregister(p->polls, p->ours);
    assert_null(ls_polls_find(p->polls, p->ours, &p->actor, watch_report));
    assert_int_equal(arm(p, &p->w, LS_EVENT_IN), LS_ENOENT);
    open_ok(p, &p->next, p->ours, LS_EVENT_IN, ONCE);
    watch_close(p, &p->w); /* does not end the registration of `next` */
    net_write(p->theirs, "x", 1);
    await(p, &p->next.reports, 1);
    watch_close(p, &p->next);
}

/* The owner closed the descriptor without a word, and the system has given its number to another one. */
TEST_IN(place, p, a_poll_whose_descriptor_was_replaced_submits_nothing)
{
    int again, other;
    open_ok(p, &p->w, p->ours, LS_EVENT_IN, ONCE);
    net_pair(&again, &other);
    assert_int_equal(dup2(again, p->ours), p->ours); /* closes one, and the number is the other's */
    close(again);
    close(p->theirs);
    p->theirs = -1;
    assert_int_equal(watch_open(p, &p->next, p->ours, &p->other, LS_EVENT_IN, ONCE), LS_OK);
    assert_int_equal(arm(p, &p->w, LS_EVENT_OUT), LS_ENOENT); /* would report to `next` otherwise */
    watch_close(p, &p->w);
    net_quiet(&p->net, 20);
    net_write(other, "x", 1);
    await(p, &p->next.reports, 1);
    assert_int_equal(p->next.events, LS_EVENT_IN);
    ls_polls_unregister(p->polls, p->ours);
    close(other);
}

TEST_IN(place, p, a_failed_poll_leaves_nothing)
{
    assert_int_equal(watch_open(p, &p->w, -1, &p->actor, LS_EVENT_IN, ONCE), LS_EINVAL);
    assert_int_equal(watch_open(p, &p->w, p->ours, &p->actor, LS_EVENT_IN, 0), LS_EINVAL);
    open_ok(p, &p->w, p->ours, LS_EVENT_IN, ONCE);
    assert_int_equal(watch_open(p, &p->next, p->ours, &p->actor, LS_EVENT_IN, ONCE), LS_EEXIST);
    net_write(p->theirs, "x", 1);
    await(p, &p->w.reports, 1);
    watch_close(p, &p->w);
}

/* ---- threads ------------------------------------------------------------------------------------------------ */

typedef struct taker {
    place *p;
    ls_thread thread;
    unsigned index;
    _Atomic bool *stop;
} taker;

static void taker_main(void *arg)
{
    taker *t = arg;
    ls_packet packet;
    ls_thread_ctx ctx;
    net_ctx_open(&t->p->net, &ctx, t->index);
    while (!atomic_load(t->stop))
        if (ls_port_wait(t->p->net.port, &ctx, &packet, 1, 1) > 0) dispatch(&ctx, &packet);
    ls_pool_close(ctx.pool);
}

/* Polls come and go while other threads take their packets; after each close, `watch_report` would fail. */
TEST_IN(place, p, polls_come_and_go_while_threads_take_their_packets)
{
    enum { TAKERS = 3, ROUNDS = 3000 };
    taker takers[TAKERS];
    _Atomic bool stop = false;
    int reported = 0;
    char byte;
    for (unsigned n = 0; n < TAKERS; n++) {
        takers[n] = (taker){.p = p, .index = n + 1, .stop = &stop};
        assert_int_equal(ls_thread_start(&takers[n].thread, "taker", taker_main, &takers[n]), LS_OK);
    }
    const uint64_t until_ms = ls_clock_coarse_ms() + 5000; /* fewer rounds on a busy machine */
    for (int round = 0; round < ROUNDS && ls_clock_coarse_ms() < until_ms; round++) {
        watch w = {.reports = 0};
        const ls_poll_options options = {.actor = &p->actor,
                                         .fd = p->ours,
                                         .events = LS_EVENT_IN,
                                         .trigger = round % 2 ? EDGES : ONCE,
                                         .report = watch_report,
                                         .user = &w};
        int err = LS_EBUSY;
        const uint64_t hang_ms = ls_clock_coarse_ms() + 30000;
        while (err == LS_EBUSY) { /* the last REMOVE packet was not taken yet */
            assert_true(ls_clock_coarse_ms() < hang_ms);
            while (!ls_actor_try_enter(&p->actor, &p->net.ctx)) {}
            err = ls_poll_open(p->polls, &options, &w.poll);
            ls_actor_leave(&p->actor, &p->net.ctx);
        }
        assert_int_equal(err, LS_OK);
        net_write(p->theirs, "x", 1);
        while (round % 3 == 0 && atomic_load(&w.reports) == 0) assert_true(ls_clock_coarse_ms() < hang_ms);
        while (!ls_actor_try_enter(&p->actor, &p->net.ctx)) {}
        reported += atomic_load(&w.reports);
        ls_poll *poll = w.poll;
        w.poll = NULL;
        ls_poll_close(poll);
        ls_actor_leave(&p->actor, &p->net.ctx);
        net_read(p->ours, &byte, 1);
    }
    atomic_store(&stop, true);
    for (unsigned n = 0; n < TAKERS; n++) ls_thread_join(&takers[n].thread);
    assert_true(reported > 0);
}
