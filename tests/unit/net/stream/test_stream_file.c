/* test_stream_file.c - external blocks and ranges of files in the queue of a stream: their order, their references,
 * and files that change while they are sent. */
/* sanitizers: asan; no thread starts */
#include "stream_fixture.h"

#include <sys/stat.h>

#include "fake_filter.h"
#include "net/stream/stream_internal.h"

enum {
    MIB = 1 << 20,
    PIECE = 2 * MIB,
    FILE_WHOLE_MAX = 256 << 10
}; /* FILE_PIECE and FILE_WHOLE_MAX of stream_queue.c */

typedef struct sending { /* a wire, a file, and what the other end is to receive */
    wire w;
    char path[sizeof TEST_SCRATCH_PATH];
    ls_shared_file *file;
    char *bytes; /* of the file */
    size_t len;
    char *expected;
    size_t expected_len, got;
} sending;

static void file_write(sending *t, const void *bytes, size_t len, off_t at)
{
    const int fd = open(t->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    close(fd);
}

static void sending_open(sending *t, size_t file_len)
{
    memset(t, 0, sizeof *t);
    memcpy(t->path, TEST_SCRATCH_PATH, sizeof t->path);
    close(mkstemp(t->path));
    t->len = file_len;
    t->bytes = pattern(file_len + 1, 5);
    file_write(t, t->bytes, file_len, 0);
    assert_int_equal(ls_shared_file_open(t->path, &t->file), LS_OK);
    t->expected = malloc(4 * file_len + MIB);
    assert_non_null(t->expected);
    wire_open(&t->w);
}

static void sending_close(sending *t)
{
    wire_disconnect(&t->w);
    assert_int_equal(atomic_load(&t->file->external.refs), 1); /* the queue has given all of them back */
    ls_shared_file_drop(t->file);
    unlink(t->path);
    free(t->bytes);
    free(t->expected);
    wire_place_close(&t->w);
}

static void expect_more(sending *t, const void *bytes, size_t len)
{
    memcpy(t->expected + t->expected_len, bytes, len);
    t->expected_len += len;
}

static void push_file(sending *t, size_t from, size_t len)
{
    const ls_slice slice = ls_shared_file_slice(t->file, from, len);
    assert_int_equal(ls_stream_push(&t->w.place.ctx, t->w.s, &slice), LS_OK);
    expect_more(t, t->bytes + from, len);
}

static void push_text(sending *t, const char *text)
{
    wire_queue_text(&t->w, text);
    expect_more(t, text, strlen(text));
}

/* The other end reads at most `want` of the available bytes, which must be the expected ones. false: there are
 * none. */
static bool read_some(sending *t, size_t want)
{
    static char room[65536];
    const ssize_t n = recv(t->w.theirs, room, want < sizeof room ? want : sizeof room, MSG_DONTWAIT);
    if (n <= 0) return false;
    assert_true(t->got + (size_t)n <= t->expected_len);
    assert_memory_equal(room, t->expected + t->got, n);
    t->got += (size_t)n;
    return true;
}

/* Until all of it has arrived, and not more. */
static void read_expected(sending *t)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (t->got < t->expected_len || ls_stream_queued(t->w.s) > 0) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        (void)wire_try(&t->w, read_some(t, 65536) ? 0 : 1);
    }
    assert_int_equal(t->got, t->expected_len);
    wire_pump(&t->w);
    assert_false(read_some(t, 1));
}

/* Until the send has ended; the other end does not expect more bytes than were queued. */
static void read_until_sent(sending *t)
{
    const uint64_t until_ms = ls_clock_coarse_ms() + WIRE_PATIENCE_MS;
    while (t->w.sent == 0) {
        assert_true(ls_clock_coarse_ms() < until_ms);
        (void)wire_try(&t->w, read_some(t, 65536) ? 0 : 1);
    }
    while (read_some(t, 65536)) continue;
}

/* ---- external blocks ---------------------------------------------------------------------------------------- */

typedef struct borrowed {
    ls_external external; /* first */
    char text[8];
    int *released;
} borrowed;

static void release(ls_external *external)
{
    borrowed *b = (borrowed *)(void *)external;
    memset(b->text, '!', sizeof b->text);
    ++*b->released;
    free(b);
}

TEST(external_blocks_are_released_once)
{
    wire w;
    int released = 0;
    wire_open(&w);
    for (int round = 0; round < 4; round++) { /* sent, dropped by discard, by truncate, by close */
        const int before = released;
        wire_queue_text(&w, "head ");
        const size_t end = ls_stream_end(w.s);
        borrowed *b = calloc(1, sizeof *b);
        assert_non_null(b);
        memcpy(b->text, "borrowed", 8);
        b->released = &released;
        ls_external_init(&b->external, LS_BLOCK_EXTERNAL, release);
        ls_block_hold(ls_external_block(&b->external)); /* two slices of it */
        const ls_slice first = ls_slice_external(&b->external, b->text, 4);
        const ls_slice second = ls_slice_external(&b->external, b->text + 4, 4);
        assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &first), LS_OK);
        wire_queue_text(&w, " ");
        assert_int_equal(ls_stream_push(&w.place.ctx, w.s, &second), LS_OK);
        assert_int_equal(ls_stream_queued(w.s), 14);
        assert_int_equal(released, before);
        if (round == 0) {
            assert_int_equal(wire_flush(&w), LS_DONE);
            wire_expect(&w, "head borr owed");
        } else if (round == 1) {
            ls_stream_discard(w.s);
        } else if (round == 2) {
            assert_true(ls_stream_truncate(w.s, end + 4));
            assert_int_equal(released, before); /* the first slice is left */
            assert_true(ls_stream_truncate(w.s, end));
            assert_int_equal(released, before + 1);
            assert_int_equal(wire_flush(&w), LS_DONE);
            wire_expect(&w, "head ");
        } else {
            wire_disconnect(&w);
        }
        assert_int_equal(released, before + 1);
    }
    wire_place_close(&w);
}

/* ---- ranges of files ---------------------------------------------------------------------------------------- */

TEST_IN(sending, t, files_and_memory_leave_in_order, 300000)
{
    push_file(t, 0, 10); /* first */
    push_text(t, "one");
    push_file(t, 10, 1);
    push_file(t, 299999, 1); /* several in a row */
    push_file(t, 0, 5000);
    push_text(t, "two");
    push_text(t, "three");
    assert_int_equal(ls_stream_queued(t->w.s), t->expected_len);
    assert_int_equal(wire_flush(&t->w), LS_DONE);
    read_expected(t);
    assert_int_equal(ls_stream_end(t->w.s), 0);
    for (int i = 0; i < 60; i++) { /* more than the first array of the queue has room for */
        push_file(t, (size_t)i * 1000, 1000);
        if (i % 3 == 0) push_text(t, "between");
    }
    (void)wire_flush(&t->w);
    read_expected(t);
    push_file(t, 0, t->len); /* last */
    (void)wire_flush(&t->w);
    read_expected(t);
}

/* At the limits of the pieces that a file is sent in, and one past them. */
TEST_IN(sending, t, ranges_of_every_length, 2 * PIECE + 1)
{
    static const size_t at[] = {1, 64 << 10, 256 << 10, MIB, PIECE, PIECE + (64 << 10), 2 * PIECE};
    for (size_t i = 0; i < 3 * sizeof at / sizeof at[0]; i++) {
        const size_t len = at[i / 3] + i % 3 - 1;
        if (len == 0) continue;
        t->expected_len = t->got = 0;
        push_text(t, "<");
        push_file(t, t->len - len, len);
        push_text(t, ">");
        (void)wire_flush(&t->w);
        read_expected(t);
    }
}

TEST_IN(sending, t, a_large_file_for_a_slow_reader, 10 * MIB)
{
    push_text(t, "head");
    push_file(t, 0, t->len);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    push_text(t, "tail"); /* behind the pending send */
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    while (t->got < 300000) { /* few bytes at a time */
        (void)read_some(t, 7001);
        (void)wire_try(&t->w, 0);
    }
    assert_true(ls_stream_sending(t->w.s));
    read_expected(t);
    assert_int_equal(t->w.sent, 1);
    assert_int_equal(t->w.sent_err, LS_OK);
}

TEST(a_file_that_changed_is_not_sent)
{
    enum { TRUNCATED, GROWN, REWRITTEN, SHORTER_THAN_ITS_RANGE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        sending t;
        sending_open(&t, 5000);
        if (way == TRUNCATED) assert_int_equal(truncate(t.path, 4999), 0);
        if (way == GROWN) assert_int_equal(truncate(t.path, 5001), 0);
        if (way == REWRITTEN) {
            const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
            file_write(&t, "other", 5, 0);
            assert_int_equal(utimensat(AT_FDCWD, t.path, times, 0), 0);
        }
        push_file(&t, 0, way == SHORTER_THAN_ITS_RANGE ? 5001 : 5000);
        assert_int_equal(wire_flush(&t.w), LS_ECHANGED);
        assert_int_equal(ls_stream_queued(t.w.s), 0);
        assert_int_equal(ls_stream_may_send(t.w.s), way != SHORTER_THAN_ITS_RANGE); /* its bytes were sent */
        wire_stream_close(&t.w);
        while (way == SHORTER_THAN_ITS_RANGE && t.got < 5000) assert_true(read_some(&t, 5000));
        wire_expect_end(&t.w); /* nothing else was sent */
        sending_close(&t);
    }
}

/* A file changes while it is sent: what was sent before the change was seen is right, and nothing follows. The last
 * piece is held back for the look, so that no client takes the response for complete. */
TEST(a_file_that_changes_while_it_is_sent)
{
    enum { TRUNCATED, REWRITTEN, WAYS };
    for (int way = 0; way < WAYS; way++) {
        for (size_t size = PIECE; size <= 10 * MIB; size += 4 * PIECE) {
            sending t;
            sending_open(&t, size);
            push_file(&t, 0, t.len);
            assert_int_equal(wire_flush(&t.w), LS_PENDING);
            push_text(&t, "never");
            if (way == TRUNCATED) {
                assert_int_equal(truncate(t.path, (off_t)t.len - 1), 0);
            } else { /* behind the first piece, so that the bytes of that are right */
                const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
                file_write(&t, "other", 5, (off_t)t.len - 5);
                assert_int_equal(utimensat(AT_FDCWD, t.path, times, 0), 0);
            }
            read_until_sent(&t);
            assert_int_equal(t.w.sent, 1);
            assert_int_equal(t.w.sent_err, LS_ECHANGED);
            assert_in_range(t.got, 1, PIECE);
            assert_int_equal(ls_stream_queued(t.w.s), 0);
            sending_close(&t);
        }
    }
}

/* A file that is one piece changes while the rest of the piece waits for the reader. */
TEST_IN(sending, t, a_short_file_that_changes_while_its_send_waits, FILE_WHOLE_MAX)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    assert_int_equal(setsockopt(t->w.ours, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)), 0);
    assert_int_equal(setsockopt(t->w.theirs, SOL_SOCKET, SO_RCVBUF, &(int){4096}, sizeof(int)), 0);
    push_file(t, 0, FILE_WHOLE_MAX);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    file_write(t, "other", 5, FILE_WHOLE_MAX - 5);
    assert_int_equal(utimensat(AT_FDCWD, t->path, times, 0), 0);
    read_until_sent(t);
    assert_int_equal(t->w.sent_err, LS_ECHANGED);
    assert_in_range(t->got, 1, FILE_WHOLE_MAX - 6);
}

/* The file is truncated below the piece that is being sent. The bytes are not compared: the socket has references to
 * pages of the file, and the system overwrites what a truncation removes from them. */
TEST_IN(sending, t, a_file_that_ends_inside_a_piece, 10 * MIB)
{
    char room[4096];
    size_t got = 0;
    push_file(t, 0, t->len);
    assert_int_equal(wire_flush(&t->w), LS_PENDING);
    assert_int_equal(truncate(t->path, 1), 0);
    while (t->w.sent == 0) {
        const ssize_t n = recv(t->w.theirs, room, sizeof room, MSG_DONTWAIT);
        if (n > 0) got += (size_t)n;
        (void)wire_try(&t->w, n > 0 ? 0 : 1);
    }
    assert_int_equal(t->w.sent_err, LS_ECHANGED);
    assert_true(got < PIECE);
}

/* ---- truncate ----------------------------------------------------------------------------------------------- */

TEST_IN(sending, t, truncating_a_queue_with_files_at_every_position, 100)
{
    for (size_t position = 1; position <= 14; position++) {
        t->got = t->expected_len = 0;
        push_text(t, "ab");
        push_file(t, 0, 4);
        push_file(t, 50, 3);
        push_text(t, "cd");
        push_file(t, 96, 3);
        assert_int_equal(ls_stream_end(t->w.s), 14);
        assert_true(ls_stream_truncate(t->w.s, position));
        assert_int_equal(ls_stream_end(t->w.s), position);
        assert_int_equal(ls_stream_queued(t->w.s), position);
        t->expected_len = position;
        push_text(t, "!");
        assert_int_equal(wire_flush(&t->w), LS_DONE);
        read_expected(t);
    }
    assert_int_equal(atomic_load(&t->file->external.refs), 1);
}

/* While a piece of a file is sent: before, in and behind the piece, in the rest of the file, and behind it. */
TEST(truncating_while_a_file_is_sent)
{
    static const size_t keep[] = {1,           3, 4, 5000, PIECE + 4, PIECE + 5, 5 * MIB, 10 * MIB + 4, 10 * MIB + 5,
                                  10 * MIB + 8};
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) {
        sending t;
        sending_open(&t, 10 * MIB);
        push_text(&t, "head");
        push_file(&t, 0, t.len);
        push_text(&t, "tail");
        assert_int_equal(wire_flush(&t.w), LS_PENDING);
        assert_true(ls_stream_truncate(t.w.s, keep[i]));
        const size_t end = keep[i] < PIECE + 4 ? PIECE + 4 : keep[i]; /* the pending send stays whole */
        assert_int_equal(ls_stream_end(t.w.s), end);
        assert_int_equal(ls_stream_queued(t.w.s), end);
        t.expected_len = end;
        push_text(&t, "!");
        read_expected(&t);
        assert_int_equal(t.w.sent_err, LS_OK);
        sending_close(&t);
    }
}

/* ---- with a filter ------------------------------------------------------------------------------------------ */

TEST(a_filter_reads_the_file)
{
    for (int changes = 0; changes < 2; changes++) {
        static char room[65536];
        sending t;
        fake_peer peer = {.left = 0};
        sending_open(&t, 2 * MIB);
        ls_stream_set_filter(t.w.s, &fake_open(NULL)->base);
        push_text(&t, "head");
        push_file(&t, 1, t.len - 1);
        push_text(&t, "tail");
        assert_int_equal(wire_flush(&t.w), LS_PENDING);
        if (changes) assert_int_equal(truncate(t.path, 1), 0);
        while (t.w.sent == 0 || (!changes && t.got < t.expected_len)) {
            const ssize_t n = recv(t.w.theirs, room, sizeof room, MSG_DONTWAIT);
            if (n > 0) {
                const size_t plain = fake_peer_read(&peer, room, (size_t)n);
                assert_memory_equal(room, t.expected + t.got, plain);
                t.got += plain;
            }
            (void)wire_try(&t.w, n > 0 ? 0 : 1);
        }
        assert_int_equal(t.w.sent_err, changes ? LS_ECHANGED : LS_OK);
        sending_close(&t);
    }
}
