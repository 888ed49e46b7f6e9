/* test_name_cache.c - names are found until their time has passed; the limits. */
/* sanitizers: asan; no thread starts */
#include "net/names/name_cache.h"

#include "support.h"

enum { ROOM = 4 };

static ls_addr addr(const char *text)
{
    ls_addr out;
    assert_int_equal(ls_addr_parse(text, 0, &out), LS_OK);
    return out;
}

/* The addresses of the name, such as "192.0.2.1:80 [2001:db8::1]:80"; "": not there. */
static const char *found(ls_name_cache *cache, const char *name, uint64_t now_ms)
{
    static char all[ROOM * LS_ADDR_TEXT_BYTES];
    ls_addr out[ROOM];
    const unsigned count = ls_name_cache_find(cache, name, 80, now_ms, out, ROOM);
    size_t len = 0;
    all[0] = '\0';
    for (unsigned i = 0; i < count; i++) {
        char text[LS_ADDR_TEXT_BYTES];
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", i > 0 ? " " : "", ls_addr_text(&out[i], text));
    }
    return all;
}

TEST(names_are_found_until_their_time_has_passed)
{
    const ls_addr both[] = {addr("192.0.2.1"), addr("2001:db8::1")};
    ls_name_cache cache;
    ls_name_cache_init(&cache);
    assert_string_equal(found(&cache, "a.test", 1000), "");
    ls_name_cache_add(&cache, "a.test", 2, 1000, both, 2);
    ls_name_cache_add(&cache, "b.test", 10, 1000, both, 1);
    assert_string_equal(found(&cache, "a.test", 1000), "192.0.2.1:80 [2001:db8::1]:80");
    assert_string_equal(found(&cache, "A.Test", 2999), "192.0.2.1:80 [2001:db8::1]:80");
    assert_string_equal(found(&cache, "a.tes", 2999), "");
    assert_string_equal(found(&cache, "a.test.", 2999), "");
    assert_string_equal(found(&cache, "a.test", 3000), "");
    assert_int_equal(cache.count, 1);
    assert_string_equal(found(&cache, "b.test", 10999), "192.0.2.1:80");
    assert_string_equal(found(&cache, "b.test", 11000), "");
    assert_int_equal(cache.count, 0);
}

TEST(a_later_result_takes_the_place_of_an_earlier_one)
{
    const ls_addr first = addr("192.0.2.1"), second = addr("192.0.2.2");
    ls_name_cache cache;
    ls_name_cache_init(&cache);
    ls_name_cache_add(&cache, "a.test", 10, 0, &first, 1);
    ls_name_cache_add(&cache, "A.TEST", 20, 0, &second, 1);
    assert_int_equal(cache.count, 1);
    assert_string_equal(found(&cache, "a.test", 15000), "192.0.2.2:80");
    ls_name_cache_add(&cache, "a.test", 0, 15000, &first, 1); /* must not be kept */
    assert_string_equal(found(&cache, "a.test", 15000), "");
    ls_name_cache_add(&cache, "a.test", 10, 15000, &first, 0);
    assert_int_equal(cache.count, 0);
}

TEST(the_time_has_a_limit)
{
    const ls_addr one = addr("192.0.2.1");
    const uint64_t most_ms = LS_NAME_CACHE_TTL_S_MAX * UINT64_C(1000);
    ls_name_cache cache;
    ls_name_cache_init(&cache);
    ls_name_cache_add(&cache, "a.test", UINT32_MAX, 0, &one, 1);
    assert_string_equal(found(&cache, "a.test", most_ms - 1), "192.0.2.1:80");
    assert_string_equal(found(&cache, "a.test", most_ms), "");
}

TEST(one_name_more_than_the_limit_drops_the_one_used_longest_ago)
{
    const ls_addr one = addr("192.0.2.1");
    ls_name_cache cache;
    char name[16];
    ls_name_cache_init(&cache);
    for (unsigned n = 0; n < LS_NAME_CACHE_MAX; n++) {
        (void)snprintf(name, sizeof name, "n%u.test", n);
        ls_name_cache_add(&cache, name, 100, 0, &one, 1);
    }
    assert_int_equal(cache.count, LS_NAME_CACHE_MAX);
    assert_string_equal(found(&cache, "n0.test", 0), "192.0.2.1:80");
    ls_name_cache_add(&cache, "one-more.test", 100, 0, &one, 1);
    assert_int_equal(cache.count, LS_NAME_CACHE_MAX);
    assert_string_equal(found(&cache, "n1.test", 0), "");
    assert_string_equal(found(&cache, "n0.test", 0), "192.0.2.1:80");
    assert_string_equal(found(&cache, "n2.test", 0), "192.0.2.1:80");
    ls_name_cache_add(&cache, "another.test", 100, 100000, &one, 1); /* the time of all others has passed */
    assert_int_equal(cache.count, 1);
    ls_name_cache_clear(&cache);
    assert_int_equal(cache.count, 0);
}

TEST(no_more_addresses_than_there_is_room)
{
    const ls_addr same = addr("192.0.2.1"), many[] = {same, same, same, same, same};
    ls_addr out[ROOM];
    ls_name_cache cache;
    ls_name_cache_init(&cache);
    ls_name_cache_add(&cache, "a.test", 10, 0, many, ROOM + 1);
    ls_addr *exact = malloc(2 * sizeof *exact);
    assert_int_equal(ls_name_cache_find(&cache, "a.test", 1, 0, exact, 2), 2);
    assert_int_equal(ls_name_cache_find(&cache, "a.test", 1, 0, out, ROOM), ROOM);
    free(exact);
    ls_name_cache_clear(&cache);
}
