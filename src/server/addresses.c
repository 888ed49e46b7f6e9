/* addresses.c - see addresses.h. */
#include "server/addresses.h"

#include <stdbool.h>
#include <string.h>

enum { PORT_TRIES = 16 }; /* attempts to find a port that is free on both loopback addresses */

static bool no_such_family(int err)
{
    return err == LS_EADDRNOTAVAIL || err == LS_ENOTSUP;
}

static int open_loopback(const ls_address_opener *opener, uint16_t port, ls_addr *at)
{
    int err = LS_EADDRINUSE;
    for (int tries = port == 0 ? PORT_TRIES : 1; tries > 0; tries--) {
        uint16_t picked;
        (void)ls_addr_parse("127.0.0.1", port, at);
        if ((err = opener->open(opener->user, at, &picked)) < 0) return err;
        (void)ls_addr_parse("::1", picked, at);
        err = opener->open(opener->user, at, &picked);
        if (err == LS_OK || no_such_family(err)) return LS_OK;
        opener->close(opener->user);
        if (err != LS_EADDRINUSE) break;
    }
    return err;
}

int ls_addresses_open(const ls_address_opener *opener, const char *host, uint16_t port, ls_addr *at)
{
    uint16_t picked;
    if (host[0] == '\0') return open_loopback(opener, port, at);
    int err = ls_addr_parse(host, port, at);
    if (err == LS_OK) err = opener->open(opener->user, at, &picked);
    if (strcmp(host, "*") == 0 && no_such_family(err)) {
        (void)ls_addr_parse("0.0.0.0", port, at);
        err = opener->open(opener->user, at, &picked);
    }
    return err;
}
