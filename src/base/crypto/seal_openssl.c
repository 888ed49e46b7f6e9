/* seal_openssl.c - see seal.h. */
#include "base/crypto/seal.h"

#include <stdatomic.h>

#include <openssl/evp.h>

#include "base/crypto/digest.h"
#include "base/crypto/random.h"
#include "base/err.h"

enum { NONCE_BYTES = LS_SEAL_NONCE_BYTES, TAG_BYTES = LS_SEAL_BYTES - NONCE_BYTES, TEXT_BYTES_MAX = 1 << 30 };

static _Atomic(EVP_CIPHER *) aes; /* fetched once; it stays until the process ends */

static int fetch(const EVP_CIPHER **out)
{
    EVP_CIPHER *before = NULL, *fetched = atomic_load_explicit(&aes, memory_order_acquire);
    if (fetched == NULL) {
        const int err = ls_digest_start();
        if (err < 0) return err;
        if ((fetched = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL)) == NULL) return ls_openssl_failed(LS_ENOTSUP);
        if (!atomic_compare_exchange_strong(&aes, &before, fetched)) { /* another thread was faster */
            EVP_CIPHER_free(fetched);
            fetched = before;
        }
    }
    *out = fetched;
    return LS_OK;
}

/* Pass `context` and then `len` bytes through the cipher. */
static bool pass(EVP_CIPHER_CTX *ctx, const void *context, size_t context_len, const void *from, size_t len,
                 uint8_t *to)
{
    int written;
    return EVP_CipherUpdate(ctx, NULL, &written, context, (int)context_len) == 1 &&
           (len == 0 || EVP_CipherUpdate(ctx, to, &written, from, (int)len) == 1);
}

int ls_seal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const void *text,
            size_t len, uint8_t *out)
{
    const EVP_CIPHER *cipher = NULL;
    uint8_t none[TAG_BYTES];
    int written, err = fetch(&cipher);
    if (err < 0) return err;
    if (len > TEXT_BYTES_MAX || context_len > TEXT_BYTES_MAX) return LS_ELIMIT;
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    if (ctx == NULL) return ls_openssl_failed(LS_ENOMEM);
    ls_random(out, NONCE_BYTES);
    if (EVP_CipherInit_ex2(ctx, cipher, key, out, 1, NULL) != 1 ||
        !pass(ctx, context, context_len, text, len, out + NONCE_BYTES) ||
        EVP_CipherFinal_ex(ctx, none, &written) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out + NONCE_BYTES + len) != 1)
        err = ls_openssl_failed(LS_ENOMEM); /* nothing else can fail */
    EVP_CIPHER_CTX_free(ctx);
    return err;
}

int ls_unseal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const uint8_t *sealed,
              size_t len, uint8_t *out)
{
    const EVP_CIPHER *cipher = NULL;
    uint8_t tag[TAG_BYTES], none[TAG_BYTES];
    int written, err = fetch(&cipher);
    if (err < 0) return err;
    if (len < LS_SEAL_BYTES) return LS_EINVAL;
    len -= LS_SEAL_BYTES;
    if (len > TEXT_BYTES_MAX || context_len > TEXT_BYTES_MAX) return LS_ELIMIT;
    for (int n = 0; n < TAG_BYTES; n++) tag[n] = sealed[NONCE_BYTES + len + (size_t)n];
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    if (ctx == NULL) return ls_openssl_failed(LS_ENOMEM);
    if (EVP_CipherInit_ex2(ctx, cipher, key, sealed, 0, NULL) != 1 ||
        !pass(ctx, context, context_len, sealed + NONCE_BYTES, len, out) ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) != 1)
        err = ls_openssl_failed(LS_ENOMEM);
    else if (EVP_CipherFinal_ex(ctx, none, &written) != 1)
        err = ls_openssl_failed(LS_EINVAL);
    EVP_CIPHER_CTX_free(ctx);
    return err;
}

int ls_scrypt(const void *password, size_t password_len, const void *salt, size_t salt_len, unsigned log_n, unsigned r,
              unsigned p, uint8_t *out, size_t out_len)
{
    const uint64_t bytes_max = (uint64_t)LS_SCRYPT_MIB_MAX << 20;
    const int err = ls_digest_start();
    if (err < 0) return err;
    if (log_n < 1 || r < 1 || p < 1) return LS_EINVAL;
    if (log_n > 30 || r > 1 << 16 || p > 1 << 16 || 128 * (uint64_t)r * ((UINT64_C(1) << log_n) + p) > bytes_max)
        return LS_ELIMIT;
    if (log_n >= 16 * r) return LS_EINVAL; /* RFC 7914 section 2: N < 2^(128 * r / 8) */
    if (EVP_PBE_scrypt(password, password_len, salt, salt_len, UINT64_C(1) << log_n, r, p, 2 * bytes_max, out,
                       out_len) != 1)
        return ls_openssl_failed(LS_ENOMEM);
    return LS_OK;
}
