/* sock.c - see sock.h: what is the same on all systems. */
#include "net/sock/sock.h"

#include "net/sock/rawsock.h"
#include "net/sock/sockaddr.h"

int ls_sock_set_up_listener(ls_fd fd, const ls_addr *at)
{
    int err = LS_OK;
    if (at->family == LS_ADDR_UNIX) return err;
    if ((err = ls_rawsock_set(fd, SOL_SOCKET, LS_SO_LISTEN, 1)) < 0) return err;
    /* The wildcard address accepts IPv4 as well; a specific address does not. */
    if (at->family == LS_ADDR_IP6) err = ls_rawsock_set(fd, IPPROTO_IPV6, IPV6_V6ONLY, !ls_addr_is_any(at));
    return err < 0 ? err : ls_rawsock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

int ls_sock_local(ls_fd fd, ls_addr *out)
{
    ls_sockaddr sa;
    socklen_t len = sizeof sa.bytes;
    if (getsockname(fd, (struct sockaddr *)(void *)sa.bytes, &len) != 0) return ls_rawsock_failed();
    sa.len = (uint32_t)len;
    ls_addr_of(&sa, out);
    return LS_OK;
}

int ls_sock_open(uint8_t family, ls_fd *out)
{
    ls_fd fd;
    int err = ls_rawsock_open(true, family, &fd);
    if (err == LS_OK && family != LS_ADDR_UNIX && (err = ls_rawsock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1)) < 0)
        ls_sock_discard(fd);
    if (err == LS_OK) *out = fd;
    return err;
}
