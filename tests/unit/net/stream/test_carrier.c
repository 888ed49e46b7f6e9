/* test_carrier.c - a stream over a carrier that has no socket: bytes come as parts of blocks, a send waits for a window,
 * packets are posted. The carried runs of the other tests have a carrier over a socket. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

typedef struct memory {
    ls_carrier base; /* first */
    wire w;
    ls_op *rx, *tx; /* pending, or NULL */
    ls_slice *slices;
    uint16_t count;
    char out[64]; /* what was sent */
    size_t len, window;
    size_t sent; /* of the pending send */
    bool ended, closed;
    int released;
    uint32_t progress_ms;
} memory;

static memory *memory_of(const ls_carrier *c)
{
    return (memory *)(uintptr_t)c;
}

static void complete(memory *m, ls_op **op, int64_t result)
{
    if (*op != NULL) ls_port_post(m->w.place.port, *op, result);
    *op = NULL;
}

static int memory_recv(ls_thread_ctx *ctx, ls_carrier *c, ls_op *op, void *ptr, uint32_t len)
{
    assert_null(memory_of(c)->rx);
    op->recv.ptr = ptr;
    op->len = len;
    memory_of(c)->rx = op;
    return LS_PENDING;
}

/* Send what the window allows. true: all was sent. */
static bool send_some(memory *m)
{
    size_t from = 0;
    for (uint16_t i = 0; i < m->count; from += m->slices[i++].len)
        while (m->window > 0 && m->sent < from + m->slices[i].len) {
            m->out[m->len++] = m->slices[i].ptr[m->sent++ - from];
            m->window--;
        }
    return m->sent == from;
}

static int memory_send(ls_thread_ctx *ctx, ls_carrier *c, ls_op *op, ls_slice *slices, uint16_t count,
                       const ls_file_range *file)
{
    memory *m = memory_of(c);
    assert_null(m->tx);
    assert_null(file);
    m->slices = slices;
    m->count = count;
    m->sent = 0;
    if (send_some(m)) return LS_DONE;
    m->tx = op;
    return LS_PENDING;
}

static int memory_shutdown(ls_thread_ctx *ctx, ls_carrier *c)
{
    memory_of(c)->ended = true;
    return LS_OK;
}

static void memory_cancel(ls_carrier *c, unsigned what)
{
    if (what & LS_CANCEL_RECV) complete(memory_of(c), &memory_of(c)->rx, LS_ECANCELED);
    if (what & LS_CANCEL_SEND) complete(memory_of(c), &memory_of(c)->tx, LS_ECANCELED);
}

static uint32_t memory_progress_ms(const ls_carrier *c)
{
    return memory_of(c)->progress_ms;
}

static void memory_close(ls_thread_ctx *ctx, ls_carrier *c)
{
    memory_of(c)->closed = true;
    memory_cancel(c, LS_CANCEL_RECV | LS_CANCEL_SEND);
}

static void memory_release(ls_thread_ctx *ctx, ls_carrier *c)
{
    assert_true(memory_of(c)->closed && memory_of(c)->rx == NULL && memory_of(c)->tx == NULL);
    assert_int_equal(memory_of(c)->w.closed, 0);
    memory_of(c)->released++;
}

static const ls_carrier_type memory_type = {.recv = memory_recv,
                                            .send = memory_send,
                                            .end_send = memory_shutdown,
                                            .cancel = memory_cancel,
                                            .progress_ms = memory_progress_ms,
                                            .close = memory_close,
                                            .release = memory_release};

static void memory_open(memory *m)
{
    wire *w = &m->w;
    *m = (memory){.base = {&memory_type}, .window = SIZE_MAX};
    wire_place_open(w);
    w->theirs = -1;
    assert_int_equal(ls_stream_open_carried(w->deadlines, &m->base, NULL, &wire_handler, sizeof w, &w->s), LS_OK);
    memcpy(ls_stream_user(w->s), &w, sizeof w);
}

static void memory_end(memory *m)
{
    wire_close(&m->w);
    assert_int_equal(m->released, 1);
}

/* Complete the receive with text that is the end of a block, or into its memory. */
static void arrive(memory *m, const char *text)
{
    const size_t len = strlen(text);
    assert_non_null(m->rx);
    if (m->rx->recv.ptr == NULL) {
        m->rx->recv.block = ls_block_get(m->w.place.ctx.pool, LS_BLOCK_SMALL);
        m->rx->recv.ptr = m->rx->recv.block->data + LS_BLOCK_SMALL - len;
    }
    memcpy(m->rx->recv.ptr, text, len);
    complete(m, &m->rx, (int64_t)len);
}

TEST(bytes_both_ways_through_a_carrier)
{
    memory m;
    char room[8];
    wire *w = &m.w;
    memory_open(&m);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    arrive(&m, "hello");
    wire_await(w, &w->received, 1);
    wire_expect_taken(w, "hello");
    wire_recv_pending(w, room, sizeof room);
    arrive(&m, "more");
    wire_await(w, &w->received, 2);
    assert_memory_equal(room, "more", 4);

    wire_queue_text(w, "first ");
    assert_int_equal(wire_flush(w), LS_DONE);
    assert_int_equal(ls_stream_try_send(w->s, "x", 1), 0);
    m.window = 4;
    wire_push_static(w, "second", 6);
    assert_int_equal(wire_flush(w), LS_PENDING);
    wire_queue_text(w, " third");
    m.window = 3;
    assert_true(send_some(&m));
    complete(&m, &m.tx, 6);
    wire_step(w); /* the next send has a window of 1 */
    assert_int_equal(w->sent, 0);
    m.window = 10;
    assert_true(send_some(&m));
    complete(&m, &m.tx, 6);
    wire_await(w, &w->sent, 1);
    assert_int_equal(ls_stream_shutdown(&w->place.ctx, w->s), LS_OK); /* we receive on */
    assert_true(m.ended);
    assert_memory_equal(m.out, "first second third", m.len);
    assert_int_equal(m.len, 18);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    complete(&m, &m.rx, 0);
    wire_await(w, &w->received, 3);
    assert_int_equal(w->result, 0);
    memory_end(&m);
}

TEST(a_carrier_is_released_after_its_last_packet)
{
    enum { RX = 1, TX = 2, ARRIVED = 4, LINGERS = 8, ALL = 16 };
    for (int what = 0; what < ALL; what++) {
        memory m;
        wire *w = &m.w;
        if ((what & ARRIVED && !(what & RX)) || (what & LINGERS && what != LINGERS)) continue;
        memory_open(&m);
        ls_stream_recv_within(w->s, 60000);
        m.window = 0;
        if (what & RX) wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
        if (what & TX) wire_queue_text(w, "bytes");
        if (what & TX) assert_int_equal(wire_flush(w), LS_PENDING);
        if (what & ARRIVED) arrive(&m, "hello");
        if (what & LINGERS) {
            ls_stream_linger(&w->place.ctx, w->s, 60000);
            arrive(&m, "dropped");
            wire_step(w);
            complete(&m, &m.rx, 0);
        } else {
            wire_stream_close(w);
            assert_int_equal(m.released, !(what & (RX | TX)));
        }
        memory_end(&m);
        assert_int_equal(w->received + w->sent, 0);
    }
}

TEST(the_deadlines_of_a_stream_over_a_carrier)
{
    memory m;
    wire *w = &m.w;
    memory_open(&m);
    ls_stream_recv_within(w->s, 5);
    wire_recv_pending(w, NULL, LS_BLOCK_SMALL);
    wire_await(w, &w->received, 1);
    assert_int_equal(w->result, LS_ETIMEDOUT);
    for (int progress = 0; progress < 2; progress++) {
        ls_stream_send_within(w->s, 20);
        m.window = 0;
        wire_queue_text(w, "bytes");
        assert_int_equal(wire_flush(w), LS_PENDING);
        for (const uint64_t until_ms = ls_clock_coarse_ms() + 100; progress && ls_clock_coarse_ms() < until_ms;) {
            m.progress_ms = (uint32_t)ls_clock_coarse_ms() + WIRE_PATIENCE_MS; /* also on a busy machine */
            (void)wire_try(w, 1);
        }
        assert_int_equal(w->sent, progress);
        m.progress_ms = 0;
        ls_stream_send_within(w->s, 20);
        wire_await(w, &w->sent, 1 + progress);
        assert_int_equal(w->sent_err, LS_ETIMEDOUT);
    }
    ls_stream_send_within(w->s, 0);
    wire_queue_text(w, "bytes");
    assert_int_equal(wire_flush(w), LS_PENDING);
    ls_stream_abort(w->s);
    wire_await(w, &w->sent, 3);
    assert_int_equal(w->sent_err, LS_ECANCELED);
    memory_end(&m);
}
