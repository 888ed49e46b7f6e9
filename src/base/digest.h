/* digest.h - message digests, from OpenSSL. Any thread. */
#ifndef LS_BASE_DIGEST_H
#define LS_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { LS_SHA1_BYTES = 20 };

/* SHA-1 (FIPS 180-4), which the handshake of WebSocket requires; it is broken for signatures. LS_OK; LS_ENOTSUP: built
 * without OpenSSL, or OpenSSL is configured to refuse it; LS_ENOMEM. */
int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES]);

#endif
