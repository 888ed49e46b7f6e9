/* test_udp.c - ls.udp_connect and ls.notify in one state; the peer is an ls.socket. */
/* sanitizers: asan; no thread starts */
#define _GNU_SOURCE /* mkstemp */
#include "script/site_fixture.h"

#define SITE(name) test_lua("script/bind/sock/udp_object.lua", name)

SITE_TEST(a_batch_is_returned_datagram_by_datagram)
SITE_TEST(a_host_with_an_embedded_nul_is_rejected)
SITE_TEST(close_during_a_receive)
SITE_TEST(finalizers_that_close_or_receive)
SITE_TEST(a_closed_descriptor_is_reported)

TEST(out_of_memory_while_receiving)
{
    test_snippet_logs(SITE("out_of_memory_while_receiving"), "went on");
}
