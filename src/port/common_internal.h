/* common_internal.h - the part of the completion port that every back end shares: posted packets, the prologues of the
 * operations, the budget of inline completions, timers. Included by the files of port/ and by the back ends only.
 *
 * A back end's struct ls_port begins with an ls_port_base, its struct ls_sock with an ls_sock_base; common.c reaches
 * both through a pointer cast and knows nothing of the rest. The back end opens and closes the base (port_base.c), and
 * supplies the functions at the end of this file. Calls go one way:
 *
 *     port.h: common.c  -->  the back end  -->  port_base.c, timer.c, slots.c, datagram.c, work.c
 *
 * Queue of posted packets. An op is its own queue node. A packet without an op (a post with a key, a notification that
 * was requeued) gets a node from the heap, an ls_key_node, which is freed when the packet is taken.
 *
 *     queued == length of the list (and whatever else the back end counts as work for the next wait)
 *
 * Locks: heap_mutex before mutex. */
#ifndef LS_PORT_COMMON_INTERNAL_H
#define LS_PORT_COMMON_INTERNAL_H

#include <stdlib.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/os/thread.h"
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
       KIND_KEY,     /* of an ls_key_node */
       KIND_BACKEND, /* this and greater values are defined by the back end */
};

typedef struct ls_key_node {
    ls_op op; /* first */
    void *key;
    uint64_t origin; /* as in ls_packet, of a notification */
    uint32_t events;
} ls_key_node;

typedef struct ls_work_pool ls_work_pool; /* work_internal.h */

typedef struct ls_port_base {
    ls_work_pool *work;
    _Atomic uint32_t queued; /* read without the mutex to see that the queue is empty */
    ls_mutex mutex;          /* guards the queue */
    ls_op *first, **last;
    ls_mutex heap_mutex; /* guards the heap and timer_ns */
    ls_heap heap;
    uint64_t timer_ns; /* when the system's timer fires; UINT64_MAX: it is not set */
} ls_port_base;

typedef struct ls_sock_base {
    ls_fd fd;
    _Atomic uint32_t progress_ms, progress_bytes; /* as ls_sock_progress_ms, ls_sock_progress_take */
} ls_sock_base;

enum { LS_DISCARD_BYTES = 16384 }; /* of one receive of KIND_DISCARD */

/* A send has sent `bytes` bytes, and some are left or were left before. Only the thread that sends calls it. */
static inline void ls_sock_progressed(ls_sock_base *base, int64_t bytes)
{
    const uint32_t now_ms = (uint32_t)ls_clock_coarse_ms();
    uint32_t old = atomic_load_explicit(&base->progress_bytes, memory_order_relaxed), sum;
    do sum = bytes < UINT32_MAX - old ? old + (uint32_t)bytes : UINT32_MAX;
    while (!atomic_compare_exchange_weak_explicit(&base->progress_bytes, &old, sum, memory_order_relaxed,
                                                  memory_order_relaxed));
    atomic_store_explicit(&base->progress_ms, now_ms != 0 ? now_ms : 1, memory_order_relaxed);
}

static inline ls_port_base *ls_port_base_of(ls_port *port)
{
    return (ls_port_base *)(void *)port;
}

/* `base` is zeroed; `work` is the back end's to set. */
void ls_port_base_open(ls_port_base *base);
void ls_port_base_close(ls_port_base *base); /* timers still armed are disarmed */

/* ---- the queue of posted packets ------------------------------------------------------------------------------- */

/* Append; wakes no thread. op->result is set. */
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

void ls_queue_free(ls_port_base *base); /* when the port closes: empty the queue, free its key nodes */

static inline ls_packet ls_packet_of(ls_op *op)
{
    return (ls_packet){.op = op, .result = atomic_load_explicit(&op->result, memory_order_relaxed)};
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

/* Append to the queue and wake a thread that waits. op->result is set. Any thread; cannot fail. */
void ls_port_enqueue(ls_port *port, ls_op *op);

/* Post a receive (KIND_RECV, KIND_DISCARD, KIND_RECV_FROM) or a send (KIND_SEND, KIND_SEND_TO) whose fields are set.
 * Return as ls_op_recv and ls_op_send do. */
int ls_sock_post_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);
int ls_sock_post_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op);

/* A notification was taken from the queue. false: it is out of date. */
bool ls_port_take_event(ls_port *port, const ls_key_node *node);

/* The earliest deadline is before timer_ns: have the system's timer fire in time. heap_mutex is held. */
void ls_port_timer_late(ls_port *port);

/* ---- built on those -------------------------------------------------------------------------------------------- */

/* Queue the packet of an operation. */
static inline void ls_queue_post(ls_port *port, ls_op *op, int64_t result)
{
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    ls_port_enqueue(port, op);
}

/* The packet of an op or a node that was taken from the queue; frees a node. false: it was a notification that is out
 * of date. */
static inline bool ls_packet_of_queued(ls_port *port, ls_op *op, ls_packet *out)
{
    *out = ls_packet_of(op);
    if (op->kind != KIND_KEY) return true;
    ls_key_node *node = (ls_key_node *)(void *)op;
    const bool is_packet = node->events == 0 || ls_port_take_event(port, node);
    out->op = NULL;
    out->key = node->key;
    out->origin = node->origin;
    out->events = node->events;
    free(node);
    return is_packet;
}

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

/* ls_timer_set */
static inline int ls_port_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    ls_port_base *base = ls_port_base_of(port);
    ls_mutex_lock(&base->heap_mutex);
    const int err = ls_heap_set(&base->heap, timer, at_ns);
    if (err == LS_OK) ls_timers_changed(port);
    ls_mutex_unlock(&base->heap_mutex);
    return err;
}

#endif
