/* udp_win32.c - see udp_internal.h. */
#include <stdlib.h>
#include <string.h>

#include "base/os/wide_win32.h"
#include "net/sock/rawsock.h"
#include "net/sock/sockaddr_win32.h"
#include "net/udp/udp_internal.h"
#include "port/winsock_win32.h"

/* A name such as "ethernet_32768", or the name that the system shows, such as "Ethernet". */
uint32_t ls_udp_interface_number(const char *name)
{
    NET_LUID luid;
    NET_IFINDEX number = if_nametoindex(name);
    wchar_t *shown = number == 0 ? ls_wide_of(name) : NULL;
    if (shown != NULL && ConvertInterfaceAliasToLuid(shown, &luid) == NO_ERROR)
        (void)ConvertInterfaceLuidToIndex(&luid, &number);
    free(shown);
    return number;
}

/* The interface for the options of IPv4: its address, or 0.x.y.z for a number. */
static struct in_addr interface4(const ls_udp_interface *interface)
{
    struct in_addr out;
    memcpy(&out, interface->ip4, sizeof out);
    if (interface->number != 0) out.s_addr = htonl(interface->number);
    return out;
}

int ls_udp_join4(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave)
{
    struct ip_mreq request = {.imr_interface = interface4(through)};
    memcpy(&request.imr_multiaddr, group->bytes, 4);
    return ls_rawsock_set_bytes(fd, IPPROTO_IP, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request,
                                sizeof request);
}

int ls_udp_set_interface4(ls_fd fd, const ls_udp_interface *through)
{
    const struct in_addr ip4 = interface4(through);
    return ls_rawsock_set_bytes(fd, IPPROTO_IP, IP_MULTICAST_IF, &ip4, sizeof ip4);
}

/* Windows cannot bind to a group address: the socket binds to the wildcard and receives every datagram to its port. */
static ls_addr bind_address_of(const ls_addr *at)
{
    ls_addr address = *at;
    const bool group = at->family == LS_ADDR_IP4 ? at->bytes[0] >> 4 == 14 : at->bytes[0] == 0xff;
    if (group) memset(address.bytes, 0, sizeof address.bytes);
    return address;
}

int ls_udp_bind(ls_fd fd, const ls_udp_setup *setup, const ls_addr *at)
{
    const ls_addr address = bind_address_of(at);
    BOOL off = FALSE;
    DWORD bytes;
    ls_sockaddr sa;
    const int err = ls_rawsock_set(fd, SOL_SOCKET, setup->reuse_port ? SO_REUSEADDR : SO_EXCLUSIVEADDRUSE, 1);
    if (err < 0) return err;
    /* An unconnected socket must not fail because one peer sent ICMP port unreachable. */
    (void)WSAIoctl(fd, SIO_UDP_CONNRESET, &off, sizeof off, NULL, 0, &bytes, NULL, NULL);
    ls_addr_to(&address, &sa);
    if (bind(fd, (const struct sockaddr *)(const void *)sa.bytes, (int)sa.len) == 0) return LS_OK;
    return ls_winsock_bind_error("udp", at->port);
}

uint32_t ls_udp_sock_dropped(ls_fd fd)
{
    return 0;
}
