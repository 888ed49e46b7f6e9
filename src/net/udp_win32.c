/* udp_win32.c - opens UDP sockets: see ls_udp_sock_open in udp.h. */
#include <stdlib.h>
#include <string.h>

#include "base/wide_win32.h"
#include "net/sock.h"
#include "net/sockaddr_win32.h"
#include "net/udp_internal.h"
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

static int set_bytes(SOCKET fd, int level, int name, const void *value, int len)
{
    return setsockopt(fd, level, name, value, len) != 0 ? ls_winsock_error() : LS_OK;
}

static int set(SOCKET fd, int level, int name, DWORD value)
{
    return set_bytes(fd, level, name, &value, sizeof value);
}

int ls_udp_join(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave)
{
    if (group->family == LS_ADDR_IP4) {
        struct ip_mreq request = {.imr_interface = interface4(through)};
        memcpy(&request.imr_multiaddr, group->bytes, 4);
        return set_bytes((SOCKET)fd, IPPROTO_IP, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request,
                         sizeof request);
    }
    struct ipv6_mreq request = {.ipv6mr_interface = group->scope != 0 ? group->scope : through->number};
    memcpy(&request.ipv6mr_multiaddr, group->bytes, 16);
    return set_bytes((SOCKET)fd, IPPROTO_IPV6, leave ? IPV6_DROP_MEMBERSHIP : IPV6_ADD_MEMBERSHIP, &request,
                     sizeof request);
}

static int set_multicast(SOCKET fd, bool ip6, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int level = ip6 ? IPPROTO_IPV6 : IPPROTO_IP;
    ls_udp_interface through;
    int err = ls_udp_interface_of(setup->interface, &through);
    if (err < 0) return err;
    if (setup->ttl != 0 && (err = set(fd, level, ip6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, setup->ttl)) < 0)
        return err;
    if (setup->loop_set && (err = set(fd, level, ip6 ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, setup->loop)) < 0)
        return err;
    if (setup->interface[0] != '\0') {
        const struct in_addr ip4 = interface4(&through);
        err = ip6 ? set(fd, level, IPV6_MULTICAST_IF, through.number)
                  : set_bytes(fd, level, IP_MULTICAST_IF, &ip4, sizeof ip4);
        if (err < 0) return err;
    }
    return ls_udp_change_groups((ls_fd)fd, before, setup, &through);
}

static int set_options(SOCKET fd, const ls_udp_setup *setup)
{
    int err;
    if ((err = set(fd, SOL_SOCKET, SO_BROADCAST, setup->broadcast)) < 0) return err;
    if (setup->recv_buffer_bytes > 0 && (err = set(fd, SOL_SOCKET, SO_RCVBUF, setup->recv_buffer_bytes)) < 0)
        return err;
    if (setup->send_buffer_bytes > 0 && (err = set(fd, SOL_SOCKET, SO_SNDBUF, setup->send_buffer_bytes)) < 0)
        return err;
    return LS_OK;
}

/* Options to be set before bind. */
static int set_up(SOCKET fd, bool ip6, const ls_udp_setup *setup, const ls_addr *at)
{
    int err = LS_OK;
    if (ip6 && at != NULL) { /* the wildcard address accepts IPv4 as well; a specific address does not */
        const bool any = memcmp(at->bytes, &in6addr_any, sizeof in6addr_any) == 0;
        if ((err = set(fd, IPPROTO_IPV6, IPV6_V6ONLY, !any)) < 0) return err;
    }
    if (at != NULL && (err = set(fd, SOL_SOCKET, setup->reuse_port ? SO_REUSEADDR : SO_EXCLUSIVEADDRUSE, 1)) < 0)
        return err;
    return set_options(fd, setup);
}

/* Windows cannot bind to a group address: the socket binds to the wildcard and receives every datagram to its port. */
static ls_addr bind_address_of(const ls_addr *at)
{
    ls_addr address = *at;
    const bool group = at->family == LS_ADDR_IP4 ? at->bytes[0] >> 4 == 14 : at->bytes[0] == 0xff;
    if (group) memset(address.bytes, 0, sizeof address.bytes);
    return address;
}

int ls_udp_sock_open(const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_fd *out, ls_addr *local)
{
    const bool ip6 = (at != NULL ? at : to)->family == LS_ADDR_IP6;
    u_long on = 1;
    ls_sockaddr sa;
    int err = ls_winsock_start();
    if (err < 0) return err;
    const SOCKET fd =
        WSASocketW(ip6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (fd == INVALID_SOCKET) return ls_winsock_error();
    (void)ioctlsocket(fd, FIONBIO, &on);
    if ((err = set_up(fd, ip6, setup, at)) < 0) goto fail;
    if (at != NULL) {
        /* An unconnected socket must not fail because one peer sent ICMP port unreachable. */
        BOOL off = FALSE;
        DWORD bytes;
        (void)WSAIoctl(fd, SIO_UDP_CONNRESET, &off, sizeof off, NULL, 0, &bytes, NULL, NULL);
    }
    const ls_addr address = at != NULL ? bind_address_of(at) : *to;
    ls_addr_to(&address, &sa);
    const struct sockaddr *name = (const struct sockaddr *)(const void *)sa.bytes;
    if ((at != NULL ? bind(fd, name, (int)sa.len) : connect(fd, name, (int)sa.len)) != 0) {
        err = at != NULL ? ls_winsock_bind_error("udp", at->port) : ls_winsock_error();
        goto fail;
    }
    if ((err = set_multicast(fd, ip6, NULL, setup)) < 0) goto fail; /* only a bound socket can join a group */
    ls_addr bound;
    if ((err = ls_sock_local(fd, &bound)) < 0) goto fail;
    *local = at != NULL ? *at : bound;
    local->port = bound.port;
    *out = fd;
    return LS_OK;

fail:
    ls_sock_discard(fd);
    return err;
}

int ls_udp_sock_change(ls_fd fd, const ls_addr *at, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int err = set_options((SOCKET)fd, setup);
    return err < 0 ? err : set_multicast((SOCKET)fd, at->family == LS_ADDR_IP6, before, setup);
}

uint32_t ls_udp_sock_dropped(ls_fd fd)
{
    (void)fd;
    return 0;
}

bool ls_udp_addr_is_local(const ls_addr *addr)
{
    ls_addr any_port = *addr;
    ls_sockaddr sa;
    any_port.port = 0;
    ls_addr_to(&any_port, &sa);
    const SOCKET fd = WSASocketW(addr->family == LS_ADDR_IP6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0, NULL, 0,
                                 WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (fd == INVALID_SOCKET) return false;
    const bool local = bind(fd, (const struct sockaddr *)(const void *)sa.bytes, (int)sa.len) == 0;
    (void)closesocket(fd);
    return local;
}
