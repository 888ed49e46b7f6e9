/* rawsock_posix.c - see rawsock.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "net/sock/rawsock.h"

int ls_rawsock_failed(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS || errno == EINTR
               ? LS_EAGAIN
               : ls_err_from_errno(errno);
}

int ls_rawsock_open(bool stream, uint8_t family, ls_fd *out)
{
    const int fd = socket(family == LS_ADDR_IP4   ? AF_INET
                          : family == LS_ADDR_IP6 ? AF_INET6
                                                  : AF_UNIX,
                          (stream ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return ls_err_from_errno(errno);
    *out = fd;
    return LS_OK;
}

int ls_rawsock_bind(ls_fd fd, bool stream, const ls_addr *at)
{
    const int on = 1;
    ls_sockaddr sa;
    ls_addr_to(at, &sa);
    /* On Linux SO_REUSEADDR only permits TIME_WAIT for streams; for datagrams it would share the address. */
    if (stream && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) return ls_rawsock_failed();
    return bind(fd, (const struct sockaddr *)sa.bytes, sa.len) < 0 ? ls_rawsock_failed() : LS_OK;
}

int ls_rawsock_listen(ls_fd fd, int backlog)
{
    return listen(fd, backlog) < 0 ? ls_rawsock_failed() : LS_OK;
}

int ls_rawsock_receive(ls_fd fd, char *bytes, size_t room, ls_addr *from, bool *truncated)
{
    ls_sockaddr sa = {.len = 0};
    struct iovec iov = {bytes, room};
    struct msghdr message = {.msg_name = sa.bytes, .msg_namelen = sizeof sa.bytes, .msg_iov = &iov, .msg_iovlen = 1};
    const ssize_t n = recvmsg(fd, &message, 0);
    if (n < 0) return ls_rawsock_failed();
    sa.len = message.msg_namelen;
    if (from != NULL) ls_addr_of(&sa, from);
    if (truncated != NULL) *truncated = message.msg_flags & MSG_TRUNC;
    return (int)n;
}

ls_fd ls_socket_fileno(FILE *file)
{
    return fileno(file);
}
