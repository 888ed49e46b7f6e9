/* stream_pool.c - see stream_pool.h: a hash table of entries, and a list of them by age. */
#include "net/stream/stream_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/invariant.h"
#include "base/list.h"
#include "base/os/thread.h"
#include "base/text.h"

enum { BUCKETS = 256 };

typedef struct pooled {
    ls_node age;         /* the list of all; of one that is being closed, a local list */
    bool checked;        /* a sweep is looking at the stream, without the mutex: it alone removes the entry */
    struct pooled *next; /* in the bucket, the youngest first */
    ls_stream *stream;
    uint64_t since_ms;
    uint64_t hash;
    size_t key_len;
    char key[];
} pooled;

struct ls_stream_pool {
    ls_port *port;
    ls_mutex mutex;
    ls_node all;            /* the oldest first */
    unsigned count, drains; /* drains: how often ls_stream_pool_drain was called */
    ls_timer timer;
    bool armed; /* the packet of the timer has not been handled */
    pooled *buckets[BUCKETS];
};

static bool is_of(const pooled *p, uint64_t hash, const char *key, size_t key_len)
{
    return p->hash == hash && p->key_len == key_len && memcmp(p->key, key, key_len) == 0;
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_stream_free(s);
}

/* Nothing is posted while the stream is idle, so `received` and `sent` are not called. */
static const ls_stream_handler idle_handler = {.closed = closed};

static void closed_last(ls_thread_ctx *ctx, ls_stream *s)
{
    (void)ctx; /* the port is closed: no packet of a pending close_notify follows */
}

static const ls_stream_handler last_handler = {.closed = closed_last};

/* The mutex is held. */
static void remove_entry(ls_stream_pool *pool, pooled *p)
{
    pooled **at = &pool->buckets[p->hash % BUCKETS];
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    ls_list_remove(&p->age);
    pool->count--;
}

/* The number of streams; LS_EINVAL: an entry is not in its bucket and in the order of age. The mutex is held. */
static int check_table(const ls_stream_pool *pool)
{
    unsigned count = 0, listed = 0;
    for (unsigned n = 0; n < BUCKETS; n++)
        for (const pooled *p = pool->buckets[n]; p != NULL; p = p->next, count++)
            if (p->hash % BUCKETS != n || ls_list_empty(&p->age)) return LS_EINVAL;
    for (const ls_node *node = pool->all.next; node != &pool->all; node = node->next) listed++;
    return count == pool->count && listed == count && count <= LS_STREAM_POOL_MAX ? (int)count : LS_EINVAL;
}

static void unlock(ls_stream_pool *pool)
{
    LS_INVARIANT(check_table(pool) >= 0);
    ls_mutex_unlock(&pool->mutex);
}

/* Close the streams of a list that no other thread sees. Not under the mutex: TLS sends close_notify. */
static void close_all(ls_thread_ctx *ctx, ls_node *list)
{
    LS_LIST_TAKE (pooled, p, list, age) {
        ls_stream_close(ctx, p->stream);
        free(p);
    }
}

/* ---- the timer ------------------------------------------------------------------------------------------------ */

/* Have the timer expire after a tick, unless it is armed. The mutex is held. If memory is out, the next put tries
 * again; until then ls_stream_pool_take still does not return what the peer has closed. */
static void arm(ls_stream_pool *pool)
{
    if (pool->armed || pool->count == 0) return;
    const uint64_t at_ns = ls_clock_ns() + (uint64_t)LS_STREAM_POOL_TICK_MS * 1000000u;
    pool->armed = ls_timer_set(pool->port, &pool->timer, at_ns) == LS_OK;
}

/* Whether the stream may stay. The mutex is held, but not while TLS reads. */
static bool check(ls_thread_ctx *ctx, ls_stream_pool *pool, pooled *p)
{
    const unsigned drains = pool->drains;
    p->checked = true;
    unlock(pool);
    const bool idle = ls_stream_is_idle(ctx, p->stream);
    ls_mutex_lock(&pool->mutex);
    p->checked = false;
    return idle && drains == pool->drains;
}

/* Close those that have ended, or all. */
static void sweep(ls_thread_ctx *ctx, ls_stream_pool *pool, uint64_t now_ms, bool all)
{
    ls_node ended;
    ls_node_init(&ended);
    ls_mutex_lock(&pool->mutex);
    pool->drains += all;
    for (ls_node *node = pool->all.next, *next; node != &pool->all; node = next) {
        pooled *p = LS_CONTAINER(node, pooled, age);
        const uint64_t idle_ms = now_ms > p->since_ms ? now_ms - p->since_ms : 0; /* put meanwhile by another thread */
        const bool stays = p->checked || (!all && idle_ms < LS_STREAM_POOL_IDLE_MS && check(ctx, pool, p));
        next = node->next;
        if (stays) continue;
        remove_entry(pool, p);
        ls_list_push(&ended, &p->age);
    }
    unlock(pool);
    close_all(ctx, &ended);
}

void ls_stream_pool_sweep(ls_thread_ctx *ctx, ls_stream_pool *pool, uint64_t now_ms)
{
    sweep(ctx, pool, now_ms, false);
}

static void tick(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream_pool *pool = LS_CONTAINER(op, ls_stream_pool, timer.op);
    ls_stream_pool_sweep(ctx, pool, ls_clock_coarse_ms());
    ls_mutex_lock(&pool->mutex);
    pool->armed = false;
    arm(pool);
    unlock(pool);
}

/* ---- open, close, put, take ------------------------------------------------------------------------------------ */

int ls_stream_pool_open(ls_port *port, ls_stream_pool **out)
{
    ls_stream_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return LS_ENOMEM;
    ls_mutex_open(&pool->mutex);
    pool->port = port;
    pool->timer.op.done = tick;
    ls_node_init(&pool->all);
    *out = pool;
    return LS_OK;
}

void ls_stream_pool_drain(ls_thread_ctx *ctx, ls_stream_pool *pool)
{
    sweep(ctx, pool, 0, true);
}

void ls_stream_pool_disconnect(ls_thread_ctx *ctx, ls_stream_pool *pool)
{
    LS_LIST_EACH (pooled, p, &pool->all, age) {
        ls_stream_handover(p->stream, &last_handler);
        ls_stream_close(ctx, p->stream);
    }
}

void ls_stream_pool_close(ls_stream_pool *pool)
{
    LS_LIST_TAKE (pooled, p, &pool->all, age) {
        ls_stream_free(p->stream);
        free(p);
    }
    ls_mutex_close(&pool->mutex);
    free(pool);
}

/* Put it into the table; what exceeds a limit goes to `extra`. The mutex is held. */
static void add(ls_stream_pool *pool, pooled *p, ls_node *extra)
{
    unsigned same = 0;
    pooled **const bucket = &pool->buckets[p->hash % BUCKETS];
    for (const pooled *other = *bucket; other != NULL; other = other->next)
        same += is_of(other, p->hash, p->key, p->key_len);
    if (same >= LS_STREAM_POOL_ORIGIN_MAX) {
        ls_list_push(extra, &p->age);
        return;
    }
    p->next = *bucket;
    *bucket = p;
    ls_list_push(&pool->all, &p->age);
    if (++pool->count <= LS_STREAM_POOL_MAX) return;
    pooled *oldest = LS_CONTAINER(pool->all.next, pooled, age);
    while (oldest->checked) oldest = LS_CONTAINER(oldest->age.next, pooled, age); /* at least the new one is not */
    remove_entry(pool, oldest);
    ls_list_push(extra, &oldest->age);
}

void ls_stream_pool_put(ls_thread_ctx *ctx, ls_stream_pool *pool, const char *key, size_t key_len, ls_stream *s)
{
    pooled *p = malloc(sizeof *p + key_len);
    ls_node extra;
    ls_node_init(&extra);
    ls_stream_recv_within(s, 0);
    ls_stream_send_within(s, 0);
    ls_stream_set_actor(s, NULL);
    ls_stream_handover(s, &idle_handler);
    if (p == NULL) {
        ls_stream_close(ctx, s);
        return;
    }
    *p = (pooled){
        .stream = s, .since_ms = ls_clock_coarse_ms(), .hash = ls_text_hash(key, key_len), .key_len = key_len};
    ls_node_init(&p->age);
    memcpy(p->key, key, key_len);
    ls_mutex_lock(&pool->mutex);
    add(pool, p, &extra);
    arm(pool);
    unlock(pool);
    close_all(ctx, &extra);
}

/* The youngest of the origin that no sweep is looking at, removed from the table; NULL: none. */
static pooled *take_any(ls_stream_pool *pool, uint64_t hash, const char *key, size_t key_len)
{
    ls_mutex_lock(&pool->mutex);
    pooled *p = pool->buckets[hash % BUCKETS];
    while (p != NULL && (p->checked || !is_of(p, hash, key, key_len))) p = p->next;
    if (p != NULL) remove_entry(pool, p);
    unlock(pool);
    return p;
}

ls_stream *ls_stream_pool_take(ls_thread_ctx *ctx, ls_stream_pool *pool, const char *key, size_t key_len, bool repeats)
{
    const uint64_t hash = ls_text_hash(key, key_len);
    pooled *p;
    while ((p = take_any(pool, hash, key, key_len)) != NULL) {
        ls_stream *s = p->stream;
        free(p);
        if ((repeats && ls_stream_is_silent(s)) || ls_stream_is_idle(ctx, s)) return s;
        ls_stream_close(ctx, s);
    }
    return NULL;
}

int ls_stream_pool_check(ls_stream_pool *pool)
{
    ls_mutex_lock(&pool->mutex);
    const int count = check_table(pool);
    ls_mutex_unlock(&pool->mutex);
    return count;
}
