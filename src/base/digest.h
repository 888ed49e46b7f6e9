/* digest.h - message digests, from OpenSSL. Any thread. */
#ifndef LS_BASE_DIGEST_H
#define LS_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { LS_SHA1_BYTES = 20 };

/* Initialise OpenSSL, unless the program has done so, and prepare the digests. To be called before any other use of
 * OpenSSL, where a lack of memory can be reported: what OpenSSL could not initialise it never initialises later, and
 * then calls of it may end the process. It takes a millisecond and 2 MiB, mostly of the library's own pages; therefore
 * app:ws and ls_tls_open call it, not every server. Further calls have no effect. LS_OK, also when a digest is not
 * available; LS_ENOMEM. */
int ls_digest_start(void);

/* SHA-1 (FIPS 180-4), which the handshake of WebSocket requires; it is broken for signatures. LS_OK; LS_ENOTSUP: built
 * without OpenSSL, or OpenSSL is configured to refuse it; LS_ENOMEM. */
int ls_sha1(const void *bytes, size_t len, uint8_t out[LS_SHA1_BYTES]);

#endif
