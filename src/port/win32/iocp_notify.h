/* iocp_notify.h - inside the notifications of a port on Windows. See notify.h for what they promise.
 *
 * Two ways to be told of a socket, one for the whole port:
 *     ProcessSocketNotifications   where ws2_32 exports it (Windows 11, Server 2022): iocp_process.c
 *     AFD polls                    elsewhere, or where the environment has LUASERVE_AFD=1: iocp_poll.c
 * and a third for what is no socket: a timer looks at it (readable.h). iocp_notify.c has what they share: the
 * table of watchers, the rules of notify.h, and the watch.
 *
 * A watcher is the registration of one handle. Notices lie in a table by handle and stay until the port is closed, and with
 * them the memory of a poll. Its generation changes with every REGISTER, ENABLE, DISABLE, REMOVE and drop: what was begun
 * under another is out of date.
 *
 * The watch. A closed socket takes its registration with it, and its number may be another's at once. So one poll that asks
 * for nothing but the local close (POLL_LOCAL_CLOSE) is under way for each socket from REGISTER until it is closed, or its
 * REMOVE was taken; it has memory of its own, so that a new one can begin before the packet of the old one was taken. To
 * know now whether the socket was closed the watch is cancelled, and says how it ended; a new one takes its place.
 *
 * Lock: the watcher's mutex; before watchers.mutex and the port's. */
#ifndef LS_PORT_WIN32_IOCP_NOTIFY_H
#define LS_PORT_WIN32_IOCP_NOTIFY_H

#include "port/notify.h"
#include "port/win32/iocp_internal.h"
#include "port/win32/iocp_process.h"

enum { HANDLE_STEP = 4 }; /* handles are multiples of 4 */
enum { WATCHERS_MAX = LS_NOTIFY_FD_MAX / HANDLE_STEP };
enum { WATCHERS_PER_CHUNK = 256, WATCHER_CHUNKS = WATCHERS_MAX / WATCHERS_PER_CHUNK };

enum { /* AFD_POLL_* of the device; they are in no header of the SDK */
       POLL_RECEIVE = 0x0001,
       POLL_SEND = 0x0004,
       POLL_DISCONNECT = 0x0008,
       POLL_ABORT = 0x0010,
       POLL_LOCAL_CLOSE = 0x0020,
       POLL_ACCEPT = 0x0080,
       POLL_CONNECT_FAIL = 0x0100,
};

typedef struct poll_info { /* AFD_POLL_INFO */
    LARGE_INTEGER timeout;
    ULONG count;
    ULONG exclusive;
    HANDLE handle;
    ULONG events;
    LONG status;
} poll_info;

typedef struct win_poll {
    win_request request; /* first; its OVERLAPPED is an IO_STATUS_BLOCK to the device */
    poll_info asked, answer;
} win_poll;

enum { /* of a watcher, above the filter in LS_EVENT_* */
       EVENTS = 0xff,
       LIVE = 1u << 8, /* registered */
       ARMED = 1u << 9,
       ONESHOT = 1u << 10,
       EDGE = 1u << 11,
       DATAGRAM = 1u << 12,
       KIND_SHIFT = 13, /* two bits: an ls_readable, when it is no socket */
       KINDS = DATAGRAM | 3u << KIND_SHIFT,
};

typedef struct watcher watcher;

typedef struct win_close_poll {
    win_poll poll; /* first */
    watcher *at;   /* NULL: nobody's any more; freed when its packet is taken */
} win_close_poll;

struct watcher {
    win_poll poll; /* first */
    uint32_t poll_generation;
    bool fresh;   /* AFD, EDGE PERSISTENT: what is there now has not been told yet */
    bool resting; /* AFD, LEVEL: it was told, and is asked for again by the next wait */
    ls_mutex mutex;
    _Atomic uint64_t word; /* generation << 32 | flags; written under the mutex */
    void *key;
    ls_fd fd;
    HANDLE base;           /* the socket below all layered providers */
    win_close_poll *watch; /* NULL: none */
    bool closed;           /* a watch said so, and what was registered is not forgotten yet */
    ls_op *last;           /* the node of the REMOVE packet; not NULL while live */
    uint64_t removed;      /* the origin of a REMOVE that is in the queue, or 0 */
    bool on_again;         /* under watchers.mutex */
    watcher *again_next;   /* the same */
    WSAEVENT event;        /* AFD, EDGE PERSISTENT: set when Winsock has made a record */
    PTP_WAIT wait;         /* for that */
    ls_op edge_op;         /* the packet of that */
    _Atomic bool edge_set; /* it is under way */
    ls_port *port;
    ls_timer look;         /* no socket: when to look */
    bool looking;          /* it is armed, or its packet is under way */
    uint32_t amount, seen; /* of the last look: how much, and LS_EVENT_* */
    /* ProcessSocketNotifications: the key that the system knows is that of REGISTER. */
    uint32_t life, removed_life; /* generation at REGISTER; that of the removed one */
    void *removed_key;
};

struct ls_watchers {
    HANDLE afd;
    const ls_process_calls *process; /* NULL: AFD polls */
    ls_mutex process_mutex;          /* one call that changes registrations at a time */
    _Atomic uint32_t watches;        /* whose packets were not taken yet */
    ls_mutex mutex;
    watcher *again;
    _Atomic uint32_t again_count;
    _Atomic uint32_t attached[WATCHERS_MAX / 32]; /* a bit for each handle: it is attached for operations */
    _Atomic(watcher *) chunks[WATCHER_CHUNKS];
};

static inline uint32_t ls_watcher_generation(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint64_t ls_watcher_next(uint64_t word, uint64_t flags)
{
    return (uint64_t)(ls_watcher_generation(word) + 1) << 32 | flags;
}

static inline uint64_t ls_watcher_origin(uint64_t word, ls_fd fd)
{
    return (uint64_t)ls_watcher_generation(word) << 32 | (uint32_t)(fd / HANDLE_STEP);
}

/* iocp_notify.c; of all that take a watcher: its mutex is held */
watcher *ls_watcher_at(const ls_watchers *watchers, ls_fd fd);
/* One valid registration, as far as it is ours. LS_OK or an error: that is its result. LS_PENDING: the system's
 * ProcessSocketNotifications has to be told of *out, whose mutex is not held. */
int ls_watcher_carry_out(ls_port *port, const ls_registration *registration, watcher **out);
void ls_watcher_drop(watcher *at);                                                   /* the registration is no more */
void ls_watcher_removed(watcher *at);                                                /* its REMOVE was taken */
void ls_watcher_report(watcher *at, uint64_t word, uint32_t events, ls_packet *out); /* `events` are to be told */

/* iocp_poll.c. LS_OK; LS_ENOENT: the socket is gone; or another error. */
int ls_poll_open(ls_port *port, HANDLE *out);
int ls_poll_post(ls_watchers *watchers, win_poll *poll, HANDLE base, ULONG events,
                 bool waits); /* and the local close */
bool ls_poll_ended(const win_poll *poll);
bool ls_poll_reported_close(const win_poll *poll);
int ls_poll_change(watcher *at); /* its word has changed */
void ls_poll_end(watcher *at);   /* the port is closed */

/* As far as can be seen at once. */
static inline bool ls_watcher_is_closed(const watcher *at)
{
    return at->watch != NULL && ls_poll_reported_close(&at->watch->poll);
}

/* iocp_process.c */
void ls_process_register(ls_port *port, ls_registration *registrations, size_t count);
void ls_process_forget(ls_port *port, watcher *at);

#endif
