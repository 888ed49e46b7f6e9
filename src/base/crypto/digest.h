/* digest.h - message digests and HMAC, from OpenSSL. Any thread; one ls_hasher by one thread at a time. */
#ifndef LS_BASE_DIGEST_H
#define LS_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { LS_SHA1_BYTES = 20, LS_DIGEST_BYTES_MAX = 64 };

/* MD5 (RFC 1321) and SHA-1 are broken for signatures: they are for old protocols. SHA-2: FIPS 180-4. */
typedef enum ls_digest {
    LS_DIGEST_MD5,
    LS_DIGEST_SHA1,
    LS_DIGEST_SHA256,
    LS_DIGEST_SHA384,
    LS_DIGEST_SHA512,
    LS_DIGESTS
} ls_digest;

/* Initialise OpenSSL, unless the program has done so, and prepare the digests. To be called before any other use of
 * OpenSSL, where a lack of memory can be reported: what OpenSSL could not initialise it never initialises later, and
 * then calls of it may end the process. It takes a millisecond and 2 MiB, mostly of the library's own pages; therefore
 * app:ws and ls_tls_open call it, not every server. Further calls have no effect. LS_OK, also when a digest is not
 * available; LS_ENOMEM. */
int ls_digest_start(void);

/* Of the other files of base/ that call OpenSSL: the error of a call that has failed, LS_ENOMEM if memory was the
 * reason, which may be anywhere in the queue of the thread. Empties the queue: the next TLS call of this thread must
 * find none. */
int ls_openssl_failed(int err);

/* SHA-1, which the handshake of WebSocket requires. LS_OK; LS_ENOTSUP: built without OpenSSL, or OpenSSL is configured
 * to refuse it; LS_ENOMEM. */
int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES]);

/* A digest in progress, or an HMAC (RFC 2104). */
typedef struct ls_hasher ls_hasher;

/* Begin a digest; with a key, which may be NULL, an HMAC. Errors as of ls_sha1. Give it back with ls_hasher_free. */
int ls_hasher_open(ls_digest digest, const void *key, size_t key_len, ls_hasher **out);
/* Add bytes. LS_OK, LS_ENOMEM. */
int ls_hasher_add(ls_hasher *hash, const void *bytes, size_t len);
/* Write the result and return the number of its bytes; LS_ENOMEM. Then only ls_hasher_free may follow. */
int ls_hasher_end(ls_hasher *hash, uint8_t out[LS_DIGEST_BYTES_MAX]);
void ls_hasher_free(ls_hasher *hash); /* also NULL */

#endif
