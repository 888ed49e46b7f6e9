/* topic_inbox.c - the inbox of a state: publications on their way, their deliveries in batches.
 *
 * Publishers push entries on the stack `incoming`. The first one posts the operation of the inbox: it changes `posted`
 * from false to true. The operation sets it to false before it takes the stack, so an entry pushed later posts it
 * again. Both happen in one total order (sequentially consistent), so no entry is left over:
 *
 *     publisher: push, then exchange posted for true, post if it was false      operation: posted = false, then take
 *     publisher: push, then read port, post unless it is NULL                   start: set port, then look at the
 *                                                                               stack */
#include <assert.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "sched/actor.h"
#include "script/shared/topic_internal.h"

enum { PREFETCH_AHEAD = 5, FLUSH_SUBSCRIBERS = 64 };

/* ---- publishers --------------------------------------------------------------------------------------------- */

bool ls_topic_inbox_reserve(ls_topic_inbox *inbox, uint64_t bytes)
{
    const uint64_t before = atomic_fetch_add_explicit(&inbox->bytes, bytes, memory_order_relaxed);
    if (before <= LS_TOPIC_INBOX_BYTES_MAX && bytes <= LS_TOPIC_INBOX_BYTES_MAX - before) return true;
    ls_topic_inbox_release(inbox, bytes);
    return false;
}

void ls_topic_inbox_release(ls_topic_inbox *inbox, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&inbox->bytes, bytes, memory_order_relaxed);
}

static void inbox_post(ls_topic_inbox *inbox)
{
    ls_port *port = atomic_load(&inbox->port);
    if (port != NULL && !atomic_exchange(&inbox->posted, true)) ls_actor_post_later(inbox->actor, port, &inbox->op);
}

void ls_topic_inbox_append(ls_topic_inbox *inbox, ls_topic_entry *entry)
{
    atomic_fetch_add_explicit(&entry->member->pending, 1, memory_order_relaxed);
    entry->next = atomic_load_explicit(&inbox->incoming, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&inbox->incoming, &entry->next, entry)) continue;
    inbox_post(inbox);
}

/* ---- the actor ---------------------------------------------------------------------------------------------- */

/* Append the incoming entries to the ready ones. */
static void take(ls_topic_inbox *inbox)
{
    ls_topic_entry *oldest = NULL, *newest = atomic_exchange(&inbox->incoming, NULL);
    for (ls_topic_entry *entry = newest, *next; entry != NULL; entry = next) {
        next = entry->next;
        entry->next = oldest;
        oldest = entry;
    }
    if (oldest == NULL) return;
    if (inbox->ready == NULL)
        inbox->ready = oldest;
    else
        inbox->ready_last->next = oldest;
    inbox->ready_last = newest;
}

/* Remove the first ready entry. */
static void finish(ls_topic_inbox *inbox)
{
    ls_topic_entry *entry = inbox->ready;
    ls_topic_member *member = entry->member;
    inbox->ready = entry->next;
    inbox->delivering = NULL;
    ls_topic_inbox_release(inbox, ls_publication_bytes(entry->publication));
    ls_publication_drop(entry->publication); /* with the entry */
    atomic_fetch_sub_explicit(&member->pending, 1, memory_order_relaxed);
    ls_topic_member_tidy(member);
}

/* Prepare the delivery of the first ready entry: to the subscriptions that are older than the publication. */
static void begin(ls_topic_inbox *inbox)
{
    const ls_topic_entry *entry = inbox->ready;
    ls_topic_member *member = entry->member;
    size_t end = member->len;
    while (end > 0 && (member->slots[end - 1].subscriber == NULL ||
                       member->slots[end - 1].subscription->since >= entry->publication->number))
        end--;
    inbox->delivering = member;
    inbox->slot = 0;
    inbox->slot_end = end;
}

typedef struct batch_left {
    unsigned subscribers, deliveries;
} batch_left;

/* The memory of many subscribers does not stay in the cache from one message to the next. Prefetch what the next ones
 * read: see ls_subscriber_kind.prefetch. `left`: number of slots from `slot` on. */
static void prefetch(const ls_topic_slot *slot, size_t left)
{
    if (left <= PREFETCH_AHEAD) return; /* the last ones: not worth a check of each */
    LS_PREFETCH(slot[PREFETCH_AHEAD].subscriber);
    for (unsigned ahead = PREFETCH_AHEAD - 1; ahead > 0; ahead--) {
        const ls_subscriber *next = slot[ahead].subscriber;
        if (next != NULL && next->kind->prefetch != NULL) next->kind->prefetch(next, ahead);
    }
}

/* Deliver the first ready entry. false: the batch has ended before the last subscriber. */
static bool deliver(ls_thread_ctx *ctx, ls_topic_inbox *inbox, batch_left *left)
{
    const ls_topic_member *member = inbox->delivering;
    ls_publication *p = inbox->ready->publication;
    const bool last = !ls_topic_inbox_more(inbox);
    uint64_t taken = 0, dropped = 0;
    while (inbox->slot < inbox->slot_end) {
        const ls_topic_slot *slot = &member->slots[inbox->slot]; /* `deliver` may move the slots */
        ls_subscriber *subscriber = slot->subscriber;
        if (subscriber != NULL) {
            const bool first = subscriber->batch != inbox->batch;
            if (left->deliveries == 0 || (first && left->subscribers == 0)) break;
            prefetch(slot, inbox->slot_end - inbox->slot);
            left->deliveries--;
            left->subscribers -= first;
            subscriber->batch = inbox->batch;
            const int err = subscriber->kind->deliver(ctx, subscriber, p);
            taken += err == LS_OK;
            dropped += err != LS_OK && err != LS_ECLOSED;
        }
        inbox->slot++;
        /* Its subscribers get no more in this batch: send now, so that few buffers are used, which stay in the
         * cache. */
        if (last && inbox->slot % FLUSH_SUBSCRIBERS == 0) inbox->flush(ctx, inbox->user);
    }
    ls_counter_add(&inbox->delivered, taken);
    ls_counter_add(&inbox->dropped, dropped);
    return inbox->slot == inbox->slot_end;
}

bool ls_topic_inbox_more(const ls_topic_inbox *inbox)
{
    return inbox->ready != NULL && inbox->ready->next != NULL;
}

void ls_topic_count_closed(ls_topic_inbox *inbox)
{
    ls_counter_add(&inbox->closed_count, 1);
}

static void inbox_run(ls_thread_ctx *ctx, ls_op *op)
{
    ls_topic_inbox *inbox = LS_CONTAINER(op, ls_topic_inbox, op);
    batch_left left = {LS_TOPIC_BATCH_SUBSCRIBERS, LS_TOPIC_BATCH_DELIVERIES};
    atomic_store(&inbox->posted, false);
    take(inbox);
    if (inbox->ready == NULL) return;
    inbox->batch++;
    while (inbox->ready != NULL && left.deliveries > 0) {
        if (inbox->delivering == NULL) begin(inbox);
        if (!deliver(ctx, inbox, &left)) break;
        finish(inbox);
    }
    inbox->flush(ctx, inbox->user);
    if (inbox->ready != NULL && !atomic_exchange(&inbox->posted, true))
        ls_port_post(atomic_load(&inbox->port), &inbox->op, NULL, 0); /* behind the packets that wait at the port */
}

bool ls_topic_inbox_idle(ls_topic_inbox *inbox)
{
    for (unsigned n = 0; n < LS_TOPIC_SHARDS; n++) { /* publishers that have begun append their entries first */
        ls_mutex_lock(&inbox->topics->shards[n].lock);
        ls_mutex_unlock(&inbox->topics->shards[n].lock);
    }
    return inbox->ready == NULL && atomic_load(&inbox->incoming) == NULL;
}

/* ---- life --------------------------------------------------------------------------------------------------- */

int ls_topic_inbox_open(ls_topics *topics, ls_actor *actor, void (*flush)(ls_thread_ctx *ctx, void *user), void *user,
                        ls_topic_inbox **out)
{
    ls_topic_inbox *inbox = calloc(1, sizeof *inbox);
    if (inbox == NULL) return LS_ENOMEM;
    inbox->op = (ls_op){.done = inbox_run, .actor = actor};
    inbox->topics = topics;
    inbox->actor = actor;
    inbox->flush = flush;
    inbox->user = user;
    ls_node_init(&inbox->members);
    ls_mutex_lock(&topics->lock);
    ls_list_push(&topics->inboxes, &inbox->node);
    ls_mutex_unlock(&topics->lock);
    *out = inbox;
    return LS_OK;
}

void ls_topic_inbox_start(ls_topic_inbox *inbox, ls_port *port)
{
    atomic_store(&inbox->port, port);
    if (atomic_load(&inbox->incoming) != NULL) inbox_post(inbox);
}

void ls_topic_inbox_close(ls_topic_inbox *inbox)
{
    inbox->closed = true;
    while (!ls_list_empty(&inbox->members)) {
        ls_topic_member *member = LS_CONTAINER(inbox->members.next, ls_topic_member, of_inbox);
        inbox->delivering = member; /* keeps the slots as they are */
        size_t left = member->live;
        for (size_t n = 0; left > 0; n++) {
            if (member->slots[n].subscriber == NULL) continue;
            left--;
            if (left == 0) inbox->delivering = NULL; /* the last one frees the member */
            ls_subscription_end(member->slots[n].subscription);
        }
    }
    take(inbox); /* no publisher finds the inbox any more */
    while (inbox->ready != NULL) finish(inbox);
}

bool ls_topic_inbox_closed(const ls_topic_inbox *inbox)
{
    return inbox->closed && !atomic_load(&inbox->posted);
}

void ls_topic_inbox_free(ls_topic_inbox *inbox)
{
    ls_topics *topics = inbox->topics;
    assert(inbox->closed);
    ls_mutex_lock(&topics->lock);
    ls_list_remove(&inbox->node);
    topics->delivered_before += ls_counter_read(&inbox->delivered);
    topics->closed_before += ls_counter_read(&inbox->closed_count);
    topics->dropped_before += ls_counter_read(&inbox->dropped);
    ls_mutex_unlock(&topics->lock);
    free(inbox);
}
