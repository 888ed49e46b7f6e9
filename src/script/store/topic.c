/* topic.c - the names of topics, their subscriptions, and the publishers' side. See topic_internal.h for the
 * structs. */
#include "script/store/topic.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/hash.h"
#include "script/store/topic_internal.h"

enum { BUCKETS_MIN = 16, SLOTS_MIN = 4, SPARE_MEMBERS = 2 };

/* ---- the table of names, under the lock of the shard -------------------------------------------------------- */

static bool name_valid(size_t len)
{
    return len > 0 && len <= LS_TOPIC_NAME_BYTES_MAX;
}

static ls_topic_shard *shard_of(ls_topics *topics, uint64_t hash)
{
    return &topics->shards[hash >> 60];
}
_Static_assert(LS_TOPIC_SHARDS == 1 << 4, "shard_of uses the upper 4 bits of the hash");

static ls_topic *topic_find(const ls_topic_shard *shard, uint64_t hash, const char *name, size_t len)
{
    if (shard->bucket_count == 0) return NULL;
    ls_topic *topic = shard->buckets[hash & (shard->bucket_count - 1)];
    while (topic != NULL && (topic->hash != hash || topic->len != len || memcmp(topic->name, name, len) != 0))
        topic = topic->next;
    return topic;
}

/* Without memory the table stays as it is. */
static void table_resize(ls_topic_shard *shard, size_t wanted)
{
    ls_topic **buckets = calloc(wanted, sizeof(ls_topic *));
    if (buckets == NULL) return;
    for (size_t n = 0; n < shard->bucket_count; n++) {
        for (ls_topic *topic = shard->buckets[n], *next; topic != NULL; topic = next) {
            ls_topic **bucket = &buckets[topic->hash & (wanted - 1)];
            next = topic->next;
            topic->next = *bucket;
            *bucket = topic;
        }
    }
    free(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = wanted;
}

/* NULL: out of memory. */
static ls_topic *topic_add(ls_topic_shard *shard, uint64_t hash, const char *name, size_t len)
{
    if (shard->count >= shard->bucket_count)
        table_resize(shard, shard->bucket_count > 0 ? shard->bucket_count * 2 : BUCKETS_MIN);
    if (shard->bucket_count == 0) return NULL;
    ls_topic *topic = malloc(sizeof *topic + len);
    if (topic == NULL) return NULL;
    ls_topic **bucket = &shard->buckets[hash & (shard->bucket_count - 1)];
    *topic = (ls_topic){.next = *bucket, .hash = hash, .len = len};
    ls_node_init(&topic->members);
    memcpy(topic->name, name, len);
    *bucket = topic;
    shard->count++;
    return topic;
}

/* Free the topic if it has neither a member nor a retained message. */
static void topic_tidy(ls_topic_shard *shard, ls_topic *topic)
{
    if (topic->member_count > 0 || topic->retained != NULL) return;
    ls_topic **link = &shard->buckets[topic->hash & (shard->bucket_count - 1)];
    while (*link != topic) link = &(*link)->next;
    *link = topic->next;
    free(topic);
    shard->count--;
    if (shard->bucket_count > BUCKETS_MIN && shard->count < shard->bucket_count / 8)
        table_resize(shard, shard->bucket_count / 2);
}

int ls_topics_open(ls_topics **out)
{
    ls_topics *topics = calloc(1, sizeof *topics);
    if (topics == NULL) return LS_ENOMEM;
    ls_mutex_open(&topics->lock);
    for (unsigned n = 0; n < LS_TOPIC_SHARDS; n++) ls_mutex_open(&topics->shards[n].lock);
    ls_hash_seed(topics->seed);
    ls_node_init(&topics->inboxes);
    *out = topics;
    return LS_OK;
}

/* Drop retained messages that are no longer those of their topic. */
static void drop_list(ls_publication *oldest)
{
    for (ls_publication *p = oldest, *newer; p != NULL; p = newer) {
        newer = p->newer;
        ls_publication_drop(p);
    }
}

void ls_topics_close(ls_topics *topics)
{
    assert(ls_list_empty(&topics->inboxes));
    for (unsigned n = 0; n < LS_TOPIC_SHARDS; n++) {
        ls_topic_shard *shard = &topics->shards[n];
        for (size_t b = 0; b < shard->bucket_count; b++) {
            for (ls_topic *topic = shard->buckets[b], *next; topic != NULL; topic = next) {
                next = topic->next;
                drop_list(topic->oldest); /* without an inbox it has no member */
                free(topic);
            }
        }
        free(shard->buckets);
        ls_mutex_close(&shard->lock);
    }
    ls_mutex_close(&topics->lock);
    free(topics);
}

/* ---- subscriptions ------------------------------------------------------------------------------------------ */

static ls_topic_member *member_find(const ls_topic *topic, const ls_topic_inbox *inbox)
{
    LS_LIST_EACH (ls_topic_member, member, &topic->members, of_topic)
        if (member->inbox == inbox) return member;
    return NULL;
}

static ls_subscription *subscription_find(const ls_subscriber *subscriber, const ls_topic_member *member)
{
    LS_LIST_EACH (ls_subscription, subscription, &subscriber->subscriptions, node)
        if (subscription->member == member) return subscription;
    return NULL;
}

/* Change the number of slots. false: out of memory. */
static bool slots_resize(ls_topic_member *member, size_t room)
{
    ls_topic_slot *slots = realloc(member->slots, room * sizeof *slots);
    if (slots == NULL) return false;
    member->slots = slots;
    member->room = room;
    return true;
}

/* Close the gaps, in order. */
static void slots_compact(ls_topic_member *member)
{
    size_t len = 0;
    for (size_t n = 0; n < member->len; n++) {
        if (member->slots[n].subscriber == NULL) continue;
        member->slots[len] = member->slots[n];
        member->slots[len].subscription->slot = len;
        len++;
    }
    member->len = len;
    if (member->room > SLOTS_MIN && len < member->room / 4) (void)slots_resize(member, member->room / 2);
}

void ls_topic_member_tidy(ls_topic_member *member)
{
    if (member->inbox->delivering == member) return;
    if (member->topic != NULL) {
        if (member->len - member->live > member->live) slots_compact(member);
    } else if (atomic_load_explicit(&member->pending, memory_order_relaxed) == 0) {
        free(member->slots);
        free(member);
    }
}

/* A member without a slot. NULL: out of memory. */
static ls_topic_member *member_make(ls_topic_inbox *inbox)
{
    ls_topic_member *member = calloc(1, sizeof *member);
    if (member == NULL) return NULL;
    member->inbox = inbox;
    ls_node_init(&member->of_topic);
    ls_node_init(&member->of_inbox);
    return member;
}

static void member_link(ls_topic_member *member, ls_topic *topic)
{
    member->topic = topic;
    topic->member_count++;
    ls_list_push(&topic->members, &member->of_topic);
    ls_list_push(&member->inbox->members, &member->of_inbox);
}

static void member_unlink(ls_topic_member *member)
{
    member->topic->member_count--;
    member->topic = NULL;
    ls_list_remove(&member->of_topic);
    ls_list_remove(&member->of_inbox);
}

void ls_subscriber_init(ls_subscriber *subscriber, ls_topic_inbox *inbox, const ls_subscriber_kind *kind)
{
    *subscriber = (ls_subscriber){.inbox = inbox, .kind = kind};
    ls_node_init(&subscriber->subscriptions);
}

/* Under the lock: add the subscription to the topic, which is not NULL. LS_OK or an error. */
static int subscription_add(ls_topic_shard *shard, ls_topic *topic, ls_subscriber *subscriber,
                            ls_subscription *subscription)
{
    ls_topic_member *member = member_find(topic, subscriber->inbox), *made = NULL;
    if (member != NULL && subscription_find(subscriber, member) != NULL) return LS_EEXIST;
    if (subscriber->count >= LS_TOPIC_SUBSCRIPTIONS_MAX) return LS_ELIMIT;
    if (member == NULL && (member = made = member_make(subscriber->inbox)) == NULL) return LS_ENOMEM;
    if (member->len == member->room && !slots_resize(member, member->room > 0 ? member->room * 2 : SLOTS_MIN)) {
        free(made);
        return LS_ENOMEM;
    }
    if (made != NULL) member_link(made, topic);
    *subscription =
        (ls_subscription){.subscriber = subscriber, .member = member, .since = topic->published, .slot = member->len};
    member->slots[member->len++] = (ls_topic_slot){subscriber, subscription};
    member->live++;
    topic->subscribers++;
    shard->subscriptions++;
    ls_list_push(&subscriber->subscriptions, &subscription->node);
    subscriber->count++;
    return LS_OK;
}

/* Under the lock: *list receives the retained messages, with references; NULL: none. LS_OK or LS_ENOMEM. */
static int retained_of(const ls_topic *topic, ls_retained **list)
{
    if (topic->kept == 0) return LS_OK;
    *list = malloc(sizeof **list + topic->kept * sizeof *(*list)->at);
    if (*list == NULL) return LS_ENOMEM;
    (*list)->count = 0;
    for (ls_publication *p = topic->oldest; p != NULL; p = p->newer)
        (*list)->at[(*list)->count++] = ls_publication_hold(p);
    return LS_OK;
}

void ls_retained_drop(ls_retained *retained)
{
    for (unsigned n = 0; retained != NULL && n < retained->count; n++) ls_publication_drop(retained->at[n]);
    free(retained);
}

int ls_topic_subscribe(ls_subscriber *subscriber, const char *name, size_t len, ls_publication **retained)
{
    ls_retained *all = NULL;
    const int err = ls_topic_subscribe_all(subscriber, name, len, &all);
    if (err == LS_OK) *retained = all != NULL ? ls_publication_hold(all->at[all->count - 1]) : NULL;
    ls_retained_drop(all);
    return err;
}

int ls_topic_subscribe_all(ls_subscriber *subscriber, const char *name, size_t len, ls_retained **retained)
{
    if (!name_valid(len)) return LS_EINVAL;
    if (subscriber->inbox->closed) return LS_ECLOSED;
    ls_subscription *subscription = malloc(sizeof *subscription);
    if (subscription == NULL) return LS_ENOMEM;
    ls_topics *topics = subscriber->inbox->topics;
    const uint64_t hash = ls_hash(topics->seed, name, len);
    ls_topic_shard *shard = shard_of(topics, hash);
    ls_mutex_lock(&shard->lock);
    ls_topic *topic = topic_find(shard, hash, name, len);
    if (topic == NULL) topic = topic_add(shard, hash, name, len);
    ls_retained *list = NULL;
    int err = topic != NULL ? retained_of(topic, &list) : LS_ENOMEM;
    if (err == LS_OK) err = subscription_add(shard, topic, subscriber, subscription);
    if (err < 0 && topic != NULL) topic_tidy(shard, topic);
    ls_mutex_unlock(&shard->lock);
    if (err == LS_OK) {
        *retained = list;
    } else {
        ls_retained_drop(list);
        free(subscription);
    }
    return err;
}

void ls_subscription_end(ls_subscription *subscription)
{
    ls_topic_member *member = subscription->member;
    ls_topic *topic = member->topic;
    ls_topic_shard *shard = shard_of(member->inbox->topics, topic->hash);
    member->slots[subscription->slot] = (ls_topic_slot){NULL, NULL};
    subscription->subscriber->count--;
    ls_list_remove(&subscription->node);
    free(subscription);
    ls_mutex_lock(&shard->lock);
    topic->subscribers--;
    shard->subscriptions--;
    if (--member->live == 0) {
        member_unlink(member);
        topic_tidy(shard, topic);
    }
    ls_mutex_unlock(&shard->lock);
    ls_topic_member_tidy(member);
}

ls_publication *ls_subscriber_retained(const ls_subscriber *subscriber, uint32_t site)
{
    if (ls_list_empty(&subscriber->subscriptions)) return NULL;
    const ls_subscription *subscription = LS_CONTAINER(subscriber->subscriptions.next, ls_subscription, node);
    const ls_topic *topic = subscription->member->topic;
    ls_topic_shard *shard = shard_of(subscriber->inbox->topics, topic->hash);
    ls_mutex_lock(&shard->lock);
    ls_publication *p = topic->retained;
    if (p != NULL && p->number > subscription->since && p->site == site) p = NULL;
    if (p != NULL) (void)ls_publication_hold(p);
    ls_mutex_unlock(&shard->lock);
    return p;
}

int ls_topic_unsubscribe(ls_subscriber *subscriber, const char *name, size_t len)
{
    if (!name_valid(len) || subscriber->count == 0) return LS_ENOENT;
    ls_topics *topics = subscriber->inbox->topics;
    const uint64_t hash = ls_hash(topics->seed, name, len);
    ls_topic_shard *shard = shard_of(topics, hash);
    ls_mutex_lock(&shard->lock);
    const ls_topic *topic = topic_find(shard, hash, name, len);
    const ls_topic_member *member = topic != NULL ? member_find(topic, subscriber->inbox) : NULL;
    ls_mutex_unlock(&shard->lock); /* only this actor ends the member */
    ls_subscription *subscription = member != NULL ? subscription_find(subscriber, member) : NULL;
    if (subscription == NULL) return LS_ENOENT;
    ls_subscription_end(subscription);
    return LS_OK;
}

void ls_subscriber_end(ls_subscriber *subscriber)
{
    while (!ls_list_empty(&subscriber->subscriptions))
        ls_subscription_end(LS_CONTAINER(subscriber->subscriptions.next, ls_subscription, node));
}

/* ---- publish ------------------------------------------------------------------------------------------------ */

/* Give back what `reserve` has reserved for the first `count` entries. */
static void release(const ls_topic_entry *entries, unsigned count, uint64_t bytes)
{
    for (unsigned n = 0; n < count; n++)
        if (entries[n].member != NULL) ls_topic_inbox_release(entries[n].member->inbox, bytes);
}

/* Reserve `bytes` in the inboxes of the members: entries[n].member is the member, or NULL if its inbox is full. The
 * number of subscribers that lose the message, or LS_ELIMIT: the inbox `own` is full, nothing is reserved. */
static int64_t reserve(const ls_topic *topic, ls_topic_entry *entries, uint64_t bytes, const ls_topic_inbox *own)
{
    uint64_t lost = 0;
    unsigned n = 0;
    LS_LIST_EACH (ls_topic_member, member, &topic->members, of_topic) {
        const bool reserved = ls_topic_inbox_reserve(member->inbox, bytes);
        entries[n++].member = reserved ? member : NULL;
        if (reserved) continue;
        if (member->inbox == own) {
            release(entries, n - 1, bytes);
            return LS_ELIMIT;
        }
        lost += member->live;
    }
    return (int64_t)lost;
}

/* Count the retained message `kept` (NULL: none) instead of the `*count` oldest ones of the topic; at the limit, instead
 * of more of them. false: it does not fit in place of all. */
static bool retain_instead(ls_topics *topics, const ls_topic *topic, unsigned *count, const ls_publication *kept)
{
    const ls_publication *next = topic->oldest;
    uint64_t less = 0, more = kept != NULL ? ls_publication_bytes(kept) : 0;
    uint64_t bytes = atomic_load_explicit(&topics->retained_bytes, memory_order_relaxed);
    for (unsigned n = 0; n < *count; n++, next = next->newer) less += ls_publication_bytes(next);
    do {
        for (; more > less && bytes - less + more > LS_TOPIC_RETAINED_BYTES_MAX; ++*count, next = next->newer) {
            if (next == NULL) return false;
            less += ls_publication_bytes(next);
        }
    } while (!atomic_compare_exchange_weak_explicit(&topics->retained_bytes, &bytes, bytes - less + more,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* Remove the `count` oldest retained messages, and add `kept`, unless it is NULL. Returns the list of those removed. */
static ls_publication *retain(ls_topic *topic, unsigned count, ls_publication *kept)
{
    ls_publication *removed = count > 0 ? topic->oldest : NULL, *last = NULL;
    for (unsigned n = 0; n < count; n++) {
        last = topic->oldest;
        topic->oldest = last->newer;
    }
    if (last != NULL) last->newer = NULL;
    if (topic->oldest == NULL) topic->retained = NULL;
    topic->kept -= count;
    if (kept == NULL) return removed;
    *(topic->retained != NULL ? &topic->retained->newer : &topic->oldest) = ls_publication_hold(kept);
    topic->retained = kept;
    topic->kept++;
    return removed;
}

/* Give the publication the next position: the time in microseconds, unless an earlier one is as high. */
static void set_position(ls_topic_shard *shard, ls_publication *p)
{
    const uint64_t now_us = (uint64_t)ls_clock_wall_us();
    shard->position = shard->position >= now_us ? shard->position + 1 : now_us;
    p->position = shard->position;
    p->id.len =
        (size_t)snprintf((char *)(uintptr_t)p->id.ptr, LS_POSITION_BYTES, "%llu", (unsigned long long)p->position);
}

/* Under the lock: append the publication, which has entries for all members, and, if order->retain, make it a retained
 * message (`keep`) or remove the messages. *before receives the list of those that are removed. */
static int64_t publish(ls_topics *topics, ls_topic_shard *shard, ls_topic *topic, ls_publication *p,
                       const ls_publish_order *order, bool keep, ls_publication **before)
{
    ls_topic_entry *entries = p != NULL ? ls_publication_entries(p) : NULL; /* NULL: without a member */
    const unsigned most = !order->history && topic->kept_max > order->retain ? topic->kept_max : order->retain;
    const unsigned room = keep ? most - 1 : 0, due = topic->kept > room ? topic->kept - room : 0;
    ls_publication *kept = keep ? p : NULL;
    unsigned removed = due;
    if (p != NULL && order->numbered) set_position(shard, p);
    const uint64_t bytes = p != NULL ? ls_publication_bytes(p) : 0;
    const int64_t lost = reserve(topic, entries, bytes, order->own);
    if (lost < 0) return lost;
    if (order->retain > 0) {
        if (!retain_instead(topics, topic, &removed, kept)) {
            kept = NULL; /* and none: a later subscriber gets no older value, and no messages with a gap */
            removed = topic->kept;
            (void)retain_instead(topics, topic, &removed, NULL);
        }
        if (keep && (kept == NULL || removed > due)) atomic_fetch_add(&topics->unkept, 1);
        *before = retain(topic, removed, kept);
        topic->kept_max = most;
    }
    topic->published++;
    shard->lost += (uint64_t)lost;
    if (p != NULL) {
        p->number = topic->published;
        p->site = atomic_load_explicit(&topics->site, memory_order_relaxed);
    }
    for (unsigned n = 0; n < topic->member_count; n++) {
        ls_topic_member *member = entries[n].member;
        if (member == NULL) continue;
        entries[n] = (ls_topic_entry){.publication = ls_publication_hold(p), .member = member};
        ls_topic_inbox_append(member->inbox, &entries[n]);
    }
    return (int64_t)topic->subscribers - lost;
}

int64_t ls_topics_publish(ls_topics *topics, const ls_publish_order *order)
{
    ls_slice data = order->data;
    ls_publication *p = NULL, *before = NULL;
    const bool keep = order->retain > 0 && (data.len > 0 || order->history);
    unsigned room = 0;
    if (!name_valid(order->topic_len) || order->event.len > LS_TOPIC_EVENT_BYTES_MAX ||
        order->id.len > LS_TOPIC_EVENT_BYTES_MAX) {
        ls_slice_drop(&data);
        return LS_EINVAL;
    }
    const uint64_t hash = ls_hash(topics->seed, order->topic, order->topic_len);
    ls_topic_shard *shard = shard_of(topics, hash);
    ls_topic *topic;
    for (;;) { /* until the publication has entries for all members; it is made without the lock */
        ls_mutex_lock(&shard->lock);
        topic = topic_find(shard, hash, order->topic, order->topic_len);
        const unsigned members = topic != NULL ? topic->member_count : 0;
        if (p != NULL ? members <= room : members == 0 && !keep) break;
        ls_mutex_unlock(&shard->lock);
        if (p != NULL) ls_publication_drop(p);
        room = members + SPARE_MEMBERS;
        p = ls_publication_make(order, room);
        if (p == NULL) {
            ls_slice_drop(&data);
            return LS_ENOMEM;
        }
    }
    int64_t result = 0;
    if (topic == NULL && keep && (topic = topic_add(shard, hash, order->topic, order->topic_len)) == NULL)
        result = LS_ENOMEM;
    if (topic != NULL) {
        result = publish(topics, shard, topic, p, order, keep, &before);
        topic_tidy(shard, topic);
    }
    if (result >= 0) shard->published++;
    ls_mutex_unlock(&shard->lock);
    drop_list(before);
    if (p != NULL) ls_publication_drop(p);
    ls_slice_drop(&data);
    return result;
}

uint32_t ls_topics_unkept(ls_topics *topics, uint64_t now_ms)
{
    uint64_t due_ms = atomic_load(&topics->unkept_due_ms);
    if (atomic_load_explicit(&topics->unkept, memory_order_relaxed) == 0 || now_ms < due_ms ||
        !atomic_compare_exchange_strong(&topics->unkept_due_ms, &due_ms, now_ms + LS_TOPIC_UNKEPT_MS))
        return 0;
    return atomic_exchange(&topics->unkept, 0);
}

uint32_t ls_topics_site_starts(ls_topics *topics)
{
    if (topics->site_started) atomic_fetch_add_explicit(&topics->site, 1, memory_order_relaxed);
    topics->site_started = true;
    return atomic_load_explicit(&topics->site, memory_order_relaxed);
}

/* ---- lists and numbers -------------------------------------------------------------------------------------- */

typedef struct list_head { /* before each name in a part of the list */
    uint64_t subscribers, len;
} list_head;

static bool begins_with(const ls_topic *topic, const char *prefix, size_t len)
{
    return topic->len >= len && memcmp(topic->name, prefix, len) == 0;
}

size_t ls_topics_list(ls_topics *topics, unsigned part, const char *prefix, size_t prefix_len, char *to, size_t room)
{
    ls_topic_shard *shard = &topics->shards[part];
    size_t needed = 0;
    ls_mutex_lock(&shard->lock);
    for (size_t b = 0; b < shard->bucket_count; b++)
        for (const ls_topic *topic = shard->buckets[b]; topic != NULL; topic = topic->next)
            if (begins_with(topic, prefix, prefix_len)) needed += sizeof(list_head) + topic->len;
    for (size_t b = 0; b < shard->bucket_count && needed <= room; b++) {
        for (const ls_topic *topic = shard->buckets[b]; topic != NULL; topic = topic->next) {
            if (!begins_with(topic, prefix, prefix_len)) continue;
            const list_head head = {topic->subscribers, topic->len};
            memcpy(to, &head, sizeof head);
            memcpy(to + sizeof head, topic->name, topic->len);
            to += sizeof head + topic->len;
        }
    }
    ls_mutex_unlock(&shard->lock);
    return needed;
}

bool ls_topics_next(const char **at, const char *end, ls_topic_info *out)
{
    list_head head;
    if (*at == end) return false;
    memcpy(&head, *at, sizeof head);
    *out = (ls_topic_info){head.subscribers, (size_t)head.len, *at + sizeof head};
    *at += sizeof head + out->len;
    return true;
}

void ls_topics_stat(ls_topics *topics, ls_topics_stats *out)
{
    *out = (ls_topics_stats){.retained_bytes = atomic_load(&topics->retained_bytes)};
    for (unsigned n = 0; n < LS_TOPIC_SHARDS; n++) {
        ls_topic_shard *shard = &topics->shards[n];
        ls_mutex_lock(&shard->lock);
        out->topics += shard->count;
        out->subscriptions += shard->subscriptions;
        out->published += shard->published;
        out->dropped += shard->lost;
        ls_mutex_unlock(&shard->lock);
    }
    ls_mutex_lock(&topics->lock);
    out->delivered = topics->delivered_before;
    out->dropped += topics->dropped_before;
    out->closed = topics->closed_before;
    LS_LIST_EACH (const ls_topic_inbox, inbox, &topics->inboxes, node) {
        out->delivered += ls_counter_read(&inbox->delivered);
        out->dropped += ls_counter_read(&inbox->dropped);
        out->closed += ls_counter_read(&inbox->closed_count);
    }
    ls_mutex_unlock(&topics->lock);
}
