/* uring_internal.h - inside the back end "uring": the operations that io_uring takes over from the shared epoll set.
 *
 * The word of the socket (epoll_internal.h) decides which thread may do what, as with epoll. Two operations that every
 * request needs take no system call of their own:
 *
 *   receive   A receive that has to wait is an entry in the ring of the thread that posts it (RX_RING). A small
 *             receive of a stream uses a provided buffer of the ring, so an idle connection holds no buffer; the data
 *             are copied into a block when they have arrived. For a large receive the ring only polls the socket. From
 *             the third small receive of a connection on the ring uses a multishot receive, which continues by itself.
 *             Data that arrive before a receive is posted are kept (the receive backlog of the socket), at most
 *             BACKLOG_MAX buffers: then the multishot receive is cancelled, and further data stay in the kernel.
 *   send      While more than one completion waits to be handled, a send becomes an entry of the ring, and all of them
 *             are submitted in one call. The kernel tries it without waiting (MSG_DONTWAIT) during that call; the
 *             rest, if any, is sent as with epoll. TX_BUSY is set meanwhile.
 *
 * Operations on files (file.h) are entries of the ring as well: uring_file.c.
 *
 * All other operations (listeners, connects, datagrams, sends that wait, notifications, timers) use the epoll set,
 * which every ring polls. So the kernel holds no operation of a socket: it writes only into the buffers of the ring,
 * and reads the bytes of a send only during the call. Cancel and close work as with epoll.
 *
 * A multishot receive can miss the end of the stream: when the last bytes of a peer and its FIN arrive together, the
 * kernel may merge the two wake-ups (Linux 6.18) and report the bytes but never the end. So the socket is in the epoll
 * set as well, for its end only (EPOLLRDHUP). That event cancels the multishot receive; afterwards the socket itself
 * is read, so nothing is missed and the order of the data is kept. This costs one call per connection, and no
 * measurable time per receive.
 *
 * Owners. A ring has an owner, the thread context that waits at it; only the owner adds receives and sends, and
 * submits them. Any thread that holds `lock` may take completions: a thread that finds none at its own ring checks all
 * others before it sleeps. A thread that does not wait again soon (it is inside a long handler, becomes idle, or ends)
 * gives its ring up (ls_port_detach): then the ring itself is in the epoll set and wakes a sleeping thread, until a
 * thread without a ring takes it over.
 *
 *     a ring has an owner, whose next wait takes its completions, or it is in the epoll set
 *
 * The rings are set up without IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN. With these only the
 * submitting thread could take completions, also while it is inside a handler. Without them the kernel finishes an
 * operation when the submitting thread is next interrupted (by the clock tick or by a blocking system call), and other
 * threads can take it.
 *
 * A ring can fail: the kernel refuses its calls permanently (its descriptor was closed), or RING_REFUSALS_MAX times
 * in a row (out of memory). Then its owner gives it up and takes another. Entries that were not submitted end as
 * cancelled: a receive reads its socket, a send and an operation on a file take another path. Entries that the kernel
 * holds are cancelled by closing the ring's descriptor (once the kernel holds no memory of file operations); their
 * completions still arrive in the memory of the ring, which stays until the port is closed, and every wait checks
 * them until the last has arrived. After RING_FAILURES_MAX failures no ring is set up any more, and the port uses the
 * epoll set only.
 *
 * Locks: rings.mutex before ring.lock; ring.lock before those of epoll_internal.h. A system call under
 * ring.lock never waits. */
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
    RING_REFUSALS_MAX = 200, /* calls in a row refused for lack of memory, 1 ms apart; then the ring is given up */
    RING_FAILURES_MAX = 8,   /* rings given up, RING_FAILURES_MS apart at most; then the port uses epoll only */
    RING_FAILURES_MS = 60000,
    RING_RETIRING_MS = 10, /* interval at which a ring that was given up is checked */
    RING_SUBMIT_AT = 64,   /* entries that may wait for a call while there is other work, */
    RING_SUBMIT_US = 200,  /* and for this long */
    RINGS_MAX = 256,
    BUFFER_BYTES = LS_BLOCK_SMALL, /* a small receive can fill it, which shows that more data may follow */
    BUFFERS_FIRST = 128,           /* buffers provided at first; doubled when they run out */
    BUFFERS_MAX = 1024,
    /* Entries that may wait for long. The completion queue has room for each of them, for one completion per
     * buffer, and for the short-lived entries, so it never overflows. */
    RING_AWAITED_MAX = RING_COMPLETIONS - BUFFERS_MAX - 2 * RING_ENTRIES,
    BACKLOG_MAX = 8,      /* buffers of one socket; further bytes stay in the kernel */
    WAITS_ONE_BY_ONE = 2, /* the first receives of a connection that wait; the later ones are multishot */
    SEND_SLICES_MAX = 8,
};

enum { /* the kind of an entry, in its user_data with the number and generation of a socket */
       TAG_RECEIVE,
       TAG_STREAM, /* a multishot receive */
       TAG_READY,  /* a poll: data can be received */
       TAG_SEND,
       TAG_WAKE,   /* a NOP of another thread that wakes the owner */
       TAG_EPOLL,  /* a poll of the epoll set; with the epoch of the ring */
       TAG_CANCEL, /* a cancellation; completes only if it found no entry */
       TAG_FILE,   /* an operation on a file; user_data holds its address (ls_ring_file) */
       TAG_SHIFT = 28,
};

typedef struct ring_buffer { /* a provided buffer in the receive backlog of a socket */
    uint16_t next;
    uint16_t from, end;
} ring_buffer;

typedef struct send_room { /* the memory that the entry of a send points to until it is submitted */
    struct msghdr message;
    struct iovec iov[SEND_SLICES_MAX];
} send_room;

typedef struct ls_ring {
    ls_mutex lock;
    _Atomic(ls_thread_ctx *) owner;  /* changed under lock */
    _Atomic(ls_thread_ctx *) asleep; /* the owner while it sleeps in the ring, or is about to */
    unsigned index;
    uint32_t epoch;            /* under lock: incremented when the owner changes */
    bool polls_epoll;          /* under lock */
    _Atomic bool epoll_events; /* the epoll set may have events for the owner */
    _Atomic unsigned batch;    /* packets of the last wait of the owner */
    int fd;                    /* -1: the ring was given up, and closed */
    bool dead, retired;        /* under lock: given up, no entries are added; its last completion was taken */
    /* Written by the owner, and by a previous owner that was detached and does not know it yet; either
     * value is valid. */
    _Atomic unsigned refused;  /* calls refused in a row */
    _Atomic uint64_t since_ns; /* when the oldest entry that waits for a call was added, about; 0: none */
    uint32_t awaited, files;   /* under lock: entries whose last completion was not taken; those on files */

    /* Submission, under lock. */
    _Atomic uint32_t sq_tail; /* as an estimate also without it */
    uint32_t sq_mask;
    _Atomic uint32_t *sq_khead, *sq_ktail, *sq_kflags;
    struct io_uring_sqe *sqes;
    send_room *sends; /* one for each of sqes */

    /* Completion: taken under lock; any thread may check whether there are any. */
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
    ls_mutex mutex; /* guards the set-up of rings and changes of owner */
    _Atomic unsigned count;
    _Atomic unsigned ringless; /* threads without a ring that block in epoll_wait */
    unsigned failures;         /* under mutex: rings given up within RING_FAILURES_MS of each other, */
    uint64_t failed_ns;        /* time of the last one */
    _Atomic unsigned retiring; /* rings given up with completions outstanding */
    _Atomic(ls_ring *) at[RINGS_MAX];
    _Atomic uint64_t armed[LS_NOTIFY_FD_MAX / 64]; /* a bit per descriptor: a receive was armed on it */
};

/* uring_ring.c: one ring */
int ls_ring_open(unsigned index, ls_ring **out); /* LS_OK, or an error with errno set */
void ls_ring_close(ls_ring *ring);
int ls_ring_test(const char **failed); /* try all operations used: 0, or an errno value and the name of what failed */
struct io_uring_sqe *ls_ring_entry(ls_ring *ring,
                                   uint64_t data); /* zeroed except user_data; NULL: no room. lock is held */
void ls_ring_submit(ls_ring *ring);                /* submit the entries added; lock is held */
unsigned ls_ring_publish(ls_ring *ring);           /* make entries visible to the kernel; lock is held */
int ls_ring_enter(ls_ring *ring, unsigned queued, int timeout_ms); /* submit and wait, without lock: 0 or errno */
void ls_ring_give_buffer(ls_ring *ring, uint16_t id);              /* lock is held */
void ls_ring_more_buffers(ls_ring *ring);                          /* after they ran out; lock is held */

static inline uint32_t ls_ring_queued(const ls_ring *ring) /* under lock, else an estimate */
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

/* user_data of a file operation: an address of at most 60 bits, around the tag. */
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
    if (fd >= LS_NOTIFY_FD_MAX) return; /* cannot be registered either */
    const uint64_t bit = UINT64_C(1) << (fd % 64);
    if (armed)
        atomic_fetch_or(&rings->armed[fd / 64], bit);
    else
        atomic_fetch_and(&rings->armed[fd / 64], ~bit);
}

/* uring_sock.c: the operations of ls_backend on one socket */
bool ls_uring_arm(ls_thread_ctx *ctx, ls_sock *sock, const ls_op *op);
void ls_uring_cancel_recv(ls_port *port, ls_sock *sock, uint32_t generation);
bool ls_uring_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int64_t ls_uring_receive(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
void ls_uring_disarm(ls_sock *sock);
bool ls_uring_holds(const ls_port *port, ls_fd fd);

/* uring_file.c */
extern const ls_file_backend ls_uring_files;
void ls_uring_files_end(ls_ring *ring); /* no thread waits: end its file operations, without packets */
bool ls_uring_file_ended(ls_file_op *op,
                         int32_t result); /* the ring's lock is held. false: the pool must carry it out */

/* uring_sock.c: completions */

/* End the entries that a dead ring never submitted. */
void ls_uring_abort_unsubmitted(ls_thread_ctx *ctx, ls_ring *ring);

/* Take up to max packets from the completions of a ring; *woken is set when one of the completions was a TAG_WAKE. */
int ls_uring_reap(ls_thread_ctx *ctx, ls_ring *ring, ls_packet *packets, int max, bool *woken);

#endif
