/* test_log_posix.c - the stderr sink with a reader that has stopped, or with none, and on a full disk. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io/log.h"
#include "base/io/output.h"

static _Atomic int full_error; /* of the disk of standard error; 0: it has room */

/* Replaces the function of the C library in this process. */
ssize_t write(int fd, const void *bytes, size_t n)
{
    if (full_error == 0 || fd != STDERR_FILENO) return (ssize_t)syscall(SYS_write, fd, bytes, n);
    errno = full_error;
    return -1;
}

/* Standard error as a pipe; its other end. */
typedef struct captured {
    int saved, read_fd;
} captured;

static void capture(captured *c)
{
    int pipe_fds[2];
    c->saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_true(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
    (void)close(pipe_fds[1]);
    c->read_fd = pipe_fds[0];
    ls_log_set_sink(NULL, NULL);
}

static void release(captured *c)
{
    (void)dup2(c->saved, STDERR_FILENO);
    (void)close(c->saved);
    (void)close(c->read_fd);
}

/* Read until `text` has arrived; a text that does not arrive is a failure by the time limit. */
static void take_until(int fd, char *out, size_t room, const char *text)
{
    size_t len = 0;
    for (out[0] = '\0'; strstr(out, text) == NULL; out[len] = '\0') {
        const ssize_t n = read(fd, out + len, room - 1 - len);
        assert_true(n > 0);
        len += (size_t)n;
    }
}

/* Lines are queued, then dropped, and the thread continues; a test that blocks here fails by its time limit. When
 * there is room again, a line before the next one tells how many were lost. */
static void check_dropped(int error)
{
    enum { ROOM = 4 << 20, COUNT = 3000 };
    static const char end[] = " log lines dropped: standard error took no more\n";
    captured c;
    char text[1000];
    char *out = malloc(ROOM);
    assert_non_null(out);
    memset(text, 'x', sizeof text);
    capture(&c);
    const int flags = fcntl(STDERR_FILENO, F_GETFL);
    full_error = error;
    for (int i = 0; i < COUNT; i++) ls_log_text(LS_LOG_INFO, text, sizeof text);
    full_error = 0;
    assert_int_equal(fcntl(STDERR_FILENO, F_GETFL), flags); /* the shell shares it */

    take_until(c.read_fd, out, ROOM, end);
    int whole = -1; /* without the report */
    for (const char *at = out; (at = strchr(at, '\n')) != NULL; at++) whole++;
    assert_in_range(whole, 1000, COUNT - 1);
    const char *report = strstr(out, "warn ");
    assert_non_null(report);
    assert_int_equal(strtol(report + 5, NULL, 10), COUNT - whole);
    for (const char *at = out; (at = strchr(at, '\n')) != NULL && at + 1 < report; at++)
        assert_true(memcmp(at + 1, "20", 2) == 0); /* no line is cut */

    ls_log(LS_LOG_INFO, "after");
    take_until(c.read_fd, out, ROOM, "info after\n");
    assert_null(strstr(out, "dropped")); /* reported once */
    release(&c);
    free(out);
}

TEST(a_stalled_reader_stops_nobody)
{
    check_dropped(0);
}

TEST(lines_wait_for_space_on_the_disk)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    ls_output_serve();
    for (size_t i = 0; i < 2; i++) {
        captured c;
        char out[1000];
        capture(&c);
        full_error = errors[i];
        ls_log(LS_LOG_INFO, "first");
        ls_log(LS_LOG_INFO, "second");
        full_error = 0;
        ls_log(LS_LOG_INFO, "third");
        take_until(c.read_fd, out, sizeof out, "info third\n");
        const char *first = strstr(out, "info first\n"), *second = strstr(out, "info second\n");
        assert_true(first != NULL && second > first);
        release(&c);
        check_dropped(errors[i]);
    }
}

TEST(a_pipe_without_a_reader_and_a_closed_stderr_are_ignored)
{
    captured c;
    capture(&c);
    (void)close(c.read_fd);
    ls_log(LS_LOG_INFO, "nobody reads this"); /* no SIGPIPE */
    (void)close(STDERR_FILENO);
    ls_log(LS_LOG_INFO, "nor this");
    c.read_fd = open("/dev/null", O_RDONLY);
    release(&c);
}
