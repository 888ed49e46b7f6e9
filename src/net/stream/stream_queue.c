/* stream_queue.c - the queue of a stream, and sending it: see stream.h.
 *
 * One flush sends as many slices as fit into a gather send, and the range of a file that follows them (sendfile,
 * TransmitFile). With a filter it encrypts what fits into the filter's output blocks and sends these. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/list.h"
#include "net/stream/stream_internal.h"
#include "port/file/shared_file.h"
#include "sched/actor.h"

enum { SLICES_INSIDE = 24 };
enum { SENDING_MAX = 1024 }; /* slices of one send; a longer queue needs several */

/* The port looks at a file before each piece of it, and after each wait of a piece: a change is found after a piece at
 * the latest. The end of a long range is a piece of its own, because a client takes a response for complete once it
 * has all bytes. */
enum { FILE_PIECE = 2 << 20, FILE_WHOLE_MAX = 256 << 10, FILE_LAST = 64 << 10 };

/* The queue is slices[0..count). The first `sending` of them belong to the pending send, the last of these perhaps
 * with its first `piece` bytes only. With a filter the slices that the pending send encrypted have left the queue
 * already. `fill` is the block into whose free end output is written: at first the block that holds this struct. That
 * block outlives all slices, so slices of it hold no reference, and a small response changes no reference count. */
struct ls_outq {
    ls_op tx;
    ls_stream *stream;
    ls_block *home;       /* holds this struct */
    ls_block *fill;       /* home, or another block with a reference */
    uint32_t filled;      /* bytes of fill in use */
    uint32_t count, room; /* of `slices` */
    uint16_t sending;
    bool open_end;       /* the last slice ends at `filled` and may be extended */
    bool pins;           /* the pending send is counted in the pins of its actor */
    size_t bytes;        /* in slices */
    size_t sent;         /* of the queue, before slices[0] */
    size_t encrypted;    /* of `sent`, those in the pending send */
    size_t piece;        /* of slices[sending - 1], a file, in the pending send; 0: the last slice is no file */
    ls_file_range range; /* the same for the port */
    ls_slice *slices;    /* into `array`, after the slices that were sent */
    ls_slice *array;     /* `inside`, or on the heap */
    ls_slice *retired;   /* an array that the pending send still uses */
    ls_filter_out cipher;
    ls_slice inside[SLICES_INSIDE];
};

static void sent(ls_thread_ctx *ctx, ls_op *op);

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
    q->open_end = q->pins = false;
    q->bytes = q->sent = q->encrypted = q->piece = 0;
    q->slices = q->array = q->inside;
    q->retired = NULL;
    q->cipher.count = 0;
    q->tx.done = sent;
    *ls_stream_outq(s) = q;
    return LS_OK;
}

static int make_queue(ls_thread_ctx *ctx, ls_stream *s)
{
    return begin_queue(s, ls_block_get(ctx->pool, LS_BLOCK_SMALL));
}

static void drop_cipher(ls_outq *q)
{
    ls_slices_drop(q->cipher.slices, q->cipher.count);
    q->cipher.count = 0;
}

void ls_stream_drop_queue(ls_stream *s)
{
    ls_outq *q = *ls_stream_outq(s);
    ls_slices_drop(q->slices, q->count);
    drop_cipher(q);
    if (q->array != q->inside) free(q->array);
    if (q->retired != q->inside) free(q->retired);
    if (q->fill != q->home) ls_block_drop(q->fill);
    *ls_stream_outq(s) = NULL;
    ls_block_drop(q->home);
}

void ls_stream_moved_queue(ls_stream *s)
{
    ls_outq *q = *ls_stream_outq(s);
    if (q != NULL) q->stream = s;
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
    if (*ls_stream_outq(s) == NULL && make_queue(ctx, s) < 0) return NULL;
    ls_outq *q = *ls_stream_outq(s);
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
    if (*ls_stream_outq(s) == NULL && begin_queue(s, ls_block_get_reserved(ctx->pool)) < 0) return NULL;
    ls_outq *q = *ls_stream_outq(s);
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
    ls_outq *q = *ls_stream_outq(s);
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

int ls_stream_put(ls_thread_ctx *ctx, ls_stream *s, const void *bytes, size_t len)
{
    char *to = ls_stream_room(ctx, s, len);
    if (to == NULL) return LS_ENOMEM;
    memcpy(to, bytes, len);
    ls_stream_commit(s, len);
    return LS_OK;
}

int ls_stream_push(ls_thread_ctx *ctx, ls_stream *s, const ls_slice *slice)
{
    if (*ls_stream_outq(s) == NULL && make_queue(ctx, s) < 0) return LS_ENOMEM;
    ls_outq *q = *ls_stream_outq(s);
    if (grow(q) < 0) return LS_ENOMEM;
    q->slices[q->count++] = *slice;
    q->open_end = false;
    q->bytes += slice->len;
    return LS_OK;
}

size_t ls_stream_try_send(ls_stream *s, const void *bytes, size_t len)
{
    if (s->out != NULL) return 0; /* something is queued, or there is a filter */
    return ls_stream_carrier(s) == NULL ? ls_sock_try_send(s->sock, bytes, len) : 0;
}

void ls_stream_send_answer(ls_stream *s)
{
    ls_filter *f = s->filter;
    if (f->answer_len == 0 || f->out != NULL || s->ended || ls_stream_carrier(s) != NULL) return;
    const size_t n = ls_sock_try_send(s->sock, f->answer, f->answer_len);
    f->answer_len -= (uint32_t)n;
    memmove(f->answer, f->answer + n, f->answer_len);
}

void ls_stream_prefetch(const ls_stream *s)
{
    LS_PREFETCH(s->sock);
}

size_t ls_stream_queued(const ls_stream *s)
{
    const ls_outq *q = *ls_stream_outq((ls_stream *)(uintptr_t)s);
    return q == NULL ? 0 : q->bytes + q->encrypted;
}

size_t ls_stream_end(const ls_stream *s)
{
    const ls_outq *q = *ls_stream_outq((ls_stream *)(uintptr_t)s);
    return q == NULL ? 0 : q->sent + q->bytes;
}

bool ls_stream_truncate(ls_stream *s, size_t position)
{
    ls_outq *q = *ls_stream_outq(s);
    if (q == NULL || position <= q->sent - q->encrypted) return false;
    size_t keep = position > q->sent ? position - q->sent : 0;
    uint32_t i = 0;
    for (; i < q->count && q->slices[i].len <= keep; i++) keep -= q->slices[i].len;
    if (i < q->sending) {
        if (i + 1u < q->sending) keep = 0;
        if (keep < q->piece) keep = q->piece; /* of a file, what is being sent */
        i = q->sending;
        if (q->piece > 0 && keep < q->slices[i - 1].len) {
            q->bytes -= q->slices[i - 1].len - keep;
            q->slices[i - 1].len = keep;
        }
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

/* Remove the first `whole` slices, and `part` bytes of the one after them. */
static void advance(ls_outq *q, uint32_t whole, size_t part)
{
    for (uint32_t i = 0; i < whole; i++) {
        q->bytes -= q->slices[i].len;
        q->sent += q->slices[i].len;
        ls_slice_drop(&q->slices[i]);
    }
    q->slices += whole;
    q->count -= whole;
    q->room -= whole;
    if (part == 0) return;
    q->slices[0].ptr = (const char *)((uintptr_t)q->slices[0].ptr + part); /* no pointer, but an offset, in a file */
    q->slices[0].len -= part;
    q->bytes -= part;
    q->sent += part;
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

/* Take the slices of the next send: those in memory, then one file. */
static void gather(ls_outq *q)
{
    uint32_t n = 0;
    q->piece = 0;
    while (n < q->count && n < SENDING_MAX && !ls_slice_is_file(&q->slices[n])) n++;
    if (n < q->count && n < SENDING_MAX) {
        const ls_slice *slice = &q->slices[n++];
        const ls_shared_file *file = ls_shared_file_of(slice);
        q->piece = slice->len <= FILE_WHOLE_MAX           ? slice->len
                   : slice->len - FILE_LAST <= FILE_PIECE ? slice->len - FILE_LAST
                                                          : FILE_PIECE;
        q->range = (ls_file_range){file->fd, file->at + ls_slice_offset(slice), q->piece, file};
    }
    q->sending = (uint16_t)n;
    q->open_end = false; /* a slice that is being sent keeps its length */
}

/* Encrypt the first bytes of the queue into q->cipher. */
static int encrypt(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_outq *q = *ls_stream_outq(s);
    ls_filter *f = s->filter;
    q->cipher.pool = ctx->pool;
    q->open_end = false;
    const int64_t taken = f->type->write(f, q->slices, q->count < SENDING_MAX ? q->count : SENDING_MAX, &q->cipher);
    if (taken == LS_EPROTO) ls_stream_log_filter(s); /* after an invalid record that arrived after a request */
    if (taken < 0) return (int)taken;
    uint32_t whole = 0;
    size_t part = (size_t)taken;
    while (whole < q->count && q->slices[whole].len <= part) part -= q->slices[whole++].len;
    advance(q, whole, part);
    q->encrypted = (size_t)taken;
    if (q->count > 0 || !s->corked || s->ended) return LS_OK;
    s->ended = true; /* the end leaves with the last bytes */
    return f->type->end(f, &q->cipher);
}

/* Post the send of slices and a range of a file (NULL: none). */
static int post_slices(ls_thread_ctx *ctx, ls_stream *s, ls_slice *slices, uint16_t count, const ls_file_range *file)
{
    ls_op *tx = &(*ls_stream_outq(s))->tx;
    ls_carrier *c = ls_stream_carrier(s);
    s->tx_pending = true;
    const int err =
        c == NULL ? ls_op_send(ctx, s->sock, tx, slices, count, file) : c->type->send(ctx, c, tx, slices, count, file);
    if (err != LS_PENDING) s->tx_pending = false;
    return err;
}

static int post_send(ls_thread_ctx *ctx, ls_stream *s)
{
    ls_outq *q = *ls_stream_outq(s);
    q->tx.actor = s->rx.actor;
    if (!s->filtered) {
        gather(q);
        const bool file = q->piece > 0;
        return post_slices(ctx, s, q->slices, (uint16_t)(q->sending - file), file ? &q->range : NULL);
    }
    const int err = encrypt(ctx, s);
    return err < 0 ? err : post_slices(ctx, s, q->cipher.slices, (uint16_t)q->cipher.count, NULL);
}

/* A send has succeeded. true: the queue is empty. */
static bool sent_some(ls_stream *s)
{
    ls_outq *q = *ls_stream_outq(s);
    if (q->retired != q->inside) free(q->retired);
    q->retired = NULL;
    if (s->filtered) {
        drop_cipher(q);
        q->encrypted = 0;
    } else if (q->piece > 0 && q->piece < q->slices[q->sending - 1].len) {
        advance(q, q->sending - 1u, q->piece);
    } else if (q->count > q->sending) {
        advance(q, q->sending, 0);
    } else {
        ls_stream_drop_queue(s);
        return true;
    }
    q->sending = 0;
    if (q->count > 0) return false;
    ls_stream_drop_queue(s);
    if (s->filtered) ls_stream_send_answer(s); /* of a read beside the send */
    return true;
}

/* Drop the queue after a send that failed. Returns the error for the handler. */
static int send_failed(ls_stream *s, int err)
{
    if (err == LS_EINVAL && !s->filtered && s->out->piece > 0) err = LS_ECHANGED; /* the file ends in the range */
    s->ended = true; /* with a filter: the other end must see that bytes are missing */
    ls_stream_drop_queue(s);
    return err;
}

int ls_stream_flush(ls_thread_ctx *ctx, ls_stream *s)
{
    if (s->tx_pending) return s->ending ? LS_DONE : LS_PENDING;
    for (const ls_outq *q; (q = *ls_stream_outq(s)) != NULL;) {
        if (q->count == 0) {
            ls_stream_drop_queue(s);
            break;
        }
        /* Inside its actor the stream is ours after the send was posted, too; else another thread may own it then. */
        const bool inside = s->rx.actor != NULL;
        if (!inside) ls_stream_send_begins(s);
        const int err = post_send(ctx, s);
        if (err == LS_PENDING) {
            if (inside) ls_stream_send_begins(s);
            return LS_PENDING;
        }
        if (!inside) atomic_store_explicit(&s->send_at, 0, memory_order_relaxed);
        if (err == LS_ECHANGED && q->sent == 0) {
            ls_stream_drop_queue(s);
            return err;
        }
        if (err < 0) return send_failed(s, err);
        if (sent_some(s)) break;
    }
    return LS_DONE;
}

bool ls_stream_may_send(const ls_stream *s)
{
    return !s->ended;
}

int ls_stream_send_end(ls_thread_ctx *ctx, ls_stream *s)
{
    s->ended = true;
    if (*ls_stream_outq(s) == NULL && make_queue(ctx, s) < 0) return LS_ENOMEM;
    ls_outq *q = *ls_stream_outq(s);
    q->cipher.pool = ctx->pool;
    q->tx.actor = s->rx.actor;
    int err = s->filter->type->end(s->filter, &q->cipher);
    if (err == LS_OK && q->cipher.count > 0) {
        ls_stream_send_begins(s);
        s->ending = true;
        err = post_slices(ctx, s, q->cipher.slices, (uint16_t)q->cipher.count, NULL);
        if (err == LS_PENDING) return LS_PENDING; /* another thread may own the stream now */
        s->ending = false;
        atomic_store_explicit(&s->send_at, 0, memory_order_relaxed);
    }
    ls_stream_drop_queue(s);
    return err;
}

void ls_stream_abort(ls_stream *s)
{
    if (!s->tx_pending || s->ending) return;
    s->aborted = true; /* its packet may be queued already, and more data after it */
    ls_carrier *c = ls_stream_carrier(s);
    if (c == NULL)
        ls_op_cancel(ls_deadlines_port(s->deadlines), s->sock, &(*ls_stream_outq(s))->tx);
    else
        c->type->cancel(c, LS_CANCEL_SEND);
}

void ls_stream_discard(ls_stream *s)
{
    if (*ls_stream_outq(s) != NULL && !s->tx_pending) ls_stream_drop_queue(s);
}

void ls_stream_pin(ls_stream *s)
{
    ls_outq *const q = *ls_stream_outq(s);
    if (q->pins || q->tx.actor == NULL) return;
    q->pins = true;
    atomic_fetch_add(&q->tx.actor->pins, 1);
}

/* The end of the filter's protocol was sent, or could not be. */
static void end_sent(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    s->ending = false;
    ls_stream_drop_queue(s);
    const int err = result < 0 ? (int)result : ls_stream_shut_down(ctx, s);
    if (!s->lingering) return;
    if (err == LS_OK)
        ls_stream_linger_on(ctx, s);
    else
        ls_stream_close(ctx, s);
}

static void sent(ls_thread_ctx *ctx, ls_op *op)
{
    ls_outq *const q = LS_CONTAINER(op, ls_outq, tx);
    ls_stream *s = q->stream;
    int64_t result = op->result;
    if (q->pins) atomic_fetch_sub(&op->actor->pins, 1);
    q->pins = false;
    const bool aborted = s->aborted;
    s->tx_pending = s->aborted = false;
    atomic_store_explicit(&s->send_at, 0, memory_order_relaxed);
    if (ls_stream_is(s, LS_STREAM_CLOSING)) {
        if (!s->rx_pending) ls_stream_end_close(ctx, s);
        return;
    }
    if (s->ending) {
        end_sent(ctx, s, result);
        return;
    }
    int err;
    if (result < 0) {
        err = send_failed(s, (int)ls_stream_outcome(s, result, LS_STREAM_SEND_EXPIRED));
    } else if (sent_some(s)) {
        err = LS_DONE;
    } else if (aborted) {
        err = send_failed(s, LS_ECANCELED);
    } else {
        err = ls_stream_flush(ctx, s);
    }
    if (err != LS_PENDING) ls_stream_handled_by(s)->sent(ctx, s, err);
}
