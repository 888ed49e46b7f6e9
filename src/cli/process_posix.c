/* process_posix.c - see process.h: posix_spawn(3), poll(2), waitpid(2). */
#define _GNU_SOURCE
#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct ls_process {
    pid_t pid;
    int to, from; /* ends of the pipes; -1: closed */
    int ended;    /* waitpid has returned `status` */
    int status;
};

extern char **environ;

static int spawn(ls_process *process, int argc, const char *const argv[], int in, int out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    char **list = calloc((size_t)argc + 2, sizeof *list);
    if (list == NULL) return ENOMEM;
    list[0] = (char *)"luaserve";
    for (int i = 0; i < argc; i++) list[i + 1] = (char *)argv[i];

    /* Workers block signals, and a server ignores SIGPIPE; the child begins as a shell would start it. */
    sigemptyset(&none);
    sigfillset(&all);
    int err = posix_spawn_file_actions_init(&actions);
    if (err != 0) goto fail_list;
    if ((err = posix_spawnattr_init(&attributes)) != 0) goto fail_actions;
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if ((err = posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO)) == 0 &&
        (err = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO)) == 0)
        err = posix_spawn(&process->pid, "/proc/self/exe", &actions, &attributes, list, environ);
    (void)posix_spawnattr_destroy(&attributes);
fail_actions:
    (void)posix_spawn_file_actions_destroy(&actions);
fail_list:
    free(list);
    return err;
}

ls_process *ls_process_start(int argc, const char *const argv[], char *message, size_t message_bytes)
{
    ls_process *process = calloc(1, sizeof *process);
    int in[2], out[2], err = ENOMEM;
    if (process == NULL) goto fail;
    if (pipe2(in, O_CLOEXEC) < 0) {
        err = errno;
        goto fail;
    }
    if (pipe2(out, O_CLOEXEC) < 0) {
        err = errno;
        goto fail_in;
    }
    err = spawn(process, argc, argv, in[0], out[1]);
    (void)close(in[0]);
    (void)close(out[1]);
    if (err != 0) {
        (void)close(in[1]);
        (void)close(out[0]);
        goto fail;
    }
    process->to = in[1];
    process->from = out[0];
    return process;

fail_in:
    (void)close(in[0]);
    (void)close(in[1]);
fail:
    (void)snprintf(message, message_bytes, "%s", strerror(err));
    free(process);
    return NULL;
}

long ls_process_read(ls_process *process, char *to, size_t bytes, unsigned ms)
{
    struct pollfd from = {.fd = process->from, .events = POLLIN};
    struct timespec now, end;
    if (process->from < 0) return 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += (long)(ms % 1000) * 1000000;
    for (;;) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        const long left = (end.tv_sec - now.tv_sec) * 1000 + (end.tv_nsec - now.tv_nsec) / 1000000;
        const int ready = poll(&from, 1, left > 0 ? (int)left : 0);
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return -1;
        const ssize_t n = ready < 0 ? 0 : read(process->from, to, bytes);
        if (n < 0 && errno == EINTR) continue;
        return n < 0 ? 0 : n;
    }
}

void ls_process_stop(ls_process *process)
{
    if (process->to >= 0) (void)close(process->to);
    process->to = -1;
}

static void kill_process(ls_process *process)
{
    if (!process->ended) (void)kill(process->pid, SIGKILL);
}

enum ls_process_end ls_process_wait(ls_process *process, int *number)
{
    while (!process->ended) {
        if (waitpid(process->pid, &process->status, 0) == process->pid || errno != EINTR) process->ended = 1;
    }
    if (WIFSIGNALED(process->status)) {
        *number = WTERMSIG(process->status);
        return LS_PROCESS_SIGNAL;
    }
    *number = WEXITSTATUS(process->status);
    return LS_PROCESS_EXIT;
}

void ls_process_close(ls_process *process)
{
    int number;
    ls_process_stop(process);
    if (process->from >= 0) (void)close(process->from);
    kill_process(process);
    (void)ls_process_wait(process, &number);
    free(process);
}

typedef struct watch {
    int from;
    void (*ended)(void *user);
    void *user;
} watch;

static void *watch_main(void *arg)
{
    const watch w = *(watch *)arg;
    char ignored[64];
    ssize_t n;
    free(arg);
    do {
        n = read(w.from, ignored, sizeof ignored);
    } while (n > 0 || (n < 0 && errno == EINTR));
    w.ended(w.user);
    return NULL;
}

FILE *ls_process_channel(void (*ended)(void *user), void *user)
{
    watch *w = malloc(sizeof *w);
    pthread_t thread;
    sigset_t all, before;
    const int to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int from = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FILE *out = NULL;
    if (w == NULL || to < 0 || from < 0 || none < 0 || (out = fdopen(to, "w")) == NULL) goto fail;
    if (dup2(none, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) goto fail;
    *w = (watch){from, ended, user};
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int err = pthread_create(&thread, NULL, watch_main, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0) goto fail;
    (void)pthread_detach(thread);
    (void)close(none);
    return out;

fail:
    if (out != NULL)
        (void)fclose(out); /* and `to` */
    else if (to >= 0)
        (void)close(to);
    if (from >= 0) (void)close(from);
    if (none >= 0) (void)close(none);
    free(w);
    return NULL;
}

int ls_process_is_terminal(void)
{
    return isatty(STDOUT_FILENO);
}

const char *ls_process_signal_name(int number)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},  {SIGFPE, "SIGFPE"},   {SIGHUP, "SIGHUP"},
                 {SIGILL, "SIGILL"},   {SIGINT, "SIGINT"},  {SIGKILL, "SIGKILL"}, {SIGPIPE, "SIGPIPE"},
                 {SIGSEGV, "SIGSEGV"}, {SIGTERM, "SIGTERM"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == number) return names[i].name;
    return NULL;
}
