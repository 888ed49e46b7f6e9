/* hash.c - see hash.h. */
#include "base/hash.h"

#include <string.h>

#include "base/clock.h"

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static inline void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint64_t ls_hash(const uint64_t seed[2], const char *bytes, size_t len)
{
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575, seed[1] ^ 0x646f72616e646f6d, seed[0] ^ 0x6c7967656e657261,
                     seed[1] ^ 0x7465646279746573};
    uint64_t word;
    size_t left = len;
    for (; left >= 8; left -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, bytes, left);
    word |= (uint64_t)len << 56;
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    mix(v);
    mix(v);
    mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Times in full resolution, and addresses, which the system randomizes. */
void ls_hash_seed(uint64_t seed[2])
{
    const uint64_t times[3] = {ls_clock_ns(), (uint64_t)ls_clock_wall_us(), (uint64_t)(uintptr_t)seed};
    const uint64_t places[3] = {(uint64_t)(uintptr_t)&times, (uint64_t)(uintptr_t)ls_hash_seed, ls_clock_ns()};
    const uint64_t zero[2] = {0, 0};
    seed[0] = ls_hash(zero, (const char *)times, sizeof times);
    seed[1] = ls_hash(seed, (const char *)places, sizeof places);
}
