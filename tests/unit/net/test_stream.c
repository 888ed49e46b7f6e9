/* test_stream.c - streams over real sockets, driven step by step: the queue byte for byte, deadlines, and closing in
 * every state. */
#include "port/port_fixture.h"

#include <errno.h>

#include "base/thread.h"
#include "net/stream.h"
#include "sched/actor.h"

typedef struct wire { /* a stream and its other end */
    ls_stream s;      /* first */
    net_place *place;
    int ours, theirs;
    int received, sent, closed; /* number of calls */
    int64_t received_result;
    int sent_err;
} wire;

static void on_received(ls_thread_ctx *ctx, ls_stream *s, int64_t result)
{
    wire *l = (wire *)s;
    (void)ctx;
    l->received++;
    l->received_result = result;
}

static void on_sent(ls_thread_ctx *ctx, ls_stream *s, int err)
{
    wire *l = (wire *)s;
    (void)ctx;
    l->sent++;
    l->sent_err = err;
}

static void on_closed(ls_thread_ctx *ctx, ls_stream *s)
{
    (void)ctx;
    ((wire *)s)->closed++;
}

static const ls_stream_proto proto = {on_received, on_sent, on_closed, NULL};

static void wire_open(wire *l, net_place *place)
{
    memset(l, 0, sizeof *l);
    l->place = place;
    net_tcp_pair(&l->ours, &l->theirs);
    assert_int_equal(ls_stream_open(&l->s, place->port, &proto, l->ours), LS_OK);
}

static void step(net_place *place)
{
    const ls_packet packet = net_next(place);
    ls_packet_dispatch(&place->ctx, &packet);
}

static void wire_close(wire *l)
{
    ls_packet packet;
    ls_stream_close(&l->place->ctx, &l->s);
    while (ls_port_wait(l->place->port, &l->place->ctx, &packet, 1, 0) > 0)
        ls_packet_dispatch(&l->place->ctx, &packet);
    assert_int_equal(l->closed, 1);
    close(l->theirs);
}

/* ---- receive ------------------------------------------------------------------------------------------------ */

static void receiving(void **state)
{
    net_place place;
    wire l;
    char room[4];
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
    assert_int_equal(blocks_live(&place), 0); /* an idle connection holds no buffer */
    net_write(l.theirs, "hello", 5);
    step(&place);
    assert_int_equal(l.received, 1);
    assert_int_equal(l.received_result, 5);
    assert_memory_equal(l.s.rx.recv.block->data, "hello", 5);
    ls_block_drop(l.s.rx.recv.block);

    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, room, sizeof room), LS_PENDING);
    net_write(l.theirs, "more", 4);
    step(&place);
    assert_int_equal(l.received_result, 4);
    assert_memory_equal(room, "more", 4);

    assert_int_equal(shutdown(l.theirs, SHUT_WR), 0);
    if (ls_stream_recv(&place.ctx, &l.s, room, sizeof room) == LS_PENDING) step(&place);
    assert_int_equal(l.s.rx.result, 0);
    wire_close(&l);
    net_close(&place);
}

/* ---- the queue ---------------------------------------------------------------------------------------------- */

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
static void queue_mix(wire *l, stream_bytes *t, size_t want, size_t piece_max)
{
    static const char text[] = "static text that outlives everything here";
    const size_t from = t->len;
    ls_thread_ctx *ctx = &l->place->ctx;
    while (t->len - from < want) {
        const size_t n = 1 + rnd(t) % piece_max;
        if (rnd(t) % 3 == 0) {
            ls_slice slice = ls_slice_static(text, sizeof text - 1);
            memcpy(t->bytes + t->len, text, sizeof text - 1);
            t->len += sizeof text - 1;
            assert_int_equal(ls_stream_push(ctx, &l->s, &slice), LS_OK);
        } else if (rnd(t) % 3 == 0) {
            ls_block *block = ls_block_get(ctx->pool, n <= LS_BLOCK_SMALL ? LS_BLOCK_SMALL : LS_BLOCK_LARGE);
            assert_non_null(block);
            fill(t, block->data, n);
            ls_slice slice = ls_slice_of(block, 0, n);
            assert_int_equal(ls_stream_push(ctx, &l->s, &slice), LS_OK);
            ls_block_drop(block); /* the queue's reference is the last */
        } else {
            char *to = ls_stream_room(ctx, &l->s, n + 10);
            assert_non_null(to);
            memset(to + n, '!', 10); /* all of the room may be written, less of it committed */
            fill(t, to, n);
            ls_stream_commit(&l->s, n);
        }
    }
}

static void expect_bytes(wire *l, stream_bytes *t, size_t *read_so_far, size_t upto)
{
    static char got[1 << 20];
    const size_t n = upto - *read_so_far;
    assert_true(n <= sizeof got);
    net_read(l->theirs, got, n);
    assert_memory_equal(got, t->bytes + *read_so_far, n);
    *read_so_far = upto;
}

static void a_mix_leaves_in_order_and_whole(void **state)
{
    net_place place;
    wire l;
    stream_bytes t = {.room = 4u << 20, .seed = 1};
    size_t at = 0;
    const int room = 1 << 20; /* received bytes count until they are acknowledged, which may take time */
    (void)state;
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    net_open(&place);
    wire_open(&l, &place);
    assert_int_equal(setsockopt(l.ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (int round = 0; round < 40; round++) {
        const size_t from = t.len;
        queue_mix(&l, &t, 1 + rnd(&t) % 16000, round % 2 ? 40 : 6000); /* fits the socket's buffers */
        assert_int_equal(ls_stream_queued(&l.s), t.len - from);
        assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
        assert_int_equal(ls_stream_queued(&l.s), 0);
        assert_null(l.s.out); /* the queue was freed */
        expect_bytes(&l, &t, &at, t.len);
    }
    assert_int_equal(blocks_live(&place), 0);
    assert_int_equal(l.sent, 0);
    wire_close(&l);
    net_close(&place);
    free(t.bytes);
}

/* Slices are queued while a send is pending, past every size of the array; the pending send still uses the old array. */
static void the_queue_grows_while_a_send_is_pending(void **state)
{
    net_place place;
    wire l;
    stream_bytes t = {.room = 8u << 20, .seed = 7};
    size_t at = 0;
    (void)state;
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    net_open(&place);
    for (int round = 0; round < 3; round++) {
        wire_open(&l, &place);
        at = t.len;
        queue_mix(&l, &t, 600000, round == 0 ? 60000 : 6000); /* the first array is already on the heap */
        assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_PENDING);
        for (int k = 0; k < 6; k++) {
            queue_mix(&l, &t, 3000, 30);
            assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_PENDING);
        }
        assert_int_equal(ls_stream_queued(&l.s), t.len - at);
        while (l.sent == 0) { /* read a little, send a little: many partial sends */
            char bytes[20000];
            const ssize_t n = recv(l.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
            if (n > 0) {
                assert_memory_equal(bytes, t.bytes + at, (size_t)n);
                at += (size_t)n;
            }
            ls_packet packet;
            if (ls_port_wait(place.port, &place.ctx, &packet, 1, n > 0 ? 0 : 1) > 0)
                ls_packet_dispatch(&place.ctx, &packet);
        }
        assert_int_equal(l.sent, 1);
        assert_int_equal(l.sent_err, LS_OK);
        assert_int_equal(ls_stream_queued(&l.s), 0);
        expect_bytes(&l, &t, &at, t.len);
        assert_int_equal(blocks_live(&place), 0);
        wire_close(&l);
    }
    net_close(&place);
    free(t.bytes);
}

/* More slices than one send takes, and than 16 bits count. */
static void a_queue_of_many_slices_leaves_in_several_sends(void **state)
{
    enum { SLICES = 200000 };
    net_place place;
    wire l;
    stream_bytes t = {.room = 2 * SLICES, .seed = 11};
    char *text = malloc(t.room);
    size_t at = 0;
    (void)state;
    t.bytes = malloc(t.room);
    assert_non_null(t.bytes);
    assert_non_null(text);
    net_open(&place);
    wire_open(&l, &place);
    for (int i = 0; i < SLICES; i++) {
        char *const from = text + t.len;
        const size_t len = 1 + (rnd(&t) & 1);
        fill(&t, from, len);
        ls_slice slice = ls_slice_static(from, len);
        assert_int_equal(ls_stream_push(&place.ctx, &l.s, &slice), LS_OK);
        if (i == SLICES / 2)
            (void)ls_stream_flush(&place.ctx, &l.s); /* pending, or done: the rest is queued behind it */
    }
    (void)ls_stream_flush(&place.ctx, &l.s);
    while (at < t.len) {
        char bytes[20000];
        const ssize_t n = recv(l.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) {
            assert_memory_equal(bytes, t.bytes + at, (size_t)n);
            at += (size_t)n;
        }
        ls_packet packet;
        if (ls_port_wait(place.port, &place.ctx, &packet, 1, n > 0 ? 0 : 1) > 0)
            ls_packet_dispatch(&place.ctx, &packet);
    }
    assert_int_equal(ls_stream_queued(&l.s), 0);
    assert_int_equal(blocks_live(&place), 0);
    wire_close(&l);
    net_close(&place);
    free(t.bytes);
    free(text);
}

static void adjacent_commits_are_one_slice(void **state)
{
    net_place place;
    wire l;
    char got[8];
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    assert_int_equal(ls_stream_queued(&l.s), 0);
    for (int i = 0; i < 8; i++) { /* more often than there is room for separate slices */
        for (int k = 0; k < 8; k++) {
            char *to = ls_stream_room(&place.ctx, &l.s, 1);
            assert_non_null(to);
            *to = (char)('a' + k);
            ls_stream_commit(&l.s, 1);
            ls_stream_commit(&l.s, 0);
        }
        assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
        net_read(l.theirs, got, sizeof got);
        assert_memory_equal(got, "abcdefgh", 8);
    }
    assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE); /* empty */
    assert_non_null(ls_stream_room(&place.ctx, &l.s, 1));
    assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE); /* reserved, but not written */
    assert_int_equal(blocks_live(&place), 0);
    wire_close(&l);
    net_close(&place);
}

static void no_memory_leaves_the_queue_as_it_was(void **state)
{
    net_place place;
    wire l;
    char got[3];
    (void)state;
    net_open(&place);
    ls_pool_close(place.ctx.pool);
    ls_pools_close(place.pools);
    assert_int_equal(ls_pools_open(LS_BLOCK_SMALL, &place.pools), LS_OK); /* for one small block */
    net_ctx_open(&place, &place.ctx, 0);
    wire_open(&l, &place);

    ls_block *all = ls_block_get(place.ctx.pool, LS_BLOCK_SMALL);
    ls_slice slice = ls_slice_static("abc", 3);
    assert_non_null(all);
    assert_null(ls_stream_room(&place.ctx, &l.s, 1));
    assert_int_equal(ls_stream_push(&place.ctx, &l.s, &slice), LS_ENOMEM);
    assert_int_equal(slice.len, 3);
    ls_block_drop(all);

    char *to = ls_stream_room(&place.ctx, &l.s, 3);
    assert_non_null(to);
    memcpy(to, "xyz", 3);
    ls_stream_commit(&l.s, 3);
    assert_null(ls_stream_room(&place.ctx, &l.s, LS_BLOCK_SMALL)); /* the cap */
    assert_null(ls_stream_room(&place.ctx, &l.s, LS_BLOCK_LARGE));
    assert_int_equal(ls_stream_queued(&l.s), 3);
    assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
    net_read(l.theirs, got, 3);
    assert_memory_equal(got, "xyz", 3);
    wire_close(&l);
    net_close(&place);
}

/* Queue more than the socket takes before the other end reads. */
static void block_the_send(wire *l)
{
    static const char plenty[8 << 20];
    ls_slice slice = ls_slice_static(plenty, sizeof plenty);
    assert_int_equal(ls_stream_push(&l->place->ctx, &l->s, &slice), LS_OK);
    assert_int_equal(ls_stream_flush(&l->place->ctx, &l->s), LS_PENDING);
}

static void a_closed_peer_drops_the_queue(void **state)
{
    net_place place;
    wire l;
    char *to;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    block_the_send(&l);
    assert_non_null(to = ls_stream_room(&place.ctx, &l.s, 10));
    memset(to, 'x', 10);
    ls_stream_commit(&l.s, 10);
    close(l.theirs); /* with unread bytes: a reset */
    l.theirs = dup(0);
    step(&place);
    assert_int_equal(l.sent, 1);
    assert_true(l.sent_err == LS_ERESET || l.sent_err == LS_EPIPE);
    assert_null(l.s.out);
    assert_int_equal(blocks_live(&place), 0);

    assert_non_null(to = ls_stream_room(&place.ctx, &l.s, 1)); /* immediate as well */
    *to = 'x';
    ls_stream_commit(&l.s, 1);
    const int err = ls_stream_flush(&place.ctx, &l.s);
    assert_true(err == LS_ERESET || err == LS_EPIPE);
    assert_null(l.s.out);
    wire_close(&l);
    net_close(&place);
}

/* The send may have completed when it is aborted. The peer does not read the data queued behind it, so a send of that
 * data would stay pending. */
static void a_late_abort_drops_later_data(void **state)
{
    static char room[65536];
    net_place place;
    wire l;
    ls_packet packet;
    int n;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    block_the_send(&l);
    block_the_send(&l);
    while ((n = ls_port_wait(place.port, &place.ctx, &packet, 1, 0)) == 0)
        (void)recv(l.theirs, room, sizeof room, MSG_DONTWAIT);
    assert_int_equal(n, 1);
    ls_stream_abort(&l.s);
    ls_packet_dispatch(&place.ctx, &packet);
    assert_int_equal(l.sent, 1);
    assert_int_equal(l.sent_err, LS_ECANCELED);
    assert_null(l.s.out);
    assert_int_equal(blocks_live(&place), 0);

    block_the_send(&l); /* an abort in time */
    ls_stream_abort(&l.s);
    step(&place);
    assert_int_equal(l.sent, 2);
    assert_int_equal(l.sent_err, LS_ECANCELED);
    block_the_send(&l); /* later sends are not aborted */
    while (ls_port_wait(place.port, &place.ctx, &packet, 1, 0) == 0)
        (void)recv(l.theirs, room, sizeof room, MSG_DONTWAIT);
    ls_packet_dispatch(&place.ctx, &packet);
    assert_int_equal(l.sent, 3);
    assert_int_equal(l.sent_err, LS_OK);
    wire_close(&l);
    net_close(&place);
}

/* ---- deadlines ---------------------------------------------------------------------------------------------- */

static void a_receive_ends_at_its_deadline(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    for (int i = 1; i <= 2; i++) { /* twice on the same stream */
        const uint64_t at_ms = ls_clock_coarse_ms() + 10;
        ls_stream_deadline(&l.s, at_ms, 0);
        assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
        while (l.received < i) step(&place);
        assert_int_equal(l.received_result, LS_ETIMEDOUT);
        assert_true(ls_clock_ns() / 1000000 >= at_ms);
    }
    wire_close(&l);
    net_close(&place);
}

static void a_passed_deadline_ends_a_later_receive(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    ls_stream_deadline(&l.s, 1, 0); /* in the past */
    step(&place);                   /* nothing was pending */
    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
    while (l.received == 0) step(&place); /* the timer checks again */
    assert_int_equal(l.received_result, LS_ETIMEDOUT);
    wire_close(&l);
    net_close(&place);
}

static void a_later_deadline_leaves_the_timer_alone(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    const uint64_t soon_ms = ls_clock_coarse_ms() + 20, later_ms = soon_ms + 60000;
    assert_int_equal(atomic_load(&l.s.timer_ms), 0);
    ls_stream_deadline(&l.s, soon_ms, 0);
    assert_true(atomic_load(&l.s.timer_ms) == soon_ms);
    ls_stream_deadline(&l.s, later_ms, 0);
    assert_true(atomic_load(&l.s.timer_ms) == soon_ms); /* one store */
    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
    step(&place); /* the timer fires at the earlier deadline */
    assert_int_equal(l.received, 0);
    assert_false(atomic_load(&l.s.expired));
    assert_true(atomic_load(&l.s.timer_ms) == later_ms);

    ls_stream_deadline(&l.s, UINT64_MAX, 0); /* removed: lazily as well */
    assert_true(atomic_load(&l.s.timer_ms) == later_ms);
    const uint64_t earlier_ms = ls_clock_coarse_ms() + 10; /* an earlier deadline moves the timer */
    ls_stream_deadline(&l.s, earlier_ms, 0);
    assert_true(atomic_load(&l.s.timer_ms) == earlier_ms);
    while (l.received == 0) step(&place);
    assert_int_equal(l.received_result, LS_ETIMEDOUT);
    wire_close(&l);
    net_close(&place);
}

static void a_removed_deadline_disarms_the_timer(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    ls_stream_deadline(&l.s, ls_clock_coarse_ms() + 5, 0);
    ls_stream_deadline(&l.s, UINT64_MAX, 0);
    step(&place);
    assert_true(atomic_load(&l.s.timer_ms) == 0);
    assert_int_equal(atomic_load(&l.s.refs), 1);
    wire_close(&l);
    net_close(&place);
}

static void progress_moves_the_deadline_of_a_send(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    block_the_send(&l); /* a part was sent: progress */
    assert_int_not_equal(ls_sock_progress_ms(l.s.sock), 0);
    ls_stream_deadline(&l.s, 1, 500); /* in the past */
    step(&place);
    assert_int_equal(l.sent, 0);
    assert_false(atomic_load(&l.s.expired));
    assert_true(atomic_load(&l.s.deadline_ms) == ls_sock_progress_ms(l.s.sock) + 500);
    while (l.sent == 0) step(&place); /* no further progress */
    assert_int_equal(l.sent_err, LS_ETIMEDOUT);
    assert_true(atomic_load(&l.s.expired));
    assert_null(l.s.out);
    wire_close(&l);
    net_close(&place);
}

/* ---- close -------------------------------------------------------------------------------------------------- */

typedef struct firing { /* a thread that handles the timer's packets */
    net_place *place;
    ls_thread thread;
    _Atomic bool stop;
    _Atomic uint64_t fired;
} firing;

/* The peer takes bytes before every deadline, but fewer than the minimum rate. */
static void a_send_below_the_minimum_rate_ends(void **state)
{
    enum { STALL_MS = 60 };
    net_place place;
    wire l;
    (void)state;
    for (int round = 0; round < 2; round++) {
        const bool is_slow = round == 0;
        net_open(&place);
        wire_open(&l, &place);
        l.s.send_rate_min = is_slow ? UINT32_MAX : 1;
        block_the_send(&l);
        ls_stream_deadline(&l.s, ls_clock_ns() / 1000000u + STALL_MS, STALL_MS);
        const uint64_t until_ms = ls_clock_ns() / 1000000u + 8 * STALL_MS;
        while (l.sent == 0 && (is_slow || ls_clock_ns() / 1000000u < until_ms)) {
            char bytes[65536];
            (void)recv(l.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
            ls_packet packet;
            if (ls_port_wait(place.port, &place.ctx, &packet, 1, 2) > 0) ls_packet_dispatch(&place.ctx, &packet);
        }
        if (is_slow) {
            assert_int_equal(l.sent, 1);
            assert_true(l.sent_err == LS_ETIMEDOUT || l.sent_err == LS_OK);
        }
        wire_close(&l);
        net_close(&place);
    }
}

static void queue_text(wire *l, const char *text)
{
    char *to = ls_stream_room(&l->place->ctx, &l->s, strlen(text));
    assert_non_null(to);
    memcpy(to, text, strlen(text));
    ls_stream_commit(&l->s, strlen(text));
}

static void truncating_the_queue(void **state)
{
    net_place place;
    wire l;
    char got[16];
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    assert_int_equal(ls_stream_end(&l.s), 0);
    assert_false(ls_stream_truncate(&l.s, 0));
    for (int round = 0; round < 4;
         round++) { /* inside a slice, between two, between slices of other blocks, at the end */
        queue_text(&l, "abc");
        ls_slice slice = ls_slice_static("de", 2);
        if (round >= 2) assert_int_equal(ls_stream_push(&place.ctx, &l.s, &slice), LS_OK);
        const size_t end = ls_stream_end(&l.s);
        assert_int_equal(end, round >= 2 ? 5 : 3);
        if (round == 1) assert_int_equal(ls_stream_push(&place.ctx, &l.s, &slice), LS_OK);
        if (round < 3) queue_text(&l, "fgh");
        if (round == 2) assert_int_equal(ls_stream_push(&place.ctx, &l.s, &slice), LS_OK);
        assert_true(ls_stream_truncate(&l.s, end));
        assert_int_equal(ls_stream_end(&l.s), end);
        queue_text(&l, "!"); /* the queue goes on behind it */
        assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
        net_read(l.theirs, got, end + 1);
        assert_memory_equal(got, round >= 2 ? "abcde!" : "abc!", end + 1);
        assert_int_equal(ls_stream_end(&l.s), 0); /* positions begin again */
    }
    queue_text(&l, "abc");
    assert_false(ls_stream_truncate(&l.s, 0)); /* nothing before it: the caller drops the queue */
    ls_stream_discard(&l.s);

    block_the_send(&l); /* a pending send stays whole */
    const size_t end = ls_stream_end(&l.s);
    queue_text(&l, "abc");
    assert_true(ls_stream_truncate(&l.s, 1));
    assert_int_equal(ls_stream_end(&l.s), end);
    wire_close(&l);
    assert_int_equal(blocks_live(&place), 0);
    net_close(&place);
}

static void the_last_response_without_memory(void **state)
{
    enum { ALL = 64 };
    static ls_block *hoard[ALL];
    net_place place;
    wire l;
    char got[8];
    (void)state;
    net_open(&place);
    ls_pool_close(place.ctx.pool);
    ls_pools_close(place.pools);
    assert_int_equal(ls_pools_open(ALL * LS_BLOCK_SMALL, &place.pools), LS_OK);
    net_ctx_open(&place, &place.ctx, 0);
    wire_open(&l, &place);
    for (int i = 0; i < ALL - 1; i++) assert_non_null(hoard[i] = ls_block_get(place.ctx.pool, LS_BLOCK_SMALL));
    assert_null(ls_stream_room(&place.ctx, &l.s, 4));
    char *to = ls_stream_room_reserved(&place.ctx, &l.s, 4);
    assert_non_null(to);
    memcpy(to, "last", 4);
    ls_stream_commit(&l.s, 4);
    assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
    net_read(l.theirs, got, 4);
    assert_memory_equal(got, "last", 4);
    for (int i = 0; i < ALL - 1; i++) ls_block_drop(hoard[i]);
    wire_close(&l);
    net_close(&place);
}

static void firing_main(void *arg)
{
    firing *f = arg;
    ls_packet packet;
    ls_thread_ctx ctx;
    net_ctx_open(f->place, &ctx, 1);
    while (!atomic_load(&f->stop)) {
        if (ls_port_wait(f->place->port, &ctx, &packet, 1, 1) <= 0) continue;
        ls_packet_dispatch(&ctx, &packet);
        atomic_fetch_add(&f->fired, 1);
    }
    ls_port_detach(f->place->port, &ctx);
    ls_pool_close(ctx.pool);
}

/* Deadlines are set while the timer fires on another thread: the last deadline must be kept in every interleaving. */
static void a_deadline_set_while_the_timer_fires_is_kept(void **state)
{
    enum { FIRED = 20000 };
    firing f = {.stop = false};
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    f.place = &place;
    assert_int_equal(ls_thread_start(&f.thread, "firing", firing_main, &f), LS_OK);
    const uint64_t until_ms = ls_clock_coarse_ms() + 3000; /* fewer rounds on a busy machine */
    /* In the past, and each before the one for which the timer may be firing. */
    for (uint64_t at_ms = 1u << 20; atomic_load(&f.fired) < FIRED && ls_clock_coarse_ms() < until_ms; at_ms--) {
        if (at_ms == 1) at_ms = 1u << 20;
        ls_stream_deadline(&l.s, UINT64_MAX, 0);
        ls_stream_deadline(&l.s, at_ms, 0);
    }
    atomic_store(&f.stop, true);
    ls_thread_join(&f.thread);
    assert_true(atomic_load(&f.fired) > 0);
    ls_stream_deadline(&l.s, UINT64_MAX, 0);
    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
    ls_stream_deadline(&l.s, ls_clock_coarse_ms() + 1, 0);
    while (l.received == 0) step(&place);
    assert_int_equal(l.received_result, LS_ETIMEDOUT);
    wire_close(&l);
    net_close(&place);
}

static void closing_in_each_state(void **state)
{
    enum { RX = 1, TX = 2, TIMER = 4, QUEUED = 8, ALL = 16 };
    net_place place;
    (void)state;
    net_open(&place);
    for (int what = 0; what < ALL; what++) {
        wire l;
        wire_open(&l, &place);
        if (what & TIMER) ls_stream_deadline(&l.s, ls_clock_coarse_ms() + 60000, 0);
        if (what & RX) assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
        if (what & TX) block_the_send(&l);
        if (what & QUEUED) {
            assert_non_null(ls_stream_room(&place.ctx, &l.s, 10));
            ls_stream_commit(&l.s, 10);
        }
        ls_stream_close(&place.ctx, &l.s);
        assert_int_equal(l.closed, what & (RX | TX) ? 0 : 1); /* packets may still arrive */
        for (int n = !!(what & RX) + !!(what & TX); n > 0; n--) {
            assert_int_equal(l.closed, 0);
            step(&place);
        }
        assert_int_equal(l.closed, 1);
        assert_int_equal(l.received + l.sent, 0); /* no callback */
        assert_int_equal(blocks_live(&place), 0);
        net_quiet(&place, 0);
        close(l.theirs);
    }
    net_close(&place);
}

static void closing_while_the_timers_packet_is_queued(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    ls_stream_deadline(&l.s, 1, 0);
    const ls_packet packet = net_next(&place);
    assert_ptr_equal(packet.op, &l.s.timer.op);
    ls_stream_close(&place.ctx, &l.s);
    assert_int_equal(l.closed, 0);
    ls_packet_dispatch(&place.ctx, &packet);
    assert_int_equal(l.closed, 1);
    close(l.theirs);
    net_close(&place);
}

static void closing_with_bytes_that_were_received(void **state)
{
    net_place place;
    wire l;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    assert_int_equal(ls_stream_recv(&place.ctx, &l.s, NULL, LS_BLOCK_SMALL), LS_PENDING);
    net_write(l.theirs, "hello", 5);
    const ls_packet packet = net_next(&place);
    assert_int_equal(packet.result, 5);
    ls_stream_close(&place.ctx, &l.s);
    ls_packet_dispatch(&place.ctx, &packet); /* its block is dropped */
    assert_int_equal(l.closed, 1);
    assert_int_equal(l.received, 0);
    assert_int_equal(blocks_live(&place), 0);
    close(l.theirs);
    net_close(&place);
}

/* ---- lingering ---------------------------------------------------------------------------------------------- */

static void lingering_lets_the_peer_read_the_response(void **state)
{
    static char much[300000];
    net_place place;
    wire l;
    char got[6], *to;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    assert_non_null(to = ls_stream_room(&place.ctx, &l.s, 6));
    memcpy(to, "answer", 6);
    ls_stream_commit(&l.s, 6);
    assert_int_equal(ls_stream_flush(&place.ctx, &l.s), LS_DONE);
    net_write(l.theirs, "unread", 6); /* without lingering, a reset */
    ls_stream_linger(&place.ctx, &l.s, 60000);
    for (size_t at = 0; at < sizeof much;) { /* the client continues to send */
        const ssize_t n = send(l.theirs, much + at, sizeof much - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
        ls_packet packet;
        if (ls_port_wait(place.port, &place.ctx, &packet, 1, 0) > 0) ls_packet_dispatch(&place.ctx, &packet);
        assert_true(n > 0 || errno == EAGAIN);
        assert_int_equal(l.closed, 0);
    }
    net_read(l.theirs, got, 6);
    assert_memory_equal(got, "answer", 6);
    assert_int_equal(read(l.theirs, got, 1), 0); /* our side was shut down */
    close(l.theirs);
    while (l.closed == 0) step(&place);
    assert_int_equal(l.received + l.sent, 0);
    net_close(&place);
}

static void lingering_has_a_time_limit(void **state)
{
    net_place place;
    wire l;
    char got;
    (void)state;
    net_open(&place);
    wire_open(&l, &place);
    const uint64_t at_ms = ls_clock_coarse_ms() + 10;
    ls_stream_linger(&place.ctx, &l.s, 10);
    assert_int_equal(l.closed, 0);
    while (l.closed == 0) step(&place); /* the peer neither sends nor closes */
    assert_true(ls_clock_ns() / 1000000 >= at_ms);
    assert_int_equal(read(l.theirs, &got, 1), 0);
    close(l.theirs);

    wire_open(&l, &place);
    ls_stream_linger(&place.ctx, &l.s, 0); /* no lingering */
    assert_int_equal(l.closed, 1);
    close(l.theirs);

    wire_open(&l, &place);
    net_write(l.theirs, "last words", 10);
    close(l.theirs);
    ls_stream_linger(&place.ctx, &l.s, 60000); /* the peer has closed */
    while (l.closed == 0) step(&place);
    net_close(&place);
}

/* ---- open --------------------------------------------------------------------------------------------------- */

static void a_full_port_closes_the_descriptor(void **state)
{
    const ls_port_options options = {.sockets_max = 1, .backend = test_backend()};
    net_place place;
    ls_port *full;
    ls_sock *sock;
    ls_stream s;
    int ours, theirs, got;
    (void)state;
    net_open(&place);
    assert_int_equal(ls_port_open(&options, &full), LS_OK);
    assert_int_equal(ls_sock_attach(full, net_tcp(), NULL, false, &sock), LS_OK);
    net_pair(&ours, &theirs);
    assert_int_equal(ls_stream_open(&s, full, &proto, ours), LS_ELIMIT);
    assert_int_equal(read(theirs, &got, sizeof got), 0);
    close(theirs);
    ls_thread_ctx ctx;
    ls_thread_ctx_init(&ctx, full, place.ctx.pool, 0);
    ls_sock_close(&ctx, sock);
    ls_port_close(full);
    net_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receiving),
        cmocka_unit_test(a_mix_leaves_in_order_and_whole),
        cmocka_unit_test(the_queue_grows_while_a_send_is_pending),
        cmocka_unit_test(a_queue_of_many_slices_leaves_in_several_sends),
        cmocka_unit_test(adjacent_commits_are_one_slice),
        cmocka_unit_test(no_memory_leaves_the_queue_as_it_was),
        cmocka_unit_test(a_closed_peer_drops_the_queue),
        cmocka_unit_test(a_late_abort_drops_later_data),
        cmocka_unit_test(a_receive_ends_at_its_deadline),
        cmocka_unit_test(a_passed_deadline_ends_a_later_receive),
        cmocka_unit_test(a_later_deadline_leaves_the_timer_alone),
        cmocka_unit_test(a_removed_deadline_disarms_the_timer),
        cmocka_unit_test(progress_moves_the_deadline_of_a_send),
        cmocka_unit_test(a_send_below_the_minimum_rate_ends),
        cmocka_unit_test(truncating_the_queue),
        cmocka_unit_test(the_last_response_without_memory),
        cmocka_unit_test(a_deadline_set_while_the_timer_fires_is_kept),
        cmocka_unit_test(closing_in_each_state),
        cmocka_unit_test(closing_while_the_timers_packet_is_queued),
        cmocka_unit_test(closing_with_bytes_that_were_received),
        cmocka_unit_test(lingering_lets_the_peer_read_the_response),
        cmocka_unit_test(lingering_has_a_time_limit),
        cmocka_unit_test(a_full_port_closes_the_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
