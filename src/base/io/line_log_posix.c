/* line_log_posix.c - the file of a line log: a file, a named pipe, or the socket of the system's log. */
#define _GNU_SOURCE
#include <time.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io/line_log.h"

static int open_syslog(void)
{
    const struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return ls_err_from_errno(errno);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) return fd;
    const int err = ls_err_from_errno(errno);
    (void)close(fd);
    return err;
}

/* A pipe is opened for both directions: that does not wait for a reader, and one that ends may be followed by another. */
int ls_line_file_open(ls_line_file *file)
{
    struct stat st;
    int fd;
    file->is_syslog = strcmp(file->name, "syslog") == 0;
    if (file->is_syslog) {
        if ((fd = open_syslog()) < 0) return fd;
    } else {
        const bool pipe = stat(file->name, &st) == 0 && S_ISFIFO(st.st_mode);
        fd = open(file->name, (pipe ? O_RDWR | O_NONBLOCK : O_WRONLY | O_APPEND | O_CREAT) | O_CLOEXEC | O_NOCTTY,
                  0640);
        if (fd < 0) return ls_err_from_errno(errno);
    }
    file->fd = fd;
    return LS_OK;
}

void ls_line_file_close(ls_line_file *file)
{
    if (file->fd >= 0) (void)close(file->fd);
    file->fd = -1;
}

/* The first line as a message of RFC 3164 to the facility local7 with the severity info, as nginx sends it. */
static ssize_t send_line(const ls_line_file *file, const char *lines, size_t len)
{
    char message[LS_LINE_LOG_LINE_MAX + 64];
    const time_t now = time(NULL);
    struct tm t = {0};
    (void)localtime_r(&now, &t);
    const int head =
        snprintf(message, 64, "<190>%.3s %2d %02d:%02d:%02d luaserve[%d]: ", ls_month_names + (ptrdiff_t)3 * t.tm_mon,
                 t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, (int)getpid());
    memcpy(message + head, lines, len);
    const ssize_t n = send(file->fd, message, (size_t)head + len, MSG_NOSIGNAL);
    return n >= 0 || errno == EMSGSIZE ? (ssize_t)len + 1 : -1;
}

int64_t ls_line_file_write(ls_line_file *file, const char *lines, size_t len)
{
    ssize_t n;
    do {
        const char *end = file->is_syslog ? memchr(lines, '\n', len) : NULL;
        n = end != NULL ? send_line(file, lines, (size_t)(end - lines)) : write(file->fd, lines, len);
    } while (n < 0 && errno == EINTR);
    if (n > 0) return n;
    const int error = n < 0 ? errno : ENOSPC;
    if (file->is_syslog && (error == ECONNREFUSED || error == ENOTCONN || error == EPIPE)) { /* it was started again */
        const int fd = open_syslog();
        if (fd >= 0) (void)close(file->fd);
        if (fd >= 0) file->fd = fd;
        return LS_EAGAIN;
    }
    return error == ENOBUFS ? LS_EAGAIN : ls_err_from_errno(error);
}
