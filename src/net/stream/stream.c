/* stream.c - a stream without its queue: see stream.h. */
#include "net/stream/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io/log.h"
#include "net/sock/sock.h"
#include "net/stream/stream_internal.h"

enum {
    AGAIN_MS = 1000,  /* a deadline that has passed is looked at again, in case nothing was pending yet */
    LATE_MS = 500,    /* a tick later than this: the process stood still, and packets may wait in its queues */
    MS_MAX = 1 << 30, /* the longest deadline: half the range in which times can be compared */
    EXACT_MS_MAX = 1000,
    IDLE_RECORDS_MAX = 4 /* times that a filter takes in what an idle connection has sent */
};

_Static_assert(sizeof(ls_stream) <= 160, "an idle stream is small");

static void received(ls_thread_ctx *ctx, ls_op *op);

/* The bytes for ls_stream_take. */
static void deliver(ls_stream *s, ls_block *block, char *ptr, size_t len)
{
    s->rx.recv.ptr = ptr;
    s->rx.recv.block = block;
    atomic_store_explicit(&s->rx.result, (int64_t)len, memory_order_relaxed);
}

/* ---- open --------------------------------------------------------------------------------------------------- */

static ls_stream *make(ls_deadlines *deadlines, const ls_addr *peer, const ls_stream_handler *handler,
                       size_t user_bytes)
{
    ls_stream *s = calloc(1, sizeof *s + user_bytes);
    if (s == NULL) return NULL;
    atomic_init(&s->handler, handler);
    s->deadlines = deadlines;
    s->rx.done = received;
    ls_node_init(&s->deadline.entry.node);
    if (peer != NULL) ls_stream_set_peer(s, peer);
    return s;
}

int ls_stream_open(ls_port *port, ls_deadlines *deadlines, ls_fd fd, bool accepted, const ls_addr *peer,
                   const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    ls_stream *s = make(deadlines, peer, handler, user_bytes);
    int err = LS_ENOMEM;
    if (s == NULL || (err = ls_sock_attach(port, fd, accepted, &s->sock)) < 0) {
        free(s);
        ls_sock_discard(fd);
        return err;
    }
    s->generation = ls_sock_generation(s->sock);
    *out = s;
    return LS_OK;
}

int ls_stream_open_carried(ls_deadlines *deadlines, ls_carrier *carrier, const ls_addr *peer,
                           const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    ls_stream *s = make(deadlines, peer, handler, user_bytes);
    if (s == NULL) return LS_ENOMEM;
    s->carrier = carrier;
    atomic_store_explicit(&s->flags, LS_STREAM_CARRIED, memory_order_relaxed);
    *out = s;
    return LS_OK;
}

int ls_stream_open_unconnected(ls_port *port, ls_deadlines *deadlines, uint8_t family,
                               const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    ls_fd fd;
    const int err = ls_sock_open(family, &fd);
    return err < 0 ? err : ls_stream_open(port, deadlines, fd, false, NULL, handler, user_bytes, out);
}

ls_deadlines *ls_stream_deadlines(const ls_stream *s)
{
    return s->deadlines;
}

void *ls_stream_user(ls_stream *s)
{
    return s->user;
}

ls_stream *ls_stream_of(void *user)
{
    return LS_CONTAINER(user, ls_stream, user);
}

void ls_stream_handover(ls_stream *s, const ls_stream_handler *handler)
{
    assert(!s->rx_pending && !s->tx_pending);
    atomic_store(&s->handler, handler);
}

const ls_stream_handler *ls_stream_handled_by(const ls_stream *s)
{
    return atomic_load_explicit(&s->handler, memory_order_relaxed);
}

void ls_stream_set_actor(ls_stream *s, ls_actor *actor)
{
    assert(!s->rx_pending || s->rx.actor == actor);
    if (s->rx.actor == actor) return; /* of a pending receive it may be read at this moment */
    if (actor == NULL && s->tx_pending) ls_stream_pin(s);
    s->rx.actor = actor;
}

ls_actor *ls_stream_actor(const ls_stream *s)
{
    return s->rx.actor;
}

void ls_stream_set_filter(ls_stream *s, ls_filter *filter)
{
    assert(!s->rx_pending && !s->filtered && s->out == NULL);
    if (s->unread) {
        s->unread = false;
        filter->type->feed(filter, ls_stream_take(s));
    }
    s->filter = filter;
    s->filtered = true;
    s->ended = false;
}

ls_filter *ls_stream_filter(const ls_stream *s)
{
    return ls_stream_filter_of(s);
}

const struct ls_tls_peer *ls_stream_carried_peer(const ls_stream *s)
{
    const ls_carrier *c = ls_stream_carrier(s);
    return c != NULL ? c->type->peer(c) : NULL;
}

/* ---- addresses and the socket ------------------------------------------------------------------------------- */

void ls_stream_set_peer(ls_stream *s, const ls_addr *peer)
{
    s->peer_family = peer->family;
    s->peer_port = peer->port;
    s->peer_scope = peer->scope;
    memcpy(s->peer, peer->bytes, sizeof s->peer); /* clients of a Unix socket usually have no name */
}

void ls_stream_set_counted(ls_stream *s)
{
    atomic_fetch_or(&s->flags, LS_STREAM_COUNTED);
}

void ls_stream_peer(const ls_stream *s, ls_addr *out)
{
    out->family = s->peer_family;
    out->bytes_len = 0;
    out->port = s->peer_port;
    out->scope = s->peer_scope;
    if (s->peer_family != LS_ADDR_UNIX) memcpy(out->bytes, s->peer, sizeof s->peer);
}

char *ls_stream_peer_text(const ls_stream *s, char out[LS_ADDR_TEXT_BYTES])
{
    ls_addr peer;
    ls_stream_peer(s, &peer);
    if (ls_log_masks_addresses()) ls_addr_mask(&peer);
    return ls_addr_text(&peer, out);
}

int ls_stream_local(const ls_stream *s, ls_addr *out)
{
    const ls_carrier *c = ls_stream_carrier(s);
    return c == NULL ? ls_sock_local(ls_sock_fd(s->sock), out) : c->type->local(c, out);
}

int ls_stream_keepalive(ls_stream *s, bool on, uint32_t idle_s)
{
    return ls_stream_carrier(s) == NULL ? ls_sock_keepalive(ls_sock_fd(s->sock), on, idle_s) : LS_ENOTSUP;
}

void ls_stream_unsent_max(ls_stream *s, uint32_t bytes)
{
    if (ls_stream_carrier(s) == NULL) ls_sock_unsent_max(ls_sock_fd(s->sock), bytes);
}

int ls_stream_peer_user(const ls_stream *s, uint32_t *user)
{
    return ls_stream_carrier(s) == NULL ? ls_sock_peer_user(ls_sock_fd(s->sock), user) : LS_ENOTSUP;
}

bool ls_stream_has_unread(const ls_stream *s)
{
    return s->unread || (s->filtered && s->filter->type->has_input(s->filter)) ||
           (ls_stream_carrier(s) == NULL && ls_sock_unread(ls_sock_fd(s->sock)));
}

bool ls_stream_receiving(const ls_stream *s)
{
    return s->rx_pending;
}

bool ls_stream_sending(const ls_stream *s)
{
    return s->tx_pending && !s->ending;
}

/* ---- deadlines ---------------------------------------------------------------------------------------------- */

static uint32_t earlier(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && ls_deadline_before(b, a)) ? b : a;
}

/* Have the tick look at the stream at `at` or earlier. If memory is out, it does not, until a deadline is set
 * again. */
static void tick_by(ls_stream *s, uint32_t at)
{
    const uint32_t armed = atomic_load(&s->deadline.entry.armed_ms);
    if (armed == 0 || ls_deadline_before(at, armed)) (void)ls_deadline_arm(s->deadlines, &s->deadline, at);
}

static uint32_t time_after(uint32_t ms)
{
    const uint64_t now_ms = ms < EXACT_MS_MAX ? ls_clock_ns() / 1000000u + 1 : ls_clock_coarse_ms();
    return ls_deadline_time(now_ms + (ms < MS_MAX ? ms : MS_MAX));
}

void ls_stream_recv_within(ls_stream *s, uint32_t ms)
{
    const uint32_t old = atomic_load_explicit(&s->recv_at, memory_order_relaxed);
    if (ms == 0) {
        if (old == 0) return;
        atomic_store_explicit(&s->recv_at, 0, memory_order_relaxed);
        ls_stream_clear(s, LS_STREAM_RECV_EXPIRED);
        return;
    }
    const uint32_t at = time_after(ms);
    /* The common case, a keep-alive connection: the deadline moves back. A tick that misses it looks again. */
    if (old != 0 && !ls_deadline_before(at, old) && !ls_stream_is(s, LS_STREAM_RECV_EXPIRED)) {
        atomic_store_explicit(&s->recv_at, at, memory_order_relaxed);
        return;
    }
    ls_stream_clear(s, LS_STREAM_RECV_EXPIRED);
    atomic_store(&s->recv_at, at); /* before armed_ms is read: see due */
    tick_by(s, at);
}

uint32_t ls_stream_recv_ms_left(const ls_stream *s)
{
    const uint32_t at = atomic_load_explicit(&s->recv_at, memory_order_relaxed),
                   now = ls_deadline_time(ls_clock_coarse_ms());
    return at != 0 && ls_deadline_before(now, at) ? at - now : 0;
}

void ls_stream_send_within(ls_stream *s, uint32_t stall_ms)
{
    atomic_store_explicit(&s->stall_ms, stall_ms, memory_order_relaxed);
    if (!s->tx_pending) return;
    atomic_store(&s->send_at, 0);
    ls_stream_send_begins(s);
}

void ls_stream_send_begins(ls_stream *s)
{
    const uint32_t stall_ms = atomic_load_explicit(&s->stall_ms, memory_order_relaxed);
    ls_stream_clear(s, LS_STREAM_SEND_EXPIRED | LS_STREAM_PACED);
    if (stall_ms == 0) return;
    const uint32_t at = time_after(stall_ms);
    atomic_store(&s->send_at, at);
    tick_by(s, at);
}

/* Cancel the operations `what` (enum ls_cancel). Any thread. */
static void cancel(ls_stream *s, unsigned what)
{
    ls_carrier *c = ls_stream_carrier(s);
    if (c == NULL)
        ls_sock_cancel(ls_deadlines_port(s->deadlines), s->sock, s->generation, what);
    else
        c->type->cancel(c, what);
}

/* A send has made progress, which would move its deadline to `moved`. Returns the deadline that lets the rate be
 * measured over stall_ms from the first such call on; `now`: the rate is below the minimum. */
static uint32_t pace(ls_stream *s, uint32_t now, uint32_t moved, uint32_t stall_ms)
{
    const uint32_t rate_min = atomic_load(&s->handler)->send_rate_min;
    if (rate_min == 0) return moved;
    const bool continues = atomic_fetch_or(&s->flags, LS_STREAM_PACED) & LS_STREAM_PACED;
    const uint32_t elapsed_ms = continues ? now - s->paced_from : 0;
    if (!continues || elapsed_ms >= stall_ms) {
        ls_carrier *c = ls_stream_carrier(s);
        const uint64_t bytes = c == NULL ? ls_sock_progress_take(s->sock) : c->type->progress_take(c);
        s->paced_from = now;
        if (continues && bytes * 1000 / rate_min < elapsed_ms) return now;
    }
    const uint32_t measured = s->paced_from + stall_ms;
    return ls_deadline_time(ls_deadline_before(moved, measured) ? moved : measured);
}

/* The deadline of the pending send after its progress; `now` or earlier: it has expired. */
static uint32_t send_deadline(ls_stream *s, uint32_t now, uint32_t at)
{
    const ls_carrier *c = ls_stream_carrier(s);
    const uint32_t progress_ms = c == NULL ? ls_sock_progress_ms(s->sock) : c->type->progress_ms(c);
    const uint32_t stall_ms = atomic_load_explicit(&s->stall_ms, memory_order_relaxed);
    const uint32_t moved = ls_deadline_time(progress_ms + stall_ms);
    if (progress_ms == 0 || !ls_deadline_before(now, moved)) return at;
    return pace(s, now, moved, stall_ms);
}

/* A tick: cancels what has passed its deadline. Runs beside the owner, who stores a deadline and then reads armed_ms;
 * here armed_ms is 0 already, and the deadlines are read. So one of the two sees the other's store. */
static uint32_t due(ls_deadline *deadline, uint32_t now)
{
    ls_stream *s = LS_CONTAINER(deadline, ls_stream, deadline);
    const bool late = now - deadline->entry.at_ms > LATE_MS && !ls_deadline_before(now, deadline->entry.at_ms);
    uint32_t recv_at = atomic_load(&s->recv_at), send_at = atomic_load(&s->send_at);
    unsigned what = 0;
    if (atomic_load(&s->flags) & LS_STREAM_CLOSING) return 0;
    if (recv_at != 0 && !ls_deadline_before(now, recv_at)) {
        recv_at = ls_deadline_time((uint64_t)now + AGAIN_MS);
        if (!late) what |= LS_CANCEL_RECV;
    }
    if (send_at != 0 && !ls_deadline_before(now, send_at)) {
        uint32_t moved = send_deadline(s, now, send_at);
        if (ls_deadline_before(now, moved)) {
            (void)atomic_compare_exchange_strong(&s->send_at, &send_at, moved);
            send_at = moved;
        } else {
            send_at = ls_deadline_time((uint64_t)now + AGAIN_MS);
            if (!late) what |= LS_CANCEL_SEND;
        }
    }
    if (what & LS_CANCEL_RECV) atomic_fetch_or(&s->flags, LS_STREAM_RECV_EXPIRED);
    if (what & LS_CANCEL_SEND) atomic_fetch_or(&s->flags, LS_STREAM_SEND_EXPIRED);
    if (what != 0) cancel(s, what);
    return earlier(recv_at, send_at);
}

int ls_stream_deadlines_open(ls_port *port, ls_deadlines **out)
{
    return ls_deadlines_open(port, due, out);
}

/* ---- move --------------------------------------------------------------------------------------------------- */

static void move_deadlines(ls_stream *from, ls_stream *to)
{
    ls_deadline_disarm(from->deadlines, &from->deadline); /* no tick uses `from` any more, and none uses `to` yet */
    const uint32_t recv_at = atomic_load(&from->recv_at), send_at = atomic_load(&from->send_at);
    to->paced_from = from->paced_from;
    atomic_store(&to->stall_ms, atomic_load(&from->stall_ms));
    atomic_store(&to->flags, atomic_load(&from->flags));
    atomic_store(&to->recv_at, recv_at);
    atomic_store(&to->send_at, send_at);
    const uint32_t at = earlier(recv_at, send_at);
    if (at != 0) tick_by(to, at);
}

int ls_stream_move(ls_stream *s, const ls_stream_handler *handler, size_t user_bytes, ls_stream **out)
{
    assert(!s->rx_pending && !s->lingering && !s->ending && !ls_stream_is(s, LS_STREAM_CLOSING));
    assert(!s->tx_pending || s->rx.actor != NULL); /* else its packet may run on another thread meanwhile */
    ls_stream *n = calloc(1, sizeof *n + user_bytes);
    if (n == NULL) return LS_ENOMEM;
    atomic_init(&n->handler, handler);
    n->deadlines = s->deadlines;
    n->sock = s->sock; /* or the carrier */
    n->generation = s->generation;
    n->filtered = s->filtered;
    n->out = s->out; /* or the filter */
    n->rx.done = received;
    n->rx.actor = s->rx.actor;
    if (s->unread) deliver(n, s->rx.recv.block, s->rx.recv.ptr, (size_t)atomic_load(&s->rx.result));
    n->unread = s->unread;
    n->peer_family = s->peer_family;
    n->peer_port = s->peer_port;
    n->peer_scope = s->peer_scope;
    memcpy(n->peer, s->peer, sizeof n->peer);
    n->tx_pending = s->tx_pending;
    n->aborted = s->aborted;
    n->corked = s->corked;
    n->ended = s->ended;
    n->large = s->large;
    ls_stream_moved_queue(n);
    ls_node_init(&n->deadline.entry.node);
    move_deadlines(s, n);
    s->sock = NULL;
    s->filtered = false;
    s->out = NULL;
    s->unread = s->tx_pending = false;
    *out = n;
    return LS_OK;
}

/* ---- close -------------------------------------------------------------------------------------------------- */

void ls_stream_end_close(ls_thread_ctx *ctx, ls_stream *s)
{
    if (*ls_stream_outq(s) != NULL) ls_stream_drop_queue(s);
    ls_deadline_disarm(s->deadlines, &s->deadline);
    ls_carrier *c = ls_stream_carrier(s);
    if (c != NULL) c->type->release(ctx, c);
    if (ls_stream_is(s, LS_STREAM_COUNTED)) {
        ls_addr peer;
        ls_stream_peer(s, &peer);
        ls_peers_leave(ls_deadlines_peers(s->deadlines), &peer, LS_PEERS_CONNECTIONS);
    }
    atomic_load(&s->handler)->closed(ctx, s);
}

static void drop_unread(ls_stream *s)
{
    if (!s->unread) return;
    s->unread = false;
    ls_block_drop(s->rx.recv.block);
}

void ls_stream_free(ls_stream *s)
{
    if (*ls_stream_outq(s) != NULL) ls_stream_drop_queue(s);
    drop_unread(s);
    if (s->filtered) s->filter->type->free(s->filter);
    free(s);
}

void ls_stream_close(ls_thread_ctx *ctx, ls_stream *s)
{
    assert(!ls_stream_is(s, LS_STREAM_CLOSING));
    ls_sock *const sock = s->sock;
    ls_carrier *const c = ls_stream_carrier(s);
    /* Else the packet of the last operation ends the close, perhaps on another thread before this returns. */
    bool idle = !s->rx_pending && !s->tx_pending;
    atomic_fetch_or(&s->flags, LS_STREAM_CLOSING);
    /* Not beside a receive whose packet may run on another thread: see stream_internal.h, "Threads". */
    if (s->filtered && !s->ended && !s->tx_pending && (!s->rx_pending || s->rx.actor != NULL)) {
        if (*ls_stream_outq(s) != NULL) ls_stream_drop_queue(s);
        if (ls_stream_send_end(ctx, s) == LS_PENDING) idle = false;
    }
    if (c == NULL)
        ls_sock_close(ctx, sock);
    else
        c->type->close(ctx, c);
    if (idle) ls_stream_end_close(ctx, s);
}

/* LS_PENDING: the packet of the end of the filter's protocol does it, perhaps on another thread before this
 * returns. */
static int shut_down(ls_thread_ctx *ctx, ls_stream *s)
{
    assert(!s->tx_pending || s->ending);
    if (s->tx_pending) return LS_PENDING;
    if (s->filtered && !s->ended) {
        const int err = ls_stream_send_end(ctx, s);
        if (err != LS_DONE) return err;
    }
    return ls_stream_shut_down(ctx, s);
}

int ls_stream_shutdown(ls_thread_ctx *ctx, ls_stream *s)
{
    const int err = shut_down(ctx, s);
    return err == LS_PENDING ? LS_OK : err;
}

void ls_stream_cork_fin(ls_stream *s)
{
    s->corked = true;
    if (ls_stream_carrier(s) == NULL) ls_sock_cork_fin(s->sock);
}

static void drop_received(const ls_op *op)
{
    if (op->result > 0 && op->recv.block != NULL) ls_block_drop(op->recv.block);
}

/* Receive and discard. From a socket it needs no memory: a client that is refused for lack of it reads the
 * response. */
static int discard(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_carrier *c = ls_stream_carrier(s);
    s->rx_pending = true;
    const int err =
        c == NULL ? ls_op_discard(ctx, s->sock, &s->rx) : c->type->recv(ctx, c, &s->rx, NULL, LS_BLOCK_SMALL);
    if (err != LS_PENDING) s->rx_pending = false;
    if (err == LS_DONE) drop_received(&s->rx);
    return err;
}

void ls_stream_linger_on(ls_thread_ctx *ctx, ls_stream *s)
{
    int err;
    do { /* inline discards may follow one another until the port's inline budget is used up; a peer that sends without
          * pause still ends at the deadline */
        err = ls_stream_is(s, LS_STREAM_RECV_EXPIRED) ? LS_ETIMEDOUT : discard(ctx, s);
    } while (err == LS_DONE && s->rx.result > 0);
    if (err != LS_PENDING) ls_stream_close(ctx, s);
}

void ls_stream_linger(ls_thread_ctx *ctx, ls_stream *s, uint32_t linger_ms)
{
    assert(!s->rx_pending && !ls_stream_sending(s));
    drop_unread(s);
    s->rx.actor = NULL;
    if (linger_ms == 0) {
        ls_stream_close(ctx, s);
        return;
    }
    s->lingering = true;
    ls_stream_recv_within(s, linger_ms);
    ls_stream_send_within(s, linger_ms); /* of the end of the filter's protocol; its packet continues */
    const int err = shut_down(ctx, s);
    if (err == LS_OK)
        ls_stream_linger_on(ctx, s);
    else if (err < 0)
        ls_stream_close(ctx, s);
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

static int post_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len)
{
    s->rx_pending = true; /* before posting: afterwards another thread may hold the packet */
    ls_carrier *c = ls_stream_carrier(s);
    const int err = c == NULL ? ls_op_recv(ctx, s->sock, &s->rx, ptr, len) : c->type->recv(ctx, c, &s->rx, ptr, len);
    if (err != LS_PENDING) s->rx_pending = false;
    return err;
}

ls_slice ls_stream_take(ls_stream *s)
{
    ls_block *block = s->rx.recv.block;
    const int64_t len = atomic_load_explicit(&s->rx.result, memory_order_relaxed);
    assert(len > 0 && block != NULL);
    return (ls_slice){block, s->rx.recv.ptr != NULL ? s->rx.recv.ptr : block->data, (size_t)len};
}

void ls_stream_unread(ls_stream *s, ls_slice bytes)
{
    assert(!s->rx_pending && !s->unread && bytes.block != NULL && bytes.len > 0);
    deliver(s, bytes.block, (char *)(uintptr_t)bytes.ptr, bytes.len);
    s->unread = true;
}

/* Deliver bytes that were given back. */
static int64_t recv_unread(ls_thread_ctx *ctx, ls_stream *s, char *ptr, uint32_t len)
{
    const ls_slice bytes = ls_stream_take(s);
    if (ptr == NULL && len == 0) return 0;
    s->unread = false;
    if (ptr == NULL) return (int64_t)bytes.len;
    const size_t run = bytes.len < len ? bytes.len : len;
    memcpy(ptr, bytes.ptr, run);
    ls_pool_copied(ctx->pool, run);
    if (run < bytes.len)
        ls_stream_unread(s, (ls_slice){bytes.block, bytes.ptr + run, bytes.len - run});
    else
        ls_block_drop(bytes.block);
    return (int64_t)run;
}

void ls_stream_log_filter(ls_stream *s)
{
    char text[LS_ADDR_TEXT_BYTES];
    if (s->failed || ls_log_level_get() > LS_LOG_DEBUG) return;
    s->failed = true;
    ls_log(LS_LOG_DEBUG, "TLS with %s: %s", ls_stream_peer_text(s, text), s->filter->type->why(s->filter));
}

/* Read what the filter can deliver: bytes, 0 at the end, LS_EAGAIN (it needs input) or another error. */
static int64_t read_filter(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_filter *f = s->filter;
    ls_block *block = NULL;
    char *to = f->recv_ptr;
    if (to == NULL) {
        if ((block = ls_block_get(ctx->pool, f->recv_len)) == NULL) return LS_ENOMEM;
        to = block->data;
    }
    int64_t n;
    do {
        const uint32_t before = f->answer_len;
        n = f->type->read(f, to, f->recv_len);
        if (f->answer_len > before) ls_stream_send_answer(s); /* tickets wait for the response */
    } while (n == LS_EAGAIN && f->type->has_input(f));
    if (n <= 0 && block != NULL) ls_block_drop(block);
    if (n > 0 && block != NULL) deliver(s, block, to, (size_t)n);
    if (n == LS_EPROTO) ls_stream_log_filter(s);
    return n;
}

/* Feed the filter with what the socket has received. LS_OK, or LS_E*. */
static int feed_now(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_block *block = ls_block_get(ctx->pool, LS_BLOCK_SMALL);
    if (block == NULL) return LS_ENOMEM;
    const int64_t len = ls_sock_receive_now(ls_sock_fd(s->sock), block->data, block->cap, false);
    if (len > 0) s->filter->type->feed(s->filter, ls_slice_of(block, 0, (size_t)len));
    ls_block_drop(block);
    return len > 0 ? LS_OK : LS_ECLOSED;
}

bool ls_stream_is_silent(const ls_stream *s)
{
    const ls_filter *f = ls_stream_filter_of(s);
    return !s->unread && ls_stream_carrier(s) == NULL && (f == NULL || !f->type->has_input(f)) &&
           ls_sock_is_silent(s->sock);
}

bool ls_stream_is_idle(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_filter *f = ls_stream_filter_of(s);
    char byte;
    if (s->unread || ls_stream_carrier(s) != NULL) return false;
    for (int n = 0; n < IDLE_RECORDS_MAX; n++) {
        if (f == NULL || !f->type->has_input(f)) {
            const int64_t waiting = ls_sock_receive_now(ls_sock_fd(s->sock), &byte, 1, true);
            if (waiting <= 0 || f == NULL) return waiting == LS_EAGAIN;
            if (feed_now(ctx, s) < 0) return false;
        }
        f->recv_ptr = &byte;
        f->recv_len = 1;
        if (read_filter(ctx, s) != LS_EAGAIN || f->type->has_input(f)) return false;
    }
    return false;
}

/* Input of the filter was received: `result` as of ls_op_recv. */
static int64_t feed_filter(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    ls_filter *f = s->filter;
    if (result < 0) return result;
    if (result == 0) {
        f->type->feed_end(f);
    } else {
        const ls_slice bytes = ls_stream_take(s);
        s->large = (uint32_t)result == bytes.block->cap || (s->large && result > LS_BLOCK_SMALL);
        f->type->feed(f, bytes);
    }
    return read_filter(ctx, s);
}

/* Receive until the filter delivers. The request is in f->recv_ptr and f->recv_len. */
static int recv_filtered(ls_thread_ctx *ctx, ls_stream *s, int64_t *result)
{
    const bool probe = s->filter->recv_len == 0;
    do {
        const int err = post_recv(ctx, s, NULL, probe ? 0 : s->large ? LS_BLOCK_LARGE : LS_BLOCK_SMALL);
        if (err != LS_DONE) return err;
        *result = atomic_load_explicit(&s->rx.result, memory_order_relaxed);
        if (!probe) *result = feed_filter(ctx, s, *result);
    } while (*result == LS_EAGAIN);
    return LS_DONE;
}

int ls_stream_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len, int64_t *result)
{
    assert(!s->rx_pending);
    ls_filter *f = ls_stream_filter_of(s);
    if (s->unread) {
        *result = recv_unread(ctx, s, ptr, len);
        return LS_DONE;
    }
    if (f == NULL) {
        const int err = post_recv(ctx, s, ptr, len);
        if (err == LS_DONE) *result = atomic_load_explicit(&s->rx.result, memory_order_relaxed);
        return err;
    }
    f->recv_ptr = ptr;
    f->recv_len = len;
    if (f->type->has_input(f)) {
        *result = len == 0 ? 0 : read_filter(ctx, s);
        if (*result != LS_EAGAIN) return LS_DONE;
    }
    return recv_filtered(ctx, s, result);
}

/* A pending receive of the filter's input has completed. LS_PENDING: the filter needs more. */
static int received_filtered(ls_thread_ctx *ctx, ls_stream *s, int64_t *result)
{
    if (*result < 0 || s->filter->recv_len == 0) return LS_DONE;
    *result = feed_filter(ctx, s, *result);
    return *result == LS_EAGAIN ? recv_filtered(ctx, s, result) : LS_DONE;
}

static void received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream *s = LS_CONTAINER(op, ls_stream, rx);
    int64_t result = op->result;
    s->rx_pending = false;
    if (ls_stream_is(s, LS_STREAM_CLOSING)) {
        drop_received(op);
        if (!s->tx_pending) ls_stream_end_close(ctx, s);
    } else if (s->lingering) {
        drop_received(op);
        if (result > 0)
            ls_stream_linger_on(ctx, s);
        else
            ls_stream_close(ctx, s);
    } else {
        if (s->filtered) {
            const int err = received_filtered(ctx, s, &result);
            if (err == LS_PENDING) return;
            if (err < 0) result = err;
        }
        atomic_load_explicit(&s->handler, memory_order_relaxed)
            ->received(ctx, s, ls_stream_outcome(s, result, LS_STREAM_RECV_EXPIRED));
    }
}

void ls_stream_requeue(ls_stream *s)
{
    assert(!s->rx_pending && !s->unread);
    s->rx_pending = true;
    ls_port_post(ls_deadlines_port(s->deadlines), &s->rx,
                 LS_EAGAIN); /* cannot fail: the operation is the queue node */
}

void ls_stream_cancel_recv(ls_stream *s)
{
    if (ls_stream_carrier(s) == NULL)
        ls_op_cancel(ls_deadlines_port(s->deadlines), s->sock, &s->rx);
    else
        cancel(s, LS_CANCEL_RECV);
}

void ls_stream_cancel(ls_stream *s)
{
    cancel(s, LS_CANCEL_RECV | LS_CANCEL_SEND);
}

int ls_stream_connect(ls_thread_ctx *ctx, ls_stream *s, const ls_sockaddr *to)
{
    assert(!s->rx_pending && !s->tx_pending && ls_stream_carrier(s) == NULL);
    s->rx_pending = true;
    const int err = ls_op_connect(ctx, s->sock, &s->rx, to);
    if (err != LS_PENDING) s->rx_pending = false;
    return err;
}

/* ---- watch -------------------------------------------------------------------------------------------------- */

static void lost(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream_watch *watch = LS_CONTAINER(op, ls_stream_watch, op);
    watch->lost(ctx, watch);
}

int ls_stream_watch_begin(ls_thread_ctx *ctx, ls_stream *s, ls_stream_watch *watch)
{
    watch->stream = s;
    watch->op.done = lost;
    watch->op.actor = s->rx.actor;
    ls_carrier *c = ls_stream_carrier(s);
    return c == NULL ? ls_op_watch(ctx, s->sock, &watch->op) : c->type->watch(ctx, c, &watch->op);
}

bool ls_stream_unwatch(ls_stream *s, ls_stream_watch *watch)
{
    ls_carrier *c = ls_stream_carrier(s);
    return c == NULL ? ls_op_unwatch(s->sock, &watch->op) : c->type->unwatch(c, &watch->op);
}
