/* sock_posix.c - see sock.h. */
#define _GNU_SOURCE
#include "net/sock/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "net/sock/inherited.h"
#include "net/sock/rawsock.h"

/* The path of a Unix address, or NULL for an abstract name and for other families. */
static const char *path_of(const ls_addr *at, char path[sizeof at->bytes + 1])
{
    if (at->family != LS_ADDR_UNIX || at->bytes_len == 0 || at->bytes[0] == '\0') return NULL;
    memcpy(path, at->bytes, at->bytes_len);
    path[at->bytes_len] = '\0';
    return path;
}

/* The errno value of a connect(2) with a socket of this type; 0: connected. */
static int probe(const ls_sockaddr *sa, int type)
{
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    const int error = connect(fd, (const struct sockaddr *)sa->bytes, sa->len) < 0 ? errno : 0;
    close(fd);
    return error;
}

/* Why bind(2) failed with EADDRINUSE at a path: LS_EAGAIN if no socket is bound to it any more. A datagram socket is
 * refused (ECONNREFUSED) only then; a stream socket that is bound has another type (EPROTOTYPE), whether it listens or
 * not. */
static int path_in_use(const char *path, const ls_sockaddr *sa)
{
    struct stat st;
    if (lstat(path, &st) < 0) return errno == ENOENT ? LS_EAGAIN : ls_err_from_errno(errno);
    if (!S_ISSOCK(st.st_mode)) return LS_EEXIST;
    const int error = probe(sa, SOCK_DGRAM);
    if (error == ECONNREFUSED) return LS_EAGAIN;
    if (error == 0 || (error == EPROTOTYPE && probe(sa, SOCK_SEQPACKET) != EPROTOTYPE)) return LS_EPROTOTYPE;
    return LS_EADDRINUSE;
}

/* Lock a directory, so that two processes do not replace each other's paths. *lock: closing it ends the lock; -1: the
 * directory cannot be read, and is not locked. LS_EBUSY: another process keeps the lock; every user who may read the
 * directory can. */
static int lock_directory(const char *directory, int *lock)
{
    enum { TRIES_MAX = 40, PAUSE_MS = 50 };
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    *lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int n = 0; *lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK; n++) {
        if (n == TRIES_MAX) {
            close(*lock);
            return LS_EBUSY;
        }
        (void)nanosleep(&pause, NULL);
    }
    return LS_OK;
}

/* Replace a path that a process abandoned. */
static int replace_path(int fd, const char *path, const ls_sockaddr *sa)
{
    char directory[sizeof(struct sockaddr_un)];
    const char *slash = strrchr(path, '/');
    const size_t len = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    memcpy(directory, len > 0 ? path : ".", len > 0 ? len : 1);
    directory[len > 0 ? len : 1] = '\0';
    int lock, err = lock_directory(directory, &lock);
    if (err < 0) return err;
    err = path_in_use(path, sa);
    if (err == LS_EAGAIN) {
        (void)unlink(path);
        err = bind(fd, (const struct sockaddr *)sa->bytes, sa->len) < 0 ? ls_err_from_errno(errno) : LS_OK;
    }
    if (lock >= 0) close(lock);
    return err;
}

int ls_sock_set_access(const ls_addr *at, const ls_path_access *access)
{
    char buffer[sizeof at->bytes + 1];
    const char *path = path_of(at, buffer);
    const uid_t user = access->has_user ? access->user : (uid_t)-1;
    const gid_t group = access->has_group ? access->group : (gid_t)-1;
    if (path == NULL) return LS_OK;
    if ((access->has_user || access->has_group) && lchown(path, user, group) < 0) return ls_err_from_errno(errno);
    return access->has_mode && chmod(path, access->mode) < 0 ? ls_err_from_errno(errno) : LS_OK;
}

static int bind_to(int fd, const ls_addr *at, const ls_path_access *access)
{
    char buffer[sizeof at->bytes + 1];
    const char *path = path_of(at, buffer);
    ls_sockaddr sa;
    ls_addr_to(at, &sa);
    int err = LS_OK;
    if (bind(fd, (const struct sockaddr *)sa.bytes, sa.len) < 0) {
        if (errno != EADDRINUSE || path == NULL) return ls_err_from_errno(errno);
        err = replace_path(fd, path, &sa);
    }
    if (err < 0 || path == NULL || access == NULL) return err;
    if ((err = ls_sock_set_access(at, access)) < 0) (void)unlink(path);
    return err;
}

/* Listen with an inherited socket: what can be set of one that is bound. On failure its path stays. */
static int adopt(ls_fd fd, uint32_t backlog, const ls_path_access *access, ls_fd *out, ls_addr *bound)
{
    int err = listen(fd, (int)backlog) < 0 ? ls_err_from_errno(errno) : ls_sock_local(fd, bound);
    if (err == LS_OK && bound->family != LS_ADDR_UNIX) err = ls_rawsock_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (err == LS_OK && access != NULL) err = ls_sock_set_access(bound, access);
    if (err == LS_OK)
        *out = fd;
    else
        close(fd);
    return err;
}

int ls_sock_listen(const ls_addr *at, uint32_t backlog, const ls_path_access *access, ls_fd *out, ls_addr *bound)
{
    ls_path_id id;
    ls_fd fd;
    if (ls_inherited_take(true, at, &fd)) return adopt(fd, backlog, access, out, bound);
    int err = ls_rawsock_open(true, at->family, &fd);
    if (err < 0) return err;
    if ((err = ls_sock_set_up_listener(fd, at)) < 0) goto fail;
    if ((err = bind_to(fd, at, access)) < 0) goto fail;
    ls_sock_path_id(at, &id);
    if (listen(fd, (int)backlog) < 0) {
        err = ls_err_from_errno(errno);
        goto fail_path;
    }
    if ((err = ls_sock_local(fd, bound)) < 0) goto fail_path;
    *out = fd;
    return LS_OK;

fail_path:
    ls_sock_unlink(at, &id);
fail:
    close(fd);
    return err;
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

bool ls_sock_unread(ls_fd fd)
{
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

int64_t ls_sock_receive_now(ls_fd fd, void *to, size_t len, bool peek)
{
    const ssize_t n = recv(fd, to, len, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));
    return n >= 0 ? n : ls_err_from_errno(errno);
}

int ls_sock_keepalive(ls_fd fd, bool on, uint32_t idle_s)
{
    const int wanted = on, seconds = idle_s > 32767 ? 32767 : (int)idle_s; /* the system's maximum */
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &wanted, sizeof wanted) < 0) return ls_err_from_errno(errno);
    if (on && setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds) < 0)
        return errno == EOPNOTSUPP || errno == ENOPROTOOPT ? LS_ENOTSUP : ls_err_from_errno(errno);
    return LS_OK;
}

void ls_sock_unsent_max(ls_fd fd, uint32_t bytes)
{
    const int wanted = (int)bytes;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &wanted, sizeof wanted);
}

int ls_sock_peer_user(ls_fd fd, uint32_t *user)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0) return ls_err_from_errno(errno);
    if (peer.pid == 0) return LS_ENOTSUP; /* not a Unix socket */
    *user = peer.uid;
    return LS_OK;
}

void ls_sock_discard(ls_fd fd)
{
    close(fd);
}

void ls_sock_path_id(const ls_addr *at, ls_path_id *out)
{
    char buffer[sizeof at->bytes + 1];
    const char *path = path_of(at, buffer);
    struct stat st;
    *out = (ls_path_id){0, 0};
    if (path != NULL && lstat(path, &st) == 0) *out = (ls_path_id){st.st_dev, st.st_ino};
}

void ls_sock_unlink(const ls_addr *at, const ls_path_id *id)
{
    char buffer[sizeof at->bytes + 1];
    const char *path = path_of(at, buffer);
    ls_path_id now;
    if (path == NULL) return;
    ls_sock_path_id(at, &now);
    if (now.device == id->device && now.inode == id->inode) (void)unlink(path);
}
