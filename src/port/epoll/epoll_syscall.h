/* epoll_syscall.h - direct system calls for those made per request and per batch of datagrams. The functions of the C
 * library are cancellation points: in a program with threads each performs two atomic operations for a cancellation
 * that is never requested. */
#ifndef LS_PORT_EPOLL_EPOLL_SYSCALL_H
#define LS_PORT_EPOLL_EPOLL_SYSCALL_H

#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static inline ssize_t ls_epoll_sys_recv(int fd, void *to, size_t len)
{
    return syscall(SYS_recvfrom, fd, to, len, 0, NULL, NULL);
}

static inline ssize_t ls_epoll_sys_send(int fd, const void *from, size_t len, int flags)
{
    return syscall(SYS_sendto, fd, from, len, flags, NULL, 0);
}

static inline int ls_epoll_sys_recvmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    return (int)syscall(SYS_recvmmsg, fd, messages, count, flags, NULL);
}

static inline int ls_epoll_sys_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

static inline int ls_epoll_sys_wait(int epoll, struct epoll_event *events, int max, int timeout_ms)
{
    return (int)syscall(SYS_epoll_pwait, epoll, events, max, timeout_ms, NULL, (size_t)0);
}

#endif
