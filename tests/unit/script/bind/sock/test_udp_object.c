/* test_udp.c - ls.udp_connect and ls.notify in one state; the peer is an ls.socket. */
/* sanitizers: asan; no thread starts */
#define _GNU_SOURCE /* mkstemp */
#include "script/site_fixture.h"

#define SITE(name) test_lua("script/bind/sock/udp_object.lua", name)
#define SITE_TEST(name)                                      \
    {                                                        \
        name, site_test, NULL, NULL, (void *)(uintptr_t)name \
    }

static void site_test(void **state)
{
    test_snippet(SITE(*state));
}

static void out_of_memory_while_receiving(void **state)
{
    test_snippet_logs(SITE("out_of_memory_while_receiving"), "went on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SITE_TEST("a_batch_is_returned_datagram_by_datagram"),
        SITE_TEST("a_host_with_an_embedded_nul_is_rejected"),
        SITE_TEST("close_during_a_receive"),
        SITE_TEST("finalizers_that_close_or_receive"),
        cmocka_unit_test(out_of_memory_while_receiving),
        SITE_TEST("a_closed_descriptor_is_reported"),
    };
    return cmocka_run_group_tests_name("script/udp", tests, NULL, NULL);
}
