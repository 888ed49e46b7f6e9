/* The life of connections that Lua has: how they are counted, what is past a limit, and what the drain and the end of a
 * site make of them. */
#include "support_sock.h"

enum { SOCKETS_MAX = 16 }; /* of the port that support_site.h opens */

static unsigned in_state(const sock_rig *rig)
{
    return atomic_load(&rig->t->site->states[0]->tcp_count);
}

static void expect_counts(const sock_rig *rig, unsigned connections)
{
    assert_int_equal(in_state(rig), connections);
    assert_int_equal(ls_site_connections(rig->t->site), connections);
    assert_int_equal(atomic_load(&rig->conn_limit.count), connections);
}

static void expect_end(const sock_rig *rig, int peer)
{
    char byte;
    assert_int_equal(rig_read(rig, peer, &byte, 1), 0);
    close(peer);
}

static void each_is_counted_until_it_has_closed(void **state)
{
    sock_rig rig;
    int peers[5];
    (void)state;
    rig_open(&rig, "", "for data in sock:chunks() do sock:send(data) end");
    expect_counts(&rig, 0);
    for (unsigned n = 0; n < 5; n++) {
        peers[n] = rig_connect(&rig);
        expect_counts(&rig, n + 1);
    }
    for (unsigned n = 5; n-- > 0;) {
        rig_ends_with(&rig, peers[n], "");
        expect_counts(&rig, n);
    }
    rig_close(&rig);
}

/* The answer must not be lost to a reset because bytes of the peer were never read. So the socket, with its place, stays
 * until the peer's end. */
static void unread_bytes_do_not_cost_the_answer(void **state)
{
    sock_rig rig;
    char got[16];
    (void)state;
    rig_open(&rig, "", "sock:receive(1) sock:send('the answer')");
    const int peer = rig_connect_tcp(&rig);
    rig_say(&rig, peer, "a long question, of which one byte is read");
    assert_int_equal(in_state(&rig), 0);
    assert_int_equal(atomic_load(&rig.conn_limit.count), 1);
    assert_int_equal(ls_site_connections(rig.t->site), 1);
    rig_say(&rig, peer, " and it goes on");
    assert_int_equal(rig_read(&rig, peer, got, sizeof got), 10);
    assert_memory_equal(got, "the answer", 10);
    close(peer);
    rig_close(&rig);
}

static void past_the_sockets_of_the_port_one_is_refused(void **state)
{
    sock_rig rig;
    int peers[SOCKETS_MAX];
    (void)state;
    rig_open(&rig, "", "for data in sock:chunks() do sock:send(data) end");
    for (unsigned n = 0; n < SOCKETS_MAX; n++) peers[n] = rig_connect(&rig);
    assert_false(rig_logged(&rig, "refused"));
    expect_counts(&rig, SOCKETS_MAX); /* at the limit */
    const int refused = rig_connect(&rig);
    expect_counts(&rig, SOCKETS_MAX); /* one past it */
    assert_true(rig_logged(&rig, "connection refused: "));
    expect_end(&rig, refused);
    rig_ends_with(&rig, peers[0], "");
    peers[0] = rig_connect(&rig); /* one went, one may come */
    expect_counts(&rig, SOCKETS_MAX);
    for (unsigned n = 0; n < SOCKETS_MAX; n++) rig_ends_with(&rig, peers[n], "");
    rig_close(&rig);
}

/* Lua's memory runs out at every point of taking a connection: that connection ends, with its place, and no other. */
static void memory_out_costs_the_connection(void **state)
{
    sock_rig rig;
    unsigned failed = 0, served = 0;
    (void)state;
    rig_open(&rig, "", "sock:send('served') sock:receive('*l')");
    ls_state *const lua = rig.t->site->states[0];
    const size_t bytes_max = lua->bytes_max;
    for (size_t extra = 0; extra < 6000; extra += 24) {
        char got[8];
        while (!ls_list_empty(&lua->tasks_free)) { /* a coroutine is made anew */
            ls_task *task = LS_CONTAINER(lua->tasks_free.next, ls_task, node);
            lua->tasks_free_count--;
            ls_list_remove(&task->node);
            ls_list_push(&lua->tasks_live, &task->node);
            ls_task_release(&rig.t->ctx, task, false);
        }
        (void)lua_gc(lua->L, LUA_GCCOLLECT);
        lua->bytes_max = lua->bytes_live + extra;
        const int peer = rig_connect(&rig);
        lua->bytes_max = bytes_max;
        (void)shutdown(peer, SHUT_WR);
        if (rig_read(&rig, peer, got, sizeof got) == 6)
            served++;
        else
            failed++;
        close(peer);
        expect_counts(&rig, 0);
    }
    assert_true(failed > 4 && served > 4);
    assert_true(rig_logged(&rig, "no memory to serve a connection"));
    rig.t->log[rig.t->log_len = 0] = '\0'; /* handlers that failed are logged as such */
    rig_close(&rig);
}

/* ---- drain -------------------------------------------------------------------------------------------------------- */

static void the_drain_wakes_those_who_wait_for_nothing_that_has_begun(void **state)
{
    sock_rig rig;
    char got[100];
    (void)state;
    rig_open(&rig, "",
             "sock:send(show(sock:receive('*l')), ' ', show(sock:receive('*l')), ' ', show(sock:receiveany()))");
    const int idle = rig_connect(&rig), begun = rig_connect(&rig), late = rig_connect(&rig);
    rig_say(&rig, begun, "half a li");
    ls_site_drain(rig.t->site);
    rig_pump(&rig);
    size_t len = rig_read(&rig, idle, got, sizeof got - 1);
    got[len] = '\0';
    assert_string_equal(got, "nil|draining|ECLOSED| nil|draining|ECLOSED| nil|draining|ECLOSED");
    close(idle);
    assert_int_equal(in_state(&rig), 1); /* `late` had nothing either */
    rig_say(&rig, begun, "ne\n");
    len = rig_read(&rig, begun, got, sizeof got - 1);
    got[len] = '\0';
    assert_string_equal(got, "half a line nil|draining|ECLOSED| nil|draining|ECLOSED");
    close(begun);
    close(late);
    rig_close(&rig);
}

/* What had come before the drain is still given out, though nobody waits for it yet. */
static void the_drain_leaves_what_has_come(void **state)
{
    sock_rig rig;
    (void)state;
    rig_open(&rig, "", "sock:receive('*l') core.sleep(0.02) sock:send(show(sock:receive('*l'), sock:receive('*l')))");
    const int peer = rig_connect(&rig);
    rig_say(&rig, peer, "one\ntwo\n");
    ls_site_drain(rig.t->site);
    rig_ends_with(&rig, peer, "two|nil|closed|ECLOSED|");
    rig_close(&rig);
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

/* One of each: waits to receive, waits for a peer that does not read, sleeps, and is kept by the site with no task. */
static const char all_kinds[] =
    "local kind = sock:receive('*l') "
    "if kind == 'receive' then core.log('info', 'receive: ' .. show(sock:receive(5))) "
    "elseif kind == 'send' then local s = ('x'):rep(1024):rep(4 << 10) "
    "  core.log('info', 'send: ' .. show(sock:send(s))) "
    "elseif kind == 'sleep' then while sock.remote do core.sleep(0.01) end core.log('info', 'sleep: ' .. "
    "show(sock:send('x'))) "
    "elseif kind == 'many' then for i = 1, 100 do sock:send(core.buffer(('x'):rep(1024):rep(64))) end end";

static void a_site_that_ends_takes_all_with_it(void **state)
{
    static const char *const kinds[] = {"receive\n", "send\n", "sleep\n", "many\n", "begun"};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    int peers[KINDS];
    sock_rig rig;
    (void)state;
    rig_open(&rig, "", all_kinds);
    for (unsigned n = 0; n < KINDS; n++) {
        peers[n] = rig_connect(&rig);
        rig_say(&rig, peers[n], kinds[n]);
    }
    expect_counts(&rig, KINDS);
    ls_site_disconnect(rig.t->site);
    rig_await(&rig, "receive: nil|closed|ECLOSED");
    rig_await(&rig, "send: nil|closed|ECLOSED");
    rig_await(&rig, "sleep: nil|closed|ECLOSED");
    while (ls_site_connections(rig.t->site) > 0) rig_pump(&rig);
    expect_counts(&rig, 0);
    for (unsigned n = 0; n < KINDS; n++) close(peers[n]);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_counted_until_it_has_closed),
        cmocka_unit_test(unread_bytes_do_not_cost_the_answer),
        cmocka_unit_test(past_the_sockets_of_the_port_one_is_refused),
        cmocka_unit_test(memory_out_costs_the_connection),
        cmocka_unit_test(the_drain_wakes_those_who_wait_for_nothing_that_has_begun),
        cmocka_unit_test(the_drain_leaves_what_has_come),
        cmocka_unit_test(a_site_that_ends_takes_all_with_it),
    };
    return cmocka_run_group_tests_name("script/tcp", tests, NULL, NULL);
}
