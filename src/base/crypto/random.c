/* random.c - see random.h. */
#include "base/crypto/random.h"

#include <string.h>

#include "base/compiler.h"

enum { AHEAD_BYTES = 128 }; /* thread-local, which is scarce in a library that is loaded with dlopen */

typedef struct ahead {
    unsigned left; /* the last `left` bytes have not been given out */
    char bytes[AHEAD_BYTES];
} ahead;

static LS_THREAD_LOCAL ahead taken;

void ls_random(void *out, size_t len)
{
    ahead *const a = &taken;
    if (len > AHEAD_BYTES / 2) {
        ls_random_system(out, len);
        return;
    }
    if (len > a->left) {
        ls_random_system(a->bytes, sizeof a->bytes);
        a->left = sizeof a->bytes;
    }
    char *const from = a->bytes + sizeof a->bytes - a->left;
    memcpy(out, from, len);
    memset(from, 0, len); /* a later leak of this memory does not tell it */
    a->left -= (unsigned)len;
}
