/* signature_none.c - see signature.h: a build without OpenSSL, in which there are no keys. */
#include "base/crypto/signature.h"
#include "base/err.h"

int ls_signature_key_open(const char *pem, size_t len, ls_signature_key **out)
{
    return LS_ENOTSUP;
}

void ls_signature_key_free(ls_signature_key *key)
{
}

ls_signature_kind ls_signature_key_kind(const ls_signature_key *key)
{
    return LS_RS256;
}

int ls_signature_make(const ls_signature_key *key, const void *data, size_t len, uint8_t out[LS_SIGNATURE_BYTES_MAX])
{
    return LS_ENOTSUP;
}

int ls_signature_check(const ls_signature_key *key, const void *data, size_t len, const uint8_t *signature,
                       size_t signature_len)
{
    return LS_ENOTSUP;
}
