/* seal_none.c - see seal.h: a build without OpenSSL. */
#include "base/crypto/seal.h"
#include "base/err.h"

int ls_seal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const void *text,
            size_t len, uint8_t *out)
{
    return LS_ENOTSUP;
}

int ls_unseal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const uint8_t *sealed,
              size_t len, uint8_t *out)
{
    return ls_seal(key, context, context_len, sealed, len, out);
}

int ls_scrypt(const void *password, size_t password_len, const void *salt, size_t salt_len, unsigned log_n, unsigned r,
              unsigned p, uint8_t *out, size_t out_len)
{
    return LS_ENOTSUP;
}
