/* certificate_none.c - see certificate.h: a build without OpenSSL. */
#include "base/crypto/certificate.h"
#include "base/err.h"

int ls_key_make(char out[LS_KEY_PEM_BYTES_MAX])
{
    return LS_ENOTSUP;
}

int ls_key_point(const char *pem, size_t len, uint8_t out[LS_POINT_BYTES])
{
    return LS_ENOTSUP;
}

int ls_certificate_request(const char *pem, size_t len, const char *names, uint8_t *out, size_t room)
{
    return LS_ENOTSUP;
}

int ls_certificate_read(const char *pem, size_t len, ls_certificate *out, char *names, const char **why)
{
    *why = "this luaserve was built without OpenSSL";
    return LS_ENOTSUP;
}
