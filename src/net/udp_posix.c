/* udp_posix.c - opens UDP sockets: see ls_udp_sock_open in udp.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sock.h"
#include "net/udp_internal.h"

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

static int set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) < 0 ? ls_err_from_errno(errno) : LS_OK;
}

int ls_udp_join(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave)
{
    int result;
    if (group->family == LS_ADDR_IP4) {
        struct ip_mreqn request = interface4(through);
        memcpy(&request.imr_multiaddr, group->bytes, 4);
        result = setsockopt(fd, IPPROTO_IP, leave ? IP_DROP_MEMBERSHIP : IP_ADD_MEMBERSHIP, &request, sizeof request);
    } else {
        struct ipv6_mreq request = {.ipv6mr_interface = group->scope != 0 ? group->scope : through->number};
        memcpy(&request.ipv6mr_multiaddr, group->bytes, 16);
        result =
            setsockopt(fd, IPPROTO_IPV6, leave ? IPV6_DROP_MEMBERSHIP : IPV6_ADD_MEMBERSHIP, &request, sizeof request);
    }
    return result < 0 ? ls_err_from_errno(errno) : LS_OK;
}

static int set_multicast(int fd, bool ip6, const ls_udp_setup *before, const ls_udp_setup *setup)
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
        const struct ip_mreqn ip4 = interface4(&through);
        if (ip6)
            err = set(fd, level, IPV6_MULTICAST_IF, (int)through.number);
        else if (setsockopt(fd, level, IP_MULTICAST_IF, &ip4, sizeof ip4) < 0)
            err = ls_err_from_errno(errno);
        if (err < 0) return err;
    }
    return ls_udp_change_groups(fd, before, setup, &through);
}

static int set_options(int fd, const ls_udp_setup *setup)
{
    int err;
    if ((err = set(fd, SOL_SOCKET, SO_BROADCAST, setup->broadcast)) < 0) return err;
    if (setup->recv_buffer_bytes > 0 && (err = set(fd, SOL_SOCKET, SO_RCVBUF, (int)setup->recv_buffer_bytes)) < 0)
        return err;
    if (setup->send_buffer_bytes > 0 && (err = set(fd, SOL_SOCKET, SO_SNDBUF, (int)setup->send_buffer_bytes)) < 0)
        return err;
    return LS_OK;
}

static int set_up(int fd, bool ip6, const ls_udp_setup *setup, const ls_addr *at)
{
    int err = LS_OK;
    if (ip6 && at != NULL) { /* the wildcard address accepts IPv4 as well; a specific address does not */
        const bool any = memcmp(at->bytes, &in6addr_any, sizeof in6addr_any) == 0;
        if ((err = set(fd, IPPROTO_IPV6, IPV6_V6ONLY, !any)) < 0) return err;
    }
    /* For UDP, SO_REUSEADDR alone would let a second server take over the address silently, so it is set only together
     * with SO_REUSEPORT. */
    if (setup->reuse_port && ((err = set(fd, SOL_SOCKET, SO_REUSEADDR, setup->group_count > 0)) < 0 ||
                              (err = set(fd, SOL_SOCKET, SO_REUSEPORT, 1)) < 0))
        return err;
    if ((err = set_options(fd, setup)) < 0) return err;
    return set_multicast(fd, ip6, NULL, setup);
}

int ls_udp_sock_open(const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_fd *out, ls_addr *local)
{
    const bool ip6 = (at != NULL ? at : to)->family == LS_ADDR_IP6;
    ls_sockaddr sa;
    int fd = socket(ip6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return ls_err_from_errno(errno);
    int err = set_up(fd, ip6, setup, at);
    if (err < 0) goto fail;
    ls_addr_to(at != NULL ? at : to, &sa);
    if ((at != NULL ? bind(fd, (const struct sockaddr *)sa.bytes, sa.len)
                    : connect(fd, (const struct sockaddr *)sa.bytes, sa.len)) < 0) {
        err = ls_err_from_errno(errno);
        goto fail;
    }
    if ((err = ls_sock_local(fd, local)) < 0) goto fail;
    *out = fd;
    return LS_OK;

fail:
    ls_sock_discard(fd);
    return err;
}

int ls_udp_sock_change(ls_fd fd, const ls_addr *at, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int err = set_options(fd, setup);
    return err < 0 ? err : set_multicast(fd, at->family == LS_ADDR_IP6, before, setup);
}

/* sock_diag(7): the array of SK_MEMINFO_*, of which the last one is SK_MEMINFO_DROPS. */
uint32_t ls_udp_sock_dropped(ls_fd fd)
{
    enum { DROPS = 8, VARS = 9 };
    uint32_t values[VARS] = {0};
    socklen_t bytes = sizeof values;
    return getsockopt((int)fd, SOL_SOCKET, SO_MEMINFO, values, &bytes) == 0 ? values[DROPS] : 0;
}

bool ls_udp_addr_is_local(const ls_addr *addr)
{
    ls_addr any_port = *addr;
    ls_sockaddr sa;
    any_port.port = 0;
    ls_addr_to(&any_port, &sa);
    const int fd = socket(addr->family == LS_ADDR_IP6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool local = bind(fd, (const struct sockaddr *)sa.bytes, sa.len) == 0;
    close(fd);
    return local;
}
