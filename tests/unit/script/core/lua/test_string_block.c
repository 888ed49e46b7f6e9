/* test_string_block.c - slices of long Lua strings: how long the string lives, on which thread the slice is
 * dropped. */
#define _GNU_SOURCE /* mkstemp */
#include "script/site_fixture.h"

#include "script/core/lua/string_block.h"

enum { LEN = 50000, MANY = 200, THREADS = 3, ROUNDS = 10 };

static ls_state *state_of(const test_site *t)
{
    return test_state(t);
}

static size_t bytes_after_collection(const test_site *t)
{
    (void)lua_gc(state_of(t)->L, LUA_GCCOLLECT);
    return atomic_load(&state_of(t)->bytes_live);
}

/* Take packets until none is left. Returns how many there were. */
static unsigned pump(test_site *t)
{
    ls_packet packet;
    unsigned count = 0;
    while (ls_port_wait(t->port, &t->ctx, &packet, 1, 0) > 0) {
        test_dispatch(t, &packet);
        count++;
    }
    return count;
}

typedef struct order {
    ls_slice *slices;
    unsigned count;
} order;

static int make_slices(lua_State *L)
{
    order *o = lua_touserdata(L, 1);
    char bytes[64];
    (void)ls_strings_reserve(L, o->count);
    for (unsigned n = 0; n < o->count; n++) {
        luaL_Buffer text;
        const int len = snprintf(bytes, sizeof bytes, "string %u ", n);
        char *to = luaL_buffinitsize(L, &text, LEN);
        memset(to, 'a' + (int)(n % 26), LEN);
        memcpy(to, bytes, (size_t)len);
        luaL_pushresultsize(&text, LEN);
        o->slices[n] = ls_string_slice(L, -1);
        lua_pop(L, 1);
    }
    return 0;
}

/* Slices of new strings that nothing else refers to. */
static void take(const test_site *t, ls_slice *slices, unsigned count)
{
    order o = {slices, count};
    assert_int_equal(ls_state_protected(state_of(t), &state_of(t)->generation->load_ctx, make_slices, &o), LUA_OK);
}

static void expect_bytes(const ls_slice *slice, unsigned n)
{
    char bytes[LEN];
    memset(bytes, 'a' + (int)(n % 26), LEN);
    const int len = snprintf(bytes, LEN, "string %u ", n);
    bytes[len] = (char)('a' + n % 26); /* not the end that snprintf wrote */
    assert_int_equal(slice->len, LEN);
    assert_memory_equal(slice->ptr, bytes, LEN);
}

static test_site *opened(void)
{
    test_site *t = test_site_open("core.after(0, done)");
    if (t->opened != LS_OK) fail_msg("the site does not load: %s", t->message);
    test_pump(t);
    return t;
}

TEST_WITH(test_site, t, a_string_lives_until_its_last_slice_is_dropped, opened())
{
    ls_slice slice, second;
    const size_t before = bytes_after_collection(t);
    take(t, &slice, 1);
    assert_true(bytes_after_collection(t) >= before + LEN); /* it counts as memory of Lua */
    second = (ls_slice){ls_block_hold(slice.block), slice.ptr, slice.len};
    expect_bytes(&slice, 0);
    ls_slice_drop(&slice);
    assert_int_equal(pump(t), 0);
    (void)bytes_after_collection(t);
    expect_bytes(&second, 0);
    ls_slice_drop(&second);
    assert_int_equal(state_of(t)->strings.used, 1);
    assert_int_equal(pump(t), 1);
    assert_int_equal(state_of(t)->strings.used, 0);
    assert_true(bytes_after_collection(t) < before + LEN);
}

TEST_WITH(test_site, t, one_operation_releases_many_strings, opened())
{
    ls_slice slices[MANY];
    const size_t before = bytes_after_collection(t);
    for (int round = 0; round < 3; round++) {
        take(t, slices, MANY);
        for (unsigned n = 0; n < MANY; n++) expect_bytes(&slices[n], n);
        ls_slices_drop(slices, MANY);
        assert_int_equal(pump(t), 1);
        assert_int_equal(state_of(t)->strings.used, 0);
        assert_int_equal(state_of(t)->strings.free_count, LS_STRINGS_FREE_MAX);
        assert_true(bytes_after_collection(t) < before + LEN);
    }
}

/* The next send of the state releases the strings before the operation does. */
TEST_WITH(test_site, t, a_reserve_releases_the_dropped_strings, opened())
{
    ls_slice first, second, third;
    take(t, &first, 1);
    ls_slice_drop(&first);
    take(t, &second, 1);
    assert_int_equal(state_of(t)->strings.used, 1);
    ls_slice_drop(&second); /* the operation of the first drop is still on its way */
    take(t, &third, 1);
    assert_int_equal(pump(t), 1);
    assert_int_equal(state_of(t)->strings.used, 1);
    ls_slice_drop(&third);
    assert_int_equal(pump(t), 1);
    assert_int_equal(state_of(t)->strings.used, 0);
}

/* While the site loads there is no port: the next drop with one releases these strings as well. */
TEST(strings_of_the_loading_site)
{
    test_site *t = test_site_open("get(function() return ('x'):rep(50000) end) core.after(0, done)");
    ls_slice slice;
    assert_int_equal(t->opened, LS_OK);
    test_pump(t);
    assert_int_equal(state_of(t)->strings.used, 1);
    take(t, &slice, 1);
    ls_slice_drop(&slice);
    assert_int_equal(pump(t), 1);
    assert_int_equal(state_of(t)->strings.used, 0);
    test_site_close(t);
}

TEST_WITH(test_site, t, a_slice_dropped_while_the_site_closes, opened())
{
    ls_slice slices[2];
    take(t, slices, 2);
    ls_slice_drop(&slices[0]);        /* its operation is in the port's queue when the port closes */
    ls_state_disconnect(state_of(t)); /* as ls_site_close does before it frees the connections */
    ls_slice_drop(&slices[1]);
}

static int reserve_all(lua_State *L)
{
    (void)ls_strings_reserve(L, 100000);
    return 0;
}

TEST_WITH(test_site, t, a_reserve_past_the_memory_limit_raises, opened())
{
    ls_state *lua = state_of(t);
    ls_slice slice;
    const size_t bytes_max = lua->bytes_max;
    test_limit_memory(lua, bytes_after_collection(t) + 1000);
    assert_int_equal(ls_state_protected(lua, &lua->generation->load_ctx, reserve_all, NULL), LUA_ERRMEM);
    test_limit_memory(lua, bytes_max);
    take(t, &slice, 1);
    ls_slice_drop(&slice);
    assert_int_equal(pump(t), 1);
    assert_int_equal(lua->strings.used, 0);
}

typedef struct dropper {
    ls_thread thread;
    ls_slice slices[MANY];
    _Atomic bool over;
} dropper;

static void drop_on_a_thread(void *user)
{
    dropper *d = user;
    ls_slices_drop(d->slices, MANY);
    atomic_store(&d->over, true);
}

/* No dropped block is forgotten, whichever thread drops it while the state releases others. */
TEST_WITH(test_site, t, any_thread_may_drop, opened())
{
    static dropper droppers[THREADS];
    const size_t before = bytes_after_collection(t);
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < THREADS; n++) {
            take(t, droppers[n].slices, MANY);
            atomic_store(&droppers[n].over, false);
        }
        for (int n = 0; n < THREADS; n++)
            assert_int_equal(ls_thread_start(&droppers[n].thread, "drop", drop_on_a_thread, &droppers[n]), LS_OK);
        for (int n = 0; n < THREADS; n++) {
            while (!atomic_load(&droppers[n].over)) pump(t);
            ls_thread_join(&droppers[n].thread);
        }
        pump(t);
        assert_int_equal(state_of(t)->strings.used, 0);
        assert_true(bytes_after_collection(t) < before + LEN);
    }
}
