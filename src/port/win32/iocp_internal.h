/* iocp_internal.h - inside the completion port on Windows, which is that of the system (CreateIoCompletionPort).
 *
 * The kernel holds requests: an OVERLAPPED and the socket that it belongs to. Each socket has two, for its receive and
 * its send, and a listener one for each posted accept. They lie in the slot of the socket (an accept's in memory of
 * its own). The slot is returned when the socket is closed and the packet of its last request was taken. So the memory
 * of a pending operation stays valid until its packet, and no packet reaches the next use of a slot.
 *
 * The end of a request is known by its packet alone: the system writes the OVERLAPPED of a request that was pending
 * when a thread takes its packet.
 *
 *     held = requests of the socket that the kernel holds, or whose packets were not taken yet
 *     the slot is returned  <=>  !open and held == 0
 *
 * A receive into the caller's memory is a WSARecv. A receive into pool memory, and one of datagrams, begins with a
 * receive of 0 bytes, which completes when data have arrived; then the block is taken and filled by a non-blocking
 * call. So an idle connection holds no buffer, and the kernel locks no page for it.
 *
 * A send is made in calls of at most SEND_BYTES_MAX, one at a time, so that the result of a pending send is
 * its progress. When a file range follows the slices, the last slice is sent with the file by one TransmitFile, or the
 * file is read into blocks (iocp_send.c).
 *
 * A call that succeeds at once causes no packet (FILE_SKIP_COMPLETION_PORT_ON_SUCCESS) when all providers in the chain
 * return real handles (XP1_IFS_HANDLES); otherwise its packet follows.
 *
 * All work on one socket is done under its mutex, system calls included: they do not block, except the read of a file.
 *
 * The files: iocp.c (open, queue, wait), iocp_sock.c (attach, close, receive, connect), iocp_send.c,
 * iocp_accept.c, iocp_datagram.c, iocp_timer.c, iocp_handle.c (other handles); notifications: iocp_notify.h.
 *
 * Locks: the mutex of a socket before that of the port; heap_mutex before that of the port. */
#ifndef LS_PORT_WIN32_IOCP_INTERNAL_H
#define LS_PORT_WIN32_IOCP_INTERNAL_H

#include "port/common_internal.h"
#include "port/slots.h"
#include "port/winsock_win32.h"

enum { KIND_TIMER = KIND_BACKEND, KIND_EDGE, KIND_CHECK }; /* ls_op.kind */
enum { SEND_BYTES_MAX = 1 << 16 };                         /* of one WSASend */

enum { /* completion keys: the type of lpOverlapped */
       KEY_REQUEST,
       KEY_OP,
       KEY_HANDLE,
       KEY_SOCKET, /* in the lowest two bits: no OVERLAPPED; an event of ProcessSocketNotifications */
       KEY_KINDS = 3,
};

typedef enum win_type { WIN_RECEIVE, WIN_SEND, WIN_ACCEPT, WIN_POLL } win_type;

typedef struct win_request {
    OVERLAPPED overlapped; /* first */
    win_type type;
    bool pending; /* the kernel holds it, or its packet was not taken */
    bool stop;    /* a cancellation was requested since it was posted */
    ls_op *op;
    ls_sock *sock;
} win_request;

typedef struct win_accept {
    win_request request; /* first; not pending: the accept waits for a descriptor */
    struct win_accept *next;
    SOCKET fd;
    unsigned char addresses[2 * (sizeof(SOCKADDR_STORAGE) + 16)]; /* local and remote, each with 16 more (AcceptEx) */
} win_accept;

/* The functions of one chain of Winsock providers. */
typedef struct win_provider {
    DWORD catalog; /* dwCatalogEntryId; 0: the entry is free */
    bool skips;    /* a call that succeeds at once causes no packet */
    LPFN_ACCEPTEX accept;
    LPFN_GETACCEPTEXSOCKADDRS accept_addresses;
    LPFN_CONNECTEX connect;
    LPFN_TRANSMITFILE transmit; /* NULL: files are read (iocp_send.c) */
} win_provider;

enum { WIN_PROVIDERS_MAX = 32 }; /* a system has one for each of IPv4, IPv6, Unix with each of stream, datagram */

struct ls_sock {
    ls_sock_base base;
    ls_mutex mutex; /* guards all members except the atomics and those that are constant while it is open */
    ls_port *port;
    uint32_t number;
    _Atomic uint32_t generation;
    const win_provider *provider;
    WSAPROTOCOL_INFOW *protocol; /* listeners: the protocol of the sockets to accept into */
    bool open, skips;
    bool closes_late;    /* closed, but the descriptor is open until its last accept has completed */
    bool ready;          /* data may be available: try before waiting */
    bool connected;      /* a datagram socket with a connected peer */
    bool waited;         /* a receive had to wait before: known not to be registered for notifications */
    bool emfile_waiting; /* under port->base.mutex: on port->emfile_waiting */
    ls_sock *list_next;  /* under port->base.mutex */
    uint32_t held;
    win_request rx, tx;
    ls_block *file_block; /* the part of a file that tx sends; NULL: none */
    win_accept *accepts;  /* posted or waiting for a descriptor, oldest first */
};

typedef struct ls_watchers ls_watchers; /* the registrations of a port */

struct ls_port {
    ls_port_base base; /* its queue holds posts for which the system had no memory */
    bool transmits;    /* a server edition of Windows: files are sent with TransmitFile (iocp_send.c) */
    HANDLE iocp;
    ls_slots *socks;
    ls_watchers *watchers;
    win_provider providers[WIN_PROVIDERS_MAX];
    ls_sock *emfile_waiting; /* listeners to try again when `retry` expires */
    ls_timer retry;          /* for emfile_waiting; causes no packet */
    PTP_TIMER system_timer;
    ls_op timer_op;           /* the packet of system_timer */
    _Atomic bool timer_fired; /* that packet is queued */
};

/* iocp_sock.c. Handle the packet of a request; true: *out is a packet for the caller. */
bool ls_win32_received(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out);
bool ls_win32_transmitted(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out);
void ls_win32_discard(win_request *request); /* of a socket that was closed: its packet is dropped */
void ls_win32_prepare(win_request *request, ls_op *op);
/* A call with this request returned `error` (0: it succeeded at once). LS_DONE: complete, no packet;
 * LS_PENDING; LS_E*. */
int ls_win32_posted(ls_sock *sock, win_request *request, int error);
void ls_win32_leave(
    ls_sock *sock); /* unlock after `held` or `open` may have changed; returns the slot after the last request */
int ls_win32_status(const win_request *request); /* the status in its packet: LS_OK or LS_E* */

/* iocp_send.c; the socket's mutex is held. Continue a send: the sum of the bytes when all are sent; LS_EAGAIN: the
 * request is pending, and op->result is the number of bytes sent so far; LS_E*: a call failed. */
int64_t ls_win32_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
void ls_win32_drop_file_block(ls_sock *sock);

/* iocp_datagram.c; the socket's mutex is held */
int64_t ls_win32_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* datagrams, LS_EAGAIN or LS_E* */
int64_t ls_win32_send_to(ls_sock *sock, ls_op *op);       /* the same; LS_EAGAIN: the request is pending */
void ls_win32_sent_to(ls_sock *sock, ls_op *op, int err); /* the pending datagram completed */
bool ls_win32_is_report(int error);                       /* the ICMP report for an earlier datagram */

/* iocp_accept.c */
bool ls_win32_accepted(ls_thread_ctx *ctx, win_request *request, ls_packet *out);
void ls_win32_close_accepts(ls_sock *sock); /* the mutex is held, the pending accepts are cancelled */
bool ls_win32_cancel_accept(ls_sock *sock,
                            ls_op *op); /* the mutex is held; true: the caller completes it with LS_ECANCELED */
void ls_win32_emfile_retry(ls_port *port);

/* iocp_notify.c */
void ls_win32_mark_attached(ls_port *port, ls_fd fd, bool attached); /* attached sockets cannot be registered */
bool ls_win32_is_registered(ls_port *port, ls_fd fd);
int ls_watchers_open(ls_port *port, ls_watchers **out);
void ls_watchers_stop(ls_watchers *watchers);               /* no new events; cancels all polls */
_Atomic uint32_t *ls_watchers_polls(ls_watchers *watchers); /* the number of polls whose packets were not taken yet */
void ls_watchers_close(ls_watchers *watchers);              /* when that number is 0 */
bool ls_win32_take_check(ls_op *op, ls_packet *out);

/* iocp_poll.c */
bool ls_win32_polled(win_request *request, ls_packet *out);
bool ls_win32_take_edge(ls_op *op, ls_packet *out);
void ls_win32_poll_again(ls_port *port); /* called before a wait */

/* iocp_process.c */
bool ls_win32_processed(ls_port *port, ULONG_PTR key, uint32_t events, ls_packet *out);

/* iocp_handle.c: the packet of an operation on a bound handle */
void ls_win32_handled(const OVERLAPPED_ENTRY *entry, ls_packet *out);

/* iocp_timer.c */
int ls_win32_timers_open(ls_port *port);
void ls_win32_timers_close(ls_port *port);
void ls_win32_timer_expire(ls_port *port);

#endif
