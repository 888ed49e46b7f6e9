/* test_resolver.c - name resolution: immediate results, pending lookups, and every order of drop and close. */
/* sanitizers: asan; no thread starts */
#include "resolver_fixture.h"

TEST_IN(fixture, a, localhost_is_known, "")
{
    ls_lookup *lookup;
    assert_int_equal(look_up(a, "localhost", &lookup), LS_DONE);
    assert_int_equal(lookup->err, LS_OK);
    assert_true(lookup->count >= 1 && lookup->count <= LS_LOOKUP_ADDRS_MAX);
    for (unsigned i = 0; i < lookup->count; i++) {
        char text[LS_ADDR_TEXT_BYTES];
        (void)ls_addr_text(&lookup->addrs[i], text);
        assert_true(strcmp(text, "127.0.0.1:7000") == 0 || strcmp(text, "[::1]:7000") == 0);
    }
    assert_int_equal(a->lookup_done, 0);
    drop(a, lookup);
}

/* An invalid name fails immediately; nothing is posted. */
TEST_IN(fixture, a, invalid_names, "")
{
    char labels[300];
    for (size_t i = 0; i < sizeof labels; i++) labels[i] = i % 50 == 49 ? '.' : 'a';
    labels[sizeof labels - 1] = '\0';
    ls_lookup *lookup;
    assert_int_equal(look_up(a, labels, &lookup), LS_DONE);
    assert_true(lookup->err == LS_EINVAL || lookup->err == LS_ENOENT);
    drop(a, lookup);
}

TEST(a_pending_lookup_is_dropped)
{
    fixture a;
    ls_lookup *lookups[20];
    char servers[40];
    const int silent = silent_name_server(servers, sizeof servers);
    fixture_open(&a, servers);
    for (int i = 0; i < 20; i++) assert_int_equal(look_up(&a, "no-such-name.invalid", &lookups[i]), LS_PENDING);
    for (int i = 0; i < 20; i++) drop(&a, lookups[i]);
    take_packets(&a, 100);
    assert_int_equal(a.lookup_done, 0);
    fixture_close(&a);
    (void)close(silent);
}

TEST(a_stop_with_a_pending_lookup)
{
    char servers[40];
    const int silent = silent_name_server(servers, sizeof servers);
    for (int round = 0; round < 50; round++) { /* the result arrives before, between or after */
        fixture a;
        ls_lookup *before, *after;
        fixture_open(&a, servers);
        assert_int_equal(look_up(&a, "no-such-name.invalid", &before), LS_PENDING);
        assert_int_equal(look_up(&a, "no-such-name.invalid", &after), LS_PENDING);
        drop(&a, before);
        ls_resolver_stop(a.resolver);
        take_packets(&a, 0);
        net_place_close(&a.place);
        ls_lookup_drop(after); /* as Lua's finalizers do, when no thread runs */
        ls_resolver_close(a.resolver);
        ls_polls_close(a.polls);
        assert_true(a.lookup_done <= 1);
    }
    (void)close(silent);
}
