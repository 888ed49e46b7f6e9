/* test_tcp.c - the life of `sock` connections: counters, limits, drain, disconnect. */
/* sanitizers: asan; no thread starts */
#include "script/sock_fixture.h"

static unsigned in_state(const sock_fixture *fixture)
{
    return atomic_load(&ls_tcps_of(test_state(fixture->t))->count);
}

static void expect_counts(const sock_fixture *fixture, unsigned connections)
{
    assert_int_equal(in_state(fixture), connections);
    assert_int_equal(ls_site_connections(fixture->t->site), connections);
    assert_int_equal(atomic_load(&fixture->conn_limit.count), connections);
}

TEST(each_connection_is_counted_until_it_closes)
{
    sock_fixture fixture;
    int peers[5];
    fixture_open(&fixture, "", "for data in sock:chunks() do sock:send(data) end");
    expect_counts(&fixture, 0);
    for (unsigned n = 0; n < 5; n++) {
        peers[n] = fixture_connect(&fixture);
        expect_counts(&fixture, n + 1);
    }
    for (unsigned n = 5; n-- > 0;) {
        fixture_ends_with(&fixture, peers[n], "");
        expect_counts(&fixture, n);
    }
    fixture_close(&fixture);
}

/* Unread bytes of the peer must not cause a reset that destroys the response. So the connection lingers, and counts in
 * the limit, until the peer closes. */
TEST(unread_bytes_do_not_lose_the_response)
{
    sock_fixture fixture;
    char got[16];
    fixture_open(&fixture, "", "sock:receive(1) sock:send('a response')");
    const int peer = fixture_connect_tcp(&fixture);
    fixture_send(&fixture, peer, "a long request, of which one byte is read");
    assert_int_equal(in_state(&fixture), 0);
    assert_int_equal(atomic_load(&fixture.conn_limit.count), 1);
    assert_int_equal(ls_site_connections(fixture.t->site), 1);
    fixture_send(&fixture, peer, " and it goes on");
    assert_int_equal(fixture_read(&fixture, peer, got, sizeof got), 10);
    assert_memory_equal(got, "a response", 10);
    close(peer);
    fixture_close(&fixture);
}

/* Lua's memory runs out at every point of an accept: that connection ends and leaves the limit; no other ends. */
TEST(out_of_memory_ends_only_that_connection)
{
    sock_fixture fixture;
    unsigned failed = 0, served = 0;
    fixture_open(&fixture, "", "sock:send('served') sock:receive('*l')");
    ls_state *const lua = test_state(fixture.t);
    const size_t bytes_max = lua->bytes_max;
    for (size_t extra = 0; extra < 6000; extra += 24) {
        char got[8];
        while (!ls_list_empty(&lua->tasks_free)) { /* empty the pool: the accept must create a coroutine */
            ls_task *task = LS_CONTAINER(lua->tasks_free.next, ls_task, node);
            lua->tasks_free_count--;
            ls_list_remove(&task->node);
            ls_list_push(&lua->tasks_live, &task->node);
            ls_task_release(&fixture.t->ctx, task, false);
        }
        (void)lua_gc(lua->L, LUA_GCCOLLECT);
        test_limit_memory(lua, lua->bytes_live + extra);
        const int peer = fixture_connect(&fixture);
        test_limit_memory(lua, bytes_max);
        (void)shutdown(peer, SHUT_WR);
        if (fixture_read(&fixture, peer, got, sizeof got) == 6)
            served++;
        else
            failed++;
        close(peer);
        expect_counts(&fixture, 0);
    }
    assert_true(failed > 4 && served > 4);
    assert_true(fixture_logged(&fixture, "not enough memory to serve a connection"));
    fixture.t->log[fixture.t->log_len = 0] = '\0'; /* it holds errors of handlers, which fixture_close rejects */
    fixture_close(&fixture);
}

/* ---- drain
 * ------------------------------------------------------------------------------------------------------- */

TEST(the_drain_wakes_receivers_without_received_bytes)
{
    sock_fixture fixture;
    char got[100];
    fixture_open(&fixture, "",
                 "sock:send(show(sock:receive('*l')), ' ', show(sock:receive('*l')), ' ', show(sock:receiveany()))");
    const int idle = fixture_connect(&fixture), begun = fixture_connect(&fixture), late = fixture_connect(&fixture);
    fixture_send(&fixture, begun, "half a li");
    ls_site_end_work(fixture.t->site, LS_END_STOP);
    fixture_pump(&fixture);
    size_t len = fixture_read(&fixture, idle, got, sizeof got - 1);
    got[len] = '\0';
    assert_string_equal(got, "nil|draining|ECLOSED| nil|draining|ECLOSED| nil|draining|ECLOSED");
    close(idle);
    assert_int_equal(in_state(&fixture), 1); /* `late` had no received bytes either */
    fixture_send(&fixture, begun, "ne\n");
    len = fixture_read(&fixture, begun, got, sizeof got - 1);
    got[len] = '\0';
    assert_string_equal(got, "half a line nil|draining|ECLOSED| nil|draining|ECLOSED");
    close(begun);
    close(late);
    fixture_close(&fixture);
}

/* Bytes received before the drain can still be read, although no task waits for them at that time. */
TEST_IN(served, f, the_drain_keeps_received_bytes, "",
        "sock:receive('*l') core.sleep(0.02) sock:send(show(sock:receive('*l'), sock:receive('*l')))")
{
    fixture_send(f, f->peer, "one\ntwo\n");
    assert_int_equal(shutdown(f->peer, SHUT_WR), 0); /* also if the task wakes late */
    ls_site_end_work(f->t->site, LS_END_STOP);
    fixture_ends_with(f, f->peer, "two|nil|closed|ECLOSED|");
}

/* ---- disconnect
 * -------------------------------------------------------------------------------------------------- */

/* The kinds of connections: one that waits to receive, one that waits for a peer that does not read, one whose task
 * sleeps, one with a queue and no task, and one that has received the start of a line. */
static const char all_kinds[] =
    "local kind = sock:receive('*l') "
    "if kind == 'receive' then core.log('info', 'receive: ' .. show(sock:receive(5))) "
    "elseif kind == 'send' then local s = ('x'):rep(1024):rep(4 << 10) "
    "  core.log('info', 'send: ' .. show(sock:send(s))) "
    "elseif kind == 'sleep' then while sock.remote do core.sleep(0.01) end core.log('info', 'sleep: ' .. "
    "show(sock:send('x'))) "
    "elseif kind == 'many' then for i = 1, 100 do sock:send(core.buffer(('x'):rep(1024):rep(64))) end end";

TEST(the_forced_end_of_a_site_closes_every_connection)
{
    static const char *const kinds[] = {"receive\n", "send\n", "sleep\n", "many\n", "begun"};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    int peers[KINDS];
    sock_fixture fixture;
    fixture_open(&fixture, "", all_kinds);
    for (unsigned n = 0; n < KINDS; n++) {
        peers[n] = fixture_connect(&fixture);
        fixture_send(&fixture, peers[n], kinds[n]);
    }
    expect_counts(&fixture, KINDS);
    assert_false(ls_site_end(fixture.t->site, false)); /* the tasks have not ended */
    fixture_pump(&fixture);
    expect_counts(&fixture, KINDS);
    while (!ls_site_end(fixture.t->site, true)) fixture_pump(&fixture);
    assert_int_equal(ls_site_connections(fixture.t->site), 0);
    for (unsigned n = 0; n < KINDS; n++) close(peers[n]);
    assert_int_equal(atomic_load(&fixture.conn_limit.count), 0);
    test_site_close(fixture.t);
    ls_conn_limit_close(&fixture.conn_limit);
}
