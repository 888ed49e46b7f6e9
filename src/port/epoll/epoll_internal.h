/* epoll_internal.h - inside the completion port on Linux: one epoll set shared by all threads, edge-triggered.
 *
 * Two back ends are made of this. They differ in how a thread waits and is woken, and in a few ways around a system call,
 * which are behind a table of functions (ls_backend): "epoll" does everything at the set itself, "uring" (uring_internal.h)
 * leaves the receives and sends of streams to rings that poll the set.
 *
 * epoll tells readiness; the port promises completions. So a readiness event is turned into the pending operation's
 * completion by doing the system call right there, in the thread that took the event, before the packet is returned.
 *
 * One 64-bit word per socket decides who may do what. Its upper half is the generation of the slot: an event that the
 * kernel reports late, for a socket closed meanwhile, fails the first comparison and is dropped. In the lower half, for
 * each direction (rx: receive or accept; tx: send or connect)
 *
 *     WAIT    an operation is pending and nobody works on it      (sock->rx, sock->tx name it)
 *     BUSY    a thread works on it: it took WAIT away by a compare-and-swap, so there is only one
 *     READY   an event came that nobody has used yet: the next operation is tried before it waits
 *     STOP    a cancellation came while BUSY: do not wait again
 *
 *                 post                event, claim
 *      (nothing) -----> WAIT ---------------------------> BUSY --> packet
 *                         ^                                |
 *                         +---- would block, no READY -----+
 *
 * WAIT and BUSY exclude each other per direction. The descriptor is closed when CLOSING is set and nobody is BUSY: by
 * ls_sock_close itself or by the last one that was, so no system call ever runs on a number that was given away.
 *
 * Listeners are different in one thing: several accepts may wait, in a list under accept_mutex; WAIT and BUSY are not
 * used for them. A listener that may have more connections than it had accepts or room for is listed: any thread's next
 * wait looks at it again. One that ran out of descriptors is listed apart, until a descriptor is closed or some time has
 * passed.
 *
 * Registrations for notifications are in the same set, under other numbers (WATCHER_BIT): see epoll_notify.c.
 *
 * The files: epoll.c (open, queue, wait), epoll_sock.c (the word; receive, send, connect), epoll_accept.c
 * (listeners), epoll_datagram.c, epoll_notify.c, epoll_timer.c.
 *
 * Locks: accept_mutex before mutex; heap_mutex before mutex. */
#ifndef LS_PORT_EPOLL_EPOLL_INTERNAL_H
#define LS_PORT_EPOLL_EPOLL_INTERNAL_H

#include "port/common_internal.h"
#include "port/epoll/epoll_gather.h"
#include "port/slots.h"

enum { /* of the lower half of ls_sock.word */
       OPEN = 1u << 0,
       CLOSING = 1u << 1,
       ENDED = 1u << 2, /* hang-up or error was reported: a short receive does not mean that nothing is left */
       LISTENS = 1u << 3,
       RX_WAIT = 1u << 4,
       RX_BUSY = 1u << 5,
       RX_READY = 1u << 6,
       RX_STOP = 1u << 7,
       TX_SHIFT = 4, /* the same four for sending */
       TX_WAIT = RX_WAIT << TX_SHIFT,
       TX_BUSY = RX_BUSY << TX_SHIFT,
       TX_READY = RX_READY << TX_SHIFT,
       TX_STOP = RX_STOP << TX_SHIFT,
       RX_RING =
           1u
           << 12, /* a ring receives for it (uring_internal.h): what the epoll set says about receiving is not heard */
};

enum { STREAM_UNKNOWN, STREAM, STREAM_NOT }; /* ls_sock.stream */
enum { BACKLOG_NONE = 0xffff };

#define EVENT_WAKE    UINT64_MAX       /* what the kernel reports: the eventfd */
#define EVENT_TIMERFD (UINT64_MAX - 1) /* the timerfd */
#define EVENT_RING    (UINT64_MAX - 2) /* a ring that nobody waits at */
#define WATCHER_BIT \
    (UINT64_C(1) << 31) /* in what the kernel reports: a registration for notifications, not a socket */

#define WORD_FLAGS(word)      ((uint32_t)(word))
#define WORD_GENERATION(word) ((uint32_t)((word) >> 32))

struct ls_sock {
    ls_sock_base base;
    _Atomic uint64_t word;
    ls_port *port;
    uint32_t number;
    _Atomic(ls_op *) rx; /* listeners: the first of the waiting accepts, the others behind it by ->next */
    _Atomic(ls_op *) tx;
    ls_sock *list_next; /* under port->base.mutex: on port->rescan or port->emfile_waiting */
    bool listed;        /* under port->base.mutex: on one of them */
    /* Written by whoever posts first, then by whoever posts sends, which is one thread at a time. */
    _Atomic bool registered, registered_out;
    uint8_t gso;                    /* of whoever sends: whether the system cuts up datagrams for this one */
    uint8_t batch_last;             /* of whoever receives: how many datagrams came the last time, */
    const ls_thread_ctx *batch_ctx; /* and who took them */
    bool corked;                    /* ls_sock_cork_fin was called, and ls_sock_shutdown not since */
    /* With rings: uring_sock.c. */
    uint8_t stream, waits;    /* of whoever posts receives; receives that had to wait, as far as it matters */
    _Atomic bool watched;     /* the epoll set tells of its end */
    _Atomic uint16_t ring;    /* 1 + index of the ring it was last armed on; 0: of none */
    _Atomic bool has_backlog; /* written under that ring's lock, as is the rest: it brought what nobody has taken */
    uint8_t armed_tag;        /* of the entry that receives, and */
    bool recv_cancelled;      /* whether it was cancelled */
    bool ring_ended;          /* the peer has */
    int ring_error;           /* for the next receive, after the receive backlog: */
    uint16_t backlog_first, backlog_last, backlog_count; /* buffers of the ring, oldest first; none: BACKLOG_NONE */
    uint32_t armed_epoch;                                /* of the ring, when it was armed */
};

typedef struct ls_watchers ls_watchers; /* the registrations of a port */
struct epoll_event;                     /* the system's */

typedef struct ls_backend { /* a back end: what is not the same in all of them */
    const char *name;
    int (*open)(ls_port *port);   /* the last step of ls_port_open: the rest is there. LS_OK or an error;
                                   * LS_ENOTSUP, with a line in the log: the system refuses, epoll takes its place */
    void (*close)(ls_port *port); /* no thread waits */
    /* Up to max packets of sockets and notifications; waits for the first as ls_port_wait does, but may return 0 early.
     * Their number, or an error. */
    int (*take)(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);
    void (*wake)(ls_port *port); /* a thread that blocks in take */

    /* NULL where everything is done with the epoll set. */
    void (*detach)(ls_port *port, ls_thread_ctx *ctx); /* ls_port_detach */
    bool (*arm)(ls_thread_ctx *ctx, ls_sock *sock,
                const ls_op *op); /* the receive waits elsewhere; false: it does not */
    int64_t (*receive)(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* once armed: as receive_once, or ASK_SOCKET */
    void (*disarm)(ls_sock *sock);                                    /* before the descriptor is closed */
    void (*cancel_recv)(ls_port *port, ls_sock *sock,
                        uint32_t generation); /* the set tells of something to receive, or the end, while RX_RING */
    bool (*send)(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op); /* true: it is pending, and TX_BUSY is set */
    bool (*holds)(const ls_port *port, ls_fd fd);               /* attached, although the epoll set does not know it */
    const ls_file_backend *files;
} ls_backend;

#define ASK_SOCKET INT64_MIN /* of receive: nothing came elsewhere, nor will it */

extern const ls_backend ls_backend_epoll;

struct ls_port {
    ls_port_base base; /* `queued` counts the listeners on `rescan` as well; `mutex` guards the lists below */
    const ls_backend *backend;
    int epoll, eventfd, timerfd;
    ls_slots *socks;
    ls_watchers *watchers;
    ls_gathering *gatherings; /* of the thread contexts that have one */
    _Atomic uint32_t waiting; /* threads that are about to block, or do */
    ls_sock *rescan,
        *emfile_waiting;         /* listeners to look at again: at the next wait; when a descriptor is free again */
    _Atomic bool emfile_pending; /* emfile_waiting is not empty, or was not a moment ago */
    uint64_t emfile_logged_ns;   /* under accept_mutex: when the log was last told; 0: never */
    ls_mutex accept_mutex;
    ls_timer retry;            /* of emfile_waiting; never a packet */
    _Atomic bool timerfd_late; /* written under heap_mutex: the earliest deadline is before that */
    _Atomic bool timer_fired;  /* the timerfd has fired, and nobody has looked at the heap since */
    struct ls_rings *rings;    /* uring_internal.h */
};

/* epoll.c */
void ls_epoll_wake(ls_port *port); /* a thread that blocks, if there is one */
/* The port with one of the back ends that are made of this. As ls_port_open. */
int ls_epoll_open(const ls_port_options *options, const ls_backend *backend, ls_port **out);
int ls_epoll_take(ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);
void ls_epoll_wake_set(ls_port *port); /* a thread that blocks in epoll_wait */

/* As ls_epoll_take without waiting; timers that are due are in the queue afterwards. *what is TOOK_NOT_ALL when it, and
 * another thread, should look again. */
enum { TOOK_NOT_ALL = 1 };
int ls_epoll_look(ls_thread_ctx *ctx, ls_packet *packets, int max, unsigned *what);

/* epoll_sock.c */
int ls_epoll_register(ls_sock *sock, bool out);
void ls_epoll_report_again(ls_sock *sock, uint32_t generation);
bool ls_epoll_receive(ls_thread_ctx *ctx, ls_sock *sock,
                      ls_op *op);                                  /* RX_BUSY is held. True: complete, BUSY is gone */
bool ls_epoll_transmit(ls_sock *sock, ls_op *op);                  /* the same with TX_BUSY */
bool ls_epoll_transmitted(ls_sock *sock, ls_op *op, int64_t sent); /* the same, when one call has sent so much */

/* epoll_datagram.c: like receive_once and send_all in epoll_sock.c, for batches */
int64_t ls_epoll_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int64_t ls_epoll_send_to(ls_sock *sock, ls_op *op);

/* epoll_notify.c */
int ls_watchers_open(ls_watchers **out);
void ls_watchers_close(ls_watchers *watchers);
int ls_epoll_add(ls_port *port, ls_fd fd, struct epoll_event *event); /* a socket; LS_OK or an error */
bool ls_watchers_hold(const ls_watchers *watchers, ls_fd fd);         /* registered, as far as we know */
/* Packets: 0 or 1. Adds TOOK_NOT_ALL to *what when others may be told of the same. */
int ls_epoll_take_watcher(ls_port *port, uint64_t origin, uint32_t reported, ls_packet *out, unsigned *what);

/* epoll_accept.c */
int ls_epoll_accept(ls_thread_ctx *ctx, ls_sock *sock, ls_packet *packets, int max);
void ls_epoll_emfile_retry(ls_port *port);
void ls_epoll_unlist(ls_port *port, ls_sock *sock);
bool ls_epoll_cancel_accept(ls_sock *sock, ls_op *op);

/* epoll_timer.c */
void ls_epoll_timer_expire(ls_port *port); /* the timerfd has fired: what is due goes to the queue, quietly */
void ls_epoll_timerfd_arm(ls_port *port);  /* have it fire for the earliest deadline */

#endif
