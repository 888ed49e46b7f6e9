/* test_dict_threads.c - four threads on one dict. Their operations are recorded with the times at which they began and
 * ended; the history of each key must be linearizable: there is an order of its operations, in which each comes at
 * some time between its begin and its end, that gives one thread the same results (Wing and Gong, 1993). */
#include "support.h"

#include "base/clock.h"
#include "base/os/thread.h"
#include "script/store/dict.h"

enum { THREADS = 4, ROUNDS = 150, OPERATIONS = 12, KEYS = 3, HISTORY_MAX = THREADS * OPERATIONS, INCREMENTS = 2000 };

enum kind { GET, SET, ADD, DELETE, INCR, KINDS };

typedef struct operation {
    uint64_t begin_ns, end_ns;
    uint8_t kind, key;
    int64_t argument, result; /* result: -1: no entry, or refused */
} operation;

typedef struct shared {
    ls_dict *dict;
    ls_mutex lock;
    ls_cond all_arrived;
    unsigned arrived; /* calls of meet() */
    operation history[THREADS][OPERATIONS];
} shared;

typedef struct worker {
    shared *shared;
    unsigned index;
    uint64_t random;
} worker;

static uint64_t next_random(uint64_t *state) /* xorshift64 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static ls_dict *open_dict(ls_shared **registry, uint64_t bytes_max)
{
    const ls_dict_options options = {.bytes_max = bytes_max, .evict = true};
    ls_shared_object *object = NULL;
    char before[LS_SHARED_WHERE_BYTES];
    assert_int_equal(ls_shared_open(registry), LS_OK);
    assert_int_equal(ls_shared_get(*registry, &ls_dict_kind, "d", "?", &options, &object, before), LS_OK);
    return (ls_dict *)(void *)object;
}

static ls_dict_value integer(int64_t n)
{
    return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = n};
}

/* Wait until all threads have come here. */
static void meet(shared *s)
{
    ls_mutex_lock(&s->lock);
    const unsigned wanted = (s->arrived++ / THREADS + 1) * THREADS;
    if (s->arrived == wanted) ls_cond_broadcast(&s->all_arrived);
    while (s->arrived < wanted) ls_cond_wait(&s->all_arrived, &s->lock);
    ls_mutex_unlock(&s->lock);
}

static void start_and_join(worker workers[THREADS], ls_thread_fn *fn)
{
    ls_thread threads[THREADS];
    for (unsigned n = 0; n < THREADS; n++)
        assert_int_equal(ls_thread_start(&threads[n], "dict", fn, &workers[n]), LS_OK);
    for (unsigned n = 0; n < THREADS; n++) ls_thread_join(&threads[n]);
}

/* ---- histories --------------------------------------------------------------------------------------------- */

static void run_operation(ls_dict *dict, operation *o)
{
    const ls_dict_key key = {.integer = o->key};
    ls_dict_value value = integer(-1);
    o->begin_ns = ls_clock_ns();
    switch (o->kind) {
    case GET: o->result = ls_dict_get(dict, &key, &value, NULL) ? value.as.integer : -1; break;
    case SET: o->result = ls_dict_set(dict, &key, integer(o->argument), LS_DICT_SET, 0, 0); break;
    case ADD: o->result = ls_dict_set(dict, &key, integer(o->argument), LS_DICT_ADD, 0, 0) == LS_OK ? 0 : -1; break;
    case DELETE: o->result = ls_dict_remove(dict, &key) ? 0 : -1; break;
    default:
        o->result = ls_dict_incr(dict, &key, integer(1), integer(0), 0, &value) == LS_OK ? value.as.integer : -2;
        break;
    }
    o->end_ns = ls_clock_ns();
}

/* Whether one thread gets this result for a key with `value` (-1: no entry); *value receives the new one. */
static bool gives(const operation *o, int64_t *value)
{
    const int64_t before = *value;
    switch (o->kind) {
    case GET: return o->result == before;
    case SET: *value = o->argument; return o->result == 0;
    case ADD:
        if (before < 0) *value = o->argument;
        return o->result == (before < 0 ? 0 : -1);
    case DELETE: *value = -1; return o->result == (before < 0 ? -1 : 0);
    default: *value = before < 0 ? 1 : before + 1; return o->result == *value;
    }
}

/* Whether the operations that are not in `done` can follow, for a key with `value`. */
static bool is_linearizable(operation *const *history, unsigned count, uint64_t done, int64_t value)
{
    uint64_t first_end_ns = UINT64_MAX;
    if (done == ((uint64_t)1 << count) - 1) return true;
    for (unsigned n = 0; n < count; n++) {
        if (!(done >> n & 1) && history[n]->end_ns < first_end_ns) first_end_ns = history[n]->end_ns;
    }
    for (unsigned n = 0; n < count; n++) {
        int64_t after = value;
        if (done >> n & 1 || history[n]->begin_ns > first_end_ns) continue; /* another one ended before it began */
        if (gives(history[n], &after) && is_linearizable(history, count, done | (uint64_t)1 << n, after)) return true;
    }
    return false;
}

TEST(the_checker_finds_wrong_histories)
{
    operation a = {.begin_ns = 0, .end_ns = 10, .kind = SET, .argument = 5},
              b = {.begin_ns = 5, .end_ns = 15, .kind = GET, .result = -1},
              c = {.begin_ns = 20, .end_ns = 30, .kind = INCR, .result = 6};
    operation *history[] = {&a, &b, &c};
    assert_true(is_linearizable(history, 3, 0, -1)); /* the read overlaps the write */
    b.result = 5;
    assert_true(is_linearizable(history, 3, 0, -1));
    c.result = 7; /* a lost or double increment */
    assert_false(is_linearizable(history, 3, 0, -1));
    c.result = 6;
    b.begin_ns = 11; /* a stale read */
    b.result = -1;
    assert_false(is_linearizable(history, 3, 0, -1));
}

static void history_worker(void *arg)
{
    worker *w = arg;
    shared *s = w->shared;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned n = 0; n < OPERATIONS; n++) {
            operation *o = &s->history[w->index][n];
            *o = (operation){.kind = (uint8_t)(next_random(&w->random) % KINDS),
                             .key = (uint8_t)(next_random(&w->random) % KEYS),
                             .argument = (int64_t)(next_random(&w->random) % 1000)};
        }
        meet(s);
        for (unsigned n = 0; n < OPERATIONS; n++) run_operation(s->dict, &s->history[w->index][n]);
        meet(s);
        if (w->index == 0) {
            for (unsigned key = 0; key < KEYS; key++) {
                operation *history[HISTORY_MAX];
                unsigned count = 0;
                for (unsigned n = 0; n < HISTORY_MAX; n++) {
                    operation *o = &s->history[n / OPERATIONS][n % OPERATIONS];
                    if (o->key == key) history[count++] = o;
                }
                if (!is_linearizable(history, count, 0, -1)) abort(); /* assertions of cmocka need its thread */
            }
            ls_dict_clear(s->dict);
        }
        meet(s);
    }
}

TEST(histories_are_linearizable)
{
    shared *s = calloc(1, sizeof *s);
    worker workers[THREADS];
    ls_shared *registry;
    assert_non_null(s);
    s->dict = open_dict(&registry, 1 << 20);
    ls_mutex_open(&s->lock);
    ls_cond_open(&s->all_arrived);
    for (unsigned n = 0; n < THREADS; n++) workers[n] = (worker){s, n, 0x9e3779b97f4a7c15 * (n + 1)};
    start_and_join(workers, history_worker);
    ls_cond_close(&s->all_arrived);
    ls_mutex_close(&s->lock);
    ls_shared_close(registry);
    free(s);
}

/* ---- compare-and-swap, lists, iteration and eviction at the same time ---------------------------------------- */

static void swap_worker(void *arg)
{
    const worker *w = arg;
    const ls_dict_key key = {.bytes = "counter", .len = 7};
    for (unsigned n = 0; n < INCREMENTS; n++) {
        for (;;) {
            ls_dict_value value = integer(0);
            uint64_t version;
            (void)ls_dict_get(w->shared->dict, &key, &value, &version);
            value.as.integer++;
            const int err = ls_dict_set(w->shared->dict, &key, value, LS_DICT_SWAP, 0, version);
            if (err == LS_OK) break;
            if (err != LS_EAGAIN) abort();
        }
    }
}

TEST(no_swap_is_lost)
{
    const ls_dict_key key = {.bytes = "counter", .len = 7};
    shared s = {0};
    worker workers[THREADS];
    ls_shared *registry;
    ls_dict_value value;
    s.dict = open_dict(&registry, 1 << 20);
    for (unsigned n = 0; n < THREADS; n++) workers[n] = (worker){&s, n, n + 1};
    start_and_join(workers, swap_worker);
    assert_true(ls_dict_get(s.dict, &key, &value, NULL));
    assert_int_equal(value.as.integer, THREADS * INCREMENTS);
    ls_shared_close(registry);
}

static void list_worker(void *arg)
{
    const worker *w = arg;
    const ls_dict_key key = {.bytes = "queue", .len = 5}, sum = {.bytes = "sum", .len = 3};
    for (unsigned n = 0; n < INCREMENTS; n++) {
        ls_dict_value value = integer(1), out;
        size_t len;
        if (w->index % 2 == 0) {
            if (ls_dict_push(w->shared->dict, &key, &value, 1, n % 2 == 0, &len) != LS_OK) abort();
        } else {
            while (ls_dict_pop(w->shared->dict, &key, n % 2 == 0, &value) == LS_ENOENT) {
                /* the other threads are about to push */
            }
            if (ls_dict_incr(w->shared->dict, &sum, value, integer(0), 0, &out) != LS_OK) abort();
        }
    }
}

TEST(every_value_of_a_list_comes_out_once)
{
    const ls_dict_key key = {.bytes = "queue", .len = 5}, sum = {.bytes = "sum", .len = 3};
    shared s = {0};
    worker workers[THREADS];
    ls_shared *registry;
    ls_dict_value value;
    s.dict = open_dict(&registry, 4 << 20);
    for (unsigned n = 0; n < THREADS; n++) workers[n] = (worker){&s, n, n + 1};
    start_and_join(workers, list_worker);
    assert_false(ls_dict_get(s.dict, &key, &value, NULL));
    assert_true(ls_dict_get(s.dict, &sum, &value, NULL));
    assert_int_equal(value.as.integer, THREADS / 2 * INCREMENTS);
    ls_shared_close(registry);
}

static void mixed_worker(void *arg)
{
    worker *w = arg;
    ls_dict_items items = {0};
    for (unsigned n = 0; n < INCREMENTS; n++) {
        const uint64_t random = next_random(&w->random);
        const ls_dict_key key = {.integer = (int64_t)(random % 500)};
        char bytes[300] = {0};
        ls_dict_value value;
        uint64_t cursor = 0;
        if (random >> 32 & 1) {
            value = (ls_dict_value){.type = LS_DICT_VALUE, .as.value = ls_value_string(bytes, random % sizeof bytes)};
            if (value.as.value == NULL) abort();
            if (ls_dict_set(w->shared->dict, &key, value, LS_DICT_SET, random >> 33 & 1, 0) != LS_OK) abort();
        } else if (random >> 34 & 1) {
            if (ls_dict_get(w->shared->dict, &key, &value, NULL)) ls_dict_value_drop(&value);
        } else if (random >> 35 & 15) {
            (void)ls_dict_remove(w->shared->dict, &key);
        } else {
            do {
                if (ls_dict_scan(w->shared->dict, &cursor, true, &items) != LS_OK) abort();
            } while (cursor != 0);
            (void)ls_dict_count(w->shared->dict);
        }
        if (ls_dict_bytes(w->shared->dict) > 65536) abort();
    }
    ls_dict_items_drop(&items);
}

/* The dict is full most of the time, and entries expire. */
TEST(bytes_are_exact_after_all)
{
    shared s = {0};
    worker workers[THREADS];
    ls_shared *registry;
    s.dict = open_dict(&registry, 65536);
    for (unsigned n = 0; n < THREADS; n++) workers[n] = (worker){&s, n, 0x9e3779b97f4a7c15 * (n + 1)};
    start_and_join(workers, mixed_worker);
    ls_dict_clear(s.dict);
    assert_int_equal(ls_dict_bytes(s.dict), 0);
    assert_int_equal(ls_dict_count(s.dict), 0);
    ls_shared_close(registry);
}
