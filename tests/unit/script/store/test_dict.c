/* test_dict.c - one thread: entries, expiry, memory, eviction, lists, iteration. test_dict_threads.c has many
 * threads. */
/* sanitizers: asan; no thread starts */
#include "script/memory_fixture.h"

#include "base/clock.h"
#include "script/store/dict_internal.h"

/* ---- time: the program is linked with --wrap=ls_clock_coarse_ms --------------------------------------------- */

static uint64_t now_ms = 1000;

uint64_t __wrap_ls_clock_coarse_ms(void) /* NOLINT */
{
    return now_ms;
}

/* ---- helpers ----------------------------------------------------------------------------------------------- */

typedef struct fixture {
    ls_shared *shared;
    ls_dict *dict;
} fixture;

static void fixture_open(fixture *f, uint64_t bytes_max, bool evict)
{
    const ls_dict_options options = {.bytes_max = bytes_max, .evict = evict};
    ls_shared_object *object = NULL;
    char before[LS_SHARED_WHERE_BYTES];
    assert_int_equal(ls_shared_open(&f->shared), LS_OK);
    assert_int_equal(ls_shared_get(f->shared, &ls_dict_kind, "d", "site.lua:1", &options, &object, before), LS_OK);
    f->dict = (ls_dict *)(void *)object;
}

static void fixture_close(fixture *f)
{
    assert_true(ls_dict_check(f->dict));
    ls_dict_clear(f->dict);
    assert_int_equal(ls_dict_bytes(f->dict), 0); /* the account of bytes is exact */
    ls_shared_close(f->shared);
}

static ls_dict_key key_of(const char *text)
{
    return (ls_dict_key){.bytes = text, .len = strlen(text)};
}

static ls_dict_value integer(int64_t n)
{
    return (ls_dict_value){.type = LS_DICT_INTEGER, .as.integer = n};
}

static ls_dict_value text_of(size_t len)
{
    static char bytes[70000];
    ls_value *value = ls_value_string(bytes, len);
    assert_non_null(value);
    return (ls_dict_value){.type = LS_DICT_VALUE, .as.value = value};
}

static int set(ls_dict *d, const char *key, ls_dict_value value)
{
    const ls_dict_key k = key_of(key);
    return ls_dict_set(d, &k, value, LS_DICT_SET, 0, 0);
}

static bool has(ls_dict *d, const char *key)
{
    const ls_dict_key k = key_of(key);
    uint64_t ms;
    return ls_dict_ttl(d, &k, &ms); /* does not count as a use */
}

static int64_t get(ls_dict *d, const char *key)
{
    const ls_dict_key k = key_of(key);
    ls_dict_value value;
    if (!ls_dict_get(d, &k, &value, NULL)) return -1;
    assert_int_equal(value.type, LS_DICT_INTEGER);
    return value.as.integer;
}

/* ---- entries ----------------------------------------------------------------------------------------------- */

TEST_IN(fixture, f, keys_of_both_types, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key number = {.integer = 0x3131313131313131}, same_bytes = {.bytes = "11111111", .len = 8};
    const ls_dict_key empty = {.bytes = "", .len = 0};
    ls_dict_value value;
    assert_int_equal(ls_dict_set(d, &number, integer(1), LS_DICT_SET, 0, 0), LS_OK);
    assert_int_equal(ls_dict_set(d, &same_bytes, integer(2), LS_DICT_SET, 0, 0), LS_OK);
    assert_int_equal(ls_dict_set(d, &empty, integer(3), LS_DICT_SET, 0, 0), LS_OK);
    assert_int_equal(ls_dict_count(d), 3);
    d->shards[0].expiring++;
    assert_false(ls_dict_check(d));
    d->shards[0].expiring--;
    ls_dict_release(d, 1);
    assert_false(ls_dict_check(d));
    assert_true(ls_dict_reserve(d, 1));
    assert_true(ls_dict_get(d, &number, &value, NULL) && value.as.integer == 1);
    assert_true(ls_dict_get(d, &same_bytes, &value, NULL) && value.as.integer == 2);
    assert_true(ls_dict_get(d, &empty, &value, NULL) && value.as.integer == 3);
    assert_true(ls_dict_remove(d, &number));
    assert_false(ls_dict_remove(d, &number));
}

TEST_IN(fixture, f, the_modes_of_set, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k");
    ls_dict_value value;
    uint64_t version;
    assert_int_equal(ls_dict_set(d, &k, text_of(5), LS_DICT_REPLACE, 0, 0), LS_ENOENT);
    assert_int_equal(ls_dict_set(d, &k, integer(1), LS_DICT_SWAP, 0, 7), LS_EAGAIN);
    assert_int_equal(ls_dict_set(d, &k, integer(1), LS_DICT_SWAP, 0, LS_DICT_ABSENT), LS_OK);
    assert_int_equal(ls_dict_set(d, &k, text_of(5), LS_DICT_ADD, 0, 0), LS_EEXIST);
    assert_int_equal(ls_dict_set(d, &k, integer(2), LS_DICT_REPLACE, 0, 0), LS_OK);
    assert_true(ls_dict_get(d, &k, &value, &version));
    assert_int_equal(ls_dict_set(d, &k, integer(3), LS_DICT_SWAP, 0, version), LS_OK);
    assert_int_equal(ls_dict_set(d, &k, text_of(9), LS_DICT_SWAP, 0, version), LS_EAGAIN);
    assert_int_equal(get(d, "k"), 3);
    assert_true(ls_dict_get(d, &k, &value, &version));
    assert_true(ls_dict_remove(d, &k)); /* an entry that was removed and made again has another version */
    assert_int_equal(set(d, "k", integer(3)), LS_OK);
    assert_int_equal(ls_dict_set(d, &k, integer(4), LS_DICT_SWAP, 0, version), LS_EAGAIN);
    assert_int_equal(set(d, "k", (ls_dict_value){.type = LS_DICT_NIL}), LS_OK);
    assert_false(has(d, "k"));
}

TEST_IN(fixture, f, a_value_outlives_its_entry, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k");
    ls_dict_value value;
    assert_int_equal(set(d, "k", text_of(1000)), LS_OK);
    assert_true(ls_dict_get(d, &k, &value, NULL));
    assert_true(ls_dict_remove(d, &k));
    assert_true(ls_value_bytes(value.as.value) > 1000);
    ls_dict_value_drop(&value);
}

TEST_IN(fixture, f, incr, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k"), s = key_of("s"), x = key_of("x");
    const ls_dict_value none = {.type = LS_DICT_NIL}, half = {.type = LS_DICT_FLOAT, .as.number = 0.5};
    ls_dict_value sum;
    uint64_t ms;
    assert_int_equal(ls_dict_incr(d, &k, integer(1), none, 0, &sum), LS_ENOENT);
    assert_int_equal(ls_dict_incr(d, &k, integer(1), integer(10), 5000, &sum), LS_OK);
    assert_int_equal(sum.as.integer, 11);
    assert_int_equal(ls_dict_incr(d, &k, integer(-20), integer(0), 0, &sum), LS_OK);
    assert_int_equal(sum.as.integer, -9);
    assert_true(ls_dict_ttl(d, &k, &ms) && ms == 5000); /* of the new entry; later calls leave it */
    assert_int_equal(ls_dict_incr(d, &k, half, integer(0), 0, &sum), LS_OK);
    assert_true(sum.type == LS_DICT_FLOAT && sum.as.number == -8.5);
    assert_int_equal(set(d, "s", text_of(3)), LS_OK);
    assert_int_equal(ls_dict_incr(d, &s, integer(1), integer(0), 0, &sum), LS_EINVAL);
    assert_int_equal(sum.type, LS_DICT_VALUE);
    assert_int_equal(set(d, "x", integer(INT64_MAX - 1)), LS_OK);
    assert_int_equal(ls_dict_incr(d, &x, integer(1), integer(0), 0, &sum), LS_OK);
    assert_int_equal(ls_dict_incr(d, &x, integer(1), integer(0), 0, &sum), LS_EINVAL);
    assert_true(sum.type == LS_DICT_INTEGER && get(d, "x") == INT64_MAX);
    assert_int_equal(set(d, "x", integer(INT64_MIN)), LS_OK);
    assert_int_equal(ls_dict_incr(d, &x, integer(-1), integer(0), 0, &sum), LS_EINVAL);
    assert_int_equal(ls_dict_incr(d, &x, integer(0), integer(0), 0, &sum), LS_OK);
}

/* ---- expiry ------------------------------------------------------------------------------------------------ */

static double take(ls_dict *d, const char *key, double now, double token, double full)
{
    const ls_dict_key k = key_of(key);
    double wait = -1;
    assert_int_equal(ls_dict_take(d, &k, &(ls_dict_bucket){now, token, full}, &wait), LS_OK);
    return wait;
}

TEST_IN(fixture, f, a_bucket_is_emptied_and_fills_again, 1 << 20, true)
{
    ls_dict *d = f->dict;
    ls_dict_value value;
    const ls_dict_key k = key_of("k");
    for (int n = 0; n < 3; n++) assert_true(take(d, "k", 1000, 20, 60) == 0);
    for (int n = 0; n < 2; n++) assert_true(take(d, "k", 1000, 20, 60) == 20); /* a refusal takes no token */
    assert_true(ls_dict_get(d, &k, &value, NULL) && value.type == LS_DICT_FLOAT && value.as.number == 1060);
    assert_true(take(d, "k", 1019.5, 20, 60) == 0.5);
    assert_true(take(d, "k", 1020, 20, 60) == 0);
    assert_true(take(d, "k", 1020, 20, 60) == 20);
    for (int n = 0; n < 3; n++) assert_true(take(d, "k", 9000, 20, 60) == 0); /* full, not more */
    assert_true(take(d, "k", 9000, 20, 60) == 20);
    assert_true(take(d, "other", 9000, 20, 20) == 0);
    uint64_t ms = 0;
    assert_true(take(d, "k", 60, 20, 60) == 0); /* after a reboot the clock begins anew */
    assert_true(ls_dict_ttl(d, &(ls_dict_key){.bytes = "k", .len = 1}, &ms) && ms > 19000 && ms <= 20000);
    assert_true(take(d, "other", 9000, 20, 20) == 20);
}

TEST_IN(fixture, f, a_bucket_that_a_thread_with_a_later_time_has_emptied, 1 << 20, true)
{
    ls_dict *d = f->dict;
    for (int n = 0; n < 3; n++) assert_true(take(d, "k", 1010, 20, 60) == 0);
    assert_true(take(d, "k", 1009.5, 20, 60) == 20.5);
    assert_true(take(d, "k", 1000, 20, 60) == 30);
    assert_true(take(d, "k", 999.5, 20, 60) == 0); /* so much later is the time of another clock */
}

TEST_IN(fixture, f, a_bucket_keeps_its_rate_over_a_long_time, 1 << 20, true)
{
    ls_dict *d = f->dict;
    int passed = 0;
    for (int n = 1; n <= 10000; n++) passed += take(d, "k", 1e6 + n * 0.01, 0.1, 0.1) == 0; /* 100 in a second */
    assert_in_range(passed, 999, 1001);
}

TEST_IN(fixture, f, a_bucket_in_place_of_another_value, 1 << 20, true)
{
    ls_dict *d = f->dict;
    assert_int_equal(set(d, "k", text_of(1000)), LS_OK);
    assert_true(take(d, "k", 1000, 1, 1) == 0);
    assert_true(take(d, "k", 1000, 1, 1) == 1);
    assert_int_equal(set(d, "k", integer(2000)), LS_OK);
    assert_true(take(d, "k", 1000, 1, 1) == 0);
}

TEST(buckets_in_a_dict_that_is_full)
{
    for (int evict = 0; evict <= 1; evict++) {
        fixture f;
        const ls_dict_key a = key_of("a"), b = key_of("b");
        const ls_dict_bucket bucket = {.now = 1000, .token = 1, .full = 1};
        const ls_dict_value number = {.type = LS_DICT_FLOAT};
        const size_t bytes = ls_dict_entry_bytes(&a, &number);
        double wait = 0;
        fixture_open(&f, bytes, evict);
        ls_dict *d = f.dict;
        assert_int_equal(ls_dict_take(d, &a, &bucket, &wait), LS_OK);
        assert_int_equal(ls_dict_take(d, &b, &bucket, &wait), evict ? LS_OK : LS_ELIMIT);
        assert_int_equal(has(d, "a"), !evict);
        fixture_close(&f);
        fixture_open(&f, bytes - 1, evict);
        d = f.dict;
        assert_int_equal(ls_dict_take(d, &a, &bucket, &wait), LS_EMSGSIZE);
        fixture_close(&f);
    }
}

TEST_IN(fixture, f, entries_expire, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k");
    uint64_t ms;
    assert_int_equal(ls_dict_set(d, &k, integer(1), LS_DICT_SET, 100, 0), LS_OK);
    now_ms += 99;
    assert_true(ls_dict_ttl(d, &k, &ms) && ms == 1);
    assert_int_equal(get(d, "k"), 1);
    now_ms += 1;
    assert_false(ls_dict_ttl(d, &k, &ms));
    assert_false(ls_dict_expire(d, &k, 50));
    assert_int_equal(ls_dict_count(d), 0);
    assert_int_equal(ls_dict_set(d, &k, integer(2), LS_DICT_ADD, 100, 0), LS_OK);
    assert_true(ls_dict_expire(d, &k, 0));
    assert_true(ls_dict_ttl(d, &k, &ms) && ms == 0);
    assert_true(ls_dict_expire(d, &k, UINT64_MAX)); /* the end of time, without an overflow */
    now_ms += 1000000;
    assert_true(has(d, "k"));
    assert_true(ls_dict_expire(d, &k, 10));
    assert_int_equal(set(d, "k", integer(3)), LS_OK); /* without a time: it does not expire any more */
    now_ms += 1000;
    assert_int_equal(get(d, "k"), 3);
}

TEST_IN(fixture, f, a_swap_keeps_the_expiry, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k");
    ls_dict_value value;
    uint64_t version, ms;
    assert_int_equal(ls_dict_set(d, &k, integer(1), LS_DICT_SET, 100, 0), LS_OK);
    assert_true(ls_dict_get(d, &k, &value, &version));
    assert_int_equal(ls_dict_set(d, &k, integer(2), LS_DICT_SWAP, 0, version), LS_OK);
    assert_true(ls_dict_ttl(d, &k, &ms) && ms == 100);
}

/* Entries that are never looked up again go when others are written. */
TEST(writes_sweep_expired_entries)
{
    fixture f;
    fixture_open(&f, 100000, true); /* one shard */
    ls_dict *d = f.dict;
    for (int64_t n = 0; n < 500; n++) {
        const ls_dict_key k = {.integer = n};
        assert_int_equal(ls_dict_set(d, &k, integer(n), LS_DICT_SET, 10 + (uint64_t)n % 7, 0), LS_OK);
    }
    assert_int_equal(set(d, "stays", integer(1)), LS_OK);
    const uint64_t full = ls_dict_bytes(d);
    now_ms += 20;
    for (int64_t n = 0; n < 256; n++) { /* fewer than there are buckets */
        const ls_dict_key k = {.integer = 5000 + n % 16};
        assert_int_equal(ls_dict_set(d, &k, integer(n), LS_DICT_SET, 0, 0), LS_OK);
    }
    assert_true(ls_dict_bytes(d) < full / 20);
    assert_int_equal(get(d, "stays"), 1);
    assert_int_equal(ls_dict_count(d), 17);
    fixture_close(&f);
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

TEST(the_limit_of_bytes)
{
    fixture f;
    const ls_dict_key k = key_of("key");
    ls_dict_value value = text_of(3000);
    const size_t bytes = ls_dict_entry_bytes(&k, &value);
    for (int evict = 0; evict < 2; evict++) {
        fixture_open(&f, bytes, evict != 0);
        ls_dict *d = f.dict;
        assert_int_equal(ls_dict_set(d, &k, text_of(3000), LS_DICT_SET, 0, 0), LS_OK);
        assert_int_equal(ls_dict_bytes(d), bytes);
        assert_int_equal(ls_dict_set(d, &k, text_of(3001), LS_DICT_SET, 0, 0), LS_EMSGSIZE);
        assert_int_equal(ls_dict_bytes(d), bytes);
        assert_int_equal(ls_dict_set(d, &k, text_of(2999), LS_DICT_SET, 0, 0), LS_OK);
        assert_int_equal(ls_dict_bytes(d), bytes - 1);
        assert_int_equal(set(d, "y", integer(1)), evict ? LS_OK : LS_ELIMIT);
        assert_true(has(d, "key") == !evict && has(d, "y") == evict);
        fixture_close(&f);
    }
    ls_dict_value_drop(&value);
}

TEST(the_least_recently_used_goes_first)
{
    fixture f;
    const ls_dict_key any = key_of("a");
    const ls_dict_value number = integer(0);
    fixture_open(&f, 4 * ls_dict_entry_bytes(&any, &number), true);
    ls_dict *d = f.dict;
    assert_int_equal(set(d, "a", integer(1)), LS_OK);
    assert_int_equal(set(d, "b", integer(2)), LS_OK);
    assert_int_equal(set(d, "c", integer(3)), LS_OK);
    assert_int_equal(set(d, "d", integer(4)), LS_OK);
    assert_int_equal(get(d, "a"), 1); /* used: b is now the oldest */
    assert_int_equal(set(d, "e", integer(5)), LS_OK);
    assert_true(has(d, "a") && !has(d, "b") && has(d, "c") && has(d, "d") && has(d, "e"));
    assert_int_equal(set(d, "c", integer(6)), LS_OK);
    assert_int_equal(set(d, "f", integer(7)), LS_OK);
    assert_true(has(d, "a") && has(d, "c") && !has(d, "d") && has(d, "e") && has(d, "f"));
    fixture_close(&f);
}

TEST(expired_entries_go_before_live_ones)
{
    fixture f;
    const ls_dict_key any = key_of("a");
    const ls_dict_value number = integer(0);
    for (int evict = 0; evict < 2; evict++) {
        fixture_open(&f, 3 * ls_dict_entry_bytes(&any, &number), evict != 0);
        ls_dict *d = f.dict;
        const ls_dict_key c = key_of("c");
        assert_int_equal(set(d, "a", integer(1)), LS_OK);
        assert_int_equal(set(d, "b", integer(2)), LS_OK);
        assert_int_equal(ls_dict_set(d, &c, integer(3), LS_DICT_SET, 10, 0), LS_OK);
        now_ms += 10;
        assert_int_equal(set(d, "d", integer(4)), LS_OK);
        assert_true(has(d, "a") && has(d, "b") && has(d, "d"));
        fixture_close(&f);
    }
}

/* A large dict has many shards: the bytes of all of them count together. */
TEST_IN(fixture, f, eviction_over_all_shards, 4 << 20, true)
{
    ls_dict *d = f->dict;
    for (int64_t n = 0; n < 20000; n++, now_ms++) {
        const ls_dict_key k = {.integer = n};
        assert_int_equal(ls_dict_set(d, &k, text_of(500), LS_DICT_SET, 0, 0), LS_OK);
        assert_true(ls_dict_bytes(d) <= 4 << 20);
    }
    const size_t count = ls_dict_count(d);
    assert_in_range(count, (4 << 20) / 800, (4 << 20) / 500);
    for (int64_t n = 0; n < 20000; n++) { /* the last ones are there, no other */
        const ls_dict_key k = {.integer = n};
        ls_dict_value value;
        const bool found = ls_dict_get(d, &k, &value, NULL);
        assert_int_equal(found, n >= 20000 - (int64_t)count);
        if (found) ls_dict_value_drop(&value);
    }
}

TEST_IN(fixture, f, out_of_memory_is_reported, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("k"), list = key_of("list");
    ls_dict_value sum, *values;
    size_t len, count;
    test_allocations_left = 0;
    assert_int_equal(ls_dict_set(d, &k, integer(1), LS_DICT_SET, 0, 0), LS_ENOMEM);
    assert_int_equal(ls_dict_incr(d, &k, integer(1), integer(0), 0, &sum), LS_ENOMEM);
    test_allocations_left = -1;
    assert_int_equal(ls_dict_bytes(d), 0);
    for (int allowed = 0; allowed < 3; allowed++) { /* the entry is made last */
        ls_dict_value pushed[] = {integer(1), text_of(100)};
        test_allocations_left = allowed;
        assert_int_equal(ls_dict_push(d, &list, pushed, 2, true, &len), LS_ENOMEM);
        test_allocations_left = -1;
        assert_int_equal(ls_dict_bytes(d), 0);
    }
    for (int n = 0; n < 4; n++) {
        ls_dict_value one = integer(n);
        assert_int_equal(ls_dict_push(d, &list, &one, 1, false, &len), LS_OK);
    }
    const uint64_t bytes = ls_dict_bytes(d);
    ls_dict_value fifth = text_of(10);
    test_allocations_left = 0;
    assert_int_equal(ls_dict_push(d, &list, &fifth, 1, false, &len), LS_ENOMEM);
    assert_int_equal(ls_dict_range(d, &list, 1, -1, &values, &count), LS_ENOMEM);
    test_allocations_left = -1;
    assert_int_equal(ls_dict_bytes(d), bytes);
    for (int allowed = 0; allowed < 2; allowed++) {
        ls_dict_items items = {0};
        uint64_t cursor = 0;
        test_allocations_left = allowed;
        assert_int_equal(ls_dict_scan(d, &cursor, true, &items), LS_ENOMEM);
        test_allocations_left = -1;
        ls_dict_items_drop(&items);
    }
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

static void assert_range(ls_dict *d, const char *key, int64_t first, int64_t last, const char *digits)
{
    const ls_dict_key k = key_of(key);
    ls_dict_value *values = NULL;
    size_t count = 99;
    assert_int_equal(ls_dict_range(d, &k, first, last, &values, &count), LS_OK);
    assert_int_equal(count, strlen(digits));
    for (size_t n = 0; n < count; n++) assert_int_equal(values[n].as.integer, digits[n] - '0');
    free(values);
}

TEST_IN(fixture, f, lists, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("list"), s = key_of("s");
    ls_dict_value out, *values;
    size_t len = 0, count;
    assert_int_equal(ls_dict_pop(d, &k, true, &out), LS_ENOENT);
    assert_int_equal(ls_dict_list_len(d, &k, &len), LS_OK);
    assert_int_equal(len, 0);
    assert_range(d, "list", 1, -1, "");
    for (int n = 1; n <= 3; n++) {
        ls_dict_value pair[] = {integer(2 * n - 1), integer(2 * n)};
        assert_int_equal(ls_dict_push(d, &k, pair, 2, false, &len), LS_OK);
    }
    assert_int_equal(len, 6);
    ls_dict_value pair[] = {integer(7), integer(8)};
    assert_int_equal(ls_dict_push(d, &k, pair, 2, true, &len), LS_OK);
    assert_range(d, "list", 1, -1, "87123456");
    assert_range(d, "list", 2, 3, "71");
    assert_range(d, "list", -2, -1, "56");
    assert_range(d, "list", -100, 2, "87");
    assert_range(d, "list", 0, 0, "");
    assert_range(d, "list", 8, 100, "6");
    assert_range(d, "list", 9, 100, "");
    assert_range(d, "list", 5, 4, "");
    assert_range(d, "list", 1, -9, "");
    assert_range(d, "list", INT64_MIN, INT64_MAX, "87123456");
    assert_int_equal(ls_dict_pop(d, &k, true, &out), LS_OK);
    assert_int_equal(out.as.integer, 8);
    assert_int_equal(ls_dict_pop(d, &k, false, &out), LS_OK);
    assert_int_equal(out.as.integer, 6);
    assert_range(d, "list", 1, -1, "712345");
    for (int n = 0; n < 6; n++) assert_int_equal(ls_dict_pop(d, &k, n % 2 == 0, &out), LS_OK);
    assert_false(has(d, "list")); /* the last value takes the entry with it */
    assert_int_equal(ls_dict_bytes(d), 0);

    ls_dict_value one = text_of(10);
    assert_int_equal(set(d, "s", integer(1)), LS_OK);
    assert_int_equal(ls_dict_push(d, &s, &one, 1, true, &len), LS_EINVAL);
    assert_int_equal(ls_dict_pop(d, &s, true, &out), LS_EINVAL);
    assert_int_equal(ls_dict_list_len(d, &s, &len), LS_EINVAL);
    assert_int_equal(ls_dict_range(d, &s, 1, -1, &values, &count), LS_EINVAL);
}

/* The account of a list is exact through growth, and its limit is that of the dict. */
TEST_IN(fixture, f, a_list_at_the_limit, 8192, false)
{
    ls_dict *d = f->dict;
    const ls_dict_key k = key_of("list");
    size_t len = 0, before = 0;
    int err;
    do {
        ls_dict_value one = text_of(100);
        before = len;
        err = ls_dict_push(d, &k, &one, 1, false, &len);
    } while (err == LS_OK);
    assert_int_equal(err, LS_EMSGSIZE); /* the list alone fills the dict */
    assert_in_range(before, 40, 60);
    assert_int_equal(len, before);
    ls_dict_value out;
    assert_int_equal(ls_dict_pop(d, &k, true, &out), LS_OK);
    ls_dict_value_drop(&out);
    ls_dict_value one = text_of(100);
    assert_int_equal(ls_dict_push(d, &k, &one, 1, false, &len), LS_OK);
}

/* ---- iteration --------------------------------------------------------------------------------------------- */

/* All entries come once, also when the table grows between the calls. */
TEST_IN(fixture, f, iteration_while_the_table_grows, 64 << 20, true)
{
    enum { FIRST = 3000, MORE = 40 };
    static unsigned char seen[200000];
    ls_dict *d = f->dict;
    ls_dict_items items = {0};
    uint64_t cursor = 0;
    int64_t added = FIRST;
    unsigned calls = 0;
    memset(seen, 0, sizeof seen);
    for (int64_t n = 0; n < FIRST; n++) {
        const ls_dict_key k = {.integer = n};
        assert_int_equal(ls_dict_set(d, &k, n % 2 == 0 ? integer(n) : text_of((size_t)n), LS_DICT_SET, 0, 0), LS_OK);
    }
    do {
        assert_int_equal(ls_dict_scan(d, &cursor, true, &items), LS_OK);
        for (size_t n = 0; n < items.count; n++) {
            const ls_dict_key k = ls_dict_item_key(&items, n);
            assert_null(k.bytes);
            assert_int_equal(seen[k.integer]++, 0);
            assert_int_equal(items.items[n].value.type, k.integer % 2 == 0 ? LS_DICT_INTEGER : LS_DICT_VALUE);
        }
        for (int n = 0; n < MORE * 10; n++, added++) {
            const ls_dict_key k = {.integer = added};
            if (added >= 200000) break;
            assert_int_equal(ls_dict_set(d, &k, added % 2 == 0 ? integer(0) : text_of(1), LS_DICT_SET, 0, 0), LS_OK);
        }
        assert_true(++calls < 10000);
    } while (cursor != 0);
    for (int n = 0; n < FIRST; n++) assert_int_equal(seen[n], 1);
    ls_dict_items_drop(&items);
}

TEST_IN(fixture, f, iteration_reads_keys_only, 1 << 20, true)
{
    ls_dict *d = f->dict;
    const ls_dict_key list = key_of("a list"), old = key_of("old");
    ls_dict_value one = text_of(7);
    ls_dict_items items = {0};
    uint64_t cursor = 0;
    size_t len, count = 0;
    assert_int_equal(ls_dict_push(d, &list, &one, 1, true, &len), LS_OK);
    assert_int_equal(set(d, "text", text_of(100)), LS_OK);
    assert_int_equal(ls_dict_set(d, &old, integer(1), LS_DICT_SET, 5, 0), LS_OK);
    now_ms += 5;
    do {
        assert_int_equal(ls_dict_scan(d, &cursor, false, &items), LS_OK);
        for (size_t n = 0; n < items.count; n++, count++) {
            const ls_dict_key k = ls_dict_item_key(&items, n);
            assert_true((k.len == 6 && memcmp(k.bytes, "a list", 6) == 0) ||
                        (k.len == 4 && memcmp(k.bytes, "text", 4) == 0));
            assert_int_equal(items.items[n].value.type, LS_DICT_NIL);
        }
    } while (cursor != 0);
    assert_int_equal(count, 2);
    ls_dict_items_drop(&items);
}

/* ---- the registry ------------------------------------------------------------------------------------------ */

TEST(a_dict_is_found_by_its_name)
{
    const ls_dict_options small = {.bytes_max = 8192, .evict = true}, large = {.bytes_max = 16384};
    ls_shared *shared;
    ls_shared_object *a = NULL, *b = NULL;
    char before[LS_SHARED_WHERE_BYTES] = "";
    assert_int_equal(ls_shared_open(&shared), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:1", &small, &a, before), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "b", "site.lua:2", NULL, &b, before), LS_OK);
    assert_ptr_not_equal(a, b);
    assert_int_equal(ls_dict_options_get((ls_dict *)(void *)b).bytes_max, LS_DICT_BYTES_DEFAULT);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:3", &small, &b, before), LS_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:4", NULL, &b, before), LS_OK);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:5", &large, &b, before), LS_EEXIST);
    assert_string_equal(before, "site.lua:1");

    ls_shared_next_generation(shared); /* a reload may change the options, once */
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:7", &large, &b, before), LS_OK);
    assert_ptr_equal(a, b);
    assert_int_equal(ls_dict_options_get((ls_dict *)(void *)b).bytes_max, 16384);
    assert_int_equal(ls_shared_get(shared, &ls_dict_kind, "a", "site.lua:8", &small, &b, before), LS_EEXIST);
    assert_string_equal(before, "site.lua:7");
    for (int allowed = 0; allowed < 17; allowed++) { /* the dict, and the buckets of 16 shards */
        test_allocations_left = allowed;
        const int err = ls_shared_get(shared, &ls_dict_kind, "c", "site.lua:9", NULL, &b, before);
        test_allocations_left = -1;
        assert_int_equal(err, LS_ENOMEM);
    }
    ls_shared_close(shared);
}

/* What the next process reads of the first `bytes` of the stream. */
static int read_prefix(fixture *from, long bytes, unsigned *entries)
{
    fixture to;
    char *copy = malloc((size_t)bytes + 1);
    FILE *whole = tmpfile(), *part = tmpfile();
    fixture_open(&to, 1 << 20, true);
    assert_int_equal(ls_dicts_write(from->shared, whole), LS_OK);
    rewind(whole);
    assert_int_equal(fread(copy, 1, (size_t)bytes, whole), (size_t)bytes);
    assert_int_equal(fwrite(copy, 1, (size_t)bytes, part), (size_t)bytes);
    rewind(part);
    const int err = ls_dicts_read(to.shared, part, entries);
    if (err == LS_OK) {
        const ls_dict_key list = key_of("list"), number = {.integer = 7}, text = key_of("text");
        ls_dict_value got, *values;
        uint64_t ttl_ms;
        size_t count;
        assert_int_equal(ls_dict_range(to.dict, &list, 1, -1, &values, &count), LS_OK);
        assert_int_equal(count, 2);
        assert_true(values[0].type == LS_DICT_INTEGER && values[0].as.integer == 1 &&
                    values[1].type == LS_DICT_BOOLEAN);
        free(values);
        assert_true(ls_dict_ttl(to.dict, &list, &ttl_ms) && ttl_ms == 900);
        assert_true(ls_dict_get(to.dict, &number, &got, NULL) && got.type == LS_DICT_FLOAT && got.as.number == 1.5);
        assert_true(ls_dict_get(to.dict, &text, &got, NULL) && ls_value_bytes(got.as.value) > 100);
        ls_dict_value_drop(&got);
        assert_int_equal(ls_dict_count(to.dict), 3);
    }
    (void)fclose(whole);
    (void)fclose(part);
    free(copy);
    fixture_close(&to);
    return err;
}

TEST_IN(fixture, f, what_another_process_takes_over, 1 << 20, true)
{
    const ls_dict_key list = key_of("list"), number = {.integer = 7}, over = key_of("over");
    const ls_dict_value float_value = {.type = LS_DICT_FLOAT, .as.number = 1.5};
    ls_dict_value values[2] = {integer(1), {.type = LS_DICT_BOOLEAN, .as.boolean = true}};
    FILE *none = tmpfile();
    unsigned entries;
    size_t len;
    assert_int_equal(ls_dict_push(f->dict, &list, values, 2, false, &len), LS_OK);
    assert_true(ls_dict_expire(f->dict, &list, 900));
    assert_int_equal(ls_dict_set(f->dict, &number, float_value, LS_DICT_SET, 0, 0), LS_OK);
    assert_int_equal(set(f->dict, "text", text_of(100)), LS_OK);
    assert_int_equal(ls_dict_set(f->dict, &over, integer(1), LS_DICT_SET, 5, 0), LS_OK);
    now_ms += 5;
    assert_true(ls_dict_expire(f->dict, &list, 900));
    assert_int_equal(ls_dicts_write(f->shared, none), LS_OK);
    const long bytes = ftell(none);
    for (long n = 0; n < bytes; n++) assert_int_equal(read_prefix(f, n, &entries), n < 16 ? LS_ENOTSUP : LS_EINVAL);
    assert_int_equal(read_prefix(f, bytes, &entries), LS_OK);
    assert_int_equal(entries, 3);
    (void)fclose(none);
}
