/* dict_scan.c - iteration over a dict while other threads write.
 *
 * The cursor is a shard and a bucket of it. A shard only ever doubles its buckets, and bucket b then becomes the
 * buckets b and b + old count. So the buckets are visited in the order of their index with its bits reversed: what was
 * visited before the doubling is exactly what lies before the cursor after it. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "script/store/dict_internal.h"

enum { SHARD_SHIFT = 56, ITEMS_FIRST = 64, KEYS_FIRST = 1024 };

static uint64_t reverse(uint64_t x)
{
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    x = (x >> 8 & 0x00ff00ff00ff00ff) | (x & 0x00ff00ff00ff00ff) << 8;
    x = (x >> 16 & 0x0000ffff0000ffff) | (x & 0x0000ffff0000ffff) << 16;
    return x >> 32 | x << 32;
}

/* The bucket after `bucket` in the order of reversed bits; 0: it was the last. */
static uint64_t next_bucket(uint64_t bucket, size_t bucket_count)
{
    return reverse(reverse(bucket | ~(uint64_t)(bucket_count - 1)) + 1);
}

static void clear(ls_dict_items *items)
{
    for (size_t n = 0; n < items->count; n++) {
        if (items->items[n].value.type == LS_DICT_VALUE) ls_value_drop(items->items[n].value.as.value);
    }
    items->count = 0;
    items->keys_len = 0;
}

void ls_dict_items_drop(ls_dict_items *items)
{
    clear(items);
    free(items->items);
    free(items->keys);
    *items = (ls_dict_items){0};
}

ls_dict_key ls_dict_item_key(const ls_dict_items *items, size_t index)
{
    const ls_dict_item *item = &items->items[index];
    ls_dict_key key = {.bytes = items->keys + item->key_at, .len = item->key_len};
    if (item->key_is_integer) {
        memcpy(&key.integer, key.bytes, sizeof key.integer);
        key.bytes = NULL;
        key.len = 0;
    }
    return key;
}

static bool reserve(void **array, size_t *room, size_t needed, size_t size, size_t first)
{
    size_t wanted = *room > 0 ? *room : first;
    if (needed <= *room) return true;
    while (wanted < needed) wanted *= 2;
    void *moved = realloc(*array, wanted * size);
    if (moved == NULL) return false;
    *array = moved;
    *room = wanted;
    return true;
}

static bool add(ls_dict_items *items, const ls_dict_entry *entry, bool values)
{
    void *at_items = items->items, *at_keys = items->keys;
    const bool ok =
        reserve(&at_items, &items->room, items->count + 1, sizeof *items->items, ITEMS_FIRST) &&
        reserve(&at_keys, &items->keys_room, items->keys_len + entry->key_len + 1, 1, KEYS_FIRST); /* never NULL */
    items->items = at_items;
    items->keys = at_keys;
    if (!ok) return false;
    ls_dict_item *item = &items->items[items->count++];
    *item =
        (ls_dict_item){.key_at = items->keys_len, .key_len = entry->key_len, .key_is_integer = entry->key_is_integer};
    memcpy(items->keys + items->keys_len, entry->key, entry->key_len);
    items->keys_len += entry->key_len;
    if (values) {
        item->value = entry->value;
        if (item->value.type == LS_DICT_VALUE) (void)ls_value_hold(item->value.as.value);
    }
    return true;
}

int ls_dict_scan(ls_dict *dict, uint64_t *cursor, bool values, ls_dict_items *items)
{
    unsigned index = (unsigned)(*cursor >> SHARD_SHIFT);
    uint64_t bucket = *cursor & (((uint64_t)1 << SHARD_SHIFT) - 1);
    const uint64_t now_ms = ls_dict_now_ms();
    int err = LS_OK;
    clear(items);
    while (index < dict->shard_count && items->count < LS_DICT_SCAN_ITEMS && err == LS_OK) {
        ls_dict_shard *shard = &dict->shards[index];
        ls_mutex_lock(&shard->lock);
        do {
            const ls_dict_entry *entry = shard->buckets[bucket & (shard->bucket_count - 1)];
            for (; entry != NULL && err == LS_OK; entry = entry->next) {
                if (ls_dict_is_over(entry, now_ms)) continue;
                if (!add(items, entry, values)) err = LS_ENOMEM;
            }
            bucket = next_bucket(bucket, shard->bucket_count);
        } while (bucket != 0 && items->count < LS_DICT_SCAN_ITEMS && err == LS_OK);
        ls_mutex_unlock(&shard->lock);
        if (bucket == 0) index++;
    }
    if (err != LS_OK) {
        clear(items);
        return err;
    }
    *cursor = index < dict->shard_count ? (uint64_t)index << SHARD_SHIFT | bucket : 0;
    return LS_OK;
}
