/* vu.c - one connection of the load generator. See vu.h.
 *
 * A virtual user is opened from the worker's loop only, never from inside its own callbacks: a server that refuses or
 * closes connections at once cannot cause a recursion. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/sock.h"
#include "net/udp.h"
#include "stress/arrivals.h"
#include "stress/worker.h"

enum { DATAGRAMS_AT_ONCE = 4 };

static bool is_datagram(const ls_stress_worker *w)
{
    return w->plan->target.kind == LS_STRESS_TARGET_UDP;
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static void drop_slice(ls_stress_vu *u)
{
    ls_slice_drop(&u->slice);
    free(u->tx_heap);
    u->tx_heap = NULL;
}

bool ls_stress_vu_reserve(ls_stress_vu *u, size_t len, char **out)
{
    assert(!u->tx_pending);
    drop_slice(u);
    if (len <= LS_BLOCK_LARGE) {
        ls_block *block = ls_block_get(u->worker->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (block == NULL) return false;
        *out = block->data;
        u->slice = (ls_slice){block, block->data, len};
    } else {
        if ((u->tx_heap = malloc(len)) == NULL) return false;
        *out = u->tx_heap;
        u->slice = ls_slice_static(u->tx_heap, len);
    }
    return true;
}

bool ls_stress_vu_reserve_more(ls_stress_vu *u, size_t len, char **out)
{
    const size_t before = u->slice.len, all = before + len;
    if (u->slice.block != NULL && all <= u->slice.block->cap) {
        *out = u->slice.block->data + before;
        u->slice.len = all;
        return true;
    }
    ls_slice old = u->slice;
    char *old_heap = u->tx_heap, *to;
    u->slice = (ls_slice){NULL, NULL, 0};
    u->tx_heap = NULL;
    const bool ok = ls_stress_vu_reserve(u, all, &to);
    if (ok) {
        memcpy(to, old.ptr, before);
        *out = to + before;
    }
    ls_slice_drop(&old);
    free(old_heap);
    return ok;
}

static int post_send(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    if (!is_datagram(w)) return ls_op_send(&w->ctx, u->sock, &u->tx, &u->slice, 1, NULL);
    *u->datagram = (ls_datagram){.slice = u->slice};
    return ls_op_send_to(&w->ctx, u->sock, &u->tx, u->datagram, 1);
}

bool ls_stress_vu_send(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const size_t len = u->slice.len;
    int err = post_send(u);
    w->clock_stale = true;
    if (err == LS_PENDING) {
        u->tx_pending = true;
        u->pending++;
    } else if (err < 0) {
        drop_slice(u);
        /* A server that has closed resets the connection on later data: the lost response is the error, not the
         * send. */
        ls_stress_vu_fail(u, err == LS_EPIPE || err == LS_ERESET ? LS_STRESS_ERROR_READ : LS_STRESS_ERROR_WRITE);
        return false;
    } else if (u->slice.block != NULL || u->tx_heap != NULL) {
        drop_slice(u);
    }
    ls_counter_add(&w->count.bytes_out, len);
    return true;
}

static void finish_close(ls_stress_vu *u);

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_vu, tx);
    const int64_t result = op->result;
    u->tx_pending = false;
    u->pending--;
    drop_slice(u);
    if (u->state == LS_STRESS_VU_CLOSING)
        finish_close(u);
    else if (result < 0)
        ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    else if (u->worker->proto->sent != NULL)
        u->worker->proto->sent(u);
    else
        ls_stress_arrivals_vu_ready(u->worker, u);
}

/* Record, compose and send `count` requests. */
static void send_requests(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    const uint32_t pipeline = w->pipeline, from = u->outstanding;
    assert(u->state == LS_STRESS_VU_OPEN && !u->tx_pending && from + count <= pipeline);
    u->outstanding += count;
    w->outstanding += count;
    if (w->proto->compose != NULL && !w->proto->compose(u, count)) return;
    const uint64_t now_ns = ls_stress_worker_now(w);
    for (uint32_t i = from; i < u->outstanding; i++) u->requests[(u->first + i) % pipeline].sent_ns = now_ns;
    if (w->proto->start != NULL)
        w->proto->start(u);
    else
        (void)ls_stress_vu_send(u);
}

void ls_stress_vu_set_due(ls_stress_vu *u, uint32_t i, uint64_t due_ns)
{
    u->requests[(u->first + u->outstanding + i) % u->worker->pipeline].due_ns = due_ns;
}

void ls_stress_vu_request(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    for (uint32_t i = u->outstanding; i < u->outstanding + count; i++)
        u->requests[(u->first + i) % w->pipeline].is_head =
            w->plan->is_head; /* compose() sets it for a script's requests */
    if (w->left != UINT64_MAX) w->left -= count < w->left ? count : w->left;
    if (u->left != UINT64_MAX) u->left -= count < u->left ? count : u->left;
    send_requests(u, count);
}

void ls_stress_vu_retry(ls_stress_vu *u)
{
    const uint32_t count = u->retries;
    u->worker->retries -= count;
    u->retries = 0;
    send_requests(u, count);
}

void ls_stress_vu_retry_later(ls_stress_vu *u)
{
    u->retries = u->outstanding;
    u->worker->retries += u->outstanding;
    u->worker->outstanding -= u->outstanding;
    u->outstanding = 0;
}

void ls_stress_vu_complete(ls_stress_vu *u, unsigned status)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_request *request = &u->requests[u->first];
    const uint64_t now_ns = w->now_ns;
    assert(u->outstanding > 0);
    ls_counter_add(&w->count.requests, 1);
    if (u->check_failed) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CHECK], 1);
    u->check_failed = false;
    ls_counter_add(&w->count.status[status <= LS_STRESS_STATUS_MAX ? status : 0], 1);
    ls_histogram_record(w->count.sent, now_ns > request->sent_ns ? now_ns - request->sent_ns : 0);
    if (w->open_loop) ls_histogram_record(w->count.due, now_ns > request->due_ns ? now_ns - request->due_ns : 0);
    if (++u->first == w->pipeline) u->first = 0;
    u->outstanding--;
    u->used = true;
    w->outstanding--;
    if (!w->ending) w->ended_ns = now_ns;
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

/* Handle a completed receive. False: the connection is closed or closing. */
static bool handle_stream(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    if (result <= 0) {
        if (result < 0 && u->outstanding > 0) ls_stress_worker_record_failure(w, ls_err_text((int)result), "", 0);
        if (result == 0)
            w->proto->peer_closed(u);
        else
            ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
        return false;
    }
    ls_block *block = u->rx.recv.block;
    ls_counter_add(&w->count.bytes_in, (uint64_t)result);
    /* A receive that fills its block is part of a large response: the next one gets a large block. */
    u->recv_room = (uint32_t)result == block->cap      ? LS_BLOCK_LARGE
                   : (uint32_t)result > LS_BLOCK_SMALL ? u->recv_room
                                                       : LS_BLOCK_SMALL;
    const bool ok = w->proto->received(u, block->data, (size_t)result);
    ls_block_drop(block);
    return ok;
}

static bool handle_datagrams(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    if (result < 0) {
        ls_stress_vu_fail(u, result == LS_EREFUSED ? LS_STRESS_ERROR_CONNECT : LS_STRESS_ERROR_READ);
        return false;
    }
    ls_datagrams *batch = u->rx.recv_from.batch;
    bool ok = true;
    for (unsigned i = 0; ok && i < batch->count; i++) {
        ls_counter_add(&w->count.bytes_in, batch->at[i].slice.len);
        ok = w->proto->received(u, batch->at[i].slice.ptr, batch->at[i].slice.len);
    }
    ls_datagrams_drop(batch);
    return ok;
}

static bool handle_receive(ls_stress_vu *u, int64_t result)
{
    const bool ok = is_datagram(u->worker) ? handle_datagrams(u, result) : handle_stream(u, result);
    if (ok) ls_stress_arrivals_vu_ready(u->worker, u);
    return ok && u->state == LS_STRESS_VU_OPEN;
}

/* Post receives, and handle those that complete at once. */
static void receive(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    while (u->state == LS_STRESS_VU_OPEN && !u->rx_pending) {
        int err = is_datagram(w) ? ls_op_recv_from(&w->ctx, u->sock, &u->rx, DATAGRAMS_AT_ONCE, LS_UDP_PAYLOAD_MAX)
                                 : ls_op_recv(&w->ctx, u->sock, &u->rx, NULL, u->recv_room);
        if (err == LS_PENDING) {
            u->rx_pending = true;
            u->pending++;
            return;
        }
        w->now_ns = ls_stress_worker_now(w); /* the data arrived after this batch of packets */
        if (!handle_receive(u, err == LS_DONE ? u->rx.result : err)) return;
    }
}

static void received(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_vu, rx);
    const int64_t result = op->result;
    u->rx_pending = false;
    u->pending--;
    if (u->state == LS_STRESS_VU_CLOSING) {
        if (result > 0 && !is_datagram(u->worker)) ls_block_drop(op->recv.block);
        if (result > 0 && is_datagram(u->worker)) ls_datagrams_drop(op->recv_from.batch);
        finish_close(u);
    } else if (handle_receive(u, result)) {
        receive(u);
    }
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static void connect_failed(ls_stress_vu *u, int err)
{
    ls_stress_worker *w = u->worker;
    int no_error = 0;
    ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CONNECT], 1);
    (void)atomic_compare_exchange_strong(&w->first_error, &no_error, err);
    /* A failed connect counts as a request, so that a run with a number of requests ends without a server. */
    if (w->running && u->retries == 0 && w->left != UINT64_MAX && w->left > 0) w->left--;
    if (w->running && u->retries == 0 && u->left != UINT64_MAX && u->left > 0) u->left--;
    if (u->retries > 0) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CONNECT], u->retries - 1);
    w->retries -= u->retries;
    u->retries = 0;
    u->reconnect_later = true;
    ls_stress_vu_close(u);
    ls_stress_worker_vu_settled(w, u);
    ls_stress_worker_check_end(w);
}

static void opened(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    u->state = LS_STRESS_VU_OPEN;
    u->recv_room = LS_BLOCK_SMALL;
    u->used = false;
    u->tx.done = sent;
    w->connecting--;
    ls_counter_add(&w->count.connects, 1);
    ls_counter_add(&w->count.connections, 1);
    ls_stress_worker_vu_settled(w, u);
    if (w->proto->opened != NULL && !w->proto->opened(u)) return;
    ls_stress_arrivals_vu_ready(w, u);
    receive(u);
}

static void connected(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_vu, tx);
    const int64_t result = op->result;
    u->pending--;
    if (u->state == LS_STRESS_VU_CLOSING)
        finish_close(u);
    else if (result < 0)
        connect_failed(u, (int)result);
    else
        opened(u);
}

static int open_socket(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    ls_fd fd;
    ls_addr local;
    ls_udp_setup setup;
    int err;
    if (is_datagram(w)) {
        ls_udp_setup_defaults(&setup);
        err = ls_udp_sock_open(&setup, NULL, &w->addr, &fd, &local);
    } else {
        err = ls_sock_open(w->addr.family, &fd);
    }
    if (err < 0) return err;
    if ((err = ls_sock_attach(w->port, fd, u, false, &u->sock)) < 0) ls_sock_discard(fd);
    return err;
}

int ls_stress_vu_open(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    assert(u->state == LS_STRESS_VU_CLOSED && u->pending == 0);
    u->reconnect_later = false;
    u->connect_start_ns = ls_stress_worker_now(w);
    w->connecting++;
    w->unclosed++;
    u->state = LS_STRESS_VU_CONNECTING;
    u->sock = NULL;
    u->rx.done = received;
    u->tx.done = connected;
    u->rx_pending = u->tx_pending = false;
    int err = open_socket(u);
    if (err == LS_OK && !is_datagram(w)) err = ls_op_connect(&w->ctx, u->sock, &u->tx, &w->to);
    w->clock_stale = true;
    if (err == LS_PENDING) {
        u->pending++;
        return LS_OK;
    }
    if (err < 0)
        connect_failed(u, err);
    else
        opened(u);
    return err;
}

/* Become CLOSED if no packet is pending. */
static void finish_close(ls_stress_vu *u)
{
    if (u->pending > 0 || u->timer_pending) return;
    u->state = LS_STRESS_VU_CLOSED;
    drop_slice(u);
    u->worker->unclosed--;
    ls_stress_worker_vu_closed(u->worker, u);
}

void ls_stress_vu_timer_done(ls_stress_vu *u)
{
    finish_close(u);
}

void ls_stress_vu_close(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    if (u->state == LS_STRESS_VU_CLOSED || u->state == LS_STRESS_VU_CLOSING) return;
    if (u->state == LS_STRESS_VU_CONNECTING) w->connecting--;
    if (u->state == LS_STRESS_VU_OPEN) {
        atomic_store_explicit(&w->count.connections, ls_counter_read(&w->count.connections) - 1, memory_order_relaxed);
        w->proto->closed(u);
    }
    u->state = LS_STRESS_VU_CLOSING;
    w->clock_stale = true;
    if (u->sock != NULL) ls_sock_close(&w->ctx, u->sock);
    finish_close(u);
}

void ls_stress_vu_time_out(ls_stress_vu *u)
{
    if (u->state == LS_STRESS_VU_CONNECTING)
        connect_failed(u, LS_ETIMEDOUT);
    else
        ls_stress_vu_fail(u, LS_STRESS_ERROR_TIMEOUT);
}

void ls_stress_vu_fail(ls_stress_vu *u, ls_stress_error kind)
{
    ls_stress_worker *w = u->worker;
    const uint32_t failed = u->outstanding + u->retries;
    u->check_failed = false;
    /* An orderly close of an idle connection is not counted here (peer_closed); a failed one is. */
    ls_counter_add(&w->count.errors[kind], failed > 0 ? failed : 1);
    w->outstanding -= u->outstanding;
    w->retries -= u->retries;
    u->outstanding = u->retries = u->first = 0;
    if (!w->ending) w->ended_ns = w->now_ns;
    ls_stress_vu_close(u);
    ls_stress_worker_check_end(w);
}
