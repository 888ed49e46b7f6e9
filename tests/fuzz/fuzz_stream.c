/* fuzz_stream.c - a stream against a model: the input is a sequence of calls of net/stream/stream.h and of what the other end of
 * its socket pair does.
 *
 * The first byte selects whether the stream has a filter. Properties:
 *   - the bytes arrive in order, once, and all of them unless a send failed, in both directions;
 *   - each pending receive and each pending flush has exactly one completion, and none after the close;
 *   - ls_stream_queued and ls_stream_end count what the model counts;
 *   - every block, external block, file reference and filter is released. */
#define _GNU_SOURCE
#include "fuzz_peer.h"

#include "../unit/net/stream/fake_filter.h"
#include "sched/actor.h"

enum { BYTES_MAX = 8 << 20, FILE_BYTES = 700000, CALLS_MAX = 3000 };

typedef struct model {
    fuzz_peer end; /* the other end, which `their_write` and `their_read` play */
    ls_stream *s;  /* NULL: closed */
    ls_shared_file *file;
    fake_filter *filter; /* NULL: none */
    fake_peer peer;
    int freed, externals; /* filters freed; external blocks not released */

    char *out; /* plaintext that was queued */
    size_t out_len, out_seen, base;
    bool broken;    /* a send failed: no more bytes need arrive */
    bool shut;      /* our side was shut down, or will be with the last bytes */
    bool sending;   /* a flush is pending */
    bool their_end; /* the other end has seen the end of the stream */

    char *in; /* plaintext that the other end has written */
    size_t in_len, in_seen;
    char *encoded; /* the same as records, or a copy; [0, encoded_sent) was written to the socket */
    size_t encoded_len, encoded_sent;
    bool receiving, probing, requeued, lingering, closing;
    char room[3000];
    bool into_room, unread; /* unread: bytes were given back, perhaps */
    size_t room_len;
} model;

static char file_bytes[FILE_BYTES];

static char byte_at(size_t i)
{
    return (char)(i * 31 + i / 255);
}

/* ---- the handler -------------------------------------------------------------------------------------------- */

/* Bytes were received; `keep` of them are given back. */
static void check_received(model *m, int64_t result, size_t keep)
{
    if (m->probing || result <= 0) return;
    const size_t len = (size_t)result;
    FUZZ_HOLDS(m->in_seen + len <= m->in_len);
    if (m->into_room) {
        FUZZ_HOLDS(len <= m->room_len);
        FUZZ_HOLDS(memcmp(m->room, m->in + m->in_seen, len) == 0);
        m->in_seen += len;
        return;
    }
    ls_slice bytes = ls_stream_take(m->s);
    FUZZ_HOLDS(bytes.len == len && memcmp(bytes.ptr, m->in + m->in_seen, len) == 0);
    if (keep > len) keep = len;
    m->in_seen += len - keep;
    m->unread = keep > 0;
    if (keep > 0)
        ls_stream_unread(m->s, (ls_slice){bytes.block, bytes.ptr + len - keep, keep});
    else
        ls_slice_drop(&bytes);
}

static model *model_of(ls_stream *s)
{
    model *m;
    memcpy(&m, ls_stream_user(s), sizeof m);
    return m;
}

static void received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    model *m = model_of(s);
    (void)ctx;
    FUZZ_HOLDS(m->receiving && !m->closing && !m->lingering);
    FUZZ_HOLDS(!ls_stream_receiving(s));
    m->receiving = false;
    FUZZ_HOLDS((result == LS_EAGAIN) == m->requeued);
    if (!m->requeued) check_received(m, result, 0);
    m->requeued = false;
}

static void send_ended(model *m, int err)
{
    if (err < 0) m->broken = true;
    FUZZ_HOLDS(ls_stream_queued(m->s) == 0 && ls_stream_end(m->s) == 0);
    m->base = m->out_len;
}

static void sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    model *m = model_of(s);
    (void)ctx;
    FUZZ_HOLDS(m->sending && !m->closing && !m->lingering);
    m->sending = false;
    send_ended(m, err);
}

static void closed(ls_thread_ctx *ctx, ls_stream *s)
{
    model *m = model_of(s);
    (void)ctx;
    FUZZ_HOLDS(m->closing || m->lingering);
    m->s = NULL;
    ls_stream_free(s);
}

static const ls_stream_handler handlers[] = {{received, sent, closed, 1}, {received, sent, closed, 1}};

/* ---- calls -------------------------------------------------------------------------------------------------- */

static void queue_grew(model *m, const char *bytes, size_t len)
{
    memcpy(m->out + m->out_len, bytes, len);
    m->out_len += len;
    FUZZ_HOLDS(ls_stream_end(m->s) == m->out_len - m->base);
}

static void queue_written(model *m, size_t len)
{
    char *to = ls_stream_room(&m->end.ctx, m->s, len + 1);
    if (to == NULL) return;
    for (size_t i = 0; i < len; i++) to[i] = byte_at(m->out_len + i);
    ls_stream_commit(m->s, len);
    for (size_t i = 0; i < len; i++) m->out[m->out_len + i] = byte_at(m->out_len + i);
    m->out_len += len;
    FUZZ_HOLDS(ls_stream_end(m->s) == m->out_len - m->base);
}

typedef struct borrowed {
    ls_external external; /* first */
    model *m;
    char bytes[2000];
} borrowed;

static void release(ls_external *external)
{
    borrowed *b = (borrowed *)(void *)external;
    b->m->externals--;
    free(b);
}

static void queue_borrowed(model *m, size_t len)
{
    borrowed *b = calloc(1, sizeof *b);
    FUZZ_HOLDS(b != NULL);
    b->m = m;
    m->externals++;
    for (size_t i = 0; i < sizeof b->bytes; i++) b->bytes[i] = byte_at(i + len);
    ls_external_init(&b->external, LS_BLOCK_EXTERNAL, release);
    if (len > sizeof b->bytes) len = sizeof b->bytes;
    ls_slice slice = ls_slice_external(&b->external, b->bytes, len);
    char copy[sizeof b->bytes];
    memcpy(copy, b->bytes, len);
    if (ls_stream_push(&m->end.ctx, m->s, &slice) == LS_OK)
        queue_grew(m, copy, len);
    else
        ls_slice_drop(&slice);
}

static void queue_file(model *m, size_t from, size_t len)
{
    ls_slice slice = ls_shared_file_slice(m->file, from, len);
    if (ls_stream_push(&m->end.ctx, m->s, &slice) == LS_OK)
        queue_grew(m, file_bytes + from, len);
    else
        ls_slice_drop(&slice);
}

static void flush(model *m)
{
    const bool pending = m->sending;
    const int err = ls_stream_flush(&m->end.ctx, m->s);
    FUZZ_HOLDS(err <= 0 || err == LS_PENDING || err == LS_DONE);
    if (err == LS_PENDING) {
        m->sending = true;
        FUZZ_HOLDS(ls_stream_sending(m->s) && ls_stream_queued(m->s) > 0);
    } else {
        FUZZ_HOLDS(!pending);
        send_ended(m, err);
    }
}

static void receive(model *m, unsigned how, size_t keep)
{
    int64_t result = 0;
    m->probing = how == 0;
    m->into_room = how == 1 || how == 2;
    m->room_len = how == 1 ? 1 + keep % 7 : sizeof m->room;
    const int err = how == 0 ? ls_stream_recv(&m->end.ctx, m->s, NULL, 0, &result)
                    : m->into_room
                        ? ls_stream_recv(&m->end.ctx, m->s, m->room, (uint32_t)m->room_len, &result)
                        : ls_stream_recv(&m->end.ctx, m->s, NULL, how == 3 ? LS_BLOCK_SMALL : LS_BLOCK_LARGE, &result);
    if (err == LS_PENDING) m->receiving = true;
    if (err == LS_DONE) check_received(m, result, keep);
}

static void truncate_at(model *m, size_t part)
{
    const size_t end = ls_stream_end(m->s), queued = ls_stream_queued(m->s);
    const size_t position = (size_t)((uint64_t)(end + 1) * part / 256);
    if (!ls_stream_truncate(m->s, position)) {
        FUZZ_HOLDS(position <= end - queued);
        FUZZ_HOLDS(ls_stream_end(m->s) == end);
        return;
    }
    const size_t now = ls_stream_end(m->s);
    FUZZ_HOLDS(now >= position && now <= end);
    FUZZ_HOLDS(now == position || m->sending);
    FUZZ_HOLDS(ls_stream_queued(m->s) == queued - (end - now));
    m->out_len = m->base + now;
}

static void their_write(model *m, size_t len, size_t piece)
{
    if (m->in_len + len < BYTES_MAX / 4) {
        for (size_t i = 0; i < len; i++) m->in[m->in_len + i] = byte_at(m->in_len + i * 3);
        if (m->filter != NULL && len > 0) {
            m->encoded_len += fake_record(m->encoded + m->encoded_len, m->in + m->in_len, len);
        } else {
            memcpy(m->encoded + m->encoded_len, m->in + m->in_len, len);
            m->encoded_len += len;
        }
        m->in_len += len;
    }
    const size_t left = m->encoded_len - m->encoded_sent;
    const ssize_t n =
        send(m->end.theirs, m->encoded + m->encoded_sent, left < piece ? left : piece, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) m->encoded_sent += (size_t)n;
}

static bool their_read(model *m, size_t len)
{
    static char got[65536];
    const ssize_t n = recv(m->end.theirs, got, len < sizeof got ? len : sizeof got, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) m->their_end = true;
    if (n <= 0) return false;
    const size_t plain = m->filter != NULL ? fake_peer_read(&m->peer, got, (size_t)n) : (size_t)n;
    FUZZ_HOLDS(m->out_seen + plain <= m->out_len);
    FUZZ_HOLDS(memcmp(got, m->out + m->out_seen, plain) == 0);
    m->out_seen += plain;
    return true;
}

static void begin_close(model *m)
{
    m->closing = true;
    ls_stream_close(&m->end.ctx, m->s);
}

/* One call, if the interface allows it now. */
static void call(model *m, unsigned what, unsigned arg)
{
    static const char text[] = "bytes that outlive everything";
    const bool queueing = m->s != NULL && !m->closing && !m->lingering && !m->shut && !m->broken;
    const bool ours = m->s != NULL && !m->closing && !m->lingering;
    const size_t lens[] = {1, 2, 15, 100, 999, 4000, 20000, 60000};
    const size_t len = lens[arg % 8];
    switch (what) {
    case 0:
        if (queueing) queue_written(m, len);
        break;
    case 1:
        if (queueing && arg % 2 == 0) {
            const ls_slice slice = ls_slice_static(text, sizeof text - 1);
            if (ls_stream_push(&m->end.ctx, m->s, &slice) == LS_OK) queue_grew(m, text, sizeof text - 1);
        } else if (queueing) {
            queue_borrowed(m, len);
        }
        break;
    case 2:
        if (queueing) queue_file(m, arg * 100, arg % 16 == 0 ? 600000 : len);
        break;
    case 3:
    case 4:
        if (queueing) flush(m);
        break;
    case 5:
    case 6:
        if (ours && !m->receiving) receive(m, arg % 5, arg / 5 % 3 == 0 ? arg : 0);
        break;
    case 7: their_write(m, 1 + len % FAKE_RECORD_MAX, arg % 3 == 0 ? 1 : arg % 3 == 1 ? 700 : SIZE_MAX); break;
    case 8:
    case 9: (void)their_read(m, arg % 4 == 0 ? 3 : arg % 4 == 1 ? 5000 : 65536); break;
    case 10:
    case 11: (void)fuzz_peer_dispatch(&m->end, 0); break;
    case 12:
        if (queueing) truncate_at(m, arg);
        break;
    case 13:
        if (!ours) break;
        if (arg % 8 == 0) ls_stream_cancel_recv(m->s);
        if (arg % 64 == 1) ls_stream_abort(m->s);
        if (arg % 64 == 2) ls_stream_cancel(m->s);
        if (arg % 8 == 3) ls_stream_recv_within(m->s, 60000);
        if (arg % 8 == 4) ls_stream_recv_within(m->s, 0);
        if (arg % 8 == 5) ls_stream_send_within(m->s, arg % 16 == 5 ? 60000 : 0);
        if (arg % 8 == 6 && !m->sending) {
            m->out_len -= ls_stream_queued(m->s);
            ls_stream_discard(m->s);
            send_ended(m, LS_OK);
        }
        break;
    case 14:
        if (!ours || m->receiving) break;
        if (arg % 2 == 0 && !m->sending && !m->shut) ls_stream_handover(m->s, &handlers[arg / 2 % 2]);
        if (arg % 16 == 1 && !m->unread) {
            m->receiving = m->requeued = true;
            ls_stream_requeue(m->s);
        }
        break;
    default:
        if (!ours) break;
        if (arg < 8) begin_close(m);
        if (arg >= 8 && arg < 16 && !m->sending && !m->shut && ls_stream_queued(m->s) == 0) {
            m->shut = true;
            (void)ls_stream_shutdown(&m->end.ctx, m->s);
        }
        if (arg >= 16 && arg < 24 && !m->sending && !m->receiving && ls_stream_queued(m->s) == 0) {
            m->lingering = m->shut = true;
            ls_stream_linger(&m->end.ctx, m->s, 60000);
        }
        if (arg >= 24 && arg < 32 && queueing) {
            ls_stream_cork_fin(m->s);
            flush(m);
            m->shut = true;
        }
        break;
    }
}

/* ---- one input ---------------------------------------------------------------------------------------------- */

static void model_open(model *m, uint8_t choice)
{
    char path[] = "/tmp/luaserve-fuzz-XXXXXX";
    memset(m, 0, sizeof *m);
    fuzz_peer_open(&m->end, 1 << 24, 1);
    for (size_t i = 0; i < FILE_BYTES; i++) file_bytes[i] = byte_at(i * 7);
    const int fd = mkstemp(path);
    FUZZ_HOLDS(fd >= 0 && write(fd, file_bytes, FILE_BYTES) == FILE_BYTES);
    close(fd);
    FUZZ_HOLDS(ls_shared_file_open(path, &m->file) == LS_OK);
    unlink(path);
    m->out = malloc(BYTES_MAX);
    m->in = malloc(BYTES_MAX);
    m->encoded = malloc(BYTES_MAX);
    FUZZ_HOLDS(m->out != NULL && m->in != NULL && m->encoded != NULL);
    FUZZ_HOLDS(ls_stream_open(m->end.port, m->end.deadlines, m->end.ours, choice & 2, NULL, &handlers[0], sizeof m,
                              &m->s) == LS_OK);
    memcpy(ls_stream_user(m->s), &m, sizeof m);
    if (choice & 1) {
        m->filter = fake_open(&m->freed);
        ls_stream_set_filter(m->s, &m->filter->base);
    }
}

/* Everything that is queued arrives; then the close. */
static void model_close(model *m)
{
    const bool filtered = m->filter != NULL;
    int idle = 0;
    if (m->s != NULL && !m->closing && !m->lingering && !m->shut && !m->broken) flush(m);
    while (m->s != NULL && !m->closing && !m->lingering && (m->sending || m->out_seen < m->out_len) && !m->broken) {
        const bool moved = their_read(m, 65536);
        idle = fuzz_peer_dispatch(&m->end, moved ? 0 : 1) || moved ? 0 : idle + 1;
        FUZZ_HOLDS(idle < 10000 && !m->their_end);
    }
    if (m->s != NULL && !m->closing && !m->lingering) begin_close(m);
    while (their_read(m, 65536)) continue;
    if (m->lingering && m->s != NULL) FUZZ_HOLDS(shutdown(m->end.theirs, SHUT_RDWR) == 0);
    for (idle = 0; m->s != NULL && idle < 10000; idle++) (void)fuzz_peer_dispatch(&m->end, 1);
    FUZZ_HOLDS(m->s == NULL);
    while (fuzz_peer_dispatch(&m->end, 0)) continue;
    while (their_read(m, 65536)) continue;
    FUZZ_HOLDS(m->freed == filtered);
    FUZZ_HOLDS(m->externals == 0);
    FUZZ_HOLDS(atomic_load(&m->file->external.refs) == 1);
    ls_shared_file_drop(m->file);
    fuzz_peer_hang_up(&m->end);
    fuzz_peer_close(&m->end);
    free(m->out);
    free(m->in);
    free(m->encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model m;
    if (size == 0) return 0;
    model_open(&m, data[0]);
    for (size_t at = 1; at + 1 < size && at < CALLS_MAX && m.out_len < BYTES_MAX / 2; at += 2)
        call(&m, data[at] % 16, data[at + 1]);
    model_close(&m);
    return 0;
}
