/* digest_none.c - see digest.h: a build without OpenSSL. */
#include "base/crypto/digest.h"
#include "base/err.h"

int ls_digest_start(void)
{
    return LS_OK;
}

int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES])
{
    return LS_ENOTSUP;
}

int ls_hasher_open(ls_digest digest, const void *key, size_t key_len, ls_hasher **out)
{
    return LS_ENOTSUP;
}

/* None can be open. */
int ls_hasher_add(ls_hasher *hash, const void *bytes, size_t len)
{
    return LS_ENOTSUP;
}

int ls_hasher_end(ls_hasher *hash, uint8_t out[LS_DIGEST_BYTES_MAX])
{
    return LS_ENOTSUP;
}

void ls_hasher_free(ls_hasher *hash)
{
}
