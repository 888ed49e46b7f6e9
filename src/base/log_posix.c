/* log_posix.c - the stderr sink. A reader of stderr that has stopped reading must not stop the server: a line waits at
 * most STALL_MS_MAX for it. Then lines are dropped and counted until stderr accepts bytes again.
 *
 * O_NONBLOCK belongs to the open file description, which stderr shares with the shell and with child processes.
 * Therefore the sink leaves stderr as it is: for a pipe or a terminal it opens another description of the same file
 * (proc(5), /proc/self/fd), non-blocking. Where that fails, and for a socket, it writes at most PIPE_BUF bytes after
 * poll(2) has reported room, which blocks only if another process fills the pipe in between. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log_stderr.h"
#include "base/signals.h"

enum { STALL_MS_MAX = 100, LINE_BYTES = 17 * 1024 };

/* Global, like stderr. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* guards the following */
static unsigned long dropped;                               /* lines since the last one that was written */
static bool in_middle_of_line;                              /* the last write was cut */

/* The descriptor to write to: stderr or a new one. Opened for each line, because the program may close or replace
 * stderr at any time, and the reader of a closed stderr must see the end of the file. */
static int open_descriptor(void)
{
    struct stat st;
    int fd = -1;
    if (fstat(STDERR_FILENO, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
        fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 ? fd : STDERR_FILENO;
}

/* false: the reader did not take all of it within the time. */
static bool write_all(int fd, const char *bytes, size_t len, int wait_ms)
{
    const uint64_t until_ns = ls_clock_ns() + (uint64_t)wait_ms * 1000000u;
    for (size_t at = 0; at < len;) {
        struct pollfd out = {.fd = fd, .events = POLLOUT};
        const uint64_t now_ns = ls_clock_ns();
        const int ms = now_ns < until_ns ? (int)((until_ns - now_ns + 999999u) / 1000000u) : 0;
        const int ready = poll(&out, 1, ms);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            in_middle_of_line |= at > 0;
            return false;
        }
        const ssize_t n = write(fd, bytes + at, len - at < PIPE_BUF ? len - at : PIPE_BUF);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN && ms == 0) { /* poll reported room, but too little */
            in_middle_of_line |= at > 0;
            return false;
        } else if (errno != EAGAIN && errno != EINTR) {
            return true; /* there is no reader, and no other place for the line */
        }
    }
    return true;
}

static size_t write_head(char *out, size_t room, enum ls_log_level level)
{
    const int64_t us = ls_clock_wall_us();
    const time_t s = (time_t)(us / 1000000);
    struct tm t = {0};
    char date[24] = "";
    if (gmtime_r(&s, &t) != NULL) (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &t);
    const int n = snprintf(out, room, "%s.%03dZ %s ", date, (int)(us / 1000 % 1000), ls_log_level_name(level));
    return (size_t)n;
}

/* Before the first line after a stall: end the line that was cut, and report the dropped ones. */
static bool report_dropped(int fd)
{
    char line[160];
    size_t n = 0;
    if (in_middle_of_line) line[n++] = '\n';
    n += write_head(line + n, sizeof line - n, LS_LOG_WARN);
    n += (size_t)snprintf(line + n, sizeof line - n, "%lu log line%s dropped: standard error was not read\n", dropped,
                          dropped == 1 ? "" : "s");
    if (!write_all(fd, line, n, 0)) return false;
    dropped = 0;
    in_middle_of_line = false;
    return true;
}

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    char out[LINE_BYTES]; /* head, text, newline */
    (void)user;
    size_t n = write_head(out, sizeof out, (enum ls_log_level)level);
    if (len > sizeof out - n - 1) len = sizeof out - n - 1; /* never true: log.c cuts at 16 KiB */
    memcpy(out + n, line, len);
    n += len;
    out[n++] = '\n';

    pthread_mutex_lock(&writing);
    const bool guarded = ls_pipe_guard_enter();
    const int fd = open_descriptor();
    if ((dropped > 0 && !report_dropped(fd)) || !write_all(fd, out, n, STALL_MS_MAX)) dropped++;
    if (fd != STDERR_FILENO) (void)close(fd);
    ls_pipe_guard_leave(guarded);
    pthread_mutex_unlock(&writing);
}
