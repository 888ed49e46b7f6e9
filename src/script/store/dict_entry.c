/* dict_entry.c - the entries of a dict: their memory, an operation on one key under the lock of its
 * shard, expiry, the order of use, eviction. dict.c builds the operations of dict.h from these. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/invariant.h"
#include "script/store/dict_internal.h"
#include "script/store/dict_store.h"

enum {
    ALLOCATION_BYTES = 16, /* what the C library adds to an allocation, about */
    SWEEP_BUCKETS = 4
};

/* ---- memory ------------------------------------------------------------------------------------------------ */

size_t ls_dict_key_bytes(size_t key_len)
{
    return sizeof(ls_dict_entry) + key_len + ALLOCATION_BYTES + 2 * sizeof(ls_dict_entry *); /* with its buckets */
}

size_t ls_dict_value_bytes(const ls_dict_value *value)
{
    if (value->type == LS_DICT_VALUE) return ls_value_bytes(value->as.value) + ALLOCATION_BYTES;
    return value->type == LS_DICT_LIST ? value->as.list->bytes : 0;
}

size_t ls_dict_entry_bytes(const ls_dict_key *key, const ls_dict_value *value)
{
    return ls_dict_key_bytes(key->bytes != NULL ? key->len : sizeof key->integer) + ls_dict_value_bytes(value);
}

bool ls_dict_reserve(ls_dict *dict, size_t bytes)
{
    const uint64_t most = atomic_load_explicit(&dict->bytes_max, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&dict->bytes, memory_order_relaxed);
    do {
        if (used > most || bytes > most - used) return false;
    } while (!atomic_compare_exchange_weak_explicit(&dict->bytes, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

void ls_dict_release(ls_dict *dict, size_t bytes)
{
    (void)atomic_fetch_sub_explicit(&dict->bytes, bytes, memory_order_relaxed);
}

uint64_t ls_dict_bytes(const ls_dict *dict)
{
    return atomic_load_explicit(&dict->bytes, memory_order_relaxed);
}

void ls_dict_value_drop(ls_dict_value *value)
{
    if (value->type == LS_DICT_VALUE) {
        ls_value_drop(value->as.value);
    } else if (value->type == LS_DICT_LIST) {
        ls_dict_list *list = value->as.list;
        for (size_t n = 0; n < list->count; n++)
            ls_dict_value_drop(&list->values[(list->head + n) & (list->room - 1)]);
        free(list->values);
        free(list);
    }
    value->type = LS_DICT_NIL;
}

static void free_garbage(ls_dict_entry *entry)
{
    while (entry != NULL) {
        ls_dict_entry *next = entry->next;
        ls_dict_value_drop(&entry->value);
        free(entry);
        entry = next;
    }
}

/* ---- one operation ----------------------------------------------------------------------------------------- */

void ls_dict_enter(ls_dict_access *access, ls_dict *dict, const ls_dict_key *key)
{
    access->dict = dict;
    access->key = key;
    access->key_bytes = key->bytes != NULL ? key->bytes : (const char *)&key->integer;
    access->key_len = key->bytes != NULL ? key->len : sizeof key->integer;
    access->hash = ls_hash(dict->seed, access->key_bytes, access->key_len);
    access->shard = &dict->shards[access->hash >> 32 & (dict->shard_count - 1)];
    access->now_ms = ls_dict_now_ms();
    access->garbage = NULL;
    ls_mutex_lock(&access->shard->lock);
    if (dict->store != NULL) ls_dict_store_enter(dict->store, access);
}

void ls_dict_leave(ls_dict_access *access)
{
    ls_mutex_unlock(&access->shard->lock);
    free_garbage(access->garbage);
}

static void note_oldest(ls_dict_shard *shard)
{
    const ls_node *first = shard->used.next;
    const uint64_t ms = first == &shard->used ? UINT64_MAX : LS_CONTAINER(first, const ls_dict_entry, used)->used_ms;
    atomic_store_explicit(&shard->oldest_ms, ms, memory_order_relaxed);
}

static void use(ls_dict_access *access, ls_dict_entry *entry)
{
    ls_dict_shard *shard = access->shard;
    entry->used_ms = access->now_ms;
    if (shard->used.prev == &entry->used && shard->used.next != &entry->used) return;
    ls_list_remove(&entry->used);
    ls_list_push(&shard->used, &entry->used);
    note_oldest(shard);
}

static ls_dict_entry **bucket_of(const ls_dict_shard *shard, uint64_t hash)
{
    return &shard->buckets[hash & (shard->bucket_count - 1)];
}

void ls_dict_changed(ls_dict_access *access, ls_dict_entry *entry)
{
    if (access->dict->store == NULL) return;
    ls_list_remove(&entry->changed);
    ls_list_push(&access->shard->changed, &entry->changed);
    ls_dict_store_note(access->dict->store);
}

void ls_dict_unlink(ls_dict_access *access, ls_dict_entry *entry)
{
    ls_dict_shard *shard = access->shard;
    ls_dict_entry **link = bucket_of(shard, entry->hash);
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    ls_list_remove(&entry->used);
    note_oldest(shard);
    if (entry->expires_ms != 0) shard->expiring--;
    shard->count--;
    ls_dict_release(access->dict, ls_dict_key_bytes(entry->key_len) + ls_dict_value_bytes(&entry->value));
    if (access->dict->store != NULL && entry->has_row) { /* the store frees it and deletes the row */
        if (entry->value.type != LS_DICT_LIST) ls_dict_value_drop(&entry->value); /* a list takes long under a lock */
        entry->removed = true;
        ls_dict_changed(access, entry);
        return;
    }
    ls_list_remove(&entry->changed);
    entry->next = access->garbage;
    access->garbage = entry;
}

ls_dict_entry *ls_dict_look_up(const ls_dict_access *access)
{
    const bool is_integer = access->key->bytes == NULL;
    ls_dict_entry *entry = *bucket_of(access->shard, access->hash);
    while (entry != NULL &&
           (entry->hash != access->hash || entry->key_len != access->key_len || entry->key_is_integer != is_integer ||
            memcmp(entry->key, access->key_bytes, access->key_len) != 0))
        entry = entry->next;
    return entry;
}

ls_dict_entry *ls_dict_find(ls_dict_access *access)
{
    ls_dict_entry *entry = ls_dict_look_up(access);
    if (entry == NULL) return NULL;
    if (ls_dict_is_over(entry, access->now_ms)) {
        ls_dict_unlink(access, entry);
        return NULL;
    }
    use(access, entry);
    return entry;
}

/* Remove the expired entries of the bucket; note the first expiry of the others in *first_ms. */
static void sweep_bucket(ls_dict_access *access, size_t bucket, uint64_t *first_ms)
{
    ls_dict_entry *entry = access->shard->buckets[bucket], *next;
    for (; entry != NULL; entry = next) {
        next = entry->next;
        if (ls_dict_is_over(entry, access->now_ms))
            ls_dict_unlink(access, entry);
        else if (entry->expires_ms != 0 && entry->expires_ms < *first_ms)
            *first_ms = entry->expires_ms;
    }
}

static bool may_have_expired(const ls_dict_access *access)
{
    return access->shard->expiring > 0 && access->shard->expires_first_ms <= access->now_ms;
}

void ls_dict_sweep(ls_dict_access *access)
{
    ls_dict_shard *shard = access->shard;
    if (!may_have_expired(access)) return;
    for (unsigned n = 0; n < SWEEP_BUCKETS; n++) {
        if (shard->sweep_at == 0) shard->sweep_first_ms = UINT64_MAX;
        sweep_bucket(access, shard->sweep_at++, &shard->sweep_first_ms);
        if (shard->sweep_at < shard->bucket_count) continue;
        shard->sweep_at = 0;
        shard->expires_first_ms = shard->sweep_first_ms;
        return;
    }
}

void ls_dict_sweep_all(ls_dict_access *access)
{
    ls_dict_shard *shard = access->shard;
    uint64_t first_ms = UINT64_MAX;
    if (!may_have_expired(access)) return;
    for (size_t n = 0; n < shard->bucket_count; n++) sweep_bucket(access, n, &first_ms);
    shard->expires_first_ms = first_ms;
    shard->sweep_at = 0;
}

void ls_dict_enter_shard(ls_dict_access *access, ls_dict *dict, unsigned shard)
{
    *access = (ls_dict_access){.dict = dict, .shard = &dict->shards[shard], .now_ms = ls_dict_now_ms()};
    ls_mutex_lock(&access->shard->lock);
    if (dict->store != NULL) ls_dict_store_enter(dict->store, access);
}

bool ls_dict_shard_check(const ls_dict_shard *shard, uint64_t *bytes)
{
    size_t count = 0, used = 0, expiring = 0;
    *bytes = 0;
    for (size_t n = 0; n < shard->bucket_count; n++)
        for (const ls_dict_entry *entry = shard->buckets[n]; entry != NULL; entry = entry->next, count++) {
            if (bucket_of(shard, entry->hash) != &shard->buckets[n] || entry->removed) return false;
            expiring += entry->expires_ms != 0;
            *bytes += ls_dict_key_bytes(entry->key_len) + ls_dict_value_bytes(&entry->value);
        }
    for (const ls_node *node = shard->used.next; node != &shard->used; node = node->next) used++;
    return count == shard->count && used == count && expiring == shard->expiring;
}

/* Double the buckets. Without memory the chains get longer. */
static void grow(ls_dict_shard *shard)
{
    uint64_t bytes;
    LS_INVARIANT(ls_dict_shard_check(shard, &bytes));
    const size_t wanted = shard->bucket_count * 2;
    ls_dict_entry **buckets = calloc(wanted, sizeof *buckets);
    if (buckets == NULL) return;
    for (size_t n = 0; n < shard->bucket_count; n++) {
        ls_dict_entry *entry = shard->buckets[n], *next;
        for (; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = buckets[entry->hash & (wanted - 1)];
            buckets[entry->hash & (wanted - 1)] = entry;
        }
    }
    free(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = wanted;
}

void ls_dict_touch(ls_dict_access *access, ls_dict_entry *entry)
{
    access->shard->versions += access->dict->shard_count;
    entry->version = access->shard->versions;
    ls_dict_changed(access, entry);
}

void ls_dict_set_expiry(ls_dict_access *access, ls_dict_entry *entry, uint64_t ttl_ms)
{
    ls_dict_shard *shard = access->shard;
    if (entry->expires_ms != 0) shard->expiring--;
    entry->expires_ms = ttl_ms == 0 ? 0 : ttl_ms > UINT64_MAX - access->now_ms ? UINT64_MAX : access->now_ms + ttl_ms;
    if (entry->expires_ms == 0) return;
    if (shard->expiring++ == 0 || entry->expires_ms < shard->expires_first_ms)
        shard->expires_first_ms = entry->expires_ms;
    if (entry->expires_ms < shard->sweep_first_ms) shard->sweep_first_ms = entry->expires_ms;
}

ls_dict_entry *ls_dict_insert(ls_dict_access *access, ls_dict_value value, uint64_t ttl_ms)
{
    ls_dict_shard *shard = access->shard;
    ls_dict_entry *entry = malloc(sizeof *entry + access->key_len);
    if (entry == NULL) return NULL;
    if (shard->count >= shard->bucket_count) grow(shard);
    ls_dict_entry **bucket = bucket_of(shard, access->hash);
    *entry = (ls_dict_entry){.next = *bucket,
                             .used_ms = access->now_ms,
                             .hash = access->hash,
                             .value = value,
                             .key_len = (uint32_t)access->key_len,
                             .key_is_integer = access->key->bytes == NULL,
                             .has_row = access->dict->store == NULL /* the store loads its file */};
    ls_node_init(&entry->changed);
    memcpy(entry->key, access->key_bytes, access->key_len);
    *bucket = entry;
    shard->count++;
    ls_list_push(&shard->used, &entry->used);
    if (shard->used.next == &entry->used) note_oldest(shard);
    ls_dict_set_expiry(access, entry, ttl_ms);
    ls_dict_touch(access, entry);
    return entry;
}

/* ---- room -------------------------------------------------------------------------------------------------- */

/* Remove the least recently used entry of the shard whose first is the oldest. */
static void evict_one(ls_dict *dict)
{
    ls_dict_access access;
    unsigned oldest = 0;
    uint64_t oldest_ms = UINT64_MAX;
    for (unsigned n = 0; n < dict->shard_count; n++) {
        const uint64_t ms = atomic_load_explicit(&dict->shards[n].oldest_ms, memory_order_relaxed);
        if (ms < oldest_ms) {
            oldest_ms = ms;
            oldest = n;
        }
    }
    ls_dict_enter_shard(&access, dict, oldest);
    if (!ls_list_empty(&access.shard->used))
        ls_dict_unlink(&access, LS_CONTAINER(access.shard->used.next, ls_dict_entry, used));
    ls_dict_leave(&access);
}

bool ls_dict_make_room(ls_dict *dict, size_t bytes)
{
    const uint64_t most = atomic_load_explicit(&dict->bytes_max, memory_order_relaxed);
    if (bytes > most) return false;
    for (unsigned n = 0; n < dict->shard_count; n++) {
        ls_dict_access access;
        ls_dict_enter_shard(&access, dict, n);
        ls_dict_sweep_all(&access);
        ls_dict_leave(&access);
    }
    const bool evict = atomic_load_explicit(&dict->evict, memory_order_relaxed);
    while (ls_dict_bytes(dict) > most - bytes) {
        if (!evict) return false;
        evict_one(dict); /* no entry to evict: another thread has reserved the bytes and inserts its entry */
    }
    return true;
}
