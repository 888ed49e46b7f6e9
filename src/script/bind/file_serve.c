/* file_serve.c - see file_serve.h.
 *
 * The usual request finds fresh entries: a look-up, and no memory of Lua. Otherwise a `loading` object is made, which
 * holds the operation and every reference, so that an error or the end of the task releases them:
 *
 *     look up --> fresh ------------------------------------------> found
 *            \--> stale --> stat --> the same ---------------------> found
 *            |                 \--> another one, or none --\
 *            \--> none ------------------------------------> open --> (read) --> put into the cache --> found
 *
 * While an operation is pending the task is suspended and keeps the object alive; closing the port ends pending
 * operations before it returns. A stale entry is examined by the one that found it; so when the first search ends at
 * one, the second one must take it for stale again: `examine`. */
#include "script/bind/file_serve.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "port/file.h"
#include "script/bind/modules.h"
#include "script/core/cpu_poll.h"
#include "script/core/udata.h"

enum { OPENS_MAX = 3, NO_STEP = -1 }; /* a file that changes each time while it is read is given up */

typedef struct loading {
    ls_serve s;
    ls_file_op op;
    ls_task *task;         /* waits for op */
    ls_cached_file *entry; /* stale, or being filled */
    ls_shared_file *shared;
    unsigned opens;
    int examine; /* the step whose entry is stale */
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

static void drop_shared(loading *l)
{
    if (l->shared != NULL) ls_shared_file_drop(l->shared);
    l->shared = NULL;
}

static int loading_drop(lua_State *L)
{
    loading *l = lua_touserdata(L, 1);
    if (l->op.shared != NULL) ls_shared_file_drop(l->op.shared); /* the task ended before it took it */
    l->op.shared = NULL;
    drop_shared(l);
    drop_entry(l);
    drop_file(&l->s);
    return 0;
}

static void loading_done(ls_thread_ctx *ctx, ls_op *op)
{
    loading *l = LS_CONTAINER(op, loading, op.op);
    ls_task_wake(ctx, l->task, LS_OK);
}

static int run(lua_State *L, loading *l);

static ls_cached_file *take_entry(loading *l)
{
    ls_cached_file *entry = l->entry;
    l->entry = NULL;
    return entry;
}

static int found(lua_State *L, loading *l, int err)
{
    ls_cached_file *entry = take_entry(l);
    if (l->examine == (int)l->s.step)
        l->examine = NO_STEP; /* done; the steps before it are those of the first search */
    const int result = l->s.found(L, &l->s, entry, err);
    if (result == LS_SERVE_NEXT) return run(L, l);
    drop_file(&l->s);
    return result;
}

static int wait_for_op(lua_State *L, loading *l, int posted, lua_KFunction k)
{
    if (posted < 0) {
        drop_entry(l);
        drop_shared(l);
        return found(L, l, posted);
    }
    l->task = ls_state_of(L)->current;
    l->task->held = true;
    return ls_task_suspend(L, (lua_KContext)l, k);
}

static int64_t result_of(const loading *l)
{
    return atomic_load_explicit(&l->op.op.result, memory_order_relaxed);
}

static int open_file(lua_State *L, loading *l);

/* The entry is complete. */
static int keep(lua_State *L, loading *l, int err)
{
    ls_file_cache_put(ls_state_runtime(ls_state_of(L))->files, l->entry, ls_clock_coarse_ms());
    drop_shared(l);
    return found(L, l, err);
}

static int read_done(lua_State *L, int status, lua_KContext context)
{
    loading *l = (loading *)context; /* NOLINT(performance-no-int-to-ptr) */
    const int64_t n = result_of(l);
    (void)status;
    if (n >= 0 && (uint64_t)n == l->entry->info.bytes && ls_shared_file_unchanged(l->shared)) return keep(L, l, LS_OK);
    drop_entry(l);
    drop_shared(l);
    if (n < 0) return found(L, l, (int)n);
    return l->opens < OPENS_MAX ? open_file(L, l) : found(L, l, LS_ECHANGED);
}

/* There is no file at the path. */
static int is_missing(lua_State *L, loading *l)
{
    const ls_file_key key = key_of(&l->s);
    if (!l->s.keep_missing || (l->entry = ls_cached_file_make(&key, NULL)) == NULL) return found(L, l, LS_ENOENT);
    return keep(L, l, LS_ENOENT);
}

static int open_done(lua_State *L, int status, lua_KContext context)
{
    loading *l = (loading *)context; /* NOLINT(performance-no-int-to-ptr) */
    const int err = (int)result_of(l);
    (void)status;
    if (err == LS_ENOENT) return is_missing(L, l);
    if (err < 0) return found(L, l, err);
    l->shared = l->op.shared;
    l->op.shared = NULL;
    const ls_file_key key = key_of(&l->s);
    l->entry = ls_cached_file_make(&key, l->shared);
    if (l->entry == NULL) {
        drop_shared(l);
        return found(L, l, LS_ENOMEM);
    }
    if (l->entry->body == NULL || l->entry->info.bytes == 0) return keep(L, l, LS_OK);
    const uint32_t len = (uint32_t)l->entry->info.bytes;
    ls_cpu_poll(L);
    return wait_for_op(L, l, ls_file_read(ls_state_of(L)->ctx, &l->op, l->shared->fd, l->entry->body, len, 0),
                       read_done);
}

static int open_file(lua_State *L, loading *l)
{
    l->opens++;
    ls_cpu_poll(L); /* before an operation refers to a task that was told to end */
    return wait_for_op(L, l, ls_file_open_shared(ls_state_of(L)->ctx, &l->op, l->s.path, l->s.beneath), open_done);
}

static int stat_done(lua_State *L, int status, lua_KContext context)
{
    loading *l = (loading *)context; /* NOLINT(performance-no-int-to-ptr) */
    const int err = (int)result_of(l);
    (void)status;
    if (err == LS_OK && ls_cached_file_is(l->entry, &l->op.info)) return found(L, l, LS_OK);
    if (err == LS_ENOENT && l->entry->missing) return found(L, l, LS_ENOENT);
    ls_file_cache_remove(ls_state_runtime(ls_state_of(L))->files, l->entry);
    drop_entry(l);
    return open_file(L, l);
}

static int run(lua_State *L, loading *l)
{
    ls_file_cache *cache = ls_state_runtime(ls_state_of(L))->files;
    const ls_serve *s = &l->s;
    const ls_file_key key = key_of(s);
    l->opens = 0;
    ls_cpu_poll(L);
    enum ls_file_cache_result result = ls_file_cache_find(cache, &key, ls_clock_coarse_ms(), &l->entry);
    if (result == LS_CACHE_FRESH && l->examine == (int)s->step) result = LS_CACHE_STALE;
    switch (result) {
    case LS_CACHE_FRESH: return found(L, l, l->entry->missing ? LS_ENOENT : LS_OK);
    case LS_CACHE_STALE: return wait_for_op(L, l, ls_file_stat(ls_state_of(L)->ctx, &l->op, s->path), stat_done);
    default: return open_file(L, l);
    }
}

/* Begin again with a copy of `first`, the state before the search. */
static int load(lua_State *L, const ls_serve *first, unsigned step, size_t path_len, int examine)
{
    ls_state *state = ls_state_of(L);
    ls_task_may_wait(L);
    loading *l = lua_newuserdatauv(L, sizeof *l, 0);
    l->op = (ls_file_op){.op = {.done = loading_done, .actor = &state->actor}, .fd = LS_FD_NONE};
    l->entry = NULL;
    l->shared = NULL;
    l->examine = examine;
    ls_serve_init(&l->s, first->found, first->beneath, first->beneath_len);
    l->s.step = step;
    memcpy(l->s.path, first->path, path_len);
    l->s.path[path_len] = '\0';
    l->s.path_len = path_len;
    memcpy(l->s.codings, first->codings, sizeof first->codings);
    l->s.coding_count = first->coding_count;
    lua_rawgeti(L, LUA_REGISTRYINDEX, *(int *)ls_state_data(state, LS_SLOT_serve));
    lua_setmetatable(L, -2);
    return run(L, l);
}

int ls_serve_begin(lua_State *L, ls_serve *s)
{
    ls_file_cache *cache = ls_state_runtime(ls_state_of(L))->files;
    const size_t path_len = s->path_len; /* of the first file: further paths begin with it or replace it */
    const unsigned step = s->step;
    char first[LS_SERVE_PATH_BYTES];
    bool copied = false;
    for (;;) {
        ls_cached_file *entry = NULL;
        const ls_file_key key = key_of(s);
        const enum ls_file_cache_result result = ls_file_cache_find(cache, &key, ls_clock_coarse_ms(), &entry);
        if (result != LS_CACHE_FRESH) {
            const int examine = result == LS_CACHE_STALE ? (int)s->step : NO_STEP;
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

static void serve_define(lua_State *L, ls_state *state)
{
    static const luaL_Reg meta[] = {{"__gc", loading_drop}, {NULL, NULL}};
    luaL_newlib(L, meta);
    *(int *)ls_state_data(state, LS_SLOT_serve) = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* The data: the reference of the metatable of `loading`. */
const ls_module ls_serve_module = {.name = "serve", .bytes = sizeof(int), .define = serve_define};
