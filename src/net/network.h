/* network.h - networks of peers, such as those that a site trusts: "10.0.0.0/8", "::1", "unix:". */
#ifndef LS_NET_NETWORK_H
#define LS_NET_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/sock/addr.h"

typedef struct ls_network {
    uint8_t family, prefix;  /* enum ls_family; bits that are compared, 0 for Unix */
    unsigned char bytes[16]; /* 4 or 16; those after the prefix are 0 */
} ls_network;

/* Parse an address with an optional prefix length: "192.0.2.1", "10.0.0.0/8", "fd00::/8", "::/0"; "unix:" is every
 * peer of a Unix socket, which has no address. Bits after the prefix may be set and do not count. An IPv4-mapped IPv6
 * network with a prefix of at least 96 is the IPv4 network. LS_OK; LS_EINVAL. */
int ls_network_parse(const char *text, ls_network *out);

/* Whether `addr` is in one of the networks. An IPv4-mapped IPv6 address is an IPv4 address: "::/0" has none of IPv4.
 * The port and the zone do not count. */
bool ls_networks_have(const ls_network *networks, size_t count, const ls_addr *addr);

/* Whether `addr` is an address of the public Internet: not of this machine, of a private or link-local network, of a
 * group, reserved, or of a Unix socket (the special-purpose registries of IANA, RFC 6890). An IPv6 address that
 * carries an IPv4 address of another system's choice (NAT64, 6to4, Teredo) is not public either. */
bool ls_addr_is_public(const ls_addr *addr);

#endif
