/* repl_posix.c - see repl.h. */
#define _DEFAULT_SOURCE
#include "cli/repl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

static int interrupts[2] = {-1, -1}; /* a pipe: the handler of SIGINT writes one byte for each */

/* ---- Ctrl-C ----------------------------------------------------------------------------------------------------- */

static void on_interrupt(int number)
{
    const int before = errno;
    (void)!write(interrupts[1], "", 1); /* full: interrupts enough are noted */
    errno = before;
}

void ls_repl_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    if (pipe(interrupts) < 0) return; /* Ctrl-C ends the program */
    for (int n = 0; n < 2; n++) {
        (void)fcntl(interrupts[n], F_SETFL, O_NONBLOCK);
        (void)fcntl(interrupts[n], F_SETFD, FD_CLOEXEC);
    }
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    (void)sigaction(SIGINT, &action, NULL);
}

/* Wait until `fd` can be read. 1, or LS_REPL_INTERRUPTED. */
static int wait_for(int fd)
{
    struct pollfd wanted[2] = {{.fd = fd, .events = POLLIN}, {.fd = interrupts[0], .events = POLLIN}};
    char byte[64];
    while (poll(wanted, 2, -1) < 0 && errno == EINTR) {}
    if ((wanted[1].revents & POLLIN) == 0) return 1;
    while (read(interrupts[0], byte, sizeof byte) > 0) {}
    return LS_REPL_INTERRUPTED;
}

int ls_repl_wait_input(void)
{
    return wait_for(STDIN_FILENO);
}

int ls_repl_key(int ms)
{
    struct termios before, raw;
    unsigned char key = 0;
    if (interrupts[0] < 0) ls_repl_catch_interrupts();
    if (tcgetattr(STDIN_FILENO, &before) < 0) return -1;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = interrupts[0], .events = POLLIN}};
    const int got = poll(fds, 2, ms);
    int result = got == 0 ? 0 : -1;
    if (got > 0 && fds[1].revents == 0 && read(STDIN_FILENO, &key, 1) == 1) result = key;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return result;
}

int ls_repl_is_terminal(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

/* ---- the connection --------------------------------------------------------------------------------------------- */

int ls_repl_connect(const char *path, intptr_t *out, char *why, size_t why_bytes)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof to.sun_path) {
        snprintf(why, why_bytes, "the path is longer than %zu bytes", sizeof to.sun_path - 1);
        return -1;
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) < 0) {
        snprintf(why, why_bytes, "%s", strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *out = fd;
    return 0;
}

int ls_repl_write(intptr_t link, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        const ssize_t sent = send((int)link, from, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return -1;
        from += sent;
        n -= (size_t)sent;
    }
    return 0;
}

long ls_repl_read(intptr_t link, void *to, size_t room)
{
    ssize_t got;
    if (wait_for((int)link) == LS_REPL_INTERRUPTED) return LS_REPL_INTERRUPTED;
    while ((got = recv((int)link, to, room, 0)) < 0 && errno == EINTR) {}
    return got < 0 ? 0 : (long)got;
}

void ls_repl_disconnect(intptr_t link)
{
    close((int)link);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

int ls_repl_private_path(char *path, size_t path_bytes, char *why, size_t why_bytes)
{
    static const char name[] = "/luaserve-XXXXXX", socket_name[] = "/control";
    const char *folder = getenv("XDG_RUNTIME_DIR");
    const size_t room = sizeof((struct sockaddr_un *)0)->sun_path;
    if (folder == NULL || folder[0] != '/' || strlen(folder) + sizeof name + sizeof socket_name > room ||
        access(folder, W_OK) < 0)
        folder = "/tmp";
    snprintf(path, path_bytes, "%s%s", folder, name);
    if (mkdtemp(path) == NULL) {
        snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    strcat(path, socket_name);
    return 0;
}

void ls_repl_private_remove(char *path)
{
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    (void)rmdir(path);
}

void ls_repl_history_path(char *path, size_t path_bytes)
{
    static const char name[] = "/luaserve/repl_history";
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int bytes = -1;
    if (state != NULL && state[0] == '/')
        bytes = snprintf(path, path_bytes, "%s%s", state, name);
    else if (home != NULL && home[0] == '/')
        bytes = snprintf(path, path_bytes, "%s/.local/state%s", home, name);
    if (bytes < 0 || (size_t)bytes >= path_bytes) {
        path[0] = '\0';
        return;
    }
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
}
