/* test_http_inflate.c - gzip: whole and byte by byte, members, damage, the limit of the ratio. Skipped without zlib. */
/* sanitizers: asan; no thread starts */
#include "codec/http_inflate.h"

#include "base/err.h"
#include "support.h"

/* "hello\n" of gzip(1) -n */
static const unsigned char hello[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48, 0xcd,
                                      0xc9, 0xc9, 0xe7, 0x02, 0x00, 0x20, 0x30, 0x3a, 0x36, 0x06, 0x00, 0x00, 0x00};

/* Decode in pieces of `step` bytes into room for `room` bytes at a time. Returns the number of bytes, or LS_E*. */
static int decode(const void *bytes, size_t len, size_t step, size_t room, char *out, bool *ended)
{
    ls_inflate *inflate;
    size_t at = 0, used = 0;
    int err = ls_inflate_open(&inflate);
    while (err == LS_OK && at < len) {
        const size_t piece = step < len - at ? step : len - at;
        char *copy = test_copy_exact((const char *)bytes + at, piece), *to = malloc(room);
        size_t in = piece, got = room;
        err = ls_inflate_run(inflate, copy, &in, to, &got);
        memcpy(out + used, to, got);
        used += got;
        at += in;
        free(copy);
        free(to);
    }
    *ended = err == LS_OK && ls_inflate_ended(inflate);
    ls_inflate_close(inflate);
    return err < 0 ? err : (int)used;
}

static void members_in_any_pieces(void **state)
{
    unsigned char twice[2 * sizeof hello];
    char out[64];
    bool ended;
    (void)state;
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
static void padding(void **state)
{
    unsigned char bytes[sizeof hello + 5] = {0};
    char out[64];
    bool ended;
    (void)state;
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

static void damage(void **state)
{
    unsigned char bytes[sizeof hello];
    char out[64];
    bool ended;
    (void)state;
    for (size_t n = 1; n < sizeof hello; n++) {
        assert_true(decode(hello, n, n, 32, out, &ended) >= 0);
        assert_false(ended);
    }
    memcpy(bytes, hello, sizeof hello);
    bytes[18] ^= 1; /* of the check sum */
    assert_int_equal(decode(bytes, sizeof bytes, 4, 32, out, &ended), LS_EPROTO);
    assert_int_equal(decode("plain text", 10, 10, 32, out, &ended), LS_EPROTO);
    ls_inflate_close(NULL);
}

/* A raw DEFLATE block that repeats a byte 258 times for each 2 bits or so: gzip -9 of zeros, made here by hand. */
static int decode_zeros(size_t bytes, size_t *made)
{
    /* The head of a member, then one block with the fixed codes: literal 0 (8 bits), then matches of length 258,
     * distance 1 (8 + 5 bits), each 13 bits: 158 bytes of output for each byte. */
    unsigned char *in = calloc(1, bytes);
    ls_inflate *inflate;
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
    int err = ls_inflate_open(&inflate);
    for (size_t got = sizeof out; err == LS_OK && (at < bytes || got == sizeof out);) {
        size_t used = bytes - at;
        got = sizeof out;
        err = ls_inflate_run(inflate, (const char *)in + at, &used, out, &got);
        at += used;
        *made += got;
    }
    ls_inflate_close(inflate);
    free(in);
    return err;
}

static void the_ratio_has_a_limit_past_the_free_bytes(void **state)
{
    size_t made;
    (void)state;
    assert_int_equal(decode_zeros(6000, &made), LS_OK); /* 158 times as long, but short */
    assert_true(made > 6000 * LS_INFLATE_RATIO_MAX && made <= LS_INFLATE_FREE_BYTES);
    assert_int_equal(decode_zeros(20000, &made), LS_EMSGSIZE);
    assert_true(made > LS_INFLATE_FREE_BYTES && made < 20000u * 158);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_in_any_pieces),
        cmocka_unit_test(padding),
        cmocka_unit_test(damage),
        cmocka_unit_test(the_ratio_has_a_limit_past_the_free_bytes),
    };
    return ls_inflate_supported() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
