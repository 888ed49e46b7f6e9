/* test_ws_deflate_zlib.c - messages through zlib: the examples of RFC 7692, round trips with every window, the limits
 * of the inflated size, corrupt data, the memory of context takeover, and a pool without memory. */
/* sanitizers: asan; no thread starts */
#include "support.h"

#include "codec/ws/ws_deflate.h"

enum { CAP = 16 << 20, ROOM = 10, MIB = 1 << 20 };

typedef struct fixture {
    ls_pools *pools;
    ls_pool *pool;
    ls_ws_deflate_store *store;
} fixture;

static void fixture_open(fixture *f)
{
    assert_int_equal(ls_pools_open(CAP, &f->pools), LS_OK);
    assert_int_equal(ls_pool_open(f->pools, &f->pool), LS_OK);
    ls_pool_enter(f->pool);
    assert_int_equal(ls_ws_deflate_store_open(LS_WS_DEFLATE_TAKEOVER_BYTES_MAX, &f->store), LS_OK);
}

static void fixture_close(fixture *f)
{
    ls_pools_stats stats;
    ls_pools_stat(f->pools, &stats);
    assert_int_equal(stats.blocks_live, 0); /* of every test, also after errors */
    assert_int_equal(ls_ws_deflate_store_bytes(f->store), 0);
    ls_ws_deflate_store_close(f->store);
    ls_pool_close(f->pool);
    ls_pools_close(f->pools);
}

static ls_ws_deflate open_side(fixture *f, bool client, bool takeover, unsigned bits)
{
    const ls_ws_deflate_params params = {takeover, takeover, (uint8_t)bits, (uint8_t)bits};
    ls_ws_deflate d;
    assert_int_equal(ls_ws_deflate_begin(f->store, &params, 1, client, &d), LS_OK);
    assert_true(ls_ws_deflate_active(&d));
    return d;
}

static char *joined(ls_slices *list)
{
    char *text = malloc(list->bytes + 1);
    size_t at = 0;
    assert_non_null(text);
    for (unsigned i = 0; i < list->count; i++) {
        const ls_slice *slice = &ls_slices_items(list)[i];
        memcpy(text + at, slice->ptr, slice->len);
        at += slice->len;
    }
    assert_int_equal(at, list->bytes);
    return text;
}

static int inflate_bytes(fixture *f, ls_ws_deflate *d, const void *bytes, size_t len, uint64_t bytes_max,
                         ls_slices *out)
{
    ls_slice in = ls_slice_static(bytes, len);
    memset(out, 0, sizeof *out);
    const int err = ls_ws_inflate_message(f->pool, d, &in, 1, bytes_max, out);
    assert_null(in.ptr); /* taken */
    if (err < 0) assert_int_equal(out->count, 0);
    return err;
}

static void inflates_to(fixture *f, ls_ws_deflate *d, const void *bytes, size_t len, const char *text)
{
    ls_slices out;
    assert_int_equal(inflate_bytes(f, d, bytes, len, MIB, &out), LS_OK);
    assert_int_equal(out.count, 1);
    assert_int_equal(out.bytes, strlen(text));
    assert_memory_equal(ls_slices_items(&out)->ptr, text, out.bytes);
    ls_slices_clear(&out);
}

#define BYTES(...)                                          \
    (const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]) \
    {                                                       \
        __VA_ARGS__                                         \
    }

TEST_IN(fixture, f, the_examples_of_the_rfc) /* RFC 7692 section 7.2.3 */
{
    ls_ws_deflate d = open_side(f, false, false, 15);
    for (int round = 0; round < 2; round++) { /* the coder is used again */
        inflates_to(f, &d, BYTES(0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00), "Hello");
        inflates_to(f, &d, BYTES(0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00), "Hello");
        inflates_to(f, &d, BYTES(0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00), "Hello");
        inflates_to(f, &d, BYTES(0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00),
                    "Hello");
        inflates_to(f, &d, BYTES(0x00), "");
        inflates_to(f, &d, BYTES(0x02, 0x00), "");
    }
    /* final blocks only, and two of them */
    inflates_to(f, &d, BYTES(0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00), "Hello");
    inflates_to(f, &d, BYTES(0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00),
                "HelloHello");
    ls_ws_deflate_end(&d);

    d = open_side(f, true, true, 15);
    inflates_to(f, &d, BYTES(0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00), "Hello");
    inflates_to(f, &d, BYTES(0xf2, 0x00, 0x11, 0x00, 0x00), "Hello");
    ls_ws_deflate_end(&d);
    assert_false(ls_ws_deflate_active(&d));
    ls_ws_deflate_end(&d); /* no effect */
}

TEST_IN(fixture, f, corrupt_data)
{
    ls_ws_deflate d = open_side(f, false, false, 15);
    ls_slices out;
    const struct {
        const uint8_t *bytes;
        size_t len;
    } cases[] = {
        {BYTES(0x00, 0x05, 0x00, 0xfa, 0xfe, 0x48)},             /* length of a stored block */
        {BYTES(0x06, 0xff)},                                     /* block type 3 */
        {BYTES(0xf2, 0x48, 0xcd, 0xc9, 0xc9)},                   /* cut off: the tail is read as data */
        {BYTES(0x00, 0x05, 0x00, 0xfa, 0xff, 0x48)},             /* the same in a stored block */
        {BYTES(0xf2, 0x00, 0x11, 0x00, 0x00)},                   /* refers to a message before */
        {BYTES(0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x07)}, /* behind a final block */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(inflate_bytes(f, &d, cases[i].bytes, cases[i].len, MIB, &out), LS_EPROTO);
    assert_int_equal(inflate_bytes(f, &d, "", 0, MIB, &out), LS_EPROTO); /* an empty message is 00: section 7.2.3.6 */
    inflates_to(f, &d, BYTES(0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00), "Hello"); /* the coder has no trace of them */
    ls_ws_deflate_end(&d);
}

/* Words in an order that does not repeat. */
static char *prose(size_t len)
{
    static const char *const words[] = {"buffer ",  "port ", "{\"id\":", "worker ",
                                        "message ", "42, ",  "socket\n", "a "};
    char *text = malloc(len + 16);
    uint32_t random = 7;
    size_t at = 0;
    assert_non_null(text);
    while (at < len) {
        random = random * 1664525 + 1013904223;
        const char *word = words[random >> 29];
        memcpy(text + at, word, strlen(word));
        at += strlen(word);
    }
    return text;
}

static char *noise(size_t len)
{
    char *bytes = malloc(len);
    uint32_t random = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        random = random * 1664525 + 1013904223;
        bytes[i] = (char)(random >> 24);
    }
    return bytes;
}

/* Send `text` in pieces of `piece` bytes from one side to the other; returns the compressed bytes. */
static size_t transfers(fixture *f, ls_ws_deflate *from, ls_ws_deflate *to, const char *text, size_t len, size_t piece)
{
    ls_slices packed = {.count = 0}, out = {.count = 0};
    ls_slice slices[64];
    unsigned count = 0;
    for (size_t at = 0; at < len; at += piece)
        slices[count++] = ls_slice_static(text + at, len - at < piece ? len - at : piece);
    assert_int_equal(ls_ws_deflate_message(f->pool, from, slices, count, ROOM, &packed), LS_OK);
    const size_t bytes = packed.bytes;
    const ls_slice *first = ls_slices_items(&packed);
    assert_int_equal(first->ptr - first->block->data, ROOM);
    for (unsigned i = 0; i < packed.count; i++) assert_true(ls_slices_items(&packed)[i].len > 0);
    assert_int_equal(ls_ws_inflate_message(f->pool, to, ls_slices_items(&packed), packed.count, len, &out), LS_OK);
    packed.count = 0; /* taken */
    ls_slices_clear(&packed);
    assert_int_equal(out.bytes, len);
    assert_int_equal(out.count, len <= LS_BLOCK_LARGE ? 1 : (len + LS_BLOCK_LARGE - 1) / LS_BLOCK_LARGE);
    char *same = joined(&out);
    assert_memory_equal(same, text, len);
    free(same);
    ls_slices_clear(&out);
    return bytes;
}

TEST_IN(fixture, f, round_trips)
{
    static const size_t sizes[] = {
        /* clang-format off */
        1, 2, 255, 4095, 4096, 4097, 8192, 65535, LS_BLOCK_LARGE, LS_BLOCK_LARGE + 1, 3 * LS_BLOCK_LARGE,
        3 * LS_BLOCK_LARGE + 7,
        /* clang-format on */
    };
    for (unsigned bits = LS_WS_DEFLATE_BITS_MIN; bits <= LS_WS_DEFLATE_BITS_MAX; bits++) {
        ls_ws_deflate server = open_side(f, false, true, bits), client = open_side(f, true, true, bits);
        ls_ws_deflate one = open_side(f, false, false, bits), other = open_side(f, true, false, bits);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char *text = prose(sizes[i]), *bytes = noise(sizes[i]);
            (void)transfers(f, &server, &client, text, sizes[i], 10007);
            (void)transfers(f, &client, &server, bytes, sizes[i], sizes[i]); /* does not become shorter */
            if (sizes[i] > 128) {
                (void)transfers(f, &one, &other, text, sizes[i], sizes[i]);
                /* a small window: the receiver of a server that keeps to it needs no larger one */
                ls_ws_deflate narrow = open_side(f, true, true, bits);
                (void)transfers(f, &one, &narrow, text, sizes[i], 4001);
                ls_ws_deflate_end(&narrow);
            }
            free(text);
            free(bytes);
        }
        ls_ws_deflate_end(&server);
        ls_ws_deflate_end(&client);
        ls_ws_deflate_end(&one);
        ls_ws_deflate_end(&other);
    }
}

TEST_IN(fixture, f, takeover_refers_to_messages_before)
{
    ls_ws_deflate server = open_side(f, false, true, 15), client = open_side(f, true, true, 15);
    ls_ws_deflate alone = open_side(f, false, false, 15);
    char *text = prose(2000);
    const size_t first = transfers(f, &server, &client, text, 2000, 2000);
    const size_t again = transfers(f, &server, &client, text, 2000, 2000);
    assert_in_range(again, 1, first / 5);
    assert_int_equal(transfers(f, &alone, &client, text, 2000, 2000), transfers(f, &alone, &client, text, 2000, 2000));
    free(text);
    ls_ws_deflate_end(&server);
    ls_ws_deflate_end(&client);
    ls_ws_deflate_end(&alone);
}

TEST_IN(fixture, f, what_is_not_compressed)
{
    const ls_ws_deflate_params params = {false, false, 15, 8};
    ls_ws_deflate server, client;
    ls_slices out = {.count = 0};
    char *text = prose(300), *bytes = noise(300);
    ls_slice slice = ls_slice_static(text, 99);
    assert_int_equal(ls_ws_deflate_begin(f->store, &params, 100, false, &server), LS_OK);
    assert_int_equal(ls_ws_deflate_begin(f->store, &params, 100, true, &client), LS_OK);
    assert_true(ls_ws_deflate_shares(&server));
    assert_false(ls_ws_deflate_shares(&client)); /* its window has 8 bits */
    assert_int_equal(ls_ws_deflate_message(f->pool, &server, &slice, 1, 0, &out), LS_EAGAIN); /* too short */
    slice.len = 100;
    assert_int_equal(ls_ws_deflate_message(f->pool, &client, &slice, 1, 0, &out),
                     LS_EAGAIN); /* zlib has no such window */
    assert_int_equal(ls_ws_deflate_message(f->pool, &server, &slice, 1, 0, &out), LS_OK);
    assert_in_range(out.bytes, 1, 99);
    ls_slices_clear(&out);
    assert_int_equal(ls_ws_deflate_shared(f->pool, f->store, 101, &slice, 1, 0, &out), LS_EAGAIN);
    assert_int_equal(ls_ws_deflate_shared(f->pool, f->store, 100, &slice, 1, 0, &out), LS_OK);
    ls_slices_clear(&out);
    slice = ls_slice_static(bytes, 300);
    assert_int_equal(ls_ws_deflate_message(f->pool, &server, &slice, 1, 0, &out), LS_EAGAIN); /* not shorter */
    assert_int_equal(out.count, 0);
    slice.len = 0;
    assert_int_equal(ls_ws_deflate_message(f->pool, &server, &slice, 1, 0, &out), LS_EAGAIN);
    ls_ws_deflate_end(&server);
    ls_ws_deflate_end(&client);
    free(text);
    free(bytes);
}

/* The compressed form of `len` equal bytes: of parts that a sender would compress. */
static ls_slices bomb(fixture *f, size_t len)
{
    ls_slices packed = {.count = 0};
    char *zeroes = calloc(1, LS_WS_INFLATE_FREE_BYTES);
    assert_non_null(zeroes);
    for (size_t at = 0, part; at < len; at += part) {
        ls_slices more = {.count = 0};
        part = len - at < LS_WS_INFLATE_FREE_BYTES ? len - at : LS_WS_INFLATE_FREE_BYTES;
        const ls_slice slice = ls_slice_static(zeroes, part);
        if (at > 0) assert_int_equal(ls_slices_add(&packed, ls_slice_static("\0\0\xff\xff", 4)), LS_OK);
        if (ls_ws_deflate_shared(f->pool, f->store, 1, &slice, 1, 0, &more) == LS_EAGAIN) {
            static const char stored[] = {0, 1, 0, '\xfe', '\xff', 0, 0}; /* one byte */
            assert_int_equal(part, 1);
            assert_int_equal(ls_slices_add(&packed, ls_slice_static(stored, sizeof stored)), LS_OK);
        }
        for (unsigned i = 0; i < more.count; i++)
            assert_int_equal(ls_slices_add(&packed, ls_slices_items(&more)[i]), LS_OK);
        more.count = 0; /* moved */
        ls_slices_clear(&more);
    }
    free(zeroes);
    return packed;
}

static int inflate_bomb(fixture *f, ls_ws_deflate *d, size_t len, uint64_t bytes_max, const char *more,
                        size_t more_len)
{
    ls_slices packed = bomb(f, len), out = {.count = 0};
    /* more: data of a message of its own, so that the end of the first part follows as well */
    if (more_len > 0) {
        assert_int_equal(ls_slices_add(&packed, ls_slice_static("\0\0\xff\xff", 4)), LS_OK);
        assert_int_equal(ls_slices_add(&packed, ls_slice_static(more, more_len)), LS_OK);
    }
    const int err = ls_ws_inflate_message(f->pool, d, ls_slices_items(&packed), packed.count, bytes_max, &out);
    packed.count = 0;
    ls_slices_clear(&packed);
    if (err == LS_OK) assert_true(out.bytes >= len);
    ls_slices_clear(&out);
    return err;
}

TEST_IN(fixture, f, the_limit_of_the_inflated_size)
{
    static const size_t limits[] = {
        100, LS_BLOCK_SMALL, LS_BLOCK_LARGE - 1, LS_BLOCK_LARGE, LS_BLOCK_LARGE + 1, 2 * LS_BLOCK_LARGE, MIB};
    ls_ws_deflate d = open_side(f, false, false, 15);
    ls_slices out;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        assert_int_equal(inflate_bomb(f, &d, limits[i], limits[i], NULL, 0), LS_OK);
        assert_int_equal(inflate_bomb(f, &d, limits[i] + 1, limits[i], NULL, 0), LS_EMSGSIZE);
        assert_int_equal(inflate_bomb(f, &d, limits[i] * 3, limits[i], NULL, 0), LS_EMSGSIZE);
    }
    assert_int_equal(inflate_bytes(f, &d, "\0", 1, 0, &out), LS_OK); /* empty */
    ls_slices_clear(&out);
    assert_int_equal(inflate_bytes(f, &d, BYTES(0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00), 0, &out), LS_EMSGSIZE);
    ls_ws_deflate_end(&d);
}

/* What the limits of the receiver would refuse is sent uncompressed, and the context stays the same on both sides. */
TEST_IN(fixture, f, a_sender_keeps_to_the_ratio)
{
    char *zeroes = calloc(1, LS_WS_INFLATE_FREE_BYTES + 1), *text = prose(3000);
    assert_non_null(zeroes);
    for (int takeover = 0; takeover < 2; takeover++) {
        ls_ws_deflate server = open_side(f, false, takeover, 15), client = open_side(f, true, takeover, 15);
        ls_slices out = {.count = 0};
        (void)transfers(f, &server, &client, text, 3000, 3000);
        (void)transfers(f, &server, &client, zeroes, LS_WS_INFLATE_FREE_BYTES, LS_WS_INFLATE_FREE_BYTES);
        ls_slice slice = ls_slice_static(zeroes, LS_WS_INFLATE_FREE_BYTES + 1);
        assert_int_equal(ls_ws_deflate_message(f->pool, &server, &slice, 1, ROOM, &out), LS_EAGAIN);
        assert_int_equal(out.count, 0);
        (void)transfers(f, &server, &client, text, 3000, 3000);
        (void)transfers(f, &server, &client, text, 2000, 3000);
        ls_ws_deflate_end(&server);
        ls_ws_deflate_end(&client);
    }
    free(zeroes);
    free(text);
}

TEST_IN(fixture, f, the_limit_of_the_ratio)
{
    ls_ws_deflate d = open_side(f, false, false, 15);
    assert_int_equal(inflate_bomb(f, &d, LS_WS_INFLATE_FREE_BYTES, 64 * MIB, NULL, 0), LS_OK);
    assert_int_equal(inflate_bomb(f, &d, LS_WS_INFLATE_FREE_BYTES + 1, 64 * MIB, NULL, 0), LS_EMSGSIZE);

    /* 2 MiB of zeroes, followed by as many stored bytes as make it exactly 100 times the compressed size */
    const size_t len = 2 * MIB;
    ls_slices packed = bomb(f, len);
    const size_t base = packed.bytes;
    ls_slices_clear(&packed);
    /* stored: 5 + n + 1 bytes in, n out, and 4 for the end of the first part:  len + n <= 100 (base + 10 + n) */
    const size_t least = (len - LS_WS_INFLATE_RATIO_MAX * (base + 10) + 98) / 99;
    for (size_t n = least - 1; n <= least; n++) {
        char *more = calloc(1, n + 6);
        assert_non_null(more);
        more[1] = (char)(n & 0xff);
        more[2] = (char)(n >> 8);
        more[3] = (char)~more[1];
        more[4] = (char)~more[2];
        assert_int_equal(inflate_bomb(f, &d, len, 64 * MIB, more, n + 6), n < least ? LS_EMSGSIZE : LS_OK);
        free(more);
    }
    ls_ws_deflate_end(&d);
}

TEST_IN(fixture, f, a_message_at_the_limit_fits_the_bound)
{
    ls_ws_deflate d = open_side(f, false, true, 9); /* the worst case: noise with the smallest tables */
    for (size_t len = 1; len <= MIB; len = len * 3 + 1) {
        char *bytes = noise(len);
        const ls_slice slice = ls_slice_static(bytes, len);
        ls_slices out = {.count = 0};
        assert_int_equal(ls_ws_deflate_message(f->pool, &d, &slice, 1, 0, &out), LS_OK);
        assert_true(out.bytes <= ls_ws_deflate_bound(len));
        ls_slices_clear(&out);
        free(bytes);
    }
    assert_true(ls_ws_deflate_bound(UINT64_MAX) == UINT64_MAX);
    ls_ws_deflate_end(&d);
}

TEST_IN(fixture, f, the_memory_of_takeover_is_limited)
{
    static const char offers[] = "permessage-deflate";
    ls_ws_deflate_options options = LS_WS_DEFLATE_OPTIONS;
    ls_ws_deflate first, second, third;
    ls_ws_deflate_store *store;
    char text[LS_WS_DEFLATE_TEXT_MAX];
    size_t len;
    options.takeover = true;
    assert_int_equal(ls_ws_deflate_negotiate(f->store, offers, strlen(offers), &options, &first, text, &len), LS_OK);
    const uint64_t each = ls_ws_deflate_store_bytes(f->store);
    assert_in_range(each, 256 << 10, 320 << 10);
    ls_ws_deflate_end(&first);

    assert_int_equal(ls_ws_deflate_store_open(2 * each, &store), LS_OK);
    assert_int_equal(ls_ws_deflate_negotiate(store, offers, strlen(offers), &options, &first, text, &len), LS_OK);
    assert_int_equal(ls_ws_deflate_negotiate(store, offers, strlen(offers), &options, &second, text, &len), LS_OK);
    assert_int_equal(len, strlen(offers));
    assert_int_equal(ls_ws_deflate_store_bytes(store), 2 * each); /* the limit is reached, not exceeded */
    assert_int_equal(ls_ws_deflate_negotiate(store, offers, strlen(offers), &options, &third, text, &len), LS_OK);
    assert_true(len > strlen(offers));
    assert_memory_equal(text + strlen(offers), "; server_no_context_takeover; client_no_context_takeover",
                        len - strlen(offers));
    assert_true(first.send_takeover && second.receive_takeover && !third.send_takeover && !third.receive_takeover);
    ls_ws_deflate_end(&first);
    ls_ws_deflate_end(&third);
    assert_int_equal(ls_ws_deflate_negotiate(store, offers, strlen(offers), &options, &first, text, &len), LS_OK);
    assert_true(first.send_takeover);
    ls_ws_deflate_end(&first);
    ls_ws_deflate_end(&second);
    assert_int_equal(ls_ws_deflate_store_bytes(store), 0);
    ls_ws_deflate_store_close(store);

    assert_int_equal(ls_ws_deflate_store_open(each - 1, &store), LS_OK);
    const ls_ws_deflate_params params = {true, true, 15, 15};
    assert_int_equal(ls_ws_deflate_begin(store, &params, 1, false, &first), LS_ELIMIT);
    ls_ws_deflate_store_close(store);
}

TEST_IN(fixture, f, out_of_memory)
{
    ls_ws_deflate d = open_side(f, false, false, 15);
    ls_block *held[CAP / LS_BLOCK_LARGE];
    unsigned count = 0;
    ls_slices packed = bomb(f, 3 * LS_BLOCK_LARGE), out = {.count = 0};
    char *text = prose(1000);
    const ls_slice slice = ls_slice_static(text, 1000);
    while (count < sizeof held / sizeof held[0] && (held[count] = ls_block_get(f->pool, LS_BLOCK_LARGE)) != NULL)
        count++;
    assert_int_equal(ls_ws_deflate_message(f->pool, &d, &slice, 1, 0, &out), LS_ENOMEM);
    ls_block_drop(held[--count]); /* one block, of the four that are needed */
    assert_int_equal(ls_ws_inflate_message(f->pool, &d, ls_slices_items(&packed), packed.count, MIB, &out), LS_ENOMEM);
    assert_int_equal(out.count, 0);
    packed.count = 0;
    ls_slices_clear(&packed);
    assert_int_equal(ls_ws_deflate_message(f->pool, &d, &slice, 1, 0, &out), LS_OK);
    ls_slices_clear(&out);
    while (count > 0) ls_block_drop(held[--count]);
    free(text);
    ls_ws_deflate_end(&d);
}
