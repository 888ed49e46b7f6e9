/* sd_notify_posix.c - see sd_notify.h. */
#define _GNU_SOURCE
#include "base/os/sd_notify.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"

enum {
    /* Of a datagram. Only a status can be longer, and is truncated: the name of a descriptor has at most 255 bytes. */
    TEXT_BYTES = 1024,
    VARIABLE_BYTES = 160 /* a path of sun_path fits */
};

/* Global, like the environment. Length 0: no socket. */
static struct sockaddr_un to = {.sun_family = AF_UNIX};
static socklen_t to_bytes;
static _Atomic int store_left; /* descriptors that the manager would keep yet */
static int store_max;
static uint64_t watchdog_ms;
static char variables[LS_SD_VARIABLES][VARIABLE_BYTES];

/* Take the number out of a variable and the environment; 0: another text. */
static uint64_t take_number(const char *name)
{
    const char *text = getenv(name);
    const uint64_t number = text != NULL ? strtoull(text, NULL, 10) : 0;
    (void)unsetenv(name);
    return number;
}

void ls_sd_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t len = path != NULL ? strlen(path) : 0;
    if (len > 1 && len < sizeof to.sun_path && (path[0] == '/' || path[0] == '@')) {
        memcpy(to.sun_path, path, len);
        if (path[0] == '@') to.sun_path[0] = '\0'; /* abstract: unix(7) */
        to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
        (void)snprintf(variables[0], VARIABLE_BYTES, "NOTIFY_SOCKET=%s", path);
    }
    (void)unsetenv("NOTIFY_SOCKET");
    const uint64_t process = take_number("WATCHDOG_PID"), usec = take_number("WATCHDOG_USEC");
    if (process == 0 || process == (uint64_t)getpid()) watchdog_ms = usec / 1000;
    const uint64_t store = take_number("FDSTORE");
    store_max = to_bytes > 0 ? (int)(store < INT_MAX ? store : INT_MAX) : 0;
    atomic_store(&store_left, store_max);
    (void)snprintf(variables[1], VARIABLE_BYTES, "FDSTORE=%d", store_max);
    (void)snprintf(variables[2], VARIABLE_BYTES, "WATCHDOG_USEC=%" PRIu64, watchdog_ms * 1000);
}

/* An error has no place to be reported, and no effect on the clients. `passed`: a descriptor that goes with it; -1:
 * none. */
LS_PRINTF(2, 3)
static bool send_text(int passed, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof passed)];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec bytes = {.iov_base = text, .iov_len = strlen(text)};
    const struct msghdr message = {.msg_name = &to,
                                   .msg_namelen = to_bytes,
                                   .msg_iov = &bytes,
                                   .msg_iovlen = 1,
                                   .msg_control = passed >= 0 ? &control : NULL,
                                   .msg_controllen = passed >= 0 ? sizeof control.room : 0};
    const struct timeval second = {.tv_sec = 1};
    const int fd = to_bytes > 0 ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return false;
    memcpy(CMSG_DATA(&control.head), &passed, sizeof passed);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    const bool sent = sendmsg(fd, &message, MSG_NOSIGNAL) >= 0;
    (void)close(fd);
    return sent;
}

void ls_sd_tell(const char *state, const char *format, ...)
{
    char text[TEXT_BYTES];
    if (to_bytes == 0) return;
    int from = snprintf(text, sizeof text, "%s%sSTATUS=", state, state[0] != '\0' ? "\n" : "");
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + from, sizeof text - (size_t)from, format, args);
    va_end(args);
    for (char *at = text + from; *at != '\0'; at++)
        if (*at == '\n') *at = ' '; /* it would end the value */
    (void)send_text(-1, "%s", text);
}

void ls_sd_tell_reloading(void)
{
    char state[80];
    (void)snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, ls_clock_ns() / 1000u);
    ls_sd_tell(state, "loads the site again");
}

bool ls_sd_store(intptr_t fd, const char *name)
{
    if (atomic_fetch_sub(&store_left, 1) > 0 && send_text((int)fd, "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name))
        return true;
    atomic_fetch_add(&store_left, 1);
    return false;
}

void ls_sd_remove(const char *name)
{
    if (store_max == 0) return;
    (void)send_text(-1, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    if (atomic_load(&store_left) < store_max) atomic_fetch_add(&store_left, 1); /* else of a process before */
}

void ls_sd_tell_main(long process)
{
    (void)send_text(-1, "MAINPID=%ld", process);
}

unsigned ls_sd_variables(char *out[LS_SD_VARIABLES])
{
    for (unsigned n = 0; n < LS_SD_VARIABLES; n++) out[n] = variables[n];
    return to_bytes > 0 ? LS_SD_VARIABLES : 0;
}

uint64_t ls_sd_watchdog_ms(void)
{
    return to_bytes > 0 ? watchdog_ms : 0;
}

void ls_sd_feed(void)
{
    (void)send_text(-1, "WATCHDOG=1");
}
