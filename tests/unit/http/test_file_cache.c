/* test_file_cache.c - the cache of files: what it finds, when an entry is examined, its limits. */
#define _GNU_SOURCE
#include "http/file_cache.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/os/thread.h"
#include "codec/http_text.h"
#include "support.h"
#include "system.h"

enum { BIG = LS_CACHED_BODY_MAX + 1 };

typedef struct place { /* a directory with a small file, a file of the largest size in memory, and a larger one */
    char dir[256], small[300], most[300], big[300];
} place;

static void put_file(const char *path, size_t bytes)
{
    char *data = malloc(bytes);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++) data[i] = (char)('a' + i % 26);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    free(data);
}

static void place_open(place *p)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(p->dir, sizeof p->dir, "%s/" TEST_SCRATCH_NAME, tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(p->dir));
    (void)snprintf(p->small, sizeof p->small, "%s/small.css", p->dir);
    (void)snprintf(p->most, sizeof p->most, "%s/most.js.br", p->dir);
    (void)snprintf(p->big, sizeof p->big, "%s/big.html", p->dir);
    put_file(p->small, 10);
    put_file(p->most, LS_CACHED_BODY_MAX);
    put_file(p->big, BIG);
}

static void place_close(place *p)
{
    (void)remove(p->small);
    (void)remove(p->most);
    (void)remove(p->big);
    assert_int_equal(rmdir(p->dir), 0);
}

static ls_file_key key_of(const char *name)
{
    return (ls_file_key){.path = name, .path_len = strlen(name)};
}

/* An entry for the file at `at` under another name; `at` NULL: a missing file. */
static ls_cached_file *entry_of(const char *name, const char *at)
{
    const ls_file_key key = key_of(name);
    ls_shared_file *file = NULL;
    if (at != NULL) assert_int_equal(ls_shared_file_open(at, &file), LS_OK);
    ls_cached_file *entry = ls_cached_file_make(&key, file);
    assert_non_null(entry);
    if (entry->body != NULL)
        assert_int_equal(ls_shared_file_read(file, entry->body, (size_t)file->info.bytes, 0), file->info.bytes);
    if (file != NULL) ls_shared_file_drop(file);
    return entry;
}

static void put(ls_file_cache *cache, const char *name, const char *at, uint64_t now_ms)
{
    ls_cached_file *entry = entry_of(name, at);
    ls_file_cache_put(cache, entry, now_ms);
    ls_cached_file_drop(entry);
}

static enum ls_file_cache_result look(ls_file_cache *cache, const char *name, uint64_t now_ms)
{
    const ls_file_key key = key_of(name);
    ls_cached_file *entry = NULL;
    const enum ls_file_cache_result result = ls_file_cache_find(cache, &key, now_ms, &entry);
    assert_int_equal(result != LS_CACHE_NONE, entry != NULL);
    if (entry != NULL) ls_cached_file_drop(entry);
    return result;
}

static ls_file_cache *opened(unsigned entries, unsigned open, size_t bytes)
{
    const ls_file_cache_limits limits = {1, entries, open, bytes, 1000, 60000};
    ls_file_cache *cache;
    assert_int_equal(ls_file_cache_open(&limits, &cache), LS_OK);
    return cache;
}

TEST_IN(place, p, an_entry_describes_its_file)
{
    ls_cached_file *entry = entry_of(p->small, p->small);
    char text[300], date[LS_HTTP_DATE_BYTES + 1] = "", etag[LS_ETAG_BYTES + 1];
    assert_null(entry->file); /* the bytes are enough */
    assert_memory_equal(entry->body, "abcdefghij", 10);
    assert_string_equal(entry->type, "text/css; charset=utf-8");
    assert_string_equal(entry->path, p->small);
    assert_true(entry->dated);
    ls_http_date(entry->info.modified_s, date);
    etag[ls_etag_of_file(10, entry->info.modified_s, entry->info.modified_ns, "", 0, etag)] = '\0';
    (void)snprintf(text, sizeof text, "ETag: %s\r\nAccept-Ranges: bytes\r\nLast-Modified: %s\r\n", etag, date);
    assert_int_equal(entry->lines_len, strlen(text));
    assert_memory_equal(entry->lines, text, strlen(text));
    assert_int_equal(entry->etag_len, strlen(etag));
    assert_memory_equal(entry->etag, etag, strlen(etag));
    assert_int_equal(entry->etag_line_len, strlen(etag) + 8);
    ls_slice slice = ls_cached_file_slice(entry, 2, 3, false);
    ls_cached_file_drop(entry); /* the slice keeps it */
    assert_false(ls_slice_is_file(&slice));
    assert_memory_equal(slice.ptr, "cde", 3);
    ls_slice_drop(&slice);
}

/* RFC 9110 8.8.2.1: no Last-Modified in the future. A date before 1970 has no use. */
TEST_IN(place, p, only_a_past_time_is_a_date)
{
    const int64_t now_s = ls_clock_wall_us() / 1000000;
    const struct {
        int64_t modified_s;
        bool dated;
    } cases[] = {{INT64_MIN, false}, {-1, false}, {0, true}, {now_s, true}, {now_s + 3600, false}, {INT64_MAX, false}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const ls_file_key key = key_of(p->small);
        ls_shared_file *file;
        assert_int_equal(ls_shared_file_open(p->small, &file), LS_OK);
        file->info.modified_s = cases[n].modified_s;
        ls_cached_file *entry = ls_cached_file_make(&key, file);
        assert_non_null(entry);
        assert_int_equal(entry->dated, cases[n].dated);
        entry->lines[entry->lines_len] = '\0';
        assert_int_equal(strstr(entry->lines, "Last-Modified") != NULL, cases[n].dated);
        ls_cached_file_drop(entry);
        ls_shared_file_drop(file);
    }
}

TEST_IN(place, p, bytes_are_kept_up_to_the_limit)
{
    ls_cached_file *most = entry_of(p->most, p->most), *big = entry_of(p->big, p->big);
    assert_true(most->body != NULL && (most->file != NULL) == (LS_CACHED_BODY_MAX > ls_shared_file_copy_max));
    assert_memory_equal(most->etag + most->etag_len - 4, "-br\"", 4);
    assert_true(big->body == NULL && big->file != NULL);
    ls_slice slice = ls_cached_file_slice(big, 5, BIG - 5, false);
    assert_true(ls_slice_is_file(&slice) && ls_slice_offset(&slice) == 5 && slice.len == BIG - 5);
    ls_slice_drop(&slice);
    ls_cached_file_drop(most);
    ls_cached_file_drop(big);
}

/* A file whose bytes are in memory is sent from there, or from the open file where that takes less time. */
TEST_IN(place, p, the_better_source_is_taken)
{
    const uint32_t copy_max = ls_shared_file_copy_max;
    if (copy_max >= LS_CACHED_BODY_MAX) {
        place_close(p);
        print_message("skipped: of another system: bytes that are in memory are sent from there\n");
        skip();
    }
    for (int more = 0; more < 2; more++) {
        char path[320];
        (void)snprintf(path, sizeof path, "%s/copy", p->dir);
        put_file(path, copy_max + (size_t)more);
        ls_cached_file *entry = entry_of(path, path);
        assert_non_null(entry->body);
        assert_true((entry->file != NULL) == more);
        for (int changed = 0; changed < 2; changed++)
            for (int filtered = 0; filtered < 2; filtered++)
                for (uint64_t from = 0; from < 2; from++) {
                    const uint64_t bytes = copy_max + (size_t)more - from;
                    ls_slice slice = ls_cached_file_slice(entry, from, bytes, filtered);
                    assert_int_equal(slice.len, bytes);
                    assert_true(ls_slice_is_file(&slice) == (bytes > copy_max && !filtered && !changed));
                    if (ls_slice_is_file(&slice))
                        assert_int_equal(ls_slice_offset(&slice), from);
                    else
                        assert_ptr_equal(slice.ptr, entry->body + from);
                    ls_slice_drop(&slice);
                    if (from == 1 && filtered && !changed) { /* until the clock that is read has gone on */
                        const uint64_t now_ms = ls_clock_coarse_ms();
                        assert_int_equal(truncate(path, 10), 0);
                        while (ls_clock_coarse_ms() == now_ms) continue;
                    }
                }
        ls_cached_file_drop(entry);
        assert_int_equal(remove(path), 0);
    }
}

TEST_IN(place, p, the_same_file_is_recognized)
{
    ls_cached_file *entry = entry_of(p->small, p->small), *missing = entry_of("x", NULL);
    ls_file_info info = entry->info;
    entry->stable = true; /* see below */
    assert_true(ls_cached_file_is(entry, &info));
    assert_false(ls_cached_file_is(missing, &info));
    assert_true(missing->missing);
    info.bytes++;
    assert_false(ls_cached_file_is(entry, &info));
    info = entry->info;
    info.modified_s++;
    assert_false(ls_cached_file_is(entry, &info));
    info = entry->info;
    info.modified_ns ^= 1;
    assert_false(ls_cached_file_is(entry, &info));
    info = entry->info;
    info.file++;
    assert_false(ls_cached_file_is(entry, &info));
    info = entry->info;
    info.volume++;
    assert_false(ls_cached_file_is(entry, &info));
    info = entry->info;
    info.type = LS_FILE_DIRECTORY;
    assert_false(ls_cached_file_is(entry, &info));
    ls_cached_file_drop(entry);
    ls_cached_file_drop(missing);
}

/* The time of a file that has just changed does not tell a further change. */
TEST_IN(place, p, a_file_that_has_just_changed_is_not_recognized)
{
    static const struct {
        int64_t age_s;
        bool recognized;
    } cases[] = {{60, true}, {3, true}, {2, false}, {0, false}, {-2, false}, {-3, true}, {INT64_MIN / 2, true}};
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        const ls_file_key key = key_of(p->small);
        ls_shared_file *file;
        ls_cached_file *entry = NULL;
        int64_t now_s;
        assert_int_equal(ls_shared_file_open(p->small, &file), LS_OK);
        do { /* until it is made within one second of the clock */
            if (entry != NULL) ls_cached_file_drop(entry);
            now_s = ls_clock_wall_us() / 1000000;
            file->info.modified_s = now_s - cases[n].age_s;
            entry = ls_cached_file_make(&key, file);
            assert_non_null(entry);
        } while (ls_clock_wall_us() / 1000000 != now_s);
        assert_int_equal(ls_cached_file_is(entry, &file->info), cases[n].recognized);
        ls_cached_file_drop(entry);
        ls_shared_file_drop(file);
    }
}

TEST_IN(place, p, one_caller_a_second_examines_the_file)
{
    ls_file_cache *cache = opened(10, 10, 1 << 20);
    assert_int_equal(look(cache, "a", 5000), LS_CACHE_NONE);
    put(cache, "a", p->small, 5000);
    assert_int_equal(look(cache, "a", 5000), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "a", 5999), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "a", 6000), LS_CACHE_STALE);
    assert_int_equal(look(cache, "a", 6000), LS_CACHE_FRESH); /* the caller before examines it */
    assert_int_equal(look(cache, "a", 5990), LS_CACHE_FRESH); /* a thread whose clock is behind */
    assert_int_equal(look(cache, "a", 6999), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "a", 7000), LS_CACHE_STALE);
    put(cache, "b", NULL, 7000); /* a missing file as well */
    assert_int_equal(look(cache, "b", 7999), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "b", 8000), LS_CACHE_STALE);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, after_a_change_all_callers_examine_the_file)
{
    ls_file_cache *cache = opened(10, 10, 1 << 20);
    const ls_file_key key = key_of("a");
    ls_cached_file *entry;
    put(cache, "a", p->small, 0);
    put(cache, "b", NULL, 0);
    assert_int_equal(ls_file_cache_find(cache, &key, 0, &entry), LS_CACHE_FRESH);
    ls_file_cache_changed(cache);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_STALE);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_STALE); /* nobody has examined it */
    assert_int_equal(look(cache, "b", 1), LS_CACHE_STALE);
    const uint64_t changes = ls_file_cache_changes(cache);
    ls_cached_file_examined(entry, changes);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "b", 1), LS_CACHE_STALE);
    ls_file_cache_changed(cache); /* while the file is examined */
    ls_cached_file_examined(entry, changes);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_STALE);
    ls_cached_file_drop(entry);
    entry = entry_of("a", p->small);
    ls_cached_file_examined(entry, changes); /* and while it is read */
    ls_file_cache_put(cache, entry, 1);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_STALE);
    ls_cached_file_drop(entry);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, a_new_entry_takes_the_place_of_the_old_one)
{
    ls_file_cache *cache = opened(10, 10, 1 << 20);
    ls_file_cache_stats stats;
    const ls_file_key key = key_of("a");
    ls_cached_file *old, *now;
    put(cache, "a", p->big, 0);
    assert_int_equal(ls_file_cache_find(cache, &key, 0, &old), LS_CACHE_FRESH);
    put(cache, "a", p->small, 1);
    assert_int_equal(ls_file_cache_find(cache, &key, 1, &now), LS_CACHE_FRESH);
    assert_true(now != old && now->body != NULL);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.open, 0);
    now->bytes++;
    assert_false(ls_file_cache_check(cache, &stats));
    now->bytes--;
    ls_file_cache_remove(cache, old); /* it is not there any more */
    assert_int_equal(look(cache, "a", 1), LS_CACHE_FRESH);
    char byte;
    assert_int_equal(ls_shared_file_read(old->file, &byte, 1, 0), 1); /* a response goes on with the old file */
    ls_cached_file_drop(old);
    ls_file_cache_remove(cache, now);
    assert_int_equal(look(cache, "a", 1), LS_CACHE_NONE);
    ls_file_cache_close(cache);
    assert_memory_equal(now->body, "abc", 3); /* also after the cache */
    ls_cached_file_drop(now);
}

/* Which links a path may follow depends on the directory; so an entry serves only searches with the same one. */
TEST_IN(place, p, the_directory_is_part_of_the_key)
{
    ls_file_key keys[] = {{"a/b/c", 5, 0}, {"a/b/c", 5, 1}, {"a/b/c", 5, 3}};
    ls_file_cache *cache = opened(10, 10, 1 << 20);
    for (unsigned n = 0; n < 3; n++) {
        ls_cached_file *found = NULL;
        assert_int_equal(ls_file_cache_find(cache, &keys[n], 0, &found), LS_CACHE_NONE);
        ls_shared_file *file;
        assert_int_equal(ls_shared_file_open(p->big, &file), LS_OK);
        ls_cached_file *entry = ls_cached_file_make(&keys[n], file);
        assert_non_null(entry);
        ls_shared_file_drop(file);
        ls_file_cache_put(cache, entry, 0);
        assert_int_equal(ls_file_cache_find(cache, &keys[n], 0, &found), LS_CACHE_FRESH);
        assert_ptr_equal(found, entry);
        ls_cached_file_drop(found);
        ls_cached_file_drop(entry);
    }
    ls_file_cache_stats stats;
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 3);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, entries_are_limited)
{
    ls_file_cache *cache = opened(3, 10, 1 << 20);
    put(cache, "a", p->small, 0);
    put(cache, "b", NULL, 0);
    put(cache, "c", p->small, 0);
    assert_int_equal(look(cache, "b", 1), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "a", 2),
                     LS_CACHE_FRESH); /* at the limit all are there; "c" was used least recently */
    put(cache, "d", p->small, 3);
    assert_int_equal(look(cache, "c", 3), LS_CACHE_NONE);
    assert_int_equal(look(cache, "a", 3), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "b", 3), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "d", 3), LS_CACHE_FRESH);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, open_files_are_limited)
{
    ls_file_cache *cache = opened(100, 2, 1 << 20);
    ls_file_cache_stats stats;
    put(cache, "a", p->big, 0);
    put(cache, "b", p->big, 0);
    put(cache, "small", p->small, 0);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 3);
    assert_int_equal(stats.open, 2);
    put(cache, "c", p->big, 0);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.open, 2);
    assert_int_equal(look(cache, "a", 0), LS_CACHE_NONE);
    assert_int_equal(look(cache, "b", 0), LS_CACHE_FRESH);
    ls_file_cache_close(cache);

    cache = opened(100, 0, 1 << 20); /* none may be open */
    put(cache, "a", p->big, 0);
    put(cache, "small", p->small, 0);
    assert_int_equal(look(cache, "a", 0), LS_CACHE_NONE);
    assert_int_equal(look(cache, "small", 0), LS_CACHE_FRESH);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, bytes_are_limited)
{
    ls_cached_file *entry = entry_of("a", p->most);
    const size_t each = entry->bytes;
    ls_file_cache_stats stats;
    ls_cached_file_drop(entry);
    assert_true(each > LS_CACHED_BODY_MAX);
    ls_file_cache *cache = opened(100, 10, 2 * each);
    put(cache, "a", p->most, 0);
    put(cache, "b", p->most, 0);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.bytes, 2 * each);
    put(cache, "c", NULL, 0); /* one more, however small */
    assert_int_equal(look(cache, "a", 0), LS_CACHE_NONE);
    assert_int_equal(look(cache, "b", 0), LS_CACHE_FRESH);
    assert_int_equal(look(cache, "c", 0), LS_CACHE_FRESH);
    ls_file_cache_close(cache);

    for (int less = 0; less < 2; less++) { /* an entry that fits alone, and one that does not */
        cache = opened(100, 10, each - (size_t)less);
        put(cache, "c", NULL, 0);
        put(cache, "a", p->most, 0);
        assert_int_equal(look(cache, "a", 0), less ? LS_CACHE_NONE : LS_CACHE_FRESH);
        assert_int_equal(look(cache, "c", 0), less ? LS_CACHE_FRESH : LS_CACHE_NONE);
        ls_file_cache_close(cache);
    }
}

TEST_IN(place, p, idle_entries_are_dropped)
{
    ls_file_cache *cache = opened(100, 10, 1 << 20);
    ls_file_cache_stats stats;
    put(cache, "a", p->big, 0);
    put(cache, "b", p->big, 100);
    (void)look(cache, "b", 59999); /* stale: also drops what is idle */
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 2);
    (void)look(cache, "b", 61000);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 1);
    put(cache, "c", p->small, 61000 + 60000);
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 1);
    assert_int_equal(stats.open, 0);
    ls_file_cache_close(cache);
}

TEST_IN(place, p, shards_share_the_limits)
{
    const ls_file_cache_limits limits = {4, 40, 4, 1 << 20, 1000, 60000};
    ls_file_cache_stats stats;
    ls_file_cache *cache;
    char name[16];
    assert_int_equal(ls_file_cache_open(&limits, &cache), LS_OK);
    for (int n = 0; n < 1000; n++) {
        (void)snprintf(name, sizeof name, "file%d", n);
        put(cache, name, n % 50 == 0 ? p->big : NULL, 0);
    }
    assert_true(ls_file_cache_check(cache, &stats));
    assert_int_equal(stats.entries, 40); /* every shard is full: the hash spreads the names */
    assert_in_range(stats.open, 0, 4);
    ls_file_cache_close(cache);
}

/* ---- threads
 * ------------------------------------------------------------------------------------------------------ */

typedef struct worker {
    ls_thread thread;
    ls_file_cache *cache;
    const place *p;
    unsigned number;
} worker;

static void work(void *arg)
{
    worker *w = arg;
    char name[16];
    unsigned random = w->number * 7919 + 1;
    for (unsigned n = 0; n < 3000; n++) {
        ls_cached_file *entry = NULL;
        random = random * 1103515245 + 12345;
        (void)snprintf(name, sizeof name, "f%u", random >> 16 & 15);
        const ls_file_key key = key_of(name);
        const enum ls_file_cache_result found = ls_file_cache_find(w->cache, &key, n, &entry);
        if (found == LS_CACHE_NONE) {
            put(w->cache, name, (random >> 20 & 1) ? w->p->small : w->p->big, n);
            continue;
        }
        ls_slice slice = ls_cached_file_slice(entry, 0, entry->info.bytes, false);
        if (found == LS_CACHE_STALE) ls_file_cache_remove(w->cache, entry);
        ls_cached_file_drop(entry);
        if (!ls_slice_is_file(&slice)) assert_memory_equal(slice.ptr, "abc", 3);
        ls_slice_drop(&slice);
    }
}

TEST_IN(place, p, threads_share_it)
{
    const ls_file_cache_limits limits = {2, 8, 4, 1 << 20, 50, 200};
    worker workers[4];
    ls_file_cache *cache;
    assert_int_equal(ls_file_cache_open(&limits, &cache), LS_OK);
    for (unsigned n = 0; n < 4; n++) {
        workers[n] = (worker){.cache = cache, .p = p, .number = n};
        assert_int_equal(ls_thread_start(&workers[n].thread, "cache", work, &workers[n]), LS_OK);
    }
    for (unsigned n = 0; n < 4; n++) ls_thread_join(&workers[n].thread);
    ls_file_cache_close(cache);
}
