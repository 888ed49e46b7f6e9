/* test_udp_win32.c - the two names of a network interface of Windows: "ethernet_32768", and the name that the system
 * shows, such as "Ethernet". */
#include <net/if.h>

#include "net/sock/sock.h"
#include "net/udp/udp.h"
#include "support.h"

/* The first interface, which is that of the loopback. */
static NET_IFINDEX first_interface(char *shown, size_t bytes)
{
    wchar_t wide[IF_NAMESIZE];
    NET_LUID luid;
    for (NET_IFINDEX number = 1; number < 1000; number++) {
        if (ConvertInterfaceIndexToLuid(number, &luid) != NO_ERROR) continue;
        assert_int_equal(ConvertInterfaceLuidToAlias(&luid, wide, IF_NAMESIZE), NO_ERROR);
        assert_true(WideCharToMultiByte(CP_UTF8, 0, wide, -1, shown, (int)bytes, NULL, NULL) > 0);
        return number;
    }
    fail_msg("no network interface");
    return 0;
}

static int open_with(const char *interface_name)
{
    ls_udp_setup setup;
    ls_addr at, bound;
    ls_fd fd;
    ls_udp_setup_defaults(&setup);
    (void)snprintf(setup.interface, sizeof setup.interface, "%s", interface_name);
    assert_int_equal(ls_addr_parse("127.0.0.1", 0, &at), LS_OK);
    const int err = ls_udp_sock_open(&setup, &at, NULL, &fd, &bound);
    if (err == LS_OK) ls_sock_discard(fd);
    return err;
}

TEST(an_interface_has_two_names)
{
    char name[IF_NAMESIZE] = "", shown[sizeof(((ls_udp_setup *)0)->interface)];
    const NET_IFINDEX number = first_interface(shown, sizeof shown);
    assert_non_null(if_indextoname(number, name));
    print_message("  interface %lu: %s, %s\n", number, name, shown);
    assert_string_not_equal(name, shown);
    assert_int_equal(open_with(shown), open_with(name));
    assert_int_not_equal(open_with(shown),
                         LS_ENOENT); /* Wine 8 refuses the number of any interface for IPv4: LS_EINVAL */
    assert_int_equal(open_with("no such interface"), LS_ENOENT);
    assert_int_equal(open_with("\xff"), LS_ENOENT); /* not UTF-8 */
}
