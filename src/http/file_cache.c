/* file_cache.c - see file_cache.h. Lock: no other mutex is taken while that of a shard is held; entries are dropped,
 * and so files are closed, after it was released. */
#include "http/file_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/invariant.h"
#include "base/os/memory.h"
#include "base/os/thread.h"
#include "base/text.h"
#include "codec/http_text.h"
#include "codec/http_type.h"
#include "port/file/image.h"

#define PUT(to, literal) (memcpy((to), (literal), sizeof(literal) - 1), (to) + sizeof(literal) - 1)

enum { STABLE_S = 2 }; /* the coarsest granularity of times: that of FAT */

const ls_file_cache_limits ls_file_cache_defaults = {
    .shards = 8, .entries_max = 4096, .open_max = 256, .bytes_max = 16u << 20, .fresh_ms = 1000, .idle_ms = 60000};

typedef struct shard {
    _Alignas(64) ls_mutex mutex;
    ls_cached_file **chains; /* by hash */
    ls_node order;           /* the least recently used entry first */
    unsigned entries, open;
    size_t bytes;
} shard;

struct ls_file_cache {
    ls_file_cache_limits limits; /* of one shard, except `shards` */
    unsigned chain_count;        /* of each shard, a power of two */
    _Atomic uint64_t changes;
    shard shards[];
};

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static void release(ls_external *external)
{
    ls_cached_file *entry = (ls_cached_file *)(void *)external; /* its first member */
    if (entry->file != NULL) ls_shared_file_drop(entry->file);
    free(entry);
}

/* The suffix of the tag for a file that holds another one in a content coding: "-br", "-gz". */
static const char *coding_of(const char *path, size_t len)
{
    if (len > 3 && memcmp(path + len - 3, ".br", 3) == 0) return "-br";
    return len > 3 && memcmp(path + len - 3, ".gz", 3) == 0 ? "-gz" : "";
}

size_t ls_etag_of_info(const ls_file_info *info, const char *suffix, size_t suffix_len, char out[LS_ETAG_BYTES])
{
    const int64_t second = info->tag != 0 ? (int64_t)info->tag : info->modified_s;
    return ls_etag_of_file(info->bytes, second, info->modified_ns, suffix, suffix_len, out);
}

static void make_lines(ls_cached_file *entry)
{
    const ls_file_info *info = &entry->info;
    const char *coding = coding_of(entry->path, entry->path_len);
    char *to = PUT(entry->lines, "ETag: ");
    entry->etag = to;
    entry->etag_len = (uint8_t)ls_etag_of_info(info, coding, strlen(coding), to);
    to = PUT(to + entry->etag_len, "\r\n");
    entry->etag_line_len = (uint8_t)(to - entry->lines);
    to = PUT(to, "Accept-Ranges: bytes\r\n");
    if (entry->dated) {
        to = PUT(to, "Last-Modified: ");
        ls_http_date(info->modified_s, to);
        to = PUT(to + LS_HTTP_DATE_BYTES, "\r\n");
    }
    entry->lines_len = (uint8_t)(to - entry->lines);
}

ls_cached_file *ls_cached_file_make(const ls_file_key *key, ls_shared_file *file)
{
    const size_t path_len = key->path_len;
    const bool in_memory = file != NULL && file->info.bytes <= LS_CACHED_BODY_MAX;
    const size_t bytes = sizeof(ls_cached_file) + path_len + 1 + (in_memory ? (size_t)file->info.bytes : 0);
    ls_cached_file *entry = malloc(bytes);
    if (entry == NULL) return NULL;
    memset(entry, 0, sizeof *entry);
    char *after = (char *)(entry + 1);
    ls_external_init(&entry->external, LS_BLOCK_EXTERNAL, release);
    ls_node_init(&entry->used);
    entry->bytes = bytes;
    entry->path = memcpy(after, key->path, path_len);
    after[path_len] = '\0';
    entry->path_len = path_len;
    entry->beneath_len = key->beneath_len;
    entry->missing = file == NULL;
    if (file == NULL) return entry;
    const int64_t now_s = ls_clock_wall_us() / 1000000, modified_s = file->info.modified_s;
    entry->info = file->info;
    entry->stable = modified_s < now_s - STABLE_S || modified_s > now_s + STABLE_S;
    entry->dated = modified_s >= 0 && modified_s <= now_s && file->info.tag == 0;
    entry->fixed = file->at > 0 && ls_image_overlay_folder() == NULL;
    entry->type = ls_http_type_of(entry->path);
    make_lines(entry);
    if (in_memory) entry->body = after + path_len + 1;
    if (!in_memory || file->info.bytes > ls_shared_file_copy_max) entry->file = ls_shared_file_hold(file);
    return entry;
}

/* Asks the system once per tick of the coarse clock: the queue looks again before it sends. */
static bool was_unchanged(ls_cached_file *entry)
{
    const uint64_t now_ms = ls_clock_coarse_ms();
    if (atomic_load_explicit(&entry->unchanged_ms, memory_order_relaxed) == now_ms) return true;
    if (!ls_shared_file_unchanged(entry->file)) return false;
    atomic_store_explicit(&entry->unchanged_ms, now_ms, memory_order_relaxed);
    return true;
}

ls_slice ls_cached_file_slice(ls_cached_file *entry, uint64_t from, uint64_t bytes, bool filtered)
{
    if (entry->body == NULL || (!filtered && bytes > ls_shared_file_copy_max && was_unchanged(entry)))
        return ls_shared_file_slice(entry->file, from, (size_t)bytes);
    (void)ls_block_hold(ls_external_block(&entry->external));
    return ls_slice_external(&entry->external, entry->body + from, (size_t)bytes);
}

bool ls_cached_file_is(const ls_cached_file *entry, const ls_file_info *info)
{
    const ls_file_info *own = &entry->info;
    return !entry->missing && entry->stable && info->type == LS_FILE_REGULAR && ls_file_info_same(own, info) &&
           own->volume == info->volume && own->file == info->file;
}

/* ---- the cache -------------------------------------------------------------------------------------------------- */

int ls_file_cache_open(const ls_file_cache_limits *limits, ls_file_cache **out)
{
    const unsigned shards = limits->shards;
    unsigned opened = 0;
    int err = LS_ENOMEM;
    ls_file_cache *cache = ls_memory_aligned(_Alignof(ls_file_cache), sizeof *cache + shards * sizeof(shard));
    if (cache == NULL) return err;
    memset(cache, 0, sizeof *cache + shards * sizeof(shard));
    cache->limits = *limits;
    cache->limits.entries_max /= shards;
    cache->limits.open_max /= shards;
    cache->limits.bytes_max /= shards;
    for (cache->chain_count = 1; cache->chain_count < cache->limits.entries_max;) cache->chain_count *= 2;
    for (; opened < shards; opened++) {
        shard *s = &cache->shards[opened];
        ls_node_init(&s->order);
        if ((s->chains = calloc(cache->chain_count, sizeof(ls_cached_file *))) == NULL) goto fail;
        ls_mutex_open(&s->mutex);
    }
    *out = cache;
    return LS_OK;

fail:
    cache->limits.shards = opened;
    ls_file_cache_close(cache);
    return err;
}

static shard *shard_of(ls_file_cache *cache, uint64_t hash)
{
    return &cache->shards[(hash >> 32) % cache->limits.shards];
}

static ls_cached_file **chain_of(const ls_file_cache *cache, shard *s, uint64_t hash)
{
    return &s->chains[hash & (cache->chain_count - 1)];
}

/* Take the entry out of the shard and put it before `dropped`, a list by `next`. The mutex is held. */
static void take_out(ls_file_cache *cache, shard *s, ls_cached_file *entry, ls_cached_file **dropped)
{
    ls_cached_file **link = chain_of(cache, s, entry->hash);
    while (*link != entry) link = &(*link)->next;
    *link = entry->next;
    ls_list_remove(&entry->used);
    s->entries--;
    s->open -= entry->file != NULL;
    s->bytes -= entry->bytes;
    entry->next = *dropped;
    *dropped = entry;
}

static void drop_all(ls_cached_file *dropped)
{
    while (dropped != NULL) {
        ls_cached_file *entry = dropped;
        dropped = entry->next;
        entry->next = NULL;
        ls_cached_file_drop(entry);
    }
}

static ls_cached_file *oldest(shard *s)
{
    return ls_list_empty(&s->order) ? NULL : LS_CONTAINER(s->order.next, ls_cached_file, used);
}

/* Whether `ms` have passed since a time, which another thread may have read later than now_ms. */
static bool has_passed(uint64_t now_ms, uint64_t since_ms, uint32_t ms)
{
    return now_ms >= since_ms + ms;
}

/* Drop what was not used for idle_ms. */
static void take_out_idle(ls_file_cache *cache, shard *s, uint64_t now_ms, ls_cached_file **dropped)
{
    for (ls_cached_file *entry;
         (entry = oldest(s)) != NULL && has_passed(now_ms, entry->used_ms, cache->limits.idle_ms);)
        take_out(cache, s, entry, dropped);
}

void ls_file_cache_close(ls_file_cache *cache)
{
    for (unsigned i = 0; i < cache->limits.shards; i++) {
        shard *s = &cache->shards[i];
        ls_cached_file *dropped = NULL;
        for (ls_cached_file *entry; (entry = oldest(s)) != NULL;) take_out(cache, s, entry, &dropped);
        drop_all(dropped);
        ls_mutex_close(&s->mutex);
        free(s->chains);
    }
    ls_memory_aligned_free(cache);
}

static bool has_key(const ls_cached_file *entry, const ls_file_key *key)
{
    return entry->path_len == key->path_len && entry->beneath_len == key->beneath_len &&
           memcmp(entry->path, key->path, key->path_len) == 0;
}

static ls_cached_file *find(const ls_file_cache *cache, shard *s, uint64_t hash, const ls_file_key *key)
{
    ls_cached_file *entry = *chain_of(cache, s, hash);
    while (entry != NULL && (entry->hash != hash || !has_key(entry, key))) entry = entry->next;
    return entry;
}

static bool is_above(const ls_file_cache_limits *limits, const shard *s)
{
    return s->entries > limits->entries_max || s->open > limits->open_max || s->bytes > limits->bytes_max;
}

static bool shard_check(const ls_file_cache *cache, shard *s)
{
    unsigned chained = 0, entries = 0, open = 0;
    size_t bytes = 0;
    for (unsigned n = 0; n < cache->chain_count; n++)
        for (const ls_cached_file *entry = s->chains[n]; entry != NULL; entry = entry->next, chained++)
            if (chain_of(cache, s, entry->hash) != &s->chains[n] || ls_list_empty(&entry->used)) return false;
    LS_LIST_EACH (const ls_cached_file, entry, &s->order, used) {
        entries++;
        open += entry->file != NULL;
        bytes += entry->bytes;
    }
    return chained == entries && entries == s->entries && open == s->open && bytes == s->bytes &&
           !is_above(&cache->limits, s);
}

static void unlock(const ls_file_cache *cache, shard *s)
{
    LS_INVARIANT(shard_check(cache, s));
    ls_mutex_unlock(&s->mutex);
}

void ls_file_cache_examine_always(ls_file_cache *cache)
{
    cache->limits.fresh_ms = 0;
}

void ls_file_cache_changed(ls_file_cache *cache)
{
    atomic_fetch_add(&cache->changes, 1);
}

uint64_t ls_file_cache_changes(const ls_file_cache *cache)
{
    return atomic_load(&cache->changes);
}

void ls_cached_file_examined(ls_cached_file *entry, uint64_t changes)
{
    atomic_store_explicit(&entry->changes, changes, memory_order_relaxed);
}

enum ls_file_cache_result ls_file_cache_find(ls_file_cache *cache, const ls_file_key *key, uint64_t now_ms,
                                             ls_cached_file **out)
{
    const uint64_t hash = ls_text_hash(key->path, key->path_len);
    shard *s = shard_of(cache, hash);
    enum ls_file_cache_result result = LS_CACHE_NONE;
    ls_cached_file *dropped = NULL;
    ls_mutex_lock(&s->mutex);
    ls_cached_file *entry = find(cache, s, hash, key);
    if (entry != NULL) {
        (void)ls_block_hold(ls_external_block(&entry->external));
        ls_list_remove(&entry->used);
        ls_list_push(&s->order, &entry->used);
        entry->used_ms = now_ms;
        result = LS_CACHE_FRESH;
        if (!entry->fixed && (has_passed(now_ms, entry->checked_ms, cache->limits.fresh_ms) ||
                              atomic_load_explicit(&entry->changes, memory_order_relaxed) !=
                                  atomic_load_explicit(&cache->changes, memory_order_relaxed))) {
            entry->checked_ms = now_ms;
            result = LS_CACHE_STALE;
            take_out_idle(cache, s, now_ms, &dropped);
        }
    }
    unlock(cache, s);
    drop_all(dropped);
    if (entry != NULL) *out = entry;
    return result;
}

void ls_file_cache_put(ls_file_cache *cache, ls_cached_file *entry, uint64_t now_ms)
{
    const ls_file_key key = {entry->path, entry->path_len, entry->beneath_len};
    const uint64_t hash = ls_text_hash(key.path, key.path_len);
    shard *s = shard_of(cache, hash);
    ls_cached_file *dropped = NULL;
    assert(ls_list_empty(&entry->used));
    ls_mutex_lock(&s->mutex);
    ls_cached_file *before = find(cache, s, hash, &key);
    if (before != NULL) take_out(cache, s, before, &dropped);
    take_out_idle(cache, s, now_ms, &dropped);
    if (entry->bytes <= cache->limits.bytes_max && cache->limits.entries_max > 0 &&
        (entry->file == NULL || cache->limits.open_max > 0)) {
        ls_cached_file **chain = chain_of(cache, s, hash);
        (void)ls_block_hold(ls_external_block(&entry->external));
        entry->hash = hash;
        entry->checked_ms = entry->used_ms = now_ms;
        entry->next = *chain;
        *chain = entry;
        ls_list_push(&s->order, &entry->used);
        s->entries++;
        s->open += entry->file != NULL;
        s->bytes += entry->bytes;
        while (is_above(&cache->limits, s)) take_out(cache, s, oldest(s), &dropped);
    }
    unlock(cache, s);
    drop_all(dropped);
}

void ls_file_cache_remove(ls_file_cache *cache, ls_cached_file *entry)
{
    shard *s = shard_of(cache, ls_text_hash(entry->path, entry->path_len));
    ls_cached_file *dropped = NULL;
    ls_mutex_lock(&s->mutex);
    if (!ls_list_empty(&entry->used)) take_out(cache, s, entry, &dropped);
    unlock(cache, s);
    drop_all(dropped);
}

bool ls_file_cache_check(ls_file_cache *cache, ls_file_cache_stats *out)
{
    bool valid = true;
    *out = (ls_file_cache_stats){0};
    for (unsigned i = 0; i < cache->limits.shards; i++) {
        shard *s = &cache->shards[i];
        ls_mutex_lock(&s->mutex);
        valid = shard_check(cache, s) && valid;
        out->entries += s->entries;
        out->open += s->open;
        out->bytes += s->bytes;
        ls_mutex_unlock(&s->mutex);
    }
    return valid;
}
