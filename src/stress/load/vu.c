/* vu.c - one connection of the load generator. See vu.h.
 *
 * A virtual user is opened from the worker's loop only, never from inside its own callbacks: a server that refuses or
 * closes connections at once cannot cause a recursion. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "stress/load/arrivals.h"
#include "stress/load/worker.h"

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static bool appended(ls_stress_vu *u, size_t len, bool good)
{
    assert(!u->tx_pending);
    u->output += len;
    return good || ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
}

bool ls_stress_vu_put(ls_stress_vu *u, const char *bytes, size_t len)
{
    return appended(u, len, u->worker->transport->put(u, bytes, len));
}

bool ls_stress_vu_put_static(ls_stress_vu *u, const char *bytes, size_t len)
{
    return appended(u, len, u->worker->transport->put_static(u, bytes, len));
}

bool ls_stress_vu_send(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    const int err = w->transport->send(u);
    w->clock_stale = true;
    if (err < 0) /* A server that has closed resets the connection on later data: the lost response is the error. */
        return ls_stress_vu_fail(u,
                                 err == LS_EPIPE || err == LS_ERESET ? LS_STRESS_ERROR_READ : LS_STRESS_ERROR_WRITE);
    u->tx_pending = err == LS_PENDING;
    ls_counter_add(&w->count.bytes_out, u->output);
    u->output = 0;
    return true;
}

/* The handshake of WebSocket is under way. */
static bool is_upgrading(const ls_stress_vu *u)
{
    return u->state == LS_STRESS_VU_CONNECTING && u->step == LS_STRESS_STEP_UPGRADE;
}

static void upgrade_failed(ls_stress_vu *u, int err, const char *why);

void ls_stress_vu_sent(ls_stress_vu *u, int err)
{
    u->tx_pending = false;
    if (err < 0 && is_upgrading(u))
        upgrade_failed(u, err, ls_err_text(err));
    else if (err < 0)
        (void)ls_stress_vu_fail(u, LS_STRESS_ERROR_WRITE);
    else if (u->proto->sent != NULL)
        u->proto->sent(u);
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
    if (u->proto->compose != NULL && !u->proto->compose(u, count)) return;
    const uint64_t now_ns = ls_stress_worker_now(w);
    for (uint32_t i = from; i < u->outstanding; i++) u->requests[(u->first + i) % pipeline].sent_ns = now_ns;
    if (u->proto->start != NULL)
        u->proto->start(u);
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
    for (uint32_t i = u->outstanding; i < u->outstanding + count; i++) {
        ls_stress_request *request = &u->requests[(u->first + i) % w->pipeline];
        request->is_head = w->plan->is_head; /* compose() sets it for a script's requests */
        request->check_failed = false;
        request->number = 0;
    }
    if (w->running && w->left != UINT64_MAX) w->left -= count < w->left ? count : w->left;
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

void ls_stress_vu_retire(ls_stress_vu *u)
{
    assert(u->outstanding > 0);
    if (++u->first == u->worker->pipeline) u->first = 0;
    u->outstanding--;
    u->used = true;
    u->worker->outstanding--;
}

void ls_stress_vu_complete(ls_stress_vu *u, unsigned status)
{
    ls_stress_worker *w = u->worker;
    const ls_stress_request *request = &u->requests[u->first];
    const uint64_t now_ns = w->now_ns;
    const bool is_probe = u->role == LS_STRESS_ROLE_PUBLISHER && (!w->running || request->sent_ns < w->start_ns);
    if (!is_probe) ls_counter_add(&w->count.status[status <= LS_STRESS_STATUS_MAX ? status : 0], 1);
    if (u->role == LS_STRESS_ROLE_PUBLISHER) {
        ls_stress_vu_retire(u);
        return;
    }
    ls_counter_add(&w->count.requests, 1);
    if (request->check_failed) ls_counter_add(&w->count.errors[LS_STRESS_ERROR_CHECK], 1);
    ls_histogram_record(w->count.sent, now_ns > request->sent_ns ? now_ns - request->sent_ns : 0);
    if (w->open_loop) ls_histogram_record(w->count.due, now_ns > request->due_ns ? now_ns - request->due_ns : 0);
    ls_stress_vu_retire(u);
    if (!w->ending) w->ended_ns = now_ns;
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

int ls_stress_vu_head(ls_stress_vu *u, const char *bytes, size_t len, ls_stress_head *out)
{
    ls_stress_bytes *buf = &u->http.buf;
    const size_t before = buf->len;
    size_t skip;
    *out = (ls_stress_head){bytes, 0, "not enough memory"};
    if (before > 0 && !ls_stress_bytes_add(buf, bytes, len, SIZE_MAX)) return LS_ENOMEM;
    *out = (ls_stress_head){before > 0 ? buf->at : bytes, before + len, NULL};
    const int n = ls_http1_read_head(&u->http.reader, out->at, out->len, LS_STRESS_HEAD_BYTES_MAX, &skip, &out->why);
    if (n < 0) return n;
    const size_t used = skip + (size_t)n - before; /* of a head that was incomplete before */
    out->at += skip;
    out->len = n > 0 ? (size_t)n : out->len - skip;
    if (before > 0) { /* keep the head alone */
        memmove(buf->at, out->at, out->len);
        buf->len = out->len;
        out->at = buf->at;
    } else if (n == 0 && !ls_stress_bytes_add(buf, out->at, out->len, SIZE_MAX)) {
        *out = (ls_stress_head){bytes, 0, "not enough memory"};
        return LS_ENOMEM;
    }
    return n > 0 ? (int)used : 0;
}

static bool is_reading(const ls_stress_vu *u)
{
    return (u->state == LS_STRESS_VU_OPEN && !u->stalled) || is_upgrading(u);
}

/* Handle a completed receive. False: the connection is closed or closing, or has stalled. */
static bool handle_receive(ls_stress_vu *u, int64_t result)
{
    ls_stress_worker *w = u->worker;
    if (result > 0) {
        if (!w->transport->deliver(u, result)) return false;
        ls_stress_arrivals_vu_ready(w, u);
        return is_reading(u);
    }
    if (is_upgrading(u)) {
        const bool ended = result == 0;
        upgrade_failed(u, ended ? LS_ECLOSED : (int)result,
                       ended ? "the server closed the connection" : ls_err_text((int)result));
        return false;
    }
    /* Without close_notify a response that lasts until the close may be truncated; an idle connection has lost
     * nothing. */
    if (result == LS_ETRUNCATED && u->outstanding == 0) result = 0;
    if (result < 0 && u->outstanding > 0) ls_stress_worker_record_failure(w, ls_err_text((int)result), "", 0);
    if (result == 0)
        u->proto->peer_closed(u);
    else
        (void)ls_stress_vu_fail(u, result == LS_EREFUSED ? LS_STRESS_ERROR_CONNECT : LS_STRESS_ERROR_READ);
    return false;
}

/* Post receives, and handle those that complete at once. */
static void receive(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    while (is_reading(u) && !u->rx_pending) {
        int64_t result = 0;
        const int err = w->transport->receive(u, &result);
        if (err == LS_PENDING) {
            u->rx_pending = true;
            return;
        }
        w->clock_stale = true; /* the data may have arrived after the clock was read */
        w->now_ns = ls_stress_worker_now(w);
        if (!handle_receive(u, err < 0 ? err : result)) return;
    }
}

void ls_stress_vu_received(ls_stress_vu *u, int64_t result)
{
    u->rx_pending = false;
    if (handle_receive(u, result)) receive(u);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static void connect_failed(ls_stress_vu *u, int err)
{
    ls_stress_worker *w = u->worker;
    static const ls_stress_error kinds[] = {[LS_STRESS_STEP_CONNECT] = LS_STRESS_ERROR_CONNECT,
                                            [LS_STRESS_STEP_TLS] = LS_STRESS_ERROR_TLS,
                                            [LS_STRESS_STEP_UPGRADE] = LS_STRESS_ERROR_HANDSHAKE};
    const ls_stress_error kind = kinds[u->step];
    int no_error = 0;
    ls_counter_add(&w->count.errors[kind], 1);
    (void)atomic_compare_exchange_strong(&w->first_error, &no_error, err);
    /* A failed connect counts as a request, so that a run with a number of requests ends without a server. */
    const bool counts = w->running && u->retries == 0 && u->role != LS_STRESS_ROLE_LISTENER;
    if (counts && w->left != UINT64_MAX && w->left > 0) w->left--;
    if (counts && u->left != UINT64_MAX && u->left > 0) u->left--;
    if (u->retries > 0) ls_counter_add(&w->count.errors[kind], u->retries - 1);
    w->retries -= u->retries;
    u->retries = 0;
    u->reconnect_later = true;
    ls_stress_vu_close(u);
    ls_stress_worker_vu_prepared(w, u);
    ls_stress_worker_check_end(w);
}

void ls_stress_vu_handshake_failed(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    ls_stress_worker *w = u->worker;
    const bool is_tls = u->step == LS_STRESS_STEP_TLS;
    char text[sizeof w->first_failure];
    (void)snprintf(text, sizeof text, "%s handshake: %s", is_tls ? "TLS" : "WebSocket", why);
    ls_stress_worker_record_failure(w, text, bytes, len);
    ls_counter_add(is_tls ? &w->count.handshakes_failed : &w->count.upgrades_failed, 1);
}

static void opened(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    u->state = LS_STRESS_VU_OPEN;
    u->used = false;
    w->connecting--;
    if (w->transport->ready == NULL) {
        ls_counter_add(&w->count.connects, 1);
        ls_counter_add(&w->count.connections, 1);
    }
    if (u->subscriber == NULL || u->stalled) ls_stress_worker_vu_prepared(w, u); /* else by its first message */
    if (u->proto->opened != NULL && !u->proto->opened(u)) return;
    ls_stress_arrivals_vu_ready(w, u);
}

static void upgrade_failed(ls_stress_vu *u, int err, const char *why)
{
    ls_stress_vu_handshake_failed(u, why, "", 0);
    connect_failed(u, err);
}

void ls_stress_vu_upgraded(ls_stress_vu *u, int err)
{
    if (err < 0)
        connect_failed(u, err);
    else
        opened(u);
}

void ls_stress_vu_connected(ls_stress_vu *u, int err)
{
    const ls_stress_transport *transport = u->worker->transport;
    if (err == LS_OK && transport->ready != NULL) err = transport->ready(u);
    if (err == LS_PENDING) return;
    if (err < 0) {
        connect_failed(u, err);
        return;
    }
    if (u->proto->upgrade == NULL) {
        opened(u);
    } else {
        u->step = LS_STRESS_STEP_UPGRADE;
        if ((err = u->proto->upgrade(u)) < 0) {
            upgrade_failed(u, err, ls_err_text(err));
            return;
        }
        u->tx_pending = err == LS_PENDING;
    }
    receive(u);
}

int ls_stress_vu_open(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    assert(u->state == LS_STRESS_VU_CLOSED && !u->attached);
    u->reconnect_later = false;
    u->connect_start_ns = ls_stress_worker_now(w);
    w->connecting++;
    w->unclosed++;
    u->state = LS_STRESS_VU_CONNECTING;
    u->rx_pending = u->tx_pending = false;
    u->step = LS_STRESS_STEP_CONNECT;
    u->output = 0;
    const int err = w->transport->open(u);
    w->clock_stale = true;
    ls_stress_vu_connected(u, err);
    return err < 0 ? err : LS_OK;
}

void ls_stress_vu_finish_close(ls_stress_vu *u)
{
    if (u->attached || u->timer_pending) return;
    u->state = LS_STRESS_VU_CLOSED;
    u->worker->unclosed--;
    ls_stress_worker_vu_closed(u->worker, u);
}

void ls_stress_vu_released(ls_stress_vu *u)
{
    u->attached = false;
    ls_stress_vu_finish_close(u);
}

void ls_stress_vu_close(ls_stress_vu *u)
{
    ls_stress_worker *w = u->worker;
    if (u->state == LS_STRESS_VU_CLOSED || u->state == LS_STRESS_VU_CLOSING) return;
    if (u->state == LS_STRESS_VU_CONNECTING) w->connecting--;
    if (u->state == LS_STRESS_VU_OPEN) {
        if (w->transport->ready == NULL)
            atomic_store_explicit(&w->count.connections, ls_counter_read(&w->count.connections) - 1,
                                  memory_order_relaxed);
        if (u->proto->closed != NULL) u->proto->closed(u);
    }
    u->state = LS_STRESS_VU_CLOSING;
    w->clock_stale = true;
    if (u->attached)
        w->transport->close(u);
    else
        ls_stress_vu_finish_close(u);
}

void ls_stress_vu_time_out(ls_stress_vu *u)
{
    if (u->state != LS_STRESS_VU_CONNECTING) {
        (void)ls_stress_vu_fail(u, LS_STRESS_ERROR_TIMEOUT);
        return;
    }
    if (u->step != LS_STRESS_STEP_CONNECT) ls_stress_vu_handshake_failed(u, ls_err_text(LS_ETIMEDOUT), "", 0);
    connect_failed(u, LS_ETIMEDOUT);
}

void ls_stress_vu_peer_closed(ls_stress_vu *u, const char *why)
{
    if (u->outstanding > 0 || u->role == LS_STRESS_ROLE_LISTENER) {
        if (why != NULL) ls_stress_worker_record_failure(u->worker, why, "", 0);
        (void)ls_stress_vu_fail(u, LS_STRESS_ERROR_READ);
        return;
    }
    if (!u->used)
        u->reconnect_later = true; /* a server that accepts and closes: not again and again without a pause */
    ls_stress_vu_close(u);
}

bool ls_stress_vu_fail(ls_stress_vu *u, ls_stress_error kind)
{
    ls_stress_worker *w = u->worker;
    const uint32_t failed = u->outstanding + u->retries;
    /* An orderly close of an idle connection is not counted here (peer_closed); a failed one is. */
    ls_counter_add(&w->count.errors[kind], failed > 0 ? failed : 1);
    w->outstanding -= u->outstanding;
    w->retries -= u->retries;
    u->outstanding = u->retries = u->first = 0;
    u->reconnect_later |= u->role == LS_STRESS_ROLE_LISTENER;
    if (!w->ending) w->ended_ns = w->now_ns;
    ls_stress_vu_close(u);
    ls_stress_worker_check_end(w);
    return false;
}

bool ls_stress_vu_fail_answer(ls_stress_vu *u, const char *why, const char *bytes, size_t len)
{
    ls_stress_worker_record_failure(u->worker, why, bytes, len);
    return ls_stress_vu_fail(u, LS_STRESS_ERROR_ANSWER);
}
