/* topic_inbox.c - the inbox of a state: publications on their way, their deliveries in batches.
 *
 * Publishers push entries on the stack `incoming`. The first one posts the operation of the inbox: it changes `posted`
 * from false to true. The operation sets it to false before it takes the stack, so an entry pushed later posts it
 * again. Both happen in one total order (sequentially consistent), so no entry is left over:
 *
 *     publisher: push, then exchange posted for true, post if it was false      operation: posted = false, then take
 *     publisher: push, then read port, post unless it is NULL                   start: set port, then look at the
 *                                                                               stack
 *
 * The turns of a run go round the slots of its member. An entry joins the run before the turn of a slot, and is
 * finished when the turns are at that slot again:
 *
 *     slots         0 1 2 3 4 5 6 7
 *     first round       1 1 1 * * *      entry 1 joins at slot 2, entry 2 at slot 5; *: both
 *     second round  * * 2 2 2            entry 1 is finished at slot 2, entry 2 at slot 5 */
#include <assert.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/err.h"
#include "sched/actor.h"
#include "sched/workers.h"
#include "script/store/topic_internal.h"

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

/* ---- the run ------------------------------------------------------------------------------------------------ */

static size_t data_bytes(const ls_topic_entry *entry)
{
    const ls_publication *p = entry->publication;
    return p->data.len + p->event.len + p->id.len;
}

/* Begin a run, or take further ready entries into it. `subscribers_left`: of the batch. Returns whether the run has
 * changed. */
static bool extend(ls_topic_inbox *inbox, unsigned subscribers_left)
{
    const unsigned before = inbox->run;
    ls_topic_entry *next = before > 0 ? inbox->run_last->next : inbox->ready;
    if (before == 0) {
        inbox->delivering = next->member;
        inbox->slot = 0;
    }
    const ls_topic_member *member = inbox->delivering;
    if (before > 0 && member->len - member->live > member->live) return false; /* its gaps are closed after the run */
    for (; next != NULL && next->member == member && inbox->run < LS_TOPIC_RUN_MESSAGES; next = next->next) {
        const size_t bytes = data_bytes(next);
        if (inbox->run > 0 && inbox->run_bytes + bytes > LS_TOPIC_RUN_BYTES) break;
        next->slot = inbox->slot;
        inbox->run++;
        inbox->run_bytes += bytes;
        inbox->run_last = next;
    }
    inbox->run_more = next != NULL && next->member != member && member->live <= subscribers_left;
    return inbox->run > before;
}

/* Remove the first ready entry. */
static void finish(ls_topic_inbox *inbox)
{
    ls_topic_entry *entry = inbox->ready;
    ls_topic_member *member = entry->member;
    inbox->ready = entry->next;
    if (inbox->run > 0) {
        inbox->run_bytes -= data_bytes(entry);
        if (--inbox->run == 0) inbox->delivering = NULL;
        ls_publication_drop_forms(&inbox->joined);
    }
    ls_topic_inbox_release(inbox, ls_publication_bytes(entry->publication));
    ls_publication_drop(entry->publication); /* with the entry */
    atomic_fetch_sub_explicit(&member->pending, 1, memory_order_relaxed);
    ls_topic_member_tidy(member);
}

/* The run has changed: prepare the turns up to the slot at which its first entry is finished, or to the last slot. */
static void begin_turns(ls_topic_inbox *inbox)
{
    const ls_topic_member *member = inbox->delivering;
    const ls_topic_entry *entry = inbox->ready;
    ls_publication_drop_forms(&inbox->joined);
    inbox->joined.count = inbox->run;
    inbox->slot_end = entry->slot > inbox->slot ? entry->slot : member->len;
    for (unsigned n = 0; n < inbox->run; n++, entry = entry->next) inbox->parts[n] = entry->publication;
    size_t end = inbox->slot_end;
    while (end > inbox->slot && (member->slots[end - 1].subscriber == NULL ||
                                 member->slots[end - 1].subscription->since >= inbox->parts[0]->number))
        end--;
    inbox->since_end = end;
}

/* The turns have reached slot_end: finish the entries that each turn has handled. false: the run has ended. */
static bool next_turns(ls_topic_inbox *inbox)
{
    if (inbox->slot == inbox->delivering->len) inbox->slot = 0;
    while (inbox->run > 0 && inbox->ready->slot == inbox->slot) finish(inbox);
    if (inbox->run > 0) begin_turns(inbox);
    return inbox->run > 0;
}

/* ---- deliveries --------------------------------------------------------------------------------------------- */

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

static int deliver(ls_thread_ctx *ctx, ls_topic_inbox *inbox, ls_subscriber *subscriber, ls_publication *p, bool more)
{
    inbox->more = more;
    const int err = subscriber->kind->deliver(ctx, subscriber, p);
    if (err == LS_OK)
        ls_counter_add(&inbox->delivered, p->count);
    else if (err != LS_ECLOSED && err != LS_EMSGSIZE)
        ls_counter_add(&inbox->dropped, p->count);
    return err;
}

/* The turn of a subscriber: deliver the run, or what is newer than its subscription. */
static void take_turn(ls_thread_ctx *ctx, ls_topic_inbox *inbox, ls_subscriber *subscriber)
{
    const ls_topic_member *member = inbox->delivering;
    const size_t slot = inbox->slot; /* `deliver` may move the slots */
    const unsigned count = inbox->run;
    unsigned n = 0;
    if (slot >= inbox->since_end)
        while (n < count && inbox->parts[n]->number <= member->slots[slot].subscription->since) n++;
    if (n == 0 && count > 1 && inbox->run_bytes <= LS_TOPIC_JOINED_BYTES && subscriber->kind->joins &&
        deliver(ctx, inbox, subscriber, &inbox->joined, inbox->run_more) != LS_EMSGSIZE)
        return;
    for (; n < count && member->slots[slot].subscriber == subscriber; n++)
        (void)deliver(ctx, inbox, subscriber, inbox->parts[n], n + 1 < count || inbox->run_more);
}

/* Deliver the run. false: the batch has ended before. */
static bool deliver_run(ls_thread_ctx *ctx, ls_topic_inbox *inbox, batch_left *left)
{
    const ls_topic_member *member = inbox->delivering;
    do {
        while (inbox->slot < inbox->slot_end) {
            const ls_topic_slot *slot = &member->slots[inbox->slot];
            ls_subscriber *subscriber = slot->subscriber;
            if (subscriber != NULL) {
                const bool first = subscriber->batch != inbox->batch;
                if (left->deliveries < inbox->run || (first && left->subscribers == 0)) return false;
                prefetch(slot, inbox->slot_end - inbox->slot);
                left->deliveries -= inbox->run;
                left->subscribers -= first;
                subscriber->batch = inbox->batch;
                take_turn(ctx, inbox, subscriber);
            }
            inbox->slot++;
            /* Its subscribers get no more in this batch: send now, so that few buffers are used, which stay in the
             * cache. */
            if (!inbox->run_more && inbox->slot % FLUSH_SUBSCRIBERS == 0) inbox->flush(ctx, inbox->user);
        }
    } while (next_turns(inbox));
    return true;
}

/* Whether a ready entry is for the subscription and its turn has not come yet. */
static bool waits_for(const ls_topic_inbox *inbox, const ls_subscription *subscription, const ls_topic_entry *entry,
                      bool in_run)
{
    const size_t turn = inbox->slot, joined = entry->slot, slot = subscription->slot;
    if (entry->member != subscription->member || entry->publication->number <= subscription->since) return false;
    if (!in_run) return true;
    if (turn == joined) return turn != inbox->slot_end; /* it has just joined, or all have had it */
    return turn > joined ? slot < joined || slot >= turn : slot >= turn && slot < joined;
}

/* Whether one of the subscriptions waits for the entry. */
static bool has_waiting(const ls_topic_inbox *inbox, const ls_subscriber *subscriber, const ls_topic_entry *entry,
                        bool in_run)
{
    LS_LIST_EACH (const ls_subscription, subscription, &subscriber->subscriptions, node)
        if (waits_for(inbox, subscription, entry, in_run)) return true;
    return false;
}

static bool any_waiting(const ls_subscriber *subscriber)
{
    LS_LIST_EACH (const ls_subscription, subscription, &subscriber->subscriptions, node)
        if (atomic_load_explicit(&subscription->member->pending, memory_order_relaxed) > 0) return true;
    return false;
}

int ls_subscriber_deliver_waiting(ls_thread_ctx *ctx, ls_subscriber *subscriber)
{
    ls_topic_inbox *inbox = subscriber->inbox;
    unsigned n = 0;
    int err = LS_OK;
    if (!any_waiting(subscriber)) return LS_OK; /* its subscriptions may have outlived the inbox: none is left then */
    take(inbox);
    for (ls_topic_entry *entry = inbox->ready; entry != NULL && subscriber->count > 0; entry = entry->next, n++) {
        if (!has_waiting(inbox, subscriber, entry, n < inbox->run)) continue;
        err = deliver(ctx, inbox, subscriber, entry->publication, true);
        if (err < 0 && err != LS_ELIMIT) break;
    }
    return err;
}

bool ls_topic_inbox_more(const ls_topic_inbox *inbox)
{
    return inbox->more;
}

void ls_topic_count_closed(ls_topic_inbox *inbox)
{
    ls_counter_add(&inbox->closed_count, 1);
}

static void run_batch(ls_thread_ctx *ctx, ls_topic_inbox *inbox)
{
    batch_left left = {LS_TOPIC_BATCH_SUBSCRIBERS, LS_TOPIC_BATCH_DELIVERIES};
    take(inbox);
    if (inbox->ready == NULL) return;
    inbox->batch++;
    for (bool over = false; !over && inbox->ready != NULL;) {
        if (extend(inbox, left.subscribers)) begin_turns(inbox);
        over = !deliver_run(ctx, inbox, &left);
        if (over || !inbox->run_more) inbox->flush(ctx, inbox->user);
    }
    if (inbox->ready != NULL && !atomic_exchange(&inbox->posted, true))
        ls_port_post(atomic_load(&inbox->port), &inbox->op, 0); /* after the packets that wait at the port */
}

static void inbox_run(ls_thread_ctx *ctx, ls_op *op)
{
    ls_topic_inbox *inbox = LS_CONTAINER(op, ls_topic_inbox, op);
    inbox->deferred = !inbox->deferred;
    if (inbox->deferred) { /* the packets that the thread has taken with that of the publisher may publish, too */
        ls_workers_later(ctx, op);
        return;
    }
    atomic_store(&inbox->posted, false);
    run_batch(ctx, inbox);
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
    inbox->joined.parts = inbox->parts;
    ls_node_init(&inbox->members);
    ls_mutex_lock(&topics->lock);
    ls_list_push(&topics->inboxes, &inbox->node);
    ls_mutex_unlock(&topics->lock);
    *out = inbox;
    return LS_OK;
}

void ls_topic_inbox_start(ls_thread_ctx *ctx, ls_topic_inbox *inbox, ls_port *port)
{
    atomic_store(&inbox->port, port);
    run_batch(ctx, inbox);
}

void ls_topic_inbox_start_later(ls_topic_inbox *inbox, ls_port *port)
{
    atomic_store(&inbox->port, port);
    inbox_post(inbox);
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

bool ls_topic_inbox_posted(const ls_topic_inbox *inbox)
{
    return atomic_load(&inbox->posted);
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
