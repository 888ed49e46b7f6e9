/* text.h - a run of bytes of someone else, and a hash of such bytes. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct ls_text {
    const char *ptr;
    size_t len;
} ls_text;

/* FNV-1a, but of words as long as there are any, and a multiplication that spreads the last bytes over all bits; without a
 * secret seed, and another value where the bytes of a number have another order. */
static inline uint64_t ls_text_hash(const char *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (; len >= sizeof word; len -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
        hash ^= hash >> 32;
    }
    for (; len > 0; len--) hash = (hash ^ (unsigned char)*bytes++) * UINT64_C(0x100000001b3);
    hash = (hash ^ hash >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ hash >> 32;
}

#endif
