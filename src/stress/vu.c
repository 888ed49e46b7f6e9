/* vu.c - one connection of the load engine: connect, ask, receive, close. What the bytes mean is its proto's affair.
 *
 * The socket is closed by ls_stress_vu_close alone. Operations pending then end by packets, which `pending` counts; when the
 * last has come the virtual user is closed and may be opened again. It is never opened from inside a callback of its own, only
 * from the worker's loop: a server that refuses or hangs up at once cannot make this recurse. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/sock.h"
#include "net/udp.h"
#include "stress/worker.h"

enum { DATAGRAMS_AT_ONCE = 4 };

static bool is_datagram(const ls_stress_worker *w)
{
    return w->plan->target.kind == LS_TARGET_UDP;
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

static void drop_slice(ls_stress_vu *u)
{
    ls_slice_drop(&u->slice);
    free(u->big);
    u->big = NULL;
}

bool ls_stress_vu_room(ls_stress_vu *u, size_t len, char **out)
{
    assert(!u->tx_pending);
    drop_slice(u);
    if (len <= LS_BLOCK_LARGE) {
        ls_block *block = ls_block_get(u->worker->pool, len <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (block == NULL) return false;
        *out = block->data;
        u->slice = (ls_slice){block, block->data, len};
    } else {
        if ((u->big = malloc(len)) == NULL) return false;
        *out = u->big;
        u->slice = ls_slice_static(u->big, len);
    }
    return true;
}

bool ls_stress_vu_more_room(ls_stress_vu *u, size_t len, char **out)
{
    const size_t before = u->slice.len, all = before + len;
    if (u->slice.block != NULL && all <= u->slice.block->cap) {
        *out = u->slice.block->data + before;
        u->slice.len = all;
        return true;
    }
    ls_slice old = u->slice;
    char *old_big = u->big, *to;
    u->slice = (ls_slice){NULL, NULL, 0};
    u->big = NULL;
    const bool good = ls_stress_vu_room(u, all, &to);
    if (good) {
        memcpy(to, old.ptr, before);
        *out = to + before;
    }
    ls_slice_drop(&old);
    free(old_big);
    return good;
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
    w->stale = true;
    if (err == LS_PENDING) {
        u->tx_pending = true;
        u->pending++;
    } else if (err < 0) {
        drop_slice(u);
        /* A server that has closed answers what comes later with a reset: then its answer, or its end, is what counts. */
        ls_stress_vu_fail(u, err == LS_EPIPE || err == LS_ERESET ? LS_STRESS_ERROR_READ : LS_STRESS_ERROR_WRITE);
        return false;
    } else if (u->slice.block != NULL || u->big != NULL) {
        drop_slice(u);
    }
    ls_counter_add(&w->count.bytes_out, len);
    return true;
}

static void closing(ls_stress_vu *u);

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_vu, tx);
    const int64_t result = op->result;
    u->tx_pending = false;
    u->pending--;
    drop_slice(u);
    if (u->state == LS_STRESS_VU_CLOSING)
        closing(u);
    else if (result < 0)
        ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    else if (u->worker->proto->flushed != NULL)
        u->worker->proto->flushed(u);
    else
        ls_stress_worker_free(u->worker, u);
}

/* Note, make and send `count` requests. */
static void request(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    const uint32_t pipeline = w->pipeline, from = u->outstanding;
    assert(u->state == LS_STRESS_VU_OPEN && !u->tx_pending && from + count <= pipeline);
    u->outstanding += count;
    w->busy += count;
    if (w->proto->compose != NULL && !w->proto->compose(u, count)) return;
    const uint64_t now_ns = ls_stress_worker_now(w);
    for (uint32_t i = from; i < u->outstanding; i++) u->requests[(u->first + i) % pipeline].sent_ns = now_ns;
    if (w->proto->begin != NULL)
        w->proto->begin(u);
    else
        (void)ls_stress_vu_send(u);
}

void ls_stress_vu_due(ls_stress_vu *u, uint32_t i, uint64_t due_ns)
{
    u->requests[(u->first + u->outstanding + i) % u->worker->pipeline].due_ns = due_ns;
}

void ls_stress_vu_request(ls_stress_vu *u, uint32_t count)
{
    ls_stress_worker *w = u->worker;
    for (uint32_t i = u->outstanding; i < u->outstanding + count; i++)
        u->requests[(u->first + i) % w->pipeline].to_head =
            w->plan->to_head; /* a script's are looked at when they are made */
    if (w->left != UINT64_MAX) w->left -= count < w->left ? count : w->left;
    if (u->left != UINT64_MAX) u->left -= count < u->left ? count : u->left;
    request(u, count);
}

void ls_stress_vu_retry(ls_stress_vu *u)
{
    const uint32_t count = u->to_retry;
    u->worker->to_retry -= count;
    u->to_retry = 0;
    request(u, count);
}

void ls_stress_vu_retry_later(ls_stress_vu *u)
{
    u->to_retry = u->outstanding;
    u->worker->to_retry += u->outstanding;
    u->worker->busy -= u->outstanding;
    u->outstanding = 0;
}

void ls_stress_vu_answered(ls_stress_vu *u, unsigned status)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_request *request = &u->requests[u->first];
    const uint64_t now_ns = w->now_ns;
    assert(u->outstanding > 0);
    ls_counter_add(&w->count.requests, 1);
    ls_counter_add(&w->count.status[status <= LS_STRESS_STATUS_MAX ? status : 0], 1);
    ls_histogram_record(w->count.sent, now_ns > request->sent_ns ? now_ns - request->sent_ns : 0);
    if (w->open_loop) ls_histogram_record(w->count.due, now_ns > request->due_ns ? now_ns - request->due_ns : 0);
    if (++u->first == w->pipeline) u->first = 0;
    u->outstanding--;
    u->used = true;
    w->busy--;
    if (!w->ending) w->ended_ns = now_ns;
}

/* ---- receive ----------------------------------------------------------------------------------------------------- */

/* A receive has ended. False: the connection is gone, or about to be. */
static bool take_stream(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    if (result <= 0) {
        if (result < 0 && u->outstanding > 0) ls_stress_worker_note_failure(w, ls_err_text((int)result), "", 0);
        if (result == 0)
            w->proto->ended(u);
        else
            ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
        return false;
    }
    ls_block *block = u->rx.recv.block;
    ls_counter_add(&w->count.bytes_in, (uint64_t)result);
    /* What fills a small block is a part of something large. */
    u->room = (uint32_t)result == block->cap      ? LS_BLOCK_LARGE
              : (uint32_t)result > LS_BLOCK_SMALL ? u->room
                                                  : LS_BLOCK_SMALL;
    const bool good = w->proto->received(u, block->data, (size_t)result);
    ls_block_drop(block);
    return good;
}

static bool take_datagrams(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    if (result < 0) {
        ls_stress_vu_fail(u, result == LS_EREFUSED ? LS_STRESS_ERROR_CONNECT : LS_STRESS_ERROR_READ);
        return false;
    }
    ls_datagrams *batch = u->rx.recv_from.batch;
    bool good = true;
    for (unsigned i = 0; good && i < batch->count; i++) {
        ls_counter_add(&w->count.bytes_in, batch->at[i].slice.len);
        good = w->proto->received(u, batch->at[i].slice.ptr, batch->at[i].slice.len);
    }
    ls_datagrams_drop(batch);
    return good;
}

static bool take(ls_stress_vu *u, int64_t result)
{
    const bool good = is_datagram(u->worker) ? take_datagrams(u, result) : take_stream(u, result);
    if (good) ls_stress_worker_free(u->worker, u);
    return good && u->state == LS_STRESS_VU_OPEN;
}

/* Post a receive, and handle what is there already. */
static void receive(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    while (u->state == LS_STRESS_VU_OPEN && !u->rx_pending) {
        int err = is_datagram(w) ? ls_op_recv_from(&w->ctx, u->sock, &u->rx, DATAGRAMS_AT_ONCE, LS_UDP_PAYLOAD_MAX)
                                 : ls_op_recv(&w->ctx, u->sock, &u->rx, NULL, u->room);
        if (err == LS_PENDING) {
            u->rx_pending = true;
            u->pending++;
            return;
        }
        w->now_ns = ls_stress_worker_now(w); /* it came after this batch was taken */
        if (!take(u, err == LS_DONE ? u->rx.result : err)) return;
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
        closing(u);
    } else if (take(u, result)) {
        receive(u);
    }
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static void failed_to_open(ls_stress_vu *u, int err)
{
    ls_stress_worker *w = u->worker;
    int none = 0;
    ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CONNECT], 1);
    (void)atomic_compare_exchange_strong(&w->first_error, &none, err);
    /* An attempt counts, or a run with a number of requests would never end when its server has gone. */
    if (w->going && u->to_retry == 0 && w->left != UINT64_MAX && w->left > 0) w->left--;
    if (w->going && u->to_retry == 0 && u->left != UINT64_MAX && u->left > 0) u->left--;
    if (u->to_retry > 0) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CONNECT], u->to_retry - 1);
    w->to_retry -= u->to_retry;
    u->to_retry = 0;
    u->broken = true;
    ls_stress_vu_close(u);
    ls_stress_worker_settle(w, u);
    ls_stress_worker_look(w);
}

static void opened(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    u->state = LS_STRESS_VU_OPEN;
    u->room = LS_BLOCK_SMALL;
    u->used = false;
    u->tx.done = sent;
    w->opening--;
    ls_counter_add(&w->count.connects, 1);
    ls_counter_add(&w->count.connections, 1);
    ls_stress_worker_settle(w, u);
    if (w->proto->opened != NULL && !w->proto->opened(u)) return;
    ls_stress_worker_free(w, u);
    receive(u);
}

static void connected(ls_thread_ctx *ctx, ls_op *op)
{
    (void)ctx;
    ls_stress_vu *u = LS_CONTAINER(op, ls_stress_vu, tx);
    const int64_t result = op->result;
    u->pending--;
    if (u->state == LS_STRESS_VU_CLOSING)
        closing(u);
    else if (result < 0)
        failed_to_open(u, (int)result);
    else
        opened(u);
}

static int make_socket(ls_stress_vu *u)
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
    u->broken = false;
    u->began_ns = ls_stress_worker_now(w);
    w->opening++;
    w->unclosed++;
    u->state = LS_STRESS_VU_CONNECTING;
    u->sock = NULL;
    u->rx.done = received;
    u->tx.done = connected;
    u->rx_pending = u->tx_pending = false;
    int err = make_socket(u);
    if (err == LS_OK && !is_datagram(w)) err = ls_op_connect(&w->ctx, u->sock, &u->tx, &w->to);
    w->stale = true;
    if (err == LS_PENDING) {
        u->pending++;
        return LS_OK;
    }
    if (err < 0)
        failed_to_open(u, err);
    else
        opened(u);
    return err;
}

/* The last packet has come? */
static void closing(ls_stress_vu *u)
{
    if (u->pending > 0 || u->timing) return;
    u->state = LS_STRESS_VU_CLOSED;
    drop_slice(u);
    u->worker->unclosed--;
    ls_stress_worker_closed(u->worker, u);
}

void ls_stress_vu_timed(ls_stress_vu *u)
{
    closing(u);
}

void ls_stress_vu_close(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    if (u->state == LS_STRESS_VU_CLOSED || u->state == LS_STRESS_VU_CLOSING) return;
    if (u->state == LS_STRESS_VU_CONNECTING) w->opening--;
    if (u->state == LS_STRESS_VU_OPEN) {
        atomic_store_explicit(&w->count.connections, ls_counter_read(&w->count.connections) - 1, memory_order_relaxed);
        w->proto->lost(u);
    }
    u->state = LS_STRESS_VU_CLOSING;
    w->stale = true;
    if (u->sock != NULL) ls_sock_close(&w->ctx, u->sock);
    closing(u);
}

void ls_stress_vu_timed_out(ls_stress_vu *u)
{
    if (u->state == LS_STRESS_VU_CONNECTING)
        failed_to_open(u, LS_ETIMEDOUT);
    else
        ls_stress_vu_fail(u, LS_STRESS_ERROR_TIMEOUT);
}

void ls_stress_vu_fail(ls_stress_vu *u, ls_stress_error kind)
{
    ls_stress_worker *w = u->worker;
    const uint32_t lost = u->outstanding + u->to_retry;
    /* An idle connection that the peer ends is no failure; one that fails is. */
    ls_counter_add(&w->count.errors[kind], lost > 0 ? lost : 1);
    w->busy -= u->outstanding;
    w->to_retry -= u->to_retry;
    u->outstanding = u->to_retry = u->first = 0;
    if (!w->ending) w->ended_ns = w->now_ns;
    ls_stress_vu_close(u);
    ls_stress_worker_look(w);
}
