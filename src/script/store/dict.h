/* dict.h - a dict: a table of keys and values that all Lua states of a server share.
 *
 * The entries are in shards by the hash of their key. Each shard is a hash table with a mutex; no function holds two
 * of them, calls Lua under one, or allocates memory of Lua under one. Scalars are stored in the entry; strings and
 * tables are an ls_value, which a reader holds beyond the lock.
 *
 * Memory: the dict counts the bytes of its entries, their keys and values, and an estimate of what the allocator adds:
 *     sum over all entries of ls_dict_entry_bytes  =  bytes <= bytes_max
 * Without room for an entry, expired entries are removed; then, with `evict`, the least recently used ones. The order
 * of use is exact in a shard, and to a few milliseconds between shards. A dict below 128 KiB has one shard.
 *
 * An entry whose time is over is not found. It is removed when it is looked up, or by one of the next writes to its
 * shard, each of which looks at a few buckets.
 *
 * Threads: any thread may call any function of an open dict. */
#ifndef LS_SCRIPT_DICT_H
#define LS_SCRIPT_DICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/shared.h"
#include "script/store/marshal.h"

typedef struct ls_dict ls_dict;
typedef struct ls_dict_list ls_dict_list;

typedef struct ls_dict_options {
    uint64_t bytes_max;
    bool evict; /* remove the least recently used entries when the dict is full; false: refuse the new one */
    /* Of a dict that is kept over restarts (dict_store.h). */
    const char *file, *name; /* NULL: only in memory; the name of the dict */
    bool shares;             /* the file is not locked: another process may use it */
    bool sync;               /* a write waits until it is in the file */
    int *error;              /* receives the code when it cannot be opened, */
    char *message;           /* and the reason */
    size_t message_bytes;
} ls_dict_options;

enum { LS_DICT_BYTES_DEFAULT = 16 * 1024 * 1024, LS_DICT_KEY_BYTES_MAX = 65535, LS_DICT_SHARDS_MAX = 16 };

typedef struct ls_dict_key {
    const char *bytes; /* NULL: `integer` is the key */
    size_t len;
    int64_t integer;
} ls_dict_key;

enum ls_dict_type {
    LS_DICT_NIL,
    LS_DICT_BOOLEAN,
    LS_DICT_INTEGER,
    LS_DICT_FLOAT,
    LS_DICT_VALUE, /* a string, a table or ls.json.null */
    LS_DICT_LIST   /* only inside of a dict: ls_dict_range reads it */
};

typedef struct ls_dict_value {
    uint8_t type; /* enum ls_dict_type */
    union {
        bool boolean;
        int64_t integer;
        double number;
        ls_value *value;
        ls_dict_list *list;
    } as;
} ls_dict_value;

enum ls_dict_mode {
    LS_DICT_SET,
    LS_DICT_ADD,     /* only a key without an entry */
    LS_DICT_REPLACE, /* only a key with an entry */
    LS_DICT_SWAP     /* only if the entry has this version; its expiry stays */
};

enum { LS_DICT_ABSENT = 0 }; /* the version of a key without an entry */

/* The kind for ls_shared_get(); its options are ls_dict_options. An ls_dict begins with its ls_shared_object. */
extern const ls_shared_kind ls_dict_kind;

/* The options in force. */
ls_dict_options ls_dict_options_get(const ls_dict *dict);
/* The store of the dict; NULL: it is only in memory. */
struct ls_dict_store *ls_dict_store_of(const ls_dict *dict);
/* Whether this is the first call for the dict and err, LS_ELIMIT or LS_EMSGSIZE: its first refusal of an entry for
 * either is logged. */
bool ls_dict_refuses_first(ls_dict *dict, int err);
uint64_t ls_dict_bytes(const ls_dict *dict); /* of all entries */

/* Bytes that an entry with this key and value counts, beside a list. */
size_t ls_dict_entry_bytes(const ls_dict_key *key, const ls_dict_value *value);

/* Drop the reference that the value holds. */
void ls_dict_value_drop(ls_dict_value *value);

/* Find the entry. The caller owns a reference of an LS_DICT_VALUE; of a list *out receives only the type. *version,
 * unless NULL, receives the version of the entry: no two writes to a dict have the same. false: the key has no entry;
 * then *version is LS_DICT_ABSENT. */
bool ls_dict_get(ls_dict *dict, const ls_dict_key *key, ls_dict_value *out, uint64_t *version);

/* Store the value; LS_DICT_NIL removes the entry. Takes the reference of the value, also on failure. ttl_ms: 0 for an
 * entry that does not expire. `version` is for LS_DICT_SWAP.
 *   LS_EEXIST    ADD: the key has an entry
 *   LS_ENOENT    REPLACE: the key has no entry
 *   LS_EAGAIN    SWAP: another version
 *   LS_EMSGSIZE  the entry is larger than the dict
 *   LS_ELIMIT    the dict is full
 *   LS_ENOMEM    out of memory */
int ls_dict_set(ls_dict *dict, const ls_dict_key *key, ls_dict_value value, enum ls_dict_mode mode, uint64_t ttl_ms,
                uint64_t version);

/* Remove the entry. Returns whether there was one. */
bool ls_dict_remove(ls_dict *dict, const ls_dict_key *key);

/* Add `by`, an integer or a float, to the number of the entry. A key without an entry gets `init` + by, with ttl_ms;
 * its type LS_DICT_NIL: LS_ENOENT instead. *out receives the new number. LS_EINVAL: the value, whose type *out
 * receives, is not a number, or the sum of two integers is not an integer of 64 bits. Other errors as for
 * ls_dict_set(). */
int ls_dict_incr(ls_dict *dict, const ls_dict_key *key, ls_dict_value by, ls_dict_value init, uint64_t ttl_ms,
                 ls_dict_value *out);

/* A token bucket by the generic cell rate algorithm (ITU-T I.371 annex A): its entry is one float, the time at which
 * the bucket is full again. In seconds: */
typedef struct ls_dict_bucket {
    double now;
    double token; /* after which one token comes back */
    double full;  /* after which an empty bucket is full */
} ls_dict_bucket;

/* Take a token from the bucket of the key. *wait receives 0, or the seconds until the bucket has a token: then it
 * stays as it is. A key without an entry, or with a value that is no float, has a full bucket. Errors as for
 * ls_dict_set(). */
int ls_dict_take(ls_dict *dict, const ls_dict_key *key, const ls_dict_bucket *bucket, double *wait);

/* *ms receives the time that the entry has left; 0: it does not expire. false: no entry. */
bool ls_dict_ttl(ls_dict *dict, const ls_dict_key *key, uint64_t *ms);
/* Let the entry expire in `ms`; 0: never. false: no entry. */
bool ls_dict_expire(ls_dict *dict, const ls_dict_key *key, uint64_t ms);

size_t ls_dict_count(ls_dict *dict); /* entries that have not expired */
void ls_dict_clear(ls_dict *dict);

/* Append `count` values, in order, at the head or the tail of the list of the key, which is made if there is no entry.
 * Takes the references of the values, also on failure. *len receives the length of the list. LS_EINVAL: the entry is
 * not a list. Other errors as for ls_dict_set(). */
int ls_dict_push(ls_dict *dict, const ls_dict_key *key, ls_dict_value *values, size_t count, bool head, size_t *len);

/* Take the first or the last value of the list out; the last value takes the entry with it. LS_OK, LS_ENOENT: no
 * entry, LS_EINVAL: the entry is not a list. */
int ls_dict_pop(ls_dict *dict, const ls_dict_key *key, bool head, ls_dict_value *out);

/* Number of values; LS_OK, LS_EINVAL. Without an entry *len is 0. */
int ls_dict_list_len(ls_dict *dict, const ls_dict_key *key, size_t *len);

/* The values from `first` to `last`: 1 is the first of the list, -1 the last. *values receives an array from
 * malloc(3), NULL if it is empty; the caller owns it and the references in it. Without an entry it is empty. LS_OK,
 * LS_EINVAL, LS_ENOMEM. */
int ls_dict_range(ls_dict *dict, const ls_dict_key *key, int64_t first, int64_t last, ls_dict_value **values,
                  size_t *count);

/* ---- iteration --------------------------------------------------------------------------------------------- */

typedef struct ls_dict_item {
    size_t key_at; /* in `keys` of ls_dict_items */
    uint32_t key_len;
    bool key_is_integer;
    ls_dict_value value; /* of a list only the type */
} ls_dict_item;

typedef struct ls_dict_items { /* starts as {0} */
    ls_dict_item *items;
    size_t count, room;
    char *keys;
    size_t keys_len, keys_room;
} ls_dict_items;

enum { LS_DICT_SCAN_ITEMS = 64 }; /* ls_dict_scan stops at the first bucket after this many */

/* Replace the items by the next ones. *cursor is 0 for the first call; it is 0 again after the last. Other threads may
 * write between the calls: an entry that exists during the whole iteration comes exactly once, another at most once
 * while no entry is added again. LS_OK or LS_ENOMEM; with `values` false the values are LS_DICT_NIL. */
int ls_dict_scan(ls_dict *dict, uint64_t *cursor, bool values, ls_dict_items *items);
ls_dict_key ls_dict_item_key(const ls_dict_items *items, size_t index);
void ls_dict_items_drop(ls_dict_items *items); /* drop the references and free the arrays */

/* ---- another process --------------------------------------------------------------------------------------- */

#define LS_DICT_OF_PROCESS "luaserve.process." /* so begin the names of dicts whose entries mean nothing to it */

/* Write the dicts that are only in memory. LS_OK or LS_ENOMEM. Other threads may write to them meanwhile. */
int ls_dicts_write(ls_shared *shared, FILE *out);
/* Add what ls_dicts_write has written; keys that have an entry keep it. A dict that does not exist is made, one with a
 * file is left out. *entries: how many were added. LS_OK; LS_ENOTSUP: another version has written it; LS_EINVAL: it has
 * no end, LS_ENOMEM: entries before that were added. */
int ls_dicts_read(ls_shared *shared, FILE *in, unsigned *entries);

#endif
