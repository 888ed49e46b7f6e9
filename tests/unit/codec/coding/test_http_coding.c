/* test_http_coding.c - the content codings that are built in: both directions whole and in pieces, flushes, every
 * level; the names. Of gzip: members, damage, the limit of the ratio. */
/* sanitizers: asan; no thread starts */
#include "codec/coding/http_coding.h"

#include "support.h"

/* "hello\n" of gzip(1) -n */
static const unsigned char hello[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48, 0xcd,
                                      0xc9, 0xc9, 0xe7, 0x02, 0x00, 0x20, 0x30, 0x3a, 0x36, 0x06, 0x00, 0x00, 0x00};

/* Decode in pieces of `step` bytes into room for `room` bytes at a time. Returns the number of bytes, or LS_E*. */
static int decode(const void *bytes, size_t len, size_t step, size_t room, char *out, bool *ended)
{
    ls_decoder *decoder;
    size_t at = 0, used = 0;
    int err = ls_decoder_open(LS_CODING_GZIP, &decoder);
    while (err == LS_OK && at < len) {
        const size_t piece = step < len - at ? step : len - at;
        char *copy = test_copy_exact((const char *)bytes + at, piece), *to = malloc(room);
        size_t in = piece, got = room;
        err = ls_decoder_run(decoder, copy, &in, to, &got);
        memcpy(out + used, to, got);
        used += got;
        at += in;
        free(copy);
        free(to);
    }
    *ended = err == LS_OK && ls_decoder_ended(decoder);
    ls_decoder_close(decoder);
    return err < 0 ? err : (int)used;
}

static void need(enum ls_coding coding)
{
    if (ls_coding_built(coding)) return;
    print_message("skipped: of another system: a library of compression that this build lacks\n");
    skip();
}

TEST(members_in_any_pieces)
{
    unsigned char twice[2 * sizeof hello];
    char out[64];
    bool ended;
    need(LS_CODING_GZIP);
    memcpy(twice, hello, sizeof hello);
    memcpy(twice + sizeof hello, hello, sizeof hello);
    for (size_t step = 1; step <= sizeof twice; step++) {
        for (size_t room = 1; room < 16; room += 7) {
            assert_int_equal(decode(hello, sizeof hello, step, room, out, &ended), 6);
            assert_true(ended);
            assert_memory_equal(out, "hello\n", 6);
            assert_int_equal(decode(twice, sizeof twice, step, room, out, &ended), 12);
            assert_true(ended);
            assert_memory_equal(out, "hello\nhello\n", 12);
        }
    }
}

/* As gzip(1): what is behind the last member and begins none is padding. */
TEST(padding)
{
    unsigned char bytes[sizeof hello + 5] = {0};
    char out[64];
    bool ended;
    need(LS_CODING_GZIP);
    memcpy(bytes, hello, sizeof hello);
    for (size_t step = 1; step <= sizeof bytes; step++) {
        assert_int_equal(decode(bytes, sizeof bytes, step, 32, out, &ended), 6);
        assert_true(ended);
    }
    bytes[sizeof hello + 4] = 0x1f; /* behind padding no member begins */
    assert_int_equal(decode(bytes, sizeof bytes, 1, 32, out, &ended), 6);
    assert_true(ended);
    bytes[sizeof hello] = 0x1f; /* a member that is damaged */
    assert_int_equal(decode(bytes, sizeof bytes, 4, 32, out, &ended), LS_EPROTO);
}

TEST(damage)
{
    unsigned char bytes[sizeof hello];
    char out[64];
    bool ended;
    need(LS_CODING_GZIP);
    for (size_t n = 1; n < sizeof hello; n++) {
        assert_true(decode(hello, n, n, 32, out, &ended) >= 0);
        assert_false(ended);
    }
    memcpy(bytes, hello, sizeof hello);
    bytes[18] ^= 1; /* of the check sum */
    assert_int_equal(decode(bytes, sizeof bytes, 4, 32, out, &ended), LS_EPROTO);
    assert_int_equal(decode("plain text", 10, 10, 32, out, &ended), LS_EPROTO);
    ls_decoder_close(NULL);
}

/* A raw DEFLATE block that repeats a byte 258 times for each 2 bits or so: gzip -9 of zeros, made here by hand. */
static int decode_zeros(size_t bytes, size_t *made)
{
    /* The head of a member, then one block with the fixed codes: literal 0 (8 bits), then matches of length 258,
     * distance 1 (8 + 5 bits), each 13 bits: 158 bytes of output for each byte. */
    unsigned char *in = calloc(1, bytes);
    ls_decoder *decoder;
    char out[65536];
    size_t bit = 80, at = 0;
    assert_non_null(in);
    memcpy(in, hello, 10);
    const char *const bits = "110"       /* the last block, fixed codes */
                             "00110000"; /* the literal 0 */
    for (const char *b = bits; *b != '\0'; b++, bit++) in[bit / 8] |= (unsigned char)((*b - '0') << bit % 8);
    while (bit + 13 <= 8 * bytes) {
        const char *const match = "11000101" /* code 285: length 258 */
                                  "00000";   /* distance 1 */
        for (const char *b = match; *b != '\0'; b++, bit++) in[bit / 8] |= (unsigned char)((*b - '0') << bit % 8);
    }
    *made = 0;
    int err = ls_decoder_open(LS_CODING_GZIP, &decoder);
    for (size_t got = sizeof out; err == LS_OK && (at < bytes || got == sizeof out);) {
        size_t used = bytes - at;
        got = sizeof out;
        err = ls_decoder_run(decoder, (const char *)in + at, &used, out, &got);
        at += used;
        *made += got;
    }
    ls_decoder_close(decoder);
    free(in);
    return err;
}

TEST(the_ratio_has_a_limit_past_the_free_bytes)
{
    size_t made;
    need(LS_CODING_GZIP);
    assert_int_equal(decode_zeros(6000, &made), LS_OK); /* 158 times as long, but short */
    assert_true(made > 6000 * LS_INFLATE_RATIO_MAX && made <= LS_INFLATE_FREE_BYTES);
    assert_int_equal(decode_zeros(20000, &made), LS_EMSGSIZE);
    assert_true(made > LS_INFLATE_FREE_BYTES && made < 20000u * 158);
}

/* ---- each coding
 * -------------------------------------------------------------------------------------------------- */

/* Text that compresses, and bytes that do not. */
static char *content(size_t len)
{
    char *bytes = malloc(len + 1);
    uint32_t random = 1;
    assert_non_null(bytes);
    for (size_t n = 0; n < len; n++) {
        random = random * 1664525 + 1013904223;
        bytes[n] = n / 1000 % 3 == 2 ? (char)(random >> 24) : "a few words, again and again; "[n % 30];
    }
    return bytes;
}

/* Encode in pieces of `step` bytes into room for `room` bytes at a time, with a flush behind each piece if `flush`.
 * Returns the number of bytes; flushed[n]: behind piece n. */
static size_t encode(const ls_coding_type *type, const ls_encode_hint *hint, const char *bytes, size_t len,
                     size_t step, size_t room, bool flush, char *out, size_t *flushed)
{
    void *encoder;
    size_t at = 0, used = 0, pieces = 0;
    assert_int_equal(type->encoder_open(hint, &encoder), LS_OK);
    for (;;) {
        const size_t piece = step < len - at ? step : len - at;
        const enum ls_encode_step how = piece == 0 ? LS_ENCODE_END : flush ? LS_ENCODE_FLUSH : LS_ENCODE_MORE;
        int err = LS_EAGAIN;
        size_t taken = 0;
        while (err == LS_EAGAIN) {
            char *copy = test_copy_exact(bytes + at + taken, piece - taken), *to = malloc(room);
            size_t in = piece - taken, got = room;
            err = type->encode(encoder, copy, &in, to, &got, how);
            memcpy(out + used, to, got);
            used += got;
            taken += in;
            free(copy);
            free(to);
        }
        assert_int_equal(err, LS_OK);
        assert_int_equal(taken, piece);
        at += piece;
        if (flush) flushed[pieces++] = used;
        if (piece == 0) break;
    }
    type->encoder_close(encoder);
    return used;
}

/* Decode in pieces of `step` bytes. Returns the number of bytes, or LS_E*. */
static int decode_by(enum ls_coding coding, const char *bytes, size_t len, size_t step, char *out, bool *ended)
{
    ls_decoder *decoder;
    size_t at = 0, used = 0, got = 0;
    enum { ROOM = 777 };
    assert_int_equal(ls_decoder_open(coding, &decoder), LS_OK);
    assert_string_equal(ls_decoder_name(decoder), ls_codings[coding]->name);
    int err = LS_OK;
    while (err == LS_OK && (at < len || got == ROOM)) {
        const size_t piece = step < len - at ? step : len - at;
        char *copy = test_copy_exact(bytes + at, piece), *to = malloc(ROOM);
        size_t in = piece;
        got = ROOM;
        err = ls_decoder_run(decoder, copy, &in, to, &got);
        if (err == LS_OK) memcpy(out + used, to, got);
        if (err == LS_OK) used += got;
        at += in;
        free(copy);
        free(to);
    }
    *ended = err == LS_OK && ls_decoder_ended(decoder);
    ls_decoder_close(decoder);
    return err < 0 ? err : (int)used;
}

TEST(both_directions)
{
    static const size_t lengths[] = {0, 1, 1000, 4096, 70000};
    bool ended;
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        if (!ls_coding_built((enum ls_coding)n)) continue;
        const ls_coding_type *type = ls_codings[n];
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            const size_t len = lengths[i];
            char *bytes = content(len), *packed = malloc(2 * len + 1000), *back = malloc(len + 1000);
            for (int kind = 0; kind < 3; kind++) {
                const ls_encode_hint hint = {type->level_default, kind == 0 ? len : UINT64_MAX, kind == 2};
                const size_t used = encode(type, &hint, bytes, len, 1500, 100, false, packed, NULL);
                assert_int_equal(decode_by((enum ls_coding)n, packed, used, 333, back, &ended), len);
                assert_true(ended);
                assert_memory_equal(back, bytes, len);
                for (size_t cut = 1; cut < used; cut += 1 + used / 50) {
                    assert_true(decode_by((enum ls_coding)n, packed, used - cut, 333, back, &ended) <= (int)len);
                    assert_false(ended);
                }
            }
            free(bytes);
            free(packed);
            free(back);
        }
    }
}

TEST(a_flush_makes_all_bytes_decodable)
{
    enum { LEN = 3000, STEP = 300 };
    char packed[2 * LEN + 2000], back[LEN + 1000];
    size_t flushed[LEN / STEP + 2];
    bool ended;
    char *bytes = content(LEN);
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        if (!ls_coding_built((enum ls_coding)n)) continue;
        for (int events = 0; events < 2; events++) {
            const ls_encode_hint hint = {ls_codings[n]->level_default, UINT64_MAX, events == 1};
            (void)encode(ls_codings[n], &hint, bytes, LEN, STEP, 64, true, packed, flushed);
            for (size_t piece = 0; piece < LEN / STEP; piece++) {
                assert_int_equal(decode_by((enum ls_coding)n, packed, flushed[piece], 1000, back, &ended),
                                 (piece + 1) * STEP);
                assert_memory_equal(back, bytes, (piece + 1) * STEP);
                assert_false(ended);
            }
        }
    }
    free(bytes);
}

TEST(every_level)
{
    enum { LEN = 20000 };
    char packed[2 * LEN], back[LEN + 1000], *bytes = content(LEN);
    bool ended;
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        for (int level = ls_codings[n]->level_min;
             ls_coding_built((enum ls_coding)n) && level <= ls_codings[n]->level_max; level++) {
            const ls_encode_hint hint = {level, LEN, false};
            const size_t used = encode(ls_codings[n], &hint, bytes, LEN, LEN, LEN, false, packed, NULL);
            assert_true(used < LEN);
            assert_int_equal(decode_by((enum ls_coding)n, packed, used, used, back, &ended), LEN);
            assert_true(ended);
        }
    }
    free(bytes);
}

/* An encoder that is used again makes the bytes that a new one makes, also for a body of another length. One of gzip
 * suits only its window and level. */
TEST(an_encoder_again)
{
    static const size_t lengths[] = {4000, 4000, 3834, 3833, 70000, 4000, 0, 1};
    char *bytes = content(70000), *first = malloc(150000), *again = malloc(150000);
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        const ls_coding_type *type = ls_codings[n];
        void *encoder = NULL;
        if (!ls_coding_built((enum ls_coding)n) || type->encoder_reopen == NULL) continue;
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            size_t in = lengths[i], got = 150000;
            ls_encode_hint hint = {type->level_default, in, false};
            const size_t used = encode(type, &hint, bytes, in, in + 1, 150000, false, first, NULL);
            const bool suits = encoder != NULL && type->encoder_reopen(encoder, &hint);
            if (n == LS_CODING_GZIP) assert_int_equal(suits, i == 1 || i == 2 || i == 7);
            if (n == LS_CODING_ZSTD) assert_int_equal(suits, i > 0);
            if (!suits && encoder != NULL) type->encoder_close(encoder);
            if (!suits) assert_int_equal(type->encoder_open(&hint, &encoder), LS_OK);
            assert_int_equal(type->encode(encoder, bytes, &in, again, &got, LS_ENCODE_MORE), LS_OK);
            size_t none = 0, end = 150000 - got;
            assert_int_equal(type->encode(encoder, "", &none, again + got, &end, LS_ENCODE_END), LS_OK);
            assert_int_equal(got + end, used);
            assert_memory_equal(again, first, used);
            assert_true(type->encoder_bytes(encoder) >= lengths[i]);
        }
        ls_encode_hint other = {type->level_default + 1, 1, false};
        assert_int_equal(type->encoder_reopen(encoder, &other), n != LS_CODING_GZIP);
        type->encoder_close(encoder);
    }
    free(bytes);
    free(first);
    free(again);
}

/* The limit is that of all codings: 64 MiB of zeros. */
TEST(a_bomb_of_each_coding)
{
    enum { LEN = 64 << 20 };
    char *zeros = calloc(1, LEN), *packed = malloc(1 << 20), *back = malloc(LEN + 1000);
    bool ended;
    assert_true(zeros != NULL && packed != NULL && back != NULL);
    for (unsigned n = 0; n < LS_CODINGS; n++) {
        if (!ls_coding_built((enum ls_coding)n)) continue;
        const ls_encode_hint hint = {ls_codings[n]->level_default, UINT64_MAX, false};
        const size_t used = encode(ls_codings[n], &hint, zeros, LEN, LEN, 65536, false, packed, NULL);
        assert_int_equal(decode_by((enum ls_coding)n, packed, used, used, back, &ended), LS_EMSGSIZE);
    }
    free(zeros);
    free(packed);
    free(back);
}

TEST(several_frames_of_zstd)
{
    char packed[200], back[1100];
    bool ended;
    const ls_encode_hint hint = {3, UINT64_MAX, false};
    need(LS_CODING_ZSTD);
    const size_t one = encode(&ls_coding_zstd, &hint, "hello", 5, 5, 100, false, packed, NULL);
    memcpy(packed + one, packed, one);
    for (size_t step = 1; step <= 2 * one; step++) {
        assert_int_equal(decode_by(LS_CODING_ZSTD, packed, 2 * one, step, back, &ended), 10);
        assert_true(ended);
        assert_memory_equal(back, "hellohello", 10);
    }
    assert_int_equal(decode_by(LS_CODING_ZSTD, packed, one + 3, 100, back, &ended), 5);
    assert_false(ended);
}

/* The library may decode formats that are older than the RFC; nobody may send them. Skippable frames are of the
 * RFC. */
TEST(only_the_frames_of_the_rfc)
{
    static const char skippable[] = "\x5a\x2a\x4d\x18\x02\x00\x00\x00xy\x28\xb5\x2f\xfd\x00\x68\x29\x00\x00hello";
    char back[1100], old[] = "\x28\xb5\x2f\xfd\x11\x02\x00\x00";
    bool ended;
    need(LS_CODING_ZSTD);
    for (size_t step = 1; step < sizeof skippable; step++) {
        assert_int_equal(decode_by(LS_CODING_ZSTD, skippable, sizeof skippable - 1, step, back, &ended), 5);
        assert_true(ended);
    }
    for (char first = 0x21; first < 0x28; first++) { /* formats 0.1 to 0.7 */
        old[0] = first;
        for (size_t step = 1; step < sizeof old; step++)
            assert_int_equal(decode_by(LS_CODING_ZSTD, old, sizeof old - 1, step, back, &ended), LS_EPROTO);
    }
}

TEST(bytes_behind_brotli)
{
    char packed[200], back[1100];
    bool ended;
    const ls_encode_hint hint = {4, UINT64_MAX, false};
    need(LS_CODING_BR);
    const size_t used = encode(&ls_coding_br, &hint, "hello", 5, 5, 100, false, packed, NULL);
    packed[used] = 'x';
    assert_int_equal(decode_by(LS_CODING_BR, packed, used + 1, 100, back, &ended), LS_EPROTO);
    assert_int_equal(decode_by(LS_CODING_BR, "\xff\xff\xff", 3, 100, back, &ended), LS_EPROTO);
}

/* Windows above 8 MiB (RFC 9659): a frame whose head asks for 16 MiB. */
TEST(a_window_of_zstd_has_a_limit)
{
    static const char eight[] = "\x28\xb5\x2f\xfd\x00\x68\x29\x00\x00hello",
                      more[] = "\x28\xb5\x2f\xfd\x00\x69\x29\x00\x00hello";
    char back[1100];
    bool ended;
    need(LS_CODING_ZSTD);
    assert_int_equal(decode_by(LS_CODING_ZSTD, eight, sizeof eight - 1, 100, back, &ended), 5);
    assert_true(ended);
    assert_int_equal(decode_by(LS_CODING_ZSTD, more, sizeof more - 1, 100, back, &ended), LS_EPROTO);
}

TEST(names)
{
    ls_decoder *decoder;
    assert_int_equal(ls_coding_find("gzip", 4), LS_CODING_GZIP);
    assert_int_equal(ls_coding_find("X-GZip", 6), LS_CODING_GZIP);
    assert_int_equal(ls_coding_find("BR", 2), LS_CODING_BR);
    assert_int_equal(ls_coding_find("zstd", 4), LS_CODING_ZSTD);
    assert_int_equal(ls_coding_find("zst", 3), -1);
    assert_int_equal(ls_coding_find("", 0), -1);
    assert_int_equal(ls_coding_find("deflate", 7), -1);
    for (unsigned n = 0; n < LS_CODINGS; n++)
        if (!ls_coding_built((enum ls_coding)n))
            assert_int_equal(ls_decoder_open((enum ls_coding)n, &decoder), LS_ENOTSUP);
}
