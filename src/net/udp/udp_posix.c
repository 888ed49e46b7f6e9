/* udp_posix.c - see udp_internal.h. */
#define _GNU_SOURCE
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "net/sock/rawsock.h"
#include "net/udp/udp_internal.h"

uint32_t ls_udp_interface_number(const char *name)
{
    return if_nametoindex(name);
}

/* The interface for the options of IPv4. */
static struct ip_mreqn interface4(const ls_udp_interface *interface)
{
    struct ip_mreqn out = {.imr_ifindex = (int)interface->number};
    memcpy(&out.imr_address, interface->ip4, sizeof interface->ip4);
    return out;
}

int ls_udp_join4(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave)
{
    struct ip_mreqn request = interface4(through);
    memcpy(&request.imr_multiaddr, group->bytes, 4);
    return ls_rawsock_set_bytes(fd, IPPROTO_IP, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request,
                                sizeof request);
}

int ls_udp_set_interface4(ls_fd fd, const ls_udp_interface *through)
{
    const struct ip_mreqn ip4 = interface4(through);
    return ls_rawsock_set_bytes(fd, IPPROTO_IP, IP_MULTICAST_IF, &ip4, sizeof ip4);
}

int ls_udp_bind(ls_fd fd, const ls_udp_setup *setup, const ls_addr *at)
{
    int err = LS_OK;
    /* For UDP, SO_REUSEADDR alone would let a second server take over the address silently, so it is set only together
     * with SO_REUSEPORT. */
    if (setup->reuse_port && ((err = ls_rawsock_set(fd, SOL_SOCKET, SO_REUSEADDR, setup->group_count > 0)) < 0 ||
                              (err = ls_rawsock_set(fd, SOL_SOCKET, SO_REUSEPORT, 1)) < 0))
        return err;
    return at != NULL ? ls_rawsock_bind(fd, false, at) : LS_OK;
}

/* sock_diag(7): the array of SK_MEMINFO_*, of which the last one is SK_MEMINFO_DROPS. */
uint32_t ls_udp_sock_dropped(ls_fd fd)
{
    enum { DROPS = 8, VARS = 9 };
    uint32_t values[VARS] = {0};
    socklen_t bytes = sizeof values;
    return getsockopt((int)fd, SOL_SOCKET, SO_MEMINFO, values, &bytes) == 0 ? values[DROPS] : 0;
}
