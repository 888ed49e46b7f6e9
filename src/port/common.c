/* common.c - the functions of port.h and datagram.h that are the same on every back end and call it: see
 * common_internal.h. No back end calls a function of this file. */
#include "port/common_internal.h"

#include <assert.h>
#include <string.h>

#include "port/datagram.h"

void ls_thread_ctx_init(ls_thread_ctx *ctx, ls_port *port, ls_pool *pool, unsigned index)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->port = port;
    ctx->pool = pool;
    ctx->index = index;
    ctx->inline_ms_max = LS_INLINE_MS_MAX;
    ctx->events_max = LS_WAIT_PACKETS_MAX;
}

/* ---- the queue of posted packets ------------------------------------------------------------------------------- */

void ls_port_post(ls_port *port, ls_op *op, int64_t result)
{
    ls_queue_post(port, op, result);
}

int ls_port_requeue(ls_port *port, const ls_packet *packet)
{
    if (packet->op != NULL) {
        ls_queue_post(port, packet->op, packet->result);
        return LS_OK;
    }
    ls_key_node *node = calloc(1, sizeof *node);
    if (node == NULL) return LS_ENOMEM;
    node->op.kind = KIND_KEY;
    node->key = packet->key;
    node->origin = packet->origin;
    node->events = packet->events;
    ls_queue_post(port, &node->op, packet->result);
    return LS_OK;
}

int ls_port_post_key(ls_port *port, void *key, int64_t result)
{
    return ls_port_requeue(port, &(ls_packet){.key = key, .result = result});
}

/* ---- sockets and operations ------------------------------------------------------------------------------------ */

static const ls_sock_base *base_of(const ls_sock *sock)
{
    return (const ls_sock_base *)(const void *)sock;
}

ls_fd ls_sock_fd(const ls_sock *sock)
{
    return base_of(sock)->fd;
}

uint32_t ls_sock_progress_ms(const ls_sock *sock)
{
    return atomic_load_explicit(&base_of(sock)->progress_ms, memory_order_relaxed);
}

int ls_op_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, void *ptr, uint32_t len)
{
    op->kind = KIND_RECV;
    op->len = len;
    op->recv.ptr = ptr;
    op->recv.block = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_discard(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    op->kind = KIND_DISCARD;
    op->len = LS_DISCARD_BYTES;
    op->recv.ptr = NULL;
    op->recv.block = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_slice *slices, uint16_t count,
               const ls_file_range *file)
{
    op->kind = KIND_SEND;
    op->count = count;
    op->send.slices = slices;
    op->send.file = file;
    return ls_sock_post_send(ctx, sock, op);
}

uint32_t ls_sock_progress_take(ls_sock *sock)
{
    return atomic_exchange_explicit(&((ls_sock_base *)(void *)sock)->progress_bytes, 0, memory_order_relaxed);
}

int ls_op_recv_from(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, unsigned count, uint32_t bytes_max)
{
    assert(count >= 1 && count <= LS_DATAGRAMS_MAX && bytes_max >= 1 && bytes_max <= LS_DATAGRAM_BYTES_MAX);
    op->kind = KIND_RECV_FROM;
    op->count = (uint16_t)count;
    op->len = bytes_max;
    op->recv_from.batch = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_send_to(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_datagram *datagrams, uint16_t count)
{
    assert(count >= 1);
    op->kind = KIND_SEND_TO;
    op->count = count;
    op->send_to.at = datagrams;
    for (unsigned i = 0; i < count; i++) datagrams[i].error = LS_OK;
    return ls_sock_post_send(ctx, sock, op);
}

/* ---- timers ---------------------------------------------------------------------------------------------------- */

int ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    return ls_port_timer_set(port, timer, at_ns);
}

bool ls_timer_move(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    ls_port_base *base = ls_port_base_of(port);
    ls_mutex_lock(&base->heap_mutex);
    const bool is_armed = timer->slot != 0;
    if (is_armed) {
        (void)ls_heap_set(&base->heap, timer, at_ns);
        ls_timers_changed(port);
    }
    ls_mutex_unlock(&base->heap_mutex);
    return is_armed;
}

bool ls_timer_cancel(ls_port *port, ls_timer *timer)
{
    ls_port_base *base = ls_port_base_of(port);
    ls_mutex_lock(&base->heap_mutex);
    const bool was_armed = ls_heap_remove(&base->heap, timer);
    ls_mutex_unlock(&base->heap_mutex);
    return was_armed;
}
