/* test_topic_run.c - runs: messages of a topic that are delivered together, their limits, joined publications, and
 * messages that join a run while its deliveries are under way. */
#include "script/store/topic_fixture.h"

#include "sched/workers.h"

enum { MANY = 3 * LS_TOPIC_BATCH_SUBSCRIBERS };

typedef struct listener { /* a subscriber that notes the numbers it gets */
    ls_subscriber subscriber;
    unsigned calls, got, first, last; /* messages are numbers; `first` and `last` of those it got */
    unsigned joined_most;             /* the most that came as one */
    unsigned more;                    /* calls after which more followed */
    unsigned since;                   /* the last number published before its subscription */
    bool on, wrong;
    size_t bytes_max; /* of a joined publication; 0: any number */
} listener;

static int encode(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    size_t bytes = 0;
    for (unsigned n = 0; n < p->count; n++) bytes += ls_publication_part(p, n)->data.len;
    char *to = ls_topic_form_room(bytes, out);
    if (to == NULL) return LS_ENOMEM;
    for (unsigned n = 0; n < p->count; n++) {
        const ls_slice *data = &ls_publication_part(p, n)->data;
        memcpy(to, data->ptr, data->len);
        to += data->len;
    }
    return LS_OK;
}

/* The form consists of `count` numbers. */
static int take(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    listener *l = LS_CONTAINER(subscriber, listener, subscriber);
    ls_slice form;
    assert_int_equal(ls_publication_form(ctx, p, LS_FORM_LINE, encode, &form), LS_OK);
    if (p->count > 1 && l->bytes_max > 0 && form.len > l->bytes_max) return LS_EMSGSIZE;
    l->calls++;
    l->more += ls_topic_inbox_more(subscriber->inbox);
    if (p->count > l->joined_most) l->joined_most = p->count;
    assert_int_equal(form.len % p->count, 0);
    for (unsigned n = 0; n < p->count; n++) {
        unsigned number;
        memcpy(&number, form.ptr + n * (form.len / p->count), sizeof number);
        l->wrong |= number <= l->last;
        if (l->got++ == 0) l->first = number;
        l->last = number;
    }
    return LS_OK;
}

static const ls_subscriber_kind joins = {.deliver = take, .joins = true}, single = {.deliver = take};

static void listener_open(listener *l, const place *p, const ls_subscriber_kind *kind)
{
    *l = (listener){.calls = 0};
    ls_subscriber_init(&l->subscriber, p->inbox, kind);
}

static void subscribe(listener *l, const char *name)
{
    ls_publication *retained = NULL;
    assert_int_equal(ls_topic_subscribe(&l->subscriber, name, strlen(name), &retained), LS_OK);
    assert_null(retained);
}

/* world_close() also runs what is left for subscribers, so the listeners of a test are static. */
typedef struct world {
    net_place net;
    ls_topics *topics;
    place a;
    unsigned number; /* of the last message */
} world;

static void world_open(world *w)
{
    net_place_open(&w->net);
    assert_int_equal(ls_topics_open(&w->topics), LS_OK);
    place_open(&w->a, w->topics, &w->net);
    w->number = 0;
}

static void world_close(world *w)
{
    (void)pump(&w->net);
    place_close(&w->a);
    ls_topics_close(w->topics);
    net_place_close(&w->net);
}

/* Publish the next number, in `bytes` bytes. */
static void say_long(world *w, const char *topic, size_t bytes)
{
    static char data[LS_TOPIC_RUN_BYTES + 1];
    w->number++;
    assert_true(bytes >= sizeof w->number && bytes <= sizeof data);
    memcpy(data, &w->number, sizeof w->number);
    assert_true(publish_slice(w->topics, topic, strlen(topic), ls_slice_static(data, bytes), false) >= 0);
}

static void say(world *w, const char *topic)
{
    say_long(w, topic, sizeof w->number);
}

static void expect_all(const listener *l, unsigned first, unsigned last)
{
    assert_false(l->wrong);
    assert_int_equal(l->first, first);
    assert_int_equal(l->last, last);
    assert_int_equal(l->got, last - first + 1);
}

/* ---- together --------------------------------------------------------------------------------------------------- */

TEST_IN(world, w, a_run_is_one_delivery)
{
    static listener l[4];
    ls_topics_stats stats;
    ls_pools_stats before, after;
    for (int n = 0; n < 4; n++) {
        listener_open(&l[n], &w->a, n == 2 ? &single : &joins);
        subscribe(&l[n], "a");
    }
    ls_pools_stat(w->net.pools, &before);
    for (int n = 0; n < 16; n++) say(w, "a");
    (void)pump(&w->net);
    for (int n = 0; n < 4; n++) {
        expect_all(&l[n], 1, 16);
        assert_int_equal(l[n].calls, n == 2 ? 16 : 1);
        assert_int_equal(l[n].more, n == 2 ? 15 : 0);
    }
    assert_int_equal(w->a.flushes, 1);
    ls_topics_stat(w->topics, &stats);
    assert_int_equal(stats.delivered, 4 * 16);
    ls_pools_stat(w->net.pools, &after);
    assert_int_equal(after.bytes_copied - before.bytes_copied, 16 * sizeof w->number); /* joined once for all */
}

TEST(the_limits_of_a_run)
{
    static const struct {
        unsigned count;
        size_t bytes, last_bytes;
        unsigned runs, joined;
    } tries[] = {
        {LS_TOPIC_RUN_MESSAGES, 4, 4, 1, LS_TOPIC_RUN_MESSAGES},
        {LS_TOPIC_RUN_MESSAGES + 1, 4, 4, 2, LS_TOPIC_RUN_MESSAGES},
        {4, LS_TOPIC_RUN_BYTES / 4, LS_TOPIC_RUN_BYTES / 4, 1, 1},
        {4, LS_TOPIC_RUN_BYTES / 4, LS_TOPIC_RUN_BYTES / 4 + 1, 2, 1},
        {2, LS_TOPIC_RUN_BYTES + 1, LS_TOPIC_RUN_BYTES + 1, 2, 1},
        {4, LS_TOPIC_JOINED_BYTES / 4, LS_TOPIC_JOINED_BYTES / 4, 1, 4},
        {2, LS_TOPIC_JOINED_BYTES / 2, LS_TOPIC_JOINED_BYTES / 2 + 1, 1, 1},
    };
    for (size_t t = 0; t < sizeof tries / sizeof tries[0]; t++) {
        world w;
        listener l;
        world_open(&w);
        listener_open(&l, &w.a, &joins);
        subscribe(&l, "a");
        for (unsigned n = 1; n < tries[t].count; n++) say_long(&w, "a", tries[t].bytes);
        say_long(&w, "a", tries[t].last_bytes);
        (void)pump(&w.net);
        expect_all(&l, 1, tries[t].count);
        assert_int_equal(w.a.flushes, tries[t].runs); /* one after each */
        assert_int_equal(l.joined_most, tries[t].joined);
        world_close(&w);
    }
}

TEST_IN(world, w, what_does_not_fit_follows_one_by_one)
{
    enum { BYTES = 5 * sizeof(unsigned) };
    static listener l;
    ls_topics_stats stats;
    listener_open(&l, &w->a, &joins);
    l.bytes_max = BYTES;
    subscribe(&l, "a");
    for (int n = 0; n < 5; n++) say(w, "a");
    (void)pump(&w->net);
    assert_int_equal(l.calls, 1);
    for (int n = 0; n < 6; n++) say(w, "a");
    (void)pump(&w->net);
    expect_all(&l, 1, 11);
    assert_int_equal(l.calls, 1 + 6);
    assert_int_equal(l.more, 5);
    ls_topics_stat(w->topics, &stats);
    assert_int_equal(stats.delivered, 11);
    assert_int_equal(stats.dropped, 0);
}

/* A subscriber of two topics gets the messages in order, and is flushed once. */
TEST_IN(world, w, runs_of_two_topics)
{
    static listener l;
    listener_open(&l, &w->a, &joins);
    subscribe(&l, "a");
    subscribe(&l, "b");
    for (const char *topic = "aaabaabb"; *topic != '\0'; topic++) say(w, *topic == 'a' ? "a" : "b");
    (void)pump(&w->net);
    expect_all(&l, 1, 8);
    assert_int_equal(l.calls, 4); /* aaa, b, aa, bb */
    assert_int_equal(l.more, 3);
    assert_int_equal(w->a.flushes, 1);
}

typedef struct speech { /* an operation that publishes */
    ls_op op;
    world *w;
} speech;

static void speak(ls_thread_ctx *ctx, ls_op *op)
{
    say(LS_CONTAINER(op, speech, op)->w, "a");
}

/* The operations that wait for the actor publish before the first delivery. */
TEST_IN(world, w, publishers_that_wait_go_first)
{
    static listener l;
    speech speeches[5];
    listener_open(&l, &w->a, &joins);
    subscribe(&l, "a");
    assert_true(ls_actor_try_enter(&w->a.actor, &w->net.ctx));
    say(w, "a");
    for (int n = 0; n < 5; n++) {
        speeches[n] = (speech){{.done = speak, .actor = &w->a.actor}, w};
        ls_actor_post(&w->a.actor, &w->net.ctx, &speeches[n].op);
    }
    ls_actor_leave(&w->a.actor, &w->net.ctx);
    (void)pump(&w->net);
    expect_all(&l, 1, 6);
    assert_int_equal(l.calls, 1);
}

/* So do the packets that a worker has taken with that of the first publisher. */
TEST_IN(world, w, publishers_of_one_wait_go_first)
{
    enum { COUNT = LS_WAIT_PACKETS_MAX };
    const ls_workers_options options = {.threads = 1, .threads_max = 1};
    ls_topics_stats stats = {.delivered = 0};
    ls_workers *workers;
    static listener l;
    speech speeches[COUNT];
    assert_int_equal(ls_workers_open(w->net.port, w->net.pools, &options, &workers), LS_OK);
    listener_open(&l, &w->a, &joins);
    subscribe(&l, "a");
    for (int n = 0; n < COUNT; n++) {
        speeches[n] = (speech){{.done = speak, .actor = &w->a.actor}, w};
        ls_port_post(w->net.port, &speeches[n].op, 0);
    }
    assert_int_equal(ls_workers_start(workers), LS_OK);
    for (int ms = 0; ms < 5000 && stats.delivered < COUNT; ms++) {
        ls_clock_sleep_ms(1);
        ls_topics_stat(w->topics, &stats);
    }
    ls_workers_stop(workers);
    assert_true(ls_workers_join(workers, 60000));
    expect_all(&l, 1, COUNT);
    assert_int_equal(l.calls, 1);
    ls_workers_close(workers);
}

/* ---- under way -------------------------------------------------------------------------------------------------- */

TEST_IN(world, w, a_message_joins_a_run)
{
    static listener l[MANY];
    for (int n = 0; n < MANY; n++) {
        listener_open(&l[n], &w->a, &joins);
        subscribe(&l[n], "a");
    }
    say(w, "a");
    step_batch(&w->net);
    for (int n = 0; n < MANY; n++) assert_int_equal(l[n].got, n < LS_TOPIC_BATCH_SUBSCRIBERS);
    say(w, "a");
    step_batch(&w->net);
    (void)pump(&w->net);
    for (int n = 0; n < MANY; n++) {
        expect_all(&l[n], 1, 2);
        assert_int_equal(l[n].calls, n < LS_TOPIC_BATCH_SUBSCRIBERS ? 2 : 1);
    }
}

/* A message behind one of another topic does not join: its publisher has sent that one before. */
TEST_IN(world, w, a_run_ends_for_another_topic)
{
    static listener l[MANY];
    for (int n = 0; n < MANY; n++) {
        listener_open(&l[n], &w->a, &joins);
        subscribe(&l[n], "a");
        subscribe(&l[n], "b");
    }
    say(w, "a");
    step_batch(&w->net);
    say(w, "b");
    say(w, "a");
    (void)pump(&w->net);
    for (int n = 0; n < MANY; n++) {
        expect_all(&l[n], 1, 3);
        assert_int_equal(l[n].calls, 3);
    }
}

/* A run that goes on for ever would keep the gaps in the slots. */
TEST_IN(world, w, a_run_ends_when_most_of_its_slots_are_empty)
{
    enum { ENDED = MANY * 2 / 3 };
    static listener l[MANY];
    for (int n = 0; n < MANY; n++) {
        listener_open(&l[n], &w->a, &joins);
        subscribe(&l[n], "a");
    }
    say(w, "a");
    step_batch(&w->net);
    for (int n = 0; n < ENDED; n++) ls_subscriber_end(&l[n].subscriber);
    say(w, "a");
    (void)pump(&w->net);
    for (int n = ENDED; n < MANY; n++) {
        expect_all(&l[n], 1, 2);
        assert_int_equal(l[n].calls, 2);
    }
}

static unsigned random_below(unsigned below)
{
    static uint32_t seed = 1;
    seed = seed * 1664525 + 1013904223;
    return (unsigned)((uint64_t)(seed >> 8) * below >> 24);
}

/* Subscribers come and go, and single packets run, between publications in two topics. Each subscription gets what is
 * published after it, everything once and in order; one that ends may take the rest first. */
TEST_IN(world, w, at_random)
{
    static listener l[MANY];
    unsigned said[2] = {0, 0}, taken_last = 0; /* said: in each topic */
    static const char *const topics[] = {"a", "b"};
    for (int n = 0; n < MANY; n++) listener_open(&l[n], &w->a, n % 3 == 0 ? &single : &joins);
    for (unsigned turn = 0; turn < 30000; turn++) {
        listener *one = &l[random_below(random_below(10) == 0 ? 40 : MANY)];   /* some of them often: gaps */
        const unsigned what = random_below(20), topic = random_below(30) == 0; /* mostly the first */
        if (what < 8) {
            say(w, topics[topic]);
            said[topic]++;
        } else if (what < 12) {
            ls_packet packet;
            if (ls_port_wait(w->net.port, &w->net.ctx, &packet, 1, 0) == 1) ls_packet_dispatch(&w->net.ctx, &packet);
        } else if (!one->on) {
            const ls_subscriber_kind *kind = one->subscriber.kind;
            listener_open(one, &w->a, kind);
            one->on = true;
            one->since = w->number;
            for (int t = 0; t < 2; t++) subscribe(one, topics[t]);
        } else if (what < 16) {
            if (what < 14) { /* with all that was published before */
                const unsigned before = one->got;
                assert_int_equal(ls_subscriber_deliver_waiting(&w->net.ctx, &one->subscriber), LS_OK);
                assert_int_equal(one->got, w->number - one->since);
                taken_last += one->got - before;
            }
            assert_false(one->wrong);
            if (one->got > 0) assert_int_equal(one->got, one->last - one->since);
            ls_subscriber_end(&one->subscriber);
            one->on = false;
        }
        if (turn % 10000 == 9999) { /* so many subscriptions have ended that runs end, too, to close the gaps */
            (void)pump(&w->net);
            for (int n = 0; n < MANY; n++) {
                if (!l[n].on) continue;
                assert_int_equal(l[n].got, w->number - l[n].since);
                if (l[n].got > 0) expect_all(&l[n], l[n].since + 1, w->number);
            }
        }
    }
    assert_true(said[0] > 1000 && said[1] > 30 && taken_last > 1000);
}
