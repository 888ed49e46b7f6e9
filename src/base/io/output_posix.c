/* output_posix.c - see output.h.
 *
 * O_NONBLOCK belongs to the open file description, which a standard descriptor shares with the shell and with child
 * processes. Therefore it stays as it is: a pipe or a terminal is written by another description of the same file
 * (proc(5), /proc/self/fd), which is non-blocking, a socket with MSG_DONTWAIT. Where the file cannot be opened again,
 * at most PIPE_BUF bytes are written after poll(2) has reported room, which blocks only if another process fills the
 * pipe in between. A regular file does not block, nor a pipe that is nearly empty, which is the usual case: opening it
 * again takes ten times as long as the write. */
#define _GNU_SOURCE
#include "base/io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/os/signals.h"

enum { FULL_MS = 50 }; /* between two attempts to write to a full disk */

typedef struct target {
    int fd;
    bool is_socket, is_pipe; /* pipe: or a terminal; not one with room for the text */
    bool opened;             /* `fd` is a description of our own */
} target;

static bool is_roomy_pipe(int fd, size_t len)
{
    const int capacity = fcntl(fd, F_GETPIPE_SZ);
    int used;
    return capacity > 0 && ioctl(fd, FIONREAD, &used) == 0 && ((size_t)used + len) * 4 <= (size_t)capacity;
}

/* Opened for each text, because the program may close or replace the standard descriptor at any time, and the reader
 * of a closed one must see the end of the file. false: it is closed. */
static bool open_target(enum ls_output to, size_t len, target *t)
{
    static const char *const paths[] = {"/proc/self/fd/1", "/proc/self/fd/2"};
    struct stat st;
    *t = (target){.fd = to == LS_OUTPUT_STDOUT ? STDOUT_FILENO : STDERR_FILENO};
    if (fstat(t->fd, &st) < 0) return false;
    t->is_socket = S_ISSOCK(st.st_mode);
    t->is_pipe = (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) && !is_roomy_pipe(t->fd, len);
    const int fd = t->is_pipe ? open(paths[to], O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if ((t->opened = fd >= 0)) t->fd = fd;
    return true;
}

static bool has_room(int fd, uint32_t ms)
{
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    return poll(&out, 1, (int)ms) > 0;
}

static ssize_t put(const target *t, const char *text, size_t len)
{
    if (t->is_socket) return send(t->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (t->opened || !t->is_pipe) return write(t->fd, text, len);
    if (has_room(t->fd, 0)) return write(t->fd, text, len < PIPE_BUF ? len : PIPE_BUF);
    errno = EAGAIN;
    return -1;
}

/* The disk, or what the user may have of it. */
static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

/* Returns the number of bytes written. */
static size_t put_all(const target *t, const char *text, size_t len, uint32_t ms)
{
    const uint64_t until_ns = ls_clock_ns() + ms * UINT64_C(1000000);
    size_t at = 0;
    while (at < len) {
        const ssize_t n = put(t, text + at, len - at);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno != EAGAIN && errno != EINTR && (!is_full(errno) || ls_output_waits())) {
            return len; /* there is no reader, and no other place for the text */
        } else if (errno != EINTR) {
            const bool full = is_full(errno);
            const uint64_t now_ns = ls_clock_ns();
            if (now_ns >= until_ns) break;
            if (full)
                ls_clock_sleep_ms(FULL_MS);
            else if (has_room(t->fd, (uint32_t)((until_ns - now_ns) / 1000000u)))
                ls_clock_sleep_ms(1); /* too little */
        }
    }
    return at;
}

size_t ls_output_put(enum ls_output to, const char *text, size_t len, uint32_t ms)
{
    target t;
    if (!open_target(to, len, &t)) return len;
    const bool guarded = ls_pipe_guard_enter();
    const size_t written = put_all(&t, text, len, ms);
    ls_pipe_guard_leave(guarded);
    if (t.opened) (void)close(t.fd);
    return written;
}

static ssize_t write_stdio(void *cookie, const char *text, size_t len)
{
    ls_output_write(LS_OUTPUT_STDOUT, text, len, ls_output_waits());
    return (ssize_t)len;
}

FILE *ls_output_stdio(void)
{
    static _Atomic(FILE *) stream;
    FILE *now = atomic_load(&stream);
    if (now != NULL) return now;
    FILE *opened = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_stdio});
    if (opened == NULL) return stdout;
    if (isatty(STDOUT_FILENO)) (void)setvbuf(opened, NULL, _IOLBF, BUFSIZ);
    if (atomic_compare_exchange_strong(&stream, &now, opened)) return opened;
    (void)fclose(opened);
    return now;
}
