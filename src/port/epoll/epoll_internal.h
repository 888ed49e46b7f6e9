/* epoll_internal.h - inside the completion port on Linux: one epoll set shared by all threads, edge-triggered.
 *
 * Two back ends are built from it: "epoll" does everything at the set itself; "uring" (uring_internal.h) leaves the
 * receives and sends of streams to io_uring rings that poll the set. They differ in how a thread waits and is woken,
 * and in a few hooks around system calls, which are the functions of ls_backend.
 *
 * epoll reports readiness; the port promises completions. A readiness event is turned into the completion of the
 * pending operation: the thread that took the event makes the system call before it returns the packet.
 *
 * One 64-bit word per socket decides which thread may do what. Its upper half is the generation of the slot: a late
 * event for a socket that was closed meanwhile fails the comparison and is dropped. Its lower half holds, for each
 * direction (rx: receive or accept; tx: send or connect)
 *
 *     WAIT    an operation is pending and no thread works on it   (sock->rx, sock->tx point to it)
 *     BUSY    a thread works on it: it replaced WAIT with BUSY by a compare-and-swap, so there is only one
 *     READY   an event was not used yet: the next operation is tried before it waits
 *     STOP    the operation was cancelled while BUSY: it must not wait again
 *
 *                 post                event, claim
 *      (nothing) -----> WAIT ---------------------------> BUSY --> packet
 *                         ^                                |
 *                         +---- would block, no READY -----+
 *
 * A watch (ls_op_watch) needs no call when its event arrives, so one bit is enough: who clears WATCH completes it.
 *
 * WAIT and BUSY exclude each other per direction. The descriptor is closed when CLOSING is set and no direction is
 * BUSY: by ls_sock_close or by the last thread that was BUSY. So no system call runs on a descriptor number that was
 * closed and possibly reused.
 *
 * Listeners differ: several accepts may be pending, in a list under accept_mutex, and WAIT and BUSY are not used. A
 * listener that may have more connections than it had accepts, or room for packets, is put on the list `rescan`: the
 * next wait of any thread accepts from it again. A listener that ran out of descriptors (EMFILE) is put on the list
 * `emfile_waiting` until a descriptor is closed or the retry timer expires.
 *
 * Registrations for notifications are in the same set; their events are marked with WATCHER_BIT, see epoll_notify.c.
 *
 * The files: epoll.c (open, queue, wait), epoll_sock.c (the word; receive, send, connect), epoll_accept.c (listeners),
 * epoll_datagram.c, epoll_gather.c, epoll_notify.c, epoll_timer.c.
 *
 * Locks: accept_mutex before mutex; heap_mutex before mutex. */
#ifndef LS_PORT_EPOLL_EPOLL_INTERNAL_H
#define LS_PORT_EPOLL_EPOLL_INTERNAL_H

#include "port/common_internal.h"
#include "port/epoll/epoll_gather.h"
#include "port/slots.h"

enum { /* the lower half of ls_sock.word */
       OPEN = 1u << 0,
       CLOSING = 1u << 1,
       ENDED = 1u << 2, /* a hang-up or an error was reported: a short receive does not mean that no data are left */
       LISTENS = 1u << 3,
       RX_WAIT = 1u << 4,
       RX_BUSY = 1u << 5,
       RX_READY = 1u << 6,
       RX_STOP = 1u << 7,
       TX_SHIFT = 4, /* the same four for tx */
       TX_WAIT = RX_WAIT << TX_SHIFT,
       TX_BUSY = RX_BUSY << TX_SHIFT,
       TX_READY = RX_READY << TX_SHIFT,
       TX_STOP = RX_STOP << TX_SHIFT,
       RX_RING =
           1u << 12, /* a ring receives for this socket (uring_internal.h): IN events of the epoll set are ignored */
       WATCH = 1u << 13, /* a watch is pending: sock->watch */
       LOST = 1u << 14,  /* the loss of the connection was reported */
};

enum { STREAM_UNKNOWN, STREAM, STREAM_NOT }; /* ls_sock.stream */
enum { BACKLOG_NONE = 0xffff };

#define EVENT_WAKE    UINT64_MAX          /* epoll_event.data.u64: the eventfd */
#define EVENT_TIMERFD (UINT64_MAX - 1)    /* the timerfd */
#define EVENT_RING    (UINT64_MAX - 2)    /* a ring without an owner */
#define WATCHER_BIT   (UINT64_C(1) << 31) /* a registration for notifications, not a socket */

#define WORD_FLAGS(word)      ((uint32_t)(word))
#define WORD_GENERATION(word) ((uint32_t)((word) >> 32))

struct ls_sock {
    ls_sock_base base;
    _Atomic uint64_t word;
    ls_port *port;
    uint32_t number;
    bool corked;         /* ls_sock_cork_fin was called, and ls_sock_shutdown not since then */
    _Atomic(ls_op *) rx; /* listeners: the first pending accept, linked to the others by ->next */
    _Atomic(ls_op *) tx;
    _Atomic(ls_op *) watch;
    ls_sock *list_next; /* under port->base.mutex: link of port->rescan or port->emfile_waiting */
    bool listed;        /* under port->base.mutex: on one of these lists */
    /* In the epoll set, in it with EPOLLOUT. Written by the thread that posts first, then by the one
     * that posts sends. */
    _Atomic bool registered, registered_out;
    uint8_t gso;                    /* written by the sender: GSO_*, whether UDP_SEGMENT works on this socket */
    uint8_t batch_last;             /* written by the receiver: datagrams of the last batch, */
    const ls_thread_ctx *batch_ctx; /* and the context that received it */
    _Atomic bool watched;           /* in the epoll set for EPOLLRDHUP, and the events that are always reported */
    /* Used by the back end "uring" only, see uring_sock.c. */
    uint8_t stream, waits; /* STREAM_*; receives that had to wait, counted up to a limit. Written by the receiver */
    _Atomic uint16_t ring; /* 1 + index of the ring on which a receive was last armed; 0: none so far */
    /* The backlog below is not empty, or ring_error is set. Written, as the rest, under the lock of that ring. */
    _Atomic bool has_backlog;
    uint8_t armed_tag;                                   /* TAG_* of the armed receive, */
    bool recv_cancelled;                                 /* which was cancelled */
    bool ring_ended;                                     /* the ring reported the end of the stream */
    int ring_error;                                      /* result of the receive after the backlog */
    uint16_t backlog_first, backlog_last, backlog_count; /* received buffers of the ring, oldest first; BACKLOG_NONE */
    uint32_t armed_epoch;                                /* epoch of the ring when the receive was armed */
};

typedef struct ls_watchers ls_watchers; /* the registrations of a port */
struct epoll_event;                     /* of <sys/epoll.h> */

typedef struct ls_backend { /* the functions in which the back ends differ */
    const char *name;
    int (*open)(ls_port *port);   /* the last step of ls_port_open: the other members are set. LS_OK or an error;
                                   * LS_ENOTSUP, logged: the system refuses, and the port uses epoll */
    void (*close)(ls_port *port); /* no thread waits */
    /* Take up to max packets of sockets and notifications. Waits as ls_port_wait does, but may return 0 early. Returns
     * the number of packets or an error. */
    int (*take)(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);
    void (*wake)(ls_port *port); /* one thread that blocks in take */

    /* NULL in a back end that uses the epoll set only. */
    void (*detach)(ls_port *port, ls_thread_ctx *ctx);                /* ls_port_detach */
    bool (*arm)(ls_thread_ctx *ctx, ls_sock *sock, const ls_op *op);  /* true: the receive waits at a ring */
    int64_t (*receive)(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* after arm: as receive_once, or TRY_SOCKET */
    void (*disarm)(ls_sock *sock);                                    /* called before the descriptor is closed */
    void (*cancel_recv)(ls_port *port, ls_sock *sock,
                        uint32_t generation); /* the epoll set reported IN or the end while RX_RING is set */
    bool (*send)(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* true: the send is pending, and TX_BUSY is set */
    bool (*holds)(const ls_port *port, ls_fd fd);               /* attached, although not in the epoll set */
    const ls_file_backend *files;
} ls_backend;

#define TRY_SOCKET INT64_MIN /* result of receive: the ring has received nothing and does not receive any more */

extern const ls_backend ls_backend_epoll;

struct ls_port {
    ls_port_base base; /* base.queued includes the listeners on rescan; base.mutex guards the lists below */
    const ls_backend *backend;
    int epoll, eventfd, timerfd;
    ls_slots *socks;
    ls_watchers *watchers;
    ls_gathering *gatherings;         /* list of all, freed with the port */
    _Atomic uint32_t waiting;         /* threads that block or are about to */
    ls_sock *rescan, *emfile_waiting; /* lists of listeners: for the next wait; until a descriptor is free */
    _Atomic bool emfile_pending;      /* a hint that emfile_waiting is not empty */
    uint64_t emfile_logged_ns;        /* under accept_mutex: time of the last log line; 0: none so far */
    ls_mutex accept_mutex;
    ls_timer retry;            /* for emfile_waiting; causes no packet */
    _Atomic bool timerfd_late; /* written under heap_mutex: the earliest deadline is before timer_ns */
    _Atomic bool timer_fired;  /* the timerfd has fired, and no thread has checked the heap since */
    struct ls_rings *rings;    /* uring_internal.h */
};

/* epoll.c */
void ls_epoll_wake(ls_port *port); /* wake one thread that blocks, if any */
/* Open a port with this back end. Returns as ls_port_open. */
int ls_epoll_open(const ls_port_options *options, const ls_backend *backend, ls_port **out);
int ls_epoll_take(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);
void ls_epoll_wake_set(ls_port *port); /* wake a thread that blocks in epoll_wait */

/* As ls_epoll_take without waiting; timers that are due are in the queue afterwards. *state is TAKE_INCOMPLETE when
 * events may be left, for this thread and for another one. */
enum { TAKE_INCOMPLETE = 1 };
int ls_epoll_take_now(ls_thread_ctx *ctx, ls_packet *packets, int max, unsigned *state);

/* epoll_sock.c */
int ls_epoll_register(ls_sock *sock, bool out);
bool ls_epoll_report_end(ls_sock *sock); /* have the epoll set report the end and the loss of the connection */
void ls_epoll_report_again(ls_sock *sock, uint32_t generation);
bool ls_epoll_receive(ls_thread_ctx *ctx, ls_sock *sock,
                      ls_op *op);                 /* RX_BUSY is held. true: complete, BUSY cleared */
bool ls_epoll_transmit(ls_sock *sock, ls_op *op); /* the same for TX_BUSY */
bool ls_epoll_transmitted(ls_sock *sock, ls_op *op,
                          int64_t sent); /* the same after a call of a ring: bytes or LS_E* */

/* epoll_datagram.c: for batches what receive_once and send_all of epoll_sock.c are for streams */
int64_t ls_epoll_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int64_t ls_epoll_send_to(ls_sock *sock, ls_op *op);

/* epoll_notify.c */
int ls_watchers_open(ls_watchers **out);
void ls_watchers_close(ls_watchers *watchers);
int ls_epoll_add(ls_port *port, ls_fd fd, struct epoll_event *event); /* a socket; LS_OK or an error */
bool ls_watchers_hold(const ls_watchers *watchers, ls_fd fd);         /* registered, unless closed since */
/* Take the packet of an event; returns 0 or 1. Adds TAKE_INCOMPLETE to *state when other threads may receive
 * the same event. */
int ls_epoll_take_watcher(ls_port *port, uint64_t origin, uint32_t reported, ls_packet *out, unsigned *state);

/* epoll_accept.c */
int ls_epoll_accept(ls_thread_ctx *ctx, ls_sock *sock, ls_packet *packets, int max);
void ls_epoll_emfile_retry(ls_port *port);
void ls_epoll_unlist(ls_port *port, ls_sock *sock);
bool ls_epoll_cancel_accept(ls_sock *sock, ls_op *op);

/* epoll_timer.c */
void ls_epoll_timer_expire(ls_port *port); /* queue the timers that are due, without waking a thread */
void ls_epoll_timerfd_arm(ls_port *port);  /* set the timerfd to the earliest deadline */

#endif
