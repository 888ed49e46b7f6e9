/* rawsock_win32.c - see rawsock.h. */
#include "net/sock/rawsock.h"

#include <io.h>
#include <ws2tcpip.h>

#include "port/winsock_win32.h"

int ls_rawsock_failed(void)
{
    return ls_winsock_error(); /* a connect in progress reports WSAEWOULDBLOCK as well: LS_EAGAIN */
}

int ls_rawsock_open(bool stream, uint8_t family, ls_fd *out)
{
    u_long on = 1;
    const int err = ls_winsock_start();
    if (err < 0) return err;
    const SOCKET fd =
        WSASocketW(family == LS_ADDR_IP4   ? AF_INET
                   : family == LS_ADDR_IP6 ? AF_INET6
                                           : AF_UNIX,
                   stream ? SOCK_STREAM : SOCK_DGRAM, 0, NULL, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (fd == INVALID_SOCKET) return ls_rawsock_failed();
    (void)ioctlsocket(fd, FIONBIO, &on); /* cannot fail for a new socket */
    *out = fd;
    return LS_OK;
}

int ls_rawsock_bind(ls_fd fd, bool stream, const ls_addr *at)
{
    const DWORD on = 1;
    ls_sockaddr sa;
    ls_addr_to(at, &sa);
    /* Windows can bind an address in TIME_WAIT, and no address may be shared. */
    if (setsockopt(fd, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, (const char *)&on, sizeof on) != 0) return ls_rawsock_failed();
    if (bind(fd, (const struct sockaddr *)(const void *)sa.bytes, (int)sa.len) == 0) return LS_OK;
    return ls_winsock_bind_error(stream ? "tcp" : "udp", at->port);
}

int ls_rawsock_listen(ls_fd fd, int backlog)
{
    return listen(fd, ls_winsock_backlog(backlog < 0 ? 0 : (uint32_t)backlog)) != 0 ? ls_rawsock_failed() : LS_OK;
}

int ls_rawsock_receive(ls_fd fd, char *bytes, size_t room, ls_addr *from, bool *truncated)
{
    ls_sockaddr sa = {.len = 0};
    int len = sizeof sa.bytes;
    if (room > INT32_MAX) room = INT32_MAX;
    const int n = recvfrom(fd, bytes, (int)room, 0, (struct sockaddr *)(void *)sa.bytes, &len);
    const bool longer = n < 0 && WSAGetLastError() == WSAEMSGSIZE; /* FIONREAD would count all datagrams */
    if (n < 0 && !longer) return ls_rawsock_failed();
    sa.len = len > 0 && (size_t)len <= sizeof sa.bytes ? (uint32_t)len : 0;
    if (from != NULL) ls_addr_of(&sa, from);
    if (truncated != NULL) *truncated = longer;
    return longer ? (int)room : n;
}

ls_fd ls_socket_fileno(FILE *file)
{
    return (ls_fd)_get_osfhandle(_fileno(file));
}
