/* epoll_notify.c - notifications on the shared epoll set: see notify.h.
 *
 * Every descriptor has an entry (a watcher) in a table that is read without a lock. The entry is made when the
 * descriptor is first registered and stays until the port is closed, so the memory left by closed descriptors is
 * bounded by the number of descriptors.
 *
 * The upper half of a watcher's word is a generation that changes with every REGISTER, ENABLE, DISABLE, REMOVE and
 * drop. The kernel is given generation and descriptor, so an event that was harvested before such a change fails the
 * comparison afterwards. No event is lost by that: EPOLL_CTL_ADD and EPOLL_CTL_MOD evaluate the file again. The packet
 * of a ONESHOT registration belongs to the thread whose compare-and-swap clears ARMED.
 *
 * The kernel reports more than was requested: hang-ups always, also of stream sockets that were never connected.
 * A level-triggered registration in such a state would fire again and again without an event for the caller. When
 * an event holds nothing for the caller, the watcher is made QUIET: edge-triggered in the kernel. The next event
 * that holds something is not delivered itself; it restores the trigger of the registration, and the kernel
 * reports it again.
 *
 * A disabled registration stays in the set with EPOLLONESHOT only: it can fire at most once, and that event is
 * ignored. So the kernel's EEXIST distinguishes a second registration from one whose socket was closed.
 *
 * Lock: one of a few mutexes, selected by descriptor, for all changes of a registration; before port->base.mutex. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "port/epoll/epoll_internal.h"
#include "port/notify.h"

enum { WATCHERS_PER_CHUNK = 256, WATCHER_CHUNKS = LS_NOTIFY_FD_MAX / WATCHERS_PER_CHUNK, WATCHER_LOCKS = 16 };

enum { /* the lower half of a watcher's word: the filter in LS_EVENT_*, and flags */
       EVENTS = 0xff,
       LIVE = 1u << 8, /* registered */
       ARMED = 1u << 9,
       ONESHOT = 1u << 10,
       EDGE = 1u << 11,
       QUIET = 1u << 12,
       SOCKET = 1u << 13,   /* not a pipe or another object */
       DATAGRAM = 1u << 14, /* a connectionless socket */
};

typedef struct watcher {
    _Atomic uint64_t word;
    _Atomic(void *) key; /* written before the word that sets LIVE */
    ls_key_node *last;   /* under the mutex: the node of the REMOVE packet; not NULL while LIVE */
    uint64_t removed;    /* under the mutex: the origin of a queued REMOVE packet, or 0 */
    ino_t removed_ino;   /* inode of the removed socket: the descriptor may have been reused since */
} watcher;

struct ls_watchers {
    ls_mutex locks[WATCHER_LOCKS];
    _Atomic(watcher *) chunks[WATCHER_CHUNKS];
};

/* ---- the table ---------------------------------------------------------------------------------------------- */

int ls_watchers_open(ls_watchers **out)
{
    ls_watchers *watchers = calloc(1, sizeof *watchers);
    if (watchers == NULL) return LS_ENOMEM;
    for (int i = 0; i < WATCHER_LOCKS; i++) ls_mutex_open(&watchers->locks[i]);
    *out = watchers;
    return LS_OK;
}

void ls_watchers_close(ls_watchers *watchers)
{
    for (int c = 0; c < WATCHER_CHUNKS; c++) {
        watcher *chunk = atomic_load(&watchers->chunks[c]);
        for (int i = 0; chunk != NULL && i < WATCHERS_PER_CHUNK; i++) free(chunk[i].last);
        free(chunk);
    }
    for (int i = 0; i < WATCHER_LOCKS; i++) ls_mutex_close(&watchers->locks[i]);
    free(watchers);
}

/* NULL: no descriptor of its chunk was ever registered. */
static watcher *watcher_at(const ls_watchers *watchers, ls_fd fd)
{
    if (fd < 0 || fd >= LS_NOTIFY_FD_MAX) return NULL;
    watcher *chunk = atomic_load_explicit(&watchers->chunks[fd / WATCHERS_PER_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[fd % WATCHERS_PER_CHUNK];
}

static int watcher_get(ls_watchers *watchers, ls_fd fd, watcher **out)
{
    if (fd < 0) return LS_EINVAL;
    if (fd >= LS_NOTIFY_FD_MAX) return LS_ELIMIT;
    if ((*out = watcher_at(watchers, fd)) != NULL) return LS_OK;
    watcher *chunk = calloc(WATCHERS_PER_CHUNK, sizeof *chunk), *others = NULL;
    if (chunk == NULL) return LS_ENOMEM;
    if (!atomic_compare_exchange_strong(&watchers->chunks[fd / WATCHERS_PER_CHUNK], &others, chunk)) free(chunk);
    *out = watcher_at(watchers, fd);
    return LS_OK;
}

static ls_mutex *lock_of(ls_watchers *watchers, ls_fd fd)
{
    return &watchers->locks[(unsigned)fd % WATCHER_LOCKS];
}

static uint64_t origin_of(uint64_t word, ls_fd fd)
{
    return (uint64_t)WORD_GENERATION(word) << 32 | WATCHER_BIT | (unsigned)fd;
}

static ls_fd fd_of(uint64_t origin)
{
    return (ls_fd)(origin & (WATCHER_BIT - 1));
}

/* ---- registering -------------------------------------------------------------------------------------------- */

/* Set the kernel's registration to the state of the word. LS_OK or an error. */
static int update_kernel(ls_port *port, ls_fd fd, uint64_t word, int ctl)
{
    struct epoll_event event = {.data.u64 = origin_of(word, fd)};
    if (!(word & ARMED)) {
        event.events = EPOLLONESHOT;
    } else {
        event.events = (word & LS_EVENT_IN ? EPOLLIN : 0) | (word & LS_EVENT_OUT ? EPOLLOUT : 0);
        event.events |= EPOLLRDHUP; /* always, to distinguish a hang-up from a socket that was never connected */
        if (word & QUIET)
            event.events |= EPOLLET;
        else
            event.events |= (word & EDGE ? EPOLLET : 0) | (word & ONESHOT ? EPOLLONESHOT : 0);
    }
    if (epoll_ctl(port->epoll, ctl, fd, &event) == 0) return LS_OK;
    if (errno == EPERM) return LS_ENOTSUP; /* a regular file */
    return errno == ENOSPC ? LS_ELIMIT : ls_err_from_errno(errno);
}

static uint64_t next_word(uint64_t word, uint64_t flags)
{
    return (uint64_t)(WORD_GENERATION(word) + 1) << 32 | flags;
}

static uint64_t flags_of(const ls_registration *registration)
{
    return LIVE | ARMED | (registration->events & EVENTS) |
           (registration->trigger & LS_TRIGGER_ONESHOT ? ONESHOT : 0) |
           (registration->trigger & LS_TRIGGER_EDGE ? EDGE : 0);
}

static uint64_t kind_of(ls_fd fd)
{
    int type = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) < 0) return 0;
    return SOCKET | (type == SOCK_STREAM || type == SOCK_SEQPACKET ? 0 : DATAGRAM);
}

/* End the registration without a packet; the mutex is held. */
static void watcher_drop(watcher *at)
{
    atomic_store(&at->word, next_word(atomic_load(&at->word), 0));
    free(at->last);
    at->last = NULL;
}

static int register_new(ls_port *port, watcher *at, const ls_registration *registration)
{
    const ls_fd fd = registration->fd;
    uint64_t word = atomic_load(&at->word);
    struct stat st;
    int ctl = EPOLL_CTL_ADD;
    if (at->removed != 0 && fstat(fd, &st) == 0 && st.st_ino == at->removed_ino) return LS_EBUSY;
    if (word & LIVE) { /* ADD succeeds only if the registered socket was closed */
        word = next_word(word, LIVE);
        int err = update_kernel(port, fd, word, ctl);
        if (err < 0) {
            if (err != LS_EEXIST) watcher_drop(at); /* the old socket was closed, and the new one cannot be added */
            return err;
        }
        ctl = EPOLL_CTL_MOD;
    } else {
        assert(at->last == NULL);
        if ((at->last = calloc(1, sizeof *at->last)) == NULL) return LS_ENOMEM;
    }
    word = next_word(word, flags_of(registration) | kind_of(fd));
    atomic_store(&at->key, registration->key);
    atomic_store(&at->word, word); /* before the kernel is called: an event finds the word complete */
    int err = update_kernel(port, fd, word, ctl);
    if (err < 0) watcher_drop(at);
    return err;
}

static int change(ls_port *port, watcher *at, ls_fd fd, uint64_t flags)
{
    const uint64_t word = next_word(atomic_load(&at->word), flags);
    atomic_store(&at->word, word);
    int err = update_kernel(port, fd, word, EPOLL_CTL_MOD);
    if (err == LS_EINVAL) err = LS_ENOENT; /* the descriptor was closed */
    if (err == LS_ENOENT) watcher_drop(at);
    return err;
}

static int remove_now(ls_port *port, watcher *at, ls_fd fd)
{
    struct stat st;
    if (epoll_ctl(port->epoll, EPOLL_CTL_DEL, fd, NULL) < 0 || fstat(fd, &st) < 0) {
        watcher_drop(at);
        return LS_ENOENT;
    }
    ls_key_node *node = at->last;
    uint64_t word = next_word(atomic_load(&at->word), 0);
    atomic_store(&at->word, word);
    at->last = NULL;
    at->removed = origin_of(word, fd);
    at->removed_ino = st.st_ino;
    node->op.kind = KIND_KEY;
    node->key = atomic_load(&at->key);
    node->origin = at->removed;
    node->events = LS_EVENT_REMOVE;
    ls_port_enqueue(port, &node->op);
    return LS_OK;
}

static int register_one(ls_port *port, const ls_registration *registration)
{
    const ls_fd fd = registration->fd;
    const bool is_register = registration->operation == LS_NOTIFY_REGISTER;
    watcher *at = watcher_at(port->watchers, fd);
    if (is_register) {
        int err = watcher_get(port->watchers, fd, &at);
        if (err < 0) return err;
    }
    if (at == NULL) return fd < 0 ? LS_EINVAL : LS_ENOENT;

    int err = LS_ENOENT;
    ls_mutex_lock(lock_of(port->watchers, fd));
    const uint64_t flags = WORD_FLAGS(atomic_load(&at->word)), kind = flags & (SOCKET | DATAGRAM);
    if (is_register)
        err = register_new(port, at, registration);
    else if (!(flags & LIVE))
        err = LS_ENOENT;
    else if (registration->operation == LS_NOTIFY_ENABLE)
        err = change(port, at, fd, flags_of(registration) | kind);
    else if (registration->operation == LS_NOTIFY_DISABLE)
        err = change(port, at, fd, LIVE | kind);
    else
        err = remove_now(port, at, fd);
    ls_mutex_unlock(lock_of(port->watchers, fd));
    return err;
}

void ls_port_register(ls_port *port, ls_registration *registrations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (registrations[i].result == LS_OK && registrations[i].operation != LS_NOTIFY_NONE)
            registrations[i].result = register_one(port, &registrations[i]);
}

/* Add an attached socket to the set. The set holds an open file once per descriptor, so on success a registration of
 * this descriptor is that of a closed socket: it is dropped, or its later changes would apply to the new socket. */
int ls_epoll_add(ls_port *port, ls_fd fd, struct epoll_event *event)
{
    watcher *at = watcher_at(port->watchers, fd);
    int err = LS_OK;
    if (at == NULL || !(atomic_load(&at->word) & LIVE))
        return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, event) < 0 ? ls_err_from_errno(errno) : LS_OK;
    ls_mutex_lock(lock_of(port->watchers, fd));
    if (epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, event) < 0)
        err = ls_err_from_errno(errno);
    else if (atomic_load(&at->word) & LIVE)
        watcher_drop(at);
    ls_mutex_unlock(lock_of(port->watchers, fd));
    return err;
}

void ls_port_unregister(ls_port *port, ls_fd fd)
{
    watcher *at = watcher_at(port->watchers, fd);
    if (at == NULL) return;
    ls_mutex_lock(lock_of(port->watchers, fd));
    if (atomic_load(&at->word) & LIVE) {
        (void)epoll_ctl(port->epoll, EPOLL_CTL_DEL, fd, NULL); /* fails when the socket was closed already */
        watcher_drop(at);
    }
    ls_mutex_unlock(lock_of(port->watchers, fd));
}

/* ---- taking ------------------------------------------------------------------------------------------------- */

/* The kernel's events as LS_EVENT_*. */
static uint32_t events_of(uint64_t word, uint32_t reported)
{
    const bool socket = word & SOCKET, datagram = word & DATAGRAM;
    const bool ended = reported & EPOLLRDHUP, hangup = reported & EPOLLHUP, error = reported & EPOLLERR;
    uint32_t events = error ? LS_EVENT_ERR : 0;
    if (socket && hangup && !ended && !error) return 0; /* a stream that was never connected */
    if (reported & EPOLLIN) events |= LS_EVENT_IN;
    if (reported & EPOLLOUT) events |= LS_EVENT_OUT;
    if ((ended || hangup) && !datagram) events |= LS_EVENT_HANGUP;
    return events & ((uint32_t)(word & EVENTS) | LS_EVENT_ERR);
}

/* Set or clear QUIET, unless the watcher was changed meanwhile. In both cases the kernel evaluates the file again. */
static void set_quiet(ls_port *port, watcher *at, uint64_t origin, bool quiet)
{
    const ls_fd fd = fd_of(origin);
    ls_mutex_lock(lock_of(port->watchers, fd));
    uint64_t old = atomic_load(&at->word);
    const uint64_t word = quiet ? old | QUIET : old & ~(uint64_t)QUIET;
    if (origin_of(old, fd) == origin && (old & ARMED) && word != old &&
        atomic_compare_exchange_strong(&at->word, &old, word))
        (void)update_kernel(port, fd, word, EPOLL_CTL_MOD); /* fails only for a closed descriptor */
    ls_mutex_unlock(lock_of(port->watchers, fd));
}

int ls_epoll_take_watcher(ls_port *port, uint64_t origin, uint32_t reported, ls_packet *out)
{
    watcher *at = watcher_at(port->watchers, fd_of(origin));
    uint64_t word = atomic_load(&at->word);
    for (;;) {
        if (origin_of(word, fd_of(origin)) != origin || !(word & ARMED)) return 0;
        const uint32_t events = events_of(word, reported);
        void *key = atomic_load(&at->key);
        if (events == 0) {
            /* EDGE PERSISTENT needs no change: the kernel does not repeat the event. */
            if ((word & (EDGE | ONESHOT | QUIET)) != EDGE) set_quiet(port, at, origin, true);
            return 0;
        }
        if (word & QUIET) {
            set_quiet(port, at, origin, false);
            return 0;
        }
        /* Also when the word stays the same: success proves that the key belongs to this word. */
        const uint64_t after = word & ONESHOT ? word & ~(uint64_t)ARMED : word;
        if (atomic_compare_exchange_strong(&at->word, &word, after)) {
            *out = (ls_packet){.key = key, .events = events, .origin = origin};
            return 1;
        }
    }
}

bool ls_packet_current(const ls_port *port, const ls_packet *packet)
{
    if (packet->events == 0 || (packet->events & LS_EVENT_REMOVE)) return true;
    const ls_fd fd = fd_of(packet->origin);
    return origin_of(atomic_load(&watcher_at(port->watchers, fd)->word), fd) == packet->origin;
}

bool ls_port_take_event(ls_port *port, const ls_key_node *node)
{
    const uint64_t origin = node->origin;
    if (!(node->events & LS_EVENT_REMOVE))
        return ls_packet_current(port, &(ls_packet){.events = node->events, .origin = origin});
    const ls_fd fd = fd_of(origin);
    watcher *at = watcher_at(port->watchers, fd);
    ls_mutex_lock(lock_of(port->watchers, fd));
    if (at->removed == origin) at->removed = 0;
    ls_mutex_unlock(lock_of(port->watchers, fd));
    return true;
}
