/* dict.c - see dict.h: the operations on one entry or on all, and the kind of the registry. */
#include "script/store/dict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/invariant.h"
#include "base/os/memory.h"
#include "script/store/dict_internal.h"
#include "script/store/dict_store.h"

enum { BUCKETS_FIRST = 16, SHARD_BYTES = 64 * 1024 /* a dict has one shard for each of these */ };

bool ls_dict_get(ls_dict *dict, const ls_dict_key *key, ls_dict_value *out, uint64_t *version)
{
    ls_dict_access access;
    ls_dict_enter(&access, dict, key);
    const ls_dict_entry *entry = ls_dict_find(&access);
    const bool found = entry != NULL;
    if (version != NULL) *version = found ? entry->version : LS_DICT_ABSENT;
    if (found) {
        *out = entry->value;
        if (out->type == LS_DICT_VALUE) (void)ls_value_hold(out->as.value);
    }
    ls_dict_leave(&access);
    return found;
}

/* Whether the mode permits to write `entry`, which may be NULL. */
static int permits(enum ls_dict_mode mode, const ls_dict_entry *entry, uint64_t version)
{
    if (mode == LS_DICT_ADD && entry != NULL) return LS_EEXIST;
    if (mode == LS_DICT_REPLACE && entry == NULL) return LS_ENOENT;
    if (mode == LS_DICT_SWAP && version != (entry != NULL ? entry->version : LS_DICT_ABSENT)) return LS_EAGAIN;
    return LS_OK;
}

/* Give the entry the value, which has *more bytes than the old one. *value receives the old one. false: no room. */
static bool exchange(ls_dict_access *access, ls_dict_entry *entry, ls_dict_value *value, size_t *more)
{
    const size_t bytes = ls_dict_value_bytes(value), before = ls_dict_value_bytes(&entry->value);
    if (bytes > before) {
        *more = bytes - before;
        if (!ls_dict_reserve(access->dict, *more)) return false;
    } else if (bytes < before) {
        ls_dict_release(access->dict, before - bytes);
    }
    const ls_dict_value old = entry->value;
    entry->value = *value;
    *value = old;
    ls_dict_touch(access, entry);
    return true;
}

/* One attempt. LS_ELIMIT: no room for *more bytes. On success *value receives what is to be dropped. */
static int set_once(ls_dict_access *access, ls_dict_value *value, enum ls_dict_mode mode, uint64_t ttl_ms,
                    uint64_t version, size_t *more)
{
    ls_dict_entry *entry = ls_dict_find(access);
    const int err = permits(mode, entry, version);
    if (err < 0) return err;
    if (value->type == LS_DICT_NIL) {
        if (entry != NULL) ls_dict_unlink(access, entry);
    } else if (entry != NULL) {
        if (!exchange(access, entry, value, more)) return LS_ELIMIT;
        if (mode != LS_DICT_SWAP) ls_dict_set_expiry(access, entry, ttl_ms);
    } else {
        *more = ls_dict_entry_bytes(access->key, value);
        if (!ls_dict_reserve(access->dict, *more)) return LS_ELIMIT;
        if (ls_dict_insert(access, *value, ttl_ms) == NULL) {
            ls_dict_release(access->dict, *more);
            return LS_ENOMEM;
        }
        value->type = LS_DICT_NIL;
    }
    return LS_OK;
}

int ls_dict_set(ls_dict *dict, const ls_dict_key *key, ls_dict_value value, enum ls_dict_mode mode, uint64_t ttl_ms,
                uint64_t version)
{
    int err;
    size_t more = 0;
    do {
        ls_dict_access access;
        ls_dict_enter(&access, dict, key);
        ls_dict_sweep(&access);
        err = set_once(&access, &value, mode, ttl_ms, version, &more);
        ls_dict_leave(&access);
        if (err == LS_ELIMIT && ls_dict_entry_bytes(key, &value) > atomic_load(&dict->bytes_max)) err = LS_EMSGSIZE;
    } while (err == LS_ELIMIT && ls_dict_make_room(dict, more));
    ls_dict_value_drop(&value);
    return err;
}

bool ls_dict_remove(ls_dict *dict, const ls_dict_key *key)
{
    ls_dict_access access;
    ls_dict_enter(&access, dict, key);
    ls_dict_entry *entry = ls_dict_find(&access);
    if (entry != NULL) ls_dict_unlink(&access, entry);
    ls_dict_leave(&access);
    return entry != NULL;
}

static double number_of(const ls_dict_value *value)
{
    return value->type == LS_DICT_INTEGER ? (double)value->as.integer : value->as.number;
}

/* *to = *to + by. false: the sum of two integers is not an integer of 64 bits. */
static bool add_number(ls_dict_value *to, const ls_dict_value *by)
{
    if (to->type == LS_DICT_INTEGER && by->type == LS_DICT_INTEGER) {
        const int64_t a = to->as.integer, b = by->as.integer;
        if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return false;
        to->as.integer = a + b;
    } else {
        to->as.number = number_of(to) + number_of(by);
        to->type = LS_DICT_FLOAT;
    }
    return true;
}

static int incr_once(ls_dict_access *access, ls_dict_value by, ls_dict_value init, uint64_t ttl_ms, ls_dict_value *out,
                     size_t *more)
{
    ls_dict_entry *entry = ls_dict_find(access);
    if (entry != NULL) {
        if (entry->value.type != LS_DICT_INTEGER && entry->value.type != LS_DICT_FLOAT) {
            *out = entry->value;
            return LS_EINVAL;
        }
        *out = entry->value;
        if (!add_number(&entry->value, &by)) return LS_EINVAL;
        ls_dict_touch(access, entry);
    } else {
        *out = init;
        if (init.type == LS_DICT_NIL) return LS_ENOENT;
        if (!add_number(&init, &by)) return LS_EINVAL;
        *more = ls_dict_entry_bytes(access->key, &init);
        if (!ls_dict_reserve(access->dict, *more)) return LS_ELIMIT;
        entry = ls_dict_insert(access, init, ttl_ms);
        if (entry == NULL) {
            ls_dict_release(access->dict, *more);
            return LS_ENOMEM;
        }
    }
    *out = entry->value;
    return LS_OK;
}

int ls_dict_incr(ls_dict *dict, const ls_dict_key *key, ls_dict_value by, ls_dict_value init, uint64_t ttl_ms,
                 ls_dict_value *out)
{
    int err;
    size_t more = 0;
    do {
        ls_dict_access access;
        ls_dict_enter(&access, dict, key);
        ls_dict_sweep(&access);
        err = incr_once(&access, by, init, ttl_ms, out, &more);
        ls_dict_leave(&access);
        if (err == LS_ELIMIT && more > atomic_load(&dict->bytes_max)) err = LS_EMSGSIZE;
    } while (err == LS_ELIMIT && ls_dict_make_room(dict, more));
    if (err == LS_EINVAL && out->type >= LS_DICT_VALUE) out->as.value = NULL; /* only the type */
    return err;
}

enum { CLOCK_SLACK_S = 10 }; /* more than a thread waits between the clock and the mutex */

/* One attempt, as set_once. */
static int take_once(ls_dict_access *access, const ls_dict_bucket *bucket, ls_dict_value *value, double *wait,
                     size_t *more)
{
    const ls_dict_entry *entry = ls_dict_find(access);
    double full_at = bucket->now;
    if (entry != NULL && entry->value.type == LS_DICT_FLOAT && entry->value.as.number > full_at)
        full_at = entry->value.as.number;
    /* Of another clock, in a file: before a reboot. Another thread may have read the clock a little later than this
     * one. */
    if (full_at - bucket->now - bucket->full > CLOCK_SLACK_S) full_at = bucket->now;
    full_at += bucket->token;
    *wait = full_at - bucket->now - bucket->full;
    if (*wait > 1e-9) return LS_OK; /* below it is an error of rounding */
    *wait = 0;
    *value = (ls_dict_value){.type = LS_DICT_FLOAT, .as.number = full_at};
    return set_once(access, value, LS_DICT_SET, (uint64_t)ceil((full_at - bucket->now) * 1000), 0, more);
}

int ls_dict_take(ls_dict *dict, const ls_dict_key *key, const ls_dict_bucket *bucket, double *wait)
{
    int err;
    size_t more = 0;
    do {
        ls_dict_access access;
        ls_dict_value value = {.type = LS_DICT_NIL};
        ls_dict_enter(&access, dict, key);
        ls_dict_sweep(&access);
        err = take_once(&access, bucket, &value, wait, &more);
        ls_dict_leave(&access);
        ls_dict_value_drop(&value); /* of an entry that was no bucket */
        if (err == LS_ELIMIT && more > atomic_load(&dict->bytes_max)) err = LS_EMSGSIZE;
    } while (err == LS_ELIMIT && ls_dict_make_room(dict, more));
    return err;
}

bool ls_dict_ttl(ls_dict *dict, const ls_dict_key *key, uint64_t *ms)
{
    ls_dict_access access;
    ls_dict_enter(&access, dict, key);
    const ls_dict_entry *entry = ls_dict_look_up(&access);
    const bool found = entry != NULL && !ls_dict_is_over(entry, access.now_ms);
    if (found) *ms = entry->expires_ms == 0 ? 0 : entry->expires_ms - access.now_ms;
    ls_dict_leave(&access);
    return found;
}

bool ls_dict_expire(ls_dict *dict, const ls_dict_key *key, uint64_t ms)
{
    ls_dict_access access;
    ls_dict_enter(&access, dict, key);
    ls_dict_entry *entry = ls_dict_find(&access);
    if (entry != NULL) {
        ls_dict_set_expiry(&access, entry, ms);
        ls_dict_changed(&access, entry);
    }
    ls_dict_leave(&access);
    return entry != NULL;
}

size_t ls_dict_count(ls_dict *dict)
{
    size_t count = 0;
    for (unsigned n = 0; n < dict->shard_count; n++) {
        ls_dict_access access;
        ls_dict_enter_shard(&access, dict, n);
        ls_dict_sweep_all(&access);
        count += access.shard->count;
        ls_dict_leave(&access);
    }
    return count;
}

void ls_dict_clear(ls_dict *dict)
{
    for (unsigned n = 0; n < dict->shard_count; n++) {
        ls_dict_access access;
        ls_dict_enter_shard(&access, dict, n);
        while (!ls_list_empty(&access.shard->used))
            ls_dict_unlink(&access, LS_CONTAINER(access.shard->used.next, ls_dict_entry, used));
        ls_dict_leave(&access);
    }
}

/* ---- the kind ---------------------------------------------------------------------------------------------- */

static void shards_close(ls_dict *dict, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        ls_node *changed = &dict->shards[n].changed; /* of a store that could not write them */
        LS_LIST_TAKE (ls_dict_entry, entry, changed, changed) {
            ls_dict_value_drop(&entry->value);
            free(entry);
        }
        ls_mutex_close(&dict->shards[n].lock);
        free(dict->shards[n].buckets);
    }
    ls_memory_aligned_free(dict->shards);
}

static int shard_open(ls_dict_shard *shard, unsigned index)
{
    *shard = (ls_dict_shard){.versions = index,
                             .bucket_count = BUCKETS_FIRST,
                             .expires_first_ms = UINT64_MAX,
                             .sweep_first_ms = UINT64_MAX};
    ls_node_init(&shard->used);
    ls_node_init(&shard->changed);
    atomic_init(&shard->oldest_ms, UINT64_MAX);
    shard->buckets = calloc(shard->bucket_count, sizeof(ls_dict_entry *));
    if (shard->buckets == NULL) return LS_ENOMEM;
    ls_mutex_open(&shard->lock);
    return LS_OK;
}

static int open_store(ls_dict *dict, const ls_dict_options *options)
{
    const size_t bytes = strlen(options->file) + 1;
    char *file = malloc(bytes);
    int err = LS_ENOMEM;
    if (file != NULL) err = ls_dict_store_open(dict, options, &dict->store);
    if (err < 0) {
        free(file);
        return err;
    }
    dict->file = memcpy(file, options->file, bytes);
    dict->sync = options->sync;
    return LS_OK;
}

static int dict_open(const void *given, ls_shared_object **out)
{
    const ls_dict_options *options = given;
    const uint64_t bytes_max = options != NULL ? options->bytes_max : LS_DICT_BYTES_DEFAULT;
    ls_dict *dict = calloc(1, sizeof *dict);
    if (dict == NULL) return LS_ENOMEM;
    atomic_init(&dict->bytes_max, bytes_max);
    atomic_init(&dict->evict, options != NULL && options->evict);
    ls_hash_seed(dict->seed);
    dict->shard_count = 1;
    while (dict->shard_count < LS_DICT_SHARDS_MAX && bytes_max / SHARD_BYTES >= dict->shard_count * 2)
        dict->shard_count *= 2;
    dict->shards = ls_memory_aligned(64, dict->shard_count * sizeof *dict->shards);
    if (dict->shards == NULL) goto fail;
    for (unsigned n = 0; n < dict->shard_count; n++) {
        if (shard_open(&dict->shards[n], n) == LS_OK) continue;
        shards_close(dict, n);
        goto fail;
    }
    if (options != NULL && options->file != NULL && (*options->error = open_store(dict, options)) < 0) {
        ls_dict_clear(dict);
        shards_close(dict, dict->shard_count);
        free(dict);
        return *options->error;
    }
    *out = &dict->base;
    return LS_OK;

fail:
    free(dict);
    return LS_ENOMEM;
}

bool ls_dict_check(const ls_dict *dict)
{
    uint64_t sum = 0, bytes;
    for (unsigned n = 0; n < dict->shard_count; n++) {
        if (!ls_dict_shard_check(&dict->shards[n], &bytes)) return false;
        sum += bytes;
    }
    return sum == ls_dict_bytes(dict);
}

static void dict_close(ls_shared_object *object)
{
    ls_dict *dict = (ls_dict *)(void *)object;
    if (dict->store != NULL) ls_dict_store_close(dict->store);
    dict->store = NULL;
    free((char *)(uintptr_t)dict->file); /* NOLINT(performance-no-int-to-ptr) */
    LS_INVARIANT(ls_dict_check(dict));
    ls_dict_clear(dict);
    shards_close(dict, dict->shard_count);
    free(dict);
}

ls_dict_options ls_dict_options_get(const ls_dict *dict)
{
    return (ls_dict_options){.bytes_max = atomic_load_explicit(&dict->bytes_max, memory_order_relaxed),
                             .evict = atomic_load_explicit(&dict->evict, memory_order_relaxed),
                             .file = dict->file,
                             .sync = dict->sync};
}

ls_dict_store *ls_dict_store_of(const ls_dict *dict)
{
    return dict->store;
}

bool ls_dict_refuses_first(ls_dict *dict, int err)
{
    const unsigned bit = err == LS_ELIMIT ? 1 : 2;
    return (atomic_fetch_or_explicit(&dict->refused, bit, memory_order_relaxed) & bit) == 0;
}

static bool dict_redefine(ls_shared_object *object, const void *given, bool reloaded)
{
    ls_dict *dict = (ls_dict *)(void *)object;
    const ls_dict_options *options = given, now = ls_dict_options_get(dict);
    const bool same_file =
        options->file == NULL ? dict->file == NULL : dict->file != NULL && strcmp(options->file, dict->file) == 0;
    if (!same_file || options->sync != dict->sync) return false; /* a restart opens another one */
    if (options->bytes_max == now.bytes_max && options->evict == now.evict) return true;
    if (!reloaded) return false;
    atomic_store_explicit(&dict->bytes_max, options->bytes_max, memory_order_relaxed);
    atomic_store_explicit(&dict->evict, options->evict, memory_order_relaxed);
    return true;
}

static void dict_look(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX])
{
    ls_dict *dict = (ls_dict *)(void *)object;
    figures[0] = ls_dict_count(dict);
    figures[1] = ls_dict_bytes(dict);
}

const ls_shared_kind ls_dict_kind = {.name = "dict",
                                     .open = dict_open,
                                     .close = dict_close,
                                     .redefine = dict_redefine,
                                     .look = dict_look,
                                     .figures = {"entries", "bytes"}};
