/* udp_internal.h - what udp_sock.c needs and each system does in its own way: udp_posix.c, udp_win32.c. */
#ifndef LS_NET_UDP_INTERNAL_H
#define LS_NET_UDP_INTERNAL_H

#include "net/udp/udp.h"

/* The multicast interface: for IPv4 an address or a number, for IPv6 the number. All zero: the system's choice. */
typedef struct ls_udp_interface {
    uint8_t ip4[4];
    uint32_t number;
} ls_udp_interface;

/* The number of the network interface with this name, 0 without one. */
uint32_t ls_udp_interface_number(const char *name);

/* Join the group of IPv4, or leave it. LS_OK or an error. */
int ls_udp_join4(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave);
int ls_udp_set_interface4(ls_fd fd, const ls_udp_interface *through); /* through which multicast of IPv4 is sent */

/* Bind the socket, exclusively unless `setup` shares the address; `at` NULL: it is bound. LS_OK or an error. */
int ls_udp_bind(ls_fd fd, const ls_udp_setup *setup, const ls_addr *at);

#endif
