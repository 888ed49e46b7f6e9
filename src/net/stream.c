/* stream.c - see stream.h. */
#include "net/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "net/sock.h"

enum { SLICES_INSIDE = 24, TIMER_AGAIN_MS = 1000 };
enum { SENDING_MAX = 1024 }; /* slices of one send; a longer queue needs several */

/* The queue is slices[0..count). The first `sending` of them belong to the pending send. `fill` is the block into
 * whose free end output is written: at first the block that holds this struct. That block outlives all slices, so
 * slices of it hold no reference, and a small response changes no reference count. */
struct ls_outq {
    ls_op tx;
    ls_stream *stream;
    ls_block *home;       /* holds this struct */
    ls_block *fill;       /* home, or another block with a reference */
    uint32_t filled;      /* bytes of fill in use */
    uint32_t count, room; /* of `slices` */
    uint16_t sending;
    bool open_end;     /* the last slice ends at `filled` and may be extended */
    size_t bytes;      /* queued */
    size_t sent;       /* of the queue, before slices[0] */
    ls_slice *slices;  /* into `array`, behind the slices that were sent */
    ls_slice *array;   /* `inside`, or on the heap */
    ls_slice *retired; /* an array that the pending send still uses */
    ls_slice inside[SLICES_INSIDE];
};

static void timer_fired(ls_thread_ctx *ctx, ls_op *op);
static void received(ls_thread_ctx *ctx, ls_op *op);
static void sent(ls_thread_ctx *ctx, ls_op *op);

static void unref(ls_thread_ctx *ctx, ls_stream *s)
{
    if (atomic_fetch_sub(&s->refs, 1) == 1) s->proto->closed(ctx, s);
}

int ls_stream_open(ls_stream *s, ls_port *port, const ls_stream_proto *proto, ls_fd fd)
{
    int err = ls_sock_attach(port, fd, s, true, &s->sock);
    if (err < 0) {
        ls_sock_discard(fd);
        return err;
    }
    s->proto = proto;
    s->port = port;
    s->actor = NULL;
    s->out = NULL;
    s->generation = ls_sock_generation(s->sock);
    s->send_rate_min = 0;
    s->paced_deadline_ms = 0;
    s->rx_pending = s->tx_pending = s->lingering = s->aborted = false;
    s->rx.done = received;
    memset(&s->timer, 0, sizeof s->timer);
    s->timer.op.done = timer_fired;
    atomic_store_explicit(&s->deadline_ms, UINT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&s->timer_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&s->stall_ms, 0, memory_order_relaxed);
    atomic_store_explicit(&s->closing, false, memory_order_relaxed);
    atomic_store_explicit(&s->expired, false, memory_order_relaxed);
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    return LS_OK;
}

/* ---- the deadline ------------------------------------------------------------------------------------------- */

static uint64_t timer_ns(uint64_t at_ms)
{
    return at_ms >= UINT64_MAX / 1000000u ? UINT64_MAX - 1 : at_ms * 1000000u;
}

/* The timer is now set to set_ms. Another thread may have stored an earlier time in timer_ms and moved the timer
 * before. */
static void keep_earliest(ls_stream *s, uint64_t set_ms)
{
    uint64_t earlier_ms;
    while ((earlier_ms = atomic_load(&s->timer_ms)) != 0 && earlier_ms < set_ms) {
        (void)ls_timer_move(s->port, &s->timer, timer_ns(earlier_ms));
        set_ms = earlier_ms;
    }
}

/* Arm the timer; an armed timer holds a reference. false: it is armed already. If memory is out, the stream has no
 * deadline until the next one is set. */
static bool arm(ls_stream *s, uint64_t at_ms)
{
    uint64_t unarmed = 0;
    if (!atomic_compare_exchange_strong(&s->timer_ms, &unarmed, at_ms)) return false;
    atomic_fetch_add(&s->refs, 1);
    s->timer.op.actor = s->proto->expired != NULL ? s->actor : NULL;
    if (ls_timer_set(s->port, &s->timer, timer_ns(at_ms)) < 0) {
        atomic_store(&s->timer_ms, 0);
        atomic_fetch_sub(&s->refs, 1);
    } else {
        keep_earliest(s, at_ms);
    }
    return true;
}

/* Make the timer fire at at_ms or earlier. It may be firing on another thread, which stores 0 in timer_ms at any
 * moment and then reads deadline_ms. So only arming may overwrite that 0. */
static void aim(ls_stream *s, uint64_t at_ms)
{
    uint64_t armed_ms = atomic_load(&s->timer_ms);
    for (;;) {
        if (armed_ms == 0) {
            if (arm(s, at_ms)) return;
            armed_ms = atomic_load(&s->timer_ms);
        } else if (at_ms >= armed_ms) {
            return;
        } else if (atomic_compare_exchange_weak(&s->timer_ms, &armed_ms, at_ms)) {
            (void)ls_timer_move(s->port, &s->timer, timer_ns(at_ms)); /* false: it fires, or is about to be set */
            keep_earliest(s, at_ms);
            return;
        }
    }
}

void ls_stream_deadline(ls_stream *s, uint64_t at_ms, uint32_t stall_ms)
{
    atomic_store_explicit(&s->stall_ms, stall_ms, memory_order_relaxed);
    /* The common case, a keep-alive connection: the deadline is later than the one for which the timer is armed. */
    uint64_t old_ms = atomic_load_explicit(&s->deadline_ms, memory_order_relaxed);
    if (at_ms >= old_ms && !atomic_load_explicit(&s->expired, memory_order_relaxed)) {
        atomic_store_explicit(&s->deadline_ms, at_ms, memory_order_relaxed);
        return;
    }
    if (atomic_load_explicit(&s->expired, memory_order_relaxed))
        atomic_store_explicit(&s->expired, false, memory_order_relaxed);
    atomic_store(&s->deadline_ms, at_ms);
    if (at_ms != UINT64_MAX) aim(s, at_ms);
}

/* A send has made progress, which would move its deadline from at_ms to moved_ms. Returns the deadline that lets the
 * rate be measured over stall_ms from the first such call on; 0: the rate is below the minimum. A deadline that the
 * owner has set since, for another send, begins a new measurement. */
static uint64_t pace(ls_stream *s, uint64_t now_ms, uint64_t at_ms, uint64_t moved_ms, uint32_t stall_ms)
{
    if (s->send_rate_min == 0) return moved_ms;
    const uint64_t bytes = ls_sock_progress_bytes(s->sock);
    const bool continues = at_ms == s->paced_deadline_ms;
    const uint64_t elapsed_ms = continues ? now_ms - s->paced_from_ms : 0;
    if (continues && elapsed_ms >= stall_ms && (bytes - s->paced_bytes) * 1000 / s->send_rate_min < elapsed_ms)
        return 0;
    if (!continues || elapsed_ms >= stall_ms) {
        s->paced_from_ms = now_ms;
        s->paced_bytes = bytes;
    }
    const uint64_t measured_ms = s->paced_from_ms + stall_ms;
    return s->paced_deadline_ms = moved_ms < measured_ms ? moved_ms : measured_ms;
}

/* The deadline may have passed. Progress of a send moves it; otherwise the pending operations are cancelled. */
static void check_deadline(ls_stream *s, uint64_t now_ms)
{
    uint64_t at_ms = atomic_load(&s->deadline_ms);
    if (at_ms > now_ms) return;
    const uint32_t stall_ms = atomic_load(&s->stall_ms);
    uint64_t moved_ms = stall_ms != 0 ? ls_sock_progress_ms(s->sock) + stall_ms : 0;
    if (moved_ms > now_ms) moved_ms = pace(s, now_ms, at_ms, moved_ms, stall_ms);
    if (moved_ms > now_ms) {
        (void)atomic_compare_exchange_strong(&s->deadline_ms, &at_ms, moved_ms);
    } else {
        atomic_store(&s->expired, true);
        ls_sock_cancel(s->sock, s->generation);
    }
}

/* The same inside the owner's actor: proto->expired decides. */
static void report_expired(ls_thread_ctx *ctx, ls_stream *s)
{
    atomic_store(&s->timer_ms, 0);
    if (!atomic_load(&s->closing)) {
        const uint64_t at_ms = atomic_load(&s->deadline_ms);
        if (at_ms <= ls_clock_ns() / 1000000u) {
            atomic_store(&s->deadline_ms, UINT64_MAX);
            s->proto->expired(ctx, s);
        } else if (at_ms != UINT64_MAX) {
            (void)arm(s, at_ms);
        }
    }
    unref(ctx, s);
}

/* Runs beside the owner, with the reference of the timer that fired. An owner who finds the timer firing leaves the
 * arming to this function, so deadline_ms and closing are read again after it is armed. */
static void timer_fired(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream *s = LS_CONTAINER(op, ls_stream, timer.op);
    if (op->actor != NULL && !s->lingering) {
        report_expired(ctx, s);
        return;
    }
    const uint64_t now_ms = ls_clock_ns() / 1000000u;
    if (!atomic_load(&s->closing)) check_deadline(s, now_ms);

    atomic_store(&s->timer_ms, 0);
    uint64_t at_ms = atomic_load(&s->deadline_ms);
    if (at_ms <= now_ms) at_ms = now_ms + TIMER_AGAIN_MS; /* cancelled; again later, in case nothing was pending yet */
    if (at_ms != UINT64_MAX && !atomic_load(&s->closing)) {
        (void)arm(s, at_ms); /* false: the owner has armed it */
        uint64_t meanwhile_ms = atomic_load(&s->deadline_ms);
        if (atomic_load(&s->closing)) {
            if (ls_timer_cancel(s->port, &s->timer)) unref(ctx, s);
        } else if (meanwhile_ms > now_ms && meanwhile_ms < at_ms) {
            aim(s, meanwhile_ms);
        }
    }
    unref(ctx, s);
}

/* ---- close -------------------------------------------------------------------------------------------------- */

static void drop_queue(ls_stream *s);

/* No operation is pending. */
static void end(ls_thread_ctx *ctx, ls_stream *s)
{
    if (s->out != NULL) drop_queue(s);
    if (ls_timer_cancel(s->port, &s->timer)) unref(ctx, s);
    unref(ctx, s);
}

void ls_stream_close(ls_thread_ctx *ctx, ls_stream *s)
{
    assert(!atomic_load(&s->closing));
    atomic_store(&s->closing, true);
    const bool quiet =
        !s->rx_pending &&
        !s->tx_pending; /* else the last packet ends it, perhaps on another thread before this returns */
    ls_sock_close(ctx, s->sock);
    if (quiet) end(ctx, s);
}

/* Receive and discard; results as for ls_stream_recv. Needs no memory: a client that is refused for lack of it reads
 * the response. */
static int discard(ls_thread_ctx *ctx, ls_stream *s)
{
    s->rx.actor = NULL;
    s->rx_pending = true;
    const int err = ls_op_discard(ctx, s->sock, &s->rx);
    if (err != LS_PENDING) s->rx_pending = false;
    return err;
}

static void linger_on(ls_thread_ctx *ctx, ls_stream *s)
{
    int err;
    do { /* inline discards may follow one another until the port's inline budget is used up; a peer that sends without
          * pause still ends at the deadline */
        err = atomic_load(&s->expired) ? LS_ETIMEDOUT : discard(ctx, s);
    } while (err == LS_DONE && s->rx.result > 0);
    if (err != LS_PENDING) ls_stream_close(ctx, s);
}

void ls_stream_linger(ls_thread_ctx *ctx, ls_stream *s, uint32_t linger_ms)
{
    assert(!s->rx_pending && !s->tx_pending);
    if (linger_ms == 0 || ls_sock_shutdown(s->sock) < 0) {
        ls_stream_close(ctx, s);
        return;
    }
    s->lingering = true;
    s->actor = NULL;
    ls_stream_deadline(s, ls_clock_coarse_ms() + linger_ms, 0);
    linger_on(ctx, s);
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

static int64_t outcome(ls_stream *s, int64_t result)
{
    return result == LS_ECANCELED && atomic_load(&s->expired) ? LS_ETIMEDOUT : result;
}

static void received(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream *s = LS_CONTAINER(op, ls_stream, rx);
    int64_t result = op->result;
    s->rx_pending = false;
    if (atomic_load_explicit(&s->closing, memory_order_relaxed)) {
        if (result > 0 && op->recv.block != NULL) ls_block_drop(op->recv.block);
        if (!s->tx_pending) end(ctx, s);
    } else if (!s->lingering) {
        s->proto->received(ctx, s, outcome(s, result));
    } else if (result > 0) {
        linger_on(ctx, s);
    } else {
        ls_stream_close(ctx, s);
    }
}

int ls_stream_recv(ls_thread_ctx *ctx, ls_stream *s, void *ptr, uint32_t len)
{
    assert(!s->rx_pending);
    s->rx.actor = s->actor;
    s->rx_pending = true; /* before posting: afterwards another thread may hold the packet */
    int err = ls_op_recv(ctx, s->sock, &s->rx, ptr, len);
    if (err != LS_PENDING) s->rx_pending = false;
    return err;
}

void ls_stream_requeue(ls_stream *s)
{
    assert(!s->rx_pending);
    s->rx.actor = s->actor;
    s->rx_pending = true;
    (void)ls_port_post(s->port, &s->rx, NULL, LS_EAGAIN); /* cannot fail: the operation is the queue node */
}

int ls_stream_connect(ls_thread_ctx *ctx, ls_stream *s, const ls_sockaddr *to)
{
    assert(!s->rx_pending && !s->tx_pending);
    s->rx.actor = s->actor;
    s->rx_pending = true;
    int err = ls_op_connect(ctx, s->sock, &s->rx, to);
    if (err != LS_PENDING) s->rx_pending = false;
    return err;
}

/* ---- the queue ---------------------------------------------------------------------------------------------- */

static int begin_queue(ls_stream *s, ls_block *home)
{
    if (home == NULL) return LS_ENOMEM;
    ls_outq *q = (ls_outq *)(void *)home->data;
    q->stream = s;
    q->home = home;
    q->fill = home;
    q->filled = sizeof *q;
    q->count = 0;
    q->sending = 0;
    q->room = SLICES_INSIDE;
    q->open_end = false;
    q->bytes = q->sent = 0;
    q->slices = q->array = q->inside;
    q->retired = NULL;
    q->tx.done = sent;
    s->out = q;
    return LS_OK;
}

static int make_queue(ls_thread_ctx *ctx, ls_stream *s)
{
    return begin_queue(s, ls_block_get(ctx->pool, LS_BLOCK_SMALL));
}

static void drop_queue(ls_stream *s)
{
    ls_outq *q = s->out;
    ls_slices_drop(q->slices, q->count);
    if (q->array != q->inside) free(q->array);
    if (q->retired != q->inside) free(q->retired);
    if (q->fill != q->home) ls_block_drop(q->fill);
    s->out = NULL;
    ls_block_drop(q->home);
}

/* Make room for one more slice. The array that a pending send uses stays until that send has ended. */
static int grow(ls_outq *q)
{
    if (q->count < q->room) return LS_OK;
    if (q->count > UINT32_MAX / 4) return LS_ENOMEM;
    const uint32_t room = q->count < SLICES_INSIDE ? 2 * SLICES_INSIDE : 2 * q->count;
    ls_slice *array = malloc(room * sizeof *array);
    if (array == NULL) return LS_ENOMEM;
    memcpy(array, q->slices, q->count * sizeof *array);
    if (q->sending > 0 && q->retired == NULL)
        q->retired = q->array;
    else if (q->array != q->inside)
        free(q->array);
    q->slices = q->array = array;
    q->room = room;
    return LS_OK;
}

static void set_fill(ls_outq *q, ls_block *fill)
{
    if (q->fill != q->home) ls_block_drop(q->fill);
    q->fill = fill;
    q->filled = 0;
    q->open_end = false;
}

char *ls_stream_room(ls_thread_ctx *ctx, ls_stream *s, size_t n)
{
    if (s->out == NULL && make_queue(ctx, s) < 0) return NULL;
    ls_outq *q = s->out;
    if (grow(q) < 0) return NULL;
    if (q->fill->cap - q->filled < n) {
        ls_block *fill = ls_block_get(ctx->pool, n <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
        if (fill == NULL) return NULL;
        set_fill(q, fill);
    }
    return q->fill->data + q->filled;
}

char *ls_stream_room_reserved(ls_thread_ctx *ctx, ls_stream *s, size_t n)
{
    assert(n < LS_BLOCK_SMALL / 2);
    char *const room = ls_stream_room(ctx, s, n);
    if (room != NULL) return room;
    if (s->out == NULL && begin_queue(s, ls_block_get_reserved(ctx->pool)) < 0) return NULL;
    ls_outq *q = s->out;
    if (grow(q) < 0) return NULL;
    if (q->fill->cap - q->filled < n) {
        ls_block *fill = ls_block_get_reserved(ctx->pool);
        if (fill == NULL) return NULL;
        set_fill(q, fill);
    }
    return q->fill->data + q->filled;
}

void ls_stream_commit(ls_stream *s, size_t n)
{
    ls_outq *q = s->out;
    if (n == 0) return;
    assert(q->fill->cap - q->filled >= n);
    if (q->open_end)
        q->slices[q->count - 1].len += n;
    else if (q->fill == q->home)
        q->slices[q->count++] = ls_slice_static(q->fill->data + q->filled, n);
    else
        q->slices[q->count++] = ls_slice_of(q->fill, q->filled, n);
    q->open_end = true;
    q->filled += (uint32_t)n;
    q->bytes += n;
}

int ls_stream_push(ls_thread_ctx *ctx, ls_stream *s, const ls_slice *slice)
{
    if (s->out == NULL && make_queue(ctx, s) < 0) return LS_ENOMEM;
    ls_outq *q = s->out;
    if (grow(q) < 0) return LS_ENOMEM;
    q->slices[q->count++] = *slice;
    q->open_end = false;
    q->bytes += slice->len;
    return LS_OK;
}

size_t ls_stream_queued(const ls_stream *s)
{
    return s->out == NULL ? 0 : s->out->bytes;
}

size_t ls_stream_end(const ls_stream *s)
{
    return s->out == NULL ? 0 : s->out->sent + s->out->bytes;
}

bool ls_stream_truncate(ls_stream *s, size_t position)
{
    ls_outq *q = s->out;
    if (q == NULL || position <= q->sent) return false;
    size_t keep = position - q->sent;
    uint32_t i = 0;
    for (; i < q->count && q->slices[i].len <= keep; i++) keep -= q->slices[i].len;
    if (i < q->sending) {
        i = q->sending;
    } else if (keep > 0 && i < q->count) { /* adjacent commits are one slice */
        q->bytes -= q->slices[i].len - keep;
        q->slices[i++].len = keep;
    }
    for (uint32_t n = i; n < q->count; n++) {
        q->bytes -= q->slices[n].len;
        ls_slice_drop(&q->slices[n]);
    }
    q->count = i;
    q->open_end = false;
    return true;
}

/* The pending send has succeeded. true: the queue is empty. */
static bool sent_some(ls_stream *s)
{
    ls_outq *q = s->out;
    if (q->retired != q->inside) free(q->retired);
    q->retired = NULL;
    if (q->count == q->sending) {
        drop_queue(s);
        return true;
    }
    for (uint32_t i = 0; i < q->sending; i++) {
        q->bytes -= q->slices[i].len;
        q->sent += q->slices[i].len;
        ls_slice_drop(&q->slices[i]);
    }
    q->slices += q->sending;
    q->count -= q->sending;
    q->room -= q->sending;
    q->sending = 0;
    return false;
}

int ls_stream_flush(ls_thread_ctx *ctx, ls_stream *s)
{
    if (s->tx_pending) return LS_PENDING;
    while (s->out != NULL) {
        ls_outq *q = s->out;
        if (q->count == 0) {
            drop_queue(s);
            break;
        }
        q->sending = (uint16_t)(q->count < SENDING_MAX ? q->count : SENDING_MAX);
        q->open_end = false; /* a slice that is being sent keeps its length */
        q->tx.actor = s->actor;
        s->tx_pending = true;
        int err = ls_op_send(ctx, s->sock, &q->tx, q->slices, q->sending, NULL);
        if (err == LS_PENDING) return LS_PENDING;
        s->tx_pending = false;
        if (err < 0) {
            drop_queue(s);
            return err;
        }
        if (sent_some(s)) break;
    }
    return LS_DONE;
}

void ls_stream_abort(ls_stream *s)
{
    if (!s->tx_pending) return;
    s->aborted = true; /* its packet may be queued already, and more data behind it */
    ls_op_cancel(s->sock, &s->out->tx);
}

void ls_stream_discard(ls_stream *s)
{
    if (s->out != NULL) drop_queue(s);
}

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    ls_stream *s = LS_CONTAINER(op, ls_outq, tx)->stream;
    int64_t result = op->result;
    const bool aborted = s->aborted;
    s->tx_pending = s->aborted = false;
    if (atomic_load_explicit(&s->closing, memory_order_relaxed)) {
        if (!s->rx_pending) end(ctx, s);
        return;
    }
    int err;
    if (result < 0) {
        err = (int)outcome(s, result);
        drop_queue(s);
    } else if (sent_some(s)) {
        err = LS_DONE;
    } else if (aborted) {
        err = LS_ECANCELED;
        drop_queue(s);
    } else {
        err = ls_stream_flush(ctx, s);
    }
    if (err != LS_PENDING) s->proto->sent(ctx, s, err);
}
