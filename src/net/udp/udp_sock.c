/* udp_sock.c - opens UDP sockets, as far as that is the same on all systems: see ls_udp_sock_open in udp.h. */
#include <string.h>

#include "net/sock/inherited.h"
#include "net/sock/rawsock.h"
#include "net/sock/sock.h"
#include "net/sock/sockaddr.h"
#include "net/udp/udp_internal.h"

/* The interface that ls_udp_setup.interface names. LS_OK; LS_ENOENT: no interface has this name. */
static int interface_of(const char *text, ls_udp_interface *out)
{
    ls_addr addr;
    *out = (ls_udp_interface){.number = 0};
    if (text[0] == '\0') return LS_OK;
    if (ls_addr_parse(text, 0, &addr) == LS_OK && addr.family == LS_ADDR_IP4) {
        memcpy(out->ip4, addr.bytes, sizeof out->ip4);
        return LS_OK;
    }
    out->number = ls_udp_interface_number(text);
    return out->number != 0 ? LS_OK : LS_ENOENT;
}

static bool has_group(const ls_udp_setup *setup, const ls_addr *group)
{
    for (unsigned i = 0; i < setup->group_count; i++)
        if (memcmp(setup->groups[i].bytes, group->bytes, sizeof group->bytes) == 0) return true;
    return false;
}

/* Join the group, or leave it. LS_OK or an error. */
static int join(ls_fd fd, const ls_addr *group, const ls_udp_interface *through, bool leave)
{
    if (group->family == LS_ADDR_IP4) return ls_udp_join4(fd, group, through, leave);
    struct ipv6_mreq request = {.ipv6mr_interface = group->scope != 0 ? group->scope : through->number};
    memcpy(&request.ipv6mr_multiaddr, group->bytes, 16);
    return ls_rawsock_set_bytes(fd, IPPROTO_IPV6, leave ? IPV6_DROP_MEMBERSHIP : IPV6_ADD_MEMBERSHIP, &request,
                                sizeof request);
}

/* Join the groups of `setup` that `before` (NULL: none) has not joined through the same interface, and leave those
 * that only `before` has. LS_OK or the first error. */
static int change_groups(ls_fd fd, const ls_udp_setup *before, const ls_udp_setup *setup,
                         const ls_udp_interface *through)
{
    const bool same = before != NULL && strcmp(before->interface, setup->interface) == 0;
    ls_udp_interface earlier;
    int err = LS_OK;
    if (before != NULL && interface_of(before->interface, &earlier) == LS_OK)
        for (unsigned i = 0; i < before->group_count; i++)
            if (!same || !has_group(setup, &before->groups[i])) (void)join(fd, &before->groups[i], &earlier, true);
    for (unsigned i = 0; i < setup->group_count && err == LS_OK; i++)
        if (!same || !has_group(before, &setup->groups[i])) {
            err = join(fd, &setup->groups[i], through, false);
            if (err == LS_EADDRINUSE) err = LS_OK; /* an inherited socket has joined it */
        }
    return err;
}

static int set_multicast(ls_fd fd, bool ip6, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int level = ip6 ? IPPROTO_IPV6 : IPPROTO_IP;
    ls_udp_interface through;
    int err = interface_of(setup->interface, &through);
    if (err == LS_OK && setup->ttl != 0)
        err = ls_rawsock_set(fd, level, ip6 ? IPV6_MULTICAST_HOPS : IP_MULTICAST_TTL, setup->ttl);
    if (err == LS_OK && setup->loop_set)
        err = ls_rawsock_set(fd, level, ip6 ? IPV6_MULTICAST_LOOP : IP_MULTICAST_LOOP, setup->loop);
    if (err == LS_OK && setup->interface[0] != '\0')
        err = ip6 ? ls_rawsock_set(fd, level, IPV6_MULTICAST_IF, (int)through.number)
                  : ls_udp_set_interface4(fd, &through);
    return err < 0 ? err : change_groups(fd, before, setup, &through);
}

static int set_options(ls_fd fd, const ls_udp_setup *setup)
{
    int err = ls_rawsock_set(fd, SOL_SOCKET, SO_BROADCAST, setup->broadcast);
    if (err == LS_OK && setup->recv_buffer_bytes > 0)
        err = ls_rawsock_set(fd, SOL_SOCKET, SO_RCVBUF, (int)setup->recv_buffer_bytes);
    if (err == LS_OK && setup->send_buffer_bytes > 0)
        err = ls_rawsock_set(fd, SOL_SOCKET, SO_SNDBUF, (int)setup->send_buffer_bytes);
    return err;
}

int ls_udp_sock_open(const ls_udp_setup *setup, const ls_addr *at, const ls_addr *to, ls_fd *out, ls_addr *local)
{
    const bool ip6 = (at != NULL ? at : to)->family == LS_ADDR_IP6;
    ls_fd fd;
    const bool inherited = at != NULL && ls_inherited_take(false, at, &fd);
    int err = inherited ? LS_OK : ls_rawsock_open(false, (at != NULL ? at : to)->family, &fd);
    if (err < 0) return err;
    /* The wildcard address accepts IPv4 as well; a specific address does not. */
    if (ip6 && at != NULL && !inherited) err = ls_rawsock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, !ls_addr_is_any(at));
    if (err == LS_OK) err = set_options(fd, setup);
    if (err == LS_OK) err = at != NULL ? ls_udp_bind(fd, setup, inherited ? NULL : at) : ls_rawsock_connect(fd, to);
    if (err == LS_OK) err = set_multicast(fd, ip6, NULL, setup); /* Windows: only a bound socket can join a group */
    if (err == LS_OK) err = ls_sock_local(fd, local);
    if (err < 0) {
        ls_sock_discard(fd);
        return err;
    }
    if (at != NULL && at->family == local->family) /* a group, for which Windows binds to the wildcard */
        memcpy(local->bytes, at->bytes, sizeof local->bytes);
    *out = fd;
    return LS_OK;
}

int ls_udp_sock_change(ls_fd fd, const ls_addr *at, const ls_udp_setup *before, const ls_udp_setup *setup)
{
    const int err = set_options(fd, setup);
    return err < 0 ? err : set_multicast(fd, at->family == LS_ADDR_IP6, before, setup);
}

bool ls_udp_addr_is_local(const ls_addr *addr)
{
    ls_addr any_port = *addr;
    ls_fd fd;
    any_port.port = 0;
    if (ls_rawsock_open(false, addr->family, &fd) < 0) return false;
    const bool local = ls_rawsock_bind(fd, false, &any_port) == LS_OK;
    ls_sock_discard(fd);
    return local;
}
