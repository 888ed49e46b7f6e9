/* common.c - the functions of port.h that are the same on every back end: see common_internal.h. */
#include "port/common_internal.h"

#include <stdlib.h>
#include <string.h>

void ls_thread_ctx_init(ls_thread_ctx *ctx, ls_port *port, ls_pool *pool, unsigned index)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->port = port;
    ctx->pool = pool;
    ctx->index = index;
    ctx->inline_ms_max = LS_INLINE_MS_MAX;
    ctx->events_max = LS_WAIT_PACKETS_MAX;
}

int ls_port_base_open(ls_port_base *base)
{
    int err = ls_mutex_open(&base->mutex);
    if (err < 0) return err;
    if ((err = ls_mutex_open(&base->heap_mutex)) < 0) {
        ls_mutex_close(&base->mutex);
        return err;
    }
    base->last = &base->first;
    base->timer_ns = UINT64_MAX;
    ls_heap_open(&base->heap);
    return LS_OK;
}

void ls_port_base_close(ls_port_base *base)
{
    ls_heap_close(&base->heap);
    ls_mutex_close(&base->heap_mutex);
    ls_mutex_close(&base->mutex);
}

ls_files *ls_port_files(ls_port *port)
{
    return ls_port_base_of(port)->files;
}

/* ---- the queue of posted packets ------------------------------------------------------------------------------- */

void ls_queue_free(ls_port_base *base)
{
    for (ls_op *op; (op = ls_queue_pop(base)) != NULL;)
        if (op->flags & FLAG_HEAP_NODE) free(op);
}

int ls_port_post(ls_port *port, ls_op *op, void *key, int64_t result)
{
    if (op == NULL) {
        if ((op = calloc(1, sizeof *op)) == NULL) return LS_ENOMEM;
        op->flags = FLAG_HEAP_NODE;
    }
    op->key = key;
    atomic_store_explicit(&op->result, result, memory_order_relaxed);
    ls_port_enqueue(port, op);
    return LS_OK;
}

int ls_port_requeue(ls_port *port, const ls_packet *packet)
{
    if (packet->events == 0) return ls_port_post(port, packet->op, packet->key, packet->result);
    ls_op *node = calloc(1, sizeof *node);
    if (node == NULL) return LS_ENOMEM;
    node->kind = KIND_EVENT;
    node->flags = FLAG_HEAP_NODE;
    node->key = packet->key;
    node->event.origin = packet->origin;
    node->event.events = packet->events;
    ls_port_enqueue(port, node);
    return LS_OK;
}

bool ls_packet_of_heap_node(ls_port *port, ls_op *node, ls_packet *out)
{
    bool is_packet = true;
    out->op = NULL;
    if (node->kind == KIND_EVENT) {
        out->events = node->event.events;
        out->origin = node->event.origin;
        is_packet = ls_port_take_event(port, node);
    }
    free(node);
    return is_packet;
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

void *ls_sock_key(const ls_sock *sock)
{
    return base_of(sock)->key;
}

uint64_t ls_sock_progress_ms(const ls_sock *sock)
{
    return atomic_load_explicit(&base_of(sock)->progress_ms, memory_order_relaxed);
}

int ls_op_recv(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, void *ptr, uint32_t len)
{
    ls_op_begin(op, KIND_RECV, base_of(sock)->key);
    op->len = len;
    op->recv.ptr = ptr;
    op->recv.block = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_discard(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op)
{
    ls_op_begin(op, KIND_DISCARD, base_of(sock)->key);
    op->len = LS_DISCARD_BYTES;
    op->recv.ptr = NULL;
    op->recv.block = NULL;
    return ls_sock_post_recv(ctx, sock, op);
}

int ls_op_send(ls_thread_ctx *ctx, ls_sock *sock, ls_op *op, ls_slice *slices, uint16_t count,
               const ls_file_range *file)
{
    ls_op_begin(op, KIND_SEND, base_of(sock)->key);
    op->count = count;
    op->send.slices = slices;
    op->send.file = file;
    return ls_sock_post_send(ctx, sock, op);
}

int64_t ls_op_sent(const ls_op *op)
{
    return atomic_load_explicit(&op->result, memory_order_relaxed);
}

uint64_t ls_sock_progress_bytes(const ls_sock *sock)
{
    return atomic_load_explicit(&base_of(sock)->progress_bytes, memory_order_relaxed);
}

/* ---- timers ---------------------------------------------------------------------------------------------------- */

int ls_timer_set(ls_port *port, ls_timer *timer, uint64_t at_ns)
{
    ls_port_base *base = ls_port_base_of(port);
    ls_mutex_lock(&base->heap_mutex);
    const int err = ls_heap_set(&base->heap, timer, at_ns);
    if (err == LS_OK) ls_timers_changed(port);
    ls_mutex_unlock(&base->heap_mutex);
    return err;
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
