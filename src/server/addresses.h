/* addresses.h - the addresses that a host name in the site stands for. */
#ifndef LS_SERVER_ADDRESSES_H
#define LS_SERVER_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

#include "net/sock/addr.h"

typedef struct ls_addresses {
    unsigned count; /* 1 or 2 */
    ls_addr at[2];
    bool either; /* of two: the second one only where the first does not exist; else both, with the same port */
} ls_addresses;

/* host: "" for both loopback addresses, IPv4 first; "*" for all addresses, without IPv6 on the machine all of IPv4;
 * else an address in the syntax of ls_addr_parse. LS_OK, or its error. */
int ls_addresses_of(const char *host, uint16_t port, ls_addresses *out);

/* Whether the error of a bind says that the machine does not have the address: it has no IPv6. */
bool ls_address_is_missing(int err);

#endif
