/* topic_internal.h - the structs of topics, for topic.c (names, subscriptions, publish), topic_inbox.c (deliveries)
 * and topic_message.c (publications).
 *
 *     ls_topics --> shard --> topic "news" --> member: the subscriptions in state 1 --> slots: subscriber, subscriber,
 *                                         ... \--> member: the subscriptions in state 2 --> slots: subscriber, ...
 *
 * The lock of a shard guards its topics: the table, the list of members, the numbers of subscribers, the retained
 * messages, and the order of publications. The slots of a member belong to the actor of its state. A publisher finds a
 * member in the list of its topic, under the lock, and appends an entry to the inbox of the member, which counts it in
 * `pending`.
 *
 *     a member has a subscription      <=>  it is in the list of its topic (member->topic is not NULL)
 *     a topic has a member or a retained message, or is freed
 *     an entry refers to a member      =>   pending > 0: the member is not freed
 *
 * A slot whose subscription has ended is empty until the member is compacted, which keeps the order: the slots are
 * sorted by the number of publications before the subscription (`since`). */
#ifndef LS_SCRIPT_TOPIC_INTERNAL_H
#define LS_SCRIPT_TOPIC_INTERNAL_H

#include <stdatomic.h>

#include "base/counter.h"
#include "base/os/thread.h"
#include "script/store/topic.h"

typedef struct ls_topic ls_topic;
typedef struct ls_topic_member ls_topic_member;

typedef struct ls_subscription {
    ls_node node; /* in the list of the subscriber */
    ls_subscriber *subscriber;
    ls_topic_member *member;
    uint64_t since; /* publications of the topic before it */
    size_t slot;
} ls_subscription;

typedef struct ls_topic_slot {
    ls_subscriber *subscriber; /* as in the subscription; NULL: empty */
    ls_subscription *subscription;
} ls_topic_slot;

struct ls_topic_member {
    ls_node of_topic, of_inbox;
    ls_topic *topic; /* NULL: its last subscription has ended */
    ls_topic_inbox *inbox;
    ls_topic_slot *slots;
    size_t len, room, live; /* live: slots that are not empty; a publisher reads it under the lock */
    _Atomic uint32_t pending;
};

struct ls_topic {
    ls_topic *next; /* of the bucket */
    uint64_t hash;
    ls_node members;
    unsigned member_count;
    uint64_t subscribers, published;
    ls_publication *retained, *oldest; /* the newest and the oldest retained message */
    unsigned kept, kept_max;           /* their number; the last ls_publish_order.retain of a history */
    size_t len;
    char name[];
};

typedef struct ls_topic_shard {
    ls_mutex lock;
    ls_topic **buckets;
    size_t bucket_count, count; /* bucket_count: a power of two, or 0 */
    uint64_t subscriptions, published;
    uint64_t lost;     /* messages for subscribers in a state whose inbox was full */
    uint64_t position; /* the last one that was given */
} ls_topic_shard;

struct ls_topics {
    uint64_t seed[2];
    _Atomic uint64_t retained_bytes;
    _Atomic uint32_t unkept;        /* messages at the limit since the last line of the log */
    _Atomic uint64_t unkept_due_ms; /* the next line */
    _Atomic uint32_t site; /* a publisher reads it under the lock of the shard, ls_topic_inbox_idle waits for that */
    bool site_started;
    ls_topic_shard shards[LS_TOPIC_SHARDS];
    ls_mutex lock; /* guards what follows */
    ls_node inboxes;
    uint64_t delivered_before, dropped_before, closed_before; /* by inboxes that were freed */
};

typedef struct ls_topic_entry { /* a publication in an inbox; part of the publication's memory */
    struct ls_topic_entry *next;
    ls_publication *publication;
    ls_topic_member *member;
    size_t slot; /* in a run: at which it has joined */
} ls_topic_entry;

struct ls_topic_inbox {
    _Atomic(ls_topic_entry *) incoming; /* newest first; reversed when taken */
    _Atomic uint64_t bytes;             /* of all entries */
    _Atomic(ls_port *) port;            /* NULL: not started */
    _Atomic bool posted;                /* `op` is on its way and has not looked at the entries yet */
    bool deferred;                      /* `op` has let the packets of its wait pass */
    ls_op op;
    ls_topics *topics;
    ls_actor *actor;
    void (*flush)(ls_thread_ctx *ctx, void *user);
    void *user;
    ls_node node; /* in the list of the topics */
    ls_counter delivered, dropped, closed_count;
    /* Used inside the actor. */
    ls_topic_entry *ready, *ready_last; /* taken, oldest first */
    /* The run: the first `run` ready entries, all of the member `delivering` (NULL: no run). The turns are at `slot`.
     * Until slot_end the run stays as it is: `joined` with its `parts`. The slots from `since_end` on may have
     * subscriptions that are newer than a part. */
    ls_topic_member *delivering;
    ls_topic_entry *run_last;
    unsigned run;
    uint64_t run_bytes;
    size_t slot, slot_end, since_end;
    ls_publication joined;
    ls_publication *parts[LS_TOPIC_RUN_MESSAGES];
    bool more, run_more; /* ls_topic_inbox_more; the same after the run */
    uint32_t batch;
    ls_node members;
    bool closed;
};

/* What a publication counts in the limits. */
static inline uint64_t ls_publication_bytes(const ls_publication *p)
{
    return LS_TOPIC_MESSAGE_BYTES + p->topic_len + p->event.len + p->id.len + p->data.len;
}

enum { LS_POSITION_BYTES = 24 };

/* Make a publication with entries for `members` members. It holds a reference to the data, or copies the bytes: those
 * of a slice without a block, and those of a message to retain. NULL: out of memory. */
ls_publication *ls_publication_make(const ls_publish_order *order, unsigned members);
ls_topic_entry *ls_publication_entries(ls_publication *p);
void ls_publication_drop_forms(ls_publication *p);

/* Count the bytes of an entry; false: they exceed the limit. Any thread. */
bool ls_topic_inbox_reserve(ls_topic_inbox *inbox, uint64_t bytes);
void ls_topic_inbox_release(ls_topic_inbox *inbox, uint64_t bytes);
/* Append an entry, whose bytes are reserved. The caller holds the lock of the topic. */
void ls_topic_inbox_append(ls_topic_inbox *inbox, ls_topic_entry *entry);

/* End a subscription. */
void ls_subscription_end(ls_subscription *subscription);
/* The member may have lost subscriptions: free it, or close the gaps in its slots, unless a delivery uses them. */
void ls_topic_member_tidy(ls_topic_member *member);

#endif
