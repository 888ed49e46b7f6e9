/* port.h - the contract of the completion port. epoll/ and win32/ implement it, the two back ends.
 *
 * Sockets are attached to a port, operations are posted on them, and any thread that waits at the port takes any
 * packet. The terms are those of Windows I/O completion ports.
 *
 * Operations. A function that posts an operation returns
 *     LS_DONE      the operation is complete, op->result is set, no packet follows
 *     LS_PENDING   exactly one packet follows, also when the operation is cancelled
 *     negative     an error code: the operation was not posted, no packet follows
 * Between the posting and the packet the operation and the memory that it refers to belong to the port; the caller
 * neither reads, writes nor frees them, except as a function allows.
 *
 * Per socket one receive, one send or connect, and one watch may be pending at a time. Several accepts may be
 * pending on a listener.
 *
 * Threads. The caller serialises posting on a socket and closing it, with one exception: once a receive was pending on
 * the socket, one thread may post a receive while another one posts a send. ls_op_cancel, packets and timers may be
 * used from any thread.
 *
 * Inline completions (LS_DONE) are limited per thread context. After ctx->inline_ms_max of them without a wait, an
 * operation that completes at once is queued instead and returns LS_PENDING, so that the thread returns to the port.
 *
 * Closing. ls_sock_close closes the descriptor; on Windows that of a listener with pending accepts is closed when the
 * last of their packets was taken. Operations still pending complete with LS_ECANCELED, or with the result they
 * already had; their packets follow as usual.
 *
 * Operations on datagrams are in datagram.h, readiness notifications in notify.h, calls that block, such as those on
 * files, in work.h. */
#ifndef LS_PORT_PORT_H
#define LS_PORT_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "port/fd.h"

enum { LS_DONE = 0, LS_PENDING = 1 };
/* Packets that a wait should take. Few, because the others of a batch wait for the handler of the first while
 * another thread may be free. A thread that works alone, and whose packets are requeued when it stalls, may
 * take the maximum. */
enum { LS_WAIT_PACKETS = 4, LS_WAIT_PACKETS_MAX = 16 };
enum { LS_INLINE_MS_MAX = 500 }; /* the default of ctx->inline_ms_max */

typedef struct ls_port ls_port;
typedef struct ls_thread_ctx ls_thread_ctx;
typedef struct ls_sock ls_sock;
typedef struct ls_actor ls_actor;
typedef struct ls_op ls_op;
typedef struct ls_datagram ls_datagram;   /* port/datagram.h */
typedef struct ls_datagrams ls_datagrams; /* port/datagram.h */

/* Handles the packet of an operation on the thread of `ctx`; op->result is set. The function may post the operation
 * again or free it. */
typedef void ls_op_fn(ls_thread_ctx *ctx, ls_op *op);

typedef struct ls_file_range {
    ls_fd fd;                            /* belongs to the caller, who keeps it open until the packet */
    uint64_t offset, len;                /* in bytes */
    const struct ls_shared_file *shared; /* NULL, or the file, to be sent only while it is unchanged (shared_file.h) */
} ls_file_range;

/* One operation, embedded in the struct of its owner. The owner sets `done` and `actor` before posting; the other
 * fields belong to the port. */
struct ls_op {
    ls_op_fn *done;
    ls_actor *actor; /* NULL: floating, any thread handles the packet; else the packet is pinned to this actor */
    ls_op *next;     /* link of the port's queue, then of the actor's inbox */
    _Atomic int64_t result; /* bytes (0 for accept and connect) or LS_E*; of a pending send: the bytes sent so far */
    uint8_t kind;           /* private to the port */
    uint16_t count;         /* slices of a send; datagrams of a batch */
    uint32_t len;           /* bytes_max of a receive, or of each datagram */
    union {
        struct {
            char *ptr;
            ls_block *block; /* result: the memory, when the port supplied it */
        } recv;
        struct {
            ls_slice *slices;
            const ls_file_range *file;
        } send;
        struct {
            ls_sockaddr *from;
            ls_fd fd; /* result: the connection */
        } accept;
        struct {
            const ls_sockaddr *addr;
        } connect;
        struct {
            ls_datagrams *batch; /* result */
            bool gather;         /* set by the caller, see datagram.h */
        } recv_from;
        struct {
            ls_datagram *at;
        } send_to;
    };
};

typedef struct ls_packet {
    ls_op *op;       /* NULL: a post without an operation, or a notification */
    int64_t result;  /* of the operation or the post */
    void *key;       /* of the post or the registration; with an operation NULL */
    uint32_t events; /* LS_EVENT_* of a notification (port/notify.h), else 0 */
    uint64_t origin; /* private to the port: the registration of a notification */
} ls_packet;

typedef struct ls_port_options {
    uint32_t sockets_max; /* attached at the same time */
    unsigned concurrency; /* the NumberOfConcurrentThreads of CreateIoCompletionPort on Windows: a waiting thread is
                           * released only while fewer than this run; 0: one per processor. Ignored on Linux. The
                           * worker pool (sched/workers.h) has a limit of its own on every system */
} ls_port_options;

/* The name of this system's back end: "epoll" or "iocp". */
const char *ls_port_backend(void);

/* LS_OK, LS_ENOMEM, LS_EMFILE, LS_ESYS. */
int ls_port_open(const ls_port_options *options, ls_port **out);

/* The caller guarantees that no thread waits and every socket is closed. Packets that were not taken are dropped. */
void ls_port_close(ls_port *port);

/* ---- thread contexts ------------------------------------------------------------------------------------------- */

typedef struct ls_thread_stats { /* written by the thread of the context, read by any */
    _Atomic uint64_t packets, waits;
    _Atomic uint64_t recv_inline, recv_queued, send_inline, send_queued, accepts;
} ls_thread_stats;

/* What a thread needs to post operations and to wait: its buffer pool, its counters, its inline budget. The struct is
 * public because the layers above use the pool on every request. Only the thread of the context writes it. */
struct ls_thread_ctx {
    ls_port *port;
    ls_pool *pool; /* entered by this thread */
    unsigned index;
    struct ls_worker *worker; /* private to sched/workers.c; NULL: the thread is no worker */
    ls_actor *inside;         /* the actor that this thread is inside, or NULL */
    uint32_t inline_ms_max;   /* limit of inline completions without a wait; the owner may change it */
    ls_thread_stats stats;
    /* Private to the port. */
    uint32_t inline_run; /* inline completions since the last wait */
    uint64_t inline_since_ns;
    int events_max;                 /* limit of events per wait, adapted to the bytes of the last batches */
    struct ls_gathering *gathering; /* NULL: not needed so far */
};

/* `ctx` belongs to the caller, who may free it, without a further call, after its thread has ended. */
void ls_thread_ctx_init(ls_thread_ctx *ctx, ls_port *port, ls_pool *pool, unsigned index);

/* Take up to `max` packets, in any order. timeout_ms < 0 waits without a limit, 0 does not wait. Returns the
 * number of packets (0: timeout) or a negative code. ls_packet_dispatch (sched/actor.h) handles a packet that has an
 * operation. */
int ls_port_wait(ls_port *port, ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);

/* Queue the packet of `op` with this result. It cannot fail, because the operation is the queue node. Any thread, but
 * not a signal handler. */
void ls_port_post(ls_port *port, ls_op *op, int64_t result);

/* Queue a packet without an operation, with this key and this result. LS_OK or LS_ENOMEM. Any thread, but not a signal
 * handler. */
int ls_port_post_key(ls_port *port, void *key, int64_t result);

/* Queue a packet again, unchanged, that was taken but not handled. Cannot fail for a packet with an operation, else
 * LS_ENOMEM is possible. A notification that is out of date when it is taken again is dropped. */
int ls_port_requeue(ls_port *port, const ls_packet *packet);

/* ---- sockets ---------------------------------------------------------------------------------------------- */

/* Attach a non-blocking socket (as those of net/sock/sock.h are). On success the port owns it and ls_sock_close closes
 * it. On failure the caller still owns it: LS_ELIMIT past sockets_max, LS_ENOMEM. `maybe_readable`: the socket is a
 * stream from which nothing was received yet and that may have data (an accepted connection); its first receive is
 * tried before it waits. */
int ls_sock_attach(ls_port *port, ls_fd fd, bool maybe_readable, ls_sock **out);
void ls_sock_close(ls_thread_ctx *ctx, ls_sock *sock);
/* Another process may have the socket as well, and keep it: its events end with the close here, which of another
 * socket the system ends itself. Before the first operation. */
void ls_sock_share(ls_sock *sock);
ls_fd ls_sock_fd(const ls_sock *sock);

/* Accept a connection. Several accepts may be posted in advance on one listener. op->accept.fd receives the new
 * descriptor, non-blocking and not attached; *from (may be NULL) receives the address of the peer. When the process
 * is out of descriptors the accept stays pending and is retried when a descriptor is closed or after 100 ms,
 * whichever is first. */
int ls_op_accept(ls_thread_ctx *ctx, ls_sock *listener, ls_op *op, ls_sockaddr *from);

/* Receive up to len bytes. Result: the number of bytes; 0: the peer has closed its sending side.
 *     ptr != NULL    into the caller's memory
 *     ptr == NULL    when data arrives, the port takes a block from the pool of the thread (LS_BLOCK_SMALL or
 *                    LS_BLOCK_LARGE, by len) and sets op->recv.block, one reference; an idle connection holds no
 *                    buffer. With the result 0 or an error there is no block
 *     len == 0       completes with 0 when data or the end of the stream can be received */
int ls_op_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, void *ptr, uint32_t len);

/* Receive and discard up to 16 KiB. Result as for ls_op_recv. Needs no memory of a pool. */
int ls_op_discard(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);

/* Watch a connected stream for the loss of its connection: completes with LS_ERESET when the peer has reset it, or
 * when an error or the close of both directions has ended it. Data and the end of the peer's data (FIN) do not
 * complete it. One watch may be pending beside a receive and a send. LS_ERESET: the connection is lost already;
 * LS_ENOTSUP: not on this system. */
int ls_op_watch(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
/* true: the watch was pending, and no packet follows. false: its packet is queued, or is about to be. */
bool ls_op_unwatch(ls_sock *sock, ls_op *op);

/* Send all slices in order, then the file range unless `file` is NULL. Completes when the system has taken everything,
 * or with an error: LS_EINVAL, the file ends inside the range, or the shared file has changed meanwhile; LS_ECHANGED,
 * it had changed before a byte was sent. The port looks at a shared file before it sends, and again after each wait.
 * The array and the bytes stay unchanged until the completion; the references of the slices stay with the caller. */
int ls_op_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_slice *slices, uint16_t count,
               const ls_file_range *file);

/* Send at once what the system takes, without an operation, while no send is pending. Returns the number of bytes, 0
 * also after an error, which the next ls_op_send finds, and where an operation is the better way
 * (Windows). */
size_t ls_sock_try_send(ls_sock *sock, const void *bytes, size_t len);

/* Connect to `to`, which stays valid until completion. Result: 0 or an error. */
int ls_op_connect(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, const ls_sockaddr *to);

/* Shut down the sending side (TCP FIN) after everything that was sent; receives continue. LS_OK or an error. */
int ls_sock_shutdown(ls_sock *sock);

/* Announce that ls_sock_shutdown or ls_sock_close follows the sends posted from now on. Their last bytes may wait for
 * it and leave in one segment with the FIN (MSG_MORE of send(2)). Both calls send these bytes even when unread data of
 * the peer makes the close a reset. */
void ls_sock_cork_fin(ls_sock *sock);

/* Request that a pending operation ends now with LS_ECANCELED. It may complete otherwise at the same moment; in
 * either case its one packet follows. No effect when the operation is not pending on `sock`. Any thread, while the
 * socket is open. */
void ls_op_cancel(ls_port *port, ls_sock *sock, ls_op *op);

/* Whether the socket has reported neither bytes nor its end since the last receive took all that there were. No call of
 * the system: what no thread has taken from the port yet is not in it. false: not known. */
bool ls_sock_is_silent(const ls_sock *sock);

/* The generation of the socket: it identifies this use of the handle, which is reused after a close. */
uint32_t ls_sock_generation(const ls_sock *sock);

/* Cancel the pending receive, the pending send or connect, or both (`what`), of this generation of the socket. Any
 * thread, at any time: no effect after the socket was closed. */
enum ls_cancel { LS_CANCEL_RECV = 1, LS_CANCEL_SEND = 2 };
void ls_sock_cancel(ls_port *port, ls_sock *sock, uint32_t generation, unsigned what);

/* The time of the last progress of a send on this socket, the low half of ls_clock_coarse_ms; 0: none so far. Any
 * thread, at any time. */
uint32_t ls_sock_progress_ms(const ls_sock *sock);

/* Bytes that the sends of this socket which had to wait have sent since the last call, at most UINT32_MAX. Any thread,
 * at any time. */
uint32_t ls_sock_progress_take(ls_sock *sock);

/* ---- timers ------------------------------------------------------------------------------------------------ */

typedef struct ls_timer {
    ls_op op; /* the caller sets done and actor; the packet follows when the timer expires, with the result 0 */
    uint64_t at_ns;
    uint32_t slot; /* 1 + index in the heap; 0: not armed */
} ls_timer;

/* Arm the timer for `at_ns` of the monotonic clock (ls_clock_ns), or move an armed timer. Not for a timer that has
 * expired and whose packet was not taken yet. LS_OK or LS_ENOMEM. */
int ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns);

/* Move an armed timer; this cannot fail. false: the timer is not armed, or has expired; nothing was changed. */
bool ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns);

/* true: the timer was armed, and no packet follows. false: it was not armed, or its packet is already queued. */
bool ls_timer_cancel(ls_port *port, ls_timer *timer);

#endif
