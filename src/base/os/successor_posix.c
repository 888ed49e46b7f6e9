/* successor_posix.c - see successor.h. The new process is made as by posix_spawn(3): the other threads of this one
 * continue meanwhile. */
#define _GNU_SOURCE
#include "base/os/successor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/os/sd_notify.h"

enum { FIRST = 3, LINE_BYTES_MAX = 1 << 21, WORDS_MAX = 1 << 16, END_MS = 2000, OWN_MAX = 8, STACK_BYTES = 1 << 16 };

extern char **environ;

/* The command line of this process, its words as a list that ends with NULL; free both. */
static char **command_line(char **text)
{
    size_t used = 0, words = 0;
    char **argv = calloc(WORDS_MAX + 1, sizeof *argv);
    FILE *file = fopen("/proc/self/cmdline", "re");
    *text = malloc(LINE_BYTES_MAX + 1);
    if (file != NULL && *text != NULL) used = fread(*text, 1, LINE_BYTES_MAX, file);
    if (file != NULL) (void)fclose(file);
    if (argv != NULL && used > 0) {
        (*text)[used] = '\0';
        for (char *at = *text; at < *text + used && words < WORDS_MAX; at += strlen(at) + 1) argv[words++] = at;
        return argv;
    }
    free(argv);
    return NULL;
}

/* The environment of this process and `own`; free it. */
static char **environment(char *const own[OWN_MAX])
{
    size_t count = 0, used = 0;
    while (environ[count] != NULL) count++;
    char **all = calloc(count + OWN_MAX + 1, sizeof *all);
    if (all == NULL) return NULL;
    for (size_t n = 0; n < count; n++) all[used++] = environ[n];
    for (size_t n = 0; n < OWN_MAX && own[n] != NULL; n++) all[used++] = own[n];
    return all;
}

/* Replace descriptors of this process by duplicates at numbers that the new process does not use, so that its order can be
 * made one by one. Returns an errno. */
static int duplicate(int *fds, unsigned count)
{
    for (unsigned n = 0; n < count; n++) {
        const int high = fcntl(fds[n], F_DUPFD_CLOEXEC, FIRST + (int)count), err = errno;
        if (high < 0) {
            while (n > 0) (void)close(fds[--n]);
            return err;
        }
        fds[n] = high;
    }
    return 0;
}

typedef struct starting {
    char *const *argv, *const *env;
    const int *fds;
    unsigned count;
    int err; /* of execvpe */
} starting;

/* In the new process, on the memory of this one, which waits; with all signals blocked. */
static int start(void *arg)
{
    starting *s = arg;
    struct sigaction action;
    sigset_t none;
    for (int n = 1; n < NSIG; n++) /* no handler of this process runs in the other one */
        if (sigaction(n, NULL, &action) == 0 && action.sa_handler != SIG_IGN) (void)signal(n, SIG_DFL);
    for (unsigned n = 0; n < s->count; n++)
        if (dup2(s->fds[n], FIRST + (int)n) < 0) goto fail;
    (void)close_range(FIRST + s->count, ~0u, 0);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execvpe(s->argv[0], s->argv, s->env);
fail:
    s->err = errno;
    _exit(127);
}

/* Returns an errno. With `sibling` the parent of this process is that of the new one: systemd ends a main process that
 * is not its child without waiting for its drain. That needs clone(2) with CLONE_PARENT, which neither posix_spawn(3) nor
 * vfork(2) has; the rest is what posix_spawn does: the child runs on a stack of its own in the memory of this process, whose
 * calling thread waits (CLONE_VM, CLONE_VFORK), and no signal handler runs in it. */
static int spawn(starting *s, bool sibling, int *pid)
{
    char *stack = malloc(STACK_BYTES);
    sigset_t all, before;
    if (stack == NULL) return ENOMEM;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    *pid = clone(start, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD | (sibling ? CLONE_PARENT : 0), s);
    if (*pid < 0) s->err = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(stack);
    if (s->err != 0 && *pid > 0) (void)waitpid(*pid, NULL, 0);
    return s->err;
}

int ls_successor_start(const intptr_t *sockets, unsigned count, const char *names, ls_successor *out, char *why,
                       size_t why_bytes)
{
    const unsigned total = count + 2; /* the channel and the memory after the sockets */
    int ends[2], err = ENOMEM, *fds = calloc(total, sizeof *fds);
    char *text = NULL, number[32], channel[40], *own[OWN_MAX] = {number, NULL, channel};
    char **argv = command_line(&text), **env = NULL;
    (void)snprintf(number, sizeof number, "LISTEN_FDS=%u", count);
    (void)snprintf(channel, sizeof channel, "LUASERVE_UPGRADE=%u,%u", FIRST + count, FIRST + count + 1);
    const bool is_service = ls_sd_variables(own + 3) > 0;
    if (!is_service) own[3] = NULL;
    if (fds == NULL || argv == NULL || asprintf(&own[1], "LISTEN_FDNAMES=%s", names) < 0 ||
        (env = environment(own)) == NULL)
        goto end;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        err = errno;
        goto end;
    }
    out->channel = ends[0];
    out->memory = memfd_create("luaserve", MFD_CLOEXEC);
    for (unsigned n = 0; n < count; n++) fds[n] = (int)sockets[n];
    fds[count] = ends[1];
    fds[count + 1] = out->memory;
    err = out->memory < 0 ? errno : duplicate(fds, total);
    if (err == 0) {
        starting s = {argv, env, fds, total, 0};
        err = spawn(&s, is_service, &out->pid);
        for (unsigned n = 0; n < total; n++) (void)close(fds[n]);
    }
    (void)close(ends[1]);
    if (err != 0) ls_successor_leave(out);
end:
    if (err != 0)
        (void)snprintf(why, why_bytes, "cannot %s %s: %s", argv != NULL ? "start" : "read",
                       argv != NULL ? argv[0] : "/proc/self/cmdline", strerror(err));
    free(env);
    free(own[1]);
    free(argv);
    free(text);
    free(fds);
    return err != 0 ? ls_err_from_errno(err) : LS_OK;
}

void ls_successor_is_main(const ls_successor *s, bool back)
{
    const pid_t pid = back ? getpid() : s->pid;
    ls_sd_tell_main((long)pid);
    if (getenv("LUASERVE_PROCESS_1") != NULL && getppid() == 1) /* see main_posix.c */
        (void)sigqueue(1, SIGRTMIN, (union sigval){.sival_int = (int)pid});
}

/* As waitpid(2), also of a process that is the child of another one: -1 when it has ended. */
static pid_t look(pid_t pid, int *status)
{
    const pid_t ended = waitpid(pid, status, WNOHANG);
    return ended < 0 && kill(pid, 0) == 0 ? 0 : ended;
}

void ls_successor_end(ls_successor *s, char *how, size_t how_bytes)
{
    int status = 0;
    pid_t ended = 0;
    ls_successor_leave(s);
    for (int ms = 0; ms < END_MS && (ended = look(s->pid, &status)) == 0; ms += 10) {
        if (ms == 10) (void)kill(s->pid, SIGTERM); /* it may be about to end by itself */
        (void)poll(NULL, 0, 10);
    }
    if (ended == 0) {
        (void)kill(s->pid, SIGKILL);
        while ((ended = waitpid(s->pid, &status, 0)) < 0 && errno == EINTR) continue;
    }
    if (ended < 0)
        (void)snprintf(how, how_bytes, "see its log"); /* it is a child of systemd */
    else if (WIFEXITED(status))
        (void)snprintf(how, how_bytes, "exit status %d", WEXITSTATUS(status));
    else
        (void)snprintf(how, how_bytes, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

void ls_successor_leave(ls_successor *s)
{
    if (s->channel >= 0) (void)close(s->channel);
    if (s->memory >= 0) (void)close(s->memory);
    s->channel = s->memory = -1;
}

FILE *ls_successor_memory(ls_successor *s, const char *mode)
{
    if (s->memory < 0 || lseek(s->memory, 0, SEEK_SET) != 0) return NULL;
    FILE *file = fdopen(s->memory, mode);
    if (file != NULL) s->memory = -1;
    return file;
}

bool ls_predecessor_open(ls_successor *out)
{
    const char *text = getenv("LUASERVE_UPGRADE");
    char *after = NULL;
    *out = (ls_successor){.channel = text != NULL ? (int)strtol(text, &after, 10) : -1, .memory = -1};
    if (after != NULL && *after == ',') out->memory = (int)strtol(after + 1, NULL, 10);
    (void)unsetenv("LUASERVE_UPGRADE");
    if (out->channel < FIRST || fcntl(out->channel, F_SETFD, FD_CLOEXEC) < 0) out->channel = -1;
    if (out->memory < FIRST || fcntl(out->memory, F_SETFD, FD_CLOEXEC) < 0) out->memory = -1;
    return out->channel >= 0;
}

int ls_successor_receive(const ls_successor *s, char text[LS_SUCCESSOR_TEXT_BYTES], unsigned ms)
{
    struct pollfd ready = {.fd = s->channel, .events = POLLIN};
    if (poll(&ready, 1, (int)ms) <= 0) return LS_ETIMEDOUT;
    const ssize_t bytes = recv(s->channel, text, LS_SUCCESSOR_TEXT_BYTES - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0 ? (int)bytes : 0;
}

void ls_successor_send(const ls_successor *s, const char *text)
{
    const size_t bytes = strlen(text);
    (void)!send(s->channel, text, bytes < LS_SUCCESSOR_TEXT_BYTES ? bytes : LS_SUCCESSOR_TEXT_BYTES - 1, MSG_NOSIGNAL);
}
