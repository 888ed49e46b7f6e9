/* signature_openssl.c - see signature.h. */
#include "base/crypto/signature.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/crypto/digest.h"
#include "base/err.h"

enum { RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, ES256_HALF = 32, ES256_BYTES = 2 * ES256_HALF, DER_BYTES_MAX = 128 };

struct ls_signature_key {
    EVP_PKEY *key;
    ls_signature_kind kind;
    bool is_private;
};

/* Without it OpenSSL would ask for the password of an encrypted key at the terminal. */
static int no_password(char *to, int size, int writing, void *user)
{
    return -1;
}

static int kind_of(const EVP_PKEY *key, ls_signature_kind *kind)
{
    char group[32];
    size_t len;
    if (EVP_PKEY_is_a(key, "RSA")) {
        const int bits = EVP_PKEY_get_bits(key);
        *kind = LS_RS256;
        return bits >= RSA_BITS_MIN && bits <= RSA_BITS_MAX ? LS_OK : LS_ENOTSUP;
    }
    if (EVP_PKEY_is_a(key, "EC")) {
        *kind = LS_ES256;
        return EVP_PKEY_get_group_name(key, group, sizeof group, &len) == 1 && strcmp(group, "prime256v1") == 0
                   ? LS_OK
                   : LS_ENOTSUP;
    }
    *kind = LS_EDDSA;
    return EVP_PKEY_is_a(key, "ED25519") ? LS_OK : LS_ENOTSUP;
}

int ls_signature_key_open(const char *pem, size_t len, ls_signature_key **out)
{
    int err = ls_digest_start();
    if (err < 0) return err;
    if (len > INT_MAX) return LS_EINVAL;
    ls_signature_key *made = calloc(1, sizeof *made);
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (made == NULL || bio == NULL) {
        err = ls_openssl_failed(LS_ENOMEM);
        goto out;
    }
    made->key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    made->is_private = made->key != NULL;
    if (made->key == NULL && BIO_reset(bio) == 1) made->key = PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    if (made->key == NULL) {
        err = ls_openssl_failed(LS_EINVAL);
        goto out;
    }
    if ((err = kind_of(made->key, &made->kind)) == LS_OK) {
        *out = made;
        made = NULL;
    }
    ERR_clear_error();
out:
    BIO_free(bio);
    ls_signature_key_free(made);
    return err;
}

void ls_signature_key_free(ls_signature_key *key)
{
    if (key == NULL) return;
    EVP_PKEY_free(key->key);
    free(key);
}

ls_signature_kind ls_signature_key_kind(const ls_signature_key *key)
{
    return key->kind;
}

static const EVP_MD *digest_of(const ls_signature_key *key)
{
    return key->kind == LS_EDDSA ? NULL : EVP_sha256();
}

/* The two numbers of 32 bytes (RFC 7518 section 3.4) from the DER form of OpenSSL. */
static int plain_of(const uint8_t *der, size_t len, uint8_t out[ES256_BYTES])
{
    ECDSA_SIG *numbers = d2i_ECDSA_SIG(NULL, &der, (long)len);
    const bool written = numbers != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(numbers), out, ES256_HALF) == ES256_HALF &&
                         BN_bn2binpad(ECDSA_SIG_get0_s(numbers), out + ES256_HALF, ES256_HALF) == ES256_HALF;
    ECDSA_SIG_free(numbers);
    return written ? ES256_BYTES : LS_ENOMEM;
}

/* The reverse. Returns the number of bytes. */
static int der_of(const uint8_t plain[ES256_BYTES], uint8_t out[DER_BYTES_MAX])
{
    int len = LS_ENOMEM;
    ECDSA_SIG *numbers = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(plain, ES256_HALF, NULL), *s = BN_bin2bn(plain + ES256_HALF, ES256_HALF, NULL);
    if (numbers != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(numbers, r, s) == 1) {
        r = s = NULL; /* they belong to `numbers` */
        len = i2d_ECDSA_SIG(numbers, &out);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(numbers);
    return len > 0 ? len : LS_ENOMEM;
}

int ls_signature_make(const ls_signature_key *key, const void *data, size_t len, uint8_t out[LS_SIGNATURE_BYTES_MAX])
{
    uint8_t der[DER_BYTES_MAX];
    size_t bytes = key->kind == LS_ES256 ? sizeof der : LS_SIGNATURE_BYTES_MAX;
    if (!key->is_private) return LS_EINVAL;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const bool made = ctx != NULL && EVP_DigestSignInit(ctx, NULL, digest_of(key), NULL, key->key) == 1 &&
                      EVP_DigestSign(ctx, key->kind == LS_ES256 ? der : out, &bytes, data, len) == 1;
    EVP_MD_CTX_free(ctx);
    const int result = !made ? LS_ENOMEM : key->kind == LS_ES256 ? plain_of(der, bytes, out) : (int)bytes;
    return result < 0 ? ls_openssl_failed(result) : result;
}

int ls_signature_check(const ls_signature_key *key, const void *data, size_t len, const uint8_t *signature,
                       size_t signature_len)
{
    uint8_t der[DER_BYTES_MAX];
    if (key->kind == LS_ES256) {
        const int bytes = signature_len == ES256_BYTES ? der_of(signature, der) : LS_EINVAL;
        if (bytes < 0) return ls_openssl_failed(bytes);
        signature = der;
        signature_len = (size_t)bytes;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int err = LS_ENOMEM;
    if (ctx != NULL && EVP_DigestVerifyInit(ctx, NULL, digest_of(key), NULL, key->key) == 1)
        err = EVP_DigestVerify(ctx, signature, signature_len, data, len) == 1 ? LS_OK : LS_EINVAL;
    EVP_MD_CTX_free(ctx);
    return err < 0 ? ls_openssl_failed(err) : err;
}
