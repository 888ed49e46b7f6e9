/* pid_posix.c - see pid.h. The server keeps its file open and locked with fcntl(2): F_GETLK names the process that
 * owns it, so that a file of a server that was killed, and a process id that is used again, are not taken for a
 * server. */
#define _GNU_SOURCE
#include "cli/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int pid_fd = -1;
static char pid_path[4096];
static char log_path[4096]; /* "": standard error */

static int fail_path(const char *what, const char *path)
{
    fprintf(stderr, "luaserve: cannot %s %s: %s\n", what, path, strerror(errno));
    return -1;
}

int ls_pid_file_open(const char *path)
{
    char text[32];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (strlen(path) >= sizeof pid_path) {
        errno = ENAMETOOLONG;
        return fail_path("write", path);
    }
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return fail_path("write", path);
    if (fcntl(fd, F_SETLK, &lock) < 0) {
        struct flock owner = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(fd, F_GETLK, &owner) == 0 && owner.l_type != F_UNLCK)
            fprintf(stderr, "luaserve: the server with the process id %ld owns %s; give another --pid\n",
                    (long)owner.l_pid, path);
        else
            (void)fail_path("lock", path);
        (void)close(fd);
        return -1;
    }
    const int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) < 0 || write(fd, text, (size_t)len) != len) {
        (void)fail_path("write", path);
        (void)close(fd);
        return -1;
    }
    memcpy(pid_path, path, strlen(path) + 1);
    pid_fd = fd;
    return 0;
}

int ls_pid_file_take(const char *path)
{
    char own[sizeof pid_path];
    if (snprintf(own, sizeof own, "%s~", path) >= (int)sizeof own) {
        errno = ENAMETOOLONG;
        return fail_path("write", path);
    }
    if (ls_pid_file_open(own) < 0) return -1;
    if (rename(own, path) < 0) return fail_path("replace", path);
    memcpy(pid_path, path, strlen(path) + 1);
    return 0;
}

/* Not one that a process has made which replaces this one. */
static int is_own_file(void)
{
    struct stat own, there;
    return fstat(pid_fd, &own) == 0 && stat(pid_path, &there) == 0 && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
}

void ls_pid_file_remove(int ok)
{
    if (pid_fd < 0) return;
    if (ok && ftruncate(pid_fd, 0) < 0) (void)fail_path("write", pid_path); /* ls_pid_stop has the file open */
    if (is_own_file()) (void)unlink(pid_path);                              /* before the lock ends */
    (void)close(pid_fd);
    pid_fd = -1;
}

/* ---- the log ------------------------------------------------------------------------------------------------ */

static int use_log(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0) return -1;
    const int ok = dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
    (void)close(fd);
    return ok ? 0 : -1;
}

int ls_log_file_open(const char *path)
{
    if (strlen(path) >= sizeof log_path) {
        errno = ENAMETOOLONG;
        return fail_path("write the log", path);
    }
    (void)fflush(stdout);
    if (use_log(path) < 0) return fail_path("write the log", path);
    memcpy(log_path, path, strlen(path) + 1);
    return 0;
}

void ls_log_file_reopen(void)
{
    if (log_path[0] == '\0') return;
    (void)fflush(stdout);
    if (use_log(log_path) < 0) (void)fail_path("open the log again; the one in use stays:", log_path);
}

/* ---- the owner ---------------------------------------------------------------------------------------------- */

long ls_pid_file_owner(const char *path)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const int err = fcntl(fd, F_GETLK, &lock);
    (void)close(fd);
    return err == 0 && lock.l_type != F_UNLCK ? (long)lock.l_pid : 0;
}

static void do_nothing(int number)
{
}

void ls_pid_take_reload(void)
{
    struct sigaction action;
    if (sigaction(SIGHUP, NULL, &action) < 0 || action.sa_handler != SIG_IGN) return;
    action.sa_handler = do_nothing; /* the server replaces it; the default would end the process */
    (void)sigaction(SIGHUP, &action, NULL);
}

int ls_pid_reload(long pid)
{
    return kill((pid_t)pid, SIGHUP);
}

int ls_pid_upgrade(long pid)
{
    return kill((pid_t)pid, SIGUSR2);
}

int ls_pid_stop(long pid, const char *path)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000000L};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const int err = kill((pid_t)pid, SIGTERM);
    while (err == 0 && ls_pid_file_owner(path) == pid)
        (void)nanosleep(&pause, NULL);          /* not a child: there is no event to wait for */
    const off_t bytes = lseek(fd, 0, SEEK_END); /* 0: the server has ended in order */
    (void)close(fd);
    return err < 0 ? -1 : bytes > 0;
}
