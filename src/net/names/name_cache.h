/* name_cache.h - addresses of names that were looked up, for as long as their records allow (RFC 1035 section 3.2.1).
 *
 * A full cache drops the name that was used longest ago. Names that do not exist are not kept. Pure but for the
 * memory; one thread at a time. */
#ifndef LS_NET_NAME_CACHE_H
#define LS_NET_NAME_CACHE_H

#include "base/list.h"
#include "net/sock/addr.h"

enum { LS_NAME_CACHE_MAX = 256, LS_NAME_CACHE_TTL_S_MAX = 3600 /* also if the records allow more */ };

typedef struct ls_name_cache {
    ls_node names; /* the one that was used longest ago first */
    unsigned count;
} ls_name_cache;

void ls_name_cache_init(ls_name_cache *cache);
void ls_name_cache_clear(ls_name_cache *cache);

/* Get the addresses of a name in any case of its letters, at most `room`, with this port. now_ms: of
 * ls_clock_coarse_ms. Returns their number; 0: not in the cache, or not any more. */
unsigned ls_name_cache_find(ls_name_cache *cache, const char *name, uint16_t port, uint64_t now_ms, ls_addr *out,
                            unsigned room);

/* Keep the addresses of a name for ttl_s seconds, in place of those that the cache has. No effect with 0 seconds, with
 * 0 addresses, or without memory. */
void ls_name_cache_add(ls_name_cache *cache, const char *name, uint32_t ttl_s, uint64_t now_ms, const ls_addr *addrs,
                       unsigned count);

#endif
