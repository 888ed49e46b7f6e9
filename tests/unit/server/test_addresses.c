/* test_addresses.c - the addresses that a host of the site stands for, with a fake opener. */
#include "support.h"

#include <string.h>

#include "server/addresses.h"

enum { CALLS_MAX = 64, PICKED = 40000 };

typedef struct fake {
    int results[CALLS_MAX];
    char requested[CALLS_MAX][LS_ADDR_TEXT_BYTES];
    int calls, open;
} fake;

static int fake_open(void *user, const ls_addr *at, uint16_t *port)
{
    fake *f = user;
    assert_in_range(f->calls, 0, CALLS_MAX - 1);
    (void)ls_addr_text(at, f->requested[f->calls]);
    const int result = f->results[f->calls++];
    if (result < 0) return result;
    f->open++;
    *port = at->port != 0 ? at->port : PICKED;
    return LS_OK;
}

static void fake_close(void *user)
{
    fake *f = user;
    assert_true(f->open > 0);
    f->open--;
}

static int open_addresses(fake *f, const char *host, uint16_t port)
{
    ls_addr at;
    return ls_addresses_open(&(ls_address_opener){f, fake_open, fake_close}, host, port, &at);
}

static void one_address(void **state)
{
    fake f = {.results = {0}}, busy = {.results = {LS_EADDRINUSE}}, wrong = {.results = {0}};
    (void)state;
    assert_int_equal(open_addresses(&f, "127.0.0.2", 80), LS_OK);
    assert_int_equal(f.calls, 1);
    assert_string_equal(f.requested[0], "127.0.0.2:80");
    assert_int_equal(open_addresses(&busy, "127.0.0.2", 0), LS_EADDRINUSE);
    assert_int_equal(busy.calls, 1);
    assert_int_equal(open_addresses(&wrong, "a name", 80), LS_EINVAL);
    assert_int_equal(wrong.calls, 0);
}

static void both_loopbacks_have_one_port(void **state)
{
    fake f = {.results = {0}};
    (void)state;
    assert_int_equal(open_addresses(&f, "", 0), LS_OK);
    assert_int_equal(f.open, 2);
    assert_string_equal(f.requested[0], "127.0.0.1:0");
    assert_string_equal(f.requested[1], "[::1]:40000");
}

static void without_ipv6_there_is_one_loopback(void **state)
{
    static const int codes[] = {LS_EADDRNOTAVAIL, LS_ENOTSUP};
    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        fake f = {.results = {LS_OK, codes[i]}};
        assert_int_equal(open_addresses(&f, "", 8080), LS_OK);
        assert_int_equal(f.open, 1);
    }
}

/* A free port of one loopback address may be in use on the other: try another, 16 times; a given port is tried once. */
static void both_addresses_get_the_same_port(void **state)
{
    fake second = {.results = {LS_OK, LS_EADDRINUSE}}, never, given = {.results = {LS_OK, LS_EADDRINUSE}},
         refused = {.results = {LS_OK, LS_EACCES}};
    (void)state;
    assert_int_equal(open_addresses(&second, "", 0), LS_OK);
    assert_int_equal(second.calls, 4);
    assert_int_equal(second.open, 2);

    memset(&never, 0, sizeof never);
    for (int i = 1; i < CALLS_MAX; i += 2) never.results[i] = LS_EADDRINUSE;
    assert_int_equal(open_addresses(&never, "", 0), LS_EADDRINUSE);
    assert_int_equal(never.calls, 32);
    assert_int_equal(never.open, 0);

    assert_int_equal(open_addresses(&given, "", 8080), LS_EADDRINUSE);
    assert_int_equal(given.calls, 2);
    assert_int_equal(given.open, 0);

    assert_int_equal(open_addresses(&refused, "", 0), LS_EACCES);
    assert_int_equal(refused.calls, 2);
    assert_int_equal(refused.open, 0);
}

static void all_addresses_without_ipv6_are_those_of_ipv4(void **state)
{
    fake f = {.results = {0}}, four = {.results = {LS_EADDRNOTAVAIL}}, busy = {.results = {LS_EADDRINUSE}};
    (void)state;
    assert_int_equal(open_addresses(&f, "*", 80), LS_OK);
    assert_int_equal(f.calls, 1);
    assert_string_equal(f.requested[0], "[::]:80");
    assert_int_equal(open_addresses(&four, "*", 80), LS_OK);
    assert_int_equal(four.calls, 2);
    assert_string_equal(four.requested[1], "0.0.0.0:80");
    assert_int_equal(open_addresses(&busy, "*", 80), LS_EADDRINUSE);
    assert_int_equal(busy.calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_address),
        cmocka_unit_test(both_loopbacks_have_one_port),
        cmocka_unit_test(without_ipv6_there_is_one_loopback),
        cmocka_unit_test(both_addresses_get_the_same_port),
        cmocka_unit_test(all_addresses_without_ipv6_are_those_of_ipv4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
