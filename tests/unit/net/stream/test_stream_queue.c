/* test_stream_queue.c - the queue of a stream, byte for byte: what was queued leaves in order and once. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

#include "net/stream/stream_internal.h"

typedef struct stream_bytes { /* the expected bytes */
    char *bytes;
    size_t len, room;
    uint32_t seed;
} stream_bytes;

static uint32_t rnd(stream_bytes *t)
{
    t->seed = t->seed * 1664525u + 1013904223u;
    return t->seed >> 8;
}

static void fill(stream_bytes *t, char *to, size_t n)
{
    assert_true(t->len + n <= t->room);
    for (size_t i = 0; i < n; i++) to[i] = (char)rnd(t);
    memcpy(t->bytes + t->len, to, n);
    t->len += n;
}

/* Queue about `want` bytes in every way that the interface has. */
static void queue_mix(wire *w, stream_bytes *t, size_t want, size_t piece_max)
{
    static const char text[] = "static text that outlives everything here";
    const size_t from = t->len;
    ls_thread_ctx *ctx = &w->place.ctx;
    while (t->len - from < want) {
        const size_t n = 1 + rnd(t) % piece_max;
        if (rnd(t) % 3 == 0) {
            ls_slice slice = ls_slice_static(text, sizeof text - 1);
            memcpy(t->bytes + t->len, text, sizeof text - 1);
            t->len += sizeof text - 1;
            assert_int_equal(ls_stream_push(ctx, w->s, &slice), LS_OK);
        } else if (rnd(t) % 3 == 0) {
            ls_block *block = ls_block_get(ctx->pool, n <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
            assert_non_null(block);
            fill(t, block->data, n);
            ls_slice slice = ls_slice_of(block, 0, n);
            assert_int_equal(ls_stream_push(ctx, w->s, &slice), LS_OK);
            ls_block_drop(block); /* the queue's reference is the last */
        } else {
            char *to = ls_stream_room(ctx, w->s, n + 10);
            assert_non_null(to);
            memset(to + n, '!', 10); /* all of the room may be written, less of it committed */
            fill(t, to, n);
            ls_stream_commit(w->s, n);
        }
    }
}

static void expect_bytes(wire *w, stream_bytes *t, size_t *read_so_far, size_t upto)
{
    static char got[1 << 20];
    const size_t n = upto - *read_so_far;
    assert_true(n <= sizeof got);
    net_read(w->theirs, got, n);
    assert_memory_equal(got, t->bytes + *read_so_far, n);
    *read_so_far = upto;
}

/* Read a little and send a little. */
static void read_a_little(wire *w, const stream_bytes *t, size_t *at)
{
    char bytes[20000];
    ls_packet packet;
    const ssize_t n = recv(w->theirs, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) {
        assert_memory_equal(bytes, t->bytes + *at, (size_t)n);
        *at += (size_t)n;
    }
    if (ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, n > 0 ? 0 : 1) > 0)
        ls_packet_dispatch(&w->place.ctx, &packet);
}

TEST(a_mix_leaves_in_order_and_whole)
{
    wire w;
    stream_bytes t = {.room = 4u << 20, .seed = 1};
    size_t at = 0;
    const int room = 1 << 20; /* received bytes count until they are acknowledged, which may take time */
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    wire_open(&w);
    assert_int_equal(setsockopt(w.ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (int round = 0; round < 40; round++) {
        const size_t from = t.len;
        queue_mix(&w, &t, 1 + rnd(&t) % 16000, round % 2 ? 40 : 6000); /* fits the socket's buffers */
        assert_int_equal(ls_stream_queued(w.s), t.len - from);
        if (wire_flush(&w) == LS_PENDING) /* a busy system has less room at times */
            for (const int before = w.sent; w.sent == before;) read_a_little(&w, &t, &at);
        assert_int_equal(ls_stream_queued(w.s), 0);
        assert_null(*ls_stream_outq(w.s)); /* the queue was freed */
        expect_bytes(&w, &t, &at, t.len);
    }
    assert_int_equal(blocks_live(&w.place), 0);
    wire_close(&w);
    free(t.bytes);
}

/* Slices are queued while a send is pending, past every size of the array; the pending send still uses the old
 * array. */
TEST(the_queue_grows_while_a_send_is_pending)
{
    wire w;
    stream_bytes t = {.room = 8u << 20, .seed = 7};
    size_t at = 0;
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    wire_place_open(&w);
    for (int round = 0; round < 3; round++) {
        wire_connect(&w);
        at = t.len;
        queue_mix(&w, &t, 600000, round == 0 ? 60000 : 6000); /* the first array is already on the heap */
        assert_int_equal(wire_flush(&w), LS_PENDING);
        for (int k = 0; k < 6; k++) {
            queue_mix(&w, &t, 3000, 30);
            assert_int_equal(wire_flush(&w), LS_PENDING);
        }
        assert_int_equal(ls_stream_queued(w.s), t.len - at);
        while (w.sent == 0) read_a_little(&w, &t, &at); /* many partial sends */
        assert_int_equal(w.sent, 1);
        assert_int_equal(w.sent_err, LS_OK);
        assert_int_equal(ls_stream_queued(w.s), 0);
        expect_bytes(&w, &t, &at, t.len);
        assert_int_equal(blocks_live(&w.place), 0);
        wire_disconnect(&w);
    }
    wire_place_close(&w);
    free(t.bytes);
}

/* More slices than one send takes, and than 16 bits count. */
TEST(a_queue_of_many_slices_leaves_in_several_sends)
{
    enum { SLICES = 200000 };
    wire w;
    stream_bytes t = {.room = 2 * SLICES, .seed = 11};
    char *text = malloc(t.room);
    size_t at = 0;
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    assert_non_null(text);
    wire_open(&w);
    for (int i = 0; i < SLICES; i++) {
        char *const from = text + t.len;
        const size_t len = 1 + (rnd(&t) & 1);
        fill(&t, from, len);
        ls_slice slice = ls_slice_static(from, len);
        assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &slice), LS_OK);
        if (i == SLICES / 2) (void)wire_flush(&w); /* pending, or done: the rest is queued behind it */
    }
    (void)wire_flush(&w);
    while (at < t.len) read_a_little(&w, &t, &at);
    assert_int_equal(ls_stream_queued(w.s), 0);
    assert_int_equal(blocks_live(&w.place), 0);
    wire_close(&w);
    free(t.bytes);
    free(text);
}

TEST_IN(wire, w, adjacent_commits_are_one_slice)
{
    char got[8];
    assert_int_equal(ls_stream_queued(w->s), 0);
    for (int i = 0; i < 8; i++) { /* more often than there is room for separate slices */
        for (int k = 0; k < 8; k++) {
            char *to = ls_stream_room(&w->place.ctx, w->s, 1);
            assert_non_null(to);
            *to = (char)('a' + k);
            ls_stream_commit(w->s, 1);
            ls_stream_commit(w->s, 0);
        }
        assert_int_equal(wire_flush(w), LS_DONE);
        net_read(w->theirs, got, sizeof got);
        assert_memory_equal(got, "abcdefgh", 8);
    }
    assert_int_equal(wire_flush(w), LS_DONE); /* empty */
    assert_non_null(ls_stream_room(&w->place.ctx, w->s, 1));
    assert_int_equal(wire_flush(w), LS_DONE); /* reserved, but not written */
    assert_int_equal(blocks_live(&w->place), 0);
}

TEST(no_memory_leaves_the_queue_as_it_was)
{
    wire w;
    char got[3];
    wire_place_open(&w);
    wire_memory(&w, LS_BLOCK_SMALL); /* for one small block */
    wire_connect(&w);

    ls_block *all = ls_block_get(w.place.ctx.pool, LS_BLOCK_SMALL);
    ls_slice slice = ls_slice_static("abc", 3);
    assert_non_null(all);
    assert_null(ls_stream_room(&w.place.ctx, w.s, 1));
    assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &slice), LS_ENOMEM);
    assert_int_equal(slice.len, 3);
    ls_block_drop(all);

    char *to = ls_stream_room(&w.place.ctx, w.s, 3);
    assert_non_null(to);
    memcpy(to, "xyz", 3);
    ls_stream_commit(w.s, 3);
    assert_null(ls_stream_room(&w.place.ctx, w.s, LS_BLOCK_SMALL)); /* the cap */
    assert_null(ls_stream_room(&w.place.ctx, w.s, LS_BLOCK_LARGE));
    assert_int_equal(ls_stream_queued(w.s), 3);
    assert_int_equal(wire_flush(&w), LS_DONE);
    net_read(w.theirs, got, 3);
    assert_memory_equal(got, "xyz", 3);
    wire_close(&w);
}

TEST_IN(wire, w, a_closed_peer_drops_the_queue)
{
    char *to;
    wire_block_the_send(w);
    assert_non_null(to = ls_stream_room(&w->place.ctx, w->s, 10));
    memset(to, 'x', 10);
    ls_stream_commit(w->s, 10);
    close(w->theirs); /* with unread bytes: a reset */
    w->theirs = dup(0);
    wire_step(w);
    assert_int_equal(w->sent, 1);
    assert_true(w->sent_err == LS_ERESET || w->sent_err == LS_EPIPE);
    assert_null(*ls_stream_outq(w->s));
    assert_int_equal(blocks_live(&w->place), 0);

    assert_non_null(to = ls_stream_room(&w->place.ctx, w->s, 1)); /* immediate as well */
    *to = 'x';
    ls_stream_commit(w->s, 1);
    const int err = wire_flush(w);
    assert_true(err == LS_ERESET || err == LS_EPIPE);
    assert_null(*ls_stream_outq(w->s));
}

/* The send may have completed when it is aborted. The peer does not read the data queued behind it, so a send of that
 * data would stay pending. */
TEST_IN(wire, w, a_late_abort_drops_later_data)
{
    static char room[65536];
    ls_packet packet;
    int n;
    wire_block_the_send(w);
    wire_block_the_send(w);
    while ((n = ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, 0)) == 0)
        (void)recv(w->theirs, room, sizeof room, MSG_DONTWAIT);
    assert_int_equal(n, 1);
    ls_stream_abort(w->s);
    ls_packet_dispatch(&w->place.ctx, &packet);
    assert_int_equal(w->sent, 1);
    assert_int_equal(w->sent_err, LS_ECANCELED);
    assert_null(*ls_stream_outq(w->s));
    assert_int_equal(blocks_live(&w->place), 0);

    wire_block_the_send(w); /* an abort in time */
    ls_stream_abort(w->s);
    wire_step(w);
    assert_int_equal(w->sent, 2);
    assert_int_equal(w->sent_err, LS_ECANCELED);
    wire_block_the_send(w); /* later sends are not aborted */
    while (ls_port_wait(w->place.port, &w->place.ctx, &packet, 1, 0) == 0)
        (void)recv(w->theirs, room, sizeof room, MSG_DONTWAIT);
    ls_packet_dispatch(&w->place.ctx, &packet);
    assert_int_equal(w->sent, 3);
    assert_int_equal(w->sent_err, LS_OK);
}

TEST(truncating_the_queue)
{
    wire w;
    char got[16];
    wire_open(&w);
    assert_int_equal(ls_stream_end(w.s), 0);
    assert_false(ls_stream_truncate(w.s, 0));
    for (int round = 0; round < 4;
         round++) { /* inside a slice, between two, between slices of other blocks, at the end */
        wire_queue_text(&w, "abc");
        ls_slice slice = ls_slice_static("de", 2);
        if (round >= 2) assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &slice), LS_OK);
        const size_t end = ls_stream_end(w.s);
        assert_int_equal(end, round >= 2 ? 5 : 3);
        if (round == 1) assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &slice), LS_OK);
        if (round < 3) wire_queue_text(&w, "fgh");
        if (round == 2) assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &slice), LS_OK);
        assert_true(ls_stream_truncate(w.s, end));
        assert_int_equal(ls_stream_end(w.s), end);
        wire_queue_text(&w, "!"); /* the queue goes on behind it */
        assert_int_equal(wire_flush(&w), LS_DONE);
        net_read(w.theirs, got, end + 1);
        assert_memory_equal(got, round >= 2 ? "abcde!" : "abc!", end + 1);
        assert_int_equal(ls_stream_end(w.s), 0); /* positions begin again */
    }
    wire_queue_text(&w, "abc");
    assert_false(ls_stream_truncate(w.s, 0)); /* nothing before it: the caller drops the queue */
    ls_stream_discard(w.s);

    wire_block_the_send(&w); /* a pending send stays whole */
    const size_t end = ls_stream_end(w.s);
    wire_queue_text(&w, "abc");
    assert_true(ls_stream_truncate(w.s, 1));
    assert_int_equal(ls_stream_end(w.s), end);
    wire_disconnect(&w);
    assert_int_equal(blocks_live(&w.place), 0);
    wire_place_close(&w);
}

TEST(the_last_response_without_memory)
{
    enum { ALL = 64 };
    static ls_block *hoard[ALL];
    wire w;
    char got[8];
    wire_place_open(&w);
    wire_memory(&w, ALL * LS_BLOCK_SMALL);
    wire_connect(&w);
    for (int i = 0; i < ALL - 1; i++) assert_non_null(hoard[i] = ls_block_get(w.place.ctx.pool, LS_BLOCK_SMALL));
    assert_null(ls_stream_room(&w.place.ctx, w.s, 4));
    char *to = ls_stream_room_reserved(&w.place.ctx, w.s, 4);
    assert_non_null(to);
    memcpy(to, "last", 4);
    ls_stream_commit(w.s, 4);
    assert_int_equal(wire_flush(&w), LS_DONE);
    net_read(w.theirs, got, 4);
    assert_memory_equal(got, "last", 4);
    for (int i = 0; i < ALL - 1; i++) ls_block_drop(hoard[i]);
    wire_close(&w);
}
