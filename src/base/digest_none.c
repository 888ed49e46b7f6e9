/* digest_none.c - see digest.h: a build without OpenSSL. */
#include "base/digest.h"
#include "base/err.h"

int ls_digest_start(void)
{
    return LS_OK;
}

int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES])
{
    (void)bytes;
    (void)len;
    (void)out;
    return LS_ENOTSUP;
}
