/* test_random.c - random bytes: all of the range is filled, nothing is given out twice, and threads get their own. */
#include "base/crypto/random.h"

#include "base/os/thread.h"
#include "support.h"

enum { KEY = 16, KEYS = 400 };

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, KEY);
}

/* 400 random keys of 128 bits are different: a collision has a probability of 2^-111. */
static void assert_different(char (*keys)[KEY], size_t count)
{
    qsort(keys, count, KEY, compare);
    for (size_t n = 1; n < count; n++) assert_memory_not_equal(keys[n - 1], keys[n], KEY);
}

TEST(keys_are_different)
{
    char keys[KEYS][KEY];
    for (size_t n = 0; n < KEYS; n++) ls_random(keys[n], KEY);
    assert_different(keys, KEYS);
}

/* Of every length, also past the bytes taken in advance: no byte outside is written, and each inside is, sooner or
 * later, another one (64 draws that leave a byte as it is: 2^-512). */
TEST(every_length_is_filled)
{
    unsigned char bytes[302], seen[302];
    ls_random(bytes, 0);
    for (size_t len = 1; len <= 300; len = len < 140 ? len + 1 : len + 32) {
        memset(seen, 0, sizeof seen);
        for (unsigned draw = 0; draw < 64; draw++) {
            memset(bytes, 0, sizeof bytes);
            ls_random(bytes + 1, len);
            for (size_t i = 0; i < sizeof bytes; i++) seen[i] |= bytes[i];
        }
        for (size_t i = 0; i < sizeof bytes; i++) assert_int_equal(seen[i] != 0, i >= 1 && i <= len);
    }
}

static void fill(void *keys)
{
    for (size_t n = 0; n < KEYS / 2; n++) ls_random((char *)keys + n * KEY, KEY);
}

TEST(threads_get_different_bytes)
{
    char keys[KEYS][KEY];
    ls_thread thread;
    assert_int_equal(ls_thread_start(&thread, "random", fill, keys[KEYS / 2]), LS_OK);
    fill(keys);
    ls_thread_join(&thread);
    assert_different(keys, KEYS);
}
