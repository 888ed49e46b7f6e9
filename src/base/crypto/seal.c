/* seal.c - see seal.h: what needs no library. */
#include "base/crypto/seal.h"

bool ls_secret_equal(const void *a, const void *b, size_t len)
{
    const volatile uint8_t *x = a, *y = b; /* volatile: the compiler must not end the loop early */
    uint8_t difference = 0;
    for (size_t n = 0; n < len; n++) difference |= x[n] ^ y[n];
    return difference == 0;
}
