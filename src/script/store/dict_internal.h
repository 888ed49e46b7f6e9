/* dict_internal.h - the structs of a dict, and the functions of dict_entry.c, for dict.c (operations), dict_list.c
 * (lists) and dict_scan.c (iteration). */
#ifndef LS_SCRIPT_DICT_INTERNAL_H
#define LS_SCRIPT_DICT_INTERNAL_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "script/store/dict.h"

typedef struct ls_dict_entry {
    struct ls_dict_entry *next; /* of the bucket; of the garbage of an access */
    ls_node used;
    ls_node changed;              /* in the list of the shard, until the store has taken it */
    bool removed;                 /* it is in that list only */
    bool has_row;                 /* in the file, or among the changes that the store has taken */
    uint64_t used_ms, expires_ms; /* of ls_dict_now_ms; expires_ms 0: never */
    uint64_t version, hash;
    ls_dict_value value;
    uint32_t key_len;
    bool key_is_integer; /* then `key` has the 8 bytes of the integer */
    char key[];
} ls_dict_entry;

struct ls_dict_list { /* a ring */
    ls_dict_value *values;
    size_t room, head, count;
    size_t bytes; /* that the list counts: itself, the ring, the values */
};

typedef struct ls_dict_shard {
    _Alignas(64) ls_mutex lock;
    ls_dict_entry **buckets;
    size_t bucket_count, count; /* bucket_count: a power of two */
    ls_node used;               /* all entries, the most recently used last */
    ls_node changed;            /* entries for the store; without one, empty */
    uint64_t epoch;             /* of the store, when it has taken them last */
    uint64_t versions;          /* the last version; modulo the number of shards, it is the index of the shard */
    size_t expiring;            /* entries with expires_ms */
    uint64_t expires_first_ms;  /* not after the first expiry of an entry; UINT64_MAX without one */
    size_t sweep_at;            /* bucket that the next write looks at */
    uint64_t sweep_first_ms;    /* of this round of looking: as expires_first_ms, for the buckets before sweep_at */
    _Atomic uint64_t oldest_ms; /* used_ms of the first of `used`; UINT64_MAX: empty. Any thread reads it */
} ls_dict_shard;

struct ls_dict {
    ls_shared_object base; /* first */
    _Atomic uint64_t bytes_max;
    _Atomic bool evict;
    _Atomic unsigned refused; /* bits, see ls_dict_refuses_first */
    _Atomic uint64_t bytes;
    uint64_t seed[2];
    struct ls_dict_store *store; /* NULL: the dict is only in memory */
    const char *file;            /* of the store */
    bool sync;
    unsigned shard_count; /* a power of two */
    ls_dict_shard *shards;
};

/* One operation on one key, under the lock of its shard. */
typedef struct ls_dict_access {
    ls_dict *dict;
    ls_dict_shard *shard;
    const ls_dict_key *key;
    const char *key_bytes;
    size_t key_len;
    uint64_t hash, now_ms;
    ls_dict_entry *garbage; /* removed entries; freed after the unlock */
} ls_dict_access;

/* Lock the shard of the key, or the shard with this index; unlock it and free the garbage. */
void ls_dict_enter(ls_dict_access *access, ls_dict *dict, const ls_dict_key *key);
void ls_dict_enter_shard(ls_dict_access *access, ls_dict *dict, unsigned shard);
void ls_dict_leave(ls_dict_access *access);

/* The coarse clock of the site. */
static inline uint64_t ls_dict_now_ms(void)
{
    return ls_clock_coarse_ms() + ls_clock_moved_ns() / 1000000;
}

static inline bool ls_dict_is_over(const ls_dict_entry *entry, uint64_t now_ms)
{
    return entry->expires_ms != 0 && entry->expires_ms <= now_ms;
}

/* The entry of the key, noted as used, or NULL. Removes an expired one. */
ls_dict_entry *ls_dict_find(ls_dict_access *access);

/* The entry of the key, expired or not; not noted as used. */
ls_dict_entry *ls_dict_look_up(const ls_dict_access *access);

/* Look at the next buckets and remove their expired entries. */
void ls_dict_sweep(ls_dict_access *access);
/* The same for all buckets: afterwards no entry of the shard is expired. */
void ls_dict_sweep_all(ls_dict_access *access);

/* Add an entry for the key, whose bytes are reserved. NULL: out of memory; the bytes stay reserved. */
ls_dict_entry *ls_dict_insert(ls_dict_access *access, ls_dict_value value, uint64_t ttl_ms);
void ls_dict_unlink(ls_dict_access *access, ls_dict_entry *entry); /* remove it; its bytes are released */
void ls_dict_touch(ls_dict_access *access, ls_dict_entry *entry);  /* written: a new version */

void ls_dict_set_expiry(ls_dict_access *access, ls_dict_entry *entry, uint64_t ttl_ms); /* 0: never */

/* The entry has changed: the store writes it. */
void ls_dict_changed(ls_dict_access *access, ls_dict_entry *entry);

/* Count `bytes` more if they fit. */
bool ls_dict_reserve(ls_dict *dict, size_t bytes);
void ls_dict_release(ls_dict *dict, size_t bytes);

/* Without a lock, after ls_dict_reserve(bytes) has failed: remove expired entries, then the least recently used ones.
 * true: `bytes` were removed, so try again. */
bool ls_dict_make_room(ls_dict *dict, size_t bytes);

/* Whether the shard is in order; under its lock. *bytes: those of its entries. And whether the sum of dict.h holds; no
 * other thread uses the dict. */
bool ls_dict_shard_check(const ls_dict_shard *shard, uint64_t *bytes);
bool ls_dict_check(const ls_dict *dict);

/* The values of a list for a file or another process: each is a type, a length and the bytes. A block from malloc(3) that
 * begins with `before` other bytes; *len is that of all. NULL: out of memory. */
char *ls_dict_list_code(const ls_dict_list *list, size_t before, size_t *len);
/* Take the first value out of the code. LS_OK, or LS_EIO: damaged. */
int ls_dict_value_of_code(const char **code, size_t *len, ls_dict_value *out);
/* Append the values to the list of the key. LS_EIO, or the code of ls_dict_push. */
int ls_dict_push_code(ls_dict *dict, const ls_dict_key *key, const char *code, size_t len);

size_t ls_dict_key_bytes(size_t key_len); /* what an entry counts beside its value */
size_t ls_dict_value_bytes(const ls_dict_value *value);

#endif
