/* addresses.h - the addresses that a host name in the site stands for, and opening a listener on each of them. */
#ifndef LS_SERVER_ADDRESSES_H
#define LS_SERVER_ADDRESSES_H

#include <stdint.h>

#include "net/addr.h"

typedef struct ls_address_opener {
    void *user;
    int (*open)(void *user, const ls_addr *at, uint16_t *port); /* LS_OK and the actual port, or LS_E* */
    void (*close)(void *user);                                  /* closes the one opened last */
} ls_address_opener;

/* host: "" for both loopback addresses with one port, "*" for all addresses, else an address in the syntax of
 * ls_addr_parse. port: 0 picks a free one. Without IPv6 on the machine, "" and "*" mean the IPv4 address only.
 *
 * LS_OK; or an error of ls_addr_parse or open(): *at is the address that failed, and nothing is left open. */
int ls_addresses_open(const ls_address_opener *opener, const char *host, uint16_t port, ls_addr *at);

#endif
