/* iocp_notify.h - inside the notifications of a port on Windows. notify.h is their contract.
 *
 * A port uses one of two sources for events of sockets:
 *     ProcessSocketNotifications   if ws2_32 exports it (Windows 11, Server 2022): iocp_process.c
 *     AFD polls                    otherwise, or if the environment has LUASERVE_AFD=1: iocp_poll.c
 * Other handles (pipes, the console) are checked by a timer (readable.h). iocp_notify.c holds what these share: the
 * table of watchers, the rules of notify.h, and the close poll.
 *
 * A watcher is the registration of one handle. Watchers lie in a table by handle and stay, with the memory of their
 * poll, until the port is closed. The generation of a watcher changes with every REGISTER, ENABLE, DISABLE, REMOVE and
 * drop: a poll or packet of an earlier generation is out of date. Its life is the generation of its REGISTER.
 *
 * One poll per socket. The system loses events when two polls of one socket are pending: the first completes with the
 * events of the second, which never completes. So a watcher has one poll, and the next is posted only when the packet
 * of the last was taken. A poll that waits asks for the local close (POLL_LOCAL_CLOSE) and for what is armed. A change
 * for which the pending poll asks too little cancels it; one for which it asks too much leaves it. Either way its
 * packet posts the next poll.
 *
 * The end of a poll is known by its packet alone. The system writes the IO_STATUS_BLOCK and the output of a poll that
 * was pending when a thread takes its packet, not when the poll ends. watchers.polls counts the packets to come: the
 * port is closed when it is 0.
 *
 * Closed sockets. A closed socket takes its registration with it, and its number may be reused at once, before the
 * packet of its poll was taken. So each use of a watcher compares the socket with the one that was registered: type,
 * local address, and the peer of a stream (win_identity). Only sockets without an address are mistaken for each other,
 * until the packet with POLL_LOCAL_CLOSE is taken. With ProcessSocketNotifications the system drops a closed socket
 * by itself, and only those without an address are polled, for their close.
 *
 * Devices. The cost of a cancellation grows with the requests pending at the same handle of the AFD device. So
 * WATCHERS_PER_DEVICE watchers share one.
 *
 * Locks: the mutex of a watcher before watchers.mutex and those of the port. */
#ifndef LS_PORT_WIN32_IOCP_NOTIFY_H
#define LS_PORT_WIN32_IOCP_NOTIFY_H

#include "port/notify.h"
#include "port/win32/iocp_internal.h"
#include "port/win32/iocp_process.h"

enum { HANDLE_STEP = 4 }; /* handles are multiples of 4 */
enum { WATCHERS_MAX = LS_NOTIFY_FD_MAX / HANDLE_STEP };
enum { WATCHERS_PER_CHUNK = 256, WATCHER_CHUNKS = WATCHERS_MAX / WATCHERS_PER_CHUNK };
enum { WATCHERS_PER_DEVICE = 32, DEVICES_PER_CHUNK = WATCHERS_PER_CHUNK / WATCHERS_PER_DEVICE };

enum { /* AFD_POLL_* of the device; no header of the SDK declares them */
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
    poll_info input, output;
    uint32_t generation, life; /* of the watcher when the poll was posted */
    bool cancelled;
} win_poll;

/* What distinguishes a socket from the next one with its number; 0: not known. */
typedef struct win_identity {
    uint64_t local_ip, peer;
    uint16_t local_port;
} win_identity;

enum { /* the lower half of a watcher's word: the filter in LS_EVENT_*, and flags */
       EVENTS = 0xff,
       LIVE = 1u << 8, /* registered */
       ARMED = 1u << 9,
       ONESHOT = 1u << 10,
       EDGE = 1u << 11,
       DATAGRAM = 1u << 12,
       KIND_SHIFT = 13, /* two bits: the ls_readable of a handle that is not a socket */
       KINDS = DATAGRAM | 3u << KIND_SHIFT,
};

typedef struct watcher {
    win_poll poll;     /* first */
    bool polled;       /* a poll of this registration was posted */
    bool poll_current; /* EDGE: the current events must still be polled for once */
    uint32_t recorded; /* EDGE by records: the events reported since the poll for the current events was asked for */
    bool poll_at_wait; /* LEVEL PERSISTENT: reported; the next wait polls again */
    ls_mutex mutex;
    _Atomic uint64_t word; /* generation << 32 | flags; written under the mutex */
    void *key;
    ls_fd fd;
    HANDLE base;                /* the socket below all layered providers */
    win_identity identity;      /* of the registered socket, as far as it was known at the last use */
    bool closed;                /* a poll has reported the close of the registered socket */
    ls_key_node *last;          /* the node of the REMOVE packet; not NULL while LIVE */
    uint64_t removed;           /* the origin of a queued REMOVE packet, or 0 */
    bool on_again;              /* under watchers.mutex: on the list watchers.again */
    struct watcher *again_next; /* under watchers.mutex */
    WSAEVENT event;             /* AFD, EDGE PERSISTENT: set when Winsock has recorded an event */
    PTP_WAIT wait;              /* waits for `event` */
    ls_op edge_op;              /* posted when `event` was set */
    _Atomic bool edge_set;      /* edge_op is queued */
    ls_port *port;
    ls_timer check;        /* not a socket: the next check */
    bool checking;         /* that timer is armed, or its packet is queued */
    uint32_t amount, seen; /* results of the last check: data available, LS_EVENT_* */
    /* ProcessSocketNotifications: the system's key holds the generation of REGISTER. */
    uint32_t life;   /* generation at REGISTER */
    bool in_system;  /* registered there, unless the socket was closed since */
    ls_op *removals; /* nodes of removed registrations whose packets the system posts; the result is the life */
} watcher;

typedef struct watcher_chunk {
    _Atomic(HANDLE) devices[DEVICES_PER_CHUNK]; /* NULL: not opened yet */
    watcher at[WATCHERS_PER_CHUNK];
} watcher_chunk;

struct ls_watchers {
    const ls_process_calls *process; /* NULL: AFD polls */
    ls_mutex process_mutex;          /* serialises the calls that change registrations */
    _Atomic uint32_t polls;          /* polls whose packets were not taken yet */
    ls_mutex mutex;
    watcher *again;
    _Atomic uint32_t again_count;
    _Atomic uint32_t attached[WATCHERS_MAX / 32]; /* a bit per handle: attached for operations */
    _Atomic(watcher_chunk *) chunks[WATCHER_CHUNKS];
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

/* iocp_notify.c. The mutex of a watcher passed as an argument is held. */
watcher *ls_watcher_at(const ls_watchers *watchers, ls_fd fd);
/* Carry out one valid registration. LS_OK or an error: its result. LS_PENDING: the caller passes the registration of
 * *out, whose mutex is not held, to ProcessSocketNotifications. */
int ls_watcher_carry_out(ls_port *port, const ls_registration *registration, watcher **out);
void ls_watcher_drop(watcher *at);    /* ends it without a packet */
void ls_watcher_removed(watcher *at); /* its REMOVE packet was taken */
/* Take the node of the removed registration of this life from the list `removals`; NULL: no such node. */
ls_key_node *ls_watcher_take_removal(watcher *at, uint32_t life);
/* Make the packet of `events`. false: none, the socket was closed meanwhile. */
bool ls_watcher_report(watcher *at, uint64_t word, uint32_t events, ls_packet *out);
/* true: the handle is no longer the registered socket. false: it is, and its identity is stored. */
bool ls_watcher_is_replaced(watcher *at);

/* iocp_poll.c */
/* After a change of its word. LS_OK; LS_ENOENT: the socket was closed; or another error. */
int ls_poll_change(watcher *at);
void ls_poll_cancel(watcher *at); /* no poll is needed any more */
void ls_poll_end(watcher *at);    /* when the port is closed */

/* iocp_process.c */
void ls_process_register(ls_port *port, ls_registration *registrations, size_t count);
void ls_process_unregister(ls_port *port, watcher *at);

#endif
