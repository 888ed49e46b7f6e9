/* rawsock.c - see rawsock.h: the calls that are the same on all systems. */
#include "net/sock/rawsock.h"

#include "net/sock/sockaddr.h"

int ls_rawsock_set_bytes(ls_fd fd, int level, int name, const void *value, size_t len)
{
    return setsockopt(fd, level, name, value, (socklen_t)len) != 0 ? ls_rawsock_failed() : LS_OK;
}

int ls_rawsock_set(ls_fd fd, int level, int name, int value)
{
    return ls_rawsock_set_bytes(fd, level, name, &value, sizeof value);
}

int ls_rawsock_connect(ls_fd fd, const ls_addr *to)
{
    ls_sockaddr sa;
    ls_addr_to(to, &sa);
    return connect(fd, (const struct sockaddr *)(const void *)sa.bytes, (socklen_t)sa.len) != 0 ? ls_rawsock_failed()
                                                                                                : LS_OK;
}

int ls_rawsock_send(ls_fd fd, const char *bytes, size_t len, const ls_addr *to)
{
    ls_sockaddr sa = {.len = 0};
    if (to != NULL) ls_addr_to(to, &sa);
    if (len > INT32_MAX) len = INT32_MAX;
    const struct sockaddr *target = to != NULL ? (const struct sockaddr *)(const void *)sa.bytes : NULL;
    const int n = (int)sendto(fd, bytes, (int)len, MSG_NOSIGNAL, target, (socklen_t)sa.len);
    return n < 0 ? ls_rawsock_failed() : n;
}

int ls_rawsock_error(ls_fd fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, (void *)&error, &len) != 0) return ls_rawsock_failed();
    return ls_err_from_system(error);
}

int ls_rawsock_shutdown(ls_fd fd)
{
    return shutdown(fd, SHUT_WR) != 0 ? ls_rawsock_failed() : LS_OK;
}
