/* peers.c - see peers.h: a chained hash table under a mutex, which has an entry for each address that has something. */
#include "net/stream/peers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { BUCKETS_MIN = 64 };

typedef struct key {
    char bytes[9]; /* the family, and the IPv4 address or the first 64 bits of IPv6 */
} key;

typedef struct ls_peer {
    struct ls_peer *next;
    key key;
    uint32_t counts[LS_PEERS_KINDS];
} ls_peer;

void ls_peers_open(ls_peers *peers)
{
    memset(peers, 0, sizeof *peers);
    ls_mutex_open(&peers->mutex);
    ls_hash_seed(peers->seed);
}

void ls_peers_close(ls_peers *peers)
{
    for (uint32_t n = 0; n < peers->bucket_count; n++)
        for (ls_peer *peer = peers->buckets[n], *next; peer != NULL; peer = next) {
            next = peer->next;
            free(peer);
        }
    free(peers->buckets);
    ls_mutex_close(&peers->mutex);
}

/* false: the address is not one of IP. */
static bool key_of(const ls_addr *addr, key *out)
{
    ls_addr plain = *addr;
    ls_addr_unmap(&plain);
    memset(out, 0, sizeof *out);
    out->bytes[0] = (char)plain.family;
    memcpy(out->bytes + 1, plain.bytes, plain.family == LS_ADDR_IP4 ? 4 : 8);
    return plain.family == LS_ADDR_IP4 || plain.family == LS_ADDR_IP6;
}

static ls_peer **bucket_of(const ls_peers *peers, const key *of)
{
    return &peers->buckets[ls_hash(peers->seed, of->bytes, sizeof of->bytes) & (peers->bucket_count - 1)];
}

/* Have room for one more entry. false: there is no bucket. */
static bool grow(ls_peers *peers)
{
    if (peers->count < peers->bucket_count) return true;
    const uint32_t before = peers->bucket_count, room = before > 0 ? 2 * before : BUCKETS_MIN;
    ls_peer **old = peers->buckets, **buckets = calloc(room, sizeof *buckets);
    if (buckets == NULL) return before > 0;
    peers->buckets = buckets;
    peers->bucket_count = room;
    for (uint32_t n = 0; n < before; n++)
        for (ls_peer *peer = old[n], *next; peer != NULL; peer = next) {
            ls_peer **bucket = bucket_of(peers, &peer->key);
            next = peer->next;
            peer->next = *bucket;
            *bucket = peer;
        }
    free(old);
    return true;
}

/* Where the entry is, or would be. */
static ls_peer **find(ls_peers *peers, const key *of)
{
    ls_peer **at = bucket_of(peers, of);
    while (*at != NULL && memcmp(&(*at)->key, of, sizeof *of) != 0) at = &(*at)->next;
    return at;
}

int ls_peers_enter(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind, uint32_t max)
{
    key of;
    int err = LS_ENOMEM;
    if (!key_of(addr, &of)) return LS_OK;
    ls_mutex_lock(&peers->mutex);
    if (grow(peers)) {
        ls_peer **at = find(peers, &of);
        if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL) {
            (*at)->key = of;
            peers->count++;
        }
        if (*at != NULL) err = (*at)->counts[kind] < max ? LS_OK : LS_ELIMIT;
        if (err == LS_OK) (*at)->counts[kind]++;
    }
    ls_mutex_unlock(&peers->mutex);
    return err;
}

void ls_peers_leave(ls_peers *peers, const ls_addr *addr, enum ls_peers_kind kind)
{
    key of;
    if (!key_of(addr, &of)) return;
    ls_mutex_lock(&peers->mutex);
    ls_peer **at = find(peers, &of), *peer = *at;
    assert(peer != NULL && peer->counts[kind] > 0);
    peer->counts[kind]--;
    if (peer->counts[LS_PEERS_CONNECTIONS] + peer->counts[LS_PEERS_STREAMS] == 0) {
        *at = peer->next;
        peers->count--;
        free(peer);
    }
    ls_mutex_unlock(&peers->mutex);
}
