/* test_network.c - networks: text, and which addresses are in them. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "net/network.h"

static bool has(const char *text, const char *host)
{
    ls_network network;
    ls_addr addr;
    assert_int_equal(ls_network_parse(text, &network), LS_OK);
    assert_int_equal(ls_addr_parse(host, 4711, &addr), LS_OK);
    return ls_networks_have(&network, 1, &addr);
}

TEST(prefixes_at_their_edges)
{
    static const struct {
        const char *network, *in, *out;
    } cases[] = {
        /* clang-format off */
        {"10.0.0.0/8", "10.0.0.0", "9.255.255.255"}, {"10.0.0.0/8", "10.255.255.255", "11.0.0.0"},
        {"10.1.2.3/8", "10.200.0.1", "11.1.2.3"}, /* bits behind the prefix do not count */
        {"0.0.0.0/0", "255.255.255.255", "::1"}, {"128.0.0.0/1", "128.0.0.0", "127.255.255.255"},
        {"192.0.2.6/31", "192.0.2.7", "192.0.2.8"}, {"192.0.2.6/31", "192.0.2.6", "192.0.2.5"},
        {"192.0.2.7/32", "192.0.2.7", "192.0.2.6"}, {"192.0.2.7", "192.0.2.7", "192.0.2.6"},
        {"172.16.0.0/12", "172.31.255.255", "172.32.0.0"}, {"::1", "::1", "::"}, {"::1/128", "::1", "::3"},
        {"::/127", "::1", "::2"}, {"::/0", "ffff::", "1.2.3.4"}, /* an IPv4-mapped address is IPv4 */
        {"fd00::/8", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::"},
        {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"},
        {"127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.2"}, {"::ffff:10.0.0.0/104", "10.9.9.9", "11.0.0.0"},
        {"::ffff:0:0/96", "1.2.3.4", "::1"}, {"::ffff:1.2.3.4", "1.2.3.4", "1.2.3.5"},
        {"unix:", "unix:/run/a.sock", "127.0.0.1"}, {"unix:", "unix:@abstract", "::1"},
        {"0.0.0.0/0", "0.0.0.0", "unix:/run/a.sock"}, {"fe80::/10", "fe80::1%1", "fec0::1"},
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!has(cases[i].network, cases[i].in)) fail_msg("%s has %s", cases[i].network, cases[i].in);
        if (has(cases[i].network, cases[i].out)) fail_msg("%s does not have %s", cases[i].network, cases[i].out);
    }
}

TEST(public_addresses)
{
    static const char *const is_public[] = {"1.1.1.1",        "9.255.255.255",   "11.0.0.0",        "100.63.255.255",
                                            "100.128.0.0",    "126.255.255.255", "128.0.0.0",       "169.253.255.255",
                                            "172.15.255.255", "172.32.0.0",      "192.167.255.255", "192.169.0.0",
                                            "198.17.255.255", "198.20.0.0",      "223.255.255.255", "2001:200::1",
                                            "2600::",         "2a00::1",         "::ffff:8.8.8.8"};
    static const char *const is_not[] = {
        /* clang-format off */
        "0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1",
        "127.255.255.255", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.8", "192.0.2.1",
        "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "203.0.113.9", "224.0.0.1",
        "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1",
        "64:ff9b::7f00:1", "fc00::1", "fdff::1", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1",
        "2002:7f00:1::", "unix:/run/a", "unix:@a",
        /* clang-format on */
    };
    ls_addr addr;
    for (size_t i = 0; i < sizeof is_public / sizeof *is_public; i++) {
        assert_int_equal(ls_addr_parse(is_public[i], 80, &addr), LS_OK);
        if (!ls_addr_is_public(&addr)) fail_msg("%s is public", is_public[i]);
    }
    for (size_t i = 0; i < sizeof is_not / sizeof *is_not; i++) {
        assert_int_equal(ls_addr_parse(is_not[i], 80, &addr), LS_OK);
        if (ls_addr_is_public(&addr)) fail_msg("%s is not public", is_not[i]);
    }
}

TEST(a_list_is_the_union)
{
    static const char *const texts[] = {"10.0.0.0/8", "unix:", "fd00::/8"};
    ls_network list[3];
    ls_addr addr, nameless = {.family = LS_ADDR_UNIX}, none = {.family = LS_ADDR_NONE};
    for (size_t i = 0; i < 3; i++) assert_int_equal(ls_network_parse(texts[i], &list[i]), LS_OK);
    assert_int_equal(ls_addr_parse("fd12::1", 0, &addr), LS_OK);
    assert_true(ls_networks_have(list, 3, &addr));
    assert_false(ls_networks_have(list, 2, &addr));
    assert_true(ls_networks_have(list, 2, &nameless));
    assert_false(ls_networks_have(list, 1, &nameless));
    assert_false(ls_networks_have(list, 3, &none));
    assert_false(ls_networks_have(NULL, 0, &addr));
}

TEST(other_texts_are_refused)
{
    static const char *const cases[] = {
        /* clang-format off */
        "", "/", "/8", "10", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/ 8",
        "10.0.0.0/8 ", " 10.0.0.0/8", "10.0.0.0/8/8", "10.0.0.0/255.0.0.0", "10.0.0/8", "::1/129", "::1/1000",
        "[::1]", "[::1]/128", "fe80::1%1", "fe80::%1/10", "*", "*/0", "localhost", "unix", "unix:/run/a.sock",
        "unix:@a", "unix:/8", "unix: ", "UNIX:", "10.0.0.0:80", "10.0.0.0/8x",
        "1111111111111111111111111111111111111111111111111111111111111111111111/8",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_network network = {.family = 77};
        if (ls_network_parse(cases[i], &network) != LS_EINVAL) fail_msg("'%s' is not a network", cases[i]);
        assert_int_equal(network.family, 77);
    }
}
