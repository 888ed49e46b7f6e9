/* file_serve.c - see file_serve.h.
 *
 * The usual request finds fresh entries: a look-up, and no memory of Lua. Otherwise a `loading` object is made, which
 * holds the work and every reference, so that an error or the end of the task releases them:
 *
 *     look up --> fresh ------------------------------------------> found
 *            \--> stale --> work: stat --> the same ---------------> found
 *            |                       \--> another one, or none --\
 *            \--> none --> work: --------------------------------> open, read, put into the cache --> found
 *
 * While the work is pending the task is suspended and keeps the object alive; closing the port ends pending work
 * before it returns. A stale entry is examined by the one that found it; so when the first search ends at one, the
 * second one must take it for stale again: `examine`. */
#include "script/bind/files/file_serve.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "script/bind/bind_aux.h"
#include "script/bind/dev_mode.h"
#include "script/core/task.h"

enum { OPENS_MAX = 3, NO_STEP = -1 }; /* after so many changes while it is read, the file is not served */

typedef struct loading {
    const void *tag;
    ls_serve s;
    ls_task_work work;
    ls_file_cache *cache;
    ls_dev *dev;
    ls_cached_file *entry; /* stale when the work begins; then its result */
    int examine;           /* the step whose entry is stale */
} loading;

void ls_serve_init(ls_serve *s, ls_serve_found_fn *found, const char *beneath, size_t beneath_len)
{
    s->found = found;
    s->beneath = beneath;
    s->beneath_len = beneath_len;
    s->keep_missing = false;
    s->step = 0;
    s->fallback = false;
    s->file = NULL;
    s->coding = s->coding_count = 0;
}

static ls_file_key key_of(const ls_serve *s)
{
    return (ls_file_key){s->path, s->path_len, s->beneath_len};
}

static void drop_file(ls_serve *s)
{
    if (s->file != NULL) ls_cached_file_drop(s->file);
    s->file = NULL;
}

static void drop_entry(loading *l)
{
    if (l->entry != NULL) ls_cached_file_drop(l->entry);
    l->entry = NULL;
}

static int loading_drop(lua_State *L)
{
    loading *l = lua_touserdata(L, 1);
    drop_entry(l);
    drop_file(&l->s);
    return 0;
}

static const ls_object_type loading_type = {.name = "loading", .drop = loading_drop};

/* ---- on a thread of the pool ------------------------------------------------------------------------------------ */

/* The stale entry. LS_ECHANGED: it was dropped. */
static int examine(loading *l)
{
    const uint64_t changes = ls_file_cache_changes(l->cache);
    ls_file_info info;
    const int err = ls_file_stat(l->s.path, &info);
    if ((err == LS_OK && ls_cached_file_is(l->entry, &info)) || (err == LS_ENOENT && l->entry->missing)) {
        ls_cached_file_examined(l->entry, changes);
        return err;
    }
    ls_file_cache_remove(l->cache, l->entry);
    drop_entry(l);
    return LS_ECHANGED;
}

static int read_body(ls_cached_file *entry, ls_shared_file *file)
{
    if (entry->body == NULL || entry->info.bytes == 0) return LS_OK;
    const int64_t n = ls_shared_file_read(file, entry->body, (size_t)entry->info.bytes, 0);
    if (n < 0) return (int)n;
    return (uint64_t)n == entry->info.bytes && ls_shared_file_unchanged(file) ? LS_OK : LS_ECHANGED;
}

static int open_file(loading *l)
{
    const ls_file_key key = key_of(&l->s);
    const uint64_t changes = ls_file_cache_changes(l->cache);
    ls_shared_file *file;
    int err = ls_shared_file_open_beneath(l->s.path, l->s.beneath, &file);
    if (err == LS_OK) {
        l->entry = ls_cached_file_make(&key, file);
        err = l->entry != NULL ? read_body(l->entry, file) : LS_ENOMEM;
        ls_shared_file_drop(file);
        if (err < 0) drop_entry(l);
    } else if (err == LS_ENOENT && l->s.keep_missing) {
        l->entry = ls_cached_file_make(&key, NULL);
    }
    if (l->entry == NULL) return err;
    ls_cached_file_examined(l->entry, changes);
    ls_file_cache_put(l->cache, l->entry, ls_clock_coarse_ms());
    return err;
}

static int64_t load_file(ls_work *work)
{
    loading *l = LS_CONTAINER(work, loading, work.work);
    int err = l->entry != NULL ? examine(l) : LS_ECHANGED;
    for (unsigned opens = 0; opens < OPENS_MAX && err == LS_ECHANGED; opens++) err = open_file(l);
    if (l->dev != NULL && err == LS_OK) (void)ls_dev_file(l->dev, l->s.path, LS_DEV_ASSET); /* LS_ELIMIT is logged */
    return err;
}

/* Not an open file that was rewritten in its place, as its size and time of change tell. A copy in memory is whole. */
static bool is_whole(const ls_cached_file *entry)
{
    return entry->missing || entry->body != NULL || ls_shared_file_unchanged(entry->file);
}

/* ---- in the task ------------------------------------------------------------------------------------------------ */

static int run(lua_State *L, loading *l);

static int found(lua_State *L, loading *l, int err)
{
    ls_cached_file *entry = l->entry;
    l->entry = NULL;
    if (l->examine == (int)l->s.step)
        l->examine = NO_STEP; /* done; the steps before it are those of the first search */
    const int result = l->s.found(L, &l->s, entry, err);
    if (result == LS_SERVE_NEXT) return run(L, l);
    drop_file(&l->s);
    return result;
}

static int loaded(lua_State *L, int status, lua_KContext context)
{
    loading *l = (loading *)context; /* NOLINT(performance-no-int-to-ptr) */
    return found(L, l, (int)ls_task_work_result(&l->work));
}

static int run(lua_State *L, loading *l)
{
    const ls_serve *s = &l->s;
    const ls_file_key key = key_of(s);
    const bool fresh = ls_file_cache_find(l->cache, &key, ls_clock_coarse_ms(), &l->entry) == LS_CACHE_FRESH;
    if (fresh && l->examine != (int)s->step && is_whole(l->entry))
        return found(L, l, l->entry->missing ? LS_ENOENT : LS_OK);
    return ls_task_await(L, &l->work, (lua_KContext)l, loaded);
}

/* Begin again with a copy of `first`, the state before the search. */
static int load(lua_State *L, const ls_serve *first, unsigned step, size_t path_len, int examine)
{
    const ls_state *state = ls_state_of(L);
    loading *l = ls_object_push(L, sizeof *l, 0, &loading_type);
    l->work.work.run = load_file;
    l->cache = ls_file_cache_of(ls_state_runtime(state));
    l->dev = ls_dev_of(ls_state_runtime(state));
    l->examine = examine;
    ls_serve_init(&l->s, first->found, first->beneath, first->beneath_len);
    l->s.step = step;
    memcpy(l->s.path, first->path, path_len);
    l->s.path[path_len] = '\0';
    l->s.path_len = path_len;
    memcpy(l->s.codings, first->codings, sizeof first->codings);
    l->s.coding_count = first->coding_count;
    return run(L, l);
}

int ls_serve_begin(lua_State *L, ls_serve *s)
{
    ls_file_cache *cache = ls_file_cache_of(ls_state_runtime(ls_state_of(L)));
    const size_t path_len = s->path_len; /* of the first file: further paths begin with it or replace it */
    const unsigned step = s->step;
    char first[LS_SERVE_PATH_BYTES];
    bool copied = false;
    for (;;) {
        ls_cached_file *entry = NULL;
        const ls_file_key key = key_of(s);
        const enum ls_file_cache_result result = ls_file_cache_find(cache, &key, ls_clock_coarse_ms(), &entry);
        if (result != LS_CACHE_FRESH || !is_whole(entry)) {
            const int examine = result != LS_CACHE_NONE ? (int)s->step : NO_STEP;
            if (entry != NULL) ls_cached_file_drop(entry);
            drop_file(s);
            if (copied) memcpy(s->path, first, path_len);
            return load(L, s, step, path_len, examine);
        }
        if (!copied) memcpy(first, s->path, path_len);
        copied = true;
        const int count = s->found(L, s, entry, entry->missing ? LS_ENOENT : LS_OK);
        if (count != LS_SERVE_NEXT) {
            drop_file(s);
            return count;
        }
    }
}
