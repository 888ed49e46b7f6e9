/* seal.h - sealed texts and password hashes, from OpenSSL. Any thread. */
#ifndef LS_BASE_SEAL_H
#define LS_BASE_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_SEAL_KEY_BYTES = 32,
    LS_SEAL_NONCE_BYTES = 12,
    LS_SEAL_BYTES = LS_SEAL_NONCE_BYTES + 16, /* by which a sealed text is longer: nonce and tag */
    LS_SCRYPT_MIB_MAX = 256                   /* memory of ls_scrypt: 128 * r * (2^log_n + p) bytes */
};

/* Encrypt and authenticate `text` and authenticate `context`, with AES-256-GCM (NIST SP 800-38D) and a random nonce of
 * 96 bits, so that a key may seal 2^32 texts. Writes len + LS_SEAL_BYTES bytes: nonce, ciphertext, tag. LS_OK;
 * LS_ENOTSUP: built without OpenSSL; LS_ELIMIT: longer than 1 GiB; LS_ENOMEM. */
int ls_seal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const void *text,
            size_t len, uint8_t *out);

/* The reverse: writes len - LS_SEAL_BYTES bytes; `out` may be sealed + LS_SEAL_NONCE_BYTES. LS_EINVAL: not sealed with
 * this key and context, or changed; then nothing in `out` may be used. The other errors as of ls_seal. */
int ls_unseal(const uint8_t key[LS_SEAL_KEY_BYTES], const void *context, size_t context_len, const uint8_t *sealed,
              size_t len, uint8_t *out);

/* scrypt (RFC 7914) with N = 2^log_n. Takes 50 ms to some seconds, by the parameters. LS_OK; LS_EINVAL: parameters
 * that the RFC excludes; LS_ELIMIT: more than LS_SCRYPT_MIB_MAX; LS_ENOTSUP: built without OpenSSL; LS_ENOMEM. */
int ls_scrypt(const void *password, size_t password_len, const void *salt, size_t salt_len, unsigned log_n, unsigned r,
              unsigned p, uint8_t *out, size_t out_len);

/* Whether the bytes are equal, in a time that does not depend on them. */
bool ls_secret_equal(const void *a, const void *b, size_t len);

#endif
