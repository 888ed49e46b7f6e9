/* coding_cache.c - see coding_filter.h: encoded bodies in a table with one place for each key.
 *
 * A place first remembers the key alone, so that bodies that come once take no memory. An entry that was used since
 * the last other key came to its place stays, once. */
#include <stdlib.h>
#include <string.h>

#include "http/coding/coding_filter.h"

enum { PLACES = 512, BODY_BYTES_MAX = 65536 };

typedef struct entry {
    ls_external external; /* first */
    size_t body_len, encoded_len;
    char bytes[]; /* the body, then the encoded one */
} entry;

typedef struct place {
    uint64_t key;
    entry *entry; /* NULL: the key was seen once */
    bool used;
} place;

struct ls_coding_cache {
    size_t bytes, bytes_max; /* of all entries */
    unsigned hand;           /* the next place to empty when there is no room */
    place places[PLACES];
};

ls_coding_cache *ls_coding_cache_open(size_t bytes_max)
{
    ls_coding_cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL) cache->bytes_max = bytes_max;
    return cache;
}

static void empty(ls_coding_cache *cache, place *at)
{
    if (at->entry == NULL) return;
    cache->bytes -= at->entry->body_len + at->entry->encoded_len;
    ls_block_drop(ls_external_block(&at->entry->external));
    at->entry = NULL;
}

void ls_coding_cache_close(ls_coding_cache *cache)
{
    if (cache == NULL) return;
    for (unsigned n = 0; n < PLACES; n++) empty(cache, &cache->places[n]);
    free(cache);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* A collision costs a place: the bytes are compared. */
static uint64_t key_of(const char *bytes, size_t len, enum ls_coding coding)
{
    uint64_t hash = mix(len, coding), word = 0;
    for (; len >= sizeof word; len -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    memcpy(&word, bytes, len);
    return mix(mix(hash, word), hash >> 32);
}

bool ls_coding_cache_find(ls_coding_cache *cache, enum ls_coding coding, const ls_slice *body, uint64_t *key,
                          bool *keep, ls_slice *out)
{
    *keep = false;
    if (body->len > BODY_BYTES_MAX) return false;
    *key = key_of(body->ptr, body->len, coding);
    place *at = &cache->places[*key % PLACES];
    if (at->key != *key) {
        if (!at->used) { /* else the entry gets another chance */
            empty(cache, at);
            at->key = *key;
        }
        at->used = false;
        return false;
    }
    if (at->entry == NULL) {
        *keep = true;
        return false;
    }
    if (at->entry->body_len != body->len || memcmp(at->entry->bytes, body->ptr, body->len) != 0) return false;
    at->used = true;
    (void)ls_block_hold(ls_external_block(&at->entry->external));
    *out = ls_slice_external(&at->entry->external, at->entry->bytes + body->len, at->entry->encoded_len);
    return true;
}

void ls_coding_cache_put(ls_coding_cache *cache, uint64_t key, const ls_slice *body, ls_slice *encoded, unsigned count)
{
    const size_t encoded_len = ls_slices_bytes(encoded, count), bytes = body->len + encoded_len;
    place *to = &cache->places[key % PLACES];
    if (bytes > cache->bytes_max) return;
    entry *made = malloc(sizeof *made + bytes);
    if (made == NULL) return;
    ls_external_init(&made->external, LS_BLOCK_EXTERNAL, ls_external_free);
    made->body_len = body->len;
    made->encoded_len = encoded_len;
    memcpy(made->bytes, body->ptr, body->len);
    char *at = made->bytes + body->len;
    for (unsigned n = 0; n < count; at += encoded[n++].len) memcpy(at, encoded[n].ptr, encoded[n].len);
    while (cache->bytes + bytes > cache->bytes_max) empty(cache, &cache->places[cache->hand++ % PLACES]);
    to->entry = made;
    cache->bytes += bytes;
}
