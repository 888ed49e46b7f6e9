/* test_peer.c - upstream servers: failures in a row, the time without requests, checks, the slow start. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "http/proxy/peer.h"

static ls_peer *open_peer(void)
{
    ls_shared_object *object;
    assert_int_equal(ls_peer_kind.open(NULL, &object), LS_OK);
    return (ls_peer *)(void *)object;
}

static int tenths(const ls_peer *peer, uint64_t now_ms, uint32_t slow_ms)
{
    return (int)(ls_peer_share(peer, now_ms, slow_ms, true) * 10 + 0.5);
}

TEST(failures_in_a_row_take_it_out)
{
    ls_peer *peer = open_peer();
    ls_peer_failed(peer, 1000, 3, 500);
    ls_peer_failed(peer, 1000, 3, 500);
    assert_int_equal(tenths(peer, 1000, 0), 10);
    ls_peer_answered(peer); /* the row ends */
    ls_peer_failed(peer, 1000, 3, 500);
    ls_peer_failed(peer, 1000, 3, 500);
    assert_int_equal(tenths(peer, 1000, 0), 10);
    ls_peer_failed(peer, 1000, 3, 500);
    assert_int_equal(tenths(peer, 1000, 0), 0);
    assert_int_equal(tenths(peer, 1499, 0), 0);
    assert_int_equal(tenths(peer, 1500, 0), 10);
    ls_peer_kind.close(&peer->shared);
}

TEST(one_caller_sees_that_it_is_out_and_back)
{
    ls_peer *peer = open_peer();
    assert_false(ls_peer_back(peer, 1000)); /* it never was out */
    assert_false(ls_peer_failed(peer, 1000, 2, 500));
    assert_false(ls_peer_back(peer, 1000));
    assert_true(ls_peer_failed(peer, 1000, 2, 500));
    assert_false(ls_peer_failed(peer, 1200, 1, 500)); /* it was tried all the same: it stays out until 1700 */
    assert_false(ls_peer_back(peer, 1699));
    assert_true(ls_peer_back(peer, 1700));
    assert_false(ls_peer_back(peer, 1700));
    assert_true(ls_peer_failed(peer, 1700, 1, 500));
    ls_peer_kind.close(&peer->shared);
}

TEST(refused_requests_are_counted_once_a_second)
{
    ls_peer *peer = open_peer();
    assert_int_equal(ls_peer_refused(peer, 5000, 1), 1);
    assert_int_equal(ls_peer_refused(peer, 5000, 1), 0);
    assert_int_equal(ls_peer_refused(peer, 5999, 1), 0);
    assert_int_equal(ls_peer_refused(peer, 6000, 1), 3);
    assert_int_equal(ls_peer_refused(peer, 6999, 1), 0);
    assert_int_equal(ls_peer_refused(peer, 6999, 0), 0);
    assert_int_equal(ls_peer_refused(peer, 9000, 0), 1); /* no one more: the last ones */
    assert_int_equal(ls_peer_refused(peer, 99000, 0), 0);
    ls_peer_kind.close(&peer->shared);
}

TEST(checks_take_it_out_and_it_starts_slowly)
{
    ls_peer *peer = open_peer();
    ls_peer_mark(peer, 1000, true); /* it was healthy: no slow start */
    assert_int_equal(tenths(peer, 1000, 900), 10);
    ls_peer_mark(peer, 1000, false);
    assert_int_equal(tenths(peer, 9000, 900), 0);
    assert_true(ls_peer_share(peer, 9000, 900, false) ==
                1); /* of a site that makes no checks, such as after a reload */
    ls_peer_mark(peer, 10000, true);
    assert_int_equal(tenths(peer, 10000, 900), 1);
    assert_int_equal(tenths(peer, 10300, 900), 4);
    assert_int_equal(tenths(peer, 10899, 900), 10);
    assert_true(ls_peer_share(peer, 10899, 900, true) < 1);
    assert_true(ls_peer_share(peer, 10900, 900, true) == 1);
    ls_peer_kind.close(&peer->shared);
}
