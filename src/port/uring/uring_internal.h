/* uring_internal.h - inside the back end "uring": what io_uring takes over from the shared epoll set.
 *
 * The socket's word (epoll_internal.h) says who may do what here as well. Two things that every request does need no system
 * call of their own any more:
 *
 *   receive   A receive that has to wait is an entry of the ring of the thread that posted it (RX_RING). A small one of
 *             a stream fills a buffer that is the ring's, so an idle connection holds none, and is copied into a block
 *             when it has come. For a large one the ring only says when there is something. A connection's third small
 *             one is a multishot receive, which goes on by itself. What it brings before anybody asks is kept (the
 *             socket's receive backlog), BACKLOG_MAX buffers at most: then it is cancelled, and the bytes stay with the system.
 *   send      While more completions wait to be handled than one, a send becomes an entry of the ring, and all of
 *             them leave in one call. It is tried without waiting (MSG_DONTWAIT), during that call; what is left over
 *             goes on as it does with epoll. TX_BUSY is set meanwhile.
 *
 * Operations on files (file.h) are entries of the ring as well: uring_file.c.
 *
 * Everything else (listeners, connects, datagrams, sends that wait, notifications, timers) is with the epoll set, which
 * every ring polls. So the kernel holds no operation of a socket: it only ever writes into the ring's own buffers, and reads
 * what is sent while somebody is in the call. Cancel and close are what they are with epoll.
 *
 * A multishot receive can miss the end: when a peer's last bytes and its end come together, both wake-ups may be taken for
 * one (Linux 6.18), and the bytes be reported but never the end. So the socket is in the epoll set as well, for nothing but
 * its end (EPOLLRDHUP). What that reports cancels the receive, and then the socket itself is asked: nothing is missed, and the
 * order of what came is kept. The set costs a connection one call, and what it receives nothing that can be measured.
 *
 * Who looks at a ring. A ring has an owner, the thread context that waits at it; the owner alone adds receives and sends, and submits
 * them. Whoever holds `lock` may take completions from it: a thread that finds nothing at its own ring looks at all
 * others before it sleeps. A thread that will not come back soon (it is inside a slow handler, or parks, or ends)
 * leaves its ring (ls_port_detach): then the ring itself is in the epoll set and wakes whoever sleeps, until a thread that
 * has none adopts it.
 *
 *     completions of a ring are looked at by its owner's next wait, or it has none and is in the epoll set
 *
 * The rings are made without SINGLE_ISSUER and DEFER_TASKRUN: with these, what has come for a thread that is inside a
 * handler could be taken by that thread alone. Without, the kernel finishes it when the thread is next interrupted (the
 * clock's tick, or the sleep of a system call that blocks), and others can take it.
 *
 * A ring can die: the kernel refuses its calls, for good (somebody closed its descriptor), or for RING_REFUSALS_MAX times in a
 * row (it has no memory). Then its owner gives it up and takes another. What waited to be submitted ends as if it had been
 * cancelled without anybody asking: a receive asks its socket, a send and an operation on a file go another way. What the
 * kernel has is cancelled by closing the ring's descriptor (once no file's memory is in its hands), and the completions come
 * into the ring's memory, which stays until the port is closed; until the last has come every wait looks there. After
 * RING_DEATHS_MAX such deaths nobody gets a ring any more, and the epoll set serves alone.
 *
 * Lock: rings.mutex before ring.lock; ring.lock before those of epoll_internal.h. A system call under ring.lock never waits. */
#ifndef LS_PORT_URING_URING_INTERNAL_H
#define LS_PORT_URING_URING_INTERNAL_H

#include <linux/io_uring.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "port/notify.h"
#include "port/uring/uring.h"

enum {
    RING_ENTRIES = 256,
    RING_COMPLETIONS = 8192,
    RING_REFUSALS_MAX =
        200,             /* calls in a row that the kernel had no memory for: 1 ms each; then the ring is given up */
    RING_DEATHS_MAX = 8, /* rings given up, RING_DEATHS_MS apart at most; then the epoll set serves alone */
    RING_DEATHS_MS = 60000,
    RING_RETIRING_MS = 10, /* how often a ring that was given up is looked at */
    RING_SUBMIT_AT = 64,   /* entries that wait for a call while there is other work, */
    RING_SUBMIT_US = 200,  /* and for how long */
    RINGS_MAX = 256,
    BUFFER_BYTES = LS_BLOCK_SMALL, /* so that a small receive can be filled, which tells that more is there */
    BUFFERS_FIRST = 128,           /* provided at first; doubled whenever they run out */
    BUFFERS_MAX = 1024,
    /* Entries whose completion may be awaited: each has its place, and so has one for each buffer, and each short-lived
     * entry. So completions never overflow. */
    RING_AWAITED_MAX = RING_COMPLETIONS - BUFFERS_MAX - 2 * RING_ENTRIES,
    BACKLOG_MAX = 8,      /* buffers of one socket; past it the bytes stay with the system */
    WAITS_ONE_BY_ONE = 2, /* a connection's first receives that wait; what comes after them is a multishot one */
    SEND_SLICES_MAX = 8,
};

enum { /* what an entry was; with number and generation of a socket in its user_data */
       TAG_RECEIVE,
       TAG_STREAM, /* a multishot receive */
       TAG_READY,  /* there is something to receive */
       TAG_SEND,
       TAG_WAKE,   /* somebody wants this ring's thread to look at the port */
       TAG_EPOLL,  /* the epoll set has events; with the ring's epoch */
       TAG_CANCEL, /* a cancellation that found nothing */
       TAG_FILE,   /* an operation on a file: user_data has its address (ls_ring_file) */
       TAG_SHIFT = 28,
};

typedef struct ring_buffer { /* one that holds bytes nobody has taken yet */
    uint16_t next;           /* in the socket's receive backlog */
    uint16_t from, end;
} ring_buffer;

typedef struct send_room { /* what a send's entry points to until it is submitted */
    struct msghdr message;
    struct iovec iov[SEND_SLICES_MAX];
} send_room;

typedef struct ls_ring {
    ls_mutex lock;
    _Atomic(ls_thread_ctx *) owner;  /* changed under lock */
    _Atomic(ls_thread_ctx *) asleep; /* who is in the call that waits, or about to be */
    unsigned index;
    uint32_t epoch;            /* under lock: changes with the owner */
    bool polls_epoll;          /* under lock */
    _Atomic bool epoll_events; /* the epoll set may have events that the owner has not looked at */
    _Atomic unsigned batch;    /* packets of the owner's last wait */
    int fd;                    /* -1: it was given up, and closed */
    bool dead, retired;        /* under lock: given up, nothing is added any more; the last completion has come */
    /* Of the owner, and of one that was taken for slow and has not noticed yet: then either value will do. */
    _Atomic unsigned refused;  /* calls in a row */
    _Atomic uint64_t since_ns; /* what was added waits for the next call since about then; 0: nothing */
    uint32_t awaited, files;   /* under lock: entries whose last completion was not taken; of these, on files */

    /* Submission, under lock. */
    _Atomic uint32_t sq_tail; /* for guesses also without it */
    uint32_t sq_mask;
    _Atomic uint32_t *sq_khead, *sq_ktail, *sq_kflags;
    struct io_uring_sqe *sqes;
    send_room *sends; /* for each of them */

    /* Completion: taken under lock; anybody may look whether there are any. */
    uint32_t cq_mask;
    _Atomic uint32_t *cq_khead, *cq_ktail;
    struct io_uring_cqe *cqes;

    /* Buffers, under lock. */
    struct io_uring_buf_ring *provided;
    ring_buffer *buffers;
    char *bytes;
    uint16_t provided_tail, buffers_count;

    void *map, *map_sqes;
    size_t map_bytes, sqes_bytes;
} ls_ring;

struct ls_rings {
    ls_mutex mutex; /* making, leaving and adopting */
    _Atomic unsigned count;
    _Atomic unsigned ringless; /* threads that block in epoll_wait, having no ring */
    unsigned deaths;           /* under mutex: rings given up, */
    uint64_t died_ns;          /* when the last one was, and */
    _Atomic unsigned retiring; /* those of them whose completions did not all come yet */
    _Atomic(ls_ring *) at[RINGS_MAX];
    _Atomic uint64_t armed[LS_NOTIFY_FD_MAX / 64]; /* by descriptor: those that were once armed */
};

/* uring_ring.c: one ring. */
int ls_ring_open(unsigned index, ls_ring **out); /* LS_OK, or an error with errno set */
void ls_ring_close(ls_ring *ring);
int ls_ring_test(const char **what); /* does the system do what we need? 0, or an errno value and what failed */
struct io_uring_sqe *ls_ring_entry(ls_ring *ring,
                                   uint64_t data); /* zeroed but for data; NULL: no room. lock is held */
void ls_ring_submit(ls_ring *ring);                /* what was added; lock is held */
unsigned ls_ring_publish(ls_ring *ring);           /* for ls_ring_enter; lock is held */
int ls_ring_enter(ls_ring *ring, unsigned queued, int timeout_ms); /* submit and wait: 0, or an errno value. No lock */
void ls_ring_give_buffer(ls_ring *ring, uint16_t id);              /* lock is held */
void ls_ring_more_buffers(ls_ring *ring);                          /* they ran out; lock is held */

static inline uint32_t ls_ring_queued(const ls_ring *ring) /* lock is held, or as a guess */
{
    return atomic_load_explicit(&ring->sq_tail, memory_order_relaxed) -
           atomic_load_explicit(ring->sq_khead, memory_order_acquire);
}

static inline uint32_t ls_ring_ready(const ls_ring *ring)
{
    return atomic_load_explicit(ring->cq_ktail, memory_order_acquire) -
           atomic_load_explicit(ring->cq_khead, memory_order_relaxed);
}

static inline uint64_t ls_ring_data(unsigned tag, uint32_t generation, uint32_t number)
{
    return (uint64_t)generation << 32 | (uint32_t)tag << TAG_SHIFT | number;
}

/* An address of 60 bits or less, around the tag. */
static inline uint64_t ls_ring_file(const ls_file_op *op)
{
    const uint64_t at = (uintptr_t)op;
    return at >> TAG_SHIFT << 32 | (uint32_t)TAG_FILE << TAG_SHIFT | (at & ((1u << TAG_SHIFT) - 1));
}

static inline ls_file_op *ls_ring_file_of(uint64_t data)
{
    const uintptr_t at = (data >> 32 << TAG_SHIFT) | (data & ((1u << TAG_SHIFT) - 1));
    return (ls_file_op *)at; /* NOLINT(performance-no-int-to-ptr) */
}

static inline unsigned ls_ring_tag(uint64_t data)
{
    return (uint32_t)data >> TAG_SHIFT;
}

static inline void ls_ring_mark(struct ls_rings *rings, ls_fd fd, bool armed)
{
    if (fd >= LS_NOTIFY_FD_MAX) return; /* cannot be registered */
    const uint64_t bit = UINT64_C(1) << (fd % 64);
    if (armed)
        atomic_fetch_or(&rings->armed[fd / 64], bit);
    else
        atomic_fetch_and(&rings->armed[fd / 64], ~bit);
}

/* uring_sock.c: what happens to one socket. */
bool ls_uring_arm(ls_thread_ctx *ctx, ls_sock *sock, const ls_op *op);
void ls_uring_cancel_recv(ls_port *port, ls_sock *sock, uint32_t generation);
bool ls_uring_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int64_t ls_uring_receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
void ls_uring_disarm(ls_sock *sock);
bool ls_uring_holds(const ls_port *port, ls_fd fd);

/* uring_file.c */
extern const ls_file_backend ls_uring_files;
void ls_uring_files_end(ls_ring *ring); /* no thread waits: what it has of files ends, without packets */
bool ls_uring_file_ended(ls_file_op *op,
                         int32_t result); /* the ring's lock is held. false: it is to be given to the pool */

/* Up to max packets from the completions of a ring; *woken is set when one of them was a TAG_WAKE. */
void ls_uring_abort_unsubmitted(ls_thread_ctx *ctx,
                                ls_ring *ring); /* what was added to a dead ring, and the kernel never saw, ends */
int ls_uring_reap(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max, bool *woken);

#endif
