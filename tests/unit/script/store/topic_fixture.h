/* topic_fixture.h - a state without Lua: an actor with an inbox, and subscribers that note what they get. */
#ifndef LS_TESTS_TOPIC_FIXTURE_H
#define LS_TESTS_TOPIC_FIXTURE_H

#include "port/port_fixture.h"

#include "sched/actor.h"
#include "script/store/topic.h"

typedef struct place { /* an actor with an inbox */
    ls_actor actor;
    ls_topic_inbox *inbox;
    unsigned flushes;
} place;

static inline void place_flush(ls_thread_ctx *ctx, void *user)
{
    place *p = user;
    if (ctx->inside != &p->actor) abort();
    p->flushes++;
}

/* `net` NULL: the inbox is not started. */
static inline void place_open(place *p, ls_topics *topics, net_place *net)
{
    ls_actor_init(&p->actor);
    p->flushes = 0;
    assert_int_equal(ls_topic_inbox_open(topics, &p->actor, place_flush, p, &p->inbox), LS_OK);
    if (net != NULL) ls_topic_inbox_start(&net->ctx, p->inbox, net->port);
}

static inline void place_close(place *p)
{
    ls_topic_inbox_close(p->inbox);
    assert_true(ls_topic_inbox_closed(p->inbox));
    ls_topic_inbox_free(p->inbox);
}

static inline void step(net_place *net)
{
    const ls_packet packet = net_next(net);
    ls_packet_dispatch(&net->ctx, &packet);
}

/* Run a batch of an inbox: its operation lets the packets that wait pass, and then follows. */
static inline void step_batch(net_place *net)
{
    step(net);
    step(net);
}

/* Handle packets until there are none. Returns their number. */
static inline unsigned pump(net_place *net)
{
    ls_packet packet;
    unsigned count = 0;
    for (; ls_port_wait(net->port, &net->ctx, &packet, 1, 0) == 1; count++) ls_packet_dispatch(&net->ctx, &packet);
    return count;
}

static inline int64_t publish_slice(ls_topics *topics, const char *name, size_t len, ls_slice data, bool retain)
{
    return ls_topics_publish(
        topics, &(ls_publish_order){.topic = name, .topic_len = len, .data = data, .text = true, .retain = retain});
}

static inline int64_t publish(ls_topics *topics, const char *name, const char *data)
{
    return publish_slice(topics, name, strlen(name), ls_slice_static(data, strlen(data)), false);
}

static inline int64_t retain(ls_topics *topics, const char *name, const char *data)
{
    return publish_slice(topics, name, strlen(name), ls_slice_static(data, strlen(data)), true);
}

#endif
