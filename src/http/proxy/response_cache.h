/* response_cache.h - the responses that app:proxy has stored (RFC 9111), for all Lua states.
 *
 * An entry never changes: a response that is validated or replaced is a new entry, and responses that are being sent
 * keep the old one. The body is a block of its own, which the entry of a validated response shares. The entries of a
 * key differ in the fields of the request that select them (Vary); there are at most LS_VARIANTS_MAX of them. Above
 * bytes_max the least recently used entries are dropped.
 *
 * A fill is a response on its way into the cache. One fill of a key is the first one: others wait for its end, and
 * then look again. When nothing was stored, or it took too long, they do not wait for each other: for
 * LS_CACHE_APART_MS each request of the key has a fill of its own, for which no one waits. A removal during a fill
 * keeps it from being stored.
 *
 * A second store may have copies of entries, such as files. A copy is written under a fill whose key ends with NUL,
 * one at a time, and read under the fill of the response. A removal lasts until both stores have nothing of its keys:
 *
 *     remove --wait*: for the copies that are being written--> remove from the second store --> end
 *
 * No copy of its keys is written meanwhile: a claim for one waits. What is read meanwhile, or was before, is not
 * restored.
 *
 *     find --> found: serve it
 *        \---> claim --> LS_OK: a fill --add*--> end(entry or NULL): wakes those that wait
 *                  \---> LS_CACHE_WAITS: the waiter is woken, then find again
 *
 * Invariants, under the lock:
 *     bytes = sum of `bytes` of the entries listed <= bytes_max
 *     an entry is in its bucket and in the order of use, or in neither
 * Threads: any; a fill is used by one thread at a time. */
#ifndef LS_HTTP_RESPONSE_CACHE_H
#define LS_HTTP_RESPONSE_CACHE_H

#include "base/buf.h"
#include "base/shared.h"
#include "base/text.h"
#include "base/waiter.h"
#include "codec/http_condition.h"
#include "http/proxy/proxy_head.h"

enum {
    LS_CACHE_WAITS = 1, /* a result */
    LS_VARIANTS_MAX = 16,
    LS_CACHE_KEY_BYTES_MAX = 4096,
    LS_CACHE_APART_MS = 10000,
    LS_CACHE_REFRESH_MS = 10000 /* after so long a refresh that has begun may begin again */
};

typedef struct ls_response_cache ls_response_cache;
extern const ls_shared_kind ls_response_cache_kind; /* of ls_shared_get; its options are a size_t, bytes_max */

/* How long an entry may be used. Times in milliseconds. */
typedef struct ls_freshness {
    int64_t born_ms;     /* by ls_response_cache_now_ms: the age is the time since then */
    int64_t lifetime_ms; /* fresh while the age is less */
    int64_t refresh_ms;  /* stale-while-revalidate (RFC 5861): so long after it */
    int64_t error_ms;    /* stale-if-error */
    bool strict;         /* never stale: must-revalidate and its like */
    bool for_all;        /* also for requests with credentials (RFC 9111 section 3.5) */
} ls_freshness;

typedef struct ls_stored {
    ls_external external; /* first */
    int status;
    ls_freshness fresh;
    ls_text key, select; /* select: see ls_select_make */
    ls_text lines;       /* "Name: value\r\n"... */
    bool has_type, has_date;
    ls_validators validators; /* in `lines` */
    ls_slice body;            /* without a block: empty */
    /* Of the cache. */
    _Atomic int64_t refreshing_ms; /* until then others do not refresh it */
    size_t bytes;
    uint64_t hash;
    ls_node used;
    struct ls_stored *next; /* of the bucket */
} ls_stored;

typedef struct ls_fill {
    ls_response_cache *cache;
    ls_text key;
    size_t body_bytes_max; /* longer bodies are not stored */
    ls_stored *validates;  /* the owner may set it, with a reference, until the end: the entry that it may validate */
    /* Of the cache. */
    ls_node node, waiters;
    uint64_t hash;
    struct ls_content *body;
    size_t len, room;
    bool first, removed, failed;
    bool removes; /* it is a removal, of the keys that begin with its own */
    bool barred;  /* it was claimed during a removal: nothing is restored */
} ls_fill;

int64_t ls_response_cache_now_ms(void); /* of the clock of a site */

/* Bytes of the copies in a second store: base + written. `written` only grows, so that a
 * measurement, which takes a while, can set `base` to its result less what was written before. INT64_MAX / 2: it was not measured. */
typedef struct ls_copied {
    _Atomic int64_t base, written;
} ls_copied;
ls_copied *ls_response_cache_copied(ls_response_cache *cache);

/* A request as its server gets it: the fields of the client that pass, and those that a site adds. */
typedef struct ls_selecting {
    const ls_exchange *x;
    ls_proxy_filter filter;
    ls_text lines; /* "Name: value\r\n"... */
} ls_selecting;

/* The fields of a request that select a response, as text: for each of the names, between commas, its name and its
 * value. Writes at most `room` bytes; returns the length, which may be larger: so it is for a field that the proxy
 * writes for each client, such as X-Forwarded-For. The others that begin so are parts of the key. */
size_t ls_select_make(const ls_selecting *by, const char *names, size_t len, char *out, size_t room);

/* The name of a field by which the request may get a response of its own, and whose value does not `select` it:
 * Authorization, another credential of the client, or one that the site adds. {NULL, 0}: it has no such field. */
ls_text ls_select_personal(const ls_selecting *by, ls_text select);

/* Make an entry, with copies of the texts; takes the reference of *body. lines: valid lines. NULL: out of memory,
 * *body is dropped. */
ls_stored *ls_stored_make(int status, const ls_freshness *fresh, ls_text key, ls_text select, ls_text lines,
                          ls_slice *body);
/* The same for the copy of a second store, which anybody may have written, with a copy of the body. NULL: also of one
 * that is no response of a cache. */
ls_stored *ls_stored_read(int status, const ls_freshness *fresh, ls_text key, ls_text select, ls_text lines,
                          ls_text body);
static inline void ls_stored_drop(ls_stored *entry)
{
    ls_block_drop(ls_external_block(&entry->external));
}

/* Whether the invariants above hold; under the lock, or while no other thread uses the cache. */
bool ls_response_cache_check(const ls_response_cache *cache);

/* Find the entry for the request. LS_OK: *out, + 1 reference; LS_ECHANGED: only other requests select those of the
 * key; LS_ENOENT. */
int ls_response_cache_find(ls_response_cache *cache, ls_text key, const ls_selecting *by, ls_stored **out);
/* Whether the caller is the one that refreshes the entry. */
bool ls_stored_refresh(ls_stored *entry);

/* Begin a fill. LS_OK: *out; LS_CACHE_WAITS: another one is under way, or for a copy a removal, and `waiter` waits for
 * its end, with the result LS_OK; LS_ENOMEM. Without a waiter the fill is one for which no one waits; a copy has
 * one. */
int ls_response_cache_claim(ls_response_cache *cache, ls_text key, size_t body_bytes_max, ls_waiter *waiter,
                            ls_fill **out);
/* Let those that wait for the fill of the key continue: it takes too long. */
void ls_response_cache_part(ls_response_cache *cache, ls_text key);
bool ls_response_cache_cancel(void *cache, ls_waiter *waiter); /* as ls_semaphore_cancel */
/* Collect bytes of the body. When it is too long, or there is no memory, nothing is stored, and the others
 * continue. */
void ls_fill_add(ls_fill *fill, const char *bytes, size_t len);
/* End the fill. `entry` (NULL: none) is put into the cache, unless the key was removed meanwhile; the caller keeps its
 * reference. `apart`: see above. */
void ls_fill_end(ls_fill *fill, ls_stored *entry, bool apart);
/* The same with an entry that has no body yet: it gets the collected one. */
void ls_fill_store(ls_fill *fill, ls_stored *entry);

/* The entries of the key, + 1 reference each. Returns their number. */
unsigned ls_response_cache_list(ls_response_cache *cache, ls_text key, ls_stored *out[LS_VARIANTS_MAX]);
/* Put the copy of an entry that was read since the claim of the fill, unless there is an entry that the same requests
 * select. The caller keeps its reference. false: nothing is put, because the copy may be one of a removed entry. */
bool ls_fill_restore(ls_fill *fill, ls_stored *entry);
/* Begin a removal, which ls_fill_end ends: remove the entries whose key begins with `prefix`, also those of fills;
 * *count receives the number of entries. NULL: out of memory; the entries are removed. */
ls_fill *ls_response_cache_remove(ls_response_cache *cache, ls_text prefix, unsigned *count);
/* LS_CACHE_WAITS: `waiter` waits for the end of a copy that was claimed before the removal, and the caller asks again
 * then; LS_OK: all have ended. */
int ls_removal_wait(ls_fill *removal, ls_waiter *waiter);

#endif
