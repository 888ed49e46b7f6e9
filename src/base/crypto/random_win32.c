/* random_win32.c - see random.h: BCryptGenRandom. */
#include <stdio.h>
#include <stdlib.h>

#include <windows.h>

#include <bcrypt.h>

#include "base/crypto/random.h"

void ls_random_system(void *out, size_t len)
{
    for (unsigned char *at = out, *const end = at + len; at < end;) {
        const ULONG n = end - at < (1 << 30) ? (ULONG)(end - at) : 1UL << 30;
        if (BCryptGenRandom(NULL, at, n, BCRYPT_USE_SYSTEM_PREFERRED_RNG) != 0) {
            fputs("luaserve: BCryptGenRandom fails: no random bytes\n", stderr);
            abort();
        }
        at += n;
    }
}
