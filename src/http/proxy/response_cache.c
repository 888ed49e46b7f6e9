/* response_cache.c - see response_cache.h. */
#include "http/proxy/response_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/invariant.h"
#include "base/os/thread.h"
#include "codec/http_text.h"

enum { BUCKETS = 4096, APART = 1024, BODY_BYTES_FIRST = 4096 };

typedef struct apart { /* a key that has stored nothing lately */
    uint64_t hash;
    int64_t until_ms;
} apart;

struct ls_response_cache {
    ls_shared_object shared; /* first */
    ls_mutex lock;
    uint64_t seed[2];
    size_t bytes, bytes_max;
    uint64_t hits, stored; /* so far: entries found, entries listed */
    ls_copied copied;
    ls_node used;  /* entries, the most recently used last */
    ls_node fills; /* few: one of each request to a server */
    ls_stored *buckets[BUCKETS];
    apart aparts[APART];
};

typedef struct ls_content { /* a body */
    ls_external external;   /* first */
    char bytes[];
} content;

int64_t ls_response_cache_now_ms(void)
{
    return (int64_t)(ls_clock_coarse_ms() + ls_clock_moved_ns() / 1000000);
}

ls_copied *ls_response_cache_copied(ls_response_cache *cache)
{
    return &cache->copied;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static void stored_release(ls_external *external)
{
    ls_stored *entry = (ls_stored *)(void *)external;
    ls_slice_drop(&entry->body);
    free(entry);
}

static ls_text keep(char **to, ls_text text)
{
    char *const at = *to;
    if (text.len > 0) memcpy(at, text.ptr, text.len);
    *to += text.len;
    return (ls_text){at, text.len};
}

static bool is(const ls_pair *field, const char *name)
{
    return ls_text_same(field->name, field->name_len, name, strlen(name));
}

ls_stored *ls_stored_make(int status, const ls_freshness *fresh, ls_text key, ls_text select, ls_text lines,
                          ls_slice *body)
{
    const size_t bytes = sizeof(ls_stored) + key.len + select.len + lines.len;
    ls_stored *entry = calloc(1, bytes);
    if (entry == NULL) {
        ls_slice_drop(body);
        return NULL;
    }
    char *to = (char *)(entry + 1);
    ls_external_init(&entry->external, LS_BLOCK_EXTERNAL, stored_release);
    ls_node_init(&entry->used);
    entry->status = status;
    entry->fresh = *fresh;
    entry->key = keep(&to, key);
    entry->select = keep(&to, select);
    entry->lines = keep(&to, lines);
    entry->body = *body;
    entry->bytes = bytes + body->len;
    ls_pair field;
    for (size_t at = 0; ls_lines_next(entry->lines.ptr, entry->lines.len, &at, &field);) {
        if (is(&field, "content-type")) entry->has_type = true;
        if (is(&field, "date")) entry->has_date = true;
        if (is(&field, "etag")) entry->validators.etag = field.value, entry->validators.etag_len = field.value_len;
        if (is(&field, "last-modified"))
            entry->validators.dated =
                ls_http_date_parse(field.value, field.value_len, ls_clock_wall_s(), &entry->validators.modified_s);
    }
    return entry;
}

/* Whether each line is a valid field, and none is of a connection. */
static bool are_lines(ls_text lines)
{
    for (size_t at = 0; at < lines.len;) {
        const char *const from = lines.ptr + at, *const end = memchr(from, '\n', lines.len - at);
        const char *const colon = memchr(from, ':', lines.len - at);
        if (end == NULL || colon == NULL || end - colon < 3 || colon[1] != ' ' || end[-1] != '\r' ||
            !ls_is_token(from, (size_t)(colon - from)) || !ls_is_field_value(colon + 2, (size_t)(end - colon) - 3) ||
            ls_proxy_is_hop(from, (size_t)(colon - from)))
            return false;
        at += (size_t)(end - from) + 1;
    }
    return true;
}

ls_stored *ls_stored_read(int status, const ls_freshness *fresh, ls_text key, ls_text select, ls_text lines,
                          ls_text body)
{
    if (status < 200 || status > 599 || key.len > LS_CACHE_KEY_BYTES_MAX || lines.len > LS_BLOCK_LARGE ||
        !are_lines(lines) || (select.len > 0 && select.ptr[select.len - 1] != '\n') ||
        (body.len > 0 && !ls_status_has_content(status)))
        return NULL;
    content *copy = malloc(sizeof *copy + body.len);
    if (copy == NULL) return NULL;
    ls_external_init(&copy->external, LS_BLOCK_EXTERNAL, ls_external_free);
    memcpy(copy->bytes, body.ptr, body.len);
    ls_slice slice = ls_slice_external(&copy->external, copy->bytes, body.len);
    return ls_stored_make(status, fresh, key, select, lines, &slice);
}

bool ls_stored_refresh(ls_stored *entry)
{
    const int64_t now_ms = ls_response_cache_now_ms();
    int64_t until_ms = atomic_load(&entry->refreshing_ms);
    return now_ms >= until_ms &&
           atomic_compare_exchange_strong(&entry->refreshing_ms, &until_ms, now_ms + LS_CACHE_REFRESH_MS);
}

/* ---- what selects an entry -------------------------------------------------------------------------------------- */

typedef struct writer {
    char *to;
    size_t len, room;
} writer;

static void put(writer *w, const char *bytes, size_t len)
{
    if (w->len + len <= w->room && len > 0) memcpy(w->to + w->len, bytes, len);
    w->len += len;
}

static bool is_one_of(const char *const *names, const char *name, size_t len)
{
    while (*names != NULL && !ls_text_same(*names, strlen(*names), name, len)) names++;
    return *names != NULL;
}

/* The lines of that name as one list; a request without them differs from one with an empty value. */
static void put_values(writer *w, const ls_selecting *by, const char *name, size_t len)
{
    const ls_exchange *x = by->x;
    const bool of_key = ls_text_same(name, len, "host", 4) || (len > 12 && ls_text_same(name, 12, "x-forwarded-", 12));
    const uint32_t fields = of_key ? 0 : x->head.field_count;
    bool any = false;
    ls_pair line;
    for (uint32_t i = 0; i < fields; i++) {
        const ls_http_field *field = &x->head.fields[i];
        const char *const its = x->bytes + field->name.at;
        if (!ls_proxy_same_name(its, field->name.len, name, len) ||
            !ls_proxy_passes(x, &by->filter, its, field->name.len))
            continue;
        put(w, any ? "," : "=", 1);
        put(w, x->bytes + field->value.at, field->value.len);
        any = true;
    }
    for (size_t at = 0; ls_lines_next(by->lines.ptr, by->lines.len, &at, &line);) {
        if (!ls_proxy_same_name(line.name, line.name_len, name, len)) continue;
        put(w, any ? "," : "=", 1);
        put(w, line.value, line.value_len);
        any = true;
    }
    put(w, "\n", 1);
}

size_t ls_select_make(const ls_selecting *by, const char *names, size_t len, char *out, size_t room)
{
    static const char *const of_client[] = {"x-forwarded-for", "forwarded", "via", NULL};
    writer w = {.to = out, .room = room};
    const char *const end = names + len, *from, *to;
    while (len > 0 && ls_list_next(&names, end, &from, &to)) {
        if (is_one_of(of_client, from, (size_t)(to - from))) return room + 1;
        put(&w, from, (size_t)(to - from));
        put_values(&w, by, from, (size_t)(to - from));
    }
    return w.len;
}

/* Whether the request has the values of `select`, each after its name: a name has no "=" and no line feed. */
static bool selects(ls_text select, const ls_selecting *by)
{
    char values[LS_CACHE_KEY_BYTES_MAX];
    for (const char *at = select.ptr, *const end = at + select.len; at < end;) {
        const char *const stop = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
        const char *const equal = memchr(at, '=', (size_t)(stop - at));
        const char *const value = equal != NULL ? equal : stop - 1;
        writer w = {.to = values, .room = sizeof values};
        put_values(&w, by, at, (size_t)(value - at));
        if (w.len != (size_t)(stop - value) || w.len > sizeof values || memcmp(values, value, w.len) != 0)
            return false;
        at = stop;
    }
    return true;
}

/* Fields by which clients say who they are, by parts of their names. Those of a site are its own. */
static bool is_credential(ls_text name)
{
    static const char *const parts[] = {"auth",   "cookie", "key",    "secret", "session",
                                        "tenant", "token",  "x-user", NULL};
    for (const char *const *part = parts; *part != NULL; part++)
        for (size_t at = 0, len = strlen(*part); at + len <= name.len; at++)
            if (ls_text_same(name.ptr + at, len, *part, len)) return true;
    return false;
}

/* Whether `select` has the name, and so its value. */
static bool names(ls_text select, ls_text name)
{
    for (const char *at = select.ptr, *const end = at + select.len; at < end;) {
        const size_t left = (size_t)(end - at);
        if (left > name.len && (at[name.len] == '=' || at[name.len] == '\n') &&
            ls_proxy_same_name(at, name.len, name.ptr, name.len))
            return true;
        at = (const char *)memchr(at, '\n', left) + 1;
    }
    return false;
}

static bool is_open(ls_text select, ls_text name)
{
    return ls_text_same(name.ptr, name.len, "authorization", 13) || !names(select, name);
}

ls_text ls_select_personal(const ls_selecting *by, ls_text select)
{
    ls_pair line;
    for (size_t at = 0; ls_lines_next(by->lines.ptr, by->lines.len, &at, &line);)
        if (is_open(select, (ls_text){line.name, line.name_len})) return (ls_text){line.name, line.name_len};
    for (uint32_t i = 0; i < by->x->head.field_count; i++) {
        const ls_http_field *field = &by->x->head.fields[i];
        const ls_text name = {by->x->bytes + field->name.at, field->name.len};
        if (is_credential(name) && is_open(select, name) && ls_proxy_passes(by->x, &by->filter, name.ptr, name.len))
            return name;
    }
    return (ls_text){NULL, 0};
}

/* ---- the table, under the lock ---------------------------------------------------------------------------------- */

static bool same(ls_text a, ls_text b)
{
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

static bool begins(ls_text text, ls_text prefix)
{
    return text.len >= prefix.len && memcmp(text.ptr, prefix.ptr, prefix.len) == 0;
}

static void unlist(ls_response_cache *cache, ls_stored *entry)
{
    ls_stored **at = &cache->buckets[entry->hash % BUCKETS];
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    ls_list_remove(&entry->used);
    cache->bytes -= entry->bytes;
    ls_stored_drop(entry);
}

bool ls_response_cache_check(const ls_response_cache *cache)
{
    size_t bytes = 0, listed = 0, count = 0;
    for (unsigned n = 0; n < BUCKETS; n++)
        for (const ls_stored *entry = cache->buckets[n]; entry != NULL; entry = entry->next, listed++)
            if (entry->hash % BUCKETS != n || ls_list_empty(&entry->used)) return false;
    LS_LIST_EACH (const ls_stored, entry, &cache->used, used) {
        bytes += entry->bytes;
        count++;
    }
    return listed == count && bytes == cache->bytes && bytes <= cache->bytes_max;
}

static void unlock(ls_response_cache *cache)
{
    LS_INVARIANT(ls_response_cache_check(cache));
    ls_mutex_unlock(&cache->lock);
}

static ls_stored *first_used(const ls_response_cache *cache)
{
    return LS_CONTAINER(cache->used.next, ls_stored, used);
}

/* Make room for a variant of the key: remove the one that the same requests select, or of too many the one that was
 * stored first. false: `keeps`, and the same requests select one. */
static bool remove_variant(ls_response_cache *cache, const ls_stored *entry, bool keeps)
{
    ls_stored *last = NULL;
    unsigned count = 0;
    for (ls_stored *other = cache->buckets[entry->hash % BUCKETS]; other != NULL; other = other->next) {
        if (other->hash != entry->hash || !same(other->key, entry->key)) continue;
        last = other;
        count++;
        if (same(other->select, entry->select)) {
            if (!keeps) unlist(cache, other);
            return !keeps;
        }
    }
    if (count >= LS_VARIANTS_MAX) unlist(cache, last);
    return true;
}

/* `keeps`: not in the place of another one. */
static void list(ls_response_cache *cache, ls_stored *entry, bool keeps)
{
    if (entry->bytes > cache->bytes_max) return;
    entry->hash = ls_hash(cache->seed, entry->key.ptr, entry->key.len);
    if (!remove_variant(cache, entry, keeps)) return;
    while (cache->bytes + entry->bytes > cache->bytes_max) unlist(cache, first_used(cache));
    ls_stored **const bucket = &cache->buckets[entry->hash % BUCKETS];
    entry->next = *bucket;
    *bucket = entry;
    ls_list_push(&cache->used, &entry->used);
    cache->bytes += entry->bytes;
    cache->stored++;
    (void)ls_block_hold(ls_external_block(&entry->external));
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

int ls_response_cache_find(ls_response_cache *cache, ls_text key, const ls_selecting *by, ls_stored **out)
{
    const uint64_t hash = ls_hash(cache->seed, key.ptr, key.len);
    int found = LS_ENOENT;
    ls_mutex_lock(&cache->lock);
    for (ls_stored *entry = cache->buckets[hash % BUCKETS]; entry != NULL && found != LS_OK; entry = entry->next) {
        if (entry->hash != hash || !same(entry->key, key)) continue;
        found = LS_ECHANGED;
        if (!selects(entry->select, by)) continue;
        found = LS_OK;
        ls_list_remove(&entry->used);
        ls_list_push(&cache->used, &entry->used);
        (void)ls_block_hold(ls_external_block(&entry->external));
        *out = entry;
    }
    if (found == LS_OK) cache->hits++;
    unlock(cache);
    return found;
}

unsigned ls_response_cache_list(ls_response_cache *cache, ls_text key, ls_stored *out[LS_VARIANTS_MAX])
{
    const uint64_t hash = ls_hash(cache->seed, key.ptr, key.len);
    unsigned count = 0;
    ls_mutex_lock(&cache->lock);
    for (ls_stored *entry = cache->buckets[hash % BUCKETS]; entry != NULL; entry = entry->next) {
        if (entry->hash != hash || !same(entry->key, key)) continue;
        (void)ls_block_hold(ls_external_block(&entry->external));
        out[count++] = entry;
    }
    unlock(cache);
    return count;
}

/* NULL: out of memory. */
static ls_fill *fill_make(ls_response_cache *cache, ls_text key)
{
    ls_fill *fill = calloc(1, sizeof *fill + key.len);
    if (fill == NULL) return NULL;
    fill->cache = cache;
    fill->hash = ls_hash(cache->seed, key.ptr, key.len);
    fill->key = (ls_text){memcpy(fill + 1, key.ptr, key.len), key.len};
    ls_node_init(&fill->waiters);
    return fill;
}

ls_fill *ls_response_cache_remove(ls_response_cache *cache, ls_text prefix, unsigned *count)
{
    ls_fill *const removal = fill_make(cache, prefix);
    *count = 0;
    ls_mutex_lock(&cache->lock);
    LS_LIST_EACH_DROP (ls_stored, entry, &cache->used, used) {
        if (!begins(entry->key, prefix)) continue;
        unlist(cache, entry);
        ++*count;
    }
    LS_LIST_EACH (ls_fill, fill, &cache->fills, node)
        if (begins(fill->key, prefix)) fill->removed = true;
    if (removal != NULL) {
        removal->removes = true;
        ls_list_push(&cache->fills, &removal->node);
    }
    unlock(cache);
    return removal;
}

static bool is_copy(const ls_fill *fill)
{
    return !fill->removes && fill->key.len > 0 && fill->key.ptr[fill->key.len - 1] == '\0';
}

int ls_removal_wait(ls_fill *removal, ls_waiter *waiter)
{
    ls_response_cache *cache = removal->cache;
    int result = LS_OK;
    ls_mutex_lock(&cache->lock);
    LS_LIST_EACH (ls_fill, fill, &cache->fills, node) {
        if (fill == removal || result != LS_OK) break;
        if (!is_copy(fill) || !begins(fill->key, removal->key)) continue;
        ls_list_push(&fill->waiters, &waiter->node);
        result = LS_CACHE_WAITS;
    }
    unlock(cache);
    return result;
}

/* ---- fills ------------------------------------------------------------------------------------------------------ */

/* The one for which the fill waits; NULL: it may begin. */
static ls_fill *first_fill(const ls_response_cache *cache, ls_fill *fill)
{
    LS_LIST_EACH (ls_fill, other, &cache->fills, node) {
        if (other->removes && begins(fill->key, other->key)) {
            if (is_copy(fill)) return other;
            fill->barred = true;
        } else if (fill->first && other->first && other->hash == fill->hash && same(other->key, fill->key)) {
            return other;
        }
    }
    return NULL;
}

int ls_response_cache_claim(ls_response_cache *cache, ls_text key, size_t body_bytes_max, ls_waiter *waiter,
                            ls_fill **out)
{
    ls_fill *fill = fill_make(cache, key);
    if (fill == NULL) return LS_ENOMEM;
    fill->body_bytes_max = body_bytes_max;
    const apart *of_key = &cache->aparts[fill->hash % APART];
    ls_mutex_lock(&cache->lock);
    fill->first = waiter != NULL && !(of_key->hash == fill->hash && ls_response_cache_now_ms() < of_key->until_ms);
    ls_fill *other = first_fill(cache, fill);
    if (other != NULL)
        ls_list_push(&other->waiters, &waiter->node);
    else
        ls_list_push(&cache->fills, &fill->node);
    unlock(cache);
    if (other != NULL) {
        free(fill);
        return LS_CACHE_WAITS;
    }
    *out = fill;
    return LS_OK;
}

bool ls_response_cache_cancel(void *cache, ls_waiter *waiter)
{
    return ls_waiter_cancel(&((ls_response_cache *)cache)->lock, waiter);
}

/* Take the waiters, to wake them. The caller holds the lock. */
static void let_go(ls_fill *fill, bool set_apart, ls_node *woken)
{
    const int64_t until_ms = ls_response_cache_now_ms() + LS_CACHE_APART_MS;
    if (set_apart) fill->cache->aparts[fill->hash % APART] = (apart){fill->hash, until_ms};
    fill->first = false;
    while (!ls_list_empty(&fill->waiters))
        ls_waiter_decide(LS_CONTAINER(fill->waiters.next, ls_waiter, node), LS_OK, woken);
}

void ls_response_cache_part(ls_response_cache *cache, ls_text key)
{
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&cache->lock);
    LS_LIST_EACH (ls_fill, fill, &cache->fills, node)
        if (fill->first && same(fill->key, key)) let_go(fill, true, &woken);
    unlock(cache);
    ls_waiters_wake(&woken);
}

/* Nothing is stored: the others continue. */
static void fail(ls_fill *fill)
{
    ls_node woken = LS_LIST_INIT(woken);
    free(fill->body);
    fill->body = NULL;
    fill->failed = true;
    ls_mutex_lock(&fill->cache->lock);
    let_go(fill, true, &woken);
    unlock(fill->cache);
    ls_waiters_wake(&woken);
}

void ls_fill_add(ls_fill *fill, const char *bytes, size_t len)
{
    const size_t need = fill->len + len;
    if (fill->failed) return;
    if (len > fill->body_bytes_max - fill->len) {
        fail(fill);
        return;
    }
    if (need > fill->room) {
        size_t room = fill->room > 0 ? fill->room : BODY_BYTES_FIRST;
        while (room < need) room *= 2;
        content *body = realloc(fill->body, sizeof *body + room);
        if (body == NULL) {
            fail(fill);
            return;
        }
        fill->body = body;
        fill->room = room;
    }
    if (len > 0) memcpy(fill->body->bytes + fill->len, bytes, len);
    fill->len = need;
}

bool ls_fill_restore(ls_fill *fill, ls_stored *entry)
{
    ls_mutex_lock(&fill->cache->lock);
    const bool valid = !fill->removed && !fill->barred;
    if (valid) list(fill->cache, entry, true);
    unlock(fill->cache);
    return valid;
}

void ls_fill_end(ls_fill *fill, ls_stored *entry, bool set_apart)
{
    ls_response_cache *cache = fill->cache;
    ls_node woken = LS_LIST_INIT(woken);
    ls_mutex_lock(&cache->lock);
    ls_list_remove(&fill->node);
    if (entry != NULL && !fill->removed) list(cache, entry, false);
    let_go(fill, set_apart, &woken);
    unlock(cache);
    ls_waiters_wake(&woken);
    if (fill->validates != NULL) ls_stored_drop(fill->validates);
    free(fill->body);
    free(fill);
}

/* The collected body; *out gets the reference. false: see ls_fill_add. */
static bool take_body(ls_fill *fill, ls_slice *out)
{
    if (fill->failed) return false;
    *out = (ls_slice){NULL, NULL, 0};
    content *body = fill->len > 0 ? realloc(fill->body, sizeof *body + fill->len) : NULL;
    if (body == NULL) body = fill->body; /* it did not become smaller */
    fill->body = NULL;
    if (body == NULL) return true;
    ls_external_init(&body->external, LS_BLOCK_EXTERNAL, ls_external_free);
    *out = ls_slice_external(&body->external, body->bytes, fill->len);
    return true;
}

void ls_fill_store(ls_fill *fill, ls_stored *entry)
{
    const bool whole = take_body(fill, &entry->body);
    entry->bytes += entry->body.len;
    ls_fill_end(fill, whole ? entry : NULL, false);
}

/* ---- the kind --------------------------------------------------------------------------------------------------- */

static int cache_open(const void *options, ls_shared_object **out)
{
    ls_response_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) return LS_ENOMEM;
    ls_mutex_open(&cache->lock);
    cache->bytes_max = *(const size_t *)options;
    atomic_init(&cache->copied.base, INT64_MAX / 2);
    ls_hash_seed(cache->seed);
    ls_node_init(&cache->used);
    ls_node_init(&cache->fills);
    *out = &cache->shared;
    return LS_OK;
}

static void cache_close(ls_shared_object *object)
{
    ls_response_cache *cache = (ls_response_cache *)(void *)object;
    assert(ls_list_empty(&cache->fills));
    while (!ls_list_empty(&cache->used)) unlist(cache, first_used(cache));
    ls_mutex_close(&cache->lock);
    free(cache);
}

static bool cache_redefine(ls_shared_object *object, const void *options, bool reloaded)
{
    ls_response_cache *cache = (ls_response_cache *)(void *)object;
    ls_mutex_lock(&cache->lock);
    cache->bytes_max = *(const size_t *)options;
    while (cache->bytes > cache->bytes_max) unlist(cache, first_used(cache));
    unlock(cache);
    return true;
}

static void cache_look(ls_shared_object *object, uint64_t figures[LS_FIGURES_MAX])
{
    ls_response_cache *cache = (ls_response_cache *)(void *)object;
    ls_mutex_lock(&cache->lock);
    figures[0] = cache->bytes;
    figures[1] = cache->hits;
    figures[2] = cache->stored;
    unlock(cache);
}

const ls_shared_kind ls_response_cache_kind = {.name = "cache",
                                               .open = cache_open,
                                               .close = cache_close,
                                               .redefine = cache_redefine,
                                               .look = cache_look,
                                               .figures = {"bytes", "hits", "stored"}};
