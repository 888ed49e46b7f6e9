/* common_internal.h - the part of the completion port that every back end shares: posted packets, the prologues of the
 * operations, the budget of inline completions, timers. Included by common.c and by the back ends only.
 *
 * A back end's struct ls_port begins with an ls_port_base, its struct ls_sock with an ls_sock_base; common.c reaches
 * both through a pointer cast and knows nothing of the rest. The back end opens and closes the base, and supplies the
 * functions at the end of this file.
 *
 * Queue of posted packets. An op is its own queue node. A packet without an op (a bare post, a notification that was
 * requeued) gets a node from the heap, marked FLAG_HEAP_NODE, which is freed when the packet is taken.
 *
 *     queued == length of the list (and whatever else the back end counts as work for the next wait)
 *
 * Locks: heap_mutex before mutex. */
#ifndef LS_PORT_COMMON_INTERNAL_H
#define LS_PORT_COMMON_INTERNAL_H

#include "base/clock.h"
#include "base/counter.h"
#include "base/thread.h"
#include "port/file_internal.h"
#include "port/port.h"
#include "port/timer.h"

enum { /* ls_op.kind */
       KIND_NONE,
       KIND_RECV,
       KIND_ACCEPT,
       KIND_SEND,
       KIND_CONNECT,
       KIND_RECV_FROM,
       KIND_SEND_TO,
       KIND_DISCARD, /* a receive into no memory */
       KIND_WATCH,
       KIND_EVENT,   /* the node of a notification */
       KIND_BACKEND, /* this and greater values are defined by the back end */
};
enum { FLAG_HEAP_NODE = 1 }; /* ls_op.flags: the node of a packet without an op */

typedef struct ls_port_base {
    ls_files *files;
    _Atomic uint32_t queued; /* read without the mutex to see that the queue is empty */
    ls_mutex mutex;          /* guards the queue */
    ls_op *first, **last;
    ls_mutex heap_mutex; /* guards the heap and timer_ns */
    ls_heap heap;
    uint64_t timer_ns; /* when the system's timer fires; UINT64_MAX: it is not set */
} ls_port_base;

typedef struct ls_sock_base {
    void *key;
    ls_fd fd;
    _Atomic uint64_t progress_ms, progress_bytes; /* as ls_sock_progress_ms, ls_sock_progress_bytes */
} ls_sock_base;

enum { LS_DISCARD_BYTES = 16384 }; /* of one receive of KIND_DISCARD */

/* A send has sent `bytes` bytes, and some are left or were left before. Only the thread that sends calls it. */
static inline void ls_sock_progressed(ls_sock_base *base, int64_t bytes)
{
    ls_counter_add(&base->progress_bytes, (uint64_t)bytes);
    atomic_store_explicit(&base->progress_ms, ls_clock_coarse_ms(), memory_order_relaxed);
}

static inline ls_port_base *ls_port_base_of(ls_port *port)
{
    return (ls_port_base *)(void *)port;
}

/* `base` is zeroed. LS_OK or an error of ls_mutex_open; `files` is the back end's to set. */
int ls_port_base_open(ls_port_base *base);
void ls_port_base_close(ls_port_base *base); /* timers still armed are disarmed */

/* ---- the queue of posted packets ------------------------------------------------------------------------------- */

/* Append; wakes no thread. op->key and op->result are set. */
static inline void ls_queue_push(ls_port_base *base, ls_op *op)
{
    op->next = NULL;
    ls_mutex_lock(&base->mutex);
    *base->last = op;
    base->last = &op->next;
    atomic_fetch_add(&base->queued, 1);
    ls_mutex_unlock(&base->mutex);
}

/* The oldest, or NULL. The mutex is held; the caller reduces `queued`. */
static inline ls_op *ls_queue_pop(ls_port_base *base)
{
    ls_op *op = base->first;
    if (op != NULL && (base->first = op->next) == NULL) base->last = &base->first;
    return op;
}

void ls_queue_free(ls_port_base *base); /* when the port closes: empty the queue, free its heap nodes */

static inline ls_packet ls_packet_of(void *key, ls_op *op)
{
    return (ls_packet){.key = key, .op = op, .result = atomic_load_explicit(&op->result, memory_order_relaxed)};
}

bool ls_packet_of_heap_node(ls_port *port, ls_op *node, ls_packet *out); /* frees the node */

/* The packet of an op or a node that was taken from the queue. false: it was a notification that is out of date. */
static inline bool ls_packet_of_queued(ls_port *port, ls_op *op, ls_packet *out)
{
    *out = ls_packet_of(op->key, op);
    return !(op->flags & FLAG_HEAP_NODE) || ls_packet_of_heap_node(port, op, out);
}

/* ---- operations ------------------------------------------------------------------------------------------------ */

static inline void ls_op_begin(ls_op *op, uint8_t kind, void *key)
{
    op->kind = kind;
    op->flags = 0;
    op->key = key;
}

/* ---- inline completions ---------------------------------------------------------------------------------------- */

/* A wait begins a new budget. */
static inline void ls_inline_reset(ls_thread_ctx *ctx)
{
    ctx->inline_run = 0;
    ctx->inline_since_ns = 0;
}

/* Count one inline completion. true: the budget (inline_ms_max) is spent. The first after a wait, which is the one
 * of a plain request, reads no clock. */
static inline bool ls_inline_spent(ls_thread_ctx *ctx)
{
    if (++ctx->inline_run == 1) return false;
    const uint64_t now_ns = ls_clock_coarse_ms() * 1000000u;
    if (ctx->inline_since_ns == 0) ctx->inline_since_ns = now_ns;
    return now_ns >= ctx->inline_since_ns + ctx->inline_ms_max * UINT64_C(1000000);
}

/* ---- supplied by the back end ---------------------------------------------------------------------------------- */

/* Append to the queue and wake a thread that waits. op->key and op->result are set. Any thread; cannot fail. */
void ls_port_enqueue(ls_port *port, ls_op *op);

/* Post a receive (KIND_RECV, KIND_DISCARD, KIND_RECV_FROM) or a send (KIND_SEND, KIND_SEND_TO) whose fields are set.
 * Return as ls_op_recv and ls_op_send do. */
int ls_sock_post_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int ls_sock_post_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);

/* The packet of a notification (KIND_EVENT) was taken from the queue. false: it is out of date. */
bool ls_port_take_event(ls_port *port, const ls_op *node);

/* The earliest deadline is before timer_ns: have the system's timer fire in time. heap_mutex is held. */
void ls_port_timer_late(ls_port *port);

/* ---- built on those -------------------------------------------------------------------------------------------- */

/* An operation is complete at once: LS_DONE, or LS_PENDING when the budget is spent and it goes through the queue. */
static inline int ls_op_complete(ls_thread_ctx *ctx, ls_op *op, int64_t result, _Atomic uint64_t *inlined,
                                 _Atomic uint64_t *queued)
{
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    if (ls_inline_spent(ctx)) {
        ls_counter_add(queued, 1);
        ls_port_enqueue(ctx->port, op);
        return LS_PENDING;
    }
    ls_counter_add(inlined, 1);
    return LS_DONE;
}

/* After a change of the heap or of timer_ns; heap_mutex is held. A system timer that fires too early is harmless, so
 * it is moved only when it would be late. */
static inline void ls_timers_changed(ls_port *port)
{
    const ls_port_base *base = ls_port_base_of(port);
    if (ls_heap_next_ns(&base->heap) < base->timer_ns) ls_port_timer_late(port);
}

#endif
