/* iocp_internal.h - inside the completion port on Windows: the system's own, CreateIoCompletionPort.
 *
 * What the kernel holds is a request: an OVERLAPPED, and whose it is. Each socket has two, for its receive and its send,
 * and a listener one for each accept that is posted. They lie in the socket's slot (an accept's in memory of its own), and
 * the slot is given back when the socket is closed and the last packet of a request was taken: so the memory of a pending
 * operation survives until its packet, whatever happens to the socket, and no packet can reach a slot's next life.
 *
 *     held = requests of the socket that the kernel has, or whose packets were not taken yet
 *     the slot is given back  <=>  !open and held == 0
 *
 * A receive into the caller's memory is a WSARecv of it. One into pool memory, and one of datagrams, is first a receive of
 * no bytes, which ends when something is there; the block is taken then, and filled by a plain non-blocking call. So an
 * idle connection holds no buffer, and the kernel locks no page for it.
 *
 * A send goes in calls of SEND_BYTES_MAX at most, one at a time, so that a pending one tells how far it has come. After
 * slices the last of them goes with the file in one TransmitFile.
 *
 * A call that succeeds at once brings no packet (FILE_SKIP_COMPLETION_PORT_ON_SUCCESS), where every provider in the chain
 * gives real handles (XP1_IFS_HANDLES); elsewhere its packet is awaited.
 *
 * Everything that happens to one socket happens under its mutex, system calls included: they do not block.
 *
 * The files: iocp.c (open, queue, wait), iocp_sock.c (attach, close, receive, send, connect),
 * iocp_accept.c, iocp_datagram.c, iocp_timer.c, iocp_handle.c (handles of others); notifications:
 * iocp_notify.h.
 *
 * Locks: a socket's mutex before the port's mutex; heap_mutex before the port's mutex. */
#ifndef LS_PORT_WIN32_IOCP_INTERNAL_H
#define LS_PORT_WIN32_IOCP_INTERNAL_H

#include "port/common_internal.h"
#include "port/slots.h"
#include "port/winsock_win32.h"

enum { KIND_TIMER = KIND_BACKEND, KIND_EDGE, KIND_LOOK }; /* ls_op.kind */
enum { SEND_BYTES_MAX = 1 << 16 };                        /* of one WSASend */

enum { /* completion keys: what lpOverlapped is */
       KEY_REQUEST,
       KEY_OP,
       KEY_HANDLE,
       KEY_SOCKET, /* the lowest two bits: no OVERLAPPED, ProcessSocketNotifications tells of a socket */
       KEY_KINDS = 3,
};

typedef enum win_what { WIN_RECEIVE, WIN_SEND, WIN_ACCEPT, WIN_POLL, WIN_CLOSE_POLL } win_what;

typedef struct win_request {
    OVERLAPPED overlapped; /* first */
    win_what what;
    bool pending; /* the kernel has it, or its packet was not taken */
    bool stop;    /* a cancellation was asked for since it was posted */
    ls_op *op;
    ls_sock *sock;
} win_request;

typedef struct win_accept {
    win_request request; /* first; not pending: it waits for a descriptor */
    struct win_accept *next;
    SOCKET fd;
    bool updated;                                                 /* has the listener's properties */
    unsigned char addresses[2 * (sizeof(SOCKADDR_STORAGE) + 16)]; /* local and remote, each with 16 more (AcceptEx) */
} win_accept;

/* What one chain of Winsock providers can do. */
typedef struct win_provider {
    DWORD catalog; /* dwCatalogEntryId; 0: the place is free */
    bool skips;    /* success at once brings no packet */
    LPFN_ACCEPTEX accept;
    LPFN_GETACCEPTEXSOCKADDRS accept_addresses;
    LPFN_CONNECTEX connect;
    LPFN_TRANSMITFILE transmit;
} win_provider;

enum {
    WIN_PROVIDERS_MAX = 32
}; /* a system has a few: one for each of IPv4, IPv6, Unix with each of stream, datagram */

struct ls_sock {
    ls_sock_base base;
    ls_mutex mutex; /* guards all but the atomics and what does not change while it is open */
    ls_port *port;
    uint32_t number;
    _Atomic uint32_t generation;
    const win_provider *provider;
    WSAPROTOCOL_INFOW *protocol; /* listeners: of the sockets to accept into */
    bool open, skips;
    bool ready;          /* something may be there: try before waiting */
    bool connected;      /* datagrams: to one peer */
    bool waited;         /* a receive had to wait before: it is not registered for notifications */
    bool emfile_waiting; /* under port->base.mutex: on port->emfile_waiting */
    ls_sock *list_next;  /* under port->base.mutex */
    uint32_t held;
    win_request rx, tx;
    win_accept *accepts; /* posted or waiting for a descriptor, oldest first */
};

typedef struct ls_watchers ls_watchers; /* the registrations of a port */

struct ls_port {
    ls_port_base base; /* its queue: posts that the system had no memory for */
    HANDLE iocp;
    ls_slots *socks;
    ls_watchers *watchers;
    win_provider providers[WIN_PROVIDERS_MAX];
    ls_sock *emfile_waiting; /* listeners to try again when the timer rings */
    ls_timer retry;          /* of emfile_waiting; never a packet */
    PTP_TIMER system_timer;
    ls_op timer_op;           /* its packet */
    _Atomic bool timer_fired; /* that packet is under way */
};

/* iocp_sock.c. Of one packet of a request: true when it is a packet for the caller. */
bool ls_win32_received(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out);
bool ls_win32_transmitted(ls_thread_ctx *ctx, win_request *request, uint32_t bytes, ls_packet *out);
void ls_win32_prepare(win_request *request, ls_op *op);
/* A call with this request returned `error` (0: success at once). LS_DONE: complete, no packet; LS_PENDING; or LS_E*. */
int ls_win32_posted(ls_sock *sock, win_request *request, int error);
void ls_win32_leave(
    ls_sock *sock); /* unlock, after `held` or `open` may have changed: gives the slot back in the end */
int ls_win32_status(const win_request *request); /* what its packet says: LS_OK or LS_E* */

/* iocp_datagram.c; the socket's mutex is held */
int64_t ls_win32_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* datagrams, LS_EAGAIN or LS_E* */
int64_t ls_win32_send_to(ls_sock *sock, ls_op *op);       /* the same; LS_EAGAIN: the request is pending */
void ls_win32_sent_to(ls_sock *sock, ls_op *op, int err); /* the pending one ended */
bool ls_win32_is_report(int error); /* a refusal that some earlier datagram met with on its way */

/* iocp_accept.c */
bool ls_win32_accepted(ls_thread_ctx *ctx, win_request *request, ls_packet *out);
void ls_win32_close_accepts(ls_sock *sock); /* the mutex is held, the descriptor still open */
bool ls_win32_cancel_accept(ls_sock *sock,
                            ls_op *op); /* the mutex is held; true: it is to complete with LS_ECANCELED now */
void ls_win32_emfile_retry(ls_port *port);

/* iocp_notify.c */
void ls_win32_mark_attached(ls_port *port, ls_fd fd, bool attached); /* for operations: it is not registered */
bool ls_win32_is_registered(ls_port *port, ls_fd fd);
int ls_watchers_open(ls_port *port, ls_watchers **out);
void ls_watchers_stop(ls_watchers *watchers);          /* nothing new comes of them */
bool ls_watchers_closing(const ls_watchers *watchers); /* packets of watches were not taken yet */
void ls_watchers_close(ls_watchers *watchers);
bool ls_win32_take_look(ls_op *op, ls_packet *out);
void ls_win32_close_polled(win_request *request);
void ls_win32_free_close_poll(ls_port *port, win_request *request);

/* iocp_poll.c */
bool ls_win32_polled(win_request *request, ls_packet *out);
bool ls_win32_take_edge(ls_op *op, ls_packet *out);
void ls_win32_look_again(ls_port *port); /* before a wait */

/* iocp_process.c */
bool ls_win32_processed(ls_port *port, ULONG_PTR key, uint32_t events, ls_packet *out);

/* iocp_handle.c: the packet of an operation on a bound handle */
void ls_win32_handled(const OVERLAPPED_ENTRY *entry, ls_packet *out);

/* iocp_timer.c */
int ls_win32_timers_open(ls_port *port);
void ls_win32_timers_close(ls_port *port);
void ls_win32_timer_expire(ls_port *port);

#endif
