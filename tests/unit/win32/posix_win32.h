/* posix_win32.h - the POSIX calls of the unit tests, implemented with Winsock and the C library, so that the same
 * tests run on Windows. The headers beside it have the POSIX names and include it.
 *
 * A descriptor is a socket handle or a descriptor of the C library; a call tries the socket first. fileno returns the
 * handle of a FILE, an ls_fd. Windows has no Unix socket pairs: socketpair connects two sockets on the loopback. */
#ifndef TESTS_UNIT_POSIX_WIN32_H
#define TESTS_UNIT_POSIX_WIN32_H

#include <winsock2.h>
/* the order of these is significant */
#include <afunix.h>
#include <direct.h>
#include <errno.h>
#include <io.h>
#include <iphlpapi.h>
#include <netioapi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <windows.h>
#include <ws2tcpip.h>

#undef DELETE /* a right in winnt.h */
#undef IN     /* Windows annotates parameters with these */
#undef OUT
#undef far
#undef interface
#undef near
#undef TEXT
#undef IF_NAMESIZE

typedef ADDRESS_FAMILY sa_family_t;

enum {
    IF_NAMESIZE = 256 + 1, /* NDIS_IF_MAX_STRING_SIZE, defined only in the driver kit */
    SOCK_NONBLOCK = 0x10000,
    SOCK_CLOEXEC = 0x20000,
    MSG_NOSIGNAL = 0,
    MSG_DONTWAIT = 0x10000,
    SHUT_RD = SD_RECEIVE,
    SHUT_WR = SD_SEND,
    SHUT_RDWR = SD_BOTH,
    F_GETFD = 1,
    F_GETFL = 3,
    F_SETFL = 4,
    FD_CLOEXEC = 1,
    O_NONBLOCK = 0x10000,
    O_CLOEXEC = 0x20000,
};

#ifndef STDERR_FILENO
#define STDERR_FILENO 2
#endif

__attribute__((constructor)) static void posix_start(void)
{
    WSADATA about;
    (void)WSAStartup(MAKEWORD(2, 2), &about);
    setvbuf(stdout, NULL, _IONBF, 0);
}

static inline int posix_errno(int error)
{
    switch (error) {
    case WSAEWOULDBLOCK: return EAGAIN;
    case WSAECONNRESET: return ECONNRESET;
    case WSAECONNABORTED: return ECONNABORTED;
    case WSAECONNREFUSED: return ECONNREFUSED;
    case WSAEADDRINUSE: return EADDRINUSE;
    case WSAENOTSOCK: return EBADF;
    case WSAENOTCONN: return ENOTCONN;
    case WSAESHUTDOWN: return EPIPE;
    default: return EINVAL;
    }
}

static inline int posix_result(int result)
{
    if (result < 0) errno = posix_errno(WSAGetLastError());
    return result;
}

static inline void posix_block(int fd, bool blocks)
{
    u_long on = !blocks;
    (void)ioctlsocket((SOCKET)fd, FIONBIO, &on);
}

static inline int posix_socket(int family, int type, int protocol)
{
    const SOCKET fd =
        WSASocketW(family, type & 0xffff, protocol, NULL, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    if (fd == INVALID_SOCKET) return posix_result(-1);
    if (type & SOCK_NONBLOCK) posix_block((int)fd, false);
    return (int)fd;
}

static inline int posix_accept(int listener, struct sockaddr *from, int *len, int flags)
{
    const SOCKET fd = accept((SOCKET)listener, from, len);
    if (fd == INVALID_SOCKET) return posix_result(-1);
    posix_block((int)fd, !(flags & SOCK_NONBLOCK)); /* Winsock copies the mode of the listener */
    return (int)fd;
}

static inline bool posix_is_socket(int fd)
{
    int type, len = sizeof type;
    return getsockopt((SOCKET)fd, SOL_SOCKET, SO_TYPE, (char *)&type, &len) == 0;
}

/* The mode of a socket cannot be queried, and a port does not need it: F_GETFL returns the mode last set. */
static inline int posix_fcntl(int fd, int what, int value)
{
    DWORD inherited;
    if (!posix_is_socket(fd) || !GetHandleInformation((HANDLE)(intptr_t)fd, &inherited)) return -1;
    if (what == F_SETFL) posix_block(fd, !(value & O_NONBLOCK));
    if (what == F_GETFD) return inherited & HANDLE_FLAG_INHERIT ? 0 : FD_CLOEXEC;
    return what == F_GETFL ? O_NONBLOCK : 0;
}

#define pipe2(fds, flags) posix_pipe(fds)

int posix_pipe(int fds[2]); /* posix_win32.c; of handles */

char *mkdtemp(
    char
        *pattern); /* posix_win32.c; there also read, write, close, dup, dup2 and open, which the C library declares */

/* For a handle returned by open. */
static inline ssize_t pwrite(int fd, const void *bytes, size_t len, int64_t at)
{
    OVERLAPPED where = {.Offset = (DWORD)at, .OffsetHigh = (DWORD)(at >> 32)};
    DWORD written;
    return WriteFile((HANDLE)(intptr_t)fd, bytes, (DWORD)len, &written, &where) ? (ssize_t)written : -1;
}

enum { AT_FDCWD = -100, UTIME_OMIT = (1 << 30) - 2 };
/* Sets the time of change, times[1], in whole seconds; the file may be open. */
static inline int utimensat(int directory, const char *path, const struct timespec times[2], int flags)
{
    const uint64_t at = ((uint64_t)times[1].tv_sec + UINT64_C(11644473600)) * 10000000; /* FILETIME begins in 1601 */
    const FILETIME time = {(DWORD)at, (DWORD)(at >> 32)};
    const HANDLE file =
        CreateFileA(path, FILE_WRITE_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL,
                    OPEN_EXISTING, 0, NULL);
    (void)directory, (void)flags;
    if (file == INVALID_HANDLE_VALUE) return -1;
    const BOOL done = SetFileTime(file, NULL, NULL, &time);
    CloseHandle(file);
    return done ? 0 : -1;
}

/* Whether the call would wait; used to emulate MSG_DONTWAIT. */
static inline bool posix_would_wait(int fd, int flags)
{
    struct pollfd look = {.fd = (SOCKET)fd, .events = POLLRDNORM};
    if (!(flags & MSG_DONTWAIT) || WSAPoll(&look, 1, 0) != 0) return false;
    errno = EAGAIN;
    return true;
}

static inline int posix_recv(int fd, void *to, size_t len, int flags)
{
    if (posix_would_wait(fd, flags)) return -1;
    const int n = recv((SOCKET)fd, to, (int)len, flags & ~MSG_DONTWAIT);
    return n < 0 && WSAGetLastError() == WSAEMSGSIZE ? (int)len : posix_result(n); /* a truncated datagram */
}

/* Emulates MSG_DONTWAIT on blocking sockets. */
static inline int posix_send(int fd, const void *from, size_t len, int flags)
{
    if (flags & MSG_DONTWAIT) posix_block(fd, false);
    const int n = posix_result(send((SOCKET)fd, from, (int)len, flags & ~MSG_DONTWAIT));
    if (flags & MSG_DONTWAIT) posix_block(fd, true);
    return n;
}

static inline int posix_sendto(int fd, const void *from, size_t len, int flags, const struct sockaddr *to,
                               size_t to_len)
{
    return posix_result(sendto((SOCKET)fd, from, (int)len, flags & ~MSG_DONTWAIT, to, (int)to_len));
}

static inline int posix_connect(int fd, const void *to, size_t len)
{
    const int result = posix_result(connect((SOCKET)fd, to, (int)len));
    if (result < 0 && errno == EAGAIN) errno = EINPROGRESS;
    return result;
}

static inline int posix_socketpair(int family, int type, int protocol, int fds[2])
{
    struct sockaddr_in at[2] = {{.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}}, from;
    const bool stream = (type & 0xffff) == SOCK_STREAM;
    int len = sizeof at[0];
    at[1] = at[0];
    if (stream) {
        const int listener = posix_socket(AF_INET, SOCK_STREAM, protocol);
        const DWORD little = 32768; /* about the size of a Unix socket pair, instead of megabytes */
        for (int i = 0; i < 2; i++)
            (void)setsockopt((SOCKET)listener, SOL_SOCKET, i ? SO_RCVBUF : SO_SNDBUF, (const char *)&little,
                             sizeof little);
        bool ok = bind((SOCKET)listener, (struct sockaddr *)&at[0], len) == 0 && listen((SOCKET)listener, 1) == 0 &&
                  getsockname((SOCKET)listener, (struct sockaddr *)&at[0], &len) == 0;
        fds[0] = posix_socket(AF_INET, SOCK_STREAM, protocol);
        for (int i = 0; i < 2; i++)
            (void)setsockopt((SOCKET)fds[0], SOL_SOCKET, i ? SO_RCVBUF : SO_SNDBUF, (const char *)&little,
                             sizeof little);
        ok = ok && connect((SOCKET)fds[0], (struct sockaddr *)&at[0], len) == 0;
        fds[1] = posix_accept(listener, (struct sockaddr *)&from, &len, 0);
        (void)close(listener);
        for (int i = 0; i < 2; i++) {
            const DWORD on = 1;
            (void)setsockopt((SOCKET)fds[i], IPPROTO_TCP, TCP_NODELAY, (const char *)&on, sizeof on);
            if (type & SOCK_NONBLOCK) posix_block(fds[i], false);
        }
        return ok && fds[1] >= 0 ? 0 : posix_result(-1);
    }
    bool ok = true;
    const DWORD room = 4 << 20; /* so that no datagram is lost */
    for (int i = 0; i < 2; i++) {
        fds[i] = posix_socket(AF_INET, type, protocol);
        ok = ok && bind((SOCKET)fds[i], (struct sockaddr *)&at[i], len) == 0 &&
             getsockname((SOCKET)fds[i], (struct sockaddr *)&at[i], &len) == 0;
    }
    for (int i = 0; i < 2; i++)
        (void)setsockopt((SOCKET)fds[i], SOL_SOCKET, SO_RCVBUF, (const char *)&room, sizeof room);
    for (int i = 0; i < 2; i++) ok = ok && connect((SOCKET)fds[i], (struct sockaddr *)&at[!i], len) == 0;
    return ok ? 0 : posix_result(-1);
}

/* Windows cannot set the path MTU. Tests set it to prevent segmentation offload, which Windows does not do. */
static inline int posix_setsockopt(int fd, int level, int name, const void *value, size_t len)
{
    if (level == IPPROTO_IPV6 && name == IPV6_MTU) return 0;
    return posix_result(setsockopt((SOCKET)fd, level, name, value, (int)len));
}

/* After the functions above, which use the original meaning of these names. */
#define socket(family, type, protocol)          posix_socket(family, type, protocol)
#define socketpair(family, type, protocol, fds) posix_socketpair(family, type, protocol, fds)
#define accept(fd, from, len)                   posix_accept(fd, from, len, 0)
#define accept4(fd, from, len, flags)           posix_accept(fd, from, len, flags)
#define bind(fd, at, len)                       posix_result(bind((SOCKET)(fd), at, (int)(len)))
#define connect(fd, to, len)                    posix_connect(fd, to, len)
#define listen(fd, backlog)                     posix_result(listen((SOCKET)(fd), backlog))
#define shutdown(fd, how)                       posix_result(shutdown((SOCKET)(fd), (int)(how)))
#define getsockname(fd, at, len)                posix_result(getsockname((SOCKET)(fd), at, len))
#define getsockopt(fd, level, name, value, len) \
    posix_result(getsockopt((SOCKET)(fd), level, name, (char *)(value), len))
#define setsockopt(fd, level, name, ...)         posix_setsockopt(fd, level, name, __VA_ARGS__)
#define recv(fd, to, len, flags)                 posix_recv(fd, to, len, flags)
#define send(fd, from, len, flags)               posix_send(fd, from, len, flags)
#define sendto(fd, from, len, flags, to, to_len) posix_sendto(fd, from, len, flags, to, to_len)
#define pipe(fds)                                _pipe(fds, 65536, 0x8000 /* binary */)
#define POSIX_FCNTL(fd, what, value, ...)        posix_fcntl(fd, what, value)
#define fcntl(...)                               POSIX_FCNTL(__VA_ARGS__, 0, 0)
#define poll(fds, count, ms)                     WSAPoll(fds, count, ms)
#define mkdir(path, mode)                        _mkdir(path)
#define fileno(file)                             ((int)_get_osfhandle(_fileno(file)))

#endif
