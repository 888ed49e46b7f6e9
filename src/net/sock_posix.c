/* sock_posix.c - see sock.h. */
#define _GNU_SOURCE
#include "net/sock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int system_family(const ls_addr *addr)
{
    switch (addr->family) {
    case LS_ADDR_IP4: return AF_INET;
    case LS_ADDR_IP6: return AF_INET6;
    default: return AF_UNIX;
    }
}

static bool has_path(const ls_addr *addr)
{
    return addr->family == LS_ADDR_UNIX && addr->bytes_len > 0 && addr->bytes[0] != '\0';
}

/* No process listens on this path: the socket was left by a process that ended without removing it. */
static bool is_abandoned(const ls_sockaddr *sa)
{
    struct stat st;
    const char *path = ((const struct sockaddr_un *)sa->bytes)->sun_path;
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    bool refused = connect(fd, (const struct sockaddr *)sa->bytes, sa->len) < 0 && errno == ECONNREFUSED;
    close(fd);
    return refused;
}

int ls_sock_listen(const ls_addr *at, uint32_t backlog, ls_fd *out, ls_addr *bound)
{
    const int on = 1, off = 0;
    ls_sockaddr sa;
    ls_addr_to(at, &sa);
    int fd = socket(system_family(at), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return ls_err_from_errno(errno);

    /* On Linux SO_REUSEADDR only permits TIME_WAIT; a second listener is still refused. */
    if (at->family != LS_ADDR_UNIX && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) goto fail;
    if (at->family == LS_ADDR_IP6) {
        /* The wildcard address accepts IPv4 as well; a specific address does not. */
        bool any = memcmp(at->bytes, &in6addr_any, sizeof in6addr_any) == 0;
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof on) < 0) goto fail;
    }
    if (at->family != LS_ADDR_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) goto fail;
    if (bind(fd, (const struct sockaddr *)sa.bytes, sa.len) < 0) {
        if (errno != EADDRINUSE || !has_path(at) || !is_abandoned(&sa)) goto fail;
        ls_sock_unlink(at);
        if (bind(fd, (const struct sockaddr *)sa.bytes, sa.len) < 0) goto fail;
    }
    if (listen(fd, (int)backlog) < 0) goto fail;
    int err = ls_sock_local(fd, bound);
    if (err < 0) {
        close(fd);
        return err;
    }
    *out = fd;
    return LS_OK;

fail:
    err = ls_err_from_errno(errno);
    close(fd);
    return err;
}

int ls_sock_local(ls_fd fd, ls_addr *out)
{
    ls_sockaddr sa;
    socklen_t len = sizeof sa.bytes;
    if (getsockname(fd, (struct sockaddr *)sa.bytes, &len) < 0) return ls_err_from_errno(errno);
    sa.len = len;
    ls_addr_of(&sa, out);
    return LS_OK;
}

int ls_sock_accept(ls_fd listener, ls_fd *out, ls_sockaddr *from)
{
    socklen_t len = sizeof from->bytes;
    int fd = accept4(listener, (struct sockaddr *)from->bytes, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return errno == EWOULDBLOCK ? LS_EAGAIN : ls_err_from_errno(errno);
    from->len = len;
    *out = fd;
    return LS_OK;
}

int ls_sock_open(uint8_t family, ls_fd *out)
{
    const int on = 1;
    const ls_addr addr = {.family = family};
    const int fd = socket(system_family(&addr), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return ls_err_from_errno(errno);
    if (family != LS_ADDR_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) {
        const int err = ls_err_from_errno(errno);
        close(fd);
        return err;
    }
    *out = fd;
    return LS_OK;
}

bool ls_sock_unread(ls_fd fd)
{
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

int ls_sock_keepalive(ls_fd fd, bool on, uint32_t idle_s)
{
    const int wanted = on, seconds = idle_s > 32767 ? 32767 : (int)idle_s; /* the system's maximum */
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &wanted, sizeof wanted) < 0) return ls_err_from_errno(errno);
    if (on && setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) < 0)
        return errno == EOPNOTSUPP || errno == ENOPROTOOPT ? LS_ENOTSUP : ls_err_from_errno(errno);
    return LS_OK;
}

void ls_sock_discard(ls_fd fd)
{
    close(fd);
}

void ls_sock_unlink(const ls_addr *at)
{
    if (!has_path(at)) return;
    char path[sizeof at->bytes + 1];
    memcpy(path, at->bytes, at->bytes_len);
    path[at->bytes_len] = '\0';
    unlink(path);
}
