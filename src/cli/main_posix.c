/* main_posix.c - the entry point of the program, its work as process 1, its end in time, and the reply to the service
 * commands of Windows. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/main.h"

/* Open /dev/null for each standard descriptor that the parent closed: else the next file that is opened would get the
 * number, and with it the log. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        /* open(2) returns the lowest free number, which is fd: the lower ones are open by now */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            _Exit(LS_STATUS_FAILED); /* nowhere to report it */
    }
}

/* Sockets that were for process 1 are for this child, which says that it is one. */
static void take_over_sockets(void)
{
    const char *pid = getenv("LISTEN_PID");
    char own[24];
    (void)snprintf(own, sizeof own, "%ld", (long)getpid());
    if (pid != NULL && strcmp(pid, "1") == 0) (void)setenv("LISTEN_PID", own, 1);
    (void)setenv("LUASERVE_PROCESS_1", "1", 1);
}

/* Process 1 of a container gets the orphans of all others, and must wait for them. The server does so in a child: a
 * wait for any child would take the status of those of io.popen and os.execute. Returns in the child; process 1 passes
 * signals on to it and ends with its status. One of the terminal (SI_KERNEL) has reached the child already. */
static void reap_as_process_1(void)
{
    sigset_t all, before;
    siginfo_t info;
    int status;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &before);
    pid_t child = fork();
    while (child > 0) {
        const int number = sigwaitinfo(&all, &info);
        if (number == SIGRTMIN && info.si_pid == child && info.si_code == SI_QUEUE) { /* an upgrade: successor.h */
            child = info.si_value.sival_int;
            continue;
        }
        if (number > 0 && number != SIGCHLD && info.si_code != SI_KERNEL) (void)kill(child, number);
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
            if (ended == child) _Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (child == 0) take_over_sockets();
    (void)sigprocmask(SIG_SETMASK, &before, NULL); /* without a child (-1): no orphan is waited for */
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    if (getpid() == 1) reap_as_process_1();
    return ls_command_line(argc, argv);
}

static volatile sig_atomic_t status_on_signal;

/* Write the reason, unless the reader of standard error is late: the end does not wait for it. */
static void report_late(void)
{
    static const char text[] = "luaserve: ended early: a finalizer or a file took too long\n";
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) == 1 && write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
}

static void end_now(int number)
{
    if (number == SIGALRM) report_late();
    _exit(number == SIGALRM ? LS_STATUS_FAILED : status_on_signal);
}

void ls_command_end_within(unsigned seconds, int status)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGALRM};
    struct sigaction action = {.sa_handler = end_now};
    sigset_t set;
    sigfillset(&action.sa_mask);
    status_on_signal = status;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) (void)sigaction(numbers[i], &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)alarm(seconds);
}

void ls_main_set_env(const char *value, int replace)
{
    (void)setenv("LUASERVE_ENV", value, replace);
}

/* A static program has no interpreter, the loader of shared libraries (getauxval(3)). */
const char *ls_main_libraries(void)
{
    static char text[200];
    if (getauxval(AT_BASE) == 0)
        (void)snprintf(
            text, sizeof text,
            "C library: glibc %s\nlibraries: inside this program; updates of the system do not reach them\n",
            gnu_get_libc_version());
    return text;
}

const char *ls_main_site_hint(const char *site)
{
    return "";
}

const luaL_Reg ls_service_functions[] = {{NULL, NULL}};

int ls_command_service(int argc, char **argv)
{
    fprintf(stderr,
            "luaserve: %s is for Windows services; on this system have the service manager run: luaserve site.lua\n",
            argv[0]);
    return LS_STATUS_USAGE;
}
