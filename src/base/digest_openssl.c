/* digest_openssl.c - see digest.h. */
#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/digest.h"
#include "base/err.h"

int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    size_t digest_len;
    if (EVP_Q_digest(NULL, "SHA1", NULL, bytes, len, digest, &digest_len) != 1) {
        const int err = ERR_GET_REASON(ERR_peek_last_error()) == ERR_R_MALLOC_FAILURE ? LS_ENOMEM : LS_ENOTSUP;
        ERR_clear_error(); /* the next TLS call of this thread must not find it */
        return err;
    }
    for (size_t i = 0; i < LS_SHA1_BYTES; i++) out[i] = digest[i];
    return LS_OK;
}
