/* watch_posix.c - watch.h with inotify(7). IN_MODIFY is left out: a file that another program appends to, such as a
 * log, reports its close only, and an editor that writes in place closes the file as well. */
#define _GNU_SOURCE
#include "base/io/watch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

struct ls_watch {
    int events; /* of inotify */
    int wake;   /* eventfd(2) */
};

int ls_watch_open(ls_watch **out)
{
    int err;
    ls_watch *watch = malloc(sizeof *watch);
    if (watch == NULL) return LS_ENOMEM;
    watch->events = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    err = ls_err_from_errno(errno);
    if (watch->events < 0) goto fail_alloc;
    watch->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    err = ls_err_from_errno(errno);
    if (watch->wake < 0) goto fail_events;
    *out = watch;
    return LS_OK;

fail_events:
    (void)close(watch->events);
fail_alloc:
    free(watch);
    return err;
}

void ls_watch_close(ls_watch *watch)
{
    (void)close(watch->events);
    (void)close(watch->wake);
    free(watch);
}

/* Watch the folder of `path`, or the nearest one above it. Changes `path`. */
static int watch_folder(ls_watch *watch, char *path)
{
    static const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE |
                                 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK;
    for (;;) {
        const char *folder = path;
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            folder = ".";
        else if (slash == path)
            folder = "/";
        else
            *slash = '\0';
        if (inotify_add_watch(watch->events, folder, mask) >= 0) return LS_OK;
        if (errno == ENOSPC) return LS_ELIMIT;
        if ((errno != ENOENT && errno != ENOTDIR) || folder != path) return ls_err_from_errno(errno);
    }
}

int ls_watch_path(ls_watch *watch, const char *path)
{
    char copy[PATH_MAX], target[PATH_MAX];
    if (strlen(path) >= sizeof copy) return LS_ENOENT;
    (void)strcpy(copy, path);
    const int err = watch_folder(watch, copy);
    if (err < 0) return err;
    return realpath(path, target) != NULL ? watch_folder(watch, target) : LS_OK;
}

/* Read all of what is there: true if there was anything. */
static bool empty(int fd)
{
    char bytes[16 * 1024];
    bool any = false;
    while (read(fd, bytes, sizeof bytes) > 0) any = true;
    return any;
}

int ls_watch_wait(ls_watch *watch, int ms)
{
    const uint64_t until_ns = ls_clock_ns() + (uint64_t)(ms > 0 ? ms : 0) * 1000000u;
    struct pollfd fds[] = {{.fd = watch->wake, .events = POLLIN}, {.fd = watch->events, .events = POLLIN}};
    for (;;) {
        const uint64_t now_ns = ls_clock_ns();
        const int left = ms < 0 ? -1 : now_ns < until_ns ? (int)((until_ns - now_ns + 999999u) / 1000000u) : 0;
        const int ready = poll(fds, 2, left);
        if (ready == 0) return LS_ETIMEDOUT;
        if (ready < 0) continue; /* EINTR */
        if (empty(watch->wake)) return LS_ECANCELED;
        if (empty(watch->events)) return LS_OK;
    }
}

void ls_watch_wake(ls_watch *watch)
{
    const uint64_t one = 1;
    if (write(watch->wake, &one, sizeof one) < 0) return; /* EAGAIN: the counter is at its limit, and wakes as well */
}

void ls_watch_stamp_of(const char *path, ls_watch_stamp *out)
{
    struct stat st;
    *out = (ls_watch_stamp){0};
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) return;
    out->exists = true;
    out->size = (uint64_t)st.st_size;
    out->written = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
    out->changed = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
    out->identity = (uint64_t)st.st_ino ^ (uint64_t)st.st_dev << 48;
}
