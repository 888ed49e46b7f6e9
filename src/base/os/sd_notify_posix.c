/* sd_notify_posix.c - see sd_notify.h. */
#define _GNU_SOURCE
#include "base/os/sd_notify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* Global, like the environment. Length 0: no socket. */
static struct sockaddr_un to = {.sun_family = AF_UNIX};
static socklen_t to_bytes;

void ls_sd_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t len = path != NULL ? strlen(path) : 0;
    if (len > 1 && len < sizeof to.sun_path && (path[0] == '/' || path[0] == '@')) {
        memcpy(to.sun_path, path, len);
        if (path[0] == '@') to.sun_path[0] = '\0'; /* abstract: unix(7) */
        to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    }
    (void)unsetenv("NOTIFY_SOCKET");
}

/* An error has no place to be reported, and no effect on the clients. */
static void send_text(const char *text)
{
    const struct timeval second = {.tv_sec = 1};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    (void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL, (const struct sockaddr *)&to, to_bytes);
    (void)close(fd);
}

void ls_sd_tell(const char *state, const char *format, ...)
{
    char text[1024];
    if (to_bytes == 0) return;
    int from = snprintf(text, sizeof text, "%s%sSTATUS=", state, state[0] != '\0' ? "\n" : "");
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + from, sizeof text - (size_t)from, format, args);
    va_end(args);
    for (char *at = text + from; *at != '\0'; at++)
        if (*at == '\n') *at = ' '; /* it would end the value */
    send_text(text);
}

void ls_sd_tell_reloading(void)
{
    char state[80];
    (void)snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, ls_clock_ns() / 1000u);
    ls_sd_tell(state, "loads the site again");
}
