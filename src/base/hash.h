/* hash.h - the hash of a key or a topic: SipHash-1-3 with a secret seed, so that a client cannot choose names that
 * share a bucket. Pure, except ls_hash_seed. */
#ifndef LS_BASE_HASH_H
#define LS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Make a seed that a client cannot guess. */
void ls_hash_seed(uint64_t seed[2]);
uint64_t ls_hash(const uint64_t seed[2], const char *bytes, size_t len);

#endif
