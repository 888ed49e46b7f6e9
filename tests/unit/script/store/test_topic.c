/* test_topic.c - topics: who gets a message and in what order, subscriptions that end during a delivery, retained
 * messages, batches, limits, forms, allocations that fail. */
/* sanitizers: asan; no thread starts */
#include "script/store/topic_fixture.h"

#include "base/clock.h"
#include "script/memory_fixture.h"

enum { LOG_BYTES = 256 };

typedef struct reader { /* a subscriber that notes the data it gets, separated by spaces */
    ls_subscriber subscriber;
    char log[LOG_BYTES];
    unsigned count;
    void (*act)(struct reader *r, ls_publication *p); /* in `deliver` */
    struct reader *other;
    ls_topics *topics;
    int result;
} reader;

static int reader_deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    reader *r = LS_CONTAINER(subscriber, reader, subscriber);
    const size_t len = strlen(r->log);
    const int result = r->result;
    assert_ptr_equal(ctx->inside == NULL, 0);
    r->count++;
    if (len + p->data.len + 2 < sizeof r->log)
        (void)snprintf(r->log + len, sizeof r->log - len, "%.*s ", (int)p->data.len, p->data.ptr);
    if (r->act != NULL) r->act(r, p); /* may free r */
    return result;
}

static const ls_subscriber_kind reader_kind = {.deliver = reader_deliver};

static void reader_open(reader *r, const place *p)
{
    *r = (reader){.count = 0};
    ls_subscriber_init(&r->subscriber, p->inbox, &reader_kind);
}

static ls_publication *subscribe(reader *r, const char *name)
{
    ls_publication *retained = NULL;
    assert_int_equal(ls_topic_subscribe(&r->subscriber, name, strlen(name), &retained), LS_OK);
    return retained;
}

static void subscribe_fresh(reader *r, const char *name)
{
    assert_null(subscribe(r, name));
}

static int unsubscribe(reader *r, const char *name)
{
    return ls_topic_unsubscribe(&r->subscriber, name, strlen(name));
}

static void expect(const reader *r, const char *log)
{
    assert_string_equal(r->log, log);
}

/* world_close() also runs what is left for subscribers, so the readers of a test are static. */
typedef struct world {
    net_place net;
    ls_topics *topics;
    place a, b;
} world;

static void world_open(world *w)
{
    net_place_open(&w->net);
    assert_int_equal(ls_topics_open(&w->topics), LS_OK);
    place_open(&w->a, w->topics, &w->net);
    place_open(&w->b, w->topics, &w->net);
}

static void world_close(world *w)
{
    (void)pump(&w->net);
    place_close(&w->a);
    place_close(&w->b);
    ls_topics_close(w->topics);
    net_place_close(&w->net);
}

static ls_topics_stats stats_of(const world *w)
{
    ls_topics_stats stats;
    ls_topics_stat(w->topics, &stats);
    return stats;
}

/* ---- who gets what -------------------------------------------------------------------------------------------- */

TEST_IN(world, w, every_subscriber_in_every_state_gets_it)
{
    static reader r[4];
    for (int n = 0; n < 4; n++) {
        reader_open(&r[n], n < 2 ? &w->a : &w->b);
        subscribe_fresh(&r[n], "news");
    }
    subscribe_fresh(&r[3], "sport");
    assert_int_equal(publish(w->topics, "news", "1"), 4);
    assert_int_equal(publish(w->topics, "sport", "2"), 1);
    assert_int_equal(publish(w->topics, "weather", "3"), 0);
    assert_int_equal(publish(w->topics, "news", "4"), 4);
    expect(&r[0], "");
    (void)pump(&w->net);
    for (int n = 0; n < 3; n++) expect(&r[n], "1 4 ");
    expect(&r[3], "1 2 4 ");
    assert_int_equal(w->a.flushes, 1); /* for all messages */
    assert_int_equal(w->b.flushes, 1);
    assert_int_equal(unsubscribe(&r[3], "news"), LS_OK);
    assert_int_equal(unsubscribe(&r[3], "news"), LS_ENOENT);
    assert_int_equal(unsubscribe(&r[3], "weather"), LS_ENOENT);
    ls_subscriber_end(&r[0].subscriber);
    assert_int_equal(publish(w->topics, "news", "5"), 2);
    (void)pump(&w->net);
    expect(&r[0], "1 4 ");
    expect(&r[2], "1 4 5 ");
    expect(&r[3], "1 2 4 ");
    const ls_topics_stats stats = stats_of(w);
    assert_int_equal(stats.topics, 2);
    assert_int_equal(stats.subscriptions, 3);
    assert_int_equal(stats.published, 5);
    assert_int_equal(stats.delivered, 11);
    assert_int_equal(stats.dropped, 0);
}

TEST_IN(world, w, refused_messages_are_counted)
{
    static reader r;
    reader_open(&r, &w->a);
    subscribe_fresh(&r, "a");
    r.result = LS_ELIMIT;
    assert_int_equal(publish(w->topics, "a", "1"), 1);
    (void)pump(&w->net);
    r.result = LS_ECLOSED; /* counts neither as delivered nor as dropped */
    assert_int_equal(publish(w->topics, "a", "2"), 1);
    (void)pump(&w->net);
    expect(&r, "1 2 ");
    ls_topic_count_closed(w->a.inbox);
    assert_int_equal(stats_of(w).delivered, 0);
    assert_int_equal(stats_of(w).dropped, 1);
    assert_int_equal(stats_of(w).closed, 1);
    place_close(&w->a);
    assert_int_equal(stats_of(w).dropped, 1); /* kept */
    place_open(&w->a, w->topics, &w->net);
}

/* A subscription gets what is published after it, also when older messages still wait. */
TEST_IN(world, w, a_new_subscription_gets_later_messages)
{
    static reader early, late;
    reader_open(&early, &w->a);
    reader_open(&late, &w->a);
    subscribe_fresh(&early, "a");
    assert_int_equal(publish(w->topics, "a", "1"), 1);
    subscribe_fresh(&late, "a");
    assert_int_equal(publish(w->topics, "a", "2"), 2);
    assert_int_equal(unsubscribe(&early, "a"), LS_OK);
    (void)pump(&w->net);
    expect(&early, "");
    expect(&late, "2 ");
    assert_int_equal(publish(w->topics, "a", "3"), 1);
    assert_int_equal(unsubscribe(&late, "a"), LS_OK); /* the last one: the topic ends, its message is on the way */
    subscribe_fresh(&late, "a");
    (void)pump(&w->net);
    expect(&late, "2 ");
}

TEST_IN(world, w, an_inbox_delivers_from_its_start)
{
    place c;
    static reader r;
    place_open(&c, w->topics, NULL);
    reader_open(&r, &c);
    subscribe_fresh(&r, "a");
    assert_int_equal(publish(w->topics, "a", "1"), 1);
    assert_int_equal(publish(w->topics, "a", "2"), 1);
    assert_int_equal(pump(&w->net), 0);
    assert_false(ls_topic_inbox_idle(c.inbox));
    w->net.ctx.inside = &c.actor;
    ls_topic_inbox_start(&w->net.ctx, c.inbox, w->net.port);
    w->net.ctx.inside = NULL;
    expect(&r, "1 2 "); /* before the next packet, which may be a request */
    assert_true(ls_topic_inbox_idle(c.inbox));
    place_close(&c);
}

/* ---- inside a delivery ------------------------------------------------------------------------------------------ */

static void act_unsubscribe(reader *r, ls_publication *p)
{
    r->act = NULL;
    assert_int_equal(unsubscribe(r, "a"), LS_OK);
}

static void act_end_other(reader *r, ls_publication *p)
{
    r->act = NULL;
    ls_subscriber_end(&r->other->subscriber);
    free(r->other);
    r->other = NULL;
}

static void act_free(reader *r, ls_publication *p)
{
    ls_subscriber_end(&r->subscriber);
    free(r);
}

static void act_subscribe_other(reader *r, ls_publication *p)
{
    r->act = NULL;
    subscribe_fresh(r->other, "a");
}

static void act_publish(reader *r, ls_publication *p)
{
    r->act = NULL;
    assert_int_equal(publish(r->topics, "a", "inner"), 2);
}

TEST(subscriptions_end_inside_a_delivery)
{
    world w;
    for (int actor = 0; actor < 5; actor++) { /* the one of five that acts */
        for (int victim = 0; victim < 5; victim++) {
            reader *r[5];
            world_open(&w);
            for (int n = 0; n < 5; n++) {
                r[n] = malloc(sizeof **r);
                assert_non_null(r[n]);
                reader_open(r[n], &w.a);
                subscribe_fresh(r[n], "a");
            }
            r[actor]->act = victim == actor ? act_free : act_end_other;
            r[actor]->other = r[victim];
            assert_int_equal(publish(w.topics, "a", "1"), 5);
            (void)pump(&w.net);
            assert_int_equal(publish(w.topics, "a", "2"), 4);
            (void)pump(&w.net);
            for (int n = 0; n < 5; n++) {
                if (n == victim) continue;
                expect(r[n], "1 2 ");
                ls_subscriber_end(&r[n]->subscriber);
                free(r[n]);
            }
            world_close(&w);
        }
    }
}

TEST_IN(world, w, all_unsubscribe_inside_a_delivery)
{
    static reader r[3];
    for (int n = 0; n < 3; n++) {
        reader_open(&r[n], &w->a);
        subscribe_fresh(&r[n], "a");
        r[n].act = act_unsubscribe;
    }
    assert_int_equal(publish(w->topics, "a", "1"), 3);
    assert_int_equal(publish(w->topics, "a", "2"), 3);
    (void)pump(&w->net);
    for (int n = 0; n < 3; n++) expect(&r[n], "1 ");
    assert_int_equal(stats_of(w).topics, 0);
}

TEST_IN(world, w, subscribe_and_publish_inside_a_delivery)
{
    static reader r[20];
    for (int n = 0; n < 20; n++) reader_open(&r[n], &w->a);
    for (int n = 0; n < 19; n++) { /* each adds the next one, so that the slots move */
        r[n].act = act_subscribe_other;
        r[n].other = &r[n + 1];
    }
    subscribe_fresh(&r[0], "a");
    for (int n = 1; n <= 20; n++) {
        assert_int_equal(publish(w->topics, "a", "x"), n);
        (void)pump(&w->net);
    }
    for (unsigned n = 0; n < 20; n++) assert_int_equal(r[n].count, 20 - n);
    for (int n = 2; n < 20; n++) ls_subscriber_end(&r[n].subscriber);
    r[0].log[0] = r[1].log[0] = '\0';
    r[0].act = act_publish;
    r[0].topics = w->topics;
    assert_int_equal(publish(w->topics, "a", "outer"), 2);
    (void)pump(&w->net);
    expect(&r[0], "outer inner ");
    expect(&r[1], "outer inner ");
}

/* ---- retained messages ------------------------------------------------------------------------------------------ */

static void expect_retained(ls_publication *p, const char *data)
{
    assert_non_null(p);
    assert_int_equal(p->data.len, strlen(data));
    assert_memory_equal(p->data.ptr, data, p->data.len);
    ls_publication_drop(p);
}

TEST_IN(world, w, the_last_retained_message_goes_to_new_subscribers)
{
    static reader r[3];
    for (int n = 0; n < 3; n++) reader_open(&r[n], &w->a);
    assert_int_equal(retain(w->topics, "a", "1"), 0);
    assert_int_equal(stats_of(w).topics, 1);
    expect_retained(subscribe(&r[0], "a"), "1");
    assert_int_equal(retain(w->topics, "a", "2"), 1);
    assert_int_equal(publish(w->topics, "a", "3"), 1);
    expect_retained(subscribe(&r[1], "a"), "2");
    assert_int_equal(retain(w->topics, "a", ""), 2); /* removes it, and is a message too */
    assert_null(subscribe(&r[2], "a"));
    (void)pump(&w->net);
    expect(&r[0], "2 3  ");
    assert_int_equal(stats_of(w).retained_bytes, 0);
    for (int n = 0; n < 3; n++) ls_subscriber_end(&r[n].subscriber);
    assert_int_equal(retain(w->topics, "b", "kept"), 0); /* freed with the topics */
    assert_int_equal(retain(w->topics, "c", "1"), 0);
    assert_int_equal(retain(w->topics, "c", ""), 0);
    assert_int_equal(retain(w->topics, "c", ""), 0);
    assert_int_equal(stats_of(w).topics, 1);
}

static void keep(const world *w, const char *data, unsigned most)
{
    const ls_publish_order order = {.topic = "a",
                                    .topic_len = 1,
                                    .data = ls_slice_static(data, strlen(data)),
                                    .text = true,
                                    .retain = most > 0 ? most : 1,
                                    .history = most > 0,
                                    .numbered = true};
    assert_int_equal(ls_topics_publish(w->topics, &order), 0);
}

/* The last ones in their order, with ascending positions as ids; fewer as soon as a message wants fewer. One that says
 * no number (0) joins the others, or removes them if it is empty; with a number it is a message as any (.). */
TEST_IN(world, w, several_retained_messages)
{
    static const struct {
        const char *data;
        unsigned most;
        const char *expected;
    } steps[] = {{"1", 3, "1"}, {"2", 3, "12"}, {"3", 3, "123"}, {"4", 3, "234"}, {"5", 4, "2345"}, {"6", 2, "56"},
                 {"7", 1, "7"}, {"8", 2, "78"}, {"9", 0, "89"}, {"", 2, "9."},    {"9", 2, ".9"},  {"", 0, ""},
                 {"1", 0, "1"}, {"2", 0, "2"},  {"", 1, "."}};
    static reader r;
    uint64_t last = (uint64_t)ls_clock_wall_us();
    char id[24], data[8];
    for (size_t n = 0; n < sizeof steps / sizeof *steps; n++) {
        ls_retained *all = NULL;
        uint64_t bytes = 0;
        keep(w, steps[n].data, steps[n].most);
        reader_open(&r, &w->a);
        assert_int_equal(ls_topic_subscribe_all(&r.subscriber, "a", 1, &all), LS_OK);
        unsigned at = 0;
        for (; all != NULL && at < all->count; at++) {
            const ls_publication *p = all->at[at];
            data[at] = p->data.len > 0 ? *p->data.ptr : '.';
            assert_int_equal(snprintf(id, sizeof id, "%llu", (unsigned long long)p->position), p->id.len);
            assert_memory_equal(p->id.ptr, id, p->id.len);
            assert_true(p->position > (at == 0 ? last - 1 : all->at[at - 1]->position));
            bytes += LS_TOPIC_MESSAGE_BYTES + 1 + p->data.len + p->id.len;
        }
        data[at] = '\0';
        assert_string_equal(data, steps[n].expected);
        assert_int_equal(stats_of(w).retained_bytes, bytes);
        ls_retained_drop(all);
        ls_subscriber_end(&r.subscriber);
    }
    keep(w, "kept", 3); /* freed with the topics */
    keep(w, "kept", 3);
}

/* A block of the pool is not kept for as long as a retained message. */
TEST_IN(world, w, retained_data_is_copied_and_other_data_is_not)
{
    static reader r;
    ls_pools_stats stats;
    reader_open(&r, &w->a);
    subscribe_fresh(&r, "a");
    ls_block *block = ls_block_get(w->net.ctx.pool, LS_BLOCK_SMALL);
    memcpy(block->data, "data", 4);
    assert_int_equal(publish_slice(w->topics, "a", 1, ls_slice_of(block, 0, 4), true), 1);
    assert_int_equal(atomic_load(&block->refs), 1);
    assert_int_equal(publish_slice(w->topics, "a", 1, ls_slice_of(block, 0, 4), false), 1);
    assert_int_equal(atomic_load(&block->refs), 2);
    ls_block_drop(block);
    (void)pump(&w->net);
    expect(&r, "data data ");
    ls_pools_stat(w->net.pools, &stats);
    assert_int_equal(stats.blocks_live, 0);
}

static int64_t publish_bytes(ls_topics *topics, const char *name, size_t bytes, bool kept)
{
    static char data[LS_TOPIC_RETAINED_BYTES_MAX];
    assert_true(bytes <= sizeof data);
    return publish_slice(topics, name, strlen(name), ls_slice_static(data, bytes), kept);
}

/* What is too long is delivered, and the topic keeps nothing that is older. */
TEST_IN(world, w, the_limit_of_retained_messages)
{
    enum { ALL = LS_TOPIC_RETAINED_BYTES_MAX - LS_TOPIC_MESSAGE_BYTES - 1, HALF = LS_TOPIC_RETAINED_BYTES_MAX / 2 };
    static reader r, later;
    assert_int_equal(ls_topics_unkept(w->topics, 1), 0);
    assert_int_equal(publish_bytes(w->topics, "a", ALL + 1, true), 0);
    assert_int_equal(ls_topics_unkept(w->topics, 1), 1);
    assert_int_equal(stats_of(w).topics, 0);
    assert_int_equal(publish_bytes(w->topics, "a", ALL, true), 0);
    assert_int_equal(stats_of(w).retained_bytes, LS_TOPIC_RETAINED_BYTES_MAX);
    assert_int_equal(publish_bytes(w->topics, "a", ALL, true), 0); /* instead of the first one */
    reader_open(&r, &w->a);
    subscribe_fresh(&r, "b");
    assert_int_equal(ls_topics_unkept(w->topics, LS_TOPIC_UNKEPT_MS + 1), 0);
    for (int n = 0; n < 3; n++) assert_int_equal(retain(w->topics, "b", "live"), 1);
    (void)pump(&w->net);
    expect(&r, "live live live ");
    assert_int_equal(ls_topics_unkept(w->topics, LS_TOPIC_UNKEPT_MS), 0); /* one line a minute */
    assert_int_equal(ls_topics_unkept(w->topics, LS_TOPIC_UNKEPT_MS + 1), 3);
    assert_int_equal(retain(w->topics, "a", ""), 0);
    assert_int_equal(publish_bytes(w->topics, "a", HALF - LS_TOPIC_MESSAGE_BYTES - 1, true), 0);
    assert_int_equal(publish_bytes(w->topics, "b", HALF - LS_TOPIC_MESSAGE_BYTES - 1, true), 1);
    assert_int_equal(publish_bytes(w->topics, "b", HALF - LS_TOPIC_MESSAGE_BYTES, true), 1);
    reader_open(&later, &w->a);
    subscribe_fresh(&later, "b");
    assert_int_equal(stats_of(w).retained_bytes, HALF);
}

/* At the limit a topic keeps as many of its last messages as fit: without a gap. */
TEST_IN(world, w, the_limit_of_several_retained_messages)
{
    enum { REST = 4 * (LS_TOPIC_MESSAGE_BYTES + 2) };
    ls_publish_order order = {.topic = "b", .topic_len = 1, .text = true, .retain = 9, .history = true};
    ls_retained *all = NULL;
    static const char wide[100];
    static reader r;
    assert_int_equal(
        publish_bytes(w->topics, "a", LS_TOPIC_RETAINED_BYTES_MAX - REST - LS_TOPIC_MESSAGE_BYTES - 1, true), 0);
    for (const char *data = "123456"; *data != '\0'; data++) {
        order.data = ls_slice_static(data, 1);
        assert_int_equal(ls_topics_publish(w->topics, &order), 0);
    }
    order.data = ls_slice_static(wide, sizeof wide); /* in place of two */
    assert_int_equal(ls_topics_publish(w->topics, &order), 0);
    assert_int_equal(ls_topics_unkept(w->topics, 1), 3);
    reader_open(&r, &w->a);
    assert_int_equal(ls_topic_subscribe_all(&r.subscriber, "b", 1, &all), LS_OK);
    assert_int_equal(all->count, 3);
    assert_memory_equal(all->at[0]->data.ptr, "5", 1);
    assert_memory_equal(all->at[1]->data.ptr, "6", 1);
    ls_retained_drop(all);
    ls_subscriber_end(&r.subscriber);
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

TEST(lengths_of_names)
{
    world w;
    reader r;
    ls_publication *retained = NULL;
    char name[LS_TOPIC_NAME_BYTES_MAX + 1];
    world_open(&w);
    reader_open(&r, &w.a);
    memset(name, 'n', sizeof name);
    const ls_slice data = ls_slice_static("x", 1);
    assert_int_equal(ls_topic_subscribe(&r.subscriber, name, sizeof name - 1, &retained), LS_OK);
    assert_int_equal(ls_topic_subscribe(&r.subscriber, name, sizeof name, &retained), LS_EINVAL);
    assert_int_equal(ls_topic_subscribe(&r.subscriber, name, 0, &retained), LS_EINVAL);
    assert_int_equal(publish_slice(w.topics, name, sizeof name - 1, data, false), 1);
    assert_int_equal(publish_slice(w.topics, name, sizeof name, data, false), LS_EINVAL);
    assert_int_equal(publish_slice(w.topics, name, 0, data, false), LS_EINVAL);
    assert_int_equal(ls_topic_unsubscribe(&r.subscriber, name, sizeof name), LS_ENOENT);
    world_close(&w);
    assert_int_equal(r.count, 1);
}

TEST_IN(world, w, the_limit_of_subscriptions)
{
    static reader r;
    ls_publication *retained = NULL;
    char name[16];
    reader_open(&r, &w->a);
    for (int n = 0; n < LS_TOPIC_SUBSCRIPTIONS_MAX; n++) {
        (void)snprintf(name, sizeof name, "%d", n);
        subscribe_fresh(&r, name);
        assert_int_equal(ls_topic_subscribe(&r.subscriber, name, strlen(name), &retained), LS_EEXIST);
    }
    assert_int_equal(ls_topic_subscribe(&r.subscriber, "more", 4, &retained), LS_ELIMIT);
    assert_int_equal(stats_of(w).topics, LS_TOPIC_SUBSCRIPTIONS_MAX);
    assert_int_equal(unsubscribe(&r, "7"), LS_OK);
    subscribe_fresh(&r, "more");
}

/* A full inbox loses the message for its own subscribers; only the publisher of its state gets an error. */
TEST(the_limit_of_an_inbox)
{
    enum {
        EACH = LS_TOPIC_RETAINED_BYTES_MAX - LS_TOPIC_MESSAGE_BYTES - 1,
        COUNT = LS_TOPIC_INBOX_BYTES_MAX / LS_TOPIC_RETAINED_BYTES_MAX
    };
    world w;
    reader r[2], others[2];
    ls_publish_order order = {.topic = "a", .topic_len = 1};
    world_open(&w);
    reader_open(&r[0], &w.a);
    reader_open(&r[1], &w.b);
    subscribe_fresh(&r[0], "a");
    subscribe_fresh(&r[1], "b");
    for (int n = 0; n < 2; n++) {
        reader_open(&others[n], &w.b);
        subscribe_fresh(&others[n], "a");
    }
    for (int n = 0; n < COUNT - 1; n++) assert_int_equal(publish_bytes(w.topics, "b", EACH, false), 1);
    assert_int_equal(publish_bytes(w.topics, "b", EACH + 1, false), 0);
    assert_int_equal(stats_of(&w).dropped, 1);
    assert_int_equal(publish_bytes(w.topics, "b", EACH, false), 1);
    assert_int_equal(publish_bytes(w.topics, "a", 0, false), 1); /* the other state gets it */
    assert_int_equal(stats_of(&w).dropped, 3);
    order.own = w.b.inbox;
    assert_int_equal(ls_topics_publish(w.topics, &order), LS_ELIMIT); /* no state gets it */
    order.own = w.a.inbox;
    assert_int_equal(ls_topics_publish(w.topics, &order), 1);
    assert_int_equal(stats_of(&w).dropped, 5);
    (void)pump(&w.net);
    assert_int_equal(r[0].count, 2);
    assert_int_equal(others[0].count, 0);
    assert_int_equal(r[1].count, COUNT);
    assert_int_equal(publish_bytes(w.topics, "a", 0, false), 3);
    (void)pump(&w.net);
    assert_int_equal(stats_of(&w).dropped, 5);
    world_close(&w);
    assert_int_equal(others[1].count, 1);
}

/* ---- many ------------------------------------------------------------------------------------------------------- */

TEST_IN(world, w, many_topics_come_and_go)
{
    enum { READERS = 100, EACH = 1000 };
    static reader r[READERS];
    char name[32];
    for (int round = 0; round < 2; round++) {
        for (int n = 0; n < READERS * EACH; n++) {
            if (n % EACH == 0) reader_open(&r[n / EACH], n % 2000 == 0 ? &w->a : &w->b);
            (void)snprintf(name, sizeof name, "topic/%d", n);
            subscribe_fresh(&r[n / EACH], name);
        }
        assert_int_equal(stats_of(w).topics, READERS * EACH);
        for (int n = 0; n < READERS * EACH; n += 997) {
            (void)snprintf(name, sizeof name, "topic/%d", n);
            assert_int_equal(publish(w->topics, name, "x"), 1);
        }
        (void)pump(&w->net);
        for (int n = 0; n < READERS; n++) ls_subscriber_end(&r[n].subscriber);
        assert_int_equal(stats_of(w).topics, 0);
        assert_int_equal(stats_of(w).subscriptions, 0);
    }
}

TEST_IN(world, w, the_list_of_topics)
{
    static reader r[2];
    char room[4096];
    unsigned seen = 0;
    for (int n = 0; n < 2; n++) {
        reader_open(&r[n], n == 0 ? &w->a : &w->b);
        subscribe_fresh(&r[n], "room/1");
        subscribe_fresh(&r[n], "other");
    }
    subscribe_fresh(&r[0], "room/2");
    (void)retain(w->topics, "room/3", "x");
    for (unsigned part = 0; part < LS_TOPIC_SHARDS; part++) {
        const size_t needed = ls_topics_list(w->topics, part, "room/", 5, NULL, 0);
        assert_true(needed <= sizeof room);
        if (needed > 0) assert_int_equal(ls_topics_list(w->topics, part, "room/", 5, room, needed - 1), needed);
        assert_int_equal(ls_topics_list(w->topics, part, "room/", 5, room, needed), needed);
        const char *at = room;
        for (ls_topic_info info; ls_topics_next(&at, room + needed, &info); seen++) {
            assert_int_equal(info.len, 6);
            assert_memory_equal(info.name, "room/", 5);
            assert_int_equal(info.subscribers, '3' - info.name[5]);
        }
    }
    assert_int_equal(seen, 3);
}

static unsigned turns;

static void other_work(ls_thread_ctx *ctx, ls_op *op)
{
    turns++;
}

/* Many subscribers: batches, between which other packets of the state run. */
TEST_IN(world, w, batches_let_other_work_run)
{
    enum { COUNT = 2 * LS_TOPIC_BATCH_SUBSCRIBERS + 1 };
    static reader r[COUNT];
    turns = 0;
    for (int n = 0; n < COUNT; n++) {
        reader_open(&r[n], &w->a);
        subscribe_fresh(&r[n], "a");
    }
    assert_int_equal(publish(w->topics, "a", "1"), COUNT);
    assert_int_equal(publish(w->topics, "a", "2"), COUNT);
    step(&w->net); /* the wake-up of the actor */
    ls_op op = {.done = other_work, .actor = &w->a.actor};
    ls_port_post(w->net.port, &op, 0);
    while (turns == 0) step(&w->net);
    for (int n = 0; n < COUNT; n++) expect(&r[n], n < LS_TOPIC_BATCH_SUBSCRIBERS ? "1 2 " : "");
    assert_int_equal(pump(&w->net), 2 * 2);
    for (int n = 0; n < COUNT; n++) expect(&r[n], "1 2 ");
}

/* Few subscribers, many messages: one batch of LS_TOPIC_BATCH_DELIVERIES, flushed after each run. */
TEST(a_batch_has_a_limit_of_deliveries)
{
    world w;
    reader r;
    for (unsigned more = 0; more < 2; more++) {
        world_open(&w);
        reader_open(&r, &w.a);
        subscribe_fresh(&r, "a");
        for (unsigned n = 0; n < LS_TOPIC_BATCH_DELIVERIES + more; n++)
            assert_int_equal(publish(w.topics, "a", "x"), 1);
        assert_int_equal(pump(&w.net), 2 * (1 + more));
        assert_int_equal(r.count, LS_TOPIC_BATCH_DELIVERIES + more);
        assert_int_equal(w.a.flushes, LS_TOPIC_BATCH_DELIVERIES / LS_TOPIC_RUN_MESSAGES + 2 * more);
        world_close(&w);
    }
}

/* The subscribers of the last message that waits are flushed in groups of 64, those of earlier ones with it. */
TEST_IN(world, w, groups_of_subscribers_are_flushed)
{
    static reader r[200];
    for (int n = 0; n < 200; n++) {
        reader_open(&r[n], &w->a);
        subscribe_fresh(&r[n], "a");
    }
    assert_int_equal(publish(w->topics, "a", "1"), 200);
    (void)pump(&w->net);
    assert_int_equal(w->a.flushes, 4);
    assert_int_equal(publish(w->topics, "a", "2"), 200);
    assert_int_equal(publish(w->topics, "a", "3"), 200);
    (void)pump(&w->net);
    assert_int_equal(w->a.flushes, 8);
    for (int n = 0; n < 200; n++) expect(&r[n], "1 2 3 ");
}

static unsigned prefetched_of_marked, prefetches_late;

/* The steps of a subscriber come in order, each before a delivery to another, and none after its own delivery. */
static void note_prefetch(const ls_subscriber *subscriber, unsigned ahead)
{
    const reader *r = LS_CONTAINER(subscriber, reader, subscriber);
    prefetches_late += r->count > 0;
    if (r->result == LS_ELIMIT) prefetched_of_marked = prefetched_of_marked * 10 + ahead; /* a mark */
}

TEST_IN(world, w, what_deliveries_read_is_prefetched)
{
    enum { COUNT = 9, MARKED = 7 };
    static const ls_subscriber_kind kind = {.deliver = reader_deliver, .prefetch = note_prefetch};
    static reader r[COUNT];
    prefetched_of_marked = prefetches_late = 0;
    for (int n = 0; n < COUNT; n++) {
        reader_open(&r[n], &w->a);
        r[n].subscriber.kind = &kind;
        r[n].result = n == MARKED ? LS_ELIMIT : LS_OK;
        subscribe_fresh(&r[n], "a");
    }
    ls_subscriber_end(&r[2].subscriber); /* a gap in the slots */
    assert_int_equal(publish(w->topics, "a", "1"), COUNT - 1);
    (void)pump(&w->net);
    assert_int_equal(prefetches_late, 0);
    assert_int_equal(prefetched_of_marked, 4); /* the last ones are near the end: the first steps only */
    for (int n = 0; n < COUNT; n++) expect(&r[n], n == 2 ? "" : "1 ");
}

/* Gaps in the slots are closed, in order. */
TEST_IN(world, w, subscriptions_that_end_leave_the_order)
{
    enum { COUNT = 64 };
    static reader r[COUNT];
    for (int n = 0; n < COUNT; n++) {
        reader_open(&r[n], &w->a);
        subscribe_fresh(&r[n], "a");
    }
    for (int n = 0; n < COUNT; n++)
        if (n % 8 != 5) ls_subscriber_end(&r[n].subscriber);
    assert_int_equal(publish(w->topics, "a", "1"), COUNT / 8);
    for (int n = 0; n < COUNT; n += 8) subscribe_fresh(&r[n], "a");
    assert_int_equal(publish(w->topics, "a", "2"), COUNT / 4);
    (void)pump(&w->net);
    for (int n = 0; n < COUNT; n++) expect(&r[n], n % 8 == 5 ? "1 2 " : n % 8 == 0 ? "2 " : "");
}

/* ---- forms ------------------------------------------------------------------------------------------------------ */

static unsigned encoded;

static int encode_line(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    char *to = ls_topic_form_room(p->data.len + 100, out); /* more than it needs */
    if (to == NULL) return LS_ENOMEM;
    encoded++;
    memcpy(to, p->data.ptr, p->data.len);
    to[p->data.len] = '\n';
    out->len = p->data.len + 1;
    return LS_OK;
}

static void act_form(reader *r, ls_publication *p)
{
    ls_slice line;
    assert_int_equal(ls_publication_form(NULL, p, LS_FORM_LINE, encode_line, &line), LS_OK);
    assert_int_equal(line.len, 5);
    assert_memory_equal(line.ptr, "data\n", 5);
    ls_block_drop(ls_block_hold(line.block));
}

TEST_IN(world, w, a_form_is_encoded_once)
{
    reader r[3];
    encoded = 0;
    for (int n = 0; n < 3; n++) {
        reader_open(&r[n], n == 0 ? &w->a : &w->b);
        subscribe_fresh(&r[n], "a");
        r[n].act = act_form;
    }
    assert_int_equal(publish(w->topics, "a", "data"), 3);
    (void)pump(&w->net);
    assert_int_equal(encoded, 1);
    assert_int_equal(retain(w->topics, "a", "data"), 3);
    (void)pump(&w->net);
    assert_int_equal(encoded, 2);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

TEST_IN(world, w, a_closed_inbox_ends_its_subscriptions)
{
    place c;
    static reader r[3], elsewhere;
    ls_publication *retained = NULL;
    place_open(&c, w->topics, &w->net);
    for (int n = 0; n < 3; n++) {
        reader_open(&r[n], &c);
        subscribe_fresh(&r[n], "a");
        subscribe_fresh(&r[n], "b");
    }
    reader_open(&elsewhere, &w->a);
    subscribe_fresh(&elsewhere, "a");
    assert_int_equal(publish(w->topics, "a", "1"), 4);
    ls_topic_inbox_close(c.inbox);
    ls_topic_inbox_close(c.inbox);
    assert_false(ls_topic_inbox_closed(c.inbox)); /* its operation is on the way */
    assert_int_equal(ls_topic_subscribe(&r[0].subscriber, "a", 1, &retained), LS_ECLOSED);
    assert_int_equal(publish(w->topics, "a", "2"), 1);
    assert_int_equal(publish(w->topics, "b", "3"), 0);
    (void)pump(&w->net);
    assert_true(ls_topic_inbox_closed(c.inbox));
    ls_topic_inbox_free(c.inbox);
    for (int n = 0; n < 3; n++) {
        expect(&r[n], "");
        ls_subscriber_end(&r[n].subscriber);
    }
    expect(&elsewhere, "1 2 ");
}

/* While a new generation of the site starts, each message belongs to one. */
TEST_IN(world, w, a_message_belongs_to_one_generation)
{
    static reader r;
    ls_publication *p;
    (void)retain(w->topics, "a", "before the first start");
    assert_int_equal(ls_topics_site_starts(w->topics), 0);
    reader_open(&r, &w->a);
    p = subscribe(&r, "a");
    assert_int_equal(p->site, 0);
    ls_publication_drop(p);
    expect_retained(ls_subscriber_retained(&r.subscriber, 0), "before the first start");
    (void)retain(w->topics, "a", "of the first");
    assert_null(ls_subscriber_retained(&r.subscriber, 0)); /* the inbox delivers it */
    expect_retained(ls_subscriber_retained(&r.subscriber, 1), "of the first");
    assert_int_equal(ls_topics_site_starts(w->topics), 1);
    (void)retain(w->topics, "a", "of the second");
    assert_null(ls_subscriber_retained(&r.subscriber, 1));
    (void)retain(w->topics, "a", "");
    assert_null(ls_subscriber_retained(&r.subscriber, 0));
    ls_subscriber_end(&r.subscriber);
    assert_null(ls_subscriber_retained(&r.subscriber, 0));
}

static void act_event(reader *r, ls_publication *p)
{
    assert_int_equal(p->event.len, 4);
    assert_memory_equal(p->event.ptr, "tick", 4);
    assert_int_equal(p->id.len, LS_TOPIC_EVENT_BYTES_MAX);
    assert_int_equal(p->id.ptr[LS_TOPIC_EVENT_BYTES_MAX - 1], 'i');
}

TEST(the_fields_of_an_event)
{
    static char id[LS_TOPIC_EVENT_BYTES_MAX + 1];
    world w;
    reader r;
    world_open(&w);
    reader_open(&r, &w.a);
    subscribe_fresh(&r, "a");
    r.act = act_event;
    memset(id, 'i', sizeof id);
    ls_publish_order order = {.topic = "a",
                              .topic_len = 1,
                              .data = ls_slice_static("data", 4),
                              .event = ls_slice_static("tick", 4),
                              .id = ls_slice_static(id, sizeof id - 1),
                              .retain = true};
    assert_int_equal(ls_topics_publish(w.topics, &order), 1);
    assert_int_equal(stats_of(&w).retained_bytes, LS_TOPIC_MESSAGE_BYTES + 1 + 4 + 4 + LS_TOPIC_EVENT_BYTES_MAX);
    order.id.len++;
    assert_int_equal(ls_topics_publish(w.topics, &order), LS_EINVAL);
    order.event = order.id;
    order.id.len = 0;
    assert_int_equal(ls_topics_publish(w.topics, &order), LS_EINVAL);
    world_close(&w);
    expect(&r, "data ");
}

TEST_IN(world, w, allocations_that_fail)
{
    static reader r[2], more[4];
    ls_publication *retained = NULL;
    for (int n = 0; n < 2; n++) reader_open(&r[n], n == 0 ? &w->a : &w->b);
    int64_t result = LS_ENOMEM;
    for (int k = 0; result == LS_ENOMEM; k++) {
        test_allocations_left = k;
        result = ls_topic_subscribe(&r[0].subscriber, "a", 1, &retained);
        test_allocations_left = -1;
        assert_int_equal(stats_of(w).topics, result == LS_OK);
        assert_int_equal(r[0].subscriber.count, result == LS_OK);
    }
    assert_int_equal(result, LS_OK);
    for (int n = 0; n < 4; n++) { /* the fifth slot needs more room */
        reader_open(&more[n], &w->a);
        test_allocations_left = 1;
        result = ls_topic_subscribe(&more[n].subscriber, "a", 1, &retained);
        test_allocations_left = -1;
        assert_int_equal(result, n < 3 ? LS_OK : LS_ENOMEM);
        assert_int_equal(publish(w->topics, "a", "x"), n < 3 ? n + 2 : 4);
        (void)pump(&w->net);
    }
    for (int n = 0; n < 4; n++) ls_subscriber_end(&more[n].subscriber);
    r[0].log[0] = '\0';
    unsigned failed = 0;
    for (int k = 0, kept = 0; kept < 2; k++) {
        test_allocations_left = k;
        result = kept == 0 ? publish(w->topics, "a", "z") : retain(w->topics, "new", "kept");
        test_allocations_left = -1;
        (void)pump(&w->net);
        if (result == LS_ENOMEM) {
            failed++;
            expect(&r[0], kept == 0 ? "" : "z ");
            continue;
        }
        assert_int_equal(result, 1 - kept);
        kept++;
        k = -1;
    }
    expect(&r[0], "z ");
    assert_true(failed >= 3);
    expect_retained(subscribe(&r[1], "new"), "kept");
    ls_slice none = {NULL, NULL, 0};
    test_allocations_left = 0;
    assert_null(ls_topic_form_room(1, &none));
    place c = {.inbox = NULL};
    assert_int_equal(ls_topic_inbox_open(w->topics, &c.actor, place_flush, &c, &c.inbox), LS_ENOMEM);
    ls_topics *topics = NULL;
    assert_int_equal(ls_topics_open(&topics), LS_ENOMEM);
    test_allocations_left = -1;
}
