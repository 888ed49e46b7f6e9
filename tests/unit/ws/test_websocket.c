/* test_websocket.c - messages of a WebSocket connection: both roles, frames cut at every byte, limits, memory,
 * back-pressure. */
/* sanitizers: asan; no thread starts */
#include "ws_fixture.h"

TEST(echoes)
{
    for (int client = 0; client <= 1; client++) {
        ws_place p;
        ws_open(&p, client);
        p.echo = true;
        for (int i = 0; i < 3; i++) {
            ws_say_text(&p, "hello");
            ws_expect_text(&p, "hello");
            assert_int_equal(p.slices, 1);
        }
        ws_say(&p, WS_FIN | LS_WS_BINARY, "\xff\0", 2);
        ws_expect(&p, LS_WS_BINARY, "\xff\0", 2);
        ws_say_text(&p, "");
        ws_expect_text(&p, "");
        assert_int_equal(p.messages, 5);
        wire_pump(&p.wire);
        assert_int_equal(blocks_live(&p.wire.place), 0); /* an idle connection holds no block */
        ws_close(&p);
    }
}

/* ---- frames cut at every byte ----------------------------------------------------------------------------------- */

enum { LONG_BYTES = 300 };

static size_t put_sequence(const ws_place *p, char *out)
{
    static const char letters[LONG_BYTES];
    char *to = out;
    to += ws_frame(p, to, LS_WS_TEXT, "gr\xc3", 3); /* a character in two fragments, a ping between them */
    to += ws_frame(p, to, WS_FIN | LS_WS_PING, "are you there", 13);
    to += ws_frame(p, to, LS_WS_CONTINUATION, "", 0);
    to += ws_frame(p, to, LS_WS_CONTINUATION, "\xbc", 1);
    to += ws_frame(p, to, WS_FIN | LS_WS_CONTINUATION, "n", 1);
    to += ws_frame(p, to, WS_FIN | LS_WS_PONG, "unasked", 7);
    to += ws_frame(p, to, WS_FIN | LS_WS_BINARY, letters, LONG_BYTES);
    to += ws_frame(p, to, WS_FIN | LS_WS_TEXT, "", 0);
    to += ws_frame(p, to, WS_FIN | LS_WS_CLOSE,
                   "\x03\xe8"
                   "bye",
                   5);
    return (size_t)(to - out);
}

static void expect_sequence(ws_place *p)
{
    static const char letters[LONG_BYTES];
    ws_expect(p, LS_WS_PONG, "are you there", 13);
    ws_expect_text(p, "gr\xc3\xbcn");
    ws_expect(p, LS_WS_BINARY, letters, LONG_BYTES);
    ws_expect_text(p, "");
    ws_expect_close(p, LS_WS_NORMAL);
    assert_int_equal(p->messages, 3);
    assert_int_equal(p->code, LS_WS_NORMAL);
    assert_string_equal(p->reason, "bye");
}

TEST(every_byte_may_come_alone)
{
    char bytes[1024];
    for (int client = 0; client <= 1; client++) {
        ws_place p;
        ws_open(&p, client);
        p.echo = true;
        const size_t len = put_sequence(&p, bytes);
        for (size_t i = 0; i < len; i++) {
            ws_write(&p, bytes + i, 1);
            wire_pump(&p.wire);
        }
        expect_sequence(&p);
        ws_hang_up(&p);
        ws_await_freed(&p);
        ws_place_close(&p);
    }
}

TEST_IN(ws_place, p, two_parts_cut_anywhere)
{
    char bytes[1024];
    p->echo = true;
    const size_t len = put_sequence(p, bytes);
    for (size_t cut = 1; cut < len; cut++) {
        ws_connect(p);
        ws_write(p, bytes, cut);
        wire_pump(&p->wire);
        ws_write(p, bytes + cut, len - cut);
        expect_sequence(p);
        ws_hang_up(p);
        ws_await_freed(p);
    }
}

/* ---- lengths and limits ----------------------------------------------------------------------------------------- */

TEST(echoes_all_lengths)
{
    static const size_t lengths[] = {1,    2,     125,   126,   127,   2047,  2048,  2049,   4081,    4082,   4090,
                                     4096, 16384, 65521, 65522, 65535, 65536, 65537, 200000, 1048575, 1048576};
    for (int client = 0; client <= 1; client++) {
        ws_place p;
        ws_open(&p, client);
        p.echo = true;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            char *bytes = pattern(lengths[i], (unsigned)i);
            ws_say(&p, WS_FIN | LS_WS_BINARY, bytes, lengths[i]);
            ws_expect(&p, LS_WS_BINARY, bytes, lengths[i]);
            free(bytes);
        }
        ws_close(&p);
    }
}

/* Once the blocks have adapted, a message of 16 KiB is one slice of its block, and its bytes were not copied. */
TEST_IN(ws_server, p, message_of_16k_is_one_slice)
{
    ls_pools_stats before, after;
    p->echo = true;
    char *bytes = pattern(16384, 1);
    for (int i = 0; i < 4; i++) {
        ls_pools_stat(p->wire.place.pools, &before);
        ws_say(p, WS_FIN | LS_WS_BINARY, bytes, 16384);
        ws_expect(p, LS_WS_BINARY, bytes, 16384);
        ls_pools_stat(p->wire.place.pools, &after);
        assert_int_equal(p->slices, 1);
        assert_true(after.bytes_copied - before.bytes_copied <= (i == 0 ? LS_BLOCK_SMALL : 0));
    }
    free(bytes);
}

TEST(refuses_long_messages)
{
    enum { MAX = 1000 };
    static char bytes[MAX + 1];
    ws_place p;
    ws_place_open(&p);
    p.config.message_bytes_max = MAX;
    p.echo = true;
    ws_connect(&p);
    ws_say(&p, WS_FIN | LS_WS_BINARY, bytes, MAX); /* at the limit */
    ws_expect(&p, LS_WS_BINARY, bytes, MAX);
    ws_say(&p, LS_WS_BINARY, bytes, MAX - 1);
    ws_say(&p, WS_FIN | LS_WS_CONTINUATION, bytes, 1);
    ws_expect(&p, LS_WS_BINARY, bytes, MAX);
    char head[LS_WS_HEAD_BYTES_MAX + MAX + 1];
    (void)ws_frame(&p, head, WS_FIN | LS_WS_BINARY, bytes, MAX + 1);
    ws_write(&p, head, 8); /* the head alone is refused */
    ws_expect_close(&p, LS_WS_TOO_BIG);
    assert_int_equal(p.code, LS_WS_TOO_BIG);
    ws_expect_end(&p);
    ws_hang_up(&p);
    ws_await_freed(&p);

    ws_connect(&p);
    ws_say(&p, LS_WS_BINARY, bytes, MAX);
    ws_say(&p, LS_WS_CONTINUATION, bytes, 1);
    ws_expect_close(&p, LS_WS_TOO_BIG);
    assert_int_equal(p.messages, 0);
    ws_close(&p);
}

TEST_IN(ws_server, p, limits_of_control_payloads)
{
    static const char bytes[LS_WS_CONTROL_BYTES_MAX + 1];
    ws_say(p, WS_FIN | LS_WS_PING, bytes, LS_WS_CONTROL_BYTES_MAX);
    ws_expect(p, LS_WS_PONG, bytes, LS_WS_CONTROL_BYTES_MAX);
    ws_say(p, WS_FIN | LS_WS_PING, bytes, LS_WS_CONTROL_BYTES_MAX + 1);
    ws_expect_close(p, LS_WS_PROTOCOL_ERROR);
}

/* ---- memory of many fragments ----------------------------------------------------------------------------------- */

static uint64_t bytes_live(ws_place *p)
{
    ls_pools_stats stats;
    ls_pools_stat(p->wire.place.pools, &stats);
    return stats.bytes_live;
}

TEST_IN(ws_server, p, tiny_fragments_share_blocks)
{
    enum { COUNT = 200000, BATCH = 1000 };
    static char batch[BATCH * 16];
    for (int i = 0; i < COUNT; i += BATCH) {
        char *to = batch;
        for (int k = 0; k < BATCH; k++) to += ws_frame(p, to, i + k == 0 ? LS_WS_BINARY : LS_WS_CONTINUATION, "x", 1);
        ws_write(p, batch, (size_t)(to - batch));
        wire_pump(&p->wire);
        assert_true(bytes_live(p) <= (uint64_t)i * 2 + 4 * LS_BLOCK_LARGE);
    }
    assert_int_equal(p->messages, 0);
    ws_say(p, WS_FIN | LS_WS_CONTINUATION, "y", 1);
    ws_await(p, &p->messages, 1);
    assert_int_equal(p->bytes, COUNT + 1);
    assert_int_equal(p->last[COUNT], 'y');
    assert_null(memchr(p->last, 'y', COUNT));
}

TEST_IN(ws_client, p, fragments_that_come_one_by_one_share_blocks)
{
    enum { COUNT = 3000, BYTES = 7 };
    char *bytes = pattern(COUNT * BYTES, 3);
    for (int i = 0; i < COUNT; i++) {
        ws_say(p, (i == 0 ? LS_WS_BINARY : LS_WS_CONTINUATION) | (i == COUNT - 1 ? WS_FIN : 0), bytes + i * BYTES,
               BYTES);
        wire_pump(&p->wire);
        assert_true(bytes_live(p) <= (uint64_t)i * BYTES + 2 * LS_BLOCK_SMALL);
    }
    ws_await(p, &p->messages, 1);
    assert_int_equal(p->bytes, COUNT * BYTES);
    assert_memory_equal(p->last, bytes, COUNT * BYTES);
    free(bytes);
}

/* The announcement of a long message, and a few of its bytes, cost one small block. */
TEST_IN(ws_server, p, announcement_costs_a_small_block)
{
    static char bytes[1 << 20];
    char *frame = malloc(sizeof bytes + LS_WS_HEAD_BYTES_MAX);
    const size_t len = ws_frame(p, frame, WS_FIN | LS_WS_BINARY, bytes, sizeof bytes);
    size_t at = 0;
    for (; at < 1400; at += 100) {
        ws_write(p, frame + at, 100);
        wire_pump(&p->wire);
        assert_true(bytes_live(p) <= LS_BLOCK_SMALL);
    }
    ws_write(p, frame + at, len - at);
    ws_await(p, &p->messages, 1);
    assert_int_equal(p->bytes, sizeof bytes);
    free(frame);
}

/* Without memory the connection ends with 1011; the next one works. */
TEST(out_of_memory_costs_this_connection)
{
    static char bytes[1 << 20];
    ws_place p;
    ws_place_open(&p);
    wire_memory(&p.wire, 512 << 10);
    p.echo = true;
    ws_connect(&p);
    ws_say(&p, WS_FIN | LS_WS_BINARY, bytes, sizeof bytes);
    ws_expect_close(&p, LS_WS_INTERNAL);
    ws_hang_up(&p);
    ws_await_freed(&p);
    ws_connect(&p);
    ws_say(&p, WS_FIN | LS_WS_BINARY, bytes, 100 << 10);
    ws_expect(&p, LS_WS_BINARY, bytes, 100 << 10);
    ws_close(&p);
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

TEST_IN(ws_place, p, text_must_be_utf8)
{
    static const struct {
        const char *bytes;
        bool whole; /* send the frame to its end */
    } cases[] = {{"a\xff", true}, {"\xc3", true}, {"\xed\xa0\x80", true}, {"ab\xfe", false}, {"\xf4\x90", false}};
    char frame[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64] = "";
        const size_t len = strlen(cases[i].bytes);
        memcpy(text, cases[i].bytes, len);
        ws_connect(p);
        const size_t n = ws_frame(p, frame, WS_FIN | LS_WS_TEXT, text, cases[i].whole ? len : sizeof text);
        ws_write(p, frame, cases[i].whole ? n : n - sizeof text + len); /* refused before the end of the frame */
        ws_expect_close(p, LS_WS_BAD_DATA);
        assert_int_equal(p->code, LS_WS_BAD_DATA);
        assert_int_equal(p->messages, 0);
        ws_disconnect(p);
    }
}

/* ---- back-pressure ---------------------------------------------------------------------------------------------- */

static void do_consume(ws_place *p)
{
    ls_ws_consume(&p->wire.place.ctx, p->ws);
}

TEST_IN(ws_server, p, message_that_waits_stops_the_peer)
{
    static char bytes[8192];
    char frame[sizeof bytes + LS_WS_HEAD_BYTES_MAX];
    size_t sent = 0, blocked = 0;
    p->keep = true;
    const size_t len = ws_frame(p, frame, WS_FIN | LS_WS_BINARY, bytes, sizeof bytes);
    while (blocked < 3) { /* until neither end takes more */
        const ssize_t n = send(p->wire.theirs, frame + sent % len, len - sent % len, MSG_DONTWAIT);
        if (n > 0)
            sent += (size_t)n;
        else if (!wire_try(&p->wire, 20))
            blocked++;
        assert_true(sent < 64u << 20);
    }
    assert_int_equal(p->messages, 1);
    assert_true(bytes_live(p) <= LS_BLOCK_LARGE);
    const int count = (int)(sent / len);
    for (int i = 1; i <= count; i++) {
        assert_non_null(ls_ws_message_get(p->ws));
        ws_inside(p, do_consume);
        if (i < count) ws_await(p, &p->messages, i + 1);
    }
    assert_null(ls_ws_message_get(p->ws));
}

enum { SENT_BYTES = 60000, SENT_COUNT = 200 };

static void do_send_until_pending(ws_place *p)
{
    static char bytes[SENT_BYTES];
    int err = LS_DONE;
    for (int i = 0; i < SENT_COUNT; i++) {
        ls_slice slice = ls_slice_static(bytes, sizeof bytes);
        const size_t before = ls_ws_queued(p->ws);
        err = ls_ws_send(&p->wire.place.ctx, p->ws, LS_WS_BINARY, &slice, 1);
        assert_int_equal(err, before + SENT_BYTES + 4 > p->config.write_bytes_high ? LS_PENDING : LS_DONE);
    }
    assert_int_equal(err, LS_PENDING);
    assert_int_equal(ls_ws_flush(&p->wire.place.ctx, p->ws), LS_PENDING);
}

TEST_IN(ws_server, p, send_waits_above_the_high_water_mark)
{
    static const char zeros[SENT_BYTES];
    p->config.write_bytes_high = SENT_BYTES + 4; /* at the mark: not above it */
    ws_inside(p, do_send_until_pending);
    assert_int_equal(p->drained, 0);
    for (int i = 0; i < SENT_COUNT; i++) ws_expect(p, LS_WS_BINARY, zeros, SENT_BYTES);
    ws_await(p, &p->drained, 1);
    assert_int_equal(ls_ws_queued(p->ws), 0);
}

/* A send inside an event that returned LS_PENDING is followed by `drained` although one flush sends all. */
static void send_pending_in_event(ws_place *p)
{
    static char bytes[5000];
    ls_slice slice = ls_slice_static(bytes, sizeof bytes);
    assert_int_equal(ls_ws_send(&p->wire.place.ctx, p->ws, LS_WS_BINARY, &slice, 1), LS_PENDING);
    assert_int_equal(ls_ws_flush(&p->wire.place.ctx, p->ws), LS_PENDING);
    assert_int_equal(p->drained, 0);
}

TEST_IN(ws_server, p, drained_follows_a_send_in_an_event)
{
    static const char zeros[5000];
    p->config.write_bytes_high = 1000;
    p->on_message = send_pending_in_event;
    ws_say_text(p, "go");
    ws_expect(p, LS_WS_BINARY, zeros, sizeof zeros);
    ws_await(p, &p->drained, 1);
}

static uint64_t sends(const ws_place *p)
{
    const ls_thread_stats *stats = &p->wire.place.ctx.stats;
    return atomic_load(&stats->send_inline) + atomic_load(&stats->send_queued);
}

TEST_IN(ws_server, p, frames_of_one_receive_leave_in_one_send)
{
    char bytes[1200], *to = bytes;
    p->echo = true;
    for (int i = 0; i < 100; i++) to += ws_frame(p, to, WS_FIN | LS_WS_TEXT, "hello", 5);
    const uint64_t before = sends(p);
    ws_write(p, bytes, (size_t)(to - bytes));
    for (int i = 0; i < 100; i++) ws_expect_text(p, "hello");
    assert_true(sends(p) - before <= 1);
}

/* The answer to a flood of pings, while nothing can be sent, is one pong: the newest (RFC 6455 section 5.5.3). */
TEST_IN(ws_server, p, pings_without_reading_get_one_pong)
{
    static const char zeros[SENT_BYTES];
    char name[16];
    ws_inside(p, do_send_until_pending);
    const size_t queued = ls_ws_queued(p->ws);
    for (int i = 0; i < 5000; i++) {
        const int len = snprintf(name, sizeof name, "ping %d", i);
        ws_say(p, WS_FIN | LS_WS_PING, name, (size_t)len);
    }
    wire_pump(&p->wire);
    assert_true(ls_ws_queued(p->ws) <= queued);
    for (int i = 0; i < SENT_COUNT; i++) ws_expect(p, LS_WS_BINARY, zeros, SENT_BYTES);
    ws_expect(p, LS_WS_PONG, "ping 4999", 9);
}

/* ---- publish ---------------------------------------------------------------------------------------------------- */

static ls_slice published; /* a frame in a block */
static size_t published_payload;
static int publish_result;
static bool publish_now;

static void do_publish(ws_place *p)
{
    publish_result = ls_ws_publish(&p->wire.place.ctx, p->ws, &published, NULL, publish_now);
}

static void do_flush(ws_place *p)
{
    (void)ls_ws_flush(&p->wire.place.ctx, p->ws);
}

static void make_publication(ws_place *p, size_t payload)
{
    ls_block *block = ls_block_get(p->wire.place.ctx.pool, LS_BLOCK_LARGE);
    const ls_ws_head head = {.length = payload, .opcode = LS_WS_BINARY, .fin = true};
    const size_t n = ls_ws_head_write(&head, block->data);
    memset(block->data + n, 'p', payload);
    published = (ls_slice){block, block->data, n + payload};
    published_payload = payload;
}

TEST(publishes_up_to_the_limit_of_the_queue)
{
    static const size_t payloads[] = {1, 64, 510, 1024, 60000};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        ws_place p;
        ws_server_open(&p);
        make_publication(&p, payloads[i]);
        p.config.queue_bytes_max = (uint32_t)(3 * published.len);
        for (int n = 0; n < 3; n++) {
            ws_inside(&p, do_publish);
            assert_int_equal(publish_result, LS_PENDING);
        }
        ws_inside(&p, do_publish);
        assert_int_equal(publish_result, LS_ELIMIT);
        assert_int_equal(ls_ws_queued(p.ws), 3 * published.len);
        ws_inside(&p, do_flush);
        char *expected = malloc(published_payload);
        memset(expected, 'p', published_payload);
        for (int n = 0; n < 3; n++) ws_expect(&p, LS_WS_BINARY, expected, published_payload);
        free(expected);
        wire_pump(&p.wire);
        p.config.queue_bytes_max = (uint32_t)published.len - 1; /* an empty queue takes one message of any length */
        ws_inside(&p, do_publish);
        assert_int_equal(publish_result, LS_PENDING);
        ws_inside(&p, do_publish);
        assert_int_equal(publish_result, LS_ELIMIT);
        ws_inside(&p, do_flush);
        expected = malloc(published_payload);
        memset(expected, 'p', published_payload);
        ws_expect(&p, LS_WS_BINARY, expected, published_payload);
        free(expected);
        ls_slice_drop(&published);
        ws_close(&p);
    }
}

/* Publications that are to leave at once arrive whole and in order: the first ones without a queue where the system
 * allows it, then one in part, then queued ones, behind those that were queued before. */
TEST(publishes_at_once)
{
    static const size_t payloads[] = {510, 1024, 60000};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        ws_place p;
        unsigned count = 0;
        ws_server_open(&p);
        make_publication(&p, payloads[i]);
        p.config.queue_bytes_max = 4 * LS_BLOCK_LARGE;
        publish_now = false;
        ws_inside(&p, do_publish);
        publish_now = true;
        ws_inside(&p, do_publish);
        assert_int_equal(publish_result, LS_PENDING); /* behind the one that is queued */
        ws_inside(&p, do_flush);
        for (count = 2; count < 100000; count++) { /* the peer reads nothing: until the queue is full */
            ws_inside(&p, do_publish);
            if (publish_result == LS_ELIMIT) break;
            if (publish_result == LS_PENDING) ws_inside(&p, do_flush);
        }
        assert_int_equal(publish_result, LS_ELIMIT);
        publish_now = false;
        char *expected = malloc(published_payload);
        memset(expected, 'p', published_payload);
        for (unsigned n = 0; n < count; n++) ws_expect(&p, LS_WS_BINARY, expected, published_payload);
        free(expected);
        wire_pump(&p.wire);
        ls_slice_drop(&published);
        ws_close(&p);
    }
}

/* ---- compression ------------------------------------------------------------------------------------------------ */

static ls_ws_deflate_store *store;

static ls_ws_deflate negotiated(bool takeover, bool client)
{
    const ls_ws_deflate_params params = {takeover, takeover, LS_WS_DEFLATE_BITS_MAX, LS_WS_DEFLATE_BITS_MAX};
    ls_ws_deflate d;
    assert_int_equal(ls_ws_deflate_begin(store, &params, 16, client, &d), LS_OK);
    return d;
}

/* Send a compressed message as the peer, in fragments of `piece` bytes. */
static void say_compressed(ws_place *p, ls_ws_deflate *d, const void *bytes, size_t len, size_t piece)
{
    const ls_slice slice = ls_slice_static(bytes, len);
    ls_slices out = {.count = 0};
    assert_int_equal(ls_ws_deflate_message(p->wire.place.ctx.pool, d, &slice, 1, 0, &out), LS_OK);
    char *joined = malloc(out.bytes), *to = joined;
    const size_t total = out.bytes;
    for (unsigned i = 0; i < out.count; i++) {
        memcpy(to, ls_slices_items(&out)[i].ptr, ls_slices_items(&out)[i].len);
        to += ls_slices_items(&out)[i].len;
    }
    ls_slices_clear(&out);
    for (size_t at = 0; at < total; at += piece) {
        const size_t run = total - at < piece ? total - at : piece;
        ws_say(p, (at == 0 ? WS_RSV1 | LS_WS_TEXT : LS_WS_CONTINUATION) | (at + run == total ? WS_FIN : 0),
               joined + at, run);
    }
    free(joined);
}

/* The peer reads a compressed text next. */
static void expect_compressed(ws_place *p, ls_ws_deflate *d, const char *bytes, size_t len)
{
    ls_ws_head head;
    ls_slices out = {.count = 0};
    char *payload = ws_hear(p, &head);
    assert_true(head.compressed);
    assert_int_equal(head.opcode, LS_WS_TEXT);
    ls_slice slice = ls_slice_static(payload, (size_t)head.length);
    assert_int_equal(ls_ws_inflate_message(p->wire.place.ctx.pool, d, &slice, 1, len, &out), LS_OK);
    assert_int_equal(out.bytes, len);
    assert_memory_equal(ls_slices_items(&out)[0].ptr, bytes, ls_slices_items(&out)[0].len);
    ls_slices_clear(&out);
    free(payload);
}

TEST(compresses_both_ways)
{
    static char letters[100000];
    if (ls_ws_deflate_library() == NULL) skip();
    for (size_t i = 0; i < sizeof letters; i++) letters[i] = (char)('a' + i * i % 23);
    for (int n = 0; n < 4; n++) {
        const bool client = n & 1, takeover = n & 2;
        ws_place p;
        assert_int_equal(ls_ws_deflate_store_open(LS_WS_DEFLATE_TAKEOVER_BYTES_MAX, &store), LS_OK);
        ws_place_open(&p);
        p.config.client = client;
        p.echo = true;
        ls_ws_deflate ours = negotiated(takeover, client), theirs = negotiated(takeover, !client);
        ws_make(&p, &ours);
        assert_false(ls_ws_deflate_active(&ours)); /* it has moved */
        assert_int_equal(ls_ws_takes_compressed(p.ws), !takeover);
        ws_inside(&p, ws_do_begin);
        for (int i = 0; i < 3; i++) {
            say_compressed(&p, &theirs, letters, 1000, 1 << 20);
            expect_compressed(&p, &theirs, letters, 1000);
            say_compressed(&p, &theirs, letters, sizeof letters, 100);
            expect_compressed(&p, &theirs, letters, sizeof letters);
        }
        ws_say_text(&p, "short"); /* is not worth it */
        ws_expect_text(&p, "short");
        ws_disconnect(&p);
        ls_ws_deflate_end(&theirs);
        ls_ws_deflate_store_close(store);
        ws_place_close(&p);
    }
}

TEST(refuses_invalid_compression)
{
    static const char zeros[100000];
    if (ls_ws_deflate_library() == NULL) skip();
    assert_int_equal(ls_ws_deflate_store_open(0, &store), LS_OK);
    for (int n = 0; n < 4; n++) {
        static const unsigned codes[] = {LS_WS_TOO_BIG, LS_WS_BAD_DATA, LS_WS_PROTOCOL_ERROR, LS_WS_BAD_DATA};
        ws_place p;
        ws_place_open(&p);
        p.config.message_bytes_max = n == 0 ? sizeof zeros - 1 : sizeof zeros;
        ls_ws_deflate ours = negotiated(false, false), theirs = negotiated(false, true);
        ws_make(&p, &ours);
        ws_inside(&p, ws_do_begin);
        if (n == 0) { /* inflates past the limit; at the limit it is a message */
            say_compressed(&p, &theirs, zeros, sizeof zeros - 1, 1 << 20);
            ws_await(&p, &p.messages, 1);
            assert_int_equal(p.bytes, sizeof zeros - 1);
            say_compressed(&p, &theirs, zeros, sizeof zeros, 1 << 20);
        } else if (n == 1) {
            ws_say(&p, WS_FIN | WS_RSV1 | LS_WS_TEXT, "\xff\xff\xff\xff", 4);
        } else if (n == 2) { /* RSV1 in a continuation */
            ws_say(&p, WS_RSV1 | LS_WS_TEXT, "a", 1);
            ws_say(&p, WS_FIN | WS_RSV1 | LS_WS_CONTINUATION, "a", 1);
        } else { /* text that inflates to no UTF-8 */
            say_compressed(&p, &theirs,
                           "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20, 99);
        }
        ws_expect_close(&p, codes[n]);
        ws_close(&p);
        ls_ws_deflate_end(&theirs);
    }
    ls_ws_deflate_store_close(store);
}

/* ---- a busy actor ----------------------------------------------------------------------------------------------- */

static void op_does_nothing(ls_thread_ctx *ctx, ls_op *op)
{
}

static ls_op other_op = {.done = op_does_nothing};

static void others_begin_to_wait(ws_place *p)
{
    ls_actor_post(&p->actor, &p->wire.place.ctx, &other_op);
}

/* While others wait for the actor, received bytes that wait for it hold no block. */
TEST_IN(ws_server, p, waiting_completion_holds_no_block)
{
    p->on_message = others_begin_to_wait;
    ws_say_text(p, "one");
    ws_await(p, &p->messages, 1);
    ws_say_text(p, "two");
    const ls_packet packet = net_next(&p->wire.place);
    assert_int_equal(blocks_live(&p->wire.place), 0);
    ls_packet_dispatch(&p->wire.place.ctx, &packet);
    ws_await(p, &p->messages, 2);
    assert_string_equal(p->last, "two");
}

/* ---- bytes from before the upgrade ------------------------------------------------------------------------------ */

TEST_IN(ws_place, p, unread_bytes_are_received_first)
{
    char frame[64];
    p->echo = true;
    const size_t len = ws_frame(p, frame, WS_FIN | LS_WS_TEXT, "early", 5);
    for (int abort = 0; abort <= 1; abort++) {
        ls_block *block = ls_block_get(p->wire.place.ctx.pool, LS_BLOCK_SMALL);
        ws_make(p, NULL);
        memcpy(block->data + 100, frame, len);
        ls_stream_unread(ls_ws_stream(p->ws), (ls_slice){block, block->data + 100, len});
        if (abort) { /* nothing is received, and nothing leaks */
            ws_disconnect(p);
            assert_int_equal(p->code, LS_WS_ABNORMAL);
            continue;
        }
        ws_inside(p, ws_do_begin);
        ws_expect_text(p, "early");
        ws_say_text(p, "late");
        ws_expect_text(p, "late");
        ws_disconnect(p);
    }
}

/* A flush before the begin waits for the peer, and its end begins nothing. */
TEST(nothing_is_received_before_the_begin)
{
    static const char zeros[SENT_BYTES];
    ws_place p;
    ws_place_open(&p);
    ws_make(&p, NULL);
    ws_inside(&p, do_send_until_pending);
    ws_say_text(&p, "early");
    for (int i = 0; i < SENT_COUNT; i++) ws_expect(&p, LS_WS_BINARY, zeros, SENT_BYTES);
    wire_pump(&p.wire);
    assert_int_equal(ls_ws_queued(p.ws), 0);
    assert_int_equal(p.messages, 0);
    ws_inside(&p, ws_do_begin);
    ws_await(&p, &p.messages, 1);
    assert_string_equal(p.last, "early");
    ws_close(&p);
}
