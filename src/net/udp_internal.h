/* udp_internal.h - inside udp_posix.c and udp_win32.c: the multicast interface, and the change of groups
 * (udp_groups.c), over what each system does in its own way. */
#ifndef LS_NET_UDP_INTERNAL_H
#define LS_NET_UDP_INTERNAL_H

#include "net/udp.h"

/* The multicast interface: for IPv4 an address or a number, for IPv6 the number. All zero: the system's choice. */
typedef struct ls_udp_interface {
    uint8_t ip4[4];
    uint32_t number;
} ls_udp_interface;

/* The interface that ls_udp_setup.interface names. LS_OK; LS_ENOENT: no interface has this name. */
int ls_udp_interface_of(const char *text, ls_udp_interface *out);

/* Join the groups of `setup` that `before` (NULL: none) has not joined through the same interface, and leave those that
 * only `before` has. LS_OK or the first error. */
int ls_udp_change_groups(ls_fd fd, const ls_udp_setup *before, const ls_udp_setup *setup,
                         const ls_udp_interface *through);

/* ---- of the system ---------------------------------------------------------------------------------------------- */

/* The number of the network interface with this name, 0 without one. */
uint32_t ls_udp_interface_number(const char *name);

/* Join the group, or leave it. LS_OK or an error. */
int ls_udp_join(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave);

#endif
