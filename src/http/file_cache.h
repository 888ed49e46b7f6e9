/* file_cache.h - files that were sent lately: open, with their validators, and with the bytes of small ones. All Lua
 * states of a site share one cache.
 *
 * The key is the path, and the directory that the file was found to lie beneath: a search with another directory must
 * follow the links of the path itself. An entry never changes: a file that was replaced gets a new entry, and
 * responses that are being sent keep the old one. A look-up makes no call of the system: the user of a stale entry
 * examines the file, and renews the entry or puts another one in its place. So a file is examined at most once in
 * fresh_ms, and after each change of files that this program makes: the cache counts these, and an entry has the count
 * from before its file was examined. Which entries a change concerns is not asked, as links and names of directories
 * may lead to any.
 *
 * Entries that were not used for idle_ms, and beyond a limit the least recently used ones, are dropped.
 *
 * Threads: any. The cache is divided into shards, each with a mutex, an equal part of every limit, and its own order
 * of use. Invariants of a shard:
 *     entries <= entries_max / shards, bytes <= bytes_max / shards, open <= open_max / shards
 *     an entry is in its hash chain and in the order of use, or in neither */
#ifndef LS_HTTP_FILE_CACHE_H
#define LS_HTTP_FILE_CACHE_H

#include "base/list.h"
#include "codec/http_condition.h"
#include "port/file/shared_file.h"

typedef struct ls_file_cache ls_file_cache;

enum { LS_CACHED_BODY_MAX = 131072 }; /* the bytes of a file up to this size are kept in memory */

typedef struct ls_file_cache_limits {
    unsigned shards;      /* >= 1; the limits below are multiples of it */
    unsigned entries_max; /* all entries, including those that say that a file does not exist */
    unsigned open_max;    /* entries with an open file */
    size_t bytes_max;     /* memory of the entries */
    uint32_t fresh_ms, idle_ms;
} ls_file_cache_limits;

extern const ls_file_cache_limits ls_file_cache_defaults; /* 8 shards, 4096, 256, 16 MiB, 1 s, 60 s */

typedef struct ls_cached_file {
    ls_external external; /* first; keeps the entry and `body` alive */
    bool missing;         /* the file does not exist: nothing but `path` is set */
    ls_shared_file *file; /* or NULL: the bytes are in `body`, and at most ls_shared_file_copy_max */
    char *body;           /* info.bytes bytes, or NULL */
    ls_file_info info;
    const char *type; /* the media type by the name, static text */
    const char *etag; /* the strong entity tag, inside `lines` */
    uint8_t etag_len, etag_line_len;
    uint8_t lines_len;
    bool stable;     /* the last change was so long before that a further one has another time */
    bool dated;      /* there is a Last-Modified: the time of change is after 1970 and not in the future */
    bool fixed;      /* inside the program, where it cannot change: always fresh */
    char lines[256]; /* "ETag: ...\r\nAccept-Ranges: bytes\r\nLast-Modified: ...\r\n" */
    size_t path_len, beneath_len;
    const char *path;
    /* Private to the cache. */
    size_t bytes; /* of this allocation */
    ls_node used; /* in the order of use; on no list: not in the cache */
    struct ls_cached_file *next;
    uint64_t hash, checked_ms, used_ms;
    _Atomic uint64_t unchanged_ms; /* when the open file was last found unchanged */
    _Atomic uint64_t changes;      /* see ls_cached_file_examined */
} ls_cached_file;

/* The key of an entry. */
typedef struct ls_file_key {
    const char *path;
    size_t path_len;
    size_t beneath_len; /* the first bytes of the path are the directory that the file must lie beneath; 0: anywhere */
} ls_file_key;

/* Make the entry of an open file, with room for its bytes at `body` if info.bytes <= LS_CACHED_BODY_MAX; the caller
 * fills it before the entry is put into a cache, and may then drop the file. Holds a reference to `file` if the entry
 * needs it. `file` NULL: the file does not exist. One reference, or NULL: out of memory. */
ls_cached_file *ls_cached_file_make(const ls_file_key *key, ls_shared_file *file);

/* The strong entity tag of a file, or of the part of it, or of another form, that the suffix names: ls_etag_of_file, of
 * its time of change or, inside the program, of its tag. */
size_t ls_etag_of_info(const ls_file_info *info, const char *suffix, size_t suffix_len, char out[LS_ETAG_BYTES]);

static inline void ls_cached_file_drop(ls_cached_file *entry)
{
    ls_block_drop(ls_external_block(&entry->external));
}

/* Bytes of the file as a slice, + 1 reference: from memory, or a range of the open file if that is sent in less time,
 * not `filtered` (TLS needs the bytes in memory), and if the file has not changed since the cache examined it. */
ls_slice ls_cached_file_slice(ls_cached_file *entry, uint64_t from, uint64_t bytes, bool filtered);

/* Whether the properties are those of the file that the entry describes: the same file, size and time of change. Not
 * if the file had just changed when the entry was made: a second change may have the time of the first. */
bool ls_cached_file_is(const ls_cached_file *entry, const ls_file_info *info);

/* LS_OK or LS_ENOMEM. */
int ls_file_cache_open(const ls_file_cache_limits *limits, ls_file_cache **out);
void ls_file_cache_close(ls_file_cache *cache); /* entries with other references stay until these are dropped */

enum ls_file_cache_result {
    LS_CACHE_NONE,  /* no entry */
    LS_CACHE_FRESH, /* *out, + 1 reference */
    LS_CACHE_STALE, /* the same, and this caller examines the file; for the others the entry is fresh until fresh_ms
                       have passed again, but after a change it is stale for all until one has examined the file */
};

/* For development: no entry is fresh. Before the first search. */
void ls_file_cache_examine_always(ls_file_cache *cache);

/* This program has changed a file, or a name: no entry is fresh until its file was examined from now on. */
void ls_file_cache_changed(ls_file_cache *cache);

/* The number of these changes. Who examines a file asks before, and tells the entry: the one that describes the file
 * as found, or a new one before it is put into the cache. */
uint64_t ls_file_cache_changes(const ls_file_cache *cache);
void ls_cached_file_examined(ls_cached_file *entry, uint64_t changes);

/* now_ms: the time of ls_clock_coarse_ms. */
enum ls_file_cache_result ls_file_cache_find(ls_file_cache *cache, const ls_file_key *key, uint64_t now_ms,
                                             ls_cached_file **out);

/* Put an entry, examined at now_ms, in the place of an entry with the same key. The caller keeps its reference. An
 * entry that alone exceeds a limit is not kept. */
void ls_file_cache_put(ls_file_cache *cache, ls_cached_file *entry, uint64_t now_ms);

/* Drop the entry unless another one has taken its place. */
void ls_file_cache_remove(ls_file_cache *cache, ls_cached_file *entry);

typedef struct ls_file_cache_stats {
    unsigned entries, open;
    size_t bytes;
} ls_file_cache_stats;
bool ls_file_cache_check(ls_file_cache *cache, ls_file_cache_stats *out); /* false: an invariant is violated */

#endif
