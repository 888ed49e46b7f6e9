/* digest_openssl.c - see digest.h. SHA-1 is fetched once: a search among the providers for each digest would take
 * longer than the digest of a handshake. */
#include <stdatomic.h>

#include <openssl/err.h>
#include <openssl/evp.h>

#include "base/digest.h"
#include "base/err.h"

static _Atomic(EVP_MD *) sha1; /* NULL: not fetched. It stays until the process ends */

/* The error of a fetch. A lack of memory leaves its reason anywhere in the queue of the thread. */
static int fetch_error(void)
{
    int err = LS_ENOTSUP;
    for (unsigned long code; (code = ERR_get_error()) != 0;) /* the next TLS call of this thread must find none */
        if (ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE) err = LS_ENOMEM;
    return err;
}

static int fetch(EVP_MD **out)
{
    /* When the default context cannot be made, this call alone reports it: others use a lock that is NULL. */
    if (OSSL_LIB_CTX_get0_global_default() == NULL) return LS_ENOMEM;
    EVP_MD *before = NULL, *fetched = EVP_MD_fetch(NULL, "SHA1", NULL);
    if (fetched == NULL) return fetch_error();
    if (!atomic_compare_exchange_strong(&sha1, &before, fetched)) { /* another thread was faster */
        EVP_MD_free(fetched);
        fetched = before;
    }
    *out = fetched;
    return LS_OK;
}

int ls_digest_start(void)
{
    EVP_MD *md;
    const int err = atomic_load(&sha1) != NULL ? LS_OK : fetch(&md);
    return err == LS_ENOTSUP ? LS_OK : err;
}

int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES])
{
    EVP_MD *md = atomic_load_explicit(&sha1, memory_order_acquire);
    int err = LS_OK;
    if (md == NULL && (err = fetch(&md)) < 0) return err;
    if (EVP_Digest(bytes, len, out, NULL, md, NULL) == 1) return LS_OK;
    ERR_clear_error(); /* the next TLS call of this thread must not find it */
    return LS_ENOMEM;  /* its context; nothing else can fail */
}
