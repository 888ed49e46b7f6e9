/* epoll_internal.h - inside the completion port on Linux: one epoll set shared by all threads, edge-triggered.
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
       WATCH = 1u << 12,      /* a watch is pending: sock->watch */
       LOST = 1u << 13,       /* the loss of the connection was reported */
       IN_SET = 1u << 14,     /* in the epoll set */
       IN_SET_OUT = 1u << 15, /* in it with EPOLLOUT */
       CORKED = 1u << 16,     /* ls_sock_cork_fin was called, and ls_sock_shutdown not since then */
       SHARED = 1u << 18,     /* ls_sock_share was called */
       LISTED = 1u << 17,     /* changed under port->base.mutex: on port->rescan or port->emfile_waiting */
};

#define EVENT_WAKE    UINT64_MAX          /* epoll_event.data.u64: the eventfd */
#define EVENT_TIMERFD (UINT64_MAX - 1)    /* the timerfd */
#define WATCHER_BIT   (UINT64_C(1) << 31) /* a registration for notifications, not a socket */

#define WORD_FLAGS(word)      ((uint32_t)(word))
#define WORD_GENERATION(word) ((uint32_t)((word) >> 32))

struct ls_sock {
    ls_sock_base base; /* while the slot is free, its first four bytes belong to the table (slots.h) */
    uint32_t number;
    _Atomic uint64_t word;
    _Atomic(ls_op *) rx; /* listeners: the first pending accept, linked to the others by ->next */
    union {
        _Atomic(ls_op *) tx;
        ls_sock *list_next; /* of a listener that is LISTED: under port->base.mutex, the next one of that list */
    };
    union {
        _Atomic(ls_op *) watch; /* of a stream */
        struct {                /* of a datagram socket */
            uint32_t batch_ctx; /* written by the receiver: 1 + index of the context that received the last batch, */
            uint8_t batch_last; /* and the number of datagrams in it */
            uint8_t gso;        /* written by the sender: GSO_*, whether UDP_SEGMENT works on this socket */
        };
    };
};

_Static_assert(sizeof(ls_sock) <= 48, "an idle connection is small");

typedef struct ls_watchers ls_watchers; /* the registrations of a port */
struct epoll_event;                     /* of <sys/epoll.h> */

struct ls_port {
    ls_port_base base; /* base.queued includes the listeners on rescan; base.mutex guards the lists below */
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
};

/* epoll.c */
void ls_epoll_wake(ls_port *port); /* wake one thread that blocks, if any */

/* epoll_sock.c */
int ls_epoll_register(ls_port *port, ls_sock *sock, bool out);
/* RX_BUSY, TX_BUSY is held. true: complete, op->result is set, BUSY was cleared. false: pending again. */
bool ls_epoll_receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
bool ls_epoll_transmit(ls_port *port, ls_sock *sock, ls_op *op);

/* epoll_datagram.c: for batches what receive_once and send_all of epoll_sock.c are for streams */
int64_t ls_epoll_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int64_t ls_epoll_send_to(ls_sock *sock, ls_op *op);

/* epoll_notify.c */
int ls_watchers_open(ls_watchers **out);
void ls_watchers_close(ls_watchers *watchers);
int ls_epoll_add(ls_port *port, ls_fd fd, struct epoll_event *event); /* a socket; LS_OK or an error */
int ls_epoll_take_watcher(ls_port *port, uint64_t origin, uint32_t reported, ls_packet *out); /* 0 or 1 packet */

/* epoll_accept.c */
int ls_epoll_accept(ls_thread_ctx *ctx, ls_sock *sock, ls_packet *packets, int max);
void ls_epoll_emfile_retry(ls_port *port);
void ls_epoll_unlist(ls_port *port, ls_sock *sock);
bool ls_epoll_cancel_accept(ls_port *port, ls_sock *sock, ls_op *op);

/* epoll_timer.c */
void ls_epoll_timer_expire(ls_port *port); /* queue the timers that are due, without waking a thread */
void ls_epoll_timerfd_arm(ls_port *port);  /* set the timerfd to the earliest deadline */

#endif
