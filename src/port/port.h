/* port.h - the completion port: the contract. epoll.c, alone or with uring.c, or iocp.c keeps it.
 *
 * There is one port. Sockets are attached to it, operations are posted on them, and any thread that waits takes
 * any packet. The words are those of Windows I/O completion ports, so that their documentation explains ours.
 *
 * Operations. A posting call returns
 *     LS_DONE      it is complete, op->result is set, no packet will come
 *     LS_PENDING   exactly one packet will come, cancelled operations included
 *     negative     it was not posted, no packet will come
 * From posting until the packet is taken, the operation and the memory it names belong to the port. At most one
 * receive (or accept, or receive-from) per operation object and any number per socket where it says so; one send
 * per socket at a time. Posting on one socket and closing it are serialised by the caller, but for this: once a
 * receive was pending, a receive and a send may be posted by two threads at the same time. ls_op_cancel, packets and
 * timers may come from any thread.
 *
 * Inline completions (LS_DONE) are counted per thread context. After 500 ms of them without a look at the port an operation
 * that could complete at once is queued instead, and returns LS_PENDING.
 *
 * Operations on files are in file.h.
 *
 * Closing. ls_sock_close gives the descriptor up at once. Operations still pending complete with LS_ECANCELED (or
 * with what they had already achieved); their packets come as usual. */
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
/* How many packets a wait should take: few, because those behind the first wait for it while another thread may be free.
 * A thread that runs alone, and whose packets others take back when it is slow, may take more at a time. */
enum { LS_WAIT_PACKETS = 4, LS_WAIT_PACKETS_MAX = 16 };
enum { LS_INLINE_MS_MAX = 500 };

typedef struct ls_port ls_port;
typedef struct ls_thread_ctx ls_thread_ctx;
typedef struct ls_sock ls_sock;
typedef struct ls_actor ls_actor;
typedef struct ls_op ls_op;
typedef struct ls_datagram ls_datagram;   /* port/datagram.h */
typedef struct ls_datagrams ls_datagrams; /* port/datagram.h */

/* Takes the packet of an operation, on the thread of `thread context`; op->result is set. The op may be posted again, or
 * freed, from inside. */
typedef void ls_op_fn(ls_thread_ctx *ctx, ls_op *op);

typedef struct ls_file_range {
    ls_fd fd; /* stays the caller's, open until the packet */
    uint64_t offset, len;
} ls_file_range;

/* One operation; embedded in whatever owns it. Set `done` (and `actor`) before posting; the rest is the port's. */
struct ls_op {
    ls_op_fn *done;
    ls_actor *actor;        /* NULL: floating, any thread takes the packet; else it is pinned to that actor */
    ls_op *next;            /* the port's, then the actor's, while queued */
    void *key;              /* the key of the socket, or of ls_port_post */
    _Atomic int64_t result; /* bytes (accept: 0), or LS_E*; while a send is pending, the bytes sent so far */
    uint8_t kind, flags;    /* the port's */
    uint16_t count;         /* slices of a send, datagrams of a batch */
    uint32_t len;           /* room of a receive, or for each datagram, in bytes */
    union {
        struct {
            char *ptr;
            ls_block *block;
        } recv; /* block: set when the port supplied the memory */
        struct {
            ls_slice *slices;
            const ls_file_range *file;
        } send;
        struct {
            ls_sockaddr *from;
            ls_fd fd;
        } accept;
        struct {
            const ls_sockaddr *addr;
        } connect;
        struct {
            ls_datagrams *batch;
            bool gather; /* the caller's: see datagram.h */
        } recv_from;
        struct {
            ls_datagram *at;
        } send_to;
        struct {
            uint64_t origin;
            uint32_t events;
        } event; /* a packet without an op that waits in the port's queue */
    };
};

typedef struct ls_packet {
    void *key;
    ls_op *op;       /* NULL for a bare post and for a notification */
    int64_t result;  /* of the op or the post */
    uint32_t events; /* LS_EVENT_* of a notification (port/notify.h), else 0 */
    uint64_t origin; /* the port's: the registration that a notification is of */
} ls_packet;

typedef struct ls_port_options {
    uint32_t sockets_max; /* attached at one time */
    unsigned concurrency; /* where the system counts the threads that run between two waits, as Windows does, it lets a
                           * waiting one go on while fewer than this run: those of a workers and its spares
                           * (workers.h, which keeps to its own `threads` everywhere); 0: one per processor */
    const char *backend;  /* NULL or "auto": the best there is; else a name of ls_port_backends: one that the system
                           * refuses is replaced by one that always works, with a line in the log saying why */
} ls_port_options;

/* Names of what is built in, separated by spaces, the preferred one first. */
const char *ls_port_backends(void);

/* LS_OK; LS_ENOTSUP for an unknown back end; LS_ENOMEM, LS_EMFILE, LS_ESYS. */
int ls_port_open(const ls_port_options *options, ls_port **out);
void ls_port_close(ls_port *port);                /* no thread waits, every socket is closed, every packet was taken */
const char *ls_port_backend(const ls_port *port); /* the one it has */

/* ---- a thread's thread context at the port ------------------------------------------------------------------------- */

typedef struct ls_thread_stats {
    _Atomic uint64_t packets, waits; /* written by the thread's thread, read by any */
    _Atomic uint64_t recv_inline, recv_queued, send_inline, send_queued, accepts;
} ls_thread_stats;

/* What a thread needs to post and wait: its buffer pool, its counters, its inline budget. Public because the
 * layers above reach the pool on every request; written by its own thread only. */
struct ls_thread_ctx {
    ls_port *port;
    ls_pool *pool; /* entered by this thread */
    unsigned index;
    void *user;           /* of whoever runs the threads */
    struct ls_ring *ring; /* the back end's */
    ls_actor *inside;     /* the actor whose turn runs on this thread now, or NULL */
    uint32_t inline_run;  /* inline completions since the last wait */
    uint64_t inline_since_ns;
    int events_max;                 /* the back end's: at most so many at once, as the last ones brought a lot */
    struct ls_gathering *gathering; /* the back end's; NULL until it is needed */
    ls_thread_stats stats;
};

void ls_thread_ctx_init(ls_thread_ctx *ctx, ls_port *port, ls_pool *pool, unsigned index);

/* Take up to `max` packets. timeout_ms < 0 waits for ever, 0 only looks. Returns how many (0: timed out), or a
 * negative code. Packets whose op has an actor must be handed to ls_packet_dispatch, or to the actor. */
int ls_port_wait(ls_port *port, ls_thread_ctx *ctx, ls_packet *packets, int max, int timeout_ms);

/* The thread of this thread context will not wait again soon: it has been inside a handler for long, or parks, or ends. Others then
 * take what would wait for it; without this call it waits for this thread's next wait, which begins a new stay. From any
 * thread, any number of times. Does nothing where all threads wait at the same place. */
void ls_port_detach(ls_port *port, ls_thread_ctx *ctx);

/* Queue a packet of one's own, with `op`, whose key and result are set, or without one (NULL). With an op it cannot
 * fail: that is its own queue node. Without, LS_ENOMEM is possible. Any thread, a signal handler excepted. */
int ls_port_post(ls_port *port, ls_op *op, void *key, int64_t result);

/* Queue again, as it is, a packet that was taken and not begun. Cannot fail for one with an op, else LS_ENOMEM is
 * possible. A notification that is out of date by the time it is taken again does not come again. */
int ls_port_requeue(ls_port *port, const ls_packet *packet);

/* Call op->done, or hand the op to its actor. A bare post has no op and must be handled by its key before. */
void ls_packet_dispatch(ls_thread_ctx *ctx, const ls_packet *packet);

/* ---- sockets ---------------------------------------------------------------------------------------------- */

/* Attach a non-blocking socket (ls_sys_* make such ones). It is the port's from now on; ls_sock_close closes it.
 * LS_OK; LS_ELIMIT past sockets_max, LS_ENOMEM: the descriptor is still the caller's. `maybe_readable` says that nothing was
 * received yet but data may be waiting (an accepted socket): the first receive is tried before it waits. */
int ls_sock_attach(ls_port *port, ls_fd fd, void *key, bool maybe_readable, ls_sock **out);
void ls_sock_close(ls_thread_ctx *ctx, ls_sock *sock);
ls_fd ls_sock_fd(const ls_sock *sock);
void *ls_sock_key(const ls_sock *sock);

/* Accept a connection. Several may be posted ahead on one listener. op->accept.fd is the new descriptor,
 * non-blocking and not yet attached; *from (may be NULL) the peer's address. Out of descriptors: the accept stays
 * pending and is tried again when a descriptor was closed or 100 ms have passed, whichever comes first. */
int ls_op_accept(ls_thread_ctx *ctx, ls_sock *listener, ls_op *op, ls_sockaddr *from);

/* Receive up to len bytes. ptr NULL: the port takes a block of the thread's pool when data is there (len chooses
 * LS_BLOCK_SMALL or LS_BLOCK_LARGE) and hands it over in op->recv.block, one reference; so an idle connection
 * holds no buffer. Result 0: the peer sent its end. An error or 0 hands over no block. len 0: completes with 0 when data or
 * the end is there to be received. */
int ls_op_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, void *ptr, uint32_t len);

/* Send all of the slices in order, then the file range if there is one; completes when everything was taken by
 * the system or with an error. The array and the bytes stay as they are until then; the slices' references stay the
 * caller's. ls_op_sent() tells how far a pending one has come. */
int ls_op_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_slice *slices, uint16_t count,
               const ls_file_range *file);
int64_t ls_op_sent(const ls_op *op);

/* Connect to `to`, which stays until completion. Result 0 or an error. */
int ls_op_connect(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, const ls_sockaddr *to);

/* Stop sending (TCP FIN) once everything posted has left; receives go on. LS_OK or an error. */
int ls_sock_shutdown(ls_sock *sock);

/* Nothing follows the sends that are posted from now on: their last bytes may wait for ls_sock_shutdown or ls_sock_close,
 * to leave in one segment with the end (MSG_MORE of send(2)). Both send them whatever the peer has sent meanwhile. */
void ls_sock_cork_fin(ls_sock *sock);

/* Ask a pending operation to end now with LS_ECANCELED. It may complete otherwise in the same moment; either way its
 * one packet comes. Nothing happens when it is not pending on `sock`. Any thread, as long as the socket is open. */
void ls_op_cancel(ls_sock *sock, ls_op *op);

/* The socket's generation: names this life of the handle. */
uint32_t ls_sock_generation(const ls_sock *sock);

/* Cancel whatever is pending on this life of the socket, as CancelIoEx does without an operation. Any thread, at any
 * time: after the socket was closed it does nothing. */
void ls_sock_cancel(ls_sock *sock, uint32_t generation);

/* When a send that is pending, or was, last made progress: ls_clock_coarse_ms, 0 for never. Any thread, at any time. */
uint64_t ls_sock_progress_ms(const ls_sock *sock);

/* ---- timers ------------------------------------------------------------------------------------------------ */

typedef struct ls_timer {
    ls_op op; /* done, actor: the caller's. The packet comes when the time has come; result 0 */
    uint64_t at_ns;
    uint32_t slot; /* 1 + place in the heap; 0: not armed */
} ls_timer;

/* Arm for `at_ns` on the monotonic clock (ls_clock_ns), or move an armed one; not one whose packet is on its way. LS_OK
 * or LS_ENOMEM. */
int ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns);

/* Move an armed timer, which cannot fail; false: it is not armed (any more), and nothing happened. */
bool ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns);

/* true: it was armed and no packet will come. false: it was not, or its packet is already on its way. */
bool ls_timer_cancel(ls_port *port, ls_timer *timer);

#endif
