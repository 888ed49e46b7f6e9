/* addresses.h - which addresses a host of the site means, and opening something on each of them. */
#ifndef LS_SERVER_ADDRESSES_H
#define LS_SERVER_ADDRESSES_H

#include <stdint.h>

#include "net/addr.h"

typedef struct ls_address_opener {
    void *user;
    int (*open)(void *user, const ls_addr *at, uint16_t *port); /* LS_OK and the port that was got, or LS_E* */
    void (*close)(void *user);                                  /* what was opened last */
} ls_address_opener;

/* host: "" for both loopback addresses with one port, "*" for all addresses, else one as ls_addr_parse takes it. port: 0
 * for one that is free. Without IPv6 on the machine, "" and "*" are the IPv4 address alone.
 *
 * LS_OK; or what ls_addr_parse or open() said of the address that *at has then: nothing is open any more. */
int ls_addresses_open(const ls_address_opener *opener, const char *host, uint16_t port, ls_addr *at);

#endif
