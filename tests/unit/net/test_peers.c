/* test_peers.c - the number of connections and streams of each address. */
/* sanitizers: asan; no thread starts */
#include "script/memory_fixture.h"

#include "base/io/log.h"
#include "net/refused.h"

static char last_line[200];
static unsigned lines;

static void keep_line(int level, const char *text, size_t len, void *user)
{
    lines++;
    (void)snprintf(last_line, sizeof last_line, "%.*s", (int)len, text);
}

static ls_addr addr_of(const char *host)
{
    ls_addr addr;
    assert_int_equal(ls_addr_parse(host, 1, &addr), LS_OK);
    return addr;
}

static int enter(ls_peers *peers, const char *host, enum ls_peers_kind kind, uint32_t max)
{
    const ls_addr addr = addr_of(host);
    return ls_peers_enter(peers, &addr, kind, max);
}

static void leave(ls_peers *peers, const char *host, enum ls_peers_kind kind)
{
    const ls_addr addr = addr_of(host);
    ls_peers_leave(peers, &addr, kind);
}

TEST(an_address_has_at_most_its_limit)
{
    static const char *const cases[][3] = {/* the same twice, another one */
                                           {"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"},
                                           {"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::1"}};
    ls_peers peers;
    ls_peers_open(&peers);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(enter(&peers, cases[i][0], LS_PEERS_CONNECTIONS, 2), LS_OK);
        assert_int_equal(enter(&peers, cases[i][1], LS_PEERS_CONNECTIONS, 2), LS_OK);
        assert_int_equal(enter(&peers, cases[i][0], LS_PEERS_CONNECTIONS, 2), LS_ELIMIT);
        assert_int_equal(enter(&peers, cases[i][0], LS_PEERS_CONNECTIONS, 3), LS_OK); /* of another listener */
        assert_int_equal(enter(&peers, cases[i][2], LS_PEERS_CONNECTIONS, 1), LS_OK);
        assert_int_equal(enter(&peers, cases[i][1], LS_PEERS_STREAMS, 1), LS_OK);
        for (int n = 0; n < 3; n++) leave(&peers, cases[i][0], LS_PEERS_CONNECTIONS);
        assert_int_equal(enter(&peers, cases[i][0], LS_PEERS_STREAMS, 1), LS_ELIMIT);
        leave(&peers, cases[i][0], LS_PEERS_STREAMS);
        leave(&peers, cases[i][2], LS_PEERS_CONNECTIONS);
        assert_int_equal(peers.count, 0);
    }
    assert_int_equal(enter(&peers, "unix:/a", LS_PEERS_CONNECTIONS, 0), LS_OK); /* not counted */
    leave(&peers, "unix:/a", LS_PEERS_CONNECTIONS);
    ls_peers_close(&peers);
}

TEST(many_addresses_and_no_memory)
{
    enum { MANY = 3000 };
    ls_peers peers;
    char host[32];
    ls_peers_open(&peers);
    for (int n = 0; n < MANY; n++) {
        (void)snprintf(host, sizeof host, "10.0.%d.%d", n / 256, n % 256);
        assert_int_equal(enter(&peers, host, LS_PEERS_CONNECTIONS, 1), LS_OK);
    }
    test_allocations_left = 0;
    const int err = enter(&peers, "192.0.2.1", LS_PEERS_CONNECTIONS, 1);
    test_allocations_left = -1;
    assert_int_equal(err, LS_ENOMEM);
    assert_int_equal(peers.count, MANY);
    for (int n = 0; n < MANY; n++) {
        (void)snprintf(host, sizeof host, "10.0.%d.%d", n / 256, n % 256);
        assert_int_equal(enter(&peers, host, LS_PEERS_CONNECTIONS, 1), LS_ELIMIT);
        if (n % 2 == 0) leave(&peers, host, LS_PEERS_CONNECTIONS);
    }
    assert_int_equal(peers.count, MANY / 2);
    ls_peers_close(&peers);
}

TEST(one_line_a_minute)
{
    ls_refusals refusals = {0};
    const ls_addr addr = addr_of("192.0.2.1");
    ls_log_target target = {.sink = keep_line, .level = LS_LOG_INFO};
    const ls_log_target *before = ls_log_use(&target);
    for (int n = 0; n < 5; n++) ls_refusals_add(&refusals, &addr, "why");
    assert_int_equal(lines, 1);
    assert_string_equal(last_line, "refused 192.0.2.1: why");
    atomic_fetch_sub(&refusals.logged_ms, 60000);
    ls_refusals_add(&refusals, &addr, "why");
    ls_refusals_add(&refusals, &addr, "why");
    (void)ls_log_use(before);
    assert_int_equal(lines, 2);
    assert_string_equal(last_line, "refused 192.0.2.1: why; 4 more since the last such line");
    assert_int_equal(atomic_load(&refusals.count), 7);
}
