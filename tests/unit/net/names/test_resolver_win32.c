/* test_resolver_win32.c - queries to the resolver of Windows, whose results arrive through the port. */
#include "port/port_fixture.h"

#include "net/names/resolver.h"
#include "sched/actor.h"

enum { LOOKUPS = 100, NAME_BYTES = 256 };

static ls_actor actor;
static unsigned done_count;

static void lookup_done(ls_thread_ctx *ctx, ls_lookup *lookup)
{
    assert_ptr_equal(ctx->inside, &actor);
    *(bool *)lookup->user = true;
    done_count++;
}

/* The system asks its name servers, which may not respond: then a lookup ends after its own time limit. */
static void wait_for(net_place *place, unsigned count)
{
    enum { PATIENCE_MS = 120000 };
    const uint64_t until_ms = ls_clock_coarse_ms() + PATIENCE_MS;
    while (done_count < count) {
        ls_packet packet;
        assert_true(ls_clock_coarse_ms() < until_ms);
        if (ls_port_wait(place->port, &place->ctx, &packet, 1, 100) == 1) ls_packet_dispatch(&place->ctx, &packet);
    }
}

static ls_resolver *open_at(net_place *place, const char *servers)
{
    ls_resolver *resolver;
    net_place_open(place);
    ls_actor_init(&actor);
    done_count = 0;
    assert_int_equal(ls_resolver_open(place->port, NULL, &actor, servers, &resolver), LS_OK);
    return resolver;
}

static void close_all(net_place *place, ls_resolver *resolver)
{
    ls_resolver_stop(resolver);
    net_place_close(place);
    ls_resolver_close(resolver);
}

TEST(this_machine_has_addresses)
{
    net_place place;
    ls_lookup *lookup;
    char name[NAME_BYTES];
    bool done = false;
    ls_resolver *resolver = open_at(&place, "");
    assert_int_equal(gethostname(name, sizeof name), 0);
    assert_int_equal(ls_resolver_lookup(&place.ctx, resolver, name, 80, lookup_done, &done, &lookup), LS_PENDING);
    assert_false(done);
    wait_for(&place, 1);
    assert_true(done);
    assert_int_equal(lookup->err, LS_OK);
    assert_true(lookup->count >= 1);
    assert_int_equal(lookup->addrs[0].port, 80);
    ls_lookup_drop(lookup);
    close_all(&place, resolver);
}

TEST(many_at_once_and_half_of_them_dropped)
{
    net_place place;
    ls_lookup *lookups[LOOKUPS];
    bool done[LOOKUPS] = {false};
    ls_resolver *resolver = open_at(&place, "");
    for (int i = 0; i < LOOKUPS; i++)
        assert_int_equal(
            ls_resolver_lookup(&place.ctx, resolver, "no-such-name.invalid", 80, lookup_done, &done[i], &lookups[i]),
            LS_PENDING);
    for (int i = 0; i < LOOKUPS; i += 2) ls_lookup_drop(lookups[i]);
    wait_for(&place, LOOKUPS / 2);
    for (int i = 0; i < LOOKUPS; i++) {
        assert_int_equal(done[i], i % 2);
        if (i % 2 == 0) continue;
        assert_true(lookups[i]->err == LS_ENOENT ||
                    lookups[i]->err == LS_ETIMEDOUT); /* LS_ETIMEDOUT without a network */
        assert_int_equal(lookups[i]->count, 0);
        ls_lookup_drop(lookups[i]);
    }
    ls_packet packet;
    while (ls_port_wait(place.port, &place.ctx, &packet, 1, 100) == 1) ls_packet_dispatch(&place.ctx, &packet);
    assert_int_equal(done_count, LOOKUPS / 2);
    close_all(&place, resolver);
}

TEST(name_servers_cannot_be_chosen)
{
    net_place place;
    ls_lookup *lookup;
    ls_resolver *resolver = open_at(&place, "127.0.0.1:53");
    assert_int_equal(ls_resolver_lookup(&place.ctx, resolver, "example.org", 80, lookup_done, NULL, &lookup), LS_DONE);
    assert_int_equal(lookup->err, LS_ENOTSUP);
    ls_lookup_drop(lookup);
    assert_int_equal(ls_resolver_lookup(&place.ctx, resolver, "localhost", 80, lookup_done, NULL, &lookup), LS_DONE);
    assert_int_equal(lookup->err, LS_OK);
    ls_lookup_drop(lookup);
    close_all(&place, resolver);
}

TEST(names_are_utf8)
{
    static const char *const bad[] = {"", "\xff\xfe", "a\xc3"};
    net_place place;
    ls_lookup *lookup;
    ls_resolver *resolver = open_at(&place, "");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_resolver_lookup(&place.ctx, resolver, bad[i], 80, lookup_done, NULL, &lookup), LS_DONE);
        assert_int_equal(lookup->err, LS_EINVAL);
        ls_lookup_drop(lookup);
    }
    close_all(&place, resolver);
}
