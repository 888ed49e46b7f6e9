/* test_addr.c - addresses: conversion between text, ls_addr and sockaddr. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/sock/addr.h"

static void text_and_back(const char *host, uint16_t port, const char *text, const char *as_host)
{
    ls_addr addr, again;
    ls_sockaddr sys;
    char out[LS_ADDR_TEXT_BYTES];
    assert_int_equal(ls_addr_parse(host, port, &addr), LS_OK);
    assert_string_equal(ls_addr_text(&addr, out), text);
    assert_string_equal(ls_addr_host(&addr, out), as_host);
    ls_addr_to(&addr, &sys);
    assert_true(sys.len > 0 && sys.len <= sizeof sys.bytes);
    ls_addr_of(&sys, &again);
    assert_memory_equal(&again, &addr, sizeof addr);
}

TEST(addresses_survive_a_round_trip)
{
    text_and_back("127.0.0.1", 80, "127.0.0.1:80", "127.0.0.1");
    text_and_back("255.255.255.255", 65535, "255.255.255.255:65535", "255.255.255.255");
    text_and_back("::1", 8080, "[::1]:8080", "::1");
    text_and_back("*", 0, "[::]:0", "::");
    text_and_back("2001:db8::42", 443, "[2001:db8::42]:443", "2001:db8::42");
    text_and_back("fe80::1%999999999", 1, "[fe80::1%999999999]:1", "fe80::1%999999999");
    text_and_back("unix:/run/a.sock", 0, "unix:/run/a.sock", "unix:/run/a.sock");
    text_and_back("unix:a", 0, "unix:a", "unix:a");
    text_and_back("unix:@name", 0, "unix:@name", "unix:@name");
}

/* A zone is given as the name or the number of its interface, and printed as the name. */
TEST(zones_have_names)
{
    char name[IF_NAMESIZE], host[sizeof name + 16], text[sizeof name + 32];
    assert_non_null(if_indextoname(1, name));
    snprintf(host, sizeof host, "fe80::1%%%s", name);
    snprintf(text, sizeof text, "[fe80::1%%%s]:1", name);
    text_and_back(host, 1, text, host);
    text_and_back("fe80::1%1", 1, text, host);
}

TEST(invalid_addresses_are_refused)
{
    static const char *const cases[] = {
        /* clang-format off */
        "", "localhost", "1.2.3", "1.2.3.4.5", "256.0.0.1", "::1::", ":::", "[::1]", "1.2.3.4 ", "unix:",
        "unix:@", "fe80::1%", "fe80::1%nosuchzone", "fe80::1%0", "**", "0x7f.1", "1:2:3:4:5:6:7:8:9",
        /* clang-format on */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_addr addr = {.port = 7};
        assert_int_equal(ls_addr_parse(cases[i], 1, &addr), LS_EINVAL);
        assert_int_equal(addr.port, 7); /* untouched */
    }
}

/* A path of `len` characters; a name after '@' likewise. */
static int parse_unix(char first, size_t len, ls_addr *out)
{
    char host[5 + 200 + 1] = "unix:";
    memset(host + 5, 'p', len);
    host[5] = first;
    host[5 + len] = '\0';
    return ls_addr_parse(host, 0, out);
}

TEST(unix_paths_at_the_limit_and_one_past_it)
{
    ls_addr addr, again;
    ls_sockaddr sys;
    char text[LS_ADDR_TEXT_BYTES];
    assert_int_equal(parse_unix('/', 107, &addr), LS_OK);
    assert_int_equal(strlen(ls_addr_text(&addr, text)), 5 + 107);
    ls_addr_to(&addr, &sys);
    ls_addr_of(&sys, &again);
    assert_memory_equal(&again, &addr, sizeof addr);
    assert_int_equal(parse_unix('/', 108, &addr), LS_ELIMIT);

    assert_int_equal(parse_unix('@', 108, &addr), LS_OK);
    assert_int_equal(strlen(ls_addr_text(&addr, text)), 5 + 108);
    ls_addr_to(&addr, &sys);
    ls_addr_of(&sys, &again);
    assert_memory_equal(&again, &addr, sizeof addr);
    assert_int_equal(parse_unix('@', 109, &addr), LS_ELIMIT);
}

TEST(a_very_long_host_is_refused)
{
    char host[4096];
    ls_addr addr;
    memset(host, '1', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    assert_int_equal(ls_addr_parse(host, 1, &addr), LS_EINVAL);
    host[1000] = ':';
    host[2000] = '%';
    assert_int_equal(ls_addr_parse(host, 1, &addr), LS_EINVAL);
}

TEST(a_mapped_address_is_ip4)
{
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(99)};
    ls_sockaddr sys = {.len = sizeof in};
    ls_addr addr;
    char text[LS_ADDR_TEXT_BYTES];
    in.sin6_addr.s6_addr[10] = in.sin6_addr.s6_addr[11] = 0xff;
    in.sin6_addr.s6_addr[12] = 10;
    in.sin6_addr.s6_addr[15] = 7;
    memcpy(sys.bytes, &in, sizeof in);
    ls_addr_of(&sys, &addr);
    assert_int_equal(addr.family, LS_ADDR_IP4);
    assert_string_equal(ls_addr_text(&addr, text), "10.0.0.7:99");
}

TEST(an_unnamed_unix_peer_and_an_unterminated_path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    ls_sockaddr sys = {.len = sizeof un.sun_family};
    ls_addr addr;
    char text[LS_ADDR_TEXT_BYTES];
    memcpy(sys.bytes, &un, sizeof un);
    ls_addr_of(&sys, &addr);
    assert_int_equal(addr.family, LS_ADDR_UNIX);
    assert_string_equal(ls_addr_text(&addr, text), "unix:");

    memset(un.sun_path, 'p', sizeof un.sun_path);
    memcpy(sys.bytes, &un, sizeof un);
    sys.len = sizeof un;
    ls_addr_of(&sys, &addr);
    assert_int_equal(addr.bytes_len, sizeof un.sun_path);
    assert_int_equal(strlen(ls_addr_text(&addr, text)), 5 + sizeof un.sun_path);
}

TEST(an_unknown_or_short_system_address_is_none)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    ls_sockaddr sys = {.len = 0};
    ls_addr addr;
    char text[LS_ADDR_TEXT_BYTES];
    ls_addr_of(&sys, &addr);
    assert_int_equal(addr.family, LS_ADDR_NONE);
    assert_string_equal(ls_addr_text(&addr, text), "unknown");
    memcpy(sys.bytes, &in, sizeof in);
    sys.len = sizeof in - 1;
    ls_addr_of(&sys, &addr);
    assert_int_equal(addr.family, LS_ADDR_NONE);
    ls_addr_to(&addr, &sys);
    assert_int_equal(sys.len, 0);
}

TEST(host_names)
{
    static const char *const good[] = {"a",       "localhost",       "a.b",         "a.b.",
                                       "1.2.3.4", "x-1.example.org", "_sip._tcp.a", "m\xc3\xbc.de"};
    static const char *const bad[] = {"",    ".",   "..",  ".a",  "a..b", "a..", "a b",  " a",
                                      "a\t", "a/b", "a:b", "a@b", "::1",  "a\n", "a\x7f"};
    char name[300], label[70];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(ls_addr_is_name(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(ls_addr_is_name(bad[i]));
    memset(label, 'x', sizeof label);
    label[63] = '\0';
    assert_true(ls_addr_is_name(label));
    strcpy(label + 63, "x");
    assert_false(ls_addr_is_name(label));
    for (size_t i = 0; i < sizeof name; i++) name[i] = i % 2 == 1 ? '.' : 'x';
    name[253] = '\0';
    assert_true(ls_addr_is_name(name));
    strcpy(name + 253, ".");
    assert_true(ls_addr_is_name(name));
    strcpy(name + 253, "x");
    assert_false(ls_addr_is_name(name));
}
