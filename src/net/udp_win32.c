/* udp_win32.c - opens UDP sockets: see ls_udp_sock_open in udp.h. */
#include <stdlib.h>
#include <string.h>

#include "base/wide_win32.h"
#include "net/sock.h"
#include "net/sockaddr_win32.h"
#include "net/udp.h"
#include "port/winsock_win32.h"

/* The multicast interface: for IPv4 an address, or 0.x.y.z for a number; for IPv6 the number. */
typedef struct interface_choice {
    struct in_addr ip4;
    ULONG number;
} interface_choice;

/* The number of an interface by its name, such as "ethernet_32768", or by the name that the system shows, such as
 * "Ethernet"; 0: no interface has this name. */
static ULONG number_of(const char *name)
{
    NET_LUID luid;
    NET_IFINDEX number = if_nametoindex(name);
    wchar_t *shown = number == 0 ? ls_wide_of(name) : NULL;
    if (shown != NULL && ConvertInterfaceAliasToLuid(shown, &luid) == NO_ERROR)
        (void)ConvertInterfaceLuidToIndex(&luid, &number);
    free(shown);
    return number;
}

static int interface_of(const char *text, interface_choice *out)
{
    ls_addr addr;
    *out = (interface_choice){.number = 0};
    if (text[0] == '\0') return LS_OK;
    if (ls_addr_parse(text, 0, &addr) == LS_OK && addr.family == LS_ADDR_IP4) {
        memcpy(&out->ip4, addr.bytes, sizeof out->ip4);
        return LS_OK;
    }
    if ((out->number = number_of(text)) == 0) return LS_ENOENT;
    out->ip4.s_addr = htonl(out->number);
    return LS_OK;
}

static int set_bytes(SOCKET fd, int level, int name, const void *value, int len)
{
    return setsockopt(fd, level, name, value, len) != 0 ? ls_winsock_error() : LS_OK;
}

static int set(SOCKET fd, int level, int name, DWORD value)
{
    return set_bytes(fd, level, name, &value, sizeof value);
}

/* Join the group, or leave it. */
static int join(SOCKET fd, const ls_addr *group, const interface_choice *through, bool leave)
{
    if (group->family == LS_ADDR_IP4) {
        struct ip_mreq request = {.imr_interface = through->ip4};
        memcpy(&request.imr_multiaddr, group->bytes, 4);
        return set_bytes(fd, IPPROTO_IP, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request, sizeof request);
    }
    struct ipv6_mreq request = {.ipv6mr_interface = group->scope != 0 ? group->scope : through->number};
    memcpy(&request.ipv6mr_multiaddr, group->bytes, 16);
    return set_bytes(fd, IPPROTO_IPV6, leave ? IPV6_DROP_MEMBERSHIP : IPV6_ADD_MEMBERSHIP, &request, sizeof request);
}

static bool has_group(const ls_udp_setup *setup, const ls_addr *group)
{
    for (unsigned i = 0; i < setup->group_count; i++)
        if (memcmp(setup->groups[i].bytes, group->bytes, sizeof group->bytes) == 0) return true;
    return false;
}

/* Join the groups of `setup` that `before` (NULL: none) has not joined through the same interface, and leave those that
 * only `before` has. */
static int change_groups(SOCKET fd, const ls_udp_setup *before, const ls_udp_setup *setup,
                         const interface_choice *through)
{
    const bool same = before != NULL && strcmp(before->interface, setup->interface) == 0;
    interface_choice earlier;
    int err = LS_OK;
    if (before != NULL && interface_of(before->interface, &earlier) == LS_OK)
        for (unsigned i = 0; i < before->group_count; i++)
            if (!same || !has_group(setup, &before->groups[i])) (void)join(fd, &before->groups[i], &earlier, true);
    for (unsigned i = 0; i < setup->group_count && err == LS_OK; i++)
        if (!same || !has_group(before, &setup->groups[i])) err = join(fd, &setup->groups[i], through, false);
    return err;
}

static int set_multicast(SOCKET fd, bool ip6, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int level = ip6 ? IPPROTO_IPV6 : IPPROTO_IP;
    interface_choice through;
    int err = interface_of(setup->interface, &through);
    if (err < 0) return err;
    if (setup->ttl != 0 && (err = set(fd, level, ip6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, setup->ttl)) < 0)
        return err;
    if (setup->loop_set && (err = set(fd, level, ip6 ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, setup->loop)) < 0)
        return err;
    if (setup->interface[0] != '\0') {
        err = ip6 ? set(fd, level, IPV6_MULTICAST_IF, through.number)
                  : set_bytes(fd, level, IP_MULTICAST_IF, &through.ip4, sizeof through.ip4);
        if (err < 0) return err;
    }
    return change_groups(fd, before, setup, &through);
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
        err = ls_winsock_error();
        if (err == LS_EACCES && at != NULL) err = LS_EADDRINUSE; /* another process holds it exclusively */
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
