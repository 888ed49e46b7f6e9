/* log_posix.c - the stderr sink. A line may exceed the size that write(2) keeps atomic on a pipe, hence the lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log_stderr.h"

/* Time to wait for a stalled reader of stderr before the rest of the line is dropped. */
enum { STALL_MS_MAX = 100 };

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* Advance past n written bytes. */
static void skip(struct iovec *parts, int count, size_t n)
{
    for (int i = 0; i < count && n > 0; i++) {
        const size_t here = n < parts[i].iov_len ? n : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + here;
        parts[i].iov_len -= here;
        n -= here;
    }
}

static void write_all(struct iovec *parts, int count)
{
    for (;;) {
        size_t left = 0;
        for (int i = 0; i < count; i++) left += parts[i].iov_len;
        if (left == 0) return;
        const ssize_t n = writev(STDERR_FILENO, parts, count);
        if (n >= 0) {
            skip(parts, count, (size_t)n);
        } else if (errno == EAGAIN) { /* stderr was set to non-blocking */
            struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
            if (poll(&out, 1, STALL_MS_MAX) <= 0) return;
        } else if (errno != EINTR) {
            return; /* no place to report the error */
        }
    }
}

void ls_log_stderr(int level, const char *line, size_t len, void *user)
{
    const int64_t us = ls_clock_wall_us();
    const time_t s = (time_t)(us / 1000000);
    struct tm t = {0};
    char date[24] = "", head[48];
    (void)user;
    if (gmtime_r(&s, &t) != NULL) (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &t);
    const int n = snprintf(head, sizeof head, "%s.%03dZ %s ", date, (int)(us / 1000 % 1000),
                           ls_log_level_name((enum ls_log_level)level));
    struct iovec parts[] = {
        {.iov_base = head, .iov_len = (size_t)n},
        {.iov_base = (char *)(uintptr_t)line, .iov_len = len}, /* writev does not write to it */
        {.iov_base = "\n", .iov_len = 1},
    };
    pthread_mutex_lock(&writing);
    write_all(parts, sizeof parts / sizeof parts[0]);
    pthread_mutex_unlock(&writing);
}
