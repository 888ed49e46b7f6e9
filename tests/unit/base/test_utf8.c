/* test_utf8.c - text in parts gives the same result for every split, and as a decoder written from the table of RFC
 * 3629; a byte that no character can have is refused at once. */
/* sanitizers: asan; no thread starts */
#include "base/utf8.h"

#include "support.h"

/* Whether the bytes are exactly one character: decode it, and compare with the shortest encoding. */
static bool is_character(const unsigned char *s, size_t len)
{
    static const unsigned long first[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned long code;
    if (len == 1) return s[0] < 0x80;
    if (len < 2 || len > 4) return false;
    const unsigned lead = len == 2 ? 0xc0 : len == 3 ? 0xe0 : 0xf0, bits = len == 2 ? 5 : len == 3 ? 4 : 3;
    if ((s[0] & ~((1u << bits) - 1) & 0xff) != lead) return false;
    code = s[0] & ((1u << bits) - 1);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) return false;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code >= first[len] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

static bool feed_copy(ls_utf8 *state, const void *bytes, size_t len)
{
    char *copy = test_copy_exact(bytes, len);
    const bool valid = ls_utf8_feed(state, copy, len);
    free(copy);
    return valid;
}

/* Feed whole, in two parts split everywhere, and byte by byte; all agree. */
static bool valid_every_way(const void *bytes, size_t len)
{
    ls_utf8 state = {0};
    const bool valid = feed_copy(&state, bytes, len) && ls_utf8_complete(&state);
    bool bytewise = true;
    assert_int_equal(ls_utf8_valid(bytes, len), valid);
    for (size_t split = 0; split <= len; split++) {
        ls_utf8 two = {0};
        const bool part = feed_copy(&two, bytes, split) && feed_copy(&two, (const char *)bytes + split, len - split);
        assert_int_equal(part && ls_utf8_complete(&two), valid);
    }
    state = (ls_utf8){0};
    for (size_t i = 0; i < len && bytewise; i++) bytewise = feed_copy(&state, (const char *)bytes + i, 1);
    assert_int_equal(bytewise && ls_utf8_complete(&state), valid);
    return valid;
}

/* Every sequence of 1 to 3 bytes, and of 4 with the bytes at which a rule changes. */
TEST(every_sequence_is_as_in_the_table)
{
    static const unsigned char edges[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};
    unsigned char s[4];
    for (unsigned n = 0; n < 0x1000000; n++) {
        ls_utf8 state = {0};
        s[0] = (unsigned char)(n >> 16), s[1] = (unsigned char)(n >> 8), s[2] = (unsigned char)n;
        if (s[0] < 0xe0 && s[2] != 0) continue; /* decided by fewer bytes */
        if (s[0] < 0x80 && s[1] != 0) continue;
        const size_t len = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : 3;
        const bool complete = ls_utf8_feed(&state, s, len) && ls_utf8_complete(&state);
        if (complete != is_character(s, len)) fail_msg("%02x %02x %02x", s[0], s[1], s[2]);
    }
    for (unsigned first = 0xe0; first < 0x100; first++) {
        for (size_t n = 0; n < sizeof edges * sizeof edges * sizeof edges; n++) {
            s[0] = (unsigned char)first;
            s[1] = edges[n % sizeof edges];
            s[2] = edges[n / sizeof edges % sizeof edges];
            s[3] = edges[n / sizeof edges / sizeof edges];
            const bool four = is_character(s, 4) || (is_character(s, 3) && s[3] < 0x80);
            if (valid_every_way(s, 4) != four) fail_msg("%02x %02x %02x %02x", s[0], s[1], s[2], s[3]);
        }
    }
}

/* A bad byte is found at every place around the blocks of the fast path, and only a whole text is complete. */
TEST(every_place_is_checked)
{
    enum { LEN = 80 };
    static const char *const bad[] = {"\x80", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
    char text[LEN + 8];
    for (size_t len = 0; len < LEN; len++) {
        for (size_t at = 0; at <= len; at++) {
            memset(text, 'a', sizeof text);
            memcpy(text + at, "\xe2\x82\xac", 3);
            assert_true(ls_utf8_valid(text, len + 3));
            for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
                memset(text, 'a', sizeof text);
                memcpy(text + at, bad[b], strlen(bad[b]));
                assert_false(ls_utf8_valid(text, len + strlen(bad[b])));
            }
        }
    }
}

/* The byte that shows it is refused; those before it are not. */
TEST(refused_at_the_first_byte_that_shows_it)
{
    static const struct {
        const char *bytes;
        size_t good; /* bytes that are accepted */
    } cases[] = {
        {"\x80", 0},                 /* a continuation */
        {"\xc0\x80", 0},             /* overlong */
        {"\xc1\xbf", 0},             /* overlong */
        {"\xe0\x9f\xbf", 1},         /* overlong */
        {"\xf0\x8f\xbf\xbf", 1},     /* overlong */
        {"\xed\xa0\x80", 1},         /* a surrogate */
        {"\xf4\x90\x80\x80", 1},     /* U+110000 */
        {"\xf5\x80\x80\x80", 0},     /* above */
        {"\xf8\x88\x80\x80\x80", 0}, /* five bytes */
        {"\xff", 0},
        {"a\xe2\x28\xa1", 2},
        {"a\xe2\x82\x28", 3},
        {"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80", 12},
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        ls_utf8 state = {0};
        size_t good = 0;
        while (good < strlen(cases[n].bytes) && feed_copy(&state, cases[n].bytes + good, 1)) good++;
        assert_int_equal(good, cases[n].good);
        assert_false(valid_every_way(cases[n].bytes, strlen(cases[n].bytes)));
        if (good > 0) { /* in one part as well: the whole up to the bad byte fails, without it not */
            ls_utf8 whole = {0};
            assert_true(feed_copy(&whole, cases[n].bytes, good));
            whole = (ls_utf8){0};
            assert_false(feed_copy(&whole, cases[n].bytes, good + 1));
        }
    }
}

TEST(texts)
{
    static const char text[] =
        "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x99\x82\xf4\x8f\xbf\xbf\xed\x9f\xbf\xee\x80\x80 ok";
    assert_true(valid_every_way("", 0));
    assert_true(valid_every_way("\0", 1));
    assert_true(valid_every_way(text, sizeof text - 1));
}
