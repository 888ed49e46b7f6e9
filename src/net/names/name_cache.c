/* name_cache.c - see name_cache.h: a list by use. */
#include "net/names/name_cache.h"

#include <stdlib.h>
#include <string.h>

#include "codec/http_text.h"

typedef struct cached_name {
    ls_node node;
    uint64_t until_ms;
    size_t len;
    char *name; /* after the addresses */
    unsigned count;
    ls_addr addrs[];
} cached_name;

static void drop(ls_name_cache *cache, cached_name *entry)
{
    ls_list_remove(&entry->node);
    cache->count--;
    free(entry);
}

/* The entry of the name; NULL: none. Drops those whose time has passed on the way. */
static cached_name *find(ls_name_cache *cache, const char *name, uint64_t now_ms)
{
    const size_t len = strlen(name);
    LS_LIST_EACH_DROP (cached_name, entry, &cache->names, node) {
        if (now_ms >= entry->until_ms)
            drop(cache, entry);
        else if (ls_text_same(entry->name, entry->len, name, len))
            return entry;
    }
    return NULL;
}

void ls_name_cache_init(ls_name_cache *cache)
{
    ls_node_init(&cache->names);
    cache->count = 0;
}

void ls_name_cache_clear(ls_name_cache *cache)
{
    while (cache->count > 0) drop(cache, LS_CONTAINER(cache->names.next, cached_name, node));
}

unsigned ls_name_cache_find(ls_name_cache *cache, const char *name, uint16_t port, uint64_t now_ms, ls_addr *out,
                            unsigned room)
{
    cached_name *entry = find(cache, name, now_ms);
    if (entry == NULL) return 0;
    ls_list_remove(&entry->node);
    ls_list_push(&cache->names, &entry->node);
    const unsigned count = entry->count < room ? entry->count : room;
    for (unsigned i = 0; i < count; i++) {
        out[i] = entry->addrs[i];
        out[i].port = port;
    }
    return count;
}

void ls_name_cache_add(ls_name_cache *cache, const char *name, uint32_t ttl_s, uint64_t now_ms, const ls_addr *addrs,
                       unsigned count)
{
    const size_t len = strlen(name), bytes = count * sizeof *addrs;
    cached_name *before = find(cache, name, now_ms);
    if (before != NULL) drop(cache, before);
    if (ttl_s == 0 || count == 0) return;
    cached_name *entry = malloc(sizeof *entry + bytes + len);
    if (entry == NULL) return;
    if (ttl_s > LS_NAME_CACHE_TTL_S_MAX) ttl_s = LS_NAME_CACHE_TTL_S_MAX;
    *entry = (cached_name){.until_ms = now_ms + (uint64_t)ttl_s * 1000u, .len = len, .count = count};
    entry->name = (char *)entry->addrs + bytes;
    memcpy(entry->addrs, addrs, bytes);
    memcpy(entry->name, name, len);
    ls_node_init(&entry->node);
    if (cache->count == LS_NAME_CACHE_MAX) drop(cache, LS_CONTAINER(cache->names.next, cached_name, node));
    ls_list_push(&cache->names, &entry->node);
    cache->count++;
}
