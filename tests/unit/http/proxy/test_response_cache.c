/* test_response_cache.c - stored responses: what selects one, room, variants, fills, those that wait, removals,
 * copies. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "codec/http1/http1_parse.h"
#include "http/proxy/response_cache.h"

static ls_response_cache *ls_response_cache_open(size_t bytes_max)
{
    ls_shared_object *object;
    assert_int_equal(ls_response_cache_kind.open(&bytes_max, &object), LS_OK);
    return (ls_response_cache *)(void *)object;
}

static void ls_response_cache_close(ls_response_cache *cache)
{
    ls_response_cache_kind.close((ls_shared_object *)(void *)cache);
}

static ls_text text(const char *bytes)
{
    return (ls_text){bytes, strlen(bytes)};
}

typedef struct asked {
    ls_exchange x;
    char bytes[256];
} asked;

/* A request with the lines of fields. */
static void ask_with(asked *a, const char *lines)
{
    static const ls_http_limits limits = {1000, 1000, 100};
    memset(a, 0, sizeof *a);
    a->x.bytes = a->bytes;
    const int len = snprintf(a->bytes, sizeof a->bytes, "GET / HTTP/1.1\r\nHost: h\r\n%s\r\n", lines);
    assert_int_equal(
        ls_http1_parse(a->bytes, (size_t)len, 0, &limits, &a->x.head, &(ls_http_terms){.keep_alive = false}, NULL),
        len);
}

/* A request with one field of this value, or without it (NULL). */
static void ask(asked *a, const char *value)
{
    char line[64];
    (void)snprintf(line, sizeof line, "lang: %s\r\n", value != NULL ? value : "");
    ask_with(a, value != NULL ? line : "");
}

static ls_stored *make(const char *key, const char *select, size_t body_len)
{
    static const ls_freshness fresh = {.lifetime_ms = 1000};
    char *body = calloc(1, body_len + 1);
    ls_stored *entry = ls_stored_read(200, &fresh, text(key), text(select), text("ETag: \"e\"\r\nDate: x\r\n"),
                                      (ls_text){body, body_len});
    free(body);
    assert_non_null(entry);
    return entry;
}

static ls_fill *claim_key(ls_response_cache *cache, ls_text key, ls_waiter *waiter, int expected)
{
    ls_fill *fill = NULL;
    assert_int_equal(ls_response_cache_claim(cache, key, 10, waiter, &fill), expected);
    return fill;
}

static void put_entry(ls_response_cache *cache, ls_stored *entry)
{
    ls_fill_end(claim_key(cache, entry->key, NULL, LS_OK), entry, false);
    ls_stored_drop(entry);
}

static void put(ls_response_cache *cache, const char *key, const char *select, size_t body_len)
{
    put_entry(cache, make(key, select, body_len));
}

static ls_fill *begin_removal(ls_response_cache *cache, const char *prefix, unsigned expected)
{
    unsigned count;
    ls_fill *removal = ls_response_cache_remove(cache, text(prefix), &count);
    assert_non_null(removal);
    assert_int_equal(count, expected);
    return removal;
}

static void remove_all(ls_response_cache *cache, const char *prefix, unsigned expected)
{
    ls_fill_end(begin_removal(cache, prefix, expected), NULL, false);
}

static int find(ls_response_cache *cache, const char *key, const char *value)
{
    asked a;
    ls_stored *entry;
    ask(&a, value);
    const int err = ls_response_cache_find(cache, text(key), &(ls_selecting){.x = &a.x, .lines = text("")}, &entry);
    if (err == LS_OK) ls_stored_drop(entry);
    return err;
}

TEST_WITH(ls_response_cache, cache, fields_select_an_entry, ls_response_cache_open(1 << 20))
{
    char select[64];
    asked a;
    for (const char *const *value = (const char *const[]){"de", "", "a=b"}, *const *end = value + 3; value < end;
         value++) {
        ask(&a, *value);
        const ls_selecting by = {.x = &a.x, .lines = text("")};
        const size_t len = ls_select_make(&by, "lang", 4, select, sizeof select - 1);
        select[len] = '\0';
        put(cache, "/", select, 1);
        assert_int_equal(find(cache, "/", *value), LS_OK);
        assert_int_equal(find(cache, "/", NULL), LS_ECHANGED);
        assert_int_equal(ls_select_make(&by, "lang", 4, select, 1), len); /* without room: the length alone */
    }
    assert_int_equal(find(cache, "/", "en"), LS_ECHANGED);
    assert_int_equal(find(cache, "/x", "de"), LS_ENOENT);
    put(cache, "/", "lang\n", 1);
    assert_int_equal(find(cache, "/", NULL), LS_OK);
}

/* The fields that the server gets: what a site changes in the request takes the place of those of the client. */
TEST(fields_of_the_request_to_the_server_select_an_entry)
{
    static const struct {
        const char *fields, *drops, *lines, *vary, *select; /* NULL: it cannot be stored */
        bool trusted;
    } rows[] = {{"lang: de\r\n", "", "", "lang", "lang=de\n", false},
                {"lang: de\r\n", "lang,", "", "lang", "lang\n", false},
                {"lang: de\r\n", "lang", "LANG: en\r\n", "lang", "lang=en\n", false},
                {"lang: de\r\n", "x,Lang,", "lang: \r\nx: y\r\nlang: en\r\n", "lang", "lang=,en\n", false},
                {"lang: de\r\n", "lan,language,", "lan: x\r\nlanguage: y\r\n", "lang", "lang=de\n", false},
                {"lang: de\r\nConnection: close\r\nConnection: x, LANG\r\n", "", "", "lang", "lang\n", false},
                {"lang: de\r\nX_Lang: en\r\nX-Lang: fr\r\n", "", "", "x-lang", "x-lang=en,fr\n", false},
                {"X_Lang: en\r\nx-LANG: fr\r\n", "X-Lang,", "", "x-lang", "x-lang\n", false},
                {"X-Real-IP: 1\r\nX-Forwarded-Port: 1\r\nTE: a\r\n", "", "", "X-Real-IP, x-forwarded-port,te",
                 "X-Real-IP\nx-forwarded-port\nte\n", false},
                {"X_Real_IP: 1\r\nX-Real-IP: 2\r\nX_Forwarded_Port: 1\r\nX-Forwarded-Port: 2\r\n", "", "",
                 "x-real-ip,x-forwarded-port", "x-real-ip=2\nx-forwarded-port\n", true},
                {"X-Forwarded-Proto: a\r\nX-Forwarded-Host: a\r\n", "", "", "host,x-forwarded-proto,x-forwarded-host",
                 "host\nx-forwarded-proto\nx-forwarded-host\n", true},
                {"lang: de\r\n", "", "", "X-Forwarded-For", NULL, false},
                {"lang: de\r\n", "", "", "lang, forwarded", NULL, true},
                {"lang: de\r\n", "", "", "Via,lang", NULL, false}};
    char select[64];
    asked a;
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        ask_with(&a, rows[n].fields);
        const ls_selecting by = {
            .x = &a.x, .filter = {text(rows[n].drops), rows[n].trusted, false}, .lines = text(rows[n].lines)};
        const size_t len = ls_select_make(&by, rows[n].vary, strlen(rows[n].vary), select, sizeof select - 1);
        assert_int_equal(len >= sizeof select, rows[n].select == NULL);
        if (rows[n].select == NULL) continue;
        select[len] = '\0';
        assert_string_equal(select, rows[n].select);
        ls_response_cache *cache = ls_response_cache_open(1 << 20);
        ls_stored *entry;
        put(cache, "/", select, 1);
        assert_int_equal(ls_response_cache_find(cache, text("/"), &by, &entry), LS_OK);
        ls_stored_drop(entry);
        put(cache, "/other", "lang=other\n", 1);
        assert_int_equal(ls_response_cache_find(cache, text("/other"), &by, &entry), LS_ECHANGED);
        ls_response_cache_close(cache);
    }
}

TEST_WITH(ls_response_cache, cache, a_key_has_so_many_variants, ls_response_cache_open(1 << 20))
{
    char value[12], select[24];
    for (int n = 0; n <= LS_VARIANTS_MAX; n++) {
        (void)snprintf(value, sizeof value, "%d", n);
        (void)snprintf(select, sizeof select, "lang=%d\n", n);
        put(cache, "/", select, 1);
        assert_int_equal(find(cache, "/", value), LS_OK);
        assert_int_equal(find(cache, "/", "0"), n < LS_VARIANTS_MAX ? LS_OK : LS_ECHANGED);
        assert_int_equal(find(cache, "/", "1"), n > 0 ? LS_OK : LS_ECHANGED);
    }
    ls_stored *entries[LS_VARIANTS_MAX];
    assert_int_equal(ls_response_cache_list(cache, text("/"), entries), LS_VARIANTS_MAX);
    for (unsigned n = 0; n < LS_VARIANTS_MAX; n++) ls_stored_drop(entries[n]);
}

TEST(entries_have_so_much_room)
{
    ls_stored *entry = make("/a", "", 100);
    const size_t bytes = entry->bytes;
    ls_response_cache *cache = ls_response_cache_open(2 * bytes);
    put_entry(cache, entry);
    put(cache, "/b", "", 100);
    entry->bytes++;
    assert_false(ls_response_cache_check(cache)); /* what debug builds look for at each unlock */
    entry->bytes--;
    assert_true(ls_response_cache_check(cache));
    assert_int_equal(find(cache, "/a", NULL), LS_OK); /* and "/b" is the one that was used before */
    put(cache, "/a", "", 100);                        /* in its place */
    assert_int_equal(find(cache, "/b", NULL), LS_OK);
    assert_int_equal(find(cache, "/a", NULL), LS_OK);
    put(cache, "/c", "", 100);
    assert_int_equal(find(cache, "/b", NULL), LS_ENOENT);
    assert_int_equal(find(cache, "/a", NULL), LS_OK);
    put(cache, "/d", "", 2 * bytes - (bytes - 100));
    assert_int_equal(find(cache, "/d", NULL), LS_OK); /* alone */
    put(cache, "/e", "", 2 * bytes - (bytes - 100) + 1);
    assert_int_equal(find(cache, "/e", NULL), LS_ENOENT);
    assert_int_equal(find(cache, "/d", NULL), LS_OK);
    remove_all(cache, "/", 1);
    ls_response_cache_close(cache);
}

static int woken;

static void wake(ls_waiter *waiter)
{
    assert_int_equal(waiter->result, LS_OK);
    woken++;
}

static ls_fill *claim(ls_response_cache *cache, ls_waiter *waiter, int expected)
{
    if (waiter != NULL) ls_waiter_init(waiter, wake);
    return claim_key(cache, text("/a\nx"), waiter, expected);
}

TEST_WITH(ls_response_cache, cache, others_wait_for_a_fill, ls_response_cache_open(1 << 20))
{
    ls_waiter waiters[3];
    woken = 0;
    ls_fill *fill = claim(cache, &waiters[0], LS_OK);
    assert_null(claim(cache, &waiters[1], LS_CACHE_WAITS));
    assert_null(claim(cache, &waiters[2], LS_CACHE_WAITS));
    ls_fill_end(claim(cache, NULL, LS_OK), NULL, false); /* does not wait, and wakes nobody */
    assert_int_equal(woken, 0);
    assert_true(ls_response_cache_cancel(cache, &waiters[2]));
    ls_stored *entry = make("/a\nx", "", 1);
    ls_fill_end(fill, entry, false);
    ls_stored_drop(entry);
    assert_int_equal(woken, 1);
    assert_false(ls_response_cache_cancel(cache, &waiters[1]));
    assert_int_equal(find(cache, "/a\nx", NULL), LS_OK);
}

TEST_WITH(ls_response_cache, cache, without_a_response_they_do_not_wait_again, ls_response_cache_open(1 << 20))
{
    ls_waiter waiters[2];
    ls_stored *entries[2];
    for (int n = 0; n < 2; n++)
        entries[n] = ls_stored_make(200, &(ls_freshness){.lifetime_ms = 1000}, text("/a\nx"), text(""), text(""),
                                    &(ls_slice){0});
    woken = 0;
    ls_fill *fill = claim(cache, &waiters[0], LS_OK);
    assert_null(claim(cache, &waiters[1], LS_CACHE_WAITS));
    ls_fill_add(fill, "0123456789", 10);
    assert_int_equal(woken, 0);
    ls_fill_add(fill, "x", 1); /* one byte too many */
    assert_int_equal(woken, 1);
    ls_fill *second = claim(cache, &waiters[1], LS_OK), *third = claim(cache, &waiters[0], LS_OK);
    ls_fill_store(fill, entries[0]);
    assert_int_equal(find(cache, "/a\nx", NULL), LS_ENOENT);
    ls_fill_add(second, "0123456789", 10);
    const size_t bytes = entries[1]->bytes;
    ls_fill_store(second, entries[1]);
    assert_int_equal(find(cache, "/a\nx", NULL), LS_OK);
    assert_int_equal(entries[1]->body.len, 10);
    assert_memory_equal(entries[1]->body.ptr, "0123456789", 10);
    assert_int_equal(entries[1]->bytes, bytes + 10);
    ls_fill_end(third, NULL, false);
    ls_stored_drop(entries[0]);
    ls_stored_drop(entries[1]);
}

TEST_WITH(ls_response_cache, cache, when_a_fill_takes_too_long_no_one_waits_for_it, ls_response_cache_open(1 << 20))
{
    ls_waiter waiters[3];
    woken = 0;
    ls_fill *fill = claim(cache, &waiters[0], LS_OK);
    assert_null(claim(cache, &waiters[1], LS_CACHE_WAITS));
    ls_response_cache_part(cache, text("/a\ny"));
    assert_int_equal(woken, 0);
    ls_response_cache_part(cache, text("/a\nx"));
    assert_int_equal(woken, 1);
    ls_fill *second = claim(cache, &waiters[1], LS_OK), *third = claim(cache, &waiters[2], LS_OK);
    ls_fill_end(fill, NULL, false);
    ls_fill_end(second, NULL, false);
    ls_fill_end(third, NULL, false);
}

TEST_WITH(ls_response_cache, cache, a_removal_reaches_fills, ls_response_cache_open(1 << 20))
{
    ls_stored *entry = make("/a\nx", "", 1);
    for (int removed = 0; removed <= 1; removed++) {
        ls_fill *fill = claim(cache, NULL, LS_OK);
        remove_all(cache, removed ? "/a\n" : "/a\ny", 0);
        assert_int_equal(ls_fill_restore(fill, entry), !removed);
        assert_int_equal(find(cache, "/a\nx", NULL), removed ? LS_ENOENT : LS_OK);
        ls_fill_end(fill, entry, false);
        assert_int_equal(find(cache, "/a\nx", NULL), removed ? LS_ENOENT : LS_OK);
        remove_all(cache, "", !removed);
    }
    assert_true(ls_stored_refresh(entry));
    assert_false(ls_stored_refresh(entry)); /* another one does so */
    ls_stored_drop(entry);
}

/* A fill that begins during the removal is one of a new response; what it restores is not. */
TEST_WITH(ls_response_cache, cache, a_removal_lasts_until_its_end, ls_response_cache_open(1 << 20))
{
    ls_stored *entry = make("/a\nx", "", 1);
    ls_fill *removal = begin_removal(cache, "/a\n", 0), *other = begin_removal(cache, "/b\n", 0);
    ls_fill *fill = claim(cache, NULL, LS_OK);
    assert_false(ls_fill_restore(fill, entry));
    ls_fill_end(removal, NULL, false);
    assert_false(ls_fill_restore(fill, entry)); /* it may have been read before */
    ls_fill_end(fill, entry, false);
    assert_int_equal(find(cache, "/a\nx", NULL), LS_OK);
    fill = claim(cache, NULL, LS_OK);
    assert_true(ls_fill_restore(fill, entry));
    ls_fill_end(fill, NULL, false);
    ls_fill_end(other, NULL, false);
    ls_stored_drop(entry);
}

TEST_WITH(ls_response_cache, cache, a_restored_entry_replaces_none, ls_response_cache_open(1 << 20))
{
    ls_stored *old = make("/a\nx", "", 1), *entries[LS_VARIANTS_MAX];
    put(cache, "/a\nx", "", 2);
    ls_fill *fill = claim(cache, NULL, LS_OK);
    assert_true(ls_fill_restore(fill, old));
    ls_fill_end(fill, NULL, false);
    assert_int_equal(ls_response_cache_list(cache, text("/a\nx"), entries), 1);
    assert_int_equal(entries[0]->body.len, 2);
    ls_stored_drop(entries[0]);
    ls_stored_drop(old);
}

/* One at a time, beside fills of the same line; a removal waits for those before it, and those behind it wait for its
 * end. */
TEST_WITH(ls_response_cache, cache, copies_and_removals_wait_for_each_other, ls_response_cache_open(1 << 20))
{
    const ls_text key = {"/a\n", 4}; /* with its NUL */
    ls_waiter first, second, removing, apart;
    woken = 0;
    ls_waiter_init(&first, wake);
    ls_waiter_init(&second, wake);
    ls_waiter_init(&removing, wake);
    ls_waiter_init(&apart, wake);
    ls_fill *other = claim_key(cache, (ls_text){"/b\n", 4}, &apart, LS_OK);
    ls_fill *fill = claim(cache, NULL, LS_OK), *copy = claim_key(cache, key, &first, LS_OK);
    assert_null(claim_key(cache, key, &second, LS_CACHE_WAITS));
    ls_fill *removal = begin_removal(cache, "/a\n", 0);
    assert_int_equal(ls_removal_wait(removal, &removing), LS_CACHE_WAITS);
    assert_int_equal(woken, 0);
    ls_fill_end(copy, NULL, false);
    assert_int_equal(woken, 2);
    ls_waiter_init(&removing, wake);
    assert_int_equal(ls_removal_wait(removal, &removing), LS_OK);
    ls_waiter_init(&second, wake);
    assert_null(claim_key(cache, key, &second, LS_CACHE_WAITS));
    ls_fill_end(fill, NULL, false);
    ls_fill_end(other, NULL, false);
    assert_int_equal(woken, 2);
    ls_fill_end(removal, NULL, false);
    assert_int_equal(woken, 3);
    ls_waiter_init(&second, wake);
    copy = claim_key(cache, key, &second, LS_OK);
    removal = begin_removal(cache, "/b", 0); /* of others */
    assert_int_equal(ls_removal_wait(removal, &removing), LS_OK);
    ls_fill_end(removal, NULL, false);
    ls_fill_end(copy, NULL, false);
}
