/* digest_openssl.c - see digest.h. A digest is fetched once: a search among the providers for each use would take
 * longer than the digest of a handshake. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/crypto/digest.h"
#include "base/err.h"

enum { BLOCK_BYTES_MAX = 128 }; /* of SHA-512 */

static const char *const names[LS_DIGESTS] = {"MD5", "SHA1", "SHA2-256", "SHA2-384", "SHA2-512"};
static _Atomic(EVP_MD *) digests[LS_DIGESTS]; /* NULL: not fetched. They stay until the process ends */

struct ls_hasher {
    EVP_MD_CTX *ctx;
    const EVP_MD *md;
    unsigned block_bytes;
    bool keyed;
    uint8_t outer[BLOCK_BYTES_MAX]; /* keyed: the key with the pad of the second digest */
};

int ls_openssl_failed(int err)
{
    for (unsigned long code; (code = ERR_get_error()) != 0;)
        if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE) err = LS_ENOMEM;
    return err;
}

static int fetch(ls_digest digest, EVP_MD **out)
{
    EVP_MD *before = NULL, *fetched = atomic_load_explicit(&digests[digest], memory_order_acquire);
    if (fetched == NULL) {
        /* When the default context cannot be made, this call alone reports it: others use a lock that is NULL. */
        if (OSSL_LIB_CTX_get0_global_default() == NULL) return LS_ENOMEM;
        if ((fetched = EVP_MD_fetch(NULL, names[digest], NULL)) == NULL) return ls_openssl_failed(LS_ENOTSUP);
        if (!atomic_compare_exchange_strong(&digests[digest], &before, fetched)) { /* another thread was faster */
            EVP_MD_free(fetched);
            fetched = before;
        }
    }
    *out = fetched;
    return LS_OK;
}

int ls_digest_start(void)
{
    EVP_MD *md = NULL;
    const int err = fetch(LS_DIGEST_SHA1, &md);
    return err == LS_ENOTSUP ? LS_OK : err;
}

int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES])
{
    EVP_MD *md = NULL;
    const int err = fetch(LS_DIGEST_SHA1, &md);
    if (err < 0) return err;
    return EVP_Digest(bytes, len, out, NULL, md, NULL) == 1 ? LS_OK : ls_openssl_failed(LS_ENOMEM);
}

/* Begin the first digest of the HMAC with the key, which a digest shortens when it is longer than a block. */
static bool key_begin(ls_hasher *hash, const void *key, size_t key_len)
{
    uint8_t inner[BLOCK_BYTES_MAX] = {0};
    if (key_len > hash->block_bytes) {
        if (EVP_Digest(key, key_len, inner, NULL, hash->md, NULL) != 1) return false;
    } else if (key_len > 0) {
        memcpy(inner, key, key_len);
    }
    for (unsigned n = 0; n < hash->block_bytes; n++) {
        hash->outer[n] = inner[n] ^ 0x5c;
        inner[n] ^= 0x36;
    }
    hash->keyed = true;
    const bool begun = EVP_DigestUpdate(hash->ctx, inner, hash->block_bytes) == 1;
    OPENSSL_cleanse(inner, sizeof inner);
    return begun;
}

int ls_hasher_open(ls_digest digest, const void *key, size_t key_len, ls_hasher **out)
{
    EVP_MD *md = NULL;
    const int err = fetch(digest, &md);
    if (err < 0) return err;
    ls_hasher *hash = calloc(1, sizeof *hash);
    if (hash == NULL) return LS_ENOMEM;
    hash->md = md;
    hash->block_bytes = (unsigned)EVP_MD_get_block_size(md);
    hash->ctx = EVP_MD_CTX_new();
    if (hash->ctx == NULL || EVP_DigestInit_ex2(hash->ctx, md, NULL) != 1 ||
        (key != NULL && !key_begin(hash, key, key_len))) {
        ls_hasher_free(hash);
        return ls_openssl_failed(LS_ENOMEM);
    }
    *out = hash;
    return LS_OK;
}

int ls_hasher_add(ls_hasher *hash, const void *bytes, size_t len)
{
    return EVP_DigestUpdate(hash->ctx, bytes, len) == 1 ? LS_OK : ls_openssl_failed(LS_ENOMEM);
}

int ls_hasher_end(ls_hasher *hash, uint8_t out[LS_DIGEST_BYTES_MAX])
{
    unsigned len;
    if (EVP_DigestFinal_ex(hash->ctx, out, &len) != 1) return ls_openssl_failed(LS_ENOMEM);
    if (hash->keyed && (EVP_DigestInit_ex2(hash->ctx, hash->md, NULL) != 1 ||
                        EVP_DigestUpdate(hash->ctx, hash->outer, hash->block_bytes) != 1 ||
                        EVP_DigestUpdate(hash->ctx, out, len) != 1 || EVP_DigestFinal_ex(hash->ctx, out, &len) != 1))
        return ls_openssl_failed(LS_ENOMEM);
    return (int)len;
}

void ls_hasher_free(ls_hasher *hash)
{
    if (hash == NULL) return;
    EVP_MD_CTX_free(hash->ctx);
    OPENSSL_cleanse(hash->outer, sizeof hash->outer);
    free(hash);
}
