/* test_stream_filter.c - a stream with a filter: what its handler sees, what its socket sees, and the end of the
 * filter's protocol. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

#include "fake_filter.h"
#include "net/stream/stream_internal.h"

typedef struct filtered { /* a wire with a fake filter */
    wire w;
    fake_filter *f;
    fake_peer peer;
    int freed;
} filtered;

static void filtered_open(filtered *t)
{
    memset(t, 0, sizeof *t);
    wire_open(&t->w);
    t->f = fake_open(&t->freed);
    ls_stream_set_filter(t->w.s, &t->f->base);
    assert_ptr_equal(ls_stream_filter(t->w.s), &t->f->base);
}

static void filtered_close(filtered *t)
{
    wire_disconnect(&t->w);
    assert_int_equal(t->freed, 1);
    wire_place_close(&t->w);
}

/* The other end sends a record. */
static void send_record(filtered *t, const char *text)
{
    char record[2 + FAKE_RECORD_MAX];
    net_write(t->w.theirs, record, fake_record(record, text, strlen(text)));
}

/* The other end reads `text`, in any number of records. */
static void expect_plain(filtered *t, const char *text)
{
    char got[FAKE_RECORD_MAX];
    for (size_t at = 0; at < strlen(text);) {
        net_read(t->w.theirs, got, 1);
        if (fake_peer_read(&t->peer, got, 1) == 0) continue;
        assert_int_equal(got[0], text[at]);
        at++;
    }
    assert_int_equal(t->peer.left, 0);
}

static void expect_peer_ended(filtered *t)
{
    char got[2];
    net_read(t->w.theirs, got, 2);
    assert_int_equal(fake_peer_read(&t->peer, got, 2), 0);
    assert_true(t->peer.ended);
    wire_expect_end(&t->w);
}

/* The other end reads to the end of the stream, or a reset. Returns the number of plaintext bytes. */
static size_t read_all(filtered *t)
{
    static char got[65536];
    size_t sum = 0;
    ssize_t n;
    while ((n = read(t->w.theirs, got, sizeof got)) > 0) sum += fake_peer_read(&t->peer, got, (size_t)n);
    return sum;
}

TEST_IN(filtered, t, records_become_bytes)
{
    char room[4];
    wire_recv_pending(&t->w, NULL, LS_BLOCK_SMALL);
    assert_int_equal(blocks_live(&t->w.place), 0); /* an idle connection holds no buffer */
    send_record(t, "hello");
    wire_await(&t->w, &t->w.received, 1);
    assert_int_equal(t->w.result, 5);
    wire_expect_taken(&t->w, "hello");

    wire_recv_pending(&t->w, room, sizeof room); /* into the handler's memory, in parts */
    send_record(t, "abcdef");
    wire_await(&t->w, &t->w.received, 2);
    assert_int_equal(t->w.result, 4);
    assert_memory_equal(room, "abcd", 4);
    assert_true(ls_stream_has_unread(t->w.s)); /* the filter's */
    int64_t result;
    assert_int_equal(ls_stream_recv(&t->w.place.ctx, t->w.s, NULL, 0, &result), LS_DONE); /* a probe */
    assert_int_equal(result, 0);
    assert_int_equal(ls_stream_recv(&t->w.place.ctx, t->w.s, room, sizeof room, &result), LS_DONE);
    assert_int_equal(result, 2);
    assert_memory_equal(room, "ef", 2);
    assert_false(ls_stream_has_unread(t->w.s));

    wire_recv_pending(&t->w, NULL, 0);
    send_record(t, "probe");
    wire_await(&t->w, &t->w.received, 3);
    assert_int_equal(t->w.result, 0);
    assert_int_equal(wire_recv(&t->w, NULL, LS_BLOCK_LARGE), 5);
    wire_expect_taken(&t->w, "probe");
}

/* Two records arrive in two pieces, cut at each byte. A piece without a whole record completes no receive. */
/* Bytes that give no plaintext, here the first part of a record, are no data: an idle connection stays idle. */
TEST(an_idle_connection_takes_in_what_is_no_data)
{
    static const char *const rest[] = {"\x01"
                                       "x",
                                       ""}; /* a byte of data; the end of the socket */
    for (unsigned n = wire_carried() ? 2 : 0; n < 2; n++) { /* with a carrier none is idle */
        filtered t;
        filtered_open(&t);
        ls_thread_ctx *const ctx = &t.w.place.ctx;
        assert_true(ls_stream_is_idle(ctx, t.w.s));
        net_write(t.w.theirs, "\0", 1);
        assert_true(ls_stream_is_idle(ctx, t.w.s));
        assert_int_equal(blocks_live(&t.w.place), 0);
        assert_true(ls_stream_is_idle(ctx, t.w.s));
        if (rest[n][0] != '\0') net_write(t.w.theirs, rest[n], 2);
        if (rest[n][0] == '\0') assert_int_equal(shutdown(t.w.theirs, SHUT_WR), 0);
        assert_false(ls_stream_is_idle(ctx, t.w.s));
        filtered_close(&t);
    }
}

TEST_IN(filtered, t, records_are_cut_at_every_byte)
{
    static const char text[] = "a record and", both[] = "a record andx";
    char records[64];
    const size_t first = fake_record(records, text, sizeof text - 1);
    const size_t len = first + fake_record(records + first, "x", 1);
    for (size_t cut = 1; cut < len; cut++) {
        char got[64];
        size_t have = 0;
        const int before = t->w.received;
        wire_recv_pending(&t->w, got, sizeof got);
        net_write(t->w.theirs, records, cut);
        if (cut < first) {
            wire_pump(&t->w);
            assert_int_equal(t->w.received, before);
            assert_true(ls_stream_receiving(t->w.s));
        } else {
            wire_await(&t->w, &t->w.received, before + 1);
            assert_int_equal(t->w.result, sizeof text - 1);
            have = sizeof text - 1;
            wire_recv_pending(&t->w, got + have, (uint32_t)(sizeof got - have));
        }
        net_write(t->w.theirs, records + cut, len - cut);
        wire_await(&t->w, &t->w.received, before + (cut < first ? 1 : 2));
        have += (size_t)t->w.result;
        while (have < sizeof both - 1) {
            const int64_t n = wire_recv(&t->w, got + have, (uint32_t)(sizeof got - have));
            assert_true(n > 0);
            have += (size_t)n;
        }
        assert_int_equal(have, sizeof both - 1);
        assert_memory_equal(got, both, have);
        assert_int_equal(blocks_live(&t->w.place), 0);
    }
}

TEST(unread_bytes_are_the_first_input)
{
    filtered t;
    char bytes[64];
    int64_t result;
    memset(&t, 0, sizeof t);
    wire_open(&t.w); /* STARTTLS: plaintext and the first record in one segment */
    memcpy(bytes, "starttls\n", 9);
    const size_t len = 9 + fake_record(bytes + 9, "secret", 6);
    net_write(t.w.theirs, bytes, len - 2); /* the record is incomplete */
    assert_int_equal(wire_recv(&t.w, NULL, LS_BLOCK_SMALL), len - 2);
    const ls_slice all = ls_stream_take(t.w.s);
    ls_stream_unread(t.w.s, (ls_slice){all.block, all.ptr + 9, all.len - 9});
    assert_true(ls_stream_has_unread(t.w.s));
    const int before = t.w.received;
    t.f = fake_open(&t.freed);
    ls_stream_set_filter(t.w.s, &t.f->base);
    assert_int_equal(ls_stream_recv(&t.w.place.ctx, t.w.s, NULL, LS_BLOCK_SMALL, &result), LS_PENDING);
    net_write(t.w.theirs, bytes + len - 2, 2);
    wire_await(&t.w, &t.w.received, 1 + before);
    assert_int_equal(t.w.result, 6);
    wire_expect_taken(&t.w, "secret");

    /* Plaintext is given back too. */
    send_record(&t, "once more");
    assert_int_equal(wire_recv(&t.w, NULL, LS_BLOCK_SMALL), 9);
    const ls_slice plain = ls_stream_take(t.w.s);
    ls_stream_unread(t.w.s, (ls_slice){plain.block, plain.ptr + 5, plain.len - 5});
    assert_int_equal(wire_recv(&t.w, bytes, sizeof bytes), 4);
    assert_memory_equal(bytes, "more", 4);
    filtered_close(&t);
}

TEST_IN(filtered, t, the_queue_counts_plaintext)
{
    enum { PLENTY = 2 << 20 };
    wire_queue_text(&t->w, "hello");
    wire_push_static(&t->w, " world", 6);
    assert_int_equal(ls_stream_queued(t->w.s), 11);
    assert_int_equal(ls_stream_end(t->w.s), 11);
    assert_int_equal(wire_flush(&t->w), LS_DONE);
    assert_int_equal(ls_stream_queued(t->w.s), 0);
    assert_int_equal(ls_stream_end(t->w.s), 0);
    expect_plain(t, "hello world");

    char *plenty = pattern(PLENTY, 3), *got = malloc(PLENTY);
    assert_non_null(got);
    wire_push_static(&t->w, plenty, PLENTY);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    const size_t queued = ls_stream_queued(t->w.s);
    assert_in_range(queued, 1, PLENTY);
    assert_int_equal(ls_stream_end(t->w.s), PLENTY); /* positions begin where the queue began */
    wire_queue_text(&t->w, "tail");
    assert_int_equal(ls_stream_queued(t->w.s), queued + 4);
    assert_true(ls_stream_truncate(t->w.s, PLENTY + 2));
    assert_int_equal(ls_stream_end(t->w.s), PLENTY + 2);
    assert_int_equal(ls_stream_queued(t->w.s), queued + 2);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    for (size_t at = 0; at < PLENTY + 2;) {
        static char bytes[65536];
        const ssize_t n = recv(t->w.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) {
            const size_t plain = fake_peer_read(&t->peer, bytes, (size_t)n);
            for (size_t i = 0; i < plain; i++, at++)
                assert_int_equal(bytes[i], at < PLENTY ? plenty[at] : "ta"[at - PLENTY]);
        }
        (void)wire_try(&t->w, n > 0 ? 0 : 1);
    }
    wire_pump(&t->w);
    assert_int_equal(t->w.sent, 1);
    assert_int_equal(t->w.sent_err, LS_OK);
    assert_int_equal(ls_stream_queued(t->w.s), 0);
    assert_int_equal(blocks_live(&t->w.place), 0);
    free(plenty);
    free(got);
}

/* What is being sent was encrypted and cannot be dropped any more; everything behind it can. */
TEST_IN(filtered, t, truncating_while_records_are_sent)
{
    static char plenty[2 << 20];
    wire_push_static(&t->w, plenty, sizeof plenty);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    const size_t queued = ls_stream_queued(t->w.s), end = ls_stream_end(t->w.s);
    const size_t sent_before = end - queued; /* the pending send begins here */
    assert_false(ls_stream_truncate(t->w.s, sent_before));
    assert_true(ls_stream_truncate(t->w.s, sent_before + 1));
    assert_in_range(ls_stream_queued(t->w.s), 1, LS_BLOCK_SMALL);
    const size_t left = ls_stream_end(t->w.s);
    wire_push_static(&t->w, "!", 1);
    assert_int_equal(ls_stream_end(t->w.s), left + 1);
    size_t got = 0;
    while (got < left + 1) {
        static char bytes[65536];
        const ssize_t n = recv(t->w.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) got += fake_peer_read(&t->peer, bytes, (size_t)n);
        (void)wire_try(&t->w, n > 0 ? 0 : 1);
    }
    wire_pump(&t->w);
    assert_int_equal(got, left + 1);
    assert_int_equal(t->w.sent, 1);
    assert_int_equal(t->w.sent_err, LS_OK);
}

TEST(an_orderly_end_and_a_truncated_one)
{
    static const char *const records[] = {"", "\0\2a", "\0", "\0\0"};
    static const size_t lens[] = {0, 3, 1, 2};
    for (int i = 0; i < 4; i++) {
        filtered t;
        filtered_open(&t);
        wire_recv_pending(&t.w, NULL, LS_BLOCK_SMALL);
        if (lens[i] > 0) net_write(t.w.theirs, records[i], lens[i]);
        assert_int_equal(shutdown(t.w.theirs, SHUT_WR), 0);
        wire_await(&t.w, &t.w.received, 1);
        assert_int_equal(t.w.result, i == 3 ? 0 : LS_ETRUNCATED);
        filtered_close(&t);
    }
}

TEST(the_end_is_sent_once)
{
    enum { AT_CLOSE, AT_SHUTDOWN, WITH_THE_LAST_BYTES, AT_LINGER, WAYS };
    for (int way = 0; way < WAYS; way++) {
        filtered t;
        filtered_open(&t);
        wire_queue_text(&t.w, "bye");
        if (way == WITH_THE_LAST_BYTES) ls_stream_cork_fin(t.w.s);
        assert_int_equal(wire_flush(&t.w), LS_DONE);
        assert_int_equal(t.f->ends, way == WITH_THE_LAST_BYTES ? 1 : 0);
        if (way == AT_LINGER) {
            ls_stream_linger(&t.w.place.ctx, t.w.s, 60000);
        } else if (way == AT_SHUTDOWN) {
            assert_int_equal(ls_stream_shutdown(&t.w.place.ctx, t.w.s), LS_OK);
            wire_pump(&t.w);
            assert_false(ls_stream_sending(t.w.s));
            assert_int_equal(ls_stream_shutdown(&t.w.place.ctx, t.w.s), LS_OK); /* again */
            expect_plain(&t, "bye");
            expect_peer_ended(&t);
            send_record(&t, "still"); /* receives continue */
            assert_int_equal(wire_recv(&t.w, NULL, LS_BLOCK_SMALL), 5);
            wire_expect_taken(&t.w, "still");
            wire_stream_close(&t.w);
        } else {
            wire_stream_close(&t.w);
        }
        wire_pump(&t.w);
        if (way != AT_SHUTDOWN) {
            expect_plain(&t, "bye");
            expect_peer_ended(&t);
        }
        if (way == AT_LINGER) {
            assert_int_equal(t.w.closed, 0);
            net_write(t.w.theirs, "not a record", 12); /* discarded */
            close(t.w.theirs);
            t.w.theirs = -1;
        }
        wire_await(&t.w, &t.w.closed, 1);
        assert_int_equal(t.freed, 1);
        assert_int_equal(t.w.received + t.w.sent, way == AT_SHUTDOWN ? t.w.received : 0);
        filtered_close(&t);
    }
}

/* The socket takes no more bytes: the end waits, and does not wait for ever. */
TEST(an_end_that_must_wait)
{
    enum { AT_SHUTDOWN, AT_LINGER, AT_LINGER_LATE, AT_CLOSE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        filtered t;
        int64_t result;
        filtered_open(&t);
        /* Fill the socket behind the stream's back, with whole records. */
        char record[2 + FAKE_RECORD_MAX], zeros[FAKE_RECORD_MAX] = {0};
        const size_t len = fake_record(record, zeros, sizeof zeros);
        size_t cut = 0;
        for (int full = 0; full < 3;) { /* over TCP what was sent makes room when the receiver's end has it */
            const ssize_t n = send(t.w.ours, record + cut, len - cut, MSG_DONTWAIT | MSG_NOSIGNAL);
            full = n > 0 ? 0 : full + 1;
            if (n > 0)
                cut = (cut + (size_t)n) % len;
            else
                net_quiet(&t.w.place, 10);
        }
        const bool whole = cut == 0; /* else the last record is cut, and its rest is never sent */
        if (way == AT_SHUTDOWN) {
            assert_int_equal(ls_stream_shutdown(&t.w.place.ctx, t.w.s), LS_OK);
            assert_false(ls_stream_sending(t.w.s));
            assert_int_equal(wire_flush(&t.w), LS_DONE);
            net_quiet(&t.w.place, 5);
        } else if (way == AT_CLOSE) {
            wire_stream_close(&t.w); /* does not wait */
            wire_await(&t.w, &t.w.closed, 1);
        } else {
            ls_stream_linger(&t.w.place.ctx, t.w.s, way == AT_LINGER ? 60000 : 10);
            if (way == AT_LINGER_LATE) wire_await(&t.w, &t.w.closed, 1); /* nobody reads */
        }
        if (way == AT_SHUTDOWN || way == AT_LINGER) {
            static char bytes[65536];
            ssize_t n;
            while ((n = recv(t.w.theirs, bytes, sizeof bytes, MSG_DONTWAIT)) != 0) {
                if (n > 0 && whole) (void)fake_peer_read(&t.peer, bytes, (size_t)n);
                (void)wire_try(&t.w, n > 0 ? 0 : 1);
            }
            if (whole) assert_true(t.peer.ended);
        }
        if (way == AT_SHUTDOWN) {
            wire_pump(&t.w);
            assert_int_equal(ls_stream_recv(&t.w.place.ctx, t.w.s, NULL, LS_BLOCK_SMALL, &result), LS_PENDING);
            send_record(&t, "on");
            wire_await(&t.w, &t.w.received, 1);
            wire_expect_taken(&t.w, "on");
        } else if (way == AT_LINGER) {
            assert_int_equal(t.w.closed, 0);
            close(t.w.theirs);
            t.w.theirs = -1;
            wire_await(&t.w, &t.w.closed, 1);
        }
        assert_int_equal(t.w.sent, 0);
        filtered_close(&t);
    }
}

TEST(failing_reads)
{
    static const int errs[] = {LS_EPROTO, LS_ENOMEM};
    for (int i = 0; i < 2; i++) {
        filtered t;
        filtered_open(&t);
        wire_recv_pending(&t.w, NULL, LS_BLOCK_SMALL);
        t.f->read_err = errs[i];
        send_record(&t, "text");
        wire_await(&t.w, &t.w.received, 1);
        assert_int_equal(t.w.result, errs[i]);
        if (errs[i] == LS_ENOMEM) { /* nothing is lost */
            assert_int_equal(wire_recv(&t.w, NULL, LS_BLOCK_SMALL), 4);
            wire_expect_taken(&t.w, "text");
        } else {
            assert_int_equal(wire_recv(&t.w, NULL, LS_BLOCK_SMALL), LS_EPROTO);
            wire_stream_close(&t.w);
            assert_int_equal(read_all(&t), 0);
            assert_true(t.peer.alerted);
        }
        filtered_close(&t);
    }
}

/* Whatever was sent in part cannot be ended in an orderly way: the other end must see that bytes are missing. */
TEST(nothing_follows_a_failed_send)
{
    static char plenty[2 << 20];
    enum { WRITE_FAILS, END_FAILS, WRITE_FAILS_LATER, ABORTED, WAYS };
    for (int way = 0; way < WAYS; way++) {
        filtered t;
        filtered_open(&t);
        if (way == WRITE_FAILS) {
            t.f->write_err = LS_ENOMEM;
            wire_queue_text(&t.w, "text");
            assert_int_equal(wire_flush(&t.w), LS_ENOMEM);
        } else if (way == END_FAILS) {
            t.f->end_err = LS_ENOMEM;
            wire_queue_text(&t.w, "text");
            ls_stream_cork_fin(t.w.s);
            assert_int_equal(wire_flush(&t.w), LS_ENOMEM);
        } else {
            wire_push_static(&t.w, plenty, sizeof plenty);
            assert_int_equal(wire_flush(&t.w), LS_PENDING);
            if (way == WRITE_FAILS_LATER)
                t.f->write_err = LS_ECHANGED;
            else
                ls_stream_abort(t.w.s);
            static char bytes[4096];
            while (t.w.sent == 0) {
                const ssize_t n = way == ABORTED ? 0 : recv(t.w.theirs, bytes, sizeof bytes, MSG_DONTWAIT);
                if (n > 0) (void)fake_peer_read(&t.peer, bytes, (size_t)n);
                (void)wire_try(&t.w, n > 0 ? 0 : 1);
            }
            assert_int_equal(t.w.sent_err, way == ABORTED ? LS_ECANCELED : LS_ECHANGED);
        }
        assert_int_equal(ls_stream_queued(t.w.s), 0);
        t.f->end_err = 0;
        static char rest[65536]; /* make room in the socket */
        while (way >= WRITE_FAILS_LATER && recv(t.w.theirs, rest, sizeof rest, MSG_DONTWAIT) > 0) continue;
        wire_stream_close(&t.w);
        while (way != END_FAILS && read(t.w.theirs, rest, 1) > 0) fail();
        filtered_close(&t);
    }
}

TEST(no_memory_for_the_bytes_of_a_receive)
{
    filtered t;
    memset(&t, 0, sizeof t);
    wire_place_open(&t.w);
    wire_memory(&t.w, LS_BLOCK_SMALL); /* for the filter's input alone */
    wire_connect(&t.w);
    t.f = fake_open(&t.freed);
    ls_stream_set_filter(t.w.s, &t.f->base);
    wire_recv_pending(&t.w, NULL, LS_BLOCK_SMALL);
    send_record(&t, "text");
    wire_await(&t.w, &t.w.received, 1);
    assert_int_equal(t.w.result, LS_ENOMEM);
    char room[8]; /* the bytes stay: the handler has other memory */
    assert_int_equal(wire_recv(&t.w, room, sizeof room), 4);
    assert_memory_equal(room, "text", 4);
    filtered_close(&t);
}

TEST(closing_in_each_state)
{
    enum { RX = 1, TX = 2, QUEUED = 4, INPUT = 8, PARTIAL = 16, ALL = 32 };
    for (int what = 0; what < ALL; what++) {
        filtered t;
        char room[2];
        filtered_open(&t);
        if (what & INPUT) { /* the filter holds plaintext */
            send_record(&t, "text");
            assert_int_equal(wire_recv(&t.w, room, 2), 2);
        }
        if (what & PARTIAL) net_write(t.w.theirs, "\0", 1);
        if ((what & RX) && !(what & INPUT)) wire_recv_pending(&t.w, NULL, LS_BLOCK_SMALL);
        if (what & TX) wire_block_the_send(&t.w);
        if (what & QUEUED) wire_queue_text(&t.w, "queued");
        const int before = t.w.received;
        wire_stream_close(&t.w);
        wire_await(&t.w, &t.w.closed, 1);
        assert_int_equal(t.freed, 1);
        assert_int_equal(t.w.received, before); /* no callback */
        assert_int_equal(t.w.sent, 0);
        assert_int_equal(blocks_live(&t.w.place), 0);
        filtered_close(&t);
    }
}
