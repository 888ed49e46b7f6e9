/* test_addresses.c - the addresses that a host of a site stands for. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "server/addresses.h"

static void text_is(const ls_addr *addr, const char *expected)
{
    char text[LS_ADDR_TEXT_BYTES];
    assert_string_equal(ls_addr_text(addr, text), expected);
}

TEST(no_host_is_both_loopback_addresses)
{
    ls_addresses a;
    assert_int_equal(ls_addresses_of("", 80, &a), LS_OK);
    assert_int_equal(a.count, 2);
    assert_false(a.either);
    text_is(&a.at[0], "127.0.0.1:80");
    text_is(&a.at[1], "[::1]:80");
}

TEST(a_star_is_all_addresses_of_both_families_or_of_ipv4)
{
    ls_addresses a;
    assert_int_equal(ls_addresses_of("*", 0, &a), LS_OK);
    assert_int_equal(a.count, 2);
    assert_true(a.either);
    text_is(&a.at[0], "[::]:0");
    text_is(&a.at[1], "0.0.0.0:0");
}

TEST(an_address_is_itself)
{
    ls_addresses a;
    assert_int_equal(ls_addresses_of("::1", 8080, &a), LS_OK);
    assert_int_equal(a.count, 1);
    text_is(&a.at[0], "[::1]:8080");
    assert_int_equal(ls_addresses_of("example.org", 8080, &a), LS_EINVAL);
}

TEST(only_a_missing_address_is_missing)
{
    assert_true(ls_address_is_missing(LS_EADDRNOTAVAIL));
    assert_true(ls_address_is_missing(LS_ENOTSUP));
    assert_false(ls_address_is_missing(LS_EADDRINUSE));
    assert_false(ls_address_is_missing(LS_OK));
}
