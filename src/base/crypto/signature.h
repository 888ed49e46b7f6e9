/* signature.h - signatures with keys from PEM text, from OpenSSL. A key has one algorithm, so that no caller can use
 * it with another. Any thread; a key may be used by several at a time. */
#ifndef LS_BASE_SIGNATURE_H
#define LS_BASE_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names are those of JSON Web Algorithms (RFC 7518, RFC 8037): RSASSA-PKCS1-v1_5 with SHA-256 and a key of 2,048
 * to 8,192 bits; ECDSA with P-256 and SHA-256, as 64 bytes; Ed25519. */
typedef enum ls_signature_kind { LS_RS256, LS_ES256, LS_EDDSA } ls_signature_kind;

enum { LS_SIGNATURE_BYTES_MAX = 1024 };

typedef struct ls_signature_key ls_signature_key;

/* Read the first private or public key of a PEM text, without a password. LS_OK; LS_EINVAL: no key was found;
 * LS_ENOTSUP: of another kind or size, or built without OpenSSL; LS_ENOMEM. */
int ls_signature_key_open(const char *pem, size_t len, ls_signature_key **out);
void ls_signature_key_free(ls_signature_key *key); /* also NULL */
ls_signature_kind ls_signature_key_kind(const ls_signature_key *key);

/* Sign; needs a private key. Returns the number of bytes of the signature; LS_EINVAL: a public key; LS_ENOMEM. */
int ls_signature_make(const ls_signature_key *key, const void *data, size_t len, uint8_t out[LS_SIGNATURE_BYTES_MAX]);
/* LS_OK; LS_EINVAL: it is not the signature of the data; LS_ENOMEM. */
int ls_signature_check(const ls_signature_key *key, const void *data, size_t len, const uint8_t *signature,
                       size_t signature_len);

#endif
