/* sim_poll.c - the table of descriptors, and the calls that are the same for all of them; epoll, eventfd, timerfd and
 * pipes. See sim.h.
 *
 * epoll as the kernel has it: a change of a file puts the entries that watch it on the ready list of their set and
 * wakes one thread that waits there; the thread looks at each entry of the list again, leaves out what does not hold
 * any more, and puts level-triggered entries back. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/list.h"
#include "port/sim/sim.h"

static struct {
    ls_sim_file *files[LS_SIM_FDS_MAX];
    uint64_t files_opened;
    unsigned lowest;  /* none below `lowest` is free */
    unsigned fds_max; /* RLIMIT_NOFILE; 0: the most there are */
} table;

/* ---- the table -------------------------------------------------------------------------------------------------- */

bool ls_sim_fd_is(int fd)
{
    return fd >= LS_SIM_FD_FIRST && fd < LS_SIM_FD_FIRST + LS_SIM_FDS_MAX;
}

static int put_file(unsigned at, ls_sim_file *file)
{
    table.files[at] = file;
    ls_sim_total.fds++;
    file->refs++;
    return LS_SIM_FD_FIRST + (int)at;
}

int ls_sim_fd_open(ls_sim_file *file, const ls_sim_kind *kind, bool waits)
{
    const unsigned most = table.fds_max > 0 && table.fds_max < LS_SIM_FDS_MAX ? table.fds_max : LS_SIM_FDS_MAX;
    unsigned at = table.lowest;
    while (at < most && table.files[at] != NULL) at++;
    if (at >= most || ls_sim_chance(ls_sim_faults_now.no_descriptors)) return ls_sim_failed(EMFILE);
    table.lowest = at + 1;
    file->kind = kind;
    file->waits = waits;
    if (file->refs == 0) file->number = ++table.files_opened;
    return put_file(at, file);
}

ls_sim_file *ls_sim_file_of(int fd, const ls_sim_kind *kind)
{
    ls_sim_file *const file = ls_sim_fd_is(fd) ? table.files[fd - LS_SIM_FD_FIRST] : NULL;
    if (file != NULL && (kind == NULL || file->kind == kind)) return file;
    errno = file == NULL ? EBADF : ENOTSOCK;
    return NULL;
}

/* ---- epoll ------------------------------------------------------------------------------------------------------ */

typedef struct epoll_set {
    ls_sim_file file;
    ls_node ready, all; /* of watches */
} epoll_set;

struct ls_sim_watch { /* an entry of a set */
    struct ls_sim_watch *next_of_file;
    ls_node ready, of_set;
    epoll_set *set;
    ls_sim_file *file;
    int fd;
    struct epoll_event event;
};

static const ls_sim_kind epoll_kind;

static void push_ready(struct ls_sim_watch *w)
{
    if (ls_list_empty(&w->ready)) ls_list_push(&w->set->ready, &w->ready);
}

void ls_sim_changed(ls_sim_file *file, unsigned events)
{
    for (struct ls_sim_watch *w = file->watches; w != NULL; w = w->next_of_file) {
        if (!(w->event.events & events)) continue;
        push_ready(w);
        ls_sim_wake_one(w->set);
    }
    ls_sim_wake_all(file);
}

static unsigned holds(const struct ls_sim_watch *w)
{
    return w->file->kind->poll(w->file) & w->event.events;
}

int epoll_create1(int flags)
{
    (void)flags;
    ls_sim_call();
    epoll_set *const set = calloc(1, sizeof *set);
    ls_node_init(&set->ready);
    ls_node_init(&set->all);
    const int fd = ls_sim_fd_open(&set->file, &epoll_kind, true);
    if (fd < 0) free(set);
    return fd;
}

static void unlink_watch(struct ls_sim_watch *w)
{
    struct ls_sim_watch **at = &w->file->watches;
    while (*at != w) at = &(*at)->next_of_file;
    *at = w->next_of_file;
    ls_list_remove(&w->of_set);
    ls_list_remove(&w->ready);
    free(w);
}

int epoll_ctl(int epfd, int operation, int fd, struct epoll_event *event)
{
    ls_sim_call();
    epoll_set *const set = (epoll_set *)(void *)ls_sim_file_of(epfd, &epoll_kind);
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    struct ls_sim_watch *w = NULL;
    const bool is_of_system = fd >= 0 && !ls_sim_fd_is(fd) && fcntl(fd, F_GETFD, 0L) >= 0;
    if (set == NULL || (file == NULL && !is_of_system)) return ls_sim_failed(EBADF);
    if (is_of_system || file->kind->poll == NULL) return ls_sim_failed(EPERM);
    for (w = file->watches; w != NULL && (w->set != set || w->fd != fd);) w = w->next_of_file;
    if (operation == EPOLL_CTL_ADD ? w != NULL : w == NULL) {
        errno = operation == EPOLL_CTL_ADD ? EEXIST : ENOENT;
        return -1;
    }
    if (operation == EPOLL_CTL_DEL) {
        unlink_watch(w);
        return 0;
    }
    if (w == NULL) {
        w = calloc(1, sizeof *w);
        *w = (struct ls_sim_watch){.next_of_file = file->watches, .set = set, .file = file, .fd = fd};
        file->watches = w;
        ls_node_init(&w->ready);
        ls_list_push(&set->all, &w->of_set);
    }
    w->event = *event;
    w->event.events |= EPOLLERR | EPOLLHUP;
    if (holds(w)) {
        push_ready(w);
        ls_sim_wake_one(set);
    }
    return 0;
}

static int take_ready(epoll_set *set, struct epoll_event *events, int max)
{
    ls_node again = LS_LIST_INIT(again);
    int n = 0;
    while (n < max && !ls_list_empty(&set->ready)) {
        struct ls_sim_watch *const w = LS_CONTAINER(set->ready.next, struct ls_sim_watch, ready);
        const unsigned found = holds(w);
        ls_list_remove(&w->ready);
        if (found == 0) continue;
        events[n].events = found;
        events[n++].data = w->event.data;
        if (w->event.events & EPOLLONESHOT)
            w->event.events &= EPOLLET | EPOLLONESHOT;
        else if (!(w->event.events & EPOLLET))
            ls_list_push(&again, &w->ready);
    }
    LS_LIST_TAKE (struct ls_sim_watch, w, &again, ready) push_ready(w);
    if (n > 0 && !ls_list_empty(&set->ready)) ls_sim_wake_one(set);
    return n;
}

static uint64_t end_of(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : ls_sim_now_ns() + (uint64_t)timeout_ms * 1000000;
}

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms)
{
    ls_sim_call();
    epoll_set *const set = (epoll_set *)(void *)ls_sim_file_of(epfd, &epoll_kind);
    const uint64_t until_ns = end_of(timeout_ms);
    if (set == NULL) return -1;
    for (;;) {
        const int n = take_ready(set, events, max);
        if (n > 0) ls_sim_step("events", n, events[0].events);
        if (n > 0 || timeout_ms == 0 || ls_sim_now_ns() >= until_ns) return n;
        (void)ls_sim_wait(set, until_ns);
    }
}

static void epoll_close(ls_sim_file *file)
{
    epoll_set *const set = (epoll_set *)(void *)file;
    LS_LIST_TAKE (struct ls_sim_watch, w, &set->all, of_set) unlink_watch(w);
    free(set);
}

static const ls_sim_kind epoll_kind = {.close = epoll_close};

/* ---- eventfd and timerfd: a counter ----------------------------------------------------------------------------- */

typedef struct counter {
    ls_sim_file file;
    uint64_t value, setting; /* setting: numbers the calls of timerfd_settime; an event of an earlier one is late */
    unsigned refs;           /* of events, and the file */
} counter;

static unsigned counter_poll(ls_sim_file *file)
{
    return (((counter *)(void *)file)->value > 0 ? EPOLLIN : 0) | EPOLLOUT;
}

static ssize_t counter_transfer(ls_sim_file *file, const struct iovec *bytes, bool writes)
{
    counter *const c = (counter *)(void *)file;
    uint64_t add;
    if (!writes || bytes->iov_len < sizeof add) return ls_sim_failed(EINVAL);
    memcpy(&add, bytes->iov_base, sizeof add);
    c->value += add;
    ls_sim_changed(file, EPOLLIN);
    return sizeof add;
}

static void counter_close(ls_sim_file *file)
{
    counter *const c = (counter *)(void *)file;
    c->setting++;
    if (--c->refs == 0) free(c);
}

static const ls_sim_kind counter_kind = {.poll = counter_poll, .transfer = counter_transfer, .close = counter_close};

int eventfd(unsigned value, int flags)
{
    (void)flags;
    ls_sim_call();
    counter *const c = calloc(1, sizeof *c);
    c->value = value;
    c->refs = 1;
    const int fd = ls_sim_fd_open(&c->file, &counter_kind, false);
    if (fd < 0) free(c);
    return fd;
}

int timerfd_create(clockid_t clock, int flags)
{
    (void)clock;
    return eventfd(0, flags);
}

static void timer_fired(void *arg, uint64_t setting)
{
    counter *const c = arg;
    if (c->setting == setting) {
        c->value++;
        ls_sim_changed(&c->file, EPOLLIN);
    }
    if (--c->refs == 0) free(c);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *wanted, struct itimerspec *before)
{
    (void)before;
    ls_sim_call();
    counter *const c = (counter *)(void *)ls_sim_file_of(fd, &counter_kind);
    if (c == NULL) return -1;
    uint64_t ns = (uint64_t)wanted->it_value.tv_sec * 1000000000 + (uint64_t)wanted->it_value.tv_nsec;
    c->value = 0;
    c->setting++;
    if (ns == 0) return 0;
    if (!(flags & TFD_TIMER_ABSTIME)) ns += ls_sim_now_ns();
    c->refs++;
    ls_sim_at(ns, timer_fired, c, c->setting);
    return 0;
}

static const ls_sim_kind system_kind = {};

/* ---- calls of all files ----------------------------------------------------------------------------------------- */

/* A call that waits writes all. */
static ssize_t transfer(int fd, void *at, size_t len, bool writes)
{
    size_t sum = 0;
    ls_sim_call();
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    if (file == NULL) return -1;
    if (file->kind->transfer == NULL) return ls_sim_failed(EINVAL);
    for (;;) {
        const ssize_t n = file->kind->transfer(file, &(struct iovec){(char *)at + sum, len - sum}, writes);
        if (n < 0 && (errno != EAGAIN || !file->waits)) return sum > 0 ? (ssize_t)sum : -1;
        if (n >= 0) sum += (size_t)n;
        if (n >= 0 && (!writes || !file->waits || sum == len)) return (ssize_t)sum;
        if (n < 0) (void)ls_sim_wait(file, UINT64_MAX);
    }
}

ssize_t read(int fd, void *to, size_t len)
{
    if (!ls_sim_fd_is(fd)) return ls_sim_result(ls_sim_syscall(SYS_read, fd, (long)to, (long)len, 0, 0, 0));
    return transfer(fd, to, len, false);
}

ssize_t write(int fd, const void *from, size_t len)
{
    if (!ls_sim_fd_is(fd)) return ls_sim_result(ls_sim_syscall(SYS_write, fd, (long)from, (long)len, 0, 0, 0));
    return transfer(fd, (void *)from, len, true);
}

ssize_t writev(int fd, const struct iovec *vector, int count)
{
    ssize_t sum = 0;
    if (!ls_sim_fd_is(fd)) return ls_sim_result(ls_sim_syscall(SYS_writev, fd, (long)vector, count, 0, 0, 0));
    for (int i = 0; i < count; i++) {
        const ssize_t n = write(fd, vector[i].iov_base, vector[i].iov_len);
        if (n < 0) return sum > 0 ? sum : n;
        sum += n;
        if ((size_t)n < vector[i].iov_len) break;
    }
    return sum;
}

int close(int fd)
{
    if (!ls_sim_fd_is(fd)) return (int)ls_sim_result(ls_sim_syscall(SYS_close, fd, 0, 0, 0, 0, 0));
    ls_sim_call();
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    if (file == NULL) ls_sim_fail("close(%d): it is not open", fd);
    const unsigned at = (unsigned)(fd - LS_SIM_FD_FIRST);
    ls_sim_step("close", fd, file->refs);
    table.files[at] = NULL;
    ls_sim_total.fds--;
    if (at < table.lowest) table.lowest = at;
    if (--file->refs > 0) return 0;
    while (file->watches != NULL) unlink_watch(file->watches);
    if (file->kind->close != NULL) file->kind->close(file);
    return 0;
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    va_start(args, command);
    const long value = va_arg(args, long);
    va_end(args);
    if (!ls_sim_fd_is(fd)) return (int)ls_sim_result(ls_sim_syscall(SYS_fcntl, fd, command, value, 0, 0, 0));
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    if (file == NULL) return -1;
    switch (command) {
    case F_GETFL: return O_RDWR | (file->waits ? 0 : O_NONBLOCK);
    case F_SETFL: file->waits = !(value & O_NONBLOCK); return 0;
    case F_GETFD: return FD_CLOEXEC;
    case F_DUPFD:
    case F_DUPFD_CLOEXEC: return ls_sim_fd_open(file, file->kind, file->waits);
    case F_GETLK: ((struct flock *)value)->l_type = F_UNLCK; return 0; /* locks: this process is the only one */
    default: return 0;
    }
}

int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl")));

int dup(int fd)
{
    static ls_sim_file of_system; /* so that tests that count descriptors find those of the world */
    if (ls_sim_fd_is(fd)) return fcntl(fd, F_DUPFD, 0L);
    return ls_sim_fd_open(&of_system, &system_kind, false);
}

int dup2(int fd, int to)
{
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    if (file == NULL || !ls_sim_fd_is(to)) return -1;
    if (fd == to) return to;
    if (ls_sim_file_of(to, NULL) != NULL) (void)close(to);
    return put_file((unsigned)(to - LS_SIM_FD_FIRST), file);
}

int fstat(int fd, struct stat *out)
{
    if (!ls_sim_fd_is(fd))
        return (int)ls_sim_result(ls_sim_syscall(SYS_newfstatat, fd, (long)"", (long)out, AT_EMPTY_PATH, 0, 0));
    ls_sim_file *const file = ls_sim_file_of(fd, NULL);
    *out = (struct stat){.st_mode = S_IFSOCK, .st_ino = file != NULL ? file->number : 0};
    if (file != NULL && file->kind->stat != NULL) file->kind->stat(file, out);
    return file != NULL ? 0 : -1;
}

int poll(struct pollfd *wanted, nfds_t count, int timeout_ms)
{
    int n = 0;
    ls_sim_call();
    for (nfds_t i = 0; i < count; i++) {
        const ls_sim_file *const file = ls_sim_file_of(wanted[i].fd, NULL);
        wanted[i].revents = 0;
        if (wanted[i].fd < 0) continue;
        if (!ls_sim_fd_is(wanted[i].fd)) /* standard output, always ready */
            return (int)ls_sim_result(ls_sim_syscall(SYS_poll, (long)wanted, (long)count, 0, 0, 0, 0));
        wanted[i].revents =
            file == NULL
                ? POLLNVAL
                : (short)(file->kind->poll((ls_sim_file *)file) & ((unsigned)wanted[i].events | POLLHUP | POLLERR));
        n += wanted[i].revents != 0;
    }
    if (n == 0 && timeout_ms != 0) ls_sim_fail("poll(2) does not wait here");
    return n;
}

int getrlimit(__rlimit_resource_t which, struct rlimit *out)
{
    const rlim_t most = which == RLIMIT_NOFILE ? LS_SIM_FD_FIRST + LS_SIM_FDS_MAX : RLIM_INFINITY;
    *out = (struct rlimit){which == RLIMIT_NOFILE && table.fds_max > 0 ? LS_SIM_FD_FIRST + table.fds_max : most, most};
    return 0;
}

int setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
    if (which == RLIMIT_NOFILE && limit->rlim_cur >= LS_SIM_FD_FIRST)
        table.fds_max = (unsigned)limit->rlim_cur - LS_SIM_FD_FIRST;
    return 0;
}

int inotify_init1(int flags)
{
    (void)flags;
    return ls_sim_failed(EMFILE);
}
