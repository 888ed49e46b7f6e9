/* test_topic_threads.c - topics with threads: several publishers, several actors, subscribers that come and go. The
 * order of each publisher is checked, and that every lasting subscriber gets every message. */
#include "script/store/topic_fixture.h"

#include "base/os/thread.h"

enum { THREADS = 4, PLACES = 3, TOPICS = 5, LASTING = 4, EACH = 3000, VISITORS = 6 };

typedef struct mail { /* the data of a message */
    unsigned publisher, number;
} mail;

typedef struct reader {
    ls_subscriber subscriber;
    unsigned count, last[THREADS]; /* number of the last message of each publisher, plus 1 */
    bool lasting;
} reader;

static struct town {
    net_place net;
    ls_topics *topics;
    place places[PLACES];
    reader lasting[PLACES][LASTING], visitors[PLACES][VISITORS];
    unsigned visits[PLACES]; /* inside the actor */
    _Atomic unsigned publishing, received, wrong, encoded;
    ls_op churn[PLACES];
    _Atomic bool churning[PLACES];
} town;

static int encode_mail(ls_thread_ctx *ctx, const ls_publication *p, ls_slice *out)
{
    char *to = ls_topic_form_room(p->count * sizeof(mail), out);
    if (to == NULL) return LS_ENOMEM;
    for (unsigned n = 0; n < p->count; n++)
        memcpy(to + n * sizeof(mail), ls_publication_part(p, n)->data.ptr, sizeof(mail));
    atomic_fetch_add(&town.encoded, p->count);
    return LS_OK;
}

static int deliver(ls_thread_ctx *ctx, ls_subscriber *subscriber, ls_publication *p)
{
    reader *r = LS_CONTAINER(subscriber, reader, subscriber);
    ls_slice form;
    mail m;
    if (ls_publication_form(ctx, p, LS_FORM_LINE, encode_mail, &form) < 0 || form.len != p->count * sizeof m) abort();
    for (unsigned n = 0; n < p->count; n++) {
        memcpy(&m, form.ptr + n * sizeof m, sizeof m);
        if (m.number < r->last[m.publisher]) atomic_fetch_add(&town.wrong, 1);
        r->last[m.publisher] = m.number + 1;
    }
    r->count += p->count;
    if (r->lasting) atomic_fetch_add(&town.received, p->count);
    return LS_OK;
}

static const ls_subscriber_kind receiver_kind = {.deliver = deliver},
                                joining_kind = {.deliver = deliver, .joins = true};

static void topic_name(char name[8], unsigned topic)
{
    (void)snprintf(name, 8, "t%u", topic);
}

/* Inside the actor: a visitor subscribes to a topic, or ends. */
static void churn(ls_thread_ctx *ctx, ls_op *op)
{
    const unsigned at = (unsigned)(op - town.churn), n = town.visits[at]++;
    reader *r = &town.visitors[at][n % VISITORS];
    ls_publication *retained = NULL;
    char name[8];
    topic_name(name, n % TOPICS);
    if (n % 3 == 0) {
        ls_subscriber_end(&r->subscriber);
    } else if (ls_topic_subscribe(&r->subscriber, name, strlen(name), &retained) == LS_EEXIST) {
        (void)ls_topic_unsubscribe(&r->subscriber, name, strlen(name));
    }
    if (retained != NULL) ls_publication_drop(retained);
    atomic_store(&town.churning[at], false);
}

static void thread_main(void *arg)
{
    const unsigned me = (unsigned)(uintptr_t)arg;
    const unsigned all = THREADS * EACH * PLACES * LASTING;
    ls_thread_ctx ctx;
    ls_packet packets[LS_WAIT_PACKETS_MAX];
    net_ctx_open(&town.net, &ctx, me + 1);
    for (unsigned n = 0; n < EACH || atomic_load(&town.received) < all; n++) {
        if (n < EACH) {
            const mail m = {me, n};
            const unsigned at = n % PLACES;
            char name[8];
            topic_name(name, (n * 7 + me) % TOPICS);
            if (publish_slice(town.topics, name, strlen(name), ls_slice_static(&m, sizeof m), n % 5 == 0) <
                PLACES * LASTING)
                atomic_fetch_add(&town.wrong, 1);
            if (!atomic_exchange(&town.churning[at], true))
                ls_actor_post(&town.places[at].actor, &ctx, &town.churn[at]);
            if (n % 16 != 0) continue;
        }
        const int count = ls_port_wait(town.net.port, &ctx, packets, LS_WAIT_PACKETS_MAX, n < EACH ? 0 : 2);
        for (int k = 0; k < count; k++) ls_packet_dispatch(&ctx, &packets[k]);
    }
    ls_pool_close(ctx.pool);
}

TEST(every_message_arrives_in_the_order_of_its_publisher)
{
    ls_thread threads[THREADS];
    ls_topics_stats stats;
    net_place_open(&town.net);
    assert_int_equal(ls_topics_open(&town.topics), LS_OK);
    for (int p = 0; p < PLACES; p++) {
        place_open(&town.places[p], town.topics, &town.net);
        town.churn[p] = (ls_op){.done = churn, .actor = &town.places[p].actor};
        for (int n = 0; n < LASTING + VISITORS; n++) {
            reader *r = n < LASTING ? &town.lasting[p][n] : &town.visitors[p][n - LASTING];
            r->lasting = n < LASTING;
            ls_subscriber_init(&r->subscriber, town.places[p].inbox, n % 2 == 0 ? &joining_kind : &receiver_kind);
            for (unsigned t = 0; t < TOPICS && r->lasting; t++) {
                ls_publication *retained = NULL;
                char name[8];
                topic_name(name, t);
                assert_int_equal(ls_topic_subscribe(&r->subscriber, name, strlen(name), &retained), LS_OK);
            }
        }
    }
    for (uintptr_t n = 0; n < THREADS; n++)
        assert_int_equal(ls_thread_start(&threads[n], "town", thread_main, (void *)n), LS_OK);
    for (int n = 0; n < THREADS; n++) ls_thread_join(&threads[n]);
    (void)pump(&town.net);
    assert_int_equal(atomic_load(&town.wrong), 0);
    for (int p = 0; p < PLACES; p++) {
        for (int n = 0; n < LASTING; n++) {
            assert_int_equal(town.lasting[p][n].count, THREADS * EACH);
            for (int t = 0; t < THREADS; t++) assert_int_equal(town.lasting[p][n].last[t], EACH);
        }
    }
    assert_true(atomic_load(&town.encoded) >= THREADS * EACH);
    ls_topics_stat(town.topics, &stats);
    assert_int_equal(stats.published, THREADS * EACH);
    assert_true(stats.delivered >= (uint64_t)THREADS * EACH * PLACES * LASTING);
    for (int p = 0; p < PLACES; p++) place_close(&town.places[p]);
    ls_topics_close(town.topics);
    net_place_close(&town.net);
}
