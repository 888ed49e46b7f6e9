/* fault.c - makes chosen system and allocation calls of a program fail; loaded with LD_PRELOAD by test_fault.py.
 *
 * The orders are in a small file that both processes map (FAULT_FILE), so that the test can change them in a running
 * server: the kinds of calls that count, the first call that fails, the number of failures, and the errno. The
 * environment has the first orders, for faults while the program starts: FAULT_CALL (a sum of the kinds below),
 * FAULT_K, FAULT_TIMES, FAULT_ERRNO. Allocations that do not fail go to glibc's own entry points; this file itself does
 * not allocate. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ALLOC = 1, ACCEPT = 2, SEND = 4, RECV = 8, EPOLL_CTL = 16 };

struct orders {             /* test_fault.py writes the same layout */
    _Atomic uint64_t kinds; /* 0: count nothing, fail nothing */
    _Atomic uint64_t calls; /* counted since the last order */
    _Atomic uint64_t first; /* the call (from 1) that fails; 0: none */
    _Atomic uint64_t times; /* the number of calls that fail, from this one on */
    _Atomic uint64_t error;
    _Atomic uint64_t failed; /* calls that failed */
};

static struct orders *orders;

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULT_FILE");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return;
    struct orders *o = at;
    uint64_t kinds = number("FAULT_CALL", 0);
    if (kinds != 0) {
        o->first = number("FAULT_K", 0);
        o->times = number("FAULT_TIMES", 1);
        o->error = number("FAULT_ERRNO", ENOMEM);
        o->kinds = kinds;
    }
    unsetenv("LD_PRELOAD"); /* the program's children run without faults */
    orders = o;
}

/* Whether this call must fail; sets errno if so. */
static int fails(unsigned kind)
{
    struct orders *o = orders;
    if (o == NULL || (atomic_load_explicit(&o->kinds, memory_order_acquire) & kind) == 0) return 0;
    uint64_t n = atomic_fetch_add(&o->calls, 1) + 1;
    uint64_t first = atomic_load(&o->first);
    if (first == 0 || n < first || n - first >= atomic_load(&o->times)) return 0;
    atomic_fetch_add(&o->failed, 1);
    errno = (int)atomic_load(&o->error);
    return 1;
}

void *malloc(size_t size)
{
    return fails(ALLOC) ? NULL : __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_calloc(count, size);
}
void *memalign(size_t align, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_memalign(align, size);
}
void *aligned_alloc(size_t align, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_memalign(align, size);
}

void *realloc(void *old, size_t size)
{
    return size != 0 && fails(ALLOC) ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    if (fails(ALLOC)) return ENOMEM;
    void *got = __libc_memalign(align, size);
    if (got == NULL) return ENOMEM;
    *out = got;
    return 0;
}

/* The next definition of a function, looked up once. */
#define NEXT(type, name, ...)         \
    static type (*next)(__VA_ARGS__); \
    if (next == NULL) next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    NEXT(int, "accept4", int, struct sockaddr *, socklen_t *, int);
    return fails(ACCEPT) ? -1 : next(fd, addr, len, flags);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    NEXT(ssize_t, "send", int, const void *, size_t, int);
    return fails(SEND) ? -1 : next(fd, bytes, len, flags);
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    NEXT(ssize_t, "sendto", int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    return fails(SEND) ? -1 : next(fd, bytes, len, flags, to, to_len);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    NEXT(ssize_t, "sendmsg", int, const struct msghdr *, int);
    return fails(SEND) ? -1 : next(fd, message, flags);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
    NEXT(ssize_t, "sendfile", int, int, off_t *, size_t);
    return fails(SEND) ? -1 : next(out, in, offset, count);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    NEXT(ssize_t, "recv", int, void *, size_t, int);
    return fails(RECV) ? -1 : next(fd, bytes, len, flags);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags);
ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags)
{
    NEXT(ssize_t, "__recv_chk", int, void *, size_t, size_t, int);
    return fails(RECV) ? -1 : next(fd, bytes, len, room, flags);
}

ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    NEXT(ssize_t, "recvfrom", int, void *, size_t, int, struct sockaddr *, socklen_t *);
    return fails(RECV) ? -1 : next(fd, bytes, len, flags, from, from_len);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    NEXT(ssize_t, "recvmsg", int, struct msghdr *, int);
    return fails(RECV) ? -1 : next(fd, message, flags);
}

/* Reads and writes of sockets count; those of the program's timers and event descriptors do not. */
static int is_socket(int fd)
{
    const int before = errno;
    int type;
    socklen_t len = sizeof type;
    const int is = orders != NULL && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
    errno = before;
    return is;
}

ssize_t read(int fd, void *bytes, size_t len)
{
    NEXT(ssize_t, "read", int, void *, size_t);
    return is_socket(fd) && fails(RECV) ? -1 : next(fd, bytes, len);
}

ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room);
ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room)
{
    NEXT(ssize_t, "__read_chk", int, void *, size_t, size_t);
    return is_socket(fd) && fails(RECV) ? -1 : next(fd, bytes, len, room);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
    NEXT(ssize_t, "readv", int, const struct iovec *, int);
    return is_socket(fd) && fails(RECV) ? -1 : next(fd, parts, count);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    NEXT(ssize_t, "write", int, const void *, size_t);
    return is_socket(fd) && fails(SEND) ? -1 : next(fd, bytes, len);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(ssize_t, "writev", int, const struct iovec *, int);
    return is_socket(fd) && fails(SEND) ? -1 : next(fd, parts, count);
}

/* Calls that the program makes without the library's wrappers. */
long syscall(long number, ...)
{
    NEXT(long, "syscall", long, ...);
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    unsigned kind = 0;
    switch (number) {
    case SYS_accept4: kind = ACCEPT; break;
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg: kind = SEND; break;
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg: kind = RECV; break;
    case SYS_epoll_ctl: kind = a[1] != EPOLL_CTL_DEL ? EPOLL_CTL : 0; break;
    default: break;
    }
    return kind != 0 && fails(kind) ? -1 : next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    NEXT(int, "epoll_ctl", int, int, int, struct epoll_event *);
    return op != EPOLL_CTL_DEL && fails(EPOLL_CTL) ? -1 : next(epoll, op, fd, event);
}
