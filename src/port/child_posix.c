/* child_posix.c - see child.h. posix_spawn does not copy the page tables of the server, and waits only until the
 * program runs. */
#define _GNU_SOURCE
#include "port/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os/signals.h"

enum { STREAMS = LS_CHILD_ERR + 1 };

extern char **environ;

char **ls_child_environment(void)
{
    return environ;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

/* Returns an errno. */
static int spawn(const ls_child_options *options, const int theirs[STREAMS], pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int err = posix_spawn_file_actions_init(&actions);
    if (err != 0) return err;
    if ((err = posix_spawnattr_init(&attributes)) != 0) goto fail_actions;
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setflags(&attributes,
                                   POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    for (int n = 0; n < (options->shares_err ? LS_CHILD_ERR : STREAMS) && err == 0; n++) {
        err = theirs[n] >= 0 ? posix_spawn_file_actions_adddup2(&actions, theirs[n], n)
                             : posix_spawn_file_actions_addopen(&actions, n, "/dev/null", O_RDONLY, 0);
    }
    if (err == 0) err = posix_spawn_file_actions_addclosefrom_np(&actions, STREAMS);
    if (err == 0) err = posix_spawn_file_actions_addchdir_np(&actions, options->cwd);
    if (err == 0)
        err = posix_spawnp(pid, options->argv[0], &actions, &attributes, (char *const *)(uintptr_t)options->argv,
                           options->env != NULL ? (char *const *)(uintptr_t)options->env : environ);
    (void)posix_spawnattr_destroy(&attributes);
fail_actions:
    (void)posix_spawn_file_actions_destroy(&actions);
    return err;
}

/* Descriptors 0 to 2 may be closed in the server: the ends of pipes must not take their places, where the ends of the
 * child's come. Returns an errno. */
static int open_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0) return errno;
    for (int n = 0; n < 2; n++) {
        if (ends[n] >= STREAMS) continue;
        const int moved = fcntl(ends[n], F_DUPFD_CLOEXEC, STREAMS), err = errno;
        if (moved < 0) {
            close_fd(&ends[0]);
            close_fd(&ends[1]);
            return err;
        }
        close_fd(&ends[n]);
        ends[n] = moved;
    }
    return 0;
}

int ls_child_start(const ls_child_options *options, ls_child *out)
{
    int theirs[STREAMS] = {-1, -1, -1}, err = 0;
    pid_t pid = 0;
    ls_child child = {.fds = {-1, -1, -1, -1}};
    const int first = options->input_len > 0 || options->feed ? LS_CHILD_IN : LS_CHILD_OUT;
    for (int n = first; n < (options->shares_err ? LS_CHILD_ERR : STREAMS) && err == 0; n++) {
        int ends[2] = {-1, -1};
        if ((err = open_pipe(ends)) != 0) break;
        child.fds[n] = ends[n == LS_CHILD_IN];
        theirs[n] = ends[n != LS_CHILD_IN];
        if (fcntl(child.fds[n], F_SETFL, O_NONBLOCK) < 0) err = errno;
    }
    if (err == 0) err = spawn(options, theirs, &pid);
    for (int n = 0; n < STREAMS; n++) {
        close_fd(&theirs[n]);
        if (err != 0) close_fd(&child.fds[n]);
    }
    if (err != 0) return ls_err_from_errno(err);
    child.pid = (int)pid;
    child.fds[LS_CHILD_EXIT] = (int)syscall(SYS_pidfd_open, pid, 0); /* with FD_CLOEXEC; since Linux 5.3 */
    *out = child;
    return LS_OK;
}

long ls_child_read(const ls_child *child, int stream, char *to, size_t len)
{
    ssize_t count;
    do count = read(child->fds[stream], to, len);
    while (count < 0 && errno == EINTR);
    return count < 0 ? ls_err_from_errno(errno) : (long)count;
}

long ls_child_write(const ls_child *child, const char *bytes, size_t len)
{
    const bool guarded = ls_pipe_guard_enter();
    ssize_t count;
    do count = write(child->fds[LS_CHILD_IN], bytes, len);
    while (count < 0 && errno == EINTR);
    ls_pipe_guard_leave(guarded);
    return count < 0 ? ls_err_from_errno(errno) : (long)count;
}

void ls_child_close(ls_child *child, int fd)
{
    close_fd(&child->fds[fd]);
}

void ls_child_end(const ls_child *child, bool kill_it)
{
    if (child->pid > 0) (void)kill(-child->pid, kill_it ? SIGKILL : SIGTERM);
}

bool ls_child_reap(ls_child *child, int ms)
{
    siginfo_t info = {0};
    int result;
    if (child->pid == 0) return true;
    if (ms > 0) (void)poll(&(struct pollfd){.fd = child->fds[LS_CHILD_EXIT], .events = POLLIN}, 1, ms);
    do result = waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    while (result < 0 && errno == EINTR);
    if (result == 0 && info.si_pid == 0) return false;
    child->code = -1; /* a program with this library has taken the status, or ignores SIGCHLD */
    if (result == 0) {
        ls_child_end(child, true);
        child->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
        child->code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
        while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    child->pid = 0;
    return true;
}

void ls_child_wait(const ls_child *child, int ms)
{
    struct pollfd fds[] = {{.fd = child->fds[LS_CHILD_OUT], .events = POLLIN},
                           {.fd = child->fds[LS_CHILD_ERR], .events = POLLIN},
                           {.fd = child->fds[LS_CHILD_EXIT], .events = POLLIN}};
    (void)poll(fds, sizeof fds / sizeof fds[0], ms); /* a closed descriptor, -1, is left out */
}
