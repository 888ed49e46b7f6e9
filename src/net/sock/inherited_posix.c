/* inherited_posix.c - see inherited.h. */
#define _GNU_SOURCE
#include "net/sock/inherited.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io/log.h"
#include "base/os/sd_notify.h"
#include "net/sock/sock.h"

#define START_RIGHT "start the site by a unit of systemd, or without this variable"

enum { FIRST = 3 }; /* SD_LISTEN_FDS_START */

typedef struct inherited {
    int fd; /* -1: it was closed */
    bool stream, any_port, own, taken;
    ino_t inode;
    const char *wrong; /* NULL, or why no listener can take it */
    ls_addr at;
    char name[LS_INHERITED_NAME_BYTES];
} inherited;

static inherited *all; /* NULL: none */
static unsigned count;

static int refuse(char *why, size_t bytes, const char *text, const char *what)
{
    (void)snprintf(why, bytes, text, what);
    return LS_EINVAL;
}

static int option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 ? value : -1;
}

static ino_t inode_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* What no listener can take has a reason. */
static void look_at(inherited *one)
{
    const int type = option(one->fd, SO_TYPE);
    one->stream = type == SOCK_STREAM;
    one->own = strncmp(one->name, "ls-", 3) == 0;
    one->any_port = one->own && strncmp(one->name + 6, "0-", 2) == 0; /* "ls-tcp0-" */
    one->inode = inode_of(one->fd);
    if (type != SOCK_STREAM && type != SOCK_DGRAM)
        one->wrong = "it is no socket for streams or datagrams";
    else if (one->stream && option(one->fd, SO_ACCEPTCONN) != 1)
        one->wrong = "it does not listen; a socket unit needs Accept=no";
    else if (ls_sock_local(one->fd, &one->at) < 0 || one->at.family == LS_ADDR_NONE)
        one->wrong = "its address is of an unknown family";
}

/* LISTEN_FDS: the number; 0: no descriptor is for this process. Negative: an error. */
static int announced(bool replaces, char *why, size_t bytes)
{
    const char *fds = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
    char *end;
    if (fds == NULL) return 0;
    const long number = strtol(fds, &end, 10);
    if (*fds == '\0' || *end != '\0' || number < 0 || number > LS_INHERITED_MAX)
        return refuse(why, bytes,
                      "LISTEN_FDS is \"%s\": a number of descriptors from 0 to 4096 was expected; " START_RIGHT, fds);
    if (replaces) return (int)number;
    if (pid != NULL && strtol(pid, &end, 10) == (long)getpid() && *end == '\0') return (int)number;
    ls_log(LS_LOG_WARN,
           "LISTEN_FDS is ignored: LISTEN_PID is \"%s\", and this process is %ld; a script that starts "
           "luaserve ends with: exec luaserve ...",
           pid != NULL ? pid : "", (long)getpid());
    return 0;
}

int ls_inherited_open(bool replaces, char *why, size_t why_bytes)
{
    const int number = announced(replaces, why, why_bytes);
    if (number <= 0) goto unset;
    if ((all = calloc((size_t)number, sizeof *all)) == NULL) return LS_ENOMEM;
    const char *name = getenv("LISTEN_FDNAMES");
    for (int n = 0; n < number; n++) {
        inherited *one = &all[n];
        const int flags = fcntl(FIRST + n, F_GETFL);
        if (flags < 0) {
            free(all);
            all = NULL;
            return refuse(why, why_bytes,
                          "LISTEN_FDS is \"%s\", but fewer descriptors than that are open from 3 on; " START_RIGHT,
                          getenv("LISTEN_FDS"));
        }
        (void)fcntl(FIRST + n, F_SETFL, flags | O_NONBLOCK);
        (void)fcntl(FIRST + n, F_SETFD, FD_CLOEXEC);
        one->fd = FIRST + n;
        const size_t len = name != NULL ? strcspn(name, ":") : 0;
        if (len < sizeof one->name) memcpy(one->name, name != NULL ? name : "", len);
        if (name != NULL) name += len + (name[len] == ':');
        look_at(one);
    }
    count = (unsigned)number;
unset:
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDNAMES");
    return number < 0 ? number : LS_OK;
}

/* Clients reach a Unix listener by its path, which may be removed, or be a file by now. */
static bool is_reachable(const ls_addr *at)
{
    char path[sizeof at->bytes + 1] = "";
    struct stat st;
    if (at->family != LS_ADDR_UNIX || at->bytes_len == 0 || at->bytes[0] == '\0') return true;
    memcpy(path, at->bytes, at->bytes_len);
    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static bool fits(const inherited *one, bool stream, const ls_addr *at)
{
    ls_addr own = one->at;
    if (one->taken || one->wrong != NULL || one->stream != stream) return false;
    if (one->any_port && at->port == 0) own.port = 0;
    return ls_addr_same(&own, at) && is_reachable(&own);
}

bool ls_inherited_take(bool stream, const ls_addr *at, ls_fd *out)
{
    for (unsigned n = 0; n < count; n++) {
        if (!fits(&all[n], stream, at)) continue;
        all[n].taken = true;
        *out = all[n].fd;
        return true;
    }
    return false;
}

enum ls_inherited ls_inherited_kind(ls_fd fd)
{
    for (unsigned n = 0; n < count; n++)
        if (all[n].taken && all[n].fd == fd) return all[n].own ? LS_INHERITED_OWN : LS_INHERITED_OF_UNIT;
    return LS_INHERITED_NONE;
}

/* A socket of a unit that was stored as well comes twice. */
static bool is_double(const inherited *one)
{
    for (unsigned n = 0; n < count; n++)
        if (all[n].taken && all[n].inode == one->inode) return true;
    return false;
}

void ls_inherited_close(void)
{
    for (unsigned n = 0; n < count; n++) {
        char text[LS_ADDR_TEXT_BYTES] = "";
        const inherited *one = &all[n];
        if (one->taken) continue;
        if (one->own) ls_sd_remove(one->name);
        if (one->wrong == NULL) ls_addr_text(&one->at, text);
        if (!is_double(one))
            ls_log(LS_LOG_WARN, "closed the inherited descriptor %d (%s): %s%s", one->fd, one->name,
                   one->wrong != NULL ? one->wrong : "no listener of the site has its address, ", text);
        (void)close(one->fd);
    }
    free(all);
    all = NULL;
    count = 0;
}

/* Readable in `systemctl status`, and unique by the number that the system gives each open socket. */
void ls_inherited_name(ls_fd fd, bool stream, bool any_port, char name[LS_INHERITED_NAME_BYTES])
{
    ls_addr at;
    char text[LS_ADDR_TEXT_BYTES] = "";
    if (ls_sock_local(fd, &at) == LS_OK) ls_addr_text(&at, text);
    for (char *c = text; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("./[]-_", *c) == NULL) *c = '_'; /* sd_pid_notify_with_fds(3) */
    (void)snprintf(name, LS_INHERITED_NAME_BYTES, "ls-%s%s-%s-%llu", stream ? "tcp" : "udp", any_port ? "0" : "", text,
                   (unsigned long long)inode_of(fd));
}
