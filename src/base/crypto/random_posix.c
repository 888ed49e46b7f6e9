/* random_posix.c - see random.h: getrandom(2), or /dev/urandom where a sandbox forbids the call. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/crypto/random.h"

static void read_device(char *out, size_t len)
{
    FILE *device = fopen("/dev/urandom", "rbe");
    if (device == NULL || fread(out, 1, len, device) != len) {
        fputs("luaserve: getrandom and /dev/urandom fail: no random bytes\n", stderr);
        abort();
    }
    (void)fclose(device);
}

void ls_random_system(void *out, size_t len)
{
    for (char *at = out, *const end = at + len; at < end;) {
        const ssize_t got = getrandom(at, (size_t)(end - at), 0); /* a signal ends a long request early */
        if (got > 0) {
            at += got;
        } else if (errno != EINTR) {
            read_device(at, (size_t)(end - at));
            return;
        }
    }
}
